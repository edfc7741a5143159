"""One exchange of HTTP: what is sent, what is read, what is shown of it, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ConfigError
from lmos_actors.conformance.wire import Unreachable, exchange, read_json
from lmos_actors.transport import MemoryNetwork, TcpNetwork

from .pages import SILENCE, Page, described, serving

if TYPE_CHECKING:
    from lmos_actors.conformance.card import Traffic

LONGEST = 4 << 20  # bytes of an answer

HERE = "http://thing:80"


async def test_an_answer_has_status_headers_and_body(autojump_clock) -> None:
    async with serving({f"{HERE}/a?b=c": described({"x": 1}, "Application/JSON; charset=utf-8")}) as pages:
        answer = await exchange(pages.network, "GET", "http://thing/a?b=c", patience=2)
    assert answer.status == 200
    assert answer.json() == {"x": 1}
    assert answer.media_type == "application/json"
    assert answer.header("CONTENT-LENGTH") == "8"
    assert answer.header("location") is None
    assert pages.asked[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: thing\r\n")


async def test_a_body_and_headers_are_sent(autojump_clock) -> None:
    async with serving({f"{HERE}/p": Page(status=204)}) as pages:
        sent = [(b"Authorization", b"Bearer sesame"), ("Content-Type", "application/json")]
        answer = await exchange(pages.network, "PUT", "ws://thing/p", headers=sent, body=b"42", patience=2)
    assert (answer.status, answer.body) == (204, b"")
    assert b"Authorization: Bearer sesame\r\n" in pages.asked[0]
    assert b"Content-Length: 2\r\n" in pages.asked[0]
    assert pages.asked[0].endswith(b"\r\n\r\n42")


async def test_the_log_shows_no_secrets(autojump_clock) -> None:
    told: list[Traffic] = []
    page = Page(b'{"x": 1}', headers=(("Content-Type", "application/json"), ("Set-Cookie", "k=secret2")))
    async with serving({f"{HERE}/": page}) as pages:
        headers = [("Authorization", "Bearer secret1"), ("X-Key", "secret3"), ("Accept", "text/plain")]
        await exchange(
            pages.network, "POST", HERE, headers=headers, body=b"7", patience=2, record=told.append
        )
    assert [(each.kind, each.sent, each.connection, each.size) for each in told] == [
        ("http", True, 0, 1),
        ("http", False, 0, 8),
    ]
    assert told[0].text.startswith("POST /\n")
    assert "Authorization: …" in told[0].text
    assert "Accept: text/plain" in told[0].text
    assert told[0].text.endswith("\n\n7")
    assert told[1].text.startswith("200\n")
    assert told[1].text.endswith('\n\n{"x": 1}')
    assert not any("secret" in each.text for each in told)


async def test_a_long_body_is_shown_in_part(autojump_clock) -> None:
    told: list[Traffic] = []
    async with serving({f"{HERE}/": Page(b"x" * 100_000)}) as pages:
        await exchange(pages.network, "GET", HERE, patience=2, record=told.append)
    assert len(told[1].text) == 2000
    assert told[1].size == 100_000


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (SILENCE, "no answer within 2 s (--patience"),
        (Page(raw=b""), "it closed the connection without an answer"),
        (Page(raw=b"+PONG\r\n\r\n"), "what it answers is no HTTP"),
        (Page(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"), "what it answers is no HTTP"),
        (Page(b"x" * (LONGEST + 1)), f"its answer is longer than {LONGEST} bytes"),
    ],
    ids=["silent", "gone", "no HTTP", "cut", "long"],
)
async def test_what_is_no_answer_is_unreachable(page, why, autojump_clock) -> None:
    async with serving({f"{HERE}/": page}) as pages:
        with pytest.raises(Unreachable) as caught:
            await exchange(pages.network, "GET", HERE, patience=2)
    assert caught.value.url == HERE
    assert why in caught.value.why


async def test_an_answer_may_be_as_long_as_the_limit(autojump_clock) -> None:
    async with serving({f"{HERE}/": Page(b"x" * LONGEST)}) as pages:
        assert len((await exchange(pages.network, "GET", HERE, patience=2)).body) == LONGEST


async def test_informational_answers_are_passed_over(autojump_clock) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    async with serving({f"{HERE}/": Page(raw=raw)}) as pages:
        assert (await exchange(pages.network, "GET", HERE, patience=2)).status == 204


async def test_a_switch_of_protocols_is_an_answer(autojump_clock) -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    headers = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
    async with serving({f"{HERE}/": Page(raw=raw)}) as pages:
        assert (await exchange(pages.network, "GET", HERE, headers=headers, patience=2)).status == 101


async def test_nobody_there(autojump_clock) -> None:
    with pytest.raises(Unreachable, match="http://nobody/: nothing is listening there"):
        await exchange(MemoryNetwork(), "GET", "http://nobody/", patience=2)


async def test_an_invalid_header_is_reported_without_its_value(autojump_clock) -> None:
    async with serving({f"{HERE}/": Page()}) as pages:
        with pytest.raises(ConfigError) as caught:
            await exchange(pages.network, "GET", HERE, headers=[("A", "secret\n")], patience=2)
    assert "cannot be sent: Illegal header value" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_over_a_real_socket() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(described([1]).written())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        port = listeners[0].socket.getsockname()[1]
        found = await exchange(TcpNetwork(), "GET", f"http://127.0.0.1:{port}/", patience=10)
        nursery.cancel_scope.cancel()
    assert found.json() == [1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xff", "UTF-8"),
        ("{", "Expecting"),
        ("NaN", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the name 'c' stands twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_is_read_strictly(text: Any, why) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(text)
