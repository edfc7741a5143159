"""Cases of messages (their hearers, senders and followers) and of commands."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import relay, relay_page, relays, rfc8259
from lmos_actors.conformance.session import Chapter, NoAnswer

from ._context import RELAY, inside, of_relay, shown

if TYPE_CHECKING:
    from ._context import Frame, RelayAgent, RelayContext

COMMANDS: Final[Chapter[RelayContext]] = Chapter()

_ROUTING: Final = relay_page("routing")
_FORMAT: Final = relay_page("message format")
_MANY: Final = 50
_YEAR_2001: Final = 1_000_000_000_000  # in milliseconds; as seconds it is far ahead

PAYLOADS: Final[tuple[Any, ...]] = (
    None,
    False,
    0,
    -1.5,
    "",
    "größer 🌍 \u2028 \x7f",
    [],
    [1, [2, [3]]],
    {},
    {"a": {"b": [None, True]}, "": 0, "__proto__": 1},
)

SENDING: Final[Chapter[RelayContext]] = Chapter(section=_ROUTING)
SENDERS: Final[Chapter[RelayContext]] = Chapter(section=_FORMAT)
FOLLOWING: Final[Chapter[RelayContext]] = Chapter(section=_ROUTING)


def _count(frames: list[Frame], payload: Any) -> int:
    return sum(frame.get("payload") == payload for frame in frames)


def _must_be_heard(context: RelayContext, agent: RelayAgent, frames: list[Frame], payload: Any) -> None:
    """Fail unless an agent has received a message; note a deviation if the message arrived more than once."""
    count = _count(frames, payload)
    if count == 0:
        context.fail(f"{agent.id} does not hear {shown(payload)}")
    if count > 1:
        context.differs("relay-heard-twice", f"{agent.id} has it {count} times")


def _must_not_be_heard(context: RelayContext, agent: RelayAgent, frames: list[Frame], payload: Any) -> None:
    if _count(frames, payload):
        context.fail(f"{agent.id} hears {shown(payload)}")


# ---- who hears it


@SENDING.case(
    "relaysend.broadcast",
    "Everybody hears a broadcast, but for its sender",
    expected='a message to ["*"] at each other agent once, and not at the sender',
)
async def broadcast(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    word = context.word()
    await one.say(word)
    for each in (other, third):
        _must_be_heard(context, each, await context.heard_by(each, one), word)
    _must_not_be_heard(context, one, await context.heard_by(one, other), word)


@SENDING.case(
    "relaysend.direct",
    "One agent hears what is said to it",
    expected="the message at its target, and at nobody else",
)
async def direct(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    word = context.word()
    await one.say(word, other.id)
    _must_be_heard(context, other, await context.heard_by(other, one), word)
    _must_not_be_heard(context, third, await context.heard_by(third, one), word)
    _must_not_be_heard(context, one, await context.heard_by(one, other), word)


@SENDING.case(
    "relaysend.several",
    "Several agents hear what is said to them",
    expected="the message at each target once, with all of them in `to`",
)
async def several(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    word = context.word()
    await one.say(word, other.id, third.id)
    for each in (other, third):
        heard = await context.heard_by(each, one)
        _must_be_heard(context, each, heard, word)
        found = next(frame for frame in heard if frame.get("payload") == word)
        if found.get("to") != [other.id, third.id]:
            context.fail(f"`to` arrives as {shown(found.get('to'))}")


@SENDING.case(
    "relaysend.oneself",
    "An agent that names itself hears itself",
    expected="the message at its sender, whose id is in `to`",
)
async def oneself(context: RelayContext) -> None:
    one = await context.agent()
    word = context.word()
    await one.say(word, one.id)
    await one.message(word)


@SENDING.case(
    "relaysend.repeated",
    "A target that is named twice hears it once",
    expected="the message once",
)
async def repeated(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.say(word, other.id, other.id)
    _must_be_heard(context, other, await context.heard_by(other, one), word)


@SENDING.case(
    "relaysend.star-and-names",
    "A broadcast that names agents, too, is heard once",
    expected='a message to ["*", ID] at each other agent once',
)
async def star_and_names(context: RelayContext) -> None:
    one, other, third = await context.agents("a", "b", "c")
    word = context.word()
    await one.say(word, "*", other.id)
    for each in (other, third):
        _must_be_heard(context, each, await context.heard_by(each, one), word)


@SENDING.case(
    "relaysend.nobody",
    "What is said to nobody is dropped",
    expected="nobody hears it, and the sender goes on",
)
async def nobody(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.say(word, "no-such-agent-of-anybody")
    _must_not_be_heard(context, other, await context.heard_by(other, one), word)


@SENDING.case(
    "relaysend.order",
    "What one agent says arrives in its order",
    expected=f"{_MANY} broadcasts, all of them, in the order in which they were sent",
)
async def order(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    words = [context.word() for _ in range(_MANY)]
    for word in words:
        await one.say(word)
    came = [frame.get("payload") for frame in await context.heard_by(other, one)]
    heard = [payload for payload in came if payload in words]
    if heard != words:
        context.fail(
            f"{len(heard)} of {_MANY} arrive" + (", in another order" if len(heard) == _MANY else "")
        )


@SENDING.case(
    "relaysend.envelope",
    "The relay adds an id, the sender and the time",
    section=relay("Message Types"),
    expected="id, a text that no other message has; from, the sender; ts, whole milliseconds of Unix time",
)
async def envelope(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    found: list[Frame] = []
    for _ in range(3):
        word = context.word()
        await one.say(word)
        found.append(await other.message(word))
    for frame in found:
        id, ts = frame.get("id"), frame.get("ts")
        if not isinstance(id, str) or not id or frame.get("from") != one.id:
            context.fail(shown(frame))
        if not isinstance(ts, int) or isinstance(ts, bool) or ts < _YEAR_2001:
            context.fail(f"ts is {shown(ts)}")
    if len({frame["id"] for frame in found}) < len(found):
        context.fail(f"ids {', '.join(frame['id'] for frame in found)}")


@SENDING.case(
    "relaysend.type",
    "Any type passes, and none",
    section=relay("Custom Types"),
    expected="`type` as it was sent, and no `type` where there was none",
)
async def type_passes(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    for kind in ("thought", "question", "no-such-type-of-anybody", None):
        word = context.word()
        await one.say(word, **({} if kind is None else {"type": kind}))
        frame = await other.message(word)
        if frame.get("type") != kind:
            context.fail(f"{kind} arrives as {shown(frame)}")


@SENDING.case(
    "relaysend.ref",
    "A ref passes",
    section=relay("answer"),
    expected="`ref` as it was sent",
)
async def ref(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    question, answer = context.word(), context.word()
    await one.say(question, type="question")
    asked = (await other.message(question)).get("id")
    await other.say(answer, type="answer", ref=asked)
    frame = await one.message(answer)
    if frame.get("ref") != asked:
        context.fail(f"the ref {shown(asked)} arrives as {shown(frame)}")


@SENDING.case(
    "relaysend.payloads",
    "Any JSON may be the payload",
    section=_FORMAT,
    expected="null, false, numbers, texts, arrays and objects as they were sent",
)
async def payloads(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    for payload in PAYLOADS:
        word = context.word()
        await one.say(payload, ref=word)
        frame = await other.with_ref(word)
        if "payload" not in frame or shown(frame["payload"]) != shown(payload):
            context.fail(f"{shown(payload)} arrives as {shown(frame)}")


@SENDING.case(
    "relaysend.numbers",
    "Numbers keep their digits",
    section=rfc8259("6"),
    expected="12345678901234567890 as it was sent",
)
async def numbers(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.say([12345678901234567890, 9007199254740993], ref=word)
    frame = await other.with_ref(word)
    if frame.get("payload") != [12345678901234567890, 9007199254740993]:
        context.differs("relay-rounded", shown(frame.get("payload")))


@SENDING.case(
    "relaysend.members",
    "Members of one's own pass",
    section=_FORMAT,
    expected="a member that the protocol does not know, as it was sent",
)
async def members(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.say(word, kit_x={"a": [1, None]}, traceparent="00-1-2-01")
    frame = await other.message(word)
    if frame.get("kit_x") != {"a": [1, None]} or frame.get("traceparent") != "00-1-2-01":
        context.differs("relay-members-dropped", shown(frame))


# ---- whose it is


@SENDERS.case(
    "relayfrom.own",
    "An agent may name itself",
    section=relay("Message Types"),
    expected="a message whose `from` is its sender's id is passed on",
)
async def own_from(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.send({"to": ["*"], "payload": word, "from": one.id})
    await other.message(word)


@SENDERS.case(
    "relayfrom.none",
    "An agent need not name itself",
    expected="a message without `from` is passed on, with the sender's id",
)
async def no_from(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.send(f'{{"to": ["*"], "payload": "{word}"}}')
    try:
        frame = await other.message(word)
    except NoAnswer:
        error = await one.refusal()
        if error is None:
            context.fail("it is neither passed on nor refused")
        context.differs("relay-from-demanded", shown(error))
        return
    if frame.get("from") != one.id:
        context.fail(shown(frame))


async def _forge(context: RelayContext, name: str) -> None:
    """Send a message with another agent's `from`; it must be refused and not passed on."""
    one, other, third = await context.agents("a", "b", "c")
    word = context.word()
    await one.send({"to": ["*"], "payload": word, "from": third.id if name == "c" else name})
    heard = [frame for frame in await context.heard_by(other, one) if frame.get("payload") == word]
    for frame in heard:
        if frame.get("from") == one.id:
            context.differs("relay-from-replaced", shown(frame))
        else:
            context.differs("relay-from-forged", shown(frame))
    if not heard:
        error = await one.refusal()
        if error is None:
            context.differs("relay-silent", "nobody hears it, and nothing says so")


