"""Properties, actions and events, and the typed handles by which consumers name them.

`Weather.units` on the class is a handle; on an instance it is the value. The type of a handle contains its
agent class (contravariantly, so that a subclass accepts its base's handles) and the types that go in and out.
So a type checker can check `ref.read(Weather.units)` without further knowledge of the agent.

The types here are for people and checkers. The operations of messages are compiled from them, once per class,
by `_contract_compiler.py`.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import attrs

from lmos_actors.errors import AgentUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from ..values import Shape

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
G = TypeVar("G")
G_co = TypeVar("G_co", covariant=True)
P = ParamSpec("P")

NOTHING: Final[Any] = attrs.NOTHING


class EmittingSlot(Protocol):
    """The slot of an agent, as seen by its properties and events; see `Slot`."""

    extra: Any

    def property_changed(self, name: str, value: Any) -> None: ...
    def emit(self, event: Any, value: Any) -> None: ...


class Lives(Protocol):
    """The owner of a property or event descriptor, with the slot of its agent if it has one."""

    @property
    def _slot(self) -> EmittingSlot | None: ...


class PropertyHandle(Generic[A_contra, V]):
    """The handle of a property of agent class `A`: `Weather.units`."""

    __slots__ = ("name", "read_key", "write_key")

    name: str
    read_key: str
    write_key: str

    def to(self, value: V, /) -> Assignment[A_contra]:
        """Pair the handle with a value, for `ref.write_many`."""
        return Assignment(self, value)

    def __repr__(self) -> str:
        return f"<property {self.name}>"


class Assignment(Generic[A_contra]):
    """One write of a `write_many`: made by `Weather.units.to("kelvin")`."""

    __slots__ = ("handle", "value")

    def __init__(self, handle: PropertyHandle[A_contra, Any], value: object) -> None:
        self.handle = handle
        self.value = value


class Property(Generic[V]):
    """The declared type of a property field: `units: Property[str] = prop(default="celsius")`."""

    def __init__(
        self,
        *,
        default: Any = NOTHING,
        factory: Callable[[], V] | None = None,
        read_only: bool = False,
        write_only: bool = False,
        observable: bool = True,
        name: str | None = None,
        doc: str = "",
    ) -> None:
        self.default = default
        self.factory = factory
        self.read_only = read_only
        self.write_only = write_only
        self.observable = observable
        self.wire_name = name
        self.doc = doc
        self.attribute = ""
        self.hidden = ""
        self.handle: PropertyHandle[Any, V] = PropertyHandle()
        self.take: Callable[[Any], V] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name
        self.hidden = f"_prop_{name}"
        self.handle.name = self.wire_name or name

    @overload
    def __get__(self, instance: None, owner: type[A]) -> PropertyHandle[A, V]: ...
    @overload
    def __get__(self, instance: Lives, owner: type[Any]) -> V: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self.handle
        try:
            return getattr(instance, self.hidden)
        except AttributeError:
            raise AttributeError(
                f"property {self.attribute!r} has no value yet", name=self.attribute
            ) from None

    def __set__(self, instance: Lives, value: V) -> None:
        take = self.take
        if take is not None:
            value = take(value)
        setattr(instance, self.hidden, value)
        slot = instance._slot  # pyright: ignore[reportPrivateUsage] # the place its class keeps for this
        if slot is not None and slot.extra is not None:
            slot.property_changed(self.handle.name, value)


class EventHandle(Generic[A_contra, V_co]):
    """The handle of an event of agent class `A`: `Weather.asked`."""

    __slots__ = ("key", "name", "secrecy")

    name: str
    key: str
    secrecy: int

    def __repr__(self) -> str:
        return f"<event {self.name}>"


class Emitter(Generic[V]):
    """An event on an instance: `self.asked.emit("Bonn")`."""

    __slots__ = ("_event", "_slot")

    def __init__(self, event: Event[V], slot: EmittingSlot | None) -> None:
        self._event = event
        self._slot = slot

    def emit(self, value: V, /) -> None:
        """Send a value to all subscribers without waiting: a slow one loses its oldest, which is counted.

        Raises:
            TypeError: the value is not of the event's type, which is a bug of the agent.
        """
        slot = self._slot
        if slot is None:
            raise AgentUnavailable(
                "?", f"{self._event.handle.name} was emitted before the start or after the end"
            )
        slot.emit(self._event, value)


class Event(Generic[V]):
    """The declared type of an event field: `asked: Event[str] = event()`."""

    def __init__(self, *, name: str | None = None, doc: str = "", broadcast: bool = False) -> None:
        self.wire_name = name
        self.doc = doc
        self.broadcast = broadcast
        self.attribute = ""
        self.handle: EventHandle[Any, V] = EventHandle()
        self.take: Callable[[Any], V] | None = None
        self.shape: Shape[V] | None = None
        self.immutable = False
        self.secrecy = 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name
        self.handle.name = self.wire_name or name
        self.handle.secrecy = 0

    @overload
    def __get__(self, instance: None, owner: type[A]) -> EventHandle[A, V]: ...
    @overload
    def __get__(self, instance: Lives, owner: type[Any]) -> Emitter[V]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self.handle
        return Emitter(self, instance._slot)


class ActionOptions:
    """The arguments of `@action(...)`."""

    __slots__ = (
        "answers", "concurrency", "idempotent", "name", "on_disconnect", "postpone", "safe",
        "snapshot_safe", "synchronous", "when",
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: str | None,
        concurrency: int,
        on_disconnect: str,
        safe: bool,
        idempotent: bool,
        synchronous: bool | None,
        when: tuple[str, ...] | None,
        postpone: bool,
        snapshot_safe: bool,
        answers: bool | Mapping[str, Any] = False,
    ) -> None:
        self.answers: dict[str, Any] | None = (
            None if answers is False else {} if answers is True else dict(answers)
        )
        self.snapshot_safe = snapshot_safe
        self.name = name
        self.concurrency = concurrency
        self.on_disconnect = on_disconnect
        self.safe = safe
        self.idempotent = idempotent
        self.synchronous = synchronous
        self.when = when
        self.postpone = postpone


class _ActionHandle:
    """The base of the three kinds of action handle."""

    name: str
    owner: type
    """The class whose body has the action."""

    def __init__(self, fn: Callable[..., Any], options: ActionOptions) -> None:
        self.__wrapped__: Any = fn
        self.__doc__ = fn.__doc__
        self.options = options
        self.name = options.name or fn.__name__
        self.wire_names: dict[str, str] = {}  # the wire names of renamed parameters

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else self.__wrapped__.__get__(instance, owner)

    def __repr__(self) -> str:
        return f"<action {self.name}>"


class Turn(_ActionHandle, Generic[A_contra, P, R_co]):
    """The handle of an action written `def`, which runs from start to end in one step."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Turn[A_contra, P, R_co]: ...
        @overload
        def __get__(self, instance: Lives, owner: type[Any]) -> Callable[P, R_co]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...


class Action(_ActionHandle, Generic[A_contra, P, R_co, G_co]):
    """Names an action written `async def`: it needs time, may report progress, can be cancelled."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Action[A_contra, P, R_co, G_co]: ...
        @overload
        def __get__(self, instance: Lives, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...


class StreamAction(_ActionHandle, Generic[A_contra, P, R_co]):
    """The handle of an action written as an async generator, which has many outputs."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> StreamAction[A_contra, P, R_co]: ...
        @overload
        def __get__(self, instance: Lives, owner: type[Any]) -> Callable[P, AsyncIterator[R_co]]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...
