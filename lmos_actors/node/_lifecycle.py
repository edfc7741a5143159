"""The life of a node: its stages, how they start, and the order in which they end.

Stages are nested: services (dispatcher, timers), connections, supervisors, the user's body. Nested
nurseries alone would not end them in order, as a cancellation reaches all of them at once. So the tasks of
each stage are shielded, and `NodeLifecycle.end` ends the stages from the inside out, each even if
the one before it has failed.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors._collector import collector
from lmos_actors._core import Entropy, Environment, ShieldedNursery, TaskTimers, current_environment
from lmos_actors.actors import (
    CircleSearch,
    Outside,
    RecordedSlot,
    Runtime,
    Slot,
    Starts,
    dispatch,
)
from lmos_actors.errors import ConfigError, raise_together
from lmos_actors.observe import diagnostics_for
from lmos_actors.supervision import (
    AgentSupervisor,
    Supervisor,
    SupervisorLoop,
    SupervisorSpec,
    Tree,
    check_top,
    members_of,
)

from ._discovery import Discovery
from ._network import Connections
from ._options import is_guarded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.actors import ExitReason

    from ._options import RuntimeOptions


class NodeLifecycle:
    """State that the stages of one `open_node` share: its errors, and whether its body has ended."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.body = trio.CancelScope()
        self.left = False
        self.root: SupervisorLoop | None = None
        self.connections: Connections | None = None

    def name(self) -> str:
        """Return the name of the node for others: its first URL, if it listens."""
        urls = () if self.connections is None else self.connections.urls
        return urls[0] if urls else "a node without a URL"

    def fatal(self, exc: BaseException) -> None:
        """End the node with an exception: cancel the body, and raise the exception out of it.

        A KeyboardInterrupt after the body has ended stops everything at once, whatever code it hits.
        """
        self.errors.append(exc)
        self.body.cancel("the node has failed")
        if self.root is not None:
            self.root.rt.failed = True
            if self.left and isinstance(exc, KeyboardInterrupt):
                self.force_stop()

    def force_stop(self) -> None:
        """Stop everything at once, without draining."""
        if self.root is not None:
            self.root.kill()
        if self.connections is not None:
            self.connections.force_stop()

    def root_ended(self, reason: ExitReason) -> None:
        """Handle the end of the root supervisor, which may be a failure or part of the node's own end."""
        if reason.error is not None:
            self.fatal(reason.error)
        elif not self.left:
            self.body.cancel("the root supervisor has ended")

    @trio.lowlevel.enable_ki_protection
    async def end(self, root: SupervisorLoop, connections: Connections) -> None:
        """End the stages from the inside out, each even if the one before has failed."""
        self.left = True
        connections.stop_accepting()
        try:
            try:
                await connections.run_before_stop()
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
async def _stop(root: SupervisorLoop) -> None:
    with trio.CancelScope(shield=True):
        try:
            await root.stop()
        except KeyboardInterrupt:
            root.kill()
            await _stop(root)
            raise


# --- the stages of a node, put together and taken apart in their order


@attrs.frozen
class NodeStages:
    """The parts of an open node."""

    rt: Runtime
    root: Supervisor
    services: ShieldedNursery
    connections: Connections
    discovery: Discovery
    body: trio.CancelScope
    """The scope around the block of `open_node`."""


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_stages(tree: SupervisorSpec | None, options: RuntimeOptions) -> AsyncGenerator[NodeStages]:
    """Start the stages of a node, and end them at the end of the block; see `open_node`."""
    _check_tree(tree)
    lifecycle = NodeLifecycle()
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        services = ShieldedNursery(nursery)
        collector.node_opened()
        try:
            rt = _runtime(services, options, lifecycle)
            async with _store(rt, options, services, lifecycle):
                connections = lifecycle.connections = Connections(rt, options, nursery)
                discovery = Discovery(rt, connections, options)
                whole = connections.with_children(tree or SupervisorSpec("root"))
                loop = lifecycle.root = _root(rt, whole, lifecycle)
                root = Supervisor(loop)
                rt.is_guarded = is_guarded(options, lambda: connections.is_in_memory)
                for service in connections.services:
                    service.begin(rt, root)
                connections.watch(root)
                with diagnostics_for(root, rt):
                    try:
                        await connections.listen(root)
                        discovery.enable_lookup()
                        await loop.begin(services.start_soon)
                        connections.start()
                        discovery.start()
                        with lifecycle.body:
                            yield NodeStages(rt, root, services, connections, discovery, lifecycle.body)
                    finally:
                        await lifecycle.end(loop, connections)
        except BaseException as exc:  # noqa: ASYNC103 -- raised below, with what else ended the node
            lifecycle.errors.append(exc)
        finally:
            collector.node_ended()
            services.end()
    raise_together(lifecycle.errors, "errors of one node")


