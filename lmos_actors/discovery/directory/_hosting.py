"""A directory in a node: the spec of its agent, and the way to it for who is in the same node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors.errors import ActionFailed, AgentError, ConnectFailed
from lmos_actors.supervision import ChildSpec

from .._client import DirectoryRefused
from ._agent import ThingDirectory
from ._merge import is_object
from ._store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lmos_actors.actors import Ref

    from ._options import DirectoryOptions

NAME: Final = "directory"
"""Of the agent, where nothing else is said."""

_PAGE: Final = 200


def directory_spec(options: DirectoryOptions, name: str = NAME) -> ChildSpec[ThingDirectory]:
    """Return the spec of a directory.

    What is registered is there again after a crash, in memory or on disk.
    """
    return ChildSpec(name, partial(ThingDirectory, options=options, store=Store(options)))


class OwnDirectory:
    """The directory of the node itself: asked as an agent, without a socket. `url` is how others name it."""

    def __init__(self, ref: Ref[ThingDirectory], url: str) -> None:
        self._ref = ref
        self._url = url

    @property
    def url(self) -> str:
        """How it is named."""
        return self._url

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """Create or replace the entry of a description. Raises DirectoryRefused, ConnectFailed."""
        td = {**msgspec.json.decode(text), "registration": {"ttl": ttl}}
        await self._asked(self._ref.invoke(ThingDirectory.put_thing, thing_id, td))

    async def renew(self, thing_id: str) -> bool:
        """Let an entry begin its time anew; False where there is none. Raises as `put`."""
        renewed = self._ref.invoke(ThingDirectory.partially_update_thing, thing_id, {})
        return await self._asked(renewed, is_there=True) is not _MISSING

    async def remove(self, thing_id: str) -> None:
        """Take an entry away; there may be none. Raises as `put`."""
        await self._asked(self._ref.invoke(ThingDirectory.delete_thing, thing_id), is_there=True)

    async def find(self, query: str | None, most: int) -> list[Any]:
        """Give the descriptions that a JSONPath selects, without one all. Raises as `put`."""
        if query is not None:
            found: list[Any] = await self._asked(self._ref.invoke(ThingDirectory.search_jsonpath, query))
            return found[:most]
        found = []
        while len(found) < most:
            page = await self._asked(self._ref.invoke(ThingDirectory.list_things, len(found), _PAGE))
            found += page.members
            if not page.members or len(found) >= page.total:
                break
        return found[:most]

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _asked(self, answer: Awaitable[Any], *, is_there: bool = False) -> Any:
        """Give the answer of the agent; with `is_there`, `_MISSING` where nothing is registered so."""
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
