"""Web of Things clients that nobody here wrote, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pytest
import trio

from tests.web.install import MADE

if TYPE_CHECKING:
    from collections.abc import Generator

SECONDS: Final = 30.0
"""Seconds that an answer may take, of real time."""


def installed() -> Path:
    """Give the folder that tests/web/install.py has made; skip where there is none."""
    folder = os.environ.get("LMOS_ACTORS_CLIENTS")
    if folder is None:
        pytest.skip("LMOS_ACTORS_CLIENTS is not set: make a folder with tests/web/install.py")
    if not (Path(folder) / MADE).exists():
        pytest.fail(f"LMOS_ACTORS_CLIENTS={folder}: tests/web/install.py has not made that folder")
    return Path(folder)


class Refused(Exception):
    """The client raised an error; its text."""


class Client:
    """A client at the other end of a pipe: it is told to do something, and answers."""

    def __init__(self, *command: str | Path) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    async def ask(self, do: str, **said: Any) -> Any:
        """Have the client do something; give what came of it, or raise `Refused`."""
        answered = False
        try:
            with trio.fail_after(SECONDS):
                answer = await trio.to_thread.run_sync(self.answer, do, said, abandon_on_cancel=True)
            answered = True
        finally:
            if not answered:
                self.end()  # its next answer would be to this
        if "error" in answer:
            raise Refused(answer["error"])
        return answer.get("value")

    def answer(self, do: str, said: dict[str, Any]) -> dict[str, Any]:
        """As `ask`, but this waits; gives the whole answer."""
        stdin, stdout = cast("IO[str]", self.process.stdin), cast("IO[str]", self.process.stdout)
        stdin.write(json.dumps({"do": do, **said}) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the client has ended with {self.process.poll()}"
        return json.loads(line)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


class Clients:
    """One client of each kind, which tests share: each takes longer to start than a test to run."""

    def __init__(self) -> None:
        self._of: dict[str, Client] = {}

    @contextmanager
    def lent(self, name: str, *command: str | Path) -> Generator[Client]:
        """Give the client of that name, which behind the block forgets all."""
        one = self._of.get(name)
        if one is None or one.process.poll() is not None:
            one = self._of[name] = Client(*command)
        yield one
        if one.process.poll() is None:
            assert "error" not in one.answer("forget", {})

    def end(self) -> None:
        """End all."""
        for one in self._of.values():
            with one.process:  # closes the pipes
                one.end()


def commands() -> dict[str, list[str]]:
    """Give how Node.js and wotpy's Python are called."""
    return json.loads((installed() / MADE).read_text(encoding="utf-8"))
