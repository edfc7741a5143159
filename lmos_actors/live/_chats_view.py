"""The view `chats`: the chat agents of the node that the viewer may talk to.

A chat agent is recognized by its actions, not by its class, which is in a layer above this file. Private
agents are left out, as only their own node may use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.supervision import agent_class

from ._tree_view import MOST_ROWS, Search

if TYPE_CHECKING:
    from lmos_actors.actors import Slot

    from ._merge_patch import State
    from ._node_tree import NodeTree
    from ._sight import Sight
    from ._trouble_views import NoArguments

ACTIONS: Final = frozenset({"chat", "sessions", "history", "forget"})
"""The actions that every chat agent has, by which the page talks to it."""


def chats_view(tree: NodeTree, invokes: Sight, _arguments: NoArguments) -> Search:
    """Return a view of the chat agents that the viewer may invoke; reopening it searches again."""
    classes: dict[type[Any], bool] = {}
    found: dict[Slot, type[Any]] = {}

    def matches(slot: Slot) -> bool:
        agent: Any = slot.agent
        cls: Any = agent.__class__ if agent is not None else agent_class(slot.spec)
        if cls is None:
            return False
        talks = classes.get(cls)
        if talks is None:
            contract = cls.__contract__
            talks = not contract.options.private and contract.actions.keys() >= ACTIONS
            classes[cls] = talks
        if not (talks and invokes(slot.path)):
            return False
        found[slot] = cls
        return True

    return Search(tree, matches, lambda slot: _row(slot, found[slot]), MOST_ROWS)


def _row(slot: Slot, cls: type[Any]) -> State:
    about = (cls.__doc__ or "").strip().partition("\n")[0]
    return {"class": cls.__name__, "status": slot.status, **({"about": about[:200]} if about else {})}
