"""pykka: an actor is a thread."""

from __future__ import annotations

import threading
from time import perf_counter as clock
from typing import Any

import pykka

from tests.benchmarks.peers.programs import MANY, resident


class Echo(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_receive(self, message: Any) -> Any:
        if message is None:
            return self.count
        self.count += 1
        return message


class Hop(pykka.ThreadingActor):
    following: Any = None
    done: Any = None

    def on_receive(self, message: Any) -> None:
        if isinstance(message, tuple):
            self.following, self.done = message
        elif message:
            self.following.tell(message - 1)
        else:
            self.done.set()


def tell(n: int) -> float:
    ref = Echo.start()
    began = clock()
    for i in range(n):
        ref.tell(i)
    assert ref.ask(None) == n
    seconds = clock() - began
    ref.stop()
    return seconds


def ask(n: int) -> float:
    ref = Echo.start()
    began = clock()
    for i in range(n):
        ref.ask(i)
    seconds = clock() - began
    ref.stop()
    return seconds


def fan(n: int) -> float:
    refs = [Echo.start() for _ in range(MANY)]
    began = clock()
    for i in range(n // MANY):
        assert len(pykka.get_all([ref.ask(i, block=False) for ref in refs])) == MANY
    seconds = clock() - began
    pykka.ActorRegistry.stop_all()
    return seconds


def ring(n: int) -> float:
    done = threading.Event()
    refs = [Hop.start() for _ in range(MANY)]
    for ref, following in zip(refs, [*refs[1:], refs[0]], strict=True):
        ref.ask((following, done))
    began = clock()
    refs[0].tell(n)
    done.wait()
    seconds = clock() - began
    pykka.ActorRegistry.stop_all()
    return seconds


def spawn(n: int) -> float:
    began = clock()
    for start in range(0, n, MANY):  # no more threads at once than a system allows by default
        refs = [Echo.start() for _ in range(min(MANY, n - start))]
        refs[-1].ask(1)
        pykka.ActorRegistry.stop_all(block=False)
    return clock() - began


def memory(n: int) -> float:
    before = resident()
    refs = [Echo.start() for _ in range(n)]
    refs[-1].ask(1)
    size = (resident() - before) / n
    pykka.ActorRegistry.stop_all(block=False)
    return size
