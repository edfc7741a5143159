"""Credentials of a node that consumes: each place gets its own, and no other place any."""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from lmos_actors import AgentUnavailable, open_node
from lmos_actors.security import Access, BasicAuth, BearerToken, Credentials
from lmos_actors.transport import ConnectFailed, MemoryNetwork, endpoint_of
from tests.security.nodes.guarded import PLACE, Desk, Secrets, bearer, guarded_node, network_of, rules, tree

if TYPE_CHECKING:
    from pathlib import Path

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


class Servers:
    """Servers by hand, which keep what each was told; they answer by host and target."""

    def __init__(self, nursery: trio.Nursery, network: MemoryNetwork) -> None:
        self.answers: dict[tuple[str, str], bytes] = {}
        self.told: list[tuple[str, str, str | None]] = []
        self._nursery = nursery
        self._network = network

    async def open(self, url: str) -> None:
        listener = await self._network.listen(endpoint_of(url))
        self._nursery.start_soon(self._accept, listener, endpoint_of(url).host)

    async def _accept(self, listener: Any, host: str) -> None:
        while True:
            stream, _ = await listener.accept()
            self._nursery.start_soon(self._answer, stream, host)

    async def _answer(self, stream: trio.abc.Stream, host: str) -> None:
        head = bytes(await stream.receive_some()).decode()
        if not head:  # a connection that was made in advance, and not used
            return
        target = head.split(" ")[1]
        said = [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("authoriz")]
        assert len(said) < 2
        self.told.append((host, target, said[0] if said else None))
        await stream.send_all(self.answers.get((host, target), NOT_FOUND))
        await stream.aclose()

    def move(self, host: str, target: str, to: str) -> None:
        self.answers[host, target] = (
            f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()
        )

    def describe(self, host: str, target: str, socket: str) -> None:
        form = {"href": socket, "op": ["readproperty"], "subprotocol": "lmosprotocol"}
        described = {
            "@context": "https://www.w3.org/2022/wot/td/v1.1",
            "id": "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10",
            "title": "Desk",
            "securityDefinitions": {"bearer_sc": {"scheme": "bearer"}},
            "security": "bearer_sc",
            "properties": {"units": {"type": "string", "forms": [form]}},
        }
        body = json.dumps(described)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/td+json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.answers[host, target] = (head + body).encode()


@pytest.mark.parametrize("way", ["ws", "http"])
@pytest.mark.parametrize(
    ("secured", "path", "said", "status"),
    [
        (False, "/agents/desk", "it answered 401 Unauthorized: credentials are needed", 401),
        (
            True,
            "/agents/desk",
            "it answered 400 Bad Request: this port speaks TLS: use https:// or wss://",
            400,
        ),
        (False, "/nowhere", "it answered 40[14] ", None),
    ],
)
async def test_the_reason_of_a_refusal_is_kept_whichever_way_is_taken(
    autojump_clock: Any, secrets: Secrets, way: str, secured: bool, path: str, said: str, status: int | None
) -> None:
    options: dict[str, Any] = {}
    if secured:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("here").configure_cert(tls)
        options = {"tls": tls, "listen": "wss://here:80"}
    security = rules(secrets, access={"desk": Access(read=("alice",))})
    network = MemoryNetwork()
    async with (
        open_node(tree(), **{"listen": PLACE, "security": security, "network": network, **options}),
        open_node(network=network) as client,
    ):
        with pytest.raises(ConnectFailed, match=said) as caught:
            await client.consume_thing(f"{way}://here{path}", thing=f"http://here{path}")
        assert caught.value.status == status or status is None


