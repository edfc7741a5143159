"""A node with agents behind a guard, and those who come to its door: refs, sockets, plain requests."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import Agent, ChildSpec, Event, Property, SupervisorSpec, action, event, open_node, prop
from lmos_actors.actors import current_request
from lmos_actors.security import Access, Basic, BasicAuth, Bearer, BearerToken, Credentials, Security
from lmos_actors.transport import connect, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors import Node
    from lmos_actors.transport import Connection, Network

PLACE = "ws://here"


class Desk(Agent):
    """Answers who has asked."""

    units: Property[str] = prop(default="celsius")
    told: Event[str] = event()

    @action
    def who(self) -> str | None:
        return current_request().principal

    @action
    def tell(self, text: str) -> None:
        self.told.emit(text)

    @action
    def fall(self) -> None:
        raise KeyError("what nobody should be told")

    @action
    async def wait(self) -> None:
        await trio.sleep(100)


class Vault(Desk):
    """Is for few."""


@attrs.frozen
class Secrets:
    """Files with secrets, which can be changed."""

    folder: Path

    def put(self, name: str, *lines: str) -> str:
        """Write a file; give the reference to it."""
        path = self.folder / name
        path.write_text("\n".join(lines))
        return f"file:{path}"


def tree() -> SupervisorSpec:
    return SupervisorSpec("root", [ChildSpec("desk", Desk), ChildSpec("vault", Vault)])


def rules(secrets: Secrets, **more: Any) -> Security:
    """Alice and bob by token, carol by password; the vault is alice's."""
    given: dict[str, Any] = {
        "schemes": (
            Bearer({"alice": secrets.put("alice", "token-a"), "bob": secrets.put("bob", "token-b")}),
            Basic({"carol": secrets.put("carol", "pass:word")}),
        ),
        "access": {
            "vault": Access(read=("alice",), write=("alice",), invoke=("alice",), subscribe=("alice",))
        },
    }
    return Security(**{**given, **more})


@asynccontextmanager
async def guarded_node(security: Security | None, **options: Any) -> AsyncGenerator[Node]:
    async with open_node(tree(), listen=PLACE, security=security, **options) as node:
        yield node


def bearer(reference: str, url: str = PLACE) -> Credentials:
    return Credentials({url: BearerToken(reference)}, allow_insecure=True)


def basic(user: str, reference: str, url: str = PLACE) -> Credentials:
    return Credentials({url: BasicAuth(user, reference)}, allow_insecure=True)


def network_of(node: Node) -> Network:
    return node._connections.network  # pyright: ignore[reportPrivateUsage]


@attrs.frozen
class Answer:
    """What came back over plain HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    node: Node, path: str, method: str = "GET", *, body: bytes = b"", url: str = PLACE, **headers: str
) -> Answer:
    """Send one HTTP request. Names of headers have "_" for "-"; `host` stands in place of the usual one."""
    endpoint = endpoint_of(url)
    stream = await network_of(node).connect(endpoint, None)
    lines = {"host": endpoint.authority, "connection": "close", "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    async with stream:
        await stream.send_all(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return answer_in(await all_of(stream))


async def all_of(stream: trio.abc.Stream) -> bytes:
    data = b""
    while more := await stream.receive_some():
        data += bytes(more)
    return data


def answer_in(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Answer(int(first.split()[1]), headers, body)


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        found, data = found + data[:count], data[count + 2 :]
    return found


@asynccontextmanager
async def socket_to(
    node: Node, *headers: tuple[str, str], url: str = f"{PLACE}/ws"
) -> AsyncGenerator[Socket]:
    """Open a WebSocket as somebody who is no client of ours would."""
    coded = tuple((name.encode(), value.encode()) for name, value in headers)
    connection = await connect(network_of(node), url, headers=coded)
    socket = Socket(connection)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(socket.run)
        yield socket
        nursery.cancel_scope.cancel()


class Socket:
    """One end of a WebSocket: what it hears is kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._out: list[bytes] = []
        self._numbers = 0
        self.heard: list[dict[str, Any]] = []
        self.ended: Any = None
        self.ended_at = 0.0
        self._news = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        self.ended = await self._connection.run(self)
        self.ended_at = trio.current_time()
        self._news.unpark_all()

    def text(self, text: str) -> None:
        self.heard.append(json.loads(text))
        self._news.unpark_all()

    def binary(self, data: bytes) -> None:
        raise AssertionError(data)

    def frames(self, room: int) -> list[bytes]:
        found, self._out = self._out, []
        return found

    def say(self, **members: Any) -> str:
        """Send a message; what is None is left out."""
        self._numbers += 1
        said = {"thingID": "desk", "messageID": f"m{self._numbers}", **members}
        said = {name: value for name, value in said.items() if value is not None}
        self._out.append(json.dumps(said).encode())
        self._connection.wake()
        return said["messageID"]

    async def asked(self, **members: Any) -> dict[str, Any]:
        """Say something, and wait for the last word about it."""
        message_id = self.say(**members)
        while True:
            for each in self.heard:
                if each.get("correlationID") == message_id and each.get("status") not in (
                    "pending",
                    "in progress",
                ):
                    return each
            assert self.ended is None, self.ended
            await self._news.park()

    async def end(self) -> Any:
        """Wait for the end of the connection."""
        while self.ended is None:
            await self._news.park()
        return self.ended
