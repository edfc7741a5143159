"""Questions that stand: what is held up by a person, on this node and on those that have asked it.

A question is asked in a run. Whoever waits for that run waits for the person, too, over however many calls:
the agents of this node, whose clocks stand still (`_clocks.py`), and callers on other nodes, which are told
(`Asker.asks`), and again every RENEWED seconds. What another node says so about a request of this one is
a question of the run that has sent the request; so it passes on from node to node.

Another node is believed no further than it has to be. Its word counts for PATIENCE seconds unless it is
renewed, never beyond the question's own end, and for `most` seconds of one request. It stops clocks only if
this node has named the other one, or has credentials for it. It never moves a deadline of the caller: that is
code's own, or a file's.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.actors import Far, callers_of, runs_awaiting

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from lmos_actors._core import Timer
    from lmos_actors.actors import OwnTask, Run, Runtime

    from ._clocks import Clocks
    from ._kept import Approval

RENEWED: Final = 10.0
"""Seconds after which callers on other nodes are told again that a question stands."""

PATIENCE: Final = 30.0
"""Seconds for which the word of another node counts."""

LONGEST: Final = 1_000
"""Characters of the id, and of the key, that another node may give."""


@attrs.frozen
class Question:
    """A question to a person, as callers are told of it. `expires` is Unix time, in seconds."""

    id: str
    key: str
    expires: float

    @staticmethod
    def read(members: dict[str, Any]) -> Question | None:
        """Return the question that another node tells, None for what is none."""
        id, key, expires = (members.get(name) for name in ("id", "key", "expires"))
        if not (isinstance(id, str) and isinstance(key, str) and max(len(id), len(key)) <= LONGEST):
            return None
        if not isinstance(expires, int | float) or isinstance(expires, bool) or not isfinite(expires):
            return None
        return Question(id, key, float(expires))

    def members(self) -> dict[str, Any]:
        """Return it as it is told."""
        return attrs.asdict(self)

    def __str__(self) -> str:
        return f"a person is being asked, under the key {self.key!r}"


class Standing:
    """A question while it stands: it stops clocks, and is told to callers on other nodes, until `end`."""

    def __init__(
        self, waits: Waits, question: Question, runs: Iterable[Run | OwnTask], paths: Iterable[str]
    ) -> None:
        self.question = question
        self._waits = waits
        self._runs = tuple(runs)
        self._held = waits.clocks.stop(paths)
        self._told: dict[Far, None] = {}
        self._found: dict[Run | OwnTask, None] = {}
        self._timer: Timer | None = None
        self._look()

    def _look(self) -> None:
        """Find out who waits now, and tell them."""
        runs, fars = callers_of(self._runs, self._waits.clocks.run_above)
        self._found.update(dict.fromkeys(runs))
        self._waits.held_up.update(dict.fromkeys(runs, self))
        self._held += self._waits.clocks.stop({run.slot.path for run in runs}.difference(self._held))
        for far in fars:
            self._told[far] = None
            far.asker.asks(far, self.question.members())
        if self._told:
            self._timer = self._waits.rt.timers.call_after(RENEWED, self._look)

    def end(self) -> None:
        """Let the clocks go on, and tell all that were told."""
        if self._timer is not None:
            self._timer.cancel()
        self._waits.clocks.go(self._held)
        held_up = self._waits.held_up
        for run in self._found:
            if held_up.get(run) is self:
                del held_up[run]
        for far in self._told:
            far.asker.asks(far, None)


@attrs.define(eq=False)
class Heard:
    """The word of another node on one request of this one, and until when it counts."""

    since: float
    question: Question | None = None
    standing: Standing | None = None
    timer: Timer | None = None

    def end(self) -> None:
        """Count on it no more."""
        if self.timer is not None:
            self.timer.cancel()
        standing, self.standing, self.timer = self.standing, None, None
        if standing is not None:
            standing.end()


class Waits:
    """The questions that stand on a node; `most` is for how long the word of another node counts at most."""

    def __init__(self, rt: Runtime, clocks: Clocks, most: float) -> None:
        self.rt = rt
        self.clocks = clocks
        self.held_up: dict[Run | OwnTask, Standing] = {}
        """The runs that wait for a person, and the question, the newest of several."""
        self._most = most

    @contextmanager
    def during(
        self, approval: Approval, run: Run | OwnTask | None, paths: Iterable[str | None]
    ) -> Generator[None]:
        """Have a question of a run stand in a block; `paths` are of agents that it is asked for besides."""
        question = Question(approval.id, approval.key, approval.expires)
        standing = Standing(self, question, () if run is None else (run,), filter(None, paths))
        try:
            yield
        finally:
            standing.end()

    def is_timed(self, request: Any) -> bool:
        """See `Approver.is_timed`; those who wait on other nodes may have clocks."""
        runs = tuple(runs_awaiting(request))
        return any(self.clocks.are_at(run.slot.path) or isinstance(run.envelope, Far) for run in runs)

    def asked(self, request: Any) -> str:
        """See `Approver.asked`."""
        heard: Heard | None = getattr(request, "question", None)
        if heard is not None:
            return "" if heard.timer is None else str(heard.question)
        run: Run | OwnTask | None = getattr(request, "run", None)
        standing = None if run is None else self.held_up.get(run)
        return "" if standing is None else str(standing.question)

    def heard(
        self, request: Any, heard: Heard | None, members: dict[str, Any] | None, *, heeds: bool
    ) -> Heard | None:
        """See `Approver.heard`."""
        question = None if members is None else Question.read(members)
        if question is None or request.ended:
            if heard is not None:
                heard.end()
            return heard if members is not None else None
        now = trio.current_time()
        heard = Heard(now) if heard is None else heard
        left = question.expires - self.rt.entropy.now().timestamp()
        seconds = min(left, heard.since + self._most - now, PATIENCE)
        if seconds <= 0:
            heard.end()
            return heard
        if heard.timer is not None:
            heard.timer.cancel()
        if heard.standing is None or heard.question != question:
            before, heard.standing = heard.standing, None
            runs = tuple(dict.fromkeys(runs_awaiting(request)))
            if heeds:
                heard.standing = Standing(self, question, runs, filter(None, _callers(runs)))
            else:
                self.clocks.note([run.slot.path for run in runs], str(question))
            if before is not None:
                before.end()
        heard.question = question
        heard.timer = self.rt.timers.call_after(seconds, partial(heard.end))
        return heard


def _callers(runs: Iterable[Run | OwnTask]) -> Iterator[str | None]:
    """Yield the paths of the agents of this node that have asked for what these runs do."""
    for run in runs:
        sender = run.envelope.sender
        yield None if sender is None else sender.path
