"""The link of a ref to an agent on a relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from lmos_actors.bindings import ClassInterface, RemoteLink
from lmos_actors.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lmos_actors.actors import Contract

    from ._requests import RelayRequests


class RelayLink(RemoteLink):
    """A link to an agent on a relay, used as an agent of a class.

    `is_there` returns whether the agent is known on the relay. Requests that a relay cannot carry raise
    NotAllowed.
    """

    __slots__ = ("_is_there",)

    def __init__(
        self, requests: RelayRequests, agent: str, contract: Contract, is_there: Callable[[str], bool]
    ) -> None:
        super().__init__(requests.thing(agent), ClassInterface(contract))
        self._is_there = is_there

    @property
    def address(self) -> dict[str, str]:
        """Raise TypeError, as there is no address by which a durable agent could keep the ref."""
        raise TypeError("which is on a relay: make the field ephemeral, and find it in started()")

    @property
    def is_settled(self) -> bool:
        """Whether the agent is still known on the relay; if not, it is looked up again."""
        return not self.far.peer.ended and self._is_there(self.far.thing_id)

    async def settle_unless(self, near: Callable[[], Any]) -> RelayLink | None:
        """Wait for the connection, and return self. An agent of this node may appear in the meantime."""
        await self.wait_running()
        return self

    def link(self) -> NoReturn:
        """Raise NotAllowed, as exit signals cannot be sent over a relay."""
        raise NotAllowed(f"{self.path!r} is reached over a relay: it can be neither linked nor monitored")
