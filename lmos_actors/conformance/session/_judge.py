"""The judge of servers of any protocol, which runs every case on new connections and makes the card.

A protocol gives the judge two things. Its options (a subclass of `JudgingOptions`) have the cases and the
levels, and find the server. The server that they find (a subclass of `JudgedServer`) makes the context of
each case, opens a connection, and has the facts that cases share. Everything else is done only here: which
cases are run, the result of each, when nothing more can be tried, and what no card may show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import aclosing
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs
import trio

from lmos_actors.conformance.card import KitOptions, Verdict
from lmos_actors.conformance.target import AccessOptions, no_headers
from lmos_actors.conformance.wire import Refused, Unreachable
from lmos_actors.errors import ConfigError

from ._probe import Case, Probe, chosen_of, without_words

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lmos_actors.conformance.card import Card, Result
    from lmos_actors.conformance.target import HeadersFor
    from lmos_actors.transport import Network

_GONE_FOR: Final = (0.0, 0.5, 1.0, 2.0)  # seconds before each attempt to reach the other side

ContextT = TypeVar("ContextT", bound=Probe)


@attrs.frozen(kw_only=True)
class JudgingOptions(KitOptions, ABC):
    """The options with which every kind of server is judged.

    `patience`: how long an answer may take, in seconds. `idle`: how long a connection is left alone, to see
    whether it stays open. `cases`: patterns of ids, like file patterns; if there are none, all cases are run.
    `headers` returns the headers of requests to a URL.

    Raises ConfigError for a pattern that matches no case (it names the nearest id), for times that are not
    above 0, and for a level of other servers.
    """

    role = "server"

    idle: float = 2.0
    allow_unsafe: bool = False
    cases: tuple[str, ...] = ()
    headers: HeadersFor = no_headers
    tls: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("patience", "idle"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)!r}")
        KitOptions.__attrs_post_init__(self)
        self.chosen()

    @classmethod
    @abstractmethod
    def known_cases(cls) -> tuple[Case[Any], ...]:
        """Return all cases for such servers, in the order in which they are run."""

    @abstractmethod
    async def find(self, network: Network, url: str) -> JudgedServer[Any]:
        """Find the server at a URL, and how to communicate with it. Raises Unreachable and ConfigError."""

    def chosen(self) -> tuple[Case[Any], ...]:
        """Return the cases to run. Raises ConfigError for a pattern that matches none."""
        return chosen_of(self.known_cases(), self.cases)

    def access(self, network: Network) -> AccessOptions:
        """Return the options for access to the server over a network."""
        return AccessOptions(network=network, headers=self.headers, tls=self.tls, patience=self.patience)


@attrs.define(kw_only=True)
class JudgedServer(ABC, Generic[ContextT]):
    """A server that was found, with what all cases of a run share.

    `title` and `thing` come from its description.
    """

    network: Network
    options: JudgingOptions
    title: str = ""
    thing: str = ""

    @property
    @abstractmethod
    def spoken(self) -> str:
        """The protocol or dialect that the kit uses with the server, in words."""

    @abstractmethod
    def context(self, random: Random) -> ContextT:
        """Return a new context of a case, without any open connection."""

    @abstractmethod
    async def connect(self, context: ContextT) -> object:
        """Open a connection in a context. Raises Unreachable and Refused."""

    @abstractmethod
    def places(self) -> Sequence[str]:
        """Return the URLs to which the kit has sent credentials."""

    def secrets(self) -> Sequence[str]:
        """Return further secrets that the kit has sent to the server, which no card may show."""
        return ()

    def does_without(self, case: Case[ContextT]) -> bool:
        """Return whether a case needs no WebSocket, so that it is run even if all handshakes are refused."""
        return False


async def judge(
    network: Network, url: str, options: JudgingOptions, on_result: Callable[[Result], None] | None
) -> Card:
    """Find a server, and run all chosen cases; `on_result` is called with each result at once.

    After a failed case a connection is opened, with several attempts if necessary. If none can be opened,
    nothing more is run; if all are refused, only cases that need no connection are run. Raises Unreachable
    and ConfigError.
    """
    began = trio.current_time()
    server = await options.find(network, url)
    results: list[Result] = []
    stop, refused = "", False
    for case in options.chosen():
        if stop and not (refused and server.does_without(case)):
            result = case.result(Verdict.NOT_RUN, stop)
        else:
            result = await run_case(server, case)
            if result.verdict is Verdict.FAILED and not stop:
                stop, refused = await _why_to_stop(server, case)
        results.append(result)
        if on_result is not None:
            on_result(result)
    facts = {"spoken": server.spoken, "title": server.title, "thing": server.thing}
    return options.card(url, results, began=began, **facts)


async def _why_to_stop(server: JudgedServer[Any], case: Case[Any]) -> tuple[str, bool]:
    """Return why no further case can be tried after a case, or "" if a connection can be opened.

    The second value is whether the server is there but refuses connections.
    """
    why, refuses = "", False
    for seconds in _GONE_FOR:
        await trio.sleep(seconds)
        async with aclosing(server.context(Random(server.options.seed))) as context:
            try:
                await server.connect(context)
            except Unreachable:
                why, refuses = f"the server is gone since {case.id}", False
            except Refused as refused:
                why, refuses = f"{refused}, as in {case.id}", True
            else:
                return "", False
    return why, refuses


async def run_case(server: JudgedServer[Any], case: Case[Any]) -> Result:
    """Run one case, and return its result with all secrets masked, since the server may have echoed them."""
    options = server.options
    context: Probe = server.context(Random(f"{options.seed}:{case.id}"))
    run = partial(case.run, context)
    result = await context.judge_case(case, run, options.level, allow_unsafe=options.allow_unsafe)
    headers = [value.decode("latin-1") for place in server.places() for _, value in options.headers(place)]
    shown = [text for value in headers for text in (value, value.partition(" ")[2])]
    return without_words((*shown, *server.secrets()), result)
