"""Servers that carry actions out in a wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance import Level
from lmos_actors.conformance.scripted import (
    ABSENT,
    Done,
    Failed,
    Problem,
    ScriptedConnection,
    ScriptedThing,
    completed,
    invalid,
)
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json, Outcome, Request, Run

SHELF = Shelf()


@SHELF("cannot-add", "cannot carry out an action that it describes", "actions.completed")
class CannotAdd(ScriptedThing):
    def act_add(self, _value: Json) -> Outcome:
        return Failed("it cannot be done")


@SHELF("sum-as-text", "gives a text for a number", "actions.output")
class SumAsText(ScriptedThing):
    def act_add(self, value: Json) -> Outcome:
        return Done(str(value["a"] + value["b"]))


@SHELF("off-by-one", "refuses inputs at the bounds", "actions.boundary-input")
class OffByOne(ScriptedThing):
    def check_input(self, name: str, value: Any) -> None:
        super().check_input(name, value)
        if name == "add" and (abs(value["a"]) == 1000 or abs(value["b"]) == 1000):
            raise invalid("it is less than 1000")


@SHELF("takes-any-input", "takes inputs that do not fit", "actions.wrong-input")
class TakesAnyInput(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        try:
            super().do_invokeAction(request)
        except Problem as problem:
            if problem.status != 400 or request.payload is ABSENT:
                raise
            self.send_final(request, self.correlation(request), completed(None))


@SHELF("needs-no-input", "takes no input where one is needed", "actions.missing-input")
class NeedsNoInput(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        try:
            super().do_invokeAction(request)
        except Problem as problem:
            if problem.status != 400 or request.payload is not ABSENT:
                raise
            self.send_final(request, self.correlation(request), completed(None))


@SHELF("refuses-null", "takes null for an input", "kotlin.null-input", level=Level.KOTLIN_WOT)
class RefusesNull(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        if request.payload is None and "input" not in request.thing.action(request.name):
            raise invalid("this action takes no input")
        super().do_invokeAction(request)


@SHELF("never-fails", "says completed of a run that has failed", "actions.failing")
class NeverFails(ScriptedThing):
    def act_fail(self, _value: Json) -> Outcome:
        return Done({"why": "it always fails"})


@SHELF("no-pending", "says nothing of a run until it is over", "actions.pending")
class NoPending(ScriptedConnection):
    def send_pending(self, run: Run) -> None:
        """Say nothing."""

    def send_progress(self, run: Run, share: float) -> None:
        """Say nothing."""


@SHELF("backwards", "says pending after in progress", "actions.status-order")
class Backwards(ScriptedConnection):
    def send_pending(self, run: Run) -> None:
        if not self.kotlin:
            self.send_status(run, {"status": "in progress"})
        super().send_pending(run)


@SHELF("one-at-a-time", "drops an invocation while a run of the action goes on", "actions.concurrent")
class OneAtATime(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        if all(run.request.name != request.name for run in self.live):
            super().do_invokeAction(request)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
