"""Servers that read and write properties in a wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import Problem, ScriptedConnection, ScriptedThing
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json, Request

SHELF = Shelf()


@SHELF("cannot-read-all", "cannot read one of its properties", "properties.read")
class CannotReadAll(ScriptedConnection):
    def do_readProperty(self, request: Request) -> None:
        if request.name == "settings":
            raise Problem("urn:example:broken", "Broken", 500, "it cannot be read")
        super().do_readProperty(request)


@SHELF("other-type", "gives a number for a text", "properties.value")
class OtherType(ScriptedThing):
    def value(self, name: str) -> Any:
        return 1.0 if name == "version" else super().value(name)


@SHELF("only-acknowledges", "acknowledges a write in place of a reading", "properties.write")
class OnlyAcknowledges(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        if request.kind == "writeProperty":
            kind, members = "acknowledgement", {"message": request.literal}
        super().written(request, kind, members)


@SHELF("answers-ok", "answers a write by another value", "properties.write-answer")
class AnswersOk(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        if request.kind == "writeProperty":
            members = {**members, "value": "ok"}
        super().written(request, kind, members)


@SHELF("forgets-writes", "forgets what was written", "properties.write-kept")
class ForgetsWrites(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        before = dict(request.thing.values)
        super().do_writeProperty(request)
        request.thing.values.update(before)


@SHELF("takes-any-value", "takes values that do not fit", "properties.write-wrong")
class TakesAnyValue(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        if not request.thing.property(request.name).get("readOnly"):
            request.thing.write({request.name: request.message["data"]})
            members = self.reading(request.name, request.message["data"])
            return self.written(request, "propertyReading", members)
        super().do_writeProperty(request)


@SHELF("refuses-and-keeps", "keeps what it has refused", "properties.write-wrong-kept")
class RefusesAndKeeps(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        try:
            super().do_writeProperty(request)
        except Problem:
            if not request.thing.property(request.name).get("readOnly"):
                request.thing.values[request.name] = request.message["data"]
            raise


@SHELF("writes-one-of-many", "answers for one of several writes", "properties.write-multiple")
class WritesOneOfMany(ScriptedConnection):
    def written(self, request: Request, kind: str, members: Json) -> None:
        if kind == "propertyReadings":
            members = {**members, "data": dict(list(members["data"].items())[:1])}
        super().written(request, kind, members)


@SHELF("gives-secrets-away", "reads write-only properties with all others", "properties.read-all")
class GivesSecretsAway(ScriptedConnection):
    def do_readAllProperties(self, request: Request) -> None:
        data = {name: request.thing.value(name) for name in request.thing.properties}
        self.answer(request, "propertyReadings", {"data": data, "timestamp": self.timestamp()})


@SHELF("reads-all-for-some", "reads all properties if asked for some", "properties.read-multiple")
class ReadsAllForSome(ScriptedConnection):
    def do_readMultipleProperties(self, request: Request) -> None:
        self.do_readAllProperties(request)


@SHELF("writes-read-only", "takes writes of read-only properties", "properties.read-only")
class WritesReadOnly(ScriptedConnection):
    def do_writeProperty(self, request: Request) -> None:
        if not request.thing.property(request.name).get("readOnly"):
            return super().do_writeProperty(request)
        self.written(request, "propertyReading", self.reading(request.name, request.message["data"]))


@SHELF("reads-write-only", "gives write-only properties away", "properties.write-only")
class ReadsWriteOnly(ScriptedConnection):
    def do_readProperty(self, request: Request) -> None:
        request.thing.property(request.name)
        members = self.reading(request.name, request.thing.value(request.name))
        self.answer(request, "propertyReading", members)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
