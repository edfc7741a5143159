"""Steps with input streams: their sources are checked, and have the same verdict in every world."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

TROUPE = """\
from collections.abc import AsyncIterator

import trio
from msgspec import Struct

from lmos_actors import Agent, action
from lmos_actors.errors import SourceFailed


class Row(Struct):
    number: int


class Desk(Agent):
    broken: str = ""

    @action
    async def total(self, rows: AsyncIterator[Row], start: int = 0) -> int:
        return start + sum([row.number async for row in rows])

    @action
    async def first(self, rows: AsyncIterator[Row]) -> Row:
        async for row in rows:
            return row
        return Row(0)

    @action
    async def echo(self, said: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for item in said:
            yield item

    @action
    async def slowly(self, rows: AsyncIterator[Row]) -> AsyncIterator[int]:
        async for row in rows:
            await trio.sleep(1)
            yield row.number

    @action
    async def why(self, rows: AsyncIterator[Row]) -> str:
        try:
            return str([row.number async for row in rows])
        except SourceFailed as error:
            return error.reason

    @action
    def plain(self, number: int) -> int:
        return number
"""

HEAD = """\
lmos: scenario/v1
name: streams
agents:
  desk: {from: agent, use: troupe_of_streams:Desk}
steps:
"""

STORY = """\
  - {do: invoke, target: desk, id: plain, action: plain, input: {number: 7}, save: {seven: $.output}}
  - {do: invoke, target: desk, id: sum, action: total, input: {start: 100},
     streams: {rows: {items: [{number: 1}, {number: $(saved.seven)}], times: 20}}}
  - {do: expect, that: output, of: sum, equals: 260}
  - {do: stream, target: desk, id: echo, action: echo,
     streams: {said: {items: [aGVsbG8=, ""], every: 20ms}}}
  - {do: expect, that: items, of: echo, sequence: [aGVsbG8=, ""]}
  - {do: stream, target: desk, id: slow, action: slowly,
     streams: {rows: {items: [{number: 1}, {number: 2}, {number: 3}], every: 100ms}}}
  - {do: expect, that: items, of: slow, sequence: [1, 2, 3]}
  - {do: invoke, target: desk, id: first, action: first,
     streams: {rows: {items: [{number: 4}], times: 500, then: wait}}}
  - {do: expect, that: output, of: first, equals: {number: 4}}
  - {do: invoke, target: desk, action: why, error: {is: SourceFailed, contains: its source fails},
     streams: {rows: {items: [{number: 1}], then: fail}}}
  - {do: invoke, target: desk, action: total, error: {is: InvalidInput, path: "$.rows[2].number"},
     streams: {rows: {items: [{number: 1}, {number: 2}, {number: x}]}}}
  - {do: invoke, target: desk, action: total, error: {is: InvalidInput, path: $.rows}}
  - {do: invoke, target: desk, id: none, action: total, streams: {rows: {}}}
  - {do: expect, that: output, of: none, equals: 0}
checks:
  - {check: restarts, of: desk, equals: 0}
"""

MISTAKES = """\
  - do: invoke
    target: desk
    action: total
    streams:
      row: {items: [{number: 1}]}
      rows:
        items: [{number: 1}, {number: x}, {numbers: 2}]
  - do: invoke
    target: desk
    action: total
  - do: stream
    target: desk
    action: echo
    streams: {said: {items: [no base64]}}
  - {do: tell, target: desk, action: total}
  - {do: invoke, target: desk, action: plain, input: {number: 1}, streams: {rows: {items: [1]}}}
  - {do: invoke, target: desk, action: total, streams: {rows: {times: 3}}}
  - {do: invoke, target: desk, action: total, streams: {rows: {then: stop}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "troupe_of_streams.py").write_text(TROUPE)
    yield tmp_path
    sys.modules.pop("troupe_of_streams", None)


def run(folder: Path, steps: str, world: str = "memory") -> RunResult:
    file = folder / "story.yaml"
    file.write_text(HEAD + steps)
    resolved = load_scenario(file, settings={"world": world})
    return run_cell(resolved, resolved.cells[0], 1, speed=100.0 if world == "websocket" else 1.0)


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
def test_items_are_streamed_into_an_action_in_every_world(folder: Path, world: str) -> None:
    result = run(folder, STORY, world)
    assert result.ok, result.failures


def test_items_come_at_their_instants_or_as_soon_as_there_is_room(folder: Path) -> None:
    steps = """\
  - {do: stream, target: desk, id: paced, action: echo,
     streams: {said: {items: [AAA=], times: 5, every: 250ms}}}
  - {do: stream, target: desk, id: held, action: slowly,
     streams: {rows: {items: [{number: 1}], times: 20}}}
checks:
  - {check: latency, of: paced, max: {le: 1s}}
  - {check: latency, of: held, max: {le: 20s}}
"""
    assert run(folder, steps).ok
    late = run(folder, steps.replace("le: 1s", "lt: 1s").replace("le: 20s", "lt: 20s"))
    assert [check.ok for check in late.judged] == [False, False]


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_source_that_gives_nothing_fails_the_step_at_its_bound(folder: Path, world: str) -> None:
    steps = "  - {do: invoke, target: desk, action: total, within: 2s, streams: {rows: {then: wait}}}\n"
    (failure,) = run(folder, steps, world).failures
    assert (failure.place.rpartition("/")[2], failure.saw) == ("story.yaml:6:5", "none by then")


MOCKED = """\
lmos: scenario/v1
name: mocked
agents:
  desk:
    from: mock
    use: troupe_of_streams:Desk
    rules: [{when: {action: total, equals: {start: 1}}, output: 7}]
steps:
  - {do: invoke, target: desk, id: sum, action: total, input: {start: 1},
     streams: {rows: {items: [{number: 1}], times: 100}}}
  - {do: expect, that: output, of: sum, equals: 7}
"""


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_mock_answers_without_the_items(folder: Path, world: str) -> None:
    file = folder / "mocked.yaml"
    file.write_text(MOCKED)
    resolved = load_scenario(file, settings={"world": world})
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.ok, result.failures


def test_mistakes_stand_where_they_are(folder: Path) -> None:
    file = folder / "wrong.yaml"
    file.write_text(HEAD + MISTAKES)
    with pytest.raises(FileError) as caught:
        load_scenario(file)
    assert [(each.line, each.column, each.message) for each in caught.value.mistakes] == [
        (10, 7, 'Desk.total takes no input stream "row", did you mean "rows"? (known: rows)'),
        (12, 39, "Expected `int`, got `str`"),
        (12, 44, 'unknown key "numbers", did you mean "number"? (known: number)'),
        (13, 5, "Desk.total needs rows in streams"),
        (19, 30, "Invalid base64 encoded string"),
        (20, 38, "Desk.total takes an input stream, which only a step do: invoke or do: stream has"),
        (21, 77, 'Desk.plain takes no input stream "rows"'),
        (22, 64, '"times" is of the items, and there are none'),
        (23, 70, 'unknown word "stop" (known: end, fail, wait)'),
    ]
