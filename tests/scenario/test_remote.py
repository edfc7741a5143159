"""`from: remote`: an agent of another process as the target of steps."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CAST = '''
from lmos_actors import Agent, Event, Property, Ref, action, event, prop


class Clock(Agent):
    """Somebody else's."""

    ticks: Property[int] = prop(default=0)
    ticked: Event[int] = event()

    @action
    def tick(self, by: int = 1) -> int:
        self.ticks += by
        self.ticked.emit(self.ticks)
        return self.ticks

    @action
    async def count(self, to: int):
        """Count."""
        return to


class Reader(Agent):
    """Ours: asks theirs."""

    clock: Ref[Clock]

    @action
    async def read(self) -> int:
        return await self.clock.read(Clock.ticks)
'''

THEIRS = """
import sys, trio
sys.path.insert(0, sys.argv[1])
from cast_of_remote import Clock
from lmos_actors import open_node

async def main():
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(Clock)
        print(node.urls[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)

trio.run(main)
"""

FILE = """\
lmos: scenario/v1
name: remote
world: websocket
agents:
  clock: {from: remote, url: "%s", thing: clock%s}
%s
steps:
  - {do: subscribe, target: clock, event: ticked}
  - {do: invoke, id: tick, target: clock, action: tick, input: {by: 2}}
  - {do: expect, that: output, of: tick, equals: 2}
  - {do: expect, that: event, target: user, event: ticked, equals: 2, times: 1, within: 300ms}
  - {do: write, target: clock, property: ticks, value: 5}
  - {do: read, id: ticks, target: clock, property: ticks}
  - {do: expect, that: output, of: ticks, equals: 5}
  - {do: invoke, target: clock, action: tick, input: {by: x}, error: {is: InvalidInput, path: $.by}}
  - {do: write, target: clock, property: ticks, value: 0}
%s
checks:
  - {check: latency, of: tick, max: {lt: 5s}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    root = tmp_path_factory.mktemp("remote")
    (root / "pyproject.toml").write_text("")
    cast = CAST.replace("async def count(self, to: int):", "async def count(self, to: int) -> int:")
    (root / "cast_of_remote.py").write_text(cast)
    yield root
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "cast_of_remote":
            del sys.modules[name]


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The address of a node in another process."""
    command = [sys.executable, "-c", THEIRS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as theirs:
        assert theirs.stdout is not None
        yield theirs.stdout.readline().strip()
        assert theirs.stdin is not None
        theirs.stdin.close()
        assert theirs.wait(20) == 0


def written(folder: Path, text: str) -> Path:
    file = folder / "remote.yaml"
    file.write_text(text)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("use", ["", ', use: "cast_of_remote.py:Clock"'])
@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_steps_turn_to_somebody_elses_agent(folder: Path, url: str, use: str, scheme: str) -> None:
    address = url.replace("ws://", "http://") if scheme == "http" else f"{url}/ws"
    resolved = load_scenario(written(folder, FILE % (address, use, "", "")))
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    assert result.failures == ()
    assert result.real_time


def test_agents_of_the_file_are_given_it(folder: Path, url: str) -> None:
    reader = '  reader: {from: agent, use: "cast_of_remote.py:Reader", args: {clock: $(agents.clock)}}'
    steps = (
        "  - {do: invoke, id: read, target: reader, action: read}\n"
        "  - {do: expect, that: output, of: read, equals: 0}"
    )
    text = FILE % (f"{url}/agents/clock", ', use: "cast_of_remote.py:Clock"', reader, steps)
    resolved = load_scenario(written(folder, text.replace(", thing: clock", "")))
    assert run_cell(resolved, resolved.cells[0], 1, real_limit=20).failures == ()


def test_nobody_there(folder: Path) -> None:
    resolved = load_scenario(written(folder, FILE % ("ws://127.0.0.1:9/ws", "", "", "")))
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    assert result.ended == "could not run"
    (failure,) = result.failures
    assert (failure.what, failure.place.endswith("remote.yaml:5:3")) == ("start clock", True)


GOOD = FILE % ("ws://there/ws", "", "", "")
MISTAKES = [
    ("world: websocket", "world: wire", "5:17", "in world: websocket, not in world: wire"),
    ("world: websocket", "world: memory", "5:17", "in world: websocket, not in world: memory"),
    ('url: "ws://there/ws", thing', "thing", "5:3", 'needs a "url", or a "description"'),
    ("ws://there/ws", "there/ws", "5:30", "begins with none of ws://, wss://, http://, https://"),
    ("url:", "ur:", "5:25", 'unknown key "ur", did you mean "url"?'),
    ("do: subscribe, target: clock, event: ticked", "do: stop, target: clock", "8:24",
     "remote agent"),
    ("  - {do: subscribe, target: clock, event: ticked}",
     "  - {do: inject, fault: {kind: crash, target: clock}}", "8:47", "remote agent"),
    ("  - {do: subscribe, target: clock, event: ticked}",
     "  - {do: wait, until: {agent: clock, is: running}}", "8:31", "remote agent"),
    ("{do: invoke, id: tick,", "{do: invoke, as: clock, id: tick,", "9:22", "remote agent"),
    ("{check: latency, of: tick, max: {lt: 5s}}", "{check: restarts, of: clock, equals: 0}", "19:27",
     "remote agent"),
    ("{check: latency, of: tick, max: {lt: 5s}}", "{check: always, of: clock, expr: mailbox.depth < 1}",
     "19:25", "remote agent"),
    ("\nsteps:", "tree: {root: {children: [clock]}}\nsteps:", "6:26", "remote agent"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "part"), MISTAKES)
def test_what_does_not_travel_is_a_mistake(folder: Path, old: str, new: str, place: str, part: str) -> None:
    assert old in GOOD
    with pytest.raises(FileError) as caught:
        load_scenario(written(folder, GOOD.replace(old, new, 1)))
    found = [(f"{each.line}:{each.column}", each.message) for each in caught.value.mistakes]
    assert any(part in message for _, message in found), json.dumps(found)
    assert place in [where for where, _ in found], json.dumps(found)
