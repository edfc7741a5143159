"""Things behind a peer: the state that all refs to one thing share."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from ..exposure._exposure import name_in_url, path_named

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.protocol.td import Description

    from ._peer import Peer
    from ._peer_listening import SharedListening
    from ._peer_requests import PendingRequest


def path_of(thing_id: str) -> str:
    """Return the path that an agent's errors name: that in its tree if its address tells it, else the id."""
    name = name_in_url(thing_id)
    return thing_id if name is None else path_named(name)


class RemoteThing:
    """One thing behind a peer: refs to it are equal, share what is listened to, and name it by one path."""

    __slots__ = (
        "__weakref__", "description", "listenings", "number", "path", "peer", "rt", "thing_id", "unwell",
    )  # fmt: skip

    def __init__(self, peer: Peer, thing_id: str) -> None:
        self.peer = peer
        self.rt: Runtime = peer.rt
        self.thing_id = thing_id
        self.path = path_of(thing_id)
        self.description: Description | None = None
        self.listenings: dict[tuple[str, str], SharedListening] = {}
        self.unwell = False
        """Whether the last answer about the agent was that it does not run."""
        # not the hash of the text, which is another in each process
        self.number: int = crc32(thing_id.encode("utf-8", "replace"))

    @property
    def identity(self) -> tuple[object, int]:
        """The equality key of refs: runtime, server, credentials and thing id, with a number to hash by.

        The peer itself is not part of it: a thing may be reached by more than one path of an address.
        """
        return (self.rt, self.peer.origin, self.peer.headers, self.thing_id), self.number

    def withdraw(self, request: PendingRequest) -> bool:
        """Withdraw a request; return whether it was still open. A run is cancelled without waiting for it."""
        if request.ended:
            return False
        request.ended = True
        self.peer.withdraw(request)
        return True
