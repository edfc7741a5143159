"""A place whose processes are scripted: when they are ready, how they end, what they print."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors.deployment.processes import (
    GroupPlan,
    Launcher,
    LauncherAgent,
    LaunchPlan,
    LogFiles,
    ReplicaStatus,
    open_launcher,
)
from lmos_actors.errors import StartFailed
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmos_actors import Ref
    from lmos_actors.assembly import NodeOptions
    from lmos_actors.deployment.processes import Order, RolloutStatus
    from lmos_actors.live import AuditEntry

KILL = -9
NOISE = b"noise and noise\n" * 400


@attrs.frozen(kw_only=True)
class Script:
    """What a process does. Times are in seconds from its start, or from the signal that asks it to end."""

    ready: float | None = 1.0
    """When it is ready, None for never."""
    ends: float | None = None
    """When it ends by itself, None for never."""
    code: int = 1
    says: str = ""
    """Its last words."""
    drains: float | None = 1.0
    """How long it drains, None if it does not heed SIGTERM."""
    drained: int = 0
    url: str = ""
    page: str = ""
    """The address of its page, as it prints that."""
    bound: str = ""
    """The address that it prints as soon as it has started."""
    prints: tuple[str, ...] = ()
    """Lines that it prints once it is ready."""
    floods: int = 0
    """How many pieces it prints, as soon as it is ready."""
    starting: float = 0.0
    """How long its place takes to start it."""
    fails: str = ""
    """Why its place cannot start it."""


@attrs.define(eq=False)
class FakeProcess:
    """A process of the place."""

    place: FakePlace
    name: str
    script: Script
    number: int
    code: int | None = None
    printed: int = 0
    _asked: trio.Event = attrs.Factory(trio.Event)
    _paused: trio.Event | None = None
    _ended: trio.Event = attrs.Factory(trio.Event)
    _pieces: Any = attrs.Factory(lambda: trio.open_memory_channel[bytes](8))
    _errors: Any = attrs.Factory(lambda: trio.open_memory_channel[bytes](8))

    @property
    def id(self) -> str:
        return str(self.number)

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
        self.place.note(f"stop {self.name}")
        self._asked.set()

    def kill(self) -> None:
        if self.code is None:
            self.place.note(f"kill {self.name}")
            self.end(KILL)

    def pause(self) -> None:
        self.place.note(f"pause {self.name}")
        self._paused = trio.Event()

    def resume(self) -> None:
        self.place.note(f"resume {self.name}")
        if self._paused is not None:
            self._paused.set()

    def end(self, code: int) -> None:
        """End by itself, or by a signal of somebody else."""
        if self.code is None:
            self.code = code
            self.place.note(f"end {self.name}")
            self._ended.set()

    async def say(self, event: str, **members: str | list[str]) -> None:
        await self._pieces[0].send(json.dumps({"event": event, **members}).encode() + b"\n")

    async def live(self) -> None:
        """Do what the script says, until the end."""
        try:
            async with trio.open_nursery() as nursery:
                for part in (self._become_ready, self._end, self._drain, self._flood):
                    nursery.start_soon(part)
                await self._ended.wait()
                nursery.cancel_scope.cancel("it has ended")
        finally:
            self._pieces[0].close()
            self._errors[0].close()

    async def _become_ready(self) -> None:
        if self.script.bound:
            await self.say("bound", urls=[f"{self.script.bound}/ws"])
        if self.script.ready is not None:
            await trio.sleep(self.script.ready)
            if self.script.url:
                await self.say("listening", url=f"{self.script.url}/ws")
            if self.script.page:
                await self.say("page", url=self.script.page)
            for line in self.script.prints:
                await self._pieces[0].send(f"{line}\n".encode())
            await self.say("ready")
            self.place.note(f"ready {self.name}")

    async def _end(self) -> None:
        if self.script.ends is not None:
            await trio.sleep(self.script.ends)
            if self.script.says:
                await self._errors[0].send(f"Traceback\n{self.script.says}\n".encode())
            self.end(self.script.code)

    async def _drain(self) -> None:
        await self._asked.wait()
        if self._paused is not None:
            await self._paused.wait()
        if self.script.drains is not None:
            await self.say("draining")
            await trio.sleep(self.script.drains)
            self.end(self.script.drained)

    async def _flood(self) -> None:
        await trio.sleep(self.script.ready or 0.0)
        for _ in range(self.script.floods):
            await self._pieces[0].send(NOISE)
            self.printed += 1


@attrs.define(eq=False)
class FakePlace:
    """The place: `scripts` has those of names, one after another for each start; the last is for the rest."""

    nursery: trio.Nursery
    scripts: Mapping[str, list[Script]] = attrs.Factory(dict[str, list[Script]])
    usual: Script = attrs.Factory(Script)
    lines: list[str] = attrs.Factory(list[str])
    processes: list[FakeProcess] = attrs.Factory(list[FakeProcess])
    orders: list[Order] = attrs.Factory(list["Order"])

    def note(self, line: str) -> None:
        self.lines.append(f"{trio.current_time():g} {line}")

    def take(self) -> list[str]:
        """Return what has happened since the last time; what was in one instant is in order of its text."""
        lines, self.lines = self.lines, []
        return sorted(lines, key=lambda line: (float(line.split()[0]), line))

    async def start(self, order: Order) -> FakeProcess:
        scripts = self.scripts.get(order.name) or [self.usual]
        script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
        await trio.sleep(script.starting)
        if script.fails:
            raise StartFailed(order.name, script.fails)
        self.orders.append(order)
        self.note(f"start {order.name}")
        process = FakeProcess(self, order.name, script, len(self.orders))
        self.processes.append(process)
        self.nursery.start_soon(process.live)
        return process

    def last(self, name: str) -> FakeProcess:
        """Return the last process of a name."""
        return [process for process in self.processes if process.name == name][-1]

    def running(self) -> list[str]:
        """Return the names of the processes that run."""
        return sorted(process.name for process in self.processes if process.code is None)


class NoFiles(LogFiles):
    """Logs that are handed to those who follow, and kept nowhere."""

    async def write(self, process: str, lines: list[str]) -> None:
        self.recent.add(process, lines)
        for follower in tuple(self._followers):
            await follower.put(process, lines)
        await trio.lowlevel.checkpoint()


def group(name: str, replicas: int = 1, **options: Any) -> GroupPlan:
    """Return the plan of a group."""
    return GroupPlan(
        name=name, replicas=replicas, arguments=("serve", "desk.yaml", "--group", name), **options
    )


def plan_of(*groups: GroupPlan, **options: Any) -> LaunchPlan:
    """Return the plan of a launcher."""
    return LaunchPlan(name="desk", file="desk.yaml", groups=groups, **options)


@attrs.frozen
class World:
    """A launcher that runs at a scripted place."""

    place: FakePlace
    launcher: Launcher
    ref: Ref[LauncherAgent]
    seen: list[str]
    """The states of processes as they came: `0 weather/1 waiting`."""
    said: list[str]
    """What the launcher has said of what it does by itself."""
    operated: list[AuditEntry]
    """The operations that have ended, which people have asked for at its page."""

    def states(self) -> dict[str, str]:
        """Return the state of each process."""
        return {
            f"{group.name}/{replica.number}": replica.state
            for group in self.launcher.status().groups
            for replica in group.replicas
        }

    def replica(self, name: str) -> ReplicaStatus:
        """Return the status of a process."""
        group, _, number = name.partition("/")
        found = self.launcher.groups[group].status().replicas
        return next(each for each in found if each.number == int(number))

    async def asked(self, stream: Any) -> list[Any]:
        """Return what a request has done, line by line."""
        found: list[Any] = []
        async with stream as lines:
            async for line in lines:
                await trio.lowlevel.checkpoint()
                found.append(line)
        return found


@asynccontextmanager
async def deployed(
    *groups: GroupPlan,
    scripts: Mapping[str, list[Script]] | None = None,
    usual: Script | None = None,
    seen: list[str] | None = None,
    page: NodeOptions | None = None,
    **options: Any,
) -> AsyncGenerator[World]:
    """Run a launcher of groups at a scripted place; processes that are left at the end are a mistake.

    `seen` is the list that the states of processes go to, `page` where its page is.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        place = FakePlace(nursery, dict(scripts or {}), usual or Script())
        states: list[str] = [] if seen is None else seen

        def notice(name: str, change: ReplicaStatus | RolloutStatus) -> None:
            if isinstance(change, ReplicaStatus):
                states.append(f"{trio.current_time():g} {name}/{change.number} {change.state}")

        said: list[str] = []
        plan = plan_of(*groups, **options)
        launcher = Launcher(plan, place, NoFiles(Path("nowhere")), notice, say=said.append)
        try:
            operated: list[AuditEntry] = []
            async with open_launcher(launcher, MemoryNetwork(), page, operated.append) as node:
                ref = node.find(LauncherAgent, "control/launcher")
                yield World(place, launcher, ref, states, said, operated)
        except Exception as error:  # raised below, and not as a group of one
            failure = error
        running = place.running()
        nursery.cancel_scope.cancel("the place is closed")
    if failure is not None:
        raise failure
    assert running == []
