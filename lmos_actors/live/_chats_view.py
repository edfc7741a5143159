"""The view `chats`: the chat agents of the node, of those that the viewer may talk to.

They are found as a search is, step by step, as there may be very many agents; and anew when the view is
opened again. A chat agent is known by its actions, not by its class: that stands above this file. Private
ones are for their node alone.
"""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.supervision import agent_class, agents_of

from ._tree_view import FIND_SECONDS

if TYPE_CHECKING:
    from lmos_actors.actors import Slot
    from lmos_actors.supervision import Supervisor

    from ._merge_patch import State
    from ._sight import Sight
    from ._trouble_views import NoArguments

MOST: Final = 300

ACTIONS: Final = frozenset({"chat", "sessions", "history", "forget"})
"""Those that every chat agent has, by which the page talks to it."""


class ChatsView:
    """The chat agents that the viewer may invoke."""

    def __init__(self, root: Supervisor, invokes: Sight, _arguments: NoArguments) -> None:
        self._invokes = invokes
        self._rest = agents_of(root)
        self._found: list[tuple[Slot, type[Any]]] = []
        self._classes: dict[type[Any], bool] = {}
        self.is_busy = True
        """Whether there is more to be searched."""

    def content(self) -> State:
        """Search on, and return the rows; `complete` once all agents have been looked at."""
        until = perf_counter() + FIND_SECONDS
        while self.is_busy and perf_counter() < until:
            some = list(islice(self._rest, 100))
            for slot in some:
                self._look_at(slot)
            self.is_busy = bool(some) and len(self._found) < MOST
        rows = {slot.path: _row(slot, cls) for slot, cls in self._found[:MOST]}
        return {"order": list(rows), "rows": rows, "complete": not self.is_busy and len(self._found) < MOST}

    def _look_at(self, slot: Slot) -> None:
        agent: Any = slot.agent
        cls: Any = agent.__class__ if agent is not None else agent_class(slot.spec)
        if cls is None:
            return
        talks = self._classes.get(cls)
        if talks is None:
            is_reached = not cls.__contract__.options.private
            talks = self._classes[cls] = is_reached and cls.__contract__.actions.keys() >= ACTIONS
        if talks and self._invokes(slot.path):
            self._found.append((slot, cls))


def _row(slot: Slot, cls: type[Any]) -> State:
    about = (cls.__doc__ or "").strip().partition("\n")[0]
    return {"class": cls.__name__, "status": slot.status, **({"about": about[:200]} if about else {})}
