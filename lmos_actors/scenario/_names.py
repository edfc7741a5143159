"""Agents, the tree, and the references between agents: the names that a story is told with.

Works on the data of one cell, part by part, so that a mistake in one part does not hide those in others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lmos_actors.files import Kind, Mistake, decode, did_you_mean, listed, mapped

from ._model_agents import Agent, Population, Root, Supervised, Supervisor, Tree
from ._model_base import USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.files import DataPath, Document

    from ._cells import CellData

NAME = re.compile(r"[A-Za-z_][\w-]*")
"""What agents, supervisors and saved values may be called."""


class Names:
    """Checks the names of one cell; `mistakes` grows, `agents` are the entries that are right themselves."""

    def __init__(self, document: Document, cell: CellData) -> None:
        self.document = document
        self.cell = cell
        self.mistakes: list[Mistake] = []
        self.names: list[str] = list(mapped(cell.data.get("agents")))
        self.agents: dict[str, Supervised] = {}
        self.populations: dict[str, Population] = {}
        self.supervisors: list[str] = ["root"]

    def wrong(self, path: DataPath, message: str, kind: Kind = "name", *, key: bool = False) -> None:
        self.mistakes.append(self.document.mistake(path, message, kind, key=key))

    def check(self) -> None:
        self._agents()
        self._populations()
        self._tree()
        self._late_agents()

    def decoded(self, declared: Any, data: Any, path: DataPath) -> Any:
        """Decode one part; its own mistakes come with those of the whole file."""
        return decode(self.document, declared, data, at=path)[0]

    # --- agents and tree

    def _agents(self) -> None:
        for name in self.names:
            path = ("agents", name)
            if name == USER:
                self.wrong(
                    path, '"user" is the scenario\'s own consumer; an agent has another name', key=True
                )
            elif not NAME.fullmatch(name):
                self.wrong(path, f'"{name}" is not a name: letters, digits, _ and -', key=True)
            entry = self.decoded(Agent, self.cell.data["agents"][name], path)
            if entry is not None:
                self.agents[name] = entry
                self._significant(entry, path)

    def _populations(self) -> None:
        for index, raw in enumerate(listed(self.cell.data.get("population"))):
            path = ("population", index)
            name = mapped(raw).get("id")
            if isinstance(name, str):
                if name == USER or name in self.names or not NAME.fullmatch(name):
                    self.wrong((*path, "id"), f'"{name}" cannot be the name of a population')
                self.names.append(name)
            entry = self.decoded(Population, raw, path)
            if entry is not None:
                self.populations[entry.id] = entry

    def _significant(self, entry: Supervised | Supervisor, path: DataPath) -> None:
        if entry.significant and entry.restart == "permanent":
            self.wrong(
                (*path, "significant"), "a significant child is transient or temporary", "shape", key=True
            )

    def _tree(self) -> None:
        raw = self.cell.data.get("tree")
        simulation = self.cell.data.get("lmos") == "simulation/v1"
        tree = self.decoded(Tree, raw, ("tree",)) if raw is not None and not simulation else None
        if tree is None:
            return
        placed: dict[str, DataPath] = {}
        self._children(tree.root, ("tree", "root"), placed)
        for name in self.names:
            if name not in placed:
                self.wrong(("agents", name), f'agent "{name}" is not in the tree', key=True)

    def _children(self, above: Root, path: DataPath, placed: dict[str, DataPath]) -> None:
        for index, child in enumerate(above.children):
            here = (*path, "children", index)
            name = child if isinstance(child, str) else child.name
            place = here if isinstance(child, str) else (*here, "name")
            if isinstance(child, str):
                self.agent(name, here)
            elif name in self.names or name in (USER, "root") or not NAME.fullmatch(name):
                self.wrong(
                    place, f'"{name}" cannot be the name of a supervisor, it is an agent\'s or reserved'
                )
            if name in placed:
                self.wrong(
                    place, f'"{name}" is in the tree twice, first at {self.document.place(placed[name])}'
                )
            placed.setdefault(name, place)
            if isinstance(child, Supervisor):
                self.supervisors.append(name)
                self._significant(child, here)
                self._children(child, here, placed)

    def _late_agents(self) -> None:
        for late in self.cell.late:
            if late.reference.namespace == "agents":
                name = late.reference.name
                part = f"$(agents.{name})"
                if name not in self.names:
                    message = f'no agent "{name}"{did_you_mean(name, self.names)}'
                elif not late.whole:
                    message = f"{part} is a reference to an agent and cannot stand inside other text"
                else:
                    continue
                self.mistakes.append(self.document.mistake_in(late.path, part, message, "name"))

    def uses(self) -> Iterator[tuple[str, DataPath, str]]:
        """Give the agents and populations that are of a class: name, place, and what `use` says."""
        for name, entry in self.agents.items():
            use: str | None = getattr(entry, "use", None)
            if use is not None:
                yield name, ("agents", name), use
        for index, raw in enumerate(listed(self.cell.data.get("population"))):
            found = self.populations.get(mapped(raw).get("id", ""))
            if found is not None:
                yield found.id, ("population", index), found.use

    def agent(self, name: str, path: DataPath, *, user: bool = False) -> None:
        if name == USER and not user:
            self.wrong(path, '"user" is the scenario\'s own consumer, not an agent')
        elif name.partition("/")[0] not in self.names and name != USER:
            self.wrong(
                path, f'no agent "{name}"{did_you_mean(name, [USER, *self.names] if user else self.names)}'
            )
