"""Structs of the checks over a whole run, and of the series measured in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration
from lmos_actors.system.model import BearerText, Closed, Condition, Count, Data, Expression, Name, Scalar


class Check(Closed, frozen=True, kw_only=True, tag_field="check"):
    """The keys of every check. Other checks, formulas and `stop` refer to it by its `name`."""

    name: Name | None = None


class NeverWhen(Closed, frozen=True, kw_only=True):
    """A state that must never occur: `dead_letter` or `expr`. `fault_free` exempts the times of faults."""

    dead_letter: Literal[True] | UnsetType = UNSET
    expr: Expression | UnsetType = UNSET
    fault_free: Literal[True] | UnsetType = UNSET


class Formula(Check, frozen=True, kw_only=True):
    """A check with a formula. `of` is the agent or population whose state the formula uses.

    The formula is evaluated after each logged turn of such an agent, when its mailbox is fullest, at every
    sample, and at the end, while the agents still exist. An agent that does not run is skipped. The check
    fails if the formula cannot be computed or was never evaluated.
    """

    of: Name | None = None


class Never(Formula, frozen=True, kw_only=True, tag="never"):
    """A check that a condition never holds. A dead letter counts until the last agent has stopped."""

    when: NeverWhen


class Always(Formula, frozen=True, kw_only=True, tag="always"):
    """A check that a formula holds at each evaluation; for series, from their first values on."""

    expr: Expression


class Eventually(Formula, frozen=True, kw_only=True, tag="eventually"):
    """A check that a formula becomes true, no later than `by`.

    The instant when it does is available as `NAME.time`, in seconds. For a population, the formula must
    become true for each agent, though not necessarily at the same instant.
    """

    expr: Expression
    by: Duration


class Bounded(Check, frozen=True, kw_only=True):
    """A check of a whole number, with at least one bound."""

    of: Name
    equals: Count | UnsetType = UNSET
    ge: Count | UnsetType = UNSET
    le: Count | UnsetType = UNSET


class Restarts(Bounded, frozen=True, kw_only=True, tag="restarts"):
    """A check of the number of restarts of an agent, a supervisor, or all agents of a population."""


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
    """A counter of an agent, or of all agents of a population together, at the end of the run."""

    counter: Counter


class Below(Closed, frozen=True, kw_only=True):
    """An upper bound of a time."""

    lt: Duration | UnsetType = UNSET
    le: Duration | UnsetType = UNSET


class Latency(Check, frozen=True, kw_only=True, tag="latency"):
    """A check of the durations of a step's runs. A percentile needs 20 runs; with fewer, the check fails."""

    of: Name
    max: Below | None = None
    p50: Below | None = None
    p90: Below | None = None
    p95: Below | None = None
    p99: Below | None = None


class Message(Closed, frozen=True, kw_only=True):
    """A pattern for messages: all given keys, at least one, must fit. For an event, `from` is its agent."""

    from_: Name | None = field(name="from", default=None)
    to: Name | None = None
    action: Name | None = None
    property: Name | None = None
    event: Name | None = None


class Causal(Check, frozen=True, kw_only=True, tag="causal"):
    """A check that every message `after` has an earlier message `before` in its trace, or fits `before` too.

    Without a message `after` the check fails.
    """

    before: Message
    after: Message


class Trace(Check, frozen=True, kw_only=True, tag="trace"):
    """A check of the trace of a step, or, without `of`, of every step. At least one other key is needed.

    With `single_trace`, every message must be in the trace of the step that caused it. No agent may begin a
    new trace; with `of`, this holds while an agent handles a message of that step. `through` has agents that
    the trace of the step must reach, in this order.
    """

    of: Name | None = None
    single_trace: Literal[True] | UnsetType = UNSET
    through: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET


class Converges(Check, frozen=True, kw_only=True, tag="converges"):
    """A check that all agents of a population reach the same value within a time after a fault has ended.

    The values are compared at every sample and at the end, among the running agents, of which there must be
    at least two. `field` is a field of the state: `state.version`. `after` is `ID.healed` of a fault; the
    default is the start of the run.
    """

    of: Name
    field: Expression
    after: Name | None = None
    within: Duration


class Linearizable(Check, frozen=True, kw_only=True, tag="linearizable"):
    """A check that the agents of `of` form one register: some order of all operations explains their answers.

    An operation takes effect between its request and its answer. Without an answer it may have happened, at
    any later time, or not at all. `read`, `write` and `compare_and_set` are actions; `key` names an argument
    of these actions. `write` also takes the new value. `compare_and_set` takes the expected and the new
    value, and returns whether it has set the value. Each key is a separate register. `initial` is the value
    before the first write.
    """

    of: Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
    read: Name
    write: Name
    compare_and_set: Name | None = None
    key: Name | None = None
    initial: Any = None


