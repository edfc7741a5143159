"""Scenario files: a good one, one mistake at a time, and what is not built yet."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration, FileError, parse
from lmos_actors.scenario import Scenario, scenario_schema
from lmos_actors.scenario.format import Resolved, resolve
from lmos_actors.scenario.model import OF_NETWORK, OF_NODE
from lmos_actors.system.model import AgentEntry, Root, Supervisor, fill_late
from tests.matrix import some
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.files import DataPath

GOOD = """\
lmos: scenario/v1
name: weather-$(vars.city)
summary: s
labels: {team: travel}
vars:
  city: {type: string, default: Berlin, doc: City}
  budget: {type: duration, default: 2s}
matrix:
  city: [Berlin, "New York"]
  size: [8]
seeds: {from: 1, count: 3}
trials: {count: 1, pass_rate: 1.0}
timeout: 30s
world: memory
agents:
  weather:
    from: agent
    use: people.weather:WeatherAgent
    state: {units: celsius}
    mailbox: {size: $(matrix.size), when_full: wait}
    restart: transient
    shutdown: 2s
    significant: true
  concierge:
    from: agent
    use: people/weather.py:ConciergeAgent
    args: {weather: "$(agents.weather)"}
    shutdown: brutal
tree:
  root:
    strategy: rest_for_one
    max_restarts: 3
    max_seconds: 10s
    auto_shutdown: any_significant
    children:
      - weather
      - name: desk
        strategy: one_for_all
        restart: permanent
        shutdown: infinity
        children: [concierge]
steps:
  - do: read
    id: look
    as: user
    target: weather
    property: units
    save: {units: $.value}
    within: 1s
  - do: observe
    id: watch
    target: weather
    property: units
  - do: subscribe
    as: concierge
    target: weather
    event: asked
  - do: invoke
    id: ask
    target: concierge
    action: getWeather
    input: {question: "What in $(vars.city)?", units: $(saved.units)}
    save: {answer: $.output}
    wait: true
  - do: tell
    target: weather
    action: note
    input: {text: hi}
  - do: write
    target: weather
    property: units
    value: kelvin
    wait: false
    error: {is: NotAllowed, path: $.value, contains: read-only}
  - do: inject
    id: boom
    fault: {kind: crash, target: weather, with: RuntimeError}
  - do: wait
    until: {agent: weather, is: running}
    within: 1s
  - do: wait
    for: 10ms
  - do: repeat
    times: 20
    every: 1s
    steps:
      - do: invoke
        id: again
        target: weather
        action: forecast
  - do: parallel
    branches:
      - - do: invoke
          id: left
          target: weather
          action: forecast
      - - do: read
          id: right
          target: weather
          property: units
  - do: expect
    that: status
    of: ask
    sequence: [completed]
    within: $(vars.budget)
  - do: expect
    that: value
    of: $(saved.answer)
    contains: "$(vars.city)"
  - do: expect
    that: output
    of: ask
    match:
      $.output.city: {eq: "$(vars.city)", ne: x}
      $.output.rating: {ge: 1, le: 5, gt: 0, lt: 6}
      $.output.n: {regex: a+, contains: a}
  - do: expect
    that: reading
    of: watch
    equals: kelvin
    times: 0
    within: 1s
  - do: expect
    that: event
    target: concierge
    event: asked
    sequence: [a]
checks:
  - check: never
    name: quiet
    when: {dead_letter: true}
  - check: restarts
    of: weather
    equals: 1
  - check: latency
    of: again
    max: {lt: 1500ms}
    p95: {le: 1s}
  - check: statistics
    of: weather
    counter: handled
    ge: 1
    le: 100
report: {log: out/messages.jsonl}
"""

AGENTS = """\
class WeatherAgent: ...
class ConciergeAgent: ...
number = 1
"""


class Project:
    """One folder for all tests here: making and removing hundreds costs more than what is tested."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("people", "stories"):
            (root / folder).mkdir()
        (root / "pyproject.toml").write_text("")
        (root / "people" / "weather.py").write_text(AGENTS)

    def resolve(self, text: str = GOOD, *, suffix: str = ".yaml", **options: Any) -> Resolved:
        file = self.root / "stories" / f"weather{suffix}"
        file.write_text(text)
        return resolve(file, **options)

    def mistakes(self, text: str, **options: Any) -> list[tuple[int, str]]:
        """Give line and message of every mistake."""
        try:
            self.resolve(text, **options)
        except FileError as error:
            return [(mistake.line, mistake.message) for mistake in error.mistakes]
        return []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    modules, path = set(sys.modules), list(sys.path)
    yield Project(tmp_path_factory.mktemp("project"))
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("people", "file:")):
            del sys.modules[name]


