"""The states of durable agents in the store: given back at the start, kept after each turn.

A record holds which class has written it, in which version, its fields, its behaviour and its durable timers:

    {"class": "shop.orders:Ledger", "version": 3, "at": 1790000000.0, "fields": {"balance": 12},
     "behaviour": "open", "timers": [{"turn": "remind", "due": "2026-11-22T21:00:00Z"}]}

Its key is that of the agent (`ChildSpec.key`, else its path in the tree). An agent whose record is of another
class is not started: two classes at one key are a mistake in a tree, and neither may overwrite the other.

What is written is compared with what was written last, as bytes: a turn that has changed nothing costs the
making of those bytes, and no commit. Fields cannot be watched instead, as a list may change in place.

Of a class with `durable="journal"` the facts of each turn are written instead, each under a number of its
own, and a snapshot once in a while, in one batch with the removal of the facts that are in it. A start reads
the snapshot and applies the facts after it. Where the behaviour or the timers have changed, both stand in the
journal too, in a record that has no fact.

The answers to requests with keys are written in the batch of the state that these have changed, also where
they have changed nothing (`_answers.py`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec
import trio

from lmos_actors.actors import (
    FIND_REF,
    KeyedRequests,
    OutputGate,
    TimerRecord,
    check_kept_behaviour,
    needs_name,
    park_among,
    place_of,
    ref_by,
    restored_timers,
    wake_all,
)
from lmos_actors.errors import NameTaken, StateMismatch, StoreFailed, WrongState

from ._answers import AgentAnswers, AnswerLookups
from ._store import DeleteRange, Put
from ._writer import HANGS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from lmos_actors.actors import DurableTimers, FactForm, KeptAnswer, Runtime, Slot, StateForm
    from lmos_actors.errors import WriteConflict

    from ._store import Durability, Write
    from ._writer import StoreWriter, WriterStatistics

SPACE: Final = "state"
"""The space of the store that holds the states of agents."""

JOURNAL: Final = "journal"
"""The space that holds their facts: the key of the agent, a separator, and the number of the fact."""

SEPARATOR: Final = "\x00"
LAST_FACT: Final = (1 << 64) - 1
FEW_OWNERS: Final = 64
MOST_AHEAD: Final = 1_024
PAGE: Final = 1_000
"""Facts that are read at once."""


class StateRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The stored state of one agent."""

    title: str = msgspec.field(name="class")
    version: int
    at: float
    fields: msgspec.Raw
    facts: int = 0
    """Number of the last fact of the journal that is in it."""
    journal: bool = False
    """Facts of a journal may follow. A journal has a record from its first fact on, which names its class."""
    behaviour: str = ""
    timers: list[TimerRecord] = []


class FactRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One fact of a journal, or the behaviour and the timers as they are from there on."""

    version: int
    fact: dict[str, Any] | None = None
    behaviour: str = ""
    timers: list[TimerRecord] = []


@attrs.define
class _Found:
    """The part of an agent's state that the store had."""

    exists: bool = False
    fields: bytes = b""
    """The fields as they were written, b"" where there are none in the form of this version."""
    last_fact: int = 0
    facts: int = 0
    """Facts after the snapshot."""
    journal: bool = False
    """The record is that of a journal."""
    behaviour: str = ""
    timers: list[TimerRecord] = attrs.field(factory=list[TimerRecord])


