"""Problems of `error` messages and the exceptions they represent: one table for both directions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, structs

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    KeyReused,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
    RateLimited,
    RemoteProtocolError,
    Unauthorized,
    WouldDeadlock,
)

from ._messages import CancelAction, Error, InvokeAction, QueryAction, name_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._messages import Message

E = TypeVar("E", bound=LmosActorsError)

LMOS: Final = "https://eclipse.dev/lmos/protocol/v1"
"""The prefix of kotlin-wot's problem types, and of `/errors/<id>` in every `instance`."""

OURS: Final = "urn:lmos-actors:errors#"
"""The prefix of the problem types that kotlin-wot does not have."""

NOT_FOUND: Final = f"{LMOS}/errors#not-found"
NOT_ALLOWED: Final = f"{LMOS}/errors#operation-not-allowed"
UNSUPPORTED: Final = f"{LMOS}/errors#unsupported-message-type"
INTERNAL: Final = f"{LMOS}/errors#internal-server-error"
INVALID: Final = f"{OURS}invalid-input"
TOO_LARGE: Final = f"{OURS}message-too-large"
UNAUTHORIZED: Final = f"{OURS}unauthorized"
FORBIDDEN: Final = f"{OURS}forbidden"
MAILBOX_FULL: Final = f"{OURS}mailbox-full"
UNAVAILABLE: Final = f"{OURS}agent-unavailable"
DIED: Final = f"{OURS}agent-died"
DEADLINE: Final = f"{OURS}deadline-exceeded"
CANCELLED: Final = f"{OURS}action-cancelled"
FAILED: Final = f"{OURS}action-failed"
RATE_LIMITED: Final = f"{OURS}rate-limited"
KEY_REUSED: Final = f"{OURS}key-reused"
WOULD_DEADLOCK: Final = f"{OURS}would-deadlock"

DETAIL = 2_000  # characters
LONGEST = 1e12
"""Limit on the seconds in a peer's error; larger numbers count as 0. Some integers do not fit a float."""


class Problem(Struct, kw_only=True, frozen=True):
    """A failure of a request, as an `error` message reports it.

    `type` is a URI, `status` an HTTP status. `path` is the place in the input, as in `$.city`. `started` is
    whether the run had begun, None if that is unknown. `retry_in` is in seconds. `about` has further data of
    the exception, as plain data.
    """

    type: str
    title: str
    status: int
    detail: str
    path: str | None = None
    started: bool | None = None
    retry_in: float | None = None
    about: dict[str, Any] | None = None


def problem_of(error: BaseException) -> Problem:
    """Return the problem that reports an exception to a peer.

    An exception that is not in the table is a mistake in the program: the problem gives no details of it.
    """
    if isinstance(error, RemoteProtocolError) and isinstance(error.problem, Problem):
        return error.problem
    for known, describe in _DESCRIBE:
        if isinstance(error, known):
            return describe(error)
    return Problem(
        type=INTERNAL, title="Internal Server Error", status=500, detail="the request could not be answered"
    )


def error_of(message: Error, request: Message | None = None) -> LmosActorsError:
    """Return the exception that an `error` message stands for, as the answer to `request`.

    For a type that is not in the table the status decides: 400, 401, 403, 404, 405, 429, 503, and for actions
    409 and 500 too; any other status gives RemoteProtocolError.
    """
    make = _MAKE.get(message.type) or _BY_STATUS.get(message.status, _unknown)
    return make(message, request)


def invalid(detail: str, path: str = "$") -> Problem:
    """Return the problem of a message, or of a part of one, that cannot be read."""
    return Problem(type=INVALID, title="Invalid Input", status=400, detail=detail[:DETAIL], path=path)


def error_message(
    problem: Problem,
    *,
    thing_id: str,
    message_id: str,
    instance_id: str,
    correlation_id: str | None = None,
    in_reply_to: str | None = None,
) -> Error:
    """Return the `error` message for a problem. `instance_id` is a new id, for this occurrence."""
    return Error(
        thing_id=thing_id,
        message_id=message_id,
        correlation_id=correlation_id,
        type=problem.type,
        title=problem.title,
        status=str(problem.status),
        detail=problem.detail,
        instance=f"{LMOS}/errors/{instance_id}",
        path=problem.path,
        started=problem.started,
        retry_in=problem.retry_in,
        about=problem.about,
        in_reply_to=in_reply_to,
    )


# ---- exception to problem


def _tell_not_found(error: NotFound) -> Problem:
    kind = "Thing" if error.kind == "agent" else error.kind.capitalize()
    about = {"kind": error.kind, "name": error.name}
    if error.nearest is not None:
        about["nearest"] = error.nearest
    return Problem(type=NOT_FOUND, title=f"{kind} Not Found", status=404, detail=_text(error), about=about)