def line_of(part: str, text: str = GOOD) -> int:
    assert text.count(part) == 1, part
    return text[: text.index(part)].count("\n") + 1


# --- the good file

SIZES = GOOD.replace("size: [8]", "size: [8, 64]")
"""Its twelve cells. The mistakes below are looked for in six, as each cell costs as much."""


def test_a_good_file(project: Project) -> None:
    resolved = project.resolve(SIZES)
    assert resolved.root == project.root
    assert resolved.notes == ()
    assert resolved.name == "weather-Berlin"
    assert [cell.label for cell in resolved.cells][:4] == [
        "city=Berlin size=8 seed=1",
        "city=Berlin size=8 seed=2",
        "city=Berlin size=8 seed=3",
        "city=Berlin size=64 seed=1",
    ]
    assert len(resolved.cells) == 12


def test_a_cell_has_its_values_with_their_types(project: Project) -> None:
    cell = project.resolve(SIZES).cells[-1]
    assert cell.scenario.name == "weather-New York"
    assert cell.scenario.agents["weather"].mailbox.size == 64
    assert cell.scenario.agents["weather"].shutdown == Duration(2.0)
    assert cell.scenario.agents["concierge"].args == {"weather": "$(agents.weather)"}
    (ask,) = [step for step in cell.scenario.steps if step.id == "ask"]
    assert ask.input == {"question": "What in New York?", "units": "$(saved.units)"}
    (status,) = [step for step in cell.scenario.steps if getattr(step, "that", "") == "status"]
    assert status.within == Duration(2.0)
    assert {name: found.__name__ for name, found in cell.system.classes.items()} == {
        "weather": "WeatherAgent",
        "concierge": "ConciergeAgent",
    }
    assert cell.system.root.strategy == "rest_for_one"
    desk = cell.system.root.children[1]
    assert isinstance(desk, Supervisor)
    assert desk.children == ("concierge",)


SMALL = """\
lmos: scenario/v1
name: small
agents:
  weather: {from: agent, use: people.weather:WeatherAgent}
steps:
  - {do: wait, for: 1s}
"""


def test_a_small_file_has_the_defaults(project: Project) -> None:
    (cell,) = project.resolve(SMALL).cells
    assert (cell.seed, cell.scenario.world, cell.scenario.timeout) == (1, "memory", 30.0)
    assert cell.system.root == Root(children=("weather",))
    assert cell.scenario.agents["weather"] == AgentEntry(use="people.weather:WeatherAgent")
    assert cell.label == "seed=1"


def test_json_and_toml_say_the_same(project: Project) -> None:
    written = json.dumps(parse(GOOD, name="f").data)
    assert project.resolve(written, suffix=".json").cells == project.resolve().cells
    toml = """\
lmos = "scenario/v1"
name = "small"
agents.weather = {from = "agent", use = "people.weather:WeatherAgent"}
[[steps]]
do = "wait"
for = "1s"
"""
    assert project.resolve(toml, suffix=".toml").cells == project.resolve(SMALL).cells


# --- one mistake at a time, everywhere

# Below these a key is data of somebody else's, checked against classes and schemas, not here.
OPEN = {"labels", "args", "state", "input", "match"}
# Text that may be anything.
FREE = {"name", "summary", "doc", "labels", "state", "input", "id", "property", "action", "city", "log"}
FREE |= {"save", "size", "value", "contains", "eq", "ne", "regex", "event", "path"}
FREE_PLACES = {("vars", "city", "default"), ("steps", 14, "equals"), ("steps", 15, "sequence", 0)}


def structural(path: DataPath) -> bool:
    return not OPEN & set(path[:-1])


def keys() -> list[DataPath]:
    document = parse(GOOD, name="f")
    return [path for path in document._tree.keys if structural(path)]


def values() -> list[DataPath]:
    tree = parse(GOOD, name="f")._tree
    leaves = [
        path for path in tree.values if not any(p[: len(path)] == path and p != path for p in tree.values)
    ]
    return [path for path in leaves if path and not FREE & set(path) and path not in FREE_PLACES]


