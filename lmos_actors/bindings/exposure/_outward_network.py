"""The network of a node as it is used to ask others: hosts of which only others have told lead nobody home.

What a name leads to is known when a connection stands, and may change from one connection to the next. So the
address is looked at each time, before anything is sent.
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
"""Hosts that are told apart; of more, each counts as one of which others have told."""


class OutwardNetwork:
    """A `Network` that refuses connections to this machine by the names of hosts that were told of."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._told: dict[str, None] = {}

    def told_of(self, urls: Iterable[str], *, but: str = "") -> None:
        """Have connections to the hosts of URLs, but for one, lead elsewhere: another host tells of them."""
        self._told.update(dict.fromkeys(host for host in _hosts_of(urls) if host != but))

    def allow(self, urls: Iterable[str]) -> None:
        """Let connections to the hosts of URLs lead anywhere, though another host has told of them."""
        for host in _hosts_of(urls):
            self._told.pop(host, None)

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """See `Network`."""
        if endpoint.host in self._told or len(self._told) > MOST:
            endpoint = attrs.evolve(endpoint, elsewhere=True)
        return await self._network.connect(endpoint, tls)

    async def listen(self, endpoint: Endpoint) -> Listener:
        """See `Network`."""
        return await self._network.listen(endpoint)


def _hosts_of(urls: Iterable[str]) -> Iterator[str]:
    for url in urls:
        with suppress(ConfigError):  # what is no address now, such as one whose host is yet to be filled in
            yield endpoint_of(url.partition("{")[0]).host
