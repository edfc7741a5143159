"""Tokens that nodes receive when they are started together, and by which they recognize each other.

A token exists only in memory, not at a reference: the program that starts the nodes makes it for them. The
name of its principal is a digest of the token, so that no other scheme can yield that name.
"""

from __future__ import annotations

import os
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from lmos_actors._core import Headers, SecretBytes
from lmos_actors.errors import ConfigError

from ._credentials import is_private, place_of
from ._request import is_token

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST: Final = 32
"""Fewest bytes of a shared token: nobody may guess it."""

TOKEN_VARIABLE: Final = "LMOS_LAUNCHER_TOKEN"
"""The variable in which a launcher hands its token to a process of a group."""


class SharedToken:
    """A token that several nodes share: `SharedToken(b"...", urls)`. It has at least 32 characters.

    A node that hosts a directory accepts it with `DirectoryOptions(takeover_token=...)`. Other nodes present
    it with `Registration(url, token=...)`, only to the servers of `urls`. It is sent over TLS or within this
    machine, elsewhere only with `insecure`. Raises ConfigError.
    """

    __slots__ = ("_insecure", "_places", "_secret", "name")

    def __init__(self, secret: bytes, urls: Sequence[str] = (), *, insecure: bool = False) -> None:
        if len(secret) < LEAST or not is_token(secret):
            raise ConfigError(f"a shared token has at least {LEAST} characters that a bearer token can have")
        self._secret = SecretBytes(secret)
        self._places = frozenset(map(place_of, urls))
        self._insecure = insecure
        self.name = f"shared:{sha256(secret).hexdigest()[:32]}"
        """The name of the principal that presents it."""

    @staticmethod
    def new() -> str:
        """Return the text of a new token, of 256 random bits."""
        return os.urandom(32).hex()

    @staticmethod
    def handed() -> SecretBytes | None:
        """Remove the token that a launcher put into the environment, and return it, or None if there is none.

        Processes that this process starts do not get it.
        """
        text = os.environ.pop(TOKEN_VARIABLE, None)
        return None if text is None else SecretBytes(os.fsencode(text))

    def __repr__(self) -> str:
        return f"SharedToken({self.name!r})"

    def is_it(self, token: bytes) -> bool:
        """Return whether `token` equals this token."""
        return compare_digest(token, bytes(self._secret))

    def headers_for(self, url: str) -> Headers:
        """Return the headers that present the token to a server; () if the server must not receive it."""
        place = place_of(url)
        if place not in self._places or not (self._insecure or is_private(place)):
            return ()
        return ((b"authorization", SecretBytes(b"Bearer " + self._secret)),)
