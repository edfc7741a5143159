"""The streams of one connection on the thing's side: inputs are received, answers are sent.

Extension: docs/reference/lmos-extensions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors.errors import AgentError, InvalidInput, LocalProtocolError, MailboxFull

from .._codec import UNWRITTEN
from .._frames import MAX_STREAM, Frame, pack_frame
from .._messages import ActionStatus, StreamOpen
from .._outbox import within
from .._streams import BYTES, JSON, Incoming, Outgoing, ReceiveWindow, Run, SendWindow, StreamTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._messages import Credit, StreamOffer

MAX_INPUTS: Final = 16  # streams that one invocation may open
MAX_GATHERED: Final = 1024  # items


class ThingStreams(StreamTable):
    """The streams of a thing: inputs by their odd numbers, answers by their run."""

    def __init__(self, *, max_frame: int | None = None, **others: Any) -> None:
        """Limit an item of an answer to `max_frame` bytes; `others` are the arguments of `StreamTable`."""
        super().__init__(first=2, **others)
        self._max_frame = max_frame

    def accept(self, run: Run, offers: Mapping[str, StreamOffer]) -> dict[str, Incoming] | AgentError:
        """Open the input streams of an invocation, or return the refusal. They get credit only in `ready`."""
        wrong = self._refusal(run, offers)
        self._highest = max([self._highest, *(o.stream for o in offers.values() if o.stream <= MAX_STREAM)])
        if wrong is not None:
            return wrong
        opened = {name: self._opened(run, name, offer) for name, offer in offers.items()}
        for stream in opened.values():
            self._add(stream)
        return opened

    def _refusal(self, run: Run, offers: Mapping[str, StreamOffer]) -> AgentError | None:
        if len(offers) > MAX_INPUTS:
            return InvalidInput(f"an invocation opens {MAX_INPUTS} streams at most", "$.streams")
        if len(self._numbered) + len(offers) > self._max_open:
            return MailboxFull(run.thing_id, self._max_open)
        seen = self._highest
        for name, offer in sorted(offers.items(), key=lambda entry: entry[1].stream):
            if offer.stream % 2 == 0 or not seen < offer.stream <= MAX_STREAM:
                detail = "a consumer's streams have odd numbers, each higher than all before"
                return InvalidInput(detail, f"$.streams.{name}.stream")
            seen = offer.stream
        return None

    def _opened(self, run: Run, name: str, offer: StreamOffer) -> Incoming:
        window = ReceiveWindow(self._window)
        return Incoming(run, name, offer.stream, offer.content_type, window, offer.content_type != JSON)

    def answer(self, run: Run, credit: Credit | None, *, binary: bool = False) -> Outgoing:
        """Open the answer as a stream under that credit; with `binary`, bytes may go in binary frames."""
        stream = Outgoing(run, None, None, JSON, SendWindow(credit), binary)
        self._add(stream)
        return stream

    def output(self, stream: Outgoing, action: str, item: Any) -> tuple[bytes, ...]:
        """Return the frames of an item of the answer, or none if the stream is no longer open.

        This does not check the credit: the host waits for `room`, if it can wait.
        """
        if not stream.open:
            return ()
        opening: tuple[bytes, ...] = ()
        may_pack = stream.binary and (stream.number is not None or self._next <= MAX_STREAM)
        if isinstance(item, bytes) and may_pack:
            opening = () if stream.number is not None else (self._open(stream),)
            frame: bytes = pack_frame(Frame(stream.number or 0, stream.window.number(), item))
        else:
            frame = self._encode(self._status(stream, action, item))
        within(frame, self._max_frame)
        stream.window.spend(len(frame))
        return *opening, frame

    def _open(self, stream: Outgoing) -> bytes:
        stream.number, stream.content_type = self._next, BYTES
        self._next += 2
        self._number(stream)
        message = StreamOpen(
            thing_id=stream.run.thing_id,
            message_id=self._new_id(),
            correlation_id=stream.run.correlation,
            stream=stream.number,
            content_type=BYTES,
        )
        return self._encode(message)

    def _status(self, stream: Outgoing, action: str, item: Any) -> ActionStatus:
        return ActionStatus(
            thing_id=stream.run.thing_id,
            message_id=self._new_id(),
            correlation_id=stream.run.correlation,
            action=action,
            status="in progress",
            output=item,
        )

    def complete(self, run: Run) -> tuple[bytes, ...]:
        """Return the frames to send before the last status of a successful run, and drop its streams."""
        answer = self._runs.get(run, {}).get(None)
        ending = None
        if isinstance(answer, Outgoing) and answer.number is not None:
            ending = self.finish(answer)
        self.drop(run)
        return () if ending is None else (ending,)


class ItemCollector:
    """The items of an answer for a peer without streams, which are sent as one array.

    It stores 1,024 items and `max_bytes` of their JSON at most.
    """

    def __init__(self, max_bytes: int) -> None:
        self.items: list[Any] = []
        self._left = max_bytes - len("[]")

    def add(self, item: Any) -> bool:
        """Add an item; return False, without adding it, if a limit would be exceeded.

        Raise LocalProtocolError for an item without a JSON form.
        """
        try:
            size = len(msgspec.json.encode(item)) + len(",")
        except UNWRITTEN as error:
            raise LocalProtocolError(
                f"this item cannot be written as JSON: {type(error).__name__}"
            ) from error
        if len(self.items) == MAX_GATHERED or size > self._left:
            return False
        self._left -= size
        self.items.append(item)
        return True
