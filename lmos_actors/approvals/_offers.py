"""Offers: objects by which chat users are asked the questions of their turns.

A chat agent registers the offer for a turn's user, under the path of the agent that runs the turn. The
questions of that agent, and of the agents that it calls, are offered to this user. The desk finds the offer,
and leaves it for the agent `approvals` under the id of the question, as a message cannot carry an offer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator

    import trio

    from ._kept import Approval


class Offer(Protocol):
    """The interface by which the user of a turn is asked."""

    @property
    def principal(self) -> str | None:
        """The name of the user, None for a user without a name."""
        ...

    def allows(self, agent: str) -> bool:
        """Return whether the user may now decide what the agent at a path asks."""
        ...

    async def ask(self, approval: Approval, over: trio.Event) -> tuple[bool, dict[str, Any] | None] | None:
        """Ask the user and return the yes or no and the answer to the form; None if no answer comes.

        Never raises. Return when `over` is set, because somebody else has decided first.
        """
        ...


class Offers:
    """The offers of one node."""

    def __init__(self) -> None:
        self._turns: dict[str, Offer] = {}
        self._asked: dict[str, Offer] = {}

    @contextmanager
    def during(self, path: str, offer: Offer) -> Generator[None]:
        """Inside this block, offer a user the questions of the agent at a path and of agents it calls."""
        self._turns[path] = offer
        try:
            yield
        finally:
            del self._turns[path]

    def of(self, *paths: str | None) -> Offer | None:
        """Return the offer of the first of these agents that has one, or None."""
        return next((self._turns[path] for path in paths if path in self._turns), None)

    @contextmanager
    def for_question(self, id: str, offer: Offer | None) -> Generator[None]:
        """Leave an offer for the agent `approvals` for the length of a block."""
        if offer is not None:
            self._asked[id] = offer
        try:
            yield
        finally:
            self._asked.pop(id, None)

    def take(self, id: str) -> Offer | None:
        """Return the offer that was left for a question."""
        return self._asked.get(id)
