"""Connections that come and go: routing, leaving, retries, drain, peers that do not read (R5, C1, C2, W4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, Event, Property, SupervisorSpec, action, event, prop
from lmos_actors.actors import hold, release, slot_of
from lmos_actors.bindings import Exposure
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import Accept, Refuse, Upgrade
from tests.bindings.client_connections import OFFERS
from tests.bindings.server_connections import BASE, Line, accounts, serving


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()
    story: list[str] = attrs.field(factory=list[str])

    @action
    def note(self, text: str) -> None:
        self.story.append(text)

    @action(concurrency=3)
    async def slow(self, name: str) -> str:
        try:
            await trio.sleep(10)
        except trio.Cancelled:
            self.story.append(f"{name} cancelled")
            raise
        self.story.append(f"{name} done")
        return name

    @action(on_disconnect="finish")
    async def sure(self, name: str) -> str:
        await trio.sleep(10)
        self.story.append(f"{name} done")
        return name

    @action(on_disconnect="finish")
    async def items(self) -> AsyncIterator[int]:
        for each in range(100):
            yield each
        self.story.append("all items")

    @action
    def told(self) -> list[str]:
        return self.story

    @action
    def flood(self, text: str, count: int) -> None:
        for _ in range(count):
            self.asked.emit(text)


PEER = ((b"lmos-peer", b"0123456789abcdef0123456789abcdef"),)


async def test_a_peer_that_leaves_takes_its_requests_along(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line, other = await served.line(), await served.line()
            line.put("invokeAction", action="slow", input={"name": "running"})
            await settle()
            hold(weather)
            line.put("invokeAction", action="note", input={"text": "queued"})
            line.put("observeProperty", name="units")
            line.leave()
            await settle()
            counts = weather.statistics()
            assert (counts.cancelled, counts.running, counts.waiting) == (3, 0, 0)
            assert served.server.statistics().open == 0
            release(weather)
            told = await other.ask("invokeAction", action="told")
            assert told["output"] == ["running cancelled"]
            assert served.server.statistics().connections == 1
        accounts(node)


@pytest.mark.parametrize(
    ("target", "thing"),
    [
        ("/agents/weather", f"{BASE}/agents/weather"),
        ("/agents/weather?token=x", f"{BASE}/agents/weather"),
        ("/base/agents/desk.clerk", "urn:clerk"),
        ("/agents/nobody", "nobody"),
        ("/ws", None),
        ("/weather", None),
    ],
)
async def test_a_socket_at_an_agents_address_is_for_that_agent(
    target: str, thing: str | None, virtual_clock: Any
) -> None:
    tree = SupervisorSpec(
        "root",
        [
            ChildSpec("weather", Weather),
            SupervisorSpec("desk", [ChildSpec("clerk", Weather, id="urn:clerk")]),
        ],
    )
    async with open_test_node(tree) as node, serving(node) as served:
        line = Line()
        line.target = target
        await served.line(line)
        for unnamed in (..., "", None):
            answer = await line.ask("readProperty", name="units", thingID=unnamed)
            assert answer["thingID"] == (thing or "urn:lmos-actors:unknown")
            found = thing not in (None, "nobody")
            assert answer.get("status") == (None if found else "400" if thing is None else "404")
        named = await line.ask("readProperty", name="units", thingID="weather")
        assert (named["thingID"], named["value"]) == ("weather", "celsius")


async def test_an_action_may_finish_all_the_same(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line, other = await served.line(), await served.line()
            line.put("invokeAction", action="sure", input={"name": "it"})
            await settle()
            line.leave()
            await settle()
            assert served.server.statistics().open == 1
            await trio.sleep(100)
            told = await other.ask("invokeAction", action="told")
            assert told["output"] == ["it done"]
            assert weather.statistics().handled == 2
            assert served.server.statistics().open == 0
        accounts(node)


async def test_a_stream_may_finish_though_nobody_takes_its_items(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line, other = await served.line(), await served.line()
            line.put("invokeAction", action="items", credit={"items": 2, "bytes": 1000})
            await settle()
            line.leave()
            await settle()
            told = await other.ask("invokeAction", action="told")
            assert told["output"] == ["all items"]
            assert served.server.statistics().open == 0
        accounts(node)


@pytest.mark.parametrize("back", [5, 30, 200])
async def test_a_request_that_may_come_again_goes_on_and_is_answered_once(
    back: float, virtual_clock: Any
) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            ask: Any = {"action": "slow", "input": {"name": "it"}, "messageID": "mine"}
            line = await served.line(headers=PEER)
            line.put("invokeAction", attempt=1, **ask)
            await settle()
            line.leave()
            await trio.sleep(back)
            line = await served.line(headers=PEER)
            line.put("invokeAction", attempt=2, **ask)
            await trio.sleep(20)
            (done,) = line.take()
            assert done["output"] == "it"
            told = await line.ask("invokeAction", action="told")
            assert told["output"] == ["it done"]
            assert weather.statistics().cancelled == 0
        accounts(node)


async def test_nobody_waits_for_a_peer_for_ever(virtual_clock: Any) -> None:
    class Patient(Agent):
        @action
        async def wait(self) -> None:
            await trio.sleep_forever()

    async with open_test_node() as node:
        patient = await node.start_child(ChildSpec("weather", Patient))
        async with serving(node) as served:
            line = await served.line(headers=PEER)
            line.put("invokeAction", action="wait", attempt=1)
            line.put("invokeAction", action="wait", attempt=1)
            await settle()
            line.leave()
            await trio.sleep(59)
            assert patient.statistics().running + patient.statistics().waiting == 2
            await trio.sleep(2)
            assert patient.statistics().cancelled == 2
            assert served.server.statistics().open == 0
        accounts(node)


async def test_who_comes_back_in_time_is_waited_for(virtual_clock: Any) -> None:
    class Patient(Agent):
        @action
        async def wait(self) -> str:
            await trio.sleep(100)
            return "at last"

    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Patient))
        async with serving(node) as served:
            line = await served.line(headers=PEER)
            line.put("invokeAction", action="wait", attempt=1, messageID="mine")
            await settle()
            line.leave()
            await trio.sleep(30)
            line = await served.line(headers=PEER)
            line.put("invokeAction", action="wait", attempt=2, messageID="mine")
            await trio.sleep(100)
            assert line.take()[0]["output"] == "at last"
            line.put("invokeAction", action="wait", attempt=1, messageID="other")
            await settle()
            line.leave()
            await trio.sleep(70)
            line = await served.line(headers=PEER)
            line.put("invokeAction", action="wait", attempt=2, messageID="other")
            await settle()
            (given_up,) = line.take()
            assert (given_up["status"], given_up["reason"]) == ("failed", "the consumer left")
        accounts(node)


async def test_others_are_not_given_the_answer(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            for headers in ((), (), PEER, ((b"LMOS-Peer", b"guess"),), ((b"LMOS-Peer", b"guess"),)):
                line = await served.line(headers=headers)
                line.put("invokeAction", action="note", input={"text": "x"}, messageID="mine")
                await settle()
            assert weather.statistics().handled == 5
            line = await served.line(headers=PEER)
            line.put("invokeAction", action="note", input={"text": "x"}, messageID="mine")
            assert line.take()[0]["status"] == "completed"
            assert weather.statistics().handled == 5


async def test_a_drained_server_finishes_and_takes_nothing_new(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            busy, idle = await served.line(), await served.line()
            busy.put("invokeAction", action="slow", input={"name": "it"})
            idle.put("observeProperty", name="units")
            await settle()
            served.server.drain()
            assert (idle.closed, busy.closed) == (None, None)  # who listens may hear how agents stop
            served.server.finish()
            assert (idle.closed, busy.closed) == ((1012, "the node is shutting down"), None)
            busy.take()
            error = await busy.ask("readProperty", name="units")
            assert (error["title"], error["started"]) == ("Agent Unavailable", False)
            assert isinstance(served.server.accept(upgrade("/ws")), Refuse)
            await trio.sleep(20)
            assert busy.closed == (1012, "the node is shutting down")
            assert [done["output"] for done in busy.take()] == ["it"]
            busy.leave()
            idle.leave()
            await served.server.wait_closed()
            assert served.server.statistics().connections == 0


async def test_a_drained_server_closes_all_connections_that_shared_a_run(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            first, second, third = [await served.line(headers=PEER) for _ in range(3)]
            asked: dict[str, Any] = {"action": "slow", "input": {"name": "it"}, "attempt": 1}
            message_id = first.put("invokeAction", **asked)
            await settle()
            asked |= {"messageID": message_id, "correlationID": message_id}
            second.put("invokeAction", **asked)
            third.put("invokeAction", **asked)
            await settle()
            first.leave()
            await settle()
            served.server.drain()
            assert (second.closed, third.closed) == (None, None)
            third.put("cancelAction", action="slow", correlationID=message_id)
            await settle()
            assert [answer["status"] for answer in second.take() if "status" in answer][-1] == "failed"
            assert (second.closed, third.closed) == ((1012, "the node is shutting down"),) * 2


async def test_an_answer_to_several_connections_lets_all_of_them_be_drained(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            first, second = [await served.line(headers=PEER) for _ in range(2)]
            asked: dict[str, Any] = {"action": "slow", "input": {"name": "it"}, "attempt": 1}
            message_id = first.put("invokeAction", **asked)
            await settle()
            second.put("invokeAction", **asked, messageID=message_id, correlationID=message_id)
            first.leave()
            await settle()
            served.server.drain()
            await trio.sleep(20)
            assert [answer["output"] for answer in second.take() if "output" in answer] == ["it"]
            assert second.closed == (1012, "the node is shutting down")


class Wordy(Agent):
    text: Property[str] = prop(default="x" * 5_000)

    @action
    def say(self) -> str:
        return self.text


async def test_what_is_too_long_is_an_error_each_time_it_is_asked_for(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        wordy = await node.start_child(ChildSpec("weather", Wordy))
        async with serving(node, options=lmos.SessionOptions(max_bytes=2_000)) as served:
            line = await served.line(headers=PEER)
            asked: dict[str, Any] = {"action": "say", "attempt": 1}
            asked |= {"messageID": "one", "correlationID": "one"}
            for _ in range(2):
                answer = await line.ask("invokeAction", **asked)
                assert (answer["messageType"], answer["status"]) == ("error", "500")
                assert answer["correlationID"] == "one"
            assert slot_of(wordy).statistics().handled == 1  # the second answer was remembered
            assert (await line.ask("observeProperty", name="text"))["messageType"] == "error"
            assert line.session_there.statistics().listening == 0
            assert slot_of(wordy).sinks().by_key == {}


async def test_a_peer_that_never_reads_is_closed(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        options = lmos.SessionOptions(max_waiting=100)
        async with serving(node, options=options) as served:
            line = await served.line()
            line.put("invokeAction", action="slow", input={"name": "it"})
            for _ in range(101):
                line.put("readProperty", name="units")
                await settle()
            await trio.sleep(0.1)
            assert line.closed is not None
            assert line.closed[0] == 1008
            assert weather.statistics().running == 0
            assert line.take() == []
            line.put("readProperty", name="units")
            assert weather.statistics().handled == 101
        accounts(node)


@pytest.mark.parametrize(
    "garbage", ["{", "[]", '{"messageType": "nonsense"}', '{"messageType": "event"}', ""]
)
async def test_garbage_is_answered_and_the_connection_goes_on(garbage: str, virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.handler.text(garbage)
            assert line.take()[0]["messageType"] == "error"
            read = await line.ask("readProperty", name="units")
            assert read["value"] == "celsius"


async def test_what_is_no_frame_closes_the_connection(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        options = lmos.SessionOptions(max_bytes=1000)
        async with serving(node, options=options) as served:
            line, other = await served.line(), await served.line()
            line.put("invokeAction", action="slow", input={"name": "it"})
            await settle()
            line.handler.binary(b"xyz")
            other.handler.text("x" * 2000)
            assert line.closed is not None
            assert other.closed is not None
            assert (line.closed[0], other.closed[0]) == (1003, 1009)
            await settle()
            assert weather.statistics().cancelled == 1
        accounts(node)


# ---- where it is spoken


def upgrade(path: str, *offered: str) -> Upgrade:
    return Upgrade(path, path, "", (), offered, "peer", False)


ROUTES: tuple[tuple[str, tuple[str, ...], Any], ...] = (
    ("/", (), None),
    ("/ws", (), None),
    ("/agents/weather", (), None),
    ("/agents/desk.weather", (), None),
    ("/agents/desk%2Fweather", (), None),
    ("/agents/nobody", (), 404),
    ("/agents/", (), 404),
    ("/elsewhere", (), 404),
    ("/arc", ("lmosprotocol",), 404),
    ("/elsewhere", ("lmosprotocol",), "lmosprotocol"),
    ("/ws", ("chat", "lmosprotocol"), "lmosprotocol"),
    ("/ws", ("chat",), None),
)


@pytest.mark.parametrize(("path", "offered", "expected"), ROUTES)
async def test_a_path_and_a_subprotocol_lead_to_a_session(
    path: str, offered: tuple[str, ...], expected: Any, virtual_clock: Any
) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        await node.start_supervisor(SupervisorSpec("desk", [ChildSpec("weather", Weather)]))
        async with serving(node) as served:
            found = served.server.accept(upgrade(path, *offered))
            if expected == 404:
                assert isinstance(found, Refuse)
                assert found.status == 404
            else:
                assert isinstance(found, Accept)
                assert found.subprotocol == expected
                assert dict(found.headers) == {
                    b"LMOS-Extensions": ", ".join(OFFERS).encode(),
                }


IDS = (
    "weather",
    "desk.weather",
    "desk/weather",
    "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10",
    "http://127.0.0.1:8080/agents/weather",
    "wss://elsewhere.example:1234/agents/desk.weather?x=1#y",
    "http://127.0.0.1:8080/agents/desk%2Eweather",
)
NO_IDS = (
    "wether",
    "desk",
    "http://127.0.0.1/weather",
    "http://[",
    "http://x/agents/a/b",
    "urn:uuid:no",
    "http://127.0.0.1/agents/weather?" + "x" * 3000,
    "x" * 10_000,
)


async def test_things_are_found_by_id_address_and_name(virtual_clock: Any) -> None:
    known = ChildSpec("known", Weather, id=IDS[3])
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        await node.start_supervisor(SupervisorSpec("desk", [ChildSpec("weather", Weather), known]))
        exposure = Exposure(node.root, (BASE + "/",))
        found = [exposure.find(each) for each in IDS]
        assert [None if each is None else each.path for each in found] == [
            "weather",
            "desk/weather",
            "desk/weather",
            "desk/known",
            "weather",
            "desk/weather",
            "desk/weather",
        ]
        assert [exposure.find(each) for each in NO_IDS] == [None] * len(NO_IDS)
        assert [(each.name, each.thing_id, each.cls) for each in exposure] == [
            ("weather", "http://127.0.0.1:8080/agents/weather", Weather),
            ("desk.weather", "http://127.0.0.1:8080/agents/desk.weather", Weather),
            ("desk.known", IDS[3], Weather),
        ]
        named = exposure.named("desk.weather")
        assert named is not None
        assert named.link is found[1]
        assert exposure.named("nobody") is None


async def test_an_agent_of_unknown_class_is_listed_once_it_runs(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        made: Any = lambda: Weather()  # noqa: E731 -- a factory that does not tell
        await node.start_child(ChildSpec("hidden", made))
        await node.start_child(ChildSpec("partial", partial(Weather, units="kelvin")))
        exposure = Exposure(node.root)
        assert [each.name for each in exposure] == ["hidden", "partial"]
        await node.root.terminate_child("hidden")
        assert [each.name for each in exposure] == ["partial"]
        assert [*exposure.names()] == ["hidden", "partial"]


async def test_connections_are_closed_one_after_another_when_a_server_leaves(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            lines = [await served.line() for _ in range(4)]
            lines[1].put("invokeAction", action="slow", input={"name": "it"})
            await settle()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.server.leave, 8.0)
                for closed in range(1, 5):
                    await settle()
                    idle = [line for line in lines[:closed] if line is not lines[1]]
                    assert {line.closed for line in idle} == {(1012, "the node is shutting down")}
                    assert {line.closed for line in [lines[1], *lines[closed:]]} == {None}
                    for line in lines[max(closed, 2) :]:
                        assert (await line.ask("readProperty", name="units"))["value"] == "celsius"
                    refused = served.server.accept(upgrade("/ws"))
                    assert isinstance(refused, Refuse)
                    assert refused.status == 503
                    await trio.sleep(2.0)
            await trio.sleep(4.0)
            assert (
                lines[1].take()[-1]["output"] == "it"
            )  # of the one that was asked to leave while it was busy
            assert lines[1].closed == (1012, "the node is shutting down")
            for line in lines:
                line.leave()
            await served.server.wait_closed()
