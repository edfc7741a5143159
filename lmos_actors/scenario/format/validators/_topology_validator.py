"""Validation of the topology of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system import fields_of_agent
from lmos_actors.system.model import TOPOLOGY_KEYS, Population, Topology

from ._condition_validator import check_keys
from ._topology import topology_problem

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames, ValueValidator

_KEYS = ("degree", "rewire", "probability", "width", "edges")
_FEWEST = 2


class TopologyValidator:
    """The validator of the topology of a simulation; mistakes go to `names`."""

    def __init__(self, names: CellNames, validator: ValueValidator) -> None:
        self.names = names
        self.validator = validator

    def check(self) -> None:
        topology = self.names.made.get(("topology",))
        if isinstance(topology, Topology):
            self._topology(topology, ("topology",))

    def _topology(self, topology: Topology, path: DataPath) -> None:
        needed = TOPOLOGY_KEYS[topology.kind]
        given = [key for key in _KEYS if getattr(topology, key) is not UNSET]
        check_keys(self.names, f"kind: {topology.kind}", given, needed, frozenset(), path, key=True)
        population = self.names.population(topology.of, (*path, "of"))
        if population is not None:
            self._numbers(topology, population, path)
            self._field(topology, population, path)

    def _numbers(self, topology: Topology, population: Population, path: DataPath) -> None:
        count = population.count
        if count < _FEWEST:
            self.names.report((*path, "of"), f'"{topology.of}" is one agent, and has no neighbours', "shape")
        problem = topology_problem(topology, count)
        self.names.report_at(path, problem)
        if problem is None and topology.width is not UNSET and count % topology.width:
            message = f'"{topology.of}" has {count} agents, which is no whole number of rows of that width'
            self.names.report((*path, "width"), message, "shape")
        for index, edge in enumerate(topology.edges or ()):
            self._edge(edge, count, (*path, "edges", index))

    def _edge(self, edge: tuple[int, ...], count: int, path: DataPath) -> None:
        if len(edge) != _FEWEST or edge[0] == edge[-1]:
            self.names.report(path, "an edge is the numbers of two agents: [0, 1]", "shape")
        for index, number in enumerate(edge):
            if number >= count:
                self.names.report((*path, index), f"no agent {number}, the last is {count - 1}")

    def _field(self, topology: Topology, population: Population, path: DataPath) -> None:
        """Check the field for the neighbours; its type must be a tuple of refs to the population's class."""
        self.validator.given[topology.of] = topology.field
        if topology.field in population.args:
            message = f'"{topology.field}" is given in args too'
            self.names.report((*path, "field"), message, "shape")
        cls: Any = self.names.classes.get(topology.of)
        if cls is None or not self.names.fitted:
            return
        fields = fields_of_agent(cls)
        field = fields.get(topology.field)
        # a wrong default is not in the file, so it is reported at the start of the topology
        here = (*path, "field") if "field" in self._raw() else path
        if field is None:
            near = did_you_mean(topology.field, list(fields))
            self.names.report(here, f'{cls.__name__} has no field "{topology.field}"{near}')
        elif field.pointer is None or not field.pointer.many:
            message = f'"{topology.field}" of {cls.__name__} is not of type tuple[Ref[{cls.__name__}], ...]'
            self.names.report(here, message, "shape")
        elif isinstance(field.pointer.cls, type) and not issubclass(cls, field.pointer.cls):
            message = f'"{topology.field}" is for refs to {field.pointer.cls.__name__}, not to {cls.__name__}'
            self.names.report(here, message, "shape")

    def _raw(self) -> Any:
        return self.names.cell.data.get("topology", {})
