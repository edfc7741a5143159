"""The classes of the agents of a file: imported, or made for mocks, replays and remote agents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import ConfigError

from ..doubles import contract_of, mock_contract, replays_among, stranger_contract, untyped_class
from ..model import Bridge, Mock, Replay
from ._hub_names import all_steps
from ._targets import import_target
from ._used_tree import use_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from lmos_actors.actors import Agent
    from lmos_actors.files import DataPath, Document, Kind, Mistake

    from ..doubles import Recording, Recordings
    from ._cell_names import CellNames
    from ._targets import Accepts
    from ._used_tree import UsedTree


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
