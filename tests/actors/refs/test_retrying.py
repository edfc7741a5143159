"""`ref.retrying()`: what is asked again, how often, and under which id; near and far."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    action,
    open_node,
)
from lmos_actors.actors import slot_of
from lmos_actors.bindings import remote_ref
from tests.bindings.client_connections import Weather, Wire, peers_of, quiet, scripted, two_nodes, weather
from tests.bindings.lmos.test_peer_requests import Later, complete, failing

UNAVAILABLE = "urn:lmos-actors:errors#agent-unavailable"


def refuse(wire: Wire, message: dict[str, Any]) -> None:
    wire.error(message, UNAVAILABLE, 503, "restarting")


async def test_what_is_safe_is_asked_again_under_the_same_id(autojump_clock: Any) -> None:
    ids: list[tuple[str, int]] = []

    def answer(wire: Wire, message: dict[str, Any]) -> None:
        ids.append((message["messageID"], message["attempt"]))
        if len(ids) == 1:
            wire.break_off()
        elif len(ids) == 2:
            refuse(wire, message)
        else:
            complete(wire, message)

    async with scripted(answer) as (peers, _):
        ref = await weather(peers)
        assert await ref.retrying().invoke(Weather.turn, "Bonn") == "Bonn 1"
        assert len({message_id for message_id, _ in ids}) == 1
        attempts = [attempt for _, attempt in ids]
        assert attempts == sorted(set(attempts))
        assert attempts[0] == 1


async def test_who_has_asked_too_often_waits_as_long_as_they_are_told(autojump_clock: Any) -> None:
    asked: list[float] = []

    def answer(wire: Wire, message: dict[str, Any]) -> None:
        asked.append(trio.current_time())
        if len(asked) == 1:
            wire.error(message, "urn:lmos-actors:errors#rate-limited", 429, "too often", retryIn=3.0)
        else:
            complete(wire, message)

    async with scripted(answer) as (peers, _):
        ref = await weather(peers)
        assert await ref.retrying().invoke(Weather.turn, "Bonn") == "Bonn 1"
        assert asked[1] - asked[0] >= 3.0


@pytest.mark.parametrize("verb", ["read", "write", "read_all", "safe", "idempotent"])
async def test_these_are_asked_again(autojump_clock: Any, verb: str) -> None:
    async with scripted(refuse) as (peers, _):
        ref = (await weather(peers)).retrying(attempts=3)
        ask = {
            "read": lambda: ref.read(Weather.units),
            "write": lambda: ref.write(Weather.units, "x"),
            "read_all": ref.read_all,
            "safe": lambda: ref.invoke(Weather.turn, "x"),
            "idempotent": lambda: ref.invoke(Weather.sleep),
        }[verb]
        assert isinstance(await failing(ask()), AgentUnavailable)
        assert len(peers.wire.sent) == 3


async def test_nothing_else_is(autojump_clock: Any) -> None:
    async with scripted(refuse) as (peers, _):
        ref = (await weather(peers)).retrying()
        assert isinstance(await failing(ref.invoke(Weather.forecast, "Bonn")), AgentUnavailable)
        assert len(peers.wire.sent) == 1
        async with ref.begin(Weather.turn, "Bonn") as call:
            assert isinstance(await failing(call.result()), AgentUnavailable)
        await ref.tell(Weather.turn, "Bonn")
        await quiet()
        assert len(peers.wire.sent) == 3


async def test_other_errors_are_answers(autojump_clock: Any) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        wire.error(message, "urn:lmos-actors:errors#agent-died", 500, "boom", started=True)

    async with scripted(answer) as (peers, _):
        ref = await weather(peers)
        assert isinstance(await failing(ref.retrying().invoke(Weather.turn, "x")), AgentDied)
        assert len(peers.wire.sent) == 1


async def test_the_bounds_hold(autojump_clock: Any) -> None:
    async with scripted(refuse) as (peers, _):
        ref = await weather(peers)
        begin = trio.current_time()
        await failing(ref.retrying(attempts=None, seconds=20).invoke(Weather.turn, "x"))
        assert 10 < trio.current_time() - begin <= 20
        begin, before = trio.current_time(), len(peers.wire.sent)
        error = await failing(ref.within(3).retrying(attempts=None, seconds=None).invoke(Weather.turn, "x"))
        assert isinstance(error, DeadlineExceeded)
        assert error.seconds == 3
        assert trio.current_time() - begin == pytest.approx(3, abs=0.02)
        assert len(peers.wire.sent) > before + 2
        with trio.move_on_after(60) as scope:
            await ref.retrying(attempts=None, seconds=None).invoke(Weather.turn, "x")
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    "bounds", [{"attempts": 0}, {"attempts": 1.5}, {"seconds": 0}, {"seconds": float("inf")}]
)
async def test_bounds_that_are_none_are_refused(autojump_clock: Any, bounds: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        with pytest.raises(ValueError, match="retrying"):
            ref.retrying(**bounds)


async def test_a_view_is_the_same_ref(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        ref = await weather(peers)
        view = ref.retrying()
        assert view == ref
        assert hash(view) == hash(ref)
        assert view.path == "weather"
        assert view.retrying().within(1) == ref
        await view.ready()


async def test_a_hint_of_the_peer_is_waited_for(autojump_clock: Any) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        if len(wire.sent) == 1:
            wire.error(message, UNAVAILABLE, 503, "restarting", retryIn=2.0)
        else:
            complete(wire, message)

    async with scripted(answer) as (peers, _):
        ref = await weather(peers)
        begin = trio.current_time()
        await ref.retrying().invoke(Weather.turn, "Bonn")
        assert trio.current_time() - begin >= 2


async def test_a_break_is_ridden_out(autojump_clock: Any) -> None:
    async with two_nodes() as (_, client), trio.open_nursery() as nursery:
        ref = remote_ref(peers_of(client), Weather, "ws://server/agents/weather")
        await ref.ready()
        network: Any = client._connections.network
        asks = [Later(nursery, ref.retrying().invoke(Weather.turn, str(n))) for n in range(30)]
        await trio.lowlevel.checkpoint()
        network.sever("server", 80)
        for number, each in enumerate(asks):
            await each.done.wait()
            assert each.value == f"{number} 1", each.error


async def test_a_run_goes_on_and_its_answer_is_given_to_who_asks_again(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        (near,) = server.agents()
        ref = remote_ref(peers_of(client), Weather, "ws://server/agents/weather")
        await ref.ready()
        network: Any = client._connections.network
        for _ in range(3):
            with trio.move_on_after(0.5) as scope:
                await ref.retrying().invoke(Weather.sleep)
            assert scope.cancelled_caught
            network.sever("server", 80)
            await quiet()
            await ref.ready()
        assert near.statistics().accepted == 3


async def test_near_it_rides_out_a_time_without_the_agent(autojump_clock: Any) -> None:
    async with open_node() as node, trio.open_nursery() as nursery:
        ref = await node.start(Weather)
        await node.root.terminate_child("weather")
        views = [ref.retrying(), node.find(Weather, "weather").retrying()]
        asks = [Later(nursery, view.invoke(Weather.turn, "Bonn")) for view in views]
        asks.append(Later(nursery, ref.retrying().invoke(Weather.forecast, "Bonn")))
        await trio.sleep(1)
        assert [each.done.is_set() for each in asks] == [False, False, True]
        assert isinstance(asks[2].error, AgentUnavailable)
        await node.root.restart_child("weather")
        for each in asks[:2]:
            await each.done.wait()
            assert each.value == "Bonn 1"


async def test_a_view_of_a_view_has_the_later_bounds_and_leads_to_the_same_agent(autojump_clock: Any) -> None:
    class Neighbour(Agent):
        @action
        def meet(self) -> None:
            self.follow(view, Weather.asked, self.note)
            self.monitor(view, self.note)
            self.link(view)

        def note(self, _: Any) -> None:
            pass

    async with open_node() as node:
        near = await node.start(Weather)
        view = near.retrying().retrying()
        assert slot_of(view) is slot_of(near)
        await (await node.start(Neighbour)).invoke(Neighbour.meet)
        assert node.crash_reports == ()
    async with scripted(refuse) as (peers, _):
        ref = await weather(peers)
        await failing(ref.retrying(attempts=9).retrying(attempts=2).invoke(Weather.turn, "Bonn"))
        assert len(peers.wire.sent) == 2
