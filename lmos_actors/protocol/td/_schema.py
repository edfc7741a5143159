"""Data schemas of Python types (Thing Description 1.1, section 5.3.2), from msgspec's view of a type.

What this module guarantees:

- **The schema accepts everything that msgspec decodes.** It is derived only from `msgspec.inspect.type_info`,
  so the schema and the decoder cannot disagree about a type.
- **Everything is inlined.** TD data schemas have neither `$ref` nor `anyOf`; alternatives are a `oneOf`. So a
  recursive type has no schema, and is refused when the class is made (`_objections`).
- **Alternatives exclude one another**, because `oneOf` demands that exactly one fits: `int | float` becomes a
  number, `Literal["a"] | str` a string (`_union`).
- **Integers beyond 2^53 are marked.** Many JSON readers store numbers as doubles. If an integer has no
  bounds, its description notes that it is sent exactly.
- **Stable output.** Members have a fixed order, because schemas are compared and printed.

Keywords that TD lacks are taken from JSON Schema: `additionalProperties`, `propertyNames`, `uniqueItems`.
`msgspec.json.schema` is not used: it writes `$ref` for every class and `anyOf` for every union.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast, get_origin

import msgspec
from msgspec import inspect as types

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema: TypeAlias = dict[str, Any]
ObjectType: TypeAlias = types.StructType | types.DataclassType | types.TypedDictType | types.NamedTupleType
HideDefault: TypeAlias = "Callable[[Any, str, Any], bool]"
IsSecret: TypeAlias = "Callable[[Any, str], bool]"
ArrayType: TypeAlias = types.ListType | types.SetType | types.FrozenSetType | types.VarTupleType

EXACT = 2**53  # the largest range of integers that doubles represent exactly
WORDS: dict[type, str] = {str: "string", int: "integer", type(None): "null"}
UNBOUNDED = "Sent as it is, also beyond 2^53."
"""The note on integers without bounds, for readers that store doubles. Models would take it for a hint."""
SECRET_MARK = "lmosx:secret"
"""Member of a data schema: true for values that nothing may show or keep."""


class SchemaError(ConfigError, TypeError):
    """The error for a type without a data schema, with the reason.

    It is raised when a class is made, never for a value.
    """


def schema_of(
    tp: Any, *, hide_default: HideDefault | None = None, is_secret: IsSecret | None = None
) -> Schema:
    """Return the TD data schema of a type, as a new dict. Raise SchemaError for a type without one.

    `hide_default(cls, field, default)` returns whether a field's default is left out; the field is still
    optional. `is_secret(cls, field)` returns whether a field is marked as secret.
    """
    tree = type_tree(tp)
    if hide_default is not None or is_secret is not None:
        tree = _with_secrets(tree, hide_default or _never, is_secret or _never)
    return _schema(tree)


def _never(*_: Any) -> bool:
    return False


def type_tree(tp: Any) -> types.Type:
    """Return msgspec's view of a type. Raises SchemaError for a type without a data schema."""
    try:
        msgspec.json.Decoder(tp)  # refuses more than `type_info` does, such as ambiguous unions
        tree = types.type_info(tp)
    except (TypeError, NameError, AttributeError) as exc:
        raise SchemaError(f"{type_name(tp)}: {exc}") from exc
    for reason in _objections(tree, frozenset()):
        raise SchemaError(f"{type_name(tp)}: {reason}")
    return tree


def type_name(tp: Any) -> str:
    """Return the short name of a type for messages, as in `list[int]`."""
    plain = isinstance(tp, type) and get_origin(tp) is None
    return tp.__name__ if plain else str(tp).replace("typing.", "")


def is_any(tree: types.Type) -> bool:
    """Return whether a type accepts every plain value: `Any`, `object`, and unions with either."""
    if isinstance(tree, types.UnionType):
        return any(is_any(member) for member in tree.types)
    return isinstance(tree, types.AnyType) or (isinstance(tree, types.CustomType) and tree.cls is object)


def bare(tree: types.Type) -> types.Type:
    """Return the type itself, without its `Meta`."""
    return tree.type if isinstance(tree, types.Metadata) else tree


def _parts(tree: types.Type) -> Iterator[types.Type]:
    if isinstance(tree, types.Metadata):
        yield tree.type
    elif isinstance(tree, ArrayType):
        yield tree.item_type
    elif isinstance(tree, types.TupleType):
        yield from tree.item_types
    elif isinstance(tree, types.UnionType):
        yield from tree.types
    elif isinstance(tree, types.DictType):
        yield tree.key_type
        yield tree.value_type
    elif _is_object(tree):
        yield from (field.type for field in tree.fields)


