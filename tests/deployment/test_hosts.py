"""A deployment over hosts, one of which is cut off and one slow: in network namespaces, and simulated.

A registry and Redis are on host 1, an agent with a key on hosts 2 and 3, a client on host 4. Both runs tell
the same story, and have the same verdict.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import pytest
import trio

from lmos_actors import ChildSpec, SupervisorSpec, open_node, simulate
from lmos_actors.discovery import Registration
from lmos_actors.errors import ConnectFailed
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.deployment import host_agents
from tests.deployment.host_agents import HOST, Counter
from tests.hosts import Hosts, needs_hosts
from tests.redis_server import PROGRAM, needs_redis
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors import Node
    from lmos_actors.transport import Endpoint, MemoryListener

REGISTRY = "10.77.0.1:7000"
COMMAND = str(Path(sys.executable).parent / "lmos-actors")
LONG = 90.0
"""Seconds after which what does not happen has failed."""

DEPLOYMENT = f"""
lmos: deployment/v1
name: hosts
agents:
  counter: {{from: agent, use: "host_agents.py:Counter", key: main}}
groups:
  registry: {{directory: true, listen: "ws://{REGISTRY}", insecure: true}}
  counter:
    agents: [counter]
    register: registry
    replicas: 3
    listen: "ws://0.0.0.0:0"
    insecure: true
    store: "redis://10.77.0.1:6379?prefix=hosts"
"""


class Replica(Protocol):
    """A process with the agent."""

    async def stop(self) -> None:
        """Stop it in order, and wait for its end."""

    async def ask(self) -> str:
        """Ask it from its own host, and return the error."""


class World(Protocol):
    """Hosts, and what runs on them."""

    answers: list[tuple[int, int, str]]
    """What the client was answered: the number of the request, the total, and where that was."""

    async def start(self, host: int, number: int) -> Replica: ...

    async def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds of the answers."""

    def cut_off(self, host: int) -> None: ...

    def heal(self, host: int) -> None: ...

    @asynccontextmanager
    def slowed(self, host: int) -> AsyncGenerator[None]: ...


@attrs.frozen
class Verdict:
    """What became of the story."""

    is_exact: bool
    """Whether each request has counted once, and nothing else."""
    places: tuple[str, ...]
    """Where the agent was, one after another."""


EXPECTED = Verdict(is_exact=True, places=("2/1", "3/2", "3/3"))


async def tell(world: World) -> Verdict:
    """Tell the story, and return the verdict."""

    async def some_more() -> None:
        wanted = len(world.answers) + 20
        await world.wait(lambda: len(world.answers) >= wanted)

    old = await world.start(2, 1)
    second = await world.start(3, 2)
    await some_more()

    world.cut_off(2)  # it has the agent, and its callers on that host still reach it
    late: list[str] = []
    async with trio.open_nursery() as nursery:

        async def ask_late() -> None:
            late.append(await old.ask())

        nursery.start_soon(ask_late)
        await world.wait(lambda: world.answers[-1][2] == "3/2")
        world.heal(2)
    assert late[0], "what it did without its lease was answered"
    await some_more()
    while "holds the lease" not in (refusal := await old.ask()):
        assert refusal.startswith("AgentUnavailable: "), "it does not stand by"
        await some_more()

    world.cut_off(2)  # in the middle of a rolling restart of the others
    await world.start(3, 3)
    await second.stop()
    await some_more()
    world.heal(2)
    await some_more()

    async with world.slowed(3):
        await some_more()
    await some_more()
    return verdict_of(world.answers)


def verdict_of(answers: list[tuple[int, int, str]]) -> Verdict:
    places = [place for _, _, place in answers]
    changes = [place for place, before in zip(places, ["", *places], strict=False) if place != before]
    expected = enumerate(answers, 1)
    is_exact = all(number == total == place for place, (number, total, _) in expected)
    return Verdict(is_exact, tuple(changes))


# ---- real hosts


class Program:
    """A process on a host; `said` has the values of the lines of JSON that it has printed."""

    def __init__(self, process: trio.Process, heard: Callable[[], object]) -> None:
        self.process = process
        self.said: list[Any] = []
        self.output = b""
        self._heard = heard

    async def listen(self) -> None:
        """Listen to what it prints, until its end."""
        rest = b""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self.process.stdin, self.process.stdout:
            async for piece in self.process.stdout:
                self.output += piece
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    with suppress(ValueError):  # it is for people
                        self.said.append(json.loads(line))
                self._heard()
            await self.process.wait()

    def event(self, name: str) -> dict[str, Any] | None:
        """Return what it has said of an event, the last time."""
        found = [each for each in self.said if isinstance(each, dict) and each.get("event") == name]
        return found[-1] if found else None


