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

from tests.web.install import LISTS, MADE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

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

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    async def ask(self, do: str, **said: Any) -> Any:
        """Have the client do something; give what came of it, or raise `Refused`."""
        line = json.dumps({"do": do, **said})
        with trio.fail_after(SECONDS):
            answer = await trio.to_thread.run_sync(self._asked, line, abandon_on_cancel=True)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer.get("value")

    def _asked(self, line: str) -> dict[str, Any]:
        stdin, stdout = cast("IO[str]", self.process.stdin), cast("IO[str]", self.process.stdout)
        stdin.write(line + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the client has ended with {self.process.poll()}"
        return json.loads(answer)


@contextmanager
def client(*command: str | Path) -> Generator[Client]:
    """Have a client for a block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


def commands() -> dict[str, list[str]]:
    """Give how Node.js and wotpy's Python are called."""
    return json.loads((installed() / MADE).read_text(encoding="utf-8"))


@pytest.fixture
def node_wot() -> Iterator[Client]:
    """node-wot, as npm has it."""
    with client(*commands()["node"], LISTS / "node_wot.cjs", installed()) as one:
        yield one


@pytest.fixture
def wotpy() -> Iterator[Client]:
    """wotpy, as the Python Package Index has it."""
    with client(*commands()["python"], LISTS / "with_wotpy.py") as one:
        yield one
