"""Servers that spell, or correlate, in a wrong way, or do not suit kotlin-wot's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.conformance import Level
from lmos_actors.conformance.scripted import ABSENT, ScriptedConnection, invalid
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Final_, Json, Request

SHELF = Shelf()


@SHELF("reads-no-ID", "reads thingId only", "spelling.table-ids")
class ReadsNoID(ScriptedConnection):
    def request(self, message: Json) -> Request:
        if "thingID" in message:
            raise invalid("thingId: a text is needed", "$.thingId")
        return super().request(message)


@SHELF("reads-no-Id", "reads thingID only, and says nothing to thingId", "spelling.example-ids")
class ReadsNoId(ScriptedConnection):
    def take(self, request: Request) -> None:
        if self.ids != "Id":
            super().take(request)


@SHELF("writes-Id", "writes thingId, however it is asked", "spelling.answer-ids")
class WritesId(ScriptedConnection):
    def adapt_to_peer(self, message: Json) -> None:
        super().adapt_to_peer(message)
        self.ids = "Id"


@SHELF("writes-property", "writes property and data in readings", "spelling.reading-members")
class WritesProperty(ScriptedConnection):
    def adapt_to_peer(self, message: Json) -> None:
        super().adapt_to_peer(message)
        self.names = "property"


# ---- kotlin-wot's clients


@SHELF("kotlin-value", "gives them `value` for `data`", "kotlin.read", level=Level.KOTLIN_WOT)
class KotlinValue(ScriptedConnection):
    reading_now = False

    def do_readProperty(self, request: Request) -> None:
        self.reading_now = True
        super().do_readProperty(request)
        self.reading_now = False

    def spelled(self, message: Json) -> Json:
        told = super().spelled(message)
        if self.reading_now and "data" in told:
            told["value"] = told.pop("data")
        return told


@SHELF("kotlin-no-first", "begins no observation with a reading", "kotlin.observe", level=Level.KOTLIN_WOT)
class KotlinNoFirst(ScriptedConnection):
    def do_observeProperty(self, request: Request) -> None:
        if not self.kotlin:
            return super().do_observeProperty(request)
        request.thing.check_observable(request.name)
        self.listen(request, "property", request.name)
        self.acknowledge(request)


@SHELF("kotlin-no-ack", "does not acknowledge subscribeevent", "kotlin.subscribe", level=Level.KOTLIN_WOT)
class KotlinNoAck(ScriptedConnection):
    def acknowledge(self, request: Request) -> None:
        if request.literal != "subscribeevent":
            super().acknowledge(request)


@SHELF(
    "kotlin-one-ack",
    "acknowledges subscribeevent once",
    "kotlin.subscribe-again",
    level=Level.KOTLIN_WOT,
)
class KotlinOneAck(ScriptedConnection):
    subscribed = False

    def acknowledge(self, request: Request) -> None:
        if request.literal == "subscribeevent":
            self.subscribed, again = True, self.subscribed
            if again:
                return
        super().acknowledge(request)


@SHELF("kotlin-no-output", "leaves an output out that is null", "kotlin.one-status", level=Level.KOTLIN_WOT)
class KotlinNoOutput(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        if members.get("output", ABSENT) is None:
            members = {key: value for key, value in members.items() if key != "output"}
        return super().send(kind, thing_id, correlation, members)


@SHELF("kotlin-failed", "tells them a failure as a status", "kotlin.failure", level=Level.KOTLIN_WOT)
class KotlinFailed(ScriptedConnection):
    def send_final(
        self, request: Request, correlation: str | None, final: Final_, more: Json | None = None
    ) -> None:
        if not isinstance(final, tuple) or final[1].get("status") != "failed":
            return super().send_final(request, correlation, final, more)
        members = {"action": request.name, **final[1], **(more or {})}
        self.send("actionStatus", request.thing.id, correlation, members)


@SHELF("kotlin-no-number", "refuses lastEvent", "kotlin.number-for-time", level=Level.KOTLIN_WOT)
class KotlinNoNumber(ScriptedConnection):
    def request(self, message: Json) -> Request:
        if "lastEvent" in message:
            raise invalid("lastEvent: a text is needed", "$.lastEvent")
        return super().request(message)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
