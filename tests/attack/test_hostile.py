"""Agents that do what no agent should do, and trees that no one would grow: regressions found by attack."""

from __future__ import annotations

import gc
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    SHUTDOWN,
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    ExitReason,
    Node,
    Pool,
    StartFailed,
    SupervisorSpec,
    action,
    event,
    open_node,
    simulate,
)
from lmos_actors.actors import slot_of
from tests.attack.rogue import Stage, tasks_and_timers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

LEVELS = 400  # more than a third of what Python's stack takes


class Bug(Exception):
    """What agents raise by mistake."""


class Boss(Agent):
    @action
    async def raise_children(self, levels: int) -> int:
        if not levels:
            return 0
        child = await self.start(Boss)
        return 1 + await child.invoke(Boss.raise_children, levels - 1)

    @action
    async def work(self) -> None:
        await trio.sleep_forever()

    @action
    def crash(self) -> None:
        raise Bug


# ---- deep trees


def test_a_tree_of_any_depth_is_started_shown_and_stopped() -> None:
    async def main() -> None:
        async with open_node() as node:
            boss = await node.start(Boss)
            assert await boss.invoke(Boss.raise_children, LEVELS) == LEVELS
            assert len(node.agents()) == LEVELS + 1
            assert node.statistics().supervisors == LEVELS + 1  # the last has no children
            assert len(node.tree().splitlines()) == LEVELS + 2

    simulate(main)


@pytest.mark.slow  # its lines: the test above, test_cancel_everywhere.py
def test_a_tree_of_any_depth_is_killed_in_one_step() -> None:
    async def main() -> None:
        async with open_node() as node:
            boss = await node.start_child(ChildSpec("boss", Boss, restart="temporary"))
            await boss.invoke(Boss.raise_children, LEVELS)
            slot_of(boss).stop(SHUTDOWN, "brutal")
            assert not node._rt.being_killed
            await slot_of(boss).wait_down()
            await node.root.settled()
            assert node.agents() == []

    simulate(main)


def test_a_crash_report_names_the_supervisors_above_the_agent_whose_child_it_is() -> None:
    async def main() -> None:
        desk = SupervisorSpec("desk", [ChildSpec("boss", Boss)], strategy="rest_for_one")
        async with open_node(SupervisorSpec("root", [desk])) as node:
            await node.find(Boss, "boss").invoke(Boss.raise_children, 1)
            with pytest.raises(AgentDied):
                await node.find(Boss, "desk/boss/boss").invoke(Boss.crash)
            (report,) = node.crash_reports
            above = (("root", "one_for_one"), ("desk", "rest_for_one"), ("boss", "one_for_one"))
            assert report.supervisors == above

    simulate(main)


# ---- links


class Fated(Agent):
    """Its second life is tied to one who ends at once, and fails to start."""

    lives: list[int]
    fate: Any = None

    def started(self) -> None:
        self.lives.append(len(self.lives) + 1)
        if len(self.lives) == 2:
            other = self.find(Boss, "other")
            self.link(other)
            slot_of(other).die(ExitReason("error", error=Bug("other")))
            raise Bug("no start")

    @action
    def crash(self) -> None:
        raise Bug


def test_an_exit_signal_for_a_life_that_failed_to_start_does_not_end_the_next() -> None:
    async def main() -> list[int]:
        lives: list[int] = []
        children = [ChildSpec("other", Boss), ChildSpec("fated", lambda: Fated(lives=lives))]
        async with open_node(SupervisorSpec("root", children, max_restarts=10)) as node:
            with pytest.raises(AgentDied):
                await node.find(Fated).invoke(Fated.crash)
            await trio.sleep(1)
            assert slot_of(node.find(Fated)).incarnation == 2
        return lives

    assert simulate(main) == [1, 2, 3]


# ---- what an agent does while it is ending, entering, or failing to start


class Listener(Agent):
    said: Event[int] = event()

    @action
    def hear(self, n: int) -> int:
        return n


