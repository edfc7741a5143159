"""Durable timers in a scenario: agents that crash at their turns, between them, and as they work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commands import called

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = """\
from lmos_actors import Agent, Property, every, prop


class Desk(Agent, durable=True, behaviours=("even", "odd")):
    ticks: Property[int] = prop(default=0, read_only=True)
    rung: Property[int] = prop(default=0, read_only=True)

    def started(self) -> None:
        if not self.restored:
            for n in range(20):
                self.after(0.5 + n, self.ring, n, durable=True)

    def ring(self, n: int) -> None:
        assert n == self.rung and self.behaviour == ("even", "odd")[n % 2]
        self.rung += 1
        self.become("odd" if self.behaviour == "even" else "even")

    @every(1, durable=True)
    def tick(self) -> None:
        self.ticks += 1
"""

SCENARIO = """\
lmos: simulation/v1
name: desks
seeds: {from: 1, count: 3}
stop: {at: 30500ms}

population:
  - {id: desk, count: 3, use: desks:Desk, service_time: 40ms}

timeline:
  - {at: 2s, do: fault, kind: crash, target: desk/0}
  - {at: 2510ms, do: fault, kind: crash, target: desk/1}
  - {at: 7530ms, do: fault, kind: crash, pick: {count: 2, of: desk}}
  - {at: 15020ms, do: fault, kind: crash, pick: {count: 2, of: desk}}

measure:
  every: 100ms
  series:
    ticks: {agg: sum, of: desk, expr: state.ticks}
    rung: {agg: sum, of: desk, expr: state.rung}

checks:
  - {check: eventually, name: all_tick, expr: series.ticks >= 90, by: 30400ms}
  - {check: always, name: none_ticks_twice, expr: series.ticks <= 90}
  - {check: eventually, name: all_ring, expr: series.rung >= 60, by: 30s}
  - {check: always, name: none_rings_twice, expr: series.rung <= 60}
  - {check: restarts, of: desk, ge: 6}
"""


@pytest.mark.slow
def test_each_timer_fires_once_however_its_agent_crashes(tmp_path: Path) -> None:
    (tmp_path / "desks.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "desks.yaml").write_text(SCENARIO, encoding="utf-8")
    ran = called(("run", "desks.yaml"), tmp_path, timeout=50)
    assert "3/3 runs passed" in ran.stdout, ran.stdout + ran.stderr
