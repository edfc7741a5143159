"""The data types of models: the parts of a request, and the items of an answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct


class ModelFile(Struct, frozen=True, omit_defaults=True):
    """A picture or a document in a message: its content, or the `url` at which the provider reads it."""

    mime_type: str
    data: bytes = b""
    url: str = ""
    name: str = ""


class ToolRequest(Struct, frozen=True, tag="tool_request", omit_defaults=True):
    """The model's request to call a tool. `id` is the provider's.

    `unreadable` is the received text if it is not a JSON object, and so cannot be `arguments`. The tool must
    not be called then.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unreadable: str = ""


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """A piece of the model's reasoning before it answers; `state` is returned to the provider unchanged."""

    text: str = ""
    state: str = ""


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", omit_defaults=True):
    """A message from the user to the model."""

    text: str = ""
    files: list[ModelFile] = []


class ModelMessage(Struct, frozen=True, tag_field="role", tag="model", omit_defaults=True):
    """A message from the model: text, requests for tools, or both."""

    text: str = ""
    tools: list[ToolRequest] = []
    reasoning: list[Reasoning] = []


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool", omit_defaults=True):
    """The result of the tool request `id`, or the reason why there is no result.

    If `unknown` is true, the tool may have done its work or not, so the same call must not be made again.
    """

    id: str
    name: str
    result: Any = None
    error: str = ""
    unknown: bool = False


Message: TypeAlias = UserMessage | ModelMessage | ToolMessage


class ToolOffer(Struct, frozen=True, omit_defaults=True):
    """A tool that the model may request; `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class ModelRequest(Struct, frozen=True, omit_defaults=True):
    """The complete input of a model, which remembers nothing between two requests.

    `answer` is a JSON Schema that the text of the answer has to meet.
    """

    messages: Annotated[list[Message], Meta(min_length=1)]
    instructions: str = ""
    tools: list[ToolOffer] = []
    answer: dict[str, Any] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """A piece of the text of the answer."""

    text: str


class Usage(Struct, frozen=True, tag="usage", omit_defaults=True):
    """The tokens of one request, as counted by the provider; `cached` input tokens were in its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0

    @property
    def tokens(self) -> int:
        """The total number of tokens, of the input and of the output."""
        return self.input_tokens + self.output_tokens


StopReason: TypeAlias = Literal["stop", "tools", "length", "refused"]


class ModelEnd(Struct, frozen=True, tag="end", omit_defaults=True):
    """The last item of an answer.

    `reason` is `stop` if the answer is complete, `tools` if the model waits for tools, `length` if
    `max_tokens` cut the answer, and `refused` if the model declines to answer. `model` is the name of the
    model that answered. `said` is the provider's own word for a reason that is none of these; the answer then
    counts as whole.
    """

    reason: StopReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    said: str = ""


ModelItem: TypeAlias = TextDelta | Reasoning | ToolRequest | ModelEnd
