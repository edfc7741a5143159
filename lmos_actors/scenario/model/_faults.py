"""Structs of the faults of a scenario or simulation."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Later, Offset
from lmos_actors.system.model import Closed, Delay, Name


class Pick(Closed, frozen=True, kw_only=True):
    """Agents of a population, chosen by the seed: `count` of them, or a `share`."""

    of: Name
    count: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    share: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET

    def number_of(self, size: int) -> int:
        """Return how many it takes of so many; by a share at least one."""
        share = 0.0 if self.share is UNSET else self.share
        return max(1, round(size * share)) if self.count is UNSET else self.count


class Comeback(Closed, frozen=True, kw_only=True):
    """The time of the restart after a crash, and whether state is kept; by default the supervisor decides.

    `state` is for agents that are not durable; it is lost unless it says otherwise.
    """

    after: Delay = Duration(0.0)
    state: Literal["lost", "kept"] | UnsetType = UNSET


class Faulty(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """The agents that a fault affects: one of `target` and `pick`."""

    target: Name | None = None
    pick: Pick | None = None


Rate: TypeAlias = Annotated[float, Meta(ge=0.001, le=1000)]
"""Seconds on a clock that is wrong, in one second."""


class Crash(Faulty, frozen=True, kw_only=True, tag="crash"):
    """Crash agents with an exception, a built-in one by name."""

    with_: Name = field(name="with", default="RuntimeError")
    restart: Comeback | None = None


class Slow(Faulty, frozen=True, kw_only=True, tag="slow"):
    """Multiply the service time of agents for a time."""

    factor: Annotated[float, Meta(gt=1)]
    duration: Duration


class Pause(Faulty, frozen=True, kw_only=True, tag="pause"):
    """Agents take no message for a time; their mail waits, as their mailbox's policy has it."""

    duration: Duration


class ClockSkew(Faulty, frozen=True, kw_only=True, tag="clock_skew"):
    """The clocks of agents are wrong for a time: ahead by `skew`, or behind, and `rate` times as fast.

    It is what they see by `self.now()`, and how long their timers take that begin meanwhile.
    """

    skew: Offset = Offset(0.0)
    rate: Rate = 1.0
    duration: Duration


ProviderStatus: TypeAlias = Literal[429, 500, "cut", "slow", "malformed"]
"""The ways in which a provider fails; see `Provider`."""


class Provider(Faulty, frozen=True, kw_only=True, tag="provider"):
    """The provider of language models fails for a time.

    It refuses requests (429), fails (500), sends what is no answer (`malformed`), breaks answers off (`cut`),
    or is late with each of their pieces by `delay` (`slow`), five seconds unless given.
    """

    status: ProviderStatus
    delay: Delay | UnsetType = UNSET
    duration: Duration


Nodes: TypeAlias = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""A node, an agent or a population, or several."""


class Restart(Closed, frozen=True, kw_only=True, tag_field="kind", tag="restart"):
    """End the node as a `kill -9` does, and with `lost` and `torn` its machine; start it again after `down`.

    `writes` says what becomes of commits that were not synced: `kept` by default. `of` and `pick` name nodes
    of the network, of which each has a process and a machine of its own; without them it is the whole node.
    """

    of: Nodes | UnsetType = UNSET
    pick: Pick | None = None
    writes: Literal["kept", "lost", "torn"] | UnsetType = UNSET
    down: Duration = Duration(1.0)


class Kill(Closed, frozen=True, kw_only=True, tag_field="kind", tag="kill"):
    """End nodes as a `kill -9` does; whatever started them starts them again.

    A process is ended so, and its launcher starts the next one; in a simulated world it is a `restart`.
    """

    of: Nodes


class StopProcess(Closed, frozen=True, kw_only=True, tag_field="kind", tag="stop"):
    """Processes do nothing more for a time, or until a `cont`: they are stopped by SIGSTOP."""

    of: Nodes
    duration: Duration | UnsetType = UNSET


class Continue(Closed, frozen=True, kw_only=True, tag_field="kind", tag="cont"):
    """Processes that were stopped go on."""

    of: Nodes


class FullDisk(Closed, frozen=True, kw_only=True, tag_field="kind", tag="full_disk"):
    """Commits of durable agents fail for a time, as there is no room on the disk."""

    duration: Duration


class SlowDisk(Closed, frozen=True, kw_only=True, tag_field="kind", tag="slow_disk"):
    """Multiply the time that commits take, for a time."""

    factor: Annotated[float, Meta(gt=1)]
    duration: Duration


Side: TypeAlias = tuple[Name, ...] | Pick | Literal["rest"]
"""One side of a partition: nodes by name, some of a population by the seed, or all that are on no other."""

Ends: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2)]
"""Two nodes or agents, or two populations, or the nodes of one and all of another."""


class OnLinks(Closed, frozen=True, kw_only=True, tag_field="kind"):
    """A fault of the network. Without a duration it lasts until a step `heal`, or the end."""

    duration: Duration | UnsetType = UNSET


class Partition(OnLinks, frozen=True, kw_only=True, tag="partition"):
    """Nodes of different sides do not reach one another; `one_way`: the first side is heard by no other."""

    sides: tuple[Side, ...]
    one_way: bool = False


class LateLinks(OnLinks, frozen=True, kw_only=True, tag="latency"):
    """Messages take longer by `delay`: between two ends, or everywhere."""

    delay: Delay
    between: Ends | UnsetType = UNSET


class LossyLinks(OnLinks, frozen=True, kw_only=True, tag="loss"):
    """A further share of the messages is lost: between two ends, or everywhere."""

    share: Annotated[float, Meta(gt=0, lt=1)]
    between: Ends | UnsetType = UNSET


How: TypeAlias = Literal["reset", "half_open", "hang"]
"""The ways in which connections end; see `Disconnect`."""


INSTANT: tuple[How, ...] = ("reset", "half_open")
"""Of these, those that are over in an instant."""


class Disconnect(OnLinks, frozen=True, kw_only=True, tag="disconnect"):
    """Connections end: `reset` at once; `hang`: nothing comes over them, and nothing says so.

    `half_open`: they are gone at the end that was connected to. The end that connected believes in them until
    what it sends next is refused there, be it the ping of its heartbeat.
    """

    how: How = "reset"
    between: Ends | UnsetType = UNSET


class Swizzle(Closed, frozen=True, kw_only=True, tag_field="kind", tag="swizzle"):
    """The links among the nodes of `of` are cut one by one, and healed one by one in another order.

    There are `every` seconds between two cuts, and between two heals; the last heal comes after `duration`.
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
