"""The consumer's side: refs, calls, streams.

A ref points to a slot and survives restarts. All its verbs use a `Link`: the local link is the slot itself,
other links carry the same verbs elsewhere. So agents near and far look the same.
"""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import DeadlineExceeded

from .._parking import ReadyWait
from ..declaration._affordances import EventHandle, PropertyHandle
from ..messages._invocation import check_repeat, running_gate
from ..messages._operation import named
from ._after_kept import AfterKept
from ._link import Invocation
from ._retrying import Retrying, bounds_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping

    from ..declaration._affordances import Action, Assignment, StreamAction, Turn
    from ..messages._mailbox import AgentStatistics, MailboxStatistics
    from ..messages._monitor import Down
    from ..messages._observers import Feed, Gap, Occurrence
    from ._link import Link

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
V = TypeVar("V")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
G = TypeVar("G")
G_co = TypeVar("G_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")

Status = Literal["pending", "in progress", "completed", "failed"]

STREAM_CREDIT: Final = 16  # items a stream may be ahead of its consumer


class Call(Protocol[R_co, G_co]):
    """One invocation, as seen by its consumer: `async with ref.begin(...) as call`."""

    @property
    def progress(self) -> Feed[G_co]:
        """The reports of the run, or only the latest if the consumer is slow; ends with the run."""
        ...

    async def result(self) -> R_co:
        """Wait for the final answer. Raises the same errors as `ref.invoke`; may be called again."""
        ...

    async def query(self) -> CallStatus:
        """Return the status of the invocation; the query overtakes all messages in the mailbox."""
        ...

    async def cancel(self, reason: str | None = None) -> CallStatus:
        """Cancel the invocation, whose result is then `ActionCancelled`; overtakes all waiting messages."""
        ...


@attrs.frozen
class CallStatus:
    """The status of an invocation; `cancelled`, with the reason, if a consumer cancelled it."""

    status: Status
    cancelled: bool = False
    reason: str | None = None


