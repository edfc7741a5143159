"""Agents whose turns take time: one server and its queue, checked against a simulation of just that."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    DeadlineExceeded,
    Event,
    ExitReason,
    MailboxFull,
    MailboxOptions,
    Property,
    Ref,
    TraceLog,
    action,
    event,
    every,
    open_node,
    prop,
    simulate,
)
from lmos_actors.actors import hold, release, service_time, set_service_time, slot_of, waiting_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node


class Server(Agent):
    count: Property[int] = prop(default=0)
    done: Event[int] = event()
    order: tuple[int, ...] = ()
    ticks: tuple[float, ...] = ()

    @action
    def serve(self, n: int = 0) -> int:
        self.count += 1
        self.order += (n,)
        self.done.emit(n)
        return n

    @action(concurrency=2)
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    async def send_later(self, seconds: float, to: str) -> None:
        await trio.sleep(seconds)
        for n in range(2):
            self.send(self.find(Server, to), Server.serve, n)

    @action
    def set_own(self, seconds: float) -> None:
        set_service_time(self.ref, seconds)

    @action
    def fussy(self) -> int:
        if not self.count:
            self.stash()
        return self.count

    @action
    def content(self) -> None:
        self.count = 7
        self.unstash_all()

    @action
    def crash(self) -> None:
        raise ValueError("broken")

    @action
    def remind(self, n: int) -> None:
        self.send(self.ref, Server.serve, n)


class Serial(Server, serial=True):
    pass


class Ticking(Server):
    @every(1.0)
    def tick(self) -> None:
        self.ticks += (trio.current_time(),)


@pytest.fixture(params=["plain", "traced"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Play a story with one server, on either kind of slot; the accounts add up at its end."""

    def run(story: Any, cls: type[Server] = Server, **options: Any) -> None:
        async def main() -> None:
            async with open_node() as node:
                ref = await node.start_child(ChildSpec("server", cls, **options))
                await story(node, ref)
                add_up(ref)

        simulate(main, log=TraceLog() if request.param == "traced" else None)

    return run


def add_up(ref: Ref[Any]) -> None:
    n = ref.statistics()
    assert n.accepted == n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
    assert n.waiting == ref.mailbox_statistics().depth


