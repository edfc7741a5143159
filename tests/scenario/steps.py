"""Steps of files as tests write them, and what is read of their runs."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.reports import RunResult

_OF_STEPS = frozenset({"as", "error", "id", "input", "save", "streams", "wait", "within"})
_READS = count()


def invoke(action: str, target: str, **more: Any) -> dict[str, Any]:
    """Invoke an action; what is no key of the step is its input."""
    step = {key: value for key, value in more.items() if key in _OF_STEPS}
    given = {key: value for key, value in more.items() if key not in _OF_STEPS}
    return {"do": "invoke", "target": target, "action": action, **({"input": given} if given else {}), **step}


def wait(seconds: float) -> dict[str, Any]:
    return {"do": "wait", "for": f"{round(seconds * 1_000_000)}us"}


def inject(kind: str, *, id: str | None = None, wait: bool = True, **fault: Any) -> dict[str, Any]:
    """Inject a fault; `id` is its name for `heal`, if it needs one."""
    named: dict[str, Any] = {} if id is None else {"id": id}
    unwaited: dict[str, Any] = {} if wait else {"wait": False}
    return {"do": "inject", "fault": {"kind": kind, **fault}, **named, **unwaited}


def heal(of: str) -> dict[str, Any]:
    return {"do": "heal", "of": of}


def at_once(*branches: Iterable[Any]) -> dict[str, Any]:
    """Do several rows of steps at the same time."""
    return {"do": "parallel", "branches": [list(branch) for branch in branches]}


def answers(of: str, equals: Any) -> dict[str, Any]:
    """Expect what the step of that id has got."""
    return {"do": "expect", "that": "output", "of": of, "equals": equals}


def reads(target: str, name: str, equals: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a property, and expect its value."""
    id = f"read-{next(_READS)}"
    return {"do": "read", "id": id, "target": target, "property": name}, answers(id, equals)


def passed(result: RunResult) -> RunResult:
    """Check that all of a run was as it should be."""
    assert result.failures == ()
    assert result.ended == "passed"
    return result


def records(result: RunResult, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the records of the log, perhaps of one kind."""
    found = [each for each in map(json.loads, result.log) if "kind" in each]
    return found if kind is None else [each for each in found if each["kind"] == kind]
