"""What `use:` names: found, or refused with the reason and no traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lmos_actors.errors import ConfigError
from lmos_actors.system import import_target
from lmos_actors.system.model import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    modules, path = dict(sys.modules), list(sys.path)
    (tmp_path / "pyproject.toml").write_text("")
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def refusal(target: str, root: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        import_target(target, root)
    return str(caught.value)


def test_the_root_is_the_nearest_project(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    assert project_root(root / "a" / "b" / "x.yaml") == root
    write(root, "a/pyproject.toml", "")
    assert project_root(root / "a" / "b" / "x.yaml") == root / "a"


def test_without_a_project_the_root_is_the_folder(root: Path) -> None:
    (root / "pyproject.toml").unlink()
    (root / "a").mkdir()
    assert project_root(root / "a" / "x.yaml") == root / "a"


def test_by_module_and_by_file_it_is_one_class(root: Path) -> None:
    write(root, "zoo/cats.py", "class Cat: ...\n")
    write(root, "zoo/farm.py", "from zoo.cats import Cat\nclass Farm: cat = Cat\n")
    cat = import_target("zoo.cats:Cat", root)
    assert import_target("zoo/cats.py:Cat", root) is cat
    assert import_target("zoo/farm.py:Farm", root).cat is cat  # type: ignore[attr-defined]


def test_a_file_whose_path_is_no_module_name(root: Path) -> None:
    write(root, "my-zoo/big cat.py", "class Cat: ...\n")
    cat = import_target("my-zoo/big cat.py:Cat", root)
    assert cat.__name__ == "Cat"
    assert import_target("my-zoo/big cat.py:Cat", root) is cat


def test_an_installed_class(root: Path) -> None:
    assert import_target("lmos_actors.errors:ConfigError", root) is ConfigError


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("Cat", '"Cat" is not package.module:Class or path/file.py:Class'),
        ("zoo.cats:", "is not package.module:Class"),
        (":Cat", "is not package.module:Class"),
        ("zoo.cats:Big.Cat", "is not package.module:Class"),
        ("zoo..cats:Cat", '"zoo..cats" is not a module name'),
        ("zoo cats:Cat", '"zoo cats" is not a module name'),
        ("zoo.cast:Cat", 'no module "zoo.cast" in '),
        ("zoo.cast:Cat", 'did you mean "cats"?'),
        ("zo.cats:Cat", 'did you mean "zoo"?'),
        ("zoo.cats.big:Cat", 'no module "zoo.cats.big"'),
        ("zoo/cast.py:Cat", 'no file "zoo/cast.py" in '),
        ("zoo/cast.py:Cat", 'did you mean "cats.py"?'),
        ("nowhere/cats.py:Cat", 'no file "nowhere/cats.py"'),
        ("../cats.py:Cat", "is outside the project root"),
        ("zoo.cats:Cart", 'no class "Cart" in zoo.cats, did you mean "Cat"?'),
        ("zoo.cats:number", '"number" in zoo.cats is not a class'),
    ],
)
def test_a_target_that_leads_nowhere_is_refused_with_the_nearest_name(
    target: str, said: str, root: Path
) -> None:
    write(root, "zoo/cats.py", "class Cat: ...\nnumber = 1\n")
    assert said in refusal(target, root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x = 1\nx = 1 / 0\n",
            'importing "zoo.cats" failed at zoo/cats.py:2: ZeroDivisionError: division by zero',
        ),
        ("import nowhere\n", "failed at zoo/cats.py:1: ModuleNotFoundError: No module named 'nowhere'"),
        (
            "import zoo.nowhere\n",
            "failed at zoo/cats.py:1: ModuleNotFoundError: No module named 'zoo.nowhere'",
        ),
        ("from zoo import nothing\n", "failed at zoo/cats.py:1: ImportError"),
        ("x = 1\nclass Cat(:\n", "failed at zoo/cats.py:2: SyntaxError: invalid syntax"),
        ("import json\n\njson.loads('')\n", "failed at zoo/cats.py:3: JSONDecodeError"),
        ("raise SystemExit(3)\n", "failed at zoo/cats.py:1: SystemExit: 3"),
        ("raise KeyError\n", "failed at zoo/cats.py:1: KeyError"),
    ],
)
@pytest.mark.parametrize("target", ["zoo.cats:Cat", "zoo/cats.py:Cat"])
def test_an_error_inside_names_the_line(text: str, said: str, target: str, root: Path) -> None:
    write(root, "zoo/cats.py", text)
    message = refusal(target, root)
    assert said in message
    assert "Traceback" not in message
    write(root, "zoo/cats.py", "# mended, and longer than it was before\nclass Cat: ...\n" + "#" * len(text))
    assert import_target(target, root).__name__ == "Cat"


@pytest.mark.parametrize("around", ["the project", "the package too"])
def test_the_line_is_theirs_where_generated_code_or_this_package_raises(
    around: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    write(root, "cats.py", "from lmos_actors import About\n\nAbout(vendor='Acme')\n")
    top = root if around == "the project" else Path(root.anchor)
    said = refusal(f"{(root / 'cats.py').relative_to(top).as_posix()}:Cat", top)
    assert "cats.py:3: TypeError: About: vendor" in said


def test_an_error_inside_a_file_that_is_no_module(root: Path) -> None:
    write(root, "big-cat.py", "\nraise ValueError('no')\n")
    assert refusal("big-cat.py:Cat", root) == 'importing "big-cat.py" failed at big-cat.py:2: ValueError: no'


def test_a_module_of_that_name_from_elsewhere(root: Path) -> None:
    write(root, "one/zoo/cats.py", "class Cat: ...\n")
    write(root, "two/zoo/cats.py", "class Cat: ...\n")
    import_target("zoo.cats:Cat", root / "one")
    for target in ("zoo.cats:Cat", "zoo/cats.py:Cat"):
        assert "is already imported under that name" in refusal(target, root / "two")


def test_accepts_gives_the_reason(root: Path) -> None:
    write(root, "zoo.py", "class Cat: ...\n")
    with pytest.raises(ConfigError, match='"zoo:Cat": Cat is no agent'):
        import_target("zoo:Cat", root, lambda found: f"{found.__name__} is no agent")
    assert import_target("zoo:Cat", root, lambda _: None).__name__ == "Cat"


def test_only_the_root_is_put_on_the_path(root: Path) -> None:
    write(root, "zoo.py", "class Cat: ...\n")
    before = list(sys.path)
    import_target("zoo:Cat", root)
    import_target("zoo.py:Cat", root)
    assert [entry for entry in sys.path if entry not in before] == [str(root)]
