"""Exit reasons of incarnations, and the notices that carry them.

Exit reasons are data, as in OTP: `normal` (the incarnation had finished), `shutdown` (it was stopped, perhaps
with a detail), `error` (anything else, with the exception).
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from lmos_actors.errors import text_of


@attrs.frozen
class ExitReason:
    """The reason why an incarnation ended. `detail` goes with `shutdown`, `error` with `error`.

    The texts of a reason do not contain the secrets of the agent that crashed; `error` is the exception
    itself. A pickled or copied reason has no report.
    """

    kind: Literal["normal", "shutdown", "error"]
    detail: object = None
    error: BaseException | None = None
    _report: Any = attrs.field(default=None, eq=False, kw_only=True, alias="report")

    @property
    def report(self) -> Any:
        """The `CrashReport` of the agent that crashed with this reason, or None."""
        return self._report

    @property
    def abnormal(self) -> bool:
        """Whether the reason is `error`, so that a transient child is restarted."""
        return self.kind == "error"

    def __repr__(self) -> str:
        # crash reports show a reason by this
        members = [repr(self.kind)]
        if self.detail is not None:
            members.append(f"detail={self.detail!r}")
        if self.error is not None:
            members.append(f"error=<{self}>")
        return f"ExitReason({', '.join(members)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ExitReason, (self.kind, self.detail, self.error)

    def __str__(self) -> str:
        if self.error is not None:
            if self._report is not None:
                line: str = self._report.line(self.error)
                return line
            text = text_of(self.error)
            if getattr(type(self.error), "tells_class", False):  # of a crash elsewhere: its text has it
                return text
            return f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__
        return self.kind if self.detail is None else f"{self.kind}: {self.detail}"


def check_reason(reason: object) -> None:
    """Raise TypeError for anything but an ExitReason."""
    if not isinstance(reason, ExitReason):
        raise TypeError(f"a reason is an ExitReason, such as ExitReason('shutdown', ...), not {reason!r}")


NORMAL = ExitReason("normal")
SHUTDOWN = ExitReason("shutdown")


@attrs.frozen
class Down:
    """The notice that an incarnation of a monitored agent has ended; `agent` is its path in the tree.

    `restored`: whether that incarnation had begun with state from the store; None for agents that are not
    durable.
    """

    agent: str
    incarnation: int
    reason: ExitReason
    restored: bool | None = None
