"""The steps of one run, carried out one after the other as the file tells them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs
import trio
from msgspec import UNSET

from lmos_actors._errors import AgentError
from lmos_actors._instrument import plain
from lmos_actors.actors import ExitReason, Thing, acting_as
from lmos_actors.reports import Failure

from ._cells import fill_late
from ._expect import Verdict, filled, judge_error, judge_expect, waits_to_the_end
from ._model_base import USER
from ._model_steps import (
    Expect,
    Inject,
    Invoke,
    Observe,
    Parallel,
    Read,
    Repeat,
    Subscribe,
    Tell,
    Wait,
    Write,
)
from ._paths import pick
from ._story import exception_class
from ._wording import count_steps, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import LocalCall, Ref
    from lmos_actors.files import DataPath, Document

    from ._model import Scenario
    from ._watch import Watch
    from ._wording import Steps


class StepFailed(Exception):
    """A step did not end as the file asks; the failure has been noted."""


@attrs.define
class Asked:
    """What a step with an id has asked for: how it stands, and what came of it."""

    call: LocalCall | None = None
    reported: bool = False
    done: bool = False
    value: Any = None
    error: AgentError | None = None

    def statuses(self) -> list[str]:
        """Give the statuses that the consumer has been shown, repeats left out (D13)."""
        words = ["pending"] if self.call is not None and self.call.stood_in_line else []
        if self.reported:
            words.append("in progress")
        if self.done:
            words.append("completed" if self.error is None else "failed")
        return words


class Story:
    """Carries out the steps of one run against agents that are there. One per run."""

    def __init__(
        self, scenario: Scenario, document: Document, watch: Watch, progress: Callable[[int, int, str], None]
    ) -> None:
        self.scenario = scenario
        self.document = document
        self.watch = watch
        self.refs: dict[str, Ref[Any]] = {}
        self.things: dict[str, Thing] = {}
        self.failures: list[Failure] = []
        self.done = 0
        self.total = count_steps(scenario.steps)
        self.at: str = ""
        self.deadline = math.inf
        self.latencies: dict[str, list[float]] = {}
        self._progress = progress
        self._saved: dict[str, Any] = {}
        self._asked: dict[str, Asked] = {}
        self._readings: dict[str, list[Any]] = {}
        self._events: dict[tuple[str, str], list[Any]] = {}
        self._listening: trio.Nursery | None = None
        self._open: trio.Nursery | None = None

    async def tell(self) -> bool:
        """Carry out all steps; say whether all ended as they should. What failed is in `failures`."""
        told = True
        self.deadline = trio.current_time() + self.scenario.timeout
        try:
            async with trio.open_nursery() as self._listening:
                async with trio.open_nursery() as self._open:
                    await self._all(self.scenario.steps, ("steps",))
                self._listening.cancel_scope.cancel("the story has been told")
        except* StepFailed:
            told = False
        return told

    async def _all(self, steps: Steps, path: DataPath) -> None:
        for index, step in enumerate(steps):
            await self._one(step, (*path, index))

    async def _one(self, step: Any, path: DataPath) -> None:
        if not isinstance(step, (Repeat, Parallel)):
            await self._step(step, path)
            return
        with trio.move_on_after(math.inf if step.within is None else step.within) as scope:
            await (self._repeat if isinstance(step, Repeat) else self._parallel)(step, path)
        if scope.cancelled_caught:
            raise self.fail(step, path, f"an end within {step.within}", f"still at {self.at}")

    async def _parallel(self, step: Any, path: DataPath) -> None:
        async with trio.open_nursery() as branches:
            for index, branch in enumerate(step.branches):
                branches.start_soon(self._all, branch, (*path, "branches", index))

    async def _repeat(self, step: Any, path: DataPath) -> None:
        begin = trio.current_time()
        for number in range(step.times):
            if step.every is not None:
                await trio.sleep_until(begin + number * step.every)
            await self._all(step.steps, (*path, "steps"))

    async def _step(self, step: Any, path: DataPath) -> None:
        text = describe(step)
        self.at = f"{self.document.place(path)} {text}"
        if isinstance(step, Expect):
            await self._expect(step, path)
        else:
            seconds = math.inf if isinstance(step, Wait) else self._within(step)
            with trio.move_on_after(seconds) as scope:
                await self._carry_out(step, path)
            if scope.cancelled_caught:
                raise self.fail(step, path, f"an end within {self._within(step)}", "none by then")
        self.done += 1
        self._progress(self.done, self.total, text)

    def _within(self, step: Any) -> float:
        return step.within if step.within is not None else self.scenario.timeout

    def fail(self, step: Any, path: DataPath, expected: str, saw: str) -> StepFailed:
        """Note that a step failed, and give what to raise."""
        self.failures.append(Failure(self.document.place(path), describe(step), expected, saw))
        return StepFailed()

    async def _carry_out(self, step: Any, path: DataPath) -> None:
        if isinstance(step, (Read, Write, Invoke)):
            assert self._open is not None
            if step.wait:
                await self._ask(step, path)
            else:
                await self._open.start(self._ask_in_time, step, path)
        elif isinstance(step, (Observe, Subscribe)):
            await self._listen(step, path)
        elif isinstance(step, Tell):
            await self._ending(step, path, self._tell(step, path))
        elif isinstance(step, Inject):
            await self._inject(step, path)
        elif isinstance(step, Wait):
            await self._wait(step, path)

    # ---- asking

    async def _ask_in_time(
        self, step: Any, path: DataPath, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.move_on_after(self._within(step)) as scope:
            await self._ask(step, path, task_status)
        if scope.cancelled_caught:
            raise self.fail(step, path, f"an answer within {self._within(step)}", "none by then")

    async def _ask(
        self, step: Any, path: DataPath, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        asked = Asked()
        begin = trio.current_time()
        if step.id is not None:
            self._asked[step.id] = asked
        await self._ending(step, path, self._answer(step, path, asked, task_status), asked)
        if asked.call is None:  # else whoever waits for the start goes on already
            task_status.started()
        asked.done = True
        self.watch.notify()
        if step.id is not None:
            # virtual time goes by whole microseconds, differences of floats do not
            self.latencies.setdefault(step.id, []).append(round(trio.current_time() - begin, 6))
        if isinstance(step, (Read, Invoke)) and asked.error is None:
            self._save(step, path, asked.value)

    async def _answer(self, step: Any, path: DataPath, asked: Asked, status: trio.TaskStatus[None]) -> None:
        thing = self.things[step.target]
        if isinstance(step, Read):
            opening = thing.reading(step.property)
        elif isinstance(step, Write):
            opening = thing.writing(step.property, self._late(step, path, step.value))
        else:
            opening = thing.invoking(step.action, self._late(step, path, step.input))
        async with opening as call:
            asked.call = call
            if not step.wait:
                status.started()
            if step.id is not None:
                assert self._listening is not None
                self._listening.start_soon(self._follow, call, asked)
            asked.value = plain(await call.result())

    async def _follow(self, call: LocalCall, asked: Asked) -> None:
        async for _ in call.progress:
            asked.reported = True
            self.watch.notify()

    async def _ending(self, step: Any, path: DataPath, doing: Any, asked: Asked | None = None) -> None:
        """Do what a step asks for as whom it names, and judge its error, or that it has none."""
        error: AgentError | None = None
        try:
            if step.as_ == USER:
                await doing
            else:
                with acting_as(self.refs[step.as_]):
                    await doing
        except AgentError as caught:
            error = caught
        finally:
            doing.close()
        if asked is not None:
            asked.error = error
        if step.error is not None:
            verdict = judge_error(step.error, error)
            if not verdict.ok:
                raise self.fail(step, path, verdict.expected, verdict.saw)
        elif error is not None:
            raise self.fail(step, path, "an answer", f"{type(error).__name__}: {error}")

    async def _tell(self, step: Tell, path: DataPath) -> None:
        await self.things[step.target].tell(step.action, self._late(step, path, step.input))

    def _late(self, step: Any, path: DataPath, value: Any) -> Any:
        try:
            return value if value is UNSET else fill_late(value, "saved", self._saved)
        except LookupError as error:
            raise self.fail(step, path, "saved values", str(error)) from None

    def _save(self, step: Read | Invoke, path: DataPath, value: Any) -> None:
        answer = {"value": value} if isinstance(step, Read) else {"output": value}
        for name, where in step.save.items():
            try:
                self._saved[name] = pick(where, answer)
            except LookupError as error:
                raise self.fail(step, path, f"one value at {where} to save", str(error)) from None

    # ---- listening

    async def _listen(self, step: Observe | Subscribe, path: DataPath) -> None:
        assert self._listening is not None
        if isinstance(step, Observe):
            seen = self._readings.setdefault(step.id or "", [])
        else:
            seen = self._events.setdefault((step.as_, step.event), [])
        await self._ending(step, path, self._start_listening(step, seen))

    async def _start_listening(self, step: Observe | Subscribe, seen: list[Any]) -> None:
        assert self._listening is not None
        # what a task raises before it has started is raised here, as it is
        await self._listening.start(self._collect, step, seen)

    async def _collect(
        self, step: Observe | Subscribe, seen: list[Any], task_status: trio.TaskStatus[None]
    ) -> None:
        thing = self.things[step.target]
        opening = (
            thing.observe(step.property)
            if isinstance(step, Observe)
            else thing.subscribe(step.event, size=EVENTS)
        )
        async with opening as feed:
            task_status.started()
            async for value in feed:
                seen.append(plain(value))
                self.watch.notify()

    # ---- faults and waiting

    async def _inject(self, step: Inject, path: DataPath) -> None:
        slot = self.things[step.fault.target].slot
        if slot.agent is None:
            saw = f"it is {slot.statistics().state}"
            raise self.fail(step, path, f"a running {step.fault.target} to crash", saw)
        made = exception_class(step.fault.with_)
        assert made is not None
        self.watch.record("fault", slot.path, {"fault": "crash", "with": step.fault.with_})
        async with self.refs[step.fault.target].monitor() as downs:
            slot.die(ExitReason("error", error=made("injected by the scenario")))
            if step.wait:
                await downs.receive()
                supervisor: Any = slot.owner
                await supervisor.settled()

    async def _wait(self, step: Wait, path: DataPath) -> None:
        until = step.until
        if until is None:
            await trio.sleep(step.for_ or 0)
            return
        slot = self.things[until.agent].slot
        deadline = trio.current_time() + self._within(step)
        if not await self.watch.until(lambda: state_of(slot) == until.is_, deadline):
            expected = f"{until.agent} {until.is_} within {self._within(step)}"
            raise self.fail(step, path, expected, f"it is {state_of(slot)}")

    # ---- expecting

    async def _expect(self, step: Expect, path: DataPath) -> None:
        try:
            expect = filled(step, self._saved)
        except LookupError as error:
            raise self.fail(step, path, "saved values", str(error)) from None
        counting = waits_to_the_end(step)
        patience = step.within if step.within is not None else 0.0 if counting else self.scenario.timeout
        deadline = trio.current_time() + patience
        if counting:
            await trio.sleep_until(deadline)
        fine = False

        def settled() -> bool:
            nonlocal fine
            fine = fine or all(verdict.ok for verdict in self._verdicts(expect))
            return fine or self._is_final(expect)

        try:
            await self.watch.until(settled, deadline)
        except trio.Cancelled:
            if trio.current_time() >= self.deadline:  # the story's time is over: say what it waited for
                self._unmet(expect, step, path)
            raise
        if not fine:
            self._unmet(expect, step, path)
            raise StepFailed

    def _unmet(self, expect: Expect, step: Expect, path: DataPath) -> None:
        for verdict in self._verdicts(expect):
            if not verdict.ok:
                self.fail(step, path, verdict.expected, verdict.saw)

    def _is_final(self, expect: Expect) -> bool:
        """Whether what is looked at cannot change any more."""
        final = expect.that in ("output", "status") and self._asked_of(expect).done
        return final or expect.that == "value"

    def _asked_of(self, expect: Expect) -> Asked:
        return self._asked.get(str(expect.of)) or Asked()

    def _verdicts(self, expect: Expect) -> list[Verdict]:
        if expect.that == "value":
            return judge_expect(expect, expect.of)
        if expect.that == "reading":
            return judge_expect(expect, self._readings.get(str(expect.of), []))
        if expect.that == "event":
            return judge_expect(expect, self._events.get((str(expect.target), str(expect.event)), []))
        asked = self._asked_of(expect)
        if expect.that == "status":
            return judge_expect(expect, asked.statuses())
        if not asked.done or asked.error is not None:
            return [unanswered(asked)]
        return judge_expect(expect, asked.value)


EVENTS = 1 << 20
"""How many events may wait to be looked at; none is to be missed."""


def unanswered(asked: Asked) -> Verdict:
    """Give the verdict on the output of a step that has none."""
    saw = "no answer yet" if asked.error is None else f"{type(asked.error).__name__}: {asked.error}"
    return Verdict(False, "an output", saw)


def state_of(slot: Any) -> str:
    """Say how an agent stands, in the words of `wait until`."""
    state: str = slot.statistics().state
    if state == "running" or slot.status == "restarting":
        return state if state == "running" else "restarting"
    return "stopped" if slot.status == "stopped" or state == "gone" else state
