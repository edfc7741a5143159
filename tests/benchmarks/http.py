"""Agents asked over HTTP, from one process to another, and bare Starlette behind the same front door.

`python -m tests.benchmarks.http ours|starlette` is the server; it prints its port.
"""

from __future__ import annotations

import json
import socket
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors import Agent, MailboxOptions, Property, action, describe, open_node, prop
from lmos_actors.protocol.td import dump, with_forms
from lmos_actors.transport import FrontDoor, TcpNetwork, endpoint_of
from tests.benchmarks.limits_wire import HOST, QUESTION
from tests.benchmarks.servers import served
from tests.wire_conformance.worlds import without_sockets

if TYPE_CHECKING:
    from starlette.requests import Request

CONNECTIONS: Final = 16
_INPUT: Final = json.dumps({"text": QUESTION}).encode()


class Near(Agent, mailbox=MailboxOptions(size=65_536)):
    """What is read and invoked."""

    mood: Property[str] = prop(default=QUESTION)

    @action
    def echo(self, text: str) -> str:
        """Give it back."""
        return text


# --- servers


async def serve_ours() -> None:
    """Serve an agent."""
    async with open_node(listen=f"ws://{HOST}:0") as node:
        await node.start(Near)
        print(endpoint_of(node.urls[0]).port, flush=True)
        await trio.sleep_forever()


async def serve_starlette() -> None:
    """Serve the same by functions."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def read(request: Request) -> JSONResponse:
        return JSONResponse(QUESTION)

    async def invoke(request: Request) -> JSONResponse:
        return JSONResponse((await request.json())["text"])

    app: Any = Starlette(
        routes=[
            Route("/agents/{name}/properties/{property}", read),
            Route("/agents/{name}/actions/{action}", invoke, methods=["POST"]),
        ]
    )
    listener = await TcpNetwork().listen(endpoint_of(f"ws://{HOST}:0"))
    door = FrontDoor(listener, route=lambda upgrade: 1 / 0, app=app, on_failure=print)  # type: ignore[arg-type, return-value]
    print(listener.addresses[0][1], flush=True)
    await door.serve()


# --- the client


def _request(verb: str) -> bytes:
    if verb == "read":
        return f"GET /agents/near/properties/mood HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
    head = (
        f"POST /agents/near/actions/echo HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(_INPUT)}\r\n\r\n"
    )
    return head.encode() + _INPUT


def _answer(sock: socket.socket) -> bytes:
    """Read a whole answer; that it is one, and the right one, is seen to."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), data
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(65_536)
    return body


def _ask(port: int, verb: str, n: int) -> float:
    """Ask over some connections, each with one request under way; give how many were answered a second."""
    request, wanted = _request(verb), json.dumps(QUESTION).encode()
    socks = [socket.create_connection((HOST, port)) for _ in range(CONNECTIONS)]
    try:
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(request)
            assert _answer(sock) == wanted
        rounds = max(1, n // CONNECTIONS)
        began = clock()
        for _ in range(rounds):
            for sock in socks:
                sock.sendall(request)
            for sock in socks:
                _answer(sock)
        return rounds * CONNECTIONS / (clock() - began)
    finally:
        for sock in socks:
            sock.close()


def measured(kind: str, verb: str, n: int) -> float:
    """Measure a server of a kind: `read` a property, or `invoke` an action."""
    with served(__name__, kind) as port:
        return _ask(int(port), verb, n)


# --- refs over HTTP


def _over_http_alone(port: int) -> str:
    """Describe the agent as if its node spoke HTTP alone."""
    base = f"ws://{HOST}:{port}"
    described = describe(Near, id=f"http://{HOST}:{port}/agents/near")
    return json.dumps(without_sockets(dump(with_forms(described, "near", [base]))))


async def _consumed(port: int, n: int) -> float:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "near.td.json"
        file.write_text(_over_http_alone(port))
        async with open_node() as node:
            near = await node.consume(Near, file)

            async def some() -> None:
                for _ in range(max(1, n // CONNECTIONS)):
                    assert await near.read(Near.mood) == QUESTION

            await some()
            began = clock()
            async with trio.open_nursery() as nursery:
                for _ in range(CONNECTIONS):
                    nursery.start_soon(some)
            return max(1, n // CONNECTIONS) * CONNECTIONS / (clock() - began)


def consumed(n: int) -> float:
    """Measure reads by a ref over HTTP, some at a time."""
    with served(__name__, "ours") as port:
        return trio.run(_consumed, int(port), n)


read, read_starlette = partial(measured, "ours", "read"), partial(measured, "starlette", "read")
invoke, invoke_starlette = partial(measured, "ours", "invoke"), partial(measured, "starlette", "invoke")

if __name__ == "__main__":
    trio.run(serve_ours if sys.argv[1] == "ours" else serve_starlette)