@SENDERS.case(
    "relayfrom.another",
    "Nobody speaks as another agent",
    expected="an error, and nobody hears a message whose `from` is another agent",
)
async def another_from(context: RelayContext) -> None:
    await _forge(context, "c")


@SENDERS.case(
    "relayfrom.relay",
    "Nobody speaks as the relay",
    expected="an error, and nobody hears a message whose `from` is `relay`",
)
async def relay_from(context: RelayContext) -> None:
    await _forge(context, RELAY)


@SENDERS.case(
    "relayfrom.id-and-ts",
    "The relay decides the id and the time",
    expected="another `id` and `ts` than those of the sender, or an error",
)
async def id_and_ts(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    word = context.word()
    await one.send({"to": ["*"], "payload": word, "id": "kit-decides", "ts": 5})
    for frame in await context.heard_by(other, one):
        if frame.get("payload") == word and (frame.get("id") == "kit-decides" or frame.get("ts") == 5):
            context.differs("relay-id-kept", shown(frame))


@SENDERS.case(
    "relayfrom.control-types",
    "Types of the relay are anybody's, under their own name",
    section=relay("No enforcement"),
    expected="`welcome`, `error` and `vote_result` of an agent as its messages, or an error",
)
async def control_types(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    for kind in ("welcome", "error", "vote_result"):
        word = context.word()
        await one.say(word, type=kind)
        for frame in await context.heard_by(other, one):
            if frame.get("payload") == word and frame.get("from") != one.id:
                context.fail(f"a {kind} of {one.id} arrives as {shown(frame)}")


# ---- who follows whom


async def _follow(context: RelayContext, agent: RelayAgent, *ids: str, un: str = "") -> Frame | None:
    """Follow agents, or stop following them; return the answer, or None if there is none."""
    await agent.command(f"{un}subscribe", {"agents": list(ids)})
    try:
        return await agent.of_relay(f"{un}subscribed", "error")
    except NoAnswer:
        context.differs("relay-unacknowledged", f"nothing answers {un}subscribe")
        return None


@FOLLOWING.case(
    "relayfollow.subscribe",
    "Following is acknowledged",
    section=relays("subscribed"),
    expected="`subscribed` with the agents that were named",
)
async def subscribe(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    answer = await _follow(context, one, other.id)
    if answer is not None and inside(answer, "payload").get("agents") != [other.id]:
        context.fail(shown(answer))
    await _follow(context, one, other.id, un="un")


@FOLLOWING.case(
    "relayfollow.unsubscribe",
    "Following no more is acknowledged",
    section=relays("unsubscribed"),
    expected="`unsubscribed` with the agents that were named, which are followed no more",
)
async def unsubscribe(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    await _follow(context, one, other.id)
    answer = await _follow(context, one, other.id, un="un")
    if answer is not None and inside(answer, "payload").get("agents") != [other.id]:
        context.fail(shown(answer))
    await one.command("list_subscriptions")
    with suppress(NoAnswer):
        left = inside(await one.of_relay("subscriptions"), "payload").get("agents")
        if left:
            context.fail(f"{one.id} follows {shown(left)} still")


@FOLLOWING.case(
    "relayfollow.list",
    "An agent learns whom it follows",
    section=relays("subscriptions"),
    expected="`subscriptions` with the agents, for list_subscriptions without a payload",
)
async def list_followed(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    await _follow(context, one, other.id)
    answer = await _commanded(context, one, "list_subscriptions", "subscriptions")
    if answer is None:
        context.differs("relay-unacknowledged", "nothing answers list_subscriptions")
    elif inside(answer, "payload").get("agents") != [other.id]:
        context.fail(shown(answer))
    await _follow(context, one, other.id, un="un")


@FOLLOWING.case(
    "relayfollow.once",
    "A follower hears a broadcast once",
    expected="the broadcast of an agent that is followed, once",
)
async def followed_once(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    await _follow(context, one, other.id)
    word = context.word()
    await other.say(word)
    _must_be_heard(context, one, await context.heard_by(one, other), word)
    await _follow(context, one, other.id, un="un")


@FOLLOWING.case(
    "relayfollow.oneself",
    "Who follows itself does not hear itself",
    expected="a broadcast not at its sender",
)
async def follow_oneself(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    await _follow(context, one, one.id)
    word = context.word()
    await one.say(word)
    await other.message(word)
    if _count(await context.heard_by(one, other), word):
        context.differs("relay-echoed", f"{one.id} hears its own broadcast")
    await _follow(context, one, one.id, un="un")


@FOLLOWING.case(
    "relayfollow.direct-to",
    "Followers do not hear what is said to one agent",
    expected="a message to an agent not at those who follow that agent",
)
async def direct_to(context: RelayContext) -> None:
    one, other, third = await context.agents("f", "a", "b")
    await _follow(context, one, other.id)
    word = context.word()
    await third.say(word, other.id)
    if _count(await context.heard_by(one, third), word):
        context.differs("relay-direct-copied", f"{one.id}, which follows {other.id}, hears it")
    await _follow(context, one, other.id, un="un")


@FOLLOWING.case(
    "relayfollow.direct-of",
    "Followers do not hear what an agent says to one",
    expected="a message of an agent to one not at those who follow that agent",
)
async def direct_of(context: RelayContext) -> None:
    one, other, third = await context.agents("f", "a", "b")
    await _follow(context, one, other.id)
    word = context.word()
    await other.say(word, third.id)
    _must_not_be_heard(context, one, await context.heard_by(one, other), word)
    await _follow(context, one, other.id, un="un")


@FOLLOWING.case(
    "relayfollow.wrong",
    "Following what is no agent is refused",
    section=relay("error"),
    expected="an error for agents that are no array, or no texts, and the connection goes on",
)
async def follow_wrong(context: RelayContext) -> None:
    one, other = await context.agents("f", "a")
    for payload in ({}, {"agents": 5}, {"agents": [5]}):
        await context.must_refuse(one, other, {"to": [RELAY], "type": "subscribe", "payload": payload})


# ---- commands


async def _commanded(context: RelayContext, agent: RelayAgent, type: str, answer: str) -> Frame | None:
    """Return the answer to a command without a payload, or if that is refused, with a null payload."""
    await agent.send({"to": [RELAY], "type": type})
    try:
        found = await agent.of_relay(answer, "error")
    except NoAnswer:
        found = None
    if found is not None and not of_relay(found, "error"):
        return found
    if found is not None:
        context.differs("relay-payload-demanded", shown(found))
    await agent.command(type)
    try:
        return await agent.of_relay(answer)
    except NoAnswer:
        return None


@COMMANDS.case(
    "relaycommand.ping",
    "A ping is answered",
    section=relay("ping / pong"),
    expected="`pong`, for a ping without a payload",
)
async def ping(context: RelayContext) -> None:
    agent = await context.agent()
    if await _commanded(context, agent, "ping", "pong") is None:
        context.differs("relay-no-pong", "nothing answers it")


@COMMANDS.case(
    "relaycommand.unknown",
    "An unknown command is refused",
    section=relay("error"),
    expected="an error, and the connection goes on",
)
async def unknown(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    frame: Frame = {"to": [RELAY], "type": "no-such-command-of-anybody", "payload": {}}
    await context.must_refuse(one, other, frame)


@COMMANDS.case(
    "relaycommand.unheard",
    "Nobody hears what is said to the relay",
    section=_ROUTING,
    expected="a command not at other agents, whose ids and `*` stand beside `relay`",
)
async def unheard(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    words = [context.word() for _ in range(2)]
    for word, beside in zip(words, ([], ["*", other.id]), strict=True):
        await one.send({"to": [RELAY, *beside], "type": "ping", "payload": word})
    heard = await context.heard_by(other, one)
    for word in words:
        _must_not_be_heard(context, other, heard, word)
