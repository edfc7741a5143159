"""The data of one slot and of the incarnation that lives in it.

A slot is what refs point to. It outlives its incarnations: the accounts, the listeners and the mailbox
options belong to it, the queue, the runs and the timers to the incarnation.

A node may have very many idle agents, so memory decides the shape. An idle agent is this one slotted object
and the agent's own; what few agents need is in `Extra`, which is made when it is first needed
(`ensure_extra`), and the dicts in there are one shared empty dict until then (`NOT_NEEDED_YET`). Counters are
few for the same reason: `accepted`, `begun` and `handled` count what went through the queue, `inline` counts
what began and ended in the asker's own step, and all others are in `Extra`.

The classes from here to `LocalLink` are one object in several files; `docs/explanation/design.md`, "Slots
and incarnations", lists what each adds.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from ._gates import CLOSED, EMPTY, IDLE, STATES, TALLIED
from ._mailbox import DONE, AgentStatistics, Envelope, FairQueue, InternalTurn, MailboxStatistics
from ._runtime import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    import trio

    from lmos_actors._core import RandomStream, Timer

    from ._invocation import Run
    from ._lifespan_task import LifespanTask
    from ._mailbox import Line, MailboxOptions, OutgoingTell, RunLine
    from ._monitor import ExitReason
    from ._observers import Sinks
    from ._operation import Operation
    from ._runtime import AgentSupervisor, Owner, Runtime, Turns
    from ._slot_stash import Stash

# How its supervisor sees it; written by the supervisor alone.
Status: TypeAlias = Literal["starting", "running", "stopping", "restarting", "stopped"]

NO_MAIL: Final[Any] = ()
SHUT: Final = -1  # as a size: nothing is accepted


class StateStore(Protocol):
    """Where a persistent agent's state is kept between incarnations; filled in by persistence."""

    async def load(self, path: str) -> dict[str, Any] | None:
        """Return the last state kept for the agent at `path` as plain data, None if there is none."""
        ...

    async def keep(self, path: str, state: dict[str, Any]) -> None:
        """Keep a state; returns when it will be found again."""
        ...


class OutputGate(Protocol):
    """Holds what a persistent agent's turn sends out until what it changed has been kept."""

    def hold(self, output: Callable[[], None]) -> None:
        """Take an answer, event or message, in order, to be released after the commit of its turn."""
        ...


class _FrozenDict(dict[Any, Any]):
    """The empty dict for all that agents have not needed yet; shared, so nothing may be put in."""

    def __setitem__(self, key: Any, value: Any, /) -> None:
        raise TypeError("this dict is shared by all agents: call ensure_extra() first")

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        raise TypeError("this dict is shared by all agents: call ensure_extra() first")


NOT_NEEDED_YET: Final = _FrozenDict()


class Pacing:
    """The holds and the service time of a slot, over all its incarnations."""

    __slots__ = ("holds", "item", "seconds", "timer")

    def __init__(self) -> None:
        self.holds = 0
        self.seconds = 0.0  # of service for each message
        self.item: Any = None  # out of the queue: it is worked on, or its turn is due
        self.timer: Timer | None = None  # until the work is done


