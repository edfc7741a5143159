"""Names of a cell: agents, populations, the tree, and the references between agents.

This module checks the data of one cell, part by part, so that a mistake in one part does not hide mistakes in
others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.actors import outline_of
from lmos_actors.files import DataPath, Kind, Mistake, did_you_mean, listed, mapped
from lmos_actors.supervision import RESERVED

from ._hub_names import HUB_PLACE, URLS, HubNames
from ._remote_access import entry_mistakes
from .model import (
    ALL_AGENTS,
    DIRECTORY,
    HUB,
    USER,
    WORLDS,
    Bridge,
    Elsewhere,
    Mock,
    OwnProcess,
    PoolEntry,
    Population,
    Remote,
    Replay,
    Root,
    Supervised,
    Supervising,
    Supervisor,
    Tree,
    is_real,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lmos_actors.files import Document, Note

    from ._used_tree import UsedTree
    from .model import CellData

NAME = re.compile(r"[A-Za-z_][\w-]*")
"""Names of agents, supervisors, saved values, checks and series."""

NAMED: Final = "letters, digits, _ and -, and a letter or _ first"
INDEX: Final = "index"
"""The one name of the namespace `population`."""

DIRECTORY_PLACE: Final[DataPath] = ("network", "directory")
"""The place of the directory of a network in a file."""

USED: Final[DataPath] = ("tree", "use")
"""The place of the agents of a tree that a file uses."""

_THE_TREES: Final = frozenset({"restart", "shutdown", "significant", "backoff", "id", "key", "optional"})


def is_durable_class(cls: Any) -> bool:
    """Return whether agents of a class keep their state in a store."""
    contract = outline_of(cls)
    return contract is not None and contract.state is not None


def is_resuming_class(cls: Any) -> bool:
    """Return whether agents of a class store their unfinished turns if their node has a store."""
    contract = outline_of(cls)
    return getattr(cls, "resumes", False) is True and contract is not None and not contract.serial


def near_path(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known name that was probably meant, such as a path that ends in `name`."""
    names = list(known)
    below = [path for path in names if path.endswith(f"/{name}")]
    return f', did you mean "{below[0]}"?' if len(below) == 1 else did_you_mean(name, names)


