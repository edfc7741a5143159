"""A stage on which programs of deeds are played by rogue agents, and what has to be true of it afterwards."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import trio

from lmos_actors import (
    ChildSpec,
    LmosActorsError,
    Node,
    Pool,
    SupervisorSpec,
    invoke_all,
    open_node,
)
from lmos_actors.actors import RecordedSlot, Slot, hold, release, set_service_time, slot_of
from lmos_actors.simulation import VirtualClock
from tests.attack.agents import COUNT, KINDS, Bug, Rogue, Slow

Deed = tuple[Any, ...]
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
    "watch pool",
    "pool do",
    "parallel links",
    "tell nowait",
)


class Stage:
    """One program in one node: what was asked, how each ended, and every slot there ever was."""

    def __init__(self) -> None:
        self.asked = 0
        self.rt: Any = None
        self.outcomes: Counter[str] = Counter()
        self.slots: list[Slot] = []
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
        pool = Pool(
            Slow if len(deeds) % 2 else Rogue,
            3,
            name="crew",
            shutdown=0.5,
            by="least_loaded",
            max_restarts=1000,
        )
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
        self.rt = rt
        stage = self
        base = RecordedSlot if rt.instrument is not None else Slot

        class Spied(base):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                stage.slots.append(self)

            def install(self, agent: Any) -> None:
                super().install(agent)
                stage.agents.append(weakref.ref(agent))

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
                elif kind == "hold":
                    await self.hold(node, *deed[1:])
                elif kind == "serve":
                    await self.serve(node, *deed[1:])
                elif kind == "supervise":
                    await self.supervise(node, *deed[1:])
                else:
                    await self.request(node, *deed[1:])
        except (LmosActorsError, trio.TooSlowError) as error:
            self.outcomes[type(error).__name__] += 1
        except ExceptionGroup as group:
            if group.split((LmosActorsError, Bug))[1] is not None:
                raise
            self.outcomes["group"] += 1
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

    async def hold(self, node: Node, number: int, seconds: float) -> None:
        rogue = node.find(Rogue, f"rogue-{number}")
        hold(rogue)
        try:
            await trio.sleep(seconds)
        finally:
            if slot_of(rogue).held:  # else another has released it
                release(rogue)

    async def serve(self, node: Node, number: int, seconds: float, after: float) -> None:
        rogue = node.find(Rogue, f"rogue-{number}")
        set_service_time(rogue, seconds)
        try:
            await trio.sleep(after)
        finally:
            set_service_time(rogue, 0)

    async def supervise(self, node: Node, number: int, what: str) -> None:
        desk = node.root.supervisor("desk")
        name = f"rogue-{number}"
        if what == "terminate":
            await desk.terminate_child(name)
            await desk.restart_child(name)
        elif what == "resize":
            with trio.move_on_after(0.1 * number):
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
        elif how == "watch pool":
            async with self.crew.subscribe(Rogue.ticked) as ticks, self.crew.monitor() as downs:
                with trio.move_on_after(seconds):
                    await self.crew.invoke(handle, *args)
                with trio.move_on_after(seconds):
                    await ticks.receive()
                with trio.move_on_after(seconds):
                    await downs.receive()
        elif how == "pool do":
            await self.crew.invoke(Rogue.do_slowly, ["broadcast" if number % 2 else "join", number, seconds])
        elif how == "parallel links":
            async with rogue.link(), node.find(Rogue, f"rogue-{(number + 1) % COUNT}").link():
                await rogue.invoke(handle, *args)
        elif how == "tell nowait":
            try:
                for _ in range(3):
                    rogue.tell_nowait(handle, *args)
            except trio.WouldBlock:
                pass
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
        rt = self.rt
        if rt is None:
            return
        assert not rt.groups, rt.groups
        assert rt.absent is None or not rt.absent._by_finder
        assert not rt.signals
        assert not rt.appeared
        assert not rt.ready
        for slot in self.slots:
            n = slot.statistics()
            assert (n.waiting, n.running) == (0, 0), (slot.path, n)
            assert slot.agent is None
            more = slot.extra
            if more is not None:
                left = {name: getattr(more, name) for name in OF_ONE_LIFE if getattr(more, name, None)}
                assert not left, (slot.path, left)
                assert more.own == 0
                assert more.pace is None or (more.pace.item, more.pace.timer) == (None, None)
                assert more.withdrawn == 0
                assert not more.active or not any(more.active.values())
                assert more.sinks is None or not more.sinks.by_key, (slot.path, more.sinks.by_key)

    def check_forgotten(self) -> None:
        """No incarnation outlives its node, unless somebody holds a ref."""
        self.slots.clear()
        self.crew = None
        self.rt = None
        gc.collect()
        alive = [agent() for agent in self.agents if agent() is not None]
        assert not alive, alive


def tasks_and_timers() -> tuple[int, int]:
    """Count the tasks and the runtime's timers of the present run."""
    clock = trio.lowlevel.current_clock()
    return trio.lowlevel.current_statistics().tasks_living, len(clock) if isinstance(
        clock, VirtualClock
    ) else 0
