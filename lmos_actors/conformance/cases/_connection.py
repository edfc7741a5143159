"""Connections: pings, silence, the end, and many of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import lmos, rfc6455
from lmos_actors.conformance.session import (
    Chapter,
    NoAnswer,
    Talk,
    answers,
    happen,
    must_answer,
    must_be_there,
    subscribed,
)
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    ConnectionGone,
    Refused,
    Unreachable,
    close_payload,
    write_frame,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Visit

CHAPTER = Chapter()

_DATA: Final = (CONTINUATION, TEXT, BINARY)
_MANY: Final = 20
_PINGS: Final = 10
_HEAD: Final = 8  # bytes of a frame with a mask and a length of two bytes
_PIECE: Final = 20
_MOMENT: Final = 0.002  # seconds in which what was sent gets there by itself


def _request(visit: Visit, talk: Talk) -> bytes:
    """Return a request about something that is not there."""
    return talk.text("readProperty", name=visit.target.unknown_property()).encode()


def _masked(visit: Visit, opcode: int, payload: bytes) -> bytes:
    return write_frame(opcode, payload, key=visit.random.randbytes(4))


# --- pings


async def _pong(visit: Visit, talk: Talk, payload: bytes) -> None:
    """Fail unless a pong of that payload comes."""
    while (frame := await talk.socket.next_frame(talk.patience)) is not None:
        if frame.opcode == PONG and frame.payload == payload:
            return
        if frame.opcode == PONG:
            visit.fail(f"the ping {payload!r} is answered by a pong {frame.payload!r}")
    visit.fail(f"no pong with the payload {payload!r}")


@CHAPTER.case(
    "connection.ping",
    "A ping is answered with its payload",
    section=rfc6455("5.5.3"),
    expected="a pong with the payload of the ping: of text, none, and 125 bytes that are no text",
)
async def ping(visit: Visit) -> None:
    talk = await visit.talk()
    for payload in (b"are you there?", b"", bytes(range(128, 253))):
        await talk.socket.send_frame(PING, payload)
        await _pong(visit, talk, payload)


@CHAPTER.case(
    "connection.pings",
    "Many pings at once are answered, the last of them at least",
    section=rfc6455("5.5.3"),
    expected="a pong with the payload of the newest ping",
)
async def pings(visit: Visit) -> None:
    talk = await visit.talk()
    payloads = [b"%d" % number for number in range(_PINGS)]
    await talk.socket.send_bytes(b"".join(_masked(visit, PING, each) for each in payloads))
    while (frame := await talk.socket.next_frame(talk.patience)) is not None:
        if frame.opcode == PONG and frame.payload == payloads[-1]:
            return
    visit.fail(f"no pong with the payload {payloads[-1]!r}")


@CHAPTER.case(
    "connection.pong",
    "A pong that nobody has asked for is passed over",
    section=rfc6455("5.5.3"),
    expected="nothing, and the connection stays",
)
async def pong(visit: Visit) -> None:
    talk = await visit.talk()
    await talk.socket.send_frame(PONG, b"unasked")
    await must_answer(visit, talk, "a pong that nobody has asked for")


@CHAPTER.case(
    "connection.idle",
    "A connection stays while nothing is said",
    section=lmos("Publish-Subscribe"),
    expected="the connection stays open for as long as --idle says; pings are answered meanwhile",
)
async def idle(visit: Visit) -> None:
    talk = await visit.talk()
    until = trio.current_time() + visit.ground.idle
    with suppress(ConnectionGone):
        while frame := await talk.socket.next_frame(max(0.0, until - trio.current_time())):
            if frame.opcode == CLOSE:
                visit.fail("it was closed while nothing was said")
    if talk.socket.gone is not None:
        visit.fail(f"{talk.socket.gone}, while nothing was said")
    await must_answer(visit, talk, f"{visit.ground.idle:g} s of silence")


# --- frames of the server


@CHAPTER.case(
    "connection.unmasked",
    "The frames of the server have no mask and no reserved bits",
    section=rfc6455("5.1"),
    expected="frames without a mask, their reserved bits 0",
)
async def unmasked(visit: Visit) -> None:
    talk = await visit.talk()
    await answers(visit, talk)
    await talk.socket.send_frame(PING, b"")
    with suppress(ConnectionGone):
        await talk.socket.next_frame(talk.patience)
    for frame in talk.socket.frames:
        if frame.masked:
            visit.fail(f"a frame with the opcode {frame.opcode:#x} has a mask")
        if frame.rsv:
            visit.fail(f"a frame with the opcode {frame.opcode:#x} has the reserved bits {frame.rsv:03b}")


# --- the end


@CHAPTER.case(
    "connection.close",
    "A Close is answered by a Close",
    section=rfc6455("5.5.1"),
    expected="a Close in answer, usually with the same code",
)
async def close(visit: Visit) -> None:
    talk = await visit.talk()
    await talk.socket.close(1000, "done")
    gone = await talk.closed()
    if gone is None:
        visit.fail("the Close is not answered")
    if gone.code is None:
        visit.fail(str(gone))


@CHAPTER.case(
    "connection.close-ends",
    "After both Closes the server ends the stream",
    section=rfc6455("7.1.1"),
    expected="the end of the TCP stream, by the server",
)
async def close_ends(visit: Visit) -> None:
    talk = await visit.talk()
    await talk.socket.close()
    if await talk.closed() is not None and not await talk.socket.stream_end(talk.patience):
        visit.differs("stream-left-open", f"it is still open after {talk.patience:g} s")


@CHAPTER.case(
    "connection.after-close",
    "After a Close nothing is said any more",
    section=rfc6455("5.5.1"),
    expected="no message after the Close of the server; what is sent behind the other's Close is passed over",
)
async def after_close(visit: Visit) -> None:
    talk = await visit.talk()
    closing = _masked(visit, CLOSE, close_payload(1000))
    await talk.socket.send_bytes(closing + _masked(visit, TEXT, _request(visit, talk)))
    await talk.closed()
    await talk.socket.stream_end(talk.patience)
    said = [frame for frame in talk.socket.frames if frame.opcode in _DATA]
    if said:
        shown = said[0].payload[:200].decode(errors="replace")
        visit.fail(f"a message that came behind a Close is answered: {shown}")


@CHAPTER.case(
    "connection.cut",
    "A connection that is cut in the middle of a message does no harm",
    section=rfc6455("7.2.3"),
    expected="an answer on another connection, and on a new one",
)
async def cut(visit: Visit) -> None:
    other, talk = await visit.talk(), await visit.talk()
    await must_answer(visit, talk, "the handshake")
    await talk.socket.send_bytes(_masked(visit, TEXT, _request(visit, talk))[:20])
    await trio.sleep(_MOMENT)
    await talk.socket.cut()
    await trio.sleep(_MOMENT)
    await must_answer(visit, other, "a cut of another connection")
    await must_be_there(visit, "a cut")


@CHAPTER.case(
    "connection.reconnect",
    "Who has left can come back",
    section=rfc6455("7.2.3"),
    expected="answers on each of five connections, one after the other",
)
async def reconnect(visit: Visit) -> None:
    for number in range(5):
        talk = await visit.talk()
        await must_answer(visit, talk, f"{number} connections before")
        await talk.socket.aclose()


@CHAPTER.case(
    "connection.forgets",
    "A subscription ends with its connection",
    section=lmos("Publish-Subscribe"),
    expected="no event on a new connection, on which nothing has been subscribed to",
    needs="an event, and something that makes it happen",
)
async def forgets(visit: Visit) -> None:
    event = visit.roles.event()
    call, left = await visit.trigger(event), await subscribed(visit, event)
    await left.socket.aclose()
    new, witness = await visit.talk(), await subscribed(visit, event)
    await visit.settle(new)
    await happen(visit, call)
    if await witness.event(event) is None:
        visit.not_run(f"{event} did not happen: name what makes it happen under triggers, --hints")
    with suppress(NoAnswer):
        await visit.settle(new)
    heard = next((each for each in new.heard if each.kind == "event"), None)
    if heard is not None:
        visit.fail(f"a connection that has not subscribed was told: {heard}")


# --- many, and in pieces


@CHAPTER.case(
    "connection.many",
    "Several consumers can be connected at once",
    section=lmos("Interaction Patterns"),
    expected=f"answers on {_MANY} connections that are open at once",
)
async def many(visit: Visit) -> None:
    talks: list[Talk] = []
    for number in range(1, _MANY + 1):
        try:
            talks.append(await visit.talk())
        except (Refused, Unreachable) as why:
            visit.fail(f"connection {number}: {why}")
    for talk in talks:
        await must_answer(visit, talk, f"{_MANY} connections had been opened,")


@CHAPTER.case(
    "connection.two-at-once",
    "Two messages that come in one piece are both read",
    section=rfc6455("5.2"),
    expected="an answer to each",
)
async def two_at_once(visit: Visit) -> None:
    talk = await visit.talk()
    frames = [_masked(visit, TEXT, _request(visit, talk)) for _ in range(2)]
    await talk.socket.send_bytes(b"".join(frames))
    for number in (1, 2):
        if await talk.next() is None:
            visit.fail(f"message {number} of 2 is not answered")


@CHAPTER.case(
    "connection.small-pieces",
    "A message that comes in small pieces is read",
    section=rfc6455("5.2"),
    expected="an answer to a message whose head comes byte by byte, the rest a little at a time",
)
async def small_pieces(visit: Visit) -> None:
    talk = await visit.talk()
    frame = _masked(visit, TEXT, _request(visit, talk))
    pieces = [frame[at : at + 1] for at in range(_HEAD)]
    pieces += [frame[at : at + _PIECE] for at in range(_HEAD, len(frame), _PIECE)]
    for piece in pieces:
        await talk.socket.send_bytes(piece)
        await trio.sleep(_MOMENT)
    if await talk.next() is None:
        visit.fail("a message that came in small pieces is not answered")
