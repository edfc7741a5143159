"""The schedules that may be drawn for a cell of a file: kinds of faults, their ranges, targets and times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from msgspec import UNSET

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration, Offset
from lmos_actors.system.model import DIRECTORY, PoolEntry

from ..doubles import is_model
from ..model import (
    INSTANT,
    OF_NETWORK,
    DrawnClockSkew,
    DrawnCrash,
    DrawnDisconnect,
    DrawnFault,
    DrawnLatency,
    DrawnLoss,
    DrawnPartition,
    DrawnProvider,
    DrawnRestart,
    DrawnSlow,
    DrawnSwizzle,
    DurationRange,
    NumberRange,
    OffsetRange,
    Simulation,
    drawn_fault,
)
from ..run.network import NodeNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors._core import RandomStream

    from ..format import Cell
    from ..model import Explore

SECOND: Final = 1_000_000
"""One second in microseconds, the unit of instants and durations in schedules."""

_EVERYWHERE: Final = 0.2
"""The share of link faults that strike all links."""
_SMALLEST_OFFSET: Final = 1_000
"""In a range with zero, an offset is at least the largest divided by this."""
_MOST_SWIZZLED: Final = 45
"""The number of nodes whose links one swizzle may cut."""
_ENDS: Final = 0.5
"""The share of arguments drawn from a range that are one of its ends."""
_SKEWS: Final = OffsetRange(min=Offset(-5.0), max=Offset(5.0))
_STATUSES: Final = (429, 500, "cut", "slow", "malformed")
_RATES: Final = NumberRange(min=0.5, max=2.0)


@attrs.frozen(kw_only=True)
class ScheduledFault:
    """A fault of a schedule: its start, its duration, and its other keys as in a file.

    `permit` is the index of the permit it was drawn from. Times are in microseconds. `duration` is between
    `shortest` and `longest`, or None for a fault without a duration.
    """

    at: int
    permit: int
    data: dict[str, Any]
    duration: int | None = None
    shortest: int = 1
    longest: int = 1 << 60

    def lasting(self, duration: int) -> ScheduledFault:
        """Return the same fault with the given duration, or with the nearest one that is permitted."""
        return attrs.evolve(self, duration=min(max(duration, self.shortest), self.longest))

    def keys(self) -> dict[str, Any]:
        """Return the keys of the fault in a file, without its instant."""
        lasting = {} if self.duration is None else {"duration": text_of_time(self.duration)}
        return {**self.data, **lasting}


Argument: TypeAlias = tuple[str, str, Any]
"""An argument that may be drawn: the id of its step, its name, and its choices."""

DrawnArgument: TypeAlias = tuple[str, str, Any]
"""The id of a step, the name of an argument of it, and its value."""


@attrs.frozen
class Permit:
    """A fault kind that may be drawn, its possible targets (agents or nodes), and all nodes."""

    drawn: DrawnFault
    whom: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Space:
    """The faults that may be drawn for one cell. `start` and `end` are in microseconds."""

    permits: tuple[Permit, ...]
    at_most: int
    start: int
    end: int
    arguments: tuple[Argument, ...] = ()

    def values(self, stream: RandomStream) -> tuple[DrawnArgument, ...]:
        """Draw a value of each argument that may be drawn."""
        return tuple((id, name, _value(choices, stream)) for id, name, choices in self.arguments)

    def fault(self, at: int, stream: RandomStream) -> ScheduledFault:
        """Draw a fault of any permitted kind that begins at the given instant."""
        number = stream.randrange(len(self.permits))
        return self.fault_of(number, at, stream)

    def fault_of(self, number: int, at: int, stream: RandomStream) -> ScheduledFault:
        """Draw a fault of the permit with the given index."""
        permit = self.permits[number]
        if isinstance(permit.drawn, DrawnSwizzle):
            return self._swizzle(number, at, stream)
        data = _drawn_data(permit, stream)
        fault = ScheduledFault(at=at, permit=number, data=data)
        if data["kind"] in ("crash", "restart") or data.get("how") in INSTANT:
            return fault  # it has no duration
        least, most = self._durations_of(permit)
        return attrs.evolve(fault, duration=_between(least, most, stream), shortest=least, longest=most)

    def _swizzle(self, number: int, at: int, stream: RandomStream) -> ScheduledFault:
        """Draw a swizzle: its nodes are few enough for the time to cut and heal all links among them."""
        permit = self.permits[number]
        assert isinstance(permit.drawn, DrawnSwizzle)
        every = _time(permit.drawn.every, stream)
        shortest, longest = self._durations_of(permit)
        duration = _between(shortest, longest, stream)
        most = min(len(permit.whom), _MOST_SWIZZLED)
        while most > 2 and duration < _shortest_swizzle(most, every):
            most -= 1
        count = min(_between(2, most + 1, stream), most)
        chosen = sorted(stream.sample(range(len(permit.whom)), count))
        data = {"kind": "swizzle", "of": [permit.whom[n] for n in chosen], "every": text_of_time(every)}
        shortest = max(shortest, _shortest_swizzle(count, every))
        fault = ScheduledFault(
            at=at, permit=number, data=data, shortest=shortest, longest=max(shortest, longest)
        )
        return fault.lasting(duration)

    def _durations_of(self, permit: Permit) -> tuple[int, int]:
        span: Any = getattr(permit.drawn, "duration", UNSET)
        if span is not UNSET:
            return _ends_of(span)
        length = max(self.end - self.start, SECOND // 1_000)
        shortest = max(length // 1_000, 1)
        return shortest, max(length // 3, shortest)

    def instant(self, stream: RandomStream) -> int:
        """Draw an instant uniformly; if possible, one after the first second is in whole milliseconds."""
        at = stream.randrange(self.start, max(self.end, self.start) + 1)
        return self.kept(round(at, -3) if at >= SECOND else at)

    def kept(self, at: int) -> int:
        """Return the permitted instant nearest to the given one."""
        return min(max(at, self.start), max(self.end - 1, self.start))


def text_of_time(microseconds: int) -> str:
    """Return a time in the form that files use."""
    return str(Duration(microseconds / SECOND))


# --- drawing


def _drawn_data(permit: Permit, stream: RandomStream) -> dict[str, Any]:
    """Draw the keys of a fault except `at` and `duration`."""
    drawn = permit.drawn
    kind = str(drawn.__struct_config__.tag)
    if isinstance(drawn, DrawnRestart):
        writes = {} if drawn.writes is UNSET else {"writes": drawn.writes}
        of = {"of": _one_of(permit.whom, stream)} if permit.whom else {}
        return {"kind": kind, **of, **writes, "down": text_of_time(_time(drawn.down, stream))}
    if isinstance(drawn, DrawnPartition):
        return _partition(permit, drawn, stream)
    if kind in OF_NETWORK:
        return {"kind": kind, **_ends(permit, stream), **_of_links(drawn, stream)}
    data: dict[str, Any] = {"kind": kind, "target": _one_of(permit.whom, stream)}
    if isinstance(drawn, DrawnClockSkew):
        data |= _wrong_clock(drawn, stream)
    if isinstance(drawn, DrawnProvider):
        ways = _STATUSES if drawn.status is UNSET else (drawn.status,)
        data["status"] = ways[stream.randrange(len(ways))]
        data |= {"delay": text_of_time(_time(drawn.delay, stream))} if data["status"] == "slow" else {}
    if isinstance(drawn, DrawnSlow):
        data["factor"] = _number(drawn.factor, stream)
    if isinstance(drawn, DrawnCrash):
        data |= {} if drawn.with_ == "RuntimeError" else {"with": drawn.with_}
        after = {} if drawn.after is UNSET else {"after": text_of_time(_time(drawn.after, stream))}
        state = _one_of(("lost", "kept"), stream) if drawn.state == "any" else drawn.state
        comeback = after if state is UNSET else {**after, "state": state}
        data |= {"restart": comeback} if comeback else {}
    return data


def _partition(permit: Permit, drawn: DrawnPartition, stream: RandomStream) -> dict[str, Any]:
    """Draw a partition: the nodes cut off from the others are at most half of the permitted ones."""
    others = len(permit.nodes) - len(permit.whom)
    most = len(permit.whom) if others else len(permit.whom) - 1
    count = 1 + stream.randrange(max(min(most, (len(permit.whom) + 1) // 2), 1))
    chosen = sorted(stream.sample(range(len(permit.whom)), count))
    data: dict[str, Any] = {"kind": "partition", "sides": [[permit.whom[n] for n in chosen], "rest"]}
    if drawn.one_way and stream.random() < 0.5:
        data["one_way"] = True
    return data


def _ends(permit: Permit, stream: RandomStream) -> dict[str, Any]:
    if stream.random() < _EVERYWHERE:
        return {}
    first = _one_of(permit.whom, stream)
    others = [node for node in permit.nodes if node != first]
    return {"between": [first, _one_of(others, stream)]}


def _of_links(drawn: DrawnFault, stream: RandomStream) -> dict[str, Any]:
    if isinstance(drawn, DrawnLatency):
        return {"delay": text_of_time(_time(drawn.delay, stream))}
    if isinstance(drawn, DrawnLoss):
        return {"share": _number(drawn.share, stream)}
    assert isinstance(drawn, DrawnDisconnect)
    how = drawn.how if drawn.how is not UNSET else _one_of(("reset", "half_open", "hang"), stream)
    return {"how": how}


def _wrong_clock(drawn: DrawnClockSkew, stream: RandomStream) -> dict[str, Any]:
    """Draw a clock's skew and rate, each if its range is given; without any range, draw one of the two."""
    skew, rate = drawn.skew, drawn.rate
    if skew is UNSET and rate is UNSET:
        if stream.random() < 0.5:
            skew = _SKEWS
        else:
            rate = _RATES
    data: dict[str, Any] = {}
    if skew is not UNSET:
        data["skew"] = str(_offset(skew, stream))
    if rate is not UNSET:
        data["rate"] = _number(rate, stream)
        if data["rate"] == 1 and isinstance(rate, NumberRange):  # rounding has made the clock right
            data["rate"] = rate.max if rate.max != 1 else rate.min
    return data


