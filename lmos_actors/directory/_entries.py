"""Entries of a directory: checked descriptions with their times of creation and expiry. No clock, no I/O.

An entry keeps its description as the JSON text to be sent, not as data: lists and searches of thousands then
cost no encoding. The registration is the last member of the text, and the two closing braces are left out,
so that the time of retrieval can be added to each answer without decoding (`Entry.encoded`).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import attrs
import msgspec

from lmos_actors._core import read_json
from lmos_actors.discovery import is_array, is_object
from lmos_actors.protocol.td import check

from ._merge_patch import MAX_DEPTH, TooDeep, check_depth
from ._options import CENTURY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._options import DirectoryOptions

DISCOVERY_URI: Final = "https://www.w3.org/2022/wot/discovery"
"""Context of the directory vocabulary."""

MAX_ID: Final = 2_048  # characters
MAX_FAULTS: Final = 50  # faults in one answer
MAX_SHOWN: Final = 300  # characters of one fault
SLACK_SECONDS: Final = 0.001
"""Seconds by which an end may come early: a timer set for it may be off by rounding."""

LATE_MESSAGE: Final = "is in the past by the directory's clock, {now}; ttl depends on no clock"

_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_TIMES: Final = ("created", "modified", "expires", "retrieved")

_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen
class Fault:
    """Fault of a description: the field, and what is wrong with it."""

    field: str
    description: str


class InvalidDescription(Exception):
    """Invalid description, or one that cannot be registered."""

    def __init__(self, *faults: Fault, status: int = 400, detail: str | None = None) -> None:
        self.faults = faults[:MAX_FAULTS]
        self.status = status
        self.detail = detail or "the description cannot be registered as it is"
        super().__init__(self.detail)


@attrs.frozen
class Entry:
    """Stored registration. Times are seconds since 1970 by the directory's clock.

    `due` is the end of a `ttl` in the runtime's monotonic time, which a changed system clock does not
    affect. `text` is the description with its registration, without the two closing braces; its first `cut`
    bytes are the description alone, without its brace. `number` is the event number of its last change.
    `owner` is the principal that has made it, "" if none is known.
    """

    id: str
    text: bytes
    cut: int
    created: float
    modified: float
    expires: float | None
    ttl: float | None
    due: float | None
    anonymous: bool
    number: int
    owner: str = ""

    @property
    def tag(self) -> str:
        """Weak entity tag without `W/`; the time of retrieval does not change it."""
        return f'"{self.number}-{crc32(self.text[self.cut :]):x}"'

    @property
    def description(self) -> bytes:
        """Description without registration, as JSON."""
        return self.text[: self.cut] + b"}"

    def encoded(self, retrieved: bytes = b"") -> bytes:
        """Return the JSON text to send; `retrieved` is a result of `retrieved_at`."""
        return self.text + retrieved + b"}}"

    def data(self) -> dict[str, Any]:
        """Return the description to send, as new plain data."""
        found: dict[str, Any] = msgspec.json.decode(self.encoded())
        return found

    def is_due(self, wall: float, tick: float) -> bool:
        """Return whether the registration has expired; `wall` is wall-clock time, `tick` monotonic time."""
        if self.due is not None:
            return self.due <= tick + SLACK_SECONDS
        return self.expires is not None and self.expires <= wall + SLACK_SECONDS


@attrs.frozen(kw_only=True)
class Moment:
    """Point in time: by the directory's clock, and in the runtime's monotonic time."""

    wall: float
    tick: float


def instant(wall: float) -> str:
    """Return a time as RFC 3339 text, in UTC, to the millisecond."""
    # round() first: isoformat truncates, and 0.1 + 0.2 would lose a millisecond
    text = datetime.fromtimestamp(round(wall, 3), UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def retrieved_at(wall: float) -> bytes:
    """Return the JSON member with the time of retrieval, to be appended to a registration."""
    return b',"retrieved":"' + instant(wall).encode() + b'"'


def entry_of(
    id: str,
    description: bytes,
    *,
    created: float,
    modified: float,
    ends: tuple[float | None, float | None],
    at: Moment,
    anonymous: bool,
    number: int,
    owner: str = "",
) -> Entry:
    """Return the entry of a checked description; `ends` are its `ttl` and `expires`, at most one set."""
    ttl, expires = ends
    if ttl is not None:
        expires = at.wall + ttl
    head = description[:-1]
    return Entry(
        id=id,
        text=head + _registration(created, modified, expires, ttl),
        cut=len(head),
        created=created,
        modified=modified,
        expires=expires,
        ttl=ttl,
        due=None if ttl is None else at.tick + ttl,
        anonymous=anonymous,
        number=number,
        owner=owner,
    )


def _registration(created: float, modified: float, expires: float | None, ttl: float | None) -> bytes:
    times = {"created": instant(created), "modified": instant(modified)}
    encoded: dict[str, Any] = {**times, **({} if expires is None else {"expires": instant(expires)})}
    if ttl is not None:
        encoded["ttl"] = int(ttl) if ttl.is_integer() else ttl
    return b',"registration":' + _encode(encoded)[:-1]


# ---- checks


def decoded(text: str | bytes | dict[str, Any], options: DirectoryOptions) -> dict[str, Any]:
    """Return the object in a JSON text. Raises InvalidDescription."""
    if isinstance(text, dict):
        return text
    if len(text) > options.max_text:
        raise too_large(options)
    try:
        data = read_json(text)
    except RecursionError:
        raise _root(f"nested deeper than {MAX_DEPTH}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise _root(f"is not JSON: {str(error)[:MAX_SHOWN]}") from None
    if not is_object(data):
        raise _root("must be a JSON object")
    return data


def _root(description: str) -> InvalidDescription:
    return InvalidDescription(Fault("(root)", description))


def too_large(options: DirectoryOptions) -> InvalidDescription:
    return InvalidDescription(status=413, detail=f"a description must have at most {options.max_bytes} bytes")


def check_id(id: object) -> None:
    """Check the id of a description. Raises InvalidDescription."""
    if not isinstance(id, str) or not id:
        raise InvalidDescription(Fault("id", "must be the URI of the thing, as text"))
    if len(id) > MAX_ID:
        raise InvalidDescription(Fault("id", f"has more than {MAX_ID} characters"))
    if _CONTROL.search(id):
        raise InvalidDescription(Fault("id", "has a space or a control character, which URIs forbid"))


def checked(data: dict[str, Any], options: DirectoryOptions) -> bytes:
    """Check a description without registration, and return it as JSON with the context of directories.

    Errors of `td.check` and missing mandatory members are refused; other warnings are accepted. Raises
    InvalidDescription.
    """
    try:
        check_depth(data)
    except TooDeep as error:
        raise _root(str(error)) from None
    check_id(data.get("id"))
    text = _encoded(data)
    if len(text) > options.max_bytes:
        raise too_large(options)
    faults = [
        Fault(".".join(map(str, found.place))[:MAX_SHOWN] or "(root)", found.message[:MAX_SHOWN])
        for found in check(data)
        if found.severity == "error" or (found.tolerated and not found.place)
    ]
    if data.get("@context") is None:
        faults.append(Fault("(root)", "@context is missing"))
    if faults:
        raise InvalidDescription(*faults, detail="the description violates TD 1.1")
    context = data["@context"]
    listed = context if is_array(context) else [context]
    if DISCOVERY_URI not in listed:  # descriptions with a registration need the context of directories
        listed = [*listed, DISCOVERY_URI]
    return _encoded({**data, "@context": listed})


def _encoded(data: dict[str, Any]) -> bytes:
    try:
        return _encode(data)
    except (ValueError, OverflowError, UnicodeError, TypeError) as error:
        raise _root(f"is not JSON: {str(error)[:MAX_SHOWN]}") from None


def split(data: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return a description without its registration, and the registration, None without one."""
    rest = {name: value for name, value in data.items() if name != "registration"}
    return rest, data.get("registration")


