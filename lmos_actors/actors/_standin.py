"""Agents that stand for a class without being it, and operations that carry out something else.

A stand-in is a subclass of the agent class it stands for, so that `find`, refs and handles take it for one.
Nothing of the original's own life runs: no constructor, no `started`, no lifespan, no periodic turn. Its
properties and events are the real ones; its maker gives what its actions do.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from lmos_actors.errors import NotAllowed

from .declaration._affordances import NOTHING
from .finding._registry import slot_of
from .messages._gates import GONE
from .messages._invocation import CURRENT, Run
from .messages._observers import MONITORS
from .messages._operation import GATED, TURN, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._agent import Agent
    from ._ref import Ref
    from .declaration._contract import Contract
    from .messages._mailbox import Envelope
    from .messages._monitor import Down

A = TypeVar("A", bound="Agent")


class Altered(Operation):
    """An operation with another function in the place of its own.

    It equals the original, so that runs and lines of both are counted together.
    """

    __slots__ = ("original",)

    def __init__(
        self,
        original: Operation,
        fn: Callable[..., Any],
        *,
        kind: int | None = None,
        bare: bool = False,
        concurrency: int | None = None,
    ) -> None:
        """`bare`: the function gets no `Progress`, and what it gives is not checked."""
        for name in Operation.__slots__:
            setattr(self, name, getattr(original, name))
        self.original: Operation = getattr(original, "original", original)
        self.fn = fn
        if kind is not None:
            self.kind = kind
        if concurrency is not None:
            self.concurrency = concurrency
        if bare:
            self.give = _unchecked
            self.progress = None

    def __eq__(self, other: object) -> bool:
        return self.original is getattr(other, "original", other)

    def __hash__(self) -> int:
        return hash(self.original)


def _unchecked(value: Any, /) -> Any:
    return value


class NoValue(NotAllowed, AttributeError):
    """A property of a stand-in was read that nobody has given a value."""


class Standin:
    """The base that goes before the agent class: it keeps the original's own life from running."""

    __contract__: ClassVar[Contract]
    standin_values: ClassVar[dict[str, Any]]
    """Values of properties by attribute; they go before constructor arguments and defaults."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Compile nothing: the contract is the original's but for its table."""

    def __init__(self, *_: object, **given: object) -> None:
        """Take what the original takes, and use of it the values of properties."""
        for made in self.__contract__.properties.values():
            name = made.attribute
            value = self.standin_values.get(name, given.get(name, NOTHING))
            if value is NOTHING:
                value = made.factory() if made.factory is not None else made.default
            if value is not NOTHING:
                setattr(self, name, value)

    def on_exit(self, down: Down) -> None:
        """Nothing of the original's: links leave a stand-in as it is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_prop_"):
            title = self.__contract__.title
            raise NoValue(f"property {name[6:]!r} of this stand-in for {title} has no value: give it one")
        raise AttributeError(f"a stand-in for {self.__contract__.title} has no {name!r}", name=name, obj=self)


def stand_in(
    cls: type[A], alter: Callable[[str, Operation], Operation], values: Mapping[str, Any]
) -> type[A]:
    """Make a class that stands for an agent class.

    `alter` is given each key of the table with its operation and gives the operation that takes its place.
    """
    contract = copy(cls.__contract__)
    contract.table = {key: alter(key, _ungated(op)) for key, op in contract.table.items()}
    contract.has_started = contract.has_lifespan = contract.has_children = False
    contract.periodic = ()
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__contract__": contract,
        "standin_values": dict(values),
    }
    metaclass = cast("Any", type(cls))
    return cast("type[A]", metaclass(cls.__name__, (Standin, cls), body))


def _ungated(op: Operation) -> Operation:
    """Return an operation that every behaviour allows: a stand-in has none of its own."""
    if op.when is None:
        return op
    open_op = Altered(op, op.fn, kind=TURN if op.kind == GATED else None)
    open_op.when = None
    return open_op


def current_envelope() -> Envelope | None:
    """Return the message that the present run carries out, None outside a run."""
    run = CURRENT.get()
    return run.envelope if isinstance(run, Run) else None


class _Ends:
    """A sink that hands every end of an incarnation on at once."""

    def __init__(self, tell: Callable[[Down], None]) -> None:
        self._tell = tell

    def push(self, value: Down) -> None:
        """An incarnation has ended."""
        self._tell(value)

    def gap(self, reason: str, missed: int | None) -> None:
        """Nothing is missing from what is handed on at once."""

    def close(self) -> None:
        """The slot is empty for good."""


def on_each_end(ref: Ref[Any], tell: Callable[[Down], None]) -> None:
    """Call a function, in the step in which it happens, for every incarnation of an agent that ends.

    Raises NotFound when there is no such agent.
    """
    slot = slot_of(ref)
    if slot.state == GONE:
        raise slot.closed_error()
    slot.sinks().add(MONITORS, _Ends(tell))
