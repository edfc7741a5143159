"""Certificates by which clients say in the TLS handshake who they are."""

from __future__ import annotations

import re
import ssl
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    import trio

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""Short names of the parts of a subject (RFC 4514, 3)."""

_NAMES: Final = {
    "DNS": re.compile(r"[^@:/\s]+"),
    "email": re.compile(r"[^:/\s]+@[^@:/\s]+"),
    "IP Address": re.compile(r"[0-9a-fA-F.:]+"),
    "URI": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
}
"""The kinds of alternative names that are names, each as no other kind can be written."""

_SPECIAL: Final = re.compile(r'[,+"\\<>;=\x00]|^[ #]| $')


@attrs.frozen
class ClientCertificate:
    """The certificate of a client, which TLS has verified.

    `subject` is its distinguished name as RFC 4514 writes it, `names` are those that it was made out for
    (its alternative names that are of hosts, addresses, mail or URIs; where it has none of any kind, its
    common name), `fingerprint` is the SHA-256 of its DER form in lower-case hexadecimal digits.
    """

    subject: str
    names: tuple[str, ...]
    fingerprint: str


def certificate_of(stream: trio.SSLStream[Any], tls: ssl.SSLContext) -> ClientCertificate | None:
    """Give the certificate that the client at the other end of a server's stream has shown, None without one.

    The handshake is done. What `tls` has not verified counts as none.
    """
    if tls.verify_mode is ssl.CERT_NONE:
        return None
    told: dict[str, Any] | None = stream.getpeercert()
    der: bytes | None = stream.getpeercert(binary_form=True)
    if not told or der is None:
        return None
    subject: Any = told.get("subject", ())
    named: Any = told.get("subjectAltName", ())
    names = (
        [value for kind, value in named if kind in _NAMES and _NAMES[kind].fullmatch(value)]
        if named
        else [value for part in subject for kind, value in part if kind == "commonName"]
    )
    return ClientCertificate(_subject(subject), tuple(names), sha256(der).hexdigest())


def _subject(parts: Any) -> str:
    """Write a distinguished name; what is most specific comes first."""
    said = ("+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in parts)
    return ",".join(reversed(list(said)))


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}" if found[0] != "\x00" else r"\00", value)
