"""Message logs: their first and last lines, reading them back, and where two part."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.judge import CHANGED, CUT_SHORT, LogFile, compare_heads, compare_records, lines_of
from lmos_actors.scenario.run import StopPoint, read_break, run_cell
from lmos_actors.simulation import TraceLog

if TYPE_CHECKING:
    from collections.abc import Callable

PEER = """\
from __future__ import annotations

from lmos_actors import Agent, action


class Peer(Agent):
    @action
    def say(self, text: str) -> str:
        return text
"""

STORY = """\
lmos: scenario/v1
name: logs
vars: {word: {type: string, default: hello}}
matrix: {word: [hello, bye]}
seeds: [3]
agents: {peer: {from: agent, use: "log_peer.py:Peer"}}
steps:
  - {do: invoke, target: peer, action: say, input: {text: $(vars.word)}}
"""


def written(records: int, **run: Any) -> str:
    """Write the log of a run by hand."""
    out = io.StringIO()
    log = TraceLog(out, run=run or None)
    log.begin(seed=1, now=lambda: 0.5)
    for number in range(records):
        log.record("event", "peer", {"event": "said", "data": number})
    log.end()
    return out.getvalue()


def read(path: Path, text: str | bytes) -> list[tuple[str, int, str | None]]:
    """Give place, number of records and problem of every run."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found: list[tuple[str, int, str | None]] = []
    with LogFile(path, "log") as file:
        for run in file.runs():
            run.skip()
            found.append((run.place, run.records, run.problem))
    return found


# --- what is written


def hash_of(*lines: str) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_last_line_has_the_count_of_the_records_and_the_hashes_of_them_and_of_the_head() -> None:
    head, *records, last = written(3).splitlines(keepends=True)
    assert json.loads(last) == {"end": 3, "head": hash_of(head), "sha256": hash_of(*records)}


def test_heads_do_not_count_in_the_digest() -> None:
    one, other, third = (
        json.loads(written(records, label=label).splitlines()[-1])
        for records, label in ((3, "a"), (3, "b"), (2, "a"))
    )
    assert one["sha256"] == other["sha256"] != third["sha256"]
    assert one["head"] == third["head"] != other["head"]


def test_lines_kept_end_in_the_last_and_the_digest_is_that_in_it() -> None:
    log = TraceLog(keep=2)
    log.begin(seed=1, now=lambda: 0.0)
    log.record("event", "peer", {})
    log.end()
    assert json.loads(log.lines()[-1])["sha256"] == log.digest()


def test_a_head_says_how_to_repeat_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "log_peer.py").write_text(PEER)
    file = tmp_path / "logs.yaml"
    file.write_text(STORY)
    resolved = load_scenario(file, settings={"word": "bye"})
    (cell,) = resolved.cells
    result = run_cell(resolved, cell, 2, real_limit=20)
    run = json.loads(result.log[0])["run"]
    sources = run.pop("sources")
    assert run == {
        "file": str(file),
        "name": "logs",
        "label": "word=bye seed=3",
        "settings": {"word": "bye"},
        "values": {"word": "bye"},
        "seed": 3,
        "trial": 2,
        "sha256": hashlib.sha256(STORY.encode()).hexdigest(),
    }
    assert sources == {"log_peer.py": hashlib.sha256(PEER.encode()).hexdigest()}
    assert json.loads(result.log[-1])["sha256"] == result.digest


# --- what is read


def test_runs_of_one_file_are_read_one_after_the_other(tmp_path: Path) -> None:
    text = written(2) + written(0) + written(1)
    assert read(tmp_path / "log", text) == [("log:1", 2, None), ("log:5", 0, None), ("log:7", 1, None)]


def test_a_run_that_was_not_read_to_its_end_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(written(3, label="a") + written(1, label="b"))
    with LogFile(tmp_path / "log") as file:
        assert [run.run["label"] for run in file.runs()] == ["a", "b"]


def test_a_run_that_was_read_in_part_is_judged_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(written(3))
    with LogFile(tmp_path / "log") as file:
        (run,) = [
            run for run in file.runs() if next(iter(run)).sort == "head" and next(iter(run)).data["n"] == 1
        ]
    assert (run.records, run.problem) == (3, None)


WHOLE = written(4) + written(2)


