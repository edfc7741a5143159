"""Reading and writing of LMOS messages, against msgspec alone on one union of structs without any constraint.

Each figure is messages a second. The text of the limit is always the one by the letter; ours of the tolerant
cases is the same message as kotlin-wot writes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Union
from uuid import uuid4

import msgspec

from lmos_actors._core import Entropy
from lmos_actors.protocol import lmos

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.cases import Program

THING = "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"
ID = "b45e8f90-8824-4c23-bc37-c6c4ddad4b2c"
AT = datetime(2025, 1, 20, 19, 0, 0, 520_000, tzinfo=UTC)
QUESTION = {"question": "What is the weather in New York?", "interactionMode": "text"}
ANSWER = "The weather in New York is sunny with a temperature of 25 degrees."
EXTRA: dict[str, dict[str, Any]] = {
    "writeProperty": {"data": {"modelName": "a-model", "temperature": 0.7, "maxTokens": 1000}},
    "propertyReading": {
        "value": {"temperature": 0.7, "maxTokens": 1000},
        "timestamp": AT,
        "correlation_id": ID,
    },
    "propertyReadings": {"data": {"units": "kelvin"}, "timestamp": AT, "correlation_id": ID},
    "invokeAction": {"input": QUESTION},
    "actionStatus": {"status": "completed", "output": ANSWER, "correlation_id": ID},
    "event": {"data": {"rating": 4}, "timestamp": AT, "correlation_id": ID},
    "error": {"status": "500", "correlation_id": ID},
}
TYPES = lmos.message_types()
KINDS = tuple(kind for kind in TYPES if not kind.startswith(("stream", "gap", "tell")))
"""Those that both spellings have: none of our own extensions."""


def plain_type(field: msgspec.structs.FieldInfo) -> Any:
    """The type of a member without constraints."""
    by_name = {"thingID": str, "messageID": str, "correlationID": str | None, "timestamp": datetime | None}
    if field.encode_name in by_name:
        return by_name[field.encode_name]
    return int | None if "int" in str(field.type) else field.type


def bare_struct(kind: str, struct: type[Any]) -> type[Any]:
    """The same struct, made of nothing but names and types."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):
        default = () if field.default is msgspec.NODEFAULT else (field.default,)
        fields.append((field.encode_name, plain_type(field), *default))
    return msgspec.defstruct(
        struct.__name__, fields, tag=kind, tag_field="messageType", kw_only=True, frozen=True, gc=False,
        omit_defaults=True,
    )  # fmt: skip


BARE = {kind: bare_struct(kind, struct) for kind, struct in TYPES.items()}
bare_decode = msgspec.json.Decoder(Union[tuple(BARE.values())]).decode  # noqa: UP007
bare_encode = msgspec.json.Encoder().encode


def sample(kind: str) -> Any:
    """A message of the type as it is often seen."""
    struct = TYPES[kind]
    needed = {f.name: f for f in msgspec.structs.fields(struct) if f.default is msgspec.NODEFAULT}
    fillers: dict[Any, Any] = {str: "getWeather", list[str]: ["units"], dict[str, Any]: {"units": "kelvin"}}
    members = {name: fillers.get(field.type) for name, field in needed.items()}
    return struct(**members | {"thing_id": THING, "message_id": ID} | EXTRA.get(kind, {}))


def codec_of(habits: Any) -> lmos.Codec:
    """A codec that knows its peer's spelling."""
    codec = lmos.Codec(lmos.Dialect.of_consumer(True, habits))
    codec.decode(codec.encode(sample("readProperty")))
    return codec


def repeated(call: Callable[[Any], object], given: Any, n: int) -> float:
    """Calls a second."""
    began = clock()
    for _ in range(n):
        call(given)
    return n / (clock() - began)


def over(kinds: tuple[str, ...], call: Callable[[Any], object], given: Callable[[str], Any]) -> Program:
    """Calls a second, an equal number for each type."""

    def program(n: int) -> float:
        each = max(1, n // len(kinds))
        rates = [repeated(call, given(kind), each) for kind in kinds]
        return len(kinds) / sum(1 / rate for rate in rates)

    return program


def decode(habits: Any, *kinds: str) -> Program:
    codec = codec_of(habits)
    return over(kinds, codec.decode, lambda kind: codec.encode(sample(kind)))


def encode(habits: Any, *kinds: str) -> Program:
    return over(kinds, codec_of(habits).encode, sample)


def encode_typed(n: int) -> float:
    """Calls of a far ref with a class written a second: the contract has checked the arguments."""
    encode, message = codec_of("spec").encode, sample("invokeAction")
    began = clock()
    for _ in range(n):
        encode(message, True)
    return n / (clock() - began)


def decode_unknown(n: int) -> float:
    """Messages read a second of a peer that adds a member of its own to each."""
    codec = codec_of("spec")
    text = codec.encode(sample("invokeAction"))[:-1] + b',"vendorMember":"x"}'
    for _ in range(20):  # until the codec knows its peer
        codec.decode(text)
    return repeated(codec.decode, text, n)


def bare_decoding(*kinds: str) -> Program:
    return over(kinds, bare_decode, lambda kind: bare_encode(sample(kind)))


def bare_encoding(*kinds: str) -> Program:
    return over(kinds, bare_encode, lambda kind: bare_decode(bare_encode(sample(kind))))


def parse(n: int) -> float:
    """Times read a second."""
    return repeated(lmos.parse_time, "2025-01-20T19:00:00.52Z", n)


def bare_parse(n: int) -> float:
    """The same by the standard library."""
    return repeated(datetime.fromisoformat, "2025-01-20T19:00:00.52Z", n)


def write_time(n: int) -> float:
    """Times written a second."""
    return repeated(lmos.format_time, AT, n)


def bare_write_time(n: int) -> float:
    """The same by the standard library."""
    return repeated(datetime.isoformat, AT, n)


def new_ids(n: int) -> float:
    """Ids made a second."""
    new_id = Entropy().new_id
    return repeated(lambda _: new_id(), None, n)


def bare_ids(n: int) -> float:
    """The same by the standard library."""
    return repeated(lambda _: str(uuid4()), None, n)
