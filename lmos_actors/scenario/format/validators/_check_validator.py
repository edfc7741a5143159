"""Validation of the checks, series and stop condition of a file: names, formulas, bounds."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean, listed, mapped
from lmos_actors.system import tables_of
from lmos_actors.system.model import ALL_AGENTS, USER
from lmos_actors.system.values import texts_at

from ...model import (
    Always,
    Bounded,
    Causal,
    Compare,
    Converges,
    Eventually,
    Formula,
    Invoke,
    InvokeAt,
    Latency,
    Linearizable,
    Message,
    Never,
    Read,
    Restarts,
    Say,
    SayAt,
    Saying,
    Series,
    Stream,
    Tell,
    TellAt,
    Trace,
    Write,
    WriteAt,
    is_answered,
)
from ._condition_validator import check_bounds, check_in_time, given, needs_one

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames, ValueValidator

    from ._fault_validator import FaultValidator

FEWEST_SAMPLES: Final = 20
"""Minimum number of samples for a percentile; with fewer, the 95th is simply the largest."""

_MARKS: Final = ("max", "p50", "p90", "p95", "p99")
_ANSWERED: Final = (Read, Write, Invoke, Stream, InvokeAt, WriteAt, Say, SayAt)
_STEPS: Final[dict[str, tuple[Any, str]]] = {
    "answered": (_ANSWERED, "a read, write, invoke or stream step"),
    "sending": ((*_ANSWERED, Tell, TellAt), "a step that turns to an agent"),
}
"""The kinds of steps that checks name, and what messages call one."""

_OF_TRACES: Final = ("single_trace", "through")
_MOST_SAMPLES: Final = 1_000_000
_STATE: Final = "state."
_ARGUMENTS: Final = {
    "read": (0, "no arguments"),
    "write": (1, "one argument with a name, the new value"),
    "compare_and_set": (2, "two arguments, the value expected and the new one"),
}


class CheckValidator:
    """The validator of the checks, series and stop condition of one cell; mistakes go to `names`.

    `ids` has the steps by their ids; `run_counts` has the maximum number of runs of each step.
    """

    def __init__(
        self,
        names: CellNames,
        validator: ValueValidator,
        faults: FaultValidator,
        ids: Mapping[str, Any],
        run_counts: Mapping[str, int],
    ) -> None:
        self.names = names
        self.validator = validator
        self.faults = faults
        self.ids = ids
        self.run_counts = run_counts
        self.series: list[str] = []
        self.instants: list[str] = []

    def check(self) -> None:
        self._end()
        self._define()
        for name in self.series:
            path: DataPath = ("measure", "series", name)
            series = self.names.made.get(path)
            if isinstance(series, Series):
                self._series(series, path)
        for index, _ in enumerate(listed(self.names.cell.data.get("checks"))):
            check = self.names.made.get(("checks", index))
            if check is not None:
                self._check(check, ("checks", index))
        self._stop()

    def _end(self) -> None:
        stop, measure = self.names.made.get(("stop",)), self.names.made.get(("measure",))
        if measure is None:
            return
        path = ("measure", "every")
        if measure.every <= 0:
            self.names.report(path, "samples are taken every so often, not all the time", "shape")
        elif stop is not None and stop.at / measure.every > _MOST_SAMPLES:
            self.names.report(path, f"that is more than {_MOST_SAMPLES} samples", "shape")

    def _define(self) -> None:
        """Define the names of series and checks, including those with mistakes."""
        for name in mapped(mapped(self.names.cell.data.get("measure")).get("series")):
            self.names.define(name, "series", ("measure", "series", name), key=True)
            self.series.append(name)
        for index, raw in enumerate(listed(self.names.cell.data.get("checks"))):
            called = mapped(raw).get("name")
            if not isinstance(called, str):
                continue
            self.names.define(called, "check", ("checks", index, "name"))
            if mapped(raw).get("check") in ("eventually", "converges"):
                from ...formulas import RESERVED

                if called in RESERVED:
                    why = f'"{called}" is a word of formulas: call the check something else'
                    self.names.report(("checks", index, "name"), why)
                self.instants.append(called)

    def _stop(self) -> None:
        stop = self.names.made.get(("stop",))
        if stop is None or stop.when is None or stop.when in self.instants:
            return
        if stop.when in self.names.defined("check"):
            message = f'"{stop.when}" is judged at the end: stop when an eventually or converges check is met'
            self.names.report(("stop", "when"), message)
        else:
            self.names.is_known(stop.when, self.instants, ("stop", "when"), "check")

    # --- formulas

    def _series(self, series: Series, path: DataPath) -> None:
        self.names.check_group(series.of, (*path, "of"), all_agents=True)
        condition = series.agg in ("fraction", "count")
        self._formula(series.expr, (*path, "expr"), series.of, condition=condition, alone=True)

    def _formula(
        self, text: str, path: DataPath, of: str | None, *, condition: bool = True, alone: bool = False
    ) -> tuple[str, ...] | None:
        """Parse a formula and return the names in it; report a wrong formula and return None.

        If `alone` is true, the formula may not use series and checks.
        """
        from ...formulas import FormulaProblem, compile_formula, known_names

        classes = self._classes(of)
        if classes is None and _STATE in text:
            return None
        known = known_names(
            classes or (),
            of=of is not None,
            series=() if alone else self.series,
            checks=() if alone else self.instants,
            network="network" in self.names.cell.data,
        )
        try:
            return compile_formula(text, known, condition=condition).names
        except FormulaProblem as problem:
            self.names.mistakes.append(
                self.names.document.mistake_at(path, problem.start, problem.end, text, problem.message)
            )
            return None

    def _classes(self, of: str | None) -> list[Any] | None:
        """Return the classes of the agents that a formula is about; None if some classes are not known."""
        is_about_all = of is None or of == ALL_AGENTS
        wanted = self.names.names if is_about_all else [str(of)]
        found = [self.names.class_of(name) for name in wanted]
        return None if not self.names.fitted or None in found else found

    def _of(self, check: Formula, text: str, path: DataPath, key: DataPath) -> None:
        if check.of is not None and not self.names.check_group(check.of, (*path, "of"), all_agents=True):
            return
        from ...formulas import of_agents

        names = self._formula(text, key, check.of)
        if names is not None and check.of is not None and not of_agents(names):
            message = f'"of: {check.of}" does nothing: the formula speaks of no agent'
            self.names.report((*path, "of"), message, "shape", key=True)
        if names is not None and check.name is not None:
            own = [name for name in names if name in (check.name, f"{check.name}.time")]
            if own:
                self.names.report(key, f'the formula of "{check.name}" speaks of its own outcome', "shape")

    # --- checks

    @singledispatchmethod
    def _check(self, check: Any, path: DataPath) -> None:
        from ._model_check_validator import ModelCheckValidator  # few files need it

        ModelCheckValidator(self.names, self.ids, self.step).check(check, path)

    @_check.register(Always)
    @_check.register(Eventually)
    def _expression(self, check: Always | Eventually, path: DataPath) -> None:
        self._of(check, check.expr, path, (*path, "expr"))
        if isinstance(check, Eventually):
            check_in_time(self.names, check.by, (*path, "by"))

    @_check.register(Causal)
    def _causal(self, check: Causal, path: DataPath) -> None:
        self._message(check.before, (*path, "before"))
        self._message(check.after, (*path, "after"))

    @_check.register(Never)
    def _never(self, check: Never, path: DataPath) -> None:
        when, here = check.when, (*path, "when")
        if (when.dead_letter is UNSET) == (when.expr is UNSET):
            self.names.report(here, 'one of "dead_letter" and "expr"', "shape")
        if when.fault_free is True and not self.faults.any:
            message = '"fault_free" does nothing: there is no fault in the file'
            self.names.report((*here, "fault_free"), message, "shape", key=True)
        if when.expr is not UNSET:
            self._of(check, when.expr, path, (*here, "expr"))
        else:
            self.names.refuse(check, path, 'goes with "expr"', "of")

    @_check.register(Bounded)
    def _bounded(self, check: Bounded, path: DataPath) -> None:
        supervisors = isinstance(check, Restarts)
        self.names.check_group(check.of, (*path, "of"), supervisors=supervisors)
        check_bounds(self.names, check, path)

    def step(self, name: str, path: DataPath, kind: str) -> None:
        """Check that an id belongs to a step of the given kind."""
        kinds, called = _STEPS[kind]
        is_known = self.names.is_known(name, self.ids, path, "step")
        if is_known and self.ids[name] is not None and not isinstance(self.ids[name], kinds):
            self.names.report(path, f'"{name}" is not {called}')

    @_check.register(Latency)
    def _latency(self, check: Latency, path: DataPath) -> None:
        self.step(check.of, (*path, "of"), "answered")
        of = self.ids.get(check.of)
        if isinstance(of, Saying) and not is_answered(of):
            self.names.report((*path, "of"), f'"{check.of}" has no answer: it is no question')
        marks = given(check, *_MARKS)
        needs_one(self.names, marks, _MARKS, path)
        for mark, below in marks.items():
            if not given(below, "lt", "le"):
                self.names.report((*path, mark), "a bound without lt or le", "shape")
            if mark != "max":
                self._samples(check.of, (*path, mark))

    def _samples(self, step: str, path: DataPath, *, key: bool = True) -> None:
        most = self.run_counts.get(step)
        if most is not None and most < FEWEST_SAMPLES:
            runs = "one run" if most == 1 else f"{most} runs"
            message = f'a percentile needs {FEWEST_SAMPLES} runs, "{step}" has at most {runs}'
            self.names.report(path, message, "shape", key=key)

    @_check.register(Trace)
    def _trace(self, check: Trace, path: DataPath) -> None:
        if check.of is not None:
            self.step(check.of, (*path, "of"), "sending")
        needs_one(self.names, given(check, *_OF_TRACES), _OF_TRACES, path)
        for index, name in enumerate(check.through or ()):
            self._sends(name, (*path, "through", index))

    def _sends(self, name: str, path: DataPath) -> None:
        """Check the name of an agent that sends or receives messages."""
        if self.names.is_hub(name):
            why = f'"{name}" is the hub: what is said there goes from its sender to its recipients'
            self.names.report(path, why)
        else:
            self.names.check_group(name, path)

    def _message(self, message: Message, path: DataPath) -> None:
        if message == Message():
            self.names.report(path, "one of from, to, action, property, event", "shape")
        for name, key in ((message.from_, "from"), (message.to, "to")):
            if name is not None and name != USER:
                self._sends(name, (*path, key))
        kinds = given(message, "action", "property", "event")
        if "event" in kinds:
            why = 'does not go with "event": an event goes to all subscribers'
            self.names.refuse(message, path, why, "to")
        for kind in list(kinds)[1:]:
            self.names.report((*path, kind), f'"{next(iter(kinds))}" or "{kind}", not both', key=True)
        for kind, word in kinds.items():
            # an event comes from the agent that offers it, a request goes to the agent that does
            self._affordance(kind, word, message.from_ if kind == "event" else message.to, (*path, kind))

    def _affordance(self, kind: str, word: str, owner: str | None, path: DataPath) -> None:
        if owner is not None:
            self.validator.member(owner, kind, word, path)
            return
        contracts = [self.names.contract(name) for name in self.names.names]
        if not self.names.fitted or None in contracts:
            return
        known = dict.fromkeys(name for made in contracts for name in tables_of(made)[kind])
        self.names.is_known(word, known, path, f"agent has {kind}")

    @_check.register(Converges)
    def _converges(self, check: Converges, path: DataPath) -> None:
        self.names.check_group(check.of, (*path, "of"), all_agents=True)
        entry = self.names.populations.get(check.of)
        is_group = check.of in self.names.pools or entry is not None
        single = self.names.entry(check.of) is not None and (
            not is_group or 1 in (self.names.pools.get(check.of), entry.count if entry is not None else None)
        )
        if single:
            self.names.report((*path, "of"), f'"{check.of}" is one agent, which agrees with itself', "shape")
        if "measure" not in self.names.cell.data:
            why = '"converges" is looked at at every sample: the file needs "measure"'
            self.names.report((*path, "check"), why, "shape")
        names = self._formula(check.field, (*path, "field"), check.of, condition=False)
        if names is not None and (names != (check.field.strip(),) or not check.field.startswith(_STATE)):
            self.names.report((*path, "field"), "a field of the state: state.NAME", "shape")
        if check.after is not None:
            self._healed(check.after, (*path, "after"))

    def _healed(self, after: str, path: DataPath) -> None:
        name, _, word = after.rpartition(".")
        known = self.names.defined("fault")
        if word != "healed" or name not in known:
            near = did_you_mean(after, [f"{fault}.healed" for fault in known])
            self.names.report(path, f'no fault ends as "{after}"{near}')

    # --- registers

    @_check.register(Linearizable)
    def _linearizable(self, check: Linearizable, path: DataPath) -> None:
        actions = {"read": check.read, "write": check.write, "compare_and_set": check.compare_and_set}
        used: dict[str, str] = {}
        for key, action in actions.items():
            if action is not None and used.setdefault(action, key) != key:
                why = f'"{action}" is what "{used[action]}" does: another action'
                self.names.report((*path, key), why, "shape")
        seen: set[str] = set()
        for name, here in texts_at(check.of, (*path, "of")):
            if name in seen:
                self.names.report(here, f'"{name}" is there twice', "shape")
            elif self.names.is_hub(name):
                self.names.report(here, f'"{name}" is the hub, which has no actions')
            elif self.names.check_group(name, here):
                for key, action in actions.items():
                    if action is not None and self.validator.member(name, "action", action, (*path, key)):
                        self._operation(check, name, key, action, path)
            seen.add(name)

    def _operation(self, check: Linearizable, name: str, key: str, action: str, path: DataPath) -> None:
        """Check that an action takes the arguments of an operation on a register."""
        op = self.names.contract(name).table[action]
        if op.untyped:
            return
        arguments = [] if op.whole else list(op.names)
        if check.key is not None:
            if check.key not in arguments:
                near = did_you_mean(check.key, arguments)
                self.names.report((*path, "key"), f'{op.label} has no argument "{check.key}"{near}')
                return
            arguments.remove(check.key)
        takes = _ARGUMENTS[key]
        if op.whole or op.streams or len(arguments) != takes[0]:
            other = "" if check.key is None else f', besides "{check.key}"'
            self.names.report((*path, key), f"{op.label} has to take {takes[1]}{other}", "shape")
        elif any(op.secrecies or ()) or op.result_secrecy:
            self.names.report((*path, key), f"{op.label} has secret values, which nobody compares", "shape")
        elif key == "read" and check.initial is not None:
            self.validator.value(check.initial, op.result_shape, (*path, "initial"))

    # --- comparisons

    @_check.register(Compare)
    def _compare(self, check: Compare, path: DataPath) -> None:
        axes = mapped(self.names.cell.data.get("matrix") or self.names.cell.data.get("sweep"))
        is_axis = self.names.is_known(check.across, axes, (*path, "across"), "key", " that runs differ in")
        if is_axis and isinstance(axes[check.across], list) and len(axes[check.across]) < 2:
            self.names.report((*path, "across"), f'"{check.across}" has one value alone')
        name, _, word = check.metric.rpartition(".")
        is_number = self.names.is_known(check.metric, self._metrics(), (*path, "metric"), "number")
        if is_number and name in self.ids and word in _MARKS[1:]:
            self._samples(name, (*path, "metric"), key=False)

    def _metrics(self) -> list[str]:
        """Return the names of all numbers that a `compare` check can use."""
        found = [f"{name}.time" for name in self.instants]
        found += [f"{name}.{word}" for name in self.series for word in ("last", "min", "max", "mean")]
        steps = [name for name, step in self.ids.items() if isinstance(step, _ANSWERED)]
        return found + [f"{name}.{word}" for name in steps for word in _MARKS]
