"""Messages put aside until the agent's behaviour allows them: postponed by `@action(when=...)`, or by hand.

The rules are those of OTP's `gen_statem`: what is not allowed in the present behaviour is refused, or
postponed where its action says so; what was postponed is tried again, in order and before all that came
later, once the behaviour changes. A message put aside keeps its seat: it has been accepted and has not
begun, so the accounts take back that it had.

`stash()` ends the turn by raising `Stashed`, a BaseException, so that an `except Exception` of the handler
cannot swallow it. It is allowed only where nothing else can have happened meanwhile: in a turn, or in the
first step of a run. trio empties a task's `custom_sleep_data` whenever it wakes the task, which is how the
first step is recognised (`_is_first_step`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import current_task, enable_ki_protection

from lmos_actors.errors import NotAllowed

from ._gates import IDLE, QUIET
from ._invocation import CURRENT
from ._mailbox import DONE, QUEUED, STASHED, Envelope, InternalTurn, SelfEnvelope, SelfMessage
from ._operation import STREAM
from ._slot_state import SlotState

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer

    from ._invocation import OwnTask, Run
    from ._mailbox import Ask
    from ._operation import Operation


class Stash:
    """The messages that one incarnation has put aside, in order, and the timer of its present behaviour."""

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

    def all_messages(self) -> list[Any]:
        """Return all messages that are put aside."""
        return [*self.up_next, *self.items.values()]


class SlotStash(SlotState):
    """A slot whose agent may put messages aside."""

    __slots__ = ()

    def ensure_stash(self) -> Stash:
        """Return the stash, made at the first call."""
        extra = self.ensure_extra()
        if extra.stash is None:
            extra.stash = Stash()
        return extra.stash

    # ---- what the present behaviour allows

    def enabled(self, op: Operation) -> bool:
        """Return whether the agent takes messages for this operation now."""
        return op.when is None or self.agent.behaviour in op.when

    def postpone_or_refuse(self, item: Any) -> None:
        """Postpone a message that the present behaviour does not allow, or refuse it."""
        op: Operation = item.op if isinstance(item, Envelope) else item[0]
        if op.postpone:
            self._put_in_stash(item)
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
            if isinstance(self.turns.current, InternalTurn) or _is_start(self.turns.current):
                raise RuntimeError("stash() puts the message in hand aside: a timer's turn has none")
        elif run is None or run.slot is not self or run.op.kind == STREAM or not _is_first_step(run):
            raise RuntimeError(
                "stash() puts the message in hand aside: in its turn, or before the first wait"
            )

    @enable_ki_protection
    def unstash(self) -> int:
        """Bring back what was put aside: it comes first, in order. Return how many messages that are."""
        extra = self.extra
        if extra is None or extra.stash is None or not extra.stash.items:
            return 0
        stash = extra.stash
        items = list(stash.items.values())
        stash.items.clear()
        for item in items:
            if isinstance(item, Envelope):
                item.phase = QUEUED
        if self.turns.slot is self:
            stash.up_next += items
            self.turns.leave = True
        else:
            self.put_back(items)
            self.resume_if_idle()
        return len(items)

    @enable_ki_protection
    def behaviour_changed(self) -> None:
        """The agent has another behaviour: its timer ends, what was postponed is tried again."""
        stash = self.ensure_stash()
        self.no_state_timeout()
        if self.turns.slot is self:
            stash.changed = True
            self.turns.leave = True
            self.unstash()
        else:
            stash.by_run = CURRENT.get(), self.unstash()

    def restore_stashed(self) -> None:
        """After a turn: put what it brought back before all else."""
        extra = self.extra
        if extra is not None and extra.stash is not None:
            stash = extra.stash
            stash.changed = False
            if stash.up_next:
                items, stash.up_next = stash.up_next, []
                self.put_back(items)

    def stash_turn(self, item: Any) -> None:
        """A turn that the dispatcher has begun puts its message aside."""
        if isinstance(item, SelfMessage):
            self.take_own_seat()
        if type(item) is not tuple:
            self.begun -= 1
        self._put_in_stash(item)

    def stash_run(self, run: Run) -> None:
        """A run puts its message aside in its first step; its coroutine has ended."""
        envelope = run.envelope
        if run.settled:
            return
        run.settled = True
        envelope.run = None
        if isinstance(envelope, SelfEnvelope):
            self.take_own_seat()
        self.begun -= 1
        envelope.on_seat_regained()
        envelope.on_stashed()
        stash = self.ensure_stash()
        if stash.by_run[0] is run:  # nothing has happened since
            envelope.phase = QUEUED
            self.long_queue().insert(stash.by_run[1], envelope)
            self.resume_if_idle()
        else:
            self._put_in_stash(envelope)

    def stash_inline_ask(self, ask: Ask) -> None:
        """A turn in its asker's own step puts its message aside: the asker has to wait after all."""
        if self.accepted - self.begun >= self.size:
            self.after_turn()
            self.post(ask)
        else:
            self.accepted += 1
            self._put_in_stash(ask)
            self.after_turn()

    def _put_in_stash(self, item: Any) -> None:
        stash = self.ensure_stash()
        envelope = item if isinstance(item, Envelope) else None
        if envelope is not None:
            envelope.on_stashed()
        if stash.changed and self.turns.slot in (self, None):
            stash.up_next.append(item)
            if envelope is not None:
                envelope.phase = QUEUED
            return
        if envelope is not None:
            envelope.phase = STASHED
        stash.items[id(item)] = item

    # ---- timers of a behaviour

    def state_timeout(self, seconds: float, fn: Callable[[], None]) -> Timer:
        """Have a turn run `seconds` from now if the behaviour is still the same, replacing an earlier one."""
        stash = self.ensure_stash()
        self.no_state_timeout()

        def due() -> None:  # the behaviour may change between the firing and its turn
            if stash.timer is timer:
                stash.timer = None
                fn()

        due.__qualname__ = getattr(fn, "__qualname__", "state timeout")
        timer = stash.timer = self.after(seconds, due, ())
        return timer

    def no_state_timeout(self) -> None:
        """The present behaviour has no time limit any more."""
        extra = self.extra
        if extra is not None and extra.stash is not None and extra.stash.timer is not None:
            extra.stash.timer.cancel()
            extra.stash.timer = None

    # ---- leaving

    def resume_if_idle(self) -> None:
        """Take turns again if nothing else holds the agent."""
        if self.gate in (IDLE, QUIET):
            self.resume()

    def oldest_stashed(self) -> Any:
        """Take the oldest message of others from the stash, None if there is none."""
        extra = self.extra
        if extra is not None and extra.stash is not None:
            for key, item in extra.stash.items.items():
                if not isinstance(item, (SelfMessage, SelfEnvelope)):
                    return extra.stash.items.pop(key)
        return None

    def oldest_pending(self) -> Envelope | None:
        """Take an oldest message of others out of the lines for runs, None if there is none."""
        for line in self.ensure_extra().pending.values():
            for envelope in line:
                if not isinstance(envelope, SelfEnvelope):
                    line.remove(envelope)
                    return envelope
        return None

    def take_own_seat(self) -> None:
        """A message to itself has its reserved seat, or has it again."""
        self.ensure_extra().own += 1
        if self.size > 0:
            self.size += 1  # a seat of its own: it takes none from the others

    def free_own_seat(self) -> None:
        """A message to itself has left its reserved seat."""
        self.ensure_extra().own -= 1
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
