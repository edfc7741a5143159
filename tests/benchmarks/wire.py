"""Agents asked over a wire, from one process to another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, MailboxFull, action, open_node
from lmos_actors.transport import raise_descriptor_limit
from tests.benchmarks.limits_wire import HOST, MEGABYTE, QUESTION, WINDOW, other_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors import Ref


class Far(Agent):
    """The agent that is asked, with the mailbox that agents have by default."""

    count: int = 0

    @action
    def echo(self, text: str) -> str:
        """Give it back."""
        self.count += 1
        return text

    @action
    def tell(self, text: str) -> None:
        """Count it."""
        self.count += 1

    @action
    def told(self) -> int:
        """Say how many there were."""
        return self.count

    @action
    async def pour(self, pieces: int, size: int) -> AsyncIterator[bytes]:
        """Give so many pieces of so many bytes."""
        piece = bytes(size)
        for _ in range(pieces):
            yield piece

    @action
    async def swallow(self, pieces: AsyncIterator[bytes]) -> int:
        """Count the bytes of all pieces."""
        return sum([len(piece) async for piece in pieces])

    @action
    async def tally(self, numbers: AsyncIterator[int]) -> int:
        """Count the numbers."""
        count = 0
        async for _ in numbers:
            count += 1
        return count

    @action
    async def mirror(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answer each frame by itself."""
        async for frame in frames:
            yield frame

    @action
    def resident(self) -> int:
        """Say how many bytes of memory this process has in use."""
        return resident()


