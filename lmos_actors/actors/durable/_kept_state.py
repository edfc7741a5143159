"""The form in which the state of a durable agent is kept: plain data, made and read by cattrs.

A durable class (`class Ledger(Agent, durable=True)`) has a `StateForm`, made with the class. It lists the
fields that are kept, converts them into plain data that JSON can hold, and restores such data into a new
object, after migrating what an older version of the class has written. A field that cannot be kept is refused
when the class is made, with an error that names it, so that the error does not wait for the first commit.

All classes of a process share one converter (`state_converter`), so that a hook for a type is registered
once. It is stricter than cattrs itself, which would turn the text "5" into the number 5: stored state that is
not of the declared type is an error, as after a forgotten migration.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import enum
import inspect
import types
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    Set as AbstractSet,
)
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    ForwardRef,
    Literal,
    NewType,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import attrs
import msgspec

from lmos_actors._core import Unknown, signature_of, types_of_class, unknown_in
from lmos_actors.errors import ConfigError, StateMismatch, group_of, nearest, raise_interrupt

from ..declaration._affordances import Property
from ..declaration._type_hints import UnknownPart, note_unread, types_of_method
from ..finding._registry import address_of
from ..refs._ref import Ref
from ..values import PARTS, WHOLE, is_agent_class, record_of, secrecy_of
from ._migrations import Migration, Plain, migrated, versions_of
from ._value_checks import LEAST, MOST, Check, checked, run_check, value_check

if TYPE_CHECKING:
    from cattrs import Converter

    from ..declaration._contract import Contract
    from ..declaration._options import ClassOptions

EPHEMERAL: Final = "lmos_actors.ephemeral"
"""The key of a field's metadata that keeps it out of stored state."""

FIND_REF: ContextVar[Callable[[Any, Any], Ref[Any]]] = ContextVar("lmos_actors_find_ref")
"""Returns the ref for a class and an address, in the node whose state is being restored."""

_LIVE_MODULES: Final = frozenset(
    ("asyncio", "concurrent", "contextvars", "io", "_io", "multiprocessing", "queue", "selectors", "socket",
     "sqlite3", "ssl", "subprocess", "threading", "_thread", "trio", "trio_websocket", "weakref")
)  # fmt: skip
"""Modules whose objects stand for something outside: a lock, a task, a file. They cannot be kept."""

_LIVE: Final = (
    types.FunctionType, types.ModuleType, types.CoroutineType, Generator, AsyncGenerator, Iterator,
    AsyncIterator, Awaitable,
)  # fmt: skip

TAG: Final = "is"
"""The member of a value of a union that names its class."""

_UNION: Final[Any] = Union
_MAPPINGS: Final[tuple[Any, ...]] = (dict, Mapping, MutableMapping)
_CONTAINERS: Final[tuple[Any, ...]] = (list, set, frozenset, tuple, Sequence, AbstractSet)
_PLAIN: Final = (bool, int, float, str)
_KEYS: Final = (str, int, float, uuid.UUID, datetime.date, datetime.datetime, enum.Enum)


def ephemeral(*, default: Any = attrs.NOTHING, factory: Callable[[], Any] | None = None) -> Any:
    """Declare a field of a durable agent that is not kept: `cache: dict[str, int] = ephemeral(factory=dict)`.

    After a restart the field has the value that the agent's factory gives it.
    """
    return attrs.field(default=default, factory=factory, metadata={EPHEMERAL: True})


def needs_name(title: str) -> ConfigError:
    """Make the error for a durable agent that was started without an explicit name."""
    return ConfigError(
        f"{title} is durable, and a name made up for it would not find its state again: start it by "
        f"start_child(ChildSpec(NAME, ...))"
    )


# ---- the converter


