"""All judges and series of a run: they get the records and samples of the run, and give the results."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from ..model import (
    Always,
    Causal,
    Compare,
    Converges,
    Eventually,
    Latency,
    Linearizable,
    Never,
    NoSecrets,
    Restarts,
    Spending,
    Statistics,
    Tools,
    Trace,
)
from ._expect import percentile
from ._judge import AgentDirectory, Judge, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lmos_actors.reports import CheckResult, SeriesResult

    from ..model import AnyCheck, Measure, Series
    from ._formula_judges import JudgeContext
    from ._judge import PlaceOf, Slot, View
    from ._model_talk import ModelTalk
    from ._series import SeriesSampler

TIMED: Final = (Eventually, Converges)
"""The checks that come true at an instant, which formulas and `stop` may name."""

PERCENTILES: Final = (50, 90, 95, 99)


class Judges:
    """The judges of all checks of one run except `compare`, which is about several runs.

    The judges get every record and every sample, judge the final state while the agents still exist, and
    return their results after all agents have stopped.
    """

    def __init__(
        self, checks: Sequence[AnyCheck], measure: Measure | None, view: View, place: PlaceOf
    ) -> None:
        self._view = view
        self._checks = checks
        self._delivered: Counter[str] = Counter()
        self._recent: list[str] = []  # paths of deliveries that are not counted yet
        series = measure.series if measure is not None else {}
        directory = self._directory = AgentDirectory(view)
        self._at_once: Callable[[], AbstractContextManager[object]] = nullcontext
        context = cache(partial(self._formula_context, series))  # shared by all judges
        talk = cache(partial(_talk, view, directory))  # shared, too
        self._series = {name: _sampler(name, declared, context()) for name, declared in series.items()}
        self._judges = [
            _judge(check, place(index), view, directory, context, talk)
            for index, check in enumerate(checks)
            if not isinstance(check, Compare)
        ]
        self._by_name = {judge.name: judge for judge in self._judges if isinstance(judge.check, TIMED)}
        self._concerned: dict[str, Mapping[str, Sequence[Judge]]] = {}
        self._groups: dict[tuple[int, ...], Mapping[str, Sequence[Judge]]] = {}
        used = [judge.formula_names for judge in self._judges]
        used += [series.formula.names for series in self._series.values()]
        self._counts = any("delivered" in names for names in used)
        self._is_final = False
        # if the judges of a kind of records know their few agents, records of all others need no search
        self._only: dict[str, frozenset[str]] = {}
        for kind in self.kinds:
            paths = [judge.paths() for judge in self._judges if kind in judge.records]
            known = [found for found in paths if found is not None]
            if len(known) == len(paths):
                self._only[kind] = frozenset().union(*known)

    def _formula_context(self, series: Collection[str]) -> JudgeContext:
        """Return the context for formulas.

        The package of formulas is imported here because few runs have formulas.
        """
        from ..formulas import NETWORK_COUNTS, AgentValues, CheckedNames, Columns

        view, delivered = self._view, self._delivered
        own = [f"series.{name}" for name in series]
        timed = [name_of(check) for check in self._checks if isinstance(check, TIMED)]
        counts = [f"network.{name}" for name in NETWORK_COUNTS]
        names = CheckedNames([*own, *timed, *(f"{name}.time" for name in timed), *counts])
        columns = None if view.fields is None else Columns(view.fields, delivered, self._more)
        if columns is not None:
            self._at_once = columns.sample
        return view, self._directory, AgentValues(view.state, delivered, self._more, columns), names

    @property
    def count(self) -> int:
        """The number of checks that are judged here."""
        return len(self._judges)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of records that the judges need."""
        own = ["delivered"] if self._counts else []
        return tuple(dict.fromkeys([*own, *(kind for judge in self._judges for kind in judge.records)]))

    def paths(self, kind: str) -> frozenset[str] | None:
        """Return the paths of the agents whose records of a kind are needed; None if all are needed."""
        return None if kind == "delivered" and self._counts else self._only.get(kind)

    def record(self, kind: str, path: str, fields: Mapping[str, Any]) -> None:
        """Pass a record to the judges that need it, within the scheduler step that made it.

        `path` is the agent's path.
        """
        if kind == "delivered" and self._counts:
            self._recent.append(path)
            if len(self._recent) >= 4_096:
                self._count_recent()
        if kind in self._only and path not in self._only[kind]:
            return
        try:
            judges = self._concerned[path].get(kind)
        except KeyError:
            judges = self._concerned_with(path).get(kind)
        if judges:
            self._count_recent()
            now = self._view.now()
            for judge in judges:
                if not self._is_final or judge.late:
                    judge.record(kind, path, fields, now)

    def _count_recent(self) -> None:
        """Count the deliveries since the last evaluation. Counting many at once is cheap."""
        if self._recent:
            self._delivered.update(self._recent)
            self._recent.clear()

    def _concerned_with(self, path: str) -> Mapping[str, Sequence[Judge]]:
        """Return the judges of an agent's records, by kind of record; many agents share one table."""
        concerned_by = [judge.concerns(path) for judge in self._judges]
        places = tuple([place for place, concerned in enumerate(concerned_by) if concerned])
        group = self._groups.get(places)
        if group is None:
            found: dict[str, list[Judge]] = {}
            for place in places:
                for kind in self._judges[place].records:
                    found.setdefault(kind, []).append(self._judges[place])
            group = self._groups[places] = found
        if None not in concerned_by:
            self._concerned[path] = group
        return group

    def sample(self, now: float) -> None:
        """Measure all series, then judge all checks at this sample."""
        self._count_recent()
        with self._at_once():
            for series in self._series.values():
                series.sample(now)
            for judge in self._judges:
                judge.sample(now)

    def node_ends(self, slots: Collection[Slot] | None = None) -> None:
        """Note the counts of the agents in `slots`, or of the whole node, just before they are killed."""
        for judge in self._judges:
            judge.node_ends(slots)
        self._directory.forget()

    def agents_are_back(self, slots: Collection[Slot]) -> None:
        """Note that agents that were killed with their node of the network have restarted."""
        for judge in self._judges:
            judge.agents_are_back(slots)
        self._directory.forget()

    def forget_agents(self) -> None:
        """Discard the known agents, as the agents of another node replace them."""
        self._directory.forget()

    def judge_final_state(self, now: float) -> None:
        """Judge the final state while the agents still exist; after that, only dead letters count."""
        self._count_recent()
        if not self._is_final:
            with self._at_once():
                for judge in self._judges:
                    judge.judge_final_state(now)
        self._is_final = True

    def met(self, name: str) -> bool:
        """Return whether the named check has been met.

        Raises LookupError for a check of a kind that is not met at an instant.
        """
        return self._by_name[name].met_at is not None

    def of(self, name: str) -> Judge:
        """Return the judge of a check that can be met at an instant. Raises LookupError for other checks."""
        return self._by_name[name]

    def end(self) -> list[CheckResult]:
        """Return the results in the order of the file, after judging the final state if that is not done."""
        self.judge_final_state(self._view.now())
        return [judge.result() for judge in self._judges]

    def so_far(self) -> Iterator[tuple[str, bool | None, float | None]]:
        """Yield each check's name, its `so_far` (None: not known yet), and the instant when it was met."""
        for judge in self._judges:
            yield judge.name, judge.so_far, judge.met_at

    def samples(self) -> Iterator[tuple[str, str, Sequence[float], Sequence[float | None]]]:
        """Yield the name of each series, its aggregate, and its times and values so far."""
        for series in self._series.values():
            yield series.name, series.declared.agg, series.times, series.values

    def series(self) -> tuple[SeriesResult, ...]:
        """Return the samples of all series."""
        return tuple(series.result() for series in self._series.values())

    def metrics(self) -> dict[str, float | None]:
        """Return the numbers that `compare` may use, by name; None for a number that cannot be computed.

        There is `CHECK.time` for each check that can be met at an instant, and `SERIES.last` `.min` `.max`
        `.mean` for each series. There are `STEP.max` `.p50` `.p90` `.p95` `.p99` for the steps named by a
        check of latencies or a comparison.
        """
        found: dict[str, float | None] = {}
        for name, judge in self._by_name.items():
            found[f"{name}.time"] = judge.met_at
        for series in self._series.values():
            found |= series.metrics()
        for step in self._steps():
            samples = self._view.latencies(step)
            found[f"{step}.max"] = max(samples, default=None)
            found |= {f"{step}.p{percent}": percentile(samples, percent) for percent in PERCENTILES}
        return found

    def _steps(self) -> list[str]:
        steps = [check.of for check in self._checks if isinstance(check, Latency)]
        others = [check.metric.rpartition(".")[0] for check in self._checks if isinstance(check, Compare)]
        known = [name for name in others if name not in self._by_name and name not in self._series]
        return list(dict.fromkeys([*steps, *known]))

    def _more(self, name: str) -> Any:
        """Return the value of a name that belongs to no agent. Raises LookupError if it has none."""
        if name.startswith("series."):
            return self._series[name[7:]].last()
        if name.startswith("network."):
            return self._view.network_count(name[8:])
        judge = self._by_name.get(name)
        if judge is not None:
            return judge.met_at is not None
        judge = self._by_name[name.removesuffix(".time")]
        if judge.met_at is None:
            raise LookupError(f"{judge.name} has not come true")
        return judge.met_at


