"""The channel for the items of a turn or a call, from the task that answers to the run of the caller."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from lmos_actors.errors import ToolFailed

from ._items import ToolCalled, ToolReturned
from ._tools import Tool, shown_reason, tool_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from lmos_actors.memories import Memories

    from ._items import CallItem, ChatItem

T = TypeVar("T")


class NotInProgress(RuntimeError):
    """An item was sent before a turn or a call began, or after it ended."""


class AnswerChannel:
    """A channel that takes the items of one answer from several tasks, and passes them on one by one."""

    __slots__ = ("_lock", "_new_id", "_pass_on", "_pass_on_nowait")

    def __init__(self, new_id: Callable[[], str], nowait: Callable[[Any], bool] | None = None) -> None:
        self._new_id, self._pass_on_nowait = new_id, nowait
        self._pass_on: Callable[[Any], Awaitable[None]] | None = None
        self._lock = trio.Lock()

    @asynccontextmanager
    async def opened(self, pass_on: Callable[[Any], Awaitable[None]]) -> AsyncGenerator[None]:
        """Pass items to a function during a block; the function waits until the reader has room.

        The end of the block waits for items that other tasks are still passing on.
        """
        self._pass_on = pass_on
        try:
            yield
            if self._lock.locked():
                await self._lock.acquire()
                self._lock.release()
        finally:
            self._pass_on = None

    async def put(self, item: ChatItem | CallItem) -> None:
        """Pass an item on, and wait until the reader has room.

        Raise RuntimeError before the beginning and after the end, and TypeError for an item that cannot be
        sent, so that the mistake ends this turn and not the agent whose action returns the item.
        """
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            if self._pass_on is None:
                raise NotInProgress("the turn is not in progress")
            await self._pass_on(item)
        finally:
            self._lock.release()

    def put_nowait(self, item: ChatItem | CallItem) -> bool:
        """Pass an item on if that needs no wait; return whether it was passed on."""
        pass_on = self._pass_on_nowait
        return pass_on is not None and self._pass_on is not None and not self._lock.locked() and pass_on(item)

    async def use(self, tool: Tool | Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call a tool, and show the call; return its result as plain data. Raises ToolFailed."""
        tool = tool if isinstance(tool, Tool) else tool_of(tool)
        call_id = self._new_id()
        await self.put(ToolCalled(call_id, tool.name, dict(arguments)))
        try:
            result = await tool.call(arguments)
        except ToolFailed as error:
            await self.put(ToolReturned(call_id, error=shown_reason(error)))
            raise
        await self.put(ToolReturned(call_id, result))
        return result


def memories_of(turn: T, memories: Callable[[T], Memories] | None) -> Memories:
    """Return the memories of a turn or a call. Raise RuntimeError if it has none, as in a test."""
    if memories is None:
        raise RuntimeError("memories belong to an agent, and this turn was made without one")
    return memories(turn)


def check_memory(memory: dict[str, Any], most: int) -> None:
    """Raise TypeError or ValueError for a memory that cannot be kept, so that only this turn fails."""
    try:
        size = len(msgspec.json.encode(memory))
    except (TypeError, msgspec.EncodeError) as error:
        raise TypeError(f"turn.memory holds plain data: {error}") from None
    if size > most:
        raise ValueError(f"turn.memory has {size} bytes, and {most} are kept")
