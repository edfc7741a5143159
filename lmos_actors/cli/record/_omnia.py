"""The frames of one connection of Omnia's chat protocol: messages, and the answers to them.

A chat agent has one turn of a session at a time, so the answers of a connection come in the order of its
messages. Frames about tools, files and calls are written as frames, and are no part of an answer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.errors import ActionFailed
from lmos_actors.protocol import omnia

if TYPE_CHECKING:
    from ._transcript import Transcript

MESSAGE: Final = "message"
"""The action of a request, as mocks that speak this protocol have it."""

MOST: Final = 64
"""Messages that wait for their answers; facades refuse more than a few."""


class OmniaConversation:
    """One connection to a chat agent, which recordings call `agent`; its sessions are one, `session`."""

    def __init__(self, transcript: Transcript, agent: str, session: str) -> None:
        self._transcript = transcript
        self._session = session
        self._agent = agent
        self._open: deque[int] = deque()
        transcript.begin(agent)

    def from_client(self, content: str | bytes) -> None:
        """Take a frame of the client."""
        if isinstance(content, bytes):
            return
        message = omnia.read_client_frame(content)
        if isinstance(message, omnia.Unreadable):
            self._transcript.unread += 1
        elif isinstance(message, omnia.UserMessage) and len(self._open) < MOST:
            text = message.content if not message.parts else "".join(p.text or "" for p in message.parts)
            said: dict[str, Any] = {"content": text or ""}
            if message.metadata:
                said["metadata"] = message.metadata
            given = self._transcript.redaction.frame(said)
            more = {"session": self._session}
            self._open.append(self._transcript.sent(self._agent, "invoke", MESSAGE, given, more=more))

    def left(self) -> None:
        """Take note that the client has left: the turns that it has asked for are cancelled."""
        while self._open:
            self._transcript.cancelled(self._agent, MESSAGE, self._open.popleft())

    def from_server(self, content: str | bytes) -> None:
        """Take a frame of the server."""
        if isinstance(content, bytes):
            return
        message = omnia.read_server_frame(content)
        if isinstance(message, omnia.Unreadable):
            self._transcript.unread += 1
        if not self._open:
            return
        number = self._open[0]
        if isinstance(message, omnia.Chunk) and message.role != "user" and message.content:
            self._transcript.item(self._agent, MESSAGE, number, message.content)
        elif isinstance(message, omnia.Done):
            self._open.popleft()
            self._transcript.answered(self._agent, MESSAGE, number, message.content)
        elif isinstance(message, omnia.ErrorFrame) and message.session_id is not None:
            self._open.popleft()
            output = self._transcript.redaction.frame(
                {"code": message.error.code, "message": message.error.message}
            )
            self._transcript.failed(self._agent, MESSAGE, number, ActionFailed(output), output)
