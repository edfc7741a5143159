"""A call to an agent: sound in both directions, over several connections if necessary.

One task runs the call: it takes the frames of the connection, and if that breaks, connects again to continue
the call. Sound that is sent in between cannot wait: all of it but the last second is dropped and counted.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol import omnia
from lmos_actors.protocol.omnia import AudioFormat, FrameOrder
from lmos_actors.supervision import Backoff

from ..chat import (
    Interrupted,
    MediaPiece,
    Sound,
    SoundFormat,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnDone,
)
from ._line import event_of, failure_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.protocol.omnia import ServerSaid

    from ._line import Line

CallEvent: TypeAlias = SoundFormat | Sound | Interrupted | TextChunk | ToolCalled | ToolReturned | TurnDone

WAITING: Final = 50
"""Frames that wait to be sent: usually a second's. Older ones are dropped."""

AHEAD: Final = 256
"""Number of items waiting for the reader beyond which the server is read more slowly."""

PAUSES: Final = Backoff(initial=0.05, max=1.0, jitter=0.0)
"""Waits between attempts to connect again."""


@attrs.frozen
class CallStatistics:
    """Counts of frames and connections.

    `dropped` frames could not be sent in time; `lost` frames never came, `late` ones came twice. `refused`
    counts errors of single frames, `resumed` how often the call went on over another connection.
    """

    sent: int
    dropped: int
    received: int
    lost: int
    late: int
    refused: int
    resumed: int


