"""One text, one meaning: every door of the package reads the same JSON texts, and refuses the same.

A door takes the text of a row inside a document of its own. Where one does otherwise than `tests.json_texts`
says, `EXCEPTIONS` has the reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors import ConfigError
from lmos_actors._core import read_json
from lmos_actors.conformance.session import parse_message
from lmos_actors.conformance.wire import read_json as judged
from lmos_actors.files import parse
from lmos_actors.protocol import lmos, omnia, relay, td
from tests.bindings.web import World, served
from tests.directory.web import MERGE, ask, directory, td as lamp
from tests.json_texts import READ, REFUSED
from tests.mcp.offer.test_lines import begun
from tests.mcp.offering import lines_of, offered

if TYPE_CHECKING:
    from collections.abc import Callable

TWICE = tuple(name for name in REFUSED if name.startswith("a member twice"))
HALVES = ("half a pair", "the other half")
UNREAD = ("an infinite number", "an infinite negative number", "an integer of 5,000 digits")

EXCEPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "LMOS, by the letter": (TWICE, "the fast path: to look costs a quarter of reading; the last one counts"),
    "a hub": ((*TWICE, *UNREAD), "it passes payloads on unread (D39); who reads them refuses them"),
    "the kit": (HALVES, "it reads what a server says wrongly, so as to name it"),
    "the kit, a message": (
        (*TWICE, *HALVES),
        "the case `letter.member-twice` judges a message that it can read",
    ),
}


class Refused(Exception):
    """A door has not taken a document."""


@attrs.frozen
class Door:
    """A way in: the document around a value, and what reads it. It raises `Refused` or a ValueError."""

    around: str
    read: Callable[[str], Any]


def described(text: str) -> Any:
    """Return the member of a description; `check` and `load` agree."""
    errors = [each for each in td.check(text) if each.severity == "error"]
    try:
        found = td.load(text).extra["x"]
    except td.DescriptionError:
        assert errors, "check takes what load does not"
        raise
    assert errors == []
    return found


def in_file(text: str, format: Any = "json") -> Any:
    found = parse(text, name="x", format=format)
    if found.mistakes:
        raise Refused(found.mistakes)
    return found.data["x"]  # type: ignore[index]


def of_chat(text: str) -> Any:
    message = omnia.read_client_frame(text)
    if not isinstance(message, omnia.UserMessage):
        raise Refused(message)
    return (message.metadata or {})["x"]


def to_chat(text: str) -> Any:
    message = omnia.read_server_frame(text)
    if not isinstance(message, omnia.ToolCall):
        raise Refused(message)
    arguments: Any = message.tool_call.arguments
    return arguments["x"]


def in_lmos(limits: lmos.Limits | None = None) -> Callable[[str], Any]:
    """Return a reader of frames, of a peer that has shown nothing."""

    def read(text: str) -> Any:
        message = lmos.Codec(lmos.Dialect.of_consumer(True, "spec"), limits).decode(text)
        if isinstance(message, lmos.Unreadable):
            raise Refused(message.problem)
        return message.data  # type: ignore[union-attr]

    return read


def from_hub(text: str) -> Any:
    client = relay.RelayClient("a")
    message = client.receive(text.encode())
    if not isinstance(message, relay.RelayMessage):
        assert client.unread == 1
        raise Refused
    return message.payload


def through_hub(text: str) -> Any:
    """Return what a hub passes on; Ellipsis where only its own reader could read it."""
    hub = relay.Hub(relay.HubOptions(rates=()), new_id=lambda: "id", now=lambda: 0)
    one, other = hub.connect("a", 0.0), hub.connect("b", 0.0)
    other.frames(1 << 30)
    one.receive(text.encode(), 0.0)
    frames = other.frames(1 << 30)
    if not frames:
        raise Refused
    passed: Any = frames[0]
    payload = text.partition('"payload":')[2][:-1].strip()
    assert payload in (passed if isinstance(passed, str) else bytes(passed).decode()), "byte for byte"
    return ...


def by_the_kit(text: str) -> Any:
    message = parse_message(text, 0.0, 0)
    if message.trouble:
        raise Refused(message.trouble)
    return message.get("data")


THING = json.dumps(lamp())[:-1]
UUID = "6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"
EVENT = (
    f'{{"messageType":"event","%s":"urn:uuid:{UUID}","%s":"{UUID}","correlationID":"{UUID}",'
    '"timestamp":"2026-01-01T00:00:00Z","event":"e","data":'
)
DOORS = {
    "the reader": Door('{"x":', lambda text: read_json(text)["x"]),
    "the reader, bytes": Door('{"x":', lambda text: read_json(bytearray(text.encode()))["x"]),
    "a description": Door(f'{THING},"x":', described),
    "a JSON file": Door('{"x":', in_file),
    "a chat client's frame": Door('{"type":"message","content":"c","metadata":{"x":', of_chat),
    "a chat server's frame": Door(
        '{"type":"tool_call","tool_call":{"id":"c","name":"n","arguments":{"x":', to_chat
    ),
    "LMOS, by the letter": Door(EVENT % ("thingID", "messageID"), in_lmos()),
    "LMOS, spelled otherwise": Door(EVENT % ("thingId", "messageId"), in_lmos()),
    "LMOS, strict": Door(EVENT % ("thingID", "messageID"), in_lmos(lmos.Limits(strict=True))),
    "a relay's client": Door('{"id":"1","from":"b","to":["a"],"ts":1,"payload":', from_hub),
    "a hub": Door('{"to":["b"],"payload":', through_hub),
    "the kit": Door('{"x":', lambda text: judged(text)["x"]),
    "the kit, a message": Door(EVENT % ("thingID", "messageID"), by_the_kit),
}


def document(door: Door, text: str) -> str:
    """Return the document of a door with a value."""
    return door.around + text + "}" * (door.around.count("{") - door.around.count("}"))


def got(door: Door, text: str) -> Any:
    """Return what a door reads; `Refused` where it refuses."""
    try:
        return door.read(document(door, text))
    except (Refused, ConfigError, ValueError, RecursionError):
        return Refused


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with their types and the signs of zeros."""
    return one is ... or repr(one) == repr(other)


