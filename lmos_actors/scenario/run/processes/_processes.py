"""The processes of one run: the groups of its deployment, started by a launcher of the run.

A temporary folder has the copy of the file that the processes read, their stores, and their logs. The
processes end with the run in any case: in order if the story has come to its end, else by SIGKILL. If this
process is killed, they end by themselves, as their standard input ends.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors._core import current_environment, set_environment
from lmos_actors.assembly import open_node
from lmos_actors.deployment.agents import GroupNames
from lmos_actors.deployment.files import launch_plan
from lmos_actors.deployment.model import filled_for, texts_of
from lmos_actors.deployment.processes import (
    GROUP_MODULES,
    Launcher,
    LocalPlace,
    LogFiles,
    ProcessEnded,
    ReplicaStatus,
    RolloutStatus,
    launcher_tree,
)
from lmos_actors.errors import (
    AgentError,
    AgentUnavailable,
    RestartIntensityExceeded,
    StartFailed,
    group_of,
    raise_together,
)
from lmos_actors.security import SharedToken
from lmos_actors.transport import endpoint_of

from ..memory import first_of
from ._client import ProcessClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping

    from lmos_actors.deployment.files import DeploymentFile
    from lmos_actors.deployment.processes import GroupPlan, Member, Process
    from lmos_actors.node import Node
    from lmos_actors.system import RemoteAccess
    from lmos_actors.transport import Endpoint

    from ._network import ProcessNetwork

IN_ORDER: Final = 10.0
"""Seconds that all processes have to end in order after a completed story."""

KNOWN: Final = 0.25
"""Seconds after the end of a process until the end and the last output are known."""

SEEN: Final = 1.0
"""Seconds after the end of a connection until the end of its process is known, too."""


class Processes:
    """The processes of one run.

    `changed` is called whenever a process changes its state. `ended` is called with the name of a process
    that ended unexpectedly, and the reason.
    """

    def __init__(
        self,
        file: DeploymentFile,
        changed: Callable[[], object],
        ended: Callable[[str, str], object],
    ) -> None:
        self.network: ProcessNetwork | None = None
        """The network between the processes, if the file has one; it is opened before them."""
        self._file = file
        self._changed = changed
        self._ended = ended
        self._groups = GroupNames(file.deployment, file.system)
        self._folder = Path()
        self._may_end: dict[str, None] = {}
        self._addresses: dict[
            tuple[str, int], str
        ] = {}  # the group at each address, also of processes that have ended
        self._turns: dict[str, int] = {}
        self._nursery: trio.Nursery | None = None
        self._launcher: Launcher | None = None
        self._client: ProcessClient | None = None
        self._has_begun = False
        self._failed = trio.Event()
        self._first_failure = ("", "")

    @property
    def client(self) -> ProcessClient:
        """The consumer of the processes' agents; available once `connect` has been called."""
        assert self._client is not None
        return self._client

    def connect(self, node: Node, access: RemoteAccess, sent: Callable[[int], None]) -> None:
        """Make the client that reaches the agents through a node.

        `sent` is called with the number of each message.
        """
        self._client = ProcessClient(node, self.urls_of, self.next_url, access, sent)

    @property
    def launcher(self) -> Launcher:
        """The launcher; available while the processes exist."""
        assert self._launcher is not None
        return self._launcher

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery for tasks in the background of the steps; it lasts until the processes end."""
        assert self._nursery is not None
        return self._nursery

    def call_at(self, when: float, fn: Callable[[], object]) -> None:
        """Call a function at an instant, unless the processes end before then."""

        async def call() -> None:
            await trio.sleep_until(when)
            fn()

        self.nursery.start_soon(call)

    # ---- begin and end

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Start all processes, and wait until they are ready. Raises StartFailed."""
        self._folder = Path(mkdtemp(prefix="lmos-actors-run-"))
        self._place = LocalPlace(self._folder / "processes", GROUP_MODULES)
        try:
            self._launcher = launcher = self._made()
            with _quiet_about_processes():
                try:
                    async with self._opened(launcher) as node:
                        await self._wait_ready(launcher)
                        try:
                            async with trio.open_nursery(strict_exception_groups=True) as self._nursery:
                                yield
                                self._nursery.cancel_scope.cancel("the story has ended")
                            await self._end_in_order(launcher)
                        finally:
                            node.force_stop()
                except BaseExceptionGroup as group:
                    raise_together(list(group.exceptions), "errors of one run")
                except RestartIntensityExceeded as error:
                    name, why = _last_of(error)
                    raise StartFailed(name, why) from None
        finally:
            await self._place.aclose()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _made(self) -> Launcher:
        path = self._file.document.path
        assert path is not None
        copy, state = self._folder / path.name, self._folder / "state"
        shutil.copyfile(path, copy)
        state.mkdir()
        words = ("--snapshot", str(copy), "--keep", str(state))
        plan = launch_plan(self._file.deployment, str(path.resolve()), words)
        plan = attrs.evolve(plan, groups=tuple(map(self._at_free_ports, plan.groups)))
        logs, token = LogFiles(self._folder / "logs"), SharedToken.new()
        return Launcher(plan, self._place, logs, self._note, token=token)

    def _at_free_ports(self, plan: GroupPlan) -> GroupPlan:
        """Return the plan of a group with any free ports to listen at, as several runs may go on at once."""
        group, words = self._file.deployment.groups[plan.name], list(plan.arguments)
        for url in texts_of(group.listen):
            words += ["--listen", attrs.evolve(endpoint_of(filled_for(url, 1)), port=0, target="").url]
        if self.network is not None:
            words += ["--gateway", self.network.gateway_of(plan.name)]
        return attrs.evolve(plan, arguments=tuple(words), tells_address=bool(group.directory))

    @asynccontextmanager
    async def _opened(self, launcher: Launcher) -> AsyncGenerator[Node]:
        """Open the node of the launcher. It is not part of the run, so it makes no records."""
        environment = current_environment()
        set_environment(None)
        async with open_node(launcher_tree(launcher)) as node:
            set_environment(environment)
            launcher.opened(node)
            try:
                yield node
            except BaseException:
                node.force_stop()
                raise

    async def _wait_ready(self, launcher: Launcher) -> None:
        """Wait until all processes are ready. Raises StartFailed if one of them ends before that."""
        await first_of(launcher.wait_ready, self._failed.wait)
        self._has_begun = not self._failed.is_set()
        if not self._has_begun:
            raise StartFailed(*self._first_failure)

    async def _end_in_order(self, launcher: Launcher) -> None:
        if self.network is not None:
            self.network.heal_all()
        for group in launcher.groups.values():
            for member in group.members.values():
                if member.replica is not None and member.replica.process is not None:
                    member.replica.process.resume()  # a stopped process gets no request to end
        with trio.move_on_after(IN_ORDER), suppress(StartFailed):
            await launcher.stop()

    def _note(self, group: str, change: ReplicaStatus | RolloutStatus) -> None:
        if isinstance(change, ReplicaStatus):
            self._note_state(group, change)

    def _note_state(self, group: str, replica: ReplicaStatus) -> None:
        name = f"{group}/{replica.number}"
        is_failure = replica.state in ("restarting", "failed") and bool(replica.why)
        if is_failure and self._may_end.pop(name, self) is self:  # the values are None
            if self._has_begun:
                self._ended(name, replica.why)
            elif not self._failed.is_set():
                self._first_failure = (name, f"it {replica.why}")
                self._failed.set()
        self._changed()

    # ---- questions about them

    def group_at(self, path: str) -> str:
        """Return the group of the agent at a path; in a checked file there always is one."""
        found = self._groups.path(path)
        assert found is not None
        return found

    def group_at_address(self, to: Endpoint) -> str | None:
        """Return the group of the process that listens, or has listened, at an address; None if unknown."""
        for name, group in self.launcher.groups.items():
            for member in group.members.values():
                for url in member.urls:
                    there = endpoint_of(url)
                    self._addresses[there.host, there.port] = name
        return self._addresses.get((to.host, to.port))

    def urls_of(self, path: str) -> list[str]:
        """Return the URLs that lead to the agent at a path, one for each ready process."""
        members = sorted(self.launcher.groups[self.group_at(path)].members.items())
        return [each.urls[0] for _, each in members if each.state == "ready" and each.urls]

    def next_url(self, path: str) -> str:
        """Return one of the URLs of `urls_of`, in rotation.

        Raises AgentUnavailable while no process is ready.
        """
        urls = self.urls_of(path)
        if not urls:
            raise AgentUnavailable(path, f"no process of {self.group_at(path)} is ready")
        turn = self._turns.get(path, 0)
        self._turns[path] = turn + 1
        return urls[turn % len(urls)]

    def state_of(self, path: str) -> str:
        """Return the state of the processes of an agent, as a word that `wait until` uses."""
        group = self.launcher.groups[self.group_at(path)]
        states = {member.state for member in group.members.values()}
        if states == {"ready"}:
            return "running"
        return "stopped" if states <= {"stopped", "failed"} else "restarting"

    async def until_moved(self, path: str, take: Callable[[], Awaitable[None]]) -> bool:
        """Await `take`, which uses the agent at a path in one process; return whether that process ended.

        If the process did not end, an error of `take` is raised. The end of a connection is noticed before
        the end of its process.
        """
        group = self.launcher.groups[self.group_at(path)]
        url, error, is_moved = self.client.choose(path), None, False

        def is_elsewhere() -> bool:
            return url not in (urls := self.urls_of(path)) and bool(urls)

        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal is_moved
                await group.wait_until(is_elsewhere)
                is_moved = True
                nursery.cancel_scope.cancel("it is in another process")

            nursery.start_soon(watch)
            try:
                await take()
            except AgentError as caught:
                with trio.move_on_after(SEEN) as scope:
                    await group.wait_until(lambda: url not in self.urls_of(path))
                if scope.cancelled_caught:
                    error = caught
                else:
                    await group.wait_until(is_elsewhere)
                    is_moved = True
            nursery.cancel_scope.cancel("it is over")
        if error is not None:
            raise error
        return is_moved

    async def settle(self) -> None:
        """Wait until the launcher has noticed any end of a process that steps have noticed already.

        Steps notice it by a lost connection.
        """
        await trio.sleep(KNOWN)

    def draw(self) -> tuple[str, ...]:
        """Return a line of text for each process, with its present state."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[str]:
        if self._launcher is None:
            return
        for status in self._launcher.status().groups:
            for replica in status.replicas:
                why = f"  it {replica.why}" if replica.why else ""
                starts = f"{replica.generation} start" + ("s" if replica.generation != 1 else "")
                yield f"{status.name}/{replica.number}  {replica.state}  {starts}{why}"

    # ---- actions on them: on all of a group, or on one by its number, `weather/2`

    def _members(self, target: str) -> dict[str, Member]:
        """Return the processes of a target, by their names."""
        group, _, number = target.partition("/")
        members = self.launcher.groups[group].members.items()
        return {f"{group}/{each}": member for each, member in members if number in ("", str(each))}

    def _running(self, target: str) -> Iterator[tuple[str, Process]]:
        for name, member in self._members(target).items():
            if member.replica is not None and member.replica.process is not None:
                yield name, member.replica.process

    def generations(self, targets: list[str]) -> dict[str, int]:
        """Return how often each process of the targets has been started, by the name of the process."""
        return {name: each.generation for target in targets for name, each in self._members(target).items()}

    def kill(self, target: str) -> None:
        """Kill processes; the launcher starts others in their place."""
        for name, process in self._running(target):
            self._may_end[name] = None
            process.kill()

    def pause(self, target: str) -> None:
        """Stop processes by a signal, until `resume` is called."""
        for _, process in self._running(target):
            process.pause()

    def resume(self, target: str) -> None:
        """Continue stopped processes."""
        for _, process in self._running(target):
            process.resume()

    async def wait_begun_after(self, before: dict[str, int]) -> None:
        """Wait until each process is ready and has been started more often than the count in `before`.

        `before` has the counts by the names of the processes.
        """
        for name, count in before.items():
            group, _, number = name.partition("/")
            found = self.launcher.groups[group]
            await found.wait_until(partial(self._has_begun_after, found.members, int(number), count))

    @staticmethod
    def _has_begun_after(members: Mapping[int, Member], number: int, before: int) -> bool:
        return members[number].state == "ready" and members[number].generation > before

    async def restart(self, target: str, down: float) -> None:
        """Drain and end processes, start them again after `down` seconds, and wait until they are ready."""
        group, _, number = target.partition("/")
        found = self.launcher.groups[group]
        await self.launcher.stop_all(found, [int(number)] if number else None)
        await trio.sleep(down)
        await self.launcher.start_all(found)
        await found.wait_until(found.is_ready)


@contextmanager
def _quiet_about_processes() -> Generator[None]:
    """Keep crash reports of processes out of this process's log, as results report how processes ended."""
    log = logging.getLogger("lmos_actors")

    def is_other(record: logging.LogRecord) -> bool:
        args = record.args if isinstance(record.args, tuple) else ()
        return not any(isinstance(getattr(each, "error", None), ProcessEnded) for each in args)

    log.addFilter(is_other)
    try:
        yield
    finally:
        log.removeFilter(is_other)


def _last_of(error: BaseException) -> tuple[str, str]:
    """Return the name of the last process that failed before a launcher gave up, and the way it ended."""
    todo: list[BaseException] = [error]
    found = ("launcher", str(error))
    for each in todo:
        group = group_of(each)
        todo += [] if group is None else group.exceptions
        todo += [] if each.__cause__ is None else [each.__cause__]
        todo += getattr(each, "causes", ())
        if isinstance(each, ProcessEnded):
            found = (each.name, each.why)
    return found
