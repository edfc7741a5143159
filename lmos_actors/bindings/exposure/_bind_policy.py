"""The addresses a node may listen at: nothing is open to other machines unless an option says so."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.security import ClientCertificates, Security, is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.transport import Endpoint


@attrs.frozen(kw_only=True)
class ArgumentNames:
    """The names of the arguments in errors; on the command line they have other names."""

    listen: str = "open_node(listen=...)"
    security: str = "security=Security(...)"
    insecure: str = "insecure=True"
    tls: str = "tls="
    client_ca: str = "server_tls(..., client_ca=...)"


def check_exposed(
    endpoints: Mapping[str, Endpoint],
    security: Security,
    tls: ssl.SSLContext | None,
    *,
    insecure: bool,
    words: ArgumentNames | None = None,
) -> None:
    """Check the addresses, by their URLs, against the security of the node. Raises ConfigError.

    Loopback addresses may be open. Others need credentials, and TLS where secrets travel, unless `insecure`
    is set. Client certificates need a TLS context that asks for them.
    """
    words = words or ArgumentNames()
    _check_certificates(endpoints, security, tls, words)
    for url, endpoint in endpoints.items():
        if insecure or is_loopback(endpoint.host):
            continue
        if security.is_open:
            raise ConfigError(
                f"{url!r} is reached from other machines, and anyone who can reach it can use every agent: "
                f"set access rules by {words.security}, listen at 127.0.0.1, or allow it by {words.insecure}",
                words.listen,
            )
        if security.needs_tls and not endpoint.secure:
            raise ConfigError(
                f"{url!r} is without TLS: passwords and tokens travel there for anyone on the way to read. "
                f"Use wss, with {words.tls}, or say {words.insecure} where something else keeps them secret",
                words.listen,
            )


def _check_certificates(
    endpoints: Mapping[str, Endpoint], security: Security, tls: ssl.SSLContext | None, words: ArgumentNames
) -> None:
    if not any(isinstance(each, ClientCertificates) for each in security.schemes):
        return
    asks = tls is not None and tls.verify_mode is not ssl.CERT_NONE
    if not asks or not any(each.secure for each in endpoints.values()):
        raise ConfigError(
            f"client certificates count, but none is asked for: that takes wss, and {words.client_ca}",
            words.listen,
        )
