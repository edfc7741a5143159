"""The loop: a model is asked, the tools that it wants are called, and it is asked again, until it answers.

`think` is all of it, and is meant to be read from top to bottom. An agent that thinks otherwise has a loop of
its own: a model is an agent that anybody may ask. What this one keeps true:

- **One answer, or one failure.** Whatever comes of a model, `think` returns once, or raises `ActionFailed`
  with a code. A model that says nothing, or not what it was asked for, is told so once. What it sends behind
  its end is dropped, and an answer without an end is taken for whole.
- **It ends.** Each round is a request to the model, and requests, tokens, calls of tools and time have a
  budget. Before the last request the model is told that it is the last one.
- **Nothing is left running.** There is no task but those of a nursery around the tools of one answer. Who
  leaves cancels the stream of the model, and so its request, and all tools.
- **A request is made again only if nothing of its answer was heard**, as where the model was restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, cast

import attrs
import msgspec
import trio
from msgspec import Struct

from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentError,
    AgentUnavailable,
    NotFound,
    RemoteProtocolError,
)
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
    TextDelta,
    ToolRequest,
    UserMessage,
    model_failure,
)

from ._answers import AnswerForm, NotAnAnswer, form_of
from ._budget import CHARACTERS, Account, Budget, Spent, admit_call, exceeded, is_last_call, settle_call
from ._failures import ANSWER_INVALID, ANSWER_REFUSED, BUDGET_EXCEEDED, thinking_failure
from ._tool_calls import ToolCalls, ToolLimits
from ._tools import REPEATS, is_back, offer_of, tools_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmos_actors.actors import Ref
    from lmos_actors.facades import Tool
    from lmos_actors.llm import Message, ModelFile, StopReason

    from ._tools import Find, ToolSource

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

LAST_CALL: Final = "You cannot call tools any more. Answer now, with what you know."
"""What stands behind the instructions of the last request that the budget allows."""

END_SECONDS: Final = 1.0
"""Seconds that a model has from its end to the end of its stream."""

MOST_CHARACTERS: Final = 4 << 20
"""Characters of one answer of a model, where no budget says less."""

MOST_DROPPED: Final = 64
"""Items behind its end that are read of a model: it may have something to do there."""

MOST_TOOLS: Final = 1_024
"""Requests for tools in one answer of a model."""

LEAST_MAXIMUM: Final = 4_096
"""Tokens of output that every model can write. A provider refuses a `max_tokens` above what its model can."""


@attrs.frozen
class Thought(Generic[T]):
    """What came of thinking."""

    answer: T
    """The answer, of the type that was asked for."""
    messages: tuple[Message, ...]
    """The prompt, and all that was said since: what a history goes on with."""
    spent: Spent
    reason: StopReason = "stop"
    """Why the model has ended; `length`: the answer is cut."""
    asked: ToolRequest | None = None
    """The request for one of the `ending` tools; there is no answer then."""

    @property
    def text(self) -> str:
        """The text of the last message of the model."""
        last = self.messages[-1]
        return last.text if isinstance(last, ModelMessage) else ""


async def think(
    model: Ref[Model],
    prompt: str,
    *,
    instructions: str = "",
    tools: Sequence[ToolSource] = (),
    answer: type[T] = cast("Any", str),  # noqa: B008 -- a type
    budget: Budget | Account = Budget(),  # noqa: B008 -- frozen
    history: Sequence[Message] = (),
    files: Sequence[ModelFile] = (),
    say: Callable[[str], Awaitable[None]] | None = None,
    use: Callable[..., Awaitable[Any]] | None = None,
    find: Find | None = None,
    ending: Sequence[Tool] = (),
    limits: ToolLimits = ToolLimits(),  # noqa: B008 -- frozen
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> Thought[T]:
    """Have a model answer a prompt, with tools if it wants them.

    Without a prompt the model goes on where `history` ends. `answer` is the type of the answer, whose schema
    the model gets. An `Account` as the `budget` is one that several calls share.

    `say` gets the text as it comes (`turn.say`), unless the answer is structured; `use` calls a tool
    (`turn.use`). `find` (`self.find`) finds agents that `tools` has the classes of. A request for one of the
    `ending` tools ends the thinking: it is for the caller to carry out.

    Raises ActionFailed: BUDGET_EXCEEDED, ANSWER_INVALID, ANSWER_REFUSED, or a failure of the model; TypeError
    or ValueError for tools, or a type, that cannot be used.
    """
    account = budget if isinstance(budget, Account) else Account(budget)
    known, form = tools_of(tools, find), form_of(cast("Any", answer))
    loop = _Loop(
        asking=_Asking(model, account, say if form.is_text else None),
        calls=ToolCalls(known, account, limits, use),
        account=account,
        form=form,
        request=ModelRequest(
            [], instructions, [offer_of(tool) for tool in (*known.values(), *ending)], form.schema,
            max_tokens, temperature,
        ),
        ending=frozenset(tool.name for tool in ending),
    )  # fmt: skip
    prompts = [UserMessage(prompt, list(files))] if prompt or files else []
    if not prompts and not history:
        raise ValueError("there is nothing to think about: give a prompt, files or a history")
    with trio.CancelScope(deadline=account.deadline):
        return await loop.run(history, prompts)
    raise exceeded(f"{account.budget.seconds} s")


@attrs.frozen(kw_only=True)
class _Loop:
    """The rounds of one call of `think`."""

    asking: _Asking
    calls: ToolCalls
    account: Account
    form: AnswerForm
    request: ModelRequest
    """What the model gets in each round, but for the messages."""
    ending: frozenset[str]

    async def run(self, history: Sequence[Message], said: list[Any]) -> Thought[Any]:
        """Go on until there is an answer. `said` is what was said after the history."""
        before, repaired = self.account.spent, False
        while True:
            message, end = await self.asking.ask(self._next([*history, *said]))
            if message.text or message.tools:
                said.append(message)
            asked = next((each for each in message.tools if each.name in self.ending), None)
            if message.tools and asked is None:
                said += await self.calls.carry_out(message.tools)
                continue
            try:
                answer = None if asked is not None else self._read(message)
            except NotAnAnswer as error:
                if end.reason == "refused":
                    raise thinking_failure(ANSWER_REFUSED, message.text or "the model refuses") from None
                if repaired:
                    raise thinking_failure(ANSWER_INVALID, str(error)) from None
                repaired = True
                said.append(UserMessage(str(error)))
                continue
            return Thought(answer, tuple(said), self.account.spent - before, end.reason, asked)

    def _next(self, messages: list[Message]) -> ModelRequest:
        """Return the request of the next round; the last one that the budget allows says so."""
        told = self.request.instructions
        if is_last_call(self.account) and self.request.tools:
            told = f"{told}\n\n{LAST_CALL}".strip()
        return msgspec.structs.replace(self.request, messages=messages, instructions=told)

    def _read(self, message: ModelMessage) -> Any:
        """Return the answer. A model that has said all before it called tools need not say it again."""
        return self.form.read(message.text or ("".join(self.asking.heard) if self.form.is_text else ""))


class _Asking:
    """The requests of one turn to a model."""

    def __init__(
        self, model: Ref[Model], account: Account, say: Callable[[str], Awaitable[None]] | None
    ) -> None:
        self._model = model
        self._account = account
        self._say = say
        self.heard: list[str] = []
        """All text so far that was said as it came."""

    async def ask(self, request: ModelRequest) -> tuple[ModelMessage, ModelEnd]:
        """Make a request, again where the model was not there; return its message and its end.

        Raises ActionFailed: the budget, the model's own failure, or that the model is not there.
        """
        for left in range(REPEATS, -1, -1):
            room = admit_call(self._account, request)
            answer = _Answer(room)
            try:
                await self._listen(_bounded(request, room), answer)
                return answer.message(), answer.end or ModelEnd()
            except (AgentDied, AgentUnavailable) as error:
                if answer.began:
                    raise model_failure(MODEL_CUT, "the model broke off in its answer") from error
                if not left or not await is_back(self._model):
                    raise model_failure(MODEL_UNAVAILABLE, "the model does not run") from error
            except NotFound as error:
                raise model_failure(NO_MODEL, f"there is no model to ask: {error}") from error
            except ActionFailed:
                raise
            except AgentError as error:
                code = MODEL_CUT if answer.began else MODEL_UNAVAILABLE
                code = MODEL_MALFORMED if isinstance(error, RemoteProtocolError) else code
                raise model_failure(code, f"the model cannot be asked: {error}") from error
            finally:
                if answer.began:
                    settle_call(self._account, request, answer.message(), (answer.end or ModelEnd()).usage)
        raise AssertionError("the last repeat returns or raises")

    async def _listen(self, request: ModelRequest, answer: _Answer) -> None:
        """Take an answer to its end; what is behind that is dropped, and not waited for long."""
        members = msgspec.structs.asdict(request).items()
        wanted: dict[str, Any] = {name: each for name, each in members if each not in (None, "", [])}
        gap = "\n\n" if self.heard and not self.heard[-1][-1].isspace() else ""
        stream = self._model.stream(Model.generate, **wanted)
        async with stream as items:
            with trio.CancelScope() as scope:
                async for sent in items:
                    item = sent if isinstance(cast("Any", sent), Struct) else _converted(sent)
                    if not answer.take(item):
                        break
                    if answer.end is not None:
                        scope.deadline = min(scope.deadline, trio.current_time() + END_SECONDS)
                    elif self._say is not None and isinstance(item, TextDelta) and item.text:
                        self.heard.append(gap + item.text)
                        gap = ""
                        await self._say(self.heard[-1])


class _Answer:
    """An answer of a model, put together from its items; `room` is how many tokens it may have."""

    def __init__(self, room: int | None) -> None:
        self._room = MOST_CHARACTERS if room is None else room * CHARACTERS
        self._text: list[str] = []
        self._tools: list[ToolRequest] = []
        self._reasoning: list[Reasoning] = []
        self._dropped = 0
        self.began = False
        self.end: ModelEnd | None = None

    def take(self, item: ModelItem) -> bool:
        """Take the next item; return whether to read on. Behind the end items are dropped.

        Raises ActionFailed for an answer that is too long.
        """
        self.began = True
        if self.end is not None:
            self._dropped += 1
            return self._dropped < MOST_DROPPED
        if isinstance(item, ModelEnd):
            self.end = item
        elif isinstance(item, ToolRequest):
            self._tools.append(item if item.id else msgspec.structs.replace(item, id=f"{len(self._tools)}"))
        elif isinstance(item, Reasoning):
            self._reasoning.append(item)
            self._room -= len(item.text)
        else:
            self._text.append(item.text)
            self._room -= len(item.text)
        if self._room < 0 or len(self._tools) > MOST_TOOLS:
            raise thinking_failure(
                BUDGET_EXCEEDED, "the answer of the model is longer than the budget allows"
            )
        return True

    def message(self) -> ModelMessage:
        """Return what has come, as a message."""
        return ModelMessage("".join(self._text), self._tools, self._reasoning)


def _bounded(request: ModelRequest, room: int | None) -> ModelRequest:
    """Return a request with an output of so many tokens at most, as far as that can be said."""
    most = request.max_tokens
    if room is None or (most is None and room > LEAST_MAXIMUM):
        return request
    return msgspec.structs.replace(request, max_tokens=room if most is None else min(most, room))


def _converted(item: Any) -> ModelItem:
    """Return plain data, of a model that is known by its names alone, as an item. Raises ActionFailed."""
    try:
        return msgspec.convert(item, cast("Any", ModelItem))  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise model_failure(MODEL_MALFORMED, f"the model has sent what is no item: {error}") from None
