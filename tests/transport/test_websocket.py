"""The life of a connection against peers of every kind, on virtual time."""

from __future__ import annotations

import math

import attrs
import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import MockClock

from lmos_actors import ConfigError
from lmos_actors.errors import ConnectFailed, ConnectionLost
from lmos_actors.transport import (
    Connection,
    ConnectionOptions,
    Ended,
    MemoryNetwork,
    accept,
    connect,
    endpoint_of,
    memory_pair,
)
from tests.matrix import few_or_all
from tests.transport.peer import (
    CLOSE,
    ENDS,
    HEAD,
    PING,
    PONG,
    TEXT,
    Bin,
    Echo,
    Peer,
    Recorder,
    answer_to,
    closing,
    frame,
    frames_of,
    mask,
    play,
    server_end,
)

OPTIONS = ConnectionOptions()
both = pytest.mark.parametrize("end", ENDS)


async def hang(peer: Peer) -> None:
    """Read all there is and say nothing."""
    await peer.read_to_the_end()


def broken(reason: str) -> Ended:
    return Ended(None, reason, "broken", clean=False)


# ---- the heartbeat


@both
def test_a_peer_that_never_pongs_is_left(end: str) -> None:
    async def body(peer: Peer) -> None:
        start = trio.current_time()
        assert await peer.receive(1) == [(PING, b"")]
        assert trio.current_time() - start == pytest.approx(20)
        assert await peer.read_to_the_end() == [(PING, b"")]
        assert trio.current_time() - start == pytest.approx(40)

    _, peer = play(end, body)
    assert peer.ended == broken("the peer sent nothing within 20 s after a ping")


@both
@pytest.mark.parametrize("sign", [frame(PONG), frame(TEXT, b"x"), frame(TEXT, b"x")[:1]])
def test_any_byte_is_a_sign_of_life(end: str, sign: bytes) -> None:
    async def body(peer: Peer) -> None:
        await peer.receive(1)
        await trio.sleep(19)
        await peer.stream.send_all(sign if end == "client" else b"\x8a\x80xxxx")
        start = trio.current_time()
        await peer.receive(2)
        assert 20 <= trio.current_time() - start <= 41
        await peer.stream.aclose()

    play(end, body)


@both
def test_no_ping_while_data_arrives(end: str) -> None:
    async def body(peer: Peer) -> None:
        for _ in range(20):
            await peer.send(frame(TEXT, b"x"))
            await trio.sleep(15)
        await peer.send(closing())
        await peer.receive(1)
        await peer.stream.aclose()

    handler, peer = play(end, body)
    assert handler.got == ["x"] * 20
    assert peer.came() == [(CLOSE, b"\x03\xe8")]


@both
def test_a_heartbeat_can_be_switched_off(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(10_000)
        await peer.stream.aclose()

    _, peer = play(end, body, options=ConnectionOptions(heartbeat_seconds=math.inf))
    assert peer.came() == []


# ---- peers that do not read, or leave


@both
def test_a_peer_that_never_reads_is_left(end: str) -> None:
    start = 0.0

    async def body(peer: Peer) -> None:
        nonlocal start
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat, peer)
            await peer.over.wait()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - start == pytest.approx(30, abs=2)

    async def chat(peer: Peer) -> None:
        while True:
            await peer.send(frame(TEXT, b"x"))
            await trio.sleep(5)

    _, peer = play(end, body, handler=Recorder(b"x" * 1_000_000))
    assert peer.ended == broken("the peer did not take what was sent within 30 s")


@both
def test_a_peer_that_reads_slowly_gets_it_all(end: str) -> None:
    async def body(peer: Peer) -> None:
        while len(peer.sent) < 1_000_000:
            data = await peer.stream.receive_some(30_000)
            assert data
            peer.sent += data
            await trio.sleep(8)
        await peer.stream.aclose()

    _, peer = play(
        end, body, handler=Recorder(b"x" * 1_000_000), options=ConnectionOptions(heartbeat_seconds=1000)
    )
    assert peer.came() == [(TEXT, b"x" * 1_000_000)]


