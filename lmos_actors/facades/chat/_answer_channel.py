"""The channel from the task that answers to the run whose items the caller gets: for turns and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import trio

from lmos_actors.actors import shape_of
from lmos_actors.errors import InvalidInput, ToolFailed

from ._items import ToolCalled, ToolReturned
from ._tools import Tool, shown_reason, tool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.memories import Memories

    from ._items import CallItem, ChatItem

T = TypeVar("T")

AHEAD: Final = 8
"""Maximum items of an answer that wait for the run that passes them on."""


class NotInProgress(RuntimeError):
    """A turn or a call has not begun."""


class AnswerChannel:
    """Takes the items of one answer, and is at most `AHEAD` items ahead of its reader."""

    __slots__ = ("_new_id", "_out")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._out: trio.MemorySendChannel[Any] | None = None

    def open(self, out: trio.MemorySendChannel[Any]) -> None:
        """Begin: from now on items go into this channel."""
        self._out = out

    async def put(self, item: ChatItem | CallItem) -> None:
        """Pass an item on. Waits until the reader has room.

        Raises RuntimeError before the beginning, TypeError for an item that could not be sent: so the mistake
        ends this turn, and not the agent whose action returns the item.
        """
        if self._out is None:
            raise NotInProgress("the turn is not in progress")
        try:
            shape_of(type(item)).take(item)
        except InvalidInput as error:
            raise TypeError(f"this cannot be sent: {error}") from None
        try:
            self._out.send_nowait(item)  # without a pause: those that wait are few
        except trio.WouldBlock:
            await self._out.send(item)
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint_if_cancelled()  # the reader has left, which is no crash
            raise

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
    """Raise TypeError or ValueError for a memory that cannot be kept: the mistake fails this turn only."""
    try:
        size = len(msgspec.json.encode(memory))
    except (TypeError, msgspec.EncodeError) as error:
        raise TypeError(f"turn.memory holds plain data: {error}") from None
    if size > most:
        raise ValueError(f"turn.memory has {size} bytes, and {most} are kept")
