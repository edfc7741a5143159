"""The types that an agent class declares for its affordances."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lmos_actors._core import Unknown, declared, place_of, type_of_field, types_of_function

from ..messages._invocation import Progress
from ..messages._operation import STREAM

if TYPE_CHECKING:
    from ._contract import Contract


def type_of_affordance(cls: type, name: str, kind: type) -> Any:
    """Return V of a field declared `name: Property[V]`. Raises TypeError."""
    for part in cls.__mro__:
        hint = type_of_field(part, name) if name in declared(part) else None
        if isinstance(hint, Unknown):
            return hint
        if get_origin(hint) is kind:
            return get_args(hint)[0]
    raise TypeError(f"{cls.__name__}.{name} needs its type: `{name}: {kind.__name__}[...] = ...`")


def types_of_method(cls: type, name: str, fn: Any) -> dict[str, Any]:
    """Return the types of a method's parameters and result, as seen by the class that defines it."""
    return types_of_function(fn, next((part for part in cls.__mro__ if name in vars(part)), cls))


def unreadable(cls: type, name: str, unknown: Unknown) -> TypeError:
    """Return the error for an attribute or method of a class whose type is unknown."""
    place = place_of(cls, name)
    return TypeError(
        f"{cls.__name__}.{name}{f' ({place})' if place else ''}: cannot read its type {unknown.text!r}: "
        f"{unknown.why}; {_FIX}"
    )


_FIX = "import it where the program runs, not for type checkers alone, or define it"


class UnknownPart(TypeError):
    """Raised for a type with a part whose name cannot be resolved at present."""

    def __init__(self, unknown: Unknown, where: str) -> None:
        super().__init__(f"{where}: cannot read the type {unknown.text!r}: {unknown.why}")
        self.unknown = unknown


def note_unread(cls: type, name: str, unknown: Unknown, contract: Contract, *, is_last: bool) -> None:
    """Note that a type of a member is not known yet. Raises TypeError if it cannot become known."""
    if is_last or unknown.for_good:
        raise unreadable(cls, name, unknown)
    contract.unread = True


def is_progress(hint: Any) -> bool:
    """Return whether a parameter's type is `Progress`."""
    return hint is Progress or get_origin(hint) is Progress


def streamed_item(hint: Any) -> Any:
    """Return the type of an item if a parameter's type is an input stream, else None."""
    kind = get_origin(hint) or hint
    if kind is not AsyncIterator and kind is not AsyncIterable:
        return None
    args = get_args(hint)
    return args[0] if args else Any


def output_of(hint: Any, kind: int) -> Any:
    """Return the type of an action's output: its result, or one item of its stream."""
    if kind != STREAM:
        return hint
    args = get_args(hint)
    return args[0] if args else Any
