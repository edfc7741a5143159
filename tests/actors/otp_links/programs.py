"""Programs of links, monitors and exits; what Erlang processes did in them; how the table of both is kept.

A program has two to six processes, some of which trap exits, and steps. A step whose process has died is
left out. What is compared is, after each step, who died of what and who of those alive was told what; in
which order within one step, Erlang does not promise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

TABLE = Path(__file__).with_name("recorded.jsonl")

Verb: TypeAlias = Literal["link", "unlink", "monitor", "demonitor", "exit", "task"]
VERBS: tuple[Verb, ...] = (
    "link",
    "link",
    "link",
    "unlink",
    "monitor",
    "monitor",
    "demonitor",
    "exit",
    "exit",
    "task",
)
REASONS = ("normal", "shutdown", "shutdown: 7", "bug 7", "bug 8")
OF_TASKS = ("shutdown", "bug 7", "bug 8")


class Step(NamedTuple):
    """`link a b`: a links to b. `exit a`: a exits with a reason. `task a`: one linked to a exits so."""

    verb: Verb
    who: str
    what: str


class Program(NamedTuple):
    """Which processes trap exits, by name in order, and what happens."""

    traps: dict[str, bool]
    steps: list[Step]


class Seen(NamedTuple):
    """What one step brought about, each list sorted."""

    died: list[tuple[str, str]]
    told: list[tuple[str, tuple[str, str, str]]]


class Recorded(NamedTuple):
    """A program and what Erlang did."""

    program: Program
    seen: list[Seen]


def random_programs(random: Random) -> Iterator[Program]:
    """Tell programs for ever."""
    while True:
        names = "abcdef"[: random.randint(2, 6)]
        traps = {name: random.random() < 0.35 for name in names}
        yield Program(traps, [_step(random, names) for _ in range(random.randint(4, 16))])


def _step(random: Random, names: str) -> Step:
    verb = random.choice(VERBS)
    if verb == "exit":
        return Step(verb, random.choice(names), random.choice(REASONS))
    if verb == "task":
        return Step(verb, random.choice(names), random.choice(OF_TASKS))
    return Step(verb, random.choice(names), random.choice(names))


def program(traps: str, *steps: str) -> Program:
    """Write a program down: `"aBc"` are three processes of which b traps, a step is `"link a b"`."""
    words = [Step(*text.split(maxsplit=2)) for text in steps]  # type: ignore[arg-type]
    return Program({name.lower(): name.isupper() for name in traps}, words)


CORNERS: dict[str, Program] = {
    f"{reason} to {'one that traps' if trap.isupper() else 'one that does not'}": program(
        f"a{trap}", f"link {first} {second}", f"exit a {reason}", "exit b normal"
    )
    for reason in REASONS
    for trap in "bB"
    for first, second in ("ab", "ba")[:: 1 if trap == "b" else -1][:1]
} | {
    "a chain": program("abcde", *(f"link {x} {y}" for x, y in ("ab", "bc", "cd", "de")), "exit c bug 7"),
    "a ring": program("abcd", *(f"link {x} {y}" for x, y in ("ab", "bc", "cd", "da")), "exit a shutdown: 7"),
    "a trap stops a chain": program("abCde", "link a b", "link b c", "link c d", "link d e", "exit a bug 7"),
    "a trap hears of both sides": program("aBc", "link a b", "link b c", "link a c", "exit a bug 8"),
    "mutual traps": program("AB", "link a b", "exit a bug 7", "link b a", "exit b normal"),
    "normal stops at the first": program("abc", "link a b", "link b c", "exit a normal", "exit b bug 7"),
    "twice linked, once unlinked": program("ab", "link a b", "link b a", "unlink a b", "exit a bug 7"),
    "unlinked by the other": program("aB", "link a b", "unlink b a", "exit a bug 7"),
    "unlinked from nobody": program("ab", "unlink a b", "unlink a a", "link a b", "exit b shutdown"),
    "linked to itself": program("aB", "link a a", "link b b", "exit a bug 7", "exit b bug 8"),
    "linked to the dead": program("abC", "exit b normal", "link c b", "link a b"),
    "a linked one links to the dead": program("abC", "exit b normal", "link a c", "link a b"),
    "linked and monitored": program("aBc", "monitor b a", "monitor c b", "link b a", "exit a bug 7"),
    "monitored twice": program("aB", "monitor b a", "monitor b a", "exit a bug 7"),
    "monitored, then let be": program("aB", "monitor b a", "demonitor b a", "exit a bug 7"),
    "monitored when dead": program("aB", "exit a bug 7", "monitor b a", "demonitor b a", "monitor b a"),
    "monitors itself": program("ab", "monitor a a", "monitor b a", "exit a shutdown: 7"),
    "a monitor does not bind": program("ab", "monitor a b", "exit a bug 7", "exit b bug 7"),
    "a task that fails": program("aBc", "task a bug 7", "task b bug 8", "link b c", "task c shutdown"),
    "a task ends a pair": program("ab", "link a b", "task a shutdown"),
}  # fmt: skip


# ---- the table


def read_table() -> list[Recorded]:
    return [msgspec.json.decode(line, type=Recorded) for line in TABLE.read_bytes().splitlines()]


def write_table(records: Iterable[Recorded]) -> None:
    TABLE.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def to_erlang(program: Program) -> str:
    """Write a program as the term that `record.escript` reads."""
    traps = ",".join("true" if trap else "false" for trap in program.traps.values())
    return f"{{[{traps}],[{','.join(map(_step_to_erlang, program.steps))}]}}.\n"


def _step_to_erlang(step: Step) -> str:
    number = ord(step.who) - ord("a")
    if step.verb in ("exit", "task"):
        return f"{{{step.verb},{number},{_reason_to_erlang(step.what)}}}"
    return f"{{{step.verb},{number},{ord(step.what) - ord('a')}}}"


def _reason_to_erlang(reason: str) -> str:
    kind, _, detail = reason.replace(":", "").partition(" ")
    return f"{{{kind},{detail}}}" if detail else kind


def difference(program: Program, there: list[Seen], here: list[Seen]) -> str:
    """Say where the two differ; empty if they agree."""
    for number, (step, theirs, ours) in enumerate(zip(program.steps, there, here, strict=True)):
        if theirs != ours:
            return f"{program}\nstep {number + 1}, {' '.join(step)}\nErlang: {theirs}\nhere:   {ours}"
    return ""
