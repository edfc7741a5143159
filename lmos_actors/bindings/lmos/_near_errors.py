"""Errors in the answers of peers, as near agents raise them, and what they show about the agent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from lmos_actors.errors import (
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    KeyReused,
    MailboxFull,
    NotFound,
    RemoteProtocolError,
    WouldDeadlock,
)

from ..exposure._exposure import path_named

if TYPE_CHECKING:
    from lmos_actors.errors import ConnectFailed


def refuses_whole(error: Exception) -> bool:
    """Return whether an answer, 404 or 500, may mean that a thing is there but cannot be read as a whole."""
    if isinstance(error, NotFound):
        return error.kind != "agent"
    return isinstance(error, RemoteProtocolError) and getattr(error.problem, "status", None) == 500


def means_unwell(error: Exception) -> bool:
    """Return whether an error shows that an agent is not running, or cannot be reached."""
    gone = isinstance(error, NotFound) and error.kind == "agent"
    return gone or isinstance(error, AgentUnavailable | AgentDied)


def as_near_error(error: Exception, thing_id: str, path: str, seconds: float | None = None) -> Exception:
    """Return an error from a peer as a near agent would raise it: with the path that the agent has here.

    `seconds` is the timeout as the caller gave it, if it gave one.
    """
    if isinstance(error, AgentUnavailable):
        return AgentUnavailable(path, error.why, retry_in=error.retry_in)
    if isinstance(error, AgentDied):
        return AgentDied(error.reason, started=error.started, agent=path)
    if isinstance(error, MailboxFull):
        return MailboxFull(path, error.size)
    if isinstance(error, DeadlineExceeded):
        return DeadlineExceeded(path, error.seconds if seconds is None else seconds)
    if isinstance(error, NotFound) and error.kind == "agent" and error.name == thing_id:
        return NotFound("agent", path, near=error.nearest and path_named(error.nearest))
    if isinstance(error, KeyReused):
        return KeyReused(path, error.key, error.why)
    if isinstance(error, WouldDeadlock):
        return WouldDeadlock(path, error.affordance, error.circle)
    return error


def no_connection(
    path: str, place: str, failure: ConnectFailed | None, retry_at: float | None
) -> AgentUnavailable:
    """Return the error for a request without a connection, with the time of the next attempt to connect."""
    why = "" if failure is None else f": {failure.why}"
    wait = None if retry_at is None else max(0.0, round(retry_at - trio.current_time(), 6))
    error = AgentUnavailable(path, f"no connection to {place}{why}", retry_in=wait)
    error.__cause__ = failure
    return error
