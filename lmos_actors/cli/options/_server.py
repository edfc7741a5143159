"""The options of commands that connect to one server: headers, credentials, trusted authorities."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import REACHED, Switch
from ._security import credential_in, credentials_at

if TYPE_CHECKING:
    import ssl

    from lmos_actors.security import Credentials


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The headers, credentials and trusted authorities for a server."""

    header: Annotated[
        list[str] | None, Parameter(name="--header", negative=(), metavar="NAME:VALUE", group=REACHED)
    ] = None
    """Send this header when connecting, such as "Accept-Language: de". May be given several times."""
    bearer: Annotated[str | None, Parameter(metavar="REF", group=REACHED)] = None
    """Present the token that env:NAME or file:PATH leads to."""
    basic: Annotated[str | None, Parameter(metavar="USER:REF", group=REACHED)] = None
    """Present a user and the password that env:NAME or file:PATH leads to."""
    ca: Annotated[str | None, Parameter(metavar="FILE", group=REACHED)] = None
    """A file with the authorities to trust, instead of those of the system."""
    cert: Annotated[str | None, Parameter(metavar="FILE", group=REACHED)] = None
    """A file with a certificate to show to a server that asks for one."""
    key: Annotated[str | None, Parameter(metavar="FILE", group=REACHED)] = None
    """A file with its key, if not in the same file."""
    insecure: Annotated[Switch, Parameter(group=REACHED)] = False
    """Allow unprotected traffic: credentials without TLS."""

    def headers(self) -> dict[str, str]:
        """Return the headers. Raises ConfigError."""
        from ._headers import headers_of

        return headers_of(self.header)

    def tls(self) -> ssl.SSLContext | None:
        """Return whom to trust and what to show, None for what the system has. Raises ConfigError."""
        if self.key is not None and self.cert is None:
            raise ConfigError("goes with --cert", "--key")
        if self.ca is None and self.cert is None:
            return None
        from lmos_actors.security import client_tls

        return client_tls(self.ca, cert=self.cert, key=self.key)

    def credentials(self, url: str) -> Credentials | None:
        """Return what is presented at the server of a URL. Blocks on the disk. Raises ConfigError."""
        given = {"bearer": self.bearer, "basic": self.basic}
        for kind, text in given.items():
            if text is None:
                continue
            option = f"--{kind}"
            if all(given.values()):
                raise ConfigError("give --bearer or --basic, not both", option)
            if "://" not in url:
                raise ConfigError("goes with a URL: a file may lead anywhere", option)
            from lmos_actors.transport import endpoint_of

            place = endpoint_of(url)
            there = f"{'https' if place.secure else 'http'}://{place.authority}"
            known = {there: credential_in(kind, text, option)}
            return credentials_at(known, insecure=self.insecure, option=option)
        return None

    def first_given(self) -> str | None:
        """Return the first of these options that was given, None for none."""
        names = (each.name for each in fields(ServerOptions))
        return next((f"--{name}" for name in names if getattr(self, name)), None)
