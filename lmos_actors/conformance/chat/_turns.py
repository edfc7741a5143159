"""Cases of connections, turns and sessions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import trio

from lmos_actors.conformance.card import facade, omnia, rfc6455
from lmos_actors.conformance.session import Chapter, NoAnswer
from lmos_actors.conformance.wire import Refused

from ._context import ANSWER, inside, shown, with_query

if TYPE_CHECKING:
    from ._context import ChatContext, Talk

OPENING: Final[Chapter[ChatContext]] = Chapter()
TURNS: Final[Chapter[ChatContext]] = Chapter()
SESSIONS: Final[Chapter[ChatContext]] = Chapter()

NOBODY: Final = "no-such-agent-of-anybody"
NO_SESSION: Final = "00000000-0000-4000-8000-000000000000"
AT_ONCE: Final = 12
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_URL: Final = omnia("URL Format")
_CONNECTED: Final = omnia("Connected")
_FLOW: Final = omnia("New Conversation")


# ---- the connection


@OPENING.case(
    "omniaopen.upgrade",
    "The address opens a WebSocket",
    section=_URL,
    expected="101 with the Sec-WebSocket-Accept that belongs to the key",
)
async def upgrade(context: ChatContext) -> None:
    handshake = (await context.talk(announced=False)).socket.handshake
    if handshake.header("sec-websocket-accept") != handshake.accept:
        context.fail(f"Sec-WebSocket-Accept: {handshake.header('sec-websocket-accept')}")


@OPENING.case(
    "omniaopen.subprotocol",
    "No subprotocol is chosen that was not offered",
    section=rfc6455("4.2.2"),
    expected="no Sec-WebSocket-Protocol, as none is offered",
)
async def subprotocol(context: ChatContext) -> None:
    handshake = (await context.talk(announced=False)).socket.handshake
    chosen = handshake.header("sec-websocket-protocol")
    if chosen:
        context.fail(f"Sec-WebSocket-Protocol: {chosen}")


@OPENING.case(
    "omniaopen.announced",
    "A session is announced at once",
    section=_CONNECTED,
    expected="`connected` with a session_id, before anything is said",
)
async def announced(context: ChatContext) -> None:
    talk = await context.talk(announced=False)
    frame = await talk.next()
    if frame is None:
        context.shared.announces = False
        context.differs("announced-late", "nothing comes before the first message")
        await talk.say()
        frame = await talk.of_type("connected", within=ANSWER)
    session = frame.get("session_id") if isinstance(frame, dict) else None
    is_right = isinstance(frame, dict) and frame["type"] == "connected"
    if not is_right or not isinstance(session, str) or not session:
        context.fail(shown(frame))


@OPENING.case(
    "omniaopen.capabilities",
    "The announcement names the capabilities",
    section=facade("connected"),
    expected="connected.capabilities with binary_frames, max_payload_size and protocol_version 1",
    needs="an announcement",
)
async def capabilities(context: ChatContext) -> None:
    talk = await context.talk()
    if talk.announcement is None:
        context.not_offered("nothing is announced before the first message")
    known = context.capabilities(talk)
    if not known:
        context.differs("no-capabilities", shown(talk.announcement))
        return
    size, version = known.get("max_payload_size"), known.get("protocol_version")
    is_right = (
        isinstance(known.get("binary_frames"), bool)
        and isinstance(size, int)
        and not isinstance(size, bool)
        and size > 0
        and version == 1
    )
    if not is_right:
        context.fail(shown(talk.announcement))


@OPENING.case(
    "omniaopen.own-session",
    "Each connection has a session of its own",
    section=_CONNECTED,
    expected="another session_id on each connection, none of which can be guessed from the others",
)
async def own_session(context: ChatContext) -> None:
    found: list[str] = []
    for _ in range(3):
        talk = await context.talk()
        if talk.session is None:
            await talk.ask()
        found.append(talk.session or "")
    if len(set(found)) < len(found):
        context.fail(f"sessions {', '.join(found)}")
    if min(map(len, found)) < 16:  # 122 bits in base64 are longer
        context.fail(f"a session_id of {min(map(len, found))} characters")


@OPENING.case(
    "omniaopen.no-agent",
    "Without an agent there is no connection",
    section=_URL,
    expected="400",
    needs="an address that names its agent by agent=",
)
async def no_agent(context: ChatContext) -> None:
    _needs_query(context)
    await _must_refuse(context, with_query(context.url, agent=None), 400, "no-agent-needed")


@OPENING.case(
    "omniaopen.unknown-agent",
    "An agent that does not exist cannot be reached",
    section=_URL,
    expected="404",
    needs="an address that names its agent by agent=",
)
async def unknown_agent(context: ChatContext) -> None:
    _needs_query(context)
    await _must_refuse(context, with_query(context.url, agent=NOBODY), 404, "any-agent")


@OPENING.case(
    "omniaopen.origin",
    "A page of another origin may not connect",
    section=facade("handshakes"),
    expected="403 for an Origin that is another host's",
)
async def origin(context: ChatContext) -> None:
    headers = ((b"Origin", b"https://conformance.invalid"),)
    await _must_refuse(context, context.url, 403, "any-origin", headers=headers)


def _needs_query(context: ChatContext) -> None:
    if not dict(parse_qsl(urlsplit(context.url).query)).get("agent"):
        context.not_offered("the address does not name its agent by agent=")


async def _must_refuse(context: ChatContext, url: str, status: int, key: str, headers: Any = ()) -> None:
    try:
        await context.open(url, headers=headers)
    except Refused as refused:
        if refused.handshake.status != status:
            context.fail(refused)
        return
    context.differs(key, "the connection is opened")


# ---- turns


@TURNS.case(
    "omniaturn.done",
    "A message is answered",
    section=_FLOW,
    expected="frames of the answer, and `done` as the last of them",
)
async def done(context: ChatContext) -> None:
    await (await context.talk()).answered()


@TURNS.case(
    "omniaturn.whole-text",
    "The end of an answer has all of it",
    section=omnia("Done"),
    expected="the text of all chunks as the content of `done`",
)
async def whole_text(context: ChatContext) -> None:
    turn = await (await context.talk()).answered()
    text = turn.end.get("content", "")
    if turn.text and text != turn.text:
        context.fail(f"chunks {turn.text[:100]!r} and done {str(text)[:100]!r}")


@TURNS.case(
    "omniaturn.one-end",
    "An answer has one end",
    section=omnia("Done"),
    expected="nothing of a turn behind its `done`",
)
async def one_end(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.answered()
    frame = await talk.next(context.shared.options.idle)
    if isinstance(frame, dict) and frame["type"] in ("done", "error", "chunk"):
        context.fail(f"after done comes {shown(frame)}")


@TURNS.case(
    "omniaturn.dated",
    "Every frame has the time",
    section=facade("timestamp"),
    expected="timestamp as RFC 3339 has it",
)
async def dated(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.answered()
    for frame in talk.frames:
        date = frame.get("timestamp")
        if date is None:
            context.differs("no-timestamp", frame["type"])
        elif not isinstance(date, str) or not _DATE.fullmatch(date):
            context.fail(f"timestamp {date!r} of {frame['type']}")


@TURNS.case(
    "omniaturn.session",
    "Every frame of a turn names its session",
    section=facade("session_id"),
    expected="the session_id of the connection on each of them",
)
async def session_of_frames(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.answered()
    turn = await talk.answered(session_id=talk.session)
    for frame in turn.frames:
        session = frame.get("session_id")
        if session is None:
            context.differs("frame-without-session", frame["type"])
        elif session != talk.session:
            context.fail(f"session {session} on {frame['type']}, {talk.session} on others")


@TURNS.case(
    "omniaturn.next-at-once",
    "A message right after the end of an answer is taken",
    section=omnia("Message Flow"),
    expected="an answer to each of several messages that are sent in the instant of a `done`",
)
async def next_at_once(context: ChatContext) -> None:
    talk = await context.talk()
    for _ in range(5):
        await talk.say()
        turn = await talk.turn()
        if turn.code == "RATE_LIMITED":
            context.differs("refused-after-done", shown(turn.end))
            await trio.sleep(0.5)
        elif turn.end["type"] != "done":
            context.fail(shown(turn.end))


@TURNS.case(
    "omniaturn.all-end",
    "Each of many messages at once has one end",
    section=omnia("Message Flow"),
    expected=f"{AT_ONCE} times `done`, or RATE_LIMITED for those that are too many",
)
async def all_end(context: ChatContext) -> None:
    talk = await context.talk()
    for _ in range(AT_ONCE):
        await talk.say()
    ends = [await talk.turn() for _ in range(AT_ONCE)]
    wrong = [turn for turn in ends if turn.code not in ("", "RATE_LIMITED")]
    if wrong:
        context.fail(shown(wrong[0].end))
    if not any(turn.end["type"] == "done" for turn in ends):
        context.fail("none of them is answered")
    extra = await talk.next(context.shared.options.idle)
    if isinstance(extra, dict) and extra["type"] in ("done", "error"):
        context.fail(f"one more end: {shown(extra)}")
    await talk.must_go_on("many messages at once")


@TURNS.case(
    "omniaturn.second-waits",
    "A second message waits until the first is answered",
    section=omnia("Message Flow"),
    expected="both are answered, one after the other",
    needs="a slow answer, --hints",
)
async def second_waits(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.say(context.hint("slow"))
    await talk.say()
    ends = [await talk.turn(), await talk.turn()]
    refused = [turn for turn in ends if turn.code == "RATE_LIMITED"]
    if refused:
        context.differs("second-refused", shown(refused[0].end))
    wrong = [turn for turn in ends if turn.end["type"] != "done" and turn not in refused]
    if wrong or len(refused) == 2:
        context.fail(shown((wrong or refused)[0].end))


@TURNS.case(
    "omniaturn.fails",
    "What fails, ends with an error, and the connection goes on",
    section=omnia("Error"),
    expected="`error` with a code and a message, both text; and no `done`",
    needs="what fails, --hints",
)
async def fails(context: ChatContext) -> None:
    talk = await context.talk()
    turn = await talk.ask(context.hint("fails"))
    error = inside(turn.end, "error")
    is_error = turn.end["type"] == "error"
    if not is_error or not all(isinstance(error.get(name), str) for name in ("code", "message")):
        context.fail(shown(turn.end))
    await talk.must_go_on("an error")


def _taken(id: str, title: str, expected: str, section: Any, **members: Any) -> None:
    async def run(context: ChatContext) -> None:
        await (await context.talk()).answered(**members)

    TURNS.add(id, title, run, section=section, expected=expected)


_taken(
    "omniaturn.metadata",
    "A message may have metadata",
    "an answer as without them",
    omnia("Message"),
    metadata={"user_id": "kit"},
)
_taken(
    "omniaturn.unknown-members",
    "Unknown members of a message are passed over",
    "an answer as without them",
    omnia("Message"),
    surprise={"deep": [1]},
)


@TURNS.case(
    "omniaturn.parts",
    "A message may consist of parts",
    section=facade("parts"),
    expected="an answer to a message with a part of type text",
)
async def parts(context: ChatContext) -> None:
    talk = await context.talk()
    text = context.shared.hints.say
    await talk.send({"type": "message", "parts": [{"type": "text", "text": text}]})
    turn = await talk.turn()
    if turn.end["type"] != "done":
        context.fail(shown(turn.end))


# ---- sessions


@SESSIONS.case(
    "omniasession.kept",
    "Messages of a connection belong to one session",
    section=facade("session_id"),
    expected="the same session_id for two messages that name none",
)
async def kept(context: ChatContext) -> None:
    talk = await context.talk()
    await talk.answered()
    first = talk.session
    await talk.answered()
    if talk.session != first:
        context.differs("new-session-each", f"{first}, then {talk.session}")


@SESSIONS.case(
    "omniasession.resumed",
    "A session goes on over another connection",
    section=omnia("Resume Session"),
    expected="the named session_id on the frames of the answer",
)
async def resumed(context: ChatContext) -> None:
    first = await context.talk()
    await first.answered()
    await _must_go_on_elsewhere(context, first)


@SESSIONS.case(
    "omniasession.after-leaving",
    "A client that leaves in the middle of an answer finds its session again",
    section=omnia("Resume Session"),
    expected="an answer in the same session over another connection",
)
async def after_leaving(context: ChatContext) -> None:
    first = await context.talk()
    await first.answered()
    await first.say(context.shared.hints.slow, session_id=first.session)
    await first.socket.cut()
    await _must_go_on_elsewhere(context, first)


async def _must_go_on_elsewhere(context: ChatContext, first: Talk) -> None:
    if first.session is None:
        context.not_offered("no session is named (see omniaturn.session)")
    second = await context.talk()
    turn = await second.answered(session_id=first.session)
    if turn.end.get("session_id", first.session) != first.session:
        context.fail(f"session {first.session} is named, and {turn.end.get('session_id')} answers")


@SESSIONS.case(
    "omniasession.unknown",
    "In place of an unknown session a new one begins",
    section=omnia("Session Expiration"),
    expected="an answer whose frames name a session that is not the unknown one",
)
async def unknown(context: ChatContext) -> None:
    talk = await context.talk()
    turn = await talk.ask(session_id=NO_SESSION)
    if turn.code in ("SESSION_EXPIRED", "SESSION_NOT_FOUND"):
        context.differs("expired-session", shown(turn.end))
    elif turn.end["type"] != "done":
        context.fail(shown(turn.end))
    elif turn.end.get("session_id") == NO_SESSION:
        context.differs("any-session", shown(turn.end))


@SESSIONS.case(
    "omniasession.asker",
    "Frames of a turn go to the connection that asked",
    section=omnia("Message Flow"),
    expected="nothing on another connection in the same session",
)
async def asker(context: ChatContext) -> None:
    asking, other = await context.talk(), await context.talk()
    await asking.answered()
    await other.answered(session_id=asking.session)
    while await other.next(context.shared.options.idle) is not None:
        pass  # whatever its own turn comes to
    await asking.answered(session_id=asking.session)
    try:
        frame = await other.of_type("chunk", "done", "error", "tool_call", within=context.shared.options.idle)
    except NoAnswer:
        return
    context.fail(f"the other connection gets {shown(frame)}")
