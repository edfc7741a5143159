"""Error frames for failed turns and calls; they never contain an exception."""

from __future__ import annotations

from typing import Final

from lmos_actors.errors import ActionFailed, AgentDied, AgentError, InvalidInput, MailboxFull
from lmos_actors.protocol import omnia

MAY_GO_ON: Final = (
    "the agent ended before its answer, and may go on with it when it is back: "
    "look at the history before asking again"
)
"""The text when the agent itself has ended: its next life may resume the turn, so it has not failed."""


def fault_of(error: AgentError) -> tuple[str, str]:
    """Return the code and the text of an error frame."""
    if isinstance(error, ActionFailed):
        return error.code or omnia.INTERNAL_ERROR, error.detail or "the turn failed"
    if isinstance(error, InvalidInput):
        return omnia.INVALID_MESSAGE, str(error)
    if isinstance(error, MailboxFull):
        return omnia.RATE_LIMITED, "too many in-flight requests"
    if isinstance(error, AgentDied) and error.started:
        return omnia.OUTCOME_UNKNOWN, MAY_GO_ON
    return omnia.INTERNAL_ERROR, "internal server error"
