"""RFC 6455 beyond the Autobahn cases (tests/rfc6455), in memory.

Both ends, with and without the short cut, whole and byte by byte: the cases as a table.
"""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors.transport import ConnectionOptions, server_text
from tests.matrix import few_or_all
from tests.transport.peer import (
    BINARY,
    CLOSE,
    ENDS,
    PING,
    PONG,
    TEXT,
    Peer,
    Recorder,
    closing,
    frame,
    mask,
    play,
)

LIMIT = 70_000
OPTIONS = ConnectionOptions(max_message_bytes=LIMIT)
EURO = "€".encode()
BAD = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"  # "kosme" and a surrogate


@attrs.frozen
class Case:
    """What is sent, what the handler gets, and the code of our Close, which is all that goes back."""

    name: str
    data: bytes
    got: tuple[str | bytes, ...] = ()
    code: int | None = 1000
    is_clean: bool = True


def good(name: str, data: bytes, *got: str | bytes) -> Case:
    return Case(name, data + closing(), got, 1000)


def bad(name: str, data: bytes, code: int, *got: str | bytes) -> Case:
    return Case(name, data, got, code, is_clean=False)


def text(payload: bytes, **more: object) -> bytes:
    return frame(TEXT, payload, **more)


def parts(opcode: int, *payloads: bytes) -> list[bytes]:
    last = len(payloads) - 1
    return [frame(0 if n else opcode, each, fin=n == last) for n, each in enumerate(payloads)]


def whole(opcode: int, *payloads: bytes) -> bytes:
    return b"".join(parts(opcode, *payloads))


