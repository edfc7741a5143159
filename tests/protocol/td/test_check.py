"""What is wrong with a description is said: where, what, how to mend it, and whether it is an error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol import td
from tests.source import ROOT

from .samples import BROKEN, READABLE, data_of, good, spoil, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOM = ROOT / "lmos_actors" / "protocol" / "td"
FORM = "properties/mood/forms/0"
AN_OP = {"href": "https://a.example/x"}


def test_the_good_one_is_good() -> None:
    assert td.check(good(), strict=True) == ()
    assert td.check(json.dumps(good())) == td.check(td.load(good())) == ()


# path to spoil | value | where it is said, "=" there | error, tolerated or warning | what | fix
SPOILT: list[tuple[str, Any, str, str, str, str]] = [
    # the shape, by the schema
    ("title", ..., "", "error", "title is missing", 'add "title"'),
    ("title", 5, "=", "error", "title must be a text, is a number", "a text instead of 5"),
    ("title", None, "=", "tolerated", "title is null", 'write "title"'),
    ("id", None, "=", "tolerated", "id is null", "leave it out"),
    ("security", None, "=", "tolerated", "security is null", 'write "security"'),
    ("version", {"instance": None}, "/version/instance", "tolerated", "null", 'write "instance"'),
    ("properties/mood/forms", None, "=", "tolerated", "forms is null", 'write "forms"'),
    ("forms", None, "=", "tolerated", "forms is null", "leave it out"),
    (f"{FORM}/op", None, "=", "tolerated", "op is null", "leave it out"),
    ("forms/0/op", None, "=", "tolerated", "op is null", 'write "op": "readallproperties"'),
    (f"{FORM}/href", None, "=", "error", "href is null", 'write "href"'),
    ("links/0/href", None, "=", "error", "href is null", 'write "href"'),
    ("securityDefinitions/basic/scheme", None, "=", "error", "scheme is null", 'write "scheme"'),
    ("properties/mood", None, "=", "error", "mood is null", "leave it out"),
    (f"{FORM}/op", ["readproperty", None], f"/{FORM}/op/1", "error", "entry 1 is null", "leave it out"),
    ("properties/mood/default", None, "=", "tolerated", "default is null", "leave it out"),
    ("security", ..., "", "tolerated", "security is missing", 'add "security": "basic"'),
    ("security", [], "=", "error", "security is empty", "nosec_sc"),
    (f"{FORM}/security", [], "=", "error", "security is empty", "leave it out"),
    ("securityDefinitions/either/oneOf", ["basic"], "=", "error", "has only 1, it needs 2", "add"),
    (f"{FORM}/op", [], "=", "error", "op is empty", '"readproperty", or another operation, or leave it out'),
    ("events/closed/forms/0/op", [], "=", "error", "op is empty", '"subscribeevent"'),
    ("@context", [], "=", "tolerated", "@context is empty", "https://www.w3.org/2022/wot/td/v1.1"),
    ("properties/load/properties", [], "=", "error", "must be an object, is an array", "an object"),
    ("security", 5, "=", "error", "security must be a text or an array", "write"),
    ("securityDefinitions", {}, "=", "error", "securityDefinitions is empty", "nosec"),
    (
        "securityDefinitions/basic/scheme", "basik", "/securityDefinitions/basic", "error",
        "unknown security scheme \"basik\", did you mean 'basic'?", "nosec, auto, combo",
    ),
    ("securityDefinitions/basic/scheme", ..., "/securityDefinitions/basic", "error", "scheme", "nosec"),
    ("securityDefinitions/basic/in", "head", "=", "error", 'cannot be "head"', "cookie"),
    ("securityDefinitions/either/oneOf", ..., "/securityDefinitions/either", "error",
     "combines nothing", "allOf"),
    ("securityDefinitions/basic", 7, "=", "error", "must be an object", "an object"),
    ("@context", ..., "=", "tolerated", "@context is missing", "https://www.w3.org/2022/wot/td/v1.1"),
    ("@context/0", "https://eclipse.dev/lmos/protocol/v1", "/@context", "tolerated",
     "does not begin with that of TD 1.1", "write"),
    ("@context/1", {"lmos": 5, "lmosx": "urn:lmos-actors:v1#"}, "/@context", "tolerated", "neither", "write"),
    ("@type", "tm:ThingModel", "=", "error", "a Thing Model", "leave tm:ThingModel out"),
    ("id", "clerk", "=", "tolerated", 'id "clerk" is not a URI', "urn:uuid"),
    ("created", "yesterday", "=", "error", "not a date and time", "RFC 3339"),
    ("version", {}, "=", "error", "instance is missing", '"1.0.0"'),
    ("properties", [], "=", "error", "properties must be an object, is an array", "an object"),
    ("properties/mood/forms", ..., "/properties/mood", "error", "forms is missing", '"href"'),
    ("properties/mood/forms", [], "=", "error", "forms is empty", '"href"'),
    (f"{FORM}/href", ..., f"/{FORM}", "error", "href is missing", "the address"),
    (
        f"{FORM}/op", ["readproperty", "observeproprty"], f"/{FORM}/op/1", "error",
        "\"observeproprty\" is not an operation of a property, did you mean 'observeproperty'?",
        "writeproperty",
    ),
    ("actions/find/forms/0/op", "readproperty", "=", "error", "of an action", "invokeaction"),
    ("events/closed/forms/0/op/0", "invokeaction", "=", "error", "of an event", "subscr"),
    ("forms/0/op", "readproperty", "=", "error", "of the whole thing", "readallproperties"),
    ("forms/0/op", ..., "/forms/0", "error", "op is missing", "readallproperties"),
    ("forms", [], "=", "error", "forms is empty", "leave it out"),
    ("properties/mood/type", "text", "=", "error", 'type cannot be "text"', '"string"'),
    ("properties/mood/type", ["string", "null"], "=", "error", "type must be a text", "oneOf"),
    ("properties/mood/enum", [], "=", "error", "enum is empty", "an entry"),
    ("properties/mood/enum", ["good", "good"], "=", "error", "same value twice", "leave one"),
    ("actions/find/input/minItems", -1, "=", "error", "at least 0", "at least 0"),
    ("actions/find/input/items", {"type": "in"}, "/actions/find/input/items/type", "error",
     'be "in"', "integer"),
    ("actions/find/input/items", 3, "=", "error", "an object or an array", "write"),
    ("actions/find/safe", "yes", "=", "error", "true or false, is a text", "true or false"),
    ("properties/load/multipleOf", 0, "=", "error", "more than 0", "more than 0"),
    ("links/0/href", ..., "/links/0", "error", "href is missing", "the address"),
    ("links/0/sizes", "small", "=", "error", 'sizes cannot be "small"', "16x16"),
    ("links/0/rel", "help", "/links/0", "error", "sizes", "leave sizes out"),
    ("links/0/hreflang", "no language", "=", "error", "hreflang", "de-AT"),
    # what the schema cannot say: names
    ("security", "basci", "=", "error", "no 'basci', did you mean 'basic'?", "basic, key, either"),
    ("security", ["basic", "x"], "/security/1", "error", "no 'x'", "define it there"),
    (f"{FORM}/security", "none", "=", "error", "no 'none'", "define it"),
    ("securityDefinitions/either/oneOf/0", "gone", "=", "error", "'gone'", "def"),
    ("securityDefinitions/either/oneOf/0", "either", "=", "error", "itself", "another"),
    (
        "actions/find/forms/0/additionalResponses/0/schema", "problm",
        "/actions/find/forms/0/additionalResponses/0/schema", "error", "did you mean 'problem'?", "define it",
    ),
    ("action", {}, "=", "warning", "no member 'action' here, did you mean 'actions'?", "prefix"),
    ("properties/mood/readonly", True, "=", "warning", "'readOnly'", "correct"),
    (f"{FORM}/contenttype", "x", "=", "warning", "'contentType'", "correct"),
    # forms
    (f"{FORM}/href", "wss://clerk.example/a b", "=", "error", "not a URI", "percent-encode"),
    ("base", ..., "/properties/load/forms/0/href", "error",
     '"load" is relative, and there is no base', '"base"'),
    ("base", "clerk", "=", "error", "not an absolute URI", "https://"),
    ("actions/find/forms/0/href", "find{?limt}", "=", "error", "mean 'limit'?", "uriVar"),
    ("actions/find/forms/0/href", "find{?limit", "=", "error", "brace", "RFC 6570"),
    ("actions/find/forms/0/href", "find{?li mit}", "=", "error", "expression", "RFC 6570"),
    ("actions/find/forms/0/href", "find", "/actions/find/uriVariables/limit", "warning",
     "no href uses", "{?limit}"),
    ("actions/find/uriVariables/limit", {"type": "array"}, "/actions/find/uriVariables/limit/type", "error",
     "cannot be an array", "string"),
    ("uriVariables", {"who": {"type": "object"}}, "/uriVariables/who/type", "error",
     "cannot be an object", "string"),
    (f"{FORM}/href", "coap://clerk.example/ws", f"/{FORM}/subprotocol", "warning",
     "not go over coap:", "ws or wss"),
    ("events/closed/forms/0/href", "ws://a/b", "/events/closed/forms/0/subprotocol", "warning",
     "'sse'", "http"),
    (f"{FORM}/subprotocol", ..., f"/{FORM}", "warning", "without a subprotocol", "lmosprotocol"),
    ("properties/load/forms", [{"href": "load"}, {"href": "./load"}], "/properties/load/forms/1", "warning",
     "the same as form 0", "leave one out"),
    ("properties/mood/readOnly", True, "", "", "", ""),
    (f"{FORM}/op", ["writeproperty", "observeproperty"], "", "", "", ""),
    ("properties/load/forms/0/op", "writeproperty", "=", "error", "that is readOnly", "out"),
    ("properties/mood/writeOnly", True, f"/{FORM}/op/0", "error", "that is writeOnly", "leave"),
    ("properties/mood/observable", False, f"/{FORM}/op/1", "warning",
     "a property that is not observable", '"observable"'),
    (f"{FORM}/op", ["readproperty"], "/properties/mood/observable", "warning",
     "no form observes it", "observeprop"),
    ("properties/load/writeOnly", True, "=", "error", "at once", "leave one out"),
    # data schemas
    ("properties/load/required", ["cpus"], "/properties/load/required/0", "warning",
     "did you mean 'cpu'?", "describe"),
    ("properties/load/properties/cpu/minimum", 2, "/properties/load/properties/cpu/maximum", "error",
     "no value", "ch"),
    ("properties/load/properties/cpu", {"minimum": 1, "exclusiveMaximum": 1},
     "/properties/load/properties/cpu/exclusiveMaximum", "error", "no value fits", "change"),
    ("properties/load/properties/cpu", {"enum": [1], "default": True},
     "/properties/load/properties/cpu/default", "warning", "is not in enum", "add it there"),
    ("actions/find/input/minItems", 4, "/actions/find/input/maxItems", "error",
     "minItems 4, maxItems 3", "change"),
    ("properties/mood/enum", ["good", 5], "/properties/mood/enum/1", "warning",
     "5 is not of type string", "leave"),
    ("properties/mood/default", "worse", "=", "warning", "is not in enum", "add it there"),
    ("properties/mood/default", True, "=", "warning", "not of type string", "change"),
    ("actions/find/input/items/const", 1.5, "=", "error", "not of type", "change"),
    ("properties/mood/minimum", 1, "=", "warning", "no effect on type string", "number"),
    ("events/closed/data", {"type": "array", "items": [{"minimum": 2, "maximum": 1}]},
     "/events/closed/data/items/0/maximum", "error", "no value fits", "change"),
    ("actions/find/output/oneOf/0", {"minLength": 2, "maxLength": 1},
     "/actions/find/output/oneOf/0/maxLength",
     "error", "no value fits", "change"),
    # LMOS
    ("@context/1", {"lmosx": "urn:lmos-actors:v1#"}, "/@type", "tolerated", "lmos: is used", "to @context"),
    ("@context/1/lmos", "urn:other", "/@type", "tolerated", "lmos: is used", "to @context"),
    ("@context/1/lmosx", ..., "/lmosx:offers", "tolerated", "lmosx: is used", "urn:lmos-actors:v1#"),
    ("@type", "Agent", "=", "tolerated", "'Agent' is a term of LMOS", '"lmos:Agent"'),
    ("@type", "Thing", "=", "warning", "neither an agent nor a tool", "lmos:Tool"),
    ("@type", ["lmos:Agent", "lmos:Tool"], "=", "warning", "an agent and a tool", "leave one out"),
    ("@type", "lmos:Tool", "/actions/find/lmosx:streams", "warning", "a tool has no streams", "agent"),
    ("lmos:metadata", "x", "=", "tolerated", "must be an object, is a text", "ignored"),
    ("lmos:metadata/vendor", {}, "=", "warning", "no prefix", '"lmos:vendor"'),
    ("lmos:metadata/lmos:vendor", "x", "=", "tolerated", "must be an object", "write"),
    ("lmos:metadata/lmos:model/lmos:name", 5, "=", "tolerated", "a text", "wri"),
    ("lmos:metadata/lmos:vendor/lmos:url", "x", "=", "warning", "not a URL", "https"),
    ("lmosx:offers", ["stream"], "/lmosx:offers/0", "warning", "did you mean 'streams'?", "acks, gaps"),
    ("lmosx:offers", "acks", "=", "tolerated", "must be an array", "ignored"),
    ("actions/find/lmosx:streams", {"output": {}}, "/actions/find/lmosx:streams/output", "error",
     "'contentType' is missing", "contentType"),
    ("actions/find/lmosx:streams/output/schema", {"minimum": 2, "maximum": 1},
     "/actions/find/lmosx:streams/output/schema/maximum", "error", "no value fits", "change"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "where", "level", "what", "fix"), SPOILT)
def test_each_mistake_has_a_finding_and_few_others(
    path: str, value: Any, where: str, level: str, what: str, fix: str
) -> None:
    data, where = spoil(path, value), f"/{path}" if where == "=" else where
    lenient, strict = td.check(data), td.check(data, strict=True)
    assert [(f.place, f.message, f.fix) for f in lenient] != [] or level == ""
    assert {(f.place, f.message) for f in lenient} == {(f.place, f.message) for f in strict}
    if level:
        for findings, severity in ((lenient, "error"), (strict, "error")):
            (found,) = [f for f in findings if f.path == where and what in f.message]
            wanted = (
                "warning"
                if level == "warning" or (level == "tolerated" and findings is lenient)
                else severity
            )
            assert (found.severity, found.tolerated) == (wanted, level == "tolerated")
            assert fix in found.fix
        assert len(lenient) <= 4  # not one for every alternative of the schema that does not fit
    check_advice(data, strict)


def without(data: Any, place: td.Place) -> Any:
    """A copy with the part at a place taken out."""
    data = json.loads(json.dumps(data))
    at = data
    for part in place[:-1]:
        at = at[part]
    del at[place[-1]]
    return data


def check_advice(data: Any, found: Sequence[td.Finding]) -> None:
    """Assert that to follow the advice to leave a member out makes no new mistake."""
    known = {each.message.partition(", did")[0] for each in found}
    for each in found:
        if each.fix.endswith("leave it out"):
            again = td.check(without(data, each.place), strict=True)
            new = [more for more in again if more.message.partition(", did")[0] not in known]
            assert [str(more) for more in new if more.severity == "error"] == []
            assert (each.place, each.message) not in [(more.place, more.message) for more in again]


def test_two_faults_at_one_place_give_one_finding() -> None:
    data = spoil("properties/mood/type", ["string", "null"])
    assert [each.path for each in td.check(data)] == ["/properties/mood/type"]


@pytest.mark.parametrize("name", READABLE)
def test_what_others_write_passes_when_lenient(name: str) -> None:
    assert [str(each) for each in td.check(text_of(name)) if each.severity == "error"] == []


STRICT = {
    "kotlin-wot-bare-tool.json": ["", "", "/@context", "/id"],
    "kotlin-wot-chat.json": ["", "", "/id", "/properties/lastAnswered/description"],
    "node-wot-counter.json": [],
    "spec-002-full.repaired.json": [],
    "spec-002-minimal.repaired.json": ["", ""],
    "tool-full.json": [],
    "tool-minimal.repaired.json": ["", ""],
}


@pytest.mark.parametrize("name", READABLE)
def test_what_others_write_when_strict(name: str) -> None:
    assert [each.path for each in td.check(text_of(name), strict=True)] == STRICT[name]


@pytest.mark.parametrize("name", BROKEN)
def test_the_printed_examples_are_no_json(name: str) -> None:
    (found,) = td.check(text_of(name))
    assert "trailing comma in object, at line 6, column 1" in found.message


def test_the_fixtures_are_the_printed_examples() -> None:
    """They hold the very mistakes that the specification has, and mending the commas mends them."""
    for broken in BROKEN:
        text = text_of(broken)
        mended = text.replace('protocol/v1",\n', 'protocol/v1"\n').replace('}\n"sec', '},\n"sec')
        mended = mended.replace('"lmos:Tool"\n', '"lmos:Tool",\n')
        assert json.loads(mended) == data_of(broken.replace("broken", "repaired"))


def test_hints_are_bounded() -> None:
    """Comparing words takes long: what a hostile description makes us compare has a limit."""
    data = good()
    data["securityDefinitions"] = {f"name{n:04}": {"scheme": "nosec"} for n in range(200)}
    data["security"] = ["nam0001", "nam0199", "x" * 100]
    hints = [each.message.partition(", did")[2] for each in td.check(data) if each.place[0] == "security"]
    assert [bool(each) for each in hints] == [True, True, False]
    assert "name0199" not in "".join(hints)


def test_findings_are_bounded() -> None:
    """Whoever writes 1000 mistakes does not make us read, or work, for ever; and none is forgiven for it."""
    found = td.check({**good(), **{f"propertie{n:05}": 1 for n in range(1000)}})
    assert {each.severity for each in found} == {"warning"}
    (found, *more) = td.check({**good(), **{f"propertie{n:05}": 1 for n in range(1001)}})
    assert (found.message, found.severity, len(more)) == ("more than 1000 findings", "error", 1000)
    schemes = {f"d{n}": {"scheme": "bazic"} for n in range(1001)}
    (found,) = td.check({**good(), "securityDefinitions": schemes})
    assert (found.path, found.severity) == ("/securityDefinitions", "error")


def test_lists_of_names_are_shortened() -> None:
    schemes = {f"name{n}": {"scheme": "nosec"} for n in range(20)}
    fixes = [
        each.fix for each in td.check({**good(), "securityDefinitions": schemes}) if "no " in each.message
    ]
    assert all(fix.endswith(", name10, name11, ...") for fix in fixes)
    assert fixes != []


@pytest.mark.parametrize(
    "made",
    [
        td.Description(title="\ud800"),
        td.Description(title=object()),  # type: ignore[arg-type]
        td.Description(extra={"x": {1}}),
        td.Description(properties={"a": td.PropertyAffordance(schema={"minimum": float("inf")})}),
    ],
)
def test_one_that_was_made_and_not_read_is_checked_as_well(made: td.Description) -> None:
    (found,) = td.check(made)
    assert (found.severity, found.fix) == ("error", "correct this first: the rest cannot be read")


@pytest.mark.parametrize("base", [5, "clerk"])
def test_a_base_that_is_none_is_one_mistake_and_not_one_for_each_href(base: Any) -> None:
    assert [each.path for each in td.check(spoil("base", base))] == ["/base"]


def test_errors_come_first_and_places_in_order() -> None:
    data = spoil("title", 5)
    data["id"] = "x"
    data["actions"]["find"]["safe"] = 1
    data["links"] = [5] * 11
    found = td.check(data)
    assert [each.severity for each in found] == ["error"] * (len(found) - 1) + ["warning"]
    entries = [each.place[-1] for each in found if "links" in each.place]
    assert entries == [*range(11)]


def test_a_description_that_cannot_be_loaded_is_never_good() -> None:
    """Also where the schema is content: it does not look into what is not in TD's vocabulary."""
    (found,) = td.check(spoil("properties/mood/description", {"a": 1}))
    assert found.path == "/properties/mood/description"
    assert [each.path for each in td.check(spoil("profile", None))] == ["/profile"]
    (found,) = [each for each in td.check(spoil("properties/mood/forms/0/href", None)) if not each.tolerated]
    assert (found.severity, found.message) == ("error", "href is null")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from(["", "x", "a b", "{?x}", "lmos:"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "enum", "x"]), inner)
    ),
    max_leaves=6,
)


