"""The file of a recording: a message log to which each record is written as soon as it happens.

Only its owner can read it, and an existing file is never overwritten. If the process is killed, the file has
whole records, at worst followed by a part of one more, and lacks only its last line, with the SHA-256.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import ConfigError
from lmos_actors.simulation import TraceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class RecordingFile:
    """A message log that is written record by record. Raise ConfigError if the file cannot be created.

    `head` is the data about the recording in its first line; `now` returns the seconds since the start.
    """

    def __init__(self, path: str, head: Mapping[str, object], now: Callable[[], float]) -> None:
        self.path = path
        self.records = 0
        try:
            # Only its owner may read it.
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise ConfigError("is there already, and is not written over", path) from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"cannot be written: {why}", path) from None
        self._log = TraceLog(self, keep=0, run=head)
        self._log.begin(seed=None, now=now)
        self._log.flush()

    def write(self, text: str, /) -> None:
        """Write whole lines. Raises OSError, which names the file."""
        left = memoryview(text.encode("utf-8", "surrogatepass"))
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            why = f"cannot be written: {error.strerror or error}"
            raise OSError(error.errno or errno.EIO, why, self.path) from None

    def record(self, kind: str, agent: str, **fields: Any) -> None:
        """Write a record. Raises OSError, which names the file."""
        self._log.record(kind, agent, fields)
        self._log.flush()
        self.records += 1

    def end(self) -> None:
        """Write the last line. Raises OSError, which names the file."""
        self._log.end()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._descriptor)
