"""Strict YAML reader with places: core schema of YAML 1.2, one document, no anchors, aliases or tags.

Why not `yaml.safe_load`: PyYAML follows YAML 1.1, where `no` is false, `010` is 8, `1:30` is 90 and a date is
an object; it merges `<<`, takes the last of two equal keys, follows aliases, and keeps no places. Here PyYAML
(libyaml where it is built in) only produces events; this file decides what they mean. What this module
guarantees:

- **A value means what YAML 1.2 says.** Where a YAML 1.1 tool would read another value, a note says so and
  asks for quotes (`_YAML_1_1`), as such files also pass through other tools.
- **The data is never larger than the text.** Anchors and aliases are refused, not followed, which excludes
  exponential expansion ("billion laughs"). Depth and digits are bounded (`MAX_DEPTH`, `MAX_DIGITS`).
- **Keys are texts, exactly as written**; a repeated key is a mistake, and reading goes on under another
  path, so that mistakes in both values are found.
- **Every key and value has its offsets.** The marks of both parsers count characters, not bytes.
- **One pass finds many mistakes.** Only syntax errors end the reading, as the parser cannot recover.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from ._tree import MAX_DEPTH, Tree, Unreadable, too_deep
from ._yaml_checks import checked
from ._yaml_errors import syntax_error_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._source import DataPath, Source


class PythonLoader(yaml.SafeLoader):
    """PyYAML's own parser, extended to accept `?` in plain flow text, and tabs, where libyaml does."""

    _in_plain = False

    def scan_plain(self) -> Any:
        self._in_plain = True
        try:
            return super().scan_plain()
        finally:
            self._in_plain = False

    def peek(self, index: int = 0) -> str:
        """Return a character ahead; within plain text, a stand-in for `?` and tab.

        The stand-in steers only the scanner: the text itself keeps the original character.
        """
        scanner: Any = super()  # its methods have no types
        ahead: str = scanner.peek(index)
        return _LIKE.get(ahead, ahead) if self._in_plain else ahead

    def scan_to_next_token(self) -> None:
        """Skip blanks and comments, and tabs where they do not indent."""
        scanner: Any = super()
        scanner.scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            scanner.scan_to_next_token()


_LIKE: Final = {"?": "x", "\t": " "}

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", PythonLoader)
"""Parser of files: libyaml's where it is built in. A file that both take has the same events in both."""

_PLAIN: Final = {"": None, "~": None, "true": True, "false": False}
for _word, _value in (("null", None), ("true", True), ("false", False)):
    _PLAIN.update({_word: _value, _word.capitalize(): _value, _word.upper(): _value})
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# plain scalars that YAML 1.1 reads as something else than YAML 1.2 does
_YAML_1_1: Final = (
    (re.compile(r"(?i:yes|no|on|off|y|n)"), "true or false"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII), "a number in base 60"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?", re.ASCII), "a date"),
    (re.compile(r"[-+]?(?=[0-9_]*_)[0-9][0-9_]*(?:\.[0-9_]*)?", re.ASCII), "a number"),
    (re.compile(r"[-+]?0b[01_]+"), "a binary number"),
    (re.compile(r"[-+]?0[0-7]+"), "an octal number"),
)

_NUMBERS: Final = (_NOT_FINITE, _INTEGER, _OCTAL, _HEX, _FLOAT, *(pattern for pattern, _ in _YAML_1_1))
_MORE_THAN_TEXT: Final = re.compile("|".join(f"(?:{each.pattern})" for each in _NUMBERS))
"""Plain scalars that this reader or YAML 1.1 readers do not read as text, beside those of `_PLAIN`."""


def read_yaml(source: Source, loader: Any = None) -> Tree:
    """Return the tree of one YAML document, including non-fatal mistakes. Raises Unreadable."""
    tree = Tree(source)
    parse: Any = yaml.parse  # untyped in the stubs
    text = source.text if source.text.endswith("\n") else f"{source.text}\n"  # as editors end a file
    try:
        _Reader(tree, checked(text, parse(text, Loader=loader or LOADER))).document()
    except yaml.MarkedYAMLError as error:
        raise syntax_error_of(source.text, error) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise Unreadable(getattr(error, "position", 0), f"not YAML: {error}") from None
    return tree


