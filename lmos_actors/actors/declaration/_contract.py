"""The contract of an agent class, and when its types are read: with the class, or at its first use.

A class may name types that are defined further down, in another cell of a notebook, or in a module that
imports its own. Types that are known when the class is made are checked there. If a type is unknown then, the
class has an *outline* in place of its contract, which lacks only these types. Code that needs them reads
`__contract__` as usual. The first access reads the whole class, and returns the contract or raises the
TypeError that the class statement would have raised.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ._options import ClassOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..messages._operation import Operation
    from ._affordances import Action, Event, Property, StreamAction, Turn


class Contract:
    """The compiled contract of an agent class: everything that it offers."""

    __slots__ = (
        "actions", "answers", "behaviours", "doc", "durable_periodic", "events", "guarded", "has_children",
        "has_lifespan", "has_started", "hidden", "mailbox", "options", "periodic", "properties", "rename",
        "serial", "state", "table", "title", "unread",
    )  # fmt: skip

    def __init__(self, title: str, doc: str | None) -> None:
        self.title = title
        self.doc = inspect.cleandoc(doc or "")
        """The class's own description of its agents; empty where only its bases have one."""
        self.table: dict[str, Operation] = {}
        self.properties: dict[str, Property[Any]] = {}
        self.actions: dict[
            str, Turn[Any, ..., Any] | Action[Any, ..., Any, Any] | StreamAction[Any, ..., Any]
        ] = {}
        self.answers: str | None = None  # the action that answers questions in plain words
        self.events: dict[str, Event[Any]] = {}
        self.periodic: tuple[tuple[float, str], ...] = ()
        self.durable_periodic: tuple[tuple[float, str], ...] = ()
        self.has_lifespan = False
        self.has_children = False
        self.has_started = False
        self.rename: str | None = None
        self.serial = False
        self.mailbox: Any = None
        self.options = ClassOptions()
        self.behaviours: tuple[str, ...] = ()
        self.hidden: dict[str, int] = {}  # fields that are not shown as they are
        self.state: Any = None  # the `StateForm` of a durable class, which stands above this file
        self.guarded = False  # some value of it is secret: texts are searched for such
        self.unread = False  # some type is unknown yet


class UnreadContract:
    """The descriptor that replaces `__contract__` until all types of the class have been read."""

    def __init__(self, cls: Any, outline: Contract, read: Callable[[], Contract], place: str) -> None:
        self.outline = outline
        self._cls = cls
        self._read = read
        self._place = place

    def __get__(self, instance: object, owner: type) -> Contract:
        """Read the types of the class. Raises TypeError for a type that is still unknown or not accepted."""
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
    """Return the known part of a class's contract without reading types; None if it is no agent class."""
    parts: tuple[type, ...] = getattr(cls, "__mro__", ())
    for part in parts:
        if "__contract__" in vars(part):
            found: Any = vars(part)["__contract__"]
            return found.outline if isinstance(found, UnreadContract) else found
    return None
