"""Logs of processes: lines, files that are rotated, and those who follow."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors.deployment.processes import LineSplitter, LogFiles, LogLine, RecentLines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLOCK = "x" * 999
KEPT, MOST_FILE, MOST_LINE = 3, 4 << 20, 1 << 14
WAITING = 1 << 20


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def files(folder: Path, warn: Callable[[str], None] = lambda text: None) -> LogFiles:
    """Return log files of an hour that stands still."""
    return LogFiles(folder, warn, lambda: NOON)


def line(process: str, text: str, left_out: int = 0) -> LogLine:
    return LogLine(process, text, left_out, "2030-01-01T12:00:00.000Z")


def texts(lines: list[LogLine]) -> list[str]:
    """Return the texts of lines that all have a time."""
    assert {each.time for each in lines} <= {"2030-01-01T12:00:00.000Z"}
    return [each.text for each in lines]


def lines_of(pieces: list[bytes]) -> list[str]:
    """Return what a splitter makes of some pieces."""
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.lines(piece)] + list(splitter.rest())


# ---- lines


SAMPLES: dict[bytes, list[str]] = {
    b"": [],
    b"a": ["a"],
    b"a\n": ["a"],
    b"a\n\nb": ["a", "", "b"],
    b"a\r\nb\r": ["a", "b"],
    b"50%\r100%\n": ["50%\r100%"],
    "ä\u2028\x0bß\n".encode(): ["ä\u2028\x0bß"],
    b"\xff\n": ["\\xff"],
    b"y" * MOST_LINE + b"\n": ["y" * MOST_LINE],
    b"y" * (MOST_LINE + 1) + b"\nz": ["y" * MOST_LINE, "y", "z"],
}


@pytest.mark.parametrize("data", SAMPLES, ids=lambda data: repr(data[:20]))
def test_output_is_cut_into_lines(data: bytes) -> None:
    assert lines_of([data]) == SAMPLES[data]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xc3", b"\xa4", b"b" * 9_000]), max_size=20),
    st.data(),
)
def test_lines_are_the_same_however_output_comes(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    ends = [0, *cuts, len(whole)]
    pieces = [whole[first:last] for first, last in pairwise(ends)]
    assert lines_of(pieces) == lines_of([whole])
    assert all(len(line.encode()) <= 4 * MOST_LINE for line in lines_of(pieces))


def test_what_is_no_whole_line_yet_is_bounded() -> None:
    splitter = LineSplitter()
    for _ in range(100):
        assert [len(line) for line in splitter.lines(b"x" * MOST_LINE)] in ([], [MOST_LINE])
    assert sum(map(len, splitter.rest())) <= MOST_LINE


# ---- files


async def test_the_last_lines_are_kept_over_rotations(tmp_path: Path) -> None:
    logs = files(tmp_path / "logs")
    count = KEPT * MOST_FILE // 50_000
    for number in range(count):
        await logs.write("weather/1", [f"{number} {'y' * 50_000}", f"{number} after"])
    names = sorted(path.name for path in logs.folder.iterdir())
    assert names == ["weather-1.1.log", "weather-1.2.log", "weather-1.log"]
    assert all(path.stat().st_size <= MOST_FILE for path in logs.folder.iterdir())
    last = texts(logs.last("weather/1", 150))
    assert [line.split()[0] for line in last[1::2]] == [str(number) for number in range(count - 75, count)]
    assert [texts(logs.last("weather/1", each)) for each in (0, -3, 1)] == [[], [], [f"{count - 1} after"]]
    assert texts(logs.last("weather/2", 5)) == []
    newest = [line.text for line in logs.recent.last(20, "weather/1", lambda process: True)]
    assert (len(newest), newest[-1]) == (20, f"{count - 1} after")
    assert max(map(len, newest)) == 500


async def test_a_launcher_goes_on_with_the_files_of_the_last_one(tmp_path: Path) -> None:
    await files(tmp_path).write("a/1", ["one"])
    logs = files(tmp_path)
    await logs.write("a/1", ["two\u2028three", "four\rfive"])
    assert texts(logs.last("a/1", 9)) == ["one", "two\u2028three", "four\rfive"]


async def test_lines_of_an_older_version_have_no_time(tmp_path: Path) -> None:
    (tmp_path / "a-1.log").write_text("one\n2030 two\n", encoding="utf-8")
    logs = files(tmp_path)
    await logs.write("a/1", ["three"])
    assert logs.last("a/1", 9) == [LogLine("a/1", "one"), LogLine("a/1", "2030 two"), line("a/1", "three")]


async def test_output_and_errors_of_a_process_rotate_its_files_once(tmp_path: Path) -> None:
    logs = files(tmp_path)
    count = 2 * MOST_FILE // (100 * 1_000) + 8
    async with trio.open_nursery() as nursery:

        async def write(mark: str) -> None:
            for number in range(count // 2):
                await logs.write("a/1", [f"{mark} {number} {BLOCK}"] * 100)

        nursery.start_soon(write, "out")
        nursery.start_soon(write, "err")
    assert len(logs.last("a/1", 1_000_000)) == count // 2 * 2 * 100


async def test_a_folder_that_is_a_file_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    await _write_and_follow(files(tmp_path / "logs"))


async def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    tmp_path.joinpath("a-1.log").symlink_to("/dev/full")
    await _write_and_follow(files(tmp_path))


async def test_lines_that_are_lost_are_counted_said_once_and_marked_where_they_are_missing(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    logs, file = files(tmp_path, said.append), tmp_path / "a-1.log"
    file.symlink_to("/dev/full")
    for number in range(3):
        await logs.write("a/1", [f"lost {number}", "lost too"])
    why = f"{file}: No space left on device"
    assert (logs.lost, logs.why_lost) == (6, why)
    assert [text.startswith(f"{why}: lines of processes are lost until") for text in said] == [True]
    file.unlink()
    await logs.write("a/1", ["kept"])
    await logs.write("a/1", ["kept too"])
    assert texts(logs.last("a/1", 5)) == [f"… 6 lines are missing here: {why}", "kept", "kept too"]
    assert logs.lost == 6


async def _write_and_follow(logs: LogFiles) -> None:
    with logs.follow() as follower:
        await logs.write("a/1", ["one"])
        assert await follower.lines() == [line("a/1", "one")]
    assert texts(logs.last("b/1", 5)) == []


# ---- those who follow


async def test_lines_that_are_not_taken_in_time_are_left_out_and_counted(tmp_path: Path) -> None:
    logs = files(tmp_path)
    room = WAITING // (len("a/1") + len(BLOCK)) + 1
    with logs.follow() as follower, logs.follow() as quick:
        await logs.write("a/1", [BLOCK] * (room + 7))
        assert len(await quick.lines()) == room
        await logs.write("b/1", ["next"])
        assert await quick.lines() == [line("b/1", "next", left_out=7)]
        assert len(await follower.lines()) == room
        await logs.write("b/1", ["last"])
        assert await follower.lines() == [line("b/1", "last", left_out=8)]


async def test_one_who_reads_the_last_lines_first_gets_no_line_twice(tmp_path: Path) -> None:
    logs = files(tmp_path)
    await logs.write("a/1", ["zero"])
    with logs.follow(later=["a/1"]) as follower:
        await logs.write("a/1", ["one"])
        await logs.write("b/1", ["other"])
        assert await follower.lines() == [line("b/1", "other")]
        assert texts(await logs.last_before(follower, "a/1", 2)) == ["zero", "one"]
        await logs.write("a/1", ["two"])
        assert await follower.lines() == [line("a/1", "two")]


async def test_a_process_waits_for_one_who_is_patient_and_no_line_is_lost(tmp_path: Path) -> None:
    logs = files(tmp_path)
    taken: list[LogLine] = []
    with logs.follow(patience=60.0) as follower:
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                while lines := await follower.lines():
                    taken.extend(lines)

            nursery.start_soon(take)
            await logs.write("a/1", [BLOCK] * 5_000)
            logs.close()
    assert len(taken) == 5_000
    assert not any(line.left_out for line in taken)


async def test_one_who_takes_nothing_costs_a_write_its_patience_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    logs: Any = files(tmp_path)
    with logs.follow(patience=3.0) as follower:
        await follower.put("a/1", [BLOCK] * 5_000)
        assert trio.current_time() == pytest.approx(3.0)
        await follower.put("b/1", ["one", "two"])
        assert trio.current_time() == pytest.approx(6.0)


async def test_those_who_follow_take_what_there_is_and_end_once_the_logs_are_closed(tmp_path: Path) -> None:
    logs = files(tmp_path)
    with logs.follow() as follower:
        await logs.write("a/1", ["one"])
        logs.close()
        assert await follower.lines() == [line("a/1", "one")]
        assert await follower.lines() == []
        assert await follower.lines() == []


# ---- the last lines, in memory


def everything(process: str) -> bool:
    """See all processes."""
    return True


def test_a_process_that_floods_pushes_out_nothing_of_the_others() -> None:
    recent = RecentLines()
    recent.add("front/1", [f"said {n}" for n in range(30)])
    recent.add("weather/1", ["before"])
    for _ in range(5):
        recent.add("weather/10", ["flood"] * 5_000)
    assert [line.text for line in recent.last(300, "front/1", everything)] == [
        f"said {n}" for n in range(10, 30)
    ]
    assert [line.text for line in recent.last(300, "weather/1", everything)] == ["before"]
    assert len(recent.last(5_000, "weather", everything)) == 1_001
    last = recent.last(3, "", everything)
    assert [line.number for line in last] == [25_029, 25_030, 25_031]


def test_the_last_lines_are_in_the_order_in_which_they_came() -> None:
    recent = RecentLines()
    for number in range(2_000):
        recent.add(f"{'ab'[number % 2]}/1", [str(number)])
    texts = [line.text for line in recent.last(40, "", everything)]
    assert texts == [str(number) for number in range(1_960, 2_000)]
    of_one = recent.last(40, "", lambda process: process == "a/1")
    assert [line.text for line in of_one] == [str(number) for number in range(1_920, 2_000, 2)]


def test_lines_are_without_colours_and_without_what_a_terminal_obeys() -> None:
    recent = RecentLines()
    recent.add(
        "a/1", ["\x1b[1;31mred\x1b[0m\tend", "bell\a\x1b]0;title\a", '{"event": "ready"}', "x" * 5_000]
    )
    texts = [line.text for line in recent.last(9, "a", everything)]
    assert texts == ["red    end", "bell\\x07\\x1b]0;title\\x07", "x" * 500]


def test_of_very_many_processes_the_last_that_printed_are_kept() -> None:
    recent = RecentLines()
    for number in range(5_000):
        recent.add(f"a/{number}", ["one"])
    assert recent.last(9, "a/10", everything) == []
    assert len(recent.last(9, "a/3500", everything)) == 1
