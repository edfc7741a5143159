"""Durable timers and behaviours: what a later incarnation goes on with."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    NotAllowed,
    Ref,
    StartFailed,
    action,
    every,
    open_node,
    simulate,
)
from lmos_actors.actors import set_service_time
from lmos_actors.errors import StateMismatch, StoreFailed
from lmos_actors.persistence import MemoryStore
from tests.persistence.stores import every_place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path

    from lmos_actors.persistence import Conflict, Durability, Store, Write
    from lmos_actors.types import DurableTimer
    from tests.persistence.stores import Place


class Recorded(MemoryStore):
    """A store that can be had again as it was after any of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Sequence[Sequence[Write]]] = []

    def commit(
        self, batches: Sequence[Sequence[Write]], durability: Durability = "process"
    ) -> list[Conflict | None]:
        self.commits.append(batches)
        return super().commit(batches, durability)

    def as_after(self, commits: int) -> MemoryStore:
        store = MemoryStore()
        store.open()
        for batches in self.commits[:commits]:
            store.commit(batches, "process")
        store.close()
        return store


class Desk:
    """What both classes below have; `heard` says what ran, and at which second."""

    def note(self, kind: str, what: str) -> None:
        raise NotImplementedError

    def plan_it(self: Any, seconds: float, what: str) -> None:
        self.note("planned", what)
        self.after(seconds, self.hear, what, durable=True)

    def hear(self: Any, what: str) -> None:
        self.note("heard", f"{what} at {trio.current_time():g}")
        if what == "crash" and self.ref.statistics().incarnation == 1:
            raise KeyError(what)

    def cancel_it(self: Any, what: str) -> None:
        self.note("cancelled", what)
        for timer in self.durable_timers:
            if timer.arguments["what"] == what:
                timer.cancel()


class Snapshots(Agent, Desk, durable=True, behaviours=("free", "held")):
    heard: list[str] = attrs.field(factory=list)
    planned: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)

    def note(self, kind: str, what: str) -> None:
        getattr(self, kind).append(what)

    @action
    def plan(self, seconds: float, what: str) -> None:
        self.plan_it(seconds, what)

    @action
    def plan_and_crash(self, seconds: float, what: str, cancelled: str) -> None:
        self.become("held")
        self.plan_it(seconds, what)
        self.cancel_it(cancelled)
        raise KeyError(what)

    @action
    def cancel(self, what: str) -> None:
        self.cancel_it(what)

    @action
    def plan_and_fail(self, what: str) -> None:
        self.plan_it(5, what)
        raise ActionFailed("no")

    @action(snapshot_safe=True)
    async def plan_slowly(self, what: str) -> None:
        await trio.sleep(1)
        self.plan_it(2, what)
        await trio.sleep(1)

    @action(when="free")
    def hold(self) -> None:
        self.become("held")

    @action
    def look(self) -> tuple[list[str], str]:
        return self.heard, self.behaviour

    @action
    def left(self) -> list[str]:
        return [each for each in self.planned if each not in self.cancelled]

    @action
    def timers(self) -> list[str]:
        return [f"{timer.turn} {timer.due:%M:%S} {timer.arguments}" for timer in self.durable_timers]


@attrs.frozen
class Noted:
    kind: str
    what: str


class Journal(Agent, Desk, durable="journal", snapshot_every=3, behaviours=("free", "held")):
    heard: list[str] = attrs.field(factory=list)
    planned: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)

    def apply(self, fact: Noted) -> None:
        getattr(self, fact.kind).append(fact.what)

    def note(self, kind: str, what: str) -> None:
        self.record(Noted(kind, what))

    @action
    def plan(self, seconds: float, what: str) -> None:
        self.plan_it(seconds, what)

    @action
    def plan_and_crash(self, seconds: float, what: str, cancelled: str) -> None:
        self.become("held")
        self.plan_it(seconds, what)
        self.cancel_it(cancelled)
        raise KeyError(what)

    @action
    def cancel(self, what: str) -> None:
        self.cancel_it(what)

    @action(when="free")
    def hold(self) -> None:
        self.become("held")

    @action
    def look(self) -> tuple[list[str], str]:
        return self.heard, self.behaviour

    @action
    def left(self) -> list[str]:
        return [each for each in self.planned if each not in self.cancelled]


BOTH: tuple[Any, ...] = (Snapshots, Journal)


@asynccontextmanager
async def living(store: Store | str, cls: Any) -> AsyncGenerator[Ref[Any]]:
    async with open_node(store=store) as node:
        yield await node.start_child(ChildSpec("desk", cls))


