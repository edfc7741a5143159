"""Retrieval of documents that may be descriptions: from URLs, following redirects, and from files."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from lmos_actors.conformance.wire import HttpAnswer, Unreachable, exchange
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.protocol.td import resolve
from lmos_actors.transport import endpoint_of, leads_astray

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lmos_actors.conformance.wire import Record
    from lmos_actors.transport import Network

HeadersFor: TypeAlias = "Callable[[str], tuple[tuple[bytes, bytes], ...]]"

SOCKETS: Final = ("ws://", "wss://")
WEB: Final = ("http://", "https://")
WELL_KNOWN: Final = "/.well-known/wot"
REDIRECTS: Final = 5
ACCEPT: Final = (b"Accept", b"application/td+json, application/json;q=0.9")

_MOVED: Final = (301, 302, 303, 307, 308)
_CLOSED: Final = (401, 403)


def no_headers(_: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return no credentials."""
    return ()


@attrs.frozen(kw_only=True)
class AccessOptions:
    """Access to the judged server. `headers` returns the credentials for a URL; `patience` is in seconds."""

    network: Network
    headers: HeadersFor = no_headers
    tls: ssl.SSLContext | None = None
    patience: float = 2.0
    record: Record | None = None


@attrs.frozen(kw_only=True)
class Document:
    """A text that may be a description.

    `where`: its URL after redirects, or its file, which has no `media_type`. `problem`: why it is no valid
    text.
    """

    text: str
    where: str
    media_type: str = ""
    problem: str = ""

    @property
    def url(self) -> str | None:
        """The URL of the document, or None if it comes from a file."""
        return self.where if is_url(self.where) else None


def is_url(place: str) -> bool:
    """Return whether a place is a supported URL, and not a file."""
    return place.lower().startswith(SOCKETS + WEB)


def on_web(url: str, path: str | None = None) -> str:
    """Return a URL with the scheme `http` or `https`, and with another path if one is given.

    Raises ConfigError.
    """
    endpoint = endpoint_of(url)
    scheme = "https" if endpoint.secure else "http"
    return f"{scheme}://{endpoint.authority}{endpoint.target if path is None else path}"


def document_of(raw: bytes, where: str, media_type: str = "") -> Document:
    """Decode bytes from UTF-8, as JSON demands, and return them as a document."""
    plain = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return Document(text=plain.decode(), where=where, media_type=media_type)
    except UnicodeDecodeError:
        text = plain.decode(errors="replace")
        return Document(text=text, where=where, media_type=media_type, problem="not a text in UTF-8")


async def read_file(path: str, limit: int) -> Document:
    """Read a file of at most `limit` bytes. Raises ConfigError."""
    try:
        async with await trio.open_file(path, "rb") as file:
            raw: bytes = await file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "; a URL begins with http, https, ws or wss" if "://" in path else ""
        raise ConfigError(f"cannot read the description: {reason}{hint}", path) from None
    if len(raw) > limit:
        raise ConfigError(f"a description has at most {limit} bytes", path)
    return document_of(raw, path)


class Web:
    """A cache that fetches each document once. Credentials go only to the authorities of `given` URLs."""

    def __init__(self, access: AccessOptions, given: tuple[str, ...]) -> None:
        self._reach = access
        self._trusted = [_authority(url) for url in given if is_url(url)]
        self._kept: dict[str, Document | Unreachable] = {}

    async def get(self, url: str) -> Document:
        """Return the document at a URL. Raises Unreachable."""
        if url not in self._kept:
            try:
                self._kept[url] = await self._followed(url)
            except Unreachable as error:
                self._kept[url] = error
        found = self._kept[url]
        if isinstance(found, Unreachable):
            raise found
        return found

    async def _followed(self, url: str) -> Document:
        here = url
        for _ in range(REDIRECTS + 1):
            answer = await self._asked(here)
            location = answer.header("location")
            if answer.status not in _MOVED or location is None:
                return self._document(here, answer)
            here = next_of(url, here, location)
        raise Unreachable(url, f"more than {REDIRECTS} redirects")

    async def _asked(self, url: str) -> HttpAnswer:
        access = self._reach
        known = access.headers(url) if _authority(url) in self._trusted else ()
        own = () if any(name.lower() == b"accept" for name, _ in known) else (ACCEPT,)
        return await exchange(
            access.network,
            "GET",
            url,
            headers=(*own, *known),
            tls=access.tls,
            patience=access.patience,
            record=access.record,
        )

    @staticmethod
    def _document(url: str, answer: HttpAnswer) -> Document:
        if answer.status == 200:
            return document_of(answer.body, url, answer.media_type)
        fix = "; --bearer, --basic or --header give credentials" if answer.status in _CLOSED else ""
        raise Unreachable(url, f"it answered {answer.status}{fix}")


def _authority(url: str) -> tuple[bool, str]:
    endpoint = endpoint_of(url)
    return endpoint.secure, endpoint.authority


def next_of(url: str, here: str, location: str) -> str:
    """Return the target of a redirect. Raises Unreachable for a target that is not allowed.

    No redirect is followed from TLS to an insecure URL, or from another host to this machine.
    """
    try:
        there = urlsplit(resolve(here, location))._replace(fragment="").geturl()
        after = endpoint_of(there)
    except (ConfigError, ValueError) as error:
        raise Unreachable(url, f"it redirects to what is no address: {error}") from None
    if endpoint_of(here).secure and not after.secure:
        raise Unreachable(url, f"it redirects to {there}, which is not secure")
    if leads_astray(here, there):
        raise Unreachable(url, f"it redirects to {there}, which is another host there than here")
    return there


def is_nobody(error: Unreachable) -> bool:
    """Return whether there was no connection at all, so that other requests there are useless."""
    return isinstance(error.__cause__, ConnectFailed)
