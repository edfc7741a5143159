"""A process of durable agents is killed (SIGKILL) again and again: no answer is lost, none counts twice."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.matrix import few_or_all
from tests.persistence.killed_agents import AGENTS, JOURNALS

if TYPE_CHECKING:
    from pathlib import Path

KILLS = len(few_or_all(range(5), range(100)))
KILLS_OF_TIMERS = len(few_or_all(range(3), range(50)))

pytestmark = pytest.mark.timeout(600)


def life(path: Path, chance: random.Random, module: str = "killed_agents") -> dict[str, dict[int, int]]:
    """Run the process until so many answers have come, kill it, and return what it has written."""
    command = [sys.executable, "-m", f"tests.persistence.{module}", str(path)]
    seen: dict[str, dict[int, int]] = {"found": {}, "answer": {}, "saw": {}}
    lines, until = 0, AGENTS + JOURNALS + chance.randrange(1, 400)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # to the end of the pipe: what was written before the kill counts
            if not line.endswith("\n"):
                break
            kind, agent, n = line.split()
            seen[kind][int(agent)] = int(n)
            lines += 1
            if lines == until:
                process.kill()
    assert len(seen["found"]) == AGENTS + JOURNALS
    return seen


@pytest.mark.slow
def test_nothing_that_others_saw_is_taken_back_by_a_kill_and_no_request_counts_twice(tmp_path: Path) -> None:
    chance, answered = random.Random(19), dict.fromkeys(range(AGENTS + JOURNALS), 0)
    seen_by_others = dict(answered)
    for _ in range(KILLS):
        seen = life(tmp_path / "counters.db", chance)
        for agent, n in seen["found"].items():
            # one request of each agent was open: it was kept, or it was not, or half of it in a journal
            assert seen_by_others[agent] <= n <= answered[agent] + (1 if agent < AGENTS else 2)
        answered = seen["found"] | seen["answer"]
        seen_by_others = {agent: max(n, seen["saw"].get(agent, 0)) for agent, n in answered.items()}
    assert min(answered.values()) > 0
