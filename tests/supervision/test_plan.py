from __future__ import annotations

from itertools import product
from random import Random
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.actors import NORMAL, SHUTDOWN, ExitReason, Status
from lmos_actors.supervision import Backoff, ChildSpec, Counts, SupervisorSpec
from lmos_actors.supervision._plan import Decision, Plan
from tests.matrix import examples
from tests.rows import each_row

BOOM = RuntimeError("boom")
CRASH = ExitReason("error", error=BOOM)
NOTHING: Decision[Any] = Decision()


class Child:
    def __init__(self, spec: ChildSpec[Any] | SupervisorSpec) -> None:
        self.spec = spec
        self.status: Status = "stopped"

    def __repr__(self) -> str:
        return self.spec.name


def running(*children: ChildSpec[Any] | SupervisorSpec, **options: Any) -> Plan[Child]:
    plan: Plan[Child] = Plan(SupervisorSpec("s", children, **options))
    for spec in plan.spec.children:
        child = Child(spec)
        plan.add(child)
        plan.started(child)
    return plan


def child(name: str, **options: Any) -> ChildSpec[Any]:
    return ChildSpec(name, object, **options)


def named(plan: Plan[Child], name: str) -> Child:
    return next(one for one in plan.children if one.spec.name == name)


def names(children: tuple[Child, ...]) -> str:
    return "".join(one.spec.name for one in children)


def carry_out(plan: Plan[Child], decision: Decision[Child], fails: str = "") -> Decision[Child]:
    """As a supervisor does; what is decided when a child of `fails` has failed to start."""
    for one in decision.stop:
        one.status = "stopping"
        plan.stopped(one)
    for one in decision.start:
        if one.spec.name in fails:
            return plan.start_failed(one, BOOM, 0.0)
        plan.started(one)
    return NOTHING


# Who goes down with whom: `b` of a, b, c, d ends, where d is temporary and c has been stopped on request.

STOPPED_AND_STARTED = {
    "one_for_one": ("", "", "b"),
    "rest_for_one": ("d", "d", "bc"),
    "one_for_all": ("da", "d", "abc"),
}


@each_row(
    ("strategy", "restart", "reason"),
    list(product(STOPPED_AND_STARTED, ("permanent", "transient", "temporary"), (CRASH, NORMAL, SHUTDOWN))),
)
def test_restart_kind_by_reason_by_strategy(strategy: str, restart: str, reason: ExitReason) -> None:
    plan = running(
        child("a"),
        child("b", restart=restart),
        child("c"),
        child("d", restart="temporary"),
        strategy=strategy,
    )
    plan.stopped(named(plan, "c"))
    b = named(plan, "b")
    decision = plan.exited(b, reason, 0.0)
    restarted = restart == "permanent" or (restart == "transient" and reason is CRASH)
    expected = STOPPED_AND_STARTED[strategy] if restarted else ("", "b" if restart == "temporary" else "", "")
    assert (names(decision.stop), names(decision.forget), names(decision.start)) == expected
    assert (decision.again, decision.delay, decision.end) == (None, 0.0, None)
    assert b.status == ("restarting" if restarted else "stopped")
    assert (b in plan.children) == (restart != "temporary")
    carry_out(plan, decision)
    assert all(one.status == "running" for one in decision.start)
    assert ("d" in names(tuple(plan.children))) == ("d" not in names(decision.stop))


def test_a_restarted_child_keeps_its_place() -> None:
    plan = running(*map(child, "abc"), strategy="rest_for_one")
    carry_out(plan, plan.exited(named(plan, "b"), CRASH, 0.0))
    assert names(tuple(plan.children)) == "abc"
    assert "".join(map(str, plan.stop_order())) == "cba"


def test_an_exit_of_a_child_that_is_stopped_or_gone_is_nothing() -> None:
    plan = running(child("a"), child("b"))
    a, b = plan.children
    plan.stopped(a)
    plan.stopped(b)
    plan.remove(b)
    b.status = "running"
    assert plan.exited(a, CRASH, 0.0) == plan.exited(b, CRASH, 0.0) == NOTHING


# Attempts that fail


def test_where_another_child_cannot_start_its_restart_is_tried_again() -> None:
    plan = running(*map(child, "abcd"), strategy="one_for_all")
    c, b = named(plan, "c"), named(plan, "b")
    decision = carry_out(plan, plan.exited(c, CRASH, 0.0), fails="b")
    assert decision == Decision(again=b)
    assert [str(status) for _, status in plan.which()] == ["running", "restarting", "stopped", "stopped"]
    again = plan.try_again(b, 0.0)
    assert (names(again.stop), names(again.start)) == ("a", "abcd")


