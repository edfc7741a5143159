"""Files that commands write for people: reports, logs, cards, exported files.

A regular file is written under a temporary name in its folder and then renamed, so that readers see either
the whole new file or the old one; at worst, a killed process leaves the temporary file behind. Anything else,
such as a pipe, a terminal or `/dev/null`, is written in place. So is a file in a folder where no other can be
made, the file of our own output, and a file that grows over a long time.

Unless the user gives `--force`, nothing is written through a link, and a file is overwritten only if it
begins like the files that our commands write. This protects users who run scenario files of others, as these
name reports, too.

A file that cannot be opened is a usage error (ConfigError). If a file cannot be written later, because the
disk is full, an OSError names the file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from lmos_actors.errors import ConfigError

from ._signals import signals

_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Errors of the system that do not mean a wrong file name."""

_OURS: Final = re.compile(
    rb"^sequenceDiagram\n    title "
    rb"|^file,name,(?:[^\n]*,)?seed,trial,ended,series,agg,time,value\n"
    rb'|^\{\s*"schema":\s*"lmos-actors/'  # logs, cards
    rb'|^\{"cut":'  # a log without a run
    rb'|^(?:<[?!][^>]*>\s*)*<testsuites name="lmos-actors'
    rb'|<meta name="generator" content="lmos-actors">'
    rb"|^# Made from [^\n]* by: lmos-actors export "
)
"""The beginnings of files that our commands write."""


@attrs.define(eq=False)
class Target:
    """A file to write; `place` is its path or, if that is a link, the target of the link.

    `descriptor` is set if the file is written in place.
    """

    path: str
    place: str
    descriptor: int | None
    size: int | None = 0
    """How many bytes we have written to it; None: its former content is still there."""

    def append(self, text: str) -> None:
        """Append text to a file that is written in place. Raises OSError, which names the file.

        The first call discards the former content of the file. A text that cannot be written as a whole is
        removed again.
        """
        assert self.descriptor is not None
        data = text.encode("utf-8", "surrogatepass")
        try:
            if self.size is None:
                self._truncate(0)
            self.size = self.size or 0
            _write_all(self.descriptor, data)
        except OSError as error:
            self._truncate(self.size or 0)
            raise _named(error, self.path) from None
        self.size += len(data)

    def _truncate(self, size: int) -> None:
        assert self.descriptor is not None
        with suppress(OSError):  # a pipe has no length
            os.ftruncate(self.descriptor, size)
            os.lseek(self.descriptor, size, os.SEEK_SET)

    def write(self, text: str) -> None:
        """Write the whole content of the file. Raises OSError, which names the file."""
        if self.descriptor is not None:
            self.append(text)
        else:
            _replace(self.place, text, self.path)

    @property
    def is_regular(self) -> bool:
        """Whether the path is a regular file other than our own standard output."""
        if self.descriptor is None:
            return True
        return stat.S_ISREG(os.fstat(self.descriptor).st_mode) and not _is_our_output(self.place)

    def close(self) -> None:
        """Close the file."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _named(error: OSError, path: str) -> OSError:
    """Return an error of writing a file as an OSError that names the file."""
    reason = error.strerror or str(error)
    return OSError(error.errno or errno.EIO, f"cannot be written: {reason}", ascii(path)[1:-1])


def replace_file(path: str, text: str) -> None:
    """Replace the whole content of a file, or of a link's target, in one step. Raises OSError."""
    _replace(os.path.realpath(path), text, path)


def _replace(place: str, text: str, path: str) -> None:
    """Write a temporary file and rename it to `place`. Raises OSError, which names the file as `path`."""
    half = ""
    with signals.in_order(), signals.held():
        try:
            descriptor, half = _beside(place)
            try:
                _write_all(descriptor, text.encode("utf-8", "surrogatepass"))
            finally:
                os.close(descriptor)
            os.chmod(half, _mode(place))
            os.replace(half, place)
        except OSError as error:
            raise _named(error, path) from None
        finally:
            with suppress(OSError):
                os.unlink(half)