class OutgoingCall:
    """A call to an agent; made by `Chat.call`. Iterate over it to get its items.

    The items are: `Sound`; `TextChunk`, which with `role` "user" is what the agent has understood;
    `Interrupted`, after which sound that is not yet played is to be dropped; `TurnDone` at the end of each
    exchange; `SoundFormat`, if the agent needs a format other than the proposed one; and the tools that the
    agent uses. The iteration ends when the call is over.

    It raises ActionFailed with the `code` and `message` of an error of the server, and OutcomeUnknown if the
    connection broke and the call could not continue.
    """

    def __init__(
        self,
        url: str,
        session: str | None,
        format: SoundFormat,
        resume_seconds: float,
        dial: Callable[[str | None], Awaitable[Line]],
    ) -> None:
        self.url = url
        self.session = session
        """The id of the conversation; None until the agent has named one."""
        self.format = format
        """The format of the sound that is sent; the agent's own after the item that names it."""
        self._seconds = resume_seconds
        self._dial = dial
        self._line: Line | None = None
        self._waiting: deque[bytes] = deque()
        self._number = 0
        self._sent = self._dropped = self._received = self._refused = self._resumed = 0
        self._order = FrameOrder()
        self._is_over = False  # hung up
        self._may_end = False  # an exchange has ended since: not every server announces the end of a call
        self._scope = trio.CancelScope()
        self._patience = trio.CancelScope()  # of the wait for a frame
        self._done = trio.Event()
        self._failure: Exception | None = None
        self._put, self._items = trio.open_memory_channel[CallEvent](AHEAD)

    def statistics(self) -> CallStatistics:
        """Return the counts so far."""
        return CallStatistics(
            self._sent, self._dropped, self._received, self._order.lost, self._order.late,
            self._refused, self._resumed,
        )  # fmt: skip

    # ---- to the agent

    def send(self, sound: bytes) -> None:
        """Send a piece of sound, in `format`. Never waits: where there is no connection, or the server does
        not read, the oldest pieces are dropped. After `hang_up` it does nothing.
        """
        if self._is_over:
            return
        self._waiting.append(sound)
        self._flush()
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._dropped += 1
            self._number += 1  # which shows the agent that something is missing

    def _flush(self) -> None:
        line = self._line
        format = _audio_format(self.format)
        while (
            line is not None
            and line.why is None
            and self._waiting
            and (self._is_over or line.wire.waiting < WAITING)
        ):
            line.wire.send_sound(self._waiting.popleft(), self._number, format)
            self._number += 1
            self._sent += 1

    def hang_up(self) -> None:
        """End the call: the agent sees the end of the sound. Items that it still sends are received."""
        if not self._is_over and self._line is not None:
            self._is_over = True
            self._flush()
            self._line.wire.send_sound(b"", self._number, _audio_format(self.format), is_last=True)
            self._line.wire.hang_up()
        self._is_over = True
        self._limit_patience()

    # ---- from the agent

    def __aiter__(self) -> OutgoingCall:
        return self

    async def __anext__(self) -> CallEvent:
        try:
            item = await self._items.receive()
        except trio.EndOfChannel:
            if self._failure is not None:
                raise self._failure from None
            raise StopAsyncIteration from None
        if isinstance(item, SoundFormat):
            self.format = item
        return item

    # ---- connections; for `Chat`

    async def connect(self) -> None:
        """Make the first connection. Raises ConnectFailed."""
        self._line = await self._dial(self.session)
        self._line.wire.session_id = None  # the one that is announced

    async def close(self) -> None:
        """Hang up, and wait until the task of the call has ended."""
        self.hang_up()
        if self._line is not None:
            self._line.connection.close()
        self._scope.cancel("the call is left")
        await self._done.wait()

    async def run(self) -> None:
        """Run the call until it is over."""
        try:
            with self._scope:
                await self._carry()
        except (ActionFailed, OutcomeUnknown) as failure:
            self._failure = failure
        finally:
            self._put.close()
            self._done.set()

    async def _carry(self) -> None:
        while True:
            line = self._line
            assert line is not None
            while (said := await self._next(line)) is not None:
                self.session = line.wire.session_id or self.session
                if not await self._take(said):
                    line.connection.close()
                    return
                self._flush()
            if self._is_over:
                line.connection.close()
                return
            await self._resume(line.why or "the connection ended")

    async def _next(self, line: Line) -> ServerSaid | MediaPiece | None:
        """Wait for the next frame; return None if the connection has ended or the wait is over."""
        with trio.CancelScope() as self._patience:
            self._limit_patience()
            return await line.next()
        return None

    def _limit_patience(self) -> None:
        """If the call was hung up, limit the wait for its end to the time that a server may take."""
        if self._is_over:
            # after an exchange, 2 s of silence mean that the call is over
            seconds = 2.0 if self._may_end else self._seconds
            self._patience.deadline = trio.current_time() + seconds

    async def _take(self, said: ServerSaid | MediaPiece) -> bool:
        """Handle a frame; return False if it ends the call."""
        if isinstance(said, MediaPiece):
            if self._order.take(said.sequence):
                self._received += 1
                await self._put.send(Sound(said.data))
            return True
        message = said.message
        if isinstance(message, omnia.ErrorFrame):
            if message.session_id is not None:
                raise failure_of(message, self.url)
            self._refused += 1
        elif isinstance(message, omnia.Interrupt):
            await self._put.send(Interrupted())
        elif isinstance(message, omnia.SessionConfig):
            await self._take_format(message.session_config)
        elif isinstance(message, omnia.Done):
            await self._put.send(TurnDone(message.content or ""))
            self._may_end = self._is_over
        elif isinstance(message, omnia.CallEnded):
            return False
        else:
            event = event_of(said)
            if event is not None and not isinstance(event, MediaPiece):
                await self._put.send(event)
        return True

    async def _take_format(self, given: AudioFormat) -> None:
        default = SoundFormat()
        agreed = SoundFormat(
            given.codec or default.codec,
            given.sample_rate or default.sample_rate,
            given.channels or default.channels,
        )
        if agreed != self.format:
            await self._put.send(agreed)

    async def _resume(self, why: str) -> None:
        """Continue the call over another connection. Raises OutcomeUnknown if that fails."""
        with trio.move_on_after(self._seconds):
            for attempt in count(1):
                line: Line | None = None
                with suppress(ConnectFailed):
                    line = await self._dial(self.session)
                first = None if line is None else await line.next()
                if line is None or first is None:
                    await trio.sleep(PAUSES.delay(attempt, 0.0))
                    continue
                if isinstance(first, MediaPiece) or not _is_resumed(first):
                    line.connection.close()
                    break
                self._line = line
                self._order.resume()
                self._resumed += 1
                self._flush()
                return
        raise OutcomeUnknown(self.url, f"{why}; the call could not go on")


def _audio_format(format: SoundFormat) -> AudioFormat:
    return AudioFormat(codec=format.codec, sample_rate=format.sample_rate, channels=format.channels)


def _is_resumed(said: ServerSaid) -> bool:
    message = said.message
    return (
        isinstance(message, omnia.Connected) and message.connected is not None and message.connected.resumed
    )
