"""The messages between viewers and the node of a live view, as JSON, one in each text frame.

A *look* is one view that a viewer has open, under an id that the viewer chooses. Its state is a JSON object,
initially empty. The node sends changes as a JSON merge patch (RFC 7396), and sends the next patch only after
the viewer has confirmed this one. `docs/reference/live.md` describes the states of all views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from lmos_actors.errors import hint_at

if TYPE_CHECKING:
    from collections.abc import Iterable

SUBPROTOCOL: Final = "lmos-actors-live"
"""The subprotocol of the WebSocket."""

VERSION: Final = 1
"""The version of the messages. A viewer ignores members and kinds that it does not know."""

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]


class Look(Struct, tag_field="type", tag="look"):
    """A request to open a view, or to change the arguments of one that is open."""

    id: Id
    view: Annotated[str, Meta(max_length=64)]
    arguments: dict[str, Any] = {}


class Leave(Struct, tag_field="type", tag="leave"):
    """A request to close a view; it is ignored if the view is not open."""

    id: Id


class Taken(Struct, tag_field="type", tag="taken"):
    """The confirmation that the changes with this number have arrived; the node waits for it."""

    number: int


class Do(Struct, tag_field="type", tag="do"):
    """A request for an operation. A repeated id gets the first answer again, and nothing is done twice."""

    id: Id
    what: Annotated[str, Meta(max_length=64)]
    path: Annotated[str, Meta(max_length=4_096)] = ""
    note: Annotated[str, Meta(max_length=2_000)] = ""
    """A remark that is kept with a decision."""
    answer: str = ""
    """The answer to a form, as JSON text: numbers may have more digits than a browser holds."""


FromViewer: TypeAlias = Look | Leave | Taken | Do


class Hello(Struct, tag_field="type", tag="hello", kw_only=True):
    """The first message from the node: which node it is, and what the viewer may see and do."""

    version: int = VERSION
    kind: str = "node"
    """The kind of server: "node", or "runs" for the runs of a command."""
    software: str
    node: str
    """Its first address."""
    started: float
    """Unix time."""
    viewer: str = ""
    """The name of the viewer, by its credentials."""
    rights: list[str] = []
    """Those of the rights `inspect`, `operate` and `approve` that the viewer has for the whole node."""
    views: list[str] = []
    operations: list[str] = []
    """All operations of the node; the viewer's rights decide which it may use on what."""


class Changes(Struct, tag_field="type", tag="changes"):
    """The changes since the previous message; `time` is in seconds of a monotonic clock."""

    number: int
    time: float
    patches: dict[str, Any]


class Done(Struct, tag_field="type", tag="done"):
    """The answer to a completed operation; `outcome` is a phrase such as "restarted" or "held already"."""

    id: str
    what: str
    path: str
    outcome: str


class Progress(Struct, tag_field="type", tag="progress"):
    """The progress of a long operation, as `text`. The outcome follows in another message."""

    id: str
    what: str
    path: str
    text: str


class Wrong(Struct, tag_field="type", tag="error", omit_defaults=True):
    """The answer to a viewer's message that failed; `id` is the id in that message, if there is one."""

    code: str
    message: str
    id: str = ""


class Refused(Exception):
    """Raised to refuse a viewer's request; code and message are sent to the viewer as a `Wrong`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def unknown(kind: str, name: str, known: Iterable[str]) -> Refused:
    """Return the refusal of an unknown view or operation; it suggests the nearest name, or lists all."""
    names = sorted(known)
    hint = hint_at(name, names) or f"; there are: {', '.join(names)}"
    return Refused("UNKNOWN", f"there is no {kind} {name!r}{hint}")


FromNode: TypeAlias = Hello | Changes | Progress | Done | Wrong
