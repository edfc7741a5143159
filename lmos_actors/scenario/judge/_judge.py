"""The base class of all judges: their view of a run, the records they get, and their results."""

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
"""Maximum number of agents that a result names."""

_LONGEST: Final = 60

Slot: TypeAlias = Any
"""A place in the tree, as `slot_of(ref)` returns it."""


class View(Protocol):
    """A run as its judges see it. Names come from the file: agents and populations, or `*` for all."""

    @property
    def fields(self) -> Callable[[Any], Mapping[str, tuple[str, bool]]] | None:
        """The function that returns the attribute and secrecy of each field of a class.

        It is None if slots are not the runtime's.
        """
        ...

    def now(self) -> float:
        """Return the virtual time, in seconds since the run began."""
        ...

    def network_count(self, what: str) -> int:
        """Return how often an event such as `lost`, `doubled` or `late` happened in the file's network."""
        ...

    def cuts(self) -> Sequence[Any]:
        """Return the cuts of the file's network that are in force, as `Cut` objects."""
        ...

    def agent(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return the slot at a path (None before its first start) and its names: `peer/3`, `peer`.

        Return None for a path that is not in the file.
        """
        ...

    def path(self, of: str) -> str | None:
        """Return the path of the agent with a name; None if several agents have it, or it is unknown."""
        ...

    def slots(self, of: str) -> Sequence[Slot]:
        """Return the present slots with a name; for a supervisor's name, the slots below the supervisor."""
        ...

    def size(self, of: str) -> int:
        """Return the number of agents with a name once all have been started."""
        ...

    def state(self, slot: Slot) -> Mapping[str, Any] | None:
        """Return the state of an agent, as `state_of` does; None while the agent does not run."""
        ...

    def faults_active(self) -> bool:
        """Return whether a fault is in force."""
        ...

    def fault_healed(self, id: str) -> float | None:
        """Return the instant when a fault ended; None if it is still in force or yet to come."""
        ...

    def latencies(self, step: str) -> Sequence[float]:
        """Return the durations of the runs of a step, in seconds."""
        ...

    def supervisor_restarts(self, name: str) -> int | None:
        """Return how often a supervisor was restarted; None if no supervisor has that name."""
        ...

    def messages_of(self, step: str | None) -> Sequence[int]:
        """Return the numbers (`id` in the log) of the messages sent by `step`, or by all steps if None."""
        ...

    def answers(self, step: str | None) -> Sequence[StepAnswer]:
        """Return the answers to the runs of a step that a check judges, or of all if `step` is None."""
        ...

    def secrets(self, values: Sequence[str]) -> Mapping[str, str]:
        """Return the secrets of the run by the names of their sources, including those named in `values`."""
        ...


@attrs.frozen
class StepAnswer:
    """The answer to one run of a step: its value, or the text of its error."""

    step: str
    value: Any = None
    error: str | None = None
    hidden: bool = False
    """True if the answer is declared as secret: results do not show it."""


class AgentDirectory:
    """A cache of agents by path: the results of `View.agent`, kept once a path has a slot."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[str, tuple[Slot | None, tuple[str, ...]] | None] = {}

    def find(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return the slot and the names of an agent; None for a path that is not in the file."""
        try:
            return self._known[path]
        except KeyError:
            found = self._view.agent(path)
            if found is None or found[0] is not None:
                self._known[path] = found
            return found

    def forget(self) -> None:
        """Remove all slots from the cache, because the slots of another node replace them."""
        self._known.clear()

    def is_called(self, path: str, name: str) -> bool:
        """Return whether the agent at a path has the given name; the path of `user` is `user`."""
        if name in (path, ALL_AGENTS):
            return True
        found = self.find(path)
        return found is not None and name in found[1]


def instant(seconds: float) -> str:
    """Return an instant or duration as text."""
    return f"{round(seconds, 6):.12g} s"


@attrs.define
class Offenders:
    """Agents that broke a rule: the time and reason for the first, and the number of all."""

    at: float | None = None
    words: str = ""
    paths: dict[str, None] = attrs.Factory(dict[str, None])

    def add(self, path: str, words: str, now: float) -> None:
        """Add one more agent; `words` describes the broken rule."""
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
    """Return the number of agents and the paths of the first ones, as text."""
    more = ", ..." if len(paths) > NAMED else ""
    what = "agent" if len(paths) == 1 else "agents"
    return f"{len(paths)} {what}: {', '.join(paths[:NAMED])}{more}"


class Judge(ABC):
    """The judge of one check.

    `records` has the kinds of records that it gets. `met_at` is the instant when the check was met.
    `formula_names` has the names in the formula of the check, if there is one.
    """

    records: Sequence[str] = ()
    late: ClassVar[bool] = False
    """True if the judge also gets records after `judge_final_state`."""

    def __init__(self, check: AnyCheck, name: str, place: str) -> None:
        self.check = check
        self.name = name
        self.place = place
        self.met_at: float | None = None
        self.formula_names: Collection[str] = ()

    def paths(self) -> frozenset[str] | None:
        """Return the paths of the only agents whose records this judge may need; None if they are unknown."""
        return None

    def concerns(self, path: str) -> bool | None:
        """Return whether the judge needs records of the agent at a path; None if that is not known yet."""
        return True

    # A judge takes records, samples, or both; it ignores the others.

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:  # noqa: B027
        """Judge one record, within the scheduler step that made it."""

    def sample(self, now: float) -> None:  # noqa: B027
        """Judge the state at the time of a sample."""

    def node_ends(self, slots: Collection[Slot] | None = None) -> None:  # noqa: B027
        """Note the counts of the agents in `slots`, or of the whole node, just before they are killed."""

    def agents_are_back(self, slots: Collection[Slot]) -> None:  # noqa: B027
        """Note that agents that were killed with their node of the network have restarted."""

    def judge_final_state(self, now: float) -> None:  # noqa: B027
        """Judge the state once more, before the agents are stopped."""

    @property
    def so_far(self) -> bool | None:
        """True once the check has been met, False once it has been broken, None while both are possible."""
        return True if self.met_at is not None else None

    @abstractmethod
    def result(self) -> CheckResult:
        """Return the result, after the end of the run."""

    def verdict(self, ok: bool, expected: str, saw: str, at: float | None = None) -> CheckResult:
        """Make the result of the check."""
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
    """Return the word that a file has after `check:` for this kind of check."""
    return str(check.__struct_config__.tag)


def name_of(check: AnyCheck) -> str:
    """Return the name of a check: the name in the file, or else one made from its subject."""
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
