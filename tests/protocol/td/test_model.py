"""Descriptions as values: what is read, what is kept, what is refused and where."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.protocol import td

from .samples import BROKEN, READABLE, data_of, good, text_of


@pytest.mark.parametrize("name", READABLE)
def test_nothing_is_lost(name: str) -> None:
    data = data_of(name)
    read = td.load(text_of(name))
    assert td.dump(read) == data
    assert td.load(data) == td.load(text_of(name).encode()) == read
    assert td.load(td.dump_text(read)) == read


def test_all_fields_are_read() -> None:
    """Nothing that has a field stays in `extra`, anywhere."""
    read = td.load(good())
    assert read.extra == {}
    assert read.is_agent
    assert not read.is_tool
    assert read.has_offer("streams")
    assert not read.has_offer("acks")
    assert read.metadata == td.Metadata(
        vendor=td.Vendor(name="Example", url="https://example.com"),
        model=td.ModelInfo(name="gpt-x", provider="Example"),
    )
    mood = (read.properties or {})["mood"]
    assert mood.schema == {"type": "string", "enum": ["good", "bad"], "default": "good"}
    assert (mood.observable, mood.read_only, mood.extra) == (True, None, {})
    (form,) = mood.forms or ()
    assert (form.ops, form.subprotocol, form.security) == (
        ("readproperty", "observeproperty"), "lmosprotocol", ("basic",),
    )  # fmt: skip
    find = (read.actions or {})["find"]
    assert find.streams == td.Streams(output=td.Stream(content_type="audio/opus"))
    assert (find.forms or ())[0].op == "invokeaction"
    assert (read.security_definitions or {})["key"].location == "query"


def test_unknown_members_are_kept_everywhere() -> None:
    data = good()
    for holder in (
        data, data["lmos:metadata"], data["lmos:metadata"]["lmos:vendor"], data["links"][0],
        data["securityDefinitions"]["key"], data["properties"]["mood"],
        data["properties"]["mood"]["forms"][0], data["actions"]["find"],
        data["actions"]["find"]["lmosx:streams"], data["events"]["closed"],
    ):  # fmt: skip
        holder["my:own"] = {"a": [1, None]}
    assert td.dump(td.load(data)) == data
    assert td.load(data).extra == {"my:own": {"a": [1, None]}}


@pytest.mark.parametrize(
    "member", ["lmos:metadata", "lmosx:offers", "actions/find/lmosx:streams", "actions/find/lmosx:progress"]
)
@pytest.mark.parametrize("value", [5, "x", [1], {"input": 5, "lmos:vendor": 1}])
def test_members_of_lmos_of_the_wrong_kind_are_kept_aside(member: str, value: Any) -> None:
    data = good()
    *parents, last = member.split("/")
    at: Any = data
    for part in parents:
        at = at[part]
    at[last] = value
    assert td.dump(td.load(data)) == data


def test_null_is_absent_and_kept() -> None:
    data = {"@context": None, "title": None, "properties": {"p": {"readOnly": None, "forms": None}}}
    read = td.load(data)
    assert (read.context, read.title) == (None, None)
    assert (read.properties or {})["p"].read_only is None
    assert td.dump(read) == data


def test_the_order_of_a_dump_is_that_of_the_fields() -> None:
    turned = dict(reversed(good().items()))
    assert list(td.dump(td.load(turned))) == list(td.dump(td.load(good())))
    assert td.dump_text(td.load(turned)).startswith('{\n  "@context"')
    assert "\n" not in td.dump_text(td.load(good()), indent=None)
    assert td.dump_text(td.load(good()), indent=None) == td.dump_text(td.load(good()), indent=None)


def test_a_dump_and_a_description_share_nothing() -> None:
    data = good()
    read = td.load(data)
    data["properties"]["mood"]["enum"].append("other")
    td.dump(read)["properties"]["mood"]["enum"].clear()
    assert td.dump(read) == good()


def test_fields_win_over_what_was_put_aside() -> None:
    read = attrs.evolve(td.load({"title": None, "x": 1}), title="Clerk")
    assert td.dump(read) == {"title": "Clerk", "x": 1}


def test_a_description_of_ours() -> None:
    made = td.Description(type=td.AGENT_TYPE, title="Clerk")
    assert td.dump(made) == {
        "@context": [
            td.OLD_TD_CONTEXT_URI,
            td.TD_CONTEXT_URI,
            {"lmos": td.LMOS_CONTEXT_URI, "lmosx": td.EXTENSIONS_URI},
        ],
        "@type": "lmos:Agent",
        "title": "Clerk",
    }
    assert td.load({"title": "Clerk"}).context is None
    assert td.Description().context is not td.Description().context


@pytest.mark.parametrize(
    ("type", "kind"),
    [("Agent", "agent"), (["x", "lmos:Tool"], "tool"), ("Tool", "tool"), ("Thing", ""), (None, "")],
)
def test_agents_and_tools(type: Any, kind: str) -> None:
    read = td.load({"@type": type})
    assert (read.is_agent, read.is_tool) == (kind == "agent", kind == "tool")


def nested(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(depth - 1):
        data = {"a": data}
    return data


REFUSED = [
    ("", "", "not JSON"),
    ("[]", "", "an object, this is an array"),
    ("nul", "", "not JSON"),
    ('{"a": 1,\n  "b" 2}', "", "line 2, column 7"),
    ('{"a": NaN}', "", "not JSON"),
    ('{"a": 1e999}', "", "not JSON"),
    (b'{"a": "\xff"}', "", "not"),
    ('{"a": "\\ud800"}', "", "not JSON"),
    ('{"a": "\ud800"}', "", "not"),
    ("[" * 100_000, "", "nested deeper than 64"),
    ('{"a": ' + "9" * 1001 + "}", "/a", "more than 1000 digits"),
    (" " * td.MAX_BYTES + "{}", "", f"longer than {td.MAX_BYTES} bytes"),
    ({"a": float("nan")}, "/a", "not a finite number"),
    ({"a": 10**1001}, "/a", "more than 1000 digits"),
    ({"a": object()}, "/a", "object is not plain data"),
    ({"a": {1, 2}}, "/a", "set is not plain data"),
    ({"a": {3: 4}}, "/a", "the key 3 is not a text"),
    ({"a": "\udc00"}, "/a", "surrogate"),
    ({"\udc00": 1}, "", "surrogate"),
    (nested(65), "/a" * 64, "nested deeper than 64"),
    ({"a": [[0] * 1000] * 101}, "/a/99/898", "more than 100000 values"),
    ({"title": 5}, "/title", "must be a text, is a number"),
    ({"@type": [1]}, "/@type/0", "must be a text"),
    ({"properties": []}, "/properties", "must be an object, is an array"),
    ({"properties": {"a/b~": {"forms": {}}}}, "/properties/a~1b~0/forms", "must be an array"),
    ({"properties": {"p": {"readOnly": 0}}}, "/properties/p/readOnly", "must be true or false, is a number"),
    ({"actions": {"a": {"forms": [{"op": "x"}]}}}, "/actions/a/forms/0", "'href' is missing"),
    ({"actions": {"a": {"forms": [{"href": "x", "op": 5}]}}}, "/actions/a/forms/0/op", "text or an array"),
    ({"events": {"e": 5}}, "/events/e", "must be an object"),
    ({"securityDefinitions": {"x": {}}}, "/securityDefinitions/x", "'scheme' is missing"),
    ({"links": [{"rel": "x"}]}, "/links/0", "'href' is missing"),
]


@pytest.mark.parametrize(("data", "path", "what"), REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_description_is_refused_with_its_place(data: Any, path: str, what: str) -> None:
    with pytest.raises(td.DescriptionError) as caught:
        td.load(data)
    assert (caught.value.path[:128], what in caught.value.message) == (path, True), caught.value
    assert isinstance(caught.value, ConfigError)
    assert td.pointer(caught.value.place) == caught.value.path
    assert caught.value.__cause__ is None
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("text", ['\ufeff{"title": "a"}', b'\xef\xbb\xbf{"title": "a"}'])
def test_a_byte_order_mark_is_passed_over(text: str | bytes) -> None:
    assert td.load(text).title == "a"


def test_what_is_just_within_the_limits_is_read() -> None:
    assert td.dump(td.load(nested(64))) == nested(64)
    assert td.load({"a": int("9" * 1000)}).extra == {"a": int("9" * 1000)}
    assert td.load(" " * (td.MAX_BYTES - 2) + "{}") == td.load({})
    with pytest.raises(td.DescriptionError, match="longer than 3 bytes"):
        td.load("{  }", max_bytes=3)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_examples_are_refused(name: str) -> None:
    with pytest.raises(td.DescriptionError, match="trailing comma"):
        td.load(text_of(name))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text(max_size=5)
FORMS = st.lists(
    st.fixed_dictionaries(
        {"href": TEXTS},
        optional={"op": TEXTS | st.lists(TEXTS), "contentType": TEXTS, "security": TEXTS | st.lists(TEXTS)},
    ),
    max_size=2,
)
AFFORDANCE = {"title": TEXTS, "@type": TEXTS | st.lists(TEXTS), "forms": FORMS, "x:y": PLAIN}
DESCRIPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "@context": PLAIN,
        "@type": TEXTS | st.lists(TEXTS),
        "title": TEXTS | st.none(),
        "properties": st.dictionaries(
            TEXTS,
            st.fixed_dictionaries({}, optional={**AFFORDANCE, "type": PLAIN, "readOnly": st.booleans()}),
        ),
        "actions": st.dictionaries(TEXTS, st.fixed_dictionaries({}, optional=AFFORDANCE)),
        "lmos:metadata": PLAIN,
        "lmosx:offers": PLAIN,
        "x:more": PLAIN,
    },
)


@given(DESCRIPTIONS)
def test_whatever_is_read_comes_out_again(data: dict[str, Any]) -> None:
    before = copy.deepcopy(data)
    read = td.load(data)
    assert td.dump(read) == data == before
    assert td.load(json.dumps(data)) == read


@given(PLAIN | st.text() | st.binary())
def test_anything_is_read_or_refused(data: Any) -> None:
    with contextlib.suppress(td.DescriptionError):
        assert isinstance(td.load(data), td.Description)
