"""Requests to agents of other nodes, from the moment they are made until their one final answer.

One request has two halves. `OutboundRequest` is its content: verb, name, payload, trace, deadline. It does
not know who waits. `PendingRequest` is its state: whether it still waits in line, which protocol message
carries it (`pending`), and where the answer goes. `PeerTraffic` and the protocol session know nothing but
these two.

What is kept true: exactly one of `answer` and `fail` is called for a request, unless it is withdrawn
before, and not after `ended` is set. A request is posted to a peer; while the session has no room it stands
in line; once its message is in the outbox, `on_sent` is called and it is open.

Nothing here blocks or awaits: answers arrive in the step of the connection's reader, which must go on
reading. A waiting task is therefore parked by its caller and woken here (`wake_one`, `wake_all`), not by
events or memory channels: an ask is the hot path, and needs one waiter, once.

The classes differ in who waits: `PendingAsk` one task for a value; `PendingTell` a sender, but only while
the message stands in line; `TurnTell` an agent in the middle of a turn, which cannot be parked and gets no
further turn until the message is out; `RunQuestion` any number of tasks that query or cancel a run. Calls
and streams are in `_remote_calls.py`. A one-way message that has left the line is nobody's request any
more: what is left of it is a `SentTell`, enough to report it as a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET
from trio.lowlevel import reschedule

from lmos_actors.errors import (
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    MailboxFull,
    NotFound,
    OutcomeUnknown,
    RemoteProtocolError,
)
from lmos_actors.protocol import lmos

from ..exposure._exposure import path_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.actors import Attempt, Going, TraceMembers
    from lmos_actors.protocol.lmos import ConsumerRequest, ConsumerSession

    from ._peer_things import RemoteThing

STREAM: Final = lmos.Credit(items=16, bytes=262_144)
"""How far an agent may be ahead of the consumer of a stream: in items, and in bytes of them."""


@attrs.define(eq=False)
class OutboundRequest:
    """The content of one request: its verb, as operations near name it, and its payload as plain data."""

    verb: str
    name: str
    payload: Any = UNSET
    names: tuple[str, ...] | None = None
    """The properties to read one by one where a peer cannot read all of them at once."""
    trace: TraceMembers = attrs.field(factory=dict[str, str])  # type: ignore[assignment]
    deadline: float | None = None
    seconds: float | None = None
    """The timeout as the caller gave it, for the text of DeadlineExceeded; the peer only sees what was
    left."""
    credit: lmos.Credit | None = None
    binary: bool = False
    attempt: Attempt | None = None
    going: Going | None = None
    """The instrument that measures or traces it, None without one."""
    singly: bool = False
    """Whether the peer has refused to read all properties at once."""

    def count(self, session: ConsumerSession, *, is_ours: bool) -> int:
        """Return the number of protocol messages it takes, by the habits of the peer."""
        kotlin = session.habits == "kotlin-wot"
        if self.verb == "write many" and kotlin:
            return len(self.payload)
        at_once = is_ours or (kotlin and not self.singly)
        return 1 if self.names is None or at_once else len(self.names)

    def put(self, session: ConsumerSession, thing: str, *, is_ours: bool) -> ConsumerRequest:
        """Put the message into the outbox. Raises MailboxFull, LocalProtocolError."""
        if self.verb == "invoke":
            return self._invoke(session, thing)
        if self.verb == "read":
            return session.read(thing, self.name, **self.trace)
        if self.verb == "write":
            return session.write(thing, self.name, self.payload, **self.trace)
        if self.verb == "write many":
            return session.write_many(thing, self.payload, **self.trace)
        if self.names is None or is_ours or (session.habits == "kotlin-wot" and not self.singly):
            return session.read_all(thing, **self.trace)
        return session.read_many(thing, self.names, **self.trace)

    def _invoke(self, session: ConsumerSession, thing: str) -> ConsumerRequest:
        deadline, attempt = self.deadline, self.attempt
        return session.invoke(
            thing,
            self.name,
            self.payload,
            remaining=None if deadline is None else max(0.001, deadline - trio.current_time()),
            attempt=None if attempt is None else attempt.number,
            message_id=None if attempt is None else attempt.message_id,
            credit=self.credit,
            binary=self.binary,
            **self.trace,
        )


def refuses_whole(error: Exception) -> bool:
    """Whether an answer may mean that a thing, which is there, cannot be read as a whole: 404, or 500."""
    if isinstance(error, NotFound):
        return error.kind != "agent"
    return isinstance(error, RemoteProtocolError) and getattr(error.problem, "status", None) == 500


class PendingRequest:
    """One request until it is answered; `outbound` is None for a question about the run of another one."""

    __slots__ = ("ended", "far", "outbound", "pending")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest | None) -> None:
        self.far = far
        self.outbound = outbound
        self.pending: ConsumerRequest | None = None
        self.ended = False

    @property
    def path(self) -> str:
        """The path of the agent it goes to."""
        return self.far.path

    @property
    def affordance(self) -> str:
        """The name of the affordance that it uses."""
        return "" if self.outbound is None else self.outbound.name

    def held_sender(self) -> Any:
        """Return the slot of the agent that gets no further turn until this is sent, None without one."""
        return None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        """Return the tasks that are parked until this is sent, or answered."""
        return ()

    def on_sent(self) -> None:
        """Take note that the message has left the line for the outbox."""

    def answer(self, value: Any) -> None:
        """Take the value, as plain data; UNSET where the answer has none."""

    def fail(self, error: Exception) -> None:
        """Take the error that stands in place of a value."""

    def on_status(self, status: str, progress: Any) -> None:
        """Take another status of the run, or new progress."""

    def item(self, output: Any) -> None:
        """Take an item of the run's output."""


