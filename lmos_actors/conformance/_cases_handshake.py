"""The opening handshake, and the subprotocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._case import Chapter
from ._deviations import binding, rfc6455

if TYPE_CHECKING:
    from ._case import Visit

CHAPTER = Chapter()


@CHAPTER.case(
    "handshake.accept",
    "The upgrade is accepted with the right key",
    section=rfc6455("4.2.2"),
    expected="101 with the Sec-WebSocket-Accept of the key that was sent",
)
async def accept(visit: Visit) -> None:
    socket = await visit.socket()
    if socket.handshake.header("sec-websocket-accept") != socket.handshake.accept:
        visit.fail(f"Sec-WebSocket-Accept: {socket.handshake.header('sec-websocket-accept')}")


@CHAPTER.case(
    "handshake.subprotocol",
    "lmosprotocol is selected where it is offered",
    section=binding("WebSocket Protocol Handshake"),
    expected="Sec-WebSocket-Protocol: lmosprotocol in the answer",
)
async def subprotocol(visit: Visit) -> None:
    socket = await visit.socket(offered=("lmosprotocol",))
    selected = socket.handshake.header("sec-websocket-protocol")
    if selected is None:
        visit.differs("no-subprotocol", "none is selected")
    elif selected != "lmosprotocol":
        visit.fail(f"Sec-WebSocket-Protocol: {selected}")
