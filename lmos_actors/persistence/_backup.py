"""Copies of stores, even of a store that another process has open and writes to."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from lmos_actors.errors import ConfigError, StoreForeign, StoreFull, StoreInaccessible

from ._lock_file import LockFile
from ._sqlite import check_kind, connected_to_read, failure_of, tidy

if TYPE_CHECKING:
    from collections.abc import Generator


def back_up(path: str, to: str) -> None:
    """Copy a store to a new file, in its state after one of its commits. Raise StoreFailed, ConfigError.

    The copy is complete, or no file is made. The store's writer goes on meanwhile.
    """
    if not os.path.isfile(path):
        raise StoreForeign(path, "it is a folder" if os.path.isdir(path) else "there is no such file")
    real = os.path.realpath(path)
    with new_file(to) as half, _locked_if_free(real):
        try:
            with closing(connected_to_read(real)) as source:
                if not check_kind(source, path):
                    raise StoreForeign(path, "it is empty")
                with closing(sqlite3.connect(half, isolation_level=None)) as copy:
                    source.backup(copy)
        except sqlite3.Error as error:
            failure = failure_of(path, error)
            raise failure_of(to, error) if isinstance(failure, StoreFull) else failure from None


@contextmanager
def _locked_if_free(path: str) -> Generator[None]:
    """Keep writers away for a block if there are none now, and leave no SQLite files beside the store."""
    lock = LockFile(path)
    free = False
    with suppress(OSError):  # in a folder that cannot be written
        free = lock.acquire()
    try:
        yield
    finally:
        if free:
            tidy(path)
            lock.release()


@contextmanager
def new_file(path: str) -> Generator[str]:
    """Yield a temporary path to write a store to; rename the file once it is complete and on the disk.

    Raise ConfigError if the file already exists, StoreFailed if it cannot be made.
    """
    if os.path.lexists(path):
        raise ConfigError("there is such a file already, name a new one", path)
    folder, name = os.path.split(os.path.realpath(path))
    half = ""
    try:
        descriptor, half = tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=".tmp", dir=folder)  # mode 0600
        os.close(descriptor)
        yield half
        for each in (half, folder):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.rename(half, path)
    except OSError as error:
        raise StoreInaccessible(path, f"it cannot be made: {error.strerror}") from None
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                os.unlink(half + end)
