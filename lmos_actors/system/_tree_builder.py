"""Construction of the supervision tree of a run: child specs and supervisor specs from a file."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
from msgspec import UNSET

from lmos_actors.actors import Agent, MailboxOptions, Ref
from lmos_actors.files import inside
from lmos_actors.supervision import Backoff, BulkSpec, ChildSpec, Pool, SupervisorSpec

from ._cell_names import is_durable_class
from ._fields import AgentField, by_state_name, fields_of_agent
from .model import AgentEntry, Bridge, Elsewhere, Mock, PoolEntry, Replay, Supervised, Supervisor, fill_late

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import UnsetType

    from lmos_actors.node import Node

    from ._remote_access import RemoteAccess
    from ._system import System
    from .model import Backoff as BackoffEntry, Mailbox, Supervising


class _AgentFactory(partial[Agent]):
    """A class with its arguments, as a partial. Arguments written in a file are not shared by incarnations.

    `fresh` names the arguments that are checked against their fields and copied for each incarnation.
    """

    fresh: tuple[str, ...] = ()

    def __call__(self) -> Agent:
        cls: Any = self.func
        fields = fields_of_agent(cls)
        own = {name: _fresh(fields[name], self.keywords[name]) for name in self.fresh}
        made: Agent = cls(**{**self.keywords, **own})
        return made


def _fresh(field: AgentField, value: Any) -> Any:
    if has_ref(value):
        return value
    return copy.deepcopy(value) if field.shape is None else field.shape.take(value)


def has_ref(value: Any) -> bool:
    if isinstance(value, Ref):
        return True
    if isinstance(value, tuple):  # the refs of a population
        return any(map(has_ref, cast("Any", value)))
    return any(has_ref(part) for _, part in inside(value))


def _maker(
    entry: AgentEntry | PoolEntry | Replay,
    cls: type[Agent],
    refs: Mapping[str, Any],
    known: Mapping[str, Any] | None = None,
) -> _AgentFactory:
    """Return the factory of an agent of the file; `known` has arguments from the tree of a project."""
    fields = fields_of_agent(cls)
    states = by_state_name(fields)
    given = {key: fields[key].fitted(value) for key, value in fill_late(entry.args, "agents", refs).items()}
    given |= {states[key].name: value for key, value in entry.state.items()}
    factory = _AgentFactory(cls, **{**(known or {}), **given})
    factory.fresh = tuple(given)
    return factory


def _seconds(shutdown: Any) -> Any:
    return shutdown if isinstance(shutdown, str) else float(shutdown)


def mailbox_options(mailbox: Mailbox | UnsetType) -> MailboxOptions | None:
    """Return the mailbox options given in a file, or None for those of the class."""
    return None if mailbox is UNSET else MailboxOptions(mailbox.size, mailbox.when_full)


def backoff_of(entry: BackoffEntry | UnsetType) -> Backoff | None:
    """Return the back-off of an entry, or None if it has none. Raises ConfigError for invalid values."""
    if entry is UNSET:
        return None
    return Backoff(
        initial=float(entry.initial), factor=entry.factor, max=float(entry.max), jitter=entry.jitter
    )


def spec_of(name: str, entry: Supervised, factory: Callable[[], Agent]) -> ChildSpec[Any]:
    """Make the child spec of an agent, mock or replay."""
    return ChildSpec(
        name,
        factory,
        restart=entry.restart,
        shutdown=_seconds(entry.shutdown),
        significant=entry.significant,
        mailbox=mailbox_options(entry.mailbox),
        backoff=backoff_of(entry.backoff),
        id=entry.id if isinstance(entry, AgentEntry) else None,
        key=entry.key if isinstance(entry, AgentEntry) else None,
        optional=isinstance(entry, AgentEntry) and entry.optional,
    )


def pool_of(name: str, entry: PoolEntry, factory: Callable[[], Agent]) -> Pool[Any]:
    """Make the spec of a pool in a file. Raises ConfigError if its key is not a parameter of any action."""
    return Pool(
        factory,
        entry.size,
        by=entry.by,
        key=entry.key or None,
        name=name,
        restart=entry.restart,
        max_restarts=entry.max_restarts,
        max_seconds=float(entry.max_seconds),
        shutdown=_seconds(entry.shutdown),
        mailbox=mailbox_options(entry.mailbox),
        backoff=backoff_of(entry.backoff),
    )


@attrs.frozen
class Places:
    """Lookups for agents that communicate over other protocols.

    `chat_url` returns the address of a chat agent, `chat_network` the network over which a bridge reaches it,
    `line` an agent's line to a relay, `access` a bridge's credentials for an external server.
    """

    chat_url: Callable[[str], str]
    chat_network: Callable[[str, str], Any]
    line: Callable[[str], Any]
    access: Callable[[Bridge], RemoteAccess]

    def public_name(self, path: str) -> str:
        """Return the name of the agent at a path, as seen from outside its node."""
        from lmos_actors.bindings import public_name  # few files need it

        return public_name(path)


def root_spec(system: System) -> SupervisorSpec:
    """Return the spec of the root of a system, without children."""
    root = system.root
    if system.used is not None:
        return attrs.evolve(system.used.spec, children=())
    return SupervisorSpec(
        "root",
        strategy=root.strategy,
        max_restarts=root.max_restarts,
        max_seconds=float(root.max_seconds),
        auto_shutdown=root.auto_shutdown,
    )


async def start_spec(node: Node, spec: Any) -> None:
    """Start a child of the root of a node. Raises StartFailed, NameTaken, ConfigError."""
    if isinstance(spec, SupervisorSpec | BulkSpec):
        await node.start_supervisor(spec)
    elif isinstance(spec, Pool):
        await node.start_pool(spec)  # pyright: ignore[reportUnknownArgumentType]
    else:
        await node.start_child(spec)


class TreeBuilder:
    """A builder of the specs in the tree of a system.

    `refs` has the refs for `$(agents.NAME)`, `doubles` the classes of mocks and replays, made for this run.
    `reached` has the lookups for other protocols; it is needed if the system has bridges, or mocks that use
    such protocols.
    """

    def __init__(
        self,
        system: System,
        refs: Mapping[str, Any],
        doubles: Mapping[str, type[Agent]],
        reached: Places | None = None,
    ) -> None:
        self._system = system
        self._refs = refs
        self._doubles = doubles
        self._reached = reached

    def children(self, keep: Callable[[str], bool]) -> tuple[Any, ...]:
        """Return the specs of the children of the root whose names `keep` accepts."""
        if self._system.used is not None:
            return tuple(child for child in self.root().children if keep(child.name))
        names = {
            child if isinstance(child, str) else child.name: child for child in self._system.root.children
        }
        return tuple(self._child(child) for name, child in names.items() if keep(name))

    def root(self) -> SupervisorSpec:
        """Return the spec of the root with everything below it except populations."""
        used = self._system.used
        if used is None:
            return self._supervisor(self._system.root)
        made: dict[str, SupervisorSpec] = {}
        for path, spec in reversed(used.supervisors.items()):  # from the bottom up: a tree may have any depth
            made[path] = attrs.evolve(spec, children=self._built(spec, f"{path}/", made))
        more = tuple(map(self._child, self._system.root.children))
        return attrs.evolve(used.spec, children=(*self._built(used.spec, "", made), *more))

    # ---- the tree of the file

    def _supervisor(self, above: Supervising) -> SupervisorSpec:
        own: dict[str, Any] = {}
        if isinstance(above, Supervisor):
            own = {"restart": above.restart, "shutdown": _seconds(above.shutdown)}
            own |= {"significant": above.significant, "backoff": backoff_of(above.backoff)}
        return SupervisorSpec(
            above.name if isinstance(above, Supervisor) else "root",
            tuple(map(self._child, above.children)),
            strategy=above.strategy,
            max_restarts=above.max_restarts,
            max_seconds=float(above.max_seconds),
            auto_shutdown=above.auto_shutdown,
            **own,
        )

    def _child(self, child: str | Supervisor) -> Any:
        if isinstance(child, Supervisor):
            return self._supervisor(child)
        entry = self._system.agents[child]
        assert not isinstance(entry, Elsewhere)  # supervised by another node
        if isinstance(entry, PoolEntry):
            return pool_of(child, entry, _maker(entry, self._system.agent_class(child), self._refs))
        if child in self._doubles:
            return spec_of(child, entry, self._double(child, entry))
        if isinstance(entry, Bridge):
            return spec_of(child, entry, self._bridge(child, entry))
        assert isinstance(entry, (AgentEntry, Replay))
        return spec_of(child, entry, _maker(entry, self._system.agent_class(child), self._refs))

    def _double(self, name: str, entry: Supervised) -> Any:
        double: Any = self._doubles[name]
        if not isinstance(entry, Mock | Replay) or entry.speaks != "relay":
            return double
        assert self._reached is not None  # see above
        line = self._reached.line(name)

        def stranger() -> Any:
            made = double()
            made.line = line
            return made

        return stranger

    def _bridge(self, name: str, entry: Bridge) -> Any:
        assert self._reached is not None  # see above
        cls = self._system.agent_class(name)
        if entry.speaks == "omnia":
            if entry.url is not None or entry.to is None:
                access = self._reached.access(entry)
                return partial(cls, url=entry.url, credentials=access.presented(), tls=access.tls())
            network = self._reached.chat_network(name, entry.to)
            return partial(cls, url=self._reached.chat_url(entry.to), network=network)
        line = self._reached.line(name)
        if entry.to is not None:
            return partial(cls, line=line, agent=self._reached.public_name(self._system.paths[entry.to]))
        more = {"id": name, "credentials": line.credentials, "tls": line.tls, "network": line.network}
        return partial(cls, url=line.url, follows=entry.follows, **more)

    # ---- a tree of the project

    def _built(self, above: SupervisorSpec, prefix: str, made: Mapping[str, SupervisorSpec]) -> list[Any]:
        paths = [(prefix + child.name, child) for child in above.children]
        return [made.get(path) or self._agent(path, child, prefix) for path, child in paths]

    def _agent(self, path: str, child: Any, prefix: str) -> Any:
        def ref_to(sibling: Any) -> Any:
            from ._used_tree import absolute

            return self._refs[absolute(prefix, sibling)]

        if isinstance(child, BulkSpec):
            return child
        factory = child.filled(ref_to)
        entry = self._system.agents.get(path)
        if entry is None:
            return attrs.evolve(child, factory=factory)
        assert isinstance(entry, Supervised)
        mailbox = mailbox_options(entry.mailbox) or child.mailbox
        return ChildSpec(
            child.name,
            self._replacement(path, entry, factory),
            restart=child.restart,
            shutdown=child.shutdown,
            mailbox=mailbox,
            backoff=child.backoff,
            significant=getattr(child, "significant", False),
            id=getattr(child, "id", None),
            key=self._key(path, child),
            optional=getattr(child, "optional", False),
        )

    def _key(self, path: str, child: ChildSpec[Any] | Pool[Any]) -> str | None:
        """Return the state key of an entry that replaces an agent of the tree, or None if it has none."""
        keeps = isinstance(child, ChildSpec) and is_durable_class(self._system.agent_class(path))
        return child.key if keeps else None

    def _replacement(self, path: str, entry: Supervised, factory: Any) -> Any:
        """Return the factory that replaces an agent of the tree."""
        if path in self._doubles:
            return self._doubles[path]
        assert isinstance(entry, (AgentEntry, Replay))  # a replay that is recorded anew
        made: Any = factory
        in_tree = self._system.used is not None and self._system.used.class_of(path) is not None
        known = made.keywords if in_tree and isinstance(made, partial) else None
        return _maker(entry, self._system.agent_class(path), self._refs, known)
