"""Operations: named functions of an agent that a mailbox carries out, with the types of input and output.

Every verb of a ref ends in an operation: invoking an action, reading a property, subscribing to an
event. The dispatcher distinguishes only three kinds: a turn runs from start to end in one step, a
run needs time, a stream is a run with many outputs.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from operator import call
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lmos_actors.errors import AgentError, InvalidInput, NotAllowed, NotFound, hint_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..values import Secrecy, Shape

TURN, RUN, STREAM, GATED = range(4)  # GATED: a turn that not every behaviour allows
RUNS: Final = (RUN, STREAM)

ASKING: Final = "ref.invoke/read/write"  # named in Python's warning of a missing await

F = TypeVar("F", bound="Callable[..., Any]")


def named(title: str) -> Callable[[F], F]:
    """Set the name that Python shows in its warning about a coroutine that was never awaited."""

    def rename(fn: F) -> F:
        fn.__qualname__ = title
        return fn

    return rename


def _no_short_cut(_value: Any, /) -> Any:
    raise InvalidInput("several arguments, or none")


def _pass(value: Any, /) -> Any:
    return value


MISSING: Final = object()

_CALL: Final[Any] = call  # with the types that a checker has for it, `map` cannot call it

CHECKED: Final[Mapping[str, Any]] = MappingProxyType({})
"""In place of a call's arguments by name: all of them are among the positional ones, bound and checked."""


class Parameter:
    """One parameter of an action, as its caller sees it.

    `take` checks an argument. For an input stream, `shape` is the shape of one item, and the argument is an
    asynchronous iterable, the source of the items, which is no member of the input.
    """

    __slots__ = ("default", "is_stream", "keyword_only", "name", "shape", "take", "wire_name")

    def __init__(
        self,
        name: str,
        wire_name: str,
        shape: Shape[Any],
        default: object,
        *,
        keyword_only: bool,
        is_stream: bool = False,
    ) -> None:
        self.name = name
        self.wire_name = wire_name
        self.shape = shape
        self.default = default
        self.keyword_only = keyword_only
        self.is_stream = is_stream
        self.take: Callable[..., Any] = _take_source if is_stream else shape.take


def _take_source(value: Any, path: str = "$", /) -> Any:
    if not isinstance(value, AsyncIterable):
        raise InvalidInput(f"Expected an asynchronous iterable, got `{type(value).__name__}`", path)
    return value  # pyright: ignore[reportUnknownVariableType] # its items are checked one by one


class _Anything:
    """A shape that accepts all values, for values that the runtime itself provides."""

    exact = None
    name = "anything"
    secrecy = 0

    @staticmethod
    def take(value: Any, path: str = "$") -> Any:
        """Return the value unchanged."""
        return value


ANYTHING: Final[Any] = Parameter("it", "it", _Anything(), MISSING, keyword_only=False)  # type: ignore[arg-type]


