"""Networks: where URLs lead, streams in memory and over TCP, listeners in trouble, TLS."""

from __future__ import annotations

import errno
import operator
import os
import socket
import ssl
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing
import trustme

from lmos_actors import ConfigError
from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import (
    ConnectionOptions,
    DirectStream,
    Endpoint,
    MemoryNetwork,
    TcpNetwork,
    accept,
    connect,
    endpoint_of,
    memory_pair,
)
from tests.rows import each_row
from tests.transport.peer import Bin, Echo, Recorder

if TYPE_CHECKING:
    from lmos_actors.transport import Ended, Listener, Network

LOCAL = endpoint_of("ws://127.0.0.1:0/")


# ---- URLs


@pytest.mark.parametrize(
    ("url", "endpoint", "shown"),
    [
        ("ws://here", Endpoint(False, "here", 80, "/"), "ws://here/"),
        ("wss://here", Endpoint(True, "here", 443, "/"), "wss://here/"),
        (
            "http://Here:8080/a/b?c=d&e",
            Endpoint(False, "here", 8080, "/a/b?c=d&e"),
            "ws://here:8080/a/b?c=d&e",
        ),
        ("https://here:80/x", Endpoint(True, "here", 80, "/x"), "wss://here:80/x"),
        ("ws://[::1]:9/x#y", Endpoint(False, "::1", 9, "/x"), "ws://[::1]:9/x"),
        ("ws://[::1]/", Endpoint(False, "::1", 80, "/"), "ws://[::1]/"),
        ("ws://127.0.0.1:0", Endpoint(False, "127.0.0.1", 0, "/"), "ws://127.0.0.1:0/"),
        ("WS://here?x", Endpoint(False, "here", 80, "/?x"), "ws://here/?x"),
    ],
)
def test_where_a_url_leads(url: str, endpoint: Endpoint, shown: str) -> None:
    assert endpoint_of(url) == endpoint
    assert endpoint.url == shown


