"""What children raise while their supervisor stops them: it restarts nobody, but it arrives."""

from __future__ import annotations

from lmos_actors._errors import RestartIntensityExceeded
from lmos_actors.actors import ExitReason


def and_raised(reason: ExitReason, path: str, raised: tuple[BaseException, ...]) -> ExitReason:
    """Add to a supervisor's exit reason what its children raised while it stopped them."""
    error = reason.error
    if isinstance(error, RestartIntensityExceeded):
        causes = (*error.causes, *raised)
        both: BaseException = RestartIntensityExceeded(path, error.max_restarts, error.max_seconds, causes)
    else:
        both = as_one(path, raised)
    return ExitReason(reason.kind, reason.detail, both)


def as_one(path: str, raised: tuple[BaseException, ...]) -> BaseException:
    """Give what children raised while their supervisor ended: one exception as itself, several as a group."""
    return raised[0] if len(raised) == 1 else BaseExceptionGroup(f"raised while {path} ended", raised)
