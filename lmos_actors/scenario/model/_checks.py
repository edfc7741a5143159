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
    """A state that must never occur: one of `dead_letter` and `expr`. `fault_free`: except during faults."""

    dead_letter: Literal[True] | UnsetType = UNSET
    expr: Expression | UnsetType = UNSET
    fault_free: Literal[True] | UnsetType = UNSET


class Formula(Check, frozen=True, kw_only=True):
    """A check with a formula. `of` is the agent or population whose state the formula uses.

    The formula is evaluated after each logged turn of such an agent, when its mailbox is fullest, at every
    sample, and at the end, while the agents are still there. An agent that does not run is skipped. The check
    fails if the formula cannot be computed or was never evaluated.
    """

    of: Name | None = None


class Never(Formula, frozen=True, kw_only=True, tag="never"):
    """A check that something never holds. A dead letter counts until the last agent has stopped."""

    when: NeverWhen


class Always(Formula, frozen=True, kw_only=True, tag="always"):
    """A formula must hold at each evaluation; a formula over series, from their first values on."""

    expr: Expression


class Eventually(Formula, frozen=True, kw_only=True, tag="eventually"):
    """A formula must become true no later than `by`. Its instant is available as `NAME.time`, in seconds.

    For a population, it must become true for each agent, but not for all at one instant.
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
    """A check of the durations of a step's runs. A percentile needs 20 of them, else the check fails."""

    of: Name
    max: Below | None = None
    p50: Below | None = None
    p90: Below | None = None
    p95: Below | None = None
    p99: Below | None = None


class Message(Closed, frozen=True, kw_only=True):
    """A pattern for messages: all keys given (at least one) must fit. An event is `from` its agent."""

    from_: Name | None = field(name="from", default=None)
    to: Name | None = None
    action: Name | None = None
    property: Name | None = None
    event: Name | None = None


class Causal(Check, frozen=True, kw_only=True, tag="causal"):
    """Every message `after` has an earlier message `before` as a cause in its trace, or is one itself.

    Without a message `after` the check fails.
    """

    before: Message
    after: Message


class Trace(Check, frozen=True, kw_only=True, tag="trace"):
    """A check of the trace of a step, or without `of` of every step. At least one other key is needed.

    `single_trace`: every message is in the trace of the step that caused it. No agent begins a trace of its
    own; with `of`, no agent does so while it handles a message of that step.
    `through`: agents that the trace of the step reaches, in this order.
    """

    of: Name | None = None
    single_trace: Literal[True] | UnsetType = UNSET
    through: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET


class Converges(Check, frozen=True, kw_only=True, tag="converges"):
    """All agents of a population reach the same value within a time after a fault has ended.

    The values are compared at every sample and at the end, among the agents that run: at least two. `field`
    is a field of the state: `state.version`. `after` is `ID.healed` of a fault; default: the run's start.
    """

    of: Name
    field: Expression
    after: Name | None = None
    within: Duration


class Linearizable(Check, frozen=True, kw_only=True, tag="linearizable"):
    """The agents of `of` are one register: an order of all its reads and writes explains their answers.

    An operation takes effect between its request and its answer. Without an answer it may have happened, at
    any later time, or not at all. `read`, `write` and `compare_and_set` are actions, `key` names an argument
    of theirs. `write` also takes the new value, `compare_and_set` the expected and the new value; it returns
    whether it has set the value. Each key is its own register. `initial` is the value before the first write.
    """

    of: Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
    read: Name
    write: Name
    compare_and_set: Name | None = None
    key: Name | None = None
    initial: Any = None


class Compare(Check, frozen=True, kw_only=True, tag="compare"):
    """A check of how a number of the runs (its median over seeds) changes along a key of the matrix or sweep.

    `metric` is `CHECK.time` of an `eventually` check, `SERIES.last`, `.min`, `.max` or `.mean`, or
    `STEP.max` or `.p99` (p50, p90, p95) of the latencies of a step. Keys other than `across` are held fixed,
    and each of their combinations must show the trend. Each number must be beyond the previous one. With a
    `tolerance`, in the unit of the metric, it may fall back that far if the last is beyond the first.
    `constant`: no two numbers differ by more than `tolerance`.
    """

    metric: Name
    across: Name
    trend: Literal["increasing", "decreasing", "constant"]
    tolerance: Annotated[float, Meta(ge=0)] = 0.0


class CountBounds(Closed, frozen=True, kw_only=True):
    """Bounds of a whole number; at least one."""

    equals: Count | UnsetType = UNSET
    ge: Count | UnsetType = UNSET
    le: Count | UnsetType = UNSET


class CalledTool(Closed, frozen=True, kw_only=True):
    """Calls of a tool with arguments that `match`. `failed`: only calls that ended in an error.

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
    """The tools that models called: for each run of a step, for an agent that asks models, or for a model.

    A call counts when its result has come back to the model. `called`: each of these; `in_order`: these,
    with others between them; `never`: none of these; `only`: none but these. A tool that no model of the run
    was offered fails the check.
    """

    of: Name
    called: ToolPatterns | UnsetType = UNSET
    in_order: ToolPatterns | UnsetType = UNSET
    never: ToolPatterns | UnsetType = UNSET
    only: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET


class Spending(Check, frozen=True, kw_only=True, tag="budget"):
    """The requests to models: for each run of a step, or in total for an asking agent or a model.

    `calls` are requests to models, `tools` the tool calls that models have requested. Tokens are as counted
    by the provider.
    """

    of: Name
    tokens: CountBounds | None = None
    input_tokens: CountBounds | None = None
    output_tokens: CountBounds | None = None
    calls: CountBounds | None = None
    tools: CountBounds | None = None


Words: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1)]


class Answer(Check, frozen=True, kw_only=True, tag="answer"):
    """A check of the answers of all runs of a step. A stream counts as its texts joined.

    `schema` is a JSON Schema; a text answer is read as JSON for it. The text must contain all `words`, one of
    `any_of`, and none of `without`, in any case. `match` checks parts of the answer.
    """

    of: Name
    schema: Data | UnsetType = UNSET
    words: Words | UnsetType = UNSET
    any_of: Words | UnsetType = UNSET
    without: Words | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}


class NoSecrets(Check, frozen=True, kw_only=True, tag="secrets"):
    """No answer to a step and no request to a model contains a secret.

    Secrets are the values of fields and inputs declared as secret, and what `args` and `values` refer to
    (`env:NAME`, `file:PATH`).
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

    `fraction` and `count` count the agents for which `expr` is true; `rate` is the growth of the sum per
    second. Percentiles are by nearest rank over the agents, however few. An agent that does not run is left
    out if the formula uses its state. A sample has no value if no agent is left or the formula fails.
    """

    agg: Aggregate
    of: Name
    expr: Expression


class Measure(Closed, frozen=True, kw_only=True):
    """The measured series, and how often they are sampled."""

    every: Duration
    series: Annotated[dict[str, Series], Meta(min_length=1)]
