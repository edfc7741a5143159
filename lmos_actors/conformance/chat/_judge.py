"""The run of all cases against a facade, and its report card."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import Card, Verdict
from lmos_actors.conformance.session import without_secrets
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._all import ChatOptions, chosen_chat
from ._context import ChatContext, ChatRunContext, facade_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.card import Result
    from lmos_actors.transport import Network

    from ._context import ChatCase

_VERSIONS: Final = ("lmos-actors", "trio", "h11")


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
    results: list[Result] = []
    stop = ""
    for case in chosen_chat(options.cases):
        result = case.result(Verdict.NOT_RUN, stop) if stop else await _tried(shared, case)
        if result.verdict is Verdict.FAILED and not stop:
            stop = await _why_to_stop(shared, case)
        results.append(result)
        if on_result is not None:
            on_result(result)
    return Card(
        subject=url,
        role="server",
        title="",
        thing="",
        level=options.level,
        spoken="Omnia's chat protocol",
        seed=options.seed,
        results=tuple(results),
        seconds=trio.current_time() - began,
        versions={name: version(name) for name in _VERSIONS},
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


async def _tried(shared: ChatRunContext, case: ChatCase) -> Result:
    context = ChatContext(shared, Random(f"{shared.seed}:{case.id}"))
    result = await context.judge_case(
        case, partial(case.run, context), shared.level, allow_unsafe=shared.allow_unsafe
    )
    return without_secrets(shared.headers, [shared.url], result)


async def _why_to_stop(shared: ChatRunContext, case: ChatCase) -> str:
    """Return why nothing can be tried after a case: "" if connections are opened, given some time."""
    context, why = ChatContext(shared, Random(shared.seed)), ""
    try:
        for seconds in (0.0, 0.5, 1.0, 2.0):
            await trio.sleep(seconds)
            try:
                await context.talk(announced=False)
            except Unreachable:
                why = f"the facade is gone since {case.id}"
            except Refused as refused:
                why = f"{refused}, as in {case.id}"
            else:
                return ""
        return why
    finally:
        await context.aclose()
