"""Exploring: from an address that is known to the agents that are there (WoT Discovery, 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec
import trio

from lmos_actors.bindings import fetch
from lmos_actors.errors import ConfigError, ConnectFailed, TransportError
from lmos_actors.protocol.td import resolve
from lmos_actors.transport import endpoint_of, is_here, leads_astray

from ._client import HttpDirectory
from ._found import Found, NotSought, Rejected, query_of, taken
from .directory import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.actors import AgentQuery
    from lmos_actors.bindings import Peers

    from ._mdns import Announced

WELL_KNOWN: Final = "/.well-known/wot"
DIRECTORY_TYPES: Final = ("ThingDirectory", "discovery:ThingDirectory")

LINKS: Final = 100
"""Descriptions that the description of a node leads to, and that are fetched."""

SECONDS: Final = 30.0
"""For fetching these, and for exploring what has been announced."""

AT_ONCE: Final = 8
"""Servers that are explored at a time."""

MOST: Final = 1_000
"""Descriptions that are taken from a directory."""

_WEB: Final = ("http://", "https://")


@attrs.frozen
class Explored:
    """What is at an address: agents, directories that listed some, and what was left out, and why."""

    things: tuple[Found, ...]
    directories: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def with_more(self, more: Explored) -> Explored:
        """Return what is there and what is there: of two that have one id the first."""
        ids = dict.fromkeys(each.id for each in self.things)
        return Explored(
            (*self.things, *(each for each in more.things if each.id not in ids)),
            tuple(dict.fromkeys((*self.directories, *more.directories))),
            (*self.left_out, *more.left_out),
        )


def url_of_source(source: str) -> str:
    """Return the URL that an address stands for: `host:8080` is `http://host:8080`. Raises ConfigError."""
    url = source if "://" in source else f"http://{source}"
    if not url.startswith(_WEB):
        raise ConfigError(f"what can be discovered is at an http or https URL, or a host, not at {source!r}")
    endpoint_of(url)
    return url


async def explore(
    peers: Peers, source: str, sought: AgentQuery, refer: Callable[..., Any], ours: tuple[str, ...] = ()
) -> Explored:
    """Return what is at the URL of a description, of a directory, or of a server whose well-known URL tells.

    Raises ConnectFailed when nothing is there, ConfigError for a source that is none.
    """
    explorer = _Explorer(peers, sought, refer, ours)
    await explorer.source(url_of_source(source))
    return explorer.explored


async def explore_all(
    peers: Peers, announced: Sequence[Announced], sought: AgentQuery, refer: Callable[..., Any]
) -> Explored:
    """Return what is at what has been announced: several at a time, and within `SECONDS`."""
    found: dict[Announced, Explored] = {}
    limit = trio.CapacityLimiter(AT_ONCE)

    async def look(each: Announced) -> None:
        async with limit:
            try:
                found[each] = await explore(peers, each.url, sought, refer)
            except (ConfigError, TransportError) as error:
                found[each] = Explored((), left_out=(f"{each.name}: {error}",))

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for each in announced:
                nursery.start_soon(look, each)
    all_of_it = Explored(())
    for each in announced:
        late = Explored((), left_out=(f"{each.name}: it has not answered in time",))
        all_of_it = all_of_it.with_more(found.get(each, late))
    return all_of_it


class _Explorer:
    def __init__(
        self, peers: Peers, sought: AgentQuery, refer: Callable[..., Any], ours: tuple[str, ...]
    ) -> None:
        self._peers = peers
        self._sought = sought
        self._refer = refer
        self._ours = ours
        self._found: dict[str, Found] = {}
        self._directories: dict[str, None] = {}
        self._left_out: dict[str, None] = {}

    @property
    def explored(self) -> Explored:
        return Explored(tuple(self._found.values()), tuple(self._directories), tuple(self._left_out))

    async def source(self, url: str) -> None:
        data, source_url = (
            await self._at_root(url) if endpoint_of(url).target == "/" else await self._read(url)
        )
        if is_array(data):
            for each in data[:MOST]:
                self._take(each, source_url, None)
            return
        if not is_object(data):
            raise ConnectFailed(url, "what is there is no description")
        if _is_directory(data):
            await self._directory(data, source_url)
        elif links := list(_items(data)):
            await self._follow(links, source_url)
        else:
            self._take(data, source_url, source_url)

    async def _at_root(self, url: str) -> tuple[Any, str]:
        base = url.rstrip("/")
        try:
            return await self._read(base + WELL_KNOWN)
        except ConnectFailed as error:
            try:
                return await self._read(f"{base}/")
            except ConnectFailed:
                raise error from None

    async def _read(self, url: str) -> tuple[Any, str]:
        peers = self._peers
        text, source_url = await fetch(peers.network, url, peers.tls, headers_for=peers.headers_for)
        self._check_leads(url, source_url)
        try:
            return msgspec.json.decode(text), source_url
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ConnectFailed(url, f"what is there is no JSON: {error}") from None

    def _check_leads(self, source_url: str, url: str) -> None:
        """Raise ConnectFailed where another host leads to the one that asks: that is for it alone."""
        if leads_astray(source_url, url):
            here = endpoint_of(url).host
            raise ConnectFailed(source_url, f"it leads to {here!r}, which is another host there than here")

    async def _directory(self, thing: dict[str, Any], source_url: str) -> None:
        url, peers = _root_of(thing, source_url), self._peers
        self._check_leads(source_url, url)
        teller = endpoint_of(source_url).host
        if not is_here(teller):
            peers.network.distrust([url], but=teller)
        directory = HttpDirectory(peers.network, url, tls=peers.tls, headers_for=peers.headers_for)
        self._directories[directory.url] = None
        query = query_of(self._sought)
        for entry in await directory.find(None if query == "$[*]" else query, MOST):
            self._take(entry, directory.url, "")

    async def _follow(self, links: list[str], source_url: str) -> None:
        """Fetch what a node links to: its own agents, and nothing at any other server."""
        here, fetched = endpoint_of(source_url).authority, 0
        with trio.move_on_after(SECONDS):
            for href in links[:LINKS]:
                await self._follow_one(resolve(source_url, href), here)
                fetched += 1
        if links[fetched:]:
            self._left_out[f"{len(links) - fetched} more agents of {source_url}"] = None

    async def _follow_one(self, url: str, here: str) -> None:
        try:
            if not url.startswith(_WEB) or endpoint_of(url).authority != here:
                raise Rejected("it is at another server")
            self._take(*await self._read(url), url)
        except (Rejected, ConfigError, TransportError) as why:
            self._left_out[f"{url[:200]}: {why}"] = None

    def _take(self, entry: Any, source_url: str, url: str | None) -> None:
        try:
            found = taken(entry, self._sought, source_url, self._ours, self._refer)
        except NotSought:
            return
        except Rejected as why:
            name: Any = cast("dict[str, Any]", entry).get("id") if isinstance(entry, dict) else None
            self._left_out[f"{str(name or 'something')[:200]}: {why}"] = None
            return
        if url != "":
            found = attrs.evolve(found, url=url)
        assert found.id is not None
        self._found.setdefault(found.id, found)


def _is_directory(thing: dict[str, Any]) -> bool:
    said: Any = thing.get("@type")
    types = cast("Sequence[Any]", said) if isinstance(said, list) else (said,)
    return any(word in DIRECTORY_TYPES for word in types)


def _root_of(thing: dict[str, Any], source_url: str) -> str:
    """Return the URL of a directory.

    Where its description says the list of things is, else where that was.
    """
    endpoint = endpoint_of(source_url)
    root = f"{'https' if endpoint.secure else 'http'}://{endpoint.authority}"
    try:
        form: Any = thing["properties"]["things"]["forms"][0]["href"]
        href = resolve(str(thing.get("base") or source_url), str(form)).partition("{")[0].partition("?")[0]
        found, there, _ = href.rpartition("/things")
        if there and found.startswith(_WEB):
            endpoint_of(found)
            return found
    except (KeyError, IndexError, TypeError, ConfigError):
        pass
    return root


def _items(thing: dict[str, Any]) -> Iterator[str]:
    """Give where the description of a node says that those of its agents are."""
    said: Any = thing.get("links")
    links = cast("Sequence[Any]", said) if isinstance(said, list) else ()
    for link in links:
        if isinstance(link, dict):
            told = cast("dict[str, Any]", link)
            if told.get("rel") == "item" and isinstance(told.get("href"), str):
                yield told["href"]
