"""The options for discovery: registering, announcing and looking up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from .._app import FOUND, Switch


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DiscoveryOptions:
    """The options of commands whose agents are to be found."""

    register: Annotated[list[str] | None, Parameter(negative=(), metavar="URL", group=FOUND)] = None
    """A directory to register its agents in while they run, such as http://HOST:PORT. \
They look for others there too. May be given several times."""
    lookup: Annotated[list[str] | None, Parameter(negative=(), metavar="URL", group=FOUND)] = None
    """A directory to look for others in, without registering. May be given several times."""
    announce: Annotated[Switch, Parameter(group=FOUND)] = False
    """Announce it on this network by DNS-SD. Needs the extra mdns."""

    def options(self) -> dict[str, Any]:
        """Return what `open_node` takes."""
        return {"register": self.register, "lookup": self.lookup, "announce": self.announce}
