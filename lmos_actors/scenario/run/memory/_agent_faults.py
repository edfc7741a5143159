"""Faults of agents: crashes, pauses, slowdowns, wrong clocks, and failures of the providers of models.

A pause and a slowdown end after their duration. A crash lasts until its agent runs again, or until it is
certain that it never will.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from lmos_actors.actors import (
    ExitReason,
    end_skew,
    hold,
    keep_state,
    release,
    service_time,
    set_service_time,
    skew_clock,
    slot_of,
)
from lmos_actors.errors import NotFound
from lmos_actors.supervision import supervisor_of
from lmos_actors.system.values import draw, exception_class

from ...model import ClockSkew, Crash, Pause, Provider, Slow, kind_of_fault
from ..faults import FaultFailed, log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from lmos_actors.actors import Ref, Slot

    from ...model import AnyFault, ProcessFault
    from ..faults import Faults, StruckFault
    from ._provider_faults import ProviderFaults

INJECTED: Final = "__lmos_injected__"
"""The attribute that marks exceptions made by faults."""


class RefLookup(Protocol):
    """The lookup of agents by their names in the file."""

    def __call__(self, name: str, /) -> Sequence[Ref[Any]]:
        """Return the ref of an agent, or the refs of all agents of a population, in order."""
        ...


class AgentFaults:
    """The faults of agents and of model providers. `record` must get every record of the run."""

    def __init__(self, faults: Faults, find: RefLookup) -> None:
        self._faults = faults
        self._find = find
        self._down: dict[str, list[StruckFault]] = {}  # by the paths of the crashed agents
        self._ends: dict[str, trio.Event] = {}
        self._paces: dict[Slot, tuple[float, list[float]]] = {}
        self._providers: ProviderFaults | None = None
        faults.before_look = self._end_unrecoverable

    # ---- striking

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """See `FaultWorld`."""
        if not isinstance(fault, Crash | Slow | Pause | ClockSkew | Provider):
            return False
        slots = self._strike(fault, id)
        if wait and isinstance(fault, Crash):
            for slot in slots:
                if slot.path in self._ends:
                    await self._ends[slot.path].wait()
            for supervisor in dict.fromkeys(map(supervisor_of, slots)):
                await supervisor.settled()
        return True

    def _strike(self, fault: Crash | Slow | Pause | ClockSkew | Provider, id: str) -> tuple[Slot, ...]:
        """Inject a fault now and return the affected slots. Raises FaultFailed before any change."""
        refs = self._choose(fault, id)
        for ref in refs:
            if isinstance(fault, Crash) and fault.restart is not None:
                if slot_of(ref).spec.restart == "temporary":
                    raise FaultFailed(f"{ref.path} to come back", "it is temporary and not restarted")
            elif isinstance(fault, Slow) and not service_time(ref):
                raise FaultFailed(f"{ref.path} with a service time to slow", "it has none")
        slots = tuple(slot_of(ref) for ref in refs)
        kind = kind_of_fault(fault)
        struck = self._faults.begin(id, kind, {slot.path: slot for slot in slots})
        for slot in slots:
            self._faults.log(struck, slot.path, {"targets": len(slots), **log_fields(fault)})
        if isinstance(fault, Crash):
            self._crash(fault, struck, refs, slots)
        elif isinstance(fault, Provider):
            self._fail_providers(fault, struck, slots)
        else:
            self._impair(fault, struck, refs, slots)
        return slots

    def _choose(self, fault: Crash | Slow | Pause | ClockSkew | Provider, id: str) -> list[Ref[Any]]:
        pick = fault.pick
        if pick is None:
            assert fault.target is not None
            refs = list(self._find(fault.target))
            for ref in refs:
                if _state(ref) != "running":
                    raise FaultFailed(f"a running {fault.target}", f"{ref.path} is {_state(ref)}")
            return refs
        refs = list(self._find(pick.of))
        count = pick.number_of(len(refs))
        running = [number for number, ref in enumerate(refs) if _state(ref) == "running"]
        if count > len(running):
            raise FaultFailed(f"{count} running agents of {pick.of}", f"{len(running)} of {len(refs)}")
        return [refs[number] for number in sorted(self._faults.stream(f"fault {id}").sample(running, count))]

    # ---- crashes

    def _crash(self, fault: Crash, struck: StruckFault, refs: list[Ref[Any]], slots: Sequence[Slot]) -> None:
        made = exception_class(fault.with_)
        assert made is not None
        for ref, slot in zip(refs, slots, strict=True):
            path = slot.path
            self._down.setdefault(path, []).append(struck)
            self._ends[path] = trio.Event()
            if fault.restart is not None:
                seconds = draw(fault.restart.after, self._faults.stream(f"fault {struck.id} {path}"))
                supervisor_of(slot).postpone_restart(slot.label, seconds)
                if fault.restart.state == "kept":
                    keep_state(ref)
            error = made("injected by the scenario")
            setattr(error, INJECTED, True)
            slot.die(ExitReason("error", error=error))

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Update the crashes from a record of the run: a crashed agent may have ended or started again."""
        if kind == "started":
            if self._providers is not None:
                self._providers.started(agent)
            for struck in self._down.pop(agent, ()):
                self._faults.heal(struck, [agent] if agent in struck.left else [])
        elif kind in ("crashed", "stopped"):
            ended = self._ends.pop(agent, None)
            if ended is not None:
                ended.set()

    def _end_unrecoverable(self) -> None:
        """End the crashes of those agents that will never run again."""
        for path, several in tuple(self._down.items()):
            for struck in tuple(several):
                slot = struck.left.get(path)
                if slot is not None and slot.gone:
                    several.remove(struck)
                    self._faults.heal(struck, [path])
            if not several:
                del self._down[path]

    # ---- providers of models

    @property
    def providers(self) -> ProviderFaults:
        """The faults of model providers; made on first use, because few files have such faults."""
        if self._providers is None:
            from ._provider_faults import ProviderFaults

            self._providers = ProviderFaults(self._find, self._faults.stream)
        return self._providers

    def _fail_providers(self, fault: Provider, struck: StruckFault, slots: Sequence[Slot]) -> None:
        """Let model providers fail until the fault ends, even if the node is killed before that."""
        from ._provider_faults import ProviderFault

        until = trio.current_time() + fault.duration
        failing, providers = ProviderFault(fault, until), self.providers
        for path in struck.targets:
            providers.begin(path, failing)
        struck.ends = {path: partial(providers.end, path, failing) for path in struck.targets}
        clock: Any = trio.lowlevel.current_clock()
        call_at = getattr(clock, "call_at", slots[0].rt.timers.call_at)
        call_at(until, partial(self._undo, struck, struck.targets))

    # ---- pauses, slowings and wrong clocks

    def _impair(
        self,
        fault: Slow | Pause | ClockSkew,
        struck: StruckFault,
        refs: list[Ref[Any]],
        slots: Sequence[Slot],
    ) -> None:
        ends: list[Callable[[], object]]
        if isinstance(fault, Pause):
            ends = [partial(release, ref) for ref in refs]
            for ref in refs:
                hold(ref)
        elif isinstance(fault, ClockSkew):
            skew, rate = float(fault.skew), float(fault.rate)
            ends = [partial(end_skew, ref, skew_clock(ref, skew, rate)) for ref in refs]
        else:
            ends = [partial(self._undo_slow, fault.factor, ref) for ref in refs]
            for ref in refs:
                self._paces.setdefault(slot_of(ref), (service_time(ref), []))[1].append(fault.factor)
                self._change_pace(ref)
        struck.ends = dict(zip(struck.targets, ends, strict=True))

        def heal() -> None:
            if struck.end is None:  # else the node has been killed, which has ended the fault
                self._undo(struck, tuple(struck.left))

        slots[0].rt.timers.call_at(trio.current_time() + fault.duration, heal)

    def _undo(self, struck: StruckFault, paths: Sequence[str]) -> None:
        for path in paths:
            struck.ends[path]()
        self._faults.heal(struck, paths)

    def _undo_slow(self, factor: float, ref: Ref[Any]) -> None:
        self._paces[slot_of(ref)][1].remove(factor)
        self._change_pace(ref)

    def _change_pace(self, ref: Ref[Any]) -> None:
        """Set the agent's service time to its normal value, multiplied by the factors of all faults."""
        slot = slot_of(ref)
        own, factors = self._paces[slot]
        if factors:
            set_service_time(ref, round(own * math.prod(sorted(factors)), 6))
        else:
            set_service_time(ref, own)
            del self._paces[slot]

    def agents_end(self, paths: Container[str]) -> None:
        """End the faults in force on agents that are killed with their node of the network."""
        for struck in self._faults.present():
            ended = [path for path in struck.left if path in paths and struck.left[path] is not None]
            if struck.kind in ("slow", "pause", "clock_skew"):
                self._undo(struck, ended)
            else:
                struck.left |= dict.fromkeys(ended)  # crashed agents will run again
        for path in tuple(self._ends):
            if path in paths:
                self._ends.pop(path).set()

    def node_ends(self) -> None:
        """End the faults in force on agents of a killed node; crashed agents will run again."""
        for struck in self._faults.present():
            if struck.kind in ("slow", "pause", "clock_skew"):
                self._faults.heal(struck, struck.targets)
            for path in struck.left:
                struck.left[path] = None
        self._paces.clear()
        for ended in self._ends.values():
            ended.set()
        self._ends.clear()


def _state(ref: Ref[Any]) -> str:
    """Return the state of an agent; if it is down, the state recorded by its supervisor."""
    try:
        slot = slot_of(ref)
    except NotFound:
        return "gone"
    state = slot.state_name
    if state != "down" or slot.status == "running":  # its supervisor does not know of its end yet
        return state
    return slot.status
