"""The views `waiting`, `dead letters` and `crashes`: what a node's agents wait for, and what went wrong."""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from lmos_actors.actors import waiting_graph

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime, Waiting

    from ._crash_text import CrashRows
    from ._merge_patch import State
    from ._sight import Sight

EDGES: Final = 300
CIRCLES: Final = 20
LETTERS: Final = 200
REPORTS: Final = 100
WHOLE: Final = 10
"""Crash reports that are shown whole at once."""
HIDDEN_LETTER: Final = {"message": "***", "reason": "***", "hidden": True}
SECONDS: Final = 0.005
"""Seconds that rendering crash reports takes in one step."""
CHARACTERS: Final = 500
"""Characters of the reason of a dead letter."""


class NoArguments(Struct, forbid_unknown_fields=True):
    """The arguments of a view that takes none."""


def waiting_state(rt: Runtime, _arguments: NoArguments) -> State:
    """Return the waits between runs, tasks and agents, and the circles of waits that nothing can end.

    The waits in circles come first. Agents at rest wait for nothing and are not visited, as there may be very
    many.
    """
    graph = waiting_graph(rt.tally.settle(len(rt.tally.untallied)), rt)
    return {
        "total": len(graph.edges),
        "edges": [_edge(each) for each in graph.edges[:EDGES]],
        "circles": [[_edge(each) for each in circle[:EDGES]] for circle in graph.cycles()[:CIRCLES]],
    }


def _edge(wait: Waiting) -> State:
    members = {
        "waiter": wait.waiter,
        "target": wait.target,
        "kind": wait.kind,
        "affordance": wait.affordance or None,
        "run": wait.run,
        "why": wait.why or None,
        "task": wait.own_task or None,
        "text": str(wait),
    }
    return {name: value for name, value in members.items() if value is not None}


def dead_letters_state(rt: Runtime, sees: Sight, _arguments: NoArguments) -> State:
    """Return the last dead letters by number, the newest first, and the number of all so far.

    Messages and reasons of agents that the viewer may not see are hidden.
    """
    newest = enumerate(islice(reversed(rt.dead_letters), LETTERS))
    rows = {
        str(rt.dead_letter_count - place): {
            "time": letter.time,
            "agent": letter.agent,
            "affordance": letter.affordance[:CHARACTERS],
            **(
                {"message": letter.message, "reason": letter.reason[:CHARACTERS]}
                if sees(letter.agent)
                else HIDDEN_LETTER
            ),
            **({} if letter.sender is None else {"from": letter.sender}),
        }
        for place, letter in newest
    }
    return {"total": rt.dead_letter_count, "order": list(rows), "rows": rows}


class CrashesArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: the numbers of the reports to show whole."""

    open: Annotated[list[int], Meta(max_length=WHOLE)] = []


class CrashesView:
    """The last crash reports, the newest first, by their numbers."""

    def __init__(self, rt: Runtime, rows: CrashRows, sees: Sight, arguments: CrashesArguments) -> None:
        self._rt = rt
        self._rows = rows
        self._sees = sees
        self._open = arguments.open
        self.is_busy = True
        """Whether reports are still to be rendered."""

    def content(self) -> State:
        """Return the reports that have been rendered so far, and the number of all crashes.

        For agents that the viewer may not see, only the fact of a crash is shown.
        """
        crashes, until = self._rt.crashes, perf_counter() + SECONDS
        rows: dict[str, State] = {}
        self.is_busy = False
        for place, report in enumerate(islice(reversed(crashes.reports), REPORTS)):
            number = crashes.count - place
            if perf_counter() >= until and not self._rows.has(report):
                self.is_busy = True
                break
            row = self._rows.row(report) if number in self._open else self._rows.short(report)
            if not self._sees(report.agent):
                row = {**{name: row[name] for name in ("agent", "class", "life", "time")}, "hidden": True}
            rows[str(number)] = row
        return {"total": crashes.count, "order": list(rows), "rows": rows}
