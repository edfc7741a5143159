"""Listening: observe, subscribe, monitor, follow, and what a restart does to them (W2 near, L1, L2)."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    Gap,
    NotAllowed,
    NotFound,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    prop,
)
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import Occurrence


class Station(Agent):
    units: Property[str] = prop(default="celsius")
    secret: Property[str] = prop(default="s", write_only=True)
    quiet: Property[int] = prop(default=0, observable=False)
    level: Property[int] = prop(default=0, read_only=True)
    asked: Event[str] = event()
    listed: Event[list[int]] = event()

    @action
    def ask(self, city: str) -> None:
        self.asked.emit(city)

    @action
    def ask_many(self, cities: list[str]) -> None:
        for city in cities:
            self.asked.emit(city)

    @action
    def raise_level(self, levels: list[int]) -> None:
        for level in levels:
            self.level = level

    @action
    def list(self, numbers: list[int]) -> None:
        self.listed.emit(numbers)

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action
    def lie_in_event(self) -> None:
        self.asked.emit(7)  # type: ignore[arg-type]

    @action
    def lie_in_property(self) -> None:
        self.units = 7  # type: ignore[assignment]


async def crash(station: Ref[Station]) -> None:
    with pytest.raises(AgentDied):
        await station.invoke(Station.crash)
    await station.ready()


async def test_observe_gives_the_present_value_first_then_changes(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        async with station.observe(Station.units) as readings:
            assert await readings.receive() == "celsius"
            await station.write(Station.units, "kelvin")
            assert await readings.receive() == "kelvin"
            await station.write(Station.units, "kelvin")
            assert await readings.receive() == "kelvin", "every assignment is told"
            with pytest.raises(trio.WouldBlock):
                readings.receive_nowait()
        with pytest.raises(trio.EndOfChannel):
            await readings.receive()
        await station.write(Station.units, "celsius")


async def test_observations_conflate(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        async with station.observe(Station.level) as readings:
            await station.invoke(Station.raise_level, [1, 2, 3])
            assert await readings.receive() == 3
            assert readings.missed == 3


async def test_what_cannot_be_observed(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        for handle in (Station.secret, Station.quiet):
            with pytest.raises(NotAllowed):
                async with station.observe(handle):
                    pass
        assert station.statistics().restarts == 0


async def test_subscribe_gives_every_event_to_everybody(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        await station.invoke(Station.ask, "before")
        async with (
            station.subscribe(Station.asked) as one,
            station.subscribe(Station.asked) as other,
            station.subscribe_all() as everything,
        ):
            await station.invoke(Station.ask_many, ["Bonn", "Köln"])
            await station.invoke(Station.list, [1, 2])
            assert [await one.receive(), await one.receive()] == ["Bonn", "Köln"]
            assert [await other.receive(), await other.receive()] == ["Bonn", "Köln"]
            assert [await everything.receive() for _ in range(3)] == [
                Occurrence("asked", "Bonn"),
                Occurrence("asked", "Köln"),
                Occurrence("listed", [1, 2]),
            ]


async def test_events_share_nothing_that_can_change(virtual_clock) -> None:
    """V1: each subscriber gets its own copy of what can change."""
    async with open_test_node() as node:
        station = await node.start(Station)
        async with station.subscribe(Station.listed) as one, station.subscribe(Station.listed) as other:
            numbers = [1, 2]
            await station.invoke(Station.list, numbers)
            first = await one.receive()
            first.append(3)
            assert await other.receive() == [1, 2] == numbers


async def test_a_slow_subscriber_drops_its_oldest_and_counts(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        async with (
            station.subscribe(Station.asked, size=2) as plain,
            station.subscribe(Station.asked, size=2, gaps=True) as with_gaps,
            station.subscribe(Station.asked) as roomy,
        ):
            await station.invoke(Station.ask_many, ["a", "b", "c", "d"])
            assert [await plain.receive(), await plain.receive()] == ["c", "d"]
            assert plain.missed == 2
            gap = await with_gaps.receive()
            assert isinstance(gap, Gap)
            rest = []
            while True:
                try:
                    rest.append(with_gaps.receive_nowait())
                except trio.WouldBlock:
                    break
            assert rest == ["a", "b", "c", "d"][-len(rest) :]
            assert gap.missed == with_gaps.missed == 4 - len(rest)
            assert [await roomy.receive() for _ in range(4)] == ["a", "b", "c", "d"]
            assert roomy.missed == 0


@pytest.mark.parametrize("gaps", [False, True])
async def test_w2_listening_survives_a_restart(virtual_clock, gaps: bool) -> None:
    """W2: a Gap, then the new incarnation's value first; subscriptions go on."""
    async with open_test_node() as node:
        station = await node.start(Station)
        async with (
            station.observe(Station.units, gaps=gaps) as readings,
            station.subscribe(Station.asked, gaps=gaps) as cities,
        ):
            await station.write(Station.units, "kelvin")
            assert await readings.receive() == "kelvin"
            await crash(station)
            await station.invoke(Station.ask, "Bonn")
            if gaps:
                for feed in (readings, cities):
                    gap = await feed.receive()
                    assert isinstance(gap, Gap)
                    assert "boom" in gap.reason
                    assert gap.missed is None
            assert await readings.receive() == "celsius"
            assert await cities.receive() == "Bonn"
            for feed in (readings, cities):
                with pytest.raises(trio.WouldBlock):
                    feed.receive_nowait()


