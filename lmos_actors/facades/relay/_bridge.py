"""An agent of this node on a relay: strangers ask it there, and it is the same agent as over LMOS and HTTP.

- **One mailbox, one account.** A question is a request like those of other bindings: it takes a seat of its
  peer, counts in the statistics, is traced, and is answered once, whatever becomes of the agent.
- **The caller is `relay:HOST/ID`**, which is the relay's word and no proof: some relays let anybody speak as
  anybody. Where an access list was written for the agent, it has to admit that name, or anyone;
  "authenticated" does not mean it. Without a list the action that answers questions is open, and no other.
- **Exceptions stay here.** What goes out is a code, and what the caller has got wrong.
- **Broadcasts are nobody's in particular**: one that the agent cannot answer is passed over in silence.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import attrs
import trio
from msgspec import Raw

from lmos_actors.actors import STREAM, Ref
from lmos_actors.bindings import AgentRequest, action_requested, written_value
from lmos_actors.errors import (
    ActionFailed,
    AgentUnavailable,
    ConfigError,
    ConnectFailed,
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)
from lmos_actors.protocol.relay import RelayMessage, Welcomed
from lmos_actors.security import RELAYED, Principal
from lmos_actors.supervision import Backoff

from ._opening import open_relay
from ._traces import trace_of_answer
from ._urls import relay_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Runtime, Seats
    from lmos_actors.bindings import Exposed, Exposure, LmosServer
    from lmos_actors.security import Credentials, Guard
    from lmos_actors.transport import Network

    from ._session import Relay

WAY: Final = "relay"
"""The binding's name in metrics and traces."""

AT_ONCE: Final = 256
"""Questions of one bridge that are being answered; more are refused."""

ITEMS: Final = 1_000
"""Items of a stream that an answer has."""

MAX_ANSWER: Final = 60 << 10
"""Bytes of a result that is sent, unless the relay allows less."""

PAUSES: Final = Backoff(initial=0.5)

FINAL_STATUS: Final = (400, 401, 403, 404)

_LOGGER: Final = logging.getLogger("lmos_actors")


@attrs.frozen(kw_only=True)
class RelayBridge:
    """An agent of the node is on a relay too; an argument of `open_node`.

    `url` is that of the relay. `agent` is the public name of the agent; None: the only one that is exposed.
    `credentials` hold the token; None: those of the node. Raises ConfigError for another address.
    """

    url: str = attrs.field(converter=relay_url)
    agent: str | None = None
    credentials: Credentials | None = None


