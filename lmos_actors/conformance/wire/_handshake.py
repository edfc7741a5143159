"""The opening handshake of the kit's connections, correct or deliberately wrong."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import attrs
import h11
import trio

from ._http import Unreachable
from ._socket import (
    LOST,
    Handshake,
    Socket,
    why,
)

if TYPE_CHECKING:
    import ssl
    from random import Random

    from lmos_actors.transport import Endpoint, Network

    from ._socket import Headers, Recorder

_CREDENTIALS: Final = (
    "; --bearer, --basic or --header give credentials, "
    "the first two only to the host and port of the given URL"
)
_PLAIN: Final = ("connection", "host", "origin", "upgrade", "user-agent")  # headers that hold no secret


class Refused(Exception):
    """The server answered an upgrade with a status other than 101."""

    def __init__(self, handshake: Handshake, hint: str = "") -> None:
        self.handshake = handshake
        super().__init__(f"the upgrade was answered with {handshake.status}{hint}")


@attrs.frozen(kw_only=True)
class HandshakeOptions:
    """Options of a handshake.

    `offered` are the subprotocols. `headers` replace the kit's own headers or add to them.
    """

    network: Network
    endpoint: Endpoint
    tls: ssl.SSLContext | None
    offered: tuple[str, ...] = ("lmosprotocol",)
    headers: Headers = ()
    without: tuple[bytes, ...] = ()
    patience: float = 2.0


async def open_socket(options: HandshakeOptions, recorder: Recorder, random: Random) -> Socket:
    """Connect and perform the handshake. Raises Unreachable, or Refused for any status but 101."""
    endpoint = options.endpoint
    stream: trio.abc.Stream | None = None
    with trio.move_on_after(max(options.patience, 10.0)):
        try:
            stream = await options.network.connect(endpoint, options.tls)
        except Exception as error:
            raise Unreachable(endpoint.url, str(error)) from error
    if stream is None:
        raise Unreachable(endpoint.url, f"no connection within {max(options.patience, 10.0):g} s")
    try:
        with trio.move_on_after(max(options.patience, 10.0)):
            return await _shake_hands(options, stream, recorder, random)
        raise Unreachable(endpoint.url, "no answer to the handshake")
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _shake_hands(
    options: HandshakeOptions, stream: trio.abc.Stream, recorder: Recorder, random: Random
) -> Socket:
    key = base64.b64encode(random.randbytes(16))
    request = h11.Request(method="GET", target=options.endpoint.target, headers=_headers(options, key))
    parser = h11.Connection(h11.CLIENT)
    data = parser.send(request) or b""
    head, *lines = data.decode("latin-1").splitlines()
    head_text = "\n".join([head, *map(_shown, lines)]).rstrip()
    recorder.note("head", head_text, len(data), sent=True)
    try:
        await stream.send_all(data)
        parser.send(h11.EndOfMessage())
        answer = await _answer(parser, stream)
    except (*LOST, h11.RemoteProtocolError, EOFError) as error:
        recorder.note("end", why(error), 0, sent=False)
        raise Unreachable(options.endpoint.url, f"during the handshake: {why(error)}") from error
    headers = tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in answer.headers
    )
    handshake = Handshake(status=answer.status_code, headers=headers, key=key.decode())
    shown = [f"{name}: {'…' if name.startswith('set-cookie') else value}" for name, value in headers]
    head_text = "\n".join([f"{answer.status_code}", *shown])
    recorder.note("head", head_text, len(head_text), sent=False)
    if answer.status_code != 101:
        presented = any(name.lower() == b"authorization" for name, _ in options.headers)
        raise Refused(handshake, _CREDENTIALS if handshake.status == 401 and not presented else "")
    socket = Socket(stream, handshake, recorder, random)
    socket.read_on(parser.trailing_data[0])
    return socket


async def _answer(
    parser: h11.Connection, stream: trio.abc.Stream
) -> h11.InformationalResponse | h11.Response:
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Response) or (
            isinstance(event, h11.InformationalResponse) and event.status_code == 101
        ):
            return event
        elif event in (h11.PAUSED,) or isinstance(event, h11.ConnectionClosed):
            raise EOFError("the connection ended")


def _headers(options: HandshakeOptions, key: bytes) -> list[tuple[bytes, bytes]]:
    plain = [
        (b"Host", options.endpoint.authority.encode()),
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", key),
    ]
    if options.offered:
        plain.append((b"Sec-WebSocket-Protocol", ", ".join(options.offered).encode()))
    given = [name.lower() for name, _ in options.headers]
    dropped = [name.lower() for name in options.without]
    kept = [each for each in plain if each[0].lower() not in given and each[0].lower() not in dropped]
    return [*kept, *options.headers]


def _shown(line: str) -> str:
    name, colon, _ = line.partition(":")
    plain = not colon or name.lower() in _PLAIN or name.lower().startswith("sec-websocket-")
    return line if plain else f"{name}: …"
