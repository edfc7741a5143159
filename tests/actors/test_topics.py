"""Topics: publishing never waits, each subscriber has its bound, and nothing stays of names nobody uses."""

from __future__ import annotations

import gc
import json
from collections import deque
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Gap,
    InvalidInput,
    Node,
    Ref,
    Topic,
    TraceLog,
    action,
    open_node,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import TopicStatistics


class Desk(Agent, serial=True):
    heard: list[Any] = attrs.field(factory=list)
    following: Any = None

    def started(self) -> None:
        self.following = self.follow(self.topic("numbers", int), self.hear)

    def hear(self, number: int) -> None:
        self.heard.append(number)

    @action
    def publish(self, number: int) -> None:
        self.topic("numbers", int).publish(number)
        self.heard.append("published")

    @action
    def publish_wrong(self) -> None:
        self.topic("numbers", int).publish("seven")  # type: ignore[arg-type]

    @action
    async def publish_slowly(self, numbers: list[int]) -> None:
        for number in numbers:
            await trio.sleep(1)
            self.topic("numbers", int).publish(number)

    @action
    async def busy(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    def crash(self) -> None:
        raise KeyError("crash")


def agent_of(ref: Ref[Any]) -> Any:
    return ref._link.agent  # type: ignore[attr-defined]


def rt_of(node: Node) -> Any:
    return node._rt


async def test_publishing_reaches_everybody_in_order_and_waits_for_nobody(virtual_clock) -> None:
    async with open_test_node() as node:
        desks = [await node.start(Desk) for _ in range(2)]
        topic = node.topic("numbers", int)
        async with topic.subscribe() as feed:
            topic.publish(1)
            await desks[0].invoke(Desk.publish, 2)
            await settle()
            assert [await feed.receive(), await feed.receive()] == [1, 2]
        assert agent_of(desks[0]).heard == [1, "published", 2], "no turn runs inside publish"
        assert agent_of(desks[1]).heard == [1, 2]
        assert topic.statistics() == TopicStatistics(published=2, delivered=6, missed=0, subscribers=2)
        s = node.statistics()
        assert (s.accepted, s.handled) == (1, 1), "values of topics are in no account"


async def test_a_slow_subscriber_drops_its_oldest_and_knows_how_many(virtual_clock) -> None:
    async with open_test_node() as node:
        topic = node.topic("numbers", int)
        async with topic.subscribe(size=2) as plain, topic.subscribe(size=3, gaps=True) as with_gaps:
            for number in range(5):
                topic.publish(number)
            assert [plain.receive_nowait(), plain.receive_nowait()] == [3, 4]
            assert plain.missed == 3
            assert with_gaps.receive_nowait() == Gap("slow consumer", 2)
            assert [with_gaps.receive_nowait() for _ in range(3)] == [2, 3, 4]
            assert topic.statistics().missed == 5
        assert topic.statistics() == TopicStatistics(published=5, delivered=10, missed=5, subscribers=0)
        with pytest.raises(trio.EndOfChannel):
            plain.receive_nowait()
        with pytest.raises(ValueError, match="size of at least 1"):
            async with topic.subscribe(size=0):
                pass


async def test_values_share_nothing_that_can_change(virtual_clock) -> None:
    async with open_test_node() as node:
        topic: Topic[list[int]] = node.topic("lists", list[int])
        mine = [1]
        async with topic.subscribe() as one, topic.subscribe() as other:
            topic.publish(mine)
            mine.append(2)
            first = await one.receive()
            first.append(3)
            assert await other.receive() == [1]
        frozen = node.topic("tuples", tuple[int, ...])
        value = (1, 2)
        async with frozen.subscribe() as one:
            frozen.publish(value)
            assert await one.receive() is value


async def test_a_value_of_another_type_is_the_publishers_fault(virtual_clock) -> None:
    async with open_test_node() as node:
        desk = await node.start(Desk)
        topic = node.topic("numbers", int)
        with pytest.raises(InvalidInput, match=r"topic 'numbers': Expected `int`, got `str` - at \$"):
            topic.publish("seven")  # type: ignore[arg-type]
        with pytest.raises(AgentDied, match="InvalidInput"):
            await desk.invoke(Desk.publish_wrong)
        assert topic.statistics().published == 0


async def test_one_name_is_one_topic_of_one_type(virtual_clock) -> None:
    async with open_test_node() as node:
        topic = node.topic("numbers", int)
        assert node.topic("numbers", int) is topic
        assert topic.name == "numbers"
        assert topic.type is int
        with pytest.raises(TypeError, match=r"<topic 'numbers' of int> is there already.*one of str"):
            node.topic("numbers", str)
        with pytest.raises(TypeError):
            node.topic("events", trio.Event)
        with pytest.raises(TypeError, match="name is a str"):
            node.topic(7, int)  # type: ignore[arg-type]


async def test_a_name_that_nobody_uses_leaves_nothing_behind(virtual_clock) -> None:
    async with open_test_node() as node:
        for number in range(100):
            node.topic(f"name {number}", int).publish(number)
        gc.collect()
        assert list(rt_of(node).topics) == []
        async with node.topic("held", int).subscribe() as feed:
            node.topic("held", int).publish(1)
            assert await feed.receive() == 1
        gc.collect()
        node.topic("held", str).publish("may be of another type now")
        await node.start(Desk)
        gc.collect()
        assert list(rt_of(node).topics) == ["numbers"], "a follower holds it"
        await node.root.terminate_child("desk")
        gc.collect()
        assert list(rt_of(node).topics) == []


async def test_following_ends_with_the_incarnation_and_is_made_again(virtual_clock) -> None:
    async with open_test_node() as node:
        desk = await node.start(Desk)
        topic = node.topic("numbers", int)
        first = agent_of(desk).following
        with pytest.raises(AgentDied):
            await desk.invoke(Desk.crash)
        await desk.ready()
        assert not first.active
        topic.publish(1)
        await settle()
        assert agent_of(desk).heard == [1], "once"
        agent_of(desk).following.cancel()
        topic.publish(2)
        await settle()
        assert agent_of(desk).heard == [1]
        assert topic.statistics() == TopicStatistics(published=2, delivered=1, missed=0, subscribers=0)


async def test_a_slow_follower_is_counted_by_the_topic_even_when_it_is_gone(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        desk = await node.start(Desk)
        topic = node.topic("numbers", int)
        nursery.start_soon(desk.invoke, Desk.busy, 1)
        await settle()
        for number in range(70):
            topic.publish(number)
        assert agent_of(desk).following.missed == topic.statistics().missed == 6
        await trio.sleep(2)
        assert agent_of(desk).heard == list(range(6, 70))
        await node.root.terminate_child("desk")
        assert topic.statistics().missed == 6


async def test_publishing_from_runs_and_tasks(virtual_clock) -> None:
    async with open_test_node() as node:
        desk = await node.start(Desk)
        async with node.topic("numbers", int).subscribe() as feed:
            await desk.invoke(Desk.publish_slowly, [1, 2])
            assert [await feed.receive(), await feed.receive()] == [1, 2]


async def test_the_end_of_the_node_ends_the_feeds(virtual_clock) -> None:
    ended: list[str] = []

    async def listen(topic: Topic[int], task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        async with topic.subscribe() as feed:
            task_status.started()
            async for number in feed:
                ended.append(f"got {number}")
            ended.append("end")

    async with trio.open_nursery() as nursery, open_test_node() as node:
        topic = node.topic("numbers", int)
        await nursery.start(listen, topic)
        topic.publish(1)
    assert ended == ["got 1", "end"]
    topic.publish(2)
    async with topic.subscribe() as feed:
        with pytest.raises(trio.EndOfChannel):
            await feed.receive()
    assert topic.statistics().subscribers == 0


async def test_a_subscriber_that_is_cancelled_is_gone(virtual_clock) -> None:
    async with open_test_node() as node:
        topic = node.topic("numbers", int)
        with trio.move_on_after(1):
            async with topic.subscribe() as feed:
                await feed.receive()
        assert topic.statistics().subscribers == 0


async def test_an_instrument_sees_what_is_published(virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(instrument=log) as node:
        desk = await node.start(Desk)
        await desk.invoke(Desk.publish, 1)
        node.topic("numbers", int).publish(2)
    records = [json.loads(line) for line in log.lines()]
    seen = [(r["agent"], r["topic"], r["data"]) for r in records if r.get("kind") == "event"]
    assert seen == [("desk", "numbers", 1), ("user", "numbers", 2)]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 9)),
        st.tuples(st.just("take"), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), operations=OPERATIONS)
def test_subscribers_are_bounded_queues_of_their_own(sizes: list[int], operations: list[Any]) -> None:
    """Against a model: a deque with a bound for each, whose losses are counted."""

    async def main() -> None:
        async with open_node() as node:
            topic = node.topic("numbers", int)
            models = [deque[int](maxlen=size) for size in sizes]
            lost = [0] * len(sizes)
            async with trio.open_nursery():
                contexts = [topic.subscribe(size=size) for size in sizes]
                feeds = [await context.__aenter__() for context in contexts]
                for what, number in operations:
                    if what == "publish":
                        topic.publish(number)
                        for place, model in enumerate(models):
                            lost[place] += len(model) == model.maxlen
                            model.append(number)
                    elif number < len(feeds) and models[number]:
                        assert feeds[number].receive_nowait() == models[number].popleft()
                assert [feed.missed for feed in feeds] == lost
                published = sum(what == "publish" for what, _ in operations)
                assert topic.statistics() == TopicStatistics(
                    published=published,
                    delivered=published * len(sizes),
                    missed=sum(lost),
                    subscribers=len(sizes),
                )
                for context in contexts:
                    await context.__aexit__(None, None, None)

    trio.run(main, clock=VirtualClock())


async def test_a_spec_of_followers_starts_many(virtual_clock) -> None:
    async with open_test_node() as node:
        desks = await node.root.start_many(ChildSpec("desk", Desk), 100)
        node.topic("numbers", int).publish(1)
        await settle()
        assert all(agent_of(desk).heard == [1] for desk in desks)
