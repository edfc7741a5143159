"""The two examples that the format was designed with: they validate, and run, as they are written there.

Without what needs a network. The second is run with fewer agents: it is as long as it is large.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.commands import called
from tests.matrix import few_or_all
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("weather.scenario.yaml", "gossip.simulation.yaml")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("acceptance") / "project"
    shutil.copytree(ROOT / "tests/scenario/acceptance", folder)
    (folder / "pyproject.toml").write_text("")
    return folder


def command(project: Path, *words: str) -> tuple[int, str]:
    # in a process of its own, as its modules have the names of ours
    ran = called(words, project, timeout=50)
    return ran.returncode, ran.stdout + ran.stderr


def test_they_validate(project: Path) -> None:
    code, said = command(project, "validate", *FILES)
    assert code == 0, said
    assert "weather-concierge-feedback, 9 runs, ok" in said
    assert "gossip-1000-crash, 15 runs, ok" in said


def test_the_first_runs(project: Path) -> None:
    code, said = command(project, "run", FILES[0])
    assert code == 0, said
    assert "9/9 runs passed" in said
    for name in ("junit.xml", "report.html", "sequence.mmd", "messages.jsonl"):
        assert (project / "out" / name).stat().st_size > 0, name


@pytest.mark.slow
def test_the_second_runs_with_fewer_agents(project: Path) -> None:
    text = (project / FILES[1]).read_text()
    for old, new in (("count: 1000", "count: 80"), ("count: 50,", "count: 4,"), ("count: 20,", "count: 5,")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (project / "small.simulation.yaml").write_text(text)
    again = few_or_all(("--check-determinism", "off"), ())
    code, said = command(project, "run", "small.simulation.yaml", "--seed", "1", *again)
    assert code == 0, said
    assert "3/3 runs passed" in said
    for name in ("junit.xml", "gossip.html", "runs.csv"):
        assert (project / "out" / name).stat().st_size > 0, name


def test_a_description_that_does_not_fit_is_refused(project: Path) -> None:
    described = project / "td/weather.td.json"
    whole = described.read_text()
    try:
        described.write_text(whole.replace('"giveFeedback"', '"takeFeedback"'))
        code, said = command(project, "validate", FILES[0])
        described.write_text(whole.replace("6f1d3a7a", "6f1d3a7b"))
        other, told = command(project, "validate", FILES[0])
    finally:
        described.write_text(whole)
    assert code == other == 2
    assert "weather.scenario.yaml:22:18: td/weather.td.json: " in said
    assert "takeFeedback" in said
    assert "it describes urn:uuid:6f1d3a7b" in told
