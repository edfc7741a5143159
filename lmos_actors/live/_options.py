"""The options of a node's page and its live view."""

from __future__ import annotations

import attrs

from lmos_actors._core import check_limits


@attrs.frozen(kw_only=True)
class PageOptions:
    """Limits of a node's page, so that people who look do not keep the node from its work.

    At most `viewers` connections look at a time. Each has at most `views` open views, and gets the changes of
    each at most every `interval_seconds`. A view that would send more than `view_bytes` at once is closed.
    The audit log keeps the last `audit_entries` operations.

    Raises ConfigError for a number that is not above 0.
    """

    viewers: int = 64
    views: int = 16
    view_bytes: int = 1 << 20
    interval_seconds: float = 0.25
    audit_entries: int = 1_000

    def __attrs_post_init__(self) -> None:
        check_limits(self)
