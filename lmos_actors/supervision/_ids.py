"""The ids of a node's agents, and the names that its root's children may not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError, IdTaken

from ._spec import ChildSpec, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.actors import Slot

    from ._spec import Spec


RESERVED: Final = (
    ".well-known", "agents", "api", "arc", "events", "healthz", "metrics", "openapi.json", "readyz", "search",
    "things", "ws",
)  # fmt: skip
"""What a node serves, or will serve, right below its address: no agent or pool at the root has such a name.

Whether the node listens makes no difference: a tree is the same everywhere. A supervisor is nothing that
others reach, and the names of those below it begin with its own.
"""


class Ids:
    """The ids of the agents of one node, in all of its supervisors.

    An agent has its id for as long as its slot is there: also while it is stopped or between two lives.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}

    def get(self, id: str) -> Slot | None:
        """Return the slot of the agent with that id, None if there is none."""
        return self._slots.get(id)

    def check(self, specs: Iterable[Spec], owner: object) -> None:
        """Raise IdTaken if an agent has the id of one of these already, other than a child of `owner`."""
        for spec in specs:
            held = self._slots.get(spec.id) if isinstance(spec, ChildSpec) and spec.id is not None else None
            if held is not None and held.owner is not owner:
                raise IdTaken(held.spec.id, held.path)

    def take(self, slot: Slot) -> None:
        """Have the agent be found by its id from now on, if it has one; `check` comes before."""
        if slot.spec.id is not None:
            self._slots[slot.spec.id] = slot

    def free(self, slot: Slot) -> None:
        """Let others have the agent's id: its child spec is gone."""
        if self._slots.get(slot.spec.id) is slot:
            del self._slots[slot.spec.id]


def check_top(spec: Spec) -> None:
    """Raise ConfigError if a child of the root may not be called as it is."""
    if spec.name in RESERVED and not isinstance(spec, SupervisorSpec):
        raise ConfigError(
            f"an agent cannot be called {spec.name!r}: the node serves something else at /{spec.name}"
        )
