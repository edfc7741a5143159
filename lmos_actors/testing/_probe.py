"""Probes: agents under the test's control, which records what they receive and answers it."""

from __future__ import annotations

import inspect
from collections import deque
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

import trio

from lmos_actors.actors import (
    RUN,
    STREAM,
    Agent,
    Altered,
    ExitReason,
    Operation,
    Ref,
    acting_as,
    current_envelope,
    current_request,
    on_each_end,
    slot_of,
    stand_in,
)

from ._fakes import NOTHING, await_value, check_answer, checked, items_of, respond_or_complain
from ._received_messages import Inbox, MessagePattern, Received, operation_of
from ._world import settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from lmos_actors.actors import Action, Down, EventHandle, PropertyHandle, StreamAction, Turn

A = TypeVar("A", bound=Agent)
B = TypeVar("B", bound=Agent)
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

LIMIT: Final = 3.0  # seconds of virtual time that an `expect` waits
UNBOUNDED: Final = 1 << 30  # runs at a time: every message reaches the test at once
SHOWN: Final = 10  # messages that a failure lists


class Probe(Generic[A]):
    """An agent that stands for a class and does what the test says.

    Every invocation of an action waits for the test, in order of arrival: `expect` takes the next, its
    `answer` or `fail` answers it. Writes of properties are carried out, and are messages to be expected
    too; reads, observers and subscribers are served from the values that the test has set.

    `limit`: seconds of virtual time an `expect` waits at most. `strict`: messages that nobody expected, or
    nobody answered, fail the test when its node ends.
    """

    def __init__(self, cls: type[A], *, limit: float = LIMIT, strict: bool = True) -> None:
        self.strict = strict
        self._cls = cls
        self._limit = limit
        self._inbox = Inbox()
        made = self._class = stand_in(cls, self._alter, {})
        made.__contract__.serial = False  # messages reach the test at once

    # ---- identity

    @property
    def factory(self) -> Callable[..., A]:
        """The class to start, or to put in the place of the original, so that the probe has an agent."""
        return self._class

    @property
    def ref(self) -> Ref[A]:
        """The probe's ref; that of the agent started last, where it has several.

        Raises RuntimeError before its agent has been started.
        """
        slot = self._inbox.slot
        if slot is None:
            raise RuntimeError(f"this probe of {self._cls.__name__} has not been started")
        return Ref(slot)

    def __repr__(self) -> str:
        slot = self._inbox.slot
        return f"<Probe of {self._cls.__name__}{f' at {slot.path}' if slot is not None else ''}>"

    @property
    def received(self) -> tuple[Received[Any], ...]:
        """All messages so far, expected or not."""
        return tuple(self._inbox.log)

    def within(self, seconds: float, /) -> Probe[A]:
        """Return the same probe with another limit."""
        view: Probe[A] = object.__new__(type(self))
        vars(view).update(vars(self), _limit=seconds)
        return view

    # ---- expecting

    @overload
    async def expect(
        self, handle: StreamAction[A, ..., R], /, *args: object, **match: object
    ) -> Received[list[R]]: ...
    @overload
    async def expect(
        self, handle: Turn[A, ..., R] | Action[A, ..., R, Any], /, *args: object, **match: object
    ) -> Received[R]: ...
    @overload
    async def expect(self, handle: PropertyHandle[A, V], /, *args: object) -> Received[V]: ...
    async def expect(self, handle: Any, /, *args: object, **match: object) -> Received[Any]:
        """Wait for the next message, which must be this one, and return it.

        `args` and `match` are the arguments it must have, as many as the test cares about; a callable is
        asked whether the argument fits. For a property, a write of it.

        Raises AssertionError with what did arrive when the next message is another one or none comes
        within the limit; TypeError for what is no action or property of the class, or no parameter.
        """
        return await self._next(MessagePattern(self._cls, handle, args, match), among=False)

    @overload
    async def pick(
        self, handle: StreamAction[A, ..., R], /, *args: object, **match: object
    ) -> Received[list[R]]: ...
    @overload
    async def pick(
        self, handle: Turn[A, ..., R] | Action[A, ..., R, Any], /, *args: object, **match: object
    ) -> Received[R]: ...
    @overload
    async def pick(self, handle: PropertyHandle[A, V], /, *args: object) -> Received[V]: ...
    async def pick(self, handle: Any, /, *args: object, **match: object) -> Received[Any]:
        """As `expect`, but wait for the first message that matches; others before it stay to be expected."""
        return await self._next(MessagePattern(self._cls, handle, args, match), among=True)

    async def _next(self, pattern: MessagePattern, *, among: bool) -> Received[Any]:
        await trio.lowlevel.checkpoint()
        inbox = self._inbox
        with trio.move_on_after(self._limit):
            while True:
                for message in inbox.waiting:
                    if pattern.matches(message):
                        inbox.take(message)
                        return message
                    if not among:
                        raise AssertionError(self._with_log(f"expected {pattern}, but next came {message}"))
                await inbox.changed()
        raise AssertionError(
            self._with_log(f"expected {pattern}, but it did not come within {self._limit:g} s")
        )

    def _with_log(self, what: str) -> str:
        lines = [f"{self!r} {what}"]
        log = self._inbox.log
        lines += [f"  received {message}" for message in log[-SHOWN:]] or ["  nothing was received"]
        return "\n".join(lines)

    async def expect_no_message(self, seconds: float = 0.0) -> None:
        """Wait so long, and until nothing is left to do then. Raises AssertionError if there is a message."""
        if seconds:
            await trio.sleep(seconds)
        await settle()
        if self._inbox.waiting:
            raise AssertionError(
                self._with_log(f"expected no message, but there is {self._inbox.waiting[0]}")
            )

    def watch(self, ref: Ref[Any], /) -> None:
        """Watch the ends of an agent's incarnations from now on, for `expect_down`.

        Raises NotFound when there is no such agent.
        """
        number = slot_of(ref).number
        if number not in self._inbox.downs:
            on_each_end(ref, self._ended(number))

    def _ended(self, number: int) -> Callable[[Down], None]:
        ends = self._inbox.downs[number] = deque()

        def tell(down: Down) -> None:
            ends.append(down)
            self._inbox.notify()

        return tell

    async def expect_down(self, ref: Ref[Any], reason: str | type[BaseException] | None = None, /) -> Down:
        """Wait for the next end of an incarnation of a watched agent, and return it.

        `reason`: `"normal"`, `"shutdown"`, `"error"`, or the class of the exception.

        Raises AssertionError when none ends within the limit, or for another reason; RuntimeError when the
        agent is not watched.
        """
        path = ref.path
        ends = self._inbox.downs.get(slot_of(ref).number)
        if ends is None:
            raise RuntimeError(f"{self!r} does not watch {path!r}: call probe.watch(ref) before")
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._limit):
            while not ends:
                await self._inbox.changed()
            down = ends.popleft()
            if not _is_for(down.reason, reason):
                wanted = reason.__name__ if isinstance(reason, type) else reason
                raise AssertionError(f"expected {path!r} to end for {wanted}, but it ended for {down.reason}")
            return down
        raise AssertionError(f"expected {path!r} to end, but it did not within {self._limit:g} s")

    # ---- doing

    def always(self, handle: Turn[A, ..., Any] | Action[A, ..., Any, Any], answer: object, /) -> None:
        """Answer an action automatically from now on: a value, exception or callable as for `fake`.

        Such messages are recorded, and need not be expected. Raises TypeError as `fake`.
        """
        op = operation_of(self._cls, handle)
        check_answer(op, answer)
        self._inbox.automatic[op.name] = answer

    def set(self, handle: PropertyHandle[A, V], value: V, /) -> None:
        """Set a property, now and for all incarnations; observers see it. Raises TypeError."""
        made = self._cls.__contract__.properties[handle.name]
        for slot in self._inbox.slots:
            if slot.agent is not None:
                setattr(slot.agent, made.attribute, value)
        values: dict[str, Any] = vars(self._class)["standin_values"]
        values[made.attribute] = value if made.take is None else made.take(value)

    def emit(self, handle: EventHandle[A, V], value: V, /) -> None:
        """Emit an event. Raises TypeError for a value of another type, RuntimeError while it is down."""
        agent = self._running_slot().agent
        getattr(agent, self._cls.__contract__.events[handle.name].attribute).emit(value)

    def crash(self, error: Exception, /) -> None:
        """End the present incarnation for an exception, as a bug of the agent would."""
        self._running_slot().die(ExitReason("error", error=error))

    @contextmanager
    def acting(self) -> Generator[None]:
        """Make the probe the sender of messages inside the block."""
        with acting_as(self.ref):
            yield

    def send(
        self,
        ref: Ref[B],
        handle: Turn[B, P, Any] | Action[B, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send one way, as the probe. Raises as `ref.tell_nowait`."""
        with self.acting():
            ref.tell_nowait(handle, *args, **kwargs)

    def _running_slot(self) -> Any:
        slot = self._inbox.slot
        if slot is None or slot.agent is None:
            raise RuntimeError(f"{self!r} is not running")
        return slot

    # ---- the runtime's side

    def attach(self, slot: Any) -> None:
        """Register the slot of the probe's agent."""
        self._inbox.slots.pop(slot, None)
        self._inbox.slots[slot] = None

    @property
    def open(self) -> list[Received[Any]]:
        """The messages that are unanswered, expected or not."""
        return [m for m in self._inbox.log if not m.answered and not m.cancelled]

    def problems(self) -> list[str]:
        """Return what was received that nobody expected, or nobody answered."""
        if not self.strict:
            return []
        inbox = self._inbox
        unexpected = [f"{self!r} received what nobody expected: {message}" for message in inbox.waiting]
        unanswered = [m for m in inbox.taken if not m.answered and not m.cancelled]
        return unexpected + [f"{self!r} was left without an answer to {message}" for message in unanswered]

    def _alter(self, key: str, op: Operation) -> Operation:
        if op.internal:
            return Altered(op, self._writing(op)) if op.verb in ("write", "write many") else op
        if op.kind == STREAM:
            return Altered(op, self._streaming(op), bare=True, concurrency=UNBOUNDED)
        return Altered(op, self._running(op), kind=RUN, bare=True, concurrency=UNBOUNDED)

    def _writing(self, op: Operation) -> Callable[..., None]:
        table = self._cls.__contract__.table

        def write(agent: Any, value: Any) -> None:
            op.fn(agent, value)
            written = {op.name: value} if op.verb == "write" else value
            for name, one in written.items():
                self._record_message(agent, table[f"={name}"], (one,), written=True)

        return write

    def _running(self, op: Operation) -> Callable[..., Any]:
        async def run(agent: Any, *args: Any) -> Any:
            message = self._record_message(agent, op, args)
            answer = self._inbox.automatic.get(op.name, NOTHING)
            if answer is NOTHING:
                return None if message.one_way else await message.outcome()
            value = self._automatic(agent, op, answer, args)
            message.answered = True
            return checked(op, await await_value(value))

        return run

    def _streaming(self, op: Operation) -> Callable[..., Any]:
        async def stream(agent: Any, *args: Any) -> AsyncGenerator[Any]:
            message = self._record_message(agent, op, args)
            answer = self._inbox.automatic.get(op.name, NOTHING)
            if answer is NOTHING:
                items: Any = await message.outcome()
            else:
                items = await await_value(self._automatic(agent, op, answer, args))
            message.answered = True
            if inspect.isasyncgen(items):
                async with aclosing(items):
                    async for item in items:
                        yield checked(op, item)  # noqa: ASYNC119 -- the runtime closes the streams it runs
                return
            for item in items_of(op, items):
                yield checked(op, item)

        return stream

    def _automatic(self, agent: Any, op: Operation, answer: object, args: tuple[Any, ...]) -> Any:
        return respond_or_complain(f"probe of {self._cls.__name__}", agent, op, answer, args)

    def _record_message(
        self, agent: Any, op: Operation, args: tuple[Any, ...], *, written: bool = False
    ) -> Received[Any]:
        envelope = current_envelope()
        one_way = envelope is not None and not envelope.waits_for_answer
        named = dict(zip((p.name for p in op.params), args, strict=True))
        path, sender = agent.path, current_request().consumer
        message = Received[Any](op, named, path, sender, one_way=one_way, written=written)
        self._inbox.put(message)
        return message


def _is_for(reason: ExitReason, wanted: str | type[BaseException] | None) -> bool:
    if wanted is None:
        return True
    return reason.kind == wanted if isinstance(wanted, str) else isinstance(reason.error, wanted)
