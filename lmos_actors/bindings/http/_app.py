"""The ASGI application of a node; its parts are imported when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..exposure._access_middleware import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.security import Guard
    from lmos_actors.transport import App

    from ..exposure._descriptions import Descriptions
    from ..lmos._server import LmosServer


def http_app(
    descriptions: Descriptions,
    server: LmosServer,
    *,
    extra: Sequence[BaseRoute] = (),
    guard: Guard | None = None,
) -> App:
    """Return the application that serves a node's agents and their descriptions over HTTP.

    Below `/agents/NAME` are the descriptions and the forms of single agents; `/` has all descriptions,
    `/.well-known/wot` that of the only agent or else the node's own; `/NAME` leads to `/agents/NAME`. The
    routes `extra` go before those of the pages. `guard` decides which clients are let in, before all
    else; None lets all in.
    """
    from ._agents import AgentsOverHttp
    from ._pages import pages_of  # slow to import, and a node that only consumes needs none of it
    from ._requests import PREFIX

    agents, pages = AgentsOverHttp(descriptions, server), pages_of(descriptions, extra)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["raw_path"].startswith(PREFIX):
            await agents(scope, receive, send)
        else:
            await pages(scope, receive, send)

    return app if guard is None else guarded(app, guard)
