"""Document: a file as plain data, with the place of everything in it."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lmos_actors.errors import ConfigError, hint_at

from ._json import read_json
from ._source import FileError, Mistake, Source
from ._tree import Note, Tree, Unreadable
from ._units import Size
from ._yaml import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._source import DataPath, Kind

Format: TypeAlias = Literal["yaml", "json", "toml"]

MAX_BYTES: Final = 1 << 20
"""Limit of a file's bytes, unless `LIMIT_VARIABLE` sets another."""

LIMIT_VARIABLE: Final = "LMOS_ACTORS_MAX_FILE"
"""Environment variable with another limit, such as 16MiB."""

_SUFFIXES: Final[dict[str, Format]] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonld": "json",
    ".toml": "toml",
}
_NO_YAML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")


class Document:
    """Plain data (`dict`, `list`, `str`, `int`, `float`, `bool`, `None`) with the place of each part.

    `mistakes` has the mistakes that did not stop the reader, such as a repeated key or an anchor; `decode`
    reports them together with its own. `notes` lists warnings.
    """

    def __init__(
        self,
        tree: Tree,
        path: Path | None = None,
        parts: Mapping[str, tuple[Document, DataPath]] | None = None,
    ) -> None:
        self._tree = tree
        self._parts = parts or {}
        self.path = path
        self.name = tree.source.name
        self.data = tree.data
        self.mistakes: tuple[Mistake, ...] = tuple(tree.mistakes)
        self.notes: tuple[Note, ...] = tuple(tree.notes)

    @property
    def text(self) -> str:
        """The text of the file."""
        return self._tree.source.text

    def with_parts(self, parts: Mapping[str, tuple[Document, DataPath]]) -> Document:
        """Return this document with further top-level keys, each taken from a path in another document.

        Mistakes, notes and places below such a key come from the other document. `data` does not contain
        these keys.
        """
        return Document(self._tree, self.path, parts)

    def _elsewhere(self, path: DataPath) -> tuple[Document, DataPath] | None:
        """Return the other document to which a path leads, and the path there; None for any other path."""
        found = self._parts.get(str(path[0])) if path else None
        return None if found is None else (found[0], (*found[1], *path[1:]))

    def span(self, path: DataPath, *, key: bool = False) -> tuple[int, int]:
        """Return the start and end offsets of a value or its key, or of the nearest known enclosing part."""
        for size in range(len(path), -1, -1):
            part = path[:size]
            table = (
                self._tree.keys
                if (key or size < len(path)) and part in self._tree.keys
                else self._tree.values
            )
            if part in table:
                return table[part]
        return 0, 0

    def mistake(self, path: DataPath, message: str, kind: Kind = "shape", *, key: bool = False) -> Mistake:
        """Return a mistake at a value, or at its key."""
        other = self._elsewhere(path)
        if other is not None:
            return other[0].mistake(other[1], message, kind, key=key)
        start, end = self.span(path, key=key)
        return self._tree.source.mistake(start, message, kind, end)

    def mistake_in(self, path: DataPath, part: str, message: str, kind: Kind = "shape") -> Mistake:
        """Return a mistake at the first occurrence of `part` inside the text value at `path`."""
        other = self._elsewhere(path)
        if other is not None:
            return other[0].mistake_in(other[1], part, message, kind)
        start, end = self.span(path)
        found = self._tree.source.text.find(part, start, max(end, start))
        if found < 0:
            return self._tree.source.mistake(start, message, kind, end)
        return self._tree.source.mistake(found, message, kind, found + len(part))

    def mistake_at(
        self, path: DataPath, start: int, end: int, text: str, message: str, kind: Kind = "name"
    ) -> Mistake:
        """Return a mistake at characters `start` to `end` of the text value `text` at `path`.

        If the file spells the value with escapes or over several lines, the place is the whole value.
        """
        other = self._elsewhere(path)
        if other is not None:
            return other[0].mistake_at(other[1], start, end, text, message, kind)
        first, last = self.span(path)
        for begin in (first, first + 1):  # plain, or in quotes
            if self._tree.source.text.startswith(text, begin):
                return self._tree.source.mistake(begin + start, message, kind, begin + max(end, start + 1))
        return self._tree.source.mistake(first, message, kind, last)

    def note(self, path: DataPath, message: str, *, key: bool = False) -> Note:
        """Return a warning at a value, or at its key."""
        other = self._elsewhere(path)
        if other is not None:
            return other[0].note(other[1], message, key=key)
        line, column = self._tree.source.line_and_column(self.span(path, key=key)[0])
        return Note(self.name, line, column, message)

    def place(self, path: DataPath, *, key: bool = False) -> str:
        """Return the place of a value, or of its key: `weather.yaml:48:5`."""
        other = self._elsewhere(path)
        if other is not None:
            return other[0].place(other[1], key=key)
        line, column = self._tree.source.line_and_column(self.span(path, key=key)[0])
        return f"{self.name}:{line}:{column}"


