"""Replays: agents that answer as in a recorded message log.

A request gets the answer of the first unused recorded request with the same verb, affordance and input, after
the same time. A request that is not in the recording fails for its caller, and fails the run. A recorded
request that is not made fails the run too, unless the file allows it. The replay sends nothing to a real
agent.
"""

from __future__ import annotations

import re
from functools import partial, partialmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import trio

import lmos_actors.errors as errors
from lmos_actors.actors import (
    STREAM,
    TURN,
    DoubleRequest,
    answered,
    answered_in_turn,
    double_of,
)
from lmos_actors.errors import ActionFailed, AgentError, InvalidInput
from lmos_actors.reports import Failure
from lmos_actors.system import untyped_class
from lmos_actors.system.model import USER
from lmos_actors.system.values import exception_class, is_shown_whole, show

from ._differences import differences, listing
from ._recordings import LISTENING, fits, most_similar, recorded_agent_of
from ._rules import named_sender
from ._uses import note_use

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from lmos_actors.actors import Agent, Operation
    from lmos_actors.files import DataPath
    from lmos_actors.system.model import Replay

    from ._recordings import Exchange, RecordedAgent, Recording
    from ._rules import Request

SHOWN: Final = 3
"""Most unrecorded requests, and most unused recorded ones, that are shown."""

NO_PATHS: Final[Mapping[str, str]] = MappingProxyType({})

_DIED: Final = re.compile(r"agent .* died \((.*)\), request had begun", re.DOTALL)


def contract_of(name: str, entry: Replay, recording: Recording) -> type[Agent]:
    """Make the class of a replay without `use`: its contract has every affordance in the recorded runs.

    Raises TypeError if two affordances share a name, and LookupError if the agent is in none of the runs.
    """
    recorded_agents: list[RecordedAgent] = []
    missing: LookupError | None = None
    for label in recording.runs:
        try:
            recorded_agents.append(recorded_agent_of(name, entry, recording, label))
        except LookupError as error:
            missing = error
    if missing is not None and not recorded_agents:
        raise missing
    return _recorded_class(name, recorded_agents)


def _recorded_class(name: str, recorded_agents: Sequence[RecordedAgent]) -> type[Agent]:
    exchanges = [exchange for recorded in recorded_agents for exchange in recorded.exchanges]
    effects = [(item.kind, item.what) for recorded in recorded_agents for item in recorded.effects]
    effects += [(kind, what) for exchange in exchanges for _, kind, what in exchange.effects]
    actions = [e for e in exchanges if e.verb in ("invoke", "tell")]
    many = [e.affordance for e in actions if any(kind == "item" for _, kind, _ in e.effects)]
    properties = [e.affordance for e in exchanges if e.verb in ("read", "write", "observe")]
    properties += [what[0] for kind, what in effects if kind in ("changed", "shown")]
    events = [e.affordance for e in exchanges if e.verb == "subscribe"]
    events += [what[0] for kind, what in effects if kind == "event"]
    return untyped_class(
        name,
        actions=[e.affordance for e in actions if e.affordance not in many],
        streams=many,
        properties=dict.fromkeys(properties),
        events=events,
    )


