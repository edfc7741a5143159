"""Agents that turn to far agents: from their turns, by following, by monitoring."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from lmos_actors import Agent, AgentDied, Down, Gap, InvalidInput, NotAllowed, Ref, action
from lmos_actors.bindings import remote_ref
from lmos_actors.protocol import lmos
from tests.bindings.client_connections import OFFERS, Weather, peers_of, quiet, scripted, two_nodes, weather
from tests.bindings.lmos.test_peer_listening import confirm
from tests.bindings.lmos.test_peer_requests import complete


class Station(Agent):
    weather: Any
    heard: list[Any] = attrs.field(factory=list)
    following: Any = None

    @action
    def listen(self) -> None:
        self.following = self.follow(self.weather, Weather.asked, self.on_asked, on_gap=self.on_gap)
        self.monitor(self.weather, self.on_down)

    @action
    def stop_listening(self) -> None:
        self.following.cancel()

    @action
    def report(self, number: int) -> None:
        for each in range(number):
            self.send(self.weather, Weather.turn, str(each))

    @action
    def ask(self) -> None:
        self.weather.invoke(Weather.turn, "x")

    @action
    def send_nonsense(self) -> None:
        self.send(self.weather, Weather.turn, 3)  # type: ignore[arg-type]

    @action
    def tie(self) -> None:
        self.link(self.weather)

    @action
    def ping(self) -> str:
        return "pong"

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    def on_asked(self, city: str) -> None:
        self.heard.append(city)

    def on_gap(self, gap: Gap) -> None:
        self.heard.append(gap.reason)

    def on_down(self, down: Down) -> None:
        self.heard.append(down.reason.kind)


async def station(node: Any, ref: Any) -> tuple[Ref[Station], Any]:
    """Start an agent that has a far ref; give its ref, and a function for the agent itself."""
    found = await node.start(Station, weather=ref)
    return found, lambda: found._link.agent


async def test_far_events_and_ends_are_turns(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, node):
        ref, agent = await station(node, await weather(peers))
        await ref.invoke(Station.listen)
        await quiet()
        wire = peers.wire
        asked, exited = (message for message in wire.sent if message["messageType"] == "subscribeEvent")
        wire.event(asked, "asked", "Bonn")
        wire.event(asked, "asked", 3)  # of another type
        wire.event(exited, "lmosx:exited", {"incarnation": 1, "reason": {"kind": "normal"}})
        await quiet()
        assert sorted(agent().heard) == ["Bonn", "a value of another type", "normal"]
        wire.break_off()
        await quiet()
        await agent().weather.ready()
        await quiet()
        assert peers.wire.kinds() == ["subscribeEvent", "subscribeEvent"]
        again = next(message for message in peers.wire.sent if message["event"] == "asked")
        peers.wire.event(again, "asked", "Rome")
        await quiet()
        assert agent().heard[3:] == ["connection lost", "shutdown", "Rome"]
        await ref.invoke(Station.stop_listening)
        await quiet()
        assert peers.wire.kinds()[2:] == ["unsubscribeEvent"]


async def test_what_is_followed_may_be_out_of_reach(autojump_clock: Any) -> None:
    async with scripted(confirm, up=False) as (peers, node):
        far = await weather(peers, ready=False)
        ref, agent = await station(node, far)
        await ref.invoke(Station.listen)
        await trio.sleep(20)
        peers.up = True
        await far.ready()
        await quiet()
        asked = next(message for message in peers.wire.sent if message["event"] == "asked")
        peers.wire.event(asked, "asked", "Bonn")
        await quiet()
        assert agent().heard == ["Bonn"]


async def test_following_ends_with_the_incarnation(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, node):
        ref, _ = await station(node, await weather(peers))
        await ref.invoke(Station.listen)
        await quiet()
        with pytest.raises(AgentDied):
            await ref.invoke(Station.crash)
        await quiet()
        kinds = peers.wire.kinds()
        assert kinds.count("subscribeEvent") == kinds.count("unsubscribeEvent") == 2


async def test_following_ends_where_the_agent_is_gone(autojump_clock: Any) -> None:
    async with scripted(confirm) as (peers, node):
        ref, agent = await station(node, await weather(peers))
        await ref.invoke(Station.listen)
        await quiet()
        assert agent().following.active
        for message in list(peers.wire.sent):
            about = {"kind": "agent", "name": message["thingID"]}
            kind = "https://eclipse.dev/lmos/protocol/v1/errors#not-found"
            peers.wire.error(message, kind, 404, "gone", about=about)
        await quiet()
        assert not agent().following.active
        await ref.invoke(Station.stop_listening)
        await quiet()
        assert peers.wire.kinds() == ["subscribeEvent", "subscribeEvent"]


async def test_sends_go_out_in_order(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, node):
        ref, _ = await station(node, await weather(peers))
        await ref.invoke(Station.report, 20)
        await quiet()
        assert [message["input"]["city"] for message in peers.wire.sent] == [str(n) for n in range(20)]
        assert node.dead_letters == ()


async def test_a_sender_is_held_back_until_there_is_room(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_waiting=2)
    async with scripted(session=options) as (peers, node):
        ref, agent = await station(node, await weather(peers))
        peers.wire.say("tellWindow", messages=64, bytes=65_536)
        peers.wire.stuck = True
        await ref.invoke(Station.report, 10)
        await quiet()
        assert len(agent()._slot.ensure_extra().out) == 7
        with trio.move_on_after(5) as scope:
            await ref.invoke(Station.ping)  # it has no turn
        assert scope.cancelled_caught
        peers.wire.go_on()
        assert await ref.invoke(Station.ping) == "pong"
        await quiet()
        assert [message["input"]["city"] for message in peers.wire.sent] == [str(n) for n in range(10)]


async def test_a_sender_is_held_back_until_the_first_connection_is_made(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted(complete) as (peers, node):
        far = await weather(peers)
        ref, _ = await station(node, far)
        peer, posted = far._link.far.peer, list[Any]()
        with monkeypatch.context() as patch:  # as in `world: wire`, which keeps what is posted until then
            patch.setattr(peer, "tried", False)
            patch.setattr(peer, "post", posted.append)
            await ref.invoke(Station.report, 1)
            with trio.move_on_after(5) as scope:
                await ref.invoke(Station.ping)  # it has no turn
        assert scope.cancelled_caught
        peer.post(*posted)
        assert await ref.invoke(Station.ping) == "pong"
        await quiet()
        assert [message["input"]["city"] for message in peers.wire.sent] == ["0"]


async def test_a_break_lets_a_held_sender_go(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_waiting=2)
    async with scripted(session=options) as (peers, node):
        ref, _ = await station(node, await weather(peers))
        peers.wire.stuck = True
        await ref.invoke(Station.report, 10)
        peers.wire.break_off()
        assert await ref.invoke(Station.ping) == "pong"
        assert len(node.dead_letters) == 10
        assert {letter.sender for letter in node.dead_letters} == {"station"}


async def test_sends_without_a_connection_are_dead_letters(autojump_clock: Any) -> None:
    async with scripted(up=False) as (peers, node):
        ref, _ = await station(node, await weather(peers, ready=False))
        await ref.invoke(Station.report, 2)
        assert [letter.affordance for letter in node.dead_letters] == ["turn", "turn"]
        assert "no connection to ws://server/ws" in node.dead_letters[0].reason


async def test_a_turn_cannot_await_and_is_told_so(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, node):
        ref, _ = await station(node, await weather(peers))
        for handle, expected in (
            (Station.ask, "has to be awaited"),
            (Station.send_nonsense, "Expected `str`, got `int`"),
            (Station.tie, "cannot be linked"),
        ):
            with pytest.raises(AgentDied, match=expected):
                await ref.invoke(handle)
            await quiet()


async def test_what_is_only_near_is_refused_with_the_reason(autojump_clock: Any) -> None:
    async with scripted(offers=OFFERS) as (peers, _):
        ref = await weather(peers)
        with pytest.raises(NotAllowed, match="agent of another process: it cannot be linked, monitor it"):
            async with ref.link():
                pass
        for ask in (ref.statistics, ref.mailbox_statistics):
            with pytest.raises(NotAllowed, match="keeps its counts there"):
                ask()
        with pytest.raises(InvalidInput):
            ref.tell_nowait(Weather.turn, 3)  # type: ignore[arg-type]


async def test_agents_of_two_nodes_work_together(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        far = remote_ref(peers_of(client), Weather, "ws://server/agents/weather")
        await far.ready()
        ref, agent = await station(client, far)
        await ref.invoke(Station.listen)
        await quiet()
        await ref.invoke(Station.report, 3)
        await trio.sleep(1)
        assert agent().heard == ["0", "1", "2"]
        (near,) = server.agents()
        with pytest.raises(AgentDied):
            await near.invoke(Weather.crash)
        await trio.sleep(1)
        assert "error" in agent().heard
        await ref.invoke(Station.report, 1)
        await trio.sleep(1)
        assert agent().heard[-1] == "0"
