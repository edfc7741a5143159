"""Checks of the fields of thinking agents, when a class is made and when an agent starts.

Without these checks a mistake would appear at the first message, as an internal error, or not at all: a
misspelt field name is just another class attribute.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from inspect import isroutine
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors._core import declared
from lmos_actors.actors import Ref
from lmos_actors.facades import Tool
from lmos_actors.mcp import McpSource

from ._answers import form_of
from ._budget import Budget
from ._hand_over import HandOver, hand_overs
from ._memory_tools import MemoryTools
from ._tool_calls import ToolLimits
from ._tools import check_source

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

_FIELD: Final[Any] = type(attrs.field())  # pyright: ignore[reportUnknownVariableType]

_TYPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "instructions": ((str,), "a text"),
    "budget": ((Budget,), "a Budget"),
    "session_budget": ((Budget, type(None)), "a Budget or None"),
    "limits": ((ToolLimits,), "ToolLimits"),
    "history_tokens": ((int,), "a whole number"),
    "max_tokens": ((int, type(None)), "a whole number or None"),
    "temperature": ((int, float, type(None)), "a number or None"),
}


def check_body(cls: type, fields: Collection[str]) -> None:
    """Check the body of a class. Raises TypeError that names the class and the field."""
    annotated, title = declared(cls), cls.__name__
    for name, value in vars(cls).items():
        if name in fields:
            if not isinstance(value, _FIELD):
                with _unless_undefined():
                    _check(f"{title}.{name}", name, value)
        elif not name.startswith("_") and name not in annotated and _is_data(value):
            # `tool` is near enough to be a misspelling, `model_name` is not
            near = get_close_matches(name, fields, n=1, cutoff=0.8)
            if near:
                raise TypeError(
                    f"{title}.{name} is no field of a ThinkingAgent, did you mean {near[0]!r}? "
                    f"A field of your own is declared with its type: {name}: {type(value).__name__}"
                )


def check_fields(agent: Any, fields: Collection[str]) -> None:
    """Check the fields given to an agent's constructor. Raises TypeError naming the class and the field."""
    for name in fields:
        _check(f"{type(agent).__name__}.{name}", name, getattr(agent, name))


@contextmanager
def _unless_undefined() -> Generator[None]:
    """Ignore the TypeError for a type that may be defined later in the module; the start checks it again."""
    try:
        yield
    except TypeError as error:
        if not isinstance(error.__cause__, NameError):
            raise


def _is_data(value: Any) -> bool:
    """Return whether a member of a class is data: not a method, action, property or nested class."""
    return not isroutine(value) and not isinstance(value, type) and not hasattr(value, "__get__")


def _check(place: str, name: str, value: Any) -> None:
    if name == "tools":
        _check_tools(place, value)
    elif name == "client_tools":
        given = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(each, Tool) for each in given):
            raise TypeError(f'{place} is a tuple of tools, such as (Tool("position", ...),), not {value!r}')
    elif name == "answer":
        try:
            form_of(value)
        except TypeError as error:
            words = "is the type of the answers, such as str or a Struct"
            raise TypeError(f"{place} {words}: {error}") from error.__cause__
    elif name == "model":
        if value is not None and not isinstance(value, Ref):
            raise TypeError(
                f"{place} is a ref to a model, not {value!r}: start the model as an agent, and give "
                f'model=ref, or model=sibling("model") in the partial of its ChildSpec'
            )
    elif name in _TYPES:
        types, words = _TYPES[name]
        if not isinstance(value, types) or isinstance(value, bool):
            raise TypeError(f"{place} is {words}, not {value!r}")
        if name == "history_tokens" and isinstance(value, int) and value < 0:
            raise TypeError(f"{place} is a whole number of at least 0, not {value!r}")


def _check_tools(place: str, value: Any) -> None:
    if isinstance(value, property):
        return
    if not isinstance(value, list | tuple):
        raise TypeError(f"{place} is a tuple of tools, such as (Weather, look_up), not {value!r}")
    sources = cast("Sequence[Any]", value)
    try:
        hand_overs(sources)
    except ValueError as error:
        raise TypeError(f"{place}: {error}") from None
    for source in sources:
        if isinstance(source, HandOver | McpSource | MemoryTools):
            continue
        try:
            check_source(source)
        except TypeError as error:
            raise TypeError(f"{place}: {error}") from error.__cause__
