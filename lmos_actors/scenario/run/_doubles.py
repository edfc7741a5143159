"""Doubles of one run: the classes of its mocks and replays, and their failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.system.model import Mock, Replay, is_real

from ..doubles import is_live, is_model, log_path, recorded_agent_of, replays_among

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmos_actors.actors import Agent
    from lmos_actors.files import Document
    from lmos_actors.reports import Failure

    from ..doubles import MockScript, ReplayScript
    from ..format import Cell, Resolved


class Doubles:
    """The classes of a run's mocks and replays, and the failures of these.

    `paths` has the tree paths of agents, by name. A replay that is being recorded anew is the real agent. The
    code for a double is imported only when one is made, as few files have doubles of all kinds.
    """

    def __init__(self, cell: Cell, document: Document, paths: Mapping[str, str]) -> None:
        self._acting: list[MockScript | ReplayScript] = []
        self._missed: set[int] = set()
        self.classes: dict[str, type[Agent]] = {}
        """The class that replaces each agent in this run, by name."""
        for name, entry in cell.scenario.agents.items():
            cls = cell.system.classes.get(name)
            if isinstance(entry, Mock) and cls is not None:
                from ..doubles import MockScript

                mock = MockScript(name, entry, document.place, paths, self._missed)
                self._acting.append(mock)
                self.classes[name] = _mock_class(name, cls, mock)
            elif isinstance(entry, Replay) and cls is not None and name in cell.recordings:
                of_class = entry.use is not None or (cell.system.used is not None and name in paths)
                self._add_replay(name, entry, cls, cell, document, paths, of_class=of_class)

    def _add_replay(
        self,
        name: str,
        entry: Replay,
        cls: type[Agent],
        cell: Cell,
        document: Document,
        paths: Mapping[str, str],
        *,
        of_class: bool,
    ) -> None:
        from ..doubles import ReplayScript

        recording = cell.recordings[name]
        recorded = recorded_agent_of(name, entry, recording, cell.label)
        file = document.name if of_class else None
        replay = ReplayScript(name, entry, recording, recorded, document.place, paths, file)
        self._acting.append(replay)
        self.classes[name] = _replay_class(name, cls, replay, entry.speaks)

    def failures(self, *, complete: bool) -> list[Failure]:
        """Return the failures; unused rules and requests count only if the story reached its end."""
        return [failure for one in self._acting for failure in one.failures(complete=complete)]


def _mock_class(name: str, cls: type[Agent], script: MockScript) -> type[Agent]:
    if script.entry.speaks == "lmos":
        from ..doubles import mock_class

        return mock_class(cls, script)
    if script.entry.speaks == "relay":
        from ..doubles._strangers import stranger_class

        return stranger_class(cls, script)
    if script.entry.speaks == "model":
        from ..doubles._model_mocks import model_class

        return model_class(cls, script)
    from ..doubles._chat_mocks import ChatMock, chat_class

    return chat_class(ChatMock, name, script)


def _replay_class(name: str, cls: type[Agent], script: ReplayScript, speaks: str) -> type[Agent]:
    from ..doubles import replay_class

    if speaks == "model" or is_model(cls):
        from ..doubles._model_mocks import brief_input

        script.brief = brief_input
        return replay_class(cls, script)
    if speaks == "lmos":
        return replay_class(cls, script)
    if speaks == "relay":
        from ..doubles._strangers import stranger_replay_class

        return stranger_replay_class(cls, script)
    from ..doubles._chat_mocks import ChatReplay, chat_class

    return chat_class(ChatReplay, name, script)


def live_replays(cell: Cell) -> tuple[str, ...]:
    """Return the names of the replays that replace live models, if the cell's time is virtual."""
    if is_real(cell.scenario.world):
        return ()
    classes = cell.system.classes
    return tuple(
        name for name in replays_among(cell.scenario.agents) if name in classes and is_live(classes[name])
    )


def recordings_of(resolved: Resolved, cell: Cell) -> tuple[Path, ...]:
    """Return the paths of the logs that the replays of a cell use."""
    replays = replays_among(cell.scenario.agents).values()
    return tuple(dict.fromkeys(log_path(resolved.document, entry) for entry in replays))
