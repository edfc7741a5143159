"""Servers that answer what is not there in a wrong way, or more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.conformance.scripted import ScriptedConnection, ScriptedServer, completed
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json, Problem, Request, ScriptedThing

SHELF = Shelf()


@SHELF("any-thing", "takes any thingID for its own", "errors.unknown-thing")
class AnyThing(ScriptedServer):
    def thing(self, thing_id: str) -> ScriptedThing | None:
        return super().thing(thing_id) or self.main


@SHELF("null-for-unknown", "reads null where there is no property", "errors.unknown-property")
class NullForUnknown(ScriptedConnection):
    def do_readProperty(self, request: Request) -> None:
        if request.name in request.thing.properties:
            return super().do_readProperty(request)
        self.answer(request, "propertyReading", self.reading(request.name, None))


@SHELF("writes-unknown", "takes writes where there is no property", "errors.unknown-write")
class WritesUnknown(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        if request.name in request.thing.properties:
            return super().do_writeProperty(request)
        self.written(request, "propertyReading", self.reading(request.name, request.message["data"]))


@SHELF("invokes-unknown", "completes what is no action", "errors.unknown-action")
class InvokesUnknown(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        if request.name in request.thing.actions:
            return super().do_invokeAction(request)
        self.send_final(request, self.correlation(request), completed(None))


@SHELF("subscribes-unknown", "takes subscriptions where there is no event", "errors.unknown-event")
class SubscribesUnknown(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        if request.name in request.thing.events:
            super().do_subscribeEvent(request)


@SHELF("blames-itself", "has the status 500 for what is not there", "errors.blame")
class BlamesItself(ScriptedConnection):
    def error(self, problem: Problem) -> Json:
        return {**super().error(problem), "status": "500" if problem.status == 404 else str(problem.status)}


@SHELF("gives-up", "closes the connection after the fourth error", "errors.stays")
class GivesUp(ScriptedConnection):
    errors = 0

    def error(self, problem: Problem) -> Json:
        self.errors += problem.status == 404
        if self.errors == 4:
            self.server.after(0.0, lambda: self.hang_up(1008, "too many errors"))
        return super().error(problem)


@SHELF("answers-twice", "answers each write twice", "answers.once")
class AnswersTwice(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        super().written(request, kind, members)
        super().written(request, kind, members)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
