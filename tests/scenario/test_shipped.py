"""The scenarios of this repository pass, can fail, and have every mistake in them found where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import yaml

from agents.weather import ModelConfiguration, UserFeedback, WeatherAgent
from lmos_actors.actors import shape_of
from lmos_actors.deployment.files import load_deployment
from lmos_actors.files import LOADER, FileError
from lmos_actors.scenario import scenario_schema
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from lmos_actors.system.model import is_real
from tests.matrix import few_or_all, slow, some
from tests.rows import each_row
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPLOYMENTS = sorted((ROOT / "scenarios").glob("*.deployment.yaml"))
FILES = sorted({*(ROOT / "scenarios").glob("*.yaml")} - {*DEPLOYMENTS})
NAMES = [file.name for file in FILES]
ACCEPTANCE = ROOT / "tests/scenario/acceptance"
MODELINE = "# yaml-language-server: $schema=../.lmos/schema.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project beside this one, with the same agents."""
    root = tmp_path_factory.mktemp("shipped")
    (root / "pyproject.toml").write_text("")
    (root / "agents").symlink_to(ROOT / "agents")
    for part in (ROOT / "scenarios").iterdir():  # recordings, descriptions
        if part.suffix != ".yaml":
            (root / part.name).symlink_to(part)
    for file in DEPLOYMENTS:
        (root / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return root


# ---- every mistake in them is found where it is


@attrs.frozen
class Scalar:
    """A key or a value of a file: where it is, and what leads to it."""

    path: tuple[str | int, ...]
    start: int
    end: int
    place: tuple[int, int]
    is_key: bool
    text: str

    def has_above(self, names: frozenset[str]) -> bool:
        return any(part in names for part in self.path[:-1])


def scalars(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[Scalar]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, key.value)
            yield scalar(key, inner, is_key=True)
            yield from scalars(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from scalars(value, (*path, index))
    elif node.style not in (">", "|"):
        yield scalar(node, path, is_key=False)


def scalar(node: Any, path: tuple[str | int, ...], *, is_key: bool) -> Scalar:
    start, end = node.start_mark, node.end_mark
    return Scalar(path, start.index, end.index, (start.line + 1, start.column + 1), is_key, node.value)


class Changed:
    """One file, changed in one place, again and again."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.text = file.read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.parts = list(scalars(yaml.compose(self.text, Loader=LOADER)))
        self.changed = folder / file.name

    @property
    def on_a_hub(self) -> list[str | int]:
        """Name the mocks whose requests are messages, which may be of any type."""
        return self.that_speak("relay")

    def that_speak(self, protocol: str) -> list[str | int]:
        return [part.path[1] for part in self.parts if part.path[2:] == ("speaks",) and part.text == protocol]

    def says_a_model(self, part: Scalar) -> bool:
        """Whether it is what a mock that is a model says, which may be anything, also the name of a tool."""
        return (
            len(part.path) > 2
            and part.path[1] in self.that_speak("model")
            and bool(MODEL_SAYS & set(part.path))
        )

    def mistakes(self, part: Scalar, new: str) -> list[tuple[int, int]]:
        """Give the places of the mistakes that the file has with this in place of that."""
        self.changed.write_text(self.text[: part.start] + new + self.text[part.end :], encoding="utf-8")
        try:
            load_scenario(self.changed)
        except FileError as error:
            return [(mistake.line, mistake.column) for mistake in error.mistakes]
        return []

    def written(self, part: Scalar) -> str:
        return self.text[part.start : part.end]

    def speaks_of_series(self, name: str) -> bool:
        return f"series.{name}" in self.text or f"metric: {name}." in self.text

    def is_at_a_use(self, found: list[tuple[int, int]], name: str) -> bool:
        """Whether a mistake stands where the name is used."""
        return any(
            self.lines[line - 1][column - 1 :].lstrip("\"'$(").find(name) >= 0 for line, column in found
        )


OPEN = frozenset(
    {"args", "arguments", "state", "input", "data", "value", "payload", "match", "vars", "labels", "env"}
)
"""What is inside is for the classes, and for tools: what is wrong there need not be found."""

MODEL_SAYS = frozenset({"output", "chunk", "tool"})

NAMES_IN = frozenset({"agents", "nodes", "matrix", "sweep", "save", "series", "emit"})
"""The keys of these are names that the author has made up: a misspelt one is found where it is used."""

FORMULAS = frozenset({"expr", "field"})
"""The mistake is at the name in the formula."""

FREE = frozenset(
    {
        "name",
        "summary",
        "doc",
        "id",
        "contains",
        "equals",
        "eq",
        "ne",
        "regex",
        "sequence",
        "log",
        "junit",
        "html",
        "csv",
        "chunk",
        "done",
        "output",
        "message",
        "code",
        "reason",
        "progress",
        "payload",
        "type",
        "words",
        "any_of",
        "without",
        "called",  # tools are known once a model is offered them
        "in_order",
        "never",
        "only",
    }
)
"""Text that may be anything."""


def worse(word: str) -> str:
    """Misspell a word; of a reference, the name in it."""
    if "$(" in word:
        return word.replace(")", "q)", 1)
    return word[:-1] + "q" + word[-1] if word[0] == word[-1] and word[0] in "\"'" else word + "q"


@pytest.mark.parametrize("file", some(FILES, of=3), ids=lambda file: file.name)
def test_every_key_misspelt_is_found(folder: Path, file: Path) -> None:
    changed, missed = Changed(file, folder), list[Any]()
    for part in some((part for part in changed.parts if part.is_key), of=40):
        found = changed.mistakes(part, worse(changed.written(part)))
        if part.place in found or part.has_above(OPEN) or changed.says_a_model(part):
            continue
        made_up = len(part.path) > 1 and part.path[-2] in NAMES_IN
        if part.path[:2] == ("measure", "series") and not changed.speaks_of_series(part.text):
            continue  # measured to be looked at
        if not (made_up and changed.is_at_a_use(found, part.text)):
            missed.append((part, found))
    assert missed == []


@pytest.mark.parametrize(
    "file", some(FILES, of=3, besides=lambda file: file.stem == "council"), ids=lambda file: file.name
)
def test_every_value_broken_is_found(folder: Path, file: Path) -> None:
    changed, missed = Changed(file, folder), list[Any]()
    for part in some((part for part in changed.parts if not part.is_key), of=40):
        found = changed.mistakes(part, "{zz: 1}")
        # choices are values of no type: what is wrong with one is wrong where it is used
        elsewhere = part.path[0] in ("matrix", "sweep") and found
        if (
            part.place not in found
            and not part.has_above(OPEN)
            and not elsewhere
            and part.path[-1] not in OPEN
            and not changed.says_a_model(part)
        ):
            missed.append((part, found))
    assert missed == []


@pytest.mark.parametrize("file", some(FILES, of=3), ids=lambda file: file.name)
def test_every_name_that_dangles_is_found(folder: Path, file: Path) -> None:
    changed, missed = Changed(file, folder), list[Any]()
    for part in some((part for part in changed.parts if not part.is_key), of=40):
        word = changed.written(part)
        if "$(" in word:
            line, column = part.place
            place = (line, column + word.index("$("))
        elif part.has_above(OPEN) or FREE & set(part.path) or part.path[0] in ("matrix", "sweep"):
            continue
        elif part.path[-2:] == ("when", "action") and part.path[1] in changed.on_a_hub:
            continue  # the type of a message
        elif changed.says_a_model(part):
            continue
        else:
            place = part.place
        found = changed.mistakes(part, worse(word))
        inside = part.path[-1] in FORMULAS and any(
            line == place[0] and place[1] <= column <= place[1] + len(word) for line, column in found
        )
        if place not in found and not inside:
            missed.append((part, found))
    assert missed == []


@pytest.mark.slow
def test_the_schema_accepts_them(tmp_path: Path) -> None:
    """As editors do, by a validator that is not ours."""
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(scenario_schema()))
    check = [sys.executable, "-m", "check_jsonschema"]
    told = subprocess.run([*check, "--check-metaschema", schema], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    files = [*FILES, *DEPLOYMENTS, *ACCEPTANCE.glob("*.yaml")]
    told = subprocess.run(
        [*check, "--schemafile", schema, *files], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout


@each_row("file", [*FILES, *DEPLOYMENTS], ids=lambda file: file.name)
def test_editors_are_told_of_the_schema(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith(MODELINE)


# ---- they pass, and can fail


SETTINGS: dict[str, dict[str, str]] = few_or_all(
    {
        "conversation.yaml": {"world": "memory"},
        "council.yaml": {"world": "memory"},  # the instants of its votes are those of the day, over sockets
        "gossip.yaml": {"peers": "200", "last": "peer/199", "lives": "210"},
    },
    {},
)
"""What makes a large file quick; as they are, `lmos-actors run` runs all of them in `.ci/run`."""


LONG = ("register", "bank", "gossip", "two-centres", "election", "journey", "market", "helpdesk", "voting")


DIGESTS = Path(os.environ["LMOS_ACTORS_DIGESTS"]) if "LMOS_ACTORS_DIGESTS" in os.environ else None
"""A folder that the matrix has for the digests of the first version of Python, which the others must have."""


# `.ci/run` runs each of them as it is, as its stage "scenarios"
@pytest.mark.parametrize(
    "file", slow(FILES, [file for file in FILES if file.stem in LONG], mark="matrix"), ids=NAMES
)
def test_it_passes(file: Path) -> None:
    settings = SETTINGS.get(file.name, {})
    resolved, digests = load_scenario(file, settings=settings), []
    for cell in resolved.cells:
        result = run_cell(resolved, cell, 1)
        assert result.failures == ()
        assert result.ok
        assert result.checks_passed == result.checks > 0
        if not is_real(cell.scenario.world):
            digests.append(f"{cell.label} {result.digest}\n")
    assert digests
    if DIGESTS is not None:
        kept = DIGESTS / (f"{file.stem} quick" if settings else file.stem)
        if not kept.exists():
            kept.write_text("".join(digests))
        assert kept.read_text() == "".join(digests), "another version of Python has another digest"


@pytest.mark.parametrize("file", DEPLOYMENTS, ids=lambda file: file.name)
def test_it_can_be_deployed(file: Path) -> None:
    assert load_deployment(file).notes == ()


FLIPS: list[tuple[str, str, str]] = [
    ("weather.yaml", "of: weather\n    equals: 1", "of: weather\n    equals: 2"),
    ("weather.yaml", "of: concierge\n    equals: 0", "of: concierge\n    equals: 1"),
    ("weather.yaml", "default: 500ms", "default: 100ms"),
    ("weather.yaml", "times: 1", "times: 2"),
    ("weather.yaml", "{ge: 1, le: 5}", "{ge: 5, le: 5}"),
    ("weather.yaml", "{rating: 4", "{rating: 6"),
    ("weather.yaml", "degrees fahrenheit", "degrees celsius"),
    ("weather.yaml", "through: [concierge, weather]", "through: [weather, concierge]"),
    ("weather.yaml", "before: {from: user, action: getWeather}", "before: {from: user, property: units}"),
    ("weather.yaml", "$.data.comment: more", "$.data.coment: more"),
    ("supervision.yaml", "{type: integer, default: 3", "{type: integer, default: 4"),
    ("supervision.yaml", "name: one_for_one, first: 1, second: 6", "name: one_for_one, first: 2, second: 6"),
    ("supervision.yaml", "one_for_all, first: 6, second: 6", "one_for_all, first: 6, second: 5"),
    ("supervision.yaml", "first: 1, second: 6, third: 6", "first: 1, second: 6, third: 1"),
    ("supervision.yaml", "max_restarts: 5", "max_restarts: 6"),
    ("supervision.yaml", "max_restarts: 1", "max_restarts: 0"),
    ("supervision.yaml", "equals: 25", "equals: 24"),
    ("supervision.yaml", "times: 25", "times: 19"),
    ("supervision.yaml", "p95: {le: ", "p95: {lt: "),
    ("supervision.yaml", "max: {le: ", "max: {lt: "),
    ("backpressure.yaml", "size: 8", "size: 9"),
    ("backpressure.yaml", "pace: 0.01", "pace: 0.02"),
    ("backpressure.yaml", "handled: 61", "handled: 60"),
    ("backpressure.yaml", "name: reject, refused: 51", "name: reject, refused: 50"),
    ("backpressure.yaml", "dropped: 51, handled: 10, last: 59", "dropped: 50, handled: 10, last: 59"),
    ("backpressure.yaml", "dropped: 51, handled: 10, last: 8", "dropped: 51, handled: 10, last: 59"),
    ("backpressure.yaml", "{count: 60}", "{count: 61}"),
    ("booking.yaml", "hold_for: 600.0", "hold_for: 950.0"),
    ("booking.yaml", "clean_for: 1200.0", "clean_for: 1300.0"),
    ("booking.yaml", "for: 15m", "for: 16m"),
    ("booking.yaml", "max: {le: ", "max: {lt: "),
    ("booking.yaml", "only in 'held'", "only in 'vacant'"),
    ("booking.yaml", "is: ActionFailed", "is: NotAllowed"),
    ("booking.yaml", "wait: false", "wait: true"),
    ("booking.yaml", "equals: null", "equals: 0"),
    ("booking.yaml", "sequence: [Ben]", "sequence: []"),
    ("booking.yaml", "handled, equals: 11", "handled, equals: 10"),
    ("support.yaml", "confidence: 0.95", "confidence: 0.6"),
    ("conversation.yaml", "through: [door, desk, orders]", "through: [desk, door]"),
    ("conversation.yaml", "$.items[1].name: look_up", "$.items[2].name: look_up"),
    ("conversation.yaml", "times: 1", "times: 2"),
    ("council.yaml", "through: [chair, chair-seat, anna-seat, accounts]", "through: [anna-seat, chair]"),
    ("council.yaml", "$.payload.quorum: 4", "$.payload.quorum: 5"),
    ("council.yaml", "members: 4", "members: 3"),
    ("council.yaml", "limit: 100", "limit: 1000"),
    ("council.yaml", "weights: {treasury: 0, user: 0}", "weights: {treasury: 9, user: 0}"),
    ("support.yaml", "delay: 20s ", "delay: 4s "),
    ("support.yaml", "contains: curse", "contains: course"),
    ("support.yaml", "patience: 5", "patience: 6"),
    ("support.yaml", "times: 3", "times: 4"),
    ("support.yaml", "through: [desk, model]", "through: [model, desk]"),
    ("voting.yaml", "accepted >= 3", "accepted >= 4"),
    ("voting.yaml", "by: 20s", "by: 6s"),
    ("election.yaml", "series.messages > ", "series.messages >= "),
    ("election.yaml", "sides: [[candidate/4, candidate/0], rest]", "sides: [[candidate/0], rest]"),
    ("two-centres.yaml", "series.waiting >= 50", "series.waiting >= 500"),
    ("two-centres.yaml", "north: [site/0, northern]", "north: [site/0]"),
    ("two-centres.yaml", "  - at: 16s\n    do: heal\n    of: cut\n", ""),
    ("partner.yaml", "delay: {dist: lognormal, median: 400ms, p99: 2s}", "delay: 4s"),
    ("partner.yaml", "max: {le: 3010ms}", "max: {lt: 3s}"),
    ("partner.yaml", "  - do: wait\n    for: 1m\n", ""),
    ("directory.yaml", "ttl: 45s", "ttl: 3m"),
    ("directory.yaml", "sides: [[directory], rest]", "sides: [[directory], [model]]"),
    ("directory.yaml", "    for: 65s\n", "    for: 15s\n"),
    ("directory.yaml", "  - do: heal\n    of: cut\n", ""),
    ("election.yaml", "restart: {after: 4s}", "restart: {after: 1s}"),
    ("register.yaml", "initial: 0", "initial: 1"),
    ("register.yaml", "series.given_up >= 5", "series.given_up >= 5000"),
    ("market.yaml", "stock: 3", "stock: 1"),
    ("desk.yaml", "equals: 4", "equals: 3"),
    ("desk.yaml", "max: {le: 20s}", "max: {le: 200ms}"),
    ("market.yaml", "min: 80, max: 220", "min: 80, max: 95"),
    ("helpdesk.yaml", "equals: 20700", "equals: 33200"),
    ("helpdesk.yaml", "accepted, equals: 20", "accepted, equals: 21"),
    ("helpdesk.yaml", "cancelled, equals: 1", "cancelled, equals: 0"),
    ("helpdesk.yaml", "fault: {kind: crash, target: payments}", "fault: {kind: crash, target: orders}"),
    ("helpdesk.yaml", "$.tools.refund.amount: 8200", "$.tools.refund.amount: 8300"),
    ("helpdesk.yaml", "status: 500", "status: slow"),
    ("helpdesk.yaml", "failed: true, equals: 1}", "equals: 1}"),
    ("helpdesk.yaml", "calls: {le: 5}", "calls: {le: 3}"),
    ("research.yaml", "without: [masons, Arta]", "without: ['2020']"),
    ("research.yaml", "only: [search, read]", "only: [search]"),
    ("journey.yaml", "{tool: getWeather, equals: 2}", "{tool: getWeather, equals: 1}"),
    ("helpdesk.yaml", "arguments: {number: 17}", "arguments: {number: '17'}"),
    ("helpdesk.yaml", "through: [desk, model, refunds, orders, payments, bank]", "through: [bank, desk]"),
    ("research.yaml", "rounds: 2", "rounds: 1"),
    ("research.yaml", "times: 1", "times: 2"),
    ("research.yaml", "{unfounded: [masons from Arta]}", "{unfounded: []}"),
    ("research.yaml", "sources: [mills-7]", "sources: [mills-1]"),
    ("research.yaml", "fault: {kind: crash, target: critic}", "fault: {kind: crash, target: library}"),
    ("research.yaml", "cancelled, equals: 2", "cancelled, equals: 1"),
    ("research.yaml", "accepted, equals: 6", "accepted, equals: 5"),
    ("journey.yaml", "$.tools.book.price: 180", "$.tools.book.price: 200"),
    ("journey.yaml", "times: 3", "times: 2"),
    ("journey.yaml", "crash: RuntimeError", "output: It is windy in Oslo."),
    ("journey.yaml", "crash, pick: {count: 3, of: clerks}", "crash, target: board"),
    ("journey.yaml", "equals: 11", "equals: 10"),
    ("journey.yaml", "equals: 9", "equals: 10"),
    ("journey.yaml", "cancelled, equals: 2", "cancelled, equals: 1"),
    ("tea.yaml", "Which tea?", "Which coffee?"),
    ("tea.yaml", "words: [Assam]", "words: [jasmine]"),
    ("tea.yaml", "never: [remember]", "never: [recall]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new"),
    some(FLIPS, of=12, besides=lambda flip: flip[1] in ("north: [site/0, northern]", "limit: 100")),
)
def test_a_number_flipped_fails(folder: Path, name: str, old: str, new: str) -> None:
    text = (ROOT / "scenarios" / name).read_text(encoding="utf-8")
    assert text.count(old) >= 1
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    try:
        resolved = load_scenario(folder / name)
    except FileError:
        return  # it can be seen to be wrong before anything runs
    assert not all(run_cell(resolved, cell, 1).ok for cell in resolved.cells)


# ---- the weather agent is that of the specification


def test_the_weather_agent_has_the_names_of_the_specification() -> None:
    contract = WeatherAgent.__contract__
    assert list(contract.properties) == ["modelConfiguration", "units"]
    assert list(contract.actions) == ["getWeather", "giveFeedback"]
    assert list(contract.events) == ["userFeedbackReceived"]
    assert contract.properties["modelConfiguration"].read_only
    assert contract.properties["modelConfiguration"].doc == (
        "Current configuration of the underlying LLM, including version, temperature, and maximum tokens."
    )


def bare(schema: dict[str, Any], names: Callable[[str], bool]) -> dict[str, Any]:
    """A schema without what only says something to people at its top."""
    return {key: value for key, value in schema.items() if names(key)}


def test_the_weather_agent_has_the_schemas_of_the_specification() -> None:
    top = lambda key: key not in ("title", "description")  # noqa: E731
    assert bare(shape_of(ModelConfiguration).schema, top) == {
        "type": "object",
        "properties": {
            "modelName": {"type": "string", "description": "Name of the model in use, e.g., gpt-4o."},
            "temperature": {
                "type": "number",
                "description": "Temperature setting for controlling response randomness.",
                "minimum": 0,
                "maximum": 1,
            },
            "maxTokens": {
                "type": "integer",
                "description": "Maximum number of tokens the model is allowed to generate.",
            },
        },
        "required": ["modelName", "temperature", "maxTokens"],
    }
    assert bare(shape_of(UserFeedback).schema, top) == {
        "type": "object",
        "properties": {
            "rating": {
                "type": "integer",
                "description": "User rating, where 1 is the lowest and 5 is the highest.",
                "minimum": 1,
                "maximum": 5,
            },
            "comment": {
                "type": "string",
                "description": "Optional user comment providing additional feedback.",
            },
        },
        "required": ["rating"],
    }
    operation = WeatherAgent.__contract__.table["getWeather"]
    assert {param.wire_name: param.shape.schema for param in operation.params} == {
        "question": {"type": "string"},
        "interactionMode": {"type": "string", "enum": ["text", "voice"]},
    }
    assert operation.result_shape is not None
    assert operation.result_shape.schema == {
        "type": "string",
        "description": "Natural language output providing weather information.",
    }
    options = WeatherAgent.get_weather.options
    assert (options.safe, options.idempotent, options.synchronous) == (True, False, True)
