"""HTTP requests to an ASGI application: what is handed on, what is sent back, and what ends them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lmos_actors.transport import MemoryNetwork
from tests.transport.doors import END, GET, OK, chunked, open_door, post

if TYPE_CHECKING:
    from starlette.requests import Request


async def test_the_scope_says_exactly_what_is_asked():
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await send(OK)
        await send(END)

    async with open_door(app=app) as door:
        client = await door.knock()
        await client.send(
            b"get /a%20b/%E2%82%AC?q=%20&x HTTP/1.1\r\n"
            b"Host: door\r\nX-Two: 1\r\nx-two:  2 \r\nUpgrade: h2c\r\n\r\n"
        )
        assert (await client.answer())[0] == 200
        sock: Any = client.stream
        assert scopes == [
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.4"},
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": "/a b/€",
                "raw_path": b"/a%20b/%E2%82%AC",
                "query_string": b"q=%20&x",
                "root_path": "",
                "headers": [(b"host", b"door"), (b"x-two", b"1"), (b"x-two", b"2"), (b"upgrade", b"h2c")],
                "client": sock._socket.getsockname(),
                "server": door.address,
                "state": {},
            }
        ]


def starlette() -> Starlette:
    async def thing(request: Request) -> Response:
        return JSONResponse({"name": request.path_params["name"], "q": request.query_params.get("q")})

    async def sums(request: Request) -> Response:
        return JSONResponse(sum(await request.json()))

    async def count(request: Request) -> Response:
        async def numbers() -> Any:
            for n in range(3):
                await trio.sleep(1)
                yield f"{n}\n"

        return StreamingResponse(numbers(), media_type="text/plain")

    async def fails(request: Request) -> Response:
        raise KeyError("bug")

    return Starlette(
        routes=[
            Route("/things/{name}", thing),
            Route("/sums", sums, methods=["POST"]),
            Route("/count", count),
            Route("/fails", fails),
        ]
    )


async def test_starlette_is_served(autojump_clock: Any):
    async with open_door(MemoryNetwork(), app=starlette(), failures=1) as door:
        client = await door.knock()
        await client.send(GET.replace(b"/ ", b"/things/a%20b?q=1 "))
        status, headers, body = await client.answer()
        assert (status, headers["content-type"], body) == (200, "application/json", b'{"name":"a b","q":"1"}')
        await client.send(post(b"[1,2,3]").replace(b"POST /", b"POST /sums"))
        assert (await client.answer())[2] == b"6"
        await client.send(GET.replace(b"/ ", b"/count "))
        assert (await client.answer())[2] == b"0\n1\n2\n"
        await client.send(GET.replace(b"/ ", b"/nowhere "))
        assert (await client.answer())[0] == 404
        await client.send(GET.replace(b"GET /", b"DELETE /count"))
        assert (await client.answer())[0] == 405
        await client.send(GET.replace(b"GET /", b"HEAD /things/x"))
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await client.send(GET.replace(b"/ ", b"/fails "))
        status, _, body = await client.answer()
        assert (status, body) == (500, b"Internal Server Error")
        await client.ended()
        assert repr(door.failures) == "[KeyError('bug')]"
        seen = await door.comes_to_rest()
        assert (seen.requests, seen.failed) == (7, 1)


async def test_requests_in_one_segment_are_answered_in_order():
    async with open_door() as door:
        client = await door.knock()
        await client.send(b"".join(GET.replace(b"/ ", b"/%d " % n) for n in range(100)))
        for n in range(100):
            assert (await client.answer())[2] == b"GET /%d " % n
        assert door.statistics.requests == 100


async def test_a_body_may_come_in_any_pieces_and_the_next_request_behind_it():
    async with open_door() as door:
        client = await door.knock()
        data = (post(b"hello") + GET) * 2 + chunked(b"he", b"llo")
        for start in range(0, len(data), 7):
            await client.send(data[start : start + 7])
        bodies = [(await client.answer())[2] for _ in range(5)]
        assert bodies == [b"POST / hello", b"GET / "] * 2 + [b"POST / hello"]


@pytest.mark.parametrize(
    ("data", "closes"),
    [
        (GET, False),
        (GET.replace(b"door", b"door\r\nConnection: close"), True),
        (GET.replace(b"door", b"door\r\nConnection: keep-alive"), False),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (chunked(b"hello"), True),  # where it ends is a matter of opinion
    ],
    ids=["1.1", "close", "keep-alive", "1.0", "chunked"],
)
async def test_a_connection_is_kept_where_that_is_safe(data: bytes, closes: bool):
    async with open_door() as door:
        client = await door.knock()
        await client.send(data)
        status, headers, _ = await client.answer()
        assert (status, headers.get("connection")) == (200, "close" if closes else None)
        if closes:
            await client.ended()
        else:
            await client.send(GET)
            assert (await client.answer())[2] == b"GET / "


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)])
async def test_what_has_no_body_is_sent_without_one(method: str, status: int):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**OK, "status": status, "headers": [(b"x", b"1")]})
        await send({**END, "body": b"hello", "more_body": True})
        await send(END)

    async with open_door(app=app) as door:
        client = await door.knock()
        for _ in range(2):
            await client.send(GET.replace(b"GET", method.encode()))
            found = await client.until(b"\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 %d " % status)
            assert client.rest == b""


async def test_an_answer_of_unknown_length_is_sent_as_it_comes(autojump_clock: Any):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OK)
        for n in range(3):
            await send({**END, "body": b"%d" % n, "more_body": True})
            await trio.sleep(1)
        await send(END)

    async with open_door(MemoryNetwork(), app=app) as door:
        client = await door.knock()
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        for n in range(3):
            assert await client.until(b"\r\n%d\r\n" % n) == b"1\r\n%d\r\n" % n
            assert trio.current_time() - door.started == n
        assert await client.until(b"\r\n\r\n") == b"0\r\n\r\n"
        old = await door.knock()
        await old.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await old.all()).endswith(b"\r\n\r\n012")


async def test_a_long_answer_is_given_its_time_piece_by_piece(autojump_clock: Any):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OK)
        await send({**END, "body": bytes(300_000)})

    async with open_door(MemoryNetwork(50_000), app=app, write_seconds=5) as door:
        client = await door.knock()
        await client.send(GET)
        size = 0
        while size < 300_000:
            await trio.sleep(1)
            size += len(await client.stream.receive_some(30_000))
        assert trio.current_time() - door.started > 9
        assert (await door.until(lambda now: now.idle == 1)).requests == 1


async def test_a_long_answer_lets_others_have_their_turn(autojump_clock: Any):
    turns, parts = list[str](), 20

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OK)
        for _ in range(parts):
            turns.append("answer")
            await send({**END, "body": b"1", "more_body": True})
        await send(END)

    async def other() -> None:
        while turns.count("answer") < parts:
            turns.append("other")
            await trio.lowlevel.checkpoint()

    async with open_door(MemoryNetwork(), app=app) as door, trio.open_nursery() as nursery:
        client = await door.knock()
        await client.send(GET)
        nursery.start_soon(other)
        assert (await client.answer())[2] == b"1" * parts
        first = turns.index("answer")
        assert turns[first:].count("other") >= parts - 3, (
            "the first goes out at once, the last waits for nobody"
        )


async def test_tasks_of_an_application_may_send_at_once(autojump_clock: Any):
    async def part(send: Any, body: bytes) -> None:
        for _ in range(10):
            await send({**END, "body": body, "more_body": True})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OK)
        async with trio.open_nursery() as nursery:
            for letter in (b"a", b"b"):
                nursery.start_soon(part, send, letter * 1000)
        await send(END)

    async with open_door(MemoryNetwork(1500), app=app) as door:
        client = await door.knock()
        await client.send(GET)
        _, _, body = await client.answer()
        parts = [body[start : start + 1000] for start in range(0, 20_000, 1000)]
        assert sorted(parts) == [b"a" * 1000] * 10 + [b"b" * 1000] * 10


async def test_answers_say_when_they_were_made():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        own = [(b"Date", b"then")] if scope["path"] == "/own" else []
        await send({**OK, "headers": own})
        await send(END)

    when = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)
    async with open_door(app=app, now=lambda: when) as door:
        client = await door.knock()
        for path, date in (("/", "Tue, 01 Jan 2030 12:30:00 GMT"), ("/own", "then"), ("*", None)):
            await client.send(GET.replace(b"/ ", path.encode() + b" "))
            assert (await client.answer())[1]["date"] == (date or "Tue, 01 Jan 2030 12:30:00 GMT")


async def test_a_client_that_does_not_read_stops_the_application(autojump_clock: Any):
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(OK)
        while True:
            await send({**END, "body": bytes(1000), "more_body": True})
            sent += 1

    async with open_door(MemoryNetwork(10_000), app=app, write_seconds=7) as door:
        client = await door.knock()
        await client.send(GET)
        await trio.sleep(6)
        assert sent == 9
        assert len(await client.stream.receive_some(5000)) == 5000
        await trio.sleep(1)
        assert sent == 14
        await trio.sleep(20)  # more than a write may take
        assert sent == 14
        seen = await door.comes_to_rest()
        assert (seen.served, seen.failed) == (1, 0)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_leaves_ends_what_it_asked_for(answered: bool):
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            if answered:
                await send(OK)
                await send({**END, "body": b"1", "more_body": True})
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                assert (await receive())["type"] == "http.request"
                assert (await receive())["type"] == "http.disconnect"
                if not answered:
                    await send(OK)
                with pytest.raises(OSError, match="left"):
                    await send(END)
            ended.set()

    async with open_door(app=app) as door:
        client = await door.knock()
        await client.send(GET)
        if answered:
            await client.until(b"\r\n1\r\n")
        await client.stream.aclose()
        await ended.wait()
        assert (await door.comes_to_rest()).served == 1


async def test_what_is_done_after_the_answer_is_not_cancelled(autojump_clock: Any):
    done = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(OK)
        await send(END)
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        await trio.sleep(5)
        done.set()

    async with open_door(MemoryNetwork(), app=app) as door:
        client = await door.knock()
        await client.send(GET)
        assert (await client.answer())[0] == 200
        await client.stream.aclose()
        await done.wait()


async def test_continue_is_said_when_the_body_is_asked_for():
    async with open_door() as door:
        client = await door.knock()
        head, body = post(b"hello", b"Expect: 100-continue").split(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        await client.send(body)
        assert (await client.answer())[2] == b"POST / hello"
        await client.send(post(b"again", b"Expect: 100-continue"))  # did not wait
        assert (await client.answer())[2] == b"POST / again"


async def answering_at_once(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "status": 403, "headers": [(b"content-length", b"2")]})
    await send({**END, "body": b"no"})


async def test_continue_is_not_said_where_nobody_wants_the_body():
    async with open_door(app=answering_at_once) as door:
        client = await door.knock()
        await client.send(post(b"hello", b"Expect: 100-continue").partition(b"hello")[0])
        status, headers, body = await client.answer()
        assert (status, headers["connection"], body) == (403, "close", b"no")
        await client.ended()
        await client.stream.aclose()


async def test_an_answer_reaches_a_client_whose_body_nobody_read():
    async with open_door(app=answering_at_once) as door:
        client = await door.knock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post(bytes(1_000_000)))
            assert (await client.answer())[2] == b"no"
        await client.stream.aclose()
        assert (await door.comes_to_rest()).served == 1


async def test_who_goes_on_sending_after_its_answer_takes_nobodys_place(autojump_clock: Any):
    async with open_door(
        MemoryNetwork(), app=answering_at_once, max_connections=1, linger_seconds=100
    ) as door:
        for _ in range(2):
            client = await door.knock()
            await client.send(post(b"hello")[:-1])
            assert (await client.answer())[0] == 403


async def test_a_body_that_nobody_reads_waits_with_its_sender(autojump_clock: Any):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(10)
        size = 0
        while (message := await receive())["more_body"]:
            assert len(message["body"]) <= 65536 * 2
            size += len(message["body"])
        size += len(message["body"])
        await send(OK)
        await send({**END, "body": b"%d" % size})

    async with open_door(MemoryNetwork(1000), app=app, body_seconds=1) as door:
        client = await door.knock()
        with trio.move_on_after(5) as late:
            await client.send(post(bytes(1_000_000)))
        assert late.cancelled_caught  # though the time for it has not begun to run
        client = await door.knock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post(bytes(1_000_000)))
            assert (await client.answer())[2] == b"1000000"