class Compare(Check, frozen=True, kw_only=True, tag="compare"):
    """A check of how a number, as its median over seeds, changes along a key of the matrix or sweep.

    `metric` is `CHECK.time` of an `eventually` check, `SERIES.last`, `.min`, `.max` or `.mean`, or `STEP.max`
    or `.p99` (p50, p90, p95) of the latencies of a step. Keys other than `across` are held fixed, and each of
    their combinations must show the trend. Each number must be beyond the previous one. With a `tolerance`,
    in the unit of the metric, a number may fall back by that much, provided that the last number is beyond
    the first. If the trend is `constant`, no two numbers may differ by more than `tolerance`.
    """

    metric: Name
    across: Name
    trend: Literal["increasing", "decreasing", "constant"]
    tolerance: Annotated[float, Meta(ge=0)] = 0.0


class CountBounds(Closed, frozen=True, kw_only=True):
    """Bounds of a whole number; at least one is needed."""

    equals: Count | UnsetType = UNSET
    ge: Count | UnsetType = UNSET
    le: Count | UnsetType = UNSET


class CalledTool(Closed, frozen=True, kw_only=True):
    """Calls of a tool with arguments that `match`; with `failed`, only calls that ended in an error.

    Without a bound, the tool must be called at least once.
    """

    tool: Name
    match: dict[str, Condition | Scalar] = {}
    failed: Literal[True] | UnsetType = UNSET
    equals: Count | UnsetType = UNSET
    ge: Count | UnsetType = UNSET
    le: Count | UnsetType = UNSET


ToolPattern: TypeAlias = Name | CalledTool
ToolPatterns: TypeAlias = Annotated[tuple[ToolPattern, ...], Meta(min_length=1)]


class Tools(Check, frozen=True, kw_only=True, tag="tools"):
    """A check of the tools that models called.

    It is made for each run of a step, for an agent that sends requests to models, or for a model. A call
    counts when the model has received its result. `called` lists tools that must all be called, `in_order`
    tools that must be called in this order, possibly with others between them. `never` lists tools that must
    not be called, `only` the only ones that may be. A tool that no model of the run was offered fails the
    check.
    """

    of: Name
    called: ToolPatterns | UnsetType = UNSET
    in_order: ToolPatterns | UnsetType = UNSET
    never: ToolPatterns | UnsetType = UNSET
    only: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET


class Spending(Check, frozen=True, kw_only=True, tag="budget"):
    """A check of the requests to models: for each run of a step, or in total for an agent or a model.

    `calls` is the number of requests to models, `tools` the number of tool calls that models have requested.
    The provider counts the tokens.
    """

    of: Name
    tokens: CountBounds | None = None
    input_tokens: CountBounds | None = None
    output_tokens: CountBounds | None = None
    calls: CountBounds | None = None
    tools: CountBounds | None = None


Words: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1)]


class Answer(Check, frozen=True, kw_only=True, tag="answer"):
    """A check of the answers of all runs of a step. The texts of a stream are joined into one.

    `schema` is a JSON Schema; a text answer is read as JSON for it. The text must contain all `words`, one of
    `any_of`, and none of `without`, ignoring case. `match` checks parts of the answer.
    """

    of: Name
    schema: Data | UnsetType = UNSET
    words: Words | UnsetType = UNSET
    any_of: Words | UnsetType = UNSET
    without: Words | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}


class NoSecrets(Check, frozen=True, kw_only=True, tag="secrets"):
    """A check that no answer to a step and no request to a model contains a secret.

    Secrets are the values of fields and inputs declared as secret, and the values to which `args` and
    `values` refer (`env:NAME`, `file:PATH`).
    """

    values: tuple[BearerText, ...] = ()


AnyCheck: TypeAlias = (
    Never
    | Always
    | Eventually
    | Restarts
    | Statistics
    | Latency
    | Causal
    | Trace
    | Converges
    | Linearizable
    | Compare
    | Tools
    | Spending
    | Answer
    | NoSecrets
)

# --- series

Aggregate: TypeAlias = Literal[
    "fraction", "count", "sum", "mean", "min", "max", "p50", "p90", "p95", "p99", "rate"
]


class Series(Closed, frozen=True, kw_only=True):
    """A number measured repeatedly: `expr` for every agent of `of`, aggregated by `agg`.

    `fraction` and `count` are about the agents for which `expr` is true; `rate` is the growth of the sum per
    second. Percentiles are by nearest rank over the agents, however few. An agent that does not run is left
    out if the formula uses its state. A sample has no value if no agent is left or the formula fails.
    """

    agg: Aggregate
    of: Name
    expr: Expression


class Measure(Closed, frozen=True, kw_only=True):
    """The measured series, and the time between two samples."""

    every: Duration
    series: Annotated[dict[str, Series], Meta(min_length=1)]
