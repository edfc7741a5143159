"""The last messages of an agent, kept for classes with `class Weather(Agent, history=16)`.

The functions behind the messages of such a class, and of its timers, are wrapped when the class is made or
the timer set. Other classes pay nothing.
"""

from __future__ import annotations

from collections import deque
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import signature_of
from lmos_actors.errors import ActionFailed, AgentError

from ..messages._mailbox import Stashed
from ..messages._operation import RUN, STREAM, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

MOST: Final = 1000
KEPT_VERBS: Final = ("invoke", "write", "write many")
SURVIVED: Final = (trio.Cancelled, ActionFailed, AgentError, Stashed)


class Entry:
    """One message: its request, its time, its end; and the state before it, until it has ended well."""

    __slots__ = ("args", "fn", "op", "outcome", "state", "when")

    def __init__(self, agent: Any, op: Operation | None, fn: Any, args: tuple[Any, ...]) -> None:
        self.op = op
        self.fn = fn
        self.args = args
        self.when: datetime = agent._slot.rt.entropy.now()
        self.outcome = "running"
        self.state: dict[str, Any] | None = agent.__dict__.copy()

    def __enter__(self) -> None:
        """Note that the handler begins."""

    def __exit__(self, kind: Any, exc: BaseException | None, traceback: object) -> None:
        """Note how the handler has ended."""
        self.outcome = "done" if exc is None else type(exc).__name__
        if exc is None or isinstance(exc, SURVIVED):
            self.state = None

    def is_of(self, op: Operation | None, fn: Any, args: tuple[Any, ...]) -> bool:
        """Return whether this is the open entry of a given message."""
        same = self.op is op if op is not None else self.fn == fn
        return same and self.state is not None and list(map(id, self.args)) == list(map(id, args))


def keep_history(title: str, operations: Iterable[Operation], size: int | None) -> None:
    """Make these operations keep the last `size` messages of each incarnation; None or 0 keeps none.

    Raises TypeError for any other `size`.
    """
    if size is not None and (type(size) is not int or not 0 <= size <= MOST):
        raise TypeError(f"{title}: history must be a whole number from 0 to {MOST}, not {size!r}")
    for op in operations if size else ():
        if op.verb in KEPT_VERBS:
            op.fn = _kept(op, op.fn, size or 0)


def _begin(agent: Any, op: Operation | None, fn: Any, args: tuple[Any, ...], size: int) -> Entry:
    history = agent._history
    if history is None:
        history = agent._history = deque[Entry](maxlen=size)
    entry = Entry(agent, op, fn, args)
    history.append(entry)
    return entry


def _kept(op: Operation, fn: Callable[..., Any], size: int) -> Callable[..., Any]:
    skipped = 1 if op.progress is not None else 0

    def turn(agent: Any, /, *args: Any) -> Any:
        with _begin(agent, op, fn, args[skipped:], size):
            return fn(agent, *args)

    async def run(agent: Any, /, *args: Any) -> Any:
        with _begin(agent, op, fn, args[skipped:], size):
            return await fn(agent, *args)

    async def stream(agent: Any, /, *args: Any) -> Any:
        with _begin(agent, op, fn, args[skipped:], size):
            items = fn(agent, *args)
            try:
                async for item in items:
                    yield item  # noqa: ASYNC119 -- the runtime closes the streams it runs
            finally:
                await items.aclose()

    kinds: dict[int, Callable[..., Any]] = {RUN: run, STREAM: stream}
    return wraps(fn)(kinds.get(op.kind, turn))


class KeptTurn:
    """The turn of a timer or a following in a class that keeps a history."""

    def __init__(self, agent: Any, fn: Callable[..., None], size: int) -> None:
        self.fn = fn
        self._agent = agent
        self._size = size
        self.__qualname__ = getattr(fn, "__qualname__", "timer")

    def __call__(self, *args: Any) -> None:
        """Run the turn, with an entry in the history."""
        fn, given = unwrapped(self.fn, args)
        with _begin(self._agent, None, fn, given, self._size):
            return self.fn(*args)


def kept_turn(agent: Any, fn: Callable[..., None]) -> Callable[..., None]:
    """Return a turn, wrapped so that it is kept if the agent's class keeps a history."""
    size: int | None = agent.__contract__.options.history
    return KeptTurn(agent, fn, size) if size else fn


def unwrapped(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the function that a turn of a timer calls, and its arguments."""
    while isinstance(fn, (partial, KeptTurn)):
        if isinstance(fn, partial):
            made: partial[Any] = fn  # pyright: ignore[reportUnknownVariableType]
            args = _by_position(made, args)
        fn = fn.fn if isinstance(fn, KeptTurn) else fn.func  # pyright: ignore[reportUnknownMemberType]
    return fn, args


def _by_position(made: partial[Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all arguments in the order of the parameters, including those with defaults."""
    args = (*made.args, *args)
    if not made.keywords:
        return args
    try:
        bound = signature_of(made.func).bind(*args, **made.keywords)
    except (TypeError, ValueError):  # it does not tell, or they do not fit
        return (*args, *made.keywords.values())
    bound.apply_defaults()
    return tuple(bound.arguments.values())
