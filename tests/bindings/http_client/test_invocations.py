"""Things that speak only HTTP: runs that go on, streams, one-way messages, forms of all kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentUnavailable,
    ConfigError,
    Event,
    InvalidInput,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    Property,
    Ref,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.errors import ActionCancelled, RemoteProtocolError
from lmos_actors.observe import MetricsOptions
from lmos_actors.transport import MemoryNetwork
from lmos_actors.types import Waiting
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
from tests.observe.http_requests import samples

if TYPE_CHECKING:
    from lmos_actors.bindings import ConsumedThing

OURS = "urn:lmos-actors:errors#"
DARK = {"type": "about:blank", "title": "Dark", "status": 500}

SLOW = described(
    base="http://lamp/",
    actions={
        "fade": {
            "synchronous": False,
            "forms": [
                form("fade", "invokeaction"),
                form("fade", "queryaction", **{"htv:methodName": "GET"}),
                form("fade", "cancelaction", **{"htv:methodName": "DELETE"}),
            ],
        },
        "plain": {"forms": [form("plain")]},
    },
)


def begun(status: str = "pending", **members: Any) -> bytes:
    return say({"status": status, **members}, "201 Created", Location="/fade/7")


def stands(status: str, **members: Any) -> bytes:
    return say({"status": status, **members})


# ---- runs that go on


async def test_a_run_that_goes_on_is_waited_for(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on(
            "GET /fade/7",
            stands("running"),
            say(None, "503 X", Retry_After="3"),
            talk(cut),
            stands("completed", output=5),
        )
        assert await thing.invoke("fade") == 5
        assert site.lines() == ["POST /fade", *["GET /fade/7"] * 4]
        assert trio.current_time() >= 3


async def test_a_run_that_is_over_with_its_first_answer_is_not_asked_about(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun("completed", output={"a": 1}))
        assert await thing.invoke("fade") == {"a": 1}
        site.on("POST /fade", say({"status": "what else"}, "201 Created"))
        assert await thing.invoke("fade") == {"status": "what else"}  # without a URL an output
        assert site.lines() == ["POST /fade"] * 2


async def test_the_url_of_a_run_may_be_told_by_the_status(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", say({"status": "pending", "href": "fade/8"}, "202 Accepted"))
        site.on("GET /fade/8", stands("completed"))
        assert await thing.invoke("fade") is None


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            stands("failed", error={"type": "about:blank", "title": "Dark", "status": 500}),
            ActionFailed,
            "Dark",
        ),
        (stands("failed", error="dark"), ActionFailed, "dark"),
        (stands("failed", output={"why": 1}), ActionFailed, "why"),
        (stands("failed"), ActionFailed, "failed"),
        (stands("cancelled"), ActionCancelled, "cancelled"),
        (
            stands(
                "failed", error={"type": "urn:lmos-actors:errors#action-cancelled", "about": {"reason": "no"}}
            ),
            ActionCancelled,
            "no",
        ),
        (say(None, "404 Not Found"), OutcomeUnknown, "does not know the run"),
        (say(None, "401 Unauthorized"), Exception, "401"),
        (say([1]), RemoteProtocolError, "no ActionStatus"),
        (say(None, "503 X"), OutcomeUnknown, "does not answer with the status of the run"),
        (talk(cut), OutcomeUnknown, "does not answer with the status of the run"),
    ],
)
async def test_how_a_run_ended_is_raised(
    autojump_clock: object, answer: Any, error: type[Exception], text: str
) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("in progress"), answer)
        with pytest.raises(error, match=text):
            await thing.invoke("fade")


async def test_a_run_at_another_server_is_not_followed(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        for place in ("http://other/fade/7", "//other/fade/7", "https://lamp/fade/7", "http://lamp@other/x"):
            site.on("POST /fade", say({"status": "pending"}, "201 Created", Location=place))
            with pytest.raises(RemoteProtocolError, match="on another server"):
                await thing.invoke("fade")


async def test_whoever_waits_no_more_for_a_run_ends_it(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"))
        site.on("DELETE /fade/7", NOTHING)
        with trio.move_on_after(3):
            await thing.invoke("fade")
        await trio.sleep(1)
        assert site.lines().count("DELETE /fade/7") == 1
        async with thing.begin("fade"):
            await trio.sleep(1)
        await trio.sleep(1)
        assert site.lines().count("DELETE /fade/7") == 2


async def test_a_goodbye_that_nobody_answers_is_given_up(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"))
        site.on("DELETE /fade/7", talk(never))
        with trio.move_on_after(3):
            await thing.invoke("fade")
        await trio.sleep(10)
        assert site.lines()[-1] == "DELETE /fade/7"
        assert site.open <= 1


# ---- calls


async def test_a_call_is_asked_about_and_tells_progress(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on(
            "GET /fade/7", *[stands("running", progress=n) for n in range(5)], stands("completed", output=9)
        )
        async with thing.begin("fade") as call:
            assert site.asked == [] or site.asked[0].headers["prefer"] == "respond-async"
            assert (await call.query()).status == "in progress"
            assert site.last("POST /fade").headers["prefer"] == "respond-async"
            assert [n async for n in call.progress][-1] == 4
            assert await call.result() == 9
            assert (await call.query()).status == "completed"
            assert (await call.cancel()).status == "completed"


async def test_a_call_is_cancelled_by_its_url(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"))
        site.on("DELETE /fade/7", NOTHING)
        async with thing.begin("fade") as call:
            status = await call.cancel("enough")
            assert (status.status, status.cancelled, status.reason) == ("failed", True, "enough")
            with pytest.raises(ActionCancelled, match="enough"):
                await call.result()
        await trio.sleep(1)
        assert site.lines().count("DELETE /fade/7") == 1


async def test_a_cancel_that_comes_too_late_gives_what_became_of_the_run(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"), stands("completed", output=3))
        site.on("DELETE /fade/7", say(None, "404 Not Found"))
        async with thing.begin("fade") as call:
            assert (await call.cancel()).status == "completed"
            assert await call.result() == 3


async def test_a_cancel_that_is_not_allowed_is_raised_and_the_run_goes_on(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"), stands("running"), stands("completed", output=3))
        site.on("DELETE /fade/7", say(None, "405 Method Not Allowed"))
        async with thing.begin("fade") as call:
            with pytest.raises(NotAllowed):
                await call.cancel()
            assert await call.result() == 3


async def test_a_call_whose_url_nobody_tells_is_cancelled_by_leaving(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /plain", talk(never))
        async with thing.begin("plain") as call:
            await trio.sleep(1)
            with pytest.raises(NotAllowed, match="no form to query runs of 'plain'"):
                await call.query()
            assert (await call.cancel("enough")).cancelled
        await trio.sleep(1)
        assert site.open == 0
        assert "prefer" not in site.last("POST /plain").headers


async def test_a_call_has_a_deadline(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"))
        site.on("DELETE /fade/7", NOTHING)
        async with thing.within(2).begin("fade") as call:
            with pytest.raises(TimeoutError):
                await call.result()
        await trio.sleep(1)
        assert site.lines().count("DELETE /fade/7") == 1


# ---- streams


STREAMS = described(
    base="http://lamp/",
    actions={
        "count": {
            "lmosx:streams": {"output": {"contentType": "application/json"}},
            "forms": [form("count", "invokeaction", subprotocol="sse")],
        }
    },
)
END = sent(None, "lmosx:end")


@pytest.mark.slow
async def test_items_come_as_events_and_hold_the_server_back(autojump_clock: object) -> None:
    async with lamp(STREAMS) as (site, _, thing):
        written = 0

        async def many(stream: Any) -> None:
            nonlocal written
            for written in range(20_000):
                await stream.send_all(sent([written] * 10, "item").encode())
            await stream.send_all(END.encode())

        site.on("POST /count", events(then=many))
        async with thing.stream("count") as items:
            await trio.sleep(1)
            assert written < 4_000  # what the network holds
            assert [item[0] async for item in items] == list(range(20_000))


async def test_a_stream_may_fail_break_off_or_be_left(autojump_clock: object) -> None:
    async with lamp(STREAMS) as (site, _, thing):
        dark = sent({"type": "about:blank", "title": "Dark", "status": 500}, "lmosx:end")
        site.on(
            "POST /count",
            events(sent(1), dark),
            events(sent(1), then=cut),
            events(sent(1)),
            say(None, "403 X"),
        )
        for error, text in ((ActionFailed, "Dark"), (OutcomeUnknown, "broke off")):
            async with thing.stream("count") as items:
                assert await anext(items) == 1
                with pytest.raises(error, match=text):
                    await anext(items)
        async with thing.stream("count") as items:
            assert await anext(items) == 1
            assert site.open == 2
        await trio.sleep(1)
        assert site.open == 1
        async with thing.stream("count") as items:
            with pytest.raises(Exception, match="403"):
                await anext(items)


async def test_an_action_with_one_output_is_a_stream_of_one(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /fade", say(7))
        async with thing.stream("fade") as items:
            assert [item async for item in items] == [7]


# ---- one way


async def test_one_way_messages_arrive_in_order_and_refusals_are_dead_letters(autojump_clock: object) -> None:
    async with lamp() as (site, node, thing):
        site.on("POST /fade", NOTHING, problem("400 Bad Request", detail="no"), talk(cut), NOTHING)
        for number in range(5):
            await thing.tell("fade", {"n": number})
        await trio.sleep(1)
        assert [each.data["n"] for each in site.asked] == list(range(5))
        assert [letter.reason for letter in node.dead_letters] == [
            "no - at $",
            "what became of the request to 'urn:example:lamp' is unknown: "
            "the connection ended before the answer",
        ]


async def test_a_one_way_message_does_not_wait_for_a_run_that_goes_on(autojump_clock: object) -> None:
    async with lamp(SLOW) as (site, _, thing):
        site.on("POST /fade", begun())
        site.on("GET /fade/7", stands("running"))
        for _ in range(2):
            await thing.tell("fade")
        await trio.sleep(5)
        assert site.lines() == ["POST /fade"] * 2


async def test_one_way_messages_wait_for_room(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.bindings.http_client._tells.SEATS", 2)
    gate = trio.Event()

    async def slow(stream: Any) -> None:
        await gate.wait()
        await stream.send_all(NOTHING)

    async with lamp() as (site, node, thing), trio.open_nursery() as nursery:
        site.on("POST /fade", talk(slow))
        told: list[int] = []

        async def tell(number: int) -> None:
            await thing.tell("fade", {"n": number})
            told.append(number)

        for number in range(5):
            nursery.start_soon(tell, number)
            await trio.sleep(1)
        assert told == [0, 1, 2]  # one is under way
        with trio.move_on_after(1):
            await thing.tell("fade", {"n": "left"})
        gate.set()
        await trio.sleep(1)
        assert [each.data["n"] for each in site.asked] == told == list(range(5))
        gate = trio.Event()
        await thing.tell("fade", {"n": 9})
        await trio.sleep(1)
        node.release(thing)
        await trio.sleep(1)
        with pytest.raises(AgentUnavailable):
            await thing.tell("fade")


class Lamp(Agent):
    @action
    async def fade(self, n: int) -> None:
        """Fade."""


class Dimmer(Agent):
    lamp: Ref[Lamp]

    @action
    def dim(self, times: int) -> str:
        for n in range(times):
            self.send(self.lamp, Lamp.fade, n)
        return "dimmed"


async def test_an_agent_whose_messages_find_no_room_is_held_back(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.bindings.http_client._tells.SEATS", 2)
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        site.on("POST /fade", talk(_a_second))
        ref = await node.consume(Lamp, "http://lamp/td")
        dimmer = await node.start(Dimmer, lamp=ref)
        assert await dimmer.invoke(Dimmer.dim, 6) == "dimmed"
        with trio.move_on_after(2):
            await dimmer.invoke(Dimmer.dim, 0)
            pytest.fail("it was held back")
        wait = Waiting("dimmer", "urn:example:lamp", "room", "fade", why="http://lamp/on")
        assert set(node.waiting_graph().edges) == {wait}
        await dimmer.invoke(Dimmer.dim, 0)
        await trio.sleep(10)
        posts = [each.data["n"] for each in site.asked if each.line == "POST /fade"]
        assert posts == list(range(6))


async def _a_second(stream: Any) -> None:
    await trio.sleep(1)
    await stream.send_all(NOTHING)


# ---- forms of all kinds


ODD = described(
    base="http://lamp/things/lamp/",
    properties={
        "rel": {"forms": [form("rel", "readproperty")]},
        "up": {"forms": [form("../up", "readproperty")]},
        "root": {"forms": [form("/root", "readproperty")]},
        "absolute": {"forms": [form("http://lamp/abs?x=1#frag", "readproperty")]},
        "second": {"forms": [form("coap://lamp/x", "readproperty"), form("second", "readproperty")]},
        "writeonly": {"writeOnly": True, "forms": [form("w")]},
        "post": {"forms": [form("post", "writeproperty", **{"htv:methodName": "POST"})]},
        "text": {"forms": [form("text", contentType="text/plain;charset=utf-8")]},
        "blob": {"forms": [form("blob", contentType="application/octet-stream")]},
        "senml": {"forms": [form("senml", contentType="application/senml+json")]},
        "parts": {"forms": [form("parts", contentType="multipart/form-data")]},
    },
    actions={
        "ask": {
            "safe": True,
            "uriVariables": {"city": {"type": "string"}, "days": {"type": "integer", "default": 2}},
            "forms": [form("ask{?city,days}", **{"htv:methodName": "GET"})],
        },
        "put": {
            "uriVariables": {"id": {"type": "string"}},
            "forms": [form("put/{id}", **{"htv:methodName": "PUT"})],
        },
    },
)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rel", "GET /things/lamp/rel"),
        ("up", "GET /things/up"),
        ("root", "GET /root"),
        ("absolute", "GET /abs?x=1"),
        ("second", "GET /things/lamp/second"),
    ],
)
async def test_forms_lead_where_they_say(autojump_clock: object, name: str, line: str) -> None:
    async with lamp(ODD) as (site, _, thing):
        site.on(line, say("there"))
        assert await thing.read(name) == "there"


async def test_methods_and_media_types_are_those_of_the_form(autojump_clock: object) -> None:
    async with lamp(ODD) as (site, _, thing):
        for name in ("post", "text", "blob", "senml"):
            for method in ("PUT", "POST"):
                site.on(f"{method} /things/lamp/{name}", NOTHING)
        await thing.write("post", 1)
        assert site.asked[-1].line == "POST /things/lamp/post"
        await thing.write("text", "grün")
        assert site.asked[-1].body == "grün".encode()
        assert site.asked[-1].headers["content-type"] == "text/plain;charset=utf-8"
        await thing.write("text", 3)
        assert site.asked[-1].body == b"3"
        await thing.write("blob", b"\0\xff")
        assert site.asked[-1].body == b"\0\xff"
        await thing.write("senml", [1])
        assert site.asked[-1].headers["content-type"] == "application/senml+json"
        for name, value, error in (
            ("blob", 3, InvalidInput),
            ("text", {"a": 1}, InvalidInput),
            ("rel", float("nan"), InvalidInput),
            ("rel", object(), InvalidInput),
            ("parts", "x", NotAllowed),
        ):
            with pytest.raises(error):
                await thing.write(name if name != "rel" else "senml", value)


async def test_what_comes_is_read_by_the_type_it_is_said_to_be(autojump_clock: object) -> None:
    async with lamp(ODD) as (site, _, thing):
        line = "GET /things/lamp/rel"
        site.on(
            line,
            say(b"plain", kind="text/plain"),
            say(b"\0\1", kind="image/png"),
            say({"n": 1}, kind="application/ld+json; charset=utf-8"),
            say(b"[1]", kind=None),
            NOTHING,
        )
        assert [await thing.read("rel") for _ in range(5)] == ["plain", b"\0\1", {"n": 1}, [1], None]


async def test_variables_of_urls_are_taken_from_the_input(autojump_clock: object) -> None:
    async with lamp(ODD) as (site, _, thing):
        site.on("GET /things/lamp/ask?city=K%C3%B6ln%2F&days=2", say("rain"))
        assert await thing.invoke("ask", {"city": "Köln/"}) == "rain"
        site.on("GET /things/lamp/ask?days=3", say("sun"))
        assert await thing.invoke("ask", {"days": 3}) == "sun"
        site.on("PUT /things/lamp/put/a%20b", NOTHING)
        await thing.invoke("put", {"id": "a b", "x": 1})
        assert site.asked[-1].data == {"x": 1}
        with pytest.raises(InvalidInput, match=r"the URL needs a value for 'id' - at \$.id"):
            await thing.invoke("put", {"x": 1})
        with pytest.raises(InvalidInput, match="goes into the URL"):
            await thing.invoke("put", {"id": {"a": 1}})
        with pytest.raises(InvalidInput, match="takes no input"):
            await thing.invoke("ask", {"city": "Bonn", "other": 1})


async def test_names_that_are_not_there_are_refused_without_asking(autojump_clock: object) -> None:
    async with lamp(ODD) as (site, _, thing):
        with pytest.raises(NotFound, match="did you mean 'text'"):
            await thing.read("texts")
        with pytest.raises(NotAllowed, match="no form to write 'rel' over HTTP"):
            await thing.write("rel", 1)
        with pytest.raises(NotAllowed, match="no form to read 'writeonly'"):
            await thing.read("writeonly")
        assert site.asked == []


@pytest.mark.parametrize(
    "href", ["http://", "http://user:pw@lamp/x", "http://la mp/", "http://[::1/x", f"http://{'a' * 70}/"]
)
async def test_a_form_that_leads_nowhere_is_an_error_of_the_description(
    autojump_clock: object, href: str
) -> None:
    wrong = described(properties={"on": {"forms": [form(href, "readproperty")]}})
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /td", say(wrong, kind="application/td+json"))
        with pytest.raises(ConfigError):
            await node.consume_thing("http://lamp/td")


# ---- LMOS for some, HTTP for the rest


class Weather(Agent):
    """Half of a thing."""

    @action
    def ask(self, city: str) -> str:
        """Answer."""
        return f"sunny in {city}"


async def test_each_affordance_goes_by_the_best_form_it_has(autojump_clock: object) -> None:
    mixed = described(
        id="http://agents/agents/weather",
        properties={"on": {"observable": True, "forms": [form("http://lamp/on")]}},
        actions={
            "ask": {
                "input": {"type": "object"},
                "forms": [
                    form("http://lamp/ask", "invokeaction"),
                    form("ws://agents/ws", "invokeaction", subprotocol="lmosprotocol"),
                ],
            },
            "fade": {"forms": [form("http://lamp/fade")]},
        },
        events={"burnt": {"forms": [form("http://lamp/burnt", subprotocol="sse")]}},
    )
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://agents", network=network) as agents,
        sites("http://lamp", network=network) as ((site,), node),
    ):
        await agents.start(Weather)
        site.on("GET /td", say(mixed, kind="application/td+json"))
        thing: ConsumedThing = await node.consume_thing("http://lamp/td")
        site.asked.clear()
        site.on("GET /on", say(True))
        site.on("POST /fade", NOTHING)
        site.on("GET /burnt", events(sent("x")))
        assert await thing.invoke("ask", {"city": "Bonn"}) == "sunny in Bonn"
        async with thing.begin("ask", {"city": "Bonn"}) as call:
            assert await call.result() == "sunny in Bonn"
        assert await thing.within(5).invoke("ask", {"city": "Bonn"}) == "sunny in Bonn"
        assert await thing.retrying().invoke("ask", {"city": "Bonn"}) == "sunny in Bonn"
        assert site.asked == []
        assert await thing.read("on") is True
        assert await thing.retrying().read("on") is True
        await thing.tell("fade")
        async with thing.subscribe("burnt") as feed, thing.monitor() as downs:
            assert await feed.receive() == "x"
            await agents.root.terminate_child("weather")
            assert (await downs.receive()).reason.kind == "shutdown"
        await thing.ready()
        node.release(thing)
        await trio.sleep(1)
        with pytest.raises(AgentUnavailable, match="released"):
            await thing.invoke("ask", {"city": "Bonn"})
        with pytest.raises(AgentUnavailable, match="released"):
            await thing.read("on")


class OwnLamp(Agent):
    """One of ours, with something of each kind."""

    on: Property[bool] = prop(default=False)
    burnt: Event[str] = event()

    @action
    def fade(self, to: int) -> int:
        return to

    @action
    async def steps(self, number: int) -> AsyncIterator[int]:
        for step in range(number):
            yield step


async def test_of_our_own_agents_nothing_is_left_to_http(autojump_clock: object) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://agents", network=network, metrics=MetricsOptions(registry=None)) as agents,
        open_node(network=network) as node,
    ):
        await agents.start(OwnLamp)
        thing: ConsumedThing = await node.consume_thing("http://agents/agents/own-lamp")
        await thing.write("on", True)
        await thing.write_many({"on": True})
        assert await thing.read("on") is True
        assert await thing.read_all() == {"on": True}
        assert await thing.invoke("fade", {"to": 3}) == 3
        assert await thing.retrying().invoke("fade", {"to": 3}) == 3
        await thing.tell("fade", {"to": 3})
        async with thing.begin("fade", {"to": 3}) as call:
            assert await call.result() == 3
        async with thing.stream("steps", {"number": 2}) as steps:
            assert [step async for step in steps] == [0, 1]
        async with thing.observe("on") as values:
            assert await values.receive() is True
        async with thing.subscribe("burnt"), thing.subscribe_all():
            pass
        requests = [key for key in samples(await agents.metrics()) if key[0] == "lmos_actors_requests_total"]
    assert {key[-1] for key in requests} == {"lmos"}
    listening = ["observe", "subscribe", "subscribe to all"]
    assert {key[-2] for key in requests} == {"invoke", "read", "read all", "write", "write many", *listening}


async def test_http_alone_may_be_asked_again(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /reset", talk(cut), say(None, "503 X"), say("done"))
        site.on("POST /fade", talk(cut), say("done"))
        assert await thing.retrying().invoke("reset") == "done"
        with pytest.raises(OutcomeUnknown):
            await thing.retrying().invoke("fade")
