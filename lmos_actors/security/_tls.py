"""TLS contexts, for a node that listens and for one that consumes."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lmos_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Path: TypeAlias = "str | os.PathLike[str]"


def server_tls(
    cert: Path, key: Path | None = None, *, client_ca: Path | None = None, required: bool = True
) -> ssl.SSLContext:
    """Give what a node that listens needs for `wss`: a file with its certificate, and one with the key.

    `cert` holds those that vouch for it too; without `key`, the key as well. With `client_ca`, a file with
    authorities, clients show a certificate that one of them has signed; `required=False` also lets those in
    who show none, for whom other schemes count. TLS 1.2 at least. Blocks on the disk. Raises ConfigError.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, cert, key)
    if client_ca is not None:
        _check_readable(client_ca)
        _told(context.load_verify_locations, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_tls(
    ca: Path | None = None, *, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Give what a node that consumes trusts: the authorities in `ca` alone, else those of the system.

    `cert` and `key` are what it shows of itself where it is asked. Blocks on the disk. Raises ConfigError.
    """
    context = ssl.create_default_context() if ca is None else _trusting(ca)
    if cert is not None:
        _load(context, cert, key)
    elif key is not None:
        raise ConfigError("a key goes with a certificate")
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    for path in (cert, key):
        if path is not None:
            _check_readable(path)
    try:
        # the key is not to be asked for at a terminal
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        said = str(error.reason or error) if isinstance(error, ssl.SSLError) else error.strerror
        where = os.fspath(cert if key is None else key)
        raise ConfigError(f"cannot be used as a certificate with its key: {said}", where) from None


def _no_password() -> str:
    raise ConfigError(
        "the key is encrypted: it is needed without a password, in a file that others cannot read"
    )


def _trusting(ca: Path) -> ssl.SSLContext:
    _check_readable(ca)
    return _told(lambda path: ssl.create_default_context(cafile=path), ca)


def _told(load: Callable[[Path], T], ca: Path) -> T:
    try:
        return load(ca)
    except (OSError, ssl.SSLError) as error:
        said = str(error.reason or error) if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"holds no certificates of authorities: {said}", os.fspath(ca)) from None


def _check_readable(path: Path) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", os.fspath(path)) from None