class Extra:
    """The data that an agent has only once it has needed it."""

    __slots__ = (
        "active",
        "cancelled",
        "child_supervisor",
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
        self.timers: dict[Timer, None] | None = None
        self.follows: Any = None  # the first of a chain, see `_follow.py`
        self.groups: dict[Any, None] | None = None  # those it is a member of
        self.links: dict[Any, None] | None = None  # the other ends of this incarnation's links
        self.monitors: dict[Any, None] | None = None  # those it has made itself
        self.lifespan_task: LifespanTask | None = None
        self.child_supervisor: AgentSupervisor | None = None
        self.silent = False  # this end is not reported to the supervisor
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


class SlotState:
    """The data of a slot; `SlotRequests` and `Slot` add what is done with it."""

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

    @property
    def label(self) -> str:
        """The child's name in its supervisor."""
        name = self.name
        return name if isinstance(name, str) else f"{self.spec.name}-{name}"

    @property
    def path(self) -> str:
        """Names from the root's children down, joined by slashes."""
        name = self.name
        return self.owner.child_path(name if isinstance(name, str) else self.label)

    def leave_tally(self) -> bool:
        """Take the agent out of the node's totals before its accounts change; return whether it was in."""
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
        """Return the same with its tables of runs and of those in line, made at the first call."""
        extra = self.extra or self.ensure_extra()
        if extra.runs is NOT_NEEDED_YET:
            extra.runs, extra.active, extra.pending = {}, {}, {}
        return extra

    def ensure_outgoing(self) -> dict[OutgoingTell, None]:
        """Return room for messages of its turns that wait for seats elsewhere."""
        extra = self.ensure_extra()
        if extra.out is NOT_NEEDED_YET:
            extra.out = {}
        return extra.out

    def context(self) -> Context:
        """Return the agent's context: a copy of the node's, made for each incarnation."""
        ctx = self.ctx
        if ctx is None:
            ctx = self.ctx = self.rt.base_context.copy()
        return ctx

    def waiting(self) -> int:
        """Count what has been accepted and has not begun, from the lists themselves."""
        count = sum(not isinstance(m, InternalTurn) for m in self.queue) if self.queue else 0
        if self.extra is not None:
            count += sum(len(line) for line in self.extra.pending.values()) - self.extra.withdrawn
            count += len(self.extra.stash.all_messages()) if self.extra.stash is not None else 0
        return count

    def running(self) -> int:
        """Count what has begun and has not ended."""
        extra = self.extra
        if extra is None:
            return 0
        item = extra.pace.item if extra.pace is not None else None
        worked_on = item is not None and not isinstance(item, InternalTurn)
        return worked_on + sum(not run.settled for run in extra.runs)

    # ---- the queue: a list, as nearly all are short; of a long one either end is reached at once

    def take_batch(self) -> list[Any]:
        """Take at most a batch of the items that wait longest out of the queue."""
        queue = self.queue
        if type(queue) is list and len(queue) <= BATCH:
            self.queue = []
            return queue
        queue = self.long_queue()
        if type(queue) is FairQueue:
            queue.reorder_fairly()
        first = queue.popleft
        return [first() for _ in range(min(BATCH, len(queue)))]

    def put_back(self, items: list[Any]) -> None:
        """Put items back that were not taken after all, before all others."""
        if isinstance(self.queue, deque):
            self.queue.extendleft(reversed(items))
        else:
            self.queue = [*items, *self.queue]

    def long_queue(self) -> deque[Any]:
        """Return the queue as a deque, which it is from now on."""
        queue = self.queue
        if not isinstance(queue, deque):
            queue = self.queue = deque(queue)
        return queue

    def withdraw_queued(self) -> None:
        """Count an envelope in the queue as done.

        It is passed over when its turn comes; once half the queue is done, all such are taken out
        together, so that withdrawing costs no search.
        """
        extra = self.ensure_extra()
        extra.withdrawn += 1
        if extra.withdrawn * 2 > len(self.queue):
            self.clear_withdrawn()

    def clear_withdrawn(self) -> None:
        """Take the envelopes out that are done."""
        before, queue = len(self.queue), self.queue
        self.queue = type(queue)(m for m in queue if not (isinstance(m, Envelope) and m.phase == DONE))
        self.ensure_extra().withdrawn -= before - len(self.queue)  # others may be in the batch in hand

    def statistics(self) -> AgentStatistics:
        """Count over all incarnations; see `AgentStatistics` for the identity that holds."""
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
            restarts=max(0, self.incarnation - 1),
            incarnation=self.incarnation,
            state=STATES[self.state],
        )

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


NO_TABLE: Final[dict[str, Any]] = {}
