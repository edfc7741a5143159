"""The states of durable agents in the store: given back at the start, kept after each turn.

A record holds which class has written it, in which version, and its fields:

    {"class": "shop.orders:Ledger", "version": 3, "at": 1790000000.0, "fields": {"balance": 12}}

Its key is that of the agent (`ChildSpec.key`, else its path in the tree). An agent whose record is of another
class is not started: two classes at one key are a mistake in a tree, and neither may overwrite the other.

What is written is compared with what was written last, as bytes: a turn that has changed nothing costs the
making of those bytes, and no commit. Fields cannot be watched instead, as a list may change in place.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors.actors import FIND_REF, AgentQuery, LookupLink, OutputGate, Ref, park_among, wake_all
from lmos_actors.errors import NameTaken, StateMismatch, StoreFailed, WrongState

from ._store import Put

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime, Slot, StateForm
    from lmos_actors.errors import WriteConflict

    from ._store import Durability
    from ._writer import StoreWriter

SPACE: Final = "state"
"""The space of the store that holds the states of agents."""


class StateRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The stored state of one agent."""

    title: str = msgspec.field(name="class")
    version: int
    at: float
    fields: dict[str, Any]


class AgentStates:
    """The states of the durable agents of one node; see `StateKeeping`."""

    def __init__(self, rt: Runtime, writer: StoreWriter, start_soon: Callable[..., None]) -> None:
        self._rt = rt
        self._writer = writer
        self._start_soon = start_soon
        self._suspended: dict[Slot, None] = {}
        self._owners: dict[str, Slot] = {}
        self._unsealed: dict[OutputGate, None] = {}

    @property
    def retry_in(self) -> float | None:
        """See `StateKeeping`."""
        return self._writer.retry_in

    def suspend(self, slot: Slot) -> None:
        """End an agent of which a commit has failed, and start it again once the store works."""
        slot.suspend()
        self.resume_later(slot)

    def resume_later(self, slot: Slot) -> None:
        """Have an agent started once the store works."""
        if not self._suspended:
            self._start_soon(self._resume, name="agents of a store that failed")
        self._suspended[slot] = None

    async def _resume(self) -> None:
        """Wait until the store works, and start the agents that wait for it."""
        try:
            await self._writer.ready()
        except StoreFailed:  # the node ends
            return
        slots, self._suspended = self._suspended, {}
        for slot in slots:
            with suppress(WrongState):  # its supervisor has ended
                await slot.wait_down()
                await slot.owner.start_again(slot)

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
        key = self._claimed(slot)
        gate = slot.output_gate
        if gate is None:
            gate = OutputGate(slot, _AgentState(self, slot, key))
        state = gate.state
        assert isinstance(state, _AgentState)
        await state.wait_kept()
        (found,) = await self._writer.get(SPACE, [key])
        fields = b""
        if found is not None:
            record = _record(key, found, form)
            fields = msgspec.json.encode(record.fields)
            with_refs = FIND_REF.set(partial(_ref_to, self._rt))
            try:
                attributes: dict[str, Any] = agent.__dict__
                attributes.update(form.restored(record.fields, record.version, key))
            finally:
                FIND_REF.reset(with_refs)
            if record.version != form.version:
                fields = b""
        gate.restored = found is not None
        slot.ensure_extra()  # so that no turn runs in an asker's step, nor several in one batch
        state.begin(agent, form, fields, agent.__contract__.options.durability or "process")
        slot.output_gate = gate

    def _claimed(self, slot: Slot) -> str:
        """Return the key of an agent's state, which is its alone from now on. Raises NameTaken."""
        key: str = slot.spec.key or slot.path
        owner = self._owners.setdefault(key, slot)
        if owner is not slot:
            if not owner.gone:
                raise NameTaken(key, owner.path)
            self._owners[key] = slot
        return key

    def submit(
        self,
        key: str,
        value: bytes,
        durability: Durability,
        done: Callable[[StoreFailed | WriteConflict | None], None],
    ) -> None:
        """Hand a state to the store; see `StoreWriter.submit`."""
        self._writer.submit([Put(SPACE, key, value)], durability, done)

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


def _ref_to(rt: Runtime, path: str) -> Ref[Any]:
    return Ref(LookupLink(rt, AgentQuery(None, path, is_place=True)))


class _AgentState:
    """The state of one agent; see `KeptState`."""

    __slots__ = (
        "_agent",
        "_durability",
        "_fields",
        "_form",
        "_kept",
        "_key",
        "_number",
        "_slot",
        "_states",
        "_waiting",
    )  # fmt: skip

    def __init__(self, states: AgentStates, slot: Slot, key: str) -> None:
        self._states = states
        self._slot = slot
        self._key = key
        self._agent: Any = None
        self._form: StateForm | None = None
        self._fields = b""  # as they were written last
        self._durability: Durability = "process"
        self._number = 0
        self._kept = 0
        self._waiting: list[trio.lowlevel.Task] = []

    def begin(self, agent: Any, form: StateForm, fields: bytes, durability: Durability) -> None:
        """Begin an incarnation with these fields; b"" where the store has none in this form."""
        self._agent, self._form, self._fields, self._durability = agent, form, fields, durability

    def keep(self) -> int:
        """See `KeptState`."""
        form = self._form
        if form is None or self._slot.agent is not self._agent:  # between two incarnations
            return 0
        plain = form.plain(self._agent)
        fields = msgspec.json.encode(plain)
        if fields == self._fields:
            return 0
        self._fields = fields
        self._number = number = self._number + 1
        record = StateRecord(form.title, form.version, time.time(), plain)
        value = msgspec.json.encode(record)
        self._states.submit(self._key, value, self._durability, partial(self._done, number))
        return number

    def keep_soon(self) -> None:
        """See `KeptState`."""
        gate = self._slot.output_gate
        if gate is not None:
            self._states.seal_soon(gate)

    def _done(self, number: int, error: StoreFailed | WriteConflict | None) -> None:
        """The commit of that number has ended."""
        self._kept = number
        gate = self._slot.output_gate
        if gate is not None:
            if error is None:
                gate.kept(number)
            else:
                gate.failed(f"its state was not kept: {error}")
                self._states.suspend(self._slot)
        wake_all(self._slot.rt.timers, self._waiting)

    async def wait_kept(self) -> None:
        """Wait until no commit of the agent is under way."""
        while self._kept < self._number:
            await park_among(self._waiting)
