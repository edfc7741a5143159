"""The states of durable agents in the store: restored at the start, kept after each turn.

A record holds the class that wrote it, its version, its fields, its behaviour and its durable timers:

    {"class": "shop.orders:Ledger", "version": 3, "at": 1790000000.0, "fields": {"balance": 12},
     "behaviour": "open", "timers": [{"turn": "remind", "due": "2026-11-22T21:00:00Z"}]}

The key of the record is the agent's key: `ChildSpec.key`, or without one the agent's path in the tree. An
agent whose record was written by another class is not started: two classes with one key are a mistake in the
tree, and neither may overwrite the records of its namesake.

The encoded state is compared with the bytes that were written last: a turn that has changed nothing costs
encoding those bytes, but no commit. Fields cannot be watched instead, as a list may change in place.

For a class with `durable="journal"` the facts of each turn are written instead, each under a number of its
own, and now and then a snapshot, in one batch with the removal of the facts that it contains. A start reads
the snapshot and applies the facts after it. If the behaviour or the timers have changed, both are in the
journal too, in a record without a fact.

The answers to requests with keys are written in the batch of the state that the requests changed, even if
nothing changed (`_answers.py`).

An agent with a key of its own gets a lease (`_leases.py`) before its record is read, and each of its batches
depends on the lease. A first start waits for the lease inside the supervisor, and fails after a time; a
restart waits outside the supervisor, as it does while the store fails.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio

from lmos_actors.actors import (
    FIND_REF,
    KeyedRequests,
    OutputGate,
    needs_name,
    park_among,
    ref_by,
    restored_timers,
    wake_all,
)
from lmos_actors.errors import (
    ConfigError,
    LeaseHeld,
    LeaseLost,
    NameTaken,
    StoreFailed,
    WriteConflict,
    WrongState,
)

from ._answers import AgentAnswers, AnswerLookups
from ._keys import parts_of
from ._leases import POLL, SECONDS, WAIT, Lease, Leases
from ._state_records import JOURNAL, SPACE, FactRecord, Found, StateRecord, fact_key, restored_from
from ._store import DeleteRange, Put
from ._writer import HANGS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from lmos_actors.actors import (
        DurableTimers,
        FactForm,
        KeptAnswer,
        Runtime,
        Slot,
        StateForm,
        TimerRecord,
    )

    from ._store import Durability, Write
    from ._writer import StoreWriter, WriterStatistics

FEW_OWNERS: Final = 64
MOST_AHEAD: Final = 1_024


class AgentStates:
    """The states of the durable agents of one node; see `StateKeeping`.

    `home` returns the name of this node, for other nodes that share its store.
    """

    def __init__(
        self, rt: Runtime, writer: StoreWriter, start_soon: Callable[..., None], home: Callable[[], str]
    ) -> None:
        self._rt = rt
        self.writer = writer
        self._start_soon = start_soon
        self._suspended: dict[Slot, float] = {}  # with the seconds to wait once the store works
        self._owners: dict[str, _AgentState] = {}  # by key
        self._most_owners = FEW_OWNERS
        self._unsealed: dict[OutputGate, None] = {}
        self._ahead: dict[str, bytes | None] = {}  # records by key, of which no agent has had the key since
        self.lookups = AnswerLookups(writer, start_soon)
        """The lookups of kept answers in the store."""
        self.leases = Leases(rt, writer, home=home, is_wanted=_is_live, end_agent=self._end_agent)
        """The leases of the agents with keys of their own."""

    @property
    def retry_in(self) -> float | None:
        """See `StateKeeping`."""
        return self.writer.retry_in

    def why_suspended(self, slot: Slot) -> tuple[str, float | None]:
        """See `StateKeeping`."""
        state, retry_in = self._owners.get(slot.spec.key or slot.path), self.retry_in
        held = None if state is None or state.slot is not slot else state.held
        if held is not None and retry_in is None:
            return str(held), POLL
        return "it waits for its store" if retry_in is None else "its store fails", retry_in

    def agent_of(self, key: str) -> Slot | None:
        """See `StateKeeping`."""
        owner = self._owners.get(key)
        is_here = owner is not None and owner.has_own_key and owner.is_live and owner.held is None
        return owner.slot if owner is not None and is_here else None

    def close(self) -> None:
        """Release all leases: the agents have ended and the store is about to be closed."""
        self.leases.close()

    def statistics(self) -> WriterStatistics:
        """See `StateKeeping`."""
        return self.writer.statistics()

    def end_process(self, keys: Container[str]) -> Callable[[Write], bool]:
        """Forget the writes submitted by the agents at these keys, unless a commit already contains them.

        Used in a simulation, when the process of these agents has ended and other processes go on. Return a
        function that tells whether a write belongs to these agents.
        """

        def theirs(write: Write) -> bool:
            place = write.start if isinstance(write, DeleteRange) else write.key
            return parts_of(place, 2)[0] in keys

        self.writer.discard(theirs)
        for key, owner in self._owners.items():
            if key in keys:
                owner.end_lease()
        self._ahead = {key: record for key, record in self._ahead.items() if key not in keys}
        return theirs

    def suspend(self, slot: Slot) -> None:
        """End an agent whose commit has failed, and start it again once the store works."""
        slot.suspend()
        if slot.suspended:
            self.resume_later(slot)

    def resume_later(self, slot: Slot, pause: float = 0.0) -> None:
        """Have an agent started `pause` seconds after the store works again."""
        if not self._suspended:
            self._start_soon(self._resume, name="agents of a store that failed")
        self._suspended[slot] = pause

    async def _resume(self) -> None:
        """Wait until the store works, and start the agents that wait for it."""
        try:
            await self.writer.ready()
        except StoreFailed:  # the node ends
            return
        await trio.sleep(max(self._suspended.values()))
        slots, self._suspended = self._suspended, {}
        for slot in slots:
            with suppress(WrongState):  # its supervisor has ended
                await slot.wait_down()
                await slot.owner.start_again(slot)

    def _end_agent(self, slot: Slot, error: LeaseLost) -> None:
        """End the incarnation of an agent that has lost its lease; do nothing while it is being started."""
        if slot.agent is not None:
            slot.lose_lease(error)
            if slot.suspended:
                self.resume_later(slot)

    async def _wait_for_lease(self, slot: Slot, state: _AgentState) -> None:
        """Wait for the lease of a suspended agent, and start it again."""
        while slot.suspended and _is_live(slot):
            try:
                await state.take_lease(WAIT)
            except LeaseHeld:
                continue
            except StoreFailed:
                self.resume_later(slot, POLL)
            else:
                with suppress(WrongState):  # its supervisor has ended
                    await slot.wait_down()
                    await slot.owner.start_again(slot)
                if not _is_live(slot):  # it was stopped meanwhile
                    state.leave_lease()
            return

    async def read_ahead(self, keys: Mapping[str, bool]) -> None:
        """See `StateKeeping`."""
        if self.writer.is_shared:  # where it is read once there is a lease
            return
        free = list(filter(self._is_free, keys))
        try:
            await self.leases.grant_ahead([key for key in free if keys[key]])
            found = await self.writer.get(SPACE, free)
        except StoreFailed:  # each start will say so for itself
            return
        if len(self._ahead) > MOST_AHEAD:  # of agents that were not started after all
            self._ahead = {}
        self._ahead.update(
            (key, record) for key, record in zip(free, found, strict=True) if self._is_free(key)
        )

    def _is_free(self, key: str) -> bool:
        owner = self._owners.get(key)
        return owner is None or owner.has_ended

    async def _read(self, key: str) -> bytes | None:
        """Return the record of an agent; None if there is none."""
        if key in self._ahead:
            await trio.lowlevel.checkpoint_if_cancelled()
            return self._ahead.pop(key)
        (record,) = await self.writer.get(SPACE, [key])
        return record

    async def restore(self, slot: Slot, agent: Any) -> None:
        """See `StateKeeping`."""
        try:
            await self._restore(slot, agent)
        except StoreFailed:
            if slot.incarnation:  # with a pause, as it may be that only reading fails
                self.resume_later(slot, POLL)
            raise
        except LeaseHeld:
            state = self._owners.get(slot.spec.key or slot.path)
            if (slot.incarnation or slot.spec.standby) and state is not None:
                self._start_soon(self._wait_for_lease, slot, state, name=f"lease of {slot.path}")
            raise

    async def _restore(self, slot: Slot, agent: Any) -> None:
        form: StateForm = agent.__contract__.state
        if agent.__contract__.options.durability == "power" and not self.writer.keeps_power:
            raise ConfigError(
                f"{type(agent).__name__} has durability='power', and {self.writer.name} cannot keep a commit "
                "over a power failure: redis-cli config set appendfsync always"
            )
        if slot.spec.is_unnamed:
            raise needs_name(type(agent).__name__)
        state = await self._claim(slot)
        gate = slot.output_gate or OutputGate(slot, state)
        # a supervisor restarts one child after another: a store that hangs must not hold up the others
        kept: bytes | None = None
        with trio.move_on_after(HANGS if slot.incarnation else math.inf) as scope:
            await state.wait_kept()
            if state.has_own_key:
                await state.take_lease(0.0 if slot.incarnation or slot.spec.standby else WAIT)
            kept = await self._read(state.key)
        if scope.cancelled_caught:
            raise StoreFailed(self.writer.name, f"it has not answered for {HANGS:g} s", "wait until it does")
        with_refs = FIND_REF.set(partial(ref_by, self._rt))
        try:
            found = await restored_from(self.writer, state.key, kept, form, agent)
            timers = restored_timers(slot, agent, found.timers, state.key)
        finally:
            FIND_REF.reset(with_refs)
        state.check_lease()
        gate.begin(restored=found.exists)
        if gate.kept_at is None:
            gate.kept_at = found.at
        gate.timers = timers
        slot.ensure_extra()  # so that no turn runs in an asker's step, nor several in one batch
        state.begin(agent, form, found)
        slot.output_gate = gate

    async def _claim(self, slot: Slot) -> _AgentState:
        """Return the state of an agent, and reserve its key for this agent. Raises NameTaken.

        The key of a stopped agent becomes free once all writes that the agent has submitted are kept.
        """
        if self.writer.is_shared and slot.spec.key is None:
            raise ConfigError(
                f"{slot.path!r} is durable, and other nodes may have an agent of that path: in a store that "
                "nodes share each durable agent needs a key of its own, ChildSpec(key=...)"
            )
        key: str = slot.spec.key or slot.path
        if len(self._owners) >= self._most_owners:
            self._owners = {key: state for key, state in self._owners.items() if not state.has_ended}
            self._most_owners = max(FEW_OWNERS, 2 * len(self._owners))
        while (held := self._owners.get(key)) is not None and not held.has_ended:
            if held.slot is slot:
                return held
            if held.is_live:
                raise NameTaken(key, held.slot.path, wanted_by=slot.path)
            await held.wait_kept()
        if slot.output_gate is None:
            state = _AgentState(self, slot, key)
        else:
            state = cast("_AgentState", slot.output_gate.state)
        self._owners[key] = state
        return state

    def seal_soon(self, gate: OutputGate) -> None:
        """Schedule a check of the state behind a gate, which is made as soon as another task runs."""
        if not self._unsealed:
            self._rt.timers.call_at(trio.current_time(), self._seal)
        self._unsealed[gate] = None

    def _seal(self) -> None:
        gates, self._unsealed = self._unsealed, {}
        for gate in gates:
            gate.seal_open()


def _is_live(slot: Slot) -> bool:
    """Return whether an agent runs, or will run again without a request to start it."""
    return not slot.gone and slot.status != "stopped"


class _AgentState:
    """The state of one agent; see `KeptState`."""

    __slots__ = (
        "_agent", "_answered", "_answers", "_behaviour", "_durability", "_facts", "_fields", "_form", "_kept",
        "_last_fact", "_lease", "_noted", "_number", "_requests", "_states", "_touched", "_waiting",
        "has_changes", "has_state", "held", "key", "slot",
    )  # fmt: skip

    def __init__(self, states: AgentStates, slot: Slot, key: str) -> None:
        self._states = states
        self.slot = slot
        self.key = key
        self._agent: Any = None
        self._form: StateForm | None = None
        self._durability: Durability = "process"
        self._fields = b""  # as they were written last; of a journal: to be written with the first fact
        self._behaviour = ""  # as it was written last
        self._noted: list[object] = []  # facts that are not handed over yet
        self._touched = False  # timers have changed since then
        self._answered: list[tuple[str, KeptAnswer]] | None = None  # answers that are not
        self._answers: AgentAnswers | None = None
        self._requests: KeyedRequests | None = None
        self._last_fact = 0  # the number of the last one that was
        self._facts = 0  # those since the last snapshot
        self._number = 0
        self._kept = 0
        self.has_state = False
        self.has_changes = False
        self._lease: Lease | None = None  # where it has a key of its own
        self.held: LeaseHeld | None = None
        """The lease of another node, while this node waits for it."""
        self._waiting: list[trio.lowlevel.Task] = []

    def begin(self, agent: Any, form: StateForm, found: Found) -> None:
        """Begin an incarnation with the stored state. Raises TypeError for an undeclared attribute."""
        if not form.declared.issuperset(agent.__dict__):
            raise form.undeclared(agent)
        self._agent, self._form, self._fields = agent, form, found.fields
        if form.facts is not None:  # what the first fact is kept with, unless there is a record
            self._fields = b"" if found.journal else form.encoded(agent)
        self._behaviour = agent._behaviour
        self._last_fact, self._facts, self.has_state = found.last_fact, found.facts, found.exists
        self._durability = agent.__contract__.options.durability or "process"
        self._noted = []
        self._answered = None
        self._touched = self.has_changes = False
        if self._answers is not None:
            self._answers.reread()

    # ---- its lease

    @property
    def has_own_key(self) -> bool:
        """Whether the agent has a key of its own, and therefore a lease."""
        return self.slot.spec.key is not None

    @property
    def epoch(self) -> int | None:
        """See `KeptState`."""
        lease = self._lease
        return lease.epoch if lease is not None and lease.is_held else None

    async def take_lease(self, wait: float) -> None:
        """Take the lease, at a new epoch unless it is already held. Raises LeaseHeld, StoreFailed."""
        if self._lease is None or not self._lease.is_held:
            try:
                self._lease = await self._states.leases.acquire(self.slot, self.key, wait, self._lease)
            except LeaseHeld as error:
                self.held = error
                raise
        self._lease.make_up()
        self.held = None

    def check_lease(self) -> None:
        """Raise StoreFailed if the lease ended while the state was read."""
        if self._lease is not None and not self._lease.is_held:
            name = self._states.writer.name
            raise StoreFailed(name, f"reading took longer than the {SECONDS:g} s of a lease")

    def ended(self) -> None:
        """See `KeptState`."""
        if self.slot.status == "stopping":
            self.leave_lease()

    def end_lease(self) -> None:
        """Stop relying on the lease, as the process that held it has ended."""
        if self._lease is not None:
            self._lease.end()

    def leave_lease(self) -> None:
        """Release the lease to other nodes, if it is held."""
        if self._lease is not None:
            self._lease.release()

    def check(self) -> int:
        """See `KeptState`."""
        return 0 if self._lease is None or not self._lease.is_shared else self._submit([])

    # ---- keeping

    @property
    def is_live(self) -> bool:
        """Whether the agent runs, or will run again without a request to start it."""
        return _is_live(self.slot)

    @property
    def has_ended(self) -> bool:
        """Whether the agent is stopped, and all commits that it has submitted have ended."""
        return self._kept == self._number and not self.is_live

    @property
    def is_whole_in_runs(self) -> bool:
        """See `KeptState`."""
        return not self.slot.serial or (self._form is not None and self._form.facts is not None)

    def note(self, fact: object) -> None:
        """See `KeptState`."""
        self._noted.append(fact)
        self.has_changes = True

    def touch(self) -> None:
        """See `KeptState`."""
        self._touched = self.has_changes = True

    def forget(self) -> None:
        """See `KeptState`."""
        self._noted = []
        self._answered = None
        self._touched = self.has_changes = False

    @property
    def requests(self) -> KeyedRequests:
        """See `KeptState`."""
        requests = self._requests
        if requests is None:
            answers = AgentAnswers(self.key, self._states.lookups, self.slot.rt.entropy)
            self._answers, requests = answers, KeyedRequests(self.slot, answers)
            self._requests = requests
        return requests

    def keep_answer(self, name: str, answer: KeptAnswer) -> None:
        """See `KeptState`."""
        self._answered = [*(self._answered or ()), (name, answer)]

    def keep(self) -> int:
        """See `KeptState`."""
        form = self._form
        if form is None or self.slot.agent is not self._agent:  # between two incarnations
            return 0
        writes = self._changed(form) if form.facts is None else self._recorded(form, form.facts)
        self.has_changes = False
        if writes:
            self.has_state = True
        if self._answered is not None:
            answered, self._answered = self._answered, None
            assert self._answers is not None
            for name, answer in answered:
                writes += self._answers.writes(name, answer)
        return self._submit(writes) if writes else 0

    def _submit(self, writes: list[Write]) -> int:
        """Submit writes that are valid only while the lease is the newest; return the commit's number."""
        if self._lease is not None:
            writes.append(self._lease.check)
        self._number = number = self._number + 1
        done = partial(self._done, number)
        try:
            self._states.writer.submit(writes, self._durability, done)
        except StoreFailed as error:  # of another agent's commit: it fails as one of its own, and as soon
            self.slot.rt.timers.call_at(trio.current_time(), partial(done, error))
        return number

    def _changed(self, form: StateForm) -> list[Write]:
        """Return the write of a snapshot; no write if nothing has changed."""
        agent = self._agent
        if not form.declared.issuperset(agent.__dict__):
            raise form.undeclared(agent)
        fields = form.encoded(agent)
        if fields == self._fields and not self._has_moved:
            return []
        form.check(agent)
        self._fields = fields
        return [self._snapshot(form, fields)]

    @property
    def _has_moved(self) -> bool:
        """Whether the behaviour or the timers have changed since they were written last."""
        return self._touched or self._behaviour != self._agent._behaviour

    def _standing(self) -> tuple[str, list[TimerRecord]]:
        """Return the behaviour and the timers in the form in which they are stored."""
        gate = self.slot.output_gate
        timers: DurableTimers | None = None if gate is None else gate.timers
        self._behaviour, self._touched = self._agent._behaviour, False
        return self._behaviour, [] if timers is None else timers.records()

    def _recorded(self, form: StateForm, facts: FactForm) -> list[Write]:
        """Return the writes of the facts noted since the last call, and of a snapshot if one is due."""
        noted, self._noted = self._noted, []
        writes: list[Write] = []
        before = self._last_fact
        if self._fields and (noted or self._has_moved):
            writes.append(self._snapshot(form, self._fields))
            self._fields = b""
        for fact in noted:
            writes.append(self._fact(FactRecord(form.version, facts.plain(fact))))
        if self._has_moved:
            writes.append(self._fact(FactRecord(form.version, None, *self._standing())))
        self._facts += self._last_fact - before
        extra = self.slot.extra
        if self._facts >= facts.every and not (extra is not None and extra.runs):
            self._facts = 0
            fields = form.encoded(self._agent)
            form.check(self._agent)
            writes.append(self._snapshot(form, fields))
            end = fact_key(self.key, self._last_fact + 1)
            writes.append(DeleteRange(JOURNAL, fact_key(self.key, 0), end))
        return writes

    def _fact(self, record: FactRecord) -> Put:
        self._last_fact += 1
        return Put(JOURNAL, fact_key(self.key, self._last_fact), msgspec.json.encode(record))

    def _snapshot(self, form: StateForm, fields: bytes) -> Put:
        raw = msgspec.Raw(fields)
        is_journal = form.facts is not None
        record = StateRecord(
            form.title,
            form.version,
            self.slot.rt.entropy.stamp(),
            raw,
            self._last_fact,
            is_journal,
            *self._standing(),
        )
        return Put(SPACE, self.key, msgspec.json.encode(record))

    def keep_soon(self) -> None:
        """See `KeptState`."""
        gate = self.slot.output_gate
        if gate is not None:
            self._states.seal_soon(gate)

    def _done(self, number: int, error: StoreFailed | WriteConflict | None) -> None:
        """Note that the commit with a number has ended."""
        self._kept = number
        gate = self.slot.output_gate
        if gate is not None:
            if error is None:
                gate.kept(number)
            elif isinstance(error, WriteConflict) and self._lease is not None:
                gate.failed(f"another node runs the agent of the key {self.key!r}")
                self._lease.lose("another node has been granted it")
            else:
                gate.failed(f"its state was not kept: {error}")
                self._states.suspend(self.slot)
        if self._waiting:
            wake_all(self.slot.rt.timers, self._waiting)

    async def wait_kept(self) -> None:
        """Wait until no commit of the agent is in progress."""
        while self._kept < self._number:
            await park_among(self._waiting)
