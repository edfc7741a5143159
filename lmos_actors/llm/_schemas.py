"""The schemas of tools in a form that the endpoints of a family accept.

Strict providers read the schemas of all tools first, and refuse the whole request because of one schema. The
changes made here can only widen a schema: a tool checks its arguments itself. If no such change helps, an
optional argument is left out, or else the tool; both are named in `left_out`.

- The whole is an object with `properties`. Alternatives at the top become one object with the properties of
  all alternatives; it requires only those that each alternative requires.
- An array declares its items; a schema that is true or false becomes an object.
- Keywords that an endpoint of Gemini does not know are replaced by others, or removed: references are
  replaced by their targets, `const` by `enum`, a list of types by `nullable` and `anyOf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import re

Schema = dict[str, Any]

MOST_PARTS: Final = 5_000
"""Parts of one schema, with the targets of its references: these can be more than anybody has written."""

MOST_LEVELS: Final = 40
"""Levels of one schema, as of the values that go back to a model."""

_UNIONS: Final = ("oneOf", "anyOf")
_NARROWING: Final = ("not", "if", "then", "else", "enum", "const", "dependentRequired", "dependentSchemas")
"""Words that providers refuse at the top, and that only narrow what an object may be."""

_INNER: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS: Final = ("oneOf", "anyOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

_FEW_WORDS: Final = (
    *("type", "format", "title", "description", "nullable", "enum", "anyOf", "default", "example"),
    *("items", "maxItems", "minItems", "properties", "required", "minProperties", "maxProperties"),
    *("minLength", "maxLength", "pattern", "minimum", "maximum"),
)
"""All words that the endpoints of Gemini have."""

_FORMATS: Final = {
    "string": {"enum", "date-time"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}


class Unsendable(Exception):
    """Raised if a schema cannot be written so that the provider accepts it; the text has the reason."""


class ToolSchema:
    """The schema of the arguments of one tool, as `schema`; if it is empty, the tool is sent without one.

    `keys` is the pattern for names of arguments. `few_words` is whether only Gemini's keywords are known.
    `left_out` has the reason for each argument that is left out, by name. Raises Unsendable.
    """

    def __init__(self, schema: Schema, keys: re.Pattern[str] | None, *, few_words: bool) -> None:
        self._few_words = few_words
        self._root = schema
        self._parts = 0
        self.left_out: dict[str, str] = {}
        top = self._top(schema, 0)
        needed = cast("list[str]", top.get("required", []))
        properties: Schema = {}
        for name, each in cast("Schema", top.get("properties", {})).items():
            try:
                if keys is not None and not keys.fullmatch(name):
                    raise Unsendable(f"the provider takes no argument that is named {name!r}")
                properties[name] = self._part(each, 1, ())
            except Unsendable as error:
                if name in needed:
                    raise Unsendable(f"its argument {name!r}: {error}") from None
                self.left_out[name] = str(error)
        others = [name for name in top if name not in ("properties", "required")]
        if self._few_words:
            others = [name for name in others if name in ("title", "description")]
            if not properties:
                self.schema: Schema = {}
                return
        kept = {name: self._word(name, top[name], 0, ()) for name in others}
        self.schema = {**kept, "type": "object", "properties": properties}
        if required := [name for name in dict.fromkeys(needed) if name in properties]:
            self.schema["required"] = required

    # ---- the top

    def _top(self, schema: Any, level: int) -> Schema:
        """Return one object that accepts everything that a schema with alternatives accepts."""
        found = self._resolved(schema, level)
        kinds = found.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise Unsendable("its arguments are no object")
        top = {name: each for name, each in found.items() if name not in (*_UNIONS, "allOf", *_NARROWING)}
        for each in _listed(found, "allOf"):
            _join(top, self._top(each, level + 1), every=True)
        for word in _UNIONS:
            branches = [self._top(each, level + 1) for each in _listed(found, word) if not _is_null(each)]
            if branches:
                either: Schema = {"required": branches[0].get("required", [])}
                for branch in branches:
                    _join(either, branch, every=False)
                _join(top, either, every=True)
        return top

    def _resolved(self, schema: Any, level: int) -> Schema:
        """Return a schema with its top reference resolved; its own members override those of the target."""
        self._count(level)
        found = _in_words(schema)
        if "$ref" not in found:
            return found
        rest = {name: each for name, each in found.items() if name != "$ref"}
        return {**self._resolved(self._target(found["$ref"]), level + 1), **rest}

    def _target(self, reference: Any) -> Any:
        if reference == "#":
            return self._root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise Unsendable(f"it refers to {str(reference)[:100]!r}, which is not in it")
        place: Any = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(place, dict) or name not in place:
                raise Unsendable(f"it refers to {reference[:100]!r}, which is not in it")
            place = cast("Schema", place)[name]
        return place

    def _count(self, level: int) -> None:
        self._parts += 1
        if level > MOST_LEVELS:
            raise Unsendable("its schema is nested too deeply, or without an end")
        if self._parts > MOST_PARTS:
            raise Unsendable("its schema is too large")

    # ---- what is inside

    def _part(self, schema: Any, level: int, above: tuple[str, ...]) -> Schema:
        """Return a part in a form that the family accepts; `above` are the references that lead to it."""
        self._count(level)
        found = _in_words(schema)
        if "$ref" in found:
            target = self._target(found["$ref"])
            if self._few_words:
                if found["$ref"] in above:
                    raise Unsendable("it refers to itself, for which the provider has no word")
                rest = {name: each for name, each in found.items() if name != "$ref"}
                return self._part({**_in_words(target), **rest}, level + 1, (*above, found["$ref"]))
        known = {*_FEW_WORDS, "oneOf", "allOf", "const"} if self._few_words else found
        made = {name: self._word(name, each, level, above) for name, each in found.items() if name in known}
        kinds = made.get("type", [])
        if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "prefixItems" not in made:
            made.setdefault("items", {"type": "string"} if self._few_words else {})
        return _in_few_words(made) if self._few_words else made

    def _word(self, name: str, value: Any, level: int, above: tuple[str, ...]) -> Any:
        if name in _INNER and not (name == "additionalProperties" and isinstance(value, bool)):
            return self._part(value, level + 1, above)
        if name in _LISTS and isinstance(value, list):
            parts: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
            return [each if _is_null(each) else self._part(each, level + 1, above) for each in parts]
        if name in _NAMED and isinstance(value, dict):
            named = cast("Schema", value).items()
            return {key: self._part(each, level + 1, above) for key, each in named if each is not False}
        return value


def _in_words(schema: Any) -> Schema:
    """Return a schema, which may be true or false, as an object without invalid members."""
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, dict):
        return {}
    found = cast("Schema", schema)
    if isinstance(found.get("items"), list):  # the old name of `prefixItems`
        found = {
            **{name: each for name, each in found.items() if name != "items"},
            "prefixItems": found["items"],
        }
    return {name: each for name, each in found.items() if _is_word(name, each)}


def _is_word(name: str, value: Any) -> bool:
    """Return whether a member has the type that its keyword demands; schemas come from anywhere."""
    if name in _NAMED:
        return isinstance(value, dict)
    if name in ("required", "type", "enum", *_LISTS):
        listed: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        are_texts = name not in ("required", "type") or all(isinstance(each, str) for each in listed)
        return are_texts and (isinstance(value, list) or name == "type")
    return name not in _INNER or isinstance(value, dict | bool)


def _listed(schema: Schema, word: str) -> list[Any]:
    found: list[Any] = schema.get(word, [])
    return found


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("Schema", schema).get("type") == "null"


def _join(top: Schema, other: Schema, *, every: bool) -> None:
    """Merge `other` into `top`. With `every`, require what either of them requires, else what both do."""
    properties: Schema = dict(top.get("properties", {}))
    for name, each in cast("Schema", other.get("properties", {})).items():
        known = properties.get(name, each)
        properties[name] = each if known == each else {"anyOf": [known, each]}
    mine, others = top.get("required", []), other.get("required", [])
    required = [*mine, *others] if every else [name for name in mine if name in others]
    kept = {name: each for name, each in other.items() if name in ("description", "$defs", "definitions")}
    top |= {**kept, **top, "properties": properties, "required": list(dict.fromkeys(required))}
    if other.get("additionalProperties") is not False or not every:
        top.pop("additionalProperties", None)


def _in_few_words(schema: Schema) -> Schema:
    """Return a part in keywords that the endpoints of Gemini know. Raise Unsendable."""
    made = {name: each for name, each in schema.items() if name in _FEW_WORDS}
    for each in cast("list[Schema]", _listed(schema, "allOf")):
        properties = {**made.get("properties", {}), **each.get("properties", {})}
        made = {**each, **made, **({"properties": properties} if properties else {})}
    kinds = made.pop("type", [])
    listed = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
    plain = [kind for kind in listed if kind != "null"]
    either = cast("list[Schema]", [*_listed(schema, "anyOf"), *_listed(schema, "oneOf")])
    if len(plain) > 1 and not either:
        either = [
            {"type": kind, **{word: made[word] for word in _OWN.get(kind, ()) if word in made}}
            for kind in plain
        ]
    nullable = {"nullable": True} if "null" in listed or any(map(_is_null, either)) else {}
    either = [_typed({**each, **nullable}) for each in either if not _is_null(each)]
    if len(either) > 1:
        return {"anyOf": either}  # with nothing beside it
    if either:
        described: Schema = {name: made[name] for name in ("title", "description") if name in made}
        return {**either[0], **described}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    return _typed({**made, **({"type": plain[0]} if plain else {}), **nullable})


_OWN: Final = {"array": ("items", "minItems", "maxItems"), "object": ("properties", "required")}


def _typed(schema: Schema) -> Schema:
    """Return a part with its type, and only with keywords for that type. Raise Unsendable."""
    if "anyOf" in schema:
        return {"anyOf": schema["anyOf"]}
    guess = "object" if "properties" in schema else "array" if "items" in schema else "string"
    kind = cast("str", schema.get("type", guess))
    foreign = {word for other, words in _OWN.items() for word in words if other != kind}
    made = {"type": kind, **{name: each for name, each in schema.items() if name not in foreign}}
    if kind == "null":
        made |= {"type": "string", "nullable": True}
    if kind == "object":
        if not made.get("properties"):
            raise Unsendable("it is an object of any members, for which the provider has no word")
        required = made.pop("required", [])
        if kept := [name for name in required if name in made["properties"]]:
            made["required"] = kept
    if kind == "array":
        made.setdefault("items", {"type": "string"})
    values = made.get("enum", [])
    if kind != "string" or not all(isinstance(each, str) for each in values):
        made.pop("enum", None)
    if made.get("format") not in _FORMATS.get(kind, ()):
        made.pop("format", None)
    return made
