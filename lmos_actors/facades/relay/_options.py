"""Options of an AgentRelay hub."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from lmos_actors._core import check_limits
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.relay import HubOptions
from lmos_actors.security import Reference

from ._extensions import Extension, made

Registration: TypeAlias = Literal["open", "invite", "closed"]


@attrs.frozen(kw_only=True)
class RelayOptions:
    """Options of a node that hosts an AgentRelay hub.

    `registration` is whether agents may register themselves, with or without an invitation. None means:
    "invite" if there are `invitations`; else "open" if the node serves only its own machine (it listens only
    at loopback addresses, without `security` and `public_url`); else "closed". `invitations` is a reference
    to secrets, such as `file:PATH`, with one invitation in a line, each valid once. One address may register
    `registrations_per_minute` agents (None: any number). At most `identities` are kept: an agent that never
    connected for `unused_seconds`, others for `identity_seconds` after they have left. After that, their
    names are refused for the same time again.

    A message has at most `max_message` bytes. Each of the `rates` is a number of messages that an agent may
    send, and a period in seconds; () means no limit. An agent's unread messages are bounded: beyond
    `outbox_bytes` broadcasts are dropped, and beyond `outbox_most` the agent is disconnected. With
    `broadcasts` "followed", an agent that follows others receives only their broadcasts. An agent has
    `pong_seconds` to answer a ping, and is pinged at the same interval. `extensions` are names, such as
    "voting", or functions that make one.

    A message names at most `max_targets` receivers, as each of them gets a copy. An agent follows at most
    `max_followed` others. Its follows are kept for `resume_seconds` after it has left, so that they survive a
    short outage; rates and follows are kept for at most `remembered` agents that have left. An agent may
    exceed its rate for `over_rate_seconds`; then it is disconnected.

    Raises ConfigError for numbers not above 0, "invite" without invitations, and extensions that do not
    exist.
    """

    name: str = "relay"
    registration: Registration | None = None
    invitations: str | None = None
    registrations_per_minute: int | None = 600
    identities: int = 100_000
    unused_seconds: float = 3_600.0
    identity_seconds: float = 30 * 86_400.0
    connections: int = 10_000
    max_message: int = 64 << 10
    rates: tuple[tuple[int, float], ...] = ((1_000, 60.0), (10_000, 3_600.0))
    broadcasts: Literal["all", "followed"] = "all"
    extensions: tuple[Extension, ...] = attrs.field(default=(), converter=tuple)
    outbox_bytes: int = 768 << 10
    outbox_most: int = 4 << 20
    pong_seconds: float = 30.0
    write_seconds: float = 10.0
    max_targets: int = 256
    max_followed: int = 1_024
    resume_seconds: float = 60.0
    remembered: int = 100_000
    over_rate_seconds: float = 60.0

    def __attrs_post_init__(self) -> None:
        check_limits(self, optional=("registrations_per_minute",), endless=("pong_seconds", "write_seconds"))
        if not all(frames > 0 and seconds > 0 for frames, seconds in self.rates):
            raise ConfigError(f"must be above 0, not {self.rates!r}", "RelayOptions.rates")
        made(self.extensions)
        if self.invitations is not None:
            Reference.parse(self.invitations)
        elif self.registration == "invite":
            raise ConfigError("needs invitations, such as file:PATH", "RelayOptions.invitations")

    def hub_options(self) -> HubOptions:
        """Return these options as limits of the hub protocol."""
        return HubOptions(
            name=self.name,
            max_message=self.max_message,
            rates=self.rates,
            broadcasts=self.broadcasts,
            outbox_bytes=self.outbox_bytes,
            outbox_most=self.outbox_most,
            max_targets=self.max_targets,
            max_followed=self.max_followed,
            resume_seconds=self.resume_seconds,
            remembered=self.remembered,
            over_rate_seconds=self.over_rate_seconds,
        )
