"""Replay of a recorded run: it is compared with its log, or stopped at a point to show its state."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import did_you_mean, mapped
from lmos_actors.reports import as_text, message_text, read_record
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.format import load_scenario, with_end_at
from lmos_actors.scenario.judge import CUT_SHORT, LogFile, compare_heads, compare_records, lines_of
from lmos_actors.scenario.run import StopInstrument, run_cell
from lmos_actors.simulation import surroundings
from lmos_actors.system.model import is_real

from .._exit_codes import COULD_NOT_RUN, NOT_DETERMINISTIC, TIME_LIMIT, USAGE
from .._importing import importing
from .._signals import signals
from ._diff import line_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario.format import Cell, Resolved
    from lmos_actors.scenario.judge import Divergence, LogLine
    from lmos_actors.scenario.run import AgentSnapshot, Snapshot

    from ..options._replay import ReplayOptions

MOST_SHOWN: Final = 50
"""Maximum agents that are printed."""


@attrs.frozen(kw_only=True)
class Replayed:
    """The outcome of a replay. `changed` lists what has changed in its surroundings since the recording."""

    log: str
    label: str
    changed: tuple[str, ...]
    problem: str | None
    cut: str | None
    result: RunResult
    records: Divergence
    snapshot: Snapshot | None

    @property
    def equal(self) -> bool:
        """Whether the records are equal, as far as both logs go."""
        cut = self.problem == CUT_SHORT and not self.records.first
        return self.records.equal or cut


def replay_log(log: str, options: ReplayOptions) -> int:
    """Run a recorded run again, show the outcome, return the exit code. Raises FileError, ConfigError."""
    with signals.in_order():
        return _replay_log(log, options)


def _replay_log(log: str, options: ReplayOptions) -> int:
    head = _head(log, options.run)
    recorded = mapped(head.get("run"))
    if not recorded:
        raise ConfigError(
            "says nothing of how to repeat its run: lmos-actors run --log writes such logs", log
        )
    if "recorded" in recorded or "watched" in recorded:
        of = "a recording of a connection" if "recorded" in recorded else "what was seen of a node"
        raise ConfigError(
            f"is {of}, which does not run again: --as-scenario FILE makes a scenario of it, and "
            "from: replay plays it",
            log,
        )
    resolved = _resolved(log, recorded, options)
    if isinstance(resolved, int):
        return resolved
    cell = _cell(resolved, recorded, log)
    if is_real(cell.scenario.world):
        world = cell.scenario.world
        raise ConfigError(f"its run was in real time (world: {world}), which does not come again", log)
    point = options.point
    stop = None if point is None else StopInstrument(point)
    result = run_cell(
        resolved,
        cell,
        int(recorded.get("trial", 1)),
        real_limit=options.time_limit,
        on_stuck=_last_words,
        stop=stop,
    )
    replayed = _held(log, options, head, result, stop)
    if options.json:
        print(dumps(_as_data(replayed, options), ensure_ascii=False, indent=2))
    else:
        _show(replayed, options)
    return _code(replayed, options)


def _last_words(why: str, where: str) -> None:
    print(f"{why}, and the run cannot be ended: {where}", file=sys.stderr, flush=True)


def _code(replayed: Replayed, options: ReplayOptions) -> int:
    if replayed.result.ended == "could not run":
        return COULD_NOT_RUN
    if replayed.result.ended == "time limit" and replayed.snapshot is None and not replayed.equal:
        return TIME_LIMIT
    if not replayed.equal:
        return NOT_DETERMINISTIC
    if options.point is not None:
        return USAGE if replayed.snapshot is None else 0
    return USAGE if replayed.problem is not None else 0  # equal, but the log is incomplete


# --- what was recorded


def _head(log: str, number: int | None) -> dict[str, Any]:
    """Return the head of the requested run in a log. Raises ConfigError if the log has no such run."""
    heads: list[dict[str, Any]] = []
    with LogFile(log) as file:
        for run in file.runs():
            heads.append(run.head.data)
            if number is not None and len(heads) == number:
                return run.head.data
        cut = file.cut
    if not heads:
        raise ConfigError(f"holds no run: {cut}", log)
    if number is not None:
        raise ConfigError(f"there are {len(heads)} runs in {log}, none is number {number}", "--run")
    if len(heads) > 1:
        labels = [f"--run {n} is {mapped(head.get('run')).get('label')}" for n, head in enumerate(heads, 1)]
        more = f", and {len(labels) - 5} more" if len(labels) > 5 else ""
        raise ConfigError(f"holds {len(heads)} runs: {', '.join(labels[:5])}{more}", log)
    return heads[0]


def _resolved(log: str, recorded: dict[str, Any], options: ReplayOptions) -> Resolved | int:
    """Read the scenario file with the settings and the seed of the recorded run."""
    named = str(recorded.get("file", ""))
    places = [named, str(Path(log).parent / named)]
    given = None if options.file is None else str(options.file)
    file = given or next((place for place in places if Path(place).is_file()), None)
    if file is None:
        raise ConfigError(f'its scenario file "{named}" is not here: say --file PATH', log)
    settings = {str(key): str(value) for key, value in mapped(recorded.get("settings")).items()}
    load = partial(load_scenario, file, settings=settings, seeds=[int(recorded["seed"])])
    loaded = importing(file, load, options.time_limit or REAL_LIMIT)
    if isinstance(loaded, int):
        return loaded
    return with_end_at(loaded, recorded["until"]) if "until" in recorded else loaded


def _cell(resolved: Resolved, recorded: dict[str, Any], log: str) -> Cell:
    for cell in resolved.cells:
        if cell.label == recorded.get("label"):
            return cell
    raise ConfigError(f'{resolved.document.name} has no run "{recorded.get("label")}" any more', log)


# --- held against each other


def _held(
    log: str, options: ReplayOptions, head: dict[str, Any], result: RunResult, stop: StopInstrument | None
) -> Replayed:
    again = list(lines_of(result.log))
    snapshot = stop.snapshot if stop is not None else None
    most = snapshot.n if snapshot is not None else len(again)
    with LogFile(log) as file:
        run = next(islice(file.runs(), (options.run or 1) - 1, None))
        records = compare_records(_up_to(run, most), _up_to(again, most))
        run.skip()
        cut = file.cut
    return Replayed(
        log=log,
        label=str(mapped(head.get("run")).get("label")),
        changed=tuple(_changed(head, again[0].data if again else {})),
        problem=run.problem,
        cut=cut,
        result=result,
        records=records,
        snapshot=snapshot,
    )


def _up_to(lines: Iterable[LogLine], most: int) -> Iterator[LogLine]:
    return (line for line in lines if line.data.get("n", 0) <= most)


def _changed(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a text for each difference between the recorded and the present surroundings of a run."""
    now = now or dict(surroundings())
    for found in compare_heads(recorded, now):
        what = found.name.removeprefix("run.")
        if what == "sha256":
            yield "the scenario file has changed"
        elif what.startswith("sources."):
            yield f"{what.removeprefix('sources.')} has changed"
        else:
            yield f"{what} was {as_text(found.first)}, is {as_text(found.second)}"


