"""Single requests over HTTP, each on a new connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors.bindings.http_client import (
    BadAnswer,
    HttpStream,
    Unanswered,
    Unsendable,
    WebAnswer,
    connect_failed,
)
from lmos_actors.errors import ConfigError, ConnectFailed, DeadlineExceeded
from lmos_actors.transport import endpoint_of, is_here

if TYPE_CHECKING:
    import ssl

    from lmos_actors.bindings.http_client import WebRequest
    from lmos_actors.transport import Network

    Headers = tuple[tuple[bytes, bytes], ...]


async def exchange(
    network: Network,
    request: WebRequest,
    headers: Headers,
    tls: ssl.SSLContext | None,
    *,
    seconds: float,
    most: int = 64 << 10,
) -> WebAnswer:
    """Send a request, and return its answer of at most `most` bytes.

    Raise ConnectFailed if there is no usable answer, DeadlineExceeded after `seconds`, and ConfigError for a
    request that cannot be sent.
    """
    url = request.url
    endpoint = endpoint_of(url)
    with trio.move_on_after(seconds):
        stream = HttpStream(
            await network.connect(attrs.evolve(endpoint, elsewhere=not is_here(endpoint.host)), tls)
        )
        try:
            head = await stream.ask(request, ((b"Connection", b"close"), *headers), None)
            return WebAnswer(head, await stream.body(most))
        except Unsendable as error:
            raise ConfigError(f"the request to {url} cannot be sent: {error}") from None
        except Unanswered as error:
            raise connect_failed(url, error, secure=endpoint.secure) from error
        except BadAnswer as error:
            raise ConnectFailed(url, f"{error}") from error
        finally:
            await stream.aclose()
    raise DeadlineExceeded(url, seconds)
