"""Answers of agents, and reports of runs under way, sent over one LMOS connection.

Nothing here waits or raises, for the same reason as in `_server_connection.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.errors import AgentError, AgentUnavailable, LmosActorsError, LocalProtocolError

from ..exposure._meter import ended
from ..exposure._values import plain
from ._server_answers import send_answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lmos_actors.actors import Far, Runtime
    from lmos_actors.protocol import lmos

    from ._server import LmosServer
    from ._server_listeners import Listener, Listeners


class AnsweringConnection:
    """The half of a connection that agents answer to: see `Asker` of the actors."""

    server: LmosServer
    session: lmos.ThingSession
    _rt: Runtime
    _listeners: Listeners
    _runs_without_room: dict[Far, None]
    _over: bool

    def check_end(self) -> None:
        """End the connection if it drains and nothing is open on it."""
        raise NotImplementedError

    def answered(self, far: Far, value: Any) -> None:
        """Send the value."""
        asked = far.asked
        shared = bool(asked.also)
        self.server.open.pop(asked, None)
        try:
            if asked.listening is None:
                send_answer(self.session, far, value, self._rt.entropy.now)
            else:
                self._accept(asked, far.args[0], value, self._rt.entropy.now())
            ended(far, None)
        except AgentError as error:
            ended(far, error)
            self._fail(asked, error)
        except Exception as error:
            ended(far, error)
            self._broken(asked, error)
        self._after_answer(shared=shared)

    def failed(self, far: Far, error: Exception) -> None:
        """Send the error."""
        asked = far.asked
        shared = bool(asked.also)
        self.server.open.pop(asked, None)
        if asked.listening is not None:
            far.args[0].leave()
        if not isinstance(error, AgentUnavailable) or far.again is None or not far.again():
            ended(far, error)
            self._fail(asked, error)
        self._after_answer(shared=shared)

    def waits(self, far: Far) -> None:
        """Report that the run waits."""
        self._tell(far, self.session.pending)

    def began(self, far: Far) -> None:
        """Report the run as in progress; an action declared asynchronous is reported as pending before."""
        if self.server.answers_later(far):
            self._tell(far, self.session.pending)
        self._tell(far, self.session.began)

    def reported(self, far: Far, value: Any) -> None:
        """Report progress."""
        self._tell(far, lambda asked: self.session.progress(asked, plain(value)))

    def _tell(self, far: Far, tell: Callable[[lmos.IncomingRequest], object]) -> None:
        if far.asked.open:
            try:
                tell(far.asked)
            except Exception as error:
                self.server.failed(error)

    def has_room(self, far: Far) -> bool:
        """Return whether an item may be sent now: by the peer's credit, and by what waits here."""
        if self._over or not far.asked.open:
            return True
        if self.session.room(far.asked) and not self._listeners.is_congested():
            return True
        self._runs_without_room[far] = None
        return False

    def gave(self, far: Far, item: Any) -> bool:
        """Send an item of a stream and return whether more are wanted; a run whose consumer is gone is
        ended."""
        asked = far.asked
        if self._over or not asked.open:
            return False
        try:
            wanted = self.session.item(asked, plain(item))
        except Exception as error:
            ended(far, error)
            self._broken(asked, error)
            wanted = False
        if not wanted:
            self.server.withdraw(asked)
        self.check_end()
        return wanted

    def _fail(self, asked: lmos.IncomingRequest, error: Exception) -> None:
        try:
            if isinstance(error, LmosActorsError):
                self.session.fail(asked, self.server.shown(error))
            else:
                self._broken(asked, error)
        except Exception as bug:
            self.server.failed(bug)

    def _broken(self, asked: lmos.IncomingRequest, error: Exception) -> None:
        """Answer by an error for a mistake in this program, or a value that JSON cannot represent."""
        self.server.failed(error)
        try:
            if asked.open:
                self.session.fail(asked, LocalProtocolError("the answer could not be made"))
        except Exception as bug:
            self.server.failed(bug)

    def _accept(self, asked: lmos.IncomingRequest, listener: Listener, value: Any, now: datetime) -> None:
        if asked.verb.word == "observe":
            self._listeners.accept(asked, listener, plain(value), now)
        else:
            self._listeners.accept(asked, listener)

    def _after_answer(self, *, shared: bool) -> None:
        self.check_end()
        if shared:  # its answer has gone out over other connections too
            self.server.settled()
