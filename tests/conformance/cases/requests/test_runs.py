"""Servers that say how runs stand, or cancel them, in a wrong way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lmos_actors.conformance.scripted import Problem, ScriptedConnection, completed, invalid, not_found
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Request, Run

SHELF = Shelf()


class Picky(ScriptedConnection):
    """Does not find some of the runs that are meant."""

    def finds(self, request: Request, run: Run) -> bool:
        """Whether it finds a run for a query or a cancel."""
        raise NotImplementedError

    def requested_run(self, request: Request) -> tuple[Run, str | None]:
        run, correlation = super().requested_run(request)
        if not self.finds(request, run):
            raise not_found("run of action", request.name)
        return run, correlation


@SHELF("knows-only-ended", "cannot be asked about a run that goes on, by its id", "query.running")
class KnowsOnlyEnded(Picky):
    def finds(self, request: Request, run: Run) -> bool:
        return request.kind == "cancelAction" or run.final is not None or request.given is None


@SHELF("query-needs-id", "cannot be asked about a run by the action alone", "query.by-name")
class QueryNeedsId(Picky):
    def finds(self, request: Request, run: Run) -> bool:
        return request.kind == "cancelAction" or request.given is not None


@SHELF("forgets-runs", "forgets a run when it is over", "query.finished")
class ForgetsRuns(Picky):
    def finds(self, request: Request, run: Run) -> bool:
        return request.kind == "cancelAction" or run.final is None


@SHELF("query-silence", "does not answer a query about no run", "query.unknown")
class QuerySilence(ScriptedConnection):
    def do_queryAction(self, request: Request) -> None:
        try:
            super().do_queryAction(request)
        except Problem:
            return


@SHELF("no-reason", "refuses a cancel with a reason", "cancel.running")
class NoReason(ScriptedConnection):
    def do_cancelAction(self, request: Request) -> None:
        if "reason" in request.message:
            raise invalid("reason: there is no such member", "$.reason")
        super().do_cancelAction(request)


@SHELF("cancel-needs-id", "cannot cancel a run by the action alone", "cancel.by-name")
class CancelNeedsId(Picky):
    def finds(self, request: Request, run: Run) -> bool:
        return request.kind == "queryAction" or request.given is not None


@SHELF("completes-all-the-same", "says that a run was cancelled, and completes it", "cancel.stays")
class CompletesAllTheSame(ScriptedConnection):
    def do_cancelAction(self, request: Request) -> None:
        run, correlation = self.requested_run(request)
        if run.final is not None or run.credit is not None:
            return super().do_cancelAction(request)
        members = {"action": request.name, "status": "failed", "output": None, "inReplyTo": request.id}
        self.send("actionStatus", request.thing.id, correlation, members)
        self.server.after(1.0, partial(self.end, run, completed({"waited": 1})))


@SHELF("cannot-cancel-ended", "answers the cancel of a run that is over by an error", "cancel.finished")
class CannotCancelEnded(Picky):
    def finds(self, request: Request, run: Run) -> bool:
        return request.kind == "queryAction" or run.final is None


@SHELF("cancel-silence", "does not answer a cancel of no run", "cancel.unknown")
class CancelSilence(ScriptedConnection):
    def do_cancelAction(self, request: Request) -> None:
        try:
            super().do_cancelAction(request)
        except Problem:
            return


@SHELF("cancels-all", "cancels all runs of an action", "cancel.other-run")
class CancelsAll(ScriptedConnection):
    def do_cancelAction(self, request: Request) -> None:
        super().do_cancelAction(request)
        for run in tuple(self.live):
            if run.request.name == request.name:
                self.end(run, ("actionStatus", {"status": "failed", "output": None, "cancelled": True}))


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
