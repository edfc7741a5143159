"""One connection of the scripted server: messages in and out, runs, observations and subscriptions.

The connection is one class, in a file longer than others. A server with one fault is a subclass that
overrides one small method, whatever its subject, and the tests of the kit have a hundred and fifty such
subclasses. With separate objects for messages, runs and subscriptions, each subclass would also have to
choose which one to replace, and where.

Three rules always hold. Nothing here does I/O: `text`, `binary` and `lost` handle input, `out` has the
output, and the server has the clock. Every message is written by `send`, in the spelling of the peer, which
is detected in its first request (`adapt_to_peer`). A run belongs to no connection: it reports on each
connection in `received_by`, so that a repeated request can join it, and it ends with the last of them.

`_messages` has the structure of messages, `_runs` the records of runs and of requests that may be repeated,
`_input_streams` the credit and the numbers of input streams.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import attrs

from lmos_actors.conformance.wire import BINARY, LAST, ItemFrame, read_item

from ._input_streams import HELD_BACK, Input, highest_in, inputs_of
from ._messages import (
    ABOUT_PROPERTY,
    IDS,
    LMOS_ERRORS,
    MAX_BYTES,
    NEVER_ANSWERED,
    REQUESTS,
    Disconnect,
    Out,
    Request,
    SendClose,
    SendFrame,
    SendText,
    check_members,
    dumped,
    parsed,
    text_of,
    unified,
)
from ._runs import (
    REMEMBERED_SECONDS,
    Final_,
    KeptAnswers,
    KeyedRequest,
    RequestHistory,
    Run,
    completed,
    content_of,
    credit_of,
    with_items,
)
from ._thing import (
    ABSENT,
    Done,
    Failed,
    Items,
    Json,
    Later,
    Outcome,
    Problem,
    ScriptedThing,
    Taking,
    cancelled,
    failed,
    invalid,
    not_allowed,
    not_found,
    reused,
    too_late,
    too_many,
    unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._scheduler import Timer

MOST_WAITING: Final = 20_000
PROGRESS_SECONDS: Final = 0.5
_ENDED: Final = 64
_OPEN: Final = 256
_LONG: Final = 65536  # bytes of a request; longer ones are not remembered
_OWED_MESSAGES: Final = 2
_OWED_BYTES: Final = 2048
"""The most credit that is owed for one-way messages: a thing's first window; and for how many seconds."""
_OWED_SECONDS: Final = 0.5
_WITH_EFFECT: Final = ("writeProperty", "writeMultipleProperties", "writeAllProperties", "invokeAction")
_LISTENINGS: Final = 256
_KEY: Final = re.compile(r"[!-~]{1,256}")


@attrs.define(eq=False)
class Listening:
    """An observation or a subscription. `name`: the property or event, or "" for all events."""

    kind: Literal["property", "event", "all"]
    thing: ScriptedThing
    name: str
    correlation: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """The key under which a repeated request replaces the earlier one."""
        return self.thing.id, self.kind, self.name


class ServerContext(Protocol):
    """The part of the server that its connections use."""

    @property
    def kept_answers(self) -> KeptAnswers: ...
    def new_id(self) -> str: ...
    def timestamp(self) -> str: ...
    def thing(self, thing_id: str) -> ScriptedThing | None: ...
    def now(self) -> float: ...
    def after(self, seconds: float, act: Callable[[], object]) -> Timer: ...
    def history(self, peer: str) -> RequestHistory: ...
    def tick_uptime(self) -> None: ...
    def disconnected(self, connection: ScriptedConnection) -> None: ...


