"""Validation of values against the classes of agents: `args`, `state`, and the data of affordances.

A value that is known only during the run, such as `$(saved.x)`, is not checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.actors import MISSING, StreamAction
from lmos_actors.errors import ConfigError, InvalidInput
from lmos_actors.files import decode, did_you_mean, is_list, is_mapping
from lmos_actors.supervision import ChildSpec, Pool

from ._fields import by_state_name, fields_of_agent
from .model import AgentEntry, Bridge, Distribution, Mock, PoolEntry, Population, Replay
from .values import (
    ANYTHING,
    data_path,
    is_late,
    is_whole_late,
    misfits,
    number_type,
    problem_at,
    unknown_members,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Agent
    from lmos_actors.files import DataPath, Kind
    from lmos_actors.supervision import Pointer

    from ._cell_names import CellNames
    from ._fields import AgentField
    from .model import Source
    from .values import Schema

_AGENT = re.compile(r"\$\(agents\.([\w-]+)\)")
_INDEX: Final = "$(population.index)"
_SAMPLE: Final = 0.5


class ValueValidator:
    """A validator of values against types; mistakes are reported to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        self.given: dict[str, str] = {}
        """The argument that a topology fills with the neighbours, by population."""

    def report(self, path: DataPath, message: str, kind: Kind = "shape", *, key: bool = False) -> None:
        self.names.report(path, message, kind, key=key)

    # ---- args and state

    def agents(self) -> None:
        """Check `args` and `state` of all agents and populations that have a class."""
        entries: dict[str, Any] = {**self.names.agents, **self.names.populations}
        for name, entry in entries.items():
            cls: Any = self.names.classes.get(name)
            if cls is None or not self.names.fitted or getattr(entry, "use", None) is None:
                continue
            self._agent(name, entry, cls, self.names.places[name])

    def _agent(self, name: str, entry: Any, cls: Any, path: DataPath) -> None:
        fields = fields_of_agent(cls)
        states = by_state_name(fields)
        args: Mapping[str, Any] = {} if isinstance(entry, Mock) else entry.args
        many = isinstance(entry, Population)
        self._given(args, fields, cls, (*path, "args"), many=many)
        self._given(entry.state, states, cls, (*path, "state"))
        if self.names.tree is not None and name in self.names.tree.agents:
            self._check_replacement(name, cls, path)
        both = {states[key].name for key in entry.state if key in states}
        for key in args:
            if key in both:
                self.report((*path, "args", key), f'"{key}" is given in state too', key=True)
        have = {*args, self.given.get(name), *self.names.given_by_tree(name)} | both
        missing = [field.name for field in fields.values() if field.required and field.name not in have]
        if missing and isinstance(entry, (AgentEntry, PoolEntry, Population)):
            place = path if path[0] == "agents" else (*path, "use")
            self.report(place, f"{cls.__name__} needs {', '.join(missing)} in args", key=True)
        if isinstance(entry, PoolEntry):
            self._pool(name, entry, cls, path)
        if isinstance(entry, AgentEntry) and entry.key is not None:
            self._key(entry.key, cls, (*path, "key"))
        if isinstance(entry, AgentEntry) and entry.optional:
            self._optional(entry, (*path, "optional"))
        self._backoff(entry, path)

    def _check_replacement(self, name: str, cls: type, path: DataPath) -> None:
        original = None if self.names.tree is None else self.names.tree.class_of(name)
        if original is not None and not issubclass(cls, original):
            why = f'what takes the place of "{name}" is a {original.__name__}, {cls.__name__} is none'
            self.report((*path, "use"), why)

    def _pool(self, name: str, entry: PoolEntry, cls: type, path: DataPath) -> None:
        """Check the options of a pool against its class."""
        try:
            Pool(cls, entry.size, by=entry.by, key=entry.key or None, name=name)
        except ConfigError as error:
            self.report((*path, "key"), error.message)

    def _key(self, key: str, cls: type[Agent], path: DataPath) -> None:
        """Check that a class can have a `key`: its agents must keep their state in a store."""
        try:
            ChildSpec("agent", cls, key=key)
        except ConfigError as error:
            self.report(path, error.message)

    def _optional(self, entry: AgentEntry, path: DataPath) -> None:
        if entry.restart == "temporary" or entry.significant:
            self.report(path, "an optional agent is permanent or transient, and not significant", key=True)

    def _backoff(self, entry: Any, path: DataPath) -> None:
        given = getattr(entry, "backoff", UNSET)
        if given is not UNSET and given.initial <= 0:
            self.report((*path, "backoff", "initial"), "expected above 0")
        elif given is not UNSET and given.max < given.initial:
            self.report((*path, "backoff", "max"), f"expected at least {given.initial}, its initial")

    def _given(
        self,
        given: Mapping[str, Any],
        fields: Mapping[str, AgentField],
        cls: type,
        path: DataPath,
        *,
        many: bool = False,
    ) -> None:
        for key, value in given.items():
            here = (*path, key)
            field = fields.get(key)
            if field is None:
                near = did_you_mean(key, list(fields))
                self.report(here, f'{cls.__name__} has no field "{key}"{near}', key=True)
            elif field.pointer is not None:
                self._refs(value, field.pointer, here)
            elif field.shape is not None:
                self._plain(key, value, field.shape, here, many=many)

    def _plain(self, key: str, value: Any, shape: Any, path: DataPath, *, many: bool) -> None:
        if isinstance(value, str) and _AGENT.fullmatch(value):
            if shape.schema:  # Any takes refs too
                self.report(path, f'"{key}" is no ref to an agent but {shape.name}')
        elif many and is_mapping(value) and number_type(shape.schema):
            self._drawn(value, shape, path)
        elif many and value == _INDEX:
            self.value(0, shape, path)
        else:
            self.value(value, shape, path)

    def _drawn(self, value: Any, shape: Any, path: DataPath) -> None:
        """Check a distribution: its draws must be numbers, or seconds if a time is expected."""
        found, mistakes = decode(self.names.document, Distribution, value, at=path)
        self.names.mistakes.extend(mistakes)
        if found is None:
            return
        problem = problem_at(found)
        self.names.report_at(path, problem)
        if problem is None:
            self.value(round(_SAMPLE) if number_type(shape.schema) == "integer" else _SAMPLE, shape, path)

    # ---- refs

    def _refs(self, value: Any, pointer: Pointer, path: DataPath) -> None:
        if value is None and pointer.optional:
            return
        if pointer.many and is_list(value):
            for index, one in enumerate(value):
                self._ref(one, pointer, (*path, index), alone=True)
        else:
            self._ref(value, pointer, path, alone=not pointer.many)

    def _ref(self, value: Any, pointer: Pointer, path: DataPath, *, alone: bool) -> None:
        found = _AGENT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self.report(path, "a ref to an agent is expected here: $(agents.NAME)")
            return
        name = found[1]
        entry = self.names.populations.get(name)
        many = entry is not None and entry.count > 1
        if many and alone:
            self.report(path, f'one ref is expected here, "{name}" are {entry.count if entry else 0}')
        elif not many and not alone and name in self.names.agents:
            self.report(path, f"refs to several agents are expected here: [{value}]")
        else:
            self._points(name, pointer.cls, path)

    def _points(self, name: str, points_to: Any, path: DataPath) -> None:
        entry = self.names.agents.get(name)
        cls = self.names.classes.get(name)
        untyped = isinstance(entry, (Mock, Replay)) and entry.use is None and not self.names.is_of_tree(name)
        is_model = isinstance(entry, Mock | Replay) and entry.speaks == "model"
        if cls is None or (untyped and not is_model) or not isinstance(points_to, type):
            return
        if is_model and issubclass(points_to, cls):
            return  # any model may stand behind it
        if isinstance(entry, Bridge) and entry.speaks == "omnia" and issubclass(points_to, cls.__mro__[1]):
            return  # any chat agent may stand behind it
        if not issubclass(cls, points_to):
            self.report(path, f'a ref to {points_to.__name__} is expected here, "{name}" is {cls.__name__}')

    # ---- values

    def value(self, value: Any, shape: Any, path: DataPath) -> bool:
        """Check plain data against a type; unknown members are reported."""
        wrong = list(unknown_members(value, shape.schema, path))
        if is_late(value):
            wrong = wrong or list(misfits(value, shape.schema, path))
        for here, message, key in wrong:
            self.report(here, message, key=key)
        if wrong or is_late(value):
            return not wrong
        try:
            shape.take(value)
        except InvalidInput as error:
            self.report((*path, *data_path(error.path)), error.message)
            return False
        return True

    def member(self, name: str, kind: str, word: str, path: DataPath, *, key: bool = False) -> bool:
        """Check that an agent has an affordance with this kind and name."""
        contract = self.names.contract(name)
        if contract is None:
            return False
        tables = tables_of(contract)
        if word in tables[kind]:
            return True
        other = next((kind for kind, table in tables.items() if word in table), None)
        hint = did_you_mean(word, list(tables[kind]))
        if other is not None:
            hint = f", it is {'an' if other[0] in 'ae' else 'a'} {other}{hint}"
        self.report(path, f'{contract.title} has no {kind} "{word}"{hint}', "name", key=key)
        return False

    def input(self, op: Any, given: Any, path: DataPath, *, name: str = "input") -> None:
        """Check the input that a step gives to an action."""
        absent = given is UNSET
        if op.untyped:
            return
        if op.whole:
            if absent:
                self.report(path, f'{op.label} needs an "{name}"')
            else:
                self.value(given, op.params[0].shape, (*path, name))
            return
        if not is_whole_late(given):
            self._members(op, {} if absent else given, path if absent else (*path, name), absent=absent)

    def streams(self, op: Any, given: Mapping[str, Source] | None, path: DataPath) -> None:
        """Check the sources of a step's input streams; None means that the step cannot have sources."""
        params = {op.params[place].wire_name: op.params[place] for place in op.streams}
        if given is None:
            if params:
                why = "takes an input stream, which only a step do: invoke or do: stream has"
                self.report((*path, "action"), f"{op.label} {why}")
            return
        for name, source in given.items():
            here = (*path, "streams", name)
            if op.untyped:
                self.report(here, f"the streams of {op.label} are known only with a class: use", key=True)
                continue
            if name not in params:
                near = did_you_mean(name, list(params))
                self.report(here, f'{op.label} takes no input stream "{name}"{near}', key=True)
                continue
            if source.times > 1 and not source.items:
                self.report((*here, "times"), '"times" is of the items, and there are none', key=True)
            for index, item in enumerate(source.items):
                self.value(item, params[name].shape, (*here, "items", index))
        missing = [name for name in params if name not in given]
        if missing:
            self.report(path, f"{op.label} needs {', '.join(missing)} in streams", key=True)

    def _members(self, op: Any, data: Any, path: DataPath, *, absent: bool) -> None:
        params = {param.wire_name: param for param in op.params if not param.is_stream}
        if not is_mapping(data):
            self.report(path, f"{op.label} takes an object, its members are {', '.join(params) or 'none'}")
            return
        for key, value in data.items():
            if key not in params:
                near = did_you_mean(key, list(params))
                self.report((*path, key), f'{op.label} has no parameter "{key}"{near}', key=True)
            else:
                self.value(value, params[key].shape, (*path, key))
        missing = [name for name, param in params.items() if param.default is MISSING and name not in data]
        if missing:
            self.report(path, f"{op.label} needs {', '.join(missing)}", key=not absent)


