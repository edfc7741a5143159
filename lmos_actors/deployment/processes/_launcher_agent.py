"""The agent that controls a launcher, and the node on which both run."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 - the contract of the agent has it
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from lmos_actors.actors import Agent, action
from lmos_actors.node import Node, RuntimeOptions, open_door, open_stages
from lmos_actors.supervision import ChildSpec, SupervisorSpec

from ._group_approvals import GroupApprovals
from ._launcher import Launcher  # noqa: TC001 - a field of the agent
from ._launcher_operations import operations_of
from ._log_files import LogLine  # noqa: TC001 - the contract of the agent has it
from ._status import LauncherStatus  # noqa: TC001 - the contract of the agent has it

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors.live import AuditEntry
    from lmos_actors.transport import Network

ADDRESS: Final = "ws://127.0.0.1:1"
"""The address of the launcher on its socket, which serves no other."""


class LauncherAgent(Agent):
    """The agent through which commands control the launcher of a deployment."""

    launcher: Launcher

    def started(self) -> None:
        """Start the task that keeps groups at their requested sizes."""
        self.nursery.start_soon(self.launcher.keep_counts)

    @action
    def status(self) -> LauncherStatus:
        """Return the state of all groups and processes."""
        return self.launcher.status()

    @action(concurrency=64)
    async def ready(self) -> LauncherStatus:
        """Wait until all groups are ready, or one cannot start; return their state."""
        await self.launcher.wait_ready()
        return self.launcher.status()

    @action(concurrency=16)
    async def restart(self, groups: list[str], rolling: bool) -> AsyncIterator[str]:
        """Restart groups, or all if none is named; with `rolling` one process after another."""
        launcher = self.launcher
        chosen = [launcher.group(name) for name in groups] or list(launcher.groups.values())
        for group in chosen:
            words = "restart --rolling" if rolling else "restart"
            async with launcher.at_work(f"{words} {group.plan.name}"):
                restart = launcher.restart_rolling if rolling else launcher.restart
                async with aclosing(restart(group)) as texts:
                    async for text in texts:
                        yield text  # noqa: ASYNC119

    @action(concurrency=16)
    async def scale(self, group: str, count: int) -> AsyncIterator[str]:
        """Bring a group to a number of processes."""
        found = self.launcher.group(group)
        scaled, doing = self.launcher.scale(found, count), f"scale {group}={count}"
        async with aclosing(scaled) as texts, self.launcher.at_work(doing):
            async for text in texts:
                yield text  # noqa: ASYNC119

    @action(concurrency=16)
    async def drain(self, group: str) -> AsyncIterator[str]:
        """Stop the processes of a group in order; `restart` or `up` starts them again."""
        found = self.launcher.group(group)
        async with aclosing(self.launcher.drain(found)) as texts, self.launcher.at_work(f"drain {group}"):
            async for text in texts:
                yield text  # noqa: ASYNC119

    @action
    async def changes(self, settings: dict[str, str]) -> list[str]:
        """Return what has to be done to run the file in its present state, line by line."""
        return self.launcher.changes_to(await self.launcher.read(settings)).lines()

    @action(concurrency=16)
    async def apply(self, settings: dict[str, str]) -> AsyncIterator[str]:
        """Run the file in its present state; say line by line what has to be done, then what was done."""
        async with self.launcher.at_work("up"):
            plan = await self.launcher.read(settings)
            for line in self.launcher.changes_to(plan).lines():
                yield line  # noqa: ASYNC119
            async with aclosing(self.launcher.apply(plan)) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119

    @action
    def down(self) -> None:
        """End the launcher, and with it all groups, in order."""
        self.launcher.end()

    @action(concurrency=16)
    async def logs(self, groups: list[str], last: int, follow: bool) -> AsyncIterator[LogLine]:
        """Return the last lines of groups, or of all if none is named; with `follow` also new lines."""
        launcher = self.launcher
        chosen = {launcher.group(name).plan.name for name in groups} or set(launcher.groups)
        processes = [
            f"{name}/{number}"
            for name, group in launcher.groups.items()
            if name in chosen and last > 0
            for number in sorted(group.members)
        ]
        with launcher.logs.follow(later=processes) as follower:
            for process in processes:
                for line in await launcher.logs.last_before(follower, process, last):
                    yield line  # noqa: ASYNC119
            while follow and (lines := await follower.lines()):
                for line in lines:
                    if line.process.partition("/")[0] in chosen:
                        yield line  # noqa: ASYNC119


def launcher_url() -> str:
    """Return the address of the launcher on its socket."""
    return f"{ADDRESS}/agents/control.launcher"


def launcher_tree(launcher: Launcher) -> SupervisorSpec:
    """Return the supervisor tree of a launcher's node: the launcher's agent, and the groups."""
    control = SupervisorSpec("control", (ChildSpec("launcher", partial(LauncherAgent, launcher=launcher)),))
    return SupervisorSpec("root", (control, launcher.spec()), max_restarts=0)


@asynccontextmanager
async def open_launcher(
    launcher: Launcher,
    network: Network,
    page: RuntimeOptions | None = None,
    noted: Callable[[AuditEntry], None] = lambda entry: None,
) -> AsyncGenerator[Node]:
    """Start the groups of a launcher, and stop them in order at the end of the block.

    The launcher is controlled over `network`. With `page`, it serves a page for browsers at that address
    until all groups have stopped; `noted` is called with each operation by a person. Raises
    RestartIntensityExceeded if groups fail too often, and ConfigError if it cannot listen for commands or
    serve the page.
    """
    options = RuntimeOptions(listen=ADDRESS, network=network)
    async with open_stages(launcher_tree(launcher), options) as stages:
        node = Node(stages)
        launcher.opened(node)
        if page is not None:
            from lmos_actors.live import LiveServer  # what browsers see: not every launcher has a page

            if page.allow_operations:
                start_soon = stages.connections.start_soon
                launcher.approvals = GroupApprovals(
                    launcher.groups, page.network, start_soon, lambda: launcher.page
                )
            own = operations_of(launcher)
            launcher.page = await open_door(stages, page, LiveServer(own, noted))
        yield node
        await launcher.stop()