class ReplayScript:
    """State of one replay in one run, over all its incarnations.

    `place` returns the position of data in the file; `paths` has the tree paths of agents, by name. `file` is
    the file whose replays can be recorded anew. It is None if the class of the real agent is not known.
    """

    def __init__(
        self,
        name: str,
        entry: Replay,
        recording: Recording,
        recorded: RecordedAgent,
        place: Callable[[DataPath], str],
        paths: Mapping[str, str] = NO_PATHS,
        file: str | None = None,
    ) -> None:
        self.name = name
        self.paths = paths
        self.recorded = recorded
        self.manner: ReplayManner = NEAR
        self.brief: Callable[[Any], Any] = _whole
        """What of an input is shown of a request that is not in the recording."""
        self._entry = entry
        self._recording = recording
        self._place = place
        self._file = file
        self._used: set[int] = set()
        self._was_used: set[int] = set()
        self._missed = 0
        self._failures: list[Failure] = []

    def find(self, request: DoubleRequest) -> Exchange:
        """Return the recorded exchange for a request. Raises ActionFailed if there is none."""
        op = request.op
        shown = request.input(() if op.verb == "observe" else request.shown_args)
        verb = "tell" if request.one_way else op.verb
        sender = request.sender or USER
        exchange = self.match(verb, op.name, shown, sender, allow_missing=op.untyped)
        self.manner.found(request, exchange)
        return exchange

    def match(
        self, verb: str, name: str, shown: Any, sender: str, *, allow_missing: bool = False
    ) -> Exchange:
        """Return the first unused recorded exchange for an input. Raises ActionFailed if there is none."""
        same = self._recorded(verb, name)
        for exchange in same:
            if exchange.line not in self._used and fits(exchange.input, shown, allow_missing=allow_missing):
                self._used.add(exchange.line)
                self._was_used.add(exchange.line)
                note_use(partial(self._used.discard, exchange.line))
                return exchange
        self._miss(f"{verb} {name}", same, shown, sender)
        raise ActionFailed(f"{verb} {name} is not in the recording of {self.name}")

    def fits(self, request: Request) -> bool:
        """Return whether there is an unused recorded request that matches this request."""
        unused = (e for e in self._recorded("invoke", request.action) if e.line not in self._used)
        return any(fits(exchange.input, request.input, allow_missing=True) for exchange in unused)

    def refuse(self, request: Request) -> None:
        """Note a request for an action that the recording does not have."""
        self._miss(f"invoke {request.action}", [], request.input, request.sender)

    def _recorded(self, verb: str, name: str) -> list[Exchange]:
        return [e for e in self.recorded.exchanges if e.verb == verb and e.affordance == name]

    def _miss(self, what: str, same: list[Exchange], shown: Any, sender: str) -> None:
        self._missed += 1
        if len(self._failures) >= SHOWN:
            return
        alike = [exchange for exchange in same if fits(exchange.input, shown)]
        near = most_similar((e for e in same if e.line not in self._used), shown) or most_similar(
            iter(same), shown
        )
        if alike:
            saw = f"it was recorded {_times(len(alike))}, and has been asked more often"
        elif near is not None:
            saw = self._nearest(near, shown)
        else:
            there = dict.fromkeys(f"{e.verb} {e.affordance}" for e in self.recorded.exchanges)
            saw = f"recorded are {', '.join(list(there)[:5]) or 'no requests'}"
        if self._file is not None and self._missed == 1:
            saw += f"; if that is wanted: lmos-actors run {self._file} --update-recordings"
        expected = f"a recorded {what} {show(self.brief(shown))} from {named_sender(sender, self.paths)}"
        self._failures.append(self._more(expected, saw))

    def _nearest(self, near: Exchange, shown: Any) -> str:
        """Return the nearest recorded request as text; of a long request, only the differences."""
        used = ", which has been used" if near.line in self._used else ""
        if is_shown_whole(near.input) and is_shown_whole(shown):
            return f"the nearest is {show(near.input)} ({self._line(near)}){used}"
        return f"the nearest is at {self._line(near)}{used}: {listing(differences(near.input, shown))}"

    def _line(self, exchange: Exchange) -> str:
        return f"{self._recording.name}:{exchange.line}"

    def in_one_step(self, action: str) -> bool:
        """Return whether every recorded answer of an action came at once, as answers within one turn do."""
        return all(
            e.ended == 0.0 and (e.error or "ActionFailed").startswith(("ActionFailed", "AgentDied"))
            for e in self.recorded.exchanges
            if e.affordance == action and e.verb in ("invoke", "tell")
        )

    def typed(self, exchange: Exchange, op: Operation, value: Any) -> Any:
        """Return a recorded value as the type in the contract. Raises TypeError for another type."""
        try:
            return op.give(value)
        except InvalidInput as error:
            expected = f"an output that {op.label} can have"
            failure = Failure(self._line(exchange), f"replay {self.name}", expected, str(error))
            self._failures.append(failure)
            raise op.wrong_result(error) from None

    def failures(self, *, complete: bool) -> list[Failure]:
        """Return the failures; unused requests count only if the story reached its end."""
        found = list(self._failures)
        if self._missed > SHOWN:
            found.append(self._more("nothing but what was recorded", f"{self._missed - SHOWN} more misses"))
        if not complete or self._entry.unused == "allowed":
            return found
        unused = [e for e in self.recorded.exchanges if e.line not in self._was_used and e.counts]
        found += [
            Failure(
                self._line(exchange),
                f"replay {self.name}",
                f"{exchange.verb} {exchange.affordance} {show(exchange.input)}, as recorded",
                "no such request was made",
            )
            for exchange in unused[:SHOWN]
        ]
        if len(unused) > SHOWN:
            found.append(self._more("all that was recorded", f"{len(unused) - SHOWN} more unused"))
        return found

    def _more(self, expected: str, saw: str) -> Failure:
        return Failure(self._place(("agents", self.name)), f"replay {self.name}", expected, saw)


