"""The options of commands that connect to servers: headers, credentials, TLS.

`ServerOptions` are for commands that connect to one server, which the command line names. `OutwardOptions`
are for commands that connect to several servers, each with its own credentials. `PresentOptions` are for
`serve`, where `--cert` is the certificate of the server itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import PRESENTED, REACHED, File, Switch, Texts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from lmos_actors._core import Headers
    from lmos_actors.security import Credential, Credentials
    from lmos_actors.system import RemoteAccess

Authorities: TypeAlias = Annotated[
    File, Parameter(help="A file with the authorities to trust, instead of those of the system.")
]

_IN_SHELL: Final = (
    ("by thing=", "by --thing"),
    (" (local=True allows it)", ""),  # in a shell the address itself can be given
    ("allow_insecure=True", "--insecure"),
)


def in_shell(text: str) -> str:
    """Return a message with Python's argument names replaced by the command line's options."""
    for argument, option in _IN_SHELL:
        text = text.replace(argument, option)
    return text


def options_in(group: Any) -> dict[str, Any]:
    """Return the values of a group of options, and of the groups in it, by option."""
    found: dict[str, Any] = {}
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            found |= options_in(value)
        else:
            found[f"--{field.name.rstrip('_').replace('_', '-')}"] = value
    return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClientTlsOptions:
    """The TLS options of commands that connect to servers."""

    ca: Authorities = None
    cert: File = None
    """A file with a certificate to show to a server that asks for one."""
    key: File = None
    """A file with its key, if not in the same file."""
    insecure: Switch = False
    """Allow unprotected traffic: credentials without TLS."""

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for the system default. Blocks on the disk. Raises ConfigError."""
        return _client_context(self.ca, self.cert, self.key, "--cert")


def _client_context(ca: str | None, cert: str | None, key: str | None, option: str) -> ssl.SSLContext | None:
    if key is not None and cert is None:
        raise ConfigError(f"goes with {option}", option.replace("cert", "key"))
    if ca is None and cert is None:
        return None
    from lmos_actors.security import client_tls

    return client_tls(ca, cert=cert, key=key)


def secret_lines(reference: str, option: str) -> tuple[str, ...]:
    """Return the non-empty lines of a secret. Blocks on the disk. Raises ConfigError."""
    from lmos_actors.security import Reference, SecretSource

    try:
        source = SecretSource(Reference.parse(reference))
    except ConfigError as error:
        raise ConfigError(error.message, option) from None
    value = source.read()
    lines = () if value is None else tuple(value.decode("utf-8", "replace").split("\n"))
    found = tuple(line.strip() for line in lines if line.strip())
    if not found:
        raise ConfigError(source.problem or "is empty", option)
    return found


# --- one server


class Server(NamedTuple):
    """A server, and how to connect to it."""

    url: str
    headers: Mapping[str, str]
    credentials: Credentials | None
    tls: ssl.SSLContext | None

    @property
    def header_lines(self) -> Headers:
        """The headers as they are sent: bytes, with names in lower case."""
        return tuple((name.lower().encode(), value.encode()) for name, value in self.headers.items())


_NO_TLS = ClientTlsOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The headers, credentials and trusted authorities for a server."""

    header: Annotated[Texts, Parameter(metavar="NAME:VALUE", group=REACHED)] = None
    """Send this header when connecting, such as "Accept-Language: de". May be given several times."""
    bearer: Annotated[str | None, Parameter(metavar="REF", group=REACHED)] = None
    """Present the token that env:NAME or file:PATH leads to."""
    basic: Annotated[str | None, Parameter(metavar="USER:REF", group=REACHED)] = None
    """Present a user and the password that env:NAME or file:PATH leads to."""
    tls: Annotated[ClientTlsOptions, Parameter(group=REACHED)] = _NO_TLS

    def at(self, url: str) -> Server:
        """Return a URL's server, with its connection settings. Blocks on the disk. Raises ConfigError."""
        return Server(url, self.headers(), self.credentials(url), self.tls.context())

    def headers(self) -> dict[str, str]:
        """Return the headers. Raises ConfigError."""
        found: dict[str, str] = {}
        for text in self.header or ():
            name, colon, value = text.partition(":")
            if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ConfigError(f'"{text}" is not NAME:VALUE', "--header")
            if not value.isascii() or not value.isprintable():
                raise ConfigError(f"the value of {name} must be printable ASCII", "--header")
            if name.lower() in map(str.lower, found):
                raise ConfigError(f"{name} is given twice", "--header")
            found[name] = value.strip()
        return found

    def credentials(self, url: str) -> Credentials | None:
        """Return the credentials for the server of a URL. Blocks on the disk. Raises ConfigError."""
        given = {kind: text for kind, text in self._credentials().items() if text is not None}
        for kind, text in given.items():
            option = f"--{kind}"
            if len(given) > 1:
                raise ConfigError(f"give one of {', '.join(f'--{each}' for each in given)}", option)
            if "://" not in url:
                raise ConfigError("goes with a URL: a file may lead anywhere", option)
            from lmos_actors.transport import endpoint_of

            place = endpoint_of(url)
            there = f"{'https' if place.secure else 'http'}://{place.authority}"
            known = {there: _credential_in(kind, text, option)}
            return _credentials_at(known, insecure=self.tls.insecure, option=option)
        return None

    def _credentials(self) -> dict[str, str | None]:
        """Return the credentials from the options, of which only one may be given."""
        return {"bearer": self.bearer, "basic": self.basic}

    def first_given(self) -> str | None:
        """Return the first of these options that was given, or None if none was."""
        return next((option for option, value in options_in(self).items() if value), None)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ThingServerOptions(ServerOptions):
    """Like `ServerOptions`, for commands that use a server's description."""

    apikey: Annotated[str | None, Parameter(metavar="REF", group=REACHED)] = None
    """Present the API key that env:NAME or file:PATH leads to, if the description asks for it."""

    def _credentials(self) -> dict[str, str | None]:
        """See `ServerOptions`."""
        return {**super()._credentials(), "apikey": self.apikey}


