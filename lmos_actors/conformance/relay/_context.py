"""The context of a case for a relay: agents of the kit that connect, send messages and receive them.

A case judges only its own subject, so what relays send is parsed as tolerantly as possible: a welcome may be
flat or missing, an error may have its code in any of the places that were seen, and a message may arrive
twice.

Cases need to know that something did *not* arrive, and relays send nothing that shows this. So in
`RelayContext.heard_by` the sender sends one more message, and only what arrived before it counts: relays pass
on the messages of one sender in order (which is a case itself).

Agents are registered once in a run, and connect again in each case. Some relays confuse two connections of
one agent, even while the first one is ending. So the end of a case waits until the relay has closed them,
too.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import attrs
import trio

from lmos_actors.conformance.session import JudgedServer, NoAnswer, Probe
from lmos_actors.conformance.wire import TEXT, ConnectionGone, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from lmos_actors.conformance.wire import HttpAnswer, Socket

RELAY: Final = "relay"
ENDING: Final = 1.0
"""Seconds that a relay has to end a connection after the kit has closed it."""

Frame: TypeAlias = dict[str, Any]


@attrs.frozen
class Identity:
    """An agent of the kit."""

    id: str
    token: str = attrs.field(repr=False)


@attrs.define(kw_only=True)
class Relay(JudgedServer["RelayContext"]):
    """A hub of AgentRelay.

    `register_url`: where agents are registered; `invited`: how many of them have used one of `invitations`.
    `identities`: the agents of the kit; `known`: the agents that the user has given to the kit. `direct`:
    whether a message to one agent arrives; if not, the kit uses broadcasts. `welcomes`: whether the relay
    sends welcomes.
    """

    url: str
    register_url: str
    invitations: tuple[str, ...] = attrs.field(default=(), repr=False)
    invited: int = 0
    known: tuple[Identity, ...] = ()
    identities: dict[str, Identity] = attrs.field(factory=dict[str, Identity])
    spare: list[Identity] = attrs.field(factory=list[Identity])
    direct: bool = True
    welcomes: bool = True

    @property
    def spoken(self) -> str:
        """The protocol that the kit uses with the relay, and whether it uses broadcasts only."""
        return "AgentRelay" + ("" if self.direct else ", by broadcasts alone")

    def context(self, random: Random) -> RelayContext:
        """Return a new context of a case, without any open connection."""
        return RelayContext(self, random)

    async def connect(self, context: RelayContext) -> RelayAgent:
        """Open a connection in a context. Raises Unreachable and Refused."""
        return await context.agent("a", welcomed=False)

    def places(self) -> Sequence[str]:
        """Return the URLs to which the kit has sent credentials."""
        return (self.url,)

    def secrets(self) -> Sequence[str]:
        """Return the tokens of all agents of the kit, and the invitations."""
        return [*(each.token for each in (*self.known, *self.identities.values())), *self.invitations]


def relay_place(url: str, path: str) -> str:
    """Return the URL of an HTTP path at the host of a relay, or of the place where agents are registered."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, path, "", ""))


def code_of(frame: Frame) -> str:
    """Return the code of an error from whichever member has it, or "" if the frame has none."""
    payload = frame.get("payload")
    inner: Frame = cast("Frame", payload) if isinstance(payload, dict) else {}
    for found in (inner.get("code"), inner.get("error"), frame.get("error"), frame.get("code")):
        if isinstance(found, str):
            return found
    return ""


def of_relay(frame: Frame, *types: str) -> bool:
    """Return whether a frame was sent by the relay itself and has one of the given types."""
    return frame.get("from", RELAY) == RELAY and frame.get("type") in types


def shown(frame: Any) -> str:
    """Return a frame as text, for reports of what was seen."""
    return "nothing" if frame is None else json.dumps(frame, ensure_ascii=False)[:300]


def inside(frame: Frame | None, name: str) -> Frame:
    """Return the object in a member of a frame, or an empty object if there is none."""
    found = (frame or {}).get(name)
    return cast("Frame", found) if isinstance(found, dict) else {}


