"""Durable timers: turns that a durable agent has planned, and that outlive its incarnation.

The table of an agent's timers is kept as its fields are: with the turn that has changed it, in one batch.
What this file keeps true:

- A timer enters the table in the turn that sets it, and leaves it in the turn that cancels it. If that turn
  crashes, neither has happened: the next incarnation begins with the table that was kept.
- A timer leaves the table as its own turn begins. So it leaves the store together with the changes of that
  turn, and not before. If the process is killed in between, the next one finds the timer there, and the
  timer fires again; with regard to kept state it has fired once. A timer whose turn crashes has not fired.
- Instants are kept as wall-clock time. A living incarnation waits on the clock of its run, which is never set
  back; only the next incarnation has to rely on the wall clock.
- Late timers fire once `started()` has run, in the order in which they were due.

`@every(durable=True)` belongs to the class, and only its rhythm is kept: the instant of the next firing. When
the turn of a firing begins, the instant moves on, past all missed firings.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import StateMismatch

from .._trace_context import current_mark
from ..declaration._history import kept_turn
from ..finding._registry import ref_by
from ..messages._mailbox import InternalTurn, PeriodicTurn
from ..slot._skewed_clock import clock_seconds, date_of, world_seconds
from ._kept_state import FIND_REF
from ._kept_turns import method_of, turn_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors._core import Timer

    from ..messages._mailbox import Mark
    from ..slot._slot import Slot

MOST: Final = 256
"""Durable timers that an agent may have set at a time: they are written with each change of one."""


class TimerRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A durable timer in its stored form. A timer with `every` is a rhythm of the class."""

    turn: str
    due: datetime
    arguments: dict[str, Any] = {}
    every: float = 0.0


class _Planned:
    """A turn that an agent has planned."""

    __slots__ = ("alarm", "record", "timers", "trace", "values")

    def __init__(
        self, timers: DurableTimers, record: TimerRecord, values: dict[str, Any], trace: Mark | None = None
    ) -> None:
        self.timers = timers
        self.record = record
        self.values = values
        """The arguments of its method, by parameter."""
        self.trace = trace
        self.alarm: Timer | None = None

    @property
    def title(self) -> str:
        """The name of the method that runs, marked as durable."""
        return f"{self.record.turn} (durable)"

    def start(self, seconds: float) -> None:
        """Schedule the turn `seconds` from now by the agent's clock, while this incarnation lives."""
        slot = self.timers.slot
        self.alarm = slot.rt.timers.call_after(world_seconds(slot, seconds), self.fire)
        slot.keep_timer(self.alarm)

    def fire(self) -> None:
        """Queue the planned turn."""
        if self.alarm is not None:
            self.alarm.leave()
        self.timers.slot.put(_DueTurn(self))


@attrs.frozen(repr=False)
class DurableTimer:
    """A turn that a durable agent has planned by `self.after(seconds, turn, ..., durable=True)`."""

    _planned: _Planned

    def __repr__(self) -> str:
        return f"<DurableTimer {self.turn} at {self.due:%Y-%m-%d %H:%M:%S} UTC>"

    @property
    def turn(self) -> str:
        """The name of the method that will run."""
        return self._planned.record.turn

    @property
    def due(self) -> datetime:
        """The time at which the turn runs, in UTC."""
        return self._planned.record.due

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments given for the method, by parameter."""
        return dict(self._planned.values)

    @enable_ki_protection
    def cancel(self) -> None:
        """Cancel the turn, even if it is due and waits; the cancel is kept with the current turn.

        Never blocks; late or repeated calls do nothing.
        """
        planned = self._planned
        if planned.timers.remove(planned) and planned.alarm is not None:
            planned.alarm.cancel()


class _DueTurn(InternalTurn):
    """The turn of a due timer, which does nothing if the timer is cancelled before the turn begins."""

    __slots__ = ("_planned",)

    def __init__(self, planned: _Planned) -> None:
        agent, name = planned.timers.agent, planned.record.turn
        args, kwargs = turn_form(type(agent), name).call(planned.values)
        fn: Callable[..., None] = kept_turn(agent, getattr(agent, name))
        super().__init__(partial(fn, **kwargs) if kwargs else fn, args)
        self.trace = planned.trace
        self._planned = planned

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Remove the timer, and return the function to run now."""
        if self._planned.timers.remove(self._planned):
            return super().take()
        return _do_nothing, ()


