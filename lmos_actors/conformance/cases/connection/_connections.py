"""Cases of connections: pings, silence, the end of connections, and many of them at once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import lmos, rfc6455
from lmos_actors.conformance.session import (
    Chapter,
    NoAnswer,
    Session,
    answers,
    cause,
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
    from lmos_actors.conformance.session import CaseContext

CONNECTIONS: Final[Chapter[CaseContext]] = Chapter()

_DATA: Final = (CONTINUATION, TEXT, BINARY)
_MANY: Final = 20
_HEAD: Final = 8  # bytes of a frame with a mask and a length of two bytes
_PIECE: Final = 20
_MOMENT: Final = 0.002  # seconds in which sent bytes arrive by themselves


def _request(context: CaseContext, session: Session) -> bytes:
    """Return a request for an unknown property."""
    return session.text("readProperty", name=context.target.unknown_property()).encode()


def _masked(context: CaseContext, opcode: int, payload: bytes) -> bytes:
    return write_frame(opcode, payload, key=context.random.randbytes(4))


# --- pings


async def _pong(context: CaseContext, session: Session, payload: bytes) -> None:
    """Fail unless a pong with the given payload arrives."""
    while (frame := await session.socket.next_frame(session.patience)) is not None:
        if frame.opcode == PONG and frame.payload == payload:
            return
        if frame.opcode == PONG:
            context.fail(f"the ping {payload!r} is answered by a pong {frame.payload!r}")
    context.fail(f"no pong with the payload {payload!r}")


@CONNECTIONS.case(
    "connection.ping",
    "A ping is answered with its payload",
    section=rfc6455("5.5.3"),
    expected="a pong with the payload of the ping: of text, none, and 125 bytes that are no text",
)
async def ping(context: CaseContext) -> None:
    session = await context.session()
    for payload in (b"are you there?", b"", bytes(range(128, 253))):
        await session.socket.send_frame(PING, payload)
        await _pong(context, session, payload)


@CONNECTIONS.case(
    "connection.pings",
    "Of many pings at once at least the last is answered",
    section=rfc6455("5.5.3"),
    expected="a pong with the payload of the newest ping",
)
async def pings(context: CaseContext) -> None:
    session = await context.session()
    payloads = [b"%d" % number for number in range(10)]
    await session.socket.send_bytes(b"".join(_masked(context, PING, each) for each in payloads))
    while (frame := await session.socket.next_frame(session.patience)) is not None:
        if frame.opcode == PONG and frame.payload == payloads[-1]:
            return
    context.fail(f"no pong with the payload {payloads[-1]!r}")


@CONNECTIONS.case(
    "connection.pong",
    "An unsolicited pong is ignored",
    section=rfc6455("5.5.3"),
    expected="no answer, and the connection stays open",
)
async def pong(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(PONG, b"unasked")
    await must_answer(context, session, "an unsolicited pong")


@CONNECTIONS.case(
    "connection.idle",
    "An idle connection stays open",
    section=lmos("Publish-Subscribe"),
    expected="the connection stays open for the seconds of --idle; pings are answered meanwhile",
)
async def idle(context: CaseContext) -> None:
    session = await context.session()
    until = trio.current_time() + context.shared.options.idle
    with suppress(ConnectionGone):
        while frame := await session.socket.next_frame(max(0.0, until - trio.current_time())):
            if frame.opcode == CLOSE:
                context.fail("it was closed while idle")
    if session.socket.gone is not None:
        context.fail(f"{session.socket.gone}, while idle")
    await must_answer(context, session, f"{context.shared.options.idle:g} s of silence")


# --- frames of the server


@CONNECTIONS.case(
    "connection.unmasked",
    "The frames of the server have no mask and no reserved bits",
    section=rfc6455("5.1"),
    expected="frames without a mask, their reserved bits 0",
)
async def unmasked(context: CaseContext) -> None:
    session = await context.session()
    await answers(context, session)
    await session.socket.send_frame(PING, b"")
    with suppress(ConnectionGone):
        await session.socket.next_frame(session.patience)
    for frame in session.socket.frames:
        if frame.masked:
            context.fail(f"a frame with the opcode {frame.opcode:#x} has a mask")
        if frame.rsv:
            context.fail(f"a frame with the opcode {frame.opcode:#x} has the reserved bits {frame.rsv:03b}")


# --- the end


@CONNECTIONS.case(
    "connection.close",
    "A Close is answered by a Close",
    section=rfc6455("5.5.1"),
    expected="a Close in answer, usually with the same code",
)
async def close(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.close(1000, "done")
    gone = await session.closed()
    if gone is None:
        context.fail("the Close is not answered")
    if gone.code is None:
        context.fail(str(gone))


@CONNECTIONS.case(
    "connection.close-ends",
    "After both Closes the server ends the stream",
    section=rfc6455("7.1.1"),
    expected="the end of the TCP stream, by the server",
)
async def close_ends(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.close()
    if await session.closed() is not None and not await session.socket.stream_end(session.patience):
        context.differs("stream-left-open", f"it is still open after {session.patience:g} s")


@CONNECTIONS.case(
    "connection.after-close",
    "After a Close no message follows",
    section=rfc6455("5.5.1"),
    expected="no message after the Close of the server; messages behind the client's Close are ignored",
)
async def after_close(context: CaseContext) -> None:
    session = await context.session()
    closing = _masked(context, CLOSE, close_payload(1000))
    await session.socket.send_bytes(closing + _masked(context, TEXT, _request(context, session)))
    await session.closed()
    await session.socket.stream_end(session.patience)
    later = [frame for frame in session.socket.frames if frame.opcode in _DATA]
    if later:
        shown = later[0].payload[:200].decode(errors="replace")
        context.fail(f"a message that came behind a Close is answered: {shown}")


@CONNECTIONS.case(
    "connection.cut",
    "A connection that is cut in the middle of a message does no harm",
    section=rfc6455("7.2.3"),
    expected="an answer on another connection, and on a new one",
)
async def cut(context: CaseContext) -> None:
    other, session = await context.session(), await context.session()
    await must_answer(context, session, "the handshake")
    await session.socket.send_bytes(_masked(context, TEXT, _request(context, session))[:20])
    await trio.sleep(_MOMENT)
    await session.socket.cut()
    await trio.sleep(_MOMENT)
    await must_answer(context, other, "a cut of another connection")
    await must_be_there(context, "a cut")


@CONNECTIONS.case(
    "connection.reconnect",
    "A client can reconnect",
    section=rfc6455("7.2.3"),
    expected="answers on each of five connections, one after the other",
)
async def reconnect(context: CaseContext) -> None:
    for number in range(5):
        session = await context.session()
        await must_answer(context, session, f"{number} connections before")
        await session.socket.aclose()


@CONNECTIONS.case(
    "connection.forgets",
    "A subscription ends with its connection",
    section=lmos("Publish-Subscribe"),
    expected="no event on a new connection, on which nothing has been subscribed to",
    needs="an event, and something that makes it happen",
)
async def forgets(context: CaseContext) -> None:
    event = context.roles.event()
    call, left = await context.trigger(event), await subscribed(context, event)
    await left.socket.aclose()
    new, witness = await context.session(), await subscribed(context, event)
    await context.flush(new)
    await cause(context, call)
    if await witness.event(event) is None:
        context.not_run(f"{event} did not happen: name what makes it happen under triggers, --hints")
    with suppress(NoAnswer):
        await context.flush(new)
    received = next((each for each in new.received if each.kind == "event"), None)
    if received is not None:
        context.fail(f"a connection without a subscription received: {received}")


# --- many, and in pieces


@CONNECTIONS.case(
    "connection.many",
    "Several consumers can be connected at once",
    section=lmos("Interaction Patterns"),
    expected=f"answers on {_MANY} connections that are open at once",
)
async def many(context: CaseContext) -> None:
    sessions: list[Session] = []
    for number in range(1, _MANY + 1):
        try:
            sessions.append(await context.session())
        except (Refused, Unreachable) as why:
            context.fail(f"connection {number}: {why}")
    for session in sessions:
        await must_answer(context, session, f"{_MANY} connections had been opened,")


@CONNECTIONS.case(
    "connection.two-at-once",
    "Two messages that come in one piece are both read",
    section=rfc6455("5.2"),
    expected="an answer to each",
)
async def two_at_once(context: CaseContext) -> None:
    session = await context.session()
    frames = [_masked(context, TEXT, _request(context, session)) for _ in range(2)]
    await session.socket.send_bytes(b"".join(frames))
    for number in (1, 2):
        if await session.next() is None:
            context.fail(f"message {number} of 2 is not answered")


@CONNECTIONS.case(
    "connection.small-pieces",
    "A message that comes in small pieces is read",
    section=rfc6455("5.2"),
    expected="an answer to a message whose head comes byte by byte, the rest a little at a time",
)
async def small_pieces(context: CaseContext) -> None:
    session = await context.session()
    frame = _masked(context, TEXT, _request(context, session))
    pieces = [frame[at : at + 1] for at in range(_HEAD)]
    pieces += [frame[at : at + _PIECE] for at in range(_HEAD, len(frame), _PIECE)]
    for piece in pieces:
        await session.socket.send_bytes(piece)
        await trio.sleep(_MOMENT)
    if await session.next() is None:
        context.fail("a message that came in small pieces is not answered")
