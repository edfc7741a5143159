"""The views `rights` and `agents`: what a viewer may do at one place, and the agents that it may run."""

from __future__ import annotations

from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from lmos_actors.bindings import is_private, public_name
from lmos_actors.supervision import agents_of

from ._sight import Sight
from ._tree_view import FIND_SECONDS, MOST_ROWS, row_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime, Slot
    from lmos_actors.security import Admission, Verb
    from lmos_actors.supervision import Supervisor

    from ._merge_patch import State
    from ._survey import Survey
    from ._trouble_views import NoArguments

USES: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")
"""The rights of those who use an agent."""


class RightsArguments(Struct, forbid_unknown_fields=True):
    """The agent that the viewer asks about."""

    path: Annotated[str, Meta(max_length=4_096)]


class RightsView:
    """The rights of the viewer over one place, by access lists: its uses over HTTP, operations on it.

    `fitting` returns the operations that make sense at a path, as it stands; `serves` is whether agents are
    used at the address of the page.
    """

    is_busy = False

    def __init__(
        self,
        rt: Runtime,
        fitting: Callable[[str], list[str]],
        serves: bool,
        admission: Admission,
        arguments: RightsArguments,
    ) -> None:
        self._rt = rt
        self._fitting = fitting
        self._serves = serves
        self._admission = admission
        self._path = arguments.path

    def content(self) -> State:
        """Return the public name and the rights; `there` is whether the viewer may use what is there.

        That is an agent or a pool, unless it is private.
        """
        name, allows = public_name(self._path), self._admission.allows
        operations = self._fitting(self._path) if allows(name, "operate") else []
        resolver = self._rt.resolver
        found: Any = None if resolver is None or not self._serves else resolver.at(self._path)
        is_reached = found is not None and not is_private(found)
        may = [right for right in USES if allows(name, right)] if is_reached else []
        return {"name": name, "there": bool(may), "may": may, "operations": operations}


class OwnAgentsView:
    """The agents that a viewer may inspect or operate, for those who do not see the tree.

    They are found as a search is, step by step, as there may be very many agents; and anew when the view is
    opened again.
    """

    def __init__(
        self, root: Supervisor, survey: Survey, admission: Admission, _arguments: NoArguments
    ) -> None:
        self._survey = survey
        self._sights = [Sight(admission, right) for right in ("inspect", "operate")]
        self._rest = agents_of(root)
        self._found: list[Slot] = []
        self.is_busy = True
        """Whether there is more to be searched."""

    def content(self) -> State:
        """Search on, and return the rows; `complete` once all agents have been looked at."""
        until = thread_time() + FIND_SECONDS
        while self.is_busy and thread_time() < until:
            some = list(islice(self._rest, 100))
            self._found += [slot for slot in some if any(sees(slot.path) for sees in self._sights)]
            self.is_busy = bool(some) and len(self._found) < MOST_ROWS
        rows = {slot.path: row_of(slot, self._survey) for slot in self._found[:MOST_ROWS]}
        return {
            "order": list(rows),
            "rows": rows,
            "complete": not self.is_busy and len(self._found) < MOST_ROWS,
        }
