"""The weight of a file: a measure of how much there is to understand. Shrinking only ever lowers it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.files import Offset, is_list, is_mapping, listed, mapped
from lmos_actors.reports import count

from ._plain import each_entry, faults_of, is_fault
from ._space import SECOND

if TYPE_CHECKING:
    from ._plain import Data

_TIMES_OF_FAULTS: Final = ("duration", "down", "delay", "every", "skew")

Weight: TypeAlias = tuple[int, ...]


def weight_of(data: Data) -> Weight:
    """Return the weight of a file.

    Weights are compared from the left: faults, agents, steps and entries, edges, network rules, other parts,
    the length of the run, the lengths of faults, how early they come, and the number of characters. All are
    integers that are never negative, so that no file can become lighter forever.
    """
    faults = faults_of(data)
    end = microseconds(mapped(data.get("stop")).get("at"))
    keys = [mapped(entry.get("fault")) or entry for entry in faults]
    waits = [microseconds(entry.get("for")) for _, entry in each_entry(data) if entry.get("do") == "wait"]
    return (
        len(faults),
        _agents(data),
        _messages(data.get("timeline")) + _messages(data.get("steps")),
        _edges(data),
        _leaves({key: data.get(key) for key in ("network", "nodes")}),
        _leaves(data),
        end + sum(waits),
        sum(abs(microseconds(fault.get(key))) for fault in keys for key in _TIMES_OF_FAULTS),
        sum(max(end - microseconds(entry.get("at")), 0) for entry in faults),
        len(json.dumps(data)),
    )


def microseconds(text: Any) -> int:
    """Return a duration or an offset of a file in microseconds; 0 for anything else."""
    try:
        return round(Offset.parse(text) * SECOND) if isinstance(text, str) else 0
    except ValueError:
        return 0


def _agents(data: Data) -> int:
    agents = mapped(data.get("agents")).values()
    pools = sum(_count(mapped(entry).get("size")) for entry in agents)
    return (
        len(agents)
        + pools
        + sum(_count(mapped(each).get("count")) for each in listed(data.get("population")))
    )


def _messages(entries: Any) -> int:
    """Return the number of steps or entries other than faults, counting blocks and all their rounds."""
    total = 0
    for entry in listed(entries):
        block = mapped(entry)
        rounds = _count(block.get("times", 1))
        inner = [block.get("steps"), *listed(block.get("branches"))]
        total += (not is_fault(entry)) + rounds * sum(map(_messages, inner))
    return total


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _edges(data: Data) -> int:
    """Return the number of edges of the topology; for some kinds, an estimate."""
    topology = mapped(data.get("topology"))
    counts = {
        mapped(each).get("id"): _count(mapped(each).get("count")) for each in listed(data.get("population"))
    }
    size, kind = counts.get(topology.get("of"), 0), topology.get("kind")
    if kind == "edges":
        return len(listed(topology.get("edges")))
    if kind in ("line", "star"):
        return max(size - 1, 0)
    if kind == "ring":
        return size
    degree = _count(topology.get("degree"))
    return size * degree // 2 + size if degree else size * (size - 1) // 2 + (size if kind else 0)


def _leaves(data: Any) -> int:
    """Return the number of values in plain data, where each collection counts as one more."""
    if is_mapping(data):
        return 1 + sum(map(_leaves, data.values()))
    if is_list(data):
        return 1 + sum(map(_leaves, data))
    return data is not None


def size_text(data: Data) -> str:
    """Return the numbers of agents and faults of a file, and its seed, as text."""
    agents, faults = count(weight_of(data)[1], "agent"), count(len(faults_of(data)), "fault")
    return f"{agents}, {faults}, seed {data['seeds'][0]}"
