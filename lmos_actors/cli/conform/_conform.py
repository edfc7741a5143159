"""The execution of `conform`: judging a server case by case, and printing and writing the results."""

from __future__ import annotations

import math
import shlex
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from lmos_actors._core import printable
from lmos_actors.conformance import (
    Card,
    ChatHints,
    ChatOptions,
    ConformOptions,
    Hints,
    RelayConformOptions,
    Unreachable,
    Verdict,
    chosen,
    conform,
)
from lmos_actors.errors import ConfigError
from lmos_actors.files import load
from lmos_actors.node import encode_headers
from lmos_actors.transport import TcpNetwork, endpoint_of

from .._exit_codes import FAILED, NOT_REACHED, OK, TIME_LIMIT
from .._loop import Interrupt
from .._signals import signals
from ..options._connection import secret_lines
from ._output import (
    INTERRUPTED_BY,
    CardFiles,
    CardPrinter,
    complain,
    print_card,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors._core import Headers
    from lmos_actors.conformance import JudgingOptions, Requirement
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Network

    from ..options._cards import OutputOptions

HintsT = TypeVar("HintsT", Hints, ChatHints)
Kind: TypeAlias = Literal["lmos", "omnia", "relay"]
"""The kinds of servers that can be judged."""

OPTIONS_OF: Final[dict[Kind, type[JudgingOptions]]] = {
    "lmos": ConformOptions,
    "omnia": ChatOptions,
    "relay": RelayConformOptions,
}


@attrs.frozen(kw_only=True)
class ConformRequest:
    """A request to judge an LMOS server, an Omnia facade, or a relay, by its options."""

    url: str
    options: JudgingOptions
    cases: Sequence[Requirement]
    within: float | None
    output: OutputOptions
    inputs: Sequence[str] = ()
    command: Sequence[str] = ()


@attrs.frozen
class Presented:
    """The headers for requests to a URL, from the command line and from the URL's credentials.

    A description may lead to other hosts: only `hosts` get the command line's headers. If `hosts` is None,
    all hosts get them.
    """

    headers: Headers = ()
    credentials: Credentials | None = None
    hosts: frozenset[str] | None = None

    def __call__(self, url: str) -> Headers:
        """Return the headers of a request to a URL."""
        if "://" not in url:
            return self.headers
        own = self.headers if self.hosts is None or endpoint_of(url).host in self.hosts else ()
        if self.credentials is None:
            return own
        return (*own, *self.credentials.headers_for(url, trio.current_time()))

    @classmethod
    def of(
        cls, headers: Mapping[str, str], credentials: Credentials | None, places: Sequence[str] = ()
    ) -> Presented:
        """Return the headers and credentials for requests to the named places. Raises ConfigError.

        If one of the places is a file, the headers are sent to every host that is reached.
        """
        known = bool(places) and all("://" in place for place in places)
        hosts = frozenset(endpoint_of(place).host for place in places) if known else None
        return cls(encode_headers(headers), credentials, hosts)


def hints_of(path: str | None, kind: type[HintsT]) -> HintsT:
    """Read the file of `--hints`. Blocks on the disk. Raises ConfigError."""
    return kind() if path is None else kind.load(path)


class RelayHints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of `--hints` for a relay: the place of each token, by the id of an agent of the kit."""

    agents: dict[str, str] = {}


def agents_of(path: str | None) -> dict[str, str]:
    """Return the tokens of agents in the file of `--hints`, by id. Blocks on the disk. Raises ConfigError."""
    if path is None:
        return {}
    agents = load(path, RelayHints).value.agents
    return {id: secret_lines(reference, f"{path}: agents.{id}")[0] for id, reference in agents.items()}


def is_relay(url: str) -> bool:
    """Return whether a URL alone shows that a relay is meant, as in `ws://HOST/arc`."""
    parts = urlsplit(url)
    return parts.scheme in ("ws", "wss") and parts.path == "/arc"


def cases_of(patterns: Sequence[str], kind: Kind = "lmos") -> Sequence[Requirement]:
    """Return the cases that `--case` names. Raises ConfigError."""
    try:
        return chosen(patterns, OPTIONS_OF[kind])
    except ConfigError as error:
        raise ConfigError(error.message, "--case") from None


def list_cases(cases: Sequence[Requirement], *, json: bool) -> int:
    """Print cases."""
    if json:
        names = ("id", "group", "title", "expected", "needs", "unsafe")
        found: list[dict[str, Any]] = []
        for case in cases:
            section = {"document": case.section.document, "place": case.section.place}
            found.append({**{name: getattr(case, name) for name in names}, "section": section})
        print_json({"cases": found})
        return OK
    width = max(len(case.id) for case in cases)
    for case in cases:
        notes = [str(case.section), *([f"needs {case.needs}"] if case.needs else [])]
        notes += ["--allow-unsafe"] if case.unsafe else []
        print(f"{case.id:{width}}  {case.title} ({'; '.join(notes)})")
    return OK


def judge(request: ConformRequest, network: Network | None = None) -> int:
    """Judge a server, and return the exit code. Raises ConfigError, OSError, KeyboardInterrupt."""
    card_files = CardFiles.opened(request.output, request.inputs)
    printer = CardPrinter(request.cases, request.output)
    try:
        with signals.in_order():
            server_run = ServerRun(request, printer)
            trio.run(server_run.run, TcpNetwork() if network is None else network)
            with signals.held(drop=True):
                return server_run.finish(card_files)
    finally:
        printer.close()
        card_files.close()


class ServerRun:
    """One run of `conform`: its results so far, and how it ended."""

    def __init__(self, request: ConformRequest, printer: CardPrinter) -> None:
        self._request, self._printer = request, printer
        self._card: Card | None = None
        self._failure: BaseException | None = None
        self._interrupt = Interrupt()
        self._seconds = 0.0

    async def run(self, network: Network) -> None:
        """Judge until all cases are done, time is up, or a signal arrives. Errors are kept for `finish`."""
        began, request, printer = trio.current_time(), self._request, self._printer
        within = math.inf if request.within is None else request.within
        async with trio.open_nursery() as nursery:
            working = trio.CancelScope()
            await nursery.start(self._interrupt.watch, partial(working.cancel, "interrupted"))
            with working, trio.move_on_after(within):
                printer.begin(request.url)
                try:
                    self._card = await conform(
                        network, request.url, request.options, on_result=printer.result
                    )
                except Exception as error:  # a nursery on the way out would make a group of it
                    self._failure = error
            nursery.cancel_scope.cancel("it is over")
        self._seconds = trio.current_time() - began

    # --- afterwards

    def finish(self, card_files: CardFiles) -> int:
        """Show and write the results. Returns the exit code. Raises ConfigError, OSError."""
        failure = self._failure
        if isinstance(failure, ConfigError):  # it may name things as their server calls them
            raise ConfigError("\n".join(map(printable, str(failure).splitlines())))
        if isinstance(failure, OSError):
            raise failure
        if isinstance(failure, Unreachable):
            if self._request.output.printed:
                print_json({"error": {"url": failure.url, "message": failure.why}, "exit_code": NOT_REACHED})
            complain(str(failure))
            return NOT_REACHED
        if failure is not None:
            traceback.print_exception(failure)
            return NOT_REACHED
        card, code = self._ended()
        card_files.write(card, code)
        self._printer.end(card, self._more(card))
        if self._request.output.printed:
            print_card(card, code)
        if card.cut:
            left = len(self._request.cases) - len(self._printer.results)
            late = code == TIME_LIMIT
            why = f"time limit: {self._request.within:g}s have passed" if late else "interrupted"
            complain(f"{why}; {left} of {len(self._request.cases)} cases were not tried")
        card_files.print_written()
        return code

    def _ended(self) -> tuple[Card, int]:
        request, card = self._request, self._card
        command = shlex.join(request.command)
        if card is not None:
            return attrs.evolve(card, command=command), OK if card.passed else FAILED
        done, code = self._printer.results, INTERRUPTED_BY.get(self._interrupt.name, TIME_LIMIT)
        why = f"interrupted ({self._interrupt.name})" if self._interrupt.name else "time limit"
        tried = {result.id for result in done}
        left = [
            case.result(Verdict.NOT_RUN, f"not tried: {why}")
            for case in request.cases
            if case.id not in tried
        ]
        made = Card(
            subject=request.url,
            role="server",
            title="",
            thing=request.options.thing or "" if isinstance(request.options, ConformOptions) else "",
            level=request.options.level,
            spoken="",
            seed=request.options.seed,
            results=(*done, *left),
            seconds=self._seconds,
            command=command,
            cut=f"{why}, {len(done)} of {len(request.cases)} cases tried, exit code {code}",
        )
        return made, code

    def _more(self, card: Card) -> list[str]:
        failed = [result.id for result in card.results if result.verdict is Verdict.FAILED]
        # One command names a few cases, and there is no need for it where all have failed.
        if not 0 < len(failed) <= 5 or len(failed) == len(card.results):
            return []
        given = self._request.command
        words = [  # of the command, without `--case` and what follows it
            word
            for before, word in zip(("", *given), given, strict=False)
            if word != "--case" and before != "--case"
        ]
        return [
            f"those that failed, alone: {shlex.join([*words, *(w for id in failed for w in ('--case', id))])}"
        ]
