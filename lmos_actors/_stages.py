"""The stages of a node, put together and taken apart in their order."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from ._ambient import Ambient, current_ambient
from ._collector import collector
from ._connections import Connections
from ._discovering import Discovering, Introduced
from ._ends import raise_together
from ._entropy import Entropy
from ._opening import Opening
from ._services import Services
from ._timers import TaskTimers
from .actors import LocalLink, Outside, Runtime, TracedLink, Watchdog, dispatch
from .observe import shown
from .supervision import Household, Supervisor, SupervisorSpec, Tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ._instrument import Instrument
    from ._wanted import Wanted


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
    rt.starter = Household
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
