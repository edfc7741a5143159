"""The files `lmos: scenario/v1` and `simulation/v1` as closed structs; the only source of the JSON Schema.

An unknown key fails. A word of the format that this version does not support yet is in a `Later`, and fails
with a special message. `$(vars.x)`, `$(matrix.x)` and `$(sweep.x)` are filled in before a struct is built, so
every field below has its plain type. The run fills in `$(saved.x)`, `$(agents.x)` and `$(population.x)`,
which are allowed only where a field takes any data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Later
from lmos_actors.system.model import (
    AnyAgent,
    Choices,
    Circles,
    Closed,
    Delay,
    Name,
    Population,
    Relay,
    Scalar,
    SweepRange,
    Topology,
    Tree,
    Variable,
    World,
)

from ._checks import AnyCheck, Measure
from ._explore import Explore
from ._network import Network
from ._steps import AnyStep, TimelineEntry

if TYPE_CHECKING:
    from collections.abc import Mapping


class SeedRange(Closed, frozen=True, kw_only=True):
    """A range of `count` consecutive seeds that begins at `from`."""

    from_: int = field(name="from")
    count: Annotated[int, Meta(ge=1, le=100_000)]


class Trials(Closed, frozen=True, kw_only=True):
    """The number of runs of each cell, and the share of them that must pass."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    pass_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Store(Closed, frozen=True, kw_only=True):
    """The disk that keeps the agents' state. `latency` is the time of a commit, drawn anew for each one.

    If it is not set, commits take no time.
    """

    latency: Delay | UnsetType = UNSET


class Report(Closed, frozen=True, kw_only=True):
    """Files to write, relative to the working directory."""

    log: Name | None = None
    junit: Name | None = None
    html: Name | None = None
    sequence: Name | None = None
    csv: Name | None = None


class File(Closed, frozen=True, kw_only=True):
    """The keys that both kinds of file have.

    `system` is a deployment file. Its agents, tree and groups are used in place of the file's.
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
    """A scenario: a story of steps that is run and judged."""

    matrix: dict[str, Choices] = {}
    timeout: Duration = Duration(30.0)
    agents: dict[str, AnyAgent] = {}
    tree: Tree | None = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]
    later: ClassVar[Later] = Later("env", "secrets", "facades", "listen")


class StopAt(Closed, frozen=True, kw_only=True):
    """The end of a simulation: at an instant of virtual time, or as soon as the named check has been met.

    A met check does not end the run while timeline entries are still to come, a fault is in force, or another
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


def struct_of(data: Mapping[str, Any]) -> type[Scenario | Simulation]:
    """Return the struct for the data of a scenario file."""
    return Simulation if data.get("lmos") == "simulation/v1" else Scenario
