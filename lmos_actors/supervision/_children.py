"""The children of one supervisor as it knows them: by name, and by what their specs make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from lmos_actors.actors import DEFAULT_MAILBOX

from ._factory import class_of

if TYPE_CHECKING:
    from lmos_actors.actors import MailboxOptions, Status

    from ._spec import ChildSpec

C = TypeVar("C")


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

    Children that were started by the thousand from one spec are not in the table: they are known by their
    number alone.
    """

    __slots__ = ("_counted", "_named", "_numbers")

    def __init__(self) -> None:
        self._named: dict[str, C] = {}
        self._numbers: dict[str, int] = {}  # by base name: the last number given
        self._counted: dict[str, int] = {}  # of those: the last that `reserve` gave

    def __iter__(self) -> Any:
        return iter(self._named)

    def get(self, name: str) -> C | None:
        """Give the child of that name, None if the table has none."""
        return self._named.get(name)

    def give(self, name: str, child: C) -> None:
        """Call a child so from now on."""
        self._named[name] = child

    def forget(self, name: str, child: C) -> None:
        """Free the name, if it is still that child's."""
        if self._named.get(name) is child:
            del self._named[name]

    def clear(self) -> None:
        """Forget everybody; numbers stay used up."""
        self._named.clear()

    def first_free(self, base: str) -> str:
        """Give the first free of the names `base`, `base-2`, `base-3`, …"""
        name = base
        while name in self._named:
            self._numbers[base] = self._numbers.get(base, 1) + 1
            name = f"{base}-{self._numbers[base]}"
        return name

    def reserve(self, base: str, count: int) -> int:
        """Use up `count` numbers, and give the first: after all that children called `base-n` have had."""
        taken = [int(name[len(base) + 1 :]) for name in self._named if _is_numbered(name, base)]
        first = max(self._numbers.get(base, 0), *taken, 0) + 1
        self._numbers[base] = self._counted[base] = first + count - 1
        return first

    def is_counted(self, name: str) -> bool:
        """Say whether the name may be that of a child known by its number alone."""
        base, _, number = name.rpartition("-")
        return number.isdecimal() and 0 < int(number) <= self._counted.get(base, 0)


def _is_numbered(name: str, base: str) -> bool:
    head, _, number = name.rpartition("-")
    return head == base and number.isdecimal()


def agent_class(spec: ChildSpec[Any]) -> type[Any] | None:
    """Give the agent class a spec makes, through partials; None when only a call would tell."""
    return class_of(spec.factory)


def mailbox_of(spec: ChildSpec[Any]) -> MailboxOptions:
    """Give the mailbox of a spec's agents: the spec's own, else that of the class, else the default."""
    options: MailboxOptions | None = spec.mailbox
    if options is None:
        contract = _contract_of(spec)
        options = contract.mailbox if contract is not None else None
    return options or DEFAULT_MAILBOX


def needs_waiting(spec: ChildSpec[Any]) -> bool:
    """Say whether starting an agent of this spec may have to wait: for its lifespan or its children."""
    contract = _contract_of(spec)
    return contract is None or bool(contract.has_lifespan or contract.has_children)


def _contract_of(spec: ChildSpec[Any]) -> Any:
    return getattr(agent_class(spec), "__contract__", None)
