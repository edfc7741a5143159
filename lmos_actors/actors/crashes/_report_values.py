"""The values in a crash report, with their names and secrecy: an agent's fields and its messages."""

from __future__ import annotations

from functools import partial
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lmos_actors._core import types_of_function

from ..declaration._contract import outline_of
from ..declaration._history import unwrapped
from ..messages._mailbox import Envelope, InternalTurn
from ..messages._operation import Operation
from ..values import WHOLE, Discreet, is_agent_class, secrecy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..values import Secrecy

    Values: TypeAlias = dict[str, tuple[Any, Secrecy]]

_UNSHOWN: Final = ("_slot", "_history")


def fields_of(cls: type | None, values: Mapping[str, Any]) -> Values:
    """Return the fields of an agent by their names in its class; `values` is the agent's `__dict__`.

    They include secret fields with values in the class, for example if the class has its own `__init__`.
    """
    found = _fields_in(cls, values)
    for name, secrecy in _hidden_of(cls).items():
        value: Any = getattr_static(cls, name, None) if name not in found else None
        if value is not None and getattr_static(value, "__get__", None) is None:
            found[name] = (value, secrecy)
    return found


def _fields_in(cls: type | None, values: Mapping[str, Any]) -> Values:
    hidden = _hidden_of(cls)
    names = {
        name: "behaviour" if name == "_behaviour" else name.removeprefix("_prop_")
        for name in values
        if name not in _UNSHOWN
    }
    return {shown: (values[name], hidden.get(shown, 0)) for name, shown in names.items()}


def _hidden_of(cls: type | None) -> dict[str, int]:
    contract = outline_of(cls)
    return contract.hidden if contract is not None else {}


def class_made_by(factory: Any) -> Any:
    """Return the class of the agents that a spec's factory makes, or None if it cannot be determined."""
    while isinstance(factory, partial):
        factory = factory.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return factory if isinstance(factory, type) else None  # pyright: ignore[reportUnknownVariableType]


def fields_given(factory: Any) -> Values:
    """Return the fields with which an agent was to be made, if its spec shows them."""
    fn, given = _unfold(factory)
    if is_agent_class(fn):
        known = {field.alias: field.name for field in attrs.fields(fn)}
        fields = _fields_in(fn, {known[name]: value for name, value in given.items() if name in known})
        return fields | {name: (value, WHOLE) for name, value in given.items() if name not in known}
    hidden = _secrecies(fn, given)
    return {name: (value, hidden[name]) for name, value in given.items()}


def _secrecies(fn: Any, names: Iterable[str]) -> dict[str, int]:
    """Return the secrecy of a function's parameters; all are secret if its types cannot be read."""
    try:
        hints = types_of_function(fn)
        return {name: secrecy_of(hints.get(name)) for name in names}
    except Exception:
        return dict.fromkeys(names, WHOLE)


def _unfold(factory: Any) -> tuple[Any, dict[str, Any]]:
    """Return the function or class that a factory calls, and the arguments that it passes by name."""
    given: dict[str, Any] = {}
    while isinstance(factory, partial):
        made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
        given = {**made.keywords, **given}
        factory = made.func
    return factory, given


class Message:
    """One message as a report shows it."""

    def __init__(
        self, op: Operation | None, fn: Any, args: tuple[Any, ...], sender: Any, entry: Any = None
    ) -> None:
        self.op = op
        self.fn = fn
        self.args = args
        self.sender = sender
        self.entry = entry

    @property
    def name(self) -> str:
        """The affordance, or the method of a timer."""
        return self.op.name if self.op is not None else str(getattr(self.fn, "__qualname__", "a function"))

    @property
    def verb(self) -> str:
        """The verb of the operation, or `turn` if there is no operation."""
        return self.op.verb if self.op is not None else "turn"

    def values(self) -> Values:
        """The arguments by name, each with its degree of secrecy."""
        op = self.op
        if op is None:
            return _arguments(self.fn, self.args)
        if op.verb in ("observe", "subscribe", "subscribe to all"):
            return {}
        hidden: tuple[Secrecy, ...] = op.secrecies or (0,) * len(self.args)
        shown = zip(op.params, self.args, hidden, strict=False)
        return {p.wire_name: (value, secrecy) for p, value, secrecy in shown}


def message_of(item: Any) -> Message | None:
    """Return an item of a mailbox as a message, or None if the item is no message."""
    if isinstance(item, Envelope):
        return Message(item.op, None, item.args, item.sender)
    if isinstance(item, InternalTurn) and item.fn is not None:
        return Message(None, *unwrapped(item.fn, item.args), None)
    if isinstance(item, tuple):
        op, args, sender = item  # pyright: ignore[reportUnknownVariableType]
        if isinstance(op, Operation):
            return Message(op, None, args, sender)  # pyright: ignore[reportUnknownArgumentType]
    return None


def _arguments(fn: Any, args: tuple[Any, ...]) -> Values:
    """Return the arguments of a timer's turn by name, or by number if the function has no names for them."""
    discreet = fn.secrecy if isinstance(fn, Discreet) else 0
    fn = fn.fn if isinstance(fn, Discreet) else fn
    code = getattr(fn, "__code__", None)
    names: tuple[str, ...] = ()
    if code is not None:
        names = code.co_varnames[hasattr(fn, "__self__") : code.co_argcount + code.co_kwonlyargcount]
    hidden = _secrecies(getattr(fn, "__func__", fn), names)
    numbers = (f"argument {place}" for place in range(1, len(args) + 1))
    shown = zip((*names, *numbers), args, strict=False)
    return {name: (value, discreet or hidden.get(name, 0)) for name, value in shown}
