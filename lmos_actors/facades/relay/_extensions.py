"""The extensions of a hub: their names, and where their data is kept over restarts.

| space | key | value |
|---|---|---|
| `relay` | hub, extension, key | data that the extension has stored |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from lmos_actors.errors import ConfigError, StoreFailed, hint_at
from lmos_actors.persistence import Delete, Put, range_of
from lmos_actors.protocol.relay.extensions import (
    History,
    Presence,
    Questions,
    Receipts,
    Semantic,
    Voting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors.persistence import StoreWriter, Write
    from lmos_actors.protocol.relay import Hub, HubExtension

SPACE: Final = "relay"

EXTENSIONS: Final[Mapping[str, Callable[[], HubExtension]]] = {
    each.name: each for each in (Receipts, Presence, History, Semantic, Voting, Questions)
}
"""The included extensions, by name."""

ARGUMENT: Final = "RelayOptions.extensions"

Extension: TypeAlias = "str | Callable[[], HubExtension]"
"""An extension by its name, or a function that makes one, called once for each life of the hub."""


def made(extensions: Sequence[Extension]) -> list[HubExtension]:
    """Create the extensions of a hub. Raise ConfigError for an unknown or duplicate extension."""
    found: list[HubExtension] = []
    for each in extensions:
        if isinstance(each, str) and each not in EXTENSIONS:
            hint = hint_at(each, EXTENSIONS) or f": there are {', '.join(EXTENSIONS)}"
            raise ConfigError(f"no extension {each!r}{hint}", ARGUMENT)
        found.append(EXTENSIONS[each]() if isinstance(each, str) else each())
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"the extension {name!r} is named twice", ARGUMENT)
    return found


class _Kept:
    """Store of one extension of a hub: an `ExtensionStore`."""

    def __init__(self, writer: StoreWriter, prefix: str, *, is_lasting: bool) -> None:
        self.is_lasting = is_lasting
        """Whether the data outlives the process; if not, it is kept at once."""
        self._writer = writer
        self._prefix = prefix

    def write(
        self,
        changes: Mapping[str, bytes | None],
        then: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> None:
        """Store values by their keys; None removes a key. See `ExtensionStore`.

        If the store fails, or is too far behind, the values are dropped, and `failed` is called. Important
        values have to be written again.
        """

        def done(error: Exception | None) -> None:
            call = then if error is None else failed
            if call is not None:
                call()

        if self._writer.is_full:
            done(StoreFailed(self._writer.name, "it is too far behind", "send less"))
            return
        writes: list[Write] = [
            Delete(SPACE, f"{self._prefix}{key}")
            if value is None
            else Put(SPACE, f"{self._prefix}{key}", value)
            for key, value in changes.items()
        ]
        try:
            self._writer.submit(writes, "process", done if self.is_lasting else None)
        except StoreFailed as error:
            done(error)
            return
        if not self.is_lasting:
            done(None)


async def start(hub: Hub, writer: StoreWriter, place: str, *, is_lasting: bool) -> None:
    """Start the extensions of a hub with their kept data. Raise StoreFailed."""
    for each in hub.extensions:
        prefix, stop = range_of(place, each.name)
        kept = await writer.records(SPACE, prefix, stop)
        records = [(key.removeprefix(prefix), value) for key, value in kept]
        each.start(hub, _Kept(writer, prefix, is_lasting=is_lasting), records)