def sizes() -> list[Case]:
    found: list[Case] = []
    for size in (1, LIMIT):
        found.append(good(f"text of {size}", text(b"*" * size), "*" * size))
        found.append(good(f"binary of {size}", frame(BINARY, b"\xfe" * size), b"\xfe" * size))
    for opcode, name in ((TEXT, "text"), (BINARY, "binary")):
        found.append(bad(f"{name} over the limit", frame(opcode, b"*" * (LIMIT + 1)), 1009))
        found.append(bad(f"{name} over the limit in two", whole(opcode, b"*" * LIMIT, b"*"), 1009))
        head = bytes([0x80 | opcode, 127]) + (1 << 62).to_bytes(8, "big")
        found.append(bad(f"{name} claims 2^62", head + b"*" * 9, 1009))
        head = bytes([0x80 | opcode, 127]) + (1 << 63).to_bytes(8, "big")
        found.append(bad(f"{name} claims 2^63", head + b"*" * 9, 1002))
    for size, claim in ((5, 2), (125, 2), (0, 2), (5, 8), (126, 8), (65535, 8)):
        found.append(bad(f"length {size} in {claim}", text(b"*" * size, size=claim), 1002))
    found.append(bad("euros over the limit", text(EURO * (LIMIT // 3 + 1)), 1009))
    found.append(good("euros at the limit", text(EURO * (LIMIT // 3)), "€" * (LIMIT // 3)))
    return found


def control_frames() -> list[Case]:
    return [
        bad("pong of 126", frame(PONG, b"\xfe" * 126), 1002),
        bad("close in fragments", frame(CLOSE, b"\x03\xe8", fin=False) + frame(0, b"b"), 1002),
    ]


def reserved() -> list[Case]:
    return [
        bad(f"reserved bit {bit} of {opcode}", text(b"a") + frame(opcode, b"\x03\xe8", rsv=bit), 1002, "a")
        for bit in (1, 2, 4)
        for opcode in (0, TEXT, BINARY, CLOSE, PING, PONG)
    ]


def fragments() -> list[Case]:
    first, second, third = parts(TEXT, b"frag", b"men", b"ts")
    return [
        good("binary in three", whole(BINARY, b"a", b"b", b"c"), b"abc"),
        good("empty binary fragments", whole(BINARY, b"", b""), b""),
        good("a pong in between", first + frame(PONG, b"p") + second + third, "fragments"),
        good("at the limit", whole(TEXT, b"*" * 35_000, b"*" * 35_000), "*" * LIMIT),
        good("texts around", text(b"a") + first + second + third + text(b"b"), "a", "fragments", "b"),
        good("two in fragments", whole(TEXT, b"a", b"b") + whole(BINARY, b"c", b"d"), "ab", b"cd"),
        bad("continuation after a whole text", text(b"a") + frame(0, b"x") + text(b"b"), 1002, "a"),
        bad("text inside a message, behind a pong", first + frame(PONG) + text(b"a") + third, 1002),
        bad("binary inside a message", first + frame(BINARY, b"a") + third, 1002),
        bad("text inside a binary message", frame(BINARY, b"a", fin=False) + text(b"a"), 1002),
    ]


def utf8() -> list[Case]:
    found = [
        good("the BOM", text(b"\xef\xbb\xbf"), "\ufeff"),
        bad("fragments cut in a code point", whole(TEXT, b"a", EURO[:2]), 1007),
        bad("good texts before", text(b"a") + text(BAD) + text(b"b"), 1007, "a"),
        bad("a bad one of 70,000", text(b"*" * (LIMIT - 1) + b"\xff"), 1007),
    ]
    wrong = {
        "a surrogate": BAD, "5 bytes": b"\xf8\x88\x80\x80\x80", "6 bytes": b"\xfc\x84\x80\x80\x80\x80",
        "above 10FFFF": b"\xf4\x90\x80\x80", "a lone continuation": b"\x80", "overlong 2": b"\xc0\xaf",
        "overlong 3": b"\xe0\x80\xaf", "overlong 4": b"\xf0\x80\x80\xaf", "fe": b"\xfe", "ff": b"\xff",
        "a lone start": b"\xc3 ", "a start in the end": b"x\xe2\x82",
    }  # fmt: skip
    found += [
        bad(f"utf-8 in fragments: {name}", whole(TEXT, b"ok ", data), 1007) for name, data in wrong.items()
    ]
    return found


def closes() -> list[Case]:
    found = [
        Case("a text after the close", closing() + text(b"late"), (), 1000),
        Case("garbage after the close", closing() + b"\xff" * 50, (), 1000),
        Case("a text before the close", text(b"a") + closing(), ("a",), 1000),
    ]
    found += [Case(f"close {code}", closing(code), (), code) for code in (1012, 1013)]
    found += [bad(f"close {code} is none", closing(code), 1002) for code in (1014, 1015, 5000, 65535)]
    return found


CASES = [*sizes(), *control_frames(), *reserved(), *fragments(), *utf8(), *closes()]


def test_names_are_told_apart() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) > 60


def meet(end: str, case: Case, fast: bool, step: int) -> None:
    data = mask(case.data) if end == "server" else case.data

    async def body(peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read_to_the_end)
            try:
                for at in range(0, len(data), step):
                    await peer.stream.send_all(data[at : at + step])
                    if step < 10:
                        await wait_all_tasks_blocked()
                    else:
                        await trio.sleep(0.001)
                if end == "server" or case.code is None:
                    return
                await trio.sleep(0.1)
                await peer.stream.send_eof()  # clients wait for the server to end the stream
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    handler, peer = play(end, body, options=attrs.evolve(OPTIONS, fast_frames=fast))
    came = peer.came()
    assert handler.got == list(case.got)
    close = came.pop()
    payload = b"" if case.code == 1005 else close[1][:2]
    assert close[0] == CLOSE
    assert close[1][:2] == (b"" if case.code == 1005 else (case.code or 0).to_bytes(2, "big"))
    assert came == []
    assert payload == close[1][:2]
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.clean) == (case.code, case.is_clean)
    assert peer.ended.by == ("peer" if case.is_clean else "us")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_of_the_suite_ends_as_it_should(case: Case) -> None:
    for end in ENDS:
        for fast in (True, False):
            for step in (
                few_or_all((1,), (1, 1000)) if len(case.data) < 500 else few_or_all((4096,), (4096, 100_000))
            ):
                meet(end, case, fast, step)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("opcode", [0, TEXT, BINARY, CLOSE, PING, PONG])
def test_a_mask_the_wrong_way_is_an_error(end: str, fast: bool, opcode: int) -> None:
    wrong = frame(opcode, b"\x03\xe8" if opcode == CLOSE else b"ok")
    data = wrong if end == "server" else mask(wrong)

    async def body(peer: Peer) -> None:
        await peer.stream.send_all(data)
        assert [f[0] for f in await peer.read_to_the_end()] == [CLOSE]

    handler, peer = play(end, body, options=attrs.evolve(OPTIONS, fast_frames=fast))
    assert handler.got == []
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.by) == (1002, "us")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_messages_go_out_as_frames_of_the_shortest_form(end: str, fast: bool) -> None:
    from tests.transport.peer import Bin

    out = [b"a" * size for size in (0, 1, 125, 126, 65535, 65536)]
    out += [Bin(b"b" * size) for size in (0, 125, 126, 65535, 65536)] + ["Grüße €".encode()]

    async def body(peer: Peer) -> None:
        peer.connection.close(1000, "bye")
        await peer.receive(len(out) + 1)
        await peer.send(closing(1000))
        await peer.stream.aclose()

    _, peer = play(end, body, handler=Recorder(*out), options=attrs.evolve(OPTIONS, fast_frames=fast))
    found = peer.came()
    assert found == [(BINARY if isinstance(m, Bin) else TEXT, bytes(m)) for m in out] + [
        (CLOSE, b"\x03\xe8bye")
    ]
    overhead = sum((2 if len(m) < 126 else 4 if len(m) < 65536 else 10) + len(m) for _, m in found)
    assert len(peer.sent) == overhead + (0 if end == "server" else 4 * len(found))
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.by, peer.ended.clean) == (1000, "us", True)
    assert peer.connection.statistics().bytes_out == len(peer.sent)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_a_text_that_many_connections_share_is_the_frame_of_a_server(size: int, fast: bool) -> None:
    shared = server_text(b"a" * size)

    async def body(peer: Peer) -> None:
        peer.connection.close(1000, "bye")
        await peer.receive(4)
        await peer.send(closing(1000))
        await peer.stream.aclose()

    options = attrs.evolve(OPTIONS, fast_frames=fast)
    _, peer = play("server", body, handler=Recorder(b"before", shared, b"behind"), options=options)
    texts = [(TEXT, b"before"), (TEXT, b"a" * size), (TEXT, b"behind")]
    assert peer.came() == [*texts, (CLOSE, b"\x03\xe8bye")]
    assert peer.connection.statistics().messages_out == 3
