"""The agents that the table is run against, and the helper that is asked how they fare.

A test holds back and lets go what an agent does by gates, and waits until something has happened by counts;
both are reached through the helper, so that they work where the agents are in another process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import msgspec
import trio
from msgspec import Meta

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    ExitReason,
    MailboxOptions,
    Node,
    Progress,
    Property,
    Ref,
    SupervisorSpec,
    action,
    ephemeral,
    event,
    prop,
)
from lmos_actors.actors import slot_of
from lmos_actors.errors import SourceFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


class Reading(msgspec.Struct, frozen=True):
    """A value with members, as events and actions of real agents have."""

    place: str
    degrees: float
    tags: tuple[str, ...] = ()


class Stage:
    """What the agents of one node and the helper share: gates and counts, by the agent's path."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.gates: dict[tuple[str, str], trio.Event] = {}
        self._changed = trio.Event()

    def note(self, agent: str, word: str) -> None:
        """Count that something has happened."""
        self.counts[agent, word] += 1
        self._changed.set()
        self._changed = trio.Event()

    def gate(self, agent: str, name: str) -> trio.Event:
        """Give a gate, closed at first."""
        return self.gates.setdefault((agent, name), trio.Event())

    async def until(self, agent: str, word: str, times: int) -> None:
        """Wait until something has happened so often."""
        while self.counts[agent, word] < times:
            await self._changed.wait()


class Subject(Agent, behaviours=("closed", "open")):
    """Has every kind of affordance, and every way to end."""

    stage: Stage
    units: Property[str] = prop(default="celsius")
    limit: Property[Annotated[int, Meta(ge=0, le=100)]] = prop(default=3)
    serial: Property[str] = prop(default="s-1", read_only=True)
    secret: Property[str] = prop(default="", write_only=True)
    last: Property[Reading | None] = prop(default=None)
    asked: Event[str] = event(broadcast=True)
    measured: Event[Reading] = event(broadcast=True)
    turns: int = 0
    words: str = ""

    def started(self) -> None:
        self.stage.note(self.path, "started")

    @action
    def echo(self, text: str, times: int = 1) -> str:
        """Give a text back, several times."""
        self.turns += 1
        return " ".join([text] * times)

    @action
    def measure(self, reading: Reading) -> Reading:
        """Take a value with members, keep it and tell it."""
        self.last = reading
        self.measured.emit(reading)
        return msgspec.structs.replace(reading, degrees=reading.degrees + 1)

    @action
    def fail(self, why: str) -> None:
        """Fail as declared."""
        raise ActionFailed({"why": why})

    @action
    def bug(self) -> None:
        """Crash in a turn."""
        raise KeyError("bug")

    @action
    def leave(self) -> str:
        """End normally."""
        self.stop()
        return "left"

    @action
    def write_down(self, word: str) -> None:
        """Add a word to those that came."""
        self.words += word

    @action(safe=True)
    def written(self) -> str:
        """Say what came."""
        return self.words

    @action(safe=True)
    def counted(self) -> int:
        """Say how many turns there were."""
        return self.turns

    @action(when="open")
    def enter(self) -> str:
        """Do what can be done only while open."""
        return "in"

    @action
    def unlock(self) -> None:
        """Be open."""
        self.become("open")

    @action
    def tell_all(self, words: list[str]) -> None:
        """Emit events and change a property, one after the other."""
        for word in words:
            self.asked.emit(word)
            self.units = word

    @action(concurrency=8)
    async def hold(self, gate: str) -> str:
        """Wait for a gate."""
        await self._held("hold", gate)
        return f"through {gate}"

    @action
    async def line(self, gate: str) -> str:
        """Wait for a gate, one at a time."""
        await self._held("line", gate)
        return f"through {gate}"

    @action
    async def work(self, progress: Progress[int], steps: int) -> str:
        """Report each step; wait for a gate before it."""
        for step in range(1, steps + 1):
            await self._held("work", f"step {step}")
            progress.report(step)
            self.stage.note(self.path, f"reported {step}")
        await self._held("work", "end")
        return "worked"

    @action
    async def fall(self, gate: str, how: str) -> None:
        """Wait for a gate, then fail as declared, or crash."""
        await self._held("fall", gate)
        raise ActionFailed(how) if how == "failure" else KeyError(how)

    @action
    async def count(self, up_to: int, how: str = "") -> AsyncIterator[int]:
        """Give numbers, then end, fail or crash."""
        try:
            for number in range(1, up_to + 1):
                self.stage.note(self.path, "items")
                yield number
        finally:
            self.stage.note(self.path, "left count")
        if how:
            raise ActionFailed(how) if how == "failure" else KeyError(how)

    @action
    async def readings(self) -> AsyncIterator[Reading]:
        """Give values with members."""
        yield Reading("Bonn", 18.5)
        yield Reading("Rome", 25.0, ("sunny",))

    async def _held(self, what: str, gate: str) -> None:
        self.stage.note(self.path, f"begun {what}")
        try:
            await self.stage.gate(self.path, gate).wait()
        except trio.Cancelled:
            self.stage.note(self.path, f"cancelled {what}")
            raise


