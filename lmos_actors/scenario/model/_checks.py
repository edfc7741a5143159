"""Structs of checks over a whole run, and of the series that are measured in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration
from lmos_actors.system.model import BearerText, Closed, Condition, Count, Data, Expression, Name, Scalar


class Check(Closed, frozen=True, kw_only=True, tag_field="check"):
    """The keys of every check. Other checks, formulas and `stop` refer to it by its `name`."""

    name: Name | None = None


class NeverWhen(Closed, frozen=True, kw_only=True):
    """A state that must never occur: one of `dead_letter` and `expr`. `fault_free`: outside faults only."""

    dead_letter: Literal[True] | UnsetType = UNSET
    expr: Expression | UnsetType = UNSET
    fault_free: Literal[True] | UnsetType = UNSET


class Formula(Check, frozen=True, kw_only=True):
    """A check with a formula. `of` is the agent, or the population, whose state it speaks of.

    It is looked at after each turn of such an agent, as the log tells of them, and at the fullest instants
    of its mailbox; at every sample; and at the end, while the agents are still there. An agent that does not
    run is not looked at. A formula that cannot be computed, or was never looked at, fails the check.
    """

    of: Name | None = None


class Never(Formula, frozen=True, kw_only=True, tag="never"):
    """A check that something never holds. A dead letter counts until the last agent has stopped."""

    when: NeverWhen


class Always(Formula, frozen=True, kw_only=True, tag="always"):
    """A formula must hold whenever it is looked at; of series, from their first values on."""

    expr: Expression


class Eventually(Formula, frozen=True, kw_only=True, tag="eventually"):
    """A formula must become true, at `by` at the latest. The instant is known as `NAME.time`, in seconds.

    Of a population it must for each of its agents, though not for all at one instant.
    """

    expr: Expression
    by: Duration


class Bounded(Check, frozen=True, kw_only=True):
    """A check of a whole number; at least one bound is given."""

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
    """Messages of a run: all that is given must fit; at least one key. An event is `from` its agent."""

    from_: Name | None = field(name="from", default=None)
    to: Name | None = None
    action: Name | None = None
    property: Name | None = None
    event: Name | None = None


class Causal(Check, frozen=True, kw_only=True, tag="causal"):
    """Every message `after` is caused, in its trace, by an earlier message `before`, or is one itself.

    Without a message `after` the check fails.
    """

    before: Message
    after: Message


class Trace(Check, frozen=True, kw_only=True, tag="trace"):
    """The trace of a step, of every step without `of`; at least one of the other keys.

    `single_trace`: every message is in the trace of the step that caused it: no agent begins one of its own,
    with `of` none while it has a message of that step in hand.
    `through`: agents that the trace of the step comes to, in this order.
    """

    of: Name | None = None
    single_trace: Literal[True] | UnsetType = UNSET
    through: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET


class Converges(Check, frozen=True, kw_only=True, tag="converges"):
    """All agents of a population come to have the same value, soon enough after a fault has ended.

    It is looked at at every sample, and at the end. Agents that do not run then are left out; two must.
    `field` is one of the state: `state.version`. `after` is `ID.healed` of a fault, else the begin.
    """

    of: Name
    field: Expression
    after: Name | None = None
    within: Duration


class Linearizable(Check, frozen=True, kw_only=True, tag="linearizable"):
    """The agents of `of` are one register: an order of all its reads and writes explains their answers.

    An operation takes effect between its request and its answer; without an answer it may have happened or
    not, at any later time. `read`, `write` and `compare_and_set` are actions. Besides `key`, the name of an
    argument, `write` takes the new value, `compare_and_set` the one expected and the new one; it returns
    whether it has set it. Each key is a register of its own. `initial` is the value before the first write.
    """

    of: Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
    read: Name
    write: Name
    compare_and_set: Name | None = None
    key: Name | None = None
    initial: Any = None


class Compare(Check, frozen=True, kw_only=True, tag="compare"):
    """A check of how a number of the run, the seeds' median, changes along a key of the matrix or sweep.

    `metric` is `CHECK.time` of an `eventually` check, `SERIES.last`, `.min`, `.max` or `.mean`, or
    `STEP.max` or `.p99` (p50, p90, p95) of the latencies of a step. Keys other than `across` are held fixed,
    and each of their combinations must show the trend. Each number must be beyond the one before; with a
    `tolerance`, in the unit of the metric, it may fall back by as much, if the last is beyond the first.
    `constant`: no two are further apart than `tolerance`.
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
    """Calls of a tool with arguments that `match`. `failed`: those that had an error, instead of a result.

    Without a bound it is to be called at least once.
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
    """The tools that models have called, for each run of a step, or for an agent that asks them, or a model.

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
    """The requests to models: for each run of a step, or in all by an agent, or from a model.

    `calls` are requests to models, `tools` the calls of tools that they have asked for; tokens are as the
    provider has counted them.
    """

    of: Name
    tokens: CountBounds | None = None
    input_tokens: CountBounds | None = None
    output_tokens: CountBounds | None = None
    calls: CountBounds | None = None
    tools: CountBounds | None = None


Words: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1)]


class Answer(Check, frozen=True, kw_only=True, tag="answer"):
    """The answers of all runs of a step; of a stream, its texts together.

    `schema` is a JSON Schema, for an answer that is a text for the JSON in it. `words` all stand in its text,
    `any_of` one of them, `without` none, in whatever case. `match` looks into it.
    """

    of: Name
    schema: Data | UnsetType = UNSET
    words: Words | UnsetType = UNSET
    any_of: Words | UnsetType = UNSET
    without: Words | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}


class NoSecrets(Check, frozen=True, kw_only=True, tag="secrets"):
    """No secret stands in what steps were answered, or in what models were asked.

    Secret are the values of fields and inputs that are declared so, what `args` refer to (`env:NAME`,
    `file:PATH`), and what `values` do.
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
    """A number measured again and again: `expr` of every agent of `of`, taken together by `agg`.

    `fraction` and `count` are of the agents for which it is true; `rate` is how the sum grows in a second.
    Percentiles are by nearest rank over the agents, however few. One that does not run is left out where the
    formula speaks of its state. There is no value where none is left, or the formula cannot be computed.
    """

    agg: Aggregate
    of: Name
    expr: Expression


class Measure(Closed, frozen=True, kw_only=True):
    """The measured series, and how often they are sampled."""

    every: Duration
    series: Annotated[dict[str, Series], Meta(min_length=1)]
