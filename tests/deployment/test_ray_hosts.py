"""A cluster of Ray over hosts that are network namespaces, one of which is cut off, with all that runs on it.

Raylet and worker of that host go on, and so do callers beside them: nothing of what they do counts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.deployment import host_agents
from tests.deployment.test_hosts import COMMAND, REGISTRY, Program, RealWorld, Verdict, verdict_of
from tests.hosts import Hosts, needs_hosts
from tests.ray_cluster import needs_ray
from tests.redis_server import needs_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

RAY = "10.77.0.1:6380"
DEPLOYMENT = """
lmos: deployment/v1
name: hosts
agents:
  counter: {from: agent, use: "host_agents.py:Counter", key: main}
groups:
  registry: {directory: true, listen: "ws://0.0.0.0:7000", insecure: true, limits: {processors: 4}}
  counter:
    agents: [counter]
    register: registry
    replicas: 2
    listen: "ws://0.0.0.0:0"
    insecure: true
    limits: {processors: 1}
    max_restarts: 1000
    store: "redis://10.77.0.1:6379?prefix=hosts"
"""


@pytest.fixture
def sockets() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # as names of sockets may not be long
    yield folder
    shutil.rmtree(folder)


async def start_ray(world: RealWorld, host: int, processors: int, *words: str) -> Program:
    """Start a raylet on a host, the first one with the head."""
    ray = str(Path(sys.executable).parent / "ray")
    address = Hosts.address(host)
    options = ("--node-ip-address", address, "--num-cpus", str(processors), "--disable-usage-stats")
    memory = ("--object-store-memory", str(80 << 20))
    program = await world.run(host, ray, "start", *words, *options, *memory, "--block", name=str(host))
    await world.wait(lambda: b"Ray runtime started." in program.output)
    return program


def urls_at(up: Program, host: int) -> list[str]:
    """Return where processes of the counter listen on a host, by the last line of the launcher for each."""
    members: dict[str, Any] = {}
    for each in up.said:
        if each["event"] == "process" and each["name"].startswith("counter/"):
            members[each["name"]] = each
    ready = [each["urls"][0] for each in members.values() if each["state"] == "ready"]
    return [url for url in ready if f"//{Hosts.address(host)}:" in url]


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(400)
@needs_redis
@needs_ray
async def test_nothing_counts_of_a_raylet_and_a_worker_that_are_cut_off_and_go_on(
    tmp_path: Path, sockets: Path
) -> None:
    needs_hosts()
    shutil.copy(host_agents.__file__, tmp_path)
    (tmp_path / "hosts.yaml").write_text(DEPLOYMENT, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    with Hosts(4) as hosts:
        async with trio.open_nursery() as nursery:
            world = RealWorld(hosts, tmp_path, nursery)
            try:
                await tell(world, str(sockets))
            finally:
                for program in world.programs:
                    print(program.output.decode()[-2_000:])  # for pytest, which shows it if this fails
                    program.process.terminate()


async def tell(world: RealWorld, sockets: str) -> None:
    head = ("--head", "--port", RAY.partition(":")[2], "--temp-dir", sockets, "--include-dashboard", "false")
    await world.start_redis()
    await start_ray(world, 1, 4, *head)
    for host in (2, 3):
        await start_ray(world, host, 2, "--address", RAY)
    words = ("up", "hosts.yaml", "--on", "ray", "--json")
    up = await world.run(1, COMMAND, *words, RAY_ADDRESS=RAY, XDG_RUNTIME_DIR=sockets)
    await world.wait(lambda: up.event("ready") is not None)
    client = await world.run(4, sys.executable, "host_agents.py", "add", f"http://{REGISTRY}")
    answers = world.answers = client.said

    async def some_more() -> None:
        wanted = len(answers) + 20
        await world.wait(lambda: len(answers) >= wanted)

    await some_more()
    old = int(answers[-1][2])
    other = 5 - old
    [url] = urls_at(up, old)
    asker = await world.run(
        old, sys.executable, "host_agents.py", "ask", f"{url}/agents/counter".replace("ws", "http", 1)
    )
    await world.wait(lambda: asker.said == ["found"])

    world.cut_off(old)
    began = trio.current_time()
    refusals: list[str] = []

    async def ask_late() -> None:
        refusals.append(await world.ask(asker))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_late)
        await world.wait(lambda: answers[-1][2] == str(other))
        elsewhere = trio.current_time() - began
    await world.wait(lambda: len(urls_at(up, other)) == 2)  # Ray has given the host up
    replaced = trio.current_time() - began
    await ask_late()
    world.heal(old)
    await some_more()
    await ask_late()
    print(f"elsewhere after {elsewhere:.1f} s, replaced after {replaced:.1f} s", *refusals, sep="\n")
    assert all(refusals), "the worker that was cut off has answered"
    assert verdict_of(answers) == Verdict(is_exact=True, places=(str(old), str(other)))
