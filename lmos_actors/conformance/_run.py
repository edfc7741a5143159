"""The run of all cases against a server, and its report card."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors._core import HIDDEN
from lmos_actors.errors import ConfigError, nearest

from .card import (
    DEVIATIONS,
    Card,
    Departure,
    Level,
    Result,
    Verdict,
)
from .cases import all_cases
from .session import (
    AS_IN_EXAMPLES,
    AS_KOTLIN,
    AS_WRITTEN,
    Case,
    CaseContext,
    Dialect,
    Failed,
    NoAnswer,
    RunContext,
)
from .target import AccessOptions, Hints, NotOffered, NotRun, find_target, no_headers
from .wire import ConnectionGone, Refused, Unreachable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lmos_actors.transport import Network

    from .target import HeadersFor

_CASE_SECONDS: Final = 60.0
_WITHOUT_SOCKET: Final = ("handshake", "description", "http")  # groups that need no open WebSocket
_SECRET: Final = 4  # characters that a header has at least, to be one
_VERSIONS: Final = ("lmos-actors", "trio", "h11")
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
    and for times that are not above 0.
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
        chosen(self.cases)


def chosen(patterns: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that patterns name, all without patterns.

    Raises ConfigError for one that names none.
    """
    known = all_cases()
    for pattern in patterns:
        if not any(fnmatchcase(case.id, pattern) for case in known):
            guess = nearest(pattern, [case.id for case in known])
            raise ConfigError(f"no case is called {pattern!r}" + (f"; {guess!r} is" if guess else ""))
    return tuple(
        case for case in known if not patterns or any(fnmatchcase(case.id, each) for each in patterns)
    )


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
            result = _told(case, Verdict.NOT_RUN, stop)
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
        versions={name: version(name) for name in _VERSIONS},
    )


async def _why_to_stop(shared: RunContext, case: Case) -> tuple[str, bool]:
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


async def run_case(shared: RunContext, case: Case) -> Result:
    """Run one case and return its result."""
    began = trio.current_time()
    context = CaseContext(shared, case, Random(f"{shared.seed}:{case.id}"))
    verdict, seen = await _outcome(context, case)
    result = attrs.evolve(
        _told(case, verdict, seen),
        departures=tuple(context.departures),
        traffic=tuple(context.traffic),
        left_out=context.left_out,
        seconds=trio.current_time() - began,
    )
    return _without(_secrets(shared), result)


def _secrets(shared: RunContext) -> list[str]:
    """Return the credentials of the kit, which must appear in no report."""
    places = [each for each in (shared.target.socket, shared.target.thing.where) if each is not None]
    values = [value.decode("latin-1") for each in places for _, value in shared.headers(each)]
    words = dict.fromkeys(text for value in values for text in (value, value.partition(" ")[2]))
    return [word for word in words if len(word) >= _SECRET]


def _without(secrets: list[str], result: Result) -> Result:
    """Remove secrets from what was seen: the server may have echoed them."""
    if not secrets:
        return result

    def hidden(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    return attrs.evolve(
        result,
        seen=hidden(result.seen),
        departures=tuple(attrs.evolve(each, seen=hidden(each.seen)) for each in result.departures),
        traffic=tuple(attrs.evolve(each, text=hidden(each.text)) for each in result.traffic),
    )


def _told(case: Case, verdict: Verdict, seen: str) -> Result:
    return Result(
        id=case.id,
        title=case.title,
        section=case.section,
        expected=case.expected,
        verdict=verdict,
        seen=seen,
    )


async def _outcome(context: CaseContext, case: Case) -> tuple[Verdict, str]:
    try:
        with trio.move_on_after(_CASE_SECONDS):
            return await _tried(context, case)
        return Verdict.FAILED, f"it was not over after {_CASE_SECONDS:g} s"
    except NotOffered as why:
        return Verdict.NOT_OFFERED, str(why)
    except NotRun as why:
        return Verdict.NOT_RUN, str(why)
    except (Failed, NoAnswer, ConnectionGone, Refused, Unreachable, ConfigError) as why:
        return Verdict.FAILED, str(why)
    except (RecursionError, UnicodeError, OverflowError) as error:
        return Verdict.FAILED, f"what came is beyond what can be worked with: {error}"
    finally:
        with suppress(ConnectionGone):
            await context.aclose()


async def _tried(context: CaseContext, case: Case) -> tuple[Verdict, str]:
    if case.unsafe and not context.shared.allow_unsafe:
        return Verdict.NOT_RUN, "it changes something: --allow-unsafe lets it"
    await case.run(context)
    level = context.shared.level
    failing = [each for each in context.departures if DEVIATIONS[each.key].fails(level)]
    counting = [each for each in context.departures if DEVIATIONS[each.key].counts(level)]
    summary = _in_words(failing or counting)
    return (Verdict.FAILED if failing else Verdict.TOLERATED if counting else Verdict.PASSED), summary


def _in_words(departures: Sequence[Departure]) -> str:
    """Describe the deviations from the specification: each once, with all that was seen of it."""
    seen: dict[str, list[str]] = {}
    for each in departures:
        seen.setdefault(each.title, []).append(each.seen)
    return "; ".join(f"{title}: {', '.join(found)}" for title, found in seen.items())
