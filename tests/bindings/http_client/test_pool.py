"""Connections of a client over HTTP: those that ended unused, those that only listen, and silent servers."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from lmos_actors import Gap, MailboxFull, OutcomeUnknown
from lmos_actors.bindings import HttpOptions
from lmos_actors.bindings.http_client import HttpStream, _invocations as _web_link_errands
from tests.bindings.http_client.test_invocations import STREAMS
from tests.bindings.web_things import (
    LAMP,
    NOTHING,
    cut,
    described,
    events,
    form,
    lamp,
    never,
    problem,
    say,
    sent,
    sites,
    talk,
)


def peer_of(thing: Any) -> Any:
    return thing._far.peer


async def take(feed: Any, number: int) -> list[Any]:
    with trio.fail_after(10_000):
        return [await feed.receive() for _ in range(number)]


@pytest.mark.parametrize("name", ["fade", "reset"])
async def test_a_connection_that_ended_before_it_was_used_is_not_used(
    autojump_clock: object, name: str
) -> None:
    async with sites("http://lamp", "http://other") as ((site, other), node):
        site.on("GET /td", say({**TWO, "base": "http://other/"}, kind="application/td+json"))
        other.on(f"POST /{name}", NOTHING)
        thing = await node.consume_thing("http://lamp/td")
        await trio.sleep(0.1)
        assert other.connections == 1  # so that it is known whether it is there
        other.hang_up()
        await trio.sleep(1)
        await thing.invoke(name)
        assert (other.connections, other.lines()) == (2, [f"POST /{name}"])


class _Inner:
    def has_news(self) -> bool:
        return True


class _Secured:
    transport_stream = _Inner()


def test_what_has_carried_nothing_over_tls_is_good_for_a_moment() -> None:
    stream = HttpStream(cast("Any", _Secured()))
    stream.idle_since = 5.0
    assert not stream.is_stale(5.5)  # what came may be of TLS alone
    assert stream.is_stale(6.5)
    stream.used = True
    assert stream.is_stale(5.0)


TWO = described(
    actions={"fade": {"forms": [form("fade")]}, "reset": {"idempotent": True, "forms": [form("reset")]}}
)


async def test_those_who_poll_take_no_room_from_those_who_ask(
    autojump_clock: object,
) -> None:
    async with lamp(http=HttpOptions(requests=1, listening=1)) as (site, _, thing):
        site.on("GET /hot", talk(never))
        site.on("GET /level", say(1))
        site.on("GET /level/poll", talk(never))
        async with thing.subscribe("hot"):
            with trio.fail_after(1):
                assert await thing.read("level") == 1
            with pytest.raises(MailboxFull):
                async with thing.observe("level"):
                    pytest.fail("it is one too many")


async def test_streams_beyond_those_that_may_be_heard_are_refused(
    autojump_clock: object,
) -> None:
    async with lamp(STREAMS, http=HttpOptions(listening=1)) as (site, _, thing):
        site.on("POST /count", events(sent(1)))
        async with thing.stream("count") as items:
            assert await anext(items) == 1
            async with thing.stream("count") as more:
                with pytest.raises(MailboxFull):
                    await anext(more)


async def test_a_stream_that_fell_silent_after_signs_of_life_is_over(autojump_clock: object) -> None:
    async with lamp(STREAMS) as (site, _, thing):
        site.on("POST /count", events(sent(1), ":\n\n"))
        async with thing.stream("count") as items:
            assert await anext(items) == 1
            with pytest.raises(OutcomeUnknown, match="nothing has come"), trio.fail_after(100):
                await anext(items)


@pytest.mark.parametrize("name", ["  4 ", " ", "5\u00e9"])
async def test_any_id_may_be_the_last(autojump_clock: object, name: str) -> None:
    async with lamp() as (site, _, thing):
        first = events(f"id:{name}\ndata: 1\n\n", then=cut)
        site.on("GET /burnt", first, events(sent(2)))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 2) == [1, 2]
        assert site.asked[-1].headers.get("last-event-id", "") == name.strip()


async def test_a_server_says_when_those_who_listen_may_come_back(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on(
            "GET /burnt",
            events(sent(1), then=cut),
            say(None, "503 Service Unavailable", Retry_After="300"),
            problem("429 Too Many Requests", retryIn=300),
            events(sent(2)),
        )
        async with thing.subscribe("burnt", gaps=True) as feed:
            before = trio.current_time()
            assert await take(feed, 3) == [1, Gap("connection lost"), 2]
            assert 600 <= trio.current_time() - before < 700


async def test_no_server_sends_those_who_listen_away_for_ever(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events("retry: 999999999\n", sent(1), then=cut), events(sent(2)))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 2) == [1, 2]


async def test_one_way_messages_go_on_after_one_that_a_mistake_here_has_lost(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lamp() as (site, node, thing):
        site.on("POST /fade", NOTHING)
        failures: list[BaseException] = []
        monkeypatch.setattr(peer_of(thing)._node, "failed", failures.append)
        with monkeypatch.context() as patched:
            patched.setattr(_web_link_errands.HttpInvocation, "run", _mistaken)
            await thing.tell("fade")
            await trio.sleep(1)
        await thing.tell("fade")
        await trio.sleep(1)
        assert site.lines() == ["POST /fade"]
        assert len(failures) == len(node.dead_letters) == 1


async def _mistaken(*_: object) -> None:
    raise LookupError("a mistake")


async def test_places_that_nobody_asks_any_more_are_forgotten(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.bindings.http_client._pool.PLACES", 1)
    async with sites("http://a", "http://b", "http://c") as (made, node):
        for site, name in zip(made, "abc", strict=True):
            thing = {**LAMP, "base": f"http://{name}/", "id": f"urn:example:{name}"}
            site.on("GET /td", say(thing, kind="application/td+json"))
            site.on("GET /on", say(name == "a"))
        things: list[Any] = []
        for name in "abc":
            things.append(await node.consume_thing(f"http://{name}/td"))
            assert len(peer_of(things[0])._pool._places) == 1
            await trio.sleep(60)
        for thing in things:
            assert await thing.read("on") is (thing is things[0])
        assert len(peer_of(things[0])._pool._places) == 3  # where something is kept


async def test_a_run_that_began_when_nobody_waited_any_more_is_ended(autojump_clock: object) -> None:
    slow = described(
        base="http://lamp/",
        actions={
            "fade": {"forms": [form("fade", "invokeaction"), form("fade/7", "queryaction", "cancelaction")]}
        },
    )

    async def late(stream: Any) -> None:
        await trio.sleep(1)
        await stream.send_all(
            say({"status": "running", "href": "/fade/7"}, "201 Created", Location="/fade/7")
        )

    async with lamp(slow) as (site, _, thing):
        site.on("POST /fade", talk(late))
        site.on("DELETE /fade/7", NOTHING)
        with trio.move_on_after(0.5):
            async with thing.begin("fade"):
                await trio.sleep_forever()
        await trio.sleep(2)
        assert site.lines() == ["POST /fade", "DELETE /fade/7"]
        site.on("POST /fade", talk(never))
        with trio.move_on_after(0.5):
            async with thing.begin("fade"):
                await trio.sleep_forever()
        await trio.sleep(10)
        assert site.open <= 1  # that was given up


@pytest.mark.parametrize("name", ["rung", "knocked"])
async def test_an_event_may_have_no_data(autojump_clock: object, name: str) -> None:
    door = described(
        base="http://lamp/",
        events={
            "rung": {"forms": [form("rung", "subscribeevent", subprotocol="sse")]},
            "knocked": {"forms": [form("knocked", "subscribeevent", subprotocol="longpoll")]},
        },
    )
    async with lamp(door) as (site, _, thing):
        site.on("GET /rung", events("data:\n\n", sent(2)))
        site.on("GET /knocked", say(), say(2), talk(never))
        async with thing.subscribe(name) as feed:
            assert await take(feed, 2) == [None, 2]
