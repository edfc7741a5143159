"""Probes: agents controlled by a test, which sees every message they receive and answers it.

A `Probe` is a test double. Each message to a probe becomes a `Received`, which waits in the probe's `_Inbox`
until the test expects it (a `_MessagePattern` decides whether it fits) and answers it.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

import trio

from lmos_actors._core import HIDDEN
from lmos_actors.actors import (
    STREAM,
    Agent,
    DoubleRequest,
    ExitReason,
    Operation,
    PropertyHandle,
    Ref,
    acting_as,
    answered,
    answered_in_turn,
    conceal_all,
    current_request,
    double_of,
    on_each_end,
    slot_of,
)
from lmos_actors.errors import hint_at

from ._fakes import NOTHING, check_answer, checked, items_of, outputs, respond
from ._world import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from lmos_actors.actors import Action, Down, EventHandle, StreamAction, Turn

A = TypeVar("A", bound=Agent)
B = TypeVar("B", bound=Agent)
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
R_contra = TypeVar("R_contra", contravariant=True)

LIMIT: Final = 3.0  # seconds of virtual time that an `expect` waits


class Received(Generic[R_contra]):
    """One message to a probe, which the test answers with `answer` or `fail`.

    `args` are the arguments by parameter name. `agent` is the path of the receiver, `sender` the path of the
    sending agent, None for code outside any agent. `at` is the time of arrival in seconds. `one_way`: no
    answer is expected. `cancelled`: the sender no longer waits. `answered`: there is an answer, or none is
    expected.
    """

    def __init__(self, request: DoubleRequest, sender: str | None, *, written: bool) -> None:
        op = request.op
        self.affordance = op.name
        self.args: Mapping[str, Any] = dict(zip((p.name for p in op.params), request.args, strict=True))
        self.agent: str = request.agent.path
        self.sender = sender
        self.at = trio.current_time()
        self.one_way = request.one_way
        self.cancelled = False
        self.answered = self.one_way or written
        self._op = op
        self._written = written
        self._done = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        values = conceal_all(tuple(self.args.values()), self._op.secrecies)
        args = ", ".join(f"{name}={value!r}" for name, value in zip(self.args, values, strict=True))
        source = f" from {self.sender}" if self.sender is not None else ""
        verb = "write " if self._written else ""
        return f"{verb}{self.affordance}({args}){source} at {self.at:g} s"

    def answer(self, value: R_contra, /) -> None:
        """Answer the message; for an action with many outputs, `value` is an iterable of them.

        Does nothing if the sender no longer waits. Raises TypeError for a value of a type that the action
        does not declare, RuntimeError if no answer is expected or the message has been answered already.
        """
        if self._op.kind == STREAM:
            taken: Any = [checked(self._op, item) for item in items_of(self._op, value)]
        else:
            taken = checked(self._op, value)
        self._settle()
        self._value = taken

    def fail(self, error: Exception, /) -> None:
        """Answer with an exception: ActionFailed is the action's own failure, any other is a crash.

        Raises RuntimeError as `answer` does.
        """
        self._settle()
        self._error = error

    def _settle(self) -> None:
        if self.answered:
            why = "has its answer" if self._done.is_set() else "needs no answer"
            raise RuntimeError(f"{self!r} {why}")
        self.answered = True
        self._done.set()

    async def outcome(self) -> Any:
        """Wait for the test's answer and return it, or raise its error."""
        try:
            await self._done.wait()
        except trio.Cancelled:
            self.cancelled = True
            raise
        if self._error is not None:
            raise self._error
        return self._value


class _MessagePattern:
    """A pattern for messages: an affordance, and the arguments that matter.

    Raises TypeError for a handle that is no action or property of the class, or an argument that no parameter
    takes.
    """

    def __init__(
        self, cls: type[Agent], handle: Any, args: tuple[object, ...], match: Mapping[str, object]
    ) -> None:
        self._op = op = _operation_of(cls, handle)
        names = [p.name for p in op.params]
        if len(args) > len(names):
            raise TypeError(f"{op.label} has {len(names)} parameters, not {len(args)}")
        self._match = dict(zip(names, args, strict=False))
        for name, value in match.items():
            if name not in names:
                raise TypeError(f"{op.label} has no parameter {name!r}{hint_at(name, names)}")
            if name in self._match:
                raise TypeError(f"{op.label} got {name!r} twice")
            self._match[name] = value

    def __str__(self) -> str:
        op = self._op
        verb = "" if op.verb == "invoke" else "write "
        hidden = dict(zip((p.name for p in op.params), op.secrecies or (), strict=False))
        shown = {name: HIDDEN if hidden.get(name) else value for name, value in self._match.items()}
        return f"{verb}{op.name}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def matches(self, message: Received[Any]) -> bool:
        """Return whether the message fits the pattern."""
        same = message.affordance == self._op.name
        return same and all(_fits(value, message.args[name]) for name, value in self._match.items())


