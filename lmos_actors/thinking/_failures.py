"""The failures of thinking: errors with a code (`ActionFailed`), in addition to the failures of models."""

from __future__ import annotations

from typing import Any, Final

from lmos_actors.errors import ActionFailed

BUDGET_EXCEEDED: Final = "BUDGET_EXCEEDED"
"""The next step would take more than the `Budget` of the turn, or of the session, allows."""

ANSWER_INVALID: Final = "ANSWER_INVALID"
"""The model gave an empty answer, or none of the wanted type, and did so again after it was told why."""

ANSWER_REFUSED: Final = "ANSWER_REFUSED"
"""The model does not want to answer."""

OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"
"""The turn was resumed, and the agent that it was handed over to has no answer: it may have acted or not."""

ASKED_IN_A_CIRCLE: Final = "ASKED_IN_A_CIRCLE"
"""The agent itself waits for this very answer, or too many agents wait for it."""


def thinking_failure(code: str, message: str, **more: Any) -> ActionFailed:
    """Return the failure of a turn, to be raised by the caller."""
    return ActionFailed({"code": code, "message": message, **more})
