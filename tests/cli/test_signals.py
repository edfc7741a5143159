"""Commands that a signal ends: what they wrote says so, whole or not at all. Real processes, real signals.

A signal is sent when the process has said that it is where it is to be hit; nothing is timed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from junitparser import JUnitXml

from lmos_actors.scenario.judge import LogFile
from tests.commands import RunningCommand, started, surroundings
from tests.matrix import few_or_all
from tests.reports.test_html import report
from tests.scenario.project import Project
from tests.source import PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX has them")

PATIENCE = 120.0
"""Seconds after which a process is taken to hang."""

CAST = """
import signal
import sys

from lmos_actors import Agent, action


class Actor(Agent):
    @action
    def note(self, mode: str) -> str:
        if mode in ("spin", "deaf"):
            if mode == "deaf":
                signal.signal(signal.SIGINT, lambda *_: None)
            print("here", file=sys.stderr, flush=True)
            while True:
                pass
        return mode
"""
STORY: dict[str, Any] = {
    "lmos": "scenario/v1",
    "name": "story",
    "matrix": {"mode": ["first", "spin", "last"]},
    "seeds": [1, 2],
    "agents": {"actor": {"from": "agent", "use": "cast:Actor"}},
    "steps": [{"do": "invoke", "target": "actor", "action": "note", "input": {"mode": "$(matrix.mode)"}}],
}
PATHS = {"log": "l.jsonl", "junit": "j.xml", "html": "h.html", "csv": "c.csv", "sequence": "s.mmd"}
REPORTS = [word for kind, path in PATHS.items() for word in (f"--{kind}", path)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    made.write("story.yaml", json.dumps(STORY))
    made.write("deaf.yaml", json.dumps(STORY).replace("spin", "deaf"))
    made.write("plain.yaml", json.dumps(STORY).replace("spin", "second").replace('"story"', '"plain"'))
    return made


@attrs.frozen
class Ended:
    """How a process has ended."""

    code: int
    out: str
    err: str


@attrs.define(eq=False)
class Command:
    """A command that runs in a folder."""

    folder: Path
    process: RunningCommand = attrs.field(init=False)
    heard: str = ""

    def start(self, *words: str, first: str = "") -> None:
        self.process = started(words, self.folder, first=first)

    def until(self, word: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.heard += line
            if word in line:
                return
        raise AssertionError(f"it has ended: {self.heard}")

    def end(self) -> Ended:
        with self.process:
            out, err = self.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in self.heard + err
        return Ended(self.process.wait(), out, self.heard + err)


@pytest.fixture
def command(project: Project) -> Iterator[Command]:
    made = Command(project.root)
    dog = threading.Timer(PATIENCE, lambda: made.process.kill())
    dog.start()
    yield made
    dog.cancel()
    with made.process:
        made.process.kill_all()


@pytest.mark.slow
def test_every_report_says_that_it_was_interrupted(project: Project, command: Command) -> None:
    check_interrupted(project, command, signal.SIGINT, 130, "SIGINT")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.matrix), ("-j", "2")], ids=["here", "workers"]
)
def test_sigterm_is_as_sigint(project: Project, command: Command, words: tuple[str, ...]) -> None:
    check_interrupted(project, command, signal.SIGTERM, 143, "SIGTERM", *words)


def test_a_process_that_ignores_sigint_heeds_sigterm(project: Project, command: Command) -> None:
    """As a shell begins it behind `&`."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    command.start("run", "story.yaml", "--json", "--csv", "c.csv", first=ignoring)
    command.until("here")
    command.process.send_signal(signal.SIGINT)
    command.process.send_signal(signal.SIGTERM)
    ended = command.end()
    assert (ended.code, json.loads(ended.out)["exit_code"]) == (143, 143)


OLD = "sequenceDiagram\n    title of an earlier run\n"
"""A report, which may be written over."""


