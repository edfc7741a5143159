"""The options of `discover`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from .._app import JsonLines  # noqa: TC001 - the application reads the types
from ._connection import OutwardOptions

SOUGHT = Group("Which agents", sort_key=1)

_NOT_SHOWN = OutwardOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DiscoverOptions:
    """The options of `discover`."""

    title: Annotated[str | None, Parameter(group=SOUGHT)] = None
    """With this title."""
    type: Annotated[str | None, Parameter(group=SOUGHT)] = None
    """With this word in its @type."""
    capability: Annotated[str | None, Parameter(group=SOUGHT)] = None
    """With this capability."""
    affordance: Annotated[str | None, Parameter(metavar="NAME", group=SOUGHT)] = None
    """With an action, a property or an event of this name."""
    outward: OutwardOptions = _NOT_SHOWN
    json: JsonLines = False
