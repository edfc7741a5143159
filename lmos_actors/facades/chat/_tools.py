"""Tools of a chat agent: functions, and actions of other agents.

A tool has a name, a description and a schema of its arguments, so that models and programs can choose it. Its
arguments are checked before it is called, and its exceptions do not crash the turn: see `ToolFailed`.
"""

from __future__ import annotations

import inspect
import warnings
from functools import lru_cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_origin

import attrs
import msgspec
import trio

from lmos_actors._core import place_of_function, signature_of, types_of_function, unknown_in
from lmos_actors.actors import Progress, conceal, shape_of
from lmos_actors.errors import ActionFailed, InvalidInput, SlowTurnWarning, ToolFailed, text_of
from lmos_actors.protocol.td import schema_of

from ._asked_turns import may_repeat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lmos_actors.actors import Action, Ref, Turn


SLOW: Final = 0.1
"""Seconds for which a function may hold up its node before a warning names it."""

OF_ASYNCIO: Final = ("no running event loop", "written for asyncio", "no current event loop")
"""Words in the errors of functions that are written for asyncio."""

NO_ASYNCIO: Final = (
    "agents run on trio, and not on asyncio: use a library for trio (or for both, such as httpx or anyio), "
    "or call one that blocks by tool_of(function, in_thread=True)"
)


