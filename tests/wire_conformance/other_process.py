"""The agents of the table in a process of their own: `python -m tests.wire_conformance.other_process PORT`.

Names after the port are those of agents that are there from the start.
Writes the address it listens at; ends when its standard input does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import IO, TYPE_CHECKING, cast

import trio

from lmos_actors import open_node
from tests.source import ROOT
from tests.wire_conformance.agents import start_helper, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

STARTED = 30.0
"""Seconds that the process may take to start, of real time."""


async def serve(port: int, *names: str) -> None:
    """Serve until the end of standard input; agents of these names are there before anybody connects."""
    async with open_node(tree(*names), listen=f"ws://127.0.0.1:{port}", store="memory:") as node:
        await start_helper(node)
        sys.stdout.write(f"{node.urls[0]}\n")
        sys.stdout.flush()
        stdin = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        async with stdin:
            while await stdin.receive_some():
                pass


def command(port: int = 0, *names: str) -> list[str]:
    """Give the command that starts it."""
    return [sys.executable, "-m", "tests.wire_conformance.other_process", str(port), *names]


@contextmanager
def running() -> Generator[str]:
    """Have the process for a block; gives its address."""
    process = subprocess.Popen(command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        try:
            yield cast("IO[str]", process.stdout).readline().strip()
        finally:
            process.kill()


@asynccontextmanager
async def started(port: int = 0, *names: str) -> AsyncGenerator[tuple[trio.Process, str]]:
    """Have the process for a block in a trio run, where it may be killed; gives its address, too."""
    process = await trio.lowlevel.open_process(
        command(port, *names), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        with trio.fail_after(STARTED):
            line = b""
            while not line.endswith(b"\n"):
                assert process.stdout is not None
                got = await process.stdout.receive_some()
                assert got, "the process has ended"
                line += got
        yield process, line.decode().strip()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]), *sys.argv[2:])
