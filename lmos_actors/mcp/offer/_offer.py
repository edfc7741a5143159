"""The MCP server of a node: it answers the requests of clients through the node's agents.

It is one server of the SDK for every kind of carrier: sessions over HTTP, requests without a session, as from
2026-07-28 on, or two streams. Each request is checked against the present rights of its client
(`Exchange.admission`), not against those from the beginning of the session: a client that loses a right has
lost it at the next call. To a client, a tool that it may not call is unknown.

A client is sent only what it has requested, and notifications of the session that it holds open. Work for
clients is counted and bounded, for all clients together and for each.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from functools import partial, wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar

import mcp_types as types
import trio
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
    event_to_notification,
)

from lmos_actors.bindings import AgentRequest, discreet, written_value
from lmos_actors.errors import InvalidInput, LmosActorsError, RateLimited, Unauthorized

from .._spans import WAY, request_attributes
from ._caller import LEVELS, Caller, can_answer, is_modern
from ._calls import Call, failure, failure_of
from ._catalogue import BadCursor, Catalogue
from ._exchange import Exchange, exchange_of
from ._reading import REFUSED, Reading
from ._results import Results
from ._rounds import Round, Rounds
from ._watching import Subscriber, Watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from mcp.server.context import CallNext
    from mcp.server.models import InitializationOptions

    from lmos_actors.actors import Runtime, Seats
    from lmos_actors.bindings import Exposed, Exposure

    from .._options import McpOptions
    from ._caller import Context
    from ._catalogue import OfferedTool

P = TypeVar("P")
R = TypeVar("R")

LEAVING: Final = "the node is shutting down"
_SESSION: Final = "lmos_actors"
_LEVEL: Final = "lmos_actors.level"
_QUIET: Final = ("mcp.server", "sse_starlette")


class _Server(Server[Any]):
    """The server of the SDK, extended to declare that lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the description of this server for the handshake."""
        options = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class McpOffer:
    """The agents of a node, as an MCP server; the `RequestTracker` of its requests.

    `on_failure` receives errors that are bugs; it must not raise. `run` has to run while clients are served.
    """

    def __init__(
        self,
        rt: Runtime,
        exposure: Exposure,
        *,
        options: McpOptions,
        seats: Seats,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.rt = rt
        self.options = options
        self.seats = seats
        self.open: dict[AgentRequest, None] = {}
        self.draining = False
        self.sessions: Counter[str] = Counter()
        """The number of sessions, by the owner for whom they are counted."""
        self.own_exchange: Exchange | None = None
        """The carrier of all requests, unless that is an HTTP request."""
        self._on_failure = on_failure
        self.catalogue = Catalogue(rt, exposure, options.agent)
        self._watching = Watching(rt, self.catalogue, on_failure)
        self._reading = Reading(self, self._watching)
        self._rounds = Rounds(options.answer_seconds)
        self._calls: Counter[str] = Counter()
        self._results = Results(options.waiting_bytes)
        self._listening: dict[Subscriber, None] = {}
        self._nursery: trio.Nursery | None = None
        self.server = self._made_server()

    def _made_server(self) -> Server[Any]:
        for name in _QUIET:  # what any client can cause would be logged with a traceback
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.CRITICAL)
        server = _Server(
            self.options.name,
            version=version("lmos_actors"),
            instructions=self.options.instructions or None,
            get_tool_input_schema=_no_headers,
            on_list_tools=self._answers(self._list_tools),
            on_call_tool=self._answers(self._call_tool),
            on_list_prompts=self._answers(self._reading.list_prompts),
            on_get_prompt=self._answers(self._reading.get_prompt),
            on_completion=self._answers(self._reading.complete),
            on_list_resources=self._answers(self._reading.list_resources),
            on_list_resource_templates=self._answers(self._reading.list_templates),
            on_read_resource=self._answers(self._reading.read),
            on_subscribe_resource=self._answers(self._subscribe),
            on_unsubscribe_resource=self._answers(self._unsubscribe),
            on_subscriptions_listen=self._answers(self._listen),
        )
        if self.options.logs:
            server.add_request_handler(
                "logging/setLevel", types.SetLevelRequestParams, self._answers(self._set_level)
            )
        server.middleware[:] = [self._in_session]  # tracing is that of the agents' requests
        return server

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks that notify clients, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await nursery.start(self._watching.run)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    # ---- as the tracker of its requests

    def settled(self) -> None:
        """Do nothing at the end of a request, as its answer is still to be sent."""

    def shown(self, error: Exception) -> Exception:
        """Return an error as clients see it: without details of a crash, as models repeat what they read."""
        return discreet(error)

    def drain(self) -> None:
        """Accept no more requests; those in progress are answered, without questions to anybody."""
        if not self.draining:
            self.draining = True
            self._rounds.end_asking(LEAVING)

    def end_listening(self) -> None:
        """End the requests that wait for changes, in order."""
        for subscriber in tuple(self._listening):
            subscriber.end()

    # ---- sessions

    def has_room(self, exchange: Exchange, opening: int = 0) -> bool:
        """Return whether a client may have one more session; `opening` counts sessions that are beginning."""
        return _has_room(self.sessions, exchange, self.options.sessions, opening)

    async def _in_session(self, ctx: Context, call_next: CallNext) -> Any:
        """Set up the session of a connection at its first message."""
        if not is_modern(ctx):
            self._subscriber(ctx)
        return await call_next(ctx)

    def _state(self, ctx: Context) -> dict[str, Any]:
        """Return the dict for data that is kept with a message's session."""
        connection: Any = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        state: dict[str, Any] = connection.state
        return state

    def _subscriber(self, ctx: Context) -> Subscriber:
        """Return the subscriber for a message's session, which is made at the first message.

        Clean-up happens at the end of the connection (`exit_stack`), which the SDK does not expose to
        handlers.
        """
        state = self._state(ctx)
        connection: Any = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        found: Subscriber | None = state.get(_SESSION)
        if found is None:
            exchange = self._exchange(ctx)
            found = state[_SESSION] = Subscriber(exchange.admission, tools=True, resources=True, prompts=True)
            self.sessions[exchange.owner] += 1
            self._watching.add(found)
            connection.exit_stack.callback(self._end_session, found, exchange.owner)
            if self._nursery is not None:
                self._nursery.start_soon(
                    self._notify, found, connection, name="notifications of an MCP client"
                )
        return found

    def _end_session(self, subscriber: Subscriber, owner: str) -> None:
        self._watching.remove(subscriber)
        self.sessions -= Counter((owner,))

    async def _notify(self, subscriber: Subscriber, connection: Any) -> None:
        """Notify a session of changes; a client that does not read delays no other task."""
        while (changes := await subscriber.changes()) is not None:
            agents, uris = changes
            if agents:
                await connection.send_tool_list_changed()
                await connection.send_prompt_list_changed()
                await connection.send_resource_list_changed()
            for uri in uris:
                if self._watching.may_hear(uri, subscriber):
                    await connection.send_resource_updated(uri)

    # ---- requests

    def _exchange(self, ctx: Context) -> Exchange:
        found = exchange_of(ctx.request) or self.own_exchange
        assert found is not None  # every request comes by one of the two ways
        return found

    def _answers(
        self, handle: Callable[[Context, Exchange, P], Awaitable[R]]
    ) -> Callable[[Context, P], Awaitable[R]]:
        """Wrap a handler for the SDK: it is cancelled when its carrier ends, and raises MCPError."""

        @wraps(handle)
        async def answer(ctx: Context, params: P) -> R:
            exchange = self._exchange(ctx)
            with exchange.carries():
                try:
                    if self.draining:
                        raise MCPError(REFUSED, LEAVING)
                    if exchange.admission is not None:
                        exchange.admission.charge(trio.current_time())
                    return await handle(ctx, exchange, params)
                except (RateLimited, Unauthorized) as error:
                    raise MCPError(REFUSED, str(error)) from None
                except InvalidInput as error:
                    raise MCPError(types.INVALID_PARAMS, str(error)) from None
                except LmosActorsError as error:
                    text = failure_of(error).content[0]
                    raise MCPError(types.INTERNAL_ERROR, getattr(text, "text", "")) from None
                except MCPError:
                    raise
                except Exception as error:
                    self._on_failure(error)
                    raise MCPError(types.INTERNAL_ERROR, "the answer could not be made") from None
            raise MCPError(types.CONNECTION_CLOSED, "the client is gone")

        return answer

    def ask(self, ctx: Context, exchange: Exchange) -> AgentRequest:
        """Make a request that is sent to an agent on behalf of a client."""
        meta: dict[str, Any] = dict(ctx.meta or {})
        trace = {
            word: text
            for word in ("traceparent", "tracestate")
            if isinstance(text := meta.get(word, exchange.headers.get(word)), str)
        }
        allows = {} if exchange.admission is None else {"allows": exchange.admission.allows}
        made = AgentRequest(
            self, exchange.label, exchange.principal, trace.get("traceparent"), trace.get("tracestate"), WAY,
            **allows,
        )  # fmt: skip
        if self.rt.edge is not None:
            target = (ctx.params or {}).get("name")
            made.attributes = request_attributes(ctx.method, ctx.protocol_version, target)
        return made

    # ---- tools

    async def _list_tools(
        self, _: Any, exchange: Exchange, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        page, cursor = self.page(self.catalogue.tools, exchange, params)
        return types.ListToolsResult(tools=list(map(_tool, page)), next_cursor=cursor)

    def page(self, listed: Any, exchange: Exchange, params: types.PaginatedRequestParams | None) -> Any:
        """Return a page of a list in the catalogue, and the cursor of the next. Raises MCPError."""
        try:
            return listed(exchange.admission, None if params is None else params.cursor, self.options.page)
        except BadCursor as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def _call_tool(
        self, ctx: Context, exchange: Exchange, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        found = self.catalogue.tool(params.name, exchange.admission)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown tool")
        try:
            answer: types.CallToolResult = await self._carried(
                ctx, exchange, params, partial(self._called, ctx, found, params)
            )
        except _Full as full:
            return failure(str(full))
        return answer

    async def _called(
        self, ctx: Context, found: OfferedTool, params: types.CallToolRequestParams, caller: Caller
    ) -> types.CallToolResult:
        ask = self.ask(ctx, caller.exchange)
        ask.client, caller.on_line = caller, ask.wake
        ask.tells_progress = "progress_token" in (ctx.meta or {})
        call = Call(found, ask, caller, self.options)
        call.ends_with_client = ctx.request is not None and is_modern(ctx)
        try:
            return await call.run(params.arguments or {})
        except LmosActorsError as error:
            return failure_of(error)
        except Exception as error:
            self._on_failure(error)
            return failure("the answer could not be made")

    async def invoked(
        self,
        ctx: Context,
        exchange: Exchange,
        params: types.InputResponseRequestParams,
        agent: Exposed,
        requested: tuple[str, dict[str, Any]],
        fill: Callable[[Any], R],
    ) -> Any:
        """Return the answer for the result of an action. Raises LmosActorsError, MCPError."""
        name, given = requested

        async def done(caller: Caller) -> R:
            ask = self.ask(ctx, caller.exchange)
            ask.client = caller
            ask.send(agent.link, (name, (), given))
            try:
                value = await ask.result()
            except LmosActorsError:
                await caller.send_lines()
                raise
            await caller.send_lines()
            self._check(size := len(written_value(value)))
            caller.held.add(size)
            return fill(value)

        return await self._carried(ctx, exchange, params, done)

    async def _carried(
        self,
        ctx: Context,
        exchange: Exchange,
        params: types.InputResponseRequestParams,
        done: Callable[[Caller], Awaitable[Any]],
    ) -> Any:
        """Carry out a request; return its result, or a question to the client. Raises _Full."""
        known = self._rounds.found(params, exchange)
        if known is not None:
            known.caller.take_up(ctx, exchange)
            return await self._next(known, ctx, exchange)
        if not _has_room(self._calls, exchange, self.options.calls):
            raise _Full(REFUSED, "too many calls are in progress: try again later")
        made = self._rounds.begun(params, exchange) if is_modern(ctx) and can_answer(ctx) else None
        caller = Caller(ctx, exchange, self._results, self.options, self._level(ctx), made)
        if made is None or self._nursery is None:
            with self._counted(exchange):
                return await done(caller)
        made.caller = caller
        self._nursery.start_soon(
            self._in_rounds, made, exchange, partial(done, caller), name="a request of an MCP client"
        )
        return await self._next(made, ctx, exchange)

    @contextmanager
    def _counted(self, exchange: Exchange) -> Generator[None]:
        self._calls[exchange.owner] += 1
        try:
            yield
        finally:
            self._calls -= Counter((exchange.owner,))

    async def _in_rounds(self, made: Round, exchange: Exchange, done: Callable[[], Awaitable[Any]]) -> None:
        """Carry out a request until its client has fetched the result, or has not done so in time."""
        with self._counted(exchange):
            await self._rounds.run(made, done)
            if not made.is_taken:
                made.caller.held.close()

    async def _next(self, made: Round, ctx: Context, exchange: Exchange) -> Any:
        """Return the next answer to a request in rounds; a result's bytes are counted until it is sent."""
        try:
            answer = await made.next(self.options.answer_seconds)
        except BaseException:
            made.caller.held.close()
            raise
        if made.is_taken:
            exchange.holds(str(ctx.request_id), made.caller.held.close)
        return answer

    def hold(self, ctx: Context, exchange: Exchange, size: int) -> None:
        """Count the bytes of a result as held until it has been sent. Raises MCPError, LmosActorsError."""
        self._check(size)
        self._results.opened(exchange, str(ctx.request_id)).add(size)

    def _check(self, size: int) -> None:
        if size > self.options.result_bytes:
            raise MCPError(REFUSED, f"the value has more than {self.options.result_bytes} bytes")

    # ---- logs

    def _level(self, ctx: Context) -> int:
        """Return the index of the lowest log level that a client wants, -1 for no lines."""
        if not self.options.logs:
            return -1
        if is_modern(ctx):
            level = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        else:
            level = self._state(ctx).get(_LEVEL, "info")
        return LEVELS.index(level) if level in LEVELS else -1

    async def _set_level(
        self, ctx: Context, exchange: Exchange, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._state(ctx)[_LEVEL] = params.level
        return types.EmptyResult()

    # ---- subscriptions

    async def _subscribe(
        self, ctx: Context, exchange: Exchange, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        subscriber = self._subscriber(ctx)
        found = self._reading.found(ctx, params.uri, exchange)
        if found.source is None:
            raise MCPError(types.INVALID_PARAMS, "changes of this resource are not observable")
        if len(subscriber.uris) >= self.options.subscriptions and found.uri not in subscriber.uris:
            raise MCPError(REFUSED, f"more than {self.options.subscriptions} subscriptions")
        self._watching.join(found, subscriber, exchange.admission)
        return types.EmptyResult()

    async def _unsubscribe(
        self, ctx: Context, exchange: Exchange, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._watching.leave(params.uri, self._subscriber(ctx))
        return types.EmptyResult()

    # ---- notifications without a session

    async def _listen(
        self,
        ctx: Context,
        exchange: Exchange,
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Notify a client while its request lasts. Resources that it may not see are left out silently."""
        wanted = params.notifications
        uris = dict.fromkeys(wanted.resource_subscriptions or ())
        if len(uris) > self.options.subscriptions:
            raise MCPError(REFUSED, f"more than {self.options.subscriptions} subscriptions")
        found = [each for uri in uris if (each := self.catalogue.resource(uri, exchange.admission))]
        with self._listener(exchange, wanted) as subscriber:
            for each in found:
                if each.source is not None:
                    self._watching.join(each, subscriber, exchange.admission)
            meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
            honoured = types.SubscriptionFilter(
                tools_list_changed=subscriber.wants_tools or None,
                resources_list_changed=subscriber.wants_resources or None,
                prompts_list_changed=subscriber.wants_prompts or None,
                resource_subscriptions=list(subscriber.uris) or None,
            )
            acknowledged = types.SubscriptionsAcknowledgedNotificationParams(
                notifications=honoured, _meta=meta
            )
            send = partial(ctx.session.send_notification, related_request_id=ctx.request_id)
            await send(types.SubscriptionsAcknowledgedNotification(params=acknowledged))
            while (changes := await subscriber.changes()) is not None:
                for event in self._events(subscriber, *changes):
                    await send(event_to_notification(event, meta))
        return types.SubscriptionsListenResult(_meta=meta)

    def _events(self, subscriber: Subscriber, agents: bool, uris: list[str]) -> Generator[Any]:
        if agents and subscriber.wants_tools:
            yield ToolsListChanged()
        if agents and subscriber.wants_resources:
            yield ResourcesListChanged()
        if agents and subscriber.wants_prompts:
            yield PromptsListChanged()
        yield from (ResourceUpdated(uri) for uri in uris if self._watching.may_hear(uri, subscriber))

    @contextmanager
    def _listener(self, exchange: Exchange, wanted: types.SubscriptionFilter) -> Generator[Subscriber]:
        owner = exchange.owner
        if not self.has_room(exchange):
            raise MCPError(REFUSED, "too many sessions are open")
        made = Subscriber(
            exchange.admission,
            tools=bool(wanted.tools_list_changed),
            resources=bool(wanted.resources_list_changed),
            prompts=bool(wanted.prompts_list_changed),
        )
        self.sessions[owner] += 1
        self._listening[made] = None
        self._watching.add(made)
        try:
            yield made
        finally:
            self._watching.remove(made)
            del self._listening[made]
            self.sessions -= Counter((owner,))


class _Full(MCPError):
    """Raised if too many calls are in progress."""


def _has_room(counts: Counter[str], exchange: Exchange, most: int, opening: int = 0) -> bool:
    """Return whether a client may have one more of something: one principal gets at most half of all."""
    mine = 0 if exchange.principal is None else counts[exchange.owner] + opening
    return counts.total() + opening < most and mine < (most + 1) // 2


def _no_headers(_: str) -> None:
    """Skip the SDK's step for headers, as no tool takes arguments in headers."""


def _tool(offered: OfferedTool) -> types.Tool:
    tool = offered.tool
    return types.Tool(
        name=offered.name,
        title=f"{offered.agent.name}: {tool.what}",
        description=tool.description or f"{tool.what} of {offered.agent.name}",
        input_schema=tool.input,
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only, idempotent_hint=tool.idempotent, open_world_hint=None
        ),
    )
