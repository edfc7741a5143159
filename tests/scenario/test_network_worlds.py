"""Files with a network in `memory` and in `wire`: what comes of everything is the same."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import examples, few_or_all
from tests.scenario.talkers import OUTCOMES, TIMES

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

COUNT = 3
END = 400
CLOSE = 0.6
"""Seconds by which what happens in one world may come later than in the other: some round trips."""


def text_of(
    world: str,
    script: list[Any],
    timeline: list[Any],
    network: dict[str, Any],
    *,
    count: int = COUNT,
    **more: Any,
) -> str:
    """Write a file; a JSON text is YAML too."""
    talker = {
        "id": "talker",
        "count": count,
        "use": "tests.scenario.talkers:Talker",
        "args": {"number": "$(population.index)", "script": script},
    }
    whole = {
        "lmos": "simulation/v1",
        "name": "talk",
        "world": world,
        "stop": {"at": f"{END}s"},
        "network": network,
        "population": [talker],
        "topology": {"kind": "complete", "of": "talker", "field": "others"},
        "timeline": timeline,
        "checks": [{"check": "always", "of": "talker", "expr": "state.total >= 0"}],
        **more,
    }
    return json.dumps(whole, indent=1)


@attrs.frozen
class Told:
    """What came of a run."""

    result: RunResult
    outcomes: dict[int, Any]
    times: dict[int, float]

    @property
    def network(self) -> list[dict[str, Any]]:
        """The records of what the network did."""
        return [each for each in map(json.loads, self.result.log) if each.get("kind") == "network"]


def run_in(folder: Path, world: str, *args: Any, **more: Any) -> Told:
    path = folder / f"{world}.yaml"
    path.write_text(text_of(world, *args, **more), encoding="utf-8")
    OUTCOMES.clear()
    TIMES.clear()
    resolved = load_scenario(path)
    result = run_cell(resolved, resolved.cells[0], 0)
    return Told(result, dict(OUTCOMES), dict(TIMES))


# ---- random files: the same in both worlds


VERBS = ("invoke", "slowly", "within", "read", "tell", "subscribe")
PAIRS = [(here, there) for here in range(COUNT) for there in range(COUNT) if here != there]
TALKERS = [f"talker/{number}" for number in range(COUNT)]


APART = 0.017
"""Seconds between two lines of the same second, so that nothing of them comes at the same instant."""


def written(lines: list[tuple[int, tuple[int, int], str]]) -> list[dict[str, Any]]:
    """Write a script."""
    return [
        {"at": second + APART * (number + 1), "who": who, "to": to, "verb": verb}
        for number, (second, (who, to), verb) in enumerate(lines)
    ]


LINES = st.lists(
    st.tuples(st.integers(1, 250), st.sampled_from(PAIRS), st.sampled_from(VERBS)), min_size=1, max_size=8
).map(written)


@st.composite
def faults(draw: Any, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Draw a fault that no line of a script meets: they begin and end between two seconds."""
    kind = draw(st.sampled_from((*more, "partition", "one way", "reset", "half_open", "hang", "latency")))
    entry: dict[str, Any] = {"at": f"{draw(st.integers(0, 250))}.5s", "do": "fault"}
    lasts = {"duration": f"{draw(st.sampled_from((1, 3, 10, 30, 70, 120)))}s"}
    between = {"between": [TALKERS[number] for number in draw(st.sampled_from(PAIRS))]}
    if kind in ("partition", "one way"):
        alone = draw(st.sampled_from(TALKERS))
        return {
            **entry,
            **lasts,
            "kind": "partition",
            "sides": [[alone], "rest"],
            "one_way": kind == "one way",
        }
    if kind == "restart":
        down = f"{draw(st.sampled_from((0.2, 1, 3, 30, 70)))}s"
        return {**entry, "kind": "restart", "of": draw(st.sampled_from(TALKERS)), "down": down}
    if kind == "latency":
        return {**entry, **lasts, **between, "kind": "latency", "delay": "100ms"}
    if kind == "hang":
        return {**entry, **lasts, **between, "kind": "disconnect", "how": "hang"}
    if kind == "half_open":
        return {**entry, **between, "kind": "disconnect", "how": "half_open"}
    return {**entry, **between, "kind": "disconnect"}


def numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**entry, "id": f"fault{number}"} for number, entry in enumerate(entries)]


def alone(number: int, at: str, duration: str, *, one_way: bool = False) -> dict[str, Any]:
    """Write the partition of one talker from the rest."""
    entry = {"at": at, "do": "fault", "kind": "partition", "duration": duration}
    return {**entry, "sides": [[TALKERS[number]], "rest"], "one_way": one_way}


