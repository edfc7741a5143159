"""Doubles: agents with prepared answers that stand in for agents of a class.

Fakes and probes of tests, and the mocks and replays of scenarios, are all made here, in three steps:

- `double_of` makes a subclass of the agent class, so that `find`, refs and handles accept it as one. None of
  the original's own code runs: no constructor, no `started`, no lifespan, no periodic turn. Its properties
  and events are the real ones.
- Its table of operations is changed key by key: `altered` gives an operation another function.
- `answered` makes such an operation out of one function that is given each request as a `DoubleRequest`:
  the operation, its arguments, the sender, and a way to report progress.
"""

from __future__ import annotations

from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from lmos_actors._core import plain
from lmos_actors.errors import NotAllowed

from .declaration._affordances import NOTHING
from .finding._registry import slot_of
from .messages._gates import GONE
from .messages._invocation import CURRENT, Run
from .messages._observers import MONITORS
from .messages._operation import GATED, RUN, STREAM, TURN, Operation
from .values import conceal_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from ._agent import Agent
    from .declaration._contract import Contract
    from .messages._monitor import Down
    from .refs._ref import Ref

A = TypeVar("A", bound="Agent")


def altered(
    op: Operation,
    fn: Callable[..., Any],
    *,
    kind: int | None = None,
    bare: bool = False,
    concurrency: int | None = None,
) -> Operation:
    """Return a copy of an operation with another function.

    `bare`: the function gets no `Progress`, and its result is not checked.
    """
    made = copy(op)
    made.fn = fn
    if kind is not None:
        made.kind = kind
    if concurrency is not None:
        made.concurrency = concurrency
    if bare:
        made.give = _unchecked
        made.progress = None
    return made


def _unchecked(value: Any, /) -> Any:
    return value


class DoubleRequest:
    """One request that a double answers: its agent, the operation of the original class, the arguments."""

    __slots__ = ("agent", "args", "op")

    def __init__(self, agent: Any, op: Operation, args: tuple[Any, ...]) -> None:
        self.agent = agent
        self.op = op
        self.args = args

    @property
    def run(self) -> Run | None:
        """The run that answers the request, or None in a turn."""
        run = CURRENT.get()
        return run if isinstance(run, Run) else None

    @property
    def message(self) -> Any:
        """The envelope of the run, or the current message of the turn."""
        run = self.run
        return self.agent._slot.rt.turns.current if run is None else run.envelope

    @property
    def one_way(self) -> bool:
        """Whether no answer to the request is expected."""
        return not getattr(self.message, "waits_for_answer", True)

    @property
    def sender(self) -> str | None:
        """The path of the agent that sent the request, or None if code outside any agent sent it."""
        sender = getattr(self.message, "sender", None)
        return None if sender is None else sender.path

    @property
    def shown_args(self) -> tuple[Any, ...]:
        """The arguments without their secrets."""
        return conceal_all(self.args, self.op.secrecies)

    def input(self, args: tuple[Any, ...]) -> Any:
        """Return arguments, with or without their secrets, as the plain data that a caller would write."""
        if not args:
            return {}
        if self.op.whole or self.op.internal:
            data = args[0]
        else:
            given = zip(self.op.params, args, strict=True)
            data = {p.wire_name: value for p, value in given if not p.is_stream}
        return plain({} if data is None else data)

    def report(self, value: Any) -> None:
        """Report progress of the run; do nothing in a turn. Raises TypeError for a value of another type."""
        run = self.run
        if run is not None:
            run.report(value)


