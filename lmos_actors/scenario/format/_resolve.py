"""Resolution of a scenario file into cells that can be run: decoded, validated, with imported classes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import Document, FileError, Kind, Mistake, Note, decode, mapped, parse, read

from ..doubles import (
    Recordings,
    contract_of,
    mock_contract,
    recorded_agent_of,
    replays_among,
    stranger_contract,
    untyped_class,
)
from ..model import (
    DIRECTORY,
    LABEL,
    AnyFile,
    Bridge,
    CellData,
    Cells,
    Directory,
    Mock,
    Replay,
    Scenario,
    SeedRange,
    Simulation,
)
from ._cell_names import CellNames
from ._hub_names import all_steps
from ._remote_access import RemoteAccess, hide_secrets
from ._system import System
from ._targets import import_target, project_root
from ._used_tree import use_tree
from .validators._cell_check import check_cell, has_required_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lmos_actors.actors import Agent
    from lmos_actors.files import DataPath

    from ..doubles import RecordedAgent, Recording
    from ._targets import Accepts
    from ._used_tree import UsedTree


@attrs.frozen
class Cell:
    """One combination of the matrix with one seed: what is run `scenario.trials.count` times.

    `values` are those of the matrix, `recordings` those of replays, but for those that are to be recorded
    anew.
    """

    scenario: Scenario | Simulation
    seed: int
    values: dict[str, Any]
    system: System
    recordings: Mapping[str, Recording] = attrs.Factory(dict[str, "Recording"])

    @property
    def label(self) -> str:
        """Name the cell for people: `city=Berlin world=memory seed=7`. A mapping is shown by its name."""
        shown = {key: mapped(value).get(LABEL, value) for key, value in self.values.items()}
        return " ".join([*(f"{key}={value}" for key, value in shown.items()), f"seed={self.seed}"])

    @property
    def directory(self) -> Directory | None:
        """The directory of the network, None where there is none."""
        return directory_of(self.scenario)


def directory_of(scenario: Scenario | Simulation) -> Directory | None:
    """Return the directory of the network of a file, None where there is none."""
    return None if scenario.network is None else scenario.network.directory


@attrs.frozen
class Resolved:
    """A scenario file that is right. `root` is the project root; `notes` are warnings."""

    document: Document
    root: Path
    cells: tuple[Cell, ...]
    notes: tuple[Note, ...]
    settings: Mapping[str, str] = attrs.Factory(dict[str, str])
    """The settings it was read with."""
    measured: tuple[Path, ...] = ()
    """The files that have values of its distributions."""
    access: RemoteAccess = attrs.Factory(RemoteAccess)
    """The access to remote agents whose entries say nothing of it."""

    @property
    def name(self) -> str:
        """The scenario's name, that of the first cell if it differs."""
        return self.cells[0].scenario.name


def resolve(
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
    classes: bool = True,
    accepts: Accepts | None = None,
    recording: bool = False,
    fitted: bool = False,
    text: str | None = None,
) -> Resolved:
    """Read a scenario file, check it, import its agents' classes, and return its cells in order.

    `settings` set variables, matrix keys or `world` to text from the command line; `seeds` replace the
    file's; without `classes` nothing is imported; `accepts` returns why a class cannot be an agent. With
    `recording` replays are the real agents, to be recorded anew; `fitted` holds the file against the classes.
    `text` is JSON that is read in place of what the file has.
    Blocks on the disk and runs the code of the modules named. Raises FileError with every mistake found;
    ConfigError for a setting that the file does not know.
    """
    document = read(path) if text is None else _in_place_of(path, text)
    _check_format(document)
    cells = Cells(document, settings or {})
    mistakes = [*document.mistakes, *cells.mistakes]
    found = cells.all()
    mistakes += cells.mistakes
    recordings = Recordings(document, recording=recording)
    targets = Targets(document, project_root(cast("Path", document.path)), accepts, recordings)
    given = targets if classes else None
    notes: dict[Note, None] = {}
    decoded = [_scenario(document, data, mistakes, given, notes, fitted=fitted) for data in found]
    if mistakes:
        raise FileError(hide_secrets(document, mistakes))
    runs = _with_seeds(found, decoded, seeds, recordings)
    mistakes += _missing_recordings(document, runs)
    if mistakes:
        raise FileError(mistakes)
    found_notes, measured = _notes(document, cells, notes), cells.measured_files
    return Resolved(document, targets.root, runs, found_notes, dict(settings or {}), measured)


def _in_place_of(path: str | os.PathLike[str], text: str) -> Document:
    return parse(text, name=os.fspath(path), format="json", path=Path(path))


