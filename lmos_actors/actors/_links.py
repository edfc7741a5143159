"""Links and monitors: incarnations that end together, and notices of an end.

As in OTP, a link joins two lives: those of two agents' incarnations, or of an incarnation and a task's
block. When one of them has ended and unwound, an exit signal with its reason goes to the other. Any
reason but `normal` ends that one too, at once and with the same reason; an agent whose class has
`trap_exits=True` gets a turn of `on_exit` instead, for `normal` as well.

Signals are worked off one after another, from one queue of the node: a chain of linked agents may be of
any length and needs no depth of the stack.
"""

from __future__ import annotations

import inspect
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import checkpoint, current_task, enable_ki_protection

from lmos_actors.errors import AgentDied, AgentUnavailable, LinkedAgentDied, NotAllowed, group_of

from ._gates import DRAINING, ENDING, GONE, RUNNING
from ._invocation import CURRENT, Run
from ._mailbox import InternalTurn
from ._monitor import SHUTDOWN, Down, ExitReason
from ._observers import MONITORS
from ._slot_listeners import SlotListeners

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ._observers import Sinks
    from ._runtime import Runtime

NOT_RUNNING: Final = ExitReason("shutdown", "not running")
"""The reason in the `Down` about an agent that did not run when the monitor was made (OTP: `noproc`)."""


class Peer(Protocol):
    """One end of a link."""

    def part(self, peer: Any) -> None:
        """There is no link to `peer` any more; there may have been none."""
        ...

    def exit_signal(self, down: Down) -> None:
        """The other end is no more. Never blocks, runs nothing of the user's, never raises."""
        ...


class SlotLinks(SlotListeners):
    """A slot whose incarnations may be linked, and may monitor others."""

    __slots__ = ()

    # ---- links

    @enable_ki_protection
    def link_to(self, other: SlotLinks) -> None:
        """Link this incarnation and that of another agent; see `Acting.link`."""
        _check_near(other)
        if other is not self:
            other.check_alive()
            other.join(self)
            self.join(other)

    @enable_ki_protection
    def unlink_from(self, other: SlotLinks) -> None:
        """Take the link away, if there is one."""
        _check_near(other)
        other.part(self)
        self.part(other)

    def check_alive(self) -> None:
        """Raise AgentUnavailable or NotFound unless there is an incarnation to link to."""
        if self.state not in (RUNNING, DRAINING):
            raise self.closed_error()

    def join(self, peer: Peer) -> None:
        """Be linked to `peer` until either has ended."""
        extra = self.ensure_extra()
        if extra.links is None:
            extra.links = {}
        extra.links[peer] = None

    def part(self, peer: Any) -> None:
        """See `Peer`."""
        extra = self.extra
        if extra is not None and extra.links is not None:
            extra.links.pop(peer, None)

    def end_links(self, reason: ExitReason) -> None:
        """This incarnation has ended and unwound: signal that to all it was linked to."""
        extra = self.extra
        if extra is None or not extra.links:
            return
        links, extra.links = extra.links, None
        down = Down(self.path, self.incarnation, reason)
        for peer in links:
            peer.part(self)
            self.rt.signals.append((peer, down))
        carry_signals(self.rt)

    def exit_signal(self, down: Down) -> None:
        """See `Peer`."""
        if self.state >= ENDING or self.agent is None:
            return
        if self.agent.__contract__.options.trap_exits:
            self.put(InternalTurn(self.agent.on_exit, (down,)))
        elif down.reason.kind != "normal":
            if self.turns.slot is self:
                self._signal_after_turn(down)
            else:
                self._end_with(down.reason)

    def _signal_after_turn(self, down: Down) -> None:
        """What its own turn does has ended a linked one: no turn is ended in its middle."""
        agent = self.agent  # not the number: an incarnation that fails to start has none of its own

        def again() -> None:
            if self.agent is agent:
                self.exit_signal(down)

        self.rt.timers.call_at(trio.current_time(), again)

    def _end_with(self, reason: ExitReason) -> None:
        lifespan_task = self.extra.lifespan_task if self.extra is not None else None
        self.die(reason)
        if lifespan_task is not None:
            lifespan_task.abandon()

    @asynccontextmanager
    @enable_ki_protection
    async def link(self) -> AsyncGenerator[None]:
        """Link this incarnation and the task that enters, until it leaves; see `Ref.link`."""
        await checkpoint()
        self.check_alive()
        end = TaskLink(self)
        try:
            with end.scope:
                yield
        except BaseException as exc:
            end.left(exc)
            raise
        end.left(None)

    # ---- monitors

    @enable_ki_protection
    def monitor(self, other: SlotLinks, turn: Callable[[Down], None]) -> Monitor:
        """Let this agent know how incarnations of another end; see `Acting.monitor`."""
        monitor = Monitor(self, turn)
        if self.state >= ENDING:  # it ends with the incarnation, which is ending
            return monitor
        far = _far_sinks(other)
        if far is not None:
            monitor.begin(far)
            return monitor
        if other.state != GONE:
            monitor.begin(other.sinks())
        if other.state not in (RUNNING, DRAINING, ENDING):
            monitor.push(Down(other.path, other.incarnation, NOT_RUNNING))
        return monitor

    def end_monitors(self) -> None:
        """This incarnation is ending: what it monitors is nothing to it any more."""
        extra = self.extra
        if extra is not None and extra.monitors is not None:
            for monitor in tuple(extra.monitors):
                monitor.cancel()
            extra.monitors = None

    # ---- filled in by Mortal

    def die(self, reason: ExitReason) -> None:
        """End now."""
        raise NotImplementedError


