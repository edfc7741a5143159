"""Agents held from outside: nothing begins, everything else goes on, and the accounts add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    ExitReason,
    MailboxFull,
    MailboxOptions,
    NotAllowed,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    every,
    invoke_all,
    open_node,
    prop,
    simulate,
)
from lmos_actors.actors import hold, keep_state, release, slot_of, waiting_graph
from lmos_actors.errors import ActionCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node


class Clerk(Agent, behaviours=("day", "night")):
    served: Property[int] = prop(default=0)
    ticks: int = 0
    order: tuple[int, ...] = ()

    @action
    def serve(self, n: int) -> float:
        self.served += 1
        self.order += (n,)
        return trio.current_time()

    @action(concurrency=2)
    async def work(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return trio.current_time()

    @action(when="night", postpone=True)
    def dream(self) -> float:
        return trio.current_time()

    @action
    async def change(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.become("night")

    @action
    def hold_itself(self, *, and_release: bool) -> None:
        hold(self.ref)
        if and_release:
            release(self.ref)

    @action
    def pass_on(self, to: str, count: int) -> None:
        for n in range(count):
            self.send(self.find(Clerk, to), Clerk.serve, n)

    @action
    async def pass_on_slowly(self, to: str, seconds: float) -> None:
        await trio.sleep(seconds)
        self.send(self.find(Clerk, to), Clerk.serve, 0)
        self.send(self.find(Clerk, to), Clerk.serve, 1)

    @action
    def alarm(self, seconds: float) -> None:
        self.after(seconds, self.ring)

    def ring(self) -> None:
        self.ticks += 1


class Ticking(Clerk):
    @every(1.0)
    def tick(self) -> None:
        self.ticks += 1


class Serial(Clerk, serial=True):
    pass


Story = Any  # of a node and a clerk; the checkers of types know more than is told here


@pytest.fixture(params=["plain", "traced"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Play a story with one clerk, on either kind of slot; the accounts add up at its end."""

    def run(story: Story, cls: type[Clerk] = Clerk, **options: Any) -> None:
        async def main() -> None:
            async with open_node() as node:
                ref = await node.start_child(ChildSpec("clerk", cls, **options))
                await story(node, ref)
                add_up(ref)

        simulate(main, log=TraceLog() if request.param == "traced" else None)

    return run


def add_up(ref: Ref[Any]) -> None:
    n = ref.statistics()
    assert n.accepted == n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
    assert n.waiting == ref.mailbox_statistics().depth


async def outcome(doing: Awaitable[Any], into: list[Any]) -> None:
    try:
        into.append(await doing)
    except Exception as error:  # whatever came of it is looked at
        into.append(error)


async def in_parallel(*doings: Awaitable[Any], meanwhile: Callable[[], Awaitable[None]]) -> list[Any]:
    """Await all of them in tasks begun in order; give each one's outcome, in that order."""
    outcomes: list[list[Any]] = [[] for _ in doings]
    async with trio.open_nursery() as nursery:
        for doing, into in zip(doings, outcomes, strict=True):
            nursery.start_soon(outcome, doing, into)
            await trio.sleep(0.001)
        await meanwhile()
    return [into[0] for into in outcomes]


def test_nothing_begins_and_mail_waits_in_order(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)

        async def meanwhile() -> None:
            await trio.sleep(10)
            assert ref.mailbox_statistics().depth == 5
            assert ref.statistics().waiting == 5
            release(ref)

        doings: list[Awaitable[Any]] = [ref.invoke(Clerk.serve, n) for n in range(2)]
        doings.append(ref.tell(Clerk.serve, 2))
        doings.append(ref.read(Clerk.served))
        doings.append(ref.invoke(Clerk.work, 1.0))
        a, b, told, served, worked = await in_parallel(*doings, meanwhile=meanwhile)
        assert told is None
        assert served == 3
        assert a == b == pytest.approx(10.005)
        assert worked == pytest.approx(11.005)
        assert slot_of(ref).agent.order == (0, 1, 2)
        assert await ref.invoke(Clerk.serve, 3) == trio.current_time()

    play(story)