def in_turn(*lives: Callable[[Ref[Any]], Awaitable[None]], cls: Any = Snapshots) -> None:
    """Run lives of one agent, each in a node of its own, with one store, on virtual time."""

    async def main() -> None:
        store = MemoryStore()
        for life in lives:
            async with living(store, cls) as desk:
                await life(desk)

    simulate(main)


@pytest.mark.parametrize("cls", BOTH)
def test_timers_fire_once_late_rather_than_never_in_order(cls: Any) -> None:
    async def plan(desk: Ref[Any]) -> None:
        for seconds, what in ((50, "c"), (5, "a"), (30, "b"), (90, "d")):
            await desk.invoke(cls.plan, seconds, what)
        await trio.sleep(6)

    async def be_late(desk: Ref[Any]) -> None:
        assert await desk.invoke(cls.look) == (["a at 5", "b at 60", "c at 60"], "free")
        await trio.sleep(40)
        assert await desk.invoke(cls.look) == (["a at 5", "b at 60", "c at 60", "d at 90"], "free")

    async def have_none_left(desk: Ref[Any]) -> None:
        await trio.sleep(100)
        assert len((await desk.invoke(cls.look))[0]) == 4

    async def main() -> None:
        store = MemoryStore()
        async with living(store, cls) as desk:
            await plan(desk)
        await trio.sleep(54)
        async with living(store, cls) as desk:
            await be_late(desk)
        async with living(store, cls) as desk:
            await have_none_left(desk)

    simulate(main)


@pytest.mark.parametrize("cls", BOTH)
@every_place
async def test_timers_of_one_node_fire_in_the_next(place: Place, tmp_path: Path, cls: Any) -> None:
    store = place(tmp_path)
    async with living(store, cls) as desk:
        await desk.invoke(cls.plan, 3600.0, "later")
        await desk.invoke(cls.plan, 0.3, "soon")
        await desk.invoke(cls.plan, 3600.0, "never")
        await desk.invoke(cls.cancel, "never")
    for _ in range(2):
        async with living(store, cls) as desk:
            with trio.fail_after(10):
                while not (heard := (await desk.invoke(cls.look))[0]):  # noqa: ASYNC110
                    await trio.sleep(0.02)
            assert [each.split()[0] for each in heard] == ["soon"]
            assert await desk.invoke(cls.left) == ["later", "soon"]


@pytest.mark.parametrize("cls", BOTH)
def test_a_turn_that_crashes_sets_none_and_cancels_none(cls: Any) -> None:
    async def life(desk: Ref[Any]) -> None:
        await desk.invoke(cls.plan, 5, "a")
        with pytest.raises(AgentDied):
            await desk.invoke(cls.plan_and_crash, 6, "b", "a")
        await desk.ready()
        await trio.sleep(10)
        assert await desk.invoke(cls.look) == (["a at 5"], "free")

    in_turn(life, cls=cls)


@pytest.mark.parametrize("cls", BOTH)
def test_a_timer_whose_turn_crashes_has_not_fired(cls: Any) -> None:
    async def life(desk: Ref[Any]) -> None:
        await desk.invoke(cls.plan, 5, "crash")
        await trio.sleep(8)
        assert (await desk.invoke(cls.look))[0] == ["crash at 5"]
        assert desk.statistics().incarnation == 2

    in_turn(life, cls=cls)


@pytest.mark.parametrize("cls", BOTH)
def test_wherever_a_process_is_killed_each_timer_has_fired_once(cls: Any) -> None:
    """The next process begins with the store as any of the commits has left it."""

    async def main() -> None:
        store = Recorded()
        async with living(store, cls) as desk:
            for n in range(4):
                await desk.invoke(cls.plan, 2 * n, str(n))
                await trio.sleep(1)
            await desk.invoke(cls.plan, 50, "never")
            await desk.invoke(cls.cancel, "never")
            await trio.sleep(10)
        assert len(store.commits) == 10
        left: list[str] = []
        for commits in range(len(store.commits) + 1):
            async with living(store.as_after(commits), cls) as desk:
                left = await desk.invoke(cls.left)
                await trio.sleep(60)
                heard = [each.partition(" ")[0] for each in (await desk.invoke(cls.look))[0]]
                assert heard == left
        assert left == ["0", "1", "2", "3"]

    simulate(main)


