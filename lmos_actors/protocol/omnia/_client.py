"""The client's end of one connection: messages to an agent, and the meaning of its frames. No socket, no
clock.

Facades differ, and a client has to work with all of them (`docs/explanation/omnia.md`):

- The oldest facade sends no frame before the first message, and the newest announces a session at once. So
  the first message waits for nothing, and **the newest `session_id` of any frame is the session**. An
  announcement does not replace a session that the client resumes, because the newest facade announces another
  one anyway.
- The newest facade asks clients to carry out calls of tools. The oldest treats every frame of a client as a
  message, even an answer to a call. So **a client answers calls only after a session was announced without a
  request**: the oldest announces one only in answer to a message without a session. Calls that are marked as
  shown, as ours are, need no answer.
- The newest facade refuses a message that is sent just as the previous turn ends. That is not a failure:
  **that turn has never begun**, and may be requested again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
from msgspec import UNSET, UnsetType

from lmos_actors.errors import LocalProtocolError

from ._codec import UnknownFrame, Unreadable, read_server_frame, write_frame
from ._media import BinaryFrame, MediaFrame, MediaInfo, UnreadableMedia, read_media_frame, write_media_frame
from ._messages import (
    INVALID_MESSAGE,
    RATE_LIMITED,
    CallId,
    ClientToolResult,
    Connected,
    Done,
    ErrorFrame,
    Hangup,
    Part,
    Refusal,
    ToolAnswer,
    ToolCall,
    ToolCallAck,
    ToolCallNack,
    UploadComplete,
    UploadOrder,
    UploadReady,
    UploadRequest,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._messages import AudioFormat, ClientMessage, ServerMessage

Stage: TypeAlias = Literal["none", "unsent", "sent", "begun"]
"""The progress of a turn: there is none; its message waits here; it has been sent; frames of it have come."""

End: TypeAlias = Literal["done", "failed", "refused"]
"""The end of a turn: an answer; an error; or a refusal before it began, so that it may be asked for again."""

OF_NO_TURN: Final = (Connected, UploadReady, UploadComplete)
"""The frames of a server, except errors, that belong to no turn."""

_REFUSALS: Final = (RATE_LIMITED, INVALID_MESSAGE)


@attrs.frozen
class ServerSaid:
    """A frame of the server. `ends` is how it ends the turn, if it does. `asks`: it is a call to answer."""

    message: ServerMessage | UnknownFrame | Unreadable
    ends: End | None = None
    asks: bool = False


class ClientConnection:
    """One connection to an agent.

    `session_id` is the session to resume. `wake` is called when a frame is added to an empty queue.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self.session_id = session_id
        """The session of the next message; None for a new one."""
        self.stage: Stage = "none"
        """The progress of the turn."""
        self.unread = 0
        """Frames that could not be read, or whose type is not known."""
        self._wake = wake
        self._unasked = 0  # announcements, without those that messages ask for
        self.is_announced = False
        """Whether the server has announced a session that the client had not asked for."""
        self._resumes = session_id is not None  # until a frame of a turn shows what has become of it
        self._waiting: deque[tuple[bytes, bool]] = deque()

    # ---- to the server

    def send_message(
        self,
        content: str = "",
        *,
        parts: Sequence[Part] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message to the agent, which begins a turn.

        Raise LocalProtocolError while a turn is in progress, ValueError for a message without content.
        """
        if self.stage != "none":
            raise LocalProtocolError("a turn is in progress: the next message goes out when it has ended")
        if not content and not parts:
            raise ValueError("a message has content or parts")
        self.stage = "unsent"
        self._unasked -= self.session_id is None
        self._put(
            UserMessage(
                session_id=self.session_id,
                content=content or None,
                parts=list(parts) or None,
                metadata=dict(metadata) if metadata else None,
            ),
            is_message=True,
        )

    def accept_call(self, call_id: str) -> None:
        """Report that the result of a call will follow."""
        self._put(ToolCallAck(session_id=self.session_id, tool_call_ack=CallId(call_id=call_id)))

    def answer_call(self, call_id: str, result: Any | UnsetType = UNSET, error: str | None = None) -> None:
        """Send the result of a call, or its error. Raise TypeError for a result without a JSON form."""
        answer = ToolAnswer(call_id=call_id, result=result, error=error)
        self._put(ClientToolResult(session_id=self.session_id, tool_result=answer))

    def refuse_call(self, call_id: str, reason: str) -> None:
        """Refuse to carry out a call."""
        refusal = Refusal(call_id=call_id, reason=reason)
        self._put(ToolCallNack(session_id=self.session_id, tool_call_nack=refusal))

    def request_upload(self, filename: str, mime_type: str, size_bytes: int) -> None:
        """Request a URL to which a file can be uploaded."""
        order = UploadOrder(filename=filename, mime_type=mime_type, size_bytes=size_bytes)
        self._put(UploadRequest(session_id=self.session_id, upload_request=order))

    def send_sound(self, data: bytes, number: int, format: AudioFormat, *, is_last: bool = False) -> None:
        """Send a frame of sound, which begins or continues a call; the last one ends the call."""
        info = MediaInfo(
            session_id=self.session_id,
            mime_type=f"audio/{format.codec}",
            codec=format.codec,
            sample_rate=format.sample_rate,
            channels=format.channels,
        )
        frame = MediaFrame(media_id="", sequence=number, payload=data, is_last=is_last, info=info)
        self._put_frame(BinaryFrame(write_media_frame(frame)))

    def hang_up(self) -> None:
        """End a call permanently."""
        self._put(Hangup(session_id=self.session_id))

    @property
    def waiting(self) -> int:
        """The number of frames that wait to be sent."""
        return len(self._waiting)

    def _put(self, message: ClientMessage, *, is_message: bool = False) -> None:
        self._put_frame(write_frame(message), is_message=is_message)

    def _put_frame(self, frame: bytes, *, is_message: bool = False) -> None:
        is_first = not self._waiting
        self._waiting.append((frame, is_message))
        if is_first:
            self._wake()

    def frames(self, room: int) -> list[bytes]:
        """Remove and return waiting frames, oldest first, until they have `room` bytes or more."""
        taken: list[bytes] = []
        while self._waiting and room > 0:
            frame, is_message = self._waiting.popleft()
            if is_message:
                self.stage = "sent"
            room -= len(frame)
            taken.append(frame)
        return taken

    # ---- from the server

    def receive(self, text: str) -> ServerSaid:
        """Process a text frame, and return its meaning."""
        message = read_server_frame(text)
        if isinstance(message, Unreadable | UnknownFrame):
            self.unread += 1
            return ServerSaid(message)
        is_announcement = isinstance(message, Connected)
        self._unasked += is_announcement
        self.is_announced = self.is_announced or self._unasked > 0
        if message.session_id and not (is_announcement and self._resumes):
            self.session_id = message.session_id
        self._resumes = self._resumes and is_announcement
        if isinstance(message, Done):
            return self._ended(message, "done")
        if isinstance(message, ErrorFrame):
            return self._failed(message)
        if self.stage == "sent" and not isinstance(message, OF_NO_TURN):
            self.stage = "begun"
        asks = isinstance(message, ToolCall) and self.is_announced and not message.tool_call.shown
        return ServerSaid(message, asks=asks)

    def receive_binary(self, data: bytes) -> MediaFrame | UnreadableMedia:
        """Process a binary frame, and return its content."""
        frame = read_media_frame(data)
        if isinstance(frame, UnreadableMedia):
            self.unread += 1
        elif self.stage == "sent":
            self.stage = "begun"
        return frame

    def _failed(self, message: ErrorFrame) -> ServerSaid:
        """Determine what an error is about: the turn, its message, or another frame."""
        if self.stage in ("none", "unsent"):
            return ServerSaid(message)
        if self.stage == "sent" and message.error.code in _REFUSALS:
            return self._ended(message, "refused")
        if message.session_id is None and self.stage == "begun":
            return ServerSaid(message)  # such as the late answer to a call
        return self._ended(message, "failed")

    def _ended(self, message: ServerMessage, end: End) -> ServerSaid:
        if self.stage not in ("sent", "begun"):
            return ServerSaid(message)
        self.stage = "none"
        return ServerSaid(message, ends=end)
