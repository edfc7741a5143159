"""Things of others that speak only HTTP: servers by hand, on a network in memory, and their descriptions."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import h11
import trio

from lmos_actors import open_node
from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node
    from lmos_actors.bindings import ConsumedThing

TD = "https://www.w3.org/2022/wot/td/v1.1"
SSE = "text/event-stream"
PROBLEM = "application/problem+json"


@attrs.frozen
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def say(
    data: Any = None, status: str = "200 OK", kind: str | None = "application/json", **headers: str
) -> bytes:
    """Write an answer; plain data as JSON, bytes as they are."""
    body = b"" if data is None else data if isinstance(data, bytes) else json.dumps(data).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind and body else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: str, **members: Any) -> bytes:
    """Write problem details."""
    return say({"status": int(status[:3]), **members}, status, PROBLEM)


NOTHING = say(status="204 No Content")
STREAM = f"HTTP/1.1 200 OK\r\nContent-Type: {SSE}\r\nConnection: close\r\n\r\n".encode()


class Site:
    """A server by hand: answers by "METHOD /target", as bytes, or by a function that talks on the stream."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.answers: dict[str, Any] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self._streams: set[Any] = set()

    def hang_up(self) -> None:
        """Close all connections."""
        for stream in self._streams:
            stream.close()

    def on(self, line: str, *answers: Any) -> None:
        """Give these answers to a request, one after another, the last one again and again."""
        self.answers[line] = list(answers)

    def lines(self) -> list[str]:
        return [each.line for each in self.asked]

    def last(self, line: str) -> Asked:
        return next(each for each in reversed(self.asked) if each.line == line)

    async def serve(self, url: str, task_status: Any) -> None:
        listener = await self.network.listen(endpoint_of(url))
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    stream, _ = await listener.accept()
                    self.connections += 1
                    nursery.start_soon(self._talk, stream)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _talk(self, stream: Any) -> None:
        self.open += 1
        self._streams.add(stream)
        try:
            await self._talked(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass
        finally:
            self.open -= 1
            self._streams.discard(stream)
            stream.close()

    async def _talked(self, stream: Any) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            asked = await self._next(http, stream)
            if asked is None:
                return
            self.asked.append(asked)
            found = self.answers.get(asked.line, [say({"no": asked.line}, "404 Not Found")])
            answer: Any = found.pop(0) if len(found) > 1 else found[0]
            if callable(answer):
                answer = answer(asked)
            if isinstance(answer, bytes):
                await stream.send_all(answer)
                if b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower():
                    return
            elif await answer(stream):
                return
            http = h11.Connection(h11.SERVER)

    async def _next(self, http: Any, stream: Any) -> Asked | None:
        request, body = None, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                headers = {name.decode(): value.decode() for name, value in request.headers}
                return Asked(request.method.decode(), request.target.decode(), headers, body)
            else:
                return None


Talk = "Callable[[Any], Awaitable[bool | None]]"


def talk(fn: Callable[[Any], Awaitable[Any]]) -> Callable[[Asked], Any]:
    """Answer by talking on the stream; what it gives says whether the connection is closed then."""
    return lambda _: fn


async def never(stream: Any) -> bool:
    """Give no answer."""
    await stream.receive_some()
    return True


async def cut(stream: Any) -> bool:
    """Break off without an answer."""
    return True


def events(*texts: str, then: Callable[[Any], Awaitable[Any]] | None = None) -> Callable[[Asked], Any]:
    """Answer with a stream of events, then go on as said: by default wait until the client leaves."""

    async def stream_events(stream: Any) -> bool:
        await stream.send_all(STREAM + "".join(texts).encode())
        await (then or never)(stream)
        return True

    return talk(stream_events)


def sent(data: Any, name: str | None = None, id: str | None = None) -> str:
    """Write one event."""
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {id}"] if id else []
    return "\n".join([*lines, f"data: {json.dumps(data)}", "", ""])


def described(**members: Any) -> dict[str, Any]:
    """Make a description."""
    return {
        "@context": TD,
        "id": "urn:example:lamp",
        "title": "Lamp",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        **members,
    }


def form(href: str, *ops: str, **more: Any) -> dict[str, Any]:
    """Make a form."""
    return {"href": href, **({"op": list(ops)} if ops else {}), **more}


LAMP = described(
    base="http://lamp/",
    properties={
        "on": {
            "type": "boolean",
            "observable": True,
            "forms": [
                form("on", "readproperty", "writeproperty"),
                form("on/watch", "observeproperty", subprotocol="sse"),
            ],
        },
        "level": {
            "type": "integer",
            "observable": True,
            "forms": [
                form("level", "readproperty", "writeproperty"),
                form("level/poll", "observeproperty", subprotocol="longpoll"),
            ],
        },
    },
    actions={
        "fade": {"input": {"type": "object"}, "forms": [form("fade")]},
        "reset": {"idempotent": True, "forms": [form("reset")]},
    },
    events={
        "burnt": {"data": {"type": "string"}, "forms": [form("burnt", "subscribeevent", subprotocol="sse")]},
        "hot": {"data": {"type": "number"}, "forms": [form("hot", "subscribeevent", subprotocol="longpoll")]},
    },
)
"""What most tests talk to."""


@asynccontextmanager
async def sites(
    *urls: str, network: MemoryNetwork | None = None, **options: Any
) -> AsyncGenerator[tuple[list[Site], Node]]:
    """Give servers by hand at these addresses, and a node on their network."""
    network = network or MemoryNetwork()
    made = [Site(network) for _ in urls]
    async with trio.open_nursery() as nursery:
        for site, url in zip(made, urls, strict=True):
            await nursery.start(site.serve, url)
        async with open_node(network=network, **options) as node:
            yield made, node
            assert node.connection_failures == ()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def lamp(
    description: dict[str, Any] = LAMP, **options: Any
) -> AsyncGenerator[tuple[Site, Node, ConsumedThing]]:
    """Give a server by hand, a node, and the lamp that is consumed there."""
    async with sites("http://lamp", **options) as ((site,), node):
        site.on("GET /td", say(description, kind="application/td+json"))
        thing = await node.consume_thing("http://lamp/td")
        site.asked.clear()
        yield site, node, thing
