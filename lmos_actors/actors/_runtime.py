"""The state that all agents of one node share: ready queue, turn in progress, deadlines, dead letters.

`Turns` holds the slot whose turn runs now. Turns never nest, so one record is enough: a verb of a ref that is
called while a turn runs was called by that turn, and a `def` handler cannot await it.

The protocols at the top describe what this package needs of packages above it (a supervisor, the children of
an agent, a test's doubles). Supervision, node and testing fill them in, so that imports go one way.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import attrs
import trio
from trio.lowlevel import disable_ki_protection, reschedule

from lmos_actors._core import describe
from lmos_actors.errors import DeadlineExceeded

from ._parking import ReadyWaits
from ._population import Population
from ._tally import Tally
from .crashes._crashes import Crashes, hide_error, shown_message
from .messages._invocation import CURRENT
from .messages._mailbox import Bucket, InternalTurn
from .messages._operation import Operation
from .values import conceal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors._core import Entropy, Instrument, Timers

    from ._edge import Edge
    from ._population import RelayLookup, RemoteLookup, Resolver, Spreading
    from ._starts import Starts
    from ._unsent import Outbox
    from .messages._invocation import Runners
    from .messages._mailbox import Ask, Envelope
    from .messages._monitor import ExitReason
    from .messages._observers import Feed

BUDGET: Final = 256  # messages between two checkpoints
BATCH: Final = 64  # messages of one agent before the next agent's turn
DEADLINE_GRAIN: Final = 0.01  # seconds: deadlines are swept together, so that each costs no timer of its own
FAR: Final = 60.0  # seconds: up to here an empty bucket's timer costs less than to cancel it
SHOWN: Final = 512  # characters of a dead letter's message that are kept

A_co = TypeVar("A_co", covariant=True)

RUNTIME: ContextVar[Runtime | None] = ContextVar("lmos_actors_runtime", default=None)


class Owner(Protocol):
    """The supervisor that owns a slot, as seen by the slot."""

    runners: Runners | None

    @property
    def path(self) -> str:
        """The supervisor's path in the tree."""
        ...

    @property
    def lives(self) -> str:
        """The incarnation numbers of the agents above this supervisor, as text."""
        ...

    def exited(self, child: Any, reason: ExitReason) -> None:
        """Note that an incarnation has ended and has unwound; never drops a note, never blocks."""
        ...

    def raised_at_end(self, child: Any, error: BaseException) -> None:
        """Note an error that an incarnation raised at its end, while being stopped."""
        ...

    def start_task(self, async_fn: Callable[..., Any], *args: Any, name: str, context: Context) -> None:
        """Start a task in the supervisor's nursery."""
        ...

    async def start_again(self, child: Any) -> None:
        """Start a child that was suspended, unless it is being stopped. Raises WrongState."""
        ...

    @property
    def lineage(self) -> tuple[tuple[str, str], ...]:
        """The name and the strategy of each supervisor from the root down to this one."""
        ...

    def child_path(self, name: str) -> str:
        """Return the path of a child of that name."""
        ...

    def ref_to(self, sibling: Any) -> Any:
        """Return the ref for a reference in a child spec."""
        ...


class Staging(Protocol):
    """Doubles of a test for agents and for the effects of messages; filled in by testing."""

    def make(self, slot: Any) -> Any:
        """Make the agent object of a slot. If this raises, the start fails with that error."""
        ...

    def table(self, slot: Any, agent: Any) -> dict[str, Any]:
        """Return the operations of a slot, by key, for the agent that was made for it."""
        ...

    def complain(self, text: str) -> None:
        """Note an error that makes the test fail."""
        ...


