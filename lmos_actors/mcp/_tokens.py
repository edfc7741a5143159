"""The tokens for one MCP server, and the registration at its authorization server: the SDK's token storage.

The SDK stores neither when a token ends nor where it is renewed. So both are stored with it here: otherwise
each new start would require a person to sign in, or would send the refresh token to a guessed address.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Final

import msgspec
import trio
from mcp.client.auth.oauth2 import OAuthContext  # noqa: TC002 -- read by readers only
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from pydantic import BaseModel, ValidationError

from lmos_actors.errors import ConfigError

FIELD: Final = "McpOAuth.tokens"


class Kept(msgspec.Struct):
    """The stored record for the server at a URL. `ends` is when the token ends, in Unix time."""

    url: str
    tokens: dict[str, Any] | None = None
    ends: float | None = None
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class Tokens:
    """The tokens for the server at a URL, in memory, and in a file if there is a `path`.

    `client` is the registration from the options; None if the program registers itself. `secrets` contains
    all texts that must not be shown.
    """

    def __init__(self, url: str, path: str | None) -> None:
        self.secrets: list[str] = []
        self.client: OAuthClientInformationFull | None = None
        self.context: OAuthContext | None = None
        self._path = None if path is None else Path(path)
        self._kept = Kept(url)

    def load(self) -> None:
        """Read the file, if it exists and belongs to this server. Blocks. Raises ConfigError."""
        if self._path is None:
            return
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=Kept)
            _read(OAuthToken, kept.tokens)
            _read(OAuthClientInformationFull, kept.client)
            _read(OAuthMetadata, kept.metadata)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}", FIELD) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, ValidationError):
            raise ConfigError(f"{self._path} is damaged: remove it, and sign in again", FIELD) from None
        if kept.url == self._kept.url:
            self._kept = kept
            self._hide(kept.tokens, kept.client)

    def port(self, wanted: int) -> int:
        """Return the port to which a browser is redirected: the wanted or registered one, or a free one.

        A registration for another port is forgotten.
        """
        found = _read(OAuthClientInformationFull, self._kept.client)
        known = found.redirect_uris[0].port if found is not None and found.redirect_uris else None
        if wanted not in (0, known):
            self._kept.client = None
        return wanted or known or _free_port()

    # ---- as the SDK calls it

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; set in the provider when they end and where they are renewed."""
        if self.context is not None:
            self.context.token_expiry_time = self._kept.ends
            self.context.oauth_metadata = _read(OAuthMetadata, self._kept.metadata)
        tokens: OAuthToken | None = _read(OAuthToken, self._kept.tokens)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens."""
        self._kept.tokens = _written(tokens)
        if self.context is not None:
            self._kept.ends = self.context.token_expiry_time
            metadata = self.context.oauth_metadata
            self._kept.metadata = None if metadata is None else _written(metadata)
        self._hide(self._kept.tokens)
        await self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        return self.client or _read(OAuthClientInformationFull, self._kept.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration that the program has made."""
        self._kept.client = _written(client_info)
        self._hide(self._kept.client)
        await self._save()

    def _hide(self, *found: dict[str, Any] | None) -> None:
        names = ("access_token", "refresh_token", "client_secret")
        for each in (each.get(name) for each in found if each is not None for name in names):
            if each and each not in self.secrets:
                self.secrets.append(each)

    async def _save(self) -> None:
        if self._path is not None:
            await trio.to_thread.run_sync(_replace, self._path, msgspec.json.encode(self._kept))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _replace(path: Path, written: bytes) -> None:
    """Replace a file as a whole; only its owner may read it. Raises ConfigError."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(written)
        os.replace(fresh, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", FIELD) from None


def _read(kind: type[Any], value: dict[str, Any] | None) -> Any:
    return None if value is None else kind.model_validate(value)


def _written(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_none=True)
