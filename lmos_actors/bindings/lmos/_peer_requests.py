"""Requests to a far agent: what is said of each, where it stands, and where its one answer goes.

A want is posted to a peer. While there is no room it stands in line; once its message is in the outbox it
is open, until exactly one of `answer` and `fail` is called, or it is withdrawn. None of them blocks.
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

if TYPE_CHECKING:
    from lmos_actors.actors import Attempt, Going, TraceMembers
    from lmos_actors.protocol.lmos import ConsumerSession, Pending

    from ._peer_things import RemoteThing

STREAM: Final = lmos.Credit(items=16, bytes=262_144)
"""The credit that an answer of many items is given (W6)."""


@attrs.define(eq=False)
class OutboundRequest:
    """What a request says: the verb by which it is known near, and its payload as plain data."""

    verb: str
    name: str
    payload: Any = UNSET
    names: tuple[str, ...] | None = None
    """What to read one by one where a peer does not know how to read everything."""
    trace: TraceMembers = attrs.field(factory=dict[str, str])  # type: ignore[assignment]
    deadline: float | None = None
    seconds: float | None = None
    """What the deadline was when it was set, as its error says; the peer knows what was left on arrival."""
    credit: lmos.Credit | None = None
    binary: bool = False
    attempt: Attempt | None = None
    going: Going | None = None
    """Who measures or traces it, if somebody does."""
    singly: bool = False
    """Whether the peer has shown that it does not know how to read everything."""

    def count(self, session: ConsumerSession, *, is_ours: bool) -> int:
        """Say in how many messages it goes out, by the habits of the peer."""
        kotlin = session.habits == "kotlin-wot"
        if self.verb == "write many" and kotlin:
            return len(self.payload)
        at_once = is_ours or (kotlin and not self.singly)
        return 1 if self.names is None or at_once else len(self.names)

    def put(self, session: ConsumerSession, thing: str, *, is_ours: bool) -> Pending:
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

    def _invoke(self, session: ConsumerSession, thing: str) -> Pending:
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
    """One request; see the head of this file. `outbound` is None for a question about another want's run."""

    __slots__ = ("ended", "far", "outbound", "pending")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest | None) -> None:
        self.far = far
        self.outbound = outbound
        self.pending: Pending | None = None
        self.ended = False

    def on_sent(self) -> None:
        """The message has left the line for the outbox."""

    def answer(self, value: Any) -> None:
        """Take the value, as plain data; UNSET where the answer has none."""

    def fail(self, error: Exception) -> None:
        """Take the error that stands in place of a value."""

    def on_status(self, status: str, progress: Any) -> None:
        """The run has another status, or new progress."""

    def item(self, output: Any) -> None:
        """The run has given an item."""


class PendingAsk(PendingRequest):
    """A request whose asker is parked until the answer comes; `bucket` is that of its swept deadline."""

    __slots__ = ("bucket", "error", "slot", "task", "value")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest) -> None:
        super().__init__(far, outbound)
        self.slot = far  # as those know it who sweep deadlines
        self.task: trio.lowlevel.Task | None = None
        self.bucket: Any = None
        self.value: Any = None
        self.error: Exception | None = None

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
    """What is known of a one-way message once it has been sent: who is to be named if it is lost (M5)."""

    link: Any
    op: Any
    args: tuple[Any, ...]
    sender: Any

    @property
    def far(self) -> RemoteThing:
        """Whom it went to."""
        far: RemoteThing = self.link.far
        return far

    def fail(self, error: Exception) -> None:
        """It is a dead letter."""
        self.link.rt.dead_letter(str(error), self.link, self.sender, self.op.name, self.args)


class PendingTell(PendingRequest):
    """A one-way message whose sender is parked while it stands in line; nobody waits for its answer."""

    __slots__ = ("lost", "sent", "task")

    def __init__(self, far: RemoteThing, outbound: OutboundRequest, sent: SentTell) -> None:
        super().__init__(far, outbound)
        self.sent = sent
        self.task: trio.lowlevel.Task | None = None
        self.lost: Exception | None = None

    def on_sent(self) -> None:
        self.ended = True
        wake_one(self, "task")

    def fail(self, error: Exception) -> None:
        """While it stood in line its sender is told; once that goes on, it is a dead letter (M5)."""
        if self.ended:
            self.sent.fail(error)
            return
        self.lost = error
        self.on_sent()


class TurnTell(PendingTell):
    """A one-way message of an agent's turn: while it stands in line, its agent gets no turn (B4)."""

    __slots__ = ("holds",)

    def __init__(self, far: RemoteThing, outbound: OutboundRequest, sent: SentTell) -> None:
        super().__init__(far, outbound, sent)
        self.holds: Any = None

    @property
    def path(self) -> str:
        """Where it goes."""
        return self.far.path

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
        self.standing: lmos.Standing | None = None
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
    """Return an error that a peer told as a near agent's would be: with the name that the agent has here."""
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
        return NotFound("agent", path)
    return error
