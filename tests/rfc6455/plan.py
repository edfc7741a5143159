"""What a case is made of: what the tester does, what it is to hear, and how the connection is to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


@attrs.frozen
class Frame:
    """A frame, written whole."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0


@attrs.frozen
class Begun:
    """A frame that claims so many bytes, with the first of them; `More` follow."""

    opcode: int
    size: int
    payload: bytes


@attrs.frozen
class More:
    """Further bytes of a frame that has begun."""

    payload: bytes


@attrs.frozen
class Still:
    """Wait: nothing is to come, and the connection is to stay open. With `soon`: it is to be closed now."""

    soon: bool = False


@attrs.frozen
class Heard:
    """Wait until so many frames have come, all in all."""

    count: int


Move: TypeAlias = "Frame | Begun | More | Still | Heard"
Event: TypeAlias = tuple[str, bytes]  # "text", "binary", "ping", "pong", "still", and the payload
Chop: TypeAlias = 'int | Literal["frames"] | None'

STILL: Final[Event] = ("still", b"")


@attrs.frozen(kw_only=True)
class Ending:
    """How the connection is to end: who says Close first, and which codes the end under test may answer.

    None among the codes: a Close without one. `clean`: both sides are to have said Close by the rules.
    """

    by: Literal["tester", "testee"]
    codes: tuple[int | None, ...]
    clean: bool


NORMAL: Final = Ending(by="tester", codes=(1000,), clean=True)
PROTOCOL: Final = Ending(by="testee", codes=(1002,), clean=False)
NOT_UTF8: Final = Ending(by="testee", codes=(1007,), clean=False)


@attrs.frozen(kw_only=True)
class Case:
    """A case, by the suite's own id.

    `strict` is what the tester is to hear, `lenient` what the suite lets pass as NON-STRICT. `chop`: bytes to
    a write, "frames" for one frame to a write, None for all at once. `free`: the suite only informs of it.
    """

    id: str
    moves: Iterable[Move]
    strict: tuple[Event, ...] = ()
    lenient: tuple[Event, ...] | None = None
    ending: Ending = NORMAL
    chop: Chop = None
    free: bool = False


def filled(pattern: bytes, size: int) -> bytes:
    return (pattern * (size // len(pattern) + 1))[:size]


def fragments(opcode: int, payloads: list[bytes]) -> tuple[Frame, ...]:
    """A message in frames with these payloads."""
    last = len(payloads) - 1
    return tuple(Frame(CONTINUATION if n else opcode, each, fin=n == last) for n, each in enumerate(payloads))


@attrs.frozen
class Cut:
    """A message in frames of so many bytes, the last of what is left."""

    opcode: int
    payload: bytes
    size: int

    def __iter__(self) -> Iterator[Frame]:
        for at in range(0, len(self.payload), self.size):
            part = self.payload[at : at + self.size]
            yield Frame(CONTINUATION if at else self.opcode, part, fin=at + self.size >= len(self.payload))


def echo(opcode: int, payload: bytes) -> Event:
    return ("text" if opcode == TEXT else "binary", payload)


def closing(code: int | None = 1000, reason: bytes = b"") -> Frame:
    return Frame(CLOSE, (b"" if code is None else code.to_bytes(2, "big")) + reason)
