"""Listening over HTTP: streams of events, and long polls."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import ChildSpec, Pool, SupervisorSpec
from lmos_actors.actors import slot_of
from lmos_actors.bindings import HttpOptions
from tests.bindings.web import Heard, Weather, Web, World, run, served, world


def sinks(there: World) -> int:
    """How many listen to the agent."""
    return sum(map(len, slot_of(there.ref).sinks().by_key.values()))


async def heard(web: Web) -> tuple[str, Any]:
    found = await web.heard()
    assert found is not None
    return found.name, found.data


# ---- streams of events


def test_a_property_is_told_now_and_whenever_it_changes() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = await web.listen("properties/units/observable")
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert head.headers["cache-control"] == "no-store"
        assert await web.heard() == Heard("", "celsius", "1")
        await there.ref.write(Weather.units, "kelvin")
        assert await web.heard() == Heard("", "kelvin", "2")

    served(main)


def test_an_event_is_told_as_often_as_it_happens() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events/asked")
        for city in ("Rome", "Bonn\n\nevent: x"):
            await there.ref.invoke(Weather.tell, city)
        assert [await heard(web) for _ in range(2)] == [("", "Rome"), ("", "Bonn\n\nevent: x")]

    served(main)


def test_all_events_and_all_properties_are_told_by_name() -> None:
    async def main(there: World) -> None:
        events, properties = await there.client(), await there.client()
        assert (await events.listen("events")).status == 200
        assert (await properties.listen("properties")).status == 200
        assert [await heard(properties) for _ in range(2)] == [("units", "celsius"), ("station", "Bonn")]
        await there.ref.invoke(Weather.tell, "Rome")
        await there.ref.invoke(Weather.warn, 3)
        await there.ref.write(Weather.units, "kelvin")
        assert [await heard(events) for _ in range(2)] == [("asked", "Rome"), ("warned", 3)]
        assert await heard(properties) == ("units", "kelvin")

    served(main)


def test_a_new_life_is_a_gap_and_then_the_value() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("properties/units/observable")
        assert await heard(web) == ("", "celsius")
        await there.ref.write(Weather.units, "kelvin")
        assert await heard(web) == ("", "kelvin")
        assert (await there.ask("POST", "actions/crash")).status == 500
        name, gap = await heard(web)
        assert (name, gap["missed"]) == ("lmosx:gap", None)
        assert gap["reason"]
        assert await heard(web) == ("", "celsius")

    served(main)


def test_who_comes_back_is_told_that_something_may_be_missing() -> None:
    async def main(there: World) -> None:
        for path, first in (("properties/units/observable", "celsius"), ("events/asked", "Rome")):
            web = await there.client()
            await web.listen(path, last_event_id="17")
            assert await heard(web) == ("lmosx:gap", {"reason": "reconnected", "missed": None})
            await there.ref.invoke(Weather.tell, "Rome")
            assert await heard(web) == ("", first)
            await web.leave()

    served(main)


@pytest.mark.parametrize("options", [HttpOptions(), HttpOptions(heartbeat_seconds=4)])
def test_a_quiet_stream_says_that_it_is_there(options: HttpOptions) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events/asked")
        assert await web.line() == b": listening"
        began = trio.current_time()
        assert [await web.line() for _ in range(3)] == [b":", b":", b":"]
        assert trio.current_time() - began == pytest.approx(3 * options.heartbeat_seconds)

    served(main, http=options)


def test_a_stream_ends_when_its_agent_is_gone_for_good() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events")
        await there.node.root.terminate_child("weather")
        await wait_all_tasks_blocked()
        await there.node.root.delete_child("weather")
        assert (await heard(web))[0] == "lmosx:gap"
        assert await heard(web) == ("lmosx:end", None)
        assert await web.heard() is None

    served(main)


def test_a_stream_ends_when_the_node_leaves_and_is_to_be_opened_again_later() -> None:
    async def main(there: World) -> None:
        web, poll = await there.client(), await there.client()
        await web.listen("events/asked")
        await poll.send("GET", "events/asked")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(there.node.drain)
            await there.ref.invoke(Weather.tell, "Rome")
            assert (await poll.answer()).data == "Rome"
            assert await heard(web) == ("", "Rome")
            assert await web.heard() is None

    served(main)


def test_a_poll_is_answered_when_the_node_leaves() -> None:
    async def main(there: World) -> None:
        poll = await there.client()
        await poll.send("GET", "properties/units/observable")
        await wait_all_tasks_blocked()
        await there.node.drain()
        assert (await poll.answer()).problem == (503, "agent-unavailable")

    served(main)


def test_who_leaves_is_not_told_any_more() -> None:
    async def main(there: World) -> None:
        for path in ("events", "properties", "events/asked", "properties/units/observable"):
            web, poll = await there.client(), await there.client()
            await web.listen(path)
            if path.count("/"):
                await poll.send("GET", path)
            await wait_all_tasks_blocked()
            assert sinks(there) == {"events": 1, "properties": 2}.get(path, 2)
            await web.leave()
            await poll.leave()
            await wait_all_tasks_blocked()
            assert sinks(there) == 0

    served(main)


def test_a_client_that_never_reads_holds_nobody_back_and_is_given_up() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events/warned")
        assert await web.line() == b": listening"
        for _ in range(50):
            await there.ref.invoke(Weather.warn, 1, 100)
        await trio.sleep(1)
        assert sinks(there) == 1
        await trio.sleep(60)
        assert sinks(there) == 0  # the front door waits so long for a write, and no longer

    served(main, buffer=1024)


@pytest.mark.slow
def test_large_events_leave_one_by_one() -> None:
    """What is put together for a client is a copy of its own, for each that does not read."""

    async def main(there: World) -> None:
        web = await there.client()
        await web.send("GET", "events/asked", b"", accept="text/event-stream")
        await wait_all_tasks_blocked()
        for _ in range(20):
            await there.ref.invoke(Weather.tell, "x" * 50_000)
        await wait_all_tasks_blocked()
        raw = b""
        while raw.count(b"x" * 50_000) < 20:
            raw += await web.stream.receive_some()
        sizes = [int(size, 16) for size in re.findall(rb"\r\n([0-9a-f]+)\r\n", raw)]  # of HTTP's chunks
        assert sum(sizes) > 20 * 50_000
        assert max(sizes) < 2 * 50_000 + 1_000

    served(main, buffer=1024)


def test_a_slow_client_is_told_how_much_it_has_missed() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events/warned")
        for level in range(1_000):
            await there.ref.invoke(Weather.warn, level)
        await wait_all_tasks_blocked()
        values, missed, data = 0, 0, None
        while values + missed < 1_000:
            name, data = await heard(web)
            if name:
                missed += data["missed"]
            else:
                values += 1
        assert data == 999
        assert missed > 0

    served(main, buffer=1024)


def test_of_a_property_a_slow_client_is_told_the_latest_value() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("properties/units/observable")
        for number in range(2_000):
            await there.ref.write(Weather.units, f"{number:0100}")
        await wait_all_tasks_blocked()
        told = [await heard(web)]
        while told[-1][1] != f"{1999:0100}":
            told.append(await heard(web))
        assert len(told) < 200

    served(main, buffer=1024)


def test_what_json_cannot_say_is_a_gap() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.listen("events/warned")
        slot = slot_of(there.ref)
        slot.sinks().push("!warned", float("nan"))
        slot.sinks().push("!warned", 4)
        name, data = await heard(web)
        assert (name, data["missed"]) == ("lmosx:gap", 1)
        assert await heard(web) == ("", 4)
        assert len(there.node.connection_failures) == 1
        there.node._connections.failures.clear()  # pyright: ignore[reportPrivateUsage]

    served(main)


def test_events_of_a_pool_are_those_of_all_its_members() -> None:
    async def main() -> None:
        async with world(spec=SupervisorSpec("root", [Pool(Weather, 2, name="weather")])) as there:
            web, every = await there.client(), await there.client()
            await web.listen("events/asked")
            await every.listen("events")
            for city in ("a", "b"):
                assert (await there.ask("POST", "actions/tell", {"city": city})).status == 200
            assert {await heard(web) for _ in range(2)} == {("", "a"), ("", "b")}
            assert {await heard(every) for _ in range(2)} == {("asked", "a"), ("asked", "b")}

    run(main)


# ---- long polls


def test_a_poll_waits_for_the_next_value() -> None:
    async def main(there: World) -> None:
        for path in ("properties/units/observable", "events/asked"):
            web = await there.client()
            await web.send("GET", path, accept="*/*")
            await trio.sleep(100)
            await there.ref.invoke(Weather.tell, "Rome")
            await there.ref.write(Weather.units, "kelvin")
            answer = await web.answer()
            assert (answer.status, answer.data) == (200, "kelvin" if "units" in path else "Rome")
            assert answer.headers["cache-control"] == "no-store"
            await there.ref.write(Weather.units, "celsius")

    served(main)


def test_of_an_observation_a_poll_may_say_which_value_it_has() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("GET", "properties/units/observable")
        await wait_all_tasks_blocked()
        await there.ref.write(Weather.units, "kelvin")
        tag = (await web.answer()).headers["etag"]
        await there.ref.write(Weather.units, "rankine")
        missed = await web.ask("GET", "properties/units/observable", if_none_match=tag)
        assert missed.data == "rankine"
        assert missed.headers["etag"] == (await web.ask("GET", "properties/units")).headers["etag"]
        await web.send("GET", "properties/units/observable", if_none_match=missed.headers["etag"])
        await trio.sleep(9)
        await there.ref.write(Weather.units, "celsius")
        assert (await web.answer()).data == "celsius"

    served(main)


@pytest.mark.parametrize("path", ["properties/units/observable", "events/asked"])
def test_a_poll_may_say_how_long_it_waits(path: str) -> None:
    async def main(there: World) -> None:
        began = trio.current_time()
        assert (await there.ask("GET", path, prefer="wait=20")).status == 204
        assert trio.current_time() - began == pytest.approx(20, abs=0.1)

    served(main)


def test_a_poll_outlives_the_agents_crash() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("GET", "properties/units/observable")
        await wait_all_tasks_blocked()
        await there.ask("POST", "actions/crash")
        assert (await web.answer()).data == "celsius"  # what the next life begins with

    served(main)


def test_a_poll_ends_when_its_agent_is_gone_for_good() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("GET", "events/asked")
        await wait_all_tasks_blocked()
        await there.node.root.terminate_child("weather")
        await there.node.root.delete_child("weather")
        assert (await web.answer()).problem == (404, "not-found")

    served(main)


def test_a_change_right_after_a_poll_has_begun_is_not_missed() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("GET", "properties/units/observable")
        while not sinks(there):
            await trio.lowlevel.checkpoint()
        await there.ref.write(Weather.units, "kelvin")  # perhaps before the poll looks again
        assert (await web.answer()).data == "kelvin"

    served(main)


def test_listeners_of_one_agent_hear_nothing_of_another() -> None:
    spec = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("other", Weather)])

    async def main() -> None:
        async with world(spec=spec) as there:
            web = await there.client("/agents/other")
            await web.listen("events/asked")
            await there.ask("POST", "/agents/weather/actions/tell", {"city": "a"})
            await there.ask("POST", "/agents/other/actions/tell", {"city": "b"})
            assert await heard(web) == ("", "b")

    run(main)
