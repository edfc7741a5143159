"""The hub of one run, if the file has one: the agents on it, and `user`, who sends and gets messages there.

The node of the run is the hub. The agents on it are bridges and mocks of the file. Their identities are made
before the first of them starts; the identities outlive the node if its store does. `user` is not an agent but
a session on the hub, just as its requests elsewhere come from no agent. Its messages are in the trace of its
step.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import trio
from msgspec import UNSET

from lmos_actors._core import plain
from lmos_actors.actors import RUNTIME, outgoing_trace, trace_context
from lmos_actors.errors import ActionFailed, AgentUnavailable, ConnectFailed, OutcomeUnknown, StartFailed
from lmos_actors.facades import RelayAnswer, RelayFault, RelayMessage, open_relay
from lmos_actors.facades.relay import RelayServer, relay_url
from lmos_actors.persistence import NewIdentity
from lmos_actors.system.model import HUB, QUESTION, USER, Bridge, Mock, Replay

from ...doubles._hub_agents import HubLine, HubToken
from ...model import Expect, Say, SayAt, Simulation, is_command, targets_of
from .._step_text import each_step

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors.errors import AgentError
    from lmos_actors.facades import Relay
    from lmos_actors.files import DataPath
    from lmos_actors.node import Node
    from lmos_actors.simulation.network import LineNetwork
    from lmos_actors.transport import Endpoint, Listener, Network

    from ...format import Cell
    from ...model import Saying

    Fail: TypeAlias = Callable[[DataPath | None, str, str, str], None]

LOOK_AGAIN: Final = 0.01
"""Seconds between two checks whether an agent is on the hub."""

MILLISECONDS: Final = 1_000


def names_on_hub(cell: Cell) -> list[str]:
    """Return the names of the agents of a file that are on its hub."""
    return [
        name
        for name, entry in cell.scenario.agents.items()
        if isinstance(entry, Bridge | Mock | Replay)
        and entry.speaks == "relay"
        and not (isinstance(entry, Bridge) and entry.url is not None)
    ]


def _has_user(cell: Cell) -> bool:
    scenario = cell.scenario
    if isinstance(scenario, Simulation):
        return any(isinstance(entry, SayAt) for entry in scenario.timeline)
    steps = (step for _, step in each_step(scenario.steps))
    return any(isinstance(step, Say) or (isinstance(step, Expect) and step.that == "heard") for step in steps)


@attrs.define(eq=False)
class _Saying:
    """A message that the hub has not yet taken or answered."""

    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    error: AgentError | None = None

    def fail(self, error: AgentError) -> None:
        """End the wait for the hub with an error."""
        self.error = error
        self.scope.cancel(str(error))


class HubLines:
    """A `Network` for the connections of one agent to the hub, over the lines between their nodes.

    Before the start of the run, connections are made at once, whatever the state of the lines.
    """

    def __init__(self, lines: LineNetwork, *, has_begun: bool) -> None:
        self._lines = lines
        self._has_begun = has_begun
        self._was_connected = False
        if has_begun:
            lines.stands()

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connect to the hub. Raises ConnectFailed."""
        if self._was_connected:
            self._was_connected = False
            self._lines.has_ended()
        stream = await self._lines.connect(endpoint, tls)
        if self._has_begun:
            self._lines.stands()
        self._was_connected = self._has_begun
        return stream

    async def listen(self, endpoint: Endpoint) -> Listener:
        """See `Network`."""
        return await self._lines.listen(endpoint)

    def begin(self) -> None:
        """Make connections and messages take time from now on."""
        self._was_connected = True
        self._has_begun = True
        self._lines.stands()

    def end(self) -> None:
        """Ignore all changes of connections from now on, as the run is over."""
        self._was_connected = self._has_begun = False


