"""A slot's own timers, and those who listen to its agent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import InvalidInput, LmosActorsError

from ._gates import ENDING
from ._history import kept_turn
from ._mailbox import InternalTurn, PeriodicTurn
from ._observers import ALL_EVENTS, Occurrence, Sinks, event_key, property_key
from ._operation import CHECKED
from ._slot_requests import SlotRequests
from ._trace_context import current_mark
from .values import conceal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors._core import Timer

    from ._operation import Operation


class _Delayed:
    """A message that is sent when its time comes; it stands for the turn that would send it then."""

    __slots__ = ("args", "checked", "key", "kwargs", "link", "op", "sender", "timer", "trace")

    timer: Timer
    checked: tuple[Any, ...]

    def __init__(
        self, sender: SlotListeners, link: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.sender = sender
        self.link = link
        self.key = key
        self.args = args
        self.kwargs = kwargs
        self.op: Operation | None = None
        if isinstance(link, SlotRequests) and link.table:
            self.op = op = link.operation(key)
            self.checked = op.bind(args, kwargs)
        self.trace = current_mark(sender.rt) if sender.traced else None

    def fire(self) -> None:
        """Send it."""
        sender, link, key, timer = self.sender, self.link, self.key, self.timer
        if timer.kept is not None:
            timer.kept.pop(timer, None)
        turns = sender.turns
        turns.slot, turns.current = sender, self
        try:
            if self.op is not None and link.table.get(key) is self.op:  # no other agent has come since
                link.send_from(sender, key, self.checked, CHECKED)
            else:
                link.send_from(sender, key, self.args, self.kwargs)
        except LmosActorsError as error:
            sender.rt.dead_letter(str(error), link, cast("Any", sender), key, self.args)
        finally:
            turns.slot, turns.leave = None, False


class _Due(InternalTurn):
    """A turn of a timer that has its time; it stands in the queue from then on."""

    __slots__ = ("slot", "timer")

    timer: Timer

    def __init__(self, slot: SlotListeners, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args
        self.slot = slot
        self.trace = current_mark(slot.rt) if slot.traced else None

    def fire(self) -> None:
        """Queue it."""
        timer = self.timer
        if timer.kept is not None:
            timer.kept.pop(timer, None)
        self.slot.put(self)


class SlotListeners(SlotRequests):
    """A slot that others listen to, with timers of its own."""

    __slots__ = ()

    # ---- timers

    @enable_ki_protection
    def after(self, seconds: float, fn: Callable[..., None], args: tuple[Any, ...]) -> Timer:
        """Have a turn run `seconds` from now, while this incarnation lives."""
        if self.agent is not None:
            fn = kept_turn(self.agent, fn)
        due = _Due(self, fn, args)
        due.timer = timer = self.rt.timers.call_after(seconds, due.fire)
        self._keep(timer)
        return timer

    @enable_ki_protection
    def send_after(
        self, seconds: float, link: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Timer:
        """Have a message sent `seconds` from now, as a turn that sends it then, while this incarnation lives.

        Where the agent runs near, arguments are checked now: InvalidInput, NotFound. What is refused when it
        is sent is a dead letter, as no code is left to see the error.
        """
        delayed = _Delayed(self, link, key, args, kwargs)
        delayed.timer = timer = self.rt.timers.call_after(seconds, delayed.fire)
        self._keep(timer)
        return timer

    def _keep(self, timer: Timer) -> None:
        """Have a timer end with this incarnation."""
        if self.state >= ENDING:
            timer.cancel()
            return
        extra = self.extra
        timers = None if extra is None else extra.timers
        if timers is None:
            timers = self._timers()
        timer.kept = timers
        timers[timer] = None

    def _timers(self) -> dict[Timer, None]:
        extra = self.ensure_extra()
        if extra.timers is None:
            extra.timers = {}
        return extra.timers

    def tick(self, when: float, seconds: float, firing: PeriodicTurn) -> None:
        """Have a turn run at `when` and every so many seconds after it."""
        timers = self._timers()

        def fire() -> None:
            timers.pop(timer, None)
            if not firing.waiting:
                firing.waiting = True
                self.put(firing)
            now = trio.current_time()
            missed = max(0, int((now - when) / seconds))
            self.tick(when + (missed + 1) * seconds, seconds, firing)

        timer = self.rt.timers.call_at(when, fire)
        timers[timer] = None

    # ---- listeners

    def sinks(self) -> Sinks:
        """Return the listeners of this slot."""
        extra = self.ensure_extra()
        if extra.sinks is None:
            extra.sinks = Sinks()
        return extra.sinks

    def property_changed(self, name: str, value: Any) -> None:
        """Tell the observers of a property."""
        extra = self.extra
        if extra is not None and extra.sinks is not None:
            key = property_key(name)
            if key in extra.sinks.by_key:
                self._note_change(key, name, value)
                extra.sinks.push(key, value)

    def show_properties(self, sinks: Sinks) -> None:
        """Push a new incarnation's values to the observers: an observation outlives a restart."""
        for key in tuple(sinks.by_key):
            if key.startswith("?"):
                op = self.table.get(key)
                if op is not None:
                    value = op.fn(self.agent)
                    self._note_change(key, op.name, value)
                    sinks.push(key, value)

    def _note_change(self, key: str, name: str, value: Any) -> None:
        if self.rt.instrument is not None:
            shown = conceal(value, self.table[key].result_secrecy)
            self.rt.record("changed", self, property=name, value=shown)

    def note_event(self, name: str, data: Any) -> None:
        """Tell the instrument of an event."""
        self.rt.record("event", self, event=name, data=data)

    @enable_ki_protection
    def emit(self, event: Any, value: Any) -> None:
        """Tell the subscribers of an event."""
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
        extra.sinks.push(event_key(name), value, copy)
        if ALL_EVENTS in extra.sinks.by_key:
            each_its_own = None if copy is None else partial(_copied, copy)
            extra.sinks.push(ALL_EVENTS, Occurrence(name, value), each_its_own)


def _copied(copy: Callable[[Any], Any], occurrence: Occurrence) -> Occurrence:
    return Occurrence(occurrence.event, copy(occurrence.data))
