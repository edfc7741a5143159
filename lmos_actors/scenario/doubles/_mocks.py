"""Mocks: agents that answer by the rules of a file.

A request that no rule fits fails for its caller and fails the run, and so does an unused rule, unless the
file allows it. Each mock draws its delays from a separate random stream.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import UNSET, UnsetType, structs

from lmos_actors.actors import STREAM, DoubleRequest, answered, double_of
from lmos_actors.errors import ActionFailed, InvalidInput
from lmos_actors.reports import Failure
from lmos_actors.system import untyped_class
from lmos_actors.system.model import QUESTION, USER, Chunk, Done, Mock, Progressed, Rule, Waited
from lmos_actors.system.values import draw, exception_class, show

from ._rules import Request, misfits, named_sender, nearest
from ._uses import note_use

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors._core import RandomStream
    from lmos_actors.actors import Agent
    from lmos_actors.files import DataPath
    from lmos_actors.system.model import Delay

SHOWN: Final = 3
"""Most unmatched requests that are shown; the others are counted."""


def is_stream(entry: Mock, action: str) -> bool:
    """Return whether an action of a mock without `use` streams: one of its rules has chunks but no end."""
    return any(
        rule.when.action == action
        and rule.reply is not UNSET
        and any(isinstance(part, Chunk) for part in rule.reply)
        and not any(isinstance(part, Done) for part in rule.reply)
        for rule in entry.rules
    )


def mock_contract(name: str, entry: Mock) -> type[Agent]:
    """Make the class of a mock without `use`; its rules name its actions and events."""
    named = dict.fromkeys(rule.when.action for rule in entry.rules if rule.when.action is not None)
    return untyped_class(
        name,
        actions=[action for action in named if not is_stream(entry, action)],
        streams=[action for action in named if is_stream(entry, action)],
        properties=entry.state,
        events=[event for rule in entry.rules for event in rule.emit],
    )


def on_hub(entry: Mock) -> Mock:
    """Return a mock on a hub in which rules without an action are rules for questions."""
    rules = tuple(
        rule
        if rule.when.action is not None
        else structs.replace(rule, when=structs.replace(rule.when, action=QUESTION))
        for rule in entry.rules
    )
    return structs.replace(entry, rules=rules)


class Manner:
    """The behaviour of a mock that depends on its protocol; this base class is for agents."""

    def sender(self, request: DoubleRequest) -> str:
        """Return the path of the agent that has sent a request; `user` if no agent has."""
        return request.sender or USER

    def take(self, request: DoubleRequest, rule: Rule) -> None:
        """Note the rule that answers a request."""

    async def emitted(self, request: DoubleRequest, name: str, data: Any) -> None:
        """Note an event that the rule of a request has emitted; the subscribers have received it."""


NEAR: Final = Manner()


class MockScript:
    """State of one mock in one run, over all its incarnations: used rules and unmatched requests.

    `place` returns the position of data in the file; `paths` has the tree paths of agents, by name. `missed`
    has the traces of requests, to any mock of the run, that no rule fitted.
    """

    def __init__(
        self,
        name: str,
        entry: Mock,
        place: Callable[[DataPath], str],
        paths: Mapping[str, str],
        missed: set[int],
    ) -> None:
        self.name = name
        self.entry = on_hub(entry) if entry.speaks == "relay" else entry
        self.paths = paths
        self._missed = missed
        self._place = place
        self._used = [0] * len(entry.rules)
        self._was_used: dict[int, None] = {}
        self._unfit = 0
        self._shown: list[Failure] = []
        self._wrong: list[Failure] = []
        self._stream: RandomStream | None = None
        self._counted = 0

    def count(self) -> int:
        """Return the next number of the mock's counter, from 1 on."""
        self._counted += 1
        return self._counted

    def take(self, request: Request, shown: Any) -> Rule | None:
        """Return the first rule that fits and has a use left, and count the use; None if there is none.

        `shown` is the input without its secrets.
        """
        for index, rule in enumerate(self.entry.rules):
            spent = rule.times is not UNSET and self._used[index] >= rule.times
            if not spent and not misfits(rule.when, request, self.paths):
                self._used[index] += 1
                self._was_used[index] = None
                note_use(partial(self._give_back, index))
                return rule
        if request.trace in self._missed and any((request.latest or {}).values()):
            return None  # a model hears of what failed for want of a rule: that is shown already
        self._unfit += 1
        if len(self._shown) < SHOWN:
            found = nearest(list(zip(self.entry.rules, self._used, strict=True)), request, self.paths)
            why = "; ".join(f"{self._rule(index)}: {', '.join(reasons)}" for index, reasons in found)
            sender = named_sender(request.sender, self.paths)
            expected = f"a rule for {request.action} {show(shown)} from {sender}"
            self._shown.append(self._failure(expected, f"none fits; {why}"))
            if request.trace is not None and self.entry.unmatched == "fails":
                self._missed.add(request.trace)
        return None

    def _give_back(self, index: int) -> None:
        self._used[index] -= 1

    def refuse(self, request: Request) -> None:
        """Note a request for an action that the mock does not have."""
        self.take(request, request.input)

    def fits(self, request: Request) -> bool:
        """Return whether any rule fits a request; a used-up rule fits too."""
        return any(not misfits(rule.when, request, self.paths) for rule in self.entry.rules)

    def _rule(self, index: int) -> str:
        return f"rule {index + 1} ({self._place(('agents', self.name, 'rules', index))})"

    def wrong(self, rule: Rule, expected: str, saw: str) -> None:
        """Record that a rule does not fit the class of the mock."""
        index = next(index for index, one in enumerate(self.entry.rules) if one is rule)
        self._wrong.append(self._failure(expected, saw, index))

    def _failure(self, expected: str, saw: str, rule: int | None = None) -> Failure:
        """Return a failure of the mock, or of the rule with the given index."""
        path, name = ("agents", self.name), f"mock {self.name}"
        if rule is None:
            return Failure(self._place(path), name, expected, saw)
        return Failure(self._place((*path, "rules", rule)), f"{name}, rule {rule + 1}", expected, saw)

    def seconds(self, agent: Any, delay: Delay) -> float:
        """Draw a delay, in seconds."""
        stream: RandomStream = self._stream or agent._slot.rt.entropy.stream(f"mock {self.name}")
        self._stream = stream
        return draw(delay, stream)

    def failures(self, *, complete: bool) -> list[Failure]:
        """Return the failures; unused rules count only if the scenario reached its end."""
        found = list(self._wrong)
        if self.entry.unmatched == "fails":
            found += self._shown
            if self._unfit > len(self._shown):
                more = self._unfit - len(self._shown)
                found.append(self._failure("a rule for every request", f"{more} more that none fits"))
        return found + (self._unused() if complete else [])

    def _unused(self) -> list[Failure]:
        return [
            self._failure("to be used", "no request came to it", index)
            for index, rule in enumerate(self.entry.rules)
            if index not in self._was_used and rule.unused == "fails"
        ]


