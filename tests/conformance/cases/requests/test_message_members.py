"""Servers whose messages are not by the letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import ScriptedConnection, SendText, dumped
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json, Problem, Request, Run

SHELF = Shelf()


def _without(members: Json, *names: str) -> Json:
    return {key: value for key, value in members.items() if key not in names}


@SHELF("reading-untimed", "says no time of a reading", "letter.reading")
class ReadingUntimed(ScriptedConnection):
    def do_readProperty(self, request: Request) -> None:
        members = self.reading(request.name, request.thing.read(request.name))
        self.answer(request, "propertyReading", _without(members, "timestamp"))


@SHELF("readings-untimed", "says no time of several readings", "letter.readings")
class ReadingsUntimed(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        super().written(request, kind, _without(members, *["timestamp"] * (kind == "propertyReadings")))


@SHELF("status-of-what", "does not say which action a status is of", "letter.status")
class StatusOfWhat(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        return super().send(kind, thing_id, correlation, _without(members, "action"))


@SHELF("error-no-instance", "has no instance in errors", "letter.error")
class ErrorNoInstance(ScriptedConnection):
    def error(self, problem: Problem) -> Json:
        return _without(super().error(problem), "instance")


@SHELF("error-number", "has a number as status of errors", "letter.error-status")
class ErrorNumber(ScriptedConnection):
    def error(self, problem: Problem) -> Json:
        return {**super().error(problem), "status": problem.status}


@SHELF("error-in-words", "has words as type of errors", "letter.error-uri")
class ErrorInWords(ScriptedConnection):
    def error(self, problem: Problem) -> Json:
        return {**super().error(problem), "type": "not found" if problem.status == 404 else problem.type}


@SHELF("status-of-other", "names another action in statuses", "letter.about")
class StatusOfOther(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        if "action" in members:
            members = {**members, "action": f"do_{members['action']}"}
        return super().send(kind, thing_id, correlation, members)


@SHELF("other-thing", "has another thingID in errors", "letter.thing")
class OtherThing(ScriptedConnection):
    def send_error(self, thing_id: str, problem: Problem, correlation: str | None, more: Json) -> None:
        super().send_error("urn:example:the-gateway", problem, correlation, more)


@SHELF("counts-messages", "numbers its messages", "letter.message-id")
class CountsMessages(ScriptedConnection):
    def new_id(self) -> str:
        return f"m{super().new_id()[:8]}"


@SHELF("one-message-id", "gives each message of a kind the same messageID", "letter.own-message-id")
class OneMessageId(ScriptedConnection):
    def message(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> Json:
        message = super().message(kind, thing_id, correlation, members)
        return {**message, "messageID": "6b0f2a54-0a3e-4f6e-9d58-2f5a4a1f7c10"}


@SHELF("epoch", "has seconds as timestamp of readings", "letter.timestamp")
class Epoch(ScriptedConnection):
    def do_readProperty(self, request: Request) -> None:
        members = self.reading(request.name, request.thing.read(request.name))
        self.answer(request, "propertyReading", {**members, "timestamp": 1737399600.52})


@SHELF("running", "says running for pending", "letter.status-word")
class Running(ScriptedConnection):
    def send_status(self, run: Run, members: Json) -> str:
        if members["status"] == "pending":
            members = {**members, "status": "running"}
        return super().send_status(run, members)


@SHELF("says-it-twice", "has messageType in messages twice", "letter.member-twice")
class SaysItTwice(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        message: dict[str, Any] = self.spelled(self.message(kind, thing_id, correlation, members))
        text = dumped(message)[:-1] + f',"messageType":"{kind}"}}'
        self.put(SendText(text))
        return text


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
