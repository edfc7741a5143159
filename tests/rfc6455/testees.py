"""The ends under test: our server and our client, each with an echo on it."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import trio

from lmos_actors.transport import Accept, Endpoint, FrontDoor, TcpNetwork, connect
from tests.rfc6455.tester import PATIENCE, admit, knock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lmos_actors.transport import Connection, ConnectionOptions, Ended
    from tests.rfc6455.plan import Case
    from tests.rfc6455.tester import Seen, Tester

Meeting: TypeAlias = "Callable[[Case], Awaitable[tuple[Seen, Ended | None]]]"


class Binary(bytes):
    """A binary message among those that are sent."""


class Echo:
    """Sends back what comes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[bytes] = []

    def text(self, text: str) -> None:
        self._say(text.encode())

    def binary(self, data: bytes) -> None:
        self._say(Binary(data))

    def _say(self, message: bytes) -> None:
        self._waiting.append(message)
        self._connection.wake()

    def frames(self, room: int) -> list[bytes]:
        waiting, self._waiting = self._waiting, []
        return waiting


@asynccontextmanager
async def our_server(options: ConnectionOptions) -> AsyncIterator[Meeting]:
    """A front door on 127.0.0.1; the tester is its client."""
    send, endings = trio.open_memory_channel[Ended](1)
    failures: list[BaseException] = []

    async def serve(connection: Connection) -> None:
        send.send_nowait(await connection.run(Echo(connection)))

    listener = await TcpNetwork().listen(Endpoint(False, "127.0.0.1", 0))
    door = FrontDoor(
        listener, route=lambda _: Accept(None, serve), connection=options, on_failure=failures.append
    )

    async def meet(case: Case) -> tuple[Seen, Ended | None]:
        tester, _ = await knock(listener.addresses[0], case.id)
        return await played(tester, case, endings.receive)

    async with trio.open_nursery() as nursery:
        await nursery.start(door.serve)
        yield meet
        nursery.cancel_scope.cancel()
    assert failures == []


@asynccontextmanager
async def our_client(options: ConnectionOptions) -> AsyncIterator[Meeting]:
    """Connects to a socket of the tester's, once per case."""
    send, endings = trio.open_memory_channel[Ended](1)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"

    async def call() -> None:
        connection = await connect(TcpNetwork(), url, subprotocols=(), options=options)
        send.send_nowait(await connection.run(Echo(connection)))

    async def meet(case: Case) -> tuple[Seen, Ended | None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            tester, _ = await admit(listener, case.id)
            found = await played(tester, case, endings.receive)
            nursery.cancel_scope.cancel()
        return found

    with listener:
        yield meet


async def played(
    tester: Tester, case: Case, ending: Callable[[], Awaitable[Ended]]
) -> tuple[Seen, Ended | None]:
    """Play the case; None if the end under test does not end."""
    try:
        seen = await tester.play(case)
    finally:
        tester.close()
    with trio.move_on_after(PATIENCE):
        return seen, await ending()
    return seen, None
