"""What is printed as runs go: plain text, JSON, and what moves on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import select
import signal
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli.run._display import Show
from lmos_actors.cli.run._live import MOST_RUNS, Moving, Screen, picture
from lmos_actors.reports import CheckResult, FileResult, RunResult
from tests.commands import started
from tests.reports.sample_results import HOSTILE, failed, result, run
from tests.scenario.project import CAST, Project, Ran, story
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}

# --- plain


def shown(file: FileResult, *, verbose: bool = False, json: bool = False) -> str:
    """What is printed of one file."""
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        show = Show(json=json, verbose=verbose)
        runs, file.runs = file.runs, []
        show.begin(file, max(len(run.label) for run in runs))
        for each in runs:
            file.runs.append(each)
            show.run(each, file)
        show.end_file(file)
        show.end([file], 1.0, file.exit_code())
        show.close()
        return sys.stdout.getvalue()
    finally:
        sys.stdout = before


def seeds(count: int, city: str = "Rome", bad: tuple[int, ...] = ()) -> list[RunResult]:
    values = {"city": city}
    return [
        (failed if seed in bad else run)(values=values, seed=seed, again=f"again {seed}")
        for seed in range(1, count + 1)
    ]


def test_a_few_runs_have_a_line_each() -> None:
    lines = shown(result(*seeds(3), seeds=3)).splitlines()
    assert lines[0] == "story  story.yaml  1 cell x 3 seeds"
    assert [line.split()[1] for line in lines[1:4]] == ["seed=1", "seed=2", "seed=3"]
    assert lines[4:] == ["3/3 runs passed in 1.0 s"]


def test_of_many_runs_those_that_pass_share_a_line_with_their_combination() -> None:
    runs = [*seeds(500), *seeds(500, "Oslo", bad=(7,))]
    lines = shown(result(*runs, seeds=500)).splitlines()
    assert lines[0] == "story  story.yaml  2 cells x 500 seeds"
    assert re.match(r" city=Rome seeds=1..500 +########## 500/500 runs  ok  125.00 s", lines[1])
    assert re.match(r" city=Oslo seed=7 +##\.+ 1/4 steps  0/2 checks  FAILED", lines[2])
    assert "   again:  again 7" in lines
    assert re.match(r" city=Oslo seeds=1..500 +#########\. 499/500 runs  1 FAILED", lines[-2])
    assert lines[-1] == "999/1000 runs passed in 1.0 s"
    assert len(lines) < 12


def test_verbose_shows_every_run_and_its_checks() -> None:
    check = CheckResult(name="seen", kind="never", ok=True, expected="none", saw="none")
    runs = [run(seed=seed, judged=(check,)) for seed in range(1, 31)]
    text = shown(result(*runs, seeds=30), verbose=True)
    assert text.count("   ok     check seen: expected none, saw none\n") == 30
    assert text.count("4/4 steps") == 30


def test_of_many_failures_some_are_shown_whole_some_in_a_line_and_the_rest_counted() -> None:
    file = result(*seeds(200, bad=tuple(range(1, 201))), seeds=200)
    lines = shown(file).splitlines()
    assert sum("     expected an answer" in line for line in lines) == 5
    assert sum("FAILED  0.25 s" in line for line in lines) == 50
    assert " 150 more failed; -v shows them all" in lines
    assert "0/200 runs passed in 1.0 s" in lines
    assert sum("FAILED  0.25 s" in line for line in shown(file, verbose=True).splitlines()) == 200


def test_what_came_of_comparing_cells() -> None:
    check = CheckResult(name="trend", kind="compare", ok=False, expected="less", saw="more")
    assert " FAILED check trend: expected less, saw more\n" in shown(result(run(), compared=[check]))


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    text = shown(result(failed(label=HOSTILE, tree=(HOSTILE,)), name=HOSTILE))
    assert all(line.isprintable() for line in text.splitlines())


def test_json_is_all_and_every_reader_takes_it() -> None:
    text = shown(result(failed(values={"k": HOSTILE}, metrics={"m": float("nan")})), json=True)
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["exit_code"] == 1
    assert data["mistakes"] == []
    assert data["files"][0]["runs"][0]["metrics"] == {"m": None}


# --- what moves


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], Screen]]:
    monkeypatch.setenv("TERM", "xterm-256color")
    made: list[Screen] = []

    def make(columns: int, rows: int) -> Screen:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(rows))
        made.append(Screen(Terminal()))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Tree:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.looks = 0

    def tree(self) -> tuple[str, ...]:
        self.looks += 1
        return tuple(f"agent {n}" for n in range(self.rows))


def moving(label: str = "seed=1", **more: Any) -> Moving:
    made = Moving(label, begun=time.monotonic() - 9.0, **more)
    made(3, 7, "invoke a.b")
    return made


def test_what_moves_is_the_file_its_runs_and_the_tree_of_the_first(
    screen: Callable[[int, int], Screen],
) -> None:
    one = screen(60, 40)
    one.begin(lambda now: " story  0 of 2 runs done", 8)
    one.add(moving(tree=("root", "  a")))
    one.add(moving("seed=2"))
    assert [re.sub(r"\d+\.\d s", "N s", row) for row in one.lines(time.monotonic() + 1.0)] == [
        " story  0 of 2 runs done",
        " seed=1    ####......     3/7  N s  invoke a.b",
        " seed=2    ####......     3/7  N s  invoke a.b",
        "   root",
        "     a",
    ]


def test_a_run_that_is_soon_over_is_not_shown(screen: Callable[[int, int], Screen]) -> None:
    one = screen(60, 40)
    one.begin(lambda now: "head", 8)
    assert one.lines(time.monotonic() + 1.0) == ["head"]
    one.add(soon := Moving("seed=1"))
    assert one.lines(soon.begun) == []
    assert len(one.lines(soon.begun + 1.0)) == 2
    one.remove(soon)
    assert one.lines(soon.begun + 1.0) == ["head"]
    one.end()
    assert one.lines(soon.begun + 1.0) == []


@pytest.mark.parametrize("rows", [1, 3, 10, 24, 50, 200])
def test_what_moves_takes_no_more_than_half_of_the_screen(
    screen: Callable[[int, int], Screen], rows: int
) -> None:
    one = screen(60, rows)
    one.begin(lambda now: "head", 8)
    for n in range(20):
        one.add(moving(f"seed={n}", tree=("row",) * 50))
    lines = one.lines(time.monotonic() + 1.0)
    assert len(lines) <= max(rows // 2, 4)
    assert lines[0] == "head"
    if rows == 200:
        assert f" and {20 - MOST_RUNS} more" in lines
        assert len(lines) == 2 + MOST_RUNS + 50
    if rows == 24:
        assert lines[-1] == "   and 49 rows more"


def test_every_line_fits() -> None:
    text = picture(["x" * 200, "漢" * 200, "short\x1b[2J"], 30)
    rows = text.plain.split("\n")
    assert [len(row) for row in rows[:1]] == [30]
    assert rows[0].endswith("…")
    assert all(row.isprintable() for row in rows)


def test_how_far_a_simulation_is_counts_in_hundredths() -> None:
    made = Moving("seed=1", begun=0.0)
    made(150_000_000, 600_000_000, "at 2m30s")
    assert made.line(6, 1.0) == " seed=1  ##........    25 %  1.0 s  at 2m30s"
    assert "0/0" not in Moving("seed=1", begun=0.0).line(6, 1.0)


def test_the_tree_is_not_drawn_at_every_step() -> None:
    made, tree = Moving("seed=1"), Tree(3)
    made.telling(tree)
    for n in range(10_000):
        made(n, 10_000, "step")
    assert tree.looks <= 2 + (time.monotonic() - made.begun) / 0.1


def test_what_moves_is_drawn_without_a_step_and_taken_away(screen: Callable[[int, int], Screen]) -> None:
    """The thread that draws does so while the run says nothing."""
    one = screen(60, 24)
    one.begin(lambda now: "head of the file", 8)
    one.add(moving())
    written = one.console.file
    assert isinstance(written, Terminal)
    patience = time.monotonic() + 30
    while "invoke a.b" not in written.getvalue() and time.monotonic() < patience:
        time.sleep(0.01)
    assert "head of the file" in written.getvalue()
    one.close()
    assert written.getvalue().rstrip().endswith("\x1b[2K")  # the last thing done: a line wiped
    assert written.getvalue().count("\x1b[?25l") == written.getvalue().count("\x1b[?25h") == 1


# --- a real terminal

BUSY = """
import time
from lmos_actors import Agent, action

