"""A machine on virtual time whose processes are nodes: they register, drain, and are killed at an instant.

What a process of `serve --launched` does is done here by a task with a node of its own. A process that is
killed is cut off first: none of its connections, its store and its registrar reaches anybody any more while
its code unwinds. Its directory and its disk are those of the machine, which outlives launchers and processes.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import ChildSpec, SupervisorSpec, open_node
from lmos_actors.discovery import Registration
from lmos_actors.errors import ConnectFailed, StartFailed
from lmos_actors.persistence import SimulatedDisk, SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.deployment.fleet import Counter, Weather
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from lmos_actors import Node
    from lmos_actors.deployment.processes import Order
    from lmos_actors.transport import Endpoint, MemoryListener

DIRECTORY = "127.0.0.1:7100"
IMPORTS = 0.3
"""Seconds until a process has imported what it needs."""
TTL = 30.0
DRAIN = 10.0
HARD_END = 5.0
KILLED = -9
BROKEN = "broken"
"""The first argument of a process whose code cannot be imported; its exit code is the second one."""


class ProcessNetwork:
    """The network of the machine, as one process has it."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._is_cut_off = False
        self._streams: list[Any] = []
        self._addresses: list[tuple[str, int]] = []

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """See `Network`."""
        if self._is_cut_off:
            raise ConnectFailed(endpoint.url, "this process has been killed")
        stream = await self._network.connect(endpoint, tls)
        self._streams.append(stream)
        return stream

    async def listen(self, endpoint: Endpoint) -> MemoryListener:
        """See `Network`."""
        listener = await self._network.listen(endpoint)
        self._addresses += listener.addresses
        return listener

    def cut_off(self) -> None:
        """Break all connections of the process, and let it make no more."""
        self._is_cut_off = True
        for stream in self._streams:
            stream.break_now("the process was killed")
        for host, port in self._addresses:
            self._network.sever(host, port, "the process was killed")
            self._network.forget((host, port))


@attrs.define(eq=False)
class NodeProcess:
    """A process that is a task with a node."""

    machine: Machine
    place: MachinePlace
    order: Order
    number: int
    code: int | None = None
    is_killed: bool = False
    _network: ProcessNetwork = attrs.Factory(lambda self: ProcessNetwork(self.machine.network), True)
    _life: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _node: Node | None = None
    _asked: trio.Event = attrs.Factory(trio.Event)
    _ended: trio.Event = attrs.Factory(trio.Event)
    _pieces: Any = attrs.Factory(lambda: trio.open_memory_channel[bytes](1_000))
    _errors: Any = attrs.Factory(lambda: trio.open_memory_channel[bytes](1_000))

    @property
    def id(self) -> str:
        return str(self.number)

    @property
    def group(self) -> str:
        return self.order.name.partition("/")[0]

    async def output(self) -> AsyncGenerator[bytes]:
        async for piece in self._pieces[1]:
            yield piece

    async def errors(self) -> AsyncGenerator[bytes]:
        async for piece in self._errors[1]:
            yield piece

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.code is not None
        return self.code

    def stop(self) -> None:
        if not self.place.is_gone:
            self._asked.set()

    def kill(self) -> None:
        """See `Process`; also by hand."""
        if self.code is None and not self.is_killed and not self.place.is_gone:
            self.is_killed = True
            self._network.cut_off()
            if self.group == "counter":
                self.machine.disk.crash()
            if self._node is not None:
                self._node.force_stop()
            self._life.cancel("kill -9")

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def is_left_alone(self) -> None:
        """Have it drain by itself: its standard input has closed with its launcher."""
        self._asked.set()

    async def live(self) -> None:
        """Be a process, until its end."""
        code = 0
        try:
            with self._life:
                code = await self._serve()
        finally:
            self.code = KILLED if self.is_killed else code
            for channel in (self._pieces, self._errors):
                channel[0].close()
            self._ended.set()

    async def _serve(self) -> int:
        with trio.move_on_after(IMPORTS):
            await self._asked.wait()
            return 0
        if self.order.arguments[0] == BROKEN:
            self._errors[0].send_nowait(b"SyntaxError: invalid syntax\n")
            return int(self.order.arguments[1])
        if not self.machine.has_nodes:
            self._say("ready")
            await self._asked.wait()
            self._say("draining")
            await trio.sleep(IMPORTS)
            return 0
        async with open_node(self._tree(), network=self._network, **self._options()) as node:
            self._node = node
            with trio.move_on_after(2.0):
                while not all(each.agents for each in node.registrations):  # noqa: ASYNC110 -- as `serve`
                    await trio.sleep(0.01)
            self._say("listening", url=f"{node.urls[0]}/ws")
            self._say("ready")
            await self._asked.wait()
            self._say("draining")
            with trio.move_on_after(DRAIN) as scope:
                await node.drain()
            if scope.cancelled_caught:
                node.force_stop()
        return 0

    def _tree(self) -> SupervisorSpec:
        children: dict[str, list[ChildSpec[Any]]] = {
            "weather": [ChildSpec("weather", partial(Weather, begun=self.machine.begun))],
            "counter": [ChildSpec("counter", Counter, key="main")],
        }
        return SupervisorSpec("root", children.get(self.group, []))

    def _options(self) -> dict[str, Any]:
        if self.group == "registry":
            return {"listen": f"ws://{DIRECTORY}", "directory": True}
        store = SimulatedStore(self.machine.disk) if self.group == "counter" else None
        register = Registration((f"http://{DIRECTORY}",), ttl=TTL)
        return {"listen": "ws://127.0.0.1:0", "register": register, "store": store}

    def _say(self, event: str, **members: str) -> None:
        self._pieces[0].send_nowait(json.dumps({"event": event, **members}).encode() + b"\n")


@attrs.define(eq=False)
class Machine:
    """The machine: its network, its disk, and its processes, which outlive their launcher for a while."""

    nursery: trio.Nursery
    has_nodes: bool = True
    """Whether its processes have nodes, or do no more than to become ready and to drain."""
    network: MemoryNetwork = attrs.Factory(MemoryNetwork)
    disk: SimulatedDisk = attrs.Factory(lambda: simulated_disk(1, lambda: 0.002))
    processes: list[NodeProcess] = attrs.Factory(list[NodeProcess])
    begun: list[int] = attrs.Factory(list[int])
    """The requests that agents have accepted."""

    def running(self) -> list[NodeProcess]:
        """Return the processes that have not ended."""
        return [process for process in self.processes if process.code is None]

    async def wait_left(self) -> None:
        """Wait until all processes have ended by themselves; fail where they take longer than they may."""
        with trio.fail_after(DRAIN + HARD_END + 1.0):
            while self.running():
                await self.running()[0].wait()


@attrs.define(eq=False)
class MachinePlace:
    """The machine as one launcher has it, and the death of that launcher as by `kill -9`."""

    machine: Machine
    is_gone: bool = False
    """Whether its launcher is dead: what its code does while it unwinds has no effect."""

    async def start(self, order: Order) -> NodeProcess:
        await trio.sleep(0.01)
        if self.is_gone:
            raise StartFailed(order.name, "its launcher has been killed")
        machine = self.machine
        process = NodeProcess(machine, self, order, len(machine.processes) + 1)
        machine.processes.append(process)
        machine.nursery.start_soon(process.live)
        return process

    def kill_launcher(self) -> None:
        """Leave its processes alone, at this instant."""
        self.is_gone = True
        for process in self.machine.running():
            process.is_left_alone()
