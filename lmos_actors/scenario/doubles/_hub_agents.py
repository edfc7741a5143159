"""Agents of a file on a relay: bridges, and the parts shared by all agents there."""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.actors import Agent
from lmos_actors.errors import raise_together
from lmos_actors.facades import RelayBridge, RelayMember
from lmos_actors.facades.relay import Bridge

if TYPE_CHECKING:
    import ssl

    from lmos_actors._core import Headers
    from lmos_actors.transport import Network


ATTEMPT: Final = 10.0
"""Seconds that a bridge waits for the hub as it starts, once the run has begun."""


@attrs.frozen
class HubToken:
    """The token of an agent on the hub of a file, used in place of `Credentials`."""

    token: str = attrs.field(repr=False)

    def headers_for(self, url: str, now: float) -> Headers:
        """Return the headers of a handshake with the relay: the bearer token."""
        return ((b"authorization", f"Bearer {self.token}".encode()),)


@attrs.define(eq=False)
class HubLine:
    """The connection of an agent of a file to a relay: the address, the agent's id and its credentials.

    If the agent is a bridge that leads to another agent, `bridge` is the running `Bridge`.
    """

    id: str
    url: str
    credentials: Any = None
    tls: ssl.SSLContext | None = None
    network: Network | None = None
    """The network that the connection goes over; None for that of the node."""
    is_own: bool = False
    """Whether it leads to the hub of the file, which comes back by itself."""
    bridge: Bridge | None = None
    has_begun: bool = False
    """Whether the run has begun, so that the hub may be away with its node, or behind a cut."""


class HubBridge(Agent, private=True):
    """A bridge that puts an agent of the node on a relay; `agent` is the public name of that agent."""

    line: Any
    agent: str

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Connect to the relay, wait for its welcome, and stay connected while the agent lives.

        Once the run has begun, wait for one attempt only, of `ATTEMPT` seconds at most. The hub may be down
        until the supervisor restarts it, and that supervisor is busy with the start of this agent.
        """
        line: HubLine = self.line
        wires: Any = self._place().rt.wires
        options = RelayBridge(url=line.url, agent=self.agent, credentials=line.credentials)
        bridge = Bridge(options, wires.home, tls=line.tls, network=line.network)
        try:
            async with trio.open_nursery(strict_exception_groups=True) as nursery:
                nursery.start_soon(partial(bridge.stay, patiently=line.is_own))
                if line.has_begun:
                    with trio.move_on_after(ATTEMPT):
                        await bridge.wait_tried()
                else:
                    await bridge.wait_connected()
                line.bridge = bridge
                yield
                nursery.cancel_scope.cancel("the bridge ends")
        except BaseExceptionGroup as group:
            raise_together(list(group.exceptions), "errors of a bridge")


class HubMember(RelayMember, private=False):
    """A bridge by which the agents of a file reach a relay."""
