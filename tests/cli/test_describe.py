"""`lmos-actors describe`: what it prints of classes and files, its exit codes, and what users get wrong."""

from __future__ import annotations

import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from agents.weather import WeatherAgent
from lmos_actors import describe
from lmos_actors.cli import main
from lmos_actors.files import inside
from lmos_actors.protocol.td import check, dump, dump_text, with_forms
from tests.matrix import examples
from tests.scenario.project import Project, Ran
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WEATHER = f"{ROOT}/agents/weather.py:WeatherAgent"
TD = ROOT / "tests/wire/td"
MODULES = ("clerks", "noisy", "raising", "leaving", "unwritten")

CLERKS = '''
from typing import Annotated

from msgspec import Meta

from lmos_actors import Agent, Event, Property, action, event, prop


class Clerk(Agent):
    """Keeps a count für alle."""

    count: Property[int] = prop(default=0, read_only=True)
    full: Event[int] = event()

    @action
    def add(self, amount: int) -> int:
        """Add to it."""
        return amount


class Older(Agent):
    """Keeps a count."""

    count: Property[int] = prop(default=0, read_only=True)
    full: Event[int] = event()

    @action
    def add(self) -> int:
        return 0


class Newer(Clerk):
    """Keeps a count für alle."""

    @action
    def add(self, amount: int, note: str = "") -> int:
        """Add to it."""
        return amount


class Laxer(Clerk):
    """Keeps a count für alle."""

    @action
    def add(self, amount: int) -> float:
        """Add to it."""
        return amount


class Odd(Agent):
    limit: Property[Annotated[int, Meta(extra_json_schema={"minimum": 5, "maximum": 3})]] = prop(default=0)


class Contrary(Agent):
    limit: Property[Annotated[int, Meta(extra_json_schema={"readOnly": "perhaps"})]] = prop(default=0)


class NoAgent:
    pass


def function() -> None: ...
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("clerks.py", CLERKS)
    made.write("noisy.py", f"print('hello')\n{CLERKS}")
    made.write("raising.py", "a = 1\nb = a / 0\n")
    made.write("leaving.py", "import sys\nsys.exit(3)\n")
    made.write("unwritten.py", "class A(:\n")
    made.write("inner/readme.txt", "")
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in MODULES:
            del sys.modules[name]


@pytest.fixture
def call(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Call `lmos-actors describe` in this process, in a folder of the project."""

    def call(*words: str, folder: str = ".") -> Ran:
        monkeypatch.chdir(project.root / folder)
        with pytest.raises(SystemExit) as ended:
            main(["describe", *words])
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


@pytest.fixture
def served(call: Callable[..., Ran]) -> dict[str, Any]:
    """What the command prints for the clerk."""
    found: dict[str, Any] = json.loads(call("clerks.py:Clerk").out)
    return found


def written(project: Project, data: Any) -> str:
    return project.write("it.json", json.dumps(data, indent=2))


# --- a class


def test_it_prints_the_description_of_a_class(call: Callable[..., Ran]) -> None:
    ran = call(WEATHER, "--id", "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77")
    assert (ran.code, ran.err) == (0, "")
    own = describe(WeatherAgent, id="urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77")
    assert json.loads(ran.out) == dump(with_forms(own, "weather-agent", ["ws://127.0.0.1:8080"]))
    assert ran.out == dump_text(with_forms(own, "weather-agent", ["ws://127.0.0.1:8080"])) + "\n"
    assert check(ran.out, strict=True) == ()


def test_the_base_url_can_be_given(call: Callable[..., Ran]) -> None:
    found = json.loads(call("clerks:Clerk", "--base", "wss://agents.example", "--name", "my clerk").out)
    hrefs = [form["href"] for form in found["actions"]["add"]["forms"]]
    assert hrefs == ["wss://agents.example/ws", "https://agents.example/agents/my%20clerk/actions/add"]


def test_the_id_follows_from_where_it_is_served(call: Callable[..., Ran]) -> None:
    def own(*words: str) -> str:
        found: str = json.loads(call("clerks:Clerk", *words).out)["id"]
        return found

    assert own() == own("--name", "clerk") == own("--base", "ws://127.0.0.1:8080")
    assert len({own(), own("--name", "other"), own("--base", "ws://127.0.0.1:8081")}) == 3
    assert own("--id", "urn:x:1") == "urn:x:1"


@pytest.mark.parametrize(
    ("target", "folder"),
    [
        ("clerks.py:Clerk", "."),
        ("clerks:Clerk", "."),
        ("./clerks.py:Clerk", "."),
        ("../clerks.py:Clerk", "inner"),
        ("clerks:Clerk", "inner"),
    ],
)
def test_a_path_is_meant_from_here_and_a_module_from_the_project(
    call: Callable[..., Ran], served: dict[str, Any], target: str, folder: str
) -> None:
    assert json.loads(call(target, folder=folder).out) == served


def test_what_a_module_prints_does_not_get_in_the_way(call: Callable[..., Ran]) -> None:
    ran = call("noisy.py:Clerk")
    assert json.loads(ran.out)["title"] == "Clerk"
    assert ran.err == "hello\n"


def test_the_description_of_a_class_is_checked_too(call: Callable[..., Ran]) -> None:
    ran = call("clerks:Odd")
    assert ran.code == 1
    assert json.loads(ran.out)["properties"]["limit"]["maximum"] == 3
    assert ran.err.startswith("clerks:Odd: error: /properties/limit")


@pytest.mark.slow
def test_a_terminal_that_knows_no_other_letters_gets_json_all_the_same(project: Project) -> None:
    ran = project.command("describe", "clerks:Clerk", PYTHONIOENCODING="ascii")
    assert json.loads(ran.out)["description"] == "Keeps a count für alle."
    ran = project.command("describe", "clerks:Clerk", PYTHONIOENCODING="utf-8")
    assert "für" in ran.out


# --- a file


def test_a_good_file(project: Project, call: Callable[..., Ran], served: dict[str, Any]) -> None:
    ran = call(written(project, served), "--strict")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "it.json: Clerk, 1 property, 1 action, 1 event: ok\n"


def test_what_is_wrong_where_and_how_to_mend_it(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    served["actions"]["add"]["forms"][0]["op"] = ["readproperty"]
    del served["title"]
    ran = call(written(project, served))
    assert (ran.code, ran.err) == (1, "")
    lines = (project.root / "it.json").read_text().splitlines()
    line = max(n for n, text in enumerate(lines, 1) if text.strip() == '"readproperty"')
    assert f"it.json:{line}:13: error: /actions/add/forms/0/op/0: " in ran.out
    assert f'{line:>5} |             "readproperty"\n      |             ^^^^^^^^^^^^^^' in ran.out
    (told,) = (text for text in ran.out.splitlines() if text.startswith("it.json:1:1: error: "))
    assert told.endswith('title is missing; add "title": "..."')
    assert ran.out.endswith("it.json: no title, 1 property, 1 action, 1 event: 2 errors\n")


@pytest.mark.parametrize(
    ("name", "code", "strict", "said"),
    [
        ("spec-002-full.repaired.json", 0, 0, "WeatherAgent, 1 property, 1 action, 1 event: ok"),
        ("spec-002-minimal.repaired.json", 0, 1, "Agent Name: 2 warnings"),
        ("tool-full.json", 0, 0, "ok"),
        ("node-wot-counter.json", 0, 0, "ok"),
        ("kotlin-wot-chat.json", 0, 1, "4 warnings"),
        ("kotlin-wot-bare-tool.json", 0, 1, "4 warnings"),
    ],
)
def test_the_samples(call: Callable[..., Ran], name: str, code: int, strict: int, said: str) -> None:
    ran = call(str(TD / name))
    assert (ran.code, ran.err) == (code, "")
    assert ran.out.splitlines()[-1].endswith(said)
    assert call(str(TD / name), "--strict").code == strict


@pytest.mark.parametrize("name", ["spec-002-full", "spec-002-minimal", "tool-minimal"])
def test_the_samples_that_are_broken(call: Callable[..., Ran], name: str) -> None:
    ran = call(str(TD / f"{name}.broken.json"))
    assert (ran.code, ran.out) == (2, "")
    assert f"{name}.broken.json:6:1: a comma before '}}'\n    6 | }}\n      | ^\n" in ran.err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 2, "the file is empty"),
        ("{", 2, "it.json:1:2: put the key in double quotes"),
        ('{"title": "a", "title": "b"}', 2, 'it.json:1:16: key "title" is given twice'),
        ('{"title": "\\ud800"}', 2, "half of a surrogate pair"),
        ('{"title": 1e999}', 2, "is not a finite number"),
        ("[" * 100, 2, "nested more than 64 deep"),
        ("[]", 1, "a description must be an object, this is an array"),
        ("7", 1, "it.json:1:1: error"),
        ('{"title": 7}', 1, "it.json:1:11: error: /title"),
        ('{"properties": {"a": 1}}', 1, "it.json:1:22: error: /properties/a"),
    ],
)
def test_a_file_that_cannot_be_read(
    project: Project, call: Callable[..., Ran], text: str, code: int, said: str
) -> None:
    project.write("it.json", text)
    for words in ((), ("--strict",), ("--json",), ("--against", "clerks:Clerk")):
        ran = call("it.json", *words)
        assert ran.code == code
        assert words == ("--json",) or said in ran.text


@pytest.mark.parametrize("name", ["it.td.json", "it.td.jsonld", "IT.JSON", "./it.JsonLD"])
def test_how_a_file_may_be_called(
    project: Project, call: Callable[..., Ran], served: dict[str, Any], name: str
) -> None:
    ran = call(project.write(name, json.dumps(served)))
    assert (ran.code, ran.out) == (0, f"{name}: Clerk, 1 property, 1 action, 1 event: ok\n")


def test_yaml_is_read_as_well(project: Project, call: Callable[..., Ran]) -> None:
    project.write("it.yaml", "title: Clerk\nactions:\n  add:\n    safe: 7\n")
    ran = call("it.yaml")
    assert ran.code == 1
    assert "it.yaml:4:11: error: /actions/add/safe" in ran.out


def test_what_a_file_holds_does_not_speak_to_the_terminal(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    served["title"] = "\x1b[2J\nit.json: ok\x07"
    served["actions"]["\x1b[31m\u202e\nadd"] = {}
    served["lmos:metadata"] = {"\x1b]0;x\x07": 1}
    ran = call(written(project, served), "--against", "clerks:Clerk")
    assert ran.code == 1
    assert all(character.isprintable() for line in ran.out.split("\n") for character in line)
    assert ran.out.splitlines()[-1].startswith(r"it.json: \x1b[2J\nit.json: ok\x07, 1 property")


# --- against a class


def test_a_description_against_its_own_class(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    file = written(project, served)
    for words in ((), ("--strict",)):
        ran = call(file, "--against", "clerks:Clerk", *words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == (
            "it.json: Clerk, 1 property, 1 action, 1 event: ok; against clerks:Clerk: nothing differs\n"
        )


@pytest.mark.parametrize(
    ("target", "code", "strict", "said"),
    [
        ("clerks:Newer", 0, 1, "differs: /actions/add/input/properties/note"),
        ("clerks:Laxer", 0, 1, "differs: /actions/add/output/type"),
        ("clerks:Older", 1, 1, "breaks: /actions/add/input"),
    ],
)
def test_a_description_against_another_class(
    project: Project,
    call: Callable[..., Ran],
    served: dict[str, Any],
    target: str,
    code: int,
    strict: int,
    said: str,
) -> None:
    file = written(project, served)
    ran = call(file, "--against", target)
    assert (ran.code, ran.err) == (code, "")
    assert said in ran.out
    assert call(file, "--against", target, "--strict").code == strict


def test_unreadable_descriptions_are_not_reported_as_equal(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    served["title"] = 5
    file = written(project, served)
    ran = call(file, "--against", "clerks:Clerk")
    assert ran.code == 1
    assert ran.out.endswith("1 error; against clerks:Clerk: not compared\n")
    assert json.loads(call(file, "--against", "clerks:Clerk", "--json").out)["differences"] is None


def test_harmless_differences_count_when_strict(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    ran = call("clerks:Newer")
    file = project.write("newer.json", ran.out)
    ran = call(file, "--against", "clerks:Clerk")
    assert ran.code == 0
    (line,) = re.findall(
        r'^newer.json:(\d+):11: differs: /actions/add/input/properties/note: .*\n.*"note": {$',
        ran.out,
        re.MULTILINE,
    )
    assert f'{line:>5} |           "note": {{\n      |           ^^^^^^\n' in ran.out
    assert call(file, "--against", "clerks:Clerk", "--strict").code == 1


def test_wording_never_counts(project: Project, call: Callable[..., Ran], served: dict[str, Any]) -> None:
    served["description"] = "Counts."
    ran = call(written(project, served), "--against", "clerks:Clerk", "--strict")
    assert ran.code == 0
    assert "wording: /description: " in ran.out
    assert ran.out.endswith("against clerks:Clerk: 1 of wording\n")


def test_what_breaks_comes_first(project: Project, call: Callable[..., Ran], served: dict[str, Any]) -> None:
    del served["actions"]["add"]
    served["title"] = "C"
    served["events"]["more"] = served["events"]["full"]
    ran = call(written(project, served), "--against", "clerks:Clerk")
    heads = [line.split(": ")[1] for line in ran.out.splitlines() if line.startswith("it.json:")]
    assert heads[:3] == ["breaks", "differs", "wording"]
    assert ran.out.endswith("1 breaks a consumer, 1 differs, 1 of wording\n")


def test_one_class_against_another(call: Callable[..., Ran]) -> None:
    assert call("clerks:Newer", "--against", "clerks:Clerk").code == 0
    ran = call("clerks:Older", "--against", "clerks:Clerk")
    assert ran.code == 1
    assert ran.out.startswith("clerks:Older: breaks: /actions/add/input")


# --- as data


def test_findings_and_differences_as_data(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    served["actions"]["add"]["output"] = {"type": "string"}
    served["id"] = "bare"
    file = written(project, served)
    ran = call(file, "--against", "clerks:Clerk", "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err) == (1, "")
    (finding,) = found.pop("findings")
    assert finding == {
        "path": "/id",
        "message": 'id "bare" is not a URI',
        "severity": "warning",
        "fix": finding["fix"],
        "line": 11,
        "column": 9,
    }
    (difference,) = (each for each in found.pop("differences") if each["weight"] == "breaks")
    assert (difference["path"], difference["offered"], difference["expected"]) == (
        "/actions/add/output/type",
        "string",
        "integer",
    )
    assert found == {"subject": "it.json", "unreadable": [], "exit_code": 1}


def test_members_that_kotlin_wot_cannot_read_are_reported(
    project: Project, call: Callable[..., Ran], served: dict[str, Any]
) -> None:
    assert call("clerks:Clerk", "--for", "kotlin-wot").out == (
        "clerks:Clerk: Clerk, 1 property, 1 action, 1 event: ok; kotlin-wot: can read it\n"
    )
    served["actions"]["add"]["x:own"] = 1
    served["@context"].append({"x": "urn:x:"})
    file = written(project, served)
    ran = call(file, "--for", "kotlin-wot")
    line, *_, summary = ran.out.splitlines()
    assert "/actions/add/x:own: kotlin-wot does not support the member 'x:own' of an action" in line
    assert summary.endswith("ok; kotlin-wot: stopped by 1 thing")
    assert (ran.code, ran.err) == (1, "")
    (found,) = json.loads(call(file, "--for", "kotlin-wot", "--json").out)["unreadable"]
    assert (found["path"], found["line"] > 1) == ("/actions/add/x:own", True)
    assert call(file, "--for", "kotlin").code == 2


def test_what_is_no_file_has_no_lines(call: Callable[..., Ran]) -> None:
    found = json.loads(call("clerks:Older", "--against", "clerks:Clerk", "--json").out)
    assert found["differences"]
    assert all("line" not in each for each in found["differences"])


# --- whatever a file holds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
SERVED = with_forms(describe(WeatherAgent, id="urn:x:1"), "weather", ["ws://127.0.0.1:8080"])


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything inside."""
    for key, item in inside(value):
        yield (*above, key)
        yield from places(item, (*above, key))


PLACES = list(places(dump(SERVED)))


@pytest.mark.slow
@given(place=st.sampled_from(PLACES), value=JSON, strict=st.booleans(), as_json=st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_any_value_at_any_place_is_an_answer(
    place: tuple[Any, ...], value: Any, strict: bool, as_json: bool
) -> None:
    data = dump(SERVED)
    around: Any = data
    for key in place[:-1]:
        around = around[key]
    around[place[-1]] = value
    words = [*["--strict"] * strict, *["--json"] * as_json, "--against", WEATHER]
    with (
        TemporaryDirectory() as folder,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        file = Path(folder, "it.json")
        file.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["describe", str(file), *words])
    code = ended.value.code
    assert code in (0, 1, 2)
    assert bool(out.getvalue()) == (code != 2)
    assert bool(err.getvalue()) == (code == 2)
    if as_json and code != 2:
        assert json.loads(out.getvalue())["exit_code"] == code


# --- wrong usage


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "SUBJECT"),
        (["clerks"], 2, '"clerks" is no class, path/file.py:Class, no file that ends in .json, and no URL'),
        (["clerks.py"], 2, "is no class"),
        (["nothing.json"], 2, "nothing.json: no such file"),
        (["inner.json"], 2, "no such file"),
        (["clerks.py:Clark"], 2, 'no class "Clark" in clerks.py, did you mean "Clerk"?'),
        (["clerkz.py:Clerk"], 2, 'did you mean "clerks.py"?'),
        (["clerkz:Clerk"], 2, 'did you mean "clerks"?'),
        (["clerks:function"], 2, "is not a class"),
        (["clerks:NoAgent"], 2, "NoAgent is not an agent"),
        (["lmos_actors:Agent"], 2, "Agent is the base of all agents"),
        ([":"], 2, "is not package.module:Class"),
        (["clerks:Contrary"], 2, "Contrary: /properties/limit/readOnly: must be true or false"),
        (["good.json", "--against", "clerks:Contrary"], 2, "Contrary: /properties/limit/readOnly"),
        (["raising:A"], 3, "at raising.py:2: ZeroDivisionError"),
        (["leaving:A"], 3, "SystemExit: 3"),
        (["unwritten.py:A"], 3, "at unwritten.py:1: SyntaxError"),
        (["clerks:Clerk", "--id", "bare"], 2, '--id: "bare" is no URI'),
        (["clerks:Clerk", "--base", "here"], 2, "--base: 'here' is not a base URL"),
        (["clerks:Clerk", "--base", "ftp://x"], 2, "--base"),
        (["good.json", "--base", "ws://x"], 2, "--base: goes with a class"),
        (["good.json", "--name", "x"], 2, "--name: goes with a class"),
        (["good.json", "--id", "urn:x:1"], 2, "--id: goes with a class"),
        (["good.json", "--against", "good.json"], 2, "is not package.module:Class"),
        (["good.json", "--against", "raising:A"], 3, "ZeroDivisionError"),
        (["good.json", "--agains", "clerks:Clerk"], 2, "--agains"),
        (["good.json", "good.json"], 2, "good.json"),
    ],
)
def test_wrong_usage(
    project: Project, call: Callable[..., Ran], served: dict[str, Any], words: list[str], code: int, said: str
) -> None:
    project.write("good.json", json.dumps(served))
    ran = call(*words)
    assert ran.code == code
    assert said in ran.err
    assert ran.out == ""


def test_a_folder_is_no_file(project: Project, call: Callable[..., Ran]) -> None:
    (project.root / "folder.json").mkdir(exist_ok=True)
    ran = call("folder.json")
    assert (ran.code, ran.err) == (
        2,
        "folder.json: is a directory\nlmos-actors describe --help explains the command\n",
    )


def test_help_teaches(call: Callable[..., Ran]) -> None:
    ran = call("--help")
    assert ran.code == 0
    for words in ("agents/weather.py:WeatherAgent", "--against", "--strict", "--base"):
        assert words in ran.out
