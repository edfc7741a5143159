"""The way out of a group: a gateway for all connections that its processes make.

This module contains both ends: the gate of a fault proxy, which reads the target of each client, and the
network of a process that connects through the gateway. They use HTTP CONNECT, as ordinary proxies do.

The reason is that a link between two groups must affect only the connections of these two groups, so the
origin and the target of each connection have to be known. The origin is the group to which the gateway
belongs, and CONNECT names the target. Processes see each other as before: addresses in the directory and in
descriptions are the real ones, hosts in certificates match, and a process that restarts at another port needs
no new setting. Separate proxies in place of the addresses would need one proxy for each pair of groups and
each replica, at ports that are known before the processes start, and a view of the directory for each group.
Failures are visible, too: a connection that cannot be made fails, instead of being made and then reset.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.transport import endpoint_of, secured

from ._fault_proxy import GONE, Route

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from lmos_actors.transport import Endpoint, Listener, Network

MOST_HEAD: Final = 4_096
"""Maximum bytes of a request or an answer."""

ASKED: Final = 10.0
"""Seconds for a client to name its target."""

END: Final = b"\r\n\r\n"
OK: Final = b"HTTP/1.1 200 Connected"
UNREACHABLE: Final = b"HTTP/1.1 502 "
REFUSED: Final = b"HTTP/1.1 400 CONNECT HOST:PORT is all that is done here"


@attrs.frozen
class Gateway:
    """The gate of a proxy whose clients name the server. `name_of` returns the name of a node by address."""

    name_of: Callable[[Endpoint], Awaitable[str]]

    async def ask(self, client: trio.abc.Stream) -> Route | None:
        """Read the target that a client names, and return its route, or None if there is no valid target."""
        try:
            with trio.fail_after(ASKED):
                to = _place_in(await _head(client))
        except GONE:
            return None
        except (ConfigError, ValueError, trio.TooSlowError):
            with suppress(*GONE):
                await client.send_all(REFUSED + END)
            return None
        return Route(to, await self.name_of(to))

    async def tell(self, client: trio.abc.Stream, failure: ConnectFailed | None) -> None:
        """Send the client the news that it is connected, or why the connection failed."""
        answer = OK
        if failure is not None:
            answer = UNREACHABLE + " ".join(failure.why.split()).encode()[: MOST_HEAD // 2]
        with suppress(*GONE):
            await client.send_all(answer + END)


class GatewayNetwork:
    """A `Network` that connects through a gateway; the gateway is reached over `within`."""

    def __init__(self, gateway: Endpoint, within: Network) -> None:
        self._gateway = gateway
        self._within = within

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connect through the gateway, or directly if the endpoint must be on another machine."""
        if endpoint.elsewhere:
            return await self._within.connect(endpoint, tls)
        stream = await self._within.connect(self._gateway, None)
        try:
            place = attrs.evolve(endpoint, secure=False).authority.encode("ascii")
            await stream.send_all(b"CONNECT " + place + b" HTTP/1.1\r\nHost: " + place + END)
            answer = await _head(stream)
        except (*GONE, ValueError) as error:
            await trio.aclose_forcefully(stream)
            raise ConnectFailed(endpoint.url, "the gateway has gone") from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        if not answer.startswith(OK):
            await trio.aclose_forcefully(stream)
            raise ConnectFailed(endpoint.url, answer.removeprefix(UNREACHABLE).decode("utf-8", "replace"))
        return await secured(stream, endpoint, tls)

    async def listen(self, endpoint: Endpoint) -> Listener:
        """Listen directly, not through the gateway; see `Network`."""
        return await self._within.listen(endpoint)


async def _head(stream: trio.abc.Stream) -> bytes:
    """Read the head of a request or an answer. Raises ValueError if the head does not end.

    No data follows the head, as the other side waits for a reply.
    """
    head = b""
    while not head.endswith(END):
        piece = bytes(await stream.receive_some(MOST_HEAD))
        head += piece
        if not piece or len(head) > MOST_HEAD:
            raise ValueError("no end of it")
    return head.removesuffix(END)


def _place_in(head: bytes) -> Endpoint:
    """Return the target of a CONNECT request. Raises ValueError or ConfigError for anything else."""
    verb, place = head.decode("ascii").split(" ")[:2]
    if verb != "CONNECT":
        raise ValueError(f"not CONNECT, but {verb}")
    return endpoint_of(f"ws://{place}")
