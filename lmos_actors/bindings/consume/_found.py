"""Links to agents of other nodes, made from descriptions without waiting for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..exposure._exposure import AGENTS, name_in_path
from ..lmos._remote_interface import ClassInterface
from ._consume import thing_described
from ._target import hrefs_of as hrefs_of

if TYPE_CHECKING:
    from lmos_actors.protocol.td import Description

    from ._consume import ThingLink
    from ._peers import Peers


def found_link(
    peers: Peers, cls: Any, description: Description, source_url: str, *, is_named: bool = False
) -> ThingLink:
    """Return the link to a thing as an agent of a class; it connects in the background, until `release`.

    It sends no headers of a caller, only the node's credentials for the address. `is_named`: the directory is
    one of the node's own deployment. Raises ConfigError for a
    description without a usable address.
    """
    thing = thing_described(peers, description, source_url, is_named=is_named)
    return thing.link(ClassInterface(cls.__contract__))


async def reached(link: ThingLink) -> None:
    """Wait for the first connection, if the link needs one. Raises ConnectFailed after a failed attempt."""
    for peer in link.sockets:
        if not peer.is_connected and peer.failure is None:
            await peer.first()


def is_down(link: ThingLink) -> bool:
    """Return whether the last attempt to connect has failed, or the link has ended."""
    return any(peer.ended or (not peer.is_connected and peer.tried) for peer in link.sockets)


def is_connected(link: Any) -> bool:
    """Return whether a request can be sent now, without waiting for a connection."""
    return all(peer.is_connected for peer in getattr(link, "sockets", ()))  # near ones have none


def names_of(description: Description, source_url: str) -> tuple[str, ...]:
    """Return the public names of an agent that its id and the addresses in its description contain."""
    places = [description.id or "", *hrefs_of(description, source_url)]
    found: list[str] = []
    for place in places:
        before, there, after = place.partition(AGENTS)
        name = (
            name_in_path(f"{AGENTS}{after.partition('/')[0].partition('?')[0]}") if there and before else None
        )
        if name is not None:
            found.append(name)
    return tuple(dict.fromkeys(found))
