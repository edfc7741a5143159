"""The decisions of a supervisor: pure functions over its own child objects, without trio and without a clock.

Because they are pure, they are compared with the real `supervisor` of OTP, decision by decision, in tests
that need no task and no time. They follow the behaviour of `supervisor` in OTP 25, which
`tests/supervision/otp` has recorded. A supervisor handles one message at a time, as OTP's does, and uses its
plan as follows:

- Each child's status belongs to the plan, which counts the children alive: `add`, `started`, `stopped`,
  `exited`, `start_failed` set it. The supervisor sets `starting` and `stopping` by `become` while it is doing
  so, and `stopped` if a start has failed.
- To carry out a `Decision`: stop `stop` one after another, calling `stopped` after each; drop `forget` from
  the tables of names; then start `start` one after another, calling `started` after each. The first start
  that fails ends this: `start_failed` returns the next decision. The rest of `start` waits for that attempt.
- `again` asks for `try_again(again)` after `delay` seconds, never at once: through the supervisor's own
  inbox, so that a request to stop is handled between two attempts. A newer `again` of a child replaces
  an older one.
- `end` asks the supervisor to stop all of `stop_order()` and to exit.
- An exit of an incarnation that the supervisor has itself stopped or replaced is not reported to the plan.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ._spec import Backoff, ChildSpec, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import ExitReason, Status

CAUSES: Final = 100
"""The number of children's errors that a supervisor keeps, to say why it has given up."""

ENDED: Final = frozenset({"stopped", "restarting"})
"""The statuses of children that are not alive."""

End: TypeAlias = Literal["intensity", "auto_shutdown"]


OPTIONAL: Final = Backoff(initial=1.0)
"""The back-off of optional children without their own: what they need may be away for long."""


class Child(Protocol):
    """A child of a supervisor, reduced to the members that the plan uses; hashable by identity.

    A `restarting` child is between two incarnations, its restart planned or under way; a `stopped` child does
    not run while its spec is kept (OTP: `restarting` and `undefined`).
    """

    status: Status

    @property
    def spec(self) -> ChildSpec[Any] | SupervisorSpec: ...


C = TypeVar("C", bound=Child)


class Decision(NamedTuple, Generic[C]):
    """The next steps, in the order of the fields; the empty decision has no steps."""

    stop: tuple[C, ...] = ()
    """Children to stop one by one in this order, the reverse of the start order."""
    forget: tuple[C, ...] = ()
    """Temporary children that are gone for good once `stop` is done; the plan forgets them by itself."""
    start: tuple[C, ...] = ()
    """Children to start one by one in this order."""
    again: C | None = None
    """The child whose restart `try_again` is to try after `delay` seconds."""
    delay: float = 0.0
    end: End | None = None
    """Why the supervisor is to stop all its children and exit with `shutdown`; None: it goes on."""
    causes: tuple[BaseException, ...] = ()
    """With `end == "intensity"`: the exceptions of the window, oldest first."""


class Counts(NamedTuple):
    """Counts as in OTP's `count_children`: specs, children alive, and the specs of each kind."""

    specs: int
    active: int
    supervisors: int
    workers: int


