"""Client certificates over real TLS, and tokens that expire on connections that stay open."""

from __future__ import annotations

import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from lmos_actors import Node, OutcomeUnknown, open_node
from lmos_actors.protocol.td import TD_CONTEXT_URI
from lmos_actors.security import Bearer, ClientCertificates, Security, client_tls, server_tls
from lmos_actors.transport import ConnectFailed, MemoryNetwork, TcpNetwork, endpoint_of
from tests.security.nodes.guarded import Desk, Secrets, all_of, answer_in, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from trio.testing import MockClock

PLACE = "wss://127.0.0.1:0"


@cache
def authorities() -> tuple[trustme.CA, trustme.CA]:
    """The one that is trusted, and another."""
    return trustme.CA(), trustme.CA()


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


class Files:
    """What a server and its clients keep in files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.trusted, self.other = authorities()
        self.ca = self._put("ca.pem", self.trusted.cert_pem)
        self.server = self.of("server", "127.0.0.1", "here")

    def _put(self, name: str, blob: trustme.Blob) -> Path:
        path = self._folder / name
        blob.write_to_path(str(path))
        return path

    def of(self, name: str, *names: str, by: trustme.CA | None = None, until: datetime | None = None) -> Path:
        made = (by or self.trusted).issue_cert(*names, common_name=name, not_after=until)
        return self._put(f"{name}.pem", made.private_key_and_cert_chain_pem)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def print_of(path: Path) -> str:
    from hashlib import sha256

    text = path.read_text()
    first = text[text.index("-----BEGIN CERTIFICATE") : text.index("-----END CERTIFICATE")]
    return sha256(ssl.PEM_cert_to_DER_cert(f"{first}-----END CERTIFICATE-----\n")).hexdigest()


@asynccontextmanager
async def node_asking(
    files: Files, *schemes: Any, required: bool = True, network: Any = None, listen: str = PLACE
) -> AsyncGenerator[Node]:
    tls = server_tls(files.server, client_ca=files.ca, required=required)
    security = Security(schemes=schemes)
    network = TcpNetwork() if network is None else network
    async with open_node(tree(), listen=listen, tls=tls, security=security, network=network) as node:
        yield node


async def said_to(
    files: Files, node: Node, cert: Path | None, *, network: Any = None, scheme: str = "wss"
) -> Any:
    """Return what an agent says of who asks, with that certificate."""
    return await said_by(client_tls(files.ca, cert=cert), node, network=network, scheme=scheme)


async def said_by(tls: ssl.SSLContext, node: Node, *, network: Any = None, scheme: str = "wss") -> Any:
    network = TcpNetwork() if network is None else network
    async with open_node(client_tls=tls, network=network) as client:
        desk = await client.consume(Desk, f"{scheme}{node.urls[0].removeprefix('wss')}/agents/desk")
        return await desk.invoke(Desk.who)


async def test_a_certificate_says_who_asks(files: Files) -> None:
    alice, bob = files.of("alice", "alice.example"), files.of("bob", "bob.example")
    known = ClientCertificates({"alice": f"sha256:{print_of(alice)}", "bob": "name:bob.example"})
    async with node_asking(files, known) as node:
        assert await said_to(files, node, alice) == "alice"
        assert await said_to(files, node, bob) == "bob"


REFUSED = {
    "absent": "the server wants a client certificate",
    "of another authority": "the server does not know the authority of the client certificate",
    "signed by itself": "the server does not know the authority of the client certificate",
    "expired": "the server says that the client certificate has expired",
    "unknown": "it answered 401 Unauthorized: credentials are needed",
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_clients_without_a_valid_certificate_are_refused(
    files: Files, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handshake fails, where it is one of TLS; else the answer is 401. Nobody asks an agent anything."""
    tls = client_tls(files.ca)
    by = {"of another authority": files.other, "signed by itself": trustme.CA()}.get(kind)
    past = datetime.now(UTC) - timedelta(days=1) if kind == "expired" else None
    if kind != "absent":  # a node itself would show none that has expired
        name = "mallory.example" if kind == "unknown" else "alice.example"
        tls.load_cert_chain(files.of("alice", name, by=by, until=past))
    known = ClientCertificates({"alice": "name:alice.example"})
    async with node_asking(files, known) as node:
        for scheme in ("wss", "https"):
            with pytest.raises(ConnectFailed, match=REFUSED[kind]) as caught:
                await said_by(tls, node, scheme=scheme)
            error = caught.value
            assert (error.certificate, error.status) == (
                ("client", None) if kind != "unknown" else (None, 401)
            )
        assert node.find(Desk).statistics().accepted == 0
        assert node.connection_failures == ()
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == (0 if kind == "unknown" else 2)
    assert all(line.startswith("TLS: 127.0.0.1:") for line in warned)


