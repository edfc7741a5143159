"""Our plans against Erlang/OTP's supervisor: recorded stories, fresh ones, and plans that are wrong."""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.actors import ExitReason
from tests.supervision.otp import runtime
from tests.supervision.otp.corners import STOPPED_WHILE_DEAF
from tests.supervision.otp.generate import Teller
from tests.supervision.otp.record import have_erlang, tell_otp
from tests.supervision.otp.replay import Child, Decision, Plan, run_story
from tests.supervision.otp.stories import TABLE, Exit, Recorded, difference, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

TICKS_LIVE = 12


@pytest.fixture(scope="module")
def table() -> list[Recorded]:
    return read_table()


def differing(records: Iterable[Recorded], plan: type[Plan[Child]] = Plan) -> Iterable[str]:
    for record in records:
        text = difference(record.observed, run_story(record.story, plan))
        if text:
            yield f"{record.story}\n{text}"


def test_recorded_stories_end_as_in_otp(table: list[Recorded]) -> None:
    assert "\n\n".join(islice(differing(table), 3)) == ""


def test_the_table_holds_enough(table: list[Recorded]) -> None:
    assert len(table) >= 600
    assert TABLE.stat().st_size < 1_000_000
    answers = Counter(answer for record in table for answer in record.observed.answers)
    assert set(answers) == {
        *("ok", "not_found", "running", "restarting", "already_started", "already_present"),
        *("failed", "refused", "gone"),
    }
    words = Counter(
        (event.split()[1], *event.split()[4:]) for record in table for event in record.observed.events
    )
    for word in [("s",), ("f",), *(("e", end) for end in ("error", "normal", "shutdown", "killed"))]:
        assert words[word] > 50
    assert sum(isinstance(step, Exit) and len(step.names) > 1 for r in table for step in r.story.steps) > 50
    trees = [record.story.tree for record in table]
    assert {tree.strategy for tree in trees} == {"one_for_one", "one_for_all", "rest_for_one"}
    assert {tree.auto_shutdown for tree in trees} == {"never", "any_significant", "all_significant"}


@pytest.mark.skipif(not have_erlang(), reason="needs Erlang/OTP")
def test_fresh_stories_end_as_in_otp() -> None:
    seed = secrets.token_hex(8)
    stories = (
        story
        for story in Teller(Random(seed), 3).stories()
        if int(run_story(story).events[-1].split()[0]) < TICKS_LIVE
    )
    records = tell_otp(list(islice(stories, 60)))
    if not records:
        pytest.skip("this machine is too busy to keep a story's time")
    found = "\n\n".join(islice(differing(records), 3))
    assert found == "", f"seed {seed}"


@pytest.mark.slow
def test_real_agents_under_real_supervisors_end_as_in_otp(table: list[Recorded]) -> None:
    compared = 0
    for record in table:
        story = record.story
        # One that is told to stop does so at once here, and leaves undone what OTP's would still do first.
        if story == STOPPED_WHILE_DEAF or not runtime.exits_in_line(story):
            continue
        otp, here = runtime.as_seen_here(record.observed), runtime.run_story(story)
        assert difference(otp, here) == "", story
        compared += 1
    assert compared >= 600


# Each of these breaks one rule; the table has to notice.


class RestartsTransientAlways(Plan[Child]):
    def exited(self, child: Child, reason: ExitReason, now: float) -> Decision[Child]:
        transient = child.spec.restart == "transient"
        return super().exited(child, ExitReason("error") if transient else reason, now)


class RestartsPermanentAfterErrorsOnly(Plan[Child]):
    def exited(self, child: Child, reason: ExitReason, now: float) -> Decision[Child]:
        if child.spec.restart == "permanent" and reason.kind != "error":
            self.stopped(child)
            return Decision()
        return super().exited(child, reason, now)


class TakesShutdownForAnError(Plan[Child]):
    def exited(self, child: Child, reason: ExitReason, now: float) -> Decision[Child]:
        return super().exited(child, ExitReason("error") if reason.kind == "shutdown" else reason, now)


class KeepsTemporaryChildren(Plan[Child]):
    def _restart(self, child: Child) -> Decision[Child]:
        decision = super()._restart(child)
        kept = tuple(one for one in self.children if one in {*decision.start, *decision.forget})
        return decision._replace(start=kept, forget=())


class RestartsAllForRest(Plan[Child]):
    def _scope(self, child: Child) -> list[Child]:
        return list(reversed(self.children))


class RestartsRestForAll(Plan[Child]):
    def _scope(self, child: Child) -> list[Child]:
        order = list(self.children)
        return order[order.index(child) :][::-1]


