"""Populations: many agents of one class with individual arguments.

Shared arguments are computed once per population. Individual ones (the number, random values, neighbours) are
computed when an agent is made, from streams named after the agent, so that a restarted agent gets the same
values again and the order of starts does not matter.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.actors import Agent, MailboxOptions, Ref, set_service_time
from lmos_actors.files import KEEP, decode, fill, inside, is_list, is_mapping, references
from lmos_actors.supervision import BulkSpec, ChildSpec, supervisor_of
from lmos_actors.system import backoff_of, by_state_name, fields_of_agent, has_ref
from lmos_actors.system.model import Distribution
from lmos_actors.system.values import draw, number_type

from ..format import neighbours_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors._core import Entropy
    from lmos_actors.actors import Operation
    from lmos_actors.files import Document, Reference
    from lmos_actors.system import AgentField
    from lmos_actors.system.model import Population, Topology

    from ..model import Simulation
    from ._run_agents import RunAgents

INDEX = "index"
"""The only name in the namespace `population`: the number of the agent."""


class Member(partial[Agent]):
    """The factory of the agents of one population; its keyword arguments are shared by all of them."""

    recipe: MemberRecipe

    def make(self, slot: Any) -> Agent:
        """Make the agent of a slot."""
        return self.func(**self.keywords, **self.recipe.given(slot))


def _itself(ref: Ref[Any]) -> Ref[Any]:
    return ref


@attrs.define
class MemberRecipe:
    """A recipe for the individual arguments of the agents of one population."""

    entropy: Entropy
    numbered: list[tuple[str, Callable[[int], Any]]] = attrs.Factory(list[Any])
    """Arguments computed for each agent from its number."""
    drawn: list[tuple[str, Any, Callable[[Any], Any]]] = attrs.Factory(list[Any])
    """Random arguments: name, distribution, conversion."""
    service_time: float = 0.0
    field: str = ""
    """The name of the argument for the neighbours."""
    neighbours: list[tuple[int, ...]] | None = None
    refs: Sequence[Ref[Any]] = ()
    crossing: Callable[[Ref[Any]], Ref[Any]] = _itself
    """Turns a ref to another agent into the ref that agents get."""

    def given(self, slot: Any) -> dict[str, Any]:
        """Return the arguments of the agent of a slot."""
        number = int(slot.name)
        given = {name: make(number) for name, make in self.numbered}
        for name, distribution, take in self.drawn:
            stream = self.entropy.stream(f"args {slot.path} {name}")
            given[name] = take(draw(distribution, stream))
        if self.neighbours is not None:
            slots = () if self.refs else supervisor_of(slot).numbered or ()
            refs = self.refs = self.refs or [self.crossing(Ref(each)) for each in slots]
            given[self.field] = tuple([refs[other] for other in self.neighbours[number]])
        return given


class Populations:
    """The populations of one run as supervisor specs, and the `Staging` that makes their agents.

    The file has been validated, so the values in it cause no errors.
    """

    def __init__(
        self, simulation: Simulation, document: Document, classes: Mapping[str, type], entropy: Entropy
    ) -> None:
        self._simulation = simulation
        self._document = document
        self._classes: Mapping[str, Any] = classes
        self._agents: RunAgents | None = None
        self._entropy = entropy

    def __len__(self) -> int:
        """Return the number of populations."""
        return len(self._simulation.population)

    def spec_of(self, index: int, agents: RunAgents) -> BulkSpec:
        """Return the spec of the population with the given index in the file."""
        entry = self._simulation.population[index]
        self._agents = agents
        restarts = entry.max_restarts if isinstance(entry.max_restarts, int) else entry.count
        return BulkSpec(
            entry.id,
            member=self._member(entry, index),
            count=entry.count,
            over=float(entry.start.over) if entry.start is not None else 0.0,
            max_restarts=restarts,
            max_seconds=float(entry.max_seconds),
        )

    def _member(self, entry: Population, index: int) -> ChildSpec[Any]:
        mailbox = entry.mailbox
        return ChildSpec(
            entry.id,
            self._maker(entry, index),
            restart=entry.restart,
            shutdown=entry.shutdown if isinstance(entry.shutdown, str) else float(entry.shutdown),
            mailbox=MailboxOptions(mailbox.size, mailbox.when_full) if mailbox else None,
            backoff=backoff_of(entry.backoff),
        )

    def _maker(self, entry: Population, index: int) -> Member:
        cls = self._classes[entry.id]
        fields = fields_of_agent(cls)
        states = by_state_name(fields)
        recipe = MemberRecipe(self._entropy, service_time=float(entry.service_time))
        shared: dict[str, Any] = {}
        for name, value in entry.args.items():
            distribution: Any = None
            if is_mapping(value) and "dist" in value:
                here = ("population", index, "args", name)
                distribution = decode(self._document, Distribution, value, at=here)[0]
            if distribution is not None:
                recipe.drawn.append((name, distribution, _check_of(fields[name])))
            else:
                filled = fields[name].fitted(self._fill_refs(value))
                self._add_argument(name, fields[name], filled, shared, recipe)
        for name, value in entry.state.items():
            self._add_argument(states[name].name, states[name], value, shared, recipe)
        self._topology(entry, recipe)
        made = Member(cls, **shared)
        made.recipe = recipe
        return made

    def _add_argument(
        self, name: str, field: AgentField, value: Any, shared: dict[str, Any], recipe: MemberRecipe
    ) -> None:
        """Share an immutable value among all agents; compute any other value for each agent."""
        take = _unchanged if has_ref(value) else _check_of(field)
        if _is_numbered(value):
            recipe.numbered.append((name, lambda number: take(_with_number(value, number))))
        elif not (is_mapping(value) or is_list(value)) or (field.shape and field.shape.immutable):
            shared[name] = take(value)
        else:
            recipe.numbered.append((name, lambda _: take(_mapped(value, _unchanged))))

    def _fill_refs(self, value: Any) -> Any:
        def look(reference: Reference) -> Any:
            assert self._agents is not None
            return self._agents.given[reference.name] if reference.namespace == "agents" else KEEP

        return _mapped(value, lambda text: fill(text, look, again=True))

    def _topology(self, entry: Population, recipe: MemberRecipe) -> None:
        topology: Topology | None = self._simulation.topology
        if topology is None or topology.of != entry.id:
            return
        seed = self._entropy.stream(f"topology {entry.id}").getrandbits(32)
        recipe.field = topology.field
        if self._agents is not None and self._agents.is_remote:
            recipe.refs = self._agents.given_refs(entry.id)
        elif self._agents is not None:
            recipe.crossing = self._agents.crossing
        recipe.neighbours = neighbours_of(topology, entry.count, seed)

    # ---- the side of the runtime

    def make(self, slot: Any) -> Any:
        """Make the agent object of a slot."""
        factory = slot.factory
        if not isinstance(factory, Member):
            return factory()
        if factory.recipe.service_time and not slot.incarnation:
            set_service_time(Ref[Any](slot), factory.recipe.service_time)
        return factory.make(slot)

    def table(self, slot: Any, agent: Any) -> dict[str, Operation]:
        """Return the operations of a slot, which are the operations of the agent's class."""
        operations: dict[str, Operation] = agent.__contract__.table
        return operations

    def complain(self, text: str) -> None:
        """Do nothing: only test nodes collect complaints."""


def _check_of(field: AgentField) -> Callable[[Any], Any]:
    shape = field.shape
    if shape is None:
        return _unchanged
    if number_type(shape.schema) == "integer":
        return lambda drawn: shape.take(round(drawn))
    return shape.take


def _unchanged(value: Any) -> Any:
    return value


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    if is_mapping(value):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    if is_list(value):
        return [_mapped(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _is_numbered(value: Any) -> bool:
    """Return whether a value contains a reference to the number of the agent."""
    if isinstance(value, str):
        return "$(" in value and bool(references(value))
    return any(_is_numbered(inner) for _, inner in inside(value))


def _with_number(value: Any, number: int) -> Any:
    return _mapped(value, lambda text: fill(text, lambda _: number))
