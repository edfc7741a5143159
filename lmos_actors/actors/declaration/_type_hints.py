"""The types that an agent class declares, read from annotations with or without quotes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from ..messages._invocation import Progress
from ..messages._operation import STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping


class Hints:
    """The annotations of one class, read where it is made: its own names, its module, the caller's locals."""

    __slots__ = ("_cls", "_namespace")

    def __init__(self, cls: type, namespace: Mapping[str, Any]) -> None:
        self._cls = cls
        self._namespace = dict(namespace)

    def of_function(self, fn: Any, name: str) -> dict[str, Any]:
        """Return the types of a function's parameters and of its result. Raises TypeError."""
        try:
            return get_type_hints(fn, localns=self._namespace, include_extras=True)
        except NameError as exc:
            raise TypeError(
                f"{self._cls.__name__}.{name}: {exc}; its types must be known when the class is made"
            ) from None

    def of_field(self, name: str, kind: type) -> Any:
        """Return V of a field declared `name: Property[V]`. Raises TypeError."""
        for part in self._cls.__mro__:
            hint = vars(part).get("__annotations__", {}).get(name)
            if hint is None:
                continue
            if isinstance(hint, str):
                hint = self._evaluate(hint, part, name)
            args = get_args(hint)
            if get_origin(hint) is kind and args:
                quoted = getattr(args[0], "__forward_arg__", None)
                return args[0] if quoted is None else self._evaluate(quoted, part, name)
        raise TypeError(f"{self._cls.__name__}.{name} needs its type: `{name}: {kind.__name__}[...] = ...`")

    def _evaluate(self, text: str, part: type, name: str) -> Any:
        known = vars(sys.modules[part.__module__])
        try:
            return eval(text, known, self._namespace)
        except Exception as exc:
            raise TypeError(
                f"{self._cls.__name__}.{name}: cannot read its type {text!r}: {exc}; "
                f"it must be known when the class is made"
            ) from None


def is_progress(hint: Any) -> bool:
    """Return whether a parameter's type asks for a `Progress`."""
    return hint is Progress or get_origin(hint) is Progress


def streamed_item(hint: Any) -> Any:
    """Return the type of an item if a parameter's type asks for an input stream, else None."""
    kind = get_origin(hint) or hint
    if kind is not AsyncIterator and kind is not AsyncIterable:
        return None
    args = get_args(hint)
    return args[0] if args else Any


def output_of(hint: Any, kind: int) -> Any:
    """Return the type of the output of an action: of its result, or of one item of a stream."""
    if kind != STREAM:
        return hint
    args = get_args(hint)
    return args[0] if args else Any
