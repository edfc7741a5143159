"""Hostile files, agents, surroundings: the right exit code, no traceback, no hang, no accidental pass."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from lmos_actors.files import FileError
from lmos_actors.scenario.format import resolve
from tests.commands import started
from tests.scenario.project import CAST, Project, story
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
GO = {"do": "invoke", "id": "go", "target": "actor", "action": "go"}
PAUSE = {"do": "wait", "for": "1s"}
OFF = ("--check-determinism", "off")
PRELUDE = "import os, sys, threading, time\nfrom lmos_actors import Agent, action\n"
FINE = "class X(Agent):\n    @action\n    def go(self): pass\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    return made


def with_agent(project: Project, code: str, *steps: Any, **more: Any) -> str:
    project.write("own.py", PRELUDE + textwrap.dedent(code))
    agents = {"actor": {"from": "agent", "use": "own.py:X"}}
    return project.write("own.yaml", story(*(steps or [GO]), agents=agents, **more))


def expect(**what: Any) -> dict[str, Any]:
    return {"do": "expect", "that": "output", "of": "note", **what}


def matched(**condition: Any) -> dict[str, Any]:
    return expect(match={"$.output": condition})


# --- files: what does nothing, or could mean two things, is refused


@pytest.mark.parametrize(
    ("steps", "more", "said"),
    [
        ([{"do": "parallel", "branches": [[NOTE], []]}], {}, "not empty"),
        ([NOTE, matched(regex="(" * 2000 + ")" * 2000)], {}, "nested too deeply"),
        ([NOTE, matched(regex="a{1,99999999999999999999}")], {}, "repetition number is too large"),
        ([NOTE], {"seeds": [1, 2, 1]}, "seed 1 is given twice"),
        ([NOTE, expect(that="status", sequence=[])], {}, "never empty"),
        (
            [{**NOTE, "input": {"text": "a$(matrix.x)"}}],
            {"matrix": {"x": ["1", 1]}},
            '"1" stands in the matrix twice',
        ),
        (
            [{**NOTE, "input": {"text": "$(matrix.x.v)"}}],
            {"matrix": {"x": [{"name": "a", "v": "1"}, {"name": "a", "v": "2"}]}},
            '"a" stands in the matrix twice',
        ),
        (
            [NOTE],
            {"agents": {"actor": {"from": "agent", "use": "cast.py:Actor", "mailbox": {"size": 10**30}}}},
            "at most",
        ),
    ],
)
def test_a_hostile_file_is_refused_with_the_reason(
    project: Project, steps: list[Any], more: dict[str, Any], said: str
) -> None:
    file = project.write("s.yaml", story(*steps, **more))
    with pytest.raises(FileError) as refused:
        resolve(project.root / file, classes=False)
    (mistake,) = refused.value.mistakes
    assert said in mistake.message
    assert mistake.line > 1


@pytest.mark.parametrize(
    "step",
    [
        {"do": "repeat", "times": 3, "within": "1ms", "steps": [PAUSE, NOTE]},
        {"do": "parallel", "within": "1ms", "branches": [[PAUSE], [PAUSE, NOTE]]},
    ],
)
def test_within_bounds_repeat_and_parallel(project: Project, step: dict[str, Any]) -> None:
    ran = project.command("run", project.write("s.yaml", story(step)), *OFF)
    assert ran.code == 1
    assert "expected an end within 1ms" in ran.out
    assert "virtual 0.001 s" in ran.out


def test_an_empty_sequence_of_events_waits_to_see_that_none_comes(project: Project) -> None:
    listen = {"do": "subscribe", "target": "actor", "event": "noted"}
    later = [PAUSE, NOTE]
    none = {"do": "expect", "that": "event", "target": "user", "event": "noted", "sequence": []}
    both = {"do": "parallel", "branches": [later, [{**none, "within": "2s"}]]}
    ran = project.command("run", project.write("s.yaml", story(listen, both)), *OFF)
    assert ran.code == 1
    assert 'saw      ["hi"]' in ran.out


@pytest.mark.parametrize("wrong", [{"equals": "ho"}, {"that": "status", "equals": "failed"}])
def test_what_cannot_change_any_more_is_not_waited_for(project: Project, wrong: dict[str, Any]) -> None:
    ran = project.command("run", project.write("s.yaml", story(NOTE, expect(**wrong))), *OFF)
    assert ran.code == 1
    assert "(virtual 0 s)" in ran.out


# --- agents


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("class X(Agent):\n    @action\n    def go(self): os._exit(0)\n", 1, "os._exit reaches out"),
        ("class B(BaseException): pass\nraise B('base')\n", 3, "at own.py:4: B: base"),
        ("raise GeneratorExit\n", 3, "at own.py:3: GeneratorExit"),
        (
            "class B(Exception):\n    def __str__(self): raise OSError\nraise B\n",
            3,
            "at own.py:5: B",
        ),
        (
            "class B(Exception):\n    def __str__(self): raise OSError\n"
            "class X(Agent):\n    def started(self): raise B\n    @action\n    def go(self): pass\n",
            3,
            "saw      B at own.py:6",
        ),
        (
            "class X(Agent):\n    @action\n    def go(self): raise ValueError('\\ud800')\n",
            1,
            "ValueError: \\ud800",
        ),
        (
            "class X(Agent):\n    @action\n    def go(self): time.perf_counter = lambda: 'x'\n",
            0,
            "1/1 runs passed",
        ),
    ],
)
def test_agents_that_misbehave(project: Project, code: str, exit_code: int, said: str) -> None:
    ran = project.command("run", with_agent(project, code), *OFF)
    assert ran.code == exit_code, ran.text
    assert said in ran.text
    assert "Traceback" not in ran.text


def test_a_thread_left_by_an_agent_is_not_waited_for(project: Project) -> None:
    code = "threading.Thread(target=lambda: threading.Event().wait()).start()\n" + FINE
    ran = project.command("run", with_agent(project, code), *OFF)
    assert ran.code == 0
    assert "1/1 runs passed" in ran.out


@pytest.mark.slow
@pytest.mark.parametrize("code", ["os.chdir('/')\n" + FINE, FINE.replace("pass", "os.chdir('/')")])
def test_where_we_are_is_not_for_agents_to_say(project: Project, code: str) -> None:
    ran = project.command("run", with_agent(project, code, report={"log": "here.jsonl"}))
    assert ran.code == 0, ran.text
    assert "same log in a second process: 1 of 1" in ran.out
    assert (project.root / "here.jsonl").is_file()


@pytest.mark.slow
def test_a_regular_expression_that_never_ends(project: Project) -> None:
    long = {**NOTE, "input": {"text": "a" * 40 + "!"}}
    file = project.write("s.yaml", story(long, matched(regex="^(a+)+$")))
    ran = project.command("run", file, *OFF, "--time-limit", "300ms")
    assert ran.code == 124
    assert "still busy at s.yaml:" in ran.out


def test_a_run_that_is_only_slow(project: Project) -> None:
    """Where it is at the time limit says little, how far it has come says more."""
    code = """
        from lmos_actors import every
        class X(Agent):
            @every(0.001)
            def go(self): pass
    """
    whole = {
        "lmos": "simulation/v1",
        "name": "slow",
        "stop": {"at": "20h"},
        "population": [{"id": "x", "count": 20, "use": "own.py:X"}],
    }
    with_agent(project, code)
    file = project.write("slow.yaml", json.dumps(whole))
    ran = project.command("run", file, *OFF, "--time-limit", "500ms")
    assert ran.code == 124, ran.text
    assert re.search(
        r"it was still (running|busy at \S*own\.py:\d+ in go), at [\d.]+ s of 72000 s of virtual time",
        ran.out,
    ), ran.out


@pytest.mark.slow
def test_a_run_that_does_not_stop_in_time_does_not_hang(project: Project) -> None:
    code = """
        import trio
        from contextlib import asynccontextmanager
        class X(Agent):
            @asynccontextmanager
            async def lifespan(self):
                try:
                    yield
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(60)
            @action
            async def go(self): await trio.sleep(60)
    """
    ran = project.command("run", with_agent(project, code, world="websocket"), *OFF, "--time-limit", "2s")
    assert ran.code == 124, ran.text
    assert re.search(
        r"it cannot be ended: it was still running, at \d\.\d s, and needs more than 3 s to stop", ran.err
    ), ran.text


# --- surroundings


@pytest.mark.slow
def test_modules_of_the_project_do_not_hide_ours(project: Project) -> None:
    for name in ("trio", "json", "attrs", "rich", "jsonpath"):
        project.write(f"{name}.py", "raise RuntimeError('not the right one')\n")
    words = ["-P", "-m", "lmos_actors", "run", with_agent(project, FINE)]
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "same log in a second process: 1 of 1" in ended.stdout


@pytest.mark.slow
def test_line_ends_inside_of_text_are_no_line_ends_of_the_log(project: Project) -> None:
    text = {**NOTE, "input": {"text": "a\u2028b\x85c"}}
    ran = project.command("run", project.write("s.yaml", story(text)))
    assert "same log in a second process: 1 of 1" in ran.out


@pytest.mark.parametrize(
    ("log", "said", "code"),
    [
        ("s.yaml", "is a scenario file", 2),
        ("./s.yaml", "is a scenario file", 2),
        (".", "Is a directory", 2),
        ("pipe", "No such device or address", 2),
        ("/dev/full", "No space left on device", 3),  # no mistake of the file
        ("a\0b", "embedded null", 2),  # byte or character, by the version of Python
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="has /dev/full, and these words")
def test_where_a_log_cannot_go(project: Project, log: str, said: str, code: int) -> None:
    os.mkfifo(project.root / "pipe")
    text = story(NOTE, report={"log": log})
    ran = project.command("run", project.write("s.yaml", text), *OFF)
    assert ran.code == code
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert (project.root / "s.yaml").read_text() == text


@pytest.mark.parametrize("words", [("run", "s.yaml", *OFF), ("run", "s.yaml", *OFF, "--json"), ("--help",)])
@pytest.mark.skipif(sys.platform != "linux", reason="has /dev/full")
def test_a_full_disk(project: Project, words: tuple[str, ...]) -> None:
    project.write("s.yaml", story(NOTE))
    with open("/dev/full", "w") as full, started(words, project.root, stdout=full.fileno()) as command:
        _, err = command.communicate(40)
    assert (command.returncode, err) == (3, "lmos-actors: No space left on device\n")


@pytest.mark.slow
def test_without_any_streams(project: Project) -> None:
    project.write("s.yaml", story(NOTE))
    line = f"{sys.executable} -m lmos_actors run s.yaml {' '.join(OFF)} <&- >&- 2>&-"
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == 0


@pytest.mark.slow
def test_characters_that_the_output_cannot_show(project: Project) -> None:
    file = project.write("s.yaml", story(NOTE, name="été"))
    ran = project.command("run", file, *OFF, PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert "\\xe9t\\xe9  s.yaml" in ran.out
    data = json.loads(project.command("run", file, *OFF, "--json", PYTHONIOENCODING="ascii").out)
    assert data["files"][0]["name"] == "été"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seeds", "1..999999999999"), "more than 100000 seeds"),
        (("--seeds", "1,2,1"), "a seed twice"),
        (("--time-limit", "0s"), "must be more than 0s"),
        (("-k", "(" * 3000), "more than 100 words"),
    ],
)
def test_words_of_the_command(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "s.yaml", *words])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in err


# --- Ctrl-C


INTERRUPTING = """
import _thread
class X(Agent):
    @action
    def go(self):
        for made in range(3):
            self.send(self.ref, X.spin)
            Hit()
    @action
    def spin(self):
        while True: pass

class Hit:
    def __del__(self):
        os.kill(os.getpid(), {signal})
        for _ in range(1000): pass
"""


@pytest.mark.slow
def test_ctrl_c_that_a_finalizer_swallows_ends_the_run(project: Project) -> None:
    """As where trio holds it back to the next checkpoint: what runs next may loop, and never come to one."""
    file = with_agent(project, INTERRUPTING.format(signal=int(signal.SIGINT)))
    ran = project.command("run", file, *OFF)
    assert (ran.code, ran.err) == (130, "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["importing its agents hangs at", "it cannot be ended: it hangs at"])
def test_ctrl_c_that_nothing_heeds_ends_the_process(project: Project, where: str) -> None:
    loop = """
while True:
    try:
        print("begun", flush=True)
        while True: pass
    except BaseException: pass
"""
    if where.startswith("importing"):
        file = with_agent(project, loop)
    else:
        body = textwrap.indent(loop, "        ")
        file = with_agent(project, f"class X(Agent):\n    @action\n    def go(self):\n{body}")
    with started(("run", file), project.root) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "interrupted" in err
    assert where in err
    assert "Traceback" not in err