def _check_format(document: Document) -> None:
    """Refuse what is not a scenario file before looking at the rest of it."""
    kind = mapped(document.data).get("lmos")
    if kind == DEPLOYMENT:
        why = f'"{DEPLOYMENT}" has no steps: "up" runs it, and "validate" checks it'
        raise FileError([document.mistake(("lmos",), why)])
    if kind not in ("scenario/v1", "simulation/v1"):
        raise FileError(decode(document, AnyFile)[1])


DEPLOYMENT: Final = "deployment/v1"


def _scenario(
    document: Document,
    cell: CellData,
    mistakes: list[Mistake],
    targets: Targets | None,
    notes: dict[Note, None],
    *,
    fitted: bool,
) -> _Decoded:
    made: dict[DataPath, Any] = {}
    scenario, wrong = decode(document, AnyFile, cell.data, made=made)
    mistakes += wrong
    if not has_required_parts(cell.data):
        return _Decoded(None)
    names = CellNames(document, cell, made)
    use = mapped(cell.data.get("tree")).get("use")
    if isinstance(use, str):
        names.tree = targets.tree(use, mistakes) if targets else None
        if names.tree is None:  # without the tree the valid names are unknown
            return _Decoded(None)
    names.check()
    names.classes = targets.classes(names, mistakes) if targets else {}
    names.fitted = fitted
    check_cell(names, cast("Path", document.path).parent, whole=scenario is not None)
    mistakes += names.mistakes
    notes |= dict.fromkeys(names.notes)
    return _Decoded(scenario, names.classes, names.tree)


@attrs.frozen
class _Decoded:
    """One cell without its seeds; without a scenario where the file is wrong."""

    scenario: Scenario | Simulation | None
    classes: dict[str, type] = attrs.Factory(dict[str, type])
    used: UsedTree | None = None

    @property
    def system(self) -> System:
        """The agents and the tree of the scenario, which is there."""
        scenario = self.scenario
        assert scenario is not None
        beside = {} if directory_of(scenario) is None else {DIRECTORY: DIRECTORY}
        return System(scenario.agents, scenario.tree, self.classes, self.used, beside)


class Targets:
    """Imports each target once, whatever happens."""

    def __init__(
        self, document: Document, root: Path, accepts: Accepts | None, recordings: Recordings
    ) -> None:
        self.document = document
        self.root = root
        self.accepts = accepts
        self.recordings = recordings
        self.found: dict[str, type | ConfigError] = {}
        self.trees: dict[str, UsedTree | ConfigError] = {}

    def tree(self, target: str, mistakes: list[Mistake]) -> UsedTree | None:
        """Import the tree that a file uses; None where that fails, which is a mistake."""
        if target not in self.trees:
            try:
                self.trees[target] = use_tree(target, self.root)
            except ConfigError as error:
                self.trees[target] = error
        found = self.trees[target]
        if isinstance(found, ConfigError):
            self._wrong(("tree", "use"), found, mistakes)
            return None
        return found

    def _wrong(self, path: DataPath, error: ConfigError, mistakes: list[Mistake]) -> None:
        # what raised while it was imported could not run; anything else is a wrong word in the file
        kind: Kind = "import" if error.__cause__ is not None else "name"
        mistakes.append(self.document.mistake(path, error.message, kind))

    def classes(
        self, names: CellNames, mistakes: list[Mistake], only: Collection[str] | None = None
    ) -> dict[str, type]:
        """Return the classes of agents, or only of some, by their names; what cannot be had is a mistake."""
        classes: dict[str, type] = {}
        if names.tree is not None:
            made = {name: names.tree.class_of(name) for name in names.tree.agents}
            classes |= {name: cls for name, cls in made.items() if cls is not None}
        for name, path, use in names.uses():
            if only is not None and name not in only:
                continue
            found = self._imported(use)
            if isinstance(found, ConfigError):
                self._wrong((*path, "use"), found, mistakes)
            else:
                classes[name] = found
        self._without_class(names, classes, mistakes)
        return classes

    def _without_class(self, names: CellNames, classes: dict[str, type], mistakes: list[Mistake]) -> None:
        """Add the classes of mocks, replays and remote agents that name none, and are none's of the tree."""
        for name, entry in names.agents.items():
            if isinstance(entry, Mock) and entry.use is None and name not in classes:
                self._made(name, partial(_mock_contract, name, entry), classes, mistakes)
            elif isinstance(entry, Bridge):
                classes[name] = _bridge_class(entry)
            elif names.is_hub(name):
                from lmos_actors.facades.relay import RelayHub

                classes[name] = RelayHub
            elif names.is_directory(name):
                from lmos_actors.discovery import ThingDirectory

                classes[name] = ThingDirectory
        for name, remote in names.remotes.items():
            if remote.use is None:
                self._made(name, partial(_asked_for, name, names.cell.data), classes, mistakes)
        replays = replays_among(names.agents)
        for name, recording in self.recordings.of(replays, mistakes, classes).items():
            if replays[name].use is None and name not in classes:
                made = partial(_replay_contract, name, replays[name], recording)
                self._made(name, made, classes, mistakes)

    def _made(
        self, name: str, make: Callable[[], type], classes: dict[str, type], mistakes: list[Mistake]
    ) -> None:
        try:
            classes[name] = make()
        except (TypeError, ValueError, LookupError) as error:
            mistakes.append(self.document.mistake(("agents", name), str(error.args[0]), key=True))

    def _imported(self, target: str) -> type | ConfigError:
        if target not in self.found:
            try:
                self.found[target] = import_target(target, self.root, self.accepts)
            except ConfigError as error:
                self.found[target] = error
        return self.found[target]