class RelayAgent:
    """One connection of an agent of the kit."""

    def __init__(self, context: RelayContext, identity: Identity, socket: Socket) -> None:
        self.id = identity.id
        self.token = identity.token
        self.socket = socket
        self.welcome: Frame | None = None
        self._context = context
        self._unread: list[Frame] = []

    # ---- out

    async def send(self, frame: Frame | str) -> None:
        """Send an object with this agent's `from`, or a text unchanged. Raises ConnectionGone."""
        text = frame if isinstance(frame, str) else json.dumps({"from": self.id, **frame})
        await self.socket.send_text(text)

    async def say(self, payload: Any, *to: str, **members: Any) -> None:
        """Send a message to the named agents, or to everybody. Raises ConnectionGone."""
        await self.send({"to": list(to) or ["*"], "payload": payload, **members})

    async def command(self, type: str, payload: Any = None, **members: Any) -> None:
        """Send a command to the relay. Raises ConnectionGone."""
        await self.send({"to": [RELAY], "type": type, "payload": payload, **members})

    async def parts(self, *parts: bytes) -> None:
        """Send one text message in several frames. Raises ConnectionGone."""
        for number, part in enumerate(parts):
            await self.socket.send_frame(TEXT if number == 0 else 0, part, fin=number == len(parts) - 1)

    async def leave(self) -> None:
        """Close the connection, and give the relay some time to notice that. Raises no ConnectionGone."""
        with suppress(ConnectionGone):
            await self.socket.close()
        with suppress(ConnectionGone):
            await self.socket.end(ENDING)
            await self.socket.stream_end(ENDING)
        await self.socket.aclose()
        await trio.sleep(0.1)  # until the relay has noticed

    # ---- in

    async def next(self, within: float | None = None) -> Frame | None:
        """Wait for the next frame; return None if none arrives in time. Raises ConnectionGone, Failed."""
        if self._unread:
            return self._unread.pop(0)
        patience = self._context.patience
        found = await self.socket.next_message(patience if within is None else within)
        if found is None:
            return None
        try:
            came = read_json(found)
        except ValueError as error:
            self._context.fail(f"a frame is no JSON: {error}")
        if not isinstance(came, dict):
            self._context.fail(f"a frame is no object: {found[:100]!r}")
        return cast("Frame", came)

    async def find(self, what: str, matches: Callable[[Frame], bool], within: float | None = None) -> Frame:
        """Wait for a frame that matches, and skip others. Raises NoAnswer, ConnectionGone, Failed."""
        within = self._context.patience if within is None else within
        deadline = trio.current_time() + within
        while (frame := await self.next(max(0.0, deadline - trio.current_time()))) is not None:
            if matches(frame):
                return frame
        raise NoAnswer(f"no {what} came within {within:g} s")

    async def message(self, payload: Any, within: float | None = None) -> Frame:
        """Wait for the message with this payload. Raises NoAnswer, ConnectionGone, Failed."""
        return await self.find(
            f"message with {shown(payload)}", lambda f: f.get("payload") == payload, within
        )

    async def with_ref(self, ref: str) -> Frame:
        """Wait for the message with this ref. Raises NoAnswer, ConnectionGone, Failed."""
        return await self.find(f"message with the ref {ref}", lambda frame: frame.get("ref") == ref)

    async def of_relay(self, *types: str, within: float | None = None) -> Frame:
        """Wait for a frame of given types from the relay itself. Raises NoAnswer, ConnectionGone, Failed."""
        return await self.find(" or ".join(types), lambda frame: of_relay(frame, *types), within)

    async def refusal(self) -> Frame | None:
        """Wait for an error from the relay; return None if there is none. Raises ConnectionGone, Failed."""
        try:
            return await self.of_relay("error")
        except NoAnswer:
            return None

    def put_back(self, frames: Sequence[Frame]) -> None:
        """Put frames back so that they are read again next."""
        self._unread[:0] = frames


