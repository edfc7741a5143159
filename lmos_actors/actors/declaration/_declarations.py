"""The declarations of an agent class: `prop`, `event`, `@action`, `@every`."""

from __future__ import annotations

import math
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from msgspec import Meta

from ._affordances import NOTHING, Action, ActionOptions, Event, Property, StreamAction, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from ..messages._invocation import Progress

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
G = TypeVar("G")
P = ParamSpec("P")
F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_OF_SYSTEM: Final = "__lmos_of_system__"


@overload
def prop(
    *,
    default: V,
    read_only: bool = ...,
    write_only: bool = ...,
    observable: bool = ...,
    name: str | None = ...,
    doc: str = ...,
) -> Property[V]: ...
@overload
def prop(
    *,
    factory: Callable[[], V],
    read_only: bool = ...,
    write_only: bool = ...,
    observable: bool = ...,
    name: str | None = ...,
    doc: str = ...,
) -> Property[V]: ...
@overload
def prop(
    *,
    read_only: bool = ...,
    write_only: bool = ...,
    observable: bool = ...,
    name: str | None = ...,
    doc: str = ...,
) -> Property[Any]: ...
def prop(
    *,
    default: Any = NOTHING,
    factory: Callable[[], Any] | None = None,
    read_only: bool = False,
    write_only: bool = False,
    observable: bool = True,
    name: str | None = None,
    doc: str = "",
) -> Property[Any]:
    """Declare a property: state that consumers read, write and observe.

    Its type must be deeply immutable, as a change of a value in place would not be noticed. Without `default`
    and `factory` the property is a required argument of the constructor. `read_only` and `write_only` apply
    to consumers; the agent itself may always read and write. `name` is the name on the wire.
    """
    return Property(
        default=default,
        factory=factory,
        read_only=read_only,
        write_only=write_only,
        observable=observable,
        name=name,
        doc=doc,
    )


def event(
    *, init: Literal[False] = False, name: str | None = None, doc: str = "", broadcast: bool = False
) -> Event[Any]:
    """Declare an event: something that the agent sends to its subscribers.

    `init` is for type checkers: an event is no argument of the constructor. With `broadcast` an agent that is
    on a relay sends the event to all agents there.
    """
    del init
    return Event(name=name, doc=doc, broadcast=broadcast)


def completed_by(complete: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[F], F]:
    """Have an action's arguments completed in the task that calls it; the decorator goes below `@action`."""

    def mark(fn: F) -> F:
        vars(fn)["completed_by"] = complete
        return fn

    return mark


