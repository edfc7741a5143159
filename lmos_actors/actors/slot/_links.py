"""Links and monitors between agents: incarnations that end together, and notices of an end.

`_task_links.py` delivers exit signals; `Slot.exit_signal` handles one for an incarnation.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import NotAllowed

from ..messages._gates import DRAINING, ENDING, GONE, RUNNING
from ..messages._mailbox import InternalTurn
from ..messages._monitor import Down, ExitReason
from ..messages._observers import MONITORS
from ._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..messages._observers import SinkTable

NOT_RUNNING: Final = ExitReason("shutdown", "not running")
"""The reason in the `Down` about an agent that did not run when the monitor was made (OTP: `noproc`)."""


@enable_ki_protection
def link_agents(slot: Slot, other: Any) -> None:
    """Link the present incarnations of two agents; see `Agent.link`."""
    _check_near(other)
    if other is not slot:
        other.check_alive()
        other.join(slot)
        slot.join(other)


@enable_ki_protection
def unlink_agents(slot: Slot, other: Any) -> None:
    """Remove the link between two agents, if there is one."""
    _check_near(other)
    other.part(slot)
    slot.part(other)


@enable_ki_protection
def monitor_agent(slot: Slot, other: Any, turn: Callable[[Down], None]) -> Monitor:
    """Make the ends of another agent's incarnations turns of the agent of `slot`; see `Agent.monitor`."""
    monitor = Monitor(slot, turn, other)
    if slot.state >= ENDING:  # it ends with the incarnation, which is ending
        return monitor
    far = None if isinstance(other, Slot) else getattr(other, "sinks", None)
    if far is not None:  # an agent of another process
        monitor.begin(far())
        return monitor
    _check_near(other)
    if other.state != GONE:
        monitor.begin(other.sinks())
    if other.state not in (RUNNING, DRAINING, ENDING):
        monitor.push(Down(other.path, other.incarnation, NOT_RUNNING, other.restored))
    return monitor


def _check_near(link: Any) -> None:
    if not isinstance(link, Slot):
        raise NotAllowed(f"{link.path!r} is no agent of this process: it cannot be linked or monitored so")


class Monitor(InternalTurn):
    """The result of `self.monitor`: the ends of one agent as turns of another, with a seat for them."""

    __slots__ = ("_downs", "_sinks", "_waiting", "_watcher", "watched")

    def __init__(self, watcher: Slot, turn: Callable[[Down], None], watched: Any) -> None:
        super().__init__(turn)
        self._watcher = watcher
        self.watched = watched
        """The agent that is watched: a slot, or a link to an agent elsewhere."""
        self._sinks: SinkTable | None = None
        self._downs: deque[Down] = deque()
        self._waiting = False

    @enable_ki_protection
    def cancel(self) -> None:
        """End the monitor: none of its turns begins after this call. Late or repeated calls do nothing."""
        sinks, self._sinks = self._sinks, None
        if sinks is not None:
            sinks.remove(MONITORS, self)
        self._downs.clear()
        self._forget()

    def begin(self, sinks: SinkTable) -> None:
        """Start listening for ends of incarnations; for the runtime."""
        self._sinks = sinks
        sinks.add(MONITORS, self)
        extra = self._watcher.ensure_extra()
        if extra.monitors is None:
            extra.monitors = {}
        extra.monitors[self] = None

    def push(self, value: Down) -> None:
        """Receive the notice of one end of an incarnation; for the runtime."""
        self._downs.append(value)
        if not self._waiting:
            self._waiting = True
            self._watcher.put(self)

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the turn for the oldest end, and queue again if more ends wait; for the runtime."""
        if not self._downs:  # cancelled meanwhile
            return _nothing, ()
        down = self._downs.popleft()
        self._waiting = bool(self._downs)
        if self._waiting:
            self._watcher.put(self)
        return self.fn, (down,)

    def gap(self, reason: str, missed: int | None) -> None:
        """Do nothing, as ends arrive by `push`; for the runtime (see `Sink`)."""

    def close(self) -> None:
        """End, as the agent is gone for good; notices so far are still handled. For the runtime."""
        self._sinks = None
        self._forget()

    def _forget(self) -> None:
        extra = self._watcher.extra
        if extra is not None and extra.monitors is not None:
            extra.monitors.pop(self, None)


def _nothing() -> None:
    """Do nothing, as the turn of a monitor that was cancelled while it waited."""


def check_on_exit(cls: type, trap_exits: bool | None, own: object) -> None:
    """Check that a class has a valid `on_exit` exactly if it traps exits.

    `trap_exits` is None if neither the class nor a base sets it; `own` is the `on_exit` of `Agent`. Raises
    TypeError.
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
