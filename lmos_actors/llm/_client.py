"""The client of one model of a provider. All differences between the wire formats are in a `Format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from ._events import EventDecoder
from ._provider import body_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    import httpx2

    from ._families import Rules
    from ._keys import Fields
    from ._messages import ModelItem, ModelRequest
    from ._provider import Provider


class Answer(Protocol):
    """The reader of one answer, event by event."""

    is_complete: bool

    @property
    def replaced(self) -> int: ...
    def items_of(self, data: bytes, name: bytes) -> Iterator[ModelItem]: ...
    def last_items(self) -> Iterator[ModelItem]: ...


@attrs.frozen
class Format:
    """One wire format; `connect` returns its SDK, and the part of the SDK that sends requests."""

    connect: Callable[[str, httpx2.AsyncClient], tuple[Any, Any]]
    request_body: Callable[[Fields, ModelRequest, Rules], dict[str, Any]]
    answer: Callable[[frozenset[str]], Answer]
    """Returns the reader of an answer to a request that offers tools of these names."""


class Client:
    """The client of one model. It sends requests through an SDK, and reads the answers itself."""

    def __init__(self, model: Fields, provider: Provider, rules: Rules, form: Format) -> None:
        self._model = model
        self.rules = rules
        self._form = form
        self.provider = provider
        http = provider.http_client(model.max_tokens, model.concurrency)
        self._sdk, self._requests = form.connect(model.url, http)

    async def close(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    async def attempt(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Send a request once. Errors of the SDK are not converted."""
        stream = await self._requests.create(**self._form.request_body(self._model, request, self.rules))
        answer = self._form.answer(frozenset(offer.name for offer in request.tools))
        events = EventDecoder()
        async with body_of(stream) as body:
            async for piece in body:
                for data in events.feed(piece):
                    for item in answer.items_of(data, events.name):
                        yield item  # noqa: ASYNC119 -- closed by `Provider.answer`
                if answer.is_complete:
                    break
            for data in events.end():
                for item in answer.items_of(data, events.name):
                    yield item  # noqa: ASYNC119 -- as above
            self.provider.note_replaced(answer.replaced)
            for item in answer.last_items():
                yield item  # noqa: ASYNC119 -- as above
            await body.drain()