def test_a_cancel_is_kept_and_holds_for_a_turn_that_waits() -> None:
    async def first(desk: Ref[Any]) -> None:
        await desk.invoke(Snapshots.plan, 5, "a")
        await desk.invoke(Snapshots.plan, 9, "b")
        assert await desk.invoke(Snapshots.timers) == [
            "hear 00:05 {'what': 'a'}",
            "hear 00:09 {'what': 'b'}",
        ]
        await desk.invoke(Snapshots.cancel, "a")
        await trio.sleep(7)

    async def second(desk: Ref[Any]) -> None:
        assert await desk.invoke(Snapshots.timers) == ["hear 00:09 {'what': 'b'}"]
        await desk.invoke(Snapshots.cancel, "b")
        await trio.sleep(7)
        assert (await desk.invoke(Snapshots.look))[0] == []

    in_turn(first, second)


class Hasty(Agent, durable=True, history=4):
    ran: list[str] = attrs.field(factory=list)
    friend: Ref[Snapshots] | None = None

    def started(self) -> None:
        if not self.restored:
            self.after(1, self.cancel_others, durable=True)
            self.after(2, self.run, ["cancelled"], durable=True)
            words = ["kept"]
            self.after(9, self.run, words, self.ref, durable=True)
            words.append("changed later")

    def cancel_others(self) -> None:
        self.durable_timers[0].cancel()

    def run(self, words: list[str], friend: Ref[Hasty] | None = None, *, ends: bool = False) -> None:
        self.ran += words
        if friend is not None:
            self.send(friend, Hasty.add, "by message")
        if ends:
            raise ValueError("ends")

    @action
    def add(self, what: str) -> None:
        self.ran.append(what)

    @action
    def plan_end(self) -> None:
        self.after(0, self.run, ["at the end"], ends=True, durable=True)

    @action
    def get(self) -> list[str]:
        return self.ran


@pytest.mark.parametrize("restarts", [True, False])
def test_a_turn_gets_the_same_in_this_life_or_the_next_and_can_be_cancelled_when_late(restarts: bool) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with living(store, Hasty) as hasty:
            if not restarts:
                await trio.sleep(10)
                assert await hasty.invoke(Hasty.get) == ["kept", "by message"]
        await trio.sleep(5)
        async with living(store, Hasty) as hasty:
            assert await hasty.invoke(Hasty.get) == ([] if restarts else ["kept", "by message"])
            await trio.sleep(5)
            assert await hasty.invoke(Hasty.get) == ["kept", "by message"]

    simulate(main)


def test_a_crash_report_names_the_turn_of_the_timer() -> None:
    async def life(hasty: Ref[Any]) -> None:
        async with hasty.monitor() as ends:
            await hasty.invoke(Hasty.plan_end)
            down = await anext(ends)
        report = str(down.reason.report)
        assert "Hasty.run" in report
        assert "at the end" in report

    in_turn(life, cls=Hasty)


HANDLES: list[DurableTimer] = []


class Careless(Agent, durable=True):
    ran: int = 0

    @action
    def plan(self) -> None:
        HANDLES.append(self.after(5, self.run, durable=True))

    @action
    def crash(self) -> None:
        raise KeyError

    def run(self) -> None:
        self.ran += 1

    @action
    def get(self) -> int:
        return self.ran


def test_a_handle_of_an_earlier_incarnation_does_nothing() -> None:
    async def main() -> None:
        store = Recorded()
        async with living(store, Careless) as careless:
            await careless.invoke(Careless.plan)
            with pytest.raises(AgentDied):
                await careless.invoke(Careless.crash)
            await careless.ready()
            commits = len(store.commits)
            HANDLES.pop().cancel()
            await trio.sleep(1)
            assert len(store.commits) == commits
            await trio.sleep(9)
            assert await careless.invoke(Careless.get) == 1

    simulate(main)


class Failing(MemoryStore):
    """A store whose disk is full until `works_at`."""

    fails_from = works_at = 0.0

    def commit(self, batches: Sequence[Sequence[Write]], durability: Durability) -> list[Conflict | None]:
        if self.fails_from <= trio.current_time() < self.works_at:
            raise StoreFailed(self.name, "the disk is full")
        return super().commit(batches, durability)


def test_a_timer_whose_turn_was_not_kept_fires_again_once_the_store_works() -> None:
    async def main() -> None:
        store = Failing()
        store.fails_from, store.works_at = 4, 20
        async with living(store, Snapshots) as desk:
            await desk.invoke(Snapshots.plan, 5, "a")
            await trio.sleep(30)
            heard, _ = await desk.invoke(Snapshots.look)
            assert len(heard) == 1
            assert 20 <= float(heard[0].removeprefix("a at ")) < 27

    simulate(main)


