"""Digests of the states that a run reaches, for `explore`: small numbers that show whether a state is new.

A state is the value of one field of an agent, by its class. Work in progress and waiting messages count as
fields, too. So do the values of all agents of a class in that field together, in no order: this shows two
leaders, whichever agents they are. Numbers and long texts are made coarse. The upper half of a digest
identifies the field, so that a search can distinguish useful fields from mere counters. Secrets are left out.

A sample is taken of each agent with a record since the last sample. At the start of a run samples are as
frequent as records, and later less frequent, so that a long run costs hardly more than a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

import attrs
import trio

from lmos_actors.actors import Ref, fields_of, message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.actors import Slot

    from ...judge import AgentDirectory

MOST_VALUES: Final = 24
"""Maximum number of values of one field in one run."""

MOST_INSTANTS: Final = 128
"""Maximum number of instants of one run; if there are more, every second is left out."""

MOST_AGENTS: Final = 32
"""Maximum number of agents in one sample."""

_SMALL: Final = 16
_HALF: Final = 0xFFFF
_EVEN: Final = 0xFFFE
_MOST_PARTS: Final = 8
_DEEPEST: Final = 4


@attrs.define(eq=False)
class _Field:
    """The values of one field of a class: those seen so far, and the present value of each agent."""

    group: int
    seen: set[int] = attrs.Factory(set[int])
    present: dict[str, int] = attrs.Factory(dict[str, int])
    total: int = 0

    def note(self, path: str, value: int, states: dict[int, None]) -> None:
        """Note the present value of an agent, and add the states that are new to `states`."""
        before = self.present.get(path)
        if value == before:
            return
        self.present[path] = value
        self.total = (self.total + value - (before or 0)) & _HALF
        for half, digest in ((0, value & _HALF), (1, self.total)):
            state = (self.group ^ half) << 16 | digest
            if state not in self.seen and len(self.seen) < 2 * MOST_VALUES:
                self.seen.add(state)
                states[state] = None


class StateSampler:
    """An instrument that collects the digests of one run's states. One per run."""

    def __init__(self) -> None:
        self._directory: AgentDirectory | None = None
        self._fields: dict[tuple[str, str], _Field] = {}
        self._states: dict[int, None] = {}
        self._instants: dict[int, None] = {}
        self._changed: dict[str, None] = {}
        self._records = 0
        self._due = 1

    @property
    def states(self) -> tuple[int, ...]:
        """The digests of the states reached, in the order of the run."""
        return tuple(self._states)

    @property
    def instants(self) -> tuple[int, ...]:
        """The instants in microseconds at which a state was reached for the first time."""
        return tuple(self._instants)

    def begin(self, directory: AgentDirectory) -> None:
        """Begin to sample the agents of a run."""
        self._directory = directory

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        """Note the agent of a record, and take a sample if one is due."""
        self._records += 1
        self._changed[agent] = None
        if self._records >= self._due:
            self._due = self._records + 1 + self._records // 64
            self._sample()

    def _sample(self) -> None:
        changed = list(self._changed)[-MOST_AGENTS:]
        self._changed.clear()
        if self._directory is None:
            return
        before = len(self._states)
        for path in changed:
            found = self._directory.find(path)
            if found is not None and found[0] is not None:
                self._look_at(found[0])
        if len(self._states) > before:
            self._instants[round(trio.current_time() * 1_000_000)] = None
            if len(self._instants) > MOST_INSTANTS:
                self._instants = dict.fromkeys(list(self._instants)[::2])

    def _look_at(self, slot: Slot) -> None:
        name = "" if slot.agent is None else type(slot.agent).__name__
        for field, value in _fields(slot):
            found = self._fields.get((name, field))
            if found is None:
                found = self._fields[name, field] = _Field(crc32(f"{name}.{field}".encode()) & _EVEN)
            found.note(slot.path, crc32(repr(value).encode("utf-8", "surrogatepass")), self._states)


def _fields(slot: Slot) -> Iterator[tuple[str, object]]:
    """Yield the visible values of an agent with their names.

    The names that are added here, such as ` status`, begin with a blank, unlike the names of fields.
    """
    yield " status", (slot.status, min(slot.incarnation, 3))
    if slot.agent is None:
        return
    cls = cast("Any", type(slot.agent))
    for name, (value, secrecy) in fields_of(cls, slot.agent.__dict__).items():
        if not secrecy:
            yield name, _coarse(value, 0)
    runs: Iterable[Any] = slot.extra.runs if slot.extra is not None else ()
    yield " work", sorted(_names(run.envelope for run in runs))[:_MOST_PARTS]
    yield " waiting", _level(len(slot.queue))


def _names(items: Iterable[Any]) -> Iterable[str]:
    for item in items:
        message = message_of(item)
        if message is not None:
            yield message.name


def _coarse(value: Any, depth: int) -> object:
    """Return a coarse value: numbers by order of magnitude, collections by their first parts."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_SMALL <= value <= _SMALL else ("int", value < 0, value.bit_length())
    if isinstance(value, float):
        return ("float", value < 0, len(format(abs(int(value)), "b")) if abs(value) < 1e18 else 64)
    if isinstance(value, str):
        return value if len(value) <= 2 * _SMALL else ("text", _size(len(value)))
    if isinstance(value, Ref):
        return value.path
    if depth >= _DEEPEST:
        return type(value).__name__
    return _coarse_parts(value, depth + 1)


def _coarse_parts(value: Any, depth: int) -> object:
    if isinstance(value, dict):
        mapping: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        pairs = list(mapping.items())[:64]  # the rest would take time, and says little more
        parts = sorted(repr((_coarse(key, depth), _coarse(part, depth))) for key, part in pairs)
        return ("dict", _size(len(mapping)), parts[:_MOST_PARTS])
    if isinstance(value, (set, frozenset)):
        members = list(cast("set[Any]", value))
        parts = sorted(repr(_coarse(each, depth)) for each in members)
        return ("set", _size(len(members)), parts[:_MOST_PARTS])
    if isinstance(value, (list, tuple)):
        rows = list(cast("list[Any]", value))
        return ("list", _size(len(rows)), [_coarse(each, depth) for each in rows[:_MOST_PARTS]])
    cls = cast("Any", type(value))
    names: Any = getattr(cls, "__slots__", None) or getattr(value, "__dict__", ())
    if isinstance(names, str) or not names:
        return cls.__name__
    fields = [(name, _coarse(getattr(value, name, None), depth)) for name in list(names)[:_MOST_PARTS]]
    return (cls.__name__, fields)


def _level(number: int) -> int:
    """Return the number of messages in a mailbox, made coarse.

    It is exact up to 16 messages, and then in quarters of the order of magnitude. So a mailbox fills up in
    many steps, each of which counts as progress for a search.
    """
    if number <= _SMALL:
        return number
    unit = 1 << (number.bit_length() - 3)
    return number // unit * unit


def _size(number: int) -> int:
    """Return a number of items: up to 4 exactly, above that by order of magnitude."""
    return number if number <= 4 else 3 + number.bit_length()
