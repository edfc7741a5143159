"""One process worth of actors: the composition root.

A node nests stages, each of whose tasks is shielded until the stage inside it has ended:
services ⊃ supervisors ⊃ the user's body. So the body ends first, then the children in reverse start
order, then the tasks that carried their turns.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import attrs
import trio

from ._ambient import Ambient, current_ambient
from ._entropy import Entropy
from ._errors import ConfigError, NotFound, StartFailed, group_of
from ._services import Services
from ._timers import TaskTimers
from .actors import (
    Agent,
    DeadLetter,
    ExitReason,
    Feed,
    Finder,
    LocalLink,
    Ref,
    Runtime,
    TracedLink,
    Watchdog,
    dispatch,
)
from .supervision import ChildSpec, Supervisor, SupervisorSpec, agent_class

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from ._instrument import Instrument

A = TypeVar("A", bound=Agent)
P = ParamSpec("P")

GC_THRESHOLD = 50_000
"""Allocations between collections while a node is open, where the process has a lower number: agents are
made by the ten thousand, and the collector would look at all of them again and again."""


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

    def __init__(self, rt: Runtime, root: Supervisor) -> None:
        self._rt = rt
        self._root = root

    @property
    def root(self) -> Supervisor:
        """The root supervisor."""
        return self._root

    async def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start a permanent agent named after its class: `weather`, then `weather-2`. Raises StartFailed."""
        made = partial(factory, *args, **kwargs) if args or kwargs else factory
        return await self._root.start_named(made, _name_of(factory))

    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start an agent under the root supervisor. Raises NameTaken, StartFailed."""
        return await self._root.start_child(spec)

    async def start_supervisor(self, spec: SupervisorSpec) -> Supervisor:
        """Start a supervisor and its children under the root. Raises NameTaken, StartFailed."""
        return await self._root.start_supervisor(spec)

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Give a ref to an agent of that class, by its name or path, or the first started.

        Never waits and never fails: the ref resolves on first use; `await ref.ready()` waits for it.
        """
        return Ref(Finder(self._rt, cls, name))

    def agents(self) -> list[Ref[Any]]:
        """Give refs to all agents of the tree, in start order, whatever their status."""
        return [Ref(slot) for slot in _walk(self._root)]

    def statistics(self) -> NodeStatistics:
        """Count over all agents that are in the tree now."""
        totals: Counter[str] = Counter()
        agents = 0
        for slot in _walk(self._root):
            agents += 1
            numbers = attrs.asdict(slot.statistics())
            totals.update({name: value for name, value in numbers.items() if isinstance(value, int)})
        names = [a.name for a in attrs.fields(NodeStatistics)]
        counts = {name: totals[name] for name in names if name not in _NOT_SUMMED}
        return NodeStatistics(
            agents=agents,
            supervisors=sum(1 for _ in _supervisors(self._root)),
            dead_letters=self._rt.dead_letter_count,
            **counts,
        )

    def tree(self) -> str:
        """Draw the tree with the state of every child, as text."""
        return "\n".join(_draw(self._root))

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last thousand messages that nobody handled and whose senders were not told."""
        return tuple(self._rt.dead_letters)

    @asynccontextmanager
    async def watch_dead_letters(self, *, size: int = 64) -> AsyncGenerator[Feed[DeadLetter]]:
        """Give every dead letter from now on; past `size` waiting ones the oldest is dropped and counted."""
        feed: Feed[DeadLetter] = Feed(self._rt.timers, size=size)
        self._rt.dead_letter_feeds.append(feed)
        try:
            yield feed
        finally:
            self._rt.dead_letter_feeds.remove(feed)


def _name_of(factory: Any) -> str:
    while isinstance(factory, partial):
        factory = factory.func  # pyright: ignore[reportUnknownMemberType]
    name: str = getattr(factory, "__name__", "agent")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).strip("_<>").lower() or "agent"


def _walk(supervisor: Supervisor) -> Iterator[LocalLink]:
    for child in supervisor.children:
        if isinstance(child, Supervisor):
            yield from _walk(child)
        else:
            yield child


def _supervisors(supervisor: Supervisor) -> list[Supervisor]:
    below = [s for child in supervisor.children if isinstance(child, Supervisor) for s in _supervisors(child)]
    return [supervisor, *below]


def _draw(supervisor: Supervisor, indent: str = "") -> list[str]:
    spec = supervisor.spec
    head = f"{indent}{supervisor.label} ({spec.strategy}, {spec.max_restarts} in {spec.max_seconds:g} s)"
    lines = [head]
    for child in supervisor.children:
        if isinstance(child, Supervisor):
            lines.extend(_draw(child, indent + "  "))
        else:
            lines.append(f"{indent}  {child.label} {child.status} #{child.incarnation}")
    return lines


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


@asynccontextmanager
async def open_node(
    tree: SupervisorSpec | None = None, *, instrument: Instrument | None = None
) -> AsyncGenerator[Node]:
    """Open a node: a root supervisor with the children of `tree`, and what carries their turns.

    Leaving the block stops the children in reverse start order, each within its `shutdown`. When the
    root supervisor gives up, the body is cancelled and `RestartIntensityExceeded` raised. An exception
    of the body comes out as itself. Ctrl-C stops in order; a second one gives nobody more time.

    Raises StartFailed when a child of `tree` cannot start, ConfigError when `tree` is no SupervisorSpec.
    """
    if tree is not None and not isinstance(tree, SupervisorSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"open_node takes a SupervisorSpec, not {tree!r}; node.start(...) starts one agent")
    opening = _Opening()
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        services = Services(nursery)
        watchdog: Watchdog | None = None
        _collector.node_opened()
        try:
            rt = _runtime(services, instrument, opening)
            root = opening.root = _root(rt, tree, opening)
            services.start_soon(dispatch, rt, name="dispatcher")
            watchdog = _watchdog(rt)
            try:
                await root.begin(services.start_soon)
                with opening.body:
                    yield Node(rt, root)
            finally:
                opening.left = True
                await _stop(root)
                root.bury()
                rt.end()
        except BaseException as exc:  # noqa: ASYNC103 -- raised below, with what else ended the node
            opening.errors.append(exc)
        finally:
            _collector.node_ended()
            services.end()
            if watchdog is not None:
                watchdog.close()
    _raise(opening.errors)


def _root(rt: Runtime, tree: SupervisorSpec | None, opening: _Opening) -> Supervisor:
    root = Supervisor(rt, tree or SupervisorSpec("root"), None)
    root.on_end = opening.root_ended
    rt.resolver = _Tree(root)
    return root


def _watchdog(rt: Runtime) -> Watchdog | None:
    if not rt.real:
        return None
    watchdog = Watchdog(rt)
    rt.wake_watchdog = watchdog.wake
    rt.turns.budget = 0  # so that the first turn wakes it
    return watchdog


async def _stop(root: Supervisor) -> None:
    with trio.CancelScope(shield=True):
        try:
            await root.stop()
        except KeyboardInterrupt:
            root.kill()
            await root.stop()
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
        seen = instrument or ambient.instrument
        rt = Runtime(timers=ambient.timers, entropy=ambient.entropy, instrument=seen, real=False)
    rt.fatal = opening.fatal
    rt.link = LocalLink if rt.instrument is None else TracedLink
    return rt


class _Collector:
    """The process's garbage collector, which is to run less often while any node is open."""

    def __init__(self) -> None:
        self._nodes = 0
        self._threshold = gc.get_threshold()

    def node_opened(self) -> None:
        """Raise the threshold if this is the first node."""
        self._nodes += 1
        if self._nodes == 1:
            self._threshold = gc.get_threshold()
            if 0 < self._threshold[0] < GC_THRESHOLD:
                gc.set_threshold(GC_THRESHOLD, *self._threshold[1:])

    def node_ended(self) -> None:
        """Restore the threshold if this was the last node."""
        self._nodes -= 1
        if not self._nodes:
            gc.set_threshold(*self._threshold)


_collector = _Collector()


class _Tree:
    """Finds agents in the tree of one node, in start order (L3)."""

    def __init__(self, root: Supervisor) -> None:
        self._root = root

    def resolve(self, cls: type | None, name: str | None) -> LocalLink | None:
        """Give the slot of an agent; see `Resolver`."""
        if name is not None and "/" in name:
            return _by_path(self._root, cls, name)
        for slot in _walk(self._root):
            if (name is None or slot.label == name) and _is_a(slot, cls):
                return slot
        return None


def _by_path(root: Supervisor, cls: type | None, path: str) -> LocalLink | None:
    *supervisors, name = path.split("/")
    here = root
    try:
        for step in supervisors:
            here = here.supervisor(step)
    except NotFound:
        return None
    found = next((child for child in here.children if child.label == name), None)
    return found if isinstance(found, LocalLink) and _is_a(found, cls) else None


def _is_a(slot: LocalLink, cls: type | None) -> bool:
    if cls is None:
        return True
    if slot.agent is not None:
        return isinstance(slot.agent, cls)
    made = agent_class(slot.spec)
    return made is not None and issubclass(made, cls)
