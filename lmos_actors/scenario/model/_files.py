"""The files `lmos: scenario/v1` and `simulation/v1` as closed structs; the one source of the JSON Schema.

A key that is not here fails. A word that the format has but this version does not is in a `Later`: it fails
too, and says so. `$(vars.x)`, `$(matrix.x)` and `$(sweep.x)` are filled in before a struct is built, so
every field below has its plain type; `$(saved.x)`, `$(agents.x)` and `$(population.x)` are left to the run,
and stand only where data is open.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Later, Size

from ._agents import AnyAgent, Population, Topology, Tree
from ._base import Closed, Delay, Name, Scalar
from ._checks import AnyCheck, Measure
from ._explore import Explore
from ._network import Network
from ._steps import AnyStep, TimelineEntry

Choices: TypeAlias = Annotated[tuple[Any, ...], Meta(min_length=1)]
World: TypeAlias = Literal["memory", "wire", "websocket", "process"]
PROCESS: Final = "process"
"""The world of processes."""

WORLDS: Final = ("memory", "wire", "websocket", PROCESS)
REAL: Final = ("websocket", PROCESS)
"""Worlds with real time."""

Circles: TypeAlias = Literal["warn", "fail"]
"""What happens to a request that closes a circle of requests; see `open_node`."""

Extension: TypeAlias = Literal["receipts", "presence", "history", "semantic", "voting", "questions"]
LONGEST_COUNT: Final = 9
"""Digits of a number of messages."""


class Variable(Closed, frozen=True, kw_only=True):
    """A value that the file uses as $(vars.NAME). Without a default the matrix or --set must give it."""

    type: Literal["string", "integer", "number", "boolean", "duration", "size"]
    default: Any | UnsetType = UNSET
    doc: str = ""


class SeedRange(Closed, frozen=True, kw_only=True):
    """The seeds from, from+1, ... : count of them."""

    from_: int = field(name="from")
    count: Annotated[int, Meta(ge=1, le=100_000)]


class SweepRange(Closed, frozen=True, kw_only=True):
    """The numbers from, from+step, ... up to `to`, itself included."""

    from_: float = field(name="from")
    to: float
    step: Annotated[float, Meta(gt=0)]


class Trials(Closed, frozen=True, kw_only=True):
    """The number of runs of each cell, and the share of them that must pass."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    pass_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Store(Closed, frozen=True, kw_only=True):
    """The disk on which agents are kept. `latency` is the time of a commit, drawn for each, if set."""

    latency: Delay | UnsetType = UNSET


class RateText(str):
    """So many messages in so long: `1000/1m`."""

    __slots__ = ()
    described: ClassVar = "messages in a time, such as 1000/1m"
    pattern: ClassVar = r"^[1-9][0-9]{0,8}/[0-9].*$"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it. Raises ValueError."""
        count, slash, span = text.partition("/")
        if not (
            slash and count.isascii() and count.isdecimal() and len(count) <= LONGEST_COUNT and int(count)
        ):
            raise ValueError(f'"{text}" is not {cls.described}')
        if not Duration.parse(span) > 0:
            raise ValueError(f'"{text}" is not {cls.described}')
        return cls(text)

    @property
    def limit(self) -> tuple[int, float]:
        """The messages, and the seconds."""
        count, _, span = self.partition("/")
        return int(count), float(Duration.parse(span))


class Relay(Closed, frozen=True, kw_only=True):
    """The hub that the node of the file is: its extensions, and its limits.

    `weights` are what votes weigh. `rate` is how many messages in how long one may send.
    """

    extensions: tuple[Extension, ...] = ("receipts",)
    weights: dict[str, Annotated[int, Meta(ge=0, le=1 << 30)]] = {}
    rate: RateText | tuple[RateText, ...] | Literal["unlimited"] | UnsetType = UNSET
    broadcasts: Literal["all", "followed"] = "all"
    max_message: Size | UnsetType = UNSET


class Report(Closed, frozen=True, kw_only=True):
    """Files to write, relative to the working directory."""

    log: Name | None = None
    junit: Name | None = None
    html: Name | None = None
    sequence: Name | None = None
    csv: Name | None = None


class File(Closed, frozen=True, kw_only=True):
    """The keys that both kinds of file have.

    `system` is a deployment file, whose agents, tree and groups the file has in place of its own.
    """

    name: Name
    summary: str = ""
    labels: dict[str, Scalar] = {}
    vars: dict[str, Variable] = {}
    seeds: Annotated[tuple[int, ...], Meta(min_length=1)] | SeedRange = (1,)
    trials: Trials = Trials()
    world: World = "memory"
    system: Name | None = None
    store: Store | None = None
    circles: Circles = "warn"
    relay: Relay | None = None
    network: Network | None = None
    nodes: dict[str, Annotated[tuple[Name, ...], Meta(min_length=1)]] = {}
    explore: Explore | None = None
    measure: Measure | None = None
    checks: tuple[AnyCheck, ...] = ()
    report: Report = Report()


class Scenario(File, frozen=True, kw_only=True, tag_field="lmos", tag="scenario/v1"):
    """A story that is run and judged."""

    matrix: dict[str, Choices] = {}
    timeout: Duration = Duration(30.0)
    agents: dict[str, AnyAgent] = {}
    tree: Tree | None = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]
    later: ClassVar[Later] = Later("env", "secrets", "facades", "listen")


class StopAt(Closed, frozen=True, kw_only=True):
    """The end of a simulation: at an instant of virtual time, or as soon as a check by name has been met.

    It does not end before that while entries of the timeline are to come, a fault is in force, or another
    `eventually` or `converges` check is open.
    """

    at: Duration
    when: Name | None = None


class Simulation(File, frozen=True, kw_only=True, tag_field="lmos", tag="simulation/v1"):
    """Many agents over a stretch of virtual time, measured and judged."""

    sweep: dict[str, Choices | SweepRange] = {}
    stop: StopAt
    agents: dict[str, AnyAgent] = {}
    tree: Tree | None = None
    population: Annotated[tuple[Population, ...], Meta(min_length=1)]
    topology: Topology | None = None
    timeline: tuple[TimelineEntry, ...] = ()
    later: ClassVar[Later] = Later("env", "secrets", "facades", "listen", "processes")


def is_real(world: str) -> bool:
    """Return whether time in a world is real, so that no two runs are the same."""
    return world in REAL
