"""Calls of functions of this package, counted by `sys.setprofile` while a program runs.

A coroutine that goes on counts once more. Bodies of modules are left out, as what is imported late is no part
of a request. Calls into libraries do not count: moving work into a library is no gain by itself, which is why
times decide and counts only explain.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import lmos_actors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PACKAGE = str(Path(lmos_actors.__file__).parent) + "/"


@dataclass
class Walk:
    """The calls of one walk, in order. A function is its file, its first line and its name."""

    calls: int = 0
    functions: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    files: Counter[str] = field(default_factory=Counter[str])
    file_switches: int = 0
    package_switches: int = 0
    _at: str = ""

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """Count one event of `sys.setprofile`."""
        code = frame.f_code
        path = code.co_filename
        if event != "call" or not path.startswith(PACKAGE) or code.co_name == "<module>":
            return
        name = path[len(PACKAGE) :]
        if self._at and name != self._at:
            self.file_switches += 1
            self.package_switches += name.partition("/")[0] != self._at.partition("/")[0]
        self._at = name
        self.calls += 1
        self.functions.add((name, code.co_firstlineno, code.co_name))
        self.files[name] += 1

    @contextmanager
    def counting(self, *, threads: bool = False) -> Iterator[None]:
        """Count the calls inside; `threads`: also those of threads that start there."""
        if threads:
            threading.setprofile(self.see)
        sys.setprofile(self.see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
