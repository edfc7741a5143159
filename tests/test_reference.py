"""The reference leaves nothing out: every public name with its members, every error, every key of a file."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from functools import cache

import attrs
import msgspec
import pytest

import lmos_actors
import lmos_actors.testing
from lmos_actors.cli import _main as cli
from lmos_actors.protocol import td
from lmos_actors.scenario import _model as model
from lmos_actors.scenario._results import PRECEDENCE
from tests.source import ROOT

REFERENCE = ROOT / "docs/reference"
EXPORTED = {
    name: thing
    for name, thing in vars(lmos_actors).items()
    if not name.startswith("_") and not inspect.ismodule(thing)
}
ERRORS = [
    name for name, thing in EXPORTED.items() if isinstance(thing, type) and issubclass(thing, Exception)
]
OTHERS = [name for name in EXPORTED if name not in ERRORS or name == "SlowTurnWarning"]
CLASSES = {name: EXPORTED[name] for name in OTHERS if isinstance(EXPORTED[name], type)}

FOR_THE_RUNTIME = {
    "CrashReport": {
        "before",
        "hand",
        "handler",
        "is_first_start",
        "is_of",
        "line",
        "secrets",
        "short",
        "state",
        "state_as_of",
        "text",
        "unwound",
    },
    "Following": {"affordance", "bind", "close", "drop", "gap", "push", "take"},
    "Topic": {"add", "close", "remove", "secrecy"},
    "Event": {"wire_name", "doc", "attribute", "handle", "take", "immutable"},
    "Feed": {"push", "gap", "close", "receiver"},
    "Monitor": {"begin", "push", "take", "gap", "close"},
    "Pool": {"unnamed", "tree"},
    "Property": {"attribute", "handle", "hidden", "take", "wire_name"},
    "Supervisor": {
        "exited",
        "named",
        "ref",
        "child_path",
        "start",
        "start_task",
        "main",
        "stop",
        "kill",
        "request",
        "idle",
        "settled",
    },
}
"""Members without an underscore that other parts of the package call, and nobody else does."""


@cache
def sections() -> dict[str, str]:
    """The names with a heading of their own, each with the text below it."""
    found: dict[str, str] = {}
    others = {REFERENCE / "scenario-format.md", REFERENCE / "api.md"}
    for page in sorted(set(REFERENCE.glob("*.md")) - others):
        parts = re.split(r"^(#+) +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for level, heading, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if level == "###":
                name = heading.replace("`", "")
                assert name not in found, f"{name} is in the reference twice"
                found[name] = text
    return found


def code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def words(text: str) -> set[str]:
    """The words that stand in code."""
    return {word for part in code(text) for word in re.findall(r"\w+", part)}


def rows(text: str) -> dict[str, str]:
    """What stands in code in the first columns of the tables, with the second column."""
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return {word: cells[2].strip() for cells in lines for word in code(cells[1])}


@pytest.mark.parametrize("name", OTHERS)
def test_a_public_name_has_its_section(name: str) -> None:
    assert name in sections()


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_has_its_row(name: str) -> None:
    assert name in rows((REFERENCE / "errors.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CLASSES)
def test_the_members_of_a_class_are_in_its_section(name: str) -> None:
    known, thing = words(sections()[name]), CLASSES[name]
    fields = [field.name for field in attrs.fields(thing)] if attrs.has(thing) else []
    mine = {
        member: value for member, value in vars(thing).items() if inspect.isroutine(value) or is_shown(value)
    }
    wanted = {member for member in (*fields, *mine) if not member.startswith("_")}
    wanted -= FOR_THE_RUNTIME.get(name, set())
    parameters = {
        f"{member}({each})"
        for member in wanted
        if inspect.isfunction(mine.get(member))
        for each in list(inspect.signature(mine[member]).parameters)[1:]
        if each not in known
    }
    assert sorted((wanted - known) | parameters) == []


def is_shown(value: object) -> bool:
    return isinstance(value, property)


@pytest.mark.parametrize("name", [name for name in OTHERS if inspect.isroutine(EXPORTED[name])])
def test_the_parameters_of_a_function_are_in_its_section(name: str) -> None:
    known = words(sections()[name])
    hidden = {"fn", "init"}  # what a decorator goes on, and what only type checkers read
    given = set(inspect.signature(EXPORTED[name]).parameters) - hidden
    assert sorted(given - known) == []


@pytest.mark.parametrize("name", ["ChildSpec", "SupervisorSpec", "Pool", "Backoff", "MailboxOptions"])
def test_the_fields_of_a_spec_have_their_defaults(name: str) -> None:
    fields = {field.name: field.default for field in attrs.fields(CLASSES[name]) if field.init}
    wanted = {key: "" if value is attrs.NOTHING else f"`{value!r}`" for key, value in fields.items()}
    assert rows(sections()[name]) == wanted


def test_the_names_for_tests_are_there() -> None:
    public = {name: thing for name, thing in vars(lmos_actors.testing).items() if not name.startswith("_")}
    text = (REFERENCE / "testing.md").read_text(encoding="utf-8")
    assert sorted(set(public) - words(text)) == []
    missing: list[str] = []
    for name, thing in public.items():
        if isinstance(thing, type) and not issubclass(thing, Exception):
            known = words(text.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0])
            mine = [m for m, value in vars(thing).items() if inspect.isroutine(value) or is_shown(value)]
            missing += [f"{name}.{m}" for m in mine if not m.startswith("_") and m not in known]
    assert missing == []


def test_the_names_for_descriptions_are_there() -> None:
    public = {name: thing for name, thing in vars(td).items() if not name.startswith("_")}
    text = (REFERENCE / "descriptions.md").read_text(encoding="utf-8")
    known = words(text)
    wanted = [name for name, thing in public.items() if not inspect.ismodule(thing)]
    for thing in public.values():
        if inspect.isroutine(thing):
            wanted += inspect.signature(thing).parameters
        elif attrs.has(thing):
            mine = [m for m, value in vars(thing).items() if inspect.isroutine(value) or is_shown(value)]
            wanted += [m for m in (*(f.name for f in attrs.fields(thing)), *mine) if m[0] != "_"]
    between_packages = {"is_any", "type_name", "type_tree", "tree", "untold"}
    assert sorted({*wanted} - known - between_packages) == []


# --- the scenario format

HEADINGS = {
    "Scenario": "The file",
    "SeedRange": "Range of seeds",
    "ExpectedError": "Error",
    "NeverWhen": "When",
    "Below": "Bound",
}
SHARED = {
    model.Step: {"do", "id", "within"},
    model.Asking: {"as", "target", "error"},
    model.Check: {"check", "name"},
    model.Supervisor: set(model.Root.__struct_encode_fields__),
}
STRUCTS = {
    thing.__name__: thing
    for thing in vars(model).values()
    if isinstance(thing, type)
    and issubclass(thing, model.Closed)
    and thing not in (model.Closed, model.Expected, model.Bounded, *list(SHARED)[:3])
}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_keys_of_a_struct_are_in_its_section(name: str) -> None:
    struct = STRUCTS[name]
    config = struct.__struct_config__
    tagged = f"{config.tag_field}: {config.tag}"
    text = format_sections()[tagged if config.tag else HEADINGS.get(name, name)]
    shared = {key for base, keys in SHARED.items() if issubclass(struct, base) for key in keys}
    if struct is model.Expect:  # a step, though no `Step`
        shared = SHARED[model.Step]
    table = text.split("| `that` | looks at |")[0]
    assert set(rows(table)) == set(struct.__struct_encode_fields__) - shared


@cache
def format_sections() -> dict[str, str]:
    text = (REFERENCE / "scenario-format.md").read_text(encoding="utf-8")
    parts = re.split(r"^##+ +(.*)$", text, flags=re.MULTILINE)
    return dict(zip((heading.replace("`", "") for heading in parts[1::2]), parts[2::2], strict=True))


def test_what_all_steps_and_checks_share_is_said() -> None:
    assert set(rows(format_sections()["Steps"])) == SHARED[model.Step] | SHARED[model.Asking]
    assert SHARED[model.Check] <= words(format_sections()["Checks"])


def test_the_defaults_of_a_file_are_true() -> None:
    said = {key: default.strip("`") for key, default in rows(format_sections()["from: agent"]).items()}
    fields = {field.encode_name: field.default for field in msgspec.structs.fields(model.AgentEntry)}
    plain = {key: str(fields[key]) for key in ("restart", "shutdown")}
    assert {key: said[key] for key in plain} == plain
    assert rows(format_sections()["The file"])["timeout"].strip("`") == str(
        next(f.default for f in msgspec.structs.fields(model.Scenario) if f.name == "timeout")
    )


# --- the command line


def test_commands_and_exit_codes_are_listed() -> None:
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    assert set(cli.VERBS) <= words(text)
    table = text.partition("## Exit codes")[2]
    assert set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE)) == {str(number) for number in PRECEDENCE}


@pytest.mark.parametrize("verb", cli.VERBS)
def test_the_options_of_a_command_are_listed(verb: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "lmos_actors", verb, "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = set(re.findall(r"--[a-z-]+", shown))
    assert options <= set(
        re.findall(r"--[a-z-]+", (REFERENCE / "command-line.md").read_text(encoding="utf-8"))
    )


# --- explanations


def test_the_tests_behind_the_promises_are_there() -> None:
    named = re.findall(
        r"`(tests/[^`]+)`", (ROOT / "docs/explanation/promises.md").read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert len(named) > 10


def test_the_number_of_recorded_stories_is_true() -> None:
    said = (ROOT / "docs/explanation/otp.md").read_text(encoding="utf-8")
    told = (ROOT / "tests/supervision/otp/recorded.jsonl").read_bytes().count(b"\n")
    assert f"{told} stories" in said
