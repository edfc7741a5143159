"""When the types of an agent class are read: as it is made, or when it is first used.

A class may name what is defined further down, in another cell of a notebook, or in a module that imports its
own. What is known when the class is made is checked there. If a type is unknown then, the class has an
*outline* in the place of its contract: all but these types. Whatever needs them asks for `__contract__`, as
ever; the first to ask has the class read as a whole, and gets the contract, or the TypeError that the class
statement would have raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._contract import Contract


class UnreadContract:
    """The descriptor that is `__contract__` of a class until all of its types are read."""

    def __init__(self, cls: Any, outline: Contract, read: Callable[[], Contract], place: str) -> None:
        self.outline = outline
        self._cls = cls
        self._read = read
        self._place = place

    def __get__(self, instance: object, owner: type) -> Contract:
        """Read the types of the class. Raises TypeError for one that is still unknown, or not accepted."""
        try:
            contract = self._read()
        except TypeError as error:
            error.__dict__.setdefault(CLASS_PLACE, self._place)
            raise
        self._cls.__contract__ = contract
        return contract


CLASS_PLACE = "lmos_actors_class"
"""The attribute of an error about a class read late that says where the class statement is: `file:line`."""


def outline_of(cls: Any) -> Contract | None:
    """Return the contract of a class as far as it is known, and read no types; None for what is no agent."""
    parts: tuple[type, ...] = getattr(cls, "__mro__", ())
    found: Any = next((vars(part)["__contract__"] for part in parts if "__contract__" in vars(part)), None)
    return found.outline if isinstance(found, UnreadContract) else found
