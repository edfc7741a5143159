"""The files by which commands find a launcher: a socket and a lock for each deployment file of a user."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from lmos_actors.errors import ConfigError, ConnectFailed, LmosActorsError
from lmos_actors.persistence import LockFile
from lmos_actors.security import SharedToken
from lmos_actors.transport import DirectStream

if TYPE_CHECKING:
    import ssl

    from lmos_actors.transport import Endpoint

PRIVATE: Final = 0o700
MOST_PATH: Final = 60
"""Maximum bytes of the path of the sockets' folder: systems allow about a hundred for a socket's path."""

TOKEN_LENGTH: Final = 64
"""Characters of a launchers' token."""


class AlreadyRunning(LmosActorsError):
    """A launcher for the file is already running; `process` names it."""

    def __init__(self, file: str, process: str, state: str = "") -> None:
        self.process = process
        where = f" with --state {state}" if state else ""
        super().__init__(f"{file}: {process} runs it already{where}: `status` shows it, `down` ends it")


@attrs.frozen
class Controls:
    """The paths of one deployment: its file, the folder for its state, and its socket."""

    file: str
    folder: Path
    socket: Path

    @property
    def logs(self) -> Path:
        """The folder of the deployment's logs."""
        return self.folder / "logs"

    @property
    def copies(self) -> Path:
        """The folder of copies of the deployment file, one for each reading by a launcher."""
        return self.folder / "copies"

    @property
    def records(self) -> Path:
        """The file that lists the deployment's processes."""
        return self.folder / "processes"

    @property
    def stores(self) -> Path:
        """The file that lists the server stores which the deployment's processes have used."""
        return self.folder / "stores"

    def token(self) -> str:
        """Return the token of this file's launchers; create one if there is none. Raises ConfigError.

        The token is stored beside the socket, readable only by its owner, until a launcher ends in order. So
        after `kill -9` the next launcher has the same token. A file that others could have read or written is
        ignored.
        """
        path = self.socket.with_suffix(".token")
        try:
            with suppress(FileNotFoundError):
                kept = _own_text(path)
                if kept is not None:
                    return kept
            fresh, made = path.with_suffix(".new"), SharedToken.new()
            fresh.unlink(missing_ok=True)
            with open(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
            ) as file:
                file.write(made)
            os.replace(fresh, path)
        except OSError as error:
            raise self.unwritable(error) from None
        return made

    def prepare(self) -> LockFile:
        """Create the folders and take the lock.

        Raises AlreadyRunning, and ConfigError if a folder is not writable or not private.
        """
        try:
            self.folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            private = self.socket.parent
            private.mkdir(mode=PRIVATE, exist_ok=True)
            found = private.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise ConfigError("is to be a folder of your own that nobody else can enter", str(private))
            lock = self._locked()
            try:
                self.check_alone()
                with suppress(FileNotFoundError):
                    self.socket.unlink()  # of one that was killed
                shutil.rmtree(self.copies, ignore_errors=True)
                self.socket.with_suffix(".json").write_bytes(
                    msgspec.json.encode({"file": self.file, "folder": str(self.folder)})
                )
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise self.unwritable(error) from None
        return lock

    def unwritable(self, error: OSError) -> ConfigError:
        """Return the error to raise if the folder of state is not writable."""
        where = error.filename or self.folder
        return ConfigError(f"{where}: {error.strerror}: --state FOLDER names another", self.file)

    def _locked(self) -> LockFile:
        """Take the lock, with several attempts, since a command that checks the lock holds it briefly."""
        lock = LockFile(str(self.folder / "launcher"))
        for _ in range(5):
            if lock.acquire():
                return lock
            time.sleep(0.02)
        raise AlreadyRunning(self.file, lock.owner())

    def running(self) -> Controls | None:
        """Return the paths of the launcher that runs this file, in any folder. Blocks on the disk."""
        return next((each for each in running_controls() if each.file == self.file), None)

    def check_alone(self) -> None:
        """Raise AlreadyRunning if a launcher with another folder runs this file. Blocks on the disk."""
        other = self.running()
        if other is not None and other.folder != self.folder:
            raise AlreadyRunning(self.file, other.owner(), str(other.folder))

    def owner(self) -> str:
        """Return the launcher's name: "process 4711", or "another process" if its number is not known."""
        return LockFile(str(self.folder / "launcher")).owner()

    def is_running(self) -> bool:
        """Return whether a launcher is running. Blocks on the disk."""
        try:
            descriptor = os.open(LockFile(str(self.folder / "launcher")).path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def remove(self) -> None:
        """Remove the socket, and the files beside it."""
        for path in (self.socket, *map(self.socket.with_suffix, (".json", ".token"))):
            with suppress(OSError):
                path.unlink()


def controls_of(file: str, state: str | None = None) -> Controls:
    """Return the paths of a deployment; `state` is the folder for its state, by default beside the file."""
    path = Path(file).resolve()
    folder = path.parent / ".lmos" / path.stem if state is None else Path(state).resolve()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Controls(str(path), folder, _sockets() / f"{digest}.sock")


def running_controls() -> list[Controls]:
    """Return the paths of all running deployments of this user. Blocks on the disk."""
    found: list[Controls] = []
    for path in sorted(_sockets().glob("*.json")):
        with suppress(OSError, msgspec.DecodeError, KeyError, TypeError):
            data: Any = msgspec.json.decode(path.read_bytes())
            each = Controls(data["file"], Path(data["folder"]), path.with_suffix(".sock"))
            if each.is_running():
                found.append(each)
    return found


def _sockets() -> Path:
    """Return the folder of this user's sockets, which is short because socket paths are limited."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own and os.path.isdir(own) and len(os.fsencode(own)) <= MOST_PATH:
        return Path(own) / "lmos-actors"
    usual = tempfile.gettempdir()
    place = usual if len(os.fsencode(usual)) <= MOST_PATH else "/tmp"
    return Path(place) / f"lmos-actors-{os.getuid()}"


def _own_text(path: Path) -> str | None:
    """Return the token in a file; None if it is not a valid token or others could read it. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise
    with open(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        is_own = found.st_uid == os.getuid() and not found.st_mode & 0o077
        text = file.read(TOKEN_LENGTH + 1) if stat.S_ISREG(found.st_mode) and is_own else ""
    return text if len(text) == TOKEN_LENGTH and not text.strip("0123456789abcdef") else None


class UnixNetwork:
    """A `Network` with one socket of this machine, used for every address, by which a launcher is reached."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connect to the launcher's socket. Raises ConnectFailed."""
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await sock.connect(str(self._path))
        except OSError as error:
            sock.close()
            raise ConnectFailed(endpoint.url, f"no launcher is there: {error.strerror or error}") from error
        except BaseException:
            sock.close()
            raise
        return DirectStream(socket.socket(fileno=sock.detach()))

    async def listen(self, endpoint: Endpoint) -> UnixListener:
        """Listen on the socket, which only its owner may use. Raises ConfigError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(self._path))
            os.chmod(self._path, 0o600)
            sock.listen(64)
        except OSError as error:
            sock.close()
            raise ConfigError(f"{self._path}: {error.strerror or error}", "socket") from None
        sock.setblocking(False)
        return UnixListener(sock, (endpoint.host, endpoint.port))


class UnixListener:
    """A listening socket of this machine."""

    def __init__(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self._socket = sock
        self.addresses = (address,)

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        """Wait for the next connection. Raises trio.ClosedResourceError once the listener is closed."""
        await trio.lowlevel.checkpoint()
        while True:
            if self._socket.fileno() < 0:
                raise trio.ClosedResourceError("the listener is closed")
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError:
                await trio.sleep(0.1)  # no descriptor is free, or the peer has gone again
            else:
                return DirectStream(accepted), "launcher:1"

    async def aclose(self) -> None:
        """Stop listening."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()
