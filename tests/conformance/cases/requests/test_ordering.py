"""Servers that do things in another order than they were asked to, or wait where they should not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import Problem, ScriptedConnection
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import Listening, Request

SHELF = Shelf()
SOON = 0.01


@SHELF("few-at-once", "drops all but forty requests of one moment", "ordering.pipelined")
class FewAtOnce(ScriptedConnection):
    moment = -1.0
    count = 0

    def take(self, request: Request) -> None:
        now = self.server.now()
        self.count = self.count + 1 if now == self.moment else 1
        self.moment = now
        if self.count <= 40:
            super().take(request)


@SHELF("writes-later", "carries writes out later than what comes behind them", "ordering.write-then-read")
class WritesLater(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        def write() -> None:
            try:
                super(WritesLater, self).do_writeProperty(request)
            except Problem as problem:
                self.refuse(request, problem)

        self.server.after(SOON, write)


class Backwards(ScriptedConnection):
    """Tells what belongs to one moment the newest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waiting: list[Callable[[], None]] = []

    def hold(self, tell: Callable[[], None]) -> None:
        """Tell something a little later."""
        if not self.waiting:
            self.server.after(SOON, self.flush)
        self.waiting.append(tell)

    def flush(self) -> None:
        """Tell all that waits."""
        while self.waiting:
            self.waiting.pop()()


@SHELF("changes-backwards", "tells the changes of one moment backwards", "ordering.changes")
class ChangesBackwards(Backwards):
    def deliver_change(self, listening: Listening, value: Any) -> None:
        self.hold(lambda: super(ChangesBackwards, self).deliver_change(listening, value))


@SHELF("events-backwards", "tells the events of one moment backwards", "ordering.events")
class EventsBackwards(Backwards):
    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        self.hold(lambda: super(EventsBackwards, self).deliver_event(listening, name, data))


@SHELF("reads-wait", "lets reads wait for a run of the same connection", "ordering.slow-run")
class ReadsWait(ScriptedConnection):
    def busy(self) -> bool:
        """Whether a run goes on that reads wait for."""
        return any(run.request.name == "wait" and run.credit is None for run in self.live)

    def do_readProperty(self, request: Request) -> None:
        if self.busy():
            self.server.after(1.0, lambda: self.take(request))
        else:
            super().do_readProperty(request)


@SHELF("runs-lock", "lets reads wait for a run of any other connection", "ordering.slow-elsewhere")
class RunsLock(ReadsWait):
    def busy(self) -> bool:
        others = (each for each in self.server.connections if each is not self)
        return any(run.request.name == "wait" for other in others for run in other.live)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