@both
def test_a_peer_that_sends_a_byte_a_second_is_served(end: str) -> None:
    async def body(peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read_to_the_end)
            data = frame(TEXT, b"a" * 200) + closing()
            for byte in mask(data) if end == "server" else data:
                await peer.stream.send_all(bytes([byte]))
                await trio.sleep(1)
            await peer.stream.send_eof()

    handler, peer = play(end, body)
    assert handler.got == ["a" * 200]
    assert peer.ended == Ended(1000, "", "peer", clean=True)


@both
@pytest.mark.parametrize("fast", [True, False])
def test_a_peer_that_leaves_in_mid_frame(end: str, fast: bool) -> None:
    async def body(peer: Peer) -> None:
        await peer.send(frame(TEXT, b"whole") + frame(TEXT, b"not whole")[:7])
        await trio.sleep(1)
        await peer.stream.aclose()

    handler, peer = play(end, body, options=ConnectionOptions(fast_frames=fast))
    assert handler.got == ["whole"]
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.by) == (None, "broken")


@both
def test_a_connection_that_is_reset(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        peer.stream.break_now()

    _, peer = play(end, body)
    assert peer.ended == broken("the connection ended, without a Close frame")


@both
def test_a_connection_that_is_reset_while_we_send(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        peer.stream.break_now("cable cut")

    _, peer = play(end, body, handler=Recorder(b"x" * 1_000_000))
    assert peer.ended is not None
    assert peer.ended.by == "broken"


@both
def test_a_peer_that_leaves_with_more_to_read(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        await peer.stream.send_eof()
        start = trio.current_time()
        await peer.over.wait()
        assert trio.current_time() == start
        await peer.stream.aclose()

    _, peer = play(end, body, handler=Recorder(b"x" * 1_000_000))
    assert peer.ended == broken("the connection ended, without a Close frame")


@both
def test_a_peer_that_closes_with_more_to_read_gets_our_answer_if_it_reads(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        await peer.send(closing(1001))
        await trio.sleep(4)
        await peer.receive(2)
        await peer.stream.aclose()

    _, peer = play(end, body, handler=Recorder(b"x" * 100_000))
    assert [opcode for opcode, _ in peer.came()] == [TEXT, CLOSE]
    assert peer.ended == Ended(1001, "", "peer", clean=True)


@both
def test_a_peer_that_closes_and_never_reads(end: str) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        await peer.send(closing(1001))
        await peer.over.wait()
        assert trio.current_time() == pytest.approx(6)

    _, peer = play(end, body, handler=Recorder(b"x" * 100_000))
    assert peer.ended == Ended(1001, "", "peer", clean=False)


# ---- closing


@both
def test_what_waits_goes_out_before_our_close(end: str) -> None:
    async def body(peer: Peer) -> None:
        peer.connection.close(1001, "going")
        peer.connection.close(4000, "too late")
        await peer.receive(4)
        await peer.send(closing(1001))
        await peer.stream.aclose()

    _, peer = play(end, body, handler=Recorder(b"a", Bin(b"b"), b"c" * 200_000))
    assert [payload for _, payload in peer.came()] == [b"a", b"b", b"c" * 200_000, b"\x03\xe9going"]
    assert peer.ended == Ended(1001, "going", "us", clean=True)


@both
def test_after_our_close_the_peer_is_still_listened_to(end: str) -> None:
    """DECISIONS C2: what it sent before it knew is taken."""

    async def body(peer: Peer) -> None:
        peer.connection.close(1012)
        await peer.receive(1)
        await peer.send(frame(TEXT, b"late") + frame(PING, b"p") + frame(TEXT, b"later"))
        await trio.sleep(3)
        await peer.send(frame(TEXT, b"last") + closing(1012))
        await peer.stream.aclose()

    handler, peer = play(end, body)
    assert handler.got == ["late", "later", "last"]
    assert peer.came() == [(CLOSE, b"\x03\xf4")]
    assert peer.ended == Ended(1012, "", "us", clean=True)


@both
def test_a_peer_that_never_answers_our_close(end: str) -> None:
    async def body(peer: Peer) -> None:
        start = trio.current_time()
        peer.connection.close()
        await peer.read_to_the_end()
        assert trio.current_time() - start == pytest.approx(5)

    _, peer = play(end, body)
    assert peer.ended == Ended(1000, "", "us", clean=False)


@both
def test_a_peer_that_pings_while_we_close(end: str) -> None:
    async def body(peer: Peer) -> None:
        peer.connection.close()
        await peer.receive(1)
        for _ in range(3):
            await peer.send(frame(PING, b"x"))
            await trio.sleep(0.1)
        await peer.send(closing())
        await peer.stream.aclose()

    _, peer = play(end, body)
    assert peer.came() == [(CLOSE, b"\x03\xe8")]
    assert peer.ended == Ended(1000, "", "us", clean=True)


@both
@pytest.mark.parametrize("more", [frame(TEXT, b"late"), frame(PING), closing(1002), b"\xff" * 50])
@pytest.mark.parametrize("fast", [True, False])
def test_what_follows_the_answer_to_our_close_is_nothing(end: str, more: bytes, fast: bool) -> None:
    async def body(peer: Peer) -> None:
        peer.connection.close()
        await peer.receive(1)
        await peer.send(closing() + more)
        await peer.stream.send_eof()
        await peer.read_to_the_end()

    handler, peer = play(end, body, options=ConnectionOptions(fast_frames=fast))
    assert (handler.got, peer.raised) == ([], None)
    assert peer.ended == Ended(1000, "", "us", clean=True)


@both
def test_both_close_at_once(end: str) -> None:
    async def body(peer: Peer) -> None:
        await peer.send(closing(1001))
        peer.connection.close(1012)
        await peer.read_to_the_end()
        await peer.stream.aclose()

    _, peer = play(end, body)
    assert peer.ended is not None
    assert peer.ended.clean
    assert len(peer.came()) == 1


def test_a_client_waits_for_the_server_to_end_the_stream() -> None:
    async def body(peer: Peer) -> None:
        await peer.send(closing())
        await peer.receive(1)
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError), trio.fail_after(4):
            await peer.stream.receive_some()
        await peer.read_to_the_end()
        assert trio.current_time() - start == pytest.approx(5)

    _, peer = play("client", body)
    assert peer.ended == Ended(1000, "", "peer", clean=True)


def test_a_server_ends_the_stream_at_once() -> None:
    async def body(peer: Peer) -> None:
        await peer.send(closing())
        await peer.read_to_the_end()
        assert trio.current_time() == start

    start = 0.0
    _, peer = play("server", body)
    assert peer.ended == Ended(1000, "", "peer", clean=True)


@pytest.mark.slow
@both
def test_a_handler_that_never_runs_dry_is_closed_all_the_same(end: str) -> None:
    class Endless(Recorder):
        def frames(self, room: int) -> list[bytes]:
            return [b"x" * room]

    async def body(peer: Peer) -> None:
        peer.connection.close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, peer.stream)
            await peer.over.wait()
            nursery.cancel_scope.cancel()

    async def drain(stream: trio.abc.Stream) -> None:
        data = b"x"
        while data:
            data = await stream.receive_some()
            await trio.sleep(0.01)
        await stream.aclose()

    _, peer = play(end, body, handler=Endless())
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.by) == (1000, "us")


@pytest.mark.parametrize("size", [1, 65_536])
async def test_a_handler_that_always_has_more_lets_others_run(size: int) -> None:
    class Endless(Recorder):
        pulled = 0

        def frames(self, room: int) -> list[bytes]:
            self.pulled += 1
            return [b"x" * size]

    ours, theirs = memory_pair(100_000_000)
    handler = Endless()
    connection = await accept(ours, HEAD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, handler)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert 0 < handler.pulled < 200
        theirs.break_now()


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 5000, 70000])
async def test_a_code_that_no_close_frame_may_carry(code: int) -> None:
    peer = await server_end(OPTIONS)
    with pytest.raises(ValueError, match="no Close frame"):
        peer.connection.close(code)
    await peer.connection.aclose()


