"""Running cells a second time in a fresh process with another hash seed, to compare the message logs (X1).

`main` is that process; its order is a file with what to do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmos_actors.reports import Repeated
from lmos_actors.simulation import first_difference

from ._classes import accepts
from ._resolve import resolve
from ._runner import run_cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.reports import RunResult

# The path is that of this process as it began: neither what agents' modules stand in, nor what these have
# put before it, may hide the modules that we need ourselves.
_PATH = tuple(sys.path)
_BEGIN = (
    "import sys; sys.path[:] = sys.argv[2:]; import pathlib, lmos_actors.scenario._again as again; "
    "again.main(pathlib.Path(sys.argv[1]))"
)
_SPARE = 30.0
"""Seconds of real time for the process itself, beside those of its runs."""


class SecondProcess:
    """Runs the cells of these numbers once more, beside this process; `with` ends it if it still runs."""

    def __init__(
        self,
        file: str,
        settings: Mapping[str, str],
        seeds: Sequence[int] | None,
        cells: Sequence[int],
        real_limit: float,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lmos-actors-")
        self._place = Path(self._folder.name)
        self._limit = _SPARE + real_limit * len(cells)
        order = {
            "file": file,
            "settings": dict(settings),
            "seeds": list(seeds) if seeds is not None else None,
            "cells": list(cells),
            "real_limit": real_limit,
        }
        (self._place / "order.json").write_text(json.dumps(order), encoding="utf-8")
        self._errors = (self._place / "errors").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BEGIN, str(self._place / "order.json"), *_PATH],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        )
        self._ended: str | None = None

    def __enter__(self) -> SecondProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
        self._folder.cleanup()

    def compare(self, cell: int, first: RunResult) -> Repeated:
        """Wait for the process, and compare the log of a cell with that of its first run."""
        if self._ended is None:
            self._ended = self._wait()
        log = self._place / f"{cell}.jsonl"
        if not log.is_file():
            return Repeated(first.label, problem=f"the second process gave no log: {self._ended}")
        again = log.read_text(encoding="utf-8", errors="surrogatepass").split("\n")[:-1]
        return Repeated(first.label, first_difference(first.log, again))

    def _wait(self) -> str:
        try:
            code = self._process.wait(self._limit)
        except subprocess.TimeoutExpired:
            return f"it took more than {self._limit:g} s"
        said = (self._place / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"it ended with {code}" + (f": {said[-1]}" if said else "")


def main(order: Path) -> None:
    """Be the second process."""
    asked: dict[str, Any] = json.loads(order.read_text(encoding="utf-8"))
    resolved = resolve(asked["file"], settings=asked["settings"], seeds=asked["seeds"], accepts=accepts)
    numbers: list[int] = asked["cells"]
    for number in numbers:
        result = run_cell(resolved, resolved.cells[number], 1, real_limit=asked["real_limit"])
        half = order.parent / f"{number}.part"
        half.write_text("".join(line + "\n" for line in result.log), encoding="utf-8", errors="surrogatepass")
        half.rename(order.parent / f"{number}.jsonl")