def replaced(path: DataPath, *, key: bool, make: Any) -> tuple[str, int]:
    document = parse(GOOD, name="f")
    start, end = document.span(path, key=key)
    return GOOD[:start] + make(GOOD[start:end]) + GOOD[end:], GOOD[:start].count("\n") + 1


def spoilt_word(word: str) -> str:
    """Misspell a word so that it stays one: a letter doubled at its end."""
    return word[:-1] + "q" + word[-1] if word[-1] in "\"')]}" else word + "q"


@pytest.mark.parametrize("path", some(keys(), of=12), ids=lambda path: ".".join(map(str, path)))
def test_every_key_misspelt(path: DataPath, project: Project) -> None:
    text, line = replaced(path, key=True, make=spoilt_word)
    found = project.mistakes(text)
    names = path[0] in ("vars", "matrix", "agents") and len(path) == 2
    saved = "save" in path[:-1]
    assert found
    if not names and not saved:
        assert line in [at for at, _ in found], found
        assert any(f'"{path[-1]}q"' in message for at, message in found if at == line), found


@pytest.mark.parametrize("path", some(values(), of=12), ids=lambda path: ".".join(map(str, path)))
def test_every_value_broken(path: DataPath, project: Project) -> None:
    text, line = replaced(path, key=False, make=spoilt_word)
    found = project.mistakes(text)
    assert line in [at for at, _ in found], found


@pytest.mark.parametrize("path", some(keys(), of=12), ids=lambda path: ".".join(map(str, path)))
def test_every_key_twice(path: DataPath, project: Project) -> None:
    document = parse(GOOD, name="f")
    start, end = document.span(path, key=True)
    word = GOOD[start:end]
    indent = start - GOOD.rfind("\n", 0, start) - 1
    inline = "{" in GOOD[GOOD.rfind("\n", 0, start) + 1 : start]
    again = f"{word}: 1, " if inline else f"{word}: 1\n{' ' * indent}"
    found = project.mistakes(GOOD[:start] + again + GOOD[start:])
    assert any(f'key "{path[-1]}" is given twice' in message for _, message in found), found


# --- a table of mistakes: what is replaced in the good file, by what, and what is said where

