"""`record`: a proxy on this machine that writes what its clients and a server say as a message log."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors._core import printable
from lmos_actors.bindings import fetch
from lmos_actors.errors import ConfigError, ConnectFailed, TransportError, group_of
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.security import is_loopback
from lmos_actors.transport import TcpNetwork, endpoint_of, is_here

from .._inputs import address_in
from .._signals import signals
from .._texts import explained
from ._log import RecordingFile
from ._passage import CREDENTIALS, Headers, Passage
from ._proxy import Proxy
from ._transcript import Transcript

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence

    from lmos_actors.transport import Endpoint, Listener, Network

    from ._conversation import Speech

OK, REFUSED, NOT_REACHED = 0, 1, 3
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

DESCRIBE_SECONDS: Final = 5.0
"""In which the descriptions of the things behind a WebSocket have to come."""

CLOSING_SECONDS: Final = 2.0
"""For the answers to the Closes that are sent at the end."""

WELL_KNOWN: Final = "/.well-known/wot"
NOT_LET_IN: Final = (401, 403)
NOT_DESCRIBED: Final = ("/arc",)
"""Ends of paths at which no things are."""


@attrs.frozen(kw_only=True)
class RecordRequest:
    """A request to record."""

    to: str
    out: str
    listen: str = "127.0.0.1:0"
    speaks: Speech | None = None
    descriptions: Sequence[str] = ()
    once: bool = False
    tls: ssl.SSLContext | None = None
    insecure: bool = False

    def target(self) -> Endpoint:
        """Return the server. Raises ConfigError."""
        found = endpoint_of(self.to)
        if "token=" in found.target.partition("?")[2].lower():
            raise ConfigError("a token does not belong in it: the client sends its own", "--to")
        return attrs.evolve(found, elsewhere=not is_here(found.host))

    def place(self) -> Endpoint:
        """Return where to listen. Raises ConfigError."""
        found = address_in(self.listen, "--listen")
        if found.secure:
            raise ConfigError("clients connect without TLS: ws, or HOST:PORT", "--listen")
        if not is_loopback(found.host):
            raise ConfigError("recordings are made on this machine alone, as at 127.0.0.1", "--listen")
        return found


def record(request: RecordRequest, network: Network | None = None) -> int:
    """Record until a signal comes. Returns the exit code. Raises ConfigError, OSError."""
    recording = _Recording(request, TcpNetwork() if network is None else network)
    failure: Exception | None = None
    code = NOT_REACHED
    try:
        with signals.in_order():
            code = trio.run(recording.run)
    except* (ConfigError, TransportError, OSError) as group:
        failure = _first(group)
    if isinstance(failure, TransportError):
        _complain(explained(failure))
    elif isinstance(failure, ConfigError) and failure.__cause__ is not None:  # an address that is taken
        _complain(str(failure))
    elif failure is not None:
        raise failure
    return code


def _first(error: BaseException) -> Exception:
    group = group_of(error)
    if group is not None:
        return _first(group.exceptions[0])
    assert isinstance(error, Exception)
    return error


def _complain(text: str) -> None:
    print(f"lmos-actors: {printable(text)}", file=sys.stderr, flush=True)


async def _cancel_at_interrupt(received: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for number in received:
        if number == signal.SIGINT:  # a SIGTERM may come twice, to the process and to its group
            scope.cancel("another interrupt")


class _Recording:
    """One run of `record`."""

    def __init__(self, request: RecordRequest, network: Network) -> None:
        self._request = request
        self._network = network
        self._target = request.target()
        self._place = request.place()
        self._looked_at: set[str] = set()
        self._stop = trio.CancelScope()

    async def run(self) -> int:
        """Record, and return the exit code. Raises groups of ConfigError, TransportError and OSError."""
        descriptions = [await self._read(source) for source in self._request.descriptions]
        await trio.aclose_forcefully(await self._network.connect(self._target, self._request.tls))
        listener = await self._network.listen(self._place)
        try:
            file = self._opened()
            try:
                transcript = Transcript(file, _complain)
                for text, url in descriptions:
                    self._learn(transcript, text, url)
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
        """Return a description that was named, and its address. Raises ConfigError, ConnectFailed."""
        if source.startswith(("http://", "https://")):
            return await fetch(self._network, source, self._request.tls)
        try:
            async with await trio.open_file(source, "rb") as file:
                text: bytes = await file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot read {source}: {error.strerror}", "--description") from None
        return text, self._http_url("/")

    def _learn(self, transcript: Transcript, text: bytes, url: str) -> None:
        if not transcript.things.learn(text, url):
            raise ConfigError(f"there is no description in {url}", "--description")

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
            on_note=_complain,
        )
        async with trio.open_nursery() as nursery:
            if threading.current_thread() is threading.main_thread():
                await nursery.start(self._stop_at_signal, passage)
            self._announce(authority)
            with self._stop:
                await Proxy(passage, left).serve(listener)
            nursery.cancel_scope.cancel("it is over")
        return passage

    def _announce(self, authority: str) -> None:
        scheme = "http" if self._request.to.startswith("http") else "ws"
        ends = "when the clients that came have left" if self._request.once else "at Ctrl-C"
        here = f"{scheme}://{authority}{self._target.target}".removesuffix("/")
        print(f"recording {self._request.to}: connect to {here}; ends {ends}", flush=True)

    async def _stop_at_signal(
        self, passage: Passage, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Close what is open at a signal and stop then, or after a while, or at another SIGINT."""
        with trio.open_signal_receiver(*SIGNALS) as received:
            task_status.started()
            await anext(received)
            with trio.move_on_after(CLOSING_SECONDS) as closing:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_at_interrupt, received, closing)
                    await passage.close()
                    nursery.cancel_scope.cancel("all is closed")
        self._stop.cancel("a signal to stop")

    # ---- descriptions

    async def _describe(self, transcript: Transcript, target: str, headers: Headers) -> None:
        """Learn from the descriptions of the things behind a WebSocket, with its client's credentials."""
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

    def _sum_up(self, passage: Passage, transcript: Transcript, file: RecordingFile) -> int:
        outcomes = passage.outcomes
        counts = (
            (outcomes.sockets, "WebSocket"),
            (outcomes.requests, "HTTP request"),
            (transcript.requests, "request to agents"),
        )
        many = ", ".join(f"{count} {_plural(what, count)}" for count, what in counts)
        print(f"recorded {many}, {file.records} records: {file.path}", flush=True)
        troubles = (
            (outcomes.refused, "refused by the server"),
            (outcomes.unreachable, "not reached"),
            (outcomes.lost, "cut by the server"),
            (transcript.unread, "not understood"),
        )
        for count, what in troubles:
            if count:
                print(f"  {count} {what}", flush=True)
        if outcomes.unreachable or outcomes.lost:
            return NOT_REACHED
        return REFUSED if outcomes.refused and not outcomes.sockets else OK


def _plural(what: str, count: int) -> str:
    if count == 1:
        return what
    first, _, rest = what.partition(" to ")
    return f"{first}s to {rest}" if rest else f"{first}s"
