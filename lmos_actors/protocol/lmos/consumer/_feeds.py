"""Observations and subscriptions: how they are confirmed, which of them gets a value, how they end.

A value goes to the feed whose correlation it carries. For other values this table applies:

    a reading without correlation             to the observation of that property; by kotlin-wot's habits only
                                              after the observation's first, correlated reading
    an event without, or with an unknown one  to the subscription to that event, else to the subscription to
                                              all events
    with the correlation of a former feed     to no feed: the value was already on its way
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lmos_actors._core import Bounded
from lmos_actors.errors import LocalProtocolError, NotAllowed

from .._messages import (
    ObserveProperty,
    SubscribeAllEvents,
    SubscribeEvent,
    UnobserveProperty,
    UnsubscribeAllEvents,
    UnsubscribeEvent,
)
from .._pending import Feed
from .._problems import error_of
from ._outcomes import EventOccurred, FeedEnded, FeedEstablished, PropertyRead, ValuesMissed

if TYPE_CHECKING:
    from lmos_actors.errors import LmosActorsError

    from .._messages import Acknowledgement, Base, Error, Event, Gap, PropertyReading
    from .._pending import Key, TraceMembers
    from ._connection import ConsumerConnection
    from ._outcomes import Outcomes


class Feeds:
    """The feeds of one connection: live feeds by key and by correlation, and feeds that are being stopped."""

    __slots__ = ("_by_id", "_by_key", "_connection", "_former", "_stopping")

    def __init__(self, connection: ConsumerConnection) -> None:
        self._connection = connection
        self._by_key: dict[Key, Feed] = {}
        self._by_id: dict[str, Feed] = {}
        self._stopping: dict[str, Feed] = {}
        self._former: Bounded[str, Feed] = Bounded(256)  # by the ids of ended feeds and of their stops

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def remembered(self) -> int:
        """The number of feeds that were stopped or have ended, and are still remembered."""
        return len(self._stopping) + len(self._former)

    # -- asking

    def observe(self, thing: str, name: str, trace: TraceMembers) -> Feed:
        """Request the present value of a property and every later one; return the feed."""
        new_id, gaps = self._connection.new_id(), self._gaps
        request = ObserveProperty(
            thing_id=thing, message_id=new_id, correlation_id=new_id, name=name, gaps=gaps, **trace
        )
        return self._start(Feed("property", name, request))

    def subscribe(self, thing: str, event: str, trace: TraceMembers) -> Feed:
        """Request every later event with one name; return the feed."""
        new_id, gaps, ack = self._connection.new_id(), self._gaps, self._acks
        request = SubscribeEvent(
            thing_id=thing, message_id=new_id, correlation_id=new_id, event=event, gaps=gaps, ack=ack, **trace
        )
        return self._start(Feed("event", event, request))

    def subscribe_all(self, thing: str, trace: TraceMembers) -> Feed:
        """Subscribe to all events of a thing; return the feed.

        Raise NotAllowed for a peer with kotlin-wot's habits, which would close the connection.
        """
        if self._connection.kotlin:
            raise NotAllowed("this peer does not support a subscription to all events")
        new_id, gaps, ack = self._connection.new_id(), self._gaps, self._acks
        request = SubscribeAllEvents(
            thing_id=thing, message_id=new_id, correlation_id=new_id, gaps=gaps, ack=ack, **trace
        )
        return self._start(Feed("events", "", request))

    @property
    def _gaps(self) -> bool:
        return "gaps" in self._connection.known

    @property
    def _acks(self) -> bool:
        return "acks" in self._connection.known

    def _start(self, feed: Feed) -> Feed:
        held = len(self) + len(self._stopping)  # so that neither table grows beyond the limit
        self._connection.admit(feed.thing_id, held, self._connection.options.max_listening)
        if feed.key in self._by_key:
            raise LocalProtocolError(f"{feed.kind} {feed.name!r} of {feed.thing_id!r} is listened to already")
        self._connection.outbox.put(feed.request, feed)
        self._by_key[feed.key] = self._by_id[feed.message_id] = feed
        # without acknowledgements no answer is a yes; an observation is confirmed by its first reading
        feed.established = feed.kind != "property" and not self._confirms
        return feed

    @property
    def _confirms(self) -> bool:
        return self._connection.kotlin or self._acks

    def stop(self, feed: Feed) -> None:
        """Stop a feed. Do nothing if it has already ended or is being stopped."""
        self._connection.check_open()
        if self._by_key.get(feed.key) is not feed:
            return
        request = self._opposite(feed)
        self._take_out(feed)
        if self._connection.outbox.drop(feed) and not feed.sent:  # what was sent may have been renewed since
            feed.ended = True
            return
        self._connection.outbox.put(request)
        if self._confirms:
            self._stopping[request.message_id] = feed
        else:
            feed.ended = True
            self._remember(request.message_id, feed)
        if feed.kind == "events":
            self._renew(feed.thing_id)

    def _opposite(self, feed: Feed) -> UnobserveProperty | UnsubscribeEvent | UnsubscribeAllEvents:
        new_id, thing, ack = self._connection.new_id(), feed.thing_id, self._acks
        if feed.kind == "property":
            return UnobserveProperty(
                thing_id=thing, message_id=new_id, correlation_id=new_id, name=feed.name, ack=ack
            )
        if feed.kind == "event":
            return UnsubscribeEvent(
                thing_id=thing, message_id=new_id, correlation_id=new_id, event=feed.name, ack=ack
            )
        return UnsubscribeAllEvents(thing_id=thing, message_id=new_id, correlation_id=new_id, ack=ack)

    def _renew(self, thing: str) -> None:
        """Subscribe again to single events: a peer may have ended them along with the subscription to all."""
        for feed in self._by_key.values():
            if feed.kind != "event" or feed.thing_id != thing:
                continue
            self._connection.outbox.drop(feed)
            del self._by_id[feed.message_id]
            self._remember(feed.message_id, feed)  # values on their way under the old id are still for it
            new_id = self._connection.new_id()
            feed.request = msgspec.structs.replace(feed.request, message_id=new_id, correlation_id=new_id)
            self._by_id[new_id] = feed
            self._connection.outbox.put(feed.request, feed)

    # -- ending

    def _take_out(self, feed: Feed) -> None:
        del self._by_key[feed.key]
        del self._by_id[feed.message_id]
        self._remember(feed.message_id, feed)

    def _remember(self, message_id: str, feed: Feed) -> None:
        self._former[message_id] = feed

    def _end(self, feed: Feed, error: LmosActorsError | None) -> Outcomes:
        feed.ended, feed.error = True, error
        return (FeedEnded(feed, error),)

    def close(self) -> list[Feed]:
        """End all feeds because the connection has ended; return the live ones, oldest first."""
        found = list(self._by_key.values())
        for feed in (*found, *self._stopping.values()):
            feed.ended = True
        for table in (self._by_key, self._by_id, self._stopping, self._former):
            table.clear()
        return found

    # -- what comes in

    def find(self, correlation: str | None) -> Feed | None:
        """Return the live feed that has this correlation, or had it before it was renewed."""
        if correlation is None:
            return None
        feed = self._by_id.get(correlation) or self._former.get(correlation)
        return feed if feed is not None and self._by_key.get(feed.key) is feed else None

    def is_former(self, correlation: str | None) -> bool:
        """Return whether this correlation belongs to an ended feed, or to a request that ended a feed."""
        return correlation is not None and correlation in self._former

    def take_reading(self, message: PropertyReading) -> Outcomes | None:
        """Return the outcomes of a reading for its feed, or None if it belongs to no feed."""
        feed = self.find(message.correlation_id)
        if feed is None:
            if message.correlation_id is not None:
                return self._connection.come_late() if self.is_former(message.correlation_id) else None
            feed = self._by_key.get(("property", message.thing_id, message.name))
            if feed is None or (self._connection.kotlin and not feed.established):
                return None
        elif feed.kind != "property" or feed.name != message.name:
            return self._connection.stray(message, f"not what the {feed.kind} feed listens to")
        return self._confirmed(feed, PropertyRead(feed, message.value, message.timestamp))

    def take_event(self, message: Event) -> Outcomes:
        """Return the outcomes of an event for its feed; an event without a feed is late or a stray."""
        feed = self.find(message.correlation_id)
        if feed is None:
            if self.is_former(message.correlation_id):
                return self._connection.come_late()
            thing = message.thing_id
            one = self._by_key.get(("event", thing, message.event))
            feed = one or self._by_key.get(("events", thing, ""))
        if feed is None or feed.kind == "property" or feed.name not in ("", message.event):
            return self._connection.stray(message, "no feed takes it")
        trace = message.traceparent, message.tracestate
        return self._confirmed(
            feed, EventOccurred(feed, message.event, message.data, message.timestamp, *trace)
        )

    def _confirmed(self, feed: Feed, value: PropertyRead | EventOccurred) -> Outcomes:
        if feed.established:
            return (value,)
        feed.established = True
        return (FeedEstablished(feed), value)

    def take_gap(self, message: Gap) -> Outcomes:
        """Return the outcome of a report that values are missing."""
        feed = self.find(message.correlation_id)
        if feed is None:
            return self._unclaimed(message)
        return (ValuesMissed(feed, message.reason, message.missed),)

    def take_acknowledgement(self, message: Acknowledgement) -> Outcomes:
        """Process the confirmation that a subscription has begun or ended. A repeated one is ignored."""
        stopped = self._stopping.pop(message.correlation_id or "", None)
        if stopped is not None:
            return self._end(stopped, None)
        feed = self.find(message.correlation_id)
        if feed is None:
            return self._unclaimed(message)
        if feed.established:
            return ()
        feed.established = True
        return (FeedEstablished(feed),)

    def awaits(self, thing: str) -> bool:
        """Return whether a feed of this thing is still unconfirmed."""
        return any(feed.thing_id == thing and not feed.established for feed in self._by_id.values())

    def take_error(self, message: Error) -> Outcomes:
        """Process an error that answers no request: it ends a feed, or confirms that a feed was stopped."""
        feed = self.find(message.correlation_id)
        error = error_of(message, None if feed is None else feed.request)
        found = self.refuse(message.correlation_id, error)
        return self._unclaimed(message) if found is None else found

    def refuse(self, correlation: str | None, error: LmosActorsError) -> Outcomes | None:
        """End the feed with this correlation, or finish its stop; return None if there is no such feed.

        A live feed ends with the error, a feed that was being stopped ends without it.
        """
        stopped = self._stopping.pop(correlation or "", None)
        if stopped is not None:
            return self._end(stopped, None)
        feed = self.find(correlation)
        if feed is None:
            return None
        self._take_out(feed)
        return self._end(feed, error)

    def _unclaimed(self, message: Base) -> Outcomes:
        if self.is_former(message.correlation_id):
            return self._connection.come_late()
        return self._connection.stray(message, "nothing of this correlation is open")