def check_interrupted(
    project: Project, command: Command, number: signal.Signals, code: int, name: str, *words: str
) -> None:
    for path in PATHS.values():
        project.write(path, OLD)
    command.start("run", "plain.yaml", "story.yaml", "plain.yaml", *REPORTS, *words)
    command.until("here")
    command.process.send_signal(number)
    ended = command.end()
    texts = {kind: (project.root / path).read_text() for kind, path in PATHS.items()}
    mark = json.loads(texts["log"].splitlines()[-1])["cut"]
    runs = mark["runs"]
    assert (mark["signal"], mark["of"], mark["exit_code"]) == (name, 18, code)
    assert runs == 8 or (words and runs in (6, 7))
    said = f"interrupted ({name}), {runs} of 18 runs, exit code {code}"
    assert ended.code == code
    assert ended.out.splitlines()[-1].startswith(f"{said} of 3 files: {runs} passed")
    assert " story mode=last seeds=1..2: did not run" in ended.out.splitlines()
    assert [f"wrote {path}" in ended.err.splitlines() for path in PATHS.values()] == [True] * 5
    check_junit(texts["junit"], code, 12 - runs)
    check_page(texts["html"], said, code, 12 - runs)
    check_table(texts["csv"], code, runs - 6)
    assert f"{said}" in re.sub(r"#(\d+);", lambda found: chr(int(found[1])), texts["sequence"])
    assert "%% story mode=last seeds=1..2: did not run" in texts["sequence"]
    with LogFile(project.root / "l.jsonl") as log:
        assert [run.problem for run in log.runs()] == [None] * runs
        assert log.cut == f"what wrote it ended early, interrupted by {name}: {runs} of 18 runs"


def check_junit(text: str, code: int, missing: int) -> None:
    done, cut, never = JUnitXml.fromstring(text.encode())
    assert (done.tests, done.errors, done.skipped) == (9, 0, 0)  # three runs are repeated
    assert (cut.errors, cut.skipped) == (1, missing)
    assert (never.errors, never.skipped, never.tests) == (1, 6, 7)
    codes = [
        each.value for suite in (done, cut, never) for each in suite.properties() if each.name == "exit_code"
    ]
    assert codes == ["0", str(code), str(code)]


def check_page(text: str, said: str, code: int, missing: int) -> None:
    data = report(text)
    assert data["cut"]["text"] == said
    assert [file["exit_code"] for file in data["files"]] == [0, code, code]
    assert [len(file["missing"]) for file in data["files"]] == [0, missing, 6]
    assert "mode=spin seed=1" in [run["label"] for run in data["files"][1]["missing"] if run["begun"]]
    quiet = text.partition("<noscript>")[2].partition("</noscript>")[0]
    assert said in quiet
    assert "story mode=last seeds=1..2: did not run" in quiet


def check_table(text: str, code: int, runs: int) -> None:
    rows = list(csv.DictReader(io.StringIO(text)))
    cut = [(row["series"], row["value"]) for row in rows if row["ended"] == "interrupted"]
    assert cut[:3] == [("runs", str(runs)), ("of", "6"), ("exit code", str(code))]
    assert sum(row["ended"] == "not run" for row in rows) == 12 - runs


def test_json_says_that_it_was_interrupted(project: Project, command: Command) -> None:
    command.start("run", "story.yaml", "--json")
    command.until("here")
    command.process.send_signal(signal.SIGINT)
    data = json.loads(command.end().out)
    assert data["cut"] == {"why": "interrupted", "signal": "SIGINT", "runs": 2, "of": 6}
    assert data["exit_code"] == data["files"][0]["exit_code"] == 130
    missing = [(run["label"], run["begun"]) for run in data["files"][0]["missing"]]
    assert missing == [
        ("mode=spin seed=1", True),
        ("mode=spin seed=2", False),
        ("mode=last seed=1", False),
        ("mode=last seed=2", False),
    ]


EARLY = """
import signal
from lmos_actors.cli import _main

take = _main.take_signals
_main.take_signals = lambda: (take(), *map(signal.raise_signal, [signal.SIGTERM] * 2))
"""
"""Has SIGTERM come while the command imports what it needs, twice, as from `timeout`."""


