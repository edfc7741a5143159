"""The table, second part: actions that take time, their progress, queries and cancels, and streams."""

from __future__ import annotations

from typing import Any

from tests.wire_conformance.agents import Newer, Small, Subject, Waiting
from tests.wire_conformance.bench import Bench, behaviour

# ---- invoke: a run


@behaviour("invoke a run", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    return [await b.said(it.invoke(Subject.hold, "a")), await b.accounts()]


@behaviour("invoke a run", "failure")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    return [await b.said(it.invoke(Subject.fall, "a", "failure")), await b.accounts()]


@behaviour("invoke a run", "invalid input")
async def _(b: Bench) -> Any:
    it: Any = await b.subject()
    return [
        await b.said(it.invoke(Subject.hold, 3)),
        await b.said(it.invoke(Subject.hold)),
        await b.accounts(),
    ]


@behaviour("invoke a run", "crashed by itself")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    died = await b.said(it.invoke(Subject.fall, "a", "bug"))
    await b.restarted()
    await b.open("b")
    return [died, await b.said(it.invoke(Subject.hold, "b")), await b.accounts()]


@behaviour("invoke a run", "crashed by somebody else")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a")) as asked:
        await b.standing(waiting=1, running=1)
        await b.crash()
    await b.restarted()
    return [*asked.answers, await b.noted("cancelled line"), await b.accounts()]


@behaviour("invoke a run", "cancelled by its caller while it runs")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.hold, "a")) as asked:
        await b.until("begun hold")
        asked.scopes[0].cancel()
    await b.until("cancelled hold")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a run", "cancelled by its caller before its turn")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a")) as asked:
        await b.standing(waiting=1, running=1)
        asked.scopes[1].cancel()
        await b.standing(waiting=0, running=1)
        await b.open("a")
    return [*asked.answers, await b.noted("begun line"), await b.accounts()]


@behaviour("invoke a run", "full, refused", kind=Small)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(*(it.invoke(Subject.line, "a") for _ in range(3))) as asked:
        await b.standing(waiting=1, running=1, refused=1)
        await b.open("a")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a run", "full, held back", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(*(it.invoke(Subject.line, "a") for _ in range(3))) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a run", "deadline passed while it runs")
async def _(b: Bench) -> Any:
    it = await b.subject()
    late = await b.said(it.within(0.5).invoke(Subject.hold, "a"))
    await b.until("cancelled hold")
    return [late, await b.accounts()]


@behaviour("invoke a run", "within its deadline")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    return [await b.said(it.within(10).invoke(Subject.hold, "a"))]


@behaviour("invoke a run", "stopped while it runs")
async def _(b: Bench) -> Any:
    from tests.wire_conformance.agents import Helper

    it = await b.subject()
    async with b.asking(it.invoke(Subject.hold, "a")) as asked:
        await b.until("begun hold")
        async with b.asking(b.helper.invoke(Helper.halt, b.name)):
            await b.standing(state="stopping")
            refused = await b.said(it.invoke(Subject.echo, "late"))
            await b.open("a")
    return [*asked.answers, refused, await b.accounts()]


# ---- begin


@behaviour("begin", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("step 1", "step 2", "end")
    async with it.begin(Subject.work, 2) as call:
        result = await b.said(call.result())
        return [result, await b.said(call.result()), await b.said(call.query()), await b.accounts()]


@behaviour("begin", "progress")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.work, 2) as call:
        seen: list[Any] = []
        for step in (1, 2):
            await b.open(f"step {step}")
            seen.append(await b.some(call.progress, 1))
        await b.open("end")
        seen.append(await b.some(call.progress, 1))
        return [*seen, await b.said(call.result()), await b.accounts()]


@behaviour("begin", "progress conflates")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.work, 5) as call:
        await b.open(*(f"step {step}" for step in range(1, 6)))
        await b.until("reported 5")
        await b.world.settled()
        seen = b.waiting(call.progress)
        await b.open("end")
        return [seen, await b.said(call.result())]


@behaviour("begin", "query")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.line, "a") as first:
        await b.standing(waiting=0, running=1)  # over HTTP two requests are on two connections
        async with it.begin(Subject.line, "b") as second:
            await b.standing(waiting=1, running=1)
            standing = [await b.said(first.query()), await b.said(second.query())]
            await b.open("a")
            result = await b.said(first.result())
            await b.until("begun line", 2)
            standing += [await b.said(first.query()), await b.said(second.query())]
            await b.open("b")
            return [standing, result, await b.said(second.result()), await b.accounts()]


@behaviour("begin", "failure")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    async with it.begin(Subject.fall, "a", "failure") as call:
        return [await b.said(call.result()), await b.said(call.query()), await b.some(call.progress, 1)]


@behaviour("begin", "invalid input")
async def _(b: Bench) -> Any:
    it: Any = await b.subject()

    async def begin() -> Any:
        async with it.begin(Subject.hold, 3) as call:
            return await call.result()

    return [await b.said(begin()), await b.accounts()]


@behaviour("begin", "unknown action")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)

    async def begin() -> Any:
        async with it.begin(Newer.fresh) as call:
            return await call.result()

    return [await b.said(begin()), await b.accounts()]


