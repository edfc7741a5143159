"""An agent of this node on a relay, where other agents ask it as they do over LMOS and HTTP.

- **One mailbox for all bindings.** A question is a request like those of other bindings: it takes a seat of
  its peer, counts in the statistics, is traced, and is answered once, whatever happens to the agent.
- **The caller is `relay:HOST/ID`.** This name is only a claim of the relay, as some relays let any client use
  any name. If the agent has an access list, the list has to admit that name, or anyone; "authenticated" does
  not include it. Without a list, only the action that answers questions is open.
- **Exceptions are not sent.** Only a code is sent, and the mistake if the caller made it.
- **Broadcasts have no particular receiver**: the agent ignores those that it cannot answer.
- **Questions begin in the order in which they arrive**, so that one agent's questions keep their order. A
  question that has passed through too many agents is refused (`_hops.py`), and a withdrawn question is
  cancelled.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import attrs
import msgspec
import trio
from msgspec import Raw

from lmos_actors.actors import STREAM, Ref
from lmos_actors.bindings import AgentRequest, action_requested, written_value
from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentUnavailable,
    ConfigError,
    ConnectFailed,
    Forbidden,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)
from lmos_actors.node import ROWS, NodeService
from lmos_actors.protocol.relay import RelayMessage, Welcomed
from lmos_actors.protocol.relay.extensions import WAITING
from lmos_actors.security import RELAYED, Principal
from lmos_actors.supervision import Backoff

from ._faults import FAILED, TOO_LARGE, TOO_MANY_HOPS, fault_of, reason_of
from ._hops import MOST_HOPS, hops_of, trace_after
from ._line import FINAL_STATUS
from ._opening import open_relay
from ._peers import DISCOVER
from ._sent import CANCEL, MAX_PAYLOAD, max_payload
from ._traces import trace_of, trace_of_answer
from ._urls import relay_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from lmos_actors.actors import Runtime, Seats
    from lmos_actors.bindings import Exposed
    from lmos_actors.node import ServiceHome, View
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Network

    from ._session import Relay

WAY: Final = "relay"
"""The binding's name in metrics and traces."""

AT_ONCE: Final = 256
"""Maximum questions of one bridge in progress; more are refused."""

TELLING: Final = 16
"""Maximum questions whose asker is told at once that they wait for a person: each takes 360 of the 10,000
messages that a hub passes on in an hour."""

ITEMS: Final = 1_000
"""Maximum items of a stream in an answer."""

PAUSES: Final = Backoff(initial=0.5)

_LOGGER: Final = logging.getLogger("lmos_actors")


@attrs.frozen(kw_only=True)
class RelayBridge:
    """The options of a bridge, which puts an agent of the node on a relay, too; for `open_node`.

    `url` is the relay's URL. `agent` is the public name of the agent; None means the only exposed one.
    `credentials` contain the token; None means the node's credentials. `names_itself` is as for `open_relay`.
    Raises ConfigError for an invalid address.
    """

    url: str = attrs.field(converter=relay_url)
    agent: str | None = None
    credentials: Credentials | None = None
    names_itself: bool = True


class Bridges(NodeService):
    """A service with the bridges of one node to relays."""

    name = "bridges to relays"

    def __init__(self, options: Sequence[RelayBridge]) -> None:
        self._options = options
        self._bridges: list[Bridge] = []

    def open(self, home: ServiceHome) -> None:
        """Create the bridges for a listening node."""
        self._bridges = [Bridge(each, home) for each in self._options]

    def views(self) -> dict[str, View]:
        """Return the relays to which agents are connected, and the questions in progress."""
        return {"relay": lambda: {"bridges": [_row(each) for each in self._bridges[:ROWS]]}}

    async def run(self) -> None:
        """Run the bridges, which keep their agents connected to the relays."""
        async with trio.open_nursery() as nursery:
            for each in self._bridges:
                nursery.start_soon(each.run, name=f"bridge to {each.options.url}")

    def on_drain(self) -> None:
        """Accept no more questions."""
        for each in self._bridges:
            each.on_drain()

    async def wait_done(self) -> None:
        """Wait until no question is in progress."""
        for each in self._bridges:
            await each.wait_done()