class ScriptedConnection:
    """One connection. Output is queued in `out`, and `wake` is called after each addition."""

    def __init__(
        self, server: ServerContext, *, offered: bool, at: ScriptedThing, fixed: bool, peer: str = ""
    ) -> None:
        self.server = server
        self.at = at
        self.fixed = fixed
        self.offered = offered
        self.peer = peer
        self.out: deque[Out] = deque()
        self.wake: Callable[[], object] = lambda: None
        self.over = False
        # the spelling and the habits of the peer, as far as they are known
        self.ids = ""
        self.names = ""
        self.habits = "spec"
        # runs, requests that may be repeated, one-way messages
        self.known = server.history(peer) if peer else RequestHistory()
        self.live: list[Run] = []
        self.ended: deque[tuple[Run, str | None]] = deque(maxlen=_ENDED)
        self.highest_stream = 0  # the highest number that its consumer has used
        self.next_stream = 2  # the next number of a stream from here
        self.last_tell = 0
        self.owed: list[Request] = []
        self.listenings: dict[tuple[str, str, str], Listening] = {}

    # ---- the end

    def hang_up(self, code: int | None = 1000, reason: str = "") -> None:
        """Close the connection."""
        self.put(SendClose(code, reason))

    def cut(self) -> None:
        """End the stream without a Close."""
        self.put(Disconnect())

    def lost(self) -> None:
        """Note that the connection is over."""
        if not self.over:
            self.over = True
            self.listenings.clear()
            self.release_runs()
            self.server.disconnected(self)

    # ---- outgoing messages

    @property
    def kotlin(self) -> bool:
        """Whether the peer has the habits of kotlin-wot."""
        return self.habits == "kotlin-wot"

    def put(self, out: Out) -> None:
        """Queue something to be sent."""
        if self.over:
            return
        if len(self.out) >= MOST_WAITING:  # the peer reads nothing
            self.out.clear()
            out = Disconnect()
        self.out.append(out)
        self.wake()

    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        """Send a message and return its text. Every message is sent here."""
        text = dumped(self.spelled(self.message(kind, thing_id, correlation, members)))
        self.put(SendText(text))
        return text

    def message(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> Json:
        """Return a whole message, in the spelling of the tables."""
        message: Json = {"messageType": kind, "thingID": thing_id, "messageID": self.new_id()}
        if correlation is not None or self.kotlin:
            message["correlationID"] = correlation
        return {**message, **members}

    def spelled(self, message: Json) -> Json:
        """Return a message in the peer's spelling."""
        changed: dict[str, str] = {}
        if (self.ids or ("Id" if self.kotlin else "ID")) == "Id":
            changed.update(IDS)
        if (self.names or ("property" if self.kotlin else "name")) == "property":
            changed.update({"name": "property", "value": "data"} if "name" in message else {})
        return {changed.get(member, member): value for member, value in message.items()}

    def new_id(self) -> str:
        """Return a new id for a message."""
        return self.server.new_id()

    def timestamp(self) -> Any:
        """Return the current time in the format of messages."""
        return self.server.timestamp()

    def correlation(self, request: Request) -> str | None:
        """Return the correlation of an answer to a request."""
        return request.id if request.given is None else request.given

    def answer(self, request: Request, kind: str, members: Json) -> None:
        """Answer a request."""
        self.send(kind, request.thing.id, self.correlation(request), members)

    def refuse(self, request: Request, problem: Problem) -> None:
        """Answer a request with an error."""
        about_run = request.kind in ("queryAction", "cancelAction")
        correlation = request.id if about_run and self.kotlin else self.correlation(request)
        more = {"inReplyTo": request.id} if about_run else {}
        self.send_error(request.thing.id, problem, correlation, more)

    def send_error(self, thing_id: str, problem: Problem, correlation: str | None, more: Json) -> None:
        """Send an error."""
        self.send("error", thing_id, correlation, {**self.error(problem), **more})

    def error(self, problem: Problem) -> Json:
        """Return the members of an error."""
        return {
            "type": problem.type,
            "title": problem.title,
            "status": str(problem.status),
            "detail": problem.detail,
            "instance": LMOS_ERRORS + self.new_id(),
            **problem.more,
        }

    # ---- what comes in

    def text(self, text: str) -> None:
        """Handle a text message."""
        if self.over:
            return
        if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
            self.put(SendClose(1009, f"a message has {MAX_BYTES} bytes at most"))
            return
        message: Json = {}
        try:
            message = parsed(text)
            self.adapt_to_peer(message)
            request = self.request(message)
            request.size = len(text.encode(errors="replace"))
        except Problem as problem:
            self.on_unreadable(message, problem)
            return
        self.take(request)

    def binary(self, data: bytes) -> None:
        """Handle a binary message, which must be an item of a stream; other data closes the connection.

        Late items are ignored.
        """
        if self.over:
            return
        frame = read_item(data)
        if frame is None:
            self.put(SendClose(1003, "text messages, and items of streams"))
            return
        for run in tuple(self.live):
            if frame.stream in run.inputs:
                self.take_frame(run, run.inputs[frame.stream], frame, len(data))
            elif frame.stream == run.stream:
                self.end(run, invalid("a frame of a stream that is sent from here"))

    def on_unreadable(self, message: Json, problem: Problem) -> None:
        """Answer an invalid message; `message` is empty if it is not even JSON."""
        if message.get("messageType") in NEVER_ANSWERED:
            return
        thing_id, own, given = (text_of(message, both) for both in IDS)
        about_run = message.get("messageType") in ("queryAction", "cancelAction")
        more = {"inReplyTo": own} if about_run and own else {}
        self.send_error(thing_id or self.at.id, problem, given or own, more)

    def adapt_to_peer(self, message: Json) -> None:
        """Adopt the peer's spelling and habits from one of its messages, so that it can read answers."""
        kind = message.get("messageType")
        if not self.ids and any(one in message or other in message for one, other in IDS):
            self.ids = "ID" if any(one in message for one, _ in IDS) else "Id"
            if not self.offered and self.ids == "Id":
                self.habits = "kotlin-wot"
        has_name = "name" in message or "property" in message
        if not self.names and kind in ABOUT_PROPERTY and has_name:
            self.names = "name" if "name" in message else "property"
        if kind == "subscribeevent" or (kind in ABOUT_PROPERTY and "property" in message):
            self.habits = "kotlin-wot"

    def request(self, message: Json) -> Request:
        """Return the request in a message. Raises Problem."""
        literal = message.get("messageType")
        if not isinstance(literal, str):
            raise invalid("messageType: a text is needed", "$.messageType")
        kind = "subscribeEvent" if literal == "subscribeevent" else literal
        unified_message = unified(message, kind)
        if not isinstance(unified_message.get("messageID"), str) or not unified_message["messageID"]:
            raise invalid("messageID: a text is needed", "$.messageID")
        given = unified_message.get("correlationID")
        if given is not None and not isinstance(given, str):
            raise invalid("correlationID: a text is needed", "$.correlationID")
        thing_id = unified_message.get("thingID") or (self.at.id if self.fixed else None)
        if not isinstance(thing_id, str):
            raise invalid("thingID: a text is needed", "$.thingID")
        if kind not in REQUESTS:
            raise unsupported(literal)
        self.check_members(kind, unified_message)
        thing = self.server.thing(thing_id)
        if thing is None:
            raise not_found("thing", thing_id)
        return Request(kind, literal, unified_message, thing, unified_message["messageID"], given or None)

    def check_members(self, kind: str, message: Json) -> None:
        """Raise Problem if a member of a request is missing or of a wrong type."""
        check_members(kind, message)

    def take(self, request: Request) -> None:
        """Carry a request out with the method that is named `do_` plus the request's type."""
        if self.repeated(request):
            return
        handler = cast("Callable[[Request], None]", getattr(self, f"do_{request.kind}"))
        try:
            handler(request)
        except Problem as problem:
            self.remember(request, problem)
            self.refuse(request, problem)

    # ---- properties

    def do_readProperty(self, request: Request) -> None:
        """Answer with the value of a property."""
        value = request.thing.read(request.name)
        self.answer(request, "propertyReading", self.reading(request.name, value))

    def do_readAllProperties(self, request: Request) -> None:
        """Answer with the values of all properties that can be read."""
        self.answer(request, "propertyReadings", self.readings(request.thing, request.thing.readable()))

    def do_readMultipleProperties(self, request: Request) -> None:
        """Answer with the values of some properties."""
        names: list[str] = request.message["properties"]
        self.answer(request, "propertyReadings", self.readings(request.thing, names))

    def readings(self, thing: ScriptedThing, names: list[str]) -> Json:
        """Return the members of a message with several values."""
        return {"data": {name: thing.read(name) for name in names}, "timestamp": self.timestamp()}

    def reading(self, name: str, value: Any) -> Json:
        """Return the members of a message with one value."""
        return {"name": name, "value": value, "timestamp": self.timestamp()}

    def do_writeProperty(self, request: Request) -> None:
        """Set a property, and answer with its new value."""
        data = request.message["data"]
        request.thing.check_write(request.name, data, "$.data")
        request.thing.write({request.name: data})
        value = request.thing.value(request.name)
        self.written(request, "propertyReading", self.reading(request.name, value))

    def do_writeMultipleProperties(self, request: Request) -> None:
        """Set several properties, all or none."""
        data: Json = request.message["data"]
        for name, value in data.items():
            request.thing.check_write(name, value, f"$.data.{name}")
        request.thing.write(data)
        self.written(request, "propertyReadings", {"data": data, "timestamp": self.timestamp()})

    do_writeAllProperties = do_writeMultipleProperties

    def written(self, request: Request, kind: str, members: Json) -> None:
        """Answer that something was written."""
        self.remember(request, (kind, members))
        self.answer(request, kind, members)

    # ---- listening

    def do_observeProperty(self, request: Request) -> None:
        """Send the value of a property, and each change of it."""
        request.thing.check_observable(request.name)
        self.listen(request, "property", request.name)
        value = request.thing.value(request.name)
        self.answer(request, "propertyReading", self.reading(request.name, value))
        self.server.tick_uptime()

    def do_unobserveProperty(self, request: Request) -> None:
        """Stop sending changes of a property. This succeeds even if none were sent.

        The request may be a repeated one.
        """
        request.thing.property(request.name)
        self.unlisten(request, [(request.thing.id, "property", request.name)])

    def do_subscribeEvent(self, request: Request) -> None:
        """Send each occurrence of an event."""
        request.thing.check_event(request.name)
        self.listen(request, "event", request.name)
        self.acknowledge(request)

    def do_subscribeAllEvents(self, request: Request) -> None:
        """Send each occurrence of any event."""
        self.listen(request, "all", "")
        self.acknowledge(request)

    def do_unsubscribeEvent(self, request: Request) -> None:
        """Stop sending an event."""
        request.thing.check_event(request.name)
        self.unlisten(request, [(request.thing.id, "event", request.name)])

    def do_unsubscribeAllEvents(self, request: Request) -> None:
        """Stop sending all events, including those subscribed to one by one."""
        self.unlisten(request, [key for key in self.listenings if self.is_of_events(request, key)])

    def is_of_events(self, request: Request, key: tuple[str, str, str]) -> bool:
        """Return whether a `Listening` with this key is about events of the request's thing."""
        return key[0] == request.thing.id and key[1] != "property"

    def listen(self, request: Request, kind: Literal["property", "event", "all"], name: str) -> None:
        """Store an observation or a subscription; it replaces an older one with the same key."""
        listening = Listening(kind, request.thing, name, self.correlation(request))
        if listening.key not in self.listenings and len(self.listenings) >= _LISTENINGS:
            raise too_many("observations and subscriptions")
        self.listenings[listening.key] = listening

    def unlisten(self, request: Request, keys: list[tuple[str, str, str]]) -> None:
        """End observations or subscriptions."""
        for key in keys:
            self.listenings.pop(key, None)
        self.acknowledge(request)

    def acknowledge(self, request: Request) -> None:
        """Acknowledge a request if the peer wants that. LMOS itself has no acknowledgements."""
        if self.kotlin or request.message.get("ack") is True:
            self.answer(request, "acknowledgement", {"message": request.literal})

    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        """Send the change of a property, if it is observed on this connection."""
        for listening in tuple(self.listenings.values()):
            if (listening.thing, listening.kind, listening.name) == (thing, "property", name):
                self.deliver_change(listening, value)

    def deliver_change(self, listening: Listening, value: Any) -> None:
        """Send the new value of a property."""
        correlation = None if self.kotlin else listening.correlation
        self.send("propertyReading", listening.thing.id, correlation, self.reading(listening.name, value))

    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        """Send an event to each matching subscription of this connection."""
        for listening in tuple(self.listenings.values()):
            wanted = listening.kind == "all" or (listening.kind, listening.name) == ("event", name)
            if listening.thing is thing and wanted:
                self.deliver_event(listening, name, data)

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        """Send an event."""
        members = {"event": name, "data": data, "timestamp": self.timestamp()}
        self.send("event", listening.thing.id, listening.correlation, members)

    # ---- repeats

    def repeated(self, request: Request) -> bool:
        """Answer a repeated request, or add its connection to the run; return False for a new request."""
        known = self.known.find(request, self.server.now()) if request.kind in _WITH_EFFECT else None
        if known is None:
            return False
        correlation = self.correlation(request)
        if known.final is not None:
            self.send_final(request, correlation, known.final)
        elif known.run is not None and self not in known.run.received_by:
            known.run.received_by[self] = correlation
            self.live.append(known.run)
        return True

    def remember(self, request: Request, final: Final_) -> None:
        """Store the answer to a request that has an effect, in case the request is repeated."""
        if request.kind in _WITH_EFFECT and request.kind != "invokeAction" and request.size <= _LONG:
            self.known.begin(request, None)
            self.known.settle(request, final, self.server.now())

    # ---- invoking

    def do_invokeAction(self, request: Request) -> None:
        """Carry out an action."""
        thing, name = request.thing, request.name
        if "tell" in request.message and not self.kotlin:
            self.do_tell(request, request.message["tell"])
            return
        thing.check_input(name, request.payload)
        if self.key_of(request) is not None and self.answered_by_key(request):
            return
        run = self.run_of(request)
        if len(self.live) >= _OPEN:
            raise too_many("runs")
        self.live.append(run)
        if self.key_of(request) is not None:
            self.server.kept_answers.begin(request)
        if run.credit is None and not run.inputs:
            self.known.begin(request, run)
        if not thing.action(name).get("synchronous", True):
            run.status = "pending"
            self.send_pending(run)
        if run.final is None:
            self.on_outcome(run, thing.act(name, request.payload))

    def key_of(self, request: Request) -> Any:
        """Return the key of a request, or None if it has none; requests of kotlin-wot have no keys."""
        return None if self.kotlin else request.message.get("key")

    def answered_by_key(self, request: Request) -> bool:
        """Answer a request whose key is known, or let it wait for the answer; return False for a new key.

        Raises Problem.
        """
        self.check_key(request)
        known = self.known_by_key(request)
        if known is None:
            return False
        if known.final is None:
            known.waiting.append((self, request))
        else:
            self.send_final(request, self.correlation(request), known.final)
        return True

    def check_key(self, request: Request) -> None:
        """Raise Problem for an invalid key, or if the answers of the action are not kept."""
        key = request.message["key"]
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise invalid("a key has 1 to 256 visible ASCII characters", "$.key")
        if not request.thing.keeps_answers or request.name in request.thing.streams:
            raise not_allowed(f"answers of {request.name!r} are not kept")

    def known_by_key(self, request: Request) -> KeyedRequest | None:
        """Return the known request with the same key. Raises Problem if its content is different."""
        known = self.server.kept_answers.find(request)
        if known is not None and known.content != content_of(request):
            raise reused()
        return known

    def settle_key(self, request: Request, final: Final_ | None) -> None:
        """Store the final answer for a key, and process the repeated requests that waited for it.

        If no answer is kept, the first of these requests is carried out.
        """
        known = None if self.key_of(request) is None else self.server.kept_answers.settle(request, final)
        for voice, waiting in () if known is None else known.waiting:
            voice.take(waiting)

    def do_tell(self, request: Request, number: Any) -> None:
        """Carry out a one-way message: the action begins at once, and there is no answer."""
        self.check_tell(number)
        thing, name = request.thing, request.name
        thing.check_input(name, request.payload)
        thing.act(name, request.payload)
        self.owe_credit(request)

    def check_tell(self, number: Any) -> None:
        """Raise Problem unless the number of a one-way message is higher than all earlier ones."""
        if not isinstance(number, int) or isinstance(number, bool) or number <= self.last_tell:
            raise invalid(f"a number above {self.last_tell} is needed", "$.tell")
        self.last_tell = number

    def owe_credit(self, request: Request) -> None:
        """Note that the credit of a one-way message must be returned: soon, or at once if there is much."""
        self.owed.append(request)
        size = sum(each.size for each in self.owed)
        if len(self.owed) >= _OWED_MESSAGES or size >= _OWED_BYTES:
            self.give_credit()
        elif len(self.owed) == 1:
            self.server.after(_OWED_SECONDS, self.give_credit)

    def give_credit(self) -> None:
        """Return credit: send the numbers of the one-way messages that have begun."""
        owed, self.owed = self.owed, []
        if owed:
            numbers = [each.message["tell"] for each in owed]
            self.send(
                "tellCredit", owed[-1].thing.id, None, {"begun": [[number, number] for number in numbers]}
            )

    def run_of(self, request: Request) -> Run:
        """Return a new run for a request. Raises Problem."""
        run = Run(request, {self: self.correlation(request)})
        message = request.message
        run.inputs = self.open_inputs(request, message.get("streams"))
        run.binary = message.get("binary") is True
        run.credit = credit_of(message.get("credit"))
        remaining = message.get("remaining")
        if isinstance(remaining, int | float) and not isinstance(remaining, bool):
            if remaining <= 0:
                raise too_late(started=False)
            seconds = min(remaining, 1e9)
            run.timers.append(self.server.after(seconds, lambda: self.end(run, too_late(started=True))))
        return run

    def open_inputs(self, request: Request, offers: Any) -> dict[int, Input]:
        """Open the input streams of a request. Raises Problem; the streams' numbers are used up even then."""
        used, self.highest_stream = self.highest_stream, max(self.highest_stream, highest_in(offers))
        described = request.thing.streams.get(request.name, {}).get("input", {})
        return inputs_of(offers, described, used)

    def send_pending(self, run: Run) -> None:
        """Report that a run is pending."""
        if not self.kotlin:
            self.send_status(run, {"status": "pending"})

    def send_status(self, run: Run, members: Json) -> str:
        """Send the status of a run over this connection; return the text of the message."""
        request = run.request
        data = {"action": request.name, **members}
        return self.send("actionStatus", request.thing.id, run.received_by.get(self), data)

    def on_outcome(self, run: Run, outcome: Outcome) -> None:
        """Process the outcome of an action: end the run, or continue it."""
        if isinstance(outcome, Done):
            self.end(run, completed(outcome.output))
        elif isinstance(outcome, Failed):
            self.end(run, ("actionStatus", {"status": "failed", "output": outcome.output}))
        elif isinstance(outcome, Items):
            run.items, run.to, run.gathered = list(range(outcome.to)), outcome.to, []
            self.send_items(run)
        elif isinstance(outcome, Taking):
            run.taking, run.is_open = outcome, True
            self.grant(run)
        else:
            self.wait(run, outcome)

    def wait(self, run: Run, outcome: Later) -> None:
        """Schedule the completion of a run, and a report of progress if the run takes long."""
        timer = self.server.after(outcome.seconds, lambda: self.end(run, completed(outcome.output)))
        run.timers.append(timer)
        if outcome.seconds > 2 * PROGRESS_SECONDS:
            share = PROGRESS_SECONDS / outcome.seconds
            run.timers.append(self.server.after(PROGRESS_SECONDS, lambda: self.go_on(run, share)))

    def go_on(self, run: Run, share: float) -> None:
        """Send the progress of a run to all connections that follow it."""
        run.status = "in progress"
        for voice in run.received_by:
            voice.send_progress(run, share)

    def send_progress(self, run: Run, share: float) -> None:
        """Send the progress of a run on this connection."""
        if not self.kotlin:
            self.send_status(run, {"status": "in progress", "progress": share})

    def send_items(self, run: Run) -> None:
        """Send the items for which there is credit; after the last one, end the run."""
        while run.final is None and run.next < run.to and (run.credit is None or min(run.credit) > 0):
            item, run.next = run.items[run.next], run.next + 1
            for voice in tuple(run.received_by):
                if not voice.kotlin and not run.is_stopped:
                    sent = voice.send_item(run, item)
                    if run.credit is not None:
                        size = len(sent if isinstance(sent, bytes) else sent.encode())
                        run.credit[:] = [run.credit[0] - 1, run.credit[1] - size]
            if run.gathered is not None:
                run.gathered.append(_plain(item))
        if run.final is None and run.next == run.to and not run.is_open:
            self.finish_stream(run)
            self.end(run, completed(ABSENT))

    def send_item(self, run: Run, item: Any) -> str | bytes:
        """Send an item of an answer and return what was sent."""
        if run.binary and isinstance(item, bytes):
            return self.send_frame(run, item)
        return self.send_status(run, {"status": "in progress", "output": _plain(item)})

    def send_frame(self, run: Run, item: bytes) -> bytes:
        """Send an item of an answer in a binary frame; before the first one, open the stream."""
        if not run.stream:
            run.stream, self.next_stream = self.next_stream, self.next_stream + 2
            opening = {"stream": run.stream, "contentType": "application/octet-stream"}
            self.send("streamOpen", run.request.thing.id, run.received_by.get(self), opening)
        frame = ItemFrame(run.stream, run.sequence, item).packed()
        run.sequence += 1
        self.put(SendFrame(BINARY, frame))
        return frame

    def finish_stream(self, run: Run) -> None:
        """Send the number of items sent in binary frames, if such a stream exists and was not stopped."""
        if run.stream and not run.is_stopped:
            members = {"stream": run.stream, "sequence": run.sequence}
            self.send("streamEnd", run.request.thing.id, run.received_by.get(self), members)

    # ---- the end

    def end(self, run: Run, final: Final_, *, reply: tuple[ScriptedConnection, str] | None = None) -> None:
        """End a run, and send its final answer to all its followers.

        `reply`: the connection and the id of the request that has cancelled the run.
        """
        if run.final is not None:
            return
        run.final = final
        for timer in run.timers:
            timer.cancel()
        if run.next or run.request.size > _LONG:
            self.known.forget(run.request)  # items are not sent again, and long answers are not kept
        else:
            self.known.settle(run.request, final, self.server.now())
        for voice, correlation in run.received_by.items():
            voice.live.remove(run)
            if run.request.size <= _LONG:
                voice.ended.append((run, correlation))
            more = {"inReplyTo": reply[1]} if reply is not None and reply[0] is voice else {}
            gathered = run.gathered if voice.kotlin else None
            voice.send_final(run.request, correlation, with_items(final, gathered), more)
        self.settle_key(run.request, final)

    def send_final(
        self, request: Request, correlation: str | None, final: Final_, more: Json | None = None
    ) -> None:
        """Send a final answer in the peer's dialect, since kotlin-wot takes any status for a success."""
        if isinstance(final, Problem):
            self.send_error(request.thing.id, final, correlation, more or {})
            return
        kind, members = final
        if self.kotlin and members.get("status") == "failed":
            problem = failed(members.get("output"))
            if members.get("cancelled"):
                problem = cancelled(members.get("reason"))
            self.send_error(request.thing.id, problem, correlation, more or {})
            return
        if kind == "actionStatus":
            members = {"action": request.name, **({"output": None} if self.kotlin else {}), **members}
        self.send(kind, request.thing.id, correlation, {**members, **(more or {})})

    # ---- asking and cancelling

    def do_queryAction(self, request: Request) -> None:
        """Send the status of a run."""
        request.thing.action(request.name)
        run, correlation = self.requested_run(request)
        final = ("actionStatus", {"status": run.status}) if run.final is None else run.final
        if self.kotlin:
            correlation = request.id  # any status that is correlated with the run would end it
        self.send_final(run.request, correlation, final, {"inReplyTo": request.id})

    def do_cancelAction(self, request: Request) -> None:
        """Cancel a run. Its final answer also answers this request, as LMOS has no other reply to it."""
        request.thing.action(request.name)
        run, correlation = self.requested_run(request)
        if run.final is not None:
            correlation = request.id if self.kotlin else correlation
            self.send_final(run.request, correlation, run.final, {"inReplyTo": request.id})
            return
        members: Json = {"status": "failed", "output": None, "cancelled": True}
        if isinstance(request.message.get("reason"), str):
            members["reason"] = request.message["reason"]
        self.end(run, ("actionStatus", members), reply=None if self.kotlin else (self, request.id))
        if self.kotlin:
            data = {"action": request.name, **members, "inReplyTo": request.id}
            self.send("actionStatus", request.thing.id, request.id, data)

    def requested_run(self, request: Request) -> tuple[Run, str | None]:
        """Return the requested run and its correlation. Raises Problem if there is no such run.

        The run is found by correlation. Without one, it is the newest running one, or else the newest.
        """
        going = [(run, run.received_by.get(self)) for run in self.live]
        for run, correlation in (*reversed(going), *reversed(self.ended)):
            same = run.request.thing is request.thing and run.request.name == request.name
            if same and request.given in (None, run.request.id, correlation):
                return run, correlation
        raise not_found("run of action", request.name)

    # ---- streams

    def do_streamCredit(self, request: Request) -> None:
        """Add credit to a stream."""
        more = credit_of({"items": request.message["items"], "bytes": request.message["bytes"]})
        for run in tuple(self.live):
            requested_run = request.given in (run.request.id, run.received_by.get(self))
            if (
                requested_run
                and run.credit is not None
                and more is not None
                and "stream" not in request.message
            ):
                run.credit[:] = [run.credit[0] + more[0], run.credit[1] + more[1]]
                self.send_items(run)
                self.grant(run)

    def do_streamItem(self, request: Request) -> None:
        """Process an item of an input stream; ignore late messages."""
        for run in self.runs_of(request):
            stream = run.inputs.get(request.message["stream"])
            if stream is None:
                self.end(run, invalid("this run has no such stream", "$.streams"))
            elif not stream.is_stopped:
                self.take_item(run, stream, request)

    def do_streamEnd(self, request: Request) -> None:
        """Note the end of an input stream, or stop an answer; ignore late messages."""
        for run in self.runs_of(request):
            number, reason = request.message["stream"], request.message.get("reason")
            stream = run.inputs.get(number)
            if stream is not None:
                self.take_end(run, stream, request.message.get("sequence"), reason)
            elif number == run.stream and run.stream and reason is not None:
                run.is_stopped = True
                run.credit = None
                self.send_items(run)
            else:
                self.end(run, invalid("this run has no such stream", "$.streams"))

    def runs_of(self, request: Request) -> list[Run]:
        """Return the run that a message of a stream belongs to, in a list, or an empty list."""
        return [run for run in self.live if request.given in (run.request.id, run.received_by.get(self))]

    def take_item(self, run: Run, stream: Input, request: Request) -> None:
        """Process an item in JSON; an item that does not belong to the stream ends the run."""
        try:
            if stream.is_binary:
                raise invalid("the items of this stream are frames", stream.path)
            stream.check(request.message.get("sequence"), request.size)
        except Problem as problem:
            self.end(run, problem)
            return
        self.use_item(run, stream, request.message.get("data"))

    def take_frame(self, run: Run, stream: Input, frame: ItemFrame, size: int) -> None:
        """Process an item in a binary frame; an item that does not belong to the stream ends the run."""
        if stream.is_stopped:
            return
        try:
            self.check_frame(stream, frame)
            stream.check(frame.sequence, size)
        except Problem as problem:
            self.end(run, problem)
            return
        self.use_item(run, stream, frame.item)
        if frame.flags == LAST:
            self.take_end(run, stream, stream.next, None)

    def check_frame(self, stream: Input, frame: ItemFrame) -> None:
        """Raise Problem if a frame does not fit its stream."""
        if not stream.is_binary:
            raise invalid("the items of this stream are no frames", stream.path)
        if frame.flags & ~LAST or frame.reserved:
            raise invalid("a flag is set that is not defined", stream.path)

    def use_item(self, run: Run, stream: Input, item: Any) -> None:
        """Pass an item to the action; one that does not fit the schema stops the stream and ends the run."""
        try:
            self.check_item(run, stream, item)
        except Problem as problem:
            stream.is_stopped = True
            members = {"stream": stream.number, "sequence": stream.next, "reason": problem.detail}
            self.send("streamEnd", run.request.thing.id, run.received_by.get(self), members)
            self.end(run, problem)
            return
        made = [] if run.taking is None else run.taking.take(item)
        if made:
            run.items += made
            run.to = len(run.items)
            run.gathered = run.gathered or []
        self.send_items(run)
        self.grant(run)

    def check_item(self, run: Run, stream: Input, item: Any) -> None:
        """Raise Problem if an item does not fit the schema of its stream."""
        if not stream.is_binary:
            number = (stream.next - 1) % 2**32
            run.request.thing.check(stream.schema, item, f"{stream.path}[{number}]")

    def take_end(self, run: Run, stream: Input, sequence: Any, reason: Any) -> None:
        """Note the end of an input stream. An end with a reason means failure, and ends the run."""
        if stream.is_stopped:
            return
        if reason is not None:
            self.end(run, invalid(f"the stream broke off: {reason}", stream.path))
            return
        try:
            stream.check_end(sequence)
        except Problem as problem:
            self.end(run, problem)
            return
        stream.is_over = True
        if run.taking is not None and all(each.is_over for each in run.inputs.values()):
            run.is_open = False
            output = run.taking.end().output
            if output is ABSENT:
                self.send_items(run)
            else:
                self.end(run, completed(output))

    def grant(self, run: Run) -> None:
        """Grant the input streams of a run more credit, unless its answer is itself waiting for credit."""
        if run.final is not None or run.to - run.next > HELD_BACK:
            return
        for stream in run.inputs.values():
            if not stream.is_over and not stream.is_stopped:
                self.grant_input(run, stream)

    def grant_input(self, run: Run, stream: Input) -> None:
        """Grant a stream credit for the items that were used, once there are enough of them."""
        more = stream.grant()
        if more is not None:
            members = {"stream": stream.number, "items": more[0], "bytes": more[1]}
            self.send("streamCredit", run.request.thing.id, run.received_by.get(self), members)

    # ---- the connection is gone

    def release_runs(self) -> None:
        """Abandon the runs that no other connection follows.

        This happens at once, or later if a retry of the request may join the run.
        """
        for run in self.live:
            del run.received_by[self]
            if not run.received_by:
                is_plain = run.credit is None and not run.inputs
                may_return = self.peer and run.request.message.get("attempt") and is_plain
                wait = REMEMBERED_SECONDS if may_return else 0.0
                run.timers.append(self.server.after(wait, partial(self._give_up, run)))
        self.live.clear()

    def _give_up(self, run: Run) -> None:
        if not run.received_by and run.final is None:
            for timer in run.timers:
                timer.cancel()
            self.known.forget(run.request)
            self.settle_key(run.request, None)


def _plain(item: Any) -> Any:
    """Return an item of an answer in JSON: bytes as base64 text."""
    return base64.b64encode(item).decode() if isinstance(item, bytes) else item
