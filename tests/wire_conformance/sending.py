"""The table, fourth part: streams into an agent, and every way in which they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import NotAllowed
from tests.wire_conformance.agents import Reading, Taker
from tests.wire_conformance.bench import Bench, behaviour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Tap:
    """A source that notes what becomes of it; with `waits` it does not end on its own."""

    def __init__(self, *items: Any, error: Exception | None = None, waits: bool = False) -> None:
        self.given = 0
        self.fate = "untouched"
        self._items = items
        self._error = error
        self._waits = waits

    async def __aiter__(self) -> AsyncGenerator[Any]:
        task = trio.lowlevel.current_task()
        try:
            for item in self._items:
                self.given += 1
                yield item
            if self._waits:
                await trio.sleep_forever()
            self.fate = "ended"
            if self._error is not None:
                self.fate = "raised"
                raise self._error
        except GeneratorExit:
            self.fate = "closed"
            raise
        except trio.Cancelled:
            self.fate = "cancelled"
            raise
        finally:
            if trio.lowlevel.current_task() is not task:
                self.fate += " by another task"


Row = Callable[[Bench, Any], Awaitable[Any]]


def sending(outcome: str, *, two: bool = False) -> Callable[[Row], None]:
    """Put a row into the table; where no stream can be sent, or not two, that is what comes of it."""

    def add(run: Row) -> None:
        async def row(b: Bench) -> Any:
            it = await b.subject(Taker)
            try:
                if two:
                    await it.invoke(Taker.zipped, Tap(), right=Tap())
                else:
                    await it.invoke(Taker.gather, Tap())
            except NotAllowed as error:
                return [b.error(error)]
            return await run(b, it)

        behaviour("input stream", outcome, kind=Taker)(row)

    return add


async def said(b: Bench, asked: Awaitable[Any]) -> Any:
    """As `Bench.said`, for what the source raises as well."""
    try:
        return await b.said(asked)
    except (LookupError, ExceptionGroup, RuntimeError) as error:
        return f"{type(error).__name__}: {b.anonymous(str(error).partition(': <')[0])}"


# ---- what flows


@sending("success")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(*range(100))
    got = await said(b, it.invoke(Taker.gather, rows=tap))
    return [got == list(range(100)), tap.fate, await b.accounts()]


@sending("by begin")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, 2, 3)
    async with it.begin(Taker.gather, tap, up_to=5) as call:
        got = await said(b, call.result())
        status = await call.query()
    return [got, b.plain(status), tap.fate, await b.accounts()]


@sending("both ways")
async def _(b: Bench, it: Any) -> Any:
    send, receive = trio.open_memory_channel[Reading](0)
    heard = []
    async with it.stream(Taker.converse, receive, 2.0) as answers:
        for place in ("Bonn", "Rome"):
            await send.send(Reading(place, 10.0, ("a",)))
            heard.append(b.plain(await anext(answers)))
        await send.aclose()
        heard += [answer async for answer in answers]
    return [heard, await b.noted("begun converse"), await b.accounts()]


@sending("bytes both ways")
async def _(b: Bench, it: Any) -> Any:
    parts = [bytes([number]) * 50_000 + b"end" for number in range(20)]
    async with it.stream(Taker.reverse, Tap(*parts, b"")) as answers:
        got = [part async for part in answers]
    return [got == [*[part[::-1] for part in parts], b""], await b.accounts()]


@sending("two at once", two=True)
async def _(b: Bench, it: Any) -> Any:
    left, right = Tap(1, 2), Tap("a", "b", "c")
    got = await said(b, it.invoke(Taker.zipped, left, right=right))
    return [[list(pair) for pair in got], left.fate, right.fate, await b.accounts()]


@sending("the handler is slow")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(*range(1000))
    async with it.begin(Taker.slowly, tap, "on") as call:
        await b.until("begun slowly")
        await b.standing(running=1)
        ahead = tap.given
        await b.open("on")
        got = await call.result()
    return [ahead <= 17, got == list(range(1000)), tap.fate]


# ---- the handler ends first


@sending("the handler returns early")
async def _(b: Bench, it: Any) -> Any:
    waits, flows = Tap(1, waits=True), Tap(*range(1000))
    first = await said(b, it.invoke(Taker.gather, waits, 1))
    second = await said(b, it.invoke(Taker.gather, flows, 3))
    return [first, waits.fate, second, flows.fate, flows.given < 50, await b.accounts()]


@sending("failure")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(*range(1000))
    return [await said(b, it.invoke(Taker.gather, tap, 1, "failure")), tap.fate, await b.accounts()]


@sending("crashed by itself")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(*range(1000))
    died = await said(b, it.invoke(Taker.gather, tap, 1, "bug"))
    await b.restarted()
    return [died, tap.fate, await b.accounts()]


@sending("crashed by somebody else")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, waits=True)
    async with b.asking(it.invoke(Taker.gather, tap)) as asked:
        await b.until("begun gather", 2)
        await b.crash()
    await b.restarted()
    return [*asked.answers, tap.fate, await b.noted("cancelled gather"), await b.accounts()]


@sending("the agent is taken away")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, 2, waits=True)
    async with b.asking(it.invoke(Taker.gather, tap, 3)) as asked:
        await b.until("begun gather", 2)
        await b.crash()
        await b.remove()
    return [*asked.answers, tap.fate]


# ---- the source ends first


@sending("the source raises")
async def _(b: Bench, it: Any) -> Any:
    none, some = Tap(error=LookupError("no more")), Tap(*range(40), error=LookupError("no more"))
    first = await said(b, it.invoke(Taker.gather, none))
    second = await said(b, it.invoke(Taker.gather, some))
    broken = await b.noted("broken gather: LookupError: no more")
    return [first, none.fate, second, some.fate, broken, await b.accounts()]


@sending("the source raises and the handler goes on")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, 2, error=LookupError("no more"))
    got = await said(b, it.invoke(Taker.rescue, tap))
    return [got, tap.fate, await b.noted(RESCUED), await b.accounts()]


RESCUED = "[1, 2], then the input stream 'rows' broke off: LookupError: no more - at $.rows"


@sending("the source of a stream raises")
async def _(b: Bench, it: Any) -> Any:
    heard = []

    async def take() -> None:
        tap = Tap(Reading("Bonn", 1.0), error=LookupError("no more"))
        async with it.stream(Taker.converse, tap, 2.0) as answers:
            async for answer in answers:
                heard.append(b.plain(answer))

    return [await said(b, take()), heard, await b.accounts()]


@sending("an item of another type")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(*range(7), "seven", 8)
    refused = await said(b, it.invoke(Taker.gather, tap))
    broken = await b.noted("broken gather: InvalidInput: Expected `int`, got `str` - at $.rows[7]")
    return [refused, tap.given, tap.fate, broken, await b.accounts()]


@sending("two sources raise", two=True)
async def _(b: Bench, it: Any) -> Any:
    left, right = Tap(error=LookupError("left")), Tap(error=LookupError("right"))
    return [await said(b, it.invoke(Taker.zipped, left, right=right)), await b.accounts()]


# ---- the caller ends it


@sending("cancelled by its caller")
async def _(b: Bench, it: Any) -> Any:
    waits, flows = Tap(1, waits=True), Tap(*range(1000))
    async with b.asking(it.invoke(Taker.gather, waits)) as asked:
        await b.until("begun gather", 2)
        asked.scopes[0].cancel()
    await b.until("cancelled gather")
    async with b.asking(it.invoke(Taker.slowly, flows, "never")) as again:
        await b.until("begun slowly")
        again.scopes[0].cancel()
    await b.until("cancelled slowly")
    return [*asked.answers, waits.fate, *again.answers, flows.fate, await b.accounts()]


@sending("not answered in time")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, waits=True)
    late = await said(b, it.within(0.5).invoke(Taker.gather, tap))
    await b.until("cancelled gather")
    return [late, tap.fate, await b.accounts()]


@sending("cancelled by call.cancel")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1, waits=True)
    async with it.begin(Taker.gather, tap) as call:
        await b.until("begun gather", 2)
        status = b.plain(await call.cancel("enough"))
        got = await said(b, call.result())
    await b.until("cancelled gather")
    return [status, got, tap.fate, await b.accounts()]


@sending("the block is left")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(Reading("Bonn", 1.0), waits=True)
    async with it.stream(Taker.converse, tap, 2.0) as answers:
        first = b.plain(await anext(answers))
    await b.until("cancelled converse")
    return [first, tap.fate, await b.accounts()]


# ---- refusals


@sending("what is no source")
async def _(b: Bench, it: Any) -> Any:
    return [await said(b, it.invoke(Taker.gather, [1])), await said(b, it.invoke(Taker.gather))]


@sending("a source of another call")
async def _(b: Bench, it: Any) -> Any:
    source = Tap(1, waits=True).__aiter__()
    async with it.begin(Taker.gather, source):
        await b.until("begun gather", 2)
        refused = await said(b, it.invoke(Taker.gather, source))
    return [refused, await b.accounts()]


@sending("mailbox full")
async def _(b: Bench, it: Any) -> Any:
    untouched, queued = Tap(7), Tap(8)
    async with b.asking(
        it.invoke(Taker.slowly, Tap(1), "on"), it.invoke(Taker.slowly, queued, "on")
    ) as asked:
        await b.standing(running=1, waiting=1)
        refused = await said(b, it.invoke(Taker.gather, untouched))
        fates = [untouched.fate, queued.given]
        await b.open("on")
    again = await said(b, it.invoke(Taker.gather, untouched))
    return [refused, fates, *asked.answers, again, await b.accounts()]


@sending("sent one way")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1)
    try:
        await it.tell(Taker.gather, tap)
    except TypeError as error:
        return [str(error), tap.fate, await b.accounts()]


@sending("the agent is gone")
async def _(b: Bench, it: Any) -> Any:
    tap = Tap(1)
    await b.remove()
    return [await b.said(it.retrying().invoke(Taker.gather, tap)), tap.fate]
