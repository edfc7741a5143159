"""Resolution of a scenario file into cells that can run: decoded, validated, their classes imported."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs

from lmos_actors.files import Document, FileError, Mistake, Note, decode, mapped, parse, read
from lmos_actors.system import CellNames, RemoteAccess, System, Targets, hide_secrets
from lmos_actors.system.model import (
    DEPLOYMENT,
    DIRECTORY,
    LABEL,
    AnyKind,
    CellData,
    Cells,
    has_required_parts,
    project_root,
)

from ..doubles import Recordings, recorded_agent_of, replays_among
from ..model import Directory, Scenario, SeedRange, Simulation, struct_of
from ._story_classes import add_story_classes
from ._used_system import UsedSystems, not_opened
from .validators._cell_check import check_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lmos_actors.deployment.files import DeploymentFile
    from lmos_actors.files import DataPath
    from lmos_actors.system import Accepts, UsedTree

    from ..doubles import Recording


@attrs.frozen
class Cell:
    """One combination of the matrix with one seed; it runs `scenario.trials.count` times.

    `values` has the values from the matrix. `recordings` has the recordings of replays, except for replays to
    be recorded anew.
    """

    scenario: Scenario | Simulation
    seed: int
    values: dict[str, Any]
    system: System
    recordings: Mapping[str, Recording] = attrs.Factory(dict[str, "Recording"])
    deployed: DeploymentFile | None = None
    """The deployment file whose system the cell uses, None if the file has its own agents."""

    @property
    def label(self) -> str:
        """The cell's readable name: `city=Berlin world=memory seed=7`. For a mapping, its name is shown."""
        shown = {key: mapped(value).get(LABEL, value) for key, value in self.values.items()}
        return " ".join([*(f"{key}={value}" for key, value in shown.items()), f"seed={self.seed}"])

    @property
    def note(self) -> str:
        """A note on the parts of a deployment file that the run's world leaves out; "" if there are none."""
        return "" if self.deployed is None else not_opened(self.deployed, self.scenario.world)

    @property
    def directory(self) -> Directory | None:
        """The directory of the network; None if there is none."""
        return directory_of(self.scenario)


def _type_of(data: Mapping[str, Any]) -> Any:
    """Return the struct of a file; for an unknown kind, the union of all structs.

    With the union, the mistake names all kinds.
    """
    if data.get("lmos") in ("scenario/v1", "simulation/v1"):
        return struct_of(data)
    from ..model import AnyFile

    return AnyFile


def directory_of(scenario: Scenario | Simulation) -> Directory | None:
    """Return the directory of the network of a file; None if there is none."""
    return None if scenario.network is None else scenario.network.directory


