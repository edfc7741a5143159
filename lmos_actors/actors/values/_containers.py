"""Arrays, dicts and objects, made of compiled parts.

A container that cannot change passes unchanged if all its items do; any other container is made anew. Tuples,
sets and objects are also accepted in their decoded JSON form.
"""

from __future__ import annotations

import re
from operator import attrgetter, is_, length_hint
from typing import TYPE_CHECKING, Any, TypeAlias, get_origin

import attrs
import msgspec
from msgspec import inspect as types

from lmos_actors._core import unhashable
from lmos_actors.errors import InvalidInput
from lmos_actors.protocol.td import is_any, type_name

from ._leaves import (
    KEY,
    LEAST,
    NUMBER,
    SCALARS,
    AnyTake,
    Part,
    convert,
    inside,
    member,
    refuse_foreign,
    shown,
    wrong,
)
from ._secrets import WHOLE, guarded, secret_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Compile: TypeAlias = Callable[[types.Type], Part]

MISSING: Any = object()
ROW: Any = (list, tuple)  # Any: what comes out of a foreign container has no known type
OBJECT: Any = dict
NUMERAL = re.compile("-?(?:0|[1-9][0-9]*)")
DIGITS = 1001  # the longest number, with its sign

MAKERS: dict[type[types.Type], tuple[Any, str]] = {
    types.ListType: (list, "a list can be changed in place, use `tuple`"),
    types.SetType: (set, "a set can be changed in place, use `frozenset`"),
    types.FrozenSetType: (frozenset, ""),
    types.VarTupleType: (tuple, ""),
}


def _array(tree: Any, compiled: Compile) -> Part:
    make, mutable = MAKERS[type(tree)]
    item = compiled(tree.item_type)
    take_item, lasting = item.take, not mutable
    accepted: Any = (list, tuple, set, frozenset) if make in (set, frozenset) else (list, tuple)

    def take(value: Any, path: str = "$", /) -> Any:
        if not isinstance(value, accepted):
            raise wrong("array", value, path)
        items = iter(value)
        try:
            taken = list(map(take_item, items))
        except (InvalidInput, RecursionError) as bad:
            raise inside(bad, path, _step(value, len(value) - length_hint(items) - 1)) from None
        if make is list:
            return taken
        if lasting and type(value) is make and all(map(is_, taken, value)):
            return value
        return _make(make, taken, path)

    return Part(take, accepted, mutable or item.mutable)


def _step(value: object, index: int) -> str:
    return "[...]" if isinstance(value, set | frozenset) else f"[{index}]"


def _make(make: Callable[[list[Any]], Any], taken: list[Any], path: str) -> Any:
    try:
        return make(taken)
    except TypeError as exc:  # an item that cannot be hashed
        raise InvalidInput(unhashable(exc), path) from None


def _tuple(tree: types.TupleType, compiled: Compile) -> Part:
    parts = [compiled(item) for item in tree.item_types]
    return _positions(tuple, parts, len(parts))


def _named_tuple(tree: types.NamedTupleType, compiled: Compile) -> Part:
    hidden = secret_members(tree.cls)
    parts = [_hiding(compiled(field.type), hidden.get(field.name, 0)) for field in tree.fields]
    cls: Any = get_origin(tree.cls) or tree.cls
    return _positions(cls, parts, sum(field.required for field in tree.fields))


def _positions(cls: Any, parts: list[Part], required: int) -> Part:
    """Compile a tuple, or a NamedTuple whose last fields may be omitted if they have defaults."""
    takes = [part.take for part in parts]
    length = str(required) if required == len(takes) else f"{required} to {len(takes)}"

    def take(value: Any, path: str = "$", /) -> Any:
        if not isinstance(value, ROW):
            raise wrong("array", value, path)
        if not required <= len(value) <= len(takes):
            raise InvalidInput(f"Expected `array` of length {length}, got {len(value)}", path)
        taken: list[Any] = []
        try:
            for take_item, item in zip(takes, value, strict=False):
                taken.append(take_item(item))
        except (InvalidInput, RecursionError) as bad:
            raise inside(bad, path, f"[{len(taken)}]") from None
        if type(value) is cls and all(map(is_, taken, value)):
            return value
        return tuple(taken) if cls is tuple else cls(*taken)

    mutable = next((part.mutable for part in parts if part.mutable), "")
    return Part(take, tuple({cls: None, tuple: None, list: None}), mutable)


