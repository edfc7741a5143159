"""Agents on a relay as agents of this node: each one that has introduced itself is a child of the member.

If an agent's introduction has `actions`, the agent can be used as an agent of a class, too:
`node.find(Weather, ID)` finds it, and calls are sent over the relay. Introductions are data from unknown
agents: they are bounded, and are used only as descriptions.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import new_class
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio

from lmos_actors.actors import About, Agent, Event, action, event
from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown, SupervisionError
from lmos_actors.protocol.relay import RelayAnswer, RelayMessage
from lmos_actors.supervision import ChildSpec

from ._faults import fault_in
from ._link import RelayLink
from ._requests import RelayRequests
from ._sent import Receipt  # noqa: TC001 -- types of agents are read
from ._traces import carried

if TYPE_CHECKING:
    from lmos_actors._core import Budget
    from lmos_actors.actors import AgentQuery, Runtime
    from lmos_actors.supervision import Supervisor

    from ._session import Relay

MOST: Final = 1_000
"""Maximum agents of one relay that are agents here; later ones are left out."""

WAITING: Final = 256
"""Maximum messages of one of them that wait for its turn; beyond it the oldest are dropped."""

RENEWED: Final = 60.0
"""Seconds after which a newer introduction of an agent counts."""

DISCOVER: Final = "discover"
"""The type of the message that asks agents to introduce themselves."""

AT_ONCE: Final = 100
LONGEST: Final = 1_000
EVENTS: Final = 256

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


@attrs.define(eq=False)
class PeerLine:
    """The connection of a `RelayPeer` to its agent on the relay, with the messages that wait to be read."""

    relay: Any
    agent: str
    came: Callable[[], object] = attrs.field(default=lambda: None)
    messages: list[RelayMessage] = attrs.field(factory=list[RelayMessage])

    def hear(self, message: RelayMessage) -> None:
        """Store a message of the agent until it is read, and drop the oldest beyond the limit."""
        self.messages.append(message)
        del self.messages[:-WAITING]
        self.came()


class RelayPeer(Agent):
    """An agent on a relay, which receives messages through the member of this node on that relay."""

    line: Any

    message: Event[RelayMessage] = event()
    """The agent has said something, to all or to this node's agent."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Emit the messages of the agent as events."""
        self._came = trio.Event()
        self.line.came = lambda: self._came.set()
        self.nursery.start_soon(self._pass_on)
        try:
            yield
        finally:
            self.line.came = lambda: None

    async def _pass_on(self) -> None:
        while True:
            taken, self.line.messages[:] = list(self.line.messages), []
            for each in taken:
                with carried(each):
                    self.message.emit(each)
            await self._came.wait()
            self._came = trio.Event()

    @action(concurrency=AT_ONCE)
    async def say(self, payload: Any, type: str | None = None, ref: str | None = None) -> Receipt | None:
        """Send a message to the agent."""
        return cast("Receipt | None", await self.line.relay.say(payload, self.line.agent, type=type, ref=ref))

    @action(concurrency=AT_ONCE)
    async def ask(self, payload: Any, type: str = "question") -> Any:
        """Ask the agent a question, a text or `{"action", "input"}`, and return its answer."""
        answer: RelayMessage = await self.line.relay.ask(payload, self.line.agent, type=type)
        fault = fault_in(answer.payload)
        if fault is not None:
            raise ActionFailed(fault)
        return answer.payload


@attrs.frozen
class Introduction:
    """The parts of an agent's introduction that refs need; `title` is the title of its class."""

    title: str | None
    has_actions: bool
    events: frozenset[str]

    @classmethod
    def of(cls, payload: Any) -> Introduction:
        """Return the introduction in the payload of a `discovery` message."""
        said = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
        title, events = said.get("title"), said.get("events")
        names: list[Any] = events[:EVENTS] if isinstance(events, list) else []  # pyright: ignore[reportUnknownVariableType]
        return cls(
            title if isinstance(title, str) else None,
            isinstance(said.get("actions"), dict),
            frozenset(each for each in names if isinstance(each, str)),
        )