def answered(
    op: Operation,
    respond: Callable[[DoubleRequest], Awaitable[Any]],
    *,
    concurrency: int | None = None,
) -> Operation:
    """Return an action of a double whose output `respond` returns, already checked.

    For an action with many outputs `respond` returns an asynchronous generator of them.
    """

    async def run(agent: Any, *args: Any) -> Any:
        return await respond(DoubleRequest(agent, op, args))

    async def stream(agent: Any, *args: Any) -> AsyncGenerator[Any]:
        async with aclosing(await respond(DoubleRequest(agent, op, args))) as items:
            async for item in items:
                yield item  # noqa: ASYNC119 -- the runtime closes the streams it runs

    if op.kind == STREAM:
        return altered(op, stream, bare=True, concurrency=concurrency)
    return altered(op, run, kind=RUN, bare=True, concurrency=concurrency)


def answered_in_turn(
    op: Operation, respond: Callable[[DoubleRequest], Any], *, bare: bool = False
) -> Operation:
    """Return an operation of a double that calls `respond` in a turn."""

    def turn(agent: Any, *args: Any) -> Any:
        return respond(DoubleRequest(agent, op, args))

    return altered(op, turn, kind=TURN, bare=bare)


class NoValue(NotAllowed, AttributeError):
    """Raised when a double's property that has no value is read."""


class _Double:
    """The base class placed before the agent class, so that none of the original's own code runs."""

    __contract__: ClassVar[Contract]
    double_values: ClassVar[dict[str, Any]]
    """Values of properties by attribute; they go before constructor arguments and defaults."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Compile no contract, as the double uses the original's with another table."""

    def __init__(self, *_: object, **given: object) -> None:
        """Accept the original's arguments, but use only those that are values of properties."""
        for made in self.__contract__.properties.values():
            name = made.attribute
            value = self.double_values.get(name, given.get(name, NOTHING))
            if value is NOTHING:
                value = made.factory() if made.factory is not None else made.default
            if value is not NOTHING:
                setattr(self, name, value)

    def on_exit(self, down: Down) -> None:
        """Do nothing, as links do not affect a double."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_prop_"):
            title = self.__contract__.title
            raise NoValue(f"property {name[6:]!r} of this double of {title} has no value: set one")
        raise AttributeError(f"a double of {self.__contract__.title} has no {name!r}", name=name, obj=self)


def double_of(
    cls: type[A], alter: Callable[[str, Operation], Operation], values: Mapping[str, Any]
) -> type[A]:
    """Make a class that stands in for an agent class.

    `alter` gets each key of the table with its operation, and returns the operation to use instead. `values`
    are the values of properties, by attribute.
    """
    contract = copy(cls.__contract__)
    contract.table = {key: alter(key, _ungated(op)) for key, op in contract.table.items()}
    contract.has_started = contract.has_lifespan = contract.has_children = False
    contract.periodic = contract.durable_periodic = ()
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__contract__": contract,
        "double_values": dict(values),
    }
    metaclass = cast("Any", type(cls))
    return cast("type[A]", metaclass(cls.__name__, (_Double, cls), body))


def _ungated(op: Operation) -> Operation:
    """Return an operation that is allowed in every behaviour, as a double has no behaviours."""
    if op.when is None:
        return op
    open_op = altered(op, op.fn, kind=TURN if op.kind == GATED else None)
    open_op.when = None
    return open_op


class _EndSink:
    """A sink that reports every end of an incarnation at once."""

    def __init__(self, on_end: Callable[[Down], None]) -> None:
        self._on_end = on_end

    def push(self, value: Down) -> None:
        """Report the end of an incarnation."""
        self._on_end(value)

    def gap(self, reason: str, missed: int | None) -> None:
        """Do nothing, as ends are reported at once and none can be missing."""

    def close(self) -> None:
        """Do nothing when the slot is permanently empty."""


def on_each_end(ref: Ref[Any], on_end: Callable[[Down], None]) -> None:
    """Call a function for every incarnation of an agent that ends, in the step in which it ends.

    Raises NotFound if there is no such agent.
    """
    slot = slot_of(ref)
    if slot.state == GONE:
        raise slot.closed_error()
    slot.sinks().add(MONITORS, _EndSink(on_end))