def _beside(real: str) -> tuple[int, str]:
    """Make a file beside another, under a unique name. Raises OSError."""
    folder, name = os.path.split(real)
    return tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=".tmp", dir=folder)


def _mode(path: str) -> int:
    """Return the permissions of a file or, if it does not exist, those of a new file."""
    with suppress(OSError):
        return os.stat(path).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def opened_file(path: str, *, grows: bool = False, force: bool = False) -> Target:
    """Open a file for writing, and make its folders. Its content is kept until the first write.

    A file that `grows` is written in place. `force` allows writing through a link and over any content.
    Raises ConfigError, or OSError if the disk is at fault.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        place = _place(path, force=force)
        if grows or not _can_be_replaced(place):
            return Target(path, place, _opened(place), None)
        return Target(path, place, None)
    except (OSError, ValueError) as error:
        raise unwritten(path, error) from None


def refuse_foreign(path: str) -> None:
    """Raise ConfigError if a path is a link, or a file that none of our commands has written.

    A pipe or a device is allowed, also through a link, and so is the file of our own output: `/dev/stdout`.
    """
    if _is_our_output(path) or (os.path.exists(path) and not os.path.isfile(path)):
        return
    if os.path.islink(path):
        raise ConfigError(f"is a link to {os.path.realpath(path)}: --force writes there", ascii(path)[1:-1])
    if os.path.exists(path) and not _is_ours(path):
        raise ConfigError("is there, and no report of ours: --force writes over it", ascii(path)[1:-1])


def _is_ours(path: str) -> bool:
    """Return whether a file is empty, or begins like a file that our commands write. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(4096)
    return not head or _OURS.search(head) is not None


def _place(path: str, *, force: bool) -> str:
    """Return the path to write to, with links resolved; the path of a pipe or a device is not changed.

    Without `force`, the last part is not resolved, and ConfigError is raised if `refuse_foreign` raises it.
    """
    if not force:
        refuse_foreign(path)
    if _is_our_output(path) or (os.path.exists(path) and not os.path.isfile(path)):
        return path  # what a pipe's link in /proc leads to is no path
    if force:
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _opened(place: str) -> int:
    """Open a file for writing in place.

    Its content is not removed yet, as nothing may ever be written. A pipe without a reader raises an error at
    once.
    """
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    if os.path.isfile(place) and not _is_our_output(place):
        flags |= getattr(os, "O_NOFOLLOW", 0)  # one that was made a link since it was looked at
    descriptor = os.open(place, flags, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _can_be_replaced(place: str) -> bool:
    """Return whether a new file can be renamed over this one. Raises OSError if it is write-protected."""
    if os.path.lexists(place):
        if not stat.S_ISREG(os.stat(place).st_mode) or _is_our_output(place):
            return False
        os.close(_opened(place))  # it may be one that must not be written
    try:
        descriptor, half = _beside(place)
    except OSError:
        return False
    os.close(descriptor)
    os.unlink(half)
    return not os.path.ismount(place)


def _is_our_output(path: str) -> bool:
    """Return whether the file at a path is our standard output or standard error."""
    with suppress(OSError):
        there = os.stat(path)
        return any(os.path.samestat(there, os.fstat(number)) for number in (1, 2))
    return False


def unwritten(path: str, error: OSError | ValueError) -> ConfigError | OSError:
    """Return the error for a file that cannot be written: a usage error, unless the disk is at fault."""
    if isinstance(error, OSError) and error.errno in _DISK:
        return _named(error, path)
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigError(f"cannot be written: {reason}", ascii(path)[1:-1])


def same_file(one: str, other: str) -> bool:
    """Return whether two paths lead to one file, which may not exist yet."""
    try:
        if os.path.realpath(one) == os.path.realpath(other):
            return True
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
