"""Runs of the scripted server: invoking, asking how they stand, cancelling, items under credit, repeats."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from ._connection import (
    MessageEndpoint,
    Request,
    ServerContext,
    is_object,
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
    cancelled,
    failed,
    invalid,
    not_found,
    too_late,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._thing import ScriptedThing

REMEMBERED: Final = 256
REMEMBERED_SECONDS: Final = 60.0
PROGRESS_SECONDS: Final = 0.5
_ENDED: Final = 64
_LONGEST: Final = 1e9  # seconds
_OPEN: Final = 256
_LONG: Final = 65536  # characters of a request that is not remembered
_OWED_MESSAGES: Final = 2
_OWED_BYTES: Final = 2048
"""How much credit of one-way messages is owed at most, a thing's first window, and for how many seconds."""
_OWED_SECONDS: Final = 0.5
_WITH_EFFECT: Final = ("writeProperty", "writeMultipleProperties", "writeAllProperties", "invokeAction")

Final_: TypeAlias = Problem | tuple[str, Json]
"""How a request was answered for good: an error, or a type of message and its own members."""


@attrs.define(eq=False)
class Timer:
    """Something that happens at a time, unless it is cancelled."""

    at: float
    act: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@attrs.define(eq=False)
class KnownRequest:
    """A request that was answered, or is being carried out, in case it comes again."""

    content: str
    final: Final_ | None = None
    run: Run | None = None
    until: float = 0.0


@attrs.define(eq=False)
class Run:
    """An action that was invoked: who is to hear of it, by which correlation, and how it stands."""

    request: Request
    received_by: dict[RunsEndpoint, str | None]
    status: str = "in progress"
    final: Final_ | None = None
    credit: list[int] | None = None
    next: int = 0
    to: int = 0
    gathered: list[int] | None = None
    timers: list[Timer] = attrs.field(factory=list[Timer])


