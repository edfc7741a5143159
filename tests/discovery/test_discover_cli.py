"""`lmos-actors discover`: what it prints, and its exit codes; in memory, without a socket."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import About, Agent, action, open_node
from lmos_actors.cli import _discover as command, main as command_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def main(words: list[str]) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        command_line(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code


class Weather(Agent, about=About(capabilities=("weather", "forecast"))):
    """Answers questions about the weather."""

    @action
    def where(self) -> str:
        return "here"


class Painter(Agent, about=About(capabilities=("\x1b[2J".replace("\x1b", "é"),))):
    """Paints."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with two agents, there for each node that the command opens."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncGenerator[Any]:
        async with open_node(listen="ws://rome:80") as rome, open_node(**options) as node:
            await rome.start(Weather)
            await rome.start(Painter)
            yield node

    def run(fn: Any, *args: Any) -> Any:
        return trio.run(fn, *args, clock=MockClock(autojump_threshold=0))

    monkeypatch.setattr(command, "open_node", opened)
    monkeypatch.setattr(command.trio, "run", run, raising=True)


@pytest.fixture(autouse=True)
def real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's `trio` is one of its own, so that nobody else's `run` is replaced."""

    class Trio:
        run = staticmethod(trio.run)

    monkeypatch.setattr(command, "trio", Trio)


def test_lines_of_json_where_the_output_is_no_terminal(
    world: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discover", "rome", "--capability", "weather"]) == 0
    out = capsys.readouterr().out
    [found] = [json.loads(line) for line in out.splitlines()]
    assert found == {
        "name": "weather",
        "title": "Weather",
        "id": "http://rome/agents/weather",
        "url": "http://rome/agents/weather",
        "types": ["lmos:Agent"],
        "capabilities": ["weather", "forecast"],
        "properties": [],
        "actions": ["where"],
        "events": [],
    }


def test_a_table_on_a_terminal(
    world: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["discover", "http://rome"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "weather  Weather  weather, forecast  http://rome/agents/weather",
        "painter  Painter  é[2J               http://rome/agents/painter",
    ]


def test_what_others_have_written_does_not_reach_the_terminal_as_it_is() -> None:
    assert command.printable("\x1b[31mred\x07\n") == "?[31mred??"


def test_each_outcome_has_its_exit_code(world: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discover", "rome", "--title", "Tea"]) == 1
    assert capsys.readouterr() == ("", "lmos-actors: no such agent was found\n")
    assert main(["discover", "nowhere:1"]) == 3
    assert "cannot connect to http://nowhere:1" in capsys.readouterr().err
    assert main(["discover", "ws://rome"]) == 2
    assert "http or https URL" in capsys.readouterr().err
    assert main(["discover", "rome", "--colour", "red"]) == 2
