"""Groups 12 and 13 of the suite are about compression: none is offered, accepted, or negotiated at all."""

from __future__ import annotations

import socket

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.transport import ConnectFailed, ConnectionOptions, TcpNetwork, connect, endpoint_of
from tests.rfc6455.plan import PROTOCOL, TEXT, Case, Frame
from tests.rfc6455.testees import front_door
from tests.rfc6455.tester import admit, knock, lowered
from tests.rfc6455.verdicts import STRICT, judged

OFFERS = [
    "permessage-deflate",
    "permessage-deflate; client_max_window_bits",
    "permessage-deflate; server_no_context_takeover; client_max_window_bits=10, permessage-deflate",
    'permessage-deflate; client_max_window_bits="15"',
    "x-webkit-deflate-frame, permessage-bzip2, mux; max-channels=4",
    "",
]
COMPRESSED = Frame(TEXT, b"\xcaH\xcd\xc9\xc9\x07\x00", rsv=4)  # RSV1: "Hello", as permessage-deflate says it
CASE = Case(id="compressed", moves=(COMPRESSED,), ending=PROTOCOL)


def header(offer: str) -> bytes:
    return f"Sec-WebSocket-Extensions: {offer}\r\n".encode()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "wsproto"])
async def test_our_server_accepts_none_that_is_offered(fast: bool) -> None:
    async with front_door(ConnectionOptions(fast_frames=fast)) as (address, ending):
        for offer in (*map(header, OFFERS), b"".join(map(header, OFFERS[:3]))):
            tester, head = await knock(address, "offer", offer)
            assert b"sec-websocket-extensions" not in lowered(head), offer
            assert judged(CASE, await tester.play(CASE)) == STRICT, offer
            tester.close()
            await ending()


async def test_neither_does_a_node() -> None:
    async with open_node(listen="ws://127.0.0.1:0") as node:
        at = endpoint_of(node.urls[0])
        for offer in OFFERS:
            tester, head = await knock((at.host, at.port), "offer", header(offer))
            assert b"sec-websocket-extensions" not in lowered(head), offer
            assert judged(CASE, await tester.play(CASE)) == STRICT, offer
            tester.close()


@pytest.mark.parametrize("offer", OFFERS[:-1])
async def test_our_client_offers_none_and_takes_no_answer_that_has_one(offer: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, url)
            tester, head = await admit(listener, "answer", header(offer))
            assert b"sec-websocket-extensions" not in lowered(head)
        tester.close()


async def refused(url: str) -> None:
    with pytest.raises(ConnectFailed, match="the answer is no WebSocket handshake"):
        await connect(TcpNetwork(), url)
