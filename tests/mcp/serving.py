"""An ASGI application on a loopback socket of trio, as small as can be, and a server by hand to be one."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
import trio
from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LEFT = (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError, h11.LocalProtocolError)


class Door:
    """The socket: what it serves may be replaced, and connections be cut."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.port = 0
        self.headers: list[dict[str, str]] = []
        self.streams: set[trio.SocketStream] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def cut(self) -> None:
        """Cut all connections."""
        for stream in list(self.streams):
            await trio.aclose_forcefully(stream)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.streams.add(stream)
        try:
            with suppress(*LEFT):
                await self._serve(stream, h11.Connection(h11.SERVER))
        except* LEFT:
            pass
        finally:
            self.streams.discard(stream)
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.SocketStream, http: h11.Connection) -> None:
        while True:
            head: Any = None
            body = b""
            while not isinstance(event := http.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    http.receive_data(await stream.receive_some(65_536))
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    return
            await self._answer(stream, http, head, body)
            if http.our_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _answer(self, stream: trio.SocketStream, http: h11.Connection, head: Any, body: bytes) -> None:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in head.headers]
        self.headers.append({name.decode(): value.decode() for name, value in headers})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": head.method.decode(),
            "path": head.target.decode(),
            "raw_path": bytes(head.target),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", self.port),
        }
        pieces = [{"type": "http.request", "body": body, "more_body": False}]
        left, done = trio.Event(), False

        async def receive() -> Any:
            if pieces:
                return pieces.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent = http.send(h11.Response(status_code=message["status"], headers=message["headers"]))
            else:
                sent = http.send(h11.Data(data=message.get("body", b""))) or b""
                if not message.get("more_body"):
                    sent += http.send(h11.EndOfMessage()) or b""
            await stream.send_all(sent or b"")

        async def watch() -> None:
            with suppress(*LEFT):
                await stream.receive_some(1)
            if not done:
                left.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await self.app(scope, receive, send)
            done = True
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_door(app: Any, port: int = 0) -> AsyncIterator[Door]:
    """Serve, on a free port if none is named."""
    async with trio.open_nursery() as nursery:
        door = Door(app)
        listeners = await nursery.start(partial(trio.serve_tcp, door.serve, port, host="127.0.0.1"))
        door.port = listeners[0].socket.getsockname()[1]
        yield door
        nursery.cancel_scope.cancel()


WORK = {"name": "work", "inputSchema": {"type": "object"}}


def by_hand(
    answer: Callable[[Any], Any], listed: Callable[[str | None], Any] = lambda cursor: {"tools": [WORK]}
) -> Any:
    """A server by hand, of the old handshake; `answer` returns the answer to a call, by its id.

    `listed` returns a page of tools, by its cursor: a result, or an application that answers.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        message = json.loads(body) if body else {}
        response: Any = Response(status_code=405 if scope["method"] == "GET" else 202)
        if "id" in message:
            if message["method"] == "server/discover":
                response = JSONResponse(
                    {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
                )
            elif message["method"] == "initialize":
                result = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                }
                response = JSONResponse(
                    {"jsonrpc": "2.0", "id": message["id"], "result": result},
                    headers={"mcp-session-id": "s-1"},
                )
            elif message["method"] == "tools/list":
                page = listed((message.get("params") or {}).get("cursor"))
                said = {"jsonrpc": "2.0", "id": message["id"], "result": page}
                response = JSONResponse(said) if isinstance(page, dict) else page
            else:
                response = answer(message["id"])
        await response(scope, receive, send)

    return app


def text_answer(id: Any, text: str) -> Response:
    result = {"content": [{"type": "text", "text": text}]}
    return JSONResponse({"jsonrpc": "2.0", "id": id, "result": result})
