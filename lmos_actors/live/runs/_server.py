"""The server of runs, which serves the page of `run --watch` and `sim --watch` to this machine alone.

It uses the protocol of a node, and has the views of a node that a log can provide. No log-in is needed:
anybody on this machine sees the runs, and may pause or continue them, which affects nothing else. As on a
node without security, only requests by a name of this machine and without the Origin of another page are
answered.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Final

import trio
from starlette.responses import PlainTextResponse
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import ServedConnections
from lmos_actors.security import Guard, Security
from lmos_actors.transport import Accept, FrontDoor, Refuse, TcpNetwork, endpoint_of

from .._messages import SUBPROTOCOL, Do, Done, Hello, Wrong
from .._options import PageOptions
from .._page import Page, software
from .._server import OPTIONS, admitted, full_of
from .._viewer import Pace as ViewPace, Viewer, arguments_of, kind_and_arguments
from ._board import OPERATIONS
from ._run_views import KINDS, RunArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from lmos_actors.security import Admission
    from lmos_actors.transport import Connection, Listener, Network, Upgrade

    from .._viewer import View
    from ._board import RunsBoard

HOST: Final = "127.0.0.1"
KIND: Final = "runs"
FAILURES: Final = 100


class RunsServer:
    """The server of the live view of a board."""

    def __init__(self, board: RunsBoard, network: Network | None = None) -> None:
        self._board = board
        self._network: Network = TcpNetwork() if network is None else network
        self._guard = Guard(Security(), wall=time, operations=True)
        self._pace = ViewPace()
        self._options = PageOptions()
        self._full = full_of(self._options)
        self._viewers = ServedConnections[Viewer](self._options.viewers, full=self._full)
        self._started = time()
        self._scope = trio.CancelScope()
        self._listener: Listener | None = None
        self.failures: deque[BaseException] = deque(maxlen=FAILURES)
        """Exceptions that ended single connections: bugs of this package."""
        self.url = ""
        """The address of the page, once it listens."""

    async def listen(self, port: int = 0) -> None:
        """Listen at a port, 0 for a free one. Raise ConfigError if the port is taken."""
        self._listener = await self._network.listen(endpoint_of(f"ws://{HOST}:{port}"))
        self.url = f"http://{HOST}:{self._listener.addresses[0][1]}/"

    async def serve(self) -> None:
        """Serve until `stop`; call `listen` first."""
        assert self._listener is not None
        door = FrontDoor(
            self._listener,
            route=self.route,
            app=Page(_not_found, self._guard, lambda _: True),
            on_failure=self.failures.append,
        )
        with self._scope:
            await door.serve()

    def stop(self) -> None:
        """Stop serving, and close all connections."""
        self._scope.cancel("the command ends")

    def route(self, upgrade: Upgrade) -> Accept | Refuse:
        """Accept or refuse a WebSocket upgrade."""
        admission = admitted(self._guard, upgrade)
        if isinstance(admission, Refuse):
            return admission
        full = self._viewers.refusal()
        if full is not None:
            return full
        return Accept(SUBPROTOCOL, partial(self._serve, admission=admission), options=OPTIONS)

    @enable_ki_protection
    async def _serve(self, connection: Connection, *, admission: Admission) -> None:
        hello = Hello(
            kind=KIND,
            software=software(),
            node=self.url.rstrip("/"),
            started=self._started,
            rights=["inspect", "operate"],
            operations=list(OPERATIONS),
            views=sorted(KINDS),
        )
        failed = self.failures.append
        viewer = Viewer(connection, hello, self._open, admission, self._do, self._pace, failed, self._options)
        with self._viewers.served(viewer):
            self._board.looked_at.set()
            await viewer.run()

    def _open(self, name: str, arguments: dict[str, Any]) -> View:
        """Open a view by its name. Raises Refused."""
        others = {member: value for member, value in arguments.items() if member != "run"}
        kind, given = kind_and_arguments(KINDS, name, others)
        return kind.make(self._board, arguments_of(name, arguments, RunArguments).run, given)

    def _do(self, do: Do, reply: Callable[[Done | Wrong], None]) -> None:
        reply(self._board.do(do))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    response = PlainTextResponse("the runs of a command are watched at /, and there is nothing else", 404)
    await response(scope, receive, send)
