"""Access to remote agents: the authorities to trust, the certificate to show, the credentials to present.

A file gives them under `from: remote`, a command in its options, with the same names. This module holds only
paths and references; secrets are read when a connection is made.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import is_mapping, listed, mapped

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lmos_actors.files import DataPath, Document, Mistake
    from lmos_actors.security import Credentials

    from .model import Bridge, Elsewhere

    Entry: TypeAlias = Bridge | Elsewhere

T = TypeVar("T")

_CREDENTIALS: Final = ("bearer", "basic", "apikey")
_FILES: Final = ("ca", "cert", "key")
_NEVER_SECRET: Final = frozenset(
    {"from", "description", "thing", "use", "insecure", "speaks", "to", "access", "follows", *_FILES}
)


def _pairs(given: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((url, text) for url, text in given))


@attrs.frozen(kw_only=True)
class RemoteAccess:
    """The authorities and credentials for remote agents; plain data without any secret.

    `ca`, `cert` and `key` are paths. `credentials` are pairs of a URL and the credentials for it:
    `bearer:REF`, `basic:USER:REF` or `apikey:REF`. `insecure` allows credentials without TLS.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    credentials: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)
    insecure: bool = False

    def of(self, entry: Entry, folder: Path) -> RemoteAccess:
        """Return the access to one agent of a file in `folder`; values that its entry lacks come from `self`.

        Raises ConfigError for an entry in which `entry_mistakes` finds mistakes.
        """
        found = self
        if entry.ca is not None:
            found = attrs.evolve(found, ca=_beside(folder, entry.ca))
        if entry.cert is not None:
            key = None if entry.key is None else _beside(folder, entry.key)
            found = attrs.evolve(found, cert=_beside(folder, entry.cert), key=key)
        kind = credentials_key(entry)
        if kind is None:
            return found
        from lmos_actors.security import credential_of, place_of, url_of

        place = url_of(place_of(str(entry.url)))
        others = [(url, text) for url, text in found.credentials if url_of(place_of(url)) != place]
        own = str(credential_of(kind, getattr(entry, kind), folder))
        return attrs.evolve(
            found, credentials=[*others, (place, own)], insecure=found.insecure or entry.insecure
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context (authorities and certificate), or None for the system's defaults.

        Blocks on the disk. Raises ConfigError.
        """
        if self.ca is None and self.cert is None:
            return None
        from lmos_actors.security import client_tls

        return client_tls(self.ca, cert=self.cert, key=self.key)

    def presented(self) -> Credentials | None:
        """Return the credentials, or None if there are none. Blocks on the disk. Raises ConfigError."""
        if not self.credentials:
            return None
        from lmos_actors.security import Credentials, credential_of

        parts = ((url, text.partition(":")) for url, text in self.credentials)
        known = {url: credential_of(kind, rest) for url, (kind, _, rest) in parts}
        return Credentials(known, allow_insecure=self.insecure)


def _beside(folder: Path, path: str) -> str:
    return os.path.abspath(folder / path)


def credentials_key(entry: Entry) -> str | None:
    """Return the key of an entry that holds its credentials, or None if it has none."""
    return next((kind for kind in _CREDENTIALS if getattr(entry, kind) is not None), None)


# --- mistakes


def entry_mistakes(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in the access settings of an entry, as key and message. Reads no file."""
    if entry.url is not None and urlsplit(entry.url).username is not None:
        yield "url", 'names of users and passwords do not belong in a URL: "basic: USER:env:NAME" has them'
        return
    if entry.key is not None and entry.cert is None:
        yield "key", '"key" goes with "cert"'
    kind = credentials_key(entry)
    if kind is None:
        return
    given = [kind for kind in _CREDENTIALS if getattr(entry, kind) is not None]
    if len(given) > 1:
        yield given[1], f'give "{given[0]}" or "{given[1]}", not both'
    if entry.url is None:
        yield kind, f'"{kind}" goes with "url": a description may lead anywhere'
        return
    from lmos_actors.security import in_the_clear, is_private, place_of

    try:
        place = place_of(entry.url)
    except ConfigError:
        return  # reported for the URL itself
    if not entry.insecure and not is_private(place):
        yield kind, in_the_clear(entry.url, "insecure: true")


def unusable_access(
    document: Document, remotes: Iterable[Mapping[str, Entry]], otherwise: RemoteAccess
) -> list[Mistake]:
    """Return the secrets, certificates and keys of a file that are missing or cannot be used.

    `remotes` are the remote agents, and the bridges to servers, of each cell, by name. `otherwise` is the
    access for entries without access settings. Blocks on the disk.
    """
    folder = Path() if document.path is None else document.path.parent
    found: dict[Mistake, None] = {}
    for entries in remotes:
        for name, entry in entries.items():
            access = otherwise.of(entry, folder)
            for key, message in _unusable(entry, access):
                path: DataPath = ("agents", name, key)
                found[document.mistake(path, message, "unreadable")] = None
    return list(found)


def _unusable(entry: Entry, access: RemoteAccess) -> Iterator[tuple[str, str]]:
    for part in (attrs.evolve(access, cert=None, key=None), attrs.evolve(access, ca=None)):
        error = _tried(part.tls)
        if error is not None:
            here = (key for key in _FILES if getattr(access, key) == error.path)
            yield next(here, "key" if entry.key is not None else "cert"), str(error)
    error = _tried(access.presented)
    kind = credentials_key(entry)
    if error is not None and kind is not None:
        yield kind, str(error)


def _tried(make: Callable[[], object]) -> ConfigError | None:
    try:
        make()
    except ConfigError as error:
        return error
    return None


def hide_secrets(document: Document, mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return mistakes without the lines of the file that may hold a secret."""
    lines: set[int] = set()
    for name, entry in mapped(mapped(document.data).get("agents")).items():
        if mapped(entry).get("from") in ("remote", "bridge"):
            for key, value in mapped(entry).items():
                if _may_be_secret(key, value):
                    lines |= _lines(document, ("agents", name, key))
    for index, check in enumerate(listed(mapped(document.data).get("checks"))):
        if mapped(check).get("check") == "secrets" and "values" in check:
            lines |= _lines(document, ("checks", index, "values"))
    if not lines:
        return list(mistakes)
    from lmos_actors.security import redacted

    return [redacted(each) if each.line in lines else each for each in mistakes]


def _lines(document: Document, path: DataPath) -> set[int]:
    start, end = document.span(path)
    first = document.text.count("\n", 0, start) + 1
    return set(range(first, first + document.text.count("\n", start, end) + 1))


def _may_be_secret(key: str, value: Any) -> bool:
    if key in _CREDENTIALS:
        from lmos_actors.security import credential_of

        if isinstance(value, str) and "$(" in value:
            return False
        return _tried(lambda: credential_of(key, value)) is not None
    if key == "url":
        return isinstance(value, str) and "@" in value
    return key not in _NEVER_SECRET and not is_mapping(value)