class RelayContext(Probe):
    """The context of one case: its agents, whose connections are closed at its end, and its findings."""

    def __init__(self, shared: Relay, random: Random) -> None:
        super().__init__(shared.options.access(shared.network), random)
        self.shared = shared
        self._agents: list[RelayAgent] = []
        self._words = 0

    def word(self) -> str:
        """Return a new payload, which no other message has."""
        self._words += 1
        return f"{self._words}-{self.random.getrandbits(48):012x}"

    # ---- agents

    async def register(self, agent_id: Any = None, *, body: bytes | None = None) -> HttpAnswer:
        """Request the registration of an agent; without an id the relay chooses one. Raises Unreachable.

        `body`: what to send instead of a JSON object with the id.
        """
        asked = {} if agent_id is None else {"agent_id": agent_id}
        data = json.dumps(asked).encode() if body is None else body
        headers = ((b"content-type", b"application/json"),)
        return await self.http("POST", self.shared.register_url, headers=headers, body=data)

    async def registered(self, agent_id: Any = None) -> Identity | None:
        """Register an agent, and return it, or None if the relay refuses. Raises Unreachable."""
        answer = await self.register(agent_id)
        if answer.status != 200:
            return None
        found = identity_in(answer)
        if found is not None:
            self.shared.identities[f"registered {len(self.shared.identities)}"] = found
        return found

    async def identity(self, name: str) -> Identity:
        """Return the agent of the kit that has a name in all cases of the run. Raises NotRun."""
        shared = self.shared
        if name not in shared.identities:
            if shared.spare:
                shared.identities[name] = shared.spare.pop(0)
            elif shared.known:
                self.not_run("it needs another agent: name it in --hints")
            else:
                shared.identities[name] = await self._new_identity()
        return shared.identities[name]

    async def _new_identity(self) -> Identity:
        asked, shared = {"agent_id": f"kit-{uuid.uuid4().hex[:12]}"}, self.shared
        if shared.invitations:
            asked["invitation"] = shared.invitations[min(shared.invited, len(shared.invitations) - 1)]
            shared.invited += 1
        answer = await self.register(body=json.dumps(asked).encode())
        found = identity_in(answer)
        if answer.status != 200 or found is None:
            self.not_run(
                f"an agent is not registered ({answer.status}{_reason_in(answer)}): --register-url is where "
                "agents are, --invitation has what they need, or name agents in --hints"
            )
        return found

    async def agent(
        self, name: str = "a", *, query: bool = False, offered: tuple[str, ...] = (), welcomed: bool = True
    ) -> RelayAgent:
        """Connect an agent, and receive its welcome. With `query` the token is in the URL.

        Raises Unreachable, and Refused for any answer but 101.
        """
        identity = await self.identity(name)
        socket = await self.connect(identity.token, query=query, offered=offered)
        agent = RelayAgent(self, identity, socket)
        self._agents.append(agent)
        if welcomed and self.shared.welcomes:
            agent.welcome = await agent.next()
        return agent

    async def agents(self, *names: str) -> list[RelayAgent]:
        """Connect several agents. Raises Unreachable, Refused."""
        return [await self.agent(name) for name in names]

    def there(self, name: str) -> RelayAgent:
        """Return the newest connection that this case has made for the agent with a name."""
        return self.newest(self.shared.identities[name].id)

    def newest(self, id: str) -> RelayAgent:
        """Return the newest connection of an agent, by its id."""
        return next(agent for agent in reversed(self._agents) if agent.id == id)

    async def connect(
        self, token: str | None, *, query: bool = False, offered: tuple[str, ...] = (), url: str | None = None
    ) -> Socket:
        """Open a connection with a token, or without one. Raises Unreachable, Refused."""
        headers = () if token is None or query else ((b"authorization", f"Bearer {token}".encode()),)
        place = self.shared.url if url is None else url
        if query and token is not None:
            place += f"{'&' if '?' in place else '?'}token={token}"
        return await self.open(place, headers=headers, offered=offered)

    # ---- what was heard

    async def heard_by(self, hearer: RelayAgent, sender: RelayAgent) -> list[Frame]:
        """Return the frames that an agent has received so far, including all earlier messages of a sender.

        The sender sends one more message, and the hearer waits for it. Raises NoAnswer, ConnectionGone,
        Failed.
        """
        last = self.word()
        await sender.say(last, *((hearer.id,) if self.shared.direct else ()))
        heard: list[Frame] = []

        def is_last(frame: Frame) -> bool:
            if frame.get("payload") != last:
                heard.append(frame)
            return frame.get("payload") == last

        await hearer.find("message that was sent last", is_last)
        return heard

    async def must_go_on(self, agent: RelayAgent, peer: RelayAgent, after: str) -> None:
        """Fail unless a message from an agent still reaches its peer."""
        word = self.word()
        try:
            await agent.say(word)
            await peer.message(word)
        except (NoAnswer, ConnectionGone) as why:
            self.fail(f"after {after}: {why}")

    async def must_refuse(
        self, agent: RelayAgent, peer: RelayAgent, frame: Frame | str, *, codes: Sequence[str] = ()
    ) -> None:
        """Send an invalid frame: an error must follow, and the connection must stay usable. Raises Failed."""
        what = shown(frame) if isinstance(frame, dict) else repr(frame[:60])
        try:
            await agent.send(frame)
            error = await agent.refusal()
        except ConnectionGone as gone:
            self.fail(f"after {what}: {gone}")
        if error is None:
            self.differs("relay-silent", f"nothing answers {what}")
        else:
            self.judge_error(error, codes)
        await self.must_go_on(agent, peer, what)

    def judge_error(self, error: Frame, codes: Sequence[str] = ()) -> None:
        """Judge the form of an error; its code must be one of `codes`, if any are given. Raises Failed."""
        payload = inside(error, "payload")
        if not isinstance(payload.get("code"), str):
            self.differs("relay-error-shape", shown(error))
        if codes and code_of(error) not in codes:
            self.fail(f"the code is {code_of(error)!r}: {shown(error)}")

    async def aclose(self) -> None:
        """Close all connections, and give the relay some time to close them, too."""
        with trio.CancelScope(shield=True):
            for agent in self._agents:
                with suppress(ConnectionGone):
                    await agent.socket.close()
            with trio.move_on_after(ENDING), suppress(ConnectionGone):
                for agent in self._agents:
                    if await agent.socket.end(ENDING) is not None:
                        await agent.socket.stream_end(ENDING)
        await super().aclose()


def _reason_in(answer: HttpAnswer) -> str:
    """Return the code of a refusal, with a space before it, or "" if there is none."""
    try:
        code = inside({"": read_json(answer.body)}, "").get("error")
    except ValueError:
        return ""
    return f" {code[:40]}" if isinstance(code, str) and code.isprintable() else ""


def identity_in(answer: HttpAnswer) -> Identity | None:
    """Return the agent in an answer to a registration, or None if there is none."""
    try:
        found = read_json(answer.body)
    except ValueError:
        return None
    members: Frame = cast("Frame", found) if isinstance(found, dict) else {}
    id, token = members.get("agent_id"), members.get("token")
    return Identity(id, token) if isinstance(id, str) and isinstance(token, str) else None
