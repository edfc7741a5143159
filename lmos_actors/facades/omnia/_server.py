"""Omnia's chat protocol on a node: its WebSockets, and the agents that their addresses name.

An address names its agent by `?agent=NAME`, by `/api/agents/NAME/ws`, or by `/api/agents/NAMESPACE/NAME/ws`,
where the namespace is ignored; Omnia's pages use the last form. If only this protocol is served, `/` and
`/ws` without a name are answered with 400, as Omnia's facades do. Otherwise `/` stands for the chat agent of
the node if it has exactly one.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import (
    ServedConnections,
    asks_nothing,
    presented_in,
    principal_of,
    public_name,
    sees,
)
from lmos_actors.errors import Forbidden, RateLimited, Unauthorized, hint_at
from lmos_actors.node import ROWS, NodeService
from lmos_actors.protocol.omnia import ServerOptions
from lmos_actors.security import Refusal
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ..chat import ChatAgent
from ._calls import Calls, SoundStatistics
from ._connection import OmniaConnection
from ._context import OmniaContext
from ._options import OmniaOptions
from ._spans import agent_named
from ._uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.routing import BaseRoute

    from lmos_actors.bindings import Exposed
    from lmos_actors.node import ServiceHome, View
    from lmos_actors.security import Admission
    from lmos_actors.transport import Connection, Upgrade

SUBPROTOCOL: Final = "lmosprotocol"
ROOTS: Final = ("/", "/ws")
NAMES_COMPARED: Final = 1_000


@attrs.frozen
class OmniaStatistics:
    """Counts of connections, of the turns in progress or waiting on them, and of calls.

    `parked` counts the calls that wait for their clients, `sound` the frames of calls that have ended.
    """

    connections: int
    turns: int
    calls: int
    parked: int
    sound: SoundStatistics


class OmniaServer(NodeService):
    """A service that serves the chat agents of a node to Omnia's clients."""

    name = "omnia"

    def __init__(self, options: OmniaOptions | None = None) -> None:
        self.options = OmniaOptions() if options is None else options
        self._served = ServedConnections[OmniaConnection](self.options.connections, shared=True)
        self._connection = ConnectionOptions(
            max_message_bytes=self.options.max_payload,
            heartbeat_seconds=self.options.pong_seconds,
            write_seconds=self.options.write_seconds,
            needs_pongs=True,
        )

    def open(self, home: ServiceHome) -> None:
        """Store the node that is served. Raises ConfigError if the folder for uploads cannot be used."""
        folder, rt = self.options.uploads, home.rt
        uploads = rt.files = None if folder is None else Uploads(folder, self.options, rt)
        self._exposure, self._guard = home.exposure, home.guard
        self._context = OmniaContext(
            rt, self.options, home.failed, home.start_soon, self._served, uploads, home.url
        )
        self._calls = Calls(self._context)

    def views(self) -> dict[str, View]:
        """Return the connections of clients, and counts of turns and calls."""
        return {"omnia": self._view}

    def _view(self) -> dict[str, Any]:
        clients = [
            {
                "agent": each.agent,
                **({} if each.principal is None else {"principal": each.principal}),
                "turns": each.turns,
                "watches": each.watches,
            }
            for each in islice(self._served, ROWS)
        ]
        watched = [
            {"agent": agent, "session": session, "watchers": len(watchers)}
            for (agent, _, session), watchers in islice(self._context.watchers.items(), ROWS)
        ]
        return {"counts": attrs.asdict(self.statistics()), "clients": clients, "watched": watched}

    def routes(self) -> list[BaseRoute]:
        """Return the HTTP routes for files of clients."""
        if self._context.uploads is None:
            return []
        from ._media_routes import media_routes  # imports Starlette

        return media_routes(self._context.uploads)

    # ---- which connections

    def accept(self, upgrade: Upgrade) -> Accept | Refuse | None:
        """Decide about an upgrade; return None for LMOS, and for an address outside this protocol."""
        if self.options.only:
            return self._decided(upgrade) or Refuse(404, "only Omnia's chat protocol is served here")
        return None if SUBPROTOCOL in upgrade.offered else self._decided(upgrade)

    def _decided(self, upgrade: Upgrade) -> Accept | Refuse | None:
        query = parse_qs(upgrade.query)
        name = agent_named(upgrade.path, query)
        roots = ROOTS if self.options.only else ("/",)
        if name is None and upgrade.path not in roots:
            return None
        admission = self._admitted(upgrade)
        if isinstance(admission, Refusal):
            return Refuse(admission.status, admission.reason, admission.headers)
        if name is not None:
            found = self._exposure.named(public_name(name))
        elif self.options.only:
            return Refuse(400, "agent parameter is required")
        else:  # the root of a node means its only chat agent
            chats = [each for each in self._exposure if issubclass(each.cls, ChatAgent)]
            if len(chats) != 1:
                return None
            found = chats[0]
        if found is None or not issubclass(found.cls, ChatAgent) or not self._is_seen(found, admission):
            return Refuse(404, self._nothing(name or "", admission))
        refusal = self._forbidden(found.name, admission)
        if refusal is not None:
            return refusal
        refusal = self._served.refusal(principal_of(admission))
        if refusal is not None:
            return refusal
        serve = partial(self._serve, found=found, admission=admission, query=query)
        return Accept(None, serve, options=self._connection)

    def _admitted(self, upgrade: Upgrade) -> Admission | Refusal | None:
        admission = self._guard.admit(presented_in(upgrade), trio.current_time())
        return None if asks_nothing(self._guard) and not isinstance(admission, Refusal) else admission

    def _is_seen(self, found: Exposed, admission: Admission | None) -> bool:
        if admission is None or self._guard.security.public_descriptions:
            return True
        return sees(admission)(found.name)

    def _forbidden(self, name: str, admission: Admission | None) -> Refuse | None:
        try:
            if admission is not None:
                admission.check(name, "invoke", trio.current_time())
        except Unauthorized as error:
            return Refuse(401, str(error), self._guard.challenges)
        except Forbidden as error:
            return Refuse(403, str(error))
        except RateLimited as error:
            return Refuse(429, str(error))
        return None

    def _nothing(self, name: str, admission: Admission | None) -> str:
        """Return the text of a 404 answer, which suggests a chat agent with a similar name."""
        names: list[str] = []
        for found in self._exposure:
            if issubclass(found.cls, ChatAgent) and self._is_seen(found, admission):
                names.append(found.name)
            if len(names) == NAMES_COMPARED:
                break
        return f"there is no chat agent {name[:200]!r}{hint_at(name, names)}"

    # ---- serving

    @enable_ki_protection
    async def _serve(
        self,
        connection: Connection,
        *,
        found: Exposed,
        admission: Admission | None,
        query: Mapping[str, list[str]],
    ) -> None:
        given = self.options
        options = ServerOptions(
            max_payload=given.max_payload,
            binary=_is_set(query, "binary"),
            texts=given.texts_per_second,
            texts_burst=given.texts_burst,
            media_bytes=given.media_per_second,
            media_burst=given.media_burst,
        )
        served = OmniaConnection(self._context, self._calls, connection, found, admission, options)
        served.watches = _is_set(query, "watch")
        resumed = query.get("resume", [""])[0]
        with self._served.served(served, served.principal):
            await served.run(resumed or None)

    # ---- draining

    def on_drain(self) -> None:
        """Accept no more connections; close each once its turns have ended."""
        self._served.draining = True
        self._calls.hang_up()
        for served in self._served:
            served.check_end()

    async def wait_done(self) -> None:
        """Wait until no turn and no call is in progress, and the connections are closed."""
        await self._calls.wait_done()
        await self._served.wait_done()

    def statistics(self) -> OmniaStatistics:
        """Return the current counts."""
        turns = sum(each.turns for each in self._served)
        return OmniaStatistics(
            len(self._served), turns, len(self._calls), self._calls.parked, attrs.evolve(self._calls.sound)
        )


def _is_set(query: Mapping[str, list[str]], name: str) -> bool:
    return query.get(name, [""])[0].lower() in ("true", "1")
