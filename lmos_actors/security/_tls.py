"""TLS contexts, for a node that listens and for one that consumes."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
Path: TypeAlias = "str | os.PathLike[str]"

_LONGEST: Final = 1 << 20  # bytes of a file that are looked at to say what is wrong with it
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_FLIGHTS: Final = 4  # turns that each end of a handshake in memory takes, which are more than it needs
_HANDSHAKE: Final = 22  # a type of TLS records
_CERTIFICATES: Final = 11  # a type of messages in them
_OUT_OF_TIME: Final = {9: "is not valid yet", 10: "has expired"}  # OpenSSL's codes of verification


def server_tls(
    cert: Path, key: Path | None = None, *, client_ca: Path | None = None, required: bool = True
) -> ssl.SSLContext:
    """Return what a node that listens needs for `wss`: a file with its certificate, and one with the key.

    `cert` holds those that vouch for it too; without `key`, the key as well. With `client_ca`, a file with
    authorities, clients show a certificate that one of them has signed; `required=False` also lets those in
    who show none, for whom other schemes count. TLS 1.2 at least. Blocks on the disk. Raises ConfigError.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, cert, key)
    if client_ca is not None:
        _read(client_ca)
        _told(context.load_verify_locations, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_tls(
    ca: Path | None = None, *, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return what a node that consumes trusts: the authorities in `ca` alone, else those of the system.

    `cert` and `key` are what it shows of itself where it is asked. Blocks on the disk. Raises ConfigError.
    """
    context = ssl.create_default_context() if ca is None else _trusting(ca)
    if cert is not None:
        _load(context, cert, key)
    elif key is not None:
        raise ConfigError("a key goes with a certificate")
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    held = {path: _read(path) for path in (cert, key) if path is not None}
    try:
        # the key is not to be asked for at a terminal
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(error, cert, key, held) from None
    wrong = validity_error(_server_of(cert, key))
    if wrong is not None:
        raise ConfigError(f"the certificate {wrong}", os.fspath(cert))


def _unusable(error: OSError, cert: Path, key: Path | None, held: Mapping[Path, bytes]) -> ConfigError:
    """Return what is wrong with a certificate and its key that OpenSSL does not take."""
    key_place = cert if key is None else key
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason == "KEY_VALUES_MISMATCH":
        whose = "in it" if key is None else f"in {os.fspath(cert)}"
        return ConfigError(f"the key does not belong to the certificate {whose}", os.fspath(key_place))
    if _CERTIFICATE not in held[cert]:
        turned = key is not None and _KEY in held[cert] and _CERTIFICATE in held[key]
        hint = ": the certificate and its key are given the wrong way round" if turned else " in PEM"
        return ConfigError(f"cannot be used as a certificate, it holds none{hint}", os.fspath(cert))
    if _KEY not in held[key_place]:
        hint = ": the file with the key of the certificate is needed too" if key is None else " in PEM"
        return ConfigError(f"holds no private key{hint}", os.fspath(key_place))
    said = (reason or "").lower().replace("_", " ") or error.strerror or str(error)
    return ConfigError(f"cannot be used as a certificate with its key: {said}", os.fspath(key_place))


def _server_of(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context that shows a certificate as a server, though it may be that of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def validity_error(server: ssl.SSLContext) -> str | None:
    """Return "has expired" or "is not valid yet" of the certificate that a server shows, else None.

    A client in memory shakes hands with it twice: it takes what it is shown, and then trusts that alone, so
    that nothing but the time of day can be wrong with it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        shown = _shown_in_clear(server) or _shaken_hands(server, client).getpeercert(binary_form=True)
        if shown is None:
            return None
        client.load_verify_locations(cadata=shown)
        client.verify_mode = ssl.CERT_REQUIRED
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _shaken_hands(server, client)
    except ssl.SSLCertVerificationError as error:
        return _OUT_OF_TIME.get(error.verify_code)
    except (ssl.SSLError, ValueError):  # such as a server that has no certificate, or wants one of the client
        return None
    return None


def _shown_in_clear(server: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a server shows in TLS 1.2, in DER; None of one that speaks only TLS 1.3.

    There it is not encrypted, so it is known also of a server that goes no further without a certificate of
    the client. In TLS 1.3 that is looked for when the client's handshake is done.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (asking, answering):
        with suppress(ssl.SSLError):
            end.do_handshake()
    return _first_certificate(to_client.read())


def _first_certificate(flight: bytes) -> bytes | None:
    """Return the first certificate in the records of a server's first flight (RFC 5246, 7.4.2)."""
    messages = b""
    while len(flight) >= 5:
        end = 5 + int.from_bytes(flight[3:5])
        messages += flight[5:end] if flight[0] == _HANDSHAKE else b""
        flight = flight[end:]
    while len(messages) >= 4:
        end = 4 + int.from_bytes(messages[1:4])
        if messages[0] == _CERTIFICATES:
            return messages[10 : 10 + int.from_bytes(messages[7:10])] or None
        messages = messages[end:]
    return None


def _shaken_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's end of a handshake in memory, once that is done. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS):
        try:
            asking.do_handshake()
            break  # in TLS 1.3 before the server has looked for a certificate of the client
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                answering.do_handshake()
    return asking


def _no_password() -> str:
    raise ConfigError(
        "the key is encrypted: it is needed without a password, in a file that others cannot read"
    )


def _trusting(ca: Path) -> ssl.SSLContext:
    _read(ca)
    return _told(lambda path: ssl.create_default_context(cafile=path), ca)


def _told(load: Callable[[Path], T], ca: Path) -> T:
    try:
        return load(ca)
    except (OSError, ssl.SSLError) as error:
        said = str(error.reason or error) if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"holds no certificates of authorities: {said}", os.fspath(ca)) from None


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", os.fspath(path)) from None
