"""The short cuts for frames have the verdicts of wsproto, whatever comes, however it is cut."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import attrs
import pytest
import trio
import trio_websocket
import wsproto
from hypothesis import example, given, settings, strategies as st
from trio.testing import MockClock
from wsproto.frame_protocol import FrameDecoder, FrameProtocol

from lmos_actors.transport import ConnectionOptions
from tests.matrix import examples
from tests.source import ROOT
from tests.transport.peer import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Bin,
    Peer,
    Recorder,
    chunks,
    closing,
    frame,
    mask,
    masks_of_a_client,
    play,
)

LIMIT = 300
OPTIONS = ConnectionOptions(max_message_bytes=LIMIT)

texts = st.text(max_size=60).map(lambda text: text.encode())
long_texts = st.sampled_from([b"x" * 125, b"x" * 126, b"y" * 300, b"z" * 301, "€".encode() * 100])
payloads = texts | long_texts | st.binary(max_size=10)
whole_texts = st.builds(frame, st.just(TEXT), texts | long_texts)
any_frames = st.builds(
    frame,
    st.sampled_from([0, TEXT, TEXT, TEXT, BINARY, PING, PONG, CLOSE, 3, 11]),
    payloads,
    fin=st.sampled_from([True, True, False]),
    rsv=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 4]),
    size=st.sampled_from([None, None, None, None, 2, 8]),
)


@st.composite
def messages_in_fragments(draw: st.DrawFn) -> bytes:
    opcode, payload = draw(st.sampled_from([TEXT, BINARY])), draw(texts | long_texts)
    parts = chunks(payload, draw(st.lists(st.integers(0, 50), max_size=4))) or [b""]
    between = draw(st.sampled_from([b"", b"", frame(PING, b"between"), frame(PONG)]))
    last = len(parts) - 1
    return b"".join(frame(0 if n else opcode, part, fin=n == last) + (between if n < last else b"")
                    for n, part in enumerate(parts))  # fmt: skip


streams = st.lists(whole_texts | messages_in_fragments() | any_frames, max_size=6)
cuts = st.lists(st.integers(1, 40), max_size=30)
END = frame(PING, b"end") + closing(1000) + b"\0" * 16  # so that no head waits for its rest


def outcome(end: str, data: bytes, sizes: list[int], fast: bool) -> object:
    async def body(peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read_to_the_end)
            for part in chunks(data, sizes):
                try:
                    await peer.stream.send_all(part)
                except trio.BrokenResourceError:
                    break
                await trio.sleep(0.001)
            await trio.sleep(0.01)
            await peer.stream.send_eof()

    handler, peer = play(end, body, options=attrs.evolve(OPTIONS, fast_frames=fast))
    assert peer.ended is not None
    ended = attrs.evolve(peer.ended, reason="" if peer.ended.by == "us" else peer.ended.reason)
    return handler.got, peer.came(), ended


@pytest.mark.slow
@given(st.sampled_from(["server", "client"]), streams, cuts)
@settings(max_examples=examples(300))
@example("server", [frame(TEXT, b"a"), frame(PING, b"p"), frame(TEXT, b"b")], [2, 3])
@example("client", [frame(TEXT, b"\xe2\x82", fin=False), frame(0, b"\xac")], [1])
@example("server", [frame(BINARY, b"\xff" * 200), frame(BINARY, b"\xfe" * 9)], [1, 3, 10, 7, 150])
@example("client", [frame(BINARY, b"x" * 200), frame(TEXT, b"a")], [4, 90])
@example("client", [frame(BINARY, b"x" * 301), frame(TEXT, b"a")], [4, 90])
@example("server", [frame(BINARY, b"\xff" * 200), frame(TEXT, b"a"), frame(BINARY), frame(BINARY, b"b")], [])
@example("client", [frame(BINARY, b"a"), frame(BINARY, b"x" * 301), frame(BINARY, b"b")], [])
@example("client", [frame(TEXT, b"a", fin=False), frame(BINARY, b"b"), frame(0, b"c")], [])
@example("server", [frame(TEXT, b"x" * 200), frame(0, b"x" * 200)], [])
@example("client", [frame(TEXT, b"x" * 200, fin=False), frame(0, b"x" * 101)], [])
def test_both_ways_of_reading_agree(end: str, frames: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frames) + END
    data = b"".join(mask(each) for each in (*frames, END)) if end == "server" else data
    assert outcome(end, data, sizes, fast=True) == outcome(end, data, sizes, fast=False)


@given(st.sampled_from(["server", "client"]), st.binary(max_size=80), cuts)
@settings(max_examples=examples(150))
def test_both_ways_of_reading_agree_about_noise(end: str, noise: bytes, sizes: list[int]) -> None:
    data = noise + (mask(END) if end == "server" else END)
    assert outcome(end, data, sizes, fast=True) == outcome(end, data, sizes, fast=False)


@given(
    st.sampled_from(["server", "client"]), st.lists(whole_texts | messages_in_fragments(), max_size=6), cuts
)
@settings(max_examples=examples(150))
def test_how_the_bytes_are_cut_changes_nothing(end: str, frames: list[bytes], sizes: list[int]) -> None:
    data = b"".join(mask(each) if end == "server" else each for each in (*frames, END))
    assert outcome(end, data, sizes, fast=True) == outcome(end, data, [], fast=True)


@given(st.lists(st.binary(max_size=3000), max_size=3))
def test_masks_are_put_on_and_taken_off(messages: list[bytes]) -> None:
    """The other end writes its masks, and takes off ours, byte by byte."""

    async def write(peer: Peer) -> None:
        for message in messages:
            await peer.send(frame(BINARY, message))
        await peer.send(closing())
        await peer.read_to_the_end()

    async def read(peer: Peer) -> None:
        await peer.receive(len(messages))
        await peer.send(closing())
        await peer.read_to_the_end()

    options = attrs.evolve(OPTIONS, max_message_bytes=3000)
    received, _ = play("server", write, options=options)
    assert received.got == messages
    _, peer = play("client", read, handler=Recorder(*map(Bin, messages)), options=options)
    assert peer.came()[: len(messages)] == [(BINARY, message) for message in messages]


@pytest.mark.slow
def test_without_websockets_masks_are_the_same() -> None:
    """The other test has the function in C that the library brings, if it is installed."""
    program = (
        "import sys; sys.modules['websockets'] = None; "
        "from tests.transport.test_frames import test_masks_are_put_on_and_taken_off as t; t()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=60)


def test_masks_are_not_to_be_guessed() -> None:
    found = trio.run(masks_of_a_client, 5000, clock=MockClock(autojump_threshold=0))
    assert len(found) == 5000
    assert len(set(found)) > 4990


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_does_not_mask_as_its_parent_does() -> None:
    program = (
        "import os, trio, trio.testing; from tests.transport.peer import masks_of_a_client; "
        "run = lambda n: trio.run(masks_of_a_client, n, clock=trio.testing.MockClock(autojump_threshold=0)); "
        "run(1); child = os.fork() == 0; "
        "os.write(1, b' '.join(each.hex().encode() for each in run(50)) + b'\\n'); child or os.wait()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    one, other = (set(line.split()) for line in ended.stdout.splitlines())
    assert (len(one), len(other)) == (50, 50)
    assert one.isdisjoint(other)


def test_the_versions_are_those_whose_private_names_are_known() -> None:
    """A new release of either needs a look at transport/_frames.py, and this test says so."""
    assert version("trio-websocket") == trio_websocket.__version__ == "0.12.2"
    assert version("wsproto") == wsproto.__version__ == "1.3.2"


def test_the_private_names_are_there() -> None:
    connection = wsproto.connection.Connection(wsproto.ConnectionType.SERVER)
    assert isinstance(connection._proto, FrameProtocol)
    assert isinstance(connection._proto._frame_decoder, FrameDecoder)
    owned = vars(trio_websocket.WebSocketConnection)
    wanted = (
        "_reader_task", "_handle_accept_connection_event", "_handle_message_event", "_handle_ping_event",
        "_handle_pong_event", "_handle_close_connection_event", "_abort_web_socket",
    )  # fmt: skip
    assert [name for name in wanted if name not in owned] == []
