"""The connections of a node: what it listens at, and the peers that its refs reach.

They are a stage around the supervisors: while children stop, their last answers still go out. What opens
sockets, and what speaks over them, is imported by nodes that need it and by no others.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._ambient import current_ambient
from ._errors import ConfigError
from ._services import Services

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.routing import BaseRoute

    from .actors import Runtime
    from .bindings import LmosServer, Peers
    from .protocol.lmos import SessionOptions
    from .supervision import Supervisor
    from .transport import ConnectionOptions, DoorOptions, Endpoint, FrontDoor, Listener, Network

FAILURES: Final = 100
"""Exceptions of connections that are kept."""

GRACE: Final = 5.0
"""Seconds beyond those of a connection's own good-bye after which nobody is waited for."""

GOODBYE: Final = 5.0 + GRACE

EVERYWHERE: Final = ("0.0.0.0", "::")

_memory: trio.lowlevel.RunVar[Network | None] = trio.lowlevel.RunVar("lmos_actors.network", None)


@attrs.frozen
class Wanted:
    """What `open_node` was told of connections."""

    listen: str | Sequence[str] | None = None
    public_url: str | None = None
    tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    network: Network | None = None
    session: SessionOptions | None = None
    connection: ConnectionOptions | None = None
    door: DoorOptions | None = None

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Give what to listen at. Raises ConfigError."""
        urls = _texts(self.listen)
        if not urls:
            self._check_no_server()
            return ()
        from .transport import endpoint_of

        found = tuple(endpoint_of(url) for url in urls)
        for url, endpoint in zip(urls, found, strict=True):
            self._check_endpoint(url, endpoint)
        if self.tls is not None and not any(endpoint.secure for endpoint in found):
            raise ConfigError(
                f"goes with an address that begins with wss://, not with {urls[0]!r}", _of("tls")
            )
        if self.public_url is not None:
            endpoint_of(self.public_url)
        return found

    def _check_no_server(self) -> None:
        for name in ("public_url", "tls", "door"):
            if getattr(self, name) is not None:
                raise ConfigError("goes with listen=, which is not given", _of(name))

    def _check_endpoint(self, url: str, endpoint: Endpoint) -> None:
        if endpoint.target != "/":
            raise ConfigError(
                f"{url!r} has a path: agents are at /agents/NAME; what a proxy puts before is for public_url",
                _of("listen"),
            )
        if endpoint.secure and self.tls is None:
            raise ConfigError(f"{url!r} needs a certificate, as tls=ssl.SSLContext", _of("listen"))
        if self.tls is not None and not isinstance(self.tls, ssl.SSLContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be an ssl.SSLContext, not {self.tls!r}", _of("tls"))


def _of(name: str) -> str:
    return f"open_node({name}=...)"


def _texts(listen: Any) -> tuple[str, ...]:
    urls: Any = (listen,) if isinstance(listen, str) else listen
    try:
        found: tuple[Any, ...] = tuple(urls or ())
    except TypeError:
        found = (urls,)
    if not all(isinstance(url, str) for url in found):
        raise ConfigError(
            f"must be a URL such as 'ws://127.0.0.1:8080', or several, not {listen!r}", _of("listen")
        )
    return found


def default_network() -> Network:
    """Give the network of this trio run: where time jumps one in memory, else the operating system's."""
    clock = trio.lowlevel.current_clock()
    ambient = current_ambient()
    is_real = ambient is None or ambient.timers is None
    if is_real and getattr(clock, "autojump_threshold", inf) == inf:
        from .transport import TcpNetwork

        return TcpNetwork()
    network = _memory.get()
    if network is None:
        from .transport import MemoryNetwork

        network = MemoryNetwork()
        _memory.set(network)
    return network