@pytest.mark.parametrize("first", [EARLY, ""], ids=["before it reads files", "while it imports agents"])
def test_a_run_that_is_starting_leaves_reports_of_runs_that_did_not_run(
    project: Project, command: Command, first: str
) -> None:
    project.write("cast.py", f"{CAST}\nprint('here', file=sys.stderr, flush=True)\nwhile True:\n    pass\n")
    project.write("c.csv", OLD)
    command.start("run", "story.yaml", "--junit", "j.xml", "--csv", "c.csv", first=first)
    if not first:
        command.until("here")
        command.process.send_signal(signal.SIGTERM)
    ended = command.end()
    assert ended.code == 143
    assert "interrupted (SIGTERM), 0 of 6 runs, exit code 143" in ended.out
    (suite,) = JUnitXml.fromstring((project.root / "j.xml").read_bytes())
    assert (suite.errors, suite.skipped, suite.tests) == (1, 6, 7)
    rows = list(csv.DictReader(io.StringIO((project.root / "c.csv").read_text())))
    assert sum(row["ended"] == "not run" for row in rows) == 6


@pytest.mark.slow
def test_reports_are_there_when_a_run_takes_the_process_with_it(project: Project, command: Command) -> None:
    # the limit is for the import too, which takes its time on a machine with other work
    command.start("run", "deaf.yaml", "--time-limit", "3s", "--check-determinism", "off", *REPORTS)
    ended = command.end()
    assert ended.code == 124
    assert "time limit, 2 of 6 runs, exit code 124" in ended.out
    assert report((project.root / "h.html").read_text())["cut"]["why"] == "time limit"
    *_, last = (project.root / "l.jsonl").read_text().splitlines()
    assert json.loads(last)["cut"]["exit_code"] == 124


def test_a_second_file_is_not_reported_as_passed_after_a_failure(project: Project, command: Command) -> None:
    wrong = {"do": "expect", "that": "output", "of": "note", "equals": "last"}
    failing = STORY | {"steps": [{**STORY["steps"][0], "id": "note"}, wrong]}
    project.write("failing.yaml", json.dumps(failing).replace('"spin", ', ""))
    command.start("run", "failing.yaml", "plain.yaml", "--fail-fast", "--check-determinism", "off", *REPORTS)
    ended = command.end()
    assert ended.code == 1
    data = report((project.root / "h.html").read_text())
    assert data["cut"]["text"] == "ended at the first failure (--fail-fast), 1 of 10 runs"
    first, second = JUnitXml.fromstring((project.root / "j.xml").read_bytes())
    assert (first.failures, first.errors, first.skipped) == (1, 0, 4)
    assert (second.failures, second.errors, second.skipped) == (0, 0, 7)


def test_replay_and_diff_say_that_a_log_is_of_an_interrupted_call(project: Project, command: Command) -> None:
    command.start("run", "story.yaml", "--log", "l.jsonl")
    command.until("here")
    command.process.send_signal(signal.SIGTERM)
    command.end()
    said = "note: l.jsonl: what wrote it ended early, interrupted by SIGTERM: 2 of 6 runs"
    for words in (("replay", "l.jsonl", "--run", "2"), ("diff", "l.jsonl", "l.jsonl")):
        made = Command(project.root)
        made.start(*words)
        ended = made.end()
        assert (ended.code, said in ended.out.splitlines()) == (0, True)


@pytest.mark.slow
def test_no_file_is_left_beside_and_old_ones_keep_their_permissions(
    project: Project, command: Command
) -> None:
    project.write("j.xml", OLD)
    os.chmod(project.root / "j.xml", 0o640)
    os.symlink("real.html", project.root / "h.html")
    before = {path.name for path in project.root.iterdir()}
    command.start("run", "plain.yaml", "--junit", "j.xml", "--html", "h.html", "--force")
    assert command.end().code == 0
    assert {path.name for path in project.root.iterdir()} - before <= {"real.html", "__pycache__"}
    assert (project.root / "j.xml").stat().st_mode & 0o777 == 0o640
    assert (project.root / "h.html").is_symlink()


