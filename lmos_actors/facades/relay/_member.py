"""An agent on a relay, as a supervised agent of this node."""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from lmos_actors.actors import Agent, Event, action, event
from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol.relay import EVERYBODY, RelayAnswer, RelayFault, RelayMessage, Welcomed
from lmos_actors.supervision import ChildSpec

from ._opening import open_relay
from ._peers import RelayPeers
from ._sent import Receipt  # noqa: TC001 -- types of agents are read
from ._traces import carried

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from lmos_actors.actors import Ref
    from lmos_actors.node import Node
    from lmos_actors.protocol.relay import RelayEvent
    from lmos_actors.security import Credentials

    from ._session import Relay

T = TypeVar("T")

AT_ONCE: Final = 1_000
"""Maximum messages that are being sent, and questions that wait for answers."""


async def join_relay(
    node: Node,
    url: str,
    *,
    name: str = "member",
    id: str | None = None,
    credentials: Credentials | None = None,
    follow: Sequence[str] = (),
    peers: bool = False,
    names_itself: bool = True,
) -> Ref[RelayMember]:
    """Start an agent of a node on a relay, and return its ref once the relay has accepted it.

    The agent reconnects by itself if the connection breaks. If the relay rejects it, it ends, and is not
    restarted.

    - `url` is the relay's URL, such as `ws://127.0.0.1:8080/arc`.
    - `credentials` contain the token of the agent; by default they are the node's.
    - `id` is the agent's id, for relays that do not report it.
    - `follow` names agents to follow, and `name` is the agent's name in the tree.
    - With `peers`, each agent that introduces itself on the relay becomes a `RelayPeer` below this agent.
      It is found by its id, and served like all other agents. An agent that a node has bridged to the
      relay is also found by its class, as in `node.find(Weather, "weather-bot")`.
    - `names_itself` is as for `open_relay`.

    Raises StartFailed, with the reason as its cause, and NameTaken.
    """
    made = partial(
        RelayMember,
        url=url,
        id=id,
        credentials=credentials,
        follows=tuple(follow),
        peers=peers,
        names_itself=names_itself,
    )
    return await node.start_child(ChildSpec(name, made, restart="temporary"))


class RelayMember(Agent, private=True):
    """An agent on a relay, started by `join_relay`. Messages from the relay arrive as events.

    The fields `url`, `credentials`, `tls`, `network`, `id`, `follows` and `names_itself` are as for
    `open_relay`; by default, `credentials`, `tls` and `network` are the node's. The agent reconnects by
    itself if the connection breaks. If the relay rejects it, it crashes with the reason; an agent started by
    `join_relay` is then not restarted. With `peers`, each agent that introduces itself on the relay, by a
    `discovery` message, becomes a `RelayPeer` below this one.
    """

    url: str
    credentials: Any = None
    id: str | None = None
    follows: tuple[str, ...] = ()
    peers: bool = False
    tls: Any = None
    network: Any = None
    names_itself: bool = True

    heard: Event[RelayMessage] = event()
    """A message of another agent."""
    said: Event[RelayAnswer] = event()
    """A message of the relay itself, such as `joined`, `vote_result`, or `gap` if messages were dropped."""
    refused: Event[RelayFault] = event()
    """The relay has refused something, without saying what."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Stay on the relay while the agent runs."""
        wires: Any = self._place().rt.wires
        credentials = wires.credentials if self.credentials is None else self.credentials
        headers = () if credentials is None else credentials.headers_for(self.url, trio.current_time())
        async with open_relay(
            self.url,
            id=self.id,
            names_itself=self.names_itself,
            network=wires.network if self.network is None else self.network,
            tls=wires.client_tls if self.tls is None else self.tls,
            credentials=credentials,
            follow=self.follows,
        ) as relay:
            self._relay = relay
            self.nursery.start_soon(self._hear, relay, bool(headers))
            yield

    async def _hear(self, relay: Relay, is_named: bool) -> None:
        if not self.peers:
            async for heard in relay:
                self._emit(heard)
            return
        rt = self._place().rt
        wires: Any = rt.wires
        peers = RelayPeers(relay, self.children, rt, wires.budget, self.path, is_named=is_named)
        rt.relays = (*rt.relays, peers)
        try:
            self.nursery.start_soon(peers.ask_around)
            async for heard in relay:
                self._emit(heard)
                if isinstance(heard, RelayMessage):
                    await peers.heard(heard)
                elif isinstance(heard, RelayAnswer):
                    await peers.said(heard)
                elif isinstance(heard, Welcomed) and relay.connections > 1:
                    peers.connected_again()
                    self.nursery.start_soon(peers.ask_around)
        finally:
            rt.relays = tuple(each for each in rt.relays if each is not peers)
            peers.stop()

    def _emit(self, heard: RelayEvent) -> None:
        if isinstance(heard, RelayMessage):
            with carried(heard):
                self.heard.emit(heard)
        elif isinstance(heard, RelayFault):
            self.refused.emit(heard)
        elif isinstance(heard, RelayAnswer):
            self.said.emit(heard)

    @action(concurrency=AT_ONCE)
    async def say(
        self,
        payload: Any,
        to: list[str] | None = None,
        type: str | None = None,
        ref: str | None = None,
        members: dict[str, Any] | None = None,
    ) -> Receipt | None:
        """Send a message to everybody, or to some agents; see `Relay.say`."""
        return await _outcome(self._relay.say(payload, to or EVERYBODY, type=type, ref=ref, members=members))

    @action(concurrency=AT_ONCE)
    async def ask(self, payload: Any, to: list[str] | None = None, type: str = "question") -> RelayMessage:
        """Ask a question, and return the first answer; see `Relay.ask`."""
        return await _outcome(self._relay.ask(payload, to or EVERYBODY, type=type))

    @action(concurrency=AT_ONCE)
    async def answer(self, message: RelayMessage, payload: Any, type: str = "answer") -> Receipt | None:
        """Answer the sender of a message, with its `ref`."""
        return await _outcome(self._relay.answer(message, payload, type=type))

    @action(idempotent=True)
    async def subscribe_to(self, agents: list[str]) -> None:
        """Follow agents now, and again after each reconnection."""
        await _outcome(self._relay.follow(*agents))

    @action(idempotent=True)
    async def unsubscribe_from(self, agents: list[str]) -> None:
        """Stop following agents."""
        await _outcome(self._relay.unfollow(*agents))

    @action(concurrency=AT_ONCE)
    async def command(self, type: str, payload: Any = None, answer: str | None = None) -> RelayAnswer:
        """Send a command to the relay, and return its answer; see `Relay.command`."""
        return await _outcome(self._relay.command(type, payload, answer=answer))


async def _outcome(doing: Awaitable[T]) -> T:
    """Return the result of an operation on the relay.

    Errors that concern the caller, such as the end of the connection, become ActionFailed, so that they do
    not crash the member.
    """
    try:
        return await doing
    except (OutcomeUnknown, ConnectFailed) as error:
        code = "unknown" if isinstance(error, OutcomeUnknown) else "unavailable"
        raise ActionFailed({"code": code, "message": str(error)}) from None
    except (TypeError, ValueError) as error:
        raise ActionFailed({"code": "invalid_message", "message": str(error)}) from None
