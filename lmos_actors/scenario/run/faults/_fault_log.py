"""The form of faults in the log of a run, and among the cuts of its network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import UNSET

from lmos_actors.system.model import NETWORK

from ...model import ClockSkew, Crash, Disconnect, OnLinks, Provider, Restart, Slow, SlowDisk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model import AnyFault

MOST_NAMED: Final = 10
"""Maximum number of nodes per side that records of link faults name; the others are only counted."""


class LoggedFault(Protocol):
    """A fault of links, with the data that the log needs."""

    kind: str
    key: str
    targets: tuple[str, ...]
    sides: tuple[tuple[str, ...], ...]
    one_way: bool


def ends_of_cut(targets: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the ends of a cut as its sides; an empty tuple if the whole network is cut."""
    return () if targets == (NETWORK,) else tuple((target,) for target in targets)


def named_in_log(injected: LoggedFault) -> dict[str, object]:
    """Return the targets of a link fault for the log: the nodes of its sides, or the ends of the links."""
    if injected.kind in ("partition", "swizzle"):
        one_way: dict[str, object] = {"one_way": True} if injected.one_way else {}
        return {"sides": [_few(side) for side in injected.sides], **one_way}
    if not injected.key or injected.targets == (NETWORK,):
        return {}
    return {"between": list(injected.targets)}


def _few(names: Sequence[str]) -> list[str]:
    if len(names) <= MOST_NAMED:
        return list(names)
    return [*names[:MOST_NAMED], f"… {len(names) - MOST_NAMED:,} more"]


def log_fields(fault: AnyFault) -> dict[str, object]:
    """Return the fields of a fault for the log, without its kind."""
    if isinstance(fault, Crash):
        return {"with": fault.with_}
    if isinstance(fault, Restart):
        writes = {} if fault.writes is UNSET else {"writes": fault.writes}
        return {**writes, "down": float(fault.down)}
    if isinstance(fault, Disconnect) and fault.how == "half_open":
        return {"how": fault.how}
    if isinstance(fault, OnLinks):
        return {} if fault.duration is UNSET else {"duration": float(fault.duration)}
    duration = {"duration": float(fault.duration)}
    if isinstance(fault, Provider):
        return {"status": fault.status, **duration}
    if isinstance(fault, ClockSkew):
        return {"skew": float(fault.skew), "rate": float(fault.rate), **duration}
    return {"factor": fault.factor, **duration} if isinstance(fault, Slow | SlowDisk) else {**duration}