def test_what_our_output_goes_to_is_written_in_place(project: Project) -> None:
    with (project.root / "out.xml").open("w") as out:
        words = ["run", "plain.yaml", "--json", "--junit", "/dev/stderr", "--check-determinism", "off"]
        with started(words, project.root, stderr=out.fileno()) as command:
            command.communicate(PATIENCE)
    assert command.returncode == 0
    assert JUnitXml.fromstring((project.root / "out.xml").read_bytes()).tests == 6


# --- while it starts

FORKING = """
import itertools, os, signal, sys

import lmos_actors.cli
import lmos_actors.cli._main as first

count = itertools.count()
number, told, take = getattr(signal, sys.argv.pop(1)), os.dup(2), first.take_signals


def hook(event, arguments):
    global told
    if event != "import" or told < 0 or next(count) % int(os.environ["EVERY"]):
        return
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        told = -1
        os.dup2(writing, 2)
        signal.raise_signal(number)
        os._exit(99)
    os.close(writing)
    with open(reading) as errors:
        said = errors.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(told, f"import {arguments[0]} {code} {said!r}\\n".encode())


def taken():
    take()
    sys.addaudithook(hook)


first.take_signals = taken
first.main()
"""
"""A command that goes on while a child of its own is interrupted wherever something is imported."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, ["run", "--help"]),
        (signal.SIGTERM, ["--version"]),
        (signal.SIGINT, ["validate", "plain.yaml"]),
        (signal.SIGTERM, ["describe", "cast.py:Actor"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.name,
)
def test_a_signal_while_it_starts_ends_it_with_one_line(
    project: Project, number: signal.Signals, words: list[str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, number.name, *words],
        cwd=project.root,
        capture_output=True,
        text=True,
        env=surroundings() | {"PYTHONWARNINGS": "default", "EVERY": few_or_all("23", "7")},
        check=True,
    )
    told = [line.split(maxsplit=3)[1:] for line in ended.stderr.splitlines() if line.startswith("import ")]
    assert told, ended.stderr
    assert [line for line in told if line[1:] != [str(128 + number), repr("interrupted\n")]] == []


def test_nothing_long_is_imported_before_signals_are_heeded() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import os; there = set(sys.modules)\n"
        "from lmos_actors.cli import main\n"
        "print(*sorted(set(sys.modules) - there))"
    )
    words = [sys.executable, "-S", "-c", code, str(ROOT)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    inside = ["_late", "_wings", "cli", "cli._main", "cli._start_up"]
    ours = ["__future__", PACKAGE, *(f"{PACKAGE}.{name}" for name in inside)]
    assert ended.stdout.split() == ours


@pytest.mark.parametrize(
    ("drop", "numbers", "raised"),
    [
        (False, [signal.SIGINT], "at the end"),
        (False, [signal.SIGTERM, signal.SIGTERM], "at the end"),
        (False, [signal.SIGINT, signal.SIGTERM], "inside"),
        (True, [signal.SIGINT, signal.SIGTERM], "not at all"),
        (True, [signal.SIGINT, signal.SIGINT, signal.SIGINT], "inside"),
    ],
)
def test_what_is_held_is_raised_where_it_cannot_tear_anything(
    drop: bool, numbers: list[signal.Signals], raised: str
) -> None:
    code = """
import signal, sys
from lmos_actors.cli._signals import signals

signals.take()
where = "not at all"
try:
    with signals.in_order():
        with signals.held(drop=sys.argv[1] == "True"):
            where = "inside"
            for name in sys.argv[2:]:
                signal.raise_signal(getattr(signal, name))
            where = "at the end"
        where = "not at all"
except KeyboardInterrupt:
    pass
print(where)
"""
    words = [sys.executable, "-c", code, str(drop), *(number.name for number in numbers)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout.split("\n")[0] == raised


LATE = """
import atexit, os, signal

from lmos_actors.cli import main


@atexit.register
def late():
    os.kill(os.getpid(), signal.SIGTERM)
    os.write(2, b"goes on")


main()
"""
"""A command that is interrupted while Python ends, which removes handlers before the process is gone."""


@pytest.mark.slow  # its lines run in a process alone; the signals above
def test_a_signal_while_python_ends_is_ignored() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE, "schema"], check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"goes on")
