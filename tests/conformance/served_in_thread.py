"""The scripted server in a thread, on a port of this machine, for commands that are to judge it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from queue import Queue
from random import Random
from typing import TYPE_CHECKING

import trio

from lmos_actors.conformance.scripted import NetworkServer, ScriptedServer
from lmos_actors.transport import TcpNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def near() -> Iterator[str]:
    """Serve it while entered; gives its URL."""
    told: Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Queue()

    async def serve() -> None:
        serving = NetworkServer(ScriptedServer(trio.current_time, Random(1)))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                base = await nursery.start(serving.run, TcpNetwork(), endpoint_of("ws://127.0.0.1:0"))
                told.put((base, trio.lowlevel.current_trio_token(), scope))

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    base, token, scope = told.get(timeout=10)
    try:
        yield base.replace("ws://", "http://")
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(10)
