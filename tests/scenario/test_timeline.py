"""Timelines: what happens when, in which order, what is measured, and how a simulation ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.scenario.run import run_cell
from tests.scenario.crowds import Crowds, at, crowds_in, peers, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowds]:
    with crowds_in(tmp_path_factory.mktemp("crowds")) as made:
        yield made


HEARD = {"every": "1s", "series": {"heard": total("state.heard")}}
MET = {"check": "eventually", "name": "met", "expr": "series.heard >= 2", "by": "9s"}


def instants(result: RunResult, **fields: Any) -> list[float]:
    """Give when the log has records with these fields."""
    records = [json.loads(line) for line in result.log[1:-1]]
    return [record["t"] for record in records if fields.items() <= record.items()]


def test_entries_happen_at_their_instants_whatever_their_order_in_the_file(crowds: Crowds) -> None:
    result = crowds.passes(timeline=[at("3s", "hear"), at("1500ms", "hear"), at("0s", "hear")])
    assert instants(result, kind="sent") == [0.0, 1.5, 3.0]
    assert [(step.begin, step.end, step.ok) for step in result.step_results] == [
        (0.0, 0.0, True),
        (1.5, 1.5, True),
        (3.0, 3.0, True),
    ]
    assert (result.steps, result.steps_done, result.virtual) == (3, 3, 10)


@pytest.mark.parametrize("seed", range(5))
def test_entries_of_one_instant_are_in_order_each_after_the_effects_of_the_one_before(
    crowds: Crowds, seed: int
) -> None:
    entries = [at("1s", "hear", target=f"peer/{n}", input={"times": 2}) for n in (2, 0, 1)]
    result = crowds.passes(timeline=entries, topology={"kind": "line", "of": "peer"}, seeds=[seed])
    sent = [json.loads(line) for line in result.log if '"kind":"sent"' in line]
    assert [(one["from"], one["agent"]) for one in sent] == [
        ("user", "peer/2"),
        ("peer/2", "peer/1"),
        ("peer/2", "peer/3"),
        ("user", "peer/0"),
        ("peer/0", "peer/1"),
        ("user", "peer/1"),
        ("peer/1", "peer/0"),
        ("peer/1", "peer/2"),
    ]


def test_samples_come_after_what_happens_at_their_instant(crowds: Crowds) -> None:
    entries = [at(f"{n}s", "hear", target=f"peer/{n}", input={"times": 2}) for n in range(4)]
    result = crowds.passes(
        timeline=entries, topology={"kind": "ring", "of": "peer"}, measure=HEARD, stop={"at": "4s"}
    )
    (series,) = result.series
    assert series.times == (1.0, 2.0, 3.0, 4.0)
    assert series.values == (6.0, 9.0, 12.0, 12.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_sample_of_the_last_instant_is_taken(crowds: Crowds, seed: int) -> None:
    result = crowds.passes(measure=HEARD, stop={"at": "3s"}, seeds=[seed])
    assert result.series[0].times == (1.0, 2.0, 3.0)


def test_an_answer_is_awaited(crowds: Crowds) -> None:
    work = {"at": "1s", "do": "invoke", "target": "peer/0", "action": "work", "id": "work"}
    result = crowds.passes(timeline=[work], checks=[{"check": "latency", "of": "work", "max": {"le": "1s"}}])
    assert result.step_results[0].end == 2.0
    assert result.metrics["work.max"] == 1.0


def test_what_does_not_end_before_the_run_fails(crowds: Crowds) -> None:
    work = {"at": "9500ms", "do": "invoke", "target": "peer/0", "action": "work"}
    result = crowds.run(timeline=[work, at("1s", "hear")])
    assert (result.steps_done, result.ended) == (1, "failed")
    assert result.failures[0].expected == "its end before that of the run"
    assert [step.ok for step in result.step_results] == [True, False]


def test_an_error_fails_unless_the_entry_says_so(crowds: Crowds) -> None:
    boom = {"at": "1s", "do": "invoke", "target": "peer/0", "action": "boom"}
    assert "ValueError: boom" in crowds.fails(timeline=[boom])
    crowds.passes(timeline=[{**boom, "error": {"is": "AgentDied"}}])
    hear = {**boom, "action": "hear", "error": {"is": "AgentDied"}}
    assert "AgentDied | no error" in crowds.fails(timeline=[hear])


def test_a_failure_ends_the_run(crowds: Crowds) -> None:
    boom = {"at": "1s", "do": "invoke", "target": "peer/0", "action": "boom"}
    result = crowds.run(timeline=[boom, at("2s", "hear")])
    assert result.virtual == 1
    assert [step.ok for step in result.step_results] == [False, None]


def test_a_property_is_written(crowds: Crowds) -> None:
    write = {"at": "1s", "do": "write", "target": "peer/2", "property": "heard", "value": 7}
    assert crowds.passes(timeline=[write], measure=HEARD).series[0].values[-1] == 7


def test_it_ends_as_soon_as_its_check_is_met(crowds: Crowds) -> None:
    entries = [at("1500ms", "hear"), at("2500ms", "hear")]
    keys: dict[str, Any] = {"timeline": entries, "measure": HEARD, "checks": [MET]}
    result = crowds.passes(stop={"at": "10s", "when": "met"}, **keys)
    assert result.virtual == 3
    assert result.metrics["met.time"] == 3
    assert crowds.passes(**keys).virtual == 10


def test_it_does_not_end_before_everything_has_happened(crowds: Crowds) -> None:
    entries = [at("1s", "hear"), at("1s", "hear"), at("6500ms", "hear")]
    stop = {"at": "10s", "when": "met"}
    assert crowds.passes(timeline=entries, measure=HEARD, checks=[MET], stop=stop).virtual == 6.5
    pause = {"at": "1s", "do": "fault", "kind": "pause", "target": "peer/1", "duration": "7s"}
    result = crowds.passes(timeline=[*entries, pause], measure=HEARD, checks=[MET], stop=stop)
    assert result.virtual == 8
    other = {"check": "eventually", "name": "three", "expr": "series.heard >= 3", "by": "9s"}
    assert crowds.passes(timeline=entries, measure=HEARD, checks=[MET, other], stop=stop).virtual == 7


def test_a_shorter_end_leaves_out_what_comes_after_it(crowds: Crowds) -> None:
    """As `--until` has it; in a file it is a mistake."""
    from lmos_actors.scenario.format import with_end_at

    resolved = with_end_at(crowds.load(timeline=[at("1s", "hear"), at("5s", "hear")]), 3.0)
    result = run_cell(resolved, resolved.cells[0], 1)
    assert (result.ended, result.steps, result.steps_done, result.virtual) == ("passed", 1, 1, 3)


def test_what_busy_agents_lose_at_the_end_is_no_part_of_the_run(crowds: Crowds) -> None:
    restless = {"from": "agent", "use": "crowd.py:Restless"}
    cast = {"one": {**restless, "args": {"other": "$(agents.two)"}}, "two": restless}
    never = {"check": "never", "when": {"dead_letter": True}}
    result = crowds.passes(agents=cast, checks=[never], stop={"at": "1050ms"}, measure=HEARD)
    assert not instants(result, kind="stopped")
    assert instants(result, kind="sent")[-1] == 1.0


def test_nobody_is_given_time_after_the_end(crowds: Crowds) -> None:
    crowds.passes(timeline=[at("1s", "work", input={"seconds": 12.0})], stop={"at": "10s"})
    assert crowds.made()[0].pace == 10.0


def test_a_crash_that_nobody_asked_for_fails(crowds: Crowds) -> None:
    said = crowds.fails(timeline=[at("1s", "boom")])
    assert said.startswith("agent peer/0 | no crash that the file does not ask for | ValueError: boom; if")
    of_one = {"check": "restarts", "of": "peer/0", "ge": 1}
    assert said.endswith("{check: restarts, of: peer/0, ge: 1}")
    crowds.passes(timeline=[at("1s", "boom")], checks=[of_one])
    crowds.passes(timeline=[at("1s", "boom")], checks=[{"check": "restarts", "of": "peer", "equals": 1}])
    other = {"check": "restarts", "of": "other", "equals": 0}
    said = crowds.fails(
        timeline=[at("1s", "boom"), at("1s", "hear", target="other/0")],
        population=[peers(1), {**peers(2), "id": "other"}],
        checks=[other],
    )
    assert "no crash" in said


def test_faults_are_told(crowds: Crowds) -> None:
    result = crowds.passes(
        population=[peers(20)],
        timeline=[
            {"at": "1s", "do": "fault", "id": "down", "kind": "crash", "pick": {"count": 3, "of": "peer"}},
            {
                "at": "2s",
                "do": "fault",
                "kind": "pause",
                "pick": {"share": 0.5, "of": "peer"},
                "duration": "4s",
            },
        ],
        checks=[{"check": "restarts", "of": "peer", "equals": 3}],
    )
    down, pause = result.faults
    assert (down.id, down.kind, len(down.targets), down.begin, down.end) == ("down", "crash", 3, 1.0, 1.0)
    assert (pause.kind, len(pause.targets), pause.begin, pause.end) == ("pause", 10, 2.0, 6.0)
    assert [step.what for step in result.step_results] == [
        "fault crash 3 of peer (down)",
        "fault pause 0.5 of peer for 4s",
    ]


def test_a_fault_on_who_does_not_run_fails(crowds: Crowds) -> None:
    crash = {"at": "1s", "do": "fault", "kind": "crash", "target": "peer/3"}
    said = crowds.fails(population=[peers(4, start={"over": "5s"})], timeline=[crash])
    assert said.startswith("fault crash peer/3 | a running peer/3 | ")


def test_a_run_in_which_nothing_is_asked_and_nothing_seen_does_not_pass(crowds: Crowds) -> None:
    entry = {"id": "peer", "count": 2, "use": "crowd.py:Restless"}
    said = crowds.fails(population=[entry], measure=None)
    assert said == "the run | something to do, to check or to measure | nothing"


def test_instants_are_those_of_virtual_time_though_agents_need_time_to_start(crowds: Crowds) -> None:
    slow = {"from": "agent", "use": "crowd.py:Slow"}
    result = crowds.passes(
        agents={"slow": slow}, timeline=[at("3s", "hear"), at("1s", "hear")], measure=HEARD, stop={"at": "5s"}
    )
    assert [step.begin for step in result.step_results] == [2.0, 3.0]
    assert result.series[0].times == (3.0, 4.0, 5.0)
    assert result.virtual == 5


def test_one_seed_gives_one_log(crowds: Crowds) -> None:
    keys: dict[str, Any] = {
        "population": [peers(30)],
        "topology": {"kind": "small_world", "of": "peer", "degree": 4, "rewire": 0.3},
        "timeline": [
            at("1s", "hear", input={"times": 4}),
            {"at": "2s", "do": "fault", "kind": "crash", "pick": {"count": 3, "of": "peer"}},
        ],
        "seeds": [1, 2],
    }
    first, other = crowds.runs(**keys)
    again, _ = crowds.runs(**keys)
    assert first.log == again.log
    assert first.log[1:] != other.log[1:]


def test_progress_is_told_in_virtual_time(crowds: Crowds) -> None:
    resolved = crowds.load(timeline=[at("2s", "hear")], measure=HEARD)
    told: list[tuple[int, int]] = []
    seen: list[Any] = []
    run_cell(
        resolved,
        resolved.cells[0],
        1,
        progress=lambda done, total, text: told.append((done, total)),
        on_start=lambda watching: seen.append((watching.now(), watching.tree(), watching.counts())),
    )
    assert all(total == 10_000_000 for _, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (10_000_000, 10_000_000) in told
    ((now, tree, counts),) = seen
    assert now == 0
    assert "peer one_for_one" in tree[2]
    assert counts == {"started": 4}


# ---- people


def decides(crowds: Crowds, *entries: Any, **more: Any) -> RunResult:
    asked = {"at": "1s", "do": "invoke", "id": "ask", "target": "desk", "action": "refund"}
    timeline = [{**asked, "input": {"order": "o-1", **more}}, *entries]
    return crowds.run(timeline=timeline, agents={"desk": {"from": "agent", "use": "crowd.py:Desk"}})


@pytest.mark.parametrize("verb", ["approve", "refuse"])
@pytest.mark.parametrize("when", ["500ms", "3s"])
def test_people_decide_then_or_once_they_are_asked(crowds: Crowds, verb: str, when: str) -> None:
    entry = {"at": when, "do": verb, "target": "desk", "key": "o-1", "note": "so be it"}
    result = decides(crowds, entry)
    assert (result.ended, result.failures) == ("passed", ())
    assert [step.ok for step in result.step_results] == [True, True]
    assert max(step.end for step in result.step_results) == max(1.0, float(when == "3s") * 3)


def test_a_deadline_decides(crowds: Crowds) -> None:
    entry = {"at": "2s", "do": "refuse", "target": "desk", "by": "deadline"}
    assert decides(crowds, entry, seconds=5.0).ended == "passed"


def test_what_is_not_asked_cannot_be_decided(crowds: Crowds) -> None:
    answered = {"at": "2s", "do": "approve", "target": "desk", "key": "o-1"}
    result = decides(crowds, answered, {**answered, "key": "o-2"})
    assert [(one.expected, one.saw) for one in result.failures] == [
        ("its end before that of the run", "none by then")
    ]


def test_what_nobody_decides_fails_the_run(crowds: Crowds) -> None:
    texts = [failure.expected for failure in decides(crowds).failures]
    assert 'a step "do: approve" or "do: refuse"' in texts
