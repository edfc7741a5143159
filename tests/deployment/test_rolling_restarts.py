"""Real processes that are restarted and killed while a fleet of clients goes on asking.

Every request ends in a result, or in an error that says what is known of it; none ends in silence. While
processes are only drained, no outcome is unknown. A durable counter counts each increment once.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import (
    Launcher,
    LocalPlace,
    LogFiles,
    UnixNetwork,
    controls_of,
    open_launcher,
)
from tests.deployment import fleet as agents
from tests.deployment.fleet import Counter, Fleet, Weather
from tests.matrix import few_or_all
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.deployment.processes import ReplicaStatus, RolloutStatus

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
    update: {order: ORDER}
    max_restarts: 1000
  counter:
    agents: [counter]
    register: registry
    needs: {registry: ready}
    STORE
    max_restarts: 1000
"""

MODULES = ("lmos_actors.cli.commands._serve", "lmos_actors.cli.serve._group", "lmos_actors.discovery")

pytestmark = pytest.mark.slow


async def rolling(launcher: Launcher, names: list[str]) -> None:
    """Restart groups, process by process."""
    for name in names:
        async with launcher.at_work(f"restart --rolling {name}"):
            async for _ in launcher.restart_rolling(launcher.group(name)):
                pass


async def rolling_until_done(launcher: Launcher, names: list[str]) -> None:
    """Restart groups, again where a process is killed before it is ready."""
    while True:
        try:
            await rolling(launcher, names)
        except ActionFailed:
            continue
        return


async def killed(launcher: Launcher, name: str, random: Random) -> None:
    """Kill a process of a group, and wait until another is there."""
    group = launcher.groups[name]
    pids = [replica.pid for replica in group.status().replicas if replica.pid is not None]
    if pids:
        try:
            os.kill(random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:  # it has just ended, as its group is restarted: another one comes
            pass
        else:
            await group.wait_until(lambda: not group.is_ready())
    await group.wait_until(group.is_ready)


@asynccontextmanager
async def fleet_of(
    folder: Path, random: Random, *, order: str = "stop_first", store: str = 'store: "sqlite:counter.db"'
) -> AsyncGenerator[tuple[Launcher, Fleet, list[int]]]:
    """Run a launcher of real processes, and a fleet that asks them until its end.

    The list has how many processes of `weather` were ready at each change, once the fleet asks. At the end
    the counter has to be exact.
    """
    shutil.copy(agents.__file__, folder / "fleet.py")
    (folder / "fleet.yaml").write_text(
        DEPLOYMENT.replace("ORDER", order).replace("STORE", store), encoding="utf-8"
    )
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    controls = controls_of(str(folder / "fleet.yaml"))
    plan = launch_plan(load_deployment(controls.file, classes=False).deployment, controls.file)
    place, ready = LocalPlace(controls.records, MODULES), list[int]()

    def notice(name: str, change: ReplicaStatus | RolloutStatus) -> None:
        ready.append(sum(each.state == "ready" for each in launcher.groups["weather"].members.values()))

    launcher = Launcher(plan, place, LogFiles(controls.logs), notice)
    lock = controls.prepare()
    try:
        async with open_launcher(launcher, UnixNetwork(controls.socket)):
            await launcher.wait_ready()
            lookup = launcher.groups["registry"].address
            async with open_node(lookup=lookup) as node, trio.open_nursery() as nursery:
                weather, counter = node.find(Weather, spread="round_robin"), node.find(Counter, id="main")
                fleet = Fleet(weather, counter, random, rest=few_or_all(0.003, 0.0))
                await fleet.weather.ready()
                ready.clear()
                for first in range(6):
                    nursery.start_soon(fleet.ask, first)
                nursery.start_soon(fleet.add)
                yield launcher, fleet, ready
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


async def told(
    tmp_path: Path, seed: int, rounds: int, kills: int, victims: list[str], **options: str
) -> None:
    """Let a fleet ask through some rolling restarts, then through these and kills."""
    random = Random(seed)
    async with fleet_of(tmp_path, random, **options) as (launcher, fleet, _):
        for _ in range(rounds):
            await rolling(launcher, ["weather", "counter"])
        assert fleet.outcomes["answered"] > 20
        assert fleet.outcomes["unknown"] == fleet.outcomes["not found"] == 0
        async with trio.open_nursery() as at_once:
            at_once.start_soon(rolling_until_done, launcher, ["weather"])
            for _ in range(kills):
                await killed(launcher, random.choice(victims), random)
        await launcher.wait_ready()
        await fleet.go_on()
        assert fleet.outcomes["not found"] == 0


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
    store = f'store: "{server.url()}"\n    replicas: 2\n    update: {{order: start_first}}'
    try:
        await told(tmp_path, seed=0, rounds=1, kills=3, victims=["counter"], store=store)
    finally:
        server.kill()


async def test_with_start_first_nobody_is_missed_and_code_that_breaks_goes_again(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, Random(0), order="start_first") as (launcher, fleet, ready):
        await rolling(launcher, ["weather"])
        good = (tmp_path / "fleet.py").read_text(encoding="utf-8")
        (tmp_path / "fleet.py").write_text("import fleeet\n", encoding="utf-8")
        before = {number: member.pid for number, member in launcher.groups["weather"].members.items()}
        with pytest.raises(ActionFailed, match=r"weather/3 did not become ready: .*No module named 'fleeet'"):
            await rolling(launcher, ["weather"])
        after = {number: member.pid for number, member in launcher.groups["weather"].members.items()}
        assert after == before
        (tmp_path / "fleet.py").write_text(good, encoding="utf-8")
        await fleet.go_on()
        assert fleet.outcomes["unknown"] == fleet.outcomes["not found"] == 0
        assert min(ready) == 3


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 3))
async def test_a_fleet_goes_on_for_longer_and_without_its_directory(tmp_path: Path, seed: int) -> None:
    await told(tmp_path, seed, rounds=4, kills=12, victims=["weather", "counter", "registry"])
