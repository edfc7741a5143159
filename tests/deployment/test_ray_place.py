"""Deployments on a cluster of Ray whose parts are killed, while a fleet of clients goes on asking.

The cluster's machines are raylets on this computer, with all that Ray runs. State is in a real Redis server.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import trio

from lmos_actors import AgentUnavailable, NotFound, OutcomeUnknown, open_node
from lmos_actors.cli import main
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import Launcher, LogFiles, Order, RayPlace, UnixNetwork, open_launcher
from lmos_actors.errors import ConfigError, LmosActorsError
from tests.deployment import fleet as agents
from tests.deployment.fleet import Counter, Fleet, Weather
from tests.processes import parent_of, pause
from tests.ray_cluster import cluster, needs_ray
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from lmos_actors import Ref

ORPHAN = 30.0  # seconds after which a process without a launcher drains, as the guide says
POLL = 5.0  # a launcher asks as often

DEPLOYMENT = """
lmos: deployment/v1
name: NAME
agents:
  weather: {from: agent, use: "fleet.py:Weather"}
  counter: {from: agent, use: "fleet.py:Counter", key: main}
groups:
  registry:
    directory: "STORE&prefix=registry&writers=one"
    listen: ws://0.0.0.0:0
    insecure: true
    limits: {processors: 1}
    max_restarts: 1000
  weather:
    agents: [weather]
    register: registry
    needs: {registry: ready}
    replicas: 2
    listen: ws://0.0.0.0:0
    insecure: true
    limits: {processors: 1}
    update: {order: start_first}
    max_restarts: 1000
  counter:
    agents: [counter]
    register: registry
    needs: {registry: ready}
    store: "STORE&prefix=counter"
    replicas: 2
    listen: ws://0.0.0.0:0
    insecure: true
    limits: {processors: 1}
    update: {order: start_first}
    max_restarts: 1000
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.matrix,
    needs_ray,
    needs_redis,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
    ),
]


