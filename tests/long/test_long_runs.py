"""The scripts of the long runs: a short run of each, three with `--matrix`; long ones with `--long`."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.long import fuzz_frames, kills, otp_stories, seeds, soak
from tests.long.state import State
from tests.source import ROOT
from tests.supervision.otp.replay import Child, Plan, run_story
from tests.supervision.otp.stories import Recorded
from tests.transport.peer import frames_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.supervision.otp.stories import Story


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


# ---- the state


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = State(file, {"n": 3}, {"done": []})
    state["done"].append("one")
    state.save()
    again = State(file, {"n": 3}, {"done": []})
    assert again["done"] == ["one"]
    assert again.seconds >= state.data["seconds"]
    with pytest.raises(SystemExit, match="another run"):
        State(file, {"n": 4}, {"done": []})


# ---- soak


def sample(**changed: int) -> dict[str, Any]:
    return {name: 40 * slack for name, slack in soak.SLACK.items()} | changed


@pytest.mark.parametrize("name", soak.SLACK)
def test_what_grows_is_a_trend(name: str) -> None:
    steady = [sample() for _ in range(60)]
    assert soak.trends(steady) == []
    level = steady[0][name]
    grows = [sample(**{name: level + level * n // 200}) for n in range(60)]
    assert soak.trends(grows) != [], "a quarter more within the hour"
    noisy = [sample(**{name: level + level // 50 * (n % 2)}) for n in range(60)]
    assert soak.trends(noisy) == []
    warm = [sample(**{name: level // 2}) for _ in range(5)] + steady[5:]
    assert soak.trends(warm) == [], "the first twelfth does not count"


def test_what_a_server_at_rest_has_more_than_before_is_said() -> None:
    before = {"descriptors": 9, "listeners": 0, "agents": 5, "connections": 0, "open": 0}
    before = {**before, "at_work": ["timers", "dispatcher"]}
    assert soak.more_than(before, {**before, "at_work": ["timers", "runner of Worker.work"]}) == []
    assert soak.more_than(before, {**before, "listeners": 1}) == ["listeners of the server at rest: 1"]
    left = {**before, "at_work": ["timers", "timers"]}
    assert soak.more_than(before, left) == ["1 more tasks 'timers' of the server at rest"]


@pytest.mark.matrix
def test_a_short_soak_is_flat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "state.json"
    short = ["--minutes", "0.02", "--every", "0.15", "--cut", "0.2", "--kill", "1", "--resume", str(file)]
    assert soak.main([*short, "--folder", str(tmp_path), "--quick"]) == 0, capsys.readouterr().out
    assert last_line(capsys).startswith("passed: ")
    state = json.loads(file.read_text())
    last = state["parts"][-1]["samples"][-1]
    assert last["server"]["accepted"] > 0
    assert last["cuts"] > 0
    assert sum(last["client"]["counts"].values()) > 0


# ---- kills


@pytest.mark.matrix
@pytest.mark.timeout(0)
def test_few_kills_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    assert kills.main(["--pairs", "4"]) == 0, capsys.readouterr().out
    assert last_line(capsys).startswith("passed: 4 of ")


# ---- seeds


@pytest.mark.matrix
def test_few_seeds_pass(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(ROOT / "scenarios" / name) for name in ("weather.yaml", "booking.yaml")]
    blocks = list(seeds.blocks_of([ROOT / "scenarios/weather.yaml", ROOT / "scenarios/gossip.yaml"], 10_000))
    assert sum(count for _, _, count in blocks) == 10_000 + seeds.FEWER["gossip.yaml"]
    assert len({(file, first + n) for file, first, count in blocks for n in range(count)}) == 11_000
    assert seeds.main(["--seeds", "2", *files]) == 0
    assert last_line(capsys).startswith("passed: seeds of booking 2, weather 2; 4 runs, 0 failed; 1 of them")


# ---- fuzzed frames


def test_frames_are_written_as_a_client_does() -> None:
    random = Random(1)
    for payload in (b"", b"abc", b"x" * 126, b"y" * 70_000):
        written = fuzz_frames.frame(fuzz_frames.TEXT, payload, random)
        assert frames_of(written, masked=True) == [(fuzz_frames.TEXT, payload)]


@pytest.mark.slow
def test_a_server_lives_through_a_few_damaged_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--frames", "600", "--seed", "0", "--folder", str(tmp_path), "--quick"]
    assert fuzz_frames.main(short) == 0, capsys.readouterr().out
    assert last_line(capsys).startswith("passed: ")


# ---- OTP's stories


def as_here(stories: list[Story], plan: type[Plan[Child]] = Plan) -> list[Recorded]:
    """Tell stories, but for the last, which comes too late, by our own plans."""
    return [Recorded(story, run_story(story, plan)) for story in stories[: max(1, len(stories) - 1)]]


class ForgetsTheLimit(Plan[Child]):
    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        return True


@pytest.mark.slow
def test_stories_are_told_until_enough_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otp_stories, "have_erlang", lambda: True)
    monkeypatch.setattr(otp_stories, "tell_otp", as_here)
    few = ["--stories", "9", "--batch", "6", "--seed", "few"]
    file = tmp_path / "state.json"
    assert otp_stories.main([*few, "--resume", str(file)]) == 0
    assert "9 stories of seed few told by Erlang/OTP, 0 ended differently here; 2 more" in last_line(capsys)
    monkeypatch.setattr(otp_stories, "tell_otp", lambda stories: as_here(stories, ForgetsTheLimit))
    assert otp_stories.main([*few, "--resume", str(file)]) == 0, "it was over"
    assert otp_stories.main(["--stories", "40", "--seed", "few"]) == 1
    monkeypatch.setattr(otp_stories, "tell_otp", lambda stories: [])
    assert otp_stories.main(few) == 1, "a machine that is too busy has not compared anything"


# ---- the long ones


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "script", [soak, seeds, fuzz_frames, otp_stories, kills], ids=lambda script: script.__name__
)
def test_the_whole_of_it(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 0, capsys.readouterr().out
