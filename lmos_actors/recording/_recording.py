"""A proxy on this machine that writes the messages of its clients and a server to a message log."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.bindings import fetch
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.security import is_loopback
from lmos_actors.transport import TcpNetwork, endpoint_of, is_here

from ._log import RecordingFile
from ._passage import CREDENTIALS, Headers, Passage
from ._proxy import Proxy
from ._transcript import Transcript

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence

    from lmos_actors.transport import Endpoint, Listener, Network

    from ._conversation import Speech

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

DESCRIBE_SECONDS: Final = 5.0
"""Seconds for the descriptions of the things behind a WebSocket to arrive."""

WELL_KNOWN: Final = "/.well-known/wot"
NOT_LET_IN: Final = (401, 403)
NOT_DESCRIBED: Final = ("/arc",)
"""Ends of paths at which no things are."""


@attrs.frozen(kw_only=True)
class RecordRequest:
    """A request to record the traffic with the server at the URL `to` in a new file, `out`.

    Clients connect to `listen`, on this machine. `speaks` is the protocol of the WebSockets; with None it is
    recognised from their messages. `descriptions` are files and URLs, for a server that serves none; they
    define which values are secret. With `once` the recording ends when all clients have left. `insecure` lets
    credentials go to a server without TLS. Raise ConfigError for addresses that cannot be used.
    """

    to: str
    out: str
    listen: Endpoint
    speaks: Speech | None = None
    descriptions: Sequence[str] = ()
    once: bool = False
    tls: ssl.SSLContext | None = None
    insecure: bool = False
    server: Endpoint = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        found = endpoint_of(self.to)
        if "token=" in found.target.partition("?")[2].lower():
            raise ConfigError("a token does not belong in it: the client sends its own", "--to")
        if self.listen.secure:
            raise ConfigError("clients connect without TLS: ws, or HOST:PORT", "--listen")
        if not is_loopback(self.listen.host):
            raise ConfigError("recordings are made on this machine alone, as at 127.0.0.1", "--listen")
        object.__setattr__(self, "server", attrs.evolve(found, elsewhere=not is_here(found.host)))


@attrs.frozen
class Recorded:
    """The counts of a recording, and its file.

    `refused`: clients that the server refused. `unreachable`: connections that it did not accept. `lost`:
    connections that it cut. `unread`: messages that were not understood, which are in the file as received.
    """

    file: str
    records: int
    sockets: int
    http_requests: int
    requests: int
    refused: int
    unreachable: int
    lost: int
    unread: int


async def record(
    request: RecordRequest,
    *,
    network: Network | None = None,
    on_listening: Callable[[str], None] = lambda url: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> Recorded:
    """Record until a SIGINT or SIGTERM, or until the clients have left; then return the counts.

    `on_listening` is called with the URL for clients, `on_note` with problems that occur meanwhile. Raise
    groups of ConfigError, TransportError and OSError.
    """
    using = TcpNetwork() if network is None else network
    return await _Recording(request, using, on_listening, on_note).run()


async def _cancel_at_interrupt(received: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for number in received:
        if number == signal.SIGINT:  # a SIGTERM may come twice, to the process and to its group
            scope.cancel("another interrupt")


class _Recording:
    """One recording."""

    def __init__(
        self,
        request: RecordRequest,
        network: Network,
        on_listening: Callable[[str], None],
        on_note: Callable[[str], None],
    ) -> None:
        self._request = request
        self._network = network
        self._on_listening = on_listening
        self._on_note = on_note
        self._target = request.server
        self._looked_at: set[str] = set()
        self._stop = trio.CancelScope()

    async def run(self) -> Recorded:
        """Run the recording; see `record`."""
        descriptions = [await self._read(source) for source in self._request.descriptions]
        await trio.aclose_forcefully(await self._network.connect(self._target, self._request.tls))
        listener = await self._network.listen(self._request.listen)
        try:
            file = self._opened()
            try:
                transcript = Transcript(file, self._on_note)
                for text, url in descriptions:
                    if not transcript.things.learn(text, url):
                        raise ConfigError(f"there is no description in {url}", "--description")
                passage = await self._serve(listener, transcript)
                file.end()
            finally:
                file.close()
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()
        return self._sum_up(passage, transcript, file)

    def _opened(self) -> RecordingFile:
        began = trio.current_time()
        head = {"label": "recorded", "recorded": self._request.to}
        try:
            return RecordingFile(self._request.out, head, lambda: trio.current_time() - began)
        except ConfigError as error:
            raise ConfigError(f"{error.path} {error.message}", "--out") from None

    async def _read(self, source: str) -> tuple[bytes, str]:
        """Return the description at a path or URL, and its address. Raises ConfigError, ConnectFailed."""
        if source.startswith(("http://", "https://")):
            return await fetch(self._network, source, self._request.tls)
        try:
            async with await trio.open_file(source, "rb") as file:
                text: bytes = await file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot read {source}: {error.strerror}", "--description") from None
        return text, self._http_url("/")

    def _http_url(self, path: str) -> str:
        return f"{'https' if self._target.secure else 'http'}://{self._target.authority}{path}"

    async def _serve(self, listener: Listener, transcript: Transcript) -> Passage:
        host, port = listener.addresses[0]
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        async def describe(target: str, headers: Headers) -> None:
            await self._describe(transcript, target, headers)

        def left() -> None:
            outcomes = passage.outcomes
            if self._request.once and (outcomes.sockets or outcomes.refused or outcomes.unreachable):
                self._stop.cancel("the clients that came have left")

        passage = Passage(
            self._target,
            self._network,
            self._request.tls,
            transcript,
            recorder=authority,
            speaks=self._request.speaks,
            insecure=self._request.insecure,
            describe=describe,
            on_note=self._on_note,
        )
        async with trio.open_nursery() as nursery:
            if threading.current_thread() is threading.main_thread():
                await nursery.start(self._stop_at_signal, passage)
            scheme = "http" if self._request.to.startswith("http") else "ws"
            self._on_listening(f"{scheme}://{authority}{self._target.target}".removesuffix("/"))
            with self._stop:
                await Proxy(passage, left).serve(listener)
            nursery.cancel_scope.cancel("it is over")
        return passage

    async def _stop_at_signal(
        self, passage: Passage, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Close all connections at a signal; stop once they are closed, after 2 s, or at another SIGINT."""
        with trio.open_signal_receiver(*SIGNALS) as received:
            task_status.started()
            await anext(received)
            with trio.move_on_after(2.0) as closing:  # for the answers to the Closes
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_at_interrupt, received, closing)
                    await passage.close()
                    nursery.cancel_scope.cancel("all is closed")
        self._stop.cancel("a signal to stop")

    # ---- descriptions

    async def _describe(self, transcript: Transcript, target: str, headers: Headers) -> None:
        """Fetch the descriptions of the things behind a WebSocket, with its client's credentials."""
        path, _, query = target.partition("?")
        if self._request.speaks in ("omnia", "relay") or path.endswith(NOT_DESCRIBED):
            return
        if path in self._looked_at:
            return
        shown = tuple((name, value) for name, value in headers if name in CREDENTIALS)
        asked = f"?{query}" if "token=" in query.lower() else ""
        refused = False
        with trio.move_on_after(DESCRIBE_SECONDS):
            for place in dict.fromkeys((path, WELL_KNOWN, "/")):
                try:
                    url = self._http_url(place + asked)
                    text, url = await fetch(self._network, url, self._request.tls, shown)
                except (ConnectFailed, ConfigError) as error:
                    refused = refused or getattr(error, "status", None) in NOT_LET_IN
                    continue
                if transcript.things.learn(text, url.partition("?")[0]) and place == path:
                    break
        if not refused:  # else another client may be let in
            self._looked_at.add(path)

    # ---- the end

    def _sum_up(self, passage: Passage, transcript: Transcript, file: RecordingFile) -> Recorded:
        outcomes = passage.outcomes
        return Recorded(
            file=file.path,
            records=file.records,
            sockets=outcomes.sockets,
            http_requests=outcomes.requests,
            requests=transcript.requests,
            refused=outcomes.refused,
            unreachable=outcomes.unreachable,
            lost=outcomes.lost,
            unread=transcript.unread,
        )
