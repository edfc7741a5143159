"""Agents that do at random what agents can do, and a stage on which programs of such deeds are played."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentError,
    ChildSpec,
    Down,
    Event,
    LmosActorsError,
    MailboxOptions,
    Node,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    invoke_all,
    open_node,
    prop,
)
from lmos_actors.actors import LocalLink, TracedLink
from lmos_actors.simulation import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Deed = tuple[Any, ...]
COUNT = 7  # rogues in the tree


class Bug(Exception):
    """What a rogue raises by mistake."""


class Rogue(Agent, behaviours=("day", "night")):
    """Does what it is told, however unwise."""

    level: Property[int] = prop(default=0)
    ticked: Event[int] = event()
    depth: int = 0

    # ---- being asked

    @action
    def count(self, n: int) -> int:
        self.level += 1
        return n

    @action
    async def wait(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(concurrency=3)
    async def wait_side_by_side(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(when="night", postpone=True)
    def dream(self, n: int) -> int:
        return n

    @action(when="night", postpone=True)
    async def sleepwalk(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(when="day")
    def work(self, n: int) -> int:
        return n

    @action
    def fussy(self, n: int) -> int:
        if self.behaviour == "day" and self.random.random() < 0.5:
            self.stash()
        return n

    @action
    async def fussy_run(self, seconds: float) -> float:
        if self.behaviour == "day" and self.random.random() < 0.5:
            self.stash()
        await trio.sleep(seconds)
        return seconds

    @action
    def fail(self) -> None:
        raise ActionFailed("as agreed")

    @action
    def crash(self) -> None:
        raise Bug("now")

    @action
    async def crash_later(self, seconds: float) -> None:
        await trio.sleep(seconds)
        raise Bug("later")

    @action
    async def numbers(self, count: int) -> Any:
        for number in range(count):
            await trio.sleep(0.1)
            yield number

    # ---- being told to do something; what cannot be done now is no matter

    @action
    def do(self, deed: list[Any]) -> None:
        self.at_once(*deed)

    @action(concurrency=4)
    async def do_slowly(self, deed: list[Any]) -> None:
        try:
            await self.in_time(*deed)
        except (AgentError, LmosActorsError, RuntimeError):
            self.level += 1

    def other(self, number: int) -> Ref[Rogue]:
        return self.find(Rogue, f"rogue-{number % COUNT}")

    def at_once(self, what: str, number: int, seconds: float) -> None:
        other = self.other(number)
        try:
            if what == "link":
                self.link(other)
            elif what == "unlink":
                self.unlink(other)
            elif what == "monitor":
                self.monitor(other, self.on_down)
            elif what == "follow":
                self.follow(other, Rogue.ticked, self.on_tick)
            elif what == "follow topic":
                self.follow(self.topic("news", int), self.on_tick)
            elif what == "publish":
                self.topic("news", int).publish(number)
            elif what == "join":
                self.join_group("all")
            elif what == "leave":
                self.leave_group("all")
            elif what == "broadcast":
                self.group("all", Rogue).broadcast(Rogue.count, number)
            elif what == "send":
                self.send(other, Rogue.count, number)
            elif what == "send run":
                self.send(other, Rogue.wait, seconds)
            elif what == "send fussy":
                self.send(self.ref, Rogue.fussy, number)
                self.send(self.ref, Rogue.fussy_run, seconds)
            elif what == "send self":
                self.send(self.ref, Rogue.count, number)
            elif what == "emit":
                self.ticked.emit(number)
            elif what == "become":
                self.become("night" if self.behaviour == "day" else "day")
            elif what == "unstash":
                self.unstash_all()
            elif what == "state timeout":
                self.state_timeout(seconds, self.on_tick, number)
            elif what == "after":
                self.after(seconds, self.on_tick, number)
            elif what == "crash after":
                self.after(seconds, self.blow)
            elif what == "task":
                self.nursery.start_soon(self.a_task, seconds, number)
            elif what == "stop":
                self.stop()
        except AgentError:
            self.level += 1

    async def in_time(self, what: str, number: int, seconds: float) -> None:
        other = self.other(number)
        if what == "ask":
            await other.within(1 + seconds).invoke(Rogue.count, number)
        elif what == "ask run":
            with trio.move_on_after(seconds):
                await other.invoke(Rogue.wait, 2 * seconds)
        elif what == "child":
            if self.depth < 2:
                await self.start(Rogue, depth=self.depth + 1)
        elif what == "observe":
            async with other.observe(Rogue.level) as levels:
                with trio.move_on_after(seconds):
                    async for _ in levels:
                        pass
        elif what == "linked task":
            async with other.link():
                await trio.sleep(seconds)
        else:
            self.at_once(what, number, seconds)

    async def a_task(self, seconds: float, number: int) -> None:
        await trio.sleep(seconds)
        if number % 3 == 0:
            raise Bug("in a task")

    def on_tick(self, number: int) -> None:
        self.level = number
        if number % 4 == 3:
            self.ticked.emit(number - 1)

    def on_down(self, down: Down) -> None:
        self.level = -down.incarnation

    def blow(self) -> None:
        raise Bug("of a timer")


class Trapping(Rogue, trap_exits=True):
    def on_exit(self, down: Down) -> None:
        self.level = -down.incarnation


class Strict(Rogue, serial=True, mailbox=MailboxOptions(size=2, when_full="reject")):
    pass


class Forgetful(Rogue, mailbox=MailboxOptions(size=2, when_full="drop_oldest")):
    pass


class Tight(Rogue, mailbox=MailboxOptions(size=1)):
    pass


class Slow(Rogue):
    """Takes its time to come and to go, and now and then raises while it does."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(0.05)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
            if self.random.random() < 0.2:
                raise Bug("while leaving")