@pytest.mark.slow  # the tests above have each fault alone
@settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@example(  # what was held comes so late that the connection has been given up, though the cut is over
    script=written([(150, (0, 1), "invoke")]), timeline=[alone(0, "147.5s", "30s")], latency=20
)
@example(  # what is sent after a cut comes after a ping that was held
    script=written([(160, (0, 1), "invoke")]), timeline=[alone(0, "153.5s", "30s")], latency=20
)
@example(  # one end gives up first, and the other one hears of it after the second cut
    script=written([(40, (0, 1), "within"), (136, (0, 1), "slowly")]),
    timeline=[alone(0, "90.5s", "120s", one_way=True), alone(1, "129.5s", "30s", one_way=True)],
    latency=50,
)
@example(  # a short cut before the long one, of which nothing is noticed
    script=written([(110, (0, 1), "within"), (217, (0, 1), "read")]),
    timeline=[alone(0, "188.5s", "1s", one_way=True), alone(0, "208.5s", "120s", one_way=True)],
    latency=50,
)
@example(  # pings of a connection that was made again come at the looks of the other end
    script=written([(145, (0, 1), "within"), (160, (0, 1), "slowly"), (133, (2, 0), "subscribe")]),
    timeline=[
        {"at": "148.5s", "do": "fault", "kind": "disconnect", "between": ["talker/2", "talker/0"]},
        alone(0, "228.5s", "30s"),
    ],
    latency=20,
)
@example(  # a connection that is half open: found out by a message, by the ping of its heartbeat, and cut
    script=written(
        [(10, (0, 1), "slowly"), (40, (0, 1), "read"), (70, (1, 0), "subscribe"), (160, (2, 0), "tell")]
    ),
    timeline=[
        {"at": "10.5s", "do": "fault", "kind": "disconnect", "how": "half_open", "between": TALKERS[:2]},
        {"at": "80.5s", "do": "fault", "kind": "disconnect", "how": "half_open"},
        {"at": "170.5s", "do": "fault", "kind": "disconnect", "how": "half_open"},
        alone(0, "171.5s", "70s"),
    ],
    latency=20,
)
@example(  # an end that waits hears the ping of the other one's heartbeat, and is patient again
    script=written([(1, (1, 0), "invoke"), (77, (1, 0), "invoke")]),
    timeline=[alone(0, "50.5s", "30s")],
    latency=20,
)
@given(
    script=LINES,
    timeline=st.lists(faults(("restart", "restart")), max_size=4).map(numbered),
    latency=st.sampled_from((20, 50)),
)
def test_what_comes_of_everything_is_the_same_in_both_worlds(
    tmp_path: Path, script: list[Any], timeline: list[Any], latency: int
) -> None:
    network = {"default": {"latency": f"{latency}ms"}}
    memory, wire = (
        run_in(tmp_path, world, script, timeline, network, checks=CHECKS) for world in ("memory", "wire")
    )
    assert wire.outcomes == memory.outcomes
    assert wire.times == pytest.approx(memory.times, abs=CLOSE)
    assert wire.result.ended == memory.result.ended
    assert verdicts(wire.result) == verdicts(memory.result)


CHECKS = [
    {"check": "never", "name": "lost", "when": {"dead_letter": True}},
    {"check": "always", "name": "small", "of": "talker", "expr": "state.total < 3"},
    {"check": "eventually", "name": "large", "of": "talker", "expr": "state.total >= 2", "by": "390s"},
]


def verdicts(result: RunResult) -> dict[str, bool]:
    """Give which checks have passed."""
    return {check.name: check.ok for check in result.judged}


# ---- random files with chance: what is insisted on is done in both worlds, in its time


RULES = st.fixed_dictionaries(
    {},
    optional={
        "latency": st.sampled_from(("0s", "5ms", {"dist": "lognormal", "median": "80ms", "p99": "400ms"})),
        "jitter": st.just({"dist": "exponential", "mean": "30ms"}),
        "loss": st.sampled_from((0.02, 0.2)),
        "bandwidth": st.sampled_from(("4KiB", "1MiB")),
    },
)
LINKS = st.lists(
    st.builds(
        lambda pair, rules: {"from": TALKERS[pair[0]], "to": TALKERS[pair[1]], **rules},
        st.sampled_from(PAIRS),
        RULES,
    ),
    max_size=3,
)
INSISTING = st.lists(
    st.tuples(st.integers(1, 250), st.sampled_from(PAIRS), st.just("insist")), min_size=1, max_size=8
).map(written)
DONE = 900
"""Seconds after which everything is done that is insisted on: the last fault is over at 371 s."""


