"""Strict JSON reader with places: the data of `json.loads`, and the place of every key and value.

The reader is stricter than `json.loads` where that accepts more than RFC 8259: NaN, Infinity and repeated
keys are mistakes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ._tree import MAX_DEPTH, Tree, Unreadable, too_deep

if TYPE_CHECKING:
    from ._source import DataPath, Source

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?", re.ASCII)
_WORD = re.compile(r"[\w.+-]+")
_WORDS = {"true": True, "false": False, "null": None}


def read_json(source: Source) -> Tree:
    """Return the tree of one JSON text, including non-fatal mistakes. Raises Unreadable."""
    tree = Tree(source)
    reader = _Reader(tree)
    reader.space()
    if reader.at == len(source.text):
        raise Unreadable(0, "the file is empty")
    tree.data = reader.value(())
    reader.space()
    if reader.at < len(source.text):
        raise Unreadable(reader.at, "more text after the end of the JSON value")
    return tree


class _Reader:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.all = tree.source.text
        self.at = 0

    def space(self) -> None:
        found = _SPACE.match(self.all, self.at)
        self.at = found.end() if found else self.at

    def value(self, path: DataPath) -> object:
        start = self.at
        if len(path) > MAX_DEPTH:
            raise too_deep(start)
        first = self.all[start : start + 1]
        if first == "{":
            value: object = self._mapping(path)
        elif first == "[":
            value = self._sequence(path)
        elif first == '"':
            value = self._string()
        else:
            value = self._bare()
        self.tree.values[path] = (start, self.at)
        return value

    def _string(self) -> str:
        found = _STRING.match(self.all, self.at)
        if found is None:
            raise Unreadable(self.at, "this text is not closed, or has a control character or unknown escape")
        start, self.at = self.at, found.end()
        return self.tree.text(str(json.loads(found[0])), start)

    def _bare(self) -> object:
        number = _NUMBER.match(self.all, self.at)
        word = _WORD.match(self.all, self.at)
        written = word[0] if word else self.all[self.at : self.at + 1]
        if number is not None and number[0] == written:
            start, self.at = self.at, number.end()
            whole = number[1] is None and number[2] is None
            return self.tree.integer(written, start) if whole else self.tree.number(written, start)
        if written in _WORDS:
            self.at += len(written)
            return _WORDS[written]
        what = (
            f"{written[:40]!r} is not a JSON value" if written else "the file ends where a value is expected"
        )
        raise Unreadable(self.at, what, self.at + len(written))

    def _more(self, close: str, opened: int) -> bool:
        """Skip a comma or the closing bracket after an item. Return whether another item follows."""
        self.space()
        mark = self.all[self.at : self.at + 1]
        if mark not in (",", close) or not mark:
            line, _ = self.tree.source.line_and_column(opened)
            raise Unreadable(self.at, f"expected ',' or '{close}' (opened on line {line})")
        self.at += 1
        self.space()
        if mark == "," and self.all[self.at : self.at + 1] == close:
            raise Unreadable(self.at, f"a comma before '{close}'")
        return mark == ","

    def _empty(self, close: str) -> bool:
        self.at += 1
        self.space()
        if self.all[self.at : self.at + 1] != close:
            return False
        self.at += 1
        return True

    def _sequence(self, path: DataPath) -> list[object]:
        found: list[object] = []
        opened = self.at
        more = not self._empty("]")
        while more:
            found.append(self.value((*path, len(found))))
            more = self._more("]", opened)
        return found

    def _mapping(self, path: DataPath) -> dict[str, object]:
        found: dict[str, object] = {}
        opened = self.at
        more = not self._empty("}")
        while more:
            start = self.at
            if self.all[start : start + 1] != '"':
                raise Unreadable(start, "put the key in double quotes")
            name = self._string()
            inner = (*path, name)
            if inner in self.tree.keys:
                inner = self.tree.repeated(inner, start, self.at)
            else:
                self.tree.keys[inner] = (start, self.at)
            self.space()
            if self.all[self.at : self.at + 1] != ":":
                raise Unreadable(self.at, f'expected ":" after the key "{name}"')
            self.at += 1
            self.space()
            found.setdefault(name, self.value(inner))
            more = self._more("}", opened)
        return found
