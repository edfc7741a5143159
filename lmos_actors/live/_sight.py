"""The agents whose inner state a viewer may see: node-wide views hide the inner state of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.bindings import public_name

if TYPE_CHECKING:
    from lmos_actors.security import Admission, Verb

REMEMBERED: Final = 4_096


class Sight:
    """A check whether a viewer has a right over an agent, by path; cached, as views check repeatedly."""

    def __init__(self, admission: Admission, right: Verb = "inspect") -> None:
        self._admission = admission
        self._right: Verb = right
        self._known: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        """Return whether the viewer has the right over the agent at that path."""
        found = self._known.get(path)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[path] = self._admission.allows(public_name(path), self._right)
        return found
