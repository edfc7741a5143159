"""Answers as streams, an extension of lmos_actors: items arrive under credit, followed by their end."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import fits, same
from lmos_actors.conformance.session import ABSENT, Chapter, NoAnswer, values_of
from lmos_actors.conformance.wire import BINARY

from ._members import needs

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent, Session
    from lmos_actors.conformance.target import Call


_ANSWERS: Final = extension("Streams, Answers as streams")
_CREDIT: Final = extension("Streams, Credit")
_VIOLATIONS: Final = extension("Streams, Violations")
_LATE: Final = extension("Streams, Order")
_NEEDS: Final = "lmosx:offers with streams, and an action with an output in lmosx:streams that may be invoked"
_BYTES: Final = 1 << 20
_MANY: Final = 2_000

STREAMS: Final[Chapter[CaseContext]] = Chapter(needs=_NEEDS)


class _Stream:
    """A run answered by a stream. `items`: the outputs so far; `end`: the final answer, or None before it."""

    def __init__(self, context: CaseContext, session: Session, call: Call, sent: Sent) -> None:
        self.context, self.session, self.call, self.sent = context, session, call, sent
        self.items: list[Any] = []
        self.end: ReceivedMessage | None = None

    @classmethod
    async def begin(
        cls,
        context: CaseContext,
        *,
        items: int | None = None,
        size: int = _BYTES,
        session: Session | None = None,
    ) -> _Stream:
        """Invoke the action with credit for `items` items and `size` bytes; without `items`, grant none."""
        needs(context, "streams")
        call = context.roles.streamed_call()
        session = await context.session() if session is None else session
        members: dict[str, Any] = {} if items is None else {"credit": {"items": items, "bytes": size}}
        sent = await session.begin(call, **members)
        return cls(context, session, call, sent)

    async def take(self, most: int, within: float | None = None) -> None:
        """Wait until there are `most` items in all, the stream has ended, or no message arrives in time."""
        while self.end is None and len(self.items) < most:
            try:
                received = await self.session.answer(self.sent, within)
            except NoAnswer:
                return
            if received.is_final:
                self.end = received
            elif received.get("output") is not ABSENT:
                self.items.append(received.get("output"))

    async def more(self, items: int, size: int = _BYTES) -> None:
        """Grant more credit."""
        await self.session.send("streamCredit", correlation=self.sent.message_id, items=items, bytes=size)

    async def enough(self, wanted: int, what: str) -> None:
        """Fail unless the number of items is the wanted one, or a smaller one followed by the end."""
        await self.take(wanted)
        if len(self.items) < wanted and self.end is None:
            self.context.fail(f"{len(self.items)} items came for {what}, and not {wanted}")
        await self.context.flush(self.session)
        await self.take(wanted + 1, within=self.session.patience / 4)
        if len(self.items) > wanted:
            self.context.fail(f"{len(self.items)} items came for {what}, and not {wanted}")

    async def first(self, wanted: int) -> None:
        """Wait for a number of items. Raises NotOffered if there are fewer."""
        await self.take(wanted)
        if len(self.items) < wanted:
            self.context.not_offered(f"{self.call.action} gives fewer than {wanted} items")


@STREAMS.case(
    "extension.stream",
    "Items are outputs of a run in progress, and its end has none",
    section=_ANSWERS,
    expected="an actionStatus `in progress` with an output that fits its schema for each item, and "
    "`completed` without an output as the end",
)
async def stream(context: CaseContext) -> None:
    run = await _Stream.begin(context)
    await run.take(_MANY)
    if run.end is None:
        context.fail(f"the answer has no end behind {len(run.items)} items")
    if (run.end.kind, run.end.status) != ("actionStatus", "completed"):
        context.fail(f"the end of the answer is {run.end}")
    if run.end.data.get("output") is not None:
        context.fail(f"the end has an output: {run.end}")
    if not run.items:
        context.fail("no item came before the end")
    streams = context.target.readable_part.streams_of(run.call.action)
    schema = streams.output.schema if streams is not None and streams.output is not None else None
    for item in run.items:
        wrong = fits(schema or {}, item)
        if wrong is not None:
            context.fail(f"an item does not fit its schema: {wrong}")


@STREAMS.case(
    "extension.stream-credit",
    "No more items come than there is credit for",
    section=_CREDIT,
    expected="three items, and not one more, for a credit of three items",
)
async def stream_credit(context: CaseContext) -> None:
    run = await _Stream.begin(context, items=3)
    await run.enough(3, "a credit of three items")


@STREAMS.case(
    "extension.stream-bytes",
    "No more items come than there is credit for in bytes",
    section=_CREDIT,
    expected="one item, and not one more, for a credit of a hundred items and one byte: an item may take the "
    "bytes below zero",
)
async def stream_bytes(context: CaseContext) -> None:
    run = await _Stream.begin(context, items=100, size=1)
    await run.enough(1, "a credit of one byte")


@STREAMS.case(
    "extension.stream-more",
    "More credit brings more items",
    section=_CREDIT,
    expected="the next items when streamCredit, with the correlationID of the run, gives room for them",
)
async def stream_more(context: CaseContext) -> None:
    run = await _Stream.begin(context, items=2)
    await run.first(2)
    await run.more(2)
    await run.take(4)
    if len(run.items) < 4 and run.end is None:
        context.fail(f"{len(run.items) - 2} items came for a further credit of two")


@STREAMS.case(
    "extension.stream-whole",
    "Items are the same with and without credit",
    section=extension("Streams"),
    expected="the same items in the same order under a small credit, given back again and again, as without "
    "any: none is lost or repeated",
    needs=f"{_NEEDS} and gives the same items each time",
)
async def stream_whole(context: CaseContext) -> None:
    wanted = 40
    whole = [await _Stream.begin(context), await _Stream.begin(context)]
    for run in whole:
        await run.take(wanted)
    if not same(whole[0].items, whole[1].items):
        context.not_offered(f"{whole[0].call.action} does not give the same items each time")
    run = await _Stream.begin(context, items=3)
    while len(run.items) < len(whole[0].items) and run.end is None:
        before = len(run.items)
        await run.take(before + 3)
        if len(run.items) == before and run.end is None:
            context.not_offered("further credit brings no items (see extension.stream-more)")
        await run.more(3)
    if not same(run.items[: len(whole[0].items)], whole[0].items):
        context.fail(f"under credit {run.items[:20]!r} came, and without {whole[0].items[:20]!r}")


@STREAMS.case(
    "extension.stream-cancel",
    "No item comes after the end of a run that was cancelled",
    section=_LATE,
    expected="nothing of the run after the final answer that cancelAction brings, though there is credit",
)
async def stream_cancel(context: CaseContext) -> None:
    run = await _Stream.begin(context, items=2)
    await run.first(2)
    await run.session.send("cancelAction", name=run.call.action, correlation=run.sent.message_id)
    await run.take(_MANY)
    if run.end is None:
        context.not_offered("cancelAction brings no end (see cancel.running)")
    await run.more(5)
    await context.flush(run.session)
    for received in await run.session.drain(within=context.patience / 4):
        if (
            received.kind == "actionStatus"
            and received.status == "in progress"
            and received.get("output") is not ABSENT
        ):
            context.fail(f"{received} came after the end")


@STREAMS.case(
    "extension.stream-late",
    "Credit for a run that is over is ignored",
    section=_LATE,
    expected="no answer to streamCredit for a run that is over, and the connection as it was",
)
async def stream_late(context: CaseContext) -> None:
    run = await _Stream.begin(context)
    await run.take(_MANY)
    if run.end is None:
        context.not_offered("the run does not end (see extension.stream)")
    await run.more(5)
    await context.flush(run.session)
    for received in await run.session.drain(within=0):
        context.fail(f"streamCredit for a run that is over brought {received}")


@STREAMS.case(
    "extension.stream-violation",
    "An item of an unknown stream ends its run, and nothing else",
    section=_VIOLATIONS,
    expected="an error with the status 400 as the end of the run whose correlationID a streamItem has that "
    "belongs to no stream of it, and another run of the connection as it was",
)
async def stream_violation(context: CaseContext) -> None:
    run = await _Stream.begin(context, items=1)
    await run.first(1)
    other = await _Stream.begin(context, items=1, session=run.session)
    await other.first(1)
    item: dict[str, Any] = {"stream": 1, "sequence": 0, "data": 0}
    await run.session.send("streamItem", correlation=run.sent.message_id, **item)
    await run.take(_MANY)
    if run.end is None:
        context.fail("the run goes on")
    if run.end.kind != "error" or run.end.status != "400":
        context.fail(f"the run ends with {run.end}")
    await other.more(1)
    await other.take(2)
    if other.end is not None and len(other.items) < 2:
        context.fail(f"the other run of the connection ended too: {other.end}")


@STREAMS.case(
    "extension.binary-late",
    "A binary frame of an unknown stream is ignored",
    section=_VIOLATIONS,
    expected="no answer to a binary frame with the number of an unknown stream, and the connection as it was",
    needs="lmosx:offers with streams, and a property that can be read",
)
async def binary_late(context: CaseContext) -> None:
    needs(context, "streams")
    name, session = context.roles.readable_property(), await context.session()
    if not await values_of(context, session, [name]):
        context.not_offered(f"{name} cannot be read (see properties.read)")
    await session.socket.send_frame(BINARY, struct.pack(">BBHII", 1, 0, 0, 4_294_967_295, 0) + b"item")
    received = await session.ask("readProperty", name=name)
    if received.kind != "propertyReading":
        context.fail(received)