class AgentStates:
    """The states of the durable agents of one node; see `StateKeeping`."""

    def __init__(self, rt: Runtime, writer: StoreWriter, start_soon: Callable[..., None]) -> None:
        self._rt = rt
        self.writer = writer
        self._start_soon = start_soon
        self._suspended: dict[Slot, None] = {}
        self._owners: dict[str, _AgentState] = {}  # by key
        self._most_owners = FEW_OWNERS
        self._unsealed: dict[OutputGate, None] = {}
        self._ahead: dict[str, bytes | None] = {}  # records by key, of which no agent has had the key since
        self.lookups = AnswerLookups(writer, start_soon)
        """The looks into the store for kept answers."""

    @property
    def retry_in(self) -> float | None:
        """See `StateKeeping`."""
        return self.writer.retry_in

    def statistics(self) -> WriterStatistics:
        """See `StateKeeping`."""
        return self.writer.statistics()

    def end_process(self, keys: Container[str]) -> Callable[[Write], bool]:
        """Forget what the agents at these keys have handed over and no commit has begun with.

        In a simulation the process of these has ended, and that of others goes on. Return which writes are
        theirs.
        """

        def theirs(write: Write) -> bool:
            place = write.start if isinstance(write, DeleteRange) else write.key
            return place.partition(SEPARATOR)[0] in keys

        self.writer.discard(theirs)
        self._ahead = {key: record for key, record in self._ahead.items() if key not in keys}
        return theirs

    def suspend(self, slot: Slot) -> None:
        """End an agent of which a commit has failed, and start it again once the store works."""
        slot.suspend()
        if slot.suspended:
            self.resume_later(slot)

    def resume_later(self, slot: Slot) -> None:
        """Have an agent started once the store works."""
        if not self._suspended:
            self._start_soon(self._resume, name="agents of a store that failed")
        self._suspended[slot] = None

    async def _resume(self) -> None:
        """Wait until the store works, and start the agents that wait for it."""
        try:
            await self.writer.ready()
        except StoreFailed:  # the node ends
            return
        slots, self._suspended = self._suspended, {}
        for slot in slots:
            with suppress(WrongState):  # its supervisor has ended
                await slot.wait_down()
                await slot.owner.start_again(slot)

    async def read_ahead(self, keys: Sequence[str]) -> None:
        """See `StateKeeping`."""
        keys = list(filter(self._is_free, keys))
        try:
            found = await self.writer.get(SPACE, keys)
        except StoreFailed:  # each start will say so for itself
            return
        if len(self._ahead) > MOST_AHEAD:  # of agents that were not started after all
            self._ahead = {}
        self._ahead.update(
            (key, record) for key, record in zip(keys, found, strict=True) if self._is_free(key)
        )

    def _is_free(self, key: str) -> bool:
        owner = self._owners.get(key)
        return owner is None or owner.has_ended

    async def _read(self, key: str) -> bytes | None:
        """Return the record of an agent, None if there is none."""
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
            if slot.incarnation:
                self.resume_later(slot)
            raise

    async def _restore(self, slot: Slot, agent: Any) -> None:
        form: StateForm = agent.__contract__.state
        if slot.spec.is_unnamed:
            raise needs_name(type(agent).__name__)
        state = await self._claim(slot)
        gate = slot.output_gate or OutputGate(slot, state)
        # a supervisor restarts one child after another: a store that hangs must not hold up the others
        kept: bytes | None = None
        with trio.move_on_after(HANGS if slot.incarnation else math.inf) as scope:
            await state.wait_kept()
            kept = await self._read(state.key)
        if scope.cancelled_caught:
            raise StoreFailed(self.writer.name, f"it has not answered for {HANGS:g} s", "wait until it does")
        with_refs = FIND_REF.set(partial(ref_by, self._rt))
        try:
            found = await self._found(state.key, kept, form, agent)
            timers = restored_timers(slot, agent, found.timers, state.key)
        finally:
            FIND_REF.reset(with_refs)
        gate.begin(restored=found.exists)
        gate.timers = timers
        slot.ensure_extra()  # so that no turn runs in an asker's step, nor several in one batch
        state.begin(agent, form, found)
        slot.output_gate = gate

    async def _found(self, key: str, kept: bytes | None, form: StateForm, agent: Any) -> _Found:
        """Restore the snapshot of an agent, if it has one, and the facts since then; return both."""
        found = _Found()
        attributes: dict[str, Any] = agent.__dict__
        if kept is not None:
            record = _record(key, kept, form)
            attributes.update(form.restored(_fields(key, record), record.version, key))
            same = record.version == form.version
            found = _Found(True, bytes(record.fields) if same else b"", record.facts, 0, record.journal)
            found.behaviour, found.timers = record.behaviour, record.timers
        if form.facts is not None or found.journal:
            await self._apply(key, form, agent, found)
        if found.behaviour:
            check_kept_behaviour(type(agent), found.behaviour, key)
            attributes["_behaviour"] = found.behaviour
        return found

    async def _apply(self, key: str, form: StateForm, agent: Any, found: _Found) -> None:
        """Apply the facts since the snapshot, page by page."""
        stop = _fact_key(key, LAST_FACT)
        while True:
            start = _fact_key(key, found.last_fact + 1)
            page = await self.writer.scan(JOURNAL, start=start, stop=stop, limit=PAGE)
            if page and not (found.journal and form.facts):
                raise StateMismatch(key, _why_no_journal(form))
            for name, value in page:
                number = int(name.rpartition(SEPARATOR)[2], 16)
                if number != found.last_fact + 1:
                    raise StateMismatch(key, f"fact {found.last_fact + 1} of its journal is missing")
                found.last_fact, found.facts = number, found.facts + 1
                assert form.facts is not None
                record = _fact_record(key, number, value)
                if record.fact is None:
                    found.behaviour, found.timers = record.behaviour, record.timers
                    continue
                fact = form.facts.restored(record.fact, record.version, key, number)
                try:
                    agent.apply(fact)
                except Exception as error:
                    raise StateMismatch(
                        key,
                        f"{form.facts.title}.apply raised {type(error).__name__}: {error} at "
                        f"{place_of(error)} for fact {number} of its journal, {fact!r}",
                    ) from error
            if len(page) < PAGE:
                return

    async def _claim(self, slot: Slot) -> _AgentState:
        """Return the state of an agent, which is its alone from now on. Raises NameTaken.

        An agent that is stopped leaves its key to others, once what it has handed to the store is kept.
        """
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
        """Have a gate look at the state once another task runs."""
        if not self._unsealed:
            self._rt.timers.call_at(trio.current_time(), self._seal)
        self._unsealed[gate] = None

    def _seal(self) -> None:
        gates, self._unsealed = self._unsealed, {}
        for gate in gates:
            gate.seal_open()


