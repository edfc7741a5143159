"""Outboxes of a node, for the waiting graph: messages that wait to be sent to agents of other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio.lowlevel import Task

UnsentKind: TypeAlias = Literal["credit", "room"]


class UnsentMessage(Protocol):
    """One message that has not been sent yet."""

    @property
    def path(self) -> str:
        """The path of the receiving agent on its own node."""
        ...

    @property
    def affordance(self) -> str:
        """The name of the affordance that the message uses."""
        ...

    def held_sender(self) -> Any:
        """Return the slot of the agent whose turns wait until the message is sent, or None."""
        ...

    def waiting_tasks(self) -> Iterable[Task]:
        """Return the tasks that wait for the message to be sent."""
        ...


class Outbox(Protocol):
    """The connection to one other node."""

    @property
    def place(self) -> str:
        """The address to which the connection is made."""
        ...

    def unsent(self) -> Iterable[tuple[UnsentKind, UnsentMessage]]:
        """Return the unsent messages, each with what is missing: `credit`, or `room` on the connection."""
        ...
