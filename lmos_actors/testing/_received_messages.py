"""Messages of probes: received ones with their answers, patterns for expected ones, and the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from lmos_actors.actors import HIDDEN, STREAM, Agent, Operation, PropertyHandle, conceal_all
from lmos_actors.errors import nearest

from ._fakes import checked, items_of

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

    from lmos_actors.actors import Down

R_contra = TypeVar("R_contra", contravariant=True)


class Received(Generic[R_contra]):
    """One message to a probe, which the test answers with `answer` or `fail`.

    `args` are the arguments by parameter name. `agent` is the path of the receiver, `sender` that of the
    sending agent, None for code outside any agent. `at` is the time of arrival in seconds. `one_way`: no
    answer is expected. `cancelled`: the sender no longer waits. `answered`: there is an answer, or none is
    expected.
    """

    def __init__(
        self,
        op: Operation,
        args: Mapping[str, Any],
        agent: str,
        sender: str | None,
        *,
        one_way: bool,
        written: bool,
    ) -> None:
        self.affordance = op.name
        self.args = args
        self.agent = agent
        self.sender = sender
        self.at = trio.current_time()
        self.one_way = one_way
        self.cancelled = False
        self.answered = one_way or written
        self._op = op
        self._written = written
        self._done = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        values = conceal_all(tuple(self.args.values()), self._op.secrecies)
        args = ", ".join(f"{name}={value!r}" for name, value in zip(self.args, values, strict=True))
        who = f" from {self.sender}" if self.sender is not None else ""
        verb = "write " if self._written else ""
        return f"{verb}{self.affordance}({args}){who} at {self.at:g} s"

    def answer(self, value: R_contra, /) -> None:
        """Answer the message; for an action with many outputs with an iterable of them.

        Does nothing if the sender no longer waits. Raises TypeError for a value of another type than the
        action declares, RuntimeError if no answer is wanted or there is one already.
        """
        if self._op.kind == STREAM:
            taken: Any = [checked(self._op, item) for item in items_of(self._op, value)]
        else:
            taken = checked(self._op, value)
        self._settle()
        self._value = taken

    def fail(self, error: Exception, /) -> None:
        """Answer with an exception: ActionFailed is the action's own failure, any other crashes the probe.

        Raises RuntimeError as `answer`.
        """
        self._settle()
        self._error = error

    def _settle(self) -> None:
        if self.answered:
            why = "has its answer" if self._done.is_set() else "wants no answer"
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


class MessagePattern:
    """Pattern for a message: an affordance, and the arguments that matter.

    Raises TypeError for what is no action or property of the class, or no parameter.
    """

    def __init__(
        self, cls: type[Agent], handle: Any, args: tuple[object, ...], match: Mapping[str, object]
    ) -> None:
        self._op = op = operation_of(cls, handle)
        names = [p.name for p in op.params]
        if len(args) > len(names):
            raise TypeError(f"{op.label} has {len(names)} parameters, not {len(args)}")
        self._match = dict(zip(names, args, strict=False))
        for name, value in match.items():
            if name in self._match or name not in names:
                raise _wrong_parameter(op, name, names)
            self._match[name] = value

    def __str__(self) -> str:
        op = self._op
        verb = "" if op.verb == "invoke" else "write "
        hidden = dict(zip((p.name for p in op.params), op.secrecies or (), strict=False))
        shown = {name: HIDDEN if hidden.get(name) else value for name, value in self._match.items()}
        return f"{verb}{op.name}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def matches(self, message: Received[Any]) -> bool:
        """Return whether this is the message."""
        same = message.affordance == self._op.name
        return same and all(_fits(value, message.args[name]) for name, value in self._match.items())


def _fits(wanted: object, value: object) -> bool:
    return bool(wanted(value)) if callable(wanted) else bool(value == wanted)


def _wrong_parameter(op: Operation, name: str, names: list[str]) -> TypeError:
    if name in names:
        return TypeError(f"{op.label} got {name!r} twice")
    near = nearest(name, names)
    return TypeError(f"{op.label} has no parameter {name!r}" + (f", did you mean {near!r}?" if near else ""))


def operation_of(cls: type[Agent], handle: Any) -> Operation:
    """Return the operation of an action, or of the writes of a property. Raises TypeError."""
    table = cls.__contract__.table
    key = getattr(handle, "name", None)
    if isinstance(handle, PropertyHandle):
        key = handle.write_key
    op = table.get(key) if isinstance(key, str) else None
    if op is None or (op.internal and op.verb != "write"):
        raise TypeError(f"{handle!r} is no action or property of {cls.__name__}")
    return op


class Inbox:
    """State that all incarnations and all views of a probe share."""

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
        """Slot of the probe's agent; the last started of several, None if there is none yet."""
        return next(reversed(self.slots), None)

    def put(self, message: Received[Any]) -> None:
        """Record a message; unless it is answered without the test, it waits to be expected."""
        self.log.append(message)
        if message.affordance not in self.automatic:
            self.waiting.append(message)
            self.notify()

    def take(self, message: Received[Any]) -> None:
        """Remove an expected message from those that wait."""
        self.waiting.remove(message)
        self.taken.append(message)

    def notify(self) -> None:
        """Wake the tasks that wait in `changed`."""
        event, self._changed = self._changed, trio.Event()
        event.set()

    async def changed(self) -> None:
        """Wait until something has come."""
        await self._changed.wait()
