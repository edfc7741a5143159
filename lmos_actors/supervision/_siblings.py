"""The class that a factory makes, as far as it is known without a call, and references between siblings."""

from __future__ import annotations

import re
import types
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, cast, get_args, get_origin, overload

import attrs

from lmos_actors._core import Unknown, type_of_field
from lmos_actors.actors import Agent, Ref, class_made_by, is_agent_class
from lmos_actors.errors import ConfigError, hint_at, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def class_of(factory: Any) -> type[Any] | None:
    """Return the agent class a factory makes, through partials; None if only a call would reveal it."""
    made = class_made_by(factory)
    return made if is_agent_class(made) else None


def name_of(factory: Any) -> str:
    """Return the default name of an agent, derived from its class: `TravelDesk` becomes `travel-desk`.

    Adjacent capitals are one word, up to the last capital before a small letter: `open-ai-model`.
    """
    made = factory
    while isinstance(made, partial):
        made = made.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return _kebab_case(getattr(made, "__name__", "agent"))  # pyright: ignore[reportUnknownArgumentType]


@lru_cache(maxsize=256)
def _kebab_case(name: str) -> str:
    parts = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(parts, "-", name).strip("_<>").lower() or "agent"


def shown(factory: Any) -> str:
    """Return a factory as text, with only the names of its arguments, because their values may be secret."""
    if not isinstance(factory, partial):
        return repr(factory)
    made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
    given = [*("..." for _ in made.args), *(f"{name}=..." for name in made.keywords)]
    return f"partial({', '.join([shown(made.func), *given])})"


# --- references from one child of a tree to another, while the tree is still data
#
# `sibling("weather")` among the arguments of a `functools.partial` stands for the ref that the agent will
# be given. A tree is a value: it may be put in several places and started many times, so the reference
# holds a path and nothing of a running node. Each time an agent is made, its slot fills in the refs: a
# factory never sees a reference, neither does a class that a test puts in the place of the original.
#
# A ref leads to a slot, and the slots of a supervisor are there before the first of its agents starts. So
# the order of children does not matter for a reference, and two agents may hold refs to each other.

A = TypeVar("A", bound=Agent)

UP: Final = ".."


