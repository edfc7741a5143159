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

    `SPEC`: every difference from the texts fails. `LENIENT`: what works all the same is tolerated.
    `KOTLIN_WOT`: the kit speaks as kotlin-wot's client does, and judges by what kotlin-wot's server does.
    `REFERENCE`, `RAWK`: levels for relays; they judge by what AgentRelay's reference relay, or rawk's, does.
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

    `TOLERATED`: the server works, but not as written. `NOT_OFFERED`: the description has nothing to try the
    case with. `NOT_RUN`: the case needs a permission or a hint that was not given.
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
    """A place in a text that a case follows: the document's title, and a heading or a number in it."""

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
    """A departure from the text. `key`: the key of its deviation; `seen`: what was seen."""

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

    `expected`: what the text demands; `seen`: what came instead, or why it was not tried; empty if it passed.
    `departures`: the differences from the text that were seen, tolerated or not. `traffic`: the newest 200
    entries of traffic; `left_out`: the number before them. `seconds`: how long it took.
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
        """Return the result of a case, without findings."""
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
    """A report card: how a server, or a client, fared in each case, in the order of the cases.

    `subject`: what was judged, as given. `role`: what it is. `title`, `thing`: from its description.
    `spoken`: how it was spoken to, in words. `command`: the command that repeats the run. `versions`: the
    versions of the kit and its libraries. `cut`: what ended the run before all cases were tried, in words, ""
    if nothing did; the cases left are among the results as not run.
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
        """Whether no case failed, and nothing ended it before all were tried."""
        return not self.count(Verdict.FAILED) and not self.cut
