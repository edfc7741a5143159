"""kill -9 while texts are remembered and forgotten: texts, index, order and counts are of one commit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from lmos_actors.memories import Memories
from lmos_actors.persistence import SqliteStore, records_of
from tests.matrix import few_or_all
from tests.memories.keepers import keeper_on
from tests.memories.killed_keeper import PEOPLE
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

KILLS = few_or_all(3, 25)


def kept_until_killed(store: str, start: int, lines: int) -> dict[int, int]:
    """Kill a process that remembers, after some lines; return the last number that was kept of each user."""
    words = [sys.executable, "-m", "tests.memories.killed_keeper", store, str(start)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = b"".join(process.stdout.readline() for _ in range(lines))
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
    whole = [line.split() for line in said.decode().splitlines(keepends=True) if line.endswith("\n")]
    return {int(who): int(number) for who, number in whole}


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_texts_and_index_are_there_together(tmp_path: Path) -> None:
    chance, path, start = random.Random(26), tmp_path / "kept.db", 1
    for _ in range(KILLS):
        last = kept_until_killed(f"sqlite:{path}", start, chance.randrange(1, 400))
        check_tables(path)
        async with keeper_on(f"sqlite:{path}") as keeper:
            for who in range(PEOPLE):
                memories = Memories(keeper, f"user {who}")
                newest = await memories.recall("", 50)
                assert len(newest) <= 20
                for each in newest:
                    assert each.id in [found.id for found in await memories.recall(each.text, 50)]
                    assert each.text.endswith(f"of user{who}")
                number = last.get(who, 0)
                if number and number % 7:
                    assert f"fact number{number} of user{who}" in [each.text for each in newest]
                start = max(start, number + 10)


def check_tables(path: Path) -> None:
    """Check that texts, order, counts and index belong together, record by record."""
    store = SqliteStore(path)
    store.open()
    try:
        assert list(store.problems()) == []
        texts = dict(records_of(store, "memories"))
        order = dict(records_of(store, "memory order"))
        owners = dict(records_of(store, "memory owners"))
        assert len(texts) == len(order)
        for owner, value in owners.items():
            mine = [key for key in texts if key.startswith(f"{owner}\0")]
            decoded = msgspec.json.decode(value)
            assert decoded["texts"] == len(mine)
            assert decoded["words"] == sum(msgspec.json.decode(texts[key])["words"] for key in mine)
            found = store.matching("memories", [], start=f"{owner}\0", stop=f"{owner}\x01")
            assert found is not None
            assert found.indexed == len(mine)
        (agents,) = store.get("memory agents", ["keeper"])
        assert agents is None or msgspec.json.decode(agents)["identities"] == len(owners)
    finally:
        store.close()
