"""Checks of real runs: each passes when it should, fails when it should; a mistake in one has its place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import CheckResult

CAST = '''\
from __future__ import annotations

import trio

from lmos_actors import Agent, Event, Property, Ref, Secret, action, event, every, prop


class Shop(Agent):
    """Sells what it has in stock."""

    stock: Property[int] = prop(default=5)
    sold: Event[int] = event()
    key: Secret[str] = "k"
    note: str | None = None

    @action
    async def take(self, n: int) -> int:
        await trio.sleep(0.25)
        self.stock -= n
        self.sold.emit(n)
        return n

    @action
    def count(self) -> int:
        return self.stock


class Desk(Agent):
    """Takes orders."""

    shop: Ref[Shop]

    @action
    async def order(self, n: int) -> int:
        return await self.shop.invoke(Shop.take, n)

    @action
    def order_later(self) -> None:
        """Left to the next tick, which is nobody's."""

    @every(0.75)
    def count(self) -> None:
        self.send(self.shop, Shop.count)
'''

FILE = """\
lmos: scenario/v1
name: shop
agents:
  shop: {from: agent, use: "cast_of_shop.py:Shop"}
  desk: {from: agent, use: "cast_of_shop.py:Desk", args: {shop: $(agents.shop)}}
measure:
  every: 100ms
  series:
    stock: {agg: min, of: shop, expr: state.stock}
    busy: {agg: rate, of: "*", expr: delivered}
    empty: {agg: fraction, of: shop, expr: state.stock <= 2}
steps:
  - {do: invoke, id: ask, target: desk, action: order, input: {n: 3}}
  - {do: invoke, id: later, target: desk, action: order_later}
  - {do: wait, for: 1s}
checks:
  - %s
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("cast_of_shop.py", CAST)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "cast_of_shop":
            del sys.modules[name]


def judged(project: Project, *checks: str) -> tuple[CheckResult, ...]:
    file = project.root / project.write("shop.yaml", FILE % "\n  - ".join(checks))
    resolved = load_scenario(file)
    (cell,) = resolved.cells
    result = run_cell(resolved, cell, 1, real_limit=20)
    assert len(result.judged) == len(checks)
    assert result.ok is all(check.ok for check in result.judged)
    assert result.checks_passed == sum(check.ok for check in result.judged)
    return result.judged


GOOD = [
    "{check: always, of: shop, expr: state.stock >= 2}",
    "{check: always, of: '*', expr: mailbox.depth <= 1}",
    "{check: always, expr: series.stock >= 2}",
    "{check: never, of: shop, when: {expr: 'state.stock in [1, 3, 4]'}}",
    "{check: never, when: {dead_letter: true}}",
    "{check: eventually, name: sold, of: shop, expr: state.stock == 2, by: 250ms}",
    "{check: eventually, expr: sold and sold.time == 0.25 and series.empty == 1, by: 300ms}",
    "{check: eventually, expr: series.busy >= 10, by: 2s}",
    "{check: restarts, of: desk, equals: 0}",
    "{check: statistics, of: shop, counter: accepted, equals: 2}",
    "{check: latency, of: ask, max: {le: 250ms}}",
    "{check: causal, before: {from: user, action: order}, after: {to: shop, action: take}}",
    "{check: causal, before: {action: order}, after: {from: shop, event: sold}}",
    "{check: trace, of: ask, single_trace: true, through: [desk, shop]}",
]

BAD = [
    ("{check: always, of: shop, expr: state.stock >= 3}", "at 0.25 s shop: state.stock = 2"),
    ("{check: always, of: shop, expr: state.note == 'x' or state.stock > 9}", "state.note = null"),
    ("{check: always, of: shop, expr: state.note < 'x'}", 'cannot be computed: null < "x"'),
    ("{check: always, of: '*', expr: mailbox.depth < 1}", "at 0 s desk: mailbox.depth = 1"),
    ("{check: always, expr: series.stock >= 3}", "at 0.3 s series.stock = 2.0"),
    ("{check: never, of: shop, when: {expr: state.stock == 2}}", "at 0.25 s shop: state.stock = 2"),
    ("{check: eventually, of: shop, expr: state.stock == 2, by: 249ms}", "1ms too late"),
    ("{check: eventually, of: shop, expr: state.stock == 7, by: 3s}", "shop: state.stock = 2"),
    ("{check: restarts, of: shop, equals: 1}", "0"),
    ("{check: statistics, of: desk, counter: handled, le: 1}", "2"),
    ("{check: latency, of: ask, max: {lt: 250ms}}", "250ms"),
    ("{check: causal, before: {action: order}, after: {to: shop, action: count}}", "tell count from desk"),
    ("{check: causal, before: {from: user, action: take}, after: {to: shop}}", "invoke take from desk"),
    ("{check: trace, single_trace: true}", "the first desk: tell shop.count at 0.75 s"),
    ("{check: trace, of: later, through: [desk, shop]}", "message 3 came to desk"),
]


def test_good_checks_pass(project: Project) -> None:
    assert [(check.name, check.saw) for check in judged(project, *GOOD) if not check.ok] == []


def test_bad_checks_fail(project: Project) -> None:
    found = judged(project, *(check for check, _ in BAD))
    assert [check.name for check in found if check.ok] == []
    for check, (_, saw) in zip(found, BAD, strict=True):
        assert saw in check.saw
        assert check.place.startswith(str(project.root / "shop.yaml"))


def test_the_end_of_a_story_is_sampled_too(project: Project) -> None:
    """What its last step has changed is in the series, at whatever instant that was."""
    story = FILE.replace("every: 100ms", "every: 200ms").replace("  - {do: wait, for: 1s}\n", "")
    check = "{check: eventually, expr: series.stock == 2, by: 1s}"
    file = project.root / project.write("short.yaml", story % check)
    resolved = load_scenario(file)
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    assert result.ok, result.failures
    assert result.series[0].times == (0.2, 0.25)
    assert result.series[0].values == (5, 2)


@pytest.mark.parametrize(
    ("check", "word", "why"),
    [
        ("{check: always, of: shop, expr: state.stck >= 2}", "state.stck", 'did you mean "state.stock"'),
        ("{check: always, of: desk, expr: state.stock >= 2}", "state.stock", 'no "state.stock"'),
        ("{check: always, of: '*', expr: state.stock >= 2}", "state.stock", 'no "state.stock"'),
        ("{check: always, of: shop, expr: state.key == 'k'}", "state.key", "is secret"),
        ("{check: always, expr: state.stock > 1}", "state.stock", 'say which with "of"'),
        ("{check: always, expr: 1 <= series.stokc}", "series.stokc", 'did you mean "series.stock"'),
        ("{check: always, of: shop, expr: state.stock ** 2 > 1}", "state.stock ** 2", "a power"),
        ("{check: always, of: shop, expr: state.stock + 1}", "state.stock + 1", "compare it"),
        ("{check: eventually, name: delivered, expr: series.stock > 1, by: 1s}", "delivered", "a word of"),
        (
            "{check: causal, before: {to: shop}, after: {to: desk, event: sold, from: shop}}",
            "to: desk",
            "goes to all subscribers",
        ),
    ],
)
def test_a_mistake_in_a_formula_has_its_place(project: Project, check: str, word: str, why: str) -> None:
    with pytest.raises(FileError) as caught:
        judged(project, check)
    (mistake,) = caught.value.mistakes
    assert why in mistake.message
    lines = (FILE % check).splitlines()
    assert lines[mistake.line - 1][mistake.column - 1 :].startswith(word)
