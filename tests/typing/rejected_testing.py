"""What type checkers refuse of probes, fakes and faults."""

from __future__ import annotations

from lmos_actors import Agent, Property, action, prop
from lmos_actors.testing import FaultPlan, TestNode, run_test


class Weather(Agent):
    units: Property[str] = prop(default="celsius")

    @action
    def forecast(self, city: str) -> str:
        return city


class Other(Agent):
    @action
    def work(self) -> None: ...


async def probes(node: TestNode) -> None:
    probe = await node.probe(Weather)
    received = await probe.expect(Weather.forecast)
    received.answer(3)  # E
    await probe.expect(Other.work)  # E
    probe.set(Weather.units, 3)  # E
    FaultPlan().on_start(Weather)  # E
    await node.probe(int)  # E


async def main(node: TestNode, text: str) -> int:
    return len(text)


run_test(main, 3)  # E
