"""The loop: a model is asked, the tools that it requests are called, and it is asked again, until it answers.

`think` contains the whole loop, and is meant to be read from top to bottom. To think differently, an agent
has a loop of its own: a model is an agent that any agent may ask. The guarantees of this loop:

- **One answer, or one failure.** Whatever a model sends, `think` returns once, or raises `ActionFailed`
  with a code. A model that sends nothing, or no answer of the requested type, is corrected once. Items after
  the end are dropped, and an answer without an end counts as complete.
- **It ends.** Each round is a request to the model, and requests, tokens, calls of tools and time have a
  budget. Before the last request the model is told that it is the last one; tools that it still asks for are
  not called.
- **Nothing is left running.** The only tasks are those of a nursery around the tools of one answer. If the
  caller is cancelled, so are the stream of the model (and thus its request) and all tools.
- **A request is repeated only if no part of its answer had arrived**, for example when the model was
  restarted.
- **It resumes work of a process that has ended.** The messages passed to `record` suffice for that: the
  model's tool requests are recorded before the first tool begins, each result before the model gets it. A
  history that ends in requests without a result shows what was in progress: these tools are not called again,
  and the model is told that their outcome is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, cast

import attrs
import msgspec

from lmos_actors.approvals import standing_still
from lmos_actors.llm import (
    Model,
    ModelMessage,
    ModelRequest,
    ToolRequest,
    UserMessage,
)

from ._answers import AnswerForm, NotAnAnswer, form_of
from ._budget import Account, Budget, Spent, check_call, exceeded, is_last_call
from ._failures import ANSWER_INVALID, ANSWER_REFUSED, thinking_failure
from ._model_requests import ModelRequests
from ._tool_calls import ToolCalls, ToolLimits, open_requests
from ._tools import offer_of, read_tools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmos_actors.actors import Ref
    from lmos_actors.facades import Tool
    from lmos_actors.llm import Message, ModelFile, StopReason, ToolMessage

    from ._tools import Find, ToolSource

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

LAST_CALL: Final = "You cannot call tools any more. Answer now, with what you know."
"""The text after the instructions of the last request that the budget allows."""

SHORTER: Final = "Your answer was cut off, as it was too long: be shorter. "
"""Stands before what is wrong with an answer that was cut off."""

IS_CUT: Final = "; it was cut off at its most tokens: raise max_tokens, of the model, the agent or the budget"


@attrs.frozen
class Thought(Generic[T]):
    """The result of thinking."""

    answer: T
    """The answer, of the type that was asked for."""
    messages: tuple[Message, ...]
    """The prompt and all messages since, to be added to a history."""
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
    answer: type[T] = str,  # type: ignore[assignment] # pyright: ignore[reportArgumentType] # what T is then
    budget: Budget | Account = Budget(),  # noqa: B008 -- frozen
    history: Sequence[Message] = (),
    files: Sequence[ModelFile] = (),
    say: Callable[[str], Awaitable[None]] | None = None,
    use: Callable[..., Awaitable[Any]] | None = None,
    find: Find | None = None,
    ending: Sequence[Tool] = (),
    record: Callable[[Message], Awaitable[None]] | None = None,
    begun: str = "",
    limits: ToolLimits = ToolLimits(),  # noqa: B008 -- frozen
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> Thought[T]:
    """Ask a model to answer a prompt, with tools if it requests them.

    Without a prompt the model continues at the end of `history`. `answer` is the type of the answer, whose
    schema the model gets. Several calls may share an `Account`, given as the `budget`.

    `say` receives the text as it arrives (`turn.say`), unless the answer is structured; `use` calls a tool
    (`turn.use`). `find` (`self.find`) finds the agents whose classes are in `tools`. A request for one of the
    `ending` tools ends the thinking: the caller has to carry it out.

    `record` is awaited with each message of the model that asks for tools, before they are called, and with
    each result of a tool, before the model gets it; it does not receive the answer. A later call, even in
    another process, continues from there if its `history` ends with these messages: a tool without a result
    is not called then. The model is told that the outcome of the tool is unknown, and the same call is not
    made again unless the tool is `repeatable`. Count amounts used earlier with `Account.count`; `begun` is
    the text that was sent before.

    Raises what `record` raises, and ActionFailed: BUDGET_EXCEEDED, ANSWER_INVALID, ANSWER_REFUSED, or a
    failure of the model; TypeError or ValueError for tools, or a type, that cannot be used.
    """
    account = budget if isinstance(budget, Account) else Account(budget)
    form = form_of(cast("Any", answer))
    prompts = [UserMessage(prompt, list(files))] if prompt or files else []
    if not prompts and not history:
        raise ValueError("there is nothing to think about: give a prompt, files or a history")
    with standing_still(account.clock), account.clock.scope(account.deadline):
        known = await _read(tools, find, ending)
        loop = _Loop(
            asking=ModelRequests(model, account, say if form.is_text else None, begun),
            calls=ToolCalls(known, account, limits, use, record),
            account=account,
            form=form,
            request=ModelRequest(
                [], instructions, [offer_of(tool) for tool in (*known.values(), *ending)], form.schema,
                max_tokens, temperature,
            ),
            ends_with=frozenset(tool.name for tool in ending),
        )  # fmt: skip
        return await loop.run(history, prompts)
    raise exceeded(f"{account.budget.seconds} s")


async def _read(tools: Sequence[ToolSource], find: Find | None, ending: Sequence[Tool]) -> dict[str, Tool]:
    """Return the tools by name. Raise ValueError if a tool has the name of one that ends the thinking."""
    known = await read_tools(tools, find, taken=[tool.name for tool in ending])
    if twice := known.keys() & {tool.name for tool in ending}:
        raise ValueError(f"two tools are named {min(twice)!r}: one of them ends the thinking")
    return known


@attrs.frozen(kw_only=True)
class _Loop:
    """The rounds of one call of `think`."""

    asking: ModelRequests
    calls: ToolCalls
    account: Account
    form: AnswerForm
    request: ModelRequest
    """The request of each round, without the messages."""
    ends_with: frozenset[str]

    async def run(self, history: Sequence[Message], said: list[Any]) -> Thought[Any]:
        """Run rounds until there is an answer. `said` has the messages after the history."""
        before, repaired = self.account.spent, False
        added: list[Message] = []
        if not said and (found := open_requests(history)) is not None:
            asked = self._ending_of(found[0])
            if asked is not None and not found[1]:
                return Thought(None, (), Spent(), "tools", asked)
            history, added = await self._settled(history, *found)
        if not said:
            self.calls.bar(history)
        while True:
            told = self.request.instructions
            if self.request.tools and is_last_call(self.account):
                told = f"{told}\n\n{LAST_CALL}".strip()
            request = msgspec.structs.replace(self.request, messages=[*history, *said], instructions=told)
            message, end = await self.asking.ask(request)
            if message.text or message.tools:
                said.append(message)
            if message.tools:
                await self.calls.record(message)
            asked = self._ending_of(message)
            if message.tools and asked is None:
                check_call(self.account)  # else tools would have effects that no answer could name
                said += await self.calls.carry_out(message.tools)
                continue
            try:
                answer = None if asked is not None else self._read(message)
            except NotAnAnswer as error:
                if end.reason == "refused":
                    raise thinking_failure(ANSWER_REFUSED, message.text or "the model refuses") from None
                is_cut = end.reason == "length"
                if repaired:
                    why = f"{error}{IS_CUT if is_cut else ''}"
                    raise thinking_failure(ANSWER_INVALID, why) from None
                repaired = True
                said.append(UserMessage(f"{SHORTER if is_cut else ''}{error.to_model}"))
                continue
            return Thought(answer, (*added, *said), self.account.spent - before, end.reason, asked)

    async def _settled(
        self, history: Sequence[Message], message: ModelMessage, results: list[ToolMessage]
    ) -> tuple[list[Message], list[Message]]:
        """Return a history that ends in requests for tools, with a result added for each request, in order.

        Return the added results, too: they state that a tool without a result broke off.
        """
        ordered: list[Message] = []
        added: list[Message] = []
        before = history[: len(history) - len(results)]
        for request in message.tools:
            known = (each for each in results if (each.id, each.name) == (request.id, request.name))
            result = next(known, None)
            if result is not None:
                results.remove(result)
            else:
                result = self.calls.broken_off(request)
                await self.calls.record(result)
                added.append(result)
            ordered.append(result)
        return [*before, *ordered], added

    def _ending_of(self, message: ModelMessage) -> ToolRequest | None:
        return next((each for each in message.tools if each.name in self.ends_with), None)

    def _read(self, message: ModelMessage) -> Any:
        """Return the answer; a text may consist of what the model wrote before its last tool calls."""
        return self.form.read(message.text or ("".join(self.asking.heard) if self.form.is_text else ""))
