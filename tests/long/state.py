"""What a long run has done so far, in a file, so that a run that was killed goes on where it was."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


class State:
    """A JSON file that is only ever replaced as a whole; none without a path, and then nothing is kept.

    `settings` are what the run is about: a file of another run is not gone on with.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any], fresh: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {"settings": settings, "seconds": 0.0, **fresh}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["settings"] != settings:
                sys.exit(f"{path} is of another run: {kept['settings']}, not {settings}")
            self.data = kept
        self._began = time.monotonic() - self.data["seconds"]

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = value

    @property
    def seconds(self) -> float:
        """How long the run has taken, over all its parts."""
        return time.monotonic() - self._began

    def save(self) -> None:
        """Write down how far it is."""
        self.data["seconds"] = self.seconds
        if self.path is not None:
            beside = self.path.with_name(self.path.name + ".new")
            beside.write_text(json.dumps(self.data))
            os.replace(beside, self.path)


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Make the parser of a script, with the option that all of them have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep the state there, and go on from it")
    return parser


def say(text: str) -> None:
    """Print a line of progress."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def verdict(passed: bool, text: str) -> int:
    """Print the last line; give the exit code."""
    print(f"{'passed' if passed else 'FAILED'}: {text}", flush=True)
    return 0 if passed else 1