async def test_w2_listening_ends_when_the_agent_is_gone_for_good(virtual_clock) -> None:
    """W2: Down, then the end of the channel; stopping alone ends nothing."""
    async with open_test_node() as node:
        station = await node.start(Station)
        async with (
            station.observe(Station.units) as readings,
            station.subscribe(Station.asked) as cities,
            station.subscribe_all() as everything,
            station.monitor() as downs,
        ):
            await node.root.terminate_child("station")
            assert (await downs.receive()).reason.kind == "shutdown"
            await readings.receive()
            for feed in (readings, cities, everything, downs):
                with pytest.raises(trio.WouldBlock):
                    feed.receive_nowait()
            await node.root.restart_child("station")
            assert await readings.receive() == "celsius"
            await node.root.terminate_child("station")
            await node.root.delete_child("station")
            assert (await downs.receive()).incarnation == 2
            for feed in (readings, cities, everything, downs):
                assert [value async for value in feed] == []
        for block in (station.monitor(), station.observe(Station.units), station.subscribe(Station.asked)):
            with pytest.raises(NotFound):
                async with block:
                    pass


async def test_a_receiver_that_waits_is_woken_by_the_end(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        station = await node.start_child(ChildSpec("station", Station, restart="temporary"))
        ended: list[str] = []

        async def listen() -> None:
            async with station.subscribe(Station.asked) as cities:
                async for city in cities:
                    ended.append(city)
            ended.append("end")

        nursery.start_soon(listen)
        await settle()
        await station.invoke(Station.ask, "Bonn")
        await settle()
        with pytest.raises(AgentDied):
            await station.invoke(Station.crash)
        await settle()
        assert ended == ["Bonn", "end"]


async def test_l1_a_monitor_hears_of_every_incarnation_and_affects_nobody(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        async with station.monitor() as downs, station.monitor() as others:
            for incarnation in (1, 2):
                await crash(station)
                for feed in (downs, others):
                    down = await feed.receive()
                    assert (down.agent, down.incarnation, down.reason.kind) == (
                        "station",
                        incarnation,
                        "error",
                    )
                    assert isinstance(down.reason.error, KeyError)
        await crash(station)
        assert station.statistics().restarts == 3


async def test_a_monitor_of_an_agent_that_is_down_waits_for_its_next_life(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        await node.root.terminate_child("station")
        async with station.monitor() as downs:
            await node.root.restart_child("station")
            await crash(station)
            assert (await downs.receive()).incarnation == 2


@pytest.mark.parametrize("handle", [Station.lie_in_event, Station.lie_in_property])
async def test_values_of_another_type_are_the_agents_bug(virtual_clock, handle) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        async with station.subscribe_all() as everything, station.observe(Station.units) as readings:
            with pytest.raises(AgentDied, match="TypeError"):
                await station.invoke(handle)
            await station.ready()
            assert await readings.receive() == "celsius"
            with pytest.raises(trio.WouldBlock):
                everything.receive_nowait()


class Follower(Agent):
    station: Ref[Station]
    heard: tuple[str, ...] = ()

    def started(self) -> None:
        self.follow(self.station, Station.asked, self.on_asked)

    def on_asked(self, city: str) -> None:
        if city == "crash":
            raise KeyError(city)
        self.heard += (city,)

    @action
    def all_heard(self) -> tuple[str, ...]:
        return self.heard

    @action
    async def busy(self, seconds: float) -> None:
        await trio.sleep(seconds)


class SerialFollower(Follower, serial=True):
    pass


async def test_follow_makes_events_turns(virtual_clock) -> None:
    """Without a task: what is heard is handled on the dispatcher, in order, in nobody's account."""
    async with open_test_node() as node:
        station = await node.start(Station)
        before = trio.lowlevel.current_statistics().tasks_living
        follower = await node.start(Follower, station=station)
        await station.invoke(Station.ask_many, ["Bonn", "Köln"])
        await settle()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert follower.statistics().accepted == 0
        assert await follower.invoke(Follower.all_heard) == ("Bonn", "Köln")


async def test_follow_is_bounded(virtual_clock) -> None:
    """A follower that is busy misses the oldest past 64 events; it holds nobody back."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        station = await node.start(Station)
        follower = await node.start(SerialFollower, station=station)
        nursery.start_soon(follower.invoke, SerialFollower.busy, 5)
        await settle()
        await station.invoke(Station.ask_many, [str(n) for n in range(100)])
        assert trio.current_time() == 0
        await trio.sleep(6)
        heard = await follower.invoke(SerialFollower.all_heard)
        assert heard == tuple(str(n) for n in range(36, 100))


async def test_w2_following_ends_with_the_follower_and_is_made_again(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        follower = await node.start(Follower, station=station)
        await station.invoke(Station.ask_many, ["Bonn", "crash", "lost", "lost too"])
        await settle()
        await follower.ready()
        assert follower.statistics().restarts == 1
        await station.invoke(Station.ask, "Köln")
        await settle()
        assert await follower.invoke(Follower.all_heard) == ("Köln",), "once, by the new incarnation alone"


async def test_w2_following_goes_on_when_the_followed_restarts(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        follower = await node.start(Follower, station=station)
        await crash(station)
        await station.invoke(Station.ask, "Bonn")
        await settle()
        assert await follower.invoke(Follower.all_heard) == ("Bonn",)


async def test_following_a_stopped_follower_is_over(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        follower = await node.start(Follower, station=station)
        await node.root.terminate_child("follower")
        await station.invoke(Station.ask_many, ["a", "b"])
        await settle()
        await node.root.restart_child("follower")
        await station.invoke(Station.ask, "c")
        assert await follower.invoke(Follower.all_heard) == ("c",)


async def test_many_followers(virtual_clock) -> None:
    async with open_test_node(SupervisorSpec("root")) as node:
        station = await node.start(Station)
        followers = [await node.start(Follower, station=station) for _ in range(200)]
        await station.invoke(Station.ask, "Bonn")
        await settle()
        assert {await follower.invoke(Follower.all_heard) for follower in followers} == {("Bonn",)}


async def test_a_cancelled_subscription_leaves_nothing_behind(virtual_clock) -> None:
    async with open_test_node() as node:
        station = await node.start(Station)
        for block in (
            lambda: station.observe(Station.units),
            lambda: station.subscribe(Station.asked),
            lambda: station.subscribe_all(),
            lambda: station.monitor(),
        ):
            with trio.CancelScope() as scope:
                scope.cancel()
                async with block():
                    raise AssertionError
            with trio.CancelScope() as scope:
                async with block():
                    scope.cancel()
                    await trio.sleep_forever()
        sinks = station._link.extra.sinks  # type: ignore[attr-defined]
        assert sinks is None or sinks.by_key == {}