def _record(key: str, found: bytes, form: StateForm) -> StateRecord:
    try:
        record = msgspec.json.decode(found, type=StateRecord)
    except msgspec.MsgspecError as error:
        raise StateMismatch(key, f"the record cannot be read: {error}") from None
    if record.title != form.title and record.title not in form.formerly:
        raise StateMismatch(
            key,
            f"it is that of {record.title}, and {form.title} is to start there; if the class was renamed, "
            f"say formerly=({record.title!r},) in its head",
        )
    return record


def _fields(key: str, record: StateRecord) -> dict[str, Any]:
    try:
        return msgspec.json.decode(record.fields, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise StateMismatch(key, f"its fields cannot be read: {error}") from None


def _fact_record(key: str, number: int, found: bytes) -> FactRecord:
    try:
        return msgspec.json.decode(found, type=FactRecord)
    except msgspec.MsgspecError as error:
        raise StateMismatch(key, f"fact {number} of its journal cannot be read: {error}") from None


def _why_no_journal(form: StateForm) -> str:
    if form.facts is None:
        return f"it has a journal, and {form.title} keeps none; it needs durable='journal' to have its facts"
    return "the record before its journal is missing"


def _fact_key(key: str, number: int) -> str:
    return f"{key}{SEPARATOR}{number:016x}"


class _AgentState:
    """The state of one agent; see `KeptState`."""

    __slots__ = (
        "_agent", "_answered", "_answers", "_behaviour", "_durability", "_facts", "_fields", "_form", "_kept",
        "_last_fact", "_noted", "_number", "_requests", "_states", "_touched", "_waiting", "has_state", "key",
        "slot",
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
        self._waiting: list[trio.lowlevel.Task] = []

    def begin(self, agent: Any, form: StateForm, found: _Found) -> None:
        """Begin an incarnation with what was found. Raises TypeError for an undeclared attribute."""
        form.check_attributes(agent)
        self._agent, self._form, self._fields = agent, form, found.fields
        if form.facts is not None:  # what the first fact is kept with, unless there is a record
            self._fields = b"" if found.journal else msgspec.json.encode(form.plain(agent))
        self._behaviour = agent._behaviour
        self._last_fact, self._facts, self.has_state = found.last_fact, found.facts, found.exists
        self._durability = agent.__contract__.options.durability or "process"
        self._noted = []
        self._answered = None
        self._touched = False
        if self._answers is not None:
            self._answers.reread()

    @property
    def is_live(self) -> bool:
        """Whether the agent runs, or is to run again without being asked to."""
        return not self.slot.gone and self.slot.status != "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether the agent is stopped, and nothing of it is on its way to the store."""
        return self._kept == self._number and not self.is_live

    @property
    def has_changes(self) -> bool:
        """See `KeptState`."""
        return bool(self._noted) or self._touched

    @property
    def is_whole_in_runs(self) -> bool:
        """See `KeptState`."""
        return not self.slot.serial or (self._form is not None and self._form.facts is not None)

    def note(self, fact: object) -> None:
        """See `KeptState`."""
        self._noted.append(fact)

    def touch(self) -> None:
        """See `KeptState`."""
        self._touched = True

    def forget(self) -> None:
        """See `KeptState`."""
        self._noted = []
        self._answered = None
        self._touched = False

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
        if writes:
            self.has_state = True
        if self._answered is not None:
            writes += self._answers_given(self._answered)
        if not writes:
            return 0
        self._number = number = self._number + 1
        done = partial(self._done, number)
        try:
            self._states.writer.submit(writes, self._durability, done)
        except StoreFailed as error:  # of another agent's commit: it fails as one of its own, and as soon
            self.slot.rt.timers.call_at(trio.current_time(), partial(done, error))
        return number

    def _changed(self, form: StateForm) -> list[Write]:
        """Return the write of a snapshot, none if it is as it was."""
        form.check_attributes(self._agent)
        fields = self._encoded(form)
        if fields == self._fields and not self._has_moved:
            return []
        form.check(self._agent)
        self._fields = fields
        return [self._snapshot(form, fields)]

    def _encoded(self, form: StateForm) -> bytes:
        """Return the fields as they are written. Raises TypeError for a value that is not of its type."""
        try:
            return msgspec.json.encode(form.plain(self._agent))
        except Exception:
            form.check(self._agent)  # which names what is wrong
            raise

    def _answers_given(self, answered: list[tuple[str, KeptAnswer]]) -> list[Write]:
        """Return the writes of the answers since the last time."""
        self._answered, answers = None, self._answers
        assert answers is not None
        return [write for name, answer in answered for write in answers.writes(name, answer)]

    @property
    def _has_moved(self) -> bool:
        """Whether the behaviour or the timers are other than they were written last."""
        return self._touched or self._behaviour != self._agent._behaviour

    def _standing(self) -> tuple[str, list[TimerRecord]]:
        """Return the behaviour and the timers, to be written."""
        gate = self.slot.output_gate
        timers: DurableTimers | None = None if gate is None else gate.timers
        self._behaviour, self._touched = self._agent._behaviour, False
        return self._behaviour, [] if timers is None else timers.records()

    def _recorded(self, form: StateForm, facts: FactForm) -> list[Write]:
        """Return the writes of the facts since the last time, and of a snapshot where one is due."""
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
            fields = self._encoded(form)
            form.check(self._agent)
            writes.append(self._snapshot(form, fields))
            end = _fact_key(self.key, self._last_fact + 1)
            writes.append(DeleteRange(JOURNAL, _fact_key(self.key, 0), end))
        return writes

    def _fact(self, record: FactRecord) -> Put:
        self._last_fact += 1
        return Put(JOURNAL, _fact_key(self.key, self._last_fact), msgspec.json.encode(record))

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
        """The commit of that number has ended."""
        self._kept = number
        gate = self.slot.output_gate
        if gate is not None:
            if error is None:
                gate.kept(number)
            else:
                gate.failed(f"its state was not kept: {error}")
                self._states.suspend(self.slot)
        if self._waiting:
            wake_all(self.slot.rt.timers, self._waiting)

    async def wait_kept(self) -> None:
        """Wait until no commit of the agent is under way."""
        while self._kept < self._number:
            await park_among(self._waiting)