class Newer(Subject):
    """A later version: it has more than what is served."""

    pressure: Property[float] = prop(default=1.0)
    moved: Event[str] = event()

    @action
    def fresh(self) -> str:
        """Do what the older one cannot."""
        return "fresh"


class Small(Subject, serial=True, mailbox=MailboxOptions(size=1, when_full="reject")):
    """Has one seat and refuses."""


class Waiting(Subject, serial=True, mailbox=MailboxOptions(size=1, when_full="wait")):
    """Has one seat and holds senders back."""


class Oldest(Subject, serial=True, mailbox=MailboxOptions(size=1, when_full="drop_oldest")):
    """Has one seat and drops who sat there."""


class Serial(Subject, serial=True):
    """Does one thing at a time."""


class Slow(Subject):
    """Is started again only when the gate `again` is open."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        if self.stage.counts[self.path, "started"]:
            self.stage.note(self.path, "starting again")
            await self.stage.gate(self.path, "again").wait()
        yield


class Taker(Subject, mailbox=MailboxOptions(size=1, when_full="reject")):
    """Takes input streams, and has one seat."""

    @action
    async def gather(self, rows: AsyncIterator[int], up_to: int = -1, how: str = "") -> list[int]:
        """Return the items, or so many of them; then fail as declared, or crash, if that is said."""
        found: list[int] = []
        with self._noting("gather"):
            while len(found) != up_to:
                try:
                    found.append(await anext(rows))
                except StopAsyncIteration:
                    break
            if how:
                raise ActionFailed(how) if how == "failure" else KeyError(how)
        return found

    @action
    async def rescue(self, rows: AsyncIterator[int]) -> str:
        """Go on when the source breaks off."""
        found: list[int] = []
        try:
            async for number in rows:
                found.append(number)
        except SourceFailed as error:
            self.stage.note(self.path, f"{found}, then {error}")
        return "rescued"

    @action
    async def slowly(self, rows: AsyncIterator[int], gate: str) -> list[int]:
        """Take one item, and the others behind a gate."""
        with self._noting("slowly"):
            found = [await anext(rows)]
            await self.stage.gate(self.path, gate).wait()
            return [*found, *[number async for number in rows]]

    @action
    async def converse(self, said: AsyncIterator[Reading], factor: float) -> AsyncIterator[Reading]:
        """Answer each item by one."""
        with self._noting("converse"):
            async for reading in said:
                yield msgspec.structs.replace(reading, degrees=reading.degrees * factor)

    @action
    async def reverse(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answer bytes by bytes."""
        async for part in parts:
            yield part[::-1]

    @action
    async def zipped(self, left: AsyncIterator[int], *, right: AsyncIterator[str]) -> list[tuple[int, str]]:
        """Take two streams side by side."""
        return [(number, await anext(right)) async for number in left]

    @action(on_disconnect="finish")
    async def outlive(self, rows: AsyncIterator[int]) -> None:
        """Go on without the consumer."""
        with self._noting("outlive"):
            async for _ in rows:
                self.stage.note(self.path, "item")

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        self.stage.note(self.path, f"begun {what}")
        try:
            yield
        except trio.Cancelled:
            self.stage.note(self.path, f"cancelled {what}")
            raise
        except SourceFailed as error:
            self.stage.note(self.path, f"broken {what}: {error.reason}")
            raise