def _tell_invalid(error: InvalidInput) -> Problem:
    return invalid(error.message, error.path)


def _tell_failed(error: ActionFailed) -> Problem:
    return Problem(
        type=FAILED,
        title="Action Failed",
        status=error.status,
        detail=(error.detail or _text(error))[:DETAIL],
        started=True,
        about={"output": error.output},
    )


def kotlin_problem_of(error: BaseException) -> Problem:
    """Return the problem for a peer with kotlin-wot's habits, where every failure of an action is a 500."""
    problem = problem_of(error)
    if problem.type != FAILED:
        return problem
    return structs.replace(problem, type=INTERNAL, title="Internal Server Error", status=500)


def _tell_cancelled(error: ActionCancelled) -> Problem:
    about = None if error.reason is None else {"reason": error.reason}
    return Problem(type=CANCELLED, title="Action Cancelled", status=500, detail=_text(error), about=about)


def _tell_full(error: MailboxFull) -> Problem:
    detail = f"no room for more requests ({error.size})"
    about = {"size": error.size}
    if error.share is not None:
        about["share"] = error.share
        detail = f"{detail}: {error.share} of them are yours, and others want some"
    return Problem(
        type=MAILBOX_FULL,
        title="Mailbox Full",
        status=503,
        detail=detail,
        started=False,
        about=about,
    )


def _tell_unavailable(error: AgentUnavailable) -> Problem:
    return Problem(
        type=UNAVAILABLE,
        title="Agent Unavailable",
        status=503,
        detail=error.why[:DETAIL],
        started=False,
        retry_in=error.retry_in,
    )


def _tell_died(error: AgentDied) -> Problem:
    return Problem(type=DIED, title="Agent Died", status=500, detail=error.reason, started=error.started)


def _tell_late(error: DeadlineExceeded) -> Problem:
    detail = f"no answer within {error.seconds:g} s"
    return Problem(
        type=DEADLINE, title="Deadline Exceeded", status=503, detail=detail, about={"seconds": error.seconds}
    )


def _tell_limited(error: RateLimited) -> Problem:
    return Problem(
        type=RATE_LIMITED,
        title="Rate Limited",
        status=429,
        detail=_text(error),
        started=False,
        retry_in=error.retry_in,
    )


def _tell_reused(error: KeyReused) -> Problem:
    return Problem(
        type=KEY_REUSED,
        title="Key Reused",
        status=422,
        detail=error.why[:DETAIL],
        started=False,
        about={"key": error.key},
    )


def _tell_deadlock(error: WouldDeadlock) -> Problem:
    return Problem(
        type=WOULD_DEADLOCK,
        title="Would Deadlock",
        status=508,
        detail=_text(error),
        about={"affordance": error.affordance, "circle": list(error.circle)},
    )


def _plainly(type_: str, title: str, status: int) -> Callable[[Any], Problem]:
    return lambda error: Problem(type=type_, title=title, status=status, detail=_text(error), started=False)


def _text(error: BaseException) -> str:
    return str(error)[:DETAIL]


_DESCRIBE: tuple[tuple[type[LmosActorsError], Callable[[Any], Problem]], ...] = (
    (NotFound, _tell_not_found),
    (InvalidInput, _tell_invalid),
    (NotAllowed, _plainly(NOT_ALLOWED, "Operation Not Allowed", 405)),
    (ActionFailed, _tell_failed),
    (ActionCancelled, _tell_cancelled),
    (MailboxFull, _tell_full),
    (AgentUnavailable, _tell_unavailable),
    (AgentDied, _tell_died),
    (DeadlineExceeded, _tell_late),
    (Unauthorized, _plainly(UNAUTHORIZED, "Unauthorized", 401)),
    (Forbidden, _plainly(FORBIDDEN, "Forbidden", 403)),
    (RateLimited, _tell_limited),
    (KeyReused, _tell_reused),
    (WouldDeadlock, _tell_deadlock),
)


# ---- problem to exception

_TITLE = re.compile(r"(Thing|Agent|Property|Action|Event) Not Found$", re.IGNORECASE)


def _make_not_found(message: Error, request: Message | None) -> LmosActorsError:
    title = _TITLE.match(message.title)
    kind = _known(message, "kind", str) or (
        title[1].lower().replace("thing", "agent") if title else "affordance"
    )
    name = _known(message, "name", str)
    if not name:  # not every peer repeats it: then it is the name that was asked for
        asked = "" if request is None else name_in(request)
        name = message.thing_id if kind == "agent" else asked
    nearest = _known(message, "nearest", str)
    return _with_detail(NotFound, message.detail, kind=kind, name=name, nearest=nearest)


