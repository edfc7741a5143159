"""Finder of agents for a node: the implementation of `node.find` and `node.search`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import Bounded
from lmos_actors.actors import Ref, check_id, describe, near_agents

from ._replica_link import ReplicaLink
from ._search_results import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.actors import AgentQuery, Runtime, Spread

    from ._client import Directory
    from ._lookup import Lookup

MAX_LINKS: Final = 256
"""Maximum number of links kept by query: callers with the same query share a link and its round robin."""


class AgentFinder:
    """Finder of agents for the refs of one node: on the node itself, and in the directories of `lookup`.

    `id_of` returns the id by which others know an agent of this node, `url_of` the URL of its description.
    """

    def __init__(
        self,
        rt: Runtime,
        lookup: Lookup,
        id_of: Callable[[Any], str],
        url_of: Callable[[Any], str | None],
    ) -> None:
        self._rt = rt
        self._lookup = lookup
        self._id_of = id_of
        self._url_of = url_of
        self._links: Bounded[tuple[AgentQuery, Spread | None, str | None], ReplicaLink] = Bounded(MAX_LINKS)

    def beyond(self, query: AgentQuery) -> ReplicaLink:
        """Return a link to a matching agent elsewhere."""
        return self._link(query, None, None)

    def spread(self, query: AgentQuery, by: Spread, key: str | None) -> ReplicaLink:
        """Return a link to all matching agents, near and far, which chooses one for each request."""
        return self._link(query, by, key)

    def _link(self, query: AgentQuery, by: Spread | None, key: str | None) -> ReplicaLink:
        def made() -> ReplicaLink:
            lookup = self._lookup if self._lookup.directories else None
            return ReplicaLink(self._rt, lookup, self._id_of, query, by, key)

        return self._links.use((query, by, key), made)

    # ---- lists

    async def search(
        self, query: AgentQuery, *, near: bool, directories: Sequence[Directory] | None
    ) -> list[Found]:
        """Return all matching agents: first the agents of this node in start order, then agents elsewhere.

        Raises the TransportError of a directory if nothing was found and one did not answer.
        """
        found = list(self._near(query)) if near else []
        results = await self._lookup.found(query, directories)
        ours = dict.fromkeys(each.id for each in found)
        found += [each for each in results.things.values() if each.id not in ours]
        if not found and results.failure is not None:
            raise results.failure
        return found

    def _near(self, query: AgentQuery) -> Iterator[Found]:
        for link, cls in near_agents(self._rt, query):
            thing_id, described = self._id_of(link), describe(cls)
            yield Found(
                name=link.path,
                title=described.title or "",
                id=thing_id,
                description=describe(cls, id=thing_id) if check_id(thing_id) is None else described,
                url=self._url_of(link),
                refer=partial(_near_ref, link),
            )


def _near_ref(link: Any, _: object) -> Ref[Any]:
    return Ref(link)