# --- for machines


def _as_data(replayed: Replayed, options: ReplayOptions) -> dict[str, Any]:
    records, result = replayed.records, replayed.result
    return {
        "log": replayed.log,
        "run": replayed.label,
        "equal": replayed.equal,
        "changed": list(replayed.changed),
        "problem": replayed.problem,
        "cut": replayed.cut,
        "common": records.common,
        "difference": None
        if replayed.equal
        else {
            "recorded": [line.data for line in records.first],
            "again": [line.data for line in records.second],
            "fields": [attrs.asdict(found) for found in records.fields],
        },
        "ended": None if replayed.snapshot is not None else result.ended,
        "snapshot": _snapshot_data(replayed.snapshot, options.agent),
        "exit_code": _code(replayed, options),
    }


def _snapshot_data(snapshot: Snapshot | None, agent: str | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    return {
        "at": snapshot.at,
        "n": snapshot.n,
        "tree": list(snapshot.tree),
        "agents": [attrs.asdict(standing) for standing in _wanted(snapshot, agent)],
        "recent": list(snapshot.recent),
    }


# --- for people


def _show(replayed: Replayed, options: ReplayOptions) -> None:
    records, snapshot, result = replayed.records, replayed.snapshot, replayed.result
    for what in replayed.changed:
        print(f"note: {what}")
    if replayed.problem is not None:
        print(f"note: {replayed.log}: {replayed.problem}")
    if replayed.cut is not None:
        print(f"note: {replayed.log}: {replayed.cut}")
    if not replayed.equal:
        print(f"{replayed.label}: another run: the first {records.common} records are equal, then")
        for mark, lines in (("recorded", records.first[:1]), ("now     ", records.second[:1])):
            print(f"  {mark} {line_text(lines[0]) if lines else '(the log has ended)'}")
    if snapshot is not None:
        _show_snapshot(snapshot, replayed.label, options.agent)
    elif options.point is not None:
        print(f"{replayed.label}: the run never came there; it ended at {result.virtual:g} s: {result.ended}")
    elif replayed.equal:
        far = "equal" if replayed.problem is None else "equal as far as the log goes"
        first = f": {result.failures[0].what}" if result.failures else ""
        print(f"{replayed.label}: {far}, {records.common} records; the run {result.ended}{first}")


def _show_snapshot(snapshot: Snapshot, label: str, agent: str | None) -> None:
    print(f"{label}: at {snapshot.at:.6f} s, after record {snapshot.n}")
    for row in snapshot.tree:
        print(f"  {row}")
    wanted = _wanted(snapshot, agent)
    for standing in wanted[:MOST_SHOWN]:
        _show_agent(standing)
    if len(wanted) > MOST_SHOWN:
        print(f"... {len(wanted) - MOST_SHOWN} more agents: --agent NAME shows one, --json all")
    print("last records")
    for line in snapshot.recent:
        record = read_record(line)
        if record is not None:
            print(f"  {record.number:>5}  {message_text(record)}")


def _wanted(snapshot: Snapshot, agent: str | None) -> list[AgentSnapshot]:
    """Return the agents with a name, path, or place in the tree. Raises ConfigError if there is none."""
    found = [
        standing
        for standing in snapshot.agents
        if agent is None
        or agent in (standing.path, standing.path.rpartition("/")[2])
        or standing.path.startswith(f"{agent}/")
    ]
    if agent is not None and not found:
        known = [standing.path for standing in snapshot.agents]
        raise ConfigError(f'no agent "{agent}"{did_you_mean(agent, known)}', "--agent")
    return found


def _show_agent(standing: AgentSnapshot) -> None:
    name = f" ({standing.class_name})" if standing.class_name else ""
    print(
        f"{standing.path}{name} {standing.status} #{standing.incarnation}, "
        f"mailbox {standing.waiting}/{standing.size}"
    )
    for field, value in (standing.state or {}).items():
        print(f"  {field}: {as_text(value)}")
    for word, messages in (("runs", standing.running), ("waits", standing.messages)):
        for message in messages:
            what = f"{message['verb']} {message['affordance']} {as_text(message['input'])}"
            print(f"  {word}: {what} from {message['from']}")