class Bridge:
    """A bridge at work; a `DrainingService`. `tls` and `credentials` are those of the node."""

    def __init__(
        self,
        options: RelayBridge,
        server: LmosServer,
        exposure: Exposure,
        guard: Guard,
        *,
        network: Network,
        tls: Any,
        credentials: Credentials | None,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.options = options
        context = server.context
        self.rt: Runtime = context.rt
        self.open: dict[AgentRequest, None] = {}
        self._context = context
        self._exposure = exposure
        self._guard = guard
        self._network = network
        self._tls = tls
        self._credentials = options.credentials or credentials
        self._on_failure = on_failure
        self._host = urlsplit(options.url).netloc
        self._draw = self.rt.entropy.stream("bridges to relays").random
        self._draining = False
        self._answering = 0
        self._quiet = trio.Event()
        self._quiet.set()
        self._connected = trio.Event()
        self._ready = trio.Event()

    # ---- as the tracker of its requests, and while the node drains

    @property
    def seats(self) -> Seats:
        """The mailbox seats that far requests take, by peer."""
        return self._context.seats

    def settled(self) -> None:
        """Take note that a request is no longer open: its answer is still to be sent."""

    def shown(self, error: Exception) -> Exception:
        """Return an error as it is: what goes out is decided in `fault_of`."""
        return error

    def on_drain(self) -> None:
        """Answer no more questions."""
        self._draining = True

    async def wait_done(self) -> None:
        """Wait until all questions are answered."""
        await self._quiet.wait()

    # ---- on the relay

    async def run(self) -> None:
        """Be on the relay, until it takes the agent no more: then there is a warning."""
        try:
            await self.stay()
        except (ConnectFailed, ConfigError) as failure:
            self._report(f"no longer on the relay {self.options.url}: {failure}")

    async def wait_connected(self) -> None:
        """Wait until the relay has taken the agent for the first time."""
        await self._connected.wait()

    async def wait_ready(self) -> None:
        """Wait until the agent is there, too, and its events are followed."""
        await self._ready.wait()

    async def stay(self) -> None:
        """Be on the relay, until it takes the agent no more. Raise ConnectFailed, ConfigError."""
        attempt = 0
        while True:
            began = trio.current_time()
            try:
                async with open_relay(
                    self.options.url, network=self._network, tls=self._tls, credentials=self._credentials
                ) as relay:
                    attempt = 0
                    await self._serve(relay)
            except ConnectFailed as failure:
                if _is_final(failure):
                    raise
                if not attempt:
                    self._report(f"the relay {self.options.url} is not reached, and tried again: {failure}")
            attempt += 1 if trio.current_time() - began < PAUSES.max else 0
            await trio.sleep(PAUSES.delay(max(attempt, 1), self._draw()))

    def _report(self, text: str) -> None:
        if self.rt.real:
            _LOGGER.warning("%s", text)

    async def _serve(self, relay: Relay) -> None:
        """Answer questions. Raise ConnectFailed, ConfigError."""
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
                        nursery.start_soon(self._introduce, relay, exposed)
                    elif isinstance(heard, RelayMessage) and heard.type == "question":
                        nursery.start_soon(self._answer, relay, heard)
            except ConnectFailed as error:  # raised below, and not in a group of the nursery
                failure = error
            nursery.cancel_scope.cancel("the relay takes the agent no more")
        if failure is not None:
            raise failure

    async def _present_agent(self) -> Exposed:
        """Wait for the agent. Raise ConfigError as `_agent`."""
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
        """Return the agent, None while it is not there. Raise ConfigError where it is not the only one."""
        if self.options.agent is not None:
            return self._exposure.named(self.options.agent)
        found = list(self._exposure)
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise ConfigError(f"which agent is on the relay? There are {names}", "RelayBridge(agent=...)")
        return found[0] if found else None

    async def _introduce(self, relay: Relay, exposed: Exposed) -> None:
        """Broadcast what the agent can do."""
        await _sent(relay, introduction(exposed), "discovery")

    async def _broadcast(
        self,
        relay: Relay,
        exposed: Exposed,
        name: str,
        handle: Any,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Broadcast an event of the agent, each time."""
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

    async def _answer(self, relay: Relay, message: RelayMessage) -> None:
        """Answer a question; a broadcast that is not for this agent is passed over."""
        self._answering += 1
        self._quiet = trio.Event() if self._quiet.is_set() else self._quiet
        try:
            payload = await self._answer_to(relay, message)
            if payload is not None:
                await _sent(relay, payload, "answer", message, trace_of_answer(self.rt, message))
        finally:
            self._answering -= 1
            if not self._answering:
                self._quiet.set()

    async def _answer_to(self, relay: Relay, message: RelayMessage) -> Any:
        """Return the payload of the answer, None where there is none."""
        try:
            if self._answering > AT_ONCE:
                raise MailboxFull(self.options.agent or "", AT_ONCE)
            result = await self._result(message)
            most = relay.welcome.limits.get("max_message_size") if relay.welcome is not None else None
            if len(result) > min(MAX_ANSWER, most if isinstance(most, int) else MAX_ANSWER):
                raise ActionFailed({"code": "too_large", "message": "the result does not fit a message"})
            return Raw(result)
        except LmosActorsError as error:
            if message.is_broadcast and isinstance(error, NotFound | NotAllowed | Forbidden | InvalidInput):
                return None
            return {"error": fault_of(error)}
        except Exception as error:
            self._on_failure(error)
            return {"error": {"code": "failed", "message": "the question could not be answered"}}

    async def _result(self, message: RelayMessage) -> bytes:
        """Carry a question out, and return its result as JSON. Raise LmosActorsError."""
        exposed = self._agent()
        if exposed is None:
            raise AgentUnavailable(self.options.agent or "", "it is not there")
        name, data = self._meant(exposed, message)
        principal = Principal(f"{RELAYED}{self._host}/{message.sender}", "relay")
        self._check(exposed, name, principal)
        if self._draining:
            raise AgentUnavailable(exposed.name, "the node is shutting down")
        trace = {key: message.members.get(key) for key in ("traceparent", "tracestate")}
        parent, state = (value if isinstance(value, str) else None for value in trace.values())
        label = f"{principal.name}:0"
        request = AgentRequest(self, label, principal.name, parent, state, WAY)
        link: Any = exposed.link
        op, requested = action_requested(link, name, data)
        if op.kind == STREAM:
            request.items = []
        request.send(link, requested)
        if op.kind != STREAM:
            return written_value(await request.result())
        return await all_items(request)

    def _meant(self, exposed: Exposed, message: RelayMessage) -> tuple[str, Any]:
        """Return the action that a question is for, and its input. Raise NotFound."""
        payload, contract = message.payload, exposed.cls.__contract__
        if isinstance(payload, dict) and isinstance(payload.get("action"), str):  # pyright: ignore[reportUnknownMemberType]
            asked: dict[str, Any] = payload  # pyright: ignore[reportUnknownVariableType]
            return asked["action"], asked.get("input")
        name = contract.answers
        if name is None:
            raise NotFound("action", "", where=exposed.name)
        op = contract.table[name]
        given = contract.actions[name].options.answers or dict[str, Any]()
        asked_for = next((each.wire_name for each in op.params if each.name not in given), None)
        known = {each.wire_name: given[each.name] for each in op.params if each.name in given}
        return name, {**known, **({} if asked_for is None else {asked_for: message.payload})}

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


async def all_items(request: AgentRequest) -> bytes:
    """Return the items of a stream, as one array."""
    items: list[bytes] = []
    size = 0
    try:
        while True:
            for item in request.taken():
                items.append(written_value(item))
                size += len(items[-1])
            if size > MAX_ANSWER or len(items) > ITEMS:
                raise ActionFailed({"code": "too_large", "message": "the results do not fit a message"})
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
    """Send a message, and ignore its refusal and its loss."""
    try:
        if question is None:
            await relay.say(payload, type=type)
        else:
            await relay.answer(question, payload, type=type, members=members)
    except (ActionFailed, OutcomeUnknown, ConnectFailed):
        return  # nobody is there to be told: the asker has the same news from the relay


def _is_final(failure: ConnectFailed) -> bool:
    return failure.status in FINAL_STATUS or failure.why.startswith("closed with")


_CODES: Final[tuple[tuple[type[LmosActorsError], str], ...]] = (
    (InvalidInput, "invalid_input"),
    (NotFound, "not_found"),
    (NotAllowed, "not_allowed"),
    (Forbidden, "forbidden"),
    (RateLimited, "rate_limit"),
    (MailboxFull, "busy"),
    (AgentUnavailable, "unavailable"),
    (DeadlineExceeded, "deadline"),
)


def fault_of(error: LmosActorsError) -> dict[str, Any]:
    """Return an error as strangers may know it: nothing of an exception."""
    if isinstance(error, ActionFailed):
        found: dict[str, Any] = {"code": error.code or "failed", "message": error.detail or "it failed"}
        return {**found, **({"data": error.data} if error.data else {})}
    for kind, code in _CODES:
        if isinstance(error, kind):
            message = "it is not available now" if isinstance(error, AgentUnavailable) else str(error)
            return {"code": code, "message": message}
    return {"code": "failed", "message": "the agent has failed"}


def introduction(exposed: Exposed) -> dict[str, Any]:
    """Return what an agent says about itself: the payload of a `discovery` message."""
    contract = exposed.cls.__contract__
    actions = {
        name: {"description": (handle.__doc__ or "").strip().partition("\n")[0]}
        for name, handle in contract.actions.items()
    }
    return {
        "name": exposed.name,
        "description": (exposed.cls.__doc__ or "").strip().partition("\n")[0],
        "skills": list(actions),
        "actions": actions,
        "answers": contract.answers,
        "events": [name for name, event in contract.events.items() if event.broadcast],
        "available": True,
    }
