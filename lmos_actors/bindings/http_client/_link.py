"""The link to a thing that speaks HTTP, alone or beside LMOS: the verbs of a ref, as far as HTTP carries
them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from trio.lowlevel import enable_ki_protection

from lmos_actors.actors import MONITORS
from lmos_actors.errors import ConfigError, NotAllowed

from ..lmos._peer import PeerEnvironment
from ..lmos._remote_calls import RemoteStream
from ..lmos._remote_link import RemoteLink
from ._calls import WebCall, WebStream
from ._peer import WebPeer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors.actors import Attempt, Feed

    from ..lmos._peer import Headers, Peer
    from ..lmos._peer_listening import RemoteListener, SharedListening, Sink
    from ..lmos._peer_things import RemoteThing
    from ..lmos._remote_interface import RemoteInterface
    from ._forms import HttpOperations
    from ._pool import WebPool


class PeerRegistry(PeerEnvironment, Protocol):
    """The peers of a node, as far as links over HTTP need them."""

    def web_pool(self) -> WebPool:
        """Return the HTTP connections of the node."""
        ...

    def kept(self, place: str, headers: Headers, make: Callable[[], Peer]) -> Peer:
        """Return the peer of a place, made and started if there is none."""
        ...

    def hold(self, peer: Peer) -> None:
        """Count one more user of a peer."""
        ...


class HttpLink(RemoteLink):
    """One thing by its forms for HTTP; what its description has for LMOS as well goes to `socket`."""

    __slots__ = ("_only_web", "_socket")

    def __init__(
        self, far: RemoteThing, interface: RemoteInterface, ways: HttpOperations, socket: RemoteLink | None
    ) -> None:
        super().__init__(far, interface)
        self._socket = socket
        self._only_web = frozenset[tuple[str, str]]() if socket is None else ways.only_web()

    def _at_socket(self, key: str) -> RemoteLink | None:
        """Return the link over LMOS, if that is the one for an operation. Raises NotFound, NotAllowed."""
        if self._socket is None:
            return None
        op = self.operation(key)
        return None if (op.verb, op.name) in self._only_web else self._socket

    @property
    def sockets(self) -> tuple[Peer, ...]:
        """See `RemoteLink`: over HTTP there is always a way to ask."""
        return () if self._socket is None else self._socket.sockets

    @property
    def identity(self) -> tuple[object, int]:
        """What makes two refs equal: the thing, where it is and as whom, not the way it is reached by."""
        return self.far.identity if self._socket is None else self._socket.identity

    # ---- asking

    @enable_ki_protection
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See `Link`."""
        link = self._at_socket(key)
        if link is not None:
            return await link.ask(key, args, kwargs)
        return await super().ask(key, args, kwargs)

    @enable_ki_protection
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """See `Link`."""
        link = self._at_socket(key)
        if link is not None:
            return await link.ask_within(key, args, kwargs, seconds)
        return await super().ask_within(key, args, kwargs, seconds)

    @enable_ki_protection
    async def ask_again(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
        attempt: Attempt,
    ) -> Any:
        """Ask, as one of several attempts; HTTP has no field that marks them as one request."""
        link = self._at_socket(key)
        if link is not None:
            return await link.ask_again(key, args, kwargs, seconds, attempt)
        return await super().ask_again(key, args, kwargs, seconds, attempt)

    # ---- telling

    @enable_ki_protection
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send one way; over HTTP one after another, in order. Waits for room on this side alone."""
        link = self._at_socket(key)
        if link is not None:
            await link.tell(key, args, kwargs)
        else:
            await super().tell(key, args, kwargs)

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        link = self._at_socket(key)
        if link is not None:
            link.tell_nowait(key, args, kwargs)
        else:
            super().tell_nowait(key, args, kwargs)

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        link = self._at_socket(key)
        if link is not None:
            link.send_from(sender, key, args, kwargs)
        else:
            super().send_from(sender, key, args, kwargs)

    # ---- calls

    @asynccontextmanager
    @enable_ki_protection
    async def _open(
        self,
        kind: type[Any],
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
    ) -> AsyncGenerator[Any]:
        link = self._at_socket(key)
        if link is not None:
            async with link._open(kind, key, args, kwargs, seconds) as call:
                yield call
            return
        own = WebStream if kind is RemoteStream else WebCall
        async with super()._open(own, key, args, kwargs, seconds) as call:
            yield call

    # ---- listening

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """See `Link`."""
        link: RemoteLink | None = self._at_socket(key)
        if link is not None:
            async with link.listen(key, conflate=conflate, gaps=gaps, size=size) as feed:
                yield feed
            return
        async with super().listen(key, conflate=conflate, gaps=gaps, size=size) as feed:
            yield feed

    @asynccontextmanager
    async def watch(self, *, gaps: bool = False) -> AsyncGenerator[Feed[Any]]:
        """Monitor until the block is left; HTTP alone reports no exits: NotAllowed."""
        if self._socket is None:
            raise self._no_ends()
        async with self._socket.watch(gaps=gaps) as feed:
            yield feed

    def _no_ends(self) -> NotAllowed:
        return NotAllowed(
            f"{self.far.path!r} is reached over HTTP, which tells of no ends: monitor it over LMOS"
        )

    def tapped(self, key: str, sink: Sink, *, entering: bool) -> tuple[RemoteListener, SharedListening]:
        """See `RemoteListening`."""
        link = self._socket if key == MONITORS else self._at_socket(f"+{key}")
        if link is not None:
            return link.tapped(key, sink, entering=entering)
        if key == MONITORS:
            raise self._no_ends()
        return super().tapped(key, sink, entering=entering)

    # ---- being there

    def release(self) -> None:
        """Let go of what leads there. Repeated calls do nothing."""
        super().release()
        if self._socket is not None:
            self._socket.release()

    def unready(self) -> str:
        """See `RemoteLink`: over LMOS, where it speaks that too, it is looked for first."""
        if self._socket is not None and self._socket.far.peer.session is None:
            return self._socket.unready()
        failure = self.far.peer.failure
        return super().unready() if failure is None else str(failure)

    async def wait_running(self) -> None:
        """Wait until it can be connected to, and until the agent runs again if it was heard not to."""
        if self._socket is not None:
            await self._socket.wait_running()
        await super().wait_running()


def web_link(
    peers: PeerRegistry, ways: HttpOperations, given: Headers = (), meant: str = ""
) -> Callable[[str, RemoteInterface, RemoteLink | None], HttpLink]:
    """Return what makes links to a thing by its forms for HTTP, of its id, the terms, and the link over LMOS.

    `given` are headers for the server of the URL `meant`, and for no other. What is made is held: `release`
    lets go of it. Raises ConfigError for a description without such forms, or with one that leads nowhere.
    """
    origins = ways.origins()
    if not origins:
        raise ConfigError("the description has no form for HTTP")
    url, pool = next(iter(origins.values())), peers.web_pool()

    def link(thing_id: str, interface: RemoteInterface, socket: RemoteLink | None = None) -> HttpLink:
        peer = peers.kept(
            f"{thing_id} at {' '.join(origins.values())}",
            given,
            lambda: WebPeer(peers, pool, ways, url, given, meant or url),
        )
        assert isinstance(peer, WebPeer)
        peer.describe(ways)
        peers.hold(peer)
        return HttpLink(peer.thing(thing_id), interface, ways, socket)

    return link
