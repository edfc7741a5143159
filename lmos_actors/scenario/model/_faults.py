"""Structs of the faults of a scenario or simulation."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Later, Offset
from lmos_actors.system.model import Closed, Delay, Name


class Pick(Closed, frozen=True, kw_only=True):
    """Agents of a population, chosen at random from the seed: `count` of them, or a `share`."""

    of: Name
    count: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    share: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET

    def number_of(self, size: int) -> int:
        """Return the number of agents picked from `size`; a share picks at least one."""
        share = 0.0 if self.share is UNSET else self.share
        return max(1, round(size * share)) if self.count is UNSET else self.count


class Comeback(Closed, frozen=True, kw_only=True):
    """The delay of the restart after a crash, and whether the state is kept.

    Without this, the supervisor decides. `state` is for agents that are not durable; by default their state
    is lost.
    """

    after: Delay = Duration(0.0)
    state: Literal["lost", "kept"] | UnsetType = UNSET


class Faulty(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """A fault of agents. Exactly one of `target` and `pick` names them."""

    target: Name | None = None
    pick: Pick | None = None


Rate: TypeAlias = Annotated[float, Meta(ge=0.001, le=1000)]
"""Seconds that pass on a wrong clock in one second."""


class Crash(Faulty, frozen=True, kw_only=True, tag="crash"):
    """A crash of agents with a built-in exception, given by name."""

    with_: Name = field(name="with", default="RuntimeError")
    restart: Comeback | None = None


class Slow(Faulty, frozen=True, kw_only=True, tag="slow"):
    """A slowdown that multiplies the service time of agents, for a time."""

    factor: Annotated[float, Meta(gt=1)]
    duration: Duration


class Pause(Faulty, frozen=True, kw_only=True, tag="pause"):
    """A time in which agents take no messages; messages wait according to the mailbox policy."""

    duration: Duration


class ClockSkew(Faulty, frozen=True, kw_only=True, tag="clock_skew"):
    """Wrong clocks of agents, for a time: off by `skew`, and `rate` times as fast.

    Such a clock changes what `self.now()` returns, and the length of timers that start during that time.
    """

    skew: Offset = Offset(0.0)
    rate: Rate = 1.0
    duration: Duration


ProviderStatus: TypeAlias = Literal[429, 500, "cut", "slow", "malformed"]
"""The ways in which a provider fails; see `Provider`."""


class Provider(Faulty, frozen=True, kw_only=True, tag="provider"):
    """A failure of the provider of language models, for a time.

    The provider refuses requests (429), fails (500), sends invalid answers (`malformed`), breaks answers off
    (`cut`), or sends each piece of an answer late by `delay` (`slow`; default: five seconds).
    """

    status: ProviderStatus
    delay: Delay | UnsetType = UNSET
    duration: Duration


Nodes: TypeAlias = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""A node, an agent or a population, or several."""


class Restart(Closed, frozen=True, kw_only=True, tag_field="kind", tag="restart"):
    """A kill of the node, as by `kill -9`, and a new start after `down`.

    `writes` sets what happens to commits that were not synced; the default is `kept`. With `lost` and `torn`,
    the node's machine ends too. `of` and `pick` name nodes of the network, each with its own process and
    machine. Without them the fault strikes the whole node.
    """

    of: Nodes | UnsetType = UNSET
    pick: Pick | None = None
    writes: Literal["kept", "lost", "torn"] | UnsetType = UNSET
    down: Duration = Duration(1.0)


class Kill(Closed, frozen=True, kw_only=True, tag_field="kind", tag="kill"):
    """A kill of nodes, as by `kill -9`; their launcher starts them again.

    In the world of processes, a process is killed. In a simulated world the fault is a `restart`.
    """

    of: Nodes


class StopProcess(Closed, frozen=True, kw_only=True, tag_field="kind", tag="stop"):
    """A stop of processes by SIGSTOP, for a time or until a `cont`."""

    of: Nodes
    duration: Duration | UnsetType = UNSET


class Continue(Closed, frozen=True, kw_only=True, tag_field="kind", tag="cont"):
    """The continuation of processes that were stopped."""

    of: Nodes


class FullDisk(Closed, frozen=True, kw_only=True, tag_field="kind", tag="full_disk"):
    """A full disk, so that commits of durable agents fail for a time."""

    duration: Duration


class SlowDisk(Closed, frozen=True, kw_only=True, tag_field="kind", tag="slow_disk"):
    """A slow disk: the time that commits take is multiplied by `factor`, for a time."""

    factor: Annotated[float, Meta(gt=1)]
    duration: Duration


Side: TypeAlias = tuple[Name, ...] | Pick | Literal["rest"]
"""One side of a partition: named nodes, a random pick of a population, or all nodes on no other side."""

Ends: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2)]
"""Two nodes, agents or populations; a population stands for all of its nodes."""


class OnLinks(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """A fault of the network. Without a duration it lasts until a `heal` step, or the end of the run."""

    duration: Duration | UnsetType = UNSET


class Partition(OnLinks, frozen=True, kw_only=True, tag="partition"):
    """A partition: nodes of different sides cannot reach each other.

    With `one_way`, only messages from the first side are cut.
    """

    sides: tuple[Side, ...]
    one_way: bool = False


class LateLinks(OnLinks, frozen=True, kw_only=True, tag="latency"):
    """A further delay of messages by `delay`, between two ends or everywhere."""

    delay: Delay
    between: Ends | UnsetType = UNSET


class LossyLinks(OnLinks, frozen=True, kw_only=True, tag="loss"):
    """A loss of a further share of the messages, between two ends or everywhere."""

    share: Annotated[float, Meta(gt=0, lt=1)]
    between: Ends | UnsetType = UNSET


How: TypeAlias = Literal["reset", "half_open", "hang"]
"""The ways in which connections end; see `Disconnect`."""


INSTANT: tuple[How, ...] = ("reset", "half_open")
"""The ways of ending connections that are over in an instant."""


class Disconnect(OnLinks, frozen=True, kw_only=True, tag="disconnect"):
    """An end of connections, in the way given by `how`.

    With `reset` they end at once. With `hang` nothing passes over them, and neither end is notified. With
    `half_open` they are gone at the accepting end. The connecting end notices this only when its next message
    or heartbeat ping is refused there.
    """

    how: How = "reset"
    between: Ends | UnsetType = UNSET


class Swizzle(Closed, frozen=True, kw_only=True, tag_field="kind", tag="swizzle"):
    """A fault that cuts the links among the nodes of `of` one by one, and heals them in another order.

    There are `every` seconds between two cuts, and between two repairs; the last link heals after `duration`.
    """

    of: Nodes
    every: Duration
    duration: Duration


LATER_FAULTS = ("hang",)

OfNetwork: TypeAlias = Partition | LateLinks | LossyLinks | Disconnect
AnyFault: TypeAlias = (
    Crash
    | Slow
    | Pause
    | ClockSkew
    | Provider
    | Restart
    | FullDisk
    | SlowDisk
    | Partition
    | LateLinks
    | LossyLinks
    | Disconnect
    | Swizzle
)
ProcessFault: TypeAlias = Kill | StopProcess | Continue
Fault: TypeAlias = Annotated[AnyFault | ProcessFault, Later(*LATER_FAULTS)]
