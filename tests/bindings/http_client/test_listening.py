"""Things that speak only HTTP, listened to: events as they are sent, long poll, breaks, and bad streams."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentUnavailable,
    Event,
    Gap,
    MailboxFull,
    NotAllowed,
    NotFound,
    Property,
    Ref,
    event,
    prop,
)
from lmos_actors.bindings import HttpOptions
from lmos_actors.bindings.http_client._sse import EventReader, SentEvent
from lmos_actors.bindings.http_client._stream import BadAnswer
from lmos_actors.errors import Forbidden, RemoteProtocolError, Unauthorized
from tests.bindings.web_things import (
    LAMP,
    NOTHING,
    STREAM,
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


async def take(feed: Any, number: int) -> list[Any]:
    found = []
    with trio.fail_after(1000):
        for _ in range(number):
            found.append(await feed.receive())
    return found


# ---- events as they are sent


async def test_a_property_is_observed_from_its_present_value_on(autojump_clock: object) -> None:
    async def later(stream: Any) -> None:
        for value in (True, False):
            await trio.sleep(1)
            await stream.send_all(f"event: on\ndata: {str(value).lower()}\n\n".encode())
        await never(stream)

    async with lamp() as (site, _, thing):
        site.on("GET /on", say(False))
        site.on("GET /on/watch", events(then=later))
        async with thing.observe("on") as feed:
            assert await take(feed, 3) == [False, True, False]
            assert site.lines() == ["GET /on/watch", "GET /on"]
            assert site.last("GET /on/watch").headers["accept"].startswith("text/event-stream")
        await trio.sleep(1)
        assert site.open <= 1  # what was listened to is closed


async def test_events_are_taken_whatever_they_are_called(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(": hello\n\n", sent("a"), sent("b", "burnt", "7"), "data:\n\n"[:-1]))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 2) == ["a", "b"]


async def test_many_listen_by_one_stream_and_latecomers_get_the_last_value(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True))
        site.on("GET /on/watch", events())
        async with thing.observe("on") as first, thing.observe("on") as second:
            assert await take(first, 1) == await take(second, 1) == [True]
            assert site.lines().count("GET /on/watch") == 1
        await trio.sleep(1)
        async with thing.observe("on") as third:
            assert await take(third, 1) == [True]
            assert site.lines().count("GET /on/watch") == 2


async def test_a_stream_that_ends_is_asked_for_again_after_the_last_event(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on(
            "GET /burnt",
            events(sent("a", id="4"), "retry: 5000\n\n", then=cut),
            say(None, "503 Service Unavailable"),
            talk(cut),
            events(sent("b", id="5"), "data: half"),
        )
        async with thing.subscribe("burnt", gaps=True) as feed:
            before = trio.current_time()
            assert await take(feed, 3) == ["a", Gap("connection lost"), "b"]
            assert trio.current_time() - before >= 5
        asked = [each for each in site.asked if each.target == "/burnt"]
        assert [each.headers.get("last-event-id") for each in asked] == [None, "4", "4", "4"]


async def test_the_last_event_is_known_after_a_stream_that_brought_none(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        first, second = events(sent("a", id="4"), then=cut), events("id: 5\x07\n\n", then=cut)
        site.on("GET /burnt", first, second, events(sent("b")))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 2) == ["a", "b"]
        assert [each.headers.get("last-event-id") for each in site.asked] == [None, "4", "4"]


async def test_an_observed_property_is_given_anew_after_a_break(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True), say(False))
        site.on("GET /on/watch", events(then=cut), events())
        async with thing.observe("on", gaps=True) as feed:
            assert await take(feed, 3) == [True, Gap("connection lost"), False]


async def test_a_stream_that_fell_silent_after_signs_of_life_is_broken(
    autojump_clock: object,
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(":\n\n"), events(sent("there")))
        async with thing.subscribe("burnt", gaps=True) as feed:
            assert await take(feed, 2) == [Gap("connection lost"), "there"]
            assert 60 <= trio.current_time() < 70


async def test_a_stream_without_signs_of_life_may_be_silent(autojump_clock: object) -> None:
    async def much_later(stream: Any) -> None:
        await trio.sleep(10_000)
        await stream.send_all(sent("at last").encode())
        await never(stream)

    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(then=much_later))
        async with thing.subscribe("burnt") as feed:
            with trio.fail_after(20_000):
                assert await feed.receive() == "at last"
        assert site.lines() == ["GET /burnt"]


async def test_our_own_words_tell_of_gaps_and_of_the_end(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        gap = sent({"reason": "boom", "missed": 3}, "lmosx:gap")
        odd = sent(["nonsense"], "lmosx:gap") + sent({"missed": -1, "reason": 5}, "lmosx:gap")
        site.on("GET /burnt", events(gap, odd, sent("a"), sent(None, "lmosx:end")))
        async with thing.subscribe("burnt", gaps=True) as feed:
            assert await take(feed, 4) == [Gap("boom", 3), Gap("gap"), Gap("gap"), "a"]
            with pytest.raises(trio.EndOfChannel):
                await feed.receive()
        assert site.lines() == ["GET /burnt"]


async def test_an_end_with_a_problem_is_raised(autojump_clock: object) -> None:
    told = {
        "type": "urn:lmos-actors:errors#forbidden",
        "title": "Forbidden",
        "status": 403,
        "detail": "not now",
    }
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(sent("a"), sent(told, "lmosx:end")))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 1) == ["a"]
            with pytest.raises(Forbidden, match="not now"):
                await feed.receive()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (say(None, "401 Unauthorized"), Unauthorized, "401"),
        (say(None, "404 Not Found"), NotFound, "404"),
        (say(None, "405 Method Not Allowed"), NotAllowed, "405"),
        (say(None, "503 Service Unavailable", Retry_After="1"), AgentUnavailable, "503"),
        (say(None, "429 Too Many"), AgentUnavailable, "429"),
        (say(True), RemoteProtocolError, "no stream of events"),
        (NOTHING, NotFound, "no agent"),
        (talk(cut), AgentUnavailable, "before the answer"),
        (b"nonsense\r\n\r\n", RemoteProtocolError, "no answer of HTTP"),
    ],
)
async def test_what_refuses_a_listener_is_raised_on_entering(
    autojump_clock: object, answer: Any, error: type[Exception], text: str
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", answer)
        with pytest.raises(error, match=text):
            async with thing.subscribe("burnt"):
                pytest.fail("it stands")
        await trio.sleep(100)
        assert site.lines() == ["GET /burnt"]  # nobody asks for what nobody waits for


async def test_a_listener_that_is_refused_at_a_reconnect_is_told(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(sent("a"), then=cut), say(None, "401 Unauthorized"))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 1) == ["a"]
            with pytest.raises(Unauthorized):
                await feed.receive()


@pytest.mark.parametrize("line", ["data: {nonsense\n\n", f"data: {'[' * 70}\n\n"])
async def test_a_value_that_cannot_be_read_ends_the_feed(autojump_clock: object, line: str) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(sent("a"), line))
        async with thing.subscribe("burnt") as feed:
            assert await take(feed, 1) == ["a"]
            with pytest.raises(RemoteProtocolError, match="cannot be used"):
                await feed.receive()


async def test_a_line_without_an_end_ends_the_feed(autojump_clock: object) -> None:
    async def endless(stream: Any) -> bool:
        for _ in range(80):
            await stream.send_all(b"data: " + b"x" * 65_536)
        return True

    async with lamp() as (site, _, thing):
        site.on("GET /burnt", events(then=endless))
        async with thing.subscribe("burnt") as feed:
            with pytest.raises(RemoteProtocolError, match="a line of more than"):
                await feed.receive()


async def test_a_listener_may_be_cancelled_at_every_step(autojump_clock: object) -> None:
    async def drop_by_drop(stream: Any) -> bool:
        for byte in STREAM + sent(1).encode():
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.01)
        await never(stream)
        return True

    async with lamp() as (site, _, thing):
        site.on("GET /burnt", talk(drop_by_drop))
        for step in range(0, 120, 3):
            with trio.move_on_after(step * 0.01):
                async with thing.subscribe("burnt") as feed:
                    assert await feed.receive() == 1
        await trio.sleep(2)
        assert site.open <= 1


async def test_as_many_listen_at_one_server_as_may(autojump_clock: object) -> None:
    async with lamp(http=HttpOptions(listening=1)) as (site, _, thing):
        site.on("GET /burnt", events())
        site.on("GET /on", say(True))
        async with thing.subscribe("burnt"):
            with pytest.raises(MailboxFull):
                async with thing.observe("on"):
                    pass
            assert await thing.read("on")  # that is another matter
        await trio.sleep(1)
        async with thing.subscribe("burnt"):
            pass


async def test_the_end_of_the_node_ends_feeds(autojump_clock: object) -> None:
    ends: list[str] = []
    async with sites("http://lamp") as ((site,), node), trio.open_nursery() as nursery:
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        site.on("GET /burnt", events(sent("a")))
        thing = await node.consume_thing("http://lamp/td")
        feed = await nursery.start(_listening, thing, ends)
        assert await take(feed, 1) == ["a"]
        node.release(thing)
        await trio.sleep(1)
        assert ends == ["end"]
        with pytest.raises(AgentUnavailable, match="it was released"):
            await thing.read("on")
        again = await node.consume_thing("http://lamp/td")
        site.on("GET /on", say(True))
        assert await again.read("on")


async def _listening(thing: Any, ends: list[str], task_status: Any) -> None:
    async with thing.subscribe("burnt") as feed:
        task_status.started(feed)
        await trio.sleep(0.5)
        async for _ in feed:
            pass
        ends.append("end")


# ---- all events


ALL = {**LAMP, "forms": [form("events", "subscribeallevents", subprotocol="sse")]}


async def test_all_events_come_by_name(autojump_clock: object) -> None:
    async with lamp(ALL) as (site, _, thing):
        site.on("GET /events", events(sent("a", "burnt"), sent(40, "hot")))
        async with thing.subscribe_all() as feed:
            assert [(each.event, each.data) for each in await take(feed, 2)] == [("burnt", "a"), ("hot", 40)]


async def test_what_has_no_form_is_not_allowed_by_name(autojump_clock: object) -> None:
    async with lamp() as (_, _, thing):
        with pytest.raises(NotAllowed, match=r"no form to subscribe to all over HTTP"):
            async with thing.subscribe_all():
                pass
        with pytest.raises(NotAllowed, match="does not report exits"):
            async with thing.monitor():
                pass
        with pytest.raises(NotFound, match="did you mean 'burnt'"):
            async with thing.subscribe("burned"):
                pass


# ---- long poll


def later(seconds: float, answer: bytes) -> Any:
    async def wait(stream: Any) -> None:
        await trio.sleep(seconds)
        await stream.send_all(answer)

    return talk(wait)


async def test_a_property_is_observed_by_long_poll(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /level", say(1, ETag='"one"'))
        site.on(
            "GET /level/poll",
            later(30, say(None, "204 No Content")),
            later(30, say(2, ETag='"two"')),
            later(30, say(2)),  # nothing new
            later(30, say(None, "504 Gateway Timeout")),
            later(30, say(3)),
            talk(never),
        )
        async with thing.observe("level") as feed:
            assert await take(feed, 3) == [1, 2, 3]
        polls = [each.headers.get("if-none-match") for each in site.asked if each.target == "/level/poll"]
        assert polls[:4] == ['"one"', '"one"', '"two"', None]


async def test_events_come_by_long_poll_and_none_is_lost_after_entering(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /hot", say(1.5), later(1, say(2.5)), talk(never))
        async with thing.subscribe("hot") as feed:
            assert await take(feed, 2) == [1.5, 2.5]


async def test_a_long_poll_that_breaks_is_a_gap(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /hot", later(1, say(1)), talk(cut), say(None, "503 X"), later(1, say(2)), talk(never))
        async with thing.subscribe("hot", gaps=True) as feed:
            found = await take(feed, 3)
        assert (found[0], found[-1]) == (1, 2)
        assert type(found[1]) is Gap


async def test_a_long_poll_without_an_answer_is_asked_anew_in_time(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /hot", talk(never), say(1), talk(never))
        async with thing.subscribe("hot", gaps=True) as feed:
            assert await take(feed, 1) == [1]
            assert trio.current_time() >= 120


@pytest.mark.parametrize("answer", [NOTHING, say(None, "304 Not Modified"), say(5)])
async def test_a_server_that_does_not_wait_is_not_asked_without_a_pause(
    autojump_clock: object, answer: bytes
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /level", say(5))
        site.on("GET /level/poll", answer)
        site.on("GET /hot", answer)
        async with thing.observe("level"), thing.subscribe("hot"):
            await trio.sleep(20)
        assert site.lines().count("GET /level/poll") < 30
        assert site.lines().count("GET /hot") <= 20 / 0.05 + 40


async def test_a_refused_poll_is_raised(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /level", problem("403 Forbidden", detail="not yours"))
        with pytest.raises(Forbidden, match="not yours"):
            async with thing.observe("level"):
                pass
        site.on("GET /hot", problem("403 Forbidden", detail="not yours"))
        with pytest.raises(Forbidden, match="not yours"):
            async with thing.subscribe("hot") as feed:
                await feed.receive()


# ---- forms that do not say how


async def test_a_form_without_a_subprotocol_is_heard_by_what_is_answered(autojump_clock: object) -> None:
    plain = described(
        base="http://lamp/",
        events={"a": {"forms": [form("a")]}, "b": {"forms": [form("b")]}},
    )
    async with lamp(plain) as (site, _, thing):
        site.on("GET /a", events(sent(1)))
        site.on("GET /b", say(2), later(5, say(3)), talk(never))
        async with thing.subscribe("a") as a, thing.subscribe("b") as b:
            assert await take(a, 1) == [1]
            assert await take(b, 2) == [2, 3]


# ---- by agents


class Lamp(Agent):
    on: Property[bool] = prop(default=False)
    burnt: Event[str] = event()


class Watcher(Agent):
    lamp: Ref[Lamp]
    heard: Property[tuple[str, ...]] = prop(default=())

    def started(self) -> None:
        self.follow(self.lamp, Lamp.burnt, self.on_burnt)

    def on_burnt(self, where: str) -> None:
        self.heard = (*self.heard, where)


async def test_agents_follow_without_a_task_of_their_own(autojump_clock: object) -> None:
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        site.on("GET /burnt", events(sent("kitchen"), then=cut), events(sent("hall")))
        site.on("GET /on", say(True))
        site.on("GET /on/watch", events())
        lamp_ref = await node.consume(Lamp, "http://lamp/td")
        watcher = await node.start(Watcher, lamp=lamp_ref)
        await trio.sleep(10)
        assert await watcher.read(Watcher.heard) == ("kitchen", "hall")
        await node.root.terminate_child("watcher")
        await trio.sleep(1)
        assert site.open <= 1


# ---- the reader


def read(data: bytes, cuts: list[int]) -> list[SentEvent]:
    reader, found, last = EventReader(), [], 0
    for place in [*sorted(cuts), len(data)]:
        found += reader.feed(data[last:place])
        last = max(last, place)
    return found


LINES = st.lists(
    st.sampled_from(
        [
            ": beat",
            "data: 1",
            "data",
            "data:2",
            "event: x",
            "event:",
            "id: 7",
            "id: \0",
            "retry: 10",
            "",
            "dätä: 3",
        ]
    ),
    max_size=20,
)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 300), max_size=8))
def test_events_are_the_same_wherever_the_bytes_are_cut(lines: list[str], end: str, cuts: list[int]) -> None:
    data = "".join(f"{line}{end}" for line in lines).encode()
    assert read(data, [min(each, len(data)) for each in cuts]) == read(
        "".join(f"{x}\n" for x in lines).encode(), []
    )


def test_events_are_read_as_the_standard_says() -> None:
    text = "\ufeff: note\nevent: add\ndata: YHOO\ndata: +2\nid: 1\n\ndata\n\nignored: x\n\nid\ndata:  b\n\n"
    reader = EventReader()
    assert reader.feed(text.encode()) == [
        SentEvent("add", "YHOO\n+2"),
        SentEvent("message", ""),
        SentEvent("message", " b"),
    ]
    assert (reader.last_id, reader.beats, reader.retry) == ("", 1, None)
    for _ in range(63):
        reader.feed(b"data: " + b"x" * 65_536 + b"\n")
    with pytest.raises(BadAnswer, match="an event of more than"):
        reader.feed(b"data: " + b"x" * 65_536 + b"\n")
