"""Loading of scenario files for `validate` and `run`, with validation against the agents' classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lmos_actors.files import FileError, Note
from lmos_actors.system import RemoteAccess, accepts, unusable_access

from ._resolve import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from lmos_actors.files import Mistake
    from lmos_actors.system.model import Bridge, Elsewhere

    from ._resolve import Resolved


def load_scenario(
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
    recording: bool = False,
    access: RemoteAccess | None = None,
) -> Resolved:
    """Read a scenario file and check it, including the agents' classes, as far as possible before a run.

    With `recording`, replays are the real agents, for `record_anew`. `access` is for remote agents whose
    entries give no access. With `access`, secrets and certificates must exist. Without it, a missing or
    unusable one is only a warning, as another machine may have it. Imports the agents' modules. Raises
    FileError with every mistake found, and ConfigError as `resolve` does.
    """
    found = resolve(path, settings=settings, seeds=seeds, accepts=accepts, fitted=True, recording=recording)
    mistakes: list[Mistake] = []
    for cell in found.cells:
        others: dict[str, Bridge | Elsewhere] = {**cell.system.remotes, **cell.system.bridges_out}
        if others:
            mistakes += unusable_access(found.document_of(cell), [others], access or RemoteAccess())
    mistakes = list(dict.fromkeys(mistakes))
    if mistakes and access is not None:
        raise FileError(mistakes)
    notes = [Note(each.file, each.line, each.column, f"{each.message}; a run needs it") for each in mistakes]
    return attrs.evolve(found, notes=(*found.notes, *notes), access=access or RemoteAccess())