@both
@pytest.mark.parametrize(("reason", "sent"), [("€" * 50, "€" * 41), ("\ud800", "?")])
def test_a_reason_is_cut_where_it_must_be(end: str, reason: str, sent: str) -> None:
    async def body(peer: Peer) -> None:
        peer.connection.close(1000, reason)
        await peer.receive(1)
        await peer.stream.aclose()

    _, peer = play(end, body)
    assert peer.came() == [(CLOSE, b"\x03\xe8" + sent.encode())]


# ---- limits


@both
def test_too_many_messages_a_second(end: str) -> None:
    async def body(peer: Peer) -> None:
        for _ in range(3):
            await peer.send(frame(TEXT, b"x") * 10)
            await trio.sleep(1)
        await peer.send(frame(TEXT, b"y") * 11 + frame(TEXT, b"z"))
        await peer.read_to_the_end()

    handler, peer = play(end, body, options=ConnectionOptions(messages_per_second=10))
    assert handler.got == ["x"] * 30 + ["y"] * 10
    assert peer.ended == Ended(1008, "more than 10 messages a second", "us", clean=False)
    assert peer.came()[-1][1].startswith(b"\x03\xf0")


@both
@pytest.mark.parametrize("trifle", [frame(PING), frame(PONG), frame(0, fin=False)])
@pytest.mark.parametrize("fast", [True, False])
def test_trifles_count_as_messages(end: str, trifle: bytes, fast: bool) -> None:
    async def body(peer: Peer) -> None:
        await peer.send(frame(TEXT, fin=False))
        await peer.send(trifle * 10)
        await peer.read_to_the_end()

    _, peer = play(end, body, options=ConnectionOptions(messages_per_second=10, fast_frames=fast))
    assert peer.ended is not None
    assert (peer.ended.code if trifle[0] == 0 else 1008) == 1008