WRONG = [
    # names
    ("target: weather, with", "target: wether, with", 'no agent "wether", did you mean "weather"?'),
    ("agent: weather, is", "agent: user, is", "own consumer, not an agent"),
    ("as: concierge", "as: conciergee", 'no agent "conciergee", did you mean "concierge"?'),
    ("      - weather\n", "      - wether\n", 'no agent "wether"'),
    ("      - weather\n", "      - weather\n      - weather\n", '"weather" is in the tree twice'),
    ("children: [concierge]", "children: []", 'agent "concierge" is not in the tree'),
    ("- name: desk", "- name: weather", "cannot be the name of a supervisor"),
    ("- name: desk", "- name: root", "cannot be the name of a supervisor"),
    ("  concierge:\n    from", "  user:\n    from", '"user" is the scenario\'s own consumer'),
    ("  concierge:\n    from", "  con/cierge:\n    from", "is not a name"),
    ('"$(agents.weather)"', '"$(agents.wether)"', 'no agent "wether", did you mean "weather"?'),
    ('"$(agents.weather)"', '"the $(agents.weather)"', "cannot stand inside other text"),
    ('"$(agents.weather)"', '"$(saved.units)"', "stands only in a step's input"),
    ("restart: transient", "restart: permanent", "a significant child is transient or temporary"),
    ("auto_shutdown: any_significant", "auto_shutdown: never", '"significant" does nothing'),
    # references
    ("within: $(vars.budget)", "within: $(vars.budgt)", 'no variable "budgt", did you mean "budget"?'),
    ("within: $(vars.budget)", "within: $(var.budget)", 'unknown namespace "var", did you mean "vars"?'),
    ("within: $(vars.budget)", "within: $(budget)", "did you mean $(vars.budget)?"),
    ("within: $(vars.budget)", "within: $(vars.budget", "is not closed"),
    ("within: $(vars.budget)", "within: $(saved.units)", "stands only in"),
    ("within: $(vars.budget)", "within: $(secrets.key)", 'unknown namespace "secrets"'),
    ("within: $(vars.budget)", "within: $(vars.city)", "is not a duration"),
    ("size: $(matrix.size)", "size: $(matrix.sice)", 'no matrix key "sice", did you mean "size"?'),
    ("size: $(matrix.size)", "size: 1", 'matrix key "size" does nothing'),
    ("of: $(saved.answer)", "of: $(saved.anser)", 'no earlier step saves "anser", did you mean "answer"?'),
    ("of: $(saved.answer)", "of: Berlin", "looks at saved values"),
    ("    save: {answer: $.output}\n", "", 'no earlier step saves "answer"'),
    ("save: {answer: $.output}", "save: {answer: $.output, more: $.output}", 'saved "more" is not used'),
    ("save: {answer: $.output}", "save: {answer: $.output, units: $.x}", '"units" is saved twice'),
    ("save: {answer: $.output}", "save: {answer: output}", "begins with $"),
    ("save: {answer: $.output}", "save: {answer: '$.['}", "is not a JSON path"),
    ("    wait: true\n", "    wait: false\n", '"save" needs the answer'),
    ("    wait: true\n", "    error: {is: NotFound}\n", '"save" needs an answer'),
    (
        "  city: {type: string, default: Berlin",
        "  city: {type: integer, default: Berlin",
        "expected a whole number",
    ),
    ("default: 2s}", "default: two}", "is not a duration"),
    (
        "  budget: {type: duration, default: 2s}",
        "  budget: {type: duration}",
        'variable "budget" has no value',
    ),
    ("city: [Berlin, ", "city: [7, ", "expected text, saw the number 7"),
    ("city: [Berlin, ", "city: [$(vars.budget), ", "are written out"),
    ("city: [Berlin, ", "city: [New York, ", "stands in the matrix twice"),
    ("size: [8]", "size: []", "not empty"),
    ("size: [8]", "size: [8, 0]", "expected at least 1, saw the number 0"),
    ("size: [8]", f"size: {list(range(1, 600))}", "combinations, more than 1000"),
    ("size: [8]", "size: [8, 64]\n  world: [memory]", "world stands in the matrix too"),
    # steps
    ("id: ask\n", "id: look\n", 'step id "look" is given twice'),
    ("of: ask\n    sequence", "of: askk\n    sequence", 'no earlier step "askk", did you mean "ask"?'),
    ("of: ask\n    sequence", "of: look\n    sequence", '"look" is not an invoke or stream step'),
    ("of: ask\n    match", "of: watch\n    match", '"watch" is not a read, invoke or say step'),
    ("of: watch", "of: ask", '"ask" is not an observe step'),
    ("of: again", "of: boom", '"boom" is not a read, write, invoke or stream step'),
    (
        "event: asked\n    sequence",
        "event: askd\n    sequence",
        'subscribes as "concierge" to "askd", did you mean',
    ),
    ("sequence: [completed]", "sequence: [done]", '"done" is not a status'),
    ("    sequence: [completed]\n", "", "nothing is expected: one of equals, sequence"),
    ("    sequence: [completed]\n", "    contains: x\n", "does not apply to"),
    ("    of: watch\n", "", '"that: reading" needs "of"'),
    (
        "    target: concierge\n    event: asked\n    sequence",
        "    event: asked\n    sequence",
        'needs "target"',
    ),
    ('    contains: "$(vars.city)"\n', "    contains: a\n    within: 1s\n", "there is nothing to wait for"),
    ("{regex: a+, contains: a}", "{regex: a(}", "is not a regular expression"),
    ("{regex: a+, contains: a}", "[a]", "saw a list; write {eq: [...]}"),
    ("{regex: a+, contains: a}", "{}", "a condition without anything"),
    ("{regex: a+, contains: a}", "{regx: a+}", 'unknown key "regx", did you mean "regex"?'),
    ("$.output.n: {", "n: {", "begins with $"),
    ("    for: 10ms\n", "", 'exactly one of "until" and "for"'),
    ("    for: 10ms\n", "    for: 10ms\n    within: 1s\n", '"within" belongs to "until"'),
    ("is: NotAllowed", "is: NotAlowed", 'no error "NotAlowed", did you mean "NotAllowed"?'),
    ("is: NotAllowed", "is: StoreError", "not available yet"),
    ("with: RuntimeError", "with: RuntimError", 'did you mean "RuntimeError"?'),
    ("with: RuntimeError", "with: SystemExit", "no built-in exception"),
    ("with: RuntimeError", "with: UnicodeDecodeError", "no built-in exception"),
    # checks
    ("of: weather\n    equals: 1", "of: desc\n    equals: 1", 'did you mean "desk"?'),
    ("    ge: 1\n    le: 100\n", "", "nothing is checked: one of equals, ge, le"),
    ("    max: {lt: 1500ms}\n    p95: {le: 1s}\n", "", "nothing is checked: one of max"),
    ("p95: {le: 1s}", "p95: {}", "a bound without lt or le"),
    ("p95: {le: 1s}", "p96: {le: 1s}", 'unknown key "p96"'),
    # targets
    ("people.weather:WeatherAgent", "people.wether:WeatherAgent", 'no module "people.wether"'),
    ("people.weather:WeatherAgent", "people.weather:WetherAgent", 'did you mean "WeatherAgent"?'),
]

