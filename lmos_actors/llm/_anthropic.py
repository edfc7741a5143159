"""Models of Anthropic."""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import trio

from lmos_actors.errors import ConfigError

from ._families import FAMILIES, Sendable
from ._keys import ANTHROPIC_URL, CLOSING, NO_EXTRA, ProviderKey, check_fields
from ._messages import ModelItem, ModelRequest  # noqa: TC001 -- types of actions are read
from ._model import Model

if TYPE_CHECKING:
    from ._anthropic_format import AnthropicClient


class AnthropicModel(Model):
    """A model of Anthropic, or of any endpoint at `url` that speaks its messages.

    `key` is a reference to the key, `env:NAME` or `file:PATH`, which is read again when it changes; None for
    endpoints without one. An answer has at most `max_tokens`, which a request may lower. `temperature` is for
    requests that do not say it. `options` are further members of each request, as the provider names them,
    such as `{"top_k": 40}`.

    An option that is None takes the member of that name out of requests. `rename` has other names for
    members: `{"max_tokens": "max_completion_tokens"}`.

    What may pass is tried again up to `retries` times, before the first item and within the caller's
    deadline. `connect_seconds` bounds the time to connect, `idle_seconds` the silence between two pieces of
    an answer.

    Raises ConfigError, without the extra `llm` too; its start raises ForbiddenCall on virtual time.
    """

    is_live: ClassVar[bool] = True
    provider_name: ClassVar[str] = "anthropic"

    model: str
    key: str | None = "env:ANTHROPIC_API_KEY"
    url: str = ANTHROPIC_URL
    max_tokens: int = 8_192
    temperature: float | None = None
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    rename: dict[str, str] = attrs.field(factory=dict[str, str])
    retries: int = 2
    connect_seconds: float = 5.0
    idle_seconds: float = 120.0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_fields(self)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold the client of the SDK, which is imported here, in a thread."""
        self._refuse_virtual_time()
        self._client: AnthropicClient = await self.to_thread(self._made_client)
        try:
            yield
        finally:
            with trio.move_on_after(CLOSING, shield=True):
                await self._client.close()

    def _made_client(self) -> AnthropicClient:
        try:
            from ._anthropic_format import AnthropicClient
            from ._provider import provider_of
        except ModuleNotFoundError:
            raise ConfigError(NO_EXTRA) from None
        return AnthropicClient(
            self, provider_of(self, ProviderKey(self.key), self.random.random, self.now, self._limits.pause)
        )

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Ask the provider."""
        client = self._client
        return client.provider.answer(
            client.attempt, Sendable(request, FAMILIES["anthropic"]), self._deadline()
        )
