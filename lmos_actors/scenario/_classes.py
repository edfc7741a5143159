"""Child specs and supervisor specs of what a file says."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lmos_actors.actors import Agent, MailboxOptions, Ref
from lmos_actors.files import inside
from lmos_actors.supervision import ChildSpec, SupervisorSpec

from ._cells import fill_late
from ._fields import FieldOf, by_state_name, fields_of_agent
from ._model_agents import AgentEntry, Remote, Replay, Supervised, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._model_agents import Root
    from ._resolve import Cell


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
    if isinstance(value, tuple):  # the refs of a population
        return any(map(_has_ref, cast("Any", value)))
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
        id=entry.id if isinstance(entry, AgentEntry) else None,
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
    assert not isinstance(entry, Remote)  # whom nobody here supervises
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
