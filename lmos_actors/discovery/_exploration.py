"""Exploration: from a known address to the agents there (WoT Discovery, 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio

from lmos_actors._core import read_json
from lmos_actors.bindings import fetch
from lmos_actors.errors import ConfigError, ConnectFailed, TransportError
from lmos_actors.protocol.td import resolve
from lmos_actors.transport import endpoint_of, is_here, leads_astray

from ._client import HttpDirectory
from ._search_results import Found, ResultRejected, checked_result, is_array, is_object, jsonpath_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.actors import AgentQuery
    from lmos_actors.bindings import Peers

    from ._mdns import DiscoveredService

WELL_KNOWN: Final = "/.well-known/wot"
DIRECTORY_TYPES: Final = ("ThingDirectory", "discovery:ThingDirectory")

MAX_LINKS: Final = 100
"""Limit of linked descriptions that are fetched for one node."""

SECONDS: Final = 30.0
"""Limit for fetching linked descriptions, and for exploring announced services, in seconds."""

MAX_SERVERS: Final = 8
"""Servers that are explored concurrently."""

MAX_DESCRIPTIONS: Final = 1_000
"""Limit of descriptions read from a directory."""

_WEB: Final = ("http://", "https://")


@attrs.frozen
class Exploration:
    """Agents at an address, the directories that listed them, and what was left out with the reason."""

    things: tuple[Found, ...]
    directories: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def with_more(self, more: Exploration) -> Exploration:
        """Return both explorations merged; of two agents with the same id, the first is kept."""
        ids = dict.fromkeys(each.id for each in self.things)
        return Exploration(
            (*self.things, *(each for each in more.things if each.id not in ids)),
            tuple(dict.fromkeys((*self.directories, *more.directories))),
            (*self.left_out, *more.left_out),
        )


async def explore(
    peers: Peers, source: str, query: AgentQuery, refer: Callable[..., Any], ours: tuple[str, ...] = ()
) -> Exploration:
    """Return the agents at the URL of a description, of a directory, or of a server with a well-known URL.

    Raises ConnectFailed if nothing usable answers there, ConfigError for an invalid source.
    """
    url = source if "://" in source else f"http://{source}"
    if not url.startswith(_WEB):
        raise ConfigError(f"discovery needs an http or https URL, or a host, not {source!r}")
    endpoint_of(url)  # raises ConfigError
    explorer = _Explorer(peers, query, refer, ours)
    await explorer.source(url)
    return explorer.explored


async def explore_all(
    peers: Peers, announced: Sequence[DiscoveredService], query: AgentQuery, refer: Callable[..., Any]
) -> Exploration:
    """Return the agents at announced services, several explored concurrently, within `SECONDS`."""
    found: dict[DiscoveredService, Exploration] = {}
    limit = trio.CapacityLimiter(MAX_SERVERS)

    async def look(each: DiscoveredService) -> None:
        async with limit:
            try:
                found[each] = await explore(peers, each.url, query, refer)
            except (ConfigError, TransportError) as error:
                found[each] = Exploration((), left_out=(f"{each.name}: {error}",))

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for each in announced:
                nursery.start_soon(look, each)
    all_of_it = Exploration(())
    for each in announced:
        late = Exploration((), left_out=(f"{each.name}: no answer in time",))
        all_of_it = all_of_it.with_more(found.get(each, late))
    return all_of_it


class _Explorer:
    def __init__(
        self, peers: Peers, query: AgentQuery, refer: Callable[..., Any], ours: tuple[str, ...]
    ) -> None:
        self._peers = peers
        self._query = query
        self._refer = refer
        self._ours = ours
        self._found: dict[str, Found] = {}
        self._directories: dict[str, None] = {}
        self._left_out: dict[str, None] = {}

    @property
    def explored(self) -> Exploration:
        return Exploration(tuple(self._found.values()), tuple(self._directories), tuple(self._left_out))

    async def source(self, url: str) -> None:
        data, source_url = (
            await self._at_root(url) if endpoint_of(url).target == "/" else await self._read(url)
        )
        if is_array(data):
            for each in data[:MAX_DESCRIPTIONS]:
                self._add(each, source_url, None)
            return
        if not is_object(data):
            raise ConnectFailed(url, "its answer is not a description")
        types: Any = data.get("@type")
        words = cast("Sequence[Any]", types) if isinstance(types, list) else (types,)
        if any(word in DIRECTORY_TYPES for word in words):
            await self._directory(data, source_url)
        elif links := list(_items(data)):
            await self._follow(links, source_url)
        else:
            self._add(data, source_url, source_url)

    async def _at_root(self, url: str) -> tuple[Any, str]:
        base = url.rstrip("/")
        try:
            return await self._read(base + WELL_KNOWN)
        except ConnectFailed as error:
            if error.status is None:  # nothing answers there
                raise
            try:
                return await self._read(f"{base}/")
            except ConnectFailed:
                raise error from None

    async def _read(self, url: str) -> tuple[Any, str]:
        peers = self._peers
        text, source_url = await fetch(peers.network, url, peers.tls, headers_for=peers.headers_for)
        self._check_leads(url, source_url)
        try:
            return read_json(text), source_url
        except (RecursionError, ValueError) as error:
            raise ConnectFailed(url, f"its answer is not JSON: {error}", status=200) from None

    def _check_leads(self, source_url: str, url: str) -> None:
        """Raise ConnectFailed if another host directs this node to this machine's own loopback."""
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
        query = jsonpath_of(self._query)
        for entry in await directory.find(None if query == "$[*]" else query, MAX_DESCRIPTIONS):
            self._add(entry, directory.url, "")

    async def _follow(self, links: list[str], source_url: str) -> None:
        """Fetch the descriptions that a node links to, at the same server only."""
        here, fetched = endpoint_of(source_url).authority, 0
        with trio.move_on_after(SECONDS):
            for href in links[:MAX_LINKS]:
                url = resolve(source_url, href)
                try:
                    if not url.startswith(_WEB) or endpoint_of(url).authority != here:
                        raise ResultRejected("it is at another server")
                    self._add(*await self._read(url), url)
                except (ResultRejected, ConfigError, TransportError) as why:
                    self._left_out[f"{url[:200]}: {why}"] = None
                fetched += 1
        if links[fetched:]:
            self._left_out[f"{len(links) - fetched} more agents of {source_url}"] = None

    def _add(self, entry: Any, source_url: str, url: str | None) -> None:
        try:
            found = checked_result(entry, self._query, source_url, self._ours, self._refer)
        except ResultRejected as why:
            name: Any = cast("dict[str, Any]", entry).get("id") if isinstance(entry, dict) else None
            self._left_out[f"{str(name or 'something')[:200]}: {why}"] = None
            return
        if found is None:
            return
        if url != "":
            found = attrs.evolve(found, url=url)
        assert found.id is not None
        self._found.setdefault(found.id, found)


def _root_of(thing: dict[str, Any], source_url: str) -> str:
    """Return the root URL of a directory: from the form of its list of things, else from `source_url`."""
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
    """Yield the links to the descriptions of a node's agents."""
    types: Any = thing.get("links")
    links = cast("Sequence[Any]", types) if isinstance(types, list) else ()
    for link in links:
        if isinstance(link, dict):
            item = cast("dict[str, Any]", link)
            if item.get("rel") == "item" and isinstance(item.get("href"), str):
                yield item["href"]