def _sampler(name: str, declared: Series, context: JudgeContext) -> SeriesSampler:
    from ._series import SeriesSampler

    return SeriesSampler(name, declared, context)


# The module of a kind of judge is imported only for a check of it, as few runs have checks of all kinds.


def _judge(
    check: AnyCheck,
    place: str,
    view: View,
    directory: AgentDirectory,
    context: Callable[[], JudgeContext],
    talk: Callable[[], ModelTalk],
) -> Judge:
    name = name_of(check)
    if isinstance(check, Linearizable):
        from ._register_judge import RegisterJudge

        return RegisterJudge(check, name, place, view, directory)
    if isinstance(check, Converges):
        from ._convergence_judge import ConvergesJudge

        return ConvergesJudge(check, name, place, context())
    if isinstance(check, (Causal, Trace)):
        from ._trace_judges import CausalJudge, TraceJudge

        if isinstance(check, Causal):
            return CausalJudge(check, name, place, directory)
        return TraceJudge(check, name, place, view, directory)
    if isinstance(check, (Always, Eventually)) or (isinstance(check, Never) and check.when.expr is not UNSET):
        return _formula_judge(check, name, place, context())
    if isinstance(check, (Never, Restarts, Statistics, Latency)):
        return _count_judge(check, name, place, view)
    return _answer_judge(check, name, place, view, talk)


