"""The frames of Omnia's chat protocol, one struct each; text frames are JSON, binary ones in `_media.py`.

Only this module defines the names on the wire. The newest facade that was recorded uses all of them, older
ones fewer. An optional member that is absent is None. An absent result of a tool is UNSET, because null is a
result. Empty texts and lists are not written: facades write none, and clients expect none.

A member with the name of the frame's type holds the data of that type: `{"type": "upload_ready",
"upload_ready": {...}}`. In frames that carry text it is beside the type: `content`, `parts`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

PROTOCOL_VERSION: Final = 1
"""The only version of the protocol; announcements and binary frames name it."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]


class _Value(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A value inside a frame. Unknown members are ignored."""


# ---- content


class Media(_Value, frozen=True):
    """The content of a part: exactly one of `data` (base64), `url` and `storage_ref` is set."""

    mime_type: str = ""
    data: str | None = None
    url: str | None = None
    storage_ref: str | None = None
    filename: str | None = None
    size_bytes: int | None = None
    width: int | None = None
    height: int | None = None
    detail: str | None = None
    duration_ms: int | None = None
    sample_rate: int | None = None
    channels: int | None = None


class Part(_Value, frozen=True):
    """A piece of content: `text`, or `media` of type image, audio, video or file."""

    type: str
    text: str | None = None
    media: Media | None = None


PART_TYPES: Final = ("text", "image", "audio", "video", "file")


# ---- what a client sends


class ClientFrame(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """A frame of a client. Without `session_id` it belongs to the session of its connection."""

    session_id: str | None = None


class UserMessage(ClientFrame, tag="message", frozen=True):
    """A message to the agent: `parts`, or else `content`."""

    content: str | None = None
    parts: list[Part] | None = None
    metadata: dict[str, Any] | None = None
    consent_grants: list[str] | None = None
    session_consent_grants: list[str] | None = None


class UploadOrder(_Value, frozen=True):
    """A file to upload."""

    filename: str
    mime_type: str
    size_bytes: Annotated[int, Meta(gt=0)]


class UploadRequest(ClientFrame, tag="upload_request", frozen=True):
    """A request for a URL to which a file can be uploaded, answered by an upload_ready."""

    upload_request: UploadOrder


class ToolAnswer(_Value, frozen=True):
    """The outcome of a tool call: a result or an error. If both are absent, the result is null."""

    call_id: str
    result: Any | UnsetType = UNSET
    error: str | None = None


class ClientToolResult(ClientFrame, tag="tool_result", frozen=True):
    """The client's answer to a tool_call of the server."""

    tool_result: ToolAnswer


class CallId(_Value, frozen=True):
    """The id of a tool call."""

    call_id: str


class ToolCallAck(ClientFrame, tag="tool_call_ack", frozen=True):
    """A confirmation that a tool call has arrived and that its result will follow."""

    tool_call_ack: CallId


class Refusal(_Value, frozen=True):
    """A tool call that is not carried out, with the reason."""

    call_id: str
    reason: str | None = None


class ToolCallNack(ClientFrame, tag="tool_call_nack", frozen=True):
    """The client's refusal of a tool call."""

    tool_call_nack: Refusal


class Hangup(ClientFrame, tag="hangup", frozen=True):
    """The permanent end of a call, which is not kept for a client that reconnects."""


ClientMessage: TypeAlias = (
    UserMessage | UploadRequest | ClientToolResult | ToolCallAck | ToolCallNack | Hangup
)


# ---- what a server sends


class ServerFrame(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """A frame of a server. Without `session_id` it is about a frame that could not be understood.

    `timestamp` is RFC 3339 text in UTC, with up to nine decimals of the second; it is kept as received.
    """

    session_id: str | None = None
    timestamp: str | None = None


class Capabilities(_Value, frozen=True, omit_defaults=False):
    """The features that a connection offers. `max_payload_size` limits the frames to the server, in bytes."""

    binary_frames: bool
    max_payload_size: int
    protocol_version: int = PROTOCOL_VERSION


class Announcement(_Value, frozen=True):
    """The extension of a `connected` frame; `resumed` is whether a call continues."""

    capabilities: Capabilities | None = None
    resumed: bool = False


class Connected(ServerFrame, tag="connected", frozen=True):
    """The announcement of the connection's session."""

    connected: Announcement | None = None


class Chunk(ServerFrame, tag="chunk", frozen=True):
    """A piece of the answer; with `role` "user", a piece of the transcript of the user's speech."""

    content: str | None = None
    parts: list[Part] | None = None
    role: str | None = None


class Done(ServerFrame, tag="done", frozen=True):
    """The end of a turn: the whole answer."""

    content: str | None = None
    parts: list[Part] | None = None


class Call(_Value, frozen=True):
    """A call of a tool. All recorded `arguments` are objects, but any JSON is accepted.

    `shown` is our own addition: the call must not be answered. In other facades that depends on the version.
    """

    id: str
    name: str = ""
    arguments: Any | UnsetType = UNSET
    consent_message: str | None = None
    categories: list[str] | None = None
    shown: bool = False


class ToolCall(ServerFrame, tag="tool_call", frozen=True):
    """A call of a tool that is only shown to the client, or that the client is asked to carry out."""

    tool_call: Call


class Outcome(_Value, frozen=True):
    """The outcome of a tool call that was shown."""

    id: str
    result: Any | UnsetType = UNSET
    error: str | None = None


class ToolResult(ServerFrame, tag="tool_result", frozen=True):
    """The outcome of a tool call, shown to the client."""

    tool_result: Outcome


class Fault(_Value, frozen=True, omit_defaults=False):
    """A refusal or failure, with its reason. `code` is one of `CODES`, or another server's own."""

    code: str
    message: str
    details: Any | UnsetType = UNSET


class ErrorFrame(ServerFrame, tag="error", frozen=True):
    """A frame that refuses another frame, or ends a turn. It never closes the connection."""

    error: Fault


class UploadTicket(_Value, frozen=True):
    """The URL for the PUT of a file, the time at which the URL expires, and the file's later name."""

    upload_id: str
    upload_url: str
    storage_ref: str
    expires_at: str | None = None


class UploadReady(ServerFrame, tag="upload_ready", frozen=True):
    """The answer to an upload_request."""

    upload_ready: UploadTicket


class StoredUpload(_Value, frozen=True):
    """A file that has been uploaded."""

    upload_id: str
    storage_ref: str
    size_bytes: int | None = None


class UploadComplete(ServerFrame, tag="upload_complete", frozen=True):
    """A report that a file has been uploaded."""

    upload_complete: StoredUpload


class MediaPiece(_Value, frozen=True, omit_defaults=False):
    """A piece of a medium; `data` is base64, `sequence` counts from 0."""

    media_id: str
    sequence: Count
    is_last: bool
    data: str = ""
    mime_type: str = ""


class MediaChunk(ServerFrame, tag="media_chunk", frozen=True):
    """A piece of sound, image or video, for clients without binary frames."""

    media_chunk: MediaPiece


class Interrupt(ServerFrame, tag="interrupt", frozen=True):
    """A report that the user has begun to speak. Sound that is waiting to be played must be dropped."""


class CallEnded(ServerFrame, tag="hangup", frozen=True):
    """A report that the agent has ended the call.

    This is our own addition: other facades end calls without a message.
    """


class AudioFormat(_Value, frozen=True):
    """The coding of sound. `sample_rate` in Hz."""

    codec: str = ""
    sample_rate: int | None = None
    channels: int | None = None


class SessionConfig(ServerFrame, tag="session_config", frozen=True):
    """The coding of sound in a call."""

    session_config: AudioFormat


ServerMessage: TypeAlias = (
    Connected
    | Chunk
    | Done
    | ToolCall
    | ToolResult
    | ErrorFrame
    | UploadReady
    | UploadComplete
    | MediaChunk
    | Interrupt
    | CallEnded
    | SessionConfig
)


# ---- codes

INVALID_MESSAGE: Final = "INVALID_MESSAGE"
SESSION_NOT_FOUND: Final = "SESSION_NOT_FOUND"
PROVIDER_ERROR: Final = "PROVIDER_ERROR"
TOOL_ERROR: Final = "TOOL_ERROR"
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
SESSION_EXPIRED: Final = "SESSION_EXPIRED"
RATE_LIMITED: Final = "RATE_LIMITED"
UPLOAD_FAILED: Final = "UPLOAD_FAILED"
MEDIA_NOT_ENABLED: Final = "MEDIA_NOT_ENABLED"
UNSATISFIABLE_FORMAT: Final = "UNSATISFIABLE_FORMAT"

OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"
"""Our own code: the agent ended during the turn, and may go on with it. To other clients it is any error."""

CODES: Final = (
    INVALID_MESSAGE,
    SESSION_NOT_FOUND,
    PROVIDER_ERROR,
    TOOL_ERROR,
    INTERNAL_ERROR,
    SESSION_EXPIRED,
    RATE_LIMITED,
    UPLOAD_FAILED,
    MEDIA_NOT_ENABLED,
    UNSATISFIABLE_FORMAT,
    OUTCOME_UNKNOWN,
)
"""The codes that our servers send. Clients accept any text."""

CLIENT_TYPES: Final = tuple(str(kind.__struct_config__.tag) for kind in ClientMessage.__args__)
SERVER_TYPES: Final = tuple(str(kind.__struct_config__.tag) for kind in ServerMessage.__args__)