def _make_invalid(message: Error, _: Message | None) -> LmosActorsError:
    return InvalidInput(message.detail, message.path or "$")


def _make_internal(message: Error, request: Message | None) -> LmosActorsError:
    if message.about is not None and "output" in message.about:
        return ActionFailed(message.about["output"])
    if isinstance(request, InvokeAction | QueryAction | CancelAction):
        return ActionFailed(message.detail)
    return _unknown(message, request)


def _make_failed(message: Error, request: Message | None) -> LmosActorsError:
    about = message.about
    return ActionFailed(about["output"] if about is not None and "output" in about else message.detail)


def _make_conflict(message: Error, request: Message | None) -> LmosActorsError:
    if isinstance(request, InvokeAction | QueryAction | CancelAction):
        return _make_failed(message, request)
    return _unknown(message, request)


def _make_cancelled(message: Error, _: Message | None) -> LmosActorsError:
    return ActionCancelled(_known(message, "reason", str))


def _make_full(message: Error, _: Message | None) -> LmosActorsError:
    size, share = _known(message, "size", int) or 0, _known(message, "share", int)
    return MailboxFull(message.thing_id, size, share)


def _make_unavailable(message: Error, _: Message | None) -> LmosActorsError:
    return AgentUnavailable(message.thing_id, message.detail, retry_in=message.retry_in)


def _make_died(message: Error, _: Message | None) -> LmosActorsError:
    # absent: then it may have begun, and must not be taken as safe to repeat
    return AgentDied(message.detail, started=message.started is not False, agent=message.thing_id)


def _make_late(message: Error, _: Message | None) -> LmosActorsError:
    seconds = _known(message, "seconds", (int, float)) or 0.0
    return DeadlineExceeded(message.thing_id, seconds if abs(seconds) <= LONGEST else 0.0)


def _make_limited(message: Error, _: Message | None) -> LmosActorsError:
    return _with_detail(RateLimited, message.detail, retry_in=message.retry_in)


def _make_reused(message: Error, _: Message | None) -> LmosActorsError:
    return KeyReused(message.thing_id, _known(message, "key", str) or "", message.detail)


def _make_deadlock(message: Error, _: Message | None) -> LmosActorsError:
    circle = [text for text in _known(message, "circle", list) or () if isinstance(text, str)]
    return WouldDeadlock(message.thing_id, _known(message, "affordance", str) or "", tuple(circle))


def _as(cls: type[LmosActorsError]) -> Callable[[Error, Message | None], LmosActorsError]:
    return lambda message, _: cls(message.detail)


def _unknown(message: Error, _: Message | None) -> LmosActorsError:
    return RemoteProtocolError(problem_in(message))


def problem_in(message: Error) -> Problem:
    """Return the problem in an `error` message; a status that is not a number becomes 500."""
    status = message.status
    return Problem(
        type=message.type,
        title=message.title,
        status=int(status) if len(status) == 3 and status.isascii() and status.isdigit() else 500,
        detail=message.detail,
        path=message.path,
        started=message.started,
        retry_in=message.retry_in,
        about=message.about,
    )


def _known(message: Error, key: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """Return a detail of the exception that the peer sent, or None if it does not have the type `kind`."""
    found = None if message.about is None else message.about.get(key)
    return found if isinstance(found, kind) and not isinstance(found, bool) else None


def _with_detail(cls: type[E], text: str, **attributes: Any) -> E:
    """Return an exception with the text from the peer, bypassing the constructor, which would replace it."""
    error = cls.__new__(cls, text)
    error.args = (text,)
    vars(error).update(attributes)
    return error


_MAKE: dict[str, Callable[[Error, Message | None], LmosActorsError]] = {
    NOT_FOUND: _make_not_found,
    NOT_ALLOWED: _as(NotAllowed),
    UNSUPPORTED: _as(NotAllowed),
    INTERNAL: _make_internal,
    INVALID: _make_invalid,
    UNAUTHORIZED: _as(Unauthorized),
    FORBIDDEN: _as(Forbidden),
    MAILBOX_FULL: _make_full,
    UNAVAILABLE: _make_unavailable,
    DIED: _make_died,
    DEADLINE: _make_late,
    CANCELLED: _make_cancelled,
    FAILED: _make_failed,
    RATE_LIMITED: _make_limited,
    KEY_REUSED: _make_reused,
    WOULD_DEADLOCK: _make_deadlock,
}
_BY_STATUS: dict[str, Callable[[Error, Message | None], LmosActorsError]] = {
    "400": _make_invalid,
    "401": _as(Unauthorized),
    "403": _as(Forbidden),
    "404": _make_not_found,
    "405": _as(NotAllowed),
    "409": _make_conflict,
    "429": _make_limited,
    "500": _make_internal,
    "503": _make_unavailable,
}
