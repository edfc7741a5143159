"""What was answered to the messages before a peer's mistake goes out before the Close, if it can at once."""

from __future__ import annotations

import attrs
import pytest

from lmos_actors.transport import ConnectionOptions
from tests.transport.peer import CLOSE, ENDS, PING, PONG, TEXT, Echo, Peer, Recorder, frame, play

MISTAKES = [
    (frame(TEXT, b"x", rsv=2), 1002),
    (frame(11), 1002),
    (frame(TEXT, b"\xff"), 1007),
    (frame(TEXT, b"x" * 90_001), 1009),
]
OPTIONS = ConnectionOptions(max_message_bytes=90_000)
every_way = pytest.mark.parametrize(("end", "fast"), [(end, fast) for end in ENDS for fast in (True, False)])


def told(
    end: str, fast: bool, handler: Recorder, *sent: bytes, more: bytes = b"", buffer: int = 1 << 20
) -> list[tuple[int, bytes]]:
    """What comes back when all this is sent at once, `more` with the handshake, and then all is read."""

    async def body(peer: Peer) -> None:
        await peer.send(b"".join(sent))
        await peer.read_to_the_end()
        await peer.stream.aclose()

    options = attrs.evolve(OPTIONS, fast_frames=fast)
    _, peer = play(end, body, handler=handler, options=options, buffer=buffer, more=more)
    return [(opcode, payload[:2] if opcode == CLOSE else payload) for opcode, payload in peer.came()]


@pytest.mark.parametrize(("mistake", "code"), MISTAKES)
@every_way
def test_what_came_before_the_mistake_is_answered(end: str, fast: bool, mistake: bytes, code: int) -> None:
    good = (frame(TEXT, b"a"), frame(PING, b"p"), frame(TEXT, b"b"))
    came = told(end, fast, Echo(), *good, mistake, frame(TEXT, b"c"), frame(PING))
    assert came == [(PONG, b"p"), (TEXT, b"a"), (TEXT, b"b"), (CLOSE, code.to_bytes(2, "big"))]


@every_way
def test_but_no_more_than_fits_into_a_write(end: str, fast: bool) -> None:
    handler = Recorder()
    handler.on_message = lambda _: handler.send(*[b"%d" % n * 40_000 for n in range(9)])
    came = told(end, fast, handler, frame(TEXT, b"a"), frame(11))
    assert came == [(TEXT, b"0" * 40_000), (TEXT, b"1" * 40_000), (CLOSE, b"\x03\xea")]


class Talkative(Recorder):
    """Has much to say from the first; keeps how often it was asked once it has heard anything."""

    def __init__(self) -> None:
        super().__init__(*[b"%d" % n * 80_000 for n in range(9)])
        self.asked_late = 0

    def frames(self, room: int) -> list[bytes]:
        self.asked_late += bool(self.got)
        return super().frames(room)


@pytest.mark.parametrize("buffer", [1000, 1 << 20])
@every_way
def test_and_not_where_more_was_waiting_already(end: str, fast: bool, buffer: int) -> None:
    """What was not taken yet may be sent elsewhere: it is not given to a peer that will not be heard."""
    handler = Talkative()
    came = told(end, fast, handler, more=frame(TEXT, b"a") + frame(11), buffer=buffer)
    assert handler.got == ["a"]
    assert handler.asked_late == 0
    assert [payload for opcode, payload in came if opcode == CLOSE] == [b"\x03\xea"]
    assert len(came) + len(handler.out) == 10


@every_way
def test_nor_of_a_handler_that_raised(end: str, fast: bool) -> None:
    handler = Recorder()

    def answer(message: str | bytes) -> None:
        handler.send(b"answer")
        if message == "b":
            raise ValueError

    handler.on_message = answer
    assert told(end, fast, handler, frame(TEXT, b"a"), frame(TEXT, b"b")) == [(CLOSE, b"\x03\xf3")]
