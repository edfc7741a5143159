"""What both ends of a connection share: options, the ways to close, correlation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ._windows import DEFAULT_CREDIT

if TYPE_CHECKING:
    from ._messages import Base, Credit

OFFERS: Final = ("acks", "gaps", "streams", "deadlines", "retries")
"""The extensions that a session knows, by the words that a description announces them with."""

NO_THING: Final = "urn:lmos-actors:unknown"
"""The `thingID` of an `error` about a frame that names no thing."""

UNREADABLE_DATA: Final = 1003  # RFC 6455 7.4.1: a type of data that cannot be accepted
TOO_BIG: Final = 1009


@attrs.frozen(kw_only=True)
class SessionOptions:
    """Limits and switches of one session.

    `max_bytes` of one text frame, or binary one; `max_open` requests without an answer and `max_listening`
    observations and subscriptions per connection, which a thing takes until their frames have
    `max_open_bytes`; `max_waiting` frames, or `max_waiting_bytes`, in the outbox before the session is
    `full`; `remembered_runs` finished runs that can still be queried; `credit` that a thing gives the sender
    of an input stream at first; `acks` to acknowledge subscriptions in `spec` habits unasked, too; `strict`
    to refuse ids that are not by the letter; `offers` of our extension, out of `OFFERS`.
    """

    max_bytes: int = 4 << 20
    max_open: int = 1024
    max_listening: int = 1024
    max_open_bytes: int = 64 << 20
    max_waiting: int = 4096
    max_waiting_bytes: int = 16 << 20
    remembered_runs: int = 64
    credit: Credit = DEFAULT_CREDIT
    acks: bool = False
    strict: bool = False
    offers: tuple[str, ...] = OFFERS


@attrs.frozen
class Close:
    """The connection is to be closed with this WebSocket code; nothing that comes after is looked at."""

    code: int
    reason: str


def correlation_of(message: Base) -> str:
    """Give the correlation that an answer to this request carries: its own, else its id (D7)."""
    return message.correlation_id or message.message_id
