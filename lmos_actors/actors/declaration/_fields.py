"""The attrs fields of an agent class, which are its state, made from its annotations."""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast, get_origin

import attrs

from lmos_actors._core import declared, signature_of, type_of_field, unknown_argument
from lmos_actors.errors import hint_at

from ..values import is_agent_class
from ._affordances import NOTHING, Event, Property

if TYPE_CHECKING:
    from collections.abc import Iterable

MUTABLE: Final = (list, dict, set, bytearray, deque)
HOOKS: Final = ("started", "lifespan", "supervises", "on_exit")


def check_members(cls: type, own_verbs: frozenset[str]) -> None:
    """Reject members of a class body that must be mistakes, such as a default without an annotation.

    `own_verbs` are the runtime's names that must not be overridden. Raises TypeError.
    """
    annotated = declared(cls)
    for name, value in vars(cls).items():
        if name in own_verbs:
            raise TypeError(f"{cls.__name__}.{name}: the name is the agent's own, choose another")
        _check_hook(cls, name, value)
        if name == "lifespan" and (inspect.isasyncgenfunction(value) or inspect.iscoroutinefunction(value)):
            raise TypeError(f"{cls.__name__}.lifespan needs @asynccontextmanager above it")
        if isinstance(value, MUTABLE) and name not in annotated and not name.startswith("__"):
            kind = type(cast("object", value)).__name__
            raise TypeError(
                f"{cls.__name__}.{name} can be changed, and all agents of the class would share it; "
                f"as state: `{name}: {kind}[...] = attrs.field(factory={kind})`, "
                f"as a constant: a tuple or a `ClassVar`"
            )


def _check_hook(cls: type, name: str, value: Any) -> None:
    """Refuse a hook, or a turn of `@every`, that does not accept the runtime's arguments."""
    given = "the Down" if name == "on_exit" else "nothing"
    if not inspect.isfunction(value) or not (name in HOOKS or hasattr(value, "__lmos_every__")):
        return
    try:
        signature_of(value).bind(*("self", "down") if name == "on_exit" else ("self",))
    except TypeError as exc:
        raise TypeError(f"{cls.__name__}.{name} is called with {given} beside self: {exc}") from None


def check_defaults(cls: type) -> None:
    """Refuse `attrs.field(default=[])`: all agents of the class would share it. Raises TypeError."""
    for field in attrs.fields(cls):
        default: object = field.default
        if isinstance(default, MUTABLE):
            raise _shared(cls, field.name, cast("object", default))


def _shared(cls: type, name: str, value: object) -> TypeError:
    return TypeError(
        f"{cls.__name__}.{name}: a default that can be changed would be shared by all agents; "
        f"use attrs.field(factory={type(value).__name__})"
    )


def collect_fields(cls: type, reserved: frozenset[str]) -> dict[str, Any]:
    """Return the attrs fields for a class's own annotations, without events and class variables.

    A class lists in `_fields_of_body` the fields that a subclass may set again without an annotation.
    """
    fields: dict[str, Any] = {}
    again: tuple[str, ...] = getattr(cls, "_fields_of_body", ())
    own = {name: type_of_field(cls, name) for name in again if name in vars(cls)} | declared(cls)
    for name, hint in own.items():
        value = vars(cls).get(name, NOTHING)
        if name in reserved:
            raise TypeError(f"{cls.__name__}.{name}: the name is the agent's own, choose another")
        is_class_variable = (get_origin(hint) or hint) is ClassVar or _outermost(hint) == "ClassVar"
        if is_class_variable or isinstance(value, Event):
            continue
        if isinstance(value, Property):
            made: Property[Any] = value  # pyright: ignore[reportUnknownVariableType]
            if made.factory is not None:
                fields[name] = attrs.field(factory=made.factory, alias=name)
            else:
                fields[name] = attrs.field(default=made.default, alias=name)
        elif isinstance(value, _CountingAttr):
            fields[name] = value
        else:
            if isinstance(value, MUTABLE):
                raise _shared(cls, name, cast("object", value))
            if isinstance(value, dataclasses.Field):
                raise TypeError(f"{cls.__name__}.{name}: use attrs.field(...), not that of dataclasses")
            maker = _maker_of(hint)
            if maker is not None:
                raise TypeError(
                    f"{cls.__name__}.{name} is declared but not made: write `= {maker}` after its type"
                )
            fields[name] = attrs.field(default=value, alias=name)
    return fields


_CountingAttr: Final[Any] = type(cast("object", attrs.field()))


def name_nearest_field(error: BaseException, cls: Any) -> None:
    """Add the most similar field to the TypeError for an unknown argument of an agent class."""
    found = unknown_argument(error)
    if found is None or not is_agent_class(cls) or found[0] != f"{cls.__qualname__}.__init__()":
        return
    hint = hint_at(found[1], [field.alias for field in attrs.fields(cls) if field.init])
    error.args = (f"{found[0]} got an unexpected keyword argument '{found[1]}'{hint}",)


def _outermost(hint: Any) -> str:
    """Return the outer type's name in an annotation kept as text, without its module, or ""."""
    return _text(hint).strip("'\"").partition("[")[0].rpartition(".")[2]


def _text(hint: Any) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", "")


def _maker_of(hint: Any) -> str | None:
    """Return the call that an affordance's annotation needs as its value, or None for plain state."""
    text = _text(hint)
    is_foreign = "." in text and "[" not in text  # as `trio.Event`, kept as text and without a type of values
    text = "" if is_foreign else _outermost(hint)
    if get_origin(hint) is Property or text == "Property":
        return "prop(default=...)"
    return "event()" if get_origin(hint) is Event or text == "Event" else None


def mentions(things: Iterable[object], names: frozenset[str]) -> bool:
    """Return whether the code of any of these functions, or of a nested function, uses one of the names."""
    found = [getattr(inspect.unwrap(getattr(thing, "fget", thing)), "__code__", None) for thing in things]  # type: ignore[arg-type]
    codes: list[CodeType] = [code for code in found if isinstance(code, CodeType)]
    for code in codes:  # which grows by the functions inside
        if not names.isdisjoint(code.co_names):
            return True
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return False


def import_log(cls: type) -> None:
    """Import the modules that `self.log` needs, if the code of a class seems to use it.

    Importing them takes long, and the first line of a log would otherwise do so in the middle of a turn.
    """
    if mentions(vars(cls).values(), _LOG):
        import_module("structlog")


_LOG: Final = frozenset({"log"})
