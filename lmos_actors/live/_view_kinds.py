"""The kinds of views of a node: who may open each of them, and how it is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ._agent_view import AgentArguments, AgentView
from ._audit import audit_state
from ._chats_view import chats_view
from ._crash_text import CrashRows
from ._flow import Flow, FlowArguments, FlowView
from ._groups_view import GroupsView, LogsArguments, all_approvals_state, logs_state
from ._node_tree import NodeTree
from ._node_views import ApprovalsArguments, MadeView, made_by_node
from ._rights_views import RightsArguments, own_agents_view, rights_state
from ._tree_view import FindArguments, FindView, TopArguments, TreeArguments, TreeView, top_state
from ._trouble_views import (
    CrashesArguments,
    CrashesView,
    NoArguments,
    dead_letters_state,
    waiting_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.node import ServiceHome
    from lmos_actors.security import Admission, Verb

    from ._audit import Audit
    from ._operations import Operations
    from ._survey import Survey
    from ._viewer import View

Scope: TypeAlias = Literal["tree", "node", "agent", "agents", "some", "all"]


@attrs.frozen
class ViewKind:
    """A kind of view: who may open it, its arguments, and the function that makes it.

    `scope` defines who may open the view:

    - `tree`: viewers who see the tree.
    - `node`: viewers with the right `inspect` for the node as a whole.
    - `agent`: viewers with this right for the agent at the path among the arguments.
    - `agents`: viewers with this right for the agents at all paths among the arguments.
    - `some`: viewers with this right for any agent.
    - `all`: every viewer; the view hides what its viewer may not see.

    With `sight`, the view gets the agents over which its viewer has this right, and shows the inner state of
    these alone. With `by_viewer`, it gets the viewer's admission.
    """

    scope: Scope
    arguments: type[Any]
    make: Callable[..., View]
    sight: Verb | None = None
    by_viewer: bool = False


def _kind(
    scope: Scope,
    arguments: type[Any],
    make: Callable[..., View],
    *given: object,
    sight: Verb | None = None,
    by_viewer: bool = False,
) -> ViewKind:
    """Return a kind of view whose `make` gets the `given` values before the viewer's arguments."""
    return ViewKind(scope, arguments, partial(make, *given), sight, by_viewer)


def view_kinds(
    home: ServiceHome,
    survey: Survey,
    operations: Operations,
    audit: Audit,
    sees_tree: Callable[[Admission], bool],
    *,
    serves_agents: bool,
) -> dict[str, ViewKind]:
    """Return all kinds of views, by name."""
    rt, root, rows, made = home.rt, home.root, CrashRows(), home.views()
    tree = NodeTree(root, survey)
    fitting, flow = operations.fitting, Flow(rt, root, home.start_soon)
    rights = partial(rights_state, rt, fitting, serves_agents)
    return {
        # first, as no service may put a view of its own in the place of one below
        **{name: _kind("node", NoArguments, MadeView, made_by_node, make) for name, make in made.items()},
        "tree": _kind("tree", TreeArguments, TreeView, tree),
        "find": _kind("tree", FindArguments, FindView, tree),
        "top": _kind("tree", TopArguments, MadeView, top_state, tree),
        "agent": _kind("agent", AgentArguments, AgentView, rt, root, rows),
        "waiting": _kind("node", NoArguments, MadeView, waiting_state, rt),
        "dead letters": _kind("node", NoArguments, MadeView, dead_letters_state, rt, sight="inspect"),
        "approvals": _kind("all", ApprovalsArguments, MadeView, all_approvals_state, root, sight="approve"),
        "chats": _kind("all", NoArguments, chats_view, tree, sight="invoke"),
        "rights": _kind("all", RightsArguments, MadeView, rights, by_viewer=True),
        "agents": _kind("all", NoArguments, own_agents_view, tree, by_viewer=True),
        "groups": _kind("all", NoArguments, GroupsView, root, sees_tree, fitting, by_viewer=True),
        "logs": _kind("some", LogsArguments, MadeView, logs_state, root, sight="inspect"),
        "audit": _kind("node", NoArguments, MadeView, audit_state, root, audit, sight="inspect"),
        "crashes": _kind("node", CrashesArguments, CrashesView, rt, rows, sight="inspect"),
        "flow": _kind("agents", FlowArguments, FlowView, flow, sight="inspect"),
    }
