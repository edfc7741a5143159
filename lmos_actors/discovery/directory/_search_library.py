"""The JSONPath library, made to count what it looks at. Imported by the first search: it takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment, JSONPathMatch
from jsonpath.filter import BaseExpression, RelativeFilterQuery, RootFilterQuery
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.parse import Parser

from ._effort import Texts, pattern_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsonpath.selectors import FilterContext
    from jsonpath.stream import TokenStream


class Node(JSONPathMatch):
    """A value that was looked at. It keeps neither its path, which is long, nor what was found below it."""

    __slots__ = ()

    def new_child(self, obj: object, key: int | str) -> JSONPathMatch:
        return _node(obj, self.root, self._filter_context)

    def add_child(self, *children: JSONPathMatch) -> None:
        pass


def _node(obj: object, root: Any, context: Any) -> Node:
    context["effort"].spend()
    node: Node = Node.__new__(Node)  # not __init__: it makes what nobody asks for
    node.obj = obj
    node.root = root
    node._filter_context = context  # pyright: ignore[reportPrivateUsage] # there is no other way to set it
    return node


class Path(JSONPath):
    """An expression, or one within another: it begins with a node of ours."""

    __slots__ = ()

    def finditer(self, data: Any, *, filter_context: Any = None) -> Iterable[JSONPathMatch]:
        nodes: Iterable[JSONPathMatch] = [_node(data, data, filter_context)]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes

    def select(self, texts: Texts) -> Iterator[Any]:
        """Return what it selects, one after another. Raises TooMuch."""
        for node in self.finditer(texts, filter_context={"effort": texts.effort}):
            yield node.obj


class Relative(RelativeFilterQuery):
    """An expression within a filter that begins at the value in hand."""

    __slots__ = ()

    def evaluate(self, context: FilterContext) -> object:
        effort: Any = context.extra_context["effort"]
        effort.spend()
        return super().evaluate(context)


class Reader(Parser):
    """Makes the expressions within filters ours too."""

    def parse_absolute_query(self, stream: TokenStream) -> BaseExpression:
        stream.next()
        return RootFilterQuery(Path(env=self.env, segments=self.parse_query(stream)))

    def parse_relative_query(self, stream: TokenStream) -> BaseExpression:
        found = super().parse_relative_query(stream)
        assert isinstance(found, RelativeFilterQuery)
        return Relative(Path(env=self.env, segments=found.path.segments))


class _Fits(FilterFunction):
    """`match` and `search`, in linear time. What is no text, or no regular expression, fits nothing."""

    @property
    def arg_types(self) -> list[ExpressionType]:
        return [ExpressionType.VALUE, ExpressionType.VALUE]

    @property
    def return_type(self) -> ExpressionType:
        return ExpressionType.LOGICAL

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        fits = pattern_of(pattern, self._whole)
        return fits is not None and bool(fits(value))


class Environment(JSONPathEnvironment):
    """The library as it is used here."""

    parser_class = Reader

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Fits(whole=True)
        self.function_extensions["search"] = _Fits(whole=False)

    def compile(self, path: str) -> Path:
        found = super().compile(path)
        assert not isinstance(found, CompoundJSONPath)  # strict: RFC 9535 has no unions
        return Path(env=self, segments=found.segments)
