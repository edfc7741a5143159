"""Hosts for tests that are network namespaces of this machine: each has an address and a cable of its own.

The cables are `veth` pairs that end in one more namespace, which has a bridge: the switch. So nothing of the
machine's own network is changed, and its addresses are not used; packets between hosts go through the
kernel as those of real hosts do. A cable that is pulled out (`cut_off`) is a link that is down at the switch:
the host notices nothing, and what is sent to it is lost without an answer.

The clock, the disk and the processors are those of one machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests import slow_cable

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

IP: Final = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
_networks = count(1)


class NotAllowed(Exception):
    """The machine allows no hosts, or does not have what is asked of them."""


def _ip(*words: str) -> None:
    """Run `ip`. Raises NotAllowed."""
    if IP is None:
        raise NotAllowed("there is no program `ip`: install iproute2")
    done = subprocess.run([IP, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAllowed(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Hosts:
    """Hosts 1, 2, ... with the addresses 10.77.0.1, 10.77.0.2, ...; all is removed at the end.

    Raises NotAllowed where the machine does not allow that.
    """

    def __init__(self, number: int) -> None:
        self._prefix = f"lmos{os.getpid():x}-{next(_networks)}"
        self._numbers = range(1, number + 1)
        self._made = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            self._add_namespace("switch", made)
            self._at_switch("link", "add", "bridge", "type", "bridge")
            self._at_switch("link", "set", "bridge", "up")
            for number in self._numbers:
                self._add_host(number, made)
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    @staticmethod
    def address(number: int) -> str:
        """Return the address of a host."""
        return f"10.77.0.{number}"

    def command(self, number: int, *words: str) -> list[str]:
        """Return the command line that runs a program on a host."""
        return self._command(str(number), *words)

    def cut_off(self, number: int) -> None:
        """Pull out the cable of a host."""
        self._at_switch("link", "set", f"port{number}", "down")

    def heal(self, number: int) -> None:
        """Plug it in again."""
        self._at_switch("link", "set", f"port{number}", "up")

    @contextmanager
    def slowed(self, number: int, milliseconds: int) -> Generator[None]:
        """Have all that is sent to a host and by it arrive later. Raises NotAllowed."""
        near, far, port = f"near{number}", f"far{number}", f"port{number}"
        words = (sys.executable, slow_cable.__file__, str(milliseconds), near, far)
        with subprocess.Popen(self._command("switch", *words), stdout=subprocess.PIPE) as carrier:
            try:
                if carrier.stdout is None or not carrier.stdout.readline():
                    raise NotAllowed("there are no taps here: /dev/net/tun is missing, or not allowed")
                self._at_switch("link", "add", f"bridge{number}", "type", "bridge")
                self._at_switch("link", "set", f"bridge{number}", "up")
                self._at_switch("link", "set", near, "master", f"bridge{number}", "up")
                self._at_switch("link", "set", far, "master", "bridge", "up")
                self._at_switch("link", "set", port, "master", f"bridge{number}")
                yield
                self._at_switch("link", "set", port, "master", "bridge")
                self._at_switch("link", "delete", f"bridge{number}")
            finally:
                carrier.kill()

    def _command(self, name: str, *words: str) -> list[str]:
        assert IP is not None
        return [IP, "netns", "exec", self._namespace(name), *words]

    def _add_namespace(self, name: str, made: ExitStack) -> None:
        namespace = self._namespace(name)
        _ip("netns", "add", namespace)
        made.callback(_ip, "netns", "delete", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _add_host(self, number: int, made: ExitStack) -> None:
        name, port = str(number), f"port{number}"
        namespace = self._namespace(name)
        self._add_namespace(name, made)
        self._at_switch("link", "add", port, "type", "veth", "peer", "name", "cable", "netns", namespace)
        self._at_switch("link", "set", port, "master", "bridge", "up")
        _ip("-n", namespace, "address", "add", f"{self.address(number)}/24", "dev", "cable")
        _ip("-n", namespace, "link", "set", "cable", "up")

    def _at_switch(self, *words: str) -> None:
        _ip("-n", self._namespace("switch"), *words)

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"


@cache
def _refusal() -> str:
    """Return why there are no hosts here; nothing where there are."""
    try:
        with Hosts(1) as hosts, hosts.slowed(1, 1):
            return ""
    except NotAllowed as error:
        return str(error)


def needs_hosts() -> None:
    """Skip a test, by name, where the machine allows no network namespaces; or fail, if they are required."""
    if why := _refusal():
        why = f"no network namespaces here: {why}"
        if os.environ.get("LMOS_ACTORS_HOSTS") == "required":
            pytest.fail(why)
        pytest.skip(why)
