"""Servers that mean harm, or are past hope: there is a card all the same, or one clear word why not."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
import trio

from lmos_actors.conformance import (
    ConformOptions,
    Unreachable,
    Verdict,
    card_html,
    card_json,
    card_junit,
    card_text,
    conform,
)
from lmos_actors.conformance.inputs import fits, largest, samples
from lmos_actors.conformance.scripted import Reply, ScriptedConnection, ScriptedPages, SendText, described
from lmos_actors.conformance.session import parse_message
from lmos_actors.conformance.target import next_of
from lmos_actors.conformance.wire import (
    CONTINUATION,
    PING,
    TEXT,
    ConnectionGone,
    Handshake,
    Recorder,
    Socket,
    read_json,
    write_frame,
)
from lmos_actors.transport import MemoryNetwork, memory_pair
from tests.conformance.breaking import HERE, card_of, ids, on_virtual_time, right
from tests.matrix import slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance import Card

EVIL = "\x1b[2J\x07\u202e<script>alert(1)</script>]]>&\"'\x00\u2028"
SOME = ("description.*", "properties.value", "actions.*", "http.*", "errors.unknown-thing")

# --- data schemas

DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(40)}
HUGE = 10**400
SCHEMAS: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "itself or a number": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]},
    "not itself": {"not": {"$ref": "#"}},
    "twice at each step": {
        "definitions": {**DOUBLED, "a40": {"type": "string"}},
        "$ref": "#/definitions/a0",
    },
    "itself in each of many members": {
        "type": "object",
        "properties": {f"p{n}": {"$ref": "#"} for n in range(500)},
    },
    "all of many alternatives": {
        "allOf": [{"oneOf": [{"properties": {f"x{n}{m}": {}}} for m in range(16)]} for n in range(40)]
    },
    "a long pattern": {"type": "string", "pattern": "a" * 60_000},
    "a wide class": {"type": "string", "pattern": "[" + "\\u0000-\\u2000" * 5000 + "]"},
    "catastrophic": {"type": "string", "pattern": "^(a+)+$", "minLength": 30},
    "a billion items": {"type": "array", "minItems": 10**9},
    "a billion members": {"type": "object", "minProperties": 10**9},
    "long enums": {"enum": [*range(5000)], "allOf": [{"enum": [*range(5000)]}] * 5},
    "beyond floats": {"type": "number", "minimum": HUGE, "maximum": HUGE * 2},
    "a step beyond floats": {"type": "number", "multipleOf": HUGE},
    "infinite": {"type": "number", "minimum": float("inf")},
    "half a pair": {"type": "object", "properties": {"\ud800": {}}, "required": ["\ud800"]},
    "elsewhere": {"$id": "http://x.example/", "definitions": {"a": {"$ref": "y"}}, "$ref": "file:///etc"},
}


LARGE = (
    "a billion members",
    "twice at each step",
    "itself in each of many members",
)


# the other schemas end at the same bounds, sooner
@pytest.mark.parametrize("name", slow(SCHEMAS, LARGE))
def test_inputs_for_any_schema_come_to_an_end(name: str) -> None:
    schema = SCHEMAS[name]
    for sample in samples(schema, Random(1)):
        json.dumps(sample.value, allow_nan=False)
    with suppress(ValueError):
        largest(schema, Random(1))
    for value in ("a" * 40 + "!", {"p1": [HUGE, "\ud800"]}, float("inf")):
        fits(schema, value)


# --- descriptions


def members(**changes: Any) -> Callable[[dict[str, Any]], str]:
    return lambda data: json.dumps({**data, **changes})


def forms(*href: str, **more: Any) -> Callable[[dict[str, Any]], str]:
    def change(data: dict[str, Any]) -> str:
        data["properties"]["level"]["forms"] += [{"href": each, **more} for each in href]
        return json.dumps(data)

    return change


def renamed(data: dict[str, Any]) -> str:
    kinds = ("properties", "actions", "events")
    return json.dumps(
        {**data, **{kind: {EVIL + name: x for name, x in data[kind].items()} for kind in kinds}}
    )


DESCRIPTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "an evil id": members(id=f"urn:{EVIL}\ud800"),
    "an evil title": members(title=EVIL),
    "evil names": renamed,
    "wrong kinds": members(id=[1], title={}, properties=[], actions=5, events="x"),
    "forms that are no addresses": forms("http://[x", "http://kit.example/\r\nX: y", "file:///etc/passwd"),
    "an evil method": forms("http://kit.example/x", **{"htv:methodName": "G E\r\nT", "contentType": "a\nX"}),
    "many members": lambda data: json.dumps({**data, **{f"m{n}": n for n in range(600)}}),
}


def card_by(text: str, **options: Any) -> Card:
    class Pages(ScriptedPages):
        def description(self, method: str, thing: Any, base: str) -> Reply:
            return Reply(200, text.encode(), (("Content-Type", "application/td+json"),))

    return card_of(lambda: right(pages=Pages), **options)


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_card_of_any_description_is_safe(name: str) -> None:
    data = json.loads(json.dumps(described(f"ws://{HERE.authority}")))
    card = card_by(DESCRIPTIONS[name](data), cases=SOME, hints=ConformOptions().hints)
    assert card.results
    text = card_text(card, verbose=True)
    assert all(each.isprintable() or each == "\n" for each in text)
    json.loads(card_json(card).encode())
    ElementTree.fromstring(card_junit(card).encode())
    assert "<script>alert" not in card_html(card).encode().decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 500 + "1" + "}" * 500, "nested too deeply"),
        ('{"x": 1e400}', "the number 1e400 is too large to be read"),
        (f'{{"x": {"9" * 5000}}}', "4300 digits"),
        (" " * (5 << 20), "longer than 4194304 bytes"),
    ],
    ids=["deep", "deep objects", "infinite", "long number", "long"],
)
def test_unreadable_descriptions_are_reported(text: str, why: str) -> None:
    with pytest.raises(ExceptionGroup) as group:
        card_by(text)
    assert isinstance(group.value.exceptions[0], Unreachable)
    assert why in str(group.value.exceptions[0])


def test_a_redirect_without_an_address_is_reported() -> None:
    with pytest.raises(Unreachable, match="it redirects to what is no address"):
        next_of("http://kit.example/", "http://kit.example/", "http://[x")


# --- connections


class Deep(ScriptedConnection):
    """Answers with what is nested as deeply as can be read, and deeper."""

    def text(self, text: str) -> None:
        self.put(SendText("[" * 100_000))
        self.put(SendText('{"a":' * 400 + "1e400" + "}" * 400))
        self.put(
            SendText('{"messageType":"propertyReading","value":"\\ud800","name":"\\ud800","timestamp":1e400}')
        )


FLOODS = {
    "pings": write_frame(PING, b"x"),
    "events": write_frame(TEXT, b'{"messageType":"event"}'),
    "parts": write_frame(CONTINUATION, b"", fin=False),
    "bytes": write_frame(TEXT, b"x" * 1_000_000),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_comes_to_an_end(kind: str) -> None:
    async def flood(stream: trio.abc.Stream) -> None:
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(FLOODS[kind] * (1 if kind == "bytes" else 1000))

    async def main() -> None:
        mine, theirs = memory_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, theirs)
            socket = open_on(mine)
            socket.answers_pings = False
            with pytest.raises(ConnectionGone, match="reads no more than 20000 frames and 16 MiB"):
                await all_of(socket)
            nursery.cancel_scope.cancel()

    on_virtual_time(main)


async def all_of(socket: Socket) -> None:
    while True:
        await socket.next_message(2)


def open_on(stream: trio.abc.Stream) -> Socket:
    handshake = Handshake(status=101, headers=(), key="")
    return Socket(stream, handshake, Recorder(lambda _: None, 1, 0.0), Random(1))


def test_unreadable_answers_are_reported() -> None:
    card = card_of(lambda: right(connection=Deep), cases=("properties.value", "errors.*", "frames.*"))
    assert ids(card, Verdict.FAILED)
    assert json.loads(card_json(card))["results"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ('{"a": 1e400}', "1e400 is too large"),
        ('{"a": NaN}', "NaN is not JSON"),
    ],
)
def test_unreadable_messages_are_reported(text: str, why: str) -> None:
    assert why in parse_message(text, 0, 0).trouble


def test_many_members_are_read_in_good_time() -> None:
    text = json.dumps({f"m{n}": n for n in range(50_000)})[:-1] + ', "z": 1, "z": 2}'
    assert parse_message(text, 0, 0).twice == ("z",)
    with pytest.raises(ValueError, match="'z' stands twice"):
        read_json(text)


def test_who_takes_nothing_is_not_waited_for() -> None:
    async def main() -> float:
        stream, _ = memory_pair(10)
        socket = open_on(stream)
        began = trio.current_time()
        with pytest.raises(ConnectionGone, match="it took nothing more for 10 s"):
            await socket.send_text("x" * 100)
        return trio.current_time() - began

    assert on_virtual_time(main) == 10


# --- breaking off


class Steps(trio.abc.Instrument):
    """Cancels at the step of that number."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self.left, self._scope = number, scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self._scope.cancel()


async def broken_off(number: int) -> bool:
    """Break a run off at a step. Gives whether it was over before; nothing of it may be left."""
    network = MemoryNetwork()
    done = False
    async with trio.open_nursery() as nursery:
        serving = right()
        await nursery.start(serving.run, network, HERE)
        tasks = trio.lowlevel.current_statistics().tasks_living
        scope = trio.CancelScope()
        steps = Steps(scope, number)
        trio.lowlevel.add_instrument(steps)
        with scope:
            options = ConformOptions(cases=("handshake.accept", "properties.value", "connection.reconnect"))
            await conform(network, f"http://{HERE.authority}/agents/conformance", options)
            done = True
        trio.lowlevel.remove_instrument(steps)
        await trio.sleep(60)
        assert trio.lowlevel.current_statistics().tasks_living == tasks, number
        assert not network._streams, number
        nursery.cancel_scope.cancel()
    return done


def test_a_run_may_be_broken_off_at_any_step() -> None:
    async def main() -> None:
        number = 1
        while not await broken_off(number):
            number += 11
        assert number > 50, "nothing was broken off"

    on_virtual_time(main)