def _mock_contract(name: str, entry: Mock) -> type:
    if entry.speaks == "lmos":
        return mock_contract(name, entry)
    if entry.speaks == "relay":
        return stranger_contract(name, entry)
    from ..doubles._chat_mocks import ChatMock

    return ChatMock


def _replay_contract(name: str, entry: Replay, recording: Recording) -> type:
    if entry.speaks != "omnia":
        return contract_of(name, entry, recording)
    contract_of(name, entry, recording)  # which knows whether it is in the recording
    from ..doubles._chat_mocks import ChatReplay

    return ChatReplay


def _bridge_class(entry: Bridge) -> type[Agent]:
    """Return the class of a bridge; what speaks its protocol is imported, which few files need."""
    if entry.speaks == "omnia":
        from lmos_actors.facades import RemoteChat

        return RemoteChat
    from ..doubles._hub_agents import HubBridge, HubMember

    return HubMember if entry.to is None else HubBridge


def _asked_for(name: str, data: dict[str, Any]) -> type:
    """Make the class of a remote agent without `use`: with the affordances that the file uses."""
    asked: dict[str, dict[str, None]] = {"action": {}, "stream": {}, "property": {}, "event": {}}
    for step in all_steps(data.get("steps"), data.get("timeline")):
        for kind in ("action", "property", "event"):
            word = step.get(kind)
            if step.get("target") == name and isinstance(word, str):
                asked["stream" if kind == "action" and step.get("do") == "stream" else kind][word] = None
    values = dict.fromkeys(asked["property"])
    return untyped_class(
        name, actions=asked["action"], streams=asked["stream"], properties=values, events=asked["event"]
    )


def _with_seeds(
    found: list[CellData], decoded: list[_Decoded], seeds: Sequence[int] | None, recordings: Recordings
) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            made.scenario,
            seed,
            data.values,
            made.system,
            recordings.of(replays_among(made.scenario.agents), [], made.system.classes),
        )
        for data, made in zip(found, decoded, strict=True)
        if made.scenario is not None
        for seed in (seeds if seeds is not None else _seeds(made.scenario))
    )


def _missing_recordings(document: Document, cells: Iterable[Cell]) -> Iterator[Mistake]:
    """Find replays whose log has no run for a cell, not the agent in it, or what cannot be played."""
    for cell in cells:
        for name, recording in cell.recordings.items():
            entry, place = replays_among(cell.scenario.agents)[name], ("agents", name, "log")
            try:
                recorded = recorded_agent_of(name, entry, recording, cell.label)
            except LookupError as error:
                yield document.mistake(place, str(error.args[0]), "name")
                continue
            problem = _chat_problem(entry, recording, recorded) if entry.speaks == "omnia" else None
            if problem is not None:
                yield document.mistake(place, problem, "shape")


def _chat_problem(entry: Replay, recording: Recording, recorded: RecordedAgent) -> str | None:
    from ..doubles._chat_mocks import chat_problem  # few files need it

    return chat_problem(entry, recording, recorded)


def _seeds(scenario: Scenario | Simulation) -> Sequence[int]:
    seeds = scenario.seeds
    return range(seeds.from_, seeds.from_ + seeds.count) if isinstance(seeds, SeedRange) else seeds


def _notes(document: Document, cells: Cells, more: Iterable[Note]) -> tuple[Note, ...]:
    unused = [
        document.note(("vars", name), f"$(vars.{name}) is not used", key=True)
        for name in cells.unused_variables()
    ]
    found = [*document.notes, *unused, *more]
    return tuple(sorted(found, key=lambda note: (note.line, note.column)))