@attrs.define
class RealReplica:
    """A process of `serve --group counter`, and one beside it that asks it."""

    world: RealWorld
    program: Program
    asker: Program

    async def stop(self) -> None:
        self.program.process.terminate()
        assert await self.program.process.wait() == 0

    async def ask(self) -> str:
        return await self.world.ask(self.asker)


class RealWorld:
    """Hosts that are network namespaces, and processes on them."""

    def __init__(self, hosts: Hosts, folder: Path, nursery: trio.Nursery) -> None:
        self._hosts = hosts
        self._folder = folder
        self._nursery = nursery
        self._news = trio.Event()
        self.programs: list[Program] = []
        self.answers: Any = []
        self.cut_off = hosts.cut_off
        self.heal = hosts.heal

    async def wait(self, is_so: Callable[[], bool]) -> None:
        with trio.fail_after(LONG):
            while not is_so():
                await self._news.wait()

    def _heard(self) -> None:
        self._news.set()
        self._news = trio.Event()

    @asynccontextmanager
    async def slowed(self, host: int) -> AsyncGenerator[None]:
        with self._hosts.slowed(host, 200):
            yield

    async def ask(self, asker: Program) -> str:
        """Have a program ask the agent that it has found, and return the error."""
        before = len(asker.said)
        assert asker.process.stdin is not None
        await asker.process.stdin.send_all(b"\n")
        await self.wait(lambda: len(asker.said) > before)
        return str(asker.said[-1])

    async def run(self, host: int, *words: str, name: str = "", **environment: str) -> Program:
        """Start a program on a host."""
        command = self._hosts.command(host, *words)
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={**os.environ, "TEST_HOST": name, **environment},
        )
        program = Program(process, self._heard)
        self.programs.append(program)
        self._nursery.start_soon(program.listen)
        return program

    async def start_redis(self) -> None:
        assert PROGRAM is not None
        redis = (
            PROGRAM,
            "--bind",
            "10.77.0.1",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--appendonly",
            "yes",
        )
        server = await self.run(1, *redis)
        await self.wait(lambda: b"Ready to accept connections" in server.output)

    async def start_first(self) -> None:
        """Start Redis, the registry and the client."""
        await self.start_redis()
        await self.serve(1, "--group", "registry")
        client = await self.run(4, sys.executable, "host_agents.py", "add", f"http://{REGISTRY}")
        self.answers = client.said

    async def serve(self, host: int, *words: str, name: str = "") -> Program:
        program = await self.run(host, COMMAND, "serve", "hosts.yaml", *words, name=name)
        await self.wait(lambda: program.event("ready") is not None)
        return program

    async def start(self, host: int, number: int) -> RealReplica:
        listen = f"ws://{self._hosts.address(host)}:0"
        words = ("--group", "counter", "--replica", str(number), "--listen", listen)
        program = await self.serve(host, *words, name=f"{host}/{number}")
        agent = program.event("agent")
        assert agent is not None
        asker = await self.run(host, sys.executable, "host_agents.py", "ask", agent["url"])
        await self.wait(lambda: asker.said == ["found"])
        return RealReplica(self, program, asker)


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(300)
@needs_redis
async def test_a_deployment_over_hosts_goes_on_while_one_is_cut_off_and_one_is_slow(tmp_path: Path) -> None:
    needs_hosts()
    shutil.copy(host_agents.__file__, tmp_path)
    (tmp_path / "hosts.yaml").write_text(DEPLOYMENT, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    with Hosts(4) as hosts:
        async with trio.open_nursery() as nursery:
            world = RealWorld(hosts, tmp_path, nursery)
            try:
                await world.start_first()
                assert await tell(world) == EXPECTED
                lost = [b"LeaseLost" in program.output for program in world.programs]
                assert any(lost), "the host that was cut off has not noticed that its lease was lost"
            finally:
                for program in world.programs:
                    print(program.output.decode()[-2_000:])  # for pytest, which shows it if this fails
                    program.process.kill()


@pytest.mark.slow
def test_nothing_is_left_of_hosts_after_a_failure() -> None:
    needs_hosts()
    before: list[str] = []
    with suppress(ZeroDivisionError), Hosts(2) as hosts, hosts.slowed(2, 10):
        before += os.listdir("/run/netns")
        _ = 1 / 0
    mine = {hosts.command(number)[3] for number in (1, 2)}
    assert mine <= set(before)
    assert not mine & set(os.listdir("/run/netns"))


# ---- the same, simulated


class SimulatedHostNetwork:
    """The network as one host has it."""

    def __init__(self, world: SimulatedWorld, host: int) -> None:
        self._world = world
        self._host = host

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """See `Network`."""
        ends = {self._host, int(endpoint.host.removeprefix("host"))}
        if len(ends) == 2 and ends & self._world.off:
            raise ConnectFailed(endpoint.url, "No route to host")
        stream: Any = await self._world.network.connect(endpoint, tls)
        if len(ends) == 2:
            self._world.streams.append((ends, stream))
        return stream

    async def listen(self, endpoint: Endpoint) -> MemoryListener:
        """See `Network`."""
        return await self._world.network.listen(endpoint)


@attrs.define
class SimulatedReplica:
    """A node with the agent."""

    world: SimulatedWorld
    host: int
    url: str
    asked: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)

    async def stop(self) -> None:
        self.asked.set()
        await self.ended.wait()

    async def ask(self) -> str:
        async with open_node(network=SimulatedHostNetwork(self.world, self.host)) as node:
            return await host_agents.ask(await node.consume(Counter, self.url))


