"""Validation of one cell of a file by all validators.

Each validator runs if the file has the part that it checks, so that a mistake in one part does not hide
mistakes in others. Validators of rare parts are imported only for files that have such parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.files import mapped
from lmos_actors.system import (
    ValueValidator,
    acts_by_itself,
    classes_named_by,
    discovers_agents,
)
from lmos_actors.system.model import DIRECTORY, AgentEntry, Bridge, Mock, Replay

from ...doubles import is_live
from ._check_validator import CheckValidator
from ._fault_validator import FaultValidator
from ._link_fault_validator import LinkFaultValidator
from ._network_validator import NetworkValidator
from ._process_validator import ProcessValidator
from ._store_validator import StoreValidator
from ._story_validator import StoryValidator
from ._timeline_validator import TimelineValidator

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.system import CellNames


def check_cell(names: CellNames, folder: Path, *, whole: bool) -> None:
    """Check the values for agents, the story and the checks of a cell; mistakes go to `names`.

    `folder` is the file's folder. If the file is not `whole`, because some parts are invalid, unused agents
    are not reported, as those parts may use them.
    """
    validator, store = ValueValidator(names), StoreValidator(names)
    network = NetworkValidator(names)
    processes = ProcessValidator(names)
    faults = FaultValidator(names, store, LinkFaultValidator(names, network), processes)
    processes.check()
    store.check()
    network.check()
    if "topology" in names.cell.data:
        from ._topology_validator import TopologyValidator

        TopologyValidator(names, validator).check()
    validator.agents()
    entries = list(names.agents.values())
    doubled = any(isinstance(entry, Mock | Replay | Bridge) for entry in entries)
    if doubled or any(is_live(cls) for cls in names.classes.values()):  # a mock should replace a live model
        from ._double_validator import DoubleValidator

        DoubleValidator(names, validator).check()
    agents = [entry for entry in entries if isinstance(entry, AgentEntry)]
    if any(each is not None for entry in agents for each in (entry.id, entry.key, entry.description)):
        from lmos_actors.system import IdentityValidator

        IdentityValidator(names, folder).check()
    story = StoryValidator(names, validator, faults)
    timeline = TimelineValidator(names, validator, faults, story.saying.check)
    story.check()
    timeline.check()
    if "explore" in names.cell.data:
        from ._explore_validator import ExploreValidator

        ExploreValidator(names, validator, faults).check()
    CheckValidator(
        names, validator, faults, {**story.scope.ids, **timeline.ids}, story.scope.run_counts
    ).check()
    first: dict[str, str] = {}  # of two reports in one file the second would overwrite the first
    for key, file in mapped(names.cell.data.get("report")).items():
        if isinstance(file, str) and file in first:
            names.report(("report", key), f'"{file}" is written twice, by "{first[file]}" too', "shape")
        elif isinstance(file, str):
            first[file] = key
    if names.fitted and whole and not names.mistakes and "system" not in names.cell.data:
        _check_unused(names)


def _check_unused(names: CellNames) -> None:
    """Refuse agents that nothing in the file names and that do nothing by themselves.

    An agent of the file that searches for others, by class, topic or group, may find an unnamed agent. Then
    there is only a warning, and none at all if the network has a directory.
    """
    entries = mapped(names.cell.data.get("agents"))
    args = {name: mapped(mapped(entries.get(name)).get("args")) for name in names.classes}
    named = tuple(each for name, cls in names.classes.items() for each in classes_named_by(cls, args[name]))
    around = [cls for cls in names.classes.values() if discovers_agents(cls)]
    for name, path in names.places.items():
        cls: Any = names.classes.get(name)
        if name in names.used or cls is None or acts_by_itself(cls) or names.is_of_tree(name):
            continue
        if issubclass(cls, named):
            continue
        here, key = (path, True) if path[0] == "agents" else ((*path, "id"), False)
        if around and DIRECTORY in names.places:
            continue
        if around:
            finder = around[0].__name__
            why = f'nothing in the file names the agent "{name}"; perhaps {finder} finds it'
            names.notes.append(names.document.note(here, why, key=key))
        else:
            names.report(here, f'nothing uses the agent "{name}", and it does nothing by itself', key=key)