def _fits(wanted: object, value: object) -> bool:
    return bool(wanted(value)) if callable(wanted) else bool(value == wanted)


def _operation_of(cls: type[Agent], handle: Any) -> Operation:
    """Return the operation that invokes an action or writes a property. Raises TypeError."""
    table = cls.__contract__.table
    key = getattr(handle, "name", None)
    if isinstance(handle, PropertyHandle):
        key = handle.write_key
    op = table.get(key) if isinstance(key, str) else None
    if op is None or (op.internal and op.verb != "write"):
        raise TypeError(f"{handle!r} is no action or property of {cls.__name__}")
    return op


class _Inbox:
    """The state shared by all incarnations of a probe and all views of it."""

    def __init__(self) -> None:
        self.slots: dict[Any, None] = {}
        self.log: list[Received[Any]] = []
        self.waiting: list[Received[Any]] = []
        self.taken: list[Received[Any]] = []
        self.automatic: dict[str, object] = {}
        self.downs: dict[int, deque[Down]] = {}
        self._changed = trio.Event()

    @property
    def slot(self) -> Any:
        """The slot of the probe's agent (if several, the last started); None before the first start."""
        return next(reversed(self.slots), None)

    def put(self, message: Received[Any]) -> None:
        """Record a message. Unless it is answered automatically, it waits until the test expects it."""
        self.log.append(message)
        if message.affordance not in self.automatic:
            self.waiting.append(message)
            self.notify()

    def take(self, message: Received[Any]) -> None:
        """Move an expected message from the waiting messages to the taken ones."""
        self.waiting.remove(message)
        self.taken.append(message)

    def notify(self) -> None:
        """Wake the tasks that wait in `changed`."""
        event, self._changed = self._changed, trio.Event()
        event.set()

    async def changed(self) -> None:
        """Wait for the next `notify`."""
        await self._changed.wait()


