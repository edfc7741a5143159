"""An additional address of a node, for one service only: agents cannot be reached there.

A launcher's node has one: commands reach its agents over a socket that only the owner may use, while browsers
need a network address to open its page.

Packages of the network are imported inside functions: a node without such an address loads none of them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from ._options import sessions_at, urls_at
from ._service import first_of
from ._traffic import BoundedWarnings

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from lmos_actors.actors import Runtime
    from lmos_actors.security import Guard
    from lmos_actors.transport import Refuse, Upgrade

    from ._lifecycle import NodeStages
    from ._options import RuntimeOptions
    from ._service import NodeService

NO_AGENTS: Final = "this address serves the page of a node, and none of its agents"


async def open_door(stages: NodeStages, options: RuntimeOptions, service: NodeService) -> str:
    """Serve one service at an additional address until the node stops. The node must be listening.

    Only the options about the address and its security are used; `listen` must have one address. Return
    the address for browsers. Raises ConfigError.
    """
    from lmos_actors.bindings import http_of
    from lmos_actors.transport import FrontDoor, default_network

    rt, connections, (endpoint,) = stages.rt, stages.connections, options.endpoints
    home = connections.home
    assert home is not None  # the node listens
    options.check_exposed()
    network = default_network() if options.network is None else options.network
    listener = await network.listen(endpoint)
    place = urls_at(endpoint, listener, named=True)[0]
    base = http_of(options.public_url or place)
    guard = _guard(options, rt, place)
    service.open(attrs.evolve(home, guard=guard, bases=(base,), drain=_nothing, views=dict))
    door = FrontDoor(
        listener,
        route=first_of([service], _no_agent),
        app=service.wrap(_nothing_there),
        tls=options.tls if endpoint.secure else None,
        on_failure=connections.note_failure,
        on_refusal=BoundedWarnings("TLS", real=rt.real).warn,
        now=rt.entropy.now,
        budget=connections.budget,
    )
    connections.add_door(door, listener, service)
    return f"{base}/"


def _guard(options: RuntimeOptions, rt: Runtime, place: str) -> Guard:
    from lmos_actors.security import Guard

    return Guard(
        options.effective_security(),
        wall=lambda: rt.entropy.now().timestamp(),
        hosts=options.host_names(named=True),
        public_url=options.public_url,
        report=partial(logging.getLogger("lmos_actors").error, "security of the page: %s"),
        operations=options.allow_operations,
        sessions=sessions_at(options, place),
    )


def _nothing() -> None:
    """Do nothing: a service at an additional address cannot drain the node."""


def _no_agent(_upgrade: Upgrade) -> Refuse:
    from lmos_actors.transport import Refuse

    return Refuse(404, NO_AGENTS)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    from lmos_actors.bindings.http import HttpError, problem_response

    await problem_response(HttpError(404, NO_AGENTS))(scope, receive, send)
