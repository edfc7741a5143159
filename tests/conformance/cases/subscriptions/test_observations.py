"""Servers that tell observers of a property in a wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import Problem, ScriptedConnection, ScriptedServer, not_allowed
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Listening, Request, ScriptedThing

SHELF = Shelf()


@SHELF("observes-nothing", "refuses observations", "observe.starts")
class ObservesNothing(ScriptedConnection):
    def do_observeProperty(self, request: Request) -> None:
        request.thing.property(request.name)
        if not self.kotlin:
            raise not_allowed("nothing is observed here")
        super().do_observeProperty(request)


@SHELF("first-reading-null", "begins an observation with a reading of null", "observe.first-reading")
class FirstReadingNull(ScriptedConnection):
    value: Any = None

    def do_observeProperty(self, request: Request) -> None:
        request.thing.check_observable(request.name)
        self.listen(request, "property", request.name)
        self.answer(request, "propertyReading", self.reading(request.name, self.value))


@SHELF("first-reading-other", "begins an observation with a reading of 7", "observe.first-reading")
class FirstReadingOther(FirstReadingNull):
    value = 7


@SHELF("observes-anything", "is silent where what is not there is to be observed", "observe.unknown")
class ObservesAnything(ScriptedConnection):
    def do_observeProperty(self, request: Request) -> None:
        try:
            super().do_observeProperty(request)
        except Problem:
            return


@SHELF("tells-no-change", "tells observers the first reading alone", "observe.change")
class TellsNoChange(ScriptedConnection):
    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        return


@SHELF("tells-old-value", "tells observers what the property was", "observe.change", "ordering.changes")
class TellsOldValue(ScriptedConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before: dict[str, Any] = {}

    def deliver_change(self, listening: Listening, value: Any) -> None:
        super().deliver_change(listening, self.before.get(listening.name, 0))
        self.before[listening.name] = value


@SHELF("tells-others-alone", "does not tell observers of what they have written", "observe.own-change")
class TellsOthersAlone(ScriptedConnection):
    writing = False

    def do_writeProperty(self, request: Request) -> None:
        self.writing = True
        try:
            super().do_writeProperty(request)
        finally:
            self.writing = False

    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        if not self.writing:
            super().changed(thing, name, value)


@SHELF("changes-uncorrelated", "tells changes without a correlationID", "observe.correlation")
class ChangesUncorrelated(ScriptedConnection):
    def deliver_change(self, listening: Listening, value: Any) -> None:
        self.send("propertyReading", listening.thing.id, None, self.reading(listening.name, value))


@SHELF("changes-correlate-anyhow", "tells changes with a new correlationID each", "observe.correlation")
class ChangesCorrelateAnyhow(ScriptedConnection):
    def deliver_change(self, listening: Listening, value: Any) -> None:
        self.send("propertyReading", listening.thing.id, self.new_id(), self.reading(listening.name, value))


@SHELF("one-observer", "tells a change to the first observer alone", "observe.two-observers")
class OneObserver(ScriptedServer):
    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        for connection in self.connections:
            if (thing.id, "property", name) in connection.listenings:
                return connection.changed(thing, name, value)
        return None


@SHELF("tells-all", "tells a change that somebody observes to whoever is there", "observe.not-observing")
class TellsAll(ScriptedConnection):
    quiet = True

    def take(self, request: Request) -> None:
        self.quiet &= request.kind == "readProperty"
        super().take(request)

    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        super().changed(thing, name, value)
        key = (thing.id, "property", name)
        for connection in self.server.connections:
            if self.quiet and key in connection.listenings:
                return self.deliver_change(connection.listenings[key], value)
        return None


@SHELF("observes-twice", "tells a change twice to who has observed twice", "observe.twice")
class ObservesTwice(ScriptedConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.doubled: set[tuple[str, str, str]] = set()

    def do_observeProperty(self, request: Request) -> None:
        key = (request.thing.id, "property", request.name)
        if key in self.listenings:
            self.doubled.add(key)
        super().do_observeProperty(request)

    def deliver_change(self, listening: Listening, value: Any) -> None:
        for _ in range(2 if listening.key in self.doubled else 1):
            super().deliver_change(listening, value)


@SHELF("unobserves-nothing", "goes on after unobserveProperty", "observe.unobserve")
class UnobservesNothing(ScriptedConnection):
    def do_unobserveProperty(self, request: Request) -> None:
        request.thing.property(request.name)
        self.acknowledge(request)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