class CellNames:
    """The validator of the names of one cell, which also serves the other validators; `mistakes` grows.

    `made` contains the valid parts of the file, by place, and `classes` the imported classes, by the names of
    agents and populations; values are checked against them only if `fitted` is true.
    """

    def __init__(self, document: Document, cell: CellData, made: Mapping[DataPath, Any]) -> None:
        self.document = document
        self.cell = cell
        self.made = made
        self.mistakes: list[Mistake] = []
        self.notes: list[Note] = []
        self.tree: UsedTree | None = None
        """The tree of the project that the file uses."""
        self.agents: dict[str, Supervised | PoolEntry] = {}
        self.remotes: dict[str, Elsewhere] = {}
        """The remote agents, which are not among `agents`."""
        self.populations: dict[str, Population] = {}
        self.pools: dict[str, int] = {}
        """The sizes of pools by name, also of pools in the tree."""
        self.groups: dict[str, int] = {}
        """The groups of the deployment that the file uses, with the number of processes of each."""
        self.hub = HubNames(cell, made.get(HUB_PLACE), self.report, self.warn, self.refuse)
        """The names on the hub of the file."""
        self.places: dict[str, DataPath] = {}
        self.supervisors: list[str] = ["root"]
        self.used: dict[str, None] = {}
        self.classes: dict[str, type] = {}
        self.fitted = False
        self._defined: dict[str, tuple[str, DataPath]] = {}

    def report(self, path: DataPath, message: str, kind: Kind = "name", *, key: bool = False) -> None:
        self.mistakes.append(self.document.mistake(path, message, kind, key=key))

    def report_at(self, path: DataPath, problem: tuple[str, str] | None, *, key: bool = False) -> None:
        """Report a problem (key and message) at a place in the file; None means that there is none."""
        if problem is not None:
            self.report((*path, problem[0]), problem[1], "shape", key=key)

    def refuse(self, made: object, path: DataPath, why: str, *keys: str) -> None:
        """Report a mistake for each of the keys that is set in a part of the file."""
        for key in keys:
            value = getattr(made, key, None)
            if not (value is UNSET or value is None or value is False or value in ((), {})):
                self.report((*path, key), f'"{key}" {why}', "shape", key=True)

    def is_known(self, name: str, known: Collection[str], path: DataPath, kind: str, more: str = "") -> bool:
        """Return whether a name is among the known names of a kind; if not, report that and append `more`."""
        if name not in known:
            self.report(path, f'no {kind} "{name}"{more}{did_you_mean(name, known)}')
        return name in known

    def warn(self, path: DataPath, message: str) -> None:
        self.notes.append(self.document.note(path, message))

    @property
    def names(self) -> list[str]:
        """The names of all agents and populations, including those with mistakes, but not the hub's name."""
        return [name for name in self.places if not self.is_hub(name)]

    def is_hub(self, name: str) -> bool:
        """Return whether a name belongs to the hub."""
        return self.places.get(name) == HUB_PLACE

    def is_directory(self, name: str) -> bool:
        """Return whether a name belongs to the network's directory."""
        return self.places.get(name) == DIRECTORY_PLACE

    def check(self) -> None:
        self._agents()
        if self.hub.is_there:
            self._note_service(HUB, HUB_PLACE, "the hub, as the file has one")
            self.hub.check()
        if mapped(self.cell.data.get("network")).get("directory") is not None:
            self._note_service(DIRECTORY, DIRECTORY_PLACE, "that of the network")
        self._of_tree()
        self._populations()
        self._tree()
        self._late()

    def uses(self) -> Iterator[tuple[str, DataPath, str]]:
        """Yield the agents and populations that have a class: name, place, and the text of `use`.

        Entries with mistakes are included, so that requests to them can be checked.
        """
        for name, path in self.places.items():
            if path in (USED, HUB_PLACE, DIRECTORY_PLACE):
                continue
            raw: Any = self.cell.data
            for part in path:
                raw = raw[part]
            use = mapped(raw).get("use")
            if isinstance(use, str) and use:
                yield name, path, use

    def contract(self, name: str) -> Any:
        """Return the contract of an agent or of a population's member; None if its class is not known."""
        cls: Any = self.class_of(name) if self.fitted else None
        return None if cls is None else cls.__contract__

    @property
    def has_durable_agents(self) -> bool:
        """Whether an agent of the file, or of its tree, keeps its state in a store."""
        return any(map(is_durable_class, self.classes.values()))

    @property
    def keeps_turns(self) -> bool:
        """Whether the file names a store and has agents that keep unfinished turns in it."""
        return "store" in self.cell.data and any(map(is_resuming_class, self.classes.values()))

    def class_of(self, name: str) -> type | None:
        """Return the class of an agent, or of a member of a population or pool; None if it is unknown."""
        while name and name not in self.classes:
            name = name.rpartition("/")[0]
        return self.classes.get(name)

    def entry(self, name: str) -> Any:
        """Return the entry of an agent, pool, population or member in the file or its tree, or None."""
        while name and name not in self.agents and name not in self.populations:
            name = name.rpartition("/")[0]
        return self.agents.get(name) or self.populations.get(name)

    # --- agents and tree

    def _agents(self) -> None:
        for name in mapped(self.cell.data.get("agents")):
            path: DataPath = ("agents", name)
            self.places[name] = path
            if name == USER:
                self.report(
                    path, '"user" is the scenario\'s own consumer; an agent has another name', key=True
                )
            elif self.tree is not None and name in self.tree.agents:
                self._check_replacement(name, path, self.tree)
            elif not NAME.fullmatch(name) and self.tree is None:
                self.report(path, f'"{name}" is not a name: {NAMED}', key=True)
            entry = self.made.get(path)
            if isinstance(entry, Elsewhere):
                self.remotes[name] = entry
                self._remote(entry, path)
            elif entry is not None:
                if isinstance(entry, Bridge):
                    self.hub.check_bridge(entry, path)
                if isinstance(entry, Bridge | Mock | Replay) and entry.speaks == "relay":
                    self.hub.add(name, entry, path)
                    self.used[name] = None  # every agent on a hub hears all messages on it
                self.agents[name] = entry
                self._significant(entry, path)
                if isinstance(entry, PoolEntry):
                    self.pools[name] = entry.size

    def _note_service(self, name: str, place: DataPath, what: str) -> None:
        """Register an agent that a node runs for a part of the file: the hub or the directory."""
        if name in self.places:
            why = f'"{name}" is the name of {what}; an agent has another name'
            self.report(self.places[name], why, key=True)
        self.places[name], self.used[name] = place, None
        self.agents[name] = Supervised()

    def _check_replacement(self, name: str, path: DataPath, tree: UsedTree) -> None:
        """Check an entry of the file that replaces an agent of the tree that the file uses."""
        entry = self.made.get(path)
        if isinstance(entry, (Remote, OwnProcess, PoolEntry)):
            kind = str(entry.__struct_config__.tag)
            why = f'"{name}" is an agent of {tree.target}: a mock, a replay or an agent can take its place'
            self.report((*path, "from"), f"{why}, no {kind}")
        for key in mapped(self.cell.data["agents"][name]):
            if key in _THE_TREES:
                self.report(
                    (*path, key), f'"{key}" of "{name}" is as {tree.target} has it', "shape", key=True
                )

    def _of_tree(self) -> None:
        """Register the agents of the tree that the file uses, except those that the file replaces."""
        if self.tree is None:
            return
        for path, spec in self.tree.agents.items():
            if path not in self.places:
                self.places[path] = USED
                self.agents[path] = Supervised(restart=spec.restart)
        self.pools |= {path: size for path, size in self.tree.pools.items() if self.places[path] == USED}
        self.supervisors += [*self.tree.supervisors, *(each.name for each in self.tree.supervisors.values())]

    def _remote(self, entry: Elsewhere, path: DataPath) -> None:
        if isinstance(entry, OwnProcess):
            if entry.command is UNSET and entry.use is None:
                why = 'a process serves a class, "use", or is a program, "command"'
                self.report(path, why, "shape", key=True)
            if entry.command is UNSET and entry.url is not None:
                why = '"url" is where a "command" serves its agent: what "use" names is at a free port'
                self.report((*path, "url"), why, "shape", key=True)
        elif entry.url is None and entry.description is None:
            self.report(path, 'a remote agent needs a "url", or a "description" that contains its address',
                       "shape", key=True)  # fmt: skip
        if entry.url is not None and not entry.url.startswith(URLS):
            self.report((*path, "url"), f'"{entry.url}" begins with none of {", ".join(URLS)}', "shape")
        for key, message in entry_mistakes(entry):
            self.report((*path, key), message, "shape")
        world = self.cell.data.get("world", "memory")
        if world in WORLDS and not is_real(world) and "groups" not in self.cell.data:
            kind = "remote agent" if isinstance(entry, Remote) else "process of its own"
            message = f"a {kind} can be used in world: websocket, not in world: {world}"
            self.report((*path, "from"), message)

    def _populations(self) -> None:
        for index, raw in enumerate(listed(self.cell.data.get("population"))):
            path: DataPath = ("population", index)
            name = mapped(raw).get("id")
            if not isinstance(name, str):
                continue
            if name in (USER, "root") or not NAME.fullmatch(name):
                self.report((*path, "id"), f'"{name}" cannot be the name of a population: {NAMED}')
            elif name in self.places:
                first = self.document.place(self.places[name], key=True)
                self.report((*path, "id"), f'"{name}" is given twice, first at {first}')
            self.places.setdefault(name, path)
            entry = self.made.get(path)
            if entry is not None:
                self.populations.setdefault(name, entry)

    def _significant(self, entry: Supervised | PoolEntry | Supervisor, path: DataPath) -> None:
        if entry.significant and entry.restart == "permanent":
            self.report(
                (*path, "significant"), "a significant child is transient or temporary", "shape", key=True
            )

    def _check_backoff_used(
        self, entry: Supervised | PoolEntry | Supervisor, path: DataPath, above: Supervising
    ) -> None:
        """Report a significant child whose end its supervisor would ignore."""
        if entry.significant and above.auto_shutdown == "never":
            supervisor = above.name if isinstance(above, Supervisor) else "root"
            message = f'"significant" does nothing: "auto_shutdown" of the supervisor "{supervisor}" is never'
            self.report((*path, "significant"), message, "shape", key=True)

    def _tree(self) -> None:
        tree = self.made.get(("tree",))
        self._top()
        if isinstance(tree, Tree):
            self._check_placed(tree)
        elif "tree" not in self.cell.data:
            for name in self.agents:
                self._check_backoff_used(self.agents[name], ("agents", name), Root(children=()))
            if not self.places and "population" not in self.cell.data:
                self.report((), 'no agents: the file has "agents", or a "tree" that it uses', "shape")

    def _check_placed(self, tree: Tree) -> None:
        """Check that each agent is in the tree exactly once."""
        placed: dict[str, DataPath] = {}
        if (tree.root is UNSET) == (tree.use is UNSET):
            self.report(("tree",), 'a tree has exactly one of "root" and "use"', "shape", key=True)
            return
        if tree.root is not UNSET:
            self._children(tree.root, ("tree", "root"), placed)
            if tree.children:
                self.report(
                    ("tree", "children"),
                    '"children" go with "use"; others are the root\'s',
                    "shape",
                    key=True,
                )
        else:
            self._children(Root(children=tree.children), ("tree",), placed)
        for name, path in self.places.items():
            if name in placed or name in self.remotes or path[0] == "population" or self.is_of_tree(name):
                continue
            if path in (HUB_PLACE, DIRECTORY_PLACE):
                continue
            if self.tree is None:
                self.report(path, f'agent "{name}" is not in the tree', key=True)
            else:
                near = near_path(name, self.tree.agents)
                more = "" if "did you" in near else '; the file\'s own stand in "children" of its tree'
                self.report(path, f'{self.tree.target} has no agent "{name}"{near}{more}', key=True)

    def is_of_tree(self, name: str) -> bool:
        """Return whether the tree that the file uses has an agent at that path."""
        return self.tree is not None and name in self.tree.agents

    def given_by_tree(self, name: str) -> frozenset[str]:
        """Return the names of the arguments that the tree gives to an agent."""
        own = None if self.tree is None else self.tree.agents.get(name)
        if own is None:
            return frozenset()
        from ._used_tree import keywords_of

        return frozenset(keywords_of(own.factory))

    def _top(self) -> None:
        """Report names at the top of the tree that a node reserves for other purposes."""
        tree, below_root = self.made.get(("tree",)), list(self.agents)
        if isinstance(tree, Tree) and tree.root is not UNSET:
            below_root = [child for child in tree.root.children if isinstance(child, str)]
        for name in below_root:
            if name in RESERVED and name in self.places:
                used = self.places[name] == USED
                why = f"{'the agent' if used else 'an agent at the top of the tree'} cannot be called"
                self.report(
                    self.places[name],
                    f'{why} "{name}": a node serves something else at /{name}',
                    key=not used,
                )

    def _children(self, above: Supervising, path: DataPath, placed: dict[str, DataPath]) -> None:
        for index, child in enumerate(above.children):
            here = (*path, "children", index)
            name = child if isinstance(child, str) else child.name
            place = here if isinstance(child, str) else (*here, "name")
            if isinstance(child, str):
                self._exists(name, here)
                if name in self.agents:
                    self._check_backoff_used(self.agents[name], ("agents", name), above)
            elif name in self.names or name in (*self.supervisors, USER) or not NAME.fullmatch(name):
                self.report(
                    place, f'"{name}" cannot be the name of a supervisor, it is an agent\'s or reserved'
                )
            if name in placed:
                self.report(
                    place, f'"{name}" is in the tree twice, first at {self.document.place(placed[name])}'
                )
            placed.setdefault(name, place)
            if isinstance(child, Supervisor):
                self.supervisors.append(name)
                self._significant(child, here)
                self._check_backoff_used(child, here, above)
                self._children(child, here, placed)

    def _exists(self, name: str, path: DataPath) -> bool:
        if name == USER:
            self.report(path, '"user" is the scenario\'s own consumer, not an agent')
        elif name not in self.places:
            self.report(path, f'no agent "{name}"{near_path(name, self.names)}')
        elif name in self.remotes:
            self._report_foreign(name, path)
        elif self.is_hub(name):
            self.report(path, f'"{name}" is the hub, which the node has in its tree')
        elif self.is_directory(name):
            self.report(path, f'"{name}" is that of the network, which stands in no tree of the file')
        elif self.is_of_tree(name):
            self.report(
                path, f'"{name}" is in the tree already: {self.tree.target if self.tree else ""} has it'
            )
        return name in self.places

    def _report_foreign(self, name: str, path: DataPath) -> None:
        message = f'"{name}" is a remote agent: steps can use it, but its class and state are not known here'
        self.report(path, message)

    def _late(self) -> None:
        """Check the references in args that are filled in when agents are made."""
        for late in self.cell.late:
            space, name = late.reference.namespace, late.reference.name
            part, message = f"$({space}.{name})", ""
            if space == "agents" and name not in self.places:
                message = f'no agent "{name}"{near_path(name, self.names)}'
            elif space == "agents" and self.is_hub(name):
                message = f'"{name}" is the hub: agents reach it by a bridge that speaks relay'
            elif space == "agents" and not late.whole:
                message = f"{part} is a reference to an agent and cannot stand inside other text"
            elif space == "population" and name != INDEX:
                message = f"no $(population.{name}){did_you_mean(name, [INDEX])}"
            elif space == "agents":
                self.used[name] = None
            if message:
                self.mistakes.append(self.document.mistake_in(late.path, part, message, "name"))

    # --- references

    def agent(
        self, name: str, path: DataPath, *, user: bool = False, far: bool = False, asked: bool = False
    ) -> bool:
        """Check the name of one agent: `weather`, `peer/3`. With `far` it may be a remote agent.

        With `asked` the name is the target of a request: it may be a pool, but neither a pool's member nor
        the hub.
        """
        base = self.base_of(name)
        if base in self.places:
            self.used[base] = None
        return self._check_agent(name, base, path, user=user, far=far, asked=asked)

    def _check_agent(
        self,
        name: str,
        base: str,
        path: DataPath,
        *,
        user: bool = False,
        far: bool = False,
        asked: bool = False,
    ) -> bool:
        if name == USER and user:
            return True
        message = self._not_one(name, base, pool=asked)
        if asked and self.is_hub(name):
            message = f'"{name}" is the hub: "do: say" with "to: {name}" speaks to it'
        if message:
            known = [USER, *self._singles()] if user else self._singles()
            self.report(path, message + (near_path(name, known) if message.startswith("no agent") else ""))
        elif name in self.remotes and not far:
            self._report_foreign(name, path)
            return False
        return not message

    def base_of(self, name: str) -> str:
        """Return the agent, population or pool with this name, or the one of which the name is a member."""
        while name not in self.places and "/" in name:
            name = name.rpartition("/")[0]
        return name

    def _not_one(self, name: str, base: str, *, pool: bool) -> str:
        if name == USER:
            return '"user" is the scenario\'s own consumer, not an agent'
        path = self.places.get(base)
        if path is None:
            return f'no agent "{name}"'
        index = name[len(base) + 1 :]
        if base in self.pools:
            return self._not_of_pool(name, base, index, whole=pool)
        if path[0] != "population":
            return f'"{base}" is one agent, it has no "{name}"' if index else ""
        if not index:
            return f'"{base}" is a population; one of its agents is "{base}/0"'
        if not index.isdecimal() or len(index) > 7 or str(int(index)) != index:
            return f'"{index}" is no number of an agent of "{base}"'
        entry = self.populations.get(base)
        if entry is not None and int(index) >= entry.count:
            return f'no "{base}/{index}": "{base}" has {entry.count}, the last is "{base}/{entry.count - 1}"'
        return ""

    def _not_of_pool(self, name: str, base: str, index: str, *, whole: bool) -> str:
        label, size = base.rpartition("/")[2], self.pools[base]
        if index and index not in [f"{label}-{number}" for number in range(1, size + 1)]:
            return f'no "{name}": the pool "{base}" has {size}, the last is "{base}/{label}-{size}"'
        if index and whole:
            return f'"{name}" is a member of a pool, which is turned to as a whole: "{base}"'
        if not index and not whole:
            return f'"{base}" is a pool; one of its agents is "{base}/{label}-1"'
        return ""

    def _singles(self) -> list[str]:
        return [f"{name}/0" if path[0] == "population" else name for name, path in self.places.items()]

    def check_group(
        self,
        name: str,
        path: DataPath,
        *,
        all_agents: bool = False,
        supervisors: bool = False,
        uses: bool = True,
    ) -> bool:
        """Check the name of an agent or a population, or, if allowed, of a supervisor or `*`.

        `uses=False`: the place only states where an agent is, and does not count as a use of the agent.
        """
        if (name == ALL_AGENTS and all_agents) or (name in self.supervisors and supervisors):
            return True
        if name in self.remotes:
            self._report_foreign(name, path)
            return False
        if name in self.places:
            if uses:
                self.used[name] = None
            return True
        base = self.base_of(name)
        if base in self.places:
            return self.agent(name, path) if uses else self._check_agent(name, base, path)
        known = [
            *self.names,
            *(self.supervisors if supervisors else []),
            *([ALL_AGENTS] if all_agents else []),
        ]
        self.report(path, f'no agent "{name}"{near_path(name, known)}')
        return False

    def population(self, name: str, path: DataPath, *, uses: bool = True) -> Population | None:
        """Check the name of a population; return the population if valid. `uses`: see `check_group`."""
        known = [known for known, place in self.places.items() if place[0] == "population"]
        if name in known:
            if uses:
                self.used[name] = None
        elif name in self.places:
            self.report(path, f'"{name}" is one agent, not a population')
        else:
            self.is_known(name, known, path, "population")
        return self.populations.get(name)

    def define(self, name: str, what: str, path: DataPath, *, key: bool = False) -> None:
        """Register a name (of a step, a fault, a check or a series) that later parts of the file may use."""
        if what != "step" and not NAME.fullmatch(name):
            self.report(path, f'"{name}" is not a name: {NAMED}', key=key)
        if name in self._defined:
            other, first = self._defined[name]
            place = self.document.place(first, key=other == "series")
            named = f'{what} id "{name}"' if what in ("step", "fault") else f'{what} "{name}"'
            again = "is given twice" if other == what else f"has the name of a {other}"
            self.report(path, f"{named} {again}, first at {place}", key=key)
        self._defined.setdefault(name, (what, path))

    def defined(self, *kinds: str) -> list[str]:
        """Return the names that were defined as any of the given kinds."""
        return [name for name, (what, _) in self._defined.items() if what in kinds]