@behaviour("begin", "cancelled with a reason")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.hold, "a") as call:
        await b.until("begun hold")
        cancelled = await b.said(call.cancel("enough"))
        await b.until("cancelled hold")
        return [cancelled, await b.said(call.result()), await b.said(call.query()), await b.accounts()]


@behaviour("begin", "cancelled twice")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.hold, "a") as call:
        await b.until("begun hold")
        both = [await b.said(call.cancel("enough")), await b.said(call.cancel("again"))]
        return [*both, await b.said(call.result()), await b.accounts()]


@behaviour("begin", "cancelled while another waits for its result")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.hold, "a") as call, b.asking(call.result()) as asked:
        await b.until("begun hold")
        await call.cancel("somebody else")
    return [*asked.answers, await b.accounts()]


@behaviour("begin", "cancelled before its turn")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.line, "a") as first:
        await b.standing(waiting=0, running=1)
        async with it.begin(Subject.line, "a") as second:
            await b.standing(waiting=1, running=1)
            cancelled = await b.said(second.cancel("no more"))
            await b.open("a")
            results = [await b.said(first.result()), await b.said(second.result())]
            return [cancelled, *results, await b.noted("begun line"), await b.accounts()]


@behaviour("begin", "cancelled when it had ended")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.open("a")
    async with it.begin(Subject.hold, "a") as call:
        result = await b.said(call.result())
        return [result, await b.said(call.cancel("late")), await b.said(call.result()), await b.accounts()]


@behaviour("begin", "its consumer leaves")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.hold, "a"):
        await b.until("begun hold")
    await b.until("cancelled hold")
    return [await b.accounts()]


@behaviour("begin", "several runs, one is cancelled")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with (
        it.begin(Subject.hold, "a") as first,
        it.begin(Subject.hold, "b") as second,
        it.begin(Subject.hold, "c") as third,
    ):
        await b.until("begun hold", 3)
        cancelled = await b.said(second.cancel("the middle one"))
        await b.open("c", "a")
        return [
            cancelled,
            *[await b.said(call.result()) for call in (first, second, third)],
            await b.accounts(),
        ]


@behaviour("begin", "crashed while it runs")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.work, 2) as call:
        await b.open("step 1")
        seen = await b.some(call.progress, 1)
        await b.crash()
        seen += await b.some(call.progress, 1)
        await b.restarted()
        return [seen, await b.said(call.result()), await b.said(call.query()), await b.accounts()]


@behaviour("begin", "deadline passed")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.within(0.5).begin(Subject.hold, "a") as call:
        late = await b.said(call.result())
        await b.until("cancelled hold")
        return [late, await b.said(call.query()), await b.accounts()]


@behaviour("begin", "removed for good while it runs")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.begin(Subject.hold, "a") as call:
        await b.until("begun hold")
        async with b.asking(b.remove()):
            await b.open("a")
        return [await b.said(call.result()), await b.said(it.invoke(Subject.echo, "b"))]


# ---- stream


async def taken(b: Bench, it: Any, *args: Any) -> list[Any]:
    """Take all items of a stream, and what ends it."""
    items: list[Any] = []

    async def take() -> None:
        async with it.stream(Subject.count, *args) as stream:
            async for item in stream:
                items.append(item)

    return [items, await b.said(take())]


@behaviour("stream", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [*await taken(b, it, 3), await b.noted("items", "left count"), await b.accounts()]


@behaviour("stream", "items with members")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.stream(Subject.readings) as stream:
        return [b.plain(item) async for item in stream]


@behaviour("stream", "more than its window")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [*await taken(b, it, 100), await b.accounts()]


@behaviour("stream", "failure after items")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [*await taken(b, it, 2, "failure"), await b.accounts()]


@behaviour("stream", "crashed after items")
async def _(b: Bench) -> Any:
    it = await b.subject()
    ended = await taken(b, it, 2, "bug")
    await b.restarted()
    return [*ended, await b.accounts()]


@behaviour("stream", "invalid input")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [*await taken(b, it, "many"), await b.accounts()]


@behaviour("stream", "the consumer is slow")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.stream(Subject.count, 1000) as stream:
        await b.until("items", 16)
        await b.standing(running=1)
        ahead = await b.noted("items")
        first = [await anext(stream) for _ in range(3)]
    await b.until("left count")
    return [ahead["items"] <= 17, first, await b.accounts()]


@behaviour("stream", "the consumer leaves")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.stream(Subject.count, 1000) as stream:
        first = await anext(stream)
    await b.until("left count")
    return [first, await b.accounts()]


@behaviour("stream", "crashed by somebody else")
async def _(b: Bench) -> Any:
    it = await b.subject()

    async def take() -> int:
        number = 0
        async with it.stream(Subject.count, 1000) as stream:
            await b.until("items", 16)
            await b.crash()
            async for number in stream:  # noqa: B007 -- the last is the result
                pass
        return number

    died = await b.said(take())
    await b.until("left count")
    await b.restarted()
    return [died, await b.accounts()]


@behaviour("stream", "of an action without items")
async def _(b: Bench) -> Any:
    it: Any = await b.subject()

    async def take() -> list[Any]:
        async with it.stream(Subject.echo, "a") as stream:
            return [item async for item in stream]

    try:
        return [await b.said(take()), await b.accounts()]
    except TypeError as error:
        return [str(error), await b.accounts()]