class Keeping(Agent, durable=True):
    """Keeps what it has, and its answers."""

    stage: Any = ephemeral(default=None)
    sold: int = 0

    @action
    def order(self, item: str) -> int:
        """Count an order."""
        self.sold += 1
        return self.sold

    @action
    def refuse(self, why: str) -> None:
        """Fail as declared, and count that too."""
        self.sold += 1
        raise ActionFailed({"why": why, "sold": self.sold})


KINDS: dict[str, type[Any]] = {
    each.__name__: each for each in (Subject, Small, Waiting, Oldest, Serial, Slow, Taker, Keeping)
}


class Sender(Agent):
    """Sends one way, from its turns."""

    to: Ref[Subject]

    @action
    def send_all(self, words: list[str]) -> None:
        """Send words, one after the other."""
        for word in words:
            self.send(self.to, Subject.write_down, word)


class Helper(Agent):
    """Starts agents beside itself, and does to them and knows of them what no consumer can."""

    node: Any
    stage: Any
    begun: int = 0
    refs: dict[str, Ref[Any]] = attrs.field(factory=dict)

    @action(concurrency=64)
    async def begin(self, kind: str) -> str:
        """Start an agent; give its name."""
        self.begun += 1
        name = f"{kind.lower()}-{self.begun}"
        spec = ChildSpec(name, partial(KINDS[kind], stage=self.stage))
        self.refs[name] = await self.node.start_child(spec)
        return name

    @action
    def crash(self, name: str) -> None:
        """End the present incarnation, as a bug would."""
        slot_of(self.refs[name]).die(ExitReason("error", error=KeyError("crash")))

    @action(concurrency=64)
    async def remove(self, name: str) -> None:
        """Stop an agent for good."""
        await self.node.root.terminate_child(name)
        await self.node.root.delete_child(name)

    @action(concurrency=64)
    async def halt(self, name: str) -> None:
        """Stop an agent, which may be started again."""
        await self.node.root.terminate_child(name)

    @action(concurrency=64)
    async def again(self, name: str) -> None:
        """Start what was stopped."""
        await self.node.root.restart_child(name)

    @action
    def open(self, name: str, gate: str) -> None:
        """Open a gate."""
        self.stage.gate(name, gate).set()

    @action(concurrency=64)
    async def until(self, name: str, word: str, times: int = 1) -> None:
        """Wait until something has happened so often."""
        await self.stage.until(name, word, times)

    @action(concurrency=64)
    async def standing(self, name: str, wanted: dict[str, Any]) -> None:
        """Wait until an agent's accounts are such."""
        ref = self.refs[name]
        found: dict[str, Any] = {}
        with trio.move_on_after(5):
            while any(found.get(word) != number for word, number in wanted.items()):
                found = attrs.asdict(ref.statistics())
                await trio.sleep(0.001)
            return
        raise ActionFailed({"wanted": wanted, "found": found})

    @action(concurrency=64)
    async def ready(self, name: str) -> None:
        """Wait until an agent runs."""
        await self.refs[name].ready()

    @action
    def noted(self, name: str) -> dict[str, int]:
        """Say what has happened to an agent, and how often."""
        return {word: n for (agent, word), n in sorted(self.stage.counts.items()) if agent == name}

    @action(concurrency=64)
    async def accounts(self, name: str) -> dict[str, int]:
        """Give an agent's accounts, once nothing waits or runs."""
        await self.standing(name, {"waiting": 0, "running": 0})
        found = attrs.asdict(self.refs[name].statistics())
        return {word: number for word, number in found.items() if number and isinstance(number, int)}

    @action
    def dead(self, name: str) -> list[str]:
        """Give the reasons of an agent's dead letters."""
        return [letter.reason for letter in self.node.dead_letters if letter.agent == name]


def tree(*names: str) -> SupervisorSpec:
    """Give the root of a node that may see a crash in every test; agents of these names are there at once."""
    stage = Stage()
    children = [ChildSpec(name, partial(Subject, stage=stage)) for name in names]
    return SupervisorSpec("root", children, max_restarts=100_000, max_seconds=1.0)


async def start_helper(node: Node) -> Ref[Helper]:
    """Start the helper of a node."""
    return await node.start_child(ChildSpec("helper", partial(Helper, node=node, stage=Stage())))
