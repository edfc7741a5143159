"""Input streams over HTTP on real sockets: what buffers and resets of TCP make of them."""

from __future__ import annotations

import shutil
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ChildSpec, open_node
from tests.bindings.http.test_input_bodies import Client, Taker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PATIENCE = 30.0


def served(main: Callable[[str, list[Any]], Awaitable[None]]) -> None:
    """Serve the agent on a port of this machine, in real time; a test gets its place, and its notes."""

    async def all_of_it() -> None:
        notes: list[Any] = []
        with trio.fail_after(PATIENCE):
            async with open_node(listen="ws://127.0.0.1:0") as node:
                await node.start_child(ChildSpec("taker", partial(Taker, notes=notes)))
                await main(node.urls[0].split("/")[2], notes)
                assert node.connection_failures == ()

    trio.run(all_of_it)


async def posted(place: str, action: str) -> tuple[Client, trio.SocketStream]:
    host, _, port = place.partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    head = (
        f"POST /agents/taker/actions/{action} HTTP/1.1\r\nHost: {place}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    await stream.send_all(head.encode())
    return Client(stream), stream


def test_an_early_answer_reaches_a_client_that_is_still_sending() -> None:
    async def main(place: str, notes: list[Any]) -> None:
        client, stream = await posted(place, "gather?up_to=2")
        sent = 0

        async def send() -> None:
            nonlocal sent
            try:
                while True:
                    await client.chunk(b"1\n" * 10_000)
                    sent += 20_000
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await client.answer() == (200, [1, 1])
            assert await client.ended()
            nursery.cancel_scope.cancel()
        await stream.aclose()
        assert sent < 50 << 20

    served(main)


def test_a_client_that_resets_its_connection_cancels_the_run() -> None:
    async def main(place: str, notes: list[Any]) -> None:
        client, stream = await posted(place, "echo")
        await client.chunk(b'"a"\n')
        await client.until(b'data: "A"\n\n')  # it runs
        gone, raw = await posted(place, "gather")
        await gone.chunk(b"1\n")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await gone.stream.aclose()
        while not notes:  # noqa: ASYNC110 -- the agent notes it in a list
            await trio.sleep(0.01)
        assert notes == ["cancelled"]
        await client.chunk(b"")
        await client.until(b"lmosx:end")
        await stream.aclose()

    served(main)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_sends_a_pipe_and_prints_answers_as_they_come(tmp_path: Path) -> None:
    async def main(place: str, notes: list[Any]) -> None:
        url = f"http://{place}/agents/taker/actions"
        command = ["curl", "-sS", "-N", "-X", "POST", "-T", ".", "-H", "Accept: application/x-ndjson"]
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, [*command, f"{url}/echo"], stdin=-1, stdout=-1, check=False)
            process = await nursery.start(run)
            for word in (b"a", b"b"):
                await process.stdin.send_all(b'"%s"\n' % word)
                assert await process.stdout.receive_some() == b'"%s"\n' % word.upper()
            await process.stdin.aclose()
            assert await process.wait() == 0
        (tmp_path / "octets").write_bytes(bytes(5 << 20))
        whole = await trio.run_process(
            ["curl", "-sS", "-X", "POST", "-T", str(tmp_path / "octets"), f"{url}/weigh"], capture_stdout=True
        )
        assert sum(map(int, whole.stdout.strip(b"[]").split(b","))) == 5 << 20

    served(main)
