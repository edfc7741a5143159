"""The work of `approvals`: what agents of a node ask people, and the answers to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import attrs

from lmos_actors.errors import ConfigError, LmosActorsError

from .._answers import OutputLine
from .._inputs import Written
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


def answer_in(text: str | None) -> dict[str, Any] | None:
    """Return the answer of a command line. Raises ConfigError."""
    if text is None:
        return None
    found = Written("--answer", text).value({"type": "object"})
    if not isinstance(found, dict):
        raise ConfigError("""is an object, such as '{"name": "Ann"}'""", "--answer")
    return cast("dict[str, Any]", found)


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
    answer: dict[str, Any] | None = None

    async def __call__(self, session: RemoteSession) -> int:
        """Decide, and print what is kept. Returns the exit code."""
        given: dict[str, Any] = {"id": self.id, "note": self.note}
        if self.answer is not None:
            given["answer"] = self.answer
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
    if approval.get("answer"):
        words.append(f"answer: {approval['answer']}")
    if approval["state"] == "waiting":
        if approval.get("form"):
            words.append(f"answer with: {_fields(approval['form'])}")
        words.append(f"(until {_at(approval['expires'])})")
    else:
        by = f" by {approval['by']}" if approval["by"] else ""
        note = f": {approval['note']}" if approval["note"] else ""
        when = "" if approval["decided"] is None else f", {_at(approval['decided'])}"
        words.append(f"({approval['state']}{by}{when}{note})")
    return OutputLine({"approval": approval}, "  ".join(words), (approval["id"], approval["agent"]))


def _fields(form: dict[str, Any]) -> str:
    """Return the fields of a form in words; those that may be left out in brackets."""
    fields, needed = form.get("properties", {}), form.get("required", ())
    named = ((name, f"{name}: {each.get('type', 'anything')}") for name, each in fields.items())
    return ", ".join(text if name in needed else f"[{text}]" for name, text in named) or "{}"


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
