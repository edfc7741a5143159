"""Calls of tools: the requests of one answer of a model, carried out concurrently.

What this module guarantees:

- **Each request has one result, and the results are in the order of the requests**, whatever happens to a
  tool: a model cannot continue if a result is missing.
- **The model receives the reason for a failure, but no details that it must not know.** It gets the text of
  a failure that a tool declares and of a refusal by the runtime, but no text of an undeclared exception.
- **A call that may have had an effect is not silently repeated.** After a tool whose outcome is not known,
  the model is told so, and the same call is not carried out again in the same turn, unless the tool is
  `repeatable`.
- **A result is recorded as soon as its tool ends**, before the model gets it, and while others still run. So
  a tool that was called but has no recorded result when a later process resumes may or may not have done its
  work: it is treated accordingly (`settle`).
- **A model cannot crash an agent again and again.** A crash is a bug, and each one counts for the supervisor,
  which gives up after a few. So after one crash the other calls of that answer to that agent are not carried
  out, and after two no further call of the turn to it.
- **Only tools that were offered are called.** A result that asks for other tools is treated as plain data.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import trio
from msgspec import Meta, Struct
from msgspec.json import encode

from lmos_actors.actors import shape_of
from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    ToolFailed,
    Unauthorized,
    hint_at,
)
from lmos_actors.llm import Message, ModelMessage, ToolMessage

from ._budget import admit_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lmos_actors.approvals import Clock
    from lmos_actors.facades import Tool
    from lmos_actors.llm import ToolRequest

    from ._budget import Account

MOST_CRASHES: Final = 2
"""Crashes of an agent in one turn; then it is not called again in that turn."""

NOT_AGAIN: Final = "not called: its agent has crashed in this turn, which is a bug in it"
"""The result of a call, for the model, after a crash."""

_LOG: Final = logging.getLogger("lmos_actors")

UNKNOWN: Final = (
    "OutcomeUnknown: the tool broke off, and may have done its work or not. "
    "Do not simply repeat it: find out, or say that it is not known."
)
UNKNOWN_REPEATABLE: Final = (
    "OutcomeUnknown: the tool broke off, and may have done its work or not. It may be called again."
)

SHOWN: Final = 200
"""Characters of unreadable arguments that the model gets back."""


class ToolLimits(Struct, frozen=True, omit_defaults=True):
    """The limits of tool calls.

    At most `concurrency` tools are called at once, each may take `seconds` (not counted while it waits for a
    person's approval), and the model gets at most `result_bytes` bytes of each result or error.
    """

    concurrency: Annotated[int, Meta(ge=1)] = 8
    seconds: Annotated[float, Meta(gt=0)] = 30.0
    result_bytes: Annotated[int, Meta(ge=1)] = 32_768


@attrs.define
class _Crashes:
    """The crashes, in one turn, of the agent that provides some tools, and its calls that are in progress."""

    count: int = 0
    is_new: bool = False
    """Whether the agent has crashed in the current answer of the model."""
    calls: dict[trio.CancelScope, None] = attrs.field(factory=dict[trio.CancelScope, None])
    """The calls in progress, in their order."""

    def bar_calls(self) -> bool:
        """Return whether the agent must not be called now, because it has crashed."""
        return self.is_new or self.count >= MOST_CRASHES

    def note(self) -> None:
        """Count a crash; cancel the calls that wait for the agent, as they would begin after its restart."""
        self.count += 1
        self.is_new = True
        for scope in self.calls:
            scope.cancel("the agent has crashed in this turn")


class ToolCalls:
    """The calls of tools in one turn; `use` calls a tool with arguments by name, as `turn.use` does."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        account: Account,
        limits: ToolLimits,
        use: Callable[..., Awaitable[Any]] | None,
        record: Callable[[Message], Awaitable[None]] | None = None,
    ) -> None:
        self._crashes = {tool.agent or tool.name: _Crashes() for tool in tools.values()}
        self._tools = {
            name: _limited(tool, limits, self._crashes[tool.agent or tool.name], account.clock)
            for name, tool in tools.items()
        }
        self._account = account
        self._most = limits.result_bytes
        self._use = use
        self._record = record
        self._room = trio.CapacityLimiter(limits.concurrency)
        self._unknown: set[bytes] = set()
        """The calls whose outcome is not known."""
        self._missing: set[str] = set()
        """The tools whose agents are not there."""

    async def carry_out(self, requests: Sequence[ToolRequest]) -> list[ToolMessage]:
        """Carry out the requests of one answer; return their results, in the order of the requests.

        If recording a result raises an exception, cancel the other tools and raise it.
        """
        results: list[ToolMessage | None] = [None] * len(requests)
        for crashes in self._crashes.values():
            crashes.is_new = False

        failures: list[ActionFailed] = []

        async def one(place: int, request: ToolRequest, why: str | None) -> None:
            try:
                if why is not None:
                    result = ToolMessage(request.id, request.name, error=why)
                    await self.record(result)
                else:
                    async with self._room:
                        result = await self._result(request)
                        await self.record(result)
                results[place] = result
            except ActionFailed as error:
                failures.append(error)
                nursery.cancel_scope.cancel("a result could not be recorded")

        async with trio.open_nursery() as nursery:
            for place, request in enumerate(requests):
                why = self._refused(request)
                if why is not None and self._record is None:
                    results[place] = ToolMessage(request.id, request.name, error=why)
                else:
                    nursery.start_soon(one, place, request, why)
        if failures:
            raise failures[0]
        return [result for result in results if result is not None]

    async def record(self, message: Message) -> None:
        """Record a message if the caller has given a `record` function."""
        if self._record is not None:
            await self._record(message)

    def bar(self, messages: Sequence[Message]) -> None:
        """Forbid repeats of calls in these messages with unknown outcomes, unless they are repeatable."""
        requests: dict[str, ToolRequest] = {}
        for message in messages:
            if isinstance(message, ModelMessage):
                requests |= {each.id: each for each in message.tools}
            elif isinstance(message, ToolMessage) and message.unknown:
                tool, request = self._tools.get(message.name), requests.get(message.id)
                if request is not None and (tool is None or not tool.repeatable):
                    self._unknown.add(_key(request))

    def broken_off(self, request: ToolRequest) -> ToolMessage:
        """Return a result for a tool call that ended with its process, begun or not."""
        tool = self._tools.get(request.name)
        again = tool is not None and tool.repeatable
        text = UNKNOWN_REPEATABLE if again else UNKNOWN
        return ToolMessage(request.id, request.name, error=text, unknown=not again)

    def _refused(self, request: ToolRequest) -> str | None:
        """Return why a request must not be carried out, or None if it may be."""
        name = request.name
        if name not in self._tools:
            hint = hint_at(name, self._tools) or f"; there are: {', '.join(self._tools) or 'none'}"
            return f"there is no tool {name!r}{hint}"
        if request.unreadable:
            return f"the arguments are no JSON object: {request.unreadable[:SHOWN]}"
        if _key(request) in self._unknown:
            return "not called again: what became of the same call before is not known"
        if not admit_tool(self._account):
            return f"not called: the budget of {self._account.budget.tools} calls of tools is used up"
        return None

    async def _result(self, request: ToolRequest) -> ToolMessage:
        tool = self._tools[request.name]
        try:
            if self._use is None:
                result = await tool.call(request.arguments)
            else:
                result = await self._use(tool, **request.arguments)
        except ToolFailed as error:
            unknown = not tool.repeatable and _is_unknown(error.__cause__)
            if unknown:
                self._unknown.add(_key(request))
            if isinstance(error.__cause__, NotFound) and request.name not in self._missing:
                self._missing.add(request.name)
                _LOG.warning("the tool %r cannot be called: %s", request.name, error.__cause__)
            reason = shortened(_reason_for_model(error).encode(errors="replace").decode(), self._most)
            return ToolMessage(request.id, request.name, error=reason, unknown=unknown)
        return ToolMessage(request.id, request.name, result)


