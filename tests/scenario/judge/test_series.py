"""Sampling: what series and checks of a population give, and that no agent costs a call at each sample."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, strategies as st

from lmos_actors.actors import Agent
from lmos_actors.scenario.formulas import (
    AgentValues,
    CheckedNames,
    Columns,
    FormulaFailed,
    compile_formula,
    fields_known,
    state_of,
)
from lmos_actors.scenario.run import run_cell
from lmos_actors.system.values import show
from tests.scenario.crowds import Crowds, at, crowds_in, peers, total

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shelf(Agent):
    """Keeps a value, and another."""

    n: Any = 0
    m: Any = attrs.field(default=1, alias="other")


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowds]:
    with crowds_in(tmp_path_factory.mktemp("crowds")) as made:
        yield made


def calls(crowds: Crowds, count: int, seconds: int) -> int:
    """Count the calls that the scenario package makes in a run that samples agents at rest every second."""
    series = {
        "heard": total("state.heard"),
        "some": total("state.heard > 2 or state.number == 1", agg="fraction"),
        "seats": total("mailbox.depth", agg="p99"),
        "rate": total("delivered", agg="rate", of="*"),
    }
    checks = [
        {"check": "always", "name": "few", "of": "peer", "expr": "state.heard <= 3"},
        {"check": "converges", "name": "same", "of": "peer", "field": "state.heard", "within": "1h"},
    ]
    found = 0

    def look(frame: Any, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and "/lmos_actors/scenario/" in frame.f_code.co_filename.replace("\\", "/")

    resolved = crowds.load(
        population=[peers(count)],
        timeline=[at("500ms", "hear")],
        measure={"every": "1s", "series": series},
        checks=checks,
        stop={"at": f"{seconds}s"},
    )
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        result = run_cell(resolved, resolved.cells[0], 1, real_limit=60)
    finally:
        sys.setprofile(before)
    assert result.series[0].values == (1.0,) * seconds
    assert [(check.name, check.ok) for check in result.judged] == [("few", True), ("same", False)]
    return found


def test_no_agent_costs_a_call_at_each_sample(crowds: Crowds) -> None:
    for_few = calls(crowds, 20, 60) - calls(crowds, 20, 20)
    for_more = calls(crowds, 80, 60) - calls(crowds, 80, 20)
    assert for_few > 0
    # 40 samples more, of 60 agents more: not one call in each, let alone one for each agent
    assert abs(for_more - for_few) < 40


def test_every_look_is_counted(crowds: Crowds) -> None:
    check = {"check": "always", "of": "peer", "expr": "state.heard <= 3"}
    result = crowds.passes(
        population=[peers(7)],
        measure={"every": "1s", "series": {"heard": total("state.heard")}},
        checks=[check],
    )
    # as each starts, at each of ten samples, and at the end
    assert result.judged[0].saw == f"so at each of {7 + 7 * 10 + 7} looks"


# --- all at once, and one after the other

VALUES = st.one_of(
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 1.0, 2.5, -1.0, math.inf, math.nan]),
    st.sampled_from(["", "a", "1"]),
    st.none(),
    st.lists(st.integers(0, 2), max_size=2),
)
FORMULAS = (
    "state.n",
    " state.n",
    "state.n == 1",
    "state.n > 1",
    "state.n + state.other",
    "state.n / (state.n - 2)",
    "state.n == state.other and mailbox.depth < 2",
    "len(state.n)",
    "mailbox.depth",
    "mailbox.accepted - mailbox.handled + mailbox.size",
    "mailbox.dropped",
    "delivered * 2",
    "restarts",
    "series.x",
    "state.n + series.x",
    "series.none + mailbox.depth",
)


def slot(number: int, state: tuple[Any, Any] | None) -> Any:
    counts = {"accepted": number, "begun": number // 2, "handled": number // 3, "inline": 1}
    return SimpleNamespace(
        path=f"peer/{number}",
        agent=None if state is None else Shelf(n=state[0], other=state[1]),
        mailbox=SimpleNamespace(size=8),
        restarts=number % 3,
        extra=None,
        **counts,
    )


def more(name: str) -> Any:
    if name == "series.x":
        return 2.0
    raise LookupError(f"{name} has no value")


@given(
    st.one_of(
        st.lists(st.none() | st.tuples(VALUES, VALUES), max_size=6),
        st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 3)), max_size=6),
    ),
    st.sampled_from(FORMULAS),
)
def test_all_at_once_is_one_after_the_other(states: list[tuple[Any, Any] | None], text: str) -> None:
    formula = compile_formula(text, CheckedNames(["series.x", "series.none"]))
    delivered = {"peer/1": 3}
    agents = AgentValues(state_of, delivered, more, Columns(fields_known, delivered, more))
    slots = [slot(number, state) for number, state in enumerate(states)]
    asks_state = any(name.startswith("state.") for name in formula.names)
    expected: list[tuple[str, str]] | None = []
    for one in slots:
        if agents.at(one, state=asks_state):
            try:
                expected.append((one.path, show(formula.value(agents))))
            except (LookupError, FormulaFailed):
                expected = None
                break
    found = agents.of_all(formula, slots, state=asks_state)
    if expected is None:
        assert found is None
    elif found is not None:
        assert [(one.path, show(value)) for one, value in zip(*found, strict=True)] == expected


@pytest.mark.parametrize(
    "text", ["state.n", "state.n + state.other", "state.n == 1", "mailbox.depth", "delivered"]
)
def test_what_is_plain_is_looked_at_all_at_once(text: str) -> None:
    formula = compile_formula(text, CheckedNames([]))
    agents = AgentValues(state_of, {}, more, Columns(fields_known, {}, more))
    slots = [slot(number, (number, 2)) for number in range(5)]
    found = agents.of_all(formula, slots, state=text.startswith("state."))
    assert found is not None
    assert len(found[1]) == 5