def _for_clients(tool: Tool) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """Return a function that raises ToolFailed, as only a client can carry out this tool."""

    async def call(_: Mapping[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        raise ToolFailed(tool.name, "it is for clients, and this one carries out no tools")

    return call


@attrs.frozen
class Tool:
    """A tool that a chat agent may use; usually made by `tool_of`.

    `schema` is the JSON schema of its arguments, an object. A tool made from three arguments is carried out
    by a client: `Tool("position", "Return where the user is.", {"type": "object"})`.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[Any]] = attrs.field(
        default=attrs.Factory(_for_clients, takes_self=True), repr=False, eq=False
    )
    """Calls the tool with named arguments, and returns its result. Raises ToolFailed."""
    repeatable: bool = False
    """Whether a second call does no more than the first: true for a safe or idempotent action, and for a
    function that was declared so."""
    agent: str = ""
    """The path, or the address, of the agent that carries it out; empty for a function."""


def tool_of(
    function: Callable[..., Any] | Ref[Any],
    handle: Action[Any, Any, Any, Any] | Turn[Any, Any, Any] | None = None,
    /,
    *,
    name: str | None = None,
    in_thread: bool = False,
    repeatable: bool | None = None,
) -> Tool:
    """Return a function, or an action of an agent, as a tool.

    `tool_of(look_up)` takes a typed function, async or not; `tool_of(ref, Orders.find)` takes an action of
    another agent. A function that blocks, for example on a network request, holds up its node unless it is
    called `in_thread`; in a thread it continues even after its caller has left. `repeatable` declares that a
    second call does no harm, so that a model may repeat a call whose outcome is unknown. By default it is
    true for an action that is `safe` or `idempotent`, and false for a function. Raises TypeError for
    parameters whose types are not known, and for an action or an async function `in_thread`.

    The arguments of an action have the names in its description; their Python names work, too.
    """
    if in_thread and (handle is not None or inspect.iscoroutinefunction(function)):
        raise TypeError(f"in_thread is for a function that blocks, a def, not {handle or function!r}")
    if handle is not None:
        ref: Any = function
        renamed = tuple(handle.wire_names.items())
        form = _form_of(handle.__wrapped__, name or handle.name, renamed, handle.owner)
        declared = bool(handle.options.safe or handle.options.idempotent)
        again = declared if repeatable is None else repeatable
        return _made(form, partial(ref.invoke, handle), repeatable=again)
    if not callable(function):
        raise TypeError(f"tool_of takes a function, or a ref and an action's handle, not {function!r}")
    called = name or str(getattr(function, "__name__", type(function).__name__))
    form = _form_of(function, called, (), None)
    return _made(form, function, repeatable=bool(repeatable), in_thread=in_thread)


def raise_if_not_its_own(error: BaseException) -> None:
    """Re-raise an exception that concerns more than the tool: a cancellation by trio, or Ctrl-C.

    Any other error, such as an argument parser's SystemExit, ends only the tool's call.
    """
    passes = trio.Cancelled, KeyboardInterrupt, GeneratorExit, BaseExceptionGroup
    if isinstance(error, passes) and not isinstance(error, Exception):
        raise error


def shown_reason(error: ToolFailed) -> str:
    """Return the public reason why a tool failed, without the texts of undeclared exceptions."""
    return error.reason if isinstance(error.__cause__, ActionFailed | NoneType) else "the tool failed"


@attrs.frozen
class _Form:
    """The description of a function as a tool, apart from how it is called."""

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    renamed: Mapping[str, str]
    """The names of arguments as others know them, by their Python names, if these differ."""
    secrecy: Any
    """The secret parts of its result."""


@lru_cache(maxsize=1_000)
def _form_of(function: Any, called: str, renamed: tuple[tuple[str, str], ...], owner: type | None) -> _Form:
    """Return the form of a function, or of a method of `owner`.

    It is cached, as making it takes a millisecond. Raises TypeError, whose cause is a NameError if the name
    of a type is not defined yet.
    """
    hints = types_of_function(function, owner)
    is_method = owner is not None
    fields: list[Any] = []
    for parameter in list(signature_of(function).parameters.values())[is_method:]:
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"the tool {called!r} takes named arguments only, not {parameter}")
        if parameter.name not in hints:
            raise TypeError(
                f"the type of {parameter.name!r} of the tool {called!r} is not known: annotate it"
            )
        if hints[parameter.name] is Progress or get_origin(hints[parameter.name]) is Progress:
            if not is_method:
                raise TypeError(f"{parameter.name!r} of the tool {called!r}: only an action has Progress")
            continue
        unknown = unknown_in(hints[parameter.name])
        if unknown is not None:
            raise TypeError(
                f"the type {unknown.text!r} of {parameter.name!r} of the tool {called!r} cannot be read: "
                f"{unknown.why} ({place_of_function(function)}); import it where the program runs, not for "
                "type checkers alone, or define it"
            ) from NameError(unknown.why)
        more = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *more))
    names = dict(renamed)
    arguments = msgspec.defstruct(called, fields, kw_only=True, forbid_unknown_fields=True, rename=names)
    schema = {word: value for word, value in schema_of(arguments).items() if word != "title"}
    doc, secrecy = inspect.getdoc(function) or "", _secrecy_of(hints.get("return"))
    return _Form(called, doc, schema, arguments, names, secrecy)


def _plain(called: str, result: Any) -> Any:
    """Return a result in a form that can be sent. Raises ToolFailed if it is too deep or is not JSON."""
    try:
        inner = [[[result]]]  # as deep as it will be in messages
        return shape_of(list[list[list[Any]]]).take(inner)[0][0][0]
    except InvalidInput as error:  # which would otherwise be the crash of the agent that shows it
        raise ToolFailed(called, f"its result cannot be sent: {error.message}") from None


def _secrecy_of(result: Any) -> Any:
    try:
        return 0 if result is None else shape_of(result).secrecy
    except TypeError:  # a result that no agent could have
        return 0


def _made(
    form: _Form, function: Callable[..., Any], *, repeatable: bool = False, in_thread: bool = False
) -> Tool:
    called, arguments = form.name, form.arguments

    async def call(given: Mapping[str, Any]) -> Any:
        try:
            named = {form.renamed.get(name, name): value for name, value in given.items()}
            checked = msgspec.convert(named, arguments)
        except msgspec.ValidationError as error:
            raise ToolFailed(called, f"its arguments are not right: {error}") from None
        try:
            work = partial(function, **{name: getattr(checked, name) for name in arguments.__struct_fields__})
            if in_thread:
                result = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
            else:
                result = _called(called, work)
            if inspect.isawaitable(result):
                result = await result
            plain = msgspec.to_builtins(conceal(result, form.secrecy), str_keys=True)
        except ActionFailed as error:
            raise ToolFailed(called, str(error)) from error
        except BaseException as error:  # noqa: ASYNC103 -- errors of trio go on
            raise_if_not_its_own(error)
            text = text_of(error)
            if any(sign in text for sign in OF_ASYNCIO):
                error.add_note(f"the tool {called!r}: {NO_ASYNCIO}")
            raise ToolFailed(called, f"{type(error).__name__}: {text}") from error
        return _plain(called, plain)

    async def call_again(given: Mapping[str, Any]) -> Any:
        with may_repeat():
            return await call(given)

    return Tool(called, form.description, form.schema, call_again if repeatable else call, repeatable)


def _called(name: str, work: Callable[[], Any]) -> Any:
    """Call a function in this task, and warn if the call has held up the node."""
    began = trio.current_time()
    try:
        return work()
    finally:
        seconds = trio.current_time() - began
        if seconds > SLOW:
            way = "make it async def, or call it in a thread: tool_of(function, in_thread=True)"
            text = f"the tool {name!r} has held up its node for {seconds:.1f} s: {way}"
            warnings.warn(text, SlowTurnWarning, stacklevel=2)
