"""The agents of the soak, and what its server and its clients have in common: how they are looked at."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    NotFound,
    Progress,
    Property,
    action,
    event,
    prop,
)
from lmos_actors.supervision import agents_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node

PAGE = os.sysconf("SC_PAGE_SIZE")


class Worker(Agent):
    """Does some of everything, and crashes when it is told to."""

    level: Property[int] = prop(default=0)
    done: Event[int] = event()

    @action(idempotent=True)
    def add(self, a: int, b: int) -> int:
        return a + b

    @action(concurrency=64)
    async def work(self, progress: Progress[float], seconds: float) -> int:
        for part in range(1, 4):
            await trio.sleep(seconds / 3)
            progress.report(part / 3)
        self.level += 1
        self.done.emit(self.level)
        return self.level

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number
            if number % 10 == 0:
                await trio.sleep(0.001)

    @action
    def refuse(self) -> None:
        raise ActionFailed("not today")

    @action
    def crash(self) -> None:
        raise RuntimeError("crashed as told")


class Guest(Worker):
    """Leaves by itself, should nobody let it go."""

    def started(self) -> None:
        self.after(5, self.stop)


class Ledger(Agent):
    """Never crashes: what was booked is what was carried out."""

    booked: dict[str, int] = attrs.field(factory=dict)

    @action(on_disconnect="finish")
    def book(self, who: str) -> int:
        self.booked[who] = self.booked.get(who, 0) + 1
        return self.booked[who]

    @action(safe=True)
    def total(self, who: str) -> int:
        return self.booked.get(who, 0)

    @action
    def forget(self, who: str) -> None:
        self.booked.pop(who, None)


class Boss(Agent):
    """Takes on agents, and lets them go."""

    hired: int = 0

    @action
    async def hire(self) -> str:
        self.hired += 1
        name = f"guest-{self.hired}"
        await self.start_child(ChildSpec(name, Guest, restart="temporary"))
        return name

    @action
    async def fire(self, name: str) -> None:
        with suppress(NotFound):  # it has left
            await self.children.terminate_child(name)


def imbalances(node: Node) -> list[str]:
    """Give the agents whose accounts do not add up (DECISIONS M1); at an instant at which no turn runs."""
    wrong = []
    for ref in node.agents():
        s = ref.statistics()
        if s.accepted != s.handled + s.cancelled + s.dropped + s.dead_lettered + s.waiting + s.running:
            wrong.append(f"{ref.path}: {s}")
    return wrong


def names_of_tasks() -> list[str]:
    """Name the tasks of this run."""
    found, open_ = [], [trio.lowlevel.current_root_task()]
    while open_:
        task = open_.pop()
        if task is not None:
            found.append(task.name)
            open_ += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def look(node: Node) -> dict[str, Any]:
    """Measure this process, after its garbage has gone."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * PAGE
    ours: Counter[str] = Counter()
    objects = gc.get_objects()
    for one in objects:
        cls = type(one)
        if str(cls.__module__).startswith("lmos_actors."):  # of some metaclasses it is a descriptor
            ours[cls.__name__] += 1
    runtime: Any = node._rt
    listened = [slot.extra.sinks for slot in agents_of(node.root) if slot.extra is not None]
    every = node.statistics()
    measured = {
        "memory_kb": resident // 1024,
        "objects": len(objects),
        "ours": sum(ours.values()),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "listeners": sum(len(sinks.by_key) for sinks in listened if sinks),
        "feeds": ours["Feed"],
        "timers": len(runtime.timers),
        "agents": every.agents,
        "connections": node.connections,
    }
    del objects
    return {
        **measured,
        "open": every.waiting + every.running,
        "accepted": every.accepted,
        "restarts": every.restarts,
        "dead_letters": every.dead_letters,
        "imbalances": imbalances(node),
        "failures": [repr(error) for error in node.connection_failures],
        "processor": sum(os.times()[:2]),
        "at_work": sorted(names_of_tasks()),
        "most": dict(ours.most_common(25)),
    }


def leaves_of(error: BaseException) -> list[BaseException]:
    """Give what is in an exception group, or the exception."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]


async def obey(orders: dict[str, Callable[[], Awaitable[Any]]]) -> None:
    """Answer each line of the standard input by a line of JSON, until it ends or the line `end` comes."""
    stdin = trio.lowlevel.FdStream(os.dup(0))
    held = b""
    async for chunk in stdin:
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            word = line.decode()
            tell(await orders[word]())
            if word == "end":
                return


def tell(data: Any) -> None:
    """Write a line of JSON."""
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()
