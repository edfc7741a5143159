"""The samples of frames, and strategies for messages of every type."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import strategies as st

from lmos_actors.protocol import lmos
from tests.source import ROOT


def binary_frame(stream: int, number: int, payload: bytes, *, last: bool = False) -> bytes:
    """An item of a stream of bytes, laid out as docs/reference/lmos-extensions.md has it."""
    return struct.pack(">BBHII", 1, last, 0, stream, number) + payload


WIRE = ROOT / "tests/wire/lmos"
TYPES = lmos.message_types()
SPELLINGS = [
    (ids, names, habits)
    for ids in ("ID", "Id")
    for names in ("name", "property")
    for habits in ("spec", "kotlin-wot")
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
counts = st.integers(0, 2**63 - 1)
credits_ = st.builds(lmos.Credit, items=counts, bytes=counts)
offers = st.builds(lmos.StreamOffer, stream=counts, content_type=texts)
ids = texts.filter(bool)
BY_NAME = {
    "thing_id": ids,
    "message_id": ids,
    "correlation_id": ids,
    "properties": st.lists(texts, max_size=3),
    "asked": st.lists(texts, max_size=3),
    "credit": credits_,
    "streams": st.dictionaries(texts, offers, max_size=2),
    "remaining": st.floats(0, 1e9),
    "retry_in": st.floats(0, 1e9),
    "timestamp": times,
    "begun": st.lists(st.tuples(counts, counts), max_size=3),
}


def strategy_of(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a member."""
    if field.name in BY_NAME:
        return BY_NAME[field.name]
    if field.type is Any:
        return values
    kind = str(field.type)
    for word, made in (("bool", st.booleans()), ("dict", objects), ("int", counts)):
        if word in kind:
            return made
    return texts


def of_type(struct: type[Any]) -> st.SearchStrategy[Any]:
    """Messages of one type, with any of the optional members."""
    needed: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        into = needed if field.default is msgspec.NODEFAULT else optional
        into[field.name] = strategy_of(field)
    return st.fixed_dictionaries(needed, optional=optional).map(lambda members: struct(**members))


messages = st.sampled_from(list(TYPES.values())).flatmap(of_type)


def dialect_of(ids: Any, names: Any, habits: Any, *, thing: bool = False) -> lmos.Dialect:
    """A dialect that has learnt all this."""
    made = lmos.Dialect.of_thing(True) if thing else lmos.Dialect.of_consumer(True, habits)
    made.ids, made.names, made.habits = ids, names, habits
    return made


def samples(name: str) -> list[dict[str, Any]]:
    """The samples of a file."""
    found: list[dict[str, Any]] = json.loads((WIRE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def examples() -> dict[str, str]:
    """The examples of the specification, by the section they stand in."""
    text = (WIRE / "spec-examples.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^## (\w+)\n\n```json\n(.*?)```", text, re.MULTILINE | re.DOTALL))


def text_of(sample: dict[str, Any]) -> str:
    """The text of a sample."""
    text: str = sample["text"] if "text" in sample else json.dumps(sample["frame"])
    return text


def data_of(message: Any) -> dict[str, Any]:
    """A message as plain data in the spelling of the specification's tables."""
    data: dict[str, Any] = json.loads(msgspec.json.encode(message))
    return data
