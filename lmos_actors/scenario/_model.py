"""A scenario file, `lmos: scenario/v1`, as closed structs; the one source of its JSON Schema.

A key that is not here fails. A word that the format has but this version does not is in a `Later`: it fails
too, and says so. `$(vars.x)` and `$(matrix.x)` are filled in before a struct is built, so every field below
has its plain type; `$(saved.x)` and `$(agents.x)` are left to the run, and stand only where data is open.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from lmos_actors.files import Duration, Later, schema_of_file

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Data: TypeAlias = dict[str, Any]
Scalar: TypeAlias = str | int | float | bool | None
Choices: TypeAlias = Annotated[tuple[Any, ...], Meta(min_length=1)]
World: TypeAlias = Annotated[Literal["memory"], Later("wire", "message", "websocket", "process")]
Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Shutdown: TypeAlias = Duration | Literal["brutal", "infinity"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

USER = "user"
"""The scenario's own consumer; always there, never an agent's name."""


class Closed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every struct of a file: unknown keys are refused."""


class Variable(Closed, frozen=True, kw_only=True):
    """A value that the file uses as $(vars.NAME). Without a default the matrix or --set must give it."""

    type: Literal["string", "integer", "number", "boolean", "duration", "size"]
    default: Any | UnsetType = UNSET
    doc: str = ""


class SeedRange(Closed, frozen=True, kw_only=True):
    """The seeds from, from+1, ... : count of them."""

    from_: int = field(name="from")
    count: Annotated[int, Meta(ge=1, le=100_000)]


class Trials(Closed, frozen=True, kw_only=True):
    """How often each cell is run, and which share of the runs must pass."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    pass_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Mailbox(Closed, frozen=True, kw_only=True):
    """Room for messages not begun, and what happens to one that finds none."""

    size: Annotated[int, Meta(ge=1, le=1 << 40)] = 64
    when_full: Literal["wait", "reject", "drop_oldest", "drop_newest"] = "wait"


class AgentEntry(Closed, frozen=True, kw_only=True, tag_field="from", tag="agent"):
    """An agent of a class in the project."""

    use: Name
    args: Data = {}
    state: Data = {}
    mailbox: Mailbox | UnsetType = UNSET
    restart: Restart = "permanent"
    shutdown: Shutdown = Duration(5.0)
    significant: bool = False
    later: ClassVar[Later] = Later(
        "id", "description", "backoff", "service_time", "start", "listen", "facades"
    )


Agent: TypeAlias = Annotated[AgentEntry, Later("mock", "replay", "remote", "process")]


class Root(Closed, frozen=True, kw_only=True):
    """The root supervisor; children are agents by name, or supervisors."""

    strategy: Strategy = "one_for_one"
    max_restarts: Count = 3
    max_seconds: Duration = Duration(5.0)
    auto_shutdown: AutoShutdown = "never"
    children: tuple[Child, ...]
    later: ClassVar[Later] = Later("backoff")


class Supervisor(Root, frozen=True, kw_only=True):
    """A supervisor below the root."""

    name: Name
    restart: Restart = "permanent"
    shutdown: Shutdown = "infinity"
    significant: bool = False


Child: TypeAlias = str | Supervisor


class Tree(Closed, frozen=True, kw_only=True):
    """Who supervises whom. Without it every agent is a child of a root with the defaults, in file order."""

    root: Root


# --- what is said about a value


class Condition(Closed, frozen=True, kw_only=True):
    """What a value must fulfil; all that are given. `regex` is searched for, not anchored."""

    eq: Any | UnsetType = UNSET
    ne: Any | UnsetType = UNSET
    ge: float | UnsetType = UNSET
    gt: float | UnsetType = UNSET
    le: float | UnsetType = UNSET
    lt: float | UnsetType = UNSET
    contains: Any | UnsetType = UNSET
    regex: str | UnsetType = UNSET


class Expected(Closed, frozen=True, kw_only=True):
    """What the answer of a step, or a value, must be."""

    equals: Any | UnsetType = UNSET
    contains: Any | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}
    ge: float | UnsetType = UNSET
    le: float | UnsetType = UNSET


class ExpectedError(Closed, frozen=True, kw_only=True):
    """The error that a step must end in; `path` is where in the input, `contains` is in the message."""

    is_: Name = field(name="is")
    path: str | None = None
    contains: str | None = None


# --- steps


class Step(Closed, frozen=True, kw_only=True, tag_field="do"):
    """What every step has. `within` bounds it, the file's `timeout` if absent."""

    id: Name | None = None
    within: Duration | None = None