def _map(tree: types.DictType, compiled: Compile) -> Part:
    take_key, part = _key(tree.key_type, compiled), compiled(tree.value_type)
    take_item, passing, is_text = part.take, part.passing, take_key is SCALARS[types.StrType].take

    def take(value: Any, path: str = "$", /) -> dict[Any, Any]:
        if not isinstance(value, OBJECT):
            raise wrong("object", value, path)
        taken: dict[Any, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                kind = type(item)  # pyright: ignore[reportUnknownVariableType]
                name = key if is_text and type(key) is str and key.isascii() else take_key(key, KEY)
                if kind in passing and (
                    item.isascii() if kind is str else kind is not int or LEAST < item < NUMBER
                ):
                    taken[name] = item
                else:
                    taken[name] = take_item(item)
        except (InvalidInput, RecursionError) as bad:
            raise inside(bad, path, member(key)) from None
        return taken

    return Part(take, (dict,), "a dict can be changed in place, use a frozen struct or a tuple of pairs")


def _key(tree: types.Type, compiled: Compile) -> AnyTake:
    """Return the function that checks the keys of a dict; numbers may be decimal text, as in JSON."""
    if is_any(tree):
        return SCALARS[types.StrType].take
    part = compiled(tree)
    if int not in part.natives:
        return part.take
    take = part.take

    def take_number(value: object, path: str = "$", /) -> Any:
        number = type(value) is str and len(value) <= DIGITS and NUMERAL.fullmatch(value)
        return take(int(number[0]) if number else value, path)

    return take_number


@attrs.frozen
class Field:
    """A field of an object: its Python name, its JSON name, and whether it may be absent; see also `Part`."""

    name: str
    wire: str
    take: AnyTake
    required: bool
    mutable: str
    passing: tuple[type, ...]


def _take_unless_unset(take: AnyTake) -> AnyTake:
    def take_set(value: object, path: str = "$", /) -> Any:
        return value if value is msgspec.UNSET else take(value, path)

    return take_set


def _hiding(part: Part, secrecy: int) -> Part:
    """Return the compiled type of a field; if the field is secret, refusals do not mention the value."""
    return part if secrecy < WHOLE else attrs.evolve(part, take=guarded(part.take))


def _fields(tree: Any, compiled: Compile, hidden: Mapping[str, int]) -> list[Field]:
    return [_field(tree, field, compiled, hidden.get(field.name, 0)) for field in tree.fields]


def _field(tree: Any, field: types.Field, compiled: Compile, secrecy: int) -> Field:
    part = _hiding(compiled(field.type), secrecy)
    value = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
    unset = not field.required and not value and not getattr(tree, "array_like", False)
    take = _take_unless_unset(part.take) if unset else part.take
    mutable = part.mutable and f"field `{field.name}` of `{type_name(tree.cls)}`: {part.mutable}"
    return Field(field.name, field.encode_name, take, field.required, mutable, part.passing)


def _getter(fields: list[Field]) -> Callable[[Any], Iterable[Any]]:
    """Return a function that reads all fields at once; a lone field twice, so that a tuple results, too."""
    names = [field.name for field in fields]
    return attrgetter(*names, names[0]) if names else lambda _: ()


def _typed_dict(tree: types.TypedDictType, compiled: Compile) -> Part:
    take_members = _members(_fields(tree, compiled, secret_members(tree.cls)))

    def take(value: Any, path: str = "$", /) -> dict[str, Any]:
        if not isinstance(value, OBJECT):
            raise wrong("object", value, path)
        return take_members(value, path)

    return Part(take, (dict,), "a dict can be changed in place, use a frozen struct")


def _members(fields: list[Field]) -> Callable[[dict[Any, Any], str], dict[str, Any]]:
    """Return a function that reads fields from a JSON object, and returns them by their Python names."""

    def take(value: dict[Any, Any], path: str) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for field in fields:
            item = value.get(field.wire, MISSING)
            if item is not MISSING:
                try:
                    taken[field.name] = field.take(item)
                except (InvalidInput, RecursionError) as bad:
                    raise inside(bad, path, member(field.wire)) from None
            elif field.required:
                raise InvalidInput(f"Object missing required field `{field.wire}`", path)
        return taken

    return take


def _object(tree: types.StructType | types.DataclassType, compiled: Compile) -> Part:
    """Compile a struct, dataclass or attrs class; it accepts an instance of exactly that class, or JSON."""
    hidden = secret_members(tree.cls)
    fields = _fields(tree, compiled, hidden)
    cls: Any = get_origin(tree.cls) or tree.cls
    frozen, build, read = _is_frozen(cls), _builder(tree, cls, hidden), _getter(fields)
    row = tree if isinstance(tree, types.StructType) and tree.array_like else None
    take_plain = _open(tree, fields) if row is None else _row(row, fields)
    members = [(field.name, field.take, field.passing) for field in fields]

    def take(value: Any, path: str = "$", /) -> Any:
        if type(value) is not cls:
            return build(take_plain(value, path), path)
        taken: dict[str, Any] = {}
        same, name = frozen, ""
        try:
            for (name, take_item, passing), item in zip(members, read(value), strict=False):
                kind = type(item)  # pyright: ignore[reportUnknownVariableType]
                if kind in passing and (
                    item.isascii() if kind is str else kind is not int or LEAST < item < NUMBER
                ):
                    taken[name] = item
                    continue
                new = taken[name] = take_item(item)
                if new is not item:
                    same = False
        except (InvalidInput, RecursionError) as bad:
            raise inside(bad, path, member(wires[name])) from None
        except AttributeError as exc:  # a field that was deleted, or never set
            raise InvalidInput(str(exc), path) from None
        return value if same else build(taken, path)

    wires = {field.name: field.wire for field in fields}
    mutable = next((field.mutable for field in fields if field.mutable), "")
    unfrozen = "" if frozen else f"`{type_name(cls)}` can be changed in place, make it frozen"
    natives = (cls, dict) if row is None else (cls, list, tuple)
    return Part(take, natives, unfrozen or mutable, tag=_tag(tree))


def _is_frozen(cls: Any) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    return bool(attrs.inspect(cls).is_frozen if attrs.has(cls) else cls.__dataclass_params__.frozen)


def _tag(tree: types.StructType | types.DataclassType) -> tuple[str, object] | None:
    if isinstance(tree, types.StructType) and tree.tag_field is not None:
        return tree.tag_field, tree.tag
    return None


def _builder(tree: types.Type, cls: Any, hidden: Mapping[str, int]) -> Callable[[dict[str, Any], str], Any]:
    """Return a function that makes an instance of checked fields; a `__post_init__` refuses by ValueError."""

    def build(taken: dict[str, Any], path: str) -> Any:
        try:
            return cls(**taken)
        except (ValueError, TypeError) as exc:
            raise InvalidInput(str(exc), path) from None
        except BaseException as exc:
            refuse_foreign(exc, path)
            raise

    def build_other(taken: dict[str, Any], path: str) -> Any:
        return convert(taken, cls, path)

    made = build if isinstance(tree, types.StructType) else build_other
    return guarded(made, f"Refused by {type_name(cls)}, which has secrets") if hidden else made


def _open(tree: types.StructType | types.DataclassType, fields: list[Field]) -> Callable[[Any, str], Any]:
    """Return a function that reads an object's fields from a JSON object."""
    take_members, name, tag = _members(fields), type_name(tree.cls), _tag(tree)
    closed = isinstance(tree, types.StructType) and tree.forbid_unknown_fields
    known = {field.wire for field in fields} | ({tag[0]} if tag else set[str]())

    def take(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, OBJECT):
            raise wrong(name, value, path)
        if tag is not None and tag[0] in value:
            _check_tag(tag, value[tag[0]], path + member(tag[0]))
        unknown = next((key for key in value if key not in known), None) if closed else None
        if unknown is not None:
            raise InvalidInput(f"Object contains unknown field {shown(unknown)}", path)
        return take_members(value, path)

    return take


def _check_tag(tag: tuple[str, object], value: object, path: str) -> None:
    if type(value) is not type(tag[1]) or value != tag[1]:
        raise InvalidInput(f"Invalid value {shown(value)}", path)


def _row(tree: types.StructType, fields: list[Field]) -> Callable[[Any, str], Any]:
    """Return a function that reads the fields of an array-like struct, after its tag if it has one."""
    tag, name = _tag(tree), type_name(tree.cls)
    start = 0 if tag is None else 1
    least = start + sum(field.required for field in fields)

    def take(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, ROW):
            raise wrong(name, value, path)
        if len(value) < least or (tree.forbid_unknown_fields and len(value) > start + len(fields)):
            raise InvalidInput(f"Expected `array` for `{name}`, got one of length {len(value)}", path)
        if tag is not None:
            _check_tag(tag, value[0], f"{path}[0]")
        taken: dict[str, Any] = {}
        try:
            for field, item in zip(fields, value[start:], strict=False):
                taken[field.name] = field.take(item)
        except (InvalidInput, RecursionError) as bad:
            raise inside(bad, path, f"[{start + len(taken)}]") from None
        return taken

    return take


CONTAINERS: dict[type[types.Type], Callable[[Any, Compile], Part]] = {
    **dict.fromkeys(MAKERS, _array),
    types.TupleType: _tuple,
    types.NamedTupleType: _named_tuple,
    types.DictType: _map,
    types.TypedDictType: _typed_dict,
    types.StructType: _object,
    types.DataclassType: _object,
}
