"""Parts of a report card: levels, verdicts, traffic, results of cases."""

from __future__ import annotations

from enum import Enum
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class Level(Enum):
    """The strictness with which a server is judged.

    `SPEC`: every difference from the specification fails. `LENIENT`: a difference is tolerated if peers can
    still work with the server. `KOTLIN_WOT`: the kit behaves as kotlin-wot's client does, and judges by the
    behaviour of kotlin-wot's server. `REFERENCE` and `RAWK` are levels for relays, and judge by the behaviour
    of AgentRelay's reference relay, or of rawk's.
    """

    SPEC = "spec"
    LENIENT = "lenient"
    KOTLIN_WOT = "kotlin-wot"
    REFERENCE = "reference"
    RAWK = "rawk"


LMOS_LEVELS: Final = (Level.SPEC, Level.LENIENT, Level.KOTLIN_WOT)
CHAT_LEVELS: Final = (Level.SPEC, Level.LENIENT)
RELAY_LEVELS: Final = (Level.SPEC, Level.LENIENT, Level.REFERENCE, Level.RAWK)


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of the kit: the versions of this package and of its networking libraries."""
    return {name: version(name) for name in ("lmos-actors", "trio", "h11")}


class Verdict(Enum):
    """The verdict on a case.

    `TOLERATED`: the server works, but not as specified. `NOT_OFFERED`: the description has nothing with which
    the case could be tried. `NOT_RUN`: the case needs a permission or a hint that was not given.
    """

    PASSED = "passed"
    TOLERATED = "tolerated"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    NOT_RUN = "not run"


Kind: TypeAlias = Literal[
    "head", "text", "binary", "continuation", "ping", "pong", "close", "end", "bytes", "http"
]


@attrs.frozen
class Section:
    """The source of a case: the title of a document, and a heading or a number in it."""

    document: str
    place: str

    def __str__(self) -> str:
        return f"{self.document}, {self.place}"


@attrs.frozen(kw_only=True)
class Traffic:
    """Something that was sent or received in a case.

    `at`: seconds since the case began. `sent`: by the kit, rather than by the other side. `connection`: the
    number of the connection in the case, from 1; 0 for an HTTP exchange. `text`: the content as text, at most
    2,000 characters; binary data is hexadecimal. `size`: the payload in bytes.
    """

    at: float
    sent: bool
    connection: int
    kind: Kind
    text: str
    size: int


@attrs.frozen
class Departure:
    """A departure from the specification. `key`: the key of its deviation; `seen`: what was observed."""

    key: str
    title: str
    seen: str
    section: Section


class Demand(Protocol):
    """The demand of a case on a server or a client."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def section(self) -> Section: ...
    @property
    def expected(self) -> str: ...


@attrs.frozen(kw_only=True)
class Result:
    """The result of a case.

    `expected`: what the specification demands; `seen`: what was observed instead, or why the case was not
    tried, or "" if it passed. `departures`: the observed differences from the specification, tolerated or
    not. `traffic`: the newest 200 entries of traffic; `left_out`: the number of earlier entries. `seconds`:
    the duration of the case.
    """

    id: str
    title: str
    section: Section
    expected: str
    verdict: Verdict
    seen: str
    departures: tuple[Departure, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    left_out: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, case: Demand, verdict: Verdict, seen: str = "") -> Result:
        """Return the result of a case, without departures and traffic."""
        return cls(
            id=case.id,
            title=case.title,
            section=case.section,
            expected=case.expected,
            verdict=verdict,
            seen=seen,
        )


@attrs.frozen(kw_only=True)
class Card:
    """A report card: the results of a server or a client, in the order of the cases.

    `subject`: what was judged, as given. `role`: whether it is a server or a client. `title`, `thing`: from
    its description. `spoken`: how the kit communicated with it, in words. `command`: the command that repeats
    the run. `versions`: the versions of the kit and its libraries. `cut`: the reason in words why the run
    ended before all cases were tried, or "" if all were; untried cases are among the results as not run.
    """

    subject: str
    role: Literal["server", "client"]
    title: str
    thing: str
    level: Level
    spoken: str
    seed: int
    results: tuple[Result, ...]
    seconds: float
    command: str = ""
    versions: Mapping[str, str] = attrs.field(factory=dict[str, str])
    cut: str = ""

    def count(self, verdict: Verdict) -> int:
        """Return the number of cases with a verdict."""
        return sum(result.verdict is verdict for result in self.results)

    @property
    def passed(self) -> bool:
        """Whether no case failed, and the run was not ended before all cases were tried."""
        return not self.count(Verdict.FAILED) and not self.cut