def _limited(tool: Tool, limits: ToolLimits, crashes: _Crashes, clock: Clock) -> Tool:
    """Return a tool with limits: a deadline, shortened results, and no calls of a crashed agent."""

    async def call(given: Mapping[str, Any]) -> Any:
        if crashes.bar_calls():
            raise ToolFailed(tool.name, NOT_AGAIN)
        clock.asked = ""
        with clock.scope(trio.current_time() + limits.seconds) as scope:
            crashes.calls[scope] = None
            try:
                result = await tool.call(given)
            except ToolFailed as error:
                if isinstance(error.__cause__, AgentDied) and error.__cause__.started:
                    crashes.note()
                raise
            finally:
                crashes.calls.pop(scope, None)
            try:
                cut = shortened(result, limits.result_bytes)
                shape_of(list[Message]).take([ToolMessage("", "", cut)])  # as the model will get it
                return cut
            except (ValueError, TypeError, RecursionError, InvalidInput) as error:
                raise ToolFailed(tool.name, f"its result cannot be sent: {error}") from None
        if crashes.bar_calls():
            unknown = OutcomeUnknown(tool.agent or tool.name, "it has crashed")
            raise ToolFailed(tool.name, str(unknown)) from unknown
        late = DeadlineExceeded(tool.name, limits.seconds, why=clock.asked)
        raise ToolFailed(tool.name, str(late)) from late

    return attrs.evolve(tool, call=call)