async def are_refused(files: Files, node: Node, count: int) -> None:
    """So many clients come at once, each without a certificate."""

    async def knock() -> None:
        with pytest.raises(ConnectFailed, match="wants a client certificate"):
            await said_by(client_tls(files.ca), node)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(knock)


async def test_those_who_are_refused_cannot_flood_the_log(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    known = ClientCertificates({"alice": "name:alice.example"})
    async with node_asking(files, known) as node:
        await are_refused(files, node, 20)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 5
    assert warned[-1].endswith("; more within 60 s are only counted")


async def test_what_was_not_logged_is_counted_in_the_next_line(
    files: Files, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    known = ClientCertificates({"alice": "name:alice.example"})
    async with node_asking(files, known) as node:
        for seconds in (1, 61, 0):
            await are_refused(files, node, 9)
            mock_clock.jump(seconds)
    lines = [record.getMessage() for record in caplog.records]
    assert all(line.startswith("TLS: 127.0.0.1:") for line in lines)
    counted = "; more within 60 s are only counted"
    assert [line.endswith(counted) for line in lines] == 2 * [*(4 * [False]), True]
    missed = [line for line in lines if "not logged" in line]
    assert missed == [lines[5]]
    assert missed[0].endswith(" (13 more were not logged)")


async def test_over_http_alone_the_hint_about_certificates_is_given(files: Files, tmp_path: Path) -> None:
    """In TLS 1.3 a client has sent its request before it learns that it is not let in."""
    known = ClientCertificates({"alice": "name:alice.example"})
    async with (
        node_asking(files, known) as node,
        open_node(client_tls=client_tls(files.ca), network=TcpNetwork()) as client,
    ):
        form = {"href": f"https{node.urls[0].removeprefix('wss')}/agents/desk/actions/who"}
        described = {"@context": TD_CONTEXT_URI, "title": "Desk", "actions": {"who": {"forms": [form]}}}
        (tmp_path / "desk.json").write_text(json.dumps(described))
        desk = await client.consume_thing(tmp_path / "desk.json")
        with pytest.raises(OutcomeUnknown, match="the server wants a client certificate"):
            await desk.invoke("who")


async def test_a_certificate_is_revoked_by_taking_its_line_away(
    autojump_clock: Any, files: Files, secrets: Secrets
) -> None:
    network = MemoryNetwork()
    alice = files.of("alice", "alice.example")
    lines = [f"alice sha256:{print_of(alice)}", "bob name:bob.example"]
    known = ClientCertificates(secrets.put("known", *lines))
    async with (
        node_asking(files, known, network=network, listen="wss://here") as node,
        open_node(client_tls=client_tls(files.ca, cert=alice), network=network) as client,
    ):
        desk = await client.consume(Desk, "wss://here/agents/desk")
        assert await desk.invoke(Desk.who) == "alice"
        secrets.put("known", lines[1])
        await trio.sleep(1.5)
        with pytest.raises(Exception, match="credentials"):
            await desk.invoke(Desk.who)
        await trio.sleep(60)
        assert node.connections == 0
        with pytest.raises(Exception, match="401"):
            await desk.invoke(Desk.who)


async def test_where_certificates_are_not_required_other_schemes_count(
    autojump_clock: Any, files: Files, secrets: Secrets
) -> None:
    network = MemoryNetwork()
    known = (
        ClientCertificates({"alice": "name:alice.example"}),
        Bearer({"bob": secrets.put("bob", "token-b")}),
    )
    async with node_asking(files, *known, network=network, required=False, listen="wss://here") as node:
        assert await said_to(files, node, files.of("alice", "alice.example"), network=network) == "alice"
        for header, status in ((None, 401), ("token-x", 401), ("token-b", 200)):
            stream = await network.connect(endpoint_of("wss://here"), client_tls(files.ca))
            said = "" if header is None else f"Authorization: Bearer {header}\r\n"
            asked = f"POST /agents/desk/actions/who HTTP/1.1\r\nHost: here\r\n{said}Connection: close\r\n\r\n"
            await stream.send_all(asked.encode())
            answer = answer_in(await all_of(stream))
            assert answer.status == status
            assert status == 401 or answer.json == "bob"


async def test_a_certificate_counts_for_plain_requests_too(autojump_clock: Any, files: Files) -> None:
    network = MemoryNetwork()
    alice = files.of("alice", "alice.example")
    known = ClientCertificates({"alice": "name:alice.example"})
    async with node_asking(files, known, network=network, listen="wss://here"):
        stream = await network.connect(endpoint_of("wss://here"), client_tls(files.ca, cert=alice))
        for _ in range(2):
            await stream.send_all(b"POST /agents/desk/actions/who HTTP/1.1\r\nHost: here\r\n\r\n")
            data = b""
            while not data.endswith(b'"alice"'):
                data += bytes(await stream.receive_some())
            assert data.startswith(b"HTTP/1.1 200")
        await stream.aclose()
