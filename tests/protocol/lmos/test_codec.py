"""Text to message and back: every sample, every type in every spelling, and whatever else a peer may send."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol import lmos
from tests import matrix
from tests.protocol.lmos.wire import (
    SPELLINGS,
    TYPES,
    data_of,
    dialect_of,
    examples,
    messages,
    samples,
    text_of,
    values,
)

SPEC, KOTLIN, ODD = samples("spec"), samples("kotlin-wot"), samples("oddities")
READ = [sample for sample in (*KOTLIN, *ODD) if "is" in sample]
REFUSED = [sample for sample in ODD if "refused" in sample]
NAMES = {"ids": lambda sample: sample["name"]}


def side(sample: dict[str, Any]) -> lmos.Dialect:
    if sample.get("side") == "thing":
        return lmos.Dialect.of_thing(False)
    return lmos.Dialect.of_consumer(False)


def test_every_example_of_the_specification_is_a_sample() -> None:
    assert [sample["name"] for sample in SPEC] == list(examples())
    assert len(SPEC) == 17


@pytest.mark.parametrize("sample", SPEC, **NAMES)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_an_example_of_the_specification_is_read_and_written_again(sample: Any, as_bytes: bool) -> None:
    text = examples()[sample["name"]]
    codec = lmos.Codec(lmos.Dialect.of_consumer(True))
    message = codec.decode(text.encode() if as_bytes else text)
    assert data_of(message) == sample["is"]
    assert codec.dialect.ids == sample["ids"]
    again = json.loads(codec.encode(message))
    assert again == json.loads(text) | {key: again[key] for key in again if key == "timestamp"}
    assert datetime.fromisoformat(again.get("timestamp", "2000-01-01")) == datetime.fromisoformat(
        json.loads(text).get("timestamp", "2000-01-01")
    )


@pytest.mark.parametrize("member", ["thingID", "thingId"])
@pytest.mark.parametrize("said", [(), ("",), (None,)])
def test_a_message_for_no_thing_is_for_that_of_the_socket(member: str, said: tuple[Any, ...]) -> None:
    frame = {"messageType": "readProperty", "messageI" + member[-1]: "m", "name": "units"}
    frame |= dict.fromkeys([member] * len(said), *said)
    dialect = lmos.Dialect.of_thing
    for _ in range(10):  # also once the dialect is known
        assert isinstance(lmos.Codec(dialect(True)).decode(json.dumps(frame)), lmos.Unreadable)
    codec = lmos.Codec(dialect(True), thing="weather")
    for _ in range(10):
        message: Any = codec.decode(json.dumps(frame))
        assert (message.thing_id, message.message_id) == ("weather", "m")
        named: Any = codec.decode(json.dumps(frame | {member: "other"}))
        assert named.thing_id == "other"
    wrong = codec.decode(json.dumps(frame | {member: 0}))
    assert isinstance(wrong, lmos.Unreadable)
    assert wrong.problem.path == "$.thingID"
    strict = lmos.Codec(dialect(True), lmos.Limits(strict=True), thing="weather")
    assert isinstance(strict.decode(json.dumps(frame)), lmos.Unreadable)


@pytest.mark.parametrize("sample", SPEC, **NAMES)
def test_what_is_not_by_the_letter_in_an_example_is_named(sample: Any) -> None:
    text = examples()[sample["name"]]
    message: Any = lmos.Codec(lmos.Dialect.of_thing(True)).decode(text)
    assert list(lmos.irregularities(message)) == sample["irregular"]
    strictly = lmos.Codec(lmos.Dialect.of_thing(True), lmos.Limits(strict=True)).decode(text)
    if not sample["irregular"]:
        assert strictly == message
        return
    assert isinstance(strictly, lmos.Unreadable)
    assert (strictly.problem.status, strictly.problem.detail) == (400, "; ".join(sample["irregular"]))
    assert (strictly.message_id, strictly.type) == (message.message_id, sample["name"])


@pytest.mark.parametrize("sample", READ, **NAMES)
def test_a_frame_is_read_and_written_again_as_its_sender_would(sample: Any) -> None:
    codec = lmos.Codec(side(sample))
    message = codec.decode(text_of(sample))
    assert data_of(message) == sample["is"]
    if "again" in sample or sample in KOTLIN:
        assert json.loads(codec.encode(message)) == sample.get("again", sample.get("frame"))


@pytest.mark.parametrize("sample", REFUSED, **NAMES)
@pytest.mark.parametrize("blanks", [0, 600])
@pytest.mark.parametrize("settled", ["", "ID", "Id"])
def test_what_cannot_be_read_is_a_problem(sample: Any, blanks: int, settled: str) -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(True))
    codec.decode(json.dumps(SPEC[0]["is"]).replace("ID", settled) if settled else "")
    found = codec.decode(text_of(sample) + " " * blanks)
    assert isinstance(found, lmos.Unreadable)
    problem = found.problem
    assert (problem.type.partition("#")[2], problem.status) == (sample["refused"], 400)
    assert problem.path == sample["path"]
    salvaged = {key: getattr(found, key) for key in ("thing_id", "message_id", "correlation_id", "type")}
    assert {key: value for key, value in salvaged.items() if value is not None} == sample["salvaged"]
    assert not found.oversize


@pytest.mark.parametrize("end", ["ID", "Id"])
def test_by_the_letter_only_from_the_first_frame_to_the_last(end: str) -> None:
    uuid = "b45e8f90-8824-4c23-bc37-c6c4ddad4b2c"
    codec = lmos.Codec(lmos.Dialect.of_consumer(True), lmos.Limits(strict=True))
    for message_id in (uuid, uuid, "m", uuid, "m"):
        raw = {
            "messageType": "queryAction",
            "action": "a",
            f"thing{end}": "urn:a",
            f"message{end}": message_id,
        }
        assert isinstance(codec.decode(json.dumps(raw)), lmos.Unreadable) == (message_id == "m")


def test_the_nearest_type_is_named() -> None:
    found: Any = lmos.Codec(lmos.Dialect.of_thing(True)).decode('{"messageType": "invokeActoin"}')
    assert found.problem.detail.endswith("did you mean 'invokeAction'?")


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: "-".join(spelling))
@given(message=messages, as_bytes=st.booleans())
@settings(max_examples=matrix.examples(150), deadline=None)
def test_what_is_written_is_read_again(spelling: Any, message: Any, as_bytes: bool) -> None:
    sender, receiver = lmos.Codec(dialect_of(*spelling)), lmos.Codec(dialect_of(*spelling))
    written = sender.encode(message)
    raw = json.loads(written)
    assert next(iter(raw)) == "messageType"
    assert ("thingID" in raw, "thingId" in raw) == ((True, False) if spelling[0] == "ID" else (False, True))
    found = receiver.decode(written if as_bytes else written.decode())
    assert data_of(found) == data_of(message) | nulls(raw, spelling)
    assert type(found) is type(message)


def nulls(raw: dict[str, Any], spelling: Any) -> dict[str, Any]:
    """What the habits of kotlin-wot add, and is not there for us: the output of a final status."""
    added = spelling[2] == "kotlin-wot" and raw["messageType"] == "actionStatus" and "output" in raw
    return {"output": raw["output"]} if added else {}


@pytest.mark.parametrize("kind", matrix.some(TYPES, of=4))
def test_both_paths_read_the_same(kind: str) -> None:
    """The frame by the letter, and the same with one member more, which only the second path takes."""

    @given(message=messages.filter(lambda message: lmos.message_type(message) == kind) | of(kind))
    @settings(max_examples=matrix.examples(25), deadline=None)
    def check(message: Any) -> None:
        fast, slow = (lmos.Codec(dialect_of("ID", "name", "spec", thing=True)) for _ in range(2))
        raw = data_of(message)
        assert fast.decode(json.dumps(raw)) == slow.decode(json.dumps(raw | {"unheard of": 1})) == message

    check()


def of(kind: str) -> st.SearchStrategy[Any]:
    from tests.protocol.lmos.wire import of_type

    return of_type(TYPES[kind])


TEXTS = [*examples().values(), *map(text_of, KOTLIN), *map(text_of, ODD)]
junk = st.sampled_from(
    [
        *'{}[]":,-\\\x00\ud800\ufeffä',
        "null",
        "1e400",
        "1" * 1200,
        "[" * 200,
        '"thingId":',
        "NaN",
        "\\ud83d",
        "true",
    ]
)
edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), junk | st.text(max_size=3)), max_size=4)


@given(text=st.sampled_from(TEXTS), edits=edits, thing=st.booleans(), offered=st.booleans())
@settings(max_examples=matrix.examples(600), deadline=None)
def test_no_text_raises(text: str, edits: list[Any], thing: bool, offered: bool) -> None:
    for place, gone, put in edits:
        at = int(place * len(text))
        text = text[:at] + put + text[at + gone :]
    check_all(text, thing, offered)
    raw = text.encode("utf-8", "surrogatepass")
    check_all(raw, thing, offered)
    check_all(raw[: len(raw) // 2], thing, offered)


@given(data=st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=matrix.examples(200), deadline=None)
def test_no_bytes_raise(data: bytes) -> None:
    check_all(data, True, False)


def check_all(text: str | bytes, thing: bool, offered: bool) -> None:
    dialect = lmos.Dialect.of_thing(offered) if thing else lmos.Dialect.of_consumer(offered)
    codec = lmos.Codec(dialect)
    first, again = codec.decode(text), codec.decode(text)
    assert first == again  # what is learnt changes how is written, not what is read
    if isinstance(first, lmos.Unreadable):
        assert first.problem.status == 400
        msgspec.json.encode(first)  # whatever it quotes can be sent
    else:
        codec.encode(first)


def invoke(payload: str) -> str:
    head = '{"messageType": "invokeAction", "thingID": "urn:a", "messageID": "m", "action": "a", "input": '
    return f"{head}{payload}}}"


def nested(levels: int) -> str:
    """Many brackets, some in strings, some beside each other: what counts is how deep they are."""
    return invoke('["]}", [], {}, ' * (levels - 1) + "[]" + "]" * (levels - 1)) + " " * 512


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (nested(63), ""),
        (nested(64), "nested"),
        (nested(100_000), "nested"),
        ("[" * 400, "deeply|truncated"),
        (invoke("[" * 100_000), "nested"),
        (invoke('{"a":' * 100_000), "nested"),
        (invoke("[" + "[]," * 5_000 + "[]]"), ""),
        (invoke('"' + "[" * 5_000 + '"'), ""),
        (invoke('"' + '[\\"' * 5_000 + '"'), ""),
        (invoke('"' + "\\\\" * 5_000 + '"'), ""),
        (invoke("1" * 1000), ""),
        (invoke("1" * 1001), "1000 digits"),
        (invoke("0." + "1" * 998), ""),
        (invoke("0." + "1" * 1001), "1000 digits"),
        (invoke("[" + "1" * 300_000 + "]"), "1000 digits"),
        (invoke('"' + "1" * 300_000 + '"'), ""),
        (invoke("[" + ",".join(["1" * 900] * 900) + "]"), ""),
        (invoke('"' + "x" * (4 << 20) + '"'), "longer than 4194304 bytes"),
        (invoke('"' + "ä" * (2 << 20) + '"'), "longer than 4194304 bytes"),
    ],
    ids=range(19),
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_is_over_a_limit_is_unreadable(text: str, detail: str, as_bytes: bool) -> None:
    found: Any = lmos.Codec(lmos.Dialect.of_thing(True)).decode(text.encode() if as_bytes else text)
    if not detail:
        assert isinstance(found, lmos.InvokeAction)
        return
    assert isinstance(found, lmos.Unreadable)
    assert any(word in found.problem.detail for word in detail.split("|"))
    assert found.oversize == ("longer" in detail)


@pytest.mark.parametrize("text", [nested(64), invoke("1" * 1001)])
def test_the_envelope_of_what_is_beyond_a_limit_is_known(text: str) -> None:
    found: Any = lmos.Codec(lmos.Dialect.of_thing(True)).decode(text)
    assert (found.thing_id, found.message_id, found.type) == ("urn:a", "m", "invokeAction")


@pytest.mark.parametrize("size", [99, 100, 101])
@pytest.mark.parametrize("character", ["x", "ä"])
def test_a_small_limit_counts_bytes(size: int, character: str) -> None:
    codec = lmos.Codec(dialect_of("ID", "name", "spec", thing=True), lmos.Limits(max_bytes=100))
    text = f'{{"messageType":"queryAction","thingID":"urn:a","messageID":"m","action":"{character}'
    text += "x" * (size - len(text.encode()) - 2) + '"}'
    assert len(text.encode()) == size
    found = codec.decode(text)
    assert isinstance(found, lmos.Unreadable) == (size > 100)


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
@pytest.mark.parametrize("payload", [object(), "\ud800", {(1, 2): 3}])
def test_a_payload_without_a_form_is_a_mistake_of_this_side(habits: Any, payload: object) -> None:
    codec = lmos.Codec(lmos.Dialect.of_consumer(True, habits))
    with pytest.raises(LocalProtocolError, match="this invokeAction cannot be written as JSON"):
        codec.encode(lmos.InvokeAction(thing_id="urn:a", message_id="m", action="a", input=payload))


@pytest.mark.parametrize(
    ("status", "written"),
    [("pending", False), ("in progress", False), ("completed", True), ("failed", True), ("other", False)],
)
def test_a_final_status_has_an_output_for_kotlin_wot(status: str, written: bool) -> None:
    message = lmos.ActionStatus(thing_id="urn:a", message_id="m", action="a", status=status)
    for habits, expected in (("spec", False), ("kotlin-wot", written)):
        raw = json.loads(lmos.Codec(dialect_of("ID", "name", habits)).encode(message))
        assert ("output" in raw) == expected
        assert ("correlationID" in raw) == (habits == "kotlin-wot")
