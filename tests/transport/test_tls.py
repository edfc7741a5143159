"""A front door that speaks TLS, and those who do not."""

from __future__ import annotations

import re
import ssl
from functools import cache
from typing import Any

import pytest
import trio
import trustme

from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.transport.doors import GET, HELLO, Client, open_door, upgrade

ALERT = b"\x15"  # the type of its record


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, and for a client that trusts it."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "door").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def secure_door(network: Any = None, **options: Any) -> Any:
    server, client = contexts()
    return open_door(network, tls=server, trust=client, **options)


def hello_of_a_client() -> bytes:
    out = ssl.MemoryBIO()
    wrapped = contexts()[1].wrap_bio(ssl.MemoryBIO(), out, server_hostname="door")
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    return out.read()


async def test_both_kinds_of_client_are_served():
    async with secure_door() as door:
        await door.serves_the_next()
        assert (await door.comes_to_rest()).served == 2


async def test_the_scope_and_the_route_know_that_it_is_tls():
    schemes: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        schemes.append(scope["scheme"])
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    async with secure_door(MemoryNetwork(), app=app) as door:
        client = await door.knock()
        await client.send(GET * 2)
        for _ in range(2):
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        assert schemes == ["https"] * 2


@pytest.mark.parametrize(
    "data", [GET, upgrade(), b"POST / HTTP/1.1\r\n", b"HEAD /", b"CONNECT x:1 HTTP/1.1\r\n\r\n"]
)
async def test_plain_http_on_a_tls_port_is_told_so(data: bytes):
    async with secure_door() as door:
        client = await door.knock_plainly()
        await client.send(data)
        status, _, body = await client.answer()
        assert (status, b"https://" in body) == (400, True)
        await client.ended()
        await client.stream.aclose()
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"plain on a TLS port": 1}


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", "left"),
        (b"\x16\x03\x01", "left"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "TLS"),
        (bytes(100), "TLS"),
        (b"\x16\x03\x01\x00\x05hello", "TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "TLS"),
    ],
)
async def test_what_is_no_tls_ends_its_own_connection(data: bytes, end: str):
    async with secure_door() as door:
        client = await door.knock_plainly()
        if data:
            await client.send(data)
        if end == "TLS":
            assert (await client.all())[:1] in (b"", ALERT)
        await client.stream.aclose()
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert (seen.left, seen.refused) == ((1, {}) if end == "left" else (0, {"TLS": 1}))


async def test_a_client_that_does_not_trust_us_ends_its_own_connection():
    async with secure_door() as door:
        door.tls = ssl.create_default_context()
        with pytest.raises(Exception, match="certificate of the server is not accepted"):
            await door.knock()
        door.tls = contexts()[1]
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert (seen.accepted, seen.refused) == (3, {"TLS": 1})
        (refusal,) = door.refusals  # which is known by the alert that our client has sent
        assert refusal.endswith("the client does not accept the certificate of this node: unknown authority")


@cache
def asking(version: ssl.TLSVersion) -> ssl.SSLContext:
    """For a server that wants certificates of clients, by an authority that has made none."""
    authority, server = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "door").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    server.maximum_version = version
    return server


async def asks(client: Client) -> None:
    """Send a request, which by TLS 1.2 the handshake comes before, and read all that is answered."""
    await client.send(GET)
    await client.all()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("make", [TcpNetwork, MemoryNetwork])
