"""Replays: agents that answer as one did in a recorded message log.

A request is answered by the first recorded one, not used yet, of the same verb, affordance and input, after
the same time. One that is not in the recording fails for its caller, and the run with it; so do recorded
requests that nobody makes, unless the file says otherwise. Nothing is ever asked of a real agent.
"""

from __future__ import annotations

import re
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final

import trio

import lmos_actors.errors as errors
from lmos_actors.actors import RUN, STREAM, TURN, Altered, current_envelope, stand_in
from lmos_actors.errors import ActionFailed, AgentError, InvalidInput
from lmos_actors.reports import Failure

from ..values import exception_class, show
from ._mocks import message_now, request_of
from ._recorded_agents import LISTENING, fits, most_similar
from ._untyped import UntypedOperation, untyped_class

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lmos_actors.actors import Agent, Operation
    from lmos_actors.files import DataPath

    from ..model import Replay
    from ._recorded_agents import Exchange, RecordedAgent, Recording

SHOWN: Final = 3
"""Most unrecorded requests, and most unused recorded ones, that are shown."""

_DIED: Final = re.compile(r"agent .* died \((.*)\), request had begun", re.DOTALL)


def recorded_class(name: str, recorded_agents: Sequence[RecordedAgent]) -> type[Agent]:
    """Make the class of a replay without `use`: with what its recordings name."""
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
    """State of one replay in one run, over all its incarnations; `place` locates data in the file."""

    def __init__(
        self,
        name: str,
        entry: Replay,
        recording: Recording,
        recorded: RecordedAgent,
        place: Callable[[DataPath], str],
    ) -> None:
        self.name = name
        self.recorded = recorded
        self._entry = entry
        self._recording = recording
        self._place = place
        self._used: set[int] = set()
        self._missed = 0
        self._failures: list[Failure] = []

    def find(self, agent: Any, op: Operation, args: tuple[Any, ...]) -> Exchange:
        """Return the recorded exchange for the request that is carried out now.

        Raises ActionFailed if none.
        """
        request, shown = request_of(agent, op, args)
        verb = op.verb if getattr(message_now(agent), "waits_for_answer", True) else "tell"
        allow_missing = isinstance(op, UntypedOperation)
        same = [e for e in self.recorded.exchanges if e.verb == verb and e.affordance == op.name]
        for exchange in same:
            if exchange.line not in self._used and fits(exchange.input, shown, allow_missing=allow_missing):
                self._used.add(exchange.line)
                return exchange
        self._miss(f"{verb} {op.name}", same, shown, request.sender)
        raise ActionFailed(f"{verb} {op.name} is not in the recording of {self.name}")

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
            used = ", which has been used" if near.line in self._used else ""
            saw = f"the nearest is {show(near.input)} ({self._line(near)}){used}"
        else:
            there = dict.fromkeys(f"{e.verb} {e.affordance}" for e in self.recorded.exchanges)
            saw = f"recorded are {', '.join(list(there)[:5]) or 'no requests'}"
        expected = f"a recorded {what} {show(shown)} from {sender}"
        self._failures.append(self._more(expected, saw))

    def _line(self, exchange: Exchange) -> str:
        return f"{self._recording.name}:{exchange.line}"

    def in_one_step(self, action: str) -> bool:
        """Return whether every recorded answer of an action came at once, as those of a turn do."""
        return all(
            e.ended == 0.0 and (e.error or "ActionFailed").startswith(("ActionFailed", "AgentDied"))
            for e in self.recorded.exchanges
            if e.affordance == action and e.verb in ("invoke", "tell")
        )

    def typed(self, exchange: Exchange, op: Operation, value: Any) -> Any:
        """Return a recorded value as the class's type. Raises TypeError for a value of another type."""
        try:
            return op.give(value)
        except InvalidInput as error:
            expected = f"an output that {op.label} can have"
            failure = Failure(self._line(exchange), f"replay {self.name}", expected, str(error))
            self._failures.append(failure)
            raise op.wrong_result(error) from None

    def failures(self, *, complete: bool) -> list[Failure]:
        """Return the failures; those of unused requests only where the story came to its end."""
        found = list(self._failures)
        if self._missed > SHOWN:
            found.append(self._more("nothing but what was recorded", f"{self._missed - SHOWN} more misses"))
        if not complete or self._entry.unused == "allowed":
            return found
        unused = [e for e in self.recorded.exchanges if e.line not in self._used and e.counts]
        found += [
            Failure(
                self._line(exchange),
                f"replay {self.name}",
                f"{exchange.verb} {exchange.affordance} {show(exchange.input)}, as recorded",
                "nobody asked for it",
            )
            for exchange in unused[:SHOWN]
        ]
        if len(unused) > SHOWN:
            found.append(self._more("all that was recorded", f"{len(unused) - SHOWN} more unused"))
        return found

    def _more(self, expected: str, saw: str) -> Failure:
        return Failure(self._place(("agents", self.name)), f"replay {self.name}", expected, saw)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# --- the class


