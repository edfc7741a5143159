"""The pausing of processes by SIGSTOP, as a fault, with a shell that guards them in the meantime."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from subprocess import PIPE, Popen


def kill_with_us(group: int) -> Popen[bytes]:
    """Start a shell that kills a process group once this process has ended.

    The shell waits for the end of its standard input, which closes when this process ends in any way. Kill
    the shell to prevent that.
    """
    return Popen(["/bin/sh", "-c", f"read _; kill -KILL -{group}"], stdin=PIPE, start_new_session=True)


class Pause:
    """The pause of a process group: a process, and all processes that it has started.

    A stopped process does not notice the end of its launcher, so a shell watches the launcher in its place.
    """

    def __init__(self) -> None:
        self._shell: Popen[bytes] | None = None

    def begin(self, group: int) -> None:
        """Stop a group, unless it is already stopped."""
        _send(group, signal.SIGSTOP)
        if self._shell is None:
            self._shell = kill_with_us(group)

    def end(self, group: int) -> None:
        """Continue a group, if it is stopped."""
        if self._shell is not None:
            self.forget()
            _send(group, signal.SIGCONT)

    def forget(self) -> None:
        """Stop guarding the group, which has been killed."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            shell.communicate()


def _send(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