class RequestHistory:
    """The recent requests of one peer and their answers."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, KnownRequest] = OrderedDict()

    def find(self, request: Request, now: float) -> KnownRequest | None:
        """Return what is known of a request of this id and content."""
        known = self._known.get(request.id)
        if known is None or known.content != content_of(request) or (known.final and known.until < now):
            return None
        return known

    def begin(self, request: Request, run: Run | None) -> KnownRequest:
        """Note that a request is carried out."""
        self._known.pop(request.id, None)
        known = self._known[request.id] = KnownRequest(content_of(request), run=run)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return known

    def settle(self, request: Request, final: Final_, now: float) -> None:
        """Note how a request was answered; one that had not begun is forgotten."""
        known = self._known.get(request.id)
        if known is None or known.content != content_of(request):
            return
        if isinstance(final, Problem) and final.more.get("started") is False:
            del self._known[request.id]
        else:
            known.final, known.run, known.until = final, None, now + REMEMBERED_SECONDS

    def forget(self, request: Request) -> None:
        """Forget a request."""
        self._known.pop(request.id, None)


def content_of(request: Request) -> str:
    """Return what makes two requests the same."""
    payload = None if request.payload is ABSENT else [request.payload]
    content = json.dumps([request.kind, request.thing.id, request.name, payload], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


class RunsServerContext(ServerContext, Protocol):
    """What runs need of the server."""

    def now(self) -> float: ...
    def after(self, seconds: float, act: Callable[[], object]) -> Timer: ...
    def history(self, peer: str) -> RequestHistory: ...


class RunsEndpoint(MessageEndpoint):
    """A connection that takes what is about actions. Abstract: `take` calls the `do_` methods."""

    context: RunsServerContext

    def __init__(
        self, context: RunsServerContext, *, offered: bool, at: ScriptedThing, fixed: bool, peer: str = ""
    ) -> None:
        super().__init__(context, offered=offered, at=at, fixed=fixed)
        self.known = context.history(peer) if peer else RequestHistory()
        self.peer = peer
        self.live: list[Run] = []
        self.ended: deque[tuple[Run, str | None]] = deque(maxlen=_ENDED)
        self.last_tell = 0
        self.owed: list[Request] = []

    # ---- repeats

    def repeated(self, request: Request) -> bool:
        """Answer a request that came before, or tie it to the run that goes on."""
        known = self.known.find(request, self.context.now()) if request.kind in _WITH_EFFECT else None
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
        """Note how a request that has an effect was answered."""
        if request.kind in _WITH_EFFECT and request.kind != "invokeAction" and request.size <= _LONG:
            self.known.begin(request, None)
            self.known.settle(request, final, self.context.now())

    # ---- invoking

    def do_invokeAction(self, request: Request) -> None:
        """Carry an action out."""
        thing, name = request.thing, request.name
        if "tell" in request.message and not self.kotlin:
            self.do_tell(request, request.message["tell"])
            return
        thing.check_input(name, request.payload)
        run = self.run_of(request)
        if len(self.live) >= _OPEN:
            raise too_many("runs")
        self.live.append(run)
        if run.credit is None:
            self.known.begin(request, run)
        if not thing.action(name).get("synchronous", True):
            run.status = "pending"
            self.send_pending(run)
        if run.final is None:
            self.on_outcome(run, thing.act(name, request.payload))

    def do_tell(self, request: Request, number: Any) -> None:
        """Carry an action out that nobody waits for: it begins at once, whatever it takes."""
        self.check_tell(number)
        thing, name = request.thing, request.name
        thing.check_input(name, request.payload)
        thing.act(name, request.payload)
        self.owe_credit(request)

    def check_tell(self, number: Any) -> None:
        """Raise Problem unless the number of a one-way message is higher than all before."""
        if not isinstance(number, int) or isinstance(number, bool) or number <= self.last_tell:
            raise invalid(f"a number above {self.last_tell} is needed", "$.tell")
        self.last_tell = number

    def owe_credit(self, request: Request) -> None:
        """Give credit back for a one-way message, soon or with that of others."""
        self.owed.append(request)
        size = sum(each.size for each in self.owed)
        if len(self.owed) >= _OWED_MESSAGES or size >= _OWED_BYTES:
            self.give_credit()
        elif len(self.owed) == 1:
            self.context.after(_OWED_SECONDS, self.give_credit)

    def give_credit(self) -> None:
        """Send which one-way messages have begun."""
        owed, self.owed = self.owed, []
        if owed:
            numbers = [each.message["tell"] for each in owed]
            self.send(
                "tellCredit", owed[-1].thing.id, None, {"begun": [[number, number] for number in numbers]}
            )

    def run_of(self, request: Request) -> Run:
        """Make a run of a request. Raises Problem."""
        run = Run(request, {self: self.correlation(request)})
        message = request.message
        if message.get("streams"):
            raise invalid("this action takes no streams", "$.streams")
        run.credit = _credit(message.get("credit"))
        remaining = message.get("remaining")
        if isinstance(remaining, int | float) and not isinstance(remaining, bool):
            if remaining <= 0:
                raise too_late(started=False)
            seconds = min(remaining, _LONGEST)
            run.timers.append(self.context.after(seconds, lambda: self.end(run, too_late(started=True))))
        return run

    def send_pending(self, run: Run) -> None:
        """Send that a run is pending."""
        if not self.kotlin:
            self.send_status(run, {"status": "pending"})

    def send_status(self, run: Run, members: Json) -> str:
        """Return how a run stands, here; return the text."""
        request = run.request
        data = {"action": request.name, **members}
        return self.send("actionStatus", request.thing.id, run.received_by.get(self), data)

    def on_outcome(self, run: Run, outcome: Outcome) -> None:
        """Go on with what an action has come to."""
        if isinstance(outcome, Done):
            self.end(run, completed(outcome.output))
        elif isinstance(outcome, Failed):
            self.end(run, ("actionStatus", {"status": "failed", "output": outcome.output}))
        elif isinstance(outcome, Items):
            run.to, run.gathered = outcome.to, []
            self.send_items(run)
        else:
            self.wait(run, outcome)

    def wait(self, run: Run, outcome: Later) -> None:
        """Complete a run later."""
        timer = self.context.after(outcome.seconds, lambda: self.end(run, completed(outcome.output)))
        run.timers.append(timer)
        if outcome.seconds > 2 * PROGRESS_SECONDS:
            share = PROGRESS_SECONDS / outcome.seconds
            run.timers.append(self.context.after(PROGRESS_SECONDS, lambda: self.go_on(run, share)))

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
        """Send the items for which there is credit, and the end."""
        while run.final is None and run.next < run.to and (run.credit is None or min(run.credit) > 0):
            item, run.next = run.next, run.next + 1
            for voice in tuple(run.received_by):
                if not voice.kotlin:
                    size = len(voice.send_item(run, item).encode())
                    if run.credit is not None:
                        run.credit[:] = [run.credit[0] - 1, run.credit[1] - size]
            if run.gathered is not None:
                run.gathered.append(item)
        if run.final is None and run.next == run.to:
            self.end(run, completed(ABSENT))

    def send_item(self, run: Run, item: int) -> str:
        """Send an item of an answer and return the text."""
        return self.send_status(run, {"status": "in progress", "output": item})

    # ---- the end

    def end(self, run: Run, final: Final_, *, reply: tuple[RunsEndpoint, str] | None = None) -> None:
        """Answer a run for good, to all who are to hear of it. `reply`: whose message has cancelled it."""
        if run.final is not None:
            return
        run.final = final
        for timer in run.timers:
            timer.cancel()
        if run.next or run.request.size > _LONG:
            self.known.forget(run.request)  # items are not said again, and what is long is not kept
        else:
            self.known.settle(run.request, final, self.context.now())
        for voice, correlation in run.received_by.items():
            voice.live.remove(run)
            if run.request.size <= _LONG:
                voice.ended.append((run, correlation))
            more = {"inReplyTo": reply[1]} if reply is not None and reply[0] is voice else {}
            gathered = run.gathered if voice.kotlin else None
            voice.send_final(run.request, correlation, _with(final, gathered), more)

    def send_final(
        self, request: Request, correlation: str | None, final: Final_, more: Json | None = None
    ) -> None:
        """Send a final answer in the peer's dialect: kotlin-wot takes any status for a success."""
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
        """Cancel a run: its final answer answers the cancel request too, as LMOS has no other reply to it."""
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
        """Return the run that is meant: by the correlation, else the newest that goes on, else the newest."""
        going = [(run, run.received_by.get(self)) for run in self.live]
        for run, correlation in (*reversed(going), *reversed(self.ended)):
            same = run.request.thing is request.thing and run.request.name == request.name
            if same and request.given in (None, run.request.id, correlation):
                return run, correlation
        raise not_found("run of action", request.name)

    # ---- streams

    def do_streamCredit(self, request: Request) -> None:
        """Add credit to a stream."""
        more = _credit({"items": request.message["items"], "bytes": request.message["bytes"]})
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

    def do_streamItem(self, request: Request) -> None:
        """End a run that a client believes to take streams; ignore late messages."""
        for run in tuple(self.live):
            if request.given in (run.request.id, run.received_by.get(self)):
                self.end(run, invalid("this run has no such stream", "$.streams"))

    do_streamEnd = do_streamItem

    # ---- the connection is gone

    def release_runs(self) -> None:
        """Cancel what runs for this connection alone, except what may be requested again."""
        for run in self.live:
            del run.received_by[self]
            if not run.received_by:
                may_return = self.peer and run.request.message.get("attempt") and run.credit is None
                wait = REMEMBERED_SECONDS if may_return else 0.0
                run.timers.append(self.context.after(wait, partial(self._give_up, run)))
        self.live.clear()

    def _give_up(self, run: Run) -> None:
        if not run.received_by and run.final is None:
            for timer in run.timers:
                timer.cancel()
            self.known.forget(run.request)


def completed(output: Any) -> Final_:
    """Make the final answer of a run that has succeeded."""
    return "actionStatus", {"status": "completed", **({} if output is ABSENT else {"output": output})}


def _with(final: Final_, items: list[int] | None) -> Final_:
    """Put the items into a final answer, for who takes no others."""
    if items is None or isinstance(final, Problem) or final[1]["status"] != "completed":
        return final
    return final[0], {**final[1], "output": items}


def _credit(value: Any) -> list[int] | None:
    """Read credit. Raises Problem."""
    if value is None:
        return None
    if is_object(value):
        items, size = value.get("items"), value.get("bytes")
        if type(items) is int and type(size) is int and items >= 0 and size >= 0:
            return [items, size]
    raise invalid("credit has items and bytes, whole numbers that are not negative", "$.credit")