def open_requests(history: Sequence[Message]) -> tuple[ModelMessage, list[ToolMessage]] | None:
    """Return the message with requests for tools at the end of a history, and the results after it.

    Return None if the history ends differently.
    """
    results: list[ToolMessage] = []
    for message in reversed(history):
        if isinstance(message, ModelMessage) and message.tools:
            return message, results[::-1]
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return None


def _key(request: ToolRequest) -> bytes:
    return encode((request.name, request.arguments), order="sorted")


def shortened(result: Any, most: int) -> Any:
    """Return a result, or the beginning of its text if it has more than `most` bytes."""
    written = result.encode() if isinstance(result, str) else encode(result)
    if len(written) <= most:
        return result
    return f"{written[:most].decode(errors='ignore')} ... [cut: {most} of {len(written)} bytes]"


def _is_unknown(error: BaseException | None) -> bool:
    """Return whether a call that failed with this error may have had an effect."""
    if isinstance(error, AgentDied):
        return error.started
    return isinstance(error, OutcomeUnknown | DeadlineExceeded)


def _reason_for_model(error: ToolFailed) -> str:
    """Return why a tool failed, in words for a model."""
    cause = error.__cause__
    if cause is None:
        return error.reason
    if isinstance(cause, OutcomeUnknown | AgentDied) and _is_unknown(cause):
        return UNKNOWN
    if isinstance(cause, DeadlineExceeded):
        return f"no answer within {cause.seconds:g} s: it was broken off, and may have done its work or not"
    if isinstance(cause, ActionFailed):
        return str(cause)
    if isinstance(cause, Forbidden | Unauthorized | NotAllowed):
        return f"{type(cause).__name__}: you may not use this. {cause}"
    if isinstance(cause, InvalidInput):
        return f"its arguments are not right: {cause}"
    if isinstance(cause, AgentDied | AgentUnavailable | MailboxFull | NotFound | RateLimited):
        return "the tool is busy or not there now; it has not begun"
    if not isinstance(cause, LmosActorsError):  # a mistake in a function, of which nobody else would hear
        _LOG.error("the tool %r failed", error.tool, exc_info=cause)
    return "the tool failed"
