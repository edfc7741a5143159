"""The common parts of cases of every protocol: requirements, connections and findings."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

import attrs
import trio

from lmos_actors._core import HIDDEN
from lmos_actors.conformance.card import DEVIATIONS, Departure, Level, Result, Verdict, weigh
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import (
    ConnectionGone,
    HandshakeOptions,
    Recorder,
    Refused,
    Unreachable,
    exchange,
    open_socket,
)
from lmos_actors.errors import ConfigError, nearest
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from random import Random

    from lmos_actors.conformance.card import Section, Traffic
    from lmos_actors.conformance.target import AccessOptions
    from lmos_actors.conformance.wire import Headers, HttpAnswer, Socket

_CASE_SECONDS: Final = 60.0

ContextT = TypeVar("ContextT")
RequirementT = TypeVar("RequirementT", bound="Requirement")


class Failed(Exception):
    """A difference between what was seen and what the case expects."""


class NoAnswer(Exception):
    """No answer came in time."""


@attrs.frozen(kw_only=True, eq=False)
class Requirement:
    """A requirement on a server. Ids are permanent: the id of a removed requirement is not used again.

    `expected`: what the section demands, worded to follow "expected ...". `needs`: in words, what a server
    must offer for the case to be tried, or "" for nothing. `unsafe`: the case changes something, and needs
    `allow_unsafe`.
    """

    id: str
    title: str
    section: Section
    expected: str
    needs: str
    unsafe: bool

    @property
    def group(self) -> str:
        """The part of the id before the full stop."""
        return self.id.partition(".")[0]

    def result(self, verdict: Verdict, seen: str) -> Result:
        """Return the result of this case, without departures and traffic."""
        return Result.of(self, verdict, seen)


@attrs.frozen(kw_only=True, eq=False)
class Case(Requirement, Generic[ContextT]):
    """A requirement, with the function that tries it in a context of its protocol.

    `run` raises Failed, NotOffered or NotRun, or the errors of its connections. It records lesser deviations
    with `context.differs`.
    """

    run: Callable[[ContextT], Awaitable[None]]


class Chapter(Generic[ContextT]):
    """The cases of one subject, in their order; `section` and `needs` are the defaults of its cases."""

    def __init__(self, section: Section | None = None, needs: str = "") -> None:
        self.cases: list[Case[ContextT]] = []
        self._section = section
        self._needs = needs

    def add(
        self,
        id: str,
        title: str,
        run: Callable[[ContextT], Awaitable[None]],
        *,
        expected: str,
        section: Section | None = None,
        needs: str | None = None,
        unsafe: bool = False,
    ) -> None:
        """Add a case. This is for functions that make the `run` of several cases; otherwise see `case`."""
        section = section or self._section
        if section is None:
            raise RuntimeError(f"neither {id} nor its chapter has a section")
        needs = self._needs if needs is None else needs
        self.cases.append(
            Case(id=id, title=title, section=section, expected=expected, needs=needs, unsafe=unsafe, run=run)
        )

    def case(
        self,
        id: str,
        title: str,
        *,
        expected: str,
        section: Section | None = None,
        needs: str | None = None,
        unsafe: bool = False,
    ) -> Callable[[Callable[[ContextT], Awaitable[None]]], Callable[[ContextT], Awaitable[None]]]:
        """Return a decorator that adds a function as a case."""

        def add(run: Callable[[ContextT], Awaitable[None]]) -> Callable[[ContextT], Awaitable[None]]:
            self.add(id, title, run, expected=expected, section=section, needs=needs, unsafe=unsafe)
            return run

        return add


def cases_of(chapters: Sequence[Chapter[ContextT]]) -> tuple[Case[ContextT], ...]:
    """Return the cases of all chapters, in order. Raises RuntimeError if two have the same id."""
    cases = [case for chapter in chapters for case in chapter.cases]
    if len({case.id for case in cases}) < len(cases):
        raise RuntimeError("two cases have the same id")
    return tuple(cases)


def chosen_of(cases: Sequence[RequirementT], patterns: Sequence[str]) -> tuple[RequirementT, ...]:
    """Return the cases that match the patterns, or all cases if there are no patterns.

    Raises ConfigError for a pattern that matches no case, with the nearest id.
    """
    for pattern in patterns:
        if not any(fnmatchcase(case.id, pattern) for case in cases):
            guess = nearest(pattern, [case.id for case in cases])
            raise ConfigError(f"no case is called {pattern!r}" + (f"; {guess!r} is" if guess else ""))
    return tuple(
        case for case in cases if not patterns or any(fnmatchcase(case.id, each) for each in patterns)
    )


class Probe:
    """The connections of one case, which are closed at its end, and its findings."""

    def __init__(self, access: AccessOptions, random: Random) -> None:
        self.random = random
        self.patience = access.patience
        self.departures: list[Departure] = []
        self.traffic: list[Traffic] = []
        self.left_out = 0
        self._access = access
        self._sockets: list[Socket] = []
        self._began = trio.current_time()

    # --- verdicts

    def fail(self, seen: object) -> NoReturn:
        """End the case as failed."""
        raise Failed(str(seen))

    def differs(self, key: str, seen: object) -> None:
        """Note a departure from the specification, and continue. The level decides how it is judged."""
        deviation = DEVIATIONS[key]
        departure = Departure(key, deviation.title, str(seen), deviation.section)
        if departure not in self.departures:
            self.departures.append(departure)

    def not_offered(self, why: str) -> NoReturn:
        """End the case as not offered: the server has nothing with which to try it."""
        raise NotOffered(why)

    def not_run(self, why: str) -> NoReturn:
        """End the case as not run: it needs a permission or a hint, whose option `why` names."""
        raise NotRun(why)

    # --- connections

    async def open(
        self,
        url: str,
        *,
        offered: tuple[str, ...] = (),
        headers: Headers = (),
        without: tuple[bytes, ...] = (),
    ) -> Socket:
        """Open a WebSocket; `offered` are subprotocols.

        `headers` are added to the handshake, or replace headers of the same name; `without` are left out.
        Raises Unreachable, and Refused for any answer but 101.
        """
        if len(self._sockets) >= 64:
            raise RuntimeError("a case has too many connections")
        access = self._access
        options = HandshakeOptions(
            network=access.network,
            endpoint=endpoint_of(url),
            tls=access.tls,
            offered=offered,
            headers=(*access.headers(url), *headers),
            without=without,
            patience=access.patience,
        )
        recorder = Recorder(self.record, len(self._sockets) + 1, self._began)
        socket = await open_socket(options, recorder, self.random)
        self._sockets.append(socket)
        return socket

    async def http(self, method: str, url: str, *, headers: Headers = (), body: bytes = b"") -> HttpAnswer:
        """Do one HTTP exchange. Raises Unreachable."""
        access = self._access
        return await exchange(
            access.network,
            method,
            url,
            headers=(*access.headers(url), *headers),
            body=body,
            tls=access.tls,
            patience=access.patience,
            record=self.record,
        )

    def record(self, traffic: Traffic) -> None:
        """Add an entry to the traffic of a connection."""
        self.traffic.append(attrs.evolve(traffic, at=max(0.0, trio.current_time() - self._began)))
        if len(self.traffic) > 200:
            del self.traffic[0]
            self.left_out += 1

    async def aclose(self) -> None:
        """Close all connections, without waiting for the server."""
        with trio.CancelScope(shield=True):  # each takes half a second at the most
            for socket in self._sockets:
                await socket.aclose()

    # --- the result

    async def judge_case(
        self, case: Requirement, run: Callable[[], Awaitable[None]], level: Level, *, allow_unsafe: bool
    ) -> Result:
        """Try a case, close its connections, and return its result."""
        verdict, seen = await self._outcome(case, run, level, allow_unsafe=allow_unsafe)
        return attrs.evolve(
            case.result(verdict, seen),
            departures=tuple(self.departures),
            traffic=tuple(self.traffic),
            left_out=self.left_out,
            seconds=trio.current_time() - self._began,
        )

    async def _outcome(
        self, case: Requirement, run: Callable[[], Awaitable[None]], level: Level, *, allow_unsafe: bool
    ) -> tuple[Verdict, str]:
        if case.unsafe and not allow_unsafe:
            return Verdict.NOT_RUN, "it changes something: --allow-unsafe lets it"
        try:
            with trio.move_on_after(_CASE_SECONDS):
                await run()
                verdict, telling = weigh(self.departures, level)
                return verdict, _in_words(telling)
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
                await self.aclose()


def _in_words(departures: Sequence[Departure]) -> str:
    """Return a text on departures: the title of each deviation once, followed by all its observations."""
    seen: dict[str, list[str]] = {}
    for each in departures:
        seen.setdefault(each.title, []).append(each.seen)
    return "; ".join(f"{title}: {', '.join(found)}" for title, found in seen.items())


def without_words(words: Iterable[str], result: Result) -> Result:
    """Return a result in which secrets are masked: those of the words that have at least four characters."""
    secrets = [word for word in dict.fromkeys(words) if len(word) >= 4]
    if not secrets:
        return result

    def safe(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    return attrs.evolve(
        result,
        seen=safe(result.seen),
        departures=tuple(attrs.evolve(each, seen=safe(each.seen)) for each in result.departures),
        traffic=tuple(attrs.evolve(each, text=safe(each.text)) for each in result.traffic),
    )