def places(data: Any, place: str = "") -> list[str]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [f"{place}{key}" for key, _ in inner] + [
        found for key, each in inner for found in places(each, f"{place}{key}/")
    ]


@given(st.sampled_from(places(good())), JSON)
def test_whatever_stands_anywhere_is_checked_without_an_exception(path: str, value: Any) -> None:
    data = spoil(path, value)
    findings = td.check(data)
    try:
        td.load(data)
    except td.DescriptionError:
        assert [each for each in findings if each.severity == "error"] != []


@given(st.sampled_from(places(good())), JSON)
def test_whatever_is_loaded_can_be_worked_with(path: str, value: Any) -> None:
    """Compared with another, both ways, its forms chosen and made anew: no exception but our own."""
    with contextlib.suppress(td.DescriptionError):
        read = td.load(spoil(path, value))
        ours = td.load(good())
        assert all(str(each) for each in (*td.differences(read, ours), *td.differences(ours, read)))
        for affordance in (None, *(read.properties or {}).values(), *(read.actions or {}).values()):
            td.choose(td.effective_forms(read, affordance), "readproperty")
        served = td.with_forms(read, "clerk", ["ws://h"])
        assert td.dump(td.load(td.dump_text(served))) == td.dump(served)
        assert td.differences(served, read) == ()


@given(st.text() | st.binary())
def test_any_text_is_checked_without_an_exception(text: str | bytes) -> None:
    assert td.check(text) != ()


# --- the schema of the W3C


def test_the_schema_is_the_published_one() -> None:
    raw = (ROOM / "td-json-schema-validation.json").read_bytes()
    origin = (ROOM / "td-json-schema-validation.origin.txt").read_text(encoding="utf-8")
    assert hashlib.sha256(raw).hexdigest() == origin.partition("SHA-256:")[2].split()[0]
    assert hashlib.sha256(raw).hexdigest()[:16] == "86d29ada2e3234ff"
    assert json.loads(raw)["version"] == "1.1-12-March-2025"
    assert "W3C Software and Document Notice" in (ROOM / "td-json-schema-validation.license.txt").read_text(
        "utf-8"
    )


def test_the_validator_is_imported_when_it_is_needed() -> None:
    code = "import sys, lmos_actors; print('jsonschema_rs' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert shown.stdout.strip() == "False"
