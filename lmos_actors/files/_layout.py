"""Formatter of files: keys in order, two spaces a level, quotes only where needed; comments are kept.

The data does not change. The result is read again and compared with the original, and any difference raises
`LayoutError` instead of writing the file. Formatting a formatted text changes nothing: a comment at an odd
place may need a second round, so rounds are repeated until the text is stable.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from ._comments import BLOCK, Entry, Value, read_commented
from ._document import parse
from ._json import read_json
from ._source import Source
from ._tree import inside, is_list, is_mapping
from ._yaml import reads_as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._source import DataPath
    from ._tree import Tree

WIDTH: Final = 110
"""A flow collection over several lines is joined if the line is at most this wide, in characters."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9$/(<_.\u00a1-\ufffd][^\t]*")
_HEADER: Final = re.compile(r"[|>][-+]?([0-9])")


class LayoutError(Exception):
    """Raised if a text cannot be formatted without changing its data; a defect of this module."""


def lay_out_yaml(text: str, orders: Mapping[DataPath, list[str]], loader: Any = None) -> str:
    """Return a YAML text without mistakes in canonical layout. Raises LayoutError.

    `orders` are the ordered keys of mappings, by path.
    """
    data = parse(text, name="").data
    for _ in range(5):
        made = _Layout(orders, loader).document(text)
        if parse(made, name="").data != data:
            raise LayoutError
        if made == text:
            return made
        text = made
    raise LayoutError


def lay_out_json(text: str, orders: Mapping[DataPath, list[str]]) -> str:
    """Return a JSON text without mistakes in canonical layout; scalars stay as written."""
    return _json(read_json(Source("", text)), (), orders, 0) + "\n"


def _json(tree: Tree, path: DataPath, orders: Mapping[DataPath, list[str]], indent: int) -> str:
    text = tree.source.text
    value: Any = tree.data
    for part in path:
        value = value[part]
    keys: list[Any] = [*orders.get(path, [])] or [key for key, _ in inside(value)]
    if not keys:
        raw = text[slice(*tree.values[path])]
        return "".join(raw.split()) if is_mapping(value) or is_list(value) else raw
    lines: list[str] = []
    for key in keys:
        head = f"{text[slice(*tree.keys[(*path, key)])]}: " if is_mapping(value) else ""
        lines.append(" " * (indent + 2) + head + _json(tree, (*path, key), orders, indent + 2))
    begin, end = "{}" if is_mapping(value) else "[]"
    return "\n".join([begin, ",\n".join(lines), " " * indent + end])


