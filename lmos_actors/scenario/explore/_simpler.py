"""Ways to make a file simpler. Each yields candidates: files that may fail in the same way.

A candidate need not be valid: a file that the format refuses does not fail in the same way. Checks are left
out or kept unchanged, and arguments of agents are never changed, as the failure would be another one.
`weight_of` decides which of two files is simpler.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.files import is_list, is_mapping, listed, mapped

from ._plain import (
    DRAWN_ID,
    at_path,
    each_entry,
    each_part,
    is_drawn,
    is_fault,
    places_of_faults,
    without,
    without_drawn,
)
from ._space import text_of_time
from ._weight import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.files import DataPath

    from ._plain import Data

_FEW: Final = 2
_BESIDE: Final = (0, 1_000, -1_000)
"""Microseconds between an instant and a fault that is moved beside it."""
_SEEDS: Final = range(1, 6)
_UNITS: Final = (1_000_000, 100_000, 10_000, 1_000)
_FIXED: Final = frozenset({"lmos", "name", "seeds", "agents", "population", "steps", "timeline", "stop"})
"""Keys of a file that every candidate keeps; their contents are left out one by one."""
_OF_FAULTS: Final = ("at", "do", "duration", "fault", "id", "kind", "sides", "status", "target", "wait")
"""Keys of faults that are kept: a fault without a duration would last to the end, and be another fault."""
_OF_TIMES: Final = ("duration", "down", "delay", "after", "every", "skew")
"""Keys of faults that are times; shorter times are simpler."""
_OF_AGENT: Final = "{}/([0-9]+)"


def fewer_faults(data: Data) -> Iterator[Data]:
    """Yield files with fewer faults: without the drawn faults, with only one fault, or without one fault."""
    places = [path for path, _ in places_of_faults(data)]
    yield without_drawn(data)
    if len(places) > 2:
        for path in places:
            yield without(data, [other for other in places if other != path])
    for path in reversed(places):
        yield without(data, [path])


def fewer_agents(data: Data) -> Iterator[Data]:
    """Yield files with a smaller population or pool, or without a population or an agent."""
    for index, entry in enumerate(listed(data.get("population"))):
        name, count = mapped(entry).get("id"), mapped(entry).get("count")
        if not isinstance(name, str) or not isinstance(count, int):
            continue
        for fewer in sorted({1, 2, 3, 4, count // 4, count // 2, count - 1}):
            if 0 < fewer < count:
                yield from _population(data, index, name, fewer)
        if len(listed(data.get("population"))) > 1:
            yield without(data, [("population", index)])
    for name, entry in mapped(data.get("agents")).items():
        yield without(data, [("agents", name)])
        size = mapped(entry).get("size")
        for fewer in (1, 2) if isinstance(size, int) else ():
            yield _with(data, ("agents", name, "size"), fewer)


def _population(data: Data, index: int, name: str, fewer: int) -> Iterator[Data]:
    """Yield files with a smaller population; agents named in the file get numbers that still exist."""
    used = sorted({number for _, number in _mentions(data, name)})
    maps: list[Callable[[int], int]] = [lambda number: number % fewer]
    if len(used) <= fewer:
        maps.insert(0, lambda number: used.index(number))
    if not used or used[-1] < fewer:
        maps = [lambda number: number]
    for renumber in maps:
        found = _renamed(data, name, renumber)
        found["population"][index]["count"] = fewer
        _fit_to_count(found, name, fewer)
        yield found
        for seed in _SEEDS:
            if [seed] != data.get("seeds"):
                yield {**found, "seeds": [seed]}


def fewer_of_population(data: Data) -> Iterator[Data]:
    """Yield files with only a few agents in a population, with the same seed."""
    for index, entry in enumerate(listed(data.get("population"))):
        name, count = mapped(entry).get("id"), mapped(entry).get("count")
        if isinstance(name, str) and isinstance(count, int):
            for fewer in range(1, min(_FEW, count - 1) + 1):
                yield next(_population(data, index, name, fewer))


def moved_faults(data: Data, at: int) -> Iterator[Data]:
    """Yield files with one drawn fault moved to an instant, or to just beside it.

    The other drawn faults move by the same amount.
    """
    drawn = [(path, entry) for path, entry in each_entry(data) if is_drawn(entry)]
    times = {(*path, "at"): microseconds(entry.get("at")) for path, entry in drawn}
    end = microseconds(mapped(data.get("stop")).get("at"))
    for one in dict.fromkeys(times.values()):
        for by in (at + beside - one for beside in _BESIDE):
            if by and min(times.values()) + by >= 0 and max(times.values()) + by < end:
                yield _with_times(data, {path: time + by for path, time in times.items()})


def _with_times(data: Data, times: dict[DataPath, int]) -> Data:
    found = deepcopy(data)
    for path, time in times.items():
        at_path(found, path[:-1])[path[-1]] = text_of_time(time)
    return found


def _mentions(data: Data, name: str) -> Iterator[tuple[DataPath, int]]:
    """Yield the paths of the texts that name single agents of a population, with the agents' numbers."""
    pattern = re.compile(_OF_AGENT.format(re.escape(name)))
    for path, part in each_part(data):
        found = pattern.fullmatch(part) if isinstance(part, str) else None
        if found is not None:
            yield path, int(found[1])


