"""What an agent's class takes: its fields and their types, asked for `args` and `state` of a file."""

from __future__ import annotations

import copy
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

import attrs

from lmos_actors.actors import Agent, MailboxOptions, Ref, shape_of
from lmos_actors.files import inside
from lmos_actors.supervision import ChildSpec, SupervisorSpec

from ._cells import fill_late
from ._model_agents import AgentEntry, Replay, Supervised, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Shape

    from ._model_agents import Root
    from ._resolve import Cell


def accepts(cls: type) -> str | None:
    """Say why a class cannot be an agent of a scenario, or None."""
    if not issubclass(cls, Agent):
        return f"{cls.__name__} is not an agent, it does not derive from lmos_actors.Agent"
    return "Agent is the base of all agents, not one of them" if cls is Agent else None


@attrs.frozen
class FieldOf:
    """One field of an agent's state. `shape` is None where the type is no plain data, or cannot be read."""

    name: str
    wire: str | None
    required: bool
    hint: Any
    shape: Shape[Any] | None

    @property
    def points_to(self) -> Any:
        """Give the class of agent that a field of type `Ref` points to, None for any other field."""
        if self.hint is not Ref and get_origin(self.hint) is not Ref:
            return None
        cls = (get_args(self.hint) or (Any,))[0]
        return Agent if cls is Any else cls


def fields_of_agent(cls: type[Agent]) -> dict[str, FieldOf]:
    """Give the fields of an agent class by the name its constructor knows."""
    properties = {made.attribute: wire for wire, made in cls.__contract__.properties.items()}
    made: Any = cls
    found: dict[str, FieldOf] = {}
    for field in attrs.fields(made):
        if not field.init:
            continue
        wire = properties.get(field.name)
        hint = None if wire is not None else _hint(cls, field.name)
        shape = cls.__contract__.table[f"={wire}"].params[0].shape if wire is not None else _shape(hint)
        name: str = field.alias
        found[name] = FieldOf(name, wire, field.default is attrs.NOTHING, hint, shape)
    return found


def by_state_name(fields: Mapping[str, FieldOf]) -> dict[str, FieldOf]:
    """Give the fields by the name that `state:` uses: a property's is that its consumers know."""
    return {field.wire or name: field for name, field in fields.items()}


def _hint(cls: type, name: str) -> Any:
    for part in cls.__mro__:
        found = vars(part).get("__annotations__", {}).get(name)
        if isinstance(found, str):
            try:
                return eval(found, vars(sys.modules[part.__module__]), dict(vars(part)))
            except Exception:
                return None
        if found is not None:
            return found
    return None


def _shape(hint: Any) -> Shape[Any] | None:
    try:
        return shape_of(hint) if hint is not None else None
    except TypeError:
        return None


class _Maker(partial[Agent]):
    """Makes one incarnation after the other, none of which shares data with another."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Agent:
        return self.func(**{name: _fresh(*given) for name, given in self.keywords.items()})


def _fresh(field: FieldOf, value: Any) -> Any:
    if field.shape is not None:
        return field.shape.take(value)
    return copy.deepcopy(value) if field.points_to is None and not _has_ref(value) else value


def _has_ref(value: Any) -> bool:
    if isinstance(value, Ref):
        return True
    return any(_has_ref(part) for _, part in inside(value))


def child_spec(
    name: str, entry: AgentEntry | Replay, cls: type[Agent], refs: Mapping[str, Any]
) -> ChildSpec[Any]:
    """Make the child spec of an agent of a file; `refs` are those that `$(agents.NAME)` stands for."""
    fields = fields_of_agent(cls)
    states = by_state_name(fields)
    given = {key: (fields[key], value) for key, value in fill_late(entry.args, "agents", refs).items()}
    given |= {states[key].name: (states[key], value) for key, value in entry.state.items()}
    return spec_of(name, entry, _Maker(cls, **given))


def spec_of(name: str, entry: Supervised, factory: Callable[[], Agent]) -> ChildSpec[Any]:
    """Make the child spec of whatever a file has an agent made of."""
    mailbox = entry.mailbox
    return ChildSpec(
        name,
        factory,
        restart=entry.restart,
        shutdown=entry.shutdown if isinstance(entry.shutdown, str) else float(entry.shutdown),
        significant=entry.significant,
        mailbox=MailboxOptions(mailbox.size, mailbox.when_full) if mailbox else None,
    )


def supervisor_spec(
    above: Root, cell: Cell, refs: Mapping[str, Any], doubles: Mapping[str, type[Agent]]
) -> SupervisorSpec:
    """Make the spec of a supervisor of a file with all that is below it.

    `doubles` are the classes, made for this run, of its mocks and replays.
    """
    own: dict[str, Any] = {}
    if isinstance(above, Supervisor):
        shutdown = above.shutdown if isinstance(above.shutdown, str) else float(above.shutdown)
        own = {"restart": above.restart, "shutdown": shutdown, "significant": above.significant}
    return SupervisorSpec(
        above.name if isinstance(above, Supervisor) else "root",
        tuple(_child(child, cell, refs, doubles) for child in above.children),
        strategy=above.strategy,
        max_restarts=above.max_restarts,
        max_seconds=float(above.max_seconds),
        auto_shutdown=above.auto_shutdown,
        **own,
    )


def _child(
    child: str | Supervisor, cell: Cell, refs: Mapping[str, Any], doubles: Mapping[str, type[Agent]]
) -> Any:
    if isinstance(child, Supervisor):
        return supervisor_spec(child, cell, refs, doubles)
    entry = cell.scenario.agents[child]
    if child in doubles:
        return spec_of(child, entry, doubles[child])
    assert isinstance(entry, (AgentEntry, Replay))
    return child_spec(child, entry, cell.agent_class(child), refs)


def paths(above: Root, prefix: str = "") -> dict[str, str]:
    """Give the path in the tree of every agent below a supervisor, by its name."""
    found: dict[str, str] = {}
    for child in above.children:
        if isinstance(child, Supervisor):
            found |= paths(child, f"{prefix}{child.name}/")
        else:
            found[child] = prefix + child
    return found
