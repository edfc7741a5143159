"""YAML text with its comments: every entry with the comments above it, beside it and below it.

PyYAML's events give the place of every key and value; between them are only indicators, comments and blank
lines. So a `#` outside of all scalars begins a comment, and no second YAML grammar is needed. A comment
belongs

- *beside* the last entry that begins or ends on its line,
- *above* the next entry, if it is on a separate line,
- *below* an earlier entry, if it is indented more than the next one: then it ends the block of the earlier
  entry.

The formatter keeps every number and text exactly as written: it moves pieces of the source text, and never
writes a value in another form.
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import yaml

from ._yaml import LOADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._source import DataPath

Style: TypeAlias = Literal["block", "flow", "scalar"]

BLOCK: Final = ("|", ">")
"""Indicators of block scalars."""

_COMMENT: Final = re.compile(r"(?<![^ \t\n])#[^\n]*")
_KEEP: Final = re.compile(r"[|>][0-9]?\+|[|>]\+")


@attrs.define(eq=False)
class Value:
    """A value of a YAML text.

    `raw` is its source text, `text` is its parsed value, and `mark` is the quote or indicator of a scalar.
    """

    style: Style
    start: int
    end: int
    raw: str = ""
    mark: str = ""
    text: str = ""
    entries: list[Entry] = attrs.Factory(list["Entry"])
    is_list: bool = False
    below: list[str] = attrs.Factory(list[str])
    """Comments at the end of a block."""


@attrs.define(eq=False)
class Entry:
    """A pair of a mapping, or an item of a list (`key` is None), with its comments."""

    path: DataPath
    key: Value | None
    value: Value
    start: int
    column: int
    inside: Value
    above: list[str] = attrs.Factory(list[str])
    beside: str = ""
    blank: bool = False
    """Whether a blank line precedes it and its comments above."""


@attrs.define(eq=False)
class Commented:
    """A whole text: its value, and the comments before it; `blank` is whether a blank line follows them."""

    value: Value
    head: list[str]
    blank: bool


def read_commented(text: str, loader: Any = None) -> Commented:
    """Parse a YAML text with its comments.

    The text must be one valid document without anchors, aliases and tags.
    """
    parse: Any = yaml.parse  # untyped in the stubs
    return _Reader(text, parse(text, Loader=loader or LOADER)).read()


class _Reader:
    def __init__(self, text: str, events: Iterator[Any]) -> None:
        self.text = text
        self.events = events
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.scalars: list[Value] = []
        self.entries: list[Entry] = []

    def read(self) -> Commented:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                break
        value = self._value(next(self.events), ())
        return self._attach(value)

    def line(self, offset: int) -> int:
        """Return the line number of an offset, counted from 0."""
        return bisect.bisect_right(self.starts, offset) - 1

    def column(self, offset: int) -> int:
        return offset - self.starts[self.line(offset)]

    # --- values

    def _value(self, event: Any, path: DataPath) -> Value:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, start, end)
        value = Value("flow" if event.flow_style else "block", start, end)
        value.is_list = isinstance(event, yaml.SequenceStartEvent)
        column = event.start_mark.column
        while not isinstance(event := next(self.events), (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            value.entries.append(self._entry(event, path, value, column))
        if value.style == "flow":
            end_mark: Any = event.end_mark
            value.end = end_mark.index
            value.raw = self.text[start : value.end]
        elif value.entries:
            value.end = value.entries[-1].value.end
        return value

    def _entry(self, event: Any, path: DataPath, inside: Value, column: int) -> Entry:
        start = event.start_mark.index
        place = len(self.entries)
        key = None if inside.is_list else self._scalar(event, start, event.end_mark.index)
        name = (*path, len(inside.entries) if key is None else key.text)
        entry = Entry(name, key, inside, start, column if key is None else self.column(start), inside)
        self.entries.insert(place, entry)
        entry.value = self._value(event if key is None else next(self.events), name)
        return entry

    def _scalar(self, event: Any, start: int, end: int) -> Value:
        mark = event.style or ""
        raw = self.text[start:end]
        if mark in BLOCK and not _KEEP.match(raw):
            raw = raw.rstrip()
        value = Value("scalar", start, start + len(raw), raw, mark, event.value)
        self.scalars.append(value)
        return value

    # --- comments

    def _comments(self) -> list[tuple[int, str]]:
        """Return the comments, each with its offset; a comment begins with # outside of all scalars."""
        spans = sorted((scalar.start, scalar.end) for scalar in self.scalars)
        begins = [start for start, _ in spans]
        found: list[tuple[int, str]] = []
        at = 0
        while (match := _COMMENT.search(self.text, at)) is not None:
            place = bisect.bisect_right(begins, match.start()) - 1
            if place >= 0 and match.start() < spans[place][1]:
                at = spans[place][1]
            else:
                at = match.end()
                found.append((match.start(), match[0].rstrip()))
        return found

    def _attach(self, value: Value) -> Commented:
        whole = Commented(value, [], False)
        own: dict[int, tuple[int, str]] = {}
        for offset, text in self._comments():
            line = self.line(offset)
            before = self.text[self.starts[line] : offset]
            entry = self._owner(offset, line) if before.strip() else None
            if entry is None:
                own[line] = (self.column(offset), text)
            else:
                gap = len(before) - len(before.rstrip())
                entry.beside = " " * max(gap, 2) + text
        self._attach_own_lines(whole, own)
        return whole

    def _owner(self, offset: int, line: int) -> Entry | None:
        """Return the entry beside a comment: the last entry that begins or ends on the comment's line."""
        for entry in reversed(self.entries):
            closed = entry.inside.style == "flow" and entry.inside.end <= offset
            if entry.start < offset and not closed:
                lines = (self.line(entry.start), self.line(max(entry.value.end - 1, entry.start)))
                return entry if line in lines else None
        return None

    def _attach_own_lines(self, whole: Commented, own: dict[int, tuple[int, str]]) -> None:
        """Attach comments on separate lines to the entries below or above them."""
        content = self._content()
        used: set[int] = set()
        last = -1
        for number, entry in enumerate(self.entries):
            line = self.line(entry.start)
            if line <= last:
                continue
            gap = self._gap(line, content, own, used)
            last = line
            if number == 0:
                whole.head = _without_blanks([text for _, text in gap])
                whole.blank = bool(gap) and not gap[-1][1]
                continue
            rest = self.text[self.starts[line] :]
            self._distribute(entry, gap, len(rest) - len(rest.lstrip(" ")))
        tail = self._gap(len(self.starts), content, own, used)
        if self.entries:
            self._distribute(None, tail, -1)
        else:
            whole.head = [text for _, text in tail if text]
        for line, (_, text) in own.items():
            if line not in used:  # between a key and its value, or before a closing bracket
                earlier = [entry for entry in self.entries if entry.start < self.starts[line]]
                (earlier[-1].above if earlier else whole.head).append(text)

    def _content(self) -> set[int]:
        """Return the numbers of all lines with scalars; blank lines within a scalar are part of the text."""
        return {
            line
            for scalar in self.scalars
            for line in range(self.line(scalar.start), self.line(max(scalar.end - 1, scalar.start)) + 1)
        }

    def _gap(
        self, line: int, content: set[int], own: dict[int, tuple[int, str]], used: set[int]
    ) -> list[tuple[int, str]]:
        """Return the comments and blank lines ("") above a line, each with its column."""
        found: list[tuple[int, str]] = []
        while line > 0:
            line -= 1
            end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
            text = self.text[self.starts[line] : end].strip()
            if line in content or (text and line not in own):
                break
            used.add(line)
            found.append(own.get(line, (0, "")))
        return found[::-1]

    def _distribute(self, entry: Entry | None, gap: list[tuple[int, str]], indent: int) -> None:
        """Attach the lines above an entry; lines indented more than the entry belong to an earlier one."""
        before = entry.start if entry is not None else len(self.text)
        while any(text for _, text in gap):
            if entry is not None and next(column for column, text in gap if text) <= indent:
                break
            column, text = gap.pop(0)
            if text:  # it goes to the last entry before that begins at most at its column
                earlier = [each for each in self.entries if each.start < before]
                fitting = [each for each in earlier if each.column <= column and each.inside.style == "block"]
                (fitting[-1] if fitting else self.entries[0]).inside.below.append(text)
        if entry is not None and gap:
            entry.blank = not gap[0][1]
            entry.above = _without_blanks([text for _, text in gap])


def _without_blanks(lines: list[str]) -> list[str]:
    """Return lines without blank ones at both ends, and with at most one between comments."""
    while lines and not lines[0]:
        lines = lines[1:]
    found: list[str] = []
    for line in lines:
        if line or (found and found[-1]):
            found.append(line)
    return found[:-1] if found and not found[-1] else found
