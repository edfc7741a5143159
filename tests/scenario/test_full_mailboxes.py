"""Circles of full mailboxes in scenario files: the same end in every world, with and without faults."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHOES = """\
import trio

from lmos_actors import Agent, MailboxFull, MailboxOptions, Property, action, prop


class Echo(Agent, mailbox=MailboxOptions(size=1)):
    other: str
    catches: bool = True
    circle: Property[tuple[str, ...]] = prop(default=())
    notes: Property[int] = prop(default=0)

    def started(self) -> None:
        self.after(1.0, self.shout)

    @action
    def note(self) -> None:
        self.notes += 1

    def shout(self) -> None:
        for _ in range(3):
            try:
                self.send(self.find(Echo, self.other), Echo.note)
            except MailboxFull as error:
                if not self.catches:
                    raise
                self.circle = error.circle
"""

STORY = """\
lmos: scenario/v1
name: echoes
world: WORLD
agents:
  left: {from: agent, use: echoes_of_mailboxes:Echo, service_time: 100ms, args: {other: right}}
  right:
    from: agent
    use: echoes_of_mailboxes:Echo
    service_time: 100ms
    args: {other: left, catches: CATCHES}
steps:
  - FIRST
  - {do: wait, for: 10s}
  - {do: read, target: right, id: circle, property: circle}
  - {do: read, target: left, id: left, property: notes}
  - {do: read, target: right, id: right, property: notes}
"""

ENDS = """\
  - do: expect
    that: output
    of: circle
    equals:
      - right (its turns) waits for a seat for 'note' with left
      - left (its turns) waits for a seat for 'note' with right
  - {do: expect, that: output, of: left, equals: 1}
  - {do: expect, that: output, of: right, equals: 3}
checks:
  - {check: never, when: {dead_letter: true}}
  - {check: restarts, of: left, equals: 0}
  - {check: restarts, of: right, equals: 0}
"""

CRASHES = """\
checks:
  - {check: restarts, of: left, equals: 0}
  - {check: restarts, of: right, equals: 1}
"""

FAULTS = {
    "none": "{do: wait, for: 1ms}",
    "pause": "{do: inject, fault: {kind: pause, target: right, duration: 3s}}",
    "slow": "{do: inject, fault: {kind: slow, target: right, factor: 2, duration: 3s}}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "echoes_of_mailboxes.py").write_text(ECHOES)
    yield tmp_path
    sys.modules.pop("echoes_of_mailboxes", None)


@pytest.mark.parametrize("fault", [*FAULTS])
@pytest.mark.parametrize("world", ["memory", "wire"])
@pytest.mark.parametrize("catches", [True, False])
def test_agents_that_hold_each_other_back(folder: Path, world: str, fault: str, catches: bool) -> None:
    """Uncaught, the error ends the agent as any other does, and the reason shows the circle."""
    file = folder / "echoes.yaml"
    story = STORY.replace("WORLD", world).replace("FIRST", FAULTS[fault])
    file.write_text(story.replace("CATCHES", str(catches).lower()) + (ENDS if catches else CRASHES))
    resolved = load_scenario(file)
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.ok, result.failures
    assert all(check.ok for check in result.judged), result.judged
    crashes = [line for line in result.log if '"kind":"crashed"' in line]
    assert [("would be a deadlock" in line) for line in crashes] == [True] * (not catches)
