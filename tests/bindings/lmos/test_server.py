"""Requests over LMOS, written by hand: every verb, and every way in which it can be answered."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    MailboxOptions,
    Pool,
    Property,
    action,
    event,
    prop,
)
from lmos_actors.actors import Request, current_request, hold, release
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, Serving, accounts, serving


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    limit: Property[int] = prop(default=3, write_only=True)
    station: Property[str] = prop(default="Bonn", read_only=True)
    tags: Property[frozenset[str]] = prop(default=frozenset())
    asked: Event[str] = event()

    @action
    def turn(self, city: str, days: int = 1) -> str:
        self.asked.emit(city)
        return f"{city} {days}"

    @action
    def whole(self, numbers: list[int], /) -> int:
        return sum(numbers)

    @action
    def nothing(self) -> None:
        pass

    @action
    def perhaps(self) -> str | None:
        return None

    @action
    def raw(self) -> bytes:
        return b"\x00\xff"

    @action
    def names(self) -> set[str]:
        return {"zoe", "anna", "mike", "bert"}

    @action
    def fail(self) -> None:
        raise ActionFailed({"why": "no clouds"})

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action
    def huge(self) -> int:
        return 1 << 80

    @action
    async def slow(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return "slept"


REPORTS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("readProperty", {"name": "units"}, {"name": "units", "value": "celsius"}),
    ("readProperty", {"name": "tags"}, {"name": "tags", "value": []}),
    ("readAllProperties", {}, {"data": {"units": "celsius", "station": "Bonn", "tags": []}}),
    ("readMultipleProperties", {"properties": ["station"]}, {"data": {"station": "Bonn"}}),
    ("writeProperty", {"name": "units", "data": "kelvin"}, {"name": "units", "value": "kelvin"}),
    ("writeProperty", {"name": "tags", "data": ["b", "a", "b"]}, {"name": "tags", "value": ["a", "b"]}),
    (
        "writeMultipleProperties",
        {"data": {"units": "kelvin", "limit": 4}},
        {"data": {"units": "kelvin", "limit": 4}},
    ),
    ("writeAllProperties", {"data": {"units": "kelvin"}}, {"data": {"units": "kelvin"}}),
)


@pytest.mark.parametrize(("kind", "members", "answer"), REPORTS)
async def test_properties_are_read_and_written(
    kind: str, members: dict[str, Any], answer: dict[str, Any], virtual_clock: Any
) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            read = await line.ask(kind, **members)
            assert read["messageType"] == ("propertyReading" if "name" in answer else "propertyReadings")
            assert {name: read[name] for name in answer} == answer
            assert (read["thingID"], read["correlationID"]) == ("weather", "m1")
            assert read["timestamp"].endswith("Z")
        accounts(node)


OUTPUTS: tuple[tuple[str, Any, Any], ...] = (
    ("turn", {"city": "Bonn"}, "Bonn 1"),
    ("turn", {"city": "Bonn", "days": 2, "unheard": "of"}, "Bonn 2"),
    ("whole", [1, 2, 3], 6),
    ("nothing", ..., ...),
    ("nothing", None, ...),
    ("nothing", {"unheard": "of"}, ...),
    ("perhaps", ..., None),
    ("raw", ..., "AP8="),
    ("names", {}, ["anna", "bert", "mike", "zoe"]),
    ("slow", {"seconds": 2}, "slept"),
)


@pytest.mark.parametrize(("name", "data", "output"), OUTPUTS)
async def test_actions_are_invoked(name: str, data: Any, output: Any, virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", action=name, input=data)
            await trio.sleep(3)
            (done,) = line.take()
            assert (done["messageType"], done["status"]) == ("actionStatus", "completed")
            assert done.get("output", ...) == output
            assert done["correlationID"] == "m1"
        accounts(node)


OURS = "urn:lmos-actors:errors#"
REFUSALS: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
    ("readProperty", {"name": "unit"}, "404", {"title": "Property Not Found"}),
    ("readProperty", {"name": ""}, "404", {}),
    ("readProperty", {"name": "turn"}, "405", {"started": False}),
    ("readProperty", {"name": "*"}, "404", {}),
    ("readProperty", {"name": "limit"}, "405", {}),
    ("readMultipleProperties", {"properties": ["units", "limit"]}, "405", {}),
    ("readMultipleProperties", {"properties": ["units", "lamit"]}, "404", {}),
    ("writeProperty", {"name": "station", "data": "Rome"}, "405", {}),
    ("writeProperty", {"name": "units", "data": 1}, "400", {"path": "$"}),
    ("writeProperty", {"name": "", "data": {"units": "kelvin"}}, "404", {}),
    ("writeMultipleProperties", {"data": {"units": "kelvin", "limit": "x"}}, "400", {"path": "$.limit"}),
    ("writeMultipleProperties", {"data": {"unots": "kelvin"}}, "404", {}),
    ("writeMultipleProperties", {"data": {"station": "Rome"}}, "405", {}),
    ("invokeAction", {"action": "turm"}, "404", {"title": "Action Not Found"}),
    ("invokeAction", {"action": "?"}, "404", {}),
    ("invokeAction", {"action": "=units", "input": "kelvin"}, "404", {}),
    ("invokeAction", {"action": "+!asked", "input": {}}, "404", {}),
    ("invokeAction", {"action": "units"}, "405", {}),
    ("invokeAction", {"action": "turn"}, "400", {"path": "$.city"}),
    ("invokeAction", {"action": "turn", "input": {"town": "Bonn"}}, "400", {"path": "$.city"}),
    ("invokeAction", {"action": "turn", "input": {"city": 1}}, "400", {"path": "$.city"}),
    ("invokeAction", {"action": "turn", "input": "Bonn"}, "400", {"path": "$"}),
    ("invokeAction", {"action": "whole"}, "400", {"path": "$"}),
    ("invokeAction", {"action": "whole", "input": [1, "x"]}, "400", {"path": "$[1]"}),
    ("invokeAction", {"action": "turn", "streams": {"city": {"stream": 1}}}, "400", {"path": "$.streams"}),
    ("invokeAction", {"action": "nothing", "remaining": 0}, "503", {"type": f"{OURS}deadline-exceeded"}),
    ("observeProperty", {"name": "unit"}, "404", {}),
    ("observeProperty", {"name": "limit"}, "405", {}),
    ("observeProperty", {"name": "asked"}, "405", {}),
    ("subscribeEvent", {"event": "askd"}, "404", {"title": "Event Not Found"}),
    ("subscribeEvent", {"event": ""}, "404", {}),
    ("subscribeEvent", {"event": "units"}, "405", {}),
    ("queryAction", {"action": "turn"}, "404", {}),
    ("cancelAction", {"action": "turn"}, "404", {}),
)


@pytest.mark.parametrize(("kind", "members", "status", "about"), REFUSALS)
async def test_a_request_that_cannot_be_met_is_refused(
    kind: str, members: dict[str, Any], status: str, about: dict[str, Any], virtual_clock: Any
) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            error = await line.ask(kind, **members)
            assert (error["messageType"], error["status"]) == ("error", status)
            assert {name: error[name] for name in about} == about
            read = await line.ask("readProperty", name="units")
            assert read["value"] == "celsius"
        accounts(node)


async def test_an_unknown_thing_is_told_what_is_nearest(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            error = await line.ask("readProperty", thingID="wether", name="units")
            assert (error["title"], error["about"]["nearest"]) == ("Thing Not Found", "weather")
            error = await line.ask("readProperty", name="unit")
            assert error["about"] == {"kind": "property", "name": "unit", "nearest": "units"}


async def test_a_declared_failure_is_a_status(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            failed = await line.ask("invokeAction", action="fail")
            assert (failed["status"], failed["output"]) == ("failed", {"why": "no clouds"})


async def test_a_crash_says_who_had_begun_and_the_next_incarnation_answers(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            hold(weather)
            line.put("invokeAction", action="crash")
            line.put("readProperty", name="units")
            release(weather)
            await settle()
            begun, queued = line.take()
            assert (begun["type"], begun["started"]) == (f"{OURS}agent-died", True)
            assert (queued["type"], queued["started"]) == (f"{OURS}agent-died", False)
            read = await line.ask("readProperty", name="units")
            assert read["value"] == "celsius"
        counts = weather.statistics()
        assert (counts.handled, counts.dead_lettered, counts.restarts) == (2, 1, 1)
        assert not node.dead_letters


async def test_an_agent_that_is_down_is_unavailable_and_one_that_is_gone_not_found(
    virtual_clock: Any,
) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather, restart="transient"))
        async with serving(node) as served:
            line = await served.line()
            await node.root.terminate_child("weather")
            error = await line.ask("readProperty", name="units")
            assert (error["type"], error["started"]) == (f"{OURS}agent-unavailable", False)
            await node.root.delete_child("weather")
            error = await line.ask("readProperty", name="units")
            assert (error["status"], error["title"]) == ("404", "Thing Not Found")
            await node.start_child(ChildSpec("weather", Weather))
            read = await line.ask("readProperty", name="units")
            assert read["value"] == "celsius"


FULL: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("wait", "2", {"refused": 1}),
    ("reject", "2", {"refused": 1}),
    ("drop_newest", "2", {"dropped": 1}),
    ("drop_oldest", "0", {"dropped": 1}),
)


@pytest.mark.parametrize(("when_full", "lost", "counted"), FULL)
async def test_a_full_mailbox(when_full: Any, lost: str, counted: dict[str, int], virtual_clock: Any) -> None:
    async with open_test_node() as node:
        mailbox = MailboxOptions(2, when_full)
        weather = await node.start_child(ChildSpec("weather", Weather, mailbox=mailbox))
        async with serving(node) as served:
            line = await served.line()
            hold(weather)
            for number in range(3):
                line.put("invokeAction", action="turn", input={"city": str(number)}, messageID=str(number))
            (error,) = line.take()
            assert (error["type"], error["started"]) == (f"{OURS}mailbox-full", False)
            assert error["correlationID"] == f"m{int(lost) + 1}"
            assert error["about"] == {"size": 2}
            release(weather)
            await settle()
            assert [done["status"] for done in line.take()] == ["completed"] * 2
        counts = attrs.asdict(weather.statistics())
        assert {name: counts[name] for name in counted} == counted
        accounts(node)


async def test_requests_of_a_connection_keep_their_order(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line, other = await served.line(), await served.line()
            hold(weather)
            line.put("writeProperty", name="units", data="one")
            other.put("readProperty", name="units")
            line.put("invokeAction", action="turn", input={"city": "Bonn"})
            line.put("readProperty", name="units")
            line.put("writeProperty", name="units", data="two")
            release(weather)
            await settle()
            assert [said["correlationID"] for said in line.take()] == ["m1", "m2", "m3", "m4"]
            assert other.take()[0]["value"] == "one"


async def test_what_json_cannot_say_fails_that_request_alone(virtual_clock: Any) -> None:
    class Endless(Agent):
        @action
        def number(self) -> float:
            return 1e308

        @action
        def ok(self) -> int:
            return 1

    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Endless))
        async with serving(node, failures=True) as served:
            line = await served.line()
            session: Any = line.handler
            session.session.complete = _raise  # a mistake in our own code
            error = await line.ask("invokeAction", action="number")
            assert (error["messageType"], error["status"]) == ("error", "500")
            assert [type(each) for each in served.failures] == [ZeroDivisionError]
            del session.session.complete
            done = await line.ask("invokeAction", action="ok")
            assert done["output"] == 1
        accounts(node)


def _raise(*_: object) -> None:
    raise ZeroDivisionError


async def test_the_agent_sees_who_asks(virtual_clock: Any) -> None:
    seen: list[Request] = []

    class Seeing(Agent):
        @action
        def look(self) -> None:
            seen.append(current_request())

        @action
        async def run(self) -> None:
            seen.append(current_request())

    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Seeing))
        async with serving(node) as served:
            line = await served.line(peer="192.0.2.1:4711")
            await line.ask("invokeAction", action="look", messageID="mine", remaining=5, traceparent=trace)
            await line.ask("invokeAction", action="run")
    look, run = seen
    assert (look.affordance, look.consumer, look.message_id) == ("look", "192.0.2.1:4711", "mine")
    assert look.deadline is not None
    assert look.trace == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (run.affordance, run.message_id, run.deadline, run.principal) == ("run", "m2", None, None)


async def test_kotlin_habits_and_spelling(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line(offered=())
            ids: dict[str, Any] = {"thingID": ..., "messageID": ..., "correlationID": ...}
            said = {"thingId": "weather", "messageId": "k1", **ids}
            line.put("readProperty", property="units", **said)
            await settle()
            (read,) = line.take()
            assert (read["thingId"], read["correlationId"], read["property"]) == ("weather", "k1", "units")
            line.put("invokeAction", action="nothing", input={}, **{**said, "messageId": "k2"})
            await settle()
            (done,) = line.take()
            assert (done["status"], done["output"]) == ("completed", None)
            line.put("invokeAction", action="fail", **{**said, "messageId": "k3"})
            await settle()
            (failed,) = line.take()
            assert (failed["messageType"], failed["status"]) == ("error", "500")


async def pooled(served: Serving, by: Any) -> Line:
    await served.node.start_pool(Pool(Weather, 3, name="pool", by=by))
    return await served.line()


@pytest.mark.parametrize("by", ["round_robin", "least_loaded", "key"])
async def test_a_pool_is_one_thing(by: Any, virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as served:
        line = await pooled(served, by)
        for number in range(3):
            done = await line.ask("invokeAction", thingID="pool", action="turn", input={"city": str(number)})
            assert done["output"] == f"{number} 1"
        error = await line.ask("readProperty", thingID="pool", name="units")
        assert error["status"] == "405"
        error = await line.ask("observeProperty", thingID="pool", name="units")
        assert error["status"] == "405"
        read = await line.ask("readProperty", thingID="pool.pool-2", name="units")
        assert read["value"] == "celsius"
        handled = [ref.statistics().handled for ref in node.agents()]
        assert sum(handled) == 4
        if by == "round_robin":
            assert handled == [1, 2, 1]
        accounts(node)


async def test_what_a_member_of_a_pool_has_not_begun_goes_to_another(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Weather, 2, name="pool", shutdown=1.0))
        async with serving(node) as served:
            line = await served.line()
            first = pool.members[0]
            hold(first)
            line.put("invokeAction", thingID="pool", action="turn", input={"city": "Bonn"}, remaining=5)
            await pool.resize(1)
            assert not line.take()  # it waits for the member that stays
            release(first)
            await settle()
            assert line.take()[0]["output"] == "Bonn 1"
            await pool.resize(2)
            hold(pool.members[1])
            for number in range(3):
                line.put("invokeAction", thingID="pool", action="turn", input={"city": f"{number}"})
            await settle()
            assert [done["output"] for done in line.take()] == ["1 1"]
            await pool.resize(1)
            await settle()
            assert [done["output"] for done in line.take()] == ["0 1", "2 1"]
        accounts(node)
