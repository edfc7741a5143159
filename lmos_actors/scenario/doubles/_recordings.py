"""Recordings for the replays of a file; each log is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.files import FileError

from ..model import Replay
from ._recorded_agents import read_recording
from ._replays import recorded_class

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmos_actors.actors import Agent
    from lmos_actors.files import DataPath, Document, Mistake

    from ._recorded_agents import RecordedAgent, Recording


def replays_among(agents: Mapping[str, object]) -> dict[str, Replay]:
    """Return the replays among the agents of a file."""
    return {name: entry for name, entry in agents.items() if isinstance(entry, Replay)}


def log_path(document: Document, entry: Replay) -> Path:
    """Return the path of a replay's log, which its file gives from the folder that it is in."""
    assert document.path is not None
    return document.path.parent / entry.log


class Recordings:
    """Reads the logs of one file. `recording`: they are to be made anew, so none is read."""

    def __init__(self, document: Document, *, recording: bool) -> None:
        self._document = document
        self._recording = recording
        self._read: dict[str, Recording | FileError] = {}

    def of(
        self, replays: Mapping[str, Replay], mistakes: list[Mistake], real: Mapping[str, type]
    ) -> dict[str, Recording]:
        """Return the recordings by the names of replays; `mistakes` grows. `real` are what they stand for."""
        found: dict[str, Recording] = {}
        for name, entry in replays.items():
            path: DataPath = ("agents", name)
            if self._recording:
                if entry.use is None and name not in real:
                    what = f'"{name}" cannot be recorded anew: it has no "use"'
                    mistakes.append(self._document.mistake(path, what, key=True))
                continue
            read = self._of(entry)
            if isinstance(read, FileError):
                first = read.mistakes[0]
                hint = (
                    ", run --update-recordings writes it"
                    if (entry.use or name in real) and not first.line
                    else ""
                )
                what = f"{first.place}: {first.message}{hint}"
                mistakes.append(self._document.mistake((*path, "log"), what, "name"))
            else:
                found[name] = read
        return found

    def _of(self, entry: Replay) -> Recording | FileError:
        if entry.log not in self._read:
            try:
                self._read[entry.log] = read_recording(log_path(self._document, entry), entry.log)
            except FileError as error:
                self._read[entry.log] = error
        return self._read[entry.log]


def recorded_agent_of(name: str, entry: Replay, recording: Recording, label: str) -> RecordedAgent:
    """Return the recorded agent of a replay for a run. Raises LookupError as `Recording.agent`."""
    return recording.agent(label, entry.agent or name)


def contract_of(name: str, entry: Replay, recording: Recording) -> type[Agent]:
    """Make the class of a replay without `use`: with what is named in any of the recorded runs.

    Raises TypeError where two of them have one name; LookupError when the agent is in none.
    """
    recorded_agents: list[RecordedAgent] = []
    missing: LookupError | None = None
    for label in recording.runs:
        try:
            recorded_agents.append(recorded_agent_of(name, entry, recording, label))
        except LookupError as error:
            missing = error
    if missing is not None and not recorded_agents:
        raise missing
    return recorded_class(name, recorded_agents)
