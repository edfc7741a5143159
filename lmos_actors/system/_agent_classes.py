"""The classes of the agents of a file: imported, or made for remote agents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from lmos_actors.errors import ConfigError

from ._hub_names import all_steps
from ._targets import import_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from lmos_actors.files import DataPath, Document, Kind, Mistake

    from ._cell_names import CellNames
    from ._targets import Accepts
    from ._used_tree import UsedTree


WithoutUse: TypeAlias = "Callable[[CellNames, dict[str, type], list[Mistake]], None]"
"""A function that adds the classes of agents whose entries name none."""


class Targets:
    """An importer that imports each target once, even if that fails.

    `without_use` adds the classes of agents whose entries have no `use`, for files with steps.
    """

    def __init__(
        self,
        document: Document,
        root: Path,
        accepts: Accepts | None,
        without_use: WithoutUse | None = None,
    ) -> None:
        self.document = document
        self.root = root
        self.accepts = accepts
        self.without_use = without_use
        self.found: dict[str, type | ConfigError] = {}
        self.trees: dict[str, UsedTree | ConfigError] = {}
        self.raised: BaseException | None = None
        """The exception of the first module that could not be imported."""

    def tree(self, target: str, mistakes: list[Mistake]) -> UsedTree | None:
        """Import the tree that a file uses. If that fails, report a mistake and return None."""
        if target not in self.trees:
            from ._used_tree import use_tree

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
        # a module that raised during its import could not run; anything else is a wrong word in the file
        kind: Kind = "import" if error.__cause__ is not None else "name"
        self.raised = self.raised or error.__cause__
        if any((each.kind, each.message) == ("import", error.message) for each in mistakes):
            return  # if several agents are in one module, only the first reports it
        mistakes.append(self.document.mistake(path, error.message, kind))

    def classes(
        self, names: CellNames, mistakes: list[Mistake], only: Collection[str] | None = None
    ) -> dict[str, type]:
        """Return the classes of all agents, or of those in `only`, by name; report failed imports."""
        classes: dict[str, type] = {}
        if names.tree is not None:
            made = {name: names.tree.class_of(name) for name in names.tree.agents}
            classes |= {name: cls for name, cls in made.items() if cls is not None}
        for name, path, use in names.uses():
            if only is not None and name not in only:
                continue
            if use not in self.found:
                try:
                    self.found[use] = import_target(use, self.root, self.accepts)
                except ConfigError as error:
                    self.found[use] = error
            found = self.found[use]
            if isinstance(found, ConfigError):
                self._wrong((*path, "use"), found, mistakes)
            else:
                classes[name] = found
        for name, remote in names.remotes.items():
            if remote.use is None:
                make = partial(_asked_for, name, names.cell.data)
                add_made_class(self.document, name, make, classes, mistakes)
        if self.without_use is not None:
            self.without_use(names, classes, mistakes)
        return classes


def add_made_class(
    document: Document, name: str, make: Callable[[], type], classes: dict[str, type], mistakes: list[Mistake]
) -> None:
    """Make the class of an agent and add it to `classes`; report a mistake if that fails."""
    try:
        classes[name] = make()
    except (TypeError, ValueError, LookupError) as error:
        mistakes.append(document.mistake(("agents", name), str(error.args[0]), key=True))


def _asked_for(name: str, data: dict[str, Any]) -> type:
    """Make the class of a remote agent without `use`, with the affordances that the file uses."""
    asked: dict[str, dict[str, None]] = {"action": {}, "stream": {}, "property": {}, "event": {}}
    for step in all_steps(data.get("steps"), data.get("timeline")):
        for kind in ("action", "property", "event"):
            word = step.get(kind)
            if step.get("target") == name and isinstance(word, str):
                asked["stream" if kind == "action" and step.get("do") == "stream" else kind][word] = None
    values = dict.fromkeys(asked["property"])
    from ._untyped import untyped_class

    return untyped_class(
        name, actions=asked["action"], streams=asked["stream"], properties=values, events=asked["event"]
    )
