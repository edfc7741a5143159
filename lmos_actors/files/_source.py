"""Source text of a file, places in it, and mistakes at those places.

A place is an offset into the text; messages show `file:line:column`, both counted from 1. Lines end at LF,
CRLF or CR (YAML 1.2, 5.4), in every format.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from lmos_actors.errors import ConfigError, hint_at

if TYPE_CHECKING:
    from collections.abc import Iterable

DataPath: TypeAlias = tuple[str | int, ...]
"""Path of a value in plain data: the keys and indexes that lead to it; `()` is the root."""

Kind: TypeAlias = Literal["unreadable", "syntax", "shape", "name", "later", "import"]
"""Kind of a mistake: `later` names a feature that is not available yet, `import` is in imported code."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_MAX_SHOWN = 50
_WIDTH = 100


@attrs.frozen
class Mistake:
    """Mistake in a file; `line` and `column` count from 1, and are 0 for the file as a whole."""

    file: str
    line: int
    column: int
    message: str
    kind: Kind = "shape"
    excerpt: str = attrs.field(default="", eq=False)

    @property
    def place(self) -> str:
        """The place in the form that editors understand: `weather.yaml:48:5`."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    @property
    def detail(self) -> str:
        """The message, with the line of the file and a caret below it."""
        return f"{self.message}\n{self.excerpt}" if self.excerpt else self.message

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


class FileError(ConfigError):
    """Invalid file. `mistakes` holds all mistakes found, at least one, in the order of the text."""

    def __init__(self, mistakes: list[Mistake] | tuple[Mistake, ...]) -> None:
        self.mistakes = in_order(mistakes)
        first, *rest = self.mistakes
        texts = [first.detail, *(str(mistake) for mistake in rest[: _MAX_SHOWN - 1])]
        if len(rest) >= _MAX_SHOWN:
            texts.append(f"and {len(rest) - _MAX_SHOWN + 1} more")
        super().__init__("\n".join(texts), first.place)


def in_order(mistakes: list[Mistake] | tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    """Return the mistakes without duplicates, in the order of the text."""
    return tuple(sorted(dict.fromkeys(mistakes), key=lambda m: (m.line, m.column)))


class Source:
    """Text of one file; `name` is its name in messages."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts = [0, *[end.end() for end in _LINE_END.finditer(text)]]

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, counted from 1.

        An offset beyond the end counts as the end.
        """
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column, which are counted from 1."""
        return self._starts[min(line, len(self._starts)) - 1] + column - 1

    def line(self, number: int) -> str:
        """Return the text of one line, without its line end."""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")

    def mistake(self, start: int, message: str, kind: Kind = "shape", end: int | None = None) -> Mistake:
        """Return a mistake at an offset; the carets reach to `end` if that is on the same line."""
        line, column = self.line_and_column(start)
        text = self.line(line)
        width = min((end or start) - start, len(text) - column + 1)
        cut = max(0, column - _WIDTH // 2) if len(text) > _WIDTH else 0
        shown = "".join(c if c.isprintable() else " " for c in text[cut : cut + _WIDTH])
        caret = " " * (column - 1 - cut) + "^" * max(1, min(width, _WIDTH - column + 1 + cut))
        excerpt = f"{line:>5} | {shown}\n      | {caret}"
        return Mistake(self.name, line, column, message, kind, excerpt)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word that names the nearest known word.

    All known words are listed if they are few, or if none is near.
    """
    words = list(known)
    hint = hint_at(word, words, '"')
    listed = words and (len(words) <= 8 or not hint)
    return f"{hint} (known: {', '.join(words)})" if listed else hint
