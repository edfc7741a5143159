"""Structs of the steps of a scenario, and of the timeline of a simulation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.files import Duration, Later, Offset
from lmos_actors.system.model import (
    COMMANDS,
    HUB,
    QUESTION,
    USER,
    Closed,
    Condition,
    Count,
    Delay,
    ExpectedError,
    Name,
    Scalar,
    Source,
)

from ._faults import (
    LATER_FAULTS,
    AnyFault,
    Comeback,
    Ends,
    Fault,
    How,
    Nodes,
    Pick,
    ProcessFault,
    ProviderStatus,
    Rate,
    Side,
)

# --- steps


class Step(Closed, frozen=True, kw_only=True, tag_field="do"):
    """The keys of every step. `within` limits its duration; the default limit is the file's `timeout`."""

    id: Name | None = None
    within: Duration | None = None


class Asking(Step, frozen=True, kw_only=True):
    """A step that sends a request to an agent. `as` names the agent whose refs and identity it uses."""

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
    """Observe a property until the end of the scenario, for `expect` steps with `that: reading`.

    The first reading is the present value.
    """

    property: Name


class Subscribe(Asking, frozen=True, kw_only=True, tag="subscribe"):
    """Subscribe to an event until the end of the scenario, for `expect` steps with `that: event`."""

    event: Name


class Invoke(Asking, frozen=True, kw_only=True, tag="invoke"):
    """Invoke an action. The answer is {output: ...}; with `wait: false` the step does not wait for it."""

    action: Name
    input: Any | UnsetType = UNSET
    streams: dict[str, Source] = {}
    save: dict[str, str] = {}
    wait: bool = True


class Stream(Asking, frozen=True, kw_only=True, tag="stream"):
    """Invoke an action with many outputs. The answer is {items: [...]}; the call ends after `take` items."""

    action: Name
    input: Any | UnsetType = UNSET
    streams: dict[str, Source] = {}
    take: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    save: dict[str, str] = {}
    wait: bool = True


class Tell(Asking, frozen=True, kw_only=True, tag="tell"):
    """Invoke an action without an answer."""

    action: Name
    input: Any | UnsetType = UNSET


class Say(Step, frozen=True, kw_only=True, tag="say"):
    """Send a message on the hub, as `user`; a message to `relay` is a command.

    A question or command waits for its answer, a message {id, sender, to, type, payload, ref}. For any other
    message the answer is the hub's receipt. With `wait: false` the step does not wait. `deadline` and
    `quorum` belong to a proposal.
    """

    payload: Any | UnsetType = UNSET
    type: Name | None = None
    to: Name | tuple[Name, ...] = "*"
    ref: str | None = None
    deadline: Duration | None = None
    quorum: Annotated[int, Meta(ge=1)] | None = None
    members: dict[str, Any] = {}
    error: ExpectedError | None = None
    save: dict[str, str] = {}
    wait: bool = True


class Query(Step, frozen=True, kw_only=True, tag="query"):
    """Query the status of an invocation in progress. The answer is {status: ...}."""

    of: Name
    save: dict[str, str] = {}


class Cancel(Step, frozen=True, kw_only=True, tag="cancel"):
    """Cancel an invocation in progress; it ends in the error ActionCancelled."""

    of: Name
    reason: str = ""


class Stop(Step, frozen=True, kw_only=True, tag="stop"):
    """Stop an agent through its supervisor; it stays stopped until a `start`."""

    target: Name


class Start(Step, frozen=True, kw_only=True, tag="start"):
    """Start an agent again after it has been stopped or has ended."""

    target: Name


class Deciding(Step, frozen=True, kw_only=True):
    """A step that waits for an agent to request an approval, and decides the oldest request.

    With `key`, it decides the request with that key.
    """

    target: Name
    key: str | None = None
    note: str = ""


class Approve(Deciding, frozen=True, kw_only=True, tag="approve"):
    """Approve a request that an agent makes to people."""


class Refuse(Deciding, frozen=True, kw_only=True, tag="refuse"):
    """Refuse a request that an agent makes to people.

    With `by: deadline`, the step waits until the request has expired.
    """

    by: Literal["person", "deadline"] = "person"


class Inject(Step, frozen=True, kw_only=True, tag="inject"):
    """Inject a fault. A crash is done once the supervisor has carried out or given up its restart plan.

    A crash with `restart` is done once the agent is down. Other faults are done at once; they end by
    themselves, at the instant that checks can use as `ID.healed`.
    """

    fault: Fault
    wait: bool = True


class Heal(Step, frozen=True, kw_only=True, tag="heal"):
    """End a fault of the network that lasts until it is healed."""

    of: Name