# --- several servers


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CredentialOptions:
    """The credentials for several servers."""

    credential: Annotated[Texts, Parameter(metavar="URL=CREDENTIAL", group=PRESENTED)] = None
    """The credential for a server: bearer:REF, basic:USER:REF or apikey:REF, where REF is env:NAME or \
file:PATH. May be given several times."""

    def by_url(self) -> dict[str, Credential]:
        """Return the credentials by the URLs of their servers; reads no secret. Raises ConfigError."""
        known: dict[str, Credential] = {}
        for text in self.credential or ():
            url, equals, rest = text.partition("=")
            kind, _, reference = rest.partition(":")
            if not equals or "://" not in url or kind not in ("bearer", "basic", "apikey"):
                raise ConfigError(
                    "must be URL=bearer:REF, URL=basic:USER:REF or URL=apikey:REF", "--credential"
                )
            if url in known:
                raise ConfigError(f"{url} is given twice", "--credential")
            known[url] = _credential_in(kind, reference, "--credential")
        return known

    def node_options(self, tls: ssl.SSLContext | None, *, insecure: bool) -> dict[str, Any]:
        """Return the arguments of `open_node`. Blocks on the disk. Raises ConfigError."""
        found: dict[str, Any] = {} if tls is None else {"client_tls": tls}
        if self.credential:
            known = self.by_url()
            found["credentials"] = _credentials_at(known, insecure=insecure, option="--credential")
        return found


_NO_CREDENTIALS = CredentialOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutwardOptions:
    """The options of commands that reach other servers and serve nothing to others."""

    credentials: CredentialOptions = _NO_CREDENTIALS
    tls: Annotated[ClientTlsOptions, Parameter(group=PRESENTED)] = _NO_TLS

    def options(self) -> dict[str, Any]:
        """Return the arguments of `open_node`. Blocks on the disk. Raises ConfigError."""
        return self.credentials.node_options(self.tls.context(), insecure=self.tls.insecure)

    def access(self) -> RemoteAccess:
        """Return the access to the remote agents that files name. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.system import RemoteAccess

        self.options()  # so that errors are raised before any file is read
        return RemoteAccess(
            ca=_absolute(self.tls.ca),
            cert=_absolute(self.tls.cert),
            key=_absolute(self.tls.key),
            credentials=[(url, str(each)) for url, each in self.credentials.by_url().items()],
            insecure=self.tls.insecure,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PresentOptions:
    """The options of `serve` for connections to other servers."""

    ca: Annotated[Authorities, Parameter(group=PRESENTED)] = None
    credentials: CredentialOptions = _NO_CREDENTIALS
    present_cert: Annotated[File, Parameter(group=PRESENTED)] = None
    """A file with a certificate that refs, registrations and lookups show to servers that ask for one. \
The certificate of the server itself is --cert."""
    present_key: Annotated[File, Parameter(group=PRESENTED)] = None
    """A file with the key of --present-cert, if that is not in the same file."""

    def options(self, *, insecure: bool) -> dict[str, Any]:
        """Return the arguments of `open_node`. Blocks on the disk. Raises ConfigError."""
        tls = _client_context(self.ca, self.present_cert, self.present_key, "--present-cert")
        return self.credentials.node_options(tls, insecure=insecure)


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _credential_in(kind: str, text: str, option: str) -> Credential:
    """Read the credential of an option; errors do not repeat it. Raises ConfigError."""
    from lmos_actors.security import credential_of

    try:
        return credential_of(kind, text)
    except ConfigError as error:
        raise ConfigError(error.message, option) from None


def _credentials_at(known: Mapping[str, Credential], *, insecure: bool, option: str) -> Credentials:
    from lmos_actors.security import Credentials

    try:
        return Credentials(known, allow_insecure=insecure)
    except ConfigError as error:
        raise ConfigError(in_shell(error.message), error.path or option) from None
