"""The run of all cases against a relay, and its report card."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from lmos_actors.conformance.card import Card, versions
from lmos_actors.conformance.session import Failed, NoAnswer, judge_all, without_secrets, without_words
from lmos_actors.conformance.target import NotRun
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._all import RelayConformOptions, chosen_relay
from ._context import Identity, RelayAgent, RelayContext, RelayRunContext, relay_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.card import Result
    from lmos_actors.conformance.session import Case
    from lmos_actors.transport import Network


async def judge_relay(
    network: Network,
    url: str,
    options: RelayConformOptions | None = None,
    *,
    on_result: Callable[[Result], None] | None = None,
) -> Card:
    """Judge a hub of AgentRelay, at the `ws://` or `wss://` URL of its WebSocket. Waits at every step.

    `on_result` is called with each result as it comes. Agents of the kit are registered, with ids that begin
    with "kit-", unless the options name some. Once the relay is gone for good, nothing more is run. Raises
    Unreachable: nothing is there, no WebSocket is opened, or no agent is registered; ConfigError: the URL is
    none.
    """
    options = RelayConformOptions() if options is None else options
    began = trio.current_time()
    shared = await _prepared(network, url, options)
    results = await judge_all(
        chosen_relay(options.cases), partial(_tried, shared), partial(_try_to_open, shared), on_result
    )
    return Card(
        subject=url,
        role="server",
        title="",
        thing="",
        level=options.level,
        spoken="AgentRelay" + ("" if shared.direct else ", by broadcasts alone"),
        seed=options.seed,
        results=results,
        seconds=trio.current_time() - began,
        versions=versions(),
    )


async def _prepared(network: Network, url: str, options: RelayConformOptions) -> RelayRunContext:
    """Connect two agents, and find out whether they are welcomed, and hear each other. Raises Unreachable."""
    known = [Identity(id, token) for id, token in options.agents.items()]
    shared = RelayRunContext(
        network=network,
        url=url,
        register_url=options.register_url or relay_place(url, "/register"),
        level=options.level,
        patience=options.patience,
        idle=options.idle,
        seed=options.seed,
        allow_unsafe=options.allow_unsafe,
        headers=options.headers,
        tls=options.tls,
        invitations=options.invitations,
        known=tuple(known),
        spare=list(known),
    )
    context = RelayContext(shared, Random(f"{shared.seed}:"))
    try:
        one, other = await context.agent("a", welcomed=False), await context.agent("b", welcomed=False)
        shared.welcomes = await _comes_first(one) and await _comes_first(other)
        shared.direct = await _arrives(context.word(), one, other)
    except (NoAnswer, ConnectionGone) as why:
        raise Unreachable(url, str(why)) from None
    except Refused as refused:
        raise Unreachable(url, str(refused)) from None
    except NotRun as why:
        raise Unreachable(shared.register_url, str(why)) from None
    finally:
        await context.aclose()
    return shared


async def _comes_first(agent: RelayAgent) -> bool:
    """Return whether a frame comes, of whatever kind. Raises ConnectionGone."""
    try:
        return await agent.next() is not None
    except Failed:  # it is no frame of the protocol, which cases judge
        return True


async def _arrives(word: str, one: RelayAgent, other: RelayAgent) -> bool:
    """Return whether a message to one agent arrives. Raises ConnectionGone."""
    await one.say(word, other.id)
    try:
        await other.message(word)
    except (NoAnswer, Failed):
        return False
    return True


async def _tried(shared: RelayRunContext, case: Case[RelayContext]) -> Result:
    context = RelayContext(shared, Random(f"{shared.seed}:{case.id}"))
    result = await context.judge_case(
        case, partial(case.run, context), shared.level, allow_unsafe=shared.allow_unsafe
    )
    return without_words(shared.secrets(), without_secrets(shared.headers, [shared.url], result))


async def _try_to_open(shared: RelayRunContext) -> None:
    """Open a connection and close it. Raises Unreachable and Refused."""
    context = RelayContext(shared, Random(shared.seed))
    try:
        await context.agent("a", welcomed=False)
    finally:
        await context.aclose()
