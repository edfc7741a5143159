"""Servers that do not keep several things apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import ScriptedConnection, ScriptedServer
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json, Request, ScriptedThing

SHELF = Shelf()


@SHELF("one-thing", "finds one thing alone on its socket", "things.each")
class OneThing(ScriptedServer):
    def thing(self, thing_id: str) -> ScriptedThing | None:
        return self.main if thing_id == self.main.id else None


@SHELF("one-name", "answers in the name of one thing", "things.named")
class OneName(ScriptedConnection):
    def message(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> Json:
        return super().message(kind, self.server.main.id, correlation, members)


@SHELF("one-memory", "keeps the properties of all things in one place", "things.values")
class OneMemory(ScriptedServer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.beside.values = self.main.values


@SHELF("events-of-any-thing", "tells the events of a name, whichever thing they are of", "things.events")
class EventsOfAnyThing(ScriptedConnection):
    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        for listening in tuple(self.listenings.values()):
            if listening.kind == "all" or (listening.kind, listening.name) == ("event", name):
                self.deliver_event(listening, name, data)


@SHELF("unsubscribes-by-name", "unsubscribes from the events of a name, of all things", "things.unsubscribe")
class UnsubscribesByName(ScriptedConnection):
    def do_unsubscribeEvent(self, request: Request) -> None:
        request.thing.check_event(request.name)
        self.unlisten(request, [key for key in self.listenings if key[1:] == ("event", request.name)])


@SHELF("changes-of-any-thing", "tells the changes of a name, whichever thing they are of", "things.changes")
class ChangesOfAnyThing(ScriptedConnection):
    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        for listening in tuple(self.listenings.values()):
            if (listening.kind, listening.name) == ("property", name):
                self.deliver_change(listening, value)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