class Probe(Generic[A]):
    """An agent that takes the place of an agent of a class and is controlled by the test.

    Every invocation of an action waits for the test, in order of arrival: `expect` takes the next one, and
    its `answer` or `fail` answers it. Writes of properties are carried out, and are also messages to be
    expected; reads, observers and subscribers receive the values that the test has set.

    `limit`: the maximum seconds of virtual time that an `expect` waits. `strict`: messages that the test did
    not expect or did not answer fail the test when its node ends.
    """

    def __init__(self, cls: type[A], *, limit: float = LIMIT, strict: bool = True) -> None:
        self.strict = strict
        self._cls = cls
        self._limit = limit
        self._inbox = _Inbox()
        made = self._class = double_of(cls, self._alter, {})
        made.__contract__.serial = False  # messages reach the test at once

    # ---- identity

    @property
    def factory(self) -> Callable[..., A]:
        """The class to start as the probe's agent, or to put in place of the original class."""
        return self._class

    @property
    def ref(self) -> Ref[A]:
        """The ref of the probe's agent (of several agents, the last one started).

        Raises RuntimeError before the agent has been started.
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
        """Return a view of this probe whose limit is `seconds`."""
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
        """Wait for the next message, which must fit, and return it.

        `args` and `match` are the arguments that the message must have, as many as the test needs to check; a
        callable is called to decide whether the argument fits. For a property, the message is a write of it.

        Raises AssertionError, listing the messages that did arrive, if the next message is another one or
        none arrives within the limit; TypeError for a handle that is no action or property of the class, or
        an argument that no parameter takes.
        """
        return await self._next(_MessagePattern(self._cls, handle, args, match), among=False)

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
        """Wait for the first message that fits, as `expect` does; earlier messages can still be expected."""
        return await self._next(_MessagePattern(self._cls, handle, args, match), among=True)

    async def _next(self, pattern: _MessagePattern, *, among: bool) -> Received[Any]:
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
        lines += [f"  received {message}" for message in log[-10:]] or ["  nothing was received"]
        return "\n".join(lines)

    async def expect_no_message(self, seconds: float = 0.0) -> None:
        """Wait `seconds`, then until nothing is left to do. Raises AssertionError if a message is waiting."""
        if seconds:
            await trio.sleep(seconds)
        await settle()
        if self._inbox.waiting:
            raise AssertionError(
                self._with_log(f"expected no message, but there is {self._inbox.waiting[0]}")
            )

    def watch(self, ref: Ref[Any], /) -> None:
        """Watch the ends of an agent's incarnations from now on, for `expect_down`.

        Raises NotFound if there is no such agent.
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

        Raises AssertionError if none ends within the limit, or one ends for another reason; RuntimeError if
        the agent is not watched.
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

        Such messages are recorded, and need not be expected. Raises TypeError like `fake`.
        """
        op = _operation_of(self._cls, handle)
        check_answer(op, answer)
        self._inbox.automatic[op.name] = answer

    def set(self, handle: PropertyHandle[A, V], value: V, /) -> None:
        """Set a property, now and for all incarnations, and notify observers. Raises TypeError."""
        made = self._cls.__contract__.properties[handle.name]
        for slot in self._inbox.slots:
            if slot.agent is not None:
                setattr(slot.agent, made.attribute, value)
        values: dict[str, Any] = vars(self._class)["double_values"]
        values[made.attribute] = value if made.take is None else made.take(value)

    def emit(self, handle: EventHandle[A, V], value: V, /) -> None:
        """Emit an event. Raises TypeError for a value of another type, RuntimeError if the agent is down."""
        agent = self._running_slot().agent
        getattr(agent, self._cls.__contract__.events[handle.name].attribute).emit(value)

    def crash(self, error: Exception, /) -> None:
        """End the present incarnation with an exception, as a bug in the agent would."""
        self._running_slot().die(ExitReason("error", error=error))

    @contextmanager
    def acting(self) -> Generator[None]:
        """Make the probe the sender of all messages inside the block."""
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
        """Send a one-way message as the probe. Raises the same exceptions as `ref.tell_nowait`."""
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
        """Return descriptions of the received messages that the test neither expected nor answered."""
        if not self.strict:
            return []
        inbox = self._inbox
        unexpected = [f"{self!r} received an unexpected message: {message}" for message in inbox.waiting]
        unanswered = [m for m in inbox.taken if not m.answered and not m.cancelled]
        return unexpected + [f"{self!r} was left without an answer to {message}" for message in unanswered]

    def _alter(self, key: str, op: Operation) -> Operation:
        if not op.internal:
            # without a limit on runs: every message reaches the test at once
            return answered(op, self._answer, concurrency=1 << 30)
        return answered_in_turn(op, self._write) if op.verb in ("write", "write many") else op

    def _write(self, request: DoubleRequest) -> None:
        op, (value,) = request.op, request.args
        op.fn(request.agent, value)
        written = {op.name: value} if op.verb == "write" else value
        for name, one in written.items():
            of_property = self._cls.__contract__.table[f"={name}"]
            self._record(DoubleRequest(request.agent, of_property, (one,)), written=True)

    async def _answer(self, request: DoubleRequest) -> Any:
        op = request.op
        message = self._record(request)
        answer = self._inbox.automatic.get(op.name, NOTHING)
        if answer is not NOTHING:
            value = respond(f"probe of {self._cls.__name__}", request, answer)
            message.answered = True
            return await outputs(op, value)
        if op.kind == STREAM:
            return await outputs(op, await message.outcome())
        return None if message.one_way else await message.outcome()

    def _record(self, request: DoubleRequest, *, written: bool = False) -> Received[Any]:
        message = Received[Any](request, current_request().consumer, written=written)
        self._inbox.put(message)
        return message


def _is_for(reason: ExitReason, wanted: str | type[BaseException] | None) -> bool:
    if wanted is None:
        return True
    return reason.kind == wanted if isinstance(wanted, str) else isinstance(reason.error, wanted)
