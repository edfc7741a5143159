"""The application that answers plain HTTP; what it is made of is imported when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ._descriptions import Descriptions


def http_app(descriptions: Descriptions) -> Starlette:
    """Make the application that serves these descriptions (DECISIONS W4).

    `/agents/NAME` one of them, `/` all, `/.well-known/wot` the only one or else the node's own;
    `/NAME` leads to `/agents/NAME`.
    """
    from ._pages import pages_of  # takes long, and whoever only consumes has no use for it

    return pages_of(descriptions)
