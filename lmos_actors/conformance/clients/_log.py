"""Notes on what clients do, case by case, and the results that follow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import (
    DEVIATIONS,
    Departure,
    Level,
    Result,
    Traffic,
    Verdict,
    weigh,
)

if TYPE_CHECKING:
    from ._cases import ClientCase, ClientCases

_KEPT: Final = 200  # entries of traffic kept of a connection
_SHOWN: Final = 20  # entries of traffic shown before a mistake
_WRONGS: Final = 20  # mistakes kept of one case
_TOKENS: Final = 64  # valid tokens of one challenge
_LONGEST: Final = 500  # characters shown of a mistake
_TO_FAIL: Final = ("failure", "error", "numeric-status")


@attrs.define
class Challenge:
    """The state of a challenge: its valid tokens, how often it was begun and proven, and wrong proofs."""

    tokens: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=_TOKENS))
    begun: int = 0
    proven: int = 0
    wrong: list[str] = attrs.field(factory=list[str])
    log: ConnectionLog | None = None
    since: int = 0


@attrs.define
class PassiveCase:
    """The state of a case that needs no challenge: mistakes and deviations in what clients do."""

    tried: int = 0
    departures: list[Departure] = attrs.field(factory=list[Departure])
    wrong: list[str] = attrs.field(factory=list[str])
    traffic: tuple[Traffic, ...] = ()


class ConnectionLog:
    """The traffic of one connection."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[Traffic] = deque(maxlen=_KEPT)

    def keep(self, traffic: Traffic) -> None:
        """Keep one entry of traffic."""
        self.count += 1
        self._kept.append(traffic)

    def since(self, count: int) -> tuple[Traffic, ...]:
        """Return a few of the entries after the first `count`, without those that are no longer kept."""
        gone = self.count - len(self._kept)
        return tuple(self._kept)[max(0, count - gone) :][:_SHOWN]

    def last(self) -> tuple[Traffic, ...]:
        """Return the newest entries."""
        return tuple(self._kept)[-_SHOWN:]


class ClientNotes:
    """Notes on what clients do, case by case."""

    def __init__(self, level: Level, cases: ClientCases) -> None:
        self.level = level
        self.watched = {case.challenge: PassiveCase() for case in cases.passive}
        self.challenges = {case.challenge: Challenge() for case in cases.challenges}
        self._cases = cases

    # ---- what is watched

    def tried(self, what: str) -> None:
        """Note that a client did something that the case judges."""
        self.watched[what].tried += 1

    def wrong(self, what: str, seen: str, log: ConnectionLog, key: str = "") -> None:
        """Note a mistake in a case; with a `key`, it is that deviation from the specification."""
        watch = self.watched[what]
        watch.tried += 1
        if len(watch.departures) + len(watch.wrong) >= _WRONGS:
            return
        watch.traffic = watch.traffic or log.last()
        if not key:
            watch.wrong.append(_plain(seen))
            return
        deviation = DEVIATIONS[key]
        departure = Departure(key, deviation.title, _plain(seen), deviation.section)
        if departure not in watch.departures:
            watch.departures.append(departure)

    # ---- challenges

    def give(self, challenge: str, token: str) -> str:
        """Note that a token is valid for a challenge; return it."""
        self.challenges[challenge].tokens.append(token)
        return token

    def begin(self, challenge: str, log: ConnectionLog) -> None:
        """Note that a challenge has begun, with the newest entry of traffic."""
        found = self.challenges[challenge]
        found.begun += 1
        found.log, found.since = log, max(0, log.count - 1)

    def is_open(self, challenge: str) -> bool:
        """Return whether a challenge was begun more often than proofs of it, right or wrong, have arrived."""
        found = self.challenges[challenge]
        return found.begun > found.proven + len(found.wrong)

    def prove(self, challenge: str, proof: str, failed: bool, log: ConnectionLog) -> str:
        """Note a proof; return what is wrong with it, or "" if it is right."""
        found = self.challenges[challenge]
        if found.log is None:
            found.log, found.since = log, max(0, log.count - 1)
        wanted = challenge in _TO_FAIL
        if not any(token in proof for token in found.tokens):
            wrong = f"{proof[:100]!r} is not the token"
        elif failed is not wanted:
            wrong = f"failed was {failed}".lower()
        else:
            found.proven += 1
            return ""
        if len(found.wrong) < _WRONGS:
            found.wrong.append(_plain(wrong))
        return wrong

    # ---- results

    def results(self) -> tuple[Result, ...]:
        """Return the present result of each case."""
        watched = [self._watched(case, self.watched[case.challenge]) for case in self._cases.passive]
        challenges = [
            self._challenge(case, self.challenges[case.challenge]) for case in self._cases.challenges
        ]
        return (*watched, *challenges)

    def _watched(self, case: ClientCase, watch: PassiveCase) -> Result:
        verdict, telling = weigh(watch.departures, self.level)
        seen = "; ".join([*watch.wrong, *(f"{each.title}: {each.seen}" for each in telling)])
        if not watch.tried:
            verdict, seen = Verdict.NOT_RUN, f"no client did anything to be judged so{_by(case)}"
        elif watch.wrong:
            verdict = Verdict.FAILED
        result = Result.of(case, verdict, seen)
        return attrs.evolve(result, departures=tuple(watch.departures), traffic=watch.traffic)

    def _challenge(self, case: ClientCase, challenge: Challenge) -> Result:
        if challenge.wrong:
            result = Result.of(case, Verdict.FAILED, "; ".join(challenge.wrong))
        elif challenge.proven:
            result = Result.of(case, Verdict.PASSED)
        elif not challenge.begun:
            result = Result.of(case, Verdict.NOT_RUN, f"no client has begun it{_by(case)}")
        elif not any(each.proven or each.wrong for each in self.challenges.values()):
            result = Result.of(case, Verdict.NOT_RUN, f"no client has ever {self._cases.proof}")
        else:
            result = Result.of(case, Verdict.FAILED, f"it was begun {challenge.begun}x, and never proven")
        traffic = challenge.log.since(challenge.since) if challenge.log is not None else ()
        return attrs.evolve(result, traffic=traffic)


def _plain(text: str) -> str:
    """Return a text that UTF-8 can encode, cut to a maximum length."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _by(case: ClientCase) -> str:
    return f". How: {case.how}" if case.how else ""
