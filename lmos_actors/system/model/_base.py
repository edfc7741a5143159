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
"""A formula such as `state.questions <= 3`; its names are resolved when the file is read."""

USER = "user"
"""The scenario's own consumer; always there, never an agent's name."""

HUB = "relay"
"""The agent that is the hub of a file with `relay`, and its name on itself."""

DIRECTORY = "directory"
"""The agent that is the directory of a network that has one."""

NETWORK = "network"
"""The name of the network of a file in the log, for what happens to all of it."""

EVERYBODY = "*"
"""The target of what is said to all on a hub."""

QUESTION = "question"
"""The type of messages that wait for an answer."""

COMMANDS = ("ping", "subscribe", "unsubscribe", "list_subscriptions", "command", "query")
"""The types of messages to the hub that it answers."""

ALL_AGENTS = "*"
"""The name for all agents, where a population may be named."""


class Closed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every struct of a file: unknown keys are refused."""


# --- what is said about a value


class Condition(Closed, frozen=True, kw_only=True):
    """Conditions on a value; all that are given have to hold. `regex` is searched for, not anchored."""

    eq: Any | UnsetType = UNSET
    ne: Any | UnsetType = UNSET
    ge: float | UnsetType = UNSET
    gt: float | UnsetType = UNSET
    le: float | UnsetType = UNSET
    lt: float | UnsetType = UNSET
    contains: Any | UnsetType = UNSET
    regex: str | UnsetType = UNSET


class ExpectedError(Closed, frozen=True, kw_only=True):
    """The error that a step must end in; `path` is where in the input, `contains` is in the message."""

    is_: Name = field(name="is")
    path: str | None = None
    contains: str | None = None


# --- numbers left to chance

MOST_VALUES: Final = 10_000
"""Most values that an empirical distribution has."""

Amount: TypeAlias = Duration | float
"""A duration, or a plain number where the value has no unit; all of one distribution are of one sort."""


class Constant(Closed, frozen=True, kw_only=True, tag_field="dist", tag="constant"):
    """A constant."""

    value: Amount


class Uniform(Closed, frozen=True, kw_only=True, tag_field="dist", tag="uniform"):
    """A uniform distribution between two values."""

    min: Amount
    max: Amount


class Exponential(Closed, frozen=True, kw_only=True, tag_field="dist", tag="exponential"):
    """Waiting times of what happens at random, `mean` on average."""

    mean: Amount


class Normal(Closed, frozen=True, kw_only=True, tag_field="dist", tag="normal"):
    """The bell curve. A duration below zero counts as zero."""

    mean: Amount
    deviation: Amount


class Lognormal(Closed, frozen=True, kw_only=True, tag_field="dist", tag="lognormal"):
    """A distribution with most values near `median`, and a few far above: one in a hundred exceeds `p99`."""

    median: Amount
    p99: Amount


class Empirical(Closed, frozen=True, kw_only=True, tag_field="dist", tag="empirical"):
    """Values that were measured, each as likely as another.

    They are written out, or those of a `file`; when a file has been read, they are `values`.
    """

    values: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=MOST_VALUES)] | UnsetType = UNSET
    file: Name | UnsetType = UNSET
    column: Name | UnsetType = UNSET
    unit: Literal["us", "ms", "s", "m", "h"] | UnsetType = UNSET


Distribution: TypeAlias = Constant | Uniform | Exponential | Normal | Lognormal | Empirical
Delay: TypeAlias = Duration | Distribution
"""A time, or a distribution of durations to draw it from."""
