"""Outboxes of a node: what waits here to be sent to agents of other nodes, as the waiting graph sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio.lowlevel import Task

UnsentKind: TypeAlias = Literal["credit", "room"]


class UnsentMessage(Protocol):
    """One message that is not sent yet."""

    @property
    def path(self) -> str:
        """The path of the agent it goes to, on its own node."""
        ...

    @property
    def affordance(self) -> str:
        """The name of the affordance that it uses."""
        ...

    def held_sender(self) -> Any:
        """Return the slot of the agent that gets no further turn until it is sent, None without one."""
        ...

    def waiting_tasks(self) -> Iterable[Task]:
        """Return the tasks that wait for it."""
        ...


class Outbox(Protocol):
    """The connection to one other node."""

    @property
    def place(self) -> str:
        """The address to which the connection is made."""
        ...

    def unsent(self) -> Iterable[tuple[UnsentKind, UnsentMessage]]:
        """Return what waits to be sent, and what for: `credit` of its agent, or `room` on the connection."""
        ...
