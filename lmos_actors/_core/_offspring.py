"""The processes that a process of a group has started, itself or through others: none of them outlives it.

Agents start programs, and some programs go on by themselves: they have a session of their own, and a parent
that has ended. On Linux they are found all the same:

- A process of a group becomes the parent of all orphans among what it has started (`adopt`). So all of them
  are below it in the system's tree of processes as long as it runs. They are ended by the process itself, as
  the last thing it does, or by whoever kills the process, just before that (`end_below`).
- If a process of a group has ended by itself, what it started has other parents. It is found by its session,
  which still has that process's number, or by the mark in its environment (`end_left`). If it has neither, it
  is a child of the fork server by now, which starts no such child itself (`end_strangers`).

The new parent of an orphan has to reap it when it ends; it does so once nobody else has for a minute
(`Adopted`). On other systems, only the process group is ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

MARK: Final = "LMOS_ACTORS_PROCESS"
"""The environment variable that marks what a process of a group has started."""

ROUNDS: Final = 50
"""How often processes are looked for: each may have started others since the time before."""


class _Entry(NamedTuple):
    """One process: its parent, its session, and whether it has ended."""

    pid: int
    parent: int
    session: int
    has_ended: bool


def adopt() -> None:
    """Make this process the parent of all orphans below it. Does nothing except on Linux."""
    if sys.platform == "linux":
        import ctypes  # most processes need none of it

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER of prctl(2)


def end_below(pid: int) -> None:
    """Kill all processes below a process, which itself goes on."""
    _end(lambda: _below(pid))


def end_tree(pid: int) -> None:
    """Kill a process, and all processes below it or in its group; meanwhile it can start no others."""
    with suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
    end_below(pid)
    _kill_group(pid)


def end_left(pid: int, mark: str) -> None:
    """Kill the processes that an ended one has left; `mark` is the one in its environment, "" without one."""
    _kill_group(pid)
    _end(lambda: [each.pid for each in _entries() if each.session == pid or _is_marked(each.pid, mark)])


def end_strangers(known: Container[int]) -> None:
    """Kill all children of this process that are not in `known`, with their descendants, and reap them.

    Only for a process that has adopted them and starts no others. Waits for `ROUNDS` milliseconds at most.
    """
    own = os.getpid()
    for _ in range(ROUNDS):
        strangers = [
            each.pid for each in _entries(ended=True) if each.parent == own and each.pid not in known
        ]
        if not strangers:
            return
        for pid in strangers:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # what is below it is a child of this process then
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def _kill_group(pid: int) -> None:
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _end(find: Callable[[], Iterable[int]]) -> None:
    """Kill the processes that `find` returns, until it returns none or has been called `ROUNDS` times."""
    for _ in range(ROUNDS):
        found = [pid for pid in find() if pid != os.getpid()]
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    children: dict[int, list[_Entry]] = {}
    for each in _entries(ended=True):
        children.setdefault(each.parent, []).append(each)
    found, ahead = list[int](), [pid]
    while ahead:
        for each in children.get(ahead.pop(), ()):
            ahead.append(each.pid)
            if not each.has_ended:
                found.append(each.pid)
    return found


def _entries(*, ended: bool = False) -> list[_Entry]:
    """Return the processes of this machine, or none if there is no /proc."""
    found: list[_Entry] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            entry = _Entry(int(path.parent.name), int(fields[1]), int(fields[3]), fields[0] in ("Z", "X"))
            if ended or not entry.has_ended:
                found.append(entry)
    return found


def _is_marked(pid: int, mark: str) -> bool:
    if not mark:
        return False
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


class Adopted:
    """The orphans that this process has adopted, and that have ended."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def reap(self) -> None:
        """Reap the adopted orphans that have ended and have not been reaped for a minute. Never blocks."""
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return
        except ChildProcessError:
            return
        now, before, own = time.monotonic(), self._since, os.getpid()
        ended = [each.pid for each in _entries(ended=True) if each.has_ended and each.parent == own]
        self._since = {pid: before.get(pid, now) for pid in ended}
        for pid, since in tuple(self._since.items()):
            if now - since >= 60.0:  # the code that has started it does not wait for it
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                del self._since[pid]
