"""The table, first part: properties, and actions that are turns."""

from __future__ import annotations

from typing import Any

from tests.wire_conformance.agents import (
    Keeping,
    Newer,
    Oldest,
    Reading,
    Sender,
    Serial,
    Slow,
    Small,
    Subject,
    Waiting,
)
from tests.wire_conformance.bench import Bench, behaviour

# ---- read


@behaviour("read", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    values = [await b.said(it.read(each)) for each in (Subject.units, Subject.limit, Subject.last)]
    return [*values, "accounts", await b.accounts()]


@behaviour("read", "of a type with members")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await it.write(Subject.last, Reading("Bonn", 2.5, ("a", "b")))
    return [await b.said(it.read(Subject.last))]


@behaviour("read", "write-only")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.read(Subject.secret)), await b.accounts()]


@behaviour("read", "unknown property")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)
    return [await b.said(it.read(Newer.pressure))]


@behaviour("read", "with another class's handle")
async def _(b: Bench) -> Any:
    it: Any = await b.subject()
    return [
        await b.said(it.read(Newer.pressure)),
        await b.said(it.write(Newer.pressure, 1.0)),
        await b.said(it.invoke(Newer.fresh)),
        await b.said(it.tell(Newer.fresh)),
        await b.accounts(),
    ]


@behaviour("read", "crashed before it started", kind=Serial)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.read(Subject.units)) as asked:
        await b.standing(waiting=1, running=1)
        await b.crash()
    await b.restarted()
    return [*asked.answers, await b.said(it.read(Subject.units))]


# ---- write


@behaviour("write", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.write(Subject.units, "kelvin")),
        await b.said(it.read(Subject.units)),
        await b.said(it.write(Subject.limit, 100)),
        await b.said(it.read(Subject.limit)),
        await b.accounts(),
    ]


@behaviour("write", "write-only")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.write(Subject.secret, "x"))]


@behaviour("write", "invalid input")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.write(Subject.limit, 101)),
        await b.said(it.write(Subject.units, 3)),
        await b.said(it.write(Subject.last, {"place": 3})),
        await b.said(it.write(Subject.limit, float("nan"))),
        await b.said(it.read(Subject.limit)),
        await b.accounts(),
    ]


@behaviour("write", "read-only")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.write(Subject.serial, "s-2")),
        await b.said(it.read(Subject.serial)),
        await b.accounts(),
    ]


@behaviour("write", "unknown property")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)
    return [await b.said(it.write(Newer.pressure, 2.0))]


# ---- several properties


@behaviour("write_many", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.write_many(Subject.units.to("kelvin"), Subject.limit.to(7))),
        await b.said(it.read(Subject.units)),
        await b.said(it.read(Subject.limit)),
        await b.accounts(),
    ]


@behaviour("write_many", "all or none")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.write_many(Subject.units.to("kelvin"), Subject.limit.to(-1))),
        await b.said(it.write_many(Subject.units.to("kelvin"), Subject.serial.to("s-2"))),
        await b.said(it.read(Subject.units)),
    ]


@behaviour("read_all", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.read_all())]


# ---- invoke: a turn


@behaviour("invoke a turn", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.invoke(Subject.echo, "a")),
        await b.said(it.invoke(Subject.echo, text="b", times=2)),
        await b.accounts(),
    ]


@behaviour("invoke a turn", "values with members")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.invoke(Subject.measure, Reading("Bonn", 1.0, ("x",))))]


@behaviour("invoke a turn", "failure")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.invoke(Subject.fail, "no luck")), await b.accounts()]


@behaviour("invoke a turn", "invalid input")
async def _(b: Bench) -> Any:
    it = await b.subject()
    loose: Any = it
    return [
        await b.said(loose.invoke(Subject.echo, 3)),
        await b.said(loose.invoke(Subject.echo, "a", times="many")),
        await b.said(loose.invoke(Subject.echo)),
        await b.said(loose.invoke(Subject.measure, {"place": "Bonn"})),
        await b.said(it.invoke(Subject.echo, "still there")),
        await b.accounts(),
    ]


@behaviour("invoke a turn", "crashed in its turn")
async def _(b: Bench) -> Any:
    it = await b.subject()
    died = await b.said(it.invoke(Subject.bug))
    await b.restarted()
    return [died, await b.said(it.invoke(Subject.echo, "again")), await b.accounts()]


@behaviour("invoke a turn", "crashed before it started", kind=Serial)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.echo, "b")) as asked:
        await b.standing(waiting=1, running=1)
        await b.crash()
    await b.restarted()
    return [*asked.answers, await b.said(it.invoke(Subject.echo, "again")), await b.accounts()]


