"""Cases of frames that cannot be read, and of bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import facade, omnia, rfc6455
from lmos_actors.conformance.session import Chapter, NoAnswer
from lmos_actors.conformance.wire import BINARY, PING, PONG, TEXT, ConnectionGone

from ._context import code_of, shown

if TYPE_CHECKING:
    from ._context import ChatContext, Talk

BAD: Final[Chapter[ChatContext]] = Chapter()
BYTES: Final[Chapter[ChatContext]] = Chapter()

MANY: Final = 150
_ERROR: Final = omnia("Error Codes")
_INVALID: Final = "INVALID_MESSAGE"


def _refused(id: str, title: str, *texts: str, key: str | None = None) -> None:
    """Add a case in which texts that are no messages are refused, and the connection stays usable."""

    async def run(context: ChatContext) -> None:
        talk = await context.talk()
        for text in texts:
            await talk.send(text)
            try:
                frame = await talk.refusal()
            except NoAnswer:
                context.fail(f"{text} is not answered")
            except ConnectionGone as gone:
                context.fail(f"after {text} {gone}")
            if frame["type"] == "error" and code_of(frame) == _INVALID:
                continue
            if key is None or frame["type"] == "error":
                context.fail(f"{text} is answered by {shown(frame)}")
            context.differs(key, f"{text} is answered")
            if frame["type"] != "done":
                await talk.turn()
        await talk.must_go_on("a bad frame")

    BAD.add(
        id, title, run, section=_ERROR, expected="error INVALID_MESSAGE, and an answer to what comes then"
    )


_refused("omniabad.json", "Text that is no JSON is refused", '{"type":"message"')
_refused("omniabad.empty", "An empty frame is refused", "")
_refused("omniabad.no-object", "JSON that is no object is refused", "42", '"text"', "[]")
_refused("omniabad.null", "null is refused", "null", key="empty-taken")
_refused("omniabad.two", "Two objects in a frame are refused", '{"type":"message","content":"a"}{}')
_refused("omniabad.type", "A type that is no text is refused", '{"type":5,"content":"x"}')
_refused("omniabad.content", "A content that is no text is refused", '{"type":"message","content":5}')
_refused(
    "omniabad.session",
    "A session_id that is no text is refused",
    '{"type":"message","session_id":7,"content":"x"}',
)
_refused(
    "omniabad.unknown-type",
    "A frame of an unknown type is refused",
    '{"type":"no_such_type","content":"x"}',
    key="unknown-type-taken",
)
_refused("omniabad.no-type", "A frame without a type is refused", '{"content":"x"}', key="unknown-type-taken")
_refused(
    "omniabad.no-content", "A message without content is refused", '{"type":"message"}', key="empty-taken"
)


@BAD.case(
    "omniabad.of-no-session",
    "An error about a frame belongs to no session",
    section=facade("error"),
    expected="an error without session_id for text that is no JSON",
)
async def of_no_session(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.send("{broken")
    frame = await talk.refusal()
    if frame.get("session_id") is not None:
        context.differs("fault-with-session", shown(frame))


@BAD.case(
    "omniabad.no-such-call",
    "The result of a tool that nobody called is refused",
    section=facade("tool_result"),
    expected="error INVALID_MESSAGE, and an answer to what comes then",
)
async def no_such_call(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.send({"type": "tool_result", "tool_result": {"call_id": "no-such-call", "result": 1}})
    frame = await talk.refusal()
    if code_of(frame) != _INVALID:
        context.fail(f"it is answered by {shown(frame)}")
    await talk.must_go_on("a result that nobody waits for")


@BAD.case(
    "omniabad.many",
    "Many bad frames end no connection",
    section=_ERROR,
    expected=f"an error for each of {MANY} bad frames, INVALID_MESSAGE or RATE_LIMITED, and an answer then",
)
async def many(context: ChatContext) -> None:
    talk = await context.talk()
    for _ in range(MANY):
        await talk.send("{broken")
    for _ in range(MANY):
        frame = await talk.refusal()
        if code_of(frame) not in (_INVALID, "RATE_LIMITED"):
            context.fail(f"a bad frame is answered by {shown(frame)}")
    await talk.must_go_on(f"{MANY} bad frames")


# ---- bytes


@BYTES.case(
    "omniabytes.ping",
    "A ping is answered",
    section=rfc6455("5.5.3"),
    expected="a pong with the payload of the ping",
)
async def ping(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.socket.send_frame(PING, b"kit")
    while (frame := await talk.socket.next_frame(context.patience)) is not None:
        if frame.opcode == PONG:
            if frame.payload != b"kit":
                context.fail(f"a pong with {frame.payload!r}")
            return
    context.fail("there is no pong")


@BYTES.case(
    "omniabytes.fragments",
    "A message may come in fragments",
    section=rfc6455("5.4"),
    expected="an answer to a message in three frames, with a ping between them",
)
async def fragments(context: ChatContext) -> None:
    talk = await context.talk()
    said = context.shared.hints.say.replace('"', "'").replace("\\", "/")
    text = f'{{"type":"message","content":"{said}"}}'.encode()
    socket = talk.socket
    await socket.send_frame(TEXT, text[:5], fin=False)
    await socket.send_frame(PING, b"between")
    await socket.send_frame(0, text[5:20], fin=False)
    await socket.send_frame(0, text[20:])
    turn = await talk.turn()
    if turn.end["type"] != "done":
        context.fail(shown(turn.end))


@BYTES.case(
    "omniabytes.close",
    "A Close is answered",
    section=rfc6455("5.5.1"),
    expected="a Close with the same code, and the end of the connection",
)
async def close(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.socket.close(1000)
    await _must_close(context, talk, "a Close with 1000", 1000)


@BYTES.case(
    "omniabytes.close-code",
    "A Close with a code that may not be sent is a mistake",
    section=rfc6455("7.4"),
    expected="a Close with 1002",
)
async def close_code(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.socket.close(999)
    await _must_close(context, talk, "a Close with 999", 1002)


@BYTES.case(
    "omniabytes.unmasked",
    "A frame without a mask ends the connection",
    section=rfc6455("5.1"),
    expected="a Close with 1002, or the end of the connection",
)
async def unmasked(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.socket.send_frame(TEXT, b'{"type":"message","content":"x"}', masked=False)
    await _must_close(context, talk, "a frame without a mask", 1002, None)


@BYTES.case(
    "omniabytes.utf8",
    "Text that is not UTF-8 ends the connection",
    section=rfc6455("8.1"),
    expected="a Close with 1007",
)
async def utf8(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.socket.send_frame(TEXT, b'{"type":"message","content":"\xff"}')
    try:
        frame = await talk.next()
    except ConnectionGone as gone:
        if gone.gone.code not in (1007, None):
            context.differs("close-code", f"after text that is not UTF-8 {gone}")
        return
    context.differs("invalid-utf8-taken", shown(frame))


@BYTES.case(
    "omniabytes.too-large",
    "A frame beyond the announced size ends the connection",
    section=facade("max_payload_size"),
    expected="a Close with 1009",
    needs="an announced max_payload_size",
)
async def too_large(context: ChatContext) -> None:
    talk = await context.talk()
    size = context.capabilities(talk).get("max_payload_size")
    if not isinstance(size, int) or not 0 < size <= 64 << 20:
        context.not_offered(f"max_payload_size is {size}")
    with suppress(ConnectionGone):  # it does not read to the end
        await talk.socket.send_frame(TEXT, b'{"type":"message","content":"' + b"x" * size + b'"}')
    await _must_close(context, talk, f"a frame of more than {size} bytes", 1009, None)


@BYTES.case(
    "omniabytes.binary-text",
    "A message is no binary frame",
    section=facade("binary frames"),
    expected="error INVALID_MESSAGE for a message in a binary frame",
)
async def binary_text(context: ChatContext) -> None:
    talk = await context.talk(binary="true")
    await talk.socket.send_frame(BINARY, b'{"type":"message","content":"x"}')
    await _must_refuse_binary(context, talk, "a message in a binary frame", "binary-read-as-text")


@BYTES.case(
    "omniabytes.binary-header",
    "A binary frame without its header is refused",
    section=facade("binary frames"),
    expected="error INVALID_MESSAGE, and an answer to what comes then",
)
async def binary_header(context: ChatContext) -> None:
    talk = await context.talk(binary="true")
    for data in (b"", b"OMNI", b"OMNI\x02" + bytes(27), b"\x00" * 64):
        await talk.socket.send_frame(BINARY, data)
        await _must_refuse_binary(context, talk, f"{len(data)} bytes", None)
    await talk.must_go_on("bad binary frames")


async def _must_refuse_binary(context: ChatContext, talk: Talk, what: str, key: str | None) -> None:
    frame = await talk.refusal()
    if code_of(frame) == _INVALID:
        return
    if key is None or frame["type"] == "error":
        context.fail(f"{what} is answered by {shown(frame)}")
    context.differs(key, shown(frame))


async def _must_close(context: ChatContext, talk: Talk, what: str, *codes: Any) -> None:
    gone = await talk.socket.end(max(context.patience, 5.0))
    if gone is None:
        context.fail(f"after {what} the connection is still open")
    if gone.code not in codes:
        if gone.code is None:
            context.differs("ends-without-close", f"after {what} {gone}")
        else:
            context.differs("close-code", f"after {what} {gone}")