def test_asking_many_at_once_does_not_pass_by(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)
        with trio.move_on_after(5):
            await invoke_all([ref], Clerk.serve, 1)
        assert trio.current_time() == 5
        assert ref.statistics().cancelled == 1
        release(ref)

    play(story)


def test_what_is_queued_already_waits_too(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        for n in range(3):
            ref.tell_nowait(Clerk.serve, n)
        hold(ref)  # it stands in line for the dispatcher
        await trio.sleep(1)
        assert slot_of(ref).agent.order == ()
        release(ref)
        hold(ref)
        release(ref)
        await trio.sleep(0.01)
        assert slot_of(ref).agent.order == (0, 1, 2)
        assert slot_of(ref).rt.ready.count(slot_of(ref)) == 0

    play(story)


@pytest.mark.parametrize("policy", ["wait", "reject", "drop_oldest", "drop_newest"])
def test_a_full_mailbox_does_what_its_policy_says(policy: Any, play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)

        async def meanwhile() -> None:
            await trio.sleep(1)
            assert ref.mailbox_statistics().depth == 2
            assert ref.mailbox_statistics().parked == (1 if policy == "wait" else 0)
            add_up(ref)
            release(ref)

        came = await in_parallel(*(ref.invoke(Clerk.serve, n) for n in range(3)), meanwhile=meanwhile)
        full = [type(one) is MailboxFull for one in came]
        assert (
            full
            == {
                "wait": [False, False, False],
                "reject": [False, False, True],
                "drop_oldest": [True, False, False],
                "drop_newest": [False, False, True],
            }[policy]
        )

    play(story, mailbox=MailboxOptions(2, policy))


def test_runs_that_have_begun_go_on_and_those_in_line_wait(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:
            hold(ref)
            await trio.sleep(10)
            assert (ref.statistics().running, ref.statistics().waiting) == (0, 3)
            release(ref)

        ends = await in_parallel(*(ref.invoke(Clerk.work, 1.0) for _ in range(5)), meanwhile=meanwhile)
        assert ends[:2] == pytest.approx([1.0, 1.001])
        assert ends[2:] == pytest.approx([11.005, 11.005, 12.005])

    play(story)


def test_whoever_was_parked_keeps_its_place_when_the_agent_is_released(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:  # two run, one is in line and has the only seat, one is parked
            assert (ref.mailbox_statistics().depth, ref.mailbox_statistics().parked) == (1, 1)
            hold(ref)
            release(ref)
            with trio.move_on_after(0.5):
                await ref.invoke(Clerk.serve, 9)
            assert slot_of(ref).agent.order == ()

        doings: list[Awaitable[Any]] = [ref.invoke(Clerk.work, 5.0) for _ in range(3)]
        ends = await in_parallel(*doings, ref.tell(Clerk.serve, 1), meanwhile=meanwhile)
        assert ends[:3] == pytest.approx([5.0, 5.001, 10.0])
        assert slot_of(ref).agent.order == (1,)

    play(story, mailbox=MailboxOptions(1))


def test_a_seat_that_becomes_free_with_the_release_is_given_away(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:
            hold(ref)
            await trio.sleep(10)
            assert (ref.mailbox_statistics().depth, ref.mailbox_statistics().parked) == (1, 1)
            release(ref)

        doings: list[Awaitable[Any]] = [ref.invoke(Clerk.work, 1.0) for _ in range(4)]
        ends = await in_parallel(*doings, meanwhile=meanwhile)
        assert ends == pytest.approx([1.0, 1.001, 11.004, 11.004])

    play(story, mailbox=MailboxOptions(1))


def test_the_run_of_a_serial_agent_goes_on(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:
            hold(ref)
            await trio.sleep(10)
            release(ref)

        ends = await in_parallel(ref.invoke(Clerk.work, 1.0), ref.invoke(Clerk.serve, 1), meanwhile=meanwhile)
        assert ends == pytest.approx([1.0, 10.002])

    play(story, Serial)


def test_a_run_may_be_held_between_being_handed_over_and_its_first_step(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        ref.tell_nowait(Clerk.work, 1.0)  # handed over, and not begun
        hold(ref)

        async def meanwhile() -> None:
            await trio.sleep(5)
            assert (ref.statistics().running, ref.statistics().waiting) == (0, 1)
            release(ref)

        assert await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=meanwhile) == pytest.approx([5.001])

    play(story)


def test_timers_wait_and_periodic_ones_merge(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        await ref.invoke(Clerk.alarm, 0.5)
        await ref.invoke(Clerk.alarm, 0.6)
        hold(ref)
        await trio.sleep(5.5)
        assert slot_of(ref).agent.ticks == 0
        assert ref.mailbox_statistics().depth == 0  # they have seats of their own
        release(ref)
        await trio.sleep(0.25)
        assert slot_of(ref).agent.ticks == 3
        await trio.sleep(1)
        assert slot_of(ref).agent.ticks == 4

    play(story, Ticking)


def test_holds_count(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)
        hold(ref)

        async def meanwhile() -> None:
            release(ref)
            await trio.sleep(1)
            release(ref)

        assert await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=meanwhile) == pytest.approx([1.001])
        with pytest.raises(RuntimeError, match="clerk is not held"):
            release(ref)

    play(story)


def test_holds_count_for_runs_in_line_too(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:
            hold(ref)
            hold(ref)
            await trio.sleep(2)
            release(ref)
            assert ref.statistics().running == 0
            await trio.sleep(1)
            release(ref)
            assert ref.statistics().running == 1

        doings = [ref.invoke(Clerk.work, 1.0) for _ in range(3)]  # two at a time
        assert await in_parallel(*doings, meanwhile=meanwhile) == pytest.approx([1, 1, 4], abs=0.01)

    play(story)


def test_what_overtakes_a_held_mailbox(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)
        async with ref.begin(Clerk.work, 1.0) as call:
            assert (await call.query()).status == "pending"
            assert (await call.cancel("enough")).cancelled
            with pytest.raises(ActionCancelled):
                await call.result()
        with pytest.raises(DeadlineExceeded):
            await ref.within(2.0).invoke(Clerk.serve, 1)
        assert trio.current_time() == pytest.approx(2.0, abs=0.02)
        with trio.move_on_after(1):
            await ref.invoke(Clerk.serve, 1)
        assert ref.statistics().cancelled == 3
        assert ref.mailbox_statistics().depth == 0
        release(ref)

    play(story)


def test_a_stop_ends_a_held_agent_at_once_if_nothing_waits(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)
        await node.root.terminate_child("clerk")
        assert trio.current_time() == 0
        await node.root.restart_child("clerk")
        assert slot_of(ref).held
        release(ref)
        await ref.invoke(Clerk.serve, 1)

    play(story)


@pytest.mark.parametrize("released", [False, True])
def test_a_stop_gives_what_waits_its_time(released: bool, play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)

        async def meanwhile() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.root.terminate_child, "clerk")
                await trio.sleep(1)
                with pytest.raises(AgentUnavailable, match="stopping"):
                    await ref.invoke(Clerk.serve, 3)
                if released:
                    release(ref)

        (came,) = await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=meanwhile)
        if released:
            assert came == pytest.approx(1.001)
        else:
            assert isinstance(came, AgentUnavailable)
            assert trio.current_time() == pytest.approx(3.001)

    play(story, shutdown=3.0)


def test_an_agent_that_has_stopped_in_vain_is_not_in_the_way_of_its_node() -> None:
    async def main() -> None:
        async with open_node() as node:
            ref = await node.start_child(ChildSpec("clerk", Clerk, shutdown=2.0))
            hold(ref)
            await ref.tell(Clerk.serve, 1)
        assert trio.current_time() == 2.0
        assert ref.statistics().dead_lettered == 1

    simulate(main)


def test_a_crash_while_held_and_the_next_life_is_held_still(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)

        async def meanwhile() -> None:
            slot_of(ref).die(ExitReason("error", error=ValueError("broken")))

        (came,) = await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=meanwhile)
        assert isinstance(came, AgentDied)
        assert not came.started
        await ref.ready()

        async def later() -> None:
            await trio.sleep(1)
            assert ref.statistics().incarnation == 2
            release(ref)

        (came,) = await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=later)
        assert came == pytest.approx(1.002)

    play(story)


def test_a_slot_between_two_lives_can_be_held(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        await node.root.terminate_child("clerk")
        hold(ref)
        hold(ref)
        release(ref)
        await node.root.restart_child("clerk")
        with trio.move_on_after(1) as scope:
            await ref.invoke(Clerk.serve, 1)
        assert scope.cancelled_caught
        release(ref)
        await ref.invoke(Clerk.serve, 1)

    play(story, Ticking)


@pytest.mark.parametrize("and_release", [False, True])
def test_an_agent_may_hold_itself_in_a_turn(and_release: bool, play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        await ref.tell(Clerk.hold_itself, and_release=and_release)
        await ref.tell(Clerk.serve, 1)
        await trio.sleep(1)
        assert slot_of(ref).held is not and_release
        assert slot_of(ref).agent.order == ((1,) if and_release else ())
        if not and_release:
            release(ref)
        await ref.invoke(Clerk.hold_itself, and_release=and_release)
        assert slot_of(ref).held is not and_release
        if not and_release:
            release(ref)
        await ref.invoke(Clerk.serve, 2)
        assert slot_of(ref).agent.order == (1, 2)
        assert list(slot_of(ref).rt.ready) == []

    play(story)


def test_back_pressure_and_holds_do_not_undo_each_other(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        narrow = await node.start_child(ChildSpec("narrow", Clerk, mailbox=MailboxOptions(1)))
        hold(narrow)
        await ref.invoke(Clerk.pass_on, "narrow", 3)  # two find no seat: the clerk is held back
        hold(ref)
        asked = ref.tell(Clerk.serve, 7)
        await asked
        await trio.sleep(1)
        release(ref)
        await trio.sleep(1)
        assert slot_of(ref).agent.order == ()  # still held back
        hold(ref)
        release(narrow)
        await trio.sleep(1)
        assert slot_of(narrow).agent.order == (0, 1, 2)
        assert slot_of(ref).agent.order == ()  # now held
        release(ref)
        await trio.sleep(0.01)
        assert slot_of(ref).agent.order == (7,)

    play(story)


def test_a_run_of_a_held_agent_may_be_held_back(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        narrow = await node.start_child(ChildSpec("narrow", Clerk, mailbox=MailboxOptions(1)))
        hold(narrow)
        await ref.tell(Clerk.pass_on_slowly, "narrow", 1.0)
        await trio.sleep(0.5)
        hold(ref)
        await ref.tell(Clerk.serve, 7)
        await trio.sleep(1)
        release(ref)
        await trio.sleep(1)
        assert slot_of(ref).agent.order == ()  # a message of its run has no seat yet
        release(narrow)
        await trio.sleep(0.1)
        assert slot_of(ref).agent.order == (7,)

    play(story)


def test_a_run_may_change_the_behaviour_of_a_held_agent(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        async def meanwhile() -> None:
            await ref.tell(Clerk.change, 1.0)
            await trio.sleep(0.5)
            hold(ref)
            await trio.sleep(3.5)
            release(ref)

        (dreamt,) = await in_parallel(ref.invoke(Clerk.dream), meanwhile=meanwhile)
        assert dreamt == pytest.approx(4.001)

    play(story)


def test_whoever_waits_for_a_held_agent_is_in_no_deadlock(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        hold(ref)

        async def meanwhile() -> None:
            graph = waiting_graph([slot_of(ref)])
            assert len(graph.edges) == 1
            assert graph.cycles() == ()
            release(ref)

        await in_parallel(ref.invoke(Clerk.serve, 1), meanwhile=meanwhile)

    play(story)


def test_a_pool_is_not_held_but_its_members_are(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        pool = await node.start_pool(Pool(Clerk, 2, name="pool"))
        for verb in (hold, release, keep_state):
            with pytest.raises(NotAllowed, match="is a pool"):
                verb(pool)
        for member in pool.members:
            hold(member)
        with trio.move_on_after(1) as scope:
            await pool.invoke(Clerk.serve, 1)
        assert scope.cancelled_caught
        for member in pool.members:
            release(member)
        await pool.invoke(Clerk.serve, 1)

    play(story)


@given(st.permutations(range(12)), st.lists(st.sampled_from(["ask", "hold", "release"]), min_size=12))
def test_each_is_answered_when_nobody_holds_the_agent(times: list[int], deeds: list[str]) -> None:
    events = sorted(zip(times, deeds, strict=False))
    holds, free_at = 0, {}
    held_since: list[tuple[int, int]] = []
    for when, deed in events:
        holds = holds + 1 if deed == "hold" else max(0, holds - 1) if deed == "release" else holds
        held_since.append((when, holds))
    for when, deed in events:
        if deed == "ask":
            later = [at for at, count in held_since if at >= when and count == 0]
            free_at[when] = later[0] if later else 20

    async def main() -> dict[int, float]:
        answered: dict[int, float] = {}
        async with open_node() as node:
            ref = await node.start(Clerk)

            async def ask(when: int) -> None:
                answered[when] = await ref.invoke(Clerk.serve, when)

            async with trio.open_nursery() as nursery:
                for when, deed in events:
                    await trio.sleep_until(when)
                    if deed == "ask":
                        nursery.start_soon(ask, when)
                    elif deed == "hold":
                        hold(ref)
                    elif slot_of(ref).held:
                        release(ref)
                await trio.sleep_until(20)
                while slot_of(ref).held:
                    release(ref)
            assert slot_of(ref).agent.order == tuple(sorted(free_at))
            add_up(ref)
        return answered

    assert simulate(main) == free_at


def test_cancelling_at_every_moment_leaves_nothing(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        for moment in range(12):
            hold(ref)
            with trio.move_on_after(moment / 4) as scope:
                async with trio.open_nursery() as nursery:
                    for n in range(5):
                        nursery.start_soon(ref.invoke, Clerk.serve, n)
                    nursery.start_soon(ref.invoke, Clerk.work, 1.0)
                    await trio.sleep(1)
                    release(ref)
            if slot_of(ref).held:
                release(ref)
            assert scope.cancelled_caught is (moment / 4 <= 2)
            await trio.sleep(0.01)
            assert ref.mailbox_statistics().depth == 0
            add_up(ref)

    play(story, mailbox=MailboxOptions(2))


def test_state_is_kept_over_a_crash_if_asked_for(play: Callable[..., None]) -> None:
    async def story(node: Node, ref: Ref[Clerk]) -> None:
        await ref.invoke(Clerk.serve, 5)
        await ref.invoke(Clerk.change, 0.0)
        for times in range(2):
            if not times:
                keep_state(ref)
            slot_of(ref).die(ExitReason("error", error=ValueError("broken")))
            await node.root.settled()
            agent = slot_of(ref).agent
            kept = (5,) if not times else ()
            assert (agent.order, agent.served, agent.behaviour) == (
                kept,
                len(kept),
                "night" if kept else "day",
            )
            assert await ref.read(Clerk.served) == len(kept)

    play(story)


def test_a_supervisor_that_starts_anew_starts_held_agents_held() -> None:
    async def main() -> None:
        desk = SupervisorSpec("desk", [ChildSpec("clerk", Clerk)], max_restarts=0)
        async with open_node(SupervisorSpec("root", [desk])) as node:
            ref = node.find(Clerk, "clerk")
            hold(ref)
            slot_of(ref).die(ExitReason("error", error=ValueError("broken")))
            await trio.sleep(1)
            assert node.root.supervisor("desk").incarnation == 2
            assert slot_of(ref).held
            release(ref)
            await ref.invoke(Clerk.serve, 1)

    simulate(main)
