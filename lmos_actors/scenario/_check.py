"""A scenario held against the classes of its agents: `args`, `state`, and everything that steps name (F5).

A value that is known only when the story is told, as `$(saved.x)`, is not looked at here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors._errors import InvalidInput, NotAllowed, NotFound
from lmos_actors.actors import MISSING, StreamAction
from lmos_actors.files import FileError, did_you_mean, is_list, is_mapping

from ._classes import accepts, by_state_name, fields_of_agent
from ._model import Scenario
from ._model_agents import AgentEntry
from ._model_steps import Asking, Invoke, Observe, Parallel, Read, Repeat, Subscribe, Tell, Write
from ._resolve import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lmos_actors.files import DataPath, Kind, Mistake

    from ._classes import FieldOf
    from ._resolve import Cell, Resolved

_LATE = re.compile(r"\$\((saved|agents)\.")
_AGENT = re.compile(r"\$\(agents\.([\w-]+)\)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")


def load_scenario(
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Resolved:
    """Read a scenario file and check all that can be known before a run, the agents' classes included.

    Imports the agents' modules. Raises FileError with every mistake found; ConfigError as `resolve` does.
    """
    resolved = resolve(path, settings=settings, seeds=seeds, accepts=accepts)
    mistakes: list[Mistake] = []
    checked: Any = None
    for cell in resolved.cells:
        if cell.scenario is not checked:  # the cells of one combination and several seeds share it
            checked = cell.scenario
            mistakes += _Check(resolved, cell).all()
    if mistakes:
        raise FileError(mistakes)
    return resolved


class _Check:
    """Checks one cell; `mistakes` grows."""

    def __init__(self, resolved: Resolved, cell: Cell) -> None:
        self.document = resolved.document
        self.cell = cell
        self.mistakes: list[Mistake] = []

    def wrong(self, path: DataPath, message: str, kind: Kind = "shape", *, key: bool = False) -> None:
        self.mistakes.append(self.document.mistake(path, message, kind, key=key))

    def all(self) -> list[Mistake]:
        for name in self.cell.scenario.agents:
            self._agent(name)
        if isinstance(self.cell.scenario, Scenario):
            self._steps(self.cell.scenario.steps, ("steps",))
        return self.mistakes

    # ---- args and state

    def _agent(self, name: str) -> None:
        entry = self.cell.scenario.agents[name]
        if not isinstance(entry, AgentEntry):
            return
        cls = self.cell.agent_class(name)
        fields = fields_of_agent(cls)
        states = by_state_name(fields)
        path: DataPath = ("agents", name)
        self._given(entry.args, fields, cls, (*path, "args"))
        self._given(entry.state, states, cls, (*path, "state"))
        both = {states[key].name for key in entry.state if key in states}
        for key in entry.args:
            if key in both:
                self.wrong((*path, "args", key), f'"{key}" is given in state too', key=True)
        missing = [
            field.name
            for field in fields.values()
            if field.required and field.name not in entry.args and field.name not in both
        ]
        if missing:
            self.wrong(path, f"{cls.__name__} needs {', '.join(missing)} in args", key=True)

    def _given(
        self, given: Mapping[str, Any], fields: Mapping[str, FieldOf], cls: type, path: DataPath
    ) -> None:
        for key, value in given.items():
            here = (*path, key)
            field = fields.get(key)
            if field is None:
                self.wrong(
                    here, f'{cls.__name__} has no field "{key}"{did_you_mean(key, list(fields))}', key=True
                )
            elif field.points_to is not None:
                self._ref(value, field.points_to, here)
            elif field.shape is not None:
                if isinstance(value, str) and _AGENT.fullmatch(value):
                    self.wrong(here, f'"{key}" is no ref to an agent but {field.shape.name}')
                else:
                    self._value(value, field.shape, here)

    def _ref(self, value: Any, points_to: Any, path: DataPath) -> None:
        found = _AGENT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self.wrong(path, "a ref to an agent is expected here: $(agents.NAME)")
            return
        cls = self.cell.classes[found[1]]
        if isinstance(points_to, type) and not issubclass(cls, points_to):
            self.wrong(
                path, f'a ref to {points_to.__name__} is expected here, "{found[1]}" is {cls.__name__}'
            )

    def _value(self, value: Any, shape: Any, path: DataPath) -> bool:
        """Check plain data against a type; members that the type does not have are refused."""
        if _is_late(value):
            return True
        unknown = list(_unknown_members(value, shape.schema, path))
        for here, message in unknown:
            self.wrong(here, message, key=True)
        if unknown:
            return False
        try:
            shape.take(value)
        except InvalidInput as error:
            self.wrong((*path, *_data_path(error.path)), error.message)
            return False
        return True

    # ---- steps

    def _steps(self, steps: Iterable[Any], path: DataPath) -> None:
        for index, step in enumerate(steps):
            here = (*path, index)
            if isinstance(step, Repeat):
                self._steps(step.steps, (*here, "steps"))
            elif isinstance(step, Parallel):
                for number, branch in enumerate(step.branches):
                    self._steps(branch, (*here, "branches", number))
            elif isinstance(step, Asking):
                self._asking(step, here)

    def _asking(self, step: Asking, path: DataPath) -> None:
        if isinstance(step, (Invoke, Tell)):
            self._action(step, path)
        elif isinstance(step, Subscribe):
            self._known(step, path, "event", step.event)
        elif isinstance(step, (Read, Write, Observe)):
            self._property(step, path)

    def _known(self, step: Asking, path: DataPath, kind: str, name: str) -> bool:
        """Check that the target has such an affordance, and that this verb goes with it."""
        contract = self.cell.agent_class(step.target).__contract__
        tables: dict[str, Any] = {
            "property": contract.properties,
            "action": contract.actions,
            "event": contract.events,
        }
        if name in tables[kind]:
            return True
        if not _allows(step, NotFound):
            other = next((word for word, table in tables.items() if name in table), None)
            hint = f", it is an {other}" if other in ("action", "event") else ""
            hint = f", it is a {other}" if other == "property" else hint
            near = hint or did_you_mean(name, list(tables[kind]))
            self.wrong((*path, kind), f'{contract.title} has no {kind} "{name}"{near}', "name")
        return False

    def _property(self, step: Read | Write | Observe, path: DataPath) -> None:
        if not self._known(step, path, "property", step.property):
            return
        contract = self.cell.agent_class(step.target).__contract__
        made = contract.properties[step.property]
        if isinstance(step, Write):
            refused = "read-only" if made.read_only else None
        else:
            refused = "write-only" if made.write_only else None
            if isinstance(step, Observe) and refused is None and not made.observable:
                refused = "not observable"
        if refused is not None and not _allows(step, NotAllowed):
            hint = "say error: {is: NotAllowed} if that is the point"
            self.wrong((*path, "property"), f'"{step.property}" is {refused}; {hint}')
        if isinstance(step, Write) and not _allows(step, InvalidInput):
            self._value(step.value, contract.table[f"={step.property}"].params[0].shape, (*path, "value"))

    def _action(self, step: Invoke | Tell, path: DataPath) -> None:
        if not self._known(step, path, "action", step.action):
            return
        contract = self.cell.agent_class(step.target).__contract__
        if isinstance(contract.actions[step.action], StreamAction):
            self.wrong((*path, "action"), f'"{step.action}" is a stream: not available yet', "later")
        elif not _allows(step, InvalidInput):
            self._input(contract.table[step.action], step.input, path)

    def _input(self, op: Any, given: Any, path: DataPath) -> None:
        absent = given is UNSET
        here = path if absent else (*path, "input")
        data: Any = {} if absent else given
        if op.whole:
            if absent and op.params[0].default is MISSING:
                self.wrong(path, f'{op.label} needs an "input"')
            elif not absent:
                self._value(data, op.params[0].shape, here)
            return
        if _is_whole_late(data):
            return
        if not is_mapping(data):
            self.wrong(here, f"{op.label} takes an object, its members are {_members(op)}")
            return
        params = {param.wire_name: param for param in op.params}
        for key, value in data.items():
            if key not in params:
                near = did_you_mean(key, list(params))
                self.wrong((*here, key), f'{op.label} has no parameter "{key}"{near}', key=True)
            else:
                self._value(value, params[key].shape, (*here, key))
        missing = [name for name, param in params.items() if param.default is MISSING and name not in data]
        if missing:
            self.wrong(here, f"{op.label} needs {', '.join(missing)}", key=not absent)


def _members(op: Any) -> str:
    return ", ".join(param.wire_name for param in op.params) or "none"


def _allows(step: Asking, error: type[Exception]) -> bool:
    """Whether the step itself says that it is to end in this error."""
    return step.error is not None and step.error.is_ in [above.__name__ for above in error.__mro__]


def _is_late(value: Any) -> bool:
    if isinstance(value, str):
        return _LATE.search(value) is not None
    inner = value.values() if is_mapping(value) else value if is_list(value) else ()
    return any(_is_late(part) for part in inner)


def _is_whole_late(value: Any) -> bool:
    return isinstance(value, str) and _LATE.match(value) is not None


def _unknown_members(value: Any, schema: Mapping[str, Any], path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Find members that a schema does not have: consumers may send them, files may not have them."""
    if is_mapping(value):
        known: dict[str, Any] = schema.get("properties", {})
        open_ended = "properties" not in schema or schema.get("additionalProperties", False)
        for key, inner in value.items():
            if key in known:
                yield from _unknown_members(inner, known[key], (*path, key))
            elif not open_ended and schema.get("type") == "object":
                yield (*path, key), f'unknown key "{key}"{did_you_mean(key, list(known))}'
    elif is_list(value) and isinstance(schema.get("items"), dict):
        for index, inner in enumerate(value):
            yield from _unknown_members(inner, schema["items"], (*path, index))


def _data_path(text: str) -> DataPath:
    """Turn `$.items[2]['two words']` into the path of plain data."""
    found: list[str | int] = []
    for name, index, quoted in _STEP.findall(text):
        found.append(int(index) if index else name or quoted)
    return tuple(found)
