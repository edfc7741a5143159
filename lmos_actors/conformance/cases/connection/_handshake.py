"""The opening handshake, and the subprotocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import binding, rfc6455
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.target import sockets_of
from lmos_actors.conformance.wire import Refused

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext
    from lmos_actors.conformance.wire import Handshake

HANDSHAKE = Chapter()

_OURS: Final = "lmosprotocol"
_OTHER: Final = "chat.example"
_MOST: Final = 16  # addresses that are tried
_REFUSED: Final = range(400, 500)


@HANDSHAKE.case(
    "handshake.accept",
    "The upgrade is accepted with the right key",
    section=rfc6455("4.2.2"),
    expected="101 with the Sec-WebSocket-Accept of the key that was sent",
)
async def accept(context: CaseContext) -> None:
    socket = await context.socket()
    if socket.handshake.header("sec-websocket-accept") != socket.handshake.accept:
        context.fail(f"Sec-WebSocket-Accept: {socket.handshake.header('sec-websocket-accept')}")


@HANDSHAKE.case(
    "handshake.headers",
    "The answer says that the connection is a WebSocket now",
    section=rfc6455("4.2.2"),
    expected="Upgrade: websocket and Connection: Upgrade in the answer",
)
async def headers(context: CaseContext) -> None:
    handshake = (await context.socket()).handshake
    upgrade = handshake.header("upgrade")
    if upgrade is None or upgrade.lower() != "websocket":
        context.fail("no Upgrade header" if upgrade is None else f"Upgrade: {upgrade}")
    connection = handshake.header("connection") or ""
    if "upgrade" not in _words(connection.lower()):
        context.fail(f"Connection: {connection}" if connection else "no Connection header")


@HANDSHAKE.case(
    "handshake.header-words",
    "Headers of the handshake are read as browsers write them",
    section=rfc6455("4.2.1"),
    expected='101 where it says "Connection: keep-alive, Upgrade" and "Upgrade: WebSocket"',
)
async def header_words(context: CaseContext) -> None:
    await context.socket()  # if this is refused, it is not for the words
    try:
        await context.socket(headers=((b"Connection", b"keep-alive, Upgrade"), (b"Upgrade", b"WebSocket")))
    except Refused as refused:
        context.fail(refused)


@HANDSHAKE.case(
    "handshake.subprotocol",
    "lmosprotocol is selected where it is offered",
    section=binding("WebSocket Protocol Handshake"),
    expected="Sec-WebSocket-Protocol: lmosprotocol in the answer",
)
async def subprotocol(context: CaseContext) -> None:
    selected = _selected((await context.socket(offered=(_OURS,))).handshake)
    if selected is None:
        context.differs("no-subprotocol", "none is selected")
    elif selected != _OURS:
        context.fail(f"Sec-WebSocket-Protocol: {selected}")


@HANDSHAKE.case(
    "handshake.subprotocol-among-others",
    "lmosprotocol is selected where others are offered before it",
    section=rfc6455("4.2.2"),
    expected="Sec-WebSocket-Protocol: lmosprotocol in the answer",
    needs="lmosprotocol, selected where it alone is offered",
)
async def subprotocol_among_others(context: CaseContext) -> None:
    if _selected((await context.socket(offered=(_OURS,))).handshake) != _OURS:
        context.not_offered("it does not select lmosprotocol where that alone is offered")
    selected = _selected((await context.socket(offered=(_OTHER, _OURS))).handshake)
    if selected is None:
        context.differs("no-subprotocol", f"none is selected of {_OTHER}, {_OURS}")
    elif selected != _OURS:
        context.fail(f"Sec-WebSocket-Protocol: {selected}")


@HANDSHAKE.case(
    "handshake.subprotocol-unasked",
    "No subprotocol is selected where none is offered",
    section=rfc6455("4.2.2"),
    expected="no Sec-WebSocket-Protocol in the answer, or a refusal with 4xx",
)
async def subprotocol_unasked(context: CaseContext) -> None:
    await _selects_none(context, ())


@HANDSHAKE.case(
    "handshake.subprotocol-unknown",
    "No subprotocol is selected of which none is spoken",
    section=rfc6455("4.2.2"),
    expected="no Sec-WebSocket-Protocol in the answer, or a refusal with 4xx",
)
async def subprotocol_unknown(context: CaseContext) -> None:
    await _selects_none(context, (_OTHER,))


async def _selects_none(context: CaseContext, offered: tuple[str, ...]) -> None:
    try:
        selected = _selected((await context.socket(offered=offered)).handshake)
    except Refused as refused:
        if refused.handshake.status not in _REFUSED:
            context.fail(refused)
        return
    if selected is not None:
        context.fail(
            f"Sec-WebSocket-Protocol: {selected}, where {', '.join(offered) or 'nothing'} was offered"
        )


@HANDSHAKE.case(
    "handshake.version",
    "An unknown version of WebSocket is refused",
    section=rfc6455("4.4"),
    expected="426, or another 4xx, with Sec-WebSocket-Version: 13, for version 99, which does not exist",
)
async def version(context: CaseContext) -> None:
    refused = await _refusal(context, headers=((b"Sec-WebSocket-Version", b"99"),))
    if refused is None:
        context.fail("101, although version 99 was asked for")
    if refused.status not in _REFUSED:
        context.fail(f"{refused.status}")
    spoken = refused.header("sec-websocket-version")
    if "13" not in _words(spoken or ""):
        said = "no Sec-WebSocket-Version" if spoken is None else f"Sec-WebSocket-Version: {spoken}"
        context.differs("version-unsaid", f"{refused.status} with {said}")


@HANDSHAKE.case(
    "handshake.key",
    "A handshake without a key is refused",
    section=rfc6455("4.2.1"),
    expected="400, or another 4xx, where there is no Sec-WebSocket-Key",
)
async def key(context: CaseContext) -> None:
    refused = await _refusal(context, without=(b"Sec-WebSocket-Key",))
    if refused is None:
        context.fail("101, although there was no Sec-WebSocket-Key")
    if refused.status not in _REFUSED:
        context.fail(f"{refused.status}")


async def _refusal(
    context: CaseContext, *, headers: tuple[tuple[bytes, bytes], ...] = (), without: tuple[bytes, ...] = ()
) -> Handshake | None:
    try:
        await context.socket(headers=headers, without=without)
    except Refused as refused:
        return refused.handshake
    return None


@HANDSHAKE.case(
    "handshake.extensions",
    "No extension of WebSocket is in use that was not asked for",
    section=rfc6455("9.1"),
    expected="no Sec-WebSocket-Extensions in the answer",
)
async def extensions(context: CaseContext) -> None:
    found = (await context.socket()).handshake.header("sec-websocket-extensions")
    if found:
        context.fail(f"Sec-WebSocket-Extensions: {found}")


@HANDSHAKE.case(
    "handshake.addresses",
    "Every address of its forms for LMOS takes a connection",
    section=binding("WebSocket Protocol Handshake"),
    expected="101 at the href of every form for LMOS",
    needs="a form for LMOS",
)
async def addresses(context: CaseContext) -> None:
    found = [url for url, _ in sockets_of(context.target.readable_part)]
    if not found:
        context.not_offered("its description has no form for LMOS")
    for url in found[:_MOST]:
        try:
            socket = await context.socket(url=url)
        except Refused as refused:
            context.fail(f"{url}: {refused}")
        await socket.aclose()


def _selected(handshake: Handshake) -> str | None:
    return handshake.header("sec-websocket-protocol")


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]
