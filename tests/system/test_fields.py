"""The type of a field decides whether it gets one ref or a tuple of refs, and never how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenario.test_guard import OFF, project as project

if TYPE_CHECKING:
    from tests.scenario.project import Project

CAST = '''\
from typing import Any
from lmos_actors import Agent, Ref, action, prop, Property

class Worker(Agent):
    """Counts."""
    done: Property[int] = prop(default=0, read_only=True)
    @action
    def work(self) -> None:
        self.done += 1

class Boss(Agent):
    """Gives each worker one thing to do, and counts them."""
    count: Property[int] = prop(default=0, read_only=True)
    def started(self) -> None:
        self.after(1.0, self.hand_out)
    def hand_out(self) -> None:
        assert type(self.workers) is tuple, type(self.workers)
        for each in self.workers:
            self.send(each, Worker.work)
        self.count = len(self.workers)

class Many(Boss):
    workers: tuple[Ref[Worker], ...]

class Optional(Boss):
    workers: tuple[Ref[Worker], ...] | None

class Anything(Boss):
    workers: Any

class One(Agent):
    """Knows one worker."""
    worker: Ref[Worker]
    count: Property[int] = prop(default=0, read_only=True)
    def started(self) -> None:
        self.after(1.0, self.hand_out)
    def hand_out(self) -> None:
        self.send(self.worker, Worker.work)
        self.count = 1

class Two(One):
    workers: tuple[Ref[Worker], ...]
'''
FILE = """\
lmos: simulation/v1
name: crowd
stop: {{at: 5s}}
seeds: {{from: 1, count: 1}}
agents:
{agents}
  spare: {{from: agent, use: "cast.py:Worker"}}
  other: {{from: agent, use: "cast.py:Two", args: {{workers: $(agents.worker), worker: $(agents.spare)}}}}
population:
  - {{id: worker, count: {count}, use: "cast.py:Worker"}}
{population}
measure: {{every: 1s, series: {{count: {{agg: sum, of: boss, expr: state.count}}}}}}
checks: [{{check: eventually, expr: series.count == {seen}, by: 4s}}]
"""
GIVEN = [
    ("Many", "{workers: $(agents.worker)}", 3, 3),
    ("Many", "{workers: $(agents.worker)}", 1, 1),
    ("Many", "{workers: [$(agents.spare)]}", 1, 1),
    ("Many", "{workers: [$(agents.worker), $(agents.spare)]}", 1, 2),
    ("Optional", "{workers: $(agents.worker)}", 1, 1),
    ("Anything", "{workers: $(agents.worker)}", 3, 3),
    ("Anything", "{workers: $(agents.worker)}", 1, 1),
    ("One", "{worker: $(agents.worker)}", 1, 1),
    ("One", "{worker: $(agents.spare)}", 1, 1),
]
WRONG = [
    ("One", "{worker: $(agents.worker)}", 3, 'one ref is expected here, "worker" are 3'),
    ("Many", "{workers: $(agents.spare)}", 1, "refs to several agents are expected here: [$(agents.spare)]"),
    ("Many", "{workers: [$(agents.worker)]}", 3, 'one ref is expected here, "worker" are 3'),
]


def file_of(use: str, args: str, count: int, seen: int = 1, *, single: bool = True) -> str:
    agents, population = f'  boss: {{from: agent, use: "cast.py:{use}", args: {args}}}', ""
    if not single:
        agents, population = "", f'  - {{id: boss, count: 1, use: "cast.py:{use}", args: {args}}}'
    return FILE.format(agents=agents, population=population, count=count, seen=seen)


@pytest.mark.parametrize(("use", "args", "count", "seen"), GIVEN)
@pytest.mark.parametrize("single", [True, False], ids=["agent", "population"])
def test_a_field_gets_what_its_type_declares(
    project: Project, use: str, args: str, count: int, seen: int, single: bool
) -> None:
    project.write("cast.py", CAST)
    ran = project.command(
        "run", project.write("crowd.yaml", file_of(use, args, count, seen, single=single)), *OFF
    )
    assert ran.code == 0, ran.out + ran.err
    assert "crashed" not in ran.out


@pytest.mark.parametrize(("use", "args", "count", "text"), WRONG)
def test_validate_sees_what_cannot_fit(project: Project, use: str, args: str, count: int, text: str) -> None:
    project.write("cast.py", CAST)
    told = project.command("validate", project.write("crowd.yaml", file_of(use, args, count)))
    assert told.code != 0
    assert text in " ".join(told.err.split())
