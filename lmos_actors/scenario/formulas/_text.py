"""Reading of a formula's text: the result is a tree of a few kinds of nodes, in which every name is known."""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
import warnings
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from lmos_actors.files import did_you_mean

Known: TypeAlias = Mapping[str, str | None]
"""The dotted names that a formula may use; with a text, why it may not: `{"state.key": "is secret"}`."""

FUNCTIONS: Final = ("min", "max", "abs", "len", "sum", "any", "all")
NODES: Final = 200
LONGEST: Final = 2_000
DEEPEST: Final = 100

_NUMBERS: Final = ("abs", "len", "sum")
WORDS: Final = {"true": True, "false": False, "null": None}
_SHOWN: Final = 60
_SLIPS: Final = (
    (re.compile(r"&&"), "&&", "and"),
    (re.compile(r"\|\|"), "||", "or"),
    (re.compile(r"!(?!=)"), "!", "not"),
    (re.compile(r"(?<![=!<>])=(?!=)"), "=", "=="),
)


class FormulaProblem(ValueError):
    """The error raised for a formula that cannot be used.

    `start` and `end` delimit the wrong part of its text, in characters.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


def read_formula(text: str, known: Known, *, condition: bool) -> tuple[ast.expr, tuple[str, ...]]:
    """Return a formula's tree, with each dotted name as one `ast.Name`, and the names in the formula.

    Raises FormulaProblem.
    """
    reader = _Reader(text, known)
    tree = reader.read()
    if condition:
        reader.check_condition(tree)
    return tree, tuple(dict.fromkeys(reader.names))


_PLAIN_NODES: Final = (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp)
_NAMING: Final = (ast.Name, ast.Attribute, ast.Subscript)
_ROWS: Final = (ast.List, ast.Tuple)
_CONSTANTS: Final = (bool, int, float, str, type(None))
_REFUSED: Final[dict[type[ast.AST], str]] = {
    ast.Pow: "a power (**)",
    ast.LShift: "a shift (<<)",
    ast.RShift: "a shift (>>)",
    ast.BitAnd: "& (write and)",
    ast.BitOr: "| (write or)",
    ast.BitXor: "^",
    ast.MatMult: "@",
    ast.Invert: "~ (write not)",
    ast.Is: "is (write ==)",
    ast.IsNot: "is not (write !=)",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "an f-string",
    ast.Slice: "a slice",
    ast.Starred: "*",
    ast.Set: "a set",
    ast.Dict: "a mapping",
}


class _Reader:
    """The reader of one formula; the names in the formula are added to `names`."""

    def __init__(self, text: str, known: Known) -> None:
        self.text = text
        self.known = known
        self.names: list[str] = []
        self._lines: list[str] = []

    def read(self) -> ast.expr:
        text = self.text
        if not text.strip():
            raise self._whole("a formula is missing")
        if len(text) > LONGEST:
            raise self._whole(f"a formula has at most {LONGEST} characters, this one {len(text)}")
        for index, letter in enumerate(text):
            if not letter.isprintable() and letter not in "\n\t":
                raise FormulaProblem(f"{letter!a} cannot be part of a formula", index, index + 1)
        # in brackets, so that a formula may go on in the next line
        source = f"({text}\n)"
        self._lines = source.split("\n")
        tree = self._parsed(source)
        self._check_tokens(source)
        nodes = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
        if nodes > NODES:
            raise self._whole(f"a formula has at most {NODES} parts, this one {nodes}")
        if isinstance(tree, _ROWS):
            raise self._at(tree, "a formula is one value, not a list of them")
        return self._node(tree, 0)

    def check_condition(self, tree: ast.expr) -> None:
        number = isinstance(tree, ast.BinOp) or (
            isinstance(tree, ast.UnaryOp) and not isinstance(tree.op, ast.Not)
        )
        call = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _NUMBERS
        if number or call:
            raise self._whole(f"{self._quoted} is a number, not a condition: compare it with something")
        if not self.names:
            raise self._whole(f"{self._quoted} speaks of nothing: it is always the same")

    # --- words

    @property
    def _quoted(self) -> str:
        text = self.text
        return f'"{text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."}"'

    def _whole(self, message: str) -> FormulaProblem:
        return FormulaProblem(message, 0, len(self.text))

    def _at(self, node: ast.expr, message: str) -> FormulaProblem:
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return FormulaProblem(message, self._offset(node.lineno, node.col_offset), end)

    def _offset(self, line: int, column: int) -> int:
        """Convert a position of the parser to an index in the text.

        The parser counts bytes, and includes the bracket added before the text.
        """
        before = sum(len(above) + 1 for above in self._lines[: line - 1])
        here = self._lines[line - 1].encode()[:column].decode()
        return min(max(before + len(here) - 1, 0), len(self.text))

    # --- text

    def _parsed(self, source: str) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> FormulaProblem:
        slips = [f": write {right}, not {wrong}" for found, wrong, right in _SLIPS if found.search(self.text)]
        hint = slips[0] if slips else ""
        if not isinstance(error, SyntaxError) or error.lineno is None or error.offset is None:
            return self._whole(f"{self._quoted} is not a formula{hint}")
        before = sum(len(above) + 1 for above in self._lines[: error.lineno - 1])
        start = min(max(before + error.offset - 2, 0), len(self.text) - 1)
        return FormulaProblem(f"{self._quoted} is not a formula{hint}", start, start + 1)

    def _check_tokens(self, source: str) -> None:
        """Refuse comments, which would hide the rest of a line, and text that closes the added bracket."""
        depth = 0
        last = len(self._lines)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                raise self._whole("a formula has no comments: put them beside it")
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
                if depth == 0 and token.start[0] != last:
                    raise self._whole(f"{self._quoted} is not a formula: its brackets do not match")

    # --- nodes

    def _node(self, node: ast.expr, depth: int) -> ast.expr:
        if depth > DEEPEST:
            raise self._at(node, "the formula is nested too deeply")
        if isinstance(node, _NAMING):
            return self._naming(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Constant):
            if type(node.value) not in _CONSTANTS:
                raise self._at(node, f"{ast.unparse(node)} cannot be part of a formula")
            if isinstance(node.value, float) and not math.isfinite(node.value):
                raise self._at(node, "the number is too large")
            return node
        if not isinstance(node, (*_PLAIN_NODES, *_ROWS)):
            what = _REFUSED.get(type(node), f'"{ast.unparse(node)}"')
            raise self._at(node, f"{what} cannot be part of a formula")
        for name, part in ast.iter_fields(node):
            if isinstance(part, ast.expr):
                setattr(node, name, self._node(part, depth + 1))
            elif isinstance(part, list):
                inner: list[Any] = part  # pyright: ignore[reportUnknownVariableType]
                setattr(node, name, [self._part(one, node, depth) for one in inner])
            elif isinstance(part, ast.AST):
                self._part(part, node, depth)
        return node

    def _part(self, part: Any, node: ast.expr, depth: int) -> Any:
        if isinstance(part, ast.expr):
            return self._node(part, depth + 1)
        if type(part) in _REFUSED:
            raise self._at(node, f"{_REFUSED[type(part)]} cannot be part of a formula")
        return part

    def _call(self, node: ast.Call, depth: int) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in FUNCTIONS or not isinstance(node.func, ast.Name):
            raise self._at(node.func, f'no function "{name}"{did_you_mean(name, FUNCTIONS)}')
        if node.keywords or not node.args:
            raise self._at(node, f"{name} takes values, without names")
        if name not in ("min", "max") and len(node.args) > 1:
            raise self._at(node, f"{name} takes one value")
        node.args = [self._node(argument, depth + 1) for argument in node.args]
        return node

    def _naming(self, node: ast.Name | ast.Attribute | ast.Subscript, depth: int) -> ast.expr:
        """Replace a dotted name such as `state.questions` by one name, and parts after it by subscripts."""
        dotted = _dotted(node)
        if dotted is not None and dotted in self.known:
            refused = self.known[dotted]
            if refused is not None:
                raise self._at(node, f'"{dotted}" {refused}')
            self.names.append(dotted)
            return ast.copy_location(ast.Name(dotted, ast.Load()), node)
        if isinstance(node, ast.Name) and node.id in WORDS:
            return ast.copy_location(ast.Constant(WORDS[node.id]), node)
        root = _root(node)
        if isinstance(node, ast.Name) or (root is not None and not self._leads_somewhere(node)):
            raise self._unknown(node, dotted or ast.unparse(node))
        node.value = self._node(node.value, depth + 1)
        if isinstance(node, ast.Attribute):
            return ast.copy_location(ast.Subscript(node.value, ast.Constant(node.attr), ast.Load()), node)
        if isinstance(node.slice, (ast.Slice, ast.Tuple)):
            raise self._at(node, "a slice cannot be part of a formula")
        node.slice = self._node(node.slice, depth + 1)
        return node

    def _leads_somewhere(self, node: ast.expr) -> bool:
        """Return whether a name begins with a known name; the rest then selects a part of its value."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
            if _dotted(node) in self.known:
                return True
        return False

    def _unknown(self, node: ast.expr, name: str) -> FormulaProblem:
        if name in FUNCTIONS:
            return self._at(node, f'"{name}" is a function: {name}(...)')
        room = name.partition(".")[0] + "."
        known = [other for other, refused in self.known.items() if refused is None]
        inside = [other for other in known if other.startswith(room)]
        if f"{name}." == room and inside:
            return self._at(node, f'"{name}" alone is no value, say which: {", ".join(inside[:8])}')
        return self._at(node, f'no "{name}" here{did_you_mean(name, inside or known)}')


def _dotted(node: ast.expr) -> str | None:
    """Return `a.b` or `a["b"]` as a dotted name; None for anything else, or if a part contains a dot."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        last: Any = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        last = node.slice.value
    else:
        return None
    above = _dotted(node.value)
    return f"{above}.{last}" if above is not None and isinstance(last, str) and "." not in last else None


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
