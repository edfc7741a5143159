"""A directory as the tests need one: in memory, over any network, and as unfriendly as it is told to be."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import h11
import jsonpath
import trio
import trio.testing

from lmos_actors.transport import endpoint_of
from tests.networks import default_network

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FakeDirectory:
    """The parts of the API of W3C WoT Discovery that nodes use; entries expire by the present clock."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.open = 0
        """Connections that are there now."""
        self.searches = True
        self.broken: int | None = None
        """A status with which everything is answered."""
        self.refused: dict[str, int] = {}
        """Statuses with which a description of that title is refused."""
        self.methods: dict[str, int] = {}
        """Statuses with which all that is asked by a method is refused."""
        self.extra: list[Any] = []
        """What is listed beside the entries."""
        self.raw: bytes | None = None
        """What is answered to every GET."""
        self.hangs = False
        self.seconds = 0.0
        """How long an answer takes."""
        self.location = "http://elsewhere/things"
        """Where 307 leads to."""
        self._expires: dict[str, float] = {}
        self.listening: trio.CancelScope | None = None

    @property
    def titles(self) -> list[str]:
        """The titles of the entries, sorted by id."""
        self._expire()
        return [self.entries[key]["title"] for key in sorted(self.entries)]

    def count(self, method: str) -> int:
        """How often was asked so."""
        return sum(each == method for each, _ in self.asked)

    def forget(self) -> None:
        """Have no entries any more."""
        self.entries.clear()
        self._expires.clear()

    def _expire(self) -> None:
        for key, at in tuple(self._expires.items()):
            if at <= trio.current_time():
                del self._expires[key], self.entries[key]

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer one request."""
        self.asked.append((method, target))
        self.headers.append(headers)
        self._expire()
        if self.broken is not None:
            return self.broken, json.dumps({"title": "broken", "detail": "out of order"}).encode()
        if method in self.methods:
            return self.methods[method], b"{}"
        parts = urlsplit(target)
        if method == "GET":
            return self._listed(parts.path, parse_qs(parts.query))
        key = unquote(parts.path.removeprefix("/things/"))
        if method == "PUT":
            return self._put(key, headers, json.loads(body))
        if key not in self.entries:
            return 404, b"{}"
        if method == "PATCH":
            assert headers["content-type"] == "application/merge-patch+json"
            assert json.loads(body) == {}
            self._expires[key] = trio.current_time() + self.entries[key]["registration"]["ttl"]
        elif method == "DELETE":
            del self.entries[key], self._expires[key]
        return 204, b""

    def _put(self, key: str, headers: dict[str, str], entry: dict[str, Any]) -> tuple[int, bytes]:
        assert headers["content-type"] == "application/td+json"
        if entry["title"] in self.refused:
            return self.refused[entry["title"]], json.dumps({"detail": "not wanted here"}).encode()
        status = 204 if key in self.entries else 201
        assert entry["id"] == key
        self.entries[key] = entry
        self._expires[key] = trio.current_time() + entry["registration"]["ttl"]
        return status, b""

    def _listed(self, path: str, query: dict[str, list[str]]) -> tuple[int, bytes]:
        if self.raw is not None:
            return 200, self.raw
        listed = [*(self.entries[key] for key in sorted(self.entries)), *self.extra]
        if path == "/search/jsonpath":
            if not self.searches:
                return 404, b"{}"
            listed = jsonpath.findall(query["query"][0], listed)
        else:
            assert path == "/things"
            first = int(query["offset"][0])
            listed = listed[first : first + int(query["limit"][0])]
        return 200, json.dumps(listed).encode()

    # ---- over a network

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer what comes over one connection."""
        self.connections += 1
        self.open += 1
        try:
            await self._serve(stream)
        finally:
            self.open -= 1

    async def _serve(self, stream: trio.abc.Stream) -> None:
        http = h11.Connection(h11.SERVER)
        body = b""
        request: Any = None
        async with stream:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    try:
                        data = bytes(await stream.receive_some(65536))
                    except trio.BrokenResourceError:
                        return
                    http.receive_data(data)
                elif isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    if self.hangs:
                        await trio.sleep_forever()
                    if self.seconds:
                        await trio.sleep(self.seconds)
                    try:
                        await stream.send_all(self._response(http, request, body))
                    except trio.BrokenResourceError:
                        return
                    if http.our_state is h11.MUST_CLOSE:
                        return
                    http.start_next_cycle()
                else:
                    return

    def _response(self, http: h11.Connection, request: h11.Request, body: bytes) -> bytes:
        headers = {name.decode(): value.decode() for name, value in request.headers}
        status, said = self.answer(request.method.decode(), request.target.decode(), headers, body)
        told = [("Content-Length", str(len(said))), ("Content-Type", "application/json")]
        if status == 307:
            told.append(("Location", self.location))
        sent = http.send(h11.Response(status_code=status, headers=told)) or b""
        if status != 204:
            sent += http.send(h11.Data(data=said)) or b""
        return sent + (http.send(h11.EndOfMessage()) or b"")


@asynccontextmanager
async def directory_at(url: str, fake: FakeDirectory | None = None) -> AsyncGenerator[FakeDirectory]:
    """Have a directory there."""
    made = FakeDirectory() if fake is None else fake
    listener = await default_network().listen(endpoint_of(url))
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            while True:
                stream, _ = await listener.accept()
                nursery.start_soon(made.serve, stream)

        nursery.start_soon(accept)
        try:
            yield made
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                await listener.aclose()
