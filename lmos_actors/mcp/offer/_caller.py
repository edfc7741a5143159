"""The client of a request as agents see it: what it carries out, and which log lines it gets.

An MCP client may declare that it can show a form to a person (elicitation), and that it has a model
(sampling). An agent asks its client by `ask_client`. Approvals of the agent (`approve`) are also put to the
client's user, if the access list lets that user decide. The first decision counts.

A client is asked within the request that the agent carries out, so only the clients concerned are asked.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import mcp_types as types
import msgspec
import trio
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import LoggingLevel
from mcp_types.methods import parse_server_request
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from lmos_actors._core import schema_complaint
from lmos_actors.actors import PARTS, conceal
from lmos_actors.errors import ToolFailed, nearest
from lmos_actors.files import is_mapping, mapped

from .._connection import place_of
from ._rounds import GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext

    from lmos_actors.approvals import Approval

    from .._options import McpOptions
    from ._exchange import Exchange
    from ._results import Results
    from ._rounds import Round

Context: TypeAlias = "ServerRequestContext[Any, Any]"
"""A request as the SDK passes it on."""

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"

_METHODS: Final[dict[str, tuple[Any, str]]] = {
    ELICIT: (types.ElicitResult, "elicitation"),
    SAMPLE: (types.CreateMessageResult, "sampling"),
}
"""The requests that a client carries out: the types of their results, and the capability that they need."""

LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
_OF_STRUCTLOG: Final = {"warn": "warning", "exception": "error", "fatal": "critical", "msg": "info"}

LONGEST_LINE: Final = 16_384
"""Maximum characters of a log line; a longer one is cut."""

DATA: Final = 4_000
"""Maximum characters of data beside a question; if there are more, only other people decide."""


class Caller:
    """The client of one request; a `RequestClient`, and an `Offer` of approvals.

    `level` is the index in `LEVELS` of the lowest level whose lines it wants, -1 for no lines; `on_line` is
    called when a line waits. A client that cannot be sent requests is asked in the rounds of `made`;
    `take_up` is called with the request of each further round.
    """

    def __init__(
        self,
        ctx: Context,
        exchange: Exchange,
        results: Results,
        options: McpOptions,
        level: int = -1,
        made: Round | None = None,
    ) -> None:
        self._lines: deque[tuple[LoggingLevel, Any]] = deque(maxlen=options.log_lines)
        self.on_line: Callable[[], None] | None = None
        self._seconds = options.answer_seconds
        self._level = level
        self._round = made
        self._token = trio.lowlevel.current_trio_token()
        self.held = results.begun(exchange) if made else results.opened(exchange, str(ctx.request_id))
        """The bytes of its result; a result that takes several rounds waits for the last of them."""
        self.take_up(ctx, exchange)

    def take_up(self, ctx: Context, exchange: Exchange) -> None:
        """Continue with a new request of the client; from now on everything is sent in answer to it."""
        self._ctx, self.exchange = ctx, exchange

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client wants it."""
        await self._ctx.session.report_progress(progress, total, message)

    @property
    def has_lines(self) -> bool:
        """Whether log lines wait for `send_lines`; False in rounds, each of which sends its own lines."""
        return bool(self._lines) and self._round is None

    async def send_lines(self) -> None:
        """Send the waiting log lines, unless the request is answered in rounds."""
        if self.has_lines:
            await self.flush()

    async def flush(self) -> None:
        """Send the waiting log lines."""
        while self._lines:
            level, data = self._lines.popleft()
            params = types.LoggingMessageNotificationParams(level=level, data=data)
            await self._ctx.session.send_notification(
                types.LoggingMessageNotification(params=params), related_request_id=self._ctx.request_id
            )

    # ---- what it carries out

    def _can(self, capability: str, mode: str = "form") -> bool:
        session = self._ctx.session
        has = (
            None if session.client_capabilities is None else getattr(session.client_capabilities, capability)
        )
        if isinstance(has, types.ElicitationCapability) and (has.form, has.url) != (None, None):
            has = getattr(has, mode)  # without either it has forms
        elif mode == "url":
            has = None
        return has is not None and (session.can_send_request or self._round is not None)

    async def carry_out(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Have the client carry out a request of the protocol; return its result. Raises ToolFailed."""
        if name not in _METHODS:
            near = nearest(name, _METHODS)
            hint = f": did you mean {near!r}?" if near else f": it has {ELICIT} and {SAMPLE}"
            raise ToolFailed(name, f"a client of MCP does not carry this out{hint}")
        result_type, capability = _METHODS[name]
        is_link = name == ELICIT and arguments.get("mode") == "url"
        if not self._can(capability, "url" if is_link else "form"):
            raise ToolFailed(name, "the client does not offer it")
        result = await self._asked(name, _request(name, arguments, is_link=is_link), result_type)
        data: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        if name == ELICIT and not is_link and data["action"] == "accept":
            form = msgspec.json.encode(arguments["requestedSchema"]).decode()
            wrong = schema_complaint(form, data.setdefault("content", {}))
            if wrong is not None:
                raise ToolFailed(name, f"the answer does not fit the form: {wrong}")
        return data

    async def _asked(self, name: str, request: Any, result_type: Any) -> Any:
        with trio.move_on_after(self._seconds) as limit:
            try:
                if self._round is not None:
                    answer = (await self._round.ask(request)).model_dump(by_alias=True, exclude_none=True)
                    return result_type.model_validate(answer, by_name=False)
                metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
                with self.exchange.carries():
                    return await self._ctx.session.send_request(request, result_type, metadata=metadata)
            except MCPError as error:
                is_gone = error.code == types.CONNECTION_CLOSED
                text = str(error)[:LONGEST_LINE]
                raise ToolFailed(name, text if is_gone else f"the client refuses: {text}") from None
            except ValidationError as error:
                raise ToolFailed(name, f"the answer is not of the protocol: {place_of(error)}") from None
        if limit.cancelled_caught:
            raise ToolFailed(name, f"the client did not answer within {self._seconds:g} s")
        raise ToolFailed(name, GONE)

    # ---- what its user approves

    @property
    def offer(self) -> Caller | None:
        """The offer that asks the client's user; None if the client cannot show a form."""
        return self if self._can("elicitation") else None

    @property
    def principal(self) -> str | None:
        """The name of the user, None for a user without a name."""
        return self.exchange.principal

    def allows(self, agent: str) -> bool:
        """Return whether the user may now decide a question of the agent at a path."""
        admission = self.exchange.admission
        return admission is None or admission.allows(agent.replace("/", "."), "approve")

    async def ask(self, approval: Approval, over: trio.Event) -> tuple[bool, dict[str, Any] | None] | None:
        """Return the user's decision and the filled-in form; None if no answer arrives, or `over` is set."""
        said: dict[str, Any] | None = None
        question = _question(approval)
        if question is None:
            return None

        async def end() -> None:
            await over.wait()
            nursery.cancel_scope.cancel("it is decided elsewhere")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            try:
                said = await self.carry_out(ELICIT, question)
            except ToolFailed:
                said = None  # other people decide it
            nursery.cancel_scope.cancel("it is answered")
        action = "cancel" if said is None or over.is_set() else said["action"]
        if action == "accept":
            return True, None if approval.form is None or said is None else said["content"]
        return (False, None) if action == "decline" else None

    # ---- the logs of agents

    def logged(self, level: str, event: Any, fields: Mapping[str, Any]) -> None:
        """Queue a log line for the client, if the client wants lines of that level."""
        wanted = _OF_STRUCTLOG.get(level, level)
        known: LoggingLevel | None = next((each for each in LEVELS if each == wanted), None)
        if known is None or not 0 <= self._level <= LEVELS.index(known):
            return
        data: Any = _shown(event, LONGEST_LINE)
        if fields:
            data, left = {"event": data}, LONGEST_LINE - len(data)
            for name, value in fields.items():
                if name != "exc_info" and left > 0:
                    data[_shown(name, left)] = text = _shown(value, left)
                    left -= len(name) + len(text)
        if trio.lowlevel.in_trio_run():
            self._keep(known, data)
        else:  # a thread that works for the agent
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._keep, known, data)

    def _keep(self, level: LoggingLevel, data: Any) -> None:
        self._lines.append((level, data))
        if self._round is not None:
            self._round.wake()
        elif self.on_line is not None:
            self.on_line()


