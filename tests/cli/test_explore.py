"""`explore` as its users see it: what it finds and writes, how it goes on, its exit codes. Real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli.explore import ExploreShow, find_lines
from lmos_actors.files import parse
from lmos_actors.reports import CheckResult, Failure, RunResult
from lmos_actors.scenario.explore import (
    Finds,
    Folder,
    Outcome,
    ScheduledFault,
    explored as shown,
    faults_of,
    with_schedule,
)
from lmos_actors.scenario.run import RunLost
from tests.commands import started
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.scenario.explore import Data, Find

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes are ended as POSIX has it")

PATIENCE = 150.0
"""Seconds after which a process is taken to hang."""

CAST = """
from lmos_actors import Agent, Property, Ref, action, prop


class Ledger(Agent):
    back: Property[bool] = prop(default=False, read_only=True)

    def started(self) -> None:
        self.highest = {}

    @action
    def note(self, index: int, number: int) -> None:
        self.back = self.back or number < self.highest.get(index, 0)
        self.highest[index] = number


class Counter(Agent):
    '''Counts what it sends. Planted: it begins anew after a crash.'''

    ledger: Ref[Ledger]
    index: int = 0
    number: int = 0

    def started(self) -> None:
        self.after(1.0, self.count)

    def count(self) -> None:
        self.after(1.0, self.count)
        self.number += 1
        self.send(self.ledger, Ledger.note, self.index, self.number)

    @action
    def sum(self) -> int:
        return self.number


class Spinning(Ledger):
    @action
    def note(self, index: int, number: int) -> None:
        while number < self.highest.get(index, 0):
            pass
        self.highest[index] = number


class Stubborn(Ledger):
    def started(self) -> None:
        raise OSError("no such device")


class Fickle(Agent):
    value: Property[int] = prop(default=0, read_only=True)

    def started(self) -> None:
        self.value = hash("fickle") % 1000