class Busy(Agent):
    @action
    def work(self, seconds: float) -> None:
        print("hard at work")
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
"""


@pytest.fixture
def project(tmp_path: Any) -> Project:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    made.write("busy.py", BUSY)
    return made


def busy(*more: Any, **changes: Any) -> str:
    work = {"do": "invoke", "target": "actor", "action": "work", "input": {"seconds": 0.3}}
    return story(work, work, *more, agents={"actor": {"from": "agent", "use": "busy.py:Busy"}}, **changes)


def on_a_terminal(project: Project, *words: str, size: tuple[int, int] = (24, 80), until: str = "") -> Ran:
    """Run the command on a terminal of so many rows and columns; interrupt it once `until` is seen."""
    mine, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    words = ("run", "--check-determinism", "off", *words)
    with started(words, project.root, stdout=theirs, stderr=theirs, environment=environment) as process:
        os.close(theirs)
        text = ""
        while select.select([mine], [], [], 40)[0]:
            try:
                part = os.read(mine, 65536)
            except OSError:
                break
            text += part.decode()
            if until and until in text:
                until = ""
                process.send_signal(signal.SIGINT)
        code = process.wait(40)
    os.close(mine)
    return Ran(code, text, "")


def plain(text: str) -> str:
    """A terminal's text without what moves the cursor or colours it."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def left(text: str) -> list[str]:
    """What stands on a terminal at the end: one that is endlessly high, and obeys what is sent here."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif not part.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
        elif part.endswith("A"):
            row -= int(part[2:-1] or 1)
            assert row >= 0
        elif part.endswith("K"):
            assert part == "\x1b[2K"
            rows[row] = ""
        else:
            assert part[-1] in "mhl", part
    return "\n".join(row.rstrip() for row in rows).rstrip("\n").split("\n")


@pytest.mark.slow
def test_a_long_run_moves_on_a_terminal_and_what_agents_print_stays_above(project: Project) -> None:
    ran = on_a_terminal(project, project.write("busy.yaml", busy()))
    assert ran.code == 0
    text = plain(ran.out)
    assert "0 of 1 run done" in text
    assert re.search(r"seed=1  [#.]{10}     [01]/2  0\.\d s", text)
    assert ran.out.count("\x1b[?25l") == ran.out.count("\x1b[?25h") == 1
    rows = left(ran.out)
    assert [re.sub(r"\d\.\d+ s", "N s", row) for row in rows] == [
        "story  busy.yaml  1 run",
        "hard at work",
        "hard at work",
        " seed=1  ########## 2/2 steps  0/0 checks  ok  N s (virtual 0 s)",
        "1/1 runs passed in N s",
    ]


@pytest.mark.slow
def test_several_processes_share_the_terminal(project: Project) -> None:
    file = project.write("busy.yaml", busy(seeds=[1, 2, 3]))
    ran = on_a_terminal(project, file, "-j", "2")
    assert ran.code == 0
    text = plain(ran.out)
    assert "of 3 runs done" in text
    rows = left(ran.out)
    assert "".join(rows).count("hard at work") == 6
    assert not any("done" in row for row in rows)
    assert rows[-1].startswith("3/3 runs passed in")


def test_ctrl_c_leaves_the_terminal_in_order(project: Project) -> None:
    step = {"do": "invoke", "target": "actor", "action": "work", "input": {"seconds": 20.0}}
    ran = on_a_terminal(project, project.write("busy.yaml", busy(step)), until="0 of 1 run done")
    assert ran.code == 130
    assert ran.out.count("\x1b[?25l") == ran.out.count("\x1b[?25h") == 1
    assert plain(ran.out).endswith("interrupted\n")


def test_json_holds_the_results_up_to_an_interrupt(project: Project) -> None:
    work = {"do": "invoke", "target": "actor", "action": "work", "input": {"seconds": "$(matrix.long)"}}
    cast = {"actor": {"from": "agent", "use": "busy.py:Busy"}}
    file = project.write("busy.yaml", story(work, agents=cast, matrix={"long": [0.01, 20.0]}))
    with started(("run", file, "--json", "--check-determinism", "off"), project.root) as process:
        assert process.stderr is not None
        assert [process.stderr.readline() for _ in range(2)] == ["hard at work\n"] * 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    data = json.loads(out)
    assert (process.returncode, data["exit_code"], err) == (130, 130, "interrupted\n")
    assert [(run["label"], run["ended"]) for run in data["files"][0]["runs"]] == [
        ("long=0.01 seed=1", "passed")
    ]


@pytest.mark.slow
def test_a_narrow_terminal_is_not_overrun(project: Project) -> None:
    ran = on_a_terminal(project, project.write("busy.yaml", busy()), size=(6, 30))
    assert ran.code == 0
    drawn = [plain(row) for row in re.split(r"[\r\n]|\x1b\[2K", ran.out) if "…" in row]
    assert max(map(len, drawn)) == 30
    assert not any("done" in row for row in left(ran.out))


@pytest.mark.parametrize("words", [("--json",), ("--json", "--seed", "1")])
def test_json_alone_on_a_terminal_too(project: Project, words: tuple[str, ...]) -> None:
    ran = on_a_terminal(project, project.write("note.yaml", story(NOTE)), *words)
    assert json.loads(ran.out)["files"][0]["passed"] == 1
