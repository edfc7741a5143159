"""Bare ends of connections, each server a process of its own: the least that a request over a wire costs.

    lines            newline-framed JSON on a socket that reads and writes with the fewest steps
    trio-websocket   the library as it comes, one message after another
    websockets       the asyncio library, without compression

All of them read and write the same message by msgspec; a request is answered by its own input.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from trio.lowlevel import wait_readable, wait_writable
from trio_websocket import ConnectionClosed, open_websocket_url, serve_websocket

from tests.benchmarks.servers import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_websocket import WebSocketRequest

HOST = "127.0.0.1"
QUESTION = "What is the weather in Berlin tomorrow, and will it be warm enough to sit outside?"
READ = 65_536
MEGABYTE = 1 << 20


class Invoke(msgspec.Struct, tag_field="messageType", tag="invokeAction", gc=False):
    """A request of about 300 bytes."""

    thingID: str
    messageID: str
    action: str
    input: dict[str, Any]
    correlationID: str


class Status(msgspec.Struct, tag_field="messageType", tag="actionStatus", gc=False):
    """Its answer."""

    thingID: str
    messageID: str
    action: str
    output: Any
    correlationID: str


decode: Callable[[bytes | str], Invoke | Status] = msgspec.json.Decoder(Invoke | Status).decode
encode = msgspec.json.Encoder().encode
ID = "c370da58-69ae-4e83-bb5a-ac6cfb2fed54"
REQUEST = Invoke("urn:uuid:0804d572-cce8-422a-bb7c-4412fcd56f06", ID, "echo", {"text": QUESTION}, ID)


class Counter:
    """The other side: answers, or only counts; `count` as an action gives how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def meet(self, text: bytes | str) -> bytes | None:
        """Take a message, give the answer to it, if there is one."""
        message = decode(text)
        assert isinstance(message, Invoke)
        if message.action == "count":
            return encode(Status(message.thingID, ID, "count", self.count, message.correlationID))
        self.count += 1
        if message.action == "tell":
            return None
        return encode(Status(message.thingID, ID, "echo", message.input["text"], message.correlationID))


class Lines:
    """Lines on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._rest = b""

    async def receive(self) -> list[bytes]:
        """Give the lines that are there, or wait for some; none at the end."""
        while True:
            await wait_readable(self.sock)
            try:
                data = self.sock.recv(READ)
            except BlockingIOError:
                continue
            if not data:
                return []
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return lines

    async def send(self, lines: list[bytes]) -> None:
        """Send lines as one write."""
        data = memoryview(b"\n".join(lines) + b"\n")
        while data:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                await wait_writable(self.sock)


# --- servers


async def serve_lines(told: Callable[[int], object]) -> None:
    """Serve one connection of lines."""
    listener = socket.create_server((HOST, 0))
    told(listener.getsockname()[1])
    lines, counter = Lines(listener.accept()[0]), Counter()
    while batch := await lines.receive():
        answers = [answer for line in batch if (answer := counter.meet(line)) is not None]
        if answers:
            await lines.send(answers)


async def serve_trio_websocket(told: Callable[[int], object]) -> None:
    """Serve connections of trio-websocket."""

    async def serve(request: WebSocketRequest) -> None:
        counter, connection = Counter(), await request.accept()
        try:
            while True:
                answer = counter.meet(await connection.get_message())
                if answer is not None:
                    await connection.send_message(answer.decode())
        except ConnectionClosed:
            pass

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, serve, HOST, 0, None)
        told(server.port)


async def serve_websockets(told: Callable[[int], object]) -> None:
    """Serve connections of `websockets`."""
    import websockets

    async def serve(connection: Any) -> None:
        counter = Counter()
        async for text in connection:
            answer = counter.meet(text)
            if answer is not None:
                await connection.send(answer.decode())

    async with websockets.serve(serve, HOST, 0, compression=None, max_size=None) as server:
        told(next(iter(server.sockets)).getsockname()[1])
        await asyncio.get_running_loop().create_future()


@contextmanager
def other_process(kind: str) -> Iterator[Any]:
    """Have a server in a process of its own; give its port, or URL."""
    with served("tests.benchmarks.wire_server", kind) as told:
        yield json.loads(told)


# --- clients

Send = Callable[[list[bytes]], Awaitable[object]]
Receive = Callable[[], Awaitable[Sequence[bytes | str]]]
WINDOW = 64


async def measured(send: Send, receive: Receive, verb: str, n: int) -> float:
    """Measure `ask`, one after another; `echo`, 64 in flight; or `tell`, until all have been counted.

    `large` are texts of 1 MB there and back, one after another, in MB a second.
    """
    await send([encode(REQUEST)])
    await receive()
    began = clock()
    if verb == "ask":
        for _ in range(n):
            await send([encode(REQUEST)])
            decode((await receive())[0])
    elif verb == "large":
        large = msgspec.structs.replace(REQUEST, input={"text": "x" * MEGABYTE})
        for _ in range(n):
            await send([encode(large)])
            decode((await receive())[0])
        return 2 * n / (clock() - began)
    elif verb == "echo":
        await _echo(send, receive, n)
    else:
        told = msgspec.structs.replace(REQUEST, action="tell")
        for first in range(0, n, WINDOW):
            await send([encode(told) for _ in range(first, min(n, first + WINDOW))])
        await send([encode(msgspec.structs.replace(REQUEST, action="count"))])
        answer = decode((await receive())[0])
        assert isinstance(answer, Status)
        assert answer.output == n + 1
    return n / (clock() - began)


async def _echo(send: Send, receive: Receive, n: int) -> None:
    sent = min(WINDOW, n)
    await send([encode(REQUEST) for _ in range(sent)])
    came = 0
    while came < n:
        answers = await receive()
        for answer in answers:
            decode(answer)
        came += len(answers)
        more = min(len(answers), n - sent)
        if more:
            await send([encode(REQUEST) for _ in range(more)])
            sent += more


def lines(verb: str, n: int) -> float:
    """Measure lines."""

    async def client(port: int) -> float:
        with socket.create_connection((HOST, port)) as sock:
            end = Lines(sock)
            return await measured(end.send, end.receive, verb, n)

    with other_process("lines") as port:
        return trio.run(client, port)


def trio_websocket(verb: str, n: int) -> float:
    """Measure trio-websocket as it comes."""

    async def client(port: int) -> float:
        async with open_websocket_url(f"ws://{HOST}:{port}/") as connection:

            async def send(messages: list[bytes]) -> None:
                for message in messages:
                    await connection.send_message(message.decode())

            async def receive() -> Sequence[bytes | str]:
                return (await connection.get_message(),)

            return await measured(send, receive, verb, n)

    with other_process("trio-websocket") as port:
        return trio.run(client, port)


def websockets(verb: str, n: int) -> float:
    """Measure `websockets`."""

    async def client(port: int) -> float:
        from websockets.asyncio.client import connect

        async with connect(f"ws://{HOST}:{port}/", compression=None, proxy=None, max_size=None) as connection:

            async def send(messages: list[bytes]) -> None:
                for message in messages:
                    await connection.send(message.decode())

            async def receive() -> Sequence[bytes | str]:
                return (await connection.recv(),)

            return await measured(send, receive, verb, n)

    with other_process("websockets") as port:
        return asyncio.run(client(port))
