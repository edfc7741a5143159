"""The fault `clock_skew` of files: in both simulated worlds, and what files may say of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError, Offset
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project
from tests.scenario.steps import answers, inject, invoke

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = """\
from __future__ import annotations

import trio

from lmos_actors import Agent, action


class Watch(Agent):
    fired_at: float = 0.0

    @action
    def ahead(self, of: float = 0.0) -> float:
        return round(self.now().timestamp() - trio.current_time() - of, 3)

    @action
    def begin(self) -> None:
        self.after(3.0, self.fire)

    def fire(self) -> None:
        self.fired_at = trio.current_time()

    @action
    def fired(self) -> float:
        return self.fired_at
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("watches.py", AGENTS)
    yield made
    sys.path[:] = path
    sys.modules.pop("watches", None)


def file(project: Project, *steps: Any, **more: Any) -> str:
    whole = {
        "lmos": "scenario/v1",
        "name": "clocks",
        "agents": {"watch": {"from": "agent", "use": "watches.py:Watch"}},
        "steps": list(steps),
        **more,
    }
    return str(project.root / project.write("clocks.yaml", json.dumps(whole, indent=1)))


def skew(**fault: Any) -> dict[str, Any]:
    return inject("clock_skew", id="skewed", **{"target": "watch", "duration": "4s", **fault})


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_an_agent_sees_another_date_and_its_timers_take_another_time(project: Project, world: str) -> None:
    steps = [
        invoke("ahead", "watch", save={"right": "$.output"}),
        skew(skew="-3s", rate=1.5),
        invoke("begin", "watch"),
        {"do": "wait", "for": "2s"},
        invoke("fired", "watch", id="fired"),
        invoke("ahead", "watch", id="during", input={"of": "$(saved.right)"}),
        {"do": "wait", "for": "2s"},
        invoke("ahead", "watch", id="after", input={"of": "$(saved.right)"}),
        answers("fired", 2.0),
        answers("during", -2.0),
        answers("after", 0.0),
    ]
    resolved = load_scenario(file(project, *steps, world=world))
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    assert result.failures == ()
    (fault,) = result.faults
    assert (fault.kind, fault.targets, fault.end) == ("clock_skew", ("watch",), fault.begin + 4)


MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, 'a clock that is right: one of "skew" and "rate" says how it is not'),
    ({"skew": "0s", "rate": 1}, {}, 'a clock that is right: one of "skew" and "rate" says how it is not'),
    ({"skew": "3"}, {}, "did you mean '3s'"),
    ({"rate": 0}, {}, "0.001"),
    ({"skew": "3s", "duration": "0s"}, {}, "a fault of no duration does nothing"),
    ({"skew": "3s", "target": "wach"}, {}, 'no agent "wach", did you mean "watch"?'),
    ({"skew": "3s"}, {"world": "websocket"}, '"kind: clock_skew" is for simulated nodes and disks'),
]


@pytest.mark.parametrize(("fault", "more", "message"), MISTAKES)
def test_mistakes(project: Project, fault: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError) as caught:
        load_scenario(file(project, skew(**fault), invoke("begin", "watch"), **more))
    assert any(message in mistake.message for mistake in caught.value.mistakes), str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3s", 3.0), ("-40ms", -0.04), ("-1.5h", -5400.0), ("0s", 0.0)]
)
def test_offsets(text: str, seconds: float) -> None:
    offset = Offset.parse(text)
    assert offset == seconds
    assert Offset.parse(str(offset)) == offset


@pytest.mark.parametrize("text", ["--3s", "-", "- 3s", "+3s"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        Offset.parse(text)