"""
COUNTING: dict[str, Any] = {
    "lmos": "simulation/v1",
    "name": "counting",
    "stop": {"at": "20s"},
    "agents": {"ledger": {"from": "agent", "use": "cast.py:Ledger"}},
    "population": [
        {
            "id": "counter",
            "count": 3,
            "use": "cast.py:Counter",
            "args": {"ledger": "$(agents.ledger)", "index": "$(population.index)"},
        }
    ],
    "explore": {"faults": ["crash", "pause"], "at_most": 3, "of": "counter"},
    "checks": [{"check": "never", "name": "back", "of": "ledger", "when": {"expr": "state.back"}}],
}
STORY: dict[str, Any] = {
    "lmos": "scenario/v1",
    "name": "story",
    "agents": {
        "ledger": {"from": "agent", "use": "cast.py:Ledger"},
        "counter": {"from": "agent", "use": "cast.py:Counter", "args": {"ledger": "$(agents.ledger)"}},
    },
    "explore": {"faults": ["crash"], "at_most": 2, "of": "counter"},
    "steps": [
        {"do": "wait", "for": "5500ms"},
        {"do": "invoke", "id": "sum", "target": "counter", "action": "sum"},
        {"do": "wait", "for": "4s"},
        {"do": "expect", "that": "output", "of": "sum", "equals": 5},
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_in(tmp_path)


def project_in(folder: Path, **more: Any) -> Project:
    made = Project(folder)
    made.write("cast.py", CAST)
    made.write("town.yaml", json.dumps({**COUNTING, **more}))
    return made


def explored(project: Project, *words: str, file: str = "town.yaml") -> dict[str, Any]:
    """Explore with `--json`, and return what it prints."""
    ran = project.command("explore", file, "--json", *words, timeout=PATIENCE)
    data: dict[str, Any] = json.loads(ran.out)
    assert data["exit_code"] == ran.code, ran.err
    return data


def test_a_failure_is_found_shrunk_and_fails_by_itself(project: Project) -> None:
    ran = project.command("explore", "town.yaml", "--runs", "200", timeout=PATIENCE)
    assert ran.code == 1, ran
    assert "found  check never back fails with 1 fault (crash counter/0" in ran.out
    assert "wrote town.found-1.yaml  (2 agents, 1 fault, seed 1)" in ran.out
    assert "again:  lmos-actors run town.found-1.yaml" in ran.out
    text = (project.root / "town.found-1.yaml").read_text()
    assert text.startswith("# Found by lmos-actors explore town.yaml: check never back fails with 1 fault")
    assert "explore:" not in text
    assert "drawn" not in text
    again = project.command("run", "town.found-1.yaml")
    assert (again.code, "same log in a second process: 1 of 1" in again.out) == (1, True)
    log = (project.root / "town.found-1.jsonl").read_text().splitlines()
    assert json.loads(log[0])["run"]["file"] == "town.found-1.yaml"
    replayed = project.command("replay", "town.found-1.jsonl")
    assert replayed.code == 0, replayed


@pytest.mark.slow
def test_the_same_is_found_with_any_number_of_processes(tmp_path: Path) -> None:
    found: list[tuple[str, str]] = []
    for workers in ("1", "3"):
        folder = tmp_path / workers
        folder.mkdir()
        project = project_in(folder)
        explored(project, "--runs", "65", "-j", workers, "--seed", "3")
        runs = (folder / ".lmos/explore/town/runs.jsonl").read_text()
        found.append((runs, (folder / "town.found-1.yaml").read_text()))
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_search_for_minutes_is_the_beginning_of_the_same_search(tmp_path: Path) -> None:
    lines: list[list[str]] = []
    for words in (("--minutes", "0.05"), ("--runs", "20")):
        folder = tmp_path / words[0]
        folder.mkdir()
        explored(project_in(folder, explore={"faults": ["pause"]}), *words)
        lines.append((folder / ".lmos/explore/town/runs.jsonl").read_text().splitlines())
    shorter, longer = sorted(lines, key=len)
    assert len(shorter) > 1
    assert longer[: len(shorter)] == shorter


@pytest.mark.slow
def test_a_file_in_which_nothing_fails_says_what_was_searched(project: Project) -> None:
    project.write("town.yaml", json.dumps({**COUNTING, "explore": {"faults": ["pause"], "of": ["counter"]}}))
    ran = project.command("explore", "town.yaml", "--runs", "10", timeout=PATIENCE)
    assert ran.code == 0
    assert "nothing failed in 10 runs of counting: up to 3 faults of pause on counter; " in ran.out
    assert not list(project.root.glob("*found*"))


@pytest.mark.slow
def test_a_file_in_which_everything_fails_shrinks_to_almost_nothing(project: Project) -> None:
    check = {"check": "always", "name": "no", "of": "counter", "expr": "state.number < 0"}
    project.write("town.yaml", json.dumps({**COUNTING, "checks": [check]}))
    data = explored(project, "--runs", "100")
    assert data["exit_code"] == 1
    (found,) = data["found"]
    assert (found["faults"], found["shrunk"], found["run"]) == (0, True, 1)
    assert found["agents"] <= 2


@pytest.mark.slow
def test_what_fails_only_sometimes_with_one_seed_is_not_shrunk(project: Project) -> None:
    """The hash of a text is another in the second process."""
    shown = subprocess.run(
        [sys.executable, "-c", "print(hash('fickle') % 1000)"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    check = {
        "check": "never",
        "name": "odd",
        "of": "fickle",
        "when": {"expr": f"state.value == {int(shown)}"},
    }
    population = [{"id": "fickle", "count": 2, "use": "cast.py:Fickle"}]
    explore = {"faults": ["crash"]}
    file = {**COUNTING, "agents": {}, "population": population, "checks": [check], "explore": explore}
    project.write("town.yaml", json.dumps(file))
    ran = project.command("explore", "town.yaml", "--runs", "5", timeout=PATIENCE, PYTHONHASHSEED="0")
    assert ran.code == 4, ran
    assert "not shrunk, as two runs of it differ" in ran.out
    assert "(2 agents" in ran.out


@pytest.mark.slow
def test_what_could_not_run_was_not_searched(project: Project) -> None:
    agents = {"ledger": {"from": "agent", "use": "cast.py:Stubborn"}}
    project.write("town.yaml", json.dumps({**COUNTING, "agents": agents}))
    ran = project.command("explore", "town.yaml", "--runs", "5", timeout=PATIENCE)
    assert (ran.code, "start ledger: OSError: no such device" in ran.err) == (3, True), ran
    assert ran.out.startswith("counting could not run, so nothing was searched; ")
    assert not list(project.root.glob("*found*"))


@pytest.mark.slow
def test_what_takes_too_long_is_found_and_not_shrunk(project: Project) -> None:
    agents = {"ledger": {"from": "agent", "use": "cast.py:Spinning"}}
    explore = {"faults": ["crash"], "of": "counter", "from": "5s", "to": "9s"}
    project.write("town.yaml", json.dumps({**COUNTING, "agents": agents, "explore": explore}))
    words = ("--runs", "2", "--time-limit", "500ms")
    ran = project.command("explore", "town.yaml", *words, timeout=PATIENCE)
    assert ran.code == 124, ran
    assert "found  a run takes too long in real time: --time-limit is how long it may" in ran.out
    assert "not shrunk, as each run on the way would take as long" in ran.out
    again = "lmos-actors run town.found-1.yaml --time-limit 500ms"
    assert f"again:  {again}" in ran.out
    assert f"# Again: {again}" in (project.root / "town.found-1.yaml").read_text()
    assert not (project.root / "town.found-1.jsonl").exists()
    assert project.command(*again.split()[1:]).code == 124


def test_what_only_takes_its_time_is_no_find() -> None:
    run = shown(RunLost("the run, on this machine", slow=True))
    assert (run.slow, run.failures, run.outcome) == (True, (), Outcome(void=True))


@pytest.mark.slow
def test_faults_beside_the_steps_of_a_scenario(project: Project) -> None:
    project.write("story.yaml", json.dumps(STORY))
    data = explored(project, "--runs", "65", file="story.yaml")
    assert data["exit_code"] == 1
    assert {(each["faults"], each["shrunk"]) for each in data["found"]} == {(1, True)}, data
    assert "expect output sum: #" in [each["failure"] for each in data["found"]]
    assert project.command("run", data["found"][0]["file"]).code == 1


# --- going on


@pytest.mark.slow
def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    (tmp_path / "once").mkdir()
    quiet = {"faults": ["pause"], "of": "counter"}
    twice, once = project_in(tmp_path / "twice", explore=quiet), project_in(tmp_path / "once", explore=quiet)
    assert explored(twice, "--runs", "30")["resumed"] == 0
    on = explored(twice, "--runs", "90")
    whole = explored(once, "--runs", "90")
    assert (on["runs"], on["resumed"], whole["resumed"]) == (90, 30, 0)
    assert on["states"] == whole["states"] > 0
    assert explored(twice, "--runs", "10", "--fresh")["resumed"] == 0


@pytest.mark.slow
def test_what_was_found_is_run_again_once_the_agents_have_changed(project: Project) -> None:
    assert explored(project, "--runs", "100")["exit_code"] == 1
    project.write("cast.py", CAST + "\n# a remark\n")
    still = project.command("explore", "town.yaml", "--runs", "2", timeout=PATIENCE)
    assert (still.code, "town.found-1.yaml: still fails" in still.err) == (1, True)
    project.write("cast.py", CAST.replace("number < self.highest.get(index, 0)", "number < 0"))
    fixed = project.command("explore", "town.yaml", "--runs", "2", timeout=PATIENCE)
    assert (fixed.code, "town.found-1.yaml: fails no longer" in fixed.err) == (0, True)
    assert (project.root / "town.found-1.yaml").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_how_far_it_was(project: Project) -> None:
    project.write("town.yaml", json.dumps({**COUNTING, "explore": {"faults": ["pause"]}}))
    place = project.root / ".lmos/explore/town/runs.jsonl"
    with started(["explore", "town.yaml", "--runs", "100000"], project.root) as command:
        while command.poll() is None and (not place.exists() or place.read_text().count("\n") < 5):
            pass
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(PATIENCE)
    assert command.returncode == 130, (out, err)
    assert "nothing failed in " in out
    lines = place.read_text().count("\n") - 1
    assert explored(project, "--runs", str(lines))["resumed"] == lines


class ScriptedRuns:
    """Runs that fail with one fault alone, until an interrupt comes after `most` of them.

    Files that are written fail too, the first so many times.
    """

    def __init__(self, most: int, failing: int = 100) -> None:
        self.left = most
        self.failing = failing

    def first(self, files: Sequence[Data], is_one: Any) -> int | None:
        for number, data in enumerate(files):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            if len(faults_of(data)) == 1:
                return number
        return None

    def written(self, file: str, seed: int, *, second: bool) -> RunResult:
        check = CheckResult(name="one", kind="never", ok=False, expected="never x", saw="at 3 s x", at=3.0)
        plain: dict[str, Any] = dict.fromkeys(("steps", "steps_done", "checks", "checks_passed"), 0)
        plain |= {"virtual": 1.0, "real": 1.0, "digest": "", "label": "", "values": {}, "seed": 1, "trial": 1}
        self.failing -= 1
        if self.failing < 0:
            return RunResult(ended="passed", failures=(), judged=(), log=("{}",), **plain)
        failure = Failure("x", "check never one", "never x", "at 3 s x")
        return RunResult(ended="failed", failures=(failure,), judged=(check,), log=("{}",), **plain)

    def drain(self) -> None:
        pass


def written(path: str, text: str) -> None:
    Path(path).write_text(text)


def shrunk(folder: Path, runs: ScriptedRuns) -> Find:
    """Take a failure with three faults, and shrink it as far as the runs go."""
    kept = Folder(folder, folder / "town.yaml", written)
    kept.path.mkdir(parents=True)
    made: Any = runs
    finds = Finds(str(folder / "town.yaml"), kept, made, ExploreShow(json=True), None)
    drawn = [
        ScheduledFault(at=at * 1_000_000, permit=0, data={"kind": "crash", "target": f"counter/{at}"})
        for at in range(3)
    ]
    with suppress(KeyboardInterrupt):
        finds.add("check never one: broken", with_schedule(COUNTING, 1, drawn), 7)
    (find,) = kept.finds
    (again,) = json.loads((kept.path / "found.json").read_text())
    assert again["data"] == find.data
    return find


@pytest.mark.parametrize(("runs", "faults"), [(1, 3), (5, 1), (20, 1)])
def test_an_interrupted_shrink_leaves_the_simplest_file_that_fails(
    tmp_path: Path, runs: int, faults: int
) -> None:
    find = shrunk(tmp_path, ScriptedRuns(runs))
    written = parse(Path(find.file).read_text(), name="").data
    assert (written, find.shrunk, find.difference) == (find.data, False, "")
    assert len(faults_of(find.data)) == faults
    assert Path(find.log).read_text() == "{}\n"
    assert find_lines(find)[1] == " not shrunk to the end"


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        (0, " not shrunk, as two runs of it differ: in the search it failed, by itself it does not"),
        (1, " not shrunk, as two runs of it differ: with another hash seed, in a second process, it does"),
        (2, " shrunk, but two runs of it differ: in the search it failed, by itself it does not"),
        (4, " wrote "),
    ],
)  # fmt: skip
def test_what_fails_only_sometimes_is_said_to(tmp_path: Path, failing: int, line: str) -> None:
    assert find_lines(shrunk(tmp_path, ScriptedRuns(10_000, failing)))[1].startswith(line)


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)  # for two searches, each of which may take that long
def test_ctrl_c_while_it_shrinks_keeps_what_was_found(project: Project) -> None:
    """The file that is there then fails, and the next call shrinks it to the end."""
    crowd = [{**COUNTING["population"][0], "count": 12}]
    project.write("town.yaml", json.dumps({**COUNTING, "population": crowd}))
    log = project.root / "town.found-1.jsonl"
    with started(["explore", "town.yaml", "--runs", "65"], project.root) as command:
        while command.returncode is None and not log.exists():  # which is written before it shrinks
            with suppress(subprocess.TimeoutExpired):
                command.wait(0.01)  # not in a busy loop, which would slow it
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(PATIENCE)
    assert command.returncode == 130, (out, err)
    assert "found  check never back fails with " in out
    assert " not shrunk to the end\n wrote town.found-1.yaml  (" in out
    written = parse((project.root / "town.found-1.yaml").read_text(), name="").data
    agents, faults = written["population"][0]["count"] + 1, len(written["timeline"])
    assert f"({agents} agents, {faults} fault" in out
    assert project.command("run", "town.found-1.yaml").code == 1
    assert project.command("replay", log.name).code == 0
    (found,) = explored(project, "--runs", "65")["found"]
    assert (found["agents"], found["faults"], found["shrunk"]) == (2, 1, True)
    assert found["file"] == "town.found-1.yaml"


def test_two_searches_of_one_file_do_not_meet(project: Project) -> None:
    project.write("town.yaml", json.dumps({**COUNTING, "explore": {"faults": ["pause"]}}))
    place = project.root / ".lmos/explore/town/runs.jsonl"
    with started(["explore", "town.yaml", "--runs", "100000"], project.root) as command:
        while command.poll() is None and not place.exists():
            pass
        second = project.command("explore", "town.yaml", "--runs", "5", timeout=PATIENCE)
        command.send_signal(signal.SIGTERM)
        command.communicate(PATIENCE)
    assert (second.code, "is being explored already" in second.err) == (2, True)
    assert command.returncode == 143


# --- bad input


@pytest.mark.parametrize(
    ("changed", "words", "part"),
    [
        ({}, (), "give --runs or --minutes: how far to search"),
        ({}, ("--runs", "5", "--minutes", "1"), "give --runs or --minutes, not both"),
        ({}, ("--runs", "0"), "must be at least 1"),
        ({}, ("--minutes", "0"), "must be more than 0"),
        ({}, ("--runs", "5", "--set", "x=1"), 'no variable or sweep key "x"'),
        ({"explore": None}, ("--runs", "5"), "says nothing of what may be drawn"),
        ({"world": "websocket"}, ("--runs", "5"), "time is real in world: websocket"),
        ({"explore": {"faults": ["crush"]}}, ("--runs", "5"), 'did you mean "crash"?'),
        ({"explore": {"faults": ["partition"]}}, ("--runs", "5"), '"kind: partition" needs a network'),
        ({"explore": {"faults": ["crash"], "of": "conter"}}, ("--runs", "5"), 'did you mean "counter"?'),
        ({"explore": {"faults": [], "of": "counter"}}, ("--runs", "5"), "nothing may be drawn"),
        ({"explore": {"faults": ["slow"]}}, ("--runs", "5"), "has no service_time"),
        ({"explore": {"faults": ["crash"], "from": "21s"}}, ("--runs", "5"), "is over before that, at 20s"),
        ({"explore": {"faults": ["crash"], "from": "9s", "to": "8s"}}, ("--runs", "5"), "before it begins"),
        (
            {"explore": {"faults": [{"kind": "pause", "duration": {"min": "2s", "max": "1s"}}]}},
            ("--runs", "5"),
            '"max" is less than "min": 1s and 2s',
        ),
    ],
)  # fmt: skip
def test_bad_input(project: Project, changed: dict[str, Any], words: tuple[str, ...], part: str) -> None:
    file = {key: value for key, value in {**COUNTING, **changed}.items() if value is not None}
    project.write("town.yaml", json.dumps(file, indent=1))
    ran = project.command("explore", "town.yaml", *words, timeout=PATIENCE)
    assert (ran.code, part in ran.err) == (2, True), ran
    assert "Traceback" not in ran.err
    if changed:
        assert re.search(r"town\.yaml:\d+:\d+: ", ran.err), ran.err
    assert not (project.root / ".lmos").exists()