# The mistakes that show in another part of the file than the one that was changed.
ELSEWHERE = (
    "does nothing",
    "no earlier step saves",
    "more than 1000",
    "at least 1",
    "is not in the tree",
    "too",
)


@pytest.mark.parametrize(("old", "new", "part"), WRONG)
def test_each_mistake_is_named_at_its_line(old: str, new: str, part: str, project: Project) -> None:
    assert GOOD.count(old) == 1
    found = project.mistakes(GOOD.replace(old, new))
    assert any(part in message for _, message in found), found
    if not any(word in part for word in ELSEWHERE):
        place = GOOD[: GOOD.index(old)].count("\n") + 1
        near = range(place - 6, place + new.count("\n") + 4)
        assert any(at in near for at, message in found if part in message), found


def test_all_mistakes_are_collected(project: Project) -> None:
    text = GOOD.replace("do: tell", "do: tel").replace("p95:", "p9:")
    text = text.replace("of: weather\n    equals", "of: wether\n    equals")
    text = text.replace("use: people.weather:W", "use: people.wether:W").replace(
        "equals: kelvin", "equal: kelvin"
    )
    kinds = [message[:20] for _, message in project.mistakes(text)]
    assert len(kinds) == 5, kinds


def test_a_step_beside_is_not_seen(project: Project) -> None:
    right = "          id: right\n          target: weather\n          property: units\n"
    text = GOOD.replace(right, right + "        - {do: expect, that: output, of: left, equals: 1}\n")
    ((line, message),) = project.mistakes(text)
    assert line == line_of("of: left", text)
    assert "it comes later or beside this one" in message


def test_a_broken_step_is_not_a_missing_one(project: Project) -> None:
    text = GOOD.replace("    action: getWeather\n", "    acton: getWeather\n")
    assert [message for _, message in project.mistakes(text)] == [
        'unknown key "acton", did you mean "action"?'
    ]


# --- not built yet

LATER = [
    ("    state: {units", "    listen: ws\n    state: {units"),
    ("do: tell", "do: partition"),
    ("do: tell", "do: chat"),
    ("kind: crash", "kind: hang"),
    ("timeout: 30s", "secrets: {}"),
    ("that: status", "that: trace"),
]


@pytest.mark.parametrize(("old", "new"), LATER)
def test_what_is_not_available_yet_says_so(old: str, new: str, project: Project) -> None:
    text = GOOD.replace(old, new, 1)
    with pytest.raises(FileError) as caught:
        project.resolve(text)
    later = [mistake for mistake in caught.value.mistakes if mistake.kind == "later"]
    assert len(later) == 1
    assert "not available yet" in later[0].message
    assert later[0].line in range(line_of(old), line_of(old) + new.count("\n") + 1)


def test_another_format_says_only_that(project: Project) -> None:
    text = "lmos: deployment/v1\npopulation: []\n"
    assert project.mistakes(text) == [
        (
            1,
            '"deployment/v1" has no steps: "up" runs it, "validate" checks it, and a scenario with '
            "system: weather.yaml tells it a story",
        )
    ]
    assert project.mistakes("lmos: scenario/v2\nx: 1\n") == [
        (
            1,
            'unknown lmos "scenario/v2", did you mean "scenario/v1"? '
            "(known: scenario/v1, simulation/v1, deployment/v1)",
        )
    ]
    assert project.mistakes("name: x\n") == [
        (1, 'missing key "lmos" (one of: scenario/v1, simulation/v1, deployment/v1)')
    ]
    assert project.mistakes("lmoss: x\n") == [(1, 'unknown key "lmoss", did you mean "lmos"?')]
    assert project.mistakes("- 1\n") == [(1, "expected a mapping, saw a list")]


# --- settings, seeds, warnings