def test_those_before_the_one_that_failed_stay_up_in_rest_for_one() -> None:
    plan = running(*map(child, "abcd"), strategy="rest_for_one")
    decision = carry_out(plan, plan.exited(named(plan, "b"), CRASH, 0.0), fails="d")
    assert decision.again is named(plan, "d")
    again = plan.try_again(named(plan, "d"), 0.0)
    assert (names(again.stop), names(again.start)) == ("", "d")


def test_each_attempt_is_counted_when_it_is_made() -> None:
    plan = running(child("a"), max_restarts=2)
    a = named(plan, "a")
    decision = carry_out(plan, plan.exited(a, CRASH, 0.0), fails="a")
    assert decision == Decision(again=a)
    decision = carry_out(plan, plan.try_again(a, 0.0), fails="a")
    assert decision == Decision(again=a)
    assert plan.try_again(a, 0.0) == Decision(end="intensity", causes=(BOOM, BOOM, BOOM))
    assert plan.stop_order() == []


@pytest.mark.parametrize("instead", ["stopped", "started", "removed", "restarted with another"])
def test_an_attempt_that_is_no_longer_wanted(instead: str) -> None:
    plan = running(child("a"), child("b"), strategy="one_for_all", max_restarts=9)
    a, b = plan.children
    carry_out(plan, plan.exited(b, CRASH, 0.0), fails="b")
    if instead == "stopped":
        plan.stopped(b)
    elif instead == "started":
        plan.started(b)
    elif instead == "removed":
        plan.remove(b)
    else:
        carry_out(plan, plan.exited(a, CRASH, 0.0))
    assert plan.try_again(b, 0.0) == NOTHING


def test_attempts_of_those_who_go_down_with_another_are_no_longer_wanted() -> None:
    plan = running(*map(child, "abc"), strategy="rest_for_one", max_restarts=9)
    a, b, c = plan.children
    carry_out(plan, plan.exited(c, CRASH, 0.0), fails="c")
    carry_out(plan, plan.exited(a, CRASH, 0.0), fails="b")
    assert [status for _, status in plan.which()] == ["running", "restarting", "stopped"]
    assert plan.try_again(c, 0.0) == NOTHING
    assert plan.try_again(b, 0.0) == Decision(start=(b, c))


# Back-off


def with_backoff(strategy: str = "one_for_one", **options: Any) -> Plan[Child]:
    backoff = Backoff(initial=1.0, factor=2.0, max=8.0, jitter=0.0)
    return running(
        child("a"), child("b", backoff=backoff), child("t", restart="temporary"), strategy=strategy, **options
    )


def test_with_a_backoff_the_others_go_at_once_and_the_attempt_comes_later() -> None:
    plan = with_backoff("one_for_all")
    a, b, t = plan.children
    decision = plan.exited(b, CRASH, 0.0)
    assert decision == Decision(stop=(t, a), forget=(t,), again=b, delay=1.0)
    carry_out(plan, decision)
    assert [status for _, status in plan.which()] == ["stopped", "restarting"]
    assert plan.try_again(b, 1.0) == Decision(start=(a, b))


def test_the_backoff_grows_and_begins_again_after_a_long_life() -> None:
    plan = with_backoff(max_restarts=99)
    b = named(plan, "b")
    now, delays = 0.0, []
    for up in (0.0, 0.5, 7.5, 8.0, 0.0):
        decision = plan.exited(b, CRASH, now + up)
        delays.append(decision.delay)
        now += up + decision.delay
        carry_out(plan, plan.try_again(b, now))
    assert delays == [1.0, 2.0, 4.0, 1.0, 2.0]


def test_with_a_backoff_nobody_waits_for_a_restart_that_cannot_be() -> None:
    plan = with_backoff(max_restarts=1)
    b = named(plan, "b")
    assert plan.exited(b, CRASH, 0.0).delay == 1.0
    decision = plan.try_again(b, 1.0)
    assert decision.start == (b,)
    assert plan.start_failed(b, BOOM, 1.0) == Decision(end="intensity", causes=(BOOM, BOOM))


