"""Directory of a node: the spec of its agent, its routes, and access to it inside the node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors.discovery import DirectoryRefused, is_object
from lmos_actors.errors import ActionFailed, AgentError, ConnectFailed
from lmos_actors.supervision import ChildSpec

from ._agent import ThingDirectory, store_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import LmosServer
    from lmos_actors.persistence import Store
    from lmos_actors.security import Security

    from ._options import DirectoryOptions

NAME: Final = "directory"
"""Default name of the agent."""

_PAGE: Final = 200


def directory_spec(
    options: DirectoryOptions, name: str = NAME, store: Store | None = None
) -> ChildSpec[ThingDirectory]:
    """Return the spec of a directory, whose registrations survive a crash of its agent.

    The registrations are in `store` if it is given, otherwise in the store of the options: in memory or on
    disk.
    """
    return ChildSpec(name, partial(ThingDirectory, options=options, store=store or store_for(options)))


def directory_routes(
    ref: Ref[ThingDirectory],
    options: DirectoryOptions,
    *,
    name: str = "directory",
    bases: Sequence[str],
    security: Security | None = None,
    new_id: Callable[[], str] | None = None,
    server: LmosServer | None = None,
) -> list[BaseRoute]:
    """Return the routes of a directory's API, for a Starlette application.

    `name` is the agent's public name in access lists. `bases` are the addresses of the node; the directory's
    description names the first of them, and `security`. `new_id` returns ids for problems. With the `server`
    of the node, event streams end when the node drains.
    """
    from ._api import Api  # imports Starlette, which nodes that serve nothing over HTTP do not need

    return Api(ref, options, name=name, bases=bases, security=security, new_id=new_id, server=server).routes()


class OwnDirectory:
    """Directory that is used through its agent, such as the node's own; `url` is its public URL.

    Entries are created on behalf of the principal `owner`; None means no principal.
    """

    def __init__(self, ref: Ref[ThingDirectory], url: str, owner: str | None = None) -> None:
        self._ref = ref
        self._url = url
        self._owner = owner

    @property
    def url(self) -> str:
        """Public URL of the directory."""
        return self._url

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """Create or replace the entry of a description. Raises DirectoryRefused, ConnectFailed."""
        td = {**msgspec.json.decode(text), "registration": {"ttl": ttl}}
        await self._answer_of(self._ref.invoke(ThingDirectory.put_thing, thing_id, td, self._owner))

    async def renew(self, thing_id: str) -> bool:
        """Restart an entry's time to live. Return False if there is no such entry. Raises as `put`."""
        renewed = self._ref.invoke(ThingDirectory.partially_update_thing, thing_id, {}, self._owner)
        return await self._answer_of(renewed, is_there=True) is not _MISSING

    async def remove(self, thing_id: str) -> None:
        """Remove an entry, if there is one. Raises as `put`."""
        removed = self._ref.invoke(ThingDirectory.delete_thing, thing_id, self._owner)
        await self._answer_of(removed, is_there=True)

    async def find(self, query: str | None, most: int) -> list[Any]:
        """Return at most `most` descriptions that a JSONPath selects; None selects all. Raises as `put`."""
        if query is not None:
            found: list[Any] = await self._answer_of(self._ref.invoke(ThingDirectory.search_jsonpath, query))
            return found[:most]
        found = []
        while len(found) < most:
            page = await self._answer_of(self._ref.invoke(ThingDirectory.list_things, len(found), _PAGE))
            found += page.members
            if not page.members or len(found) >= page.total:
                break
        return found[:most]

    async def aclose(self) -> None:
        """Return at once: no connection is kept."""

    async def _answer_of(self, answer: Awaitable[Any], *, is_there: bool = False) -> Any:
        """Return the answer of the agent. With `is_there`, return `_MISSING` for an unknown id.

        Raises DirectoryRefused, ConnectFailed.
        """
        try:
            return await answer
        except ActionFailed as error:
            data = error.output if is_object(error.output) else {}
            status = data.get("status", 500)
            if is_there and status == 404:
                return _MISSING
            raise DirectoryRefused(self._url, status, data.get("detail", "")) from None
        except AgentError as error:
            raise ConnectFailed(self._url, str(error)) from None


_MISSING: Final = object()
