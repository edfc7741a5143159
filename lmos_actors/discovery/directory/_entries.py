"""One registration: a description as it was checked, when it was made, and when it ends. No clock, no I/O."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import attrs
import msgspec

from lmos_actors.protocol.td import check

from ._merge import DEEPEST, TooDeep, check_depth, is_array, is_object
from ._options import CENTURY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._options import DirectoryOptions

DISCOVERY_URI: Final = "https://www.w3.org/2022/wot/discovery"
"""The context in which the words of a directory stand."""

LONGEST_ID: Final = 2_048  # characters
TOLD: Final = 50  # faults of one description that are told
SHOWN: Final = 300  # characters of what is told of one
SLACK: Final = 0.001
"""Seconds by which an end may come early: a timer that is set for it may be off by the last digit."""

LATE: Final = "is in the past by the directory's clock, {now}; ttl depends on no clock"

_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_TIMES: Final = ("created", "modified", "expires", "retrieved")

_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen
class Fault:
    """One thing that is wrong with a description: where, and what."""

    field: str
    description: str


class Unfit(Exception):
    """What was given is no description, or not one that may be registered so."""

    def __init__(self, *faults: Fault, status: int = 400, detail: str | None = None) -> None:
        self.faults = faults[:TOLD]
        self.status = status
        self.detail = detail or "the description cannot be registered as it is"
        super().__init__(self.detail)


@attrs.frozen
class Entry:
    """One registration as it is kept. Times are seconds since 1970 by the directory's clock.

    `due` is when one with a `ttl` ends, in the runtime's seconds: they go on evenly, whatever is done to the
    clock of the machine. `text` is the description with its registration, but for the two braces at its end;
    the first `cut` bytes of it are the description alone, but for its brace. `number` is that of the event
    that told its last change.
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

    @property
    def tag(self) -> str:
        """What changes with it, but for when it is told: a weak entity tag, without its `W/`."""
        return f'"{self.number}-{crc32(self.text[self.cut :]):x}"'

    @property
    def description(self) -> bytes:
        """The description alone, as JSON."""
        return self.text[: self.cut] + b"}"

    def told(self, retrieved: bytes = b"") -> bytes:
        """Return it as it goes out; `retrieved` is what `retrieved_at` makes of an instant."""
        return self.text + retrieved + b"}}"

    def data(self) -> dict[str, Any]:
        """Return it as it goes out, as plain data of the caller's own."""
        found: dict[str, Any] = msgspec.json.decode(self.told())
        return found

    def is_due(self, wall: float, tick: float) -> bool:
        """Return whether it has ended: `wall` by the directory's clock, `tick` in the runtime's seconds."""
        if self.due is not None:
            return self.due <= tick + SLACK
        return self.expires is not None and self.expires <= wall + SLACK


@attrs.frozen(kw_only=True)
class Moment:
    """When something happens: by the directory's clock, and in the runtime's seconds."""

    wall: float
    tick: float


def instant(wall: float) -> str:
    """Write an instant as RFC 3339 has it, in UTC, to the millisecond."""
    # round() first: isoformat cuts, and 0.1 + 0.2 would lose a millisecond
    text = datetime.fromtimestamp(round(wall, 3), UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def retrieved_at(wall: float) -> bytes:
    """Return what tells when a description was given out, to be put where its registration ends."""
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
) -> Entry:
    """Make an entry of a checked description; `ends` are its `ttl`, or else its `expires`, if any."""
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
    )


def _registration(created: float, modified: float, expires: float | None, ttl: float | None) -> bytes:
    said = {"created": instant(created), "modified": instant(modified)}
    told: dict[str, Any] = {**said, **({} if expires is None else {"expires": instant(expires)})}
    if ttl is not None:
        told["ttl"] = int(ttl) if ttl.is_integer() else ttl
    return b',"registration":' + _encode(told)[:-1]


# ---- what comes in


