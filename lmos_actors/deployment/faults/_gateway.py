"""The way out of a group: a gateway through which all connections go that its processes make.

Both ends are here: the gate of a fault proxy, which asks each client where it wants to go, and the network of
a process that goes through it. They speak the CONNECT of HTTP, as proxies do.

Why so: what a link between two groups does must be done to the connections of these two and of no others, so
something has to know of each connection where it comes from and where it leads. It comes from the group whose
gateway it is, and CONNECT says where to. All that a process knows of others stays as it is: addresses in the
directory and in descriptions are the real ones, hosts in certificates fit, and a process that comes back at
another port needs nothing new. A proxy in place of each address would need one for each pair of groups and
each replica, at ports that are known before the processes are, and a view of the directory for each group.
The other end is seen as it is, too: a connection that cannot be made fails, rather than to be made and reset.
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
"""Bytes of a request or an answer, at most."""

ASKED: Final = 10.0
"""Seconds in which a client says where it wants to go."""

END: Final = b"\r\n\r\n"
OK: Final = b"HTTP/1.1 200 Connected"
UNREACHABLE: Final = b"HTTP/1.1 502 "
REFUSED: Final = b"HTTP/1.1 400 CONNECT HOST:PORT is all that is done here"


@attrs.frozen
class Gateway:
    """The gate of a proxy whose clients name the server. `name_of` returns the name of what is there."""

    name_of: Callable[[Endpoint], Awaitable[str]]

    async def ask(self, client: trio.abc.Stream) -> Route | None:
        """Read where a client wants to go; None for one that does not say so."""
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
        """Answer: it is connected, or why not."""
        answer = OK if failure is None else UNREACHABLE + _line(failure.why)
        with suppress(*GONE):
            await client.send_all(answer + END)


class GatewayNetwork:
    """A `Network` whose connections are made through a gateway; `within` is the one that it is reached by."""

    def __init__(self, gateway: Endpoint, within: Network) -> None:
        self._gateway = gateway
        self._within = within

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """See `Network`. An endpoint that is to be on another machine is reached directly."""
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
        """See `Network`: it listens where it is."""
        return await self._within.listen(endpoint)


async def _head(stream: trio.abc.Stream) -> bytes:
    """Read a request or an answer, up to its end. Raises ValueError for what has none.

    Nothing follows it: the other side waits for what is said next.
    """
    head = b""
    while not head.endswith(END):
        piece = bytes(await stream.receive_some(MOST_HEAD))
        head += piece
        if not piece or len(head) > MOST_HEAD:
            raise ValueError("no end of it")
    return head.removesuffix(END)


def _place_in(head: bytes) -> Endpoint:
    """Return where a request leads. Raises ValueError, or ConfigError, for one that is no CONNECT."""
    verb, place = head.decode("ascii").split(" ")[:2]
    if verb != "CONNECT":
        raise ValueError(f"not CONNECT, but {verb}")
    return endpoint_of(f"ws://{place}")


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode()[: MOST_HEAD // 2]