class Plan(Generic[C]):
    """The pure half of one supervisor. Times are seconds of one monotonic clock.

    `draw` returns numbers in [0, 1) for the jitter of back-offs; `tell` is called when `waiting` has changed.
    """

    __slots__ = (
        "_active",
        "_causes",
        "_draw",
        "_pending",
        "_postponed",
        "_significant",
        "_streaks",
        "_supervisors",
        "_tell",
        "_window",
        "children",
        "spec",
    )

    def __init__(
        self,
        spec: SupervisorSpec,
        draw: Callable[[], float] = lambda: 0.5,
        tell: Callable[[], object] = lambda: None,
    ) -> None:
        self.spec = spec
        self._tell = tell
        self.children: dict[C, None] = {}
        """All children in start order, whatever their status; a restarted one keeps its place. Read only."""
        self._active = self._supervisors = 0  # of the children: those alive, and those that are supervisors
        self._draw = draw
        self._window: deque[float] = deque()
        # An error keeps the agent that raised it, and all of its frames: in a storm only the last are kept.
        self._causes: deque[tuple[float, BaseException]] | None = None
        # Children whose next attempt is asked for by `again`: the failure that this attempt will count,
        # or None where it has been counted already (see _later).
        self._pending: dict[C, tuple[BaseException | None] | None] = {}
        # With a back-off only: attempts in a row, and when the last of them was due.
        self._streaks: dict[C, tuple[int, float]] = {}
        # Children whose next restart is to come so many seconds after their end, whatever their back-off.
        self._postponed: dict[C, float] = {}
        # Significant children that are not stopped.
        self._significant: dict[C, None] = {}

    # What has happened

    def add(self, child: C) -> None:
        """Add a new child, last in start order, with its present status."""
        self.children[child] = None
        if child.status not in ENDED:
            self._active += 1
        if not isinstance(child.spec, ChildSpec):
            self._supervisors += 1

    def become(self, child: C, status: Status) -> None:
        """Set the status of a child, and update the count of children alive."""
        if child in self.children:
            self._active += (status not in ENDED) - (child.status not in ENDED)
        child.status = status

    def started(self, child: C) -> None:
        """Record that the child runs, after a first start or a restart."""
        if child.status == "starting":  # alive before and after
            child.status = "running"
        else:
            self.become(child, "running")
        if child in self._pending:
            self._wait_no_more(child)
        if child.spec.significant:
            self._significant[child] = None

    def begin_later(self, child: C) -> Decision[C]:
        """Decide on the first start of an optional child, for which its supervisor does not wait."""
        self.become(child, "restarting")
        return self._alone(child, 0.0)

    def stopped(self, child: C) -> bool:
        """Record that a child is stopped or its restart given up; True if temporary and thus forgotten."""
        if child.status not in ENDED and child in self.children:  # as `become`, without the call
            self._active -= 1
        child.status = "stopped"
        self._postponed.pop(child, None)
        if child.spec.restart == "temporary":
            self.remove(child)
            return True
        self._wait_no_more(child)
        self._significant.pop(child, None)
        return False

    def all_stopped(self) -> None:
        """Record that all children have stopped, as the supervisor ends; cancel all pending restarts."""
        for child in self.children:
            child.status = "stopped"
            self._wait_no_more(child)
        self._active = 0

    def lost(self, child: C, *, has_ended: bool = False) -> None:
        """Record that the child ends with its machine, which no limit counts; `has_ended`: it has unwound."""
        self.become(child, "stopping" if _alive(child) and not has_ended else "stopped")
        self._wait_no_more(child)
        self._postponed.pop(child, None)
        self._streaks.pop(child, None)
        self._significant.pop(child, None)

    def remove(self, child: C) -> None:
        """Forget a child that is not running, and its spec."""
        if self.children.pop(child, self) is None:  # it was there
            self._active -= _alive(child)
            self._supervisors -= not isinstance(child.spec, ChildSpec)
        if child in self._pending:
            self._wait_no_more(child)
        self._streaks.pop(child, None)
        self._significant.pop(child, None)

    def exited(self, child: C, reason: ExitReason, now: float) -> Decision[C]:
        """Decide what to do after a child has ended by itself."""
        if not _alive(child) or child not in self.children:
            return Decision()
        restart = child.spec.restart
        if restart == "permanent" or (restart == "transient" and reason.kind == "error"):
            return self._restart_after(child, reason.error, now)
        significant = child.spec.significant
        forget = (child,) if self.stopped(child) else ()
        return Decision(forget=forget, end=self._end_after(significant))

    def start_failed(self, child: C, cause: BaseException | None, now: float) -> Decision[C]:
        """Decide what to do after a start of the plan has failed. Children after this one stay stopped.

        The next attempt has a separate entry in the window. It is entered when the attempt is made, as in
        OTP; with a back-off it is entered at once, so that no delay comes before a restart that the limit
        forbids.
        """
        if child not in self.children:
            return Decision()
        if child.spec.optional:
            self.become(child, "restarting")
            return self._alone(child, self._delay(child, now))
        self._settle(child)
        self.become(child, "restarting")
        if child.spec.significant:
            self._significant[child] = None
        if child.spec.backoff is None:
            self._wait(child, (cause,))
            return Decision(again=child)
        if not self._within_limit(cause, now):
            return self._give_up(child)
        return self._later(child, self._delay(child, now))

    def try_again(self, child: C, now: float) -> Decision[C]:
        """Decide on the restart that `again` asked for, now that it is due; no steps if not wanted."""
        if child not in self._pending:
            return Decision()
        uncounted = self._wait_no_more(child)
        if uncounted is not None and not self._within_limit(uncounted[0], now):
            return self._give_up(child)
        return self._restart(child)

    def postpone(self, child: C, delay: float) -> None:
        """Delay the restart after the child's next end by `delay` seconds; that end counts at once."""
        self._postponed[child] = delay

    # Requests, with the answers of OTP

    def check_start(self, taken: C | None) -> Literal["ok", "already_started", "already_present"]:
        """Return whether a child may start under a name; `taken` is the child that has the name, if any."""
        if taken is None:
            return "ok"
        return "already_started" if _alive(taken) else "already_present"

    def check_terminate(self, child: C | None) -> Literal["ok", "not_found"]:
        """Return whether this child may be stopped: any existing child may.

        If it is not running, only call `stopped`.
        """
        return "not_found" if child is None else "ok"

    def check_restart(self, child: C | None) -> Literal["ok", "not_found", "running", "restarting"]:
        """Return whether this child may be restarted on request: only if it is stopped."""
        if child is None:
            return "not_found"
        if child.status == "stopped":
            return "ok"
        return "restarting" if child.status == "restarting" else "running"

    def check_delete(self, child: C | None) -> Literal["ok", "not_found", "running", "restarting"]:
        """Return whether this child's spec may be deleted: only if the child is stopped."""
        return self.check_restart(child)

    # What is there

    def stop_order(self) -> list[C]:
        """Return the children that are alive, last started first."""
        return [child for child in reversed(self.children) if _alive(child)]

    def which(self) -> list[tuple[C, Status]]:
        """Return all children in start order, with their status (OTP uses the reverse order)."""
        return [(child, child.status) for child in self.children]

    def waiting(self) -> tuple[C, ...]:
        """Return the children that wait for their restart."""
        return tuple(self._pending)

    def count(self) -> Counts:
        """Return the numbers of all specs, of specs of each kind, and of children alive."""
        specs = len(self.children)
        return Counts(specs, self._active, self._supervisors, specs - self._supervisors)

    # How it is decided

    def _wait(self, child: C, uncounted: tuple[BaseException | None] | None) -> None:
        self._pending[child] = uncounted
        self._tell()

    def _wait_no_more(self, child: C) -> tuple[BaseException | None] | None:
        if child not in self._pending:
            return None
        uncounted = self._pending.pop(child)
        self._tell()
        return uncounted

    def _restart_after(self, child: C, cause: BaseException | None, now: float) -> Decision[C]:
        delay = self._postponed.pop(child, None)
        if child.spec.optional:
            self.become(child, "restarting")
            return self._alone(child, self._delay(child, now) if delay is None else delay)
        if not self._within_limit(cause, now):
            return self._give_up(child)
        self.become(child, "restarting")
        if delay is None and child.spec.backoff is None:
            return self._restart(child)
        return self._later(child, self._delay(child, now) if delay is None else delay)

    def _alone(self, child: C, delay: float) -> Decision[C]:
        """Decide on a delayed attempt that affects no other child and does not count towards the limit."""
        self._wait(child, None)
        return Decision(again=child, delay=delay)

    def _restart(self, child: C) -> Decision[C]:
        if self.spec.strategy == "one_for_one" or child.spec.optional:
            return Decision(start=(child,))
        scope = self._scope(child)
        stop, forget = self._clear(scope, child)
        start = tuple(one for one in reversed(scope) if one.spec.restart != "temporary")
        return Decision(stop, forget, start)

    def _later(self, child: C, delay: float) -> Decision[C]:
        """Decide on an attempt after a delay; siblings to be restarted with the child are stopped at once."""
        scope = [child] if self.spec.strategy == "one_for_one" else self._scope(child)
        stop, forget = self._clear(scope, child)
        self._wait(child, None)
        return Decision(stop, forget, again=child, delay=delay)

    def _scope(self, child: C) -> list[C]:
        """Return the children that are restarted with this child, itself included, last started first."""
        scope: list[C] = []
        for one in reversed(self.children):
            if not one.spec.optional:
                scope.append(one)
            if one is child and self.spec.strategy == "rest_for_one":
                break
        return scope

    def _clear(self, scope: list[C], child: C) -> tuple[tuple[C, ...], tuple[C, ...]]:
        """Return the children to stop and those to forget; pending restarts of other children are dropped."""
        for one in scope:
            if one.status == "restarting" and one is not child:
                self.stopped(one)
        stop = tuple(one for one in scope if _alive(one))
        return stop, tuple(one for one in stop if one.spec.restart == "temporary")

    def _settle(self, failed: C) -> None:
        """Mark the child whose exit led to this restart as stopped, if another (`failed`) could not start."""
        if self.spec.strategy == "one_for_one":
            return
        for one in self.children:
            if one.status == "restarting" and one is not failed and one not in self._pending:
                self.stopped(one)

    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        window = self._window
        window.append(now)
        if cause is not None:
            if self._causes is None:
                self._causes = deque(maxlen=CAUSES)
            self._causes.append((now, cause))
        while now - window[0] > self.spec.max_seconds:
            window.popleft()
        causes = self._causes
        while causes and causes[0][0] < window[0]:
            causes.popleft()
        return len(window) <= self.spec.max_restarts

    def _give_up(self, child: C) -> Decision[C]:
        forget = (child,) if self.stopped(child) else ()
        causes = tuple(cause for _, cause in self._causes or ())
        return Decision(forget=forget, end="intensity", causes=causes)

    def _end_after(self, significant: bool) -> End | None:
        auto = self.spec.auto_shutdown
        if not significant or auto == "never" or (auto == "all_significant" and self._significant):
            return None
        return "auto_shutdown"

    def _delay(self, child: C, now: float) -> float:
        backoff = child.spec.backoff or (OPTIONAL if child.spec.optional else None)
        if backoff is None:
            return 0.0
        attempts, due = self._streaks.get(child, (0, now))
        attempts = 1 if now - due >= backoff.max else attempts + 1
        delay = backoff.delay(attempts, self._draw())
        self._streaks[child] = (attempts, now + delay)
        return delay


def _alive(child: Child) -> bool:
    return child.status not in ENDED