def test_a_failed_attempt_with_a_backoff_is_counted_once() -> None:
    plan = with_backoff(max_restarts=2)
    b = named(plan, "b")
    plan.exited(b, CRASH, 0.0)
    plan.try_again(b, 1.0)
    assert plan.start_failed(b, BOOM, 1.0) == Decision(again=b, delay=2.0)
    assert plan.try_again(b, 3.0) == Decision(start=(b,))


def test_the_backoff_of_a_forgotten_child_is_forgotten() -> None:
    plan = with_backoff(max_restarts=99)
    b = named(plan, "b")
    for _ in range(2):
        assert plan.exited(b, CRASH, 0.0).delay == 1.0
        plan.stopped(b)
        plan.remove(b)
        plan.add(b)
        plan.started(b)


def test_jitter_is_drawn_from_what_the_plan_was_given() -> None:
    spec = SupervisorSpec("s", [child("a", backoff=Backoff(initial=1.0, jitter=0.5))])
    plan: Plan[Child] = Plan(spec, lambda: 0.0)
    a = Child(spec.children[0])
    plan.add(a)
    plan.started(a)
    assert plan.exited(a, CRASH, 0.0).delay == 0.5


# Limits


@given(
    st.integers(0, 4),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.lists(st.integers(0, 8).map(lambda quarters: quarters / 4), max_size=30),
)
def test_the_window_holds_what_is_at_most_max_seconds_old(
    most: int, seconds: float, gaps: list[float]
) -> None:
    plan = running(child("a"), max_restarts=most, max_seconds=seconds)
    a = named(plan, "a")
    times: list[float] = []
    causes: list[Exception] = []
    for gap in gaps:
        times.append((times[-1] if times else 0.0) + gap)
        causes.append(ValueError(len(times)))
        decision = plan.exited(a, ExitReason("error", error=causes[-1]), times[-1])
        within = [cause for time, cause in zip(times, causes, strict=True) if times[-1] - time <= seconds]
        if len(within) > most:
            assert decision == Decision(end="intensity", causes=tuple(within))
            return
        assert decision == Decision(start=(a,))
        plan.started(a)


def test_exits_without_an_exception_count_without_a_cause() -> None:
    plan = running(child("a"), max_restarts=0)
    assert plan.exited(named(plan, "a"), NORMAL, 0.0) == Decision(end="intensity")


# Significant children


def significant(name: str, restart: str = "temporary") -> ChildSpec[Any]:
    return child(name, restart=restart, significant=True)


def ends(plan: Plan[Child], order: str, reason: ExitReason) -> list[str | None]:
    return [plan.exited(named(plan, name), reason, 0.0).end for name in order]


@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN])
def test_auto_shutdown(reason: ExitReason) -> None:
    children = (significant("a"), child("b", restart="transient"), significant("c", "transient"))
    assert ends(running(*children, auto_shutdown="any_significant"), "ba", reason) == [None, "auto_shutdown"]
    assert ends(running(*children, auto_shutdown="all_significant"), "bac", reason) == [
        None,
        None,
        "auto_shutdown",
    ]


def test_a_crash_of_a_significant_child_counts_if_it_is_not_restarted() -> None:
    children = (significant("a"), significant("b", "transient"))
    assert ends(running(*children, auto_shutdown="any_significant"), "ba", CRASH) == [None, "auto_shutdown"]


def test_a_significant_child_between_two_lives_is_not_at_its_end() -> None:
    plan = running(significant("a"), significant("b", "transient"), auto_shutdown="all_significant")
    a, b = plan.children
    carry_out(plan, plan.exited(b, CRASH, 0.0), fails="b")
    assert plan.exited(a, NORMAL, 0.0).end is None
    carry_out(plan, plan.try_again(b, 0.0))
    assert plan.exited(b, NORMAL, 0.0).end == "auto_shutdown"


def test_a_significant_child_that_went_down_with_another_counts_again_while_it_is_tried() -> None:
    plan = running(
        significant("a"),
        child("b"),
        significant("c", "transient"),
        strategy="rest_for_one",
        auto_shutdown="all_significant",
    )
    a, b, c = plan.children
    carry_out(plan, plan.exited(b, CRASH, 0.0), fails="c")
    assert c.status == "restarting"
    assert plan.exited(a, NORMAL, 0.0).end is None


