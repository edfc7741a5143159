"""TLS handshakes that fail: the alert that is still to be sent, and the reason in plain English.

OpenSSL writes an alert for the peer before it reports a failure, and trio raises before it sends that alert.
Both ends here send it themselves: without it the peer sees a connection that ends for no reason.
"""

from __future__ import annotations

import re
import ssl
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Mapping


Whose: TypeAlias = Literal["server", "client"]

ALERT_SECONDS: Final = 1.0
"""Seconds for which a client tries to send its alert."""

_NOT_SPOKEN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")  # OpenSSL 3

_ALERTS: Final[Mapping[str, str]] = {
    "CERTIFICATE_REQUIRED": "the server wants a client certificate",
    "UNKNOWN_CA": "the server does not know the authority of the client certificate",
    "CERTIFICATE_EXPIRED": "the server says that the client certificate has expired",
    "CERTIFICATE_REVOKED": "the server says that the client certificate is revoked",
    "BAD_CERTIFICATE": "the server refuses the client certificate",
    "CERTIFICATE_UNKNOWN": "the server refuses the client certificate",
    "UNSUPPORTED_CERTIFICATE": "the server refuses the client certificate",
    "ACCESS_DENIED": "the server refuses the client certificate",
    "NO_CERTIFICATE": "the server wants a client certificate",
}
"""The meanings of alerts about a client's certificate, by the ends of OpenSSL's names for them."""


def unsent_alert(stream: trio.SSLStream[Any]) -> bytes:
    """Remove the unsent bytes of a failed handshake from the stream, and return them."""
    left: bytes = stream._outgoing.read()  # pyright: ignore[reportPrivateUsage] # there is no public way
    return left


async def send_alert(stream: trio.SSLStream[Any]) -> None:
    """Send the unsent bytes of a client's failed handshake, if the peer takes them at once."""
    alert = unsent_alert(stream)
    with trio.move_on_after(ALERT_SECONDS):
        try:
            if alert:
                await stream.transport_stream.send_all(alert)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone first


def whose_certificate(error: BaseException | None) -> Whose | None:
    """Return whose certificate ended a client's handshake, or None if the cause was different."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "server"
    return "client" if isinstance(error, ssl.SSLError) and _alert(error) in _ALERTS else None


def why_failed(error: BaseException) -> str:
    """Return, in plain English, why a client's handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not accepted: {_why_unverified(error)}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or "the connection was reset"
    if error.reason in _NOT_SPOKEN:
        return "what listens there does not speak TLS, as ws:// and http:// do not"
    return _ALERTS.get(_alert(error)) or _text(error)


def why_refused(error: ssl.SSLError) -> tuple[str, bool]:
    """Return why a server's handshake failed, and whether the client's certificate was the reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client certificate was refused: {_why_unverified(error)}", True
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client showed no certificate", True
    alert = _alert(error)
    if alert in ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED"):
        words = alert.lower().replace("_", " ").replace(" ca", " authority")
        return f"the client does not accept the certificate of this node: {words}", False
    return _text(error), False


def _why_unverified(error: ssl.SSLCertVerificationError) -> str:
    """Return OpenSSL's reason why a certificate was not verified, without a full stop at its end."""
    return (error.verify_message or _text(error)).rstrip(".")


def _alert(error: ssl.SSLError) -> str:
    """Return the name of the alert that the peer has sent, or "" if there was none."""
    _, is_alert, name = (error.reason or "").partition("_ALERT_")
    return name if is_alert else ""


def _text(error: ssl.SSLError) -> str:
    """Return OpenSSL's text for an error, without its codes and the position in Python's sources."""
    said = error.reason.lower().replace("_", " ") if error.reason else str(error)
    return said or "no reason is known"


# --- client certificates of a TLS handshake

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
"""The kinds of alternative names that count, each in a form that no other kind can have."""

_SPECIAL: Final = re.compile(r'[,+"\\<>;=\x00]|^[ #]| $')


@attrs.frozen
class ClientCertificate:
    """The certificate of a client, which TLS has verified.

    `subject` is its distinguished name in the form of RFC 4514. `names` are its alternative names that are
    host names, IP addresses, mail addresses or URIs; if it has no alternative name of any kind, its common
    name. `fingerprint` is the SHA-256 of its DER form in lower-case hexadecimal digits.
    """

    subject: str
    names: tuple[str, ...]
    fingerprint: str


def certificate_of(stream: trio.SSLStream[Any], tls: ssl.SSLContext) -> ClientCertificate | None:
    """Return the certificate that the client of a server's stream has shown, or None if there is none.

    The handshake must be done. A certificate that `tls` has not verified counts as none.
    """
    if tls.verify_mode is ssl.CERT_NONE:
        return None
    certificate: dict[str, Any] | None = stream.getpeercert()
    der: bytes | None = stream.getpeercert(binary_form=True)
    if not certificate or der is None:
        return None
    subject: Any = certificate.get("subject", ())
    named: Any = certificate.get("subjectAltName", ())
    names = (
        [value for kind, value in named if kind in _NAMES and _NAMES[kind].fullmatch(value)]
        if named
        else [value for part in subject for kind, value in part if kind == "commonName"]
    )
    return ClientCertificate(_subject(subject), tuple(names), sha256(der).hexdigest())


def _subject(parts: Any) -> str:
    """Return a distinguished name as text; the most specific part comes first."""
    said = ("+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in parts)
    return ",".join(reversed(list(said)))


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}" if found[0] != "\x00" else r"\00", value)