class StateKeeping(Protocol):
    """The states of durable agents in the store of the node; filled in by persistence."""

    writer: Any
    """The `StoreWriter` of the node, for all else that is kept in its store."""

    @property
    def retry_in(self) -> float | None:
        """The seconds until a failed store is tried again; None if the store works."""
        ...

    def why_suspended(self, slot: Any) -> tuple[str, float | None]:
        """Return what a suspended agent waits for, and the seconds until the next check, if known."""
        ...

    def agent_of(self, key: str) -> Any:
        """Return the slot of the agent with a given key, or None if this node has none."""
        ...

    def statistics(self) -> Any:
        """Return the counts of what has been written to the store, as `WriterStatistics`."""
        ...

    async def read_ahead(self, keys: Mapping[str, bool]) -> None:
        """Read, in one call of the store, the states of agents that are about to start, for `restore`.

        The value of each key is true if it is the agent's own key; then its lease is granted, too.
        """
        ...

    async def restore(self, slot: Any, agent: Any) -> None:
        """Restore the kept state of an agent that is about to start, and make its slot an output gate.

        Waits for commits of the last incarnation. Raises StoreFailed, StateMismatch, NameTaken, LeaseHeld.
        """
        ...


class Approver(Protocol):
    """The means of asking people to approve what agents want to do; filled in by the node."""

    async def ask(
        self, slot: Any, text: str, data: Any, key: str, expires: float, *, reuse: bool, reworded: Any
    ) -> bool:
        """Wait for the decision on a question of an agent; see `Agent.approve`."""
        ...

    async def ask_once(
        self, slot: Any, text: str, data: Any, form: Any, expires: float, caller: str | None, run: Any
    ) -> Any:
        """Wait for the decision on a question that ends with the run that asks; return the `Approval`.

        `form` is the JSON Schema of the answer, `caller` the path of the agent on whose behalf the question
        is asked, and `run` the run that works for that agent; None if there are several.
        """
        ...

    def heard(self, request: Any, standing: Any, question: dict[str, Any] | None, *, heeds: bool) -> Any:
        """Note the report of a request's node that its run waits for a person; `question` None: no longer.

        Return the record of that question from now on, or None; `standing` is the last record returned. With
        `heeds` the clocks of the work that waits for the request stand still meanwhile.
        """
        ...

    def asked(self, request: Any) -> str:
        """Return a text stating that a request, near or far, waits for a person, or "" if it does not."""
        ...

    @property
    def offers(self) -> Any:
        """The `Offers` that bring the questions of turns to the chat users who have to answer them."""
        ...

    @property
    def clocks(self) -> Any:
        """The `Clocks` that stand still while a person is asked."""
        ...

    @property
    def askers(self) -> Any:
        """The `Askers`: the runs that ask questions, by name."""
        ...


class AgentSupervisor(Protocol):
    """The supervisor under one incarnation of an agent, with which it ends; filled in by supervision."""

    supervisor: Any
    """The `Supervisor` that users get."""

    async def start_class(self, factory: Callable[[], Any]) -> Any:
        """Start an agent named after its class, and return a ref to it."""
        ...

    async def ready(self) -> None:
        """Wait until the agent's permanent children run. Raises StartFailed."""
        ...

    def stop_children(self, shutdown: float | str) -> None:
        """Stop the children in reverse start order, or all at once after `shutdown` seconds, and then end."""
        ...

    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        ...

    async def wait_ended(self) -> None:
        """Wait until all children have ended."""
        ...


class Startable(Protocol[A_co]):
    """A spec that starts one agent: a ChildSpec."""

    @property
    def factory(self) -> Callable[[], A_co]:
        """The function that makes the agent, called for each incarnation."""
        ...


class Circles(Protocol):
    """The search for circles of waits; see `_blocking.py`."""

    def closed_by(self, envelope: Envelope) -> tuple[str, ...]:
        """Return the waits of the deadlock that a message would close by waiting for a seat, or ()."""
        ...

    def look_again(self, changed: Any) -> None:
        """Check whether a change has closed a circle, once the code that runs now has yielded.

        `changed` is an envelope that has begun to be waited for, a node of the waiting graph that has lost a
        way to go on, or a request to another node for which this task begins to wait.
        """
        ...

    def describe(
        self, request: Any, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None], *, shows: bool
    ) -> None:
        """Report to another node what its request waits for; `asked`: ids on the way here, its own last."""
        ...


class Starter(Protocol):
    """A function that makes the supervisor under an agent, at its first use; filled in by the node."""

    def __call__(self, slot: Any, /) -> AgentSupervisor:
        """Make the supervisor and start it; at its end it calls the slot's `children_ended`."""
        ...


