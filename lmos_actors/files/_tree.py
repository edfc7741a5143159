"""Plain data together with where each key and value stands in the text: what the three readers give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

import attrs

from ._source import DataPath, Mistake

if TYPE_CHECKING:
    from ._source import Kind, Source

DEEPEST: Final = 64
LONGEST_NUMBER: Final = 1_000


class Unreadable(Exception):
    """The text is not in its format at all; `start` is an offset. Becomes a mistake at the reader's edge."""

    def __init__(self, start: int, message: str, end: int | None = None) -> None:
        self.start = start
        self.end = end
        self.message = message
        super().__init__(message)


@attrs.frozen
class Note:
    """A warning: nothing is wrong, but somebody may read the file differently."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@attrs.define(eq=False)
class Tree:
    """`values` and `keys` give start and end offsets by path; `mistakes` are those that reading survived."""

    source: Source
    data: object = None
    values: dict[DataPath, tuple[int, int]] = attrs.Factory(dict[DataPath, tuple[int, int]])
    keys: dict[DataPath, tuple[int, int]] = attrs.Factory(dict[DataPath, tuple[int, int]])
    mistakes: list[Mistake] = attrs.Factory(list[Mistake])
    notes: list[Note] = attrs.Factory(list[Note])

    def wrong(self, start: int, message: str, end: int | None = None, kind: Kind = "syntax") -> None:
        """Record a mistake at an offset."""
        self.mistakes.append(self.source.mistake(start, message, kind, end))

    def note(self, start: int, message: str) -> None:
        """Record a warning at an offset."""
        self.notes.append(Note(self.source.name, *self.source.line_and_column(start), message))

    def key(self, path: DataPath, start: int, end: int) -> DataPath:
        """Record where a key stands; a mistake when it stands there twice. Returns the path for its value."""
        if path in self.keys:
            line, _ = self.source.line_and_column(self.keys[path][0])
            self.wrong(start, f'key "{path[-1]}" is given twice, first on line {line}', end)
            return (*path[:-1], f"{path[-1]} again at {start}")
        self.keys[path] = (start, end)
        return path

    def integer(self, text: str, start: int, base: int = 10) -> int:
        """Read a whole number; a mistake, and 0, when it has too many digits."""
        if len(text) > LONGEST_NUMBER:
            self.wrong(start, f"a number of more than {LONGEST_NUMBER} digits", start + len(text))
            return 0
        return int(text, base)

    def number(self, text: str, start: int) -> float:
        """Read a number; a mistake when it is too large to be finite."""
        value = float(text)
        if value - value != 0:
            self.wrong(start, f"{text[:40]} is not a finite number", start + len(text))
        return value

    def text(self, value: str, start: int) -> str:
        """Return text back; a mistake when an escape in it made half of a surrogate pair."""
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            self.wrong(start, "half of a surrogate pair is not a character")
            return ""
        return value


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether plain data is a mapping."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether plain data is a list."""
    return isinstance(value, list)


def mapped(value: object) -> dict[str, Any]:
    """Return plain data that should be a mapping: empty if it is none."""
    return value if is_mapping(value) else {}


def listed(value: object) -> list[Any]:
    """Return plain data that should be a list: empty if it is none."""
    return value if is_list(value) else []


def inside(value: object) -> list[tuple[str | int, Any]]:
    """Return what plain data holds, each with its key or index."""
    return [*mapped(value).items(), *enumerate(listed(value))]


def too_deep(start: int) -> Unreadable:
    """Make the refusal for data nested too deeply."""
    return Unreadable(start, f"nested more than {DEEPEST} deep")
