"""Standing questions: the work that waits for a person, on this node and on nodes that call it.

A question is asked in a run. All work that waits for that run also waits for the person, over however many
calls: the runs of this node, whose clocks stand still (`_clocks.py`), and requests of other nodes, which get
a report (`Asker.asks`). A report of another node about a request of this node counts as a question of the run
that has sent the request. In this way the question passes on from node to node.

The waiting callers can change while a question stands: some join a request by its key, others give up. So the
callers are looked up again every RENEWED seconds, and the reports to other nodes are repeated. A request of
another node may wait for several questions; the report is about the newest one.

Another node is trusted no further than necessary. Its report counts for PATIENCE seconds unless it is
renewed, never beyond the question's own end, and for `most` seconds of one request. It stops clocks only if
this node has named the other one, or has credentials for it. It never moves a deadline that the caller's code
or a file has set.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.actors import Far, callers_of, runs_awaiting

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from lmos_actors._core import Timer
    from lmos_actors.actors import OwnTask, Run, Runtime

    from ._clocks import Clocks
    from ._kept import Approval

RENEWED: Final = 10.0
"""Seconds after which the waiting callers are looked up again, and those on other nodes are told again."""

PATIENCE: Final = 30.0
"""Seconds for which the word of another node counts."""

LONGEST: Final = 1_000
"""Characters of the id, and of the key, that another node may give."""


@attrs.frozen
class Question:
    """A question to a person, in the form that callers receive. `expires` is Unix time, in seconds."""

    id: str
    key: str
    expires: float

    @staticmethod
    def read(members: dict[str, Any]) -> Question | None:
        """Read the question that another node has sent; return None if its members are not valid."""
        id, key, expires = (members.get(name) for name in ("id", "key", "expires"))
        if not (isinstance(id, str) and isinstance(key, str) and max(len(id), len(key)) <= LONGEST):
            return None
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            return None
        try:
            seconds = float(expires)
        except OverflowError:
            return None
        return Question(id, key, seconds) if isfinite(seconds) else None

    def members(self) -> dict[str, Any]:
        """Return the question as it is sent to other nodes."""
        return attrs.asdict(self)

    def __str__(self) -> str:
        named = f", under the key {self.key!r}" if self.key else ""
        return f"a person is being asked{named}"


class Standing:
    """A question without an answer, and the work that waited for the answer at the last look."""

    def __init__(self, question: Question, runs: Iterable[Run | OwnTask]) -> None:
        self.question = question
        self.asked_in = tuple(runs)
        self.runs: dict[Run | OwnTask, None] = {}
        self.requests: dict[Any, None] = {}
        """The requests that wait, from this node and from others."""


@attrs.define(eq=False)
class Heard:
    """The report of another node about a request of this one, and the seconds counted for it so far."""

    question: Question | None = None
    standing: Standing | None = None
    timer: Timer | None = None
    since: float = 0.0
    counted: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the report of the other node counts now."""
        return self.timer is not None


