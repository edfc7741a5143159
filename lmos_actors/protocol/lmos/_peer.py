"""Definitions for both ends of a connection: options, close codes, correlation."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors.errors import hint_at

from ._streams import DEFAULT_CREDIT

if TYPE_CHECKING:
    from ._messages import Base, Credit

OFFERS: Final = ("acks", "gaps", "streams", "deadlines", "retries", "tells", "keys", "waits", "questions")
"""The extensions that a session knows, by the names that descriptions use for them."""

NO_THING: Final = "urn:lmos-actors:unknown"
"""The `thingID` of an `error` about a frame that names no thing."""

UNREADABLE_DATA: Final = 1003  # RFC 6455 7.4.1: a type of data that cannot be accepted
TOO_BIG: Final = 1009


def _at_least(least: int) -> Any:
    """Return a validator for whole numbers of at least `least`."""

    def check(_: object, attribute: attrs.Attribute[int], value: object) -> None:
        if type(value) is not int or value < least:
            raise ValueError(f"{attribute.name} is a whole number of at least {least}, not {value!r}")

    return check


def _seconds(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    if type(value) not in (int, float) or not 0 < cast("float", value) < inf:
        raise ValueError(f"{attribute.name} is a number of seconds above 0, not {value!r}")


def _known_offers(_: object, attribute: attrs.Attribute[tuple[str, ...]], value: object) -> None:
    if not isinstance(value, tuple):
        raise ValueError(f"offers is a tuple of words, not {value!r}")
    for word in cast("tuple[object, ...]", value):
        if word not in OFFERS:
            hint = hint_at(str(word), OFFERS) or f"; known are {', '.join(OFFERS)}"
            raise ValueError(f"a session has no extension {word!r}{hint}")


@attrs.frozen(kw_only=True)
class SessionOptions:
    """The limits and switches of one session.

    `max_bytes` limits one text or binary frame. Per connection, `max_open` limits requests without an answer,
    and `max_listening` limits observations and subscriptions; a thing accepts no more of either once their
    frames take `max_open_bytes`. With more than `max_waiting` frames or `max_waiting_bytes` in the outbox the
    session is `full`. `remembered_runs` finished runs can still be queried. `credit` is the first credit that
    a thing gives the sender of an input stream. With `acks` a peer with `spec` habits gets acknowledgements
    of its subscriptions without asking for them. `strict` refuses messages that deviate from the letter of
    the specification. `offers` are the extensions of the session, out of `OFFERS`.

    `max_streams` limits the numbered streams that are open on a connection. For `repeat_seconds` a server
    remembers answers, and continues the runs of a peer that is cut off, because the peer may ask again. It
    remembers the answers to `remembered_peers` peers without a connection, and `remembered_bytes` of answers
    over all peers.

    Raises:
        ValueError: a limit is not a whole number, or below 1 (0 for `max_open`, `max_listening` and
            `remembered_runs`); seconds are not above 0; or an offer is not known.
    """

    max_bytes: int = attrs.field(default=4 << 20, validator=_at_least(1))
    max_open: int = attrs.field(default=1024, validator=_at_least(0))
    max_listening: int = attrs.field(default=1024, validator=_at_least(0))
    max_open_bytes: int = attrs.field(default=64 << 20, validator=_at_least(1))
    max_waiting: int = attrs.field(default=4096, validator=_at_least(1))
    max_waiting_bytes: int = attrs.field(default=16 << 20, validator=_at_least(1))
    remembered_runs: int = attrs.field(default=64, validator=_at_least(0))
    credit: Credit = DEFAULT_CREDIT
    acks: bool = False
    strict: bool = False
    offers: tuple[str, ...] = attrs.field(default=OFFERS, validator=_known_offers)
    max_streams: int = attrs.field(default=1024, validator=_at_least(1))
    repeat_seconds: float = attrs.field(default=60.0, validator=_seconds)
    remembered_peers: int = attrs.field(default=256, validator=_at_least(1))
    remembered_bytes: int = attrs.field(default=64 << 20, validator=_at_least(1))


@attrs.frozen
class Close:
    """A demand to close the connection with this WebSocket code. Later frames are ignored."""

    code: int
    reason: str


def correlation_of(message: Base) -> str:
    """Return the correlation id for the answer to a request: the request's correlation id, or else its id."""
    return message.correlation_id or message.message_id
