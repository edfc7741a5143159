"""A conversation is handed over, and the process is killed (SIGKILL): nothing is asked or done twice."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.lives import lives_of
from tests.matrix import few_or_all, some

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

KILLS = len(few_or_all(range(2), range(8)))
"""At each point."""

POINTS = [
    f"{name} {when}"
    for name in (
        "desk turn 0", "desk model", "desk passing", "desk history",
        "clerk turn 0", "clerk model", "clerk tool", "clerk history",
    )
    for when in ("begins", "kept")
]  # fmt: skip
PLACES = ["desk stream", "desk end", "clerk stream", "clerk end", "work before", "work done"]
NOT_BEGUN = {"desk passing kept", "clerk turn 0 begins"}
"""The desk knows that it has passed the message on, and the clerk knows nothing of it."""
CUT = {"clerk model kept", "work before", "work done", "clerk tool begins"}
"""The clerk had called the tool, and has no result of it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def live() -> Generator[Callable[..., int]]:
    """Run one life of the node."""
    with lives_of("tests.thinking.killed_hand_over") as run:
        yield run


@pytest.mark.parametrize("point", some([*POINTS, *PLACES], of=3))
def test_a_message_is_passed_on_once_wherever_the_process_is_killed(
    point: str, tmp_path: Path, live: Callable[..., int]
) -> None:
    plans = [str(number) for number in range(KILLS)]
    for number, plan in enumerate(plans):
        two = plans[max(0, number - 1) : number + 1]
        end = f"{point} of {plan}" if point in PLACES else point
        assert live(str(tmp_path), two, end) == -signal.SIGKILL
    assert live(str(tmp_path), plans[-1:]) == 0
    found, worked = json.loads((tmp_path / "end.json").read_text())
    log = tmp_path / "log"
    did = Counter(line for line in log.read_text().splitlines() if line.startswith("did "))
    by_desk = {said["text"]: answer for said, answer in found}
    by_clerk = {said["text"]: answer for said, answer in worked}
    assert len(by_desk) == len(found) == KILLS
    assert len(by_clerk) == len(worked) == (0 if point in NOT_BEGUN else KILLS)
    for plan in plans:
        answer = by_desk[f"plan {plan}"]
        if point in NOT_BEGUN:
            assert answer["failed"]["code"] == "OUTCOME_UNKNOWN"
            assert did[f"did {plan}"] == 0
        else:
            assert answer["text"] == by_clerk[f"plan {plan}"]["text"]
            assert answer["text"].endswith("work=unknown" if point in CUT else "work=ok")
            assert did[f"did {plan}"] == (0 if point in {"clerk model kept", "work before"} else 1)
