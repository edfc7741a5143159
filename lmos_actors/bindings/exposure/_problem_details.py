"""Problem details over HTTP (RFC 9457): LMOS errors as JSON members, and declared failures read from them.

The server writes them and the client reads them. The data of a declared failure is among the members
themselves, so that clients without LMOS find it in the usual place of problem details.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from lmos_actors.errors import ActionFailed
from lmos_actors.protocol.lmos import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.protocol.lmos import Problem

INSTANCE: Final = "https://eclipse.dev/lmos/protocol/v1/errors/"
"""The prefix of the id of each occurrence of a problem, as in LMOS."""

PROBLEM_MEMBERS: Final = (
    "type", "title", "status", "detail", "instance", "path", "started", "retryIn", "about",
)  # fmt: skip
"""Members of problem details that are not an action's own."""


def problem_data(problem: Problem, occurrence: str | None) -> dict[str, Any]:
    """Return problem details as plain data, in the JSON names of an LMOS `error`.

    `occurrence` is the id of this occurrence, for the member `instance`.
    """
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
    return _with_failure(found) if problem.type == FAILED else found


def _with_failure(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the problem of a declared failure with its code and its data as members.

    The exact output stays in `about` only if `failure_output` cannot rebuild it from these members.
    """
    about = cast("dict[str, Any]", fields["about"])
    output: Any = about["output"]
    members = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    own = {name: value for name, value in members.items() if name not in PROBLEM_MEMBERS}
    found = {**{name: each for name, each in fields.items() if name != "about"}, **own}
    return found if _same_json(failure_output(found), output) else {**found, "about": about}


def failure_output(fields: Mapping[str, Any]) -> Any:
    """Return the output of an action's failure from its problem details.

    The output in `about` is returned if there is one, otherwise the detail alone, or an object with the
    detail, all members that are the action's own, and a status other than the usual one.
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


def _same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON, in any order of members; 1, 1.0 and true all differ."""
    try:
        return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(
            other, order="deterministic"
        )
    except (TypeError, ValueError, RecursionError):
        return False
