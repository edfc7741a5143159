"""Names in formulas: the known names, for validation, and their values during a run.

`state.FIELD` uses the names of `state:`. `mailbox.*` and the counters belong to one agent; `delivered` counts
the messages that have reached it. `network.*` counts events in the network so far, and `series.NAME` is the
last value measured. A check that is met at an instant is true from then on, and `CHECK.time` is that instant
in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .._agent_state import SECRET, fields_known
from ._text import FUNCTIONS, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._columns import Columns
    from ._formulas import Formula
    from ._text import Known

COUNTERS: Final = (
    "depth",
    "size",
    "accepted",
    "handled",
    "cancelled",
    "dropped",
    "dead_lettered",
    "refused",
    "waiting",
    "running",
)
"""Names after `mailbox.` in a formula."""

NETWORK_COUNTS: Final = ("lost", "doubled", "overtaken", "late", "corrupted", "disconnected")
"""Names after `network.` in a formula: counts of what the network of a file has done."""

RESERVED: Final = (
    "state", "mailbox", "network", "series", "delivered", "restarts", *WORDS, *FUNCTIONS,
)  # fmt: skip
"""Names that a check which formulas may use cannot have."""

NEEDS_OF: Final = 'is of an agent: say which with "of"'


def of_agents(names: Iterable[str]) -> bool:
    """Return whether any of the names belongs to a single agent."""
    alone = ("delivered", "restarts")
    return any(name in alone or name.startswith(("state.", "mailbox.")) for name in names)


# --- when a file is read


def known_names(
    classes: Sequence[Any],
    *,
    of: bool,
    series: Iterable[str] = (),
    checks: Iterable[str] = (),
    network: bool = False,
) -> Known:
    """Return the names that a formula may use, for `compile_formula`.

    `classes` has the classes of the agents that the formula is about. If `of` is false, it has the classes
    that an `of` could select. A field is known if all classes have it. `checks` has the names of the checks
    that are met at an instant. `network` is true if the file has a network.
    """
    known: dict[str, str | None] = {}
    fields = [fields_known(cls) for cls in classes]
    for name in dict.fromkeys(name for found in fields for name in found):
        if not of or all(name in found for found in fields):
            secret = any(name in found and found[name][1] for found in fields)
            known[f"state.{name}"] = SECRET if secret else None
    known |= dict.fromkeys([f"mailbox.{name}" for name in COUNTERS])
    known |= {"delivered": None, "restarts": None}
    if not of:
        known = dict.fromkeys(known, NEEDS_OF)
    known |= dict.fromkeys([f"series.{name}" for name in series])
    if network:
        known |= dict.fromkeys([f"network.{name}" for name in NETWORK_COUNTS])
    for name in checks:
        known |= {name: None, f"{name}.time": None}
    return known


# --- while a run goes on


class AgentValues:
    """The values of names for one agent at a time, which `at` selects.

    `extra` returns the values of the other names (series and checks); `delivered` has the counts by path.
    With `columns`, all agents of a population can be read at once.
    """

    def __init__(
        self,
        state: Callable[[Any], Mapping[str, Any] | None],
        delivered: Mapping[str, int],
        extra: Callable[[str], Any],
        columns: Columns | None = None,
    ) -> None:
        self._state = state
        self._delivered = delivered
        self._more = extra
        self._columns = columns
        self._slot: Any = None
        self._fields: Mapping[str, Any] | None = None
        self._queued = 0

    def at(self, slot: Any, *, state: bool = True, queued: int = 0) -> bool:
        """Select a slot; return whether its agent is running, or True if `state` is false.

        `queued` is the number of further messages to count as waiting.
        """
        self._slot = slot
        self._queued = queued
        self._fields = self._state(slot) if state else None
        return self._fields is not None or not state

    def of_all(
        self, formula: Formula, slots: Sequence[Any], *, state: bool
    ) -> tuple[Sequence[Any], list[Any]] | None:
        """Return the slots that have agents, and the value of a formula for each of them.

        If `state` is false, return all slots. None means that the formula has to be computed agent by agent.
        """
        if self._columns is None:
            return None
        there = self._columns.with_agents(slots) if state else slots
        values = self._columns.values(formula, there)
        return None if values is None else (there, values)

    def __call__(self, name: str) -> Any:
        """Return the value of a name. Raises LookupError."""
        if name.startswith("state."):
            if self._fields is None:
                raise LookupError(f"{name}: no agent is there")
            return self._fields[name[6:]]
        if name.startswith("mailbox."):
            return self._counter(name[8:])
        if name == "delivered":
            return self._delivered.get(self._slot.path, 0)
        if name == "restarts":
            return self._slot.restarts
        return self._more(name)

    def _counter(self, name: str) -> int:
        slot = self._slot
        if name in ("depth", "waiting"):
            return int(slot.accepted - slot.begun + self._queued)
        if name == "size":
            return int(slot.mailbox.size)
        if name in ("accepted", "handled"):
            return int(getattr(slot, name) + slot.inline)
        if name == "running":
            return int(slot.statistics().running)
        return int(getattr(slot.extra, name)) if slot.extra is not None else 0


class CheckedNames(Mapping[str, None]):
    """The names for a formula that was checked when its file was read, so that only their form is checked.

    Each name of an agent's value is known if it has the right form.
    """

    _OF_AGENT = re.compile(rf"state\.[^.]+|mailbox\.({'|'.join(COUNTERS)})|delivered|restarts")

    def __init__(self, others: Iterable[str]) -> None:
        self._others = dict.fromkeys(others)

    def __getitem__(self, name: str) -> None:
        if name not in self._others and self._OF_AGENT.fullmatch(name) is None:
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._others)

    def __len__(self) -> int:
        return len(self._others)