@attrs.frozen
class DeadLetter:
    """A message that no agent handled and whose sender gets no error."""

    reason: str
    agent: str
    affordance: str
    message: str
    sender: str | None = None
    time: float = attrs.field(default=0.0, eq=False, repr=False)
    """When it was lost, in Unix time."""


@disable_ki_protection
def interruptible(fn: Callable[[], Any]) -> Any:
    """Call user code in such a way that Ctrl-C may interrupt it, unlike the runtime's code around it."""
    return fn()


class SimulatedNodes(Protocol):
    """The nodes of a simulated network, whose agents all run in one real node; filled in by a run."""

    def of_path(self, path: str, /) -> str:
        """Return the simulated node of the agent at a path."""
        ...

    def ref(self, ref: Any, /) -> Any:
        """Return a ref to the same agent whose requests cross the simulated network."""
        ...


class Turns:
    """The turn that runs now, its message, and how many more may run before a checkpoint.

    All nodes of one `trio.run` share this record, as one turn runs at a time, and its agent may send to
    agents of any of these nodes. `current` is an item of a mailbox. If the turn runs in its asker's step,
    `current` is only the operation, as the present task's context names the sender.
    """

    __slots__ = ("budget", "current", "durables", "leave", "slot")

    def __init__(self) -> None:
        self.slot: Any = None  # the `Slot`, a class that stands above this file
        self.current: Any = None
        self.leave = False
        self.budget = BUDGET
        self.durables = 0  # durable agents there have been, and turns that may be resumed: none costs nothing

    def misuse(self, verb: str, *, of: str = "ref.", how: str = "awaited") -> RuntimeError:
        """Make the error for a `def` handler that calls something awaitable; it names handler and line."""
        agent = self.slot.path if self.slot is not None else "?"
        way = "make the handler async def" + (", or use self.send(...)" if of == "ref." else "")
        return RuntimeError(
            f"{of}{verb}(...) has to be {how}, and the turn {title_of(self.current)!r} of {agent!r} "
            f"that calls it is a def: {way} ({_caller()})"
        )


_turns: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("lmos_actors.turns")


_INNER: Final = (os.path.dirname(os.path.dirname(__file__)) + os.sep, contextlib.__file__)
"""The files of this package, and the file of the context managers that it makes."""


def title_of(current: Any) -> str:
    """Return a name for a turn: its affordance, the method of a timer, or `started`."""
    if isinstance(current, InternalTurn):
        return str(getattr(current.fn, "__qualname__", "timer"))
    op = current if isinstance(current, Operation) else getattr(current, "op", None)
    if op is None and isinstance(current, tuple):
        op = current[0]  # pyright: ignore[reportUnknownVariableType]
    return op.name if isinstance(op, Operation) else "started"


