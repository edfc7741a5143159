"""A scenario file into cells that a runner can run: everything that can be known beforehand is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs

from lmos_actors._errors import ConfigError
from lmos_actors.files import Document, FileError, Kind, Mistake, Note, decode, mapped, read

from ._cells import LABEL, CellData, Cells
from ._model import Scenario, SeedRange
from ._model_agents import Root
from ._names import Names
from ._story import Story
from ._targets import import_target, project_root

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ._model_agents import AgentEntry
    from ._targets import Accepts


@attrs.frozen
class Cell:
    """One combination of the matrix with one seed: what is run `scenario.trials.count` times.

    `values` are those of the matrix, `classes` the imported agent classes by name (empty if not asked for).
    """

    scenario: Scenario
    seed: int
    values: dict[str, Any]
    classes: dict[str, type]

    @property
    def label(self) -> str:
        """Name the cell for people: `city=Berlin world=memory seed=7`. A mapping is shown by its name."""
        shown = {key: mapped(value).get(LABEL, value) for key, value in self.values.items()}
        return " ".join([*(f"{key}={value}" for key, value in shown.items()), f"seed={self.seed}"])

    def agent_class(self, name: str) -> Any:
        """Give the class of an agent; checked by `accepts`, so it is one of agents."""
        return self.classes[name]

    @property
    def root(self) -> Root:
        """The root supervisor: the file's, or the one that a file without a tree has."""
        tree = self.scenario.tree
        return tree.root if tree is not None else Root(children=tuple(self.scenario.agents))


@attrs.frozen
class Resolved:
    """A scenario file that is right. `root` is the project root; `notes` are warnings."""

    document: Document
    root: Path
    cells: tuple[Cell, ...]
    notes: tuple[Note, ...]

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
) -> Resolved:
    """Read a scenario file, check it, import its agents' classes, and give its cells in order.

    `settings` set variables, matrix keys or `world` to text from the command line; `seeds` replace the
    file's; without `classes` nothing is imported; `accepts` says why a class cannot be an agent.
    Blocks on the disk and runs the code of the modules named. Raises FileError with every mistake found;
    ConfigError for a setting that the file does not know.
    """
    document = read(path)
    _check_format(document)
    cells = Cells(document, settings or {})
    mistakes = [*document.mistakes, *cells.mistakes]
    found = cells.all()
    mistakes += cells.mistakes
    targets = _Targets(document, project_root(cast("Path", document.path)), accepts)
    decoded = [_scenario(document, data, mistakes, targets if classes else None) for data in found]
    if mistakes:
        raise FileError(mistakes)
    return Resolved(document, targets.root, _with_seeds(found, decoded, seeds), _notes(document, cells))


def _check_format(document: Document) -> None:
    """Refuse what is not a scenario file before looking at the rest of it."""
    data = document.data
    if not isinstance(data, dict) or "lmos" not in data:
        raise FileError(decode(document, Scenario)[1])
    _, mistakes = decode(document, Scenario)
    of_format = [mistake for mistake in mistakes if mistake.place == document.place(("lmos",))]
    if of_format:
        raise FileError([*document.mistakes, *of_format])


def _scenario(
    document: Document, cell: CellData, mistakes: list[Mistake], targets: _Targets | None
) -> tuple[Scenario | None, dict[str, type]]:
    scenario, wrong = decode(document, Scenario, cell.data)
    names = Names(document, cell)
    names.check()
    Story(names).check()
    mistakes += [*wrong, *names.mistakes]
    return scenario, targets.classes(names.agents, mistakes) if targets else {}


class _Targets:
    """Imports each target once, whatever happens."""

    def __init__(self, document: Document, root: Path, accepts: Accepts | None) -> None:
        self.document = document
        self.root = root
        self.accepts = accepts
        self.found: dict[str, type | ConfigError] = {}

    def classes(self, agents: Mapping[str, AgentEntry], mistakes: list[Mistake]) -> dict[str, type]:
        classes: dict[str, type] = {}
        for name, entry in agents.items():
            found = self._imported(entry.use)
            if isinstance(found, ConfigError):
                # what raised while it was imported could not run; anything else is a wrong word in the file
                kind: Kind = "import" if found.__cause__ is not None else "name"
                mistakes.append(self.document.mistake(("agents", name, "use"), found.message, kind))
            else:
                classes[name] = found
        return classes

    def _imported(self, target: str) -> type | ConfigError:
        if target not in self.found:
            try:
                self.found[target] = import_target(target, self.root, self.accepts)
            except ConfigError as error:
                self.found[target] = error
        return self.found[target]


def _with_seeds(
    found: list[CellData],
    decoded: list[tuple[Scenario | None, dict[str, type]]],
    seeds: Sequence[int] | None,
) -> tuple[Cell, ...]:
    return tuple(
        Cell(scenario, seed, data.values, classes)
        for data, (scenario, classes) in zip(found, decoded, strict=True)
        if scenario is not None
        for seed in (seeds if seeds is not None else _seeds(scenario))
    )


def _seeds(scenario: Scenario) -> Sequence[int]:
    seeds = scenario.seeds
    return range(seeds.from_, seeds.from_ + seeds.count) if isinstance(seeds, SeedRange) else seeds


def _notes(document: Document, cells: Cells) -> tuple[Note, ...]:
    unused = [
        document.note(("vars", name), f"$(vars.{name}) is not used", key=True)
        for name in cells.unused_variables()
    ]
    return tuple(sorted([*document.notes, *unused], key=lambda note: (note.line, note.column)))