@attrs.frozen
class Resolved:
    """A valid scenario file. `root` is the project root; `notes` are warnings."""

    document: Document
    root: Path
    cells: tuple[Cell, ...]
    notes: tuple[Note, ...]
    settings: Mapping[str, str] = attrs.Factory(dict[str, str])
    """The settings with which the file was read."""
    measured: tuple[Path, ...] = ()
    """The files with values of its empirical distributions."""
    access: RemoteAccess = attrs.Factory(RemoteAccess)
    """The access to remote agents whose entries give none."""

    def document_of(self, cell: Cell) -> Document:
        """Return the document of a cell; it includes the deployment file if the system is defined there."""
        if cell.deployed is None:
            return self.document
        return self.document.with_parts(cell.deployed.parts)

    @property
    def name(self) -> str:
        """The name of the scenario; if the cells have several names, the name of the first cell."""
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

    `settings` set variables, matrix keys or `world` to text from the command line. `seeds` replace the seeds
    of the file. If `classes` is false, nothing is imported. `accepts` returns why a class cannot be an agent.
    With `recording`, replays are the real agents, to be recorded anew. `fitted` checks the file against the
    classes. `text` is JSON to read in place of the file's content.

    Blocks on the disk and runs the code of the imported modules. Raises FileError with every mistake found,
    and ConfigError for a setting that is not in the file.
    """
    document = read(path) if text is None else _in_place_of(path, text)
    _check_format(document)
    cells = Cells(document, settings or {}, struct_of(mapped(document.data)))
    mistakes = [*document.mistakes, *cells.mistakes]
    found = cells.all()
    mistakes += cells.mistakes
    recordings = Recordings(document, recording=recording)
    root = project_root(cast("Path", document.path))
    targets = Targets(document, root, accepts, partial(add_story_classes, recordings))
    given = targets if classes else None
    notes: dict[Note, None] = {}
    systems = UsedSystems(document, root, mistakes, classes=classes)
    decoded = [_scenario(systems, data, mistakes, given, notes, fitted=fitted) for data in found]
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
    """Refuse a file that is not a scenario file, before the rest of the file is checked."""
    kind = mapped(document.data).get("lmos")
    if kind == DEPLOYMENT:
        story = f"a scenario with system: {Path(document.name).name} tells it a story"
        why = f'"{DEPLOYMENT}" has no steps: "up" runs it, "validate" checks it, and {story}'
        raise FileError([document.mistake(("lmos",), why)])
    if kind not in ("scenario/v1", "simulation/v1"):
        raise FileError(decode(document, AnyKind)[1])


def _scenario(
    systems: UsedSystems,
    cell: CellData,
    mistakes: list[Mistake],
    targets: Targets | None,
    notes: dict[Note, None],
    *,
    fitted: bool,
) -> _Decoded:
    made: dict[DataPath, Any] = {}
    deployed = systems.of(cell)
    document = systems.document if deployed is None else systems.document.with_parts(deployed.parts)
    scenario, wrong = decode(document, _type_of(cell.data), cell.data, made=made)
    mistakes += wrong
    if deployed is None and "system" in cell.data:  # its mistakes are reported already
        return _Decoded(None)
    if not has_required_parts(struct_of(cell.data), cell.data):
        return _Decoded(None)
    names = CellNames(document, cell, made)
    use = mapped(cell.data.get("tree")).get("use")
    if isinstance(use, str):
        names.tree = targets.tree(use, mistakes) if targets else None
        if names.tree is None:  # without the tree the valid names are unknown
            return _Decoded(None)
    if deployed is not None:
        notes |= dict.fromkeys(deployed.notes)
        names.groups = {name: group.replicas for name, group in deployed.deployment.groups.items()}
    names.check()
    names.classes = targets.classes(names, mistakes) if targets else {}
    names.fitted = fitted
    check_cell(names, cast("Path", document.path).parent, whole=scenario is not None)
    mistakes += names.mistakes
    notes |= dict.fromkeys(names.notes)
    return _Decoded(scenario, names.classes, names.tree, deployed)


@attrs.frozen
class _Decoded:
    """One cell without its seeds; it has no scenario if the file is wrong."""

    scenario: Scenario | Simulation | None
    classes: dict[str, type] = attrs.Factory(dict[str, type])
    used: UsedTree | None = None
    deployed: DeploymentFile | None = None

    @property
    def system(self) -> System:
        """The agents and the tree of the scenario; the scenario must exist."""
        scenario = self.scenario
        assert scenario is not None
        beside = {} if directory_of(scenario) is None else {DIRECTORY: DIRECTORY}
        return System(scenario.agents, scenario.tree, self.classes, self.used, beside)


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
            made.deployed,
        )
        for data, made in zip(found, decoded, strict=True)
        if made.scenario is not None
        for seed in (seeds if seeds is not None else _seeds(made.scenario))
    )


def _missing_recordings(document: Document, cells: Iterable[Cell]) -> Iterator[Mistake]:
    """Yield a mistake for each replay whose log lacks the run or the agent, or cannot be replayed."""
    for cell in cells:
        for name, recording in cell.recordings.items():
            entry, place = replays_among(cell.scenario.agents)[name], ("agents", name, "log")
            try:
                recorded = recorded_agent_of(name, entry, recording, cell.label)
            except LookupError as error:
                yield document.mistake(place, str(error.args[0]), "name")
                continue
            if entry.speaks == "omnia":
                from ..doubles._chat_mocks import chat_problem  # few files need it

                problem = chat_problem(entry, recording, recorded)
                if problem is not None:
                    yield document.mistake(place, problem, "shape")


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
