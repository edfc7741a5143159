"""What `explore` decides: schedules in batches, files that are simpler, names of failures. Nothing is run."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.files import Duration, FileError, Offset, parse
from lmos_actors.reports import CheckResult, Failure, RunResult
from lmos_actors.scenario.explore import (
    BATCH,
    Outcome,
    Permit,
    Schedule,
    ScheduledFault,
    Search,
    Shrinker,
    Space,
    failures_of,
    faults_of,
    is_void,
    sentence_of,
    text_of,
    weight_of,
    with_schedule,
    without_drawn,
    yaml_of,
)
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.model import (
    DRAWN,
    DrawnClockSkew,
    DrawnCrash,
    DrawnFault,
    DrawnSwizzle,
    NumberRange,
    OffsetRange,
)
from tests.matrix import examples
from tests.seeded import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lmos_actors.scenario.explore import Data

SECOND = 1_000_000
NODES = tuple(f"peer/{number}" for number in range(5))
PERMITS = tuple(Permit(DRAWN[kind](), () if kind == "restart" else NODES, NODES) for kind in DRAWN)
SPACE = Space(permits=PERMITS, at_most=4, start=2 * SECOND, end=20 * SECOND)


def outcome(schedule: Schedule) -> Outcome:
    """What a run of a schedule might show: states by its faults, and a failure where two kinds meet."""
    kinds = {fault.data["kind"] for fault in schedule.faults}
    states = [hash_of(fault.data["kind"], fault.at // SECOND) for fault in schedule.faults]
    instants = (3 * SECOND, 5 * SECOND, *(fault.at for fault in schedule.faults))
    return Outcome(
        states=tuple(dict.fromkeys(states)),
        instants=instants,
        failure="both" if {"crash", "partition"} <= kinds else None,
        void="restart" in kinds,
    )


def hash_of(kind: str, number: int) -> int:
    return list(DRAWN).index(kind) * 1_000 + number


def batches(seed: int, count: int, *, guided: bool = True) -> list[tuple[Schedule, ...]]:
    search = Search([SPACE, SPACE], [7, 8], seed, guided=guided)
    found: list[tuple[Schedule, ...]] = []
    for _ in range(count):
        found.append(search.batch())
        search.take([outcome(schedule) for schedule in found[-1]])
    return found


# --- the search


@pytest.mark.parametrize("guided", [True, False])
def test_a_search_is_the_same_for_the_same_seed_and_another_for_another(guided: bool) -> None:
    assert batches(1, 4, guided=guided) == batches(1, 4, guided=guided)
    assert batches(1, 2, guided=guided)[1] != batches(2, 2, guided=guided)[1]


def test_the_first_batch_has_each_cell_without_faults() -> None:
    assert batches(1, 1) == [(Schedule(cell=0, seed=7), Schedule(cell=1, seed=7))]


def test_a_batch_depends_on_finished_batches_alone() -> None:
    """It is drawn before any of its runs has ended, so it does not matter which ends first."""
    search = Search([SPACE], [1], 1)
    search.take([outcome(schedule) for schedule in search.batch()])
    assert search.batch() == search.batch()
    assert len(search.batch()) == BATCH


@given(seed=st.integers(0, 1 << 40))
@settings(max_examples=examples(20), deadline=None)
def test_what_is_drawn_is_permitted(seed: int) -> None:
    for schedule in [schedule for batch in batches(seed, 4)[1:] for schedule in batch]:
        assert 1 <= len(schedule.faults) <= SPACE.at_most
        assert schedule.seed >= 1
        assert list(schedule.faults) == sorted(schedule.faults, key=lambda fault: fault.at)
        for fault in schedule.faults:
            check_fault(fault)


def check_fault(fault: ScheduledFault) -> None:
    assert SPACE.start <= fault.at < SPACE.end
    keys = fault.keys()
    kind = keys["kind"]
    assert kind == list(DRAWN)[fault.permit]
    instantaneous = kind in ("crash", "restart") or keys.get("how") in ("reset", "half_open")
    assert ("duration" in keys) is not instantaneous
    length = SPACE.end - SPACE.start
    if fault.duration is not None and kind != "swizzle":
        assert length // 1_000 <= fault.duration <= length // 3
    if "between" in keys:
        assert len(set(keys["between"])) == 2
    if kind == "partition":
        cut, rest = keys["sides"]
        assert rest == "rest"
        assert 0 < len(set(cut)) == len(cut) < len(NODES)
    if kind == "slow":
        assert 2 <= keys["factor"] <= 20
    if kind == "clock_skew":
        assert len({"skew", "rate"} & set(keys)) == 1
        assert 0 < abs(Offset.parse(keys.get("skew", "1s"))) <= 5
        assert 0.5 <= keys.get("rate", 2) <= 2
        assert keys.get("rate") != 1
    if kind == "swizzle":
        nodes = len(set(keys["of"]))
        assert 2 <= nodes == len(keys["of"])
        links = nodes * (nodes - 1) // 2
        assert Duration.parse(keys["duration"]) > 2 * (links - 1) * Duration.parse(keys["every"])
    if kind == "loss":
        assert 0.1 <= keys["share"] <= 0.9
    if kind == "latency":
        assert 0.01 <= Duration.parse(keys["delay"]) <= 2


@pytest.mark.parametrize(
    ("drawn", "keys"),
    [
        (DrawnCrash(state="kept"), {"restart": [{"state": "kept"}]}),
        (
            DrawnCrash(state="any", after=Duration(1.0)),
            {"restart": [{"after": "1s", "state": "kept"}, {"after": "1s", "state": "lost"}]},
        ),
        (DrawnClockSkew(skew=Offset(-3.0)), {"skew": {"-3s"}}),
        (DrawnClockSkew(rate=2.0), {"rate": {2.0}}),
        (DrawnClockSkew(rate=NumberRange(min=0.99, max=1.01)), {"rate": {0.99, 1.01}}),
        (DrawnClockSkew(skew=Offset(1.0), rate=0.5), {"skew": {"1s"}, "rate": {0.5}}),
        (DrawnSwizzle(every=Duration(1.0), duration=Duration(3.0)), {"duration": {"3s"}}),
        (DrawnSwizzle(every=Duration(1.0), duration=Duration(9.0)), {"every": {"1s"}, "duration": {"9s"}}),
    ],
)
def test_what_the_file_gives_is_drawn(drawn: DrawnFault, keys: dict[str, Any]) -> None:
    space = Space(permits=(Permit(drawn, NODES, NODES),), at_most=1, start=0, end=60 * SECOND)
    found = [space.fault(SECOND, stream(seed)).keys() for seed in range(40)]
    if isinstance(drawn, DrawnCrash):
        assert all(each["restart"] in keys["restart"] for each in found)
        assert all(wanted in [each["restart"] for each in found] for wanted in keys["restart"])
        return
    assert {key: {each[key] for each in found} for key in keys} == keys
    if isinstance(drawn, DrawnClockSkew):
        assert all(each.keys() == {"kind", "target", "duration", *keys} for each in found)
    else:
        assert {len(each["of"]) for each in found} == ({2} if keys["duration"] == {"3s"} else {2, 3})


def test_arguments_are_drawn_and_stand_in_the_file() -> None:
    choices = (("pay", "amount", NumberRange(min=0, max=99)), ("pay", "by", ("card", "$(cash)")))
    search = Search([Space(permits=(), at_most=1, start=0, end=SECOND, arguments=choices)], [1], 1)
    search.take([Outcome(states=(1,))])
    drawn = [schedule.arguments for schedule in search.batch()]
    amounts = {value for arguments in drawn for _, name, value in arguments if name == "amount"}
    assert {0, 99} < amounts <= set(range(100))
    data = {"lmos": "scenario/v1", "steps": [{"do": "repeat", "steps": [{"id": "pay", "input": {"x": 1}}]}]}
    made = with_schedule(data, 7, (), (("pay", "amount", 3), ("pay", "by", "$(cash)")))
    assert made["steps"][0]["steps"][0]["input"] == {"x": 1, "amount": 3, "by": "$$(cash)"}
    assert data["steps"][0]["steps"][0]["input"] == {"x": 1}  # type: ignore[index]


@pytest.mark.parametrize(("low", "high"), [("-5s", "5s"), ("-2s", "-1s"), ("0s", "3s"), ("-3s", "0s")])
def test_offsets_are_drawn_on_both_sides_of_zero(low: str, high: str) -> None:
    span = OffsetRange(min=Offset.parse(low), max=Offset.parse(high))
    permit = Permit(DrawnClockSkew(skew=span), NODES, NODES)
    space = Space(permits=(permit,), at_most=1, start=0, end=60 * SECOND)
    found = [Offset.parse(space.fault(0, stream(seed)).keys()["skew"]) for seed in range(60)]
    assert all(span.min <= each <= span.max and each != 0 for each in found)
    behind = sum(each < 0 for each in found)
    assert {"-5s": 15 < behind < 45, "0s": behind == 0}.get(low, behind == 60)


def test_rare_states_have_more_children() -> None:
    """A run that alone has reached a state is the parent of more runs than those that reached the same."""
    search = Search([SPACE], [1], 1)
    search.take([Outcome(states=(1,))])
    rare = 5
    batch = search.batch()
    search.take([Outcome(states=(1, 1 << 16) if n == rare else (1, 2)) for n in range(len(batch))])
    mother = batch[rare]
    children = [each for each in search.batch() if shares_a_fault(each, mother)]
    assert len(children) > BATCH // 4


def test_a_field_that_counts_says_nothing() -> None:
    """Each run has another value of it, so it makes no run rare, nor the parent of others."""
    search = Search([SPACE], [1], 1)
    search.take([Outcome(states=(1,))])
    assert search.states_with([Outcome(states=(1, 1 << 16)), Outcome(states=(3 << 16,), void=True)]) == 2
    outcomes = [Outcome(states=(1, (1 << 16) + n)) for n in range(BATCH)]
    shown = [search.states_with(outcomes[:n]) for n in range(BATCH)]
    search.take(outcomes)
    shown.append(search.states)
    assert shown == [1 + min(n, 40) for n in range(BATCH + 1)], "the number that is shown never falls"


def shares_a_fault(one: Schedule, other: Schedule) -> bool:
    return one.seed == other.seed and any(fault in other.faults for fault in one.faults)


def test_runs_that_failed_or_struck_nobody_are_no_parents() -> None:
    search = Search([SPACE], [1], 1)
    search.take([Outcome(states=(1,))])
    for _ in range(3):
        batch = search.batch()
        search.take([Outcome(states=(n + 10,), failure="x") for n in range(len(batch))])
    baseline = Schedule(cell=0, seed=1)
    changed = [each for each in search.batch() if each.seed == baseline.seed and len(each.faults) <= 2]
    assert changed
    search = Search([SPACE], [1], 1)
    search.take([Outcome(states=(1,))])
    search.take([Outcome(states=(n + 10,), void=True) for n in range(BATCH)])
    assert search.states == 1


# --- the file

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "clock_skew", "skew": "0s"}, 'a clock that is right: one of "skew" and "rate" says how'),
    ({"kind": "clock_skew", "rate": {"min": 1, "max": 1}}, 'a clock that is right: one of "skew" and "rate"'),
    ({"kind": "clock_skew", "skew": {"min": "3s", "max": "-3s"}}, '"max" is less than "min": -3s and 3s'),
    ({"kind": "clock_skew", "rate": {"min": 0, "max": 2}}, '"rate" is from 0.001 to 1000'),
    ({"kind": "clock_skew", "rate": 2000}, '"rate" is from 0.001 to 1000'),
    ({"kind": "clock_skew", "duration": "0s"}, '"duration" is more than 0s'),
    (
        {"kind": "clock_skew", "skew": "1s", "of": "site"},
        '"site" is a node, and "kind: clock_skew"',
    ),
    ({"kind": "swizzle", "every": "0s"}, '"every" is more than 0s'),
    (
        {"kind": "swizzle", "of": "site"},
        '"kind: swizzle" cuts the links among nodes, and',
    ),
    (
        {"kind": "swizzle", "of": ["peer/0", "peer/1"]},
        '"kind: swizzle" cuts the links among nodes',
    ),
    ({"kind": "swizzle", "of": "pear"}, 'no agent or node "pear", did you mean "peer"?'),
    ({"kind": "swizzle", "sides": []}, 'unknown key "sides" (known: kind, of, every, duration)'),
]


@pytest.mark.parametrize(("fault", "message"), MISTAKES)
def test_mistakes_of_the_file_are_told_at_their_line(tmp_path: Path, fault: Any, message: str) -> None:
    (tmp_path / "pyproject.toml").touch()
    data = {
        "lmos": "simulation/v1",
        "name": "town",
        "stop": {"at": "9s"},
        "network": {},
        "nodes": {"site": ["peer/0", "peer/1"]},
        "population": [{"id": "peer", "count": 3, "use": "agents.gossip:Peer"}],
        "explore": {"faults": ["pause", fault]},
    }
    place = tmp_path / "town.yaml"
    place.write_text(json.dumps(data, indent=1))
    with pytest.raises(FileError) as caught:
        load_scenario(str(place))
    (mistake,) = caught.value.mistakes
    assert mistake.message.startswith(message)
    assert mistake.line > place.read_text().split('"pause"')[0].count("\n")


# --- plain files

SIMULATION: Data = {
    "lmos": "simulation/v1",
    "name": "town",
    "seeds": [1],
    "stop": {"at": "60s"},
    "network": {"default": {"latency": "20ms", "jitter": "5ms"}, "links": [{"between": ["a", "b"]}]},
    "population": [
        {"id": "peer", "count": 40, "use": "agents:Peer", "args": {"name": "$(population.index)"}}
    ],
    "topology": {"kind": "complete", "of": "peer"},
    "timeline": [
        {"at": f"{second}s", "do": "tell", "target": f"peer/{second}", "action": "say"} for second in range(9)
    ],
    "measure": {"every": "1s", "series": {"low": {"agg": "min"}, "high": {"agg": "max"}}},
    "checks": [{"check": "never", "name": "bad"}, {"check": "never", "name": "worse"}],
}
SCENARIO: Data = {
    "lmos": "scenario/v1",
    "name": "story",
    "seeds": [1],
    "agents": {"a": {"from": "agent", "use": "x:A"}, "b": {"from": "agent", "use": "x:B"}},
    "steps": [
        {"do": "tell", "target": "a", "action": "go"},
        {"do": "repeat", "times": 8, "steps": [{"do": "tell", "target": "b", "action": "go"}]},
        {"do": "wait", "for": "10s"},
    ],
}


@cache
def drawn(number: int) -> list[ScheduledFault]:
    """Some schedule of four faults at most."""
    return [*batches(number, 2)[1][number % BATCH].faults]


@pytest.mark.parametrize("data", [SIMULATION, SCENARIO], ids=["simulation", "scenario"])
@pytest.mark.parametrize("number", range(20))
def test_a_schedule_stands_in_a_file_and_can_be_taken_out_again(data: Data, number: int) -> None:
    before = deepcopy(data)
    found = with_schedule(data, 42, drawn(number))
    assert found["seeds"] == [42]
    assert [fault["id"] for fault in faults_of(found)] == [
        f"drawn_{n + 1}" for n in range(len(drawn(number)))
    ]
    assert without_drawn(found) == {**data, "seeds": [42]}
    assert data == before


def test_faults_beside_steps_come_at_their_instants() -> None:
    faults = [ScheduledFault(at=at * SECOND, permit=0, data={"kind": "crash"}) for at in (2, 2, 5)]
    (block,) = with_schedule(SCENARIO, 1, faults)["steps"]
    assert block["branches"][0] == SCENARIO["steps"]
    waits = [step.get("for") for step in block["branches"][1]]
    assert waits == ["2s", None, None, "3s", None]


def test_a_file_is_written_as_yaml_that_says_the_same() -> None:
    data = {**SIMULATION, "name": "no: yes, 1e3", "summary": "on"}
    text = yaml_of(data, ["first line", "second"])
    assert text.startswith("# first line\n# second\nlmos: simulation/v1\n")
    assert parse(text, name="x").data == data


# --- shrinking


def shrunk(data: Data, fails: Callable[[Data], bool]) -> tuple[Data, int]:
    """Shrink a file with a failure that is a function of its data."""
    asked: list[str] = []

    def first(several: Sequence[Data]) -> int | None:
        for number, each in enumerate(several):
            asked.append(text_of(each))
            if fails(each):
                return number
        return None

    shrinker = Shrinker(data, first)
    found = shrinker.run()
    assert fails(found)
    return found, len(asked)


def test_a_failure_of_one_fault_on_one_of_many_becomes_small() -> None:
    """It needs one partition, two agents, and the entry that tells one of them something."""

    def fails(data: Data) -> bool:
        kinds = [fault["kind"] for fault in faults_of(data)]
        said = [each for each in data.get("timeline", ()) if each.get("action") == "say"]
        named = [check["name"] for check in data.get("checks", ())]
        return "partition" in kinds and bool(said) and "bad" in named and data["population"][0]["count"] >= 2

    faults = [
        ScheduledFault(at=at * SECOND, permit=0, data=data, duration=duration)
        for at, data, duration in (
            (3, {"kind": "crash", "target": "peer/17"}, None),
            (4, {"kind": "partition", "sides": [["peer/3", "peer/30", "peer/12"], "rest"]}, 7_130_000),
            (9, {"kind": "loss", "share": 0.4}, 3_000_000),
        )
    ]
    found, tried = shrunk(with_schedule(SIMULATION, 5, faults), fails)
    assert found["population"][0]["count"] == 2
    assert [fault["kind"] for fault in faults_of(found)] == ["partition"]
    assert len(found["timeline"]) == 2
    assert [check["name"] for check in found["checks"]] == ["bad"]
    assert set(found) == {"lmos", "name", "seeds", "stop", "population", "timeline", "checks"}
    assert found["population"][0]["args"] == {"name": "$(population.index)"}
    assert "id" not in faults_of(found)[0]
    assert tried < 300


def test_what_fails_without_a_drawn_fault_has_none_in_the_end() -> None:
    found, _ = shrunk(with_schedule(SIMULATION, 5, drawn(3)), lambda data: True)
    assert faults_of(found) == []
    assert found["population"][0]["count"] == 1
    assert set(found) == {"lmos", "name", "seeds", "stop", "population", "checks"}
    assert found["checks"] == [{"check": "always", "of": "*", "expr": "restarts == 0"}]  # one that passes


def test_a_failure_that_needs_a_fault_does_not_become_one_that_needs_none() -> None:
    """A short run fails by itself; that is another failure, to which the file is not to be shrunk."""

    def fails(data: Data) -> bool:
        too_short = Duration.parse(data["stop"]["at"]) < 30
        return too_short or any(fault["kind"] == "crash" for fault in faults_of(data))

    fault = ScheduledFault(at=SECOND, permit=0, data={"kind": "crash", "target": "peer/0"})
    found, _ = shrunk(with_schedule(SIMULATION, 1, [fault]), fails)
    assert [each["kind"] for each in faults_of(found)] == ["crash"]
    assert Duration.parse(found["stop"]["at"]) >= 30


def test_steps_are_left_out_and_blocks_that_are_empty_then() -> None:
    def fails(data: Data) -> bool:
        return bool(faults_of(data)) and '"target": "b"' in text_of(data)

    fault = ScheduledFault(at=2 * SECOND, permit=0, data={"kind": "crash", "target": "a"})
    found, _ = shrunk(with_schedule(SCENARIO, 1, [fault]), fails)
    assert sorted(step["do"] for step in found["steps"]) == ["inject", "tell"]


@st.composite
def failures(draw: st.DrawFn) -> Callable[[Data], bool]:
    """Failures that need some kinds of faults, so many agents, entries and checks."""
    kinds = frozenset(draw(st.lists(st.sampled_from(["crash", "pause", "partition", "loss"]), max_size=2)))
    agents, entries = draw(st.integers(1, 40)), draw(st.integers(0, 5))
    late = draw(st.integers(0, 59))

    def fails(data: Data) -> bool:
        return (
            kinds <= {fault["kind"] for fault in faults_of(data)}
            and data["population"][0]["count"] >= agents
            and sum(each["do"] == "tell" for each in data.get("timeline", ())) >= entries
            and Duration.parse(data["stop"]["at"]) >= late
        )

    return fails


@pytest.mark.slow
@given(number=st.integers(0, 40), fails=failures())
@settings(max_examples=examples(60), deadline=None)
def test_shrinking_ends_and_still_fails(number: int, fails: Callable[[Data], bool]) -> None:
    data = with_schedule(SIMULATION, 1, drawn(number))
    if fails(data):
        found, _ = shrunk(data, fails)
        assert weight_of(found) <= weight_of(data)


@pytest.mark.slow
@given(number=st.integers(0, 40), fails=failures(), ahead=st.integers(1, 8))
@settings(max_examples=examples(30), deadline=None)
def test_shrinking_does_not_depend_on_how_many_run_at_once(
    number: int, fails: Callable[[Data], bool], ahead: int
) -> None:
    """Runs that go on at the same time are run although an earlier one fails; the first counts."""
    data = with_schedule(SIMULATION, 1, drawn(number))
    if not fails(data):
        return

    def first(several: Sequence[Data]) -> int | None:
        for begin in range(0, len(several), ahead):
            found = [begin + n for n, each in enumerate(several[begin : begin + ahead]) if fails(each)]
            if found:
                return found[0]
        return None

    assert Shrinker(data, first).run() == shrunk(data, fails)[0]


def test_wrong_clocks_and_swizzles_become_small() -> None:
    """A clock is wrong by less, and the links among fewer nodes are cut at shorter intervals."""

    def fails(data: Data) -> bool:
        skewed, swizzled = [*faults_of(data), {}, {}][:2]
        behind = skewed.get("skew", "").startswith("-") and "duration" in skewed
        return behind and len(swizzled.get("of", ())) >= 2 and {"every", "duration"} <= set(swizzled)

    faults = [
        ScheduledFault(
            at=SECOND,
            permit=0,
            data={"kind": "clock_skew", "target": "peer/7", "skew": "-3.7s", "rate": 1.7},
            duration=7_130_000,
        ),
        ScheduledFault(
            at=2 * SECOND,
            permit=1,
            data={"kind": "swizzle", "of": ["peer/1", "peer/9", "peer/30"], "every": "730ms"},
            duration=9_000_000,
        ),
    ]
    found, _ = shrunk(with_schedule(SIMULATION, 1, faults), fails)
    skewed, swizzled = faults_of(found)
    assert "rate" not in skewed
    assert -0.01 < Offset.parse(skewed["skew"]) < 0
    assert len(swizzled["of"]) == 2
    assert Duration.parse(swizzled["every"]) < 0.01


def test_fewer_agents_may_need_the_fault_at_another_instant() -> None:
    """With fewer it fails only where something happens to them."""

    def fails(data: Data) -> bool:
        crashes = [fault for fault in faults_of(data) if fault["kind"] == "crash"]
        at = [Duration.parse(fault["at"]) for fault in crashes]
        few = data["population"][0]["count"] <= 2
        in_time = bool(at) and (at[0] == 0.251 if few else at[0] < 10)
        return in_time and Duration.parse(data["stop"]["at"]) >= 1

    asked: list[Data] = []

    def instants(data: Data) -> Sequence[int]:
        asked.append(data)
        return [100_000, 250_000, 50 * SECOND]

    fault = ScheduledFault(at=3 * SECOND, permit=0, data={"kind": "crash", "target": "peer/0"})
    data = with_schedule(SIMULATION, 1, [fault])
    several = Shrinker(data, lambda files: first_of(files, fails)).run()
    few = Shrinker(data, lambda files: first_of(files, fails), instants=instants).run()
    assert (several["population"][0]["count"], few["population"][0]["count"]) == (3, 1)
    assert asked
    assert not any(map(faults_of, asked))


def first_of(files: Sequence[Data], fails: Callable[[Data], bool]) -> int | None:
    return next((number for number, data in enumerate(files) if fails(data)), None)


@pytest.mark.parametrize("drawn", [2, 29])
def test_a_late_fault_does_not_keep_the_run_long(drawn: int) -> None:
    def fails(data: Data) -> bool:
        return any(fault["kind"] == "crash" and "duration" not in fault for fault in faults_of(data))

    data = {**SIMULATION, "stop": {"at": "30s"}}
    fault = ScheduledFault(at=drawn * SECOND, permit=0, data={"kind": "crash", "target": "peer/0"})
    found, _ = shrunk(with_schedule(data, 77, [fault]), fails)
    assert Duration.parse(found["stop"]["at"]) <= 3
    assert found["seeds"] == [1]


def test_a_fault_goes_on_to_end() -> None:
    """Without its duration it would last to the end, and be another one."""

    def fails(data: Data) -> bool:
        return any(fault["kind"] == "partition" for fault in faults_of(data))

    sides = {"kind": "partition", "sides": [["peer/0"], "rest"]}
    fault = ScheduledFault(at=SECOND, permit=0, data=sides, duration=3_210_000)
    found, _ = shrunk(with_schedule(SIMULATION, 1, [fault]), fails)
    assert Duration.parse(faults_of(found)[0]["duration"]) < 0.01


def test_a_timeline_is_in_the_order_of_time_in_the_end() -> None:
    def fails(data: Data) -> bool:
        return len(faults_of(data)) == 2 and sum(map(is_said, data.get("timeline", ()))) >= 2

    faults = [
        ScheduledFault(at=at * SECOND, permit=0, data={"kind": "crash", "target": f"peer/{at}"})
        for at in (1, 2)
    ]
    found, _ = shrunk(with_schedule(SIMULATION, 1, faults), fails)
    times = [Duration.parse(entry["at"]) for entry in found["timeline"]]
    assert times == sorted(times)
    assert len(times) == 4


def is_said(entry: Data) -> bool:
    return bool(entry.get("action") == "say")


def test_no_more_is_tried_than_is_allowed() -> None:
    shrinker = Shrinker(with_schedule(SIMULATION, 1, drawn(1)), lambda several: None, most=10)
    shrinker.run()
    assert shrinker.tried == 10


# --- failures by name


def run(*failures: Failure, judged: Sequence[CheckResult] = ()) -> RunResult:
    plain: dict[str, Any] = dict.fromkeys(("steps", "steps_done", "checks", "checks_passed"), 0)
    plain |= {
        "virtual": 1.0,
        "real": 1.0,
        "digest": "",
        "label": "seed=1",
        "values": {},
        "seed": 1,
        "trial": 1,
    }
    return RunResult(
        ended="failed" if failures else "passed", failures=failures, judged=tuple(judged), **plain
    )


def checked(saw: str, at: float | None, kind: str = "never") -> RunResult:
    check = CheckResult(name="one", kind=kind, ok=False, expected="never x", saw=saw, at=at)
    return run(Failure("f.yaml:3:1", f"check {kind} one", "never x", saw), judged=[check])


def test_a_check_that_fails_at_another_time_and_of_another_agent_fails_in_the_same_way() -> None:
    first, second = checked("at 3 s peer/3: x", 3.0), checked("at 4.5 s peer/17: x; 2 agents", 4.5)
    assert failures_of(first) == failures_of(second)
    assert failures_of(first) != failures_of(checked("it was never looked at: no agent", None))
    assert failures_of(run()) == ()


@pytest.mark.parametrize(
    ("kind", "saw", "at", "way"),
    [
        ("never", "at 3 s peer/3: x", 3.0, "broken"),
        ("linearizable", "at 3 s peer/3: x", 3.0, "broken"),
        ("eventually", "at 3 s series.x = 1", 3.0, "too late"),
        ("eventually", "at 9 s series.x = 0", None, "not met"),
        ("always", "it was never looked at: no agent", None, "nothing to judge"),
    ],
)
def test_a_failure_is_named_by_the_way_it_fails(kind: str, saw: str, at: float | None, way: str) -> None:
    assert failures_of(checked(saw, at, kind)) == (f"check {kind} one: {way}",)


def test_crashes_are_told_apart_by_their_exception() -> None:
    crash = [
        run(Failure("", f"agent peer/{n}", "no crash", f"{kind}: {n}"))
        for n, kind in ((1, "KeyError"), (22, "KeyError"), (3, "OSError"))
    ]
    assert failures_of(crash[0]) == failures_of(crash[1]) != failures_of(crash[2])


@pytest.mark.parametrize("what", ["fault crash peer/3 with RuntimeError (drawn_1)", "inject pause a for 2s"])
def test_a_fault_that_finds_nobody_to_strike_is_no_failure_of_the_agents(what: str) -> None:
    assert is_void(run(Failure("x", what, "a running peer/3", "peer/3 is down")))
    assert not is_void(checked("at 3 s", 3.0))


def test_a_sentence_says_what_was_expected_and_seen() -> None:
    found = checked("at 3 s peer/3: x", 3.0)
    (name,) = failures_of(found)
    assert sentence_of(found, name) == (
        "check never one fails without a fault: expected never x, saw at 3 s peer/3: x"
    )
