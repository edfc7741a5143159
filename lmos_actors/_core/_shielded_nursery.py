"""A nursery whose tasks outlive a body that is being cancelled.

Nested nurseries alone do not end in order: when the scope around them is cancelled, inner and outer tasks
are cancelled together. Here each task runs under a shield of its own, and is cancelled by `end()`, after
the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import enable_ki_protection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ShieldedNursery:
    """The tasks of one stage of a node, in a nursery that encloses a body and ends after it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: dict[trio.CancelScope, None] = {}
        self._ended = False
        self.at_end: list[Callable[[], None]] = []
        """Called when the stage ends, before its tasks are cancelled; must not raise."""

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str) -> None:
        """Start a task that is not cancelled with the body."""
        self._nursery.start_soon(self._shielded, async_fn, args, name=name)

    @enable_ki_protection
    async def _shielded(self, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        if self._ended:  # `end` was called before the first step
            return
        with trio.CancelScope(shield=True) as scope:
            self._scopes[scope] = None
            try:
                await async_fn(*args)
            finally:
                del self._scopes[scope]

    def end(self) -> None:
        """Cancel all tasks of the stage, including those that have not taken their first step."""
        self._ended = True
        for call in self.at_end:
            call()
        for scope in tuple(self._scopes):
            scope.cancel("the stage has ended")
