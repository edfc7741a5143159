"""Judges: what each check makes of a run, and that nothing passes by accident."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from lmos_actors import Agent as RealAgent, Property, Secret, prop
from lmos_actors.files import Duration
from lmos_actors.scenario import Compare
from lmos_actors.scenario.formulas import (
    AgentState,
    FormulaProblem,
    compile_formula,
    fields_known,
    known_names,
    state_of,
)
from lmos_actors.scenario.judge import name_of
from lmos_actors.scenario.model import (
    Always,
    AnyCheck,
    Below,
    Causal,
    Converges,
    Eventually,
    Latency,
    Measure,
    Message,
    Never,
    Restarts,
    Series,
    Statistics,
    Trace,
)
from tests.rows import each_row
from tests.scenario.judged import Agent, Run, peers

SECOND = Duration(1.0)


def measure(**series: tuple[str, str, str]) -> Measure:
    return Measure(
        every=SECOND,
        series={name: Series(agg=agg, of=of, expr=expr) for name, (agg, of, expr) in series.items()},  # type: ignore[arg-type]
    )


def never(expr: str, of: str | None = None, **when: Any) -> Never:
    return never_when(expr=expr, of=of, **when)


def never_when(of: str | None = None, **when: Any) -> Never:
    return msgspec.convert({"check": "never", "of": of, "when": when}, Never)


# --- always and never


def test_always_holds_after_every_turn() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(Always(of="ann", expr="state.n <= 2"))
    for n in (1, 2):
        run.turn(ann, n=n)
    found = run.verdict(3.0)
    assert found.ok
    assert (found.name, found.kind, found.place) == ("always state.n <= 2", "always", "s.yaml:1:1")
    assert (found.expected, found.saw) == ("always state.n <= 2", "so at each of 5 looks")


def test_always_tells_when_whose_and_which_values() -> None:
    ann = Agent("ann", {"n": 0, "m": 7})
    run = Run(ann=ann).judged(Always(of="ann", expr="state.n <= 2 or state.m == 1"))
    run.at(1.5).turn(ann, n=3)
    run.at(2.0).turn(ann, n=0)  # it is well again, and too late
    found = run.verdict()
    assert not found.ok
    assert found.at == 1.5
    assert found.saw == "at 1.5 s ann: state.n = 3, state.m = 7"


def test_always_looks_between_turns_at_the_next_record_and_at_samples() -> None:
    ann = Agent("ann", {"n": 0})
    check = Always(of="ann", expr="state.n == 0")
    run = Run(ann=ann).judged(check)
    ann.state = {"n": 1}  # as a timer's turn would, which the log does not tell of
    run.record("delivered", "ann")
    assert not run.verdict().ok
    run = Run(ann=ann).judged(check)
    run.sample(1.0)
    ann.state = {"n": 0}
    assert run.verdict().at == 1.0


def test_always_looks_once_more_at_the_end() -> None:
    ann = Agent("ann", {"n": 3})
    found = Run(ann=ann).judged(Always(of="ann", expr="state.n == 0")).verdict(9.0)
    assert (found.ok, found.at) == (False, 9.0)


def test_an_event_and_another_agents_message_are_in_the_middle_of_a_turn() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann, bob=Agent("bob")).judged(Always(of="ann", expr="state.n == 0"))
    run.record("delivered", "ann")
    ann.state = {"n": 1}
    run.record("event", "ann", event="x")
    run.record("sent", "bob", from_="ann")
    ann.state = {"n": 0}
    run.record("answered", "ann")
    assert run.verdict().ok


def test_after_the_last_look_nothing_is_looked_at() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(Always(of="ann", expr="state.n == 0"))
    run.judges.judge_final_state(1.0)
    run.turn(ann, n=1)  # it is being stopped
    run.judges.judge_final_state(2.0)
    assert run.judges.end()[0].ok


def test_of_a_population_the_first_five_are_named_and_all_counted() -> None:
    agents = peers(20, n=0)
    run = Run(peer=agents).judged(Always(of="peer", expr="state.n == 0"))
    for agent in agents[4:14]:
        run.at(2.0).turn(agent, n=1)
    run.sample(3.0)
    assert run.verdict().saw == (
        "at 2 s peer/4: state.n = 1; 10 agents: peer/4, peer/5, peer/6, peer/7, peer/8, ..."
    )


def test_an_agent_just_being_started_is_looked_at_once_it_is_there() -> None:
    agents = peers(1, n=1)
    run = Run(peer=agents).judged(Always(of="peer", expr="state.n == 0"))
    run.unstarted["peer/0"] = "peer"
    run.record("delivered", "peer/0")
    assert not run.judges._judges[0].result().ok  # nothing seen yet
    run.unstarted.clear()
    run.at(2.0).record("answered", "peer/0")
    assert run.verdict(3.0).at == 2.0


def test_only_those_of_the_name_are_looked_at() -> None:
    ann, bob = Agent("ann", {"n": 0}), Agent("bob", {"n": 9})
    run = Run(ann=ann, bob=bob).judged(Always(of="ann", expr="state.n == 0"))
    run.turn(bob)
    run.record("delivered", "root/unknown")
    assert run.verdict(1.0).ok
    assert not Run(ann=ann, bob=bob).judged(Always(of="*", expr="state.n == 0")).verdict().ok


def test_one_agent_of_a_population_may_be_meant() -> None:
    agents = peers(3, n=0)
    run = Run(peer=agents, **{"peer/1": agents[1]}).judged(Always(of="peer/1", expr="state.n == 0"))
    run.turn(agents[0], n=1)
    assert run.verdict().ok
    run = Run(peer=agents, **{"peer/1": agents[1]}).judged(Always(of="peer/1", expr="state.n == 0"))
    run.turn(agents[1], n=1)
    assert not run.verdict().ok


@pytest.mark.parametrize("check", [Always(of="ann", expr="state.n == 0"), never("state.n > 0", of="ann")])
def test_who_does_not_run_is_not_looked_at(check: AnyCheck) -> None:
    ann = Agent("ann", None)
    run = Run(ann=ann).judged(check)
    run.record("delivered", "ann")
    run.sample(1.0)
    found = run.verdict()
    assert not found.ok  # nothing passes by accident
    assert found.saw == "it was never looked at: there was no agent, and no sample, to look at"
    ann.state = {"n": 0}
    run = Run(ann=ann).judged(check)
    run.sample(1.0)
    ann.state = None
    assert run.verdict().ok


@pytest.mark.parametrize(
    ("expr", "saw"),
    [
        ("state.m == 0", "cannot be computed: state.m has no value"),
        ("state.name < 3", 'cannot be computed: "ann" < 3: numbers, or texts, can be compared'),
        ("state.n", "cannot be computed: state.n is 0, which is neither true nor false"),
    ],
)
@pytest.mark.parametrize("kind", [Always, never])
def test_what_cannot_be_computed_fails_with_words(expr: str, saw: str, kind: Any) -> None:
    run = Run(ann=Agent("ann", {"n": 0, "name": "ann"})).judged(kind(of="ann", expr=expr))
    run.sample(1.0)
    assert run.verdict().saw == f"at 1 s ann: {saw}"


def test_never_is_the_opposite() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(never("state.n > 2", of="ann"))
    run.turn(ann, n=2)
    assert run.verdict().ok
    run = Run(ann=ann).judged(never("state.n > 2", of="ann"))
    run.at(4.0).turn(ann, n=3)
    found = run.verdict()
    assert (found.ok, found.at, found.expected) == (False, 4.0, "never state.n > 2")


def test_never_outside_of_faults() -> None:
    ann = Agent("ann", {"n": 0})
    check = never("state.n > 2", of="ann", fault_free=True)
    run = Run(ann=ann).judged(check)
    run.sample(1.0)
    run.faulty = True
    run.at(2.0).turn(ann, n=3)
    run.turn(ann, n=0)
    run.faulty = False
    found = run.verdict()
    assert found.ok
    assert found.expected == "never state.n > 2 outside of faults"
    run = Run(ann=ann).judged(check)
    run.at(2.0).turn(ann, n=3)
    assert not run.verdict().ok
    run = Run(ann=ann).judged(check)
    run.faulty = True
    run.sample(1.0)
    assert "never looked at" in run.verdict().saw


# --- dead letters

LETTER = never_when(dead_letter=True).when


def test_no_dead_letter() -> None:
    found = Run(ann=Agent("ann")).judged(Never(when=LETTER)).verdict()
    assert (found.ok, found.expected, found.saw) == (True, "no dead letter", "none")
    assert found.name == "never dead_letter"


def test_a_dead_letter_counts_until_the_last_agent_has_stopped() -> None:
    run = Run(ann=Agent("ann")).judged(Never(when=LETTER))
    run.judges.judge_final_state(1.0)
    for time in (2.0, 3.0):
        run.at(time).record("dead_letter", "ann", reason="stopped", affordance="ask", from_="bob")
    (found,) = run.judges.end()
    assert not found.ok
    assert found.at == 2.0
    assert found.saw == "2, the first for ann.ask (stopped) at 2 s"


def test_a_dead_letter_outside_of_faults() -> None:
    checks = (never_when(dead_letter=True, fault_free=True), Never(when=LETTER))
    run = Run(ann=Agent("ann")).judged(*checks)
    run.faulty = True
    run.record("dead_letter", "ann", reason="full", affordance="ask")
    assert [found.ok for found in run.end()] == [True, False]
    run.judged(*checks).faulty = False
    run.record("dead_letter", "ann", reason="full", affordance="ask")
    assert [found.ok for found in run.end()] == [False, False]


# --- mailboxes and counters


def test_the_fullest_instant_of_a_mailbox_is_seen() -> None:
    """Five messages are sent, then taken one by one: four are seen at the last `sent`, the fifth is not."""
    ann = Agent("ann")
    run = Run(ann=ann).judged(
        Always(of="ann", expr="mailbox.depth <= 4"), Always(of="ann", expr="mailbox.waiting <= 5")
    )
    for _ in range(5):
        run.record("sent", "ann")
        ann.accepted += 1
    for _ in range(5):
        ann.begun += 1
        run.record("delivered", "ann")
        ann.handled += 1
        run.record("answered", "ann")
    full, not_full = run.end()
    assert (full.ok, full.saw) == (False, "at 0 s ann: mailbox.depth = 5")
    assert not_full.ok


def test_all_counters_of_a_mailbox() -> None:
    extra = SimpleNamespace(cancelled=1, dropped=2, dead_lettered=3, refused=4)
    ann = Agent("ann", accepted=9, begun=7, handled=5, inline=1, incarnation=3, extra=extra, running=1)
    values = {
        "mailbox.depth": 2,
        "mailbox.waiting": 2,
        "mailbox.size": 8,
        "mailbox.accepted": 10,
        "mailbox.handled": 6,
        "mailbox.cancelled": 1,
        "mailbox.dropped": 2,
        "mailbox.dead_lettered": 3,
        "mailbox.refused": 4,
        "mailbox.running": 1,
        "restarts": 2,
        "delivered": 3,
    }
    run = Run(ann=ann).judged(*(Always(of="ann", expr=f"{name} == {n}") for name, n in values.items()))
    for judge in run.judges._judges:  # looked at only when all has been delivered
        judge.records = ()
    for _ in range(3):
        run.record("delivered", "ann")
    assert [found.saw for found in run.end() if not found.ok] == []
    ann.extra = None
    (found,) = Run(ann=ann).judged(Always(of="ann", expr="mailbox.dropped == 0")).end()
    assert found.ok


@pytest.mark.parametrize(
    ("check", "ok", "saw"),
    [
        (Restarts(of="ann", equals=2), True, "2"),
        (Restarts(of="ann", equals=1), False, "2"),
        (Restarts(of="ann", ge=1, le=1), False, "2"),
        (Restarts(of="peer", equals=3), True, "3"),
        (Restarts(of="*", equals=5), True, "5"),
        (Restarts(of="branch", equals=4), True, "4"),
        (Restarts(of="nobody", equals=0), False, "it cannot be computed: nobody has no agents"),
        (Statistics(of="ann", counter="accepted", equals=7), True, "7"),
        (Statistics(of="peer", counter="accepted", ge=1), False, "0"),
        (Statistics(of="ann", counter="restarts", le=2), True, "2"),
        (Statistics(of="nobody", counter="accepted", equals=0), False, "it cannot be computed"),
    ],
)
def test_numbers_at_the_end(check: AnyCheck, ok: bool, saw: str) -> None:
    agents = peers(3)
    for agent in agents:
        agent.incarnation = 2
    run = Run(ann=Agent("ann", accepted=7, incarnation=3), peer=agents).judged(check)
    run.supervisors = {"branch": 4}
    found = run.verdict()
    assert found.ok is ok
    assert found.saw.startswith(saw)


def test_numbers_are_taken_while_the_agents_are_there() -> None:
    ann = Agent("ann")
    run = Run(ann=ann).judged(Restarts(of="ann", equals=0))
    run.judges.judge_final_state(1.0)
    run.cast.clear()
    assert run.judges.end()[0].ok


def test_latency_is_judged_by_its_bounds_and_needs_enough_samples() -> None:
    check = Latency(of="ask", max=Below(lt=SECOND), p95=Below(le=SECOND))
    run = Run().judged(check)
    run.times["ask"] = [0.5] * 20
    found = run.verdict()
    assert (found.ok, found.expected, found.saw) == (True, "max less than 1s and p95 at most 1s", "500ms")
    run.times["ask"] = [0.5] * 19
    found = run.judged(check).verdict()
    assert (found.ok, found.expected) == (False, "p95 at most 1s")
    assert found.saw == "19 samples: it cannot be computed"
    run.times["ask"] = []
    assert not run.judged(check).verdict().ok


# --- eventually


def test_eventually_comes_true_in_time() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(Eventually(name="done", of="ann", expr="state.n == 3", by=Duration(2.0)))
    run.at(1.0).turn(ann, n=1)
    assert not run.judges.met("done")
    run.at(1.5).turn(ann, n=3)
    assert run.judges.met("done")
    run.at(1.7).turn(ann, n=0)  # it need not stay so
    found = run.verdict(9.0)
    assert (found.ok, found.at, found.saw) == (True, 1.5, "it came true at 1.5 s")
    assert found.expected == "state.n == 3 by 2s"
    assert run.judges.metrics() == {"done.time": 1.5}


@pytest.mark.parametrize(("time", "ok"), [(1.999999, True), (2.0, True), (2.000001, False)])
def test_eventually_has_an_end(time: float, ok: bool) -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(Eventually(name="done", of="ann", expr="state.n == 3", by=Duration(2.0)))
    run.at(time).turn(ann, n=3)
    found = run.verdict()
    assert found.ok is ok
    assert ("too late" in found.saw) is not ok
    assert run.judges.metrics() == {"done.time": time}


def test_eventually_never() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(Eventually(name="done", of="ann", expr="state.n == 3", by=Duration(2.0)))
    found = run.verdict(1.0)
    assert (found.ok, found.at) == (False, None)
    assert found.saw == "left behind 1 agent: ann; ann: state.n = 0"
    assert run.judges.metrics() == {"done.time": None}
    found = run.judged(Eventually(of="ann", expr="state.x == 3", by=SECOND)).verdict()
    assert found.saw == "cannot be computed: state.x has no value"
    found = run.judged(Eventually(of="nobody", expr="state.x == 3", by=SECOND)).verdict()
    assert (found.ok, found.saw) == (False, "it was never looked at")


def test_eventually_each_agent_of_a_population() -> None:
    agents = peers(4, known=False)
    check = Eventually(name="all", of="peer", expr="state.known", by=Duration(9.0))
    run = Run(peer=agents).judged(check)
    for time, agent in enumerate(agents[:3]):
        run.at(float(time)).turn(agent, known=True)
        run.turn(agent, known=False)
    assert not run.judges.met("all")
    run.at(5.0).turn(agents[3], known=True)
    found = run.verdict()
    assert (found.ok, found.at) == (True, 5.0)


def test_eventually_waits_for_agents_yet_to_be_started() -> None:
    agents = peers(4, known=True)
    run = Run(peer=agents[:2]).judged(Eventually(name="all", of="peer", expr="state.known", by=SECOND))
    run.sizes["peer"] = 4
    run.sample(0.1)
    assert not run.judges.met("all")
    assert run.verdict(0.5).saw == "2 of 4 agents did, the others were never started"
    run.judged(Eventually(name="all", of="peer", expr="state.known", by=SECOND))
    run.cast["peer"] = agents
    run.sample(0.2)
    assert run.judges.met("all")


def test_those_left_behind_are_named() -> None:
    agents = peers(10, known=False)
    run = Run(peer=agents).judged(Eventually(of="peer", expr="state.known", by=SECOND))
    for agent in agents[2:]:
        run.turn(agent, known=True)
    assert run.verdict().saw == "left behind 2 agents: peer/0, peer/1; peer/0: state.known = false"


# --- checks that speak of others


def test_a_check_is_true_from_the_instant_it_was_met() -> None:
    ann = Agent("ann", {"n": 0})
    run = Run(ann=ann).judged(
        Eventually(name="first", of="ann", expr="state.n == 1", by=Duration(9.0)),
        Eventually(name="second", expr="first and first.time < 2", by=Duration(9.0)),
        Eventually(name="third", expr="first.time > 5", by=Duration(9.0)),
        Always(expr="first or not second"),
    )
    run.sample(0.5)
    run.at(1.0).turn(ann, n=1)
    run.turn(ann, n=0)
    run.sample(1.5)
    first, second, third, order = run.end(2.0)
    assert (first.at, second.at, third.ok, order.ok) == (1.0, 1.5, False, True)
    assert third.saw == "at 2 s first.time = 1.0"
    run.judged(
        Eventually(name="first", of="ann", expr="state.n == 7", by=SECOND), Always(expr="first.time < 2")
    )
    assert run.end()[1].saw == "at 2 s cannot be computed: first has not come true"


def test_a_check_may_be_called_nearly_as_a_counter() -> None:
    run = Run(ann=Agent("ann", {"n": 0})).judged(
        Eventually(name="restarts_over", of="ann", expr="restarts == 0", by=SECOND),
        Always(expr="restarts_over or not restarts_over"),
    )
    assert [found.ok for found in run.end()] == [True, True]


def test_only_checks_that_come_true_are_known_by_name() -> None:
    run = Run(ann=Agent("ann", {"n": 0})).judged(Always(name="low", of="ann", expr="state.n < 3"))
    with pytest.raises(LookupError):
        run.judges.met("low")


# --- series


@each_row(
    ("agg", "expr", "value"),
    [
        ("fraction", "state.ok", 0.6),
        ("fraction", "state.n > 100", 0.0),
        ("count", "state.ok", 6.0),
        ("sum", "state.n", 55.0),
        ("mean", "state.n * 2", 11.0),
        ("min", "state.n", 1.0),
        ("max", "state.n", 10.0),
        ("p50", "state.n", 5.0),
        ("p90", "state.n", 9.0),
        ("p95", "state.n", 10.0),
        ("p99", "state.n", 10.0),
        ("fraction", "state.n", None),
        ("count", "state.xs", None),
        ("sum", "state.ok", None),
        ("max", "state.name", None),
        ("max", "state.missing", None),
        ("max", "state.n < state.name", None),
    ],
)
def test_each_aggregate_has_its_value(agg: str, expr: str, value: float | None) -> None:
    agents = [Agent(f"peer/{n}", {"n": n, "ok": n <= 6, "name": "x", "xs": []}) for n in range(10, 0, -1)]
    run = Run(peer=agents).judged(measure=measure(x=(agg, "peer", expr)))
    run.sample(1.0)
    (series,) = run.judges.series()
    assert (series.name, series.agg, series.times, series.values) == ("x", agg, (1.0,), (value,))


def test_a_rate_is_how_the_sum_grows() -> None:
    agents = peers(3, n=0)
    run = Run(peer=agents).judged(
        measure=measure(x=("rate", "peer", "state.n"), y=("rate", "*", "delivered"))
    )
    run.sample(0.0)
    for time, agent in enumerate(agents, start=1):
        run.turn(agent, n=10)
        run.turn(agent)
        run.sample(time * 2.0)
    run.sample(6.0)  # no time has passed
    x, y = run.judges.series()
    assert x.values == (None, 5.0, 5.0, 5.0, None)
    assert y.values == (None, 1.0, 1.0, 1.0, None)


def test_who_does_not_run_is_left_out_of_what_needs_state_alone() -> None:
    agents = [*peers(2, n=1), Agent("peer/2", None, accepted=3)]
    run = Run(peer=agents).judged(
        measure=measure(x=("mean", "peer", "state.n"), y=("max", "peer", "mailbox.depth"))
    )
    run.sample(1.0)
    agents[0].state = agents[1].state = None
    run.sample(2.0)
    x, y = run.judges.series()
    assert x.values == (1.0, None)
    assert y.values == (3.0, 3.0)


def test_metrics_of_a_series() -> None:
    agents = peers(1, n=1)
    run = Run(peer=agents).judged(
        measure=measure(x=("max", "peer", "state.n"), y=("max", "nobody", "state.n"))
    )
    for time, n in enumerate((4, 1, 2, None, 3)):
        agents[0].state = {"n": n}
        run.sample(float(time))
    found = run.judges.metrics()
    assert {name: found[f"x.{name}"] for name in ("last", "min", "max", "mean")} == {
        "last": 3.0,
        "min": 1.0,
        "max": 4.0,
        "mean": 2.5,
    }
    assert [found[f"y.{name}"] for name in ("last", "min", "max", "mean")] == [None] * 4
    agents[0].state = None
    run.sample(9.0)
    assert run.judges.metrics()["x.last"] is None


def test_numbers_that_are_too_large_to_take_together_are_no_value() -> None:
    agents = peers(2, n=10**400, x=1.5e308)
    aggs = ("sum", "mean", "max", "p50", "rate")
    series = {f"{agg}_{field}": (agg, "peer", f"state.{field}") for agg in aggs for field in "nx"}
    run = Run(peer=agents).judged(never("series.sum_n > 0"), measure=measure(**series))
    run.sample(0.0)
    run.sample(1.0)
    found = {series.name: series.values[1] for series in run.judges.series()}
    assert {name for name, value in found.items() if value is not None} == {"mean_x", "max_x", "p50_x"}
    assert found["mean_x"] == found["max_x"] == 1.5e308
    assert run.judges.metrics()["max_x.mean"] == 1.5e308
    assert run.verdict().saw.endswith("series.sum_n has no value: the sum of state.n is too large")


def test_metrics_of_steps_that_are_named() -> None:
    run = Run().judged(
        Latency(of="ask", max=Below(lt=SECOND)),
        Compare(metric="tell.p95", across="x", trend="constant"),
        Compare(metric="done.time", across="x", trend="constant"),
        Eventually(name="done", expr="done", by=SECOND),
    )
    run.times = {"ask": [0.1, 0.3], "tell": [float(n) for n in range(1, 21)], "other": [1.0]}
    assert run.judges.metrics() == {
        "done.time": None,
        "ask.max": 0.3,
        **{f"ask.p{n}": None for n in (50, 90, 95, 99)},
        "tell.max": 20.0,
        "tell.p50": 10.0,
        "tell.p90": 18.0,
        "tell.p95": 19.0,
        "tell.p99": 20.0,
    }
    assert run.judges.count == 2


def test_only_what_is_needed_is_asked_for() -> None:
    run = Run(ann=Agent("ann"))
    assert run.judged(Restarts(of="ann", equals=0)).judges.kinds == ()
    assert run.judged(Never(when=LETTER)).judges.kinds == ("dead_letter",)
    assert run.judged(measure=measure(x=("sum", "ann", "state.n"))).judges.kinds == ()
    assert run.judged(measure=measure(x=("sum", "ann", "delivered"))).judges.kinds == ("delivered",)
    assert "sent" in run.judged(Always(of="ann", expr="mailbox.depth < 3")).judges.kinds
    kinds = run.judged(Always(of="ann", expr="state.n < 3"), Never(when=LETTER)).judges.kinds
    assert kinds == ("started", "delivered", "answered", "cancelled", "dropped", "dead_letter")


def test_checks_of_series() -> None:
    agents = peers(4, known=False)
    run = Run(peer=agents).judged(
        Eventually(name="half", expr="series.known >= 0.5", by=Duration(2.0)),
        Always(expr="series.known < 0.7"),
        never("series.known > 0.9"),
        measure=measure(known=("fraction", "peer", "state.known")),
    )
    for time, agent in enumerate(agents[:3]):
        run.sample(float(time))
        run.turn(agent, known=True)
    run.sample(3.0)
    half, low, high = run.end()
    assert (half.ok, half.at) == (True, 2.0)
    assert (low.ok, low.at, low.saw) == (False, 3.0, "at 3 s series.known = 0.75")
    assert high.ok


def test_a_series_counts_from_its_first_value() -> None:
    agents = peers(1, n=0)
    growing = measure(x=("rate", "peer", "state.n"))
    run = Run(peer=agents).judged(Always(expr="series.x >= 0"), measure=growing)
    run.sample(0.0)
    run.sample(1.0)
    assert run.verdict().ok
    run = Run(peer=agents).judged(Always(expr="series.x >= 0"), measure=growing)
    run.sample(0.0)
    assert run.verdict().saw == "it was never looked at: series.x has no value: a rate needs two samples"


def test_a_series_that_loses_its_value_fails_what_speaks_of_it() -> None:
    agents = peers(1, n=0)
    run = Run(peer=agents).judged(
        Always(expr="series.x <= 3"),
        Eventually(expr="series.x > 3", by=SECOND),
        measure=measure(x=("max", "peer", "state.n")),
    )
    run.sample(0.0)
    agents[0].state = None
    run.sample(1.0)
    always, eventually = run.end()
    assert always.saw == "at 1 s cannot be computed: series.x has no value: no agent of peer runs"
    assert eventually.saw == "cannot be computed: series.x has no value: no agent of peer runs"


# --- converges


def test_converges_after_a_fault() -> None:
    agents = peers(3, v=0)
    check = Converges(name="agree", of="peer", field="state.v", after="split.healed", within=Duration(5.0))
    run = Run(peer=agents).judged(check)
    run.sample(1.0)  # all are alike, but the fault is yet to come
    agents[0].state = {"v": {"a": [1]}}
    run.healed["split"] = 10.0
    run.sample(12.0)
    assert not run.judges.met("agree")
    for agent in agents:
        agent.state = {"v": {"a": [1.0]}}
    run.sample(14.0)
    agents[0].state = {"v": 7}
    found = run.verdict(20.0)
    assert (found.ok, found.at) == (True, 14.0)
    assert found.expected == "one state.v within 5s after split.healed"
    assert found.saw == '{"a": [1.0]} at all 3 agents at 14 s, 4s after split.healed'
    assert run.judges.metrics() == {"agree.time": 14.0}


def test_converges_too_late_or_not() -> None:
    agents = peers(8, v=0)
    check = Converges(of="peer", field="state.v", within=Duration(5.0))
    assert agents[0].state
    agents[0].state["v"] = 1
    run = Run(peer=agents).judged(check)
    run.sample(1.0)
    found = run.verdict(2.0)
    assert not found.ok
    assert found.saw == (
        "at 2 s 1 at peer/0, 0 at peer/1; other than the first are "
        "7 agents: peer/1, peer/2, peer/3, peer/4, peer/5, ..."
    )
    agents[0].state["v"] = 0
    found = run.judged(check).verdict(6.0)
    assert (found.ok, found.at) == (False, 6.0)


@pytest.mark.parametrize(
    ("check", "saw"),
    [
        (Converges(of="peer", field="state.v", after="split.healed", within=SECOND), "split was not healed"),
        (Converges(of="nobody", field="state.v", within=SECOND), "running agents of nobody: 0"),
        (Converges(of="ann", field="state.v", within=SECOND), "running agents of ann: 1"),
        (Converges(of="peer", field="state.w", within=SECOND), "peer/0 cannot be computed"),
    ],
)
def test_converging_needs_something_to_look_at(check: AnyCheck, saw: str) -> None:
    run = Run(peer=peers(3, v=0), ann=Agent("ann", {"v": 0})).judged(check)
    found = run.verdict(0.5)
    assert not found.ok
    assert saw in found.saw


def test_who_does_not_run_does_not_hinder_others_from_agreeing() -> None:
    agents = [*peers(2, v=1), Agent("peer/2", None)]
    assert Run(peer=agents).judged(Converges(of="peer", field="state.v", within=SECOND)).verdict(0.5).ok


# --- names


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (Never(when=LETTER), "never dead_letter"),
        (never("state.n > 1", of="a"), "never state.n > 1"),
        (Always(name="low", expr="x"), "low"),
        (Always(expr="x  and\n y" * 20), "always " + ("x and y" * 20)[:57] + "..."),
        (Eventually(expr="x", by=SECOND), "eventually x"),
        (Restarts(of="a", equals=1), "restarts a"),
        (Statistics(of="a", counter="handled", ge=1), "statistics a handled"),
        (Latency(of="ask"), "latency ask"),
        (Causal(before=Message(from_="a"), after=Message(to="b", action="c")), "causal b.c"),
        (Causal(before=Message(from_="a"), after=Message(from_="b")), "causal from b"),
        (Causal(before=Message(from_="a"), after=Message(from_="b", event="c")), "causal b.c"),
        (Trace(of="ask", single_trace=True), "trace ask"),
        (Trace(single_trace=True), "trace"),
        (Converges(of="p", field="state.v", within=SECOND), "converges p state.v"),
        (Compare(metric="x.time", across="k", trend="increasing"), "compare x.time across k"),
    ],
)
def test_a_check_without_a_name_is_called_by_what_it_is_about(check: AnyCheck, name: str) -> None:
    assert name_of(check) == name


class Store(RealAgent):
    units: Property[str] = prop(default="kelvin", name="the-units")
    key: Secret[str] = "secret word"
    n: int = 3
    share: float = 0.5
    odd: float = float("nan")
    when: Any = None
    foreign: Any = None


class Other(RealAgent):
    n: int = 3
    m: int = 4


def test_the_state_of_an_agent_is_plain_data_by_the_names_of_files() -> None:
    agent = Store(when=Duration(2.0), foreign=object())
    state = AgentState(agent)
    assert list(state) == ["the-units", "key", "n", "share", "odd", "when", "foreign"]
    assert len(state) == 7
    assert (state["the-units"], state["n"], state["share"], state["when"]) == ("kelvin", 3, 0.5, 2.0)
    assert state["foreign"] == "<object object>"
    for name, why in [("key", "is secret"), ("odd", "is nan"), ("m", "has no value")]:
        with pytest.raises(LookupError, match=f"state.{name} {why}"):
            state[name]
    del agent.__dict__["_prop_units"]
    with pytest.raises(LookupError, match=r"state\.the-units has no value"):
        state["the-units"]
    assert state_of(SimpleNamespace(agent=None)) is None
    assert isinstance(state_of(SimpleNamespace(agent=agent)), AgentState)


def test_the_names_that_formulas_may_use() -> None:
    assert fields_known(Store)["the-units"] == ("_prop_units", False)
    known = known_names([Store], of=True, series=["x"], checks=["met"])
    for text in (
        "state['the-units'] == 'k'",
        "state.n",
        "mailbox.dropped",
        "series.x",
        "met.time",
        "restarts",
    ):
        compile_formula(text, known)
    both = known_names([Store, Other], of=True)
    compile_formula("state.n", both)
    alone = known_names([Store, Other], of=False, series=["x"])
    compile_formula("series.x > 1", alone)
    for text, names, why in [
        ("state.key == 'x'", known, "is secret: no formula may speak of it"),
        ("state.m", both, 'no "state.m" here'),
        ("state.share", both, 'no "state.share" here'),
        ("state.n", alone, 'is of an agent: say which with "of"'),
        ("state.m", alone, 'is of an agent: say which with "of"'),
        ("mailbox.depth", alone, 'is of an agent: say which with "of"'),
        ("delivered", alone, 'is of an agent: say which with "of"'),
        ("series.y", alone, 'no "series.y" here, did you mean "series.x"?'),
        ("met", alone, 'no "met" here'),
    ]:
        with pytest.raises(FormulaProblem, match=why):
            compile_formula(text, names)


# --- against a slow judge


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30), st.integers(1, 4))
def test_formulas_against_a_slow_judge(turns: list[tuple[int, int]], bound: int) -> None:
    """Each turn sets the number of one of four agents; the slow judge keeps all of the past."""
    agents = peers(4, n=0)
    run = Run(peer=agents).judged(
        Always(of="peer", expr=f"state.n < {bound}"),
        never(f"state.n >= {bound}", of="peer"),
        Eventually(name="each", of="peer", expr=f"state.n >= {bound}", by=Duration(1000.0)),
        Eventually(name="half", expr="series.high >= 0.5", by=Duration(1000.0)),
        measure=measure(high=("fraction", "peer", f"state.n >= {bound}")),
    )
    now = [0, 0, 0, 0]
    past: list[list[int]] = []
    for time, (who, n) in enumerate(turns):
        run.at(float(time)).turn(agents[who], n=n)
        now[who] = n
        past.append(list(now))
        run.sample(float(time))
    always, not_once, each, half = run.end()
    bad = [time for time, row in enumerate(past) if max(row) >= bound]
    assert always.ok is not_once.ok is (not bad)
    assert always.at == not_once.at == (bad[0] if bad else None)
    reached = [min((t for t, row in enumerate(past) if row[who] >= bound), default=None) for who in range(4)]
    assert each.at == (None if None in reached else max(t for t in reached if t is not None))
    many = [time for time, row in enumerate(past) if sum(n >= bound for n in row) >= 2]
    assert half.at == (many[0] if many else None)
    assert run.judges.series()[0].values == tuple(sum(n >= bound for n in row) / 4 for row in past)
