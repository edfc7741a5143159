"""Judges of agents that think: the tools called, and the amount of requests to models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system.model import Condition
from lmos_actors.system.values import show

from ._expect import judge_condition, judge_match
from ._judge import Judge
from ._model_talk import RECORDS, ModelTalk, calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.reports import CheckResult

    from ..model import CalledTool, CountBounds, Spending, Tools
    from ._model_talk import ModelRequestMade, ToolCallMade

SHOWN: Final = 8
"""Maximum number of calls that a result names."""

AMOUNTS: Final = ("tokens", "input_tokens", "output_tokens", "calls", "tools")


class TalkJudge(Judge):
    """Base class of the judges of requests to models."""

    records = RECORDS

    def __init__(self, check: Any, name: str, place: str, talk: ModelTalk) -> None:
        super().__init__(check, name, place)
        self.talk = talk
        if talk.owner is None:
            talk.owner = self

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        if self.talk.owner is self:  # else another judge passes the record on
            self.talk.record(kind, path, fields, now)

    def nothing(self, runs: Sequence[Sequence[ModelRequestMade]]) -> str:
        """Return the reason why there is nothing to judge; "" if there is something."""
        of = str(getattr(self.check, "of", ""))
        if self.talk.is_full:
            return "more requests to models than can be judged"
        if not runs:
            return f"{of} has asked no model"
        idle = [number for number, run in enumerate(runs, 1) if not run]
        which = f"run {idle[0]} of {of}" if idle and len(runs) > 1 else of
        return f"{which} has asked no model" if idle else ""


class ToolsJudge(TalkJudge):
    """The judge of `tools`: the calls of each run of a step, or of an agent."""

    check: Tools

    def __init__(self, check: Tools, name: str, place: str, talk: ModelTalk) -> None:
        super().__init__(check, name, place, talk)
        # a pattern without a condition matches every call of its tool
        self._never = [
            each if isinstance(each, str) else each.tool
            for each in (check.never or ())
            if isinstance(each, str) or (not each.match and each.failed is UNSET)
        ]
        self._sent: dict[tuple[str, str], float] = {}
        """When an agent first sent a message that does what a tool in `never` does."""

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        super().record(kind, path, fields, now)
        if kind == "sent" and self._never:
            action = str(fields.get("affordance"))
            for tool in self._never:
                if tool == action or tool.endswith(f"_{action}"):
                    self._sent.setdefault((str(fields.get("from")), tool), now)

    def result(self) -> CheckResult:
        expected = "; ".join(_words(self.check))
        runs = self.talk.of(self.check.of)
        why = self.nothing(runs) or self._unknown()
        if why:
            return self.verdict(False, expected, why)
        for number, requests in enumerate(runs, 1):
            calls = calls_of(requests)
            problem = next(self._problems(calls, requests), None)
            if problem is not None:
                which = f"run {number} of {self.check.of}: " if len(runs) > 1 else ""
                return self.verdict(False, expected, f"{which}{problem}; called: {_listing(calls)}")
        every = [call for requests in runs for call in calls_of(requests)]
        return self.verdict(True, expected, f"called: {_listing(every)}")

    def _unknown(self) -> str:
        """Return a message on a tool in the check that no model was offered; "" if there is no such tool.

        Such a tool may have a misspelt name.
        """
        offered = self.talk.offered()
        for name in _names(self.check):
            if name not in offered:
                return f'no model was offered a tool "{name}"{did_you_mean(name, offered)}'
        return ""

    def _problems(self, calls: list[ToolCallMade], requests: Sequence[ModelRequestMade]) -> Iterator[str]:
        check = self.check
        for pattern in check.called or ():
            count = sum(_fits(pattern, call) for call in calls)
            if any(not verdict.ok for verdict in judge_condition(_bounds(pattern), count)):
                yield f"{_word(pattern)}: {count} times"
        place = 0
        for pattern in check.in_order or ():
            while place < len(calls) and not _fits(pattern, calls[place]):
                place += 1
            if place == len(calls):
                yield f"{_word(pattern)} was not called in that order"
                return
            place += 1
        for pattern in check.never or ():
            found = next((call for call in calls if _fits(pattern, call)), None)
            if found is not None:
                yield f"{found} was called"
        askers = {request.asker for request in requests}
        begin = min((request.at for request in requests), default=0.0)
        for (asker, tool), at in self._sent.items():
            if asker in askers and at >= begin:
                yield f"{asker} has sent what the tool {tool} does"
        if check.only is not UNSET:
            other = next(
                (call for call in calls if call.state == "returned" and call.name not in check.only), None
            )
            if other is not None:
                yield f"{other} was called"


class SpendingJudge(TalkJudge):
    """The judge of `budget`: tokens, requests and calls of tools."""

    check: Spending

    def result(self) -> CheckResult:
        bounds: dict[str, CountBounds] = {
            key: value for key in AMOUNTS if (value := getattr(self.check, key)) is not None
        }
        expected = "; ".join(f"{key} {_bounds_word(value)}" for key, value in bounds.items())
        runs = self.talk.of(self.check.of)
        why = self.nothing(runs)
        if why:
            return self.verdict(False, expected, why)
        tokens = any("tokens" in key for key in bounds)
        uncounted = [
            one for requests in runs for one in requests if one.usage is not None and not sum(one.usage)
        ]
        if tokens and uncounted:
            saw = (
                f"answers of {uncounted[0].model} that do not say how many tokens they took: {len(uncounted)}"
            )
            return self.verdict(False, expected, saw)
        most: dict[str, int] = {}
        for number, requests in enumerate(runs, 1):
            spent = _spent(requests)
            for key, bound in bounds.items():
                if any(not verdict.ok for verdict in judge_condition(_condition(bound), spent[key])):
                    which = f"run {number} of {self.check.of}: " if len(runs) > 1 else ""
                    return self.verdict(False, expected, f"{which}{key} {spent[key]}")
                most[key] = max(most.get(key, 0), spent[key])
        each = " at most" if len(runs) > 1 else ""
        return self.verdict(True, expected, ", ".join(f"{key}{each} {count}" for key, count in most.items()))


def _spent(requests: Sequence[ModelRequestMade]) -> dict[str, int]:
    taken, given = (sum(one.tokens[side] for one in requests) for side in (0, 1))
    return {
        "tokens": taken + given,
        "input_tokens": taken,
        "output_tokens": given,
        "calls": len(requests),
        "tools": len(calls_of(requests)),
    }


# --- patterns


def _fits(pattern: str | CalledTool, call: ToolCallMade) -> bool:
    if isinstance(pattern, str):
        return call.name == pattern and call.state == "returned"
    wanted = "failed" if pattern.failed is True else "returned"
    if call.name != pattern.tool or call.state != wanted:
        return False
    return all(verdict.ok for verdict in judge_match(pattern.match, call.arguments))


def _bounds(pattern: str | CalledTool) -> Condition:
    if isinstance(pattern, str) or (pattern.equals, pattern.ge, pattern.le) == (UNSET, UNSET, UNSET):
        return Condition(ge=1)
    return _condition(pattern)


def _condition(bounds: CountBounds | CalledTool) -> Condition:
    return Condition(eq=bounds.equals, ge=bounds.ge, le=bounds.le)


def _names(check: Tools) -> list[str]:
    """Return the names of all tools in a check."""
    patterns = [*(check.called or ()), *(check.in_order or ()), *(check.never or ()), *(check.only or ())]
    return list(dict.fromkeys(each if isinstance(each, str) else each.tool for each in patterns))


def _words(check: Tools) -> Iterator[str]:
    if check.called is not UNSET:
        yield "called: " + ", ".join(map(_word, check.called))
    if check.in_order is not UNSET:
        yield "in order: " + ", ".join(map(_word, check.in_order))
    if check.never is not UNSET:
        yield "never: " + ", ".join(map(_word, check.never))
    if check.only is not UNSET:
        yield "only: " + ", ".join(check.only)


def _word(pattern: str | CalledTool) -> str:
    if isinstance(pattern, str):
        return pattern
    words = [pattern.tool]
    words += (
        ["with", " and ".join(_path_words(*each) for each in pattern.match.items())] if pattern.match else []
    )
    words += ["failed"] if pattern.failed is True else []
    bounds = _bounds_word(pattern)
    return " ".join([*words, bounds, "times"] if bounds else words)


def _path_words(path: str, condition: Any) -> str:
    if not isinstance(condition, Condition):
        return f"{path} {show(condition)}"
    given = {
        key: value for key in condition.__struct_fields__ if (value := getattr(condition, key)) is not UNSET
    }
    return f"{path} " + " ".join(f"{key} {show(value)}" for key, value in given.items())


def _bounds_word(bounds: CountBounds | CalledTool) -> str:
    given = (("exactly", bounds.equals), ("at least", bounds.ge), ("at most", bounds.le))
    return " and ".join(f"{words} {bound}" for words, bound in given if bound is not UNSET)


def _listing(calls: Sequence[ToolCallMade]) -> str:
    more = f", and {len(calls) - SHOWN} more" if len(calls) > SHOWN else ""
    return ", ".join(map(str, calls[:SHOWN])) + more if calls else "no tool"
