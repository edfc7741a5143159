"""The slot of an agent: what refs point to, and all that happens to a message on its way to the agent.

A slot outlives the incarnations of its agent. The accounts, the listeners and the mailbox options belong to
the slot; the queue, the runs and the timers belong to the incarnation. It is one class in one long file,
because the parts call each other in circles: a withdrawn message may be the last one that a stopping agent
waited for, the end of an incarnation answers all messages that still wait, and each answer counts.

The sections, in this order: accounts; what a message asks for; ways in (asking, telling, sending from a
turn, calls, streams and listening); the mailbox (seats, the queue, leaving without being handled); the work
(taking turns, runs, messages put aside); listeners and timers; waiting for a state; the end of an
incarnation; its links. The rest is beside this file, as functions over a slot or as objects made on
first need: its start (`_slot_start.py`), changes of behaviour (`_stash.py`), service time (`_pacing.py`,
`finding/_hold.py`), turns by timer (`_slot_timers.py`), making links and monitors (`_links.py`), the
lifespan (`_lifespan_task.py`). Batches of turns are run by the dispatcher (`actors/_dispatcher.py`), which
calls back into this file.

What this file keeps true:

- **Accounts.** Every accepted message leaves by one of the methods here, and each counts it, so that at every
  instant at which no turn runs `accepted == handled + cancelled + dropped + dead_lettered + waiting +
  running`. A refusal by type (`InvalidInput`) is an answer of the agent and counts as handled; a message that
  was refused a seat was never accepted and counts as refused alone; a message that the mailbox drops was
  accepted and counts as dropped.
- **Order** is kept per sender. That is why an agent takes no turn between handing a run over and the run's
  first step (`HANDING`), why a parked sender keeps the gate from being `IDLE` (an inline turn would
  overtake it), and why a sender that is let in queues behind what is there.
- **One final answer.** An incarnation ends by `die`, at once, or by `drain`, which lets what waits be
  handled first. Both are synchronous and end in `_end`, which answers everything that is left. `_end` only
  begins the unwinding: runs are cancelled, the lifespan is asked to leave. `_maybe_finish` is called by
  whatever has just unwound (a run, the lifespan, the children) and goes on when all has. Only then does
  `_finish` report the end to the supervisor, so that two incarnations never hold one resource. No step
  waits, so an ending agent needs no task of its own.

      die/drain -> _end -> _answer_all, _release_resources -> _maybe_finish -> _finish -> owner.exited

- **Cancellation.** A caller that is cancelled, or whose time is up, withdraws its message (`withdraw`):
  a parked message leaves the line, a queued one gives up its seat, a run is cancelled without waiting for it.
  Ctrl-C may interrupt the code of a handler, but not the bookkeeping here (`enable_ki_protection`).
- **Memory.** A node may have very many idle agents. An idle agent is this one slotted object and the
  agent's own; what few agents need is in `Extra`, which is made when it is first needed (`ensure_extra`),
  and the dicts in there are one shared empty dict until then (`NOT_NEEDED_YET`). Counters are few for the
  same reason: `accepted`, `begun` and `handled` count what went through the queue, `inline` counts what
  began and ended in the asker's own step, and all others are in `Extra`.

The hot path of the package is here. `ask` of an idle agent runs the turn in the asker's own step, and
`tell_nowait` appends a tuple. Everything but the common case goes to a method of its own, so that the common
case stays short; the short paths are repeated in `ask`, `tell_nowait` and `send_from` on purpose, as sharing
them would cost a call a message. How to read a condition there: `gate` is zero only for an idle agent
(`IDLE`), `leave_tally()` turns the gate `TALLIED` into `IDLE`, `op.kind` is zero only for a plain turn, and
`accepted - begun` is the number of seats taken. `size` is -1 while the mailbox is closed, so one comparison
finds both a full mailbox and a closed one. `turns.budget` counts down over all askers: the asker that spends
the last of it makes a checkpoint, so that a task that only asks idle agents cannot keep the loop to
itself."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.errors import (
    AgentDied,
    AgentError,
    AgentUnavailable,
    InvalidInput,
    MailboxFull,
    NotAllowed,
    NotFound,
    is_interrupt,
)

from .._parking import park_among
from .._runtime import BATCH, BUDGET
from ..crashes._crashes import crash_reason, end_reason
from ..messages._gates import (
    BUSY,
    CLOSED,
    DOWN,
    DRAINING,
    EMPTY,
    ENDING,
    GONE,
    HANDING,
    HELD,
    IDLE,
    PAUSED,
    QUIET,
    RUNNING,
    SERIAL,
    STATE_TEXTS,
    STATES,
    TALLIED,
    WORKED,
)
from ..messages._invocation import CURRENT, Run, declared_failure
from ..messages._mailbox import (
    ATTACHED,
    DONE,
    HELD_BACK,
    OUT_SEATS,
    OWN_SEATS,
    PARKED,
    PENDING,
    PROMPT,
    QUEUED,
    RUNNING as RUN_BEGUN,
    STASHED,
    WORKED_ON,
    AgentStatistics,
    Ask,
    Envelope,
    FairQueue,
    InternalTurn,
    Line,
    MailboxStatistics,
    OutgoingTell,
    PromptTurns,
    RunLine,
    SelfEnvelope,
    SelfMessage,
    Stashed,
    Tell,
)
from ..messages._monitor import NORMAL, SHUTDOWN, Down, ExitReason
from ..messages._observers import ALL_EVENTS, MONITORS, Feed, Occurrence, Sinks, event_key, property_key
from ..messages._operation import ASKING, CHECKED, RUN, RUNS, STREAM, invoked_stream, named, not_in
from ..values import conceal
from ._calls import LocalCall, LocalStream, ask_with_sources, with_sources
from ._lifespan_task import LifespanTask, is_cancel
from ._output_gate import OutputGate, Push, ToOne
from ._pacing import Pacing
from ._task_links import TaskLink, carry_signals

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from contextvars import Context

    from lmos_actors._core import RandomStream, Timer

    from .._runtime import AgentSupervisor, Owner, Runtime, Turns
    from ..crashes._reports import CrashReport
    from ..messages._invocation import OwnTask
    from ..messages._mailbox import MailboxOptions
    from ..messages._observers import Sink
    from ..messages._operation import Operation
    from ..refs._link import Attempt, Invocation
    from ._skewed_clock import SkewedClock
    from ._task_links import LinkPeer

# The state of a child as its supervisor sees it; written by the supervisor alone.
Status: TypeAlias = Literal["starting", "running", "stopping", "restarting", "stopped"]

NO_MAIL: Final[Any] = ()  # the queue of an agent that waits for mail
NO_TABLE: Final[dict[str, Any]] = {}  # the operations of a slot without an agent
SHUT: Final = -1  # as a size: nothing is accepted
SHARED: Final = 4
"""The concurrency from which on the last run of an action is kept for a peer that has none."""

_AT_REST: Final = (IDLE, SERIAL, HELD, QUIET, PAUSED)


class Stash:
    """The messages that one incarnation has put aside, in order, the timer of its present behaviour, and the
    turns of its timers of 0 seconds.
    """

    __slots__ = ("by_run", "changed", "items", "prompt", "timer", "up_next")

    def __init__(self) -> None:
        self.items: dict[int, Any] = {}
        self.up_next: list[Any] = []
        """The messages brought back in the turn that runs now: the first to be taken when it ends."""
        self.changed = False
        """Whether the running turn has changed the behaviour: messages it puts aside are tried at once."""
        self.by_run: tuple[Run | OwnTask | None, int] = (None, 0)
        """The run that changed the behaviour last, and how many messages its changes brought back."""
        self.timer: Timer | None = None
        self.prompt = PromptTurns()

    def all_messages(self) -> list[Any]:
        """Return all messages that are put aside."""
        return [*self.up_next, *self.items.values()]


class Extra:
    """The data that few agents need; an agent gets it when it first needs a part of it."""

    __slots__ = (
        "active",
        "cancelled",
        "child_supervisor",
        "clock",
        "dead_lettered",
        "displaced",
        "drain_timer",
        "dropped",
        "errors",
        "follows",
        "groups",
        "handing",
        "kept",
        "lifespan_task",
        "links",
        "lives_lost",
        "log",
        "monitors",
        "out",
        "own",
        "pace",
        "parked",
        "pending",
        "random",
        "reason",
        "refused",
        "removed",
        "runs",
        "silent",
        "sinks",
        "stash",
        "suspended",
        "timers",
        "waiters",
        "withdrawn",
    )  # fmt: skip

    def __init__(self) -> None:
        self.refused = 0
        self.cancelled = 0
        self.dropped = 0
        self.displaced = 0  # of those
        self.dead_lettered = 0
        self.runs: dict[Run, None] = NOT_NEEDED_YET
        self.active: dict[Operation, int] = NOT_NEEDED_YET
        self.pending: dict[Operation, RunLine] = NOT_NEEDED_YET
        self.handing: Run | None = None
        self.parked: Line | None = None
        self.sinks: Sinks | None = None
        self.timers: Timer | None = None  # the first of the chain, see `Timer`
        self.follows: Any = None  # the first of a chain, see `_follow.py`
        self.groups: dict[Any, None] | None = None  # those it is a member of
        self.links: dict[Any, None] | None = None  # the other ends of this incarnation's links
        self.monitors: dict[Any, None] | None = None  # those it has made itself
        self.lifespan_task: LifespanTask | None = None
        self.child_supervisor: AgentSupervisor | None = None
        self.clock: SkewedClock | None = None
        self.silent = False  # this end is not reported to the supervisor
        self.lives_lost = 0  # incarnations that have ended with the machine: in simulations
        self.suspended = False  # a durable agent whose store fails: it is started again once that works
        self.removed = False  # the slot is to be removed for good at this end
        self.out: dict[OutgoingTell, None] = (
            NOT_NEEDED_YET  # messages of its turns that wait for seats elsewhere
        )
        self.stash: Stash | None = None
        self.own = 0
        self.withdrawn = 0  # envelopes in the queue that are done
        self.reason: ExitReason | None = None
        self.errors: tuple[BaseException, ...] = ()
        self.drain_timer: Timer | None = None
        self.waiters: list[trio.lowlevel.Task] | None = None
        self.random: RandomStream | None = None
        self.log: Any = None
        self.pace: Pacing | None = None
        self.kept: dict[str, Any] | None = None  # what the next incarnation begins with


class Slot:
    """One place in the tree, with the messages that wait there and the agent that lives there now.

    A ref to a near agent uses the slot as its `Link`.
    """

    __slots__ = (
        "accepted",
        "agent",
        "begun",
        "ctx",
        "extra",
        "gate",
        "handled",
        "incarnation",
        "inline",
        "mailbox",
        "name",
        "number",
        "output_gate",
        "owner",
        "queue",
        "rt",
        "size",
        "spec",
        "state",
        "status",
        "table",
        "turns",
    )  # fmt: skip

    traced = False
    """Whether messages have traces, or are recorded as well; see `_traced_slot.py`."""

    def __init__(
        self, rt: Runtime, owner: Owner, spec: Any, name: str | int, mailbox: MailboxOptions
    ) -> None:
        self.rt = rt
        self.turns: Turns = rt.turns
        self.owner = owner
        self.spec = spec
        self.name = name
        self.mailbox = mailbox
        self.number: int = rt.slots_made + 1
        rt.slots_made = self.number
        self.agent: Any = None
        self.table: dict[str, Operation] = NO_TABLE
        self.ctx: Context | None = None
        self.queue: list[Any] | deque[Any] = NO_MAIL  # a deque once it is longer than a batch
        self.gate: int = CLOSED
        self.size: int = SHUT
        self.state: int = EMPTY
        self.status: Status = "starting"
        self.incarnation: int = 0
        self.accepted: int = 0  # taken into the mailbox
        self.begun: int = 0  # of those: no longer waiting, for whatever reason
        self.handled: int = 0  # of those: answered by the agent
        self.inline: int = 0  # begun and ended in the asker's own step, in none of the three above
        self.extra: Extra | None = None
        self.output_gate: OutputGate | None = None  # of a durable agent, see `_output_gate.py`

    @property
    def label(self) -> str:
        """The child's name in its supervisor."""
        name = self.name
        return name if isinstance(name, str) else f"{self.spec.name}-{name}"

    @property
    def path(self) -> str:
        """The names from a child of the root down to this agent, joined by slashes."""
        name = self.name
        return self.owner.child_path(name if isinstance(name, str) else self.label)

    @property
    def restored(self) -> bool | None:
        """Whether the incarnation began with state from the store; None for agents that are not durable."""
        return None if self.output_gate is None else self.output_gate.restored

    @property
    def identity(self) -> tuple[object, int]:
        """The identity by which two refs are equal."""
        return self.rt, self.number

    @property
    def factory(self) -> Callable[[], Any]:
        """The factory of the next agent: the spec's factory, with refs in place of references to siblings."""
        spec = self.spec
        if not spec.references:
            return spec.factory  # type: ignore[no-any-return]
        return spec.filled(self.owner.ref_to)  # type: ignore[no-any-return]

    def leave_tally(self) -> bool:
        """Remove the agent from the node's totals before its accounts change; return whether it was there."""
        if self.gate != TALLIED:
            return False
        self.rt.tally.remove(self)
        self.gate = IDLE
        return True

    def ensure_extra(self) -> Extra:
        """Return the data that few agents need, made at the first call."""
        extra = self.extra
        if extra is None:
            extra = self.extra = Extra()
        return extra

    def ensure_run_tables(self) -> Extra:
        """Return the same data as `ensure_extra`, and make its tables of runs if they are missing."""
        extra = self.extra or self.ensure_extra()
        if extra.runs is NOT_NEEDED_YET:
            extra.runs, extra.active, extra.pending = {}, {}, {}
        return extra

    def ensure_outgoing(self) -> dict[OutgoingTell, None]:
        """Return the messages of the agent's turns that wait for seats elsewhere, in a table made once."""
        extra = self.ensure_extra()
        if extra.out is NOT_NEEDED_YET:
            extra.out = {}
        return extra.out

    def ensure_stash(self) -> Stash:
        """Return the messages put aside and the timers with them, in a `Stash` made at the first call."""
        extra = self.ensure_extra()
        if extra.stash is None:
            extra.stash = Stash()
        return extra.stash

    def ensure_pacing(self) -> Pacing:
        """Return the holds and the service time of the agent, made at the first call."""
        extra = self.ensure_extra()
        if extra.pace is None:
            extra.pace = Pacing(self)
        return extra.pace

    def context(self) -> Context:
        """Return the agent's context: a copy of the node's, made for each incarnation."""
        ctx = self.ctx
        if ctx is None:
            ctx = self.ctx = self.rt.base_context.copy()
        return ctx

    # ---- accounts

    def waiting(self) -> int:
        """Count the accepted messages that have not begun, using the lists instead of the counters."""
        count = sum(not isinstance(m, InternalTurn) for m in self.queue) if self.queue else 0
        if self.extra is not None:
            count += sum(len(line) for line in self.extra.pending.values()) - self.extra.withdrawn
            count += len(self.extra.stash.all_messages()) if self.extra.stash is not None else 0
        return count

    def running(self) -> int:
        """Count the messages that have begun and have not ended."""
        extra = self.extra
        if extra is None:
            return 0
        item = extra.pace.item if extra.pace is not None else None
        worked_on = item is not None and not isinstance(item, InternalTurn)
        return worked_on + sum(not run.settled for run in extra.runs)

    def statistics(self) -> AgentStatistics:
        """Return the counters over all incarnations; see `AgentStatistics` for how they add up."""
        extra = self.extra
        return AgentStatistics(
            accepted=self.accepted + self.inline,
            handled=self.handled + self.inline,
            cancelled=extra.cancelled if extra else 0,
            dropped=extra.dropped if extra else 0,
            dead_lettered=extra.dead_lettered if extra else 0,
            waiting=self.waiting(),
            running=self.running(),
            refused=extra.refused if extra else 0,
            restarts=self.restarts,
            incarnation=self.incarnation,
            state=self.state_name,
        )

    @property
    def restarts(self) -> int:
        """The number of restarts, not counting those after the loss of the agent's machine."""
        lost = 0 if self.extra is None else self.extra.lives_lost
        return max(0, self.incarnation - 1 - lost)

    def life_lost(self) -> None:
        """Exclude the last incarnation, if any, from the restarts, because it was lost with its machine."""
        if self.incarnation:
            self.ensure_extra().lives_lost += 1

    @property
    def state_name(self) -> str:
        """The state as `statistics` names it, such as `running` or `down`."""
        return STATES[self.state]

    def mailbox_statistics(self) -> MailboxStatistics:
        """Return how full the mailbox is."""
        extra = self.extra
        return MailboxStatistics(
            depth=self.accepted - self.begun,
            size=self.mailbox.size,
            when_full=self.mailbox.when_full,
            parked=len(extra.parked) if extra and extra.parked else 0,
            displaced=extra.displaced if extra else 0,
        )

    def full(self) -> bool:
        """Return whether the mailbox is open and has no free seat."""
        return 0 < self.size <= self.accepted - self.begun

    # ---- what a message asks for

    def operation(self, key: str) -> Operation:
        """Return the operation with a key. Raises `NotFound` or `AgentUnavailable` if there is none."""
        try:
            return self.table[key]
        except KeyError:
            raise self.unknown(key) from None

    def unknown(self, key: str) -> Exception:
        """Make the error for a key that is not in the table."""
        if self.state in (EMPTY, GONE):
            return self.closed_error()
        return not_in(self.table, key, self.path)

    def closed_error(self) -> AgentUnavailable | NotFound:
        """Make the error for a message to a slot that takes no messages."""
        if self.state == GONE:
            return NotFound("agent", self.path)
        if self.suspended and self.rt.keeping is not None:
            why, retry_in = self.rt.keeping.why_suspended(self)
            return AgentUnavailable(self.path, why, retry_in=retry_in)
        return AgentUnavailable(self.path, STATE_TEXTS[self.state])

    def bound(self, op: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Check and convert arguments; a refusal is an answer of the agent and counts as handled."""
        try:
            return op.bind(args, kwargs)
        except InvalidInput as exc:
            exc.__context__ = None  # of the caller's attempt on the short path
            self._count_refusal()
            raise

    def spread(
        self, op: Operation, data: Any, *, tolerant: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Turn an input of plain data into arguments; a refusal counts as in `bound`."""
        try:
            return op.spread(data, tolerant=tolerant)
        except InvalidInput:
            self._count_refusal()
            raise

    def _count_refusal(self) -> None:
        if self.size > 0:
            self.leave_tally()
            self.inline += 1

    def sender(self) -> Any:
        """Return the slot of the agent whose code runs now, None outside of agents."""
        run = CURRENT.get()
        return self.turns.slot if run is None else run.slot

    # ---- asking

    @named(ASKING)
    @enable_ki_protection
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """Check the arguments, carry out an operation, and return its value.

        The turn of an idle agent runs here, in the asker's step. There is no task switch, and no checkpoint
        after the turn, because a call that had its effect must return its value. Raises an `AgentError`,
        DeadlineExceeded if there is no answer after `seconds` (the node sweeps deadlines every 10 ms), or
        `trio.Cancelled`, after which the run is cancelled.
        """
        try:
            op = self.table[key]
        except KeyError:
            raise self.unknown(key) from None
        if kwargs or len(args) != 1:
            if kwargs or args or op.params:
                args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        turns = self.turns
        budget = turns.budget = turns.budget - 1
        if budget < 0 and not self.waits_anyway(op):
            await self.yield_to_others()
        if (self.gate and not self.leave_tally()) or op.kind:
            if op.kind == STREAM:
                raise invoked_stream(op)
            run = CURRENT.get()
            sender = turns.slot if run is None else run.slot
            return await self.ask_queued(Ask(self, op, args, sender, None), seconds)
        try:
            return self.run_inline(op, args)
        except Stashed:
            pass  # left before the waiting: what comes of it has nothing to do with this exception
        # the agent has put it aside already
        ask = Ask(self, op, args, self.sender(), None)
        return await self.ask_queued(ask, seconds, post=self.stash_inline_ask)

    def run_inline(self, op: Operation, args: tuple[Any, ...]) -> Any:
        """Run a turn of the idle agent now, in the caller's step."""
        turns = self.turns
        self.gate = BUSY
        turns.slot = self
        turns.current = op
        ctx = self.ctx
        if ctx is None:
            ctx = self.context()
        try:
            if len(args) == 1:  # a star costs as much as the call
                value = ctx.run(op.fn, self.agent, args[0])
            else:
                value = ctx.run(op.fn, self.agent, *args)
            try:
                value = op.give(value)
            except InvalidInput as exc:
                raise op.wrong_result(exc) from None
        except BaseException as exc:
            turns.slot = None
            raise self.inline_failed(exc, op, args) from None
        turns.slot = None
        self.inline += 1
        if turns.leave:
            turns.leave = False
            self.after_turn()
        elif self.queue:
            self.rt.schedule(self)
        else:
            self.gate = IDLE
        return value

    def waits_anyway(self, op: Operation) -> bool:
        """Return whether an ask waits: there is a seat, and the agent is not idle, or no run is refused."""
        runs = op.kind == RUN and op.when is None
        return self.accepted - self.begun < self.size and (runs or self.gate not in (IDLE, TALLIED))

    async def yield_to_others(self) -> None:
        """Make a checkpoint, now that the budget is spent."""
        await checkpoint()
        self.turns.budget = BUDGET
        wake = self.rt.wake_watchdog
        if wake is not None:
            wake()

    async def ask_queued(
        self, ask: Ask, seconds: float | None, *, post: Callable[[Ask], None] | None = None
    ) -> Any:
        """Post an ask, by means of `post` if given, and wait for its answer."""
        if ask.op.streams:
            return await ask_with_sources(self, ask.op, ask.args, ask.sender, seconds)
        if post is None:
            self.post(ask)
        else:
            post(ask)
        if ask.phase != DONE:  # it is if the new message was dropped
            ask.task = task = current_task()
            task.custom_sleep_data = ask  # what it waits for, see `_circles.py`
            rt = self.rt
            if rt.full_slots or self.gate == SERIAL:
                rt.circles.look_again(ask)
            if seconds is not None:
                rt.deadlines.add(ask, seconds)
            try:
                await wait_task_rescheduled(ask.abort)
            except BaseException:
                self.withdraw(ask)
                raise
            finally:
                if ask.bucket is not None:
                    rt.deadlines.forget(ask)
        if ask.error is not None:
            try:
                raise ask.error
            finally:
                ask.error = None  # no cycle through the traceback
        return ask.value

    # ---- telling

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message. Raises `trio.WouldBlock` where `tell` would wait."""
        try:
            op = self.table[key]
        except KeyError:
            raise self.unknown(key) from None
        if kwargs or len(args) != 1:
            args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        run = CURRENT.get()
        if run is None:
            sender = self.turns.slot
        else:
            sender = run.slot
            if run.envelope.trace is not None:  # a tuple has no place for it
                self.post_or_block(op, args, sender)
                return
        if self.accepted - self.begun >= self.size or op.kind:
            self.post_or_block(op, args, sender)
            return
        self.accepted += 1
        if self.queue:
            self.queue.append((op, args, sender))
            return
        self.queue = [(op, args, sender)]
        if not self.gate or self.leave_tally():
            self.gate = BUSY
            self.rt.schedule(self)
        elif self.gate == QUIET:
            self.resume()

    @named("ref.tell")
    @enable_ki_protection
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message; if the mailbox is full and its policy is `wait`, wait for a seat."""
        op = self.operation(key)
        args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        run = CURRENT.get()
        sender = self.turns.slot if run is None else run.slot
        plain = not op.kind and (run is None or run.envelope.trace is None)
        if plain and self.accepted - self.begun < self.size:
            self.seat(op, args, sender)
        else:
            op.check_one_way()
            tell = Tell(self, op, args, sender)
            self.post(tell)
            if tell.phase == PARKED:
                await self._parked(tell)
                return
        turns = self.turns
        turns.budget -= 1
        if turns.budget < 0:
            await self.yield_to_others()

    def seat(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """Accept a one-way message that has a seat and that a turn will handle."""
        self.accepted += 1
        self.put((op, args, sender))

    async def _parked(self, tell: Tell) -> None:
        tell.task = task = current_task()
        task.custom_sleep_data = tell

        def abort(_: object) -> Abort:
            tell.task = None
            self.withdraw(tell)  # at once: a seat that becomes free now is the next sender's
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if tell.lost is not None:
            raise tell.lost

    def post_or_block(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """Post a one-way message, but raise `trio.WouldBlock` instead of parking it."""
        op.check_one_way()
        if self.mailbox.when_full == "wait" and self.full():
            raise trio.WouldBlock
        self.post(Tell(self, op, args, sender))

    # ---- sending from a turn

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message from an agent's turn; if it finds no seat, hold the sending agent back.

        The sender gets no further turn until its message has a seat. So agents with plain `def` handlers feel
        back-pressure without awaiting.
        """
        try:
            op = self.table[key]
        except KeyError:
            self.send_undeliverable(sender, key, args)
            return
        if kwargs or len(args) != 1:
            if kwargs is not CHECKED:
                args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        if op.kind or sender is self or self.accepted - self.begun >= self.size:
            self.send_slowly(sender, op, args)
            return
        self.accepted += 1
        if self.queue:
            self.queue.append((op, args, sender))
            return
        self.queue = [(op, args, sender)]
        if not self.gate or self.leave_tally():
            self.gate = BUSY
            self.rt.schedule(self)
        elif self.gate == QUIET:
            self.resume()

    def send_undeliverable(self, sender: Any, key: str, args: tuple[Any, ...]) -> None:
        """Raise the error for an unknown key; if the slot has no agent yet, record a dead letter instead."""
        error = self.unknown(key)
        if not isinstance(error, AgentUnavailable):
            raise error
        self.rt.dead_letter(str(error), self, sender, key, args)

    def send_slowly(self, sender: Any, op: Operation, args: tuple[Any, ...]) -> None:
        """Send as `send_from` does if the message is to the sender itself, needs time, or finds no seat."""
        op.check_one_way()
        if sender is self and self.state <= DRAINING:
            self._send_own(op, args)
            return
        if self.mailbox.when_full == "wait" and len(sender.ensure_extra().out) >= OUT_SEATS and self.full():
            raise MailboxFull(self.path, self.mailbox.size)
        held = OutgoingTell(self, op, args, sender)
        try:
            self.post(held)
        except MailboxFull:
            raise
        except AgentUnavailable as exc:
            self.rt.dead_letter(str(exc), self, sender, op.name, args)
            return
        if held.phase == PARKED:
            held.holds = sender
            sender.outgoing_parked(held)

    def _send_own(self, op: Operation, args: tuple[Any, ...]) -> None:
        extra = self.ensure_extra()
        if extra.own >= OWN_SEATS:
            raise MailboxFull(self.path, OWN_SEATS)
        self.take_own_seat()
        self.accepted += 1
        self.put(self.own(op, args))

    def own(self, op: Operation, args: tuple[Any, ...]) -> SelfMessage:
        """Make the queue's item for a message that the agent sends to itself."""
        return SelfMessage((op, args, self))

    def take_own_seat(self) -> None:
        """Add the reserved seat of a message that the agent has sent to itself."""
        self.ensure_extra().own += 1
        if self.size > 0:
            self.size += 1  # a seat of its own: it takes none from the others

    def free_own_seat(self) -> None:
        """Remove the reserved seat of a message that the agent has sent to itself."""
        self.ensure_extra().own -= 1
        if self.size > 0:
            self.size -= 1

    def outgoing_parked(self, held: OutgoingTell) -> None:
        """Hold back further turns: a message of this agent's turn waits for a seat elsewhere."""
        if self.state >= ENDING:  # nothing is left to be held back
            held.holds = None
            return
        self.ensure_outgoing()[held] = None
        self.leave_tally()
        if self.gate in (IDLE, BUSY, QUIET, WORKED):
            if self.turns.slot is self:
                self.turns.leave = True
            self.gate = HELD

    def outgoing_admitted(self, held: OutgoingTell) -> None:
        """Forget a message that no longer waits for a seat elsewhere; after the last, take turns again."""
        out = self.ensure_extra().out
        out.pop(held, None)
        if not out and self.gate == HELD:
            self.resume()

    # ---- calls, streams and listening

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """Invoke an action, yield its call or its stream, and leave it at the end of the block."""
        op = self.operation(invocation.key)
        args = self.bound(op, invocation.args, invocation.kwargs)
        await checkpoint_if_cancelled()
        call = (LocalStream if invocation.stream else LocalCall)(self, op, args, self.sender())
        call.principal, call.allows = invocation.principal, invocation.allows
        if invocation.posting is not None:
            invocation.posting(call)
        sources = with_sources(call, args) if op.streams else None
        try:
            self.post(call)
        except BaseException:
            if sources is not None:
                sources.release()
            raise
        try:
            if invocation.seconds is not None:
                call.expire_in(invocation.seconds)
            if sources is None:
                yield call
            else:
                async with sources.carried(call):
                    yield call
        finally:
            call.leave()

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """Observe a property or subscribe to events until the block is left."""
        feed: Feed[Any] = Feed(self.rt.timers, size=size, conflate=conflate, gaps=gaps)
        place = key[1:]
        try:
            await self.ask(key, (feed,), {})
            yield feed
        finally:
            self._unlisten(place, feed)

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """Yield a feed of the ends of this agent's incarnations until the block is left."""
        await checkpoint()
        feed: Feed[Down] = Feed(self.rt.timers)
        if self.state == GONE:
            raise self.closed_error()
        self.sinks().add(MONITORS, feed)
        try:
            yield feed
        finally:
            self._unlisten(MONITORS, feed)

    def _unlisten(self, key: str, sink: Sink) -> None:
        extra = self.extra
        if extra is not None and extra.sinks is not None:
            extra.sinks.remove(key, sink)
        sink.close()

    @asynccontextmanager
    @enable_ki_protection
    async def link(self) -> AsyncGenerator[None]:
        """Link this incarnation with the block of the calling task; see `Ref.link`."""
        await checkpoint()
        self.check_alive()
        end = TaskLink(self)
        try:
            with end.scope:
                yield
        except BaseException as exc:
            end.left(exc)
            raise
        end.left(None)

    # ---- seats

    def post(self, envelope: Envelope) -> None:
        """Accept an envelope, park it, or refuse it, by the mailbox's policy.

        Raises `MailboxFull`, `AgentUnavailable` or `NotFound` when it is refused.
        """
        run = CURRENT.get()
        if run is not None and run.envelope.trace is not None and envelope.trace is None:
            envelope.trace = run.envelope.trace  # what came over a wire, handed on
        if self.accepted - self.begun >= self.size and not self._make_room(envelope):
            return
        self.accepted += 1
        envelope.phase = QUEUED
        self.put(envelope)

    def post_last(self, envelope: Envelope) -> None:
        """Post an envelope behind all that wait for a seat, even if a seat is free. Raises as `post` does."""
        extra = self.extra
        if extra is not None and extra.parked:
            envelope.phase = PARKED
            extra.parked.join(envelope)
        else:
            self.post(envelope)

    def _make_room(self, envelope: Envelope) -> bool:
        """Return whether the envelope may go in after all; if not, it has been parked, dropped or refused."""
        if self.size < 0:
            self.ensure_extra().refused += 1
            raise self.closed_error()
        policy = self.mailbox.when_full
        extra = self.ensure_extra()
        if policy == "wait" and envelope.parks:
            rt, queue = self.rt, self.queue
            frees_seats = self.gate == BUSY and queue and type(queue[0]) is tuple and not extra.out
            if (
                not frees_seats or self.turns.slot is self
            ):  # else it is seen here: most agents are in no circle
                circle = rt.circles.closed_by(envelope)
                if circle:
                    extra.refused += 1
                    raise MailboxFull(self.path, self.mailbox.size, circle=circle)
            envelope.phase = PARKED
            if extra.parked is None:
                extra.parked = Line()
            extra.parked.join(envelope)
            rt.full_slots[self] = None
            if self.gate == IDLE:  # all seats are in line for a run: an inline turn would overtake this one
                self.gate = QUIET
            return False
        if policy in ("reject", "wait"):
            extra.refused += 1
            raise MailboxFull(self.path, self.mailbox.size)
        if policy == "drop_oldest":
            self._drop_oldest()
            return True
        self.accepted += 1
        self._dropped(envelope)
        return False

    def _drop_oldest(self) -> None:
        extra = self.ensure_extra()
        waiting = self.oldest_stashed() or self.oldest_pending()
        if waiting is not None:
            self._dropped(waiting)
            return
        if extra.withdrawn:
            self.clear_withdrawn()
        queue = self.queue if len(self.queue) <= BATCH else self.long_queue()
        for place, item in enumerate(queue):
            if not isinstance(item, (InternalTurn, SelfMessage, SelfEnvelope)):
                del queue[place]
                self._dropped(item)
                return

    def oldest_pending(self) -> Envelope | None:
        """Remove and return the first pending run that the agent has not requested itself, or None."""
        for line in self.ensure_extra().pending.values():
            for envelope in line:
                if not isinstance(envelope, SelfEnvelope):
                    line.remove(envelope)
                    return envelope
        return None

    def oldest_stashed(self) -> Any:
        """Remove and return the oldest stashed message that the agent has not sent to itself, or None."""
        extra = self.extra
        if extra is not None and extra.stash is not None:
            for key, item in extra.stash.items.items():
                if not isinstance(item, (SelfMessage, SelfEnvelope)):
                    return extra.stash.items.pop(key)
        return None

    def _dropped(self, item: Any) -> None:
        self.begun += 1
        self.ensure_extra().dropped += 1
        if isinstance(item, Envelope):
            self.rt.note("dropped", item)
            item.phase = DONE
            item.fail(MailboxFull(self.path, self.mailbox.size))

    def displace(self, envelope: Envelope, error: MailboxFull) -> None:
        """Drop a waiting request and fail it with `error`, to free its seat for another peer's request."""
        phase, envelope.phase = envelope.phase, DONE
        extra = self.ensure_extra()
        if phase == QUEUED:
            self.withdraw_queued()
        elif phase == STASHED:
            del self.ensure_stash().items[id(envelope)]
        else:
            extra.pending[envelope.op.original].remove(envelope)
        self.begun += 1
        extra.dropped += 1
        extra.displaced += 1
        self.rt.note("dropped", envelope)
        envelope.fail(error)

    def put(self, item: Any) -> None:
        """Queue an accepted item, and schedule the agent if it is idle."""
        gate = self.gate
        if gate and (gate != TALLIED or not self.leave_tally()):
            if self.queue:
                self.queue.append(item)
            elif gate == QUIET and self.extra is not None and self.extra.pace is not None:
                self.extra.pace.take(item)
                return
            else:
                self.queue = [item]
            if gate == QUIET:
                self.resume()
            return
        if isinstance(item, Envelope) and item.op.kind in RUNS:
            self.begin_run(item, hold=True)
            return
        self.gate = BUSY
        self.queue = [item]
        self.rt.schedule(self)

    def admit(self) -> None:
        """Accept the messages of parked senders while there are free seats."""
        extra = self.extra
        if extra is None or not extra.parked:
            return
        parked, rt = extra.parked, self.rt
        while parked and self.accepted - self.begun < self.size:
            envelope = parked.first()
            self.accepted += 1
            envelope.phase = QUEUED
            self.put(envelope)
            envelope.admitted()
            if type(envelope) is not Tell and envelope.waits_for_answer:  # from now on for a turn
                rt.circles.look_again(envelope)
        if not parked:
            rt.full_slots.pop(self, None)
        elif extra.out or extra.stash is not None or self.gate == SERIAL:
            rt.circles.look_again(self)  # what made those seats free may have been the last that could

    # ---- the queue: a list, as nearly all are short; of a long one either end is reached at once

    def take_batch(self) -> list[Any]:
        """Remove and return the items that have waited longest in the queue, up to one batch."""
        queue = self.queue
        if type(queue) is list and len(queue) <= BATCH:
            self.queue = []
            return queue
        queue = self.long_queue()
        if type(queue) is FairQueue:
            queue.reorder_fairly()
        first = queue.popleft
        return [first() for _ in range(min(BATCH, len(queue)))]

    def take_one(self) -> list[Any]:
        """Remove and return a batch of at most one item; a durable agent's turns are stored one by one."""
        queue = self.queue
        if len(queue) == 1 and type(queue) is list:
            self.queue = []
            return queue
        queue = self.long_queue()
        return [queue.popleft()] if queue else []  # what waited may have been withdrawn

    def put_back(self, items: list[Any]) -> None:
        """Put items that were not handled after all back at the front of the queue."""
        if isinstance(self.queue, deque):
            self.queue.extendleft(reversed(items))
        else:
            self.queue = [*items, *self.queue]

    def long_queue(self) -> deque[Any]:
        """Return the queue, converting it to a deque if it is a list."""
        queue = self.queue
        if not isinstance(queue, deque):
            queue = self.queue = deque(queue)
        return queue

    def withdraw_queued(self) -> None:
        """Count an envelope in the queue as done.

        The envelope is passed over when its turn comes; once half the queue is done, all such envelopes are
        removed together, so that withdrawing costs no search.
        """
        extra = self.ensure_extra()
        extra.withdrawn += 1
        if extra.withdrawn * 2 > len(self.queue):
            self.clear_withdrawn()

    def clear_withdrawn(self) -> None:
        """Remove the envelopes that are done from the queue."""
        before, queue = len(self.queue), self.queue
        self.queue = type(queue)(m for m in queue if not (isinstance(m, Envelope) and m.phase == DONE))
        self.ensure_extra().withdrawn -= before - len(self.queue)  # others may be in the batch in hand

    # ---- leaving without being handled

    def withdraw(self, envelope: Envelope) -> bool:
        """Withdraw a request whose consumer is gone, in any phase; return whether the request was still open.

        A queued request gives up its seat. The run of a running request is cancelled and not waited for.
        """
        phase = envelope.phase
        if phase == DONE:
            return False
        if phase == RUN_BEGUN:
            return self._withdraw_run(envelope)
        envelope.phase = DONE
        if phase == HELD_BACK:  # handled, and counted so: only the answer has no taker any more
            return True
        if phase == ATTACHED and self.output_gate is not None:
            self.output_gate.state.requests.leave(envelope)
            return True
        extra = self.ensure_extra()
        if phase == PARKED:
            self._leave_line(envelope)
            return True
        if phase == QUEUED:
            self.withdraw_queued()
        elif phase == STASHED:
            del self.ensure_stash().items[id(envelope)]
        elif phase == WORKED_ON:
            self.ensure_pacing().return_item()
            envelope.phase = DONE
        else:
            extra.pending[envelope.op.original].remove(envelope)
        self.begun += 1
        extra.cancelled += 1
        self.rt.note("cancelled", envelope)
        self.admit()
        self.on_idle()
        return True

    def _leave_line(self, envelope: Envelope) -> None:
        """Remove a message from the line for seats."""
        extra = self.ensure_extra()
        if extra.parked is not None:
            extra.parked.pop(envelope, None)
        if extra.parked:
            return
        self.rt.full_slots.pop(self, None)
        at_rest = self.gate == QUIET and self.size > 0
        if at_rest and extra.pace is None and self.output_gate is None:
            self.gate = IDLE  # no inline turn could overtake a message now

    def refuse_parked(self, envelope: Envelope, error: MailboxFull) -> None:
        """Refuse a message that waits for a seat, as its wait has become part of a deadlock."""
        self._leave_line(envelope)
        number = envelope.trace[0] if envelope.trace is not None else None
        self.rt.record("refused", self, id=number, error=type(error).__name__)
        self._refuse(envelope, error, str(error))

    def _withdraw_run(self, envelope: Envelope) -> bool:
        run = envelope.run
        if run is None or run.settled:
            return False
        run.settled = True
        envelope.phase = DONE
        self.ensure_extra().cancelled += 1
        self.rt.note("cancelled", envelope)
        if run.at_withdrawal is not None:
            run.at_withdrawal()
        run.cancel()
        return True

    def lose(self, item: Any, reason: str, error: Exception | None) -> None:
        """Count a message that never began as dead-lettered; fail its sender, or record it.

        Nothing in a queue survives a crash. The sender learns that the request had not begun, and may repeat
        it. `error` is the answer; None means AgentDied.
        """
        if isinstance(item, InternalTurn) or (isinstance(item, Envelope) and item.phase == DONE):
            return
        self.begun += 1
        self.ensure_extra().dead_lettered += 1
        if isinstance(item, tuple):
            op, args, sender = cast("tuple[Operation, tuple[Any, ...], Slot | None]", item)
            if isinstance(item, SelfMessage):
                self.free_own_seat()
            self.rt.dead_letter(reason, self, sender, op.name, args)
            return
        envelope: Envelope = item
        envelope.phase = DONE
        if isinstance(envelope, SelfEnvelope):
            self.free_own_seat()
        if envelope.waits_for_answer:
            self.rt.note("answered", envelope, error=reason)
        else:
            self.rt.dead_letter(reason, self, envelope.sender, envelope.op.name, envelope.args)
        envelope.fail(error or AgentDied(reason, started=False, agent=self))

    # ---- taking turns

    def resume(self) -> None:
        """Let the agent take turns again."""
        extra = self.extra
        if extra is not None and extra.pace is not None:
            pace = extra.pace
            if pace.seconds and pace.timer is None and pace.item is None and not pace.holds:
                if self.queue and pace.begin_work():
                    return
            elif pace.holds_back():
                return
        if self.queue:
            self.gate = BUSY
            self.rt.schedule(self)
        else:
            quiet = extra is not None and (extra.parked or extra.pace is not None)
            quiet = quiet or self.output_gate is not None
            self.gate = QUIET if quiet else IDLE
            self.queue = NO_MAIL
            if self.state == DRAINING:
                self.on_idle()

    def resume_if_idle(self) -> None:
        """Let the agent take turns again if nothing else holds it."""
        if self.gate in (IDLE, QUIET):
            self.resume()

    @property
    def held(self) -> bool:
        """Whether the agent is held."""
        extra = self.extra
        return extra is not None and extra.pace is not None and extra.pace.holds > 0

    def inline_failed(self, exc: BaseException, op: Operation, args: tuple[Any, ...]) -> BaseException:
        """Handle an exception of an inline turn; return the exception for its asker.

        A declared failure is raised as it is; anything else ends the agent, and the asker gets `AgentDied`.
        """
        self.turns.leave = False
        if isinstance(exc, Stashed):
            return exc
        self.inline += 1
        failure = declared_failure(exc)
        if failure is not None or (op.internal and isinstance(exc, AgentError)):
            self.after_turn()
            return failure or exc
        return self.turn_crashed(exc, crash_reason(self, exc, (op, args, self.sender())))

    def turn_crashed(self, exc: BaseException, reason: ExitReason) -> BaseException:
        """End the agent whose turn raised `exc`; return the exception for the asker."""
        self.die(reason)
        if is_interrupt(exc):
            if self.rt.fatal is not None:
                self.rt.fatal(exc)
            return exc
        return AgentDied(str(reason), started=True, agent=self)

    def after_turn(self) -> None:
        """Continue after a turn in which the agent was held back, stopped or ended."""
        self.restore_stashed()
        if self.gate == BUSY:
            self.resume()

    def on_idle(self) -> None:
        """End a stopping agent once nothing waits or runs any more."""
        if self.state == DRAINING and self.gate in _AT_REST and self.turns.slot is not self:
            extra = self.ensure_extra()
            idle = not (self.queue or extra.runs or any(extra.pending.values()) or extra.out)
            if idle and (self.output_gate is None or self.output_gate.empty):
                self._end(extra.reason or SHUTDOWN)
            elif self.gate == IDLE:
                self.gate = QUIET

    # ---- runs

    def begin_next(self, line: RunLine) -> bool:
        """Begin the first run in line that the behaviour allows; return whether there was one."""
        while line:
            op = next(iter(line)).op
            kept = self._keeps_last(op)
            envelope = line.first(partial(self._has_no_run, op) if kept else None)
            if envelope is None:
                return False
            self.begin_run(envelope, hold=False)
            if envelope.phase == RUN_BEGUN:
                return True
        return False

    def begin_run(self, envelope: Envelope, *, hold: bool) -> None:
        """Hand a run to a runner, or put it in line for its action's concurrency.

        `hold`: no turn until the run's first step, as later messages must not overtake it.
        """
        extra = self.extra
        if extra is None or extra.runs is NOT_NEEDED_YET:
            extra = self.ensure_run_tables()
        op = envelope.op
        if op.when is not None and not self.enabled(op):
            self.postpone_or_refuse(envelope)
            return
        active = extra.active.get(op.original, 0)
        # the last of several at once is kept for a peer that has none
        is_last = active + 1 == op.concurrency >= SHARED
        if active >= op.concurrency or (is_last and not self._has_no_run(op, envelope.peer)):
            envelope.phase = PENDING
            extra.pending.setdefault(op.original, RunLine()).join(envelope)
            envelope.on_pending()
            self.rt.circles.look_again(envelope)
            return
        extra.active[op.original] = active + 1
        run = Run(self, envelope)
        envelope.began()
        extra.runs[run] = None
        self.begun += 1
        if isinstance(envelope, SelfEnvelope):
            self.free_own_seat()
        if hold:
            self.gate = HANDING
            extra.handing = run
        if self.rt.instrument is not None:
            self.rt.note("delivered", envelope)
        runners = self.owner.runners
        if runners is not None:
            runners.carry(run)

    def _keeps_last(self, op: Operation) -> bool:
        """Return whether one more run of the action may begin but is reserved for a peer that has none."""
        active = self.ensure_run_tables().active
        return op.concurrency >= SHARED and active.get(op.original, 0) == op.concurrency - 1

    def _has_no_run(self, op: Operation, peer: Any) -> bool:
        """Return whether a peer has no run of the action; True for requests of this node (peer None)."""
        of_action = (run for run in self.ensure_run_tables().runs if run.op.original is op.original)
        return peer is None or not any(run.envelope.peer == peer for run in of_action)

    @property
    def serial(self) -> bool:
        """Whether the class has `serial=True`: one run at a time over all actions, and no turn beside it."""
        agent = self.agent
        return agent is not None and bool(agent.__contract__.serial)

    def run_began(self, run: Run) -> None:
        """Let the agent take turns again: the handler's first step is about to run."""
        extra = self.extra or self.ensure_extra()
        if extra.handing is run:
            extra.handing = None
            if self.gate == HANDING:
                if run.agent.__contract__.serial:
                    self.gate = SERIAL
                    if self.output_gate is not None:
                        self.output_gate.serial_run_began(run)
                elif extra.out:
                    self.gate = HELD
                else:
                    self.resume()

    def run_failed(self, account: str) -> None:
        """Count a run whose final answer is an error."""
        if account == "handled":
            self.handled += 1
        else:
            extra = self.ensure_extra()
            setattr(extra, account, getattr(extra, account) + 1)

    def run_cancelled(self, run: Run) -> None:
        """Settle a run whose coroutine was cancelled; a run still open fails, as the node is ending."""
        run.settle_error(AgentDied("shutdown", started=run.begun, agent=self), "cancelled")

    def run_crashed(self, run: Run, exc: BaseException) -> None:
        """Fail a run whose coroutine raised an undeclared error, and end the agent."""
        reason = end_reason(self, exc, run.envelope)
        run.settle_error(AgentDied(str(reason), started=True, agent=self), "handled")
        self.die(reason)

    def run_ended(self, run: Run) -> None:
        """Remove a run whose coroutine has unwound, and continue with the work that waited for it."""
        extra = self.extra or self.ensure_extra()
        extra.runs.pop(run, None)
        if extra.handing is run:
            extra.handing = None
        run.runner = None
        if run.envelope.run is run:  # else its message is put aside
            run.envelope.run = None  # no cycle is left
        op = run.op.original
        extra.active[op] = extra.active.get(op, 1) - 1
        if self.output_gate is not None:
            self.output_gate.run_ended()
        if self.state >= ENDING:
            self._maybe_finish()
            return
        if self.rt.full_slots and extra.stash is not None:  # it might have changed the behaviour
            self.rt.circles.look_again(self)
        line = extra.pending.get(op)
        if self.gate == SERIAL:
            self.gate = IDLE
        if line and not self.held and self.begin_next(line):
            self.admit()
        elif self.gate == IDLE:
            if extra.out:
                self.gate = HELD
            else:
                self.resume()
        else:
            self.on_idle()

    # ---- messages put aside

    def enabled(self, op: Operation) -> bool:
        """Return whether the agent takes messages for this operation now."""
        return op.when is None or self.agent.behaviour in op.when

    def postpone_or_refuse(self, item: Any) -> None:
        """Postpone a message that the present behaviour does not allow, or refuse it."""
        op: Operation = item.op if isinstance(item, Envelope) else item[0]
        if op.postpone:
            self.put_aside(item)
            return
        error = NotAllowed(
            f"{op.name!r} of {self.path} is not allowed in behaviour {self.agent.behaviour!r}, "
            f"only in {_either(op.when or ())}"
        )
        if isinstance(item, Envelope) and item.waits_for_answer:
            self.begun += 1
            self.handled += 1
            item.phase = DONE
            self.rt.note("answered", item, error=f"NotAllowed: {error}")
            if self.output_gate is None:
                item.fail(error)
            else:
                self.output_gate.answer(item, None, error, is_refusal=True)
            self.admit()
        else:
            self.lose(item, str(error), None)
            self.admit()

    def put_aside(self, item: Any) -> None:
        stash = self.ensure_stash()
        envelope = item if isinstance(item, Envelope) else None
        if envelope is not None:
            envelope.on_stashed()
        if stash.changed and self.turns.slot in (self, None):
            stash.up_next.append(item)
            if envelope is not None:
                envelope.phase = QUEUED
            return
        if envelope is not None:
            envelope.phase = STASHED
        stash.items[id(item)] = item
        if self.rt.full_slots:
            self.rt.circles.look_again(self if envelope is None else envelope)

    def stash_inline_ask(self, ask: Ask) -> None:
        """Put aside the message of a turn that ran in its asker's step: the asker has to wait after all."""
        if self.accepted - self.begun >= self.size:
            self.after_turn()
            self.post(ask)
        else:
            self.accepted += 1
            self.put_aside(ask)
            self.after_turn()

    def stash_run(self, run: Run) -> None:
        """Put aside the message of a run in its first step; its coroutine has ended."""
        envelope = run.envelope
        if run.settled:
            return
        run.settled = True
        envelope.run = None
        if isinstance(envelope, SelfEnvelope):
            self.take_own_seat()
        self.begun -= 1
        envelope.on_seat_regained()
        envelope.on_stashed()
        stash = self.ensure_stash()
        if stash.by_run[0] is run:  # nothing has happened since
            envelope.phase = QUEUED
            self.long_queue().insert(stash.by_run[1], envelope)
            self.resume_if_idle()
        else:
            self.put_aside(envelope)

    def restore_stashed(self) -> None:
        """Put the messages that the last turn took from the stash at the front of the queue."""
        extra = self.extra
        if extra is not None and extra.stash is not None:
            stash = extra.stash
            stash.changed = False
            prompt = stash.prompt
            if not isinstance(self.turns.current, InternalTurn):
                prompt.in_row = 0
            if stash.up_next or (prompt.turns and not prompt.is_queued):
                items, stash.up_next = stash.up_next, []
                self.bring_back(stash, items)

    def bring_back(self, stash: Stash, items: list[Any]) -> None:
        """Put items at the front of the queue, and directly behind them the turns of timers of 0 seconds.

        A stopping agent takes those turns only if messages follow: at its end they would have no effect.
        """
        prompt = stash.prompt
        if not prompt.is_queued and (items or self.queue or self.state != DRAINING):
            prompt.is_queued, prompt.fn = True, None  # reports name the turn that it was last
            if prompt.in_row < PROMPT:
                items = [*items, prompt]
            else:
                prompt.in_row = 0
                self.long_queue().append(prompt)
        self.put_back(items)

    # ---- listeners and timers

    def sinks(self) -> Sinks:
        """Return the listeners of this slot, made at the first call."""
        extra = self.ensure_extra()
        if extra.sinks is None:
            extra.sinks = Sinks()
        return extra.sinks

    def property_changed(self, name: str, value: Any) -> None:
        """Push a new value of a property to its observers."""
        extra = self.extra
        if extra is not None and extra.sinks is not None:
            key = property_key(name)
            if key in extra.sinks.by_key:
                self._note_change(key, name, value)
                self._push(extra.sinks, key, value)

    def _push(self, sinks: Sinks, key: str, value: Any, copy: Callable[[Any], Any] | None = None) -> None:
        """Pass a value to the listeners, now or once the agent's state has been saved."""
        if self.output_gate is None:
            sinks.push(key, value, copy)
        elif key in sinks.by_key:
            self.output_gate.hold(Push(sinks, key, value if copy is None else copy(value), copy))

    def show_properties(self, sinks: Sinks) -> None:
        """Pass a new incarnation's values to the observers: an observation outlives a restart."""
        for key in tuple(sinks.by_key):
            if key.startswith("?"):
                op = self.table.get(key)
                if op is not None:
                    value = op.fn(self.agent)
                    self._note_change(key, op.name, value)
                    self._push(sinks, key, value)

    def show_first(self, sink: Sink, value: Any) -> None:
        """Pass the present value of a property to a new observer."""
        if self.output_gate is None:
            sink.push(value)
        else:
            self.output_gate.hold(ToOne(sink, value))

    def show_progress(self, sink: Sink, value: Any) -> None:
        """Pass the progress of a run to its caller; in a `serial` class, before the state has been saved."""
        if self.output_gate is None or not self.output_gate.waits_in_runs:
            sink.push(value)
        else:
            self.output_gate.hold(ToOne(sink, value))

    def _note_change(self, key: str, name: str, value: Any) -> None:
        if self.rt.instrument is not None:
            shown = conceal(value, self.table[key].result_secrecy)
            self.rt.record("changed", self, property=name, value=shown)

    def note_event(self, name: str, data: Any) -> None:
        """Record an event for the instrument."""
        self.rt.record("event", self, event=name, data=data)

    @enable_ki_protection
    def emit(self, event: Any, value: Any) -> None:
        """Push an event to its subscribers."""
        take = event.take
        if take is not None:
            try:
                value = take(value)
            except InvalidInput as exc:
                raise TypeError(
                    f"{self.path} emitted a {event.handle.name!r} of another type: {exc}"
                ) from None
        if self.rt.instrument is not None:
            self.note_event(event.handle.name, conceal(value, event.secrecy))
        extra = self.extra
        if extra is None or extra.sinks is None:
            return
        name = event.handle.name
        copy = None if event.immutable else take
        self._push(extra.sinks, event_key(name), value, copy)
        if ALL_EVENTS in extra.sinks.by_key:
            each_its_own = None if copy is None else partial(_copied, copy)
            self._push(extra.sinks, ALL_EVENTS, Occurrence(name, value), each_its_own)

    def install(self, agent: Any) -> None:
        self.agent = agent
        agent._slot = self
        self.ctx = None

    def keep_timer(self, timer: Timer) -> None:
        """Arrange that a timer is cancelled when this incarnation ends."""
        if self.state >= ENDING:
            timer.cancel()
            return
        extra = self.extra
        timer.join(self.ensure_extra() if extra is None else extra)

    # ---- waiting for a state

    @named("ref.ready")
    @enable_ki_protection
    async def wait_running(self) -> None:
        """Wait until the agent takes messages. Raises NotFound if the slot has been removed."""
        while self.state not in (RUNNING, GONE):
            await self._wait()
        if self.state == GONE:
            raise self.closed_error()

    @enable_ki_protection
    async def wait_down(self) -> None:
        """Wait until the present incarnation has ended and unwound."""
        while self.state < DOWN:
            await self._wait()

    def unready(self) -> str:
        """Return the reason why the agent takes no messages now; "" while it takes them."""
        return "" if self.state == RUNNING else f"it is {STATE_TEXTS[self.state]}"

    async def _wait(self) -> None:
        extra = self.ensure_extra()
        if extra.waiters is None:
            extra.waiters = []
        await park_among(extra.waiters)

    def wake_waiters(self) -> None:
        extra = self.extra
        if extra is not None and extra.waiters:
            waiters, extra.waiters = extra.waiters, None
            self.rt.timers.woke = True
            for task in waiters:
                reschedule(task)

    # ---- end

    def stop(self, reason: ExitReason, shutdown: float | str) -> bool:
        """Begin to stop the agent; return whether it has ended already.

        `shutdown`: seconds for open messages and runs, `"brutal"` for none, `"infinity"` for no limit.
        """
        if self.state >= ENDING:
            self._force_stop(shutdown)
            return self.state >= DOWN
        if shutdown == "brutal":
            self.die(reason)
            self._force_stop(shutdown)
        else:
            self.drain(reason, None if shutdown == "infinity" else float(shutdown))
        return self.state >= DOWN

    def _force_stop(self, shutdown: float | str) -> None:
        extra = self.extra
        if shutdown == "brutal" and extra is not None:
            if extra.lifespan_task is not None:
                extra.lifespan_task.force_stop()
            if extra.child_supervisor is not None:
                extra.child_supervisor.kill()

    @property
    def gone(self) -> bool:
        """Whether the slot has been removed and will have no agent again."""
        return self.state == GONE

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits, runs, listens or is held, so that a stop ends it at once.

        With an instrument, the supervisor's task stops an agent that has had runs: logs have that order.
        """
        extra = self.extra
        if self.gate not in (IDLE, TALLIED) or extra is None:
            return self.gate in (IDLE, TALLIED)
        if self.rt.instrument is not None:
            return False
        busy = extra.runs or extra.lifespan_task is not None or extra.child_supervisor is not None
        return not (busy or extra.sinks is not None or extra.links or extra.errors)

    @enable_ki_protection
    def drain(self, reason: ExitReason, seconds: float | None) -> None:
        """Accept nothing new, and end once waiting messages and runs have been handled; at once when idle."""
        if self.state >= ENDING:
            return
        if self.gate in (IDLE, TALLIED) and (self.extra is None or not self.extra.runs):
            self.state = DRAINING
            self._end(reason)
            return
        extra = self.ensure_extra()
        stopping = self.state == DRAINING
        if not stopping:
            self.state = DRAINING
            self.size = SHUT
            self._refuse_parked("stopping")
            self._leave_feeds_and_groups()
        if not (stopping and extra.reason is not None and extra.reason.abnormal):
            extra.reason = reason  # of several, an error is not forgotten
        if seconds is not None and extra.drain_timer is None:
            extra.drain_timer = self.rt.timers.call_at(
                trio.current_time() + seconds, lambda: self._end(extra.reason or reason)
            )
        if self.turns.slot is self:
            self.turns.leave = True
        self.on_idle()

    def _refuse_parked(self, why: str) -> None:
        extra = self.extra
        if extra is None or not extra.parked:
            return
        parked, extra.parked = extra.parked, None
        self.rt.full_slots.pop(self, None)
        for envelope in parked:
            self._refuse(envelope, AgentUnavailable(self.path, why), why)

    def _refuse(self, envelope: Envelope, error: Exception, why: str) -> None:
        """Fail a message that has waited for a seat; a message sent by a turn, now over, is a dead letter."""
        envelope.phase = DONE
        self.ensure_extra().refused += 1
        if isinstance(envelope, OutgoingTell):
            self.rt.dead_letter(why, self, envelope.sender, envelope.op.name, envelope.args)
        envelope.fail(error)

    def die(self, reason: ExitReason) -> None:
        """End the incarnation now: close the mailbox, answer everything, cancel the runs. Never blocks."""
        if self.state >= ENDING:
            if reason.error is not None and self.state == ENDING:
                self.ensure_extra().errors += (reason.error,)
            return
        if reason.error is not None and reason.report is None:
            reason = crash_reason(self, reason.error, None)
        self._end(reason)
        self.rt.crashes.take(self, reason)

    def suspend(self) -> None:
        """End the incarnation of a durable agent whose store fails, without notifying the supervisor.

        Waiting messages are refused, with the seconds until the store is tried again. Does nothing if the
        incarnation is ending already.
        """
        if self.state >= ENDING:
            return
        self.ensure_extra().suspended = True
        self._end(ExitReason("shutdown", "its store fails"))

    def lose_lease(self, error: Exception) -> None:
        """End the incarnation of a durable agent that has lost its lease, with `error`.

        The error is reported as a crash, but the supervisor is not informed of an end, because an outage of
        the store costs all agents their leases at once. Does nothing if the incarnation is ending already.
        """
        if self.state >= ENDING:
            return
        self.ensure_extra().suspended = True
        self.die(ExitReason("error", error=error))

    @property
    def suspended(self) -> bool:
        """Whether the agent has ended because its store fails."""
        return self.extra is not None and self.extra.suspended

    def _end(self, reason: ExitReason) -> None:
        if self.state >= ENDING:
            return
        if self.gate == TALLIED:
            self.leave_tally()
        self.state = ENDING
        self.gate = CLOSED
        self.size = SHUT
        extra = self.extra
        if extra is not None and extra.pace is not None:
            extra.pace.end_work()
        if self.output_gate is not None:
            self.output_gate.end()
        if self.turns.slot is self:
            self.turns.leave = True
        extra = self.extra
        queue, self.queue = self.queue, NO_MAIL
        if extra is None:
            extra = self.ensure_extra() if queue else None
        if extra is not None:
            extra.reason = reason
            self._answer_all(queue, reason)
            self._release_resources(reason)
            self._maybe_finish()
        else:
            self._finish(reason)

    def _answer_all(self, queue: Iterable[Any], reason: ExitReason) -> None:
        """Answer every waiting message: as lost after a crash, or as refused after a stop."""
        extra = self.extra or self.ensure_extra()
        extra.withdrawn = 0
        if not (queue or extra.runs or extra.pending or extra.parked or extra.stash is not None):
            return
        crashed = reason.abnormal
        why = str(reason) if crashed else "stopped"
        error = None if crashed else AgentUnavailable(self.path, why, retry_in=self._retry_in())
        self._refuse_parked(why)
        for line in tuple(extra.pending.values()):
            while (envelope := line.first()) is not None:
                self.lose(envelope, why, error)
        stash, extra.stash = extra.stash, None
        for item in (*(stash.all_messages() if stash is not None else ()), *queue):
            self.lose(item, why, error)
        for run in tuple(extra.runs):
            if not run.settled:
                if crashed and not run.envelope.waits_for_answer:
                    self.rt.dead_letter(why, self, run.sender, run.op.name, run.args)
                died = AgentDied(why, started=run.begun, agent=self)
                lost = died if run.begun else error or died  # handed over, and not a line of it has run
                run.settle_error(lost, "dead_lettered" if crashed else "cancelled")
            run.cancel()

    def _retry_in(self) -> float | None:
        """Return the seconds until the failing store of a durable agent is tried again."""
        keeping = self.rt.keeping
        return None if keeping is None or not self.ensure_extra().suspended else keeping.retry_in

    def _release_resources(self, reason: ExitReason) -> None:
        extra = self.extra or self.ensure_extra()
        if extra.drain_timer is not None:
            extra.drain_timer.cancel()
            extra.drain_timer = None
        for held in extra.out:
            held.holds = None  # still on its way, but it holds its sender back no more
        extra.out.clear()
        while extra.timers is not None:
            extra.timers.cancel()
        if extra.follows is not None or extra.groups:
            self._leave_feeds_and_groups()
        for monitor in tuple(extra.monitors or ()):
            monitor.cancel()
        extra.monitors = None
        if extra.lifespan_task is not None:
            extra.lifespan_task.end(reason)

    def _leave_feeds_and_groups(self) -> None:
        """Stop following other agents and leave all groups, so that no new messages arrive."""
        extra = self.ensure_extra()
        while extra.follows is not None:
            extra.follows.drop()
        groups, extra.groups = extra.groups, None
        for roll in groups or ():
            roll.lose(self)

    def _maybe_finish(self) -> None:
        extra = self.extra or self.ensure_extra()
        if self.state == ENDING and not extra.runs:
            if extra.lifespan_task is not None and not extra.lifespan_task.ended:
                extra.lifespan_task.runs_ended()
            elif extra.child_supervisor is not None:
                extra.child_supervisor.stop_children(self.spec.shutdown)
            else:
                self._finish(extra.reason or NORMAL)

    def lifespan_ended(self) -> None:
        """Note that the lifespan has been left."""
        if self.state == ENDING:
            self._maybe_finish()

    def children_ended(self, reason: ExitReason | None, raised: Iterable[BaseException]) -> None:
        """Note that all children have ended; without a reason, they were stopped or could not start.

        A supervisor that gives up crashes its agent; a supervisor whose work is done ends the agent.
        """
        extra = self.ensure_extra()
        extra.child_supervisor = None
        extra.errors += tuple(raised)
        if self.state >= ENDING:
            self._maybe_finish()
        elif reason is None:
            if extra.lifespan_task is not None:
                extra.lifespan_task.runs_ended()
        elif reason.error is None:
            shutdown = self.spec.shutdown
            self.drain(reason, float(shutdown) if isinstance(shutdown, (int, float)) else None)
        elif extra.lifespan_task is not None and extra.lifespan_task.entering:
            extra.lifespan_task.fail_entering(reason.error)
        else:
            self.die(ExitReason("error", error=reason.error))

    async def undo_start(self, exc: BaseException) -> BaseException:
        """End the work that a failed start has begun; return the error, joined by errors raised meanwhile."""
        extra = self.ensure_extra()
        reason = SHUTDOWN if is_cancel(exc) else ExitReason("error", error=exc)
        with trio.CancelScope(shield=True):
            if extra.lifespan_task is not None:
                extra.lifespan_task.end(reason)
                await extra.lifespan_task.wait_ended()
            if extra.child_supervisor is not None:
                extra.child_supervisor.stop_children(self.spec.shutdown)
                await extra.child_supervisor.wait_ended()
        late, extra.errors = extra.errors, ()
        self._start_over(reason)
        return BaseExceptionGroup("a start that failed, and what followed", [exc, *late]) if late else exc

    def _start_over(self, reason: ExitReason) -> None:
        """Clear everything left behind by a start that failed before the agent was opened."""
        queue, self.queue = self.queue, NO_MAIL
        self._answer_all(queue, reason)
        self._release_resources(reason)
        self._uninstall()
        self._forget_incarnation()
        self.ensure_extra().silent = False
        self.end_links(reason)

    def _forget_incarnation(self) -> None:
        extra = self.extra or self.ensure_extra()
        extra.lifespan_task = extra.stash = None  # a run that unwound may have made a shelf anew
        extra.active.clear()
        extra.pending.clear()
        extra.random = extra.log = extra.reason = None

    def _uninstall(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent._slot = None
        self.ctx = None
        self.state = DOWN
        self.gate = CLOSED
        self.size = SHUT

    def _finish(self, reason: ExitReason) -> None:
        """Report the end to the supervisor and the listeners, once everything has unwound."""
        extra = self.extra
        first_reason = reason
        if extra is not None and extra.errors:
            reason = self._with_errors(reason, extra.errors)
        elif reason.error is not None and reason.report is None:
            reason = self._with_errors(reason, ())
        self._uninstall()
        report = True
        if extra is not None:
            report, extra.silent = not extra.silent, False
            if extra.errors:
                extra.errors = ()
                if not first_reason.abnormal and reason.error is not None:
                    self.owner.raised_at_end(self, reason.error)
            self._forget_incarnation()
            if extra.sinks is not None and report:
                extra.sinks.gap(str(reason))
                extra.sinks.push(MONITORS, Down(self.path, self.incarnation, reason, self.restored))
        if self.rt.instrument is not None:
            more = {} if self.output_gate is None else {"restored": self.output_gate.restored}
            if reason.report is not None:
                more["report"] = reason.report
            self.rt.record("crashed" if reason.abnormal else "stopped", self, reason=str(reason), **more)
        if self.output_gate is not None:
            self.output_gate.state.ended()
        if report and (extra is None or not extra.suspended):
            self.owner.exited(self, reason)
        if extra is not None:
            if extra.removed:
                self.remove()
            self.wake_waiters()
            self.end_links(reason)

    def _with_errors(self, reason: ExitReason, errors: tuple[BaseException, ...]) -> ExitReason:
        """Add the exceptions that were raised while unwinding to the reason, so that none is lost."""
        every = errors if reason.error is None else (reason.error, *errors)
        alone = every[0] if len(every) == 1 else BaseExceptionGroup("errors of one incarnation", every)
        report: CrashReport | None = reason.report
        if report is not None and report.is_of(self):
            report.unwound(errors)
            return ExitReason("error", error=alone, report=report)
        raised = crash_reason(self, alone, "its end")
        self.rt.crashes.take(self, raised)
        return raised

    def remove(self) -> None:
        """Empty the slot permanently, because its child spec was removed; old refs then raise NotFound."""
        if self.state == ENDING:  # a part of it still unwinds
            self.ensure_extra().removed = True
        if self.state in (ENDING, GONE):
            return
        self.state = GONE
        self.rt.tally.note_removed()
        if self.rt.edge is not None:
            self.rt.edge.gone(self)
        extra = self.extra
        if extra is not None and extra.sinks is not None:
            extra.sinks.close()
        self.wake_waiters()

    # ---- links

    def check_alive(self) -> None:
        """Raise AgentUnavailable or NotFound unless there is an incarnation to link to."""
        if self.state not in (RUNNING, DRAINING):
            raise self.closed_error()

    def join(self, peer: LinkPeer) -> None:
        """Add a link to `peer`, which lasts until either side has ended."""
        extra = self.ensure_extra()
        if extra.links is None:
            extra.links = {}
        extra.links[peer] = None

    def part(self, peer: Any) -> None:
        """See `LinkPeer`."""
        extra = self.extra
        if extra is not None and extra.links is not None:
            extra.links.pop(peer, None)

    def exit_signal(self, down: Down) -> None:
        """See `LinkPeer`."""
        if self.state >= ENDING or self.agent is None:
            return
        if self.agent.__contract__.options.trap_exits:
            self.put(InternalTurn(self.agent.on_exit, (down,)))
        elif down.reason.kind != "normal":
            if self.turns.slot is self:
                self._signal_after_turn(down)
            else:
                self._end_with(down.reason)

    def _signal_after_turn(self, down: Down) -> None:
        """Deliver an exit signal that the agent's current turn has caused, but only after this turn."""
        agent = self.agent  # not the number: an incarnation that fails to start has none of its own

        def again() -> None:
            if self.agent is agent:
                self.exit_signal(down)

        self.rt.timers.call_at(trio.current_time(), again)

    def _end_with(self, reason: ExitReason) -> None:
        lifespan_task = self.extra.lifespan_task if self.extra is not None else None
        self.die(reason)
        if lifespan_task is not None:
            lifespan_task.abandon()

    def end_links(self, reason: ExitReason) -> None:
        """Send exit signals to all linked agents and tasks, as this incarnation has ended and unwound."""
        extra = self.extra
        if extra is None or not extra.links:
            return
        links, extra.links = extra.links, None
        down = Down(self.path, self.incarnation, reason, self.restored)
        for peer in links:
            peer.part(self)
            self.rt.signals.append((peer, down))
        carry_signals(self.rt)


def _copied(copy: Callable[[Any], Any], occurrence: Occurrence) -> Occurrence:
    return Occurrence(occurrence.event, copy(occurrence.data))


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(map(repr, names))
