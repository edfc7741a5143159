"""What a connection holds goes with it: nothing large waits for the collector of cycles."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lmos_actors.transport import ConnectionOptions
from tests.transport.peer import BINARY, ENDS, TEXT, Peer, frame, play

if TYPE_CHECKING:
    from collections.abc import Generator

SIZE = 400_000


@contextmanager
def without_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_of_a_message_that_was_cut_nothing_stays(end: str, whole: bool, opcode: int, fast: bool) -> None:
    """A frame without its end, and a message without its last frame."""
    sent = frame(opcode, b"x" * SIZE, fin=False) if whole else frame(opcode, b"x" * 2 * SIZE)[:SIZE]

    async def leave_in_the_middle(peer: Peer) -> None:
        await peer.send(sent)
        await peer.stream.aclose()

    with without_collector():
        before = tracemalloc.get_traced_memory()[0]
        handler, peer = play(
            end, leave_in_the_middle, options=ConnectionOptions(fast_frames=fast), buffer=1 << 20
        )
        held = tracemalloc.get_traced_memory()[0] - before
    assert peer.ended is not None
    assert "in the middle of a message" in peer.ended.reason
    assert not handler.got
    assert held < SIZE / 2, f"{held} bytes"