def test_what_a_run_sets_is_kept_at_its_next_await() -> None:
    async def main() -> None:
        store = Recorded()
        async with living(store, Snapshots) as desk:
            await desk.tell(Snapshots.plan_slowly, "a")
            await trio.sleep(1.5)
            assert '"turn":"hear"' in str(store.commits[-1])

    simulate(main)


def test_a_declared_failure_and_a_run_set_timers() -> None:
    async def first(desk: Ref[Any]) -> None:
        with pytest.raises(ActionFailed):
            await desk.invoke(Snapshots.plan_and_fail, "a")
        await desk.tell(Snapshots.plan_slowly, "b")
        await trio.sleep(1.5)

    async def second(desk: Ref[Any]) -> None:
        await trio.sleep(10)
        assert (await desk.invoke(Snapshots.look))[0] == ["b at 3", "a at 5"]

    in_turn(first, second)


class Clock(Agent, durable=True):
    ticks: list[float] = attrs.field(factory=list)

    @every(10, durable=True)
    def tick(self) -> None:
        self.ticks.append(trio.current_time())

    @action
    def get(self) -> list[float]:
        return self.ticks

    @action
    def crash(self) -> None:
        raise KeyError


def test_a_rhythm_goes_on_with_one_firing_for_all_that_were_missed() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with living(store, Clock) as clock:
            await trio.sleep(6)
            with pytest.raises(AgentDied):
                await clock.invoke(Clock.crash)
            await clock.ready()
            await trio.sleep(6)
            for _ in range(2):
                assert await clock.invoke(Clock.get) == [10]
                with pytest.raises(AgentDied):
                    await clock.invoke(Clock.crash)
                await clock.ready()
        await trio.sleep(33)
        async with living(store, Clock) as clock:
            await trio.sleep(20)
            assert await clock.invoke(Clock.get) == [10, 45, 50, 60]

    simulate(main)


def test_a_rhythm_of_an_agent_that_works_on_its_turns() -> None:
    """Each turn comes at the end of the work on it."""

    async def life(clock: Ref[Any]) -> None:
        set_service_time(clock, 2)
        await trio.sleep(26)
        assert await clock.invoke(Clock.get) == [12, 22]
        await clock.tell(Clock.crash)  # from 28 to 30
        await trio.sleep(8)
        assert await clock.invoke(Clock.get) == [12, 22, 32]

    in_turn(life, cls=Clock)


@pytest.mark.parametrize("cls", BOTH)
def test_a_behaviour_comes_back(cls: Any) -> None:
    async def first(desk: Ref[Any]) -> None:
        await desk.invoke(cls.hold)

    async def second(desk: Ref[Any]) -> None:
        with pytest.raises(NotAllowed, match="'held'"):
            await desk.invoke(cls.hold)
        assert (await desk.invoke(cls.look))[1] == "held"

    in_turn(first, second, second, cls=cls)


# ---- classes that have changed


class Planner(Agent, durable=True, behaviours=("free", "hold"), formerly=(f"{__name__}:Snapshots",)):
    heard: list[str] = attrs.field(factory=list)
    planned: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "'hear' at 2030-01-01 .* Renamed has no method 'hear'"),
        ({"hears": lambda self: None}, "did you mean 'hears'?"),
        ({"hear": lambda self: None}, "Renamed.hear takes no 'what'"),
    ],
)
def test_a_timer_that_the_class_cannot_run_any_more(body: dict[str, Any], why: str) -> None:
    renamed_class: Any = type("Renamed", (Planner,), body)

    async def main() -> None:
        store = MemoryStore()
        async with living(store, Snapshots) as desk:
            await desk.invoke(Snapshots.plan, 5, "a")
        with pytest.raises(StartFailed) as failed:
            async with living(store, renamed_class):
                pass
        assert isinstance(failed.value.__cause__, StateMismatch)
        failed.match(why)
        async with living(store, Snapshots) as desk:  # nothing was overwritten
            await trio.sleep(10)
            assert (await desk.invoke(Snapshots.look))[0] == ["a at 5"]

    simulate(main)


