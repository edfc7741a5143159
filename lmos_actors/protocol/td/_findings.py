"""Findings: places, messages and fixes, and their derivation from the errors of a JSON schema validator.

A validator reports every alternative that does not fit. The alternative that was most likely meant is chosen:
it is not excluded by its type (or by the `scheme` of a security definition), and has the fewest faults.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import attrs
import msgspec

from lmos_actors.errors import hint_at

from ._model import LMOS_CONTEXT_URI, OLD_TD_CONTEXT_URI, TD_CONTEXT_URI
from ._reading import Place, is_array, is_object, kind_of, pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Severity: TypeAlias = Literal["error", "warning"]

MAX_SHOWN: Final = 60  # characters of a value in a message
MAX_LISTED: Final = 12  # words listed in one sentence
_KINDS: Final = {
    "string": "a text", "object": "an object", "array": "an array", "boolean": "true or false",
    "number": "a number", "integer": "a whole number", "null": "null",
}  # fmt: skip
_MAPS: Final = ("properties", "actions", "events", "securityDefinitions", "schemaDefinitions")
_WITH_HREF: Final = (["forms"], ["links"])
_OPS: Final = {"properties": "readproperty", "actions": "invokeaction", "events": "subscribeevent"}
_SUBJECTS: Final = {"properties": "a property", "actions": "an action", "events": "an event"}
_SAMPLES: Final = {
    "@context": f'"@context": ["{TD_CONTEXT_URI}", {{"lmos": "{LMOS_CONTEXT_URI}"}}]',
    "title": '"title": "..."',
    "security": '"security": "nosec_sc", the name of one of the securityDefinitions',
    "securityDefinitions": '"securityDefinitions": {"nosec_sc": {"scheme": "nosec"}}',
    "forms": '"forms": [{"href": "https://..."}]',
    "href": '"href": "...", the address',
    "scheme": '"scheme": "nosec", or another scheme',
    "instance": '"instance": "1.0.0"',
    "contentType": '"contentType": "application/json"',
}
SCHEMES: Final = ("nosec", "auto", "combo", "basic", "digest", "apikey", "bearer", "psk", "oauth2")


@attrs.frozen
class Finding:
    """A mistake in a description, or something that was probably not intended.

    `place` has keys and indices, `path` the same as a JSON pointer. `message` names the mistake, `fix` its
    correction. `severity` is `error` or `warning`. `tolerated` findings are deviations from TD 1.1 or LMOS
    that consumers of this package accept: errors in strict checks, otherwise warnings.
    """

    place: Place
    message: str
    fix: str
    severity: Severity = "error"
    tolerated: bool = False

    @property
    def path(self) -> str:
        """The place as a JSON pointer (RFC 6901), "" for the whole description."""
        return pointer(self.place)

    def __str__(self) -> str:
        return f"{self.path or 'description'}: {self.message}; {self.fix}"


def near(word: str, known: Iterable[str]) -> str:
    """Return ", did you mean ..." if a known word is similar, else an empty text."""
    return hint_at(word, islice(known, 100))  # a hostile description may define thousands


def some_of(known: Iterable[str]) -> str:
    """Return the first entries of a list of words, with "..." for the rest."""
    first = list(islice(known, MAX_LISTED + 1))
    return ", ".join(first[:MAX_LISTED]) + (", ..." if len(first) > MAX_LISTED else "")


def shown(value: object) -> str:
    """Return a value as JSON, shortened."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


# --- from the validator's errors to the faults that matter


class SchemaFault(Protocol):
    """The part of a validator's error that is used here. `kind.context` has the errors of alternatives."""

    @property
    def kind(self) -> Any: ...
    @property
    def instance(self) -> Any: ...
    @property
    def instance_path(self) -> Sequence[str | int]: ...


class Fault(NamedTuple):
    """Leaf of the validator's tree of errors."""

    word: str  # the keyword of JSON Schema
    detail: dict[str, Any]
    place: Place
    value: Any


def faults(errors: Iterable[SchemaFault]) -> Iterator[Fault]:
    """Yield the relevant faults, one for each place and missing member."""
    seen: dict[tuple[Place, Any], None] = {}
    for error in errors:
        for fault in _relevant_faults(error):
            key = (fault.place, fault.detail.get("property"))
            if key not in seen:
                seen[key] = None
                yield fault


