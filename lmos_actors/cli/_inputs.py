"""Values from words of a command line: JSON, NAME=VALUE, standard input, files.

Words are read twice: before anything is connected, to find mistakes early, and again with the data schema of
the agent's description, if there is one.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from lmos_actors._core import json_error, read_json as read_text
from lmos_actors.errors import ConfigError, hint_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.transport import Endpoint

MOST_BYTES: Final = 64 << 20
"""Maximum bytes of a file or of the standard input."""

_PAIR: Final = re.compile(r"([^\W\d][\w.-]*)=(.*)\Z", re.DOTALL)
_NUMBER: Final = re.compile(r"-[0-9.]")
_KINDS: Final = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
_ALIKE: Final = {"integer": ("integer", "number")}


@attrs.frozen
class Written:
    """A value as it was written; `name` is its place, such as `INPUT` or `city`."""

    name: str
    text: str
    lenient: bool = False
    file: bool = False

    def value(self, schema: Mapping[str, Any] | None = None) -> Any:
        """Return the value: JSON if it fits the schema, else the text itself if the schema allows text.

        Without a schema the value must be JSON; if `lenient`, a word that is not JSON is a text. Raises
        ConfigError.
        """
        kinds = kinds_of(schema)
        try:
            found = read_json(self.text)
        except ValueError as error:
            if "string" in kinds if kinds is not None else self.lenient:
                return self._as_text()
            self.refuse(error, kinds)
        if kinds is None or "string" not in kinds or not kinds.isdisjoint(kinds_of_value(found)):
            return found
        return self._as_text()

    def check(self) -> None:
        """Raise ConfigError if the value is not JSON."""
        try:
            read_json(self.text)
        except ValueError as error:
            self.refuse(error)

    def _as_text(self) -> str:
        return self.text.removesuffix("\n") if self.file else self.text

    def refuse(self, error: ValueError, kinds: frozenset[str] | None = None) -> NoReturn:
        """Raise ConfigError with the place where the value stops being JSON, and a hint."""
        hint = ""
        if kinds is None and self.text[:1] not in ("", "{", "[", '"'):
            hint = f"; a text is written '{json.dumps(self._as_text()[:40], ensure_ascii=False)}'"
        elif kinds:
            hint = f"; it takes {listed(kinds)}"
        raise ConfigError(f"not JSON, {_place(error, self.text)}{hint}", self.name)


@attrs.frozen
class Pairs:
    """An object written member by member, such as `city=Bonn`."""

    members: tuple[Written, ...]

    def value(self, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the object. Raises ConfigError, also for a name that the schema does not have."""
        kinds = kinds_of(schema)
        if kinds is not None and "object" not in kinds:
            raise ConfigError(
                f"the action takes no parameters by name, but {listed(kinds)}", self.members[0].name
            )
        known: Mapping[str, Any] = (schema or {}).get("properties") or {}
        for member in self.members:
            if known and member.name not in known:
                hint = hint_at(member.name, known, '"') or f", there is {', '.join(known)}"
                raise ConfigError(f'no parameter "{member.name}"{hint}')
        return {each.name: each.value(known.get(each.name)) for each in self.members}


def input_of(words: Sequence[str], options: Sequence[str] = ()) -> Written | Pairs | None:
    """Return the input of an action, None for no input. Raises ConfigError."""
    for word in words:
        check_word(word, options)
    if not words:
        return None
    pairs = [_PAIR.match(word) for word in words]
    found = [pair for pair in pairs if pair is not None]
    if len(found) == len(words):
        return _paired([Written(pair[1], pair[2], lenient=True) for pair in found])
    if len(words) > 1:
        odd = words[pairs.index(None)]
        raise ConfigError(f'"{odd}" is not NAME=VALUE; JSON is one word: quote it', "INPUT")
    written = written_in(words[0], "INPUT")
    if written.text.lstrip()[:1] in ("{", "["):
        written.check()
    return written


def written_in(word: str, name: str, options: Sequence[str] = ()) -> Written:
    """Read a word: `-` is the standard input, `@file` a file, any other word the text. Raises ConfigError."""
    check_word(word, options)
    if word == "-":
        text = _text_of(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")
        return Written("standard input", text, file=True)
    if word.startswith("@"):
        try:
            with open(word[1:], "rb") as file:
                return Written(word[1:], _text_of(file.read(MOST_BYTES + 1), word[1:]), file=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot be read: {getattr(error, 'strerror', error)}", word[1:]) from None
    return Written(name, word)


def check_word(word: str, options: Sequence[str]) -> None:
    """Raise ConfigError for a word that looks like an option but is none."""
    if word.startswith("-") and word != "-" and not _NUMBER.match(word):
        raise ConfigError(f'no option "{word}"' + hint_at(word, options, '"'))


def read_json(text: str) -> Any:
    """Read JSON by RFC 8259, if it is unambiguous. Raises ValueError."""
    try:
        json.loads(text, parse_constant=_no_number)  # whose errors have a place
        return read_text(text)
    except json.JSONDecodeError as error:
        raise json_error(error) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def kinds_of(schema: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the JSON types that a data schema allows; None if it allows any, or does not say."""
    if not schema:
        return None
    for word in ("oneOf", "anyOf"):
        if word in schema:
            parts = [kinds_of(part) for part in schema[word]]
            known = [part for part in parts if part is not None]
            return frozenset(kind for part in known for kind in part) if len(known) == len(parts) else None
    if "type" in schema:
        named = schema["type"]
        return frozenset([named] if isinstance(named, str) else named)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return None if values is None else frozenset(kind for each in values for kind in kinds_of_value(each))


def listed(kinds: frozenset[str]) -> str:
    """Return JSON types as text, for a message about allowed values."""
    return " or ".join(sorted(kinds))


def kinds_of_value(value: Any) -> tuple[str, ...]:
    """Return the JSON types of a value."""
    kind = next((name for tp, name in _KINDS if isinstance(value, tp)), "null")
    return _ALIKE.get(kind, (kind,))


def address_in(text: str, option: str) -> Endpoint:
    """Return the address that HOST:PORT names; a port alone means this machine. Raises ConfigError."""
    from lmos_actors.transport import endpoint_of

    place = f"127.0.0.1:{text}" if text.isdecimal() else text
    try:
        found = endpoint_of(place if "://" in place else f"ws://{place}")
    except ConfigError as error:
        raise ConfigError(f"{text!r} is not HOST:PORT: {error.message}", option) from None
    if "://" not in place and not place.rpartition("/")[0] and not place.rpartition(":")[2].isdecimal():
        raise ConfigError(f"{text!r} is not HOST:PORT: it has no port", option)
    return found


def _paired(members: list[Written]) -> Pairs:
    seen: dict[str, Written] = {}
    for member in members:
        if member.name in seen:
            raise ConfigError("is given twice", member.name)
        seen[member.name] = member
    return Pairs(tuple(members))


def _text_of(data: bytes, name: str) -> str:
    if len(data) > MOST_BYTES:
        raise ConfigError(f"has more than {MOST_BYTES >> 20} MiB", name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 at byte {error.start + 1}", name) from None


def _place(error: ValueError, text: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    line = f"line {error.lineno}, " if "\n" in text.rstrip("\n") else ""
    what = error.msg[:1].lower() + error.msg[1:]
    return f"{line}column {error.colno}: {what}"
