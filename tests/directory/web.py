"""A plain HTTP client for the tests of the directory: h11 on a stream, and Server-Sent Events."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import h11
import trio

from lmos_actors import open_node
from lmos_actors.transport import endpoint_of
from tests.networks import default_network

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node
    from lmos_actors.directory import DirectoryOptions

URL = "ws://127.0.0.1:80"
MERGE = "application/merge-patch+json"


def td(id: str | None = "urn:x:1", **more: Any) -> dict[str, Any]:
    """Give a small description."""
    found = {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": id,
        "title": "Lamp",
        "security": "nosec_sc",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


@attrs.frozen
class Answer:
    """One answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Give a header's value, None if it is not there."""
        return next((value for known, value in self.headers if known == name), None)

    def all(self, name: str) -> list[str]:
        """Give the values of all headers of that name."""
        return [value for known, value in self.headers if known == name]

    @property
    def data(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


class Connection:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, method: str, target: str, body: bytes = b"", **headers: str) -> None:
        """Send a request."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        head = [("Host", "127.0.0.1"), ("Content-Length", str(len(body))), *named]
        data = self._http.send(h11.Request(method=method, target=target, headers=head))
        data += (self._http.send(h11.Data(data=body)) if body else b"") + self._http.send(h11.EndOfMessage())
        with suppress(trio.BrokenResourceError):  # who is refused at once is not read to the end
            await self.stream.send_all(data)

    async def event(self) -> Any:
        """Give the next event of h11."""
        while (found := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self.stream.receive_some(65536)))
        return found

    async def answer(self) -> Answer:
        """Give the whole answer."""
        head = await self.event()
        body = b""
        while isinstance(part := await self.event(), h11.Data):
            body += part.data
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return Answer(head.status_code, _text(head), body)


def _text(head: Any) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in head.headers]


async def connected() -> Connection:
    """Connect."""
    return Connection(await default_network().connect(endpoint_of(URL), None))


async def ask(
    method: str, target: str, body: Any = None, *, kind: str | None = None, **headers: str
) -> Answer:
    """Ask one question over a connection of its own."""
    if kind is not None:
        headers["Content_Type"] = kind
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    connection = await connected()
    async with connection.stream:
        await connection.send(method, target, raw, **headers)
        return await connection.answer()


async def put(id: str, target: str | None = None, **more: Any) -> Answer:
    """Register a description."""
    return await ask("PUT", target or f"/things/{id}", td(id, **more), kind="application/td+json")


async def patch(id: str, change: Any) -> Answer:
    """Patch a description."""
    return await ask("PATCH", f"/things/{id}", change, kind=MERGE)


class Stream:
    """Server-Sent Events, read as the HTML standard says."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._text = ""
        self.last = ""
        self.comments = 0

    async def next(self) -> tuple[str, Any]:
        """Wait for an event; give its name and its data. Raises EndOfChannel when the stream ends."""
        while True:
            while "\n\n" not in self._text:
                part = await self._connection.event()
                if not isinstance(part, h11.Data):
                    raise trio.EndOfChannel
                self._text += bytes(part.data).decode()
            block, _, self._text = self._text.partition("\n\n")
            found = self._read(block)
            if found is not None:
                return found

    def _read(self, block: str) -> tuple[str, Any] | None:
        name, data = "message", ""
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not field:
                self.comments += 1
            elif field == "event":
                name = value
            elif field == "data":
                data += value
            elif field == "id":
                self.last = value
        return (name, json.loads(data)) if data else None


@asynccontextmanager
async def listening(target: str = "/events", **headers: str) -> AsyncGenerator[Stream]:
    """Open a stream of events, and have its head."""
    connection = await connected()
    async with connection.stream:
        await connection.send("GET", target, **headers)
        head = await connection.event()
        assert head.status_code == 200, head
        assert dict(_text(head))["content-type"] == "text/event-stream"
        yield Stream(connection)


@asynccontextmanager
async def directory(options: DirectoryOptions | bool = True, **more: Any) -> AsyncGenerator[Node]:
    """Open a node that hosts a directory."""
    async with open_node(listen=URL, directory=options, **more) as node:
        yield node
