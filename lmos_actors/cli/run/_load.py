"""Loading of scenario files: reading, checking, and printing their mistakes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from lmos_actors._collector import collector
from lmos_actors.reports import worst
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.format import load_scenario

from .._importing import importing, print_notes
from ._display import mistakes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors.errors import ConfigError
    from lmos_actors.scenario.format import Resolved
    from lmos_actors.system import RemoteAccess

Wrong: TypeAlias = list[dict[str, Any]]
"""Mistakes as plain data, for `--json`."""


def load_files(
    files: Sequence[str],
    settings: Mapping[str, str],
    seeds: Sequence[int] | None = None,
    real_limit: float = REAL_LIMIT,
    wrong: Wrong | None = None,
    *,
    access: RemoteAccess | None = None,
) -> tuple[list[tuple[str, Resolved]], int]:
    """Read all files, importing modules they name, and return them with the exit code.

    Mistakes and warnings are printed; mistakes are also added to `wrong`, if given. `access` is given for
    files that will be run: the credentials for their remote agents must exist.
    """
    found: list[tuple[str, Resolved]] = []
    codes: set[int] = set()
    for file in files:
        load = partial(load_scenario, file, settings=settings, seeds=seeds, access=access)
        loaded = importing(file, load, real_limit, noting(wrong))
        if isinstance(loaded, int):
            codes.add(loaded)
            continue
        print_notes(loaded.notes)
        found.append((file, loaded))
    collector.settle()
    return found, worst(codes)


def noting(wrong: Wrong | None) -> Callable[[ConfigError], None]:
    """Return a function that adds the mistakes of an error to `wrong`, if that is not None."""

    def note(error: ConfigError) -> None:
        if wrong is not None:
            wrong.extend(mistakes_of(error))

    return note
