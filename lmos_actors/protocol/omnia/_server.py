"""The server's end of one connection: it turns frames into events, and turns into frames. No socket, no
clock.

A connection has a session from the beginning, and the server's first frame names its id. A frame without a
session id belongs to that session. The first message without one is answered by the same announcement again,
as older facades do. The host carries out what clients ask for; this module has the rules of the wire:

- **A turn has one end.** `ServerTurn` writes chunks and calls until `done` or `fail`, and refuses any later
  ones.
- **Turns of a connection run one after the other.** The host gets each of them at once, and carries them out
  in order. Eight may wait; one more is refused with RATE_LIMITED.
- **A fault of a frame belongs to no session**: its error has no `session_id`, and the connection continues.
- **A medium** is sent in binary frames, or as text to a client that does not accept binary frames.
- **Calls of tools** that only show what the agent does are *shown*, and a client's answers to them are
  ignored. Calls that the client is asked to carry out are *open* until it has answered. An answer to any
  other call is a fault.

Instants are passed in as seconds of the host's clock; the dates on frames are from `now`.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from lmos_actors.errors import LocalProtocolError

from ._codec import Unreadable, read_client_frame, write_frame
from ._media import (
    BinaryFrame,
    MediaFrame,
    MediaInfo,
    SoundFrame,
    UnreadableMedia,
    media_frames,
    read_media_frame,
    write_media_frame,
)
from ._messages import (
    INVALID_MESSAGE,
    RATE_LIMITED,
    Announcement,
    AudioFormat,
    Call,
    CallEnded,
    Capabilities,
    Chunk,
    ClientToolResult,
    Connected,
    Done,
    ErrorFrame,
    Fault,
    Hangup,
    Interrupt,
    MediaChunk,
    MediaPiece,
    Outcome,
    Part,
    ServerMessage,
    SessionConfig,
    StoredUpload,
    ToolCall,
    ToolCallAck,
    ToolCallNack,
    ToolResult,
    UploadComplete,
    UploadReady,
    UploadRequest,
    UploadTicket,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ._messages import ClientMessage

MAX_WAITING: Final = 8
"""Turns of one connection that may wait behind the one in progress."""


@attrs.frozen(kw_only=True)
class ServerOptions:
    """The limits of a connection. Rates are per second; a burst is the amount that may arrive at once.

    `max_payload` limits the bytes of a frame, and is announced to the client. `binary`: the client accepts
    binary frames.
    """

    max_payload: int = 4 << 20
    binary: bool = False
    texts: float = 50.0
    texts_burst: int = 100
    media_bytes: float = 2 << 20
    media_burst: int = 16 << 20


# ---- what a client wants


@attrs.frozen
class MessageReceived:
    """A message for the agent. `turn` is its answer; `is_new`: its session has not been used before."""

    turn: ServerTurn
    message: UserMessage
    session_id: str
    is_new: bool


@attrs.frozen
class UploadWanted:
    """A request for a URL to which a file can be uploaded."""

    session_id: str
    request: UploadRequest


@attrs.frozen
class CallAccepted:
    """The client's report that it has accepted a call and that the result will follow."""

    call_id: str


@attrs.frozen
class CallAnswered:
    """The outcome of an open call: a result or an error. `refused`: the client did not carry out the call."""

    call_id: str
    result: Any | UnsetType = UNSET
    error: str | None = None
    refused: bool = False


@attrs.frozen
class MediaReceived:
    """A frame of sound. It belongs to the session of the connection, whatever session its metadata name."""

    frame: MediaFrame


@attrs.frozen
class HungUp:
    """The client's permanent end of its call."""


ServerEvent: TypeAlias = MessageReceived | UploadWanted | CallAccepted | CallAnswered | MediaReceived | HungUp


