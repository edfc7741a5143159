"""Models of OpenAI, and of endpoints with its chat completions: vLLM, Ollama, llama.cpp and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ._families import check_family, family_of
from ._keys import OPENAI_URL
from ._provider_model import ProviderModel

if TYPE_CHECKING:
    from ._client import Format


class OpenAIModel(ProviderModel):
    """A model of OpenAI, or of any endpoint at `url` that has its chat completions.

    `key` is a reference to the key, `env:NAME` or `file:PATH`, which is read again when it changes; None for
    endpoints without a key. An answer has at most `max_tokens`, which a request may lower. `temperature`
    applies to requests that set none. `options` are further members of each request, under the provider's
    names, such as `{"reasoning_effort": "low"}`.

    An option that is None removes the member of that name from requests. `rename` gives members other names:
    `{"max_tokens": "max_completion_tokens"}`.

    `family` selects the rules of the endpoint: `openai`, `anthropic`, `gemini`, `mistral` or `ollama`. With
    None it is derived from `model` and `url`.

    A failure that may pass is retried up to `retries` times, as long as no item has arrived and the caller's
    deadline allows it. `connect_seconds` bounds the time to connect, `idle_seconds` the silence between two
    pieces of an answer, `answer_seconds` the time from its first byte to its end.

    Raises ConfigError, also without the extra `llm`. The start of the agent raises ForbiddenCall on virtual
    time.
    """

    provider_name: ClassVar[str] = "openai"

    key: str | None = "env:OPENAI_API_KEY"
    url: str = OPENAI_URL
    family: str | None = None

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.family is None:
            self.family = family_of(self.model, self.url)
        check_family(self.family, f"{type(self).__name__}.family")

    def _format(self) -> tuple[Format, str]:
        from ._openai_format import FORMAT

        return FORMAT, self.family or ""
