"""Calls and streams: begin, progress, query, cancel, stream (DECISIONS B1, R5, W6 near)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.lowlevel

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    DeadlineExceeded,
    Gap,
    MailboxOptions,
    Progress,
    action,
)
from lmos_actors.errors import ActionCancelled
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import CallStatus


class Weather(Agent):
    story: tuple[str, ...] = ()

    @action
    async def forecast(self, progress: Progress[float], city: str) -> str:
        for tenth in range(1, 11):
            await trio.sleep(0.1)
            progress.report(tenth / 10)
        return f"sunny in {city}"

    @action
    async def lie(self, progress: Progress[float]) -> None:
        await trio.lowlevel.checkpoint()
        progress.report("half")  # type: ignore[arg-type]

    @action
    async def fail(self) -> None:
        await trio.sleep(1)
        raise ActionFailed("no clouds")

    @action
    async def crash(self) -> None:
        await trio.sleep(1)
        raise KeyError("boom")

    @action
    async def hold(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.story += ("ended",)

    @action
    def turn(self) -> str:
        return "turned"

    @action
    def look(self) -> tuple[str, ...]:
        return self.story

    @action
    async def count(self, to: int, pause: float = 0.0) -> AsyncIterator[int]:
        try:
            for number in range(to):
                await trio.sleep(pause)
                self.story += (f"made {number}",)
                yield number
        finally:
            self.story += ("closed",)

    @action
    async def count_with_progress(self, progress: Progress[float], to: int) -> AsyncIterator[int]:
        for number in range(to):
            await trio.sleep(1)
            progress.report(number / to)
            yield number

    @action
    async def fail_midway(self) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ActionFailed("no more")

    @action
    async def crash_midway(self) -> AsyncIterator[int]:
        yield 1
        raise KeyError("boom")

    @action
    async def lie_midway(self) -> AsyncIterator[int]:
        yield 1
        yield "two"  # type: ignore[misc]

    @action
    async def clean_up_slowly_between(self) -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            self.story += ("cleaned",)

    @action
    async def clean_up_slowly(self) -> AsyncIterator[int]:
        try:
            yield 1
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            self.story += ("cleaned",)


async def test_progress_and_result(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.forecast, "Bonn") as call:
            assert [fraction async for fraction in call.progress] == [n / 10 for n in range(1, 11)]
            assert await call.result() == "sunny in Bonn"
            assert await call.result() == "sunny in Bonn", "as often as it is asked for"
            assert await call.query() == CallStatus("completed")
            assert await call.cancel() == CallStatus("completed"), "too late"
        assert trio.current_time() == pytest.approx(1)


async def test_progress_conflates_for_a_slow_consumer(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.forecast, "Bonn") as call:
            await trio.sleep(0.55)
            assert await call.progress.receive() == 0.5
            assert call.progress.missed == 4
            assert await call.result() == "sunny in Bonn"
            assert await call.progress.receive() == 1.0
            with pytest.raises(trio.EndOfChannel):
                await call.progress.receive()


async def test_progress_of_another_type_is_a_crash(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        with pytest.raises(AgentDied, match=r"Weather\.lie reported progress of another type"):
            await weather.invoke(Weather.lie)


async def test_invoke_ignores_progress(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        assert await weather.invoke(Weather.forecast, "Bonn") == "sunny in Bonn"


async def test_a_call_of_a_turn(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.turn) as call:
            assert await call.query() in (CallStatus("pending"), CallStatus("completed"))
            assert await call.result() == "turned"
            assert [fraction async for fraction in call.progress] == []


async def test_query_tells_the_life_of_a_call(virtual_clock) -> None:
    """B1: pending, in progress, completed or failed."""
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.fail) as first, weather.begin(Weather.fail) as second:
            await settle()
            assert await first.query() == CallStatus("in progress")
            assert await second.query() == CallStatus("pending")
            with pytest.raises(ActionFailed, match="no clouds"):
                await first.result()
            assert await first.query() == CallStatus("failed")
            await settle()
            assert await second.query() == CallStatus("in progress")
            with pytest.raises(ActionFailed):
                await second.result()


@pytest.mark.parametrize("reason", [None, "the user left"])
async def test_cancel_is_the_final_answer(virtual_clock, reason: str | None) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.start(Weather)
        async with weather.begin(Weather.hold) as call:
            waiting: list[BaseException] = []

            async def wait() -> None:
                with pytest.raises(ActionCancelled) as caught:
                    await call.result()
                waiting.append(caught.value)

            for _ in range(3):
                nursery.start_soon(wait)
            await settle()
            status = CallStatus("failed", cancelled=True, reason=reason)
            assert await call.cancel(reason) == status
            assert await call.cancel("again") == status, "repeats merge"
            with pytest.raises(ActionCancelled) as caught:
                await call.result()
            assert caught.value.reason == reason
            await settle()
            assert len(waiting) == 3
        assert await weather.invoke(Weather.look) == ("ended",)
        counts = weather.statistics()
        assert (counts.accepted, counts.cancelled, counts.handled) == (2, 1, 1)


async def test_leaving_the_block_cancels(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.hold):
            await trio.sleep(1)
        await settle()
        assert await weather.invoke(Weather.look) == ("ended",)
        with pytest.raises(KeyError):  # noqa: PT012 -- leaving the block is a part of it
            async with weather.begin(Weather.hold):
                await settle()
                raise KeyError("mine")
        with trio.move_on_after(1):
            async with weather.begin(Weather.hold) as call:
                await call.result()
        await settle()
        assert await weather.invoke(Weather.look) == ("ended",) * 3
        assert weather.statistics().cancelled == 3


async def test_a_call_of_an_incarnation_ends_with_it(virtual_clock) -> None:
    """L2: the call of an old incarnation ends AgentDied and does not come back with the new one."""
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.begin(Weather.hold) as running, weather.begin(Weather.hold) as pending:
            await settle()
            with pytest.raises(AgentDied):
                await weather.invoke(Weather.crash)
            for call, started in ((running, True), (pending, False)):
                with pytest.raises(AgentDied) as caught:
                    await call.result()
                assert caught.value.started is started
                assert await call.query() == CallStatus("failed")
            await weather.ready()
            counts = weather.statistics()
            assert (counts.accepted, counts.handled, counts.dead_lettered) == (3, 1, 2)


async def test_a_stream_yields_every_item_in_order(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.stream(Weather.count, 40) as items:
            assert [item async for item in items] == list(range(40))
        async with weather.stream(Weather.count_with_progress, 3) as items:
            assert [item async for item in items] == [0, 1, 2]
        counts = weather.statistics()
        assert (counts.accepted, counts.handled) == (2, 2)


async def test_w6_a_stream_is_at_most_16_items_ahead(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.stream(Weather.count, 100) as items:
            await trio.sleep(60)
            made = len(await weather.invoke(Weather.look))
            assert made == 17, "16 items of credit, and one in the hand of the run"
            assert await anext(aiter(items)) == 0
            await trio.sleep(60)
            assert len(await weather.invoke(Weather.look)) == made + 1
            assert [item async for item in items] == list(range(1, 100))


async def test_a_stream_that_is_left_early_is_cancelled_and_closed(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        async with weather.stream(Weather.count, 100, 1.0) as items:
            async for item in items:
                if item == 3:
                    break
        await settle()
        log = await weather.invoke(Weather.look)
        assert log == ("made 0", "made 1", "made 2", "made 3", "closed")
        async with weather.stream(Weather.count, 100):
            pass
        await settle()
        assert weather.statistics().cancelled == 2
        assert weather.statistics().running == 0


@pytest.mark.parametrize("handle", [Weather.clean_up_slowly, Weather.clean_up_slowly_between])
async def test_a_streams_generator_is_closed_by_its_run(virtual_clock, handle) -> None:
    """Its `finally` belongs to the run, wherever it stands: awaited under its shield, the next run waits."""
    async with open_test_node() as node:
        weather = await node.start(Weather)
        for _ in range(2):
            async with weather.stream(handle) as items:
                await anext(aiter(items))
                await settle()
        await trio.sleep(6)
        assert trio.current_time() == 11
        assert await weather.invoke(Weather.look) == ("cleaned", "cleaned")


@pytest.mark.parametrize(
    ("handle", "items_before", "error"),
    [
        (Weather.fail_midway, [1, 2], ActionFailed),
        (Weather.crash_midway, [1], AgentDied),
        (Weather.lie_midway, [1], AgentDied),
    ],
)
async def test_a_stream_gives_what_there_is_before_its_error(
    virtual_clock, handle, items_before, error
) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        received: list[int] = []
        with pytest.raises(error):  # noqa: PT012 -- leaving the block is a part of it
            async with weather.stream(handle) as items:
                async for item in items:
                    received.append(item)
        assert received == items_before


async def test_two_receivers_of_one_feed_are_refused(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.start(Weather)
        async with weather.stream(Weather.count, 5, 1.0) as items, weather.begin(Weather.hold) as call:
            nursery.start_soon(items.__anext__)
            nursery.start_soon(call.progress.__anext__)
            await settle()
            with pytest.raises(trio.BusyResourceError):
                await anext(aiter(items))
            with pytest.raises(trio.BusyResourceError):
                await call.progress.receive()
            nursery.cancel_scope.cancel()


async def test_a_told_stream_runs_to_its_end_for_nobody(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        weather.tell_nowait(Weather.count, 3)  # type: ignore[arg-type]
        await settle()
        assert await weather.invoke(Weather.look) == ("made 0", "made 1", "made 2", "closed")


def test_values_of_calls() -> None:
    assert CallStatus("pending") == CallStatus("pending", cancelled=False, reason=None)
    assert Gap("why") == Gap("why", None)


async def test_b5_within_holds_for_tell_and_stream_too(virtual_clock) -> None:
    class Slow(Agent, mailbox=MailboxOptions(size=1)):
        @action
        async def work(self) -> None:
            await trio.sleep(100)

        @action
        async def drip(self) -> AsyncIterator[int]:
            for number in range(100):
                await trio.sleep(1)
                yield number

    async with open_test_node() as node:
        slow = await node.start_child(ChildSpec("slow", Slow, shutdown="brutal"))
        seen = []

        async def receive() -> None:
            async with slow.within(3.5).stream(Slow.drip) as items:
                async for item in items:
                    seen.append(item)

        with pytest.raises(DeadlineExceeded):
            await receive()
        assert seen == [0, 1, 2]
        await slow.tell(Slow.work)
        await settle()
        await slow.tell(Slow.work)
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await slow.within(2).tell(Slow.work)
        assert trio.current_time() - began == pytest.approx(2)
        assert slow.statistics().waiting == 1
