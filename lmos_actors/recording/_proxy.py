"""The proxy of a recording, which passes clients on this machine on to one server.

The recorder listens on this machine only, but pages in a browser can reach it there. So requests must name a
host of this machine, because no other host name may lead here. The server still receives the `Origin` of a
page.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ._client import Client
from ._pipes import GONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.transport import Listener

    from ._passage import Passage

CONNECTIONS: Final = 256
"""Maximum clients at once; more wait until one has left."""


class Proxy:
    """The server for the clients of a listener. `on_left` is called when the last client has left."""

    def __init__(self, passage: Passage, on_left: Callable[[], None]) -> None:
        self._passage = passage
        self._on_left = on_left
        self._open = 0
        self._places = trio.Semaphore(CONNECTIONS)

    async def serve(self, listener: Listener) -> None:
        """Serve until cancelled. Raise groups with OSError if the recording cannot be written."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._places.acquire()
                stream, _ = await listener.accept()
                self._open += 1
                nursery.start_soon(self._host, stream)

    async def _host(self, stream: trio.abc.Stream) -> None:
        try:
            with suppress(*GONE):
                await Client(self._passage, stream).serve()
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            self._places.release()
            self._open -= 1
            if not self._open:
                self._on_left()
