"""Sending a file to where a server wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.bindings.http_client import (
    BadAnswer,
    HttpStream,
    Unanswered,
    Unsendable,
    WebRequest,
    connect_failed,
)
from lmos_actors.errors import ConfigError, ConnectFailed, DeadlineExceeded
from lmos_actors.transport import answered, endpoint_of, is_here

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lmos_actors.transport import Network

    Headers = tuple[tuple[bytes, bytes], ...]

SECONDS: Final = 600.0
"""For the whole of an upload."""

ACCEPTED: Final = (200, 201, 202, 204)


async def put_file(
    network: Network,
    url: str,
    data: bytes,
    mime_type: str,
    tls: ssl.SSLContext | None,
    headers_for: Callable[[str], Headers],
) -> None:
    """PUT a file. Raises ConnectFailed, with the `status` of a refusal; DeadlineExceeded."""
    endpoint = endpoint_of(url)
    headers = ((b"Content-Type", mime_type.encode()), (b"Connection", b"close"), *headers_for(url))
    with trio.move_on_after(SECONDS):
        stream = HttpStream(
            await network.connect(attrs.evolve(endpoint, elsewhere=not is_here(endpoint.host)), tls)
        )
        try:
            head = await stream.ask(WebRequest("PUT", url, body=data), headers, None)
        except Unsendable as error:
            raise ConfigError(f"the request to {url} cannot be sent: {error}") from None
        except Unanswered as error:
            raise connect_failed(url, error, secure=endpoint.secure) from error
        except BadAnswer as error:
            raise ConnectFailed(url, f"{error}") from error
        finally:
            await stream.aclose()
        if head.status not in ACCEPTED:
            raise ConnectFailed(url, answered(head.status, head.reason, ""), status=head.status)
        return
    raise DeadlineExceeded(url, SECONDS)
