"""Loaded deployment files, and the plans of their processes."""

from lmos_actors._late import late

with late(__name__):
    from ._deployment_file import (
        PARTS as PARTS,
        DeploymentFile as DeploymentFile,
        load_deployment as load_deployment,
    )
    from ._launch_plan import (
        launch_plan as launch_plan,
    )
    from ._node_limits import (
        node_limits as node_limits,
        with_limits as with_limits,
    )