def _shown(value: Any, most: int) -> str:
    """Return a value in a log line as text for sending, with its secret parts hidden."""
    try:
        text = str(conceal(value, PARTS))
    except Exception:
        text = f"<{type(value).__name__}>"
    return text[:most].encode(errors="replace").decode()


def is_modern(ctx: Context) -> bool:
    """Return whether the request has a protocol version without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def can_answer(ctx: Context) -> bool:
    """Return whether a client declares that it can carry out requests of at least one kind."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and (
        capabilities.elicitation is not None or capabilities.sampling is not None
    )


def _request(name: str, arguments: Mapping[str, Any], *, is_link: bool) -> Any:
    """Return a request in a form that a client of any version can read. Raises ToolFailed."""
    form = mapped(arguments.get("requestedSchema"))
    if (
        name == ELICIT
        and not is_link
        and (form.get("type") != "object" or not is_mapping(form.get("properties")))
    ):
        raise ToolFailed(name, "its arguments are not right: requestedSchema is an object with properties")
    try:
        params = msgspec.json.decode(msgspec.json.encode(arguments))
        return parse_server_request(name, LATEST_HANDSHAKE_VERSION, params)
    except ValidationError as error:
        raise ToolFailed(name, f"its arguments are not right: {place_of(error)}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(name, f"its arguments are not plain data: {error}") from None


def _question(approval: Approval) -> dict[str, Any] | None:
    """Return the form by which a client's user approves something; None if they could not see all of it."""
    shown = [("", approval.data), ("before, this was approved: ", approval.former)]
    told = [f"{words}{msgspec.json.encode(data).decode()}" for words, data in shown if data is not None]
    if approval.earlier:
        told.append(f"({approval.earlier} granted before under this key)")
    if sum(map(len, told)) > DATA:
        return None
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    form = nothing if approval.form is None else approval.form
    text = "\n\n".join((f"{approval.agent} asks: {approval.text}", *told))
    return {"message": text, "requestedSchema": form}