class ReplayManner:
    """The behaviour of a replay that depends on its protocol; this base class is for agents."""

    def found(self, request: DoubleRequest, exchange: Exchange) -> None:
        """Note the exchange that answers a request."""

    def emitted(self, agent: Any, name: str, data: Any) -> None:
        """Note an event that the replay has emitted; the subscribers have received it."""


NEAR: Final = ReplayManner()


def _whole(value: Any) -> Any:
    return value


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# --- the class


def replay_class(cls: type[Agent], script: ReplayScript) -> type[Agent]:
    """Make the class of a replay for one run: it has the contract of `cls` and answers from the recording."""

    def alter(key: str, op: Operation) -> Operation:
        if op.verb in LISTENING:
            return op
        if op.internal:
            return answered_in_turn(op, of_property)
        if op.kind == TURN and script.in_one_step(op.name):
            return answered_in_turn(op, at_once, bare=True)
        return answered(op, in_time)

    def of_property(request: DoubleRequest) -> Any:
        return _answer_of_property(script, request)

    def at_once(request: DoubleRequest) -> Any:
        exchange = _repeat_at_once(script, request)
        return script.typed(exchange, request.op, exchange.value)

    async def in_time(request: DoubleRequest) -> Any:
        answer = _Answer(script, request)
        return answer.outputs() if request.op.kind == STREAM else await answer.output()

    made: Any = double_of(cls, alter, {})
    if script.recorded.effects:
        made.__contract__.has_started = True
        made.started = partialmethod(_schedule_effects, script)
    return made  # type: ignore[no-any-return]


def _schedule_effects(agent: Any, script: ReplayScript) -> None:
    """Restore the first property values of this life, and schedule the effects that no request caused."""
    now, life = trio.current_time(), agent._slot.incarnation
    for effect in script.recorded.effects:
        if effect.life != life:
            continue
        if effect.kind == "shown":
            name, value = effect.what
            made = agent.__contract__.properties[name]
            agent.__dict__[made.hidden] = made.take(value)
        elif effect.when is None:
            _perform(script, agent, effect.kind, effect.what)
        elif effect.when >= now:
            agent.after(effect.when - now, _perform, script, agent, effect.kind, effect.what)


def _repeat_at_once(script: ReplayScript, request: DoubleRequest) -> Exchange:
    """Repeat the recorded effects of a request without delays; raise the recorded error, if any.

    Return the recorded exchange.
    """
    exchange = script.find(request)
    for _, kind, what in exchange.effects:
        _perform(script, request.agent, kind, what)
    if exchange.error is not None:
        raise error_of(exchange)
    return exchange