@pytest.mark.parametrize(
    ("shown", "alert"),
    [("none", "HANDSHAKE_FAILURE|CERTIFICATE_REQUIRED"), ("another", "UNKNOWN_CA|ALERT_BAD_CERTIFICATE")],
)
async def test_a_client_learns_by_an_alert_why_its_certificate_is_refused(
    make: Any, version: ssl.TLSVersion, shown: str, alert: str
):
    """In TLS 1.3 it has often sent its request by then: closing over that would take the alert away."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    if shown == "another":
        trustme.CA().issue_cert("alice").configure_cert(trust)
    async with open_door(make(), tls=asking(version), trust=trust, linger_seconds=20) as door:
        plain = await door.knock_plainly()
        client = door.take(trio.SSLStream(plain.stream, trust, server_hostname="door"))
        with pytest.raises(trio.BrokenResourceError) as caught:
            await asks(client)
        assert re.search(alert, str(caught.value.__cause__))
        await client.stream.transport_stream.aclose()
        assert (await door.comes_to_rest()).refused == {"client certificate": 1}
        (refusal,) = door.refusals
        assert refusal.endswith(
            ": the client showed no certificate"
            if shown == "none"
            else ": the client certificate was refused: unable to get local issuer certificate"
        )


async def test_who_takes_no_alert_is_not_waited_for_longer_than_for_any_refusal(autojump_clock: Any):
    async with open_door(MemoryNetwork(), tls=asking(ssl.TLSVersion.TLSv1_3), linger_seconds=2) as door:
        client = await door.knock_plainly()
        await client.send(b"\x16\x03\x01\x00\x05hello")
        await door.until(lambda now: bool(now.refused))
        assert round(trio.current_time() - door.started) == 2


@pytest.mark.parametrize("size", [0, 5, 100, 10_000])
async def test_a_handshake_that_does_not_end_is_ended(size: int, autojump_clock: Any):
    async with secure_door(MemoryNetwork(), tls_seconds=3) as door:
        client = await door.knock_plainly()
        if size:
            await client.send(hello_of_a_client()[:size])
        await client.all()
        assert round(trio.current_time() - door.started, 2) == 3
        await door.serves_the_next()
        assert (await door.comes_to_rest()).refused == {"slow TLS": 1}


async def test_silence_after_the_handshake_has_its_own_time(autojump_clock: Any):
    async with secure_door(MemoryNetwork(), tls_seconds=3, head_seconds=2) as door:
        client = await door.knock()
        await client.ended()
        assert round(trio.current_time() - door.started, 2) == 2
        assert (await door.comes_to_rest()).refused == {"silent": 1}


async def test_half_a_handshake_locks_nobody_out(autojump_clock: Any):
    async with secure_door(MemoryNetwork(), max_half_open=4) as door:
        for _ in range(20):
            await (await door.knock_plainly()).send(hello_of_a_client()[:50])
        await door.serves_the_next()
        assert (await door.until(lambda now: now.served == 2)).half_open == 3


async def test_no_place_is_said_through_tls(autojump_clock: Any):
    async with secure_door(MemoryNetwork(), max_connections=1) as door:
        busy = await door.knock()
        await busy.send(upgrade())
        await busy.until(b"\r\n\r\n")
        assert (await (await door.knock()).answer())[0] == 503
        await busy.send(HELLO)
        assert await busy.take(7) == b"\x81\x05hello"


async def test_those_who_find_no_place_cannot_hold_on_to_a_handshake(autojump_clock: Any):
    async with secure_door(MemoryNetwork(), max_connections=1, max_half_open=2) as door:
        busy = await door.knock()
        await busy.send(upgrade())
        await busy.until(b"\r\n\r\n")
        for _ in range(10):
            await door.knock_plainly()
        seen = await door.until(lambda now: now.open == 3)
        assert (seen.left, seen.refused) == (0, {"no place": 8})


@pytest.mark.parametrize("data", [GET.replace(b"door", b"door\r\nConnection: close"), b"nonsense\r\n"])
async def test_the_end_of_an_answer_is_told_from_a_cut(data: bytes):
    async with secure_door(linger_seconds=0.1) as door:
        plain = await door.knock_plainly()
        strict = trio.SSLStream(plain.stream, contexts()[1], server_hostname="door", https_compatible=False)
        client = door.take(strict)
        await client.send(data)
        assert (await client.answer())[0] in (200, 400)
        assert await client.all() == b""  # and no error, as without a goodbye there would be


async def test_a_client_that_leaves_without_a_goodbye_is_gone():
    async with secure_door() as door:
        for data in (b"", GET[:5], GET, upgrade(), upgrade() + HELLO):
            client = await door.knock()
            if data:
                await client.send(data)
            await trio.aclose_forcefully(client.stream)
        await door.serves_the_next()
        seen = await door.comes_to_rest()
        assert (seen.accepted, seen.failed) == (7, 0)
