"""The network of a node for its own requests: hosts named only by other hosts cannot lead to this machine.

A description from elsewhere may name an address whose host resolves to this machine, and so make the node
attack its own machine. What a name resolves to is known only once a connection is made, and may change with
the next one. So the address is checked for each connection, before anything is sent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator

    import trio

    from lmos_actors.transport import Endpoint, Listener, Network

MOST: Final = 4096
"""Limit on the hosts that are kept; beyond it every host counts as one named by others."""


class OutwardNetwork:
    """A `Network` that refuses to connect to this machine under host names that others have given."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._distrusted: dict[str, None] = {}

    def distrust(self, urls: Iterable[str], *, but: str = "") -> None:
        """Require that connections to the hosts of URLs, except `but`, leave this machine.

        This is for URLs that another host has named.
        """
        self._distrusted.update(dict.fromkeys(host for host in _hosts_of(urls) if host != but))

    def allow(self, urls: Iterable[str]) -> None:
        """Let connections to the hosts of URLs lead anywhere, though another host has named them."""
        for host in _hosts_of(urls):
            self._distrusted.pop(host, None)

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """See `Network`."""
        if endpoint.host in self._distrusted or len(self._distrusted) > MOST:
            endpoint = attrs.evolve(endpoint, elsewhere=True)
        return await self._network.connect(endpoint, tls)

    async def listen(self, endpoint: Endpoint) -> Listener:
        """See `Network`."""
        return await self._network.listen(endpoint)


def _hosts_of(urls: Iterable[str]) -> Iterator[str]:
    for url in urls:
        with suppress(ConfigError):  # no address yet, such as one whose host is a variable
            yield endpoint_of(url.partition("{")[0]).host
