"""Wrong uses of topics, groups and followings: every line marked must be an error in both checkers."""

from __future__ import annotations

from lmos_actors import Agent, Event, Node, Ref, action, event


class Bell(Agent):
    rang: Event[int] = event()

    @action
    def ring(self, number: int) -> None: ...


class Ear(Agent):
    bell: Ref[Bell]

    def started(self) -> None:
        self.follow(self.bell, Bell.rang, self.read)  # E
        self.follow(self.bell, Bell.ring, self.hear)  # E
        self.follow(self.topic("words", str), self.hear)  # E
        self.follow(self.bell, self.hear)  # E

    def hear(self, number: int) -> None: ...

    def read(self, word: str) -> None: ...

    @action
    def listen(self) -> None: ...


async def wrong(node: Node) -> None:
    node.topic("words", str).publish(7)  # E
    node.group("bells", Bell).broadcast(Bell.ring, "three")  # E
    node.group("bells", Bell).broadcast(Bell.ring)  # E
    node.group("bells", Bell).broadcast(Ear.listen)  # E
    node.group("bells", int)  # E
