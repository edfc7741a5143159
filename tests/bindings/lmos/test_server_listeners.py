"""Observations, subscriptions and monitors over LMOS: they belong to the slot (DECISIONS W2, W3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Event, Pool, Property, action, event, prop
from lmos_actors.actors import hold, release, slot_of
from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, accounts, serving


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()
    parts: Event[frozenset[str]] = event()
    big: Event[str] = event()

    @action
    def set(self, units: str) -> None:
        self.units = units

    @action
    def say(self, text: str) -> None:
        self.asked.emit(text)
        self.parts.emit(frozenset(text))

    @action
    def flood(self, count: int) -> None:
        for number in range(count):
            self.asked.emit(str(number))

    @action
    def shout(self, size: int) -> None:
        self.big.emit("x" * size)
        self.big.emit("y")

    @action
    def crash(self) -> None:
        raise KeyError("boom")


def listeners(ref: Any) -> int:
    return sum(map(len, slot_of(ref).sinks().by_key.values()))


async def test_an_observation_gives_the_value_then_every_change(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            first = await line.ask("observeProperty", name="units")
            assert (first["messageType"], first["value"]) == ("propertyReading", "celsius")
            await weather.invoke(Weather.set, "kelvin")
            (second,) = line.take()
            assert (second["value"], second["correlationID"]) == ("kelvin", "m1")
            for units in ("a", "b", "c"):
                await weather.invoke(Weather.set, units)
            assert [reading["value"] for reading in line.take()] == ["c"]
            line.put("unobserveProperty", name="units")
            assert listeners(weather) == 0
            await weather.invoke(Weather.set, "d")
            assert not line.take()
        accounts(node)


async def test_a_restart_is_a_gap_and_then_the_new_value(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line, plain = await served.line(), await served.line()
            line.put("observeProperty", name="units", gaps=True)
            line.put("subscribeEvent", event="asked", gaps=True)
            plain.put("observeProperty", name="units")
            await weather.invoke(Weather.set, "kelvin")
            await settle()
            line.take()
            plain.take()
            line.put("invokeAction", action="crash")
            await settle()
            kinds = [(said["messageType"], said["correlationID"]) for said in line.take()]
            assert sorted(kinds) == [
                ("error", "m3"),
                ("gap", "m1"),
                ("gap", "m2"),
                ("propertyReading", "m1"),
            ]
            assert kinds.index(("gap", "m1")) < kinds.index(("propertyReading", "m1"))
            assert [said["value"] for said in plain.take()] == ["celsius"]
            await weather.invoke(Weather.say, "hi")
            assert [said["data"] for said in line.take()] == ["hi"]


async def test_events_are_heard_one_by_one_and_all_together(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            one, every = await served.line(), await served.line()
            one.put("subscribeEvent", event="asked")
            every.put("subscribeAllEvents")
            await settle()
            assert not one.take()
            await weather.invoke(Weather.say, "ba")
            assert [(said["event"], said["data"]) for said in one.take()] == [("asked", "ba")]
            told = [(said["event"], said["data"]) for said in every.take()]
            assert told == [("asked", "ba"), ("parts", ["a", "b"])]
            one.put("unsubscribeEvent", event="asked")
            every.put("unsubscribeAllEvents", ack=True)
            assert every.take()[0]["messageType"] == "acknowledgement"
            await weather.invoke(Weather.say, "x")
            assert not one.take() + every.take()
            assert listeners(weather) == 0
        accounts(node)


async def test_acknowledged_where_that_is_wanted(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            for _ in range(2):
                said = await line.ask("unsubscribeEvent", event="asked", ack=True)  # of nothing: a success
                assert (said["messageType"], said["message"]) == ("acknowledgement", "unsubscribeEvent")
            said = await line.ask("subscribeEvent", event="asked", ack=True)
            assert said["message"] == "subscribeEvent"


async def test_a_repeat_replaces_and_nothing_is_delivered_twice(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            for _ in range(3):
                line.put("subscribeEvent", event="asked")
                line.put("observeProperty", name="units")
            await settle()
            assert [said["correlationID"] for said in line.take()] == ["m2", "m4", "m6"]
            assert listeners(weather) == 2
            await weather.invoke(Weather.say, "x")
            await weather.invoke(Weather.set, "y")
            assert [said["correlationID"] for said in line.take()] == ["m5", "m6"]


async def test_a_listener_that_left_before_it_was_accepted_hears_nothing(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            hold(weather)
            line.put("observeProperty", name="units")
            line.put("unobserveProperty", name="units")
            line.put("subscribeEvent", event="asked")
            release(weather)
            await settle()
            assert listeners(weather) == 1
            line.leave()
            await settle()
            assert listeners(weather) == 0
        accounts(node)


async def test_a_slow_reader_of_events_misses_the_oldest_and_is_told(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("subscribeEvent", event="asked", gaps=True)
            await settle()
            await weather.invoke(Weather.flood, 1000)
            assert line.session_there.waiting <= 64
            said = line.take()
            events = [int(one["data"]) for one in said if one["messageType"] == "event"]
            gaps = [one["missed"] for one in said if one["messageType"] == "gap"]
            assert events[:64] == [*range(64)]
            assert len(events) < 130
            assert events[-1] == 999
            assert events == sorted(events)
            assert sum(gaps) + len(events) == 1000
            await weather.invoke(Weather.say, "on")
            assert [one["data"] for one in line.take()] == ["on"]


async def test_events_that_wait_stay_in_order(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather, restart="temporary"))
        async with serving(node) as served:
            line, other = await served.line(), await served.line()
            line.put("subscribeEvent", event="asked")
            other.put("subscribeEvent", event="asked")
            await settle()
            await weather.invoke(Weather.flood, 100)
            first = line.handler.frames(1_000_000)
            await weather.invoke(Weather.say, "last")
            frames = [*first, *line.raw()]
            assert [json.loads(frame)["data"] for frame in frames] == [*map(str, range(100)), "last"]
            other.put("invokeAction", action="crash")
            await settle()
            said = other.take()
            assert [one["data"] for one in said if "data" in one] == [*map(str, range(100)), "last"]
            assert said[-1]["title"] == "Thing Not Found"


async def test_answers_pass_events_that_wait(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("subscribeEvent", event="asked")
            await weather.invoke(Weather.flood, 200)
            line.put("readProperty", name="units")
            await settle()
            assert len([one for one in line.take() if one["messageType"] == "propertyReading"]) == 1


async def test_an_event_that_is_too_long_is_a_gap(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        options = lmos.SessionOptions(max_bytes=1000)
        async with serving(node, options=options, failures=True) as served:
            line = await served.line()
            line.put("subscribeEvent", event="big", gaps=True)
            await settle()
            await weather.invoke(Weather.shout, 5000)
            gap, said = line.take()
            assert (gap["messageType"], gap["missed"], said["data"]) == ("gap", 1, "y")
            line.put("observeProperty", name="units")
            await settle()
            line.take()
            await weather.invoke(Weather.set, "z" * 5000)
            await weather.invoke(Weather.say, "after")
            assert not line.take()
            assert [type(each) for each in served.failures] == [LocalProtocolError] * 2


async def test_the_end_of_the_agent_for_good_ends_every_listening(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather, restart="temporary"))
        async with serving(node) as served:
            line = await served.line()
            line.put("observeProperty", name="units")
            line.put("subscribeEvent", event="asked")
            line.put("subscribeAllEvents")
            line.put("subscribeEvent", event="lmosx:exited")
            await settle()
            line.take()
            line.put("invokeAction", action="crash")
            await settle()
            said = line.take()
            ended = [one["correlationID"] for one in said if one.get("title") == "Thing Not Found"]
            assert sorted(ended) == ["m1", "m2", "m3", "m4"]
            exits = [one["data"] for one in said if one.get("event") == "lmosx:exited"]
            assert [down["reason"]["kind"] for down in exits] == ["error"]


async def test_the_end_of_an_agent_is_heard_by_those_that_monitor_it(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            said = await line.ask("subscribeEvent", event="lmosx:exited", ack=True)
            assert said["messageType"] == "acknowledgement"
            line.put("invokeAction", action="crash")
            await settle()
            (told,) = [one for one in line.take() if one["messageType"] == "event"]
            assert told["event"] == "lmosx:exited"
            assert told["data"] == {
                "agent": "weather",
                "incarnation": 1,
                "generation": served.server.context.generation,
                "reason": {"kind": "error", "text": "KeyError: 'boom'"},
            }
            await weather.ready()
            await node.root.terminate_child("weather")
            (told,) = line.take()
            assert told["data"]["reason"] == {"kind": "shutdown"}
            line.put("unsubscribeEvent", event="lmosx:exited")
            assert listeners(weather) == 0


async def test_a_pool_is_heard_as_a_whole(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Weather, 2, name="pool"))
        async with serving(node) as served:
            line = await served.line()
            line.put("subscribeEvent", thingID="pool", event="asked")
            line.put("subscribeEvent", thingID="pool", event="lmosx:exited")
            for text in ("one", "two"):
                await pool.invoke(Weather.say, text)
            assert [one["data"] for one in line.take()] == ["one", "two"]
            with pytest.raises(Exception, match="died"):
                await pool.invoke(Weather.crash)
            assert [one["data"]["agent"] for one in line.take()] == ["pool/pool-1"]


async def test_who_listens_is_bounded(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        options = lmos.SessionOptions(max_listening=2)
        async with serving(node, options=options) as served:
            line: Line = await served.line()
            line.put("subscribeEvent", event="asked")
            line.put("subscribeEvent", event="parts")
            error = await line.ask("subscribeEvent", event="big")
            assert error["title"] == "Mailbox Full"
            await trio.sleep(1)
            assert listeners(weather) == 2
