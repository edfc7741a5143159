"""The children of one supervisor as it knows them: by name, and by what their specs make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import attrs

from lmos_actors.actors import DEFAULT_MAILBOX

from ._siblings import class_of

if TYPE_CHECKING:
    from lmos_actors.actors import MailboxOptions, Status

    from ._spec import ChildSpec

C = TypeVar("C", bound="Labelled")


class Labelled(Protocol):
    """What the names of children need to know of one."""

    @property
    def label(self) -> str:
        """The child's name in its supervisor."""
        ...


DIGITS: Final = 16
"""A number in a name has fewer than so many: nobody gets that far by counting."""


@attrs.frozen
class ChildInfo:
    """One child, as `which_children` shows it; `kind` is `agent` or `supervisor`."""

    name: str
    path: str
    kind: str
    status: Status
    incarnation: int


class Names(Generic[C]):
    """Who is called what, and which numbers are used up; numbers are kept over a supervisor's lives.

    Children that were started by the thousand, and those that nobody named, are not in the table: they are
    known by the name of their spec and a number of their own. Only who looks for one makes an index.
    """

    __slots__ = ("_chosen", "_index", "_named", "_numbers")

    def __init__(self) -> None:
        self._named: dict[str, C] = {}
        self._numbers: dict[str, int] = {}  # by base name: the last number given
        self._chosen: dict[str, int] = {}  # by base name: the highest number in a name that a spec has given
        self._index: dict[str, C] | None = None

    def __iter__(self) -> Any:
        return iter(self._named)

    def find(self, name: str, children: dict[C, None]) -> C | None:
        """Return the child of that name, None if there is none; `children` are all, in start order."""
        found = self._named.get(name)
        if found is not None or not self._is_counted(name):
            return found
        if self._index is None:
            self._index = {}
        found = self._index.get(name)
        if found is None:
            self._catch_up(self._index, children)
            found = self._index.get(name)
        return found if found in children else None

    @staticmethod
    def _catch_up(index: dict[str, C], children: dict[C, None]) -> None:
        """Index those who have come since the last time: they are the last."""
        for child in reversed(children):
            label = child.label
            if index.get(label) is child:
                return
            index[label] = child

    def give(self, name: str, child: C) -> None:
        """Call a child so from now on."""
        self._named[name] = child
        base, number = _parted(name)
        if number:
            self._chosen[base] = max(self._chosen.get(base, 0), number)

    def forget(self, name: str, child: C) -> None:
        """Free the name, if it is still that child's."""
        for names in (self._named, self._index):
            if names is not None and names.get(name) is child:
                del names[name]

    def clear(self) -> None:
        """Forget everybody; numbers stay used up."""
        self._named.clear()
        self._index = None

    def first_free(self, base: str) -> str:
        """Return the first free of the names `base`, `base-2`, `base-3`, …"""
        name = base
        while name in self._named:
            self._numbers[base] = self._numbers.get(base, 1) + 1
            name = f"{base}-{self._numbers[base]}"
        return name

    def next_number(self, base: str) -> int | None:
        """Use up the number of the first free of the names `base-2`, `base-3`, …; None if `base` is free."""
        if base not in self._named:
            return None
        number = self._numbers.get(base, 1) + 1
        if self._chosen and number <= self._chosen.get(base, 0):
            while f"{base}-{number}" in self._named:
                number += 1
        self._numbers[base] = number
        return number

    def reserve(self, base: str, count: int) -> int:
        """Use up `count` numbers, and return the first: after all that children called `base-n` have had."""
        taken = (number for head, number in map(_parted, self._named) if head == base)
        first = max(self._numbers.get(base, 0), *taken, 0) + 1
        self._numbers[base] = first + count - 1
        return first

    def _is_counted(self, name: str) -> bool:
        """Return whether the name may be that of a child known by its number alone."""
        base, number = _parted(name)
        return 0 < number <= self._numbers.get(base, 0)


def _parted(name: str) -> tuple[str, int]:
    """Return the base and the number of a name such as `echo-2`; the number of any other is 0."""
    base, dash, number = name.rpartition("-")
    return (base, int(number)) if dash and len(number) < DIGITS and number.isdecimal() else (name, 0)


def agent_class(spec: ChildSpec[Any]) -> type[Any] | None:
    """Return the agent class a spec makes, through partials; None when only a call would tell."""
    return class_of(spec.factory)


def mailbox_of(spec: ChildSpec[Any]) -> MailboxOptions:
    """Return the mailbox of a spec's agents: the spec's own, else that of the class, else the default."""
    options: MailboxOptions | None = spec.mailbox
    if options is None:
        contract = _contract_of(spec)
        options = contract.mailbox if contract is not None else None
    return options or DEFAULT_MAILBOX


def needs_waiting(spec: ChildSpec[Any]) -> bool:
    """Return whether starting an agent of this spec may have to wait: for its lifespan or its children."""
    contract = _contract_of(spec)
    return contract is None or bool(contract.has_lifespan or contract.has_children)


def _contract_of(spec: ChildSpec[Any]) -> Any:
    contract = getattr(spec.factory, "__contract__", None)
    return getattr(agent_class(spec), "__contract__", None) if contract is None else contract
