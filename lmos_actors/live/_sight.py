"""The agents whose inside a viewer may see: node-wide views leave out what is inside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from lmos_actors.actors import Slot
from lmos_actors.bindings import public_name
from lmos_actors.supervision import Pool, Supervisor, place_at

if TYPE_CHECKING:
    from lmos_actors.security import Admission, Verb

    from ._merge_patch import State

REMEMBERED: Final = 4_096

USES: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")
"""The rights of those who use an agent."""


class RightsArguments(Struct, forbid_unknown_fields=True):
    """The agent that the viewer asks about."""

    path: Annotated[str, Meta(max_length=4_096)]


class RightsView:
    """The rights of the viewer over one agent, or pool, over HTTP, by access lists; and its name there."""

    is_busy = False

    def __init__(self, root: Supervisor, admission: Admission, arguments: RightsArguments) -> None:
        self._root = root
        self._admission = admission
        self._path = arguments.path

    def content(self) -> State:
        """Return the name and the rights; `there` is whether it is an agent or a pool."""
        place, name = place_at(self._root, self._path), public_name(self._path)
        is_pool = isinstance(place, Supervisor) and isinstance(place.loop.made_from, Pool)
        may = [right for right in USES if self._admission.allows(name, right)]
        return {"name": name, "there": isinstance(place, Slot) or is_pool, "may": may}


class Sight:
    """Whether a viewer has a right over agents, by their paths; remembered, as views ask again and again."""

    def __init__(self, admission: Admission, right: Verb = "inspect") -> None:
        self._admission = admission
        self._right: Verb = right
        self._known: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        """Return whether the viewer has it over the agent at that path."""
        found = self._known.get(path)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[path] = self._admission.allows(public_name(path), self._right)
        return found
