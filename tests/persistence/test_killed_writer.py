"""kill -9 of a process that writes: what it has acknowledged is there, and no batch is there by half."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.persistence import SqliteStore, records_of
from tests.matrix import few_or_all
from tests.persistence.killed_writer import WRITERS
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

KILLS = few_or_all(3, 50)


def acknowledged_until_killed(address: str, start: int, lines: int) -> dict[str, int]:
    """Kill a process that writes from a number on, after some lines; return the last number of each owner."""
    words = [sys.executable, "-m", "tests.persistence.killed_writer", address, str(start)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = b"".join(process.stdout.readline() for _ in range(lines))
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
    whole = [line for line in said.decode().splitlines(keepends=True) if line.endswith("\n")]
    return {owner: int(number) for owner, number in map(str.split, whole)}


@pytest.mark.slow  # its lines: test_sqlite.py, in this process
@pytest.mark.timeout(600)
def test_what_is_acknowledged_survives(tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "store.db"
    last, start = dict[str, int](), 1
    for _ in range(KILLS):
        last |= acknowledged_until_killed(f"sqlite:{path}", start, chance.randrange(1, 600))
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
