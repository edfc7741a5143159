"""The programs played by real agents, on virtual time.

A link to one that does not run is an error at the call here. So a process that traps notes it as the exit
it would be told in Erlang, and any other exits with it, as Erlang's would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import (
    NORMAL,
    SHUTDOWN,
    Agent,
    AgentError,
    ChildSpec,
    Down,
    ExitReason,
    Monitor,
    Ref,
    action,
    simulate,
)
from lmos_actors.actors import slot_of
from lmos_actors.testing import open_test_node, settle

from .programs import Program, Seen, Step

if TYPE_CHECKING:
    from collections.abc import Callable


class Bug(Exception):
    """What a process of a program dies of."""


def reason_of(text: str) -> ExitReason:
    kind, _, detail = text.partition(": ")
    if kind == "normal":
        return NORMAL
    if kind == "shutdown":
        return ExitReason("shutdown", detail) if detail else SHUTDOWN
    return ExitReason("error", error=Bug(text))


def text_of(reason: ExitReason) -> str:
    if reason.detail == "not running":
        return "noproc"
    return str(reason).removeprefix("Bug: ")


class Process(Agent):
    """One that does not trap exits."""

    others: dict[str, Ref[Any]]
    told: list[tuple[str, str, str]] = attrs.field(factory=list)
    monitors: dict[str, Monitor] = attrs.field(factory=dict)

    @action
    def do(self, verb: str, what: str) -> None:
        verbs: dict[str, Callable[[str], None]] = {
            "link": self.do_link,
            "unlink": lambda name: self.unlink(self.others[name]),
            "monitor": self.do_monitor,
            "demonitor": self.do_demonitor,
            "exit": self.do_exit,
        }
        verbs[verb](what)

    def do_link(self, name: str) -> None:
        try:
            self.link(self.others[name])
        except AgentError:
            self.no_process(name)

    def no_process(self, name: str) -> None:
        raise Bug("noproc")

    def do_monitor(self, name: str) -> None:
        self.monitors[name] = self.monitor(self.others[name], self.on_down)

    def do_demonitor(self, name: str) -> None:
        if name in self.monitors:
            self.monitors.pop(name).cancel()

    def do_exit(self, text: str) -> None:
        reason = reason_of(text)
        if isinstance(reason.error, Bug) and text.endswith("8"):
            raise reason.error
        self.stop(reason)

    def on_down(self, down: Down) -> None:
        self.told.append(("down", down.agent, text_of(down.reason)))


class Trapping(Process, trap_exits=True):
    """One that traps exits."""

    def no_process(self, name: str) -> None:
        self.told.append(("exit", name, "noproc"))

    def on_exit(self, down: Down) -> None:
        who = "task" if down.agent.startswith("task ") else down.agent
        self.told.append(("exit", who, text_of(down.reason)))


class _Ends:
    """Sees how each process ends."""

    def __init__(self) -> None:
        self.died: list[tuple[str, str]] = []
        self.reasons: dict[str, ExitReason] = {}

    def push(self, value: Down) -> None:
        self.died.append((value.agent, text_of(value.reason)))
        self.reasons[value.agent] = value.reason

    def gap(self, reason: str, missed: int | None) -> None: ...

    def close(self) -> None: ...


async def _play(program: Program) -> list[Seen]:
    others: dict[str, Ref[Any]] = {}
    ends, seen = _Ends(), list[Seen]()
    async with open_test_node() as node:
        for name, trap in program.traps.items():
            kind = Trapping if trap else Process

            def make(kind: type[Process] = kind) -> Process:
                return kind(others=others)

            others[name] = await node.start_child(ChildSpec(name, make, restart="temporary"))
            slot_of(others[name]).sinks().add("down", ends)
        for step in program.steps:
            await _carry_out(step, others)
            await settle()
            died, ends.died = sorted(ends.died), []
            seen.append(Seen(died, sorted(_told(others))))
        assert all(adds_up(ref) for ref in others.values())
    return seen


async def _carry_out(step: Step, others: dict[str, Ref[Any]]) -> None:
    ref = others[step.who]
    if slot_of(ref).agent is None:
        return
    if step.verb == "task":
        try:
            await _task(ref, step.what)
        except Bug:
            return
    else:
        ref.tell_nowait(Process.do, step.verb, step.what)


async def _task(ref: Ref[Any], reason: str) -> None:
    with trio.CancelScope() as scope:
        async with ref.link():
            error = reason_of(reason).error
            if error is not None:
                raise error
            scope.cancel()
            await trio.sleep_forever()


def _told(others: dict[str, Ref[Any]]) -> list[tuple[str, tuple[str, str, str]]]:
    told: list[tuple[str, tuple[str, str, str]]] = []
    for name, ref in others.items():
        agent: Any = slot_of(ref).agent
        if agent is not None:
            told += [(name, message) for message in agent.told]
            agent.told.clear()
    return told


def adds_up(ref: Ref[Any]) -> bool:
    n = ref.statistics()
    parts = n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
    return n.accepted == parts


def play(program: Program) -> list[Seen]:
    """Play a program with agents."""
    return simulate(_play, program)
