"""Child specs and supervisor specs: a tree of agents as data, checked when it is written.

Terms, defaults and refusals follow OTP's `supervisor` (as of OTP 25), with Elixir's names `max_restarts` and
`max_seconds`. Times are seconds.
"""

from __future__ import annotations

import math
import pickle
import re
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import attrs

from lmos_actors.actors import BY, outline_of
from lmos_actors.errors import ConfigError, IdTaken, NameTaken, hint_at

from ._siblings import Reference, Sibling, check_references, class_of, filled, name_of, references_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.actors import By, MailboxOptions


Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
Shutdown: TypeAlias = float | Literal["brutal", "infinity"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

A_co = TypeVar("A_co", covariant=True)

MOST_KEY: Final = 500
"""The greatest length of a key of stored state, in characters."""

_RESTARTS: tuple[str, ...] = get_args(Restart)
_STRATEGIES: tuple[str, ...] = get_args(Strategy)
_AUTO_SHUTDOWNS: tuple[str, ...] = get_args(AutoShutdown)
_SHUTDOWN_WORDS = ("brutal", "infinity")


Spec: TypeAlias = "ChildSpec[Any] | SupervisorSpec | Pool[Any] | BulkSpec"


def _to_tuple(children: Iterable[Spec]) -> tuple[Spec, ...]:
    try:
        return tuple(children)
    except TypeError:
        raise ConfigError(f"must be a sequence, not {children!r}", "SupervisorSpec.children") from None


@attrs.frozen(kw_only=True)
class Backoff:
    """The delay before each restart attempt, in seconds; OTP has none, so it is off by default.

    The first attempt waits `initial` seconds, and each further one `factor` times as long, but never more
    than `max`. Each delay is spread by up to `jitter` (a fraction) in both directions. A child that has
    stayed up for `max` seconds begins again at `initial`. Raises ConfigError naming the field that is out of
    range.
    """

    initial: float
    factor: float = 2.0
    max: float = 30.0
    jitter: float = 0.2

    def __attrs_post_init__(self) -> None:
        _check_number(self.initial, "backoff.initial", above=0)
        _check_number(self.factor, "backoff.factor", least=1)
        _check_number(self.max, "backoff.max", least=self.initial)
        _check_number(self.jitter, "backoff.jitter", least=0, most=1)

    def delay(self, attempt: int, draw: float) -> float:
        """Return the seconds before attempt number `attempt` (from 1), with `draw` from [0, 1). Pure."""
        base = self.max
        with suppress(OverflowError):
            base = min(base, self.initial * float(self.factor) ** (attempt - 1))
        return min(self.max, base * (1 + self.jitter * (2 * draw - 1)))


@attrs.frozen(weakref_slot=False)
class ChildSpec(Generic[A_co]):
    """One agent to be kept running: its name, how to make it, and what to do when it ends.

    `factory` is an Agent class or a `functools.partial` of one, called anew for each incarnation. `restart`
    is permanent (always), transient (after an error only) or temporary (never; the spec is removed with the
    child). `shutdown` is the seconds the child has to end once it is stopped, `"brutal"` for none,
    `"infinity"` for no limit. `significant` children count for the supervisor's `auto_shutdown` and must be
    transient or temporary. `mailbox` None means the mailbox that the agent class declares. `id` is the URI by
    which others reach the agent over a network, unique in a node; None: its address. `key` names the stored
    state of a durable agent, and belongs to this agent alone; None: its path in the tree. With `standby`, an
    agent that another node runs counts as started: it is unavailable until that node has left it. Otherwise
    its start fails after waiting for 15 s. An `optional` child, such as a connection to an external server,
    is started once its supervisor runs. It is tried again with its back-off (1 s and more) until it starts.
    Its failures do not count for the limit of its supervisor, and no strategy restarts it with its siblings,
    or them with it. Raises ConfigError naming the field.
    """

    name: str
    factory: Callable[[], A_co] = attrs.field(repr=shown)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Shutdown = attrs.field(default=5.0, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    mailbox: MailboxOptions | None = attrs.field(default=None, kw_only=True)
    backoff: Backoff | None = attrs.field(default=None, kw_only=True)
    id: str | None = attrs.field(default=None, kw_only=True)
    key: str | None = attrs.field(default=None, kw_only=True)
    standby: bool = attrs.field(default=False, kw_only=True)
    optional: bool = attrs.field(default=False, kw_only=True)
    is_unnamed: ClassVar[bool] = False
    references: tuple[Reference, ...] = attrs.field(init=False, default=(), eq=False, repr=False)
    """The references to siblings in the factory's arguments; see `sibling`."""

    def __attrs_post_init__(self) -> None:
        _check_common(self)
        if not callable(self.factory):
            raise ConfigError(_not_callable(self.factory), f"{self.name}.factory")
        if self.key is not None:
            self._check_key(self.key)
        if self.standby and self.key is None:
            raise ConfigError(
                "goes with key=: without one no other node runs the agent", f"{self.name}.standby"
            )
        if self.optional and (self.restart == "temporary" or self.significant):
            why = "goes with a child that is permanent or transient, and not significant"
            raise ConfigError(why, f"{self.name}.optional")
        if self.id is not None:
            from lmos_actors.actors import check_id  # few agents have an id of their own

            wrong = check_id(self.id)
            if wrong is not None:
                raise ConfigError(wrong, f"{self.name}.id")
        factory: Any = self.factory
        if isinstance(factory, partial):
            object.__setattr__(self, "references", references_of(factory, self.name))

    def _check_key(self, key: object) -> None:
        if not (type(key) is str and 0 < len(key) <= MOST_KEY and key.isprintable()):
            raise ConfigError(
                f"must be a text of 1 to {MOST_KEY} printable characters, not {key!r}", f"{self.name}.key"
            )
        made: Any = class_of(self.factory)
        outline = outline_of(made)
        if outline is not None and outline.state is None:
            raise ConfigError(
                f"{made.__name__} is not durable, so it has no state to be found by a key: its class needs "
                "durable=True",
                f"{self.name}.key",
            )

    def filled(self, ref_to: Callable[[Sibling], Any]) -> Callable[[], A_co]:
        """Return the factory with a ref in place of each reference to a sibling."""
        made: Callable[[], A_co] = filled(self.factory, ref_to)
        return made


class UnnamedSpec(ChildSpec[A_co]):
    """The spec of an agent with a generated name, whose class only a call of its factory would reveal."""

    __slots__ = ()

    is_unnamed: ClassVar[bool] = True


@attrs.frozen(weakref_slot=False)
class SupervisorSpec:
    """A supervisor and its children, started in order and stopped in reverse order.

    `strategy` decides which children are restarted when a child has ended: only that child (`one_for_one`),
    all (`one_for_all`), or that child and all after it (`rest_for_one`). More than `max_restarts` restarts
    within `max_seconds` end the supervisor itself. `auto_shutdown` ends it when any, or the last, of its
    significant children has ended by itself. `restart`, `shutdown`, `significant` and `backoff` describe this
    supervisor as a child of another. References between its agents (`sibling`) are checked here; references
    that lead out of it are checked by the supervisor above. Raises ConfigError naming the field, NameTaken
    for two children of one name, IdTaken for two with one id.
    """

    name: str
    children: tuple[Spec, ...] = attrs.field(default=(), converter=_to_tuple)
    strategy: Strategy = attrs.field(default="one_for_one", kw_only=True)
    max_restarts: int = attrs.field(default=3, kw_only=True)
    max_seconds: float = attrs.field(default=5.0, kw_only=True)
    auto_shutdown: AutoShutdown = attrs.field(default="never", kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Shutdown = attrs.field(default="infinity", kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    backoff: Backoff | None = attrs.field(default=None, kw_only=True)
    optional: ClassVar[bool] = False
    outward: tuple[Reference, ...] = attrs.field(init=False, default=(), eq=False, repr=False)
    """The references below that lead to something beside this supervisor, or above it."""

    def __attrs_post_init__(self) -> None:
        _check_common(self)
        _check_word(self.strategy, f"{self.name}.strategy", _STRATEGIES)
        _check_word(self.auto_shutdown, f"{self.name}.auto_shutdown", _AUTO_SHUTDOWNS)
        _check_count(self.max_restarts, f"{self.name}.max_restarts")
        _check_number(self.max_seconds, f"{self.name}.max_seconds", above=0)
        seen: set[str] = set()
        ids: dict[str, str] = {}
        for child in self.children:
            self.check_child(child)
            if child.name in seen:
                raise NameTaken(child.name, self.name)
            seen.add(child.name)
            id = child.id if isinstance(child, ChildSpec) else None
            if id is not None and ids.setdefault(id, child.name) != child.name:
                raise IdTaken(id, ids[id])
        object.__setattr__(self, "outward", check_references(self))

    def check_child(self, child: Spec) -> None:
        """Raise ConfigError if this supervisor cannot have that child, whatever its name.

        As in OTP, a significant child needs a supervisor whose `auto_shutdown` is not `never`.
        """
        if type(child) is not ChildSpec:
            _check_type(child, f"{self.name}.children", ChildSpec, SupervisorSpec, Pool, BulkSpec)
        if not isinstance(child, Pool) and child.significant and self.auto_shutdown == "never":
            raise ConfigError(
                f"must not be never: {child.name!r} is significant", f"{self.name}.auto_shutdown"
            )


@attrs.frozen(weakref_slot=False)
class BulkSpec:
    """Many agents of one spec, named `0`, `1`, … `count - 1`, below a separate one_for_one supervisor.

    Unlike children that `start_many` adds to a supervisor, these keep their number in every incarnation of
    the supervisor, and all slots exist before the first agent starts, so that they can be passed to each
    other. In the first incarnation, agents are started evenly over `over` seconds, beginning when the
    supervisor runs. With `over` 0, and in later incarnations, all agents start before the supervisor runs.
    The other fields mean the same as in `SupervisorSpec`. Raises ConfigError naming the field.
    """

    name: str
    member: ChildSpec[Any] = attrs.field(kw_only=True)
    count: int = attrs.field(kw_only=True)
    over: float = attrs.field(default=0.0, kw_only=True)
    max_restarts: int = attrs.field(default=3, kw_only=True)
    max_seconds: float = attrs.field(default=5.0, kw_only=True)
    auto_shutdown: AutoShutdown = attrs.field(default="never", kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Shutdown = attrs.field(default="infinity", kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    backoff: Backoff | None = attrs.field(default=None, kw_only=True)
    children: ClassVar[tuple[Spec, ...]] = ()
    """Empty: no member has a name that a reference in the tree could be checked against."""
    outward: ClassVar[tuple[Reference, ...]] = ()

    def __attrs_post_init__(self) -> None:
        tree = self.tree()  # it checks the fields of a supervisor
        if not isinstance(self.member, ChildSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be a ChildSpec, not {self.member!r}", f"{self.name}.member")
        tree.check_child(self.member)
        if self.member.id is not None:
            raise ConfigError("an id belongs to one agent, not to several", f"{self.member.name}.id")
        if self.member.key is not None:
            raise ConfigError("a key belongs to one agent, not to several", f"{self.member.name}.key")
        if self.member.optional:
            raise ConfigError("is for single agents", f"{self.member.name}.optional")
        if type(self.count) is not int or self.count < 0:
            raise ConfigError(f"must be an int of at least 0, not {self.count!r}", f"{self.name}.count")
        if not 0 <= self.over < math.inf:
            raise ConfigError(f"must be finite and at least 0, not {self.over!r}", f"{self.name}.over")

    def tree(self) -> SupervisorSpec:
        """Return the spec of the supervisor, without its agents."""
        return SupervisorSpec(
            self.name,
            max_restarts=self.max_restarts,
            max_seconds=self.max_seconds,
            auto_shutdown=self.auto_shutdown,
            restart=self.restart,
            shutdown=self.shutdown,
            significant=self.significant,
            backoff=self.backoff,
        )


@attrs.frozen(weakref_slot=False)
class Pool(Generic[A_co]):
    """Several agents of one kind behind one ref, which passes each message to one of them.

    `by` decides which member gets a message. `round_robin` takes the next that runs; `least_loaded` takes the
    running member with the fewest messages waiting and running. `key` takes the member that belongs to the
    value of the parameter `key` (None: the action's first parameter), so that equal values always reach the
    same member. `restart`, `shutdown`, `mailbox` and `backoff` apply to every member, as in `ChildSpec`;
    `max_restarts` and `max_seconds` apply to the pool, as in `SupervisorSpec`. If `name` is empty, the pool
    is named after the class. Raises ConfigError naming the field.
    """

    factory: Callable[[], A_co] = attrs.field(repr=shown)
    size: int
    by: By = attrs.field(default="round_robin", kw_only=True)
    key: str | None = attrs.field(default=None, kw_only=True)
    name: str = attrs.field(default="", kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    max_restarts: int = attrs.field(default=3, kw_only=True)
    max_seconds: float = attrs.field(default=5.0, kw_only=True)
    shutdown: Shutdown = attrs.field(default=5.0, kw_only=True)
    mailbox: MailboxOptions | None = attrs.field(default=None, kw_only=True)
    backoff: Backoff | None = attrs.field(default=None, kw_only=True)
    unnamed: bool = attrs.field(init=False, default=False, eq=False, repr=False)
    references: tuple[Reference, ...] = attrs.field(init=False, default=(), eq=False, repr=False)
    """The references to siblings of the pool in the factory's arguments; see `sibling`."""

    def __attrs_post_init__(self) -> None:
        if not callable(self.factory):
            raise ConfigError(_not_callable(self.factory), "Pool.factory")
        if self.name == "":
            object.__setattr__(self, "unnamed", True)
            object.__setattr__(self, "name", name_of(self.factory))
        _check_name(self.name, "Pool.name")
        _check_count(self.size, f"{self.name}.size", least=1)
        _check_word(self.by, f"{self.name}.by", BY)
        self._check_key()
        if self.restart == "temporary":
            raise ConfigError("must be permanent or transient: a pool keeps its size", f"{self.name}.restart")
        self._agent(self.name)  # it checks the rest
        object.__setattr__(self, "references", references_of(self.factory, self.name))
        self.tree()

    def _check_key(self) -> None:
        path, key = f"{self.name}.key", self.key
        if key is None:
            return
        _check_type(key, path, str)
        if self.by != "key":
            raise ConfigError(f"goes with by='key', not with {self.by!r}", path)
        contract = outline_of(class_of(self.factory))
        operations = contract.table.values() if contract is not None else ()
        params = [param for op in operations if not op.internal for param in op.params]
        known = [param.name for param in params if not param.is_stream]
        if known and key not in known:
            hint = hint_at(key, known)
            raise ConfigError(f"{key!r} is a parameter of no action of the agents{hint}", path)

    def filled(self, ref_to: Callable[[Sibling], Any]) -> Callable[[], A_co]:
        """Return the factory with a ref in place of each reference to a sibling."""
        made: Callable[[], A_co] = filled(self.factory, ref_to)
        return made

    def member(self, number: int) -> ChildSpec[A_co]:
        """Return the child spec of one member; they are numbered from 1."""
        return self._agent(f"{self.name}-{number}")

    def _agent(self, name: str) -> ChildSpec[A_co]:
        factory = self.factory
        if self.references:  # they are beside the pool, and a member is below it
            factory = filled(factory, Sibling.from_below)
        return ChildSpec(
            name,
            factory,
            restart=self.restart,
            shutdown=self.shutdown,
            mailbox=self.mailbox,
            backoff=self.backoff,
        )

    def tree(self) -> SupervisorSpec:
        """Return the spec of the pool's supervisor with its initial members."""
        return SupervisorSpec(
            self.name,
            [self.member(number) for number in range(1, self.size + 1)],
            max_restarts=self.max_restarts,
            max_seconds=self.max_seconds,
        )


def _not_callable(factory: object) -> str:
    return f"must be an Agent class or a functools.partial of one, not {factory!r}"


def _check_common(spec: ChildSpec[Any] | SupervisorSpec) -> None:
    name, shutdown = spec.name, spec.shutdown
    if (  # nearly all specs end here, and there may be very many: no text is built for each check
        type(name) is str
        and name
        and "/" not in name
        and "." not in name
        and name.isprintable()
        and spec.restart in _RESTARTS
        and (shutdown == "brutal" or (type(shutdown) is float and 0 <= shutdown < math.inf))
        and spec.significant is False
        and spec.backoff is None
    ):
        return
    _check_name(name, f"{type(spec).__name__}.name")
    _check_word(spec.restart, f"{name}.restart", _RESTARTS)
    if isinstance(spec.shutdown, str):
        _check_word(spec.shutdown, f"{name}.shutdown", _SHUTDOWN_WORDS)
    else:
        _check_number(spec.shutdown, f"{name}.shutdown", least=0)
    _check_type(spec.significant, f"{name}.significant", bool)
    _check_type(spec.backoff, f"{name}.backoff", Backoff, type(None))
    if spec.significant and spec.restart == "permanent":
        raise ConfigError("must be False for a permanent child", f"{name}.significant")


def _check_type(value: object, path: str, *types: type) -> None:
    if not isinstance(value, types):
        names = " or ".join("None" if tp is type(None) else tp.__name__ for tp in types)
        raise ConfigError(f"must be {names}, not {value!r}", path)


_SEPARATORS: Final = re.compile("[/.]+")
"""Separators between the names of a path or a URL: `cellar/bell` is served at `/agents/cellar.bell`."""

_UNSENDABLE: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
"""Control characters, and halves of characters, which have no place in a line of a log or in a URL."""


def _check_name(name: object, path: str) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"must be a non-empty str, not {name!r}", path)
    if _SEPARATORS.search(name):
        other = _SEPARATORS.sub("-", name).strip("-")
        hint = f"; use {other!r}, for instance" if other else ""
        separate = "which separate names in paths and in URLs"
        raise ConfigError(f"must be without '/' and '.', {separate}, not {name!r}{hint}", path)
    if _UNSENDABLE.search(name):
        raise ConfigError(f"must have no control characters and no surrogates, not {name!r}", path)


def _check_word(word: object, path: str, known: tuple[str, ...]) -> None:
    if word in known:
        return
    hint = hint_at(word, known) if isinstance(word, str) else ""
    raise ConfigError(f"must be one of {', '.join(known)}, not {word!r}{hint}", path)


def _check_count(value: object, path: str, least: int = 0) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"must be an int of at least {least}, not {value!r}", path)


def _check_number(
    value: object, path: str, *, least: float = -math.inf, most: float = math.inf, above: float = -math.inf
) -> None:
    """Check that a number is finite (an int or a float, not a bool) and within the given limits."""
    number = float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if math.isfinite(number) and least <= number <= most and number > above:
        return
    named = (("at least", least), ("above", above), ("at most", most))
    limits = " and ".join(f"{words} {limit:g}" for words, limit in named if math.isfinite(limit))
    raise ConfigError(f"must be a finite number {limits}, not {value!r}", path)


# --- whether a spec can be carried to another process: by a file, or by the deployment of groups of
# agents


def check_portable(spec: Spec) -> None:
    """Raise ConfigError, naming the child, unless every factory of the spec can be recreated elsewhere.

    A factory is sent as a name: a class or function at the top level of a module that can be imported, or a
    `functools.partial` of one with arguments that can be pickled. A lambda has no such name.
    """
    for child in getattr(spec, "children", ()):
        check_portable(child)
    factory = getattr(spec, "factory", None)
    if factory is not None:
        _check_factory(factory, f"{spec.name}.factory")


def _check_factory(factory: Any, where: str) -> None:
    if isinstance(factory, partial):
        _check_factory(factory.func, where)  # pyright: ignore[reportUnknownMemberType]
        for name, value in (*enumerate(factory.args), *factory.keywords.items()):
            try:
                pickle.dumps(value)
            except Exception as exc:
                why = f"cannot be carried to another process: {exc}"
                raise ConfigError(why, f"{where}({name})") from None
        return
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise ConfigError(f"{factory!r} has no name by which another process could import it", where)
    if "<lambda>" in name:
        raise ConfigError(
            "a lambda has no name by which another process could import it; use functools.partial", where
        )
    if "<locals>" in name:
        raise ConfigError(f"{name} is made inside a function: move it to the top level of its module", where)
    if module == "__main__":
        raise ConfigError(f"{name} stands in the script that runs: move it to a module of its own", where)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found != factory:  # not `is not`: a bound classmethod is made anew each time
        raise ConfigError(
            f"{module}.{name} is not what the spec holds: another process would find that", where
        )


def standing_by(spec: Spec) -> Spec:
    """Return the spec with `standby` set for every agent with a key.

    Such an agent waits while another node runs it.
    """
    if isinstance(spec, SupervisorSpec):
        return attrs.evolve(spec, children=tuple(map(standing_by, spec.children)))
    if isinstance(spec, ChildSpec) and spec.key is not None:
        return attrs.evolve(spec, standby=True)
    return spec
