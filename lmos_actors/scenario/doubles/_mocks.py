"""Mocks: agents that answer by the rules of a file.

A request that no rule fits fails for its caller and fails the run, and so does an unused rule, unless the
file says otherwise. Delays are drawn from a stream of the mock's own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from msgspec import UNSET, structs

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
    """Return whether an action of a mock without `use` has many outputs: a rule has chunks and no end."""
    return any(
        rule.when.action == action
        and rule.reply is not UNSET
        and any(isinstance(part, Chunk) for part in rule.reply)
        and not any(isinstance(part, Done) for part in rule.reply)
        for rule in entry.rules
    )


def mock_contract(name: str, entry: Mock) -> type[Agent]:
    """Make the class of a mock without `use`: with the actions and events that its rules name."""
    named = dict.fromkeys(rule.when.action for rule in entry.rules if rule.when.action is not None)
    return untyped_class(
        name,
        actions=[action for action in named if not is_stream(entry, action)],
        streams=[action for action in named if is_stream(entry, action)],
        properties=entry.state,
        events=[event for rule in entry.rules for event in rule.emit],
    )


def on_hub(entry: Mock) -> Mock:
    """Return a mock on a hub with an action in each rule: one without is for questions."""
    rules = tuple(
        rule
        if rule.when.action is not None
        else structs.replace(rule, when=structs.replace(rule.when, action=QUESTION))
        for rule in entry.rules
    )
    return structs.replace(entry, rules=rules)


def stranger_contract(name: str, entry: Mock) -> type[Agent]:
    """Make the class of a mock on a hub: its actions are the types of messages that its rules are for."""
    return mock_contract(name, on_hub(entry))


class Manner(Protocol):
    """The parts of a mock that depend on the protocol that it speaks."""

    def sender(self, request: DoubleRequest) -> str:
        """Return the path of the agent that has sent a request, `user` if none has."""
        ...

    def take(self, request: DoubleRequest, rule: Rule) -> None:
        """Take note of the rule that answers a request."""
        ...

    async def emitted(self, request: DoubleRequest, name: str, data: Any) -> None:
        """Take note of an event that the rule of a request has emitted."""
        ...


class NearManner:
    """The manner of mocks that speak as agents do."""

    def sender(self, request: DoubleRequest) -> str:
        """Return the path of the agent that has sent a request, `user` if none has."""
        return request.sender or USER

    def take(self, request: DoubleRequest, rule: Rule) -> None:
        """Do nothing."""

    async def emitted(self, request: DoubleRequest, name: str, data: Any) -> None:
        """Do nothing: the event is with its subscribers."""


NEAR: Final = NearManner()


class MockScript:
    """State of one mock in one run, over all its incarnations: used rules and unmatched requests.

    `place` returns the place of data in the file; `paths` those of agents in the tree. `missed` are the
    traces of requests that no rule fitted, of all mocks of the run.
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
        """Return the next number of what the mock counts, from 1."""
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
            self._shown.append(self._no_rule(request, shown))
            if request.trace is not None and self.entry.unmatched == "fails":
                self._missed.add(request.trace)
        return None

    def _give_back(self, index: int) -> None:
        self._used[index] -= 1

    def refuse(self, request: Request) -> None:
        """Take note of a request that nothing of the mock is for."""
        self.take(request, request.input)

    def fits(self, request: Request) -> bool:
        """Return whether a rule is for a request, used up or not."""
        return any(not misfits(rule.when, request, self.paths) for rule in self.entry.rules)

    def _no_rule(self, request: Request, shown: Any) -> Failure:
        found = nearest(list(zip(self.entry.rules, self._used, strict=True)), request, self.paths)
        why = "; ".join(f"{self._rule(index)}: {', '.join(reasons)}" for index, reasons in found)
        expected = (
            f"a rule for {request.action} {show(shown)} from {named_sender(request.sender, self.paths)}"
        )
        return Failure(self._place(("agents", self.name)), f"mock {self.name}", expected, f"none fits; {why}")

    def _rule(self, index: int) -> str:
        return f"rule {index + 1} ({self._place(('agents', self.name, 'rules', index))})"

    def wrong(self, rule: Rule, expected: str, saw: str) -> None:
        """Record that a rule does not fit the class of the mock."""
        index = next(index for index, one in enumerate(self.entry.rules) if one is rule)
        place = self._place(("agents", self.name, "rules", index))
        self._wrong.append(Failure(place, f"mock {self.name}, rule {index + 1}", expected, saw))

    def seconds(self, agent: Any, delay: Delay) -> float:
        """Draw how long something takes."""
        stream: RandomStream = self._stream or agent._slot.rt.entropy.stream(f"mock {self.name}")
        self._stream = stream
        return draw(delay, stream)

    def failures(self, *, complete: bool) -> list[Failure]:
        """Return the failures; those of unused rules only where the scenario came to its end."""
        found = list(self._wrong)
        if self.entry.unmatched == "fails":
            found += self._shown
            if self._unfit > len(self._shown):
                more = self._unfit - len(self._shown)
                found.append(
                    Failure(
                        self._place(("agents", self.name)),
                        f"mock {self.name}",
                        "a rule for every request",
                        f"{more} more that none fits",
                    )
                )
        return found + (self._unused() if complete else [])

    def _unused(self) -> list[Failure]:
        return [
            Failure(
                self._place(("agents", self.name, "rules", index)),
                f"mock {self.name}, rule {index + 1}",
                "to be used",
                "no request came to it",
            )
            for index, rule in enumerate(self.entry.rules)
            if index not in self._was_used and rule.unused == "fails"
        ]


