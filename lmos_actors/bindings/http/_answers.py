"""Answers over HTTP as a server for ASGI takes them, problem details (RFC 9457) among them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec

from lmos_actors.errors import ActionFailed, AgentError, LmosActorsError
from lmos_actors.protocol.lmos import FAILED, problem_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from lmos_actors.protocol.lmos import Problem

    Send = Callable[[Any], Awaitable[None]]
    Receive = Callable[[], Awaitable[Any]]

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
EVENTS: Final = b"text/event-stream"

INSTANCE: Final = "https://eclipse.dev/lmos/protocol/v1/errors/"
"""Before the id of each occurrence of a problem, as in LMOS."""

NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
NO_STORE: Final = (b"cache-control", b"no-store")
NO_CACHE: Final = (b"cache-control", b"no-cache")
VARY: Final = (b"vary", b"Accept")
TYPE_JSON: Final = (b"content-type", JSON)
TYPE_PROBLEM: Final = (b"content-type", PROBLEM)

RETRY: Final = 1  # seconds, where an agent is down and it is unknown for how long
LONGEST_RETRY: Final = 3600

_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen
class Answer:
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpError(LmosActorsError):
    """A request that is refused by the HTTP binding itself: no agent has received it."""

    def __init__(
        self, status: int, title: str, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self.status = status
        self.http_status = status
        self.title = title
        self.detail = detail
        self.headers = headers
        super().__init__(f"{status} {title}: {detail}")


class PreconditionFailed(AgentError):
    """A precondition of a request does not hold (RFC 9110, 13.1): nothing has been changed."""

    http_status = 412


def value(body: bytes, *more: tuple[bytes, bytes]) -> Answer:
    """Answer with a value."""
    return Answer(200, body, (TYPE_JSON, NOSNIFF, *more))


EMPTY: Final = Answer(204, b"", (NO_STORE,))


def problem_answer(
    error: Exception, occurrence: str | None = None, allowed: Callable[[], str] = lambda: "GET, HEAD"
) -> Answer:
    """Return what is wrong: with the status, and in the words, that LMOS has for it.

    `occurrence` is a new id; `allowed` names the methods of the resource, for an answer of 405.
    """
    if isinstance(error, PreconditionFailed):
        error = HttpError(error.http_status, "Precondition Failed", str(error))
    if isinstance(error, HttpError):
        fields: dict[str, Any] = {"type": "about:blank", "title": error.title, "status": error.status}
        fields["detail"] = error.detail
        return Answer(error.status, _encode(fields), (*_headers(), *error.headers))
    problem = problem_of(error)
    more = list(error_headers(error))
    if problem.status == 405:
        more.append((b"allow", allowed().encode()))
    elif problem.status in (429, 503):
        more.append((b"retry-after", b"%d" % _retry_in(problem)))
    return Answer(problem.status, _encode(problem_data(problem, occurrence)), (*_headers(), *more))


def error_headers(error: Exception) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers that an error brings along, such as WWW-Authenticate."""
    found: Iterable[tuple[bytes, bytes]] = getattr(error, "http_headers", ())
    return found


def _headers() -> tuple[tuple[bytes, bytes], ...]:
    return TYPE_PROBLEM, NOSNIFF, NO_STORE


def problem_data(problem: Problem, occurrence: str | None) -> dict[str, Any]:
    """Return problem details as plain data, in the JSON names of an LMOS `error`."""
    fields: dict[str, Any] = {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": None if occurrence is None else f"{INSTANCE}{occurrence}",
        "path": problem.path,
        "started": problem.started,
        "retryIn": problem.retry_in,
        "about": problem.about,
    }
    found = {name: each for name, each in fields.items() if each is not None}
    return with_data(found) if problem.type == FAILED else found


PROBLEM_MEMBERS: Final = (
    "type", "title", "status", "detail", "instance", "path", "started", "retryIn", "about",
)  # fmt: skip
"""Members of problem details that are not an action's own."""


def with_data(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the problem of a declared failure with its code and its data as members.

    What it was exactly stays in `about` only where these members do not give it back: see `failure_output`.
    """
    about = cast("dict[str, Any]", fields["about"])
    output: Any = about["output"]
    members = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    own = {name: value for name, value in members.items() if name not in PROBLEM_MEMBERS}
    found = {**{name: each for name, each in fields.items() if name != "about"}, **own}
    return found if same_json(failure_output(found), output) else {**found, "about": about}


def failure_output(fields: Mapping[str, Any]) -> Any:
    """Return the output of an action's failure that problem details tell.

    It is in `about` where that has it. Else it is the words alone, or an object of them and all members that
    are the action's own, with the status unless that is the usual one.
    """
    about = fields.get("about")
    if isinstance(about, dict) and "output" in about:
        return cast("dict[str, Any]", about)["output"]
    own = {name: value for name, value in fields.items() if name not in PROBLEM_MEMBERS}
    detail, status = fields.get("detail"), fields.get("status")
    if status not in (None, ActionFailed.STATUS):
        own["status"] = status
    if not own and isinstance(detail, str):
        return detail
    return own if detail is None else {**own, "detail": detail}


def same_json(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON but for the order of members; 1 is not true, nor 1.0."""
    try:
        return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(
            other, order="deterministic"
        )
    except (TypeError, ValueError, RecursionError):
        return False


def _retry_in(problem: Problem) -> int:
    seconds = problem.retry_in
    if seconds is None or not 0 <= seconds <= LONGEST_RETRY:
        return RETRY
    return max(RETRY, ceil(seconds))


async def give(send: Send, answer: Answer, *, bare: bool = False) -> None:
    """Send an answer; `bare`: without its body, to HEAD. Of one that is sent in parts no length is said."""
    none = answer.status in (204, 304) or (bare and not answer.body)
    length = () if none else ((b"content-length", b"%d" % len(answer.body)),)
    await send(
        {"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, *length]}
    )
    await send({"type": "http.response.body", "body": b"" if bare else answer.body})


async def whole_body(receive: Receive) -> bytes:
    """Return the body of a request. Raises ClientGone if there will not be all of it."""
    message: Mapping[str, Any] = await receive()
    body = message.get("body", b"")
    if message.get("more_body"):
        parts = [body]
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
        body = b"".join(parts)
    if message["type"] != "http.request":
        raise ClientGone
    return bytes(body)


class ClientGone(Exception):
    """The client has left: there is none to answer any more."""
