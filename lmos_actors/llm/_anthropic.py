"""Models of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ._keys import ANTHROPIC_URL
from ._provider_model import ProviderModel

if TYPE_CHECKING:
    from ._client import Format


class AnthropicModel(ProviderModel):
    """A model of Anthropic, or of any endpoint at `url` that speaks its messages.

    `key` is a reference to the key, `env:NAME` or `file:PATH`, which is read again when it changes; None for
    endpoints without one. An answer has at most `max_tokens`, which a request may lower. `temperature` is for
    requests that give none. `options` are further members of each request, as the provider names them,
    such as `{"top_k": 40}`.

    An option that is None removes the member of that name from requests. `rename` gives members other
    names: `{"max_tokens": "max_completion_tokens"}`.

    A failure that may pass is tried again up to `retries` times, before the first item and by the caller's
    deadline. `connect_seconds` bounds the time to connect, `idle_seconds` the silence between two pieces of
    an answer, `answer_seconds` the time from its first byte to its end.

    Raises ConfigError, also without the extra `llm`; its start raises ForbiddenCall on virtual time.
    """

    provider_name: ClassVar[str] = "anthropic"

    key: str | None = "env:ANTHROPIC_API_KEY"
    url: str = ANTHROPIC_URL

    def _format(self) -> tuple[Format, str]:
        from ._anthropic_format import FORMAT

        return FORMAT, "anthropic"