def reads_as_text(word: str) -> bool:
    """Return whether a plain scalar is read as text, by this reader and by YAML 1.1 readers."""
    return word not in _PLAIN and _MORE_THAN_TEXT.fullmatch(word) is None


class _Reader:
    """Conversion of parser events to a tree."""

    def __init__(self, tree: Tree, events: Iterator[Any]) -> None:
        self.tree = tree
        self.events = events

    def document(self) -> None:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.tree.data = self._node(next(self.events), ())
            elif isinstance(event, yaml.DocumentEndEvent):
                starts = (each for each in self.events if isinstance(each, yaml.DocumentStartEvent))
                second: Any = next(starts, None)
                if second is not None:
                    why = "a file holds one document, here a second one begins"
                    self.tree.add_mistake(second.start_mark.index, why)
                return
        raise Unreadable(0, "the file is empty")

    def _node(self, event: Any, path: DataPath) -> object:
        start, end = event.start_mark.index, event.end_mark.index
        if len(path) > MAX_DEPTH:
            raise too_deep(start)
        self.tree.values[path] = (start, end)
        if isinstance(event, yaml.AliasEvent):
            self.tree.add_mistake(
                start, f"aliases (*{event.anchor}) are not supported, write the value out", end
            )
            return None
        if event.anchor is not None or event.tag is not None:
            self._refuse_anchor_and_tag(event, start)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        text: str = event.value
        if event.style == '"':  # only there escapes stand
            return self.tree.text(text, start)
        if event.style or (text not in _PLAIN and _MORE_THAN_TEXT.fullmatch(text) is None):
            return text
        return self._plain(text, start, end)

    def _refuse_anchor_and_tag(self, event: Any, start: int) -> None:
        if event.anchor is not None:
            self.tree.add_mistake(start, f"anchors (&{event.anchor}) are not supported")
        if event.tag is not None:
            self.tree.add_mistake(start, f"tags ({event.tag}) are not supported")

    def _sequence(self, path: DataPath) -> list[object]:
        found: list[object] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self._node(event, (*path, len(found))))
        return found

    def _mapping(self, path: DataPath) -> dict[str, object]:
        found: dict[str, object] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            start, end = event.start_mark.index, event.end_mark.index
            if not isinstance(event, yaml.ScalarEvent):
                raise Unreadable(start, "a key is text, not a list, mapping or alias", end)
            if event.anchor is not None or event.tag is not None:
                self._refuse_anchor_and_tag(event, start)
            if event.value == "<<" and event.style in (None, ""):
                self.tree.add_mistake(start, "merge keys (<<) are not supported, write the keys out", end)
            name = event.value if event.style != '"' else self.tree.text(event.value, start)
            inner = (*path, name)
            if inner in self.tree.keys:
                inner = self.tree.repeated(inner, start, end)
            else:
                self.tree.keys[inner] = (start, end)
            found.setdefault(name, self._node(next(self.events), inner))
        return found

    def _plain(self, text: str, start: int, end: int) -> object:
        self._warn_of_yaml_1_1(text, start)
        if text in _PLAIN:
            return _PLAIN[text]
        if _NOT_FINITE.fullmatch(text):
            self.tree.add_mistake(start, f"{text} is not a finite number; quote it if text is meant", end)
            return 0.0
        if _INTEGER.fullmatch(text):
            return self.tree.integer(text, start)
        if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            return self.tree.integer(text[2:], start, 8 if text[1] == "o" else 16)
        return self.tree.number(text, start) if _FLOAT.fullmatch(text) else text

    def _warn_of_yaml_1_1(self, text: str, start: int) -> None:
        if len(text) > 40 or not text:
            return
        for pattern, meaning in _YAML_1_1:
            if pattern.fullmatch(text):
                ours = f"the number {int(text)}" if _INTEGER.fullmatch(text) else f'the text "{text}"'
                self.tree.note(start, f"{text} is read as {ours}; YAML 1.1 tools read {meaning}: quote it")
                return