class Until(Closed, frozen=True, kw_only=True):
    """The state of an agent that a step waits for."""

    agent: Name
    is_: Literal["running", "restarting", "stopped", "connected"] = field(name="is")


class Wait(Step, frozen=True, kw_only=True, tag="wait"):
    """Wait for a condition or for a time; exactly one of the two must be given."""

    until: Until | None = None
    for_: Duration | None = field(name="for", default=None)


class Repeat(Step, frozen=True, kw_only=True, tag="repeat"):
    """Do steps several times, one round after the other. `every` is the time between the starts of rounds."""

    times: Annotated[int, Meta(ge=1)]
    every: Duration | None = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1)]


class Parallel(Step, frozen=True, kw_only=True, tag="parallel"):
    """Do several branches at the same time; the step is done when all branches are done."""

    branches: Annotated[tuple[Branch, ...], Meta(min_length=2)]


class Expect(Closed, frozen=True, kw_only=True, tag_field="do", tag="expect"):
    """Judge what has happened in the run so far. `EXPECT_KEYS` lists the keys for each `that`."""

    equals: Any | UnsetType = UNSET
    contains: Any | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}
    ge: float | UnsetType = UNSET
    le: float | UnsetType = UNSET
    id: Name | None = None
    within: Duration | None = None
    that: Annotated[
        Literal["value", "output", "status", "items", "reading", "event", "heard"], Later("trace", "log")
    ]
    of: Any | UnsetType = UNSET
    target: Name | None = None
    event: Name | None = None
    sequence: tuple[Any, ...] | UnsetType = UNSET
    times: Count | UnsetType = UNSET


AnyStep: TypeAlias = Annotated[
    Read
    | Write
    | Observe
    | Subscribe
    | Invoke
    | Stream
    | Tell
    | Say
    | Query
    | Cancel
    | Stop
    | Start
    | Approve
    | Refuse
    | Inject
    | Heal
    | Wait
    | Repeat
    | Parallel
    | Expect,
    Later("restart", "fault", "partition", "chat"),
]

Branch: TypeAlias = Annotated[tuple[AnyStep, ...], Meta(min_length=1)]

_ONE = frozenset({"equals", "contains", "match", "ge", "le"})
_MANY = _ONE | {"sequence", "times"}

EXPECT_KEYS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "value": (frozenset({"of"}), _ONE),
    "output": (frozenset({"of"}), _ONE),
    "status": (frozenset({"of"}), frozenset({"equals", "sequence"})),
    "items": (frozenset({"of"}), _MANY),
    "reading": (frozenset({"of"}), _MANY),
    "event": (frozenset({"target", "event"}), _MANY),
    "heard": (frozenset(), _MANY),
}
"""For each `that`: the keys it needs, and the keys of which it needs at least one."""

STATUSES = ("pending", "in progress", "completed", "failed")
"""The words of an invocation's status: what `expect that: status` may name."""

# --- the timeline of a simulation


class Timed(Closed, frozen=True, kw_only=True, tag_field="do"):
    """The keys of every timeline entry. An entry happens at the instant `at`; nothing waits for its end."""

    at: Duration
    id: Name | None = None


class TimedAsking(Timed, frozen=True, kw_only=True):
    """An entry that sends a request to an agent as the user.

    An error fails the run unless `error` expects it.
    """

    target: Name
    error: ExpectedError | None = None


class TellAt(TimedAsking, frozen=True, kw_only=True, tag="tell"):
    """Invoke an action without an answer."""

    action: Name
    input: Any | UnsetType = UNSET


class InvokeAt(TimedAsking, frozen=True, kw_only=True, tag="invoke"):
    """Invoke an action; its answer must come before the end of the run."""

    action: Name
    input: Any | UnsetType = UNSET


class WriteAt(TimedAsking, frozen=True, kw_only=True, tag="write"):
    """Write a property."""

    property: Name
    value: Any


class SayAt(Timed, frozen=True, kw_only=True, tag="say"):
    """Send a message on the hub, as `user`. Any answer must arrive before the end of the run."""

    payload: Any | UnsetType = UNSET
    type: Name | None = None
    to: Name | tuple[Name, ...] = "*"
    ref: str | None = None
    deadline: Duration | None = None
    quorum: Annotated[int, Meta(ge=1)] | None = None
    members: dict[str, Any] = {}
    error: ExpectedError | None = None


Saying: TypeAlias = Say | SayAt


def targets_of(step: Saying) -> tuple[str, ...]:
    """Return the names to which a message is sent."""
    return (step.to,) if isinstance(step.to, str) else step.to


