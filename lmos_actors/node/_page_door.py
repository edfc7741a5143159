"""A page of a node at an address of its own: people look at the node there, and its agents are not reached.

The node of a launcher has one: its agents are for commands, over a socket that only its owner may use, and
the page is for browsers, which have to come by an address.

Packages of the network are imported inside functions: a node without such a page loads none of them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ._options import urls_at
from ._page_views import sessions_of
from ._traffic import BoundedWarnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from lmos_actors.actors import Runtime
    from lmos_actors.live import AuditEntry, OwnOperations
    from lmos_actors.security import Guard
    from lmos_actors.transport import Refuse, Upgrade

    from ._lifecycle import NodeStages
    from ._options import NodeOptions

NO_AGENTS: Final = "this address serves the page of a node, and none of its agents"


async def open_page(
    stages: NodeStages,
    options: NodeOptions,
    own: OwnOperations,
    noted: Callable[[AuditEntry], None],
) -> str:
    """Serve the page of a node that listens at an address of its own, until the end of the node.

    Of `options` those count that say where it is and who is let in; `listen` has one address. `own` are the
    operations that there are, and `noted` is called with each that has ended. Return the address for
    browsers. Raises ConfigError.
    """
    from lmos_actors.bindings import http_of
    from lmos_actors.live import LiveServer
    from lmos_actors.transport import FrontDoor, default_network

    rt, connections, (endpoint,) = stages.rt, stages.connections, options.endpoints
    options.check_exposed()
    network = default_network() if options.network is None else options.network
    listener = await network.listen(endpoint)
    place = urls_at(endpoint, listener, named=True)[0]
    url = http_of(options.public_url or place)
    live = LiveServer(
        rt,
        stages.root,
        guard=_guard(options, rt, place),
        url=url,
        start_soon=connections.start_soon,
        drain=_nothing,
        looks={},
        failed=connections.note_failure,
        own=own,
        noted=noted,
    )
    door = FrontDoor(
        listener,
        route=partial(live.route, _no_agent),
        app=live.page(_nothing_there),
        tls=options.tls if endpoint.secure else None,
        on_failure=connections.note_failure,
        on_refusal=BoundedWarnings("TLS", real=rt.real).warn,
        now=rt.entropy.now,
        budget=connections.budget,
    )
    connections.add_door(door, listener, live)
    return f"{url}/"


def _guard(options: NodeOptions, rt: Runtime, place: str) -> Guard:
    from lmos_actors.security import Guard

    return Guard(
        options.effective_security(),
        wall=lambda: rt.entropy.now().timestamp(),
        hosts=options.host_names(named=True),
        public_url=options.public_url,
        report=partial(logging.getLogger("lmos_actors").error, "security of the page: %s"),
        operations=options.allow_operations,
        sessions=sessions_of(options, place),
    )


def _nothing() -> None:
    """Drain nothing: the operation is not among those of this page."""


def _no_agent(_upgrade: Upgrade) -> Refuse:
    from lmos_actors.transport import Refuse

    return Refuse(404, NO_AGENTS)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    from lmos_actors.bindings.http import HttpError, problem_response

    await problem_response(HttpError(404, NO_AGENTS))(scope, receive, send)
