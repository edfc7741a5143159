"""Conversion of text frames to messages and back, in the spelling of the peer.

Reading a frame is most of the cost of a short request, so there are three readers, tried from fast to slow:

- The strict decoder (msgspec, straight from text to struct) reads frames in the spelling of the
  specification's tables. It refuses a frame with any unknown member.
- A second quick reader is made once the peer has shown which one it needs: `lenient_reader` for peers that
  add their own members, `_make_respelling_reader` for peers that write `Id` (kotlin-wot).
- `_read` handles everything else. It checks the limits first (a hostile text is measured before it is built),
  then accepts both spellings at once, then members that are missing or null. It is the only reader that names
  the error.

A quick reader never returns an error: it raises an exception for anything that it cannot read in full, and
`_read` decides. So all readers agree on what a frame means, and the dialect learns only from frames that show
something new.

No text from a peer makes `decode` raise: a text that cannot be read is returned as `Unreadable`. The readers
are closures that are replaced when the dialect has learnt something (`tune`). A branch on the dialect for
every frame, or a method call, would cost a third of the time for reading a short message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, Union, cast

import msgspec
from msgspec import Struct

from lmos_actors._core import check_members
from lmos_actors.errors import LocalProtocolError

from ._dialects import (
    LOWER,
    NAMED,
    NUMBERS,
    SHAPES,
    Dialect,
    make_speller,
    message_type,
    normalize,
    normalize_spelling,
    spelling_of,
    unsupported,
)
from ._limits import Limits, beyond, check_finite
from ._messages import MESSAGES, Message, strict_decoder
from ._problems import TOO_LARGE, Problem, invalid
from ._strictness import irregularities
from ._times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._dialects import Ids, Names, Shape


def lenient_reader(*, named: bool) -> Callable[[str | bytes], Message]:
    """Return a reader of messages in the usual spelling that ignores unknown members.

    The reader raises KeyError for a frame that needs the slow path: a frame that also has another spelling,
    or, unless `named`, a frame that shows how its peer spells properties. It also raises the exceptions of
    msgspec.
    """
    plain, convert, shapes = msgspec.json.Decoder().decode, msgspec.convert, SHAPES

    def read(text: str | bytes) -> Message:
        raw: dict[str, Any] = plain(text)
        shape = shapes[raw["messageType"]]
        if shape.named and not named:
            raise KeyError("name")
        members, fields = shape.members, {}
        for key, value in raw.items():
            name = members.get(key)
            if name is None:
                continue
            if name != key:
                raise KeyError(key)
            fields[key] = value
        message: Message = convert(fields, shape.struct)
        return message

    return read


# --- text to message and back: a strict fast path, a tolerant second one, and limits on what is read
#
# Of a member that stands twice in one spelling the last counts for the quick readers: to look for it costs as
# much as to read. `_read_tolerantly` refuses it.

SHORT: Final = 512  # characters in which no nesting and no number can do harm: nothing is counted
MAX_REFUSALS: Final = 8  # messages refused by the strict decoder, until it is tried no more


class Unreadable(Struct, kw_only=True, frozen=True):
    """A text that is not a message, with the problem to answer and the readable members of its envelope.

    `type` is its `messageType`. `oversize` is set if it was longer than the limit, and was not parsed.
    """

    problem: Problem
    thing_id: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    oversize: bool = False


Decode: TypeAlias = "Callable[[str | bytes], Message | Unreadable]"


class Encode(Protocol):
    """The type of the function that writes messages; see `Codec`."""

    def __call__(self, message: Message, checked: bool = False, /) -> bytes:
        """Return a message as JSON in UTF-8. `checked`: all numbers in its payload are known to be finite."""
        ...


_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)
_NOT_APPLICABLE: Final = (*_UNREADABLE, KeyError, TypeError)
UNWRITTEN: Final = (TypeError, ValueError, RecursionError, OverflowError)
_unnamed: Any = Union[tuple(struct for struct in MESSAGES.values() if struct not in NAMED)]  # noqa: UP007
_strict: Final[Callable[[str | bytes], Message]] = strict_decoder.decode
_strict_unnamed: Final[Callable[[str | bytes], Message]] = msgspec.json.Decoder(_unnamed).decode
_plain: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class Codec:
    """The reader and writer of one connection's text frames, in the spelling and habits of its peer.

    `decode(text)` returns the message in a text or its UTF-8, or `Unreadable`; no text makes it raise. The
    dialect learns from every message. A message whose `thingID` is absent, null or empty is for `thing`, if
    there is one and the limits are not strict.

    `encode(message)` returns the UTF-8 of its JSON, `messageType` first. It raises LocalProtocolError for a
    payload without a JSON form, such as a number that is not finite. It also does so for a message of more
    than `longest` bytes, because a peer would end the whole connection over it. `encode(message, True)` does
    not look for numbers that are not finite. Neither function blocks.
    """

    __slots__ = ("_refused", "_tune", "decode", "dialect", "encode", "limits", "thing")

    decode: Decode
    encode: Encode

    def __init__(
        self,
        dialect: Dialect,
        limits: Limits | None = None,
        thing: str | None = None,
        longest: int | None = None,
    ) -> None:
        self.dialect = dialect
        self.limits = Limits() if limits is None else limits
        self.thing = None if self.limits.strict else thing
        self._refused = 0
        # closures, not methods: a method's call costs a third of what reading a short message costs
        self.decode, tune_reading = _reader(self)
        self.encode, tune_writing = _writer(dialect, longest)
        self._tune = (tune_reading, tune_writing)

    def learn(self, ids: Ids | None, names: Names | None, kind: str) -> None:
        """Update the dialect from a frame; see `Dialect.learn`. If it changed, rebuild readers and writer."""
        if self.dialect.learn(ids, names, kind):
            for tune in self._tune:
                tune()

    @property
    def has_extra_members(self) -> bool:
        """Whether the peer's frames are in the usual spelling but contain unknown members.

        The strict decoder refuses such frames, and a refusal costs more than everything else, so that decoder
        is then no longer tried.
        """
        return self._refused >= MAX_REFUSALS

    def count_refusal(self) -> None:
        """Count a valid message that the strict decoder has refused."""
        self._refused += 1
        if self._refused == MAX_REFUSALS:
            self._tune[0]()


def _reader(codec: Codec) -> tuple[Decode, Callable[[], None]]:
    dialect, limits = codec.dialect, codec.limits
    uncounted = min(SHORT, limits.max_bytes // 4)
    longest_strict, longest_other, strict = -1, -1, _strict_unnamed
    read_other: Decode = _not_applicable  # until it is needed: it is a kilobyte for every connection

    def decode(text: str | bytes) -> Message | Unreadable:
        if len(text) <= longest_strict:
            try:
                return strict(text)
            except _UNREADABLE:
                pass
        elif len(text) <= longest_other:
            try:
                return read_other(text)
            except _NOT_APPLICABLE:
                pass
        return _read(text, codec, tried=len(text) <= longest_strict and strict is _strict)

    def tune() -> None:
        nonlocal longest_strict, longest_other, strict, read_other
        # as long as names have not been shown, a frame that shows them is none for the fast path,
        # and one that writes `subscribeevent` goes the slow way, as its acknowledgement repeats that word
        strict = _strict_unnamed if dialect.names is None else _strict
        is_strict = dialect.ids == "ID" and dialect.subscribing != LOWER
        longest_strict = uncounted if is_strict and not limits.strict and not codec.has_extra_members else -1
        # of a peer that writes `Id`, or more than is known here, frames are read by another quick way
        has_extra_members = is_strict and codec.has_extra_members
        longest_other = uncounted if (dialect.ids == "Id" or has_extra_members) and not limits.strict else -1
        if longest_other >= 0:
            read_other = (
                lenient_reader(named=dialect.names is not None)
                if has_extra_members
                else _make_respelling_reader(dialect)
            )

    tune()
    return decode, tune


def _not_applicable(_: Any) -> Any:
    raise KeyError("messageType")


def _make_respelling_reader(dialect: Dialect) -> Decode:
    """Return a reader for the frames of a peer that is known to write `Id`.

    The reader raises one of `_NOT_APPLICABLE` for an unusual frame, or for a frame that shows something new.
    """
    properties = dialect.names is not None
    watched = dialect.is_thing and dialect.habits == "spec"

    def read(text: str | bytes) -> Message:
        raw: dict[str, Any] = _plain(text)
        shape = SHAPES[raw["messageType"]]
        count = len(raw)
        raw["thingID"] = raw.pop("thingId")
        raw["messageID"] = raw.pop("messageId")
        if "correlationId" in raw:
            raw["correlationID"] = raw.pop("correlationId")
        if shape.named and "property" in raw:
            raw["name"] = raw.pop("property")
            if "data" in raw and shape.timed:
                raw["value"] = raw.pop("data")
            if watched:
                raise KeyError("property")
        if len(raw) != count or shape.subscribes or (shape.named and not properties):
            raise KeyError("messageType")  # a member in both spellings, or something to be learnt
        if shape.timed and type(raw.get("timestamp")) in NUMBERS:
            raw["timestamp"] = parse_time(raw["timestamp"])
        message: Message = msgspec.convert(raw, shape.struct)
        return message

    return read


def _writer(dialect: Dialect, longest: int | None) -> tuple[Encode, Callable[[], None]]:
    is_strict = True
    spell: Callable[[Message], dict[str, Any]] = (
        _not_applicable  # made where it is needed, as `read_other` above
    )

    def encode(message: Message, checked: bool = False) -> bytes:
        try:
            frame = _encode(message if is_strict else spell(message))
        except UNWRITTEN as error:
            name = message_type(message)
            raise LocalProtocolError(
                f"this {name} cannot be written as JSON: {type(error).__name__}"
            ) from error
        if not checked and b"null" in frame:  # few have one, but to search takes as long as to encode
            check_finite(message)
        if longest is not None and len(frame) > longest:
            raise LocalProtocolError(f"this {message_type(message)} is longer than {longest} bytes")
        return frame

    def tune() -> None:
        nonlocal is_strict, spell
        spelling = (dialect.written_ids, dialect.written_names, dialect.habits)
        is_strict = spelling == ("ID", "name", "spec")
        if not is_strict:
            spell = make_speller(dialect)

    tune()
    return encode, tune


# ---- the second path


def _read(text: str | bytes, codec: Codec, *, tried: bool) -> Message | Unreadable:
    """Read a text that the fast path could not read; `tried`: the strict decoder has already refused it."""
    limits = codec.limits
    if len(text) > SHORT or len(text) > limits.max_bytes // 4:
        problem = beyond(text, limits)
        if problem is not None:
            oversize = problem.type == TOO_LARGE
            return (
                Unreadable(problem=problem, oversize=True) if oversize else _salvage_envelope(text, problem)
            )
    found: Message | Unreadable | None = None
    if not tried and codec.dialect.ids != "Id" and not codec.has_extra_members:
        found, tried = _read_strictly(text, codec), True
    if found is None:
        found = _read_tolerantly(text, codec, tried=tried or codec.has_extra_members)
        if tried and not isinstance(found, Unreadable):
            codec.count_refusal()
    return _refuse_irregular(found) if limits.strict else found


def _read_strictly(text: str | bytes, codec: Codec) -> Message | None:
    try:
        message = _strict(text)
        if codec.limits.strict:
            check_members(text, _plain(text))
    except _UNREADABLE:
        return None
    codec.learn("ID", "name" if type(message) in NAMED else None, message_type(message))
    return message


def _read_tolerantly(text: str | bytes, codec: Codec, *, tried: bool) -> Message | Unreadable:
    """Read a frame in either spelling.

    It is one function for speed: some peers send only frames that need it.
    """
    try:
        raw: dict[str, Any] = _plain(text)
        kind: Any = raw.get("messageType")
        shape = SHAPES.get(kind)
    except _UNREADABLE as error:
        return _salvage_envelope(text, invalid(f"not readable as JSON: {_describe_error(error)}"))
    except (AttributeError, TypeError):  # no object; a type that is none
        return _unknown_type(_plain(text), codec)
    if shape is None:
        return _unknown_type(raw, codec)
    codec.learn(*spelling_of(raw, shape), kind)
    written = raw.copy()
    problem = normalize_spelling(raw, shape)
    if problem is not None:
        return _unreadable(raw, problem)
    if codec.thing is not None and raw.get("thingID") in (None, ""):
        raw["thingID"] = codec.thing
    if not tried:
        try:
            message: Message = msgspec.convert(raw, shape.struct)
            return _refuse_repeated(text, written, message)
        except _UNREADABLE:
            pass
    return _refuse_repeated(text, written, _read_normalized(raw, shape))


def _refuse_repeated(
    text: str | bytes, written: dict[str, Any], found: Message | Unreadable
) -> Message | Unreadable:
    """Refuse a message whose text has a member twice; `written` is the data that was read from the text."""
    if isinstance(found, Unreadable):
        return found
    try:
        check_members(text, written)
    except _UNREADABLE as error:
        return _salvage_envelope(text, invalid(f"not readable as JSON: {_describe_error(error)}"))
    return found


def _read_normalized(raw: dict[str, Any], shape: Shape) -> Message | Unreadable:
    fields = normalize(raw, shape)
    if isinstance(fields, Problem):
        return _unreadable(raw, fields)
    try:
        message: Message = msgspec.convert(fields, shape.struct)
        return message
    except _UNREADABLE as error:
        # msgspec names the place behind the reason; a missing member is named within it
        what, _, where = str(error).partition(" - at `")
        path = where.rstrip("`") or "$"
        missing = re.match("Object missing required field `([^`]+)`", what)
        return _unreadable(raw, invalid(what, f"{path}.{missing[1]}" if missing else path))


def _refuse_irregular(found: Message | Unreadable) -> Message | Unreadable:
    odd = () if isinstance(found, Unreadable) else irregularities(found)
    if isinstance(found, Unreadable) or not odd:
        return found
    problem = invalid("; ".join(odd), odd[0].partition(":")[0])
    return Unreadable(
        problem=problem,
        thing_id=found.thing_id,
        message_id=found.message_id,
        correlation_id=found.correlation_id,
        type=message_type(found),
    )


# ---- what cannot be read


def _unknown_type(data: object, codec: Codec) -> Unreadable:
    if not isinstance(data, dict):
        return Unreadable(problem=invalid("a message is a JSON object"))
    raw = cast("dict[str, Any]", data)
    codec.learn(*spelling_of(raw, None), "")
    kind: object = raw.get("messageType")
    if not isinstance(kind, str):
        detail = "no messageType" if kind is None else "messageType is text"
        return _unreadable(raw, invalid(detail, "$.messageType"))
    return _unreadable(raw, unsupported(kind, MESSAGES))


def _describe_error(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    return str(error)


_ENVELOPE: Final = ("thingID", "messageID", "correlationID")


def _unreadable(raw: dict[str, Any], problem: Problem) -> Unreadable:
    """Return an `Unreadable` with the members that the envelope has, in either spelling."""
    kind = raw.get("messageType")
    found = [_text(raw.get(name)) or _text(raw.get(f"{name[:-1]}d")) for name in _ENVELOPE]
    return Unreadable(
        problem=problem,
        thing_id=found[0],
        message_id=found[1],
        correlation_id=found[2],
        type=kind if isinstance(kind, str) else None,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_envelope: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Envelope",
        [(name, Any, None) for name in (*_ENVELOPE, "thingId", "messageId", "correlationId", "messageType")],
    )
).decode


def _salvage_envelope(text: str | bytes, problem: Problem) -> Unreadable:
    """Read only the envelope of a text: its payload may exceed a limit and must not be built."""
    try:
        return _unreadable(msgspec.structs.asdict(_envelope(text)), problem)
    except _UNREADABLE:
        return Unreadable(problem=problem)
