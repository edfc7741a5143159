"""Fault plans: which calls of which actions fail or are delayed."""

from __future__ import annotations

import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from lmos_actors._core import describe
from lmos_actors.actors import (
    RUN,
    STREAM,
    TURN,
    Action,
    Agent,
    Operation,
    PropertyHandle,
    StreamAction,
    Turn,
    altered,
)
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from lmos_actors._core import RandomStream

START: Final = "start"
READ_ALL: Final = "?"
WRITE_MANY: Final = "="


class Fault:
    """One entry of a plan; `calls` counts the calls to which it applied, `times` the faults it caused."""

    def __init__(
        self,
        what: str,
        *,
        numbers: int | Iterable[int] | None,
        rate: float | None,
        raises: Exception | type[Exception] | None,
        after: bool,
        delay: float,
        agent: str | None,
    ) -> None:
        self.calls = 0
        self.times = 0
        self.agent = agent
        self.raises = raises
        self.after = after
        self.delay = delay
        self._what = what
        self._numbers = _as_numbers(numbers, what)
        self._rate = rate
        self._chance: RandomStream | None = None
        self._check()

    def _check(self) -> None:
        if self.raises is None and not self.delay:
            raise ConfigError("does nothing: say what it raises, or for how long it delays", str(self))
        if not self.delay >= 0:
            raise ConfigError(
                f"delay must be a number of seconds of at least 0, not {self.delay!r}", str(self)
            )
        if self._rate is not None and (self._numbers or not 0 < self._rate <= 1):
            raise ConfigError("rate must be above 0 and at most 1, and goes without numbers", str(self))

    def __repr__(self) -> str:
        which = "".join(
            f", {name}={value}"
            for name, value in (("call", list(self._numbers)), ("rate", self._rate), ("agent", self.agent))
            if value
        )
        return f"fault on {self._what}{which}"

    __str__ = __repr__

    def begin(self, chance: RandomStream) -> None:
        """Start counting from zero, for a new node."""
        self.calls = self.times = 0
        self._chance = chance

    def count_call(self) -> bool:
        """Count one call, and return whether the fault occurs in this call."""
        self.calls += 1
        if self._rate is not None:
            assert self._chance is not None
            hit = self._chance.random() < self._rate
        else:
            hit = not self._numbers or self.calls in self._numbers
        self.times += hit
        return hit

    def error(self) -> Exception | None:
        """Return the exception that the fault raises, or None if it raises none."""
        error = self.raises
        return error() if isinstance(error, type) else error and error.with_traceback(None)

    def problem(self) -> str | None:
        """Return why the entry did not take full effect, or None if it did.

        A test whose faults have no effect might pass by accident.
        """
        if not self.calls:
            return f"{self} met no call at all"
        missed = [number for number in self._numbers if number > self.calls]
        return f"{self}: only {self.calls} came" if missed else None


