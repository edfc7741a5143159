"""Base of all judges: their view of a run, the records they get, and their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import attrs

from lmos_actors.reports import CheckResult
from lmos_actors.system.model import ALL_AGENTS

from ..model import (
    Always,
    Answer,
    AnyCheck,
    Causal,
    Compare,
    Converges,
    Eventually,
    Latency,
    Linearizable,
    Message,
    Never,
    NoSecrets,
    Restarts,
    Spending,
    Statistics,
    Tools,
    Trace,
)

NAMED: Final = 5
"""Most agents that a result names."""

_LONGEST: Final = 60

Slot: TypeAlias = Any
"""A place in the tree, as `slot_of(ref)` returns it."""


class View(Protocol):
    """View of a run for judges. Names are those of the file: of an agent, of a population, or `*`."""

    @property
    def fields(self) -> Callable[[Any], Mapping[str, tuple[str, bool]]] | None:
        """Attribute and secrecy of the fields of a class; None where slots are not the runtime's own."""
        ...

    def now(self) -> float:
        """Return the virtual time, in seconds since the run began."""
        ...

    def network_count(self, what: str) -> int:
        """Return how often the network of the file has done something: `lost`, `doubled`, `late`, ..."""
        ...

    def cuts(self) -> Sequence[Any]:
        """Return the cuts of the network of the file that are in force, each a `Cut`."""
        ...

    def agent(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return the slot at a path, None before its first start, and the names it goes by: `peer/3`, `peer`.

        None for a path that the file does not know.
        """
        ...

    def path(self, of: str) -> str | None:
        """Return the path of the one agent of a name; None for a name of several, or that is not known."""
        ...

    def slots(self, of: str) -> Sequence[Slot]:
        """Return the slots that there are now; of a supervisor's name, those below it."""
        ...

    def size(self, of: str) -> int:
        """Return how many agents there are once all have been started."""
        ...

    def state(self, slot: Slot) -> Mapping[str, Any] | None:
        """Return the state of an agent, as `state_of` does; None while none runs."""
        ...

    def faults_active(self) -> bool:
        """Return whether a fault is in force."""
        ...

    def fault_healed(self, id: str) -> float | None:
        """Return the instant since which a fault is no longer in force, None if it is, or is yet to come."""
        ...

    def latencies(self, step: str) -> Sequence[float]:
        """Return how long the runs of a step took, in seconds."""
        ...

    def supervisor_restarts(self, name: str) -> int | None:
        """Return how often a supervisor was restarted, None if the name is no supervisor's."""
        ...

    def messages_of(self, step: str | None) -> Sequence[int]:
        """Return the numbers (`id` in the log) of the messages that a step has sent; None: all steps."""
        ...

    def answers(self, step: str | None) -> Sequence[StepAnswer]:
        """Return the answers of the runs of a step that a check looks at; None: of all steps."""
        ...

    def secrets(self, values: Sequence[str]) -> Mapping[str, str]:
        """Return the secrets of the run by what they are of, and those that `values` refer to."""
        ...


@attrs.frozen
class StepAnswer:
    """The answer of one run of a step: what it has got, or the text of its error."""

    step: str
    value: Any = None
    error: str | None = None
    hidden: bool = False
    """True if it is declared as secret: results do not show it."""


class AgentDirectory:
    """Agents by path: results of `View.agent`, cached for each path that has its slot."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[str, tuple[Slot | None, tuple[str, ...]] | None] = {}

    def find(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return slot and names; None for a path that the file does not know."""
        try:
            return self._known[path]
        except KeyError:
            found = self._view.agent(path)
            if found is None or found[0] is not None:
                self._known[path] = found
            return found

    def forget(self) -> None:
        """Forget all slots: those of another node stand at their paths."""
        self._known.clear()

    def is_called(self, path: str, name: str) -> bool:
        """Return whether the agent at a path goes by a name; `user` is its own path."""
        if name in (path, ALL_AGENTS):
            return True
        found = self.find(path)
        return found is not None and name in found[1]


def instant(seconds: float) -> str:
    """Return an instant or duration as text."""
    return f"{round(seconds, 6):.12g} s"


@attrs.define
class Offenders:
    """Agents that broke a rule: the first with time and reason, the others counted."""

    at: float | None = None
    words: str = ""
    paths: dict[str, None] = attrs.Factory(dict[str, None])

    def add(self, path: str, words: str, now: float) -> None:
        """Take one more."""
        if self.at is None:
            self.at = now
            self.words = f"{path}: {words}" if path else words
        self.paths[path] = None

    def __bool__(self) -> bool:
        return self.at is not None

    def __str__(self) -> str:
        what = f"at {instant(self.at or 0.0)} {self.words}"
        return what if len(self.paths) < 2 else f"{what}; {listing(list(self.paths))}"


def listing(paths: Sequence[str]) -> str:
    """Name the first of several agents, and how many they are."""
    more = ", ..." if len(paths) > NAMED else ""
    what = "agent" if len(paths) == 1 else "agents"
    return f"{len(paths)} {what}: {', '.join(paths[:NAMED])}{more}"


class Judge(ABC):
    """The judge of one check. `records` are the kinds of records it gets; `met_at` is when it came true.

    `formula_names` are the names in the formula that it evaluates, if it has one.
    """

    records: Sequence[str] = ()
    late: ClassVar[bool] = False
    """True if it gets records after `judge_final_state` too."""

    def __init__(self, check: AnyCheck, name: str, place: str) -> None:
        self.check = check
        self.name = name
        self.place = place
        self.met_at: float | None = None
        self.formula_names: Collection[str] = ()

    def paths(self) -> frozenset[str] | None:
        """Return the paths of the only agents whose records can be for this judge; None: not known."""
        return None

    def concerns(self, path: str) -> bool | None:
        """Return whether records of the agent at a path are for this judge; None: not known yet."""
        return True

    # A judge takes records, samples, or both; the others are nothing to it.

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:  # noqa: B027
        """Take one record, in the step in which it happened."""

    def sample(self, now: float) -> None:  # noqa: B027
        """Judge the state at a sample."""

    def node_ends(self, slots: Collection[Slot] | None = None) -> None:  # noqa: B027
        """Note what the node, which is about to be killed, has counted; or those agents of it, which are."""

    def agents_are_back(self, slots: Collection[Slot]) -> None:  # noqa: B027
        """Note that agents have begun again that were killed with their node of the network."""

    def judge_final_state(self, now: float) -> None:  # noqa: B027
        """Judge the state once more, before the agents are stopped."""

    @property
    def so_far(self) -> bool | None:
        """Whether it has come true, or has been broken, by now; None while it may still be either."""
        return True if self.met_at is not None else None

    @abstractmethod
    def result(self) -> CheckResult:
        """Return the result, after the end of the run."""

    def verdict(self, ok: bool, expected: str, saw: str, at: float | None = None) -> CheckResult:
        """Make the result."""
        return CheckResult(
            name=self.name,
            kind=kind_of(self.check),
            ok=ok,
            expected=expected,
            saw=saw,
            place=self.place,
            at=at,
        )


# --- names of checks


def kind_of(check: AnyCheck) -> str:
    """Return the word that a file has after `check:`."""
    return str(check.__struct_config__.tag)


def name_of(check: AnyCheck) -> str:
    """Return the name of a check: its own, or one made of what it is about."""
    return check.name or f"{kind_of(check)} {_about(check)}".strip()


def _about(check: AnyCheck) -> str:
    if isinstance(check, Never):
        return "dead_letter" if check.when.dead_letter is True else _short(check.when.expr)
    if isinstance(check, (Always, Eventually)):
        return _short(check.expr)
    if isinstance(check, Statistics):
        return f"{check.of} {check.counter}"
    if isinstance(check, (Restarts, Latency, Tools, Spending, Answer)):
        return check.of
    if isinstance(check, NoSecrets):
        return ""
    if isinstance(check, Causal):
        return _message(check.after)
    if isinstance(check, Trace):
        return check.of or ""
    if isinstance(check, Linearizable):
        return check.of if isinstance(check.of, str) else " ".join(check.of)
    if isinstance(check, Converges):
        return f"{check.of} {check.field}"
    assert isinstance(check, Compare)
    return f"{check.metric} across {check.across}"


def _message(message: Message) -> str:
    what = message.action or message.property or message.event or ""
    owner = message.from_ if message.event else message.to
    return ".".join(part for part in (owner, what) if part) or f"from {message.from_}"


def _short(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."


PlaceOf: TypeAlias = Callable[[int], str]
"""Returns the place of a check in the file, by its number."""
