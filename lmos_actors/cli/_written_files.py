"""Files that commands write for people: reports, logs, cards, exported files.

A regular file is written beside its place and renamed, so that readers see it whole, or see the old
one; a process that is killed leaves a file with a name of its own behind, at worst. What is no regular file,
as a pipe, a terminal or `/dev/null`, is written in place; so is a file that stands alone in a folder where
none can be made, and one that our own output goes to. What grows for long is written in place too.

Unless the user gives `--force`, nothing is written through a link, and nothing over a file that does not
begin as what a command of ours writes: a scenario file of others names its reports, too.

A file that cannot be opened is a usage error (ConfigError); one that cannot be written later, when the disk
is full, is an OSError that names the file.
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
"""Errors of the system that are no mistake in the file name."""

_HEAD: Final = 4096
"""Bytes that tell what wrote a file."""

_OURS: Final = re.compile(
    rb"^sequenceDiagram\n    title "
    rb"|^file,name,(?:[^\n]*,)?seed,trial,ended,series,agg,time,value\n"
    rb'|^\{\s*"schema":\s*"lmos-actors/'  # logs, cards
    rb'|^\{"cut":'  # a log without a run
    rb'|^(?:<[?!][^>]*>\s*)*<testsuites name="lmos-actors'
    rb'|<meta name="generator" content="lmos-actors">'
    rb"|^# Made from [^\n]* by: lmos-actors export "
)
"""How what our commands write begins."""


@attrs.define(eq=False)
class Target:
    """A file to write, under its path; `place` is that path, or what it is a link to.

    `descriptor`: where it is written in place.
    """

    path: str
    place: str
    descriptor: int | None
    size: int | None = 0
    """How many of our bytes it holds; None: its former content is still there."""

    def append(self, text: str) -> None:
        """Write at the end of a file that is written in place. Raises OSError, which names the file.

        What the file held before is gone. Where there is no room for all of the text, none of it stays.
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
        """Whether it is a file that can be looked at afterwards, and none that our own output goes to."""
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
    """Return an error of writing a file as one that names it."""
    reason = error.strerror or str(error)
    return OSError(error.errno or errno.EIO, f"cannot be written: {reason}", ascii(path)[1:-1])


def replace_file(path: str, text: str) -> None:
    """Write a file as a whole, or leave the one that is there; a link is followed. Raises OSError."""
    _replace(os.path.realpath(path), text, path)


def _replace(place: str, text: str, path: str) -> None:
    """Write the file at a place. Raises OSError, which names the file by its path."""
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
    """Make a file beside another, with a name of its own. Raises OSError."""
    folder, name = os.path.split(real)
    return tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=".tmp", dir=folder)


def _mode(path: str) -> int:
    """Return the permissions of a file that is there, else those that a new one has."""
    with suppress(OSError):
        return os.stat(path).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def opened_file(path: str, *, grows: bool = False, force: bool = False) -> Target:
    """Open a file to write, in folders that are made; what it holds stays for now. Raises ConfigError.

    One that `grows` is written in place. `force`: through a link, and over whatever is there.
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
    """Raise ConfigError if a path is a link, or leads to a file that no command of ours has written.

    A pipe or a device is written, also through a link, as is a file that our output goes to: `/dev/stdout`.
    """
    if _is_our_output(path) or (os.path.exists(path) and not os.path.isfile(path)):
        return
    if os.path.islink(path):
        raise ConfigError(f"is a link to {os.path.realpath(path)}: --force writes there", ascii(path)[1:-1])
    if os.path.exists(path) and not _is_ours(path):
        raise ConfigError("is there, and no report of ours: --force writes over it", ascii(path)[1:-1])


def _is_ours(path: str) -> bool:
    """Return whether a file is empty, or begins as what a command of ours writes. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    return not head or _OURS.search(head) is not None


def _place(path: str, *, force: bool) -> str:
    """Return what a path leads to; where that must not be a link, the last part of it is none followed."""
    if not force:
        refuse_foreign(path)
    if _is_our_output(path) or (os.path.exists(path) and not os.path.isfile(path)):
        return path  # what a pipe's link in /proc leads to is no path
    if force:
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _opened(place: str) -> int:
    """Open a file to be written in place.

    Its content stays until there is something to write, as it may turn out that it must stay. A pipe without
    a reader is an error, and is not waited for.
    """
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    if os.path.isfile(place) and not _is_our_output(place):
        flags |= getattr(os, "O_NOFOLLOW", 0)  # one that was made a link since it was looked at
    descriptor = os.open(place, flags, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _can_be_replaced(place: str) -> bool:
    """Return whether a file can be made beside a place, to replace it. Raises OSError if write-protected."""
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
    """Return whether our standard output, or error output, goes to a file."""
    with suppress(OSError):
        there = os.stat(path)
        return any(os.path.samestat(there, os.fstat(number)) for number in (1, 2))
    return False


def unwritten(path: str, error: OSError | ValueError) -> ConfigError | OSError:
    """Return the error of a file that cannot be written: a usage error, unless the disk is at fault."""
    if isinstance(error, OSError) and error.errno in _DISK:
        return _named(error, path)
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigError(f"cannot be written: {reason}", ascii(path)[1:-1])


def same_file(one: str, other: str) -> bool:
    """Return whether two paths lead to one file, which need not be there yet."""
    try:
        if os.path.realpath(one) == os.path.realpath(other):
            return True
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