class ServerTurn:
    """The answer to one message. `session_id` is its session, which may differ from the requested one."""

    __slots__ = ("_connection", "_sent", "_text", "has_ended", "session_id")

    def __init__(self, connection: ServerConnection, session_id: str) -> None:
        self._connection = connection
        self._text: list[str] = []
        self._sent: dict[str, int] = {}  # frames of each medium that goes on
        self.session_id = session_id
        self.has_ended = False

    @property
    def text(self) -> str:
        """The text of all chunks so far."""
        return "".join(self._text)

    def chunk(self, text: str = "", *, parts: list[Part] | None = None, role: str | None = None) -> None:
        """Send a piece of the answer or, with `role` "user", of the transcript of the user's speech."""
        if role is None:
            self._text.append(text)
        self._send(Chunk(content=text or None, parts=parts, role=role))

    def media(self, media_id: str, data: bytes, mime_type: str, *, is_last: bool) -> None:
        """Send a piece of a medium in binary frames, or as text if the client does not accept binary frames.

        Raise ValueError for an id of more than 12 bytes.
        """
        number = self._sent.pop(media_id, 0)
        if self._connection.options.binary:
            self._check_open()
            info = MediaInfo(session_id=self.session_id, mime_type=mime_type)
            piece = MediaFrame(media_id=media_id, sequence=number, payload=data, is_last=is_last, info=info)
            number += self._connection.send_media(piece)
        else:
            text = b64encode(data).decode()
            self._send(
                MediaChunk(
                    media_chunk=MediaPiece(
                        media_id=media_id, sequence=number, is_last=is_last, data=text, mime_type=mime_type
                    )
                )
            )
            number += 1
        if not is_last:
            self._sent[media_id] = number

    def show_call(self, call: Call) -> None:
        """Show that the agent calls a tool."""
        self._send(self._connection.shown(call))

    def show_result(self, outcome: Outcome) -> None:
        """Show what a tool has returned."""
        self._send(ToolResult(tool_result=outcome))

    def ask(self, call: Call) -> None:
        """Ask the client to carry out a call."""
        self._connection.open_calls[call.id] = self
        self._send(ToolCall(tool_call=call))

    def give_up(self, call_id: str) -> None:
        """Stop waiting for the result of a call. A result that arrives later is a fault."""
        self._connection.open_calls.pop(call_id, None)

    def done(self, text: str | None = None, *, parts: list[Part] | None = None) -> None:
        """End the turn with the whole answer. By default `text` is the text of all chunks."""
        self._end(Done(content=(self.text if text is None else text) or None, parts=parts))

    def fail(self, code: str, message: str) -> None:
        """End the turn with an error."""
        self._end(ErrorFrame(error=Fault(code=code, message=message)))

    def _end(self, message: ServerMessage) -> None:
        self._send(message)
        self.has_ended = True
        self._connection.turn_ended(self)

    def _check_open(self) -> None:
        if self.has_ended:
            raise LocalProtocolError("the turn has ended: one `done` or `error` ends it")

    def _send(self, message: ServerMessage) -> None:
        self._check_open()
        self._connection.send_of_turn(message, self.session_id)