def _with_secrets(part: Any, hide_default: HideDefault, is_secret: IsSecret, cls: Any = None) -> Any:
    """Return a tree, or a part of one, without hidden defaults and with secret fields marked."""
    if isinstance(part, tuple):
        items: tuple[Any, ...] = cast("Any", part)
        if not isinstance(next(iter(items), None), types.Type | types.Field):  # the values of a Literal
            return items
        return tuple([_with_secrets(item, hide_default, is_secret, cls) for item in items])
    of = getattr(part, "cls", cls)
    inner: dict[str, Any] = {name: getattr(part, name) for name in part.__struct_fields__}
    for name, value in inner.items():
        if isinstance(value, types.Type | types.Field | tuple):
            inner[name] = _with_secrets(value, hide_default, is_secret, of)
    if isinstance(part, types.Field):
        if hide_default(cls, part.name, part.default):
            inner |= {"default": msgspec.NODEFAULT, "default_factory": msgspec.NODEFAULT}
        if is_secret(cls, part.name):
            inner["type"] = types.Metadata(inner["type"], extra_json_schema={SECRET_MARK: True})
    return type(part)(**inner)


def _is_object(tree: types.Type) -> TypeGuard[ObjectType]:
    kinds = types.StructType | types.DataclassType | types.TypedDictType | types.NamedTupleType
    return isinstance(tree, kinds)


def _objections(tree: types.Type, inside: frozenset[int]) -> Iterator[str]:
    """Yield the reasons why a type has no schema; `inside` are the identities of the types around it."""
    if id(tree) in inside:
        name = type_name(getattr(tree, "cls", tree))
        yield f"{name} contains itself; a recursive type has no schema without references"
        return
    yield from _own_objections(tree)
    for part in _parts(tree):
        yield from _objections(part, inside | {id(tree)})


def _own_objections(tree: types.Type) -> Iterator[str]:
    if isinstance(tree, types.CustomType) and tree.cls is not object:
        hint = getattr(tree.cls, "_not_data", "use a msgspec Struct, a dataclass or an attrs class")
        yield f"{type_name(tree.cls)} is not plain data; {hint}"
    elif isinstance(tree, types.RawType | types.ExtType | types.MemoryViewType):
        yield f"{type(tree).__name__.removesuffix('Type')} is not plain data; use bytes"
    elif isinstance(tree, types.DictType) and not _is_key(tree.key_type):
        yield "the keys of a dict must be str, int, or an Enum or Literal of either"
    elif isinstance(tree, types.SetType | types.FrozenSetType) and not _is_hashable(tree.item_type):
        yield "the items of a set must be hashable"
    elif isinstance(tree, types.DataclassType):
        for name in (field.name for field in tree.fields if field.name.startswith("_")):
            yield f"field {name} of {type_name(tree.cls)} is private and would not be sent"
    elif isinstance(tree, types.Metadata) and {"$ref", "anyOf"} & set(_extra_members(tree)):
        yield "a TD data schema has neither $ref nor anyOf"


def _is_key(tree: types.Type) -> bool:
    key = bare(tree)
    if isinstance(key, types.LiteralType):
        return len({type(value) for value in key.values}) == 1 and None not in key.values
    return isinstance(key, types.StrType | types.IntType | types.EnumType | types.AnyType)


def _is_hashable(tree: types.Type) -> bool:
    mutable = types.ListType | types.SetType | types.DictType | types.TypedDictType | types.ByteArrayType
    if isinstance(bare(tree), mutable):
        return False
    # the hash of an object need not depend on its parts: a class may define its own
    return _is_object(bare(tree)) or all(_is_hashable(part) for part in _parts(tree))


def _schema(tree: types.Type) -> Schema:
    if is_any(tree):
        return {}
    if _is_object(tree):
        in_order = isinstance(tree, types.NamedTupleType) or getattr(tree, "array_like", False)
        return _row(tree) if in_order else _object(tree)
    return _WRITERS[type(tree)](tree)


def _described(tree: types.Metadata) -> Schema:
    schema = {**_schema(tree.type), **_extra_members(tree)}
    first: Schema = {word: schema[word] for word in ("title", "description") if word in schema}
    return {**first, **schema}