def _relevant_faults(error: SchemaFault) -> list[Fault]:
    place = tuple(error.instance_path)
    context = cast("list[list[SchemaFault]]", getattr(error.kind, "context", []))
    own = Fault(error.kind.name, error.kind.as_dict(), place, error.instance)
    if not context or place == ("@context",):
        return [own]
    tried = [[fault for each in branch for fault in _relevant_faults(each)] for branch in context]
    plausible = [branch for branch in tried if not any(_excludes(fault, place) for fault in branch)]
    if plausible:
        return min(plausible, key=len)
    return [own._replace(word="alternatives", detail={"tried": [branch[0] for branch in tried]})]


def _excludes(fault: Fault, place: Place) -> bool:
    """Return whether a fault rules out its alternative: another type, or another security scheme."""
    if fault.place == place:
        return fault.word in ("type", "alternatives")
    is_scheme = fault.place == (*place, "scheme") and "securityDefinitions" in place
    return is_scheme and fault.word in ("enum", "pattern")


# --- from faults to messages


def finding_of(fault: Fault) -> Finding:
    """Return the finding for a fault."""
    if fault.place == ("@context",) or fault.detail.get("property") == "@context":
        return _context(fault)
    place = fault.place
    if fault.value is None and fault.word in ("type", "alternatives", "enum"):
        # a null member is tolerated as absent, except where reading needs it
        fix = f"write {_sample(place)}" if _is_required(place) else "leave it out"
        is_entry = isinstance(place[-1], int) or (len(place) == 2 and place[0] in _MAPS)
        tolerated = not is_entry and place[-1] not in ("href", "scheme")
        return Finding(place, f"{_name(fault)} is null", fix, tolerated=tolerated)
    message, fix = _FORMATTERS.get(fault.word, _generic)(fault)
    lacks_security = fault.detail.get("property") in ("security", "securityDefinitions") and not place
    tolerated = lacks_security or (fault.word == "format" and place == ("id",))
    return Finding(place, message, fix, tolerated=tolerated)


def _is_required(place: Place) -> bool:
    """Return whether TD 1.1 requires the member at a place, so that it cannot be left out."""
    *above, last = place
    if last in ("title", "security", "securityDefinitions"):
        return not above
    if last in ("forms", "scheme"):
        return len(above) == 2 and above[0] in _MAPS
    if last == "op":
        return above[:1] == ["forms"]
    return above == ["version"] if last == "instance" else last == "href" and above[-2:-1] in _WITH_HREF


def _sample(place: Place) -> str:
    """Return a sample of a valid member at a place."""
    last = str(place[-1])
    if last == "op":
        return f'"op": "{_OPS.get(str(place[0]), "readallproperties")}", or another operation'
    if place == ("forms",):
        return '"forms": [{"href": "https://...", "op": "readallproperties"}]'
    return _SAMPLES.get(last, "an entry")


def _name(fault: Fault) -> str:
    last = fault.place[-1] if fault.place else "the description"
    return f"entry {last}" if isinstance(last, int) else f"{last}"


def _context(fault: Fault) -> Finding:
    value = fault.value.get("@context") if is_object(fault.value) else fault.value
    first = value[0] if is_array(value) and value else value
    if value is None:
        what = "is missing"
    elif first in (TD_CONTEXT_URI, OLD_TD_CONTEXT_URI):
        what = "holds something that is neither a URI nor an object of prefixes"
    else:
        what = "does not begin with that of TD 1.1"
    return Finding(("@context",), f"@context {what}", f"write {_SAMPLES['@context']}", tolerated=True)


def _missing(fault: Fault) -> tuple[str, str]:
    name = fault.detail["property"]
    if name == "security" and is_object(fault.value):
        defined = fault.value.get("securityDefinitions")
        first = next(iter(defined), "nosec_sc") if is_object(defined) else "nosec_sc"
        return "security is missing", f'add "security": {shown(first)}, a name in securityDefinitions'
    if name == "op":
        return "op is missing", f"add {_sample((*fault.place, name))}"
    if name == "oneOf" and "securityDefinitions" in fault.place:
        return "a combo scheme combines nothing", 'add "oneOf" or "allOf" with two names or more'
    return f"{name} is missing", f"add {_SAMPLES.get(name, f'a member {name!r}')}"


def _type(fault: Fault) -> tuple[str, str]:
    expected = " or ".join(_KINDS[each] for each in fault.detail["types"])
    return _wrong_kind(fault, expected)


def _wrong_kind(fault: Fault, expected: str) -> tuple[str, str]:
    message = f"{_name(fault)} must be {expected}, is {kind_of(fault.value)}"
    if fault.place[-1:] == ("type",):
        return message, 'write one of the seven types; for alternatives use "oneOf"'
    return message, f"write {expected} instead of {shown(fault.value)}"