class LeavesStoppedChildrenAlone(Plan[Child]):
    def _restart(self, child: Child) -> Decision[Child]:
        idle = {one for one in self.children if one.status == "stopped"}
        decision = super()._restart(child)
        return decision._replace(start=tuple(one for one in decision.start if one not in idle))


class StartsInReverse(Plan[Child]):
    def _restart(self, child: Child) -> Decision[Child]:
        decision = super()._restart(child)
        return decision._replace(start=decision.start[::-1])


class StopsInStartOrder(Plan[Child]):
    def _restart(self, child: Child) -> Decision[Child]:
        decision = super()._restart(child)
        return decision._replace(stop=decision.stop[::-1])


class EndsInStartOrder(Plan[Child]):
    def stop_order(self) -> list[Child]:
        return super().stop_order()[::-1]


class MovesRestartedToTheEnd(Plan[Child]):
    def exited(self, child: Child, reason: ExitReason, now: float) -> Decision[Child]:
        decision = super().exited(child, reason, now)
        if decision.start:
            del self.children[child]
            self.children[child] = None
        return decision


class AllowsOneLess(Plan[Child]):
    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        return super()._within_limit(cause, now) and len(self._window) < self.spec.max_restarts


class AllowsOneMore(Plan[Child]):
    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        return super()._within_limit(cause, now) or len(self._window) == self.spec.max_restarts + 1


class ForgetsNoRestart(Plan[Child]):
    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        return super()._within_limit(cause, 0.0)


class ForgetsRestartsTooSoon(Plan[Child]):
    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        while self._window and now - self._window[0] > self.spec.max_seconds / 2:
            self._window.popleft()
        return super()._within_limit(cause, now)


class DoesNotCountAttempts(Plan[Child]):
    def try_again(self, child: Child, now: float) -> Decision[Child]:
        if child in self._pending:
            self._pending[child] = None
        return super().try_again(child, now)


class CountsAttemptsAtOnce(Plan[Child]):
    def start_failed(self, child: Child, cause: BaseException | None, now: float) -> Decision[Child]:
        decision = super().start_failed(child, cause, now)
        self._pending[child] = None
        return decision if self._within_limit(cause, now) else self._give_up(child)


class RetriesTheFirstInsteadOfTheFailed(Plan[Child]):
    def start_failed(self, child: Child, cause: BaseException | None, now: float) -> Decision[Child]:
        first = next((one for one in self.children if one.status == "restarting"), child)
        return super().start_failed(first, cause, now)


class LeavesTheFirstRestarting(Plan[Child]):
    def _settle(self, failed: Child) -> None:
        pass


class RetriesThoughTerminated(Plan[Child]):
    def stopped(self, child: Child) -> bool:
        pending = dict(self._pending)
        forgotten = super().stopped(child)
        self._pending.update(pending)
        return forgotten


class NeverShutsDown(Plan[Child]):
    def _end_after(self, significant: bool) -> None:
        return None


class ShutsDownForAnybody(Plan[Child]):
    def _end_after(self, significant: bool) -> Any:
        return super()._end_after(True)


class TakesAllForAny(Plan[Child]):
    def _end_after(self, significant: bool) -> Any:
        self._significant.clear()
        return super()._end_after(significant)


class TakesAnyForAll(Plan[Child]):
    def _end_after(self, significant: bool) -> Any:
        return None if self._significant else super()._end_after(significant)


class CountsStoppedAsSignificant(Plan[Child]):
    def stopped(self, child: Child) -> bool:
        forgotten = super().stopped(child)
        if child.spec.significant and not forgotten:
            self._significant[child] = None
        return forgotten


class StartsTwice(Plan[Child]):
    def check_restart(self, child: Child | None) -> Any:
        return "not_found" if child is None else "ok"


class DeletesTheRunning(Plan[Child]):
    def check_delete(self, child: Child | None) -> Any:
        return "not_found" if child is None else "ok"


class TakesNamesAgain(Plan[Child]):
    def check_start(self, taken: Child | None) -> Any:
        return "ok" if taken is None or taken.status == "stopped" else "already_started"


class CallsRestartingStarted(Plan[Child]):
    def check_start(self, taken: Child | None) -> Any:
        return "ok" if taken is None else "already_started"


BROKEN = [plan for plan in Plan.__subclasses__() if plan.__module__ == __name__]


@pytest.mark.parametrize("plan", BROKEN, ids=lambda plan: plan.__name__)
def test_a_broken_rule_is_noticed(table: list[Recorded], plan: type[Plan[Child]]) -> None:
    assert next(iter(noticed(table, plan)), "")


def noticed(table: list[Recorded], plan: type[Plan[Child]]) -> Iterable[str]:
    """The differences, where a broken plan that makes the replay itself stumble is one too."""
    for record in table:
        try:
            yield from differing([record], plan)
        except (KeyError, IndexError) as error:
            yield repr(error)
