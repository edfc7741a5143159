"""Frames that RFC 6455 allows, and frames that it forbids."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

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
    from collections.abc import Awaitable, Callable

    from lmos_actors.conformance.session import CaseContext, Run, Session

FRAMING: Final[Chapter[CaseContext]] = Chapter()

_FACE: Final = "\N{GRINNING FACE}"
_CLAIMED: Final = 1 << 40
_ENDS: Final = "a Close with 1002, or the end of the connection; and the server keeps working"
_ANSWERED: Final = "an answer, as to the same message in one frame"
_NEVER_SAID: Final = (1004, 1005, 1006, 1015)  # codes that no Close may have: RFC 6455, 7.4.1


def _request(context: CaseContext, session: Session) -> str:
    """Return a request for an unknown property."""
    return session.text("readProperty", name=context.target.unknown_property())


async def _send_in_parts(session: Session, parts: list[bytes]) -> None:
    for number, part in enumerate(parts):
        fin = number == len(parts) - 1
        await session.socket.send_frame(TEXT if number == 0 else CONTINUATION, part, fin=fin)


def _thirds(text: str) -> list[bytes]:
    data = text.encode()
    third = len(data) // 3
    return [data[:third], data[third : 2 * third], data[2 * third :]]


# --- what has to work


def _is_read(what: str, send: Callable[[Session, str], Awaitable[None]], *, name: str | None = None) -> Run:
    """Make a case in which a request is sent in an unusual form and must be answered as usual."""

    async def run(context: CaseContext) -> None:
        await must_be_read(context, what, send, name=name)

    return run


async def _send_padded(session: Session, text: str) -> None:
    await session.socket.send_text(f"{text[:-1]}{' ' * 60_000}}}")


async def _send_in_thirds(session: Session, text: str) -> None:
    await _send_in_parts(session, _thirds(text))


async def _send_with_empty_frames(session: Session, text: str) -> None:
    one, two, three = _thirds(text)
    await _send_in_parts(session, [b"", one, b"", two + three, b""])


async def _send_split_in_a_character(session: Session, text: str) -> None:
    data = text.encode()
    at = data.index(_FACE.encode()) + 2
    await _send_in_parts(session, [data[:at], data[at:]])


FRAMING.add(
    "frames.long-text",
    "A message of 60 kB is read",
    _is_read("a message of 60 kB", _send_padded),
    section=rfc6455("5.2"),
    expected="an answer to a request with 60,000 characters of white space in it",
)
FRAMING.add(
    "frames.fragmented",
    "A message in three frames is read",
    _is_read("a message in three frames", _send_in_thirds),
    section=rfc6455("5.4"),
    expected=_ANSWERED,
)
FRAMING.add(
    "frames.empty-fragments",
    "A message with empty frames is read",
    _is_read("a message whose first, third and last frames are empty", _send_with_empty_frames),
    section=rfc6455("5.4"),
    expected=_ANSWERED,
)
FRAMING.add(
    "frames.split-character",
    "A character may be split between frames",
    _is_read("a message that is split in the middle of a character", _send_split_in_a_character, name=_FACE),
    section=rfc6455("5.6"),
    expected=_ANSWERED,
)


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


@attrs.frozen(kw_only=True)
class _Frame:
    """A frame to send. If it has no `payload`, a request is sent in it."""

    opcode: int = TEXT
    payload: bytes | None = None
    fin: bool = True
    rsv: int = 0
    masked: bool = True


_FORBIDDEN: Final[tuple[tuple[str, str, str, dict[str, list[_Frame]]], ...]] = (
    (
        "frames.unmasked",
        "A frame without a mask ends the connection",
        "5.1",
        {"a frame without a mask": [_Frame(masked=False)]},
    ),
    (
        "frames.reserved-bits",
        "A reserved bit, where no extension is in use, ends the connection",
        "5.2",
        {f"a frame with the reserved bit RSV{n}": [_Frame(rsv=bit)] for n, bit in ((1, 4), (2, 2), (3, 1))},
    ),
    (
        "frames.reserved-opcodes",
        "A reserved opcode ends the connection",
        "5.2",
        {f"a frame with the opcode {n:#x}": [_Frame(opcode=n, payload=b"")] for n in (0x3, 0x7, 0xB, 0xF)},
    ),
    (
        "frames.long-control",
        "A control frame of more than 125 bytes ends the connection",
        "5.5",
        {"a ping of 126 bytes": [_Frame(opcode=PING, payload=b"x" * 126)]},
    ),
    (
        "frames.fragmented-control",
        "A control frame in parts ends the connection",
        "5.5",
        {"a ping without its end": [_Frame(opcode=PING, payload=b"x", fin=False)]},
    ),
    (
        "frames.stray-continuation",
        "A continuation of no message ends the connection",
        "5.4",
        {"a continuation of no message": [_Frame(opcode=CONTINUATION)]},
    ),
    (
        "frames.interrupted",
        "A new message within another ends the connection",
        "5.4",
        {"a message that begins within another": [_Frame(payload=b'{"thingID"', fin=False), _Frame()]},
    ),
)
"""Frames that must end a connection: id, title, place in RFC 6455, and the frames by description."""


def _ends(rows: dict[str, list[_Frame]]) -> Run:
    """Make a case of forbidden frames: each must end its connection, and the server must keep running."""

    async def run(context: CaseContext) -> None:
        for what, frames in rows.items():
            session = await context.session()
            request = _request(context, session).encode()
            for frame in frames:
                await session.socket.send_frame(
                    frame.opcode,
                    request if frame.payload is None else frame.payload,
                    fin=frame.fin,
                    rsv=frame.rsv,
                    masked=frame.masked,
                )
            await must_end(context, session, what)
        await must_be_there(context, " and ".join(rows))

    return run


for _id, _title, _place, _rows in _FORBIDDEN:
    FRAMING.add(_id, _title, _ends(_rows), section=rfc6455(_place), expected=_ENDS)


@FRAMING.case(
    "frames.wrong-close",
    "A Close with a forbidden code ends the connection, and is not echoed",
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
    "A frame that claims to be endless ends the connection",
    section=rfc6455("10.4"),
    expected="a Close with 1009, or the end of the connection, once a frame claims 2^40 bytes",
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
    "A meaningless binary message is refused",
    section=rfc6455("7.4.1"),
    expected="a Close with 1003, or an error; messages of LMOS are JSON texts",
)
async def binary(context: CaseContext) -> None:
    session = await context.session()
    try:
        await session.socket.send_frame(BINARY, _request(context, session).encode())
        if await session.next() is None:
            context.differs("binary-ignored", "it is ignored")
        await must_answer(context, session, "a binary message")
    except ConnectionGone as ended:
        if ended.gone.code not in (1003, 1005, None):
            context.differs("close-code", f"after a binary message {ended}")
        await must_be_there(context, "a binary message")
