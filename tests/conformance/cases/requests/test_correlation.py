"""Servers whose answers belong to the wrong request, or to none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.conformance.scripted import ScriptedConnection
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Final_, Json, Problem, Request, Run

SHELF = Shelf()


@SHELF("reading-of-nobody", "correlates readings with no request that there was", "correlation.read")
class ReadingOfNobody(ScriptedConnection):
    def answer(self, request: Request, kind: str, members: Json) -> None:
        if request.kind != "readProperty":
            return super().answer(request, kind, members)
        self.send(kind, request.thing.id, self.new_id(), members)


@SHELF("writes-uncorrelated", "does not correlate the answers to writes", "correlation.write")
class WritesUncorrelated(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        self.send(kind, request.thing.id, None, members)


@SHELF("runs-by-id", "correlates the ends of runs by messageID alone", "correlation.invoke")
class RunsById(ScriptedConnection):
    def send_final(
        self, request: Request, correlation: str | None, final: Final_, more: Json | None = None
    ) -> None:
        super().send_final(request, request.id, final, more)


@SHELF("errors-uncorrelated", "does not correlate errors", "correlation.error")
class ErrorsUncorrelated(ScriptedConnection):
    def refuse(self, request: Request, problem: Problem) -> None:
        self.send_error(request.thing.id, problem, None, {})

    def on_unreadable(self, message: Json, problem: Problem) -> None:
        self.send_error(self.at.id, problem, None, {})


@SHELF("needs-correlation", "makes up a correlationID where there is none", "correlation.by-message-id")
class NeedsCorrelation(ScriptedConnection):
    def correlation(self, request: Request) -> str | None:
        if request.given is None and request.kind in ("readProperty", "invokeAction"):
            return self.new_id()
        return super().correlation(request)


@SHELF("latest-request", "correlates with the latest request, whichever it answers", "correlation.two-open")
class LatestRequest(ScriptedConnection):
    latest: Request

    def do_readProperty(self, request: Request) -> None:
        self.latest = request
        members = self.reading(request.name, request.thing.read(request.name))

        def answer() -> None:
            self.send("propertyReading", request.thing.id, self.correlation(self.latest), members)

        self.server.after(0.01, answer)


@SHELF("pending-of-nobody", "correlates pending with no request that there was", "correlation.statuses")
class PendingOfNobody(ScriptedConnection):
    def send_pending(self, run: Run) -> None:
        self.send(
            "actionStatus", run.request.thing.id, self.new_id(), {"action": "wait", "status": "pending"}
        )


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
