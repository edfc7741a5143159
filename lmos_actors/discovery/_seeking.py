"""Finding and searching: what `node.find` and `node.search` ask for."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import Ref, check_id, describe, near_agents

from ._found import Found
from ._spreading import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.actors import AgentQuery, Runtime, Spread

    from ._client import Directory
    from ._lookup import Lookup

KEPT: Final = 256
"""Links that are kept for whoever looks for the same again: by them requests are spread in turn."""


class Seeking:
    """What finds agents for the refs of one node, near and in the directories of `lookup`.

    `id_of` gives the id by which others know an agent here, `url_of` the address of its description.
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
        self._kept: OrderedDict[tuple[AgentQuery, Spread | None, str | None], Choice] = OrderedDict()

    def beyond(self, sought: AgentQuery) -> Choice:
        """Return a link to whichever agent elsewhere is sought."""
        return self._link(sought, None, None)

    def spread(self, sought: AgentQuery, by: Spread, key: str | None) -> Choice:
        """Return a link to all that are sought, near and far, which chooses one for each request."""
        return self._link(sought, by, key)

    def _link(self, sought: AgentQuery, by: Spread | None, key: str | None) -> Choice:
        found = self._kept.get((sought, by, key))
        if found is None:
            lookup = self._lookup if self._lookup.directories else None
            found = Choice(self._rt, lookup, self._id_of, sought, by, key)
            self._kept[sought, by, key] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end((sought, by, key))
        return found

    # ---- lists

    async def search(
        self, sought: AgentQuery, *, near: bool, directories: Sequence[Directory] | None
    ) -> list[Found]:
        """Return all that are sought: those of this node in start order, then those elsewhere.

        Raises the TransportError of a directory if nothing was found and one of them did not answer.
        """
        found = list(self._near(sought)) if near else []
        results = await self._lookup.found(sought, directories)
        ours = dict.fromkeys(each.id for each in found)
        found += [each for each in results.things.values() if each.id not in ours]
        if not found and results.failure is not None:
            raise results.failure
        return found

    def _near(self, sought: AgentQuery) -> Iterator[Found]:
        for link, cls in near_agents(self._rt, sought):
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
