"""The first moment of the command: signals are handled before any slow import."""

from __future__ import annotations

from ._start_up import take_signals

TYPE_CHECKING = False  # as type checkers know it: to import `typing` takes a while
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code. Raises SystemExit."""
    if arguments is None:
        take_signals()
    from ._dispatch import dispatch

    dispatch(arguments)
