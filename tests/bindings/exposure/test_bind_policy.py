"""Where a node may listen, and what it says where it may not."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from lmos_actors import ConfigError, open_node
from lmos_actors.bindings import check_exposed
from lmos_actors.security import (
    ANYONE,
    Access,
    Basic,
    Bearer,
    ClientCertificates,
    NoSec,
    Security,
    client_tls,
    server_tls,
)
from lmos_actors.transport import TcpNetwork, endpoint_of

if TYPE_CHECKING:
    from pathlib import Path

PRINT = f"sha256:{'0' * 64}"
OPEN, BASIC, BEARER, CERTS = "open", "basic", "bearer", "certificates"
FREE, TOLD, TLS, CA = None, "access rules", "without TLS", "none is asked for"


def rules_of(kind: str) -> Security:
    scheme: Any = {
        OPEN: NoSec(),
        BASIC: Basic({"a": "env:A"}),
        BEARER: Bearer({"a": "env:A"}),
        CERTS: ClientCertificates({"a": PRINT}),
    }[kind]
    return Security(schemes=(scheme,))


def asking() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        *[(url, OPEN, FREE) for url in ("ws://127.0.0.1:80", "ws://127.9.9.9:80", "ws://[::1]:80")],
        ("ws://localhost:80", OPEN, FREE),
        *[(url, OPEN, TOLD) for url in ("ws://0.0.0.0:80", "ws://[::]:80", "ws://10.0.0.1:80")],
        ("ws://localhost.example:80", OPEN, TOLD),
        ("wss://0.0.0.0:80", OPEN, TOLD),
        ("ws://127.0.0.1:80", BASIC, FREE),
        ("ws://0.0.0.0:80", BASIC, TLS),
        ("ws://0.0.0.0:80", BEARER, TLS),
        ("wss://0.0.0.0:80", BEARER, FREE),
        ("wss://0.0.0.0:80", CERTS, FREE),
        ("ws://127.0.0.1:80", CERTS, CA),
    ],
)
def test_a_public_address_without_security_needs_insecure(url: str, kind: str, expected: str | None) -> None:
    def check(*, insecure: bool) -> None:
        check_exposed({url: endpoint_of(url)}, rules_of(kind), asking(), insecure=insecure)

    if expected is None:
        check(insecure=False)
        return
    with pytest.raises(ConfigError, match=expected) as caught:
        check(insecure=False)
    assert repr(url) in str(caught.value) or expected == CA
    if expected == CA:
        with pytest.raises(ConfigError):
            check(insecure=True)
    else:
        check(insecure=True)


def test_client_certificates_without_a_scheme_are_a_mistake() -> None:
    url = "wss://127.0.0.1:80"
    for tls in (None, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)):
        with pytest.raises(ConfigError, match="client_ca"):
            check_exposed({url: endpoint_of(url)}, rules_of(CERTS), tls, insecure=True)


async def test_a_node_looks_before_it_listens() -> None:
    for options, words in (
        ({}, r"open_node\(listen=...\): 'ws://0.0.0.0:0' is reached from other machines"),
        ({"security": Security()}, "security=Security"),
        ({"security": Security(access={"*": Access(read=ANYONE)})}, "insecure=True"),
    ):
        with pytest.raises(ConfigError, match=words):
            async with open_node(listen="ws://0.0.0.0:0", network=TcpNetwork(), **options):
                pass
    async with open_node(listen="ws://0.0.0.0:0", network=TcpNetwork(), insecure=True) as node:
        assert node.urls


async def test_what_is_given_without_a_place_to_listen_is_a_mistake(autojump_clock: Any) -> None:
    for options in ({"security": Security()}, {"origins": ["https://a.example"]}, {"insecure": True}):
        with pytest.raises(ConfigError, match="goes with listen="):
            async with open_node(**options):  # type: ignore[arg-type]
                pass


async def test_invalid_security_is_refused(autojump_clock: Any, tmp_path: Path) -> None:
    for options, words in (
        ({"security": "bearer"}, "must be a Security, not str"),
        ({"credentials": {"http://here": "env:TOKEN"}}, "must be Credentials, not dict"),
        ({"origins": ["*"]}, "is not an origin"),
        ({"security": Security(schemes=(Bearer({"a": f"file:{tmp_path}/none"}),))}, "none: No such file"),
    ):
        with pytest.raises(ConfigError, match=words):
            async with open_node(listen="ws://here", **options):  # type: ignore[arg-type]
                pass


def test_files_of_tls_that_are_none_are_named(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    good, text = tmp_path / "good.pem", tmp_path / "text.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(good))
    text.write_text("no certificate")
    server_tls(good)
    client_tls(cert=good)
    missing = tmp_path / "missing.pem"
    for call in (
        lambda path: server_tls(path),
        lambda path: server_tls(good, path),
        lambda path: server_tls(good, client_ca=path),
        lambda path: client_tls(path),
        lambda path: client_tls(cert=path),
    ):
        for path in (missing, text):
            with pytest.raises(ConfigError) as caught:
                call(path)
            assert str(path) in str(caught.value)
    with pytest.raises(ConfigError, match="goes with a certificate"):
        client_tls(key=good)


def test_nobody_is_asked_for_the_password_of_a_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate = trustme.CA().issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    (tmp_path / "key.pem").write_bytes(locked)
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    with pytest.raises(ConfigError, match="decrypt it into a file"):
        server_tls(tmp_path / "cert.pem", tmp_path / "key.pem")
