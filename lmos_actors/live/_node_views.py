"""Views computed by a function each time, such as those made by the node, and the view of approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from lmos_actors.actors import Slot
from lmos_actors.supervision import place_at

from ._merge_patch import without_null

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.supervision import Supervisor

    from ._merge_patch import State
    from ._sight import Sight
    from ._trouble_views import NoArguments

APPROVALS: Final = "approvals"
"""The path of the agent that keeps approvals."""

MOST_APPROVALS: Final = 300
MOST_FORMS: Final = 256 << 10
"""Bytes of the forms of all questions that are shown."""

CHARACTERS: Final = 2_000
"""Characters of the data of one question."""


class MadeView:
    """A view without a state of its own: `make` computes the content from `given`, without blocking."""

    is_busy = False

    def __init__(self, make: Callable[..., State], *given: object) -> None:
        self._make, self._given = make, given

    def content(self) -> State:
        """Return the newly computed state."""
        return self._make(*self._given)


def made_by_node(make: Callable[[], State], _arguments: NoArguments) -> State:
    """Return the state of a view that the node makes."""
    return make()


class ApprovalsArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: how many questions to show; 0 shows only their number."""

    rows: Annotated[int, Meta(ge=0, le=MOST_APPROVALS)] = MOST_APPROVALS


def approvals_state(root: Supervisor, decides: Sight, arguments: ApprovalsArguments) -> State:
    """Return the waiting and the last decided approvals that the viewer may decide.

    `rows` contains the approvals by id. `order` lists the waiting ones before the decided ones, each group
    with the newest first.
    """
    mine = [each for each in reversed(_kept(root)) if decides(each.agent)]
    mine.sort(key=lambda each: each.state != "waiting")
    rows, room = dict[str, "State"](), MOST_FORMS
    for each in mine[: arguments.rows]:
        rows[each.id], taken = _row(each, room)
        room -= taken
    waiting = sum(each.state == "waiting" for each in mine)
    return {"waiting": waiting, "order": list(rows), "rows": rows}


def _row(approval: Any, room: int) -> tuple[State, int]:
    """Return the row of an approval and the size of its form; a form larger than `room` bytes is left out."""
    members = {name: value for name, value in msgspec.structs.asdict(approval).items() if value is not None}
    for name in ("data", "answer"):
        value = members.pop(name, None)
        if value is not None:
            text = msgspec.json.encode(value).decode()
            members[name] = text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"
    form = members.pop("form", None)
    if form is None or approval.state != "waiting":
        return members, 0
    size = len(msgspec.json.encode(form))
    if size > room:
        return {**members, "form_left_out": True}, 0
    return {**members, "form": without_null(form)}, size


def decisions(root: Supervisor) -> list[Any]:
    """Return the approvals that somebody has decided, in no particular order."""
    return [each for each in _kept(root) if each.state in ("approved", "refused")]


def _kept(root: Supervisor) -> tuple[Any, ...]:
    place = place_at(root, APPROVALS)
    agent: Any = place.agent if isinstance(place, Slot) else None
    # no import of its class, which loads the stores
    return agent.kept() if hasattr(agent, "kept") else ()
