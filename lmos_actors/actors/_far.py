"""Requests that come over a wire: envelopes whose answers go to the connection that has asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    reschedule,
    wait_task_rescheduled,
)

from ._mailbox import DONE, NEW, PARKED, RUNNING, Ask

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from ._box import Box
    from ._edge import Watch
    from ._mailbox import Request
    from ._operation import Operation


class Asker(Protocol):
    """The connection that has asked, as its requests see it. Nothing here blocks or raises."""

    @property
    def label(self) -> str:
        """Who that is, as far as the connection knows."""
        ...

    @property
    def principal(self) -> str | None:
        """Who was authenticated, None for nobody known."""
        ...

    def answered(self, far: Far, value: Any) -> None:
        """The operation gave this value."""
        ...

    def failed(self, far: Far, error: Exception) -> None:
        """This error stands in place of a value."""
        ...

    def waits(self, far: Far) -> None:
        """Its run has to wait for its action's concurrency."""
        ...

    def began(self, far: Far) -> None:
        """Its run begins, or the work on it."""
        ...

    def reported(self, far: Far, value: Any) -> None:
        """Its run says how far it is."""
        ...

    def has_room(self, far: Far) -> bool:
        """Say whether its run may give an item now; if not, `Far.go_on` is called once it may."""
        ...

    def gave(self, far: Far, item: Any) -> bool:
        """Take an item of its run; say whether anybody wanted it."""
        ...


class Teller(Asker, Protocol):
    """The connection over which a one-way message has come."""

    @property
    def stands(self) -> bool:
        """Whether somebody would hear of it if the message did not begin."""
        ...

    def admitted(self, tell: Any) -> None:
        """It has left the line of parked senders for a seat in the mailbox."""
        ...


class Far(Ask):
    """One request from afar; `asked` is what the connection knows it by.

    It never waits for a seat: in a full mailbox `wait` means `reject` (B4).
    """

    __slots__ = ("again", "asked", "asker", "giver", "until", "watch")

    parks = False

    def __init__(self, slot: Box, op: Operation, args: tuple[Any, ...], asker: Asker, asked: Any) -> None:
        # as `Ask.__init__`, without the call
        self.slot = slot
        self.op = op
        self.args = args
        self.sender = None
        self.phase = NEW
        self.run = None
        self.trace = None
        self.task = None
        self.value = None
        self.error = None
        self.bucket = None
        self.asker = asker
        self.asked = asked
        self.again: Callable[[], bool] | None = None  # of a pool: sends it to another member
        self.until: float | None = None  # when it fails if it is unanswered, in the clock's seconds
        self.giver: trio.lowlevel.Task | None = None  # the run, while there is no room for its item
        self.watch: Watch | None = None  # who measures or traces it, if somebody does

    # ---- the slot's side

    def waits_in_line(self) -> None:
        self.asker.waits(self)

    def began(self) -> None:
        self.asker.began(self)

    def answer(self, value: Any) -> None:
        self.leave()
        self.asker.answered(self, value)

    def fail(self, error: Exception) -> None:
        self.leave()
        self.asker.failed(self, error)

    def leave(self) -> None:
        """It wants no more: it is answered, or its consumer is gone."""
        self.phase = DONE
        if self.bucket is not None:
            self.slot.rt.deadlines.forget(self)
        if self.giver is not None:
            self.go_on()

    def request(self) -> Request:
        """Say what it asks for, over which connection, and under which id."""
        request = super().request()
        asker = self.asker
        return attrs.evolve(
            request,
            consumer=asker.label if request.consumer is None else request.consumer,
            principal=asker.principal,
            message_id=self.asked.message_id,
        )

    # ---- the run's side

    @property
    def feed(self) -> Far:
        """Where the run's progress goes."""
        return self

    def push(self, value: Any) -> None:
        """Take progress from the run."""
        self.asker.reported(self, value)

    async def put(self, item: Any) -> None:
        """Take one output from the run; wait while its consumer, or the connection, has no room for it."""
        await checkpoint_if_cancelled()
        while not self.asker.has_room(self):
            self.giver = current_task()
            await wait_task_rescheduled(self._abort)
        if not self.asker.gave(self, item):
            await checkpoint()  # nothing holds back a run whose items go nowhere

    def _abort(self, _: object) -> Abort:
        self.giver = None
        return Abort.SUCCEEDED

    def go_on(self) -> None:
        """Let a run that waits for room look again."""
        task = self.giver
        if task is not None:
            self.giver = None
            self.slot.rt.timers.woke = True
            reschedule(task)


class OneWay(Far):
    """A one-way message from afar: it waits for a seat as that of a near sender does."""

    __slots__ = ("teller",)

    parks = True

    def __init__(self, slot: Box, op: Operation, args: tuple[Any, ...], teller: Teller, asked: Any) -> None:
        super().__init__(slot, op, args, teller, asked)
        self.teller = teller

    @property
    def parked(self) -> bool:
        """Whether it stands in its agent's line for a seat, not accepted yet."""
        return self.phase == PARKED

    def admitted(self) -> None:
        self.teller.admitted(self)

    @property
    def waits_for_answer(self) -> bool:
        """Whether its sender hears of its loss: not once its run has begun, nor after the connection."""
        return self.phase != RUNNING and self.teller.stands
