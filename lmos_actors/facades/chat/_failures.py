"""The failures that a caller of a chat agent gets."""

from __future__ import annotations

from lmos_actors.errors import ActionFailed, StoreFailed

from ._items import INTERNAL_ERROR


def failure(code: str, message: str) -> ActionFailed:
    """Return a failure with a code, to be raised."""
    return ActionFailed({"code": code, "message": message})


class store_in_use:
    """A block in which a store failure is raised as INTERNAL_ERROR for the caller."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreFailed):
            raise failure(INTERNAL_ERROR, "the session cannot be reached") from error
