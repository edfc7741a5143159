"""JSONPath library (python-jsonpath) with a budget. Imported by the first search, as the import is slow.

The library has no hook for visited nodes, so its classes for nodes and queries are subclassed: every node is
made by `_node`, which counts it. The nodes also drop what the library keeps for features that a search does
not need (paths and children), as that would hold all visited values in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment, JSONPathMatch
from jsonpath.filter import BaseExpression, RelativeFilterQuery, RootFilterQuery
from jsonpath.parse import Parser

from lmos_actors._core import use_i_regexps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsonpath.selectors import FilterContext
    from jsonpath.stream import TokenStream

    from ._search_budget import LazyDescriptions


class Node(JSONPathMatch):
    """Visited value, without path and children."""

    __slots__ = ()

    def new_child(self, obj: object, key: int | str) -> JSONPathMatch:
        return _node(obj, self.root, self._filter_context)

    def add_child(self, *children: JSONPathMatch) -> None:
        pass


def _node(obj: object, root: Any, context: Any) -> Node:
    context["effort"].spend()
    node: Node = Node.__new__(Node)  # not __init__: it builds the path
    node.obj = obj
    node.root = root
    node._filter_context = context  # pyright: ignore[reportPrivateUsage] # there is no other way to set it
    return node


class Path(JSONPath):
    """Compiled expression, also inside a filter, that starts with a counted node."""

    __slots__ = ()

    def finditer(self, data: Any, *, filter_context: Any = None) -> Iterable[JSONPathMatch]:
        nodes: Iterable[JSONPathMatch] = [_node(data, data, filter_context)]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes

    def select(self, texts: LazyDescriptions) -> Iterator[Any]:
        """Yield the selected values. Raises BudgetExceeded."""
        for node in self.finditer(texts, filter_context={"effort": texts.budget}):
            yield node.obj


class Relative(RelativeFilterQuery):
    """Expression inside a filter, relative to the current value."""

    __slots__ = ()

    def evaluate(self, context: FilterContext) -> object:
        budget: Any = context.extra_context["effort"]
        budget.spend()
        return super().evaluate(context)


class FilterParser(Parser):
    """Parser that makes counted expressions inside filters."""

    def parse_absolute_query(self, stream: TokenStream) -> BaseExpression:
        stream.next()
        return RootFilterQuery(Path(env=self.env, segments=self.parse_query(stream)))

    def parse_relative_query(self, stream: TokenStream) -> BaseExpression:
        found = super().parse_relative_query(stream)
        assert isinstance(found, RelativeFilterQuery)
        return Relative(Path(env=self.env, segments=found.path.segments))


class Environment(JSONPathEnvironment):
    """Environment with counted expressions and linear-time patterns."""

    parser_class = FilterParser

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        use_i_regexps(self)

    def compile(self, path: str) -> Path:
        found = super().compile(path)
        assert not isinstance(found, CompoundJSONPath)  # strict: RFC 9535 has no unions
        return Path(env=self, segments=found.segments)
