"""The runner: every kind of step and check, and that nothing passes by accident."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import CAST, Project, story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "cast":
            del sys.modules[name]


def runs(project: Project, *steps: Any, **more: Any) -> list[RunResult]:
    file = project.root / project.write("story.yaml", story(*steps, **more))
    resolved = load_scenario(file)
    return [run_cell(resolved, cell, 1, real_limit=20) for cell in resolved.cells]


def run(project: Project, *steps: Any, **more: Any) -> RunResult:
    (result,) = runs(project, *steps, **more)
    return result


def passes(project: Project, *steps: Any, **more: Any) -> RunResult:
    result = run(project, *steps, **more)
    assert result.failures == ()
    assert result.ended == "passed"
    assert result.steps_done == result.steps
    assert result.checks_passed == result.checks
    return result


def fails(project: Project, *steps: Any, **more: Any) -> str:
    """Give what the first failure expected and saw."""
    result = run(project, *steps, **more)
    assert result.ended in ("failed", "time limit", "could not run")
    assert not result.ok
    first = result.failures[0]
    return f"{first.what} | {first.expected} | {first.saw}"


def mistakes(project: Project, *steps: Any, **more: Any) -> list[str]:
    with pytest.raises(FileError) as caught:
        runs(project, *steps, **more)
    return [mistake.message for mistake in caught.value.mistakes]


def invoke(action: str, /, **more: Any) -> dict[str, Any]:
    return {"do": "invoke", "target": "actor", "action": action, **more}


def expect(that: str, /, **more: Any) -> dict[str, Any]:
    return {"do": "expect", "that": that, **more}


def agents(**classes: Any) -> dict[str, Any]:
    return {
        name: {"from": "agent", **(use if isinstance(use, dict) else {"use": f"cast.py:{use}"})}
        for name, use in classes.items()
    }


NOTE = invoke("note", id="note", input={"text": "hi"})
PAUSE = {"do": "wait", "for": "2s"}
CRASH = {"do": "inject", "fault": {"kind": "crash", "target": "actor"}}


# --- steps


def test_an_output_is_saved_and_expected(project: Project) -> None:
    said = {**NOTE, "save": {"said": "$.output"}}
    again = invoke("note", id="again", input={"text": "$(saved.said)!"})
    passes(project, said, again, expect("output", of="again", equals="hi!"))
    passes(project, said, expect("value", of="$(saved.said)", equals="hi"))
    assert fails(project, said, expect("value", of="$(saved.said)", equals="ho")).endswith('"ho" | "hi"')
    assert fails(project, NOTE, expect("output", of="note", equals="ho")).endswith('| "ho" | "hi"')


def test_a_path_that_leads_nowhere_is_not_saved(project: Project) -> None:
    give = invoke("give", input={"a": 1}, save={"x": "$.output.b"})
    assert "nothing at $.output.b" in fails(project, give, expect("value", of="$(saved.x)", equals=None))


def test_properties_are_read_and_written(project: Project) -> None:
    write = {"do": "write", "target": "actor", "property": "level", "value": 7}
    read = {"do": "read", "id": "read", "target": "actor", "property": "level"}
    passes(project, write, read, expect("output", of="read", equals=7))
    fails(project, read, expect("output", of="read", equals=7))


def test_values_are_plain_data(project: Project) -> None:
    step = invoke("point", id="p", input={"where": {"x": 1}})
    passes(project, step, expect("output", of="p", equals={"x": 1, "y": 0}))
    passes(project, invoke("whole", id="w", input={"a": 1, "b": 2}), expect("output", of="w", equals=2))


def test_an_error_fails_unless_the_step_says_so(project: Project) -> None:
    """F1."""
    assert "ValueError: boom" in fails(project, invoke("boom"))
    passes(project, invoke("boom", error={"is": "AgentDied", "contains": "boom"}))
    assert "NotFound | AgentDied" in fails(project, invoke("boom", error={"is": "NotFound"}))
    assert "no error" in fails(project, {**NOTE, "error": {"is": "NotFound"}})


def test_input_of_another_type_is_refused_at_its_path(project: Project) -> None:
    good = {"is": "InvalidInput", "path": "$.text"}
    passes(project, invoke("note", input={"text": 7}, error=good))
    point = {"is": "InvalidInput", "path": "$.where.y"}
    fails(project, invoke("point", input={"where": {"x": "1"}}, error=point))
    passes(
        project,
        invoke("note", input={"text": "a", "more": 1}, error={"is": "InvalidInput", "path": "$.more"}),
    )


def test_a_step_has_its_time(project: Project) -> None:
    assert "an end within 500ms" in fails(project, invoke("plain", within="500ms"))
    passes(project, invoke("plain", within="1001ms"))


def test_a_step_that_goes_on_is_collected(project: Project) -> None:
    step = invoke("plain", id="p", wait=False)
    assert passes(project, step, expect("output", of="p", equals="done")).virtual == 1
    assert "no answer yet" in fails(project, step, expect("output", of="p", within="10ms", equals="done"))


def test_a_step_that_goes_on_is_judged_though_nobody_collects_it(project: Project) -> None:
    assert passes(project, invoke("plain", wait=False)).virtual == 1
    assert "boom" in fails(project, invoke("boom", wait=False))
    assert "an answer within 10ms" in fails(project, invoke("plain", wait=False, within="10ms"))
    passes(project, invoke("boom", wait=False, error={"is": "AgentDied"}))


def test_a_call_is_pending_only_while_it_waits_for_its_turn(project: Project) -> None:
    """D13: pending if and only if the run has to wait for its turn."""
    first, second = invoke("slowly", id="a", wait=False), invoke("slowly", id="b", wait=False)
    done = [
        expect("status", of="a", sequence=["in progress", "completed"]),
        expect("status", of="b", sequence=["pending", "in progress", "completed"]),
    ]
    assert passes(project, first, second, *done).virtual == 2
    plain = invoke("plain", id="a")
    passes(project, plain, expect("status", of="a", sequence=["completed"]))
    failed = invoke("boom", id="a", error={"is": "AgentDied"})
    passes(project, failed, expect("status", of="a", equals="failed"))
    assert "failed" in fails(project, failed, expect("status", of="a", equals="completed"))
    assert passes(project, first, expect("status", of="a", equals="in progress")).virtual == 1


def test_events_are_counted_in_their_time(project: Project) -> None:
    subscribe = {"do": "subscribe", "target": "actor", "event": "noted"}
    twice = {"do": "repeat", "times": 2, "steps": [NOTE]}
    event = {"target": "user", "event": "noted"}
    passes(project, subscribe, twice, expect("event", times=2, **event))
    fails(project, subscribe, twice, expect("event", times=1, **event))
    passes(project, subscribe, twice, expect("event", sequence=["hi", "hi"], **event))
    passes(project, subscribe, NOTE, expect("event", equals="hi", **event))
    fails(project, subscribe, NOTE, expect("event", equals="ho", within="1s", **event))
    fails(project, NOTE, subscribe, expect("event", equals="hi", within="1s", **event))
    later = {"do": "parallel", "branches": [[{"do": "wait", "for": "2s"}, NOTE], [EVENT_LATE]]}
    passes(project, subscribe, later)


EVENT_LATE = {
    "do": "expect",
    "that": "event",
    "target": "user",
    "event": "noted",
    "equals": "hi",
    "within": "3s",
}


def test_readings_begin_with_the_present_value(project: Project) -> None:
    observe = {"do": "observe", "id": "watch", "target": "actor", "property": "level"}
    write = {"do": "write", "target": "actor", "property": "level", "value": 3}
    pause = {"do": "wait", "for": "1ms"}
    passes(project, observe, pause, write, expect("reading", of="watch", sequence=[0, 3]))
    assert "[0, 3]" in fails(
        project, observe, pause, write, expect("reading", of="watch", sequence=[3], within="1s")
    )


def test_a_tell_has_no_answer(project: Project) -> None:
    subscribe = {"do": "subscribe", "target": "actor", "event": "noted"}
    tell = {"do": "tell", "target": "actor", "action": "note", "input": {"text": "told"}}
    event = {"target": "user", "event": "noted"}
    passes(project, subscribe, tell, expect("event", equals="told", times=1, **event))


def test_acting_as_an_agent(project: Project) -> None:
    cast = agents(actor="Actor", other="Actor")
    ask = invoke("who", id="who", **{"as": "other"})
    passes(project, ask, expect("output", of="who", equals="other"), agents=cast)
    passes(project, invoke("who", id="who"), expect("output", of="who", equals=None))
    subscribe = {"do": "subscribe", "as": "other", "target": "actor", "event": "noted"}
    event = expect("event", target="other", event="noted", equals="hi")
    passes(project, subscribe, NOTE, event, agents=cast)
    ended = {"do": "inject", "fault": {"kind": "crash", "target": "other"}}
    cast["other"]["restart"] = "temporary"
    assert "code cannot act as it" in fails(project, ended, ask, agents=cast)


def test_who_has_just_crashed_cannot_be_crashed_again_at_once(project: Project) -> None:
    result = run(project, {"do": "parallel", "branches": [[CRASH], [CRASH]]})
    assert (result.ended, result.virtual) == ("failed", 0.0)
    assert result.failures[0].saw == "actor is down"


def test_a_count_of_the_root_asks_for_no_crash(project: Project) -> None:
    boom = {"do": "tell", "target": "actor", "action": "boom"}
    of_root = {"check": "restarts", "of": "root", "equals": 0}
    said = fails(project, boom, PAUSE, checks=[of_root])
    assert said.startswith("agent actor | no crash that the file does not ask for | ValueError: boom")


def test_a_check_or_step_that_gets_lost_fails_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = {"check": "restarts", "of": "actor", "equals": 0}
    with monkeypatch.context() as patched:
        patched.setattr("lmos_actors.scenario.judge._judges.Judges.end", lambda _: [])
        assert "the run | (1, 1) steps and checks | (1, 0)" in fails(project, NOTE, checks=[check])
    monkeypatch.setattr("lmos_actors.scenario.run.steps.Story.execute", _tells_nothing)
    assert "the run | (1, 0) steps and checks | (0, 0)" in fails(project, NOTE)


async def _tells_nothing(_: object) -> bool:
    return True


def test_what_is_counted_is_judged_when_its_time_is_over(project: Project) -> None:
    subscribe = {"do": "subscribe", "target": "actor", "event": "noted"}
    later = [{"do": "wait", "for": "1s"}, {**NOTE, "id": "again"}]
    for within, wanted in (("2s", 2), ("500ms", 1)):
        once = expect("event", target="user", event="noted", times=1, within=within)
        both = {"do": "parallel", "branches": [[once], later]}
        result = run(project, subscribe, NOTE, both)
        assert result.ok is (wanted == 1)
        assert wanted == 1 or result.failures[0].saw.startswith("2 times")


def test_nothing_is_waited_for_that_cannot_come_any_more(project: Project) -> None:
    ask = {**NOTE, "id": "said"}
    for that, wanted in (("output", "x"), ("status", "failed")):
        result = run(project, ask, expect(that, of="said", equals=wanted))
        assert (result.ended, result.virtual) == ("failed", 0.0)


def test_latencies_are_whole_microseconds(project: Project) -> None:
    ask = invoke("plain", id="ask", input={"seconds": 0.2})
    check = {"check": "latency", "of": "ask", "max": {"le": "200ms"}}
    passes(project, {"do": "wait", "for": "100ms"}, ask, checks=[check])


def test_repeat_counts_from_begin_to_begin(project: Project) -> None:
    steps = [{"do": "repeat", "times": 3, "every": "2s", "steps": [invoke("plain")]}]
    assert passes(project, *steps).virtual == 5


def test_branches_run_at_once_and_one_failure_is_enough(project: Project) -> None:
    cast = agents(actor="Actor", other="Actor")
    one, two = invoke("plain", id="a"), {**invoke("plain", id="b"), "target": "other"}
    assert passes(project, {"do": "parallel", "branches": [[one], [two]]}, agents=cast).virtual == 1
    bad = invoke("boom")
    assert "boom" in fails(project, {"do": "parallel", "branches": [[bad], [two]]}, agents=cast)


def test_a_crash_is_done_when_its_plan_is(project: Project) -> None:
    read = {"do": "read", "id": "r", "target": "actor", "property": "level"}
    write = {"do": "write", "target": "actor", "property": "level", "value": 3}
    restarted = {"check": "restarts", "of": "actor", "equals": 1}
    passes(project, write, CRASH, read, expect("output", of="r", equals=0), checks=[restarted])
    fails(project, CRASH, checks=[{**restarted, "equals": 0}])
    assert "RuntimeError" in fails(project, CRASH, CRASH, CRASH, CRASH)
    assert "more than 3 restarts" in fails(project, CRASH, CRASH, CRASH, CRASH, NOTE)


def test_a_crash_below_a_supervisor_that_gives_up_is_done_when_the_root_has_dealt_with_it(
    project: Project,
) -> None:
    crew = {"name": "crew", "max_restarts": 0, "children": ["actor"]}
    tree = {"root": {"children": [crew]}}
    counts = [
        {"check": "restarts", "of": "crew", "equals": 1},
        {"check": "restarts", "of": "actor", "equals": 1},
    ]
    passes(project, CRASH, NOTE, tree=tree, checks=counts)


def test_what_is_down_cannot_be_crashed(project: Project) -> None:
    cast = agents(actor={"use": "cast.py:Actor", "restart": "temporary"})
    gone = {"do": "wait", "until": {"agent": "actor", "is": "stopped"}}
    passes(project, CRASH, gone, agents=cast)
    assert "a running actor | actor is gone" in fails(project, CRASH, CRASH, agents=cast)
    assert "NotFound" in fails(project, CRASH, NOTE, agents=cast)


def test_a_moment_between_two_lives_is_seen(project: Project) -> None:
    between = {"do": "wait", "until": {"agent": "actor", "is": "restarting"}, "within": "1s"}
    crash = {**CRASH, "wait": False}
    passes(project, {"do": "parallel", "branches": [[between], [{"do": "wait", "for": "10ms"}, crash]]})
    assert "it is running" in fails(project, between)


def test_a_wait_lasts_as_long_as_it_says(project: Project) -> None:
    assert passes(project, NOTE, {"do": "wait", "for": "90m"}, timeout="2h").virtual == 5400


# --- streams, and invocations that go on


def stream(action: str, **more: Any) -> dict[str, Any]:
    return {"do": "stream", "target": "actor", "action": action, **more}


def test_items_of_a_stream_are_saved_and_expected(project: Project) -> None:
    count = stream("count", id="c", input={"to": 3})
    passes(project, count, expect("items", of="c", sequence=[0, 1, 2]))
    passes(project, count, expect("items", of="c", equals=1, times=1))
    passes(project, count, expect("items", of="c", match={"$.items[2]": 2}))
    assert "[0, 1, 2]" in fails(project, count, expect("items", of="c", sequence=[0, 1]))
    saved = {**count, "save": {"last": "$.items[-1]"}}
    passes(project, saved, expect("value", of="$(saved.last)", equals=2))
    passes(project, count, expect("status", of="c", sequence=["completed"]))


def test_a_stream_is_left_after_so_many_items(project: Project) -> None:
    take = stream("count", id="c", input={"to": 100}, take=2)
    result = passes(project, take, expect("items", of="c", sequence=[0, 1]), NOTE)
    assert '"kind":"cancelled"' in "".join(result.log)
    said = fails(project, stream("count", input={"to": 3}, take=5))
    assert said.endswith("| 5 items | 3, then its end")


def test_a_stream_that_goes_on_is_looked_at_meanwhile(project: Project) -> None:
    slow = stream("count", id="c", input={"to": 3, "pause": 1.0}, wait=False)
    result = passes(project, slow, expect("items", of="c", equals=1), NOTE)
    assert result.step_results[1].end == 2
    assert result.virtual == 3
    assert "no answer yet" in fails(project, slow, expect("items", of="c", equals=0, within="500ms"))


def test_a_stream_that_fails(project: Project) -> None:
    bad = stream("count", id="c", input={"to": -1})
    assert "ValueError" in fails(project, bad)
    passes(project, {**bad, "error": {"is": "AgentDied"}}, PAUSE, NOTE)


def test_how_an_invocation_stands_is_asked(project: Project) -> None:
    first = invoke("slowly", id="a", wait=False)
    query = {"do": "query", "of": "a", "save": {"how": "$.status"}}
    how = expect("value", of="$(saved.how)", equals="in progress")
    passes(project, first, query, how, expect("output", of="a", equals="done"))
    done = expect("value", of="$(saved.how)", equals="completed")
    passes(project, first, PAUSE, query, done)


def test_an_invocation_is_cancelled(project: Project) -> None:
    cancelled = {"is": "ActionCancelled", "contains": "no longer needed"}
    first = invoke("slowly", id="a", wait=False, error=cancelled)
    cancel = {"do": "cancel", "of": "a", "reason": "no longer needed"}
    assert passes(project, first, {"do": "wait", "for": "250ms"}, cancel).virtual == 0.25
    plain = invoke("slowly", id="a", wait=False)
    assert "it has completed" in fails(project, plain, PAUSE, cancel)
    assert "ActionCancelled" in fails(project, plain, cancel)


# --- agents stopped and started


def test_an_agent_is_stopped_and_started_again(project: Project) -> None:
    stop, start = {"do": "stop", "target": "actor"}, {"do": "start", "target": "actor"}
    is_stopped = {"do": "wait", "until": {"agent": "actor", "is": "stopped"}, "within": "0s"}
    away = invoke("note", input={"text": "x"}, error={"is": "AgentUnavailable"})
    passes(project, stop, is_stopped, away, start, NOTE)
    assert "a running actor to stop | it is down" in fails(project, stop, stop)
    assert "that can be started | WrongState" in fails(project, start)
    twice = agents(actor={"use": "cast.py:BadSecond"})
    assert "OSError: only once" in fails(project, stop, start, agents=twice)
    sys.modules["cast"].BadSecond.made = 0


# --- what became of each step


def test_every_step_is_told(project: Project) -> None:
    slow = invoke("plain", id="p", wait=False)
    result = passes(project, NOTE, slow, {"do": "wait", "for": "250ms"})
    assert [(step.what, step.ok, step.begin, step.end) for step in result.step_results] == [
        ("invoke actor.note (note)", True, 0.0, 0.0),
        ("invoke actor.plain (p)", True, 0.0, 1.0),
        ("wait for 250ms", True, 0.0, 0.25),
    ]
    assert all(":" in step.place for step in result.step_results)


def test_steps_that_were_not_reached_or_did_not_end_are_told(project: Project) -> None:
    long = invoke("plain", input={"seconds": 9})
    branches = [[long, NOTE], [{"do": "wait", "for": "1s"}, {**invoke("boom"), "target": "other"}]]
    cast = agents(actor="Actor", other="Actor")
    result = run(project, {"do": "parallel", "branches": branches}, agents=cast)
    told = {step.what: (step.ok, step.begin) for step in result.step_results}
    assert told == {
        "invoke actor.plain": (None, 0.0),
        "wait for 1s": (True, 0.0),
        "invoke other.boom": (False, 1.0),
        "invoke actor.note (note)": (None, None),
    }


def test_of_very_many_rounds_the_first_are_told_and_all_counted(project: Project) -> None:
    many = {"do": "repeat", "times": 1_200, "steps": [NOTE]}
    result = passes(project, many, checks=[{"check": "latency", "of": "note", "p99": {"le": "1s"}}])
    assert (len(result.step_results), result.steps_done) == (1_000, 1_200)


@pytest.mark.parametrize("seed", range(6))
def test_series_of_a_story_end_with_it(project: Project, seed: int) -> None:
    measure = {"every": "1s", "series": {"level": {"agg": "max", "of": "actor", "expr": "state.level"}}}
    write = {"do": "write", "target": "actor", "property": "level", "value": 4}
    steps = [{"do": "wait", "for": "1500ms"}, write, {"do": "wait", "for": "1500ms"}]
    result = passes(project, *steps, measure=measure, seeds=[seed])
    (series,) = result.series
    assert (series.times, series.values) == ((1.0, 2.0, 3.0), (0.0, 4.0, 4.0))
    assert result.metrics["level.max"] == 4


# --- crashes


def test_a_crash_that_nobody_sees_fails(project: Project) -> None:
    steps = [{"do": "tell", "target": "actor", "action": "boom"}, PAUSE, NOTE]
    said = fails(project, *steps)
    assert said == (
        "agent actor | no crash that the file does not ask for | ValueError: boom; if that is wanted: "
        "{check: restarts, of: actor, ge: 1}"
    )
    counted = {"check": "restarts", "of": "actor", "equals": 1}
    passes(project, *steps, checks=[counted])
    statistics = {"check": "statistics", "of": "actor", "le": 3}
    passes(project, *steps, checks=[{**statistics, "counter": "restarts"}])
    assert "no crash" in fails(project, *steps, checks=[{**statistics, "counter": "handled"}])
    tree = {"root": {"children": [{"name": "crew", "children": ["actor"]}]}}
    passes(project, *steps, tree=tree, checks=[{"check": "restarts", "of": "crew", "equals": 0}])


def test_a_crash_that_a_step_expects_is_seen_with_all_in_its_trace(project: Project) -> None:
    pointing = {"use": "cast.py:Pointing", "args": {"to": "$(agents.actor)", "need": 1}}
    cast = agents(actor="Actor", pointing=pointing)
    pass_on = {"do": "invoke", "target": "pointing", "action": "pass_on", "error": {"is": "AgentDied"}}
    passes(project, pass_on, PAUSE, NOTE, agents=cast)
    apart = {"do": "invoke", "target": "pointing", "action": "lose"}
    assert "no crash" in fails(project, pass_on, PAUSE, apart, PAUSE, agents=cast)


def test_many_crashes_are_told_in_few_words(project: Project) -> None:
    tells = [{"do": "tell", "target": f"a{n}", "action": "boom"} for n in range(8)]
    cast = agents(**{f"a{n}": "Actor" for n in range(8)})
    result = run(project, *tells, agents=cast, tree={"root": {"children": list(cast), "max_restarts": 9}})
    assert len(result.failures) == 6
    assert result.failures[-1].saw == "3 more crashes"


def test_a_kind_of_step_that_nobody_knows_is_no_step_done() -> None:
    from lmos_actors.scenario.run.steps import unknown_step

    assert "the kind str" in str(unknown_step("a step"))


# --- what agents are made of


def test_args_state_and_mailbox(project: Project) -> None:
    entry = {"use": "cast.py:Actor", "args": {"tags": ["a"]}, "state": {"level": 4, "spot": {"x": 9}}}
    read = {"do": "read", "id": "r", "target": "actor", "property": "spot"}
    tag = invoke("tag", id="t", input={"text": "b"})
    steps = [read, expect("output", of="r", equals={"x": 9, "y": 0})]
    steps += [tag, expect("output", of="t", equals=["a", "b"]), CRASH]
    steps += [
        invoke("tag", id="u", input={"text": "c"}),
        expect("output", of="u", equals=["a", "c"]),
    ]
    passes(project, *steps, agents=agents(actor=entry))


def test_refs_to_other_agents(project: Project) -> None:
    pointing = {"use": "cast.py:Pointing", "args": {"to": "$(agents.actor)", "need": 1}}
    cast = agents(pointing=pointing, actor="Actor")
    ask = {"do": "invoke", "id": "a", "target": "pointing", "action": "ask", "input": {"text": "x"}}
    passes(project, ask, expect("output", of="a", equals="x"), agents=cast)
    tree = {"root": {"children": ["pointing", {"name": "below", "children": ["actor"]}]}}
    passes(project, ask, expect("output", of="a", equals="x"), agents=cast, tree=tree)


def test_what_agents_print_is_no_result(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    passes(project, invoke("speak"))
    assert capfd.readouterr() == ("", "spoken by an agent\n")


# --- checks


def test_a_dead_letter_is_never_missed(project: Project) -> None:
    pointing = {"use": "cast.py:Pointing", "args": {"to": "$(agents.actor)", "need": 1}}
    cast = agents(actor="Actor", pointing=pointing)
    lose = {"do": "invoke", "target": "pointing", "action": "lose"}
    never = {"check": "never", "when": {"dead_letter": True}}
    counted = {"check": "restarts", "of": "actor", "equals": 1}
    assert "actor.boom" in fails(project, lose, checks=[never, counted], agents=cast)
    passes(project, NOTE, checks=[never])


def test_what_is_lost_at_the_end_is_lost(project: Project) -> None:
    never = {"check": "never", "when": {"dead_letter": True}}
    tell = {"do": "tell", "target": "actor", "action": "plain", "input": {"seconds": 9}}
    assert "no dead letter" in fails(project, tell, tell, checks=[never])


@pytest.mark.parametrize(
    ("bound", "ok"), [({"equals": 1}, True), ({"ge": 2}, False), ({"le": 0}, False), ({"le": 1}, True)]
)
def test_counters_of_an_agent_are_judged(project: Project, bound: dict[str, int], ok: bool) -> None:
    check = {"check": "statistics", "of": "actor", "counter": "handled", **bound}
    assert run(project, NOTE, checks=[check]).ok == ok


def test_latency_is_that_of_virtual_time(project: Project) -> None:
    step = invoke("plain", id="p")
    passes(project, step, checks=[{"check": "latency", "of": "p", "max": {"le": "1s"}}])
    said = fails(project, step, checks=[{"check": "latency", "of": "p", "max": {"lt": "1s"}}])
    assert said == "check latency p | max less than 1s | 1s"


def test_a_percentile_needs_samples(project: Project) -> None:
    """F3."""
    check = {"check": "latency", "of": "p", "p95": {"le": "1h"}}
    step = invoke("plain", id="p")
    few = {"do": "repeat", "times": 19, "steps": [step]}
    assert "at most 19 runs" in mistakes(project, few, checks=[check])[0]
    passes(project, {**few, "times": 20}, checks=[check])


# --- nothing passes by accident


def test_steps_not_reached_fail(project: Project) -> None:
    result = run(project, invoke("boom"), NOTE, NOTE | {"id": "b"})
    assert (result.steps_done, result.steps, result.ended) == (0, 3, "failed")


def test_checks_are_not_passed_when_the_story_is_cut_short(project: Project) -> None:
    never = {"check": "never", "when": {"dead_letter": True}}
    assert run(project, invoke("boom"), checks=[never]).checks_passed == 0


def test_the_end_of_the_tree_fails(project: Project) -> None:
    cast = agents(actor={"use": "cast.py:Actor", "restart": "transient", "significant": True})
    tree = {"root": {"auto_shutdown": "any_significant", "children": ["actor"], "max_restarts": 0}}
    assert not run(project, CRASH, NOTE, agents=cast, tree=tree).ok


def test_a_story_has_its_time(project: Project) -> None:
    result = run(project, NOTE, {"do": "wait", "for": "1m"}, timeout="5s")
    assert result.ended == "time limit"
    assert result.virtual == 5
    assert result.failures[0].saw.endswith("wait for 1m")


def test_what_keeps_a_story_going_is_named_and_not_what_was_done_last(project: Project) -> None:
    beside = [invoke("never", id=name, wait=False) for name in "nm"]
    result = run(project, *beside, NOTE, timeout="5s")
    assert result.ended == "time limit"
    saw = result.failures[0].saw
    assert saw.startswith("still at ")
    assert [each.split()[-1] for each in saw.split(", ")] == ["(n)", "(m)"]


def test_what_keeps_a_block_going_is_named(project: Project) -> None:
    waits = [[{"do": "wait", "for": f"{number}s"}] for number in range(1, 7)]
    block = {"do": "parallel", "branches": waits, "within": "1500ms"}
    result = run(project, invoke("never", id="n", wait=False), block, timeout="5s")
    saw = result.failures[0].saw
    assert saw.count("wait for") == 3
    assert "wait for 1s" not in saw
    assert "(n)" not in saw
    assert saw.endswith(" and 2 more")


def test_an_expectation_without_a_bound_of_its_own_has_that_of_the_story(project: Project) -> None:
    steps = [{"do": "wait", "for": "1s"}, invoke("never", id="n", wait=False)]
    result = run(project, *steps, expect("output", of="n", equals=None), timeout="5s")
    assert (result.ended, result.virtual) == ("failed", 5)
    assert result.failures[0].saw == "no answer yet"


def test_what_cannot_start_did_not_run(project: Project) -> None:
    crash = {"do": "inject", "fault": {"kind": "crash", "target": "bad"}}
    result = run(project, NOTE, crash, agents=agents(actor="Actor", bad="BadStart"))
    assert result.ended == "could not run"
    (failure,) = result.failures
    assert failure.place.endswith("story.yaml:9:3")
    assert failure.saw.startswith("OSError: no disk at cast.py:")


def test_what_cannot_start_again_fails(project: Project) -> None:
    crash = {"do": "inject", "fault": {"kind": "crash", "target": "bad"}}
    result = run(project, crash, NOTE, agents=agents(actor="Actor", bad="BadSecond"))
    assert result.ended == "failed"
    assert "only once at cast.py:" in result.failures[-1].saw


def test_an_agent_that_leaves_the_process_is_a_failure(project: Project) -> None:
    assert "SystemExit: 7" in str(run(project, invoke("leave")).failures)


def test_an_agent_that_cannot_be_stopped_ends_the_run(project: Project) -> None:
    step = {"do": "invoke", "target": "hang", "action": "hang", "wait": False, "within": "1s"}
    steps = [step, {"do": "wait", "for": "2s"}]
    cast = agents(hang={"use": "cast.py:Hanging", "shutdown": "1s"})
    assert run(project, *steps, agents=cast).ended == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("action", ["spin", "again"])
def test_a_run_that_never_comes_to_an_end_is_ended(project: Project, action: str) -> None:
    step = {"do": "tell", "target": "actor", "action": action}
    file = project.root / project.write("story.yaml", story(step, {"do": "wait", "for": "1s"}))
    resolved = load_scenario(file)
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=0.3)
    assert result.ended == "time limit"
    assert "of real time" in result.failures[0].expected


def test_one_seed_gives_one_log_and_another_gives_another(project: Project) -> None:
    rule = {"output": 1, "delay": {"dist": "uniform", "min": "0s", "max": "1s"}}
    by_chance = {"from": "mock", "rules": [{"when": {"action": "get"}, **rule}]}
    more: dict[str, Any] = {"agents": {"slow": by_chance}, "seeds": [1, 2]}
    first, other = runs(project, invoke("get", target="slow"), **more)
    again, _ = runs(project, invoke("get", target="slow"), **more)
    assert first.log == again.log
    assert first.digest == again.digest != other.digest


def test_a_seed_that_changes_nothing_gives_another_log_with_the_same_digest(project: Project) -> None:
    first, other = runs(project, NOTE, seeds=[1, 2])
    assert first.log != other.log
    assert first.digest == other.digest


def test_a_log_tells_of_messages_and_faults(project: Project) -> None:
    log = [json.loads(line) for line in run(project, NOTE, CRASH).log]
    kinds = [record.get("kind") for record in log]
    assert [kind for kind in kinds if kind in ("sent", "answered", "fault", "crashed", "restarting")] == [
        "sent",
        "answered",
        "fault",
        "crashed",
        "restarting",
    ]


# --- the classes of agents (F5)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (invoke("nte", input={"text": "a"}), 'Actor has no action "nte", did you mean "note"?'),
        (invoke("level"), 'Actor has no action "level", it is a property'),
        (invoke("note", input={"txt": "a"}), 'has no parameter "txt", did you mean "text"?'),
        (invoke("note", input={"text": 7}), "Expected `str`, got `int`"),
        (invoke("note", input=["a"]), "takes an object"),
        (invoke("note"), "Actor.note needs text"),
        (invoke("point", input={"where": {"x": 1, "z": 2}}), 'unknown key "z"'),
        (invoke("whole"), 'needs an "input"'),
        (invoke("items"), "gives many outputs: do: stream"),
        ({"do": "read", "target": "actor", "property": "hidden"}, '"hidden" is write-only'),
        ({"do": "read", "target": "actor", "property": "lvel"}, 'did you mean "level"?'),
        ({"do": "observe", "target": "actor", "property": "hidden", "id": "o"}, '"hidden" is write-only'),
        ({"do": "write", "target": "actor", "property": "fixed", "value": "x"}, '"fixed" is read-only'),
        ({"do": "write", "target": "actor", "property": "level", "value": "x"}, "Expected `int`"),
        ({"do": "subscribe", "target": "actor", "event": "note"}, 'no event "note", it is an action'),
    ],
)
def test_a_step_that_its_target_does_not_know(project: Project, step: Any, said: str) -> None:
    (message,) = [m for m in mistakes(project, step) if said in m] or [mistakes(project, step)]
    assert said in message


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ({"text": ["a", 7]}, "Expected `str`, got `int`"),
        ({"text": {"min": 0, "max": 1.5}}, "Expected `str`, got `float`"),
        ({"txt": ["a"]}, 'Actor.note has no parameter "txt", did you mean "text"?'),
    ],
)
def test_drawn_arguments_are_of_the_types_of_their_action(project: Project, drawn: Any, said: str) -> None:
    assert said in mistakes(project, NOTE, explore={"arguments": {"note": drawn}})[0]


def test_drawn_arguments_may_be_wrong_on_purpose(project: Project) -> None:
    drawn = {"explore": {"arguments": {"note": {"text": ["a", 7]}}}}
    runs(project, {**NOTE, "error": {"is": "InvalidInput"}}, **drawn)


def test_a_step_may_be_wrong_on_purpose(project: Project) -> None:
    passes(project, invoke("nte", error={"is": "NotFound"}))
    write = {"do": "write", "target": "actor", "property": "fixed", "value": "x"}
    passes(project, {**write, "error": {"is": "NotAllowed"}})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"args": {"pce": 1.0}}, 'Actor has no field "pce", did you mean "pace"?'),
        ({"args": {"pace": "fast"}}, "Expected `float`, got `str`"),
        ({"args": {"tags": ["a", 1]}}, "Expected `str`, got `int`"),
        ({"state": {"spot": {"x": 1, "q": 2}}}, 'unknown key "q"'),
        ({"state": {"level": 1}, "args": {"level": 2}}, '"level" is given in state too'),
        ({"use": "cast.py:Pointing", "args": {"to": "$(agents.actor)"}}, "Pointing needs need in args"),
        (
            {"use": "cast.py:Pointing", "args": {"to": "actor", "need": 1}},
            "a ref to an agent is expected here",
        ),
        (
            {"use": "cast.py:Pointing", "args": {"to": "$(agents.other)", "need": 1}},
            'a ref to Actor is expected here, "other" is Pointing',
        ),
        ({"args": {"pace": "$(agents.actor)"}}, '"pace" is no ref to an agent but float'),
        ({"use": "cast.py:NoAgent"}, "is not an agent"),
    ],
)
def test_what_a_class_does_not_take(project: Project, entry: dict[str, Any], said: str) -> None:
    cast = agents(actor="Actor", other={"use": "cast.py:Actor", **entry})
    assert any(said in message for message in mistakes(project, NOTE, agents=cast))
