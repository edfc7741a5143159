"""The options of the approvals of a node."""

from __future__ import annotations

import attrs

from lmos_actors._core import check_limits
from lmos_actors.errors import ConfigError


@attrs.frozen(kw_only=True)
class ApprovalOptions:
    """Limits of the approvals of a node: a person reads only a few, and all are held in memory.

    At most `waiting` questions wait for a decision; a further question fails with TOO_MANY. This limit is at
    most 10,000, because the agent `approvals` has no more seats. The last `decided` decisions are kept.
    Questions and decisions together have at most `total_bytes` as JSON; the oldest decisions are dropped. A
    question has at most `data_bytes` as JSON.

    Raises ConfigError for a number that is not above 0, or too large.
    """

    waiting: int = 10_000
    decided: int = 10_000
    total_bytes: int = 64 << 20
    data_bytes: int = 64 << 10

    def __attrs_post_init__(self) -> None:
        check_limits(self)
        if self.waiting > 10_000:
            raise ConfigError(f"must be at most 10000, not {self.waiting}", "ApprovalOptions.waiting")
