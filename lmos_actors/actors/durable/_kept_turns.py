"""The form in which the turn of a durable timer is kept: the name of a method, and its arguments.

Arguments become plain data by the types of the method's parameters, as the fields of a durable class do. They
are restored as soon as they are stored. So a call with arguments that cannot be restored is refused, and a
turn gets the same values whether its agent has been restarted meanwhile or not.
"""

from __future__ import annotations

import inspect
from inspect import BoundArguments, Parameter, Signature
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors._core import signature_of
from lmos_actors.errors import hint_at, raise_interrupt

from ..declaration._affordances import Turn
from ..declaration._type_hints import types_of_method
from ._kept_state import check_type, hooks_of, state_converter, why_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._migrations import Plain

_STARS: Final = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


@attrs.frozen
class TurnForm:
    """The stored form of the turns of one method."""

    where: str
    signature: Signature
    hooks: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]
    """For each parameter: to plain data, and back."""

    def plain(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plain:
        """Return arguments as plain data, by parameter. Raises TypeError, naming one that cannot be kept."""
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.where}: {error}") from None
        plain: Plain = {}
        for name, value in given.items():
            try:
                plain[name] = msgspec.json.decode(msgspec.json.encode(self.hooks[name][0](value)))
                self.hooks[name][1](plain[name])
            except BaseException as error:
                raise_interrupt(error)
                why = why_refused(error)
                raise TypeError(
                    f"{self.where}: a durable timer cannot keep {name}={value!r}: {why}"
                ) from error
        return plain

    def restored(self, plain: Plain) -> dict[str, Any]:
        """Return stored arguments, by parameter. Raises TypeError if they do not fit the method."""
        unknown = [name for name in plain if name not in self.hooks]
        parameters = self.signature.parameters.values()
        missing = [p.name for p in parameters if p.default is Parameter.empty and p.name not in plain]
        if unknown or missing:
            what = f"takes no {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
            raise TypeError(f"{self.where} {what}")
        values: dict[str, Any] = {}
        for name, value in plain.items():
            try:
                values[name] = self.hooks[name][1](value)
            except BaseException as error:
                raise_interrupt(error)
                raise TypeError(f"{name!r} of {self.where}: {why_refused(error)}") from error
        return values

    def call(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments for a call of the method."""
        ordered = {name: values[name] for name in self.signature.parameters if name in values}
        bound = BoundArguments(self.signature, ordered)
        return bound.args, bound.kwargs


def turn_form(cls: Any, name: str) -> TurnForm:
    """Return the stored form of a method of a durable class, made at the first call.

    Raises AttributeError, with the nearest name, if the class has no such method, and TypeError for a method
    that no durable timer can run.
    """
    forms: dict[str, TurnForm] = cls.__contract__.state.turns
    form = forms.get(name)
    if form is None:
        form = forms[name] = _made(cls, name)
    return form


def method_of(cls: Any, name: str) -> Any:
    """Return the function behind a method, or None if there is no method with that name."""
    found = inspect.getattr_static(cls, name, None)
    return found.__wrapped__ if isinstance(found, Turn) else found  # pyright: ignore[reportUnknownVariableType]


def _made(cls: Any, name: str) -> TurnForm:
    where, method = f"{cls.__name__}.{name}", method_of(cls, name)
    if method is None:
        hint = hint_at(name, [each for each in dir(cls) if inspect.isfunction(method_of(cls, each))])
        raise AttributeError(f"{cls.__name__} has no method {name!r}{hint}")
    if not inspect.isfunction(method) or inspect.iscoroutinefunction(method):
        raise TypeError(f"{where}: a durable timer runs a method written def")
    hints = types_of_method(cls, name, method)
    converter = state_converter()
    parameters = [*signature_of(method).parameters.values()][1:]
    for each in parameters:
        if each.kind in _STARS:
            given = f"{_STARS[each.kind]}{each.name}"
            raise TypeError(f"{where}: a durable timer keeps its arguments by parameter, and not {given}")
        try:
            check_type(hints.get(each.name, Any), converter, f"{where}, parameter {each.name!r}")
        except TypeError as error:
            raise TypeError(f"{error}. A durable timer keeps the arguments of its turn") from None
    hooks = {each.name: hooks_of(each.name, hints[each.name], converter) for each in parameters}
    return TurnForm(where, Signature(parameters), hooks)
