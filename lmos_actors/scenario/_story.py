"""The story of a scenario: steps and checks, with every name in them resolved when the file is read.

A step sees what earlier steps made: ids, saved values, subscriptions. What happens beside it, in another
branch, it does not see.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET, UnsetType

import lmos_actors._errors as errors
from lmos_actors.files import DataPath, did_you_mean, inside, is_mapping, listed, mapped, references

from ._cells import split_step
from ._model_base import Condition
from ._model_checks import AnyCheck, Below, Bounded, Latency, Restarts
from ._model_steps import (
    EXPECT_KEYS,
    STATUSES,
    AnyStep,
    Asking,
    Crash,
    Expect,
    Inject,
    Invoke,
    Observe,
    Read,
    Subscribe,
    Wait,
    Write,
)
from ._names import NAME
from ._paths import path_problem, regex_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._names import Names

_ANSWERED = (Read, Write, Invoke)
_NOT_YET = frozenset({"OutcomeUnknown", "Unauthorized", "Forbidden", "RemoteProtocolError", "StoreError"})
_ASKED_OF: Final[dict[str, tuple[Any, str]]] = {
    "output": ((Read, Invoke), "a read or invoke step"),
    "status": ((Invoke,), "an invoke step"),
    "reading": ((Observe,), "an observe step"),
}


def error_names() -> list[str]:
    """Give the names that `error: {is: ...}` may have."""
    found = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.AgentError)]
    return sorted(error.__name__ for error in found if error.__name__ not in _NOT_YET)


def exception_class(name: str) -> type[Exception] | None:
    """Give the built-in exception that `inject crash` may raise: one that can be made from a message."""
    found = getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        found("injected")
    except TypeError:
        return None
    return found


@attrs.define
class _Seen:
    """What a step may refer to: the ids of earlier steps, earlier saved names, earlier subscriptions."""

    ids: dict[str, Any] = attrs.Factory(dict[str, Any])
    saved: set[str] = attrs.Factory(set[str])
    subscribed: set[tuple[str, str]] = attrs.Factory(set[tuple[str, str]])

    def branch(self) -> _Seen:
        return _Seen(dict(self.ids), set(self.saved), set(self.subscribed))

    def join(self, other: _Seen) -> None:
        self.ids.update(other.ids)
        self.saved.update(other.saved)
        self.subscribed.update(other.subscribed)


class _Broken:
    """Stands for a step with mistakes of its own: what refers to it is left alone."""


class Story:
    """Checks the steps and checks of one cell; mistakes go to `names`."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.saves: dict[str, DataPath] = {}
        self.saved_used: set[str] = set()
        self.every_id: dict[str, DataPath] = {}
        self.seen = _Seen()

    def check(self) -> None:
        self._steps(self.names.cell.data.get("steps"), ("steps",), self.seen)
        self._checks()
        for name, path in self.saves.items():
            if name not in self.saved_used:
                message = f'saved "{name}" is not used: $(saved.{name}) stands nowhere after it'
                self.names.wrong(path, message, key=True)

    # --- steps

    def _steps(self, data: Any, path: DataPath, seen: _Seen) -> None:
        for index, raw in enumerate(listed(data)):
            if is_mapping(raw):
                self._any_step(raw, (*path, index), seen)

    def _any_step(self, raw: dict[str, Any], path: DataPath, seen: _Seen) -> None:
        kind = raw.get("do")
        if kind == "repeat":
            self._steps(raw.get("steps"), (*path, "steps"), seen)
            self._remember(raw, None, path, seen)
        elif kind == "parallel":
            self._branches(raw.get("branches"), (*path, "branches"), seen)
            self._remember(raw, None, path, seen)
        else:
            step = self.names.decoded(AnyStep, raw, path)
            self._late_saved(path, seen)
            if step is not None:
                self._step(step, path, seen)
            self._remember(raw, step or _Broken(), path, seen)

    def _branches(self, data: Any, path: DataPath, seen: _Seen) -> None:
        """One branch does not see what another, running beside it, has done."""
        ends: list[_Seen] = []
        for index, steps in enumerate(listed(data)):
            ends.append(seen.branch())
            self._steps(steps, (*path, index), ends[-1])
        for end in ends:
            seen.join(end)

    def _remember(self, raw: dict[str, Any], step: Any, path: DataPath, seen: _Seen) -> None:
        name = raw.get("id")
        if isinstance(name, str):
            if name in self.every_id:
                first = self.names.document.place(self.every_id[name])
                self.names.wrong((*path, "id"), f'step id "{name}" is given twice, first at {first}')
            self.every_id.setdefault(name, (*path, "id"))
            seen.ids[name] = step
        for saved in mapped(raw.get("save")):
            self._save(saved, (*path, "save", saved), seen)
        if isinstance(step, Subscribe):
            seen.subscribed.add((step.as_, step.event))

    def _save(self, name: str, path: DataPath, seen: _Seen) -> None:
        if not NAME.fullmatch(name):
            self.names.wrong(path, f'"{name}" is not a name: letters, digits, _ and -', key=True)
        if name in self.saves:
            first = self.names.document.place(self.saves[name], key=True)
            self.names.wrong(path, f'"{name}" is saved twice, first at {first}', key=True)
        self.saves.setdefault(name, path)
        seen.saved.add(name)

    def _late_saved(self, step: DataPath, seen: _Seen) -> None:
        for late in self.names.cell.late:
            name = late.reference.name
            if late.reference.namespace != "saved" or split_step(late.path)[0] != step:
                continue
            self.saved_used.add(name)
            if name not in seen.saved:
                message = f'no earlier step saves "{name}"{did_you_mean(name, sorted(seen.saved))}'
                self.names.mistakes.append(
                    self.names.document.mistake_in(late.path, f"$(saved.{name})", message, "name")
                )

    def _step(self, step: Any, path: DataPath, seen: _Seen) -> None:
        if isinstance(step, Asking):
            self._asking(step, path)
        if isinstance(step, (Read, Invoke)):
            self._saving(step, path)
        if isinstance(step, Inject):
            if step.fault.target is not None:
                self.names.agent(step.fault.target, (*path, "fault", "target"))
            if isinstance(step.fault, Crash):
                self._exception(step.fault.with_, (*path, "fault", "with"))
        elif isinstance(step, Wait):
            self._wait(step, path)
        elif isinstance(step, Expect):
            self._expect(step, path, seen)

    def _asking(self, step: Asking, path: DataPath) -> None:
        self.names.agent(step.as_, (*path, "as"), user=True)
        self.names.agent(step.target, (*path, "target"))
        if step.error is None:
            return
        here, name, known = (*path, "error", "is"), step.error.is_, error_names()
        if name in _NOT_YET:
            self.names.wrong(here, f'the error "{name}" is not available yet', "later")
        elif name not in known:
            self.names.wrong(here, f'no error "{name}"{did_you_mean(name, known)}')

    def _saving(self, step: Read | Invoke, path: DataPath) -> None:
        for name, where in step.save.items():
            if problem := path_problem(where):
                self.names.wrong((*path, "save", name), problem, "shape")
        if step.save and not step.wait:
            self.names.wrong(
                (*path, "save"), '"save" needs the answer, "wait: false" goes on without it', key=True
            )
        if step.save and step.error is not None:
            self.names.wrong(
                (*path, "save"), '"save" needs an answer, this step is to end in an error', key=True
            )

    def _exception(self, name: str, path: DataPath) -> None:
        if exception_class(name) is None:
            known = [word for word in vars(builtins) if word[0].isupper() and exception_class(word)]
            self.names.wrong(
                path, f'no built-in exception "{name}" made from a message{did_you_mean(name, known)}'
            )

    def _wait(self, step: Wait, path: DataPath) -> None:
        if (step.until is None) == (step.for_ is None):
            self.names.wrong(path, 'a wait has exactly one of "until" and "for"', "shape")
        elif step.for_ is not None and step.within is not None:
            self.names.wrong(
                (*path, "within"),
                '"within" belongs to "until"; "for" is as long as it says',
                "shape",
                key=True,
            )
        if step.until is not None:
            self.names.agent(step.until.agent, (*path, "until", "agent"))

    # --- what is expected

    def _expect(self, step: Expect, path: DataPath, seen: _Seen) -> None:
        self._expect_keys(step, path)
        self._conditions(step, path)
        if step.that in _ASKED_OF and isinstance(step.of, str):
            self._of_step(step.of, (*path, "of"), seen.ids, *_ASKED_OF[step.that])
        elif step.that in _ASKED_OF and step.of is not UNSET:
            self.names.wrong((*path, "of"), f'"of" is the id of {_ASKED_OF[step.that][1]}', "shape")
        if step.that == "value" and step.of is not UNSET and not _has_reference(step.of):
            self.names.wrong((*path, "of"), '"that: value" looks at saved values: of: $(saved.NAME)')
        if step.that == "status":
            self._statuses(step, path)
        if step.that == "event" and step.target is not None and step.event is not None:
            self.names.agent(step.target, (*path, "target"), user=True)
            if (step.target, step.event) not in seen.subscribed:
                message = f'no earlier step subscribes as "{step.target}" to "{step.event}"'
                mine = [event for who, event in sorted(seen.subscribed) if who == step.target]
                self.names.wrong((*path, "event"), message + did_you_mean(step.event, mine))

    def _expect_keys(self, step: Expect, path: DataPath) -> None:
        needed, some = EXPECT_KEYS[step.that]
        given = {key for key in ("of", "target", "event") if getattr(step, key) not in (None, UNSET)}
        judged = {
            key
            for key in ("equals", "contains", "match", "ge", "le", "sequence", "times")
            if getattr(step, key) is not UNSET and getattr(step, key) != {}
        }
        for key in sorted(needed - given):
            self.names.wrong(path, f'"that: {step.that}" needs "{key}"', "shape")
        for key in sorted((given - needed) | (judged - some)):
            self.names.wrong(
                (*path, key), f'"{key}" says nothing about "that: {step.that}"', "shape", key=True
            )
        if not judged:
            self.names.wrong(path, f"nothing is expected: one of {', '.join(sorted(some))}", "shape")
        if step.within is not None and step.that == "value":
            self.names.wrong(
                (*path, "within"),
                "a saved value does not change, there is nothing to wait for",
                "shape",
                key=True,
            )

    def _conditions(self, step: Expect, path: DataPath) -> None:
        for where, condition in step.match.items():
            here = (*path, "match", where)
            if problem := path_problem(where):
                self.names.wrong(here, problem, "shape", key=True)
            if isinstance(condition, Condition):
                if condition == Condition():
                    self.names.wrong(here, "a condition without anything in it", "shape")
                if isinstance(condition.regex, str) and (problem := regex_problem(condition.regex)):
                    self.names.wrong((*here, "regex"), problem, "shape")

    def _statuses(self, step: Expect, path: DataPath) -> None:
        words: list[tuple[DataPath, Any]] = [
            ((*path, "sequence", i), word) for i, word in enumerate(step.sequence or ())
        ]
        if step.sequence == ():
            self.names.wrong((*path, "sequence"), "the statuses of a step are never empty", "shape")
        if step.equals is not UNSET:
            words.append(((*path, "equals"), step.equals))
        for here, word in words:
            if word not in STATUSES:
                self.names.wrong(here, f'"{word}" is not a status{did_you_mean(str(word), STATUSES)}')

    def _of_step(self, name: str, path: DataPath, ids: dict[str, Any], kinds: Any, called: str) -> None:
        if name not in ids:
            later = self.every_id.get(name) or name in self._raw_ids()
            hint = ", it comes later or beside this one" if later else did_you_mean(name, list(ids))
            self.names.wrong(path, f'no earlier step "{name}"{hint}')
        elif not isinstance(ids[name], (*kinds, _Broken)):
            self.names.wrong(path, f'"{name}" is not {called}')

    def _raw_ids(self) -> set[str]:
        return set(_ids(self.names.cell.data.get("steps")))

    # --- checks

    def _checks(self) -> None:
        data = self.names.cell.data.get("checks")
        for index, raw in enumerate(listed(data)):
            path: DataPath = ("checks", index)
            check = self.names.decoded(AnyCheck, raw, path)
            if isinstance(check, Bounded):
                self._bounded(check, path)
            elif isinstance(check, Latency):
                self._of_step(
                    check.of, (*path, "of"), self.seen.ids, _ANSWERED, "a read, write or invoke step"
                )
                self._latency(check, path)

    def _bounded(self, check: Bounded, path: DataPath) -> None:
        known = [*self.names.names, *(self.names.supervisors if isinstance(check, Restarts) else [])]
        if check.of not in known:
            self.names.wrong((*path, "of"), f'no agent "{check.of}"{did_you_mean(check.of, known)}')
        if all(isinstance(bound, UnsetType) for bound in (check.equals, check.ge, check.le)):
            self.names.wrong(path, "nothing is checked: one of equals, ge, le", "shape")

    def _latency(self, check: Latency, path: DataPath) -> None:
        marks = ("max", "p50", "p90", "p95", "p99")
        bounds: list[tuple[str, Below | None]] = [(mark, getattr(check, mark)) for mark in marks]
        if all(below is None for _, below in bounds):
            self.names.wrong(path, f"nothing is checked: one of {', '.join(marks)}", "shape")
        for mark, below in bounds:
            if below is not None and below == Below():
                self.names.wrong((*path, mark), "a bound without lt or le", "shape")


def _has_reference(value: Any) -> bool:
    if isinstance(value, str):
        return "$(" in value and bool(references(value))
    return any(_has_reference(inner) for _, inner in inside(value))


def _ids(data: Any) -> Iterator[str]:
    for raw in listed(data):
        step = mapped(raw)
        if isinstance(step.get("id"), str):
            yield step["id"]
        yield from _ids(step.get("steps"))
        for branch in listed(step.get("branches")):
            yield from _ids(branch)
