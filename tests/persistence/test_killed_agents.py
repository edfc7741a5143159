"""A process of durable agents is killed (SIGKILL) again and again: no answer is lost, none counts twice."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.matrix import few_or_all
from tests.persistence.killed_agents import AGENTS, JOURNALS
from tests.persistence.stores import PLACES
from tests.redis_server import needs_redis

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = len(few_or_all(range(3), range(6)))
KILLS_OF_TIMERS = len(few_or_all(range(3), range(6)))

pytestmark = pytest.mark.timeout(600)

every_lasting_place = pytest.mark.parametrize(
    "place", [PLACES["sqlite"], pytest.param(PLACES["redis"], marks=needs_redis)], ids=["sqlite", "redis"]
)
"""The stores that outlive a process."""


def life(
    store: str, chance: random.Random, module: str = "killed_agents", agents: int = AGENTS + JOURNALS
) -> dict[str, dict[int, int]]:
    """Run the process until so many answers have come, kill it, and return what it has written."""
    command = [sys.executable, "-m", f"tests.persistence.{module}", store]
    seen: dict[str, dict[int, int]] = {"found": {}, "answer": {}, "saw": {}}
    lines, until = 0, agents + chance.randrange(1, 400)
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
    assert len(seen["found"]) == agents
    return seen


@pytest.mark.slow
@every_lasting_place
def test_nothing_that_others_saw_is_taken_back_by_a_kill_and_no_request_counts_twice(
    place: Callable[[Path], str], tmp_path: Path
) -> None:
    chance, answered = random.Random(19), dict.fromkeys(range(AGENTS + JOURNALS), 0)
    seen_by_others = dict(answered)
    for _ in range(KILLS):
        seen = life(place(tmp_path), chance)
        for agent, n in seen["found"].items():
            # one request of each agent was open: it was kept, or it was not, or half of it in a journal
            assert seen_by_others[agent] <= n <= answered[agent] + (1 if agent < AGENTS else 2)
        answered = seen["found"] | seen["answer"]
        seen_by_others = {agent: max(n, seen["saw"].get(agent, 0)) for agent, n in answered.items()}
    assert min(answered.values()) > 0


@pytest.mark.slow
@every_lasting_place
def test_each_timer_has_fired_once_wherever_its_process_is_killed(
    place: Callable[[Path], str], tmp_path: Path
) -> None:
    """A timer that was lost would end its chain, and one that fired twice would say so."""
    chance, seen = random.Random(19), dict.fromkeys(range(AGENTS), 0)
    for _ in range(KILLS_OF_TIMERS):
        lines = life(place(tmp_path), chance, "killed_timers", AGENTS)
        assert all(n >= seen[agent] for agent, n in lines["found"].items())
        seen = lines["found"] | lines["answer"]
    assert min(seen.values()) > KILLS_OF_TIMERS
