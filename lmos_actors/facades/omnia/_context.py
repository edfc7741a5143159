"""What the connections of one node's facade share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime
    from lmos_actors.protocol.omnia import ServerMessage

SessionKey: TypeAlias = tuple[str, str, str]
"""A session: the path of its agent, its owner, its id."""


@attrs.frozen(kw_only=True)
class OmniaOptions:
    """How a node speaks Omnia's chat protocol.

    `only`: LMOS is not served, so `/ws` without an agent is a mistake. `strict_sessions`: the id of an
    unknown session is refused with SESSION_EXPIRED; else a new session begins, and its id is announced.
    `shows_tools`: clients see which tools an agent uses. `connections` of all clients together. `max_payload`
    is the bytes of a frame. A client has `pong_seconds` to answer a ping, and is pinged as often; what it
    does not take within `write_seconds` ends its connection.
    """

    only: bool = False
    strict_sessions: bool = False
    shows_tools: bool = True
    connections: int = 500
    max_payload: int = 16 << 20
    pong_seconds: float = 30.0
    write_seconds: float = 10.0


class Watcher(Protocol):
    """A connection that sees the turns of others."""

    def show(self, message: ServerMessage, session_id: str) -> None:
        """Send a frame of a turn that another connection has asked for."""
        ...


@attrs.define
class OmniaContext:
    """What connections share. `on_failure` takes errors that belong to no turn; it must not raise."""

    rt: Runtime
    options: OmniaOptions
    on_failure: Callable[[BaseException], object]
    draining: bool = False
    watchers: dict[SessionKey, dict[Watcher, None]] = attrs.field(
        factory=dict[SessionKey, dict[Watcher, None]]
    )
    """The connections that see all turns of a session."""
