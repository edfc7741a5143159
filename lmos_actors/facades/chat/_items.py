"""The values of conversations: the input of a chat agent, the items of its answer, the kept messages.

The items of an answer are **provisional** until `TurnDone`: they leave a durable agent at once
(`is_provisional`). They become final with `TurnDone`, which waits until the turn's changes are kept. A call
of a client's tool waits, too, as the tool has effects.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct

SESSION_EXPIRED: Final = "SESSION_EXPIRED"
RATE_LIMITED: Final = "RATE_LIMITED"
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
INVALID_MESSAGE: Final = "INVALID_MESSAGE"
TOOL_ERROR: Final = "TOOL_ERROR"
MEDIA_NOT_ENABLED: Final = "MEDIA_NOT_ENABLED"
GIVEN_UP: Final = "GIVEN_UP"
"""The code for a turn that was cut off by the end of its agent, and cannot be resumed."""

PartType: TypeAlias = Literal["text", "image", "audio", "video", "file"]


class ChatMedia(Struct, frozen=True, omit_defaults=True):
    """The content of a part: exactly one of `data` (base64), `url` and `storage_ref` is set."""

    mime_type: str
    data: str | None = None
    url: str | None = None
    storage_ref: str | None = None
    filename: str | None = None
    size_bytes: int | None = None


class ChatPart(Struct, frozen=True, omit_defaults=True):
    """A piece of content: `text`, or `media` of one of the other types."""

    type: PartType
    text: str | None = None
    media: ChatMedia | None = None


class TurnBegan(Struct, frozen=True, tag="began"):
    """The first item of an answer: its session, and whether the session is new."""

    is_provisional: ClassVar[bool] = True

    session: str
    is_new: bool


class TextChunk(Struct, frozen=True, tag="chunk", omit_defaults=True):
    """A piece of the answer. In a call, a piece with `role` "user" is the user's speech as understood."""

    is_provisional: ClassVar[bool] = True

    text: str = ""
    parts: list[ChatPart] = []
    role: Literal["agent", "user"] = "agent"


class MediaPiece(Struct, frozen=True, tag="media", omit_defaults=True):
    """A piece of sound, image or video that an answer streams. `sequence` counts from 0."""

    is_provisional: ClassVar[bool] = True

    media_id: str
    sequence: int
    data: bytes
    mime_type: str = ""
    is_last: bool = False


class ToolCalled(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """The agent calls a tool. `by_client` means a tool of the caller, who has to answer."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    by_client: bool = False
    consent_message: str | None = None
    categories: list[str] = []

    @property
    def is_provisional(self) -> bool:
        """Whether the item only shows a tool call, and does not ask the client to carry it out."""
        return not self.by_client


class ToolReturned(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The result of a tool, or the reason why there is none."""

    is_provisional: ClassVar[bool] = True

    id: str
    result: Any = None
    error: str | None = None


class TurnDone(Struct, frozen=True, tag="done", omit_defaults=True):
    """The last item of an answer, with the whole answer. `is_cut` means that it was too long and was cut."""

    text: str = ""
    parts: list[ChatPart] = []
    is_cut: bool = False


ChatItem: TypeAlias = TurnBegan | TextChunk | MediaPiece | ToolCalled | ToolReturned | TurnDone


class SoundFormat(Struct, frozen=True):
    """The coding of sound. `pcm` has samples of 16 bits, little-endian; `sample_rate` is in Hz."""

    codec: str = "pcm"
    sample_rate: int = 16_000
    channels: int = 1


class CallBegan(Struct, frozen=True, tag="began"):
    """The first item of a call: its session, whether the session is new, and the coding of the sound."""

    is_provisional: ClassVar[bool] = True

    session: str
    is_new: bool
    format: SoundFormat


class Sound(Struct, frozen=True, tag="sound"):
    """A piece of sound, to be played after earlier pieces."""

    is_provisional: ClassVar[bool] = True

    data: bytes


class Interrupted(Struct, frozen=True, tag="interrupted"):
    """The user has begun to speak: drop the sound that waits to be played."""

    is_provisional: ClassVar[bool] = True


CallItem: TypeAlias = CallBegan | Sound | Interrupted | TextChunk | ToolCalled | ToolReturned | TurnDone


class ClientAnswer(Struct, frozen=True, omit_defaults=True):
    """The caller's answer to a call of one of its tools.

    `kind` is "accepted" if the result will follow, and "refused" if it will not. Otherwise the result is in
    `result`, or `error` is the reason why there is none.
    """

    call_id: str
    kind: Literal["accepted", "result", "error", "refused"]
    result: Any = None
    error: str = ""


class TurnFailure(Struct, frozen=True):
    """The reason why a turn has no answer."""

    code: str
    message: str


class Said(Struct, frozen=True, omit_defaults=True):
    """An earlier message: its author, content and time (Unix time)."""

    role: Literal["user", "agent"]
    text: str
    at: float
    parts: list[ChatPart] = []
    failed: Annotated[
        TurnFailure | None,
        Meta(description="Why there is no answer, or only the beginning of one."),
    ] = None


class Recalled(Said, frozen=True, omit_defaults=True):
    """An earlier message as its agent recalls it: `notes` belong to the turn that it ends."""

    notes: list[Any] = []


class SessionEntry(Struct, frozen=True, omit_defaults=True):
    """A session of the caller. Times are Unix time."""

    id: Annotated[str, Meta(description="To be named by the next message.")]
    began: float
    until: Annotated[float, Meta(description="When it expires, unless it goes on.")]
    messages: int
    in_progress: Annotated[bool, Meta(description="Whether a turn is in progress, or waits.")] = False
    kept: Annotated[bool, Meta(description="Whether it outlives the process: the node has a store.")] = True
