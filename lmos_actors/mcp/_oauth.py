"""The OAuth options for MCP servers at a URL: plain data, without the SDK."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable  # noqa: TC003 -- types of fields are read
from typing import Final, Literal

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.security import Reference, is_private, place_of

NOBODY: Final = (
    "says nobody who gets the tokens: for a program, give client_id, issuer, and client_secret or "
    'private_key; for a person who signs in, ask="approve", or a function that opens a URL'
)


@attrs.frozen(kw_only=True)
class McpOAuth:
    """The OAuth 2.1 options by which this program gets tokens for an MCP server at a URL.

    The program gets tokens for itself with the `client_id` and the `client_secret`, or with the `private_key`
    that signs with `algorithm`. The authorization server `issuer` knows these credentials, and they are sent
    to no other server. `client_secret` and `private_key` are references to secrets.

    The program gets tokens for a person who signs in with a browser: `ask` has the person open a URL, as an
    approval (`"approve"`) or by a function of yours. Within `seconds` the browser is redirected to the port
    `redirect_port` of this machine, 0 for any free one. Without a `client_id` the program registers itself; a
    `client_id` that is an https URL names the program's metadata.

    The tokens are kept in memory, or in the file `tokens`, which nobody else may read. Raises ConfigError.
    """

    client_id: str = ""
    client_secret: str | None = None
    private_key: str | None = None
    algorithm: str = "ES256"
    issuer: str = ""
    auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    ask: Literal["approve"] | Callable[[str], Awaitable[object]] | None = None
    redirect_port: int = 0
    seconds: float = 600.0
    tokens: str | None = None

    def __attrs_post_init__(self) -> None:
        for field in ("client_secret", "private_key"):
            value = getattr(self, field)
            if value is None:
                continue
            try:
                Reference.parse(value)
            except ConfigError as error:
                raise _wrong(str(error), field) from None
        self._check_who()
        if self.issuer:
            try:
                private = is_private(place_of(self.issuer))
            except ConfigError as error:
                raise _wrong(str(error), "issuer") from None
            if not private:
                raise _wrong(f"must be a https URL, or one of this machine, not {self.issuer!r}", "issuer")
        if self.auth_method not in ("client_secret_basic", "client_secret_post"):
            raise _wrong('must be "client_secret_basic" or "client_secret_post"', "auth_method")
        if self.ask is not None and self.ask != "approve" and not callable(self.ask):
            raise _wrong('must be "approve" or an async function that gets a URL', "ask")
        if type(self.redirect_port) is not int or not 0 <= self.redirect_port <= 65_535:
            raise _wrong(f"must be a port, or 0, not {self.redirect_port!r}", "redirect_port")
        if type(self.seconds) not in (int, float) or not 0 < self.seconds < math.inf:
            raise _wrong(f"must be a number of seconds above 0, not {self.seconds!r}", "seconds")

    def _check_who(self) -> None:
        secrets = [each for each in (self.client_secret, self.private_key) if each is not None]
        if len(secrets) > 1:
            raise _wrong("is one of the two ways of a client to show who it is", "private_key")
        if self.ask is None and not (self.client_id and secrets):
            raise ConfigError(NOBODY, "McpOAuth")
        if self.ask is not None and self.private_key is not None:
            raise _wrong("is for a program, and none where a person signs in", "private_key")
        if secrets and not (self.client_id and self.issuer):
            raise _wrong("is needed with a secret, which is for this server alone", "issuer")

    @property
    def secret(self) -> str | None:
        """The reference to the secret, None if there is none."""
        return self.client_secret if self.private_key is None else self.private_key


def _wrong(text: str, field: str) -> ConfigError:
    return ConfigError(text, f"McpOAuth.{field}")
