"""The run of all cases against a server, and its report card."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.errors import ConfigError

from .card import (
    DEVIATIONS,
    LMOS_LEVELS,
    Card,
    Level,
    Result,
    Verdict,
    check_level,
    versions,
)
from .cases import all_cases
from .session import (
    AS_IN_EXAMPLES,
    AS_KOTLIN,
    AS_WRITTEN,
    Case,
    CaseContext,
    Dialect,
    NoAnswer,
    RunContext,
    chosen_of,
    without_secrets,
)
from .target import AccessOptions, Hints, find_target, no_headers
from .wire import ConnectionGone, Refused, Unreachable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lmos_actors.transport import Network

    from .target import HeadersFor

_WITHOUT_SOCKET: Final = ("handshake", "description", "http")  # groups that need no open WebSocket
_WAYS: Final = (
    AS_WRITTEN,
    AS_IN_EXAMPLES,
    Dialect("Id", "property", "subscribeevent", offered=True),
    AS_KOTLIN,
    Dialect(offered=False),
)


@attrs.frozen(kw_only=True)
class ConformOptions:
    """The options with which a server is judged.

    `patience`: how long an answer may take, in seconds. `idle`: how long a connection is left alone, to see
    whether it stays. `cases`: patterns of ids as of file names, none: all. `allow_unsafe`: actions that are
    not safe are invoked, and properties written with other values, too. `thing`: the id of the thing, where
    a socket has several. `description`: where its description is, if it is not found from the URL. `headers`
    gives those of requests to a URL. Raises ConfigError for a pattern that no case has, naming the nearest,
    for times that are not above 0, and for a level of relays.
    """

    level: Level = Level.LENIENT
    patience: float = 2.0
    idle: float = 2.0
    seed: int = 0
    allow_unsafe: bool = False
    hints: Hints = attrs.field(factory=Hints)
    cases: tuple[str, ...] = ()
    thing: str | None = None
    description: str | None = None
    headers: HeadersFor = no_headers
    tls: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("patience", "idle"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)!r}")
        check_level(self.level, LMOS_LEVELS, "servers of LMOS")
        chosen(self.cases)


def chosen(patterns: Sequence[str]) -> tuple[Case[CaseContext], ...]:
    """Return the cases that patterns name, all without patterns.

    Raises ConfigError for one that names none.
    """
    return chosen_of(all_cases(), patterns)


async def conform(
    network: Network,
    url: str,
    options: ConformOptions | None = None,
    *,
    on_result: Callable[[Result], None] | None = None,
) -> Card:
    """Judge the server of a description, or at a `ws://` or `wss://` URL. Waits for it at every step.

    `on_result` is called with each result as it comes. Once the server is gone for good, nothing more is
    run; once it refuses every handshake, nothing but what does without an open WebSocket. Raises
    Unreachable: nothing is there, or no description can be found; ConfigError: the URL is none. Whatever the
    server does after that is in the card.
    """
    options = ConformOptions() if options is None else options
    began = trio.current_time()
    shared = await prepare(network, url, options)
    results: list[Result] = []
    stop = ""
    shut = False
    for case in chosen(options.cases):
        if stop and not (shut and case.group in _WITHOUT_SOCKET):
            result = case.result(Verdict.NOT_RUN, stop)
        else:
            result = await run_case(shared, case)
            if result.verdict is Verdict.FAILED and not stop:
                stop, shut = await _why_to_stop(shared, case)
        results.append(result)
        if on_result is not None:
            on_result(result)
    return Card(
        subject=url,
        role="server",
        title=str(shared.target.thing.data.get("title", "")),
        thing=shared.target.thing.id,
        level=options.level,
        spoken=str(shared.dialect),
        seed=options.seed,
        results=tuple(results),
        seconds=trio.current_time() - began,
        versions=versions(),
    )


async def _why_to_stop(shared: RunContext, case: Case[CaseContext]) -> tuple[str, bool]:
    """Return why nothing can be tried after a case: "" if the server opens WebSockets; has some time to.

    And whether it is there, and refuses them.
    """
    if shared.target.socket is None:
        return "", False
    context = CaseContext(shared, _LISTENING, Random(shared.seed))
    why, shut = "", False
    for seconds in (0.0, 0.5, 1.0, 2.0):
        await trio.sleep(seconds)
        try:
            await context.socket()
        except Unreachable:
            why, shut = f"the server is gone since {case.id}", False
        except Refused as refused:
            why, shut = f"{refused}, as in {case.id}", True
        else:
            await context.aclose()
            return "", False
    return why, shut


async def prepare(network: Network, url: str, options: ConformOptions) -> RunContext:
    """Find the server and how it is spoken to. Raises Unreachable and ConfigError."""
    access = AccessOptions(
        network=network, headers=options.headers, tls=options.tls, patience=max(options.patience, 10.0)
    )
    target = await find_target(url, access, thing=options.thing, description=options.description)
    if target.thing.description is not None:
        options.hints.check(properties=target.properties, actions=target.actions, events=target.events)
    shared = RunContext(
        network=network,
        target=target,
        level=options.level,
        patience=options.patience,
        idle=options.idle,
        seed=options.seed,
        allow_unsafe=options.allow_unsafe,
        hints=options.hints,
        headers=options.headers,
        tls=options.tls,
    )
    shared.dialect = await _find_dialect(shared)
    return shared


async def _nothing(_: CaseContext) -> None:
    await trio.lowlevel.checkpoint()


_LISTENING: Final = Case(
    id="kit.speech",
    title="how the server is spoken to",
    section=DEVIATIONS["ids-spelled-Id"].section,
    expected="an answer",
    needs="",
    unsafe=False,
    run=_nothing,
)


async def _find_dialect(shared: RunContext) -> Dialect:
    """Find the first dialect in which a read succeeds, else is answered; else that of the specification."""
    if shared.level is Level.KOTLIN_WOT:
        return AS_KOTLIN
    if shared.target.socket is None:
        return AS_WRITTEN
    reached = False
    refused: list[Dialect] = []
    for dialect in _WAYS:
        context = CaseContext(shared, _LISTENING, Random(shared.seed))
        try:
            session = await context.session(dialect)
            reached = True
            name = next(iter(shared.target.readable()), None) or context.target.unknown_property()
            received = await session.ask("readProperty", name=name)
            if received.kind == "propertyReading" or received.status == "404":
                return dialect
            refused += [dialect] * (received.kind == "error")
        except Unreachable:
            if not reached and dialect is _WAYS[-1]:
                raise
        except (Refused, ConnectionGone, NoAnswer):
            reached = True
        finally:
            await context.aclose()
    return refused[0] if refused else AS_WRITTEN


async def run_case(shared: RunContext, case: Case[CaseContext]) -> Result:
    """Run one case and return its result."""
    context = CaseContext(shared, case, Random(f"{shared.seed}:{case.id}"))
    result = await context.judge_case(
        case, partial(case.run, context), shared.level, allow_unsafe=shared.allow_unsafe
    )
    places = [each for each in (shared.target.socket, shared.target.thing.where) if each is not None]
    return without_secrets(shared.headers, places, result)
