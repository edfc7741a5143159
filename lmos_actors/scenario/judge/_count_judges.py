"""Judges of numbers: dead letters, restarts, counters and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._expect import Verdict, judge_bounded, judge_latency
from ._judge import Judge, instant

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lmos_actors.reports import CheckResult

    from ..model import Latency, Never, Restarts, Statistics
    from ._judge import Slot, View


_GAUGES: Final = ("waiting", "running")
"""Counters of present things, which end with their node."""


def _both(judge: Judge, verdicts: Sequence[Verdict]) -> CheckResult:
    """Combine several verdicts in one result; without any verdict, the result is a failure."""
    if not verdicts:
        return judge.verdict(False, "something to judge", "nothing")
    bad = [verdict for verdict in verdicts if not verdict.ok]
    saw = ", ".join(dict.fromkeys(verdict.saw for verdict in bad or verdicts))
    return judge.verdict(not bad, " and ".join(verdict.expected for verdict in bad or verdicts), saw)


class DeadLetterJudge(Judge):
    """The judge of `never dead_letter`, until the last agent has stopped."""

    records = ("dead_letter",)
    late = True
    check: Never

    def __init__(self, check: Never, name: str, place: str, view: View) -> None:
        super().__init__(check, name, place)
        self.view = view
        self.count = 0
        self.first = ""
        self.at: float | None = None

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        if self.check.when.fault_free is True and self.view.faults_active():
            return
        if not self.count:
            self.at = now
            self.first = f"for {path}.{fields.get('affordance')} ({fields.get('reason')}) at {instant(now)}"
        self.count += 1

    def result(self) -> CheckResult:
        expected = "no dead letter" + (" outside of faults" if self.check.when.fault_free is True else "")
        saw = f"{self.count}, the first {self.first}" if self.count else "none"
        return self.verdict(not self.count, expected, saw, self.at)


class CountJudge(Judge):
    """The judge of `restarts` and `statistics`: numbers at the end of the run."""

    check: Restarts | Statistics

    def __init__(self, check: Restarts | Statistics, name: str, place: str, view: View) -> None:
        super().__init__(check, name, place)
        self.view = view
        self.number: int | None = None
        self._before: int | None = None
        """The number at the end of earlier nodes, whose counters no longer exist."""
        self._at_end: dict[Slot, int] = {}
        """The numbers of agents that were killed with their node of the network and are not back yet."""
        self._unseen = 0
        """The growth of the counters of such agents while they unwound and began again."""

    def node_ends(self, slots: Collection[Slot] | None = None) -> None:
        if self._counter in _GAUGES:
            return
        if slots is None:
            self._before = self._total()
            self._at_end, self._unseen = {}, 0
            return
        for slot in self.view.slots(self.check.of):
            if slot in slots:
                self._at_end[slot] = self._counted_by(slot)

    def agents_are_back(self, slots: Collection[Slot]) -> None:
        for slot in slots:
            if slot in self._at_end:
                self._unseen += self._counted_by(slot) - self._at_end.pop(slot)

    def judge_final_state(self, now: float) -> None:
        self.number = self._total()

    def _total(self) -> int | None:
        counted = self._counted()
        return counted if self._before is None else self._before + (counted or 0)

    @property
    def _counter(self) -> str:
        counter: str = getattr(self.check, "counter", "restarts")
        return counter

    def _counted(self) -> int | None:
        own = self.view.supervisor_restarts(self.check.of) if self._counter == "restarts" else None
        slots = self.view.slots(self.check.of)
        if own is not None or not slots:
            return own
        away = self._at_end
        return sum(away[slot] if slot in away else self._counted_by(slot) for slot in slots) - self._unseen

    def _counted_by(self, slot: Slot) -> int:
        return int(getattr(slot.statistics(), self._counter))

    def result(self) -> CheckResult:
        if self.number is None:
            return self.verdict(False, "a number", f"it cannot be computed: {self.check.of} has no agents")
        return _both(self, judge_bounded(self.check, self.number))


class LatencyJudge(Judge):
    """The judge of `latency`: the durations of the runs of a step."""

    check: Latency

    def __init__(self, check: Latency, name: str, place: str, view: View) -> None:
        super().__init__(check, name, place)
        self.view = view

    def result(self) -> CheckResult:
        return _both(self, judge_latency(self.check, self.view.latencies(self.check.of)))
