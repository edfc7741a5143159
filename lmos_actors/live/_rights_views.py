"""The views `rights` and `agents`: what a viewer may do at one place, and the agents that it may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from lmos_actors.bindings import is_private, public_name

from ._sight import Sight
from ._tree_view import MOST_ROWS, Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime
    from lmos_actors.security import Admission, Verb

    from ._merge_patch import State
    from ._node_tree import NodeTree
    from ._trouble_views import NoArguments

USES: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")
"""The rights to use an agent."""


class RightsArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: the path of the agent whose rights are requested."""

    path: Annotated[str, Meta(max_length=4_096)]


def rights_state(
    rt: Runtime,
    fitting: Callable[[str], list[str]],
    serves: bool,
    admission: Admission,
    arguments: RightsArguments,
) -> State:
    """Return the viewer's rights at one path: to use the agent over HTTP, and to operate on it.

    The rights come from access lists. `fitting` returns the operations that apply to a path now; `serves` is
    whether agents can be used at the address of the page. In the result, `there` is whether the viewer may
    use the agent or pool at the path, which must not be private.
    """
    name, allows = public_name(arguments.path), admission.allows
    operations = fitting(arguments.path) if allows(name, "operate") else []
    found: Any = None if rt.resolver is None or not serves else rt.resolver.at(arguments.path)
    is_reached = found is not None and not is_private(found)
    may = [right for right in USES if allows(name, right)] if is_reached else []
    return {"name": name, "there": bool(may), "may": may, "operations": operations}


def own_agents_view(tree: NodeTree, admission: Admission, _arguments: NoArguments) -> Search:
    """Return a view of the agents that the viewer may inspect or operate, for viewers without the tree.

    Opening the view again starts a new search.
    """
    sights = [Sight(admission, right) for right in ("inspect", "operate")]
    return Search(tree, lambda slot: any(sees(slot.path) for sees in sights), tree.row_of, MOST_ROWS)
