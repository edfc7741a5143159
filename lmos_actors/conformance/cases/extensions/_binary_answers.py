"""Answers of bytes, an extension of lmos_actors: in binary frames if the client takes them, or base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.wire import LAST

from ._input_run import NEEDS_BOTH, PLENTY, InputRun

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext

BINARY_ANSWERS: Final[Chapter[CaseContext]] = Chapter(section=extension("Streams, Answers as streams"))


async def _answered(context: CaseContext, items: list[bytes], *, frames: bool) -> InputRun:
    """Feed items of bytes to an action that answers with a stream, and wait until the run ends."""
    feed = await InputRun.begin(context, binary=True, answers=True, frames=frames, credit=PLENTY)
    for item in items:
        await feed.feed(1, item)
    await feed.finish()
    await feed.end()
    return feed


@BINARY_ANSWERS.case(
    "extension.binary-items",
    "Items in binary frames are those in base64",
    expected="the same items with `binary: true`, in frames numbered from 0, as without it in base64 text",
    needs=f"{NEEDS_BOTH}, and the same one each time",
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


@BINARY_ANSWERS.case(
    "extension.binary-open",
    "A stream of binary frames is opened, and counted at its end",
    expected="streamOpen with an even number from 2 before the first frame, and streamEnd with the count "
    "of the frames before `completed`",
    needs=NEEDS_BOTH,
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


@BINARY_ANSWERS.case(
    "extension.binary-stop",
    "An answer in binary frames can be stopped",
    expected="no more items and no streamEnd after a streamEnd of the consumer with a reason, and the final "
    "answer at the end of the run",
    needs=f"{NEEDS_BOTH} in binary frames, each time an item comes",
)
async def binary_stop(context: CaseContext) -> None:
    feed = await InputRun.begin(context, binary=True, answers=True, frames=True, credit=PLENTY)
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
