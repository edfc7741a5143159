"""An agent that asks a person and then pays is killed (SIGKILL) wherever it can be: nothing happens twice.

A question is kept once and decided once, wherever the process ends. Whether the payment is made once depends
on the way in which the agent pays, as the guide says; see `killed_refunds.py`.
"""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.approvals.killed_refunds import WAYS
from tests.lives import lives_of
from tests.matrix import few_or_all, some

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

KILLS = len(few_or_all(range(5), range(25)))
"""At random times."""

KILLS_AT_EACH = len(few_or_all(range(2), range(8)))
"""Of each way, at each point."""

POINTS = [
    "waiting question begins",
    "waiting question kept",
    "shown",
    "approved question begins",
    "approved question kept",
    "paying",
    "paid",
    "payment begins",
    "payment kept",
    "answered",
]
CASES = [
    *some([(way, point) for way in WAYS for point in POINTS], of=3),
    ("careful", "mark begins"),
    ("careful", "mark kept"),
]
SHOWN_TWICE = {"shown", "approved question begins"}
RUN_ONCE = {"payment kept", "answered"}
OPEN = {"paid", "payment begins"}
"""The payment is made, and the agent does not know."""
MARKED = OPEN | {"mark kept", "paying"}
"""A careful agent knows that it was about to pay, and no more."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Seen:
    """What the world has seen of all lives."""

    def __init__(self, folder: Path) -> None:
        self.log = [tuple(line.split()) for line in (folder / "log").read_text().splitlines()]
        outside = folder / "outside"
        self.paid = Counter(outside.read_text().split() if outside.exists() else [])
        self.paid.update(path.name.removeprefix("paid-") for path in folder.glob("paid-*"))
        self.kept: list[dict[str, Any]] = json.loads((folder / "kept.json").read_text())

    def lines(self, kind: str, key: str) -> list[str]:
        return [" ".join(rest) for word, of, *rest in self.log if (word, of) == (kind, key)]

    def check_question(self, key: str, state: str = "approved") -> None:
        """It is kept once, under the id under which it was ever shown, and was decided at most once."""
        (kept,) = [each for each in self.kept if each["key"] == key]
        assert kept["state"] == state
        assert set(self.lines("shown", key)) == {kept["id"]}
        assert self.lines("decided", key) in ([], [kept["id"]])


@pytest.fixture(scope="module")
def live() -> Generator[Callable[..., int]]:
    """Run one life of the agent."""
    with lives_of("tests.approvals.killed_refunds") as run:
        yield run


@pytest.mark.parametrize(("way", "point"), CASES, ids=[f"{way}, {point}" for way, point in CASES])
def test_a_question_is_asked_and_decided_once_and_a_payment_made_as_the_guide_says(
    way: str, point: str, tmp_path: Path, live: Callable[..., int]
) -> None:
    orders = [f"o-{number}" for number in range(KILLS_AT_EACH)]
    for number in range(KILLS_AT_EACH):
        assert live(str(tmp_path), way, orders[max(0, number - 1) : number + 1], point) == -signal.SIGKILL
    assert live(str(tmp_path), way, orders[-1:], "") == 0
    seen = Seen(tmp_path)
    about = [each["key"] for each in seen.kept if ":" in each["key"]]
    assert about == ([f"{order}:paid?1" for order in orders] if way == "careful" and point in MARKED else [])
    for key in about:
        seen.check_question(key, "approved" if point in OPEN else "refused")
    for order in orders:
        seen.check_question(order)
        assert len(seen.lines("shown", order)) == (2 if point in SHOWN_TWICE else 1)
        assert len(seen.lines("run", order)) == (1 if point in RUN_ONCE else 2)
        assert seen.paid[order] == (2 if way == "plain" and point in OPEN else 1)
        assert set(seen.lines("answer", order)) == {"paid"}


def test_wherever_it_is_killed_nothing_is_paid_twice_that_need_not_be(
    tmp_path: Path, live: Callable[..., int]
) -> None:
    chance, kills, seen = random.Random(26), 0, list[Seen]()
    orders = [f"{number}" for number in range(4)]
    while kills < KILLS:
        folder = tmp_path / f"world-{len(seen)}"
        folder.mkdir()
        longest = 0.04
        while live(str(folder), "", orders, "", chance.uniform(0.002, longest)) == -signal.SIGKILL:
            kills += 1
            longest *= 1.05  # on a slow machine, too, the last life comes to its end
        seen.append(Seen(folder))
    repeated = 0
    for world in seen:
        assert {each["key"] for each in world.kept} >= {f"{way}-{order}" for way in WAYS for order in orders}
        assert len(world.kept) == len({each["key"] for each in world.kept})
        for each in world.kept:
            world.check_question(each["key"], each["state"])
            assert each["state"] == "approved" or ":" in each["key"]
        for way in WAYS:
            for order in (f"{way}-{number}" for number in orders):
                assert set(world.lines("answer", order)) == {"paid"}
                assert world.paid[order] == 1 or way == "plain"
                repeated += world.paid[order] - 1
    assert repeated <= kills * len(orders)
