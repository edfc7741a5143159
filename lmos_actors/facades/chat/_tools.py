"""Tools of a chat agent: functions, and actions of other agents.

A tool has a name, a description and a schema of its arguments, so that others than people can choose it. Its
arguments are checked before it is called, and what it raises is no crash of the turn: see `ToolFailed`.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import attrs
import msgspec

from lmos_actors.actors import Progress
from lmos_actors.errors import ActionFailed, ToolFailed
from lmos_actors.protocol.td import schema_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lmos_actors.actors import Action, Ref, Turn


@attrs.frozen
class Tool:
    """Something that a chat agent may use: made by `tool_of`.

    `schema` is the JSON schema of its arguments, an object.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[Any]] = attrs.field(repr=False, eq=False)
    """Calls it with named arguments, and returns its result. Raises ToolFailed."""


def tool_of(
    function: Callable[..., Any] | Ref[Any],
    handle: Action[Any, Any, Any, Any] | Turn[Any, Any, Any] | None = None,
    /,
    *,
    name: str | None = None,
) -> Tool:
    """Return a function, or an action of an agent, as a tool.

    `tool_of(look_up)` takes a typed function, async or not; `tool_of(ref, Orders.find)` an action of another
    agent. Raises TypeError for parameters whose types are not known.
    """
    if handle is not None:
        ref: Any = function
        written, called = handle.__wrapped__, name or handle.name
        arguments = _arguments_of(written, called, is_method=True)
        return _made(called, written, arguments, partial(ref.invoke, handle))
    if not callable(function):
        raise TypeError(f"tool_of takes a function, or a ref and an action's handle, not {function!r}")
    called = name or str(getattr(function, "__name__", type(function).__name__))
    return _made(called, function, _arguments_of(function, called, is_method=False), function)


def shown_reason(error: ToolFailed) -> str:
    """Return why a tool failed, as others may know it: of exceptions that are not declared, nothing."""
    return error.reason if isinstance(error.__cause__, ActionFailed | NoneType) else "the tool failed"


def _arguments_of(function: Any, called: str, *, is_method: bool) -> type[msgspec.Struct]:
    """Return a class whose fields are the parameters of a function. Raises TypeError."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[is_method:]:
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"the tool {called!r} takes named arguments only, not {parameter}")
        if parameter.name not in hints:
            raise TypeError(
                f"the type of {parameter.name!r} of the tool {called!r} is not known: annotate it"
            )
        if hints[parameter.name] is Progress or get_origin(hints[parameter.name]) is Progress:
            continue
        more = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *more))
    return msgspec.defstruct(called, fields, kw_only=True, forbid_unknown_fields=True)


def _made(called: str, written: Any, arguments: type[msgspec.Struct], function: Callable[..., Any]) -> Tool:
    async def call(given: Mapping[str, Any]) -> Any:
        try:
            checked = msgspec.convert(dict(given), arguments)
        except msgspec.ValidationError as error:
            raise ToolFailed(called, f"its arguments are not right: {error}") from None
        try:
            result = function(**{field: getattr(checked, field) for field in arguments.__struct_fields__})
            if inspect.isawaitable(result):
                result = await result
            return msgspec.to_builtins(result, str_keys=True)
        except ActionFailed as error:
            raise ToolFailed(called, str(error)) from error
        except Exception as error:
            raise ToolFailed(called, f"{type(error).__name__}: {error}") from error

    schema = {word: value for word, value in schema_of(arguments).items() if word != "title"}
    return Tool(called, inspect.getdoc(written) or "", schema, call)
