"""Errors of questions on a relay: exceptions become `{"error": {"code", "message"}}`, and are restored.

A relay has unknown agents, so only the code of an exception is sent, and the mistake if the caller made it.
`about` contains what a ref needs to raise the same error as for a near agent. Without `about`, an error is
the agent's own failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
    RateLimited,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Made = Callable[[dict[str, Any], str, str], LmosActorsError]

TOO_LARGE: Final = "too_large"
TOO_MANY_HOPS: Final = "too_many_hops"
FAILED: Final = "failed"

_ABOUT: Final[tuple[tuple[type[LmosActorsError], str, tuple[str, ...]], ...]] = (
    (InvalidInput, "invalid_input", ("path",)),
    (NotFound, "not_found", ("kind", "name", "nearest")),
    (NotAllowed, "not_allowed", ()),
    (Forbidden, "forbidden", ()),
    (RateLimited, "rate_limit", ("retry_in",)),
    (MailboxFull, "busy", ("size",)),
    (AgentUnavailable, "unavailable", ("retry_in",)),
    (DeadlineExceeded, "deadline", ("seconds",)),
    (AgentDied, FAILED, ("started",)),
    (ActionCancelled, "cancelled", ("reason",)),
)
"""The errors that have a code, with the members that are sent."""

_HIDDEN: Final[dict[type[LmosActorsError], str]] = {
    AgentUnavailable: "it is not available now",
    AgentDied: "the agent has failed",
}
"""Texts that replace those which reveal internals."""


def fault_of(error: LmosActorsError) -> dict[str, Any]:
    """Return the public form of an error, without details of the exception."""
    if isinstance(error, ActionFailed):
        return _failure(error)
    for kind, code, members in _ABOUT:
        if isinstance(error, kind):
            about = {name: value for name in members if (value := getattr(error, name)) is not None}
            return {"code": code, "message": _HIDDEN.get(kind) or str(error), "about": about}
    return {"code": FAILED, "message": "the agent has failed"}


def _failure(error: ActionFailed) -> dict[str, Any]:
    """Return the public form of a failure that an action declares.

    `output` is included unless it contains only the code and the message.
    """
    found: dict[str, Any] = {"code": error.code or FAILED, "message": error.detail or "it failed"}
    if error.output == found:
        return found
    return {**found, **({"data": error.data} if error.data else {}), "output": error.output}


def reason_of(payload: Any) -> str | None:
    """Return the reason why a question is withdrawn, None if its asker is gone."""
    reason = cast("dict[str, Any]", payload).get("reason") if isinstance(payload, dict) else None
    return reason if isinstance(reason, str) else None


def fault_in(payload: Any) -> dict[str, Any] | None:
    """Return the error in an answer, None if it has none."""
    found = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    fault = found.get("error") if len(found) == 1 else None
    return cast("dict[str, Any]", fault) if isinstance(fault, dict) else None


def error_of(fault: dict[str, Any], path: str) -> LmosActorsError:
    """Return the error that a ref to an agent on a relay raises; `path` is the agent's name here."""
    about, message = fault.get("about"), fault.get("message")
    made = _MADE.get(str(fault.get("code"))) if isinstance(about, dict) else None
    if made is None:
        return ActionFailed(fault.get("output", fault))
    return made(cast("dict[str, Any]", about), message if isinstance(message, str) else "", path)


def _text(about: dict[str, Any], name: str) -> str:
    value = about.get(name)
    return value if isinstance(value, str) else ""


def _number(about: dict[str, Any], name: str) -> float | None:
    value = about.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _invalid(about: dict[str, Any], message: str, _: str) -> InvalidInput:
    place = _text(about, "path") or "$"
    return InvalidInput(message.removesuffix(f" - at {place}"), place)


def _missing(about: dict[str, Any], _: str, path: str) -> NotFound:
    kind = _text(about, "kind") or "action"
    if kind == "agent":
        return NotFound(kind, path)
    return NotFound(kind, _text(about, "name"), where=path, near=_text(about, "nearest") or None)


_MADE: Final[dict[str, Made]] = {
    "invalid_input": _invalid,
    "not_found": _missing,
    "not_allowed": lambda _, message, __: NotAllowed(message),
    "forbidden": lambda _, message, __: Forbidden(message),
    "rate_limit": lambda about, _, __: RateLimited(_number(about, "retry_in") or 1.0),
    "busy": lambda about, _, path: MailboxFull(path, int(_number(about, "size") or 0)),
    "unavailable": lambda about, message, path: AgentUnavailable(
        path, message, retry_in=_number(about, "retry_in")
    ),
    "deadline": lambda about, _, path: DeadlineExceeded(path, _number(about, "seconds") or 0.0),
    "cancelled": lambda about, _, __: ActionCancelled(_text(about, "reason") or None),
    FAILED: lambda about, message, path: AgentDied(
        message, started=about.get("started") is not False, agent=path
    ),
}
