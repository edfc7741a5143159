"""Credit: the items, and the bytes of items, that a sender may still send. One counting object per stream.

An item may be sent while the credit in items and in bytes is above zero; its bytes may take the credit in
bytes below zero. So no item is too large for a window, no sender has to know a size beforehand, and a
receiver holds at most its window and one item. The bytes of an item are the bytes of the WebSocket message
that carries it (UTF-8 of the text, or binary frame with its header), so both ends count the same. Extension:
docs/reference/lmos-extensions.md, "Credit".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from lmos_actors.errors import LocalProtocolError

from ._frames import HEADER, WRAP, BadFrame, Frame, pack_frame, parse_frame
from ._messages import Credit, StreamCredit, StreamEnd, StreamItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._messages import Message


MAX_CREDIT: Final = (1 << 53) - 1  # credit beyond it is not counted
DEFAULT_CREDIT: Final = Credit(items=16, bytes=262_144)


def wire_size(text: str | bytes) -> int:
    """Return the size of a WebSocket message in bytes; a text counts as UTF-8."""
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


class SendWindow:
    """The sender's side of one stream: the credit that is left, and the number of the next item.

    If `credit` is None (the peer has no credit), there is always room.
    """

    __slots__ = ("bytes", "items", "sequence")

    def __init__(self, credit: Credit | None) -> None:
        self.items: int | None = None
        self.bytes = 0
        self.sequence = 0
        if credit is not None:
            self.items = 0
            self.grant(credit.items, credit.bytes)

    @property
    def room(self) -> bool:
        """Whether one more item of any size may be sent now."""
        return self.items is None or (self.items > 0 and self.bytes > 0)

    def number(self) -> int:
        """Return the number for the next item, from 0, modulo 2**32."""
        number, self.sequence = self.sequence, (self.sequence + 1) % WRAP
        return number

    def spend(self, size: int) -> None:
        """Count an item of `size` bytes as sent; the caller has checked that there is room."""
        if self.items is not None:
            self.items -= 1
            self.bytes -= size

    def grant(self, items: int, size: int) -> bool:
        """Add credit, if it is counted; return whether there is room now and was none before."""
        if self.items is None:
            return False
        before = self.room
        self.items = min(self.items + items, MAX_CREDIT)
        self.bytes = min(self.bytes + size, MAX_CREDIT)
        return self.room and not before


class ReceiveWindow:
    """The receiver's side of one stream: it checks items, and decides when to grant how much credit.

    `window` is the room that it keeps open; credit is returned in steps of half a window. At most
    `window.items` sizes of items are stored. With `granted` the peer already has the first credit (it was in
    the invocation). Without a window (None: the peer has no credit) only the numbers are checked.
    """

    __slots__ = ("_back", "_back_bytes", "_held", "_left", "_left_bytes", "held_bytes", "sequence", "window")

    def __init__(self, window: Credit | None = DEFAULT_CREDIT, *, granted: bool = False) -> None:
        self.window = window
        self.sequence = 0
        self._held: deque[int] = deque()  # sizes of what has arrived and is not consumed
        self.held_bytes = 0  # their sum
        self._left = self._left_bytes = 0  # credit that the sender has
        self._back = self._back_bytes = 0  # credit to be given
        if window is not None:
            self._back, self._back_bytes = window.items, window.bytes
        if granted:
            self.due()

    @property
    def held(self) -> int:
        """The number of items that have arrived and are not consumed."""
        return len(self._held)

    def arrive(self, size: int, sequence: int | None = None) -> str | None:
        """Count an item that has arrived; return the error in it, or None if it is valid.

        `sequence` is its number, None for items that are not numbered.
        """
        if sequence is not None and sequence != self.sequence:
            return f"item {self.sequence} was due, {sequence} came"
        if self.window is not None and (self._left <= 0 or self._left_bytes <= 0):
            return "an item came without credit"
        if sequence is not None:
            self.sequence = (self.sequence + 1) % WRAP
        if self.window is not None:
            self._left -= 1
            self._left_bytes -= size
            self._held.append(size)
            self.held_bytes += size
        return None

    def consume(self) -> Credit | None:
        """Count the oldest item, if there is one, as consumed; return the credit to grant now, if any."""
        if self.window is None or not self._held:
            return None
        size = self._held.popleft()
        self.held_bytes -= size
        self._back += 1
        self._back_bytes += size
        half = 2 * self._back >= self.window.items or 2 * self._back_bytes >= self.window.bytes
        return self.due() if half else None

    def due(self) -> Credit | None:
        """Return all credit that has not been granted yet, including the first, or None if there is none."""
        if not self._back and not self._back_bytes:
            return None
        credit = Credit(items=self._back, bytes=self._back_bytes)
        self._left += credit.items
        self._left_bytes += credit.bytes
        self._back = self._back_bytes = 0
        return credit


# --- the streams of one connection, as tables: which are open, what they may carry, what has come too
# late
#
# Extension: docs/reference/lmos-extensions.md. A consumer's streams have odd numbers and carry the input of
# an invocation; a thing's have even ones and carry the bytes of its answer. A number is used once. Both
# sides keep the streams of an invocation until its final answer: what comes for one of them after its end
# is a violation until then, and late afterwards. What is late, or belongs to no stream, is counted and
# otherwise ignored.

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"


class Run(Protocol):
    """An invocation, as its streams see it: a request to a thing, or a consumer's pending run.

    Runs are compared by identity.
    """

    @property
    def thing_id(self) -> str:
        """The id of the thing that executes the run."""
        ...

    @property
    def message_id(self) -> str:
        """The `messageID` of the invocation."""
        ...

    @property
    def correlation(self) -> str:
        """The correlation id of all answers at a thing, or the `messageID` at a consumer."""
        ...


@attrs.define(eq=False)
class Incoming:
    """An incoming stream: an input, with its parameter as `name`, or the answer, with None.

    `number` is None while an answer has no binary frames. `open` is False once the stream has ended or was
    stopped, or its run is over. `binary`: its items are bytes in binary frames.
    """

    run: Run
    name: str | None
    number: int | None
    content_type: str
    window: ReceiveWindow
    binary: bool
    open: bool = True
    stopped: bool = False
    host: Any = None
    """The object to which the host passes the items; the host sets it."""

    def __repr__(self) -> str:
        return _shown(self)


@attrs.define(eq=False)
class Outgoing:
    """An outgoing stream: an input, with its parameter as `name`, or the answer, with None.

    `open` is False once the stream has ended, the peer has stopped it, or its run is over. Items that are
    sent after that are dropped without an error, because the peer may stop a stream at any time. `binary`:
    all items are bytes in binary frames; in an answer, some may be.
    """

    run: Run
    name: str | None
    number: int | None
    content_type: str
    window: SendWindow
    binary: bool
    open: bool = True

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def room(self) -> bool:
        """Whether an item may be sent now."""
        return self.open and self.window.room


Stream: TypeAlias = Incoming | Outgoing
"""Any stream."""


def _shown(stream: Stream) -> str:
    """Return a stream as text. Its run is left out, because the run refers to the stream in turn."""
    what = "answer" if stream.name is None else f"input {stream.name!r}"
    number = "" if stream.number is None else f" {stream.number}"
    return f"<{what} of {stream.run.message_id}, stream{number} {'open' if stream.open else 'closed'}>"


@attrs.frozen
class ItemArrived:
    """The arrival of an item. After use, the host calls `consumed`, which grants the sender new credit."""

    run: Run
    stream: Incoming
    item: Any


@attrs.frozen
class StreamFinished:
    """The end of a stream: a normal end if `reason` is None; otherwise its sender has broken it off."""

    run: Run
    stream: Incoming
    reason: str | None


@attrs.frozen
class CreditArrived:
    """The arrival of credit for a stream that had no room left."""

    run: Run
    stream: Outgoing


@attrs.frozen
class StreamStopped:
    """A report that the receiver has stopped this stream. The run continues."""

    run: Run
    stream: Outgoing
    reason: str | None


@attrs.frozen
class StreamViolation:
    """A violation of stream rules by the peer. The run's streams are closed, and only the run must end."""

    run: Run
    detail: str


