"""Connection options of a node, and their validation."""

from __future__ import annotations

import re
import socket
import ssl
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors._core import current_environment
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.observe import MetricsOptions
    from lmos_actors.protocol.lmos import SessionOptions
    from lmos_actors.security import Credentials, Security
    from lmos_actors.transport import ConnectionOptions, DoorOptions, Endpoint, Network

WILDCARD_HOSTS: Final = ("0.0.0.0", "::")

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:([!-~]([ -~]*[!-~])?)?")

_memory_network: trio.lowlevel.RunVar[Network | None] = trio.lowlevel.RunVar("lmos_actors.network", None)


@attrs.frozen
class ConnectionConfig:
    """The arguments of `open_node` about connections."""

    listen: str | Sequence[str] | None = None
    public_url: str | None = None
    tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    network: Network | None = None
    session: SessionOptions | None = None
    connection: ConnectionOptions | None = None
    door: DoorOptions | None = None
    security: Security | None = None
    origins: Sequence[str] = ()
    insecure: bool = False
    credentials: Credentials | None = None
    metrics: bool | MetricsOptions = False
    tracing: Any = None

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to listen at. Raises ConfigError."""
        self._check_credentials()
        urls = _urls_of(self.listen)
        if not urls:
            self._check_no_server()
            return ()
        from lmos_actors.transport import endpoint_of

        found = tuple(endpoint_of(url) for url in urls)
        for url, endpoint in zip(urls, found, strict=True):
            self._check_endpoint(url, endpoint)
        if self.tls is not None and not any(endpoint.secure for endpoint in found):
            raise ConfigError(
                f"goes with an address that begins with wss://, not with {urls[0]!r}", _argument("tls")
            )
        if self.tls is not None:
            self._check_validity(self.tls)
        if self.public_url is not None:
            endpoint_of(self.public_url)
        return found

    def _check_validity(self, tls: ssl.SSLContext) -> None:
        """Raise ConfigError for a certificate that no client would accept today."""
        from lmos_actors.security import validity_error

        wrong = validity_error(tls)
        if wrong is not None:
            raise ConfigError(f"its certificate {wrong}", _argument("tls"))

    def _check_credentials(self) -> None:
        if self.credentials is None:
            return
        from lmos_actors.security import Credentials

        if not isinstance(self.credentials, Credentials):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"must be Credentials, not {type(self.credentials).__name__}", _argument("credentials")
            )

    def _check_no_server(self) -> None:
        for name in ("public_url", "tls", "door", "security", "origins", "insecure"):
            if getattr(self, name) not in (None, (), False):
                raise ConfigError("goes with listen=, which is not given", _argument(name))

    def effective_security(self) -> Security:
        """Return the security in effect, `origins` included. Raises ConfigError."""
        from lmos_actors.security import Security

        security = Security() if self.security is None else self.security
        if not isinstance(security, Security):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be a Security, not {type(security).__name__}", _argument("security"))
        return attrs.evolve(security, origins=(*security.origins, *self.origins))

    def check_exposed(self, endpoints: Sequence[Endpoint]) -> None:
        """Check that endpoints others can reach are unprotected only with `insecure`. Raises ConfigError."""
        from lmos_actors.bindings import check_exposed

        by_url = dict(zip(_urls_of(self.listen), endpoints, strict=True))
        check_exposed(by_url, self.effective_security(), self.tls, insecure=self.insecure)

    def host_names(self, endpoints: Sequence[Endpoint], *, named: bool) -> tuple[str, ...]:
        """Return the host names by which clients reach the endpoints.

        With `named` an endpoint on all interfaces is reached by the name of the machine.
        """
        from lmos_actors.transport import endpoint_of

        public = () if self.public_url is None else (endpoint_of(self.public_url),)
        names = (name for each in (*endpoints, *public) for name in _host_names_of(each.host, named=named))
        return tuple(dict.fromkeys(names))

    def _check_endpoint(self, url: str, endpoint: Endpoint) -> None:
        if endpoint.target != "/":
            raise ConfigError(
                f"{url!r} has a path: agents are at /agents/NAME; what a proxy puts before is for public_url",
                _argument("listen"),
            )
        if endpoint.secure and self.tls is None:
            raise ConfigError(f"{url!r} needs a certificate, as tls=ssl.SSLContext", _argument("listen"))
        if self.tls is not None and not isinstance(self.tls, ssl.SSLContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be an ssl.SSLContext, not {self.tls!r}", _argument("tls"))


def _argument(name: str) -> str:
    return f"open_node({name}=...)"


def _urls_of(listen: Any) -> tuple[str, ...]:
    urls: Any = (listen,) if isinstance(listen, str) else listen
    try:
        found: tuple[Any, ...] = tuple(urls or ())
    except TypeError:
        found = (urls,)
    if not all(isinstance(url, str) for url in found):
        raise ConfigError(
            f"must be a URL such as 'ws://127.0.0.1:8080', or several, not {listen!r}", _argument("listen")
        )
    return found


def _host_names_of(host: str, *, named: bool) -> tuple[str, ...]:
    if not named or host not in WILDCARD_HOSTS:
        return (host,)
    machine = socket.gethostname()
    return (machine, f"{machine.partition('.')[0]}.local")


def default_network() -> Network:
    """Return the network of this trio run: one in memory on virtual time, else the operating system's."""
    clock = trio.lowlevel.current_clock()
    environment = current_environment()
    is_real = environment is None or environment.timers is None
    if is_real and getattr(clock, "autojump_threshold", inf) == inf:
        from lmos_actors.transport import TcpNetwork

        return TcpNetwork()
    network = _memory_network.get()
    if network is None:
        from lmos_actors.transport import MemoryNetwork

        network = MemoryNetwork()
        _memory_network.set(network)
    return network


def encode_headers(headers: Mapping[str, str] | None) -> tuple[tuple[bytes, bytes], ...]:
    """Return headers encoded for the wire.

    Raises ConfigError for an invalid name or value; the text leaves the value out, as it may be a secret.
    """
    given = (headers or {}).items()
    for name, value in given:
        if not _HEADER.fullmatch(f"{name}:{value}"):
            raise ConfigError(f"{name!r} has to be a name, its value printable ASCII on one line", "headers")
    return tuple((name.encode("ascii"), value.encode("ascii")) for name, value in given)
