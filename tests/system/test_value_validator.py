"""A file held against classes: mocks, populations, what is expected, formulas; one mistake at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TROUPE = """\
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from lmos_actors import Agent, Event, Progress, Property, Ref, Secret, action, event, prop


class Feedback(Struct, frozen=True):
    rating: Annotated[int, Meta(ge=1, le=5)]
    comment: str | None = None


class Clerk(Agent):
    sold: Property[int] = prop(default=0)
    mood: Property[Literal["good", "bad"]] = prop(default="good")
    told: Event[Feedback] = event()
    key: Secret[str] = ""

    @action
    def sell(self, count: int = 1) -> int:
        return count

    @action
    async def slowly(self, progress: Progress[int], what: str) -> Feedback:
        return Feedback(1)

    @action
    async def count_up(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number


class Boss(Agent):
    clerk: Ref[Clerk]
    clerks: tuple[Ref[Clerk], ...] = ()
    spare: Ref[Clerk] | None = None

    @action
    def order(self, count: int) -> str:
        return ""


class Peer(Agent):
    neighbours: tuple[Ref[Peer], ...] = ()
    others: tuple[Ref[Clerk], ...] = ()
    fanout: int = 1
    period: float = 1.0
    known: Property[bool] = prop(default=False)
    version: Property[int] = prop(default=0)

    def started(self) -> None:
        pass

    @action
    def rumour(self, text: str) -> None:
        pass
"""

STORY = """\
lmos: scenario/v1
name: shop
matrix:
  count: [1, 2]
agents:
  clerk: {from: agent, use: troupe:Clerk, service_time: 1ms, id: urn:x:clerk}
  boss:
    from: agent
    use: troupe:Boss
    args: {clerk: $(agents.clerk), clerks: [$(agents.clerk), $(agents.double)]}
  double:
    from: mock
    use: troupe:Clerk
    state: {sold: 3}
    rules:
      - when: {action: sell, from: boss, match: {$.count: {ge: 1}}}
        output: 2
        times: 1
        delay: {dist: uniform, min: 1ms, max: 2ms}
      - when: {action: slowly}
        reply: [{progress: 1}, {wait: 1ms}, {done: {rating: 5}}]
        emit: {told: {rating: 3}}
      - when: {action: count_up}
        reply: [{chunk: 1}, {chunk: 2}]
        unused: allowed
      - when: {action: sell}
        crash: ValueError
        unused: allowed
  model:
    from: mock
    rules:
      - when: {contains: weather, action: message}
        reply: [{chunk: "It is "}, {done: sunny}]
      - when: {any: true}
        fail: {code: NO, message: no}
steps:
  - {do: invoke, id: ask, target: boss, action: order, input: {count: $(matrix.count)},
     save: {said: $.output}}
  - {do: invoke, id: slow, target: double, action: slowly, input: {what: a}, wait: false}
  - {do: query, of: slow, save: {how: $.status}}
  - {do: stream, id: many, target: clerk, action: count_up, input: {to: 3}, take: 2}
  - {do: expect, that: items, of: many, match: {"$.items[0]": 0}, times: 2}
  - {do: expect, that: value, of: $(saved.said), equals: ""}
  - {do: expect, that: value, of: $(saved.how), contains: pro}
  - {do: subscribe, target: double, event: told}
  - do: expect
    that: event
    target: user
    event: told
    equals: {rating: 3}
    match: {$.data.rating: {ge: 1, le: 5, eq: 3}}
  - {do: read, id: mood, target: clerk, property: mood}
  - {do: expect, that: output, of: mood, equals: good, match: {$.value: {regex: "^go"}}}
  - {do: cancel, of: slow}
  - {do: invoke, target: clerk, action: sell, input: {count: x}, error: {is: InvalidInput, path: $.count}}
  - {do: invoke, target: model, action: message, input: what is the weather}
  - {do: inject, id: slower, fault: {kind: slow, target: clerk, factor: 2, duration: 1s}}
  - {do: stop, target: clerk}
  - {do: start, target: clerk}
  - do: repeat
    times: 10
    steps:
      - do: repeat
        times: 2
        steps: [{do: invoke, id: often, target: clerk, action: sell}]
measure:
  every: 10ms
  series:
    sold: {agg: sum, of: clerk, expr: state.sold}
checks:
  - {check: always, of: clerk, expr: state.sold <= 3 and mailbox.depth < mailbox.size}
  - {check: eventually, name: done, expr: series.sold >= 0, by: 1s}
  - {check: never, when: {expr: series.sold > 100}}
  - {check: never, when: {dead_letter: true, fault_free: true}}
  - {check: always, expr: not done or done.time < 2}
  - {check: restarts, of: root, ge: 0, le: 3}
  - {check: latency, of: often, p95: {le: 1s}, max: {lt: 2s, le: 1s}}
  - {check: causal, before: {from: user, action: order}, after: {from: boss, to: double}}
  - {check: trace, of: ask, single_trace: true, through: [boss]}
  - {check: compare, metric: often.p99, across: count, trend: increasing}
report: {log: a.jsonl, html: b.html}
"""

CROWD = """\
lmos: simulation/v1
name: crowd
sweep:
  fanout: [2, 4]
  step: {from: 1, to: 1, step: 1}
stop: {at: 10s, when: all_known}
agents:
  clerk: {from: agent, use: troupe:Clerk}
population:
  - id: peer
    count: 12
    use: troupe:Peer
    args:
      fanout: $(sweep.fanout)
      period: {dist: lognormal, median: 900ms, p99: 1100ms}
      others: $(agents.spare)
    state: {version: $(sweep.step)}
    service_time: 2ms
    start: {over: 5s}
  - {id: spare, count: 2, use: troupe:Clerk}
topology: {kind: small_world, of: peer, degree: 6, rewire: 0.1}
timeline:
  - {at: 1s, id: first, do: tell, target: peer/0, action: rumour, input: {text: a}}
  - {at: 2s, do: invoke, id: sale, target: clerk, action: sell}
  - {at: 2s, do: write, target: peer/11, property: known, value: true}
  - {at: 3s, do: fault, id: split, kind: pause, pick: {share: 0.5, of: peer}, duration: 1s}
  - at: 4s
    do: fault
    kind: crash
    pick: {count: 3, of: peer}
    restart: {after: {dist: exponential, mean: 1s}, state: kept}
  - {at: 5s, do: fault, kind: slow, target: peer, factor: 2, duration: 1s}
measure:
  every: 1s
  series:
    known: {agg: fraction, of: peer, expr: state.known}
    all: {agg: rate, of: "*", expr: delivered}
checks:
  - {check: eventually, name: all_known, expr: series.known >= 0.99, by: 9s}
  - {check: always, of: "*", expr: mailbox.depth <= 64}
  - {check: converges, of: peer, field: state.version, after: split.healed, within: 2s}
  - {check: statistics, of: peer, counter: dropped, equals: 0}
  - {check: restarts, of: peer, le: 3}
  - {check: compare, metric: all_known.time, across: fanout, trend: decreasing}
"""


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pyproject.toml").write_text("")
        (root / "troupe.py").write_text(TROUPE)

    def mistakes(self, text: str) -> list[tuple[int, int, str]]:
        file = self.root / "file.yaml"
        file.write_text(text)
        try:
            load_scenario(file)
        except FileError as error:
            return [(mistake.line, mistake.column, mistake.message) for mistake in error.mistakes]
        return []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    yield Project(tmp_path_factory.mktemp("fit"))
    sys.path[:] = path
    sys.modules.pop("troupe", None)


def test_the_good_files_are_right(project: Project) -> None:
    assert project.mistakes(STORY) == []
    assert project.mistakes(CROWD) == []


@pytest.mark.parametrize(
    ("step", "values"),
    [
        ("{from: 1, to: 3, step: 1}", [1, 2, 3]),
        ("{from: 1, to: 4, step: 2}", [1, 3]),
        ("{from: 2, to: 2, step: 1}", [2]),
    ],
)
def test_a_range_goes_up_to_its_end(project: Project, step: str, values: list[int]) -> None:
    assert project.mistakes(CROWD.replace("{from: 1, to: 1, step: 1}", step)) == []
    cells = load_scenario(project.root / "file.yaml").cells
    assert list(dict.fromkeys(cell.values["step"] for cell in cells)) == values
    text = CROWD.replace("[2, 4]", "{from: 0.0, to: 0.3, step: 0.1}").replace("fanout: $", "period: $")
    text = text.replace("      period: {dist: lognormal, median: 900ms, p99: 1100ms}\n", "")
    assert project.mistakes(text) == []
    cells = load_scenario(project.root / "file.yaml").cells
    assert list(dict.fromkeys(cell.values["fanout"] for cell in cells)) == [0.0, 0.1, 0.2, 0.3]


# What is replaced by what; where the mistake is, `|` standing before it in what was put there; what is said.
STORIES = [
    # agents
    ("id: urn:x:clerk", "id: |clerk", "is no URI"),
    ("{clerk: $(agents.clerk),", "{clerk: |$(agents.boss),", "a ref to Clerk is expected here"),
    ("{clerk: $(agents.clerk),", "{clerk: |[],", "a ref to an agent is expected here"),
    ("[$(agents.clerk), $(agents.double)]", "[$(agents.clerk), |$(agents.dubble)]", 'no agent "dubble"'),
    ("[$(agents.clerk), $(agents.double)]", "|$(agents.clerk)", "refs to several agents are expected"),
    ("[$(agents.clerk), $(agents.double)]", "[|$(agents.boss)]", '"boss" is Boss'),
    ("args: {clerk: $(agents.clerk), ", "args: {", "Boss needs clerk in args"),
    # mocks
    ("state: {sold: 3}", "state: {sold: |many}", "Expected `int`"),
    ("state: {sold: 3}", "state: {|sould: 3}", 'no field "sould"'),
    ("action: sell, from: boss", "action: |sel, from: boss", 'Clerk has no action "sel"'),
    ("action: sell, from: boss", "action: sell, from: |bos", 'no agent "bos"'),
    ("match: {$.count: {ge: 1}}", "match: {|$.cout: {ge: 1}}", 'no member "cout"'),
    ("match: {$.count: {ge: 1}}", "match: {$.count: {ge: 1, |lt: 1}}", "both ge: 1.0 and lt: 1.0"),
    ("match: {$.count: {ge: 1}}", "match: {$.count: {|regex: a}}", "searches text"),
    ("match: {$.count: {ge: 1}}", "match: {$.count: |text}", "expected a whole number"),
    ("        output: 2\n", "        output: |two\n", "expected a whole number"),
    ("        output: 2\n", "        output: 2\n        |fail: {}\n", '"fail" and "output"'),
    ("        crash: ValueError\n", "", "the rule has no answer"),
    ("crash: ValueError", "crash: |ValueEror", 'did you mean "ValueError"?'),
    ("min: 1ms, max: 2ms", "min: 3ms, max: |2ms", '"max" is less than "min"'),
    ("min: 1ms, max: 2ms", "min: 1ms, max: |2", "has no unit"),
    ("{progress: 1}, ", "{progress: |one}, ", "expected a whole number"),
    ("{done: {rating: 5}}", "{done: {rating: |6}}", "expected at most 5"),
    ("{done: {rating: 5}}", "{done: {|ratin: 5}}", 'unknown key "ratin"'),
    (", {done: {rating: 5}}]", "]", "the reply has no end"),
    ('{wait: 1ms}, {done', "{|wate: 1ms}, {done", 'unknown key "wate", did you mean "wait"?'),
    ("[{progress: 1}, {wait: 1ms}, ", "[|{done: {rating: 1}}, ", 'nothing comes after "done"'),
    ("emit: {told: ", "emit: {|tolt: ", 'Clerk has no event "tolt"'),
    ("emit: {told: {rating: 3}}", "emit: {told: {rating: |0}}", "expected at least 1"),
    ("[{chunk: 1}, {chunk: 2}]", "[{chunk: |one}, {chunk: 2}]", "expected a whole number"),
    ("      - when: {any: true}\n", "      - when: {|any: true, action: message}\n", "stands alone"),
    ("when: {contains: weather, action: message}", "when: |{}", "any: true for every request"),
    ("when: {contains: weather, action: message}", "when: {any: true}", "no request comes to this rule"),
    # steps
    ("$.output}}\n", "|$.outptu}}\n", 'no member "outptu"'),
    ("save: {how: $.status}", "save: {how: |$.state}", 'no member "state"'),
    ("{do: query, of: slow", "{do: query, of: |ask", "has ended before this step"),
    ("{do: cancel, of: slow}", "{do: cancel, of: |mood}", "is not an invoke or stream step"),
    ("action: count_up, input: {to: 3}, take: 2}", "action: |sell}", "gives one output"),
    ("input: {to: 3}", "input: {to: |three}", "Expected `int`"),
    ('{"$.items[0]": 0}', '{|"$.items.first": 0}', "a list has no member"),
    ('{"$.items[0]": 0}', '{"$.items[0]": |zero}', "expected a whole number"),
    ('$(saved.said), equals: ""', "$(saved.said), equals: |1", "expected text"),
    ("contains: pro}", "contains: |3}", "text contains text"),
    ("    equals: {rating: 3}", "    equals: {rating: |9}", "expected at most 5"),
    ("match: {$.data.rating: {", "match: {|$.rating: {", 'no member "rating" (known: data)'),
    ("{ge: 1, le: 5, eq: 3}", "{ge: 1, |le: 2, eq: 3}", "nothing can be both eq: 3 and le: 2.0"),
    ("equals: good, match", "equals: |god, match", 'did you mean "good"?'),
    ("path: $.count}", "path: |$.cout}", 'no member "cout"'),
    ("kind: slow, target: clerk", "kind: slow, target: |boss", "has no service_time"),
    ("{do: stop, target: clerk}", "{do: stop, target: |clerc}", 'no agent "clerc"'),
    # checks
    ("state.sold <= 3 and", "|state.sould <= 3 and", "state.sould"),
    ("state.sold <= 3 and mailbox.depth", "state.sold <= 3 and |mailbox.deep", "mailbox.deep"),
    ("state.sold <= 3 and", "|state.key == 'a' and", "secret"),
    ("{check: always, of: clerk, expr: state", "{check: always, expr: |state", "of"),
    ("never, when: {expr: series.sold", "never, |of: clerk, when: {expr: series.sold", "no agent"),
    ("when: {expr: series.sold > 100}", "when: {expr: |series.soled > 100}", "series.soled"),
    ("name: done, expr: series.sold", "name: done, expr: |done or series.sold", "its own outcome"),
    ("not done or done.time", "not done or |dont.time", "dont"),
    ("of: root, ge: 0, le: 3", "of: root, ge: 4, |le: 3", "nothing can be both ge: 4 and le: 3"),
    ("of: root, ge: 0, le: 3", "of: root, |ge: 2, equals: 1", "nothing can be both equals: 1 and ge: 2"),
    ("times: 10\n", "times: 9\n", 'a percentile needs 20 runs, "often" has at most 18 runs'),
    ("before: {from: user, action: order}", "before: {from: user, action: |odder}", 'did you mean "order"?'),
    ("before: {from: user, action: order}", "before: |{}", "one of from, to"),
    ("through: [boss]", "through: [|bos]", 'no agent "bos"'),
    ("single_trace: true, through: [boss]", "of: ask", "given twice"),
    ("metric: often.p99", "metric: |often.p98", 'did you mean "often.p99"?'),
    ("across: count", "across: |cont", 'no key "cont"'),
    ("  count: [1, 2]", "  count: [1]", "has one value alone"),
    ("html: b.html", "html: |a.jsonl", "is written twice"),
]  # fmt: skip

CROWDS = [
    ("count: 12\n", "count: |0\n", "expected at least 1"),
    ("  - {id: spare,", "  - {id: |peer,", "is given twice"),
    ("  - {id: spare,", "  - {id: |clerk,", "is given twice"),
    ("  - {id: spare,", "  - {id: |root,", "cannot be the name of a population"),
    ("fanout: $(sweep.fanout)", "fanout: |$(sweep.fannout)", 'no sweep key "fannout"'),
    ("fanout: $(sweep.fanout)", "fanout: {dist: constant, |valu: 2}", 'did you mean "value"?'),
    ("fanout: $(sweep.fanout)", "fanout: |$(population.indx)", "$(population.indx)"),
    ("fanout: $(sweep.fanout)", "fanout: 1", 'sweep key "fanout" does nothing'),
    ("{dist: lognormal, median: 900ms, p99: 1100ms}", "{dist: lognorml, median: 1s}", "lognormal"),
    ("p99: 1100ms", "p99: |100ms", '"p99" is less than "median"'),
    ("others: $(agents.spare)", "others: |$(agents.clerk)", "refs to several agents are expected"),
    ("others: $(agents.spare)", "others: |$(agents.peer)", '"peer" is Peer'),
    ("use: troupe:Clerk}\npop", "use: troupe:Boss, args: {clerk: |$(agents.spare)}}\npop", "one ref is"),
    ("to: 1, step: 1}", "to: |0, step: 1}", "ends before it begins"),
    ("start: {over: 5s}", "start: {over: |11s}", "the simulation is over before that"),
    ("kind: small_world, of: peer", "kind: grid, of: peer, width: |5", "no whole number of rows"),
    ("kind: small_world, of: peer", "kind: ring, of: peer", 'does not apply to "kind: ring"'),
    ("of: peer, degree: 6, rewire: 0.1", "of: peer, degree: |12, rewire: 0.1", "at most 11 neighbours"),
    ("degree: 6, rewire: 0.1", "degree: |5, rewire: 0.1", "the degree of a small world is even"),
    ("degree: 6, rewire: 0.1", "degree: 6", 'needs "rewire"'),
    ("small_world, of: peer, degree", "small_world, of: |pear, degree", 'no population "pear"'),
    ("small_world, of: peer, degree", "small_world, of: |clerk, degree", "is one agent, not a population"),
    ("rewire: 0.1}", "rewire: 0.1, field: |fanout}", "is not of type"),
    ("rewire: 0.1}", "rewire: 0.1, field: |neighbors}", 'did you mean "neighbours"?'),
    ("rewire: 0.1}", "rewire: 0.1, field: |others}", "given in args too"),
    ("target: peer/0", "target: |peer/12", "the last is"),
    ("target: peer/0", "target: |peer", "is a population"),
    ("target: peer/0", "target: |peer/01", "no number of an agent"),
    ("target: peer/0", "target: |clerk/0", "is one agent"),
    ("action: rumour", "action: |rumor", 'did you mean "rumour"?'),
    ("input: {text: a}", "input: {|txt: a}", 'no parameter "txt"'),
    ("id: sale, target: clerk", "id: sale, target: |spare", "is a population"),
    ("value: true", "value: |maybe", "Expected `bool`"),
    ("- {at: 2s, do: invoke", "- {at: |10s, do: invoke", "the simulation is over before that"),
    ("{share: 0.5, of: peer}", "|{of: peer}", 'exactly one of "count" and "share"'),
    ("{share: 0.5, of: peer}", "{share: |0.01, of: peer}", "is none"),
    ("{count: 3, of: peer}", "{count: |13, of: peer}", "fewer than 13"),
    ("{count: 3, of: peer}\n", "{count: 3, of: peer}\n    |factor: 2\n", 'does not apply to "kind: crash"'),
    ("target: peer, factor", "target: |spare, factor", "has no service_time"),
    ("target: peer, factor: 2, duration: 1s", "target: peer, factor: 2", 'needs "duration"'),
    ("of: peer}, duration: 1s", "of: peer}, duration: |0s", "does nothing"),
    ("mean: 1s", "mean: |1", "has no unit"),
    ("when: all_known", "when: |al_known", 'did you mean "all_known"?'),
    ("expr: state.known}", "expr: |state.unknown}", "state.unknown"),
    ("series.known >= 0.99, by: 9s", "series.known >= 0.99, by: |11s", "the simulation is over before that"),
    ("after: split.healed", "after: |spilt.healed", 'did you mean "split.healed"?'),
    ("of: peer, field: state.version", "of: |clerk, field: state.sold", "is one agent"),
    ("field: state.version", "field: |state.versoin", "state.version"),
    ("field: state.version", "field: |state.version + 1", "state.NAME"),
    ("  every: 1s", "  every: |0s", "every so often"),
    ("  every: 1s", "  every: |1us", "more than 1000000 samples"),
    ("    all: {agg", "    all_known: {agg", "has the name of a"),
    ("{check: restarts, of: peer, le: 3}", "{check: restarts, of: |pear, le: 3}", 'did you mean "peer"?'),
    ("\nagents:\n", "\nagentss:\n", 'unknown key "agentss"'),
]  # fmt: skip


def one_mistake(project: Project, text: str, old: str, new: str, said: str) -> None:
    assert text.count(old) == 1, old
    start = text.index(old) + max(new.find("|"), 0)
    changed = text.replace(old, new.replace("|", ""))
    found = project.mistakes(changed)
    assert any(said in message for _, _, message in found), found
    if "|" in new:
        line, column = changed[:start].count("\n") + 1, start - changed.rfind("\n", 0, start)
        assert (line, column) in [(row, at) for row, at, message in found if said in message], found


@pytest.mark.parametrize(("old", "new", "said"), STORIES)
def test_a_mistake_in_a_scenario(project: Project, old: str, new: str, said: str) -> None:
    one_mistake(project, STORY, old, new, said)


def test_what_is_looked_at_at_samples_needs_some(project: Project) -> None:
    begin, end = CROWD.index("measure:\n"), CROWD.index("checks:\n")
    found = [message for _, _, message in project.mistakes(CROWD[:begin] + CROWD[end:])]
    assert '"converges" is looked at at every sample: the file needs "measure"' in found


@pytest.mark.parametrize(("old", "new", "said"), CROWDS)
def test_a_mistake_in_a_simulation(project: Project, old: str, new: str, said: str) -> None:
    one_mistake(project, CROWD, old, new, said)


def test_what_follows_from_a_misspelt_key_of_the_file_is_not_said(project: Project) -> None:
    for text, old, new in (
        (STORY, "\nagents:\n", "\nagentss:\n"),
        (STORY, "\nsteps:\n", "\nstepss:\n"),
        (STORY, "\nmatrix:\n", "\nmatrixx:\n"),
        (CROWD, "\npopulation:\n", "\npopulations:\n"),
        (CROWD, "\nsweep:\n", "\nsweeps:\n"),
        (CROWD, "\ntopology:", "\ntopologie:"),
    ):
        ((line, column, message),) = project.mistakes(text.replace(old, new))
        assert (line, column) == (text[: text.index(old)].count("\n") + 2, 1)
        assert "unknown key" in message


def test_mistakes_of_all_sorts_are_told_at_once_in_the_order_of_the_text(project: Project) -> None:
    text = STORY
    for old, new in (
        ("service_time: 1ms", "service_time: 1"),
        ("action: order, input", "action: odder, input"),
        ("input: {to: 3}", "input: {to: three}"),
        ("by: 1s}", "by: one}"),
        ("of: root", "of: rot"),
    ):
        text = text.replace(old, new)
    found = project.mistakes(text)
    assert [line for line, _, _ in found] == sorted(line for line, _, _ in found)
    said = [message for _, _, message in found]
    wanted = ("unit is missing", 'no action "odder"', "Expected `int`", "is not a duration", 'no agent "rot"')
    for part in wanted:
        assert any(part in message for message in said), said


def test_a_rule_for_every_action_names_the_one_that_its_output_does_not_fit(project: Project) -> None:
    rule = "      - when: {any: true}\n        output: 2\n        unused: allowed\n"
    text = STORY.replace("      - when: {action: slowly}\n", f"{rule}      - when: {{action: slowly}}\n")
    said = [message for _, _, message in project.mistakes(text)]
    assert 'expected a mapping, saw 2: the rule is for every action, "slowly" among them' in said


def test_nothing_is_no_ref_where_one_is_needed(project: Project) -> None:
    given = "args: {clerk: $(agents.clerk), clerks: [$(agents.clerk), $(agents.double)]}"
    for wrong in (
        "args: {clerk: null, clerks: [$(agents.clerk), $(agents.double)]}",
        "args: {clerk: $(agents.clerk), clerks: [null, $(agents.double)]}",
        "args: {clerk: $(agents.clerk), clerks: null}",
    ):
        text = STORY.replace(given, wrong)
        assert text != STORY
        ((line, column, message),) = project.mistakes(text)
        assert text.split("\n")[line - 1][column - 1 :].startswith("null")
        assert message == "a ref to an agent is expected here: $(agents.NAME)"
    fine = given.replace("]}", "], spare: null}")
    assert project.mistakes(STORY.replace(given, fine)) == []


def test_an_agent_that_nothing_names(project: Project) -> None:
    alone = "  idle: {from: agent, use: troupe:Clerk}\n"
    text = STORY.replace("  model:\n", alone + "  model:\n")
    ((line, column, message),) = project.mistakes(text)
    assert text.split("\n")[line - 1][column - 1 :].startswith("idle")
    assert message == 'nothing uses the agent "idle", and it does nothing by itself'
    assert project.mistakes(text.replace(alone, alone.replace("Clerk", "Peer"))) == []
