"""The reference leaves nothing out: every public name with its members, every error, every key of a file."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, get_overloads

import attrs
import msgspec
import pytest

import lmos_actors
import lmos_actors.errors
import lmos_actors.facades
import lmos_actors.llm
import lmos_actors.testing
import lmos_actors.thinking
import lmos_actors.types
from lmos_actors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    InvalidInput,
    MailboxFull,
    NotAllowed,
    NotFound,
    conformance,
)
from lmos_actors.approvals import ApprovalOptions
from lmos_actors.bindings import HttpOptions
from lmos_actors.cli import _dispatch as cli, main
from lmos_actors.deployment.model import _deployment as _model_deployment
from lmos_actors.errors import ActionCancelled, Forbidden, KeyReused, RateLimited, Unauthorized, WouldDeadlock
from lmos_actors.live import PageOptions
from lmos_actors.node import NodeLimits
from lmos_actors.protocol import lmos, td
from lmos_actors.protocol.lmos import _problems
from lmos_actors.protocol.lmos.thing._requests import VERBS
from lmos_actors.reports._results import PRECEDENCE
from lmos_actors.scenario.formulas import _names, _text as _formula_text
from lmos_actors.scenario.model import (
    _checks as _model_checks,
    _faults as _model_faults,
    _files as _model,
    _steps as _model_steps,
)
from lmos_actors.system.model import _agents as _model_agents, _base as _model_base
from lmos_actors.transport import ConnectionOptions, DoorOptions
from tests.source import ROOT

if TYPE_CHECKING:
    from types import ModuleType

REFERENCE = ROOT / "docs/reference"


def names_in(face: ModuleType) -> dict[str, Any]:
    """The names that a face has for others, with their values."""
    return {name: getattr(face, name) for name in face.__all__}


FACES = {
    "lmos_actors": names_in(lmos_actors),
    "lmos_actors.types": names_in(lmos_actors.types),
    "lmos_actors.facades": names_in(lmos_actors.facades),
    "lmos_actors.llm": names_in(lmos_actors.llm),
    "lmos_actors.thinking": names_in(lmos_actors.thinking),
    "lmos_actors.errors": {
        name: thing
        for name, thing in vars(lmos_actors.errors).items()
        if inspect.isclass(thing) and issubclass(thing, Exception)
    },
}
EXPORTED = {name: thing for face in FACES.values() for name, thing in face.items()}
ERRORS = [
    name for name, thing in EXPORTED.items() if isinstance(thing, type) and issubclass(thing, Exception)
]
OTHERS = [name for name in EXPORTED if name not in ERRORS or name == "SlowTurnWarning"]
CLASSES = {name: EXPORTED[name] for name in OTHERS if isinstance(EXPORTED[name], type)}

FOR_THE_RUNTIME = {
    "ChatTurn": {"run", "take_answer"},
    "OutgoingCall": {"close", "connect", "run"},
    "VoiceCall": {"run"},
    "CrashReport": {
        "before",
        "hand",
        "handler",
        "is_first_start",
        "is_of",
        "line",
        "quiet_data",
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
    "Feed": {"push", "gap", "close", "fail", "drop_waiting", "receiver"},
    "Monitor": {"begin", "push", "take", "gap", "close"},
    "Pool": {"unnamed", "tree"},
    "Property": {"attribute", "handle", "hidden", "take", "wire_name"},
    "NodeOptions": {
        "check_exposed",
        "directory_urls",
        "effective_security",
        "endpoints",
        "host_names",
        "lookup_urls",
        "registration",
        "uses_directories",
        "has_page",
    },
    "Supervisor": {"loop", "rt", "idle", "is_root", "numbered", "settled", "spec", "stop", "kill"},
}
"""Members without an underscore that other parts of the package call, and nobody else does."""


@cache
def sections() -> dict[str, str]:
    """The names with a heading of their own, each with the text below it."""
    found: dict[str, str] = {}
    others = {REFERENCE / f"{name}.md" for name in ("scenario-format", "deployment-format", "api")}
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


def test_every_public_name_has_its_section() -> None:
    assert [name for name in OTHERS if name not in sections()] == []


def test_every_exception_has_its_row() -> None:
    assert set(ERRORS) - rows((REFERENCE / "errors.md").read_text(encoding="utf-8")).keys() == set()


def test_every_section_says_where_to_import_its_name_from() -> None:
    said = {name: re.match(r"In `([\w.]+)`\.", sections()[name].strip()) for name in OTHERS}
    faces = {name: [face for face, names in FACES.items() if name in names] for name in OTHERS}
    assert {name: [found[1] if found else "lmos_actors"] for name, found in said.items()} == faces


def test_the_exceptions_at_the_top_are_listed() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    listed = code(text.partition("also in `lmos_actors`:")[2].partition("\n\n")[0])
    assert sorted(listed) == sorted(set(ERRORS) & set(FACES["lmos_actors"]))


def test_the_members_of_every_class_are_in_its_section() -> None:
    assert [f"{name}.{member}" for name in CLASSES for member in members_without_a_word(name)] == []


def members_without_a_word(name: str) -> list[str]:
    known, thing = words(sections()[name]), CLASSES[name]
    fields = [field.name for field in attrs.fields(thing)] if attrs.has(thing) else []
    mine = {
        member: value for member, value in vars(thing).items() if inspect.isroutine(value) or is_shown(value)
    }
    wanted = {member for member in (*fields, *mine) if not member.startswith("_")}
    wanted -= FOR_THE_RUNTIME.get(name, set())
    # what a public base class declares is in the section of that class
    wanted -= {each for base in thing.__mro__[1:] if base.__name__ in CLASSES for each in vars(base)}
    parameters = {
        f"{member}({each})"
        for member in wanted
        if inspect.isfunction(mine.get(member))
        for form in get_overloads(mine[member]) or [mine[member]]
        for each in list(inspect.signature(form).parameters)[1:]
        if each not in known
    }
    return sorted((wanted - known) | parameters)


def is_shown(value: object) -> bool:
    return isinstance(value, property)


def test_the_parameters_of_every_function_are_in_its_section() -> None:
    hidden = {"fn", "init"}  # what a decorator goes on, and what only type checkers read
    for name in (name for name in OTHERS if inspect.isroutine(EXPORTED[name])):
        given = set(inspect.signature(EXPORTED[name]).parameters) - hidden
        assert sorted(given - words(sections()[name])) == [], name


@pytest.mark.parametrize("name", ["ChildSpec", "SupervisorSpec", "Pool", "Backoff", "MailboxOptions"])
def test_the_fields_of_a_spec_have_their_defaults(name: str) -> None:
    fields = {field.name: field.default for field in attrs.fields(CLASSES[name]) if field.init}
    wanted = {key: "" if value is attrs.NOTHING else f"`{value!r}`" for key, value in fields.items()}
    assert rows(sections()[name]) == wanted


def test_the_names_for_tests_are_there() -> None:
    public = names_in(lmos_actors.testing)
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
    public = names_in(td)
    text = (REFERENCE / "descriptions.md").read_text(encoding="utf-8")
    known = words(text)
    wanted = [name for name, thing in public.items() if not inspect.ismodule(thing)]
    for thing in public.values():
        if inspect.isroutine(thing):
            wanted += inspect.signature(thing).parameters
        elif attrs.has(thing):
            mine = [m for m, value in vars(thing).items() if inspect.isroutine(value) or is_shown(value)]
            wanted += [m for m in (*(f.name for f in attrs.fields(thing)), *mine) if m[0] != "_"]
    between_packages = {
        "is_any",
        "type_name",
        "type_tree",
        "tree",
        "hide_default",
        "is_secret",
        "without_notes",
    }
    assert sorted({*wanted} - known - between_packages) == []


# --- the protocol

PROTOCOL = names_in(lmos)
MESSAGES = lmos.message_types()
MADE_BY_USERS = ("AnswerMemory", "Codec", "ConsumerSession", "ThingSession")
BETWEEN_FILES = {
    "AnswerBound": {"changed", "bytes"},
    "AnswerMemory": {"find", "begin", "settle", "forget", "expire", "held", "shrink"},
    "IncomingRequest": {
        "connection",
        "size",
        "weight",
        "out",
        "gathered",
        "latest_progress",
        "question",
        "slot",
        "also",
        "remembered",
    },
    "Codec": {"learn", "has_extra_members", "count_refusal"},
    "Dialect": {"learn"},
    "PendingRun": {"controls"},
    "Listening": {"connection", "size", "slot"},
    "ConsumerRequest": {"whole"},
}
"""Members without an underscore that other files of that package use, and nobody else does."""


@cache
def protocol_page() -> str:
    return (REFERENCE / "lmos.md").read_text(encoding="utf-8")


def table_of(head: str, page: str | None = None) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    table = (page or protocol_page()).partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def told_of(name: str) -> set[str]:
    """The words in code of a name's section, of its table's first column, of the rows that begin with it."""
    section = protocol_page().partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    rows = [line for line in protocol_page().splitlines() if line.startswith("| `")]
    rows = [line for line in rows if name in words(line.split("|")[1])]
    return words("\n".join([section, *rows])) | {cell[0].strip("`") for cell in table_of(f"`{name}`")}


def members_of(cls: type) -> set[str]:
    """Fields, and what a class defines itself."""
    if issubclass(cls, Enum):
        return set(cls.__members__)
    found = {name for name, value in vars(cls).items() if is_member(value)}
    if attrs.has(cls):
        found |= {field.name for field in attrs.fields(cls)}
    return {name for name in found | set(vars(cls).get("__annotations__", ())) if name[0] != "_"}


def is_member(value: object) -> bool:
    return inspect.isroutine(value) or is_shown(value) or inspect.ismemberdescriptor(value)


def parameters_of(function: object) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"} if callable(function) else set()


def test_every_name_of_the_protocol_is_described() -> None:
    for name, thing in PROTOCOL.items():
        if thing not in MESSAGES.values():
            check_described(name, thing)


def check_described(name: str, thing: Any) -> None:
    told = told_of(name)
    assert told, name
    if inspect.isroutine(thing):
        assert sorted(parameters_of(thing) - told) == [], name
    if isinstance(thing, type):
        wanted = members_of(thing) - BETWEEN_FILES.get(name, set())
        calls = [getattr(thing, member) for member in wanted if inspect.isroutine(vars(thing).get(member))]
        calls += [thing] if name in MADE_BY_USERS else []
        wanted |= {each for call in calls for each in parameters_of(call)}
        assert sorted(wanted - told) == [], name


def test_the_members_between_files_are_there() -> None:
    for name, members in BETWEEN_FILES.items():
        assert members <= members_of(PROTOCOL[name])


def test_the_messages_are_told_with_their_members() -> None:
    common = {field.name for field in msgspec.structs.fields(lmos.ReadAllProperties)}
    wanted: list[list[str]] = []
    for tag, struct in MESSAGES.items():
        fields = [field for field in msgspec.structs.fields(struct) if field.name not in common]
        there, may = ([f"`{f.name}`" for f in fields if f.required is needed] for needed in (True, False))
        wanted.append([f"`{tag}`", f"`{struct.__name__}`", ", ".join(there), ", ".join(may)])
    assert [row[:4] for row in table_of("`messageType` | struct")] == wanted
    assert all(f"`{name}`" in protocol_page() for name in common)


def test_the_names_on_the_wire_are_told() -> None:
    structs = [*MESSAGES.values(), lmos.Credit, lmos.StreamOffer]
    fields = [field for struct in structs for field in msgspec.structs.fields(struct)]
    renamed = {(field.name, field.encode_name) for field in fields if field.name != field.encode_name}
    said = re.findall(r"`(\w+)` is\s+`(\w+)`", protocol_page().partition("\n| ")[0])
    assert sorted(said) == sorted(renamed)


def test_what_answers_a_request_is_told() -> None:
    wanted = [
        [
            f"`{kind.__struct_config__.tag}`",
            f"`{verb.word}`",
            ", ".join(f"`{answer}`" for answer in verb.answers),
            "yes" if verb.has_effect else "no",
        ]
        for kind, verb in VERBS.items()
    ]
    assert table_of("`messageType` | `verb.word`") == wanted


@pytest.mark.parametrize("cls", [lmos.SessionOptions, lmos.Limits], ids=lambda cls: cls.__name__)
def test_the_defaults_of_a_session_are_told(cls: Any) -> None:
    defaults = [[f"`{field.name}`", f"`{field.default!r}`"] for field in attrs.fields(cls)]
    assert [row[:2] for row in table_of(f"`{cls.__name__}`")] == defaults


@pytest.mark.parametrize(
    "cls",
    [ApprovalOptions, ConnectionOptions, DoorOptions, HttpOptions, NodeLimits, PageOptions],
    ids=lambda cls: cls.__name__,
)
def test_the_defaults_of_connections_are_told(cls: Any) -> None:
    pages = {NodeLimits: "nodes.md", PageOptions: "live.md", ApprovalOptions: "agents.md"}
    page = (REFERENCE / pages.get(cls, "connections.md")).read_text(encoding="utf-8")
    defaults = [[f"`{field.name}`", f"`{field.default!r}`"] for field in attrs.fields(cls)]
    assert [row[:2] for row in table_of(f"`{cls.__name__}`", page)] == defaults


SAMPLES: list[Exception] = [
    NotFound("action", "x"),
    InvalidInput("Expected `int`"),
    NotAllowed("read-only"),
    ActionFailed(1),
    ActionCancelled("enough"),
    MailboxFull("a", 3),
    AgentUnavailable("a"),
    AgentDied("killed", started=True),
    DeadlineExceeded("a", 1.0),
    Unauthorized("who are you"),
    Forbidden("not you"),
    RateLimited(1.0),
    KeyReused("a", "k", "it names another request"),
    WouldDeadlock("a", "f", ()),
    ValueError("a mistake"),
]
PREFIXES = {"lmos:": "https://eclipse.dev/lmos/protocol/v1/errors#", "ours:": "urn:lmos-actors:errors#"}


def shown_type(problem: lmos.Problem) -> str:
    return next(
        f"`{problem.type.replace(long, short)}`" for short, long in PREFIXES.items() if long in problem.type
    )


def test_problems_are_told() -> None:
    wanted: list[list[str]] = []
    for sample in SAMPLES:
        problem = lmos.problem_of(sample)
        name = "any other" if isinstance(sample, ValueError) else f"`{type(sample).__name__}`"
        title = "Thing, Property, Action or Event Not Found" if problem.status == 404 else problem.title
        started = {None: "", True: "true", False: "false"}[problem.started]
        started = "its `started`" if isinstance(sample, AgentDied) else started
        status = f"{problem.status}, or as the failure declares" * isinstance(sample, ActionFailed)
        wanted.append([name, shown_type(problem), status or str(problem.status), title, started])
    assert table_of("exception") == wanted


def test_no_exception_with_a_problem_of_its_own_is_left_out() -> None:
    assert [cls for cls, _ in _problems._DESCRIBE] == [type(sample) for sample in SAMPLES[:-1]]


def test_what_a_foreign_problem_becomes_is_told() -> None:
    told = {status: code(text) for status, text in table_of("status")}
    statuses = ["400", "401", "403", "404", "405", "409", "500", "503"]
    assert list(told) == [*statuses, "another"]
    problem = lmos.Problem(type="about:blank", title="", status=418, detail="")
    asked = [
        lmos.InvokeAction(thing_id="a", message_id="m", action="x"),
        lmos.ReadProperty(thing_id="a", message_id="m", name="x"),
    ]
    for status in [*statuses, "another"]:
        message = lmos.error_message(problem, thing_id="a", message_id="m", instance_id="i")
        message = msgspec.structs.replace(message, status="418" if status == "another" else status)
        made = [type(lmos.error_of(message, request)).__name__ for request in asked]
        assert list(dict.fromkeys(made)) == told[status]


# --- the scenario format

HEADINGS = {
    "File": "Both kinds of file",
    "Scenario": "A scenario",
    "Simulation": "A simulation",
    "SeedRange": "Range of seeds",
    "SweepRange": "Range of numbers",
    "StopAt": "Stop",
    "StartOver": "Start",
    "ExpectedError": "Error",
    "NeverWhen": "When",
    "When": "When a rule fits",
    "Below": "Bound",
    "CountBounds": "Count bounds",
    "CalledTool": "Called tool",
    "Chunk": "Parts of a reply",
    "Progressed": "Parts of a reply",
    "Waited": "Parts of a reply",
    "Called": "Parts of a reply",
    "Reasoned": "Parts of a reply",
    "ToolCall": "Call of a tool",
    "Done": "Parts of a reply",
    "TellAt": "do: tell in a timeline",
    "InvokeAt": "do: invoke in a timeline",
    "WriteAt": "do: write in a timeline",
    "ApproveAt": "do: approve in a timeline",
    "RefuseAt": "do: refuse in a timeline",
    "FaultAt": "do: fault in a timeline",
    "Supervised": "Agents",
    "Faulty": "Faults",
    "Timed": "Timeline",
}
SHARED = {
    _model.File: set(_model.File.__struct_encode_fields__),
    _model_agents.Supervised: set(_model_agents.Supervised.__struct_encode_fields__),
    _model_agents.Supervisor: set(_model_agents.Supervising.__struct_encode_fields__),
    _model_steps.Step: {"do", "id", "within"},
    _model_steps.Asking: {"as", "target", "error"},
    _model_faults.Faulty: {"target", "pick"},
    _model_steps.Timed: {"do", "at", "id"},
    _model_checks.Check: {"check", "name"},
}
BASES = (
    _model_base.Closed,
    _model_agents.Supervising,
    _model_checks.Bounded,
    _model_checks.Formula,
    _model_checks.Check,
    _model_steps.Step,
    _model_faults.OnLinks,
    _model_steps.Asking,
    _model_steps.TimedAsking,
    _model_steps.Deciding,
    _model_steps.DecidingAt,
)
"""Structs that no file has by themselves; others that share keys have a section of their own."""

STRUCTS = {
    thing.__name__: thing
    for module in (_model_base, _model_agents, _model_faults, _model_steps, _model_checks, _model)
    for thing in vars(module).values()
    if isinstance(thing, type) and issubclass(thing, _model_base.Closed) and thing not in BASES
}


def heading_of(struct: type[_model_base.Closed]) -> str:
    config = struct.__struct_config__
    tagged = f"{config.tag_field}: {config.tag}" if config.tag else struct.__name__
    return HEADINGS.get(struct.__name__, tagged)


def test_the_keys_of_every_struct_are_in_its_section() -> None:
    for heading in {heading_of(struct) for struct in STRUCTS.values()}:
        check_keys(heading)


def check_keys(heading: str) -> None:
    table = re.split(r"\| `(?:that` \| looks at|kind` \| (?:needs|its keys))", format_sections()[heading])[0]
    told: set[str] = set()
    for struct in (struct for struct in STRUCTS.values() if heading_of(struct) == heading):
        shared = {key for base, keys in SHARED.items() if issubclass(struct, base) for key in keys}
        if struct in SHARED and struct is not _model_agents.Supervisor:
            shared = set()
        if struct is _model_steps.Expect:  # a step, though no `Step`
            shared = SHARED[_model_steps.Step]
        told |= set(struct.__struct_encode_fields__) - shared
    # the key that tells structs apart stands where all of them have it
    assert set(rows(table)) - {"lmos", "from", "do"} == told - {"from", "do"}, heading


@cache
def format_sections() -> dict[str, str]:
    text = (REFERENCE / "scenario-format.md").read_text(encoding="utf-8")
    parts = re.split(r"^##+ +(.*)$", text, flags=re.MULTILINE)
    return dict(zip((heading.replace("`", "") for heading in parts[1::2]), parts[2::2], strict=True))


def test_what_all_steps_and_checks_share_is_said() -> None:
    both = SHARED[_model_steps.Step] | SHARED[_model_steps.Asking]
    assert set(rows(format_sections()["Steps"])) == both
    assert SHARED[_model_checks.Check] <= words(format_sections()["Checks"])


def test_the_kinds_of_topology_and_the_names_of_formulas_are_told() -> None:
    needs = format_sections()["Topology"].partition("| `kind` | needs |")[2]
    for kind, keys in _model_agents.TOPOLOGY_KEYS.items():
        (row,) = [
            line for line in needs.splitlines() if line.startswith("|") and f"`{kind}`" in line.split("|")[1]
        ]
        assert keys <= words(row), kind
    assert {f"mailbox.{name}" for name in _names.COUNTERS} <= {
        word if word.startswith("mailbox") else f"mailbox{word}"
        for word in code(format_sections()["Formulas"])
    }
    assert set(_formula_text.FUNCTIONS) <= words(format_sections()["Formulas"])


def test_the_defaults_of_a_file_are_true() -> None:
    said = {key: default.strip("`") for key, default in rows(format_sections()["Agents"]).items()}
    fields = {field.encode_name: field.default for field in msgspec.structs.fields(_model_agents.AgentEntry)}
    plain = {key: str(fields[key]) for key in ("restart", "shutdown")}
    assert {key: said[key] for key in plain} == plain
    assert rows(format_sections()["A scenario"])["timeout"].strip("`") == str(
        next(f.default for f in msgspec.structs.fields(_model.Scenario) if f.name == "timeout")
    )


DEPLOYED = {
    "The file": _model_deployment.Deployment,
    **{
        name: getattr(_model_deployment, name)
        for name in ("Group", "Drain", "Limits", "Update", "Omnia", "Launcher")
    },
    "Page": _model_deployment.LauncherPage,
}
"""The structs of deployment files, by the headings of their sections."""


def test_every_struct_of_a_deployment_has_its_section() -> None:
    own = {
        thing
        for thing in vars(_model_deployment).values()
        if isinstance(thing, type) and thing.__module__ == _model_deployment.__name__
    }
    assert own == set(DEPLOYED.values())


@pytest.mark.parametrize("heading", DEPLOYED)
def test_the_keys_of_a_deployment_have_true_defaults(heading: str) -> None:
    said = rows(deployment_sections()[heading])
    fields = {field.encode_name: field for field in msgspec.structs.fields(DEPLOYED[heading])}
    assert set(said) - {"lmos"} == set(fields)
    for key, field in fields.items():
        if field.required:
            assert said[key] == "", key
        elif key not in ("tree", "cwd"):  # whose rows say in words what is so without them
            assert said[key] in shown_defaults(field), key


def shown_defaults(field: msgspec.structs.FieldInfo) -> set[str]:
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    match default:
        case bool():
            return {f"`{str(default).lower()}`"}
        case None | msgspec.UNSET | "":
            return {"none"}
        case dict() | tuple():
            return {"none", "`{}`" if isinstance(default, dict) else "`[]`"}
        case msgspec.Struct():
            return {"`{}`"}
        case _:
            return {f"`{default}`"}


@cache
def deployment_sections() -> dict[str, str]:
    text = (REFERENCE / "deployment-format.md").read_text(encoding="utf-8")
    parts = re.split(r"^##+ +(.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# --- the command line


def test_commands_and_exit_codes_are_listed() -> None:
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    assert {part for verb in cli.VERBS for part in verb.split("-")} <= words(text)
    table = text.partition("## Exit codes")[2]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    assert {code for row in rows for code in row.split(", ")} == {str(number) for number in PRECEDENCE}


@pytest.mark.parametrize("verb", cli.VERBS)
def test_the_options_of_a_command_are_listed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert options
    assert options <= set(
        re.findall(r"--[a-z-]+", (REFERENCE / "command-line.md").read_text(encoding="utf-8"))
    )


# --- the conformance kit


def test_the_names_of_the_kit_are_told() -> None:
    text = (REFERENCE / "conformance.md").read_text(encoding="utf-8")
    assert set(names_in(conformance)) <= words(text.partition("## Python")[2])


def test_the_options_of_the_kit_are_told() -> None:
    text = (REFERENCE / "conformance.md").read_text(encoding="utf-8")
    told = words(rows(text.partition("## Python")[2])["ConformOptions"])
    assert told >= {field.name for field in attrs.fields(conformance.ConformOptions)}
    keys = {field.name for field in attrs.fields(conformance.Hints)} - {"document"}
    assert set(rows(text.partition("## Hints\n")[2].partition("\n## ")[0])) == keys
    facades = text.partition("## Hints about a facade\n")[2].partition("\n## ")[0]
    assert set(rows(facades)) == set(conformance.ChatHints.__struct_fields__)


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