@cache
def state_converter() -> Converter:
    """Return the cattrs converter of all stored state, for registering hooks for user types.

    Register them before the class of the agent is made, which is refused if a type has no hook.
    """
    from cattrs.preconf.msgspec import make_converter  # only durable classes need it

    made = make_converter(forbid_extra_keys=True)
    for exact in (int, str, bool):
        made.register_structure_hook(exact, _strictly(exact))
    made.register_structure_hook(float, _a_float)
    made.register_structure_hook(bytes, lambda value, _: base64.b64decode(value, validate=True))
    for text, parse in (
        (uuid.UUID, uuid.UUID),
        (decimal.Decimal, decimal.Decimal),
        (datetime.time, datetime.time.fromisoformat),
        (Path, Path),
    ):
        made.register_unstructure_hook(text, str)
        made.register_structure_hook(text, lambda value, _, parse=parse: parse(value))
    made.register_unstructure_hook(datetime.timedelta, datetime.timedelta.total_seconds)
    made.register_structure_hook(datetime.timedelta, lambda value, _: datetime.timedelta(seconds=value))
    made.register_unstructure_hook_func(_is_ref, address_of)
    made.register_structure_hook_func(_is_ref, lambda value, hint: FIND_REF.get()(_class_in(hint), value))
    made.register_structure_hook_factory(_has_number_keys, _dict_hook)
    made.register_unstructure_hook_factory(_is_set, _set_hook)
    return made


