"""Which names of a client's certificate are names by which somebody can be known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from lmos_actors import open_node
from lmos_actors.security import ClientCertificates, Security, client_tls, server_tls
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.security.nodes.guarded import Desk, tree

if TYPE_CHECKING:
    from pathlib import Path

ALICE = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, "alice.example")])
DIRECTORY = x509.DirectoryName(ALICE)
NAMES = (
    "alice.example", "eve.example", "*.example", "eve@example", "spiffe://example/eve", "10.0.0.1",
    "0:0:0:0:0:0:0:1", "::1", "1.2.3", "<unsupported>", "<unsupported>:eve",
)  # fmt: skip
"""A node has a rule for each of these, but for those by which it has known the client already."""


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def certificate(*names: x509.GeneralName) -> bytes:
    """A key and a certificate made out to the common name alice.example, and to these alternative names."""
    ca, key, now = authority(), ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    made = (
        x509.CertificateBuilder()
        .subject_name(ALICE)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        # Python 3.13 and later take no certificate that does not say which key signed it.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signer = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def known_by(folder: Path, *names: x509.GeneralName) -> list[str]:
    """Return those of `NAMES` by which a node knows a client that shows such a certificate, as they rank."""
    ca, server, client = folder / "ca.pem", folder / "server.pem", folder / "client.pem"
    authority().cert_pem.write_to_path(str(ca))
    authority().issue_cert("here").private_key_and_cert_chain_pem.write_to_path(str(server))
    client.write_bytes(certificate(*names))
    asked, found = client_tls(ca, cert=client), list[str]()
    while True:
        rules = {str(n): f"name:{name}" for n, name in enumerate(NAMES) if name not in found}
        network, known = MemoryNetwork(), Security(schemes=(ClientCertificates(rules),))
        tls = server_tls(server, client_ca=ca)
        async with (
            open_node(tree(), listen="wss://here:443", network=network, security=known, tls=tls),
            open_node(network=network, client_tls=asked) as node,
        ):
            try:
                desk = await node.consume(Desk, "wss://here:443/agents/desk")
                found.append(NAMES[int(await desk.invoke(Desk.who))])
            except ConnectFailed as error:
                if error.status != 401:
                    raise
                return found


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ([], ["alice.example"]),
        ([x509.DNSName("eve.example"), x509.DNSName("*.example")], ["eve.example", "*.example"]),
        (
            [x509.RFC822Name("eve@example"), x509.UniformResourceIdentifier("spiffe://example/eve")],
            ["eve@example", "spiffe://example/eve"],
        ),
        (
            [x509.IPAddress(ip_address("10.0.0.1")), x509.IPAddress(ip_address("::1"))],
            ["10.0.0.1", "0:0:0:0:0:0:0:1"],
        ),
        ([DIRECTORY], []),
        ([DIRECTORY, x509.DNSName("eve.example")], ["eve.example"]),
        (
            [
                x509.OtherName(x509.ObjectIdentifier("1.2.3"), b"\x0c\x03eve"),
                x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
            ],
            [],
        ),
    ],
)
def test_names_are_of_the_kinds_that_can_be_written(
    tmp_path: Path, shown: list[x509.GeneralName], names: list[str]
) -> None:
    """One that has alternative names of any kind is known by none but these."""
    assert trio.run(known_by, tmp_path, *shown) == names


@pytest.mark.parametrize(
    "shown",
    [
        x509.UniformResourceIdentifier("alice.example"),
        x509.RFC822Name("alice.example"),
        x509.DNSName("eve@example"),
        x509.UniformResourceIdentifier("10.0.0.1"),
    ],
    ids=lambda name: type(name).__name__,
)
def test_a_name_of_one_kind_is_not_taken_for_one_of_another(tmp_path: Path, shown: x509.GeneralName) -> None:
    assert trio.run(known_by, tmp_path, shown) == []
