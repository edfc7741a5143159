"""The check of registers: the history that it takes from a run, its verdicts, and the mistakes of files."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.model import Linearizable
from lmos_actors.scenario.run import run_cell
from tests.scenario.judged import Agent, Run, peers
from tests.scenario.project import Project
from tests.scenario.steps import invoke, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import CheckResult

OF_REPLICAS = Linearizable(of="peer", read="get", write="put", compare_and_set="swap", initial=0)
OF_KEYS = Linearizable(of=("peer", "cache"), read="get", write="put", key="name", initial=0)


class History:
    """The records of requests, as a run has them; each takes the next instant."""

    def __init__(self, check: Linearizable = OF_REPLICAS) -> None:
        self.run = Run(peer=peers(2), cache=Agent("cache"), front=Agent("front")).judged(check)
        self.number = 0
        self.affordances: dict[int, tuple[str, str]] = {}

    def _record(self, kind: str, number: int, **fields: Any) -> None:
        path, affordance = self.affordances[number]
        self.run.at(self.run.time + 1).record(kind, path, id=number, affordance=affordance, **fields)

    def ask(
        self, action: str, path: str = "peer/0", *, by: str = "front", verb: str = "invoke", **given: Any
    ) -> int:
        self.number += 1
        self.affordances[self.number] = (path, action)
        more: dict[str, Any] = {"input": given} if given else {}
        self._record("sent", self.number, from_=by, verb=verb, trace=self.number, **more)
        return self.number

    def begin(self, action: str, path: str = "peer/0", **given: Any) -> int:
        number = self.ask(action, path, **given)
        self._record("delivered", number)
        return number

    def end(self, number: int, value: Any = None, **more: Any) -> None:
        self._record("answered", number, **({"value": value} if "error" not in more else {}), **more)

    def leave(self, kind: str, number: int) -> None:
        self._record(kind, number)

    def done(self, action: str, path: str = "peer/0", *, value: Any = None, **given: Any) -> None:
        self.end(self.begin(action, path, **given), value)

    def verdict(self) -> CheckResult:
        return self.run.verdict()


def test_reads_that_return_what_was_written_last_pass() -> None:
    history = History()
    history.done("get", value=0)
    history.done("put", value=None, to=5)
    history.done("get", "peer/1", value=5)
    history.done("swap", value=True, old=5, new=6)
    history.done("swap", value=False, old=5, new=7)
    history.done("get", value=6)
    verdict = history.verdict()
    assert verdict.ok
    assert (verdict.name, verdict.saw) == ("linearizable peer", "one for all 6 operations")


def test_a_stale_read_fails_with_the_smallest_history() -> None:
    history = History()
    for number in range(1, 20):
        history.done("put", "peer/0", to=number)
        history.done("get", "peer/1", value=number)
    history.done("get", "peer/1", value=17)
    verdict = history.verdict()
    assert not verdict.ok
    assert verdict.expected == "an order of what peer did in which each read returns what was written last"
    assert verdict.saw == (
        "these 3 operations allow none, out of 39 (0 at first)\n"
        "from   until  asked by  at      operation\n"
        "97 s   99 s   front     peer/0  write 17\n"
        "109 s  111 s  front     peer/0  write 19\n"
        "115 s  117 s  front     peer/1  read 17"
    )
    assert verdict.at == 117.0


def test_each_key_is_a_register_of_its_own() -> None:
    history = History(OF_KEYS)
    history.done("put", "peer/0", name="a", to=1)
    history.done("get", "cache", name="a", value=1)
    history.done("get", "cache", name="b", value=0)
    assert history.verdict().saw == "one for all 3 operations of 2 keys"
    history = History(OF_KEYS)
    history.done("put", "peer/0", name="a", to=1)
    history.done("get", "cache", name="b", value=1)
    assert history.verdict().saw.splitlines() == [
        'this operation allows none for name "b", out of 1 (0 at first)',
        "from  until  asked by  at     operation",
        "4 s   6 s    front     cache  read 1",
    ]


@pytest.mark.parametrize(
    "how", ["never answered", "an error", "cancelled", "a tell", "died before it was kept"]
)
def test_what_became_of_a_write_may_be_unknown(how: str) -> None:
    """It may have happened, at any later time, or not; but not both."""
    for reads, ok in ([0, 5], True), ([0, 0], True), ([5, 5], True), ([5, 0], False):
        history = History()
        number = history.begin("put", to=5, verb="tell" if how == "a tell" else "invoke")
        if how == "an error":
            history.end(number, error="ActionFailed: no majority")
        elif how == "cancelled":
            history.leave("cancelled", number)
        elif how in ("a tell", "died before it was kept"):
            history.end(number)
            if how != "a tell":
                history.end(number, error="AgentDied: the disk is full")
        for value in reads:
            history.done("get", value=value)
        verdict = history.verdict()
        assert verdict.ok is ok, (reads, verdict.saw)
        assert ok or "1 s   -      front     peer/0  write 5, outcome unknown" in verdict.saw.splitlines()


@pytest.mark.parametrize("kind", ["refused", "dropped", "cancelled"])
def test_what_never_left_the_mailbox_has_not_happened(kind: str) -> None:
    history = History()
    history.leave(kind, history.ask("put", to=5))
    history.done("get", value=5)
    assert not history.verdict().ok


def test_what_replicas_ask_of_each_other_is_no_operation() -> None:
    history = History()
    outer = history.begin("put", to=5)
    inner = history.begin("put", "peer/1", to=5, by="peer/0")
    history.end(inner)
    history.done("get", "peer/1", value=0)  # as long as the outer one goes on
    history.end(outer)
    assert history.verdict().saw == "one for all 2 operations"


def test_without_an_answer_there_is_nothing_to_judge() -> None:
    history = History()
    history.begin("put", to=5)
    verdict = history.verdict()
    assert (verdict.ok, verdict.saw) == (False, "no read or write that was answered")


def test_values_are_compared_as_json() -> None:
    history = History()
    history.done("put", to={"b": 1, "a": [2]})
    history.done("get", value={"a": [2], "b": 1})
    history.done("put", to=2)
    history.done("get", value=2.0)
    assert history.verdict().ok


@pytest.mark.slow
def test_what_is_not_decided_fails_and_names_the_bound() -> None:
    history = History()
    for number in range(24):
        history.begin("swap", old=number % 4, new=(number + 1) % 4)
    for number in range(12):
        history.done("get", value=(number * 3) % 4)
    history.done("get", value=9)
    verdict = history.verdict()
    assert not verdict.ok
    assert verdict.saw == "not decided: more than 200000 states had to be looked at"


# ---- runs

CELLS = """\
from __future__ import annotations

