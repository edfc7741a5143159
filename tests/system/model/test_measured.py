"""Empirical distributions whose values are in a file beside the scenario file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError, read
from lmos_actors.scenario.explore import plain_cells, yaml_of
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import log_header, run_cell
from tests.scenario.project import Project

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = '''\
from __future__ import annotations

from lmos_actors import Agent, Ref, action


class Clock(Agent):
    """Is asked."""

    period: float = 1.0
    count: int = 0

    @action
    def look(self) -> tuple[float, int]:
        return self.period, self.count


class Reader(Agent):
    """Asks."""

    clock: Ref[Clock]

    @action
    async def read(self) -> tuple[float, int]:
        return await self.clock.invoke(Clock.look)
'''

SCENARIO: dict[str, Any] = {
    "lmos": "scenario/v1",
    "name": "measured",
    "network": {"default": {"latency": {"dist": "empirical", "file": "measured.csv"}}},
    "agents": {
        "clock": {"from": "agent", "use": "measured_clock.py:Clock"},
        "reader": {
            "from": "agent",
            "use": "measured_clock.py:Reader",
            "args": {"clock": "$(agents.clock)"},
        },
    },
    "steps": [
        {"do": "repeat", "times": 30, "steps": [{"do": "invoke", "target": "reader", "action": "read"}]}
    ],
}

SIMULATION: dict[str, Any] = {
    "lmos": "simulation/v1",
    "name": "measured",
    "stop": {"at": "2s"},
    "population": [
        {
            "id": "clock",
            "count": 20,
            "use": "measured_clock.py:Clock",
            "args": {"period": {"dist": "empirical", "file": "measured.csv"}},
        }
    ],
    "timeline": [
        {"at": "1s", "do": "invoke", "target": f"clock/{number}", "action": "look"} for number in range(20)
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("measured")
    (root.parent / "secret").write_text("SECRET\n")
    Project(root).write("pyproject.toml", "")
    Project(root).write("measured_clock.py", AGENTS)
    return root


def written(folder: Path, values: str, whole: dict[str, Any], **keys: str) -> Path:
    """Write both files; `keys` are further ones of the distribution."""
    text = json.dumps(whole)
    assert '"file": "measured.csv"' in text
    more = "".join(f', "{key}": "{value}"' for key, value in keys.items() if key != "file")
    file = keys.get("file", "measured.csv")
    (folder / "measured.csv").write_bytes(values.encode("utf-8", "surrogateescape"))
    path = folder / "file.yaml"
    path.write_text(text.replace('"file": "measured.csv"', f'"file": "{file}"{more}'), encoding="utf-8")
    return path


def answers(path: Path) -> list[tuple[float, Any]]:
    """Return when the questions of a run were answered, and with what."""
    resolved = load_scenario(path)
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.failures == ()
    records = [each for each in map(json.loads, result.log) if "kind" in each]
    return [
        (each["t"], each["value"])
        for each in records
        if each["kind"] == "answered" and each["affordance"] in ("read", "look") and each["agent"] != "clock"
    ]


LATENCIES = [
    ("10ms\n30ms\n", {}),
    ("# ping\r\n\r\n 10ms \r\n0.03s", {}),
    ("\ufeff10\n30\n", {"unit": "ms"}),
    ("n,rtt\n1,10\n2, 30 \n", {"column": "rtt", "unit": "ms"}),
    ('n,"rtt, in all"\n"1, the first","10ms"\n2,"30ms"\n', {"column": "rtt, in all"}),
]


@pytest.mark.parametrize(("values", "keys"), LATENCIES)
def test_latencies_of_a_file(folder: Path, values: str, keys: dict[str, str]) -> None:
    """The way there and back, each of which takes the one or the other."""
    ends = [when for when, value in answers(written(folder, values, SCENARIO, **keys)) if value]
    took = {round(later - earlier, 6) for earlier, later in zip([0.0, *ends], ends, strict=False)}
    assert took == {0.02, 0.04, 0.06}


def test_arguments_of_a_file(folder: Path) -> None:
    found = [value for _, value in answers(written(folder, "1.5\n-3\n", SIMULATION))]
    assert {period for period, _ in found} == {1.5, -3.0}
    found = [value for _, value in answers(written(folder, "250ms", SIMULATION))]
    assert {period for period, _ in found} == {0.25}


def test_a_file_that_explore_writes_has_the_values(folder: Path) -> None:
    path = written(folder, "n,rtt\n1,10\n2,30\n", SCENARIO, column="rtt", unit="ms")
    before = answers(path)
    (plain,) = plain_cells(read(path), {})
    assert plain["network"]["default"]["latency"] == {"dist": "empirical", "values": ["10ms", "30ms"]}
    (folder / "measured.csv").unlink()
    path.write_text(yaml_of(plain), encoding="utf-8")
    assert answers(path) == before


def test_the_log_knows_the_file(folder: Path) -> None:
    """So that a replay says that it has changed."""
    resolved = load_scenario(written(folder, "10ms", SCENARIO))
    assert "measured.csv" in str(log_header(resolved, resolved.cells[0], 1)["sources"])


def test_what_only_looks_like_a_distribution_is_left_alone(folder: Path) -> None:
    step = {
        "do": "invoke",
        "target": "reader",
        "action": "read",
        "input": {"delay": {"dist": "empirical", "file": "measured.csv"}},
    }
    with pytest.raises(FileError) as caught:
        load_scenario(written(folder, "10ms", {**SCENARIO, "network": {}, "steps": [step]}))
    assert "delay" in str(caught.value)


BAD = [
    ("10ms\nx\n", {}, "measured.csv", 2, 1, "'x' is not a duration"),
    ("10ms\n\n  20\n", {}, "measured.csv", 3, 3, "20 has no unit: write 20ms"),
    ("10\n", {}, "measured.csv", 1, 1, 'or say "unit: ms"'),
    ("10\n-1\n", {"unit": "s"}, "measured.csv", 2, 1, "-1 is below zero"),
    ("10\nnan\n", {"unit": "s"}, "measured.csv", 2, 1, "nan is not a finite number"),
    ("1e30\n", {"unit": "s"}, "measured.csv", 1, 1, "longer than 100000h"),
    ("", {}, "measured.csv", 1, 1, "no values"),
    ("# nothing\n", {}, "measured.csv", 1, 1, "no values"),
    ("n,rtt\n1,10ms\n2\n", {"column": "rtt"}, "measured.csv", 3, 1, 'no "rtt": 1 columns of 2'),
    ("n,rtt\n1,10ms\n2,  y\n", {"column": "rtt"}, "measured.csv", 3, 5, "'y' is not a duration"),
    ("n,rtt\n1,10ms\n", {"column": "rtts"}, "file.yaml", 1, 136, 'no column "rtts", did you mean "rtt"?'),
    ("10ms", {"file": "mesured.csv"}, "file.yaml", 1, 110, 'no such file, did you mean "measured.csv"?'),
    ("10ms\n\udcff\n", {}, "measured.csv", 2, 1, "is not UTF-8"),
    ("10ms", {"unit": "days"}, "file.yaml", 1, 134, "days"),
    ("1ms\n" * 10_001, {}, "measured.csv", 10_001, 1, "more than 10,000 values"),
    ("10ms", {"colum": "rtt"}, "file.yaml", 1, 126, 'did you mean "column"?'),
    ("1" * (1 << 20) + "\n", {}, "file.yaml", 1, 110, "is larger than 1MiB"),
    ("10ms", {"file": "../secret"}, "file.yaml", 1, 110, "is outside the project root"),
    ("10ms", {"file": "/etc/passwd"}, "file.yaml", 1, 110, '"/etc/passwd" is outside the project root'),
]


@pytest.mark.parametrize(("values", "keys", "file", "line", "column", "why"), BAD)
def test_mistakes_are_at_their_place(
    folder: Path, values: str, keys: dict[str, str], file: str, line: int, column: int, why: str
) -> None:
    path = written(folder, values, SCENARIO, **keys)
    with pytest.raises(FileError) as caught:
        load_scenario(path)
    found = [(each.file.rpartition("/")[2], each.line, each.column) for each in caught.value.mistakes]
    assert found == [(file, line, column)], caught.value
    assert why in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_values_may_be_elsewhere_in_the_project(folder: Path) -> None:
    (folder / "values").mkdir(exist_ok=True)
    (folder / "values" / "rtt.csv").write_text("10ms\n")
    assert answers(written(folder, "1s", SCENARIO, file="values/../values/rtt.csv"))
    (folder / "values" / "link.csv").symlink_to(folder.parent / "secret")
    with pytest.raises(FileError, match="is outside the project root"):
        load_scenario(written(folder, "1s", SCENARIO, file="values/link.csv"))


def test_numbers_and_durations_do_not_mix(folder: Path) -> None:
    with pytest.raises(FileError) as caught:
        load_scenario(written(folder, "1ms\n1\n", SIMULATION))
    assert "measured.csv:2:1" in str(caught.value)
    assert "give all a unit, or none" in str(caught.value)