def test_significant_children_that_were_told_to_stop_do_not_keep_the_others_up() -> None:
    plan = running(significant("a"), significant("b", "transient"), auto_shutdown="all_significant")
    a, b = plan.children
    assert plan.stopped(a)
    assert not plan.stopped(b)
    plan.started(b)
    assert plan.exited(b, NORMAL, 0.0).end == "auto_shutdown"


# Requests

ANSWERS: dict[Status, tuple[str, str, str, str]] = {
    "starting": ("already_started", "ok", "running", "running"),
    "running": ("already_started", "ok", "running", "running"),
    "stopping": ("already_started", "ok", "running", "running"),
    "restarting": ("already_present", "ok", "restarting", "restarting"),
    "stopped": ("already_present", "ok", "ok", "ok"),
}


@pytest.mark.parametrize("status", [None, *ANSWERS])
def test_answers_to_requests(status: Status | None) -> None:
    plan = running(child("a"))
    a = named(plan, "a") if status else None
    if a is not None and status is not None:
        a.status = status
    expected = ANSWERS[status] if status else ("ok", "not_found", "not_found", "not_found")
    assert expected == (
        plan.check_start(a),
        plan.check_terminate(a),
        plan.check_restart(a),
        plan.check_delete(a),
    )


def test_children_are_counted_by_kind_and_activity() -> None:
    plan = running(child("a"), SupervisorSpec("b"), child("c"))
    plan.stopped(named(plan, "c"))
    assert plan.count() == Counts(specs=3, active=2, supervisors=1, workers=2)


# All together


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32))
def test_whatever_happens_the_tree_stays_in_order(seed: int) -> None:
    """Random children, exits, failing starts and requests; a supervisor with one message after another."""
    random = Random(seed)
    kinds = ("permanent", "transient", "temporary")
    specs = [child(name, restart=random.choice(kinds)) for name in "abcdef"]
    strategy = random.choice(("one_for_one", "one_for_all", "rest_for_one"))
    plan = running(*specs, strategy=strategy, max_restarts=random.choice((1, 5, 50)))
    inbox: list[Decision[Child]] = []
    for _ in range(40):
        if inbox:
            due = inbox.pop(0).again
            assert due is not None
            decision = plan.try_again(due, 0.0)
        elif plan.children and random.random() < 0.3:
            one = random.choice(list(plan.children))
            (plan.started if plan.check_restart(one) == "ok" else plan.stopped)(one)
            continue
        else:
            alive = plan.stop_order()
            if not alive:
                return
            decision = plan.exited(random.choice(alive), random.choice((CRASH, NORMAL, SHUTDOWN)), 0.0)
        check_order(plan, decision)
        if decision.end:
            assert not decision.start
            return
        decision = carry_out(plan, decision, fails=random.choice(("", "", "a", "bd", "ce")))
        if decision.again is not None:
            inbox.append(decision)
        assert {one.status for one in plan.children} <= {"running", "restarting", "stopped"}
        waiting = {one for one in plan.children if one.status == "restarting"}
        assert waiting <= {due.again for due in inbox}


def check_order(plan: Plan[Child], decision: Decision[Child]) -> None:
    order = list(plan.children)
    stops, starts = [order.index(one) for one in decision.stop], [order.index(one) for one in decision.start]
    assert stops == sorted(stops, reverse=True)
    assert starts == sorted(starts)
    assert all(one.status == "running" for one in decision.stop)
    assert all(one.spec.restart != "temporary" for one in decision.start)
    assert all(one.spec.restart == "temporary" for one in decision.forget)
    assert {one for one in decision.stop if one.spec.restart != "temporary"} <= set(decision.start)


class Unlooked(dict[Child, None]):
    """Children that nobody may walk through."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("walked through the children")

    __reversed__ = items = keys = values = __iter__


def test_one_for_one_never_walks_through_the_children() -> None:
    significants = [significant(name, "transient") for name in "abc"]
    plan = running(*significants, child("t", restart="temporary"), auto_shutdown="all_significant")
    a, b, _, t = plan.children
    plan.children = Unlooked(plan.children)
    carry_out(plan, plan.exited(a, CRASH, 0.0), fails="a")
    carry_out(plan, plan.try_again(a, 0.0))
    assert plan.exited(a, NORMAL, 0.0) == plan.exited(b, NORMAL, 0.0) == NOTHING
    assert plan.exited(t, CRASH, 0.0) == Decision(forget=(t,))
    with pytest.raises(AssertionError, match="walked"):
        plan.stop_order()
