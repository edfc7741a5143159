"""A process that has imported the modules of a group, and forks for each requested process.

Imports take most of the time in which a process starts. The fork server imports once for a launcher, and the
processes share the memory that they do not change. The server's half of this file is at the end. It runs as a
script, whose arguments are the names of the modules to import; none of them is a user's module. It has no
event loop and only one thread, since a fork copies no other thread.

A forked process behaves like a newly started process in all that matters:

- **Its surroundings.** Environment and arguments come with the request, in a file in memory. Variables that
  Python, the C library and OpenSSL read when a process starts can no longer be changed by then: `can_fork`
  returns whether a process can be forked at all. It has a new session, three pipes whose other ends only the
  launcher has, and no other descriptor. Random numbers are seeded again after a fork: `random`, the masks of
  frames and the pool of ids do this by themselves. Hashes of texts are the same in all processes of a
  launcher, and no other program can predict them.
- **Its end.** The server is its parent, and sends the launcher its exit code. The launcher has a descriptor
  of the process, too. So no signal reaches another process that was given the same number, and the end is
  noticed even if the server has been killed. The exit code is then unknown, unless the system makes orphans
  children of the launcher, as it does for the first process of a container; the launcher has to reap them
  then.
- **The end of its launcher.** The pipe that is its standard input closes when the launcher ends in any way.
  So does the socket on which the server receives requests, and the server ends. Its processes continue
  without it.

If this package is upgraded on disk, the launcher and the server still run the version that they started with,
and so do forked processes: the launcher has to be restarted.

A server that has ended is replaced at the next start. Only one process is requested at a time, since the
system limits how many descriptors may be in transit. A process that nothing waits for finds its standard
input closed, and ends as if its launcher had ended.
"""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import adopt, end_left, end_strangers, end_tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ._pause import Pause

AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENSSL_")
"""Beginnings of the names of variables that are read only when a process starts."""

ROOM: Final = 1_000
"""Bytes of meaningless text in the server's command line: see `_show_as`."""

ADOPTED: Final = 50
"""Checks for the end of a process whose server was killed, until another process must be its parent."""

LOOK: Final = 0.02
"""Seconds between two of these checks."""


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a process can be forked if these variables are added to the launcher's environment."""
    has_all = all(hasattr(os, name) for name in ("fork", "pidfd_open", "memfd_create"))
    return has_all and not any(name.startswith(AT_START) for name in environment)


async def pieces_of(stream: Any) -> AsyncGenerator[bytes]:
    """Yield the data from a pipe in pieces, as they arrive."""
    try:
        while piece := await stream.receive_some(1 << 16):
            yield piece
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


# ---- the launcher's half


