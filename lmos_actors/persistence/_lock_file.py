"""The lock of a store's file: a file beside it, locked for as long as the store is open.

SQLite's own exclusive mode would keep readers away, too, and with them a backup of a running node. A lock on
the database itself does not work: SQLite has POSIX locks there, and on some systems the two kinds interact.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

SUFFIX = "-lock"


class LockFile:
    """Exclusive lock of a path, held by a process until it releases the lock or ends."""

    def __init__(self, path: str) -> None:
        self.path = path + SUFFIX
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock, and return whether it was free. Raise OSError."""
        while (descriptor := self._locked()) is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    self._descriptor = descriptor
                    with suppress(OSError):  # a disk that is full: the lock counts, not its text
                        os.ftruncate(descriptor, 0)
                        os.write(descriptor, f"{os.getpid()}\n".encode())
                    return True
            os.close(descriptor)  # its last owner has removed the file since it was opened here
        return False

    def _locked(self) -> int | None:
        """Return a descriptor that holds the lock, None if the lock is taken."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def owner(self) -> str:
        """Return the process that holds the lock, as "process 4711", or "another process" if unknown."""
        with suppress(OSError, ValueError):
            number = int(Path(self.path).read_text(encoding="ascii"))
            return "this process" if number == os.getpid() else f"process {number}"
        return "another process"

    def release(self) -> None:
        """Release the lock, and remove its file."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            os.unlink(self.path)  # before the lock is free: no other owner's file is removed
        os.close(self._descriptor)
        self._descriptor = None
