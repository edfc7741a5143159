"""Recordings of agents: message logs from which replays take their answers.

`Recordings` reads the logs of one scenario file, each once. A `Recording` is one log; a `RecordedAgent` is
one agent of one of its runs, with its requests, answers and other effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._core import HIDDEN
from lmos_actors.files import FileError, Mistake, did_you_mean, is_list, is_mapping
from lmos_actors.system.model import Replay
from lmos_actors.system.values import same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lmos_actors.files import DataPath, Document

    from ..judge import LoggedRun, LogLine

LISTENING: Final = ("subscribe", "subscribe to all")
"""Verbs that are always carried out, recorded or not."""

ANSWER: Final = "answer"
"""The type of what answers on a relay, unless it is said."""

COMPARED: Final = 500
"""Most recorded requests compared with an unrecorded one."""


@attrs.define
class Exchange:
    """One recorded request and its effects. Times are seconds after its delivery.

    `ended` is None if the request was never answered. `effects` are in order: "item" and "progress" with a
    value, "event" and "changed" with name and data. `error` is an error's text in the log, `output` the
    output of a failure that callers can expect; `type` is the type of the answer on a relay.
    """

    line: int
    verb: str
    affordance: str
    input: Any
    begun: float | None = None
    ended: float | None = None
    value: Any = None
    error: str | None = None
    output: Any = None
    type: str = ANSWER
    effects: list[tuple[float, str, Any]] = attrs.Factory(list[tuple[float, str, Any]])

    @property
    def counts(self) -> bool:
        """Whether a replay must receive this request again; false for subscriptions.

        Without an answer or effect, it is false too, as the request may never have begun.
        """
        return self.verb not in LISTENING and (self.ended is not None or bool(self.effects))


@attrs.frozen
class RecordedEffect:
    """An effect that no request caused; `life` is the number of the agent's life, counted from 1.

    `kind` is `event`, `changed`, or `shown`: a property's value shown to observers as a life began. `what` is
    the name and the data; `when` is None if the effect came from the first turn of a life.
    """

    life: int
    when: float | None
    kind: str
    what: tuple[str, Any]


@attrs.frozen
class RecordedAgent:
    """One agent of a recorded run."""

    agent: str
    exchanges: tuple[Exchange, ...]
    effects: tuple[RecordedEffect, ...]


class _AgentRecorder:
    """The collector of the records of one agent."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._open: dict[int, Exchange] = {}
        self._exchanges: list[Exchange] = []
        self._effects: list[RecordedEffect] = []
        self._life = 0
        self._begins = False
        self._down = True
        self._struck = -1.0

    def record(self, line: LogLine) -> None:
        """Add one record of the log to what is known about the agent."""
        data = line.data
        kind, number, now = data.get("kind"), data.get("id"), float(data.get("t", 0.0))
        if kind == "sent" and isinstance(number, int):
            asked = data.get("input")
            given: Any = {} if asked is None else asked
            self._open[number] = Exchange(line.number, data["verb"], data["affordance"], given)
        elif kind == "fault":
            self._struck = now
        elif kind == "started":
            self._life += 1
            self._down = False
        elif kind in ("crashed", "stopped"):
            self._down = True
        elif kind == "changed" and self._begins:
            self._effects.append(RecordedEffect(self._life, now, "shown", (data["property"], data["value"])))
        elif kind in ("event", "changed"):
            name, value = (
                (data["event"], data["data"]) if kind == "event" else (data["property"], data["value"])
            )
            self._add(now, kind, (name, value))
        elif number in self._open:
            self._go_on(self._open[number], number, str(kind), now, data)
        self._begins = kind == "started" or (self._begins and kind == "changed")

    def _go_on(self, exchange: Exchange, number: int, kind: str, now: float, data: dict[str, Any]) -> None:
        if kind == "delivered":
            exchange.begun = now
            self._exchanges.append(exchange)
            return
        if exchange.begun is None:  # what never began left no trace in the agent
            return
        after = round(now - exchange.begun, 6)
        if kind in ("item", "progress"):
            exchange.effects.append((after, kind, data["value" if kind == "item" else "progress"]))
        elif kind == "cancelled":
            del self._open[number]
        elif kind == "answered":
            del self._open[number]
            error = data.get("error")
            struck = self._struck == now and str(error).startswith("AgentDied")
            if not struck:  # else a fault has ended it, and one will again
                exchange.ended = after
                exchange.value, exchange.error, exchange.output = data.get("value"), error, data.get("output")
                exchange.type = str(data.get("type", ANSWER))

    def _add(self, now: float, kind: str, what: tuple[str, Any]) -> None:
        """Attribute an effect to the latest request that is still open; without one, store it by its instant.

        An effect that comes while the agent is down belongs to the first turn of the next life.
        """
        begun = [exchange for exchange in self._open.values() if exchange.begun is not None]
        if self._down:
            self._effects.append(RecordedEffect(self._life + 1, None, kind, what))
        elif begun:
            last = max(begun, key=lambda exchange: (exchange.begun, exchange.line))
            last.effects.append((round(now - (last.begun or 0.0), 6), kind, what))
        else:
            self._effects.append(RecordedEffect(self._life, now, kind, what))

    def result(self) -> RecordedAgent:
        """Return the agent, with all that has been collected so far."""
        return RecordedAgent(self._agent, tuple(self._exchanges), tuple(self._effects))


