"""Scope of a step: the earlier steps, saved values and subscriptions that it may refer to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.files import did_you_mean
from lmos_actors.system import all_steps
from lmos_actors.system.values import ANYTHING

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames
    from lmos_actors.system.values import Schema

_SAVED: Final = re.compile(r"\$\(saved\.([\w-]+)\)")


class BrokenStep:
    """Placeholder for a step with mistakes, so that references to the step are not reported as well."""


@attrs.define
class StepScope:
    """The scope of a step. It leaves out the steps of other parallel branches.

    `saved` has the schemas of saved values. `run_counts` has the maximum number of runs of each step so far.
    `subscribed` has the agents subscribed to, by subscriber and event.
    """

    ids: dict[str, Any] = attrs.Factory(dict[str, Any])
    run_counts: dict[str, int] = attrs.Factory(dict[str, int])
    saved: dict[str, Schema] = attrs.Factory(dict[str, Any])
    subscribed: dict[tuple[str, str], list[str]] = attrs.Factory(dict[tuple[str, str], list[str]])

    def branch(self) -> StepScope:
        return StepScope(dict(self.ids), dict(self.run_counts), dict(self.saved), dict(self.subscribed))

    def join(self, other: StepScope) -> None:
        self.ids.update(other.ids)
        self.run_counts.update(other.run_counts)
        self.saved.update(other.saved)
        self.subscribed.update(other.subscribed)

    def step(self, names: CellNames, name: str, path: DataPath, kinds: Any, called: str) -> Any:
        """Return the earlier step with an id; report an id that is unknown, or of a step of another kind.

        Return None if the step is not of one of `kinds`.
        """
        found = self.ids.get(name)
        if name not in self.ids:
            steps = all_steps(names.cell.data.get("steps"))
            is_there = any(step.get("id") == name for step in steps)
            hint = ", it comes later or beside this one" if is_there else ""
            names.report(path, f'no earlier step "{name}"{hint or did_you_mean(name, list(self.ids))}')
        elif not isinstance(found, (*kinds, BrokenStep)):
            names.report(path, f'"{name}" is not {called}')
        return found if isinstance(found, kinds) else None

    def schema_of(self, value: Any) -> Schema:
        """Return the schema of the saved value that a text `$(saved.NAME)` refers to.

        For any other value, return the schema that allows anything.
        """
        found = _SAVED.fullmatch(value) if isinstance(value, str) else None
        return ANYTHING if found is None else self.saved.get(found[1], ANYTHING)
