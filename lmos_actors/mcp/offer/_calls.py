"""Tool calls: requests in the mailboxes of agents, like those of every other binding.

- **A failure is an answer.** Declared failures of a tool and wrong arguments become results with `isError`,
  which a model reads and can act on. The model learns of a crash only that it has happened.
- **A client that leaves takes its request back.** A request is cancelled if its client cancels it, or is
  gone, unless the action is declared to finish (`on_disconnect`).
- **Progress numbers grow, as the protocol requires.** A growing number is passed on unchanged. Any other
  report becomes a message with a count. The items of a stream are sent as such messages, too, and together as
  one result at the end.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from mcp_types import CallToolResult, TextContent

from lmos_actors.actors import STREAM
from lmos_actors.bindings import AgentRequest, representative, written_value
from lmos_actors.errors import ActionCancelled, ActionFailed, InvalidInput, LmosActorsError
from lmos_actors.facades import TextChunk, TurnBegan, TurnDone
from lmos_actors.protocol.lmos import problem_of

from .._values import McpProgress
from ._content import result_of
from ._tools import CONTENT, ITEMS

if TYPE_CHECKING:
    from .._options import McpOptions
    from ._caller import Caller
    from ._catalogue import OfferedTool

LONGEST_MESSAGE: Final = 65_536
"""Maximum characters of a progress message, or of a failure; longer ones are cut."""

APART: Final = 0.005
"""Minimum seconds between a report and the result."""


class Call:
    """One call of a tool."""

    def __init__(self, offered: OfferedTool, ask: AgentRequest, caller: Caller, options: McpOptions) -> None:
        self.ends_with_client = False
        """Whether a cancel can only mean that the client is gone."""
        self._offered = offered
        self._tool = offered.tool
        self._ask = ask
        self._caller = caller
        self._most = options.result_bytes
        self._most_items = options.items
        self._size = 0
        self._items: list[bytes] = []
        self._done: Any = None  # the last item of a chat
        self._session = ""
        self._sent = -1.0
        self._sent_at = -math.inf
        self._reported: Any = None

    async def run(self, arguments: dict[str, Any]) -> CallToolResult:
        """Carry out the call. Raises LmosActorsError. A cancel withdraws the request."""
        try:
            self._post(arguments)
            await self._answered()
        except trio.Cancelled:
            if self._caller.exchange.is_over or self.ends_with_client:
                self._ask.left()
            else:
                self._ask.cancel("cancelled by its client")
            raise
        except BaseException:
            self._ask.left()
            raise
        # Some clients read a report and the result in one step, and then lose the report.
        if trio.current_time() < self._sent_at + APART:
            await trio.sleep_until(self._sent_at + APART)
        return self._result(self._ask.outcome())

    def _post(self, arguments: dict[str, Any]) -> None:
        link, tool = self._offered.agent.link, self._tool
        given: Any = arguments
        if tool.lone:
            unknown = next((name for name in arguments if name != tool.lone), None)
            if unknown is not None:
                raise InvalidInput(f"there is no parameter {unknown!r}", f"$.{unknown}")
            given = arguments.get(tool.lone)
        if tool.kind == "write":
            if tool.lone not in arguments:
                raise InvalidInput(f"{tool.lone!r} is needed", f"$.{tool.lone}")
            self._ask.send(link, (tool.key, (given,), {}))
            return
        slot = representative(link)
        op = slot.operation(tool.key)
        if op.kind == STREAM:
            self._ask.items = []
        if tool.kind == "chat":
            given = _of_chat(arguments)
        if tool.lone and tool.lone not in arguments:
            self._ask.send(link, (tool.key, (), {}))
        else:
            self._ask.send(link, (tool.key, *slot.spread(op, given)))

    async def _answered(self) -> None:
        """Wait for the answer; meanwhile send progress, items and log lines to the client."""
        ask = self._ask
        caller = self._caller
        while True:
            await caller.send_lines()
            if ask.progress is not self._reported:
                self._reported = ask.progress
                await self._report(*self._measured(ask.progress))
            for item in ask.taken() if ask.items else ():
                await self._take(item)
            if ask.done and not ask.items and not caller.has_lines:
                return
            if not (ask.done or ask.items or caller.has_lines) and ask.progress is self._reported:
                await ask.something()

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        await self._caller.report(progress, total, message)
        self._sent_at = trio.current_time() if self._ask.tells_progress else self._sent_at

    def _measured(self, value: Any) -> tuple[float, float | None, str | None]:
        """Return progress as a number greater than the previous report's."""
        total, message = None, None
        if isinstance(value, McpProgress):
            value, total, message = value.progress, value.total, value.message[:LONGEST_MESSAGE] or None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and self._sent < value <= sys.float_info.max:
            self._sent = float(value)
            return self._sent, total, message
        text = value if isinstance(value, str) else written_value(value).decode()
        return self._counted(), total, message or text[:LONGEST_MESSAGE]

    def _counted(self) -> float:
        self._sent = max(float(int(self._sent) + 1), 1.0)
        return self._sent

    async def _take(self, item: Any) -> None:
        if self._tool.kind == "chat":
            if isinstance(item, TurnBegan):
                self._session = item.session
            elif isinstance(item, TurnDone):
                self._done = item
            elif isinstance(item, TextChunk) and item.text and item.role == "agent":
                await self._report(self._counted(), None, item.text[:LONGEST_MESSAGE])
            return
        written = written_value(item)
        self._size += len(written)
        if self._size > self._most or len(self._items) >= self._most_items:
            raise ActionCancelled(f"the stream has more than {self._most} bytes or {self._most_items} items")
        self._caller.held.add(len(written))
        self._items.append(written)
        await self._report(self._counted(), None, written.decode()[:LONGEST_MESSAGE])

    def _result(self, value: Any) -> CallToolResult:
        tool = self._tool
        if tool.kind == "chat":
            text = "" if self._done is None else self._done.text
            self._caller.held.add(len(text))
            return _answer(text, {"text": text, "session": self._session})
        if tool.wrapper == CONTENT:
            return self._content(value)
        if tool.wrapper == ITEMS:
            written = b"[%s]" % b",".join(self._items)
        elif value is None and (tool.kind == "write" or tool.output is None):
            return CallToolResult(content=[])
        else:
            written = written_value(value)
        if len(written) > self._most:
            return failure(f"the result has more than {self._most} bytes")
        if tool.wrapper != ITEMS:
            self._caller.held.add(len(written))
        data: Any = msgspec.json.decode(written)
        structured: dict[str, Any] = {tool.wrapper: data} if tool.wrapper else data
        return _answer(data if isinstance(data, str) else written.decode(), structured)

    def _content(self, value: Any) -> CallToolResult:
        size = len(written_value(value))
        if size > self._most:
            return failure(f"the result has more than {self._most} bytes")
        self._caller.held.add(size)
        return result_of(value)


def _of_chat(arguments: dict[str, Any]) -> dict[str, Any]:
    for name, value in arguments.items():
        if name not in ("content", "session"):
            raise InvalidInput(f"there is no parameter {name!r}, only content and session", f"$.{name}")
        if not isinstance(value, str):
            raise InvalidInput("a text is needed", f"$.{name}")
    if "content" not in arguments:
        raise InvalidInput("the message is needed", "$.content")
    return arguments


def _answer(text: str, structured: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def failure(text: str) -> CallToolResult:
    """Return a result that reports a failure; a text that is too long is cut."""
    # Half a character could not be sent, and nothing else in its place.
    sent = text[:LONGEST_MESSAGE].encode(errors="replace").decode()
    return CallToolResult(content=[TextContent(type="text", text=sent)], is_error=True)


def failure_of(error: LmosActorsError) -> CallToolResult:
    """Return the failure that a client gets for an error: the declared parts only, without internals."""
    if isinstance(error, ActionFailed):
        return failure(str(error))
    problem = problem_of(error)
    where = f" - at {problem.path}" if problem.path and problem.path != "$" else ""
    return failure(f"{problem.title}: {problem.detail}{where}" if problem.detail else problem.title)
