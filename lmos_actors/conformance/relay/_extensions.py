"""Cases of extensions, for relays whose welcome names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors.conformance.card import relay_extension
from lmos_actors.conformance.session import Chapter, NoAnswer

from ._context import RELAY, inside, of_relay, shown

if TYPE_CHECKING:
    from ._context import Frame, RelayAgent, RelayContext

EXTENSIONS: Final[Chapter[RelayContext]] = Chapter()

_LONG: Final = 3_600_000  # milliseconds


async def _agents(context: RelayContext, extension: str, *names: str) -> list[RelayAgent]:
    """Connect agents to a relay. Raises NotOffered if its welcome does not name the extension."""
    agents = await context.agents(*names)
    offered = inside(agents[0].welcome, "payload").get("extensions")
    if not isinstance(offered, list) or extension not in offered:
        context.not_offered(f"its welcome does not name the extension {extension}")
    return agents


def _messages(answer: Frame) -> list[Frame]:
    found = inside(answer, "payload").get("messages")
    return cast("list[Frame]", found) if isinstance(found, list) else []


def _payload(frame: object) -> object:
    """Return the payload of a message, or None if it is no object or has none."""
    return cast("Frame", frame).get("payload") if isinstance(frame, dict) else None


# ---- receipts


@EXTENSIONS.case(
    "relayreceipts.receipt",
    "A sender learns the id of its message",
    section=relay_extension("Receipts"),
    expected="`receipt` whose ref is the id that recipients see, with the sender's text, and delivered 1",
    needs="receipts",
)
async def receipt(context: RelayContext) -> None:
    one, other = await _agents(context, "receipts", "a", "b")
    word = context.word()
    await one.say(word, other.id, receipt="r-1")
    answer = await one.of_relay("receipt")
    heard = await other.message(word)
    payload = inside(answer, "payload")
    if answer.get("ref") != heard.get("id") or payload.get("receipt") != "r-1":
        context.fail(f"{shown(answer)} for the message {shown(heard)}")
    if payload.get("delivered") != 1:
        context.fail(shown(answer))


@EXTENSIONS.case(
    "relayreceipts.unknown",
    "A sender learns who is not there",
    section=relay_extension("Receipts"),
    expected="`receipt` with delivered 0 and the target under unknown",
    needs="receipts",
)
async def receipt_unknown(context: RelayContext) -> None:
    (one,) = await _agents(context, "receipts", "a")
    await one.say(context.word(), "no-such-agent-of-anybody", receipt="r-2")
    payload = inside(await one.of_relay("receipt"), "payload")
    if payload.get("delivered") != 0 or payload.get("unknown") != ["no-such-agent-of-anybody"]:
        context.fail(shown(payload))


# ---- presence


@EXTENSIONS.case(
    "relaypresence.both",
    "A follower hears when an agent comes and goes",
    section=relay_extension("Presence"),
    expected="`joined` and `left`, each once, with the agent's id",
    needs="presence",
)
async def presence(context: RelayContext) -> None:
    (one,) = await _agents(context, "presence", "f")
    identity = await context.identity("g")
    await one.command("subscribe", {"agents": [identity.id]})
    await one.of_relay("subscribed")
    other = await context.agent("g")
    joined = await one.of_relay("joined", "left")
    await other.leave()
    left = await one.of_relay("joined", "left")
    kinds = [(frame.get("type"), inside(frame, "payload").get("agent")) for frame in (joined, left)]
    if kinds != [("joined", identity.id), ("left", identity.id)]:
        context.fail(f"{shown(joined)}, {shown(left)}")
    await one.command("unsubscribe", {"agents": [identity.id]})
    await one.of_relay("unsubscribed")


# ---- history


async def _history(agent: RelayAgent, **payload: Any) -> Frame:
    await agent.command("command", payload, ref="h-1")
    return await agent.find(
        "command_result",
        lambda frame: of_relay(frame, "command_result", "error") and frame.get("ref") in ("h-1", None),
    )


@EXTENSIONS.case(
    "relayhistory.broadcasts",
    "What was said to everybody can be had again",
    section=relay_extension("History"),
    expected="`command_result` with the broadcasts, as they were passed on, oldest first",
    needs="history",
)
async def history(context: RelayContext) -> None:
    one, other = await _agents(context, "history", "a", "b")
    words = [context.word() for _ in range(3)]
    heard: list[Frame] = []
    for word in words:
        await one.say(word)
        heard.append(await other.message(word))
    found = _messages(await _history(other, command="history", limit=20))
    if [each for each in found if _payload(each) in words] != heard:
        context.fail(f"{shown(heard)} are kept as {shown(found)}")


@EXTENSIONS.case(
    "relayhistory.private",
    "Nobody gets what was said to others",
    section=relay_extension("History"),
    expected="a message to one agent not among the messages of a third",
    needs="history",
)
async def history_private(context: RelayContext) -> None:
    one, other, third = await _agents(context, "history", "a", "b", "c")
    word = context.word()
    await one.say(word, other.id)
    await other.message(word)
    for each, expected in ((other, 1), (one, 1), (third, 0)):
        found = _messages(await _history(each, command="history", limit=20))
        count = sum(_payload(frame) == word for frame in found)
        if count != expected:
            context.fail(f"{each.id} gets it {count} times")


@EXTENSIONS.case(
    "relayhistory.no-store",
    "What is not to be kept is not kept",
    section=relay_extension("History"),
    expected="a message with no_store true is passed on, and not among the messages",
    needs="history",
)
async def no_store(context: RelayContext) -> None:
    one, other = await _agents(context, "history", "a", "b")
    word = context.word()
    await one.say(word, no_store=True)
    await other.message(word)
    found = _messages(await _history(other, command="history", limit=20))
    if any(_payload(each) == word for each in found):
        context.fail("it is kept")


# ---- semantic


@EXTENSIONS.case(
    "relaysemantic.query",
    "An agent is found by what it says about itself",
    section=relay_extension("Semantic"),
    expected="`query_result` with the agent whose discovery message has the word, and a score",
    needs="semantic",
)
async def query(context: RelayContext) -> None:
    one, other = await _agents(context, "semantic", "a", "b")
    word = f"kit{context.random.getrandbits(40):010x}"
    await one.say({"skills": [word]}, type="discovery")
    await other.find("discovery", lambda frame: frame.get("type") == "discovery" and frame["from"] == one.id)
    await other.command("query", word, ref="q-1")
    answer = await other.of_relay("query_result", "error")
    agents = inside(answer, "payload").get("agents")
    names = [each.get("agent") for each in cast("list[Frame]", agents)] if isinstance(agents, list) else []
    if names != [one.id] or answer.get("ref") != "q-1":
        context.fail(shown(answer))


# ---- voting


async def _proposed(context: RelayContext, agent: RelayAgent, other: RelayAgent, **members: Any) -> str:
    """Make a proposal, and return its id."""
    word = context.word()
    await agent.say(word, type="proposal", **members)
    found = await other.message(word)
    if not isinstance(found.get("id"), str):
        context.fail(shown(found))
    return str(found["id"])


@EXTENSIONS.case(
    "relayvoting.result",
    "A vote has one result",
    section=relay_extension("Voting"),
    expected="`vote_result` by ref to everybody once the deadline is over, with status and counted votes",
    needs="voting",
)
async def result(context: RelayContext) -> None:
    one, other = await _agents(context, "voting", "a", "b")
    now = await _relay_time(context, one, other)
    soon = int(min(1000.0, context.patience * 400))
    proposal = await _proposed(context, one, other, deadline=now + soon, quorum=1_000_000)
    await other.command("vote", {"approve": True}, ref=proposal)
    within = soon / 1000 + max(context.patience, 40.0)  # some relays wait after a restart
    for each in (one, other):
        found = await each.find(
            "vote_result",
            lambda frame: of_relay(frame, "vote_result") and frame.get("ref") == proposal,
            within,
        )
        payload = inside(found, "payload")
        if payload.get("status") != "expired" or inside(payload, "votes").get("approve") != 1:
            context.fail(shown(found))
    again = [frame for frame in await context.heard_by(one, other) if of_relay(frame, "vote_result")]
    if any(frame.get("ref") == proposal for frame in again):
        context.fail("it comes twice")


async def _relay_time(context: RelayContext, one: RelayAgent, other: RelayAgent) -> int:
    word = context.word()
    await one.say(word)
    ts = (await other.message(word)).get("ts")
    if not isinstance(ts, int):
        context.fail(f"ts is {shown(ts)}")
    return ts


@EXTENSIONS.case(
    "relayvoting.wrong",
    "Votes about nothing are refused",
    section=relay_extension("Voting"),
    expected="an error for a vote on no proposal, and for one that neither approves nor rejects",
    needs="voting",
)
async def wrong_votes(context: RelayContext) -> None:
    one, other = await _agents(context, "voting", "a", "b")
    now = await _relay_time(context, one, other)
    proposal = await _proposed(context, one, other, deadline=now + _LONG)
    wrongs: tuple[tuple[Any, str], ...] = (({"approve": True}, "no-such-message"), ({"approve": 5}, proposal))
    for payload, ref in wrongs:
        await other.command("vote", payload, ref=ref)
        try:
            await other.of_relay("error")
        except NoAnswer:
            context.fail(f"{shown(payload)} on {ref} is not refused")


@EXTENSIONS.case(
    "relayvoting.forged",
    "Nobody announces a result but the relay",
    section=relay_extension("Voting"),
    expected="a `vote_result` of an agent under its own name, and the vote goes on",
    needs="voting",
)
async def forged_result(context: RelayContext) -> None:
    one, other = await _agents(context, "voting", "a", "b")
    now = await _relay_time(context, one, other)
    proposal = await _proposed(context, one, other, deadline=now + _LONG, quorum=1_000_000)
    await one.say({"status": "passed"}, type="vote_result", ref=proposal)
    heard = await context.heard_by(other, one)
    if any(frame.get("from") == RELAY and frame.get("type") == "vote_result" for frame in heard):
        context.fail(shown(heard))
    await other.command("vote", {"approve": True}, ref=proposal)
    await context.must_go_on(other, one, "a vote")
