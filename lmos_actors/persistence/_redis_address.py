"""The URL of a store in a Redis server. This module opens nothing and does not need the Redis client."""

from __future__ import annotations

import os
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from lmos_actors.errors import ConfigError, nearest
from lmos_actors.security import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

PORT: Final = 6379

PREFIX: Final = "lmos"
"""Prefix of all keys by default."""

ID_LENGTH: Final = 16
"""Hexadecimal digits of the identifier of a store."""


@attrs.frozen(kw_only=True)
class RedisAddress:
    """The parts of the URL of a store in Redis: `redis://HOST[:PORT][/DB]`, or `rediss://` over TLS.

    The parameters are `user` and `password` (a reference, `env:NAME` or `file:PATH`), `ca`, `cert` and `key`
    (PEM files), `prefix` (of all keys), `replicas` (the number of replicas that must have a commit before it
    counts), `keeps=nothing` (the server may lose everything when it ends), `writers=one` (each opening ends
    the earlier writers) and `id` (the identifier that the store must have).
    """

    host: str
    port: int = PORT
    database: int = 0
    secure: bool = False
    user: str = "default"
    password: Reference | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    prefix: str = PREFIX
    replicas: int = 0
    keeps_nothing: bool = False
    one_writer: bool = False
    id: str = ""
    """The required identifier of the store; empty if any store will do, or a new one."""

    @classmethod
    def parse(cls, url: str, folder: Path | None = None) -> RedisAddress:
        """Parse a URL; resolve relative paths in `folder`. Raise ConfigError, whose text has no secrets."""
        try:
            parts = urlsplit(url)
            port = parts.port or PORT
        except ValueError:
            _refuse("its port must be a number from 1 to 65535")
        if parts.username is not None or parts.password is not None:
            _refuse('a password does not belong in a URL: "?user=NAME&password=env:NAME" says where it is')
        database = parts.path.strip("/")
        if not parts.hostname or (database and not database.isdecimal()) or parts.fragment:
            _refuse("it is written redis://HOST:PORT/NUMBER_OF_DATABASE?prefix=NAME")
        values = _parameters(parts.query, folder)
        secure = parts.scheme == "rediss"
        if not secure and (tls := [name for name in ("ca", "cert", "key") if name in values]):
            _refuse(f'"{tls[0]}" goes with TLS: write rediss://')
        if ("cert" in values) != ("key" in values):
            _refuse("cert and key go together")
        return cls(
            host=unquote(parts.hostname), port=port, database=int(database or 0), secure=secure, **values
        )

    @property
    def name(self) -> str:
        """Return the name of the store in errors, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis{'s' * self.secure}://{host}:{self.port}/{self.database}?prefix={self.prefix}"

    def tls(self) -> ssl.SSLContext | None:
        """Return the settings of a TLS connection. Raise ConfigError for files that are not certificates."""
        if not self.secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None and self.key is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            _refuse(f"ca, cert and key must be PEM files: {error}")
        return context


def _refuse(why: str, near: str | None = None) -> NoReturn:
    hint = f", did you mean {near}?" if near else ""
    raise ConfigError(f"the URL of a store in Redis: {why}{hint}", "store")


def _parameters(query: str, folder: Path | None) -> dict[str, Any]:
    """Return the attributes that the parameters of a URL set. Raise ConfigError."""
    read: dict[str, Callable[[str], Any]] = {
        "user": str,
        "password": partial(Reference.parse, folder=folder),
        "ca": partial(_file, folder),
        "cert": partial(_file, folder),
        "key": partial(_file, folder),
        "prefix": _prefix,
        "replicas": _count,
        "keeps": partial(_only, "keeps", "nothing"),
        "writers": partial(_only, "writers", "one"),
        "id": _id,
    }
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in read:
            _refuse(f'"{name}" is no parameter; there are {", ".join(read)}', nearest(name, read))
        if name in values:
            _refuse(f'"{name}" is there twice')
        values[name] = read[name](value)
    values["keeps_nothing"] = values.pop("keeps", False)
    values["one_writer"] = values.pop("writers", False)
    return values


def _file(folder: Path | None, value: str) -> str:
    return os.path.abspath((folder or Path()) / value)


def _prefix(value: str) -> str:
    if not value or not value.isprintable() or set(value) & set("{} ") or len(value) > 100:
        _refuse("prefix must be 1 to 100 characters without spaces and braces")
    return value


def _id(value: str) -> str:
    if len(value) != ID_LENGTH or value.strip("0123456789abcdef"):
        _refuse(f"id must be {ID_LENGTH} hexadecimal digits, as `lmos-actors state check` prints them")
    return value


def _count(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or not 0 < int(value) < 100:
        _refuse("replicas must be a number from 1 to 99")
    return int(value)


def _only(name: str, word: str, value: str) -> bool:
    if value != word:
        _refuse(f'{name} has one value, "{word}"')
    return True
