"""The options for security of commands that listen, and for credentials of commands that connect."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from lmos_actors.errors import ConfigError, nearest

from .._app import GUARDED, PRESENTED, Switch

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator, Sequence

    from lmos_actors.scenario import RemoteAccess
    from lmos_actors.security import Credential, Credentials, Security


_IN_SHELL: Final = (
    ("by thing=", "by --thing"),
    (" (local=True allows it)", ""),  # in a shell the address itself can be given
    ("allow_insecure=True", "--insecure"),
)


def in_shell(text: str) -> str:
    """Return a message in which arguments of Python are called as they are in a shell."""
    for argument, option in _IN_SHELL:
        text = text.replace(argument, option)
    return text


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """The options of commands that listen."""

    cert: Annotated[str | None, Parameter(metavar="FILE", group=GUARDED)] = None
    """A file with the certificate and its chain, for wss."""
    key: Annotated[str | None, Parameter(metavar="FILE", group=GUARDED)] = None
    """A file with its key, if not in the same file."""
    client_ca: Annotated[str | None, Parameter(metavar="FILE", group=GUARDED)] = None
    """A file with authorities: clients must show a certificate that one of them has signed."""
    security: Annotated[str | None, Parameter(metavar="FILE", group=GUARDED)] = None
    """A YAML or TOML file with the access rules. \
Without it anyone who can reach it can use every agent."""
    origin: Annotated[list[str] | None, Parameter(negative=(), metavar="ORIGIN", group=GUARDED)] = None
    """Origin of web pages that may use it besides its own, such as https://app.example. \
