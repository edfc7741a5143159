"""The report files of a run: all of them, opened before anything runs, and nothing else written over."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from junitparser import JUnitXml

from lmos_actors.cli import main
from lmos_actors.cli._written_files import opened_file
from lmos_actors.cli.run._report_files import Written
from lmos_actors.errors import ConfigError
from lmos_actors.reports import mermaid
from lmos_actors.scenario.judge import LogFile
from tests.reports.sample_results import HEAD, failed, line, result, run, sent
from tests.scenario.project import CAST, Project, Ran, story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
DEPLOYMENT = """\
lmos: deployment/v1
name: small
agents:
  a: {from: agent, use: "cast.py:Actor"}
groups:
  only:
    agents: [a]
"""
WRONG = {"do": "expect", "that": "output", "of": "note", "equals": "ho"}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    yield made
    sys.path[:] = path
    sys.modules.pop("cast", None)


@pytest.fixture
def call(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Call `run` in this process, in the project's folder."""
    monkeypatch.chdir(project.root)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(("run", "--check-determinism", "off", *words))
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


def test_every_report_is_written_into_folders_that_are_made(
    project: Project, call: Callable[..., Ran]
) -> None:
    file = project.write("story.yaml", story(NOTE, seeds=[1, 2]))
    paths = {
        "log": "a/log.jsonl",
        "junit": "a/b/j.xml",
        "html": "h.html",
        "sequence": "s.mmd",
        "csv": "c.csv",
    }
    words = [word for kind, path in paths.items() for word in (f"--{kind}", path)]
    assert call(file, *words).code == 0
    text = {kind: (project.root / path).read_text() for kind, path in paths.items()}
    assert text["log"].count('"schema"') == 2
    assert JUnitXml.fromstring(text["junit"].encode()).tests == 2
    assert text["html"].lower().startswith("<!doctype html>")
    assert text["sequence"].startswith("sequenceDiagram\n    title story seed=1: passed")
    assert "a0->>a1: note" in text["sequence"]
    assert text["csv"] == "file,name,seed,trial,ended,series,agg,time,value\n"


def test_the_file_says_what_is_written_and_each_cell_may_say_it_differently(
    project: Project, call: Callable[..., Ran]
) -> None:
    where = {"junit": "out/$(matrix.size).xml", "log": "all.jsonl"}
    story_text = story(NOTE, matrix={"size": ["small", "big"]}, seeds=[1, 2], report=where)
    file = project.write("story.yaml", story_text)
    assert call(file, "--junit", "whole.xml").code == 0
    for name, count in (("out/small.xml", 2), ("out/big.xml", 2), ("whole.xml", 4)):
        assert JUnitXml.fromstring((project.root / name).read_bytes()).tests == count
    assert (project.root / "all.jsonl").read_text().count('"schema"') == 4


def test_several_files_make_one_report(project: Project, call: Callable[..., Ran]) -> None:
    one, two = project.write("one.yaml", story(NOTE)), project.write("two.yaml", story(NOTE, WRONG))
    assert call(one, two, one, "--junit", "j.xml", "--sequence", "s.mmd").code == 1
    suites = list(JUnitXml.fromstring((project.root / "j.xml").read_bytes()))
    assert [(suite.tests, suite.failures) for suite in suites] == [(1, 0), (1, 1), (1, 0)]
    assert "seed=1: failed" in (project.root / "s.mmd").read_text()  # the first that failed


