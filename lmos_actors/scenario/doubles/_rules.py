"""Matching of requests against the rules of a mock. Pure functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET

from lmos_actors.files import inside
from lmos_actors.system.model import USER
from lmos_actors.system.values import same, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.system.model import Rule, When

    from ..judge import Verdict

_RESULTS: Final = re.compile(r"\$\.(tools|errors)\b")
"""Begin of a path into what tools have answered."""


@attrs.frozen
class Request:
    """A request in the form that rules match. `sender` is the path of the requesting agent, or `user`.

    For a model, `contains` searches `searched`. `latest` has the tools that have answered since the model
    last spoke, each with its error ("" for a result). `trace` is the number of the message that began the
    request's trace.
    """

    action: str
    input: Any
    sender: str
    searched: Any = None
    latest: Mapping[str, str] | None = None
    trace: int | None = None


def misfits(when: When, request: Request, paths: Mapping[str, str]) -> list[str]:
    """Return the reasons why a request does not fit a rule; an empty list if it fits.

    `paths` has the tree paths of agents and populations, by their names in the file.
    """
    found: list[str] = []
    if when.action is not None and when.action != request.action:
        found.append(f"the action is not {when.action}")
    if when.from_ is not None and not is_from(request.sender, when.from_, paths):
        found.append(f"it is not from {when.from_}")
    if request.latest is not None and when.any is not True:
        found += _misfits_of_turn(when, request.latest)
    searched = request.input if request.searched is None else request.searched
    if when.contains is not None and not has_text(searched, when.contains):
        found.append(f"{when.contains!r} is nowhere in the input")
    if when.equals is not UNSET and not same(request.input, when.equals):
        found.append(f"the input is not {show(when.equals)}")
    for verdict in _verdicts(when, request):
        if not verdict.ok:
            found.append(f"{verdict.expected} is not so")
    return found


def tools_after(when: When) -> tuple[str, ...]:
    """Return the names of the tools in the `after` of a rule: the rule matches their results."""
    return () if when.after is UNSET else (when.after,) if isinstance(when.after, str) else when.after


def _misfits_of_turn(when: When, latest: Mapping[str, str]) -> list[str]:
    """Return why a rule for a model does not fit the last speaker: the user, or the tools in `latest`."""
    is_after_tools = when.after is not UNSET or any(_RESULTS.match(path) for path in when.match)
    if not is_after_tools:
        if not latest:
            return []
        why = ", ".join(f"{name} has failed: {error}" if error else name for name, error in latest.items())
        return [f'it is for what is said, and tools have answered last: {why}; "after" is for that']
    if not latest:
        return ["it is for results of tools, and none has answered last"]
    found: list[str] = []
    for name in tools_after(when):
        if name not in latest:
            found.append(f"{name} has not answered last")
        elif latest[name]:
            found.append(f"{name} has failed: {latest[name]}")
    return found


def is_from(sender: str, name: str, paths: Mapping[str, str]) -> bool:
    """Return whether a sender is the named agent, a member of the named population, or below one of these."""
    path = paths.get(name, name)
    return sender == path or (name != USER and sender.startswith(f"{path}/"))


def named_sender(sender: str, paths: Mapping[str, str]) -> str:
    """Return a sender's name in the file; for a descendant of a named agent, also the rest of its path."""
    known = [(path, name) for name, path in paths.items() if is_from(sender, name, paths)]
    if not known:
        return sender
    path, name = max(known, key=lambda each: len(each[0]))
    return name if sender == path else f"{name} ({sender[len(path) + 1 :]})"


def has_text(value: object, text: str) -> bool:
    """Return whether a text occurs in any value of plain data; the names of members are not searched."""
    if isinstance(value, str):
        return text in value
    return any(has_text(part, text) for _, part in inside(value))


def nearest(
    rules: Sequence[tuple[Rule, int]], request: Request, paths: Mapping[str, str]
) -> list[tuple[int, list[str]]]:
    """Return the indexes of the three rules closest to a request, and why the request does not fit each.

    Rules for another action come last. For a model, rules for the last speaker (the user, or the tools that
    have answered) come first. Among those, rules with more conditions that hold come first. `rules` also has
    the number of uses of each rule.
    """
    found: list[tuple[tuple[bool, int, int, int], int, list[str]]] = []
    for index, (rule, used) in enumerate(rules):
        reasons = misfits(rule.when, request, paths)
        other = rule.when.action not in (None, request.action)
        holds = _conditions(rule.when, request) - len(reasons) + other
        if not reasons and rule.times is not UNSET:
            reasons = [f"it has been used {used} of {rule.times} times"]
        latest, away = request.latest, 0  # how far the rule of a model is from who has spoken last
        if latest is not None and rule.when.any is not True and _misfits_of_turn(rule.when, latest):
            away = 1 if any(name in latest for name in tools_after(rule.when)) else 2
        found.append(((other, away, -holds, len(reasons)), index, reasons))
    return [(index, reasons) for _, index, reasons in sorted(found)[:3]]


def _conditions(when: When, request: Request) -> int:
    """Return the number of conditions of a rule, apart from its action."""
    given = [when.from_ is not None, when.contains is not None, when.equals is not UNSET]
    turn = 0 if request.latest is None or when.any is True else max(1, len(tools_after(when)))
    return sum(given) + turn + len(_verdicts(when, request))


def _verdicts(when: When, request: Request) -> list[Verdict]:
    """Return the verdicts on the `match` of a rule: for each path, whether the input meets it."""
    from ..judge import judge_match  # a file is checked without the judges of runs

    return judge_match(when.match, request.input)
