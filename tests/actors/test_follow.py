"""Following: events and values as turns, without a task; what restarts of either side do to it (W2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    Following,
    Gap,
    Node,
    NotFound,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    current_request,
    event,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle

if TYPE_CHECKING:
    from collections.abc import Callable


class Bell(Agent):
    rang: Event[int] = event()
    listed: Event[list[int]] = event()

    @action
    def ring(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rang.emit(number)

    @action
    def show(self, numbers: list[int]) -> None:
        self.listed.emit(numbers)

    @action
    def crash(self) -> None:
        raise KeyError("crash")


class Other(Agent):
    @action
    def idle(self) -> None:
        pass


class Ear(Agent, serial=True):
    """Follows what it is told to, and keeps what it hears."""

    begin: Any = None
    heard: list[Any] = attrs.field(factory=list)
    following: Any = None

    def started(self) -> None:
        if self.begin is not None:
            self.following = self.begin(self)

    def hear(self, number: int) -> None:
        self.heard.append(number)
        if number == 666:
            raise KeyError(number)

    def hear_list(self, numbers: list[int]) -> None:
        self.heard.append(numbers)
        numbers.append(0)

    def name_it(self, _: Any) -> None:
        self.heard.append(current_request().affordance)

    def miss(self, gap: Gap) -> None:
        self.heard.append(gap)

    @action
    def all_heard(self) -> Any:
        return [str(what) if isinstance(what, Gap) else what for what in self.heard]

    @action
    async def busy(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    def leave(self) -> None:
        self.following.cancel()


class Narcissus(Agent):
    said: Event[int] = event()
    heard: tuple[int, ...] = ()

    def started(self) -> None:
        self.follow(self.ref, Narcissus.said, self.hear)

    def hear(self, number: int) -> None:
        self.heard += (number,)
        if number < 3:
            self.said.emit(number + 1)

    @action
    def begin(self) -> None:
        self.said.emit(1)
        self.heard += (0,)

    @action
    def all_heard(self) -> tuple[int, ...]:
        return self.heard


def ear_of(begin: Callable[[Ear], Following | None]) -> ChildSpec[Ear]:
    def made() -> Ear:
        return Ear(begin=begin)

    return ChildSpec("ear", made)


def agent_of(ref: Ref[Any]) -> Any:
    return ref._link.agent  # type: ignore[attr-defined]


def slot_of(ref: Ref[Any]) -> Any:
    return ref._link


def accounts_add_up(node: Node) -> None:
    s = node.statistics()
    parts = s.handled + s.cancelled + s.dropped + s.dead_lettered + s.waiting + s.running
    assert s.accepted == parts


async def test_w2_a_gap_is_told_in_its_place(virtual_clock) -> None:
    """A restart of the followed does not end it; `on_gap` hears why something may be missing, in order."""
    async with open_test_node() as node:
        bell = await node.start(Bell)
        ear = await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear, on_gap=e.miss)))
        await bell.invoke(Bell.ring, [1])
        with pytest.raises(AgentDied):
            await bell.invoke(Bell.crash)
        await bell.ready()
        await bell.invoke(Bell.ring, [2])
        await settle()
        assert agent_of(ear).heard == [1, Gap("KeyError: 'crash'"), 2]
        assert agent_of(ear).following.active
        accounts_add_up(node)


async def test_a_busy_follower_misses_the_oldest_and_is_told(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        bell = await node.start(Bell)
        ear = await node.start_child(
            ear_of(lambda e: e.follow(bell, Bell.rang, e.hear, size=2, on_gap=e.miss))
        )
        nursery.start_soon(ear.invoke, Ear.busy, 1)
        await settle()
        await bell.invoke(Bell.ring, [1, 2, 3, 4, 5])
        await trio.sleep(2)
        assert agent_of(ear).heard == [Gap("slow consumer", 3), 4, 5]
        assert agent_of(ear).following.missed == 3
        await bell.invoke(Bell.ring, [6])
        await settle()
        assert agent_of(ear).heard[3:] == [6], "what was told is not told again"
        await bell.invoke(Bell.ring, [7, 8, 9])
        await settle()
        assert agent_of(ear).heard[4:] == [Gap("slow consumer", 1), 8, 9]
        accounts_add_up(node)


async def test_restarts_while_a_follower_is_busy_cost_no_value_but_the_oldest(virtual_clock) -> None:
    """Gaps take room as values do: of a full buffer the oldest goes, and one gap tells of all that went."""
    tree = SupervisorSpec("root", max_restarts=100)
    async with open_test_node(tree) as node, trio.open_nursery() as nursery:
        bell = await node.start(Bell)
        ear = await node.start_child(
            ear_of(lambda e: e.follow(bell, Bell.rang, e.hear, size=2, on_gap=e.miss))
        )
        nursery.start_soon(ear.invoke, Ear.busy, 1)
        await settle()
        for number in range(3):
            await bell.invoke(Bell.ring, [number])
            with pytest.raises(AgentDied):
                await bell.invoke(Bell.crash)
            await bell.ready()
        await trio.sleep(2)
        assert agent_of(ear).heard == [Gap("slow consumer", 2), 2, Gap("KeyError: 'crash'")]


@pytest.mark.parametrize("size", [1, 2, 64, 65, 250])
async def test_the_bound_is_the_followers_choice(virtual_clock, size) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        bell = await node.start(Bell)
        ear = await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear, size=size)))
        nursery.start_soon(ear.invoke, Ear.busy, 1)
        await settle()
        await bell.invoke(Bell.ring, list(range(300)))
        await trio.sleep(2)
        assert agent_of(ear).heard == list(range(300 - size, 300))
        assert agent_of(ear).following.missed == 300 - size


async def test_each_follower_gets_its_own_copy(virtual_clock) -> None:
    async with open_test_node() as node:
        bell = await node.start(Bell)
        ears = [
            await node.start_child(
                attrs.evolve(ear_of(lambda e: e.follow(bell, Bell.listed, e.hear_list)), name=f"ear{n}")
            )
            for n in range(2)
        ]
        await bell.invoke(Bell.show, [1])
        await settle()
        assert [agent_of(ear).heard for ear in ears] == [[[1, 0]], [[1, 0]]]


async def test_cancel_ends_it_with_what_has_come(virtual_clock) -> None:
    async with open_test_node() as node:
        bell = await node.start(Bell)
        ear = await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear)))
        following = agent_of(ear).following
        bell.tell_nowait(Bell.ring, [1, 2])
        ear.tell_nowait(Ear.leave)
        await settle()
        await bell.invoke(Bell.ring, [3])
        await settle()
        assert agent_of(ear).heard == []
        assert not following.active
        following.cancel()
        assert slot_of(bell).extra.sinks.by_key == {}
        assert slot_of(ear).extra.follows is None
        assert await ear.invoke(Ear.all_heard) == []


async def test_one_of_several_is_cancelled(virtual_clock) -> None:
    """Following twice gives two turns each; any of them may end without the others."""
    for gone in range(3):
        async with open_test_node() as node:
            bell = await node.start(Bell)
            made: list[Following] = []

            def begin(e: Ear, made: list[Following] = made, bell: Ref[Bell] = bell) -> None:
                made.extend(e.follow(bell, Bell.rang, e.hear) for _ in range(3))

            ear = await node.start_child(ear_of(begin))
            made[gone].cancel()
            await bell.invoke(Bell.ring, [7])
            await settle()
            assert agent_of(ear).heard == [7, 7]
            await node.root.terminate_child("ear")
            assert [following.active for following in made] == [False] * 3
            assert slot_of(bell).extra.sinks.by_key == {}


async def test_follow_oneself(virtual_clock) -> None:
    async with open_test_node() as node:
        narcissus = await node.start(Narcissus)
        await narcissus.invoke(Narcissus.begin)
        await settle()
        assert await narcissus.invoke(Narcissus.all_heard) == (0, 1, 2, 3)
        await node.root.terminate_child("narcissus")
        assert slot_of(narcissus).extra.sinks.by_key == {}


async def test_who_is_gone_for_good_is_heard_to_the_end(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        bell = await node.start_child(ChildSpec("bell", Bell, restart="temporary"))
        ear = await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear)))
        nursery.start_soon(ear.invoke, Ear.busy, 1)
        await settle()
        await bell.invoke(Bell.ring, [1, 2])
        await node.root.terminate_child("bell")
        assert not agent_of(ear).following.active
        await trio.sleep(2)
        assert agent_of(ear).heard == [1, 2]


async def test_who_is_gone_already_is_not_followed(virtual_clock) -> None:
    async with open_test_node() as node:
        bell = await node.start_child(ChildSpec("bell", Bell, restart="temporary"))
        await node.root.terminate_child("bell")
        with pytest.raises(Exception, match="no agent 'bell'") as caught:
            await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear)))
        assert isinstance(caught.value.__cause__, NotFound)


async def test_a_follower_that_crashes_loses_what_waits_and_follows_again(virtual_clock) -> None:
    async with open_test_node() as node:
        bell = await node.start(Bell)
        ear = await node.start_child(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear)))
        first = agent_of(ear)
        await bell.invoke(Bell.ring, [1, 666, 2, 3])
        await settle()
        await ear.ready()
        assert first.heard == [1, 666]
        assert not first.following.active
        assert agent_of(ear).heard == []
        await bell.invoke(Bell.ring, [4])
        await settle()
        assert agent_of(ear).heard == [4]
        assert len(slot_of(bell).extra.sinks.by_key["!rang"]) == 1


async def test_a_stopping_follower_handles_what_has_come_and_hears_no_more(virtual_clock) -> None:
    """R4: what waits is handled; a stream of events cannot hold up its end."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        bell = await node.start(Bell)
        spec = attrs.evolve(ear_of(lambda e: e.follow(bell, Bell.rang, e.hear)), shutdown=10.0)
        ear = await node.start_child(spec)
        agent = agent_of(ear)
        nursery.start_soon(ear.invoke, Ear.busy, 1)
        await settle()
        await bell.invoke(Bell.ring, [1, 2])
        nursery.start_soon(node.root.terminate_child, "ear")
        await settle()
        await bell.invoke(Bell.ring, [3])
        assert not agent.following.active
        await trio.sleep(2)
        assert agent.heard == [1, 2]
        accounts_add_up(node)