REFUSALS = {
    "in two pieces": (b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nenough", b" is"),
    "in chunks": (
        b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nenough is",
        b"\r\n0\r\n\r\n",
    ),
    "up to the end": (b"Content-Type: text/plain; charset=utf-8\r\n\r\nenough", b" is\n"),
    "as a problem": (b'Content-Type: application/problem+json\r\n\r\n{"detail": "enough', b' is"}'),
}
WITHOUT = {
    "a page": (b"Content-Type: text/html\r\n\r\n<p>", b"no"),
    "a long one": (b"Content-Type: text/plain\r\n\r\n" + b"long" * 10_000, b""),
    "two lines": (b"Content-Type: text/plain\r\n\r\none\ntwo", b""),
    "an endless one": (b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\n", None),
    "nothing of the kind": (b"Content-Type: application/problem+json\r\n\r\n[1]", b""),
    "broken": (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b""),
}


@pytest.mark.parametrize("kind", [*REFUSALS, *WITHOUT])
async def test_the_reason_in_the_body_of_a_refused_upgrade(autojump_clock: Any, kind: str) -> None:
    first, then = {**REFUSALS, **WITHOUT}[kind]
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://there:80"))

    async def refuse() -> None:
        stream, _ = await listener.accept()
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 403 Forbidden\r\n" + first)
        if then is None:
            await trio.sleep(30)
        else:
            await trio.sleep(0.5)
            with suppress(trio.BrokenResourceError):  # who wants no more of it has gone
                await stream.send_all(then)
        await stream.aclose()

    async with trio.open_nursery() as nursery, open_node(network=network) as client:
        nursery.start_soon(refuse)
        began = trio.current_time()
        with pytest.raises(ConnectFailed) as caught:
            await client.consume_thing("ws://there:80/ws", thing="urn:x")
        assert trio.current_time() - began < 2
        assert caught.value.status == 403
        assert caught.value.why == "it answered 403 Forbidden" + (": enough is" if kind in REFUSALS else "")


async def test_redirects_and_descriptions_take_no_credentials_along(
    autojump_clock: Any, secrets: Secrets
) -> None:
    network = MemoryNetwork()
    credentials = Credentials(
        {
            "http://here": BearerToken(secrets.put("here", "for-here")),
            "http://there:81": BasicAuth("u", secrets.put("there", "for-there")),
        },
        allow_insecure=True,
    )
    async with (
        trio.open_nursery() as nursery,
        open_node(network=network, credentials=credentials) as node,
    ):
        servers = Servers(nursery, network)
        for url in ("http://here", "http://here:81", "http://there:81", "http://elsewhere"):
            await servers.open(url)
        servers.move("here", "/a", "http://there:81/b")
        servers.move("there", "/b", "http://elsewhere/c")
        servers.move("elsewhere", "/c", "http://here:81/d")
        servers.move("here", "/d", "http://here/e")
        servers.describe("here", "/e", "ws://elsewhere/ws")
        with pytest.raises(ConnectFailed, match="404"):
            await node.consume_thing("http://here/a")
        basic = "Basic dTpmb3ItdGhlcmU="
        assert servers.told == [
            ("here", "/a", "Bearer for-here"),
            ("there", "/b", basic),
            ("elsewhere", "/c", None),
            ("here", "/d", None),  # it is another port
            ("here", "/e", "Bearer for-here"),
            ("elsewhere", "/ws", None),
        ]
        servers.told.clear()
        servers.describe("here", "/f", "ws://there:81/ws")
        with pytest.raises(ConnectFailed, match="404"):
            await node.consume_thing("http://here/f")
        assert [said for _, _, said in servers.told] == ["Bearer for-here", basic]
        nursery.cancel_scope.cancel()


async def test_what_is_given_for_one_call_goes_before_and_not_elsewhere(
    autojump_clock: Any, secrets: Secrets
) -> None:
    network = MemoryNetwork()
    known = {f"http://{host}": BearerToken(secrets.put(host, host)) for host in ("here", "there")}
    credentials = Credentials(known, allow_insecure=True)
    async with (
        trio.open_nursery() as nursery,
        open_node(network=network, credentials=credentials) as node,
    ):
        servers = Servers(nursery, network)
        for url in known:
            await servers.open(url)
        servers.move("here", "/a", "http://there/b")
        with pytest.raises(ConnectFailed, match="404"):
            await node.consume_thing("http://here/a", headers={"authorization": "Bearer given"})
        assert [said for _, _, said in servers.told] == ["Bearer given", "Bearer there"]
        nursery.cancel_scope.cancel()


async def test_what_is_for_tls_is_not_sent_without(autojump_clock: Any, secrets: Secrets) -> None:
    network = MemoryNetwork()
    credentials = Credentials({"https://here:80": BearerToken(secrets.put("here", "for-here"))})
    async with (
        trio.open_nursery() as nursery,
        open_node(network=network, credentials=credentials) as node,
    ):
        servers = Servers(nursery, network)
        await servers.open("http://here")
        for source in ("http://here/a", "ws://here/agents/desk"):
            with pytest.raises(ConnectFailed, match="404"):
                await node.consume_thing(source)
        assert [said for _, _, said in servers.told] == [None, None]
        nursery.cancel_scope.cancel()


async def test_every_reconnect_presents_what_the_secret_is_then(
    autojump_clock: Any, secrets: Secrets
) -> None:
    """Also while it is not there: that is one try that fails, and not the end of the ref."""
    mine = secrets.put("mine", "token-b")
    async with guarded_node(rules(secrets)) as node, open_node(credentials=bearer(mine)) as client:
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        network: Any = network_of(node)
        (secrets.folder / "mine").unlink()
        await trio.sleep(2)
        network.sever("here", 80)
        await trio.sleep(2)
        with pytest.raises(AgentUnavailable, match=r"file:.*mine"):
            await desk.invoke(Desk.who)
        secrets.put("bob", "token-c")
        secrets.put("mine", "token-c")
        await trio.sleep(60)
        assert await desk.invoke(Desk.who) == "bob"
        assert client.connection_failures == ()


async def test_a_refusal_is_reported_without_the_secret(autojump_clock: Any, secrets: Secrets) -> None:
    credentials = bearer(secrets.put("mine", "my-very-own"))
    async with guarded_node(rules(secrets)), open_node(credentials=credentials) as client:
        for source in (f"{PLACE}/agents/desk", "http://here/agents/desk", "http://here"):
            with pytest.raises(ConnectFailed, match="answered 401") as caught:
                await client.consume(Desk, source)
            assert "my-very-own" not in f"{caught.value!r} {client.dump()}"
        assert "my-very-own" not in repr(credentials)
