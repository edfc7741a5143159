"""Agents on a relay, as agents of this node: each that has introduced itself is a child of the member there.

What others say about themselves is data of strangers: bounded, and a description at most.
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
from lmos_actors.errors import ActionFailed, SupervisionError
from lmos_actors.protocol.relay import RelayMessage
from lmos_actors.supervision import ChildSpec

from ._sent import Receipt  # noqa: TC001 -- types of agents are read
from ._traces import carried

if TYPE_CHECKING:
    from lmos_actors.supervision import Supervisor

    from ._session import Relay

MOST: Final = 1_000
"""Agents of one relay that are agents here; those that introduce themselves later are not."""

WAITING: Final = 256
"""Messages of one of them that wait for its turn; then the oldest are dropped."""

RENEWED: Final = 60.0
"""Seconds after which a newer introduction of an agent counts."""

AT_ONCE: Final = 100
LONGEST: Final = 1_000
SKILLS: Final = 32

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


@attrs.define(eq=False)
class PeerLine:
    """Line to an agent on the relay, and its messages that wait."""

    relay: Any
    agent: str
    came: Callable[[], object] = attrs.field(default=lambda: None)
    messages: list[RelayMessage] = attrs.field(factory=list[RelayMessage])

    def hear(self, message: RelayMessage) -> None:
        """Take a message of the agent."""
        self.messages.append(message)
        del self.messages[:-WAITING]
        self.came()


class RelayPeer(Agent):
    """An agent on a relay. It is asked and told things there, by the agent of this node that is on it."""

    line: Any

    message: Event[RelayMessage] = event()
    """The agent has said something, to all or to this node's agent."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Pass on what the agent says."""
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
        """Ask the agent something, and return its answer: a text, or `{"action", "input"}`."""
        answer: RelayMessage = await self.line.relay.ask(payload, self.line.agent, type=type)
        fault = _fault_in(answer.payload)
        if fault is not None:
            raise ActionFailed(fault)
        return answer.payload


class RelayPeers:
    """The agents of a relay that are children of one supervisor here."""

    def __init__(self, relay: Relay, children: Supervisor) -> None:
        self._relay = relay
        self._children = children
        self._lines: OrderedDict[str, tuple[PeerLine, float]] = OrderedDict()

    async def heard(self, message: RelayMessage) -> None:
        """Hand a message to the agent here that stands for its sender; start it when it introduces itself."""
        sender = message.sender
        if message.type == "discovery" and message.is_broadcast and _NAME.fullmatch(sender):
            await self._introduced(sender, message.payload)
        known = self._lines.get(sender)
        if known is not None:
            known[0].hear(message)

    async def _introduced(self, agent: str, payload: Any) -> None:
        now, known = trio.current_time(), self._lines.get(agent)
        if known is None and len(self._lines) >= MOST:
            return
        if known is not None:
            if now - known[1] < RENEWED:
                return
            await self.left(agent)
        line = PeerLine(self._relay, agent)
        self._lines[agent] = line, now
        with suppress(SupervisionError):  # what a stranger says must not end the member
            await self._children.start_child(ChildSpec(agent, partial(class_of(agent, payload), line=line)))

    async def left(self, agent: str) -> None:
        """End the agent here that stands for one that has left the relay."""
        if self._lines.pop(agent, None) is None:
            return
        with suppress(SupervisionError):  # it has crashed too often, and is gone
            await self._children.terminate_child(agent)
            await self._children.delete_child(agent)


def _fault_in(payload: Any) -> dict[str, Any] | None:
    """Return the error that an answer is, None for any other."""
    found = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    fault = found.get("error") if len(found) == 1 else None
    return cast("dict[str, Any]", fault) if isinstance(fault, dict) else None


def class_of(agent: str, payload: Any) -> type[RelayPeer]:
    """Return a class whose description is what an agent says about itself."""
    said = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    description, skills = said.get("description", payload), said.get("skills")
    words: list[Any] = skills if isinstance(skills, list) else []  # pyright: ignore[reportUnknownVariableType]
    known = [each for each in words if isinstance(each, str) and _WORD.fullmatch(each)]
    text = description[:LONGEST] if isinstance(description, str) else "An agent on a relay."
    name = "".join(part.capitalize() for part in re.split(r"[-_]", agent))
    members = {"__doc__": text, "__module__": __name__}
    about = About(capabilities=tuple(dict.fromkeys(known[:SKILLS])))
    made: Any = new_class(f"Relayed{name}", (RelayPeer,), {"about": about}, lambda body: body.update(members))
    return cast("type[RelayPeer]", made)
