"""Deadlines, places, and endings of a front door, on virtual time over streams in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import ConfigError
from lmos_actors.transport import (
    Accept,
    Connection,
    DoorOptions,
    Endpoint,
    FrontDoor,
    MemoryNetwork,
    Refuse,
    Upgrade,
)
from tests.transport.doors import (
    CLOSE,
    END,
    GET,
    HELLO,
    OK,
    Door,
    adds_up,
    echo,
    hello,
    open_door,
    upgrade,
)


def never(error: BaseException) -> None:
    pytest.fail(f"reported: {error!r}")


def since(door: Door) -> float:
    return round(trio.current_time() - door.started, 2)


async def test_a_silent_peer_is_closed_after_its_time(autojump_clock: Any):
    async with open_door(MemoryNetwork(), head_seconds=3) as door:
        client = await door.knock()
        await client.ended()
        assert since(door) == 3
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"silent": 1}


async def test_a_slow_head_is_answered_after_its_time(autojump_clock: Any):
    async with open_door(MemoryNetwork(), head_seconds=3) as door:
        client = await door.knock()
        for byte in GET[:3]:
            await client.send(bytes([byte]))
            await trio.sleep(0.9)
        status, _, body = await client.answer()
        assert (status, since(door)) == (408, 3)
        assert b"3 s" in body
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"slow head": 1}


async def test_between_two_requests_there_is_another_time(autojump_clock: Any):
    async with open_door(MemoryNetwork(), head_seconds=3, keep_alive_seconds=20) as door:
        client, slow = await door.knock(), await door.knock()
        for each in (client, slow):
            await each.send(GET)
            await each.answer()
        await door.until(lambda now: now.idle == 2)
        await trio.sleep(15 - since(door))
        await slow.send(GET[:5])
        assert (await slow.answer())[0] == 408
        assert since(door) == 18
        await client.ended()
        assert since(door) == 20
        await slow.stream.aclose()
        seen = await door.comes_to_rest()
        assert (seen.served, seen.refused) == (1, {"slow head": 1})


async def test_a_head_that_has_begun_behind_another_has_the_time_of_a_head(autojump_clock: Any):
    async with open_door(MemoryNetwork(), head_seconds=3, keep_alive_seconds=20) as door:
        client = await door.knock()
        await client.send(GET + GET[:5])
        assert (await client.answer())[0] == 200
        assert (await client.answer())[0] == 408
        assert since(door) == 3


async def test_a_peer_that_reads_no_refusal_is_not_waited_for(autojump_clock: Any):
    async with open_door(MemoryNetwork(10), linger_seconds=2) as door:
        client = await door.knock()
        await client.send(b"nonsense\r\n")
        await door.until(lambda now: now.accepted == 1 and not now.open)
        assert 2 <= since(door) < 5
        await door.serves_the_next()


async def test_a_peer_that_says_more_after_its_refusal_is_not_listened_to_for_long(autojump_clock: Any):
    async with open_door(MemoryNetwork(), linger_seconds=2) as door:
        client = await door.knock()
        with pytest.raises(trio.BrokenResourceError):
            await client.send(b"nonsense\r\n" * 1_000_000)
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"malformed": 1}


async def test_a_peer_that_never_reads_the_101_is_not_waited_for(autojump_clock: Any):
    async with open_door(MemoryNetwork(10)) as door:
        client = await door.knock()
        await client.send(upgrade())
        await door.until(lambda now: now.accepted == 1 and not now.open)
        assert since(door) < 20
        await door.serves_the_next()
        assert (await door.comes_to_rest()).left == 1


async def test_the_longest_half_open_gives_way(autojump_clock: Any):
    async with open_door(MemoryNetwork(), max_half_open=2) as door:
        first, second = await door.knock(), await door.knock()
        await second.send(GET[:5])
        await door.until(lambda now: now.half_open == 2)
        third = await door.knock()
        await first.ended()
        await second.send(GET[5:])
        assert (await second.answer())[0] == 200
        await third.send(GET)
        assert (await third.answer())[0] == 200
        assert door.statistics.refused == {"half open": 1}


async def test_with_all_places_taken_there_is_503(autojump_clock: Any):
    async with open_door(MemoryNetwork(), max_connections=2) as door:
        busy = [await door.knock() for _ in range(2)]
        for client in busy:
            await client.send(upgrade())
            await client.until(b"\r\n\r\n")
        for _ in range(3):
            client = await door.knock()
            status, headers, _ = await client.answer()
            assert (status, headers["retry-after"]) == (503, "1")
            await client.ended()
        await busy[0].send(CLOSE)
        await door.until(lambda now: now.served == 1)
        client = await door.knock()
        await client.send(GET)
        assert (await client.answer())[0] == 200
        assert (await door.until(lambda now: now.open == 2)).refused == {"no place": 3}


async def test_who_is_silent_gives_its_place_to_who_comes(autojump_clock: Any):
    async with open_door(MemoryNetwork(), max_connections=3) as door:
        idle = await door.knock()
        await idle.send(GET)
        await idle.answer()
        busy, silent = await door.knock(), await door.knock()
        await busy.send(upgrade())
        await busy.until(b"\r\n\r\n")
        for gone in (idle, silent):  # first who has been served, then who has not
            client = await door.knock()
            await client.send(upgrade())
            await client.until(b"\r\n\r\n")
            await gone.ended()
        assert (await (await door.knock()).answer())[0] == 503
        assert since(door) < 1
        await busy.send(HELLO)
        assert await busy.take(7) == b"\x81\x05hello"
        seen = await door.until(lambda now: now.open == 3)
        assert (seen.served, seen.refused) == (1, {"no place": 2})


async def test_those_who_take_long_to_read_their_refusal_are_bounded_too(autojump_clock: Any):
    async with open_door(MemoryNetwork(), max_connections=1, max_half_open=2, linger_seconds=100) as door:
        busy = await door.knock()
        await busy.send(upgrade())
        await busy.until(b"\r\n\r\n")
        away = [await door.knock() for _ in range(10)]
        seen = await door.until(lambda now: now.open == 3)
        assert seen.refused == {"no place": 8}
        assert (await away[-1].answer())[0] == 503


async def failing(connection: Connection) -> None:
    raise ValueError("bug")


async def failing_twice(connection: Connection) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(failing, connection)
        nursery.start_soon(failing, connection)


async def failing_later(connection: Connection) -> None:
    await echo(connection)
    raise ValueError("bug")


@pytest.mark.parametrize("serve", [failing, failing_twice, failing_later])
async def test_what_a_connection_raises_is_reported_once_and_ends_it(serve: Any, autojump_clock: Any):
    route = {"/ws": echo, "/bad": serve}
    async with open_door(
        MemoryNetwork(), route=lambda asked: Accept(None, route[asked.path]), failures=3
    ) as door:
        other = await door.knock()
        await other.send(upgrade())
        await other.until(b"\r\n\r\n")
        for _ in range(3):
            client = await door.knock()
            await client.send(upgrade("/bad") + CLOSE)
            await client.all()
        await door.serves_the_next()
        await other.send(HELLO)
        assert await other.take(7) == b"\x81\x05hello"
        assert (await door.until(lambda now: now.open == 1)).failed == 3


async def test_a_route_that_raises_is_answered_for(autojump_clock: Any):
    def route(asked: Upgrade) -> Accept | Refuse:
        raise KeyError(asked.path)

    async with open_door(MemoryNetwork(), route=route, failures=1) as door:
        client = await door.knock()
        await client.send(upgrade("/x"))
        status, _, body = await client.answer()
        assert (status, b"/x" in body) == (500, False)
        assert repr(door.failures) == "[KeyError('/x')]"
        await client.stream.aclose()
        assert (await door.comes_to_rest()).failed == 1


async def test_the_route_sees_all_of_the_request(autojump_clock: Any):
    seen: list[Upgrade] = []

    def route(asked: Upgrade) -> Accept | Refuse:
        seen.append(asked)
        return Accept("b", echo, ((b"LMOS-Extensions", b"acks"),))

    async with open_door(MemoryNetwork(), route=route) as door:
        client = await door.knock()
        protocols = b"13\r\nSec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Protocol: c\r\nOrigin: https://x"
        await client.send(upgrade("/agents/a%20b?x=%20").replace(b"13", protocols))
        found = await client.until(b"\r\n\r\n")
        assert b"Sec-WebSocket-Protocol: b\r\n" in found
        assert b"LMOS-Extensions: acks\r\n" in found
        (asked,) = seen
        assert (asked.target, asked.path, asked.query) == ("/agents/a%20b?x=%20", "/agents/a b", "x=%20")
        assert (asked.offered, asked.secure) == (("a", "b", "c"), False)
        assert dict(asked.headers)[b"origin"] == b"https://x"
        assert asked.peer == "door:1"


async def test_a_connection_that_nobody_runs_is_closed(autojump_clock: Any):
    async def serve(connection: Connection) -> None:
        pass

    async with open_door(MemoryNetwork(), route=lambda _: Accept(None, serve)) as door:
        client = await door.knock()
        await client.send(upgrade())
        await client.until(b"\r\n\r\n")
        await client.ended()
        assert (await door.comes_to_rest()).served == 1


async def test_serve_ends_when_it_accepts_no_more_and_the_last_has_gone(autojump_clock: Any):
    network = MemoryNetwork()
    listener = await network.listen(Endpoint(False, "door", 80))
    front = FrontDoor(
        listener,
        route=lambda _: Accept(None, echo),
        app=hello,
        on_failure=never,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(front.serve)
        door = Door(network, Endpoint(False, "door", 80), front)
        busy, idle, late = await door.knock(), await door.knock(), await door.knock()
        await busy.send(upgrade())
        await busy.until(b"\r\n\r\n")
        await idle.send(GET)
        await idle.answer()
        await door.until(lambda now: now.idle == now.half_open == 1)
        front.stop_accepting()
        await idle.ended()
        await late.send(GET * 2)
        status, headers, _ = await late.answer()
        assert (status, headers["connection"]) == (200, "close")
        await late.ended()
        with pytest.raises(Exception, match="nothing is listening"):
            await door.knock()
        await busy.send(HELLO)
        assert await busy.take(7) == b"\x81\x05hello"
        assert nursery.child_tasks
        await busy.send(CLOSE)
    seen = front.statistics()
    adds_up(seen)
    assert (seen.open, seen.served, seen.accepted) == (0, 3, 3)


async def test_who_is_answered_when_it_accepts_no_more_is_waited_for_no_longer(autojump_clock: Any):
    going_on = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/parts":  # the head is on its way before the door closes, of the other behind it
            await send(OK)
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await going_on.wait()
        await send(END) if scope["path"] == "/parts" else await hello(scope, receive, send)

    network = MemoryNetwork()
    listener = await network.listen(Endpoint(False, "door", 80))
    front = FrontDoor(listener, route=lambda _: Accept(None, echo), app=app, on_failure=never)
    async with trio.open_nursery() as nursery:
        await nursery.start(front.serve)
        door = Door(network, Endpoint(False, "door", 80), front)
        parts, whole, more = await door.knock(), await door.knock(), await door.knock()
        await parts.send(GET.replace(b"/", b"/parts", 1))
        await whole.send(GET)
        await more.send(GET.replace(b"/", b"/parts", 1) + GET)
        await door.until(lambda now: now.requests == 3)
        front.stop_accepting()
        going_on.set()
        _, headers, body = await parts.answer()
        assert ("connection" in headers, body) == (False, b"a")
        await parts.ended()
        _, headers, _ = await more.answer()
        assert "connection" not in headers
        for client in (whole, more):
            _, headers, _ = await client.answer()
            assert headers["connection"] == "close"
            await client.ended()
    assert since(door) < 1
    assert (front.statistics().open, front.statistics().served) == (0, 3)


async def test_cancelled_it_closes_every_connection_before_it_ends(autojump_clock: Any):
    cut = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cut.set()

    network = MemoryNetwork()
    listener = await network.listen(Endpoint(False, "door", 80))
    front = FrontDoor(
        listener,
        route=lambda _: Accept(None, echo),
        app=app,
        on_failure=never,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(front.serve)
        door = Door(network, Endpoint(False, "door", 80), front)
        clients = [await door.knock() for _ in range(3)]
        await clients[0].send(upgrade())
        await clients[0].until(b"\r\n\r\n")
        await clients[1].send(GET)
        await door.until(lambda now: now.requests == 1)
        nursery.cancel_scope.cancel()
    assert cut.is_set()
    seen = front.statistics()
    adds_up(seen)
    assert (seen.open, seen.served, seen.left) == (0, 2, 1)
    assert await clients[0].all() == b"\x88\x02\x03\xe9"
    for client in clients[1:]:
        await client.ended()
    with pytest.raises(Exception, match="nothing is listening"):
        await door.knock()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("head_seconds", 0),
        ("tls_seconds", -1.0),
        ("max_headers", 1.5),
        ("max_connections", 0),
        ("linger_seconds", float("inf")),
        ("body_seconds", float("nan")),
        ("max_half_open", True),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(name: str, value: Any):
    with pytest.raises(ConfigError, match=f"DoorOptions.{name}"):
        DoorOptions(**{name: value})
