"""Execution of the story of a scenario: its steps in order, in parallel branches and in the background."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors._core import plain
from lmos_actors.errors import AgentError, AgentUnavailable, LmosActorsError
from lmos_actors.supervision import supervisor_of

from ...judge import MESSAGE, Verdict, fill_expect, judge_expect, waits_to_the_end
from ...model import (
    Cancel,
    Deciding,
    Expect,
    Heal,
    Inject,
    Invoke,
    Observe,
    Parallel,
    Query,
    Read,
    Repeat,
    Say,
    Start,
    Stop,
    Stream,
    Subscribe,
    Tell,
    Wait,
    Write,
)
from .._step_text import describe
from ._step_executor import StepExecutor, StepFailed, StepRequest, unknown_step

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lmos_actors.files import DataPath

    from ...model import Scenario
    from .._run import Run
    from .._step_text import Steps
    from ..records import StepEntry


class Story(StepExecutor):
    """The executor of the steps of one run. One per run."""

    def __init__(self, run: Run, scenario: Scenario) -> None:
        super().__init__(run)
        self.scenario = scenario
        self.deadline = math.inf
        self._readings: dict[str, list[Any]] = {}
        self._events: dict[tuple[str, str], list[Any]] = {}
        self._secret: dict[object, None] = {}  # the keys of secret readings and events
        self._open: trio.Nursery | None = None

    async def execute(self) -> bool:
        """Execute all steps; return whether all succeeded. Failures are recorded in the run."""
        completed = True
        self.deadline = trio.current_time() + self.scenario.timeout
        try:
            async with trio.open_nursery() as self.listening:
                self.listening.start_soon(self.measure, name="measure")
                async with trio.open_nursery() as self._open:
                    await self._run_steps(self.scenario.steps, ("steps",))
                await self.last_sample(always=True)
                self.listening.cancel_scope.cancel("the story has ended")
        except* StepFailed:
            completed = False
        return completed

    async def _run_steps(self, steps: Steps, path: DataPath) -> None:
        for index, step in enumerate(steps):
            await self._run_one(step, (*path, index))

    async def _run_one(self, step: Any, path: DataPath) -> None:
        if not isinstance(step, (Repeat, Parallel)):
            await self._run_step(step, path)
            return
        mark = self.run.step_log.mark()
        with trio.move_on_after(math.inf if step.within is None else step.within) as scope:
            await (self._repeat if isinstance(step, Repeat) else self._parallel)(step, path)
        if scope.cancelled_caught:
            at = self.run.step_log.unfinished(mark) or self.run.at
            raise self.fail(step, path, f"an end within {step.within}", f"still at {at}")

    async def _parallel(self, step: Any, path: DataPath) -> None:
        async with trio.open_nursery() as branches:
            for index, branch in enumerate(step.branches):
                branches.start_soon(self._run_steps, branch, (*path, "branches", index))

    async def _repeat(self, step: Any, path: DataPath) -> None:
        begin = trio.current_time()
        for number in range(step.times):
            if step.every is not None:
                await trio.sleep_until(begin + number * step.every)
            await self._run_steps(step.steps, (*path, "steps"))

    async def _run_step(self, step: Any, path: DataPath) -> None:
        with self._logged(step, path) as line:
            if isinstance(step, Expect):
                await self._expect(step, path)
            elif getattr(step, "wait", True):
                await self._run_with_timeout(step, path)
            else:
                assert self._open is not None
                await self._open.start(self._run_in_background, step, path, line)

    @contextmanager
    def _logged(self, step: Any, path: DataPath) -> Generator[StepEntry]:
        """Log the start and the end of a step.

        The end of a background step is logged by `_run_in_background`.
        """
        run, text = self.run, describe(step)
        place = run.place(path)
        run.at = f"{place} {text}"
        line = run.step_log.begin(place, text, trio.current_time())
        run.report_progress()
        try:
            yield line
        except StepFailed:
            line.finish(False, trio.current_time())
            raise
        if getattr(step, "wait", True):
            line.finish(True, trio.current_time())
        run.step_log.done += 1
        run.report_progress()

    async def _run_in_background(
        self, step: Any, path: DataPath, line: StepEntry, task_status: trio.TaskStatus[None]
    ) -> None:
        try:
            await self._run_with_timeout(step, path, task_status)
        except StepFailed:
            line.finish(False, trio.current_time())
            raise
        line.finish(True, trio.current_time())

    async def _run_with_timeout(
        self, step: Any, path: DataPath, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        timed = isinstance(step, (Wait, Deciding)) or (isinstance(step, Say) and step.within is not None)
        seconds = math.inf if timed else self._within(step)
        with trio.move_on_after(seconds) as scope:
            await self._carry_out(step, path, task_status)
        if scope.cancelled_caught:
            what = "an end" if getattr(step, "wait", True) else "an answer"
            raise self.fail(step, path, f"{what} within {self._within(step)}", "none by then")

    def _within(self, step: Any) -> float:
        return step.within if step.within is not None else self.scenario.timeout

    async def _carry_out(self, step: Any, path: DataPath, task_status: trio.TaskStatus[None]) -> None:
        if isinstance(step, (Read, Write, Invoke, Stream)):
            await self.ask(step, path, task_status)
        elif isinstance(step, (Observe, Subscribe)):
            await self._listen(step, path)
        elif isinstance(step, Say):
            await self.say(step, path, task_status)
        elif isinstance(step, Tell):
            await self.perform(step, path, self.send(step, path))
        elif isinstance(step, (Query, Cancel)):
            await self._query_or_cancel(step, path)
        elif isinstance(step, (Stop, Start)):
            await self._stop_or_start(step, path)
        elif isinstance(step, Deciding):
            await self.decide(step, path, self._within(step))
        elif isinstance(step, Inject):
            await self.inject_fault(step, path)
            task_status.started()
        elif isinstance(step, Heal):
            self.heal_fault(step, path)
            task_status.started()
        elif isinstance(step, Wait):
            await self._wait(step, path)
        else:
            raise unknown_step(step)

    # ---- invocations in progress

    async def _query_or_cancel(self, step: Query | Cancel, path: DataPath) -> None:
        request = self.requests.get(step.of)
        if request is None or request.call is None:
            raise self.fail(step, path, f"an invocation {step.of}", "the agent has none of it")
        if isinstance(step, Query):
            status = await request.call.query()
            self.save(step, path, {"status": status.status})
        elif request.done:
            ended = request.statuses()[-1]
            raise self.fail(step, path, f"an invocation {step.of} that goes on", f"it has {ended}")
        else:
            await request.call.cancel(step.reason or None)

    # ---- stopping and starting agents

    async def _stop_or_start(self, step: Stop | Start, path: DataPath) -> None:
        await self.run.wait_until_delivered()
        try:
            slot = self.run.agents.slot(step.target)
        except AgentUnavailable as error:
            raise self.fail(step, path, f"{step.target} in a node", str(error)) from None
        state = slot.statistics().state
        supervisor = supervisor_of(slot)
        if isinstance(step, Stop) and slot.agent is None:
            raise self.fail(step, path, f"a running {step.target} to stop", f"it is {state}")
        try:
            if isinstance(step, Stop):
                await supervisor.terminate_child(slot.label)
            else:
                await supervisor.restart_child(slot.label)
        except LmosActorsError as error:
            wanted = "its end" if isinstance(step, Stop) else f"a {step.target} that can be started"
            saw = error.__cause__ or error
            raise self.fail(step, path, wanted, f"{type(saw).__name__}: {saw}") from None

    # ---- approvals

    # ---- listening

    async def _listen(self, step: Observe | Subscribe, path: DataPath) -> None:
        contract = self.run.cell.system.contract(step.target)
        key: object = (step.as_, step.event) if isinstance(step, Subscribe) else step.id or ""
        if isinstance(step, Observe):
            seen = self._readings.setdefault(step.id or "", [])
            read = None if contract is None else contract.table.get(f"?{step.property}")
            secrecy = getattr(read, "result_secrecy", 0)
        else:
            seen = self._events.setdefault((step.as_, step.event), [])
            event = None if contract is None else contract.events.get(step.event)
            secrecy = getattr(event, "secrecy", 0)
        if secrecy:
            self._secret[key] = None
        await self.perform(step, path, self._start_listening(step, seen))

    async def _start_listening(self, step: Observe | Subscribe, seen: list[Any]) -> None:
        assert self.listening is not None
        # an error of a task before it has started is raised here, as it is
        await self.listening.start(self._collect, step, seen)

    async def _collect(
        self, step: Observe | Subscribe, seen: list[Any], task_status: trio.TaskStatus[None]
    ) -> None:
        machine, deaths, first = self.run.machine, -1, True
        assert machine is not None
        processes, path = self.run.processes, self.run.agents.path(step.target)
        while deaths != machine.deaths:  # a killed node has ended the feed
            await machine.wait_up()
            deaths = machine.deaths
            begun = task_status.started if first else None
            first = False
            try:
                if processes is None:
                    await self._take_feed(step, seen, begun)
                elif await processes.until_moved(path, partial(self._take_feed, step, seen, begun)):
                    deaths = -1
            except AgentError:
                if begun is not None or deaths == machine.deaths:
                    raise

    async def _take_feed(
        self, step: Observe | Subscribe, seen: list[Any], begun: Callable[[], None] | None
    ) -> None:
        """Collect the items of a feed until its end; `begun` is called once the feed is open."""
        await self.run.agents.reach(step.target, is_chosen=True)
        thing: Any = self.thing(step)
        if isinstance(step, Observe):
            opened = thing.observe(step.property)
        else:
            opened = thing.subscribe(step.event, size=EVENTS)
        async with opened as feed:
            if begun is not None:
                begun()
            async for value in feed:
                seen.append(plain(value))
                self.run.watch.notify()

    # ---- faults and waiting

    async def _wait(self, step: Wait, path: DataPath) -> None:
        until = step.until
        if until is None:
            await trio.sleep(step.for_ or 0)
            return
        await self.run.wait_until_delivered()
        deadline = trio.current_time() + self._within(step)
        if until.is_ == "connected":
            hub = self.run.hub
            assert hub is not None  # else the file has been refused
            if not await hub.wait_connected(until.agent, deadline):
                expected = f"{until.agent} on the hub within {self._within(step)}"
                raise self.fail(step, path, expected, f"it is not there, and {self._state(until.agent)}")
            return
        if not await self.run.watch.until(lambda: self._state(until.agent) == until.is_, deadline):
            expected = f"{until.agent} {until.is_} within {self._within(step)}"
            raise self.fail(step, path, expected, f"it is {self._state(until.agent)}")

    def _state(self, agent: str) -> str:
        """Return the state of an agent as a word that `wait until` uses; the node may be down."""
        if self.run.processes is not None:
            return self.run.processes.state_of(self.run.agents.path(agent))
        try:
            return state_of(self.run.agents.slot(agent))
        except AgentUnavailable:
            return "restarting"

    # ---- expecting

    async def _expect(self, step: Expect, path: DataPath) -> None:
        try:
            expect = fill_expect(step, self.saved)
        except LookupError as error:
            raise self.fail(step, path, "saved values", str(error)) from None
        counting = waits_to_the_end(step)
        patience = step.within if step.within is not None else 0.0 if counting else self.scenario.timeout
        deadline = trio.current_time() + patience
        if counting:
            await trio.sleep_until(deadline)
            await self.run.wait_until_delivered()
        fine = False

        def settled() -> bool:
            nonlocal fine
            fine = fine or all(verdict.ok for verdict in self._verdicts(expect))
            return fine or self._is_final(expect)

        try:
            await self.run.watch.until(settled, deadline)
        except trio.Cancelled:
            if trio.current_time() >= self.deadline:  # the story's timeout: report what it waited for
                self._note_unmet(expect, step, path)
            raise
        if not fine:
            self._note_unmet(expect, step, path)
            raise StepFailed

    def _note_unmet(self, expect: Expect, step: Expect, path: DataPath) -> None:
        text = repr(step)
        both = any(reference in text for reference in self.secret_saved)
        hidden = both or self._is_hidden(step)
        for verdict in self._verdicts(expect):
            if not verdict.ok:
                expected = SECRET if both else verdict.expected
                self.fail(step, path, expected, SECRET if hidden else verdict.saw)

    def _is_hidden(self, step: Expect) -> bool:
        """Return whether the subject of an expectation is secret."""
        if step.that in ("output", "items"):
            request = self._request_of(step)
            return request.hidden and request.error is None
        return (str(step.of) if step.that == "reading" else (step.target, step.event)) in self._secret

    def _is_final(self, expect: Expect) -> bool:
        """Return whether the subject of an expectation can no longer change."""
        final = expect.that in ("output", "status", "items") and self._request_of(expect).done
        return final or expect.that == "value"

    def _request_of(self, expect: Expect) -> StepRequest:
        return self.requests.get(str(expect.of)) or StepRequest()

    def _verdicts(self, expect: Expect) -> list[Verdict]:
        """Judge the values so far; the result is a failure if there is no value."""
        if expect.that in ("output", "items"):
            request = self._request_of(expect)
            if request.error is not None or not (request.done or request.items):
                return [unanswered(expect, request)]
        request = self._request_of(expect)
        root = MESSAGE if request.message else "value" if request.read else None
        return judge_expect(expect, self._seen(expect), root) or [
            Verdict(False, "something to judge", "nothing")
        ]

    def _seen(self, expect: Expect) -> Any:
        of = str(expect.of)
        if expect.that == "value":
            return expect.of
        if expect.that == "reading":
            return self._readings.get(of, [])
        if expect.that == "heard":
            return [] if self.run.hub is None else self.run.hub.heard
        if expect.that == "event":
            return self._events.get((str(expect.target), str(expect.event)), [])
        request = self._request_of(expect)
        if expect.that == "status":
            return request.statuses()
        if expect.that == "items":
            return request.items or []
        if expect.that == "output":
            return request.value
        raise unknown_step(expect)


SECRET = "what is secret"
"""The placeholder for secret values in failures."""

EVENTS = 1 << 20
"""The queue size of a subscription, large enough that no event is missed."""


def unanswered(expect: Expect, request: StepRequest) -> Verdict:
    """Return the verdict on the output of a step that has no output."""
    saw = "no answer yet" if request.error is None else f"{type(request.error).__name__}: {request.error}"
    return Verdict(False, "items" if expect.that == "items" else "an output", saw)


def state_of(slot: Any) -> str:
    """Return the state of an agent as a word that `wait until` uses."""
    state: str = slot.statistics().state
    if state == "running" or slot.status == "restarting":
        return state if state == "running" else "restarting"
    return "stopped" if slot.status == "stopped" or state == "gone" else state