class Came:
    """Who came when, and how it ended: the value or the error, at which instant."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.ends: dict[int, tuple[Any, float]] = {}

    def at(self, when: float, n: int, ask: Any) -> None:
        """Have somebody ask at that instant; what was asked is told by `n`."""

        async def come() -> None:
            await trio.sleep_until(when)
            try:
                value: Any = await ask()
            except Exception as error:  # it is looked at
                value = type(error)
            self.ends[n] = value, trio.current_time()

        self._nursery.start_soon(come)


# --- against the reference: one server, a fixed time for each, a line of limited length

MILLI = 1_000
SERVICE = st.integers(1, 60).map(lambda n: n * MILLI + 1)  # microseconds; never done when somebody comes
ARRIVALS = st.lists(st.integers(0, 300), min_size=1, max_size=25, unique=True).map(
    lambda times: [time * MILLI for time in sorted(times)]
)


def reference(arrivals: list[int], service: int, size: int, policy: str) -> dict[int, tuple[str, int]]:
    """Simulate the queue by hand; times are whole microseconds. Give how each ended, and when."""
    ends: dict[int, tuple[str, int]] = {}
    line: deque[int] = deque()
    parked: deque[int] = deque()
    free_at: int | None = None  # when what is worked on is done
    served: int | None = None

    def advance(to: float) -> None:
        nonlocal free_at, served
        while free_at is not None and free_at <= to:
            assert served is not None
            ends[served] = "served", free_at
            begin, served, free_at = free_at, None, None
            start(begin)

    def start(now: int) -> None:
        nonlocal free_at, served
        if served is None and line:
            served, free_at = line.popleft(), now + service
            if parked:
                line.append(parked.popleft())

    for n, when in enumerate(arrivals):
        advance(when)
        if len(line) < size:
            line.append(n)
        elif policy == "wait":
            parked.append(n)
        elif policy == "drop_oldest":
            ends[line.popleft()] = "full", when
            line.append(n)
        else:
            ends[n] = "full", when
        start(when)
    advance(float("inf"))
    return ends


@given(
    ARRIVALS,
    SERVICE,
    st.sampled_from([1, 2, 3, 100]),
    st.sampled_from(["wait", "reject", "drop_oldest", "drop_newest"]),
    st.booleans(),
)
def test_it_is_the_queue_of_the_books(
    arrivals: list[int], service: int, size: int, policy: Any, traced: bool
) -> None:
    async def main() -> dict[int, tuple[str, int]]:
        async with open_node() as node:
            spec = ChildSpec("server", Server, mailbox=MailboxOptions(size, policy))
            ref = await node.start_child(spec)
            set_service_time(ref, service / 1e6)
            async with trio.open_nursery() as nursery:
                came = Came(nursery)
                for n, when in enumerate(arrivals):
                    came.at(when / 1e6, n, lambda n=n: ref.invoke(Server.serve, n))
            add_up(ref)
            words = {n: "full" if value is MailboxFull else "served" for n, (value, _) in came.ends.items()}
            return {n: (words[n], round(at * 1e6)) for n, (_, at) in came.ends.items()}

    log = TraceLog() if traced else None
    assert simulate(main, log=log) == reference(arrivals, service, size, policy)


@given(ARRIVALS, SERVICE, st.integers(1, 25))
def test_one_way_messages_are_served_as_requests_are(arrivals: list[int], service: int, size: int) -> None:
    async def main() -> dict[int, tuple[str, int]]:
        served: dict[int, tuple[str, int]] = {}
        async with open_node() as node:
            spec = ChildSpec("server", Server, mailbox=MailboxOptions(size, "drop_oldest"))
            ref = await node.start_child(spec)
            async with trio.open_nursery() as nursery, ref.subscribe(Server.done) as done:
                set_service_time(ref, service / 1e6)

                async def listen() -> None:
                    async for n in done:
                        served[n] = "served", round(trio.current_time() * 1e6)

                nursery.start_soon(listen)
                for n, when in enumerate(arrivals):
                    await trio.sleep_until(when / 1e6)
                    await ref.tell(Server.serve, n)
                await trio.sleep(100)
                add_up(ref)
                nursery.cancel_scope.cancel("enough")
        return served

    ends = reference(arrivals, service, size, "drop_oldest")
    assert simulate(main) == {n: end for n, end in ends.items() if end[0] == "served"}


@given(st.lists(st.tuples(st.sampled_from(["turn", "run", "timer"]), st.integers(1, 9)), max_size=12))
def test_whatever_it_is_each_takes_its_time(deeds: list[tuple[str, int]]) -> None:
    """All come at once; runs go on beside what is worked on next, two of them at a time."""

    async def main() -> tuple[list[float], list[float]]:
        begun: list[float] = []
        ended: list[float] = []

        class Mixed(Agent):
            @action
            def turn(self) -> None:
                begun.append(trio.current_time())

            @action(concurrency=100)
            async def run(self, seconds: float) -> None:
                begun.append(trio.current_time())
                await trio.sleep(seconds)
                ended.append(trio.current_time())

            def timer(self) -> None:
                begun.append(trio.current_time())

        async with open_node() as node:
            ref = await node.start(Mixed)
            set_service_time(ref, 1.0)
            for kind, seconds in deeds:
                if kind == "turn":
                    await ref.tell(Mixed.turn)
                elif kind == "run":
                    await ref.tell(Mixed.run, float(seconds))
                else:
                    slot_of(ref).agent.after(0, slot_of(ref).agent.timer)
            await trio.sleep(100)
        return begun, ended

    begun, ended = simulate(main)
    assert begun == [float(n + 1) for n in range(len(deeds))]
    timers = sum(kind == "timer" for kind, _ in deeds)
    if not timers:  # else these come last, as they come by the clock
        runs = [n + 1.0 + seconds for n, (kind, seconds) in enumerate(deeds) if kind == "run"]
        assert sorted(ended) == sorted(runs)


# --- one by one


def test_an_answer_comes_at_the_end_and_with_it_all_that_comes_of_the_turn(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        assert service_time(ref) == 2.0
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            came.at(0, 0, lambda: ref.invoke(Server.serve, 0))
            await trio.sleep(1.5)
            assert slot_of(ref).agent.order == ()
            assert (ref.statistics().running, ref.statistics().waiting) == (1, 0)
            assert ref.mailbox_statistics().depth == 0  # its seat is free
        assert came.ends == {0: (0, 2.0)}
        assert await ref.read(Server.count) == 1
        assert trio.current_time() == 4.0

    play(story)


def test_a_run_begins_after_its_time_and_goes_on_beside_the_next(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(3):
                came.at(0.1 * n, n, lambda: ref.invoke(Server.work, 5.0))
            came.at(0.3, 3, lambda: ref.invoke(Server.serve))
        assert {n: round(at, 6) for n, (_, at) in came.ends.items()} == {0: 6.0, 1: 7.0, 2: 11.0, 3: 4.0}

    play(story)


def test_a_serial_agent_works_on_nothing_beside_its_run(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            came.at(0, 0, lambda: ref.invoke(Server.work, 5.0))
            came.at(0.5, 1, lambda: ref.invoke(Server.serve))
        assert came.ends == {0: (None, 6.0), 1: (0, 7.0)}

    play(story, Serial)


def test_the_time_in_work_keeps_what_it_began_with(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(4):
                came.at(0.01 * n, n, lambda: ref.invoke(Server.serve))
            await trio.sleep(0.5)
            set_service_time(ref, 3.0)
            await trio.sleep(1.0)
            set_service_time(ref, 0.0)
        assert [came.ends[n][1] for n in range(4)] == [1.0, 4.0, 4.0, 4.0]
        assert slot_of(ref).extra.pace is None
        await ref.invoke(Server.serve)
        assert trio.current_time() == 4.0

    play(story)


def test_what_waits_already_takes_its_time_too(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        for n in range(3):
            ref.tell_nowait(Server.serve, n)
        set_service_time(ref, 1.0)
        await trio.sleep(2.5)
        assert slot_of(ref).agent.order == (0, 1)

    play(story)


@pytest.mark.parametrize("verb", ["invoke", "tell"])
def test_an_agent_may_set_its_own_in_a_turn(verb: str, play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        await getattr(ref, verb)(Server.set_own, 1.0)
        await ref.invoke(Server.serve)
        assert trio.current_time() == 1.0
        await getattr(ref, verb)(Server.set_own, 0.0)
        await ref.invoke(Server.serve)
        assert trio.current_time() == 2.0

    play(story)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_only_times_are_taken(seconds: float, play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        with pytest.raises(ConfigError, match="seconds"):
            set_service_time(ref, seconds)
        assert service_time(ref) == 0

    play(story)


def test_timers_take_time_and_periodic_ones_merge(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.5)
        await trio.sleep(7.6)
        # due at 1, 2, 3, ...: one is worked on while another waits, and the next is merged into that
        assert slot_of(ref).agent.ticks == (2.5, 4.0, 5.5, 7.0)
        assert ref.statistics().accepted == 0

    play(story, Ticking)


def test_who_leaves_while_it_is_worked_on_frees_nothing_and_changes_nothing(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            came.at(0.5, 1, lambda: ref.invoke(Server.serve, 1))
            with trio.move_on_after(1.0):
                await ref.invoke(Server.serve, 0)
            add_up(ref)
            assert ref.statistics().cancelled == 1
        assert came.ends == {1: (1, 4.0)}  # that nobody waits is noticed at the end of the work
        assert slot_of(ref).agent.order == (1,)

    play(story)


def test_a_deadline_ends_in_the_middle_of_the_work(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        with pytest.raises(DeadlineExceeded):
            await ref.within(1.0).invoke(Server.serve)
        assert trio.current_time() == pytest.approx(1.0, abs=0.02)
        async with ref.begin(Server.serve) as call:
            await trio.sleep(1.5)
            assert (await call.query()).status == "in progress"
            assert (await call.cancel("enough")).cancelled
        await trio.sleep(5)
        assert slot_of(ref).agent.order == ()
        assert ref.statistics().cancelled == 2

    play(story)


def test_the_one_in_work_is_not_the_oldest_to_drop(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(10):
                came.at(n * 0.3, n, lambda n=n: ref.invoke(Server.serve, n))
        assert [n for n, (value, _) in came.ends.items() if value is not MailboxFull] == [0, 3, 6, 9]

    play(story, mailbox=MailboxOptions(1, "drop_oldest"))


@pytest.mark.parametrize("verb", ["invoke", "tell"])
def test_a_crash_in_the_middle_of_the_work_has_done_nothing(verb: str, play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            came.at(0, 0, lambda: getattr(ref, verb)(Server.serve))
            await trio.sleep(1.0)
            slot_of(ref).die(ExitReason("error", error=ValueError("broken")))
            add_up(ref)
            assert ref.statistics().dead_lettered == 1
        assert came.ends[0][0] is (AgentDied if verb == "invoke" else None)
        await ref.ready()
        assert service_time(ref) == 2.0
        await ref.invoke(Server.serve)
        assert trio.current_time() == 3.0

    play(story)


def test_a_turn_that_crashes_has_taken_its_time(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        with pytest.raises(AgentDied) as died:
            await ref.invoke(Server.crash)
        assert died.value.started
        assert trio.current_time() == 2.0

    play(story)


def test_a_stop_lets_it_finish_what_it_has_time_for(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(3):
                came.at(0, n, lambda: ref.invoke(Server.serve))
            await trio.sleep(1.0)
            await node.root.terminate_child("server")
            assert trio.current_time() == 6.0
        assert sorted(at for value, at in came.ends.values() if value == 0) == [2.0, 4.0]
        assert ref.statistics().dead_lettered == 1

    play(story, shutdown=5.0)


def test_an_idle_one_stops_at_once_and_a_busy_one_after_its_work(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        await node.root.terminate_child("server")
        assert trio.current_time() == 0
        await node.root.restart_child("server")
        with trio.move_on_after(1.0):
            await ref.invoke(Server.serve)
        await node.root.terminate_child("server")
        assert trio.current_time() == 2.0

    play(story)


def test_held_in_the_middle_of_the_work(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(3):
                came.at(0.1 * n, n, lambda n=n: ref.invoke(Server.serve, n))
            await trio.sleep(1.0)
            hold(ref)
            await trio.sleep(9.0)
            assert came.ends == {0: (0, 2.0)}  # what has begun goes on
            release(ref)
        assert [came.ends[n][1] for n in range(3)] == [2.0, 12.0, 14.0]

    play(story)


def test_held_and_stopped_in_the_middle_of_the_last_work(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 2.0)
        await ref.tell(Server.serve)
        await trio.sleep(0.5)
        hold(ref)
        await node.root.terminate_child("server")
        assert trio.current_time() == 2.0

    play(story, shutdown=5.0)


def test_those_who_leave_the_line_take_no_time(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in (0, 3, 4, 5, 6):
                came.at(0.01 * n, n, lambda n=n: ref.invoke(Server.serve, n))
            for n in (1, 2):
                came.at(0.01 * n, n, lambda: ref.within(0.5).invoke(Server.serve))
        served = [n for n in range(7) if came.ends[n][0] == n]
        assert served == [0, 3, 4, 5, 6]
        assert [round(came.ends[n][1], 6) for n in served] == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert slot_of(ref).extra.withdrawn == 0

    play(story)


def test_when_a_parked_one_leaves_nobody_overtakes_the_work(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            for n in range(3):  # two run from 1 and 2 on, the third is in line and has the only seat
                came.at(1.1 * n, n, lambda: ref.invoke(Server.work, 9.0))
            await trio.sleep(4.0)
            with trio.move_on_after(1.0) as scope:
                await ref.invoke(Server.serve)
            assert scope.cancelled_caught
            came.at(5.5, 3, lambda: ref.invoke(Server.serve))
        assert came.ends[3] == (0, 11.0)

    play(story, mailbox=MailboxOptions(1))


def test_a_message_that_is_put_aside_takes_its_time_again(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            came = Came(nursery)
            came.at(0, 0, lambda: ref.invoke(Server.fussy))
            came.at(2, 1, lambda: ref.invoke(Server.content))
        assert came.ends == {0: (7, 4.0), 1: (None, 3.0)}

    play(story)


def test_messages_to_itself_take_time(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        await ref.invoke(Server.remind, 5)
        await trio.sleep(0.5)
        assert (ref.statistics().running, slot_of(ref).extra.own) == (1, 1)
        await trio.sleep(1.0)
        assert slot_of(ref).agent.order == (5,)
        assert slot_of(ref).extra.own == 0

    play(story)


def test_an_agent_held_back_in_the_middle_of_the_work_takes_no_turn(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        narrow = await node.start_child(ChildSpec("narrow", Server, mailbox=MailboxOptions(1)))
        hold(narrow)
        set_service_time(ref, 1.0)
        await ref.tell(Server.send_later, 0.5, "narrow")
        await trio.sleep(1.2)
        await ref.tell(Server.serve, 1)
        await trio.sleep(3.0)
        assert slot_of(ref).agent.order == ()  # done with, but a message of its run has no seat yet
        add_up(ref)
        release(narrow)
        await trio.sleep(0.5)
        assert slot_of(ref).agent.order == (1,)

    play(story)


def test_held_back_at_the_end_of_the_work() -> None:
    """A run's message finds no seat at the very instant at which the work is done: now one, now the other."""

    async def main() -> tuple[str, ...]:
        told: list[str] = []

        class Both(Agent):
            @action
            async def send_late(self, to: str) -> None:
                await trio.sleep(1.0)
                told.append("sent")
                for n in range(2):
                    self.send(self.find(Server, to), Server.serve, n)

            @action
            def turn(self) -> None:
                told.append("turn")

        async with open_node() as node:
            ref = await node.start(Both)
            narrow = await node.start_child(ChildSpec("narrow", Server, mailbox=MailboxOptions(1)))
            hold(narrow)
            await ref.tell(Both.send_late, "narrow")
            set_service_time(ref, 1.0)
            await ref.tell(Both.turn)
            await trio.sleep(5.0)
            told.append("released")
            release(narrow)
            await trio.sleep(1.0)
        return tuple(told)

    ways = {simulate(main, seed=seed) for seed in range(12)}
    assert ways == {("turn", "sent", "released"), ("sent", "released", "turn")}


def test_who_waits_for_the_work_is_in_the_waiting_graph(play: Any) -> None:
    async def story(node: Node, ref: Ref[Server]) -> None:
        set_service_time(ref, 1.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.invoke, Server.serve, 1)
            await trio.sleep(0.5)
            graph = waiting_graph([slot_of(ref)])
            assert [(edge.target, edge.kind) for edge in graph.edges] == [("server", "answer")]
            assert graph.cycles() == ()

    play(story)


def test_thousands_need_no_task_each() -> None:
    async def main() -> float:
        async with open_node() as node:
            refs = await node.root.start_many(ChildSpec("server", Server), 2_000)
            for ref in refs:
                set_service_time(ref, 0.002)
            before = trio.lowlevel.current_statistics().tasks_living
            for ref in refs:
                for n in range(3):
                    ref.tell_nowait(Server.serve, n)
            await trio.sleep(0.003)
            assert trio.lowlevel.current_statistics().tasks_living == before
            await trio.sleep_until(0.0065)
            assert {slot_of(ref).agent.order for ref in refs} == {(0, 1, 2)}
            return trio.current_time()

    assert simulate(main) == 0.0065