@attrs.frozen
class Sibling:
    """A reference to an agent of the same tree, as a path from the supervisor of the agent that holds it."""

    path: str
    cls: type[Any] | None = None

    def __attrs_post_init__(self) -> None:
        path: Any = self.path
        parts = path.split("/") if isinstance(path, str) else []
        names = parts[_leading(parts) :]
        if not names or UP in names or "" in names or "." in names:
            raise ConfigError(
                "must be the name of a child, or a path such as 'stores/paris' or '../weather', "
                f"not {path!r}",
                "sibling(path)",
            )
        if self.cls is not None and not is_agent_class(self.cls):
            raise ConfigError(f"must be an agent class, not {self.cls!r}", f"sibling({path!r}, cls)")

    def __repr__(self) -> str:
        return f"sibling({self.path!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self!r} is a reference in a child spec and has no {name!r}: the agent is given a ref in its "
            f"place when it stands in a functools.partial, as in partial(Concierge, weather={self!r})"
        )

    @property
    def ups(self) -> int:
        """The number of leading `..` in the path: the levels to go up first."""
        return _leading(self.path.split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names to follow downwards after that; at least one."""
        return tuple(self.path.split("/")[self.ups :])

    def from_below(self) -> Sibling:
        """Return this reference as a child of the holder would write it."""
        return attrs.evolve(self, path=f"{UP}/{self.path}")

    def from_above(self) -> Sibling:
        """Return this reference, which begins with `..`, as the holder's supervisor would write it."""
        return attrs.evolve(self, path=self.path.removeprefix(f"{UP}/"))


def _leading(parts: list[str]) -> int:
    count = 0
    while count < len(parts) and parts[count] == UP:
        count += 1
    return count


@overload
def sibling(path: str, /) -> Ref[Any]: ...
@overload
def sibling(path: str, cls: type[A], /) -> Ref[A]: ...
def sibling(path: str, cls: type[Any] | None = None, /) -> Ref[Any]:
    """Return a reference to another agent or pool of the same tree, for the `functools.partial` of a spec.

    `ChildSpec("concierge", partial(Concierge, weather=sibling("weather")))`: each incarnation receives a ref
    in its place. A name alone means a child of the same supervisor; `stores/paris` is below a supervisor
    beside the holder, and `../weather` is beside the holder's supervisor. With a class the reference is a
    `Ref` of that class for type checkers, and the child must have that class. Raises ConfigError.
    """
    return cast("Ref[Any]", Sibling(path, cls))


@attrs.frozen
class Reference:
    """A reference in the arguments of a child: its place there, its target, and the required class."""

    place: str
    sibling: Sibling
    expected: type[Any] | None

    def check_class(self, made: type[Any] | None) -> None:
        """Raise ConfigError if agents of the class `made` do not fit. None (class unknown) always fits."""
        expected = self.expected
        if made is not None and expected is not None and not issubclass(made, expected):
            raise ConfigError(
                f"leads to a {made.__name__}, a ref to a {expected.__name__} is needed", self.place
            )

    def from_above(self, supervisor: str) -> Reference:
        """Return the reference as the holder's supervisor sees it."""
        return attrs.evolve(self, place=f"{supervisor}/{self.place}", sibling=self.sibling.from_above())


_CONTAINERS: Final = (tuple, list, dict, set, frozenset)  # no subclasses: they may be built in another way
_HOLDERS: Final = (Sibling, *_CONTAINERS)  # types of arguments that may be, or have inside, a reference
_DEEPEST: Final = 100  # containers around a reference


def references_of(factory: Any, holder: str) -> tuple[Reference, ...]:
    """Return the references among the arguments of a factory. Raises ConfigError if one is impossible."""
    found = list[Reference]()
    made = factory
    while isinstance(made, partial):
        call: partial[Any] = made  # pyright: ignore[reportUnknownVariableType]
        for argument, value in (*enumerate(call.args), *call.keywords.items()):
            if type(value) not in _HOLDERS:
                continue
            cls = class_made_by(factory)
            inside = [_reference(cls, holder, str(argument), value, each) for each in _inside(value)]
            if inside:
                _check_depth(value, inside[0].place)
            found += inside
        made = call.func
    return tuple(found)


def _inside(value: Any) -> Iterator[Sibling]:
    """Iterate over the references in a value, which may be nested to any depth and contain itself."""
    ahead, seen = [value], set[int]()
    while ahead:
        each = ahead.pop()
        if type(each) is Sibling:
            yield each
        elif type(each) in _CONTAINERS and id(each) not in seen:
            seen.add(id(each))
            ahead += reversed(_parts(each))


def _parts(container: Any) -> list[Any]:
    kind: Any = type(container)  # pyright: ignore[reportUnknownVariableType]
    return [*container, *container.values()] if kind is dict else [*container]


def _check_depth(value: Any, place: str, above: tuple[Any, ...] = ()) -> None:
    """Raise ConfigError if a value cannot be copied with refs in place of its references."""
    if type(value) not in _CONTAINERS:
        return
    if any(each is value for each in above):
        raise ConfigError("is in an argument that contains itself, where no ref can take its place", place)
    if len(above) == _DEEPEST:
        raise ConfigError(f"is in an argument that is nested more than {_DEEPEST} levels deep", place)
    for each in _parts(value):
        _check_depth(each, place, (*above, value))


def _reference(cls: Any, holder: str, argument: str, value: Any, wanted: Sibling) -> Reference:
    reference = Reference(f"{holder}.factory({argument}={wanted!r})", wanted, wanted.cls)
    if not is_agent_class(cls):
        return reference
    names = [field.alias for field in attrs.fields(cls) if field.init]
    if argument not in names:
        hint = hint_at(argument, names)
        raise ConfigError(f"{cls.__name__} has no argument {argument!r}{hint}", reference.place)
    field = next(field.name for field in attrs.fields(cls) if field.alias == argument)
    hint_of_field = hint_of(cls, field)
    pointer = pointer_of(hint_of_field)
    if pointer is None and _may_hold_refs(hint_of_field):
        return reference
    if pointer is None or pointer.many is (value is wanted):
        what = "several refs" if pointer is not None and pointer.many else "one ref" if pointer else "no ref"
        raise ConfigError(f"{cls.__name__}.{field} takes {what}", reference.place)
    if wanted.cls is None:
        return attrs.evolve(reference, expected=pointer.cls)
    reference = attrs.evolve(reference, expected=pointer.cls)
    reference.check_class(wanted.cls)
    return attrs.evolve(reference, expected=wanted.cls)


def filled(factory: Any, ref_of: Callable[[Sibling], Any]) -> Any:
    """Return a factory with each of its references replaced by the result of `ref_of`."""
    if not isinstance(factory, partial):
        return factory
    made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
    keywords: Mapping[str, Any] = {name: _filled(value, ref_of) for name, value in made.keywords.items()}
    args = (_filled(value, ref_of) for value in made.args)
    result: partial[Any] = type(made)(filled(made.func, ref_of), *args, **keywords)
    vars(result).update(vars(made))  # attributes of a subclass, such as the scenarios' own
    return result


def _filled(value: Any, ref_of: Callable[[Sibling], Any]) -> Any:
    """Return a value with each reference replaced, or the value itself if it has no references."""
    return _copied(value, ref_of) if any(True for _ in _inside(value)) else value


def _copied(value: Any, ref_of: Callable[[Sibling], Any]) -> Any:
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is Sibling:
        return ref_of(value)
    if kind is dict:
        return {_copied(key, ref_of): _copied(each, ref_of) for key, each in value.items()}
    if kind not in _CONTAINERS:
        return value
    build = cast("Callable[[Iterator[Any]], Any]", kind)
    return build(_copied(each, ref_of) for each in value)


# ---- checks of a tree


def check_references(spec: Any) -> tuple[Reference, ...]:
    """Return the references below a supervisor spec that lead out of it.

    Raises ConfigError if another reference leads nowhere, or to an agent of the wrong class.
    """
    out: list[Reference] = []
    for child in spec.children:
        outward: tuple[Reference, ...] | None = getattr(child, "outward", None)
        own = outward is None
        here = child.references if own else [each.from_above(child.name) for each in outward or ()]
        for reference in here:
            if reference.sibling.ups:
                out.append(reference)
            else:
                _check_down(reference, spec)
    return tuple(out)


def _check_down(reference: Reference, above: Any) -> None:
    """Follow the path of a reference down through specs. Raises ConfigError if its target does not fit."""
    *between, last = reference.sibling.names
    for name in between:
        found = _child_of(reference, above, name)
        if not hasattr(found, "children"):
            kind = "a pool" if hasattr(found, "size") else "an agent"
            raise ConfigError(f"{name!r} is {kind}, which has no children to refer to", reference.place)
        above = found
    target = _child_of(reference, above, last)
    if hasattr(target, "children"):
        raise ConfigError(f"{last!r} is a supervisor, no agent", reference.place)
    reference.check_class(class_of(target.factory))


def _child_of(reference: Reference, above: Any, name: str) -> Any:
    children = {child.name: child for child in above.children}
    if name not in children:
        near = _below(name, above) or nearest(name, children)
        hint = f", did you mean {near!r}?" if near else f"; the one beside {above.name!r} is '{UP}/{name}'"
        raise ConfigError(f"no child {name!r} of {above.name!r}{hint}", reference.place)
    return children[name]


def _below(name: str, above: Any) -> str | None:
    """Return the path to a child with this name in one of the supervisors below, or None if there is none."""
    inside = (child for child in above.children if hasattr(child, "children"))
    return next((f"{s.name}/{name}" for s in inside if name in {each.name for each in s.children}), None)


# ---- what a field of an agent points to


@attrs.frozen
class Pointer:
    """The target of a field of refs: the agents' class, and whether there may be several agents or None."""

    cls: Any
    many: bool
    optional: bool = False


def pointer_of(hint: Any) -> Pointer | None:
    """Return the target of `Ref[X]` or `tuple[Ref[X], ...]`, optionally `| None`; None for other types."""
    inner = _without_none(hint)
    optional = inner is not hint
    if get_origin(inner) in (tuple, list) and get_args(inner):
        one = _pointed(_without_none(get_args(inner)[0]))
        return None if one is None else Pointer(one, many=True, optional=optional)
    one = _pointed(inner)
    return None if one is None else Pointer(one, many=False, optional=optional)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [part for part in get_args(hint) if part is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint


def _may_hold_refs(hint: Any) -> bool:
    """Return whether a value of a type may be a ref or contain one; True if the type is unknown."""
    if hint in (None, Any, object) or isinstance(hint, TypeVar | Unknown):
        return True
    return _pointed(hint) is not None or any(_may_hold_refs(part) for part in get_args(hint))


def _pointed(hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is Ref or (isinstance(hint, type) and issubclass(hint, Ref)):
        return Agent
    if not (isinstance(origin, type) and issubclass(origin, Ref)):
        return None
    pointed = (get_args(hint) or (Agent,))[0]
    return pointed if isinstance(pointed, type) and issubclass(pointed, Agent) else Agent


def hint_of(cls: type, name: str) -> Any:
    """Return the type of an attribute as the class or a base declares it, or None if it cannot be read."""
    hint = type_of_field(cls, name)
    return None if isinstance(hint, Unknown) else hint