def _as_numbers(numbers: int | Iterable[int] | None, what: str) -> tuple[int, ...]:
    found = () if numbers is None else (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if any(type(number) is not int or number < 1 for number in found) or (numbers is not None and not found):
        raise ConfigError(f"numbers are whole and count from 1, not {numbers!r}", what)
    return found


class FaultPlan:
    """The faults of one node: `node.faults`, or made beforehand for `open_test_node(..., faults=plan)`.

    Calls are counted separately for each entry, over all agents to which it applies and all their
    incarnations. An entry that has had no effect when the node ends fails the test.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[Any, Fault]] = []
        self._starts: list[tuple[type[Agent], Fault]] = []
        self._changed: Callable[[], None] | None = None
        self._chance: Callable[[str], RandomStream] | None = None

    def on(
        self,
        handle: Any,
        /,
        *,
        call: int | Iterable[int] | None = None,
        rate: float | None = None,
        raises: Exception | type[Exception] | None = None,
        after: bool = False,
        delay: float = 0.0,
        agent: str | None = None,
    ) -> Fault:
        """Make calls of an action, or reads and writes of a property, fail or wait.

        `call` is the number of the call, from 1, or several numbers; `rate` is the share of calls, drawn from
        the seed; without either, every call is affected. `raises` is an exception in place of the action's
        effect or, with `after`, once the effect has happened; ActionFailed is a declared failure, any other
        exception a crash. `delay` is the seconds before an `async def` action begins, `math.inf` for an
        action that never answers. `agent` is the path of one agent, instead of all that have this action.
        Messages that already wait in a mailbox are not affected.

        Raises ConfigError for an entry that can do nothing, or a delay on anything but an `async def` action.
        """
        name = getattr(handle, "name", None)
        if not isinstance(name, str) or not (isinstance(handle, PropertyHandle) or _kind(handle) is not None):
            raise ConfigError(f"takes the handle of an action or property, not {handle!r}", "faults.on")
        if delay and _kind(handle) in (None, TURN):
            raise ConfigError("only an async def action can be delayed: what is done in one step", name)
        entry = Fault(name, numbers=call, rate=rate, raises=raises, after=after, delay=delay, agent=agent)
        self._calls.append((cast("Any", handle), entry))
        self._added(entry)
        return entry

    def on_start(
        self,
        cls: type[Agent],
        /,
        *,
        start: int | Iterable[int] | None = None,
        raises: Exception | type[Exception],
        agent: str | None = None,
    ) -> Fault:
        """Make starts of agents of a class fail. The first start is 1; restarts count. Raises ConfigError."""
        what = f"the start of {cls.__name__}"
        entry = Fault(what, numbers=start, rate=None, raises=raises, after=False, delay=0.0, agent=agent)
        self._starts.append((cls, entry))
        self._added(entry)
        return entry

    def _added(self, entry: Fault) -> None:
        if self._chance is not None:
            entry.begin(self._chance(f"fault {len(self._calls) + len(self._starts)}"))
        if self._changed is not None:
            self._changed()

    # ---- the runtime's side

    def begin(self, chance: Callable[[str], RandomStream], changed: Callable[[], None]) -> None:
        """Attach the plan to a new node and reset the counts."""
        self._chance, self._changed = chance, changed
        for number, (_, entry) in enumerate((*self._calls, *self._starts), start=1):
            entry.begin(chance(f"fault {number}"))

    def problems(self) -> list[str]:
        """Return descriptions of the entries that did not take full effect."""
        found = [entry.problem() for _, entry in (*self._calls, *self._starts)]
        return [text for text in found if text is not None]

    def starting(self, slot: Any, cls: type) -> None:
        """Raise the exception that is planned for this start of an agent, if any."""
        entries = [e for meant, e in self._starts if issubclass(cls, meant) and e.agent in (None, slot.path)]
        struck = [entry for entry in entries if entry.count_call()]
        for entry in struck:
            error = entry.error()
            if error is not None:
                slot.rt.record("fault", slot, affordance=START, call=entry.calls, raises=describe(error))
                raise error

    def table(self, slot: Any, cls: type[Agent], table: dict[str, Operation]) -> dict[str, Operation]:
        """Return a slot's operations, with the planned faults added."""
        path = slot.path
        planned: dict[str, list[Fault]] = {}
        written: list[tuple[str, Fault]] = []
        for handle, entry in self._calls:
            if entry.agent in (None, path) and _has(cls, handle):
                for key in _keys(cls, handle):
                    planned.setdefault(key, []).append(entry)
                if isinstance(handle, PropertyHandle):
                    written.append((cast("Any", handle).name, entry))
        if not planned:
            return table
        faulty: dict[str, Operation] = {}
        for key, entries in planned.items():
            op = table[key]
            with_faults = {RUN: _run, STREAM: _stream}.get(op.kind, _turn)
            faulty[key] = altered(op, with_faults(slot, op, entries))
        if written:
            faulty[WRITE_MANY] = altered(table[WRITE_MANY], _write_many(slot, table[WRITE_MANY], written))
        return {**table, **faulty}


def _kind(handle: Any) -> int | None:
    """Return the kind of an action's handle, or None for any other handle."""
    kinds = ((Turn, TURN), (Action, RUN), (StreamAction, STREAM))
    return next((kind for cls, kind in kinds if isinstance(handle, cls)), None)


def _keys(cls: type[Agent], handle: Any) -> tuple[str, ...]:
    if not isinstance(handle, PropertyHandle):
        return (handle.name,)
    name = cast("Any", handle).name
    keys = (handle.read_key, handle.write_key)
    return keys if cls.__contract__.properties[name].write_only else (*keys, READ_ALL)


def _has(cls: type[Agent], handle: Any) -> bool:
    """Return whether the class, or one of its bases, declares the handle."""
    members = (value for part in cls.__mro__ for value in vars(part).values())
    return any(value is handle or getattr(value, "handle", None) is handle for value in members)


class _CallFaults:
    """The faults that occur in one call of an operation."""

    def __init__(self, slot: Any, op: Operation, entries: list[Fault]) -> None:
        struck = [(entry, entry.error()) for entry in entries if entry.count_call()]
        self.delay = sum(entry.delay for entry, _ in struck)
        errors = [(entry.after, error) for entry, error in struck if error is not None]
        self._before = next((error for after, error in errors if not after), None)
        self._after = next((error for after, error in errors if after), None)
        for entry, error in struck:
            fields: dict[str, object] = {"raises": describe(error), "after": entry.after} if error else {}
            if entry.delay:
                fields["delay"] = "for ever" if math.isinf(entry.delay) else entry.delay
            slot.rt.record("fault", slot, affordance=op.name, call=entry.calls, **fields)

    def before(self) -> None:
        """Raise the exception planned in place of the effect, if any."""
        if self._before is not None:
            raise self._before

    def after(self) -> None:
        """Raise the exception planned after the effect, if any."""
        if self._after is not None:
            raise self._after


def _turn(slot: Any, op: Operation, entries: list[Fault]) -> Callable[..., Any]:
    def turn(agent: Any, *args: Any) -> Any:
        planned = _CallFaults(slot, op, entries)
        planned.before()
        value = op.fn(agent, *args)
        planned.after()
        return value

    return turn


def _write_many(slot: Any, op: Operation, written: list[tuple[str, Fault]]) -> Callable[..., Any]:
    def turn(agent: Any, values: dict[str, Any]) -> Any:
        return _turn(slot, op, [entry for name, entry in written if name in values])(agent, values)

    return turn


def _run(slot: Any, op: Operation, entries: list[Fault]) -> Callable[..., Any]:
    async def run(agent: Any, *args: Any) -> Any:
        planned = _CallFaults(slot, op, entries)
        if planned.delay:
            await trio.sleep(planned.delay)
        planned.before()
        value = await op.fn(agent, *args)
        planned.after()
        return value

    return run


def _stream(slot: Any, op: Operation, entries: list[Fault]) -> Callable[..., Any]:
    async def stream(agent: Any, *args: Any) -> AsyncGenerator[Any]:
        planned = _CallFaults(slot, op, entries)
        if planned.delay:
            await trio.sleep(planned.delay)
        planned.before()
        async with aclosing(op.fn(agent, *args)) as items:
            async for item in items:
                yield item  # noqa: ASYNC119 -- the runtime closes the streams it runs
        planned.after()

    return stream