def _row(bridge: Bridge) -> dict[str, Any]:
    agent = bridge.options.agent
    return {
        "url": bridge.options.url,
        **({} if agent is None else {"agent": agent}),
        "connected": bridge.is_connected,
        "answering": bridge.answering,
    }


class Bridge:
    """A running bridge of a listening node; a `DrainingService`.

    `tls` contains the trust settings of its connection, and `network` makes the connection; None means the
    node's own.
    """

    def __init__(
        self,
        options: RelayBridge,
        home: ServiceHome,
        *,
        tls: ssl.SSLContext | None = None,
        network: Network | None = None,
    ) -> None:
        self.options = options
        context = home.server.context
        self.rt: Runtime = context.rt
        self.open: dict[AgentRequest, None] = {}
        self._context = context
        self._exposure = home.exposure
        self._guard = home.guard
        self._network = home.network if network is None else network
        self._tls = home.tls if tls is None else tls
        self._credentials = options.credentials or home.credentials
        self._on_failure = home.failed
        self._host = urlsplit(options.url).netloc
        self._random = self.rt.entropy.stream("bridges to relays")
        self._draining = False
        self._answering = 0
        self._asked: dict[tuple[str, str], AgentRequest] = {}
        self._telling: set[AgentRequest] = set()
        """The questions in progress, by asker and the `ref` of their answers."""
        self._introduction_wanted = trio.Event()
        self._quiet = trio.Event()
        self._quiet.set()
        self._tried = trio.Event()
        self._connected = trio.Event()
        self._ready = trio.Event()

    # ---- as the tracker of its requests, and while the node drains

    @property
    def seats(self) -> Seats:
        """The mailbox seats that requests from elsewhere take, by peer."""
        return self._context.seats

    @property
    def is_connected(self) -> bool:
        """Whether the relay has accepted the agent."""
        return self._connected.is_set()

    @property
    def answering(self) -> int:
        """The number of questions in progress."""
        return self._answering

    def settled(self) -> None:
        """Do nothing at the end of a request, as its answer still has to be sent."""

    def shown(self, error: Exception) -> Exception:
        """Return an error unchanged, as `fault_of` later decides how much of it is sent."""
        return error

    def on_drain(self) -> None:
        """Answer no more questions."""
        self._draining = True

    async def wait_done(self) -> None:
        """Wait until all questions are answered."""
        await self._quiet.wait()

    # ---- on the relay

    async def run(self) -> None:
        """Stay on the relay until it rejects the agent, and then log a warning."""
        try:
            await self.stay()
        except (ConnectFailed, ConfigError) as failure:
            self._report(f"no longer on the relay {self.options.url}: {failure}")

    async def wait_connected(self) -> None:
        """Wait until the relay has accepted the agent for the first time."""
        await self._connected.wait()

    async def wait_tried(self) -> None:
        """Wait until the relay has accepted the agent, or one attempt to connect has failed."""
        await self._tried.wait()

    async def wait_ready(self) -> None:
        """Wait until the agent is present, too, and the bridge is subscribed to its events."""
        await self._ready.wait()

    async def stay(self, *, patiently: bool = True) -> None:
        """Stay on the relay until it rejects the agent. Raise ConnectFailed, ConfigError.

        With `patiently`, continue trying even if the first connection fails.
        """
        attempt = 0
        while True:
            began, asked_for = trio.current_time(), 0.0
            try:
                async with open_relay(
                    self.options.url,
                    names_itself=self.options.names_itself,
                    network=self._network,
                    tls=self._tls,
                    credentials=self._credentials,
                ) as relay:
                    attempt = 0
                    await self._serve(relay)
            except ConnectFailed as failure:
                if _is_final(failure) or not (patiently or self._connected.is_set()):
                    raise
                self._tried.set()
                if not attempt:
                    self._report(f"the relay {self.options.url} is not reached, and tried again: {failure}")
                asked_for = failure.retry_in or 0.0
            attempt += 1 if trio.current_time() - began < PAUSES.max else 0
            pause = PAUSES.delay(max(attempt, 1), self._random.random())
            await trio.sleep(max(pause, asked_for))

    def _report(self, text: str) -> None:
        if self.rt.real:
            _LOGGER.warning("%s", text)

    async def _serve(self, relay: Relay) -> None:
        """Answer questions until the relay rejects the agent. Raise ConnectFailed, ConfigError."""
        self._tried.set()
        self._connected.set()
        exposed = await self._present_agent()
        failure: ConnectFailed | None = None
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(self._introduce, relay, exposed)
            for name, event in exposed.cls.__contract__.events.items():
                if event.broadcast:
                    await nursery.start(self._broadcast, relay, exposed, name, event.handle)
            self._ready.set()
            try:
                async for heard in relay:
                    if isinstance(heard, Welcomed) and relay.connections > 1:
                        self._introduction_wanted.set()
                    elif isinstance(heard, RelayMessage) and heard.is_for(relay.id):
                        self._hear(relay, heard, nursery)
            except ConnectFailed as error:  # raised below, and not in a group of the nursery
                failure = error
            nursery.cancel_scope.cancel("the relay takes the agent no more")
        if failure is not None:
            raise failure

    async def _present_agent(self) -> Exposed:
        """Wait until the agent is present, and return it. Raise ConfigError as `_agent` does."""
        watchers = self.rt.population.watchers
        while True:
            found = self._agent()
            if found is not None:
                return found
            changed = trio.Event()

            def change(_: str, changed: trio.Event = changed) -> None:
                changed.set()

            watchers.append(change)
            try:
                await changed.wait()
            finally:
                watchers.remove(change)

    def _agent(self) -> Exposed | None:
        """Return the agent, or None while it is absent.

        Raise ConfigError if the options do not name it and there are several.
        """
        if self.options.agent is not None:
            return self._exposure.named(self.options.agent)
        found = list(self._exposure)
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise ConfigError(f"which agent is on the relay? There are {names}", "RelayBridge(agent=...)")
        return found[0] if found else None

    async def _introduce(self, relay: Relay, exposed: Exposed) -> None:
        """Broadcast the agent's introduction now and on request, at most once per second."""
        while True:
            self._introduction_wanted = trio.Event()
            await _sent(relay, introduction(exposed), "discovery")
            await trio.sleep(1.0)  # whoever asks for it again sooner waits
            await self._introduction_wanted.wait()

    async def _broadcast(
        self,
        relay: Relay,
        exposed: Exposed,
        name: str,
        handle: Any,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Broadcast each occurrence of an event of the agent."""
        ref: Ref[Any] = Ref(cast("Any", exposed.link))
        is_first = True
        while True:
            try:
                async with ref.subscribe(handle) as feed:
                    if is_first:
                        task_status.started()
                        is_first = False
                    async for value in feed:
                        payload = {"event": name, "data": Raw(written_value(value))}
                        await _sent(relay, payload, "data")
            except LmosActorsError:  # it is between two lives
                if is_first:
                    task_status.started()
                    is_first = False
                await trio.sleep(1)

    # ---- a question

    def _hear(self, relay: Relay, message: RelayMessage, nursery: trio.Nursery) -> None:
        """Begin to answer a question, cancel a withdrawn one, or note a request for an introduction."""
        if message.type == "question" and self._answering < 2 * AT_ONCE:
            self._answering += 1
            self._quiet = trio.Event() if self._quiet.is_set() else self._quiet
            nursery.start_soon(self._answer, relay, message, self._begun(relay, message))
        elif message.type == CANCEL:
            request = self._asked.get((message.sender, message.ref))
            if request is not None:
                self._telling.discard(request)  # its asker has left, or gets an answer now
                request.cancel(reason_of(message.payload))
        elif message.type == DISCOVER:
            self._introduction_wanted.set()

    def _begun(self, relay: Relay, message: RelayMessage) -> AgentRequest | LmosActorsError:
        """Return the request for a question, or the error if there can be no request."""
        try:
            if self._answering > AT_ONCE:
                raise MailboxFull(self.options.agent or "", AT_ONCE)
            request = self._request(message)
            word = relay.word_of(message)
            self._asked[message.sender, word] = request
            request.on_question = partial(self._tell_question, relay, message.sender, word, request)
            return request
        except LmosActorsError as error:
            return error
        except Exception as error:
            self._on_failure(error)
            return ActionFailed({"code": FAILED, "message": "the question could not be answered"})

    def _tell_question(self, relay: Relay, asker: str, word: str, request: AgentRequest) -> None:
        """Report to the asker that its answer waits for a person, with the question to that person.

        This is done only if the relay supports it.
        """
        if request.question is None:
            if request not in self._telling:
                return
            self._telling.remove(request)
        elif request not in self._telling:
            if len(self._telling) >= TELLING:  # once there is room, it is told then: it comes again
                return
            self._telling.add(request)
        if relay.tells_questions and relay.is_connected:
            relay.post(request.question, asker, type=WAITING, ref=word)

    async def _answer(
        self, relay: Relay, message: RelayMessage, begun: AgentRequest | LmosActorsError
    ) -> None:
        """Answer a question; ignore a broadcast that this agent cannot answer."""
        word = message.sender, relay.word_of(message)
        try:
            payload = await self._answer_to(relay, message, begun)
            if payload is not None:
                await _sent(relay, payload, "answer", message, trace_of_answer(self.rt, message))
        finally:
            if self._asked.get(word) is begun:
                del self._asked[word]
            if isinstance(begun, AgentRequest):
                self._telling.discard(begun)
            self._answering -= 1
            if not self._answering:
                self._quiet.set()

    async def _answer_to(
        self, relay: Relay, message: RelayMessage, begun: AgentRequest | LmosActorsError
    ) -> Any:
        """Return the payload of the answer, None if no answer is to be sent."""
        most = max_payload(relay.welcome)
        try:
            if isinstance(begun, LmosActorsError):
                raise begun
            result = await _result(begun)
            if len(result) > most:
                raise ActionFailed({"code": TOO_LARGE, "message": "the result does not fit a message"})
            return Raw(result)
        except ActionCancelled as cancelled:  # without a reason its asker is gone
            return None if cancelled.reason is None else {"error": fault_of(cancelled)}
        except LmosActorsError as error:
            is_anybodys = message.is_broadcast and relay.id not in message.to
            if is_anybodys and isinstance(error, NotFound | NotAllowed | Forbidden | InvalidInput):
                return None
            fault = {"error": fault_of(error)}
            if len(msgspec.json.encode(fault)) > most:
                return {"error": {"code": TOO_LARGE, "message": "the failure does not fit a message"}}
            return fault
        except Exception as error:
            self._on_failure(error)
            return {"error": {"code": FAILED, "message": "the question could not be answered"}}

    def _request(self, message: RelayMessage) -> AgentRequest:
        """Put a question into the agent's mailbox. Raise LmosActorsError."""
        hops = hops_of(message.ref)
        if hops > MOST_HOPS:
            text = f"the question has come through {hops} agents, and {MOST_HOPS} is the most"
            raise ActionFailed({"code": TOO_MANY_HOPS, "message": text})
        exposed = self._agent()
        if exposed is None:
            raise AgentUnavailable(self.options.agent or "", "it is not there")
        name, data, within = self._meant(exposed, message)
        principal = Principal(f"{RELAYED}{self._host}/{message.sender}", "relay")
        self._check(exposed, name, principal)
        if self._draining:
            raise AgentUnavailable(exposed.name, "the node is shutting down")
        parent, state = trace_after(hops, *trace_of(message), self._random.getrandbits)
        allows = partial(self._guard.names, principal)
        request = AgentRequest(self, f"{principal.name}:0", principal.name, parent, state, WAY, allows)
        link: Any = exposed.link
        op, requested = action_requested(link, name, data)
        if op.kind == STREAM:
            request.items = []
        request.send(link, requested, within)
        return request

    def _meant(self, exposed: Exposed, message: RelayMessage) -> tuple[str, Any, float | None]:
        """Return the action, input and time limit in seconds that a question requests. Raise NotFound."""
        payload, contract = message.payload, exposed.cls.__contract__
        if isinstance(payload, dict) and isinstance(payload.get("action"), str):  # pyright: ignore[reportUnknownMemberType]
            asked: dict[str, Any] = payload  # pyright: ignore[reportUnknownVariableType]
            within = asked.get("within")
            has_time = isinstance(within, int | float) and not isinstance(within, bool)
            return asked["action"], asked.get("input"), within if has_time else None
        name = contract.answers
        if name is None:
            raise NotFound("action", "", where=exposed.name)
        op = contract.table[name]
        given = contract.actions[name].options.answers or dict[str, Any]()
        asked_for = next((each.wire_name for each in op.params if each.name not in given), None)
        known = {each.wire_name: given[each.name] for each in op.params if each.name in given}
        return name, {**known, **({} if asked_for is None else {asked_for: message.payload})}, None

    def _check(self, exposed: Exposed, action: str, principal: Principal) -> None:
        """Check that an agent on the relay may call an action. Raise Forbidden, RateLimited."""
        guard, name = self._guard, exposed.name
        if guard.has_list(name, "invoke"):
            rule_admits = guard.names(principal, name, "invoke") or guard.admits(None, name, "invoke")
        else:
            rule_admits = action == exposed.cls.__contract__.answers
        if not rule_admits:
            raise Forbidden(f"{principal.name} may not invoke {action!r} here")
        wait = guard.take_token(f"={principal.name}", trio.current_time())
        if wait:
            raise RateLimited(wait)


async def _result(request: AgentRequest) -> bytes:
    """Wait for the result of a question, and return it as JSON. Raise LmosActorsError."""
    return written_value(await request.result()) if request.items is None else await all_items(request)


async def all_items(request: AgentRequest) -> bytes:
    """Return all items of a stream as one JSON array."""
    items: list[bytes] = []
    size = 0
    try:
        while True:
            for item in request.taken():
                items.append(written_value(item))
                size += len(items[-1])
            if size > MAX_PAYLOAD or len(items) > ITEMS:
                raise ActionFailed({"code": TOO_LARGE, "message": "the results do not fit a message"})
            if request.done and not request.items:
                request.outcome()
                return b"[" + b",".join(items) + b"]"
            await request.something()
    except BaseException:
        request.left()
        raise


async def _sent(
    relay: Relay,
    payload: Any,
    type: str,
    question: RelayMessage | None = None,
    members: Mapping[str, Any] | None = None,
) -> None:
    """Send a message, and ignore its refusal or loss."""
    try:
        if question is None:
            await relay.say(payload, type=type)
        else:
            await relay.answer(question, payload, type=type, members=members)
    except (ActionFailed, OutcomeUnknown, ConnectFailed):
        return  # nobody is there to be told: the asker has the same news from the relay


def _is_final(failure: ConnectFailed) -> bool:
    return failure.status in FINAL_STATUS or failure.why.startswith("closed with")


def introduction(exposed: Exposed) -> dict[str, Any]:
    """Return an agent's introduction of itself: the payload of a `discovery` message."""
    contract = exposed.cls.__contract__
    actions = {
        name: {"description": (handle.__doc__ or "").strip().partition("\n")[0]}
        for name, handle in contract.actions.items()
    }
    return {
        "name": exposed.name,
        "title": contract.title,
        "description": (exposed.cls.__doc__ or "").strip().partition("\n")[0],
        "skills": list(actions),
        "actions": actions,
        "answers": contract.answers,
        "events": [name for name, event in contract.events.items() if event.broadcast],
        "available": True,
    }