May be given several times."""
    insecure: Annotated[Switch, Parameter(group=GUARDED)] = False
    """Allow unprotected traffic: clients without authentication, and credentials without TLS."""

    def options(self, addresses: Sequence[str]) -> dict[str, Any]:
        """Return what `open_node` takes. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.bindings import ArgumentNames, check_exposed
        from lmos_actors.security import Security
        from lmos_actors.transport import endpoint_of

        rules = Security() if self.security is None else Security.load(self.security)
        tls = self._tls(addresses, rules)
        words = ArgumentNames(
            listen="--listen",
            security="--security FILE",
            insecure="--insecure",
            tls="--cert FILE",
            client_ca="--cert FILE and --client-ca FILE",
        )
        by_url = {url: endpoint_of(url) for url in addresses}
        check_exposed(by_url, rules, tls, insecure=self.insecure, words=words)
        origins = tuple(self.origin or ())
        return {"tls": tls, "security": rules, "origins": origins, "insecure": self.insecure}

    def _tls(self, addresses: Sequence[str], rules: Security) -> ssl.SSLContext | None:
        from lmos_actors.security import ClientCertificates, NoSec, server_tls

        if self.cert is None:
            for name, value in (("--key", self.key), ("--client-ca", self.client_ca)):
                if value is not None:
                    raise ConfigError("goes with --cert", name)
            for url in addresses:
                if url.lower().startswith(("wss:", "https:")):
                    raise ConfigError(f"{url!r} needs a certificate: --cert FILE, and --key FILE", "--listen")
            return None
        others = [each for each in rules.schemes if not isinstance(each, ClientCertificates | NoSec)]
        return server_tls(self.cert, self.key, client_ca=self.client_ca, required=not others)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CredentialOptions:
    """The options of commands whose agents reach others."""

    ca: Annotated[str | None, Parameter(metavar="FILE", group=PRESENTED)] = None
    """A file with the authorities to trust, instead of those of the system."""
    credential: Annotated[
        list[str] | None, Parameter(negative=(), metavar="URL=CREDENTIAL", group=PRESENTED)
    ] = None
    """The credential for a server: bearer:REF or basic:USER:REF, where REF is env:NAME or file:PATH. \
May be given several times."""

    def options(
        self,
        *,
        insecure: bool,
        cert: str | None = None,
        key: str | None = None,
        option: str = "--cert",
    ) -> dict[str, Any]:
        """Return what `open_node` takes. Blocks on the disk. Raises ConfigError.

        `cert` and `key` are what is shown to servers that ask for a certificate; `option` is that of `cert`.
        """
        found: dict[str, Any] = {}
        if key is not None and cert is None:
            raise ConfigError(f"goes with {option}", option.replace("cert", "key"))
        if self.ca is not None or cert is not None:
            from lmos_actors.security import client_tls

            found["client_tls"] = client_tls(self.ca, cert=cert, key=key)
        if self.credential:
            known = self.by_url()
            found["credentials"] = credentials_at(known, insecure=insecure, option="--credential")
        return found

    def by_url(self) -> dict[str, Credential]:
        """Return the credentials by where they are for; reads no secret. Raises ConfigError."""
        return _credentials(self.credential or ())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutwardOptions:
    """The options of commands that reach other servers and serve nothing to others."""

    credentials: CredentialOptions = CredentialOptions()
    cert: Annotated[str | None, Parameter(metavar="FILE", group=PRESENTED)] = None
    """A file with a certificate to show to a server that asks for one."""
    key: Annotated[str | None, Parameter(metavar="FILE", group=PRESENTED)] = None
    """A file with its key, if not in the same file."""
    insecure: Annotated[Switch, Parameter(group=PRESENTED)] = False
    """Allow unprotected traffic: credentials without TLS."""

    def options(self) -> dict[str, Any]:
        """Return what `open_node` takes. Blocks on the disk. Raises ConfigError."""
        return self.credentials.options(insecure=self.insecure, cert=self.cert, key=self.key)

    def access(self) -> RemoteAccess:
        """Return the access to remote agents of files. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.scenario import RemoteAccess

        self.options()  # what is missing or cannot be used is known before any file is read
        return RemoteAccess(
            ca=_absolute(self.credentials.ca),
            cert=_absolute(self.cert),
            key=_absolute(self.key),
            credentials=[(url, str(each)) for url, each in self.credentials.by_url().items()],
            insecure=self.insecure,
        )


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def misfits(patterns: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each pattern of an access list that fits nothing that is served.

    Of agents that may yet come, below those that are there, nothing is said.
    """
    known = (*names, "directory", "metrics")
    tops = {name.partition(".")[0]: None for name in known}
    for pattern in patterns:
        top = pattern.partition(".")[0]
        if not any(fnmatchcase(name, pattern) for name in known) and not (
            "." in pattern and any(fnmatchcase(name, top) for name in tops)
        ):
            near = nearest(pattern, names)
            hint = f", did you mean {near!r}?" if near else ""
            yield f"--security: access: {pattern!r} fits no agent that is served{hint}"


def _credentials(given: Sequence[str]) -> dict[str, Credential]:
    known: dict[str, Credential] = {}
    for text in given:
        url, equals, said = text.partition("=")
        kind, _, rest = said.partition(":")
        if not equals or "://" not in url or kind not in ("bearer", "basic"):
            raise ConfigError("is to be URL=bearer:REF or URL=basic:USER:REF", "--credential")
        if url in known:
            raise ConfigError(f"{url} is given twice", "--credential")
        known[url] = credential_in(kind, rest, "--credential")
    return known


def credential_in(kind: str, text: str, option: str) -> Credential:
    """Read the credential that an option was given; never says it back. Raises ConfigError."""
    from lmos_actors.security import credential_of

    try:
        return credential_of(kind, text)
    except ConfigError as error:
        raise ConfigError(error.message, option) from None


def credentials_at(known: dict[str, Credential], *, insecure: bool, option: str) -> Credentials:
    """Return credentials by where they are for. Blocks on the disk. Raises ConfigError."""
    from lmos_actors.security import Credentials

    try:
        return Credentials(known, allow_insecure=insecure)
    except ConfigError as error:
        raise ConfigError(in_shell(error.message), error.path or option) from None
