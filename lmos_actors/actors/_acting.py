"""What an agent does: the verbs of `self`, from sending to stopping, and its sources of time and chance.

`Agent` inherits them; names in this class cannot be names of an agent's own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lmos_actors._errors import AgentUnavailable

from ._holder import AgentNursery
from ._monitor import NORMAL
from ._ref import Ref
from ._registry import Finder, follow

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lmos_actors._entropy import RandomStream
    from lmos_actors._timers import Timer

    from ._affordances import Action, EventHandle, Turn
    from ._calls import LocalLink

A = TypeVar("A")
S = TypeVar("S", bound="Acting")
V = TypeVar("V")
P = ParamSpec("P")


class Acting:
    """An agent's own verbs; they raise AgentUnavailable before its start and after its end."""

    _slot: LocalLink | None = None

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
