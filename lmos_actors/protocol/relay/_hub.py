"""The hub of an AgentRelay: which agents are connected, and what happens to each frame. No socket, no clock.

The host authenticates agents, and opens a connection for each. It passes an agent's frames to `receive`;
frames for the agent wait in its outbox. The rules:

- **Every frame has one fate**: it is passed on, carried out as a command, or refused with an error. The
  counts of `statistics` add up.
- **The hub decides on identity.** `from` is the agent of the connection; a frame that names another is
  refused. The hub sets `id` and `ts`, whatever the frame contains.
- **Each recipient gets a message once**, however often it is named. A broadcast goes to all but its sender.
- **`relay` among the targets makes a command**, which no other agent sees.
- **An agent has one connection.** A newer one takes over, and the older is closed with 4009.
- **Limits** apply to size, nesting and targets, and to the rates of an agent, which outlive its connections.
  Errors are not amplified: an agent that exceeds a rate gets one error a second, and after a minute its
  connection is closed.

Decisions have the numbers of `docs/reference/relay-dialects.md`. Instants are seconds of the host's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ._extension import Fate, HubExtension, HubFrame, HubRefusal
from ._frames import (
    EVERYBODY,
    OWN,
    RELAY,
    Members,
    Unreadable,
    read_members,
    value_of,
    write_members,
    write_value,
)
from ._outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

INVALID_MESSAGE: Final = "invalid_message"
AUTH_MISMATCH: Final = "auth_mismatch"
RATE_LIMIT: Final = "rate_limit"
TOO_LARGE: Final = "too_large"
UNKNOWN_COMMAND: Final = "unknown_command"
NOT_ALLOWED: Final = "not_allowed"
UNAVAILABLE: Final = "unavailable"

ERROR_CODES: Final = (
    INVALID_MESSAGE, AUTH_MISMATCH, RATE_LIMIT, TOO_LARGE, UNKNOWN_COMMAND, NOT_ALLOWED, UNAVAILABLE,
)  # fmt: skip
"""The codes that a hub sends. Clients accept any text."""

REPLACED: Final = (4009, "replaced")
OVER_RATE: Final = (4029, "rate limit")
TOO_SLOW: Final = (1013, "too slow: too much waits to be read")
TOO_LONG: Final = (1009, "a message is too long")
NO_TEXT: Final = (1007, "a message is no UTF-8")

CLOSED: Final = "closed"
"""The code of a fate, not of an error: a frame that came while the connection was being closed."""

CALM: Final = 10.0
"""Seconds without a refusal after which the time that an agent may exceed its rate begins anew."""

CAPABILITIES: Final = ("broadcast", "direct", "subscribe")


@attrs.frozen(kw_only=True)
class HubOptions:
    """The limits of a hub, its name and its version.

    `max_message` limits the bytes of a frame, `max_depth` its levels of arrays and objects. Each of the
    `rates` is a number of frames that an agent may send, also at once, in a number of seconds. If more than
    `outbox_bytes` are waiting for an agent, broadcasts are dropped; beyond `outbox_most` its connection is
    closed. With `broadcasts` "followed" an agent that follows others gets only their broadcasts. The hub
    remembers whom it follows for `resume_seconds` after it has left.
    """

    name: str = RELAY
    version: str = "1"
    max_message: int = 64 << 10
    max_depth: int = 100
    max_targets: int = 256
    max_followed: int = 1_024
    rates: tuple[tuple[int, float], ...] = ((1_000, 60.0), (10_000, 3_600.0))
    broadcasts: Literal["all", "followed"] = "all"
    outbox_bytes: int = 768 << 10
    outbox_most: int = 4 << 20
    resume_seconds: float = 60.0
    remembered: int = 100_000
    """Agents whose rates and follows are remembered after they have left."""
    over_rate_seconds: float = 60.0
    """The time that an agent may exceed its rate; then its connection is closed."""


@attrs.frozen
class HubStatistics:
    """Counts since the hub began: `frames` is the sum of `passed`, `commands` and `refused`.

    `deliveries` counts the recipients of all messages that were passed on; `dropped` counts broadcasts that
    were not read in time.
    """

    connected: int
    frames: int
    passed: int
    commands: int
    refused: int
    deliveries: int
    dropped: int


class _Allowance:
    """A limit on frames within a number of seconds, implemented as a bucket that refills."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, frames: int, seconds: float, at: float) -> None:
        self._burst, self._rate, self._left, self._at = float(frames), frames / seconds, float(frames), at

    def refill(self, at: float) -> float:
        self._left = min(self._burst, self._left + (at - self._at) * self._rate)
        self._at = at
        return self._left

    def take(self) -> None:
        self._left -= 1


