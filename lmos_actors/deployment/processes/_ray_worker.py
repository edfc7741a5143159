"""The worker of a Ray actor, which runs one process of a group and keeps its output.

The worker runs nothing but the process of the group. `serve --group` runs in a thread of the worker, with
pipes in place of the three standard streams. So it ends with its standard input, as on the launcher's
machine, and its lines reach the launcher. Ray carries nothing else: messages between agents use separate
connections.

Every method may be called again after it has run, as Ray may lose an answer: `begin` begins only once, and
the argument of `read` is the number of bytes that the caller already has.

If a launcher makes no request for `ORPHAN` seconds, it is assumed to be gone, and the process drains. Ray
keeps the actor until then (`lifetime="detached"`), as it would otherwise kill it in the middle of its work.
If the raylet is gone, Ray lets its workers run on and reports them as dead. The process then drains at once,
so that others get its leases. A worker that is cut off runs until its leases end; after that, the store
refuses its commits.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ORPHAN: Final = 30.0
"""Seconds without a call after which the launcher counts as gone."""

POLL: Final = 5.0
"""Seconds for which a call waits for news."""

MOST_BYTES: Final = 1 << 20
"""Bytes of a stream that may wait to be read; beyond them the process waits in its turn."""

SHIPPED: Final = "file:"
"""Begins a word that is replaced by the path of a file sent with the order."""


def version() -> str:
    """Return the version of this package that is installed here."""
    return metadata.version("lmos-actors")


class Stream:
    """A standard stream of this process, replaced by a pipe that is read here."""

    def __init__(self, number: int) -> None:
        ours, theirs = os.pipe()
        os.dup2(theirs, number)
        os.close(theirs)
        self._number = number
        self._read = ours
        self._kept = bytearray()
        self._before = 0  # bytes before the kept ones
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._fill, name=f"stream {number}", daemon=True).start()

    def _fill(self) -> None:
        while piece := os.read(self._read, 65_536):
            with self._changed:
                self._changed.wait_for(lambda: len(self._kept) < MOST_BYTES)
                self._kept += piece
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def after(self, taken: int, seconds: float) -> tuple[bytes, bool]:
        """Return the data after the first `taken` bytes, and whether it is complete.

        Wait up to `seconds` if there is no such data yet.
        """
        with self._changed:
            del self._kept[: max(0, taken - self._before)]
            self._before = max(self._before, taken)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._kept or self._ended, seconds)
            return bytes(self._kept), self._ended

    def close(self) -> None:
        """Discard all later output of this process."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._number)
        os.close(nowhere)


class RayReplica:
    """One process of a group, as an actor of Ray with threads.

    `command` is called with the arguments of the process. Ray sends a function by name, so it must be in a
    module that the worker can import.
    """

    def __init__(self, command: Callable[[Sequence[str]], object]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._streams: dict[int, Stream] = {}
        self._stdin: int | None = None
        self._code: int | None = None
        self._ended = threading.Event()
        self._heard = time.monotonic()
        self._raylet = os.getppid()

    def begin(
        self,
        words: Sequence[str],
        files: Sequence[tuple[str, bytes]],
        environment: Mapping[str, str],
        launcher: str,
    ) -> tuple[str, int]:
        """Start the process unless it is started; return the machine's address and the process's number.

        `words` are the arguments of `lmos-actors serve`, `files` are the files sent with them, and `launcher`
        is the launcher's version of this package. Raise RuntimeError if another version is installed here.
        """
        host = str(import_module("ray").util.get_node_ip_address())
        if launcher != version():
            raise RuntimeError(
                f"lmos-actors {version()} is installed on {host}, and the launcher has {launcher}: "
                "install the same version on all machines"
            )
        with self._lock:
            if not self._streams:
                folder = Path(tempfile.mkdtemp(prefix="lmos-"))
                for name, content in files:
                    (folder / name).write_bytes(content)
                os.environ.update(environment)
                self._streams = {number: Stream(number) for number in (1, 2)}
                # what Ray has put in their place writes elsewhere
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
                sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
                theirs, self._stdin = os.pipe()
                os.dup2(theirs, 0)
                os.close(theirs)
                placed = [
                    str(folder / word.removeprefix(SHIPPED)) if word.startswith(SHIPPED) else word
                    for word in words
                ]
                placed += ["--host", host]  # that of the machine says nothing to others
                for work in (lambda: self._serve(placed), self._watch):
                    threading.Thread(target=work, daemon=True).start()
        self._heard = time.monotonic()
        return host, os.getpid()

    def _serve(self, words: Sequence[str]) -> None:
        code = 1
        try:
            self._command(list(words))
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: ASYNC103 -- outside of trio: it is printed, and is the exit code
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            self._code = code
            for stream in self._streams.values():
                stream.close()
            self._ended.set()

    def _watch(self) -> None:
        """End the process once the launcher, or the raylet that started the worker, is gone."""
        while time.monotonic() - self._heard < ORPHAN and os.getppid() == self._raylet:
            time.sleep(0.5)
        with self._lock:
            if self._stdin is not None:
                os.close(self._stdin)  # which the process sees
                self._stdin = None  # its number may be another file's from now on
        self._ended.wait()
        os._exit(0)

    # ---- what the launcher asks

    def read(self, stream: int, taken: int) -> tuple[bytes, bool]:
        """Return the bytes of a stream that the launcher does not have yet, and whether the stream ends
        there.
        """
        self._heard = time.monotonic()
        return self._streams[stream].after(taken, POLL)

    def wait(self) -> int | None:
        """Wait a while for the end; return the exit code, or None if the process is still running."""
        self._heard = time.monotonic()
        self._ended.wait(POLL)
        return self._code

    def stop(self) -> None:
        """Ask the process to drain."""
        self._heard = time.monotonic()
        with self._lock:
            if self._stdin is not None:
                os.write(self._stdin, b"stop\n")
