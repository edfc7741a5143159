"""The models of all providers as agents: their fields and lifespan. Each start imports the SDK."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import trio

from lmos_actors.errors import ConfigError

from ._families import FAMILIES, Sendable
from ._keys import CLOSING, NO_EXTRA, ProviderKey, check_fields
from ._messages import ModelItem, ModelRequest  # noqa: TC001 -- types of actions are read
from ._model import Model

if TYPE_CHECKING:
    from ._client import Client, Format


class ProviderModel(Model):
    """A model that a provider serves, in one of the wire formats."""

    is_live: ClassVar[bool] = True

    model: str
    key: str | None = None
    url: str = ""
    max_tokens: int = 8_192
    temperature: float | None = None
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    rename: dict[str, str] = attrs.field(factory=dict[str, str])
    retries: int = 2
    connect_seconds: float = 5.0
    idle_seconds: float = 120.0
    answer_seconds: float = 900.0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_fields(self)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold the client of the SDK, which is imported in a thread."""
        self._refuse_virtual_time()
        self._client: Client = await self.to_thread(self._made_client)
        try:
            yield
        finally:
            with trio.move_on_after(CLOSING, shield=True):
                await self._client.close()

    def _made_client(self) -> Client:
        try:
            from ._client import Client
            from ._provider import provider_of

            form, family = self._format()
        except ModuleNotFoundError:
            raise ConfigError(NO_EXTRA) from None
        key, random = ProviderKey(self.key), self.random.random
        provider = provider_of(self, key, random, self.now, self._limits.pause)
        return Client(self, provider, FAMILIES[family], form)

    @abstractmethod
    def _format(self) -> tuple[Format, str]:
        """Return the wire format and the family of the endpoint; imports the SDK."""

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Send the request to the provider, and yield the items of its answer."""
        client = self._client
        return client.provider.answer(client.attempt, Sendable(request, client.rules), self._deadline())
