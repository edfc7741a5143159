"""What a node consumes: agents elsewhere, by where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ._wanted import coded_headers
from .actors import Agent, awaited, release_link

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from ._connections import Connections
    from .actors import Ref
    from .bindings import ConsumedThing, Habits

A = TypeVar("A", bound=Agent)


class Consuming:
    """The part of a node that reaches agents elsewhere."""

    _connections: Connections

    @awaited("node.")
    async def consume(
        self,
        cls: type[A],
        source: str | PathLike[str],
        *,
        thing: str | None = None,
        headers: Mapping[str, str] | None = None,
        habits: Habits = "auto",
        local: bool = False,
    ) -> Ref[A]:
        """Give a ref to an agent elsewhere, once its first connection stands; what breaks later is mended.

        `source` is the `http` or `https` URL of its description, or of a node that serves it; the path of a
        file with its description; or a `ws` or `wss` address, without one. `thing` is the id or the name of
        one of several. `headers` go with every connection, but not along with a redirect to another server;
        `habits`: how a peer behaves whose handshake does not tell. Refs to one address share a connection.
        A description of another host, and redirects, lead to this very machine only where `local` allows it.

        Warns where its description differs from the class in what would break. Raises ConnectFailed when
        nothing is there, ConfigError for a source that leads to no agent.
        """
        from .bindings import consume

        peers, coded = self._connections.peers, coded_headers(headers)
        return await consume(peers, cls, source, thing=thing, headers=coded, habits=habits, local=local)

    @awaited("node.")
    async def consume_thing(
        self,
        source: str | PathLike[str],
        *,
        thing: str | None = None,
        headers: Mapping[str, str] | None = None,
        habits: Habits = "auto",
        local: bool = False,
    ) -> ConsumedThing:
        """Give an agent elsewhere whose class is not at hand: its affordances by name. See `consume`."""
        from .bindings import consume_thing

        peers, coded = self._connections.peers, coded_headers(headers)
        return await consume_thing(peers, source, thing=thing, headers=coded, habits=habits, local=local)

    def release(self, ref: Ref[Any] | ConsumedThing) -> None:
        """Let go of an agent elsewhere that was consumed here; the ref is not to be used any more.

        Refs to one address share a connection: it ends with the last of them. Repeated calls do nothing, nor
        does one for an agent of this node. Never waits.
        """
        release_link(ref)