@behaviour("invoke a turn", "between two lives", kind=Slow)
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.crash()
    await b.until("starting again")
    refused = await b.said(it.invoke(Subject.echo, "a"))
    await b.open("again")
    await b.restarted()
    return [refused, await b.said(it.invoke(Subject.echo, "b")), await b.accounts()]


@behaviour("invoke a turn", "cancelled by its caller while queued", kind=Serial)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.echo, "b")) as asked:
        await b.standing(waiting=1, running=1)
        asked.scopes[1].cancel()
        await b.standing(waiting=0, cancelled=1)
        await b.open("a")
    return [*asked.answers, await b.said(it.invoke(Subject.counted)), await b.accounts()]


@behaviour("invoke a turn", "full, refused", kind=Small)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(
        it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a"), it.invoke(Subject.echo, "b")
    ) as asked:
        await b.standing(waiting=1, running=1, refused=1)
        await b.open("a")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a turn", "full, held back", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(
        it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a"), it.invoke(Subject.echo, "b")
    ) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a turn", "full, the oldest dropped", kind=Oldest)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(
        it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a")
    ) as asked:
        await b.standing(waiting=1, running=1, dropped=1)
        await b.open("a")
    return [*asked.answers, await b.accounts()]


@behaviour("invoke a turn", "unknown action")
async def _(b: Bench) -> Any:
    it = await b.subject(Newer)
    return [await b.said(it.invoke(Newer.fresh)), await b.accounts()]


@behaviour("invoke a turn", "in the wrong state")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [
        await b.said(it.invoke(Subject.enter)),
        await b.said(it.invoke(Subject.unlock)),
        await b.said(it.invoke(Subject.enter)),
        await b.accounts(),
    ]


@behaviour("invoke a turn", "deadline passed while queued", kind=Serial)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.within(0.5).invoke(Subject.echo, "b")) as asked:
        await b.standing(waiting=0, running=1, cancelled=1)
        await b.open("a")
    return [*asked.answers, await b.said(it.invoke(Subject.counted)), await b.accounts()]


@behaviour("invoke a turn", "an unknown thing")
async def _(b: Bench) -> Any:
    nobody = await b.world.ref(Subject, "nobody")
    return [await b.said(nobody.invoke(Subject.echo, "a")), await b.said(nobody.read(Subject.units))]


