"""Structs of what `explore` may draw: kinds of faults with their ranges, number, targets and times."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Offset
from lmos_actors.system.model import Closed, Name

from ._faults import How, ProviderStatus


class DurationRange(Closed, frozen=True, kw_only=True):
    """A range of durations. Draws are log-uniform: each ratio is equally likely, whether short or long."""

    min: Duration
    max: Duration


class NumberRange(Closed, frozen=True, kw_only=True):
    """A range of numbers, drawn as durations are."""

    min: float
    max: float

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the range as draws use them: integers if both are whole."""
        whole = float(self.min).is_integer() and float(self.max).is_integer()
        return (int(self.min), int(self.max)) if whole else (self.min, self.max)


class OffsetRange(Closed, frozen=True, kw_only=True):
    """A range of offsets. If its ends have different signs, half of the draws are below zero."""

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
"""The kinds of faults that `explore` can draw."""


class DrawnFault(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """A fault kind that a search may pick. `of` names the targets; default: `explore.of`."""

    of: Whom | UnsetType = UNSET


class DrawnCrash(DrawnFault, frozen=True, kw_only=True, tag="crash"):
    """An agent crashes. `after` is the time until its restart; by default its supervisor decides.

    `state`: whether the state survives; `any`: some crashes keep it, others lose it.
    """

    with_: Name = field(name="with", default="RuntimeError")
    after: Span | UnsetType = UNSET
    state: Literal["lost", "kept", "any"] | UnsetType = UNSET


class DrawnPause(DrawnFault, frozen=True, kw_only=True, tag="pause"):
    """An agent takes no messages for a time."""

    duration: Span | UnsetType = UNSET


class DrawnSlow(DrawnFault, frozen=True, kw_only=True, tag="slow"):
    """An agent takes longer to handle its messages."""

    factor: Numbers = NumberRange(min=2.0, max=20.0)
    duration: Span | UnsetType = UNSET


class DrawnClockSkew(DrawnFault, frozen=True, kw_only=True, tag="clock_skew"):
    """The clock of an agent is wrong: in `skew`, `rate` or both, as given; by default in one of them."""

    skew: Offsets | UnsetType = UNSET
    rate: Numbers | UnsetType = UNSET
    duration: Span | UnsetType = UNSET


class DrawnProvider(DrawnFault, frozen=True, kw_only=True, tag="provider"):
    """A model provider failure. `status` picks the failure (default: any); `delay` applies to `slow` only."""

    status: ProviderStatus | UnsetType = UNSET
    delay: Span = DurationRange(min=Duration(0.1), max=Duration(30.0))
    duration: Span | UnsetType = UNSET


class DrawnRestart(DrawnFault, frozen=True, kw_only=True, tag="restart"):
    """The node is killed and started again; with an `of` of its own, one of the network nodes named there."""

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
    """The connections between two nodes end. `how`: default any; `duration` applies to `hang` only."""

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
"""Values of an argument, all equally likely. A range with whole ends gives whole numbers."""


class Explore(Closed, frozen=True, kw_only=True):
    """The faults that `explore` may draw: up to `at_most` faults of these kinds, between `from` and `to`.

    `arguments` has the arguments to draw: the `id` of a step or entry, the argument's name, its choices.
    """

    faults: tuple[AnyDrawn, ...] = ()
    arguments: dict[Name, dict[Name, Choices]] = field(default_factory=dict[str, dict[str, Choices]])
    at_most: Annotated[int, Meta(ge=1, le=20)] = 3
    of: Whom | UnsetType = UNSET
    from_: Duration = field(name="from", default=Duration(0.0))
    to: Duration | UnsetType = UNSET


def drawn_fault(drawn: AnyDrawn) -> DrawnFault:
    """Return the struct of an entry, which may be just the name of a kind."""
    return DRAWN[drawn]() if isinstance(drawn, str) else drawn
