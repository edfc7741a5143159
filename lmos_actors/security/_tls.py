"""TLS contexts for nodes that listen and for clients; certificates are checked before they are used."""

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

_MAX_BYTES: Final = 1 << 20  # the most that is read of a file to explain an error
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_HANDSHAKE_RECORD: Final = 22  # a type of TLS records
_CERTIFICATE_MESSAGE: Final = 11  # a type of messages in them
_VALIDITY_ERRORS: Final = {9: "is not valid yet", 10: "has expired"}  # OpenSSL's codes of verification


def server_tls(
    cert: Path, key: Path | None = None, *, client_ca: Path | None = None, required: bool = True
) -> ssl.SSLContext:
    """Return the TLS context of a server, from PEM files.

    `cert` holds the certificate and its chain, and the key too unless `key` names another file. With
    `client_ca`, a file of authorities, clients must present a certificate signed by one of them;
    `required=False` also accepts clients without one, to which other schemes apply. TLS 1.2 or later. Blocks
    on the disk. Raises ConfigError.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, cert, key)
    if client_ca is not None:
        _read(client_ca)
        _load_authorities(context.load_verify_locations, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_tls(
    ca: Path | None = None, *, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return the TLS context of a client: it trusts the authorities in `ca` only, else the system's.

    `cert` and `key` are the client's own certificate, presented on demand. Blocks on the disk. Raises
    ConfigError.
    """
    if ca is None:
        context = ssl.create_default_context()
    else:
        _read(ca)
        context = _load_authorities(lambda path: ssl.create_default_context(cafile=path), ca)
    if cert is not None:
        _load(context, cert, key)
    elif key is not None:
        raise ConfigError("a key goes with a certificate")
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    contents = {path: _read(path) for path in (cert, key) if path is not None}
    try:
        # without `password` OpenSSL would prompt at the terminal for the password of an encrypted key
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(error, cert, key, contents) from None
    wrong = validity_error(_server_of(cert, key))
    if wrong is not None:
        raise ConfigError(f"the certificate {wrong}", os.fspath(cert))


def _unusable(error: OSError, cert: Path, key: Path | None, contents: Mapping[Path, bytes]) -> ConfigError:
    """Return the error that explains why OpenSSL rejects a certificate and its key."""
    key_place = cert if key is None else key
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason == "KEY_VALUES_MISMATCH":
        place = "in it" if key is None else f"in {os.fspath(cert)}"
        return ConfigError(f"the key does not belong to the certificate {place}", os.fspath(key_place))
    if _CERTIFICATE not in contents[cert]:
        swapped = key is not None and _KEY in contents[cert] and _CERTIFICATE in contents[key]
        hint = ": swap the certificate and its key" if swapped else " in PEM"
        return ConfigError(f"holds no certificate{hint}", os.fspath(cert))
    if _KEY not in contents[key_place]:
        hint = ": name the file with the key too" if key is None else " in PEM"
        return ConfigError(f"holds no private key{hint}", os.fspath(key_place))
    detail = (reason or "").lower().replace("_", " ") or error.strerror or str(error)
    return ConfigError(f"cannot be used as a certificate with its key: {detail}", os.fspath(key_place))


def _server_of(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return a server context with a certificate (perhaps a client's) whose validity is to be checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def validity_error(server: ssl.SSLContext) -> str | None:
    """Return "has expired" or "is not valid yet" for a server's certificate, or None for a valid one.

    The standard library has no public parser of certificates, so OpenSSL is made to check the dates. A client
    in memory performs two handshakes: one to obtain the certificate, and one that trusts exactly that
    certificate, so that only its dates can fail.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        certificate = _certificate_of_tls12(server) or _handshake(server, client).getpeercert(
            binary_form=True
        )
        if certificate is None:
            return None
        client.load_verify_locations(cadata=certificate)
        client.verify_mode = ssl.CERT_REQUIRED
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _handshake(server, client)
    except ssl.SSLCertVerificationError as error:
        return _VALIDITY_ERRORS.get(error.verify_code)
    except (ssl.SSLError, ValueError):  # for example the server demands a client certificate
        return None
    return None


def _certificate_of_tls12(server: ssl.SSLContext) -> bytes | None:
    """Return a server's certificate from a TLS 1.2 handshake, in DER; None if it accepts only TLS 1.3.

    TLS 1.2 sends the certificate in the clear, so it can be read even from a server that then aborts for lack
    of a client certificate. TLS 1.3 encrypts it, but checks the client's certificate only after the client is
    done.
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
        messages += flight[5:end] if flight[0] == _HANDSHAKE_RECORD else b""
        flight = flight[end:]
    while len(messages) >= 4:
        end = 4 + int.from_bytes(messages[1:4])
        if messages[0] == _CERTIFICATE_MESSAGE:
            return messages[10 : 10 + int.from_bytes(messages[7:10])] or None
        messages = messages[end:]
    return None


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's end of a completed handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):  # turns for each end: more than a handshake in memory needs
        try:
            asking.do_handshake()
            break  # in TLS 1.3 before the server checks the client's certificate
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                answering.do_handshake()
    return asking


def _no_password() -> str:
    raise ConfigError("the key is encrypted: decrypt it into a file that only this user can read")


def _load_authorities(load: Callable[[Path], T], ca: Path) -> T:
    try:
        return load(ca)
    except (OSError, ssl.SSLError) as error:
        detail = str(error.reason or error) if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"holds no certificates of authorities: {detail}", os.fspath(ca)) from None


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", os.fspath(path)) from None