async def test_late_binding_an_agent_that_is_not_there_yet(virtual_clock) -> None:
    """What `find` does not know yet is followed from its start on."""
    async with open_test_node() as node:
        by_class = await node.start_child(
            attrs.evolve(ear_of(lambda e: e.follow(e.find(Bell), Bell.rang, e.hear)), name="by-class")
        )
        by_name = await node.start_child(
            attrs.evolve(ear_of(lambda e: e.follow(e.find(Bell, "big"), Bell.rang, e.hear)), name="by-name")
        )
        by_path = await node.start_child(
            attrs.evolve(ear_of(lambda e: e.follow(e.find(Bell, "b/big"), Bell.rang, e.hear)), name="by-path")
        )
        await node.start(Other)
        assert agent_of(by_class).following.active
        small = await node.start_child(ChildSpec("small", Bell))
        branch = await node.start_supervisor(SupervisorSpec("b"))
        big = await branch.start_child(ChildSpec("big", Bell))
        await small.invoke(Bell.ring, [1])
        await big.invoke(Bell.ring, [2])
        await settle()
        assert [agent_of(ear).heard for ear in (by_class, by_name, by_path)] == [[1], [2], [2]]
        for name in ("by-class", "by-name", "by-path"):
            await node.root.terminate_child(name)
        assert slot_of(small).extra.sinks.by_key == slot_of(big).extra.sinks.by_key == {}


