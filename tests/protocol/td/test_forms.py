"""Forms: defaults filled in, the right one chosen, and those that a node adds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from lmos_actors.protocol import td

from .samples import data_of, good

WS = {"subprotocol": "lmosprotocol"}


def load(**affordances: Any) -> td.Description:
    return td.load({"title": "x", "base": "https://h/x/", "security": "s", **affordances})


def prop(**members: Any) -> td.PropertyAffordance:
    return (load(properties={"p": members}).properties or {})["p"]


@pytest.mark.parametrize(
    ("affordance", "ops"),
    [
        (prop(), ("readproperty", "writeproperty")),
        (prop(readOnly=True), ("readproperty",)),
        (prop(writeOnly=True), ("writeproperty",)),
        (prop(readOnly=False, writeOnly=False, observable=True), ("readproperty", "writeproperty")),
        (td.ActionAffordance(), ("invokeaction",)),
        (td.EventAffordance(), ("subscribeevent", "unsubscribeevent")),
    ],
)
def test_operations_by_default(affordance: td.AnyAffordance, ops: tuple[str, ...]) -> None:
    assert td.default_ops(affordance) == ops


@pytest.mark.parametrize(
    ("affordance", "ops"),
    [
        (prop(), ("readproperty", "writeproperty")),
        (prop(readOnly=True, observable=True), ("readproperty", "observeproperty", "unobserveproperty")),
        (td.ActionAffordance(), ("invokeaction", "queryaction", "cancelaction")),
        (td.EventAffordance(), ("subscribeevent", "unsubscribeevent")),
    ],
)
def test_operations_that_a_node_serves(affordance: td.AnyAffordance, ops: tuple[str, ...]) -> None:
    assert td.served_ops(affordance) == ops


def test_a_form_with_everything_filled_in() -> None:
    description = load(
        properties={
            "p": {
                "readOnly": True,
                "forms": [
                    {"href": "p"},
                    {
                        "href": "/q{?x}",
                        "op": "observeproperty",
                        "contentType": "text/plain",
                        "security": ["t"],
                    },
                ],
            }
        },
        forms=[{"href": "all", "op": "readallproperties"}],
    )
    first, second = td.effective_forms(description, (description.properties or {})["p"])
    assert first == td.Form(
        href="https://h/x/p", op=("readproperty",), content_type="application/json", security="s"
    )
    assert second == td.Form(
        href="https://h/q{?x}", op=("observeproperty",), content_type="text/plain", security=("t",)
    )
    (whole,) = td.effective_forms(description)
    assert (whole.href, whole.ops) == ("https://h/x/all", ("readallproperties",))
    assert td.effective_forms(load()) == ()


WAYS = {
    "lmos": {"href": "ws://h/ws", **WS},
    "wss": {"href": "wss://h/ws"},
    "ws": {"href": "ws://h/other"},
    "https": {"href": "HTTPS://h/p"},
    "http": {"href": "http://h/p"},
    "sse": {"href": "https://h/p", "subprotocol": "sse"},
    "foreign": {"href": "ws://h/ws", "subprotocol": "webthingprotocol"},
    "coap": {"href": "coap://h/p"},
}


def forms(*names: str, op: str = "readproperty") -> list[td.Form]:
    made = load(properties={"p": {"forms": [{**WAYS[name], "op": op} for name in names]}})
    return list(td.effective_forms(made, (made.properties or {})["p"]))


@pytest.mark.parametrize(("better", "worse"), [*combinations(["lmos", "wss", "ws", "https", "http"], 2)])
def test_the_better_form_is_chosen_wherever_it_stands(better: str, worse: str) -> None:
    for names in ((better, worse), (worse, better)):
        chosen = td.choose(forms(*names), "readproperty")
        assert chosen == forms(better)[0]


def test_no_form_with_an_unknown_protocol_is_chosen() -> None:
    assert td.choose(forms("foreign", "coap"), "readproperty") is None
    assert td.choose(forms("lmos"), "writeproperty") is None
    assert td.choose([], "readproperty") is None
    assert td.choose(forms("lmos"), "readproperty", ["http"]) is None


def test_the_order_of_preference_can_be_given() -> None:
    given = forms("lmos", "http", "foreign", "sse")
    assert td.choose(given, "readproperty", ["http", "lmosprotocol"]) == given[1]
    assert td.choose(given, "readproperty", ["webthingprotocol"]) == given[2]
    assert td.choose(given, "readproperty", ["ws"]) is None
    assert td.choose(given, "readproperty", ["https+sse", "http"]) == given[3]


def test_among_equals_the_first_is_chosen() -> None:
    given = [*forms("lmos", op="writeproperty"), *forms("lmos", "lmos")]
    assert td.choose(given, "readproperty") is given[1]


def test_forms_of_others_can_be_chosen() -> None:
    wot = td.load(data_of("node-wot-counter.json"))
    actions = wot.actions or {}
    step = td.choose(td.effective_forms(wot, actions["increment"]), "invokeaction")
    assert step is not None
    assert td.expand(step.href, {"step": 3}) == "http://counter.example:8080/counter/actions/increment?step=3"
    reset = td.choose(td.effective_forms(wot, actions["reset"]), "invokeaction")
    assert reset is not None
    assert (td.method_of(step, "invokeaction"), td.method_of(reset, "invokeaction")) == ("POST", "POST")
    kotlin = td.load(data_of("kotlin-wot-chat.json"))
    chat = td.choose(td.effective_forms(kotlin, (kotlin.actions or {})["chat"]), "invokeaction")
    assert chat is not None
    assert (chat.href, chat.subprotocol) == ("ws://localhost:8080/ws", "lmosprotocol")


@pytest.mark.parametrize(
    ("op", "method"),
    [
        ("readproperty", "GET"),
        ("writeproperty", "PUT"),
        ("invokeaction", "POST"),
        ("readallproperties", "GET"),
        ("writemultipleproperties", "PUT"),
        ("subscribeevent", "GET"),
    ],
)
def test_methods_of_http(op: str, method: str) -> None:
    assert td.method_of(td.Form(href="x"), op) == method
    assert td.method_of(td.Form(href="x", extra={"htv:methodName": "PATCH"}), op) == "PATCH"
    assert td.method_of(td.Form(href="x", extra={"htv:methodName": 5}), op) == method


def plain(made: td.Description, kind: str, name: str) -> list[tuple[str, list[str], str | None]]:
    found = td.dump(made)[kind][name]["forms"]
    assert all(each["contentType"] == "application/json" for each in found)
    return [(each["href"], each["op"], each.get("subprotocol")) for each in found]


def test_the_forms_that_a_node_adds() -> None:
    made = td.with_forms(td.load(good()), "clerk 1", ["ws://h:80/"])
    mood = "http://h:80/agents/clerk%201/properties/mood"
    assert plain(made, "properties", "mood") == [
        (
            "ws://h:80/ws",
            ["readproperty", "writeproperty", "observeproperty", "unobserveproperty"],
            "lmosprotocol",
        ),
        (mood, ["readproperty", "writeproperty"], None),
        (f"{mood}/observable", ["observeproperty", "unobserveproperty"], "longpoll"),
        (f"{mood}/observable", ["observeproperty", "unobserveproperty"], "sse"),
    ]
    assert plain(made, "properties", "load") == [
        ("ws://h:80/ws", ["readproperty"], "lmosprotocol"),
        ("http://h:80/agents/clerk%201/properties/load", ["readproperty"], None),
    ]
    assert plain(made, "actions", "find") == [  # it has a stream
        ("ws://h:80/ws", ["invokeaction", "queryaction", "cancelaction"], "lmosprotocol"),
        ("http://h:80/agents/clerk%201/actions/find", ["invokeaction"], "sse"),
    ]
    assert plain(made, "events", "closed") == [
        ("ws://h:80/ws", ["subscribeevent", "unsubscribeevent"], "lmosprotocol"),
        ("http://h:80/agents/clerk%201/events/closed", ["subscribeevent", "unsubscribeevent"], "longpoll"),
        ("http://h:80/agents/clerk%201/events/closed", ["subscribeevent", "unsubscribeevent"], "sse"),
    ]
    all_of_it = "http://h:80/agents/clerk%201"
    assert [(each.href, each.ops) for each in made.forms or ()] == [
        (
            "ws://h:80/ws",
            (
                "readallproperties", "readmultipleproperties", "writeallproperties",
                "writemultipleproperties", "subscribeallevents", "unsubscribeallevents",
            ),
        ),
        (f"{all_of_it}/properties", ("readallproperties", "writeallproperties", "writemultipleproperties")),
        (f"{all_of_it}/properties", ("observeallproperties", "unobserveallproperties")),
        (f"{all_of_it}/events", ("subscribeallevents", "unsubscribeallevents")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("affordances", "ops"),
    [
        ({}, None),
        ({"actions": {"a": {}}}, ["queryallactions"]),
        ({"events": {"e": {}}}, ["subscribeallevents", "unsubscribeallevents"]),
        ({"properties": {"p": {"readOnly": True}}}, ["readallproperties", "readmultipleproperties"]),
        ({"properties": {"p": {"writeOnly": True}}}, ["writeallproperties", "writemultipleproperties"]),
    ],
)
def test_the_whole_thing_has_the_forms_that_make_sense(affordances: Any, ops: list[str] | None) -> None:
    dumped = td.dump(td.with_forms(load(**affordances), "a", ["wss://h"]))
    assert (dumped.get("forms") or [{}])[0].get("op") == ops


def test_a_description_with_the_forms_of_a_node_is_good() -> None:
    made = td.with_forms(td.load(good()), "clerk", ["wss://h", "http://127.0.0.1:8080"])
    found = td.check(made, strict=True)
    assert {each.message for each in found} <= {"no href uses the variable 'limit'"}
    first = (made.properties or {})["mood"].forms or ()
    assert [each.href.partition("/")[0] for each in first] == [
        "wss:",
        "https:",
        "https:",
        "https:",
        "ws:",
        "http:",
        "http:",
        "http:",
    ]
    assert td.choose(td.effective_forms(made, (made.actions or {})["find"]), "cancelaction") is not None


@pytest.mark.parametrize("base", ["h:80", "coap://h", "ws:/h", "ws://", "ws:///", ""])
def test_a_base_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(td.DescriptionError, match="is not a base URL"):
        td.with_forms(load(), "a", [base])
