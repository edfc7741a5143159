"""Responses of the HTTP binding: Starlette's, with the headers that go with values and with problems.

Bodies are encoded before a response is made, by the encoder of LMOS messages. So numbers and dates look the
same as over LMOS, and a value that JSON cannot hold is refused while the status can still report it.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lmos_actors.errors import AgentError, LmosActorsError
from lmos_actors.protocol.lmos import problem_of

from ..exposure._problem_details import problem_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.protocol.lmos import Problem

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
EVENTS: Final = "text/event-stream"

NOSNIFF: Final = {"x-content-type-options": "nosniff"}
NO_STORE: Final = {"cache-control": "no-store"}
NO_CACHE: Final = {"cache-control": "no-cache"}
VARY: Final = {"vary": "Accept"}

STREAM: Final = {**NO_STORE, **NOSNIFF, **VARY, "x-accel-buffering": "no"}
"""Headers of a stream of events or items; the last keeps nginx from collecting them first."""

_PLAIN: Final = {"content-type": PROBLEM, **NOSNIFF, **NO_STORE}

RETRY: Final = 1  # seconds, where an agent is down and it is unknown for how long

RawHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]

_encode: Final = msgspec.json.Encoder().encode


class HttpError(HTTPException, LmosActorsError):
    """A request that is refused by the HTTP binding itself: no agent has received it."""


class PreconditionFailed(AgentError):
    """A precondition of a request does not hold (RFC 9110, 13.1): nothing has been changed.

    It is raised within the agent's turn, and is therefore an AgentError: any other exception would end the
    agent.
    """

    status_code = HTTPStatus.PRECONDITION_FAILED


def _raw(*headers: Mapping[str, str]) -> RawHeaders:
    return tuple(pair for each in ({"content-type": JSON}, NOSNIFF, *headers) for pair in Headers(each).raw)


CURRENT: Final = _raw(NO_CACHE, VARY)
"""Headers of a value that clients may keep if they ask each time whether it has changed."""

UNSTORED: Final = _raw(NO_STORE)
UNSTORED_VARIANT: Final = _raw(NO_STORE, VARY)
"""Headers of a value that no client keeps; `UNSTORED_VARIANT` if `Accept` chooses among several forms."""


class JsonResponse(Response):
    """A response of encoded JSON with encoded headers: `headers` is one of the constants above.

    Encoding the same few headers for each response would take as long as all the rest here.
    """

    def __init__(
        self, body: bytes, headers: RawHeaders, *more: tuple[bytes, bytes], status_code: int = 200
    ) -> None:
        self.status_code = status_code
        self.body = body
        self.background = None
        self.raw_headers = [*headers, *more, (b"content-length", b"%d" % len(body))]


def no_content() -> Response:
    """Return the response to a successful request without a value."""
    return Response(None, 204, NO_STORE)


def allow(methods: str) -> Response:
    """Return the response to OPTIONS, with the methods that are allowed."""
    return Response(None, 204, {"allow": methods})


def only_head(media_type: str, headers: Mapping[str, str] = VARY) -> Response:
    """Return the response to a HEAD request whose GET is sent in parts: its length is not known."""
    response = Response(None, 200, {"content-type": media_type, **headers})
    del response.headers["content-length"]
    return response


def problem_response(
    error: Exception, occurrence: str | None = None, allowed: Callable[[], str] = lambda: "GET, HEAD"
) -> Response:
    """Return the problem details of an error: LMOS's own for an AgentError, else made from its status.

    `occurrence` is a new id; `allowed` returns the methods of the resource, for a response of 405.
    """
    if isinstance(error, PreconditionFailed):
        error = HTTPException(error.status_code, str(error))
    if isinstance(error, HTTPException):
        title = HTTPStatus(error.status_code).phrase
        data: dict[str, Any] = {"type": "about:blank", "title": title, "status": error.status_code}
        if error.detail != title:
            data["detail"] = error.detail
        return Response(_encode(data), error.status_code, {**_PLAIN, **(error.headers or {})})
    problem = problem_of(error)
    headers = _PLAIN
    if problem.status == 405:
        headers = {**_PLAIN, "allow": allowed()}  # RFC 9110, 15.5.6: it must be there
    elif problem.status in (429, 503):
        headers = {**_PLAIN, "retry-after": str(_retry_in(problem))}
    return Response(_encode(problem_data(problem, occurrence)), problem.status, headers)


def _retry_in(problem: Problem) -> int:
    seconds = problem.retry_in
    if seconds is None or not 0 <= seconds <= 3600:
        return RETRY
    return max(RETRY, ceil(seconds))
