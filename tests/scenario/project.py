"""A project in a folder of its own, with agents that misbehave in every way, for tests of the runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs

from tests.commands import called
from tests.source import ROOT

if TYPE_CHECKING:
    import signal
    from pathlib import Path

CAST = '''\
from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio

from lmos_actors import Agent, Event, Progress, Property, Ref, action, event, prop

CALLS = []


@attrs.frozen
class Point:
    x: int
    y: int = 0


class Actor(Agent):
    """Does what scenarios need."""

    level: Property[int] = prop(default=0)
    fixed: Property[str] = prop(default="f", read_only=True)
    hidden: Property[str] = prop(default="h", write_only=True)
    spot: Property[Point] = prop(default=Point(0))
    noted: Event[str] = event()
    friend: Any = None
    pace: float = 0.0
    tags: list[str] = attrs.Factory(list)

    @action
    def note(self, text: str) -> str:
        self.noted.emit(text)
        return text

    @action
    def tag(self, text: str) -> list[str]:
        self.tags.append(text)
        return self.tags

    @action
    async def slowly(self, progress: Progress[int], seconds: float = 1.0) -> str:
        await trio.sleep(seconds / 2)
        progress.report(1)
        await trio.sleep(seconds / 2)
        return "done"

    @action
    async def plain(self, seconds: float = 1.0) -> str:
        await trio.sleep(seconds)
        return "done"

    @action
    def boom(self) -> None:
        raise ValueError("boom")

    @action
    def point(self, where: Point) -> Point:
        return where

    @action
    def whole(self, anything: dict[str, int], /) -> int:
        return len(anything)

    @action
    def give(self, anything: Any, /) -> Any:
        return anything

    @action
    def who(self) -> str | None:
        from lmos_actors import current_request

        return current_request().consumer

    @action
    def spin(self) -> None:
        while True:
            pass

    @action
    def spin_hard(self) -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    @action
    def again(self) -> None:
        self.send(self.ref, Actor.again)

    @action
    async def never(self) -> None:
        await trio.sleep_forever()

    @action
    def hashed(self) -> int:
        return hash("a text whose hash differs")

    @action
    def every_third(self) -> None:
        CALLS.append(1)
        if len(CALLS) % 3 == 0:
            raise ValueError("the third")

    @action
    def leave(self) -> None:
        raise SystemExit(7)

    @action
    def speak(self) -> None:
        print("spoken by an agent")

    @action
    async def items(self):
        yield 1

    @action
    async def count(self, to: int, pause: float = 0.0) -> AsyncIterator[int]:
        if to < 0:
            raise ValueError("below zero")
        for number in range(to):
            await trio.sleep(pause)
            yield number


class Pointing(Agent):
    """Has a ref."""

    to: Ref[Actor]
    need: int

    @action
    async def ask(self, text: str) -> str:
        return await self.to.invoke(Actor.note, text)

    @action
    async def pass_on(self) -> None:
        await self.to.invoke(Actor.boom)

    @action
    def lose(self) -> None:
        self.send(self.to, Actor.boom)
        self.send(self.to, Actor.boom)


class BadStart(Agent):
    """Cannot be made."""

    def __attrs_post_init__(self) -> None:
        raise OSError("no disk")


class BadSecond(Agent):
    """Can be made once."""

    made = 0

    def started(self) -> None:
        type(self).made += 1
        if type(self).made > 1:
            raise OSError("only once")


class Hanging(Agent):
    """Never ends."""

    @action
    async def hang(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


class NoAgent:
    """Is none."""
'''


DYING = """
import os
from lmos_actors import Agent, action

class Dying(Agent):
    @action
    def die(self, signal: int) -> None:
        os.kill(os.getpid(), signal)

    @action
    def seed(self) -> int:
        return hash("a")

    @action
    def ready(self, path: str) -> None:
        with open(path, "w") as file:
            file.write(f"{os.getpid()} ")
        while True:
            pass
"""


@attrs.frozen
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both outputs."""
        return self.out + self.err


@attrs.frozen
class Project:
    """The folder; `run` calls the command in it as a user does."""

    root: Path

    def write(self, name: str, text: str) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def command(self, *words: str, timeout: float = 50, **environment: str) -> Ran:
        if not environment:
            done = called(words, self.root, timeout=timeout)
            return Ran(done.returncode, done.stdout, done.stderr)
        ended = subprocess.run(
            [sys.executable, "-m", "lmos_actors", *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment},
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)


def story(*steps: Any, **more: Any) -> str:
    """Write a scenario around some steps; a JSON text is YAML too."""
    whole = {
        "lmos": "scenario/v1",
        "name": "story",
        "agents": {"actor": {"from": "agent", "use": "cast.py:Actor"}},
        "steps": list(steps),
        **more,
    }
    return json.dumps(whole, indent=1)


def dying(*steps: Any, **more: Any) -> str:
    return story(*steps, agents={"actor": {"from": "agent", "use": "dying.py:Dying"}}, **more)


def die(number: signal.Signals) -> dict[str, Any]:
    return {"do": "invoke", "target": "actor", "action": "die", "input": {"signal": int(number)}}