class _Rate:
    """A bucket that refills at `rate` per second up to `burst`."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left = rate, burst, burst
        self._at: float | None = None

    def take(self, amount: float, at: float) -> bool:
        if self._at is not None:
            self._left = min(self._burst, self._left + (at - self._at) * self._rate)
        self._at = at
        if self._left < amount:
            return False
        self._left -= amount
        return True


class ServerConnection:
    """One connection of a client. `begin` sends the announcement, which is the first frame.

    `new_id` makes the ids of sessions, and `now` returns the date for frames. `wake` is called when a frame
    is added to an empty queue, and `copy` with each frame of a turn and its session.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        new_id: Callable[[], str],
        now: Callable[[], datetime],
        wake: Callable[[], object] = lambda: None,
        copy: Callable[[ServerMessage, str], object] = lambda message, session_id: None,
    ) -> None:
        self.options = options
        self.session_id = new_id()
        """The session of messages that name none."""
        self.open_calls: dict[str, ServerTurn] = {}
        """Calls that the client is to carry out, and the turns that wait for them."""
        self.waiting_bytes = 0
        """Bytes of the frames that wait to be sent."""
        self._is_used = False  # a message has come for the session of the connection
        self._has_told = False  # which session a message without one belongs to
        self._new_id = new_id
        self._now = now
        self._wake = wake
        self._copy = copy
        self._turns: dict[ServerTurn, None] = {}
        self._shown: dict[str, None] = {}
        self._waiting: deque[bytes] = deque()
        self._texts = _Rate(options.texts, options.texts_burst)
        self._media = _Rate(options.media_bytes, options.media_burst)

    def begin(self, *, resumed: bool = False) -> None:
        """Send the announcement with the id of the connection's session. `resumed`: its call continues."""
        options = self.options
        known = Capabilities(binary_frames=options.binary, max_payload_size=options.max_payload)
        self.send(Connected(connected=Announcement(capabilities=known, resumed=resumed)), self.session_id)

    def adopt(self, session_id: str, *, resumed: bool = False) -> None:
        """Switch to another session, and announce it."""
        self.session_id, self._is_used = session_id, True
        self.begin(resumed=resumed)

    def is_unused(self, session_id: str) -> bool:
        """Return whether a session is the connection's own and has received no message yet."""
        return session_id == self.session_id and not self._is_used

    def use(self) -> bool:
        """Mark the session of the connection as used; return whether this is its first use."""
        is_new, self._is_used = not self._is_used, True
        return is_new

    @property
    def turns(self) -> int:
        """The number of turns that have not ended."""
        return len(self._turns)

    # ---- frames of the client

    def receive(self, text: str, at: float) -> ServerEvent | None:
        """Process a text frame; return what the host must do, or None if there is nothing to do."""
        if not self._texts.take(1, at):
            self._refuse(RATE_LIMITED, "rate limit exceeded")
            return None
        message = read_client_frame(text)
        if isinstance(message, Unreadable):
            self._refuse(INVALID_MESSAGE, f"invalid message: {message.reason}")
            return None
        return self._take(message)

    def receive_binary(self, data: bytes, at: float) -> ServerEvent | None:
        """Process a binary frame; see `receive`."""
        if not self._media.take(len(data), at):
            self._refuse(RATE_LIMITED, "media rate limit exceeded")
            return None
        if not self.options.binary:
            self._refuse(INVALID_MESSAGE, "binary frames need binary=true in the query")
            return None
        frame = read_media_frame(data)
        if isinstance(frame, UnreadableMedia):
            self._refuse(INVALID_MESSAGE, f"invalid binary frame: {frame.reason}")
            return None
        return MediaReceived(frame)

    def _take(self, message: ClientMessage) -> ServerEvent | None:
        if isinstance(message, UserMessage):
            return self._take_message(message)
        if isinstance(message, UploadRequest):
            return UploadWanted(self._session_of(message.session_id), message)
        if isinstance(message, Hangup):
            return HungUp()
        return self._take_answer(message)

    def _take_message(self, message: UserMessage) -> MessageReceived | None:
        session_id = self._session_of(message.session_id)
        if not message.session_id and not self._has_told:
            self._has_told = True
            self.begin()
        if len(self._turns) > MAX_WAITING:
            fault = Fault(code=RATE_LIMITED, message="too many in-flight requests")
            self.send(ErrorFrame(error=fault), session_id)
            return None
        is_new = session_id == self.session_id and self.use()
        turn = ServerTurn(self, session_id)
        self._turns[turn] = None
        return MessageReceived(turn, message, session_id, is_new)

    def _session_of(self, named: str | None) -> str:
        """Return the session that a frame names, or else the connection's."""
        return named or self.session_id

    def _take_answer(
        self, message: ClientToolResult | ToolCallAck | ToolCallNack
    ) -> CallAccepted | CallAnswered | None:
        if isinstance(message, ToolCallAck):
            call_id = message.tool_call_ack.call_id
            return CallAccepted(call_id) if call_id in self.open_calls else None
        if isinstance(message, ToolCallNack):
            call_id = message.tool_call_nack.call_id
            if self.open_calls.pop(call_id, None) is None:
                return None
            return CallAnswered(call_id, error=message.tool_call_nack.reason or "", refused=True)
        answer = message.tool_result
        if self.open_calls.pop(answer.call_id, None) is not None:
            result = None if answer.result is UNSET and answer.error is None else answer.result
            return CallAnswered(answer.call_id, result, answer.error)
        if answer.call_id not in self._shown:
            self._refuse(INVALID_MESSAGE, f"no pending tool call {answer.call_id[:32]!r}")
        return None

    def _refuse(self, code: str, message: str) -> None:
        self.send(ErrorFrame(error=Fault(code=code, message=message)), None)

    # ---- frames of the server

    def refuse(self, code: str, message: str, session_id: str | None) -> None:
        """Send an error that belongs to no turn."""
        self.send(ErrorFrame(error=Fault(code=code, message=message)), session_id)

    def offer_upload(self, ticket: UploadTicket, session_id: str) -> None:
        """Send the URL to which a client can upload a file."""
        self.send(UploadReady(upload_ready=ticket), session_id)

    def confirm_upload(self, stored: StoredUpload, session_id: str) -> None:
        """Report that a file has been uploaded."""
        self.send(UploadComplete(upload_complete=stored), session_id)

    def send_media(self, frame: MediaFrame) -> int:
        """Send a medium, in pieces if it is large; return the number of frames.

        Raise LocalProtocolError if the client accepts no binary frames, and ValueError for an id of more than
        12 bytes.
        """
        if not self.options.binary:
            raise LocalProtocolError("the client takes no binary frames")
        number = 0
        for data in media_frames(frame):
            self._put(BinaryFrame(data))
            number += 1
        return number

    def send_sound(self, data: bytes, number: int, mime_type: str, session_id: str) -> None:
        """Send a frame of sound of a call. Clients without binary frames have no calls."""
        info = MediaInfo(session_id=session_id, mime_type=mime_type)
        self._put(
            SoundFrame(write_media_frame(MediaFrame(media_id="", sequence=number, payload=data, info=info)))
        )

    def interrupt(self, session_id: str) -> None:
        """Drop the sound that is waiting to be sent, and tell the client to drop its unplayed sound."""
        kept = deque(frame for frame in self._waiting if not isinstance(frame, SoundFrame))
        self._waiting, self.waiting_bytes = kept, sum(map(len, kept))
        self.send(Interrupt(), session_id)

    def end_call(self, session_id: str) -> None:
        """Report to the client that the agent has ended the call."""
        self.send(CallEnded(), session_id)

    def configure(self, format: AudioFormat, session_id: str) -> None:
        """Send the format that was agreed on for the sound of a call."""
        self.send(SessionConfig(session_config=format), session_id)

    def send_of_turn(self, message: ServerMessage, session_id: str) -> None:
        """Send a frame of a turn. Only `ServerTurn` calls this."""
        self.send(message, session_id)
        self._copy(message, session_id)

    def send(self, message: ServerMessage, session_id: str | None) -> None:
        """Send a message with the date, and with the id of its session, if any."""
        date = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._put(write_frame(replace(message, session_id=session_id, timestamp=date)))

    def _put(self, frame: bytes) -> None:
        is_first = not self._waiting
        self._waiting.append(frame)
        self.waiting_bytes += len(frame)
        if is_first:
            self._wake()

    def frames(self, room: int) -> list[bytes]:
        """Remove and return waiting frames, oldest first, until they have `room` bytes or more."""
        taken: list[bytes] = []
        while self._waiting and room > 0:
            frame = self._waiting.popleft()
            self.waiting_bytes -= len(frame)
            room -= len(frame)
            taken.append(frame)
        return taken

    def shown(self, call: Call) -> ToolCall:
        """Return a frame that only shows a call, and remember the call so that an answer to it is ignored."""
        self._shown[call.id] = None
        if len(self._shown) > 256:  # calls that are remembered
            del self._shown[next(iter(self._shown))]
        return ToolCall(tool_call=replace(call, shown=True))

    def turn_ended(self, turn: ServerTurn) -> None:
        """Drop the open calls of a turn that has ended, and make room for another turn.

        Only `ServerTurn` calls this.
        """
        self._turns.pop(turn, None)
        for call_id in [each for each, of in self.open_calls.items() if of is turn]:
            del self.open_calls[call_id]
