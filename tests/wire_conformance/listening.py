"""The table, third part: observing, subscribing, monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from tests.wire_conformance.agents import Helper, Newer, Reading, Slow, Subject
from tests.wire_conformance.bench import Bench, behaviour

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lmos_actors import Feed

# ---- observe


@behaviour("observe", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.units) as readings:
        seen = [await b.some(readings, 1)]
        for value in ("kelvin", "x"):
            await it.write(Subject.units, value)
            seen.append(await b.some(readings, 1))
    return [*seen, await b.accounts()]


@behaviour("observe", "a value with members")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.last) as readings:
        seen = await b.some(readings, 1)
        await it.invoke(Subject.measure, Reading("Bonn", 1.0, ("x",)))
        return seen + await b.some(readings, 1)


@behaviour("observe", "slow consumer: the latest")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.units) as readings:
        first = await b.some(readings, 1)
        await it.invoke(Subject.tell_all, [f"w{n}" for n in range(100)])
        return [first, b.waiting(readings)]


@behaviour("observe", "unknown property")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)
    return [await b.said(entered(b, it.observe(Newer.pressure)))]


@behaviour("observe", "write-only")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(entered(b, it.observe(Subject.secret))), await b.accounts()]


@behaviour("observe", "crashed and restarted")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.units, gaps=True) as readings, it.observe(Subject.units) as plain:
        seen = [await b.some(readings, 1), await b.some(plain, 1)]
        await it.write(Subject.units, "kelvin")
        seen += [await b.some(readings, 1), await b.some(plain, 1)]
        await b.crash()
        await b.restarted()
        seen += [await b.through(readings, "celsius"), await b.some(plain, 1)]
        await it.write(Subject.units, "x")
        return [*seen, await b.some(readings, 1), await b.some(plain, 1)]


@behaviour("observe", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.units) as readings:
        seen = await b.some(readings, 1)
        await b.remove()
        return seen + await b.some(readings, 1)


@behaviour("observe", "left and made again")
async def _(b: Bench) -> Any:
    it = await b.subject()
    seen: list[Any] = []
    for value in ("a", "b"):
        async with it.observe(Subject.units) as readings:
            seen.append(await b.some(readings, 1))
            await it.write(Subject.units, value)
            seen.append(await b.some(readings, 1))
    return [*seen, await b.accounts()]


@behaviour("observe", "twice")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.observe(Subject.units) as one, it.observe(Subject.units) as two:
        seen = [await b.some(one, 1), await b.some(two, 1)]
        await it.write(Subject.units, "a")
        seen += [await b.some(one, 1), await b.some(two, 1)]
    return seen


@behaviour("observe", "between two lives", kind=Slow)
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.crash()
    await b.until("starting again")
    async with b.asking(entered(b, it.observe(Subject.units))) as asked:
        await b.until("starting again")
        await trio.sleep(0.01)
        await b.open("again")
    return asked.answers


# ---- subscribe


async def entered(b: Bench, listening: AbstractAsyncContextManager[Feed[Any]]) -> Any:
    """Listen, and take one value; a refusal comes with either."""
    async with listening as feed:
        return await b.some(feed, 1)


@behaviour("subscribe", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked) as words:
        await it.invoke(Subject.tell_all, ["a", "b", "c"])
        return [await b.some(words, 3), words.missed, await b.accounts()]


@behaviour("subscribe", "events with members")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.measured) as readings:
        await it.invoke(Subject.measure, Reading("Bonn", 1.0, ("x",)))
        return await b.some(readings, 1)


@behaviour("subscribe", "slow consumer: the oldest dropped and counted")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked, size=4) as words:
        await it.invoke(Subject.tell_all, [f"w{n}" for n in range(10)])
        await it.invoke(Subject.counted)
        await b.world.settled()
        return [b.waiting(words), words.missed]


@behaviour("subscribe", "slow consumer, told of the gap")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked, size=4, gaps=True) as words:
        await it.invoke(Subject.tell_all, [f"w{n}" for n in range(10)])
        await it.invoke(Subject.counted)
        await b.world.settled()
        return [b.waiting(words), words.missed]


@behaviour("subscribe", "unknown event")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)
    return [await b.said(entered(b, it.subscribe(Newer.moved)))]


@behaviour("subscribe", "crashed and restarted")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked, gaps=True) as words, it.subscribe(Subject.asked) as plain:
        await it.invoke(Subject.tell_all, ["a"])
        seen = [await b.some(words, 1), await b.some(plain, 1)]
        await b.crash()
        await b.restarted()
        await it.invoke(Subject.tell_all, ["b"])
        return [*seen, await b.through(words, "b"), await b.some(plain, 1)]


@behaviour("subscribe", "stopped and started again")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked, gaps=True) as words:
        await b.helper.invoke(Helper.halt, b.name)
        await b.helper.invoke(Helper.again, b.name)
        await it.invoke(Subject.tell_all, ["a"])
        return await b.through(words, "a")


@behaviour("subscribe", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked) as words:
        await it.invoke(Subject.tell_all, ["a"])
        await b.remove()
        return await b.some(words, 2)


@behaviour("subscribe", "one leaves, another stays")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked) as stays:
        async with it.subscribe(Subject.asked) as leaves:
            await it.invoke(Subject.tell_all, ["a"])
            seen = [await b.some(stays, 1), await b.some(leaves, 1)]
        await it.invoke(Subject.tell_all, ["b"])
        return [*seen, await b.some(stays, 1)]


@behaviour("subscribe", "nothing from before")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await it.invoke(Subject.tell_all, ["a"])
    await b.world.settled()
    async with it.subscribe(Subject.asked) as words:
        await it.invoke(Subject.tell_all, ["b"])
        return await b.some(words, 1)


# ---- subscribe_all


@behaviour("subscribe_all", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe_all() as events:
        await it.invoke(Subject.tell_all, ["a"])
        await it.invoke(Subject.measure, Reading("Bonn", 1.0))
        return [await b.some(events, 2), await b.accounts()]


@behaviour("subscribe_all", "beside a single one")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe(Subject.asked) as words:
        async with it.subscribe_all() as events:
            await it.invoke(Subject.tell_all, ["a"])
            seen = [await b.some(events, 1), await b.some(words, 1)]
        await it.invoke(Subject.tell_all, ["b"])
        return [*seen, await b.some(words, 1)]


@behaviour("subscribe_all", "crashed and restarted")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe_all(gaps=True) as events, it.subscribe_all() as plain:
        await it.invoke(Subject.tell_all, ["a"])
        seen = [await b.some(events, 1), await b.some(plain, 1)]
        await b.crash()
        await b.restarted()
        await it.invoke(Subject.tell_all, ["b"])
        return [*seen, await b.through(events, "asked: 'b'"), await b.some(plain, 1)]


@behaviour("subscribe_all", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.subscribe_all() as events:
        await b.remove()
        return await b.some(events, 1)


# ---- monitor


@behaviour("monitor", "crashed")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.monitor() as downs:
        await b.crash()
        await b.restarted()
        first = await b.some(downs, 1)
        await b.said(it.invoke(Subject.bug))
        return [*first, *await b.some(downs, 1)]


@behaviour("monitor", "stopped itself")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.monitor() as downs:
        await it.invoke(Subject.leave)
        return await b.some(downs, 1)


@behaviour("monitor", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with it.monitor() as downs:
        await b.remove()
        return await b.some(downs, 2)


@behaviour("monitor", "of what is gone")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await it.invoke(Subject.echo, "a")
    await b.remove()
    return [await b.said(entered(b, it.monitor()))]