@both
def test_pongs_that_wait_are_bounded(end: str) -> None:
    async def body(peer: Peer) -> None:
        await peer.send(b"".join(frame(PING, b"%d" % n) for n in range(3000)))
        await trio.sleep(1)
        while not peer.came() or peer.came()[-1][1] != b"2999":
            await peer.receive(len(peer.came()) + 1)
        await peer.stream.aclose()

    _, peer = play(end, body, buffer=1024)  # so that few of them are taken meanwhile
    pongs = [payload for _, payload in peer.came()]
    assert pongs[-1] == b"2999"
    assert len(pongs) <= 400


@both
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "much", [frame(TEXT, b"x"), frame(PING), frame(PONG), frame(TEXT, b"", fin=False) + frame(0, b"x")]
)
def test_others_have_turns_while_a_peer_floods(end: str, much: bytes, fast: bool) -> None:
    count = few_or_all(800, 3200)

    async def body(peer: Peer) -> None:
        turns = 0
        await peer.send(much * count + frame(TEXT, b"last"))
        while handler.got[-1:] != ["last"]:
            await checkpoint()
            turns += 1
        assert turns >= count / 64
        await peer.stream.aclose()

    handler = Recorder()
    _, peer = play(end, body, handler=handler, options=ConnectionOptions(fast_frames=fast), buffer=1 << 20)
    assert peer.raised is None