def test_settings_from_outside(project: Project) -> None:
    cells = project.resolve(settings={"city": "São", "size": "7", "world": "memory", "budget": "5s"}).cells
    assert [cell.label for cell in cells] == [f"city=São size=7 world=memory seed={n}" for n in (1, 2, 3)]
    assert cells[0].scenario.agents["weather"].mailbox.size == 7
    assert cells[0].scenario.name == "weather-São"
    (status,) = [step for step in cells[0].scenario.steps if getattr(step, "that", "") == "status"]
    assert status.within == 5.0


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"cty": "x"}, '--set: no variable or matrix key "cty", did you mean "city"?'),
        ({"budget": "5"}, "has no unit"),
        ({"world": "process"}, "runs the groups of a deployment"),
        ({"world": "wrld"}, 'unknown word "wrld"'),
        ({"size": "0"}, "expected at least 1"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, str], part: str, project: Project) -> None:
    with pytest.raises(ConfigError) as caught:
        project.resolve(settings=settings)
    assert part in str(caught.value)


def test_seeds_are_a_list_or_a_range_or_given(project: Project) -> None:
    assert [cell.seed for cell in project.resolve(SMALL + "seeds: [4, 2]\n").cells] == [4, 2]
    assert [cell.seed for cell in project.resolve(SMALL + "seeds: {from: 3, count: 2}\n").cells] == [3, 4]
    assert [cell.seed for cell in project.resolve(SMALL, seeds=[9]).cells] == [9]
    assert "expected at least 1" in project.mistakes(SMALL + "seeds: {from: 3, count: 0}\n")[0][1]


def test_what_may_be_unintended_is_a_warning(project: Project) -> None:
    notes = project.resolve(SMALL + "labels: {on: no}\nvars: {spare: {type: string, default: x}}\n").notes
    assert [(note.line, note.message.split(";")[0]) for note in notes] == [
        (7, 'no is read as the text "no"'),
        (8, "$(vars.spare) is not used"),
    ]


def test_a_matrix_may_choose_the_class(project: Project) -> None:
    text = (
        SMALL.replace("WeatherAgent", "$(matrix.impl)") + "matrix: {impl: [WeatherAgent, ConciergeAgent]}\n"
    )
    assert [cell.system.classes["weather"].__name__ for cell in project.resolve(text).cells] == [
        "WeatherAgent",
        "ConciergeAgent",
    ]
    bad = project.mistakes(text.replace("ConciergeAgent]", "Nobody]"))
    assert [line for line, _ in bad] == [line_of("use: ", text)]


def test_classes_may_be_left_alone(project: Project) -> None:
    text = SMALL.replace("people.weather:WeatherAgent", "nowhere:Nobody")
    assert project.resolve(text, classes=False).cells[0].system.classes == {}
    with pytest.raises(FileError) as caught:
        project.resolve(text)
    assert [mistake.kind for mistake in caught.value.mistakes] == ["name"]


def test_a_class_may_be_refused(project: Project) -> None:
    found = project.mistakes(SMALL, accepts=lambda found: f"{found.__name__} is not an Agent")
    assert found == [(4, '"people.weather:WeatherAgent": WeatherAgent is not an Agent')]


def test_escaped_references_stay_text_until_the_run(project: Project) -> None:
    text = (
        SMALL + "  - {do: tell, target: weather, action: say, input: {a: $$(vars.x), b: 1}}\nsummary: $$(x)\n"
    )
    (cell,) = project.resolve(text).cells
    assert cell.scenario.summary == "$(x)"
    assert fill_late(cell.scenario.steps[1].input, "saved", {}) == {"a": "$(vars.x)", "b": 1}


# --- the schema


def test_the_schema_names_every_key_of_the_good_files() -> None:
    schema = scenario_schema()
    assert schema["properties"]["lmos"] == {"enum": ["scenario/v1", "simulation/v1", "deployment/v1"]}
    parts = schema["$defs"]
    for name, part in parts.items():
        assert part["additionalProperties"] is False, name
    assert set(parts["Scenario"]["properties"]) >= set(parse(GOOD, name="f").data)
    assert parts["Simulation"]["properties"]["lmos"] == {"const": "simulation/v1"}
    assert parts["Expect"]["properties"]["do"] == {"const": "expect"}


