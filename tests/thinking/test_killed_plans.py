"""A node with a thinking agent is killed (SIGKILL) wherever it can be: turns go on, nothing is done twice.

Each life writes what it does to one log: that it begins, what it commits, what a tool has done outside, what
the model is told. So the log says in which order things happened, and in which life.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.lives import lives_of
from tests.matrix import few_or_all, some
from tests.redis_server import RedisServer, needs_redis
from tests.thinking.killed_plans import ROUNDS, TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

KILLS = len(few_or_all(range(5), range(25)))
"""At random points and times."""

KILLS_AT_EACH = len(few_or_all(range(2), range(8)))
"""At each point."""

MODULE = "tests.thinking.killed_plans"
REQUESTS = ["+".join(names) for names in ROUNDS]
ANSWER = r"Round 0. Next. Round 1. Next. Round 2. Next. (Round \d. Next. )*Done: "
"""What it begins with; with a round more each time that `look` is repeated."""

NAMES = [
    "turn 0",
    *(f"request {names}" for names in REQUESTS),
    *(f"result {tool}" for tool in TOOLS),
    "waiting",
    "approved",
    "history",
]
COMMITS = [(name, when) for name in NAMES for when in ("begins", "kept")]
PLACES = [
    *(f"{tool} {when}" for tool in TOOLS for when in ("before", "done")),
    *(f"{what} {round}" for round in range(len(ROUNDS) + 1) for what in ("stream", "end")),
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def points_of(plan: str) -> list[str]:
    """Return all points of a plan at which a life may end, but for those of a resumed turn alone."""
    return [f"{name} of {plan} {when}" for name, when in COMMITS] + [f"{place} of {plan}" for place in PLACES]


@attrs.define
class Seen:
    """What all lives have left."""

    log: list[list[str]]
    histories: dict[str, list[dict[str, Any]]]
    asked: list[dict[str, Any]]
    lives: int = 0
    """Those that were killed."""

    @classmethod
    def of(cls, folder: Path, lives: int) -> Seen:
        log = [line.split() for line in (folder / "log").read_text().splitlines()]
        histories, asked = json.loads((folder / "end.json").read_text())
        return cls(log, histories, asked, lives)

    def places(self, *words: str) -> list[int]:
        """Return where in the log there are lines with these words."""
        return [place for place, line in enumerate(self.log) if line == list(words)]

    def life_of(self, place: int) -> int:
        return sum(line == ["life"] for line in self.log[:place])

    def check_history(self, session: str, plans: list[str]) -> None:
        """Each plan is there once, in order, with one answer."""
        history = self.histories[session]
        assert [each["role"] for each in history] == ["user", "agent"] * len(plans)
        assert [each["text"] for each in history[::2]] == [f"plan {plan}" for plan in plans]

    def answer_of(self, plan: str) -> dict[str, Any]:
        return next(
            answer
            for history in self.histories.values()
            for said, answer in zip(history[::2], history[1::2], strict=True)
            if said["text"] == f"plan {plan}"
        )

    def check_plan(self, plan: str) -> Counter[str]:
        """Check what was done for a plan against what its answer says; return how often."""
        answer = self.answer_of(plan)
        assert "failed" not in answer, answer
        assert re.match(ANSWER, answer["text"]), answer
        became = re.findall(r"(\w+)=(\w+)", answer["text"])
        repeated = became[len(TOOLS) - 1 : -1]
        assert [name for name, _ in became[: len(TOOLS) - 1]] == TOOLS[:-1]
        assert set(repeated) <= {("look", "unknown")}
        assert became[-1] == ("look", "ok")
        for tool, state in became[: len(TOOLS) - 1]:
            did = self.places("did", plan, tool)
            assert len(did) == 1 if state == "ok" else len(did) <= 1
            self.check_told(plan, tool, did, is_unknown=state == "unknown")
        looks = self.places("did", plan, "look")
        assert 1 <= len(looks) <= len(repeated) + 1
        assert sum(each["key"] == plan for each in self.asked) <= 1
        self.check_rounds(plan)
        return Counter(state for _, state in became)

    def check_told(self, plan: str, tool: str, did: list[int], *, is_unknown: bool) -> None:
        """The model is told of each tool that was cut off, in a later life, and of no other."""
        told = self.places("told", plan, tool)
        assert bool(told) is is_unknown
        if is_unknown:
            requested = [self.life_of(place) for place in did]
            assert all(life < self.life_of(told[0]) for life in requested), "done after it was given up"

    def check_rounds(self, plan: str) -> None:
        """The model is not asked again for what it has said already, as far as that is kept."""
        for round, names in enumerate(REQUESTS):
            kept = self.places("kept", "request", names, "of", plan)
            asked = self.places("asked", plan, str(round))
            assert len(kept) <= 1 or names == "look"
            assert asked
            if kept:
                assert max(asked) < kept[0]


def total(seen: Seen, plans: Iterable[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for plan in plans:
        counted += seen.check_plan(plan)
    return counted


def killed(live: Any, *arguments: Any) -> bool:
    end = live(*arguments)
    assert end in (0, -signal.SIGKILL)
    return bool(end)


@pytest.fixture(scope="module")
def live() -> Generator[Callable[..., int]]:
    """Run one life of the node."""
    with lives_of(MODULE) as run:
        yield run


@pytest.mark.parametrize("point", some([point.replace(" of 0", "") for point in points_of("0")], of=3))
def test_a_turn_goes_on_wherever_its_process_is_killed(
    point: str, tmp_path: Path, live: Callable[..., int]
) -> None:
    plans = [str(number) for number in range(KILLS_AT_EACH)]
    place = [each.replace(" of 0", "") for each in points_of("0")].index(point)
    for number in range(KILLS_AT_EACH):
        two = plans[max(0, number - 1) : number + 1]
        assert killed(live, str(tmp_path), {"s": two}, points_of(two[-1])[place])
    assert not killed(live, str(tmp_path), {"s": plans[-1:]})
    seen = Seen.of(tmp_path, KILLS_AT_EACH)
    seen.check_history("s", plans)
    for plan in plans:
        became = seen.check_plan(plan)
        for tool in TOOLS:
            results = len(seen.places("kept", "result", tool, "of", plan))
            unknown = len(seen.places("kept", "unknown", tool, "of", plan))
            if tool == "look":
                assert (results, unknown) in ((1, 0), (1, 1))
            else:
                assert results + unknown == 1
        assert len(seen.places("said", plan)) == (2 if point == "turn 0 begins" else 1)
        assert became["unknown"] <= 2


def test_a_turn_goes_on_after_several_kills(tmp_path: Path, live: Callable[..., int]) -> None:
    """Of at most four, of a resumed turn too."""
    chance, kills = random.Random(26), 0
    plans = [str(number) for number in range(KILLS)]
    for number, plan in enumerate(plans):
        points = [*points_of(plan), *(f"turn {again} of {plan} kept" for again in (1, 2, 3))]
        two = plans[max(0, number - 1) : number + 1]
        for point in chance.choices(points, k=chance.randrange(2, 5)):
            kills += killed(live, str(tmp_path), {"s": two}, point)
    assert not killed(live, str(tmp_path), {"s": plans[-1:]})
    seen = Seen.of(tmp_path, kills)
    assert kills > KILLS
    seen.check_history("s", plans)
    total(seen, plans)


def test_a_turn_that_ends_each_life_is_given_up(tmp_path: Path, live: Callable[..., int]) -> None:
    plans = [str(number) for number in range(KILLS)]
    for number, plan in enumerate(plans):
        two = plans[max(0, number - 1) : number + 1]
        assert killed(live, str(tmp_path), {"s": two}, f"ship done of {plan}")
        for again in (1, 2, 3):
            assert killed(live, str(tmp_path), {"s": [plan]}, f"turn {again} of {plan} kept")
    assert not killed(live, str(tmp_path), {"s": plans[-1:]})
    seen = Seen.of(tmp_path, 4 * KILLS)
    seen.check_history("s", plans)
    for plan in plans:
        assert seen.answer_of(plan)["failed"]["code"] == "GIVEN_UP"
        assert len(seen.places("did", plan, "ship")) == 1
        assert len(seen.places("did", plan, "note")) <= 1
        assert not seen.places("did", plan, "refund")


def test_turns_go_on_whenever_their_process_is_killed(tmp_path: Path, live: Callable[..., int]) -> None:
    chance, kills, worlds = random.Random(26), 0, list[Seen]()
    sessions = {f"s{n}": [f"{n}{plan}" for plan in range(3)] for n in range(4)}
    while kills < KILLS:
        folder = tmp_path / f"world-{len(worlds)}"
        folder.mkdir()
        longest, before = 0.1, kills
        while killed(live, str(folder), sessions, "", chance.uniform(0.02, longest)):
            kills += 1
            longest *= 1.1  # on a slow machine, too, the last life comes to its end
        worlds.append(Seen.of(folder, kills - before))
    for seen in worlds:
        for session, plans in sessions.items():
            seen.check_history(session, plans)
            for plan in plans:
                failed = seen.answer_of(plan).get("failed")
                if failed is None:
                    seen.check_plan(plan)
                else:
                    assert failed["code"] == "GIVEN_UP", failed
                    assert all(len(seen.places("did", plan, tool)) <= 1 for tool in TOOLS[:-1])


@needs_redis
@pytest.mark.parametrize("point", few_or_all(["end 0"], ["ship before", "end 0", "refund done"]))
def test_a_process_that_was_paused_does_nothing_twice_beside_the_one_that_has_taken_over(
    point: str, tmp_path: Path
) -> None:
    (tmp_path / "server").mkdir()
    server = RedisServer(tmp_path / "server")
    command = [sys.executable, "-m", MODULE, str(tmp_path), server.url("plans", writers="one")]
    try:
        with subprocess.Popen([*command, f"{point} of 0"], stderr=subprocess.PIPE, text=True) as paused:
            try:
                _, status = os.waitpid(paused.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)
                subprocess.run([*command, ""], check=True, timeout=60)
                paused.send_signal(signal.SIGCONT)
                _, errors = paused.communicate(timeout=60)
            finally:
                paused.kill()
        assert paused.returncode == 1
        assert "another writer has opened it" in errors
    finally:
        server.kill()
    seen = Seen.of(tmp_path, 0)
    seen.check_history("s", ["0"])
    answer = seen.answer_of("0")
    assert "failed" not in answer
    assert all(len(seen.places("did", "0", tool)) <= 1 for tool in TOOLS[:-1])