def test_a_behaviour_that_the_class_has_no_more() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with living(store, Snapshots) as desk:
            await desk.invoke(Snapshots.hold)
        with pytest.raises(
            StartFailed, match=r"'held', which Planner does not have \(did you mean 'hold'\?\)"
        ):
            async with living(store, Planner):
                pass

    simulate(main)


def test_a_method_may_have_the_name_that_an_older_one_had() -> None:
    class Renamed(Planner):
        def listen(self, what: str) -> None:
            self.heard.append(f"{what}!")

        hear = listen

        @action
        def get(self) -> list[str]:
            return self.heard

    async def main() -> None:
        store = MemoryStore()
        async with living(store, Snapshots) as desk:
            await desk.invoke(Snapshots.plan, 5, "a")
        async with living(store, Renamed) as renamed:
            await trio.sleep(10)
            assert await renamed.invoke(Renamed.get) == ["a!"]

    simulate(main)


# ---- what is refused


class Strict(Agent, durable=True):
    def greet(self, name: str, times: list[int] | None = None, *, loud: bool = False) -> None:
        """Greet."""

    def guess(self, what) -> None:  # type: ignore[no-untyped-def]
        """Guess."""

    def lock(self, lock: threading.Lock) -> None:
        """Lock."""

    def many(self, *names: str) -> None:
        """Do nothing."""

    async def wait(self) -> None:
        """Wait."""

    @action
    def attempt(self, number: int) -> str:
        calls: list[Callable[[], object]] = [
            lambda: self.after(1, self.greet, 5, durable=True),
            lambda: self.after(1, self.greet, "a", ["b"], durable=True),
            lambda: self.after(1, self.greet, durable=True),
            lambda: self.after(1, self.guess, 5, durable=True),
            lambda: self.after(1, self.lock, threading.Lock(), durable=True),
            lambda: self.after(1, self.many, "a", durable=True),
            lambda: self.after(1, self.wait, durable=True),
            lambda: self.after(1, lambda: None, durable=True),
            lambda: self.after(1, Strict().greet, "a", durable=True),
            lambda: self.after(1e300, self.greet, "a", durable=True),
            lambda: [self.after(1, self.greet, "a", [1], loud=True, durable=True) for _ in range(257)],
        ]
        try:
            calls[number]()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"


REFUSED = (
    "TypeError: Strict.greet: a durable timer cannot keep name=5: name must be str, not 5",
    "TypeError: Strict.greet: a durable timer cannot keep times=['b']: times[0] must be int, not 'b'",
    "TypeError: Strict.greet: missing a required argument: 'name'",
    "TypeError: Strict.guess, parameter 'what': a value of any type has no form to be kept in",
    "TypeError: Strict.lock, parameter 'lock': ",
    "TypeError: Strict.many: a durable timer keeps its arguments by parameter, and not *names",
    "TypeError: Strict.wait: a durable timer runs a method written def",
    "TypeError: after(durable=True) takes a method of self, which a later incarnation has too, not <function",
    "TypeError: after(durable=True) takes a method of self, which a later incarnation has too, not <bound",
    "ValueError: after() cannot keep a timer that is due in 1e+300 s",
    "RuntimeError: desk has 256 durable timers, and can have no more at a time",
)


def test_what_cannot_be_kept_is_refused_at_the_call() -> None:
    async def life(desk: Ref[Any]) -> None:
        said = [await desk.invoke(Strict.attempt, number) for number in range(len(REFUSED))]
        wrong = [
            (is_, should) for is_, should in zip(said, REFUSED, strict=True) if not is_.startswith(should)
        ]
        assert wrong == []

    in_turn(life, cls=Strict)


class Fleeting(Agent):
    @action
    def plan(self) -> None:
        self.after(1, self.run, durable=True)

    @action
    def count(self) -> int:
        return len(self.durable_timers)

    def run(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("handle", [Fleeting.plan, Fleeting.count])
def test_an_agent_that_is_not_durable_has_no_durable_timers(handle: Any) -> None:
    async def life(desk: Ref[Any]) -> None:
        with pytest.raises(
            AgentDied, match=r"Fleeting has no durable timers: class Fleeting\(Agent, durable=True"
        ):
            await desk.invoke(handle)

    in_turn(life, cls=Fleeting)


def test_a_durable_rhythm_needs_a_durable_class() -> None:
    with pytest.raises(TypeError, match=r"Wrong.tick: @every\(durable=True\) goes with class Wrong"):

        class Wrong(Agent):  # pyright: ignore[reportUnusedClass]
            @every(1, durable=True)
            def tick(self) -> None:
                """Do nothing."""
