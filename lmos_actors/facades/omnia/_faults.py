"""Error frames of a turn or a call that has failed; nothing of an exception is in them."""

from __future__ import annotations

from lmos_actors.errors import ActionFailed, AgentError, InvalidInput, MailboxFull
from lmos_actors.protocol import omnia


def fault_of(error: AgentError) -> tuple[str, str]:
    """Return the code and the text of an error frame."""
    if isinstance(error, ActionFailed):
        return error.code or omnia.INTERNAL_ERROR, error.detail or "the turn failed"
    if isinstance(error, InvalidInput):
        return omnia.INVALID_MESSAGE, str(error)
    if isinstance(error, MailboxFull):
        return omnia.RATE_LIMITED, "too many in-flight requests"
    return omnia.INTERNAL_ERROR, "internal server error"
