"""Structs of a deployment: its groups, and its launcher."""

from lmos_actors._late import late

with late(__name__):
    from ._deployment import (
        DATABASE as DATABASE,
        MOST_REPLICAS as MOST_REPLICAS,
        Deployment as Deployment,
        Group as Group,
        LauncherPage as LauncherPage,
        filled_for as filled_for,
        is_deployment as is_deployment,
        needs_of as needs_of,
        texts_of as texts_of,
    )
