"""The opening handshake, and the subprotocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import binding, rfc6455
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.target import sockets_of
from lmos_actors.conformance.wire import Refused

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, Run
    from lmos_actors.conformance.wire import Handshake, Headers

HANDSHAKE: Final[Chapter[CaseContext]] = Chapter()

_OURS: Final = "lmosprotocol"
_OTHER: Final = "chat.example"
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
    "The answer has the headers of an upgrade",
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
    expected='101 for "Connection: keep-alive, Upgrade" and "Upgrade: WebSocket"',
)
async def header_words(context: CaseContext) -> None:
    await context.socket()  # if this is refused, the words are not the reason
    try:
        await context.socket(headers=((b"Connection", b"keep-alive, Upgrade"), (b"Upgrade", b"WebSocket")))
    except Refused as refused:
        context.fail(refused)


@HANDSHAKE.case(
    "handshake.subprotocol",
    "lmosprotocol is selected if it is offered",
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
    "lmosprotocol is selected if others are offered before it",
    section=rfc6455("4.2.2"),
    expected="Sec-WebSocket-Protocol: lmosprotocol in the answer",
    needs="lmosprotocol, selected if it alone is offered",
)
async def subprotocol_among_others(context: CaseContext) -> None:
    if _selected((await context.socket(offered=(_OURS,))).handshake) != _OURS:
        context.not_offered("it does not select lmosprotocol when that alone is offered")
    selected = _selected((await context.socket(offered=(_OTHER, _OURS))).handshake)
    if selected is None:
        context.differs("no-subprotocol", f"none is selected of {_OTHER}, {_OURS}")
    elif selected != _OURS:
        context.fail(f"Sec-WebSocket-Protocol: {selected}")


def _selects_none(*offered: str) -> Run:
    """Make a case of a handshake in which no subprotocol may be selected."""

    async def run(context: CaseContext) -> None:
        try:
            selected = _selected((await context.socket(offered=offered)).handshake)
        except Refused as refused:
            if refused.handshake.status not in _REFUSED:
                context.fail(refused)
            return
        if selected is not None:
            what = ", ".join(offered) or "nothing"
            context.fail(f"Sec-WebSocket-Protocol: {selected}, where {what} was offered")

    return run


for _id, _title, _run in (
    (
        "handshake.subprotocol-unasked",
        "No subprotocol is selected if none is offered",
        _selects_none(),
    ),
    (
        "handshake.subprotocol-unknown",
        "No subprotocol is selected if only unknown ones are offered",
        _selects_none(_OTHER),
    ),
):
    HANDSHAKE.add(
        _id,
        _title,
        _run,
        section=rfc6455("4.2.2"),
        expected="no Sec-WebSocket-Protocol in the answer, or a refusal with 4xx",
    )


@HANDSHAKE.case(
    "handshake.version",
    "An unknown version of WebSocket is refused",
    section=rfc6455("4.4"),
    expected="426, or another 4xx, with Sec-WebSocket-Version: 13, for version 99, which does not exist",
)
async def version(context: CaseContext) -> None:
    version_99 = ((b"Sec-WebSocket-Version", b"99"),)
    refused = await _refusal(context, "version 99 was requested", headers=version_99)
    spoken = refused.header("sec-websocket-version")
    if "13" not in _words(spoken or ""):
        what = "no Sec-WebSocket-Version" if spoken is None else f"Sec-WebSocket-Version: {spoken}"
        context.differs("version-unsaid", f"{refused.status} with {what}")


@HANDSHAKE.case(
    "handshake.key",
    "A handshake without a key is refused",
    section=rfc6455("4.2.1"),
    expected="400, or another 4xx, where there is no Sec-WebSocket-Key",
)
async def key(context: CaseContext) -> None:
    await _refusal(context, "there was no Sec-WebSocket-Key", without=(b"Sec-WebSocket-Key",))


async def _refusal(
    context: CaseContext, why: str, *, headers: Headers = (), without: tuple[bytes, ...] = ()
) -> Handshake:
    """Return the refusal of a handshake. Fail if it is accepted, or refused with a status other than 4xx."""
    try:
        await context.socket(headers=headers, without=without)
    except Refused as refused:
        if refused.handshake.status not in _REFUSED:
            context.fail(f"{refused.handshake.status}")
        return refused.handshake
    context.fail(f"101, although {why}")


@HANDSHAKE.case(
    "handshake.extensions",
    "No extension of WebSocket is used that was not offered",
    section=rfc6455("9.1"),
    expected="no Sec-WebSocket-Extensions in the answer",
)
async def extensions(context: CaseContext) -> None:
    found = (await context.socket()).handshake.header("sec-websocket-extensions")
    if found:
        context.fail(f"Sec-WebSocket-Extensions: {found}")


@HANDSHAKE.case(
    "handshake.addresses",
    "Every address of the forms for LMOS accepts a connection",
    section=binding("WebSocket Protocol Handshake"),
    expected="101 at the href of every form for LMOS",
    needs="a form for LMOS",
)
async def addresses(context: CaseContext) -> None:
    found = [url for url, _ in sockets_of(context.target.readable_part)]
    if not found:
        context.not_offered("its description has no form for LMOS")
    for url in found[:16]:
        try:
            socket = await context.socket(url=url)
        except Refused as refused:
            context.fail(f"{url}: {refused}")
        await socket.aclose()


def _selected(handshake: Handshake) -> str | None:
    return handshake.header("sec-websocket-protocol")


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]