class RelayPeers:
    """The agents of a relay that are children of one supervisor of this node; a `RelayLookup`.

    `path` is the path of the member that is on the relay; `is_named` is whether it has credentials.
    """

    def __init__(
        self,
        relay: Relay,
        children: Supervisor,
        rt: Runtime,
        budget: Budget,
        path: str,
        *,
        is_named: bool = False,
    ) -> None:
        self._relay = relay
        self._children = children
        self._path = path
        self._lines: OrderedDict[str, tuple[PeerLine, float]] = OrderedDict()
        self._known: dict[str, Introduction] = {}
        self._requests = RelayRequests(rt, relay, budget, self._events_of, is_named=is_named)

    # ---- as agents of a class

    def on_relay(self, sought: AgentQuery) -> RelayLink | None:
        """Return the link to an agent on the relay that matches a query by class; see `RelayLookup`."""
        cls: Any = sought.cls
        name = sought.name
        contract = getattr(cls, "__contract__", None)
        if contract is None or not sought.is_plain or issubclass(cls, RelayPeer):
            return None
        for agent, known in self._known.items():
            names = (agent, f"{self._path}/{agent}")
            is_wanted = known.title == contract.title if name is None else name in names
            if known.has_actions and is_wanted:
                return RelayLink(self._requests, agent, contract, self._known.__contains__)
        return None

    def _events_of(self, agent: str) -> frozenset[str]:
        known = self._known.get(agent)
        return frozenset() if known is None else known.events

    async def ask_around(self) -> None:
        """Ask the agents on the relay to introduce themselves."""
        with suppress(ActionFailed, OutcomeUnknown, ConnectFailed):  # those that come later do it anyway
            await self._relay.say(None, type=DISCOVER)

    def connected_again(self) -> None:
        """Note that broadcasts may have been lost, as the connection was interrupted."""
        self._requests.lost(None)

    def stop(self) -> None:
        """End all requests and refs, as the member has left the relay."""
        self._known.clear()
        self._requests.stop()

    # ---- what is heard

    async def heard(self, message: RelayMessage) -> None:
        """Pass a message to the child that represents its sender.

        If the message is an introduction, that child is started first.
        """
        sender = message.sender
        if not message.is_for(self._relay.id):
            return
        if message.type == "discovery" and _NAME.fullmatch(sender):
            await self._introduced(sender, message.payload)
        known = self._lines.get(sender)
        if known is not None:
            known[0].hear(message)
            self._requests.heard(message)

    async def said(self, answer: RelayAnswer) -> None:
        """Handle a message of the relay that an agent has left, or that messages were dropped."""
        is_object = isinstance(answer.payload, dict)
        payload = cast("dict[str, Any]", answer.payload) if is_object else {}
        if answer.type == "left":
            await self.left(str(payload.get("agent")))
        elif answer.type == "gap":
            lost = payload.get("lost")
            self._requests.lost(lost if isinstance(lost, int) and lost > 0 else 1)

    async def _introduced(self, agent: str, payload: Any) -> None:
        now, known = trio.current_time(), self._lines.get(agent)
        if known is None and len(self._lines) >= MOST:
            return
        if known is not None:
            if now - known[1] < RENEWED:
                return
            await self._end(agent)
        line = PeerLine(self._relay, agent)
        self._lines[agent] = line, now
        self._known[agent] = Introduction.of(payload)
        with suppress(SupervisionError):  # what a stranger says must not end the member
            await self._children.start_child(ChildSpec(agent, partial(class_of(agent, payload), line=line)))

    async def left(self, agent: str) -> None:
        """End the child that represents an agent which has left the relay."""
        self._known.pop(agent, None)
        await self._end(agent)

    async def _end(self, agent: str) -> None:
        if self._lines.pop(agent, None) is None:
            return
        with suppress(SupervisionError):  # it has crashed too often, and is gone
            await self._children.terminate_child(agent)
            await self._children.delete_child(agent)


def class_of(agent: str, payload: Any) -> type[RelayPeer]:
    """Return a class with the description and the skills from an agent's introduction."""
    said = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    description, skills = said.get("description", payload), said.get("skills")
    words: list[Any] = skills if isinstance(skills, list) else []  # pyright: ignore[reportUnknownVariableType]
    known = [each for each in words if isinstance(each, str) and _WORD.fullmatch(each)]
    text = description[:LONGEST] if isinstance(description, str) else "An agent on a relay."
    name = "".join(part.capitalize() for part in re.split(r"[-_]", agent))
    members = {"__doc__": text, "__module__": __name__}
    about = About(capabilities=tuple(dict.fromkeys(known[:32])))
    made: Any = new_class(f"Relayed{name}", (RelayPeer,), {"about": about}, lambda body: body.update(members))
    return cast("type[RelayPeer]", made)
