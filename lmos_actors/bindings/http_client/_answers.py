"""Answers over HTTP: the exceptions for refusals, and the status of runs."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
from msgspec import UNSET

from lmos_actors.errors import ActionCancelled, ActionFailed, OutcomeUnknown, RemoteProtocolError
from lmos_actors.protocol import lmos
from lmos_actors.protocol.td import resolve

from ..exposure._problem_details import failure_output
from ..lmos._near_errors import as_near_error
from ._bodies import essence, from_json, is_json
from ._stream import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._stream import Head, WebAnswer

PROBLEM: Final = "application/problem+json"
BLANK: Final = "about:blank"
WRONG: Final = "urn:lmos-actors:errors#wrong-type"
DETAIL: Final = 2_000  # characters
LONGEST_WAIT: Final = 3600.0

_LIKE: Final = {408: 503, 410: 404, 413: 400, 415: 405, 406: 405, 422: 400, 501: 405}
"""Statuses that are treated as another one, which has an exception."""

_STATUSES: Final = frozenset(HTTPStatus)

_UNKNOWN: Final = (502, 504)
"""The status by which a gateway got no answer in time: the request may have been carried out."""


class Asked(Protocol):
    """The operation whose failure an error reports."""

    @property
    def verb(self) -> str:
        """The verb, as in `Operation.verb`."""
        ...

    @property
    def name(self) -> str:
        """The name of the affordance, "*" for all."""
        ...


def wrong(path: str, error: BadAnswer | str, status: int = 502) -> RemoteProtocolError:
    """Return the error for an answer that cannot be used."""
    detail = f"{path} sent an answer that cannot be used: {error}"
    return RemoteProtocolError(lmos.Problem(type=WRONG, title="Wrong Answer", status=status, detail=detail))


def refusal(answer: WebAnswer, path: str, thing_id: str, op: Asked | None) -> Exception | None:
    """Return the exception for an answer, None if it is a success."""
    head = answer.head
    if 200 <= head.status < 300:
        return None
    problem = _problem(answer)
    error = error_from(problem, head, op, thing_id)
    if head.status in _UNKNOWN and problem is None:
        return OutcomeUnknown(path, f"it answered {_named(head)}")
    return as_near_error(error, thing_id, path)


def error_from(
    problem: Mapping[str, Any] | None, head: Head | None, op: Asked | None, thing_id: str
) -> Exception:
    """Return the exception for problem details, or for a status alone."""
    fields = problem or {}
    status = head.status if head is not None else fields.get("status")
    status = status if type(status) is int else 500
    if status == 500 and op is not None and op.verb == "invoke" and fields and not is_problem(fields):
        return ActionFailed(problem)  # the output that the action failed with
    message = lmos.Error(
        thing_id=thing_id,
        message_id="",
        type=_text(fields.get("type")) or BLANK,
        title=_text(fields.get("title")) or (_named(head) if head is not None else "Error"),
        status=str(_LIKE.get(status, status)),
        detail=_text(fields.get("detail")) or _text(fields.get("title")) or _said(head),
        instance=_text(fields.get("instance")),
        path=_text(fields.get("path")) or None,
        started=fields.get("started") if isinstance(fields.get("started"), bool) else None,
        retry_in=_seconds(fields.get("retryIn"), head),
        about=_about(fields, status, op),
    )
    return lmos.error_of(message, _asked(op, thing_id))


def _about(fields: Mapping[str, Any], status: int, op: Asked | None) -> dict[str, Any] | None:
    """Return the data of a problem; for a failed action, its output, from any kind of server."""
    is_refusal = fields.get("type") == lmos.FAILED or (
        status == ActionFailed.STATUS and op is not None and op.verb == "invoke"
    )
    if fields and is_refusal:
        return {"output": failure_output(fields)}
    return _members(fields.get("about"))


def _asked(op: Asked | None, thing_id: str) -> Any:
    """Return the LMOS message for the same request, by which errors are mapped."""
    if op is None or op.name == "*":
        return None
    if op.verb == "invoke":
        return lmos.InvokeAction(thing_id=thing_id, message_id="", action=op.name)
    if op.verb in ("subscribe", "subscribe to all"):
        return lmos.SubscribeEvent(thing_id=thing_id, message_id="", event=op.name)
    return lmos.ReadProperty(thing_id=thing_id, message_id="", name=op.name)


def _problem(answer: WebAnswer) -> dict[str, Any] | None:
    """Return the problem details of an answer; None if there are none that can be read."""
    if not is_json(answer.head.kind) or not answer.body:
        return None
    try:
        return _members(from_json(answer.body))
    except BadAnswer:
        return None


def is_problem(data: Mapping[str, Any]) -> bool:
    """Return whether an object looks like problem details (RFC 9457)."""
    return any(name in data for name in ("type", "title", "detail", "status"))


def _members(data: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _text(data: Any) -> str:
    return data[:DETAIL] if isinstance(data, str) else ""


def _named(head: Head) -> str:
    usual = HTTPStatus(head.status).phrase if head.status in _STATUSES else ""
    return f"{head.status} {head.reason[:200] or usual}".rstrip()


def _said(head: Head | None) -> str:
    return "without a detail" if head is None else f"it answered {_named(head)}"


def _seconds(fields: Any, head: Head | None) -> float | None:
    if isinstance(fields, int | float) and not isinstance(fields, bool) and 0 <= fields <= LONGEST_WAIT:
        return float(fields)
    return None if head is None else retry_after(head)


def retry_after(head: Head) -> float | None:
    """Return the seconds in the header `Retry-After`, None for a date or a malformed one."""
    text = head.header(b"retry-after")
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return float(min(int(text), LONGEST_WAIT)) if is_number else None


# ---- runs


class Standing(msgspec.Struct, frozen=True):
    """The status of a run, read from an ActionStatus; `status` is its LMOS name."""

    status: str
    output: Any = UNSET
    error: Any = UNSET
    progress: Any = UNSET
    href: str = ""
    waits: dict[str, Any] | None = None

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self.status in ("completed", "failed", "cancelled")


def standing_in(answer: WebAnswer) -> Standing | None:
    """Return the status of a run from the ActionStatus in an answer, None if it holds none."""
    try:
        is_there = answer.body and is_json(essence(answer.head.kind))
        data = _members(from_json(answer.body)) if is_there else None
    except BadAnswer:
        return None
    if data is None or not isinstance(data.get("status"), str):
        return None
    return Standing(
        lmos.canonical_status(data["status"]),
        data.get("output", UNSET),
        data.get("error", UNSET),
        data.get("progress", UNSET),
        _text(data.get("href")),
        data.get("waits") if isinstance(data.get("waits"), dict) else None,
    )


def run_at(answer: WebAnswer, standing: Standing | None) -> str | None:
    """Return the URL of a run that goes on, None if the answer names none. Raises BadAnswer."""
    head = answer.head
    href = head.header(b"location") or (standing.href if standing is not None else "")
    if not href:
        return None
    url = resolve(head.url, href).partition("#")[0]
    if _place(url) != _place(head.url):
        raise BadAnswer("the URL of the run is on another server")
    return url


def _place(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}".lower()


def ended_as(standing: Standing, op: Asked, thing_id: str) -> Exception | None:
    """Return the exception for a run that has ended, None for a success."""
    if standing.status == "completed":
        return None
    problem = _members(standing.error)
    if problem is not None and is_problem(problem):
        return error_from(problem, None, op, thing_id)
    if standing.status == "cancelled":
        return ActionCancelled(None)
    fields = standing.error if standing.error not in (UNSET, None) else standing.output
    return ActionFailed(None if fields is UNSET else fields)
