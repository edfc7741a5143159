"""Validation of `expect` steps: their subject, their keys, and whether each expectation can be met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean, inside, references
from lmos_actors.system import event_schema, output_schema, property_schema
from lmos_actors.system.values import ANYTHING

from ...model import EXPECT_KEYS, STATUSES, Expect, Invoke, Observe, Query, Read, Say, Stream, is_answered
from ._condition_validator import ConditionValidator, check_keys
from ._say_validator import MESSAGE, answer_to

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames
    from lmos_actors.system.values import Schema

    from ._step_scope import StepScope

ASKED_OF: Final[dict[str, tuple[Any, str]]] = {
    "output": ((Read, Invoke, Query, Say), "a read, invoke or say step"),
    "status": ((Invoke, Stream), "an invoke or stream step"),
    "items": ((Stream,), "a stream step"),
    "reading": ((Observe,), "an observe step"),
}
_JUDGING: Final = ("equals", "contains", "match", "ge", "le", "sequence", "times")
_STATUS: Final[Schema] = {"type": "string", "enum": list(STATUSES)}


def answer_of(names: CellNames, step: Any) -> tuple[str, Schema]:
    """Return the key that holds the answer of a step, and the schema of the answer.

    For a stream, it is the schema of one item.
    """
    if isinstance(step, Query):
        return "status", _STATUS
    if isinstance(step, Say):
        return "payload", ANYTHING
    contract: Any = names.contract(step.target)
    if isinstance(step, (Read, Observe)):
        known = contract is not None and step.property in contract.properties
        return "value", property_schema(contract, step.property) if known else ANYTHING
    key = "items" if isinstance(step, Stream) else "output"
    if contract is None or step.action not in contract.actions:
        return key, ANYTHING
    return key, output_schema(contract.table[step.action])


def root_of(names: CellNames, step: Any) -> Schema:
    """Return the schema of the whole answer of a step; the paths of `save` and `match` begin there."""
    if isinstance(step, Say):
        return answer_to(step)
    key, schema = answer_of(names, step)
    if key == "items":
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {key: schema}}


class ExpectValidator:
    """The validator of `expect` steps; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        self.conditions = ConditionValidator(names)

    def check(self, step: Expect, path: DataPath, scope: StepScope) -> None:
        self._keys(step, path)
        asked = self._asked(step, path, scope)
        if step.that == "value" and step.of is not UNSET and not has_reference(step.of):
            self.names.report((*path, "of"), '"that: value" looks at saved values: of: $(saved.NAME)')
        if step.that == "event":
            self._event(step, path, scope)
        elif step.that == "heard":
            self.names.hub.needs((*path, "that"), '"that: heard"')
        if step.that == "status":
            self._statuses(step, path)
        else:
            schema, root = self._schemas(step, asked, scope)
            self.conditions.expected(step, schema, path, root=root)

    def _asked(self, step: Expect, path: DataPath, scope: StepScope) -> Any:
        if step.that not in ASKED_OF or step.of is UNSET:
            return None
        if not isinstance(step.of, str):
            self.names.report((*path, "of"), f'"of" is the id of {ASKED_OF[step.that][1]}', "shape")
            return None
        kinds, called = ASKED_OF[step.that]
        judged = scope.ids.get(step.of)
        answers = {that: each for that, (each, _) in ASKED_OF.items() if that != "status"}
        other = next((that for that, each in answers.items() if isinstance(judged, each)), None)
        way = f': write "that: {other}"' if other else ""
        found = scope.step(self.names, step.of, (*path, "of"), kinds, called + way)
        if isinstance(found, Say) and not is_answered(found):
            self.names.report((*path, "of"), f'"{step.of}" has no answer: it is no question')
        return found

    def _schemas(self, step: Expect, asked: Any, scope: StepScope) -> tuple[Schema, Schema]:
        """Return two schemas: of the judged value, and of the data at which the paths of `match` begin."""
        if step.that == "value":
            schema = scope.schema_of(step.of)
            return schema, schema
        if step.that == "event":
            whom = scope.subscribed.get((str(step.target), str(step.event)), [])
            contracts = [self.names.contract(name) for name in whom]
            known = [made for made in contracts if made is not None and step.event in made.events]
            schema = event_schema(known[0], str(step.event)) if len(known) == len(whom) == 1 else ANYTHING
            return schema, {"type": "object", "properties": {"data": schema}}
        if step.that == "heard":
            return ANYTHING, MESSAGE
        if asked is None:
            return ANYTHING, ANYTHING
        return answer_of(self.names, asked)[1], root_of(self.names, asked)

    def _event(self, step: Expect, path: DataPath, scope: StepScope) -> None:
        if step.target is None or step.event is None:
            return
        self.names.agent(step.target, (*path, "target"), user=True)
        if (step.target, step.event) not in scope.subscribed:
            message = f'no earlier step subscribes as "{step.target}" to "{step.event}"'
            mine = [event for agent, event in sorted(scope.subscribed) if agent == step.target]
            self.names.report((*path, "event"), message + did_you_mean(step.event, mine))

    def _keys(self, step: Expect, path: DataPath) -> None:
        needed, some = EXPECT_KEYS[step.that]
        given = {key for key in ("of", "target", "event") if getattr(step, key) not in (None, UNSET)}
        judged = {key for key in _JUDGING if getattr(step, key) is not UNSET and getattr(step, key) != {}}
        check_keys(self.names, f"that: {step.that}", sorted(given | judged), needed, some, path)
        if not judged:
            self.names.report(path, f"nothing is expected: one of {', '.join(sorted(some))}", "shape")
        if step.within is not None and step.that == "value":
            message = "a saved value does not change, there is nothing to wait for"
            self.names.report((*path, "within"), message, "shape", key=True)

    def _statuses(self, step: Expect, path: DataPath) -> None:
        words: list[tuple[DataPath, Any]] = [
            ((*path, "sequence", i), word) for i, word in enumerate(step.sequence or ())
        ]
        if step.sequence == ():
            self.names.report((*path, "sequence"), "the statuses of a step are never empty", "shape")
        if step.equals is not UNSET:
            words.append(((*path, "equals"), step.equals))
        for here, word in words:
            if word not in STATUSES:
                self.names.report(here, f'"{word}" is not a status{did_you_mean(str(word), STATUSES)}')


def has_reference(value: Any) -> bool:
    """Return whether some part of plain data is a reference."""
    if isinstance(value, str):
        return "$(" in value and bool(references(value))
    return any(has_reference(inner) for _, inner in inside(value))
