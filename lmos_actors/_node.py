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
from ._errors import StartFailed, SupervisionError
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
    from collections.abc import AsyncIterator, Callable

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
        names = {a.name for a in attrs.fields(NodeStatistics)}
        counts = {name: totals[name] for name in names - {"agents", "supervisors", "dead_letters"}}
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
    async def watch_dead_letters(self, *, size: int = 64) -> AsyncIterator[Feed[DeadLetter]]:
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


def _walk(supervisor: Supervisor) -> list[LocalLink]:
    slots: list[LocalLink] = []
    for child in supervisor.children:
        if isinstance(child, Supervisor):
            slots.extend(_walk(child))
        else:
            slots.append(child)
    return slots


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

    def fatal(self, exc: BaseException) -> None:
        """Something ended the node: the body is cancelled, the exception raised out of it."""
        self.errors.append(exc)
        self.body.cancel("the node has failed")

    def root_ended(self, reason: ExitReason) -> None:
        """The root supervisor has ended, by itself or with the node."""
        if reason.error is not None:
            self.fatal(reason.error)
        elif not self.left:
            self.body.cancel("the root supervisor has ended")


@asynccontextmanager
async def open_node(
    tree: SupervisorSpec | None = None, *, instrument: Instrument | None = None
) -> AsyncIterator[Node]:
    """Open a node: a root supervisor with the children of `tree`, and what carries their turns.

    Leaving the block stops the children in reverse start order, each within its `shutdown`. When the
    root supervisor gives up, the body is cancelled and `RestartIntensityExceeded` raised. An exception
    of the body comes out as itself. Ctrl-C stops in order; a second one gives nobody more time.

    Raises StartFailed when a child of `tree` cannot start.
    """
    opening = _Opening()
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        services = Services(nursery)
        rt = _runtime(services, instrument, opening)
        root = Supervisor(rt, tree or SupervisorSpec("root"), None)
        root.on_end = opening.root_ended
        rt.resolver = _Tree(root)
        services.start_soon(dispatch, rt, name="dispatcher")
        watchdog = Watchdog(rt) if rt.real else None
        if watchdog is not None:
            rt.wake_watchdog = watchdog.wake
            rt.turns.budget = 0  # so that the first turn wakes it
        threshold = _raise_gc_threshold()
        try:
            await services.start(root.main, name="root supervisor")
            try:
                with opening.body:
                    yield Node(rt, root)
            finally:
                opening.left = True
                await _stop(root)
        except BaseException as exc:
            opening.errors.append(exc)
        finally:
            gc.set_threshold(*threshold)
            services.end()
            if watchdog is not None:
                watchdog.close()
    _raise(opening.errors)


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
    return isinstance(error, BaseExceptionGroup) and all(id(leaf) in alone for leaf in _leaves(error))  # pyright: ignore[reportUnknownArgumentType]


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group: BaseExceptionGroup[BaseException] = error  # pyright: ignore[reportUnknownVariableType]
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


def _raise_gc_threshold() -> tuple[int, int, int]:
    threshold = gc.get_threshold()
    if 0 < threshold[0] < GC_THRESHOLD:
        gc.set_threshold(GC_THRESHOLD, *threshold[1:])
    return threshold


class _Tree:
    """Finds agents in the tree of one node: supervisors in start order, and children in theirs (L3)."""

    def __init__(self, root: Supervisor) -> None:
        self._root = root

    def resolve(self, cls: type | None, name: str | None) -> LocalLink | None:
        """Give the slot of an agent; see `Resolver`."""
        if name is not None and "/" in name:
            return _by_path(self._root, cls, name)
        for supervisor in _supervisors(self._root):
            for child in supervisor.children if name is None else _named(supervisor, name):
                if isinstance(child, LocalLink) and _is_a(child, cls):
                    return child
        return None


def _named(supervisor: Supervisor, name: str) -> tuple[Any, ...]:
    return tuple(child for child in supervisor.children if child.label == name)


def _by_path(root: Supervisor, cls: type | None, path: str) -> LocalLink | None:
    *supervisors, name = path.split("/")
    here = root
    try:
        for step in supervisors:
            here = here.supervisor(step)
    except SupervisionError:
        return None
    found = next((child for child in _named(here, name) if isinstance(child, LocalLink)), None)
    return found if found is not None and _is_a(found, cls) else None


def _is_a(slot: LocalLink, cls: type | None) -> bool:
    made = type(slot.agent) if slot.agent is not None else agent_class(slot.spec)
    return cls is None or (made is not None and issubclass(made, cls))
