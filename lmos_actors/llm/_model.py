"""Models as agents: the contract of every language model in this package.

A model is an agent, and not an object inside each agent that uses it. So models have all that agents have.
Many agents share one model and its limits. Its key is in one process, and other processes reach it by a ref.
A caller that leaves cancels its request. A mock, a recording or a fault takes its place in a scenario. It is
supervised, traced and counted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from contextlib import aclosing, nullcontext
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from lmos_actors._core import WAY_OUT, time_jumps
from lmos_actors.actors import Agent, MailboxOptions, action, current_request, of_system, shape_of
from lmos_actors.errors import ConfigError, ForbiddenCall, InvalidInput

from ._failures import MODEL_MALFORMED, NO_MODEL, model_failure
from ._limits import RequestLimits, Tally
from ._messages import (
    Message,
    ModelEnd,
    ModelItem,
    ModelRequest,
    Reasoning,
    TextDelta,
    ToolOffer,
    ToolRequest,
)
from ._observed import observed

MAX_REQUESTS: Final = 4_096
"""Requests of one model at once, those that wait included."""

CONCURRENCY: Final = 64
"""Default number of requests that a model carries out at once."""


@of_system
class Model(Agent, mailbox=MailboxOptions(size=MAX_REQUESTS)):
    """A language model. Subclass it and write `respond`, or use the client of a provider.

    `respond(self, request)` answers one request. It is an async generator of `ModelItem`s, the last of which
    is a `ModelEnd`, and raises failures made by `model_failure`.

    At most `concurrency` requests are carried out at once. In any minute at most `requests_per_minute` begin,
    and each only if those of the last minute leave room for its input in `tokens_per_minute`; None means no
    limit. The others wait in order, at most 4,096 together. If the next one cannot begin before its caller's
    deadline, it fails with MODEL_BUSY, and with `retry_after` in seconds.

    A node with `metrics` counts requests and tokens, and a node with `tracing` has a span for each request.
    Spans have prompts and answers only with `record_prompts`.
    """

    is_live: ClassVar[bool] = False
    """Whether it asks a provider over the network, which is not there on virtual time."""

    provider_name: ClassVar[str] = ""
    """The name of the provider in spans; empty: the name of the class."""

    concurrency: int = CONCURRENCY
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    record_prompts: bool = False

    def __attrs_post_init__(self) -> None:
        for name in ("concurrency", "requests_per_minute", "tokens_per_minute"):
            value: object = getattr(self, name)
            if value is None and name != "concurrency":
                continue
            if type(value) is not int or value < 1:
                path = f"{type(self).__name__}.{name}"
                raise ConfigError(f"must be a whole number of at least 1, not {value!r}", path)

    @cached_property
    def _limits(self) -> RequestLimits:
        waiting = max(1, MAX_REQUESTS - self.concurrency - 2)  # so that the last run is there to be refused
        return RequestLimits(self.concurrency, waiting, self.requests_per_minute, self.tokens_per_minute)

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Answer a request. Subclasses implement this as an async generator."""
        raise model_failure(NO_MODEL, f"{type(self).__name__} has no respond: it is no model")

    @action(safe=True, concurrency=MAX_REQUESTS)
    async def generate(
        self,
        messages: Annotated[list[Message], Meta(min_length=1)],
        instructions: str = "",
        tools: list[ToolOffer] | None = None,
        answer: dict[str, Any] | None = None,
        max_tokens: Annotated[int, Meta(ge=1)] | None = None,
        temperature: Annotated[float, Meta(ge=0, le=2)] | None = None,
    ) -> AsyncGenerator[ModelItem]:
        """Answer messages, piece by piece; the last item is the end, with the tokens used.

        `answer` is a JSON Schema that the text has to meet.
        """
        request = ModelRequest(messages, instructions, tools or [], answer, max_tokens, temperature)
        tally, limits = Tally(request), self._limits
        edge, seen = self._place().rt.edge, None
        if edge is not None:
            title, named = type(self).__name__, getattr(self, "model", None)
            model = named if isinstance(named, str) and named else title
            seen = observed(edge, self.provider_name or title, model, request, prompts=self.record_prompts)
        is_counted = seen is not None or limits.count_tokens
        with seen or nullcontext():
            async with (
                limits.admitted(tally, self._deadline()),
                aclosing(self.respond(request)) as items,
            ):
                if seen is not None:
                    seen.tally = tally
                async for item in items:
                    if seen is not None:
                        seen.take(item)
                    if type(item) is not TextDelta or type(item.text) is not str or not item.text.isascii():
                        _check(item)  # nearly all items are plain text, which needs no look
                    if is_counted:
                        tally.take(item)
                    yield item  # noqa: ASYNC119 -- the runtime closes what it runs

    def _deadline(self) -> float | None:
        """Return the deadline of this request's caller, in seconds of the clock; None if it is not known."""
        return current_request().deadline

    def _refuse_virtual_time(self) -> None:
        """Refuse to start if there is no network. Raise ForbiddenCall."""
        place = self._place()
        if not place.rt.real or time_jumps():
            raise ForbiddenCall(
                f"{type(self).__name__}, agent {place.path!r}, is a live model: it asks a provider over the "
                f"network, which is not there on virtual time; {WAY_OUT}, such as a recording of this model "
                f"(`from: replay`), or run the scenario in real time"
            )


def _check(item: Any) -> None:
    """Raise the failure MODEL_MALFORMED for an invalid item, as its content may come from anybody."""
    try:
        if type(item) not in (TextDelta, Reasoning, ToolRequest, ModelEnd):
            raise InvalidInput(f"it is {type(item).__name__}")
        shape_of(type(item)).take(item)
    except InvalidInput as error:
        raise model_failure(MODEL_MALFORMED, f"the model said what cannot be sent on: {error}") from None