def place_of_caller() -> tuple[str, int]:
    """Return the file and the line of the innermost call outside this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] # documented by CPython
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _caller() -> str:
    """Return the place of the caller as text: `weather.py, line 12`."""
    file, line = place_of_caller()
    return f"{os.path.basename(file)}, line {line}"


def _base_context(rt: Runtime) -> Context:
    """Return the context in which agents start, without the run or span that may have opened the node."""
    context = copy_context()
    context.run(RUNTIME.set, rt)
    context.run(CURRENT.set, None)
    contexts = sys.modules.get("opentelemetry.context")  # without it there is no span
    if contexts is not None:
        context.run(contexts.attach, contexts.Context())
    return context


F = TypeVar("F", bound="Callable[..., Any]")


def awaited(of: str) -> Callable[[F], F]:
    """Decorate an async function, so that a call in a `def` turn, which cannot await it, raises."""

    def decorate(fn: F) -> F:
        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            rt = RUNTIME.get()
            if rt is not None and rt.turns.slot is not None:
                raise rt.turns.misuse(fn.__name__, of=of)
            return fn(*args, **kwargs)

        return cast("F", call)

    return decorate


def asked_of_person(request: Any) -> str:
    """Return a text which states that a request waits for a person, or "" if it does not."""
    approvals = request.slot.rt.approvals
    return "" if approvals is None else approvals.asked(request)


class Deadlines:
    """The deadlines of asks, with one timer for all deadlines in the same hundredth of a second."""

    __slots__ = ("_buckets", "_now", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._now = trio.lowlevel.current_clock().current_time  # what `trio.current_time` calls in the end
        self._buckets: dict[int, Bucket] = {}

    def add(self, ask: Ask, seconds: float) -> None:
        """Make an ask fail with `DeadlineExceeded` if it is unanswered after `seconds`."""
        when = self._now() + seconds
        tick = int(when / DEADLINE_GRAIN) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = Bucket()
            bucket.tick = tick
            bucket.far = seconds > FAR
            bucket.timer = self._timers.call_at(tick * DEADLINE_GRAIN, lambda: self._sweep(tick))
        bucket[ask] = (seconds, when)
        ask.bucket = bucket

    def forget(self, ask: Ask) -> None:
        """Note that an ask no longer waits; the last ask to leave a far bucket cancels the bucket's timer."""
        bucket = ask.bucket
        if bucket is None or bucket.pop(ask, None) is None:
            return
        if bucket.far and not bucket and self._buckets.get(bucket.tick) is bucket:
            del self._buckets[bucket.tick]
            bucket.timer.cancel()

    def close(self) -> None:
        """Cancel all deadlines, as the node has ended."""
        for bucket in self._buckets.values():
            bucket.timer.cancel()
        self._buckets.clear()

    def _sweep(self, tick: int) -> None:
        for ask, (seconds, _) in tuple(self._buckets.pop(tick).items()):
            why = asked_of_person(ask)  # its withdrawal ends that
            if ask.slot.withdraw(ask):
                ask.fail(DeadlineExceeded(ask.slot.path, seconds, why=why))


