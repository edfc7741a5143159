"""Marks that make an action a prompt or a resource for MCP clients, not a tool. Write them below `@action`.

    class Desk(Agent):
        @action(safe=True)
        def numbers(self, typed: str) -> list[str]: ...

        @action(safe=True)
        @resource("desk://tickets/{number}", mime_type="text/plain", complete={"number": numbers})
        async def ticket(self, number: int) -> str: ...

        @action(safe=True)
        @prompt
        async def greet(self, name: str) -> str:
            "A friendly beginning."
            return f"Greet {name} in a line."

For all other callers the action is an ordinary one. Clients give texts, which are read like an action's query
parameters. The mark is stored on the function, so that an error in it names its own line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import Parameter, isasyncgenfunction, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

import attrs

from lmos_actors.actors import Action, Event, Property, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

Completions: TypeAlias = "Mapping[str, Action[Any, ..., Any, Any] | Turn[Any, ..., Any]]"
"""The actions that complete texts while they are typed, by the name of the parameter."""

LONGEST_URI: Final = 2_048
"""Maximum characters of a resource's URI."""

_MARK: Final = "mcp_mark"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s{}]*(?:\{[A-Za-z_]\w*\}[^\s{}]*)*", re.ASCII)
_VARIABLE: Final = re.compile(r"\{(\w+)\}")


@attrs.frozen
class Mark:
    """The way in which an action is offered: as a resource, with a `uri`, or as a prompt, without one."""

    complete: Completions
    uri: str = ""
    mime_type: str = ""
    changes: Any = None
    """A `Property` or an `Event`, which gets its name with its class; None if there are no subscriptions."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The parts of the URI that are to be filled in."""
        return tuple(_VARIABLE.findall(self.uri))


@overload
def prompt(fn: F, /) -> F: ...
@overload
def prompt(*, complete: Completions | None = ...) -> Callable[[F], F]: ...
def prompt(fn: Any = None, /, *, complete: Completions | None = None) -> Any:
    """Make an action a prompt: it returns the user's text, or a list of `McpMessage`.

    `complete` maps a parameter to an action of the agent that returns a list of completions. This action gets
    the text typed so far; its second parameter, if any, gets the values of the other parameters. A parameter
    whose type has choices needs no such action. Raises TypeError.
    """
    return _left(fn, Mark(_checked(complete, "prompt")), "prompt")


def resource(
    uri: str,
    /,
    *,
    mime_type: str = "",
    changes: Property[Any] | Event[Any] | None = None,
    complete: Completions | None = None,
) -> Callable[[F], F]:
    """Make an action a resource, or a template of resources: parts of `uri` in braces are its parameters.

    The action returns a text, bytes, an `McpContent` or a list of these; other values are sent as JSON. If
    several agents are offered, `lmos://agents/` and the name of the agent replace the scheme. Subscribed
    clients are notified when `changes`, a property or an event of the agent, has a new value. For `complete`
    see `prompt`. Raises TypeError.
    """
    given: Any = uri
    if not isinstance(given, str) or len(uri) > LONGEST_URI or _URI.fullmatch(uri) is None:
        raise TypeError(f"a URI has a scheme, and names in braces, as desk://tickets/{{id}}, not {uri!r}")
    made = Mark(_checked(complete, "resource"), uri, mime_type, changes)
    if len(set(made.variables)) < len(made.variables):
        raise TypeError(f"a part of {uri!r} is there twice")
    if changes is not None and (made.variables or not isinstance(changes, Property | Event)):  # pyright: ignore
        raise TypeError("changes= is a property or an event of the class, for a resource without parts")
    return cast("Callable[[F], F]", _left(None, made, "resource"))


def mark_of(handle: Any) -> Mark | None:
    """Return the mark of an action, None for a tool."""
    found: Mark | None = getattr(handle.__wrapped__, _MARK, None)
    return found


def _checked(complete: Any, word: str) -> Completions:
    given: Any = {} if complete is None else complete
    handles: list[Any] = [*given.values()] if isinstance(given, Mapping) else [given]  # pyright: ignore
    for each in handles:
        if not isinstance(each, Action | Turn):
            raise TypeError(f"{word}() takes complete= as actions of the class by parameter, not {each!r}")
        if not 2 <= len(signature(each.__wrapped__).parameters) <= 3:
            raise TypeError(f"{word}() completes by an action of one or two parameters, not {each!r}")
    return cast("Completions", given)


def _left(fn: Any, mark: Mark, word: str) -> Any:
    """Check that a mark fits a function, and store the mark on the function. Raise TypeError."""
    if fn is None:
        return lambda later: _left(later, mark, word)  # pyright: ignore
    if not hasattr(fn, "__code__"):
        raise TypeError(f"@{word} stands below @action, on a function")
    if isasyncgenfunction(fn):
        raise TypeError(f"@{word} {fn.__qualname__}: it returns one value, and yields none")
    _, *params = signature(fn).parameters.values()
    given = [each for each in params if not re.search(r"\bProgress\b", str(each.annotation))]
    for name in (*mark.variables, *mark.complete):
        if all(name != each.name for each in given):
            raise TypeError(f"@{word} {fn.__qualname__}: there is no parameter {name!r}")
    for each in given if mark.uri else ():
        if each.name not in mark.variables and each.default is Parameter.empty:
            raise TypeError(f"@{word} {fn.__qualname__}: {mark.uri!r} has no part {{{each.name}}}")
    if _MARK in vars(fn):
        raise TypeError(f"@{word} {fn.__qualname__}: it is marked already")
    vars(fn)[_MARK] = mark
    return fn
