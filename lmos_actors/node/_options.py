"""Options of a node, and their validation.

The packages `transport`, `bindings`, `security` and `discovery` are imported inside functions: a node that
does not use them does not load them.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from lmos_actors._core import check_limits
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.trace import TracerProvider

    from lmos_actors._core import Instrument
    from lmos_actors.bindings import HttpOptions
    from lmos_actors.discovery import Registration
    from lmos_actors.observe import MetricsOptions
    from lmos_actors.persistence import AsyncStore, Store
    from lmos_actors.protocol.lmos import SessionOptions
    from lmos_actors.security import Credentials, Security, Sessions
    from lmos_actors.transport import ConnectionOptions, DoorOptions, Endpoint, Listener, Network

    from ._service import NodeService

WILDCARD_HOSTS: Final = ("0.0.0.0", "::")

SERVED: Final = ("public_url", "tls", "door", "security", "origins", "insecure", "allow_operations")
"""Options that need an address to listen at."""

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:([!-~]([ -~]*[!-~])?)?")


def one_of(*words: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator for an option whose value is one of some words."""

    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in words:
            raise ConfigError(f"is {' or '.join(map(repr, words))}, not {value!r}", argument(attribute.name))

    return check


@attrs.frozen(kw_only=True)
class NodeLimits:
    """Limits of the records that a node keeps for inspection, and of the time for one turn.

    The node keeps the last `dead_letters`, `crash_reports` and `connection_failures`. A turn that holds up
    the node for `slow_seconds` is named by a SlowTurnWarning, in steps of 10 ms; real time only.

    Raises ConfigError for a number that is not above 0.
    """

    dead_letters: int = 1_000
    crash_reports: int = 100
    connection_failures: int = 100
    slow_seconds: float = 0.1

    def __attrs_post_init__(self) -> None:
        check_limits(self)