@each_row(
    ("url", "why"),
    [
        ("", "scheme"),
        ("here:8080", "scheme 'here'"),
        ("//here", "scheme"),
        ("wsss://here", "did you mean 'wss'"),
        ("htp://here", "did you mean 'http'"),
        ("ftp://here", "ws, http, wss, https"),
        ("ws:///x", "no host"),
        ("ws://:80/x", "no host"),
        ("ws://here:99999/", "no URL"),
        ("ws://here:x/", "no URL"),
        ("ws://[::1/", "no URL"),
        ("ws://here/a b", "%XX"),
        ("ws://here/ä", "%XX"),
        ("ws://hütte/", "%XX"),
        ("ws://here/\r\nX: y", "%XX"),
        ("ws://me:secret@here/", "user names"),
        ("wx://me:secret@here/", "user names"),
        ("ws://me:secret@here:99999/", "user names"),
        ("ws://me:secret@", "user names"),
        (f"ws://{'a' * 64}/", "no host: each part"),
        ("ws://here..there/", "no host: each part"),
    ],
)
def test_a_url_that_leads_nowhere(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        endpoint_of(url)
    assert "secret" not in str(caught.value)


# ---- streams


class Checkpointing(trio.abc.HalfCloseableStream):
    """A stream of ours, with the checkpoint that it leaves out where nothing has to wait."""

    def __init__(self, inner: trio.abc.HalfCloseableStream) -> None:
        self.inner = inner

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None and operator.index(max_bytes) < 1:
            raise ValueError("at least one")
        return await self.inner.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self.inner.send_eof()

    async def aclose(self) -> None:
        await self.inner.aclose()


async def test_a_memory_stream_keeps_the_promises_of_streams() -> None:
    async def pair(buffer: int = 65536) -> tuple[Checkpointing, Checkpointing]:
        left, right = memory_pair(buffer)
        return Checkpointing(left), Checkpointing(right)

    async def clogged() -> tuple[Checkpointing, Checkpointing]:
        left, right = await pair(10)
        await left.send_all(b"x" * 10)
        await right.send_all(b"x" * 10)
        return left, right

    await trio.testing.check_half_closeable_stream(pair, clogged)


async def tcp_pair() -> tuple[DirectStream, DirectStream]:
    network = TcpNetwork()
    listener = await network.listen(LOCAL)
    client = await network.connect(attrs.evolve(LOCAL, port=listener.addresses[0][1]), None)
    server, peer = await listener.accept()
    assert peer.startswith("127.0.0.1:")
    await listener.aclose()
    assert isinstance(client, DirectStream)
    assert isinstance(server, DirectStream)
    return client, server


async def test_a_tcp_stream_keeps_the_promises_of_streams() -> None:
    async def pair() -> tuple[Checkpointing, Checkpointing]:
        left, right = await tcp_pair()
        return Checkpointing(left), Checkpointing(right)

    await trio.testing.check_half_closeable_stream(pair, None)


async def test_a_tcp_stream_sends_without_delay_and_without_a_checkpoint() -> None:
    client, server = await tcp_pair()
    for stream in (client, server):
        assert stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    with trio.testing.assert_no_checkpoints():
        await client.send_all(b"short")
    assert await server.receive_some() == b"short"
    await client.aclose()
    assert await server.receive_some() == b""
    await server.aclose()


async def test_a_tcp_stream_that_takes_part_at_a_time() -> None:
    client, server = await tcp_pair()
    data = os.urandom(10_000_000)
    found = bytearray()

    async def read() -> None:
        while part := await server.receive_some():
            found.extend(part)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await client.send_all(data)
        await client.send_eof()
    assert found == data
    await client.aclose()
    await server.aclose()


async def test_a_busy_tcp_stream_lets_others_run() -> None:
    """Full reads are followed by a checkpoint, though there is always more."""
    client, server = await tcp_pair()
    client.send_now(b"x" * 1_000_000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for _ in range(20):
            await server.receive_some(1000)
        assert turns >= 15
        nursery.cancel_scope.cancel()
    await client.aclose()
    await server.aclose()


async def test_a_closed_tcp_stream_says_so() -> None:
    client, server = await tcp_pair()
    await client.aclose()
    await client.aclose()
    for use in (client.receive_some, client.wait_send_all_might_not_block, client.send_eof):
        with pytest.raises(trio.ClosedResourceError):
            await use()
    with pytest.raises(trio.ClosedResourceError):
        await client.send_all(b"x")
    with pytest.raises(trio.ClosedResourceError, match="the stream is closed"):
        client.send_now(b"x")
    await server.send_eof()
    with pytest.raises(trio.ClosedResourceError, match="has said its last"):
        server.send_now(b"x")
    await server.aclose()


async def test_a_tcp_stream_that_is_reset() -> None:
    client, server = await tcp_pair()
    server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await server.aclose()
    with pytest.raises(trio.BrokenResourceError, match="receiving failed"):
        await client.receive_some()
    with pytest.raises(trio.BrokenResourceError, match="sending failed"):
        await client.send_all(b"x")
    await client.aclose()


# ---- listeners


async def test_a_port_that_is_taken() -> None:
    for network in (TcpNetwork(), MemoryNetwork()):
        listener = await network.listen(LOCAL)
        taken = attrs.evolve(LOCAL, port=listener.addresses[0][1])
        with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1:"):
            await network.listen(taken)
        await listener.aclose()
        again = await network.listen(taken)
        await again.aclose()


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
async def test_a_host_that_is_not_here(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        await TcpNetwork().listen(endpoint_of(f"ws://{host}:0/"))


async def test_nobody_listens_there() -> None:
    listener = await TcpNetwork().listen(LOCAL)
    port = listener.addresses[0][1]
    await listener.aclose()
    with pytest.raises(ConnectFailed, match=r": Connection refused$"):
        await TcpNetwork().connect(attrs.evolve(LOCAL, port=port), None)
    with pytest.raises(ConnectFailed):
        await TcpNetwork().connect(endpoint_of("ws://nowhere.invalid/"), None)


async def test_a_socket_that_knows_no_delay_is_a_stream_all_the_same() -> None:
    left, right = socket.socketpair()  # refuses TCP's option, as some systems do where the peer has gone
    with right:
        stream = DirectStream(left)
        await stream.send_all(b"x")
        assert right.recv(9) == b"x"
        await stream.aclose()


@pytest.mark.parametrize("make", [TcpNetwork, MemoryNetwork])
async def test_a_closed_listener_accepts_nobody(make: type[Network]) -> None:
    listener = await make().listen(LOCAL)
    addresses = listener.addresses

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await listener.aclose()
        await listener.aclose()
    await wait()
    assert listener.addresses == addresses, "who came before is served on, and told where it came in"


async def test_one_name_with_two_addresses_is_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")

    async def both(host: str, port: int, **_: object) -> list[object]:
        four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        return [four, six, four]

    monkeypatch.setattr(trio.socket, "getaddrinfo", both)
    network = TcpNetwork()
    try:
        listener = await network.listen(LOCAL)
    except ConfigError:
        pytest.skip("no IPv6 here")
    monkeypatch.undo()
    (four, port), (six, same) = listener.addresses
    assert (four, six, same) == ("127.0.0.1", "::1", port)
    for host in ("127.0.0.1", "::1"):
        client = await network.connect(Endpoint(False, host, port), None)
        server, peer = await listener.accept()
        assert peer.startswith("[::1]:" if host == "::1" else "127.0.0.1:")
        await client.aclose()
        await server.aclose()
    await listener.aclose()


class Failing:
    """A listening socket whose `accept` fails at first."""

    def __init__(self, inner: socket.socket, errors: list[int]) -> None:
        self._inner = inner
        self._errors = errors

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def accept(self) -> tuple[socket.socket, object]:
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self._inner.accept()


async def test_accepting_survives_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = TcpNetwork()
    listener = await network.listen(LOCAL)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(trio, "sleep", sleep)
    errors = [errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.EPERM, errno.ENOBUFS]
    listener._sockets[:] = [Failing(listener._sockets[0], errors)]
    client = await network.connect(attrs.evolve(LOCAL, port=listener.addresses[0][1]), None)
    server, _ = await listener.accept()
    assert slept == [0.1] * 3, "it neither spins nor waits in vain"
    for each in (client, server, listener):
        await each.aclose()


# ---- memory networks


async def test_bytes_in_memory_are_bounded() -> None:
    left, right = memory_pair(10)
    assert left.send_now(b"x" * 15) == 10
    assert left.send_now(b"x") == 0
    assert await right.receive_some(4) == b"xxxx"
    assert left.send_now(b"yyyyyyyy") == 4
    assert await right.receive_some() == b"xxxxxxyyyy"


async def test_connections_can_be_severed() -> None:
    network = MemoryNetwork()
    first = await network.listen(endpoint_of("ws://here:1/"))
    second = await network.listen(endpoint_of("ws://here:2/"))
    ends = [await network.connect(endpoint_of(f"ws://here:{port}/"), None) for port in (1, 1, 2)]
    others = [(await listener.accept())[0] for listener in (first, first, second)]
    await ends[0].aclose()
    assert network.sever("here", 1, "cable cut") == 1
    for stream in (ends[1], others[1]):
        with pytest.raises(trio.BrokenResourceError, match="cable cut"):
            await stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x")
    await ends[2].send_all(b"x")
    assert await others[2].receive_some() == b"x"
    await first.aclose()
    assert network.sever("here", 3) == 0


async def test_a_severed_stream_wakes_who_waits() -> None:
    (left, right), (sender, other) = memory_pair(), memory_pair(1)

    async def expect(use: object) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await use()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect, right.receive_some)
        nursery.start_soon(expect, lambda: sender.send_all(b"xxxxxx"))
        await trio.testing.wait_all_tasks_blocked()
        left.break_now()
        other.break_now()


async def test_connections_that_nobody_accepts_end_with_the_listener() -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here/"))
    stream = await network.connect(endpoint_of("ws://here/"), None)
    await listener.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()
    with pytest.raises(ConnectFailed, match="nothing is listening"):
        await network.connect(endpoint_of("ws://here/"), None)


async def test_peers_in_memory_have_addresses_of_their_own() -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here/"))
    for _ in range(2):
        await network.connect(endpoint_of("ws://here/"), None)
    assert len({(await listener.accept())[1] for _ in range(2)}) == 2


# ---- one of each for real


AUTHORITY = trustme.CA()


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


MESSAGES = [b"x" * size for size in (0, 1, 126, 70_000, 2_000_000)] + [Bin(b"\xff" * 100_000)]


async def echo_once(listener: Listener, ended: list[Ended], *, secure: bool) -> None:
    stream, peer = await listener.accept()
    if secure:
        stream = trio.SSLStream(stream, server_context(), server_side=True, https_compatible=True)
    try:
        request = b""
        while b"\r\n\r\n" not in request:
            request += await stream.receive_some()
        connection = await accept(stream, request, subprotocol="lmosprotocol", peer=peer)
        handler = Echo()
        handler.connection = connection
        ended.append(await connection.run(handler))
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("make", [TcpNetwork, MemoryNetwork])
@pytest.mark.parametrize("fast", [True, False])
async def test_there_and_back(make: type[Network], secure: bool, fast: bool) -> None:
    network = make()
    listener = await network.listen(LOCAL)
    port = listener.addresses[0][1]
    ended: list[Ended] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: echo_once(listener, ended, secure=secure))
        url = f"{'wss' if secure else 'ws'}://127.0.0.1:{port}/ws"
        options = ConnectionOptions(fast_frames=fast)
        connection = await connect(network, url, tls=client_context(), options=options)
        handler = Recorder(*MESSAGES)
        handler.connection = connection
        handler.on_message = lambda _: connection.close(1000) if len(handler.got) == len(MESSAGES) else None
        with trio.fail_after(20):
            ended.append(await connection.run(handler))
    await listener.aclose()
    assert handler.got == [bytes(m) if isinstance(m, Bin) else m.decode() for m in MESSAGES]
    assert {each.by: (each.code, each.clean) for each in ended} == {"us": (1000, True), "peer": (1000, True)}


@pytest.mark.parametrize("make", [TcpNetwork, MemoryNetwork])
async def test_a_certificate_that_nobody_trusts(make: type[Network]) -> None:
    network = make()
    listener = await network.listen(LOCAL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: echo_once(listener, [], secure=True))
        with pytest.raises(ConnectFailed, match=r"TLS handshake failed.*is not accepted: unable to get"):
            await connect(network, f"wss://127.0.0.1:{listener.addresses[0][1]}/")
    await listener.aclose()


async def test_tls_to_a_port_without(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here:443/"))
    with pytest.raises(ConnectFailed, match="no connection within 10 s"):
        await connect(network, "wss://here/")
    stream, _ = await listener.accept()
    assert (await stream.receive_some())[:1] == b"\x16"
    assert await stream.receive_some() == b"", "the client's stream is closed"


async def test_tls_to_what_speaks_http(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here:443/"))

    async def refuse() -> None:
        stream, _ = await listener.accept()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse)
        with pytest.raises(ConnectFailed, match="does not speak TLS"):
            await connect(network, "wss://here/")


async def test_a_tls_peer_that_leaves_without_a_word() -> None:
    network = TcpNetwork()
    listener = await network.listen(LOCAL)
    ended: list[Ended] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: echo_once(listener, ended, secure=True))
        connection = await connect(
            network, f"wss://127.0.0.1:{listener.addresses[0][1]}/", tls=client_context()
        )
        await trio.aclose_forcefully(connection._stream)
    assert ended[0].by == "broken"
    await listener.aclose()


async def test_many_that_come_at_once_are_accepted_in_few_passes() -> None:
    """With one a pass, the last would wait for as many turns of those before it as there are of these."""
    network = TcpNetwork()
    listener = await network.listen(LOCAL)
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        clients = [socket.create_connection(listener.addresses[0]) for _ in range(200)]
        nursery.start_soon(count)
        streams = [(await listener.accept())[0] for _ in clients]
        nursery.cancel_scope.cancel()
    assert 0 < passes < 10
    for client, stream in zip(clients, streams, strict=True):
        client.close()
        await trio.aclose_forcefully(stream)
    await listener.aclose()


async def test_accepting_is_cancelled_where_one_waits() -> None:
    listener = await TcpNetwork().listen(LOCAL)
    client = socket.create_connection(listener.addresses[0])
    with trio.CancelScope() as scope:
        scope.cancel()
        await listener.accept()
    assert scope.cancelled_caught
    client.close()
    await listener.aclose()
