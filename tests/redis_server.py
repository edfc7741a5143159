"""A real Redis server for tests: on loopback, with a folder of its own, ended and started again at will."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(
    PROGRAM is None and os.environ.get("LMOS_ACTORS_REDIS") != "required",
    reason="there is no redis-server here",
)


class RedisServer:
    """A server, whose settings are those of Debian but for what is named here."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.settings = settings
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, prefix: str = "lmos", **parameters: str) -> str:
        """Return the URL of a store."""
        rest = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}{rest}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert PROGRAM is not None, "there is no redis-server, and LMOS_ACTORS_REDIS=required asks for one"
        common = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        if "--appendonly" not in self.settings:
            common += ["--appendonly", "yes"]
        self._process = subprocess.Popen(
            [PROGRAM, *common, *self.settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            restore_signals=False,  # a limit of the size of its files is an error to it, not its end
        )
        while self._process.poll() is None:
            with suppress(OSError):
                if self.send("PING").startswith((b"+PONG", b"-NOAUTH")):
                    return
            time.sleep(0.02)  # a process says nothing when it listens
        raise RuntimeError(f"redis-server has ended with {self._process.returncode}")

    def send(self, *words: str) -> bytes:
        """Return the answer to one command, as it is on the wire."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall("".join([f"*{len(words)}\r\n", *map(_bulk, words)]).encode())
            return connection.recv(65_536)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pid(self) -> int:
        """Return its process id."""
        assert self._process is not None
        return self._process.pid


def _bulk(word: str) -> str:
    return f"${len(word.encode())}\r\n{word}\r\n"