def mock_class(cls: type[Agent], script: MockScript, manner: Manner = NEAR) -> type[Agent]:
    """Make the class of a mock for one run: what `cls` offers, answered by the script."""
    properties = cls.__contract__.properties
    values = {properties[wire].attribute: value for wire, value in script.entry.state.items()}

    async def respond(request: DoubleRequest) -> Any:
        answer = _Answer(script, request, manner)
        await answer.begin()
        return answer.outputs() if request.op.kind == STREAM else await answer.output()

    return double_of(cls, lambda key, op: op if op.internal else answered(op, respond), values)


class _Answer:
    """One answer of a mock, by its rule."""

    def __init__(self, script: MockScript, request: DoubleRequest, manner: Manner) -> None:
        self.script = script
        self.request = request
        self.manner = manner
        op = request.op
        asked = Request(op.name, request.input(request.args), manner.sender(request))
        rule = script.take(asked, request.input(request.shown_args))
        if rule is None:
            raise ActionFailed(f"no rule of mock {script.name} fits")
        self.rule = rule
        manner.take(request, rule)

    async def begin(self) -> None:
        """Wait for the delay, emit the events, and raise the error of the rule, if any."""
        rule = self.rule
        if rule.delay is not UNSET:
            await trio.sleep(self.script.seconds(self.request.agent, rule.delay))
        for name, data in rule.emit.items():
            self._emit(name, data)
            await self.manner.emitted(self.request, name, data)
        if rule.fail is not UNSET:
            raise ActionFailed({"code": rule.fail.code, "message": rule.fail.message})
        if rule.crash is not UNSET:
            made = exception_class(rule.crash) or RuntimeError
            raise made(f"mock {self.script.name} crashes by its rule")

    def _emit(self, name: str, data: Any) -> None:
        agent = self.request.agent
        try:
            agent._slot.emit(agent.__contract__.events[name], data)
        except TypeError as error:
            self.script.wrong(self.rule, f"data of the event {name}", str(error))
            raise

    async def outputs(self) -> AsyncGenerator[Any]:
        """Yield the many outputs; items that `output` lists count as chunks."""
        if self.rule.reply is UNSET:
            items: Any = self.rule.output
            parts: list[Any] = [Chunk(chunk=item) for item in items]
        else:
            parts = [part for part in self.rule.reply if not isinstance(part, Done)]
        for part in parts:
            if not await self._perform_part(part):
                yield self._typed(self.request.op.give, part.chunk)

    async def _perform_part(self, part: Any) -> bool:
        """Carry out a wait or progress; return False for an output, which is left to the caller."""
        if isinstance(part, Waited):
            await trio.sleep(self.script.seconds(self.request.agent, part.wait))
        elif isinstance(part, Progressed):
            shape = self.request.op.progress
            value = part.progress
            self.request.report(value if shape is None else self._typed(shape.take, value))
        return isinstance(part, (Waited, Progressed))

    async def output(self) -> Any:
        """Return the one output."""
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