def read(path: str | os.PathLike[str], *, limit: int | None = None, copy: Path | None = None) -> Document:
    """Read a YAML, JSON or TOML file of at most `limit` bytes; the suffix decides. Blocks on the disk.

    If `copy` is given, the text is read from that earlier copy of the file. The default limit is the
    environment variable LMOS_ACTORS_MAX_FILE, or 1 MiB. Raises ConfigError if the variable is not a size;
    FileError if the file is missing, unreadable, not a regular file, too large, not UTF-8 (a byte order mark
    is skipped), or not in its format.
    """
    file = Path(path)
    name = os.fspath(path)
    known = _SUFFIXES.get(file.suffix.lower())
    raw = _bytes(copy or file, name, limit)
    if known is None:
        raise _failed(
            name, f"the name ends in {file.suffix or 'nothing'!r}, expected .yaml, .yml, .json or .toml"
        )
    return parse(_text(raw, name), name=name, format=known, path=file)


def read_source(path: str | os.PathLike[str]) -> Source:
    """Return the text of a file in any format, read within the limits of `read`. Raises FileError."""
    file, name = Path(path), os.fspath(path)
    return Source(name, _text(_bytes(file, name, None), name).removeprefix("\ufeff"))


def parse(text: str, *, name: str, format: Format = "yaml", path: Path | None = None) -> Document:
    """Parse a text in memory into a document; `name` is its name in messages. Raises FileError."""
    source = Source(name, text.removeprefix("\ufeff"))
    if format == "yaml" and (strange := _NO_YAML.search(source.text)):
        raise FileError(
            [source.mistake(strange.start(), f"the character {strange[0]!a} is not allowed", "syntax")]
        )
    reader: Callable[[Source], Tree] = read_json if format == "json" else read_yaml
    if format == "toml":
        from ._toml import read_toml  # few files are TOML

        reader = read_toml
    try:
        return Document(reader(source), path)
    except Unreadable as error:
        raise FileError([source.mistake(error.start, error.message, "syntax", error.end)]) from None


def _failed(name: str, message: str) -> FileError:
    return FileError([Mistake(name, 0, 0, message, "unreadable")])


def _bytes(file: Path, name: str, own: int | None) -> bytes:
    limit = _limit() if own is None else own
    try:
        # checked before opening: a pipe could block forever, a device never end
        if not stat.S_ISREG(file.stat().st_mode):
            raise _failed(name, "is a directory" if file.is_dir() else "is not a regular file")
        with file.open("rb") as stream:
            raw = stream.read(limit + 1)
    except FileNotFoundError:
        names: list[str] = []
        with suppress(OSError):
            names = [entry.name for entry in os.scandir(file.parent)]
        hint = hint_at(file.name, names, '"')
        raise _failed(name, f"no such file{hint}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _failed(name, f"cannot be read: {reason or type(error).__name__}") from None
    if len(raw) > limit:
        enough = Size(((file.stat().st_size >> 20) + 1) << 20)
        way = f"; {LIMIT_VARIABLE}={enough} in the environment allows it" if own is None else ""
        raise _failed(name, f"is larger than {Size(limit)}{way}")
    return raw


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE)
    try:
        return MAX_BYTES if text is None else Size.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), LIMIT_VARIABLE) from None


def _text(raw: bytes, name: str) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _failed(name, "is UTF-16 or UTF-32 text, save it as UTF-8")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        good = Source(name, raw[: error.start].decode("utf-8"))
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8, save the file as UTF-8"
        raise FileError([good.mistake(len(good.text), message, "syntax")]) from None
