"""Requests to a model: each is sent, and the items of its answer are assembled into a message.

A request is repeated if the model was not available and no part of its answer had arrived; if a model is
being restarted, the request waits for it. Items after the end are dropped, and an answer without an end
counts as complete: the clients of providers themselves report an answer that was cut.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio
from msgspec import Struct

from lmos_actors.actors import LocalStream
from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentError,
    AgentUnavailable,
    DeadlineExceeded,
    NotFound,
    RemoteProtocolError,
)
from lmos_actors.facades import ChatTurn
from lmos_actors.llm import (
    MODEL_CUT,
    MODEL_MALFORMED,
    MODEL_UNAVAILABLE,
    NO_MODEL,
    Model,
    ModelEnd,
    ModelItem,
    ModelMessage,
    ModelRequest,
    Reasoning,
    Tally,
    TextDelta,
    ToolRequest,
    model_failure,
)

from ._budget import Account, admit_call, exceeded, settled
from ._failures import BUDGET_EXCEEDED, thinking_failure
from ._tools import REPEATS, is_back

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Ref

MOST_TOKENS: Final = 1 << 20
"""Tokens of one answer of a model, if no budget says less."""

MOST_TOOLS: Final = 1_024
"""Requests for tools in one answer of a model."""

CUT_OFF: Final = "the answer was cut off before them"
"""Stands for the arguments of a tool that had not come when the answer was cut."""

NOT_FAKED: Final = "NotFaked"
"""The crash of a fake of `lmos_actors.testing` that has no answer: to ask again would only hide it."""

NAME_ONE: Final = 'start one, such as OpenAIModel, or name it: model=sibling("model") in a tree'
"""What to do if there is no model."""


class ModelRequests:
    """The requests of one turn to a model."""

    def __init__(
        self,
        model: Ref[Model],
        account: Account,
        say: Callable[[str], Awaitable[None]] | None,
        begun: str = "",
    ) -> None:
        self._model = model
        self._account = account
        self._say, self._say_nowait = say, _nowait_of(say)
        self._gap = ""  # stands before the next piece that is said
        self._added = 64  # assumed, as for a template, until the provider has counted an input
        """Tokens that the provider has added to the last input, beyond the estimate."""
        self.heard: list[str] = [begun] if begun else []
        """All text so far that was said as it came, in pieces."""

    async def ask(self, request: ModelRequest) -> tuple[ModelMessage, ModelEnd]:
        """Send a request, again if the model was away; return the message and the end of the answer.

        Raise ActionFailed if the budget is used up, the model fails, or the model is not available.
        """
        for left in range(REPEATS, -1, -1):
            tally = Tally(request)
            room = admit_call(self._account, tally.expected + self._added, request.max_tokens)
            answer = ModelAnswer(tally, room)
            try:
                with settled(self._account, tally):
                    await self._listen(_bounded(request, room), answer)
                self._added = max(0, tally.usage.input_tokens - tally.expected)
                return answer.message(), answer.end or ModelEnd()
            except (AgentDied, AgentUnavailable) as error:
                if tally.began:
                    raise model_failure(MODEL_CUT, "the model broke off in its answer") from error
                if NOT_FAKED in str(error):
                    raise model_failure(MODEL_UNAVAILABLE, f"the model does not run: {error}") from error
                if not left or not await is_back(self._model):
                    raise model_failure(MODEL_UNAVAILABLE, "the model does not run") from error
            except NotFound as error:
                raise model_failure(NO_MODEL, f"there is no model to ask: {error}; {NAME_ONE}") from error
            except ActionFailed:
                raise
            except AgentError as error:
                if isinstance(error, DeadlineExceeded) and self._account.is_late:
                    raise exceeded(f"{self._account.budget.seconds} s") from None
                code = MODEL_CUT if tally.began else MODEL_UNAVAILABLE
                code = MODEL_MALFORMED if isinstance(error, RemoteProtocolError) else code
                raise model_failure(code, f"the model cannot be asked: {error}") from error
        raise AssertionError("the last repeat returns or raises")

    async def _listen(self, request: ModelRequest, answer: ModelAnswer) -> None:
        """Read an answer to its end; items after the end are dropped, with only a short wait for them."""
        members = msgspec.structs.asdict(request).items()
        wanted: dict[str, Any] = {name: each for name, each in members if each not in (None, "", [])}
        self._gap = "\n\n" if self.heard and not self.heard[-1][-1].isspace() else ""
        model: Any = self._model
        left = self._account.deadline - trio.current_time()
        if model._seconds is None and 0 < left < inf:
            model = model.within(left)  # so it refuses at once what would be late
        async with model.stream(Model.generate, **wanted) as items:
            if isinstance(items, LocalStream) and not items.is_recorded:
                items.offer(partial(self._hear, answer))
            with trio.CancelScope() as scope:
                async for sent in items:
                    item: ModelItem = cast("Any", sent) if isinstance(sent, Struct) else _converted(sent)
                    if not answer.take(item):
                        break
                    if answer.end is not None:
                        # so long a stream may go on after its end
                        scope.deadline = min(scope.deadline, trio.current_time() + 1.0)
                    elif self._say is not None and isinstance(item, TextDelta) and item.text:
                        self.heard.append(self._gap + item.text)
                        self._gap = ""
                        await self._say(self.heard[-1])

    def _hear(self, answer: ModelAnswer, item: Any) -> bool:
        """Take an item in the step in which a near model sends it, if that needs no wait."""
        if type(item) not in (TextDelta, Reasoning) or not answer.has_room_for(item.text):
            return False
        if self._say is not None and type(item) is TextDelta and item.text:
            text = self._gap + item.text
            if self._say_nowait is None or not self._say_nowait(text):
                return False
            self.heard.append(text)
            self._gap = ""
        answer.take(item)
        return True


class ModelAnswer:
    """An answer of a model, assembled from its items; `room` is the number of tokens it may have."""

    def __init__(self, tally: Tally, room: int | None) -> None:
        self._tally = tally
        # a quarter more than the estimate: many texts have fewer tokens than estimated
        self._room = MOST_TOKENS if room is None else room * 1.25
        self._text: list[str] = []
        self._tools: list[ToolRequest] = []
        self._reasoning: list[Reasoning] = []
        self._dropped = 0
        self.end: ModelEnd | None = None

    def has_room_for(self, text: str) -> bool:
        """Return whether a piece is certain to be within the limit of the answer, which has not ended."""
        return self.end is None and self._tally.came + 2 * len(text) + 1 <= self._room

    def take(self, item: ModelItem) -> bool:
        """Add the next item; return whether to continue reading. Items after the end are dropped.

        Raises ActionFailed if the answer is too long.
        """
        if self.end is not None:
            self._dropped += 1
            return self._dropped < 64  # the model may have something to finish after its end
        self._tally.take(item)
        if isinstance(item, ModelEnd):
            self.end = item
        elif isinstance(item, ToolRequest):
            taken = {"", *(each.id for each in self._tools)}
            if item.id in taken:  # each request of an answer has another id: results refer to it
                own = next(f"{n}" for n in count() if f"{n}" not in taken)
                item = msgspec.structs.replace(item, id=own)
            self._tools.append(item)
        elif isinstance(item, Reasoning):
            self._reasoning.append(item)
        else:
            self._text.append(item.text)
        if self._tally.came > self._room or len(self._tools) > MOST_TOOLS:
            raise thinking_failure(
                BUDGET_EXCEEDED, "the answer of the model is longer than the budget allows"
            )
        return True

    def message(self) -> ModelMessage:
        """Return the items as a message. If the answer was cut, its last tool request may be cut, too."""
        tools = self._tools
        if tools and self.end is not None and self.end.reason == "length" and not tools[-1].arguments:
            last = msgspec.structs.replace(tools[-1], unreadable=tools[-1].unreadable or CUT_OFF)
            tools = [*tools[:-1], last]
        return ModelMessage("".join(self._text), tools, self._reasoning)


def _nowait_of(say: Callable[[str], Awaitable[None]] | None) -> Callable[[str], bool] | None:
    """Return `say_nowait` of a turn for its `say`, and None for any other function."""
    if getattr(say, "__func__", None) is not ChatTurn.say:
        return None
    turn: ChatTurn = cast("Any", say).__self__
    return turn.say_nowait


def _bounded(request: ModelRequest, room: int | None) -> ModelRequest:
    """Return a request whose output has at most `room` tokens; no limit is added if `room` is above 8,192."""
    most = request.max_tokens
    # clients of providers ask for no more than 8,192 tokens by default
    if room is None or (most is None and room > 8_192):
        return request
    return msgspec.structs.replace(request, max_tokens=room if most is None else min(most, room))


def _converted(item: Any) -> ModelItem:
    """Convert plain data, from a model whose class is not known here, to an item. Raise ActionFailed."""
    try:
        return msgspec.convert(item, cast("Any", ModelItem))  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise model_failure(MODEL_MALFORMED, f"the model has sent what is no item: {error}") from None
