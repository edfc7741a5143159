"""The failures of models: error answers to a request (`ActionFailed`), each with a code."""

from __future__ import annotations

from typing import Any, Final

from lmos_actors.errors import ActionFailed

NO_MODEL: Final = "NO_MODEL"
"""There is no model here: the contract itself was started instead of the client of a provider."""

KEY_REFUSED: Final = "MODEL_KEY_REFUSED"
"""The provider does not take the key; the message names its reference."""

MODEL_BUSY: Final = "MODEL_BUSY"
"""The provider, or the limit of this node, refuses more requests for now; `retry_after` is in seconds."""

MODEL_UNAVAILABLE: Final = "MODEL_UNAVAILABLE"
"""The provider cannot be reached, or fails."""

MODEL_CUT: Final = "MODEL_CUT"
"""The answer broke off after it had begun."""

MODEL_MALFORMED: Final = "MODEL_MALFORMED"
"""The answer is not in the format of the provider."""

REQUEST_REFUSED: Final = "MODEL_REQUEST_REFUSED"
"""The provider finds the request wrong: too long, or not what this model can do."""


def model_failure(code: str, message: str, **more: Any) -> ActionFailed:
    """Return the failure of a request to a model, for the caller to raise."""
    return ActionFailed({"code": code, "message": message, **more})
