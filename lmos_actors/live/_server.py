"""The server of the live view: it decides which viewers are admitted and which views they may open.

A node has such a server once it listens. The server costs nothing while nobody looks: the survey waits, and
no view is computed.

On a node without security, at an address of this machine, every viewer sees the tree and its counts;
everything else requires `allow_operations`. On a node with schemes, a viewer is admitted with one of the
rights `inspect`, `operate` and `approve` over anything. Each view then requires its own right: `inspect` for
the node as a whole (the name "", which the pattern `*` matches), or for the agent whose inner state the view
shows.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import LEAVING, ServedConnections, presented_in, principal_of, public_name
from lmos_actors.node import NodeService
from lmos_actors.security import PERSONAL, Refusal
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ._audit import Audit
from ._messages import SUBPROTOCOL, Do, FromNode, Hello, Refused, Wrong
from ._operations import NODE_WIDE, Operations
from ._options import PageOptions
from ._page import Page, software
from ._sight import Sight
from ._survey import Survey
from ._viewer import Pace, Viewer, kind_and_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.node import ServiceHome
    from lmos_actors.security import Admission, Guard
    from lmos_actors.transport import App, Connection, Upgrade

    from ._audit import AuditEntry
    from ._operations import OwnOperations
    from ._view_kinds import ViewKind
    from ._viewer import View

PATH: Final = "/live"
"""The path of the WebSocket."""


NOT_OWN: Final = "the live view is for the node's own page, and for programs that are no page"

NODE: Final = ""
"""The name of the node as a whole, for access lists."""

FLAG: Final = "--allow-operations"

SHUTDOWN: Final = (1001, "server shutdown")
CROWDED: Final = (1013, "others look, too: the oldest of your windows is closed")

OPTIONS: Final = ConnectionOptions(
    max_message_bytes=256 << 10, messages_per_second=100, needs_pongs=True, write_seconds=10.0
)


class LiveServer(NodeService):
    """The service that offers the live view of a node and its page, within the limits of `options`.

    `own` are operations that replace the usual ones on agents. `noted` is called with the audit entry of each
    operation that has ended.
    """

    name = "page"
    logs_people_in = True

    def __init__(
        self,
        own: OwnOperations | None = None,
        noted: Callable[[AuditEntry], None] = lambda entry: None,
        options: PageOptions | None = None,
    ) -> None:
        self._options = PageOptions() if options is None else options
        self._full = full_of(self._options)
        self._own, self._noted = own, noted
        self._serves_agents = own is None
        self._viewers = ServedConnections[Viewer](self._options.viewers, full=self._full)
        self._crowded_out: dict[Viewer, None] = {}
        """The viewers whose connection is being closed to make room for others."""
        self._pace = Pace()

    def open(self, home: ServiceHome) -> None:
        """Store the node, whose guard decides which viewers are admitted."""
        self._home = home
        self._guard, self._failed, self._url = home.guard, home.failed, home.url
        self._root, self._start_soon = home.root, home.start_soon
        self._started = home.rt.entropy.now().timestamp()
        self._survey = Survey(home.root, home.start_soon)
        self._audit = Audit(home.rt, home.url, self._noted, self._options.audit_entries)
        self._operations = Operations(home.root, self._audit, home.start_soon, home.drain, self._own)
        self.page_url = f"{home.url}/"

    @cached_property
    def _kinds(self) -> dict[str, ViewKind]:
        """All kinds of views, by name; their modules are imported at the first use."""
        from ._view_kinds import view_kinds

        serves, sees = self._serves_agents, self._sees_tree
        return view_kinds(self._home, self._survey, self._operations, self._audit, sees, serves_agents=serves)

    # ---- which connections

    def wrap(self, app: App) -> App:
        """Return an application that serves the page, and passes all other requests on to `app`."""
        return Page(app, self._guard, self._may_look)

    def accept(self, upgrade: Upgrade) -> Accept | Refuse | None:
        """Decide about an upgrade for the live view; return None for any other upgrade."""
        if upgrade.path != PATH and SUBPROTOCOL not in upgrade.offered:
            return None
        admission = admitted(self._guard, upgrade)
        if isinstance(admission, Refuse):
            return admission
        if self._viewers.draining:
            return LEAVING
        if not self._may_look(admission):
            return Refuse(403, "this takes the right inspect, operate or approve for some agent")
        if not self._has_room(principal_of(admission)):
            return Refuse(503, self._full)
        return Accept(SUBPROTOCOL, partial(self._serve, admission=admission), options=OPTIONS)

    def _has_room(self, principal: str | None) -> bool:
        """Return whether one more viewer is admitted.

        If the server is full, the oldest connection of the principal with the most connections is closed to
        make room, provided that this principal has at least two more than the new viewer's.
        """
        if not self._viewers.is_full():
            return True
        staying = [viewer for viewer in self._viewers if viewer not in self._crowded_out]
        counts = Counter(viewer.principal for viewer in staying)
        crowd, most = counts.most_common(1)[0]
        if most <= counts[principal] + 1 or len(self._crowded_out) >= self._options.viewers // 2:
            return False
        oldest = next(viewer for viewer in staying if viewer.principal == crowd)
        self._crowded_out[oldest] = None
        oldest.close(*CROWDED)
        return True

    def _may_look(self, admission: Admission) -> bool:
        """Return whether a client may look at anything that the live view shows."""
        return self._guard.security.is_open or any(admission.has_somewhere(right) for right in PERSONAL)

    def _sees_tree(self, admission: Admission) -> bool:
        return self._guard.security.is_open or admission.allows(NODE, "inspect")

    @enable_ki_protection
    async def _serve(self, connection: Connection, *, admission: Admission) -> None:
        hello = Hello(
            software=software(),
            node=self._url,
            started=self._started,
            viewer="" if admission.principal is None else admission.principal.name,
            rights=[right for right in PERSONAL if admission.allows(NODE, right)],
            operations=self._operations.names,
            views=self._views(admission),
        )
        do = partial(self._do, admission)
        opens = partial(self._open, admission)
        viewer = Viewer(connection, hello, opens, admission, do, self._pace, self._failed, self._options)
        with self._viewers.served(viewer):
            self._survey.begin()
            self._start_soon(self._load_audit, name="audit log of the live view")
            try:
                await viewer.run()
            finally:
                self._survey.end()
                self._crowded_out.pop(viewer, None)

    async def _load_audit(self) -> None:
        try:
            await self._audit.load()
        except Exception as error:  # from a user's store: no node ends because somebody looks
            self._failed(error)

    # ---- which views

    def _open(self, admission: Admission, name: str, arguments: dict[str, Any]) -> View:
        """Open a view by its name. Raises Refused."""
        kind, taken = kind_and_arguments(self._kinds, name, arguments)
        for about in _named(kind, taken):
            if not self._may_see(admission, kind, about):
                raise Refused("FORBIDDEN", self._why_not("inspect", about))
        if kind.by_viewer:
            return kind.make(admission, taken)
        if kind.sight is None:
            return kind.make(taken)
        return kind.make(Sight(admission, kind.sight), taken)

    def _may_see(self, admission: Admission, kind: ViewKind, about: str = NODE) -> bool:
        """Return whether a viewer may open a view; `about` is the name of the agent that it is about."""
        if kind.scope == "all":
            return True
        if kind.scope == "some":
            return admission.has_somewhere("inspect")
        return self._sees_tree(admission) if kind.scope == "tree" else admission.allows(about, "inspect")

    def _views(self, admission: Admission) -> list[str]:
        """Return the views that a viewer may open, `groups` and `logs` only if there are any.

        Views for users of agents are left out if no agent can be used at this address. `agent` and `flow`
        are included if the viewer can open them for some agent, and `agents` if it does not see the tree
        but may inspect or operate some agent.
        """
        from ._groups_view import has_approvals, has_groups

        shown = {name: kind for name, kind in self._kinds.items() if self._may_see(admission, kind)}
        if admission.has_somewhere("inspect"):
            shown |= {name: self._kinds[name] for name in ("agent", "flow")}
        runs_some = admission.has_somewhere("inspect") or admission.has_somewhere("operate")
        if self._sees_tree(admission) or not runs_some:
            del shown["agents"]
        if not has_groups(self._root):
            shown.pop("groups", None)
            shown.pop("logs", None)
        if not self._serves_agents:
            del shown["chats"]
            if not (has_approvals(self._root) and admission.has_somewhere("approve")):
                del shown["approvals"]
        return sorted(shown)

    def _why_not(self, right: str, about: str) -> str:
        """Return why a viewer lacks a right, and what would grant it."""
        if self._guard.security.is_open:
            return (
                f"on a node without security this takes allow_operations "
                f"({FLAG} where serve has started it), and a viewer on its own machine"
            )
        whole = "the node as a whole (the pattern *)"
        return f"this takes the right {right} for {about or whole}, in the access lists of the node"

    # ---- operations

    def _do(self, admission: Admission, do: Do, reply: Callable[[FromNode], None]) -> None:
        """Carry out an operation for a viewer; see `Operations`."""
        if not admission.valid(trio.current_time()):
            reply(Wrong("FORBIDDEN", "the credentials are not valid any more", do.id))
            return
        about = NODE if do.what in NODE_WIDE else public_name(do.path)
        right = self._operations.right_for(do.what)
        why_not = "" if admission.allows(about, right) else self._why_not(right, about)
        who = "" if admission.principal is None else admission.principal.name
        if not (self._serves_agents or admission.allows(about, "inspect")):
            reply = _WithoutReasons(reply)
        self._operations.ask(do, who, why_not, reply)

    # ---- draining

    def on_drain(self) -> None:
        """Close all connections; the viewers reconnect to the next node at this address."""
        self._viewers.draining = True
        for viewer in self._viewers:
            viewer.close(*SHUTDOWN)

    async def wait_done(self) -> None:
        """Wait until no viewer is left."""
        await self._viewers.wait_done()


@attrs.frozen
class _WithoutReasons:
    """A reply that hides why an operation failed, as the reason may quote the output of a process."""

    reply: Callable[[FromNode], None]

    def __call__(self, message: FromNode) -> None:
        if isinstance(message, Wrong) and message.code == "FAILED":
            message = Wrong("FAILED", "it has failed; to see why takes the right inspect", message.id)
        self.reply(message)


def full_of(options: PageOptions) -> str:
    """Return the reason given when no more viewers are admitted."""
    return f"{options.viewers} viewers look already"


def admitted(guard: Guard, upgrade: Upgrade) -> Admission | Refuse:
    """Return the admission of an upgrade for a live view, or why it is refused."""
    presented = presented_in(upgrade)
    admission = guard.admit(presented, trio.current_time())
    if isinstance(admission, Refusal):
        return Refuse(admission.status, admission.reason, admission.headers)
    if guard.comes_from_other_page(presented):
        return Refuse(403, NOT_OWN)
    if upgrade.path != PATH or SUBPROTOCOL not in upgrade.offered:
        return Refuse(404, f"the live view is at {PATH}, with the subprotocol {SUBPROTOCOL}")
    return admission


def _named(kind: ViewKind, arguments: Any) -> list[str]:
    """Return the access-list names of the agents, or of the node, that a view is about."""
    if kind.scope == "agents":
        return [public_name(path) for path in arguments.paths]
    return [public_name(arguments.path) if kind.scope == "agent" else NODE]
