"""TOML reader with places: `tomllib` validates the text, and a second walk finds the places.

`tomllib` keeps no places. The second walk (`_Places`) runs only over text that `tomllib` has accepted, so it
can assume valid syntax and skip values by simple patterns. Possessive quantifiers (`*+`) keep its patterns
linear on hostile text. Two inputs on which `tomllib` itself is slow or recurses are refused first: keys of
very many parts, and deep nesting. Values that JSON lacks (dates, times, infinities) are mistakes, as a file
must mean the same in all three formats.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from typing import TYPE_CHECKING, Any

from ._tree import MAX_DEPTH, MAX_DIGITS, Tree, Unreadable, inside, too_deep

if TYPE_CHECKING:
    from ._source import DataPath, Source

_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*+")
_TEXT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}|\'\'\'(?:[^\']|\'(?!\'\'))*+\'{3,5}'
    r'|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'',
    re.DOTALL,
)
_PART = re.compile(r'[ \t]*("(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|[\w-]+)[ \t]*(\.?)')
_BARE = re.compile(r"[^,\]}#\r\n]*")
_AT = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
# tomllib takes quadratic time for keys of very many dotted parts
_MANY_PARTS = re.compile(
    r'(?<![\w"\'-])(?:(?:[\w-]++|"[^"\n]*+"|\'[^\'\n]*+\')[ \t]*+\.[ \t]*+)' f"{{{MAX_DEPTH}}}"
)
_LONG_NUMBER = re.compile(rf"(?<![\w.])[-+]?[0-9_]{{{MAX_DIGITS}}}", re.ASCII)


def read_toml(source: Source) -> Tree:
    """Return the tree of one TOML document, including non-fatal mistakes. Raises Unreadable."""
    text = source.text
    if not _GAP.sub("", text, count=1):
        raise Unreadable(0, "the file is empty")
    if deep := _MANY_PARTS.search(text):
        raise too_deep(deep.start())
    tree = Tree(source)
    try:
        tree.data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        known = _AT.fullmatch(str(error))
        if known is None:
            raise Unreadable(0, str(error)) from None
        start = source.offset(int(known[2]), int(known[3])) if known[2] else len(text)
        raise Unreadable(start, known[1]) from None
    except ValueError:
        found = _LONG_NUMBER.search(text)
        raise Unreadable(found.start() if found else 0, "a number of too many digits") from None
    except RecursionError:
        raise too_deep(0) from None
    level: list[Any] = [tree.data]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level for _, inner in inside(outer)]
    if level:
        raise too_deep(0)
    _Places(tree).document()
    _check(tree, tree.data, ())
    return tree


def _check(tree: Tree, value: object, path: DataPath) -> None:
    """Record mistakes for values that only TOML has: dates, times, infinities, huge integers."""
    start, end = tree.values.get(path, (0, 0))
    for key, inner in inside(value):
        _check(tree, inner, (*path, key))
    if isinstance(value, (datetime.date, datetime.time)):
        tree.add_mistake(start, "write dates and times as text, in quotes", end)
    elif isinstance(value, float) and value - value != 0:
        tree.add_mistake(start, "not a finite number", end)
    elif isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        tree.add_mistake(start, f"a number of more than {MAX_DIGITS} digits", end)


class _Places:
    """A walk over TOML that tomllib has accepted; it records the places."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.all = tree.source.text
        self.at = 0
        self.tables: dict[DataPath, int] = {}

    def gap(self) -> str:
        found = _GAP.match(self.all, self.at)
        self.at = found.end() if found else self.at
        return self.all[self.at : self.at + 1]

    def document(self) -> None:
        self.tree.values[()] = (0, len(self.all))
        table: DataPath = ()
        while mark := self.gap():
            if mark == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> DataPath:
        start = self.at
        many = self.all.startswith("[[", start)
        self.at += 2 if many else 1
        path = self._key((), last_is_table=many)
        self.at = self.all.index("]", self.at) + (2 if many else 1)
        if many:
            self.tables[path] = self.tables.get(path, -1) + 1
            self.tree.values.setdefault(path, (start, self.at))
            path = (*path, self.tables[path])
        self.tree.values[path] = (start, self.at)
        return path

    def _key(self, table: DataPath, *, last_is_table: bool = False) -> DataPath:
        """Return the path of a dotted key; a part that names an array of tables means its last table."""
        path: list[str | int] = list(table)
        more = True
        while more:
            found = _PART.match(self.all, self.at)
            if found is None:
                raise Unreadable(self.at, "not a TOML key")
            self.at = found.end()
            more = found[2] == "."
            part = found[1]
            if part[0] == "'":
                part = part[1:-1]
            elif part[0] == '"':
                part = str(tomllib.loads(f"k={part}")["k"])
            path.append(part)
            here = tuple(path)
            self.tree.keys.setdefault(here, found.span(1))
            self.tree.values.setdefault(here, found.span(1))
            if here in self.tables and (more or not last_is_table):
                path.append(self.tables[here])
        return tuple(path)

    def _pair(self, table: DataPath) -> None:
        path = self._key(table)
        self.at = self.all.index("=", self.at) + 1
        self._value(path)

    def _value(self, path: DataPath) -> None:
        mark = self.gap()
        start = self.at
        if mark == "[":
            self._array(path)
        elif mark == "{":
            self._inline(path)
        else:
            found = _TEXT.match(self.all, start) or _BARE.match(self.all, start)
            self.at = found.end() if found else start
        self.tree.values[path] = (start, self.at)

    def _array(self, path: DataPath) -> None:
        self.at += 1
        index = 0
        while self.gap() != "]":
            self._value((*path, index))
            index += 1
            if self.gap() == ",":
                self.at += 1
        self.at += 1

    def _inline(self, path: DataPath) -> None:
        self.at += 1
        while self.gap() != "}":
            self._pair(path)
            if self.gap() == ",":
                self.at += 1
        self.at += 1