def decoded(text: str | bytes | dict[str, Any], options: DirectoryOptions) -> dict[str, Any]:
    """Return the object that a JSON text is. Raises Unfit."""
    if isinstance(text, dict):
        return text
    if len(text) > options.max_text:
        raise too_large(options)
    try:
        data = msgspec.json.decode(text)
    except RecursionError:
        raise _root(f"nested deeper than {DEEPEST}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise _root(f"is no JSON: {str(error)[:SHOWN]}") from None
    if not is_object(data):
        raise _root("has to be a JSON object")
    return data


def _root(description: str) -> Unfit:
    return Unfit(Fault("(root)", description))


def too_large(options: DirectoryOptions) -> Unfit:
    return Unfit(status=413, detail=f"a description here has at most {options.max_bytes} bytes")


def check_id(id: object) -> None:
    """Raise Unfit for what cannot be the id of a description here."""
    if not isinstance(id, str) or not id:
        raise Unfit(Fault("id", "has to be the URI of the thing, as text"))
    if len(id) > LONGEST_ID:
        raise Unfit(Fault("id", f"has more than {LONGEST_ID} characters"))
    if _CONTROL.search(id):
        raise Unfit(Fault("id", "has a space or a control character, which no URI has"))


def checked(data: dict[str, Any], options: DirectoryOptions) -> bytes:
    """Check a description without its registration; return it as JSON, in the context of directories.

    What `check` has an error for is refused, and a description without a member that each has to have; what
    else it warns of is not. Raises Unfit.
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
        Fault(_dotted(found.place), found.message[:SHOWN])
        for found in check(data)
        if found.severity == "error" or (found.tolerated and not found.place)
    ]
    if data.get("@context") is None:
        faults.append(Fault("(root)", "@context is missing"))
    if faults:
        raise Unfit(*faults, detail="it is not a description as TD 1.1 has them")
    told = _encoded({**data, "@context": _with_discovery(data.get("@context"))})
    return told


def _encoded(data: dict[str, Any]) -> bytes:
    try:
        return _encode(data)
    except (ValueError, OverflowError, UnicodeError, TypeError) as error:
        raise _root(f"is no JSON: {str(error)[:SHOWN]}") from None


def _dotted(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place))[:SHOWN] or "(root)"


def _with_discovery(context: Any) -> Any:
    """Add the context of directories: a description with a registration has to have it."""
    if context is None:
        return [DISCOVERY_URI]
    listed = context if is_array(context) else [context]
    return listed if DISCOVERY_URI in listed else [*listed, DISCOVERY_URI]


def split(data: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return a description without its registration, and the registration; None where it has none."""
    rest = {name: value for name, value in data.items() if name != "registration"}
    return rest, data.get("registration")


def ends_of(
    registration: Any, options: DirectoryOptions, at: Moment, before: Entry | None = None
) -> tuple[float | None, float | None]:
    """Return the `ttl` and the `expires` that a registration asks for. Raises Unfit.

    The other members are the directory's own: what a client says there is passed over. With a ttl, so is
    `expires`. `before`: what is registered now, whose end may be said again though it is over.
    """
    if registration is None:
        registration = {}
    if not is_object(registration):
        raise Unfit(Fault("registration", "has to be an object"))
    faults = [*_wrong_times(registration), *_wrong_ttl(registration.get("ttl"), options)]
    if faults:
        raise Unfit(*faults)
    ttl, expires = registration.get("ttl"), registration.get("expires")
    if ttl is not None:
        return float(ttl), None
    if expires is None:
        return options.usual_ttl, None
    return None, _end(expires, options, at, before)


def _wrong_times(registration: dict[str, Any]) -> Iterable[Fault]:
    for name in _TIMES:
        value = registration.get(name)
        if value is not None and not (isinstance(value, str) and _INSTANT.fullmatch(value)):
            yield Fault(f"registration.{name}", "has to be a date-time of RFC 3339, with its offset")


def _wrong_ttl(ttl: Any, options: DirectoryOptions) -> Iterable[Fault]:
    if ttl is None:
        return
    longest = CENTURY if options.max_ttl is None else options.max_ttl
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < math.inf:
        yield Fault("registration.ttl", "has to be a number of seconds above 0")
    elif ttl > longest:
        yield Fault("registration.ttl", f"is at most {longest:g} seconds here")


def _end(expires: str, options: DirectoryOptions, at: Moment, before: Entry | None) -> float:
    try:
        end = datetime.fromisoformat(expires.upper()).timestamp()
    except (ValueError, OverflowError):
        raise Unfit(Fault("registration.expires", "is no date")) from None
    if before is not None and before.expires is not None and abs(end - before.expires) < 0.001:
        return before.expires
    if end <= at.wall:
        raise Unfit(Fault("registration.expires", LATE.format(now=instant(at.wall))))
    if end - at.wall > (options.max_ttl or CENTURY):
        raise Unfit(
            Fault("registration.expires", f"is more than {options.max_ttl or CENTURY:g} seconds away")
        )
    return end