from lmos_actors import Agent, Property, Secret, action, prop


class Cell(Agent):
    value: int = 0

    @action
    def get(self) -> int:
        return self.value

    @action
    def put(self, value: int) -> None:
        self.value = value

    @action
    def swap(self, expected: int, value: int) -> bool:
        is_set = self.value == expected
        self.value = value if is_set else self.value
        return is_set

    @action
    def whole(self, value: int, /) -> None:
        self.value = value

    @action
    def whisper(self, value: Secret[int]) -> None:
        self.value = value


class Kept(Cell, durable=True):
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("cells.py", CELLS)
    yield made
    sys.path[:] = path
    sys.modules.pop("cells", None)


def written(project: Project, *steps: Any, check: dict[str, Any], **more: Any) -> str:
    agents = {"cell": {"from": "agent", "use": "cells.py:Kept"}}
    whole = {
        "lmos": "scenario/v1",
        "name": "story",
        "agents": agents,
        "steps": list(steps),
        "checks": [
            {"check": "linearizable", "of": "cell", "read": "get", "write": "put", "initial": 0, **check}
        ],
        **more,
    }
    return str(project.root / project.write("story.yaml", json.dumps(whole, indent=1)))


LOSSES = {
    "OutcomeUnknown": {"kind": "restart", "writes": "lost", "down": "1s"},
    "AgentDied": {"kind": "full_disk", "duration": "1s"},
}


@pytest.mark.parametrize("error", LOSSES)
def test_an_answer_that_never_left_a_durable_agent_is_none(project: Project, error: str) -> None:
    """Its turn has ended, and the log says so, but the caller hears that nobody knows."""
    lost = {"do": "parallel", "branches": [
        [invoke("put", "cell", input={"value": 5}, error={"is": error})],
        [{"do": "wait", "for": "20ms"}, {"do": "inject", "fault": LOSSES[error]}],
    ]}  # fmt: skip
    steps = [lost, wait(5), invoke("get", "cell", id="later"), invoke("put", "cell", input={"value": 6})]
    resolved = load_scenario(written(project, *steps, check={}, store={"latency": "100ms"}))
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    (judged,) = [check for check in result.judged if check.kind == "linearizable"]
    assert judged.ok, judged.saw
    assert judged.saw == "one for all 3 operations"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"of": "cel"}, 'no agent "cel", did you mean "cell"?'),
    ({"of": ["cell", "cell"]}, '"cell" is there twice'),
    ({"read": "gett"}, 'Kept has no action "gett", did you mean "get"?'),
    ({"write": "get"}, '"get" is what "read" does: another action'),
    ({"write": "swap"}, "Kept.swap has to take one argument with a name, the new value"),
    ({"write": "whole"}, "Kept.whole has to take one argument with a name, the new value"),
    ({"read": "swap"}, "Kept.swap has to take no arguments"),
    (
        {"compare_and_set": "whole"},
        "Kept.whole has to take two arguments, the value expected and the new one",
    ),
    ({"write": "whisper"}, "Kept.whisper has secret values, which nobody compares"),
    ({"key": "value"}, 'Kept.get has no argument "value"'),
    ({"initial": "none"}, "Expected `int`, got `str`"),
]


@pytest.mark.parametrize(("check", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes(project: Project, check: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError) as caught:
        load_scenario(written(project, invoke("get", "cell"), check=check))
    assert any(mistake.message.startswith(message) for mistake in caught.value.mistakes)
