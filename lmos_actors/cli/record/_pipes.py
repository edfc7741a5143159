"""The two directions of a WebSocket that goes through the recorder.

The bytes of each are passed on as they come, and no sooner than the other side takes them: 64 KiB of each
are in memory at most, and what is read of them for the recording changes nothing. So what is malformed,
endless or slow is between client and server, as without the recorder.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from ._conversation import Conversation, Side

CHUNK: Final = 65_536
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)

LINGER_SECONDS: Final = 5.0
"""For the other direction, once one has ended."""


class Pipes:
    """The two directions of a WebSocket, the bytes of each passed on as they come."""

    def __init__(self, conversation: Conversation, client: trio.abc.Stream, server: trio.abc.Stream) -> None:
        self._conversation = conversation
        self._streams: dict[Side, trio.abc.Stream] = {"client": client, "server": server}
        self._others: dict[Side, trio.abc.Stream] = {"client": server, "server": client}
        self.ended_by: Side | None = None
        """The side that has ended the connection."""

    async def run(self, from_client: bytes, from_server: bytes) -> None:
        """Pass on until both directions have ended; the arguments are what has come already."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, "client", from_client, nursery.cancel_scope)
            nursery.start_soon(self._pass, "server", from_server, nursery.cancel_scope)

    async def _pass(self, side: Side, data: bytes, scope: trio.CancelScope) -> None:
        source, sink = self._streams[side], self._others[side]
        while True:
            if data:
                self._conversation.feed(side, data)
                try:
                    await sink.send_all(data)
                except GONE:  # what the other side still says, such as why, is passed on
                    self._note_end("client" if side == "server" else "server")
                    break
            try:
                data = bytes(await source.receive_some(CHUNK))
            except GONE:
                self._note_end(side)
                scope.cancel("a side has gone")
                return
            if not data:
                self._note_end(side)
                if isinstance(sink, trio.abc.HalfCloseableStream):
                    with suppress(*GONE):
                        await sink.send_eof()
                break
        scope.deadline = min(scope.deadline, trio.current_time() + LINGER_SECONDS)

    def _note_end(self, side: Side) -> None:
        if self.ended_by is None:
            self.ended_by = side
