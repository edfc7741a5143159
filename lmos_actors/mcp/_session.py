"""A session with an MCP server, by the client of the SDK: requests, their failures, and reported changes.

What SDK 2.3 was found to do on trio:

- A cancelled request sends `notifications/cancelled` in a bounded shield, or closes its POST; the session
  goes on.
- Its check of results compiles schemas for `jsonschema`, which uses Python's regular expressions: a server
  can write one that runs for years. It is switched off here, and results are checked by `schema_complaint`.
- In the 2026 version a request for user input is answered inside `call_tool`, by the same callbacks as an
  elicitation of older servers.
- Servers of 2026 report changes only on a stream that is asked for (`listen`); its messages reach the message
  handler too, like the notifications of older servers.
- A request sees the end of its session as an `MCPError` with a code that servers use for errors of their own;
  so the connection is asked instead.
"""

from __future__ import annotations

import math
import re
from contextlib import ExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import mcp_types as types
import msgspec
import trio
from mcp import Client, InputRequiredRoundsExceededError, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from lmos_actors.errors import ActionFailed, group_of

from ._connection import place_of
from ._failures import (
    BROKEN,
    NO_ANSWER,
    NOT_SENT,
    REQUEST_REFUSED,
    RESULT_INVALID,
    RESULT_TOO_LARGE,
    TOOL_FAILED,
    UNREADABLE,
    McpServerLost,
    SessionLost,
    mcp_failure,
)
from ._spans import request_going_out
from ._values import (
    TOOL_BYTES,
    TOOLS_BYTES,
    McpArgument,
    McpContent,
    McpInfo,
    McpMessage,
    McpProgress,
    McpPrompt,
    McpResource,
    McpResult,
    McpTool,
    tool_bytes,
    tool_problem,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from ._connection import Connection
    from ._questions import Questions

T = TypeVar("T")

MOST_PAGES: Final = 1_000
"""Maximum pages of one list."""

TEXT: Final = 4_096
"""Maximum characters of names, descriptions and instructions."""

_UNREADABLE: Final = re.compile(rf"(?:[\w ]+: )?{UNREADABLE}(.+)|Failed to parse .*: \d+ validation error")
"""The texts of failures for unreadable answers: our own, and those of the SDK over HTTP."""

CLIENT: Final = types.Implementation(name="lmos-actors", version="0")


@attrs.frozen
class Limits:
    """Limits of a session: seconds to begin, seconds of a request, bytes of a result, entries of a list."""

    start_seconds: float
    call_seconds: float
    result_bytes: int
    most_tools: int


@attrs.frozen
class Found:
    """The accepted entries of a server's list, and texts about those left out."""

    entries: tuple[Any, ...]
    left_out: tuple[str, ...] = ()


class Session:
    """A session that has begun."""

    def __init__(self, client: Client, connection: Connection, limits: Limits, questions: Questions) -> None:
        self._client = client
        self._questions = questions
        self._connection = connection
        self._limits = limits
        self._in_progress = 0
        self._settled = trio.Event()
        client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The server's name, as it is shown."""
        return self._connection.name

    @property
    def is_lost(self) -> bool:
        """Whether nothing more can be sent in the session."""
        return self._connection.lost.is_set()

    @property
    def info(self) -> McpInfo:
        """The server's description of itself."""
        session = self._client.session
        about = session.server_info
        return McpInfo(
            _bounded(about.name if about else ""),
            _bounded(about.version if about else ""),
            session.protocol_version or "",
            _bounded(session.instructions),
        )

    # ---- lists

    async def tools(self) -> Found:
        """Return the tools. A tool that breaks a rule is left out."""
        if not self._offers("tools"):
            return Found(())
        most = self._limits.most_tools
        listed = await self._pages(self._client.list_tools, lambda page: page.tools, most)
        found: dict[str, McpTool] = {}
        left: list[str] = []
        room = TOOLS_BYTES
        for each in listed[:most]:
            tool, why = _tool_of(each)
            size = tool_bytes(tool)
            if why is None and tool.name in found:
                why = "there are two of that name"
            elif why is None and size > room:
                why = f"all tools have more than {TOOLS_BYTES} bytes"
            if why is None:
                found[tool.name], room = tool, room - size
            else:
                left.append(f"{self._connection.shown(each.name)}: {why}")
        if len(listed) > most:
            left.append(f"all after the first {most} (most_tools)")
        return Found(tuple(found.values()), tuple(left))

    async def resources(self) -> Found:
        """Return the resources and the templates of resources."""
        if not self._offers("resources"):
            return Found(())
        most = self._limits.most_tools
        listed = await self._pages(self._client.list_resources, lambda page: page.resources, most)
        found = [
            McpResource(each.uri, each.name, _bounded(each.description), each.mime_type or "")
            for each in listed
        ]
        templates = await self._pages(self._templates, lambda page: page.resource_templates, most)
        found += [
            McpResource(each.uri_template, each.name, _bounded(each.description), each.mime_type or "", True)
            for each in templates
        ]
        return Found(tuple(filter(_fits, found[:most])))

    async def _templates(self, *, cursor: str | None) -> types.ListResourceTemplatesResult:
        """Return a page of templates, which is empty if the server does not know templates."""
        try:
            return await self._client.list_resource_templates(cursor=cursor)
        except MCPError as error:
            if error.error.code != types.METHOD_NOT_FOUND:
                raise
            return types.ListResourceTemplatesResult(resource_templates=[])

    async def prompts(self) -> Found:
        """Return the prompts."""
        if not self._offers("prompts"):
            return Found(())
        most = self._limits.most_tools
        listed = await self._pages(self._client.list_prompts, lambda page: page.prompts, most)
        return Found(tuple(filter(_fits, map(_prompt_of, listed[:most]))))

    def _offers(self, what: str) -> bool:
        capabilities = self._client.session.server_capabilities
        return capabilities is not None and getattr(capabilities, what) is not None

    async def _pages(
        self,
        fetch: Callable[..., Coroutine[Any, Any, Any]],
        entries: Callable[[Any], Iterable[Any]],
        most: int,
    ) -> list[Any]:
        """Return the entries of all pages; read at most one page beyond the first `most` entries."""
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._answer(fetch(cursor=cursor), "a list", asks=False)
            found += entries(page)
            cursor = page.next_cursor
            if cursor is None or len(found) > most:
                break
        return found

    # ---- requests

    async def call(
        self, name: str, arguments: dict[str, Any], report: Callable[[McpProgress], None]
    ) -> McpResult:
        """Call a tool. Raises ActionFailed, SessionLost."""

        def heard(progress: float, total: float | None, message: str) -> None:
            report(McpProgress(progress, total, _bounded(message)))

        with self._going("tools/call", name) as trace:
            with self._connection.reports(heard) as token:
                meta: Any = {"progress_token": token, **trace}
                request = self._client.call_tool(name, arguments, meta=meta)
                result = await self._answer(request, f"the tool {name!r}")
            taken = self._taken(McpResult(tuple(map(_content_of, result.content)), result.structured_content))
            if result.is_error:
                text = "\n".join(each.text for each in taken.content if each.text) or "no reason was given"
                raise mcp_failure(TOOL_FAILED, text)
            return taken

    async def read_resource(self, uri: str) -> list[McpContent]:
        """Read a resource. Raises ActionFailed, SessionLost."""
        with self._going("resources/read") as meta:
            result = await self._answer(self._client.read_resource(uri, meta=meta), f"the resource {uri!r}")
            return self._taken([_contents_of(each) for each in result.contents])

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> list[McpMessage]:
        """Fill in a prompt. Raises ActionFailed, SessionLost."""
        with self._going("prompts/get", name) as meta:
            request = self._client.get_prompt(name, arguments, meta=meta)
            result = await self._answer(request, f"the prompt {name!r}")
            return self._taken([McpMessage(each.role, _content_of(each.content)) for each in result.messages])

    def _going(self, method: str, target: str = "") -> AbstractContextManager[Any]:
        return request_going_out(method, self._client.session.protocol_version, target)

    def _taken(self, result: T) -> T:
        """Return a result as plain JSON data. Raises ActionFailed for a result that is too large."""
        written = msgspec.json.encode(result)
        most = self._limits.result_bytes
        if len(written) > most:
            text = f"the result has {len(written)} bytes, and {most} are taken (result_bytes)"
            raise mcp_failure(RESULT_TOO_LARGE, text)
        if isinstance(result, McpResult) and result.structured is not None:  # NaN becomes null
            plain = msgspec.json.decode(msgspec.json.encode(result.structured))
            return msgspec.structs.replace(result, structured=plain)
        return result

    async def _answer(
        self,
        request: Coroutine[Any, Any, T],
        what: str,
        *,
        asks: bool = True,
    ) -> T:
        """Return the answer to a request. With `asks` the server may ask the user meanwhile.

        Raises ActionFailed, SessionLost.
        """
        if self._connection.lost.is_set():
            request.close()
            raise SessionLost(self._connection.why, begun=False)
        seconds = self._limits.call_seconds
        scope = trio.CancelScope(deadline=trio.current_time() + seconds)
        self._connection.owed += 1
        self._in_progress += 1
        try:
            with self._questions.during_call(scope) if asks else nullcontext(), scope:
                return await request
        except (MCPError, ValidationError, InputRequiredRoundsExceededError, RuntimeError) as error:
            if self._connection.lost.is_set() and (not isinstance(error, MCPError) or _is_end(str(error))):
                raise SessionLost(self._connection.why, begun=NOT_SENT not in str(error)) from None
            raise self._failure(error, what) from None
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._settled.set()
                self._settled = trio.Event()
        text = f"{what} was not answered within {seconds:g} s: it may have done its work or not"
        raise mcp_failure(NO_ANSWER, text)

    async def settled(self) -> None:
        """Wait until no request is in progress."""
        if self._in_progress:
            await self._settled.wait()

    def _failure(self, error: Exception, what: str) -> ActionFailed:
        text = str(error)
        if isinstance(error, ValidationError):
            text = f"the answer about {what} is not of the protocol: {place_of(error)}"
            return mcp_failure(RESULT_INVALID, text)
        if not isinstance(error, MCPError):
            return mcp_failure(REQUEST_REFUSED, f"{what}: {self._connection.shown(text)}")
        if "more bytes than are taken" in text:
            return mcp_failure(RESULT_TOO_LARGE, f"{what}: the answer has more bytes than are taken")
        if unreadable := _UNREADABLE.match(text):
            why = self._connection.shown(unreadable[1] or "it is not of the protocol")
            return mcp_failure(RESULT_INVALID, f"the answer about {what} cannot be read: {why}")
        if text.startswith(("SSE stream", "Failed to parse")):
            return mcp_failure(
                NO_ANSWER, f"the answer about {what} broke off: it may have done its work or not"
            )
        if text == "Server returned an error response":
            text = f"the server answers with status {self._connection.status}"
        return mcp_failure(REQUEST_REFUSED, self._connection.shown(text))

    async def listen(self) -> None:
        """Hold the stream of changes open, if the version of the protocol has one."""
        session = self._client.session
        while session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with self._client.listen(
                    tools_list_changed=self._offers("tools"),
                    prompts_list_changed=self._offers("prompts"),
                    resources_list_changed=self._offers("resources"),
                ) as changes:
                    async for _ in changes:
                        pass
            except MCPError:
                return  # it has no such stream
            except SubscriptionLost:
                pass
            await trio.sleep(5.0)  # before a broken stream of changes is opened again


@asynccontextmanager
async def open_session(
    transport: AbstractAsyncContextManager[Any],
    connection: Connection,
    limits: Limits,
    changed: Callable[[str], None],
    questions: Questions,
) -> AsyncGenerator[Session]:
    """Begin a session; `changed` gets the kind of each change, `questions` the questions of the server.

    Raises McpServerLost, also if the server cannot be started.
    """

    async def heard(message: object) -> None:
        kind = _CHANGES.get(type(message))
        if kind is not None:
            changed(kind)

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        del context
        action, content = await questions.answer(
            connection.hidden(params.message), getattr(params, "requested_schema", None), params.mode
        )
        return types.ElicitResult(action=action, content=content)

    client = Client(
        transport, cache=None, client_info=CLIENT, message_handler=heard, elicitation_callback=answer
    )
    scope = trio.CancelScope(deadline=trio.current_time() + limits.start_seconds)
    try:
        with scope, ExitStack() as beginning:
            beginning.enter_context(questions.put_off(scope))
            async with client:
                beginning.close()
                scope.deadline = math.inf
                yield Session(client, connection, limits, questions)
    except BaseException as error:
        raise _cause(error, connection) from None
    if scope.cancelled_caught:
        raise McpServerLost(
            f"the MCP server {connection.name} does not begin a session within {limits.start_seconds:g} s"
        )


def _cause(error: BaseException, connection: Connection) -> BaseException:
    """Return the only error in nested exception groups.

    An error by which the SDK reports a lost server is replaced by McpServerLost.
    """
    group = group_of(error)
    if group is not None:
        rest = group.split(trio.Cancelled)[1]
        leaves = [] if rest is None else list(_leaves(rest))
        if len(leaves) != 1:
            return error
        error = leaves[0]
    of_streams = type(error).__module__.startswith("anyio")  # closed while something was in progress
    if isinstance(error, MCPError | ValidationError | RuntimeError) or of_streams:
        why = (
            connection.why
            or f"the MCP server {connection.name} refuses a session: {_refusal(error, connection)}"
        )
        return McpServerLost(why)
    return error


def _refusal(error: BaseException, connection: Connection) -> str:
    if connection.status:
        return f"it answers with status {connection.status}"
    return connection.shown(str(error).partition("\n")[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for each in group.exceptions:
        inner = group_of(each)
        if inner is None:
            yield each
        else:
            yield from _leaves(inner)


def _is_end(text: str) -> bool:
    """Return whether an error is the end of a request's connection, and not an error of the server."""
    if UNREADABLE in text:
        return False
    return text in ("Connection closed", BROKEN) or text.startswith((NOT_SENT, "SSE stream"))


async def _unchecked(name: str, result: Any) -> None:
    """Skip the SDK's check of a result: it is checked here, without Python's regular expressions."""
    del name, result


# ---- from the types of the SDK

_CHANGES: Final[dict[type, str]] = {
    types.ToolListChangedNotification: "tools",
    types.ResourceListChangedNotification: "resources",
    types.PromptListChangedNotification: "prompts",
}


def _bounded(text: str | None) -> str:
    return (text or "")[:TEXT]


def _tool_of(tool: types.Tool) -> tuple[McpTool, str | None]:
    """Return a tool, and the reason why it cannot be used; None as the reason if it can."""
    hints = tool.annotations or types.ToolAnnotations()
    taken = McpTool(
        tool.name,
        tool.description or tool.title or "",
        _json(tool.input_schema),
        "" if tool.output_schema is None else _json(tool.output_schema),
        read_only=hints.read_only_hint is True,
        idempotent=hints.idempotent_hint is True,
    )
    return taken, tool_problem(taken)


def _fits(entry: McpResource | McpPrompt) -> bool:
    """Return whether an entry of a list has no more bytes than a tool may have."""
    return len(msgspec.json.encode(entry)) <= TOOL_BYTES


def _json(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()


def _prompt_of(prompt: types.Prompt) -> McpPrompt:
    arguments = [
        McpArgument(each.name, _bounded(each.description), each.required is True)
        for each in prompt.arguments or ()
    ]
    return McpPrompt(prompt.name, _bounded(prompt.description), tuple(arguments))


def _content_of(content: Any) -> McpContent:
    if isinstance(content, types.TextContent):
        return McpContent(text=content.text)
    if isinstance(content, types.ImageContent | types.AudioContent):
        return McpContent(content.type, data=content.data, mime_type=content.mime_type)
    if isinstance(content, types.ResourceLink):
        return McpContent("link", content.name, mime_type=content.mime_type or "", uri=content.uri)
    if isinstance(content, types.EmbeddedResource):
        return _contents_of(content.resource)
    return McpContent(text=f"[content of an unknown kind: {type(content).__name__}]")


def _contents_of(contents: types.TextResourceContents | types.BlobResourceContents) -> McpContent:
    kind = contents.mime_type or ""
    if isinstance(contents, types.BlobResourceContents):
        return McpContent("resource", data=contents.blob, mime_type=kind, uri=contents.uri)
    return McpContent("resource", contents.text, mime_type=kind, uri=contents.uri)
