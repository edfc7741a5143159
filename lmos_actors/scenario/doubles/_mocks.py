"""Mocks: agents that answer by the rules of a file.

A request that no rule fits fails for its caller, and the run with it; so does a rule that nothing has used,
unless the file says otherwise. Delays are drawn from a stream of the mock's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import UNSET

from lmos_actors._core import plain
from lmos_actors.actors import RUN, STREAM, Altered, conceal_all, current_envelope, stand_in
from lmos_actors.errors import ActionFailed, InvalidInput
from lmos_actors.reports import Failure

from ..model import USER, Chunk, Done, Mock, Progressed, Rule, Waited
from ..values import draw, exception_class, show
from ._rules import Request, misfits, nearest
from ._untyped import untyped_class

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors._core import RandomStream
    from lmos_actors.actors import Agent, Operation
    from lmos_actors.files import DataPath

    from ..model import Delay

SHOWN: Final = 3
"""Most unmatched requests that are shown; the others are counted."""


def is_stream(entry: Mock, action: str) -> bool:
    """Return whether an action of a mock without `use` has many outputs: a rule gives chunks and no end."""
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


class MockScript:
    """State of one mock in one run, over all its incarnations: used rules and unmatched requests.

    `place` gives the place of data in the file; `paths` those of agents in the tree.
    """

    def __init__(
        self, name: str, entry: Mock, place: Callable[[DataPath], str], paths: Mapping[str, str]
    ) -> None:
        self.name = name
        self.entry = entry
        self._place = place
        self._paths = paths
        self._used = [0] * len(entry.rules)
        self._unfit = 0
        self._shown: list[Failure] = []
        self._wrong: list[Failure] = []
        self._stream: RandomStream | None = None

    def take(self, request: Request, shown: Any) -> Rule | None:
        """Return the first rule that fits and has a use left, and count the use; None if there is none.

        `shown` is the input without what is secret in it.
        """
        for index, rule in enumerate(self.entry.rules):
            spent = rule.times is not UNSET and self._used[index] >= rule.times
            if not spent and not misfits(rule.when, request, self._paths):
                self._used[index] += 1
                return rule
        self._unfit += 1
        if len(self._shown) < SHOWN:
            self._shown.append(self._no_rule(request, shown))
        return None

    def _no_rule(self, request: Request, shown: Any) -> Failure:
        found = nearest(list(zip(self.entry.rules, self._used, strict=True)), request, self._paths)
        why = "; ".join(f"{self._rule(index)}: {', '.join(reasons)}" for index, reasons in found)
        expected = f"a rule for {request.action} {show(shown)} from {request.sender}"
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
        """Return what the run is to fail with; unused rules only where the story came to its end."""
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
            if not self._used[index] and rule.unused == "fails"
        ]


def mock_class(cls: type[Agent], script: MockScript) -> type[Agent]:
    """Make the class of a mock for one run: what `cls` offers, answered by the script."""
    properties = cls.__contract__.properties
    values = {properties[wire].attribute: value for wire, value in script.entry.state.items()}
    return stand_in(cls, lambda key, op: op if op.internal else _scripted(script, op), values)


def _scripted(script: MockScript, op: Operation) -> Altered:
    async def run(agent: Any, *args: Any) -> Any:
        return await _Answer(script, agent, op, args).output()

    async def stream(agent: Any, *args: Any) -> AsyncGenerator[Any]:
        answer = _Answer(script, agent, op, args)
        await answer.begin()
        for part in answer.parts():
            if not await answer.perform_part(part):
                yield answer.item(part)

    kind = type(op) if isinstance(op, Altered) else Altered
    return kind(op, stream, bare=True) if op.kind == STREAM else kind(op, run, kind=RUN, bare=True)


def input_of(op: Operation, args: tuple[Any, ...]) -> Any:
    """Return the input of an action as plain data, as its caller would write it."""
    if not args:
        return {}
    if op.whole or op.internal:
        data = args[0]
    else:
        data = dict(zip((p.wire_name for p in op.params), args, strict=True))
    return plain({} if data is None else data)


def message_now(agent: Any) -> Any:
    """Return the message that an agent's run or turn carries out now."""
    return current_envelope() or agent._slot.rt.turns.current


def request_of(agent: Any, op: Operation, args: tuple[Any, ...]) -> tuple[Request, Any]:
    """Return the request that an agent's run or turn carries out now, and its input as it may be shown."""
    asker = getattr(message_now(agent), "sender", None)
    sender = asker.path if asker is not None else USER
    hidden = input_of(op, conceal_all(args, op.secrecies))
    return Request(op.name, input_of(op, args), sender), hidden


class _Answer:
    """One answer of a mock, by its rule."""

    def __init__(self, script: MockScript, agent: Any, op: Operation, args: tuple[Any, ...]) -> None:
        self.script = script
        self.agent = agent
        self.op = op
        request, shown = request_of(agent, op, args)
        rule = script.take(request, shown)
        if rule is None:
            raise ActionFailed(f"no rule of mock {script.name} fits")
        self.rule = rule

    async def begin(self) -> None:
        """Wait for the delay, emit the events, and raise the error of the rule, if any."""
        rule = self.rule
        if rule.delay is not UNSET:
            await trio.sleep(self.script.seconds(self.agent, rule.delay))
        for name, data in rule.emit.items():
            self._emit(name, data)
        if rule.fail is not UNSET:
            raise ActionFailed({"code": rule.fail.code, "message": rule.fail.message})
        if rule.crash is not UNSET:
            made = exception_class(rule.crash) or RuntimeError
            raise made(f"mock {self.script.name} was told to crash")

    def _emit(self, name: str, data: Any) -> None:
        event = self.agent.__contract__.events[name]
        try:
            self.agent._slot.emit(event, data)
        except TypeError as error:
            self.script.wrong(self.rule, f"data of the event {name}", str(error))
            raise

    def parts(self) -> list[Any]:
        """Return the parts of the answer; items that `output` lists count as chunks."""
        if self.rule.reply is not UNSET:
            return [part for part in self.rule.reply if not isinstance(part, Done)]
        items: Any = self.rule.output
        return [Chunk(chunk=item) for item in items]

    async def perform_part(self, part: Any) -> bool:
        """Carry out a wait or progress; return False for an output, which is left to the caller."""
        if isinstance(part, Waited):
            await trio.sleep(self.script.seconds(self.agent, part.wait))
        elif isinstance(part, Progressed):
            self._report(part.progress)
        return isinstance(part, (Waited, Progressed))

    def _report(self, value: Any) -> None:
        envelope = current_envelope()
        if envelope is not None and envelope.run is not None:
            shape = self.op.progress
            envelope.run.report(value if shape is None else self._typed(shape.take, value))

    async def output(self) -> Any:
        """Return the one output."""
        await self.begin()
        rule = self.rule
        if rule.reply is UNSET:
            return self._typed(self.op.give, rule.output)
        text = ""
        output: Any = None
        for part in rule.reply:
            if await self.perform_part(part):
                continue
            if isinstance(part, Chunk):
                text += str(part.chunk)
            elif isinstance(part, Done):
                output = part.done
        if text:
            output = text if output is None else f"{text}{output}"
        return self._typed(self.op.give, output)

    def item(self, part: Chunk) -> Any:
        """Return one of many outputs."""
        return self._typed(self.op.give, part.chunk)

    def _typed(self, take: Callable[[Any], Any], value: Any) -> Any:
        try:
            return take(value)
        except InvalidInput as error:
            self.script.wrong(self.rule, f"an output that {self.op.label} can have", str(error))
            raise self.op.wrong_result(error) from None
