"""The state that the connections of one node's facade share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Runtime
    from lmos_actors.bindings import ServedConnections
    from lmos_actors.protocol.omnia import ServerMessage

    from ._options import OmniaOptions
    from ._uploads import Uploads

SessionKey: TypeAlias = tuple[str, str, str]
"""A session: the path of its agent, its owner, its id."""


class StartSoon(Protocol):
    """A function that starts a task, which may outlive the connection that started it."""

    def __call__(self, async_fn: Callable[..., Awaitable[object]], /, *args: object, name: str) -> None: ...


class Watcher(Protocol):
    """A connection that gets the frames of turns of other connections."""

    def show(self, message: ServerMessage, session_id: str) -> None:
        """Send a frame of a turn that another connection requested."""
        ...


@attrs.define
class OmniaContext:
    """The state that connections share. `on_failure` gets errors outside turns; it must not raise."""

    rt: Runtime
    options: OmniaOptions
    on_failure: Callable[[BaseException], object]
    start_soon: StartSoon
    served: ServedConnections[Any]
    uploads: Uploads | None = None
    """The files of clients; None if uploads are off."""
    url: str = ""
    """The HTTP address of the node, to which clients upload files."""
    watchers: dict[SessionKey, dict[Watcher, None]] = attrs.field(
        factory=dict[SessionKey, dict[Watcher, None]]
    )
    """The connections that see all turns of a session."""

    @property
    def draining(self) -> bool:
        """Whether no more turns begin, because the node is ending."""
        return self.served.draining
