"""Tree of plain data with the place of each key and value: the common result of the three readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import attrs

from ._source import DataPath, Mistake

if TYPE_CHECKING:
    from ._source import Kind, Source

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1_000


class Unreadable(Exception):
    """Raised for text that is not in its format; `start` is an offset.

    `parse` converts this error to a FileError.
    """

    def __init__(self, start: int, message: str, end: int | None = None) -> None:
        self.start = start
        self.end = end
        self.message = message
        super().__init__(message)


@attrs.frozen
class Note:
    """Warning about valid text that other tools read differently."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@attrs.define(eq=False)
class Tree:
    """Plain data, with the offsets of values and keys by path.

    `mistakes` has the mistakes that did not stop the reader.
    """

    source: Source
    data: object = None
    values: dict[DataPath, tuple[int, int]] = attrs.Factory(dict[DataPath, tuple[int, int]])
    keys: dict[DataPath, tuple[int, int]] = attrs.Factory(dict[DataPath, tuple[int, int]])
    mistakes: list[Mistake] = attrs.Factory(list[Mistake])
    notes: list[Note] = attrs.Factory(list[Note])

    def add_mistake(self, start: int, message: str, end: int | None = None, kind: Kind = "syntax") -> None:
        """Record a mistake at an offset."""
        self.mistakes.append(self.source.mistake(start, message, kind, end))

    def note(self, start: int, message: str) -> None:
        """Record a warning at an offset."""
        self.notes.append(Note(self.source.name, *self.source.line_and_column(start), message))

    def repeated(self, path: DataPath, start: int, end: int) -> DataPath:
        """Record a mistake for a repeated key. Return a different path under which to store its value."""
        line, _ = self.source.line_and_column(self.keys[path][0])
        self.add_mistake(start, f'key "{path[-1]}" is given twice, first on line {line}', end)
        return (*path[:-1], f"{path[-1]} again at {start}")

    def integer(self, text: str, start: int, base: int = 10) -> int:
        """Parse an integer. If it has too many digits, record a mistake and return 0.

        The number of digits is limited because `int` takes quadratic time.
        """
        if len(text) > MAX_DIGITS:
            self.add_mistake(start, f"a number of more than {MAX_DIGITS} digits", start + len(text))
            return 0
        return int(text, base)

    def number(self, text: str, start: int) -> float:
        """Parse a number; record a mistake if it is too large to be finite."""
        value = float(text)
        if value - value != 0:
            self.add_mistake(start, f"{text[:40]} is not a finite number", start + len(text))
        return value

    def text(self, value: str, start: int) -> str:
        """Return a text; if it has half of a surrogate pair, record a mistake and return "" instead."""
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            self.add_mistake(start, "half of a surrogate pair is not a character")
            return ""
        return value


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether plain data is a mapping."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether plain data is a list."""
    return isinstance(value, list)


def mapped(value: object) -> dict[str, Any]:
    """Return `value` if it is a mapping, otherwise an empty mapping."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Return `value` if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def inside(value: object) -> list[tuple[str | int, Any]]:
    """Return the parts of plain data, each with its key or index."""
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).items())
    return list(enumerate(listed(value)))


def too_deep(start: int) -> Unreadable:
    """Return the error for data that is nested too deeply."""
    return Unreadable(start, f"nested more than {MAX_DEPTH} deep")