class Ref(Generic[A_co]):
    """The address of an agent of class `A`: hashable, and equal to other refs to the same agent.

    Verbs raise an `AgentError` if the answer is no value, and `trio.Cancelled`, which cancels the request.
    While the agent is between two incarnations they raise `AgentUnavailable` at once.
    """

    __slots__ = ("_link", "_seconds")

    _not_data = "an agent gets refs by its constructor or by self.find"  # where a message's type has one

    def __init__(self, link: Link, seconds: float | None = None) -> None:
        self._link = link
        self._seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self._link.identity == other._link.identity  # pyright: ignore[reportUnknownMemberType]

    def __hash__(self) -> int:
        return hash(self._link.identity[1])

    def __repr__(self) -> str:
        return f"<Ref {self.path}>"

    @property
    def path(self) -> str:
        """The agent's path in its tree: `desk/weather`."""
        return self._link.path

    if not TYPE_CHECKING:  # type checkers know the attributes there are

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"a ref has no {name!r}: it is asked by the handles of the agent's class, "
                f"such as ref.invoke(Weather.forecast) and ref.read(Weather.units)",
                name=name,
                obj=self,
            )

    # ---- actions

    def invoke(
        self: Ref[A], handle: Turn[A, P, R] | Action[A, P, R, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Have an action carried out, and return its output.

        Raises InvalidInput, ActionFailed (the action's own failure), AgentDied, AgentUnavailable,
        MailboxFull, NotFound; DeadlineExceeded on a ref made by `within`; TypeError for an action with many
        outputs (`stream`). RuntimeError, at once, when called in a `def` handler, which cannot await it.
        """
        link = self._link
        turns = link.turns
        if turns.slot is not None:
            raise turns.misuse("invoke")
        try:
            key = handle.name
        except AttributeError:
            raise wrong_handle("invoke", "an action", handle) from None
        if turns.durables:
            return AfterKept(link).ask(key, args, kwargs, self._seconds)
        return link.ask(key, args, kwargs, self._seconds)

    def begin(
        self: Ref[A], handle: Action[A, P, R, G] | Turn[A, P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[Call[R, G]]:
        """Invoke an action and get its call, which offers progress, result, query and cancel.

        Leaving the block before the result has arrived cancels the run.
        """
        link = self._opened("begin")
        return link.open(Invocation(_action("begin", handle), args, kwargs, self._seconds))

    def stream(
        self: Ref[A], handle: StreamAction[A, P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        """Invoke an action with many outputs: `async with ref.stream(...) as items`.

        The agent is at most 16 items ahead of the consumer. Leaving the block early cancels the run.
        """
        link = self._opened("stream")
        key = _action("stream", handle)
        return Streaming(link.open(Invocation(key, args, kwargs, self._seconds, stream=True)))

    def tell(
        self: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, None]:
        """Send one way: at most once, no answer. Under `wait`, waits for a seat in a full mailbox.

        Raises InvalidInput, MailboxFull (`reject`, or waiting would be a deadlock), AgentUnavailable,
        NotFound; on a ref made by `within`, DeadlineExceeded when there was no seat in time.
        """
        turns = self._link.turns
        if turns.slot is not None:
            raise turns.misuse("tell")
        key = _action("tell", handle)
        link = AfterKept(self._link) if turns.durables else self._link
        if self._seconds is None:
            return link.tell(key, args, kwargs)
        return tell_within(link, key, args, kwargs, self._seconds)

    def tell_nowait(
        self: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send as `tell` does, but raise `trio.WouldBlock` where `tell` would wait."""
        try:
            key = handle.name
        except AttributeError:
            raise wrong_handle("tell_nowait", "an action", handle) from None
        link = self._link
        if link.turns.durables:
            check_repeat(link.turns, link, key)
            if (gate := running_gate(link.turns)) is not None:
                gate.hold_message(link, key, args, kwargs)
                return
        link.tell_nowait(key, args, kwargs)

    # ---- properties

    def read(self: Ref[A], handle: PropertyHandle[A, V], /) -> Coroutine[Any, Any, V]:
        """Return the value of a property. Raises NotAllowed for a write-only property."""
        return self._ask("read", _property("read", handle).read_key, ())

    def write(self: Ref[A], handle: PropertyHandle[A, V], value: V, /) -> Coroutine[Any, Any, None]:
        """Set a property. Raises InvalidInput, and NotAllowed for a read-only property."""
        return self._ask("write", _property("write", handle).write_key, (value,))

    def write_many(self: Ref[A], /, *writes: Assignment[A]) -> Coroutine[Any, Any, None]:
        """Set several properties in one turn, all or none: `write_many(Weather.units.to("kelvin"), …)`."""
        return self._ask("write_many", "=", ({w.handle.name: w.value for w in writes},))

    def read_all(self) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return the values of all readable properties by name."""
        return self._ask("read_all", "?", ())

    def _ask(self, verb: str, key: str, args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse(verb)
        if link.turns.durables:
            return AfterKept(link).ask(key, args, NO_KEYWORDS, self._seconds)
        return link.ask(key, args, NO_KEYWORDS, self._seconds)

    # ---- listening

    @overload
    def observe(
        self: Ref[A], handle: PropertyHandle[A, V], /, *, gaps: Literal[False] = False
    ) -> AbstractAsyncContextManager[Feed[V]]: ...
    @overload
    def observe(
        self: Ref[A], handle: PropertyHandle[A, V], /, *, gaps: Literal[True]
    ) -> AbstractAsyncContextManager[Feed[V | Gap]]: ...
    def observe(self: Ref[A], handle: PropertyHandle[A, V], /, *, gaps: bool = False) -> Any:
        """Observe a property: its present value, then every change; a slow observer sees the latest value.

        The feed goes on over crashes and restarts: the next incarnation's value comes first, after a `Gap` if
        `gaps` is set. It ends when the agent has ended permanently.
        """
        key = "+" + _property("observe", handle).read_key
        link = self._entered("observe")
        return entered_within(link, link.listen(key, conflate=True, gaps=gaps, size=64), self._seconds)

    @overload
    def subscribe(
        self: Ref[A], handle: EventHandle[A, V], /, *, gaps: Literal[False] = False, size: int = 64
    ) -> AbstractAsyncContextManager[Feed[V]]: ...
    @overload
    def subscribe(
        self: Ref[A], handle: EventHandle[A, V], /, *, gaps: Literal[True], size: int = 64
    ) -> AbstractAsyncContextManager[Feed[V | Gap]]: ...
    def subscribe(self: Ref[A], handle: EventHandle[A, V], /, *, gaps: bool = False, size: int = 64) -> Any:
        """Subscribe to an event from now on; past `size` waiting values the oldest is dropped and counted."""
        key = _event("subscribe", handle).key
        link = self._entered("subscribe")
        return entered_within(link, link.listen(key, conflate=False, gaps=gaps, size=size), self._seconds)

    @overload
    def subscribe_all(
        self, *, gaps: Literal[False] = False, size: int = 64
    ) -> AbstractAsyncContextManager[Feed[Occurrence]]: ...
    @overload
    def subscribe_all(
        self, *, gaps: Literal[True], size: int = 64
    ) -> AbstractAsyncContextManager[Feed[Occurrence | Gap]]: ...
    def subscribe_all(self, *, gaps: bool = False, size: int = 64) -> Any:
        """Subscribe to all events of the agent, each with its name."""
        link = self._entered("subscribe_all")
        return entered_within(link, link.listen("+!", conflate=False, gaps=gaps, size=size), self._seconds)

    def monitor(self) -> AbstractAsyncContextManager[Feed[Down]]:
        """Yield a feed with a `Down` for every incarnation that ends from now on. Affects neither side."""
        link = self._entered("monitor")
        return entered_within(link, link.watch(), self._seconds)

    def link(self) -> AbstractAsyncContextManager[None]:
        """Link a block of this task to the agent's incarnation: `async with ref.link()`.

        If the agent ends for a reason other than `normal`, the body is cancelled, and `LinkedAgentDied`
        leaves the block, in a group with the body's other errors. If an exception leaves the body, the agent
        gets an exit signal `error` with it; if the body is cancelled from outside, the signal is `shutdown`.
        If the body returns, the link is removed. Entering raises AgentUnavailable or NotFound if the agent
        does not run, NotAllowed for a pool.
        """
        if self._link.turns.slot is not None:
            raise RuntimeError("ref.link() is for async with, which a def has not: use self.link(ref)")
        return self._link.link()

    # ---- views

    def within(self, seconds: float, /) -> Ref[A_co]:
        """Return a view of the ref whose calls raise `DeadlineExceeded` after `seconds`.

        The limit holds for every verb that waits, `ready` included. It bounds the whole of a call or a
        stream, but only the entering of `observe`, `subscribe` and `monitor`. It is cheaper than a cancel
        scope around each call; its granularity is a hundredth of a second.
        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"within() needs a finite number of seconds above 0, not {seconds!r}")
        return Ref(self._link, float(seconds))

    def retrying(
        self, *, attempts: int | None = 10, seconds: float | None = 45.0, key: str | None = None
    ) -> Ref[A_co]:
        """Return a view of the ref that asks again after OutcomeUnknown and AgentUnavailable.

        Only properties, actions that are safe or idempotent, and all actions of a durable agent are asked
        again, with `invoke`, `read`, `write`, `write_many` and `read_all`; all other requests are made once.
        There are at most `attempts`, the last at most `seconds` after the first; None means no bound, but a
        cancel scope or `within` may set one. Between attempts the view waits for a random part of a time that
        doubles, up to 5 s. Far agents see one id in all attempts, and repeat an answer already given. Raises
        the last attempt's error.

        `key` names the request that `invoke` makes: 1 to 256 visible ASCII characters. A durable agent keeps
        its answer for 24 hours (the last 10,000 of an agent, 16 MiB at most), in one commit with the changes
        of the request. It gives the answer to each further request with that key: by another ref, after a
        restart of its node, or of the caller. A key belongs to the caller's principal, or to its node. The
        same key with another action or input raises KeyReused. NotAllowed is raised if the agent is not
        durable or the action has streams or secrets, and by `begin`, `stream` and `tell`, which take no key.

        Raises:
            ValueError: an invalid bound or key.
        """
        return Ref(Retrying(self._link, bounds_of(attempts, seconds, key)), self._seconds)

    def ready(self) -> Coroutine[Any, Any, None]:
        """Wait until the agent takes messages. Raises NotFound if the agent has ended permanently.

        After a second a line in the log of `lmos_actors` shows what `ready` waits for, as do
        `node.waiting_graph()` and the text of DeadlineExceeded on a ref made by `within`.
        """
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse("ready")
        return _ready(link, self._seconds)

    def _entered(self, verb: str) -> Link:
        """Return the link. Raises RuntimeError in a `def` turn: it cannot enter a verb's context manager."""
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse(verb, how="entered by async with")
        return link

    def _opened(self, verb: str) -> Link | AfterKept:
        """Return the link for a call or a stream, which waits until a durable agent's state is kept."""
        link = self._entered(verb)
        return AfterKept(link) if link.turns.durables else link

    def statistics(self) -> AgentStatistics:
        """Return counts of messages over all incarnations of the agent."""
        return self._link.statistics()

    def mailbox_statistics(self) -> MailboxStatistics:
        """Return the numbers of messages in the mailbox and of senders that are held back."""
        return self._link.mailbox_statistics()


class Streaming(AbstractAsyncContextManager[T]):
    """The context manager that `ref.stream` returns; its coroutines are those of the wrapped one."""

    __slots__ = ("_opened",)

    def __init__(self, opened: AbstractAsyncContextManager[T]) -> None:
        self._opened = opened

    def __aenter__(self) -> Coroutine[Any, Any, T]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._opened.__aenter__()

    def __aexit__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *exc_info: Any
    ) -> Coroutine[Any, Any, bool | None]:
        return self._opened.__aexit__(*exc_info)

    if not TYPE_CHECKING:  # for users without a type checker

        def __aiter__(self) -> NoReturn:
            raise TypeError(
                "a stream is entered, so that leaving it ends the run: async with ref.stream(...) as items, "
                "and in it async for item in items"
            )


NO_KEYWORDS: Final[dict[str, Any]] = {}


@named("ref.ready")
async def _ready(link: Link, seconds: float | None) -> None:
    if not link.unready():  # most are: nothing is kept of a wait that is none
        return
    with ReadyWait(link.rt.ready_waits, link):
        if seconds is None:
            await link.wait_running()
            return
        with trio.move_on_after(seconds):
            await link.wait_running()
            return
        raise DeadlineExceeded(link.path, seconds, why=link.unready(), ready=True)


def entered_within(
    link: Link, entered: AbstractAsyncContextManager[T], seconds: float | None
) -> AbstractAsyncContextManager[T]:
    """Return the context manager of a verb, changed so that entering it takes `seconds` at most.

    `entered` must hold no cancel scope or nursery, as it is left after the cancel scope made here.
    """
    return entered if seconds is None else _entered_within(link, entered, seconds)


@asynccontextmanager
@enable_ki_protection
async def _entered_within(
    link: Link, entered: AbstractAsyncContextManager[T], seconds: float
) -> AsyncGenerator[T]:
    async with AsyncExitStack() as stack:
        given: list[T] = []
        with trio.move_on_after(seconds):
            given.append(await stack.enter_async_context(entered))
        if not given:
            raise DeadlineExceeded(link.path, seconds, why=link.unready())
        yield given[0]


@named("ref.tell")
async def tell_within(
    link: Link | AfterKept, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
) -> None:
    """Send a one-way message. Raises DeadlineExceeded if there was no seat within `seconds`."""
    with trio.move_on_after(seconds):
        await link.tell(key, args, kwargs)
        return
    raise DeadlineExceeded(link.path, seconds, why=link.unready())


_EXAMPLES: Final = {
    "an action": "Weather.forecast",
    "a property": "Weather.units",
    "an event": "Weather.asked",
}


def wrong_handle(verb: str, kind: str, handle: object) -> TypeError:
    """Make the error for a verb that was called with something other than the handle that it takes."""
    wanted = f"takes the handle of {kind}, such as {_EXAMPLES[kind]}"
    shown = f"the method {handle.__qualname__}" if isinstance(handle, FunctionType) else repr(handle)
    return TypeError(f"ref.{verb} {wanted}, not {shown}{_way_out(kind, handle)}")


def _way_out(kind: str, handle: object) -> str:
    """Return advice for the user of a verb that was called with something other than its handle."""
    if isinstance(handle, FunctionType):
        return (
            f"; write @action above it, so that refs can invoke it, as in ref.invoke({handle.__qualname__})"
        )
    if isinstance(handle, PropertyHandle):
        return "; of a property, ref.read gives the value, and ref.observe each change"
    if isinstance(handle, EventHandle):
        return "; events come from ref.subscribe"
    if hasattr(handle, "name"):
        return "; an action is carried out by ref.invoke or ref.tell"
    is_field = kind == "a property" and not isinstance(handle, str)
    return "; a field that is no property is the agent's own" if is_field else ""


def _action(verb: str, handle: Any) -> str:
    try:
        name: str = handle.name
    except AttributeError:
        raise wrong_handle(verb, "an action", handle) from None
    return name


def _property(verb: str, handle: Any) -> PropertyHandle[Any, Any]:
    if not isinstance(handle, PropertyHandle):
        raise wrong_handle(verb, "a property", handle)
    return handle  # pyright: ignore[reportUnknownVariableType]


def _event(verb: str, handle: Any) -> EventHandle[Any, Any]:
    if not isinstance(handle, EventHandle):
        raise wrong_handle(verb, "an event", handle)
    return handle  # pyright: ignore[reportUnknownVariableType]