class Connections:
    """The stage of one node; see the head of this file."""

    def __init__(self, rt: Runtime, wanted: Wanted, nursery: trio.Nursery) -> None:
        self._rt = rt
        self._wanted = wanted
        self._endpoints = wanted.endpoints()
        self._stage = Services(nursery)
        self._network = wanted.network
        self._listeners: list[Listener] = []
        self._doors: list[FrontDoor] = []
        self._open: dict[FrontDoor, None] = {}
        self._all_gone = trio.Event()
        self._server: LmosServer | None = None
        self._peers: Peers | None = None
        self._last_words = trio.CancelScope()
        self._hurried = False
        self.urls: tuple[str, ...] = ()
        """The addresses that are listened at, with the ports as they are."""
        self.failures: deque[BaseException] = deque(maxlen=FAILURES)
        """What has ended single connections and is a mistake of ours or of an agent's author."""

    @property
    def network(self) -> Network:
        """Where connections come from."""
        if self._network is None:
            self._network = default_network()
        return self._network

    @property
    def _has_names(self) -> bool:
        """Whether the machine's name leads to it, and not only what is listened at."""
        from .transport import MemoryNetwork

        return not isinstance(self.network, MemoryNetwork)

    # ---- those who connect to us

    async def listen(self, root: Supervisor) -> None:
        """Listen: whoever connects from now on is heard once `start` is called. Raises ConfigError."""
        if not self._endpoints:
            return
        from .bindings import RESERVED

        root.ids.reserved = RESERVED
        for child in root.spec.children:
            root.ids.check_name(child.name)
        urls: list[str] = []
        for endpoint in self._endpoints:
            listener = await self.network.listen(endpoint)
            self._listeners.append(listener)
            urls += _urls(endpoint, listener, named=self._has_names)
        self.urls = tuple(urls)
        self._build(root)

    def _build(self, root: Supervisor) -> None:
        from .bindings import Descriptions, Exposure, LmosServer, http_app, http_of
        from .transport import FrontDoor

        wanted = self._wanted
        bases = self.urls if wanted.public_url is None else (wanted.public_url,)
        exposure = Exposure(root, [http_of(base) for base in bases])
        server = self._server = LmosServer(
            self._rt, exposure, options=wanted.session, on_failure=self._failed
        )
        app = http_app(Descriptions(exposure, bases), server, extra=self._routes())
        for endpoint, listener in zip(self._endpoints, self._listeners, strict=True):
            door = FrontDoor(
                listener,
                route=server.accept,
                app=app,
                tls=wanted.tls if endpoint.secure else None,
                on_failure=self._failed,
                now=self._rt.entropy.now,
                **_given(options=wanted.door, connection=wanted.connection),
            )
            self._doors.append(door)

    def _routes(self) -> list[BaseRoute]:
        """Give what is served over HTTP beside the agents."""
        return []

    def start(self) -> None:
        """Let in those who connect."""
        for door, url in zip(self._doors, self.urls, strict=False):
            self._open[door] = None
            self._start_soon(self._serve, door, name=f"front door of {url}")

    def _start_soon(self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str) -> None:
        """Start a task of the stage: it belongs to the node, though an agent's run may have asked for it."""
        context = self._rt.base_context.copy()
        context.run(partial(self._stage.start_soon, async_fn, *args, name=name))

    async def _serve(self, door: FrontDoor) -> None:
        try:
            await door.serve()
        finally:
            del self._open[door]
            if not self._open:
                self._all_gone.set()

    def count(self) -> int:
        """Say how many connections others have to this node."""
        return sum(door.statistics().open for door in self._doors)

    # ---- those to whom we connect

    @property
    def peers(self) -> Peers:
        """The peers that refs of this node reach; made at the first use."""
        if self._peers is None:
            from .bindings import Peers

            wanted = self._wanted
            self._peers = Peers(
                self.network,
                self._rt,
                self._start_soon,
                session=wanted.session,
                connection=wanted.connection,
                tls=wanted.client_tls,
                on_failure=self._failed,
            )
        return self._peers

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        if not isinstance(error, Exception) and self._rt.fatal is not None:
            self._rt.fatal(error)
        elif self._rt.real:
            logging.getLogger("lmos_actors").error("a connection failed", exc_info=error)

    # ---- the end

    def refuse(self) -> None:
        """Take in no more connections, and no more requests; what is being worked on is still answered."""
        for door in self._doors:
            door.stop_accepting()
        if self._server is not None:
            self._server.drain()

    async def drained(self) -> None:
        """Wait until all requests are answered and all connections closed; `refuse` comes before.

        Who only listens is not waited for.
        """
        if self._server is not None:
            self._server.finish()
        if self._open:
            await self._all_gone.wait()

    @enable_ki_protection
    async def close(self) -> None:
        """Say good-bye to all peers, within limits, and close; Ctrl-C meanwhile cuts that short."""
        try:
            with trio.CancelScope(shield=True), self._last_words:
                await self._say_goodbye()
        except KeyboardInterrupt:
            self.hurry()
            await self.close()
            raise
        self._stage.end()
        with trio.CancelScope(shield=True):
            for listener in self._listeners:
                await listener.aclose()

    async def _say_goodbye(self) -> None:
        """Wait for peers that are told good-bye, which is not for long."""
        options = self._wanted.connection
        with trio.move_on_after(GOODBYE if options is None else options.close_seconds + GRACE):
            await self.drained()

    def hurry(self) -> None:
        """Give no connection any more time."""
        self._last_words.cancel("the node is ended at once")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _urls(endpoint: Endpoint, listener: Listener, *, named: bool) -> list[str]:
    """Give the addresses at which a listener is reached."""
    host = endpoint.host
    if named and host in EVERYWHERE:
        host = socket.gethostname()
    ports = dict.fromkeys(port for _, port in listener.addresses)
    return [attrs.evolve(endpoint, host=host, port=port, target="").url for port in ports]
