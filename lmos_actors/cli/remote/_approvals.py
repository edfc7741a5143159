"""The execution of `approvals`: the questions that a node's agents ask people, and the answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import attrs

from lmos_actors.errors import ActionFailed, ConfigError, LmosActorsError, NotFound

from .._answers import OutputLine
from .._exit_codes import OK
from .._inputs import Written
from ._session import RemoteAgent, code_of, open_thing, run_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.bindings import ConsumedThing

    from ..options._remote import RemoteOptions
    from ._session import RemoteSession

PLACE: Final = "/agents/approvals"

NOTHING: Final = (
    "nothing waits that this client may decide (it may if a list approve of --security names it; on a node "
    "without --security, if that runs on this machine with --allow-operations)"
)


def place_of(url: str) -> str:
    """Return the URL of the agent `approvals`, from its own URL or its node's."""
    if "://" not in url:  # a file, or a mistake that is named later
        return url
    parts = urlsplit(url)
    if "/agents/" in parts.path:
        return url
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}{PLACE}"))


def run_in_deployment(
    addresses: Mapping[str, str], options: RemoteOptions, what: ApprovalList | ApprovalDecision
) -> int:
    """Send the request to the agent `approvals` of each process of a deployment. Raises ConfigError."""
    agents = {name: RemoteAgent.at(place_of(url), options) for name, url in addresses.items()}
    return run_work(DeploymentApprovals(agents, what), options.answers(), options.within)


def answer_in(text: str | None) -> dict[str, Any] | None:
    """Return the answer that the command line gives. Raises ConfigError."""
    if text is None:
        return None
    found = Written("--answer", text).value({"type": "object"})
    if not isinstance(found, dict):
        raise ConfigError("""must be an object, such as '{"name": "Ann"}'""", "--answer")
    return cast("dict[str, Any]", found)


@attrs.frozen
class ApprovalList:
    """The work of listing the approvals that wait for a decision; with `all`, the decided ones, too."""

    all: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """The input of the action `list`."""
        return {"state": "all" if self.all else "waiting"}

    async def __call__(self, session: RemoteSession) -> int:
        """Print the approvals. Returns the exit code."""
        try:
            found = await session.thing.invoke("list", self.asked)
        except LmosActorsError as error:
            return await session.fail({"action": "list"}, error)
        if not found:
            session.answers.note(NOTHING)
        await session.answers.print(*map(_line, found))
        return OK


@attrs.frozen
class ApprovalDecision:
    """The work of approving or refusing one approval."""

    verb: str
    id: str
    note: str = ""
    answer: dict[str, Any] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The input of the action that decides."""
        answer = {} if self.answer is None else {"answer": self.answer}
        return {"id": self.id, "note": self.note, **answer}

    async def __call__(self, session: RemoteSession) -> int:
        """Send the decision, and print it as the agent has stored it. Returns the exit code."""
        try:
            kept = await session.thing.invoke(self.verb, self.given)
        except LmosActorsError as error:
            return await session.fail({"action": self.verb}, error)
        await session.answers.print(_line(kept))
        return OK


@attrs.frozen
class DeploymentApprovals:
    """The work of listing the waiting approvals of a deployment's processes, or of deciding one of them.

    `agents` has the agent `approvals` of each process by the process's name, such as `front/1`. A process
    without this agent is skipped, since no approvals can wait there.
    """

    agents: Mapping[str, RemoteAgent]
    what: ApprovalList | ApprovalDecision

    async def __call__(self, session: RemoteSession) -> int:
        """Print the list or the decision. Returns the exit code."""
        failure: LmosActorsError | None = None
        found: list[OutputLine] = []
        reached = False
        for process, agent in self.agents.items():
            try:
                async with open_thing(agent) as thing:
                    lines = await self._asked(process, thing)
            except NotFound:
                continue
            except LmosActorsError as error:
                if isinstance(error, ActionFailed) and error.code == "UNKNOWN":
                    failure = error
                    continue
                if isinstance(self.what, ApprovalDecision) and isinstance(error, ActionFailed):
                    return await session.fail({"action": self.what.verb, "process": process}, error)
                session.answers.note(f"{process}: {error}")
                failure = failure or error
                continue
            reached = True
            found += lines
            if isinstance(self.what, ApprovalDecision):
                break
        await session.answers.print(*found)
        if isinstance(self.what, ApprovalDecision) and not reached:
            text = f"no approval {self.what.id[:100]!r} waits for this client; ids are given whole"
            none = ActionFailed(text)
            return await session.fail({"action": self.what.verb}, failure or none)
        if not found:
            session.answers.note(NOTHING)
        return OK if reached or failure is None else code_of(failure)

    async def _asked(self, process: str, thing: ConsumedThing) -> list[OutputLine]:
        if isinstance(self.what, ApprovalList):
            listed = await thing.invoke("list", self.what.asked)
            return [_line(each, process) for each in listed]
        return [_line(await thing.invoke(self.what.verb, self.what.given), process)]


def _line(approval: dict[str, Any], process: str | None = None) -> OutputLine:
    words = [str(approval["text"])]
    if approval["data"] is not None:
        words.append(str(approval["data"]))
    if approval.get("former") is not None:
        words.append(f"instead of {approval['former']}")
    if approval.get("answer"):
        words.append(f"answer: {approval['answer']}")
    if approval["state"] == "waiting":
        if approval.get("form"):
            words.append(f"answer with: {_fields(approval['form'])}")
        idle = "" if approval.get("awaited", True) else ", no call of the agent waits for it now"
        earlier = approval.get("earlier", 0)
        before = f", {earlier} consent{'s' * (earlier > 1)} under this key went before" if earlier else ""
        words.append(f"(until {_at(approval['expires'])}{idle}{before})")
    else:
        by = f" by {approval['by']}" if approval["by"] else ""
        note = f": {approval['note']}" if approval["note"] else ""
        when = "" if approval["decided"] is None else f", {_at(approval['decided'])}"
        words.append(f"({approval['state']}{by}{when}{note}{_left(approval)})")
    head: tuple[str, ...] = (approval["id"], approval["agent"])
    members: dict[str, Any] = {"approval": approval}
    if process is not None:
        head = (approval["id"], process, approval["agent"])
        members["process"] = process
    return OutputLine(members, "  ".join(words), head)


def _left(approval: dict[str, Any]) -> str:
    """Return a remark if a decision is kept because no call waits for it; "" for any other approval."""
    is_kept = approval["state"] in ("approved", "refused") and not approval.get("once")
    if not is_kept or approval.get("awaited", True) or approval.get("handed", "-"):
        return ""
    return "; no call of the agent waits for it: it is kept for the next one"


def _fields(form: dict[str, Any]) -> str:
    """Return the fields of a form as text, with their defaults; optional fields are in brackets."""
    fields, needed = form.get("properties", {}), form.get("required", ())
    named = (
        (name, f"{name}: {each.get('type', 'anything')}{_default(each)}") for name, each in fields.items()
    )
    return ", ".join(text if name in needed else f"[{text}]" for name, text in named) or "{}"


def _default(field: dict[str, Any]) -> str:
    return f" = {field['default']!r}" if "default" in field else ""


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
