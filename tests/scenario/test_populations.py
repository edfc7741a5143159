"""Populations: how many, what each is made with, when each starts, who knows whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.actors import slot_of
from lmos_actors.scenario.run import real_limit_of
from tests.scenario.crowds import Crowds, at, crowds_in, peers, total

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowds]:
    with crowds_in(tmp_path_factory.mktemp("crowds")) as made:
        yield made


def made_with(crowds: Crowds, count: int, **keys: Any) -> list[Any]:
    crowds.passes(population=[peers(count, **keys)])
    return crowds.made()


def test_agents_are_numbered_in_the_tree(crowds: Crowds) -> None:
    result = crowds.passes(population=[peers(3)])
    assert [row.split()[0] for row in result.tree[2:]] == ["peer", "0", "1", "2"]
    started = [line for line in result.log if '"kind":"started"' in line]
    assert [f'"agent":"peer/{n}"' in line for n, line in enumerate(started)] == [True] * 3


def test_a_run_may_take_longer_with_more_agents(crowds: Crowds) -> None:
    limits = [real_limit_of(crowds.load(population=[peers(count)]).cells[0]) for count in (1, 2_000, 100_000)]
    assert limits == [60.001, 62.0, 160.0]


def test_numbers_stand_in_arguments(crowds: Crowds) -> None:
    args = {
        "number": "$(population.index)",
        "name": "agent $(population.index) of $$(all)",
        "words": ["x$(population.index)"],
    }
    found = made_with(crowds, 3, args=args)
    assert [agent.number for agent in found] == [0, 1, 2]
    assert [agent.name for agent in found] == [f"agent {n} of $(all)" for n in range(3)]
    assert [agent.words for agent in found] == [["x0"], ["x1"], ["x2"]]


def test_no_two_agents_share_what_can_be_changed(crowds: Crowds) -> None:
    first, second = made_with(crowds, 2, args={"words": ["a"]}, state={"heard": 4})
    assert first.words == second.words
    assert first.words is not second.words
    assert (first.heard, second.heard) == (4, 4)


def test_each_draws_for_itself(crowds: Crowds) -> None:
    pace = {"dist": "uniform", "min": "1s", "max": "3s"}
    paces = [agent.pace for agent in made_with(crowds, 50, args={"pace": pace})]
    assert len(set(paces)) == 50
    assert all(1 <= pace <= 3 for pace in paces)
    assert [agent.pace for agent in made_with(crowds, 50, args={"pace": pace})] == paces
    # one more argument, or agent, changes nothing for the others
    more = made_with(crowds, 60, args={"pace": pace, "number": 7})
    assert [agent.pace for agent in more][:50] == paces


def test_another_seed_draws_otherwise(crowds: Crowds) -> None:
    pace = {"dist": "exponential", "mean": "1s"}
    crowds.runs(population=[peers(3, args={"pace": pace})], seeds=[1, 2])
    paces = [agent.pace for agent in crowds.made()]
    assert len(set(paces)) == 6


def test_a_restarted_agent_is_made_with_the_same(crowds: Crowds) -> None:
    pace = {"dist": "uniform", "min": 0.0, "max": 1.0}
    crowds.passes(
        population=[peers(2, args={"pace": pace, "number": "$(population.index)"})],
        timeline=[{"at": "1s", "do": "fault", "kind": "crash", "target": "peer/1"}],
    )
    _, first, second = crowds.made()
    assert first is not second
    assert (first.pace, first.number) == (second.pace, second.number)


def test_refs_to_one_and_to_all(crowds: Crowds) -> None:
    hub = {"id": "hub", "count": 1, "use": "crowd.py:Hub"}
    args = {"hub": "$(agents.hub)", "friends": "$(agents.peer)"}
    result = crowds.passes(
        population=[peers(3, args=args), hub],
        timeline=[at("1s", "report", target=f"peer/{n}") for n in range(3)],
        measure={"every": "5s", "series": {"seen": total("state.seen", "hub")}},
    )
    assert result.series[0].values == (3.0, 3.0)
    assert [[ref.path for ref in agent.friends] for agent in crowds.made()] == [
        ["peer/0", "peer/1", "peer/2"]
    ] * 3


def test_agents_of_a_simulation_know_the_population(crowds: Crowds) -> None:
    lone = {"from": "agent", "use": "crowd.py:Member", "args": {"friends": "$(agents.peer)"}}
    crowds.passes(agents={"lone": lone}, population=[peers(2)], timeline=[at("1s", "hear", target="lone")])
    first = crowds.made()[0]
    assert [ref.path for ref in first.friends] == ["peer/0", "peer/1"]


def test_neighbours_are_those_of_the_topology(crowds: Crowds) -> None:
    result = crowds.passes(
        population=[peers(5)],
        topology={"kind": "ring", "of": "peer"},
        timeline=[at("1s", "hear", input={"times": 3})],
        measure={"every": "2s", "series": {"heard": total("state.heard")}},
    )
    found = crowds.made()
    assert [ref.path for ref in found[0].neighbours] == ["peer/1", "peer/4"]
    assert result.series[0].values[0] == 1 + 2 + 4


def test_neighbours_may_have_another_name(crowds: Crowds) -> None:
    crowds.passes(population=[peers(3)], topology={"kind": "star", "of": "peer", "field": "friends"})
    centre, *_ = crowds.made()
    assert [ref.path for ref in centre.friends] == ["peer/1", "peer/2"]


def test_starts_are_spread_over_time(crowds: Crowds) -> None:
    result = crowds.passes(population=[peers(4, start={"over": "2s"})], stop={"at": "5s"})
    started = [line for line in result.log if '"kind":"started"' in line]
    times = [float(line.partition('"t":')[2].partition(",")[0]) for line in started]
    assert times == [0.0, 0.5, 1.0, 1.5]


def test_who_is_not_started_yet_cannot_be_told(crowds: Crowds) -> None:
    said = crowds.fails(
        population=[peers(4, start={"over": "2s"})], timeline=[at("1s", "hear", target="peer/3")]
    )
    assert "tell peer/3.hear | an answer | " in said


def test_a_start_that_fails_did_not_run(crowds: Crowds) -> None:
    args = {"number": "$(population.index)"}
    entry = {"id": "peer", "count": 9, "use": "crowd.py:Fragile", "args": args}
    for start in ({}, {"start": {"over": "1s"}}):
        result = crowds.run(population=[{**entry, **start}])
        assert result.ended == "could not run"
        (failure,) = result.failures
        assert failure.what == "start peer/3"
        assert "OSError: no room at crowd.py:" in failure.saw
        assert "crowd.yaml:" in failure.place


def test_a_population_is_restarted_whole(crowds: Crowds) -> None:
    """More crashes than it may have: the root starts it anew, with as many agents."""
    crash = {"do": "fault", "kind": "crash", "target": "peer/1"}
    result = crowds.passes(
        population=[peers(3, max_restarts=1)],
        timeline=[{"at": f"{n}s", **crash} for n in (1, 2)],
        measure={"every": "4s", "series": {"there": total("state.heard >= 0", agg="count")}},
        stop={"at": "5s"},
    )
    assert result.series[0].values == (3.0,)
    assert sum(fault.kind == "crash" for fault in result.faults) == 2


def test_its_mailbox_is_that_of_the_file(crowds: Crowds) -> None:
    result = crowds.passes(population=[peers(2, mailbox={"size": 7, "when_full": "reject"})])
    assert " 0/7 " in result.tree[-1]


def test_a_turn_takes_the_service_time(crowds: Crowds) -> None:
    result = crowds.passes(
        population=[peers(1, service_time="300ms")],
        timeline=[at("1s", "hear"), at("1s", "hear"), at("1s", "hear")],
        measure={"every": "500ms", "series": {"heard": total("state.heard")}},
        stop={"at": "3s"},
    )
    assert result.series[0].values == (0, 0, 1, 3, 3, 3)


def test_a_large_tree_is_drawn_in_part(crowds: Crowds) -> None:
    result = crowds.passes(population=[peers(200)])
    assert len(result.tree) == 18
    assert result.tree[-1] == "... 186 more"


def test_only_the_tail_of_a_log_is_kept_unless_all_of_it_is_wanted(crowds: Crowds) -> None:
    from lmos_actors.scenario.run import run_cell

    resolved = crowds.load(population=[peers(300)])
    whole = run_cell(resolved, resolved.cells[0], 1)
    part = run_cell(resolved, resolved.cells[0], 1, whole_log=False)
    assert len(whole.log) == 302
    assert part.log == ()
    assert part.last == whole.last
    assert (part.logged, part.digest) == (whole.logged, whole.digest)


def test_the_slots_of_a_crowd_are_there_before_the_first_starts(crowds: Crowds) -> None:
    crowds.passes(population=[peers(3, start={"over": "9s"})], topology={"kind": "complete", "of": "peer"})
    first = crowds.made()[0]
    assert [slot_of(ref).label for ref in first.neighbours] == ["1", "2"]


def test_everybody_means_those_that_are_yet_to_be_started_too(crowds: Crowds) -> None:
    others = {**peers(2, state={"heard": 1}), "id": "other"}
    said = crowds.fails(
        population=[peers(2), others],
        timeline=[at("1s", "hear", target="other/0")],
        checks=[{"check": "eventually", "of": "*", "expr": "state.heard == 0", "by": "5s"}],
    )
    assert "left behind 2 agents: other/0, other/1" in said


@pytest.mark.parametrize("of", ["peer", "*"])
def test_what_a_member_starts_is_no_member(crowds: Crowds, of: str) -> None:
    result = crowds.passes(
        population=[peers(2, args={"number": "$(population.index)"})],
        timeline=[{"at": "1s", "do": "invoke", "target": "peer/1", "action": "adopt"}],
        checks=[{"check": "always", "of": of, "expr": "state.number >= 0"}],
        measure={"every": "5s", "series": {"there": total("state.number >= 0", of, "count")}},
    )
    assert result.series[0].values == (2.0, 2.0)
    assert len(crowds.made()) == 3


@pytest.mark.parametrize(("restart", "ok"), [("permanent", True), ("transient", True), ("temporary", False)])
def test_no_count_of_restarts_asks_for_the_crash_of_who_is_not_restarted(
    crowds: Crowds, restart: str, ok: bool
) -> None:
    result = crowds.run(
        population=[peers(2, restart=restart)],
        timeline=[at("1s", "boom")],
        checks=[{"check": "restarts", "of": "peer", "le": 1}],
    )
    assert result.ok is ok
    assert ok or [failure.what for failure in result.failures] == ["agent peer/0"]
