"""The base class of every agent: its state, and what the runtime gives it.

A subclass becomes an attrs class whose annotated fields are the state, set by keyword in the
constructor. `units: Property[str] = prop(...)` is state and a property, `asked: Event[str] = event()` is
none, `questions: int = 0` is private state.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    ParamSpec,
    Protocol,
    TypeVar,
    dataclass_transform,
)

import attrs
from trio.lowlevel import current_task

from lmos_actors._errors import AgentUnavailable

from ._contract import Contract, compile_contract
from ._declare import event, prop
from ._fields import collect_fields
from ._holder import AgentNursery
from ._invocation import CURRENT
from ._mailbox import Envelope, Firing, MailboxOptions, Request
from ._monitor import NORMAL
from ._operation import Operation
from ._ref import Ref
from ._runtime import RUNTIME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import datetime

    from lmos_actors._entropy import RandomStream
    from lmos_actors._timers import Timer

    from ._affordances import Action, EventHandle, Turn
    from ._calls import LocalLink

A = TypeVar("A")
S = TypeVar("S", bound="Agent")
V = TypeVar("V")
P = ParamSpec("P")


class Starter(Protocol):
    """What starts children of an agent, under a supervisor of its own; filled in by supervision."""

    async def start(self, parent: LocalLink, factory: Callable[[], A]) -> Ref[A]:
        """Start a child of `parent`, gone with it. Raises StartFailed."""
        ...


@dataclass_transform(kw_only_default=True, field_specifiers=(prop, event, attrs.field))
class Agent:
    """Subclass it, give it state as fields, and mark what consumers may use with `prop`, `event`, `@action`.

    `class X(Agent, serial=True)`: one run at a time over all actions, turns wait too (OTP's gen_server).
    `rename="camel"`: wire names in camel case. `mailbox=MailboxOptions(...)`: its own bound and policy.
    A subclass that says nothing has `serial` and `mailbox` of its base.
    """

    __contract__: ClassVar[Contract]
    _slot: LocalLink | None = None

    def __init_subclass__(
        cls, *, serial: bool | None = None, rename: str | None = None, mailbox: MailboxOptions | None = None
    ) -> None:
        super().__init_subclass__()
        base = vars(Agent)
        fields = collect_fields(cls, _RESERVED)
        attrs.define(cls, these=fields, slots=False, kw_only=True, eq=False, repr=False)
        namespace = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage] # documented by CPython
        above: Contract | None = getattr(super(cls, cls), "__contract__", None)
        if above is not None:
            serial = above.serial if serial is None else serial
            mailbox = above.mailbox if mailbox is None else mailbox
        cls.__contract__ = compile_contract(
            cls, base, _RESERVED, namespace, serial=bool(serial), rename=rename, mailbox=mailbox
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._slot.path}>"
            if self._slot is not None
            else f"<{type(self).__name__}>"
        )

    # ---- to override

    def started(self) -> None:
        """The first turn of an incarnation, before its mailbox opens; what it raises is a failed start."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold resources for the agent's life: entered before it takes messages, left after it has ended."""
        yield

    # ---- who and where

    def _place(self) -> LocalLink:
        slot = self._slot
        if slot is None:
            raise AgentUnavailable(type(self).__name__, "this incarnation has not started or has ended")
        return slot

    @property
    def ref(self: S) -> Ref[S]:
        """A ref to this agent."""
        return Ref(self._place())

    @property
    def path(self) -> str:
        """Its place in the tree."""
        return self._place().path

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Give a ref to an agent of that class, by name or the first started. Resolves on first use."""
        from ._registry import Finder

        return Ref(Finder(self._place().rt, cls, name))

    # ---- doing

    def send(
        self,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send one way, from a turn: what finds no seat waits in order, and this agent takes no further turn.

        Raises MailboxFull past 1,024 such messages (64 to itself), or where the other side rejects;
        InvalidInput, NotFound. What reaches no running agent is a dead letter.
        """
        link = ref._link  # pyright: ignore[reportPrivateUsage] # every send passes here: no call between
        link.send_from(self._slot or self._place(), handle.name, args, kwargs)

    def follow(self, ref: Ref[A], handle: EventHandle[A, V], turn: Callable[[V], None], /) -> None:
        """Have another agent's events arrive as turns of this one, for this incarnation's life.

        Needs no task. At most 64 events wait; past that the oldest is dropped and counted.
        """
        from ._registry import follow

        follow(self._place(), ref, handle, turn)

    def after(self, seconds: float, turn: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> Timer:
        """Have a turn run `seconds` from now; it ends with the incarnation, or by `cancel()` of the timer."""
        if not seconds >= 0:
            raise ValueError(f"after() needs a number of seconds of at least 0, not {seconds!r}")
        return self._place().after(seconds, partial(turn, *args, **kwargs) if args or kwargs else turn, ())

    def stop(self) -> None:
        """End with the reason `normal`, once what waits and runs has been handled."""
        slot = self._place()
        shutdown = slot.spec.shutdown
        slot.drain(NORMAL, float(shutdown) if isinstance(shutdown, (int, float)) else None)

    @property
    def nursery(self) -> AgentNursery:
        """Tasks that live as long as this incarnation; an exception in one is a crash."""
        return AgentNursery(self._place())

    # ---- time, chance, ids, log: the only sources an agent needs (X3)

    @property
    def random(self) -> RandomStream:
        """This agent's own stream of random numbers; the same for the same seed."""
        slot = self._place()
        more = slot.furnish()
        if more.random is None:
            more.random = slot.rt.entropy.stream(f"agent {slot.path} {slot.incarnation}")
        return more.random

    def now(self) -> datetime:
        """The wall clock of this world, in UTC."""
        return self._place().rt.entropy.now()

    def new_id(self) -> str:
        """A new UUID, version 4, as text."""
        return self._place().rt.entropy.new_id()

    @property
    def log(self) -> Any:
        """A structlog logger bound to this agent's path."""
        slot = self._place()
        more = slot.furnish()
        if more.log is None:
            import structlog

            more.log = structlog.get_logger().bind(agent=slot.path, incarnation=slot.incarnation)
        return more.log


def _own_names() -> frozenset[str]:
    names = {name for name in vars(Agent) if not name.startswith("__")}
    return frozenset(names | {"start", "link", "become", "stash", "unstash_all", "to_thread", "on_exit"})


_RESERVED: Final = _own_names()


def current_request() -> Request:
    """Say what the code that runs now was asked for, and by whom.

    Raises LookupError outside an agent's turns and runs.
    """
    run = CURRENT.get()
    if run is not None:
        return run.envelope.request()
    rt = RUNTIME.get()
    if rt is None or rt.turns.slot is None:
        raise LookupError("no agent's turn or run is in progress here")
    item = rt.turns.current
    if isinstance(item, Firing):
        return Request(affordance="timer")
    if isinstance(item, Envelope):
        return item.request()
    op: Operation | None
    sender: Any
    if isinstance(item, Operation):
        asker = current_task().context.get(CURRENT)
        op, sender = item, asker.slot if asker is not None else None
    else:
        op, _, sender = item
    return Request(
        affordance=op.name if op is not None else "started",
        consumer=sender.path if sender is not None else None,
    )
