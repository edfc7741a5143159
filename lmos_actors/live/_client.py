"""A client of the live view, which keeps the current states of its views from the node's messages."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import trio

from lmos_actors._core import for_async_with
from lmos_actors.bindings import headers_with
from lmos_actors.errors import ConfigError, ConnectFailed, LmosActorsError
from lmos_actors.transport import ConnectionOptions, connect, default_network

from ._merge_patch import patched
from ._messages import (
    SUBPROTOCOL,
    Changes,
    Do,
    Done,
    FromNode,
    FromViewer,
    Hello,
    Look,
    Progress,
    Taken,
    Wrong,
)
from ._server import PATH

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from lmos_actors._core import Headers
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Connection, Network

    from ._merge_patch import State

_READ: Final = msgspec.json.Decoder(FromNode)
_WRITE: Final = msgspec.json.Encoder()
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
GOODBYE: Final = 2.0
"""Seconds that the node has to close its side."""

_OPTIONS: Final = ConnectionOptions(max_message_bytes=4 << 20)


def live_url(url: str) -> str:
    """Return the address of a node's live view, from any URL of the node or of one of its agents.

    Raises ConfigError.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ConfigError(f'"{url}" is no URL of a node, such as http://127.0.0.1:8080')
    return urlunsplit((scheme, parts.netloc, PATH, "", ""))


class LiveClient:
    """One viewer. `views` are the states of its looks by id, `errors` the error messages from the node."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self._url = url
        self._out: list[bytes] = []
        self._looks: set[str] = set()
        self._taken: int | None = None
        """The number of the last changes, which is to be confirmed to the node; None once it is."""
        self._news = trio.Event()
        self._ended = False
        self.hello: Hello | None = None
        self.views: dict[str, State] = {}
        self.errors: list[Wrong] = []
        self.done: list[Done] = []
        self.progress: list[Progress] = []
        self.time = 0.0
        """The instant of the last changes, by the clock of the node."""

    def look(self, id: str, view: str, **arguments: Any) -> None:
        """Open a view, or change the arguments of one that is open. Never blocks."""
        self._looks.add(id)
        self._send(Look(id, view, arguments))

    def do(self, id: str, what: str, path: str = "") -> None:
        """Ask for an operation; its outcome is in `done` or `errors`. Never blocks."""
        self._send(Do(id, what, path))

    async def wait(self) -> None:
        """Wait until a message has arrived since the last wait. Only one task at a time may wait.

        Raises ConnectFailed once the connection has ended.
        """
        if not self._ended:
            await self._news.wait()
            self._news = trio.Event()
        if self._ended:
            raise ConnectFailed(self._url, "the connection has ended")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ended(self) -> None:
        """Note that the connection has ended."""
        self._ended = True
        self._news.set()

    def _send(self, message: FromViewer) -> None:
        self._out.append(_WRITE.encode(message))
        self._connection.wake()

    # ---- frames; see `Handler`

    def text(self, text: str) -> None:
        """Handle a message from the node; ignore an unknown message."""
        message: FromNode
        try:
            message = _READ.decode(text)
            patches = message.patches if isinstance(message, Changes) else {}
            views = {id: patched(self.views.get(id, {}), patches[id]) for id in patches if id in self._looks}
        except (msgspec.DecodeError, RecursionError):
            return
        match message:
            case Hello():
                self.hello = message
            case Changes():
                self.time = message.time
                self.views |= views
                self._taken = message.number
                self._connection.wake()
            case Wrong():
                self.errors.append(message)
            case Done():
                self.done.append(message)
            case Progress():
                self.progress.append(message)
        self._news.set()

    def binary(self, data: bytes) -> None:
        """Ignore a binary message: nodes send none."""

    def frames(self, room: int) -> list[bytes]:
        """Return the messages that wait to be sent."""
        if self._taken is not None:
            self._out.append(_WRITE.encode(Taken(self._taken)))
            self._taken = None
        found, self._out = self._out, []
        return found


@for_async_with
@asynccontextmanager
async def open_live(
    url: str,
    *,
    headers: Headers = (),
    credentials: Credentials | None = None,
    tls: ssl.SSLContext | None = None,
    network: Network | None = None,
    options: ConnectionOptions = _OPTIONS,
) -> AsyncGenerator[LiveClient]:
    """Open the live view of a node for a block; `url` is any URL of the node.

    A header in `headers` replaces one of the same name from the credentials. Raises ConfigError and
    ConnectFailed.
    """
    place = live_url(url)
    connection = await connect(
        default_network() if network is None else network,
        place,
        subprotocols=[SUBPROTOCOL],
        headers=headers_with(credentials, url, headers),
        tls=tls,
        options=options,
    )
    client = LiveClient(connection, place)

    async def carry() -> None:
        await connection.run(client)
        client.ended()

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry)
        try:
            if connection.subprotocol != SUBPROTOCOL:
                raise ConnectFailed(place, f"it does not speak {SUBPROTOCOL}, as nodes do")
            while client.hello is None:
                await client.wait()
            yield client
        except (LmosActorsError, OSError) as error:  # raised below, and not in a group of the nursery
            failure = error
        finally:
            client.close()
            nursery.cancel_scope.deadline = trio.current_time() + GOODBYE
    if failure is not None:
        raise failure
