"""Real processes that are restarted and killed while a fleet of clients goes on asking.

Every request ends in a result, or in an error that says what is known of it; none ends in silence. While
processes are only drained, no outcome is unknown. A durable counter counts each increment once.
"""

from __future__ import annotations

import os
import signal
from collections import Counter as Tally
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentUnavailable,
    OutcomeUnknown,
    Ref,
    action,
    open_node,
)
from lmos_actors.deployment import Launcher, LocalPlace, LogFiles, UnixNetwork, controls_of, open_launcher
from lmos_actors.scenario import launch_plan, load_deployment
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from pathlib import Path

FLEET = """
import trio
from lmos_actors import Agent, action


class Weather(Agent):
    asked: int = 0

    @action(concurrency=100)
    async def forecast(self, number: int, seconds: float) -> int:
        self.asked += 1
        await trio.sleep(seconds)
        return number


class Counter(Agent, durable=True):
    total: int = 0

    @action
    def add(self) -> int:
        self.total += 1
        return self.total

    @action(safe=True)
    def read_total(self) -> int:
        return self.total
"""

DEPLOYMENT = """
lmos: deployment/v1
name: fleet
agents:
  weather: {from: agent, use: "fleet.py:Weather"}
  counter: {from: agent, use: "fleet.py:Counter", key: main}
groups:
  registry: {directory: true, max_restarts: 1000}
  weather:
    agents: [weather]
    register: registry
    needs: {registry: ready}
    replicas: 3
    drain: {timeout: 10s, spread: 200ms}
    max_restarts: 1000
  counter:
    agents: [counter]
    register: registry
    needs: {registry: ready}
    store: "sqlite:counter.db"
    max_restarts: 1000
"""

MODULES = ("lmos_actors.cli.commands", "lmos_actors.cli.serve._group", "lmos_actors.discovery")
WAIT = 50.0

pytestmark = pytest.mark.slow


class Weather(Agent):
    """The same, as it is known here."""

    @action(concurrency=100)
    async def forecast(self, number: int, seconds: float) -> int:
        return number


class Counter(Agent, durable=True):
    """The same, as it is known here."""

    @action
    def add(self) -> int:
        return 0

    @action(safe=True)
    def read_total(self) -> int:
        return 0


class Fleet:
    """Clients that ask until they are told to end, and what became of each request."""

    def __init__(self, weather: Ref[Weather], counter: Ref[Counter], random: Random) -> None:
        self.weather = weather
        self.counter = counter
        self.random = random
        self.outcomes: Tally[str] = Tally()
        self.added = 0
        self.ending = False
        self.wanted = 0
        self.more = trio.Event()

    async def ask(self, first: int) -> None:
        number = first
        while not self.ending:
            with trio.fail_after(WAIT):
                self.outcomes[await self._asked(number)] += 1
            if self.outcomes["answered"] >= self.wanted:
                self.more.set()
            number += 100

    async def go_on(self) -> None:
        """Wait until some more requests are answered."""
        self.wanted, self.more = self.outcomes["answered"] + 20, trio.Event()
        with trio.fail_after(WAIT):
            await self.more.wait()

    async def _asked(self, number: int) -> str:
        try:
            answer = await self.weather.invoke(Weather.forecast, number, self.random.random() / 5)
        except OutcomeUnknown:
            return "unknown"
        except AgentUnavailable as error:
            await trio.sleep(error.retry_in or 0.05)
            return "unavailable"
        assert answer == number
        return "answered"

    async def add(self) -> None:
        while not self.ending:
            key = f"add-{self.added}" if self.added % 2 else None  # or one that it makes itself
            view = self.counter.retrying(attempts=None, seconds=WAIT, key=key)
            with trio.fail_after(WAIT):
                await view.invoke(Counter.add)
            self.added += 1


async def rolling(launcher: Launcher, names: list[str]) -> None:
    """Restart groups, process by process."""
    for name in names:
        async with launcher.at_work(f"restart --rolling {name}"):
            async for _ in launcher.restart_rolling(launcher.group(name)):
                pass


async def rolling_or_not(launcher: Launcher, names: list[str]) -> None:
    """Restart groups, up to a process that is killed before it is ready."""
    with suppress(ActionFailed):
        await rolling(launcher, names)


async def killed(launcher: Launcher, name: str, random: Random) -> None:
    """Kill a process of a group, and wait until another is there."""
    group = launcher.groups[name]
    pids = [replica.pid for replica in group.status().replicas if replica.pid is not None]
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)
        await group.wait_until(lambda: not group.is_ready())
    await group.wait_until(group.is_ready)


async def told(
    tmp_path: Path, seed: int, rounds: int, kills: int, victims: list[str], deployment: str = DEPLOYMENT
) -> None:
    """Let a fleet ask through some rolling restarts, then through these and kills."""
    random = Random(seed)
    (tmp_path / "fleet.py").write_text(FLEET, encoding="utf-8")
    (tmp_path / "fleet.yaml").write_text(deployment, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    controls = controls_of(str(tmp_path / "fleet.yaml"))
    loaded = load_deployment(controls.file, classes=False)
    place = LocalPlace(controls.records, MODULES)
    launcher = Launcher(launch_plan(loaded.deployment, controls.file), place, LogFiles(controls.logs))
    lock = controls.prepare()
    try:
        async with open_launcher(launcher, UnixNetwork(controls.socket)):
            await launcher.wait_ready()
            lookup = launcher.groups["registry"].address
            async with open_node(lookup=lookup) as node, trio.open_nursery() as nursery:
                fleet = Fleet(node.find(Weather, spread="round_robin"), node.find(Counter, id="main"), random)
                await fleet.weather.ready()
                for first in range(6):
                    nursery.start_soon(fleet.ask, first)
                nursery.start_soon(fleet.add)
                for _ in range(rounds):
                    await rolling(launcher, ["weather", "counter"])
                assert fleet.outcomes["answered"] > 20
                assert fleet.outcomes["unknown"] == 0
                async with trio.open_nursery() as at_once:
                    at_once.start_soon(rolling_or_not, launcher, ["weather"])
                    for _ in range(kills):
                        await killed(launcher, random.choice(victims), random)
                await launcher.wait_ready()
                await fleet.go_on()
                fleet.ending = True
            async with open_node(lookup=lookup) as node:
                counter = node.find(Counter, id="main")
                await counter.ready()
                assert await counter.invoke(Counter.read_total) == fleet.added > 0
    finally:
        await place.aclose()
        controls.remove()
        lock.release()


@pytest.fixture(autouse=True)
def _sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))


async def test_a_fleet_goes_on_through_rolling_restarts_and_kills(tmp_path: Path) -> None:
    await told(tmp_path, seed=0, rounds=1, kills=6, victims=["weather", "counter"])


@needs_redis
@pytest.mark.timeout(120)
async def test_processes_that_share_a_store_take_over_an_agent_from_each_other(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    shared = f'store: "{server.url()}"\n    replicas: 2\n    update: {{order: start_first}}'
    deployment = DEPLOYMENT.replace('store: "sqlite:counter.db"', shared)
    try:
        await told(tmp_path, seed=0, rounds=1, kills=3, victims=["counter"], deployment=deployment)
    finally:
        server.kill()


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 4))
async def test_a_fleet_goes_on_for_longer_and_without_its_directory(tmp_path: Path, seed: int) -> None:
    await told(tmp_path, seed, rounds=4, kills=12, victims=["weather", "counter", "registry"])
