"""Values that cross between agents: checked against their declared type, sharing nothing that can change.

Each type is compiled once, into a tree of small functions. They take both a native value of the type and its
form in decoded JSON, so agents near and far accept the same values and return equal ones. Immutable values
pass as they are; everything else is made anew. A refusal is an `InvalidInput` whose path shows where:
`$.city`, `$.items[2]`, `$['two words']`; `$[...]` is some item of a set.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar, get_origin

import attrs
from msgspec import inspect as types

from lmos_actors.errors import InvalidInput
from lmos_actors.protocol.td import SECRET_MARK, SchemaError, is_any, schema_of, type_name, type_tree

from ._containers import CONTAINERS
from ._hiding import holds_secrets
from ._leaves import LEAVES, NESTING, WIRE_NAMES, AnyTake, Part, Take, member, plain_data, shown, wrong
from ._secrets import WHOLE, guarded, record_of, secrecy_of

T = TypeVar("T")


class Shape(Generic[T]):
    """A declared type, compiled.

    `take` checks a value and returns the one that may cross; it raises InvalidInput, and any error of a
    user's `__post_init__` other than ValueError and TypeError. A value whose class is `exact` needs no look.
    `immutable` is decided for the type as a whole, parts included, and so is its `secrecy`.
    """

    __slots__ = ("_schema", "exact", "immutable", "mutable", "name", "secrecy", "take", "type")

    def __init__(self, tp: Any) -> None:
        part = _compile(type_tree(tp), NESTING)
        self.type = tp
        self.name = type_name(tp)
        self.secrecy = secrecy_of(tp)
        self.take: Take[T] = part.take if self.secrecy < WHOLE else guarded(part.take)
        self.exact = part.exact
        self.mutable = part.mutable
        self.immutable = not part.mutable
        self._schema: dict[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The TD data schema, made on first use and shared; copy it before changing it.

        Secrets are marked. Defaults that are secret, or contain secrets, are left out.
        """
        if self._schema is None:
            schema = schema_of(self.type, hide_default=_hides_default, is_secret=_is_secret)
            self._schema = {**schema, SECRET_MARK: True} if self.secrecy == WHOLE else schema
        return self._schema

    def __repr__(self) -> str:
        return f"Shape({self.name})"


def _secrecy_in(cls: Any, field: str) -> int:
    record = record_of(get_origin(cls) or cls) or ()
    return max((m.secrecy for m in record if m.name == field), default=0)


def _hides_default(cls: Any, field: str, default: Any) -> bool:
    return bool(_secrecy_in(cls, field)) or holds_secrets(default)


def _is_secret(cls: Any, field: str) -> bool:
    return _secrecy_in(cls, field) == WHOLE


def shape_of(tp: Any) -> Shape[Any]:
    """Return the compiled type, from the cache if it was seen before. Raises SchemaError (a TypeError)."""
    try:
        hash(tp)
    except TypeError:  # such as Annotated with a list of examples
        return Shape(tp)
    return _cached(tp)


@lru_cache(maxsize=4096)
def _cached(tp: Any) -> Shape[Any]:
    return Shape(tp)


def check_property_type(tp: Any, where: str) -> None:
    """Refuse a property's type if any part can change in place. Raises SchemaError (a TypeError)."""
    shape = shape_of(tp)
    if shape.mutable:
        raise SchemaError(f"{where}: the type of a property must be immutable: {shape.mutable}")


def _compile(tree: types.Type, room: int) -> Part:
    """Compile a type that may have at most `room` levels of containers."""
    if isinstance(tree, types.Metadata):
        return _compile(tree.type, room)
    if is_any(tree):
        return plain_data(room)
    leaf = LEAVES.get(type(tree))
    if leaf is not None:
        return leaf(tree)
    if isinstance(tree, types.UnionType):
        return _union(tree, room)
    if room == 0:
        raise SchemaError(f"a type of more than {NESTING} containers inside one another")
    return _sized(tree, CONTAINERS[type(tree)](tree, partial(_compile, room=room - 1)))


def _sized(tree: types.Type, part: Part) -> Part:
    """Add the length limits that `Meta` sets to the check of a container."""
    least, most = getattr(tree, "min_length", None), getattr(tree, "max_length", None)
    if least is None and most is None:
        return part
    take, word = part.take, "object" if isinstance(tree, types.DictType) else "array"

    def take_sized(value: Any, path: str = "$", /) -> Any:
        taken = take(value, path)
        if least is not None and len(value) < least:
            raise InvalidInput(f"Expected `{word}` of length >= {least}", path)
        if most is not None and len(value) > most:
            raise InvalidInput(f"Expected `{word}` of length <= {most}", path)
        return taken

    return attrs.evolve(part, take=take_sized)


def _union(tree: types.UnionType, room: int) -> Part:
    """Compile alternatives, distinguished by the class of the value and, for tagged structs, by the tag."""
    members = sorted(tree.types, key=lambda member: isinstance(member, types.LiteralType))
    parts = [_compile(member, room) for member in members]
    mutable = next((part.mutable for part in parts if part.mutable), "")
    natives = _by_class(parts)
    others = [part for part in parts if part.natives != (type(None),)]
    if len(others) == 1:
        passing = (type(None), *others[0].passing)
        return Part(_optional(others[0].take), tuple(natives), mutable, passing=passing)
    expected = " | ".join(WIRE_NAMES.get(part.natives[0], part.natives[0].__name__) for part in parts)

    def take(value: object, path: str = "$", /) -> Any:
        take_member = natives.get(type(value)) or _near(natives, value)
        if take_member is None:
            raise wrong(expected, value, path)
        return take_member(value, path)

    return Part(take, tuple(natives), mutable)


def _optional(take: AnyTake) -> AnyTake:
    def take_optional(value: object, path: str = "$", /) -> Any:
        return None if value is None else take(value, path)

    return take_optional


def _by_class(parts: list[Part]) -> dict[type, AnyTake]:
    """Map each class of values to the alternative that accepts it, the more general alternative first."""
    natives: dict[type, AnyTake] = {}
    for form in (dict, list, tuple):
        tagged = [part for part in parts if part.tag is not None and form in part.natives]
        if len(tagged) > 1:
            natives[form] = _tagged(tagged, form)
    for part in parts:
        for native in part.natives:
            natives.setdefault(native, part.take)
    if float in natives:
        natives.setdefault(int, natives[float])
    return natives


def _near(natives: dict[type, AnyTake], value: object) -> AnyTake | None:
    """Find the alternative for a value of a derived class; an enum's member counts as its value."""
    if isinstance(value, bool):
        return None
    plain = value.value if isinstance(value, Enum) else value
    return next((take for native, take in natives.items() if isinstance(plain, native)), None)


def _tagged(parts: list[Part], form: type) -> AnyTake:
    takes = {part.tag[1]: part.take for part in parts if part.tag is not None}
    (field,) = {part.tag[0] for part in parts if part.tag is not None}
    kinds = {type(tag) for tag in takes}
    place: Any = field if form is dict else 0
    step = member(field) if form is dict else "[0]"

    def take(value: Any, path: str = "$", /) -> Any:
        try:
            tag = value[place]
        except LookupError:
            raise InvalidInput(f"Object missing required field `{field}`", path) from None
        take_member = takes.get(tag) if type(tag) in kinds else None
        if take_member is None:
            raise InvalidInput(f"Invalid value {shown(tag)}", path + step)
        return take_member(value, path)

    return take