def words_offered(schema: Any, key: str) -> list[list[str]]:
    """The words that an editor offers for a key, once for each place where such an object may stand."""
    if isinstance(schema, list):
        return [words for inner in schema for words in words_offered(inner, key)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("properties", {}).get(key, {}).get("enum") if "allOf" in schema else None
    return ([own] if own else []) + words_offered(list(schema.values()), key)


PROCESSES = ("kill", "stop", "cont")


def test_the_schema_tells_what_a_thing_is_by_one_key_so_that_editors_offer_all_words_for_it() -> None:
    schema = scenario_schema()
    verbs = "read write observe subscribe invoke stream tell say query cancel stop start inject heal wait"
    verbs += " repeat parallel expect approve refuse"
    scenario, simulation = (schema["$defs"][name]["properties"] for name in ("Scenario", "Simulation"))
    assert [sorted(words) for words in words_offered(scenario["steps"], "do")] == [sorted(verbs.split())]
    assert words_offered(simulation["timeline"], "do") == [
        ["tell", "invoke", "write", "say", "approve", "refuse", "fault", "heal"]
    ]
    assert words_offered(scenario["agents"], "from") == [
        ["agent", "pool", "mock", "replay", "bridge", "remote", "process"]
    ]
    assert len(words_offered(scenario["checks"], "check")[0]) == 15
    assert words_offered(schema["$defs"]["Inject"], "kind") == [
        ["crash", "slow", "pause", "clock_skew", "provider", *OF_NODE, *OF_NETWORK, *PROCESSES]
    ]


@cache
def validator() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(scenario_schema())


@pytest.mark.parametrize("file", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_shipped_files_fit_the_schema_and_a_misspelt_verb_does_not(file: Path) -> None:
    fits = validator().is_valid
    data: Any = parse(file.read_text(), name="f").data
    assert fits(data)
    stories = data.get("steps") or data.get("timeline") or data.get("checks")
    if stories is None:  # a deployment
        return
    first = stories[0]
    tag = "do" if "do" in first else "check"
    for key, wrong in ((tag, first[tag] + "x"), ("wrong", 1)):
        before = dict(first)
        first[key] = wrong
        assert not fits(data)
        first.clear()
        first.update(before)


# --- nothing


def test_a_key_without_a_value_is_refused_and_not_taken_for_one_that_is_not_given(project: Project) -> None:
    causal = "  - check: causal\n    before: {to: weather, action: }\n    after: {to: }\n"
    agent = "    from: agent\n    use: people.weather"
    blank = [
        ("checks:\n", f"checks:\n{causal}", ["action", "to"]),
        (agent, agent.replace("    use", "    description:\n    use"), ["description"]),
        (agent, agent.replace("    use", "    id: null\n    use"), ["id"]),
    ]
    for old, new, keys in blank:
        assert GOOD.count(old)
        found = [message for _, message in project.mistakes(GOOD.replace(old, new, 1))]
        wanted = [f'"{key}" is blank: give it a value, or leave it out' for key in keys]
        assert [message for message in found if "is blank" in message] == wanted


def test_the_schema_refuses_a_key_without_a_value_too() -> None:
    message = scenario_schema()["$defs"]["Message"]["properties"]["to"]
    assert {"type": "null"} not in message.get("anyOf", [message])


def test_nothing_is_a_value_where_any_value_may_stand(project: Project) -> None:
    text = SMALL + "  - {do: invoke, id: a, target: weather, action: say, input: {x: null}}\n"
    text += "  - {do: expect, that: output, of: a, equals: null}\n"
    assert "is blank" not in str(project.mistakes(text))


def test_no_key_or_word_is_one_that_yaml_1_1_would_change() -> None:
    magic = {"on", "off", "yes", "no", "y", "n", "true", "false", "null"}

    def words(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
            yield from (word for word in schema.get("enum", []) if isinstance(word, str))
            yield from ([schema["const"]] if "const" in schema else [])
            for inner in schema.values():
                yield from words(inner)
        elif isinstance(schema, list):
            for inner in schema:
                yield from words(inner)

    found = set(words(scenario_schema()))
    assert "invoke" in found
    assert not found & magic


def test_scenario_is_closed_to_the_bottom() -> None:
    assert Scenario.__struct_config__.forbid_unknown_fields


def test_how_often_cells_are_run_is_the_same_for_all_of_them(project: Project) -> None:
    text = GOOD.replace("trials: {count: 1,", "trials: {count: $(vars.city),")
    assert text != GOOD
    messages = [message for _, message in project.mistakes(text)]
    assert 'expected a whole number, saw the text "$(vars.city)"' in messages
