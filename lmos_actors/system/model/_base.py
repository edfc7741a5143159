"""Common parts of the structs of a file: names, plain data, conditions on values, distributions."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from lmos_actors.files import Duration

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Data: TypeAlias = dict[str, Any]
Scalar: TypeAlias = str | int | float | bool | None
Expression: TypeAlias = Annotated[str, Meta(min_length=1)]
"""A formula such as `state.questions <= 3`; reading the file resolves its names."""

USER = "user"
"""The name of the scenario's own consumer, which always exists; no agent can have this name."""

HUB = "relay"
"""The name of the hub, as an agent of a file with `relay` and on the hub itself."""

DIRECTORY = "directory"
"""The name of the agent that is the directory of a network."""

NETWORK = "network"
"""The name of a file's network in the log, for faults of the whole network."""

EVERYBODY = "*"
"""The target of messages to everyone on a hub."""

QUESTION = "question"
"""The type of messages that wait for an answer."""

COMMANDS = ("ping", "subscribe", "unsubscribe", "list_subscriptions", "command", "query")
"""The types of messages to the hub that the hub answers."""

ALL_AGENTS = "*"
"""The name for all agents, where the name of a population is allowed."""


class Closed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of every struct of a file: unknown keys are refused."""


# --- conditions on values


class Condition(Closed, frozen=True, kw_only=True):
    """Conditions on a value; all conditions given must hold. `regex` is searched for, not anchored."""

    eq: Any | UnsetType = UNSET
    ne: Any | UnsetType = UNSET
    ge: float | UnsetType = UNSET
    gt: float | UnsetType = UNSET
    le: float | UnsetType = UNSET
    lt: float | UnsetType = UNSET
    contains: Any | UnsetType = UNSET
    regex: str | UnsetType = UNSET


class ExpectedError(Closed, frozen=True, kw_only=True):
    """The error in which a step must end. `path` is a place in the input, `contains` part of the message."""

    is_: Name = field(name="is")
    path: str | None = None
    contains: str | None = None


# --- numbers left to chance

MOST_VALUES: Final = 10_000
"""Maximum number of values of an empirical distribution."""

Amount: TypeAlias = Duration | float
"""A duration, or a plain number for a value without a unit; a distribution does not mix the two."""


class Constant(Closed, frozen=True, kw_only=True, tag_field="dist", tag="constant"):
    """A constant."""

    value: Amount


class Uniform(Closed, frozen=True, kw_only=True, tag_field="dist", tag="uniform"):
    """A uniform distribution between two values."""

    min: Amount
    max: Amount


class Exponential(Closed, frozen=True, kw_only=True, tag_field="dist", tag="exponential"):
    """The exponential distribution: waiting times between random events, `mean` on average."""

    mean: Amount


class Normal(Closed, frozen=True, kw_only=True, tag_field="dist", tag="normal"):
    """The normal distribution. A duration below zero counts as zero."""

    mean: Amount
    deviation: Amount


class Lognormal(Closed, frozen=True, kw_only=True, tag_field="dist", tag="lognormal"):
    """A distribution with most values near `median`, and a few far above: one in a hundred exceeds `p99`."""

    median: Amount
    p99: Amount


class Empirical(Closed, frozen=True, kw_only=True, tag_field="dist", tag="empirical"):
    """Measured values, all equally likely.

    They are given in `values` or in a `file`; once the file has been read, they are in `values`.
    """

    values: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=MOST_VALUES)] | UnsetType = UNSET
    file: Name | UnsetType = UNSET
    column: Name | UnsetType = UNSET
    unit: Literal["us", "ms", "s", "m", "h"] | UnsetType = UNSET


Distribution: TypeAlias = Constant | Uniform | Exponential | Normal | Lognormal | Empirical
Delay: TypeAlias = Duration | Distribution
"""A time, or a distribution of durations to draw it from."""
