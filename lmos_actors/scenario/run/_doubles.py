"""The agents of one run that are not themselves: mocks by their scripts, replays by their tapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doubles import Player, Script, log_path, mock_class, replay_class, replays_among, tape_of
from ..model import Mock, Replay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmos_actors.actors import Agent
    from lmos_actors.files import Document
    from lmos_actors.reports import Failure

    from ..format import Cell, Resolved


class Doubles:
    """Makes the classes of a run's mocks and replays, and knows what of them is left to be told.

    `paths` are those of agents in the tree, by name. A replay that is being recorded anew is itself.
    """

    def __init__(self, cell: Cell, document: Document, paths: Mapping[str, str]) -> None:
        self._acting: list[Script | Player] = []
        self.classes: dict[str, type[Agent]] = {}
        """The class that stands for an agent in this run, by name."""
        for name, entry in cell.scenario.agents.items():
            cls = cell.classes.get(name)
            if isinstance(entry, Mock) and cls is not None:
                script = Script(name, entry, document.place, paths)
                self._acting.append(script)
                self.classes[name] = mock_class(cls, script)
            elif isinstance(entry, Replay) and cls is not None and name in cell.recordings:
                recording = cell.recordings[name]
                tape = tape_of(name, entry, recording, cell.label)
                player = Player(name, entry, recording, tape, document.place)
                self._acting.append(player)
                self.classes[name] = replay_class(cls, player)

    def open_matters(self, *, told: bool) -> list[Failure]:
        """Return what the run is to fail with; what was never used only where the story was `told` whole."""
        return [failure for one in self._acting for failure in one.open_matters(told=told)]


def recordings_of(resolved: Resolved, cell: Cell) -> tuple[Path, ...]:
    """Return the paths of the logs that the replays of a cell are made of."""
    replays = replays_among(cell.scenario.agents).values()
    return tuple(dict.fromkeys(log_path(resolved.document, entry) for entry in replays))