def _offset(given: Offset | OffsetRange, stream: RandomStream) -> Offset:
    if not isinstance(given, OffsetRange):
        return given
    least, most = round(given.min * SECOND), round(given.max * SECOND)
    if least < 0 < most:
        ahead = stream.random() < 0.5
        least, most = (0, most) if ahead else (least, 0)
    sign = -1 if least < 0 else 1
    near, far = sorted((abs(least), abs(most)))
    return Offset(sign * _between(max(near, far // _SMALLEST_OFFSET, 1), far, stream) / SECOND)


def _shortest_swizzle(nodes: int, every: int) -> int:
    """Return a time in microseconds that suffices to cut, and then heal, all links among the nodes."""
    return (nodes * (nodes - 1) - 2) * every + 1


def _one_of(names: Sequence[str], stream: RandomStream) -> str:
    return names[stream.randrange(len(names))]


def _time(span: Duration | DurationRange, stream: RandomStream) -> int:
    return _between(*_ends_of(span), stream)


def _ends_of(span: Duration | DurationRange) -> tuple[int, int]:
    """Return the shortest and the longest time of a range, in microseconds."""
    least, most = (span.min, span.max) if isinstance(span, DurationRange) else (span, span)
    return round(least * SECOND), round(most * SECOND)


def _between(least: int, most: int, stream: RandomStream) -> int:
    """Draw a time log-uniformly; it has two significant digits if the range allows that."""
    if least == most:
        return least
    drawn = math.exp(math.log(least) + (math.log(most) - math.log(least)) * stream.random())
    return min(max(int(float(f"{drawn:.2g}")), least), most)


def _number(given: float | NumberRange, stream: RandomStream) -> float:
    if not isinstance(given, NumberRange):
        return given
    drawn = math.exp(math.log(given.min) + (math.log(given.max) - math.log(given.min)) * stream.random())
    return min(max(float(f"{drawn:.2g}"), given.min), given.max)


def _value(choices: NumberRange | Sequence[Any], stream: RandomStream) -> Any:
    """Draw a value of an argument.

    Half of the draws from a range give one of its ends, where mistakes often are.
    """
    if not isinstance(choices, NumberRange):
        return choices[stream.randrange(len(choices))]
    least, most = choices.ends
    if stream.random() < _ENDS:
        return (least, most)[stream.randrange(2)]
    if isinstance(least, int) and isinstance(most, int):
        return least + stream.randrange(most - least + 1)
    return least + (most - least) * stream.random()


# --- the space of a cell


def space_of(cell: Cell, length: float) -> Space:
    """Return the space of schedules for a cell whose run takes `length` seconds without drawn faults.

    Raises ConfigError for a file that permits nothing, or for a fault without possible targets.
    """
    explore = cell.scenario.explore
    if explore is None:
        raise ConfigError('says nothing of what may be drawn: "explore: {faults: [crash]}", for example')
    end = cell.scenario.stop.at if isinstance(cell.scenario, Simulation) else length
    end = min(end, explore.to) if explore.to is not UNSET else end
    start = round(explore.from_ * SECOND)
    return Space(
        permits=tuple(_permits(cell, explore)),
        at_most=explore.at_most,
        start=start,
        end=max(round(end * SECOND), start + 1),
        arguments=tuple(
            (id, name, choices) for id, names in explore.arguments.items() for name, choices in names.items()
        ),
    )


def _permits(cell: Cell, explore: Explore) -> Iterator[Permit]:
    names = _Names(cell)
    for drawn in map(drawn_fault, explore.faults):
        kind = str(drawn.__struct_config__.tag)
        if isinstance(drawn, DrawnRestart):
            whom = () if drawn.of is UNSET else (drawn.of,) if isinstance(drawn.of, str) else drawn.of
            yield Permit(drawn, tuple(names.nodes_of(whom)))
            continue
        of = drawn.of if drawn.of is not UNSET else explore.of
        given = None if of is UNSET else (of,) if isinstance(of, str) else of
        if kind in OF_NETWORK:
            nodes = tuple(names.nodes.all())
            if len(nodes) < 2:
                raise ConfigError(f'"kind: {kind}" needs two nodes, the file has {len(nodes)}')
            whom = nodes if given is None else tuple(names.nodes_of(given))
            yield Permit(drawn, whom, nodes)
        else:
            whom = tuple(names.agents_of(given, slow=kind == "slow"))
            if kind == "provider":
                whom = tuple(name for name in whom if names.is_model(name))
                if not whom:
                    raise ConfigError('"kind: provider" is of language models, and there is none')
            yield Permit(drawn, whom)


class _Names:
    """The agents and nodes to which the names in a file refer."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        scenario = cell.scenario
        populations = scenario.population if isinstance(scenario, Simulation) else ()
        self._counts = {each.id: each.count for each in populations}
        self._timed = {DIRECTORY: False} | {each.id: bool(each.service_time) for each in populations}
        for name, entry in scenario.agents.items():
            self._timed[name] = bool(getattr(entry, "service_time", 0.0))
        self.nodes = NodeNames(cell)

    def agents_of(self, given: tuple[str, ...] | None, *, slow: bool) -> Iterator[str]:
        """Yield each agent to which the names refer, once; without names, yield all agents.

        If `slow` is true, only agents with a service time count.
        """
        names = (*self._cell.system.paths, *self._counts) if given is None else given
        chosen = [name for name in names if not slow or self._timed.get(name.partition("/")[0], True)]
        yield from dict.fromkeys(agent for name in chosen for agent in self._single(name))

    def is_model(self, name: str) -> bool:
        """Return whether an agent is a language model."""
        while name and name not in self._cell.system.classes:
            name = name.rpartition("/")[0]
        cls = self._cell.system.classes.get(name)
        return cls is not None and is_model(cls)

    def _single(self, name: str) -> Iterator[str]:
        if name in self._counts:
            yield from (f"{name}/{number}" for number in range(self._counts[name]))
        elif isinstance(self._cell.scenario.agents.get(name), PoolEntry) or name in self._cell.system.pools:
            label = name.rpartition("/")[2]
            yield from (f"{name}/{label}-{number}" for number in range(1, self._cell.system.pools[name] + 1))
        else:
            yield name

    def nodes_of(self, given: tuple[str, ...]) -> list[str]:
        """Return the nodes to which the names refer, without duplicates."""
        return list(dict.fromkeys(node for name in given for node in self.nodes.named(name)))