class Restless(Agent, behaviours=("day", "night")):
    """Does one thing at a moment at which nobody expects it."""

    said: Event[int] = event()
    deed: Any = None
    moment: str = ""
    other: Any = None

    def started(self) -> None:
        self.join_group("restless")
        self.follow(self.topic("news", int), self.hear)
        self.act("starting")
        if self.moment == "starting":
            raise Bug("no start")

    def act(self, moment: str) -> None:
        if moment == self.moment:
            self.deed(self)

    def hear(self, _: object) -> None:
        pass

    def never(self) -> None:
        raise AssertionError("a timer outlived its agent")

    @action
    def idle(self) -> None:
        pass

    @action
    async def work(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.act("running")

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self.act("entering")
        if self.moment == "entering":
            raise Bug("no start")
        try:
            yield
        finally:
            self.act("leaving")


DEEDS: dict[str, Callable[[Any], object]] = {
    "after": lambda a: a.after(0.1, a.never),
    "state timeout": lambda a: a.state_timeout(0.1, a.never),
    "become": lambda a: a.become("night"),
    "follow": lambda a: a.follow(a.other, Listener.said, a.hear),
    "follow somebody unknown": lambda a: a.follow(a.find(Listener, "nobody"), Listener.said, a.hear),
    "follow a topic": lambda a: a.follow(a.topic("more", int), a.hear),
    "join": lambda a: a.join_group("late"),
    "monitor": lambda a: a.monitor(a.other, a.hear),
    "unlink": lambda a: a.unlink(a.other),
    "send": lambda a: a.send(a.other, Listener.hear, 1),
    "send to itself": lambda a: a.send(a.ref, Restless.idle),
    "stop": lambda a: a.stop(),
    "unstash": lambda a: a.unstash_all(),
    "emit": lambda a: a.said.emit(1),
    "broadcast": lambda a: a.group("restless", Restless).broadcast(Restless.idle),
}


@pytest.mark.parametrize("how", ["terminate", "crash", "kill"])
@pytest.mark.parametrize("moment", ["running", "leaving", "entering", "starting"])
@pytest.mark.parametrize("deed", DEEDS)
def test_what_an_agent_does_at_its_end_leaves_nothing(deed: str, moment: str, how: str) -> None:
    def made(other: Any) -> Callable[[], Restless]:
        return lambda: Restless(deed=DEEDS[deed], moment=moment, other=other)

    async def end(node: Node, factory: Callable[[], Restless]) -> None:
        try:
            spec = ChildSpec("restless", factory, restart="temporary", shutdown=0.5)
            restless = await node.start_child(spec)
        except StartFailed:
            return
        async with restless.begin(Restless.work):
            await trio.sleep(0.1)
            if how == "terminate":
                await node.root.terminate_child("restless")
            elif how == "crash":
                node_crash(restless)
            else:
                slot_of(restless).stop(SHUTDOWN, "brutal")

    async def main() -> Stage:
        before, stage = tasks_and_timers(), Stage()
        async with open_node() as node:
            stage.spy(node)
            other = await node.start(Listener)
            await end(node, made(other))
            await trio.sleep(1)
            more = slot_of(other).extra
            assert more is None or more.sinks is None or not more.sinks.by_key
            assert not node._rt.groups
            assert node._rt.absent is None or not node._rt.absent._by_finder
            await other.invoke(Listener.hear, 1)
        assert tasks_and_timers() == before
        stage.check_accounts()
        stage.check_empty()
        return stage

    simulate(main)


def node_crash(ref: Any) -> None:
    slot_of(ref).die(ExitReason("error", error=Bug("from outside")))


# ---- exceptions that cannot be shown


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise ValueError("not comparable")

    def __hash__(self) -> int:
        raise ValueError("not hashable")

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


class Mute(Agent):
    @action
    def crash(self) -> None:
        raise Unspeakable

    @action
    async def crash_run(self) -> None:
        raise ExceptionGroup("g", [Unspeakable(), Unspeakable()])

    def __repr__(self) -> str:
        raise ValueError("no text")

    @action
    def hello(self) -> int:
        return 1


def test_an_exception_that_cannot_be_shown_is_a_crash_like_any_other() -> None:
    async def main() -> None:
        async with open_node(SupervisorSpec("root", max_restarts=10)) as node:
            mute, other = await node.start(Mute), await node.start(Listener)
            for handle in (Mute.crash, Mute.crash_run):
                await mute.ready()
                async with mute.monitor() as downs:
                    with pytest.raises(AgentDied):
                        await mute.invoke(handle)
                    assert str((await downs.receive()).reason)
            assert all(str(report) and report.data() for report in node.crash_reports)
            with pytest.raises(Unspeakable):
                async with other.link():
                    raise Unspeakable
            await other.ready()
            await mute.ready()
            assert await mute.invoke(Mute.hello) == 1
            assert node.dump()

    simulate(main)


# ---- a pool that fails to grow while a new member crashes


def test_a_pool_fails_to_grow_while_a_new_member_crashes() -> None:
    entered: list[int] = []

    class Fragile(Agent):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            entered.append(len(entered))
            await trio.sleep(0.05)
            if len(entered) == 4:
                raise Bug("no start")
            yield

        def started(self) -> None:
            if len(entered) in (2, 3):
                self.after(0.01, self.blow)

        def blow(self) -> None:
            raise Bug

        @action
        def hello(self) -> int:
            return 1

    async def main() -> None:
        async with open_node() as node:
            pool = await node.start_pool(Pool(Fragile, 1))
            with pytest.raises(StartFailed):
                await pool.resize(5)
            await trio.sleep(1)
            assert [slot_of(member).incarnation for member in pool.members] == [1]
            await pool.resize(3)
            assert await pool.invoke(Fragile.hello) == 1

    simulate(main)


# ---- Ctrl-C


async def test_the_runtime_is_shielded_from_ctrl_c_and_what_runs_in_its_blocks_is_not() -> None:
    protected = trio.lowlevel.currently_ki_protected
    seen: list[bool] = []

    async def serve() -> None:
        seen.append(protected())

    async with open_node() as node:
        assert not protected()
        node._services.start_soon(serve, name="service")
        one = await node.start(Listener)
        late = node.find(Listener)
        async with late.link(), late.monitor(), late.subscribe(Listener.said), one.link(), one.monitor():
            assert not protected()
        async with late.begin(Listener.hear, 1), one.begin(Listener.hear, 1), node.watch_dead_letters():
            assert not protected()
    assert seen == [True]


class Leaving(Agent):
    """Takes its time to leave, in which Ctrl-C comes again and again."""

    left: list[str]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        yield
        with trio.CancelScope(shield=True):
            for _ in range(3):
                press_ctrl_c()
                await trio.sleep(0.001)
        self.left.append("too late" if self._place().rt.ended else "in time")


@trio.lowlevel.enable_ki_protection
def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_again_and_again_while_a_node_stops_leaves_nothing_behind() -> None:
    left: list[str] = []
    nodes: list[Node] = []

    async def main() -> None:
        async with open_node() as node:
            nodes.append(node)
            await node.start(Listener)
            await node.start(lambda: Leaving(left=left))

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert left == ["in time"]
    assert nodes[0]._rt.ended
    assert {slot_of(ref).statistics().state for ref in nodes[0].agents()} == {"gone"}


# ---- nothing is left of what comes and goes


def test_lives_that_come_and_go_leave_no_memory() -> None:
    async def main() -> None:
        async with open_node(SupervisorSpec("root", max_restarts=1000)) as node:
            stage = Stage()
            stage.spy(node)
            boss, other = await node.start(Boss), await node.start(Listener)
            for _ in range(20):
                await trio.sleep(10)
                await boss.invoke(Boss.raise_children, 2)
                pool = await node.start_pool(Pool(Listener, 2, name="pool"))
                await pool.resize(3)
                async with other.link(), pool.subscribe(Listener.said):
                    await pool.resize(1)
                await node.root.terminate_child("pool")
                await node.root.delete_child("pool")
                with pytest.raises(AgentDied):
                    await boss.invoke(Boss.crash)
                await boss.ready()
            last = await node.start(Boss)
            await trio.sleep(10)
            with pytest.raises(AgentDied):
                await last.invoke(Boss.crash)
            await last.ready()
            made = len(stage.agents)
            stage.slots.clear()
            node._rt.crashes.reports.clear()
            del pool
            gc.collect()
            alive = [agent for agent in stage.agents if agent() is not None]
            assert made == 2 + 20 * (2 + 3 + 1) + 2
            assert len(alive) <= 4  # those that run, and the last that crashed, as long as its crash counts

    simulate(main)
