"""`conform --serve`: the kit is the server, and judges the clients that connect to it."""

from __future__ import annotations

import math
import shlex
import sys
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.conformance import (
    CLIENT_CASES,
    RELAY_CLIENT_CASES,
    Verdict,
    judge_clients,
)
from lmos_actors.errors import ConfigError, TransportError
from lmos_actors.transport import TcpNetwork, endpoint_of

from .._exit_codes import FAILED, NOT_REACHED, OK, TIME_LIMIT
from .._loop import Interrupt, first_of
from .._signals import signals
from ._output import (
    INTERRUPTED_BY,
    CardFiles,
    CardPrinter,
    complain,
    print_card,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.conformance import Card, ClientJudgingOptions
    from lmos_actors.transport import Endpoint, Network

    from ..options._cards import OutputOptions

ADDRESS: Final = "127.0.0.1:8080"


@attrs.frozen(kw_only=True)
class JudgeClientsRequest:
    """A request to judge LMOS clients, or the clients of an AgentRelay hub, by its options."""

    options: ClientJudgingOptions
    address: str
    within: float | None
    output: OutputOptions
    command: Sequence[str] = ()

    def endpoint(self) -> Endpoint:
        """Return the address to listen at. Raises ConfigError."""
        text = f"127.0.0.1:{self.address}" if self.address.isdecimal() else self.address
        try:
            found = endpoint_of(text if "://" in text else f"ws://{text}")
        except ConfigError as error:
            raise ConfigError(f"{self.address!r} is not HOST:PORT: {error.message}", "--serve") from None
        if found.secure:
            raise ConfigError("clients are judged without TLS: ws, or HOST:PORT", "--serve")
        return found


def list_client_cases(*, json: bool, relay: bool = False) -> int:
    """Print the cases for clients; with `relay` those for clients of relays."""
    cases = RELAY_CLIENT_CASES if relay else CLIENT_CASES
    if json:
        sections = [{"document": case.section.document, "place": case.section.place} for case in cases]
        rows = [attrs.asdict(case, recurse=False) for case in cases]
        print_json({"cases": [{**row, "section": each} for row, each in zip(rows, sections, strict=True)]})
        return OK
    width = max(len(case.id) for case in cases)
    for case in cases:
        print(f"{case.id:{width}}  {case.title} ({case.section}{f'; {case.how}' if case.how else ''})")
    return OK


def serve_clients(request: JudgeClientsRequest, network: Network | None = None) -> int:
    """Judge clients, and return the exit code. Raises ConfigError, OSError, KeyboardInterrupt."""
    card_files = CardFiles.opened(request.output, ())
    printer = CardPrinter((), request.output)
    try:
        clients_run = ClientsRun(request)
        try:
            with signals.in_order():
                card = trio.run(clients_run.run, TcpNetwork() if network is None else network)
        except* (ConfigError, TransportError) as group:
            clients_run.failure = first_of(group)
            card = None
        if isinstance(clients_run.failure, ConfigError) and clients_run.failure.__cause__ is None:
            raise clients_run.failure
        if card is None:
            complain(str(clients_run.failure))
            return NOT_REACHED
        with signals.in_order(), signals.held(drop=True):
            return _finish(request, clients_run, card, printer, card_files)
    finally:
        printer.close()
        card_files.close()


def _finish(
    request: JudgeClientsRequest,
    clients_run: ClientsRun,
    card: Card,
    printer: CardPrinter,
    card_files: CardFiles,
) -> int:
    code = clients_run.code(card)
    cut = f"{clients_run.reason(code)}, exit code {code}" if clients_run.reason(code) else ""
    card = attrs.evolve(card, command=shlex.join(request.command), cut=cut)
    card_files.write(card, code)
    printer.results[:] = card.results
    printer.end(card)
    if request.output.printed:
        print_card(card, code)
    if cut:
        complain(clients_run.reason(code))
    card_files.print_written()
    return code


class ClientsRun:
    """One run of `conform --serve`."""

    REASONS: Final = {
        NOT_REACHED: "no client has come",
        TIME_LIMIT: "time limit: the clients that came have not left",
        **dict.fromkeys(INTERRUPTED_BY.values(), "interrupted before the clients that came had left"),
    }

    def __init__(self, request: JudgeClientsRequest) -> None:
        self.failure: BaseException | None = None
        self._order = request
        self._late = False
        self._interrupt = Interrupt()

    async def run(self, network: Network) -> Card:
        """Serve until the clients have left or the run is stopped, and return the card.

        Raises exception groups of ConfigError and TransportError.
        """
        request, stop = self._order, trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._interrupt.watch, stop.set)
            nursery.start_soon(self._stop_in_time, stop)
            card = await judge_clients(
                network, request.endpoint(), request.options, stop=stop, announce=self._announce
            )
            nursery.cancel_scope.cancel("it is over")
        return card

    def _announce(self, url: str) -> None:
        ends = "when the clients that came have left" if self._order.options.once else "at Ctrl-C"
        out = sys.stderr if self._order.output.printed else sys.stdout
        print(f"judging clients of {url}; ends {ends}", file=out, flush=True)

    async def _stop_in_time(self, stop: trio.Event) -> None:
        await trio.sleep(math.inf if self._order.within is None else self._order.within)
        self._late = True
        stop.set()

    def reason(self, code: int) -> str:
        """Return why the run ended early, or "" if it did not."""
        return self.REASONS.get(code, "")

    def code(self, card: Card) -> int:
        """Return the exit code. Without `--once` a signal is the normal end."""
        tried = any(each.verdict not in (Verdict.NOT_RUN, Verdict.NOT_OFFERED) for each in card.results)
        if self._interrupt.name and self._order.options.once:
            return INTERRUPTED_BY[self._interrupt.name]
        if not tried:
            return NOT_REACHED
        if self._late and self._order.options.once:
            return TIME_LIMIT
        return OK if card.passed else FAILED
