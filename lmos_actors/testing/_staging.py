"""The setup of a test node: replacements of agents, probes, planned faults, and problems found at its end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from lmos_actors.actors import Agent, slot_of
from lmos_actors.errors import ConfigError

from ._probe import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Operation, Ref

    from ._faults import FaultPlan

Replacement: TypeAlias = "Callable[..., Agent] | Probe[Any]"
"""A class made by `fake`, a subclass of the original, or a probe."""


class NodeStaging:
    """The runtime's `Staging` of one test node."""

    def __init__(self, replace: Mapping[type[Agent], Replacement] | None, faults: FaultPlan) -> None:
        self.faults = faults
        self.agents: Callable[[], list[Ref[Any]]] = list
        """Function that returns the agents of the node, once it is open."""
        self._replace: dict[type[Agent], type[Agent]] = {}
        self._probes: dict[Any, Probe[Any]] = {}
        self._unused: dict[type[Agent], None] = {}
        self._complaints: list[str] = []
        for original, other in (replace or {}).items():
            if isinstance(other, Probe):
                self.add(other)  # pyright: ignore[reportUnknownArgumentType]
            made: Any = other.factory if isinstance(other, Probe) else other
            _check_replacement(original, made)
            self._replace[original] = made
            self._unused[original] = None

    def add(self, probe: Probe[Any]) -> None:
        """Register a probe: it is attached to its agent's slot, and its problems are collected at the end."""
        self._probes[probe.factory] = probe

    # ---- the runtime's side

    def make(self, slot: Any) -> Any:
        """Return a new agent object for a slot: of the original class or its replacement."""
        cls, factory = self._chosen(slot.factory)
        if cls is not None:
            self.faults.starting(slot, cls)
        agent = factory()
        if cls is None:  # the class is known only after the factory has run
            self.faults.starting(slot, _class_of(agent))
            agent = self._replaced(agent)
        probe = self._probes.get(_class_of(agent))
        if probe is not None:
            probe.attach(slot)
        return agent

    def table(self, slot: Any, agent: Any) -> dict[str, Operation]:
        """Return the operations of a slot, with the faults planned for it."""
        return self.faults.table(slot, _class_of(agent), agent.__contract__.table)

    def complain(self, text: str) -> None:
        """Record a reason for the test to fail."""
        self._complaints.append(text)

    def _chosen(self, factory: Any) -> tuple[type[Agent] | None, Callable[[], Any]]:
        """Return the class that a factory makes (None if unknown), and the factory to use in its place."""
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        inner = factory
        while isinstance(inner, partial):
            args, kwargs = (*inner.args, *args), {**inner.keywords, **kwargs}  # pyright: ignore[reportUnknownMemberType]
            inner = inner.func  # pyright: ignore[reportUnknownMemberType]
        if not (isinstance(inner, type) and issubclass(inner, Agent)):
            return None, factory
        other = self._replace.get(inner)
        if other is None:
            return inner, factory
        self._unused.pop(inner, None)
        return other, partial(other, *args, **kwargs)

    def _replaced(self, agent: Any) -> Any:
        other = self._replace.get(_class_of(agent))
        if other is None:
            return agent
        self._unused.pop(_class_of(agent), None)
        return other()

    def reapply_faults(self) -> None:
        """Rebuild the operations of running agents after a change of the fault plan."""
        for ref in self.agents():
            slot = slot_of(ref)
            if slot.agent is not None:
                slot.table = self.table(slot, slot.agent)

    def describe(self) -> str:
        """Return the messages that wait for the test, as text for the report of a deadlock."""
        return "\n".join(
            f"{probe!r} waits for the test: {m}" for probe in self._probes.values() for m in probe.open
        )

    # ---- at the end

    @property
    def complaints(self) -> tuple[str, ...]:
        """The recorded reasons for the test to fail."""
        return tuple(self._complaints)

    def problems(self) -> list[str]:
        """Return the reasons for the test to fail even if no exception has been raised."""
        unused = [f"replace: no {cls.__name__} was started" for cls in self._unused]
        left = [text for probe in self._probes.values() for text in probe.problems()]
        return [*self._complaints, *left, *self.faults.problems(), *unused]


def _check_replacement(original: Any, other: Any) -> None:
    """Raise ConfigError for a class that cannot take the place of the original."""
    classes = isinstance(original, type) and isinstance(other, type)
    if not (classes and issubclass(original, Agent) and issubclass(other, original)):
        name = getattr(original, "__name__", repr(original))
        wrong = getattr(other, "__name__", repr(other))
        raise ConfigError(
            f"{wrong} is no subclass, fake or probe of it: give a subclass, "
            f"fake({name}, ...) or Probe({name})",
            f"replace[{name}]",
        )
    if _has_lifespan(other) and not _has_lifespan(original):
        raise ConfigError("the replacement has a lifespan, the original has none", original.__name__)


def _has_lifespan(cls: Any) -> bool:
    return bool(cls.__contract__.has_lifespan)


def _class_of(agent: object) -> Any:
    return type(agent)
