"""The hub of an AgentRelay, as a supervised agent: its identities, and the connected agents.

Connections are handlers of the transport, which find the running hub at its `HubPlace`. They end when the hub
ends. The agents then connect to its successor, with the same tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import attrs
import trio

from lmos_actors.actors import Agent, action
from lmos_actors.persistence import Identities, IdentityOptions, MemoryStore, check_only_writer, open_writer
from lmos_actors.protocol.relay import EVERYBODY, RELAY, Hub, HubStatistics
from lmos_actors.transport import server_text

from ._delivery import Delivery
from ._extensions import made, start
from ._traces import passing

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.persistence import StoreWriter

    from ._options import RelayOptions

RESTART: Final = (1012, "the relay restarts")

_MEMORIES: Final[WeakKeyDictionary[Runtime, dict[str, MemoryStore]]] = WeakKeyDictionary()
"""The identities of nodes without a store, by the path of the hub: they outlive its incarnations."""


@attrs.define
class HubPlace:
    """A reference to a node's hub: `hub` is the running hub, or None if there is none."""

    options: RelayOptions
    hub: RelayHub | None = None

    def find(self, token: str) -> str | None:
        """Return the agent that a token belongs to; see `IssuedTokens`."""
        return None if self.hub is None else self.hub.identities.find(token)

    def has(self, name: str) -> bool:
        """Return whether an agent has a token."""
        return self.hub is not None and self.hub.identities.has(name)


class RelayHub(Agent, private=True):
    """The hub of a node, started by `open_node(relay=...)`. Connections find it at `place`."""

    place: Any

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Load the registered agents and the extensions, and accept connections until the end."""
        slot = self._place()
        options, entropy = self.place.options, slot.rt.entropy
        async with AsyncExitStack() as stack:
            if slot.rt.keeping is not None:
                writer = slot.rt.keeping.writer
                check_only_writer(writer, "the identities of a hub")
            else:
                store = _MEMORIES.setdefault(slot.rt, {}).setdefault(self.path, MemoryStore())
                writer = await stack.enter_async_context(open_writer(store))
            self.identities = self._identities(writer)
            self.hub = Hub(
                options.hub_options(),
                new_id=entropy.new_id,
                now=lambda: int(entropy.now().timestamp() * 1_000),
                extensions=made(options.extensions),
                shared=server_text,
            )
            if slot.rt.edge is not None:
                self.hub.passing = partial(passing, slot.rt.edge)
            self.delivery = Delivery()
            self.nursery.start_soon(self.delivery.run)
            await writer.settled()  # an earlier incarnation's writes
            await self.identities.load()
            await start(self.hub, writer, self.path, is_lasting=slot.rt.keeping is not None)
            if self.hub.extensions:
                self.nursery.start_soon(self._extensions_due)
            self.place.hub = self
            try:
                yield
            finally:
                self.place.hub = None
                self.hub.end_all(*RESTART)

    def _identities(self, writer: StoreWriter) -> Identities:
        """Return the registered agents in a store or in memory, which still have to be loaded."""
        options, entropy = self.place.options, self._place().rt.entropy
        return Identities(
            writer,
            self.path,
            IdentityOptions(
                identities=options.identities,
                unused_seconds=options.unused_seconds,
                kept_seconds=options.identity_seconds,
            ),
            now=lambda: entropy.now().timestamp(),
            random=secrets.token_bytes,  # real ones in a simulation too: tokens are no part of its story
            random_id=entropy.stream("ids of agents on the relay").randbytes,
            reserved=(RELAY, EVERYBODY),
            is_here=lambda id: id in self.hub.connected,
        )

    async def _extensions_due(self) -> None:
        """Run the due work of the extensions, until cancelled."""
        changed = trio.Event()

        def change() -> None:
            changed.set()

        self.hub.on_change = change
        while True:
            at = self.hub.due_at()
            # a clock that is set has to be looked at now and then
            seconds = inf if at is None else min(max(at - self.hub.now(), 0) / 1_000, 60.0)
            with trio.move_on_after(seconds):
                await changed.wait()
            changed = trio.Event()
            self.hub.due()

    @action(safe=True, idempotent=True)
    def statistics(self) -> HubStatistics:
        """Return the counts since the hub started."""
        return self.hub.statistics()

    @action(idempotent=True)
    async def revoke(self, id: str) -> bool:
        """Revoke the token of an agent, and close its connection; return whether there was one."""
        return await self.revoke_token(id)

    async def revoke_token(self, id: str) -> bool:
        """Revoke a token as `revoke` does, for the HTTP route. Raise StoreFailed."""
        found = await self.identities.revoke(id)
        self.hub.end_one(id, 4001, "the token is no longer good")
        return found