class Runtime:
    """The shared machinery of one node's agents."""

    edge: Edge | None = None  # measures and traces requests from and to other nodes
    seeker: RemoteLookup | None = None
    relays: tuple[RelayLookup, ...] = ()  # the relays to whose agents refs lead
    remote_ref: Callable[[type[Any], str, str], Any] | None = None
    """Returns a ref to an agent of another node, by that node's address and the agent's id there."""
    spread: Spreading | None = None
    keeping: StateKeeping | None = None  # of nodes with a store
    approvals: Approver | None = None
    is_guarded: bool = False  # clients are strangers: `node/_options.py`
    starts: Starts
    circles: Circles
    full_slots: dict[Any, None]  # those in whose mailboxes messages wait for a seat
    is_in_line: bool = False  # whether a request has ever had to wait for a run: no circle without
    files: Any = None  # those that chat clients have uploaded, filled in by the facade
    wires: Any = None  # network, trust and credentials of connections to others, filled in by the node
    messages: int = 0  # numbered where an instrument looks
    signalling: bool = False
    unkept_runs: frozenset[tuple[type, str]] = frozenset()  # actions that `_unkept_runs.py` has named
    repeated_calls: frozenset[tuple[type, str]] = frozenset()  # those that `RepeatedCallWarning` has named
    strict_resume: bool = False  # whether these are refused
    trace_context: Any = None  # made at its first use, see `_trace_context.py`
    nodes: SimulatedNodes | None = None  # those that its agents stand for, in a simulated network
    run_worked: Callable[[Any, Any, Any], None] | None = None
    """Runs the turn of an agent whose work is done, while the dispatcher advances virtual time."""

    def __init__(
        self,
        *,
        timers: Timers,
        entropy: Entropy,
        instrument: Instrument | None,
        real: bool,
        dead_letters: int,
        crash_reports: int,
    ) -> None:
        self.timers = timers
        self.entropy = entropy
        self.instrument = instrument
        self.real = real
        try:
            self.turns = _turns.get()  # all runtimes of one `trio.run` share them
        except LookupError:
            self.turns = Turns()
            _turns.set(self.turns)
        self.ready: deque[Any] = deque()  # slots with mail
        self.dispatcher: trio.lowlevel.Task | None = None
        self.deadlines = Deadlines(timers)
        self.dead_letters: deque[DeadLetter] = deque(maxlen=dead_letters)
        self.dead_letter_count = 0
        self.dead_letter_feeds: list[Feed[DeadLetter]] = []
        self.crashes = Crashes(crash_reports, log=real and instrument is None)
        self.slots_made = 0
        self.tally = Tally()
        self.link: Any = None  # the class of slots: plain, or traced where an instrument looks
        self.fatal: Callable[[BaseException], None] | None = None
        self.wake_watchdog: Callable[[], None] | None = None
        self.resolver: Resolver | None = None
        self.population = Population()
        self.starter: Starter | None = None
        self.outside: Any = None  # threads and processes, filled in by the node
        self.staging: Staging | None = None
        self.appeared: list[trio.lowlevel.Task] = []
        self.ready_waits = ReadyWaits(timers, log=real)
        self.outboxes: dict[Outbox, None] = {}  # of the connections to other nodes
        self.topics: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.groups: dict[str, Any] = {}  # those with members or watchers, see `_groups.py`
        self.absent: Any = None  # followings of agents that have not appeared, see `_follow.py`
        self.signals: deque[tuple[Any, Any]] = deque()  # exit signals on their way, see `_links.py`
        self.being_killed: list[Any] = []  # supervisors to kill, see `supervision/_loop.py`
        self.thread = threading.get_ident()
        self.token: Any = None  # of the trio run, once the dispatcher runs
        self.ended = False
        self.failed = False  # the node is ending by an error: no agent is restarted any more
        self.base_context = _base_context(self)

    def approver(self) -> Approver:
        """Return the node's `Approver`. Raise RuntimeError on a node that has none."""
        if self.approvals is None:
            raise RuntimeError("this node has nobody to ask: open it by open_node")
        return self.approvals

    def end(self) -> None:
        """End the runtime: wake the tasks that wait for an agent to appear, and close all feeds."""
        self.ended = True
        for task in self.appeared:
            reschedule(task)
        self.appeared.clear()
        for listened in (*self.topics.values(), *self.groups.values()):
            listened.close()
        for feed in (*self.dead_letter_feeds, *self.crashes.feeds):
            feed.close()
        self.crashes.close()

    def node_of(self, slot: Any) -> str | None:
        """Return the simulated node of an agent, or None without a simulated network."""
        return None if self.nodes is None else self.nodes.of_path(slot.path)

    def schedule(self, slot: Any) -> None:
        """Put an agent that has mail in line for the dispatcher."""
        self.ready.append(slot)
        task = self.dispatcher
        if task is not None:
            self.dispatcher = None
            self.timers.woke = True
            try:
                reschedule(task)
            except RuntimeError:  # another thread: what it has queued is taken, so that nothing hangs
                self.dispatcher = task
                self.ready.pop()
                self.token.run_sync_soon(self.schedule, slot)
                raise RuntimeError("a ref works in its node's thread, others use node.portal()") from None

    def dead_letter(self, reason: str, slot: Any, sender: Any, affordance: str, message: object) -> None:
        """Record a message that no agent handled and whose sender gets no error. Never blocks."""
        text = describe(shown_message(slot, affordance, message))
        record = DeadLetter(
            reason=reason,
            agent=slot.path,
            affordance=affordance,
            message=text if len(text) <= SHOWN else text[:SHOWN] + "…",
            sender=sender.path if sender is not None else None,
            time=self.entropy.now().timestamp(),
        )
        self.dead_letters.append(record)
        self.dead_letter_count += 1
        for feed in self.dead_letter_feeds:
            feed.push(record)
        if self.instrument is not None:
            fields: dict[str, object] = {"reason": reason, "affordance": affordance, "from": record.sender}
            self.instrument.record("dead_letter", slot.path, fields)

    def note(self, kind: Any, envelope: Envelope, **fields: object) -> None:
        """Record one message with the instrument, if there is one."""
        if self.instrument is not None:
            number = envelope.trace[0] or None if envelope.trace is not None else None
            if "value" in fields:
                fields["value"] = conceal(fields["value"], envelope.op.result_secrecy)
            elif "error" in fields:
                hide_error(envelope, fields)
            members = {"id": number, "affordance": envelope.op.name, **fields}
            self.instrument.record(kind, envelope.slot.path, members)

    def record(self, kind: Any, slot: Any, **fields: object) -> None:
        """Record an event of a slot with the instrument, if there is one."""
        if self.instrument is not None:
            self.instrument.record(kind, slot.path, fields)
