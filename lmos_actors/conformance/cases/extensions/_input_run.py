"""A run with one input stream, for the cases about streams: what the kit sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.inputs import valid
from lmos_actors.conformance.session import ABSENT
from lmos_actors.conformance.wire import BINARY, ItemFrame, read_item

from ._members import needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent, Session
    from lmos_actors.conformance.target import Call

NEEDS_BYTES: Final = (
    "lmosx:offers with streams, and an action with one input stream of bytes that may be invoked"
)
NEEDS_BOTH: Final = f"{NEEDS_BYTES} and answers by a stream"
PLENTY: Final = {"items": 1_000, "bytes": 1 << 20}
"""Credit that no case uses up."""

_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"


class InputRun:
    """A run with one input stream.

    `credit`: the remaining credit in items and bytes; `granted`: all credit so far, in items. `stop`: the
    server's message that it wants no more items. `items`: the items of the run's answer in order, bytes or
    JSON; `ends`: its final answers; `beside`: other runs on this connection.
    """

    def __init__(
        self, context: CaseContext, session: Session, call: Call, name: str, number: int, sent: Sent
    ) -> None:
        self.context, self.session, self.call = context, session, call
        self.name, self.number, self.sent = name, number, sent
        self.is_binary = False
        self.make: Callable[[], Any] = bytes
        self.credit = [0, 0]
        self.granted = 0
        self.count = 0  # of the sent items
        self.stop: ReceivedMessage | None = None
        self.opening: ReceivedMessage | None = None
        self.closing: ReceivedMessage | None = None
        self.items: list[Any] = []
        self.frames: list[ItemFrame] = []
        self.ends: list[ReceivedMessage] = []
        self.beside: tuple[InputRun, ...] = ()

    @classmethod
    async def begin(
        cls,
        context: CaseContext,
        *,
        binary: bool = False,
        answers: bool = False,
        frames: bool = False,
        session: Session | None = None,
        number: int = 1,
        message_id: str | None = None,
        **members: Any,
    ) -> InputRun:
        """Invoke the action, with one input stream that has the given number.

        `binary`: its items are bytes; `answers`: the output is a stream, too; `frames`: the output is
        requested in binary frames.
        """
        needs(context, "streams")
        call, name, schema = context.roles.fed_call(binary=binary, answers=answers)
        if frames:
            members["binary"] = True
        session = await context.session() if session is None else session
        offer = {"stream": number, "contentType": _BYTES if binary else _JSON}
        if message_id is not None:
            members["message_id"] = message_id
        sent = await session.begin(call, streams={name: offer}, **members)
        feed = cls(context, session, call, name, number, sent)
        feed.is_binary = binary
        random = context.random
        feed.make = (lambda: random.randbytes(24)) if binary else (lambda: valid(schema or {}, random))
        return feed

    # --- what comes

    async def receive(self, within: float | None = None) -> bool:
        """Wait for a message, and note what it shows about this run and those beside it.

        Returns False if no message arrives.
        """
        received = await self.session.next(within)
        if received is None:
            return False
        frame = read_item(bytes.fromhex(received.text)) if received.trouble == "a binary message" else None
        for feed in (self, *self.beside):
            if frame is not None and feed.takes(frame):
                return True
            if frame is None and received.correlation == feed.sent.message_id:
                feed.note(received)
                return True
        return True

    def takes(self, frame: ItemFrame) -> bool:
        """Note a frame if it belongs to the answer of this run, and return whether it does."""
        if self.opening is None or self.opening.data.get("stream") != frame.stream:
            return False
        self.frames.append(frame)
        self.items.append(frame.item)
        return True

    def note(self, received: ReceivedMessage) -> None:
        """Note a message that has the correlation of the run."""
        data = received.data
        if received.kind == "streamCredit":
            if data.get("stream") == self.number and all(type(data.get(each)) is int for each in PLENTY):
                self.credit = [self.credit[0] + data["items"], self.credit[1] + data["bytes"]]
                self.granted += data["items"]
        elif received.kind == "streamEnd":
            if data.get("stream") == self.number:
                self.stop = received
            else:
                self.closing = received
        elif received.kind == "streamOpen":
            self.opening = received
        elif received.is_final:
            self.ends.append(received)
        elif received.get("output") is not ABSENT:
            self.items.append(received.get("output"))

    async def wait(self, done: Callable[[], bool], within: float | None = None) -> bool:
        """Wait until the condition holds, the run is over, or nothing comes; return whether it holds."""
        while not done() and not self.ends:
            if not await self.receive(within):
                break
        return done()

    async def has_room(self, within: float | None = None) -> bool:
        """Wait for credit for an item; return False if there is none, or if no more items are wanted."""
        return (
            await self.wait(lambda: min(self.credit) > 0 or self.stop is not None, within) and not self.stop
        )

    async def end(self) -> ReceivedMessage:
        """Wait for the final answer. Fails if none comes."""
        if not await self.wait(lambda: bool(self.ends)):
            self.context.fail("the run has no final answer")
        return self.ends[0]

    async def quiet(self) -> None:
        """Fail if another message of the run follows its final answer."""
        await self.end()
        seen = len(self.session.received)
        await self.context.flush(self.session)
        while await self.receive(self.session.patience / 4):
            pass
        for received in self.session.received[seen:]:
            if received.correlation == self.sent.message_id:
                self.context.fail(f"{received} came after the final answer")
        if len(self.ends) > 1:
            self.context.fail(f"the run has two final answers: {self.ends[0]}, and {self.ends[1]}")

    async def refused(self, what: str) -> None:
        """Fail unless the only answer of the run is an error with the status 400."""
        end = await self.end()
        if (end.kind, end.status) != ("error", "400"):
            self.context.fail(f"{what} ended in {end}")
        await self.quiet()

    def at_stream(self, end: ReceivedMessage) -> None:
        """Fail if the final answer is an error that does not name the input stream."""
        path = str(end.data.get("path"))
        if end.kind == "error" and (end.status != "400" or not path.startswith(f"$.{self.name}")):
            self.context.fail(f"the run ends with {end} and the path {path}, not 400 with $.{self.name}")

    # --- what is sent

    async def put(self, item: Any, *, sequence: int | None = None, flags: int = 0, reserved: int = 0) -> None:
        """Send an item, with or without credit."""
        sequence = self.count if sequence is None else sequence
        if isinstance(item, bytes):
            data = ItemFrame(self.number, sequence, item, flags, reserved).packed()
            await self.session.socket.send_frame(BINARY, data)
            size = len(data)
        else:
            members: dict[str, Any] = {"stream": self.number, "sequence": sequence, "data": item}
            sent = await self.session.send("streamItem", correlation=self.sent.message_id, **members)
            size = len(sent.text.encode("utf-8", "surrogatepass"))
        self.count += 1
        self.credit = [self.credit[0] - 1, self.credit[1] - size]

    async def feed(self, count: int, item: Any = ABSENT) -> None:
        """Send a number of items, each when there is credit for it. Raises NotOffered if there is none."""
        for _ in range(count):
            if not await self.has_room():
                end = f", but {self.ends[0]}" if self.ends else ""
                self.context.not_offered(
                    f"no credit for item {self.count} came{end} (see extension.input-credit)"
                )
            await self.put(self.make() if item is ABSENT else item)

    async def finish(self, *, sequence: int | None = None, **members: Any) -> None:
        """Send the end of the stream."""
        members = {"stream": self.number, "sequence": self.count if sequence is None else sequence, **members}
        await self.session.send("streamEnd", correlation=self.sent.message_id, **members)

    async def is_completed(self) -> None:
        """Wait for the final answer, and fail unless the run is completed."""
        end = await self.end()
        if (end.kind, end.status) != ("actionStatus", "completed"):
            self.context.fail(f"the run ends with {end}")
