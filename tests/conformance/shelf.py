"""A shelf of broken servers: a class that replaces a part of the right one goes there with what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from lmos_actors.conformance import Level
from lmos_actors.conformance.scripted import (
    NetworkServer,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    ScriptedThing,
    WebSocketCodec,
)
from tests.conformance.breaking import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

Part = TypeVar("Part", bound=type)

_PARTS: Final[dict[str, type]] = {
    "connection": ScriptedConnection,
    "server": ScriptedServer,
    "thing": ScriptedThing,
    "pages": ScriptedPages,
    "serving": NetworkServer,
    "wire": WebSocketCodec,
}


class Shelf:
    """Broken servers in the order in which they were put there."""

    def __init__(self) -> None:
        self._broken: list[Broken] = []

    def __call__(
        self, id: str, what: str, caught_by: str, *also: str, level: Level = Level.SPEC
    ) -> Callable[[Part], Part]:
        """Put a part of a server on the shelf: the server that has it in the place of the right one."""

        def put(part: Part) -> Part:
            name = next(name for name, base in _PARTS.items() if issubclass(part, base))
            self._broken.append(
                Broken(id=id, what=what, caught_by=caught_by, parts={name: part}, also=also, level=level)
            )
            return part

        return put

    def all(self) -> tuple[Broken, ...]:
        """Give all that stands on it."""
        return tuple(self._broken)