@attrs.frozen
class Recording:
    """A log file used as a recording; `runs` has the agents of each run, by the label of the run."""

    name: str
    runs: Mapping[str, Mapping[str, RecordedAgent]]

    def agent(self, label: str, agent: str) -> RecordedAgent:
        """Return an agent of the run with the given label, or of the only run.

        Raises LookupError with the known labels or agents.
        """
        recorded_agents = self.runs.get(label)
        if recorded_agents is None and len(self.runs) == 1:
            recorded_agents = next(iter(self.runs.values()))
        if recorded_agents is None:
            there = ", ".join(list(self.runs)[:5])
            raise LookupError(f'{self.name} has no run "{label}"; it has {there}')
        named = [path for path in recorded_agents if path == agent] or [
            path for path in recorded_agents if path.rpartition("/")[2] == agent
        ]
        if len(named) != 1:
            what = f"has {len(named)} agents" if named else "has no agent"
            raise LookupError(f'{self.name} {what} "{agent}"{did_you_mean(agent, list(recorded_agents))}')
        return recorded_agents[named[0]]


def read_recording(path: Path, name: str) -> Recording:
    """Read a log file; `name` is its name in messages. Blocks on the disk.

    Raises FileError if the file is not a message log, was cut short or changed, or has two runs with the same
    label. A log written by `record` may be cut short: it holds everything recorded until then.
    """
    from ..judge import CUT_SHORT, LogFile  # few files have recordings

    runs: dict[str, dict[str, RecordedAgent]] = {}
    with LogFile(path, name) as file:
        for run in file.runs():
            label = str(run.run.get("label", ""))
            if label in runs:
                raise _wrong(name, run, f'there are two runs "{label}" in it: a recording has one of each')
            runs[label] = _recorded_agents(run)
            if run.problem is not None and not (run.problem == CUT_SHORT and "recorded" in run.run):
                raise _wrong(name, run, run.problem)
    return Recording(name, runs)


def _wrong(name: str, run: LoggedRun, message: str) -> FileError:
    return FileError([Mistake(name, run.head.number, 1, message, "unreadable")])


def _recorded_agents(run: LoggedRun) -> dict[str, RecordedAgent]:
    recorders: dict[str, _AgentRecorder] = {}
    for line in run:
        agent = line.data.get("agent")
        if line.sort == "record" and isinstance(agent, str) and agent:  # else it is of a connection
            if agent not in recorders:
                recorders[agent] = _AgentRecorder(agent)
            try:
                recorders[agent].record(line)
            except (KeyError, TypeError):
                what = "is not a record that can be played: a part of it is missing, or of another type"
                raise FileError([Mistake(run.place.rpartition(":")[0], line.number, 1, what)]) from None
    return {agent: found.result() for agent, found in recorders.items()}


# --- the recordings of a file


def replays_among(agents: Mapping[str, object]) -> dict[str, Replay]:
    """Return the agents of a file that are replays."""
    return {name: entry for name, entry in agents.items() if isinstance(entry, Replay)}


def log_path(document: Document, entry: Replay) -> Path:
    """Return the path of a replay's log; the file gives it relative to the folder of the file."""
    assert document.path is not None
    return document.path.parent / entry.log


class Recordings:
    """The logs of one file. If `recording` is true, no log is read, as all are to be recorded anew."""

    def __init__(self, document: Document, *, recording: bool) -> None:
        self._document = document
        self._recording = recording
        self._read: dict[str, Recording | FileError] = {}

    def of(
        self, replays: Mapping[str, Replay], mistakes: list[Mistake], real: Mapping[str, type]
    ) -> dict[str, Recording]:
        """Return the recording of each replay, by the replay's name, and add mistakes to `mistakes`.

        `real` has the classes that replace replays.
        """
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
    """Return the recorded agent that a replay repeats in a run; raise LookupError like `Recording.agent`."""
    return recording.agent(label, entry.agent or name)


# --- matching


def fits(recorded: Any, asked: Any, *, allow_missing: bool = False) -> bool:
    """Return whether an input matches the recorded one.

    Whatever is hidden in the log, also as a part of a text, matches anything. With `allow_missing` the input
    may lack members, because the defaults of parameters are unknown.
    """
    if isinstance(recorded, str) and HIDDEN in recorded:
        from ._differences import fits_around

        return recorded == HIDDEN or fits_around(recorded, asked)
    if is_mapping(recorded) and is_mapping(asked):
        if recorded.keys() != asked.keys() and not (allow_missing and recorded.keys() >= asked.keys()):
            return False
        return all(fits(recorded[key], asked[key]) for key in asked)
    if is_list(recorded) and is_list(asked):
        return len(recorded) == len(asked) and all(map(fits, recorded, asked))
    return same(recorded, asked)


def most_similar(exchanges: Iterator[Exchange], asked: Any) -> Exchange | None:
    """Return the exchange whose input is most similar to a given input; None if there are no exchanges.

    Only the first `COMPARED` exchanges are compared.
    """
    from ._differences import distance

    best: tuple[float, Exchange] | None = None
    for exchange, _ in zip(exchanges, range(COMPARED), strict=False):
        apart = distance(exchange.input, asked)
        if best is None or apart < best[0]:
            best = apart, exchange
    return best[1] if best is not None else None
