"""Files with a network in `memory` and in `wire`: what comes of everything is the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lmos_actors.scenario import load_scenario, run_cell
from tests.matrix import examples
from tests.scenario.talkers import OUTCOMES, TIMES

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

COUNT = 3
END = 400
CLOSE = 0.6
"""Seconds by which what happens in one world may come later than in the other: some round trips."""


def text_of(world: str, script: list[Any], timeline: list[Any], network: dict[str, Any], **more: Any) -> str:
    """Write a file; a JSON text is YAML too."""
    talker = {
        "id": "talker",
        "count": COUNT,
        "use": "tests.scenario.talkers:Talker",
        "args": {"number": "$(population.index)", "script": script},
    }
    whole = {
        "lmos": "simulation/v1",
        "name": "talk",
        "world": world,
        "stop": {"at": f"{END}s"},
        "network": network,
        "population": [talker],
        "topology": {"kind": "complete", "of": "talker", "field": "others"},
        "timeline": timeline,
        **more,
    }
    return json.dumps(whole, indent=1)


@attrs.frozen
class Told:
    """What came of a run."""

    result: RunResult
    outcomes: dict[int, Any]
    times: dict[int, float]

    @property
    def network(self) -> list[dict[str, Any]]:
        """The records of what the network did."""
        return [each for each in map(json.loads, self.result.log) if each["kind"] == "network"]


def run_in(folder: Path, world: str, *args: Any, **more: Any) -> Told:
    path = folder / f"{world}.yaml"
    path.write_text(text_of(world, *args, **more), encoding="utf-8")
    OUTCOMES.clear()
    TIMES.clear()
    resolved = load_scenario(path)
    result = run_cell(resolved, resolved.cells[0], 0)
    return Told(result, dict(OUTCOMES), dict(TIMES))


# ---- random files: the same in both worlds


VERBS = ("invoke", "slowly", "within", "read", "tell", "subscribe")
PAIRS = [(here, there) for here in range(COUNT) for there in range(COUNT) if here != there]
TALKERS = [f"talker/{number}" for number in range(COUNT)]


APART = 0.017
"""Seconds between two lines of the same second, so that nothing of them comes at the same instant."""


def written(lines: list[tuple[int, tuple[int, int], str]]) -> list[dict[str, Any]]:
    """Write a script."""
    return [
        {"at": second + APART * (number + 1), "who": who, "to": to, "verb": verb}
        for number, (second, (who, to), verb) in enumerate(lines)
    ]


LINES = st.lists(
    st.tuples(st.integers(1, 250), st.sampled_from(PAIRS), st.sampled_from(VERBS)), min_size=1, max_size=8
).map(written)


@st.composite
def faults(draw: Any) -> dict[str, Any]:
    """Draw a fault that no line of a script meets: they begin and end between two seconds."""
    kind = draw(st.sampled_from(("partition", "one way", "reset", "hang", "latency")))
    entry: dict[str, Any] = {"at": f"{draw(st.integers(0, 250))}.5s", "do": "fault"}
    lasts = {"duration": f"{draw(st.sampled_from((1, 3, 10, 30, 70, 120)))}s"}
    between = {"between": [TALKERS[number] for number in draw(st.sampled_from(PAIRS))]}
    if kind in ("partition", "one way"):
        alone = draw(st.sampled_from(TALKERS))
        return {
            **entry,
            **lasts,
            "kind": "partition",
            "sides": [[alone], "rest"],
            "one_way": kind == "one way",
        }
    if kind == "latency":
        return {**entry, **lasts, **between, "kind": "latency", "delay": "100ms"}
    if kind == "hang":
        return {**entry, **lasts, **between, "kind": "disconnect", "how": "hang"}
    return {**entry, **between, "kind": "disconnect"}


def numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**entry, "id": f"fault{number}"} for number, entry in enumerate(entries)]


@settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    script=LINES,
    timeline=st.lists(faults(), max_size=4).map(numbered),
    latency=st.sampled_from((20, 50)),
)
def test_what_comes_of_everything_is_the_same_in_both_worlds(
    tmp_path: Path, script: list[Any], timeline: list[Any], latency: int
) -> None:
    network = {"default": {"latency": f"{latency}ms"}}
    memory = run_in(tmp_path, "memory", script, timeline, network)
    wire = run_in(tmp_path, "wire", script, timeline, network)
    assert wire.outcomes == memory.outcomes
    assert wire.times == pytest.approx(memory.times, abs=CLOSE)
    assert (wire.result.ended, wire.result.failures) == (memory.result.ended, memory.result.failures)