class Waits:
    """The questions that stand on a node.

    The reports of another node about one request count for at most `most` seconds.
    """

    def __init__(self, rt: Runtime, clocks: Clocks, most: float) -> None:
        self._rt = rt
        self._clocks = clocks
        self._most = most
        self._standings: dict[Standing, None] = {}
        self._by_request: dict[Any, dict[Standing, None]] = {}
        self._told: dict[Far, Question] = {}
        self._timer: Timer | None = None

    # ---- questions of this node

    @contextmanager
    def during(self, approval: Approval, *runs: Run | OwnTask | None) -> Generator[None]:
        """Inside this block, let a question that was asked in these runs stand."""
        question = Question(approval.id, approval.key, approval.expires)
        standing = self._begin(question, [run for run in runs if run is not None])
        try:
            yield
        finally:
            self._end(standing)

    def _begin(self, question: Question, runs: Iterable[Run | OwnTask]) -> Standing:
        standing = Standing(question, runs)
        self._standings[standing] = None
        self._look(standing)
        if self._timer is None:
            self._timer = self._rt.timers.call_after(RENEWED, self._renew)
        return standing

    def _end(self, standing: Standing) -> None:
        del self._standings[standing]
        for run in standing.runs:
            self._clocks.go(run)
        for request in standing.requests:
            self._leave(request, standing)
            self._tell(request)
        if not self._standings and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, standing: Standing) -> None:
        """Find the work that waits now, stop only its clocks, and report changes to other nodes."""
        runs, requests = callers_of(standing.asked_in, self._clocks.run_above)
        before_runs, before_requests = standing.runs, standing.requests
        standing.runs, standing.requests = dict.fromkeys(runs), dict.fromkeys(requests)
        for run in standing.runs:
            if run not in before_runs:
                self._clocks.stop(run)
        for run in before_runs:
            if run not in standing.runs:
                self._clocks.go(run)
        for request in before_requests:
            if request not in standing.requests:
                self._leave(request, standing)
        for request in standing.requests:
            self._by_request.setdefault(request, {})[standing] = None
        for request in {**before_requests, **standing.requests}:
            self._tell(request)

    def _leave(self, request: Any, standing: Standing) -> None:
        """Note that a request no longer waits for a question."""
        standings = self._by_request[request]
        del standings[standing]
        if not standings:
            del self._by_request[request]

    def _tell(self, request: Any, *, again: bool = False) -> None:
        """Report to another node the question that its request waits for, if this has changed."""
        if not isinstance(request, Far):
            return
        question = self._question_of(request)
        if question is None:
            if self._told.pop(request, None) is not None:
                request.asker.asks(request, None)
        elif again or self._told.get(request) != question:
            self._told[request] = question
            request.asker.asks(request, question.members())

    def _renew(self) -> None:
        self._timer = self._rt.timers.call_after(RENEWED, self._renew)
        for standing in tuple(self._standings):
            self._look(standing)
        for far in tuple(self._told):
            self._tell(far, again=True)

    def _question_of(self, request: Any) -> Question | None:
        """Return the newest question that a request waits for."""
        standings = self._by_request.get(request)
        return None if standings is None else next(reversed(standings)).question

    def asked(self, request: Any) -> str:
        """See `Approver.asked`."""
        heard: Heard | None = getattr(request, "question", None)
        if heard is not None:
            return str(heard.question) if heard.counts else ""
        question = self._question_of(request)
        return "" if question is None else str(question)

    # ---- what other nodes say

    def heard(
        self, request: Any, heard: Heard | None, members: dict[str, Any] | None, *, heeds: bool
    ) -> Heard | None:
        """See `Approver.heard`."""
        now = trio.current_time()
        heard = Heard() if heard is None else heard
        if heard.timer is not None:
            heard.counted += now - heard.since
        question = None if members is None or request.ended else Question.read(members)
        left = 0.0 if question is None else question.expires - self._rt.entropy.now().timestamp()
        seconds = min(left, self._most - heard.counted, PATIENCE)
        if question is None or seconds <= 0:
            self._forget(heard, request)
            return heard
        if heard.timer is not None:
            heard.timer.cancel()

        def over() -> None:
            heard.counted += seconds
            self._forget(heard, request)

        heard.since, heard.timer = now, self._rt.timers.call_after(seconds, over)
        before, runs = heard.standing, tuple(runs_awaiting(request))
        if heeds and (before is None or heard.question != question):
            heard.standing = self._begin(question, runs)
            if before is not None:
                self._end(before)
        elif not heeds:
            self._clocks.note(runs, str(question))
        heard.question = question
        return heard

    def _forget(self, heard: Heard, request: Any) -> None:
        """Stop counting the report of another node."""
        if heard.timer is not None:
            heard.timer.cancel()
        standing, heard.standing, heard.timer = heard.standing, None, None
        if standing is not None:
            self._end(standing)
        if not request.ended:
            self._clocks.note(runs_awaiting(request), "")