@asynccontextmanager
async def _store(
    rt: Runtime, options: RuntimeOptions, services: ShieldedNursery, lifecycle: NodeLifecycle
) -> AsyncGenerator[None]:
    """Open the store of a node's durable agents for a block. Raises StoreFailed."""
    if options.store is None:
        yield
        return
    from lmos_actors.persistence import AgentStates, open_writer, store_of

    def report(text: str) -> None:
        if rt.real:
            logging.getLogger("lmos_actors").warning("%s", text)

    async with open_writer(store_of(options.store), report) as writer:
        rt.keeping = states = AgentStates(rt, writer, services.start_soon, lifecycle.name)
        try:
            yield
        finally:
            states.close()


def _check_tree(tree: SupervisorSpec | None) -> None:
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError("open_node needs trio.run(...); where no trio runs, use open_node_in_thread()")
    if tree is not None and not isinstance(tree, SupervisorSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"open_node takes a SupervisorSpec, not {tree!r}; node.start(...) starts one agent")
    if tree is not None:
        for reference in tree.outward:
            raise ConfigError("leads above the root supervisor", reference.place)
        for child in tree.children:
            check_top(child)


def _root(rt: Runtime, tree: SupervisorSpec, lifecycle: NodeLifecycle) -> SupervisorLoop:
    root = SupervisorLoop(rt, tree, members_of)
    root.on_end = lifecycle.root_ended
    rt.tally.supervisors[root] = None
    rt.resolver = Tree(Supervisor(root))
    rt.starter = AgentSupervisor
    return root


def _run_turns(rt: Runtime, services: ShieldedNursery, slow: float) -> None:
    """Start the dispatcher, and in real time the threads that detect turns of `slow` seconds or more."""
    services.start_soon(dispatch, rt, name="dispatcher")
    if rt.real:
        from lmos_actors.actors import LoopWatch, Watchdog

        watchdog = Watchdog(rt, slow=slow)
        services.at_end.append(watchdog.close)
        services.at_end.append(LoopWatch.join().leave)
        rt.wake_watchdog = watchdog.wake
        rt.turns.budget = 0  # so that the first turn wakes it


def _runtime(services: ShieldedNursery, options: RuntimeOptions, lifecycle: NodeLifecycle) -> Runtime:
    environment = current_environment() or Environment(Entropy(), None)
    timers = environment.timers
    if timers is None:
        timers = TaskTimers()
        services.start_soon(timers.run, name="timers")
    instrument = options.instrument
    if instrument is None:  # `is None`, as an empty log is false
        instrument = environment.instrument
    real = environment.timers is None
    limits = options.limits
    rt = Runtime(
        timers=timers,
        entropy=environment.entropy,
        instrument=instrument,
        real=real,
        dead_letters=limits.dead_letters,
        crash_reports=limits.crash_reports,
    )
    rt.staging = environment.staging
    services.at_end.append(rt.deadlines.close)  # callers may wait for the store, which ends after the agents
    rt.fatal = lifecycle.fatal
    rt.outside = Outside(threads=options.threads, processes=options.processes)
    rt.link = Slot if rt.instrument is None else RecordedSlot
    rt.full_slots, rt.starts = {}, Starts()
    rt.strict_resume = options.strict_resume
    rt.circles = CircleSearch(rt, fails=options.circles == "fail")
    _run_turns(rt, services, limits.slow_seconds)
    return rt