class _Layout:
    def __init__(self, orders: Mapping[DataPath, list[str]], loader: Any) -> None:
        self._orders = orders
        self._loader = loader

    def document(self, text: str) -> str:
        whole = read_commented(text, self._loader)
        lines = [*whole.head, *([""] if whole.blank and whole.head else [])]
        if whole.value.style == "block":
            lines += self._block(whole.value, (), 0)
        else:
            lines += self._inline(whole.value, (), 0, "", "")
        return "\n".join(line.rstrip() for line in lines) + "\n"

    # --- blocks

    def _block(self, value: Value, path: DataPath, indent: int) -> list[str]:
        lines: list[str] = []
        for number, entry in enumerate(self._sorted(value, path)):
            made = self._item(entry, indent) if value.is_list else self._pair(entry, indent)
            if number and entry.blank:
                lines.append("")
            lines += [" " * indent + text if text else "" for text in entry.above]
            lines += made
        return [*lines, *(" " * indent + text for text in value.below)]

    def _sorted(self, value: Value, path: DataPath) -> list[Entry]:
        order = self._orders.get(path)
        if value.is_list or order is None:
            return value.entries
        places = {key: place for place, key in enumerate(order)}
        return sorted(value.entries, key=lambda entry: places[_name(entry)])

    def _pair(self, entry: Entry, indent: int) -> list[str]:
        assert entry.key is not None
        head = " " * indent + _scalar(entry.key, flow=False) + ":"
        if entry.value.style == "block":
            below = self._block(entry.value, entry.path, indent + 2)
            return [head + entry.beside, *below]
        return self._inline(entry.value, entry.path, indent, head, entry.beside)

    def _item(self, entry: Entry, indent: int) -> list[str]:
        dash = " " * indent + "-"
        if entry.value.style != "block":
            return self._inline(entry.value, entry.path, indent, dash, entry.beside)
        first = self._sorted(entry.value, entry.path)[:1]
        # comments above the first entry of a block go above its dash
        for inner in first:
            entry.above += inner.above
            inner.above = []
        lines = self._block(entry.value, entry.path, indent + 2)
        return [f"{dash} {lines[0].lstrip()}", *lines[1:]]

    # --- values on the line of a key or a dash

    def _inline(self, value: Value, path: DataPath, indent: int, head: str, beside: str) -> list[str]:
        if value.style == "flow":
            return self._flow(value, path, indent, head, beside)
        if value.mark in BLOCK:
            return _block_scalar(value, indent, head)
        first, *more = _scalar(value, flow=False).split("\n")
        lines = [_after(head, first)]
        lines += [" " * (indent + 2) + line.strip() if line.strip() else "" for line in more]
        return [*lines[:-1], lines[-1].rstrip() + beside]

    def _flow(self, value: Value, path: DataPath, indent: int, head: str, beside: str) -> list[str]:
        line = _after(head, self._one_line(value, path))
        if not _has_comments(value) and ("\n" not in value.raw or len(line) <= WIDTH):
            return [line + beside]
        lines = self._lines(value, path, indent + 2)
        if head.endswith("-"):
            return [f"{head} {lines[0].lstrip()}", *lines[1:-1], lines[-1] + beside]
        return [head, *lines[:-1], lines[-1] + beside]

    def _one_line(self, value: Value, path: DataPath) -> str:
        if value.style == "scalar":
            return _scalar(value, flow=True)
        parts = [self._flow_entry(entry) for entry in self._sorted(value, path)]
        return f"[{', '.join(parts)}]" if value.is_list else f"{{{', '.join(parts)}}}"

    def _flow_entry(self, entry: Entry) -> str:
        inner = self._one_line(entry.value, entry.path)
        if entry.key is None:
            return inner
        return f"{_scalar(entry.key, flow=True)}: {inner}".rstrip()

    def _lines(self, value: Value, path: DataPath, indent: int) -> list[str]:
        """Return the lines of a flow collection with one entry per line."""
        begin, end = "[]" if value.is_list else "{}"
        lines = [" " * indent + begin]
        for entry in self._sorted(value, path):
            lines += [" " * (indent + 2) + text for text in entry.above if text]
            inner = [" " * (indent + 2) + self._flow_entry(entry)]
            if _has_comments(entry.value):
                nested = self._lines(entry.value, entry.path, indent + 2)
                key = f"{_scalar(entry.key, flow=True)}: " if entry.key is not None else ""
                inner = [" " * (indent + 2) + key + nested[0].lstrip(), *nested[1:]]
            lines += [*inner[:-1], inner[-1] + "," + entry.beside]
        return [*lines, " " * indent + end]


def _after(head: str, text: str) -> str:
    return f"{head} {text}" if head else text


def _name(entry: Entry) -> str:
    return entry.key.text if entry.key is not None else ""


def _has_comments(value: Value) -> bool:
    return any(entry.above or entry.beside or _has_comments(entry.value) for entry in value.entries)


def _scalar(value: Value, *, flow: bool) -> str:
    """Return a scalar as text, unquoted if the quotes make no difference."""
    if flow and "\n" in value.raw:
        return json.dumps(value.text, ensure_ascii=False) if value.mark or "\n" in value.text else value.text
    if value.mark not in ("'", '"') or "\n" in value.raw:
        return value.raw
    text = value.text
    plain = bool(_PLAIN.fullmatch(text)) and text.isprintable() and text == text.strip()
    if not plain or text.startswith(("...", "<<")) or text.endswith(":"):
        return value.raw
    if ": " in text or " #" in text or (flow and re.search(r"[ ,?\[\]{}]", text)):
        return value.raw
    return text if reads_as_text(text) else value.raw


def _block_scalar(value: Value, indent: int, head: str) -> list[str]:
    """Return a block scalar, indented for the new column of its key."""
    first, *lines = value.raw.removesuffix("\n").split("\n")
    widths = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    left, to = (widths[0] if widths else 0), indent + 2
    header = _HEADER.match(first)
    if (
        header is not None and header[1] and widths
    ):  # an explicit indentation: further spaces belong to the text
        left, to = 0, 0
    moved = (" " * to + line[left:] if line.strip() else "" for line in lines)
    return [f"{head} {first.rstrip()}", *moved]