class Asking(Step, frozen=True, kw_only=True):
    """A step that turns to an agent. `as` is whose refs and identity are used."""

    as_: Name = field(name="as", default=USER)
    target: Name
    error: ExpectedError | None = None


class Read(Asking, frozen=True, kw_only=True, tag="read"):
    """Read a property. The answer is {value: ...}."""

    property: Name
    save: dict[str, str] = {}
    wait: bool = True


class Write(Asking, frozen=True, kw_only=True, tag="write"):
    """Write a property."""

    property: Name
    value: Any
    wait: bool = True


class Observe(Asking, frozen=True, kw_only=True, tag="observe"):
    """Observe a property until the end of the scenario; `expect that: reading` looks at what came."""

    property: Name


class Subscribe(Asking, frozen=True, kw_only=True, tag="subscribe"):
    """Subscribe to an event until the end of the scenario; `expect that: event` looks at what came."""

    event: Name


class Invoke(Asking, frozen=True, kw_only=True, tag="invoke"):
    """Invoke an action. The answer is {output: ...}; `wait: false` goes on before it is there."""

    action: Name
    input: Any | UnsetType = UNSET
    save: dict[str, str] = {}
    wait: bool = True


class Tell(Asking, frozen=True, kw_only=True, tag="tell"):
    """Invoke an action without an answer."""

    action: Name
    input: Any | UnsetType = UNSET


class Crash(Closed, frozen=True, kw_only=True, tag_field="kind", tag="crash"):
    """Crash an agent with an exception, a built-in one by name."""

    target: Name
    with_: Name = field(name="with", default="RuntimeError")


Fault: TypeAlias = Annotated[Crash, Later("partition", "slow", "clock_skew", "hang", "disconnect")]


class Inject(Step, frozen=True, kw_only=True, tag="inject"):
    """Inject a fault; done once the supervisor's plan has been carried out or given up."""

    fault: Fault
    wait: bool = True


class Until(Closed, frozen=True, kw_only=True):
    """An agent's state to wait for."""

    agent: Name
    is_: Literal["running", "restarting", "stopped"] = field(name="is")


class Wait(Step, frozen=True, kw_only=True, tag="wait"):
    """Wait until something is so, or for a time: exactly one of the two."""

    until: Until | None = None
    for_: Duration | None = field(name="for", default=None)


class Repeat(Step, frozen=True, kw_only=True, tag="repeat"):
    """Do the steps several times, one round after the other; `every` counts from begin to begin."""

    times: Annotated[int, Meta(ge=1)]
    every: Duration | None = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]


class Parallel(Step, frozen=True, kw_only=True, tag="parallel"):
    """Do several branches at once; done when all are."""

    branches: Annotated[tuple[Branch, ...], Meta(min_length=2)]


class Expect(Expected, frozen=True, kw_only=True, tag_field="do", tag="expect"):
    """Judge what has been seen. Which keys belong to which `that` is in `EXPECT_KEYS`."""

    id: Name | None = None
    within: Duration | None = None
    that: Annotated[Literal["value", "output", "status", "reading", "event"], Later("trace", "log")]
    of: Any | UnsetType = UNSET
    target: Name | None = None
    event: Name | None = None
    sequence: tuple[Any, ...] | UnsetType = UNSET
    times: Count | UnsetType = UNSET


AnyStep: TypeAlias = Annotated[
    Read | Write | Observe | Subscribe | Invoke | Tell | Inject | Wait | Repeat | Parallel | Expect,
    Later("start", "stop", "restart", "fault", "partition", "heal", "query", "cancel", "stream", "chat"),
]