async def test_late_binding_to_one_of_many_started_at_once(virtual_clock) -> None:
    async with open_test_node() as node:
        ear = await node.start_child(ear_of(lambda e: e.follow(e.find(Bell, "bell-2"), Bell.rang, e.hear)))
        bells = await node.root.start_many(ChildSpec("bell", Bell), 3)
        for number, bell in enumerate(bells):
            await bell.invoke(Bell.ring, [number])
        await settle()
        assert agent_of(ear).heard == [1]


async def test_late_binding_to_a_pool(virtual_clock) -> None:
    """By its name it is the pool that is followed, all members of it; by class, what `find` finds."""
    async with open_test_node() as node:
        by_name = await node.start_child(
            attrs.evolve(ear_of(lambda e: e.follow(e.find(Bell, "bells"), Bell.rang, e.hear)), name="by-name")
        )
        pool = await node.start_pool(Pool(Bell, 2, name="bells"))
        for number, bell in enumerate(pool.members):
            await bell.invoke(Bell.ring, [number])
        await settle()
        assert agent_of(by_name).heard == [0, 1]


async def test_siblings_of_one_tree_may_follow_each_other(virtual_clock) -> None:
    """Whoever starts first follows one that is in the tree and has not been made yet."""
    spec = ear_of(lambda e: e.follow(e.find(Bell, "bell"), Bell.rang, e.hear))
    async with open_test_node(SupervisorSpec("root", [spec, ChildSpec("bell", Bell)])) as node:
        await node.find(Bell).invoke(Bell.ring, [1])
        await settle()
        assert await node.find(Ear).invoke(Ear.all_heard) == [1]


async def test_what_is_awaited_can_be_given_up(virtual_clock) -> None:
    async with open_test_node() as node:
        made: list[Following] = []

        def begin(e: Ear) -> None:
            made.extend(e.follow(e.find(Bell), Bell.rang, e.hear) for _ in range(2))

        ear = await node.start_child(ear_of(begin))
        made[0].cancel()
        assert [following.active for following in made] == [False, True]
        await node.root.terminate_child("ear")
        assert not made[1].active
        assert slot_of(ear).rt.absent._by_finder == {}
        await node.start(Bell)


