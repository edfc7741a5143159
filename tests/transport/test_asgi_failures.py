"""HTTP requests that go wrong: bodies that are none, and applications that fail."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from lmos_actors.transport import MemoryNetwork
from tests.transport.doors import END, GET, OK, chunked, open_door, post

BAD_BODIES = {
    "over the limit": (chunked(bytes(600), bytes(500)), 413, "1000", "too large"),
    "a bad length of a chunk": (
        chunked(b"x").replace(b"\r\n1\r\n", b"\r\n-1\r\n"),
        400,
        "framed",
        "malformed",
    ),
    "a chunk longer than it says": (chunked(b"x").replace(b"x\r\n", b"xy\r\n"), 400, "framed", "malformed"),
    "a chunk without its end": (chunked(b"x").replace(b"x\r\n", b"x\n\n"), 400, "framed", "malformed"),
    "a body that never comes": (post(b"hello")[:-1], 408, "2 s", "slow body"),
    "chunks that never come": (chunked(b"hello")[:-3], 408, "2 s", "slow body"),
    "an endless line in chunks": (chunked()[:-5] + b"1;" + b"x" * 20000, 400, "framed", "malformed"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
async def test_a_bad_body_is_refused(case: str, autojump_clock: Any):
    data, status, word, kind = BAD_BODIES[case]
    async with open_door(MemoryNetwork(), max_body_bytes=1000, body_seconds=2) as door:
        client = await door.knock()
        await client.send(data)
        found, headers, body = await client.answer()
        assert (found, headers["connection"]) == (status, "close")
        assert word in body.decode()
        await client.ended()
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {kind: 1}


async def test_a_body_that_drips_is_given_its_time_in_all(autojump_clock: Any):
    async with open_door(MemoryNetwork(), body_seconds=10) as door:
        client = await door.knock()
        await client.send(post(bytes(20)).partition(b"\0")[0])
        with suppress(trio.BrokenResourceError):
            for _ in range(20):
                await trio.sleep(1.1)
                await client.send(b"\0")
        # and a moment to read the answer
        assert trio.current_time() - door.started == pytest.approx(11.6, abs=0.6)
        assert (await door.comes_to_rest()).refused == {"slow body": 1}


async def test_a_client_that_leaves_in_its_body_has_left():
    async with open_door() as door:
        for data in (post(b"hello")[:-1], chunked(b"hello")[:-2]):
            client = await door.knock()
            await client.send(data)
            await client.stream.aclose()
        assert (await door.comes_to_rest()).served == 2


async def returning(scope: Any, receive: Any, send: Any) -> None:
    pass


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("bug")


async def raising_many(scope: Any, receive: Any, send: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raising, scope, receive, send)
        nursery.start_soon(raising, scope, receive, send)


async def body_first(scope: Any, receive: Any, send: Any) -> None:
    await send(END)


async def two_starts(scope: Any, receive: Any, send: Any) -> None:
    await send(OK)
    await send(OK)


async def trailers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.trailers", "headers": []})


async def early_status(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "status": 103})


async def split_header(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "headers": [(b"x", b"a\r\nSet-Cookie: b")]})


async def too_much(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "headers": [(b"content-length", b"2")]})
    await send({**END, "body": b"hello"})


async def too_little(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "headers": [(b"content-length", b"9")]})
    await send({**END, "body": b"hello"})


@pytest.mark.parametrize(
    "app",
    [
        returning,
        raising,
        raising_many,
        body_first,
        two_starts,
        trailers,
        early_status,
        split_header,
        too_much,
        too_little,
    ],
)
async def test_an_application_that_fails_is_answered_for_and_reported_once(app: Any):
    async with open_door(app=app, failures=1) as door:
        client = await door.knock()
        await client.send(GET)
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (500, "close")
        assert b"bug" not in body
        await client.ended()
        await client.stream.aclose()
        seen = await door.comes_to_rest()
        assert (seen.failed, seen.served) == (1, 0)


async def half_way(scope: Any, receive: Any, send: Any) -> None:
    await send(OK)
    await send({**END, "body": b"1", "more_body": True})
    raise ValueError("bug")


async def half_done(scope: Any, receive: Any, send: Any) -> None:
    await send(OK)
    await send({**END, "body": b"1", "more_body": True})


async def more_than_all(scope: Any, receive: Any, send: Any) -> None:
    await send({**OK, "headers": [(b"content-length", b"1")]})
    await send({**END, "body": b"1"})
    await send(END)


@pytest.mark.parametrize("app", [half_way, half_done, more_than_all])
async def test_an_application_that_fails_in_its_answer_ends_the_connection(app: Any):
    async with open_door(app=app, failures=1) as door:
        client = await door.knock()
        await client.send(GET * 2)
        found = await client.all()
        assert found.count(b"HTTP/1.1 ") == 1
        assert not found.endswith(b"0\r\n\r\n")
        assert (await door.comes_to_rest()).failed == 1


async def test_an_application_that_wants_to_end_the_program_does():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raising, scope, receive, send)
            raise KeyboardInterrupt

    reported: list[BaseException] = []

    async def ask() -> None:
        nonlocal reported
        async with open_door(app=app) as door:
            reported = door.failures
            client = await door.knock()
            await client.send(GET)
            await client.all()
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await ask()
    assert caught.group_contains(KeyboardInterrupt)
    assert not caught.group_contains(ValueError)
    assert len(reported) <= 1


async def sending_on(scope: Any, receive: Any, send: Any) -> None:
    await send(OK)
    while True:
        await send({**END, "body": bytes(1000), "more_body": True})


async def sending_on_shielded(scope: Any, receive: Any, send: Any) -> None:
    with trio.CancelScope(shield=True):
        await sending_on(scope, receive, send)


async def sending_on_from_tasks(scope: Any, receive: Any, send: Any) -> None:
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sending_on, scope, receive, send)
            nursery.start_soon(trio.sleep_forever)


async def minding_errors(scope: Any, receive: Any, send: Any) -> None:
    try:
        await sending_on(scope, receive, send)
    except OSError as error:
        raise ValueError("the client's leaving was made a failure") from error


@pytest.mark.parametrize("app", [sending_on, sending_on_shielded, sending_on_from_tasks, minding_errors])
@pytest.mark.parametrize("leaves", [True, False])
async def test_that_a_client_leaves_is_no_failure(app: Any, leaves: bool, autojump_clock: Any):
    async with open_door(MemoryNetwork(5000), app=app, write_seconds=2) as door:
        client = await door.knock()
        await client.send(GET)
        await trio.sleep(1)
        if leaves:
            await client.stream.aclose()
        await door.until(lambda now: now.accepted == 1 and not now.open)
        assert (await door.comes_to_rest()).served == 1
