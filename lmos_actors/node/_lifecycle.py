"""How a node begins to end, and in which order its stages do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors._collector import collector
from lmos_actors._core import Ambient, Entropy, Services, TaskTimers, current_ambient
from lmos_actors.actors import LocalLink, Outside, Runtime, TracedLink, Watchdog, dispatch
from lmos_actors.errors import raise_together
from lmos_actors.observe import shown
from lmos_actors.supervision import AgentSupervisor, Supervisor, SupervisorSpec, Tree

from ._discovery import Discovering, Introduced
from ._network import Connections

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors._core import Instrument
    from lmos_actors.actors import ExitReason

    from ._options import Wanted


class Opening:
    """What one `open_node` has to remember between its stages."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.body = trio.CancelScope()
        self.left = False
        self.root: Supervisor | None = None
        self.connections: Connections | None = None

    def fatal(self, exc: BaseException) -> None:
        """Something ended the node: the body is cancelled, the exception raised out of it.

        Ctrl-C that comes when the body has ended gives nobody more time, whatever code it hits.
        """
        self.errors.append(exc)
        self.body.cancel("the node has failed")
        if self.root is not None:
            self.root.rt.failed = True
            if self.left and isinstance(exc, KeyboardInterrupt):
                self.hurry()

    def hurry(self) -> None:
        """Give nobody any more time."""
        if self.root is not None:
            self.root.kill()
        if self.connections is not None:
            self.connections.hurry()

    def root_ended(self, reason: ExitReason) -> None:
        """The root supervisor has ended, by itself or with the node."""
        if reason.error is not None:
            self.fatal(reason.error)
        elif not self.left:
            self.body.cancel("the root supervisor has ended")

    @trio.lowlevel.enable_ki_protection
    async def end(self, root: Supervisor, connections: Connections) -> None:
        """End the stages inside out, each whatever has become of the one before."""
        self.left = True
        connections.refuse()
        try:
            try:
                await connections.give_notice()
            finally:
                await _stop(root)
        finally:
            try:
                await connections.close()
            finally:
                root.remove()
                root.rt.end()
                await root.rt.outside.close()


@trio.lowlevel.enable_ki_protection
async def _stop(root: Supervisor) -> None:
    with trio.CancelScope(shield=True):
        try:
            await root.stop()
        except KeyboardInterrupt:
            root.kill()
            await _stop(root)
            raise


# --- the stages of a node, put together and taken apart in their order


@attrs.frozen
class Stages:
    """What a node consists of while it is open."""

    rt: Runtime
    root: Supervisor
    services: Services
    connections: Connections
    discovering: Discovering


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def opened(
    tree: SupervisorSpec | None,
    instrument: Instrument | None,
    outside: Outside,
    wanted: Wanted,
    told: Introduced,
) -> AsyncGenerator[Stages]:
    """Put a node together, and take it apart at the end of the block; see `open_node`."""
    opening = Opening()
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        services = Services(nursery)
        collector.node_opened()
        try:
            rt = _runtime(services, instrument, opening, outside)
            connections = opening.connections = Connections(rt, wanted, nursery)
            discovering = Discovering(rt, connections, told, listens=bool(wanted.listen))
            root = opening.root = _root(rt, discovering.planted(tree or SupervisorSpec("root")), opening)
            connections.watch(root)
            with shown(root, rt):
                try:
                    await connections.listen(root)
                    discovering.begin()
                    await root.begin(services.start_soon)
                    connections.start()
                    discovering.start()
                    with opening.body:
                        yield Stages(rt, root, services, connections, discovering)
                finally:
                    await opening.end(root, connections)
        except BaseException as exc:  # noqa: ASYNC103 -- raised below, with what else ended the node
            opening.errors.append(exc)
        finally:
            collector.node_ended()
            services.end()
    raise_together(opening.errors, "errors of one node")


def _root(rt: Runtime, tree: SupervisorSpec, opening: Opening) -> Supervisor:
    root = Supervisor(rt, tree, None)
    root.on_end = opening.root_ended
    rt.tally.supervisors[root] = None
    rt.resolver = Tree(root)
    rt.starter = AgentSupervisor
    return root


def _run_turns(rt: Runtime, services: Services) -> None:
    """Start the dispatcher, and in real time the watchdog beside it."""
    services.start_soon(dispatch, rt, name="dispatcher")
    if rt.real:
        watchdog = Watchdog(rt)
        services.at_end.append(watchdog.close)
        rt.wake_watchdog = watchdog.wake
        rt.turns.budget = 0  # so that the first turn wakes it


def _runtime(
    services: Services, instrument: Instrument | None, opening: Opening, outside: Outside
) -> Runtime:
    ambient = current_ambient() or Ambient(Entropy(), None)
    timers = ambient.timers
    if timers is None:
        timers = TaskTimers()
        services.start_soon(timers.run, name="timers")
    seen = ambient.instrument if instrument is None else instrument  # a log is false while empty
    real = ambient.timers is None
    rt = Runtime(timers=timers, entropy=ambient.entropy, instrument=seen, real=real)
    rt.staging = ambient.staging
    rt.fatal = opening.fatal
    rt.outside = outside
    rt.link = LocalLink if rt.instrument is None else TracedLink
    _run_turns(rt, services)
    return rt
