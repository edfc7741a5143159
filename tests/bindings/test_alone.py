"""Requests over sockets while nothing else is open: they are sent, carried out and answered in few steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import ActionFailed, Agent, AgentDied, DeadlineExceeded, InvalidInput, action, open_node
from lmos_actors.transport import endpoint_of
from tests.transport.peer import Steps

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node, Ref


class Clerk(Agent, behaviours=("open", "closed")):
    """Takes notes."""

    def started(self) -> None:
        """Begin without notes."""
        self.notes: list[int] = []

    @action
    def note(self, number: int) -> list[int]:
        """Note a number; return all that there are."""
        if self.behaviour == "closed":
            self.stash()
        self.notes.append(number)
        return self.notes

    @action
    async def note_later(self, number: int) -> list[int]:
        """Note a number after a while."""
        await trio.lowlevel.checkpoint()
        self.notes.append(number)
        return self.notes

    @action
    async def never(self) -> None:
        """Do not return."""
        await trio.sleep_forever()

    @action
    def pass_on(self, number: int) -> None:
        """Note a number in a turn of its own."""
        self.send(self.ref, Clerk.note, number)

    @action
    def turn_to(self, behaviour: str) -> None:
        """Change the behaviour."""
        self.become(behaviour)

    @action
    def crash(self) -> None:
        """Break."""
        raise ZeroDivisionError

    @action
    def refuse(self) -> None:
        """Decline."""
        raise ActionFailed("not today")

    @action
    def wrong(self) -> int:
        """Return no number."""
        return "one"  # type: ignore[return-value]


class Ticker(Agent):
    """Says a number whenever it may."""

    gate: Any

    @action
    async def tick(self, at_once: int = 1) -> AsyncIterator[int]:
        """Say some numbers, as often as the gate opens."""
        number = 0
        while True:
            await self.gate.acquire()
            for _ in range(at_once):
                yield number
                number += 1


@asynccontextmanager
async def far_clerk() -> AsyncGenerator[tuple[Node, Ref[Clerk], Ref[Clerk]]]:
    """Give a node, a ref to its clerk, and a ref to it over a socket."""
    async with open_node(listen="ws://127.0.0.1:0") as node, open_node() as client:
        near = await node.start(Clerk)
        far = await client.consume(Clerk, f"{node.urls[0].replace('ws', 'http', 1).rstrip('/')}/agents/clerk")
        await far.ready()
        await wait_all_tasks_blocked()
        yield node, near, far


async def test_a_request_that_is_alone_takes_three_steps() -> None:
    async with far_clerk() as (_, _, far):
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        counts: list[int] = []
        for number in range(20):
            before = steps.count
            await far.invoke(Clerk.note, number)
            counts.append(steps.count - before)
        trio.lowlevel.remove_instrument(steps)
    # the server's reader, the client's reader, the asker; every ten milliseconds others have a turn, too
    assert min(counts) == 3


@asynccontextmanager
async def far_ticker(gate: trio.Semaphore) -> AsyncGenerator[Ref[Ticker]]:
    """Give a ref to a ticker over a socket."""
    async with open_node(listen="ws://127.0.0.1:0") as node, open_node() as client:
        await node.start(Ticker, gate=gate)
        url = node.urls[0].replace("ws", "http", 1).rstrip("/")
        yield await client.consume(Ticker, f"{url}/agents/ticker")


async def test_an_item_of_a_stream_that_is_alone_takes_four_steps() -> None:
    gate, steps, counts = trio.Semaphore(0), Steps(), list[int]()
    async with far_ticker(gate) as far, far.stream(Ticker.tick) as items:
        trio.lowlevel.add_instrument(steps)
        for number in range(20):
            before = steps.count
            gate.release()
            assert await anext(items) == number
            counts.append(steps.count - before)
        trio.lowlevel.remove_instrument(steps)
    assert min(counts) == 4  # the run, the client's reader, and twice the one who iterates


async def test_an_item_of_a_stream_over_http_takes_three_steps() -> None:
    gate, steps, counts, came = trio.Semaphore(0), Steps(), list[int](), b""
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(Ticker, gate=gate)
        async with await trio.open_tcp_stream("127.0.0.1", endpoint_of(node.urls[0]).port) as stream:
            head = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            await stream.send_all(b"POST /agents/ticker/actions/tick HTTP/1.1\r\n" + head)
            trio.lowlevel.add_instrument(steps)
            for number in range(20):
                before = steps.count
                gate.release()
                while b"data: %d\n\n" % number not in came:
                    came += await stream.receive_some(65_536)
                counts.append(steps.count - before)
            trio.lowlevel.remove_instrument(steps)
    assert min(counts) == 3  # the run, the request, the one who reads


async def test_items_of_several_streams_and_many_at_once_come_all_and_in_order() -> None:
    gate, heard = trio.Semaphore(0), [list[int](), list[int](), list[int]()]
    async with far_ticker(gate) as far, trio.open_nursery() as nursery:

        async def hear(numbers: list[int]) -> None:
            async with far.stream(Ticker.tick, 40) as items:
                async for number in items:
                    numbers.append(number)
                    if number == 399:
                        return

        for numbers in heard:
            nursery.start_soon(hear, numbers)
        while any(len(numbers) < 400 for numbers in heard):
            gate.release()
            await wait_all_tasks_blocked(0.001)
    assert heard == [list(range(400))] * 3


async def test_each_request_takes_effect_in_order_whichever_way_it_went() -> None:
    async with far_clerk() as (_, _, far):
        for number in range(0, 700, 7):
            await far.tell(Clerk.note, number)
            await far.tell(Clerk.note, number + 1)
            await far.invoke(Clerk.note, number + 2)
            await far.invoke(Clerk.note, number + 3)
            await far.tell(Clerk.note, number + 4)
            await far.invoke(Clerk.note_later, number + 5)
            await far.tell(Clerk.note, number + 6)
        assert await far.invoke(Clerk.note, 700) == list(range(701))


async def test_requests_that_come_together_are_all_answered() -> None:
    async with far_clerk() as (_, near, far):
        answers: list[int] = []

        async def ask(number: int) -> None:
            for _ in range(20):
                answers.append(len(await far.invoke(Clerk.note, number)))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
        assert sorted(answers) == list(range(1, 401))
        counts = near.statistics()
        assert counts.accepted == counts.handled == 400


async def test_what_a_turn_leaves_to_be_done_is_done() -> None:
    async with far_clerk() as (_, near, far):
        with trio.fail_after(20):
            for number in range(20):
                await far.invoke(Clerk.pass_on, number)
            assert await far.invoke(Clerk.note, 20) == list(range(21))
        assert near.statistics().handled == 41


async def test_a_turn_that_is_put_aside_is_answered_when_it_is_taken_up() -> None:
    async with far_clerk() as (_, near, far):
        await far.invoke(Clerk.turn_to, "closed")
        got: list[list[int]] = []

        async def ask() -> None:
            got.append(await far.invoke(Clerk.note, 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.01)
            assert near.statistics().waiting == 1
            await far.invoke(Clerk.turn_to, "open")
        assert got == [[1]]


async def test_errors_of_a_turn_come_back() -> None:
    async with far_clerk() as (_, near, far):
        with pytest.raises(ActionFailed, match="not today"):
            await far.invoke(Clerk.refuse)
        with pytest.raises(AgentDied, match="ZeroDivisionError"):
            await far.invoke(Clerk.crash)
        await far.ready()
        with pytest.raises(AgentDied):
            await far.invoke(Clerk.wrong)
        await far.ready()
        with pytest.raises(InvalidInput):
            await far.invoke(Clerk.note, "one")  # type: ignore[arg-type]
        assert await far.invoke(Clerk.note, 1) == [1]
        counts = near.statistics()
        assert counts.restarts == 2
        assert counts.accepted == counts.handled + counts.cancelled + counts.dead_lettered


async def test_a_request_that_is_given_up_leaves_the_connection_whole() -> None:
    async with far_clerk() as (_, near, far):
        with trio.CancelScope() as scope:
            scope.cancel()
            await far.invoke(Clerk.note, 1)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(far.invoke, Clerk.never)
            await wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        with pytest.raises(DeadlineExceeded):
            await far.within(0.02).invoke(Clerk.never)
        assert await far.within(60).invoke(Clerk.note, 2) == [2]
        await wait_all_tasks_blocked(0.01)
        assert near.statistics().running == 0


async def test_a_request_too_long_for_a_buffer_comes_whole() -> None:
    class Echo(Agent):
        """Repeats."""

        @action
        def echo(self, text: str) -> str:
            """Return it."""
            return text

    async with open_node(listen="ws://127.0.0.1:0") as node, open_node() as client:
        await node.start(Echo)
        far = await client.consume(Echo, f"{node.urls[0].replace('ws', 'http', 1).rstrip('/')}/agents/echo")
        for size in (1, 100_000, 3_000_000, 1):
            text = "x" * size
            assert await far.invoke(Echo.echo, text) == text