def _strictly(exact: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not exact:
            raise TypeError(f"expected {exact.__name__}, not {type(value).__name__}")
        return value

    return structure


def _a_float(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"expected float, not {type(value).__name__}")
    return float(value)


def _is_ref(hint: Any) -> bool:
    return hint is Ref or get_origin(hint) is Ref


def _class_in(ref: Any) -> Any:
    """Return the class in `Ref[X]`, or None if there is none or it is unknown at run time."""
    named = next(iter(get_args(ref)), None)
    return None if isinstance(named, Unknown) else named


def _is_set(hint: Any) -> bool:
    return (get_origin(hint) or hint) in (set, frozenset, AbstractSet)


def _set_hook(hint: Any, converter: Converter) -> Callable[[Any], Any]:
    """Return a hook that writes a set with sorted members, so that equal state has equal bytes."""
    (member,) = get_args(hint) or (Any,)
    unstructure = converter.get_unstructure_hook(member)

    def in_order(values: Any) -> list[Any]:
        members = [unstructure(value) for value in values]
        try:
            return sorted(members)
        except TypeError:  # of several kinds, or objects
            return sorted(members, key=msgspec.json.encode)

    return in_order


def _has_number_keys(hint: Any) -> bool:
    return get_origin(hint) in (dict, Mapping, MutableMapping) and get_args(hint)[0] in (int, float)


def _dict_hook(hint: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Return a hook that reads a dict with numbers as keys, which are text in JSON."""
    key, member = get_args(hint)
    structure = converter.get_structure_hook(member)

    def convert(value: Any, _: Any) -> Any:
        return {key(name): structure(each, member) for name, each in value.items()}

    return convert


# ---- the form of one class


@attrs.frozen
class _Member:
    """One kept field: its name in stored state, the attribute of the agent that holds it, and its hooks."""

    name: str
    attribute: str
    unstructure: Callable[[Any], Any]
    structure: Callable[[Any], Any]
    plain: type | None
    """The class whose values are plain data already: they need no hook, and hooks take most of the time."""
    check: Check


@attrs.frozen
class FactForm:
    """The stored form of the facts that a class's `apply` takes, each with its class name."""

    title: str
    classes: Mapping[str, type]
    formerly: Mapping[str, type]
    """Classes by their former names, from their `formerly`."""
    version: int
    migrations: Mapping[int, Migration]
    converter: Converter
    every: int
    """Facts after which a snapshot is kept."""

    checks: Mapping[str, Check]
    """The checks of the classes, by name."""

    def check(self, fact: object) -> None:
        """Raise TypeError for a fact of another class, or with a value that could not be restored."""
        name = type(fact).__name__
        if self.classes.get(name) is not type(fact):
            raise TypeError(
                f"{self.title}.apply takes {', '.join(self.classes)}, and {fact!r} is none of them"
            )
        run_check(self.checks[name], fact, name)

    def plain(self, fact: Any) -> Plain:
        """Return a fact as plain data."""
        return {TAG: type(fact).__name__, **self.converter.unstructure(fact)}

    def restored(self, plain: Plain, version: int, key: str, number: int) -> Any:
        """Return a stored fact, migrated to the present version. `number` is its position in the journal.

        Raises StateMismatch for a newer version, a step without a migration, a migration that raised, or a
        fact of an unknown class or of other types.
        """
        what = f"fact {number} of its journal"
        members = dict(migrated(plain, version, self.version, self.migrations, self.title, key, what))
        name = str(members.pop(TAG, None))
        cls: Any = self.classes.get(name) or self.formerly.get(name)
        if cls is None:
            raise StateMismatch(
                key,
                f"{what} is a {name}, and {self.title}.apply takes {', '.join(self.classes)}; if the class "
                f"was renamed, say formerly: ClassVar = ({name!r},) in it",
            )
        try:
            return self.converter.structure(members, cls)
        except BaseException as error:
            raise_interrupt(error)
            raise StateMismatch(key, f"{what}, a {name}: {why_refused(error)}; {_FACT_HINT}") from error


@attrs.frozen
class StateForm:
    """The stored form of one durable class.

    `title` names the class in stored records, `formerly` holds its former names. `version` is the
    `state_version` of the class, `migrations` its functions from one version to the next.
    """

    title: str
    formerly: tuple[str, ...]
    version: int
    members: tuple[_Member, ...]
    declared: frozenset[str]
    """The attributes that an agent may have: kept, ephemeral, and the ones of every agent."""
    migrations: Mapping[int, Migration]
    facts: FactForm | None = None
    """The form of the facts of a journal, None where snapshots alone are kept."""
    turns: dict[str, Any] = attrs.field(factory=dict[str, Any], repr=False, eq=False)
    """The forms of the turns of durable timers, by the name of the method; see `_kept_turns.py`."""

    def encoded(self, agent: Any) -> bytes:
        """Return the state of an agent in its stored form: plain data, as JSON.

        Raises TypeError, naming the place, for a value that cannot be written.
        """
        values: Plain = agent.__dict__
        plain: Plain = {}
        try:
            for member in self.members:
                if member.attribute in values:
                    value = values[member.attribute]
                    plain[member.name] = value if type(value) is member.plain else member.unstructure(value)
            return msgspec.json.encode(plain)
        except Exception:
            self.check(agent)
            raise

    def check(self, agent: Any) -> None:
        """Raise TypeError, naming the place, if a value of a kept field could not be restored."""
        values: Plain = agent.__dict__
        for member in self.members:
            if member.attribute in values:
                value = values[member.attribute]
                kind = type(value)  # pyright: ignore[reportUnknownVariableType]
                if kind is member.plain and (kind is str or (kind is not float and LEAST <= value <= MOST)):
                    continue  # without a call, as most fields are such
                run_check(member.check, value, f"{type(agent).__name__}.{member.name}")

    def undeclared(self, agent: Any) -> TypeError:
        """Make the error for an undeclared attribute, which would be lost silently."""
        values: Plain = agent.__dict__
        name = next(name for name in values if name not in self.declared)
        return TypeError(
            f"{type(agent).__name__}.{name} is not declared, and so not kept: declare it in the class, as "
            f"`{name}: {type(values[name]).__name__}`, or by `= ephemeral(...)`, for what may be lost"
        )

    def restored(self, plain: Plain, version: int, key: str) -> Plain:
        """Return an agent's attributes from stored state, migrated to the present version.

        Raises StateMismatch for a newer version, a step without a migration, a migration that raised, a field
        that is unknown now, or a value of another type.
        """
        plain = migrated(plain, version, self.version, self.migrations, self.title, key, "it")
        members = {m.name: m for m in self.members}
        values: Plain = {}
        for name, value in plain.items():
            member = members.get(name)
            if member is None:
                raise StateMismatch(key, f"{self.title} has no field {name!r} that is kept; {_HINT}")
            try:
                values[member.attribute] = member.structure(value)
            except BaseException as error:
                raise_interrupt(error)
                raise StateMismatch(key, f"field {name!r}: {why_refused(error)}; {_HINT}") from error
        return values


_HINT: Final = "raise state_version and write a migration"
_FACT_HINT: Final = "raise state_version and write one in fact_migrations"
_NOT_KEPT: Final = "What need not survive a restart is declared by `= ephemeral(...)`"


def check_kept_behaviour(cls: Any, behaviour: str, key: str) -> None:
    """Raise StateMismatch for a kept behaviour that the class no longer has."""
    known: tuple[str, ...] = cls.__contract__.behaviours
    if behaviour in known:
        return
    near = nearest(behaviour, known)
    hint = f" (did you mean {near!r}?)" if near else ""
    raise StateMismatch(
        key,
        f"it is in the behaviour {behaviour!r}, which {cls.__name__} does not have{hint}; "
        f"keep the name among its behaviours, and let started() change it",
    )


def why_refused(error: BaseException) -> str:
    """Return the innermost reasons of an error of cattrs, with the paths to them."""
    from cattrs import transform_error

    if isinstance(error, KeyError):  # of the tag of a union
        return f"there is no class {error} in its union"
    group: Any = group_of(error)
    return str(error) if group is None else "; ".join(transform_error(group, format_exception=_why_one))


def _why_one(error: BaseException, hint: type | None) -> str:
    """Return one reason as cattrs words it; errors raised by this package keep their own text."""
    from cattrs.v import format_exception

    return str(error) if type(error) is TypeError else format_exception(error, hint)


# ---- made with the class


def state_form(cls: Any, contract: Contract, *, is_last: bool) -> StateForm:
    """Return the stored form of a durable class. Raises TypeError, naming a field that cannot be kept.

    A type that is unknown now is an error if `is_last`; otherwise the contract is noted as unread.
    """
    converter = state_converter()
    hints = types_of_class(cls)
    members: list[_Member] = []
    ephemeral: dict[str, None] = {}
    bases: tuple[type, ...] = cls.__mro__
    for base in bases:
        ephemeral.update(dict.fromkeys(vars(base).get("_ephemeral", ())))  # of classes of this package
    declared = {"_slot", "_behaviour", "_history", *ephemeral}  # the first three every agent may have
    for field in attrs.fields(cls):
        hint, attribute = hints.get(field.name), field.name
        static = inspect.getattr_static(cls, field.name, None)
        if isinstance(static, Property):
            hint, attribute = (get_args(hint) or (hint,))[0], static.hidden
        declared.add(attribute)
        secrecy = secrecy_of(hint)
        is_ephemeral = field.metadata.get(EPHEMERAL) or field.name in ephemeral
        if is_ephemeral or field.repr is False or secrecy == WHOLE:
            continue
        try:
            check_type(hint, converter, f"{cls.__name__}.{field.name}")
        except UnknownPart as error:
            note_unread(cls, field.name, error.unknown, contract, is_last=is_last)
            continue
        except TypeError as error:
            raise TypeError(f"{error}. {_NOT_KEPT}") from None
        members.append(_member(field.name, attribute, hint, converter))
    version, migrations = versions_of(cls, "state_migrations")
    title = f"{cls.__module__}:{cls.__qualname__}"
    formerly = tuple(contract.options.formerly or ())
    try:
        facts = _fact_form(cls, contract.options, converter)
    except UnknownPart as error:
        facts = None
        note_unread(cls, "apply", error.unknown, contract, is_last=is_last)
    return StateForm(title, formerly, version, tuple(members), frozenset(declared), migrations, facts)


def _fact_form(cls: Any, options: ClassOptions, converter: Converter) -> FactForm | None:
    version, migrations = versions_of(cls, "fact_migrations")
    if options.durable != "journal":
        if migrations:
            raise TypeError(f"{cls.__name__}.fact_migrations goes with durable='journal'")
        return None
    unmatched = set(migrations) ^ set(versions_of(cls, "state_migrations")[1])
    if unmatched:
        raise TypeError(
            f"{cls.__name__}: state_migrations and fact_migrations need the same steps, and one of them has "
            f"none from version {min(unmatched)}; where nothing has changed, a function returns its argument"
        )
    where = f"{cls.__name__}.apply"
    apply = inspect.getattr_static(cls, "apply", None)
    names = [*signature_of(apply).parameters][1:] if inspect.isfunction(apply) else []
    hint: Any = None
    if len(names) == 1:
        hint = types_of_method(cls, "apply", apply).get(names[0])
        unknown = unknown_in(hint)
        if unknown is not None:
            raise UnknownPart(unknown, where)
    is_union = any(get_origin(hint) is union for union in (_UNION, types.UnionType))
    kinds: tuple[Any, ...] = get_args(hint) if is_union else (hint,)
    if not all(isinstance(kind, type) and record_of(kind) is not None for kind in kinds):
        raise TypeError(
            f"{where} needs one parameter with the type of its facts, an attrs class, a dataclass, a struct "
            f"or a union of these: def apply(self, fact: Charged | Refunded) -> None"
        )
    for kind in kinds:
        check_type(kind, converter, where)
    classes = {kind.__name__: kind for kind in kinds}
    former = {name: kind for kind in kinds for name in _former_names(kind)}
    if len(classes) + sum(len(_former_names(kind)) for kind in kinds) > len({**former, **classes}):
        raise TypeError(f"{where}: two classes of its facts have one name: {', '.join((*classes, *former))}")
    every = options.snapshot_every or 100  # facts of a journal after which a snapshot is kept
    checks = {name: value_check(kind) for name, kind in classes.items()}
    return FactForm(cls.__name__, classes, former, version, migrations, converter, every, checks)


def _former_names(kind: type) -> tuple[str, ...]:
    """Return the former names of a class of facts. Raises TypeError if `formerly` is no tuple of names."""
    is_field = not _is_class_var(types_of_class(kind).get("formerly", ClassVar))
    names: Any = () if is_field else getattr(kind, "formerly", ())
    given = cast("tuple[Any, ...]", names)
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"{kind.__name__}.formerly must be a tuple of names, not {given!r}")
    return given


def _member(name: str, attribute: str, hint: Any, converter: Converter) -> _Member:
    from cattrs.fns import identity

    structure = converter.get_structure_hook(hint)
    unstructure = converter.get_unstructure_hook(hint)
    plain = hint if unstructure is identity and hint in _PLAIN else None
    return _Member(
        name, attribute, unstructure, lambda value: structure(value, hint), plain, value_check(hint)
    )


def hooks_of(what: str, hint: Any, converter: Converter) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return two functions for a type: one converts values to plain data, the other converts back."""
    structure = converter.get_structure_hook(hint)
    unstructure = checked(what, hint, converter.get_unstructure_hook(hint))
    return unstructure, lambda value: structure(value, hint)


# ---- the types that can be kept


def check_type(hint: Any, converter: Converter, where: str, inside: tuple[Any, ...] = ()) -> None:
    """Raise TypeError for a type whose values cannot be kept; `inside` holds the enclosing types."""
    if isinstance(hint, NewType):
        return check_type(hint.__supertype__, converter, where, inside)
    if isinstance(hint, Hashable) and hint in inside:
        return None
    if isinstance(hint, Unknown):
        raise UnknownPart(hint, where)
    if isinstance(hint, str | ForwardRef):
        raise _refused(where, f"the type {hint!r} names itself")
    if hint is None or hint is Any or hint is object:
        raise _refused(where, "a value of any type has no form to be kept in; name its type")
    cls: Any = get_origin(hint) or hint
    if isinstance(cls, type) and _is_live(cls):
        raise _refused(where, f"{cls.__qualname__} stands for something that does not outlive the process")
    if secrecy_of(hint) in (PARTS, WHOLE):
        raise _refused(where, "part of it is secret, and secrets are never kept")
    if _is_ref(hint) or get_origin(hint) is Literal:
        return None
    if get_origin(hint) is Annotated:
        return check_type(get_args(hint)[0], converter, where, inside)
    return _check_parts(hint, converter, where, (*inside, hint))


def _check_parts(hint: Any, converter: Converter, where: str, inside: tuple[Any, ...]) -> None:
    cls: Any = get_origin(hint) or hint
    name = getattr(hint, "__qualname__", None) or str(hint)
    if isinstance(cls, type) and is_agent_class(cls):
        raise _refused(where, f"{name} is an agent; keep a Ref to it, which is kept by its address")
    args = [arg for arg in get_args(hint) if arg not in (Ellipsis, type(None), ())]
    if any(cls is mapping for mapping in _MAPPINGS) and not (args and _is_key(args[0])):
        raise _refused(where, f"the keys of {name} must be text, numbers, dates, UUIDs or enums")
    if any(cls is container for container in _CONTAINERS) and not args:
        raise _refused(where, f"{name} has items of any type; name their type, as in {name}[int]")
    for arg in args:
        check_type(arg, converter, where, inside)
    records = [arg for arg in args if isinstance(arg, type) and record_of(arg) is not None]
    if any(cls is union for union in (_UNION, types.UnionType)) and len(records) > 1:
        _tag(hint, converter, where)
    try:
        if isinstance(cls, type) and (is_typeddict(cls) or record_of(cls) is not None):
            for name, part in types_of_class(cls).items():
                if not _is_class_var(part):
                    check_type(part, converter, f"{where}, {cls.__name__}.{name}", inside)
        converter.get_structure_hook(hint)
        converter.get_unstructure_hook(hint)
    except TypeError:
        raise
    except Exception as error:
        raise _refused(where, f"{name} has no form to be kept in") from error


def _tag(union: Any, converter: Converter, where: str) -> None:
    """Register hooks that keep values of a union of record classes together with their class names."""
    from cattrs.strategies import configure_tagged_union

    names = [getattr(arg, "__name__", "None") for arg in get_args(union)]
    if len(set(names)) < len(names):
        raise _refused(where, f"two classes of the union have one name: {', '.join(names)}")
    classes = tuple(arg for arg in get_args(union) if arg is not type(None))
    tagged: Any = _UNION[classes]
    configure_tagged_union(tagged, converter, tag_name=TAG)
    if len(classes) == len(names):
        return
    unstructure, structure = converter.get_unstructure_hook(tagged), converter.get_structure_hook(tagged)

    def structure_or_none(value: Any, _: Any) -> Any:
        return None if value is None else structure(value, tagged)

    converter.register_unstructure_hook(union, lambda value: None if value is None else unstructure(value))
    converter.register_structure_hook(union, structure_or_none)


def _is_class_var(hint: Any) -> bool:
    return hint is ClassVar or get_origin(hint) is ClassVar


def _is_live(cls: type) -> bool:
    return issubclass(cls, _LIVE) or cls.__module__.partition(".")[0] in _LIVE_MODULES


def _is_key(hint: Any) -> bool:
    if isinstance(hint, NewType):
        return _is_key(hint.__supertype__)
    if get_origin(hint) is Literal:
        return all(isinstance(word, str) for word in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, _KEYS) and hint is not bool


def _refused(where: str, why: str) -> TypeError:
    return TypeError(f"{where}: {why}")