def _renamed(data: Data, name: str, renumber: Callable[[int], int]) -> Data:
    """Return a file whose names of single agents are renumbered; no list names an agent twice."""
    found = deepcopy(data)
    lists: dict[DataPath, None] = {}
    for path, number in list(_mentions(data, name)):
        outer = at_path(found, path[:-1])
        outer[path[-1]] = f"{name}/{renumber(number)}"
        if is_list(outer):
            lists[path[:-1]] = None
    for path in lists:
        names: Any = at_path(found, path)
        names[:] = list(dict.fromkeys(names)) if all(isinstance(each, str) for each in names) else names
    return found


def _fit_to_count(data: Data, name: str, count: int) -> None:
    """Restrict edges and picks to agents that exist."""
    topology = mapped(data.get("topology"))
    if topology.get("of") == name and is_list(topology.get("edges")):
        topology["edges"] = [edge for edge in topology["edges"] if all(end < count for end in listed(edge))]
    for _, part in each_part(data):
        if is_mapping(part) and part.get("of") == name and isinstance(part.get("count"), int):
            part["count"] = min(part["count"], count)


def fewer_messages(data: Data) -> Iterator[Data]:
    """Yield files with fewer steps or entries: without a block, half of a sequence, or a single step.

    Some files have fewer rounds of a block, or the branches of a block one after the other.
    """
    places = [path for path, entry in each_entry(data) if not is_fault(entry)]
    rows: dict[DataPath, list[DataPath]] = {}
    for path in places:
        rows.setdefault(path[:-1], []).append(path)
    for row in rows.values():
        if len(row) > 3:
            yield without(data, row[len(row) // 2 :])
            yield without(data, row[: len(row) // 2])
    for path in reversed(places):
        yield without(data, [path])
        block = mapped(at_path(data, path))
        times = block.get("times")
        if isinstance(times, int) and times > 1:
            for fewer in sorted({1, 2, times // 2}):
                yield without(_with(data, (*path, "times"), fewer), [])
        branches = listed(block.get("branches"))
        for order in (branches, branches[::-1]) if branches else ():
            yield _in_place_of(data, path, [step for branch in order for step in listed(branch)])


def _in_place_of(data: Data, path: DataPath, steps: list[Any]) -> Data:
    """Return a file in which several steps replace one."""
    found = deepcopy(data)
    row: Any = at_path(found, path[:-1])
    row[path[-1] : int(path[-1]) + 1] = deepcopy(steps)
    return found


def simpler_topology(data: Data) -> Iterator[Data]:
    """Yield files with fewer edges: with another kind of topology, or without one of the written edges."""
    topology = mapped(data.get("topology"))
    if not topology:
        return
    of = {key: topology[key] for key in ("of", "field") if key in topology}
    for kind in ("line", "ring"):
        if topology.get("kind") not in ("edges", kind):
            yield {**data, "topology": {"kind": kind, **of}}
    for index in reversed(range(len(listed(topology.get("edges"))))):
        yield without(data, [("topology", "edges", index)])


def simpler_network(data: Data) -> Iterator[Data]:
    """Yield files without the network, without all of its nodes or rules, or without one of them."""
    network = mapped(data.get("network"))
    yield without(data, [(key,) for key in ("network", "nodes") if key in data])
    for key in ("nodes",) if "nodes" in data else ():
        yield without(data, [(key,)])
    if network:
        yield {**data, "network": {}}
    for path, _ in list(each_part(network, ("network",))):
        is_key = path != ("network",) and not isinstance(path[-1], int)
        if is_key or path[:-1] == ("network", "links"):
            yield without(data, [path])
    for node, members in mapped(data.get("nodes")).items():
        yield without(data, [("nodes", node)])
        for index in range(len(listed(members))):
            yield without(data, [("nodes", node, index)])


def fewer_parts(data: Data) -> Iterator[Data]:
    """Yield files without a check, a series, or another part that is optional."""
    for key in [key for key in data if key not in _FIXED and key not in ("network", "nodes")]:
        yield without(data, [(key,)])
    checks = listed(data.get("checks"))
    for index in range(len(checks) if len(checks) > 1 else 0):
        yield {**data, "checks": [checks[index]]}
    for index in reversed(range(len(checks))):
        yield without(data, [("checks", index)])
    for name in mapped(mapped(data.get("measure")).get("series")):
        yield without(data, [("measure", "series", name)])
    if "when" in mapped(data.get("stop")):
        yield without(data, [("stop", "when")])
    for path, entry in places_of_faults(data):
        for inner, _ in list(each_part(entry)):
            of_fault = inner[1:] if inner[:1] == ("fault",) else inner
            if of_fault and of_fault[0] not in _OF_FAULTS:
                yield without(data, [(*path, *inner)])


def gentler_faults(data: Data) -> Iterator[Data]:
    """Yield files whose faults are shorter or later, have fewer targets, or rounder numbers."""
    for path, entry in places_of_faults(data):
        fault = (*path, "fault") if "fault" in entry else path
        for inner, part in list(each_part(at_path(data, fault))):
            if inner and inner[-1] in _OF_TIMES:
                sign = "-" if str(part).startswith("-") else ""
                for shorter in _shorter(abs(microseconds(part))):
                    yield _with(data, (*fault, *inner), sign + text_of_time(shorter))
            if len(inner) == 3 and inner[0] == "sides" and len(at_path(data, (*fault, *inner[:2]))) > 1:
                yield without(data, [(*fault, *inner)])
        if "at" in entry:
            yield from _later(data, path, microseconds(entry["at"]))


def _shorter(time: int) -> Iterator[int]:
    for part in (8, 2):
        if time // part >= _UNITS[-1]:
            yield _round(time // part)
    yield from _rounder(time)


def _rounder(time: int) -> Iterator[int]:
    """Yield the round numbers nearest to a time."""
    for unit in _UNITS:
        for near in (time // unit * unit, (time // unit + 1) * unit):
            if near and near != time:
                yield near


def _round(time: int) -> int:
    return int(float(f"{time:.2g}"))


def _later(data: Data, path: DataPath, at: int) -> Iterator[Data]:
    end = microseconds(mapped(data.get("stop")).get("at"))
    for later in ((at + end) // 2, (3 * at + end) // 4):
        if at < later < end:
            yield _with(data, (*path, "at"), text_of_time(_round(later)))
    for near in _rounder(at):
        if near < end or not end:
            yield _with(data, (*path, "at"), text_of_time(near))


def shorter_runs(data: Data) -> Iterator[Data]:
    """Yield files whose run ends earlier, and files with shorter waits.

    When the end moves, the faults keep their instants or come earlier by the same amount.
    """
    end = microseconds(mapped(data.get("stop")).get("at"))
    for shorter in map(_round, (end // 8, end // 4, end // 2, end * 3 // 4, end * 9 // 10)):
        if shorter:
            found = _with(data, ("stop", "at"), text_of_time(shorter))
            yield found
            yield from _earlier(found, end - shorter)
    for near in _rounder(end) if end else ():
        yield _with(data, ("stop", "at"), text_of_time(near))
    for path, entry in each_entry(data):
        if entry.get("do") == "wait" and "for" in entry:
            for shorter in _shorter(microseconds(entry["for"])):
                yield _with(data, (*path, "for"), text_of_time(shorter))


def _earlier(data: Data, by: int) -> Iterator[Data]:
    """Yield a file whose faults begin earlier by `by`, unless a fault would begin before the start."""
    times = {(*path, "at"): microseconds(entry.get("at")) - by for path, entry in places_of_faults(data)}
    if times and min(times.values()) >= 0:
        yield _with_times(data, times)


def simpler_seed(data: Data) -> Iterator[Data]:
    """Yield files with the first few seeds, as many failures do not need a particular seed."""
    for seed in _SEEDS:
        yield {**data, "seeds": [seed]}


def _with(data: Data, path: DataPath, value: Any) -> Data:
    found = deepcopy(data)
    at_path(found, path[:-1])[path[-1]] = value
    return found


def tidied(data: Data) -> Data:
    """Return a file whose drawn faults have no ids, and whose timeline is sorted by time.

    A file with nothing to run or judge would fail even with correct agents. It gets a check, so that it
    passes once the agents are correct.
    """
    places = [path for path, entry in each_entry(data) if str(entry.get("id", "")).startswith(DRAWN_ID)]
    found = without(data, [(*path, "id") for path in places])
    if "timeline" in found:
        found["timeline"] = sorted(found["timeline"], key=lambda entry: microseconds(entry["at"]))
    if not any(found.get(key) for key in ("steps", "timeline", "measure", "checks")):
        found["checks"] = [{"check": "always", "of": "*", "expr": "restarts == 0"}]
    return found


WAYS: Final[Sequence[Callable[[Data], Iterator[Data]]]] = (
    fewer_faults,
    fewer_parts,
    fewer_agents,
    fewer_messages,
    simpler_topology,
    simpler_network,
    shorter_runs,
    gentler_faults,
    simpler_seed,
)
"""All ways; those that make the others quick come first."""
