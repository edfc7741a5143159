"""The links between a task's block and an agent, and the exit signals that linked sides send each other.

As in OTP, a link joins two sides: two agents' incarnations (`_links.py`), or an incarnation and a task's
block (`TaskLink`). When one side has ended and unwound, an exit signal with its reason goes to the other
side. Any reason but `normal` ends that side too, at once and with the same reason. An agent whose class has
`trap_exits=True` gets a turn of `on_exit` instead, for `normal` as well.

Signals are delivered one after another, from one queue of the node, so a chain of linked agents of any length
needs no deep stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import trio
from trio.lowlevel import current_task

from lmos_actors.errors import AgentDied, AgentUnavailable, LinkedAgentDied, group_of

from ..messages._gates import ENDING
from ..messages._invocation import CURRENT, Run
from ..messages._monitor import SHUTDOWN, Down, ExitReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._runtime import Runtime


class LinkPeer(Protocol):
    """One end of a link."""

    def part(self, peer: Any) -> None:
        """Remove the link to `peer`, if there is one."""
        ...

    def exit_signal(self, down: Down) -> None:
        """Handle the end of the other side. Never blocks, runs no user code, never raises."""
        ...


class LinkedSlot(Protocol):
    """The slot at the other end of a task's link; see `Slot`, which is in a layer above this file."""

    rt: Runtime
    state: int
    incarnation: int
    extra: Any

    @property
    def path(self) -> str: ...
    @property
    def restored(self) -> bool | None: ...
    def join(self, peer: LinkPeer) -> None: ...
    def part(self, peer: LinkPeer) -> None: ...


def carry_signals(rt: Runtime) -> None:
    """Deliver the pending exit signals, and the further ones that these cause."""
    if rt.signalling:
        return
    rt.signalling = True
    try:
        while rt.signals:
            peer, down = rt.signals.popleft()
            peer.exit_signal(down)
    finally:
        rt.signalling = False


class TaskLink:
    """A task's end of a link: the block of `async with ref.link()`."""

    __slots__ = ("_down", "_slot", "_tied", "name", "scope")

    def __init__(self, slot: LinkedSlot) -> None:
        self.scope = trio.CancelScope()
        self._slot = slot
        self._down: Down | None = None
        self._tied = True
        self.name = _name_of_task()
        """The description of the block, for inspection."""
        slot.join(self)

    def part(self, peer: Any) -> None:
        """See `LinkPeer`."""
        self._tied = False

    def exit_signal(self, down: Down) -> None:
        """See `LinkPeer`."""
        if down.reason.kind != "normal":
            self._down = down
            self._slot.rt.timers.woke = True
            self.scope.cancel(f"linked to {down.agent}, which has ended: {down.reason}")

    def left(self, error: BaseException | None) -> None:
        """Notify the agent that the block was left, by `error` if any. Raises the error that replaces it."""
        slot = self._slot
        slot.part(self)
        own = None if error is None else _without(error, lambda leaf: isinstance(leaf, trio.Cancelled))
        down = self._down or (self._ending() if own is not None else None)
        if down is not None and (error is None or down.reason.error is not error):  # else it has come round
            raise _died(down, error) from down.reason.error
        if error is not None and self._tied:
            reason = SHUTDOWN if own is None else ExitReason("error", error=own)
            slot.rt.signals.append((slot, Down(self.name, 0, reason)))
            carry_signals(slot.rt)

    def _ending(self) -> Down | None:
        """Return the end of an agent that has died but still unwinds, before its signal comes; else None."""
        slot, extra = self._slot, self._slot.extra
        if not self._tied or slot.state != ENDING or extra is None or extra.reason is None:
            return None
        down = Down(slot.path, slot.incarnation, extra.reason, slot.restored)
        return None if down.reason.kind == "normal" else down


def _name_of_task() -> str:
    run = CURRENT.get()
    if isinstance(run, Run):
        return f"run {run.op.name} of {run.slot.path}"
    return f"task {current_task().name}{f' of {run.slot.path}' if run is not None else ''}"


def _died(down: Down, error: BaseException | None) -> BaseException:
    """Make the error for a block whose agent has died, together with the block's own error if it differs."""
    died = LinkedAgentDied(down.agent, down.incarnation, down.reason)
    other = None if error is None else _without(error, lambda leaf: _is_same_news(leaf, down))
    if other is None:
        return died
    return BaseExceptionGroup(f"a block linked to {down.agent} raised too", [died, other])


def _is_same_news(error: BaseException, down: Down) -> bool:
    if isinstance(error, LinkedAgentDied):
        return error.reason is down.reason
    return isinstance(error, (trio.Cancelled, AgentDied, AgentUnavailable))


def _without(error: BaseException, out: Callable[[BaseException], bool]) -> BaseException | None:
    group = group_of(error)
    if group is None:
        return None if out(error) else error
    return group.split(out)[1]
