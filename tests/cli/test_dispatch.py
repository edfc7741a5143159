"""The command: what it prints, and its exit codes; nothing a user does wrong ends in a traceback or hangs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.cli import main
from tests.commands import started
from tests.scenario.project import CAST, Project, Ran, story
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
WRONG = {"do": "expect", "that": "output", "of": "note", "equals": "ho"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("cast", "broken", "leaving", "pointless", "hanging"):
            del sys.modules[name]


@pytest.fixture
def call(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Call the command in this process, in the project's folder."""
    monkeypatch.chdir(project.root)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


def off(*words: str) -> tuple[str, ...]:
    return (*words, "--check-determinism", "off")


# --- what it says


def test_a_run_that_passes(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("good.yaml", story(NOTE))
    ran = call(*off("run", file))
    assert (ran.code, ran.err) == (0, "")
    shown = re.sub(r"\d\.\d+ s", "N s", ran.out)
    assert shown == (
        "story  good.yaml  1 run\n"
        " seed=1  ########## 1/1 steps  0/0 checks  ok  N s (virtual 0 s)\n"
        "1/1 runs passed in N s\n"
    )


def test_a_run_that_fails_says_what_was_expected_where_and_how_to_see_it_again(
    project: Project, call: Callable[..., Ran]
) -> None:
    steps = {**WRONG, "equals": "$(vars.word)"}
    variables = {"word": {"type": "string", "default": "hi"}}
    file = project.write("bad.yaml", story(NOTE, steps, vars=variables, matrix={"size": [1, 2]}))
    text = (project.root / file).read_text().replace('"cast.py:Actor"', '"cast.py:Actor", "mailbox": SIZE')
    project.write("bad.yaml", text.replace("SIZE", '{"size": "$(matrix.size)"}'))
    ran = call(*off("run", file, "--set", "word=two words", "--seeds", "3..4", "-k", "size=2 and not seed=3"))
    assert ran.code == 1
    assert 'expected "two words"\n     saw      "hi"\n' in ran.out
    assert re.search(r"bad\.yaml:\d+:3: expect output note\n", ran.out)
    assert "actor" in ran.out
    assert "again:  lmos-actors run bad.yaml --seed 4 --set 'word=two words' --set size=2\n" in ran.out
    (again,) = re.findall(r"again:  lmos-actors (.*)", ran.out)
    import shlex

    assert 'saw      "hi"' in call(*off(*shlex.split(again))).out


def test_json_is_all_of_the_output(project: Project, call: Callable[..., Ran]) -> None:
    speak = {"do": "invoke", "target": "actor", "action": "speak"}
    file = project.write("json.yaml", story(speak, NOTE, WRONG))
    ran = call(*off("run", file, "--json"))
    assert ran.code == 1
    assert ran.err == "spoken by an agent\n"
    data = json.loads(ran.out)
    assert data["exit_code"] == 1
    (run,) = data["files"][0]["runs"]
    assert run["failures"][0]["saw"] == '"hi"'
    assert (run["steps"], run["steps_done"], run["ended"], run["seed"]) == (3, 2, "failed", 1)


def test_a_log_has_the_messages_of_all_runs(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("log.yaml", story(NOTE, seeds=[1, 2], report={"log": "own.jsonl"}))
    assert call(*off("run", file, "--log", "messages.jsonl")).code == 0
    lines = [json.loads(line) for line in (project.root / "messages.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines if "seed" in line] == [1, 2]
    assert (project.root / "own.jsonl").read_text() == (project.root / "messages.jsonl").read_text()
    assert call(*off("run", file, "--log", "log.yaml/no/folder")).code == 2


def test_fail_fast_stops_at_the_first(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("fast.yaml", story(NOTE, WRONG, seeds=[1, 2, 3]))
    assert "0/3 runs" in call(*off("run", file)).out
    assert "0/1 runs" in call(*off("run", file, file, "--fail-fast")).out


def test_validate_and_schema(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("valid.yaml", story(NOTE))
    assert call("validate", file).out == "valid.yaml: story, 1 run, ok\n"
    schema = json.loads(call("schema").out)
    assert schema["title"]
    assert call("schema", "--write").code == 0
    assert json.loads((project.root / ".lmos/schema.json").read_text()) == schema


def test_help_teaches(call: Callable[..., Ran]) -> None:
    ran = call("--help")
    assert ran.code == 0
    assert "lmos-actors run scenarios/weather.yaml" in ran.out
    assert "124 time limit" in ran.out
    assert "--check-determinism" in call("run", "--help").out
    assert call().code == 0


def test_the_version_needs_nothing_heavy(call: Callable[..., Ran]) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\S+\n", call("--version").out)
    code = (
        "import sys; from lmos_actors.cli import main\n"
        "heavy = {'cyclopts', 'rich', 'yaml', 'cattrs', 'jsonschema_rs'}\n"
        "try: main(['--version'])\n"
        "except SystemExit: print(sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[]"


# --- wrong usage: 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rum"], 'no command "rum", did you mean "run"?'),
        (
            ["run", "a.yaml", "--seeds", "1", "b.yaml"],
            'unexpected argument "b.yaml": all arguments stand together',
        ),
        (["sim", "good.yaml", "--speed", "fast"], '"fast" is neither a number nor max'),
        (["sim", "good.yaml", "--speed", "0"], "must be more than 0"),
        (["sim", "good.yaml", "--until", "0s"], "must be more than 0s"),
        (["sim", "good.yaml", "--until", "1m"], "--until: good.yaml is no simulation"),
        (["run", "good.yaml", "-j", "two"], '"two" is not a number up to 1000, nor auto'),
        (["run", "good.yaml", "-j", "-1"], '"-1"'),
        (["run", "good.yaml", "-l", "=x"], '"=x" is not NAME=VALUE'),
        (["run", "good.yaml", "-l", "team=x"], "no file has team=x; there are no labels in these files"),
        (["attach"], '"attach" is not available yet'),
        (["frobnicate"], 'no command "frobnicate"'),
        (["run"], "FILES"),
        (["run", "good.yaml", "--sed", "1"], "--sed"),
        (["run", "good.yaml", "--seed", "one"], "one"),
        (["run", "good.yaml", "--seeds", "1..x"], '"1..x" is not 7'),
        (["run", "good.yaml", "--seed", "1", "--seeds", "2"], "not both"),
        (["run", "good.yaml", "--trials", "0"], "at least 1"),
        (["run", "good.yaml", "--set", "word"], "is not NAME=VALUE"),
        (["run", "good.yaml", "--set", "word=1"], 'no variable or matrix key "word"'),
        (["run", "good.yaml", "-k", "nothing"], 'no run has the words "nothing"; there are story seed=1'),
        (["run", "good.yaml", "-k", "(seed"], '")" is missing'),
        (["run", "good.yaml", "-k", "seed and"], "a word is missing at the end"),
        (["run", "good.yaml", "-k", "seed=1 )"], 'cannot be read at ")"'),
        (["run", "good.yaml", "--speed", "0"], "more than 0 and at most 1000"),
        (["run", "good.yaml", "--time-limit", "10"], "10"),
        (["run", "good.yaml", "--check-determinism", "some"], "some"),
        (["serve", "cast.py:Actor", "--port", "80"], "no option --port, use --listen ws://127.0.0.1:PORT"),
        (["run", "goood.yaml"], 'goood.yaml: no such file, did you mean "good.yaml"?'),
        (["validate", "nothing.yaml"], "nothing.yaml: no such file"),
    ],
)
def test_wrong_usage(project: Project, call: Callable[..., Ran], words: list[str], said: str) -> None:
    project.write("good.yaml", story(NOTE))
    ran = call(*words)
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""


# --- wrong files: 2, and 3 where it is the code that they name

HEAD = "lmos: scenario/v1\nname: x\nagents:\n  actor: {from: agent, use: 'cast.py:Actor'}\n"
STEPS = "steps:\n  - {do: invoke, target: actor, action: note, input: {text: a}}\n"


@pytest.mark.parametrize(
    ("text", "place", "said", "code"),
    [
        (HEAD + STEPS.replace("target", "targt"), "6:18", 'unknown key "targt", did you mean "target"', 2),
        (HEAD + STEPS.replace("target: actor", "target: actr"), "6:26", 'no agent "actr"', 2),
        (HEAD + STEPS.replace("note", "nte"), "6:41", 'did you mean "note"?', 2),
        (HEAD + "name: y\n" + STEPS, "5:1", '"name"', 2),
        (HEAD + STEPS + "timeout: 30\n", "7:10", "the unit is missing", 2),
        (HEAD + STEPS + "checks: [{check: restarts, of: actor, equals: -1}]\n", "7:47", "0", 2),
        (HEAD + "steps: [\n", "6:1", "", 2),
        (HEAD + "\tsteps: []\n", "5:1", "", 2),
        ("- a\n", "1:1", "", 2),
        ("", "", "", 2),
        (HEAD.replace("from: agent", "from: process") + STEPS, "4:17", "can be used in world: websocket", 2),
        (HEAD.replace("cast.py:Actor", "cast.py:Acter") + STEPS, "4:29", 'did you mean "Actor"?', 2),
        (HEAD.replace("cast.py:Actor", "casd.py:Actor") + STEPS, "4:29", 'did you mean "cast.py"?', 2),
        (HEAD.replace("cast.py:Actor", "cast.py") + STEPS, "4:29", "package.module:Class", 2),
        (HEAD.replace("cast.py:Actor", "../x.py:Actor") + STEPS, "4:29", "outside the project", 2),
        (HEAD.replace("cast.py:Actor", "broken.py:A") + STEPS, "4:29", "at broken.py:2: ZeroDiv", 3),
        (HEAD.replace("cast.py:Actor", "leaving.py:A") + STEPS, "4:29", "SystemExit: 3", 3),
        (HEAD.replace("cast.py:Actor", "pointless.py:A") + STEPS, "4:29", "at pointless.py:1", 3),
        (HEAD.replace("cast.py:Actor", "cast.py:NoAgent") + STEPS, "4:29", "is not an agent", 2),
    ],
)  # fmt: skip
def test_a_wrong_file(
    project: Project, call: Callable[..., Ran], text: str, place: str, said: str, code: int
) -> None:
    project.write("broken.py", "a = 1\nb = a / 0\n")
    project.write("leaving.py", "import sys\nsys.exit(3)\n")
    project.write("pointless.py", "def f(:\n")
    file = project.write("wrong.yaml", text)
    for verb in ("run", "validate"):
        ran = call(verb, file)
        assert ran.code == code, ran.text
        assert f"{file}:{place}" in ran.err
        assert said in ran.err
        assert ran.out == ""


def test_a_deployment_is_not_run_but_brought_up(project: Project, call: Callable[..., Ran]) -> None:
    text = HEAD.replace("scenario", "deployment") + "groups: {only: {agents: [actor]}}\n"
    file = project.write("deployed.yaml", text)
    ran = call("run", file)
    assert ran.code == 2
    assert f'{file}:1:7: "deployment/v1" has no steps: "up" runs it' in ran.err
    assert call("validate", file).code == 0


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (HEAD.replace("name: x", "name: no") + STEPS, '2:7: note: no is read as the text "no"'),
        (HEAD + STEPS.replace("text: a", "text: yes"), '6:61: note: yes is read as the text "yes"'),
        (HEAD + STEPS.replace("a}}", "1:30}}"), '6:61: note: 1:30 is read as the text "1:30"'),
    ],
)
def test_what_other_readers_of_yaml_misread(
    project: Project, call: Callable[..., Ran], text: str, note: str
) -> None:
    ran = call("validate", project.write("traps.yaml", text))
    assert ran.code == 0
    assert f"traps.yaml:{note}" in ran.err


def test_nothing_runs_while_a_file_is_wrong(project: Project, call: Callable[..., Ran]) -> None:
    good, bad = project.write("good.yaml", story(NOTE)), project.write("bad.yaml", "lmos: x\n")
    ran = call("run", good, bad)
    assert (ran.code, ran.out) == (2, "")


# --- what happens in a run


def test_what_cannot_start(project: Project, call: Callable[..., Ran]) -> None:
    cast = {"actor": {"from": "agent", "use": "cast.py:Actor"}, "bad": {"from": "agent", "use": "cast.py:BadStart"}}  # fmt: skip # noqa: E501
    ran = call("run", project.write("start.yaml", story(NOTE, agents=cast, checks=[{"check": "restarts", "of": "bad", "equals": 0}])))  # fmt: skip # noqa: E501
    assert ran.code == 3
    assert "start.yaml:9:3: start bad\n     expected a running agent\n     saw      OSError: no disk at cast.py" in ran.out  # fmt: skip # noqa: E501


def test_too_few_of_several_trials(project: Project, call: Callable[..., Ran]) -> None:
    step = {"do": "invoke", "target": "actor", "action": "every_third"}
    file = project.write("flaky.yaml", story(step, trials={"count": 3, "pass_rate": 0.6}))
    assert call(*off("run", file)).code == 0
    assert call(*off("run", file, "--trials", "2")).code == 0
    assert call(*off("run", file, "--trials", "1")).code == 1
    file = project.write("flaky.yaml", story(step, trials={"count": 3, "pass_rate": 0.7}))
    ran = call(*off("run", file))
    assert ran.code == 5
    assert "trial 2" in ran.out


def test_a_story_past_its_time(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("late.yaml", story({"do": "wait", "for": "1m"}, NOTE, timeout="1s"))
    assert call(*off("run", file)).code == 124


def test_a_handler_that_loops_for_ever(project: Project, call: Callable[..., Ran]) -> None:
    step = {"do": "invoke", "target": "actor", "action": "spin"}
    ran = call(*off("run", project.write("spin.yaml", story(step)), "--time-limit", "300ms"))
    assert ran.code == 124
    assert "cast.py" in ran.out
    assert "in spin" in ran.out


@pytest.mark.slow
def test_a_handler_that_cannot_be_ended_ends_the_process(project: Project) -> None:
    step = {"do": "invoke", "target": "actor", "action": "spin_hard"}
    file = project.write("hard.yaml", story(step))
    ran = project.command(*off("run", file, "--time-limit", "1s"))
    assert ran.code == 124
    assert "it cannot be ended: it hangs at" in ran.err
    assert "in spin_hard" in ran.err


def test_a_module_of_several_agents_that_cannot_be_imported_is_said_once(
    project: Project, call: Callable[..., Ran]
) -> None:
    project.write("several.py", "raise ValueError('not today')\n")
    agents = "".join(f"  {name}: {{from: agent, use: several.py:A}}\n" for name in ("first", "second"))
    groups = "groups: {only: {agents: [first, second]}}\n"
    file = project.write("several.yaml", f"lmos: deployment/v1\nname: x\nagents:\n{agents}{groups}")
    ran = call("validate", file)
    assert ran.code == 3
    assert ran.err.count("not today") == 1
    assert f"{file}:4:" in ran.err


def test_a_module_that_hangs_when_imported(project: Project, call: Callable[..., Ran]) -> None:
    project.write("hanging.py", "print('importing')\nwhile True:\n    pass\n")
    file = project.write("hangs.yaml", HEAD.replace("cast.py:Actor", "hanging.py:A") + STEPS)
    ran = call("run", file, "--time-limit", "300ms")
    assert (ran.code, ran.out) == (124, "")
    assert "importing its agents hangs at" in ran.err
    assert "hanging.py:" in ran.err


@pytest.mark.slow
def test_two_processes_give_the_same_log(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("same.yaml", story(NOTE, seeds=[1, 2]))
    assert "same log in a second process: 1 of 1" in call("run", file).out
    assert "same log in a second process: 2 of 2" in call("run", file, "--check-determinism", "all").out


def test_a_log_that_depends_on_the_hash_seed(project: Project, call: Callable[..., Ran]) -> None:
    step = {"do": "invoke", "target": "actor", "action": "hashed"}
    ran = call("run", project.write("hashed.yaml", story(step)))
    assert ran.code == 4
    assert "NOT DETERMINISTIC" in ran.out
    assert ran.out.count('"kind":"answered"') == 2
    data = json.loads(call("run", "hashed.yaml", "--json").out)
    assert data["exit_code"] == 4
    assert not data["files"][0]["determinism"][0]["equal"]


@pytest.mark.slow
def test_ctrl_c(project: Project) -> None:
    """A real SIGINT while an agent is busy: 130, and no traceback."""
    busy = {"do": "invoke", "target": "actor", "action": "speak"}
    spin = {"do": "invoke", "target": "actor", "action": "spin"}
    file = project.write("busy.yaml", story(busy, spin))
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "lmos_actors", "run", file],
        cwd=project.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "spoken by an agent\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 130
    assert err == "interrupted\n"


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_is_coloured_unless_turned_off(
    project: Project, variables: dict[str, str], coloured: bool
) -> None:
    import pty

    file = project.write("good.yaml", story(NOTE))
    mine, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **variables}
    words = off("run", file)
    with started(words, project.root, stdout=theirs, stderr=theirs, environment=environment) as process:
        os.close(theirs)
        shown = read_all(mine)
        assert process.wait() == 0
    assert "1/1 runs passed" in shown
    assert ("\x1b[32m" in shown) == coloured


def read_all(terminal: int) -> str:
    """Read what is written to a terminal until nobody has it open any more."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def test_whoever_reads_may_leave(project: Project) -> None:
    file = project.write("good.yaml", story(NOTE, seeds={"from": 1, "count": 50}))
    with started(off("run", file), project.root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
