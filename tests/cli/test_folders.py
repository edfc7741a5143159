"""Folders in the place of files: the scenario files in them, in order, and the error where there is none."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from tests.scenario.project import CAST, Project, Ran, story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    (tmp_path / "stories" / "deeper").mkdir(parents=True)
    for name in ("b.yaml", "a.yml", "deeper/c.yaml"):
        made.write(f"stories/{name}", story(NOTE))
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


def taken(call: Callable[..., Ran], *words: str) -> list[str]:
    """Return the files that are validated, those with mistakes last."""
    said = json.loads(call("validate", *words, "--json").out)
    return list(dict.fromkeys(each["file"] for key in ("files", "mistakes") for each in said[key]))


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("lmos: scenario/v1\n", True),
        ("# about\n\n  lmos : scenario/v2\n", True),
        ('"lmos": x\n', True),
        ("{lmos: scenario/v1}", True),
        ("\ufefflmos: scenario/v1\nsteps: [", True),
        ("name: lmos\n", False),
        ("", False),
        ("# lmos: scenario/v1\n", False),
    ],
)
def test_the_key_makes_a_scenario_file(
    call: Callable[..., Ran], project: Project, text: str, is_taken: bool
) -> None:
    project.write("stories/z.yaml", text)
    assert ("stories/z.yaml" in taken(call, "stories")) is is_taken


def test_files_of_folders_stand_in_order_and_once(call: Callable[..., Ran], project: Project) -> None:
    for name in ("Z.YAML", ".d.yaml", "e.txt"):
        project.write(f"stories/{name}", story(NOTE))
    (project.root / "stories/f.yaml").mkdir()
    here = ["stories/Z.YAML", "stories/a.yml", "stories/b.yaml"]
    assert taken(call, "stories") == taken(call, "stories/", "./stories") == here
    assert taken(call, "stories/b.yaml", "stories") == [here[2], *here[:2]]
    assert taken(call, "stories", "stories/deeper") == [*here, "stories/deeper/c.yaml"]
    said = json.loads(call("validate", "stories", "stories/a.yml", "--json").out)
    assert [each["file"] for each in said["files"]] == [here[0], here[2], here[1]]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "validate", "sim"])
def test_commands_take_folders(call: Callable[..., Ran], command: str) -> None:
    ran = call(command, "stories")
    assert (ran.code, ran.err) == (0, "")
    assert 0 <= ran.out.index("stories/a.yml") < ran.out.index("stories/b.yaml")
    assert "deeper" not in ran.out


def test_fmt_takes_folders(call: Callable[..., Ran], project: Project) -> None:
    assert call("fmt", "stories").code == 0
    ran = call("fmt", "stories", "--check")
    assert (ran.code, ran.err) == (0, "")
    assert call("fmt", "stories/deeper", "--check").code == 1


def test_mistakes_in_folders(call: Callable[..., Ran], project: Project) -> None:
    (project.root / "empty").mkdir()
    ran = call("run", "empty")
    assert ran.code == 2
    assert ran.err.startswith("lmos-actors: empty: has no scenario file, ")
    assert "; folders in it are not searched\n" in ran.err
    assert ran.err.endswith("lmos-actors run --help explains the command\n")
    project.write("empty/data.json", "{}")
    assert "; without it there is data.json; folders" in call("fmt", "empty").err
    project.write("stories/other.json", "{}")
    ran = call("validate", "stories")
    assert (ran.code, ran.err) == (0, 'stories: note: left out, without the key "lmos": other.json\n')
    project.write("stories/broken.yaml", "lmos: scenario/v1\nname: [\n")
    assert call("run", "stories").code == 2


def test_help_says_so(call: Callable[..., Ran]) -> None:
    for command in ("run", "sim", "validate", "fmt"):
        said: Any = call(command, "--help").out
        assert "FILES|FOLDERS..." in said
        assert "A folder stands for those in it" in " ".join(said.split())
