"""One process worth of actors: the composition root.

A node nests stages, each of whose tasks is shielded until the stage inside it has ended:
services ⊃ supervisors ⊃ the user's body. So the body ends first, then the children in reverse start
order, then the tasks that carried their turns.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import attrs
import trio

from ._ambient import Ambient, current_ambient
from ._collector import collector
from ._entropy import Entropy
from ._errors import ConfigError, StartFailed, group_of
from ._services import Services
from ._timers import TaskTimers
from .actors import (
    Agent,
    CrashReport,
    DeadLetter,
    ExitReason,
    Feed,
    Finder,
    Group,
    LocalLink,
    Outside,
    Ref,
    Runtime,
    Topic,
    TracedLink,
    WaitingGraph,
    Watchdog,
    awaited,
    dispatch,
    topic_of,
)
from .observe import dump, graph_of, shown
from .portal import Portal, open_portal
from .supervision import (
    ChildSpec,
    Household,
    Pool,
    PoolRef,
    Supervisor,
    SupervisorSpec,
    Tree,
    agents_of,
    draw,
    name_of,
    supervisors_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from types import UnionType

    from ._instrument import Instrument

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
P = ParamSpec("P")


@attrs.frozen
class NodeStatistics:
    """Counts over all agents of a node that are in its tree now."""

    agents: int
    supervisors: int
    accepted: int
    handled: int
    cancelled: int
    dropped: int
    dead_lettered: int
    waiting: int
    running: int
    refused: int
    restarts: int
    dead_letters: int


_NOT_SUMMED = ("agents", "supervisors", "dead_letters")


class Node:
    """What `open_node` gives: the root supervisor and everything that is asked of the tree as a whole."""

    def __init__(self, rt: Runtime, root: Supervisor, services: Services) -> None:
        self._rt = rt
        self._root = root
        self._services = services
        self._portal: Portal | None = None

    @property
    def root(self) -> Supervisor:
        """The root supervisor."""
        return self._root

    @awaited("node.")
    async def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start a permanent agent named after its class: `weather`, then `weather-2`. Raises StartFailed."""
        made = partial(factory, *args, **kwargs) if args or kwargs else factory
        return await self._root.start_named(made, name_of(factory))

    @awaited("node.")
    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start an agent under the root supervisor. Raises NameTaken, StartFailed."""
        return await self._root.start_child(spec)

    @awaited("node.")
    async def start_pool(self, spec: Pool[A]) -> PoolRef[A]:
        """Start a pool under the root supervisor. Raises NameTaken (if it was named), StartFailed."""
        return await self._root.start_pool(spec)

    @awaited("node.")
    async def start_supervisor(self, spec: SupervisorSpec) -> Supervisor:
        """Start a supervisor and its children under the root. Raises NameTaken, StartFailed."""
        return await self._root.start_supervisor(spec)

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Give a ref to an agent of that class, by its name or path, or the first started.

        Never waits and never fails: the ref resolves on first use; `await ref.ready()` waits for it.
        """
        return Ref(Finder(self._rt, cls, name))

    @overload
    def topic(self, name: str, tp: type[T], /) -> Topic[T]: ...
    @overload
    def topic(self, name: str, tp: UnionType, /) -> Topic[Any]: ...
    def topic(self, name: str, tp: Any, /) -> Topic[Any]:
        """Give the topic of that name and type. Raises TypeError if it is one of another type."""
        return topic_of(self._rt, name, tp)

    def group(self, name: str, cls: type[A], /) -> Group[A]:
        """Give the members of a group that are of that class; agents join by `self.join_group(name)`."""
        return Group(self._rt, name, cls)

    def portal(self) -> Portal:
        """Give the way into this node for other threads and for asyncio code; to be called in the node.

        Raises ForbiddenCall on virtual time, where there are no other threads.
        """
        if self._portal is None:
            home: Any = self  # pyright takes a decorated generic method for another than itself
            self._portal = open_portal(self._rt, self._services, home)
        return self._portal

    def agents(self) -> list[Ref[Any]]:
        """Give refs to all agents of the tree, in start order, whatever their status."""
        return [Ref(slot) for slot in agents_of(self._root)]

    def statistics(self) -> NodeStatistics:
        """Count over all agents that are in the tree now."""
        totals: Counter[str] = Counter()
        agents = 0
        for slot in agents_of(self._root):
            agents += 1
            numbers = attrs.asdict(slot.statistics())
            totals.update({name: value for name, value in numbers.items() if isinstance(value, int)})
        names = [a.name for a in attrs.fields(NodeStatistics)]
        counts = {name: totals[name] for name in names if name not in _NOT_SUMMED}
        return NodeStatistics(
            agents=agents,
            supervisors=sum(1 for _ in supervisors_of(self._root)),
            dead_letters=self._rt.dead_letter_count,
            **counts,
        )

    def waiting_graph(self) -> WaitingGraph:
        """Say who waits for whom now, and which of them wait in a circle. As text, circles come first."""
        return graph_of(self._root)

    def dump(self) -> str:
        """Write down the turn in progress, the tree with mailboxes and accounts, where runs and tasks stand,
        who waits for whom, and the last dead letters. Bounded, and never raises.

        A process with open nodes that is sent SIGUSR1 writes the same to standard error.
        """
        return dump(self._root, self._rt)

    def tree(self) -> str:
        """Draw the tree with the state of every child, as text."""
        return "\n".join(draw(self._root))

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last thousand messages that nobody handled and whose senders were not told."""
        return tuple(self._rt.dead_letters)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def watch_dead_letters(self, *, size: int = 64) -> AsyncGenerator[Feed[DeadLetter]]:
        """Give every dead letter from now on, until the node ends.

        Past `size` waiting ones the oldest is dropped and counted.
        """
        with _listed(self._rt, self._rt.dead_letter_feeds, size) as feed:
            yield feed

    @property
    def crash_reports(self) -> tuple[CrashReport, ...]:
        """The last hundred crashes of agents, the oldest first."""
        return tuple(self._rt.crashes.reports)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def watch_crash_reports(self, *, size: int = 64) -> AsyncGenerator[Feed[CrashReport]]:
        """Give every crash report from now on, until the node ends.

        Past `size` waiting ones the oldest is dropped and counted.
        """
        with _listed(self._rt, self._rt.crashes.feeds, size) as feed:
            yield feed


@contextmanager
def _listed(rt: Runtime, feeds: list[Feed[T]], size: int) -> Generator[Feed[T]]:
    """Keep one more feed in a list until the block is left; it ends with the node."""
    feed: Feed[T] = Feed(rt.timers, size=size)
    if rt.ended:
        feed.close()
    feeds.append(feed)
    try:
        yield feed
    finally:
        feeds.remove(feed)


class _Opening:
    """What one `open_node` has to remember between its stages."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.body = trio.CancelScope()
        self.left = False
        self.root: Supervisor | None = None

    def fatal(self, exc: BaseException) -> None:
        """Something ended the node: the body is cancelled, the exception raised out of it.

        Ctrl-C that comes when the body has ended gives nobody more time, whatever code it hits.
        """
        self.errors.append(exc)
        self.body.cancel("the node has failed")
        if self.root is not None:
            self.root.rt.failed = True
            if self.left and isinstance(exc, KeyboardInterrupt):
                self.root.kill()

    def root_ended(self, reason: ExitReason) -> None:
        """The root supervisor has ended, by itself or with the node."""
        if reason.error is not None:
            self.fatal(reason.error)
        elif not self.left:
            self.body.cancel("the root supervisor has ended")


