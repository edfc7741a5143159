"""Which files are run, by words and labels; what else the commands take: `sim`, `completion`, `--json`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from lmos_actors.cli._commands import COMMANDS, application
from tests.scenario.project import CAST, Project, Ran, story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}


@pytest.fixture
def project(tmp_path: Any) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    yield made
    sys.path[:] = path
    if "cast" not in modules:
        sys.modules.pop("cast", None)


@pytest.fixture
def call(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    monkeypatch.chdir(project.root)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


def test_files_are_chosen_by_labels(project: Project, call: Callable[..., Ran]) -> None:
    one = project.write("one.yaml", story(NOTE, labels={"team": "travel", "tier": "smoke"}))
    two = project.write("two.yaml", story(NOTE, name="second", labels={"team": "desk"}))
    off = ("--check-determinism", "off")

    def files(*words: str) -> list[str]:
        return [
            file["file"] for file in json.loads(call("run", one, two, *off, *words, "--json").out)["files"]
        ]

    assert files() == [one, two]
    assert files("-l", "team=travel") == [one]
    assert files("--label", "team!=travel") == [two]
    assert files("-l", "team", "-l", "tier=smoke") == [one]
    assert files("-k", "second") == [two]
    nothing = call("run", one, two, "-l", "team=trvel")
    assert (nothing.code, nothing.out) == (2, "")
    assert "--label: no file has team=trvel; there are team=travel, tier=smoke, team=desk" in nothing.err
    nothing = call("run", one, two, "-l", "team=desk", "-k", "seed=2")
    assert nothing.code == 2
    assert '-k: no run has the words "seed=2"; there are second seed=1' in nothing.err


# --- JSON, also of what is wrong


def test_json_says_what_is_wrong(project: Project, call: Callable[..., Ran]) -> None:
    good = project.write("good.yaml", story(NOTE))
    bad = project.write("bad.yaml", story({**NOTE, "actoin": "x"}))
    for verb in ("run", "validate"):
        ran = call(verb, good, bad, "--json")
        assert ran.code == 2
        data = json.loads(ran.out)
        mistake = data["mistakes"][0]
        assert data["exit_code"] == 2
        assert mistake["file"] == bad
        assert any('unknown key "actoin"' in each["message"] for each in data["mistakes"])
        assert f"{bad}:{mistake['line']}:{mistake['column']}" in ran.err
    ran = call("run", good, "--sed", "1", "--json")
    assert (ran.code, json.loads(ran.out)["mistakes"][0]["kind"]) == (2, "usage")


def test_validate_says_what_is_right(project: Project, call: Callable[..., Ran]) -> None:
    good = project.write(
        "good.yaml", story(NOTE, seeds=[1, 2], vars={"spare": {"type": "string", "default": "x"}})
    )
    data = json.loads(call("validate", good, "--json").out)
    (file,) = data["files"]
    assert (file["name"], file["runs"], data["mistakes"], data["exit_code"]) == ("story", 2, [], 0)
    assert "$(vars.spare) is not used" in file["notes"][0]["message"]


# --- simulations

SIMULATION = {
    "lmos": "simulation/v1",
    "name": "sim",
    "stop": {"at": "30s"},
    "population": [{"id": "peer", "count": 3, "use": "cast.py:Actor"}],
    "checks": [{"check": "restarts", "of": "peer", "equals": 0}],
}


@pytest.mark.slow
def test_a_simulation_ends_on_a_signal(project: Project, call: Callable[..., Ran]) -> None:
    file = project.write("sim.yaml", json.dumps(SIMULATION))
    for words, virtual in ((("run",), 30.0), (("sim", "--until", "2m", "-j", "2"), 120.0)):
        ran = call(words[0], file, *words[1:], "--json")
        assert ran.code == 0, ran.text
        (result,) = json.loads(ran.out)["files"]
        assert [run["virtual"] for run in result["runs"]] == [virtual]
        assert result["determinism"][0]["equal"]


@pytest.mark.slow
def test_what_failed_is_repeated_up_to_the_same_end(project: Project, call: Callable[..., Ran]) -> None:
    restarted = {"check": "restarts", "of": "peer", "equals": 1}
    file = project.write("sim.yaml", json.dumps({**SIMULATION, "checks": [restarted]}))
    for words, again in (
        (("run",), f"lmos-actors run {file} --seed 1"),
        (("sim", "--until", "90s"), f"lmos-actors sim {file} --seed 1 --until 90s"),
    ):
        ran = call(words[0], file, *words[1:], "--json")
        assert ran.code == 1
        (result,) = json.loads(ran.out)["files"]
        assert [run["again"] for run in result["runs"]] == [again]


# --- help and completion


@pytest.mark.slow
def test_every_command_teaches_by_example(call: Callable[..., Ran]) -> None:
    whole = call("--help").out
    listed = [line.split(":")[0].strip() for line in whole.splitlines() if line.startswith("  ")]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
    for verb in COMMANDS:
        ran = call(verb, "--help")
        assert ran.code == 0
        assert f"\nlmos-actors {verb}" in ran.out
        assert "FLOAT" not in ran.out
        assert all(ord(character) < 128 for character in ran.out), "boxes are for terminals"


def test_the_line_of_a_command_is_the_first_sentence_of_its_help() -> None:
    app = application()
    helps = {verb: app[verb].help.partition("\n\n")[0] for verb in COMMANDS}
    assert helps == {verb: command.line for verb, command in COMMANDS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_has_every_verb(
    call: Callable[..., Ran], project: Project, shell: str
) -> None:
    ran = call("completion", shell)
    assert ran.code == 0
    assert [word for word in (*COMMANDS, "junit", "fail-fast") if word not in ran.out] == []
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=ran.out, text=True, check=True)
    if shell == "zsh" and shutil.which("zsh"):
        code = "eval $SCRIPT; echo $_comps[lmos-actors]"
        env = {**os.environ, "SCRIPT": ran.out, "ZDOTDIR": str(project.root)}
        told = subprocess.run(
            ["zsh", "-f", "-c", code], env=env, capture_output=True, text=True, check=True, cwd=project.root
        )
        assert told.stdout.strip() == "_cyclopts_lmos-actors", told.stderr


@pytest.mark.slow
def test_the_startup_file_of_zsh_reads_the_completion_once(
    call: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZDOTDIR", "ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        assert call("completion", "zsh", "--install").code == 0
    script = tmp_path / ".zsh/completions/_cyclopts_lmos-actors"
    assert script.read_text().split() == call("completion", "zsh").out.split()
    lines = (tmp_path / ".zshrc").read_text().splitlines()
    assert lines.count(f'[[ -f "{script}" ]] && source "{script}"') == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["completion", "tcsh"], "tcsh"),
        (["completion"], "SHELL"),
        (["doctr"], 'did you mean "doctor"?'),
        (["fmt"], "FILES"),
        (["run", "x", "--fail-fst"], "Did you mean --fail-fast?"),
    ],
)
def test_wrong_words(call: Callable[..., Ran], words: list[str], said: str) -> None:
    ran = call(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


# --- comparisons where the runs have been narrowed


@pytest.mark.parametrize(
    ("words", "judged"), [((), True), (("--set", "pause=1s"), False), (("-k", "pause=1s"), False)]
)
def test_what_is_left_with_one_value_is_not_compared(
    project: Project, call: Callable[..., Ran], words: tuple[str, ...], judged: bool
) -> None:
    wait = {"do": "wait", "for": "$(matrix.pause)"}
    check = {"check": "compare", "metric": "note.max", "across": "pause", "trend": "increasing"}
    project.write("two.yaml", story(NOTE, wait, matrix={"pause": ["1s", "2s"]}, checks=[check]))
    ran = call("run", "two.yaml", "--check-determinism", "off", "--json", *words)
    (file,) = json.loads(ran.out)["files"]
    assert len(file["compared"]) == judged
    assert ran.code == judged  # all notes take the same time: compared, they do not increase
    assert ("not compared" in ran.err) != judged


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "nowhere.yaml"], "run"),
        (["sim", "nowhere.yaml"], "sim"),
        (["validate", "nowhere.yaml"], "validate"),
        (["fmt", "nowhere.yaml"], "fmt"),
        (["replay", "nowhere.jsonl"], "replay"),
        (["diff", "one.jsonl", "other.jsonl"], "diff"),
        (["describe", "nowhere.json"], "describe"),
        (["serve", "nowhere.py:Agent"], "serve"),
        (["directory", "serve", "--max-ttl", "long"], "directory serve"),
        (["call", "nowhere.json", "ask"], "call"),
        (["read", "nowhere.json"], "read"),
        (["conform", "nowhere.json"], "conform"),
        (["discover", "nowhere://"], "discover"),
        (["run", "--no-such-option"], "run"),
        (["init", "--template", "nowhere"], "init"),
        (["rum"], ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_ends_with_the_help_of_its_command(
    words: list[str], command: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    *_, last = capfd.readouterr().err.splitlines()
    assert ended.value.code in (2, 3)
    wanted = f"lmos-actors {command} --help explains the command"
    assert last == (wanted if command else "lmos-actors --help lists the commands")
