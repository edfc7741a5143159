"""The options of `fault-proxy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from .._app import REACHED, JsonLines, Switch, decimal, whole

LINKS = Group("Links", sort_key=1.5)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FaultProxyOptions:
    """The options of `fault-proxy`."""

    to: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)]
    """The server."""
    listen: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)] = "127.0.0.1:0"
    """Where clients connect; port 0 finds a free one."""
    insecure: Annotated[Switch, Parameter(group=REACHED)] = False
    """Listen at an address that other machines can reach; then they can reach the server, too."""
    latency: Annotated[str | None, Parameter(metavar="DELAY", group=LINKS)] = None
    """How long everything takes, each way."""
    jitter: Annotated[str | None, Parameter(metavar="DELAY", group=LINKS)] = None
    """A further delay, added to that."""
    loss: Annotated[float, Parameter(converter=decimal, metavar="SHARE", group=LINKS)] = 0.0
    """The share that gets lost, from 0 to below 1: it comes later, as it is sent again."""
    corrupt: Annotated[float, Parameter(converter=decimal, metavar="SHARE", group=LINKS)] = 0.0
    """The share of writes in which one byte is changed."""
    bandwidth: Annotated[str | None, Parameter(metavar="SIZE", group=LINKS)] = None
    """How many bytes of all connections get through in a second, each way, as 64KiB or 1MiB."""
    seed: Annotated[int, Parameter(converter=whole, metavar="N", group=LINKS)] = 1
    """The seed of all chance."""
    json: JsonLines = False
