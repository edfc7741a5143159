"""Simulations for tests: populations of agents that show what they were made with."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

CROWD = '''\
from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import trio

from lmos_actors import Agent, Property, Ref, action, prop

MADE: list[Member] = []


class Member(Agent):
    """Shows what it was made with."""

    number: int = -1
    name: str = ""
    pace: float = 0.0
    words: list[str] = attrs.Factory(list)
    neighbours: tuple[Ref[Member], ...] = ()
    friends: tuple[Ref[Member], ...] = ()
    hub: Ref[Hub] | None = None
    heard: Property[int] = prop(default=0)
    secretly: int = 0

    def __attrs_post_init__(self) -> None:
        MADE.append(self)

    @action
    def hear(self, times: int = 1) -> None:
        """Count, and tell the neighbours what is left."""
        self.heard += 1
        for neighbour in self.neighbours if times > 1 else ():
            self.send(neighbour, Member.hear, times - 1)

    @action
    def boom(self) -> None:
        raise ValueError("boom")

    @action
    async def work(self, seconds: float = 1.0) -> str:
        try:
            await trio.sleep(seconds)
        finally:
            self.pace = trio.current_time()
        return "done"

    @action
    async def adopt(self) -> None:
        await self.start(Member)

    @action
    def report(self) -> None:
        if self.hub is not None:
            self.send(self.hub, Hub.count)

    @action
    def lose(self, other: int) -> None:
        """Send what nobody gets."""
        self.send(self.neighbours[other], Member.hear)


class Hub(Agent):
    """Counts."""

    seen: Property[int] = prop(default=0)

    @action
    def count(self) -> None:
        self.seen += 1


class Restless(Agent):
    """Has something to do at every moment, until its end."""

    other: Ref[Restless] | None = None
    turns: Property[int] = prop(default=0)

    def started(self) -> None:
        self.after(0.1, self.go_on)

    def go_on(self) -> None:
        self.turns += 1
        self.after(0.1, self.go_on)
        if self.other is not None:
            self.send(self.other, Restless.poke)

    @action
    def poke(self) -> None:
        pass


class Slow(Agent):
    """Takes its time to start."""

    @asynccontextmanager
    async def lifespan(self):
        await trio.sleep(2)
        yield


class Desk(Agent):
    """Pays money back, once a person agrees."""

    @action(concurrency=9)
    async def refund(self, order: str, seconds: float = 3600.0) -> bool:
        return await self.approve(f"Refund {order}", key=order, expires=seconds)


class Fragile(Agent):
    """Cannot be made for ever."""

    number: int = 0

    def __attrs_post_init__(self) -> None:
        if self.number == 3:
            raise OSError("no room")
'''


@attrs.frozen
class Crowds:
    """A project with such agents."""

    project: Project

    def load(self, **keys: Any) -> Any:
        whole = {
            "lmos": "simulation/v1",
            "name": "crowd",
            "stop": {"at": "10s"},
            "population": [peers(4)],
            "measure": {"every": "5s", "series": {"seats": total("mailbox.size", agg="max")}},
            **keys,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        if "crowd" in sys.modules:
            self.made()
        return load_scenario(
            self.project.root / self.project.write("crowd.yaml", json.dumps(whole, indent=1))
        )

    def runs(self, **keys: Any) -> list[RunResult]:
        resolved = self.load(**keys)
        return [run_cell(resolved, cell, 1, real_limit=20) for cell in resolved.cells]

    def run(self, **keys: Any) -> RunResult:
        (result,) = self.runs(**keys)
        return result

    def passes(self, **keys: Any) -> RunResult:
        result = self.run(**keys)
        assert result.failures == ()
        assert result.ended == "passed"
        return result

    def made(self) -> list[Any]:
        """Give the agents of class Member that were made since the last call."""
        found = list(sys.modules["crowd"].MADE)
        sys.modules["crowd"].MADE.clear()
        return found

    def fails(self, **keys: Any) -> str:
        result = self.run(**keys)
        assert not result.ok
        first = result.failures[0]
        return f"{first.what} | {first.expected} | {first.saw}"


@contextmanager
def crowds_in(folder: Path) -> Iterator[Crowds]:
    """Make the project; its module is forgotten afterwards."""
    path = list(sys.path)
    made = Project(folder)
    made.write("pyproject.toml", "")
    made.write("crowd.py", CROWD)
    yield Crowds(made)
    sys.path[:] = path
    sys.modules.pop("crowd", None)


def peers(count: int, **keys: Any) -> dict[str, Any]:
    return {"id": "peer", "count": count, "use": "crowd.py:Member", **keys}


def at(instant: str, action: str, **keys: Any) -> dict[str, Any]:
    return {"at": instant, "do": "tell", "target": "peer/0", "action": action, **keys}


def total(expr: str, of: str = "peer", agg: str = "sum") -> dict[str, Any]:
    return {"agg": agg, "of": of, "expr": expr}
