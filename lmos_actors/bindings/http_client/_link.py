"""The link to a thing that is reached over HTTP, alone or beside LMOS.

`HttpLink` has a `RemoteLink` over HTTP and, if the description has forms for LMOS too, one over LMOS. It only
chooses between them: operations with a form for LMOS go over LMOS, all others over HTTP.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lmos_actors.actors import MONITORS, ForwardingLink
from lmos_actors.errors import ConfigError, NotAllowed

from ..lmos._remote_link import RemoteLink, RemoteSinks
from ._peer import WebPeer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors.actors import Contract, Feed, Operation
    from lmos_actors.protocol.td import Description

    from ..lmos._peer import Headers
    from ..lmos._peer_listening import RemoteListener, SharedListening, Sink, Variables
    from ..lmos._peer_requests import RemotePeer, RemoteThing
    from ..lmos._remote_interface import RemoteInterface
    from ._forms import HttpOperations
    from ._peer import PeerRegistry


class HttpLink(ForwardingLink):
    """The link to one thing: `socket` for operations with a form for LMOS, `web` for those with only HTTP."""

    __slots__ = ("_only_web", "_sinks", "_socket", "_ways", "_web", "far", "table")

    def __init__(self, web: RemoteLink, ways: HttpOperations, socket: RemoteLink | None) -> None:
        super().__init__(web.rt)
        self.far: RemoteThing = web.far
        self.table = web.table
        self._web = web
        self._ways = ways
        self._socket = socket
        self._only_web = frozenset[tuple[str, str]]() if socket is None else ways.only_web()
        self._sinks: RemoteSinks | None = None

    def choose(self, key: str = "", *_arguments: object) -> RemoteLink:
        """Return the link for an operation; without a key, the one over HTTP. Raises NotFound, NotAllowed."""
        if self._socket is None or not key:
            return self._web
        op = self._web.operation(key)
        if (op.verb, op.name) in self._only_web:
            return self._web
        if self.far.variables:
            raise NotAllowed(f"{op.label} is used over LMOS, where no URL has variables: leave them out")
        return self._socket

    def with_variables(self, variables: Variables) -> HttpLink:
        """Return a link whose requests have these values in their URLs."""
        peer = self.far.peer
        assert isinstance(peer, WebPeer)
        web = self._web.to(peer.thing(self.far.thing_id, variables))
        return HttpLink(web, self._ways, self._socket)

    @property
    def path(self) -> str:
        """The agent's path on its node, or the id of the thing where the path is unknown."""
        return self.far.path

    @property
    def address(self) -> dict[str, str]:
        """See `RemoteLink`."""
        return (self._web if self._socket is None else self._socket).address

    @property
    def contract(self) -> Contract | None:
        """See `RemoteLink`."""
        return self._web.contract

    @property
    def description(self) -> Description | None:
        """See `RemoteLink`."""
        return self._web.description

    @property
    def sockets(self) -> tuple[RemotePeer, ...]:
        """The connections that must be open before a request: those for LMOS, as HTTP needs none."""
        return () if self._socket is None else self._socket.sockets

    @property
    def identity(self) -> tuple[object, int]:
        """The equality key of refs: the thing, its server and the credentials, not the way to it."""
        if self._socket is None or self.far.variables:
            return self.far.identity
        return self._socket.identity

    def operation(self, key: str) -> Operation:
        """Return the operation with a key. Raises NotFound, NotAllowed."""
        return self._web.operation(key)

    def repeatable(self, key: str) -> bool:
        """Return whether a repeated request does no more than a single one."""
        return self._web.repeatable(key)

    def keeps_answers(self, key: str) -> bool:
        """Return whether the agent keeps the answers to requests for an action."""
        return self.choose(key).keeps_answers(key)

    # ---- listening

    @asynccontextmanager
    async def watch(self, *, gaps: bool = False) -> AsyncGenerator[Feed[Any]]:
        """Monitor the agent until the block is left.

        Raises NotAllowed over HTTP alone, which reports no exits.
        """
        if self._socket is None:
            raise self._no_ends()
        async with self._socket.watch(gaps=gaps) as feed:
            yield feed

    def _no_ends(self) -> NotAllowed:
        return NotAllowed(
            f"{self.far.path!r} is reached over HTTP, which does not report exits: monitor it over LMOS"
        )

    def _tapped(self, key: str, sink: Sink) -> tuple[RemoteListener, SharedListening]:
        link = self._socket if key == MONITORS else self.choose(f"+{key}")
        if link is None:
            raise self._no_ends()
        return link.tapped(key, sink, entering=False)

    def sinks(self) -> RemoteSinks:
        """Return the listeners of this agent on this node, as a link to a near agent does."""
        if self._sinks is None:
            self._sinks = RemoteSinks(self._tapped)
        return self._sinks

    # ---- availability

    def link(self) -> Any:
        """Raise NotAllowed, because exit signals are not sent to other nodes."""
        return self._web.link()

    def release(self) -> None:
        """Release both links. Repeated calls do nothing."""
        self._web.release()
        if self._socket is not None:
            self._socket.release()

    def unready(self) -> str:
        """Return why the agent cannot be asked now; the reason of the LMOS link comes first."""
        if self._socket is not None and not self._socket.far.peer.is_connected:
            return self._socket.unready()
        failure = self.far.peer.failure
        return self._web.unready() if failure is None else str(failure)

    async def wait_running(self) -> None:
        """Wait until the thing can be reached, and until its agent runs again if that is known not to run."""
        if self._socket is not None:
            await self._socket.wait_running()
        await self._web.wait_running()


def web_link(
    peers: PeerRegistry,
    ways: HttpOperations,
    given: Headers = (),
    meant: str = "",
    *,
    is_named: bool = True,
) -> Callable[[str, RemoteInterface, RemoteLink | None], HttpLink]:
    """Return a function that makes a link from a thing's id, its interface and its LMOS link.

    The headers `given` are for the server of the URL `meant`, and for no other. With `is_named`, code of this
    node has named that server, not only a directory. Each link holds its peer until `release`. Raises
    ConfigError for a description without forms for HTTP, or with a form that has no usable address.
    """
    origins = ways.origins()
    if not origins:
        raise ConfigError("the description has no form for HTTP")
    url = next(iter(origins.values()))

    def link(thing_id: str, interface: RemoteInterface, socket: RemoteLink | None = None) -> HttpLink:
        peer = peers.kept(
            f"{thing_id} at {' '.join(origins.values())}",
            given,
            lambda: WebPeer(peers, ways, url, given, meant or url),
        )
        assert isinstance(peer, WebPeer)
        peer.named = peer.named or is_named
        peer.describe(ways)
        peers.hold(peer)
        return HttpLink(RemoteLink(peer.thing(thing_id), interface), ways, socket)

    return link
