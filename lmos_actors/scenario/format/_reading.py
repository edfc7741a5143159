"""One cell of a file, all of its parts checked in one go: what is wrong in one does not hide the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.files import is_list, is_mapping, mapped

from ..model import known_keys, needed_keys, struct_of
from ._crowds import Crowds, Identities
from ._faulty import Faulty
from ._fields import acts_by_itself, looks_around
from ._fit import Fit
from ._laws import Laws
from ._stand_ins import StandIns
from ._story import Story
from ._timed import Timeline

if TYPE_CHECKING:
    from pathlib import Path

    from ._names import Names


def has_its_parts(data: dict[str, Any]) -> bool:
    """Return whether the parts that others name are there: else all of these names would be wrong ones.

    A misspelt key of the file itself is said alone, with what is wrong in the shape of the rest.
    """
    known, needed = known_keys(data), needed_keys(struct_of(data))
    if any(key not in known for key in data) or any(key not in data for key in needed):
        return False
    return is_mapping(data.get("agents", {})) and is_list(data.get("population", []))


def check_cell(names: Names, folder: Path, *, whole: bool) -> None:
    """Check what agents take, what happens to them, and what must hold; mistakes go to `names`.

    `folder` is that of the file. Where it is not `whole`, as parts of it are wrong in themselves, these may
    be what uses an agent.
    """
    fit, faulty = Fit(names), Faulty(names)
    Crowds(names, fit).check()
    fit.agents()
    StandIns(names, fit).check()
    Identities(names, folder).check()
    story, timeline = Story(names, fit, faulty), Timeline(names, fit, faulty)
    story.check()
    timeline.check()
    Laws(names, fit, faulty, {**story.seen.ids, **timeline.ids}, story.seen.often).check()
    _reports(names)
    if names.fitted and whole and not names.mistakes:
        _idle(names)


def _reports(names: Names) -> None:
    """Refuse two reports in one file: the second would take the place of the first."""
    first: dict[str, str] = {}
    for key, file in mapped(names.cell.data.get("report")).items():
        if isinstance(file, str) and file in first:
            names.wrong(("report", key), f'"{file}" is written twice, by "{first[file]}" too', "shape")
        elif isinstance(file, str):
            first[file] = key


def _idle(names: Names) -> None:
    """Refuse agents that nothing in the file names and that do nothing by themselves.

    Where an agent of the file looks for others, by class, topic or group, it may be these that it finds: then
    there is a warning.
    """
    around = [cls for cls in names.classes.values() if looks_around(cls)]
    for name, path in names.places.items():
        cls: Any = names.classes.get(name)
        if name in names.used or cls is None or acts_by_itself(cls) or names.is_of_tree(name):
            continue
        here, key = (path, True) if path[0] == "agents" else ((*path, "id"), False)
        if around:
            finder = around[0].__name__
            why = f'nothing in the file names the agent "{name}"; perhaps {finder} finds it'
            names.notes.append(names.document.note(here, why, key=key))
        else:
            names.wrong(here, f'nothing uses the agent "{name}", and it does nothing by itself', key=key)