@both
def test_after_an_error_the_peer_may_go_on_in_vain(end: str) -> None:
    """What it sends is dropped, not kept, and it is not reset before it could read our Close."""

    async def body(peer: Peer) -> None:
        await peer.stream.send_all(b"\xff" * 100)
        for _ in range(4):
            await peer.stream.send_all(b"\xff" * 60_000)
            await trio.sleep(1)
        await peer.stream.aclose()
        await trio.sleep(1)
        assert peer.ended is not None

    handler, peer = play(end, body)
    assert handler.got == []
    assert peer.ended is not None
    assert (peer.ended.code, peer.ended.by) == (1002, "us")


@both
def test_after_an_error_the_peer_sees_our_end_at_once(end: str) -> None:
    async def body(peer: Peer) -> None:
        start = trio.current_time()
        await peer.stream.send_all(b"\xff" * 20)
        assert [opcode for opcode, _ in await peer.read_to_the_end()] == [CLOSE]
        assert trio.current_time() == start
        assert not peer.over.is_set()
        await peer.stream.aclose()
        await peer.over.wait()
        assert trio.current_time() == start

    play(end, body)


class Whole(trio.abc.Stream):
    """A stream that cannot be half closed, nor sent to without waiting, as those of TLS."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self.inner = inner

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.parametrize(("data", "seconds"), [(b"\xff" * 20, 1), (b"", 40)])
def test_a_stream_that_cannot_be_half_closed(data: bytes, seconds: float) -> None:
    async def main() -> None:
        ours, theirs = memory_pair()
        connection = await accept(Whole(ours), HEAD)
        handler = Recorder(b"a" * 300_000)
        await theirs.send_all(data)
        found = bytearray()

        async def read() -> None:
            while part := await theirs.receive_some():
                found.extend(part)
            assert trio.current_time() == pytest.approx(seconds)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await connection.run(handler)
        sent = bytes(found).partition(b"\r\n\r\n")[2]
        opcodes = [opcode for opcode, _ in frames_of(sent, masked=False)]
        assert opcodes == ([TEXT, CLOSE] if data else [TEXT, PING])
        assert connection.statistics().bytes_out == len(sent)

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("name", [f.name for f in attrs.fields(ConnectionOptions) if f.name != "fast_frames"])
def test_limits_are_above_0(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ConnectionOptions(**{name: 0})


# ---- handlers that fail


@both
@pytest.mark.parametrize("message", [frame(TEXT, b"x"), frame(2, b"x")])
def test_a_handler_that_raises_ends_its_connection_with_1011(end: str, message: bytes) -> None:
    error = RuntimeError("a bug")
    handler = Recorder(b"out")

    def fail(_: object) -> None:
        raise error

    handler.on_message = fail

    async def body(peer: Peer) -> None:
        await peer.send(message + message)
        await peer.read_to_the_end()

    _, peer = play(end, body, handler=handler)
    assert peer.raised is error
    assert len(handler.got) == 1
    assert peer.came()[-1] == (CLOSE, b"\x03\xf3")


@both
def test_a_handler_whose_frames_raise(end: str) -> None:
    class Bad(Recorder):
        def frames(self, room: int) -> list[bytes]:
            raise RuntimeError("a bug")

    async def body(peer: Peer) -> None:
        assert await peer.read_to_the_end() == [(CLOSE, b"\x03\xf3")]

    _, peer = play(end, body, handler=Bad())
    assert repr(peer.raised) == "RuntimeError('a bug')"


async def test_a_connection_runs_once() -> None:
    peer = await server_end(OPTIONS)
    await peer.stream.aclose()
    await peer.connection.run(Recorder())
    with pytest.raises(RuntimeError, match="once"):
        await peer.connection.run(Recorder())


# ---- two of our ends


@pytest.mark.parametrize("fast", [True, False])
def test_two_ends_of_ours(fast: bool) -> None:
    options = ConnectionOptions(fast_frames=fast)
    messages = [b"x" * n for n in (0, 1, 125, 126, 70_000, 300_000)] + [Bin(b"\xff" * 70_000)]

    async def main() -> list[Ended]:
        network = MemoryNetwork()
        listener = await network.listen(endpoint_of("ws://here/"))
        ended: list[Ended] = []

        async def serve() -> None:
            stream, peer = await listener.accept()
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some()
            connection = await accept(
                stream,
                request,
                subprotocol="lmosprotocol",
                headers=((b"LMOS-Extensions", b"acks"),),
                peer=peer,
            )
            assert connection.target == "/ws?x=1"
            assert (b"lmos-peer", b"12") in connection.headers
            assert connection.offered == ("lmosprotocol",)
            echo = Echo()
            echo.connection = connection
            ended.append(await connection.run(echo))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            connection = await connect(
                network, "ws://here/ws?x=1", headers=((b"LMOS-Peer", b"12"),), options=options
            )
            assert (connection.subprotocol, connection.target) == ("lmosprotocol", "/ws?x=1")
            assert connection.headers == ((b"lmos-extensions", b"acks"),)
            handler = Recorder(*messages)
            handler.connection = connection
            handler.on_message = lambda _: connection.close() if len(handler.got) == len(messages) else None
            ended.append(await connection.run(handler))
        assert handler.got == [bytes(m) if isinstance(m, Bin) else m.decode() for m in messages]
        assert connection.statistics().messages_in == connection.statistics().messages_out == len(messages)
        return ended

    ended = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert ended == [Ended(1000, "", "peer", clean=True), Ended(1000, "", "us", clean=True)]


# ---- handshakes


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "it answered 403 Forbidden"),
        (b"HTTP/1.1 299 Hm\r\nContent-Length: 0\r\n\r\n", "it answered 299"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no WebSocket handshake"),
        (b"\xff\xfe\r\n\r\n", "no WebSocket handshake"),
        (b"HTTP/1.1 101 Hm\r\n\r\n", "no WebSocket handshake"),
        (b"HTTP/1.1 101 Hm\r\nUpgrade: websocket\r\nConnection: \xff\r\n\r\n", "no WebSocket handshake"),
        (b"HTTP/1.1 101 Hm", "the server closed the connection"),
        (b"", "the server closed the connection"),
        (None, "no answer to the handshake within 10 s"),
    ],
)
def test_a_server_that_is_none(answer: bytes | None, why: str) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        listener = await network.listen(endpoint_of("ws://here/"))

        async def serve() -> None:
            stream, _ = await listener.accept()
            if answer is None:
                await trio.sleep(11)
            else:
                await stream.send_all(answer[:60_000])
                await stream.send_eof()
            while await stream.receive_some():
                pass
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises(ConnectFailed, match=why):
                await connect(network, "ws://here/")

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_network_that_never_connects() -> None:
    class Nowhere:
        async def connect(self, endpoint: object, tls: object) -> trio.abc.Stream:
            await trio.sleep_forever()
            raise AssertionError

        async def listen(self, endpoint: object) -> None: ...

    async def main() -> None:
        with pytest.raises(ConnectFailed, match="no connection within 10 s"):
            await connect(Nowhere(), "ws://here/")

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectFailed, match="nothing is listening"):
        await connect(MemoryNetwork(), "ws://here/")


@pytest.mark.parametrize(
    "headers", [((b"A", b"secret\r\nC: d"),), ((b"A b", b"secret"),), ((b"A", b"secret\0"),)]
)
async def test_a_header_that_cannot_be_sent(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here/"))
    with pytest.raises(ConfigError, match=r"cannot be sent: Illegal header (name|value)$"):
        await connect(network, "ws://here/", headers=headers)
    stream, _ = await listener.accept()
    assert await stream.receive_some() == b""
    await listener.aclose()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("fast", [True, False])
def test_what_comes_with_the_handshake_is_not_lost(end: str, fast: bool) -> None:
    async def body(peer: Peer) -> None:
        await trio.sleep(1)
        await peer.send(closing())
        await peer.receive(1)
        await peer.stream.aclose()

    options = ConnectionOptions(fast_frames=fast)
    handler, _ = play(end, body, more=frame(TEXT, b"pushed") + frame(PING, b"p"), options=options)
    assert handler.got == ["pushed"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD.replace(b"Upgrade: websocket\r\n", b""), b"400"),
        (HEAD.replace(b"Version: 13", b"Version: 12"), b"426"),
        (HEAD.replace(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b""), b"400"),
        (HEAD.replace(b"GET", b"PUT"), b"400"),
        (HEAD.replace(b"here:80", b"xn--a"), b"400"),
        (HEAD.replace(b"here:80", b"xn--zzz-"), b"400"),
        (HEAD.replace(b"lmosprotocol, other", b"\xff"), b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"400"),
        (b"\x16\x03\x01" * 30 + b"\r\n\r\n", b"400"),
    ],
)
async def test_an_upgrade_that_is_none(head: bytes, status: bytes) -> None:
    ours, theirs = memory_pair()
    with pytest.raises(ConnectionLost, match="no WebSocket handshake"):
        await accept(ours, head)
    answer = await theirs.receive_some()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert await theirs.receive_some() == b""


async def test_a_subprotocol_that_was_not_offered() -> None:
    ours, theirs = memory_pair()
    with pytest.raises(Exception, match="unexpected subprotocol"):
        await accept(ours, HEAD, subprotocol="chat")
    assert await theirs.receive_some() == b""


async def test_a_peer_that_is_gone_before_the_answer() -> None:
    ours, theirs = memory_pair()
    await theirs.aclose()
    with pytest.raises(ConnectionLost):
        await accept(ours, HEAD)


async def test_a_peer_that_does_not_take_the_answer(autojump_clock: MockClock) -> None:
    ours, theirs = memory_pair(buffer=10)
    with pytest.raises(ConnectionLost, match="not taken within 10 s"):
        await accept(ours, HEAD)
    await theirs.aclose()


# ---- memory streams of one byte, and masks


def test_masks_come_from_where_the_caller_says() -> None:
    async def run() -> bytes:
        network = MemoryNetwork()
        listener = await network.listen(endpoint_of("ws://here/"))

        async def serve() -> bytes:
            stream, _ = await listener.accept()
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some()
            await stream.send_all(answer_to(request, b"") + frame(PING, b"p"))
            found = b""
            while len(frames_of(found, masked=True)) < 4:
                found += await stream.receive_some()
            await stream.aclose()
            return found

        sent: list[bytes] = []

        async def keep() -> None:
            sent.append(await serve())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            connection = await connect(network, "ws://here/", masks=lambda size: b"\1" * size)
            nursery.start_soon(connection.run, Recorder(b"text", Bin(b"binary")))
            await trio.sleep(1)
            connection.close()
        return sent[0]

    sent = trio.run(run, clock=MockClock(autojump_threshold=0))
    assert sorted(payload for _, payload in frames_of(sent, masked=True)) == [
        b"\x03\xe8",
        b"binary",
        b"p",
        b"text",
    ]
    assert sent.count(b"\1\1\1\1") == 4


@both
def test_a_stream_of_one_byte(end: str) -> None:
    async def body(peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read_to_the_end)
            await peer.send(frame(TEXT, b"hello") + closing())
            await trio.sleep(1)
            await peer.stream.send_eof()

    if end == "server":
        return
    handler, peer = play(end, body, handler=Recorder(b"answer"), buffer=1)
    assert handler.got == ["hello"]
    assert peer.came() == [(TEXT, b"answer"), (CLOSE, b"\x03\xe8")]


def test_a_connection_that_never_runs_can_be_closed() -> None:
    async def main() -> None:
        peer = await server_end(OPTIONS)
        await peer.connection.aclose()
        await peer.connection.aclose()
        assert await peer.stream.receive_some() == b""
        assert isinstance(peer.connection, Connection)

    trio.run(main)
