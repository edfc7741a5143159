"""Counts and descriptions of steps and timeline entries, for progress and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET

from lmos_actors.files import Duration
from lmos_actors.system.model import USER

from ..model import (
    OF_NETWORK,
    OF_NODE,
    AnyFault,
    Asking,
    Cancel,
    ClockSkew,
    Crash,
    Deciding,
    DecidingAt,
    Disconnect,
    Expect,
    FaultAt,
    FullDisk,
    Heal,
    HealAt,
    Inject,
    LateLinks,
    LossyLinks,
    Parallel,
    Partition,
    Pause,
    Pick,
    Provider,
    Query,
    Repeat,
    Restart,
    Saying,
    Simulation,
    Slow,
    SlowDisk,
    Start,
    Stop,
    Swizzle,
    Timed,
    TimedAsking,
    Wait,
    kind_of_fault,
    targets_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.files import DataPath

    from ..model import Scenario

Steps: TypeAlias = "Sequence[Any]"


def count_steps(steps: Steps) -> int:
    """Return the number of steps of a story, including every round of a block and every branch."""
    total = 0
    for step in steps:
        if isinstance(step, Repeat):
            total += step.times * count_steps(step.steps)
        elif isinstance(step, Parallel):
            total += sum(count_steps(branch) for branch in step.branches)
        else:
            total += 1
    return total


def each_step(steps: Steps, path: DataPath = ("steps",)) -> Iterator[tuple[DataPath, Any]]:
    """Yield every step that is not a block with its path in the file; a repeated step is yielded once."""
    for index, step in enumerate(steps):
        here = (*path, index)
        if isinstance(step, Repeat):
            yield from each_step(step.steps, (*here, "steps"))
        elif isinstance(step, Parallel):
            for number, branch in enumerate(step.branches):
                yield from each_step(branch, (*here, "branches", number))
        else:
            yield here, step


def describe(step: Any) -> str:
    """Return a step or timeline entry as text: `invoke concierge.getWeather`."""
    words = [type(step).__name__.removesuffix("At").lower(), *_words(step)]
    return " ".join(words) + (f" ({step.id})" if getattr(step, "id", None) else "")


def _words(step: Any) -> list[str]:
    if isinstance(step, (Asking, TimedAsking)):
        name = getattr(step, "action", None) or getattr(step, "property", None) or getattr(step, "event", "")
        sender = getattr(step, "as_", USER)
        return [f"{step.target}.{name}"] + ([f"as {sender}"] if sender != USER else [])
    if isinstance(step, (Stop, Start)):
        return [step.target]
    if isinstance(step, (Deciding, DecidingAt)):
        return [f"what {step.target} asks", *([f'under "{step.key}"'] if step.key is not None else [])]
    if isinstance(step, (Query, Cancel, Heal, HealAt)):
        return [step.of]
    if isinstance(step, (Inject, FaultAt)):
        return [_fault(step.fault if isinstance(step, Inject) else step)]
    if isinstance(step, Wait):
        until = step.until
        return [f"until {until.agent} is {until.is_}" if until is not None else f"for {step.for_}"]
    if isinstance(step, Saying):
        return [step.type or "something", "to", *targets_of(step)]
    if isinstance(step, Expect) and step.of is UNSET and step.event is None:
        return [step.that]
    if isinstance(step, Expect):
        return [f"{step.that} of {step.target}.{step.event}" if step.event else f"{step.that} {step.of}"]
    return []


def faults_in(scenario: Scenario | Simulation) -> list[Any]:
    """Return the faults of the steps or the timeline of a file."""
    if isinstance(scenario, Simulation):
        return [entry for entry in scenario.timeline if isinstance(entry, FaultAt)]
    return [step.fault for _, step in each_step(scenario.steps) if isinstance(step, Inject)]


def fault_of(entry: FaultAt) -> AnyFault:
    """Return the fault of a timeline entry in the form of a fault in a step."""
    if entry.kind in OF_NETWORK:
        return _network_fault_of(entry)
    if entry.kind == "crash":
        return Crash(
            target=entry.target,
            pick=entry.pick,
            with_="RuntimeError" if entry.with_ is UNSET else entry.with_,
            restart=None if entry.restart is UNSET else entry.restart,
        )
    if entry.kind == "restart":
        down = Duration(1.0) if entry.down is UNSET else entry.down
        return Restart(of=entry.of, pick=entry.pick, writes=entry.writes, down=down)
    assert entry.duration is not UNSET
    if entry.kind == "full_disk":
        return FullDisk(duration=entry.duration)
    if entry.kind == "pause":
        return Pause(target=entry.target, pick=entry.pick, duration=entry.duration)
    if entry.kind == "clock_skew":
        given: dict[str, Any] = {} if entry.skew is UNSET else {"skew": entry.skew}
        given |= {} if entry.rate is UNSET else {"rate": entry.rate}
        return ClockSkew(target=entry.target, pick=entry.pick, duration=entry.duration, **given)
    if entry.kind == "provider":
        assert entry.status is not UNSET
        return Provider(
            target=entry.target,
            pick=entry.pick,
            status=entry.status,
            delay=entry.delay,
            duration=entry.duration,
        )
    assert entry.factor is not UNSET
    if entry.kind == "slow_disk":
        return SlowDisk(factor=entry.factor, duration=entry.duration)
    return Slow(target=entry.target, pick=entry.pick, factor=entry.factor, duration=entry.duration)


def _network_fault_of(entry: FaultAt) -> AnyFault:
    given: dict[str, Any] = {} if entry.duration is UNSET else {"duration": entry.duration}
    if entry.kind == "partition":
        assert entry.sides is not UNSET
        return Partition(sides=entry.sides, one_way=entry.one_way is True, **given)
    if entry.kind == "swizzle":
        assert entry.of is not UNSET
        assert entry.every is not UNSET
        return Swizzle(of=entry.of, every=entry.every, **given)
    given |= {} if entry.between is UNSET else {"between": entry.between}
    if entry.kind == "latency":
        assert entry.delay is not UNSET
        return LateLinks(delay=entry.delay, **given)
    if entry.kind == "loss":
        assert entry.share is not UNSET
        return LossyLinks(share=entry.share, **given)
    return Disconnect(how="reset" if entry.how is UNSET else entry.how, **given)


def _fault(fault: Any) -> str:
    """Return a fault as text: `crash weather with RuntimeError`, `slow 20 of peer`."""
    kind = kind_of_fault(fault)
    if kind in OF_NETWORK:
        return _network_fault(fault, kind)
    pick, whom = getattr(fault, "pick", None), getattr(fault, "target", None)
    if pick is not None:
        whom = f"{pick.count} of {pick.of}" if pick.count is not UNSET else f"{pick.share:g} of {pick.of}"
    of = getattr(fault, "of", UNSET)
    if of is not UNSET:
        whom = of if isinstance(of, str) else ", ".join(of)
    words = [kind.replace("_", " "), "of the node" if kind in OF_NODE and whom is None else str(whom)]
    writes, down = getattr(fault, "writes", UNSET), getattr(fault, "down", UNSET)
    words += [f"with writes {writes}"] if writes is not UNSET else []
    words += [f"for {down}"] if down is not UNSET else []
    error = getattr(fault, "with_", UNSET)
    words += [f"with {error}"] if error is not UNSET and kind == "crash" else []
    factor = getattr(fault, "factor", UNSET)
    words += [f"by {factor:g}"] if factor is not UNSET else []
    skew, rate = getattr(fault, "skew", UNSET), getattr(fault, "rate", UNSET)
    words += [f"by {skew}"] if skew is not UNSET and skew else []
    words += [f"at rate {rate:g}"] if rate is not UNSET and rate != 1 else []
    duration = getattr(fault, "duration", UNSET)
    status = getattr(fault, "status", UNSET)
    words += [f"with status {status}"] if status is not UNSET else []
    words += [f"for {duration}"] if duration is not UNSET else []
    return " ".join(words)


def _network_fault(fault: Any, kind: str) -> str:
    """Return a fault of the network as text: `partition a, b from c`, `loss of 0.1 between a and b`."""
    if kind == "partition":
        words = [kind, " from ".join(map(_side, fault.sides))]
        words += ["one way"] if fault.one_way is True else []
    elif kind == "swizzle":
        whom = fault.of if isinstance(fault.of, str) else ", ".join(fault.of)
        words = [kind, whom, f"every {fault.every}"]
    else:
        words = [kind]
        words += [f"of {fault.share:g}"] if kind == "loss" else []
        words += ["between", " and ".join(fault.between)] if fault.between is not UNSET else []
    words += [f"for {fault.duration}"] if fault.duration is not UNSET else []
    return " ".join(words)


def _side(side: Any) -> str:
    if isinstance(side, str):
        return "the rest"
    if isinstance(side, Pick):
        return f"{side.count} of {side.of}" if side.count is not UNSET else f"{side.share:g} of {side.of}"
    return ", ".join(side)


def at_of(entry: Timed) -> float:
    """Return the instant of an entry, which is the sort key of a timeline."""
    return float(entry.at)