def _check_call(tree: SupervisorSpec | None) -> None:
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError("open_node needs trio.run(...); where no trio runs, use open_node_in_thread()")
    if tree is not None and not isinstance(tree, SupervisorSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"open_node takes a SupervisorSpec, not {tree!r}; node.start(...) starts one agent")


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_node(
    tree: SupervisorSpec | None = None,
    *,
    instrument: Instrument | None = None,
    threads: int | None = None,
    processes: int | None = None,
) -> AsyncGenerator[Node]:
    """Open a node: a root supervisor with the children of `tree`, and what carries their turns.

    At most `threads` threads, by default 16, and `processes` worker processes, by default as many as there
    are processors, work for its agents at a time (`self.to_thread`, `self.to_process`).

    Leaving the block stops the children in reverse start order, each within its `shutdown`. When the
    root supervisor gives up, the body is cancelled and `RestartIntensityExceeded` raised. An exception
    of the body comes out as itself. Ctrl-C stops in order; a second one gives nobody more time.

    Raises StartFailed when a child of `tree` cannot start, ConfigError for an argument of another kind.
    """
    _check_call(tree)
    opening = _Opening()
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        services = Services(nursery)
        watchdog: Watchdog | None = None
        collector.node_opened()
        try:
            rt = _runtime(services, instrument, opening)
            rt.outside = Outside(threads=threads, processes=processes)
            root = opening.root = _root(rt, tree, opening)
            services.start_soon(dispatch, rt, name="dispatcher")
            watchdog = _watchdog(rt)
            with shown(root, rt):
                try:
                    await root.begin(services.start_soon)
                    with opening.body:
                        yield Node(rt, root, services)
                finally:
                    opening.left = True
                    try:
                        await _stop(root)
                    finally:
                        root.bury()
                        rt.end()
                        await rt.outside.close()
        except BaseException as exc:  # noqa: ASYNC103 -- raised below, with what else ended the node
            opening.errors.append(exc)
        finally:
            collector.node_ended()
            services.end()
            if watchdog is not None:
                watchdog.close()
    _raise(opening.errors)


