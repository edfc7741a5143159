"""Probes, fakes and faults: the types come from the agent class."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from functools import partial

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Down,
    Event,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    prop,
)
from lmos_actors.testing import (
    Fault,
    FaultPlan,
    Probe,
    Received,
    TestNode,
    fake,
    in_turn,
    open_test_node,
    run_test,
)


class Weather(Agent):
    key: str
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    def forecast(self, city: str) -> str:
        return city

    @action
    async def measure(self, place: str) -> float:
        return float(len(place))

    @action
    async def report(self) -> AsyncIterator[int]:
        yield 1


async def probes(node: TestNode) -> None:
    probe = await node.probe(Weather)
    ref: Ref[Weather] = probe.ref
    forecast: Received[str] = await probe.expect(Weather.forecast, "Bonn")
    forecast.answer("sunny")
    measured: Received[float] = await probe.within(5).expect(Weather.measure, place=callable)
    measured.answer(1.5)
    items: Received[list[int]] = await probe.pick(Weather.report)
    items.answer([1, 2])
    written: Received[str] = await probe.expect(Weather.units, "kelvin")
    written.fail(ActionFailed("x"))
    probe.set(Weather.units, "kelvin")
    probe.emit(Weather.asked, "Bonn")
    probe.always(Weather.forecast, "sunny")
    probe.send(ref, Weather.forecast, "Bonn")
    down: Down = await probe.expect_down(ref, KeyError)
    assert down.incarnation


async def nodes(n: int) -> int:
    plan = FaultPlan()
    fault: Fault = plan.on(Weather.forecast, call=3, raises=KeyError("x"))
    plan.on(Weather.measure, rate=0.1, delay=math.inf)
    plan.on(Weather.units, raises=KeyError, after=True, agent="weather")
    plan.on_start(Weather, start=2, raises=OSError)
    other = fake(Weather, forecast=in_turn("a", "b"))
    tree = SupervisorSpec("root", [ChildSpec("weather", other), ChildSpec("b", partial(Weather, key="x"))])
    async with open_test_node(tree, replace={Weather: other}, faults=plan, seed=1) as node:
        ref: Ref[Weather] = await node.start(other)
        await node.start(Probe(Weather).factory)
        node.crash(ref, KeyError("x"))
    probe: Probe[Weather] = Probe(Weather, limit=1.0, strict=False)
    async with open_test_node(tree, replace={Weather: probe}):
        return fault.calls + n


async def main(node: TestNode, text: str, *numbers: int) -> int:
    return len(text) + len(numbers) + len(node.tree())


length: int = run_test(main, "x", 1, seed=3)