class Operation:
    """A function of an agent class that a message can request; made once per class."""

    __slots__ = (
        "checks", "concurrency", "defaults", "fill", "fn", "give", "inputs", "internal", "is_plain", "kind",
        "label", "name", "names", "needed", "on_disconnect", "original", "owner", "params", "postpone",
        "progress", "repeatable", "result_secrecy", "result_shape", "secrecies", "streams", "take", "untyped",
        "verb", "when", "whole",
    )  # fmt: skip

    original: Operation
    """The operation that a copy with another function stands for: runs of both are counted together."""

    fill: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None
    """Completes arguments that the caller has left out, in the caller's task; None if there are none."""

    untyped: bool
    """Whether its parameters and its result are unknown: arguments given by name form one object."""

    def __init__(
        self,
        *,
        verb: str,
        name: str,
        owner: str,
        kind: int,
        fn: Callable[..., Any],
        params: tuple[Parameter, ...] = (),
        result: Shape[Any] | None = None,
        progress: Shape[Any] | None = None,
        concurrency: int = 1,
        whole: bool = False,
        internal: bool = False,
        on_disconnect: str = "cancel",
        when: tuple[str, ...] | None = None,
        postpone: bool = False,
        repeatable: bool | None = None,
    ) -> None:
        self.verb, self.name = verb, name
        self.owner, self.label = owner, f"{owner}.{name}"
        self.kind, self.fn = kind, fn
        self.original, self.untyped, self.fill = self, False, None
        self.params = params
        # the short cuts of the hot path: the check of a lone argument, and of the result
        lone = len(params) == 1 and not params[0].keyword_only
        self.take: Callable[[Any], Any] = params[0].take if lone else _no_short_cut
        takes: list[Any] = []
        places: list[str] = []
        self.checks: tuple[list[Any], list[str]] | None = takes, places  # None: an argument needs its name
        self.names: tuple[str, ...] = ()
        self.defaults: tuple[object, ...] = ()
        self.needed = 0  # positional arguments, up to the last without a default
        self.inputs: list[tuple[str, str, Callable[..., Any]]] = []
        self.streams: tuple[int, ...] = ()
        hidden: tuple[Secrecy, ...] = ()
        for place, p in enumerate(params):
            takes.append(p.take)
            places.append("$" if whole else f"$.{p.wire_name}")
            if p.keyword_only:
                self.checks = None
            self.names += (p.wire_name,)
            self.defaults += (p.default,)
            if p.default is MISSING:
                self.needed = place + 1
            if p.is_stream:
                self.streams += (place,)
            else:
                self.inputs.append((p.wire_name, p.name, p.take))
            hidden += (0 if p.is_stream else p.shape.secrecy,)
        self.give: Callable[[Any], Any] = result.take if result is not None else _pass
        self.result_shape, self.progress = result, progress
        self.concurrency, self.on_disconnect = concurrency, on_disconnect
        self.whole, self.is_plain, self.internal = whole, not whole and not self.streams, internal
        self.when, self.postpone = when, postpone
        self.repeatable = verb != "invoke" if repeatable is None else repeatable and not self.streams
        # the secrets of the arguments, None if there are none; the secrets of the result
        self.secrecies: tuple[Secrecy, ...] | None = hidden if any(hidden) else None
        self.result_secrecy: Secrecy = result.secrecy if result is not None else 0

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Check and convert the arguments of a call, in the order of the parameters.

        Raises:
            InvalidInput: an argument is missing, unknown, given twice or of a wrong type.
        """
        params = self.params
        if not kwargs and len(args) == len(params):
            if len(params) == 1 and not params[0].keyword_only:
                try:
                    return (self.take(args[0]),)
                except InvalidInput:  # once more, with the path that the refusal names
                    return (self._checked(params[0], args[0]),)
            if not params:
                return args
            if self.checks is not None:
                takes, paths = self.checks
                bound: tuple[Any, ...] = tuple(map(_CALL, takes, args, paths))
                return bound if self.fill is None else self.fill(bound)
        elif not kwargs and self.checks is not None and self.needed <= len(args) < len(params):
            takes, paths = self.checks
            bound = (*map(_CALL, takes, args, paths), *self.defaults[len(args) :])
            return bound if self.fill is None else self.fill(bound)
        return self._bind_slowly(args, dict(kwargs))

    def take_anything(self) -> None:
        """Stop checking the only argument, as the call is refused for a reason that takes precedence."""
        self.take = _pass
        self.checks = None

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if self.untyped and kwargs:
            if args:
                raise InvalidInput(
                    f"{self.label} has no known parameters: pass all arguments by name, or one object"
                )
            args, kwargs = (kwargs,), {}
        positional = sum(not p.keyword_only for p in self.params) if args else 0
        if len(args) > positional:
            count = f"{positional} positional argument{'' if positional == 1 else 's'}"
            raise InvalidInput(f"{self.label} takes {count}, not {len(args)}")
        bound: list[Any] = []
        for place, p in enumerate(self.params):
            value = args[place] if place < len(args) and not p.keyword_only else MISSING
            if p.name in kwargs:
                if value is not MISSING:
                    raise InvalidInput(f"{self.label} got {p.name!r} twice", f"$.{p.wire_name}")
                value = kwargs.pop(p.name)
            elif value is MISSING and kwargs and p.default is MISSING:
                known = {each.name for each in self.params}
                for name in kwargs:  # a misspelt argument is named rather than the one that is missing for it
                    if name not in known:
                        raise self._unknown(name)
            is_left_out = value is MISSING and p.default is not MISSING
            bound.append(p.default if is_left_out else self._checked(p, value))
        if kwargs:
            raise self._unknown(next(iter(kwargs)))
        return tuple(bound) if self.fill is None else self.fill(tuple(bound))

    def _checked(self, p: Parameter, value: Any) -> Any:
        path = "$" if self.whole else f"$.{p.wire_name}"
        if value is not MISSING:
            return p.take(value, path)
        what = "the input stream " if p.is_stream else ""
        raise InvalidInput(f"{self.label} needs {what}{p.wire_name!r}", path)

    def check_one_way(self) -> None:
        """Raise TypeError if the operation has input streams, whose sources no task would iterate."""
        if self.streams:
            raise TypeError(
                f"{self.label} takes an input stream, which a one-way message cannot carry: "
                f"use ref.invoke, ref.begin or ref.stream"
            )

    @property
    def sort(self) -> str:
        """The kind of affordance of the operation, as named in errors."""
        return {"invoke": "an action", "subscribe": "an event"}.get(self.verb, "a property")

    def _unknown(self, name: str) -> InvalidInput:
        hint = hint_at(name, [p.wire_name for p in self.params])
        return InvalidInput(f"{self.label} has no parameter {name!r}{hint}", f"$.{name}")

    def from_input(self, data: Any) -> tuple[Any, ...]:
        """Check and convert an input given as plain data: one object keyed by parameter names.

        Raises:
            InvalidInput: as `bind`.
        """
        return self.bind(*self.spread(data))

    def spread(self, data: Any, *, tolerant: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert an input of plain data to the arguments of a call, without checking them.

        Raises:
            InvalidInput: the input is no object, or has a member that is no parameter, unless `tolerant`.
        """
        if self.whole:
            return (data,), {}
        if data is None:
            data = {}
        if not isinstance(data, dict):
            raise InvalidInput(f"{self.label} takes an object, not {type(data).__name__}")
        given: dict[Any, Any] = dict(data)  # pyright: ignore[reportUnknownArgumentType]
        names = {wire: name for wire, name, _ in self.inputs}
        if not tolerant:
            for key in given:
                if key not in names:
                    raise self._unknown(str(key))
        return (), {names[key]: value for key, value in given.items() if key in names}

    def taken(self, data: Any) -> tuple[Any, ...] | None:
        """Check a complete input; return None if `spread` and `bind` have to be used instead.

        This is a short cut for requests from afar, in a third of the time. Refusals are left to `bind`.
        """
        if not self.is_plain or type(data) is not dict:
            return None
        given: dict[str, Any] = data  # pyright: ignore[reportUnknownVariableType]
        try:
            if len(self.inputs) == 1:  # a comprehension is a call
                wire, _, take = self.inputs[0]
                return (take(given[wire]),)
            return tuple([take(given[wire]) for wire, _, take in self.inputs])
        except (InvalidInput, KeyError):
            return None

    def result(self, value: Any) -> Any:
        """Check and convert the value that the function returned.

        Raises:
            TypeError: the value is not of the declared type, which is a bug of the agent.
        """
        try:
            return self.give(value)
        except InvalidInput as exc:
            raise self.wrong_result(exc) from None

    def wrong_result(self, exc: InvalidInput) -> TypeError:
        """Make the error for a handler whose result is not of the declared type."""
        declared = self.result_shape.name if self.result_shape is not None else "nothing"
        return TypeError(f"{self.label} returned a result that is not its declared {declared}: {exc}")


_SORTS: Final = {"?": "property", "=": "property", "!": "event"}


def invoked_stream(op: Operation) -> TypeError:
    """Make the error for `ref.invoke` of an action with many outputs, which returns no single output."""
    return TypeError(
        f"{op.label} has many outputs, and none to return: async with ref.stream(...) as items, and in it "
        f"async for item in items"
    )


def not_in(table: Mapping[str, Operation], key: str, path: str) -> AgentError:
    """Make the error for a key that is not in a table: the name belongs to another kind, or to nothing."""
    name = key.lstrip("?=!+")
    for op in table.values():
        if op.name == name:
            return NotAllowed(f"{name!r} of {path} is {op.sort}: {op.verb} it")
    kind = _SORTS.get(key.lstrip("+")[:1], "action")
    known = [op.name for op in table.values() if op.name != "*" and op.sort.endswith(kind)]
    return NotFound(kind, name, where=path, known=known)
