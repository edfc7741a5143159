"""Servers whose forms for HTTP do something else than their WebSocket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import Done, HttpRequest, Problem, Reply, ScriptedPages, given
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Outcome, ScriptedThing

SHELF = Shelf()


@SHELF("counts-from-one", "gives another value over HTTP than over the WebSocket", "http.read")
class CountsFromOne(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        if method == "GET" and name == "level":
            return given(thing.read(name) + 1)
        return super().property(method, thing, name, request)


@SHELF("reads-no-settings", "has an internal error where an object is read", "http.read")
class ReadsNoSettings(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        if method == "GET" and name == "settings":
            return Reply(500)
        return super().property(method, thing, name, request)


@SHELF("gives-plain-text", "says that its values are plain text", "http.media-type")
class GivesPlainText(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        reply = super().property(method, thing, name, request)
        return Reply(reply.status, reply.body, (("Content-Type", "text/plain"),)) if reply.body else reply


@SHELF("leaves-one-out", "leaves a property out where all are read", "http.read-all")
class LeavesOneOut(ScriptedPages):
    def properties(self, method: str, thing: ScriptedThing, request: HttpRequest) -> Reply:
        reply = super().properties(method, thing, request)
        found = json.loads(reply.body) if method == "GET" else {}
        return given({name: found[name] for name in found if name != "version"}) if found else reply


class Writes(ScriptedPages):
    """Writes properties in a way of its own."""

    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        if method == "PUT" and (reply := self.written(thing, name, request)) is not None:
            return reply
        return super().property(method, thing, name, request)

    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        """Write a property; None if that is to be done in the right way."""
        raise NotImplementedError


@SHELF("writes-no-same-value", "has an internal error where nothing changes", "http.write")
class WritesNoSameValue(Writes):
    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        same = json.loads(request.body) == thing.values[name]
        return Reply(500) if same and not thing.property(name).get("readOnly") else None


@SHELF("writes-nothing", "says that it has written what it has not", "http.write-seen")
class WritesNothing(Writes):
    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        try:
            thing.check_write(name, json.loads(request.body), "$")
        except Problem:
            return None
        return Reply(204)


@SHELF("http-writes-read-only", "writes what is read-only", "http.read-only")
class WritesReadOnly(Writes):
    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        return Reply(204) if thing.property(name).get("readOnly") else None


@SHELF("http-gives-secrets-away", "gives away what is write-only", "http.write-only")
class GivesSecretsAway(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        if method == "GET" and name == "secret":
            return given(thing.value(name))
        return super().property(method, thing, name, request)


@SHELF("writes-anything", "writes values that do not fit", "http.wrong-value")
class WritesAnything(Writes):
    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        if thing.property(name).get("readOnly"):
            return None
        thing.write({name: json.loads(request.body)})
        return Reply(204)


@SHELF("accepts-anything", "says that it has written a value that does not fit", "http.wrong-value")
class AcceptsAnything(Writes):
    def written(self, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply | None:
        if thing.property(name).get("readOnly"):
            return None
        try:
            thing.check_write(name, json.loads(request.body), "$")
        except Problem:
            return Reply(204)
        return None


@SHELF("finds-anything", "gives null for a property that is not there", "http.unknown")
class FindsAnything(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        return super().property(method, thing, name, request) if name in thing.properties else given(None)


@SHELF("says-another-status", "says another status in its problem details", "http.problem")
class SaysAnotherStatus(ScriptedPages):
    def problem(self, problem: Problem) -> Reply:
        reply = super().problem(problem)
        told = json.loads(reply.body) | {"status": 500}
        return Reply(reply.status, json.dumps(told).encode(), reply.headers)


@SHELF("takes-any-method", "takes any method for GET", "http.method")
class TakesAnyMethod(ScriptedPages):
    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        return super().property("GET" if method == "PATCH" else method, thing, name, request)


@SHELF("hides-its-methods", "does not say which methods there are", "http.method")
class HidesItsMethods(ScriptedPages):
    def problem(self, problem: Problem) -> Reply:
        reply = super().problem(problem)
        return Reply(reply.status, reply.body, tuple(each for each in reply.headers if each[0] != "Allow"))


@SHELF("invokes-nothing", "has an internal error where an action is invoked", "http.invoke")
class InvokesNothing(ScriptedPages):
    def outcome(self, outcome: Outcome) -> Reply:
        return Reply(500)


@SHELF("gives-another-shape", "gives an output of another shape", "http.invoke", "http.invoke-equal")
class GivesAnotherShape(ScriptedPages):
    def outcome(self, outcome: Outcome) -> Reply:
        return super().outcome(Done([outcome.output]) if isinstance(outcome, Done) else outcome)


@SHELF("adds-a-word", "gives another output over HTTP than over the WebSocket", "http.invoke-equal")
class AddsAWord(ScriptedPages):
    def outcome(self, outcome: Outcome) -> Reply:
        output: Any = outcome.output if isinstance(outcome, Done) else None
        if isinstance(output, dict) and "text" in output:
            outcome = Done({"text": output["text"] + "!"})
        return super().outcome(outcome)


class Invokes(ScriptedPages):
    """Does without what is wrong with an input."""

    def action(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        try:
            return super().action(method, thing, name, request)
        except Problem as problem:
            if problem.status == 400 and self.spares(problem):
                return Reply(204)
            raise

    def spares(self, problem: Problem) -> bool:
        """Whether it takes an input in spite of what is wrong with it."""
        raise NotImplementedError


@SHELF("http-takes-any-input", "takes any input that is JSON", "http.wrong-input")
class TakesAnyInput(Invokes):
    def spares(self, problem: Problem) -> bool:
        return "not JSON" not in problem.detail


@SHELF("takes-any-body", "takes a body that is not JSON for none", "http.not-json")
class TakesAnyBody(Invokes):
    def spares(self, problem: Problem) -> bool:
        return "not JSON" in problem.detail


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