def _check_near(link: Any) -> None:
    if not isinstance(link, SlotLinks):
        raise NotAllowed(f"{link.path!r} is no agent of this process: it cannot be linked or monitored so")


def _far_sinks(link: Any) -> Sinks | None:
    """Return the listeners of an agent of another process, None for one of this; NotAllowed for neither."""
    sinks = None if isinstance(link, SlotLinks) else getattr(link, "sinks", None)
    if sinks is None:
        _check_near(link)
        return None
    found: Sinks = sinks()
    return found


def carry_signals(rt: Runtime) -> None:
    """Work off the exit signals on their way, and those that these bring about."""
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

    __slots__ = ("_down", "_name", "_slot", "_tied", "scope")

    def __init__(self, slot: SlotLinks) -> None:
        self.scope = trio.CancelScope()
        self._slot = slot
        self._down: Down | None = None
        self._tied = True
        self._name = _name_of_task()
        slot.join(self)

    def part(self, peer: Any) -> None:
        """See `Peer`."""
        self._tied = False

    def exit_signal(self, down: Down) -> None:
        """See `Peer`."""
        if down.reason.kind != "normal":
            self._down = down
            self._slot.rt.timers.woke = True
            self.scope.cancel(f"linked to {down.agent}, which has ended: {down.reason}")

    def left(self, error: BaseException | None) -> None:
        """The block was left, with `error` if any: tell the agent. Raises what is to leave it instead."""
        slot = self._slot
        slot.part(self)
        own = None if error is None else _without(error, lambda leaf: isinstance(leaf, trio.Cancelled))
        down = self._down or (self._ending() if own is not None else None)
        if down is not None and (error is None or down.reason.error is not error):  # else it has come round
            raise _died(down, error) from down.reason.error
        if error is not None and self._tied:
            reason = SHUTDOWN if own is None else ExitReason("error", error=own)
            slot.rt.signals.append((slot, Down(self._name, 0, reason)))
            carry_signals(slot.rt)

    def _ending(self) -> Down | None:
        """Return the end of an agent that has died and only unwinds, None else; its signal is to come."""
        slot, extra = self._slot, self._slot.extra
        if not self._tied or slot.state != ENDING or extra is None or extra.reason is None:
            return None
        down = Down(slot.path, slot.incarnation, extra.reason)
        return None if down.reason.kind == "normal" else down


def _name_of_task() -> str:
    run = CURRENT.get()
    if isinstance(run, Run):
        return f"run {run.op.name} of {run.slot.path}"
    return f"task {current_task().name}{f' of {run.slot.path}' if run is not None else ''}"


def _died(down: Down, error: BaseException | None) -> BaseException:
    """Make what leaves a block whose agent has died: with what else its body raised, if that is news."""
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


class Monitor(InternalTurn):
    """The result of `self.monitor`: the ends of one agent as turns of another, which has a seat for them."""

    __slots__ = ("_downs", "_sinks", "_waiting", "_watcher")

    def __init__(self, watcher: SlotLinks, turn: Callable[[Down], None]) -> None:
        super().__init__(turn)
        self._watcher = watcher
        self._sinks: Sinks | None = None
        self._downs: deque[Down] = deque()
        self._waiting = False

    @enable_ki_protection
    def cancel(self) -> None:
        """End it: no turn for it begins after this call. Late or repeated calls do nothing."""
        sinks, self._sinks = self._sinks, None
        if sinks is not None:
            sinks.remove(MONITORS, self)
        self._downs.clear()
        self._forget()

    def begin(self, sinks: Sinks) -> None:
        """Listen to the slot that these sinks are of; the runtime's side."""
        self._sinks = sinks
        sinks.add(MONITORS, self)
        extra = self._watcher.ensure_extra()
        if extra.monitors is None:
            extra.monitors = {}
        extra.monitors[self] = None

    def push(self, value: Down) -> None:
        """Take one end; the runtime's side."""
        self._downs.append(value)
        if not self._waiting:
            self._waiting = True
            self._watcher.put(self)

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the turn for the oldest end, and take a seat for the next; the runtime's side."""
        if not self._downs:  # cancelled meanwhile
            return _nothing, ()
        down = self._downs.popleft()
        self._waiting = bool(self._downs)
        if self._waiting:
            self._watcher.put(self)
        return self.fn, (down,)

    def gap(self, reason: str, missed: int | None) -> None:
        """Do nothing: ends arrive by `push`. See `Sink`; the runtime's side."""

    def close(self) -> None:
        """The monitored agent is gone for good; what has come is still handled. The runtime's side."""
        self._sinks = None
        self._forget()

    def _forget(self) -> None:
        extra = self._watcher.extra
        if extra is not None and extra.monitors is not None:
            extra.monitors.pop(self, None)


def _nothing() -> None:
    """Be the turn of a monitor that was cancelled while it waited."""


def check_on_exit(cls: type, trap_exits: bool | None, own: object) -> None:
    """Check that a class that traps exits says what it does then, and the other way round.

    `trap_exits` is None where neither it nor a base says anything; `own` is the `on_exit` of `Agent`.
    Raises TypeError.
    """
    title = cls.__name__
    on_exit = inspect.getattr_static(cls, "on_exit")
    if on_exit is own:
        if trap_exits:
            raise TypeError(f"{title}: trap_exits=True needs a `def on_exit(self, down: Down) -> None`")
        return
    if trap_exits is None or (not trap_exits and "on_exit" in vars(cls)):
        raise TypeError(f"{title}.on_exit is never called: write class {title}(Agent, trap_exits=True)")
    unfit = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    if not inspect.isfunction(on_exit) or any(kind(on_exit) for kind in unfit):
        raise TypeError(f"{title}.on_exit must be a plain def, as it is a turn")
