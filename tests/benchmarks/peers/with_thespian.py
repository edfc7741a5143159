"""Thespian: near actors on its synchronous `simpleSystemBase`, far ones on `multiprocTCPBase`."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from thespian.actors import Actor, ActorSystem, ActorTypeDispatcher

from tests.benchmarks.peers.programs import MANY, resident

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 10


class Echo(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "count":
            self.send(sender, self.count)
        elif isinstance(message, tuple):
            self.send(sender, message[0])
        elif isinstance(message, int):
            self.count += 1


class Hop(Actor):
    following: Any = None
    asker: Any = None

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, dict):
            self.following = message["following"]
            return
        hops, asker = message if isinstance(message, tuple) else (message, sender)
        if hops:
            self.send(self.following, (hops - 1, asker))
        else:
            self.send(asker, "done")


class Fan(ActorTypeDispatcher):
    """Asks many, and tells its asker when all have answered."""

    def receiveMsg_list(self, message: list[Any], sender: Any) -> None:
        self.asker, self.left = sender, len(message)
        for each in message:
            self.send(each, (1,))

    def receiveMsg_int(self, message: int, sender: Any) -> None:
        self.left -= 1
        if not self.left:
            self.send(self.asker, "all")


@contextmanager
def _system(base: str = "simpleSystemBase") -> Iterator[Any]:
    system = ActorSystem(base)
    try:
        yield system
    finally:
        system.shutdown()


def _tell(base: str, n: int) -> float:
    with _system(base) as system:
        ref = system.createActor(Echo)
        began = clock()
        for i in range(n):
            system.tell(ref, i)
        assert system.ask(ref, "count", SECONDS) == n
        return clock() - began


def _ask(base: str, n: int) -> float:
    with _system(base) as system:
        ref = system.createActor(Echo)
        system.ask(ref, (0,), SECONDS)
        began = clock()
        for i in range(n):
            assert system.ask(ref, (i,), SECONDS) == i
        return clock() - began


def tell(n: int) -> float:
    return _tell("simpleSystemBase", n)


def ask(n: int) -> float:
    return _ask("simpleSystemBase", n)


def far_ask(n: int) -> float:
    return _ask("multiprocTCPBase", n)


def far_tell(n: int) -> float:
    return _tell("multiprocTCPBase", n)


def fan(n: int) -> float:
    with _system() as system:
        fan, refs = system.createActor(Fan), [system.createActor(Echo) for _ in range(MANY)]
        began = clock()
        for _ in range(n // MANY):
            assert system.ask(fan, refs, SECONDS) == "all"
        return clock() - began


def ring(n: int) -> float:
    with _system() as system:
        refs = [system.createActor(Hop) for _ in range(MANY)]
        for ref, following in zip(refs, [*refs[1:], refs[0]], strict=True):
            system.tell(ref, {"following": following})
        began = clock()
        assert system.ask(refs[0], n, SECONDS) == "done"
        return clock() - began


def spawn(n: int) -> float:
    with _system() as system:
        began = clock()
        refs = [system.createActor(Echo) for _ in range(n)]
        assert system.ask(refs[-1], (1,), SECONDS) == 1
        return clock() - began


def memory(n: int) -> float:
    with _system() as system:
        before = resident()
        refs = [system.createActor(Echo) for _ in range(n)]
        assert system.ask(refs[-1], (1,), SECONDS) == 1
        return (resident() - before) / n
