"""Requests of MCP clients for prompts and resources, and for completions of the arguments of both.

A property is read at its agent, an event is answered by its last values, and a marked action is invoked with
arguments that arrive as texts. A failure becomes an error of the protocol, as results of these requests
cannot express failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import mcp_types as types
from mcp import MCPError

from lmos_actors.actors import property_key
from lmos_actors.bindings import representative, valued, written_value
from lmos_actors.errors import ActionFailed
from lmos_actors.protocol.lmos import problem_of

from ._caller import is_modern
from ._catalogue import OfferedPrompt, OfferedResource
from ._content import JSON, contents_of, messages_of
from ._marked import MOST_VALUES
from ._names import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.bindings import AgentRequest, Exposed

    from ._caller import Context
    from ._catalogue import Catalogue
    from ._exchange import Exchange
    from ._watching import Watching

UNKNOWN_RESOURCE: Final = -32002
"""The code of the protocol for a resource that does not exist, up to 2025-11-25."""

NOT_FOUND: Final = 404
"""The status of a failure by which an action says that the resource does not exist."""

REFUSED: Final = -32000
"""The code for requests that are refused now, for reasons beside the protocol."""


class Offering(Protocol):
    """The part of the offer that these handlers need: see `McpOffer`."""

    catalogue: Catalogue

    def page(self, listed: Any, exchange: Exchange, params: types.PaginatedRequestParams | None) -> Any:
        """Return a page of a list in the catalogue, and the cursor of the next. Raises MCPError."""
        ...

    def ask(self, ctx: Context, exchange: Exchange) -> AgentRequest:
        """Return a new request to an agent, on behalf of a client."""
        ...

    async def invoked(
        self,
        ctx: Context,
        exchange: Exchange,
        params: types.InputResponseRequestParams,
        agent: Exposed,
        requested: tuple[str, dict[str, Any]],
        fill: Callable[[Any], Any],
    ) -> Any:
        """Return the answer for the result of an action. Raises LmosActorsError, MCPError."""
        ...

    def hold(self, ctx: Context, exchange: Exchange, size: int) -> None:
        """Count the bytes of a result as held until it has been sent. Raises MCPError, LmosActorsError."""
        ...


class Reading:
    """The handlers of these requests, for an offer."""

    def __init__(self, offer: Offering, watching: Watching) -> None:
        self._offer = offer
        self._catalogue = offer.catalogue
        self._watching = watching

    # ---- prompts

    async def list_prompts(
        self, _: Any, exchange: Exchange, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return a page of the prompts."""
        page, cursor = self._offer.page(self._catalogue.prompts, exchange, params)
        return types.ListPromptsResult(prompts=list(map(_prompt, page)), next_cursor=cursor)

    async def get_prompt(
        self, ctx: Context, exchange: Exchange, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return the messages of a prompt."""
        found = self._catalogue.prompt(params.name, exchange.admission)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown prompt")
        given = found.prompt.arguments(params.arguments or {})

        def fill(value: Any) -> types.GetPromptResult:
            return types.GetPromptResult(
                description=found.prompt.description or None, messages=messages_of(value)
            )

        answer: types.GetPromptResult = await self._offer.invoked(
            ctx, exchange, params, found.agent, (found.prompt.name, given), fill
        )
        return answer

    # ---- resources

    async def list_resources(
        self, _: Any, exchange: Exchange, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return a page of the resources."""
        page, cursor = self._offer.page(self._catalogue.resources, exchange, params)
        return types.ListResourcesResult(resources=list(map(_resource, page)), next_cursor=cursor)

    async def list_templates(
        self, _: Any, exchange: Exchange, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return a page of the templates of resources."""
        page, cursor = self._offer.page(self._catalogue.templates, exchange, params)
        return types.ListResourceTemplatesResult(
            resource_templates=list(map(_template, page)), next_cursor=cursor
        )

    def found(self, ctx: Context, uri: str, exchange: Exchange) -> OfferedResource:
        """Return a resource that the client may read. Raises MCPError."""
        found = self._catalogue.resource(uri, exchange.admission)
        if found is None:
            raise _not_found(ctx, uri)
        return found

    async def read(
        self, ctx: Context, exchange: Exchange, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return the value of a resource."""
        found = self.found(ctx, params.uri, exchange)
        if found.read is None:
            return await self._read_value(ctx, exchange, found)
        mime_type = found.read.mark.mime_type

        def fill(value: Any) -> types.ReadResourceResult:
            return types.ReadResourceResult(contents=contents_of(value, found.uri, mime_type))

        given = found.read.arguments(found.texts)
        try:
            answer: types.ReadResourceResult = await self._offer.invoked(
                ctx, exchange, params, found.agent, (found.name, given), fill
            )
        except ActionFailed as error:
            if problem_of(error).status != NOT_FOUND:
                raise
            raise _not_found(ctx, params.uri) from None
        return answer

    async def _read_value(
        self, ctx: Context, exchange: Exchange, found: OfferedResource
    ) -> types.ReadResourceResult:
        if found.kind == EVENTS:
            written = self._watching.recent(found.uri)
        else:
            ask = self._offer.ask(ctx, exchange)
            ask.send(found.agent.link, (property_key(found.name), (), {}))
            written = written_value(await ask.result())
        self._offer.hold(ctx, exchange, len(written))
        contents = types.TextResourceContents(uri=found.uri, mime_type=JSON, text=written.decode())
        return types.ReadResourceResult(contents=[contents])

    # ---- completion

    async def complete(
        self, ctx: Context, exchange: Exchange, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Return the completions of a text that is being typed."""
        found = self._of_reference(params.ref, exchange)
        marked = found.prompt if isinstance(found, OfferedPrompt) else found.read
        name, typed = params.argument.name, params.argument.value
        if marked is None or name not in marked.names:
            raise MCPError(types.INVALID_PARAMS, f"there is no argument {name[:100]!r}")
        action = marked.mark.complete.get(marked.names[name])
        if action is None:
            values = marked.choices(name, typed)
        else:
            others = {} if params.context is None else dict(params.context.arguments or {})
            values = await self._values_by(ctx, exchange, found.agent, action.name, typed, others)
        return types.CompleteResult(
            completion=types.Completion(
                values=values[:MOST_VALUES], total=len(values), has_more=len(values) > MOST_VALUES
            )
        )

    def _of_reference(
        self, ref: types.PromptReference | types.ResourceTemplateReference, exchange: Exchange
    ) -> OfferedPrompt | OfferedResource:
        if isinstance(ref, types.PromptReference):
            prompt = self._catalogue.prompt(ref.name, exchange.admission)
            if prompt is None:
                raise MCPError(types.INVALID_PARAMS, "Unknown prompt")
            return prompt
        template = self._catalogue.template(ref.uri, exchange.admission)
        if template is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown template of resources")
        return template

    async def _values_by(
        self,
        ctx: Context,
        exchange: Exchange,
        agent: Exposed,
        action: str,
        typed: str,
        others: Mapping[str, str],
    ) -> list[str]:
        """Return the completions of an agent's action; its second parameter gets the other values."""
        first, *more = representative(agent.link).operation(action).params
        given = {first.name: valued(typed, first.shape.schema)}
        if more:
            given[more[0].name] = others
        ask = self._offer.ask(ctx, exchange)
        ask.send(agent.link, (action, (), given))
        answer: Any = await ask.result()
        if not isinstance(answer, list | tuple | set | frozenset):
            raise MCPError(types.INTERNAL_ERROR, f"{action!r} completes with a list of texts, and has none")
        found: list[Any] = [*answer]  # pyright: ignore[reportUnknownArgumentType]
        self._offer.hold(ctx, exchange, len(written_value(found)))
        return [each if isinstance(each, str) else written_value(each).decode() for each in found]


def _not_found(ctx: Context, uri: str) -> MCPError:
    code = types.INVALID_PARAMS if is_modern(ctx) else UNKNOWN_RESOURCE
    return MCPError(code, "Resource not found", {"uri": uri})


def _prompt(offered: OfferedPrompt) -> types.Prompt:
    marked = offered.prompt
    arguments = [
        types.PromptArgument(
            name=name, description=marked.about(name) or None, required=name in marked.needed
        )
        for name in marked.names
    ]
    title = f"{offered.agent.name}: {marked.name}"
    return types.Prompt(
        name=offered.name, title=title, description=marked.description or None, arguments=arguments
    )


def _resource(offered: OfferedResource) -> types.Resource:
    return types.Resource(uri=offered.uri, **_shown(offered))


def _template(offered: OfferedResource) -> types.ResourceTemplate:
    return types.ResourceTemplate(uri_template=offered.uri, **_shown(offered))


def _shown(offered: OfferedResource) -> dict[str, Any]:
    """Return the members that describe a resource or a template in lists, except its URI."""
    mime_type = JSON if offered.read is None else offered.read.mark.mime_type or None
    name = f"{offered.agent.name}.{offered.name}"
    return {"name": name, "description": offered.description or None, "mime_type": mime_type}
