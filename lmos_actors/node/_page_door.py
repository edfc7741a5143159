"""A page of a node at an address of its own: people look at the node there, and its agents are not reached.

The node of a launcher has one: its agents are for commands, over a socket that only its owner may use, and
the page is for browsers, which have to come by an address.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.bindings import http_of
from lmos_actors.bindings.http import HttpError, problem_response
from lmos_actors.live import LiveServer
from lmos_actors.security import Guard
from lmos_actors.transport import FrontDoor, Refuse

from ._options import urls_at
from ._page_views import sessions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from lmos_actors._core import Budget
    from lmos_actors.actors import Runtime
    from lmos_actors.live import AuditEntry, OwnOperations, StartSoon
    from lmos_actors.supervision import Supervisor
    from lmos_actors.transport import Listener, Network, Upgrade

    from ._options import NodeOptions

NO_AGENTS: Final = "this address serves the page of a node, and none of its agents"


@attrs.frozen(kw_only=True)
class PageDoor:
    """The page of a node at an address of its own: the door, its listener, the live view and the URL."""

    listener: Listener
    door: FrontDoor
    live: LiveServer
    url: str


async def page_door(
    options: NodeOptions,
    network: Network,
    rt: Runtime,
    root: Supervisor,
    *,
    own: OwnOperations,
    noted: Callable[[AuditEntry], None],
    start_soon: StartSoon,
    report: Callable[[str], None],
    on_failure: Callable[[BaseException], None],
    on_refusal: Callable[[str], None],
    budget: Budget,
) -> PageDoor:
    """Listen for the page, and return its door, which does not serve yet. Raises ConfigError.

    Of `options` those count that say where it is and who is let in; `listen` has one address. `own` are the
    operations that there are, and `noted` is called with each that has ended.
    """
    (endpoint,) = options.endpoints
    options.check_exposed()
    listener = await network.listen(endpoint)
    place = urls_at(endpoint, listener, named=True)[0]
    url = http_of(options.public_url or place)
    guard = Guard(
        options.effective_security(),
        wall=lambda: rt.entropy.now().timestamp(),
        hosts=options.host_names(named=True),
        public_url=options.public_url,
        report=report,
        operations=options.allow_operations,
        sessions=sessions_of(options, place),
    )
    live = LiveServer(
        rt, root, guard=guard, url=url, start_soon=start_soon, drain=_nothing, looks={}, own=own, noted=noted
    )
    door = FrontDoor(
        listener,
        route=partial(live.route, _no_agent),
        app=live.page(_nothing_there),
        tls=options.tls if endpoint.secure else None,
        on_failure=on_failure,
        on_refusal=on_refusal,
        now=rt.entropy.now,
        budget=budget,
    )
    return PageDoor(listener=listener, door=door, live=live, url=f"{url}/")


def _nothing() -> None:
    """Drain nothing: the operation is not among those of this page."""


def _no_agent(_upgrade: Upgrade) -> Refuse:
    return Refuse(404, NO_AGENTS)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    await problem_response(HttpError(404, NO_AGENTS))(scope, receive, send)