@behaviour("invoke a turn", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    before = await b.said(it.invoke(Subject.echo, "a"))
    await b.remove()
    return [before, await b.said(it.invoke(Subject.echo, "b")), await b.said(it.read(Subject.units))]


@behaviour("invoke a turn", "stops itself")
async def _(b: Bench) -> Any:
    it = await b.subject()
    left = await b.said(it.invoke(Subject.leave))
    await b.until("started", 2)
    await b.restarted()
    return [left, await b.said(it.invoke(Subject.echo, "again")), await b.accounts()]


@behaviour("invoke a turn", "stopped, may come back")
async def _(b: Bench) -> Any:
    from tests.wire_conformance.agents import Helper

    it = await b.subject()
    await b.helper.invoke(Helper.halt, b.name)
    refused = await b.said(it.invoke(Subject.echo, "a"))
    await b.helper.invoke(Helper.again, b.name)
    return [refused, await b.said(it.invoke(Subject.echo, "b"))]


# ---- one way


@behaviour("tell", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    told = await b.said(it.tell(Subject.echo, "a"))
    await b.handled(1)
    return [told, await b.said(it.invoke(Subject.counted)), await b.accounts()]


@behaviour("tell", "invalid input")
async def _(b: Bench) -> Any:
    it: Any = await b.subject()
    return [await b.said(it.tell(Subject.echo, 3)), await b.accounts()]


@behaviour("tell", "failure, heard by nobody")
async def _(b: Bench) -> Any:
    it = await b.subject()
    told = await b.said(it.tell(Subject.fail, "no luck"))
    await b.handled(1)
    return [told, await b.said(it.invoke(Subject.counted)), await b.accounts()]


@behaviour("tell", "crashed in its turn")
async def _(b: Bench) -> Any:
    it = await b.subject()
    told = await b.said(it.tell(Subject.bug))
    await b.until("started", 2)
    await b.restarted()
    return [told, await b.said(it.invoke(Subject.echo, "again")), await b.lost(), await b.accounts()]


@behaviour("tell", "a run")
async def _(b: Bench) -> Any:
    it = await b.subject()
    told = await b.said(it.tell(Subject.hold, "a"))
    await b.until("begun hold")
    await b.open("a")
    return [told, await b.noted("begun hold"), await b.accounts()]


@behaviour("tell_nowait", "success")
async def _(b: Bench) -> Any:
    it = await b.subject()
    it.tell_nowait(Subject.echo, "a")
    await b.handled(1)
    return [await b.said(it.invoke(Subject.counted)), await b.accounts()]


@behaviour("tell", "full, refused", kind=Small)
async def _(b: Bench) -> Any:
    it = await b.subject()
    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a")) as asked:
        await b.standing(waiting=1, running=1)
        told = [await b.said(it.tell(Subject.echo, "b")), await b.lost()]
        await b.open("a")
    return [*asked.answers, *told, await b.accounts()]


@behaviour("tell", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await it.ready()
    await b.remove()
    return [await b.said(it.tell(Subject.echo, "a")), await b.lost()]


@behaviour("tell_nowait", "full, would wait", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()

    async def tell() -> None:
        it.tell_nowait(Subject.echo, "b")

    async with b.asking(it.invoke(Subject.line, "a"), it.invoke(Subject.line, "a")) as asked:
        await b.standing(waiting=1, running=1)
        told = await b.said(tell())
        await b.until("begun line")
        await b.open("a")
    return [*asked.answers, told, await b.accounts()]


@behaviour("tell", "full, held back, in order", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()
    words = [it.tell(Subject.write_down, each) for each in "bcdef"]
    async with b.asking(it.invoke(Subject.line, "a"), *words) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    return [*asked.answers, await b.accounts(), await b.said(it.invoke(Subject.written))]


@behaviour("send", "full, the sender held back, in order", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()
    sender = await b.world.node.start(Sender, to=it)
    async with b.asking(it.invoke(Subject.line, "a"), sender.invoke(Sender.send_all, list("bcdef"))) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    await b.standing(waiting=0, running=0)
    return [*asked.answers, await b.accounts(), await b.said(it.invoke(Subject.written))]


@behaviour("invoke a turn", "behind one-way messages that wait for seats", kind=Waiting)
async def _(b: Bench) -> Any:
    it = await b.subject()
    words = [it.tell(Subject.write_down, each) for each in "bc"]
    async with b.asking(it.invoke(Subject.line, "a"), *words, it.invoke(Subject.echo, "d")) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    return [*asked.answers, await b.accounts(), await b.said(it.invoke(Subject.written))]


@behaviour("retrying", "between two lives", kind=Slow)
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.crash()
    await b.until("starting again")
    async with b.asking(it.retrying().invoke(Subject.counted), it.retrying().read(Subject.units)) as asked:
        await b.standing(refused=2)
        await b.open("again")
    return asked.answers


@behaviour("retrying", "what is not safe", kind=Slow)
async def _(b: Bench) -> Any:
    it = await b.subject()
    await b.crash()
    await b.until("starting again")
    refused = await b.said(it.retrying().invoke(Subject.echo, "a"))
    await b.open("again")
    await b.restarted()
    return [refused, await b.accounts()]


@behaviour("retrying", "success, failure, invalid input", kind=Subject)
async def _(b: Bench) -> Any:
    it: Any = (await b.subject()).retrying()
    return [
        await b.said(it.invoke(Subject.counted)),
        await b.said(it.invoke(Subject.fail, "no luck")),
        await b.said(it.write(Subject.limit, 101)),
        await b.said(it.invoke(Newer.fresh)),
    ]


@behaviour("retrying", "with keys", kind=Keeping)
async def _(b: Bench) -> Any:
    it: Any = await b.subject(Keeping)
    plain: Any = (await b.subject()).retrying(key="a")
    answers = [await b.said(it.retrying(key="a").invoke(Keeping.order, "tea")) for _ in range(2)]
    refused = [await b.said(it.retrying(key="b").invoke(Keeping.refuse, "none left")) for _ in range(2)]
    await b.crash()
    await b.restarted()
    return [
        *answers,
        *refused,
        await b.said(it.retrying(key="a").invoke(Keeping.order, "tea")),
        await b.said(it.retrying(key="a").invoke(Keeping.order, "milk")),
        await b.said(it.retrying(key="c").invoke(Keeping.order, "milk")),
        await b.said(plain.tell(Subject.echo, "a")),
    ]


@behaviour("retrying", "a key at an agent that keeps no answers")
async def _(b: Bench) -> Any:
    it = (await b.subject()).retrying(key="a")
    return [await b.said(it.invoke(Subject.echo, "a")), await b.accounts()]


@behaviour("ready", "runs")
async def _(b: Bench) -> Any:
    it = await b.subject()
    return [await b.said(it.ready()), await b.said(it.ready())]


@behaviour("ready", "removed for good")
async def _(b: Bench) -> Any:
    it = await b.subject()
    await it.ready()
    await b.remove()
    return [await b.said(it.invoke(Subject.echo, "a")), await b.said(it.ready())]