class RunHub:
    """The hub of one run; it outlives each node of the run.

    `fail` records a failure of the run, `noticed` takes the numbers of sent messages, and `notify` wakes
    steps that wait for messages. `lines` returns the lines from the agent with a name to the hub, or None if
    it needs none.
    """

    def __init__(
        self,
        cell: Cell,
        fail: Fail,
        noticed: Callable[[int], None],
        notify: Callable[[], None],
        lines: Callable[[str], LineNetwork | None],
    ) -> None:
        self.heard: list[dict[str, Any]] = []
        """The messages that `user` has got."""
        self.names = names_on_hub(cell)
        self._has_user = _has_user(cell)
        self._open: dict[_Saying, None] = {}
        self._fail = fail
        self._noticed = noticed
        self._notify = notify
        self._tokens: dict[str, str] = {}
        self._lines: list[HubLine] = []
        self._lines_of = lines
        self._networks: list[HubLines] = []
        self._has_begun = False
        self._url = ""
        self._server: Any = None
        self._relay: Relay | None = None
        self._node: Node | None = None

    # ---- begin and end

    @asynccontextmanager
    async def open(self, node: Node) -> AsyncGenerator[None]:
        """Register the identities, and keep `user` connected to the hub of `node` inside this block.

        Raises StartFailed.
        """
        connections: Any = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._server, self._node, self._url = node.service(RelayServer), node, relay_url(node.urls[0])
        self._lines.clear()
        self._networks.clear()
        trace_context(node.root.rt).noticed = self._noticed
        for name in (*self.names, *([USER] if self._has_user else [])):
            found = await self._server.identify(name)
            if isinstance(found, NewIdentity):
                self._tokens[name] = found.token
            elif found != "taken" or name not in self._tokens:  # it keeps its token if it outlives the node
                raise StartFailed(name, f"it is not taken by the hub: {found}")
        try:
            async with self._being_user(node, connections) if self._has_user else nullcontext():
                yield
        finally:
            for each in self._networks:
                each.end()

    @asynccontextmanager
    async def _being_user(self, node: Node, connections: Any) -> AsyncGenerator[None]:
        before = RUNTIME.set(node.root.rt)  # its random streams make the ids of the session
        network: Network = self._network_of(USER) or connections.network
        session = open_relay(self._url, id=USER, network=network, credentials=cast("Any", self._token(USER)))
        async with session as relay, trio.open_nursery(strict_exception_groups=True) as nursery:
            RUNTIME.reset(before)
            self._relay = relay
            nursery.start_soon(self._listen, relay)
            try:
                yield
            finally:
                self._relay = None
                for each in tuple(self._open):
                    each.fail(OutcomeUnknown(HUB, "its node has ended"))
                nursery.cancel_scope.cancel("the run leaves the hub")

    def _token(self, name: str) -> HubToken:
        return HubToken(self._tokens[name])

    def line(self, name: str) -> HubLine:
        """Return the connection data with which an agent of the file reaches the hub."""
        made = HubLine(name, self._url, self._token(name), network=self._network_of(name), is_own=True)
        self._lines.append(made)
        return made

    def _network_of(self, name: str) -> HubLines | None:
        """Return the network over which an agent reaches the hub; None for the network of the node."""
        lines = self._lines_of(name)
        if lines is None:
            return None
        made = HubLines(lines, has_begun=self._has_begun)
        self._networks.append(made)
        return made

    def begin(self) -> None:
        """Begin the run: from now on, messages take time on the links of the file."""
        for line in self._lines:
            line.has_begun = line.is_own
        if not self._has_begun:
            self._has_begun = True
            for each in self._networks:
                each.begin()

    async def wait_ready(self) -> None:
        """Wait until the agents behind bridges can be reached, and the bridges receive their events."""
        for line in self._lines:
            if line.bridge is not None:
                await line.bridge.wait_ready()

    def is_connected(self, name: str) -> bool:
        """Return whether an agent is connected to the hub now."""
        hub = None if self._server is None else self._server.place.hub
        return hub is not None and hub.hub.has(name)

    async def wait_connected(self, name: str, deadline: float) -> bool:
        """Wait until the deadline for an agent to connect to the hub; return whether it is connected."""
        while not self.is_connected(name):
            if trio.current_time() >= deadline:
                return False
            await trio.sleep(LOOK_AGAIN)
        return True

    # ---- as `user`

    async def _listen(self, relay: Relay) -> None:
        try:
            async for event in relay:
                if isinstance(event, RelayMessage):
                    self._hear(_message(event))
                elif isinstance(event, RelayAnswer):
                    self._hear(_word(event))
                elif isinstance(event, RelayFault):
                    self._refused(event)
        except ConnectFailed as error:
            self._fail(None, "user on the hub", "to stay there", error.why)

    def _refused(self, fault: RelayFault) -> None:
        """Handle a refusal that names no message: it fails the oldest message that still waits for the hub.

        If none waits, the refusal fails the run.
        """
        if self._open:
            oldest = next(iter(self._open))
            oldest.fail(ActionFailed({"code": fault.code, "message": fault.message}))
        else:
            saw = f"{fault.code}: {fault.message}"
            self._fail(None, "user on the hub", "no refusal of what it says", saw)

    def _hear(self, message: dict[str, Any]) -> None:
        self.heard.append(message)
        self._notify()

    async def say(self, step: Saying, said: dict[str, Any]) -> dict[str, Any]:
        """Send the message of a step and return its answer. Raises AgentError.

        `said` has `payload`, `ref` and `members` of the message, with saved values filled in.
        """
        under_way = _Saying()
        self._open[under_way] = None
        try:
            with under_way.scope:
                return await self._say(step, said)
        finally:
            del self._open[under_way]
        assert under_way.error is not None  # else the scope has not been cancelled
        raise under_way.error

    async def _say(self, step: Saying, said: dict[str, Any]) -> dict[str, Any]:
        relay, node = self._relay, self._node
        if relay is None or node is None:
            raise AgentUnavailable(HUB, "its node is down")
        payload = None if said["payload"] is UNSET else said["payload"]
        try:
            if is_command(step):
                return _word(await relay.command(str(step.type), payload))
            members = {**outgoing_trace(node.root.rt), **said["members"], **self._terms(step, node)}
            if step.type == QUESTION:
                return self._answered(await relay.ask(payload, targets_of(step), members=members))
            receipt = await relay.say(
                payload, targets_of(step), type=step.type, ref=said["ref"], members=members
            )
        except ConnectFailed as error:
            raise AgentUnavailable(HUB, error.why) from None
        if receipt is None:
            return {}
        return {"id": receipt.id, "delivered": receipt.delivered, "unknown": list(receipt.unknown)}

    def _terms(self, step: Saying, node: Node) -> dict[str, Any]:
        """Return the members that a proposal adds to its message: quorum and deadline."""
        found: dict[str, Any] = {} if step.quorum is None else {"quorum": step.quorum}
        if step.deadline is not None:
            now = node.root.rt.entropy.now().timestamp()
            found["deadline"] = int((now + step.deadline) * MILLISECONDS)
        return found

    def _answered(self, answer: RelayMessage) -> dict[str, Any]:
        """Record an answer as received by `user`; return the message. Raises ActionFailed for an error."""
        message = _message(answer)
        self._hear(message)
        payload: Any = message["payload"]
        fault = cast("dict[str, Any]", payload).get("error") if isinstance(payload, dict) else None
        if isinstance(fault, dict) and len(cast("dict[str, Any]", payload)) == 1:
            raise ActionFailed(cast("dict[str, Any]", fault))
        return message


def _message(message: RelayMessage) -> dict[str, Any]:
    """Return a message in the form in which steps judge it."""
    return {
        "id": message.id,
        "sender": message.sender,
        "to": list(message.to),
        "type": message.type,
        "payload": plain(message.payload),
        "ref": message.ref,
    }


def _word(answer: RelayAnswer) -> dict[str, Any]:
    """Return an answer of the hub in the form in which steps judge it."""
    return {
        "id": "",
        "sender": HUB,
        "to": [USER],
        "type": answer.type,
        "payload": plain(answer.payload),
        "ref": answer.ref,
    }
