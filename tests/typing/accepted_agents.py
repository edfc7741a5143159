"""Right uses: both checkers must accept every line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import assert_type

from lmos_actors import (
    Agent,
    Call,
    ChildSpec,
    Down,
    Event,
    Feed,
    Gap,
    Node,
    Progress,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    every,
    prop,
)
from lmos_actors.types import Occurrence


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    limits: Property[tuple[int, ...]] = prop(default=())
    asked: Event[str] = event()
    questions: int = 0

    @action
    async def forecast(self, progress: Progress[float], city: str, days: int = 1) -> str:
        progress.report(0.5)
        self.asked.emit(city)
        self.units = "kelvin"
        return f"{city} {self.units.upper()} {days}"

    @action
    async def wait(self) -> None: ...

    @action
    def echo(self, number: int) -> int:
        return number + self.questions

    @action(concurrency=3, name="slowEcho")
    async def slow_echo(self, number: int) -> int:
        return number

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @every(1.0)
    def tick(self) -> None:
        self.after(1.0, self.note, "a")
        self.send_after(1.0, self.find(Weather), Weather.slow_echo, 3).cancel()

    def note(self, word: str) -> None:
        self.log.info(word)


class Storm(Weather, serial=True):
    force: int = 1


class Desk(Agent):
    weather: Ref[Weather]

    @action
    def forward(self, city: str) -> None:
        self.send(self.weather, Weather.forecast, city)
        self.send(self.weather, Weather.echo, 1)
        self.send(self.ref, Desk.forward, city)
        self.follow(self.weather, Weather.asked, self.on_asked)

    def on_asked(self, city: str) -> None:
        self.nursery.start_soon(self.pause, city)

    async def pause(self, city: str) -> None: ...


async def verbs(weather: Ref[Weather], storm: Ref[Storm]) -> None:
    assert_type(await weather.read(Weather.units), str)
    await weather.write(Weather.units, "kelvin")
    await weather.write_many(Weather.units.to("x"), Weather.limits.to((1, 2)))
    assert_type(await weather.invoke(Weather.echo, 1), int)
    assert_type(await weather.invoke(Weather.echo, number=1), int)
    assert_type(await weather.invoke(Weather.forecast, "Bonn", days=2), str)
    assert_type(await weather.within(1.0).invoke(Weather.slow_echo, 1), int)
    assert_type(await storm.invoke(Storm.echo, 1), int)
    await weather.tell(Weather.echo, 1)
    weather.tell_nowait(Weather.forecast, "Bonn")
    async with weather.begin(Weather.forecast, "Bonn") as call:
        assert_type(call, Call[str, float])
        async for fraction in call.progress:
            assert_type(fraction, float)
        assert_type(await call.result(), str)
    async with weather.stream(Weather.count, 3) as items:
        async for item in items:
            assert_type(item, int)


async def listening(weather: Ref[Weather]) -> None:
    async with weather.observe(Weather.units) as readings:
        assert_type(readings, Feed[str])
        assert_type(await readings.receive(), str)
    async with weather.observe(Weather.units, gaps=True) as with_gaps:
        assert_type(await with_gaps.receive(), str | Gap)
    async with weather.subscribe(Weather.asked) as cities:
        assert_type(await cities.receive(), str)
    async with weather.subscribe_all() as occurrences:
        assert_type(await occurrences.receive(), Occurrence)
    async with weather.subscribe_all(gaps=True) as all_with_gaps:
        assert_type(await all_with_gaps.receive(), Occurrence | Gap)
    async with weather.monitor() as downs:
        assert_type(await downs.receive(), Down)


async def starting(node: Node) -> None:
    weather = await node.start(Weather, units="kelvin")
    assert_type(weather, Ref[Weather])
    assert_type(await node.start_child(ChildSpec("storm", partial(Storm, force=2))), Ref[Storm])
    desk = await node.start(Desk, weather=weather)
    assert_type(desk, Ref[Desk])
    assert_type(node.find(Weather, "weather"), Ref[Weather])
    SupervisorSpec("desk", [ChildSpec("weather", Weather)], strategy="rest_for_one")
    narrow: Ref[Weather] = node.find(Storm)
    await narrow.ready()
