"""What tests of `self.to_process` have done in worker processes, which import little to get at it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def double(number: int) -> tuple[int, int]:
    return os.getpid(), number * 2


def nothing() -> int:
    return os.getpid()


def failing() -> None:
    raise ValueError("in the process", 3)


def leaving() -> None:
    os._exit(3)


def odd_result() -> Any:
    return lambda: 1


class OddError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def odd_failure() -> None:
    raise OddError("one", "two")


class Unspeakable(Exception):
    def __reduce__(self) -> Any:
        raise LookupError("cannot be sent")

    def __str__(self) -> str:
        raise LookupError("cannot be said")


def unspeakable() -> None:
    raise Unspeakable


def talkative() -> int:
    """Write to the descriptor itself, and have another process write and read."""
    os.write(1, b"noise" * 1000)
    code = "import sys; sys.stdout.write(sys.stdin.read() + 'noise')"
    return subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=20).returncode


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return _unload, ()


def _unload() -> None:
    raise LookupError("not there")


def say_and_wait(path: str) -> int:
    with open(path, "w") as out:
        out.write(f"{os.getpid()}\n")
    with open(path) as back:
        return len(back.read())
