"""Uploading a file to the address that a server names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.bindings.http_client import WebRequest
from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import answered

from .._http import exchange

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lmos_actors.transport import Network

    Headers = tuple[tuple[bytes, bytes], ...]

SECONDS: Final = 600.0
"""Seconds for a whole upload."""

ACCEPTED: Final = (200, 201, 202, 204)


async def put_file(
    network: Network,
    url: str,
    data: bytes,
    mime_type: str,
    tls: ssl.SSLContext | None,
    headers_for: Callable[[str], Headers],
) -> None:
    """Upload a file by PUT. Raises ConnectFailed, with the `status` of a refusal, and DeadlineExceeded."""
    headers = ((b"Content-Type", mime_type.encode()), *headers_for(url))
    answer = await exchange(network, WebRequest("PUT", url, body=data), headers, tls, seconds=SECONDS)
    head = answer.head
    if head.status not in ACCEPTED:
        raise ConnectFailed(url, answered(head.status, head.reason, ""), status=head.status)
