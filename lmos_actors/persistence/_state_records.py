"""The records of durable agents in the store, from which a new incarnation is restored.

See `_agent_states.py`, which writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.actors import TimerRecord, check_kept_behaviour, place_of
from lmos_actors.errors import StateMismatch, raise_interrupt

from ._keys import key_of, parts_of

if TYPE_CHECKING:
    from lmos_actors.actors import StateForm

    from ._writer import StoreWriter

SPACE: Final = "state"
"""The space of the store that holds the states of agents."""

JOURNAL: Final = "journal"
"""The space that holds their facts: the key of the agent, a separator, and the number of the fact."""

PAGE: Final = 1_000
"""Facts that are read at once."""


class StateRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The stored state of one agent."""

    title: str = msgspec.field(name="class")
    version: int
    at: float
    fields: msgspec.Raw
    facts: int = 0
    """The number of the last journal fact that the snapshot contains."""
    journal: bool = False
    """Whether facts of a journal may follow. From its first fact on a journal has a record with its class."""
    behaviour: str = ""
    timers: list[TimerRecord] = []


class FactRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One fact of a journal, or the behaviour and the timers that apply from there on."""

    version: int
    fact: dict[str, Any] | None = None
    behaviour: str = ""
    timers: list[TimerRecord] = []


@attrs.define
class Found:
    """The stored state of an agent that a restore has found."""

    exists: bool = False
    fields: bytes = b""
    """The fields as they were written; b"" if the store has none in the form of this version."""
    last_fact: int = 0
    facts: int = 0
    """The facts after the snapshot."""
    journal: bool = False
    """Whether the record belongs to a journal."""
    behaviour: str = ""
    timers: list[TimerRecord] = attrs.field(factory=list[TimerRecord])
    at: float | None = None
    """When its record was written, in Unix time."""


async def restored_from(
    writer: StoreWriter, key: str, kept: bytes | None, form: StateForm, agent: Any
) -> Found:
    """Restore an agent from its snapshot, if any, and later facts of its journal; return what was found."""
    found = Found()
    attributes: dict[str, Any] = agent.__dict__
    if kept is not None:
        record = _record(key, kept, form)
        attributes.update(form.restored(_fields(key, record), record.version, key))
        same = record.version == form.version
        found = Found(True, bytes(record.fields) if same else b"", record.facts, 0, record.journal)
        found.behaviour, found.timers, found.at = record.behaviour, record.timers, record.at
    if form.facts is not None or found.journal:
        await _apply(writer, key, form, agent, found)
    if found.behaviour:
        check_kept_behaviour(type(agent), found.behaviour, key)
        attributes["_behaviour"] = found.behaviour
    return found


async def _apply(writer: StoreWriter, key: str, form: StateForm, agent: Any, found: Found) -> None:
    """Apply the facts since the snapshot, page by page."""
    stop = fact_key(key, (1 << 64) - 1)
    while True:
        start = fact_key(key, found.last_fact + 1)
        page = await writer.scan(JOURNAL, start=start, stop=stop, limit=PAGE)
        if page and form.facts is None:
            why = f"it has a journal, and {form.title} keeps none"
            raise StateMismatch(key, f"{why}; it needs durable='journal' to have its facts")
        if page and not found.journal:
            raise StateMismatch(key, "the record before its journal is missing")
        for name, value in page:
            number = int(parts_of(name, 2)[1], 16)
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
            except BaseException as error:
                raise_interrupt(error)
                raise StateMismatch(
                    key,
                    f"{form.facts.title}.apply raised {type(error).__name__}: {error} at "
                    f"{place_of(error)} for fact {number} of its journal, {fact!r}",
                ) from error
        if len(page) < PAGE:
            return


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


def fact_key(key: str, number: int) -> str:
    """Return the key of a fact in the store."""
    return key_of(key, f"{number:016x}")
