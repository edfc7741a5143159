"""Reading for peers in the usual spelling whose frames have members that nobody here knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union, cast

import msgspec
from msgspec import Struct

from lmos_actors.errors import LocalProtocolError, nearest

from ._dialects import (
    LOWER,
    NAMED,
    NUMBERS,
    SHAPES,
    Dialect,
    message_type,
    respell,
    shown,
    speller,
    tidy,
    unsupported,
)
from ._limits import Limits, beyond
from ._messages import MESSAGES, Message, strict_decoder
from ._problems import TOO_LARGE, Problem, invalid
from ._spec_letter import irregularities
from ._times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._dialects import Ids, Names, Shape


def lax_reader(*, named: bool) -> Callable[[str | bytes], Message]:
    """Make what reads a message in the usual spelling, and leaves out what else stands in it.

    It raises KeyError for what has to be looked at more closely: another spelling beside the usual one and,
    unless `named`, a message that shows how its peer spells properties. It raises what msgspec does, too.
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
# Nothing that a peer sends raises here: what cannot be read comes out as `Unreadable`. Of a member that
# stands there twice in one spelling the last counts, on both paths.

SHORT: Final = 512  # characters in which no nesting and no number can do harm: nothing is counted
CHATTY: Final = 8  # messages refused by the strict decoder, until it is tried no more


class Unreadable(Struct, kw_only=True, frozen=True):
    """A text that is no message: the problem to answer with, and what could be read of it all the same.

    `type` is its `messageType`. `oversize`: it was longer than the limit, and has not been looked at.
    """

    problem: Problem
    thing_id: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    oversize: bool = False


Decode: TypeAlias = "Callable[[str | bytes], Message | Unreadable]"
Encode: TypeAlias = "Callable[[Message], bytes]"

_UNREAD: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)
_NOT_SO: Final = (*_UNREAD, KeyError, TypeError)
UNWRITTEN: Final = (TypeError, ValueError, RecursionError, OverflowError)
_unnamed: Any = Union[tuple(struct for struct in MESSAGES.values() if struct not in NAMED)]  # noqa: UP007
_strict: Final[Callable[[str | bytes], Message]] = strict_decoder.decode
_strict_unnamed: Final[Callable[[str | bytes], Message]] = msgspec.json.Decoder(_unnamed).decode
_plain: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class Codec:
    """Reads and writes the text frames of one connection, in the spelling and by the habits of its peer.

    `decode(text)` gives the message that a text, or its UTF-8, is, or `Unreadable`; it never raises for what
    is in it. The dialect learns from what is read. A message whose `thingID` is absent, null or empty is for
    `thing`, if there is one and the limits are not strict. `encode(message)` gives the UTF-8 of its JSON,
    `messageType` first; it raises LocalProtocolError for a payload that JSON has no form for. Neither blocks.
    """

    __slots__ = ("_refused", "_tune", "decode", "dialect", "encode", "limits", "thing")

    decode: Decode
    encode: Encode

    def __init__(self, dialect: Dialect, limits: Limits | None = None, thing: str | None = None) -> None:
        self.dialect = dialect
        self.limits = Limits() if limits is None else limits
        self.thing = None if self.limits.strict else thing
        self._refused = 0
        # closures, not methods: a method's call costs a third of what reading a short message costs
        self.decode, tune_reading = _reader(self)
        self.encode, tune_writing = _writer(dialect)
        self._tune = (tune_reading, tune_writing)

    def learn(self, ids: Ids | None, names: Names | None, kind: str) -> None:
        """Take note of what a frame shows: see `Dialect.learn`."""
        if self.dialect.learn(ids, names, kind):
            for tune in self._tune:
                tune()

    @property
    def chatty(self) -> bool:
        """Whether the peer's frames are in the usual spelling and have members of its own.

        The strict decoder refuses those, which costs more than all the rest, so it is tried no more.
        """
        return self._refused >= CHATTY

    def refused(self) -> None:
        """Take note that the strict decoder has refused what was a message all the same."""
        self._refused += 1
        if self._refused == CHATTY:
            self._tune[0]()