def _extra_members(tree: types.Metadata) -> Schema:
    """Return the members of `Meta` that are not limits: title, description, examples, the user's own."""
    return cast("Any", tree).extra_json_schema or {}


def _present(**members: Any) -> Schema:
    return {word: value for word, value in members.items() if value is not None}


def _range(tree: types.IntType | types.FloatType) -> Schema:
    return _present(
        minimum=tree.ge,
        exclusiveMinimum=tree.gt,
        maximum=tree.le,
        exclusiveMaximum=tree.lt,
        multipleOf=tree.multiple_of,
    )


def _integer(tree: types.IntType) -> Schema:
    low = tree.ge if tree.ge is not None else tree.gt
    high = tree.le if tree.le is not None else tree.lt
    bounded = low is not None and high is not None and low >= -EXACT and high <= EXACT
    note: Schema = {} if bounded else {"description": UNBOUNDED}
    return {**note, "type": "integer", **_range(tree)}


def _number(tree: types.FloatType) -> Schema:
    return {"type": "number", **_range(tree)}


def _string(tree: types.StrType) -> Schema:
    limits = _present(minLength=tree.min_length, maxLength=tree.max_length, pattern=tree.pattern)
    return {"type": "string", **limits}


def _base64_length(size: int | None) -> int | None:
    return None if size is None else 4 * math.ceil(size / 3)


def _bytes(tree: types.BytesType | types.ByteArrayType) -> Schema:
    low, high = _base64_length(tree.min_length), _base64_length(tree.max_length)
    return {"type": "string", "contentEncoding": "base64", **_present(minLength=low, maxLength=high)}


def _formatted(name: str) -> Callable[[Any], Schema]:
    return lambda _tree: {"type": "string", "format": name}


def _plain(name: str) -> Callable[[Any], Schema]:
    return lambda _tree: {"type": name}


def _enum(tree: types.EnumType) -> Schema:
    members: type[Enum] = tree.cls
    if issubclass(members, Flag):
        return {
            **_title_and_description(members),
            "type": "integer",
        }  # combinations of members are values too
    return {**_title_and_description(members), **_choice([member.value for member in members])}


def _choice(values: list[Any]) -> Schema:
    first, *others = dict.fromkeys(WORDS[type(value)] for value in values)
    return {**({} if others else {"type": first}), "enum": values}


def _literal(tree: types.LiteralType) -> Schema:
    return {"type": "null"} if tree.values == (None,) else _choice(list(tree.values))


def _array(tree: ArrayType) -> Schema:
    unique = isinstance(tree, types.SetType | types.FrozenSetType)
    items = _schema(tree.item_type)
    limits = _present(minItems=tree.min_length, maxItems=tree.max_length)
    return {
        "type": "array",
        **({"items": items} if items else {}),
        **limits,
        **({"uniqueItems": True} if unique else {}),
    }


def _tuple(tree: types.TupleType) -> Schema:
    return _positions([_schema(item) for item in tree.item_types], len(tree.item_types))


def _positions(items: list[Schema], required: int, *, more: bool = False) -> Schema:
    """Return the schema of an array with one schema for each position.

    Equal items become a single schema, which more readers accept.
    """
    most: Schema = {} if more else {"maxItems": len(items)}
    note: Any = items[0] if not more and items and all(each == items[0] for each in items) else items
    return {"type": "array", **({"items": note} if note else {}), "minItems": required, **most}


def _map(tree: types.DictType) -> Schema:
    key, keys, values = bare(tree.key_type), _schema(tree.key_type), _schema(tree.value_type)
    limits = _present(minProperties=tree.min_length, maxProperties=tree.max_length)
    if isinstance(key, types.AnyType):
        names: Schema = {}
    elif "enum" in keys:
        names = {"enum": [str(value) for value in keys["enum"]]}
    elif isinstance(key, types.StrType):
        names = {word: keys[word] for word in ("minLength", "maxLength", "pattern") if word in keys}
    else:  # integers are written as decimal text
        names = {"pattern": "^(0|-?[1-9][0-9]*)$"}
    return {
        "type": "object",
        **({"additionalProperties": values} if values else {}),
        **({"propertyNames": names} if names else {}),
        **limits,
    }