@given(st.integers(min_value=0, max_value=len(WHOLE)))
def test_a_log_that_was_cut_is_never_taken_for_a_whole_one(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = read(Path(folder) / "log", WHOLE[:cut])
        except FileError:
            assert cut < WHOLE.index("\n")  # not even a head
            return
    ends = [match.end() for match in re.finditer(r'\{"end".*\}', WHOLE)]
    assert sum(problem is None for _, _, problem in found) == sum(end <= cut for end in ends)
    assert all(problem in (None, CUT_SHORT) for _, _, problem in found)


def older(text: str) -> str:
    """A log as it was written before: with one hash, of all lines."""
    *lines, last = text.splitlines(keepends=True)
    return "".join([*lines, f'{{"end":{json.loads(last)["end"]},"sha256":"{hash_of(*lines)}"}}\n'])


@pytest.mark.parametrize("text", [written(3), older(written(3))], ids=["now", "older"])
def test_a_log_that_was_changed_is_told(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "log", text) == [("log:1", 3, None)]
    for told, else_told in (('"data":1', '"data":7'), ('"end":3', '"end":4'), ('"seed":1', '"seed":2')):
        assert read(tmp_path / "log", text.replace(told, else_told)) == [("log:1", 3, CHANGED)]
    lines = text.splitlines(keepends=True)
    assert read(tmp_path / "log", "".join(lines[:2] + lines[3:])) == [("log:1", 2, CHANGED)]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (b"", "log", "is empty"),
        (b"hello\n", "log:1:1", "is not a message log"),
        (b"[1]\n", "log:1:1", "is not a message log"),
        (b'{"a":1}\n', "log:1:1", "is not the first line of a run"),
        (b'{"schema":"other/v1"}\n', "log:1:1", "is of the schema 'other/v1'"),
        (b"\xff\xfe\n", "log:1:1", "is not a message log"),
        (WHOLE.encode() + b"hello\n", "log:11:1", "is not a line of a message log"),
        (WHOLE.encode() + b'{"n":1}\n', "log:11:1", "is not the first line of a run"),
        (
            WHOLE[:1000].rpartition("\n")[0].encode() + b'\n{"x":1}\n',
            "log:",
            "is not a line of a message log",
        ),
        (
            WHOLE[:1000].rpartition("\n")[0].encode() + b'\n{"n":3,"t":' + b"9" * 400 + b"}\n",
            "log:",
            "is not a line of a message log",
        ),
        (b"[" * 100_000 + b"\n", "log:1:1", "is not a message log"),
    ],
)
def test_what_is_no_log_is_refused_at_its_place(
    tmp_path: Path, text: bytes, place: str, message: str
) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path / "log", text)
    (mistake,) = caught.value.mistakes
    assert mistake.place.startswith(place)
    assert message in mistake.message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is not a regular file"),
    ],
)
def test_a_log_that_cannot_be_opened(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "log")
    with pytest.raises(FileError, match=message):
        LogFile(tmp_path / "log")


# --- where two part


def compare(one: str, other: str, context: int = 2) -> Any:
    return compare_records(lines_of(one.splitlines()), lines_of(other.splitlines()), context)


def test_equal_logs_have_everything_in_common() -> None:
    found = compare(written(5), written(5))
    assert found.equal
    assert found.common == 5
    assert found.fields == ()


def test_the_first_records_that_differ_are_found_with_what_is_around() -> None:
    found = compare(written(6), written(6).replace('"data":3', '"data":{"a":[1]}'))
    assert not found.equal
    assert found.common == 3
    assert [line.data["n"] for line in found.before] == [2, 3]
    assert [line.data["n"] for line in found.first] == [4, 5, 6]
    assert [(f.name, f.first, f.second) for f in found.fields] == [("data", 3, {"a": [1]})]


def test_a_log_that_ends_sooner_differs_there() -> None:
    found = compare(written(3), written(5))
    assert not found.equal
    assert (found.common, found.first) == (3, ())
    assert [line.data["n"] for line in found.second] == [4, 5]


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8), st.integers(0, 3))
def test_what_is_common_is_the_longest_common_beginning(a: list[int], b: list[int], context: int) -> None:
    texts = ["\n".join(json.dumps({"n": n, "v": v}) for n, v in enumerate(values)) for values in (a, b)]
    found = compare(texts[0], texts[1], context)
    common = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert found.common == common
    assert found.equal == (a == b)
    assert [line.data["v"] for line in found.before] == a[max(0, common - context) : common]


def test_heads_are_compared_member_by_member_but_for_the_place_of_the_file() -> None:
    one = {"seed": 1, "packages": {"trio": "1", "attrs": "2"}, "run": {"file": "a/x.yaml", "label": "l"}}
    other = {"seed": 2, "packages": {"trio": "1"}, "run": {"file": "x.yaml", "label": "l"}}
    assert [(f.name, f.first, f.second) for f in compare_heads(one, other)] == [
        ("seed", 1, 2),
        ("packages.attrs", "2", None),
    ]
    (found,) = compare_heads({"run": {"until": None}}, {"run": {}})
    assert found.name == "run.until"


# --- where a run is to be stopped


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("agent=a action=b", {"agent": "a", "action": "b", "kind": "delivered"}),
        ("agent=a", {"agent": "a"}),
        ("n=7", {"n": "7"}),
        ("event=e", {"event": "e", "kind": "event"}),
        ("from=user action=b", {"from": "user", "action": "b", "kind": "sent"}),
        ("kind=crashed  agent=a nth=2", {"kind": "crashed", "agent": "a", "nth": "2"}),
    ],
)
def test_where_a_run_is_to_be_stopped_is_read(text: str, wanted: dict[str, str]) -> None:
    assert read_break(text) == StopPoint(wanted=wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is given"),
        ("agent", "is not KEY=VALUE"),
        ("agent=", "is not KEY=VALUE"),
        ("actoin=x", 'no key "actoin", did you mean "action"'),
        ("kind=crash", 'no kind "crash", did you mean "crashed"'),
        ("n=x", "a whole number is expected"),
        ("nth=0 agent=a", "is counted from 1"),
        ("n=1 n=2", '"n" is given twice'),
    ],
)
def test_a_word_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_break(text)