@attrs.define(eq=False)
class _Agent:
    """Record of an agent, kept for a while after it has left."""

    id: str
    allowances: tuple[_Allowance, ...]
    connection: HubConnection | None = None
    follows: dict[str, None] = attrs.field(factory=dict[str, None])
    left_at: float = 0.0
    over_since: float | None = None
    refused_at: float = float("-inf")
    warned_at: float = float("-inf")


class Hub:
    """The agents of a relay.

    `new_id` makes the ids of messages, and `now` returns Unix time in milliseconds. The host must start the
    extensions, with their stored records, before the first connection. `shared` turns a broadcast into the
    bytes that the host sends to each recipient. It is called once per broadcast, not for each recipient.
    """

    def __init__(
        self,
        options: HubOptions,
        *,
        new_id: Callable[[], str],
        now: Callable[[], int],
        extensions: Sequence[HubExtension] = (),
        shared: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.options = options
        self.extensions = tuple(extensions)
        """The extensions: all that the hub does beyond passing messages on."""
        self.now = now
        """Function that returns Unix time in milliseconds."""
        self.on_change: Callable[[], object] = lambda: None
        """Function that is called when `due_at` may have changed."""
        self.passing: Callable[[Members], AbstractContextManager[Members]] | None = None
        """A context around each message that is passed on; entering it returns the members to pass on."""
        self.handled: HubFrame | None = None
        """The frame whose hooks are being called."""
        self._new_id = new_id
        self._shared = shared
        self._agents: OrderedDict[str, _Agent] = OrderedDict()  # those that have left at first
        self._open: dict[str, HubConnection] = {}
        self._counts = dict.fromkeys(("passed", "command", "refused"), 0)
        self._deliveries = 0
        self._dropped = 0  # of connections that have ended

    def connect(
        self,
        agent: str,
        at: float,
        wake: Callable[[], object] = lambda: None,
        charge: Callable[[int], object] = int,
    ) -> HubConnection:
        """Open a connection of an agent, and send the welcome; an older connection is closed.

        `wake` is called when the outbox has something to send. `charge` is called with each change of the
        bytes that wait there, in steps of `STEP`.
        """
        known = self._known(agent, at)
        is_new = known.connection is None
        if known.connection is not None:
            known.connection.end(*REPLACED)
        connection = HubConnection(self, known, wake, charge)
        known.connection = self._open[agent] = connection
        connection.answer("welcome", self._welcome())
        if is_new:
            for each in self.extensions:
                each.joined(agent)
        return connection

    def _known(self, agent: str, at: float) -> _Agent:
        found = self._agents.get(agent)
        if found is None:
            options = self.options
            allowances = tuple(_Allowance(most, span, at) for most, span in options.rates)
            found = self._agents[agent] = _Agent(agent, allowances)
        elif found.connection is None and at - found.left_at > self.options.resume_seconds:
            found.follows.clear()
        self._agents.move_to_end(agent)
        return found

    def _welcome(self) -> dict[str, Any]:
        options = self.options
        limits = {
            "max_message_size": options.max_message,
            "rate_limit": _shown(options.rates[0]) if options.rates else None,
            "max_targets": options.max_targets,
            "broadcasts": options.broadcasts,
        }
        return {
            "relay": options.name,
            "version": options.version,
            "capabilities": list(CAPABILITIES),
            "extensions": [each.name for each in self.extensions],
            "extension_versions": {each.name: each.version for each in self.extensions},
            "limits": limits,
        }

    def disconnect(self, connection: HubConnection, at: float) -> None:
        """Forget a connection that has ended; an agent with a newer one stays connected."""
        self._dropped += connection.outbox.dropped
        connection.is_gone = True
        agent = connection.known
        if agent.connection is not connection:
            return
        agent.connection, agent.left_at = None, at
        del self._open[agent.id]
        self._agents.move_to_end(agent.id, last=False)
        while len(self._agents) - len(self._open) > self.options.remembered:
            self._agents.popitem(last=False)
        for each in self.extensions:
            each.left(agent.id)

    @property
    def connections(self) -> tuple[HubConnection, ...]:
        """The connections of all agents that are connected."""
        return tuple(self._open.values())

    def end_all(self, code: int, reason: str) -> None:
        """Request the closing of all connections."""
        for connection in tuple(self._open.values()):
            connection.end(code, reason)

    def end_one(self, agent: str, code: int, reason: str) -> None:
        """Request the closing of an agent's connection, if the agent has one."""
        found = self._open.get(agent)
        if found is not None:
            found.end(code, reason)

    @property
    def connected(self) -> Collection[str]:
        """The agents that are connected, in the order in which they connected."""
        return self._open.keys()

    def has(self, agent: str) -> bool:
        """Return whether an agent is connected."""
        return agent in self._open

    def follows(self, agent: str) -> Collection[str]:
        """Return the agents that an agent follows."""
        found = self._agents.get(agent)
        return () if found is None else found.follows.keys()

    def due_at(self) -> int | None:
        """Return the Unix time in milliseconds at which `due` must be called, None for never."""
        return min((at for each in self.extensions if (at := each.due_at()) is not None), default=None)

    def due(self) -> None:
        """Call `due` of each extension whose time has come."""
        now = self.now()
        for each in self.extensions:
            at = each.due_at()
            if at is not None and at <= now:
                each.due()

    # ---- what the relay itself sends

    def answer(self, agent: str, type: str, payload: Any, ref: str | None = None) -> None:
        """Send a frame of the relay to an agent, if it is connected."""
        found = self._open.get(agent)
        if found is not None:
            found.answer(type, payload, ref)

    def announce(self, type: str, payload: Any, ref: str | None = None, *, id: str | None = None) -> None:
        """Send a frame of the relay to all agents; it may be dropped for agents that do not read."""
        data = self._shared(self.own_frame(EVERYBODY, type, payload, ref, id=id))
        for each in self._open.values():
            each.outbox.put(data, is_broadcast=True)

    def statistics(self) -> HubStatistics:
        """Return the counts since the hub began."""
        counts = self._counts
        return HubStatistics(
            len(self._open),
            sum(counts.values()),
            counts["passed"],
            counts["command"],
            counts["refused"],
            self._deliveries,
            self._dropped + sum(each.outbox.dropped for each in self._open.values()),
        )

    # ---- for the connections

    def count(self, fate: Fate) -> Fate:
        """Count the fate of a frame, and return it. Only `HubConnection` calls this."""
        self._counts[fate.outcome] += 1
        self._deliveries += fate.delivered
        return fate

    def own_frame(
        self, to: str, type: str, payload: Any = None, ref: str | None = None, *, id: str | None = None
    ) -> bytes:
        """Return a frame of the relay itself, with the time and an id, which is new by default."""
        members: list[tuple[str, Any]] = [("id", id or self._new_id()), ("from", RELAY), ("to", [to])]
        members.append(("type", type))
        if payload is not None:
            members.append(("payload", payload))
        if ref is not None:
            members.append(("ref", ref))
        members.append(("ts", self.now()))
        return write_members((name, write_value(value)) for name, value in members)

    def frame_of(self, sender: str, targets: list[str], members: Members) -> HubFrame:
        """Return a frame in the form that the extensions get."""
        type, ref = value_of(members, "type"), value_of(members, "ref")
        return HubFrame(
            self._new_id(),
            sender,
            targets,
            type if isinstance(type, str) else "",
            ref if isinstance(ref, str) else "",
            self.now(),
            members,
        )

    def pass_on(
        self, sender: HubConnection, targets: list[str], members: Members, frame: HubFrame | None
    ) -> Fate:
        """Pass a message on to its recipients, once to each. Raise HubRefusal.

        `frame` is for the extensions, None if there are none.
        """
        id, now = (self._new_id(), self.now()) if frame is None else (frame.id, frame.ts)
        head = (("id", write_value(id)), ("from", write_value(sender.agent)))
        rest = ((name, bytes(raw)) for name, raw in members.items() if name not in OWN)
        data = write_members([*head, *rest, ("ts", write_value(now))])
        if frame is not None:
            frame.data = data
            for extension in self.extensions:
                extension.check(frame)
        if EVERYBODY in targets:
            to_itself = sender.agent in targets
            recipients = [each for each in self._open.values() if each is not sender or to_itself]
            if self.options.broadcasts != "all":
                recipients = [each for each in recipients if each is sender or each.hears(sender)]
            if frame is not None:
                for extension in self.extensions:
                    recipients = [each for each in recipients if extension.hears(frame, each.agent)]
            shared = self._shared(data)
            for each in recipients:
                each.outbox.put(shared, is_broadcast=True)
            return Fate("passed", id, len(recipients))
        delivered, unknown = 0, list[str]()
        for name in dict.fromkeys(targets):
            found = self._open.get(name)
            if found is None:
                unknown.append(name)
            else:
                found.outbox.put(data)
                delivered += 1
        return Fate("passed", id, delivered, tuple(unknown))


class HubConnection:
    """One connection of an agent."""

    def __init__(
        self, hub: Hub, known: _Agent, wake: Callable[[], object], charge: Callable[[int], object]
    ) -> None:
        options = hub.options
        self.known = known
        """The hub's record of the agent."""
        self.agent = known.id
        self.closing: tuple[int, str] | None = None
        """The code and the reason with which the host must close the connection."""
        self.is_gone = False
        self.outbox = Outbox(
            options.outbox_bytes,
            options.outbox_most,
            lambda lost: hub.own_frame(known.id, "gap", {"lost": lost}),
            wake,
            charge,
            lambda: self.end(*TOO_SLOW),
        )
        self.frames = self.outbox.frames
        """Remove and return frames to send; see `Outbox.frames`."""
        self._hub = hub
        self._wake = wake

    def end(self, code: int, reason: str) -> None:
        """Request the closing of the connection, once the waiting frames have been sent."""
        if self.closing is None:
            self.closing = code, reason
            self._wake()

    def quota(self, at: float) -> list[tuple[int, int, float]]:
        """Return, for each rate, how many frames may arrive now, and the rate itself: frames and seconds."""
        rates = zip(self.known.allowances, self._hub.options.rates, strict=True)
        return [(max(0, int(each.refill(at))), most, seconds) for each, (most, seconds) in rates]

    def hears(self, sender: HubConnection) -> bool:
        """Return whether another agent's broadcast is sent on this connection."""
        follows = self.known.follows
        return self._hub.options.broadcasts == "all" or not follows or sender.agent in follows

    # ---- frames of the agent

    def receive(self, data: str | bytes, at: float) -> Fate:
        """Process a text frame, or a binary frame that contains text; return its fate."""
        return self._hub.count(self._fate_of(data, at))

    def _fate_of(self, data: str | bytes, at: float) -> Fate:
        options = self._hub.options
        if self.closing is not None:
            return Fate("refused", code=CLOSED)
        if isinstance(data, str):
            data = data.encode()
        else:
            try:
                data.decode()
            except UnicodeDecodeError:
                self.end(*NO_TEXT)
                return Fate("refused", code=INVALID_MESSAGE)
        if len(data) > options.max_message:
            self.end(*TOO_LONG)
            return Fate("refused", code=TOO_LARGE)
        if not self._is_allowed(at):
            return Fate("refused", code=RATE_LIMIT)
        members = read_members(data, options.max_depth)
        if isinstance(members, Unreadable):
            return self._refuse(INVALID_MESSAGE, members.reason)
        try:
            return self._carried_out(members)
        except ValueError as error:
            return self._refuse(INVALID_MESSAGE, f"a member cannot be read: {error}")
        except HubRefusal as refusal:
            return self._refuse(refusal.code, str(refusal), members)

    def _carried_out(self, members: Members) -> Fate:
        hub, named, targets = self._hub, value_of(members, "from"), value_of(members, "to")
        if named is not None and named != self.agent:
            raise HubRefusal(AUTH_MISMATCH, "`from` is the agent of the connection, or left out")
        fault = self._targets_fault(targets)
        if fault is not None:
            raise HubRefusal(INVALID_MESSAGE, fault)
        frame = hub.frame_of(self.agent, targets, members) if hub.extensions else None
        hub.handled = frame
        try:
            return self._handled(members, targets, frame)
        finally:
            hub.handled = None

    def _handled(self, members: Members, targets: list[str], frame: HubFrame | None) -> Fate:
        hub = self._hub
        if RELAY in targets:
            self._command(members, frame)
            fate = Fate("command", "" if frame is None else frame.id)
        elif "payload" not in members:
            raise HubRefusal(INVALID_MESSAGE, "Missing required field: payload")
        elif hub.passing is not None:
            with hub.passing(members) as passed:
                fate = hub.pass_on(self, targets, passed, frame)
        else:
            fate = hub.pass_on(self, targets, members, frame)
        if frame is not None:
            for each in hub.extensions:
                with suppress(HubRefusal):  # the frame has its fate
                    each.done(frame, fate)
            for each in hub.extensions:
                with suppress(HubRefusal):
                    each.acknowledge(frame, fate)
            hub.on_change()
        return fate

    def _targets_fault(self, targets: Any) -> str | None:
        if targets is None:
            return "Missing required field: to"
        if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):  # pyright: ignore[reportUnknownVariableType]
            return "`to` is an array of texts"
        if not targets:
            return "`to` names nobody"
        most = self._hub.options.max_targets
        return f"`to` names more than {most} agents" if len(targets) > most else None  # pyright: ignore[reportUnknownArgumentType]

    def _is_allowed(self, at: float) -> bool:
        """Count a frame against the rates of the agent; return whether it is within them.

        Beyond the rates, warn the agent once a second, and close the connection after `over_rate_seconds`.
        """
        known = self.known
        if min((each.refill(at) for each in known.allowances), default=1.0) >= 1:
            for each in known.allowances:
                each.take()
            return True
        if known.over_since is None or at - known.refused_at > CALM:
            known.over_since = at
        known.refused_at = at
        if at - known.over_since >= self._hub.options.over_rate_seconds:
            self.end(*OVER_RATE)
        elif at - known.warned_at >= 1:
            known.warned_at = at
            self._refuse(RATE_LIMIT, "Too many requests")
        return False

    def _refuse(self, code: str, message: str, members: Members | None = None) -> Fate:
        payload: dict[str, Any] = {"code": code, "message": message}
        for extension in self._hub.extensions if members else ():
            for name in extension.echoed:
                with suppress(ValueError):
                    if isinstance(found := value_of(members or {}, name), str):
                        payload[name] = found
        self.answer("error", payload)
        return Fate("refused", code=code)

    # ---- commands

    def _command(self, members: Members, frame: HubFrame | None) -> None:
        """Carry out a command. Raise HubRefusal."""
        type, payload = value_of(members, "type"), value_of(members, "payload")
        if type == "ping":
            self.answer("pong")
        elif type in ("subscribe", "unsubscribe"):
            self._follow(str(type), payload)
        elif type == "list_subscriptions":
            self.answer("subscriptions", {"agents": list(self.known.follows)})
        elif frame is None or not any(each.command(frame) for each in self._hub.extensions):
            named = f"a command {type!r}" if isinstance(type, str) else "a command without a type"
            raise HubRefusal(UNKNOWN_COMMAND, f"the relay does not know {named[:100]}")

    def _follow(self, type: str, payload: Any) -> None:
        agents = payload.get("agents") if isinstance(payload, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if not isinstance(agents, list) or not all(isinstance(each, str) for each in agents):  # pyright: ignore[reportUnknownVariableType]
            raise HubRefusal(INVALID_MESSAGE, f"the payload of {type} is {{agents: [ids]}}")
        names: list[str] = agents  # pyright: ignore[reportUnknownVariableType]
        follows = self.known.follows
        if type == "subscribe":
            most = self._hub.options.max_followed
            if len({*follows, *names}) > most:
                raise HubRefusal(INVALID_MESSAGE, f"an agent follows {most} others at most")
            follows.update(dict.fromkeys(names))
            count = len(names)
        else:
            count = len([name for name in names if name in follows])
            for name in names:
                follows.pop(name, None)
        self.answer(f"{type}d", {"agents": names, "count": count})

    def answer(self, type: str, payload: Any = None, ref: str | None = None) -> None:
        """Send a frame of the relay itself to the agent."""
        self.outbox.put(self._hub.own_frame(self.agent, type, payload, ref))


def _shown(rate: tuple[int, float]) -> str:
    """Return a rate in the form used in documents: `1000/min`."""
    frames, seconds = rate
    return f"{frames}/min" if seconds == 60 else f"{frames}/{seconds:g}s"
