"""Input streams, an extension of lmos_actors: the kit sends items under the server's credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import samples
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.wire import LAST

from ._input_run import NEEDS_BOTH, NEEDS_BYTES, PLENTY, InputRun
from ._members import needs

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext


_INPUT: Final = extension("Streams, Input streams")
_ANSWERS: Final = extension("Streams, Answers as streams")
_FRAMES: Final = extension("Streams, Binary frames")
_CREDIT: Final = extension("Streams, Credit")
_ORDER: Final = extension("Streams, Order")
_VIOLATIONS: Final = extension("Streams, Violations")
_NEEDS: Final = "lmosx:offers with streams, and an action with one input stream of JSON that may be invoked"
_MOST: Final = 600  # items
_MOST_BYTES: Final = 1 << 20
_REFUSED: Final = "an error with the status 400 as the only end of the run"

INPUT_STREAMS: Final[Chapter[CaseContext]] = Chapter(needs=_NEEDS)


@INPUT_STREAMS.case(
    "extension.input",
    "A run with an input stream is completed after its end",
    section=_INPUT,
    expected="one final answer, `completed`, after three items that fit the schema, and streamEnd with "
    "their count",
)
async def input_stream(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
    await feed.feed(3)
    await feed.finish()
    await feed.is_completed()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-empty",
    "An input stream may have no items",
    section=_INPUT,
    expected="a final answer after streamEnd with the count 0, which needs no credit",
)
async def input_empty(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
    await feed.finish()
    await feed.quiet()


@INPUT_STREAMS.case(
    "extension.input-credit",
    "A stream gets its first credit",
    section=_INPUT,
    expected="streamCredit with the number of the stream, the correlationID of the run, and items and "
    "bytes above 0",
)
async def input_credit(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
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
    feed = await InputRun.begin(context)
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
    feed = await InputRun.begin(context)
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
    needs=f"{NEEDS_BYTES}, with a window of 1 MiB at most",
)
async def input_large(context: CaseContext) -> None:
    feed = await InputRun.begin(context, binary=True)
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
    needs=f"{NEEDS_BOTH}, each time an item comes",
)
async def input_held(context: CaseContext) -> None:
    feed = await InputRun.begin(context, binary=True, answers=True, credit={"items": 2, "bytes": _MOST_BYTES})
    await feed.feed(2)
    if not await feed.wait(lambda: len(feed.items) >= 2):
        context.not_offered(f"{feed.call.action} does not answer two items by two")
    while await feed.has_room(within=feed.session.patience / 4):
        if feed.count > _MOST:
            context.fail(f"{feed.granted} items were granted, though the answer has credit for 2")
        await feed.put(feed.make())
    if feed.ends:
        context.fail(f"the run ends with {feed.ends[0]}")
    members: dict[str, Any] = dict(PLENTY)
    await feed.session.send("streamCredit", correlation=feed.sent.message_id, **members)
    if not await feed.has_room():
        context.fail("the input gets no credit when the answer does")


@INPUT_STREAMS.case(
    "extension.input-sequence",
    "Items are counted",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if an item has the number of the one after the next",
)
async def input_sequence(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
    await feed.feed(2)
    await feed.put(feed.make(), sequence=3)
    await feed.finish()
    await feed.refused("an item out of sequence")


@INPUT_STREAMS.case(
    "extension.input-count",
    "The end of a stream counts its items",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if streamEnd has another count",
)
async def input_count(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
    await feed.feed(2)
    await feed.finish(sequence=3)
    await feed.refused("a wrong count")


@INPUT_STREAMS.case(
    "extension.input-kind",
    "Items of bytes come in binary frames alone",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if a streamItem comes on a stream of binary frames",
    needs=NEEDS_BYTES,
)
async def input_kind(context: CaseContext) -> None:
    feed = await InputRun.begin(context, binary=True)
    await feed.feed(1)
    await feed.put("aXRlbQ==")
    await feed.finish()
    await feed.refused("a streamItem on a stream of bytes")


@INPUT_STREAMS.case(
    "extension.input-json",
    "Items of JSON come as streamItem alone",
    section=_VIOLATIONS,
    expected=f"{_REFUSED}, if a binary frame comes on a stream of JSON",
)
async def input_json(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
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
    feed = await InputRun.begin(context)
    _, _, schema = context.roles.fed_call(binary=False)
    wrong = [each for each in samples(schema or {}, context.random) if each.kind == "invalid"]
    if not wrong:
        context.not_offered(f"nothing was found that does not fit {feed.name}")
    await feed.feed(2)
    await feed.feed(1, wrong[0].value)
    if await feed.has_room():  # messages that would have been sent meanwhile
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
)
async def input_broken(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
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
)
async def input_cancel(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
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
)
async def input_late(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
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
)
async def input_alone(context: CaseContext) -> None:
    feed = await InputRun.begin(context)
    await feed.feed(1)
    other = await InputRun.begin(context, session=feed.session, number=3)
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
)
async def input_number(context: CaseContext) -> None:
    first = await InputRun.begin(context, number=5)
    await first.finish()
    await first.end()
    for number in (8, 5, 3):
        feed = await InputRun.begin(context, session=first.session, number=number)
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
)
async def input_again(context: CaseContext) -> None:
    first = await InputRun.begin(context)
    await first.feed(1)
    await first.finish()
    await first.end()
    again = await InputRun.begin(context, session=first.session, number=3, message_id=first.sent.message_id)
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
    needs=NEEDS_BYTES,
)
async def input_frames(context: CaseContext) -> None:
    feed = await InputRun.begin(context, binary=True)
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
    needs=NEEDS_BYTES,
)
async def input_flags(context: CaseContext) -> None:
    for flags, reserved in ((2, 0), (0, 1)):
        feed = await InputRun.begin(context, binary=True)
        await feed.feed(1)
        await feed.put(feed.make(), flags=flags, reserved=reserved)
        await feed.finish()
        await feed.refused(f"a frame with the flags {flags} and {reserved} in bytes 2 and 3")