def _do_nothing() -> None:
    """Do nothing, as the turn of a cancelled timer."""


class _Rhythm(PeriodicTurn):
    """The rhythm of one method with `@every(durable=True)`, and the time of its next turn."""

    __slots__ = ("_alarm", "_timers", "name", "seconds", "when")

    def __init__(self, timers: DurableTimers, name: str, seconds: float, when: float) -> None:
        super().__init__(kept_turn(timers.agent, getattr(timers.agent, name)))
        self._timers = timers
        self._alarm: Timer | None = None
        self.name = name
        self.seconds = seconds
        self.when = when
        """The instant of the first firing whose turn has not begun, in the time of the run."""

    def start(self, seconds: float) -> None:
        """Schedule the next firing `seconds` from now, while this incarnation lives."""
        slot = self._timers.slot
        self._alarm = slot.rt.timers.call_after(seconds, self.fire)
        slot.keep_timer(self._alarm)

    def fire(self) -> None:
        """Schedule the next firing, and queue the turn unless one is waiting already."""
        if self._alarm is not None:
            self._alarm.leave()
        self.start(max(0.0, self._next() - trio.current_time()))
        if not self.waiting:
            self.waiting = True
            self._timers.slot.put(self)

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function to run now, into which all firings until now are merged."""
        self.move_on()
        return super().take()

    def taken_up(self) -> InternalTurn:
        """Return the turn to run after its service time; the rhythm moves on when that turn begins."""
        self.waiting = False
        return _Beat(self)

    def move_on(self) -> None:
        """Move on to the next instant after now, when a turn begins."""
        if self.when <= trio.current_time():  # else an earlier firing was worked on for long
            self.when = self._next()
        self._timers.touch()

    def _next(self) -> float:
        period = world_seconds(self._timers.slot, self.seconds)
        missed = max(0, int((trio.current_time() - self.when) / period))
        return self.when + (missed + 1) * period


class _Beat(InternalTurn):
    """The turn of a rhythm, once the agent's service time for it has begun."""

    __slots__ = ("_rhythm",)

    def __init__(self, rhythm: _Rhythm) -> None:
        super().__init__(rhythm.fn)
        self._rhythm = rhythm

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Move the rhythm on, and return the function to run now."""
        self._rhythm.move_on()
        return super().take()


class DurableTimers:
    """The durable timers of one incarnation."""

    __slots__ = ("_has_new_rhythm", "_pending", "_rhythms", "agent", "slot")

    def __init__(self, slot: Slot, agent: Any) -> None:
        self.slot = slot
        self.agent = agent
        self._has_new_rhythm = False
        self._pending: dict[_Planned, None] = {}
        self._rhythms: list[_Rhythm] = []

    @property
    def pending(self) -> tuple[DurableTimer, ...]:
        """The timers that were set and have neither fired nor been cancelled, the next one first."""
        return tuple(map(DurableTimer, sorted(self._pending, key=_due)))

    def records(self) -> list[TimerRecord]:
        """Return all timers in their stored form."""
        present, now = date_of(self.slot), trio.current_time()
        rhythms = [
            TimerRecord(
                each.name,
                present + timedelta(seconds=clock_seconds(self.slot, each.when - now)),
                every=each.seconds,
            )
            for each in self._rhythms
        ]
        return [*rhythms, *(timer.record for timer in self._pending)]

    def touch(self) -> None:
        """Note that the table has changed and has to be kept."""
        gate = self.slot.output_gate
        if gate is not None and gate.timers is self:
            gate.touch()

    def remove(self, timer: _Planned) -> bool:
        """Remove a timer; return False if it was removed before."""
        if timer not in self._pending:
            return False
        del self._pending[timer]
        self.touch()
        return True

    def add(
        self, seconds: float, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> DurableTimer:
        """Plan the run of a method `seconds` from now. Raises the same errors as `Agent.after`."""
        form = turn_form(type(self.agent), name)
        if len(self._pending) >= MOST:
            raise RuntimeError(f"{self.slot.path} has {MOST} durable timers, and can have no more at a time")
        with_refs = FIND_REF.set(partial(ref_by, self.slot.rt))
        try:
            plain = form.plain(args, kwargs)
            values = form.restored(plain)
        finally:
            FIND_REF.reset(with_refs)
        try:
            due = date_of(self.slot) + timedelta(seconds=seconds)
        except OverflowError:
            raise ValueError(f"after() cannot keep a timer that is due in {seconds!r} s") from None
        trace = current_mark(self.slot.rt) if self.slot.traced else None
        timer = _Planned(self, TimerRecord(name, due, plain), values, trace)
        self._pending[timer] = None
        timer.start(seconds)
        self.touch()
        return DurableTimer(timer)

    def restore(self, records: Iterable[TimerRecord], key: str) -> None:
        """Load the kept timers. Raises StateMismatch for a turn that the class can no longer run."""
        kept: dict[str, TimerRecord] = {}
        for record in records:
            if record.every:
                kept[record.turn] = record
                continue
            try:
                values = turn_form(type(self.agent), record.turn).restored(record.arguments)
            except (AttributeError, TypeError) as error:
                raise StateMismatch(
                    key, f"a timer is to run {record.turn!r} at {record.due}: {error}; {_WAY_OUT}"
                ) from None
            self._pending[_Planned(self, record, values)] = None
        present, now = date_of(self.slot), trio.current_time()
        for seconds, name in self.agent.__contract__.durable_periodic:
            ahead = (kept[name].due - present).total_seconds() if name in kept else seconds
            self._rhythms.append(
                _Rhythm(self, name, seconds, now + world_seconds(self.slot, min(ahead, seconds)))
            )
            self._has_new_rhythm |= name not in kept

    def begin(self) -> None:
        """Start the clocks of all kept timers, as the agent has started; fire those that are late."""
        present, now = date_of(self.slot), trio.current_time()
        late: list[tuple[datetime, _Planned | _Rhythm]] = []
        for rhythm in self._rhythms:
            if rhythm.when > now:
                rhythm.start(rhythm.when - now)
            else:
                late.append((present + timedelta(seconds=rhythm.when - now), rhythm))
        for timer in self._pending:
            if timer.alarm is not None:  # set by this incarnation
                continue
            ahead = (timer.record.due - present).total_seconds()
            if ahead > 0:
                timer.start(ahead)
            else:
                late.append((timer.record.due, timer))
        for _, each in sorted(late, key=_first):
            each.fire()
        if self._has_new_rhythm:
            self.touch()


_WAY_OUT: Final = "have a method of that name that takes these arguments"


def _due(timer: _Planned) -> datetime:
    return timer.record.due


def _first(each: tuple[datetime, object]) -> datetime:
    return each[0]


def restored_timers(slot: Slot, agent: Any, records: Iterable[TimerRecord], key: str) -> DurableTimers | None:
    """Return the timers of a new incarnation, or None if it has none. Raises StateMismatch."""
    if not records and not agent.__contract__.durable_periodic:
        return None
    timers = DurableTimers(slot, agent)
    timers.restore(records, key)
    return timers


def timers_of_agent(agent: Any) -> DurableTimers:
    """Return the durable timers of an agent, made at the first call. Raises TypeError if not durable."""
    gate, title = agent._place().output_gate, agent.__contract__.title
    if gate is None:
        raise TypeError(f"{title} has no durable timers: class {title}(Agent, durable=True)")
    if gate.timers is None:
        gate.timers = DurableTimers(agent._place(), agent)
    timers: DurableTimers = gate.timers
    return timers


@enable_ki_protection
def turn_after_durably(
    agent: Any, seconds: float, turn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> DurableTimer:
    """Run a turn `seconds` from now, in this incarnation or a later one; see `Agent.after`."""
    timers = timers_of_agent(agent)
    name = getattr(turn, "__name__", "")
    found = method_of(type(agent), name)
    if (
        found is None
        or getattr(turn, "__self__", None) is not agent
        or getattr(turn, "__func__", None) is not found
    ):
        raise TypeError(
            f"after(durable=True) takes a method of self, which a later incarnation has too, not {turn!r}"
        )
    return timers.add(seconds, name, args, kwargs)
