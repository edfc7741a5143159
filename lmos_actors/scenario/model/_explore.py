"""Structs of `explore`: the kinds of faults that may be drawn, their ranges, number, targets and times."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Offset
from lmos_actors.system.model import Closed, Name

from ._faults import How, ProviderStatus


class DurationRange(Closed, frozen=True, kw_only=True):
    """A range of durations. Draws are log-uniform: from 1 s to 2 s is as likely as from 10 s to 20 s."""

    min: Duration
    max: Duration


class NumberRange(Closed, frozen=True, kw_only=True):
    """A range of numbers. For faults, draws are log-uniform; for arguments, uniform or one of the ends."""

    min: float
    max: float

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the range in the form that draws use: integers if both are whole."""
        whole = float(self.min).is_integer() and float(self.max).is_integer()
        return (int(self.min), int(self.max)) if whole else (self.min, self.max)


class OffsetRange(Closed, frozen=True, kw_only=True):
    """A range of offsets. If its ends have different signs, half of the draws are negative."""

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
    """A kind of fault that a search may draw. `of` names the targets; the default is `explore.of`."""

    of: Whom | UnsetType = UNSET


class DrawnCrash(DrawnFault, frozen=True, kw_only=True, tag="crash"):
    """The crash of an agent. `after` is the time until its restart; by default its supervisor decides.

    `state` is whether the state survives; with `any`, some crashes keep it and others lose it.
    """

    with_: Name = field(name="with", default="RuntimeError")
    after: Span | UnsetType = UNSET
    state: Literal["lost", "kept", "any"] | UnsetType = UNSET


class DrawnPause(DrawnFault, frozen=True, kw_only=True, tag="pause"):
    """A time in which an agent takes no messages."""

    duration: Span | UnsetType = UNSET


class DrawnSlow(DrawnFault, frozen=True, kw_only=True, tag="slow"):
    """A time in which an agent takes longer to handle its messages."""

    factor: Numbers = NumberRange(min=2.0, max=20.0)
    duration: Span | UnsetType = UNSET


class DrawnClockSkew(DrawnFault, frozen=True, kw_only=True, tag="clock_skew"):
    """A wrong clock of an agent, with an error in `skew`, `rate` or both, as given.

    If neither is given, one of the two is drawn.
    """

    skew: Offsets | UnsetType = UNSET
    rate: Numbers | UnsetType = UNSET
    duration: Span | UnsetType = UNSET


class DrawnProvider(DrawnFault, frozen=True, kw_only=True, tag="provider"):
    """A failure of a model provider. `status` is the kind of failure (default: any).

    `delay` applies to `slow` only.
    """

    status: ProviderStatus | UnsetType = UNSET
    delay: Span = DurationRange(min=Duration(0.1), max=Duration(30.0))
    duration: Span | UnsetType = UNSET


class DrawnRestart(DrawnFault, frozen=True, kw_only=True, tag="restart"):
    """A kill and restart of the node. If the fault has an `of`, it strikes one of the network nodes in it."""

    writes: Literal["kept", "lost", "torn"] | UnsetType = UNSET
    down: Span = DurationRange(min=Duration(0.1), max=Duration(5.0))


class DrawnPartition(DrawnFault, frozen=True, kw_only=True, tag="partition"):
    """A partition of some nodes from the rest; with `one_way`, some partitions cut only one direction."""

    duration: Span | UnsetType = UNSET
    one_way: bool = False


class DrawnLatency(DrawnFault, frozen=True, kw_only=True, tag="latency"):
    """A time in which messages between two nodes take longer."""

    delay: Span = DurationRange(min=Duration(0.01), max=Duration(2.0))
    duration: Span | UnsetType = UNSET


class DrawnLoss(DrawnFault, frozen=True, kw_only=True, tag="loss"):
    """A time in which a share of the messages between two nodes is lost."""

    share: Numbers = NumberRange(min=0.1, max=0.9)
    duration: Span | UnsetType = UNSET


class DrawnDisconnect(DrawnFault, frozen=True, kw_only=True, tag="disconnect"):
    """An end of the connections between two nodes. `how` is the way (default: any).

    `duration` applies to `hang` only.
    """

    how: How | UnsetType = UNSET
    duration: Span | UnsetType = UNSET


class DrawnSwizzle(DrawnFault, frozen=True, kw_only=True, tag="swizzle"):
    """A fault that cuts the links among some nodes one by one, and heals them in another order."""

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

    `arguments` has the arguments to draw: for the `id` of a step or entry, the name and the choices of each.
    """

    faults: tuple[AnyDrawn, ...] = ()
    arguments: dict[Name, dict[Name, Choices]] = field(default_factory=dict[str, dict[str, Choices]])
    at_most: Annotated[int, Meta(ge=1, le=20)] = 3
    of: Whom | UnsetType = UNSET
    from_: Duration = field(name="from", default=Duration(0.0))
    to: Duration | UnsetType = UNSET


def drawn_fault(drawn: AnyDrawn) -> DrawnFault:
    """Return the struct of an entry; the entry may be only the name of a kind."""
    return DRAWN[drawn]() if isinstance(drawn, str) else drawn
