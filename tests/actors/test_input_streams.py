"""Input streams near: what is declared, how items flow, and every way in which a stream can end."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    InvalidInput,
    MailboxFull,
    MailboxOptions,
    Pool,
    Progress,
    SupervisorSpec,
    action,
    describe,
    invoke_all,
)
from lmos_actors.errors import ActionCancelled, SourceFailed
from lmos_actors.simulation import TraceLog
from lmos_actors.testing import open_test_node, settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Ref


class Row(msgspec.Struct):
    number: int
    words: list[str] = []


class Sink(Agent, mailbox=MailboxOptions(size=1, when_full="reject")):
    heard: tuple[Any, ...] = ()

    @action
    async def total(self, rows: AsyncIterator[int]) -> int:
        total = 0
        async for number in rows:
            self.heard += (number,)
            total += number
        return total

    @action
    async def noting(self, rows: AsyncIterable[int]) -> int:
        """Go on with what there is when the source breaks off."""
        total = 0
        try:
            async for number in rows:
                total += number
        except SourceFailed as exc:
            self.heard += (str(exc),)
        return total

    @action
    async def first(self, rows: AsyncIterator[int], number: int = 1) -> list[int]:
        """Return before the source has ended."""
        return [await anext(rows) for _ in range(number)]

    @action
    async def ignoring(self, rows: AsyncIterator[int]) -> str:
        await trio.sleep(1)
        return "ignored"

    @action
    async def converse(self, said: AsyncIterator[str], times: int = 2) -> AsyncIterator[str]:
        async for word in said:
            yield word * times

    @action
    async def crash(self, rows: AsyncIterator[int]) -> None:
        async for _ in rows:
            raise KeyError("boom")

    @action
    async def fail(self, rows: AsyncIterator[int]) -> None:
        async for _ in rows:
            raise ActionFailed("enough")

    @action
    async def slowly(self, rows: AsyncIterator[Any]) -> None:
        async for row in rows:
            self.heard += (row,)
            await trio.sleep(1)

    @action
    async def weigh(self, parts: AsyncIterator[bytes]) -> None:
        async for _ in parts:
            await trio.sleep(1)

    @action
    async def merged(self, left: AsyncIterator[int], *, right: AsyncIterator[int]) -> list[int]:
        return [await anext(right), *[number async for number in left], *[number async for number in right]]

    @action
    async def kept(self, rows: AsyncIterator[Row]) -> list[Row]:
        return [row async for row in rows]

    @action
    async def counting(self, progress: Progress[int], rows: AsyncIterator[int]) -> int:
        count = 0
        async for _ in rows:
            count += 1
            progress.report(count)
        return count

    @action
    async def by_two(self, rows: AsyncIterator[int]) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, rows)
            await trio.sleep(1)
            try:
                await anext(rows)
            except trio.BusyResourceError as exc:
                nursery.cancel_scope.cancel()
                return str(exc)
        return "an item"

    @action
    async def stubborn(self, rows: AsyncIterator[int]) -> None:
        """Iterate on, although the run is cancelled."""
        try:
            await anext(rows)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                try:
                    await anext(rows)
                except SourceFailed as exc:
                    self.heard += (exc.reason,)
            raise

    @action(idempotent=True)
    async def again(self, rows: AsyncIterator[int]) -> None:
        self.heard += ("again",)
        raise AgentUnavailable("elsewhere")

    kept_stream: AsyncIterator[int] | None = None

    @action
    async def keep(self, rows: AsyncIterator[int]) -> None:
        self.kept_stream = rows

    @action
    async def late(self) -> str:
        assert self.kept_stream is not None
        try:
            await anext(self.kept_stream)
        except SourceFailed as exc:
            return str(exc)
        return "an item"

    @action
    def look(self) -> tuple[Any, ...]:
        return self.heard


class Tap:
    """A source that notes what becomes of it."""

    def __init__(self, *items: Any, error: Exception | None = None, pause: float | None = None) -> None:
        self.given = 0
        self.ended = ""
        self.tasks: list[Any] = []
        self._items = items
        self._error = error
        self._pause = pause

    async def __aiter__(self) -> AsyncGenerator[Any]:
        self.tasks.append(trio.lowlevel.current_task())
        try:
            for item in self._items:
                self.given += 1
                yield item
            if self._pause is not None:
                await trio.sleep(self._pause)
            if self._error is not None:
                raise self._error
            self.ended = "ended"
        except GeneratorExit:
            self.ended = "closed"
            raise
        except trio.Cancelled:
            self.ended = "cancelled"
            raise
        finally:
            self.tasks.append(trio.lowlevel.current_task())
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()

    @property
    def in_one_task(self) -> bool:
        """Whether it began and ended, in one task."""
        return len(self.tasks) == 2 and self.tasks[0] is self.tasks[1]


NOTHING: Any = Tap()


def opened():
    spec = SupervisorSpec("root", children=[ChildSpec("sink", Sink), Pool(Sink, 2, name="pool")])
    return open_test_node(spec)


async def refused(awaitable: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- looked at by its caller
        await awaitable
    return caught.value


# ---- declaration


def test_a_def_takes_no_input_stream() -> None:
    with pytest.raises(
        TypeError, match=r"A\.f: the input stream 'rows' is for an async def, a def is one step"
    ):

        class A(Agent):
            @action
            def f(self, rows: AsyncIterator[int]) -> None: ...


def test_an_input_stream_needs_its_name() -> None:
    with pytest.raises(TypeError, match="the input stream 'rows' needs its name; take the / away"):

        class A(Agent):
            @action
            async def f(self, rows: AsyncIterator[int], /) -> None: ...


def test_an_input_stream_has_no_default() -> None:
    with pytest.raises(TypeError, match="the input stream 'rows' has no default"):

        class A(Agent):
            @action
            async def f(self, rows: AsyncIterator[int] = NOTHING) -> None: ...


def test_its_items_need_a_schema() -> None:
    with pytest.raises(TypeError, match=r"A\.f"):

        class A(Agent):
            @action
            async def f(self, rows: AsyncIterator[trio.Event]) -> None: ...


def test_a_description_offers_input_streams() -> None:
    class Voice(Agent):
        @action
        async def talk(self, voice: AsyncIterator[bytes], hints: AsyncIterable[str], language: str) -> str:
            return language

    described = describe(Voice)
    assert described.offers == ("streams",)
    flows = described.streams_of("talk")
    assert flows is not None
    assert flows.input is not None
    assert flows.output is None
    assert {name: each.content_type for name, each in flows.input.items()} == {
        "voice": "application/octet-stream",
        "hints": "application/json",
    }
    assert flows.input["hints"].schema == {"type": "string"}
    assert described.actions is not None
    assert described.actions["talk"].input == {
        "type": "object",
        "properties": {"language": {"type": "string"}},
        "required": ["language"],
    }


# ---- items


async def test_the_items_of_a_source_reach_the_handler_in_order(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(1, 2, 3)
        assert await sink.invoke(Sink.total, tap) == 6
        assert await sink.invoke(Sink.look) == (1, 2, 3)
        assert (tap.ended, tap.in_one_task) == ("ended", True)
        assert tap.tasks[0] is trio.lowlevel.current_task()


async def test_a_source_by_name_beside_other_arguments_and_one_without_items(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        assert await sink.invoke(Sink.first, rows=Tap(1, 2, 3), number=2) == [1, 2]
        assert await sink.invoke(Sink.total, Tap()) == 0


async def test_a_stream_goes_both_ways(virtual_clock) -> None:
    async with opened() as n:
        send, receive = trio.open_memory_channel[str](0)
        async with n.find(Sink, "sink").stream(Sink.converse, receive, times=3) as answers:
            for word in ("a", "b"):
                await send.send(word)
                assert await anext(answers) == word * 3
            await send.aclose()
            assert [answer async for answer in answers] == []


async def test_begin_carries_items_in_a_task_of_its_block(virtual_clock) -> None:
    async with opened() as n:
        tap = Tap(*range(100))
        async with n.find(Sink, "sink").begin(Sink.counting, tap) as call:
            assert [count async for count in call.progress][-1] == 100
            assert await call.result() == 100
        assert tap.in_one_task
        assert tap.tasks[0] is not trio.lowlevel.current_task()


async def test_several_sources_are_iterated_side_by_side(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        assert await sink.invoke(Sink.merged, Tap(1, 2), right=Tap(3, 4)) == [3, 1, 2, 4]
        async with sink.begin(Sink.merged, Tap(1, 2), right=Tap(3, 4)) as call:
            assert await call.result() == [3, 1, 2, 4]


async def test_items_are_copied_like_arguments(virtual_clock) -> None:
    async with opened() as n:
        row = Row(1, ["a"])
        (kept,) = await n.find(Sink, "sink").invoke(Sink.kept, Tap(row))
        assert kept == row
        row.words.append("b")
        assert kept.words == ["a"]


async def test_a_source_is_at_most_16_items_ahead_of_a_slow_handler(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*range(100))
        async with sink.begin(Sink.slowly, tap):
            await settle()
            for seconds in range(5):
                assert tap.given == 1 + seconds + 16
                await trio.sleep(1)
                await settle()


async def test_a_source_of_bytes_is_at_most_256_kib_ahead(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*[bytes(100_000)] * 10)
        async with sink.begin(Sink.weigh, tap):
            await settle()
            assert tap.given == 1 + 3


async def test_a_slow_source_holds_up_its_own_run_alone(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        sink = n.find(Sink, "sink")
        nursery.start_soon(sink.invoke, Sink.total, Tap(1, pause=100))
        await settle()
        assert await sink.invoke(Sink.first, Tap(5)) == [5]
        assert trio.current_time() < 1


async def test_a_member_of_a_pool_takes_a_stream(virtual_clock) -> None:
    async with opened() as n:
        pool = n.find(Sink, "pool")
        assert await pool.invoke(Sink.total, Tap(1, 2)) == 3
        async with pool.stream(Sink.converse, Tap("a")) as answers:
            assert [answer async for answer in answers] == ["aa"]


async def test_a_source_is_not_touched_before_its_run_begins(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        sink, tap = n.find(Sink, "sink"), Tap(1)
        nursery.start_soon(sink.invoke, Sink.ignoring, Tap())
        await settle()
        nursery.start_soon(sink.invoke, Sink.ignoring, tap)
        await trio.sleep(0.5)
        assert tap.given == 0
        await trio.sleep(1)
        assert tap.given == 1


# ---- the handler ends first


async def test_a_handler_that_returns_early_closes_the_source_and_its_caller_gets_the_value(
    virtual_clock,
) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*range(1000))
        assert await sink.invoke(Sink.first, tap) == [0]
        assert (tap.ended, tap.in_one_task) == ("closed", True)
        assert tap.given <= 17
        waits = Tap(1, pause=1000)
        assert await sink.invoke(Sink.first, waits) == [1]
        assert (waits.ended, waits.in_one_task) == ("cancelled", True)
        assert trio.current_time() < 1


async def test_a_handler_that_fails_closes_the_source(virtual_clock) -> None:
    async with opened() as n:
        tap = Tap(*range(1000))
        error = await refused(n.find(Sink, "sink").invoke(Sink.fail, tap))
        assert isinstance(error, ActionFailed)
        assert tap.ended == "closed"


async def test_an_agent_that_crashes_closes_the_source(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*range(1000))
        error = await refused(sink.invoke(Sink.crash, tap))
        assert isinstance(error, AgentDied)
        assert error.started
        assert (tap.ended, tap.in_one_task) == ("closed", True)
        await sink.ready()
        assert await sink.invoke(Sink.total, Tap(1)) == 1


async def test_an_agent_that_is_stopped_ends_its_streams(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        errors: list[Exception] = []
        sink = await n.start_child(ChildSpec("short", Sink, shutdown=2.0))

        async def ask(source: Any) -> None:
            errors.append(await refused(sink.invoke(Sink.total, source)))

        tap = Tap(1, pause=1000)
        nursery.start_soon(ask, tap)
        await settle()
        await n.root.terminate_child("short")
        assert [type(error) for error in errors] == [AgentDied]
        assert trio.current_time() == pytest.approx(2)
        assert (tap.ended, tap.in_one_task) == ("cancelled", True)


async def test_a_stopping_agent_lets_a_source_come_to_its_end(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        sink = await n.start_child(ChildSpec("patient", Sink, shutdown=5.0))
        totals: list[int] = []

        async def ask() -> None:
            totals.append(await sink.invoke(Sink.total, Tap(1, 2, pause=3)))

        nursery.start_soon(ask)
        await settle()
        await n.root.terminate_child("patient")
        assert totals == [3]


# ---- the source ends first


@pytest.mark.parametrize("count", [0, 1, 7, 40])
async def test_a_source_that_raises_ends_the_run_and_its_caller_gets_the_exception(
    virtual_clock, count: int
) -> None:
    async with opened() as n:
        sink, error = n.find(Sink, "sink"), LookupError("no more")
        assert await refused(sink.invoke(Sink.total, Tap(*range(count), error=error))) is error
        assert await sink.invoke(Sink.look) == tuple(range(count))
        assert sink.statistics().incarnation == 1
        assert sink.statistics().running == 0


async def test_a_handler_sees_that_a_source_has_raised_and_its_caller_gets_the_exception_all_the_same(
    virtual_clock,
) -> None:
    async with opened() as n:
        sink, error = n.find(Sink, "sink"), LookupError("no more")
        assert await refused(sink.invoke(Sink.noting, Tap(1, error=error))) is error
        (text,) = await sink.invoke(Sink.look)
        assert text == "the input stream 'rows' broke off: LookupError: no more - at $.rows"


async def test_a_verb_waits_until_the_run_has_unwound_before_it_raises_what_the_source_raised(
    virtual_clock,
) -> None:
    async with opened() as n:
        error = LookupError("no more")
        assert await refused(n.find(Sink, "sink").invoke(Sink.ignoring, Tap(error=error))) is error
        assert trio.current_time() == pytest.approx(1)


async def test_an_item_of_another_type_is_the_callers_mistake(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*range(7), "seven", 8)
        error = await refused(sink.invoke(Sink.noting, tap))
        assert isinstance(error, InvalidInput)
        assert str(error) == "Expected `int`, got `str` - at $.rows[7]"
        assert (tap.given, tap.ended, tap.in_one_task) == (8, "closed", True)
        (text,) = await sink.invoke(Sink.look)
        assert "InvalidInput: Expected `int`, got `str` - at $.rows[7]" in text


async def test_call_result_raises_what_the_source_raised(virtual_clock) -> None:
    async with opened() as n:
        error = LookupError("no more")
        async with n.find(Sink, "sink").begin(Sink.noting, Tap(1, error=error)) as call:
            assert await refused(call.result()) is error
            assert (await call.query()).status == "failed"


async def test_a_stream_raises_what_the_source_raised_behind_its_items(virtual_clock) -> None:
    async with opened() as n:
        error = LookupError("no more")
        async with n.find(Sink, "sink").stream(Sink.converse, Tap("a", "b", error=error)) as answers:
            assert [await anext(answers), await anext(answers)] == ["aa", "bb"]
            assert await refused(anext(answers)) is error


async def test_what_a_source_raised_is_not_lost_when_the_block_is_left_before_the_run_ends(
    virtual_clock,
) -> None:
    async with opened() as n:
        error = LookupError("no more")
        with pytest.raises(LookupError) as caught:
            async with n.find(Sink, "sink").begin(Sink.ignoring, Tap(error=error)):
                await trio.sleep(0.5)
        assert caught.value is error


async def test_an_exception_of_the_block_leaves_it_as_it_is(virtual_clock) -> None:
    async with opened() as n:
        tap = Tap(1, pause=1000)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 -- in the block
            async with n.find(Sink, "sink").begin(Sink.total, tap):
                await settle()
                _ = 1 / 0
        assert (tap.ended, tap.in_one_task) == ("cancelled", True)


async def test_what_a_source_raises_while_it_is_closed_leaves_the_verb(virtual_clock) -> None:
    async def rude() -> AsyncGenerator[int]:
        try:
            while True:
                yield 1
        finally:
            raise OSError("cannot close")

    async with opened() as n:
        sink = n.find(Sink, "sink")
        assert isinstance(await refused(sink.invoke(Sink.first, rude())), OSError)
        with pytest.raises(OSError, match="cannot close"):
            async with sink.begin(Sink.first, rude()) as call:
                assert await call.result() == [1]


async def test_several_sources_that_raise_do_so_in_a_group(virtual_clock) -> None:
    async with opened() as n:
        one, two = LookupError("one"), ValueError("two")
        error = await refused(n.find(Sink, "sink").invoke(Sink.merged, Tap(error=one), right=Tap(error=two)))
        assert isinstance(error, ExceptionGroup)
        assert error.exceptions == (one, two)


# ---- the caller ends it


@pytest.mark.parametrize("pause", [None, 1000.0])
async def test_a_cancelled_caller_cancels_the_handler_and_closes_the_source(virtual_clock, pause) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*range(1 if pause else 1000), pause=pause)
        with trio.move_on_after(2):
            await sink.invoke(Sink.slowly, tap)
        assert trio.current_time() == pytest.approx(2)
        assert (tap.ended, tap.in_one_task) == ("cancelled" if pause else "closed", True)
        await settle()
        assert sink.statistics().running == 0


async def test_a_handler_that_iterates_although_it_is_cancelled_gets_no_more(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        with trio.move_on_after(2):
            await sink.invoke(Sink.stubborn, Tap(pause=1000))
        await settle()
        assert await sink.invoke(Sink.look) == ("its call is over",)
        assert sink.statistics().incarnation == 1


async def test_a_deadline_ends_the_run_and_closes_the_source(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        for verb in (sink.within(2).invoke, None):
            tap = Tap(1, pause=1000)
            if verb is not None:
                error = await refused(verb(Sink.total, tap))
            else:
                async with sink.within(2).begin(Sink.total, tap) as call:
                    error = await refused(call.result())
            assert isinstance(error, DeadlineExceeded)
            assert (tap.ended, tap.in_one_task) == ("cancelled", True)
        await settle()
        assert sink.statistics().running == 0


async def test_a_cancel_ends_the_run_and_closes_the_source(virtual_clock) -> None:
    async with opened() as n:
        tap = Tap(1, pause=1000)
        async with n.find(Sink, "sink").begin(Sink.total, tap) as call:
            await settle()
            status = await call.cancel("enough")
            assert (status.status, status.cancelled) == ("failed", True)
            assert isinstance(await refused(call.result()), ActionCancelled)
        assert (tap.ended, tap.in_one_task) == ("cancelled", True)


async def test_leaving_a_stream_ends_the_run_and_closes_the_source(virtual_clock) -> None:
    async with opened() as n:
        sink, tap = n.find(Sink, "sink"), Tap(*"abc" * 1000)
        async with sink.stream(Sink.converse, tap) as answers:
            assert await anext(answers) == "aa"
        assert (tap.ended, tap.in_one_task) == ("closed", True)
        await settle()
        assert sink.statistics().running == 0


# ---- refusals


async def test_what_is_no_source_is_refused(virtual_clock) -> None:
    async with opened() as n:
        error = await refused(n.find(Sink, "sink").invoke(Sink.total, [1, 2]))  # type: ignore[arg-type]
        assert str(error) == "Expected an asynchronous iterable, got `list` - at $.rows"
        error = await refused(n.find(Sink, "sink").invoke(Sink.total))  # type: ignore[call-arg]
        assert str(error) == "Sink.total needs the input stream 'rows' - at $.rows"


async def test_a_full_mailbox_leaves_the_source_untouched(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        sink, source = n.find(Sink, "sink"), Tap(1, 2).__aiter__()
        for _ in range(2):
            nursery.start_soon(sink.invoke, Sink.ignoring, Tap())
            await settle()
        assert isinstance(await refused(sink.invoke(Sink.total, source)), MailboxFull)
        with pytest.raises(MailboxFull):
            async with sink.begin(Sink.total, source):
                pass
        await trio.sleep(3)
        assert await sink.invoke(Sink.total, source) == 3


async def test_a_source_is_for_one_call(virtual_clock) -> None:
    async with opened() as n, trio.open_nursery() as nursery:
        sink, source = n.find(Sink, "sink"), Tap(1, pause=5).__aiter__()
        nursery.start_soon(sink.invoke, Sink.total, source)
        await settle()
        error = await refused(sink.invoke(Sink.total, source))
        assert isinstance(error, RuntimeError)
        assert "Sink.total: the source given as 'rows' is iterated for another call already" in str(error)
        other = Tap(2).__aiter__()
        assert isinstance(await refused(sink.invoke(Sink.merged, other, right=other)), RuntimeError)
        assert await sink.invoke(Sink.first, other) == [2]  # which has let go of it


async def test_a_stream_is_iterated_by_one_task_of_the_handler(virtual_clock) -> None:
    async with opened() as n:
        error = await n.find(Sink, "sink").invoke(Sink.by_two, Tap(pause=1000))
        assert error == "another task is receiving from this stream"


async def test_a_stream_that_is_kept_ends_with_its_call(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        await sink.invoke(Sink.keep, Tap(1, 2))
        assert (
            await sink.invoke(Sink.late) == "the input stream 'rows' broke off: its call is over - at $.rows"
        )


async def test_a_one_way_message_carries_no_stream(virtual_clock) -> None:
    class Teller(Agent):
        @action
        def tell(self, sink: str) -> None:
            self.send(self.find(Sink, sink), Sink.total, Tap(1))

    async with opened() as n:
        sink: Ref[Sink] = n.find(Sink, "sink")
        assert "a one-way message cannot carry" in str(await refused(sink.tell(Sink.total, Tap(1))))
        with pytest.raises(TypeError, match="one-way"):
            sink.tell_nowait(Sink.total, Tap(1))
        teller = await n.start(Teller)
        assert "one-way" in str(await refused(teller.invoke(Teller.tell, "sink")))
        assert sink.statistics().accepted == 0


async def test_a_log_has_the_request_and_not_its_streams(virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(instrument=log) as n:
        sink = await n.start_child(ChildSpec("sink", Sink))
        assert await sink.invoke(Sink.first, Tap(1, 2), number=2) == [1, 2]
        async with sink.stream(Sink.converse, Tap("a")) as answers:
            assert [answer async for answer in answers] == ["aa"]
    records = [json.loads(line) for line in log.lines()]
    sent = [record for record in records if record.get("kind") == "sent"]
    assert [(each["affordance"], each["input"]) for each in sent] == [
        ("first", {"number": 2}),
        ("converse", {"times": 2}),
    ]


async def test_several_agents_cannot_share_a_source(virtual_clock) -> None:
    async with opened() as n:
        agents = [n.find(Sink, "sink"), await n.start(Sink)]
        error = await refused(invoke_all(agents, Sink.total, Tap(1)))
        assert isinstance(error, TypeError)
        assert "several agents cannot share" in str(error)


async def test_a_request_with_a_stream_is_never_repeated(virtual_clock) -> None:
    async with opened() as n:
        sink = n.find(Sink, "sink")
        await refused(sink.retrying().invoke(Sink.again, Tap(1)))
        await sink.ready()
        assert sink.statistics().handled == 1


async def test_nothing_is_left_to_the_garbage_collector(virtual_clock) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with opened() as n:
            sink = n.find(Sink, "sink")
            await sink.invoke(Sink.first, Tap(*range(100)))
            async with sink.stream(Sink.converse, Tap("a", "b", "c")) as answers:
                await anext(answers)
            with trio.move_on_after(1):
                await sink.invoke(Sink.total, Tap(1, pause=100))
            gc.collect()
