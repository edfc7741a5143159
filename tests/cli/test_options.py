"""Options that are named somewhere exist: in messages, in docstrings and in the documentation."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import TYPE_CHECKING, get_args

import pytest

from lmos_actors import open_node
from lmos_actors.cli import main
from lmos_actors.cli._commands import application
from lmos_actors.cli.options._connection import in_shell
from lmos_actors.cli.serve._serve import OPTIONS, as_option
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cyclopts import App

PACKAGE = ROOT / "lmos_actors"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *PACKAGE.rglob("*.txt")])
MODULES = sorted(PACKAGE.rglob("*.py"))
OF_OTHERS = {
    "curl": {"--data"},
    "docker": {"--init"},
    "Ray": {"--head"},
    "pip": {"--upgrade"},
    "pytest-cov and coverage": {"--cov", "--cov-context", "--cov-report", "--show-contexts"},
    "our suite and benchmarks": {
        "--long",
        "--differing",
        "--matrix",
        "--resume",
        "--rounds",
        "--scale",
        "--slow",
    },
    "arrows of Mermaid": {"--x"},
}


def commands(root: App) -> Iterator[App]:
    yield root
    for name in root:
        if not name.startswith("-"):
            yield from commands(root[name])


def options_of(command: App) -> set[str]:
    if command.default_command is None:
        return set()
    return {name for each in command.assemble_argument_collection() for name in each.names}


@cache
def known() -> frozenset[str]:
    """Every option of the command and of the plugins for pytest, and those of others that are named."""
    found = {name for command in commands(application()) for name in options_of(command)}
    for path in MODULES:
        found |= set(
            re.findall(r'(?:addoption\(|_OPTION: Final = )"(--[a-z-]+)"', path.read_text(encoding="utf-8"))
        )
    return frozenset(found.union({"--help", "--version", "--lmos"}, *OF_OTHERS.values()))


def texts(source: str) -> Iterator[str]:
    """The texts of a module, those between the fields of f-strings too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown(texts: Iterable[str]) -> set[str]:
    return {option for text in texts for option in OPTION.findall(text)} - known()


@pytest.mark.slow
def test_every_option_that_is_named_is_one() -> None:
    named: dict[Path, list[str]] = {path: [path.read_text(encoding="utf-8")] for path in PAGES}
    named |= {path: list(texts(path.read_text(encoding="utf-8"))) for path in MODULES}
    wrong = {str(path.relative_to(ROOT)): found for path, each in named.items() if (found := unknown(each))}
    assert wrong == {}


def test_one_that_is_none_is_seen() -> None:
    assert unknown(texts('raise ConfigError(f"{url} goes with --tls", "--cert")')) == {"--tls"}


def test_no_message_of_a_command_names_an_argument_of_python() -> None:
    said = "say which one by thing=; a form leads to 'x' (local=True allows it), or say allow_insecure=True"
    assert in_shell(said) == "say which one by --thing; a form leads to 'x', or say --insecure"


def test_errors_of_node_arguments_name_the_options_of_serve() -> None:
    assert known()
    app = application()
    there = options_of(app["serve"]) | options_of(app["directory"]["serve"])
    assert {option for option in OPTIONS.values() if option not in there} == set()
    assert set(OPTIONS) <= set(inspect.signature(open_node).parameters)
    assert as_option("open_node(tls=...)") == "--cert"
    assert as_option("open_node(threads=...)") == "open_node(threads=...)"
    assert as_option("rules.yaml:3:5") == "rules.yaml:3:5"


def test_numbers_of_options_are_decimal_digits() -> None:
    """A converter of Cyclopts takes `1_0` and `0x10`, and rounds 1.6 for a whole number."""
    numbers = [
        each
        for command in commands(application())
        if command.default_command is not None
        for each in command.assemble_argument_collection()
        if {int, float} & {each.hint, *get_args(each.hint)}
    ]
    assert len(numbers) > 20
    assert [each.name for each in numbers if each.parameter.converter is None] == []


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--seed", "1_0"], '--seed: "1_0" is not a whole number such as 10'),
        (["--seed", "1.6"], '--seed: "1.6" is not a whole number'),
        (["--trials", "0x10"], '--trials: "0x10" is not a whole number'),
        (["--seeds", "1_0..2_0"], '"1_0..2_0" is not 7, nor 1,7,42, nor 1..500'),
        (["--speed", "1_0"], '"1_0" is neither a number nor max'),
        (["-j", "\u0663"], "is not a number up to 1000, nor auto"),
    ],
)
def test_other_numbers_are_refused(
    words: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", *words, "nothing.yaml"])
    assert ended.value.code == 2
    assert refusal in capsys.readouterr().err
