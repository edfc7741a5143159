"""The identifiers of the server stores that the processes of a deployment have used.

A server that has lost all its data, or another server at its address, looks new to a starting process. So the
launcher records which store was used, also for later launchers, and each process refuses any other store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST: Final = 10_000
"""Maximum stores that are remembered; beyond it, the earliest noted are forgotten."""

MOST_BYTES: Final = 8 << 20
"""Maximum bytes of a file that is read."""


class KnownStores:
    """Identifiers of stores by name, kept in a file if one is given.

    `warn` is called with a text for people if the file cannot be written. Only the first identifier for a
    name is kept; later processes must find the same store.
    """

    def __init__(self, file: Path | None = None, warn: Callable[[str], None] = lambda text: None) -> None:
        """Read the file if it exists, which blocks on the disk. Raise ConfigError if it is not readable."""
        self._file = file
        self._warn = warn
        self._ids: dict[str, str] = {} if file is None else _read(file)

    def id_of(self, name: str) -> str | None:
        """Return the identifier of a store; None if it is not known."""
        return self._ids.get(name)

    def note(self, name: str, id: str) -> None:
        """Store the identifier of a store if its name is new. Blocks on the disk for a short file."""
        if name in self._ids:
            return
        self._ids[name] = id
        while len(self._ids) > MOST:
            del self._ids[next(iter(self._ids))]
        if self._file is None:
            return
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self._ids)))
            os.replace(fresh, self._file)
        except OSError as error:
            self._warn(
                f"{self._file}: {error.strerror}: the next launcher will not notice if a store is lost"
            )


def _read(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as source:
            return msgspec.json.decode(source.read(MOST_BYTES), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = error.strerror
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = str(error)
    raise ConfigError(f"which stores were used cannot be read ({why}): --new-stores forgets them", str(file))
