"""Which agent of a node has which id, and which names its root's children may not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors._errors import ConfigError, IdTaken

from ._spec import ChildSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.actors import LocalLink

    from ._spec import Spec


class Ids:
    """The ids of the agents of one node, in all of its supervisors.

    An agent has its id for as long as its slot is there: also while it is stopped or between two lives.
    """

    __slots__ = ("_slots", "reserved")

    def __init__(self) -> None:
        self._slots: dict[str, LocalLink] = {}
        self.reserved: tuple[str, ...] = ()
        """The names that children of the root may not have: the node serves something else under them."""

    def get(self, id: str) -> LocalLink | None:
        """Give the slot of the agent with that id, None if there is none."""
        return self._slots.get(id)

    def check(self, specs: Iterable[Spec], owner: object) -> None:
        """Raise IdTaken if an agent has the id of one of these already, other than a child of `owner`."""
        for spec in specs:
            held = self._slots.get(spec.id) if isinstance(spec, ChildSpec) and spec.id is not None else None
            if held is not None and held.owner is not owner:
                raise IdTaken(held.spec.id, held.path)

    def check_name(self, name: str) -> None:
        """Raise ConfigError if a child of the root may not be called so."""
        if name in self.reserved:
            raise ConfigError(
                f"an agent cannot be called {name!r}: the node serves something else at /{name}"
            )

    def take(self, slot: LocalLink) -> None:
        """Have the agent be found by its id from now on, if it has one; `check` comes before."""
        if slot.spec.id is not None:
            self._slots[slot.spec.id] = slot

    def free(self, slot: LocalLink) -> None:
        """Let others have the agent's id: its child spec is gone."""
        if self._slots.get(slot.spec.id) is slot:
            del self._slots[slot.spec.id]