def resident() -> int:
    """Bytes of memory of this process that are in use."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def serve(told: Callable[[str], object]) -> None:
    """Serve the agent until killed; tell the URL of its description."""
    raise_descriptor_limit(20_000)
    async with open_node(listen=f"ws://{HOST}:0") as node:
        await node.start(Far)
        told(node.urls[0])
        await trio.sleep_forever()


async def _consumed(url: str, program: Callable[[Ref[Far], int], Any], n: int) -> float:
    async with open_node() as node:
        far = await node.consume(Far, url.replace("ws://", "http://", 1).rstrip("/") + "/agents/far")
        value: float = await program(far, n)
        return value


def measured(program: Callable[[Ref[Far], int], Any], n: int) -> float:
    """Measure a program against an agent in a process of its own."""
    with other_process("lmos") as url:
        return trio.run(_consumed, url, program, n)


async def _ask(far: Ref[Far], n: int) -> float:
    await far.invoke(Far.echo, QUESTION)
    began = clock()
    for _ in range(n):
        await far.invoke(Far.echo, QUESTION)
    return n / (clock() - began)


async def _ask_together(far: Ref[Far], n: int) -> float:
    async def some(count: int) -> None:
        for _ in range(count):
            await far.invoke(Far.echo, QUESTION)

    await far.invoke(Far.echo, QUESTION)
    began = clock()
    async with trio.open_nursery() as nursery:
        for place in range(WINDOW):
            nursery.start_soon(some, n // WINDOW + (place < n % WINDOW))
    return n / (clock() - began)


async def _tell(far: Ref[Far], n: int) -> float:
    wanted = await far.invoke(Far.told) + n
    began = clock()
    for _ in range(n):
        await far.tell(Far.tell, QUESTION)
    while await _told(far) != wanted:  # noqa: ASYNC110 -- nothing tells
        await trio.sleep(0.001)
    return n / (clock() - began)


async def _told(far: Ref[Far]) -> int:
    """Ask how many came, -1 while messages wait outside a full mailbox: no request overtakes them."""
    try:
        return await far.invoke(Far.told)
    except MailboxFull:
        return -1


async def _large(far: Ref[Far], n: int) -> float:
    text = "x" * MEGABYTE
    await far.invoke(Far.echo, text)
    began = clock()
    for _ in range(n):
        await far.invoke(Far.echo, text)
    return 2 * n / (clock() - began)


async def _stream(far: Ref[Far], n: int) -> float:
    size, began, came = 1 << 16, clock(), 0
    async with far.stream(Far.pour, n * MEGABYTE // size, size) as pieces:
        async for piece in pieces:
            came += len(piece)
    assert came == n * MEGABYTE
    return n / (clock() - began)


async def _stream_memory(far: Ref[Far], n: int) -> float:
    await _stream(far, 4)
    before = resident(), await far.invoke(Far.resident)
    await _stream(far, n)
    after = resident(), await far.invoke(Far.resident)
    return max(late - early for early, late in zip(before, after, strict=True)) / MEGABYTE


async def _pieces(number: int, size: int) -> AsyncIterator[bytes]:
    piece = bytes(size)
    for _ in range(number):
        yield piece


async def _numbers(number: int) -> AsyncIterator[int]:
    for each in range(number):
        yield each


async def _stream_in(far: Ref[Far], n: int) -> float:
    size, began = 1 << 16, clock()
    assert await far.invoke(Far.swallow, _pieces(n * MEGABYTE // size, size)) == n * MEGABYTE
    return n / (clock() - began)


async def _items_in(far: Ref[Far], n: int) -> float:
    began = clock()
    assert await far.invoke(Far.tally, _numbers(n)) == n
    return n / (clock() - began)


async def _both_ways(far: Ref[Far], n: int) -> None:
    size, came = 1 << 16, 0
    async with far.stream(Far.mirror, _pieces(n * MEGABYTE // size, size)) as pieces:
        async for piece in pieces:
            came += len(piece)
    assert came == n * MEGABYTE


async def _memory_both_ways(far: Ref[Far], n: int) -> float:
    await _both_ways(far, 4)
    before = resident(), await far.invoke(Far.resident)
    await _both_ways(far, n)
    after = resident(), await far.invoke(Far.resident)
    return max(late - early for early, late in zip(before, after, strict=True)) / MEGABYTE


async def _voice(part: float, far: Ref[Far], n: int) -> float:
    """Send n frames of 20 ms of speech, 16 bits at 16 kHz, each once the one before has come back."""
    send, receive = trio.open_memory_channel[bytes](0)
    took: list[float] = []
    async with far.stream(Far.mirror, receive) as frames:
        for number in range(n):
            began = clock()
            await send.send(number.to_bytes(2, "big") * 320)
            assert len(await anext(frames)) == 640
            took.append(clock() - began)
        await send.aclose()
    return sorted(took)[int(part * (n - 1))] * 1e3


def stream_in(n: int) -> float:
    """Measure a stream of bytes into the agent, in MB a second."""
    return measured(_stream_in, n)


def items_in(n: int) -> float:
    """Measure a stream of numbers into the agent, in items a second."""
    return measured(_items_in, n)


def memory_both_ways(n: int) -> float:
    """Measure by how many MB a stream of so many MB there and back makes either process grow."""
    return measured(_memory_both_ways, n)


def voice_median(n: int) -> float:
    """Measure the milliseconds that a frame of speech takes there and back, in the median."""
    return measured(partial(_voice, 0.5), n)


def voice_slowest(n: int) -> float:
    """Measure the milliseconds that 99 of 100 frames of speech take there and back at most."""
    return measured(partial(_voice, 0.99), n)


def items_in_near(n: int) -> float:
    """Measure a stream of numbers into an agent of the same node, in items a second."""

    async def main() -> float:
        async with open_node() as node:
            return await _items_in(await node.start(Far), n)

    return trio.run(main)


def ask(n: int) -> float:
    """Measure questions one after another."""
    return measured(_ask, n)


def ask_together(n: int) -> float:
    """Measure questions, 64 in flight."""
    return measured(_ask_together, n)


def tell(n: int) -> float:
    """Measure messages one way, until the agent has counted them all."""
    return measured(_tell, n)


def large(n: int) -> float:
    """Measure texts of 1 MB there and back, in MB a second."""
    return measured(_large, n)


def stream(n: int) -> float:
    """Measure a stream of bytes, in MB a second."""
    return measured(_stream, n)


def stream_memory(n: int) -> float:
    """Measure by how many MB a stream of so many MB makes either process grow."""
    return measured(_stream_memory, n)


def idle_memory(n: int) -> float:
    """Measure the bytes that a server keeps for each of so many idle connections."""
    with other_process("lmos") as url:
        before = _resident_there(url)
        with _crowd(url, n):
            return (_resident_there(url) - before) / n


def _resident_there(url: str) -> float:
    async def program(far: Ref[Far], _: int) -> float:
        return await far.invoke(Far.resident)

    return trio.run(_consumed, url, program, 0)


@contextmanager
def _crowd(url: str, n: int, *options: str) -> Iterator[float]:
    """Keep so many connections of another process; give how many were opened a second."""
    command = [sys.executable, "-m", "tests.benchmarks.wire_crowd", url, str(n), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
        assert crowd.stdout is not None
        try:
            yield json.loads(crowd.stdout.readline())
        finally:
            crowd.kill()


def connections(n: int) -> float:
    """Measure connections a second, each opened and asked once."""
    with other_process("lmos") as url, _crowd(url, n) as rate:
        return rate
