"""Messages for YAML syntax errors that name the mistake and how to correct it.

The parsers report what their grammar expected at the place where they gave up, which is often after the
mistake. For common mistakes (a missing colon, quotes or a bracket, a tab) this file finds the mistake itself.
Matching is by fragments of the messages of PyYAML and of libyaml; an unknown message is shown unchanged.
"""

from __future__ import annotations

from typing import Any, Final

from ._tree import Unreadable

_CANNOT_START: Final = {
    "@": "put text that begins with @ in quotes",
    "`": "put text that begins with ` in quotes",
    "%": "put text that begins with % in quotes",
}

_UNEXPECTED: Final = ("did not find expected", "expected <", "expected '", "expected the node")


def syntax_error_of(text: str, error: Any) -> Unreadable:
    """Return the error to show for a parser's error (a `yaml.MarkedYAMLError`)."""
    mark = error.problem_mark or error.context_mark
    start = int(mark.index) if mark else 0
    problem, begun = error.problem or "not YAML", error.context_mark or mark
    first = text[start : start + 1]
    if "cannot start any token" in problem and first in _CANNOT_START:
        return Unreadable(start, _CANNOT_START[first])
    if problem.startswith("expected") and "block scalar" in (error.context or ""):
        return line_goes_on(text, int(begun.index))
    if first == "\t":
        return tab_indents(start)
    if problem == "found unexpected ':'":
        return space_missing(":", start)
    if "mapping values are not allowed" in problem:
        return _second_colon(text, start)
    if "could not find expected ':'" in problem:
        return _no_colon(text, int(begun.index))
    if "quoted scalar" in (error.context or "") and "end of stream" in problem:
        return Unreadable(int(begun.index), "this quote is not closed", int(begun.index) + 1)
    if problem.startswith(_UNEXPECTED):
        return _unexpected(text, start, f"{problem} {error.context}", begun.line + 1)
    return Unreadable(start, f"{problem}, {error.context}" if error.context else problem)


def tab_indents(start: int) -> Unreadable:
    """Return the error for a tab in indentation."""
    return Unreadable(start, "a tab cannot indent YAML, use spaces", start + 1)


def space_missing(sign: str, start: int) -> Unreadable:
    """Return the error for punctuation in brackets that is followed by text without a space."""
    return Unreadable(start, f'write a space after "{sign}", or quotes around text that holds it', start + 1)


def line_goes_on(text: str, start: int) -> Unreadable:
    """Return the error for anything but a comment after the `|` or `>` of a text."""
    return Unreadable(start, f'end the line after "{text[start]}", or write " #" before a comment', start + 1)


def _before(text: str, start: int) -> str:
    """Return the text before an offset in its line, without indentation and the dashes of lists."""
    return text[text.rfind("\n", 0, start) + 1 : start].lstrip(" -")


def _second_colon(text: str, start: int) -> Unreadable:
    before = _before(text, start)
    if ": " in before:
        return Unreadable(start, "a second ':' here; put text that holds ': ' in quotes")
    key = start - len(before)
    column = key - text.rfind("\n", 0, key) - 1
    above = text[: key - column].rstrip()
    word = _before(above, len(above))
    alike = len(above) - above.rfind("\n") - 1 - len(word) == column
    if alike and word and ":" not in word:
        return _no_colon(text, len(above) - len(word))
    why = "a key cannot begin here: the line is indented too far, or continues the text above it"
    return Unreadable(key, why, start)


def _no_colon(text: str, start: int) -> Unreadable:
    word = text[start:].split("\n", 1)[0].rstrip()
    shown = word if len(word) <= 40 else f"{word[:39]}…"
    return Unreadable(start, f'":" is missing after "{shown}"', start + len(word))


def _unexpected(text: str, start: int, problem: str, line: int) -> Unreadable:
    rest = text[start:].split("\n", 1)[0]
    if text[max(start - 1, 0) : start + 1] == "${":
        return Unreadable(start - 1, "write $(NAME), with round brackets", start + 1)
    if text[start : start + 1] == ":" and ": " in _before(text, start):
        return Unreadable(
            start, "a second ':' here: a comma is missing before, or quotes around text that holds ': '"
        )
    if "or '}'" in problem or "or ']'" in problem:
        bracket = "}" if "}" in problem else "]"
        return Unreadable(
            start, f'"," or "{bracket}" is missing before this; the bracket was opened on line {line}'
        )
    before = _before(text, start)
    if before.isspace():
        return tab_indents(start - 1)
    if before:
        return Unreadable(start, "the value ends before this; put text that holds quotes in other quotes")
    if rest.startswith("-") and not rest.startswith("- "):
        return Unreadable(start, 'a space is missing after "-"', start + 1)
    kind = "list" if "block collection" in problem else "mapping"
    why = f"this line does not continue the {kind} that begins on line {line}: check its indentation"
    return Unreadable(start, why, start + len(rest.rstrip()))
