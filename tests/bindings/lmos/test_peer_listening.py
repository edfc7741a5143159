"""Listening from afar: shared over the connection, going on over its breaks, and what agents follow."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import AgentUnavailable, Down, ExitReason, Gap, NotAllowed, NotFound
from lmos_actors.bindings import RemoteCrash, remote_thing
from lmos_actors.errors import RemoteProtocolError
from lmos_actors.types import Occurrence
from tests.bindings.client_connections import THING, URL, Weather, Wire, quiet, scripted, weather
from tests.bindings.lmos.test_peer_requests import Later

LMOS = "https://eclipse.dev/lmos/protocol/v1/errors#"
UNAVAILABLE = "urn:lmos-actors:errors#agent-unavailable"


def confirm(wire: Wire, message: dict[str, Any]) -> None:
    """Confirm all that is listened to, as a thing of ours does."""
    if message["messageType"] == "observeProperty":
        wire.reading(message, message["name"], "celsius")
    elif message.get("ack"):
        wire.acknowledge(message)


async def test_one_subscription_is_made_for_many(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked) as one, ref.subscribe(Weather.asked) as other:
            thing = remote_thing(peers, URL, THING)
            async with thing.subscribe("asked", size=1) as third:
                sent = peers.wire.last("subscribeEvent")
                assert peers.wire.kinds() == ["subscribeEvent"]
                for city in ("Bonn", "Rome"):
                    peers.wire.event(sent, "asked", city)
                assert [await one.receive(), await one.receive()] == ["Bonn", "Rome"]
                assert await other.receive() == "Bonn"
                assert (await third.receive(), third.missed) == ("Rome", 1)
            await quiet()
            assert peers.wire.kinds() == ["subscribeEvent"]
        await quiet()
        assert peers.wire.kinds() == ["subscribeEvent", "unsubscribeEvent"]
        async with ref.subscribe(Weather.asked):
            assert peers.wire.kinds()[2:] == ["subscribeEvent"]


async def test_a_late_observer_is_given_the_last_value(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.observe(Weather.units) as one:
            assert await one.receive() == "celsius"
            peers.wire.reading(peers.wire.last("observeProperty"), "units", "kelvin")
            async with ref.observe(Weather.units) as late:
                assert await late.receive() == "kelvin"
            assert await one.receive() == "kelvin"
        await quiet()
        assert peers.wire.kinds() == ["observeProperty", "unobserveProperty"]


async def test_entering_waits_until_the_subscription_stands(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        entered = trio.Event()

        async def listen() -> None:
            async with ref.subscribe(Weather.asked) as asked:
                entered.set()
                assert await asked.receive() == "Bonn"

        later = Later(nursery, listen())
        await quiet()
        assert not entered.is_set()
        sent = peers.wire.last("subscribeEvent")
        peers.wire.acknowledge(sent)
        await entered.wait()
        peers.wire.event(sent, "asked", "Bonn")
        await later.done.wait()
        assert later.error is None


async def test_a_refusal_leaves_the_entering(autojump_clock: Any) -> None:
    def refuse(wire: Wire, message: dict[str, Any]) -> None:
        wire.error(message, LMOS + "operation-not-allowed", 405, "property 'limit' cannot be observed")

    async with scripted(refuse) as (peers, _):
        ref = await weather(peers)
        for _ in range(2):  # nothing is left of the first
            with pytest.raises(NotAllowed, match="cannot be observed"):
                async with ref.observe(Weather.limit):
                    raise AssertionError
        assert peers.wire.kinds() == ["observeProperty", "observeProperty"]


async def test_a_refusal_of_who_confirms_nothing_comes_with_the_first_value(autojump_clock: Any) -> None:
    async with scripted(offers=None) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked) as asked:
            await quiet()
            sent = peers.wire.last("subscribeEvent")
            assert "ack" not in sent
            peers.wire.event(sent, "asked", "Bonn")
            peers.wire.error(sent, LMOS + "not-found", 404, "no event", title="Event Not Found")
            assert await asked.receive() == "Bonn"
            for _ in range(2):
                with pytest.raises(NotFound, match="no event"):
                    await asked.receive()


async def test_subscriptions_go_on_over_breaks(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with (
            ref.subscribe(Weather.asked, gaps=True) as asked,
            ref.observe(Weather.units, gaps=True) as units,
            ref.subscribe_all() as everything,
        ):
            assert await units.receive() == "celsius"
            for number in range(3):
                peers.wire.break_off()
                assert await asked.receive() == Gap("connection lost")
                assert await units.receive() == Gap("connection lost")
                await ref.ready()
                await quiet()
                assert sorted(peers.wire.kinds()) == [
                    "observeProperty",
                    "subscribeAllEvents",
                    "subscribeEvent",
                ]
                assert await units.receive() == "celsius"
                peers.wire.event(peers.wire.last("subscribeEvent"), "asked", f"Bonn {number}")
                peers.wire.event(peers.wire.last("subscribeAllEvents"), "asked", "all")
                assert await asked.receive() == f"Bonn {number}"
                assert await everything.receive() == Occurrence("asked", "all")
        await quiet()
        assert len(peers.wire.kinds()) == 6


async def test_a_gap_of_the_thing_is_told(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked, gaps=True) as asked:
            sent = peers.wire.last("subscribeEvent")
            assert sent["gaps"] is True
            peers.wire.say("gap", sent, reason="restarted", missed=3)
            peers.wire.event(sent, "asked", "Bonn")
            assert await asked.receive() == Gap("restarted", 3)
            assert await asked.receive() == "Bonn"
            assert asked.missed == 3


async def test_a_value_of_another_type_ends_the_feed(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        thing = remote_thing(peers, URL, THING)
        async with ref.subscribe(Weather.asked) as asked, thing.subscribe("asked") as plain:
            peers.wire.event(peers.wire.last("subscribeEvent"), "asked", ["no text"])
            with pytest.raises(RemoteProtocolError, match="'asked' with what is no str"):
                await asked.receive()
            assert await plain.receive() == ["no text"]


async def test_an_agent_that_is_down_is_listened_to_when_it_is_back(autojump_clock: Any) -> None:
    answers = ["confirm", "down", "down", "confirm"]

    def answer(wire: Wire, message: dict[str, Any]) -> None:
        if message["messageType"] == "subscribeEvent":
            if answers.pop(0) == "confirm":
                wire.acknowledge(message)
            else:
                wire.error(message, UNAVAILABLE, 503, "restarting")

    async with scripted(answer) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked, gaps=True) as asked:
            peers.wire.break_off()
            assert await asked.receive() == Gap("connection lost")
            await trio.sleep(5)
            assert answers == []
            peers.wire.event(peers.wire.last("subscribeEvent"), "asked", "Bonn")
            assert await asked.receive() == "Bonn"


async def test_the_end_of_the_agent_is_the_end_of_the_feed(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked) as asked:
            sent = peers.wire.last("subscribeEvent")
            peers.wire.event(sent, "asked", "Bonn")
            peers.wire.error(sent, LMOS + "not-found", 404, "gone", about={"kind": "agent", "name": THING})
            assert [city async for city in asked] == ["Bonn"]


async def test_a_break_while_entering_is_told(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)

        async def listen() -> None:
            async with ref.observe(Weather.units):
                raise AssertionError

        later = Later(nursery, listen())
        await quiet()
        peers.wire.break_off()
        await later.done.wait()
        assert isinstance(later.error, AgentUnavailable)
        await ref.ready()
        await quiet()
        assert peers.wire.kinds() == []


async def test_monitors_travel_as_an_event(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.monitor() as downs:
            sent = peers.wire.last("subscribeEvent")
            assert sent["event"] == "lmosx:exited"
            for reason in (
                {"kind": "normal"},
                {"kind": "shutdown", "text": "not needed"},
                {"kind": "shutdown"},
                {"kind": "error", "text": "KeyError: 'boom'"},
            ):
                data = {"agent": "weather", "incarnation": 2, "generation": "x", "reason": reason}
                peers.wire.event(sent, "lmosx:exited", data)
            peers.wire.event(sent, "lmosx:exited", "nonsense")
            found = [await downs.receive() for _ in range(5)]
            assert found[0] == Down("weather", 2, ExitReason("normal"))
            assert found[1] == Down("weather", 2, ExitReason("shutdown", "not needed"))
            assert found[2] == Down("weather", 2, ExitReason("shutdown"))
            assert found[3].reason.kind == "error"
            assert isinstance(found[3].reason.error, RemoteCrash)
            assert str(found[3].reason.error) == "KeyError: 'boom'"
            assert (found[4].incarnation, found[4].reason.kind) == (0, "error")
            peers.wire.break_off()  # it may live on, but nobody here would hear of its end
            await ref.ready()
            await quiet()
            assert peers.wire.kinds() == ["subscribeEvent"]
            assert downs.receive_nowait() == Down("weather", 0, ExitReason("shutdown", "connection lost"))
            with pytest.raises(trio.WouldBlock):
                downs.receive_nowait()


async def test_the_end_of_the_connection_is_the_end_of_a_foreign_agent(autojump_clock: Any) -> None:
    async with scripted(offers=None) as (peers, _):
        ref = await weather(peers)
        async with ref.monitor() as downs:
            for _ in range(2):
                peers.wire.break_off()
                assert await downs.receive() == Down("weather", 0, ExitReason("shutdown", "connection lost"))
                await ref.ready()
            assert peers.wire.kinds() == []


async def test_a_subscription_that_its_thing_ends_for_now_has_a_gap(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, _):
        ref = await weather(peers)
        async with ref.subscribe(Weather.asked, gaps=True) as asked:
            sent = peers.wire.last("subscribeEvent")
            peers.wire.event(sent, "asked", "Bonn")
            peers.wire.error(sent, UNAVAILABLE, 503, "it restarts")
            await trio.sleep(1.0)
            again = peers.wire.last("subscribeEvent")
            assert again["messageID"] != sent["messageID"]
            peers.wire.event(again, "asked", "Rome")
            heard = [await asked.receive() for _ in range(3)]
            assert heard == ["Bonn", Gap("subscription ended"), "Rome"]