def is_command(step: Saying) -> bool:
    """Return whether the message is a command, which the hub itself answers."""
    return HUB in targets_of(step) and step.type in COMMANDS


def is_answered(step: Saying) -> bool:
    """Return whether the message has an answer to wait for."""
    return step.type == QUESTION or is_command(step)


class DecidingAt(Timed, frozen=True, kw_only=True):
    """An entry that decides the oldest approval an agent has requested, as soon as there is one.

    With `key`, it decides the request with that key.
    """

    target: Name
    key: str | None = None
    note: str = ""


class ApproveAt(DecidingAt, frozen=True, kw_only=True, tag="approve"):
    """Approve a request that an agent makes to people."""


class RefuseAt(DecidingAt, frozen=True, kw_only=True, tag="refuse"):
    """Refuse a request that an agent makes to people.

    With `by: deadline`, the entry waits until the request has expired.
    """

    by: Literal["person", "deadline"] = "person"


Decision: TypeAlias = Deciding | DecidingAt


class FaultAt(Timed, frozen=True, kw_only=True, tag="fault"):
    """A fault whose keys are in the entry itself. `FAULT_KEYS` lists the keys for each `kind`."""

    kind: Annotated[
        Literal[
            "crash", "slow", "pause", "clock_skew", "provider", "restart", "full_disk", "slow_disk",
            "partition", "latency", "loss", "disconnect", "swizzle",
        ],
        Later(*LATER_FAULTS),
    ]  # fmt: skip
    target: Name | None = None
    pick: Pick | None = None
    with_: Name | UnsetType = field(name="with", default=UNSET)
    restart: Comeback | UnsetType = UNSET
    factor: Annotated[float, Meta(gt=1)] | UnsetType = UNSET
    duration: Duration | UnsetType = UNSET
    writes: Literal["kept", "lost", "torn"] | UnsetType = UNSET
    down: Duration | UnsetType = UNSET
    sides: tuple[Side, ...] | UnsetType = UNSET
    one_way: bool | UnsetType = UNSET
    between: Ends | UnsetType = UNSET
    delay: Delay | UnsetType = UNSET
    share: Annotated[float, Meta(gt=0, lt=1)] | UnsetType = UNSET
    how: How | UnsetType = UNSET
    of: Nodes | UnsetType = UNSET
    every: Duration | UnsetType = UNSET
    skew: Offset | UnsetType = UNSET
    rate: Rate | UnsetType = UNSET
    status: ProviderStatus | UnsetType = UNSET


FAULT_KEYS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "crash": (frozenset(), frozenset({"with", "restart"})),
    "slow": (frozenset({"factor", "duration"}), frozenset()),
    "pause": (frozenset({"duration"}), frozenset()),
    "clock_skew": (frozenset({"duration"}), frozenset({"skew", "rate"})),
    "provider": (frozenset({"status", "duration"}), frozenset({"delay"})),
    "restart": (frozenset(), frozenset({"of", "writes", "down"})),
    "full_disk": (frozenset({"duration"}), frozenset()),
    "slow_disk": (frozenset({"factor", "duration"}), frozenset()),
    "partition": (frozenset({"sides"}), frozenset({"one_way", "duration"})),
    "latency": (frozenset({"delay"}), frozenset({"between", "duration"})),
    "loss": (frozenset({"share"}), frozenset({"between", "duration"})),
    "disconnect": (frozenset(), frozenset({"how", "between", "duration"})),
    "swizzle": (frozenset({"of", "every", "duration"}), frozenset()),
}
"""For each kind of fault in a timeline: the keys it needs, and the keys it may have besides."""

OF_NODE = ("restart", "full_disk", "slow_disk")
"""The kinds of faults that strike the node as a whole and have no target."""

OF_PROCESSES = ("stop", "cont")
"""The kinds of faults that only real processes have."""

OF_NETWORK = ("partition", "latency", "loss", "disconnect", "swizzle")
"""The kinds of faults that strike links between nodes and have no target."""


def kind_of_fault(fault: AnyFault | ProcessFault | FaultAt) -> str:
    """Return the kind of a fault in a step or a timeline."""
    return fault.kind if isinstance(fault, FaultAt) else str(fault.__struct_config__.tag)


class HealAt(Timed, frozen=True, kw_only=True, tag="heal"):
    """End a fault of the network that lasts until it is healed."""

    of: Name


TimelineEntry: TypeAlias = TellAt | InvokeAt | WriteAt | SayAt | ApproveAt | RefuseAt | FaultAt | HealAt
