"""kill -9 of a process that writes: what it has acknowledged is there, and no batch is there by half."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lmos_actors.persistence import SqliteStore, records_of
from tests.matrix import few_or_all
from tests.persistence.killed_writer import WRITERS
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

KILLS = few_or_all(5, 200)


def acknowledged_until_killed(path: Path, start: int, seconds: float) -> dict[str, int]:
    """Have a process write from a number on, kill it, and return the last acknowledged one of each owner."""
    words = [sys.executable, "-m", "tests.persistence.killed_writer", f"sqlite:{path}", str(start)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
    lines = said.decode().splitlines(keepends=True)
    return {owner: int(number) for owner, number in (line.split() for line in lines if line.endswith("\n"))}


@pytest.mark.timeout(600)
def test_what_is_acknowledged_survives(tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "store.db"
    last, start = dict[str, int](), 1
    for _ in range(KILLS):
        last |= acknowledged_until_killed(path, start, chance.uniform(0, 0.2))
        store = SqliteStore(path)
        store.open()
        state = {key: value.decode() for key, value in records_of(store, "state")}
        copies = {key: value.decode() for key, value in records_of(store, "copy")}
        journals: dict[str, list[int]] = {}
        for key, value in records_of(store, "journal"):
            owner, number = key.split("/")
            assert value.decode() == number
            journals.setdefault(owner, []).append(int(number))
        assert list(store.problems()) == []
        store.close()
        assert len(state) == WRITERS
        for owner, text in state.items():
            number = int(text)
            assert number >= last[owner]
            assert number <= max(last[owner] + 1, start), "at most one was under way"
            assert copies[owner] == text * (1 + number % 50)
            kept = journals[owner]
            assert kept[-1] == number
            since = max(number - number % 20, start)
            assert kept[-(number - since + 1) :] == list(range(since, number + 1))
        start = max(int(text) for text in state.values()) + 1
