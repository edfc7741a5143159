"""What is secret stands in no failure of a run, as it stands in no record of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project, story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

CAST = '''\
from __future__ import annotations

from collections.abc import AsyncIterator

from lmos_actors import Agent, Event, Property, Secret, action, event, prop


class Safe(Agent):
    """Has secrets, and tells them to who asks."""

    code: Property[Secret[str]] = prop(default="sesame one")
    changed: Event[Secret[str]] = event()

    @action
    def tell(self) -> Secret[str]:
        return "sesame two"

    @action
    async def tell_all(self) -> AsyncIterator[Secret[str]]:
        yield "sesame three"

    @action
    def change(self) -> None:
        self.code = "sesame four"
        self.changed.emit("sesame five")
'''

TELL = {"do": "invoke", "id": "told", "target": "safe", "action": "tell"}
SAVED = {**TELL, "save": {"secret": "$.output"}}
CHANGE = {"do": "invoke", "target": "safe", "action": "change"}
READ = {"do": "read", "id": "read", "target": "safe", "property": "code"}
ITEMS = {"do": "stream", "id": "all", "target": "safe", "action": "tell_all"}
OBSERVE = {"do": "observe", "id": "seen", "target": "safe", "property": "code"}
SUBSCRIBE = {"do": "subscribe", "target": "safe", "event": "changed"}
EVENT = {"do": "expect", "that": "event", "target": "user", "event": "changed", "within": "1s"}


def expect(that: str, of: str, **more: Any) -> dict[str, Any]:
    return {"do": "expect", "that": that, "of": of, **more}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("cast_with_secrets.py", CAST)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "cast_with_secrets":
            del sys.modules[name]


def run(project: Project, *steps: Any) -> RunResult:
    cast = {"safe": {"from": "agent", "use": "cast_with_secrets.py:Safe"}}
    resolved = load_scenario(project.root / project.write("story.yaml", story(*steps, agents=cast)))
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([TELL, expect("output", "told", equals="x")], '"x"'),
        ([READ, expect("output", "read", match={"$.value": "x"})], '$.value to equal "x"'),
        ([ITEMS, expect("items", "all", equals="x")], '"x", at least once'),
        ([OBSERVE, CHANGE, expect("reading", "seen", equals="x", within="1s")], '"x", at least once'),
        ([SUBSCRIBE, CHANGE, {**EVENT, "equals": "x"}], '"x", at least once'),
        ([SAVED, expect("value", "$(saved.secret)", equals="x")], "what is secret"),
        ([SAVED, SUBSCRIBE, CHANGE, {**EVENT, "equals": "$(saved.secret)"}], "what is secret"),
    ],
)
def test_failures_do_not_tell_what_is_secret(project: Project, steps: list[Any], expected: str) -> None:
    found = run(project, *steps)
    (failure,) = found.failures
    assert (failure.expected, failure.saw) == (expected, "what is secret")
    assert not any("sesame" in line for line in found.log)


@pytest.mark.parametrize(
    "steps",
    [
        [TELL, expect("output", "told", equals="sesame two")],
        [ITEMS, expect("items", "all", sequence=["sesame three"])],
        [OBSERVE, CHANGE, expect("reading", "seen", equals="sesame four")],
        [SUBSCRIBE, CHANGE, {**EVENT, "contains": "five"}],
    ],
)
def test_it_is_judged_as_anything_else(project: Project, steps: list[Any]) -> None:
    assert run(project, *steps).failures == ()