async def test_an_event_that_will_never_be_there_is_refused(virtual_clock) -> None:
    async with open_test_node() as node:
        for begin in (
            lambda e: e.follow(e.find(Other), Bell.rang, e.hear),
            lambda e: e.follow(node.find(Other), Bell.rang, e.hear),
        ):
            with pytest.raises(Exception, match="no event 'rang'"):
                await node.start_child(ear_of(begin))
            if not [ref for ref in node.agents() if ref.path == "other"]:
                await node.start(Other)


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (lambda e: e.follow(e.ref, Bell.crash, e.hear), "takes a ref, the handle of an event"),
        (lambda e: e.follow(Bell.rang, e.hear), "takes a ref, the handle of an event"),
        (lambda e: e.follow(e.ref, Narcissus.said), "takes a ref, the handle of an event"),
        (lambda e: e.follow(e.find(Bell), Bell.rang, trio.sleep), "takes a def"),
        (lambda e: e.follow(e.find(Bell), Bell.rang, e.hear, size=0), "size of at least 1"),
    ],
)
async def test_what_cannot_be_followed(virtual_clock, begin, message) -> None:
    async with open_test_node() as node:
        with pytest.raises(Exception, match=message):
            await node.start_child(ear_of(begin))


async def test_a_turn_knows_what_it_follows(virtual_clock) -> None:
    async with open_test_node() as node:
        bell = await node.start(Bell)
        topic = node.topic("numbers", int)

        def begin(e: Ear) -> None:
            e.follow(bell, Bell.rang, e.name_it)
            e.follow(topic, e.name_it)

        ear = await node.start_child(ear_of(begin))
        await bell.invoke(Bell.ring, [1])
        topic.publish(1)
        await settle()
        assert agent_of(ear).heard == ["rang", "numbers"]


STEPS = st.lists(
    st.sampled_from(["ring", "ring", "publish", "settle", "bell dies", "ear dies", "ear stops", "cancel"]),
    max_size=40,
)


@given(steps=STEPS, size=st.integers(1, 3), with_gaps=st.booleans())
def test_whatever_happens_following_keeps_order_and_leaves_nothing(
    steps: list[str], size: int, with_gaps: bool
) -> None:
    """Each incarnation hears a part of what was said, in order; who hears no more listens nowhere."""

    async def main() -> None:
        tree = SupervisorSpec("root", max_restarts=1000)
        async with open_test_node(tree) as node:
            bell = await node.start(Bell)
            topic = node.topic("numbers", int)
            agents: list[Any] = []
            made: list[Following] = []

            def begin(e: Ear) -> None:
                agents.append(e)
                on_gap = e.miss if with_gaps else None
                made.append(e.follow(e.find(Bell), Bell.rang, e.hear, size=size, on_gap=on_gap))
                made.append(e.follow(topic, e.hear, size=size, on_gap=on_gap))

            ear = await node.start_child(ear_of(begin))
            for number, step in enumerate(steps):
                if step == "ring":
                    bell.tell_nowait(Bell.ring, [2 * number])
                elif step == "publish":
                    topic.publish(2 * number + 1)
                elif step == "settle":
                    await settle()
                elif step == "bell dies":
                    with pytest.raises(AgentDied):
                        await bell.invoke(Bell.crash)
                    await bell.ready()
                elif step == "ear dies":
                    topic.publish(666)
                elif step == "ear stops":
                    await node.root.terminate_child("ear")
                    await node.root.restart_child("ear")
                else:
                    made[-1].cancel()
            await ear.ready()
            await settle()
            for agent in agents:
                heard = [what for what in agent.heard if not isinstance(what, Gap) and what != 666]
                for parity in (0, 1):
                    mine = [number for number in heard if number % 2 == parity]
                    assert mine == sorted(set(mine))
            active = [following for following in made if following.active]
            listening = [*slot_of(bell).extra.sinks.by_key.get("!rang", ()), *topic._sinks]
            assert active == listening
            accounts_add_up(node)
        assert not any(following.active for following in made)
        assert topic.statistics().subscribers == 0

    trio.run(main, clock=VirtualClock())


async def test_many_followers_need_no_task_and_little_memory(virtual_clock) -> None:
    """A follower keeps no buffer and no container that it has not needed yet."""
    async with open_test_node() as node:
        bell = await node.start(Bell)
        before = trio.lowlevel.current_statistics().tasks_living

        def begin(e: Ear) -> Following:
            return e.follow(bell, Bell.rang, e.hear)

        ears = await node.root.start_many(ear_of(begin), 1000)
        assert trio.lowlevel.current_statistics().tasks_living == before
        await bell.invoke(Bell.ring, [1])
        await settle()
        assert all(agent_of(ear).heard == [1] for ear in ears)
        following = agent_of(ears[0]).following
        assert following._buffer == ()
        more = slot_of(ears[0]).extra
        assert more.runs is more.out is slot_of(ears[1]).extra.active
        with pytest.raises(TypeError, match="shared"):
            more.runs[object()] = None
        with pytest.raises(TypeError, match="shared"):
            more.pending.setdefault(object(), None)