@pytest.mark.slow
@settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    script=INSISTING,
    timeline=st.lists(faults(), max_size=4).map(numbered),
    default=RULES,
    links=LINKS,
    seed=st.integers(1, 1_000),
)
def test_a_verdict_is_the_same_in_both_worlds_whatever_the_chance(
    tmp_path: Path,
    script: list[Any],
    timeline: list[Any],
    default: dict[str, Any],
    links: list[Any],
    seed: int,
) -> None:
    network = {"default": default, "links": links}
    checks = [
        {
            "check": "eventually",
            "name": f"all_{number}",
            "of": f"talker/{number}",
            "expr": f"state.marks >= {sum(each['to'] == number for each in script)}",
            "by": f"{DONE}s",
        }
        for number in range(COUNT)
    ]
    for world in ("memory", "wire"):
        told = run_in(
            tmp_path,
            world,
            script,
            timeline,
            network,
            checks=checks,
            seeds=[seed],
            stop={"at": f"{DONE}s"},
        )
        assert told.result.failures == ()
        assert told.outcomes == dict.fromkeys(range(len(script)), "done")


# ---- connections of `wire`


def asking(count: int, pairs: list[tuple[int, int]], verb: str = "invoke") -> list[dict[str, Any]]:
    """Write a script in which each pair asks once, one after the other."""
    return written([(1 + number, pair, verb) for number, pair in enumerate(pairs[:count])])


@pytest.mark.parametrize("seed", few_or_all(range(2), range(5)))
def test_bytes_that_are_changed_are_noticed(tmp_path: Path, seed: int) -> None:
    """The connection ends, and is made again; nobody gets a value that is not one."""
    script = written([(2 * number + 1, (0, 1), "invoke") for number in range(100)])
    network = {"default": {"latency": "20ms", "corrupt": 0.1}}
    told = run_in(tmp_path, "wire", script, [], network, seeds=[seed])
    assert told.result.ended == "passed"
    whats = Counter(record["what"] for record in told.network)
    assert whats["corrupted"] >= whats["disconnected"] >= 3
    assert whats["connected"] == whats["disconnected"]
    values = [outcome for outcome in told.outcomes.values() if isinstance(outcome, int)]
    assert {*told.outcomes.values()} - {*values} <= {"OutcomeUnknown", "AgentUnavailable"}
    assert len(values) < 100
    assert values == sorted(set(values))
    assert max(values) <= 100


def test_connections_are_made_for_pairs_that_talk_alone(tmp_path: Path) -> None:
    script = asking(3, [(0, 1), (1, 0), (0, 2)])
    reset = {"at": "50s", "do": "fault", "kind": "disconnect"}
    told = run_in(tmp_path, "wire", script, [reset], {})
    assert sorted((each["from"], each["to"]) for each in told.network if each["what"] == "connected") == [
        ("talker/0", "talker/1"),
        ("talker/0", "talker/2"),
        ("talker/1", "talker/0"),
    ]


def test_agents_of_one_node_need_no_connection(tmp_path: Path) -> None:
    script = asking(2, [(0, 1), (0, 2)])
    reset = {"at": "50s", "do": "fault", "kind": "disconnect"}
    told = run_in(
        tmp_path, "wire", script, [reset], {"default": {"latency": "1s"}}, nodes={"west": TALKERS[:2]}
    )
    assert told.times == pytest.approx({0: 1 + APART, 1: 2 + 2 * APART + 2})
    assert [(each["from"], each["to"]) for each in told.network] == [("west", "talker/2")] * 2


@pytest.mark.slow  # its lines: the tests above, test_network_runs.py
def test_a_thousand_connections(tmp_path: Path) -> None:
    count = few_or_all(12, 33)
    pairs = [(here, there) for here in range(count) for there in range(count) if here != there]
    script = [
        {"at": 1.0 + (number % 7) / 8, "who": who, "to": to, "verb": "invoke"}
        for number, (who, to) in enumerate(pairs)
    ]
    reset = {"at": "3s", "do": "fault", "kind": "disconnect"}
    told = run_in(
        tmp_path, "wire", script, [reset], {"default": {"latency": "50ms"}}, count=count, stop={"at": "20s"}
    )
    assert told.result.ended == "passed"
    assert len(told.outcomes) == len(pairs) >= 132
    assert Counter(each["what"] for each in told.network) == dict.fromkeys(
        ("disconnected", "connected"), len(pairs)
    )