class RuleAnswer:
    """One answer of a mock, by the first rule that fits. Raises ActionFailed if no rule fits.

    `shown` is the input of the request without its secrets.
    """

    def __init__(self, script: MockScript, agent: Any, asked: Request, shown: Any) -> None:
        rule = script.take(asked, shown)
        if rule is None:
            raise ActionFailed(f"no rule of mock {script.name} fits")
        self.script = script
        self.agent = agent
        self.rule: Rule = rule

    @property
    def parts(self) -> tuple[Any, ...]:
        """The parts of the answer; a single part if the rule has an `output`."""
        return (Chunk(chunk=self.rule.output),) if self.rule.reply is UNSET else self.rule.reply

    async def wait(self, delay: Delay | UnsetType) -> None:
        """Wait for a delay drawn from `delay`; return at once if it is not set."""
        if delay is not UNSET:
            await trio.sleep(self.script.seconds(self.agent, delay))

    def fail(self) -> None:
        """Raise the error of the rule, if any."""
        rule = self.rule
        if rule.fail is not UNSET:
            raise ActionFailed({"code": rule.fail.code, "message": rule.fail.message})
        if rule.crash is not UNSET:
            made = exception_class(rule.crash) or RuntimeError
            raise made(f"mock {self.script.name} crashes by its rule")


def mock_class(cls: type[Agent], script: MockScript, manner: Manner = NEAR) -> type[Agent]:
    """Make the class of a mock for one run: it has the contract of `cls`, and answers by the script."""
    properties = cls.__contract__.properties
    values = {properties[wire].attribute: value for wire, value in script.entry.state.items()}

    async def respond(request: DoubleRequest) -> Any:
        answer = _Answer(script, request, manner)
        await answer.begin()
        return answer.outputs() if request.op.kind == STREAM else await answer.output()

    return double_of(cls, lambda key, op: op if op.internal else answered(op, respond), values)


class _Answer(RuleAnswer):
    """One answer to a request."""

    def __init__(self, script: MockScript, request: DoubleRequest, manner: Manner) -> None:
        asked = Request(request.op.name, request.input(request.args), manner.sender(request))
        super().__init__(script, request.agent, asked, request.input(request.shown_args))
        self.request = request
        self.manner = manner
        manner.take(request, self.rule)

    async def begin(self) -> None:
        """Wait for the delay, emit the events, and raise the error of the rule, if any."""
        await self.wait(self.rule.delay)
        for name, data in self.rule.emit.items():
            self._emit(name, data)
            await self.manner.emitted(self.request, name, data)
        self.fail()

    def _emit(self, name: str, data: Any) -> None:
        agent = self.agent
        try:
            agent._slot.emit(agent.__contract__.events[name], data)
        except TypeError as error:
            self.script.wrong(self.rule, f"data of the event {name}", str(error))
            raise

    async def outputs(self) -> AsyncGenerator[Any]:
        """Yield the outputs of a stream; each item that `output` lists counts as a chunk."""
        if self.rule.reply is UNSET:
            items: Any = self.rule.output
            parts: list[Any] = [Chunk(chunk=item) for item in items]
        else:
            parts = [part for part in self.rule.reply if not isinstance(part, Done)]
        for part in parts:
            if not await self._perform_part(part):
                yield self._typed(self.request.op.give, part.chunk)

    async def _perform_part(self, part: Any) -> bool:
        """Carry out a wait or a progress report and return True; return False for an output.

        The caller handles the output.
        """
        if isinstance(part, Waited):
            await self.wait(part.wait)
        elif isinstance(part, Progressed):
            shape = self.request.op.progress
            value = part.progress
            self.request.report(value if shape is None else self._typed(shape.take, value))
        return isinstance(part, (Waited, Progressed))

    async def output(self) -> Any:
        """Return the output of an action that has a single output."""
        give, rule = self.request.op.give, self.rule
        if rule.reply is UNSET:
            return self._typed(give, rule.output)
        text = ""
        output: Any = None
        for part in rule.reply:
            if await self._perform_part(part):
                continue
            if isinstance(part, Chunk):
                text += str(part.chunk)
            elif isinstance(part, Done):
                output = part.done
        if text:
            output = text if output is None else f"{text}{output}"
        return self._typed(give, output)

    def _typed(self, take: Callable[[Any], Any], value: Any) -> Any:
        try:
            return take(value)
        except InvalidInput as error:
            op = self.request.op
            self.script.wrong(self.rule, f"an output that {op.label} can have", str(error))
            raise op.wrong_result(error) from None
