"""The search of `explore`: it draws the seeds and faults of the next runs from the results of earlier ones.

A search is drawn in batches. The first has one run of each cell without any drawn fault. Each later batch has
`BATCH` runs, and depends on nothing but the batches before it. Each run has a stream of random numbers named
after its number. So the same seed finds the same failures, whatever runs in parallel, and a search that is
cut short is the beginning of the whole one. To resume it, pass it the results of its earlier batches.

Four rules make it find more than random drawing does. A fault is put where something happens: between two
instants at which the state of an agent changes it does not matter when a fault begins or ends, so most faults
are in force at such an instant, or begin or end just before or after it. Half of the time, a further fault of
a run is put where another one is in force: apart, each has only its own effect. Runs that reached rare states
become the parents of others, which keep the seed and the faults of the parent, with one or two changes. The
rest of a batch is drawn at random, so that a search that finds nothing new continues as a random one. With
`guided=False` the search only draws at random; tests compare the two.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors._core import RandomStream

from ._space import SECOND, ScheduledFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._space import DrawnArgument, Space

BATCH: Final = 64
"""The number of runs in one batch."""

MOST_PARENTS: Final = 512
"""Maximum number of parents; if there are more, those with the most common states are forgotten."""

MOST_VALUES: Final = 40
"""Maximum number of distinct values of a field; a field with more is a counter and says nothing."""

_NEW: Final = 0.3
"""The share of a guided batch that is drawn at random."""
_ALIGNED: Final = 0.75
"""The share of faults that are put at an instant where something happens in a run."""
_EXACT: Final = 0.3
"""The share of these faults that are exactly at that instant, neither just before nor just after."""
_ENDS_ALIGNED: Final = 0.3
"""The share of faults that end at such an instant."""
_TOGETHER: Final = 0.5
"""The share of further faults that are put at a time when another one is in force."""
_COVERS: Final = 0.4
"""The share of faults that began before such an instant and are in force at it."""
_ENDS: Final = 0.1
"""The share of faults that end at such an instant; the others begin at it."""
_KEEPS_SEED: Final = 0.8
_KEEPS_ARGUMENTS: Final = 0.5
_SMALLEST_NUDGE: Final = 100
_ENDLESS: Final = 16
"""After this number of children, a parent is as likely as a new parent half as good."""


@attrs.frozen(kw_only=True)
class Schedule:
    """One run of a search: the number of its cell, its seed, its faults in order, and its arguments."""

    cell: int
    seed: int
    faults: tuple[ScheduledFault, ...] = ()
    arguments: tuple[DrawnArgument, ...] = ()


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a run of a schedule.

    `states` has the digests of the states reached, each with a digest of the state's field in all but the
    lower 16 bits. `instants` has the times at which a state was first reached, in microseconds. `failure` is
    the name of the run's failure, None if it passed. `void` is true if a fault found no target, which is not
    a failure of the agents.
    """

    states: tuple[int, ...] = ()
    instants: tuple[int, ...] = ()
    failure: str | None = None
    void: bool = False


@attrs.define(eq=False)
class _Parent:
    schedule: Schedule
    states: tuple[int, ...]
    instants: tuple[int, ...]
    children: int = 0


