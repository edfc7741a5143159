"""Cases of bytes and frames, and of agents whose connections end, are made again, or exist twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import relay_page, relays, rfc6455
from lmos_actors.conformance.session import Chapter, NoAnswer
from lmos_actors.conformance.wire import BINARY, PING, PONG, TEXT, ConnectionGone

from ._context import inside

if TYPE_CHECKING:
    from ._context import RelayContext

BYTES: Final[Chapter[RelayContext]] = Chapter()
CONNECTIONS: Final[Chapter[RelayContext]] = Chapter()

_MOST: Final = 4 << 20
_SECOND: Final = relays("second connection of one identity")


# ---- bytes


@BYTES.case(
    "relaybytes.ping",
    "A ping of WebSocket is answered",
    section=rfc6455("5.5.3"),
    expected="a pong with what was in the ping",
)
async def ping(context: RelayContext) -> None:
    agent = await context.agent()
    await agent.socket.send_frame(PING, b"kit")
    deadline = trio.current_time() + context.patience
    while True:
        frame = await agent.socket.next_frame(max(0.0, deadline - trio.current_time()))
        if frame is None:
            raise NoAnswer(f"no pong came within {context.patience:g} s")
        if frame.opcode == PONG:
            break
    if frame.payload != b"kit":
        context.fail(f"the pong has {frame.payload!r}")


@BYTES.case(
    "relaybytes.fragments",
    "A message in several frames is one message",
    section=rfc6455("5.4"),
    expected="the message is passed on",
)
async def fragments(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    data = json.dumps({"from": one.id, "to": ["*"], "payload": f"{word} größer"}, ensure_ascii=False).encode()
    cut = data.index("ö".encode()) + 1  # in the middle of a letter
    await one.parts(data[:10], data[10:cut], data[cut:])
    await other.message(f"{word} größer")


@BYTES.case(
    "relaybytes.binary",
    "JSON may be in a binary frame",
    section=relays("frames"),
    expected="the message is passed on",
)
async def binary(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    frame = {"from": one.id, "to": ["*"], "payload": word}
    await one.socket.send_frame(BINARY, json.dumps(frame).encode())
    try:
        heard = await context.heard_by(other, one)
    except ConnectionGone as gone:
        context.differs("relay-no-binary", str(gone))
        return
    if not any(each.get("payload") == word for each in heard):
        context.differs("relay-no-binary", "it is not passed on")


@BYTES.case(
    "relaybytes.utf-8",
    "Text that is not UTF-8 ends its connection",
    section=rfc6455("8.1"),
    expected="a Close with code 1007, and others go on",
)
async def utf8(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    await one.socket.send_frame(TEXT, b'{"to":["*"],"payload":"\xc3\x28"}')
    end = await one.socket.end(context.patience)
    if end is None:
        context.fail("the connection goes on")
    if end.code != 1007:
        context.differs("close-code", str(end))
    await context.must_go_on(other, third, "text that is not UTF-8")


@BYTES.case(
    "relaybytes.too-long",
    "A message that is too long is refused",
    section=relay_page("limits"),
    expected="a Close with code 1009, or an error, for more than the announced size, else for 1 MiB",
)
async def too_long(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    size = inside(inside(one.welcome, "payload"), "limits").get("max_message_size")
    if isinstance(size, int) and size > _MOST:
        context.not_offered(f"{size} bytes are announced, and the kit sends {_MOST} at most")
    # far above the usual limit of 64 KiB
    length = size + 1 if isinstance(size, int) and size > 0 else 1 << 20
    try:
        await one.say("x" * length)
        error = await one.refusal()
    except ConnectionGone as gone:
        if gone.gone.code != 1009:
            context.differs("close-code", str(gone))
    else:
        if error is None:
            context.differs("relay-unlimited", f"{length} bytes are taken")
    await context.must_go_on(other, third, "a message that is too long")


@BYTES.case(
    "relaybytes.long",
    "A message of 60 kB passes",
    section=relay_page("limits"),
    expected="a payload of 60,000 characters as it was sent",
)
async def long(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    payload = context.word().ljust(60_000, "x")
    await one.say(payload)
    await other.find("message of 60,000 characters", lambda frame: frame.get("payload") == payload)


# ---- connections


@CONNECTIONS.case(
    "relayconnection.close",
    "A Close is answered by a Close",
    section=rfc6455("5.5.1"),
    expected="a Close, and the end of the stream",
)
async def close(context: RelayContext) -> None:
    agent = await context.agent()
    await agent.socket.close(1000)
    end = await agent.socket.end(context.patience)
    if end is None or end.code is None:
        context.fail("no Close comes" if end is None else str(end))
    if not await agent.socket.stream_end(context.patience):
        context.differs("stream-left-open", f"the stream is open after {context.patience:g} s")


@CONNECTIONS.case(
    "relayconnection.stays",
    "A connection on which nothing is said stays",
    section=relay_page("server"),
    expected="the connection, after the time of --idle",
)
async def stays(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    end = await one.socket.end(context.shared.options.idle)
    if end is not None:
        context.fail(f"after {context.shared.options.idle:g} s at most: {end}")
    await context.must_go_on(one, other, "a pause")


@CONNECTIONS.case(
    "relayconnection.left",
    "What is said to an agent that has left is dropped",
    section=relay_page("routing"),
    expected="the sender goes on",
)
async def left(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    await other.leave()
    await one.say(context.word(), other.id)
    await context.must_go_on(one, third, "a message to an agent that has left")


@CONNECTIONS.case(
    "relayconnection.back",
    "An agent that comes back is reached again",
    section=relay_page("authentication"),
    expected="a message to it at its new connection",
)
async def back(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    await other.leave()
    again = await context.agent("b")
    await _must_reach(context, "a", again.id, "after it has come back")
    await context.must_go_on(again, one, "coming back")


async def _must_reach(context: RelayContext, sender: str, id: str, when: str) -> None:
    """Fail unless a message to an agent arrives at its newest connection."""
    word, newest = context.word(), context.newest(id)
    await context.there(sender).say(word, *((id,) if context.shared.direct else ()))
    try:
        await newest.message(word)
    except (NoAnswer, ConnectionGone) as why:
        context.fail(f"{when}: {why}")


@CONNECTIONS.case(
    "relayconnection.second",
    "The newer connection of an agent is the one that is reached",
    section=_SECOND,
    expected="a message to the agent at its second connection",
)
async def second(context: RelayContext) -> None:
    await context.agents("a", "b")
    again = await context.agent("b")
    await _must_reach(context, "a", again.id, "with two connections")


@CONNECTIONS.case(
    "relayconnection.first-ends",
    "The older connection of an agent is ended",
    section=_SECOND,
    expected="a Close with code 4009 on the first connection, once there is a second",
)
async def first_ends(context: RelayContext) -> None:
    (first,) = await context.agents("b")
    await context.agent("b")
    end = await first.socket.end(context.patience)
    if end is None:
        context.differs("relay-second-beside", "the first connection goes on")
    elif end.code != 4009:
        context.differs("close-code", str(end))


@CONNECTIONS.case(
    "relayconnection.second-stays",
    "An agent is reached when the older of its connections has ended",
    section=_SECOND,
    expected="a message to the agent at its second connection, once the first has ended",
)
async def second_stays(context: RelayContext) -> None:
    _, first = await context.agents("a", "e")
    again = await context.agent("e")
    await first.leave()
    word = context.word()
    await context.there("a").say(word, *((again.id,) if context.shared.direct else ()))
    try:
        await again.message(word)
    except (NoAnswer, ConnectionGone) as why:
        context.differs("relay-second-lost", str(why))
