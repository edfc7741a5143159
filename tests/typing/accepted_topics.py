"""Right uses of topics, groups and followings: both checkers must accept every line."""

from __future__ import annotations

from typing import assert_type

from lmos_actors import Agent, Event, Feed, Following, Gap, Group, Node, Ref, Topic, action, event
from lmos_actors.types import Joined, Left


class Bell(Agent):
    rang: Event[int] = event()

    @action
    def ring(self, number: int, loud: bool = False) -> None: ...

    @action
    async def practise(self, minutes: float) -> None: ...


class Ear(Agent):
    bell: Ref[Bell]

    def started(self) -> None:
        assert_type(self.follow(self.bell, Bell.rang, self.hear), Following)
        self.follow(self.find(Bell, "big"), Bell.rang, self.hear, size=3, on_gap=self.miss)
        following = self.follow(self.topic("words", str), self.read, size=1)
        assert_type(following.missed, int)
        following.cancel()
        self.join_group("ears")
        assert_type(self.leave_group("ears"), bool)
        assert_type(self.group("ears", Ear), Group[Ear])

    def hear(self, number: int) -> None: ...

    def read(self, word: str) -> None: ...

    def miss(self, gap: Gap) -> None: ...


async def right(node: Node) -> None:
    topic = node.topic("words", str)
    assert_type(topic, Topic[str])
    topic.publish("word")
    async with topic.subscribe() as plain, topic.subscribe(gaps=True, size=3) as told:
        assert_type(plain, Feed[str])
        assert_type(told, Feed[str | Gap])
    either: Topic[int | str] = node.topic("either", int | str)
    either.publish(3)
    assert_type(node.topic("lists", list[int]), Topic[list[int]])
    group = node.group("bells", Bell)
    assert_type(group.members(), list[Ref[Bell]])
    assert_type(group.broadcast(Bell.ring, 3, loud=True), int)
    group.broadcast(Bell.practise, 1.5)
    async with group.watch(size=2) as changes:
        assert_type(await changes.receive(), Joined[Bell] | Left[Bell])