class ForkedProcess:
    """A process that a fork server has started."""

    def __init__(self, pid: int, handle: int, status: socket.socket, pipes: Sequence[int]) -> None:
        self.pid = pid
        self.mark = ""
        """The mark in its environment, by which the processes that it has started are known."""
        self._handle = handle  # of this process, also when its number has been given to another
        self._status = status
        self._stdin = pipes[0]
        self._stdout, self._stderr = map(trio.lowlevel.FdStream, pipes[1:])
        self._waiting = trio.Lock()
        self._pause: Pause | None = None
        self._is_asked = False
        self.has_ended = False
        """Whether it has ended, and the end has been noticed."""
        self._code: int | None = None

    @property
    def id(self) -> str:
        """See `Process`."""
        return str(self.pid)

    def output(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return pieces_of(self._stdout)

    def errors(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return pieces_of(self._stderr)

    async def wait(self) -> int | None:
        """See `Process`."""
        async with self._waiting:
            if not self.has_ended:
                self._code = await self._end()
                self.has_ended = True
                with trio.CancelScope(shield=True):  # a look at all processes: the loop goes on
                    await trio.to_thread.run_sync(end_left, self.pid, self.mark)
                self._status.close()
                os.close(self._handle)
                os.close(self._stdin)
        return self._code

    async def _end(self) -> int | None:
        answer = await _answer_on(self._status, 0)
        if answer is not None:
            return answer[0]
        await trio.lowlevel.wait_readable(self._handle)
        for _ in range(ADOPTED):
            is_over, code = self._adopted_end()
            if is_over:
                return code
            await trio.sleep(LOOK)  # it has ended before its server, and is nobody's child for a moment
        return None

    def _adopted_end(self) -> tuple[bool, int | None]:
        """Return whether no more can be learned about the process's end, and the exit code, if it is known.

        The code is known if the system has made the process our child, as for a container's first process.
        """
        try:
            end = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return not os.path.exists(f"/proc/{self.pid}"), None  # else another one is to reap it, or we
        if end is None:
            return True, None
        return True, end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def stop(self) -> None:
        """See `Process`."""
        if not self._is_asked:  # a command that gets two takes the second for an order to end at once
            self._is_asked = True
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and all processes that it has started; see `Process`."""
        if self._send(signal.SIGSTOP):
            end_tree(self.pid)
        if self._pause is not None:
            self._pause.forget()

    def pause(self) -> None:
        """Pause the process and all processes that it has started; see `Process`."""
        from ._pause import Pause  # a script has no siblings

        if not self.has_ended:
            self._pause = self._pause or Pause()
            self._pause.begin(self.pid)

    def resume(self) -> None:
        """See `Process`."""
        if not self.has_ended and self._pause is not None:
            self._pause.end(self.pid)

    def _send(self, number: signal.Signals) -> bool:
        """Send a signal; return whether the process still existed."""
        if self.has_ended:
            return False
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return False
        return True


class ForkServer:
    """The fork server of a launcher, started when it is first needed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._process: trio.Process | None = None
        self._asked: socket.socket | None = None
        self._one_at_a_time = trio.Lock()

    @property
    def pid(self) -> int | None:
        """The number of the server's process, None if there is none."""
        return None if self._process is None else self._process.pid

    async def start(self, words: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess | None:
        """Start `lmos-actors` with the given arguments and environment. Raises OSError.

        Returns None if the server ended before it answered.
        """
        async with self._one_at_a_time:
            asked = self._asked or await self._begin()
            process = await _forked(asked, words, environment)
            if process is None:
                await self._finish()
            return process

    async def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, open(os.devnull, "wb") as nowhere:  # noqa: ASYNC230 - it does not block
                self._process = await trio.lowlevel.open_process(
                    [sys.executable, "-P", __file__, *self._modules, " " * ROOM],
                    stdin=theirs.fileno(),
                    stdout=nowhere.fileno(),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._asked = ours
        return ours

    async def aclose(self) -> None:
        """End the server. The processes that it has forked continue."""
        with trio.CancelScope(shield=True):
            await self._finish()

    async def _finish(self) -> None:
        asked, process, self._asked, self._process = self._asked, self._process, None, None
        if asked is not None:
            asked.close()
        if process is not None:
            process.kill()
            await process.wait()


async def _forked(
    asked: socket.socket, words: Sequence[str], environment: Mapping[str, str]
) -> ForkedProcess | None:
    """Request a process from a server; return None if the server has ended. Raises OSError."""
    with ExitStack() as ours:
        with ExitStack() as theirs:
            status, its_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(status).setblocking(False)
            theirs.enter_context(its_status)
            stdin, our_stdin = _pipe(theirs, ours)
            our_stdout, stdout = _pipe(ours, theirs)
            our_stderr, stderr = _pipe(ours, theirs)
            call = os.memfd_create("call")
            theirs.callback(os.close, call)
            with open(call, "w", encoding="ascii", closefd=False) as text:  # noqa: ASYNC230 - in memory
                json.dump({"words": [*words], "environment": {**environment}}, text)
            os.lseek(call, 0, os.SEEK_SET)
            try:
                socket.send_fds(asked, [b"."], [its_status.fileno(), stdin, stdout, stderr, call])
            except ConnectionError:
                return None
        answer = await _answer_on(status, 1)
        if answer is None:
            return None
        pid, handles = answer
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        if not handles:  # no descriptor was free for it: the process ends, as nobody has its standard input
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ours.pop_all()
        return ForkedProcess(pid, handles[0], status, (our_stdin, our_stdout, our_stderr))


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return the two ends of a new pipe, each closed by its exit stack. Raises OSError."""
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


async def _answer_on(status: socket.socket, handles: int) -> tuple[int, list[int]] | None:
    """Wait for a number and descriptors from the server; return None if the server has ended."""
    await trio.lowlevel.wait_readable(status)
    try:
        # The answer is a number.
        answer, found, _, _ = socket.recv_fds(status, 64, handles, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    return (int(answer), found) if answer else None


# ---- the server's half


def _serve(modules: Sequence[str]) -> None:
    """Import the modules, and fork for each request. Returns only in the forked processes."""
    for name in modules:
        import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("a module that the fork server imports has started a thread, which a fork does not have")
    gc.collect()
    gc.freeze()  # what is never looked at by the collector is never copied for it
    _show_as("lmos-actors fork server")
    adopt()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))  # it has two for each process
    files = _next_call(socket.socket(fileno=os.dup(0)))
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    _become(*files)


def _next_call(asked: socket.socket) -> list[int]:
    """Fork for each request, and report ends. Returns only in a forked process, with its descriptors."""
    processes: dict[int, tuple[int, socket.socket]] = {}
    ready = select.poll()
    ready.register(asked, select.POLLIN)
    while True:
        for handle, _ in ready.poll():
            if handle in processes:
                ready.unregister(handle)
                pid, status = processes.pop(handle)
                os.close(handle)
                with status:
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    end_strangers([other for other, _ in processes.values()])
                    _answer(status, code)
                continue
            found, files, _, _ = socket.recv_fds(asked, 1, 5, socket.MSG_CMSG_CLOEXEC)
            if not found:
                os._exit(0)  # the launcher has gone
            status = socket.socket(fileno=files.pop(0))
            try:
                pid = os.fork()
            except OSError as error:
                pid = -int(error.errno or 1)
            if pid == 0:
                for other, (_, its_status) in processes.items():
                    os.close(other)
                    its_status.close()
                status.close()
                asked.close()
                return files
            for file in files:
                os.close(file)
            if pid > 0:
                handle = os.pidfd_open(pid)
                processes[handle] = pid, status
                ready.register(handle, select.POLLIN)
                _answer(status, pid, handle)
            else:
                with status:
                    _answer(status, pid)


def _answer(status: socket.socket, number: int, *handles: int) -> None:
    with suppress(OSError):  # it may be that nobody waits any more
        socket.send_fds(status, [b"%d" % number], handles)


def _become(stdin: int, stdout: int, stderr: int, call: int) -> None:
    """Turn this process into the requested one: session, streams, environment and arguments."""
    os.setsid()
    for number, (name, file) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
        os.dup2(file, number)
        os.close(file)
        _renew(name, number)
    with open(call, encoding="ascii") as text:
        asked = json.load(text)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv[1:] = asked["words"]
    _show_as(" ".join([sys.executable, "-P", "-m", "lmos_actors", *asked["words"]]))


def _renew(name: str, number: int) -> None:
    """Create a standard stream again, since its new file may be of another kind."""
    before = getattr(sys, name)
    at_once = number > 0 and before.write_through  # PYTHONUNBUFFERED
    raw = open(number, "wb" if number else "rb", 0 if at_once else -1, closefd=False)  # noqa: SIM115 - for good
    stream = io.TextIOWrapper(
        raw,
        encoding=before.encoding,
        errors=before.errors,
        newline="\n",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _show_as(text: str) -> None:
    """Make `ps` show a text as the command line, cut to the length of the server's command line.

    The system shows a text up to its first zero byte if the last byte of the command line is not zero.
    """
    with suppress(OSError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        begin, end = map(int, fields[45:47])
        shown = text.encode("utf-8", "surrogateescape")[: end - begin - 2]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(shown.ljust(end - begin - 1, b"\0") + b" ")


if __name__ == "__main__":
    _serve(sys.argv[1:-1])
    runpy.run_module("lmos_actors", run_name="__main__", alter_sys=True)
