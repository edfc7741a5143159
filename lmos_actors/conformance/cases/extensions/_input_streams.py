"""Input streams, an extension of lmos_actors: items of the kit under the server's credit, and their ends."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import same, samples, valid
from lmos_actors.conformance.session import ABSENT, Chapter
from lmos_actors.conformance.wire import BINARY, LAST, ItemFrame, read_item

from ._members import needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent, Session
    from lmos_actors.conformance.target import Call

INPUT_STREAMS = Chapter()

_INPUT: Final = extension("Streams, Input streams")
_ANSWERS: Final = extension("Streams, Answers as streams")
_FRAMES: Final = extension("Streams, Binary frames")
_CREDIT: Final = extension("Streams, Credit")
_ORDER: Final = extension("Streams, Order")
_VIOLATIONS: Final = extension("Streams, Violations")
_NEEDS: Final = "lmosx:offers with streams, and an action with one input stream of JSON that may be invoked"
_NEEDS_BYTES: Final = (
    "lmosx:offers with streams, and an action with one input stream of bytes that may be invoked"
)
_NEEDS_BOTH: Final = f"{_NEEDS_BYTES} and answers by a stream"
_PLENTY: Final = {"items": 1_000, "bytes": 1 << 20}
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_MOST: Final = 600  # items
_MOST_BYTES: Final = 1 << 20
_REFUSED: Final = "an error with the status 400 as the only end of the run"


class _Feed:
    """A run with one input stream. `credit`: what is left of it; `granted`: all of it, in items.

    `stop`: the message that no more items are wanted; `items`: of its answer, as they came, bytes or JSON;
    `ends`: final answers; `beside`: another run on this connection.
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
        self.count = 0  # of the items that were sent
        self.stop: ReceivedMessage | None = None
        self.opening: ReceivedMessage | None = None
        self.closing: ReceivedMessage | None = None
        self.items: list[Any] = []
        self.frames: list[ItemFrame] = []
        self.ends: list[ReceivedMessage] = []
        self.beside: tuple[_Feed, ...] = ()

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
    ) -> _Feed:
        """Invoke the action, with one stream of that number.

        `binary`: its items are bytes; `answers`: the output is a stream too; `frames`: of binary frames.
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
        """Wait for a message, and note what it says about the runs here; False if none comes."""
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
        """Take an item of the answer, if it is one."""
        if self.opening is None or self.opening.data.get("stream") != frame.stream:
            return False
        self.frames.append(frame)
        self.items.append(frame.item)
        return True

    def note(self, received: ReceivedMessage) -> None:
        """Note a message that has the correlation of the run."""
        data = received.data
        if received.kind == "streamCredit":
            if data.get("stream") == self.number and all(type(data.get(each)) is int for each in _PLENTY):
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
        """Wait until it is so, or the run is over, or nothing comes; return whether it is so."""
        while not done() and not self.ends:
            if not await self.receive(within):
                break
        return done()

    async def has_room(self, within: float | None = None) -> bool:
        """Wait for credit for an item; False if none comes, or none is needed any longer."""
        return (
            await self.wait(lambda: min(self.credit) > 0 or self.stop is not None, within) and not self.stop
        )

    async def end(self) -> ReceivedMessage:
        """Wait for the final answer. Fails where none comes."""
        if not await self.wait(lambda: bool(self.ends)):
            self.context.fail("the run has no final answer")
        return self.ends[0]

    async def quiet(self) -> None:
        """Fail if anything more of the run comes behind its final answer."""
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
        """Fail if an answer is an error that is not about the stream."""
        path = str(end.data.get("path"))
        if end.kind == "error" and (end.status != "400" or not path.startswith(f"$.{self.name}")):
            self.context.fail(f"the run ends with {end} and the path {path}, not 400 with $.{self.name}")

    # --- what is sent

    async def put(self, item: Any, *, sequence: int | None = None, flags: int = 0, reserved: int = 0) -> None:
        """Send an item, whether there is credit or not."""
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
        """Send so many items under credit. Raises NotOffered where no credit comes."""
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
        """Fail unless the run is completed."""
        end = await self.end()
        if (end.kind, end.status) != ("actionStatus", "completed"):
            self.context.fail(f"the run ends with {end}")


@INPUT_STREAMS.case(
    "extension.input",
    "A run with an input stream is completed after its end",
    section=_INPUT,
    expected="one final answer, `completed`, after three items that fit the schema, and streamEnd with "
    "their count",
    needs=_NEEDS,
)
async def input_stream(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(3)
    await feed.finish()
    await feed.is_completed()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-empty",
    "An input stream may have no items",
    section=_INPUT,
    expected="a final answer after streamEnd with the count 0, which needs no credit",
    needs=_NEEDS,
)
async def input_empty(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.finish()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-credit",
    "A stream gets its first credit",
    section=_INPUT,
    expected="streamCredit with the number of the stream, the correlationID of the run, and items and "
    "bytes above 0",
    needs=_NEEDS,
)
async def input_credit(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    if not await feed.has_room():
        seen = [str(each) for each in feed.session.received] or ["nothing"]
        context.fail(f"no credit for stream {feed.number} came, but {', '.join(seen[:3])}")


@INPUT_STREAMS.case(
    "extension.input-more",
    "Credit comes back for items that were used",
    section=_CREDIT,
    expected="more credit, before it is used up or after, so that the stream can go on",
    needs=f"{_NEEDS}, with a window of {_MOST} items at most",
)
async def input_more(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    if not await feed.has_room():
        context.not_offered("no credit comes (see extension.input-credit)")
    wanted = 3 * feed.credit[0]
    if wanted > 3 * _MOST:
        context.not_offered(f"the first credit is for {feed.credit[0]} items")
    while feed.count < wanted:
        if not await feed.has_room():
            context.fail(
                f"no credit comes after {feed.count} items; the answer so far: {feed.ends or 'none'}"
            )
        await feed.put(feed.make())


@INPUT_STREAMS.case(
    "extension.input-over",
    "No item is used without credit",
    section=_CREDIT,
    expected=f"{_REFUSED}, or credit for all items, where more are sent than there is credit for",
    needs=f"{_NEEDS}, with a window of {_MOST} items at most",
)
async def input_over(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    if not await feed.has_room():
        context.not_offered("no credit comes (see extension.input-credit)")
    sent = 3 * feed.credit[0]
    if sent > 3 * _MOST:
        context.not_offered(f"the first credit is for {feed.credit[0]} items")
    for _ in range(sent):
        await feed.put(feed.make())
    await feed.finish()
    end = await feed.end()
    if end.kind == "actionStatus" and feed.granted < sent:
        context.fail(f"{sent} items came to {end}, and there was credit for {feed.granted}")
    if end.kind == "error" and end.status != "400":
        context.fail(f"items without credit ended in {end}")
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-large",
    "An item may take the bytes below zero",
    section=_CREDIT,
    expected="no error for an item of more bytes than there is credit for, and credit for the next one",
    needs=f"{_NEEDS_BYTES}, with a window of 1 MiB at most",
)
async def input_large(context: CaseContext) -> None:
    feed = await _Feed.begin(context, binary=True)
    if not await feed.has_room():
        context.not_offered("no credit comes (see extension.input-credit)")
    if feed.credit[1] > _MOST_BYTES:
        context.not_offered(f"the first credit is for {feed.credit[1]} bytes")
    await feed.put(bytes(feed.credit[1] + 1))
    if not await feed.has_room():
        context.fail(f"no credit comes after an item of {-feed.credit[1]} bytes too many, but {feed.ends}")
    await feed.feed(1)


@INPUT_STREAMS.case(
    "extension.input-held",
    "An input gets no credit while its answer gets none",
    section=_CREDIT,
    expected=f"no more credit after {_MOST} items at most, if each of them is an item of an answer without "
    "credit, and more as soon as the answer has some",
    needs=f"{_NEEDS_BOTH}, each time an item comes",
)
async def input_held(context: CaseContext) -> None:
    feed = await _Feed.begin(context, binary=True, answers=True, credit={"items": 2, "bytes": _MOST_BYTES})
    await feed.feed(2)
    if not await feed.wait(lambda: len(feed.items) >= 2):
        context.not_offered(f"{feed.call.action} does not answer two items by two")
    while await feed.has_room(within=feed.session.patience / 4):
        if feed.count > _MOST:
            context.fail(f"{feed.granted} items were granted, though the answer has credit for 2")
        await feed.put(feed.make())
    if feed.ends:
        context.fail(f"the run ends with {feed.ends[0]}")
    members: dict[str, Any] = dict(_PLENTY)
    await feed.session.send("streamCredit", correlation=feed.sent.message_id, **members)
    if not await feed.has_room():
        context.fail("the input gets no credit when the answer does")


@INPUT_STREAMS.case(
    "extension.input-sequence",
    "Items are counted",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if an item has the number of the one after the next",
    needs=_NEEDS,
)
async def input_sequence(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(2)
    await feed.put(feed.make(), sequence=3)
    await feed.finish()
    await feed.refused("an item out of sequence")


@INPUT_STREAMS.case(
    "extension.input-count",
    "The end of a stream counts its items",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if streamEnd has another count",
    needs=_NEEDS,
)
async def input_count(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(2)
    await feed.finish(sequence=3)
    await feed.refused("a wrong count")


@INPUT_STREAMS.case(
    "extension.input-kind",
    "Items of bytes come in binary frames alone",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if a streamItem comes on a stream of binary frames",
    needs=_NEEDS_BYTES,
)
async def input_kind(context: CaseContext) -> None:
    feed = await _Feed.begin(context, binary=True)
    await feed.feed(1)
    await feed.put("aXRlbQ==")
    await feed.finish()
    await feed.refused("a streamItem on a stream of bytes")


@INPUT_STREAMS.case(
    "extension.input-json",
    "Items of JSON come as streamItem alone",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if a binary frame comes on a stream of JSON",
    needs=_NEEDS,
)
async def input_json(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(1)
    await feed.put(b"1")
    await feed.finish()
    await feed.refused("a binary frame on a stream of JSON")


@INPUT_STREAMS.case(
    "extension.input-wrong",
    "An item that does not fit its schema breaks its stream off",
    section=_INPUT,
    expected="streamEnd for the stream or the final answer; this answer is the only one, and an error of "
    "it has the status 400 and the path of the stream; what is sent on the stream afterwards is ignored",
    needs=f"{_NEEDS}, with a schema that not everything fits",
)
async def input_wrong(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    _, _, schema = context.roles.fed_call(binary=False)
    wrong = [each for each in samples(schema or {}, context.random) if each.kind == "invalid"]
    if not wrong:
        context.not_offered(f"nothing was found that does not fit {feed.name}")
    await feed.feed(2)
    await feed.feed(1, wrong[0].value)
    if await feed.has_room():  # what would have been sent meanwhile
        await feed.put(feed.make())
    await feed.finish()
    end = await feed.end()
    if feed.stop is None and (end.kind, end.status) == ("actionStatus", "completed"):
        context.fail(f"{wrong[0].value!r} ({wrong[0].why}) was taken: {end}")
    feed.at_stream(end)
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-broken",
    "A run ends whose input stream breaks off",
    section=_INPUT,
    expected="one final answer after streamEnd with a reason; an error has the status 400 and the path of "
    "the stream",
    needs=_NEEDS,
)
async def input_broken(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(2)
    await feed.finish(reason="the microphone was unplugged")
    feed.at_stream(await feed.end())
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-cancel",
    "A run is cancelled in the middle of its input stream",
    section=_ORDER,
    expected="one final answer, that of the cancel, and no credit after it; items and an end that were under "
    "way are ignored",
    needs=_NEEDS,
)
async def input_cancel(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(2)
    await feed.session.send("cancelAction", name=feed.call.action, correlation=feed.sent.message_id)
    await feed.put(feed.make())
    await feed.finish()
    end = await feed.end()
    if end.kind != "actionStatus" or end.status not in ("failed", "cancelled", "completed"):
        context.fail(f"the cancel brought {end}")
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-late",
    "Items for a run that is over are ignored",
    section=_ORDER,
    expected="no answer to an item and an end that come after the final answer, and the connection as it was",
    needs=_NEEDS,
)
async def input_late(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(1)
    await feed.finish()
    await feed.end()
    await feed.put(feed.make())
    await feed.finish()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-alone",
    "A violation ends its run alone",
    section=_VIOLATIONS,
    expected="the completion of another run with an input stream on the same connection",
    needs=_NEEDS,
)
async def input_alone(context: CaseContext) -> None:
    feed = await _Feed.begin(context)
    await feed.feed(1)
    other = await _Feed.begin(context, session=feed.session, number=3)
    feed.beside, other.beside = (other,), (feed,)
    await other.feed(1)
    await feed.put(feed.make(), sequence=7)
    if not await feed.wait(lambda: bool(feed.ends)):
        context.not_offered("an item out of sequence ends no run (see extension.input-sequence)")
    await other.feed(1)
    await other.finish()
    await other.is_completed()


@INPUT_STREAMS.case(
    "extension.input-number",
    "Numbers of streams are odd, and are used once",
    section=_VIOLATIONS,
    expected="an error with the status 400 and the path `$.streams.<parameter>.stream` for a number that is "
    "even, and for one that was used before",
    needs=_NEEDS,
)
async def input_number(context: CaseContext) -> None:
    first = await _Feed.begin(context, number=5)
    await first.finish()
    await first.end()
    for number in (8, 5, 3):
        feed = await _Feed.begin(context, session=first.session, number=number)
        if not await feed.wait(lambda feed=feed: bool(feed.ends)):  # type: ignore[misc]
            context.fail(f"there is no error for the number {number} after 5")
        end = feed.ends[0]
        path = f"$.streams.{feed.name}.stream"
        if end.kind != "error" or end.status != "400" or end.data.get("path") != path:
            context.fail(f"{end} with the path {end.data.get('path')} came for the number {number} after 5")


@INPUT_STREAMS.case(
    "extension.input-many",
    "An action has sixteen input streams at most",
    section=_VIOLATIONS,
    expected="an error with the status 400 and the path `$.streams` for seventeen",
    needs=_NEEDS,
)
async def input_many(context: CaseContext) -> None:
    needs(context, "streams")
    call, _, _ = context.roles.fed_call(binary=False)
    session = await context.session()
    streams = {f"s{number}": {"stream": 2 * number + 1} for number in range(17)}
    end = await session.final(await session.begin(call, streams=streams))
    if end.kind != "error" or end.status != "400" or end.data.get("path") != "$.streams":
        context.fail(f"{end} with the path {end.data.get('path')} came for 17 streams")


@INPUT_STREAMS.case(
    "extension.input-again",
    "A messageID that comes again gets its own answer",
    section=extension("Members, Retries"),
    expected="one final answer to a second invokeAction with the same messageID and a new stream, whether "
    "it is carried out or the first answer is remembered",
    needs=_NEEDS,
)
async def input_again(context: CaseContext) -> None:
    first = await _Feed.begin(context)
    await first.feed(1)
    await first.finish()
    await first.end()
    again = await _Feed.begin(context, session=first.session, number=3, message_id=first.sent.message_id)
    if await again.has_room():
        await again.put(again.make())
        await again.finish()
    await again.quiet()


@INPUT_STREAMS.case(
    "extension.input-frames",
    "Items of bytes come in binary frames, and the last may be the end",
    section=_FRAMES,
    expected="one final answer, `completed`, after three frames, the second of them empty and the last "
    "with bit 0, without a streamEnd",
    needs=_NEEDS_BYTES,
)
async def input_frames(context: CaseContext) -> None:
    feed = await _Feed.begin(context, binary=True)
    await feed.feed(1)
    await feed.feed(1, b"")
    if not await feed.has_room():
        context.not_offered("no credit comes (see extension.input-more)")
    await feed.put(b"the last", flags=LAST)
    await feed.is_completed()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-flags",
    "Flags that are not defined are refused",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, for a frame with bit 1, and for one whose bytes 2 and 3 are not zero",
    needs=_NEEDS_BYTES,
)
async def input_flags(context: CaseContext) -> None:
    for flags, reserved in ((2, 0), (0, 1)):
        feed = await _Feed.begin(context, binary=True)
        await feed.feed(1)
        await feed.put(feed.make(), flags=flags, reserved=reserved)
        await feed.finish()
        await feed.refused(f"a frame with the flags {flags} and {reserved} in bytes 2 and 3")


# --- bytes as an answer


async def _answered(context: CaseContext, items: list[bytes], *, frames: bool) -> _Feed:
    """Let an action answer items of bytes, up to its end."""
    feed = await _Feed.begin(context, binary=True, answers=True, frames=frames, credit=_PLENTY)
    for item in items:
        await feed.feed(1, item)
    await feed.finish()
    await feed.end()
    return feed


@INPUT_STREAMS.case(
    "extension.binary-items",
    "Items in binary frames are those in base64",
    section=_ANSWERS,
    expected="the same items with `binary: true`, in frames numbered from 0, as without it in base64 text",
    needs=f"{_NEEDS_BOTH}, and the same one each time",
)
async def binary_items(context: CaseContext) -> None:
    items = [context.random.randbytes(size) for size in (1, 40, 0, 300)]
    plain, again = [await _answered(context, items, frames=False) for _ in range(2)]
    if not plain.items or not same(plain.items, again.items):
        context.not_offered(f"{plain.call.action} does not give the same items each time")
    framed = await _answered(context, items, frames=True)
    try:
        wanted = [base64.b64decode(each, validate=True) for each in plain.items]
    except (ValueError, TypeError):
        context.fail(f"without `binary` {plain.items[:3]!r} came, which is no base64")
    came = [each if isinstance(each, bytes) else base64.b64decode(each) for each in framed.items]
    if came != wanted:
        context.fail(f"{came[:5]!r} came with `binary: true`, and {wanted[:5]!r} without")
    numbers = [frame.sequence for frame in framed.frames]
    if numbers != list(range(len(numbers))):
        context.fail(f"the frames are numbered {numbers}")


@INPUT_STREAMS.case(
    "extension.binary-open",
    "A stream of binary frames is opened, and counted at its end",
    section=_ANSWERS,
    expected="streamOpen with an even number from 2 before the first frame, and streamEnd with the count "
    "of the frames before `completed`",
    needs=_NEEDS_BOTH,
)
async def binary_open(context: CaseContext) -> None:
    feed = await _answered(context, [b"one", b"two"], frames=True)
    binary = [each for each in feed.session.received if each.trouble == "a binary message"]
    if not binary and not feed.opening:
        context.not_offered(f"{feed.call.action} answers by no binary frames")
    if feed.opening is None:
        context.fail("frames came without a streamOpen")
    number = feed.opening.data.get("stream")
    if type(number) is not int or number < 2 or number % 2:
        context.fail(f"streamOpen has the number {number!r}")
    if len(feed.frames) < len(binary):
        context.fail(f"{len(binary)} frames came, and {len(feed.frames)} of them on stream {number}")
    flagged = bool(feed.frames) and feed.frames[-1].flags == LAST
    if not flagged and feed.closing is None:
        context.fail("the stream of frames has no end")
    if feed.closing is not None and feed.closing.data.get("sequence") != len(feed.frames):
        context.fail(f"{feed.closing} came after {len(feed.frames)} frames")


@INPUT_STREAMS.case(
    "extension.binary-stop",
    "An answer in binary frames can be stopped",
    section=_ANSWERS,
    expected="no more items and no streamEnd after a streamEnd of the consumer with a reason, and the final "
    "answer at the end of the run",
    needs=f"{_NEEDS_BOTH} in binary frames, each time an item comes",
)
async def binary_stop(context: CaseContext) -> None:
    feed = await _Feed.begin(context, binary=True, answers=True, frames=True, credit=_PLENTY)
    await feed.feed(2)
    if not await feed.wait(lambda: len(feed.frames) >= 2) or feed.opening is None:
        context.not_offered(f"{feed.call.action} does not answer two items by two frames")
    members: dict[str, Any] = {"stream": feed.opening.data.get("stream"), "sequence": 2, "reason": "enough"}
    await feed.session.send("streamEnd", correlation=feed.sent.message_id, **members)
    await context.flush(feed.session)
    feed.closing = None
    await feed.feed(2)
    await feed.finish()
    await feed.is_completed()
    if len(feed.items) > 2:
        context.fail(f"{len(feed.items) - 2} more items came")
    if feed.closing is not None:
        context.fail(f"{feed.closing} came")
    await feed.quiet()
