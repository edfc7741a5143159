"""The work of `approvals`: what agents of a node ask people, and the answers to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import attrs

from lmos_actors.errors import LmosActorsError

from .._answers import OutputLine
from ._session import OK

if TYPE_CHECKING:
    from ._session import RemoteSession

PLACE: Final = "/agents/approvals"


def place_of(url: str) -> str:
    """Return the URL of the agent `approvals`, of its own URL or that of its node."""
    if "://" not in url:  # a file, or a mistake that is named later
        return url
    parts = urlsplit(url)
    if "/agents/" in parts.path:
        return url
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}{PLACE}"))


@attrs.frozen
class ApprovalList:
    """Lists what waits for a decision, or also what has been decided."""

    all: bool = False

    async def __call__(self, session: RemoteSession) -> int:
        """Print them. Returns the exit code."""
        asked = {"state": "all" if self.all else "waiting"}
        try:
            found = await session.thing.invoke("list", asked)
        except LmosActorsError as error:
            return await session.fail({"action": "list"}, error)
        if not found:
            session.answers.note("nothing waits that this client may decide")
        await session.answers.print(*map(_line, found))
        return OK


@attrs.frozen
class ApprovalDecision:
    """Approves or refuses one."""

    verb: str
    id: str
    note: str = ""

    async def __call__(self, session: RemoteSession) -> int:
        """Decide, and print what is kept. Returns the exit code."""
        given = {"id": self.id, "note": self.note}
        try:
            kept = await session.thing.invoke(self.verb, given)
        except LmosActorsError as error:
            return await session.fail({"action": self.verb}, error)
        await session.answers.print(_line(kept))
        return OK


def _line(approval: dict[str, Any]) -> OutputLine:
    words = [str(approval["text"])]
    if approval["data"] is not None:
        words.append(str(approval["data"]))
    if approval["state"] == "waiting":
        words.append(f"(until {_at(approval['expires'])})")
    else:
        by = f" by {approval['by']}" if approval["by"] else ""
        note = f": {approval['note']}" if approval["note"] else ""
        when = "" if approval["decided"] is None else f", {_at(approval['decided'])}"
        words.append(f"({approval['state']}{by}{when}{note})")
    return OutputLine({"approval": approval}, "  ".join(words), (approval["id"], approval["agent"]))


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
