"""Digests of the states that a run reaches, for `explore`: small numbers that say whether it went elsewhere.

A state is what agents have in their fields, what is in work and what waits, with numbers and long texts made
coarse: a counter of 130 and one of 140 are one state, as no search would come to an end otherwise. Each agent
that had a record since the last sample is looked at; samples are as dense as the records at the begin of a
run, and thinner later, so that a long run costs hardly more than a short one. What agents are the same in is
one state, whatever their names are; all of them together are another. Secrets are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

import trio

from lmos_actors.actors import Ref, fields_of, message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lmos_actors.actors import Slot

    from ..judge import AgentDirectory

MOST_STATES: Final = 192
"""Digests of states of single agents at most."""

MOST_WHOLE: Final = 64
"""Digests of all agents together at most; of more, every second is left out."""

MOST_INSTANTS: Final = 128
"""Instants of one run at most; of more, every second is left out."""

MOST_AGENTS: Final = 32
"""Agents that one sample looks at."""

_THINNER: Final = 64
_SMALL: Final = 16
_MOST_PARTS: Final = 8
_MOST_SORTED: Final = 64
_DEEPEST: Final = 4


class StateSampler:
    """Instrument that takes the digests of one run's states. One per run."""

    def __init__(self) -> None:
        self._directory: AgentDirectory | None = None
        self._states: dict[int, None] = {}
        self._whole: dict[int, None] = {}
        self._every = 1
        self._samples = 0
        self._instants: dict[int, None] = {}
        self._known: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._total = 0
        self._records = 0
        self._due = 1

    @property
    def states(self) -> tuple[int, ...]:
        """The digests of the states that were reached: of single agents, then of all together."""
        return (*self._states, *self._whole)

    @property
    def instants(self) -> tuple[int, ...]:
        """The instants at which a state was reached for the first time, in microseconds."""
        return tuple(self._instants)

    def begin(self, directory: AgentDirectory) -> None:
        """Look at the agents of a run from now on."""
        self._directory = directory

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        """Take one record of the run."""
        self._records += 1
        self._changed[agent] = None
        if self._records >= self._due:
            self._due = self._records + 1 + self._records // _THINNER
            self._sample()

    def _sample(self) -> None:
        directory = self._directory
        changed = list(self._changed)[-MOST_AGENTS:]
        self._changed.clear()
        if directory is None:
            return
        before = len(self._states)
        for path in changed:
            found = directory.find(path)
            if found is not None and found[0] is not None:
                digest = _digest(_agent(found[0]))
                self._total += digest - self._known.get(path, 0)
                self._known[path] = digest
                if len(self._states) < MOST_STATES:
                    self._states[digest | 1] = None
        if len(self._states) > before:
            self._note_instant()
        self._samples += 1
        if self._samples % self._every == 0:
            self._note_whole()

    def _note_whole(self) -> None:
        self._whole[self._total & 0xFFFFFFFE] = None
        if len(self._whole) > MOST_WHOLE:
            self._whole = dict.fromkeys(list(self._whole)[::2])
            self._every *= 2

    def _note_instant(self) -> None:
        self._instants[round(trio.current_time() * 1_000_000)] = None
        if len(self._instants) > MOST_INSTANTS:
            self._instants = dict.fromkeys(list(self._instants)[::2])


def _digest(value: object) -> int:
    return crc32(repr(value).encode("utf-8", "surrogatepass"))


def _agent(slot: Slot) -> tuple[object, ...]:
    agent: Any = slot.agent
    if agent is None:
        return (slot.status,)
    cls = cast("Any", type(agent))
    fields = fields_of(cls, agent.__dict__)
    state = [(name, _coarse(value, 0)) for name, (value, secrecy) in fields.items() if not secrecy]
    runs: Iterable[Any] = slot.extra.runs if slot.extra is not None else ()
    work = sorted(_names(run.envelope for run in runs))[:_MOST_PARTS]
    return (cls.__name__, slot.status, min(slot.incarnation, 3), state, work, _size(len(slot.queue)))


def _names(items: Iterable[Any]) -> Iterable[str]:
    for item in items:
        message = message_of(item)
        if message is not None:
            yield message.name


def _coarse(value: Any, depth: int) -> object:
    """Return a value with numbers by their order of magnitude, and collections by their first parts."""
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
        return _coarse_mapping(value, depth)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (set, frozenset)):
        members = list(cast("set[Any]", value))
        parts = sorted(repr(_coarse(each, depth)) for each in members)
        return ("set", _size(len(members)), parts[:_MOST_PARTS])
    if isinstance(value, (list, tuple)):
        rows = list(cast("list[Any]", value))
        return ("list", _size(len(rows)), [_coarse(each, depth) for each in rows[:_MOST_PARTS]])
    return _coarse_fields(value, depth)


def _coarse_mapping(value: Mapping[Any, Any], depth: int) -> object:
    items = list(value.items())[:_MOST_SORTED]
    parts = sorted(repr((_coarse(key, depth), _coarse(part, depth))) for key, part in items)
    return ("dict", _size(len(value)), parts[:_MOST_PARTS])


def _coarse_fields(value: Any, depth: int) -> object:
    cls = cast("Any", type(value))
    names: Any = getattr(cls, "__slots__", None) or getattr(value, "__dict__", ())
    if isinstance(names, str) or not names:
        return cls.__name__
    parts = [(name, _coarse(getattr(value, name, None), depth)) for name in list(names)[:_MOST_PARTS]]
    return (cls.__name__, parts)


def _size(number: int) -> int:
    """Return a number as it is while it is small, then its order of magnitude."""
    return number if number <= 4 else 3 + number.bit_length()