def ends_of(
    registration: Any, options: DirectoryOptions, at: Moment, before: Entry | None = None
) -> tuple[float | None, float | None]:
    """Return the `ttl` and `expires` of a registration, of which at most one is set.

    Other members belong to the directory, and are ignored. With a `ttl`, `expires` is ignored, too. `before`
    is the present registration; its `expires` may be repeated, even if that time has passed. Raises
    InvalidDescription.
    """
    if registration is None:
        registration = {}
    if not is_object(registration):
        raise InvalidDescription(Fault("registration", "must be an object"))
    faults = [*_time_faults(registration), *_ttl_faults(registration.get("ttl"), options)]
    if faults:
        raise InvalidDescription(*faults)
    ttl, expires = registration.get("ttl"), registration.get("expires")
    if ttl is not None:
        return float(ttl), None
    if expires is None:
        return options.usual_ttl, None
    return None, _end(expires, options, at, before)


def _time_faults(registration: dict[str, Any]) -> Iterable[Fault]:
    for name in _TIMES:
        value = registration.get(name)
        if value is not None and not (isinstance(value, str) and _INSTANT.fullmatch(value)):
            yield Fault(f"registration.{name}", "must be a date-time of RFC 3339, with an offset")


def _ttl_faults(ttl: Any, options: DirectoryOptions) -> Iterable[Fault]:
    if ttl is None:
        return
    longest = CENTURY if options.max_ttl is None else options.max_ttl
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < math.inf:
        yield Fault("registration.ttl", "must be a number of seconds above 0")
    elif ttl > longest:
        yield Fault("registration.ttl", f"must be at most {longest:g} seconds")


def _end(expires: str, options: DirectoryOptions, at: Moment, before: Entry | None) -> float:
    try:
        end = datetime.fromisoformat(expires.upper()).timestamp()
    except (ValueError, OverflowError):
        raise InvalidDescription(Fault("registration.expires", "is not a date")) from None
    if before is not None and before.expires is not None and abs(end - before.expires) < 0.001:
        return before.expires
    if end <= at.wall:
        raise InvalidDescription(Fault("registration.expires", LATE_MESSAGE.format(now=instant(at.wall))))
    if end - at.wall > (options.max_ttl or CENTURY):
        raise InvalidDescription(
            Fault("registration.expires", f"is more than {options.max_ttl or CENTURY:g} seconds away")
        )
    return end