def tables_of(contract: Any) -> dict[str, Any]:
    """Return the affordances of a class, keyed by the word for their kind."""
    return {"property": contract.properties, "action": contract.actions, "event": contract.events}


def is_stream(contract: Any, action: str) -> bool:
    """Return whether an action has many outputs."""
    return isinstance(contract.actions[action], StreamAction)


def input_schema(op: Any) -> Schema:
    """Return the schema of an action's input."""
    if op.untyped:
        return ANYTHING
    if op.whole:
        return op.params[0].shape.schema  # type: ignore[no-any-return]
    params = [param for param in op.params if not param.is_stream]
    return {"type": "object", "properties": {param.wire_name: param.shape.schema for param in params}}


def place_schema(op: Any) -> Schema:
    """Return the schema for the path of an invalid input; streams count as arrays in it."""
    schema = input_schema(op)
    streams = {op.params[place].wire_name: op.params[place].shape.schema for place in op.streams}
    if not streams:
        return schema
    arrays = {name: {"type": "array", "items": items} for name, items in streams.items()}
    return {**schema, "properties": {**schema.get("properties", {}), **arrays}}


def output_schema(op: Any) -> Schema:
    """Return the schema of an action's output, or of one output if the action has many."""
    shape = None if op.untyped else op.result_shape
    return ANYTHING if shape is None else shape.schema


def property_schema(contract: Any, name: str) -> Schema:
    """Return the schema of a property."""
    op = contract.table[f"={name}"]
    return op.params[0].shape.schema if op.params else ANYTHING


def event_schema(contract: Any, name: str) -> Schema:
    """Return the schema of an event's data."""
    shape = contract.events[name].shape
    return ANYTHING if shape is None else shape.schema