@pytest.fixture
def ray() -> Iterator[Any]:
    with cluster(0, 8, 8) as running:
        yield running


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def project(tmp_path: Path, redis: RedisServer) -> Path:
    """Write a project; return its deployment file."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(agents.__file__, folder / "fleet.py")
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    file = folder / "fleet.yaml"
    store = redis.url("X").replace("prefix=X", "")
    text = DEPLOYMENT.replace("STORE&", store).replace("NAME", tmp_path.name.replace("_", "-"))
    file.write_text(text, encoding="utf-8")
    return file


def launcher_at(address: str, file: Path, folder: Path) -> tuple[Launcher, RayPlace]:
    loaded = load_deployment(str(file), classes=False)
    plan = launch_plan(loaded.deployment, str(file))
    place = RayPlace(address, file.parent, file, loaded.deployment.name, command=main)
    return Launcher(plan, place, LogFiles(folder / "logs")), place


@asynccontextmanager
async def launched(address: str, file: Path, folder: Path) -> AsyncGenerator[Launcher]:
    """Run a launcher on Ray, whose groups are ready."""
    launcher, place = launcher_at(address, file, folder)
    async with place.opened():
        place.check(launcher.plan)
        async with open_launcher(launcher, UnixNetwork(folder / "launcher.sock")):
            await launcher.wait_ready()
            yield launcher


@asynccontextmanager
async def fleet_on(ray: Any, file: Path, folder: Path) -> AsyncGenerator[tuple[Launcher, Fleet]]:
    """Run a launcher on Ray, and a fleet that asks until its end; then the counter has to be exact."""
    async with launched(ray.address, file, folder) as launcher:
        # the directory keeps its port, and may come to stand on another machine
        port = urlsplit(launcher.groups["registry"].address or "").port
        lookup = [f"http://{machine}:{port}" for machine in ray.machines]
        async with open_node(lookup=lookup) as node, trio.open_nursery() as nursery:
            weather = node.find(Weather, spread="round_robin")
            fleet = Fleet(weather, node.find(Counter, id="main"), Random(0))
            await fleet.weather.ready()
            for first in range(4):
                nursery.start_soon(fleet.ask, first)
            nursery.start_soon(fleet.add)
            yield launcher, fleet
            await fleet.go_on()
            fleet.ending = True
        async with open_node(lookup=launcher.groups["registry"].address) as node:
            counter = node.find(Counter, id="main")
            await counter.ready()
            assert await counter.invoke(Counter.read_total) == fleet.added > 0


async def answers_elsewhere(fleet: Fleet, pid: int) -> None:
    """Wait until another process than that of a number answers for the counter."""
    while True:
        with suppress(AgentUnavailable, OutcomeUnknown, NotFound):
            if await fleet.counter.invoke(Counter.pid) != pid:
                return
        await fleet.go_on()


def urls_of(launcher: Launcher, pid: int) -> tuple[str, ...]:
    """Return where the process of a number listens."""
    found = [
        member.urls
        for group in launcher.groups.values()
        for member in group.members.values()
        if member.replica is not None
        and member.replica.process is not None
        and member.replica.process.id.startswith(f"{pid}@")
    ]
    return found[0]


async def test_a_killed_worker_is_replaced_and_the_agent_goes_on_elsewhere(
    ray: Any, redis: RedisServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with fleet_on(ray, project(tmp_path, redis), tmp_path) as (launcher, fleet):
        group = launcher.groups["counter"]
        pid = await fleet.counter.invoke(Counter.pid)
        os.kill(pid, signal.SIGKILL)
        await group.wait_until(lambda: not group.is_ready())
        await group.wait_until(group.is_ready)
        await answers_elsewhere(fleet, pid)
        assert fleet.outcomes["unknown"] == fleet.outcomes["not found"] == 0  # of another group
        why = [member.why for member in group.members.values() if member.restarts]
        assert why == ["ended, with an exit code that is not known: what had started it is gone, too"]
    said = capfd.readouterr()
    assert "raylet" not in said.out + said.err
    assert "SIGTERM" not in said.err


def agent_at(urls: tuple[str, ...]) -> str:
    """Return the URL of the counter in one process."""
    return f"{urls[0].replace('ws', 'http', 1)}/agents/counter"


async def added(counter: Ref[Counter]) -> int:
    """Increment once, as soon as its process has the lease."""
    while True:
        try:
            return await counter.invoke(Counter.add)
        except AgentUnavailable as error:
            await trio.sleep(error.retry_in or 0.2)


async def test_of_a_machine_that_was_cut_off_nothing_counts(
    ray: Any, redis: RedisServer, tmp_path: Path
) -> None:
    """Raylet and worker are paused until another has the lease; then the worker does what it was asked."""
    refused = list[LmosActorsError]()
    async with launched(ray.address, project(tmp_path, redis), tmp_path) as launcher, open_node() as node:
        async with open_node(lookup=launcher.groups["registry"].address) as finder:
            found = finder.find(Counter, id="main")
            await found.ready()
            pid = await found.invoke(Counter.pid)
        members = launcher.groups["counter"].members.values()
        [other] = [member.urls for member in members if member.urls != urls_of(launcher, pid)]
        orphan = await node.consume(Counter, agent_at(urls_of(launcher, pid)))
        counter = await node.consume(Counter, agent_at(other))
        assert [await orphan.invoke(Counter.add) for _ in range(3)] == [1, 2, 3]

        async def add() -> None:
            try:
                await orphan.invoke(Counter.add)
            except LmosActorsError as error:
                refused.append(error)

        machine = (parent_of(pid), pid)
        for each in machine:
            pause(each)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(add)
            assert await added(counter) == 4
            for each in reversed(machine):
                os.kill(each, signal.SIGCONT)
        assert len(refused) == 5
        assert await counter.invoke(Counter.read_total) == 4


async def test_what_a_killed_raylet_ran_stands_elsewhere(
    ray: Any, redis: RedisServer, tmp_path: Path
) -> None:
    async with fleet_on(ray, project(tmp_path, redis), tmp_path) as (launcher, fleet):
        pid = await fleet.counter.invoke(Counter.pid)
        raylet, group = parent_of(pid), launcher.groups["counter"]
        os.kill(raylet, signal.SIGKILL)
        await group.wait_until(lambda: not group.is_ready())  # at once: it may be ready again in a moment
        for each in launcher.groups.values():
            await each.wait_until(each.is_ready)
        await answers_elsewhere(fleet, pid)
        pids = {parent_of(await fleet.counter.invoke(Counter.pid))}
        assert raylet not in pids


async def test_a_rolling_restart_under_a_fleet(ray: Any, redis: RedisServer, tmp_path: Path) -> None:
    async with fleet_on(ray, project(tmp_path, redis), tmp_path) as (launcher, fleet):
        for name in ("weather", "counter"):
            async with launcher.at_work(f"restart --rolling {name}"):
                async for _ in launcher.restart_rolling(launcher.group(name)):
                    pass
        await fleet.go_on()
        assert fleet.outcomes["answered"] > 20
        assert fleet.outcomes["unknown"] == fleet.outcomes["not found"] == 0


async def said_until(up: trio.Process, event: str) -> list[dict[str, Any]]:
    """Return what a launcher says, until an event."""
    assert up.stdout is not None
    text = b""
    async for piece in up.stdout:
        text += piece
        seen = [json.loads(line) for line in text.rpartition(b"\n")[0].splitlines()]
        if any(each["event"] == event for each in seen):
            return seen
    raise AssertionError(text)


async def test_the_launcher_is_killed_and_the_next_one_waits(
    ray: Any, redis: RedisServer, tmp_path: Path
) -> None:
    file = project(tmp_path, redis)
    words = [sys.executable, "-m", "lmos_actors", "up", str(file), "--on", "ray", "--json"]
    env = {**os.environ, "RAY_ADDRESS": ray.address, "XDG_RUNTIME_DIR": str(tmp_path)}

    first = await trio.lowlevel.open_process(words, env=env, stdout=subprocess.PIPE)
    await said_until(first, "ready")
    first.kill()
    await first.wait()
    said = tmp_path / "said"
    with said.open("wb") as errors:
        second = await trio.lowlevel.open_process(words, env=env, stdout=subprocess.PIPE, stderr=errors)
    try:
        await said_until(second, "ready")
        second.terminate()
        assert await second.wait() == 0
    finally:
        second.kill()
    assert said.read_text(encoding="utf-8") == ""  # of Ray, either


async def test_what_a_killed_launcher_leaves_ends_by_itself_without_a_next_one(
    ray: Any, redis: RedisServer, tmp_path: Path
) -> None:
    words = [
        sys.executable,
        "-m",
        "lmos_actors",
        "up",
        str(project(tmp_path, redis)),
        "--on",
        "ray",
        "--json",
    ]
    env = {**os.environ, "RAY_ADDRESS": ray.address, "XDG_RUNTIME_DIR": str(tmp_path)}
    up = await trio.lowlevel.open_process(words, env=env, stdout=subprocess.PIPE)
    try:
        seen = await said_until(up, "ready")
    except BaseException:
        up.kill()
        raise
    urls = {each["name"]: each["urls"] for each in seen if each["event"] == "process" and each["urls"]}
    async with open_node(lookup=urls["registry/1"][0].replace("ws", "http", 1)) as node:
        counter = node.find(Counter, id="main")
        await counter.ready()
        pid = await counter.invoke(Counter.pid)
        process = os.pidfd_open(pid)
        up.kill()
        await up.wait()
        killed = trio.current_time()
        assert await counter.invoke(Counter.add) == 1  # it works on for a while
        with trio.fail_after(ORPHAN + 30):
            await trio.lowlevel.wait_readable(process)
        assert trio.current_time() - killed > ORPHAN - POLL
        os.close(process)


async def test_what_a_worker_alone_cannot_import_is_named(
    ray: Any, redis: RedisServer, tmp_path: Path
) -> None:
    file = project(tmp_path, redis)
    _, place = launcher_at(ray.address, file, tmp_path)
    order = Order(name="weather/1", arguments=("serve", str(file), "--group", "weather", "--launched"))
    (file.parent / "fleet.py").write_text("import of_this_machine\n", encoding="utf-8")
    async with place.opened():
        process = await place.start(order)
        said = b""
        async with aclosing(process.errors()) as pieces:
            async for piece in pieces:
                said += piece
        assert await process.wait() == 2
        assert b"No module named 'of_this_machine'" in said
    (file.parent / "lmos_actors.py").write_text("import of_this_machine\n", encoding="utf-8")
    _, place = launcher_at(ray.address, file, tmp_path)
    with pytest.raises(ConfigError, match=r"a worker does not start: .*No module named 'of_this_machine'"):
        async with place.opened():
            pass