def _union(tree: types.UnionType) -> Schema:
    """Return alternatives that exclude one another, as `oneOf` demands.

    An alternative that another one covers is left out.
    """
    members = [_schema(member) for member in tree.types]
    wide = {member["type"] for member in members if "enum" not in member and "type" in member}
    if "number" in wide:
        wide.add("integer")
        members = [member for member in members if "enum" in member or member.get("type") != "integer"]
    kept: list[Schema] = []
    for member in members:
        listed = member.get("enum", [])
        left = [value for value in listed if WORDS[type(value)] not in wide]
        if left == listed:
            kept.append(member)
        elif left:  # without the values that a wider alternative covers
            kept.append(_choice(left))
    if len(kept) == 1:
        return kept[0]
    common: Schema = {}  # the type of all alternatives, if any: kotlin-wot needs it next to `oneOf`
    words = sorted({member.get("type", "") for member in kept})
    if words == ["integer", "number"]:
        common = {"type": "number"}
    elif len(words) == 1 and words[0]:
        common = {"type": words[0]}
    return {**common, "oneOf": kept}


def _title_and_description(cls: Any) -> Schema:
    """Return the class's name as title, and its docstring as description if it was written by hand."""
    own: type = get_origin(cls) or cls
    doc = str(own.__doc__ or "") if "__doc__" in vars(own) else ""  # dataclasses may only make it when asked
    if not doc or doc.startswith(f"{own.__name__}("):  # none, or what dataclass and NamedTuple generate
        return {"title": own.__name__}
    return {"title": own.__name__, "description": inspect.cleandoc(doc)}


def _field(field: types.Field) -> Schema:
    schema = _schema(field.type)
    if field.default_factory in (list, dict, set, frozenset):
        return {**schema, "default": {} if field.default_factory is dict else []}
    try:
        default = msgspec.to_builtins(field.default, order="deterministic")
    except TypeError:  # no default, or one that is not plain data
        return schema
    return {**schema, "default": default} if _is_json(default) else schema


def _is_json(value: Any) -> bool:
    """Return whether plain data has a JSON form; infinity and NaN have none."""
    if isinstance(value, dict):
        return all(_is_json(part) for part in cast("dict[str, Any]", value).values())
    if isinstance(value, list | tuple):
        return all(_is_json(part) for part in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)


def _tag(tree: ObjectType) -> dict[str, Schema]:
    if not isinstance(tree, types.StructType) or tree.tag_field is None:
        return {}
    word = "integer" if isinstance(tree.tag, int) else "string"
    return {tree.tag_field: {"type": word, "const": tree.tag}}


def _object(tree: ObjectType) -> Schema:
    tag = _tag(tree)
    properties = {**tag, **{field.encode_name: _field(field) for field in tree.fields}}
    required = [*tag, *(field.encode_name for field in tree.fields if field.required)]
    return {
        **_title_and_description(tree.cls),
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if getattr(tree, "forbid_unknown_fields", False) else {}),
    }


def _row(tree: ObjectType) -> Schema:
    """Return the schema of an object whose fields are sent as an array."""
    tag = list(_tag(tree).values())
    named = [{"title": field.encode_name, **_field(field)} for field in tree.fields]
    more = isinstance(tree, types.StructType) and not tree.forbid_unknown_fields
    required = len(tag) + sum(field.required for field in tree.fields)
    return {**_title_and_description(tree.cls), **_positions([*tag, *named], required, more=more)}


_WRITERS: dict[type[types.Type], Callable[[Any], Schema]] = {
    types.Metadata: _described,
    types.NoneType: _plain("null"),
    types.BoolType: _plain("boolean"),
    types.IntType: _integer,
    types.FloatType: _number,
    types.StrType: _string,
    types.BytesType: _bytes,
    types.ByteArrayType: _bytes,
    types.DateTimeType: _formatted("date-time"),
    types.DateType: _formatted("date"),
    types.TimeType: _formatted("time"),
    types.TimeDeltaType: _formatted("duration"),
    types.UUIDType: _formatted("uuid"),
    types.DecimalType: _formatted("decimal"),
    types.EnumType: _enum,
    types.LiteralType: _literal,
    types.ListType: _array,
    types.SetType: _array,
    types.FrozenSetType: _array,
    types.VarTupleType: _array,
    types.TupleType: _tuple,
    types.DictType: _map,
    types.UnionType: _union,
}


def without_notes(schema: Any) -> Any:
    """Return a schema as plain data, without the notes about integers for readers that use doubles."""
    if isinstance(schema, Mapping):
        members: Mapping[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
        return {
            name: without_notes(each)
            for name, each in members.items()
            if name != "description" or each != UNBOUNDED
        }
    return list(map(without_notes, schema)) if isinstance(schema, list | tuple) else schema  # pyright: ignore
