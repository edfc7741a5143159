"""What the tests of running supervisors share: a simulated world, agents that note what happens to them."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, simulate
from lmos_actors.testing import SEED_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LIMIT = 10_000.0  # virtual seconds that no test needs


class TooLong(AssertionError):
    """A test was still running after `LIMIT` virtual seconds."""


def run(main: Callable[[], Awaitable[Any]], *, seed: int | None = None) -> Any:
    """Run a test in a simulated world; a hang is `Deadlocked` or `TooLong`, a task left over an error.

    No test depends on the seed: without `seed` it is the one in the environment, else 0.
    """

    async def guarded() -> Any:
        with trio.move_on_after(LIMIT):
            result = await main()
            assert trio.lowlevel.current_task().child_nurseries == []
            return result
        raise TooLong

    return simulate(guarded, seed=int(os.environ.get(SEED_VARIABLE, "0")) if seed is None else seed)


class Diary:
    """An instrument that keeps `kind path` of what happens to agents, and a place for agents' own notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        if kind in ("started", "stopped", "crashed"):
            self.lines.append(f"{kind} {agent}")

    def note(self, line: str) -> None:
        self.lines.append(line)

    def take(self) -> list[str]:
        """Give what has come since the last time."""
        lines, self.lines = self.lines, []
        return lines

    def count(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.lines)


class Boom(Exception):
    """What agents of these tests crash with."""


class Worker(Agent):
    """Has no task of its own."""

    number: int = 0
    handled: int = 0

    @action
    def hello(self) -> int:
        self.handled += 1
        return self.number

    @action
    def crash(self, text: str = "boom") -> None:
        raise Boom(text)

    @action
    def finish(self) -> None:
        self.stop()

    @action(concurrency=100)
    async def sleep(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(concurrency=100)
    async def stubborn(self, seconds: float) -> float:
        """Not to be cancelled: it ends in its own time."""
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        return seconds


class Living(Worker):
    """Holds a resource; `entering` and `leaving` say how long that takes, or what it raises."""

    diary: Diary
    entering: float = 0.0
    leaving: float = 0.0
    enter_error: BaseException | None = None
    leave_error: BaseException | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        path = self.path
        self.diary.note(f"enter {path}")
        try:
            await trio.sleep(self.entering)
            if self.enter_error is not None:
                raise self.enter_error
            yield
            await trio.sleep(self.leaving)
            if self.leave_error is not None:
                raise self.leave_error
        finally:
            self.diary.note(f"left {path}")


class Fussy(Worker):
    """Starts only as often as `plan` allows: it takes the next entry off the list and raises it, if any."""

    plan: list[BaseException | None]

    def started(self) -> None:
        error = self.plan.pop(0) if self.plan else None
        if error is not None:
            raise error


def child(name: str, factory: Callable[[], Agent] = Worker, **options: Any) -> ChildSpec[Any]:
    return ChildSpec(name, factory, **options)


def tree(*children: ChildSpec[Any] | SupervisorSpec, name: str = "root", **options: Any) -> SupervisorSpec:
    return SupervisorSpec(name, children, **options)


def living(diary: Diary, **options: Any) -> Callable[[], Agent]:
    return partial(Living, diary=diary, **options)


async def settled() -> None:
    """Wait until nothing is left to do at the present instant."""
    clock: Any = trio.lowlevel.current_clock()
    await clock.settle()


async def crash(ref: Any, text: str = "boom") -> None:
    """Crash an agent and wait until its supervisor has done what there is to do now."""
    ref.tell_nowait(Worker.crash, text)
    await settled()


def statuses(supervisor: Any) -> dict[str, tuple[str, int]]:
    return {info.name: (info.status, info.incarnation) for info in supervisor.which_children()}