def _answer_of_property(script: ReplayScript, request: DoubleRequest) -> Any:
    """Answer a request to read, write or observe a property."""
    agent, op = request.agent, request.op
    current = getattr(agent._slot.rt.turns.current, "op", None)
    if op.verb == "read" and (current is None or current.original is not op.original):
        return op.fn(agent)  # observers get the values of a new life
    exchange = _repeat_at_once(script, request)
    if op.verb == "observe":
        (sink,) = request.args
        agent._slot.sinks().add(f"?{op.name}", sink)
        sink.push(_property_value(agent, op, exchange))
    return _property_value(agent, op, exchange) if op.verb == "read" else exchange.value


def _property_value(agent: Any, op: Operation, exchange: Exchange) -> Any:
    return agent.__contract__.table[f"={op.name}"].params[0].shape.take(exchange.value)


def _perform(script: ReplayScript, agent: Any, kind: str, what: Any) -> None:
    """Repeat a recorded effect: emit an event, or change a property."""
    name, value = what
    if kind == "event":
        agent._slot.emit(agent.__contract__.events[name], value)
        script.manner.emitted(agent, name, value)
    else:
        setattr(agent, agent.__contract__.properties[name].attribute, value)


class _Answer:
    """One answer of a replay, as it was recorded."""

    def __init__(self, script: ReplayScript, request: DoubleRequest) -> None:
        self.script = script
        self.request = request
        self.exchange = script.find(request)
        self._began = trio.current_time()

    async def _wait(self, after: float) -> None:
        """Wait until a number of seconds have passed since the request."""
        when = self._began + after
        if when > trio.current_time():
            await trio.sleep_until(when)

    def _repeat(self, kind: str, what: Any) -> None:
        """Repeat an effect that was recorded between the request and its answer."""
        if kind == "progress":
            self.request.report(what)
        else:
            _perform(self.script, self.request.agent, kind, what)

    async def _end(self) -> None:
        """Wait until the recorded end, and raise the recorded error, if any.

        Never returns if no answer was recorded.
        """
        exchange = self.exchange
        if exchange.ended is None:
            await trio.sleep_forever()
        await self._wait(exchange.ended or 0.0)
        if exchange.error is None:
            return
        error, run = error_of(exchange), self.request.run
        if isinstance(error, AgentError) and not isinstance(error, ActionFailed) and run is not None:
            # what the runtime itself refuses is no failure that a handler may raise
            run.settle_error(error, "handled")
            return
        raise error

    async def output(self) -> Any:
        """Repeat the recorded effects, and return the output of an action that has a single output."""
        for after, kind, what in self.exchange.effects:
            await self._wait(after)
            self._repeat(kind, what)
        await self._end()
        return self.exchange.value if self.exchange.error is not None else self._typed(self.exchange.value)

    async def outputs(self) -> AsyncGenerator[Any]:
        """Yield the outputs of a stream, and repeat the effects between them."""
        for after, kind, what in self.exchange.effects:
            await self._wait(after)
            if kind == "item":
                yield self._typed(what)
            else:
                self._repeat(kind, what)
        await self._end()

    def _typed(self, value: Any) -> Any:
        return self.script.typed(self.exchange, self.request.op, value)


def error_of(exchange: Exchange) -> Exception:
    """Return the recorded error as an exception; for AgentDied, the exception that killed the agent."""
    name, _, message = str(exchange.error).partition(": ")
    if name == "AgentDied":
        found = _DIED.fullmatch(message)
        kind, _, text = (found[1] if found is not None else message).partition(": ")
        if kind == "KeyError":  # which shows the repr of what it is made from
            text = text[1:-1]
        return (exception_class(kind) or RuntimeError)(text or message)
    if name == "ActionFailed":
        plain = message if message != "action failed" else None
        return ActionFailed(plain if exchange.output is None else exchange.output)
    known: Any = getattr(errors, name, None)
    if not (isinstance(known, type) and issubclass(known, AgentError)):
        return ActionFailed(str(exchange.error))
    if known is InvalidInput:
        text, _, path = message.rpartition(" - at ")
        return InvalidInput(text, path)
    made = known.__new__(known)
    Exception.__init__(made, message)
    return made
