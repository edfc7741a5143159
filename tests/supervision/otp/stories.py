"""Stories about supervision trees, told alike to Erlang/OTP and to us, and what is seen of them.

Time is counted in ticks of half a second. Steps happen on whole seconds; a hanging child is killed after
an odd number of ticks, so that in a single stop its end falls between two steps.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lmos_actors.supervision import AutoShutdown, ChildSpec, Restart, Strategy, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICKS_PER_SECOND = 2
TABLE = Path(__file__).with_name("recorded.jsonl")

Reason = Literal["error", "normal", "shutdown", "shutdown_detail"]
Request = Literal["terminate", "restart", "delete"]


class Worker(msgspec.Struct, tag="w", tag_field="k", frozen=True, omit_defaults=True):
    """A child without children. `hang`: it ignores being told to stop. `fails`: which starts fail, from 1."""

    name: str
    restart: Restart = "permanent"
    shutdown: int | Literal["brutal"] = 1  # ticks
    significant: bool = False
    hang: bool = False
    fails: tuple[int, ...] = ()


class Sup(msgspec.Struct, tag="s", tag_field="k", frozen=True, omit_defaults=True):
    """A supervisor; it has all the time it needs to stop. `period` is in whole seconds, as OTP wants it."""

    name: str
    children: tuple[Worker | Sup, ...]
    strategy: Strategy = "one_for_one"
    intensity: int = 1
    period: int = 5
    auto_shutdown: AutoShutdown = "never"
    restart: Restart = "permanent"
    significant: bool = False


class Exit(msgspec.Struct, tag="exit", tag_field="do", frozen=True):
    """Workers of one supervisor end by themselves, in this order, before the supervisor hears of any."""

    at: int
    sup: str
    names: tuple[str, ...]
    reason: Reason


class Call(msgspec.Struct, tag="call", tag_field="do", frozen=True):
    """A request to the supervisor at this path, which may be busy or gone."""

    at: int
    sup: str
    request: Request
    name: str


class Start(msgspec.Struct, tag="start", tag_field="do", frozen=True):
    """`start_child` with this spec."""

    at: int
    sup: str
    child: Worker | Sup


Step = Exit | Call | Start


class Story(msgspec.Struct, frozen=True):
    """A tree, what happens to it, and the tick at which it is looked at and then stopped."""

    tree: Sup
    steps: tuple[Step, ...]
    end: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """One supervisor at the end: its children in start order, and OTP's four counts."""

    path: str
    children: list[tuple[str, str]]
    counts: tuple[int, int, int, int]


class Observed(msgspec.Struct, frozen=True):
    """What is seen from outside.

    `events` in order, each "tick kind path number [reason]": s(tarted), f(ailed to start), e(nded), the
    same in capitals for a supervisor; the number says which start at this path it was, of its kind.
    `answers` to the calls and starts in the order of the steps. `final` from the root down.
    """

    events: list[str]
    answers: list[str]
    final: list[Snapshot]


class Recorded(msgspec.Struct, frozen=True):
    """One line of the table."""

    story: Story
    observed: Observed


def difference(seen_by_otp: Observed, seen_here: Observed) -> str:
    """What differs, for people to read; empty if nothing does."""
    lines: list[str] = []
    for what in ("events", "answers", "final"):
        otp, here = list(map(str, getattr(seen_by_otp, what))), list(map(str, getattr(seen_here, what)))
        changes = difflib.unified_diff(otp, here, f"{what} of OTP", f"{what} here", lineterm="", n=3)
        lines.extend(changes)
    return "\n".join(lines)


def read_table(path: Path = TABLE) -> list[Recorded]:
    decode = msgspec.json.Decoder(Recorded).decode
    return [decode(line) for line in path.read_bytes().splitlines()]


def write_table(records: Iterable[Recorded], path: Path = TABLE) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def to_spec(
    node: Worker | Sup, path: str, factory: Callable[[Worker, str], Callable[[], Any]]
) -> ChildSpec[Any] | SupervisorSpec:
    """Our spec of a node of a story; `factory` gives what makes a worker, from the worker and its path."""
    if isinstance(node, Sup):
        return to_supervisor_spec(node, path, factory)
    return ChildSpec(
        node.name,
        factory(node, path),
        restart=node.restart,
        shutdown="brutal" if node.shutdown == "brutal" else node.shutdown / TICKS_PER_SECOND,
        significant=node.significant,
    )


def to_supervisor_spec(
    node: Sup, path: str, factory: Callable[[Worker, str], Callable[[], Any]]
) -> SupervisorSpec:
    return SupervisorSpec(
        node.name,
        [to_spec(child, f"{path}/{child.name}", factory) for child in node.children],
        strategy=node.strategy,
        max_restarts=node.intensity,
        max_seconds=float(node.period),
        auto_shutdown=node.auto_shutdown,
        restart=node.restart,
        significant=node.significant,
    )


def to_erlang(story: Story) -> str:
    """One term for `file:consult/1`."""
    return f"{_term(msgspec.structs.asdict(story))}.\n"


def _term(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        return f"{{{tag}, {_term(msgspec.structs.asdict(value))}}}"
    if isinstance(value, dict):
        return "#{" + ", ".join(f"'{key}' => {_term(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_term, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f'<<"{value}">>'