def test_a_failure_names_the_command_that_replays_it(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("bad.yaml", story(NOTE, WRONG, seeds=[1, 2]))
    ran = call(file, "--log", "log of it.jsonl", "--junit", "j.xml")
    assert "replay: lmos-actors replay 'log of it.jsonl'\n" in ran.out
    assert "replay: lmos-actors replay 'log of it.jsonl' --run 2\n" in ran.out
    assert (
        "replay &apos;" in (text := (project.root / "j.xml").read_text())
        or "replay 'log of it.jsonl'" in text
    )
    assert "replay" not in call(file, "--log", "/dev/null").out


@pytest.mark.parametrize("kind", ["log", "junit", "html", "sequence", "csv"])
def test_a_scenario_is_not_written_over(project: Project, call: Callable[..., Ran], kind: str) -> None:
    file = project.write("good.yaml", story(NOTE))
    before = (project.root / file).read_text()
    ran = call(file, f"--{kind}", "../" + project.root.name + "/good.yaml")
    assert ran.code == 2
    assert "is a scenario file" in ran.err
    own = project.write("own.yaml", story(NOTE, report={kind: "good.yaml"}))
    assert call(own, file).code == 2
    assert (project.root / file).read_text() == before


def test_python_source_is_not_written_over(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("good.yaml", story(NOTE))
    before = (project.root / "cast.py").read_text()
    ran = call(file, "--html", "cast.py")
    assert ran.code == 2
    assert "is Python source" in ran.err
    assert (project.root / "cast.py").read_text() == before


KINDS = ("log", "junit", "html", "sequence", "csv")
MINE = "alias ls='ls -l'\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", ["by the file", "by an option"])
def test_a_file_of_others_is_written_over_with_force_alone(
    project: Project, call: Callable[..., Ran], kind: str, asked: str
) -> None:
    project.write(".profile", MINE)
    paths = {kind: ".profile"} if asked == "by the file" else {}
    file = project.write("good.yaml", story(NOTE, report=paths))
    words = [] if paths else [f"--{kind}", ".profile"]
    ran = call(file, *words)
    assert (ran.code, ran.out) == (2, "")
    assert ".profile: is there, and no report of ours: --force writes over it" in ran.err
    assert (project.root / ".profile").read_text() == MINE
    for force in (["--force"], []):  # and from then on it is one of ours
        assert call(file, *words, *force).code == 0
        assert (project.root / ".profile").read_text() != MINE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", ["a file", "a report", "nothing"])
def test_a_link_is_followed_with_force_alone(
    project: Project, call: Callable[..., Ran], kind: str, there: str
) -> None:
    file = project.write("good.yaml", story(NOTE))
    if there == "a report":
        assert call(file, f"--{kind}", "real").code == 0
    elif there == "a file":
        project.write("real", MINE)
    before = (project.root / "real").read_bytes() if there != "nothing" else None
    (project.root / "report").symlink_to(project.root / "real")
    ran = call(file, f"--{kind}", "report")
    assert (ran.code, ran.out) == (2, "")
    assert f"report: is a link to {project.root / 'real'}: --force writes there" in ran.err
    assert ((project.root / "real").read_bytes() if before else None) == before
    assert call(file, f"--{kind}", "report", "--force").code == 0
    assert (project.root / "report").is_symlink()
    assert (project.root / "real").stat().st_size > 0


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there are no links to descriptors")
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_is_written_whatever_leads_to_it(
    project: Project, call: Callable[..., Ran], kind: str
) -> None:
    """As a shell has it for `--html >(gzip)`."""
    file = project.write("good.yaml", story(NOTE))
    reading, writing = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        with open(reading, "rb", buffering=0) as source:
            while piece := source.read(65_536):
                got.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    assert call(file, f"--{kind}", f"/dev/fd/{writing}").code == 0
    os.close(writing)
    reader.join(10)
    assert b"".join(got)


def test_a_link_that_comes_later_is_not_followed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    project.write(".profile", MINE)
    file = opened_file("report")
    (project.root / "report").symlink_to(project.root / ".profile")
    file.write("a report")
    assert (project.root / ".profile").read_text() == MINE
    assert (project.root / "report").read_text() == "a report"


@pytest.mark.parametrize(
    "command", [["replay", "log", "--html", "mine"], ["export", "procfile", "d.yaml", "--out", "."]]
)
def test_other_commands_write_over_nothing_either(
    project: Project, call: Callable[..., Ran], command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(project.write("good.yaml", story(NOTE)), "--log", "log").code == 0
    project.write("d.yaml", DEPLOYMENT)
    for name in ("mine", "Procfile"):
        project.write(name, MINE)
    for force, code, kept in (([], 2, 2), (["--force"], 0, 1), ([], 0, 1)):
        with pytest.raises(SystemExit) as ended:
            main((*command, *force))
        assert ended.value.code == code, capfd.readouterr().err
        assert sum((project.root / name).read_text() == MINE for name in ("mine", "Procfile")) == kept


def test_one_file_holds_one_report(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("good.yaml", story(NOTE))
    ran = call(file, "--junit", "out.xml", "--html", "./out.xml")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot hold both the JUnit report and the HTML report" in ran.err


def test_what_cannot_be_written_is_known_before_anything_runs(
    project: Project, call: Callable[..., Ran]
) -> None:
    file = project.write("good.yaml", story(NOTE))
    for path in ("good.yaml/x.xml", "."):
        ran = call(file, "--junit", path)
        assert (ran.code, ran.out) == (2, "")
        assert "cannot be written" in ran.err


def test_what_a_report_held_before_is_gone_and_stays_where_it_is_not_to_be_written(
    project: Project, call: Callable[..., Ran]
) -> None:
    file = project.write("good.yaml", story(NOTE))
    old = '<?xml version="1.0"?>\n<testsuites name="lmos-actors" ' + "x" * 100_000
    project.write("old.xml", old)
    assert call(file, "--junit", "old.xml", "--html", "good.yaml").code == 2
    assert (project.root / "old.xml").read_text() == old
    assert call(file, "--junit", "old.xml").code == 0
    assert JUnitXml.fromstring((project.root / "old.xml").read_bytes()).tests == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
@pytest.mark.parametrize("kind", ["log", "junit", "html", "sequence", "csv"])
def test_a_full_disk_costs_that_report_and_no_other(
    project: Project, call: Callable[..., Ran], kind: str
) -> None:
    file = project.write("good.yaml", story(NOTE, seeds=[1, 2]))
    other = "csv" if kind == "junit" else "junit"
    ran = call(file, f"--{kind}", "/dev/full", f"--{other}", "other", "--json")
    assert ran.code == 3
    data = json.loads(ran.out)
    assert (data["exit_code"], data["files"][0]["passed"]) == (3, 2)
    wrong = {"file": "/dev/full", "line": None, "column": None, "kind": "output"}
    assert data["mistakes"] == [wrong | {"message": "cannot be written: No space left on device"}]
    assert ran.err.splitlines() == [
        "lmos-actors: /dev/full: cannot be written: No space left on device",
        "wrote other",
    ]
    assert (project.root / "other").exists()


def test_what_has_no_room_in_a_log_leaves_whole_runs(
    project: Project, call: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    left = 2_000

    def write(descriptor: int, data: Any) -> int:
        nonlocal left
        if not (part := bytes(data[:left])):
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= len(part)
        return whole(descriptor, part)

    monkeypatch.setattr("lmos_actors.cli._written_files.os.write", write)
    file = project.write("good.yaml", story(NOTE, seeds=[1, 2, 3]))
    ran = call(file, "--log", "log.jsonl")
    monkeypatch.undo()
    assert ran.code == 3
    assert ran.err.count("log.jsonl: cannot be written: No space left on device") == 1
    with LogFile(project.root / "log.jsonl") as log:
        assert [run.problem for run in log.runs()] == [None]


# --- Written itself


class Cell:
    """As much of a scenario as is looked at: its agents and its reports."""

    def __init__(self, agents: dict[str, Any] | None = None, **paths: str) -> None:
        self.agents = agents or {}
        self.report = type(
            "Report", (), {kind: paths.get(kind) for kind in ("log", "junit", "html", "sequence", "csv")}
        )


class Recording:
    """An agent that answers from a log."""

    log = "recorded.jsonl"


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(HEAD)
    written = Written({"log": str(recorded)}, [])
    with pytest.raises(ConfigError, match="is a recording"):
        written.open(str(tmp_path / "a.yaml"), Cell({"weather": Recording()}))
    written.close()
    written = Written({}, [])
    with pytest.raises(ConfigError, match="is a recording"):
        written.open(str(tmp_path / "a.yaml"), Cell({"weather": Recording()}, csv=str(recorded)))
    written.close()
    assert recorded.read_text() == HEAD


def test_only_reports_that_show_messages_want_the_log(tmp_path: Path) -> None:
    for kind, wanted in (("log", True), ("html", True), ("sequence", True), ("csv", False), ("junit", False)):
        written = Written({}, [])
        cell = Cell(**{kind: str(tmp_path / kind)})
        written.open("a.yaml", cell)
        assert written.wants_log(cell) is wanted
        written.close()


def test_after_an_interrupt_there_is_what_there_was_to_tell(tmp_path: Path) -> None:
    paths = {kind: str(tmp_path / kind) for kind in ("log", "junit", "csv", "sequence")}
    (tmp_path / "log").write_text(f"{HEAD}\nold")
    written = Written(paths, [])
    file = result(cells=3)
    cell = Cell()
    kept = written.run(file, run(log=(HEAD, sent(1, "user", "a", "ask")), metrics={"m": 1.0}), cell)
    assert (kept.log, kept.logged) == ((), 2)
    written.finish()
    written.close()
    assert (tmp_path / "log").read_text().splitlines() == [HEAD, sent(1, "user", "a", "ask")]
    assert JUnitXml.fromstring((tmp_path / "junit").read_bytes()).tests == 1
    (row,) = csv.DictReader(io.StringIO((tmp_path / "csv").read_text()))
    assert (row["series"], row["value"]) == ("m", "1")


def test_an_interrupt_before_the_first_run_leaves_no_old_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{HEAD}\nold")
    written = Written({"log": str(tmp_path / "log")}, [])
    written.finish()
    written.close()
    assert (tmp_path / "log").read_text() == ""


def test_the_first_run_that_failed_is_drawn(tmp_path: Path) -> None:
    written = Written({"sequence": str(tmp_path / "s")}, [])
    runs = [run(seed=1), failed(seed=2, log=(HEAD, line(1, "crashed", "a", reason="x"))), failed(seed=3)]
    for each in runs:
        written.run(result(), each, Cell())
    written.finish()
    written.close()
    assert (tmp_path / "s").read_text() == mermaid(runs[1], "story")


def test_the_page_is_given_a_bounded_part_of_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.cli.run._report_files.MOST_KEPT", 10)
    given: list[Any] = []
    monkeypatch.setattr("lmos_actors.reports.html_page", lambda results, **_: given.extend(results) or "page")
    written = Written({"html": str(tmp_path / "h")}, [])
    log = tuple(sent(n, "user", "a", "ask") for n in range(8))
    for each in (run(log=log), run(seed=2, log=log), failed(seed=3, log=log), run(seed=4, log=log)):
        written.run(result(), each, Cell())
    written.finish()
    written.close()
    kept = {each.seed: each.log for one in given for each in one.runs}
    assert kept == {1: log, 2: (log[0], log[-1]), 3: log, 4: ()}
    assert json.dumps([each.logged for one in given for each in one.runs]) == "[8, 8, 8, 8]"