@pytest.mark.parametrize("name", DOORS)
def test_every_door_reads_and_refuses_the_same(name: str) -> None:
    door = DOORS[name]
    wrong = [row for row, text in READ.items() if not same(got(door, text), json.loads(text))]
    wrong += [row for row, text in REFUSED.items() if got(door, text) is not Refused]
    assert sorted(wrong) == sorted(EXCEPTIONS.get(name, ((), ""))[0])


def test_yaml_is_no_json_and_has_each_key_once() -> None:
    door = Door('{"x": ', lambda text: in_file(text, "yaml"))
    for row in (*TWICE, *UNREAD[:2]):
        assert got(door, REFUSED[row]) is Refused, row


# ---- doors of a node


def test_a_body_over_http() -> None:
    async def main(there: World) -> None:
        for text in READ.values():
            answer = await there.ask("POST", "actions/whole", text.encode())
            assert (answer.status, same(answer.data, json.loads(text))) == (200, True), text
        for text in REFUSED.values():
            answer = await there.ask("POST", "actions/whole", text.encode())
            assert answer.status in (400, 413), text[:100]

    served(main)


async def test_a_description_for_a_directory(autojump_clock: Any) -> None:
    ways = (
        ("PUT", "/things/urn:x:1", "application/td+json", THING),
        ("POST", "/things", "application/td+json", json.dumps(lamp(None))[:-1]),
        ("PATCH", "/things/urn:x:1", MERGE, '{"title": "A"'),
    )
    async with directory():
        for method, target, kind, around in ways:
            for row, text in {**READ, **REFUSED}.items():
                answer = await ask(method, target, f'{around},"x":{text}}}'.encode(), kind=kind)
                assert (answer.status < 300) is (row in READ), (method, row, answer.body)
                assert answer.status < 300 or answer.status in (400, 413)


async def test_a_line_of_an_mcp_client() -> None:
    async with offered() as node, lines_of(node) as stream:
        answers = await begun(stream)
        for number, (row, text) in enumerate({**READ, **REFUSED}.items(), 1):
            line = f'{{"jsonrpc":"2.0","id":{number},"method":"ping","params":{{"x":{text}}}}}\n'
            await stream.send_all(line.encode())
            answer = await answers.next()
            if row in READ:
                assert answer == {"jsonrpc": "2.0", "id": number, "result": {}}, row
            else:
                assert answer["error"]["code"] == -32700, row
