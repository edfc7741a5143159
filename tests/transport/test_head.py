"""Heads of requests: what any bytes do to the reader, and that it does not matter how they come."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given, strategies as st

from lmos_actors.transport import Upgrade, same_origin
from lmos_actors.transport._head import (
    Head,
    HeadReader,
    Refused,
    asks_for_websocket,
    refused_bytes,
    upgrade_of,
)
from tests.transport.doors import upgrade
from tests.transport.test_front_door import REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = (
    b"POST /a/b?c=d HTTP/1.1\r\nHost: example.org:80\r\nContent-Length: 12\r\nAccept: */*\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    b"GET http://x/y HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    upgrade("/agents/weather?x=1"),
)
SPICE = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b"\0",
    b"\xff",
    b"\x16\x03\x01",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: y\r\n",
    b"X: 1\r\n 2\r\n",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"Upgrade: websocket\r\n",
    b"%",
    b"*",
    b"http://",
    b"#",
)


@st.composite
def spiced(draw: st.DrawFn) -> bytes:
    """A good head with pieces put in, taken out and doubled."""
    data = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + draw(st.sampled_from((0, 0, 1, 20))))))
        data[start:end] = draw(
            st.sampled_from(SPICE) | st.binary(max_size=3) | st.just(bytes(data[start:end]) * 2)
        )
    return bytes(data)


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    cuts = sorted(random.Random(seed).choices(range(len(data) + 1), k=seed % 7))
    yield from (data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))


def read(
    parts: Iterator[bytes], max_bytes: int = 300, max_headers: int = 10
) -> tuple[Head | tuple[int, str] | None, bytes]:
    """What a reader makes of it: a head, a refusal, or nothing yet; and what is left."""
    reader = HeadReader(max_bytes=max_bytes, max_headers=max_headers)
    found: Head | tuple[int, str] | None = None
    for part in parts:
        reader.feed(part)
        try:
            found = found or reader.take()
        except Refused as refused:
            return (refused.status, refused.why), b""
    return found, reader.rest


@given(spiced() | st.binary(max_size=400), st.integers(0, 1000))
def test_any_bytes_are_a_head_or_refused_or_not_yet_whole_however_they_come(data: bytes, seed: int):
    found, rest = read(iter([data]))
    again, rest_again = read(pieces(data, seed))
    assert isinstance(found, Head) is isinstance(again, Head)
    if not isinstance(found, Head):
        # in pieces it may be refused for another fault, that shows earlier
        assert (found is None) is (again is None)
        assert found is None or found[0] in (400, 405, 414, 431, 501, 505)
        return
    assert (found, rest) == (again, rest_again)
    assert data.lstrip(b"\r\n").endswith(rest)
    agrees(found)


def agrees(head: Head) -> None:
    """A second parser, which is given what was passed on, sees the same request and the same body."""
    other = h11.Connection(h11.SERVER)
    other.receive_data(head.raw)
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target.decode()) == (head.method, head.target)
    assert tuple(event.headers) == head.headers
    assert head.raw.isascii()
    assert head.target.startswith("/")
    assert not (head.chunked and head.values(b"content-length"))
    assert head.raw.lower().count(b"\r\ncontent-length") == len(head.values(b"content-length")) <= 1
    assert head.raw.count(b"\n") == head.raw.count(b"\r\n") == head.raw.count(b"\r")
    if asks_for_websocket(head):
        with suppress(Refused):
            asked = upgrade_of(head, "peer", secure=False)
            assert head.values(b"sec-websocket-version") == ["13"]
            assert not asked.query or asked.target.endswith(f"?{asked.query}")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_byte_by_byte_too(case: str):
    data = REFUSED[case][0]
    limits = {"max_bytes": 16384, "max_headers": 100}
    assert read(iter([data]), **limits) == read((bytes([byte]) for byte in data), **limits)


def test_each_head_is_checked_anew():
    reader = HeadReader(GOOD[0] + GOOD[3].replace(b"1.0", b"2.0"), max_bytes=300, max_headers=10)
    assert reader.take()
    with pytest.raises(Refused, match="505"):
        reader.take()


@given(st.lists(st.sampled_from(GOOD), min_size=1, max_size=4))
def test_heads_behind_each_other_come_out_one_by_one(heads: list[bytes]):
    reader = HeadReader(b"".join(heads), max_bytes=300, max_headers=10)
    found = [reader.take() for _ in heads]
    assert [head.raw.count(b"\r\n") for head in found if head] == [head.count(b"\r\n") for head in heads]
    assert reader.rest == b""
    assert reader.take() is None


def test_a_target_with_a_host_is_passed_on_as_a_path():
    head, _ = read(iter([GOOD[2]]))
    assert isinstance(head, Head)
    assert (head.target, head.raw) == ("/y", b"GET /y HTTP/1.1\r\nhost: x\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 282 + b" HTTP/1.0\r\n\r\n", None),
        (b"GET /" + b"a" * 283 + b" HTTP/1.0\r\n\r\n", 431),
        (b"A" * 300, None),
        (b"A" * 301, 414),
        (b"GET / HTTP/1.0\r\n" + b"A" * 284, None),
        (b"GET / HTTP/1.0\r\n" + b"A" * 285, 431),
        (b"GET / HTTP/1.0\r\n" + b"X: 1\r\n" * 10 + b"\r\n", None),
        (b"GET / HTTP/1.0\r\n" + b"X: 1\r\n" * 11 + b"\r\n", 431),
    ],
)
def test_the_limits_are_where_they_are_said_to_be(data: bytes, status: int | None):
    found, _ = read(iter([data]))
    assert (found[0] if isinstance(found, tuple) else None) == status


@given(st.integers(400, 599), st.text(max_size=40))
def test_an_answer_to_what_is_refused_is_one_whole_answer(status: int, why: str):
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(refused_bytes(Refused(status, why, "kind", ((b"Retry-After", b"1"),))))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    assert response.status_code == status
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    told = json.loads(body.decode("ascii"))
    assert (told["type"], told["status"], told["detail"]) == ("about:blank", status, why)
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data[0] == b""


def asked(*headers: tuple[bytes, bytes], secure: bool = False) -> Upgrade:
    return Upgrade("/", "/", "", ((b"host", b"Example.org:8080"), *headers), (), "peer", secure)


@pytest.mark.parametrize(
    ("origin", "secure", "is_same"),
    [
        (None, False, True),  # no browser
        (b"http://example.org:8080", False, True),
        (b"http://EXAMPLE.org:8080", False, True),
        (b"https://example.org:8080", False, False),
        (b"https://example.org:8080", True, True),
        (b"http://example.org", False, False),
        (b"http://evil.example", False, False),
        (b"http://example.org:8080.evil.example", False, False),
        (b"null", False, False),
        (b"https://app.example", False, True),
        (b"HTTPS://app.example", False, True),
    ],
)
def test_pages_of_other_origins_are_known(origin: bytes | None, secure: bool, is_same: bool):
    headers = () if origin is None else ((b"origin", origin),)
    assert same_origin(asked(*headers, secure=secure), ["https://App.example"]) is is_same
