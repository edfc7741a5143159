"""Mocks and replays on the hub of a file: strangers that answer messages by rules or from a recording.

A message is a request for the action named by its type, and the mock posts it to itself. So, as with any
other mock, the message waits in a mailbox, is in the log, and is answered by a rule. A rule without an action
is for questions. A broadcast that no rule fits is ignored. Otherwise a mock on a busy hub would need rules
for every broadcast of the others.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw

from lmos_actors.actors import STREAM, Seats
from lmos_actors.bindings import AgentRequest, action_requested, written_value
from lmos_actors.errors import ActionFailed, AgentDied, ConnectFailed, LmosActorsError, OutcomeUnknown
from lmos_actors.facades import RelayMessage, open_relay
from lmos_actors.facades.relay import all_items, carried, fault_of, trace_of
from lmos_actors.security import RELAYED
from lmos_actors.system.model import USER

from ._mocks import Manner, mock_class
from ._recordings import ANSWER
from ._replays import ReplayManner, replay_class
from ._rules import Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmos_actors.actors import Agent, DoubleRequest, Runtime
    from lmos_actors.facades import Relay
    from lmos_actors.system.model import Rule

    from ._mocks import MockScript
    from ._recordings import Exchange
    from ._replays import ReplayScript

WAY: Final = "relay"

NOTHING: Final = Raw(b"null")
"""The answer of a rule that says nothing."""

LOST: Final = (ActionFailed, OutcomeUnknown, ConnectFailed)
"""The errors of an answer that does not arrive: the asker gets the same from the hub."""

PASSED_OVER: Final = (ANSWER, "cancel")
"""The types of messages that need no rule: they belong to what has been said before."""


def stranger_class(cls: type[Agent], script: MockScript) -> type[Agent]:
    """Make the class of a mock on a hub for one run. Each instance gets its `HubLine` as `line`."""
    return _on_hub(mock_class(cls, script, HubManner(script.paths)), script)


def stranger_replay_class(cls: type[Agent], script: ReplayScript) -> type[Agent]:
    """Make the class of a replay on a hub for one run. Each instance gets its `HubLine` as `line`."""
    script.manner = HubReplayManner()
    return _on_hub(replay_class(cls, script), script)


def _on_hub(made: Any, script: MockScript | ReplayScript) -> type[Agent]:
    @asynccontextmanager
    async def lifespan(agent: Any) -> AsyncGenerator[None]:
        line, rt = agent.line, agent._slot.rt
        network = rt.wires.network if line.network is None else line.network
        async with open_relay(line.url, id=line.id, network=network, credentials=line.credentials) as relay:
            agent.relay = relay
            agent.nursery.start_soon(_Stranger(agent, script, relay).run)
            yield

    made.__contract__.has_lifespan = True
    made.lifespan = lifespan
    return made  # type: ignore[no-any-return]


class HubRequest(AgentRequest):
    """A message on the hub as a request.

    `asker` is its sender's name on the hub. `reply` is the type of the answering message; the rule or the
    recording sets it.
    """

    __slots__ = ("asker", "reply")

    asker: str
    reply: str


class HubManner(Manner):
    """The behaviour of a mock on a hub; see `Manner`. `paths` has the tree paths of agents, by name."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def sender(self, request: DoubleRequest) -> str:
        """Return the path of the agent that has sent a message."""
        asker = _asker_of(request)
        if asker is None:
            return request.sender or USER
        return self._paths.get(asker.asker, asker.asker)

    def take(self, request: DoubleRequest, rule: Rule) -> None:
        """Note the type of the message that answers a request."""
        asker = _asker_of(request)
        if asker is not None and rule.type is not UNSET:
            asker.reply = rule.type

    async def emitted(self, request: DoubleRequest, name: str, data: Any) -> None:
        """Broadcast an event that a rule has emitted."""
        with suppress(*LOST):
            await request.agent.relay.say(data, type=name)


class HubReplayManner(ReplayManner):
    """The behaviour of a replay on a hub; see `ReplayManner`."""

    def found(self, request: DoubleRequest, exchange: Exchange) -> None:
        """Note the type of the message that answered a request."""
        asker = _asker_of(request)
        if asker is not None:
            asker.reply = exchange.type

    def emitted(self, agent: Any, name: str, data: Any) -> None:
        """Repeat a recorded broadcast."""
        agent.nursery.start_soon(partial(agent.relay.say, data, type=name))


def _asker_of(request: DoubleRequest) -> HubRequest | None:
    asker = getattr(request.message, "asker", None)
    return asker if isinstance(asker, HubRequest) else None


class _Stranger:
    """A mock or replay on the hub. It makes requests from messages, and tracks them."""

    def __init__(self, agent: Any, script: MockScript | ReplayScript, relay: Relay) -> None:
        self.rt: Runtime = agent._slot.rt
        self.open: dict[AgentRequest, None] = {}
        self.seats = Seats()
        self._agent = agent
        self._script = script
        self._relay = relay

    def settled(self) -> None:
        """Note that a request is no longer open."""

    def shown(self, error: Exception) -> Exception:
        """Return an error unchanged."""
        return error

    async def run(self) -> None:
        """Answer messages. Raise ConnectFailed if the hub no longer accepts the mock."""
        async for heard in self._relay:
            if isinstance(heard, RelayMessage) and heard.sender != self._relay.id:
                with carried(heard):
                    self._take(heard)

    def _take(self, message: RelayMessage) -> None:
        """Post a message as a request without waiting, so that requests begin in the messages' order."""
        sender, script = message.sender, self._script
        asked = Request(message.type, message.payload, script.paths.get(sender, sender))
        if (message.is_broadcast or message.type in PASSED_OVER) and not script.fits(asked):
            return
        principal = f"{RELAYED}{self._relay.url}/{sender}"
        request = HubRequest(self, f"{principal}:0", principal, *trace_of(message), WAY)
        request.asker, request.reply = sender, ANSWER
        refusal: LmosActorsError | None = None
        try:
            self._post(request, asked)
        except LmosActorsError as error:
            refusal = error
        self._agent.nursery.start_soon(self._answer, message, request, refusal)

    def _post(self, request: HubRequest, asked: Request) -> None:
        slot = self._agent._slot
        if asked.action not in slot.agent.__contract__.actions:
            self._script.refuse(asked)
            raise ActionFailed(f"{self._script.name} answers no {asked.action}")
        op, requested = action_requested(slot, asked.action, asked.input)
        if op.kind == STREAM:
            request.items = []
        request.send(slot, requested)

    async def _answer(
        self, message: RelayMessage, request: HubRequest, refusal: LmosActorsError | None
    ) -> None:
        try:
            if refusal is not None:
                raise refusal
            whole = request.items is None
            payload: Any = Raw(written_value(await request.result()) if whole else await all_items(request))
        except AgentDied:
            return  # who has crashed says nothing more
        except LmosActorsError as error:
            payload = {"error": fault_of(error)}
        if payload != NOTHING:
            with suppress(*LOST):
                await self._relay.answer(message, payload, type=request.reply)
