"""Links to agents of other nodes, made from descriptions without waiting for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.actors import Ref, found_link as chosen_link

from ..exposure._exposure import AGENTS, name_in_path
from ._consume import thing_described
from ._target import hrefs_of as hrefs_of
from ._thing import ConsumedThing

if TYPE_CHECKING:
    from lmos_actors.protocol.td import Description

    from ._consume import ThingLink
    from ._peers import Peers


def found_link(
    peers: Peers, cls: Any, description: Description, source_url: str, *, is_named: bool = False
) -> ThingLink:
    """Return the link to a thing as an agent of a class; it connects in the background, until `release`.

    It sends no headers of a caller, only the node's credentials for the address. With `is_named`, the
    directory belongs to the node's own deployment. Raises ConfigError for a description without a usable
    address.
    """
    thing = thing_described(peers, description, source_url, is_named=is_named)
    return thing.link(thing.known_as(cls, None))


def thing_of(ref: Ref[Any]) -> ConsumedThing | None:
    """Return the far agent that a ref to any `Agent` leads to, as a thing used by its description.

    Return None for a ref with a class, and while no agent has been found. Once that agent is gone, the thing
    may lead to another agent, as the ref does. Never waits.
    """
    link = chosen_link(ref._link)  # pyright: ignore[reportPrivateUsage] # the internals of a ref
    settled = getattr(link, "settled", None)
    found = settled() if settled is not None and link.is_settled else link
    description: Description | None = getattr(found, "description", None)
    if description is None:
        return None
    seconds = ref._seconds  # pyright: ignore[reportPrivateUsage]
    return ConsumedThing(found.far, Ref(link, seconds), description)


async def look_elsewhere(ref: Ref[Any]) -> None:
    """Search the directories once, if a ref looks for its agent there and has not found it yet."""
    link = chosen_link(ref._link)  # pyright: ignore[reportPrivateUsage] # as above
    look = getattr(link, "look_once", None)
    if look is not None and not link.is_settled:
        await look()


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
    """Return the public names of an agent, as found in its id and in the addresses of its description."""
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
