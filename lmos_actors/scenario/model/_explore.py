"""Structs of what `explore` may draw: kinds of faults, their ranges, how many, on whom, and when."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Offset
from lmos_actors.system.model import Closed, Name

from ._faults import How, ProviderStatus


class DurationRange(Closed, frozen=True, kw_only=True):
    """Durations between two, of which short ones are drawn as often as long ones of the same ratio."""

    min: Duration
    max: Duration


class NumberRange(Closed, frozen=True, kw_only=True):
    """Numbers between two, drawn as durations are."""

    min: float
    max: float

    @property
    def ends(self) -> tuple[float, float]:
        """The ends as they are drawn: integers where both are whole."""
        whole = float(self.min).is_integer() and float(self.max).is_integer()
        return (int(self.min), int(self.max)) if whole else (self.min, self.max)


class OffsetRange(Closed, frozen=True, kw_only=True):
    """Offsets between two; where one is below zero and the other above, half of those drawn are below it."""

    min: Offset
    max: Offset


Span: TypeAlias = Duration | DurationRange
"""A duration, or a range to draw one of."""

Numbers: TypeAlias = float | NumberRange
"""A number, or a range to draw one of."""

Offsets: TypeAlias = Offset | OffsetRange
"""An offset, or a range to draw one of."""

Whom: TypeAlias = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""Agents, populations, pools or nodes."""

DrawnKind: TypeAlias = Literal[
    "crash", "pause", "slow", "clock_skew", "provider", "restart", "partition", "latency", "loss",
    "disconnect", "swizzle",
]  # fmt: skip
"""The kinds of faults that `explore` draws."""


class DrawnFault(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """A kind of fault that may be drawn. `of` is on whom, that of `explore` unless given."""

    of: Whom | UnsetType = UNSET


class DrawnCrash(DrawnFault, frozen=True, kw_only=True, tag="crash"):
    """An agent crashes. `after` is when it comes back; without, its supervisor decides.

    `state` is whether it comes back with its state; `any`: some crashes keep it, others lose it.
    """

    with_: Name = field(name="with", default="RuntimeError")
    after: Span | UnsetType = UNSET
    state: Literal["lost", "kept", "any"] | UnsetType = UNSET


class DrawnPause(DrawnFault, frozen=True, kw_only=True, tag="pause"):
    """An agent takes no messages for a time."""

    duration: Span | UnsetType = UNSET


class DrawnSlow(DrawnFault, frozen=True, kw_only=True, tag="slow"):
    """An agent takes more time for its messages."""

    factor: Numbers = NumberRange(min=2.0, max=20.0)
    duration: Span | UnsetType = UNSET


class DrawnClockSkew(DrawnFault, frozen=True, kw_only=True, tag="clock_skew"):
    """The clock of an agent is wrong: by a skew, or in its rate, or in those that are given."""

    skew: Offsets | UnsetType = UNSET
    rate: Numbers | UnsetType = UNSET
    duration: Span | UnsetType = UNSET


class DrawnProvider(DrawnFault, frozen=True, kw_only=True, tag="provider"):
    """The provider of a model fails; `status`: in each of the ways, unless given. `delay` is of `slow`."""

    status: ProviderStatus | UnsetType = UNSET
    delay: Span = DurationRange(min=Duration(0.1), max=Duration(30.0))
    duration: Span | UnsetType = UNSET


class DrawnRestart(DrawnFault, frozen=True, kw_only=True, tag="restart"):
    """The node is killed and started again; with an `of` of its own, one of those nodes of the network."""

    writes: Literal["kept", "lost", "torn"] | UnsetType = UNSET
    down: Span = DurationRange(min=Duration(0.1), max=Duration(5.0))


class DrawnPartition(DrawnFault, frozen=True, kw_only=True, tag="partition"):
    """Some nodes are cut off from the rest; `one_way`: some of the partitions are in one direction only."""

    duration: Span | UnsetType = UNSET
    one_way: bool = False


class DrawnLatency(DrawnFault, frozen=True, kw_only=True, tag="latency"):
    """Messages between two nodes take longer."""

    delay: Span = DurationRange(min=Duration(0.01), max=Duration(2.0))
    duration: Span | UnsetType = UNSET


class DrawnLoss(DrawnFault, frozen=True, kw_only=True, tag="loss"):
    """A share of the messages between two nodes is lost."""

    share: Numbers = NumberRange(min=0.1, max=0.9)
    duration: Span | UnsetType = UNSET


class DrawnDisconnect(DrawnFault, frozen=True, kw_only=True, tag="disconnect"):
    """The connections between two nodes end; `how`: each of them, unless given. `duration` is of `hang`."""

    how: How | UnsetType = UNSET
    duration: Span | UnsetType = UNSET


class DrawnSwizzle(DrawnFault, frozen=True, kw_only=True, tag="swizzle"):
    """The links among some nodes are cut one by one, and healed in another order."""

    every: Span = DurationRange(min=Duration(0.01), max=Duration(1.0))
    duration: Span | UnsetType = UNSET


AnyDrawn: TypeAlias = (
    DrawnKind
    | DrawnCrash
    | DrawnPause
    | DrawnSlow
    | DrawnClockSkew
    | DrawnProvider
    | DrawnRestart
    | DrawnPartition
    | DrawnLatency
    | DrawnLoss
    | DrawnDisconnect
    | DrawnSwizzle
)

DRAWN: dict[str, type[DrawnFault]] = {
    "crash": DrawnCrash,
    "pause": DrawnPause,
    "slow": DrawnSlow,
    "clock_skew": DrawnClockSkew,
    "provider": DrawnProvider,
    "restart": DrawnRestart,
    "partition": DrawnPartition,
    "latency": DrawnLatency,
    "loss": DrawnLoss,
    "disconnect": DrawnDisconnect,
    "swizzle": DrawnSwizzle,
}
"""The struct of each kind."""

Choices: TypeAlias = NumberRange | Annotated[tuple[Any, ...], Meta(min_length=1)]
"""Values of an argument: each as likely as another; of a range whole numbers, if its ends are."""

MOST_DRAWN = 20
"""Faults of one schedule at most."""


class Explore(Closed, frozen=True, kw_only=True):
    """The faults that `explore` may draw: at most so many faults of these kinds, between two instants.

    `arguments` are those that it may draw, by the `id` of a step or an entry and their names.
    """

    faults: tuple[AnyDrawn, ...] = ()
    arguments: dict[Name, dict[Name, Choices]] = field(default_factory=dict[str, dict[str, Choices]])
    at_most: Annotated[int, Meta(ge=1, le=MOST_DRAWN)] = 3
    of: Whom | UnsetType = UNSET
    from_: Duration = field(name="from", default=Duration(0.0))
    to: Duration | UnsetType = UNSET


def drawn_fault(drawn: AnyDrawn) -> DrawnFault:
    """Return what may be drawn of an entry, which may be the name of a kind alone."""
    return DRAWN[drawn]() if isinstance(drawn, str) else drawn
