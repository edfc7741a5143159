"""The connection that the parts of a consumer's session share: outbox, extensions of the peer, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.errors import LocalProtocolError, MailboxFull

from .._outbox import Outbox
from .._pending import ConsumerRequest, Feed
from ._outcomes import StrayMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .._codec import Codec, Unreadable
    from .._messages import Base
    from .._peer import SessionOptions
    from ._outcomes import Outcomes


class ConsumerConnection:
    """One connection as the parts of a session see it; `known` has the extensions that both sides support.

    A peer with kotlin-wot's habits has none, whatever its description contains.
    """

    __slots__ = (
        "closed",
        "codec",
        "encode",
        "known",
        "kotlin",
        "late",
        "new_id",
        "options",
        "ours",
        "outbox",
        "strays",
    )

    def __init__(
        self,
        codec: Codec,
        new_id: Callable[[], str],
        options: SessionOptions,
        offers: tuple[str, ...],
        wake: Callable[[], object] | None,
    ) -> None:
        self.codec = codec
        self.new_id = new_id
        self.options = options
        self.kotlin = codec.dialect.habits == "kotlin-wot"
        self.ours = bool(offers) and not self.kotlin
        self.known = tuple(word for word in options.offers if word in offers and self.ours)
        self.encode = codec.encode
        self.outbox = Outbox(
            self.encode,
            taken=_mark,
            wake=wake,
            max_waiting=options.max_waiting,
            max_bytes=options.max_waiting_bytes,
        )
        self.closed = False
        self.strays = 0
        self.late = 0

    def admit(self, thing: str, held: int, limit: int, more: int = 1) -> None:
        """Check that there is room for `more` requests; `held` of at most `limit` are open already.

        Raises:
            LocalProtocolError: the session is closed, or no thing is named.
            MailboxFull: too many are open, or too much waits to be sent.
        """
        if self.closed:
            self.check_open()  # raises
        if not thing:
            raise LocalProtocolError("a request names its thing")
        if held + more > limit:
            raise MailboxFull(thing, limit)
        if self.outbox.full:
            raise MailboxFull(thing, self.options.max_waiting)

    def check_open(self) -> None:
        """Raise LocalProtocolError once the session is closed."""
        if self.closed:
            raise LocalProtocolError("the session is closed")

    def stray(self, message: Base | Unreadable, why: str) -> Outcomes:
        """Count a frame that answers no request, and return the outcome that reports it."""
        self.strays += 1
        return (StrayMessage(message, why),)

    def come_late(self) -> Outcomes:
        """Count a frame that arrives after its request or feed has ended here."""
        self.late += 1
        return ()


def _mark(key: Hashable) -> None:
    """Mark a request or feed as sent, because its frame has been taken from the outbox."""
    if isinstance(key, ConsumerRequest):
        key.sent = True
        if key.whole is not None:
            key.whole.sent = True
    elif isinstance(key, Feed):
        key.sent = True
