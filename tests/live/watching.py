"""A viewer for tests: it keeps the states of its views by the changes that it is sent."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.security import Access, Bearer, Security
from lmos_actors.transport import Connection, MemoryNetwork, TcpNetwork, connect

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

SUBPROTOCOL = "lmos-actors-live"

NAMES = ("ann", "bob", "eve")
"""Ann may see and do everything, Bob sees everything but `vault`, Eve nothing."""

SECURITY = Security(
    schemes=(Bearer({name: f"env:LIVE_{name.upper()}" for name in NAMES}),),
    access={
        "vault*": Access(inspect=("ann",), operate=("ann",)),
        "*": Access(inspect=("ann", "bob"), operate=("ann",)),
    },
)


def as_viewer(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of a viewer."""
    return ((b"authorization", f"Bearer {name}-token".encode()),)


def patched(state: Any, patch: Any) -> Any:
    """RFC 7396, written from its text: the tests share nothing with what they test."""
    if not isinstance(patch, dict):
        return patch
    target = dict(state) if isinstance(state, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = patched(target.get(name), value)
    return target


class Watcher:
    """One connection; `takes` whether it takes note of changes by itself."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.takes = True
        self.hello: dict[str, Any] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.errors: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []
        self.progress: list[dict[str, Any]] = []
        self.end: Any = None
        """How the connection has ended."""
        self._out: list[bytes] = []
        self._news = trio.Event()

    async def run(self) -> None:
        self.end = await self.connection.run(self)
        self._news.set()

    def send(self, **message: Any) -> None:
        self.send_text(json.dumps(message))

    def send_text(self, text: str) -> None:
        self._out.append(text.encode())
        self.connection.wake()

    def do(self, what: str, path: str = "", id: str = "d1", **more: Any) -> None:
        self.send(type="do", id=id, what=what, path=path, **more)

    def look(self, view: str, id: str = "it", **arguments: Any) -> None:
        self.send(type="look", id=id, view=view, arguments=arguments)

    async def until(self, test: Callable[[], Any]) -> Any:
        """Wait until something is true of what has come; return it."""
        while not (found := test()):
            await self._news.wait()
        return found

    # ---- see `Handler`

    def text(self, text: str) -> None:
        message = json.loads(text)
        match message["type"]:
            case "hello":
                self.hello = message
            case "error":
                self.errors.append(message)
            case "done":
                self.done.append(message)
            case "progress":
                self.progress.append(message)
            case "changes":
                self.changes.append(message)
                for id, patch in message["patches"].items():
                    self.views[id] = patched(self.views.get(id, {}), patch)
                if self.takes:
                    self.send(type="taken", number=message["number"])
        self._news.set()
        self._news = trio.Event()

    def binary(self, data: bytes) -> None:
        raise AssertionError("the live view sends text only")

    def frames(self, room: int) -> list[bytes]:
        found, self._out = self._out, []
        return found


@asynccontextmanager
async def watching(
    url: str,
    network: MemoryNetwork | TcpNetwork,
    headers: tuple[tuple[bytes, bytes], ...] = as_viewer("ann"),
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Watcher]:
    """Watch a node for a block. Raises ConnectFailed."""
    connection = await connect(network, f"{url}/live", subprotocols=[SUBPROTOCOL], headers=headers, tls=tls)
    watcher = Watcher(connection)
    ended = trio.Event()

    async def carry() -> None:
        with trio.CancelScope(shield=True):
            await watcher.run()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry)
        try:
            await watcher.until(lambda: watcher.hello)
            yield watcher
        finally:  # closed in order even then: a test that fails says why, and not that the world stands still
            connection.close()
            with trio.CancelScope(shield=True):
                await ended.wait()