def _alternatives(fault: Fault) -> tuple[str, str]:
    tried: list[Fault] = fault.detail["tried"]
    if "securityDefinitions" in fault.place and is_object(fault.value):
        scheme = fault.value.get("scheme")
        hint = near(scheme, SCHEMES) if isinstance(scheme, str) else ""
        return (
            f"unknown security scheme {shown(scheme)}{hint}",
            f"use one of {', '.join(SCHEMES)}, or prefix:name",
        )
    types = [each for fault in tried if fault.word == "type" for each in fault.detail["types"]]
    expected = " or ".join(_KINDS[each] for each in dict.fromkeys(types))
    return _wrong_kind(fault, expected) if expected else _generic(fault)


def _enum(fault: Fault) -> tuple[str, str]:
    options: list[Any] = fault.detail["options"]
    words = [each for each in options if isinstance(each, str)]
    hint = near(fault.value, words) if isinstance(fault.value, str) else ""
    fix = f"use {', '.join(shown(each) for each in options)}"
    if "op" in fault.place[-2:]:
        return f"{shown(fault.value)} is not an operation of {_subject(fault.place)}{hint}", fix
    return f"{_name(fault)} cannot be {shown(fault.value)}{hint}", fix


def _subject(place: Place) -> str:
    return _SUBJECTS.get(str(place[0]), "the whole thing") if len(place) > 4 else "the whole thing"


def _too_few(fault: Fault) -> tuple[str, str]:
    if fault.value:
        few = f"{_name(fault)} has only {len(fault.value)}, it needs {fault.detail['limit']} or more"
        return few, "add what is missing"
    more = "" if _is_required(fault.place) else ", or leave it out"
    return f"{_name(fault)} is empty", f"write {_sample(fault.place)}{more}"


def _bound(fault: Fault) -> tuple[str, str]:
    above = "more than" if fault.word == "exclusiveMinimum" else "at least"
    expected = f"{above} {fault.detail['limit']}"
    return f"{_name(fault)} must be {expected}, is {shown(fault.value)}", f"write {expected}"


def _format(fault: Fault) -> tuple[str, str]:
    if fault.detail["format"] == "uri":
        return f"{_name(fault)} {shown(fault.value)} is not a URI", 'write one, as in "urn:uuid:..."'
    expected = 'a date and time of RFC 3339, as in "2026-11-20T12:00:00Z"'
    return f"{_name(fault)} {shown(fault.value)} is not a date and time", f"write {expected}"


def _pattern(fault: Fault) -> tuple[str, str]:
    samples = {"sizes": '"16x16"', "hreflang": 'a language tag, as in "en" or "de-AT"'}
    sample = next((samples[str(part)] for part in reversed(fault.place) if part in samples), "another text")
    return f"{_name(fault)} cannot be {shown(fault.value)}", f"write {sample}"


def _not(fault: Fault) -> tuple[str, str]:
    if fault.place[:1] == ("@type",):
        return "this is a Thing Model, not a description", "leave tm:ThingModel out once it is a description"
    if is_object(fault.value) and "sizes" in fault.value:
        return 'only a link with the rel "icon" has sizes', 'add "rel": "icon", or leave sizes out'
    rel = fault.value.get("rel") if is_object(fault.value) else None
    return f"a link cannot have the rel {shown(rel)} here", "use another rel"


def _unique(fault: Fault) -> tuple[str, str]:
    return f"{_name(fault)} has the same value twice", "leave one out"


def _const(fault: Fault) -> tuple[str, str]:
    expected = shown(fault.detail.get("expected_value"))
    return f"{_name(fault)} must be {expected}, is {shown(fault.value)}", f"write {expected}"


def _generic(fault: Fault) -> tuple[str, str]:
    words = re.sub(r"([A-Z])", r" \1", fault.word).lower()
    return f"{_name(fault)} violates the schema of TD 1.1: {words}", f"check {shown(fault.value)}"


_FORMATTERS: Final = {
    "required": _missing,
    "type": _type,
    "alternatives": _alternatives,
    "enum": _enum,
    "const": _const,
    "minItems": _too_few,
    "minProperties": _too_few,
    "minimum": _bound,
    "exclusiveMinimum": _bound,
    "format": _format,
    "pattern": _pattern,
    "not": _not,
    "uniqueItems": _unique,
}
