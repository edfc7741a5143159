"""Execution of single steps against agents: requests, faults, samples and saved values.

`StepExecutor` is the common part of a scenario's story and a simulation's timeline, which add the order of
their steps. Every failed step is recorded in the run exactly once, by `fail`. The StepFailed that `fail`
returns only unwinds the tasks. A request with an id stays in `requests`, as later steps may query, cancel or
judge it while it is under way.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio
from msgspec import UNSET

from lmos_actors._core import plain
from lmos_actors.actors import Invocation, LocalCall, acting_as
from lmos_actors.errors import AgentDied, AgentError, DeadlineExceeded, OutcomeUnknown, SourceFailed
from lmos_actors.system.model import HUB, USER, fill_late, is_real
from lmos_actors.system.values import pick

from ..._worlds import wait_until_idle
from ...judge import StepAnswer, judge_error
from ...model import FaultAt, Invoke, InvokeAt, Read, Stream, Write, WriteAt, is_answered
from .._run import STEP
from .._step_text import describe, fault_of
from ..faults import FaultFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import LocalStream, Thing
    from lmos_actors.bindings import ConsumedThing, RemoteCall, RemoteStream
    from lmos_actors.files import DataPath
    from lmos_actors.system.model import Source

    from ...model import Decision, Saying
    from .._run import Run


class StepFailed(Exception):
    """The error raised if a step does not end as the file expects. The failure is already recorded."""


class _SourceEnded(RuntimeError):
    """The error raised by a source that the file lets fail. `args` has the name of its stream."""


_FAILING: Final = "its source fails"


@attrs.define
class StepRequest:
    """The request of one step: its call while it is under way, and its outcome afterwards."""

    call: LocalCall | RemoteCall | None = None
    read: bool = False
    """True for a read of a property."""
    reported: bool = False
    done: bool = False
    items: list[Any] | None = None
    """The outputs of a stream so far; None for other requests."""
    value: Any = None
    message: bool = False
    """True for a message on the hub: the answer is a message, too."""
    hidden: bool = False
    """True if the output is secret: failures never show it."""
    error: AgentError | None = None

    def statuses(self) -> list[str]:
        """Return the statuses that the consumer has received, without repeats."""
        words = ["pending"] if self.call is not None and self.call.stood_in_line else []
        if self.reported:
            words.append("in progress")
        if self.done:
            words.append("completed" if self.error is None else "failed")
        return words


class StepExecutor:
    """The base class of `Story` and `Timeline`, which executes single steps. One per run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.saved: dict[str, Any] = {}
        self.requests: dict[str, StepRequest] = {}
        self.secret_saved: dict[str, None] = {}
        """References to saved values that are secret."""
        self.listening: trio.Nursery | None = None
        """The nursery of tasks beside the steps, until the end: listeners, samples, timeline entries."""
        self.next_instant = math.inf
        """The instant of the next known event; a sample at that instant waits for it."""
        self._due = math.inf
        self._sampled = -math.inf

    def fail(self, step: Any, path: DataPath, expected: str, saw: str) -> StepFailed:
        """Record the failure of a step and return the exception to raise."""
        self.run.fail(path, describe(step), expected, saw)
        return StepFailed()

    # ---- requests

    async def ask(
        self, step: Any, path: DataPath, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Send a request and wait for its answer; report to `task_status` once the agent has the request."""
        request = StepRequest(read=isinstance(step, Read))
        begin = trio.current_time()
        if step.id is not None:
            self.requests[step.id] = request
        await self.perform(step, path, self._answer(step, path, request, task_status), request)
        if request.call is None:  # else `_answer` has called it
            task_status.started()
        request.done = True
        self._note_answer(step, path, request)
        self.run.watch.notify()
        if step.id is not None:
            # virtual time has whole microseconds, differences of floats do not
            self.run.latencies.setdefault(step.id, []).append(round(trio.current_time() - begin, 6))
        if request.error is None:
            if isinstance(step, Stream):
                answer: dict[str, Any] = {"items": request.items}
            else:
                answer = {"value" if isinstance(step, Read) else "output": request.value}
            self.save(step, path, answer, hidden=request.hidden)

    def _note_answer(self, step: Any, path: DataPath, request: StepRequest) -> None:
        """Store the answer of a step if a check judges it."""
        if self.run.is_answer_judged(step.id):
            name = step.id or f"{describe(step)} ({self.run.place(path)})"
            value = request.value if request.items is None else list(request.items)
            error = None if request.error is None else str(request.error)
            self.run.answers.append(StepAnswer(name, value, error, request.hidden))

    async def _answer(
        self, step: Any, path: DataPath, request: StepRequest, status: trio.TaskStatus[None]
    ) -> None:
        try:
            await self._await_answer(step, path, request, status)
        except _SourceEnded as end:
            raise SourceFailed(end.args[0], _FAILING) from None

    async def _await_answer(
        self, step: Any, path: DataPath, request: StepRequest, status: trio.TaskStatus[None]
    ) -> None:
        await self.run.agents.reach(step.target)
        async with self._open_request(step, path) as call:
            request.call = call
            request.hidden = self._is_secret(step, call)
            status.started()
            if step.id is not None:
                assert self.listening is not None
                self.listening.start_soon(self._follow, call, request)
            if isinstance(step, Stream):
                request.items = []
                await self._take_items(step, path, call, request.items)
            else:
                request.value = plain(await call.result())

    def _is_secret(self, step: Any, call: LocalCall | RemoteCall) -> bool:
        """Return whether the output is secret; for a remote call, the agent's class determines this."""
        if isinstance(call, LocalCall):
            return bool(call.op.result_secrecy)
        key = step.action if isinstance(step, (Invoke, InvokeAt, Stream)) else f"?{step.property}"
        contract = self.run.cell.system.contract(step.target)
        op: Any = None if contract is None else contract.table.get(key)
        return bool(getattr(op, "result_secrecy", 0))

    def _open_request(self, step: Any, path: DataPath) -> AbstractAsyncContextManager[Any]:
        thing = self.thing(step)
        if isinstance(step, Read):
            return thing.reading(step.property)
        if isinstance(step, (Write, WriteAt)):
            return thing.writing(step.property, self.fill_saved(step, path, step.value))
        if getattr(step, "streams", None):
            return self._open_with_sources(step, path)
        if isinstance(step, (Invoke, InvokeAt)):
            return thing.invoking(step.action, self.fill_saved(step, path, step.input))
        if isinstance(step, Stream):
            return thing.streaming(step.action, self.fill_saved(step, path, step.input))
        raise unknown_step(step)

    def _open_with_sources(self, step: Invoke | Stream, path: DataPath) -> AbstractAsyncContextManager[Any]:
        contract = self.run.cell.system.contract(step.target)
        assert contract is not None  # else the file has been refused
        op = contract.table[step.action]
        data = self.fill_saved(step, path, step.input)
        args, kwargs = op.spread(None if data is UNSET else data)
        for place in op.streams:
            name = op.params[place].wire_name
            if name in step.streams:  # else the agent refuses the request, as the step expects
                items = self.fill_saved(step, path, list(step.streams[name].items))
                kwargs[op.params[place].name] = _items_of(step.streams[name], name, items)
        is_stream = isinstance(step, Stream)
        return self.run.agents.link(step.target).open(Invocation(step.action, args, kwargs, stream=is_stream))

    async def _take_items(
        self, step: Stream, path: DataPath, call: LocalStream | RemoteStream, items: list[Any]
    ) -> None:
        """Collect as many items as the step takes; an early return cancels the invocation."""
        async for item in call:
            items.append(plain(item))
            self.run.watch.notify()
            if len(items) == step.take:
                return
        if isinstance(step.take, int):
            raise self.fail(step, path, f"{step.take} items", f"{len(items)}, then its end")

    async def _follow(self, call: LocalCall | RemoteCall, request: StepRequest) -> None:
        async for _ in call.progress:
            request.reported = True
            self.run.watch.notify()

    async def perform(
        self, step: Any, path: DataPath, doing: Any, request: StepRequest | None = None
    ) -> None:
        """Await `doing` on behalf of the agent that the step names, and judge its error or success.

        Raises StepFailed if the step expects another outcome.
        """
        error: AgentError | None = None
        deaths = self.run.deaths
        sender = getattr(step, "as_", USER)
        token = STEP.set(step.id or "")
        try:
            if sender == USER:
                await doing
            else:
                with acting_as(self.run.agents.ref(sender)):
                    await doing
        except AgentError as caught:
            error = caught
            if self.run.deaths != deaths and not isinstance(caught, OutcomeUnknown):
                target = getattr(step, "target", HUB)
                error = OutcomeUnknown(target, "its node has ended")  # so it could not say anything
        finally:
            STEP.reset(token)
            doing.close()
        if request is not None:
            request.error = error
        if step.error is not None:
            verdict = judge_error(step.error, error)
            if not verdict.ok:
                raise self.fail(step, path, verdict.expected, verdict.saw)
            trace = request.call.trace if request is not None and request.call is not None else None
            if isinstance(error, AgentDied) and trace is not None:
                self.run.crashes.expect(trace[1])  # so that it does not fail the run
        elif error is not None:
            raise self.fail(
                step, path, "an answer", f"{type(error).__name__}: {error}{self._fix(step, error)}"
            )

    def _fix(self, step: Any, error: AgentError) -> str:
        """Return the remedy for a remote agent's refusal, as the end of a message, or ""."""
        remote = self.run.cell.system.remotes.get(getattr(step, "target", HUB))
        if remote is None:
            return ""
        from ._remedies import remedy_for

        fix = remedy_for(remote, error)
        return f"; {fix}" if fix else ""

    async def send(self, step: Any, path: DataPath) -> None:
        """Send a one-way message."""
        await self.run.agents.reach(step.target)
        await self.thing(step).tell(step.action, self.fill_saved(step, path, step.input))

    async def say(
        self, step: Saying, path: DataPath, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Send a message on the hub, and wait for its answer if it has one."""
        step_id = cast("Any", step).id
        request, begin = StepRequest(message=True), trio.current_time()
        if step_id is not None:
            self.requests[step_id] = request
        said = {
            "payload": self.fill_saved(step, path, step.payload),
            "ref": self.fill_saved(step, path, step.ref),
            "members": self.fill_saved(step, path, step.members),
        }
        task_status.started()
        await self.perform(step, path, self._say(step, said, request), request)
        request.done = True
        self._note_answer(step, path, request)
        self.run.watch.notify()
        if step_id is not None and is_answered(step):
            self.run.latencies.setdefault(step_id, []).append(round(trio.current_time() - begin, 6))
        if request.error is None:
            self.save(step, path, request.value)

    async def _say(self, step: Saying, said: dict[str, Any], request: StepRequest) -> None:
        hub = self.run.hub
        assert hub is not None  # else the file has been refused
        within = getattr(step, "within", None)
        with trio.move_on_after(math.inf if within is None else within) as scope:
            request.value = await hub.say(step, said)
        if scope.cancelled_caught:
            raise DeadlineExceeded(HUB, float(within or 0))

    def thing(self, step: Any) -> Thing | ConsumedThing:
        """Return the target agent of a step. Raises NotFound if it is no longer in the tree."""
        return self.run.agents.thing(step.target)

    # ---- approvals

    async def decide(self, step: Decision, path: DataPath, within: float) -> None:
        """Answer a question that an agent asks people, once it has asked.

        Raises StepFailed if the agent does not ask in time.
        """
        run = self.run
        deadline, real = trio.current_time() + within, is_real(self.run.cell.scenario.world)
        saw = await run.approvals.decide(step, run.agents.path(step.target), run.watch, deadline, real=real)
        if saw is not None:
            raise self.fail(step, path, f"{step.target} asks for an approval within {within}", saw)

    # ---- faults

    async def inject_fault(self, step: Any, path: DataPath) -> None:
        """Inject the fault of a step or of an entry of a timeline. Raises StepFailed."""
        faults = self.run.faults
        assert faults is not None
        await self.run.wait_until_delivered()
        fault = fault_of(step) if isinstance(step, FaultAt) else step.fault
        try:
            # not its place, which has the file's path: the log must be the same wherever the file is
            name = step.id or ".".join(map(str, path))
            await faults.inject(fault, name, wait=getattr(step, "wait", False))
        except FaultFailed as error:
            raise self.fail(step, path, error.expected, error.saw) from None

    def heal_fault(self, step: Any, path: DataPath) -> None:
        """End the fault of the network that a step or an entry names. Raises StepFailed."""
        faults = self.run.faults
        assert faults is not None
        try:
            faults.lift(step.of)
        except FaultFailed as error:
            raise self.fail(step, path, error.expected, error.saw) from None

    # ---- measuring

    async def measure(self) -> None:
        """Take the samples of the run's series, each when its instant has settled, until cancelled."""
        measure = self.run.cell.scenario.measure
        if measure is None:
            return
        for number in count(int(trio.current_time() / measure.every) + 1):
            self._due = round(number * measure.every, 6)
            await trio.sleep_until(self._due)
            await self.wait_until_settled()
            self.sample()

    async def wait_until_settled(self) -> None:
        """Wait until everything at the present instant has happened."""
        await wait_until_idle()
        while self.next_instant <= trio.current_time():
            await wait_until_idle()

    async def last_sample(self, *, always: bool = False) -> None:
        """Take the sample that is due at the last instant of the run; with `always`, even if none is due."""
        now = trio.current_time()
        if always and self.run.cell.scenario.measure is not None and self._sampled < now:
            self._due = now
        if self._due <= now:
            await self.wait_until_settled()
            self.sample()

    def sample(self) -> None:
        """Take the sample that is due, unless it has been taken."""
        if self.run.judges is not None and self._due <= trio.current_time():
            self._due, self._sampled = math.inf, trio.current_time()
            if self.run.watch.on_instant is not None:
                self.run.watch.on_instant(self._sampled)
            self.run.judges.sample(self.run.now())
            self.run.watch.recheck()
            self.run.report_progress()

    # ---- saved values

    def fill_saved(self, step: Any, path: DataPath, value: Any) -> Any:
        """Return a value with saved values filled in. Raises StepFailed for a value that was not saved."""
        try:
            return value if value is UNSET else fill_late(value, "saved", self.saved)
        except LookupError as error:
            raise self.fail(step, path, "saved values", str(error)) from None

    def save(self, step: Any, path: DataPath, answer: dict[str, Any], *, hidden: bool = False) -> None:
        """Save the parts of an answer that the step names. If `hidden` is true, failures do not show them."""
        for name, where in getattr(step, "save", {}).items():
            if hidden:
                self.secret_saved[f"$(saved.{name})"] = None
            try:
                self.saved[name] = pick(where, answer)
            except LookupError as error:
                raise self.fail(step, path, f"one value at {where} to save", str(error)) from None


async def _items_of(source: Source, name: str, items: list[Any]) -> AsyncGenerator[Any]:
    """Yield the items of a source at their instants, or as soon after that as the receiver takes them."""
    begin = trio.current_time()
    for number, item in enumerate(items * source.times):
        if source.every is not None:
            await trio.sleep_until(begin + number * source.every)
        yield item
    if source.then == "fail":
        raise _SourceEnded(name)
    if source.then == "wait":
        await trio.sleep_forever()


def unknown_step(step: object) -> TypeError:
    """Return the error for a kind of step without an implementation, which must not pass unnoticed."""
    return TypeError(f"no executor for a step of the kind {type(step).__name__}")
