"""The frames of one connection of Omnia's chat protocol: messages, and the answers to them.

A chat agent carries out only one turn of a session at a time, so the answers of a connection arrive in the
order of its messages. The items of an answer are its text, and everything else that it shows and sends: calls
of tools and their results, parts that are not text, pieces of media. A voice call is also a request: what is
written during the call is recorded, but not its sound.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors._core import HIDDEN
from lmos_actors.errors import ActionFailed
from lmos_actors.facades.chat import ChatPart, MediaPiece, TextChunk, ToolCalled, ToolReturned
from lmos_actors.files import mapped
from lmos_actors.protocol import omnia

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.facades.chat import ChatItem

    from ._transcript import Transcript

MESSAGE: Final = "message"
"""The action of a request, as mocks that speak this protocol have it."""

CALL: Final = "call"
"""The action of a request that is a call with sound, which replays do not play."""

MOST: Final = 64
"""Maximum messages that wait for their answers; facades refuse more than a few."""


class OmniaConversation:
    """One connection to a chat agent. `agent` and `session` name the agent and its session in recordings."""

    def __init__(self, transcript: Transcript, agent: str, session: str) -> None:
        self._transcript = transcript
        self._session = session
        self._agent = agent
        self._open: deque[int] = deque()
        self._shown = False  # whether the first of them has had an item
        self._call: int | None = None
        self._has_hung_up = False
        transcript.begin(agent)

    # ---- what the client says

    def from_client(self, content: str | bytes) -> None:
        """Record a frame of the client."""
        if isinstance(content, bytes):
            self._sound(content)
            return
        message = omnia.read_client_frame(content)
        if isinstance(message, omnia.Unreadable):
            self._transcript.unread += 1
        elif isinstance(message, omnia.UserMessage) and len(self._open) < MOST:
            self._message(message)
        elif isinstance(message, omnia.ClientToolResult):
            outcome = message.tool_result
            self._returned(outcome.call_id, outcome.result, outcome.error)
        elif isinstance(message, omnia.ToolCallNack):
            refused = message.tool_call_nack
            self._returned(refused.call_id, None, refused.reason or "refused")
        elif isinstance(message, omnia.Hangup):
            self._has_hung_up = True

    def _message(self, message: omnia.UserMessage) -> None:
        text = "".join(part.text or "" for part in message.parts or ()) or message.content
        said: dict[str, Any] = {"content": text or ""}
        if message.metadata:
            said["metadata"] = message.metadata
        media = [msgspec.to_builtins(part) for part in self._parts(message.parts) if part.type != "text"]
        for part in media:
            if "storage_ref" in part["media"]:  # the place of its file differs from session to session
                part["media"]["storage_ref"] = HIDDEN
        if media:
            said["parts"] = media
        self._open.append(self._ask(MESSAGE, said))

    def _ask(self, action: str, given: dict[str, Any]) -> int:
        shown = self._transcript.redaction.frame(given)
        more = {"session": self._session}
        return self._transcript.sent(self._agent, "invoke", action, shown, more=more)

    def _sound(self, content: bytes) -> None:
        frame = omnia.read_media_frame(content)
        if isinstance(frame, omnia.UnreadableMedia):
            self._transcript.unread += 1
            return
        if self._call is None:
            self._call = self._ask(CALL, {"format": msgspec.to_builtins(frame.info)})
            self._has_hung_up = False
        self._has_hung_up = self._has_hung_up or frame.is_last

    def _end_call(self) -> None:
        if self._call is not None:
            self._transcript.answered(self._agent, CALL, self._call, None)
            self._call = None

    def left(self) -> None:
        """Record that the client has left: the turns that it has requested are cancelled."""
        while self._open:
            self._transcript.cancelled(self._agent, MESSAGE, self._open.popleft())
        if self._has_hung_up:
            self._end_call()
        elif self._call is not None:
            self._transcript.cancelled(self._agent, CALL, self._call)
            self._call = None

    # ---- what the server says

    def from_server(self, content: str | bytes) -> None:
        """Record a frame of the server."""
        if isinstance(content, bytes):
            frame = omnia.read_media_frame(content)
            if isinstance(frame, omnia.UnreadableMedia):
                self._transcript.unread += 1
                return
            kind = frame.info.mime_type or ""
            self._show(MediaPiece(frame.media_id, frame.sequence, frame.payload, kind, frame.is_last))
            return
        message = omnia.read_server_frame(content)
        if isinstance(message, omnia.Unreadable):
            self._transcript.unread += 1
        elif isinstance(message, omnia.Chunk):
            self._chunk(message.content, message.parts, message.role)
        elif isinstance(message, omnia.ToolCall):
            call = message.tool_call
            given, consent, categories = mapped(call.arguments), call.consent_message, call.categories or []
            self._show(ToolCalled(call.id, call.name, given, False, consent, categories))
        elif isinstance(message, omnia.ToolResult):
            outcome = message.tool_result
            self._returned(outcome.id, outcome.result, outcome.error)
        elif isinstance(message, omnia.MediaChunk):
            self._show(msgspec.convert(msgspec.to_builtins(message.media_chunk), MediaPiece))
        elif isinstance(message, omnia.Done) and self._open:
            if not self._shown and message.parts:  # else all of it has been in chunks
                self._chunk(message.content, message.parts, None)
            self._shown = False
            self._transcript.answered(self._agent, MESSAGE, self._open.popleft(), message.content)
        elif isinstance(message, omnia.Done) and self._has_hung_up:
            self._end_call()
        elif isinstance(message, omnia.ErrorFrame) and message.session_id is not None and self._open:
            self._shown = False
            output = self._transcript.redaction.frame(
                {"code": message.error.code, "message": message.error.message}
            )
            number = self._open.popleft()
            self._transcript.failed(self._agent, MESSAGE, number, ActionFailed(output), output)

    def _chunk(self, text: str | None, parts: Sequence[omnia.Part] | None, role: str | None) -> None:
        media = [part for part in self._parts(parts) if part.type != "text"]
        said = text or "".join(part.text or "" for part in parts or ())
        if role == "user":
            if self._call is not None:
                self._show(TextChunk(said, role="user"))
        elif media:
            self._show(TextChunk(said, media))
        elif said:
            self._item(said)

    def _parts(self, parts: Sequence[omnia.Part] | None) -> list[ChatPart]:
        """Return parts in the form that chat agents use. One without such a form counts as not understood."""
        found: list[ChatPart] = []
        for part in parts or ():
            try:
                found.append(msgspec.convert(msgspec.to_builtins(part), ChatPart))
            except msgspec.ValidationError:
                self._transcript.unread += 1
        return found

    def _returned(self, call_id: str, result: Any, error: str | None) -> None:
        value = None if result is msgspec.UNSET else result
        self._show(ToolReturned(call_id, value, error))

    def _show(self, item: ChatItem) -> None:
        """Record an item that is not plain text. Media outside a turn are a call's sound and are left out."""
        if self._open or not isinstance(item, MediaPiece):
            self._item(self._transcript.redaction.frame(msgspec.to_builtins(item)))

    def _item(self, value: Any) -> None:
        if self._open:
            self._shown = True
            self._transcript.item(self._agent, MESSAGE, self._open[0], value)
        elif self._call is not None:
            self._transcript.item(self._agent, CALL, self._call, value)
