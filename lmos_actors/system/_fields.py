"""Fields of agent classes and their types, for the `args` and `state` of a file."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import attrs

from lmos_actors.actors import Agent, is_agent_class, mentions, shape_of
from lmos_actors.supervision import hint_of, pointer_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from lmos_actors.actors import Shape
    from lmos_actors.supervision import Pointer


def accepts(cls: type) -> str | None:
    """Return why a class cannot be an agent of a scenario, None if it can."""
    if not issubclass(cls, Agent):
        return f"{cls.__name__} is not an agent, it does not derive from lmos_actors.Agent"
    return "Agent is the base of all agents, not one of them" if cls is Agent else None


def acts_by_itself(cls: type[Agent]) -> bool:
    """Return whether agents of a class act without a request: at their start, or periodically."""
    contract = cls.__contract__
    periodic = contract.periodic or contract.durable_periodic
    return bool(contract.has_started or periodic or contract.has_lifespan or contract.has_children)


LOOKING = frozenset({"find", "topic", "group", "join_group"})
"""Methods with which agents find others, or are found, without a name in the file."""


def discovers_agents(cls: Any) -> bool:
    """Return whether a method of an agent class or of a base mentions `find`, a topic or a group."""
    things = [
        value
        for above in cls.__mro__
        if above is not Agent and issubclass(above, Agent)
        for value in vars(above).values()
    ]
    return mentions(things, LOOKING)


@attrs.frozen
class AgentField:
    """One field of an agent's state. `shape` is None if the type is not plain data or cannot be read."""

    name: str
    wire: str | None
    required: bool
    hint: Any
    shape: Shape[Any] | None

    @property
    def pointer(self) -> Pointer | None:
        """The target of a field of type `Ref[X]` or `tuple[Ref[X], ...]` (`| None` is allowed), else None."""
        return pointer_of(self.hint)

    @property
    def points_to(self) -> Any:
        """The agent class that a field with a single ref points to; None for any other field."""
        return self.pointer.cls if self.pointer is not None and not self.pointer.many else None

    def fitted(self, value: Any) -> Any:
        """Convert one ref or several to the form that the field's type declares: one ref, or a tuple."""
        pointer = self.pointer
        if pointer is None or value is None:
            return value
        parts: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
        refs = [ref for part in parts for ref in cast("Any", part if isinstance(part, tuple) else (part,))]
        return tuple(refs) if pointer.many else refs[0]


def fields_of_agent(cls: type[Agent]) -> Mapping[str, AgentField]:
    """Return the fields of an agent class, by their parameter names in its constructor."""
    made: Any = cls
    return _fields_of(made)


@lru_cache(maxsize=1_000)
def _fields_of(cls: Any) -> Mapping[str, AgentField]:
    found: dict[str, AgentField] = {}
    for field in attrs.fields(cls):
        if field.init:
            name: str = field.alias
            found[name] = _field(cls, name, field)
    return found


def _field(cls: type[Agent], name: str, field: Any) -> AgentField:
    wires = {made.attribute: wire for wire, made in cls.__contract__.properties.items()}
    wire = wires.get(field.name)
    hint = None if wire is not None else hint_of(cls, field.name)
    shape = cls.__contract__.table[f"={wire}"].params[0].shape if wire is not None else _shape(hint)
    return AgentField(name, wire, field.default is attrs.NOTHING, hint, shape)


def by_state_name(fields: Mapping[str, AgentField]) -> dict[str, AgentField]:
    """Return the fields by the names that `state:` uses; a property has its public name there."""
    return {field.wire or name: field for name, field in fields.items()}


def _shape(hint: Any) -> Shape[Any] | None:
    try:
        return shape_of(hint) if hint is not None else None
    except TypeError:
        return None


def classes_named_by(cls: Any, given: Container[str]) -> set[type]:
    """Return the agent classes that the fields of a class mention, such as the tools of a thinking agent.

    For a class that looks for agents, include the targets of its optional refs that are not `given`, such as
    a model.
    """
    found: set[type] = set()
    if discovers_agents(cls):
        own = fields_of_agent(cls).values()
        pointers = (field.pointer for field in own if not field.required and field.name not in given)
        found |= {pointer.cls for pointer in pointers if pointer is not None and pointer.cls is not Agent}
    fields: Iterable[Any] = attrs.fields(cls)
    todo: list[Any] = [field.default for field in fields]
    for value in todo:
        if isinstance(value, tuple | list):
            todo.extend(cast("Iterable[Any]", value))
            continue
        named: Any = value if isinstance(value, type) else getattr(value, "agent", None)  # of a hand-over
        if is_agent_class(named):
            found.add(named)
    return found
