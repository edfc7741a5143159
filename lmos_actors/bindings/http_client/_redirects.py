"""Redirects that are followed, for requests by the pool and for descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import resolve
from lmos_actors.transport import leads_astray

from ._stream import BadAnswer, place_at

if TYPE_CHECKING:
    from lmos_actors.transport import Endpoint

    from ._stream import Head

REDIRECTS: Final = 5

AGAIN: Final = (307, 308)
"""Statuses that redirect any request, with its method and its body."""

READ: Final = (301, 302, 303)
"""Statuses that redirect only reads: other requests would have to become GETs (RFC 9110, 15.4)."""

_WEB: Final = ("http://", "https://")


def redirected(head: Head, *, safe: bool = True, local: bool = False) -> tuple[str, Endpoint] | None:
    """Return the URL that an answer redirects to; None if it is no redirect.

    With `safe`, the request only reads. With `local`, a redirect may lead from another host to this machine.
    Raises BadAnswer for a redirect that leaves TLS, leads to this machine without permission, or has no
    address.
    """
    location = head.header(b"location")
    if not location or not (head.status in AGAIN or (safe and head.status in READ)):
        return None
    url = resolve(head.url, location).partition("#")[0]
    try:
        there = place_at(url)
        if not url.lower().startswith(_WEB):
            raise ConfigError(f"{url!r} is not an HTTP URL")
    except ConfigError as error:
        raise BadAnswer(f"it redirects to an invalid address: {error.message}") from None
    if place_at(head.url).secure and not there.secure:
        raise BadAnswer(f"it redirects to {url}, which is not secure")
    if not local and leads_astray(head.url, url):
        raise BadAnswer(f"it redirects to {there.host!r}, which is another host there than here")
    return url, there
