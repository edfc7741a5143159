"""A call: a conversation by sound, in both directions at once, between a user and a chat agent.

A call is one long turn of its session: messages of the session wait until it is over. It consists of
*exchanges*. The agent ends each of them with `finish`, which keeps the user's words, as understood, and the
agent's words in the history. The call runs in a child of the chat agent, as turns do.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ._answer_channel import AnswerChannel, check_memory, memories_of
from ._items import Interrupted, Sound, SoundFormat, TextChunk, TurnDone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from lmos_actors.memories import Memories

    from ._items import Said, ToolCalled, ToolReturned
    from ._tools import Tool


class VoiceCall:
    """One call of a user, and the way to answer it; `ChatAgent.talk` gets it.

    `sound` is the user's speech in pieces, as bytes in `format`; it ends when the user hangs up, and only one
    task may iterate it. `session` is the id of the conversation, `is_new` whether it has just begun,
    `history` the messages before this call. `memory` is a dict of plain data that is kept with the session at
    each `finish`, and at the end of the call; the memories of the user over all sessions are in `memories`.
    `principal` is the caller, by the access list.
    """

    def __init__(
        self,
        session: str,
        *,
        format: SoundFormat,
        history: Callable[[], Sequence[Said]] = tuple,
        memory: dict[str, Any] | None = None,
        memory_bytes: int = 64 << 10,
        metadata: Mapping[str, Any] | None = None,
        is_new: bool = False,
        principal: str | None = None,
        memories: Callable[[VoiceCall], Memories] | None = None,
        new_id: Callable[[], str],
    ) -> None:
        self.session = session
        self.principal = principal
        self._memories = memories
        self.format = format
        self.is_new = is_new
        self.metadata = dict(metadata or {})
        self.memory = {} if memory is None else memory
        self.sound: AsyncIterator[bytes] = _Silence()
        self._history = history
        self._memory_bytes = memory_bytes
        self._out = AnswerChannel(new_id)
        self._said: list[str] = []
        self._is_open = False  # something has been sent since the last `finish`
        self._finished = 0

    @cached_property
    def history(self) -> tuple[Said, ...]:
        """The messages before this call, oldest first."""
        return tuple(self._history())

    @cached_property
    def memories(self) -> Memories:
        """The memories of this user, over all sessions. Raises RuntimeError outside of an agent."""
        return memories_of(self, self._memories)

    async def play(self, sound: bytes) -> None:
        """Send a piece of sound, to be played after earlier pieces. Waits until the caller has room."""
        self._is_open = True
        await self._out.put(Sound(sound))

    async def say(self, text: str) -> None:
        """Send the text of the agent's speech. Waits until the caller has room."""
        if text:
            self._is_open = True
            self._said.append(text)
            await self._out.put(TextChunk(text))

    async def understood(self, text: str) -> None:
        """Send the user's speech as the agent understood it. Waits until the caller has room."""
        if text:
            self._is_open = True
            await self._out.put(TextChunk(text, role="user"))

    async def interrupt(self) -> None:
        """Make the caller drop sound that is not yet played, for example when the user begins to speak."""
        await self._out.put(Interrupted())

    async def finish(self) -> None:
        """End an exchange: the words of both sides are kept, and the caller gets the agent's whole text.

        Raises TypeError or ValueError for a `memory` that cannot be kept, and ActionFailed if the store
        fails.
        """
        check_memory(self.memory, self._memory_bytes)
        text = "".join(self._said)
        self._said.clear()
        self._is_open = False
        self._finished += 1
        await self._out.put(TurnDone(text))

    async def show(self, item: ToolCalled | ToolReturned) -> None:
        """Show a tool that is carried out elsewhere, for example by an agent that this one asks."""
        await self._out.put(item)

    async def use(self, tool: Tool | Callable[..., Any], /, **arguments: Any) -> Any:
        """Call a tool, and show the call; return its result as plain data. Raises ToolFailed."""
        return await self._out.use(tool, arguments)

    async def run(self, talk: Callable[[VoiceCall], Any], out: Callable[[Any], Awaitable[None]]) -> None:
        """Run `talk` for the call, and end the last exchange with `finish`; `out` gets the items."""
        async with self._out.opened(out):
            held = talk(self)
            if inspect.isawaitable(held):
                await held
            if self._is_open or not self._finished:
                await self.finish()
        check_memory(self.memory, self._memory_bytes)


class _Silence:
    """The sound of a call that has not begun."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration
