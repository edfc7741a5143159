"""Folders in the place of files: the scenario files in them, in order, and the error where there is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import ConfigError
from lmos_actors.cli import main
from lmos_actors.cli.run._folders import files_in
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


@pytest.mark.parametrize(
    ("text", "taken"),
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
def test_the_key_makes_a_scenario_file(tmp_path: Path, text: str, taken: bool) -> None:
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "zz.yaml").write_text("lmos: scenario/v1\n")
    found = [str(tmp_path / name) for name in ("x.yaml", "zz.yaml")]
    assert files_in([tmp_path]) == (found if taken else found[1:])


def test_files_of_folders_stand_in_order_and_once(tmp_path: Path) -> None:
    texts = {
        "b.yaml": "lmos: x",
        "a.toml": 'lmos = "x"',
        "C.JSON": '{"lmos": "x"}',
        ".d.yaml": "lmos: x",
        "e.txt": "lmos: x",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "f.yaml").mkdir()
    here = [str(tmp_path / name) for name in ("C.JSON", "a.toml", "b.yaml")]
    assert files_in([tmp_path]) == files_in([tmp_path, tmp_path]) == here
    assert files_in([tmp_path / "b.yaml", tmp_path]) == [here[2], *here[:2]]
    assert files_in([tmp_path, tmp_path / "b.yaml"]) == here[:2] + here[2:]
    assert files_in([tmp_path / "no.yaml"] * 2) == [str(tmp_path / "no.yaml")] * 2


def test_a_folder_without_scenario_files_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no scenario file, .* in it are not searched") as caught:
        files_in([tmp_path])
    assert caught.value.path == str(tmp_path)
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"without it there is data\.json"):
        files_in([tmp_path])


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
    assert ran.err.endswith("lmos-actors run --help explains the command\n")
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