def _reader(codec: Codec) -> tuple[Decode, Callable[[], None]]:
    dialect, limits = codec.dialect, codec.limits
    uncounted = min(SHORT, limits.max_bytes // 4)
    short, otherwise, strict = -1, -1, _strict_unnamed
    respelt: Decode = _unspelt  # until it is needed: it is a kilobyte for every connection

    def decode(text: str | bytes) -> Message | Unreadable:
        if len(text) <= short:
            try:
                return strict(text)
            except _UNREAD:
                pass
        elif len(text) <= otherwise:
            try:
                return respelt(text)
            except _NOT_SO:
                pass
        return _read(text, codec, tried=len(text) <= short and strict is _strict)

    def tune() -> None:
        nonlocal short, otherwise, strict, respelt
        # as long as names have not been shown, a frame that shows them is none for the fast path,
        # and one that writes `subscribeevent` is listened to closely, to be acknowledged by its own words
        strict = _strict_unnamed if dialect.names is None else _strict
        by_letter = dialect.ids == "ID" and dialect.subscribing != LOWER
        short = uncounted if by_letter and not limits.strict and not codec.chatty else -1
        # of a peer that writes `Id`, or more than is known here, frames are read by another quick way
        chatty = by_letter and codec.chatty
        otherwise = uncounted if (dialect.ids == "Id" or chatty) and not limits.strict else -1
        if otherwise >= 0:
            respelt = lax_reader(named=dialect.names is not None) if chatty else _respelling(dialect)

    tune()
    return decode, tune


def _unspelt(_: Any) -> Any:
    raise KeyError("messageType")


def _respelling(dialect: Dialect) -> Decode:
    """Make what reads the frames of a peer that is known to write `Id`.

    It raises, one of `_NOT_SO`, for each that is not as they usually are, or that shows something new.
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


def _writer(dialect: Dialect) -> tuple[Encode, Callable[[], None]]:
    by_letter = True
    spell: Callable[[Message], dict[str, Any]] = _unspelt  # made where it is needed, as `respelt` above

    def encode(message: Message) -> bytes:
        try:
            return _encode(message if by_letter else spell(message))
        except UNWRITTEN as error:
            name = message_type(message)
            raise LocalProtocolError(
                f"this {name} cannot be written as JSON: {type(error).__name__}"
            ) from error

    def tune() -> None:
        nonlocal by_letter, spell
        spelling = (dialect.written_ids, dialect.written_names, dialect.habits)
        by_letter = spelling == ("ID", "name", "spec")
        if not by_letter:
            spell = speller(dialect)

    tune()
    return encode, tune


# ---- the second path


def _read(text: str | bytes, codec: Codec, *, tried: bool) -> Message | Unreadable:
    """Read what the fast path has not; `tried` says that the strict decoder has refused it already."""
    limits = codec.limits
    if len(text) > SHORT or len(text) > limits.max_bytes // 4:
        problem = beyond(text, limits)
        if problem is not None:
            oversize = problem.type == TOO_LARGE
            return Unreadable(problem=problem, oversize=True) if oversize else _salvaged(text, problem)
    found: Message | Unreadable | None = None
    if not tried and codec.dialect.ids != "Id" and not codec.chatty:
        found, tried = _by_letter(text, codec), True
    if found is None:
        found = _tolerantly(text, codec, tried=tried or codec.chatty)
        if tried and not isinstance(found, Unreadable):
            codec.refused()
    return _by_the_letter_only(found) if limits.strict else found


def _by_letter(text: str | bytes, codec: Codec) -> Message | None:
    try:
        message = _strict(text)
    except _UNREAD:
        return None
    codec.learn("ID", "name" if type(message) in NAMED else None, message_type(message))
    return message


def _tolerantly(text: str | bytes, codec: Codec, *, tried: bool) -> Message | Unreadable:
    """Read what is spelt or filled in otherwise. In one piece: for some peers all frames come here."""
    try:
        raw: dict[str, Any] = _plain(text)
        kind: Any = raw.get("messageType")
        shape = SHAPES.get(kind)
    except _UNREAD as error:
        return _salvaged(text, invalid(f"not readable as JSON: {_words(error)}"))
    except (AttributeError, TypeError):  # no object; a type that is none
        return _of_no_type(_plain(text), codec)
    if shape is None:
        return _of_no_type(raw, codec)
    codec.learn(*shown(raw, shape), kind)
    problem = respell(raw, shape)
    if problem is not None:
        return _unreadable(raw, problem)
    if codec.thing is not None and raw.get("thingID") in (None, ""):
        raw["thingID"] = codec.thing
    if not tried:
        try:
            message: Message = msgspec.convert(raw, shape.struct)
            return message
        except _UNREAD:
            pass
    return _tidily(raw, shape)


def _tidily(raw: dict[str, Any], shape: Shape) -> Message | Unreadable:
    fields = tidy(raw, shape)
    if isinstance(fields, Problem):
        return _unreadable(raw, fields)
    try:
        message: Message = msgspec.convert(fields, shape.struct)
        return message
    except _UNREAD as error:
        return _unreadable(raw, _misfit(error))


def _by_the_letter_only(found: Message | Unreadable) -> Message | Unreadable:
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


def _of_no_type(data: object, codec: Codec) -> Unreadable:
    if not isinstance(data, dict):
        return Unreadable(problem=invalid("a message is a JSON object"))
    raw = cast("dict[str, Any]", data)
    codec.learn(*shown(raw, None), "")
    kind: object = raw.get("messageType")
    if not isinstance(kind, str):
        detail = "no messageType" if kind is None else "messageType is text"
        return _unreadable(raw, invalid(detail, "$.messageType"))
    return _unreadable(raw, unsupported(kind, nearest(kind, MESSAGES)))


def _misfit(error: BaseException) -> Problem:
    """Return what does not fit, and where."""
    what, _, where = str(error).partition(" - at `")
    path = where.rstrip("`") or "$"
    missing = re.match("Object missing required field `([^`]+)`", what)
    return invalid(what, f"{path}.{missing[1]}" if missing else path)


def _words(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    return str(error)


_ENVELOPE: Final = ("thingID", "messageID", "correlationID")


def _unreadable(raw: dict[str, Any], problem: Problem) -> Unreadable:
    """Keep of the envelope what is there, in either spelling."""
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


def _salvaged(text: str | bytes, problem: Problem) -> Unreadable:
    """Look for the envelope alone, in a text whose payload is not to be built."""
    try:
        return _unreadable(msgspec.structs.asdict(_envelope(text)), problem)
    except _UNREAD:
        return Unreadable(problem=problem)
