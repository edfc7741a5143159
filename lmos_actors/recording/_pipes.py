"""The two directions of a WebSocket that goes through the recorder.

The bytes of each direction are passed on as they arrive, and no sooner than the other side accepts them. At
most 64 KiB per direction are in memory, and reading them for the recording changes nothing. So malformed,
endless or slow data has the same effect on client and server as it would have without the recorder.

When the recorder ends, it sends each side its own Close, after any frame that has begun. Nothing that a side
sends afterwards is passed on or recorded.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ._frame_edges import FrameEdges

if TYPE_CHECKING:
    from ._conversation import Conversation, Side

CHUNK: Final = 65_536
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)

LINGER_SECONDS: Final = 5.0
"""Seconds for the other direction once one has ended."""

GOING_AWAY: Final = 1001


class Pipes:
    """The two directions of a WebSocket. The bytes of each are passed on as they arrive."""

    def __init__(self, conversation: Conversation, client: trio.abc.Stream, server: trio.abc.Stream) -> None:
        self._conversation = conversation
        self._streams: dict[Side, trio.abc.Stream] = {"client": client, "server": server}
        self._others: dict[Side, trio.abc.Stream] = {"client": server, "server": client}
        self._edges: dict[Side, FrameEdges] = {"client": FrameEdges(), "server": FrameEdges()}
        self._receiving: dict[Side, None] = {}
        self._is_closing = False
        self.closed: set[Side] = set()
        """The sides whose bytes are passed on no more, as the other one has a Close of the recorder."""
        self.ended_by: Side | None = None
        """The side that has ended the connection."""

    async def run(self, from_client: bytes, from_server: bytes) -> None:
        """Pass bytes on until both directions have ended, beginning with the bytes already received."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, "client", from_client, nursery.cancel_scope)
            nursery.start_soon(self._pass, "server", from_server, nursery.cancel_scope)

    async def close(self) -> None:
        """Send both sides a Close, unless they are closing already; `run` ends when both have answered."""
        if any(edges.is_closed for edges in self._edges.values()):
            return
        self._is_closing = True
        async with trio.open_nursery() as nursery:
            for side in tuple(self._receiving):  # a direction that is sending does it itself
                nursery.start_soon(self._close_behind_frame, side)

    async def _close_behind_frame(self, side: Side) -> None:
        """Send a Close in place of a side's further bytes, unless that side has sent only part of a frame."""
        if side in self.closed or not self._edges[side].is_between:
            return
        self.closed.add(side)
        if self._edges[side].is_closed:  # what it has said last was a Close of its own
            return
        with suppress(*GONE):
            await self._others[side].send_all(_going_away(masked=side == "client"))

    async def _pass(self, side: Side, data: bytes, scope: trio.CancelScope) -> None:
        source, sink, edges = self._streams[side], self._others[side], self._edges[side]
        while True:
            if side in self.closed:
                edges.feed(data)
            elif data:
                passed = edges.feed(data, rest_only=self._is_closing)
                data, dropped = data[:passed], data[passed:]
                self._conversation.feed(side, data)
                try:
                    await sink.send_all(data)
                except GONE:  # what the other side still says, such as why, is passed on
                    self._note_end("client" if side == "server" else "server")
                    break
                if self._is_closing:
                    await self._close_behind_frame(side)
                    edges.feed(dropped)
            if edges.is_closed and side in self.closed:
                break
            try:
                self._receiving[side] = None
                data = bytes(await source.receive_some(CHUNK))
            except GONE:
                self._note_end(side)
                scope.cancel("a side has gone")
                return
            finally:
                self._receiving.pop(side, None)
            if not data:
                self._note_end(side)
                if side not in self.closed and isinstance(sink, trio.abc.HalfCloseableStream):
                    with suppress(*GONE):
                        await sink.send_eof()
                break
        scope.deadline = min(scope.deadline, trio.current_time() + LINGER_SECONDS)

    def _note_end(self, side: Side) -> None:
        if self.ended_by is None and not self.closed:
            self.ended_by = side


def _going_away(*, masked: bool) -> bytes:
    """Return the frame of a Close with 1001, masked if it is sent to the server."""
    payload = struct.pack(">H", GOING_AWAY)
    if not masked:
        return bytes((0x88, len(payload))) + payload
    mask = os.urandom(4)
    covered = bytes(byte ^ mask[place] for place, byte in enumerate(payload))
    return bytes((0x88, 0x80 | len(payload))) + mask + covered
