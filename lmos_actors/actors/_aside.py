"""Messages put aside until the agent's behaviour allows them: postponed by `@action(when=...)`, or by hand.

The rules are those of OTP's `gen_statem`: what is not allowed in the present behaviour is refused, or
postponed where its action says so; what was postponed is tried again, in order and before all that came
later, once the behaviour changes. A message put aside keeps its seat: it has been accepted and has not
begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import current_task, enable_ki_protection

from lmos_actors.errors import NotAllowed

from ._cell import Cell
from ._gates import IDLE, QUIET
from ._invocation import CURRENT
from ._mailbox import ASIDE, DONE, QUEUED, Envelope, Firing, Own, OwnTell
from ._operation import STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer

    from ._invocation import OwnTask, Run
    from ._mailbox import Ask
    from ._operation import Operation


class Shelf:
    """What one incarnation has put aside, in order, and the timer of its present behaviour."""

    __slots__ = ("by_run", "changed", "items", "timer", "up_next")

    def __init__(self) -> None:
        self.items: dict[int, Any] = {}
        self.up_next: list[Any] = []
        """Brought back in the turn that runs now: the first to be taken when it ends."""
        self.changed = False
        """The turn that runs now has changed the behaviour: what it puts aside is tried again at once."""
        self.by_run: tuple[Run | OwnTask | None, int] = (None, 0)
        """The run that has last changed the behaviour, and how many messages that brought back."""
        self.timer: Timer | None = None

    def everything(self) -> list[Any]:
        """All messages it holds."""
        return [*self.up_next, *self.items.values()]


class Aside(Cell):
    """A slot whose agent may put messages aside."""

    __slots__ = ()

    def shelf(self) -> Shelf:
        """Return the shelf, made at the first call."""
        more = self.furnish()
        if more.shelf is None:
            more.shelf = Shelf()
        return more.shelf

    # ---- what the present behaviour allows

    def enabled(self, op: Operation) -> bool:
        """Return whether the agent takes messages for this operation now."""
        return op.when is None or self.agent.behaviour in op.when

    def not_now(self, item: Any) -> None:
        """Postpone a message that the present behaviour does not allow, or refuse it."""
        op: Operation = item.op if isinstance(item, Envelope) else item[0]
        if op.postpone:
            self._shelve(item)
            return
        error = NotAllowed(
            f"{op.name!r} of {self.path} is not allowed in behaviour {self.agent.behaviour!r}, "
            f"only in {_either(op.when or ())}"
        )
        if isinstance(item, Envelope) and item.waits_for_answer:
            self.begun += 1
            self.handled += 1
            item.phase = DONE
            self.rt.note("answered", item, error=f"NotAllowed: {error}")
            item.fail(error)
            self.admit()
        else:
            self.lose(item, str(error), None)
            self.admit()

    # ---- by hand

    def check_stash(self) -> None:
        """Raise RuntimeError unless a message is in hand that may be put aside."""
        run = CURRENT.get()
        if self.turns.slot is self:
            if isinstance(self.turns.current, Firing) or _is_start(self.turns.current):
                raise RuntimeError("stash() puts the message in hand aside: a timer's turn has none")
        elif run is None or run.slot is not self or run.op.kind == STREAM or not _is_first_step(run):
            raise RuntimeError(
                "stash() puts the message in hand aside: in its turn, or before the first wait"
            )

    @enable_ki_protection
    def unstash(self) -> int:
        """Bring back what was put aside: it comes first, in order. Return how many messages that are."""
        more = self.more
        if more is None or more.shelf is None or not more.shelf.items:
            return 0
        shelf = more.shelf
        items = list(shelf.items.values())
        shelf.items.clear()
        for item in items:
            if isinstance(item, Envelope):
                item.phase = QUEUED
        if self.turns.slot is self:
            shelf.up_next += items
            self.turns.leave = True
        else:
            self.put_back(items)
            self.go_on()
        return len(items)

    @enable_ki_protection
    def behaviour_changed(self) -> None:
        """The agent has another behaviour: its timer ends, what was postponed is tried again."""
        shelf = self.shelf()
        self.no_state_timeout()
        if self.turns.slot is self:
            shelf.changed = True
            self.turns.leave = True
            self.unstash()
        else:
            shelf.by_run = CURRENT.get(), self.unstash()

    def take_up(self) -> None:
        """The turn has ended: put what it brought back before all else."""
        more = self.more
        if more is not None and more.shelf is not None:
            shelf = more.shelf
            shelf.changed = False
            if shelf.up_next:
                items, shelf.up_next = shelf.up_next, []
                self.put_back(items)

    def stash_taken(self, item: Any) -> None:
        """A turn that the dispatcher has begun puts its message aside."""
        if isinstance(item, Own):
            self.own_kept()
        if type(item) is not tuple:
            self.begun -= 1
        self._shelve(item)

    def stash_run(self, run: Run) -> None:
        """A run puts its message aside in its first step; its coroutine has ended."""
        envelope = run.envelope
        if run.settled:
            return
        run.settled = True
        envelope.run = None
        if isinstance(envelope, OwnTell):
            self.own_kept()
        self.begun -= 1
        envelope.sits_again()
        envelope.shelved()
        shelf = self.shelf()
        if shelf.by_run[0] is run:  # nothing has happened since
            envelope.phase = QUEUED
            self.long_queue().insert(shelf.by_run[1], envelope)
            self.go_on()
        else:
            self._shelve(envelope)

    def stash_asked(self, ask: Ask) -> None:
        """A turn in its asker's own step puts its message aside: the asker has to wait after all."""
        if self.accepted - self.begun >= self.size:
            self.after_turn()
            self.post(ask)
        else:
            self.accepted += 1
            self._shelve(ask)
            self.after_turn()

    def _shelve(self, item: Any) -> None:
        shelf = self.shelf()
        envelope = item if isinstance(item, Envelope) else None
        if envelope is not None:
            envelope.shelved()
        if shelf.changed and self.turns.slot in (self, None):
            shelf.up_next.append(item)
            if envelope is not None:
                envelope.phase = QUEUED
            return
        if envelope is not None:
            envelope.phase = ASIDE
        shelf.items[id(item)] = item

    # ---- timers of a behaviour

    def state_timeout(self, seconds: float, fn: Callable[[], None]) -> Timer:
        """Have a turn run `seconds` from now if the behaviour is still the same, replacing an earlier one."""
        shelf = self.shelf()
        self.no_state_timeout()

        def due() -> None:  # the behaviour may change between the firing and its turn
            if shelf.timer is timer:
                shelf.timer = None
                fn()

        due.__qualname__ = getattr(fn, "__qualname__", "state timeout")
        timer = shelf.timer = self.after(seconds, due, ())
        return timer

    def no_state_timeout(self) -> None:
        """The present behaviour has no time limit any more."""
        more = self.more
        if more is not None and more.shelf is not None and more.shelf.timer is not None:
            more.shelf.timer.cancel()
            more.shelf.timer = None

    # ---- leaving

    def go_on(self) -> None:
        """Take turns again if nothing else holds the agent."""
        if self.gate in (IDLE, QUIET):
            self.resume()

    def oldest_aside(self) -> Any:
        """Take the oldest message of others from the shelf, None if there is none."""
        more = self.more
        if more is not None and more.shelf is not None:
            for key, item in more.shelf.items.items():
                if not isinstance(item, (Own, OwnTell)):
                    return more.shelf.items.pop(key)
        return None

    def oldest_pending(self) -> Envelope | None:
        """Take an oldest message of others out of the lines for runs, None if there is none."""
        for line in self.furnish().pending.values():
            for envelope in line:
                if not isinstance(envelope, OwnTell):
                    line.remove(envelope)
                    return envelope
        return None

    def own_kept(self) -> None:
        """A message to itself has its reserved seat, or has it again (B4)."""
        self.furnish().own += 1
        if self.size > 0:
            self.size += 1  # a seat of its own: it takes none from the others

    def own_taken(self) -> None:
        """A message to itself has left its reserved seat (B4)."""
        self.furnish().own -= 1
        if self.size > 0:
            self.size -= 1

    # ---- filled in by those below

    def admit(self) -> None:
        """Let parked senders in."""
        raise NotImplementedError

    def lose(self, item: Any, reason: str, error: Exception | None) -> None:
        """Count what never began as dead-lettered."""
        raise NotImplementedError

    def post(self, envelope: Envelope) -> None:
        """Accept an envelope, park it, or refuse it."""
        raise NotImplementedError

    def resume(self) -> None:
        """Go on taking turns."""
        raise NotImplementedError

    def after_turn(self) -> None:
        """Go on after a turn of which something came."""
        raise NotImplementedError

    def after(self, seconds: float, fn: Callable[..., None], args: tuple[Any, ...]) -> Timer:
        """Have a turn run `seconds` from now."""
        raise NotImplementedError


def _is_first_step(run: Run | OwnTask) -> bool:
    """Return whether the code that runs now is the run's, and nothing else has run since it began."""
    return current_task().custom_sleep_data is run  # trio empties it whenever the task is woken


def _is_start(item: Any) -> bool:
    return isinstance(item, tuple) and item[0] is None


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(map(repr, names))
