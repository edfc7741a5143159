"""The cases of the Autobahn test suite, groups 1 to 7, 9 and 10, as a table of our own, under its ids.

Groups 12 and 13 are about compression, which is not offered: test_no_extensions.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.rfc6455.plan import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NOT_UTF8,
    PING,
    PONG,
    PROTOCOL,
    STILL,
    TEXT,
    Begun,
    Case,
    Cut,
    Ending,
    Frame,
    Heard,
    More,
    Still,
    closing,
    echo,
    filled,
    fragments,
)
from tests.rfc6455.utf8 import KOSME, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.rfc6455.plan import Chop, Move

HELLO: Final = b"hello, testee"
BYTES: Final = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
KIB, MIB = 1 << 10, 1 << 20


def message(case: str, opcode: int, payload: bytes, chop: Chop = None) -> Case:
    return Case(id=case, moves=(Frame(opcode, payload),), strict=(echo(opcode, payload),), chop=chop)


def framing() -> Iterator[Case]:
    sizes = (0, 125, 126, 127, 128, 65535, 65536, 65536)
    for section, opcode, fill in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for number, size in enumerate(sizes, 1):
            yield message(f"1.{section}.{number}", opcode, fill * size, 997 if number == 8 else None)


def pings() -> Iterator[Case]:
    for number, payload, chop in (
        (1, b"", None), (2, HELLO, None), (3, BYTES, None), (4, b"\xfe" * 125, None), (6, b"\xfe" * 125, 1),
    ):  # fmt: skip
        yield Case(id=f"2.{number}", moves=(Frame(PING, payload),), strict=(("pong", payload),), chop=chop)
    yield Case(id="2.5", moves=(Frame(PING, b"\xfe" * 126),), ending=PROTOCOL)
    yield Case(id="2.7", moves=(Frame(PONG), closing()))
    yield Case(id="2.8", moves=(Frame(PONG, b"unasked"), closing()))
    yield Case(id="2.9", moves=(Frame(PONG, b"unasked"), Frame(PING, b"asked")), strict=(("pong", b"asked"),))
    ten = [b"ping %d" % number for number in range(10)]
    for number, each in ((10, None), (11, 1)):
        yield Case(
            id=f"2.{number}",
            moves=tuple(Frame(PING, payload) for payload in ten),
            strict=tuple(("pong", payload) for payload in ten),
            chop=each,
        )


def broken_after_a_text(case: str, frame: Frame, chop: Chop = None) -> Case:
    """The text is to be answered, the ping behind the wrong frame is not."""
    return Case(
        id=case,
        moves=(Frame(TEXT, HELLO), frame, Frame(PING)),
        strict=(("text", HELLO),),
        lenient=(),
        ending=PROTOCOL,
        chop=chop,
    )


def reserved_bits() -> Iterator[Case]:
    yield Case(id="3.1", moves=(Frame(TEXT, HELLO, rsv=1),), ending=PROTOCOL)
    yield broken_after_a_text("3.2", Frame(TEXT, HELLO, rsv=2))
    yield broken_after_a_text("3.3", Frame(TEXT, HELLO, rsv=3), "frames")
    yield broken_after_a_text("3.4", Frame(TEXT, HELLO, rsv=4), 1)
    yield Case(id="3.5", moves=(Frame(BINARY, BYTES, rsv=5),), ending=PROTOCOL)
    # a ping by the suite's title, a binary message by what it sends: the ping is in tests/transport
    yield Case(id="3.6", moves=(Frame(BINARY, HELLO, rsv=6),), ending=PROTOCOL)
    yield Case(id="3.7", moves=(Frame(CLOSE, rsv=7),), ending=PROTOCOL)


def opcodes() -> Iterator[Case]:
    for section, first in ((1, 3), (2, 11)):
        yield Case(id=f"4.{section}.1", moves=(Frame(first),), ending=PROTOCOL)
        yield Case(id=f"4.{section}.2", moves=(Frame(first + 1, b"reserved"),), ending=PROTOCOL)
        yield broken_after_a_text(f"4.{section}.3", Frame(first + 2))
        yield broken_after_a_text(f"4.{section}.4", Frame(first + 3, HELLO))
        yield broken_after_a_text(f"4.{section}.5", Frame(first + 4, HELLO), 1)


ONE, TWO, THREE, FOUR, FIVE = (b"part %d " % number for number in range(1, 6))
WAYS: Final[tuple[Chop, ...]] = (None, "frames", 1)


def fragmentation() -> Iterator[Case]:
    for number, opcode in ((1, PING), (2, PONG)):
        yield Case(id=f"5.{number}", moves=fragments(opcode, [ONE, TWO]), ending=PROTOCOL)
    first, second = fragments(TEXT, [ONE, TWO])
    both = ("text", ONE + TWO)
    for number, chop in enumerate(WAYS):
        yield Case(id=f"5.{number + 3}", moves=(first, second), strict=(both,), chop=chop)
        ping = Frame(PING, b"between")
        pong = ("pong", b"between")
        yield Case(id=f"5.{number + 6}", moves=(first, ping, second), strict=(pong, both), chop=chop)
        for case, fin in ((number + 9, True), (number + 12, False)):
            stray = Frame(CONTINUATION, b"of nothing", fin=fin)
            yield Case(id=f"5.{case}", moves=(stray, Frame(TEXT, HELLO)), ending=PROTOCOL, chop=chop)
    stray = Frame(CONTINUATION, THREE, fin=False)
    yield Case(
        id="5.15",
        moves=(first, second, stray, Frame(TEXT, FOUR)),
        strict=(both,),
        lenient=(),
        ending=PROTOCOL,
    )
    for case, fin in ((16, False), (17, True)):
        once = (Frame(CONTINUATION, ONE, fin=fin), *fragments(TEXT, [TWO, THREE]))
        yield Case(id=f"5.{case}", moves=once * 2, ending=PROTOCOL)
    yield Case(id="5.18", moves=(first, Frame(TEXT, TWO)), ending=PROTOCOL)
    yield from pings_within_a_message()


def pings_within_a_message() -> Iterator[Case]:
    parts = fragments(TEXT, [ONE, TWO, THREE, FOUR, FIVE])
    for case, chop in enumerate(WAYS[:2], 19):
        yield Case(
            id=f"5.{case}",
            # the first pong is to come before the message goes on
            moves=(
                *parts[:2],
                Frame(PING, b"first"),
                Heard(1),
                *parts[2:4],
                Frame(PING, b"second"),
                parts[4],
            ),
            strict=(("pong", b"first"), ("pong", b"second"), ("text", ONE + TWO + THREE + FOUR + FIVE)),
            chop=chop,
        )


MIXED: Final = "Grüße-µ@ß".encode(), "öäüàá-in-UTF-8".encode()
SURROGATE: Final = KOSME + b"\xed\xa0\x80" + b"edited"
BEYOND: Final = KOSME + b"\xf4\x90\x80\x80" + b"edited"  # byte 12 makes it wrong


def utf8() -> Iterator[Case]:
    yield message("6.1.1", TEXT, b"")
    yield Case(id="6.1.2", moves=fragments(TEXT, [b""] * 3), strict=(("text", b""),))
    yield Case(id="6.1.3", moves=fragments(TEXT, [b"", HELLO, b""]), strict=(("text", HELLO),))
    whole = b"".join(MIXED)
    yield message("6.2.1", TEXT, whole)
    yield Case(id="6.2.2", moves=fragments(TEXT, [*MIXED]), strict=(("text", whole),))
    yield Case(id="6.2.3", moves=Cut(TEXT, whole, 1), strict=(("text", whole),))
    yield Case(id="6.2.4", moves=Cut(TEXT, KOSME, 1), strict=(("text", KOSME),))
    yield Case(id="6.3.1", moves=(Frame(TEXT, SURROGATE),), ending=NOT_UTF8)
    yield Case(id="6.3.2", moves=Cut(TEXT, SURROGATE, 1), ending=NOT_UTF8)
    yield from fails_fast()


def utf8_rows() -> Iterator[Case]:
    for section, rows in ROWS.items():
        for number, (is_utf8, payload) in enumerate(rows, 1):
            case = f"6.{section}.{number}"
            if is_utf8:
                yield message(case, TEXT, payload)
            else:
                yield Case(id=case, moves=(Frame(TEXT, payload),), ending=NOT_UTF8)


def fails_fast() -> Iterator[Case]:
    """What cannot become UTF-8 any more is to be refused before its message, or its frame, is complete."""
    for number, ends in ((1, (11, 15)), (2, (12, 13))):
        a, b, c = BEYOND[: ends[0]], BEYOND[ends[0] : ends[1]], BEYOND[ends[1] :]
        in_frames = fragments(TEXT, [a, b, c])
        in_one = (Begun(TEXT, len(BEYOND), a), More(b), More(c))
        moves: tuple[Move, ...]
        for case, moves in ((number, in_frames), (number + 2, in_one)):
            yield Case(
                id=f"6.4.{case}",
                moves=(moves[0], Still(), moves[1], Still(soon=True), moves[2]),
                strict=(STILL,),
                lenient=(STILL, STILL),
                ending=NOT_UTF8,
            )


REFUSED: Final = Ending(by="tester", codes=(1002,), clean=False)
GOOD_CODES: Final = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
BAD_CODES: Final = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)


def closes() -> Iterator[Case]:
    first, second = fragments(TEXT, [ONE, TWO])
    yield message("7.1.1", TEXT, HELLO)
    yield Case(id="7.1.2", moves=(closing(), Frame(CLOSE)))
    yield Case(id="7.1.3", moves=(closing(), Frame(PING)))
    yield Case(id="7.1.4", moves=(closing(), Frame(TEXT, HELLO)))
    yield Case(id="7.1.5", moves=(first, closing(), second))
    long = Frame(TEXT, filled(HELLO, 256 * KIB))
    moves = (long, Frame(TEXT, HELLO), closing(), Frame(PING))
    yield Case(id="7.1.6", moves=moves, free=True)
    yield Case(id="7.3.1", moves=(closing(None),), ending=Ending(by="tester", codes=(1000, None), clean=True))
    yield Case(id="7.3.2", moves=(Frame(CLOSE, b"a"),), ending=REFUSED)
    yield Case(id="7.3.3", moves=(closing(),))
    yield Case(id="7.3.4", moves=(closing(1000, HELLO),))
    yield Case(id="7.3.5", moves=(closing(1000, b"*" * 123),))
    yield Case(id="7.3.6", moves=(closing(1000, b"*" * 124),), ending=REFUSED)
    either = Ending(by="tester", codes=(1002, 1007), clean=False)
    yield Case(id="7.5.1", moves=(closing(1000, SURROGATE),), ending=either)
    for number, code in enumerate(GOOD_CODES, 1):
        ending = Ending(by="tester", codes=(1000, code), clean=True)
        yield Case(id=f"7.7.{number}", moves=(closing(code),), ending=ending)
    for number, code in enumerate(BAD_CODES, 1):
        yield Case(id=f"7.9.{number}", moves=(closing(code),), ending=REFUSED)
    for number, code in enumerate((5000, 65535), 1):
        yield Case(id=f"7.13.{number}", moves=(closing(code),), ending=REFUSED, free=True)


KINDS: Final = ((TEXT, b"BAsd7&jh23"), (BINARY, b"\x00\xfe\x23\xfa\xf0"))


def sizes() -> Iterator[Case]:
    for section, (opcode, pattern) in enumerate(KINDS, 1):
        for number, size in enumerate((64 * KIB, 256 * KIB, MIB), 1):
            yield message(f"9.{section}.{number}", opcode, filled(pattern, size))


def larger() -> Iterator[Case]:
    """What sends more than 1 MiB."""
    for section, (opcode, pattern) in enumerate(KINDS, 1):
        for number, size in enumerate((4 * MIB, 8 * MIB, 16 * MIB), 4):
            yield message(f"9.{section}.{number}", opcode, filled(pattern, size))
        payload = filled(pattern, 4 * MIB)
        for number in range(9):
            moves = Cut(opcode, payload, 64 << 2 * number)
            yield Case(id=f"9.{section + 2}.{number + 1}", moves=moves, strict=(echo(opcode, payload),))


def chops() -> Iterator[Case]:
    for section, (opcode, pattern) in enumerate(KINDS, 5):
        payload = filled(pattern, MIB)
        for number in range(6):
            yield message(f"9.{section}.{number + 1}", opcode, payload, 64 << number)


def round_trips() -> Iterator[Case]:
    for section, (opcode, pattern) in enumerate(KINDS, 7):
        for number, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            yield there_and_back(f"9.{section}.{number}", opcode, filled(pattern, size))


def there_and_back(case: str, opcode: int, payload: bytes, times: int = 1000) -> Case:
    """Each message is sent when the one before has come back."""
    moves: list[Move] = []
    for count in range(1, times + 1):
        moves += (Frame(opcode, payload), Heard(count))
    return Case(id=case, moves=tuple(moves), strict=(echo(opcode, payload),) * times)


def fragmented_by_itself() -> Iterator[Case]:
    payload = b"*" * 65536
    yield Case(id="10.1.1", moves=Cut(TEXT, payload, 1300), strict=(("text", payload),))


GROUPS: Final[dict[str, tuple[Callable[[], Iterator[Case]], ...]]] = {
    "1": (framing,),
    "2": (pings,),
    "3": (reserved_bits,),
    "4": (opcodes,),
    "5": (fragmentation,),
    "6": (utf8, utf8_rows),
    "7": (closes,),
    "9": (sizes, chops, round_trips),
    "10": (fragmented_by_itself,),
}
