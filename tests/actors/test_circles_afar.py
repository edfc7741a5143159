"""Circles, near and over nodes, that go by more than invocations: reads, streams, requests with a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
import trio

from lmos_actors import (
    Agent,
    ChildSpec,
    MailboxOptions,
    Property,
    Ref,
    TraceLog,
    action,
    ephemeral,
    open_node,
    prop,
    simulate,
)
from lmos_actors.errors import DeadlineExceeded, Deadlocked, DeadlockWarning, WouldDeadlock
from lmos_actors.transport import MemoryNetwork
from tests.actors.test_circles import each_place, notes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


async def said(asked: Awaitable[object]) -> str:
    """Return an answer as text, or how it was refused."""
    try:
        return str(await asked)
    except WouldDeadlock as error:
        return f"refused: {len(error.circle)} waits"
    except DeadlineExceeded:
        return "too late"


class Desk(Agent, serial=True):
    """Uses the other desk in the way that it is told, one thing at a time."""

    others: list[Ref[Desk]]
    level: Property[int] = prop(default=7)

    async def by(self, way: str) -> str:
        other = self.others[0]
        if way == "nap":
            await trio.sleep(3)
            return "slept"
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "read": partial(other.read, Desk.level),
            "write": partial(other.write, Desk.level, 3),
            "read all": other.read_all,
            "in time": partial(other.within(5).read, Desk.level),
        }
        return await said(asked[way]())

    @action
    async def go(self, way: str, seconds: float = 0.0) -> str:
        await trio.sleep(seconds)
        return await self.by(way)

    @action
    async def pass_on(self, way: str) -> str:
        return await self.others[0].invoke(Desk.go, way)

    @action
    async def items(self, way: str) -> AsyncIterator[str]:
        yield "first"
        yield await self.by(way)

    @action
    async def take(self, way: str, seconds: float = 0.0) -> str:
        async with self.others[0].stream(Desk.items, way) as items:
            await trio.sleep(seconds)
            return await said(self.all_of(items))

    async def all_of(self, items: Any) -> list[str]:
        return [item async for item in items]

    @action
    async def give(self) -> str:
        """Give more items than there is room for to a handler that asks back before it takes one."""

        async def rows() -> AsyncIterator[int]:
            for number in range(100):
                yield number

        return await self.others[0].invoke(Desk.get, rows())

    @action
    async def get(self, rows: AsyncIterator[int]) -> str:
        return await self.by("read")


class Kept(Agent, durable=True, serial=True):
    """Asks the other by a key."""

    others: Any = ephemeral(default=None)

    @action(snapshot_safe=True)
    async def back(self, seconds: float) -> str:
        await trio.sleep(seconds)
        ref = self.others[0].retrying(key=f"of-{self.path}")
        return await said(ref.invoke(Kept.back, seconds))


@asynccontextmanager
async def pair_of(
    cls: type[Any],
    place: str,
    *,
    circles: Literal["warn", "fail"] = "warn",
    log: TraceLog | None = None,
) -> AsyncGenerator[list[Ref[Any]]]:
    """Start two agents that know each other, on one node or on two, for a block."""
    network, names = MemoryNetwork(), ("one", "two")
    far: list[dict[str, Any]] = [{"listen": f"ws://{name}", "network": network} for name in names]
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                open_node(instrument=log, circles=circles, store="memory:", **options)
            )
            for options in (far if place == "far" else [{}])
        ]
        lists: list[list[Ref[Any]]] = [[], []]
        specs = [ChildSpec(name, partial(cls, others=each)) for name, each in zip("ab", lists, strict=True)]
        pair = [await nodes[0].start_child(specs[0]), await nodes[-1].start_child(specs[1])]
        for number, (name, path) in enumerate((("two", "b"), ("one", "a"))):
            known = pair[1 - number]
            if place == "far":
                known = await nodes[number].consume(cls, f"http://{name}/agents/{path}")
            lists[number].append(known)
        yield pair


async def both(a: Ref[Any], b: Ref[Any], ask: Callable[[Ref[Any], float], Awaitable[str]]) -> str:
    """Ask both, the second a second later; return what was said."""
    found: dict[str, str] = {}

    async def one(ref: Ref[Any], seconds: float) -> None:
        found[ref.path] = await ask(ref, seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, a, 1.0)
        nursery.start_soon(one, b, 2.0)
    return str(found)


def go(ref: Ref[Any], seconds: float) -> Awaitable[str]:
    return ref.invoke(Desk.go, "read", seconds)


def back(ref: Ref[Any], seconds: float) -> Awaitable[str]:
    return ref.invoke(Kept.back, seconds)


CIRCLES: dict[str, tuple[type[Any], Any, float]] = {
    "read": (Desk, lambda a, _: a.invoke(Desk.pass_on, "read"), 0.0),
    "write": (Desk, lambda a, _: a.invoke(Desk.pass_on, "write"), 0.0),
    "read all": (Desk, lambda a, _: a.invoke(Desk.pass_on, "read all"), 0.0),
    "reads that cross": (Desk, lambda a, b: both(a, b, go), 2.0),
    "stream": (Desk, lambda a, _: a.invoke(Desk.take, "read"), 0.0),
    "stream that is taken later": (Desk, lambda a, _: a.invoke(Desk.take, "read", 2.0), 2.0),
    "key": (Kept, lambda a, _: a.invoke(Kept.back, 0.0), 0.0),
    "keys that cross": (Kept, lambda a, b: both(a, b, back), 2.0),
}
each_circle = pytest.mark.parametrize("circle", CIRCLES)


@each_place
@each_circle
@pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")
def test_on_virtual_time_it_is_deadlocked_where_it_closes(circle: str, place: str) -> None:
    cls, ask, when = CIRCLES[circle]

    async def main() -> None:
        async with pair_of(cls, place) as pair:
            await ask(*pair)

    with pytest.RaisesGroup(Deadlocked, allow_unwrapped=True, flatten_subgroups=True) as caught:
        simulate(main)
    text = str(caught.value)
    assert f"at {when:g} s of virtual time requests wait for each other\n" in text
    assert text.count("test_circles_afar.py:") == 2


@each_place
@each_circle
@pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")
def test_the_request_that_closes_it_may_fail(circle: str, place: str) -> None:
    cls, ask, _ = CIRCLES[circle]

    async def main() -> str:
        async with pair_of(cls, place, circles="fail") as pair:
            found: str = await ask(*pair)
            return found
        raise AssertionError

    assert "refused: 2 waits" in simulate(main)


@each_place
@pytest.mark.parametrize(
    ("ask", "ends"),
    [(lambda a: a.invoke(Desk.pass_on, "in time"), "deadline"), (lambda a: a.invoke(Desk.give), "scope")],
    ids=["read within seconds", "source"],
)
def test_what_may_end_is_a_note_alone(ask: Any, ends: str, place: str) -> None:
    log = TraceLog()

    async def main() -> None:
        async with pair_of(Desk, place, log=log) as (a, _):
            with trio.move_on_after(60):
                await ask(a)

    simulate(main)
    assert [(note["ends"], len(note["waits"])) for note in notes(log)] == [(ends, 2)]


@each_place
@pytest.mark.parametrize(
    "ask",
    [
        lambda a, b: both(a, b, lambda ref, _: ref.invoke(Desk.go, "nap")),
        lambda a, b: both(a, b, lambda ref, s: go(ref, 9.0) if s == 1.0 else ref.invoke(Desk.go, "nap")),
        lambda a, _: a.invoke(Desk.take, "nap"),
        lambda a, b: both(a, b, lambda r, s: r.invoke(*((Desk.take, "nap") if s == 1 else (Desk.go, "nap")))),
    ],
    ids=["busy", "read of one that is busy", "slow stream", "stream of one that is busy"],
)
def test_what_goes_on_is_not_told(ask: Any, place: str) -> None:
    log = TraceLog()

    async def main() -> str:
        async with pair_of(Desk, place, log=log) as pair:
            found: str = await ask(*pair)
            return found
        raise AssertionError

    assert "slept" in simulate(main)
    assert notes(log) == []


@pytest.mark.parametrize("handle", [Desk.pass_on, Desk.take], ids=["read", "stream"])
async def test_in_real_time_it_is_a_warning(handle: Any) -> None:
    async def ask(told: Any) -> None:
        async with pair_of(Desk, "far") as (a, _), trio.open_nursery() as nursery:
            nursery.start_soon(a.invoke, handle, "read")
            while not told.list:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    with pytest.warns(DeadlockWarning, match="^deadlock: a -> b of ws://two/ws -> a\n") as told:
        await ask(told)
    assert told.list[0].filename == __file__


class Tight(Agent, mailbox=MailboxOptions(size=1)):
    """Has one seat, and one thing to do at a time."""

    @action
    async def nap(self) -> str:
        await trio.sleep(3)
        return "slept"


class Waiter(Agent):
    """Begins a call, and waits for its result."""

    other: Ref[Tight]

    @action
    async def call(self) -> str:
        async with self.other.begin(Tight.nap) as call:
            return await call.result()


def test_a_result_is_waited_for_while_others_wait_for_seats() -> None:
    async def main() -> str:
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://one", network=network) as one,
            open_node(listen="ws://two", network=network) as two,
            trio.open_nursery() as nursery,
        ):
            near, _ = await one.start(Tight), await two.start(Tight)
            far = await one.consume(Tight, "http://two/agents/tight")
            for _ in range(3):  # a run, one on the seat, and one that waits for it
                nursery.start_soon(near.invoke, Tight.nap)
            await trio.sleep(1)
            waiter = await one.start(Waiter, other=far)
            return await waiter.invoke(Waiter.call)
        raise AssertionError

    assert simulate(main) == "slept"
