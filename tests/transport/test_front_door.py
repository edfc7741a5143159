"""What comes to a port that faces the world, over real sockets: each ends its own connection and no other."""

from __future__ import annotations

import json
import socket
import struct

import pytest
import trio

from lmos_actors.transport import ConnectFailed
from tests.transport.doors import CLOSE, GET, HELLO, KEY, Client, open_door, upgrade

LINE = "GET / HTTP/1.1\r\n"
HOST = "Host: door\r\n"
OPENING = (
    f"{HOST}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n"
    "Sec-WebSocket-Version: 13\r\n"
)


def head(*headers: str, line: str = LINE) -> bytes:
    return (line + HOST + "".join(f"{header}\r\n" for header in headers) + "\r\n").encode("latin-1")


def opening(old: str, new: str, line: str = LINE) -> bytes:
    assert old in OPENING
    return (line + OPENING.replace(old, new) + "\r\n").encode("latin-1")


REFUSED: dict[str, tuple[bytes, int, str]] = {
    # not HTTP/1.1 at all
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), 400, "TLS"),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/2.0"),
    "HTTP/0.9": (b"GET /\r\n", 400, "first line"),
    "HTTP/3.0": (b"GET / HTTP/3.0\r\nHost: door\r\n\r\n", 505, "HTTP/3.0"),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: door\r\n\r\n", 505, "HTTP/1.2"),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", 400, "first line"),
    "a greeting": (b"EHLO mail.example.org\r\n", 400, "first line"),
    "a protobuf": (b"\x08\x96\x01", 400, "printable"),
    "NUL": (b"\0\0\0\0", 400, "printable"),
    "an endless line of empty lines": (b"\r\n" * 20, 400, "empty lines"),
    # bytes
    "a non-ASCII Host": (LINE.encode() + b"Host: d\xc3\xb6ner\r\n\r\n", 400, "ASCII"),
    "a non-ASCII Connection": (head("Connection: Upgrad\xe9"), 400, "ASCII"),
    "a non-ASCII protocol": (opening("13\r\n", "13\r\nSec-WebSocket-Protocol: lm\xf6s\r\n"), 400, "ASCII"),
    "a non-ASCII target": (head(line="GET /\xe9 HTTP/1.1\r\n"), 400, "ASCII"),
    "a non-ASCII name": (head("X-\xe9: 1"), 400, "ASCII"),
    "NUL in a value": (head("X: a\0b"), 400, "ASCII"),
    "an escape in a value": (head("X: \x1b[31m"), 400, "ASCII"),
    "a delete in a value": (head("X: \x7f"), 400, "ASCII"),
    # lines
    "bare line feeds": (b"GET / HTTP/1.1\nHost: door\n\n", 400, "line feed"),
    "one bare line feed": (b"GET / HTTP/1.1\r\nHost: door\nX: 1\r\n\r\n", 400, "line feed"),
    "a bare carriage return": (head("X: a\rY: b"), 400, "carriage return"),
    "a carriage return and a line feed apart": (head("X: a\rb\nY: 1"), 400, "line feed"),
    "a line feed at the very end": (b"GET / HTTP/1.1\r\nHost: door\r\n\n", 400, "line feed"),
    "a folded header": (head("X: a", " b"), 400, "folded"),
    "a folded header, by a tab": (head("X: a", "\tb"), 400, "folded"),
    "a space before the colon": (head("X : 1"), 400, "header"),
    "no colon": (head("nothing"), 400, "header"),
    "an empty name": (head(": 1"), 400, "header"),
    "a space in the target": (head(line="GET /a b HTTP/1.1\r\n"), 400, "first line"),
    "two spaces": (head(line="GET  / HTTP/1.1\r\n"), 400, "first line"),
    "a small http": (head(line="GET / http/1.1\r\n"), 400, "first line"),
    "no method": (head(line=" / HTTP/1.1\r\n"), 400, "first line"),
    "a long method": (head(line=f"{'A' * 40} / HTTP/1.1\r\n"), 400, "first line"),
    # hosts
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
    "two Hosts": (head("Host: other"), 400, "Host"),
    "a Host with a path": (LINE.encode() + b"Host: door/x\r\n\r\n", 400, "Host"),
    "a Host with a user": (LINE.encode() + b"Host: me@door\r\n\r\n", 400, "Host"),
    # targets
    "another host in the target": (head(line="GET http://other/ HTTP/1.1\r\n"), 400, "different hosts"),
    "a strange scheme": (head(line="GET ftp://door/ HTTP/1.1\r\n"), 400, "path"),
    "a bare name": (head(line="GET index.html HTTP/1.1\r\n"), 400, "path"),
    "a fragment": (head(line="GET /#a HTTP/1.1\r\n"), 400, "fragment"),
    "CONNECT": (head(line="CONNECT door:443 HTTP/1.1\r\n"), 405, "CONNECT"),
    "TRACE": (head(line="TRACE / HTTP/1.1\r\n"), 405, "TRACE"),
    "OPTIONS *": (head(line="OPTIONS * HTTP/1.1\r\n"), 405, "OPTIONS"),
    # smuggling
    "both lengths": (head("Content-Length: 4", "Transfer-Encoding: chunked"), 400, "both"),
    "both lengths, reversed": (head("Transfer-Encoding: chunked", "Content-Length: 4"), 400, "both"),
    "two lengths": (head("Content-Length: 4", "Content-Length: 5"), 400, "two"),
    "two equal lengths": (head("Content-Length: 4", "content-length:4"), 400, "two"),
    "a list of lengths": (head("Content-Length: 4, 4"), 400, "one number"),
    "a signed length": (head("Content-Length: +4"), 400, "one number"),
    "a negative length": (head("Content-Length: -4"), 400, "one number"),
    "a hexadecimal length": (head("Content-Length: 0x4"), 400, "one number"),
    "an underscored length": (head("Content-Length: 1_0"), 400, "one number"),
    "an empty length": (head("Content-Length:"), 400, "one number"),
    "an endless length": (head(f"Content-Length: {'9' * 40}"), 400, "one number"),
    "gzip": (head("Transfer-Encoding: gzip, chunked"), 501, "chunked"),
    "identity": (head("Transfer-Encoding: identity"), 501, "chunked"),
    "a quoted coding": (head('Transfer-Encoding: "chunked"'), 501, "chunked"),
    "two codings": (head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 501, "Transfer"),
    "chunks in HTTP/1.0": (head("Transfer-Encoding: chunked", line="GET / HTTP/1.0\r\n"), 400, "HTTP/1.0"),
    # sizes
    "a huge target": (f"GET /{'a' * 20000} HTTP/1.1\r\n".encode(), 414, "16384"),
    "a huge line without an end": (b"a" * 20000, 414, "16384"),
    "a huge header": (head(f"X: {'a' * 20000}"), 431, "16384"),
    "many headers": (head(*["X: 1"] * 101), 431, "100"),
    "a huge body": (head("Content-Length: 4194305", line="POST / HTTP/1.1\r\n"), 413, "4194304"),
    "a huge body, announced": (
        head("Content-Length: 4194305", "Expect: 100-continue", line="POST / HTTP/1.1\r\n"),
        413,
        "4194304",
    ),
    "an unheard-of expectation": (head("Expect: a miracle"), 417, "100-continue"),
    # handshakes of WebSocket
    "POST": (opening("", "", "POST / HTTP/1.1\r\n"), 405, "GET"),
    "HTTP/1.0": (opening("", "", "GET / HTTP/1.0\r\n"), 400, "HTTP/1.1"),
    "no Connection": (opening("Connection: Upgrade\r\n", ""), 400, "Connection"),
    "several protocols, no Connection": (
        opening("Connection: Upgrade\r\n", "").replace(b"websocket", b"h2c, websocket"),
        400,
        "Connection",
    ),
    "another Connection": (opening("Connection: Upgrade", "Connection: keep-alive"), 400, "Connection"),
    "version 8": (opening("Version: 13", "Version: 8"), 426, "version 13"),
    "no version": (opening("Sec-WebSocket-Version: 13\r\n", ""), 426, "version 13"),
    "two versions": (opening("Version: 13", "Version: 13\r\nSec-WebSocket-Version: 13"), 426, "13"),
    "no key": (opening(f"Sec-WebSocket-Key: {KEY}\r\n", ""), 400, "Key"),
    "a short key": (opening(KEY, "AAAA"), 400, "Key"),
    "a key that is no base64": (opening(KEY, "?" * 22 + "=="), 400, "Key"),
    "two keys": (opening(KEY, f"{KEY}\r\nSec-WebSocket-Key: {KEY}"), 400, "Key"),
    "a body": (opening("13\r\n", "13\r\nContent-Length: 5\r\n") + b"hello", 400, "body"),
    "a chunked body": (opening("13\r\n", "13\r\nTransfer-Encoding: chunked\r\n"), 400, "body"),
    "a bad protocol": (opening("13\r\n", "13\r\nSec-WebSocket-Protocol: a b\r\n"), 400, "Protocol"),
    "a host that is none": (opening("Host: door", "Host: xn--~~"), 400, "Host"),
    "nowhere": (upgrade("/nowhere"), 404, "nothing is there"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_is_answered_and_ends_its_own_connection(case: str):
    data, status, word = REFUSED[case]
    async with open_door() as door:
        client = await door.knock()
        await client.send(data)
        found, headers, body = await client.answer()
        assert found == status, body
        told = json.loads(body)
        assert told["status"] == status
        assert word in told["detail"]
        assert body.endswith(b"\n")
        assert "close" in headers["connection"].split(", ")
        assert headers["content-type"] == "application/problem+json"
        await client.ended()
        await client.stream.aclose()
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert (seen.accepted, seen.served, sum(seen.refused.values())) == (3, 2, 1)


async def test_a_refusal_of_head_has_no_body():
    async with open_door(app=None) as door:
        client = await door.knock()
        await client.send(GET.replace(b"GET", b"HEAD"))
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 426 ")
        await client.ended()


async def test_a_refusal_after_a_head_has_a_body():
    async with open_door() as door:
        client = await door.knock()
        await client.send(GET.replace(b"GET", b"HEAD") + b"nonsense\r\n")
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert json.loads((await client.answer())[2])["status"] == 400


async def test_a_refusal_says_what_would_do():
    async with open_door(app=None) as door:
        for data, name, value in (
            (REFUSED["version 8"][0], "sec-websocket-version", "13"),
            (REFUSED["TRACE"][0], "allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            (GET, "upgrade", "websocket"),
        ):
            client = await door.knock()
            await client.send(data)
            _, headers, _ = await client.answer()
            assert headers[name] == value


ACCEPTED: dict[str, tuple[bytes, bytes]] = {
    "HTTP/1.0": (b"GET /a HTTP/1.0\r\n\r\n", b"GET /a "),
    "an absolute target": (head(line="GET http://Door/a?b HTTP/1.1\r\n"), b"GET /a "),
    "an absolute target without a path": (head(line="GET http://door?b HTTP/1.1\r\n"), b"GET / "),
    "an empty line before it": (b"\r\n" + GET, b"GET / "),
    "an upgrade to HTTP/2": (head("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), b"GET / "),
    "a hundred headers": (head(*["X: 1"] * 99), b"GET / "),
    "an empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b"GET / "),
    "an address for a Host": (b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", b"GET / "),
    "a body": (head("Content-Length: 5", line="PUT /a HTTP/1.1\r\n") + b"hello", b"PUT /a hello"),
    "an unheard-of method": (head(line="BREW / HTTP/1.1\r\n"), b"BREW / "),
    "chunks": (
        head("Transfer-Encoding: chunked", line="POST / HTTP/1.1\r\n")
        + b"2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n",
        b"POST / hello",
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
async def test_what_is_odd_but_right_is_served(case: str):
    data, wanted = ACCEPTED[case]
    async with open_door() as door:
        client = await door.knock()
        for byte in data:  # the same whether it comes at once or not
            await client.send(bytes([byte]))
        status, _, body = await client.answer()
        assert (status, body) == (200, wanted)
        await client.stream.aclose()
        await door.serves_the_next()


def reset(client: Client) -> None:
    """Close as a port scan does: no goodbye, a reset."""
    found: socket.socket = client.stream._socket  # type: ignore[attr-defined]
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    trio.lowlevel.notify_closing(found)
    found.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"GET", GET, GET[:-2], GET * 50, upgrade(), upgrade() + HELLO, upgrade() + CLOSE],
    ids=["nothing", "a word", "a request", "half a head", "a pipeline", "an upgrade", "a message", "a close"],
)
async def test_a_reset_ends_its_own_connection(data: bytes):
    async with open_door() as door:
        for _ in range(10):
            client = await door.knock()
            await client.send(data)
            reset(client)
            door.clients.remove(client)
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert seen.accepted == 12
        assert seen.failed == 0


async def test_a_peer_that_says_no_more_in_mid_head_is_told():
    async with open_door() as door:
        client = await door.knock()
        await client.send(GET[:-2])
        await client.stream.send_eof()  # type: ignore[attr-defined]
        assert (await client.answer())[0] == 400
        await client.ended()
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"cut short": 1}


async def test_a_peer_that_comes_and_goes_has_left():
    async with open_door() as door:
        client = await door.knock()
        await client.stream.aclose()
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert (seen.left, seen.served, seen.requests, seen.upgrades) == (1, 2, 1, 1)


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_frames_may_come_in_the_segment_of_the_upgrade(size: int):
    async with open_door() as door:
        client = await door.knock()
        data = upgrade() + HELLO * 2
        for start in range(0, len(data), size):
            await client.send(data[start : start + size])
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await client.take(14) == b"\x81\x05hello" * 2
        await client.send(CLOSE)
        assert await client.take(4) == b"\x88\x02\x03\xe8"
        await client.ended()
        await door.serves_the_next()
        assert (await door.comes_to_rest()).served == 3


@pytest.mark.parametrize(
    "lines",
    [
        "Upgrade: h2c, websocket",
        "Upgrade: WebSocket , h2c/1",
        "Upgrade: ,, websocket,",
        "Upgrade: websocket\r\nUpgrade: h2c",
        "Upgrade: h2c\r\nUpgrade: websocket\r\nConnection: keep-alive",
    ],
)
async def test_a_websocket_may_be_one_of_several_protocols_that_are_offered(lines: str):
    async with open_door() as door:
        client = await door.knock()
        await client.send(upgrade().replace(b"Upgrade: websocket", lines.encode(), 1) + HELLO)
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await client.take(7) == b"\x81\x05hello"
        await client.stream.aclose()
        await door.serves_the_next()


async def test_a_connection_that_spoke_http_can_become_a_websocket():
    async with open_door() as door:
        client = await door.knock()
        await client.send(GET + upgrade() + HELLO)
        assert (await client.answer())[2] == b"GET / "
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await client.take(7) == b"\x81\x05hello"
        await client.stream.aclose()
        await door.serves_the_next()


@pytest.mark.parametrize(
    ("data", "seconds", "status", "kind"),
    [
        (b"", 0.05, None, "silent"),
        (GET[:5], 0.5, 408, "slow head"),
        (b"PUT / HTTP/1.1\r\nHost: door\r\nContent-Length: 9\r\n\r\n1", 5.0, 408, "slow body"),
    ],
)
async def test_who_lets_us_wait_is_not_waited_for_long(
    data: bytes, seconds: float, status: int | None, kind: str
):
    async with open_door(head_seconds=seconds, body_seconds=0.05) as door:
        client = await door.knock()
        if status is None:
            await client.ended()
        else:
            await client.send(data)
            assert (await client.answer())[0] == status
            await client.ended()
        await client.stream.aclose()
        await door.until(lambda now: now.refused == {kind: 1})


async def test_at_its_end_nobody_listens_any_more():
    async with open_door() as door:
        await door.serves_the_next()
    with pytest.raises(ConnectFailed):
        await door.knock()


@pytest.mark.slow
async def test_thousands_of_silent_peers_lock_nobody_out():
    async with open_door(max_half_open=8) as door:
        silent = [await door.knock() for _ in range(500)]
        await door.serves_the_next()
        seen = await door.until(lambda now: now.served == 2)
        assert seen.half_open == 7
        assert seen.refused == {"half open": 493}
        for client in silent[:493]:
            await client.ended()
