"""The ends under test: our server and our client, each with an echo on it."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import trio

from lmos_actors.transport import Accept, Ended, Endpoint, FrontDoor, TcpNetwork, connect
from tests.rfc6455.tester import PATIENCE, SPARSELY, admit, knock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lmos_actors.transport import Connection, ConnectionOptions
    from tests.rfc6455.plan import Case
    from tests.rfc6455.tester import Seen, Tester

Address: TypeAlias = "tuple[str, int]"
Ending: TypeAlias = "Callable[[], Awaitable[Ended]]"
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
async def front_door(options: ConnectionOptions) -> AsyncIterator[tuple[Address, Ending]]:
    """A front door on 127.0.0.1; give where, and what waits for the next connection to have ended."""
    send, endings = trio.open_memory_channel[Ended](1)
    failures: list[BaseException] = []

    async def serve(connection: Connection) -> None:
        send.send_nowait(await connection.run(Echo(connection)))

    listener = await TcpNetwork().listen(Endpoint(False, "127.0.0.1", 0))
    door = FrontDoor(
        listener, route=lambda _: Accept(None, serve), connection=options, on_failure=failures.append
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(door.serve)
        yield listener.addresses[0], endings.receive
        nursery.cancel_scope.cancel()
    assert failures == []


@asynccontextmanager
async def our_server(options: ConnectionOptions, every: int = SPARSELY) -> AsyncIterator[Meeting]:
    """The tester is its client."""
    async with front_door(options) as (address, ending):

        async def meet(case: Case) -> tuple[Seen, Ended | None]:
            tester, _ = await knock(address, case.id, every=every)
            return await played(tester, case, ending)

        yield meet


@asynccontextmanager
async def our_client(options: ConnectionOptions, every: int = SPARSELY) -> AsyncIterator[Meeting]:
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
            tester, _ = await admit(listener, case.id, every=every)
            found = await played(tester, case, endings.receive)
            nursery.cancel_scope.cancel()
        return found

    with listener:
        yield meet


async def played(tester: Tester, case: Case, ending: Ending) -> tuple[Seen, Ended | None]:
    """Play the case; None if the end under test does not end."""
    try:
        seen = await tester.play(case)
    finally:
        tester.close()
    with trio.move_on_after(PATIENCE):
        return seen, await ending()
    return seen, None
