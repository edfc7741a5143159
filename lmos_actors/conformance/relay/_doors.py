"""Cases of the handshake, of registration, and of the other HTTP addresses."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from lmos_actors.conformance.card import http, relay, relay_page, rfc6455
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.wire import ConnectionGone, Refused, read_json

from ._context import RELAY, identity_in, inside, of_relay, relay_place, shown

if TYPE_CHECKING:
    from lmos_actors.conformance.wire import HttpAnswer

    from ._context import RelayContext

OPENING: Final[Chapter[RelayContext]] = Chapter()
REGISTRATION: Final[Chapter[RelayContext]] = Chapter(section=relay_page("registration"), needs="registration")
PAGES: Final[Chapter[RelayContext]] = Chapter(section=relay_page("server"))

ID: Final = re.compile(r"(?=.{3,64}$)[a-z0-9]+(-+[a-z0-9]+)*")
_AUTHENTICATION: Final = relay_page("authentication")
_WELCOME: Final = relay("welcome")


# ---- the handshake


@OPENING.case(
    "relayopen.upgrade",
    "The address opens a WebSocket",
    section=rfc6455("4.2.2"),
    expected="101 with the Sec-WebSocket-Accept that belongs to the key",
)
async def upgrade(context: RelayContext) -> None:
    handshake = (await context.agent(welcomed=False)).socket.handshake
    if handshake.header("sec-websocket-accept") != handshake.accept:
        context.fail(f"Sec-WebSocket-Accept: {handshake.header('sec-websocket-accept')}")


@OPENING.case(
    "relayopen.subprotocol",
    "No subprotocol is selected that was not offered",
    section=rfc6455("4.2.2"),
    expected="no Sec-WebSocket-Protocol, as none is offered",
)
async def subprotocol(context: RelayContext) -> None:
    handshake = (await context.agent(welcomed=False)).socket.handshake
    if handshake.header("sec-websocket-protocol"):
        context.fail(f"Sec-WebSocket-Protocol: {handshake.header('sec-websocket-protocol')}")


@OPENING.case(
    "relayopen.other-subprotocol",
    "A subprotocol of others is not selected",
    section=rfc6455("4.2.2"),
    expected="no Sec-WebSocket-Protocol, as lmosprotocol is offered alone",
)
async def other_subprotocol(context: RelayContext) -> None:
    agent = await context.agent(welcomed=False, offered=("lmosprotocol",))
    chosen = agent.socket.handshake.header("sec-websocket-protocol")
    if chosen:
        context.differs("relay-any-subprotocol", f"Sec-WebSocket-Protocol: {chosen}")


@OPENING.case(
    "relayopen.welcome",
    "The relay welcomes an agent",
    section=_WELCOME,
    expected="`welcome` as the first frame, from `relay`",
)
async def welcome(context: RelayContext) -> None:
    agent = await context.agent(welcomed=False)
    frame = await agent.next()
    if frame is None:
        context.differs("relay-no-welcome", "nothing comes before the agent says anything")
    elif not of_relay(frame, "welcome"):
        context.fail(shown(frame))


@OPENING.case(
    "relayopen.own-id",
    "The welcome tells an agent its id",
    section=_WELCOME,
    expected="`to` with the id of the agent, and nothing else",
    needs="a welcome",
)
async def own_id(context: RelayContext) -> None:
    agent = await context.agent()
    if agent.welcome is None:
        context.not_offered("nothing comes before the agent says anything")
    if agent.welcome.get("to") != [agent.id]:
        context.fail(f"the agent {agent.id} gets {shown(agent.welcome)}")


@OPENING.case(
    "relayopen.capabilities",
    "The welcome names the relay and what it can do",
    section=_WELCOME,
    expected="payload with relay and version, which are texts, and an array of capabilities",
    needs="a welcome",
)
async def capabilities(context: RelayContext) -> None:
    agent = await context.agent()
    if agent.welcome is None:
        context.not_offered("nothing comes before the agent says anything")
    known = inside(agent.welcome, "payload")
    texts = all(isinstance(known.get(name), str) for name in ("relay", "version"))
    if not texts or not isinstance(known.get("capabilities"), list):
        context.differs("relay-welcome-payload", shown(agent.welcome))


@OPENING.case(
    "relayopen.query",
    "A token may be in the address",
    section=_AUTHENTICATION,
    expected="a connection by ?token=",
)
async def query(context: RelayContext) -> None:
    agent = await context.agent(query=True)
    other = await context.agent("b")
    await context.must_go_on(agent, other, "connecting with ?token=")


async def _must_refuse(context: RelayContext, token: str | None, *, query: bool = False) -> None:
    """Fail unless a connection is refused by 401 or 403, or closed with 4001 at once."""
    try:
        socket = await context.connect(token, query=query)
    except Refused as refused:
        if refused.handshake.status not in (401, 403):
            context.fail(str(refused))
        return
    try:
        said = await socket.next_message(context.patience)
    except ConnectionGone as gone:
        if gone.gone.code != 4001:
            context.fail(f"the connection is opened, and {gone}")
        context.differs("relay-refused-late", str(gone))
    else:
        context.fail(f"the connection is opened, and has {shown(said)}")


@OPENING.case(
    "relayopen.no-token",
    "Without a token there is no connection",
    section=_AUTHENTICATION,
    expected="401",
)
async def no_token(context: RelayContext) -> None:
    await _must_refuse(context, None)


@OPENING.case(
    "relayopen.bad-token",
    "A token of nobody opens no connection",
    section=_AUTHENTICATION,
    expected="401",
)
async def bad_token(context: RelayContext) -> None:
    await _must_refuse(context, "tok_of_nobody")
    await _must_refuse(context, "tok_of_nobody", query=True)


@OPENING.case(
    "relayopen.path",
    "Other addresses are no relay",
    section=_AUTHENTICATION,
    expected="an answer from 400 to 499 to a handshake at another path",
)
async def path(context: RelayContext) -> None:
    parts = urlsplit(context.shared.url)
    elsewhere = urlunsplit((parts.scheme, parts.netloc, "/no-such-place-of-anybody", "", ""))
    identity = await context.identity("a")
    try:
        await context.connect(identity.token, url=elsewhere)
    except Refused as refused:
        if not 400 <= refused.handshake.status <= 499:
            context.fail(str(refused))
    else:
        context.fail("a WebSocket is opened at /no-such-place-of-anybody")


# ---- registration


def _new_id() -> str:
    return f"kit-{uuid.uuid4().hex[:12]}"


async def must_be_open(context: RelayContext) -> None:
    """End the case unless the kit registers agents itself, without invitations."""
    if context.shared.known:
        context.not_offered("agents of the kit are named in --hints: none is registered")
    if context.shared.invitations:
        context.not_offered("agents register by --invitation: what is open to all is not tried")


def _refusal_in(answer: HttpAnswer) -> str:
    """Return the code of a refused registration, or "" if there is none."""
    try:
        found = read_json(answer.body)
    except ValueError:
        return ""
    code = found.get("error") if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return code if isinstance(code, str) else ""


@REGISTRATION.case(
    "relayregister.named",
    "An agent registers by the id that it wants",
    expected="200 with that agent_id and a token",
)
async def named(context: RelayContext) -> None:
    await must_be_open(context)
    wanted = _new_id()
    answer = await context.register(wanted)
    found = identity_in(answer)
    if answer.status != 200 or found is None or found.id != wanted or not found.token:
        context.fail(f"{answer.status} with {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.made-up",
    "Without an id the relay makes one up",
    expected="200 with an agent_id of 3 to 64 of a-z, 0-9 and hyphens, none of them at an end",
)
async def made_up(context: RelayContext) -> None:
    await must_be_open(context)
    for _ in range(20):  # one relay makes up an invalid id one time in eight
        answer = await context.register()
        found = identity_in(answer)
        if answer.status != 200 or found is None:
            context.fail(f"{answer.status} with {_plain(answer)}")
        if not ID.fullmatch(found.id):
            context.differs("relay-id-made-up", f"agent_id {found.id!r}")


@REGISTRATION.case(
    "relayregister.taken",
    "Nobody gets an id that is taken",
    expected="409 agent_id_taken",
)
async def taken(context: RelayContext) -> None:
    await must_be_open(context)
    answer = await context.register((await context.identity("a")).id)
    if answer.status == 200 or _refusal_in(answer) != "agent_id_taken":
        context.fail(f"{answer.status} with {_plain(answer)}")
    if answer.status != 409:
        context.differs("relay-taken-400", f"{answer.status} with {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.rule",
    "Ids follow their rule",
    expected='400 invalid_agent_id for "ab", "Agent-7", "-abc", "abc-", "a_b", and one of 65 characters',
)
async def rule(context: RelayContext) -> None:
    await must_be_open(context)
    for wrong in ("ab", "Agent-7", "-abc", "abc-", "a_b", "a" * 65):
        answer = await context.register(wrong)
        if answer.status != 400 or _refusal_in(answer) != "invalid_agent_id":
            context.fail(f"{wrong!r} is answered with {answer.status} {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.text",
    "Ids are texts",
    expected="400 for a number, an array and an object",
)
async def text(context: RelayContext) -> None:
    await must_be_open(context)
    wrongs: tuple[Any, ...] = (context.random.randrange(10**6, 10**9), [_new_id()], {"a": 1})
    for wrong in wrongs:
        answer = await context.register(wrong)
        if answer.status == 200:
            context.differs("relay-id-no-text", f"{wrong} is registered")
        elif answer.status != 400:
            context.fail(f"{wrong} is answered with {answer.status} {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.relay",
    "No agent is called relay",
    expected="a refusal",
)
async def reserved(context: RelayContext) -> None:
    await must_be_open(context)
    answer = await context.register(RELAY)
    if answer.status == 200 or _refusal_in(answer) == "agent_id_taken":
        context.differs("relay-id-relay", f"{answer.status} with {_plain(answer)}")
    elif not 400 <= answer.status <= 499:
        context.fail(f"{answer.status} with {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.json",
    "What is no JSON registers nobody",
    expected="400 invalid_json",
)
async def json(context: RelayContext) -> None:
    await must_be_open(context)
    answer = await context.register(body=b"{oops")
    if answer.status != 400:
        context.fail(f"{answer.status} with {_plain(answer)}")


@REGISTRATION.case(
    "relayregister.get",
    "A token is not had by GET",
    section=http("15.5.6"),
    expected="a refusal, as GET changes nothing",
)
async def get(context: RelayContext) -> None:
    await must_be_open(context)
    answer = await context.http("GET", context.shared.register_url)
    if answer.status == 200 and identity_in(answer) is not None:
        context.fail("GET registers an agent")


def _plain(answer: HttpAnswer) -> str:
    """Return the beginning of a body, with the token masked."""
    body = answer.body[:200].decode("utf-8", "replace")
    return re.sub(r'("token"\s*:\s*")[^"]*', r"\1…", body)


# ---- other addresses


@PAGES.case(
    "relayhttp.health",
    "The relay says whether it works",
    expected="200 for GET /health",
)
async def health(context: RelayContext) -> None:
    answer = await context.http("GET", relay_place(context.shared.register_url, "/health"))
    if answer.status != 200:
        context.differs("relay-no-health", str(answer.status))


@PAGES.case(
    "relayhttp.stats",
    "The relay says how much it has to do",
    expected="200 and an object of JSON for GET /stats",
)
async def stats(context: RelayContext) -> None:
    answer = await context.http("GET", relay_place(context.shared.register_url, "/stats"))
    if answer.status != 200:
        context.differs("relay-no-stats", str(answer.status))
        return
    try:
        found = read_json(answer.body)
    except ValueError as error:
        context.fail(f"it is no JSON: {error}")
    if not isinstance(found, dict):
        context.fail(_plain(answer))


@PAGES.case(
    "relayhttp.names",
    "Strangers do not learn who is there",
    expected="no id of a connected agent in GET /stats without credentials",
)
async def names(context: RelayContext) -> None:
    agent = await context.agent()
    answer = await context.http("GET", relay_place(context.shared.register_url, "/stats"))
    if agent.id.encode() in answer.body:
        context.differs("relay-names", f"{agent.id} is named")
