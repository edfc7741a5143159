"""Checks that reject YAML which the parsers read differently from YAML 1.2, or from one another.

Both parsers follow YAML 1.1, and accept some texts that are not YAML. This file compares their events with
the text: what is between two scalars (`_between`), how a scalar is written, and how far lines are indented.
Lines that begin with a closing bracket may be indented less than YAML 1.2 demands, as all parsers read them
alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from ._tree import Unreadable
from ._yaml_errors import line_goes_on, space_missing, tab_indents

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")
"""Line ends of YAML 1.1, which are ordinary characters in YAML 1.2."""
_DIRECTIVE: Final = re.compile(r"(?:[ \t]*(?:#.*)?[\r\n]|%YAML +1\.2 *(?: #.*)?[\r\n])*+(?=%)")
_SIGN: Final = re.compile(r"#[^\r\n]*|(?<![^\r\n]) *\t|[&!][^\s,\[\]{}]*|[?:,\[\]{}]")
_NOTED: Final = re.compile(r"[#\t]")
"""What counts between two scalars outside of brackets."""
_CLOSED: Final = ('"', "]", "}")
"""Last signs after which a ":" in brackets needs no space behind it."""
_HEADER: Final = re.compile(r"[|>]([-+0-9]*)(?: +#[^\r\n]*| *)(?=[\r\n]|\Z)")
_BLANK_LINES: Final = re.compile(r"[^\r\n]*(?:[\r\n] *(?=[\r\n]|\Z))*[\r\n]( *)(?=([^ \r\n]))")
"""The first line of a block scalar and blank lines below, then the indentation of the next line."""
_NEXT_LINE: Final = re.compile(r"[\r\n]( *)(?=([^ \r\n]))")


def checked(text: str, events: Iterator[Any]) -> Iterator[Any]:
    """Return the checked events. Raise Unreadable where YAML 1.2 reads the text differently or not at all."""
    if strange := _LINE_ENDS.search(text):
        at, name = strange.start(), {"\x85": "N", "\u2028": "L", "\u2029": "P"}[strange[0]]
        raise Unreadable(
            at, f'{strange[0]!a} ends a line for some YAML tools: write "\\{name}", in double quotes'
        )
    if directive := _DIRECTIVE.match(text):
        raise Unreadable(directive.end(), "YAML directives other than %YAML 1.2 are not supported")
    return _Checks(text).of(events)


class _Checks:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        """Offset up to which the text is checked."""
        self.flow = 0
        self.columns = [-1]
        """Columns of the enclosing block lists and mappings."""
        self.root = 0
        """Start of the outermost list or mapping in brackets."""
        self.last = ""
        """The last sign, `"` for a quoted text, nothing for other text."""

    def of(self, events: Iterator[Any]) -> Iterator[Any]:
        for event in events:
            first, last = event.start_mark, event.end_mark
            start, end = first.index, last.index
            if not isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
                self._structure(event, start, end)
                yield event
                continue
            if self.flow or _NOTED.search(self.text, self.at, start):
                self._between(start)
            else:
                self.last = ""
            self.at = max(self.at, end)
            if isinstance(event, yaml.ScalarEvent) and start < end:
                self.last = '"' if event.style in ("'", '"') else ""
                if event.style in ("|", ">"):
                    if self.text[start] == event.style:  # not an anchor or tag, which are refused
                        self._block(event, start)
                elif self.last or not self.flow:
                    if last.line > first.line:
                        self._lines(start, end)
                elif event.value == "-":
                    raise Unreadable(start, 'put "-" in quotes', end)
                elif (colon := self.text.find(":?", start, end)) >= 0:
                    raise space_missing(":", colon)
            yield event

    def _structure(self, event: Any, start: int, end: int) -> None:
        """Check the text up to the start or end of the stream, the document, a list or a mapping."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.at = end
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.flow_style:
                self.root = self.root if self.flow else start
                self.flow += 1
            else:
                mark: Any = event.start_mark  # which the stubs take for optional
                self.columns.append(mark.column)
        elif isinstance(event, yaml.CollectionEndEvent) and not self.flow:
            self.columns.pop()
        elif isinstance(event, yaml.CollectionEndEvent):
            self._between(end)
            self.flow -= 1
            if not self.flow:
                self._lines(self.root, end, "#]}")
        else:
            self._between(start)

    def _between(self, end: int) -> None:
        """Check comments and punctuation up to a scalar or a closing bracket."""
        for found in _SIGN.finditer(self.text, self.at, end):
            at, sign = found.start(), found[0][0]
            if sign == "#" and self.text[at - 1 : at].strip():
                raise Unreadable(at, "a space is missing before the # of a comment")
            if sign in " \t" and not self.flow:
                raise tab_indents(found.end() - 1)
            close = self.flow and self.text[at + 1 : at + 2].strip()
            if sign in ",]}" and self.last == "?":
                raise Unreadable(at, 'a key is missing after "?"; put "?" in quotes if text is meant')
            if close and (sign == "?" or (sign == ":" and self.last not in _CLOSED)):
                raise space_missing(sign, at)
            self.last = self.last if sign in "# \t" else sign
        self.at = max(self.at, end)

    def _block(self, event: Any, start: int) -> None:
        if event.start_mark.column <= self.columns[-1]:
            raise Unreadable(start, f'indent "{event.style}" more than the key or dash of this text')
        header = _HEADER.match(self.text, start)
        if header is None:
            raise line_goes_on(self.text, start)
        first = _BLANK_LINES.match(self.text, start)
        if first is None or header[1].strip("-+"):
            return
        if first[2] == "\t":
            raise tab_indents(first.start(2))
        if not event.value.strip() and len(first[1]) > self.columns[-1] and first[2] == "#":
            raise Unreadable(first.start(2), "this comment would be part of the text: begin it below the key")

    def _lines(self, start: int, end: int, anywhere: str = "") -> None:
        """Check that continuation lines of a value are indented, unless they begin with one of `anywhere`."""
        least = self.columns[-1] + 1
        for found in _NEXT_LINE.finditer(self.text, start, end):
            if len(found[1]) < least and found[2] not in anywhere:
                if found[2] == "\t":
                    raise tab_indents(found.end(1))
                why = f"begin this line with {least} or more spaces: it continues the value above"
                raise Unreadable(found.end(1), why)