class SimulatedWorld:
    """Hosts on virtual time that share a disk, as they share a Redis server."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = MemoryNetwork()
        self.off: set[int] = set()
        self.streams: list[tuple[set[int], Any]] = []
        self.answers: Any = []
        self._nursery = nursery
        self._stores: list[tuple[int, SimulatedStore]] = []
        self._latency = 0.001
        self._disk = simulated_disk(1, lambda: self._latency, shared=True)

    async def wait(self, is_so: Callable[[], bool]) -> None:
        with trio.fail_after(LONG):
            while not is_so():  # noqa: ASYNC110 -- on virtual time
                await trio.sleep(0.1)

    def cut_off(self, host: int) -> None:
        self.off.add(host)
        for ends, stream in self.streams:
            if host in ends:
                stream.break_now("the cable was pulled out")
        self._reach()

    def heal(self, host: int) -> None:
        self.off.remove(host)
        self._reach()

    def _reach(self) -> None:
        for host, store in self._stores:
            store.is_cut_off = host in self.off

    @asynccontextmanager
    async def slowed(self, host: int) -> AsyncGenerator[None]:
        self._latency = 0.4  # there and back
        yield
        self._latency = 0.001

    async def start_first(self) -> None:
        """Start the registry and the client."""
        await self._nursery.start(self._run_registry)
        self._nursery.start_soon(self._run_client)

    async def _run_registry(self, task_status: trio.TaskStatus[None]) -> None:
        network = SimulatedHostNetwork(self, 1)
        async with open_node(listen="ws://host1:7000", directory=True, insecure=True, network=network):
            task_status.started()
            await trio.sleep_forever()

    async def _run_client(self) -> None:
        network = SimulatedHostNetwork(self, 4)
        async with open_node(lookup="http://host1:7000", network=network) as node:
            await host_agents.add(node, lambda answer: self.answers.append(answer))

    async def start(self, host: int, number: int) -> SimulatedReplica:
        HOST.set(f"{host}/{number}")  # the task of the node gets it
        replica = SimulatedReplica(self, host, f"http://host{host}:{8000 + number}/agents/counter")
        await self._nursery.start(self._run_node, replica, number)
        return replica

    async def _run_node(
        self, replica: SimulatedReplica, number: int, task_status: trio.TaskStatus[None]
    ) -> None:
        store = SimulatedStore(self._disk)
        self._stores.append((replica.host, store))
        async with open_node(
            SupervisorSpec("root"),
            listen=f"ws://host{replica.host}:{8000 + number}",
            register=Registration(("http://host1:7000",), ttl=30.0),
            store=store,
            insecure=True,
            network=SimulatedHostNetwork(self, replica.host),
        ) as node:
            await started(node)
            task_status.started()
            await replica.asked.wait()
            await node.drain()
        replica.ended.set()


async def started(node: Node) -> None:
    await node.start_child(ChildSpec("counter", Counter, key="main", standby=True))
    await trio.sleep(1)  # until it is registered


def test_the_same_deployment_simulated_has_the_same_verdict() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            world = SimulatedWorld(nursery)
            await world.start_first()
            assert await tell(world) == EXPECTED
            nursery.cancel_scope.cancel("the story is told")

    simulate(main)
