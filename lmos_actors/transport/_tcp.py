"""TCP streams of the operating system, with few steps per message, and their listeners."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, notify_closing, wait_readable, wait_writable

from lmos_actors.errors import ConfigError, ConnectFailed, group_of

from ._crowds import present_crowd
from ._network import is_here, secured

if TYPE_CHECKING:
    import ssl

    from ._network import Endpoint


TAKEN: Final = "; end what listens there, or choose another port"

_BACKLOG: Final = 1024
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_IDLE: Final = (BlockingIOError, InterruptedError)
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # a close that resets


class DirectStream(trio.abc.HalfCloseableStream):
    """A TCP stream that waits before it reads, and sends without a checkpoint what the kernel takes at once.

    A peer that sends a request and waits has sent nothing more yet: trying to read first would waste a system
    call. After a read that filled its buffer there is likely more data, so the next read tries first, after a
    checkpoint.
    """

    __slots__ = ("__weakref__", "_crowd", "_is_new", "_more", "_said_last", "_socket")

    def __init__(self, sock: socket.socket, *, is_new: bool = False) -> None:
        """Wrap a socket. `is_new`: the first bytes that arrive wait for their turn, see `Crowd`."""
        sock.setblocking(False)
        with suppress(OSError):  # some systems refuse it where the peer is gone already: reading tells that
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._crowd = present_crowd()
        self._is_new = is_new
        self._more = False
        self._said_last = False

    def _check_open(self) -> None:
        # a closed socket's descriptor is -1, and waiting for that would leave an entry in trio's tables
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError("the stream is closed")

    def _check_sending(self) -> None:
        self._check_open()
        if self._said_last:
            raise trio.ClosedResourceError("this end of the stream has said its last")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send as many bytes as the kernel takes, without waiting; return how many were sent."""
        try:
            return self._socket.send(data)
        except _IDLE:
            return 0
        except OSError as error:
            self._check_sending()  # raises, if this end is closed
            raise trio.BrokenResourceError(f"sending failed: {error.strerror}") from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data, without a checkpoint if the kernel takes it all."""
        self._check_sending()
        sent = self.send_now(data) if data else 0
        if sent == len(data):
            return
        with memoryview(data) as view:
            while sent < len(view):
                await wait_writable(self._socket)
                sent += self.send_now(view[sent:])

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel takes some bytes."""
        self._check_sending()
        await wait_writable(self._socket)

    def has_news(self) -> bool:
        """Whether receiving would return at once, because data has arrived or the stream has ended."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except _IDLE:
            return False
        except OSError:
            return True
        return True

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for data and return up to `max_bytes`; empty if the peer has ended its side."""
        if self._socket.fileno() < 0:
            self._check_open()  # raises
        size = max_bytes or 65536
        if self._more:
            await checkpoint()
        else:
            await wait_readable(self._socket)
        while True:
            if self._socket.fileno() < 0:
                self._check_open()  # raises: it was closed while this waited
            try:
                data = self._socket.recv(size)
            except _IDLE:
                await wait_readable(self._socket)
            except OSError as error:
                await self._crowd.leave()
                raise trio.BrokenResourceError(f"receiving failed: {error.strerror}") from error
            else:
                self._more = len(data) == size
                if not data:
                    await self._crowd.leave()
                elif self._is_new:
                    self._is_new = False
                    await self._crowd.arrive()
                else:
                    self._crowd.news += 1
                return data

    async def send_eof(self) -> None:
        """Close the sending half; receiving goes on."""
        self._check_open()
        self._said_last = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError(f"shutting down failed: {error.strerror}") from error
        await checkpoint()

    async def aclose(self) -> None:
        """Close the socket."""
        self._close()
        await checkpoint()

    def _close(self) -> None:
        if self._socket.fileno() >= 0:
            notify_closing(self._socket)
            self._socket.close()

    def break_now(self) -> None:
        """Reset the connection and close the socket at once: the peer sees a broken stream, not its end.

        Bytes that the kernel has not sent are lost.
        """
        with suppress(OSError):  # it is closed already, or reset by the peer
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._close()


