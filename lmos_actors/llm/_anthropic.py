"""Models of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ._keys import ANTHROPIC_URL
from ._provider_model import ProviderModel

if TYPE_CHECKING:
    from ._client import Format


class AnthropicModel(ProviderModel):
    """A model of Anthropic, or of any endpoint at `url` that uses its message format.

    `key` is a reference to the key, `env:NAME` or `file:PATH`, which is read again when it changes; None for
    endpoints without a key. An answer has at most `max_tokens`, which a request may lower. `temperature`
    applies to requests that set none. `options` are further members of each request, under the provider's
    names, such as `{"top_k": 40}`.

    An option that is None removes the member of that name from requests. `rename` gives members other names:
    `{"max_tokens": "max_completion_tokens"}`.

    A failure that may pass is retried up to `retries` times, as long as no item has arrived and the caller's
    deadline allows it. `connect_seconds` bounds the time to connect, `idle_seconds` the silence between two
    pieces of an answer, `answer_seconds` the time from its first byte to its end.

    Raises ConfigError, also without the extra `llm`. The start of the agent raises ForbiddenCall on virtual
    time.
    """

    provider_name: ClassVar[str] = "anthropic"

    key: str | None = "env:ANTHROPIC_API_KEY"
    url: str = ANTHROPIC_URL

    def _format(self) -> tuple[Format, str]:
        from ._anthropic_format import FORMAT

        return FORMAT, "anthropic"
