"""WebSocket handshakes: the client's, and the server's from a head that has already been read."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import trio
from wsproto import ConnectionType
from wsproto.events import RejectConnection
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from lmos_actors._core import Budget
from lmos_actors.errors import ConfigError, ConnectFailed, ConnectionLost

from ._frames import FrameCodec, NotUpgraded, Wire
from ._masks import random_masks
from ._network import answered, cut_off, endpoint_of
from ._options import ConnectionOptions
from ._websocket import Connection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from lmos_actors._core import Account

    from ._frames import Headers
    from ._masks import Masks
    from ._network import Endpoint, Network

_DEFAULTS = ConnectionOptions()  # one object for all connections that have no others
_CUT = (trio.BrokenResourceError, trio.ClosedResourceError, EOFError)


async def connect(
    network: Network,
    url: str,
    *,
    subprotocols: Iterable[str] = ("lmosprotocol",),
    headers: Headers = (),
    tls: ssl.SSLContext | None = None,
    options: ConnectionOptions | None = None,
    masks: Masks = random_masks,
    budget: Budget | None = None,
) -> Connection:
    """Connect to a WebSocket server and do the handshake.

    `headers` go with the request; `tls` None trusts the system's certificates; `masks` returns random bytes
    to mask frames with. Memory that the server occupies at this end is charged to `budget`, or to a separate
    budget of this connection. Raises ConnectFailed, within twice `handshake_seconds`; ConfigError if the URL
    is invalid, or a header cannot be sent.
    """
    options = _DEFAULTS if options is None else options
    endpoint = endpoint_of(url)
    seconds = options.handshake_seconds
    stream: trio.abc.Stream | None = None
    with trio.move_on_after(seconds):
        stream = await network.connect(endpoint, tls)
    if stream is None:
        raise ConnectFailed(endpoint.url, f"no connection within {seconds:g} s")
    codec = _codec(ConnectionType.CLIENT, options, masks)
    wire = Wire(
        stream,
        codec,
        host=endpoint.authority,
        target=endpoint.target,
        subprotocols=subprotocols,
        headers=headers,
    )
    try:
        with trio.move_on_after(seconds):
            await _request(wire, endpoint)
            return Connection(wire, endpoint.authority, options, _account(budget, options))
        raise ConnectFailed(endpoint.url, f"no answer to the handshake within {seconds:g} s")
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _request(wire: Wire, endpoint: Endpoint) -> None:
    try:
        await wire.request()
    except NotUpgraded as answer:
        phrase = ""
        with suppress(ValueError):  # the status may have none
            phrase = HTTPStatus(answer.status).phrase
        why = answered(answer.status, phrase, answer.detail)
        raise ConnectFailed(endpoint.url, why, status=answer.status, retry_in=answer.retry_in) from None
    except _CUT as error:
        raise cut_off(endpoint.url, error, secure=endpoint.secure, before="during the handshake: ") from error
    except (RemoteProtocolError, UnicodeError) as error:
        raise ConnectFailed(endpoint.url, f"the answer is no WebSocket handshake: {error}") from error
    except (h11.LocalProtocolError, ValueError) as error:
        why = str(error).partition(" b'")[0]  # what follows is the value of a header, which may be secret
        raise ConfigError(f"the request to {endpoint.url} cannot be sent: {why}") from None


async def accept(
    stream: trio.abc.Stream,
    head: bytes,
    *,
    subprotocol: str | None = None,
    headers: Headers = (),
    peer: str = "",
    options: ConnectionOptions | None = None,
    account: Account | None = None,
) -> Connection:
    """Do the server's handshake over a stream; `head` has been read from it: an upgrade and what followed.

    The answer is 101 with `subprotocol`, which the peer must have offered, and `headers`. An invalid upgrade
    is answered with 400 or 426. If it is invalid, or the peer is gone or does not take the answer, the stream
    is closed and ConnectionLost raised. Memory that the client occupies at this end is charged to `account`,
    or to a separate account of this connection.
    """
    options = _DEFAULTS if options is None else options
    wire = Wire(stream, _codec(ConnectionType.SERVER, options, random_masks))
    try:
        with trio.move_on_after(options.handshake_seconds):
            await _answer(wire, head, subprotocol, headers)
            return Connection(wire, peer, options, account or _account(None, options))
        raise ConnectionLost(f"the answer to an upgrade was not taken within {options.handshake_seconds:g} s")
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _answer(wire: Wire, head: bytes, subprotocol: str | None, headers: Headers) -> None:
    try:
        request = wire.read_request(head)
    except (RemoteProtocolError, ValueError) as error:
        hint = error.event_hint if isinstance(error, RemoteProtocolError) else None
        refusal = hint if isinstance(hint, RejectConnection) else RejectConnection()
        with suppress(*_CUT, LocalProtocolError):
            await wire.stream.send_all(wire.codec.send(refusal))
        raise ConnectionLost(f"this is no WebSocket handshake: {error}") from error
    try:
        await wire.answer(request, subprotocol, headers)
    except _CUT as error:
        raise ConnectionLost(str(error) or "the connection was reset") from error


def _account(budget: Budget | None, options: ConnectionOptions) -> Account:
    return (budget or Budget(options.total_bytes)).open(bool)


def _codec(kind: ConnectionType, options: ConnectionOptions, masks: Masks) -> FrameCodec:
    return FrameCodec(kind, limit=options.max_message_bytes, fast=options.fast_frames, masks=masks)