def replay_class(cls: type[Agent], script: ReplayScript) -> type[Agent]:
    """Make the class of a replay for one run: what `cls` offers, answered from the recording."""

    def alter(key: str, op: Operation) -> Operation:
        return op if op.verb in LISTENING else _replayed(script, key, op)

    made: Any = stand_in(cls, alter, {})
    if script.recorded.effects:
        made.__contract__.has_started = True
        made.started = partialmethod(_schedule_effects, script.recorded)
    return made  # type: ignore[no-any-return]


def _schedule_effects(agent: Any, recorded: RecordedAgent) -> None:
    """Restore the first property values of this life, and schedule its effects without a request."""
    now, life = trio.current_time(), agent._slot.incarnation
    for effect in recorded.effects:
        if effect.life != life:
            continue
        if effect.kind == "shown":
            name, value = effect.what
            made = agent.__contract__.properties[name]
            agent.__dict__[made.hidden] = made.take(value)
        elif effect.when is None:
            _perform(agent, effect.kind, effect.what)
        elif effect.when >= now:
            agent.after(effect.when - now, _perform, agent, effect.kind, effect.what)


def _replayed(script: ReplayScript, key: str, op: Operation) -> Altered:
    made = type(op) if isinstance(op, Altered) else Altered
    if op.internal or (op.kind == TURN and script.in_one_step(op.name)):
        return made(op, _turn(script, key, op), kind=TURN, bare=not op.internal)

    async def run(agent: Any, *args: Any) -> Any:
        return await _Answer(script, agent, op, args).output()

    async def stream(agent: Any, *args: Any) -> AsyncGenerator[Any]:
        answer = _Answer(script, agent, op, args)
        for after, kind, what in answer.exchange.effects:
            await answer.wait(after)
            if kind == "item":
                yield answer.typed(what)
            else:
                answer.tell(kind, what)
        await answer.end()

    return made(op, stream, bare=True) if op.kind == STREAM else made(op, run, kind=RUN, bare=True)


def _turn(script: ReplayScript, key: str, op: Operation) -> Callable[..., Any]:
    """Make the turn that answers in one step: of an action that is one, or what is asked of properties."""

    def turn(agent: Any, *args: Any) -> Any:
        if op.verb == "read" and getattr(agent._slot.rt.turns.current, "op", None) != op:
            return op.fn(agent)  # not a request: observers get the values of a new life
        exchange = script.find(agent, op, () if op.verb == "observe" else args)
        for _, kind, what in exchange.effects:
            _perform(agent, kind, what)
        if exchange.error is not None:
            raise _error(exchange)
        if not op.internal:
            return script.typed(exchange, op, exchange.value)
        if op.verb == "observe":
            agent._slot.sinks().add(key[1:], args[0])
            args[0].push(_property_value(agent, op, exchange))
        return _property_value(agent, op, exchange) if op.verb == "read" else exchange.value

    return turn


def _property_value(agent: Any, op: Operation, exchange: Exchange) -> Any:
    return agent.__contract__.table[f"={op.name}"].params[0].shape.take(exchange.value)


def _perform(agent: Any, kind: str, what: Any) -> None:
    """Emit an event again, or let a property change."""
    name, value = what
    if kind == "event":
        agent._slot.emit(agent.__contract__.events[name], value)
    else:
        setattr(agent, agent.__contract__.properties[name].attribute, value)


class _Answer:
    """One answer of a replay, as it was recorded."""

    def __init__(self, script: ReplayScript, agent: Any, op: Operation, args: tuple[Any, ...]) -> None:
        self.script = script
        self.agent = agent
        self.op = op
        self.exchange = script.find(agent, op, args)
        self._began = trio.current_time()

    async def wait(self, after: float) -> None:
        """Wait until so many seconds after the request."""
        when = self._began + after
        if when > trio.current_time():
            await trio.sleep_until(when)

    def tell(self, kind: str, what: Any) -> None:
        """Repeat an effect between request and answer."""
        if kind != "progress":
            _perform(self.agent, kind, what)
            return
        envelope = current_envelope()
        if envelope is not None and envelope.run is not None:
            envelope.run.report(what)

    async def end(self) -> None:
        """Wait for the end and raise its error, if any. Never returns where no answer was recorded."""
        exchange = self.exchange
        if exchange.ended is None:
            await trio.sleep_forever()
        await self.wait(exchange.ended or 0.0)
        if exchange.error is None:
            return
        error = _error(exchange)
        envelope = current_envelope()
        if isinstance(error, AgentError) and not isinstance(error, ActionFailed) and envelope is not None:
            # what the runtime itself refuses is no failure that a handler may raise
            assert envelope.run is not None
            envelope.run.settle_error(error, "handled")
            return
        raise error

    async def output(self) -> Any:
        """Return the one output."""
        for after, kind, what in self.exchange.effects:
            await self.wait(after)
            self.tell(kind, what)
        await self.end()
        return self.exchange.value if self.exchange.error is not None else self.typed(self.exchange.value)

    def typed(self, value: Any) -> Any:
        """Return a recorded value as the class's type."""
        return self.script.typed(self.exchange, self.op, value)


def _error(exchange: Exchange) -> Exception:
    """Make the recorded error again; the death of the agent is the exception that it died of."""
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
