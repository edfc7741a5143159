"""One message to many agents, and all their answers.

Near agents are asked without a task for each: an idle agent's turn runs in the asker's step, as with
`invoke`; every other ask is posted, and the last answer, or the first failure, wakes the asker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import trio
from trio.lowlevel import (
    Abort,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from ..messages._gates import SERIAL
from ..messages._invocation import CURRENT, Run, check_repeat
from ..messages._mailbox import DONE, Ask, Stashed
from ..messages._operation import named
from ..slot._slot import Slot
from ._registry import LookupLink

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from ..declaration._affordances import Action, Turn
    from ..messages._operation import Operation
    from ..refs._ref import Ref

A = TypeVar("A")
R = TypeVar("R")
P = ParamSpec("P")


def invoke_all(
    refs: Iterable[Ref[A]], handle: Turn[A, P, R] | Action[A, P, R, Any], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, list[R]]:
    """Invoke an action of several agents and return their outputs, in the order of `refs`.

    The agents work side by side. The first failure cancels all open asks and is raised; agents that have not
    been asked by then are never asked. Cancelling the caller cancels all asks. A ref made by `within` has its
    own deadline. Raises the same errors as `Ref.invoke`.
    """
    targets = list(refs)
    if targets:
        turns = targets[0]._link.turns  # pyright: ignore[reportPrivateUsage] # as below
        if turns.slot is not None:
            raise turns.misuse("invoke_all", of="")
    return Gathering(targets, handle).outputs(args, kwargs)


class _Part(Ask):
    """One of many asks, whose answer goes to the gathering and wakes no task by itself."""

    __slots__ = ("_gathering", "_place")

    holds_sender = False  # that waits once it has asked all

    def __init__(
        self, slot: Slot, op: Operation, args: tuple[Any, ...], gathering: Gathering, place: int
    ) -> None:
        super().__init__(slot, op, args, slot.sender(), gathering.asker)
        self._gathering = gathering
        self._place = place

    def answer(self, value: Any) -> None:
        self.phase = DONE
        if self.task is not None:
            self.task = None
            self.slot.rt.timers.woke = True
            self._gathering.take(self._place, value, self.error)


class Gathering:
    """The answers so far, the open asks, and the task that waits for them."""

    __slots__ = ("_error", "_handle", "_left", "_refs", "_task", "_values", "asker", "parts")

    def __init__(self, refs: list[Ref[Any]], handle: Any) -> None:
        self.asker: trio.lowlevel.Task | None = None  # while there is one
        self._refs = refs
        self._handle = handle
        self._values: list[Any] = [None] * len(refs)
        self._left = len(refs)
        self._error: Exception | None = None
        self.parts: list[_Part] = []
        self._task: trio.lowlevel.Task | None = None

    @named("invoke_all")
    @enable_ki_protection
    async def outputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Ask all agents and wait for all answers."""
        await checkpoint_if_cancelled()
        self.asker = current_task()
        try:
            far = await self._ask_near(args, kwargs)
            if far:
                async with trio.open_nursery() as nursery:
                    for place in far:
                        nursery.start_soon(self._ask_far, place, args, kwargs)
                    await self._answered()
                    nursery.cancel_scope.cancel("one of the agents has failed")
            else:
                await self._answered()
        finally:
            self._withdraw()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle through the traceback
        return self._values

    async def _ask_near(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[int]:
        """Ask the near agents until one fails; return the positions of the far agents."""
        key, values = self._handle.name, self._values
        run = CURRENT.get()
        if isinstance(run, Run) and run.resumption is not None:
            for ref in self._refs:
                link = ref._link  # pyright: ignore[reportPrivateUsage] # as below
                if not link.turns.durables:
                    break
                check_repeat(link.turns, link, key)
        far: list[int] = []
        op: Any = None
        bound, shared = args, False  # arguments that cannot change are checked once for all of a class
        for place, ref in enumerate(self._refs):
            slot: Any = ref._link  # pyright: ignore[reportPrivateUsage] # for a thousand refs, a call each
            if isinstance(slot, LookupLink):
                slot = slot.choose()
            if not isinstance(slot, Slot):
                far.append(place)
                continue
            if op is None or slot.table.get(key) is not op or not shared:
                op = slot.operation(key)
                bound = slot.bound(op, args, kwargs)
                shared = all(p.shape.immutable for p in op.params)
            turns = slot.turns
            turns.budget -= 1
            if turns.budget < 0:
                await slot.yield_to_others()
            if self._error is not None:
                return []
            if (slot.gate and not slot.leave_tally()) or op.kind or slot.traced:
                seconds = ref._seconds  # pyright: ignore[reportPrivateUsage]
                self._post(_Part(slot, op, bound, self, place), seconds)
                continue
            try:
                values[place] = slot.run_inline(op, bound)
                self._left -= 1
                continue
            except Stashed:
                pass  # as in `ask`
            self._post(_Part(slot, op, bound, self, place), ref._seconds, aside=True)  # pyright: ignore[reportPrivateUsage]
        return far

    def _post(self, part: _Part, seconds: float | None, *, aside: bool = False) -> None:
        if part.op.streams:
            raise TypeError(
                f"{part.op.label} takes an input stream, which several agents cannot share: "
                f"invoke each with a source of its own"
            )
        if aside:
            part.slot.stash_inline_ask(part)
        else:
            part.slot.post(part)
        self.parts.append(part)
        if seconds is not None and part.task is not None:
            part.slot.rt.deadlines.add(part, seconds)

    async def _ask_far(self, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            value = await self._refs[place].invoke(self._handle, *args, **kwargs)
        except Exception as exc:
            self.take(place, None, exc)
        else:
            self.take(place, value, None)

    def take(self, place: int, value: Any, error: Exception | None) -> None:
        """Record one answer; the last answer, or a failure, wakes the waiting task."""
        self._values[place] = value
        self._left -= 1
        if error is not None and self._error is None:
            self._error = error
        if self._error is not None or not self._left:
            task, self._task = self._task, None
            if task is not None:
                reschedule(task)

    async def _answered(self) -> None:
        if self._left and self._error is None:
            self._task = task = current_task()
            task.custom_sleep_data = self  # what it waits for, see `_circles.py`
            for part in self.parts:
                if part.slot.rt.full_slots or part.slot.gate == SERIAL:
                    part.slot.rt.circles.look_again(part)

            def abort(_: object) -> Abort:
                self._task = None
                return Abort.SUCCEEDED

            await wait_task_rescheduled(abort)

    def _withdraw(self) -> None:
        """Withdraw the asks that are still open."""
        for part in self.parts:
            if part.task is not None:
                part.task = None
                part.slot.withdraw(part)
            if part.bucket is not None:
                part.slot.rt.deadlines.forget(part)