def _root(rt: Runtime, tree: SupervisorSpec | None, opening: _Opening) -> Supervisor:
    root = Supervisor(rt, tree or SupervisorSpec("root"), None)
    root.on_end = opening.root_ended
    rt.resolver = Tree(root)
    rt.starter = Household
    return root


def _watchdog(rt: Runtime) -> Watchdog | None:
    if not rt.real:
        return None
    watchdog = Watchdog(rt)
    rt.wake_watchdog = watchdog.wake
    rt.turns.budget = 0  # so that the first turn wakes it
    return watchdog


@trio.lowlevel.enable_ki_protection
async def _stop(root: Supervisor) -> None:
    with trio.CancelScope(shield=True):
        try:
            await root.stop()
        except KeyboardInterrupt:
            root.kill()
            await _stop(root)
            raise


def _raise(errors: list[BaseException]) -> None:
    """Raise what ended the node: one exception as itself, several as a group, none twice."""
    distinct = list({id(error): error for error in errors}.values())
    again = [error for error in distinct if isinstance(error, KeyboardInterrupt)][1:]
    distinct = [error for error in distinct if error not in again]
    alone = {id(error) for error in distinct if not isinstance(error, BaseExceptionGroup)}
    distinct = [error for error in distinct if not _says_nothing_new(error, alone)]
    if not distinct:
        return
    try:
        if len(distinct) == 1:
            raise distinct[0]
        raise BaseExceptionGroup("errors of one node", distinct)
    finally:
        distinct.clear()
        errors.clear()


def _says_nothing_new(error: BaseException, alone: set[int]) -> bool:
    if isinstance(error, StartFailed) and id(error.__cause__) in alone:
        return True  # what is no Exception, as SystemExit, has come by itself
    return group_of(error) is not None and all(id(leaf) in alone for leaf in _leaves(error))


def _leaves(error: BaseException) -> list[BaseException]:
    group = group_of(error)
    if group is None:
        return [error]
    return [leaf for part in group.exceptions for leaf in _leaves(part)]


def _runtime(services: Services, instrument: Instrument | None, opening: _Opening) -> Runtime:
    ambient = current_ambient()
    if ambient is None:
        timers = TaskTimers()
        services.start_soon(timers.run, name="timers")
        ambient = Ambient(Entropy(), timers, instrument)
        rt = Runtime(timers=timers, entropy=ambient.entropy, instrument=instrument, real=True)
    else:
        seen = ambient.instrument if instrument is None else instrument  # a log is false while empty
        rt = Runtime(timers=ambient.timers, entropy=ambient.entropy, instrument=seen, real=False)
        rt.staging = ambient.staging
    rt.fatal = opening.fatal
    rt.link = LocalLink if rt.instrument is None else TracedLink
    return rt