Branch: TypeAlias = Annotated[tuple[AnyStep, ...], Meta(min_length=1)]

# --- checks, judged at the end over the whole run


class Check(Closed, frozen=True, kw_only=True, tag_field="check"):
    """What every check has."""

    name: Name | None = None


class NeverWhen(Closed, frozen=True, kw_only=True):
    """What must never be so at any time of the run."""

    dead_letter: Literal[True]
    later: ClassVar[Later] = Later("fault_free", "expr")


class Never(Check, frozen=True, kw_only=True, tag="never"):
    """Something must never be so."""

    when: NeverWhen


class Bounded(Check, frozen=True, kw_only=True):
    """A check of a whole number; at least one bound is given."""

    of: Name
    equals: Count | UnsetType = UNSET
    ge: Count | UnsetType = UNSET
    le: Count | UnsetType = UNSET


class Restarts(Bounded, frozen=True, kw_only=True, tag="restarts"):
    """How often an agent, or a supervisor, was restarted."""


Counter: TypeAlias = Literal[
    "accepted",
    "handled",
    "cancelled",
    "dropped",
    "dead_lettered",
    "refused",
    "waiting",
    "running",
    "restarts",
]


class Statistics(Bounded, frozen=True, kw_only=True, tag="statistics"):
    """A counter of an agent at the end of the run."""

    counter: Counter


class Below(Closed, frozen=True, kw_only=True):
    """An upper bound of a time."""

    lt: Duration | UnsetType = UNSET
    le: Duration | UnsetType = UNSET


class Latency(Check, frozen=True, kw_only=True, tag="latency"):
    """How long the runs of a step took. A percentile needs 20 of them, else the check fails."""

    of: Name
    max: Below | None = None
    p50: Below | None = None
    p90: Below | None = None
    p95: Below | None = None
    p99: Below | None = None


AnyCheck: TypeAlias = Annotated[
    Never | Restarts | Statistics | Latency,
    Later("always", "eventually", "causal", "converges", "compare", "trace"),
]


class Report(Closed, frozen=True, kw_only=True):
    """Files to write, relative to the working directory."""

    log: Name | None = None
    later: ClassVar[Later] = Later("junit", "html", "sequence", "csv")


class Scenario(Closed, frozen=True, kw_only=True):
    """A story that is run and judged."""

    lmos: Annotated[Literal["scenario/v1"], Later("simulation/v1", "deployment/v1")]
    name: Name
    summary: str = ""
    labels: dict[str, Scalar] = {}
    vars: dict[str, Variable] = {}
    matrix: dict[str, Choices] = {}
    seeds: Annotated[tuple[int, ...], Meta(min_length=1)] | SeedRange = (1,)
    trials: Trials = Trials()
    timeout: Duration = Duration(30.0)
    world: World = "memory"
    agents: Annotated[dict[str, Agent], Meta(min_length=1)]
    tree: Tree | None = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]
    checks: tuple[AnyCheck, ...] = ()
    report: Report = Report()
    later: ClassVar[Later] = Later("env", "secrets", "network", "facades", "listen")


EXPECT_KEYS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "value": (frozenset({"of"}), frozenset({"equals", "contains", "match", "ge", "le"})),
    "output": (frozenset({"of"}), frozenset({"equals", "contains", "match", "ge", "le"})),
    "status": (frozenset({"of"}), frozenset({"equals", "sequence"})),
    "reading": (
        frozenset({"of"}),
        frozenset({"equals", "contains", "match", "ge", "le", "sequence", "times"}),
    ),
    "event": (
        frozenset({"target", "event"}),
        frozenset({"equals", "contains", "match", "ge", "le", "sequence", "times"}),
    ),
}
"""For each `that`: the keys it needs, and those of which it needs at least one."""

STATUSES = ("pending", "in progress", "completed", "failed")
"""The words of an invocation's status: what `expect that: status` may name."""


def scenario_schema() -> dict[str, Any]:
    """Give the JSON Schema of a scenario file, for editors."""
    return schema_of_file(Scenario, title="lmos-actors scenario/v1")