def _formula_judge(check: Always | Eventually | Never, name: str, place: str, context: JudgeContext) -> Judge:
    from ._formula_judges import EventuallyJudge, HoldsJudge

    if isinstance(check, Eventually):
        return EventuallyJudge(check, name, place, context)
    if isinstance(check, Always):
        return HoldsJudge(check, name, place, context, check.expr, wanted=True)
    return HoldsJudge(check, name, place, context, str(check.when.expr), wanted=False)


def _count_judge(check: Never | Restarts | Statistics | Latency, name: str, place: str, view: View) -> Judge:
    from ._count_judges import CountJudge, DeadLetterJudge, LatencyJudge

    if isinstance(check, Never):
        return DeadLetterJudge(check, name, place, view)
    if isinstance(check, Latency):
        return LatencyJudge(check, name, place, view)
    return CountJudge(check, name, place, view)


def _answer_judge(check: Any, name: str, place: str, view: View, talk: Callable[[], ModelTalk]) -> Judge:
    if isinstance(check, (Tools, Spending)):
        from ._model_judges import SpendingJudge, ToolsJudge

        if isinstance(check, Tools):
            return ToolsJudge(check, name, place, talk())
        return SpendingJudge(check, name, place, talk())
    from ._answer_judges import AnswerJudge, NoSecretsJudge

    if isinstance(check, NoSecrets):
        return NoSecretsJudge(check, name, place, talk(), view)
    return AnswerJudge(check, name, place, view)


def _talk(view: View, directory: AgentDirectory) -> ModelTalk:
    from ._model_talk import ModelTalk

    return ModelTalk(view, directory)
