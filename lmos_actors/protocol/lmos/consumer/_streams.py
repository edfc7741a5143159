"""The streams of one connection on the consumer's side: inputs are sent, answers are received.

Extension: docs/reference/lmos-extensions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.errors import NotAllowed

from .._frames import MAX_STREAM
from .._messages import Credit, StreamOffer
from .._streams import (
    JSON,
    Incoming,
    ItemArrived,
    Outgoing,
    ReceiveWindow,
    Run,
    SendWindow,
    StreamTable,
    StreamViolation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._messages import StreamOpen


class ConsumerStreams(StreamTable):
    """The streams of a consumer: inputs by their odd numbers, answers by their run."""

    def __init__(self, **others: Any) -> None:
        """Use odd numbers for this side's streams; `others` are the arguments of `StreamTable`."""
        super().__init__(first=1, **others)

    def offer(self, run: Run, kinds: Mapping[str, str]) -> dict[str, Outgoing]:
        """Open input streams, given as content types by parameter. They have no credit yet.

        `offers(streams)` describes them in the invocation.

        Raises:
            NotAllowed: too many streams are open, or the connection has no numbers left.
        """
        if len(self._numbered) + len(kinds) > self._max_open:
            raise NotAllowed(f"{self._max_open} streams are open on this connection")
        if self._next + 2 * (len(kinds) - 1) > MAX_STREAM:
            raise NotAllowed("this connection has no numbers for streams left")
        return {name: self._opened(run, name, kind) for name, kind in kinds.items()}

    def _opened(self, run: Run, name: str, kind: str) -> Outgoing:
        window = SendWindow(Credit(items=0, bytes=0))
        stream = Outgoing(run, name, self._next, kind, window, kind != JSON)
        self._next += 2
        self._add(stream)
        return stream

    def expect(self, run: Run, credit: Credit | None) -> Incoming:
        """Open a stream for the answer, under the credit in the invocation, or without credit."""
        window = ReceiveWindow(credit, granted=True)
        stream = Incoming(run, None, None, JSON, window, binary=False)
        self._add(stream)
        return stream

    def take_open(self, message: StreamOpen) -> StreamViolation | None:
        """Store the number of the stream that will carry the bytes of an answer."""
        run = self._named.get(message.correlation_id or "")
        number, known = message.stream, self._highest
        self._highest = max(known, min(number, MAX_STREAM))
        answer = None if run is None else self._runs[run].get(None)
        if not isinstance(answer, Incoming):
            self.ignored += 1
            return None
        if number % 2 or not known < number <= MAX_STREAM or answer.number is not None:
            return self._broken(answer.run, f"stream {number} cannot be opened")
        answer.number, answer.content_type, answer.binary = number, message.content_type, True
        self._number(answer)
        return None

    def take_output(self, stream: Incoming, item: Any, size: int) -> ItemArrived | StreamViolation | None:
        """Process an item of the answer that arrived as a status of `size` bytes (`wire_size`)."""
        return self._taken(stream, item, size, None, binary=False)


def offers(streams: Mapping[str, Outgoing]) -> dict[str, StreamOffer]:
    """Return the member of an invocation that describes its input streams."""
    return {
        name: StreamOffer(stream=stream.number or 0, content_type=stream.content_type)
        for name, stream in streams.items()
    }
