"""Parts shared by files of several kinds: variables, worlds, the hub, sources of input streams."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from msgspec import UNSET, Meta, UnsetType, defstruct, field

from lmos_actors.files import Duration, Size

from ._base import Closed

DEPLOYMENT: Final = "deployment/v1"
KINDS: Final = ("scenario/v1", "simulation/v1", DEPLOYMENT)
"""The kinds of files, as in the key `lmos`."""

_SCENARIO, _SIMULATION, _DEPLOYMENT = (defstruct("Kind", [], tag_field="lmos", tag=kind) for kind in KINDS)
AnyKind: Final[Any] = _SCENARIO | _SIMULATION | _DEPLOYMENT
"""A file of any kind, for decoding nothing but the kind."""

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


class Variable(Closed, frozen=True, kw_only=True):
    """A value that the file uses as $(vars.NAME). Without a default the matrix or --set must give it."""

    type: Literal["string", "integer", "number", "boolean", "duration", "size"]
    default: Any | UnsetType = UNSET
    doc: str = ""


class SweepRange(Closed, frozen=True, kw_only=True):
    """The numbers `from`, `from`+`step`, ... up to and including `to`."""

    from_: float = field(name="from")
    to: float
    step: Annotated[float, Meta(gt=0)]


class RateText(str):
    """A number of messages per time: `1000/1m`."""

    __slots__ = ()
    described: ClassVar = "messages in a time, such as 1000/1m"
    pattern: ClassVar = r"^[1-9][0-9]{0,8}/[0-9].*$"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text. Raises ValueError."""
        count, slash, span = text.partition("/")
        if not (slash and count.isascii() and count.isdecimal() and len(count) <= 9 and int(count)):
            raise ValueError(f'"{text}" is not {cls.described}')
        if not Duration.parse(span) > 0:
            raise ValueError(f'"{text}" is not {cls.described}')
        return cls(text)

    @property
    def limit(self) -> tuple[int, float]:
        """The number of messages, and the time in seconds."""
        count, _, span = self.partition("/")
        return int(count), float(Duration.parse(span))


class Relay(Closed, frozen=True, kw_only=True):
    """The hub of the file, run by its node: extensions and limits.

    `weights` has the weights of votes. `rate` limits the messages of one sender per time.
    """

    extensions: tuple[Extension, ...] = ("receipts",)
    weights: dict[str, Annotated[int, Meta(ge=0, le=1 << 30)]] = {}
    rate: RateText | tuple[RateText, ...] | Literal["unlimited"] | UnsetType = UNSET
    broadcasts: Literal["all", "followed"] = "all"
    max_message: Size | UnsetType = UNSET


class Source(Closed, frozen=True, kw_only=True):
    """The source of an input stream: its items, repeated `times`.

    `every` is the time between two items, and `then` what happens after the last one.
    """

    items: tuple[Any, ...] = ()
    times: Annotated[int, Meta(ge=1)] = 1
    every: Duration | None = None
    then: Literal["end", "fail", "wait"] = "end"


def is_real(world: str) -> bool:
    """Return whether a world has real time, so that no two runs are the same."""
    return world in REAL
