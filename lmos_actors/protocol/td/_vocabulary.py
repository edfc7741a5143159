"""Vocabulary of LMOS in descriptions: checks of `@context`, `@type`, metadata and extension members.

The checks take plain data of any shape and skip members of the wrong type, which the schema check reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._findings import Finding, near, shown
from ._model import (
    AGENT_TYPES,
    EXTENSIONS_PREFIX,
    EXTENSIONS_URI,
    LMOS_CONTEXT_URI,
    LMOS_PREFIX,
    OFFERS,
    TD_CONTEXT_URI,
    TOOL_TYPES,
)
from ._reading import Place, is_array, is_object, kind_of
from ._uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

AFFORDANCES: Final = ("properties", "actions", "events")

_METADATA: Final = "lmos:metadata"
_PARTS: Final = (("lmos:vendor", ("lmos:name", "lmos:url")), ("lmos:model", ("lmos:name", "lmos:provider")))


def affordances(data: dict[str, Any]) -> Iterator[tuple[str, Place, dict[str, Any]]]:
    """Yield every affordance that is an object, with its kind and its place."""
    for kind in AFFORDANCES:
        for name, each in as_object(data.get(kind)).items():
            if is_object(each):
                yield kind, (kind, name), each


def as_object(value: object) -> dict[str, Any]:
    return value if is_object(value) else {}


def as_array(value: object) -> list[Any]:
    return value if is_array(value) else []


def texts_of(value: object) -> list[str]:
    """Return the texts of a member that is a text or an array."""
    return [each for each in (as_array(value) or [value]) if isinstance(each, str)]


def has_any(value: object, wanted: tuple[str, ...]) -> bool:
    return any(each in wanted for each in texts_of(value))


# --- checks


def check_vocabulary(data: dict[str, Any]) -> Iterator[Finding]:
    if data.get("@context") == []:
        fix = f'write "{TD_CONTEXT_URI}", then the prefixes'
        yield Finding(("@context",), "@context is empty", fix, tolerated=True)
    contexts = as_array(data.get("@context")) or [data.get("@context")]
    prefixes = {prefix: uri for each in contexts for prefix, uri in as_object(each).items()}
    for prefix, uri in ((LMOS_PREFIX, LMOS_CONTEXT_URI), (EXTENSIONS_PREFIX, EXTENSIONS_URI)):
        used = _use_of(data, prefix)
        if used is not None and prefixes.get(prefix) != uri:
            message = f"{prefix}: is used, and @context does not define it as {uri}"
            yield Finding(used, message, f'add {{"{prefix}": "{uri}"}} to @context', tolerated=True)
    yield from _type(data, LMOS_CONTEXT_URI in contexts, LMOS_PREFIX in prefixes)


def _use_of(data: dict[str, Any], prefix: str) -> Place | None:
    """Return the first place that uses a prefix, None without one."""
    start = f"{prefix}:"
    if any(each.startswith(start) for each in texts_of(data.get("@type"))):
        return ("@type",)
    places = [((), data), *((place, each) for _, place, each in affordances(data))]
    return next(((*place, name) for place, each in places for name in each if name.startswith(start)), None)


def _type(data: dict[str, Any], is_plain: bool, is_prefixed: bool) -> Iterator[Finding]:
    """Check `@type`. Words are compared as written, not expanded as JSON-LD would."""
    place = ("@type",)
    types = texts_of(data.get("@type"))
    bare = [each for each in types if each in ("Agent", "Tool")]
    if bare and not is_plain:
        message = f"@type {bare[0]!r} is a term of LMOS, and @context does not name its vocabulary"
        yield Finding(place, message, f'write "{LMOS_PREFIX}:{bare[0]}"', tolerated=True)
    is_agent, is_tool = has_any(types, AGENT_TYPES), has_any(types, TOOL_TYPES)
    if is_agent and is_tool:
        yield Finding(place, "@type names an agent and a tool", "leave one out", "warning")
    if (is_plain or is_prefixed) and not is_agent and not is_tool:
        message = "@context names LMOS, and @type names neither an agent nor a tool"
        yield Finding(place, message, 'write "lmos:Agent" or "lmos:Tool"', "warning")


def check_metadata(data: dict[str, Any]) -> Iterator[Finding]:
    """Check the members defined for `lmos:metadata`, an open vocabulary, and our extension members."""
    yield from _of_kind(data, (), _METADATA, dict)
    metadata = as_object(data.get(_METADATA))
    for name in metadata:
        if ":" not in name:
            fix = f'write "{LMOS_PREFIX}:{name}"'
            yield Finding((_METADATA, name), f"{name!r} has no prefix", fix, "warning")
    for name, texts in _PARTS:
        yield from _of_kind(metadata, (_METADATA,), name, dict)
        for text in texts:
            yield from _of_kind(as_object(metadata.get(name)), (_METADATA, name), text, str)
    url = as_object(metadata.get("lmos:vendor")).get("lmos:url")
    if isinstance(url, str) and not is_uri(url):
        fix = 'write an absolute one, as in "https://example.com"'
        yield Finding((_METADATA, "lmos:vendor", "lmos:url"), f"{url!r} is not a URL", fix, "warning")
    yield from _of_kind(data, (), f"{EXTENSIONS_PREFIX}:capabilities", list)
    yield from _offers(data)


def _of_kind(data: dict[str, Any], place: Place, name: str, kind: type) -> Iterator[Finding]:
    value = data.get(name)
    if value is not None and not isinstance(value, kind):
        wanted = kind_of(kind())
        message = f"{name} must be {wanted}, is {kind_of(value)}"
        yield Finding((*place, name), message, f"write {wanted}; it is ignored", tolerated=True)


def _offers(data: dict[str, Any]) -> Iterator[Finding]:
    name = f"{EXTENSIONS_PREFIX}:offers"
    yield from _of_kind(data, (), name, list)
    for number, each in enumerate(as_array(data.get(name))):
        if each not in OFFERS:
            hint = near(each, OFFERS) if isinstance(each, str) else ""
            message = f"unknown feature {shown(each)}{hint}"
            yield Finding((name, number), message, f"use {', '.join(OFFERS)}", "warning")