class Search:
    """A search of a file's cells, with their `spaces`. `seed` is for the search, `seeds` for the runs."""

    def __init__(
        self, spaces: Sequence[Space], seeds: Sequence[int], seed: int, *, guided: bool = True
    ) -> None:
        self._spaces = spaces
        self._seeds = seeds
        self._seed = seed
        self._guided = guided
        self._batches = 0
        self._batch: list[Schedule] = []
        self._hits: Counter[int] = Counter()
        self._values: Counter[int] = Counter()
        self._parents: list[_Parent] = []
        self._baselines: dict[int, tuple[int, ...]] = {}
        self._runs = 0

    @property
    def states(self) -> int:
        """The number of different states reached so far; it never decreases.

        Of a field that proves to be a counter by having more than `MOST_VALUES` values, only `MOST_VALUES`
        count.
        """
        return self.states_with(())

    def states_with(self, outcomes: Sequence[Outcome]) -> int:
        """Return `states` with some outcomes of the present batch added; the search itself is unchanged."""
        reached = (state for outcome in outcomes if not outcome.void for state in outcome.states)
        new = dict.fromkeys(state for state in reached if state not in self._hits)
        values = self._values + Counter(state >> 16 for state in new)
        return sum(min(number, MOST_VALUES) for number in values.values())

    @property
    def runs(self) -> int:
        """The number of runs whose outcomes are known."""
        return self._runs

    def batch(self) -> tuple[Schedule, ...]:
        """Return the runs of the present batch; they stay the same until `take` gets their outcomes."""
        if not self._batch:
            self._batch = self._first() if not self._batches else self._next()
        return tuple(self._batch)

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from the outcomes of all runs of the batch, given in the order of the batch."""
        batch = self.batch()
        assert len(outcomes) == len(batch)
        for schedule, outcome in zip(batch, outcomes, strict=True):
            self._take(schedule, outcome)
        if len(self._parents) > MOST_PARENTS:
            self._parents.sort(key=self._energy, reverse=True)
            del self._parents[MOST_PARENTS:]
        self._runs += len(batch)
        self._batches += 1
        self._batch = []

    def _take(self, schedule: Schedule, outcome: Outcome) -> None:
        if not self._batches:
            self._baselines[schedule.cell] = outcome.instants
        if outcome.void:
            return
        new = any(state not in self._hits and self._says_something(state) for state in outcome.states)
        for state in outcome.states:
            if state not in self._hits:
                self._values[state >> 16] += 1
        self._hits.update(outcome.states)
        if new and outcome.failure is None:
            self._parents.append(_Parent(schedule, outcome.states, outcome.instants))

    # ---- drawing

    def _first(self) -> list[Schedule]:
        return [Schedule(cell=cell, seed=self._seeds[0]) for cell in range(len(self._spaces))]

    def _next(self) -> list[Schedule]:
        energies = [self._energy(parent) for parent in self._parents]
        found: list[Schedule] = []
        for index in range(BATCH):
            stream = _stream(f"{self._seed}/{self._batches}/{index}")
            if not self._guided or not energies or stream.random() < _NEW:
                found.append(self._anew(stream))
            else:
                parent = self._parents[_weighted(energies, stream)]
                parent.children += 1
                found.append(self._changed(parent, stream))
        return found

    def _energy(self, parent: _Parent) -> float:
        """Return how promising a parent is: more so with rarer states, and less so with more children."""
        rarest = sorted(self._hits[state] for state in parent.states if self._says_something(state))[:4]
        rarity = sum(1.0 / hits for hits in rarest)
        return rarity * rarity / (1.0 + parent.children / _ENDLESS)

    def _says_something(self, state: int) -> bool:
        return self._values[state >> 16] <= MOST_VALUES

    def _anew(self, stream: RandomStream) -> Schedule:
        cell = stream.randrange(len(self._spaces))
        space = self._spaces[cell]
        count = 1 + stream.randrange(space.at_most) if space.permits else 0
        instants = self._baselines.get(cell, ()) if self._guided else ()
        faults: list[ScheduledFault] = []
        for _ in range(count):
            fault = space.fault(space.instant(stream), stream)
            faults.append(_placed(fault, space, instants, faults, stream) if self._guided else fault)
        seed, arguments = self._any_seed(stream), space.values(stream)
        return Schedule(cell=cell, seed=seed, faults=_in_order(faults), arguments=arguments)

    def _any_seed(self, stream: RandomStream) -> int:
        if stream.random() < 0.5:
            return self._seeds[stream.randrange(len(self._seeds))]
        return 1 + stream.randrange(1_000_000)

    def _changed(self, parent: _Parent, stream: RandomStream) -> Schedule:
        before = parent.schedule
        space = self._spaces[before.cell]
        faults = list(before.faults)
        for _ in range(1 + stream.randrange(2) if space.permits else 0):
            _change(faults, space, parent.instants, stream)
        seed = before.seed if stream.random() < _KEEPS_SEED else self._any_seed(stream)
        is_kept = not space.arguments or (before.arguments and stream.random() < _KEEPS_ARGUMENTS)
        arguments = before.arguments if is_kept else space.values(stream)
        return Schedule(cell=before.cell, seed=seed, faults=_in_order(faults), arguments=arguments)


def _change(
    faults: list[ScheduledFault], space: Space, instants: Sequence[int], stream: RandomStream
) -> None:
    """Change one fault of a schedule in a random way, add a fault, or remove one."""
    ways: list[Callable[[], None]] = []
    at = stream.randrange(len(faults)) if faults else 0
    if len(faults) < space.at_most:
        ways += [lambda: faults.append(_new(faults, space, instants, stream))] * 3
    if faults:
        ways += [
            lambda: faults.__setitem__(at, _placed(faults[at], space, instants, (), stream)),
            lambda: faults.__setitem__(at, _moved(faults[at], space, _nudge(stream))),
            lambda: faults.__setitem__(at, space.fault(faults[at].at, stream)),
            lambda: faults.__setitem__(at, space.fault_of(faults[at].permit, faults[at].at, stream)),
        ]
    if faults and faults[at].duration is not None:
        ways += [lambda: faults.__setitem__(at, _longer_or_shorter(faults[at], instants, stream))] * 2
    if len(faults) > 1:
        ways.append(lambda: faults.__delitem__(at))
    ways[stream.randrange(len(ways))]()


def _new(
    others: Sequence[ScheduledFault], space: Space, instants: Sequence[int], stream: RandomStream
) -> ScheduledFault:
    """Draw a further fault for a schedule."""
    return _placed(space.fault(space.instant(stream), stream), space, instants, others, stream)


def _placed(
    fault: ScheduledFault,
    space: Space,
    instants: Sequence[int],
    others: Sequence[ScheduledFault],
    stream: RandomStream,
) -> ScheduledFault:
    """Move a fault, in most cases, to an instant of the run or to the time of another fault.

    The fault is then in force at that instant, or begins or ends there, just before, or just after.
    """
    usable = [at for at in instants if space.start <= at < space.end]
    if others and stream.random() < _TOGETHER:
        other = others[stream.randrange(len(others))]
        span = other.duration or 0
        # its begin, its end, or an instant between them
        target = other.at + (0, span, stream.randrange(span + 1))[stream.randrange(3)]
    elif usable and stream.random() < _ALIGNED:
        target = usable[stream.randrange(len(usable))]
    else:
        return fault
    lasts = fault.duration or 0
    way = stream.random()
    if lasts and way < _COVERS:
        return _moved(fault, space, target - stream.randrange(lasts) - fault.at)
    end = lasts if way < _COVERS + _ENDS else 0
    nudge = 0 if stream.random() < _EXACT else _nudge(stream)
    return _moved(fault, space, target - end + nudge - fault.at)


def _moved(fault: ScheduledFault, space: Space, by: int) -> ScheduledFault:
    return attrs.evolve(fault, at=space.kept(fault.at + by))


def _longer_or_shorter(
    fault: ScheduledFault, instants: Sequence[int], stream: RandomStream
) -> ScheduledFault:
    """Return a fault that lasts a quarter to four times as long, or that ends near an instant of a run."""
    assert fault.duration is not None
    later = [at for at in instants if at > fault.at]
    if later and stream.random() < _ENDS_ALIGNED:
        return fault.lasting(later[stream.randrange(len(later))] + _nudge(stream) - fault.at)
    return fault.lasting(int(fault.duration * (0.25, 0.5, 2.0, 4.0)[stream.randrange(4)]))


def _nudge(stream: RandomStream) -> int:
    """Draw a time difference in microseconds, of either sign, from 0.1 ms to 1 s, log-uniformly."""
    size = round(_SMALLEST_NUDGE * math.pow(SECOND / _SMALLEST_NUDGE, stream.random()))
    return size if stream.random() < 0.5 else -size


def _in_order(faults: Sequence[ScheduledFault]) -> tuple[ScheduledFault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _weighted(weights: Sequence[float], stream: RandomStream) -> int:
    """Draw the index of one of the weights, with a probability in proportion to the weight."""
    left = stream.random() * sum(weights)
    for number, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return number
    return len(weights) - 1


def _stream(name: str) -> RandomStream:
    return RandomStream(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"))
