"""The run of all cases against a facade, and its report card."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from lmos_actors.conformance.card import Card, versions
from lmos_actors.conformance.session import judge_all, without_secrets
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._all import ChatOptions, chosen_chat
from ._context import ChatContext, ChatRunContext, facade_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.card import Result
    from lmos_actors.conformance.session import Case
    from lmos_actors.transport import Network


async def judge_facade(
    network: Network,
    url: str,
    options: ChatOptions | None = None,
    *,
    on_result: Callable[[Result], None] | None = None,
) -> Card:
    """Judge the facade of an agent, at a `ws://`, `wss://`, `http://` or `https://` URL. Waits at every step.

    `on_result` is called with each result as it comes. Once the facade is gone for good, nothing more is
    run. Raises Unreachable: nothing is there, or no WebSocket is opened; ConfigError: the URL is none.
    """
    options = ChatOptions() if options is None else options
    began = trio.current_time()
    shared = await _prepared(network, facade_url(url), options)
    results = await judge_all(
        chosen_chat(options.cases), partial(_tried, shared), partial(_try_to_open, shared), on_result
    )
    return Card(
        subject=url,
        role="server",
        title="",
        thing="",
        level=options.level,
        spoken="Omnia's chat protocol",
        seed=options.seed,
        results=results,
        seconds=trio.current_time() - began,
        versions=versions(),
    )


async def _prepared(network: Network, url: str, options: ChatOptions) -> ChatRunContext:
    """Open a connection, and find out whether a session is announced. Raises Unreachable."""
    shared = ChatRunContext(
        network=network,
        url=url,
        level=options.level,
        patience=options.patience,
        idle=options.idle,
        seed=options.seed,
        allow_unsafe=options.allow_unsafe,
        hints=options.hints,
        headers=options.headers,
        tls=options.tls,
    )
    context = ChatContext(shared, Random(shared.seed))
    try:
        talk = await context.talk(announced=False)
        with suppress(ConnectionGone):  # which the cases judge
            shared.announces = await talk.socket.next_message(shared.patience) is not None
    except Refused as refused:
        raise Unreachable(url, str(refused)) from None
    finally:
        await context.aclose()
    return shared


async def _tried(shared: ChatRunContext, case: Case[ChatContext]) -> Result:
    context = ChatContext(shared, Random(f"{shared.seed}:{case.id}"))
    result = await context.judge_case(
        case, partial(case.run, context), shared.level, allow_unsafe=shared.allow_unsafe
    )
    return without_secrets(shared.headers, [shared.url], result)


async def _try_to_open(shared: ChatRunContext) -> None:
    """Open a connection and close it. Raises Unreachable and Refused."""
    context = ChatContext(shared, Random(shared.seed))
    try:
        await context.talk(announced=False)
    finally:
        await context.aclose()