class Shaky(Rogue):
    """Does not always start."""

    def started(self) -> None:
        self.follow(self.find(Rogue), Rogue.ticked, self.on_tick)
        self.join_group("all")
        if self.incarnation_to_come() > 1 and self.random.random() < 0.3:
            raise Bug("while starting")

    def incarnation_to_come(self) -> int:
        return self._place().incarnation


KINDS: tuple[type[Rogue], ...] = (Rogue, Trapping, Strict, Forgetful, Tight, Slow, Shaky)
assert len(KINDS) == COUNT
AT_ONCE = (
    "link", "unlink", "monitor", "follow", "follow topic", "publish", "join", "leave", "broadcast", "send",
    "send run", "send self", "send fussy", "emit", "become", "unstash", "state timeout", "after",
    "crash after", "task", "stop",
)  # fmt: skip
IN_TIME = (*AT_ONCE, "ask", "ask run", "child", "observe", "linked task")
ASKED = (
    "count",
    "wait",
    "wait_side_by_side",
    "dream",
    "sleepwalk",
    "work",
    "fussy",
    "fail",
    "crash",
    "crash_later",
)
OF_ONE_LIFE = (
    "runs", "pending", "parked", "timers", "follows", "holder", "out", "shelf", "links", "monitors", "groups",
    "household",
)  # fmt: skip
HOW = (
    "ask",
    "ask and leave",
    "within",
    "tell",
    "begin",
    "begin and cancel",
    "pool",
    "all",
    "listen",
    "stream",
    "link",
    "news",
)