class StreamTable:
    """The part of a stream table that both sides share.

    `first` is the first number of our own streams, `window` the credit that this side gives to input streams.
    `encode` returns the text of a message, so that its size is known. The host must send the returned frames
    at once, in order. No message of a peer makes a method raise.
    """

    def __init__(
        self,
        *,
        first: int,
        encode: Callable[[Message], bytes],
        new_id: Callable[[], str],
        window: Credit = DEFAULT_CREDIT,
        max_open: int = 1024,
    ) -> None:
        self.ignored: int = 0  # what came late, or for no stream
        self.held: int = 0  # bytes of items that have arrived and are not consumed
        self._encode = encode
        self._new_id = new_id
        self._window = window
        self._max_open = max_open
        self._next: int = first  # of our numbers
        self._highest = 0  # of their numbers so far
        self._count = 0
        self._numbered: dict[int, Stream] = {}
        self._named: dict[str, Run] = {}
        self._runs: dict[Run, dict[str | None, Stream]] = {}  # by the name of the parameter, None: the answer

    def __len__(self) -> int:
        return self._count

    # -- what comes in

    def take_frame(
        self, data: bytes
    ) -> tuple[ItemArrived | StreamFinished | StreamViolation, ...] | BadFrame:
        """Process a binary frame. After a BadFrame (another format), the connection must close with 1003."""
        frame = parse_frame(data)
        if isinstance(frame, BadFrame):
            stream = None if frame.stream is None else self._numbered.get(frame.stream)
            return frame if stream is None else (self._broken(stream.run, frame.detail),)
        stream = self._numbered.get(frame.stream)
        news = self._taken(stream, frame.payload, HEADER + len(frame.payload), frame.sequence, binary=True)
        if frame.last and isinstance(news, ItemArrived):
            return news, self._finished(news.stream, None)
        return () if news is None else (news,)

    def take_item(self, message: StreamItem, size: int) -> ItemArrived | StreamViolation | None:
        """Process an item of JSON; `size` is the size of the message in bytes (`wire_size`)."""
        stream = self._numbered.get(message.stream)
        if stream is None:
            return self._unknown(message.stream, message.correlation_id)
        return self._taken(stream, message.data, size, message.sequence, binary=False)

    def take_end(self, message: StreamEnd) -> StreamFinished | StreamStopped | StreamViolation | None:
        """Process the end of an incoming stream, or the request to stop an outgoing one."""
        stream = self._numbered.get(message.stream)
        if stream is None:
            return self._unknown(message.stream, message.correlation_id)
        if not stream.open:
            self.ignored += 1
            return None
        if isinstance(stream, Outgoing):
            stream.open = False
            return StreamStopped(stream.run, stream, message.reason)
        came = stream.window.sequence
        if message.reason is None and message.sequence != came:
            detail = f"stream {message.stream} ended after {message.sequence} items, {came} came"
            return self._broken(stream.run, detail)
        return self._finished(stream, message.reason)

    def take_credit(self, message: StreamCredit) -> CreditArrived | None:
        """Add credit to one of our streams, given by its number, or to the answer of the named run."""
        run = self._named.get(message.correlation_id or "")
        if message.stream is not None:
            stream = self._numbered.get(message.stream)
        else:
            stream = None if run is None else self._runs[run].get(None)
        if not isinstance(stream, Outgoing) or not stream.open:
            self.ignored += 1
            return None
        granted = stream.window.grant(message.items, message.bytes)
        return CreditArrived(stream.run, stream) if granted else None

    def _taken(
        self, stream: Stream | None, item: Any, size: int, sequence: int | None, *, binary: bool
    ) -> ItemArrived | StreamViolation | None:
        if stream is None or (isinstance(stream, Incoming) and stream.stopped):
            self.ignored += 1
            return None
        if isinstance(stream, Outgoing):
            return self._broken(stream.run, f"stream {stream.number} goes the other way")
        if not stream.open:
            return self._broken(stream.run, f"an item came after the end of stream {stream.number}")
        if sequence is not None and binary != stream.binary:
            return self._broken(
                stream.run, f"an item of {stream.content_type} came in the wrong kind of frame"
            )
        before = stream.window.held_bytes
        wrong = stream.window.arrive(size, sequence)
        if wrong:
            return self._broken(stream.run, wrong)
        self.held += stream.window.held_bytes - before
        return ItemArrived(stream.run, stream, item)

    def _unknown(self, number: int, correlation: str | None) -> StreamViolation | None:
        """Handle a message for a stream that is not open: a violation if the stream was never opened."""
        run = self._named.get(correlation or "")
        ours = number % 2 == self._next % 2
        if run is not None and (number >= self._next if ours else number > self._highest):
            return self._broken(run, f"there is no stream {number}")
        self.ignored += 1
        return None

    def _finished(self, stream: Incoming, reason: str | None) -> StreamFinished:
        stream.open = False
        return StreamFinished(stream.run, stream, reason)

    def _broken(self, run: Run, detail: str) -> StreamViolation:
        self.drop(run)
        return StreamViolation(run, detail)

    # -- what goes out

    def send(self, stream: Outgoing, item: Any) -> bytes | None:
        """Return the frame of an item of an input stream, or None if the stream is not open.

        With None, nothing is sent.

        Raises:
            LocalProtocolError: there is no room, or an item of a stream of bytes is not bytes.
        """
        if not self._goes_on(stream):
            return None
        if not stream.window.room:
            raise LocalProtocolError(f"stream {stream.number} has no credit left")
        frame = self._packed(stream, item) if stream.binary else self._encode(self._item(stream, item))
        stream.window.number()
        stream.window.spend(len(frame))
        return frame

    def _packed(self, stream: Outgoing, item: object) -> bytes:
        if not isinstance(item, bytes):
            raise LocalProtocolError(
                f"items of {stream.content_type} are bytes, this is {type(item).__name__}"
            )
        return pack_frame(Frame(stream.number or 0, stream.window.sequence, item))

    def _item(self, stream: Outgoing, item: Any) -> StreamItem:
        return StreamItem(
            thing_id=stream.run.thing_id,
            message_id=self._new_id(),
            correlation_id=stream.run.correlation,
            stream=stream.number or 0,
            sequence=stream.window.sequence,
            data=item,
        )

    def finish(self, stream: Outgoing, reason: str | None = None) -> bytes | None:
        """Return the frame that ends a stream, or breaks it off for a reason; None if it is not open."""
        if not self._goes_on(stream):
            return None
        frame = self._encode(self._end(stream, reason))
        stream.open = False
        return frame

    def stop(self, stream: Incoming, reason: str) -> bytes | None:
        """Return the frame that stops an input stream; None if it is not open."""
        if not self._goes_on(stream):
            return None
        frame = self._encode(self._end(stream, reason))
        stream.open, stream.stopped = False, True
        return frame

    def _goes_on(self, stream: Stream) -> bool:
        """Return whether a stream is open. Raise LocalProtocolError if another connection has it."""
        if stream.open and stream.run not in self._runs:
            raise LocalProtocolError("this stream belongs to another connection")
        return stream.open

    def _end(self, stream: Stream, reason: str | None) -> StreamEnd:
        return StreamEnd(
            thing_id=stream.run.thing_id,
            message_id=self._new_id(),
            correlation_id=stream.run.correlation,
            stream=stream.number or 0,
            sequence=stream.window.sequence,
            reason=reason,
        )

    def ready(self, stream: Incoming) -> bytes | None:
        """Return the frame with the first credit, once the host can accept items; None if already given."""
        return self._credit(stream, stream.window.due()) if self._goes_on(stream) else None

    def consumed(self, stream: Incoming) -> bytes | None:
        """Count the host's oldest item as consumed; return the frame with new credit, if it is due."""
        goes_on = self._goes_on(stream)
        if stream.run not in self._runs:  # it is over: nothing of it is held any more
            return None
        before = stream.window.held_bytes
        credit = stream.window.consume()
        self.held += stream.window.held_bytes - before
        return self._credit(stream, credit) if goes_on else None

    def _credit(self, stream: Incoming, credit: Credit | None) -> bytes | None:
        if credit is None:
            return None
        message = StreamCredit(
            thing_id=stream.run.thing_id,
            message_id=self._new_id(),
            correlation_id=stream.run.correlation,
            stream=None if stream.name is None else stream.number,
            items=credit.items,
            bytes=credit.bytes,
        )
        return self._encode(message)

    # -- which there are

    def _add(self, stream: Stream) -> None:
        self._named[stream.run.message_id] = stream.run
        self._runs.setdefault(stream.run, {})[stream.name] = stream
        self._count += 1
        self._number(stream)

    def _number(self, stream: Stream) -> None:
        if stream.number is not None:
            self._numbered[stream.number] = stream

    def drop(self, run: Run) -> None:
        """Forget the streams of a run that has its final answer; later messages for them count as late."""
        held = self._runs.pop(run, None)
        if held is None:
            return
        if self._named.get(run.message_id) is run:
            del self._named[run.message_id]
        for stream in held.values():
            stream.open = False
            if isinstance(stream, Incoming):
                self.held -= stream.window.held_bytes
            self._count -= 1
            if stream.number is not None:
                del self._numbered[stream.number]

    def close(self) -> None:
        """Forget all streams, because the connection has ended."""
        for run in tuple(self._runs):
            self.drop(run)