class PendingAsk(PendingRequest):
    """A request whose caller is parked until the answer comes; `bucket` is where its deadline is swept."""

    __slots__ = ("bucket", "error", "slot", "task", "value")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest) -> None:
        super().__init__(far, outbound)
        self.slot = far  # the deadline sweeper reads `slot.path`, as it does of near requests
        self.task: trio.lowlevel.Task | None = None
        self.bucket: Any = None
        self.value: Any = None
        self.error: Exception | None = None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return () if self.task is None else (self.task,)

    def answer(self, value: Any) -> None:
        self.value = value
        self._end()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.ended = True
        wake_one(self, "task")


class SentTell(msgspec.Struct, eq=False):
    """A one-way message that has been sent: what its dead letter says, should the peer answer by an error."""

    link: Any
    op: Any
    args: tuple[Any, ...]
    sender: Any

    @property
    def far(self) -> RemoteThing:
        """The thing it was sent to."""
        far: RemoteThing = self.link.far
        return far

    def fail(self, error: Exception) -> None:
        """Report it as a dead letter."""
        self.link.rt.dead_letter(str(error), self.link, self.sender, self.op.name, self.args)


class PendingTell(PendingRequest):
    """A one-way message whose sender is parked while it stands in line; it has no answer."""

    __slots__ = ("lost", "sent", "task")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest, sent: SentTell) -> None:
        super().__init__(far, outbound)
        self.sent = sent
        self.task: trio.lowlevel.Task | None = None
        self.lost: Exception | None = None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return () if self.task is None else (self.task,)

    def on_sent(self) -> None:
        self.ended = True
        wake_one(self, "task")

    def fail(self, error: Exception) -> None:
        """Raise in the sender while it is parked; afterwards no task is there to raise in: report a dead
        letter."""
        if self.ended:
            self.sent.fail(error)
            return
        self.lost = error
        self.on_sent()


class TurnTell(PendingTell):
    """A one-way message sent within a `def` turn, which cannot wait: while it stands in line, its agent
    gets no further turn."""

    __slots__ = ("holds",)

    def __init__(self, far: RemoteThing, outbound: OutboundRequest, sent: SentTell) -> None:
        super().__init__(far, outbound, sent)
        self.holds: Any = None

    def held_sender(self) -> Any:
        return self.holds

    def on_sent(self) -> None:
        self.ended = True
        holds, self.holds = self.holds, None
        if holds is not None:
            holds.outgoing_admitted(self)

    def fail(self, error: Exception) -> None:
        self.on_sent()
        super().fail(error)


class RunQuestion(PendingRequest):
    """A query or a cancel of a run, and the tasks that wait for its answer."""

    __slots__ = ("error", "standing", "tasks")

    def __init__(self, far: RemoteThing) -> None:
        super().__init__(far, None)
        self.tasks: list[trio.lowlevel.Task] = []
        self.standing: lmos.RunStatus | None = None
        self.error: Exception | None = None

    def answer(self, value: Any) -> None:
        self.standing = value
        self._end()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.ended = True
        wake_all(self.far, self.tasks)


def wake_one(request: Any, name: str) -> None:
    """Wake the task that is parked in that attribute, if one is."""
    task: trio.lowlevel.Task | None = getattr(request, name)
    if task is not None:
        setattr(request, name, None)
        request.far.rt.timers.woke = True
        reschedule(task)


def wake_all(far: Any, tasks: list[trio.lowlevel.Task]) -> None:
    """Wake all tasks of a list, and empty it."""
    if tasks:
        woken = tasks[:]
        tasks.clear()
        far.rt.timers.woke = True
        for task in woken:
            reschedule(task)


Told: TypeAlias = AgentUnavailable | OutcomeUnknown


def as_near_error(
    error: Exception, thing_id: str, path: str, outbound: OutboundRequest | None = None
) -> Exception:
    """Return an error from a peer as a near agent would raise it: with the path that the agent has here."""
    if isinstance(error, AgentUnavailable):
        return AgentUnavailable(path, error.why, retry_in=error.retry_in)
    if isinstance(error, AgentDied):
        return AgentDied(error.reason, started=error.started, agent=path)
    if isinstance(error, MailboxFull):
        return MailboxFull(path, error.size)
    if isinstance(error, DeadlineExceeded):
        seconds = outbound.seconds if outbound is not None and outbound.seconds is not None else error.seconds
        return DeadlineExceeded(path, seconds)
    if isinstance(error, NotFound) and error.kind == "agent" and error.name == thing_id:
        return NotFound("agent", path, near=error.nearest and path_named(error.nearest))
    return error
