"""Structs of the network of a file: the behaviour of its links, and the agents at their ends."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Size
from lmos_actors.system.model import Closed, Delay, Name

Share: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
"""A share of messages; not all of them."""

MOST_CONNECTIONS: Final = 4_096
"""Maximum number of node pairs that talk in `world: wire`; each pair has a connection."""

MOST_REGISTERED: Final = 10_000
"""Maximum number of agents if the network has a directory: each registers there and renews its entry."""


class Rules(Closed, frozen=True, kw_only=True):
    """The behaviour of a link. Keys that are not given keep their defaults.

    `latency` and `jitter` add up. `bandwidth` is in bytes per second. `queue` is the number of bytes that may
    wait for bandwidth. `corrupt` is the share of writes to a connection in which a byte is changed.
    """

    latency: Delay | UnsetType = UNSET
    jitter: Delay | UnsetType = UNSET
    loss: Share | UnsetType = UNSET
    duplicate: Share | UnsetType = UNSET
    reorder: Share | UnsetType = UNSET
    corrupt: Share | UnsetType = UNSET
    bandwidth: Size | UnsetType = UNSET
    queue: Size | UnsetType = UNSET


class LinksBetween(Rules, frozen=True, kw_only=True):
    """The links between two nodes, agents or populations: both ways (`between`) or one way (`from`, `to`)."""

    between: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2)] | UnsetType = UNSET
    from_: Name | UnsetType = field(name="from", default=UNSET)
    to: Name | UnsetType = UNSET


class Directory(Closed, frozen=True, kw_only=True):
    """The directory of a network, and the time to live of registrations in it."""

    ttl: Duration = Duration(300.0)


class Network(Closed, frozen=True, kw_only=True):
    """The network between the nodes of a file: how it delivers messages, and how its links affect them."""

    delivery: Literal["stream", "datagram"] = "stream"
    default: Rules = Rules()
    directory: Directory | None = None
    links: tuple[LinksBetween, ...] = ()