class TcpListener:
    """Listening sockets, one per address of the host."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._addresses = tuple(sock.getsockname()[:2] for sock in sockets)
        self._at_once = 0  # connections accepted since other tasks had their turn
        self._crowd = present_crowd()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The host and port of each socket, available even after the listener is closed."""
        return self._addresses

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        """Wait for the next connection; if file descriptors run out, wait until some are free.

        Raises trio.ClosedResourceError once the listener is closed. Several waiting connections are accepted
        without a pass of the loop between them: with one in each pass, the last of many that arrive at once
        would wait for the turns of all those before it.
        """
        self._at_once += 1
        if self._at_once < 24:
            await checkpoint_if_cancelled()
        else:
            self._at_once = 0
            await checkpoint()
        while self._crowd.is_full:
            await checkpoint()
        while True:
            for sock in self._sockets:
                if sock.fileno() < 0:
                    raise trio.ClosedResourceError("the listener is closed")
                try:
                    accepted, peer = sock.accept()
                except _IDLE:
                    continue
                except OSError as error:
                    await _pause(error)
                    continue
                host, port = peer[:2]
                shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                return DirectStream(accepted, is_new=True), shown
            self._at_once = 0
            await self._wait()

    async def _wait(self) -> None:
        if len(self._sockets) == 1:
            await wait_readable(self._sockets[0])
            return
        async with trio.open_nursery() as nursery:
            for sock in self._sockets:
                nursery.start_soon(_wait_for_one, sock, nursery.cancel_scope)

    async def aclose(self) -> None:
        """Stop listening."""
        for sock in self._sockets:
            if sock.fileno() >= 0:
                notify_closing(sock)
                sock.close()
        await checkpoint()


async def _wait_for_one(sock: socket.socket, scope: trio.CancelScope) -> None:
    await wait_readable(sock)
    scope.cancel()


async def _pause(error: OSError) -> None:
    if error.errno in _EXHAUSTED:
        await trio.sleep(0.1)  # until descriptors or memory may be free again
    else:
        await checkpoint()  # the peer has gone again, before it was accepted


class TcpNetwork:
    """The `Network` of the operating system."""

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connect to the first of the host's addresses that answers, including the TLS handshake.

        Raises ConnectFailed.
        """
        try:
            found = await trio.open_tcp_stream(endpoint.host, endpoint.port)
            address = found.socket.getpeername()[0] if endpoint.elsewhere else ""
        except OSError as error:
            raise ConnectFailed(endpoint.url, _why(error)) from error
        if is_here(address):
            await trio.aclose_forcefully(found)
            why = f"its name leads to {address}, and another host has named it"
            raise ConnectFailed(endpoint.url, why, leads_here=True)
        stream = DirectStream(socket.socket(fileno=found.socket.detach()))
        return await secured(stream, endpoint, tls)

    async def listen(self, endpoint: Endpoint) -> TcpListener:
        """Listen at every address of the host, all at the same port. Raises ConfigError."""
        sockets: list[socket.socket] = []
        port = endpoint.port
        try:
            found = await trio.socket.getaddrinfo(
                endpoint.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, proto, _, address in dict.fromkeys(found):
                sockets.append(_bound(family, kind, proto, (address[0], port, *address[2:])))
                port = sockets[-1].getsockname()[1]
        except OSError as error:
            for sock in sockets:
                sock.close()
            fix = TAKEN if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"cannot listen at {endpoint.authority}: {_why(error)}{fix}") from error
        return TcpListener(sockets)


def _bound(family: int, kind: int, proto: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _why(error: OSError) -> str:
    """Return the cause of a failure at an address; if there are several addresses, trio raises a group."""
    group = group_of(error.__cause__ or error)
    leaves = (error,) if group is None else group.exceptions
    return "; ".join(dict.fromkeys(map(_text, leaves)))


def _text(error: BaseException) -> str:
    """Return the system's text for an error, without the address that trio adds."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno is not None and error.errno > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


# --- the limit of open descriptors, for nodes with many connections


def raise_descriptor_limit(wanted: int) -> int:
    """Raise this process's soft limit of open descriptors to `wanted`, or as far as its hard limit allows.

    Return the limit that is in force afterwards, which may be lower or higher than `wanted`: it is never
    lowered. If the system has no such limit, as on Windows, return `wanted`.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return wanted if soft == unlimited else soft
    aim = wanted if hard == unlimited else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    except (OSError, ValueError):
        return soft  # some systems refuse numbers below their hard limit
    return aim
