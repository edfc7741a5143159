"""Servers that tell subscribers of events in a wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import ScriptedConnection, ScriptedServer, WebSocketCodec, invalid
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from typing import Literal

    from lmos_actors.conformance.scripted import Listening, Request, ScriptedThing

SHELF = Shelf()


class Told(ScriptedConnection):
    """Has other members in its events."""

    def members(self, name: str, data: Any) -> dict[str, Any]:
        """Give the members of an event."""
        return {"event": name, "data": data, "timestamp": self.timestamp()}

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        self.send("event", listening.thing.id, listening.correlation, self.members(name, data))


@SHELF("delivers-nothing", "takes subscriptions, and tells no event", "events.delivered")
class DeliversNothing(ScriptedConnection):
    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        return


@SHELF("refuses-subscriptions", "refuses subscriptions", "events.delivered", "extension.ack")
class RefusesSubscriptions(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        request.thing.check_event(request.name)
        if not self.kotlin:
            raise invalid("nothing is subscribed to here")
        super().do_subscribeEvent(request)


@SHELF("event-unnamed", "does not say which event it is", "events.members")
class EventUnnamed(Told):
    def members(self, name: str, data: Any) -> dict[str, Any]:
        return {"data": data, "timestamp": self.timestamp()}


@SHELF("event-without-data", "leaves out the data of events", "events.members", "events.data")
class EventWithoutData(Told):
    def members(self, name: str, data: Any) -> dict[str, Any]:
        return {"event": name, "timestamp": self.timestamp()}


@SHELF("event-data-wrong", "sends data that does not fit its schema", "events.data")
class EventDataWrong(Told):
    def members(self, name: str, data: Any) -> dict[str, Any]:
        return super().members(name, {"note": "rang"})


@SHELF("event-time-number", "tells the time of events as a number", "events.timestamp")
class EventTimeNumber(Told):
    def members(self, name: str, data: Any) -> dict[str, Any]:
        return super().members(name, data) | {"timestamp": 1_737_399_600.52}


@SHELF("event-without-time", "does not tell the time of events", "events.timestamp")
class EventWithoutTime(Told):
    def members(self, name: str, data: Any) -> dict[str, Any]:
        return {"event": name, "data": data}


@SHELF("events-by-message", "correlates events by the messageID of the subscription", "events.correlation")
class EventsByMessage(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        super().do_subscribeEvent(request)
        self.listenings[request.thing.id, "event", request.name].correlation = request.id


@SHELF("events-anyhow", "correlates events by new ids", "events.correlation", "events.correlation-by-message")
class EventsAnyhow(Told):
    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        self.send("event", listening.thing.id, self.new_id(), self.members(name, data))


@SHELF(
    "events-uncorrelated",
    "does not correlate events where the subscription had no correlationID",
    "events.correlation-by-message",
)
class EventsUncorrelated(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        super().do_subscribeEvent(request)
        self.listenings[request.thing.id, "event", request.name].correlation = request.given


@SHELF("events-double", "tells each event twice", "events.once")
class EventsDouble(ScriptedConnection):
    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        for _ in range(2):
            super().deliver_event(listening, name, data)


@SHELF("two-events-each", "ends a subscription after two events", "events.each")
class TwoEventsEach(ScriptedConnection):
    left = 2

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        self.left -= 1
        if self.left >= 0:
            super().deliver_event(listening, name, data)


@SHELF("one-subscriber", "tells an event to the newest subscriber alone", "events.two-subscribers")
class OneSubscriber(ScriptedServer):
    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        for connection in reversed(self.connections):
            keys = ((thing.id, "event", name), (thing.id, "all", ""))
            if any(key in connection.listenings for key in keys):
                return connection.happened(thing, name, data)
        return None


@SHELF(
    "events-for-all",
    "tells an event that somebody subscribed to to whoever is there",
    "events.not-subscribed",
    "connection.forgets",
)
class EventsForAll(ScriptedConnection):
    quiet = True

    def take(self, request: Request) -> None:
        self.quiet &= request.kind == "readProperty"
        super().take(request)

    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        super().happened(thing, name, data)
        key = (thing.id, "event", name)
        for connection in self.server.connections:
            if self.quiet and key in connection.listenings:
                return self.deliver_event(connection.listenings[key], name, data)
        return None


@SHELF("every-event", "tells every event to who has subscribed to one", "events.other-event")
class EveryEvent(ScriptedConnection):
    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        for listening in self.listenings.values():
            if listening.thing is thing and listening.kind != "property":
                return self.deliver_event(listening, name, data)
        return None


@SHELF("subscribes-twice", "tells events twice to who has subscribed twice", "events.twice-subscribed")
class SubscribesTwice(ScriptedConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.doubled: set[tuple[str, str, str]] = set()

    def listen(self, request: Request, kind: Literal["property", "event", "all"], name: str) -> None:
        if (request.thing.id, kind, name) in self.listenings:
            self.doubled.add((request.thing.id, kind, name))
        super().listen(request, kind, name)

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        for _ in range(2 if listening.key in self.doubled else 1):
            super().deliver_event(listening, name, data)


@SHELF("unsubscribes-nothing", "goes on after unsubscribeEvent", "events.unsubscribe")
class UnsubscribesNothing(ScriptedConnection):
    def do_unsubscribeEvent(self, request: Request) -> None:
        request.thing.check_event(request.name)
        self.acknowledge(request)


@SHELF("subscribes-once", "takes one subscription to an event in a connection's life", "events.resubscribe")
class SubscribesOnce(ScriptedConnection):
    over_for_good: tuple[str, ...] = ()

    def do_unsubscribeEvent(self, request: Request) -> None:
        super().do_unsubscribeEvent(request)
        self.over_for_good += (request.thing.id,)

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        if listening.thing.id not in self.over_for_good or listening.kind == "all":
            super().deliver_event(listening, name, data)


class NotesGhosts(WebSocketCodec):
    """Tells the server of a subscriber that went without a Close."""

    def lost(self, *, by_peer: bool) -> None:
        server = self.connection.server
        if isinstance(server, Haunted) and not self.received_close and self.connection.listenings:
            server.ghosts += 1
        super().lost(by_peer=by_peer)


class Haunted(ScriptedServer):
    """Stumbles, with the next event, over a subscriber that went without a word."""

    ghosts = 0

    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        if self.ghosts:
            self.ghosts -= 1
        else:
            super().happened(thing, name, data)


@SHELF("all-is-nothing", "takes subscribeAllEvents for nothing", "events.all")
class AllIsNothing(ScriptedConnection):
    def do_subscribeAllEvents(self, request: Request) -> None:
        self.acknowledge(request)


@SHELF("ends-all-alone", "ends by unsubscribeAllEvents what was taken at once", "events.unsubscribe-all")
class EndsAllAlone(ScriptedConnection):
    def is_of_events(self, request: Request, key: tuple[str, str, str]) -> bool:
        return super().is_of_events(request, key) and key[1] == "all"


@SHELF("ends-each-alone", "ends by unsubscribeAllEvents what was taken one by one", "events.unsubscribe-all")
class EndsEachAlone(ScriptedConnection):
    def is_of_events(self, request: Request, key: tuple[str, str, str]) -> bool:
        return super().is_of_events(request, key) and key[1] == "event"


BROKEN = (
    *SHELF.all(),
    Broken(
        id="stumbles-over-ghosts",
        what="tells nobody of an event when a subscriber has gone without a Close",
        caught_by="events.gone-subscriber",
        parts={"server": Haunted, "wire": NotesGhosts},
    ),
)


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
