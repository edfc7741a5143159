"""Loading of scenario files for `validate` and `run`: with validation against the classes of the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._fields import accepts
from ._resolve import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ._resolve import Resolved


def load_scenario(
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
    recording: bool = False,
) -> Resolved:
    """Read a scenario file and check all that can be known before a run, the agents' classes included.

    With `recording` its replays are the real agents, for `record_anew`. Imports the agents' modules. Raises
    FileError with every mistake found; ConfigError as `resolve` does.
    """
    return resolve(path, settings=settings, seeds=seeds, accepts=accepts, fitted=True, recording=recording)