class _ActionDecorator(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[A, Progress[G], P], Coroutine[Any, Any, R]], /
    ) -> Action[A, P, R, G]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[A, P], Coroutine[Any, Any, R]], /
    ) -> Action[A, P, R, Any]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[A, P], AsyncIterator[R]], /
    ) -> StreamAction[A, P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[A, P], R], /) -> Turn[A, P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...


# The last overload takes any function, the first three some of them: the order decides, as it should.
@overload
def action(  # type: ignore[overload-overlap]
    fn: Callable[Concatenate[A, Progress[G], P], Coroutine[Any, Any, R]], /
) -> Action[A, P, R, G]: ...
@overload
def action(  # type: ignore[overload-overlap]
    fn: Callable[Concatenate[A, P], Coroutine[Any, Any, R]], /
) -> Action[A, P, R, Any]: ...
@overload
def action(  # type: ignore[overload-overlap]
    fn: Callable[Concatenate[A, P], AsyncIterator[R]], /
) -> StreamAction[A, P, R]: ...
@overload
def action(fn: Callable[Concatenate[A, P], R], /) -> Turn[A, P, R]: ...
@overload
def action(
    *,
    name: str | None = ...,
    concurrency: int = ...,
    on_disconnect: Literal["cancel", "finish"] = ...,
    safe: bool = ...,
    idempotent: bool = ...,
    synchronous: bool | None = ...,
    when: str | tuple[str, ...] | None = ...,
    postpone: bool = ...,
    snapshot_safe: bool = ...,
    answers: bool | Mapping[str, Any] = ...,
) -> _ActionDecorator: ...
def action(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    concurrency: int = 1,
    on_disconnect: Literal["cancel", "finish"] = "cancel",
    safe: bool = False,
    idempotent: bool = False,
    synchronous: bool | None = None,
    when: str | tuple[str, ...] | None = None,
    postpone: bool = False,
    snapshot_safe: bool = False,
    answers: bool | Mapping[str, Any] = False,
) -> Any:
    """Declare an action: `def` is a turn, `async def` a run, an async generator a stream of outputs.

    An `async def` may take a `Progress` first; the runtime fills it in and callers do not see it.
    `concurrency` is how many runs of this action one incarnation may have at a time, over all
    consumers; further ones wait in line and keep their seat in the mailbox. `on_disconnect="finish"`
    lets a run go on when its consumer's connection breaks.

    `safe` (a call changes nothing), `idempotent` (two calls have the effect of one) and `synchronous` appear
    in the description (Thing Description 1.1, section 5.3.1.4). `synchronous=False` promises consumers a
    status `pending` before the result. By default a `def` is synchronous and nothing is claimed about an
    `async def`, nor about a `def` that may be postponed.

    `when` names the behaviours in which the action is taken; in any other it is refused with `NotAllowed`,
    or, with `postpone=True`, waits in its seat until `self.become(...)` changes the behaviour (as in OTP's
    `gen_statem`). A one-way message that is refused becomes a dead letter.

    `snapshot_safe=True` promises of an `async def` of a durable class that the agent's state is whole at each
    of its awaits, so that it may be kept there.

    `answers=True`: the action answers questions in plain words from agents on a relay; a class has one such
    action at most. The question is its argument; a mapping has the other arguments that it needs.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise TypeError(f"concurrency must be a whole number of at least 1, not {concurrency!r}")
    options = ActionOptions(
        name=name,
        concurrency=concurrency,
        on_disconnect=on_disconnect,
        safe=safe,
        idempotent=idempotent,
        synchronous=synchronous,
        when=_behaviours(when, postpone),
        postpone=postpone,
        snapshot_safe=snapshot_safe,
        answers=answers,
    )
    if fn is None:

        def decorate(fn: Any) -> Any:
            return _handle_for(fn, options)

        return decorate
    return _handle_for(fn, options)


def _behaviours(when: Any, postpone: bool) -> tuple[str, ...] | None:
    if when is None:
        if postpone:
            raise TypeError("postpone=True needs when=(...): the behaviours in which the action is taken")
        return None
    names = (when,) if isinstance(when, str) else tuple(when)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"when must name one or more behaviours, not {when!r}")
    return names


def _handle_for(fn: Any, options: ActionOptions) -> Any:
    if not callable(fn) or not hasattr(fn, "__code__"):
        raise TypeError(f"@action goes on a function, not on {type(fn).__name__}")
    if isgeneratorfunction(fn):
        raise TypeError(
            f"@action {fn.__qualname__}: a generator written def gives its caller nothing; write async def "
            f"for a stream of outputs, or return a tuple"
        )
    if isasyncgenfunction(fn):
        return StreamAction[Any, ..., Any](fn, options)
    if iscoroutinefunction(fn):
        return Action[Any, ..., Any, Any](fn, options)
    return Turn[Any, ..., Any](fn, options)


def Unit(name: str, /) -> Meta:
    """Return the mark for the unit of a number: `Annotated[float, Meta(ge=0), Unit("celsius")]`.

    The description shows it (member `unit`, Thing Description 1.1, section 5.3.2.1); the unit checks nothing.
    """
    return Meta(extra_json_schema={"unit": name})


def every(
    seconds: float, /, *, durable: bool = False
) -> Callable[[Callable[[A], None]], Callable[[A], None]]:
    """Make a `def` method a turn that runs every `seconds` of the agent's life, first after one period.

    The period is counted from the schedule, not from the end of the turn. A firing that is still waiting is
    not queued twice, and missed ones are merged. With `durable=True`, in a durable class, the schedule
    outlives the incarnation: missed firings become one firing after the next `started()`, and later firings
    keep to the schedule.
    """
    if callable(seconds) or not 0 < seconds < math.inf:
        raise TypeError(f"@every needs a finite number of seconds above 0, not {seconds!r}")

    def mark(fn: Callable[[A], None]) -> Callable[[A], None]:
        vars(fn)["__lmos_every__"] = float(seconds)
        vars(fn)["__lmos_durable__"] = durable
        return fn

    return mark


def of_system(cls: type[T]) -> type[T]:
    """Mark a class whose agents serve the other agents of their node, as a language model does.

    Such agents are not offered to MCP clients. A subclass is marked too.
    """
    setattr(cls, _OF_SYSTEM, True)
    return cls


def is_of_system(cls: type[Any]) -> bool:
    """Return whether a class is marked by `of_system`."""
    return getattr(cls, _OF_SYSTEM, False)