class Stage:
    """One program in one node: what was asked, how each ended, and every slot there ever was."""

    def __init__(self) -> None:
        self.asked = 0
        self.outcomes: Counter[str] = Counter()
        self.slots: list[LocalLink] = []
        self.agents: list[weakref.ref[Any]] = []
        self.crew: Any = None

    async def play(self, deeds: list[Deed], strategy: Any) -> None:
        """Play a program to its end, then close the node; what rogues raise while it closes is no matter."""
        try:
            await self._play(deeds, strategy)
        except* Bug:
            pass
        self.check_accounts()

    async def _play(self, deeds: list[Deed], strategy: Any) -> None:
        children = [
            ChildSpec(
                f"rogue-{n}", KINDS[n % len(KINDS)], restart=("permanent", "transient")[n % 2], shutdown=1.0
            )
            for n in range(COUNT)
        ]
        pool = Pool(Rogue, 3, name="crew", by="least_loaded", max_restarts=1000)
        desk = SupervisorSpec("desk", children, strategy=strategy, max_restarts=1000, max_seconds=1.0)
        async with open_node(SupervisorSpec("root", [desk], max_restarts=1000)) as node:
            self.spy(node)
            self.crew = await node.start_pool(pool)
            async with trio.open_nursery() as nursery:
                for deed in deeds:
                    if deed[0] == "sleep":
                        await trio.sleep(deed[1])
                    else:
                        nursery.start_soon(self.perform, node, deed)
            await node.root.settled()
            self.check_accounts()

    def spy(self, node: Node) -> None:
        """See every slot and every incarnation that is made from now on, and those there are."""
        rt = node._rt
        stage = self
        base = TracedLink if rt.instrument is not None else LocalLink

        class Spied(base):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                stage.slots.append(self)

            def make(self) -> Any:
                agent = super().make()
                stage.agents.append(weakref.ref(agent))
                return agent

        self.slots += [ref._link for ref in node.agents()]
        rt.link = Spied

    async def perform(self, node: Node, deed: Deed) -> None:
        """Do one deed from outside, and note how it ended."""
        kind = deed[0]
        self.asked += 1
        try:
            with trio.fail_after(50):
                if kind == "do":
                    await self.tell_to_do(node, *deed[1:])
                elif kind == "supervise":
                    await self.supervise(node, *deed[1:])
                else:
                    await self.request(node, *deed[1:])
        except (LmosActorsError, trio.TooSlowError) as error:
            self.outcomes[type(error).__name__] += 1
        else:
            self.outcomes["done"] += 1

    async def tell_to_do(
        self, node: Node, number: int, slowly: bool, what: str, other: int, seconds: float
    ) -> None:
        rogue = node.find(Rogue, f"rogue-{number}")
        if slowly:
            await rogue.invoke(Rogue.do_slowly, [what, other, seconds])
        else:
            await rogue.invoke(Rogue.do, [what, other, seconds])

    async def supervise(self, node: Node, number: int, what: str) -> None:
        desk = node.root.supervisor("desk")
        name = f"rogue-{number}"
        if what == "terminate":
            await desk.terminate_child(name)
            await desk.restart_child(name)
        elif what == "resize":
            await self.crew.resize(1 + number)
        else:
            await node.find(Rogue, name).ready()

    async def request(self, node: Node, number: int, how: str, what: str, seconds: float) -> None:
        rogue = node.find(Rogue, f"rogue-{number}")
        handle: Any = getattr(Rogue, what)
        args: tuple[Any, ...] = ()
        if what in ("wait", "wait_side_by_side", "sleepwalk", "fussy_run", "crash_later"):
            args = (seconds,)
        elif what not in ("fail", "crash"):
            args = (number,)
        if how == "ask":
            await rogue.invoke(handle, *args)
        elif how == "ask and leave":
            with trio.move_on_after(seconds):
                await rogue.invoke(handle, *args)
        elif how == "within":
            await rogue.within(0.05 + seconds).invoke(handle, *args)
        elif how == "tell":
            await rogue.tell(handle, *args)
        elif how == "begin":
            async with rogue.begin(handle, *args) as call:
                await call.result()
        elif how == "begin and cancel":
            async with rogue.begin(handle, *args) as call:
                await trio.sleep(seconds)
                await call.cancel("enough")
        elif how == "listen":
            async with rogue.subscribe(Rogue.ticked, gaps=True) as ticks, rogue.monitor() as downs:
                with trio.move_on_after(seconds):
                    await rogue.invoke(handle, *args)
                with trio.move_on_after(seconds):
                    await ticks.receive()
                with trio.move_on_after(seconds):
                    await downs.receive()
        elif how == "stream":
            async with rogue.stream(Rogue.numbers, number) as numbers:
                async for _ in numbers:
                    await trio.sleep(seconds / 10)
        elif how == "link":
            async with rogue.link():
                await rogue.invoke(handle, *args)
        elif how == "news":
            topic, group = node.topic("news", int), node.group("all", Rogue)
            async with topic.subscribe(size=1) as news, group.watch() as changes:
                group.broadcast(Rogue.count, number)
                topic.publish(number)
                await news.receive()
                with trio.move_on_after(seconds):
                    await changes.receive()
        elif how == "pool":
            await self.crew.invoke(handle, *args)
        else:
            rogues = [node.find(Rogue, f"rogue-{n}") for n in range(COUNT)]
            await invoke_all(rogues, handle, *args)

    # ---- what has to be true

    def check_accounts(self) -> None:
        for slot in self.slots:
            n = slot.statistics()
            total = n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
            assert n.accepted == total, (slot.path, n)
            assert n.waiting == slot.mailbox_statistics().depth, (slot.path, n)

    def check_empty(self) -> None:
        """After the node's end: everybody answered, nothing waits, runs, listens or is kept."""
        assert sum(self.outcomes.values()) == self.asked
        for slot in self.slots:
            n = slot.statistics()
            assert (n.waiting, n.running) == (0, 0), (slot.path, n)
            assert slot.agent is None
            more = slot.more
            if more is not None:
                left = {
                    name: getattr(more, name)
                    for name in (
                        "runs",
                        "pending",
                        "parked",
                        "timers",
                        "follows",
                        "holder",
                        "out",
                        "shelf",
                        "links",
                    )
                    if getattr(more, name, None)
                }
                assert not left, (slot.path, left)
                assert more.own == 0
                assert more.sinks is None or not more.sinks.by_key, (slot.path, more.sinks.by_key)

    def check_forgotten(self) -> None:
        """No incarnation outlives its node, unless somebody holds a ref."""
        self.slots.clear()
        self.crew = None
        gc.collect()
        alive = [agent() for agent in self.agents if agent() is not None]
        assert not alive, alive


def tasks_and_timers() -> tuple[int, int]:
    """Count the tasks and the runtime's timers of the present run."""
    clock = trio.lowlevel.current_clock()
    return trio.lowlevel.current_statistics().tasks_living, len(clock) if isinstance(
        clock, VirtualClock
    ) else 0
