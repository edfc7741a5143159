"""Frames as RFC 6455 has them, and as it forbids them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import rfc6455
from lmos_actors.conformance.session import (
    FITTING,
    Chapter,
    must_answer,
    must_be_read,
    must_be_there,
    must_end,
)
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    ConnectionGone,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, Session

FRAMING = Chapter()

_LONG: Final = 60_000
_FACE: Final = "\N{GRINNING FACE}"
_CLAIMED: Final = 1 << 40
_ENDS: Final = "a Close with 1002, or the end of the connection; and the server goes on"
_ANSWERED: Final = "an answer, as to the same message in one frame"
_NEVER_SAID: Final = (1004, 1005, 1006, 1015)  # codes that no Close may have: RFC 6455, 7.4.1


def _request(context: CaseContext, session: Session) -> str:
    """Make a request about something that is not there."""
    return session.text("readProperty", name=context.target.unknown_property())


async def _sent_in_parts(session: Session, parts: list[bytes]) -> None:
    for number, part in enumerate(parts):
        fin = number == len(parts) - 1
        await session.socket.send_frame(TEXT if number == 0 else CONTINUATION, part, fin=fin)


def _thirds(text: str) -> list[bytes]:
    data = text.encode()
    third = len(data) // 3
    return [data[:third], data[third : 2 * third], data[2 * third :]]


# --- what has to work


@FRAMING.case(
    "frames.long-text",
    "A message of 60 kB is read",
    section=rfc6455("5.2"),
    expected="an answer to a request with 60,000 characters of white space in it",
)
async def long_text(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        await session.socket.send_text(f"{text[:-1]}{' ' * _LONG}}}")

    await must_be_read(context, "a message of 60 kB", send)


@FRAMING.case(
    "frames.fragmented", "A message in three frames is read", section=rfc6455("5.4"), expected=_ANSWERED
)
async def fragmented(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        await _sent_in_parts(session, _thirds(text))

    await must_be_read(context, "a message in three frames", send)


@FRAMING.case(
    "frames.empty-fragments",
    "A message with empty frames is read",
    section=rfc6455("5.4"),
    expected=_ANSWERED,
)
async def empty_fragments(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        one, two, three = _thirds(text)
        await _sent_in_parts(session, [b"", one, b"", two + three, b""])

    await must_be_read(context, "a message whose first, third and last frames are empty", send)


@FRAMING.case(
    "frames.split-character",
    "A character may be split between frames",
    section=rfc6455("5.6"),
    expected=_ANSWERED,
)
async def split_character(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        data = text.encode()
        at = data.index(_FACE.encode()) + 2
        await _sent_in_parts(session, [data[:at], data[at:]])

    await must_be_read(context, "a message that is split in the middle of a character", send, name=_FACE)


@FRAMING.case(
    "frames.ping-between",
    "A ping between the frames of a message is answered, and the message read",
    section=rfc6455("5.4"),
    expected="a pong, and an answer to the message",
)
async def ping_between(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        one, two, three = _thirds(text)
        await session.socket.send_frame(TEXT, one, fin=False)
        await session.socket.send_frame(PING, b"between")
        await session.socket.send_frame(CONTINUATION, two, fin=False)
        await session.socket.send_frame(CONTINUATION, three)

    session = await must_be_read(context, "a message with a ping between its frames", send)
    await _pong(context, session, b"between")


async def _pong(context: CaseContext, session: Session, payload: bytes) -> None:
    def has_come() -> bool:
        return any(frame.opcode == PONG and frame.payload == payload for frame in session.socket.frames)

    with suppress(ConnectionGone):
        while not has_come() and await session.socket.next_frame(session.patience) is not None:
            pass
    if not has_come():
        context.fail(f"no pong with the payload {payload!r}")


# --- what is forbidden


async def _refused(context: CaseContext, session: Session, what: str, *codes: int | None) -> None:
    await must_end(context, session, what, *codes)
    await must_be_there(context, what)


@FRAMING.case(
    "frames.unmasked", "A frame without a mask ends the connection", section=rfc6455("5.1"), expected=_ENDS
)
async def unmasked(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(TEXT, _request(context, session).encode(), masked=False)
    await _refused(context, session, "a frame without a mask")


@FRAMING.case(
    "frames.reserved-bits",
    "A reserved bit, where no extension is in use, ends the connection",
    section=rfc6455("5.2"),
    expected=_ENDS,
)
async def reserved_bits(context: CaseContext) -> None:
    for bit in (4, 2, 1):
        session = await context.session()
        await session.socket.send_frame(TEXT, _request(context, session).encode(), rsv=bit)
        await must_end(context, session, f"a frame with the reserved bit RSV{3 - bit.bit_length() + 1}")
    await must_be_there(context, "frames with reserved bits")


@FRAMING.case(
    "frames.reserved-opcodes", "A reserved opcode ends the connection", section=rfc6455("5.2"), expected=_ENDS
)
async def reserved_opcodes(context: CaseContext) -> None:
    for opcode in (0x3, 0x7, 0xB, 0xF):
        session = await context.session()
        await session.socket.send_frame(opcode, b"")
        await must_end(context, session, f"a frame with the opcode {opcode:#x}")
    await must_be_there(context, "frames with reserved opcodes")


@FRAMING.case(
    "frames.long-control",
    "A control frame of more than 125 bytes ends the connection",
    section=rfc6455("5.5"),
    expected=_ENDS,
)
async def long_control(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(PING, b"x" * 126)
    await _refused(context, session, "a ping of 126 bytes")


@FRAMING.case(
    "frames.fragmented-control",
    "A control frame in parts ends the connection",
    section=rfc6455("5.5"),
    expected=_ENDS,
)
async def fragmented_control(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(PING, b"x", fin=False)
    await _refused(context, session, "a ping without its end")


@FRAMING.case(
    "frames.stray-continuation",
    "A continuation of nothing ends the connection",
    section=rfc6455("5.4"),
    expected=_ENDS,
)
async def stray_continuation(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(CONTINUATION, _request(context, session).encode())
    await _refused(context, session, "a continuation of nothing")


@FRAMING.case(
    "frames.interrupted",
    "A new message within another ends the connection",
    section=rfc6455("5.4"),
    expected=_ENDS,
)
async def interrupted(context: CaseContext) -> None:
    session = await context.session()
    text = _request(context, session)
    await session.socket.send_frame(TEXT, text[:10].encode(), fin=False)
    await session.socket.send_frame(TEXT, text.encode())
    await _refused(context, session, "a message that begins within another")


@FRAMING.case(
    "frames.wrong-close",
    "A Close that may not be so ends the connection, and is not returned as it is",
    section=rfc6455("7.4.1"),
    expected="a Close with 1002, or the end of the connection, for 0, 999, 1005, 1006 and half a code",
)
async def wrong_close(context: CaseContext) -> None:
    for payload in (b"\x00\x00", b"\x03\xe7", b"\x03\xed", b"\x03\xee", b"\x03"):
        session = await context.session()
        what = (
            f"a Close with {int.from_bytes(payload, 'big')}"
            if len(payload) == 2
            else "a Close with half a code"
        )
        await session.socket.send_frame(CLOSE, payload)
        if await session.closed() is None:
            context.fail(f"after {what} the connection is still open")
        for frame in session.socket.frames:
            code = int.from_bytes(frame.payload[:2], "big")
            if frame.opcode == CLOSE and frame.payload and (code in _NEVER_SAID or code < 1000):
                context.fail(f"{what} is answered by one with {code}")
    await must_be_there(context, "Closes with forbidden codes")


# --- what may be refused


@FRAMING.case(
    "frames.oversize",
    "A frame that claims to be endless is not waited for",
    section=rfc6455("10.4"),
    expected="a Close with 1009, or the end of the connection, once a frame says that it has 2^40 bytes",
)
async def oversize(context: CaseContext) -> None:
    session = await context.session()
    await session.socket.send_frame(TEXT, b'{"messageType": "', claims=_CLAIMED)
    gone = await session.closed()
    if gone is None:
        context.differs("frame-unlimited", f"a frame that claims {_CLAIMED} bytes leaves the connection open")
    elif gone.code not in (1009, *FITTING):
        context.differs("close-code", f"{gone}")
    await must_be_there(context, "a frame that claims to be endless")


@FRAMING.case(
    "frames.binary",
    "A binary message that means nothing is refused",
    section=rfc6455("7.4.1"),
    expected="a Close with 1003, or an error; messages of LMOS are JSON texts",
)
async def binary(context: CaseContext) -> None:
    session = await context.session()
    try:
        await session.socket.send_frame(BINARY, _request(context, session).encode())
        if await session.next() is None:
            context.differs("binary-ignored", "nothing comes of it")
        await must_answer(context, session, "a binary message")
    except ConnectionGone as ended:
        if ended.gone.code not in (1003, 1005, None):
            context.differs("close-code", f"after a binary message {ended}")
        await must_be_there(context, "a binary message")
