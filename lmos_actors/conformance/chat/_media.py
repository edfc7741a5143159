"""Cases of tools, uploads and calls."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import facade, omnia
from lmos_actors.conformance.session import Chapter, NoAnswer

from ._context import ANSWER, code_of, inside, shown

if TYPE_CHECKING:
    from ._context import ChatContext, Frame, Talk

TOOLS: Final[Chapter[ChatContext]] = Chapter(needs="what makes the agent ask the client for a tool, --hints")
UPLOADS: Final[Chapter[ChatContext]] = Chapter(section=facade("upload_request"), needs="uploads")
CALLS: Final[Chapter[ChatContext]] = Chapter(needs="an agent that can be spoken with")

CONTENT: Final = b"12345678"
_HEADER: Final = struct.Struct(">4sBBHIII12s")


# ---- tools


@TOOLS.case(
    "omniatool.shown",
    "The use of a tool is shown",
    section=omnia("With Tool Calls"),
    expected="tool_call, then tool_result of the same id, before `done`",
    needs="what makes the agent use a tool, --hints",
)
async def tool_shown(context: ChatContext) -> None:
    turn = await (await context.talk()).answered(context.hint("tool"))
    calls = [inside(frame, "tool_call") for frame in turn.frames if frame["type"] == "tool_call"]
    results = [inside(frame, "tool_result") for frame in turn.frames if frame["type"] == "tool_result"]
    if not calls:
        context.differs("tools-hidden", "no tool_call came")
        return
    for call in calls:
        if not isinstance(call.get("id"), str) or not call.get("name"):
            context.fail(f"tool_call {call}")
    known = [each.get("id") for each in results]
    missing = [call["id"] for call in calls if call["id"] not in known]
    if missing:
        context.fail(f"no tool_result for {', '.join(missing)}")


@TOOLS.case(
    "omniatool.asked",
    "A client carries out its tool",
    section=facade("tool_call"),
    expected="tool_call, and `done` after the ack and the result of the client",
)
async def tool_asked(context: ChatContext) -> None:
    talk, call = await _asked(context)
    await talk.send({"type": "tool_call_ack", "tool_call_ack": {"call_id": call["id"]}})
    await talk.send({"type": "tool_result", "tool_result": {"call_id": call["id"], "result": "here"}})
    turn = await talk.turn()
    if turn.end["type"] != "done":
        context.fail(shown(turn.end))


@TOOLS.case(
    "omniatool.refused",
    "A turn goes on when a client refuses its tool",
    section=facade("tool_call_nack"),
    expected="`done` or an error after a tool_call_nack, and an answer to what comes then",
)
async def tool_refused(context: ChatContext) -> None:
    talk, call = await _asked(context)
    await talk.send({"type": "tool_call_nack", "tool_call_nack": {"call_id": call["id"], "reason": "no"}})
    await talk.turn()
    await talk.must_go_on("a refusal")


async def _asked(context: ChatContext) -> tuple[Talk, Frame]:
    talk = await context.talk()
    await talk.say(context.hint("client_tool"))
    frame = await talk.of_type("tool_call", "done", "error", within=ANSWER)
    call = inside(frame, "tool_call")
    if frame["type"] != "tool_call" or not isinstance(call.get("id"), str):
        context.fail(f"the client is not asked: {shown(frame)}")
    return talk, call


# ---- uploads


@UPLOADS.case(
    "omniaupload.ready",
    "An upload is given a place",
    expected="upload_ready with upload_id, upload_url and storage_ref",
    unsafe=True,
)
async def upload_ready(context: ChatContext) -> None:
    _, ticket = await _ticket(context, is_judged=True)
    wrong = _missing(ticket)
    if wrong:
        context.fail(f"no {', '.join(wrong)} in {shown(ticket)}")


@UPLOADS.case(
    "omniaupload.stored",
    "What is uploaded is there",
    expected="2xx for the PUT, upload_complete, and an answer to a message that refers to it",
    unsafe=True,
)
async def upload_stored(context: ChatContext) -> None:
    talk, ticket = await _ticket(context)
    answer = await context.http("PUT", ticket["upload_url"], body=CONTENT)
    if answer.status // 100 != 2:
        context.fail(f"the PUT is answered with {answer.status}")
    try:
        complete = await talk.of_type("upload_complete")
    except NoAnswer as why:
        context.differs("upload-unreported", why)
    else:
        if inside(complete, "upload_complete").get("upload_id") != ticket["upload_id"]:
            context.fail(shown(complete))
    media = {"mime_type": "text/plain", "storage_ref": ticket["storage_ref"]}
    part = {"type": "file", "media": media}
    text = {"type": "text", "text": context.shared.hints.say}
    await talk.answered(session_id=talk.session, parts=[text, part])


@UPLOADS.case(
    "omniaupload.longer",
    "An upload is not longer than announced",
    expected="400 or 413 for a PUT of more bytes",
    unsafe=True,
)
async def upload_longer(context: ChatContext) -> None:
    _, ticket = await _ticket(context)
    answer = await context.http("PUT", ticket["upload_url"], body=CONTENT * 2)
    if answer.status // 100 == 2:
        context.differs("upload-longer-taken", f"the PUT is answered with {answer.status}")
    elif answer.status not in (400, 413):
        context.fail(f"the PUT is answered with {answer.status}")


@UPLOADS.case(
    "omniaupload.unknown",
    "What was not announced cannot be uploaded",
    expected="4xx for a PUT to an address that was not given",
    unsafe=True,
)
async def upload_unknown(context: ChatContext) -> None:
    _, ticket = await _ticket(context)
    url = str(ticket["upload_url"])
    answer = await context.http("PUT", f"{url.rpartition('/')[0]}/0000-no-such-upload", body=CONTENT)
    if answer.status // 100 != 4:
        context.fail(f"the PUT is answered with {answer.status}")


@UPLOADS.case(
    "omniaupload.wrong-order",
    "An upload without a size is refused",
    expected="error INVALID_MESSAGE for a size of 0",
)
async def upload_wrong_order(context: ChatContext) -> None:
    talk = await context.talk()
    await _order(talk, 0)
    frame = await talk.of_type("error", "upload_ready")
    if code_of(frame) == "MEDIA_NOT_ENABLED":
        context.not_offered("uploads are not enabled")
    if code_of(frame) != "INVALID_MESSAGE":
        context.fail(shown(frame))


async def _order(talk: Talk, size: int) -> None:
    order = {"filename": "kit.txt", "mime_type": "text/plain", "size_bytes": size}
    await talk.send({"type": "upload_request", "session_id": talk.session, "upload_request": order})


def _missing(ticket: Frame) -> list[str]:
    names = ("upload_id", "upload_url", "storage_ref")
    return [name for name in names if not isinstance(ticket.get(name), str)]


async def _ticket(context: ChatContext, *, is_judged: bool = False) -> tuple[Talk, Frame]:
    """Request the upload of a file in a session, and return the ticket.

    With `is_judged` a ticket with missing members is returned, too; otherwise it ends the case.
    """
    talk = await context.talk()
    await talk.answered()
    await _order(talk, len(CONTENT))
    frame = await talk.of_type("upload_ready", "error")
    if code_of(frame) == "MEDIA_NOT_ENABLED":
        context.not_offered("uploads are not enabled")
    ticket = inside(frame, "upload_ready")
    if not ticket:
        context.fail(shown(frame))
    if not is_judged and _missing(ticket):
        context.not_offered(f"{shown(frame)} (see omniaupload.ready)")
    return talk, ticket


# ---- calls


@CALLS.case(
    "omniacall.begins",
    "The first sound begins a call",
    section=facade("session_config"),
    expected="session_config with codec, sample_rate and channels",
)
async def call_begins(context: ChatContext) -> None:
    _, config = await _called(context)
    format = inside(config, "session_config")
    numbers = format.get("sample_rate"), format.get("channels")
    if not isinstance(format.get("codec"), str) or not all(isinstance(each, int) for each in numbers):
        context.fail(shown(config))


@CALLS.case(
    "omniacall.format",
    "What is no sound begins no call",
    section=facade("UNSATISFIABLE_FORMAT"),
    expected="error UNSATISFIABLE_FORMAT for film",
)
async def call_format(context: ChatContext) -> None:
    talk = await context.talk(binary="true")
    await talk.sound(sound(0, b"x", {"mime_type": "video/h264", "codec": "video"}))
    frame = await talk.of_type("error", "session_config", within=ANSWER)
    if code_of(frame) == "MEDIA_NOT_ENABLED":
        context.not_offered("nobody can speak with this agent")
    if frame["type"] == "session_config":
        context.differs("film-taken", shown(frame))
    elif code_of(frame) != "UNSATISFIABLE_FORMAT":
        context.fail(shown(frame))


@CALLS.case(
    "omniacall.resumed",
    "A call goes on over another connection",
    section=facade("resume"),
    expected="connected.resumed on a connection with resume=, and no error for the next sound",
)
async def call_resumed(context: ChatContext) -> None:
    talk, config = await _called(context)
    await talk.socket.cut()
    again = await context.talk(binary="true", resume=talk.session)
    if not _is_resumed(again):
        context.fail(f"after a break comes {shown(again.announcement)}")
    await again.sound(sound(1, bytes(640), inside(config, "session_config")))
    try:
        frame = await again.of_type("error", within=context.shared.options.idle)
    except NoAnswer:
        return
    context.differs("call-not-resumed", shown(frame))


@CALLS.case(
    "omniacall.hung-up",
    "A call that was hung up is over",
    section=facade("hangup"),
    expected="no connected.resumed after a hangup",
)
async def call_hung_up(context: ChatContext) -> None:
    talk, _ = await _called(context)
    await talk.send({"type": "hangup"})
    await talk.socket.close()
    await talk.socket.end(context.patience)
    again = await context.talk(binary="true", resume=talk.session)
    if _is_resumed(again):
        context.fail(f"after a hangup comes {shown(again.announcement)}")


def sound(number: int, data: bytes, info: Frame | None = None) -> bytes:
    """Return a binary frame of sound; the members of `info` replace those of its usual metadata."""
    usual = {"mime_type": "audio/pcm", "codec": "pcm", "sample_rate": 16_000, "channels": 1}
    meta = json.dumps({**usual, **(info or {})})
    head = _HEADER.pack(b"OMNI", 1, 0, 1, len(meta), len(data), number, b"")
    return head + meta.encode() + data


async def _called(context: ChatContext) -> tuple[Talk, Frame]:
    """Begin a voice call, and wait for the frame that names its format."""
    talk = await context.talk(binary="true")
    await talk.sound(sound(0, bytes(640)))
    frame = await talk.of_type("session_config", "error", within=ANSWER)
    if code_of(frame) == "MEDIA_NOT_ENABLED":
        context.not_offered("nobody can speak with this agent")
    if frame["type"] == "error":
        context.fail(shown(frame))
    return talk, frame


def _is_resumed(talk: Talk) -> bool:
    return inside(talk.announcement, "connected").get("resumed") is True