@attrs.frozen(kw_only=True)
class RuntimeOptions:
    """The options of a node by itself; `NodeOptions` adds the options of its usual services.

    `services` are functions that return a service, such as its class; they are called when the node opens.
    Raises ConfigError for an option that is invalid or does not go with another. Whether the addresses of
    `listen` are safe to listen at is checked when the node opens, as it depends on the network.
    """

    instrument: Instrument | None = None
    threads: int | None = None
    processes: int | None = None
    limits: NodeLimits = NodeLimits()
    listen: str | Sequence[str] | None = None
    public_url: str | None = None
    tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    network: Network | None = None
    session: SessionOptions | None = None
    connection: ConnectionOptions | None = None
    door: DoorOptions | None = None
    http: HttpOptions | None = None
    security: Security | None = None
    origins: Sequence[str] = ()
    insecure: bool = False
    credentials: Credentials | None = None
    register: str | Sequence[str] | Registration | bool | None = None
    lookup: str | Sequence[str] | None = None
    announce: bool | str = False
    metrics: bool | MetricsOptions = False
    tracing: bool | TracerProvider | None = None
    store: Store | AsyncStore | str | None = None
    circles: Literal["warn", "fail"] = attrs.field(default="warn", validator=one_of("warn", "fail"))
    strict_resume: bool = False
    allow_operations: bool = False
    services: Sequence[Callable[[], NodeService]] = ()
    endpoints: tuple[Endpoint, ...] = attrs.field(init=False, repr=False, eq=False)
    """The endpoints to listen at, in the order of `listen`."""

    def __attrs_post_init__(self) -> None:
        self._check_credentials()
        object.__setattr__(self, "endpoints", self._checked_endpoints())
        self._check_discovery()
        self._check_operations()
        if isinstance(self.store, str):
            from lmos_actors.persistence import store_of

            try:
                store_of(self.store)
            except ConfigError as error:
                raise ConfigError(error.message, argument("store")) from None

    def all_services(self) -> Sequence[Callable[[], NodeService]]:
        """Return the functions that make the node's services."""
        return self.services

    # ---- connections

    def _checked_endpoints(self) -> tuple[Endpoint, ...]:
        urls = _urls_of(self.listen)
        if not urls:
            self.check_no_server(SERVED)
            return ()
        from lmos_actors.transport import endpoint_of

        found = tuple(endpoint_of(url) for url in urls)
        for url, endpoint in zip(urls, found, strict=True):
            self._check_endpoint(url, endpoint)
        if self.tls is not None and not any(endpoint.secure for endpoint in found):
            raise ConfigError(
                f"goes with an address that begins with wss://, not with {urls[0]!r}", argument("tls")
            )
        if self.tls is not None:
            from lmos_actors.security import validity_error

            wrong = validity_error(self.tls)  # no client would accept the certificate today
            if wrong is not None:
                raise ConfigError(f"its certificate {wrong}", argument("tls"))
        if self.public_url is not None:
            endpoint_of(self.public_url)
        return found

    def _check_credentials(self) -> None:
        if self.credentials is None:
            return
        from lmos_actors.security import Credentials

        if not isinstance(self.credentials, Credentials):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"must be Credentials, not {type(self.credentials).__name__}", argument("credentials")
            )

    def check_no_server(self, names: Sequence[str]) -> None:
        """Raise ConfigError if one of the options `names` is given, as each needs an address to listen at."""
        for name in names:
            if getattr(self, name) not in (None, (), [], False):
                raise ConfigError("goes with listen=, which is not given", argument(name))

    def effective_security(self) -> Security:
        """Return the security in effect, `origins` included. Raises ConfigError."""
        from lmos_actors.security import Security

        security = Security() if self.security is None else self.security
        if not isinstance(security, Security):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be a Security, not {type(security).__name__}", argument("security"))
        return attrs.evolve(security, origins=(*security.origins, *self.origins))

    @property
    def is_open(self) -> bool:
        """Whether clients need no credentials to use the node."""
        return self.security is None or self.effective_security().is_open

    def _check_operations(self) -> None:
        if not self.allow_operations:
            return
        if not self.is_open:
            raise ConfigError(
                "goes with a node without schemes: here lists `approve` of its Security say who decides",
                argument("allow_operations"),
            )
        if self.public_url is not None:
            raise ConfigError(
                "is for clients on this machine, and behind public_url= a proxy is for others: use security=",
                argument("allow_operations"),
            )

    @property
    def is_exposed(self) -> bool:
        """Whether `insecure` lets other machines reach the node."""
        return self.insecure and not _is_on_loopback(self)

    def check_exposed(self) -> None:
        """Raise ConfigError if others can reach an unprotected endpoint and `insecure` is not set."""
        from lmos_actors.bindings import check_exposed

        by_url = dict(zip(_urls_of(self.listen), self.endpoints, strict=True))
        check_exposed(by_url, self.effective_security(), self.tls, insecure=self.insecure)

    def host_names(self, *, named: bool) -> tuple[str, ...]:
        """Return the host names by which clients reach the node.

        With `named`, the name of the machine is among them for an endpoint on all interfaces.
        """
        from lmos_actors.transport import endpoint_of

        public = () if self.public_url is None else (endpoint_of(self.public_url),)
        names: list[str] = []
        for each in (*self.endpoints, *public):
            if named and each.host in WILDCARD_HOSTS:
                machine = socket.gethostname()
                names += [machine, f"{machine.partition('.')[0]}.local"]
            else:
                names.append(each.host)
        return tuple(dict.fromkeys(names))

    def _check_endpoint(self, url: str, endpoint: Endpoint) -> None:
        if endpoint.target != "/":
            raise ConfigError(
                f"{url!r} has a path: agents are at /agents/NAME; what a proxy puts before is for public_url",
                argument("listen"),
            )
        if endpoint.secure and self.tls is None:
            raise ConfigError(f"{url!r} needs a certificate, as tls=ssl.SSLContext", argument("listen"))
        if self.tls is not None and not isinstance(self.tls, ssl.SSLContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be an ssl.SSLContext, not {self.tls!r}", argument("tls"))

    # ---- discovery

    @property
    def registration(self) -> Registration | None:
        """The registration at directories other than the node's own, or None. Raises ConfigError."""
        register: Any = self.register
        if register is None or register is True or register is False:
            return None
        from lmos_actors.discovery import Registration

        return register if isinstance(register, Registration) else Registration(register)

    @property
    def directory_urls(self) -> tuple[str, ...]:
        """The URLs of all directories that are searched, other than the node's own."""
        registration = self.registration
        registered = () if registration is None else registration.directories
        return tuple(dict.fromkeys((*registered, *self.lookup_urls)))

    @property
    def lookup_urls(self) -> tuple[str, ...]:
        """The URLs of the directories that are searched without registering there."""
        lookup = self.lookup or ()
        return (lookup,) if isinstance(lookup, str) else tuple(lookup)

    def _check_discovery(self) -> None:
        if self.register and not self.listen:
            raise ConfigError(
                "goes with listen=, which is not given: other nodes could not reach its agents",
                argument("register"),
            )
        if self.announce and not self.listen:
            raise ConfigError("goes with listen=, which is not given", argument("announce"))
        for url in self.directory_urls:
            self._check_directory(url)

    def _check_directory(self, url: str) -> None:
        from lmos_actors.discovery import place_of_directory

        try:
            place_of_directory(url)
        except ConfigError as error:
            raise ConfigError(
                error.message, argument("lookup" if url in self.lookup_urls else "register")
            ) from None


def argument(name: str) -> str:
    """Return the name of an option in the form that errors show."""
    return f"open_node({name}=...)"


def _urls_of(listen: Any) -> tuple[str, ...]:
    urls: Any = (listen,) if isinstance(listen, str) else listen
    try:
        found: tuple[Any, ...] = tuple(urls or ())
    except TypeError:
        found = (urls,)
    if not all(isinstance(url, str) for url in found):
        raise ConfigError(
            f"must be a URL such as 'ws://127.0.0.1:8080', or several, not {listen!r}", argument("listen")
        )
    return found


def encode_headers(headers: Mapping[str, str] | None) -> tuple[tuple[bytes, bytes], ...]:
    """Return headers encoded for the wire.

    Raises ConfigError for an invalid name or value; the text leaves the value out, as it may be a secret.
    """
    given = (headers or {}).items()
    for name, value in given:
        if not _HEADER.fullmatch(f"{name}:{value}"):
            raise ConfigError(f"{name!r} has to be a name, its value printable ASCII on one line", "headers")
    return tuple((name.encode("ascii"), value.encode("ascii")) for name, value in given)


def urls_at(endpoint: Endpoint, listener: Listener, *, named: bool) -> list[str]:
    """Return the URLs at which a listener is reached."""
    host = endpoint.host
    if named and host in WILDCARD_HOSTS:
        host = socket.gethostname()
    ports = dict.fromkeys(port for _, port in listener.addresses)
    return [attrs.evolve(endpoint, host=host, port=port, target="").url for port in ports]


def without_none(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def sessions_at(options: RuntimeOptions, url: str) -> Sessions | None:
    """Return the log-in sessions of a node; None if it requires no credentials.

    `url` is the node's first address.
    """
    if options.is_open:
        return None
    from lmos_actors.security import Sessions
    from lmos_actors.transport import endpoint_of

    return Sessions(endpoint_of(options.public_url or url).port)


def is_guarded(options: RuntimeOptions, in_memory: Callable[[], bool]) -> bool:
    """Return whether a node is guarded: its clients are strangers to each other and to this machine.

    A node is guarded if clients must authenticate, if a proxy is in front (`public_url`), or if other
    machines can reach the node. On such a node a loopback address opens nothing. Access lists and the page
    make no difference. `in_memory` returns whether all connections stay inside the process.
    """
    if not options.is_open or options.public_url is not None:
        return True
    return not (_is_on_loopback(options) or in_memory())


def _is_on_loopback(options: RuntimeOptions) -> bool:
    if not options.endpoints:
        return True
    from lmos_actors.security import is_loopback

    return all(is_loopback(endpoint.host) for endpoint in options.endpoints)
