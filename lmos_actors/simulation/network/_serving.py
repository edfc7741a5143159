"""The receiving end of a simulated connection: requests become envelopes, and answers go back over the line.

This does what an LMOS server does for one connection, without frames and sessions. It uses the same
envelopes, seats, lines of one-way messages, listeners and input streams, so an agent sees no difference from
a request that came over a socket. All code here runs in the callback of a timer or in an agent's turn;
nothing waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import UNSET

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.actors import Far, OneWay, PoolLink, Slot, far_key, incoming_mark, keyed_requests_of
from lmos_actors.bindings import (
    EXITED,
    IncomingTells,
    Listeners,
    exited,
    has_no_result,
    plain,
    plain_members,
    requested_operation,
)
from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentDied,
    AgentError,
    AgentUnavailable,
    DeadlineExceeded,
    MailboxFull,
    NotFound,
)
from lmos_actors.protocol.lmos import Credit, RunStatus, written

from ._requests import HEAD, Back, Heard, NodeLimits, Served, ServedTell, StreamIn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lmos_actors.actors import Down, Peer, TraceMembers
    from lmos_actors.bindings import Listener

CREDIT: Final = Credit(items=16, bytes=262_144)
"""The credit of an input stream: how far its source may be ahead of the handler."""

UNBEGUN: Final = (AgentUnavailable, MailboxFull)
"""The errors of requests that had not begun."""

GOES_ON: Final = 60.0
"""Seconds for which a repeatable request keeps running without its caller, and its answer is remembered."""

_LASTING: Final = frozenset({str, int, float, bool, type(None)})
"""The types of values that come out of JSON as they went in: an operation that took them takes them again."""

_UNTRACED: Final[Any] = NOT_NEEDED_YET
"""The trace of a message whose envelope has it already."""


class _Alone(OneWay):
    """A one-way message that is sent alone and does not wait for a seat; their number has no limit."""

    __slots__ = ()

    parks = False


class Serving:
    """The receiving end of one connection; see the module docstring. It is an `Asker` of the actors.

    `alone`: there is no connection; each message comes by itself, and may come twice.
    """

    waiting = waiting_bytes = 0  # as a session has them: the line has its own queue
    stands = False  # as the teller of what comes alone: its sender hears nothing of it
    principal: str | None = None

    __slots__ = (
        "_alone", "_begun", "_limits", "_listeners", "_no_room", "_open", "_over", "_rt", "_tells", "back",
        "peer",
    )  # fmt: skip

    def __init__(self, back: Back, limits: NodeLimits, *, alone: bool = False) -> None:
        self.back = back
        self.peer: Peer = (back.source, back.source)
        self._rt = back.rt
        self._limits = limits
        self._alone = alone
        self._open: dict[Served, None] = NOT_NEEDED_YET
        self._over = False
        self._begun: list[ServedTell] | None = None  # one-way messages whose credit has not gone back
        self._no_room: dict[Far, None] = NOT_NEEDED_YET
        self._tells: IncomingTells | None = None
        self._listeners: Listeners | None = None

    @property
    def label(self) -> str:
        """The name of the node that sends the requests."""
        return self.back.source

    # ---- requests

    def take(self, served: ServedTell) -> None:
        """Handle a request that has arrived."""
        if not served.open or served.has_come:
            return  # its caller has left meanwhile, or it has come before
        served.has_come = True
        try:
            if served.target.gone:
                raise NotFound("agent", served.target.path)
            if not (isinstance(served, Served) and served.is_attempt and self._is_known(served)):
                self._take(served, served.target)
        except AgentError as error:
            if isinstance(served, Served):
                self._forget(served)
            if not self._alone or served.told is None:
                self._refuse(served, error)
                return
            path = served.target.path
            self._rt.dead_letter(str(error), served.target, None, served.name, served.text or path)

    def _is_known(self, served: Served) -> bool:
        """Return whether a request repeats one that is running or was answered recently."""
        attempts, id = self._limits.attempts, served.message_id
        first = attempts.setdefault(id, served)
        if first is served:
            return False
        first.repeated_by = served
        if isinstance(first.outcome, bytes):
            self._answer(served, first.outcome)
        elif first.outcome is not None:
            self._refuse(served, first.outcome)
        return True

    def _keep(self, served: Served, outcome: bytes | Exception) -> Served:
        """Remember the answer of a repeatable request; return the attempt that receives it.

        A request that had not begun is not remembered: it is carried out if it is repeated.
        """
        if isinstance(outcome, UNBEGUN) or (isinstance(outcome, AgentDied) and not outcome.started):
            self._forget(served)
        elif served.is_attempt:
            served.outcome = outcome
            self._rt.timers.call_at(trio.current_time() + GOES_ON, partial(self._forget, served))
        return served.repeated_by or served

    def _forget(self, served: Served) -> None:
        if self._limits.attempts.get(served.message_id) is served:
            del self._limits.attempts[served.message_id]

    def _answer(self, served: Served, text: bytes) -> None:
        served.open = False
        self.back.go_back(HEAD + len(text), partial(self.back.answered, served, text), served)

    def _take(self, served: ServedTell, link: Slot | PoolLink) -> None:
        told = served.told
        if (
            told is not None
            and told.op.fill is None
            and isinstance(link, Slot)
            and link.table.get(served.name) is told.op
            and _LASTING.issuperset(map(type, told.args))
        ):
            self._post(served, link, told.op, told.args)
            return
        served.data = msgspec.json.decode(served.text) if served.text else UNSET
        if served.is_plain and served.verb.word == "invoke" and isinstance(link, Slot):
            op = link.table.get(served.name)
            if op is not None and op.name == served.name and not op.streams:
                args = op.taken(served.data)
                if args is not None:
                    self._post(served, link, op, args)
                    return
        if isinstance(served, Served):
            self._take_request(served, link)
        else:
            self._post_operation(served, link, *requested_operation(_any(served), link))

    def _take_request(self, served: Served, link: Slot | PoolLink) -> None:
        asked = _any(served)
        if served.name == EXITED:
            listener = self._listeners_of_all().make(asked, link, EXITED, self._exit_members)
            self._accept(served, listener, UNSET)
            return
        key, args, kwargs = requested_operation(asked, link)
        if served.verb.word in ("observe", "subscribe", "subscribe_all"):
            listener = self._listeners_of_all().make(asked, link, key, self._exit_members)
            served.listening = served
            if isinstance(link, Slot):
                self._post(served, link, link.operation(key), (listener,))
            else:
                self._accept(served, listener, UNSET)
            return
        if served.remaining is not None and not served.remaining > 0:
            raise DeadlineExceeded(link.path, 0.0)
        far = self._post_operation(served, link, key, args, kwargs)
        if served.remaining is not None and served.open:
            far.until = trio.current_time() + served.remaining
            self._rt.deadlines.add(far, served.remaining)

    def _post_operation(
        self, served: ServedTell, link: Slot | PoolLink, key: str, args: Any, kwargs: Mapping[str, Any]
    ) -> Far:
        slot = link if isinstance(link, Slot) else link.choose(key, args, kwargs)
        op = slot.operation(key)
        return self._post(served, slot, op, slot.bound(op, args, kwargs))

    def _post(self, served: ServedTell, slot: Slot, op: Any, args: tuple[Any, ...]) -> Far:
        if isinstance(served, Served):
            return self._post_request(served, slot, op, args)
        if self._alone:
            alone = _Alone(slot, op, args, self, served)
            incoming_mark(self._rt, alone, served.trace)
            slot.post(alone)
            return alone
        teller = self._teller()
        tell = OneWay(slot, op, args, teller, served)
        incoming_mark(self._rt, tell, served.trace)
        # needed no more, and the message is kept until its credit is back
        served.text, served.data, served.trace = b"", UNSET, _UNTRACED
        teller.post(tell)
        return tell

    def _post_request(self, served: Served, slot: Slot, op: Any, args: tuple[Any, ...]) -> Far:
        far = served.far = Far(slot, op, args, self, served)
        incoming_mark(self._rt, far, served.trace)
        if not self._open:
            self._open = {}
        self._open[served] = None
        try:
            if self._tells is not None:
                self._tells.check_order(slot)
            if served.key is None:
                far.post(self._limits.seats, self.peer)
            else:
                named = far_key(served.key, None, guarded=False)
                keyed_requests_of(slot).post_far(named, far, self._limits.seats, self.peer)
        except BaseException:
            self._open.pop(served, None)
            raise
        return far

    def _refuse(self, served: ServedTell, error: Exception) -> None:
        served.open = False
        self.back.go_back(HEAD, partial(self.back.refused, served, error), served)

    def withdraw(self, served: Served, *, is_cut_off: bool = False) -> None:
        """Remove a request from its agent's mailbox or cancel its run: the caller is gone or cut off."""
        if served.open and self._open.pop(served, self) is None:
            served.open, far, served.far = False, served.far, None
            far.is_cut_off = is_cut_off
            self._forget(served)
            far.slot.withdraw(far)
            far.leave()

    def cut_off(self, served: Served) -> None:
        """Handle the end of a caller that will ask again: requests that will be repeated go on."""
        if served.open and not self._goes_on(served):
            self.withdraw(served, is_cut_off=True)

    # ---- answers: see `Asker` of the actors

    def allows(self, agent: str, verb: str) -> bool:
        """Return False; see `Asker`. In a simulated network no node needs to be given rights."""
        return False

    def answered(self, far: Far, value: Any) -> None:
        """Send the value of the answer."""
        served: Served = far.asked
        self._open.pop(served, None)
        if not served.open or served.told is not None:
            return
        served.open, served.status, served.far = False, "completed", None
        if served.listening is not None:
            self._accept(served, far.args[0], value)
            return
        try:
            text = self._text_of(served, far, value)
        except (TypeError, ValueError, OverflowError, AgentError) as error:
            self._refuse(served, AgentUnavailable(far.slot.path, f"its answer cannot be sent: {error}"))
            return
        self._answer(self._keep(served, text), text)

    @staticmethod
    def _text_of(served: Served, far: Far, value: Any) -> bytes:
        word = served.verb.word
        if word == "read_all":
            return written(plain_members(value))
        if word in ("write", "write_many"):
            return b""
        if value is None and has_no_result(far):
            return b""
        return written(plain(value))

    def failed(self, far: Far, error: Exception) -> None:
        """Send the error; the error of a one-way message without a connection becomes a dead letter here."""
        served: Served = far.asked
        if isinstance(far, _Alone):
            if not isinstance(error, ActionFailed):
                self._rt.dead_letter(str(error), far.slot, None, far.op.name, far.args)
            return
        self._open.pop(served, None)
        if served.listening is not None:
            far.args[0].leave()
        if served.open:
            served.status, served.far = "failed", None
            self._refuse(self._keep(served, error), error)

    def waits(self, far: Far) -> None:
        """Report that the run is waiting."""
        self.back.report(far.asked, "pending", UNSET)

    def began(self, far: Far) -> None:
        """Report that the run begins."""
        served: ServedTell = far.asked
        if not isinstance(served, Served):
            return
        served.status = "in progress"
        self.back.report(served, "in progress", UNSET)
        for stream in (served.streams or {}).values():
            stream.host.begin(self, stream)

    def asks(self, far: Far, question: dict[str, Any] | None) -> None:
        """Send the question for a person on which the run waits; None means that the run no longer waits."""
        self.back.report(far.asked, "in progress", UNSET, question)

    def reported(self, far: Far, value: Any) -> None:
        """Send the progress that the run has reported."""
        self.back.report(far.asked, "in progress", plain(value))

    def has_room(self, far: Far) -> bool:
        """Return whether the consumer's credit allows another item now."""
        served: ServedTell = far.asked
        if not isinstance(served, Served) or self._over or not served.open:
            return True
        if served.items is None or served.items > 0:
            return True
        if not self._no_room:
            self._no_room = {}
        self._no_room[far] = None
        return False

    def send_item(self, far: Far, item: Any) -> bool:
        """Send an item of a stream; return whether it was wanted."""
        served: Served = far.asked
        if self._over or not served.open:
            return False
        if served.items is not None:
            served.items -= 1
        text = written(plain(item))
        self.back.go_back(HEAD + len(text), partial(self.back.item, served, text), served)
        return True

    def credited(self, served: Served) -> None:
        """Handle new credit: the consumer has taken an item."""
        if served.items is not None:
            served.items += 1
        far = served.far
        if far is not None and self._no_room.pop(far, self) is None:
            far.go_on()

    # ---- one-way messages

    def _teller(self) -> IncomingTells:
        if self._tells is None:
            here: Any = self
            who = self.label, None, self.peer
            self._tells = IncomingTells(self._rt, here, self._limits.waiting, who, here)
        return self._tells

    def fail(self, served: ServedTell, error: Exception) -> None:
        """Send the error of a one-way message that did not begin."""
        self._refuse(served, error)

    def tell_settled(self) -> None:
        """Do nothing: a simulated connection is not drained."""

    def check_end(self) -> None:
        """Do nothing: in a simulated network no connection is ended for its memory."""

    def tell_begun(self, served: ServedTell) -> None:
        """Record that a one-way message has begun, so that its credit can be returned."""
        served.open = False
        if self._begun is None:
            self._begun = []
        self._begun.append(served)
        if len(self._begun) >= 64:  # from so many on, their credit returns at once; else after a second
            self.give_credit()

    def admitted(self, tell: Any) -> None:
        """Do nothing: a message without a connection does not wait for a seat."""

    def give_credit(self) -> None:
        """Return the credit of all one-way messages that have begun."""
        if self._begun and not self._over:
            begun, self._begun = self._begun, None
            self.back.go_back(HEAD, partial(self.back.credited, begun))

    # ---- questions about runs

    def query(self, served: Served, question: Any) -> None:
        """Report the state of a run."""
        status = RunStatus(served.status, cancelled=served.is_cancelled, reason=served.reason)
        self.back.go_back(HEAD, partial(question.answer, status))

    def cancel(self, served: Served, question: Any, reason: str | None) -> None:
        """Cancel a run and report its state."""
        if served.open:
            self.withdraw(served)
            served.status, served.is_cancelled, served.reason = "failed", True, reason
            self._refuse(served, ActionCancelled(reason))
        self.query(served, question)

    # ---- listening

    def _listeners_of_all(self) -> Listeners:
        if self._listeners is None:
            session: Any = self
            self._listeners = Listeners(self._rt, session, _nothing, _raised, self._limits.sharing)
        return self._listeners

    def _exit_members(self, down: Down) -> dict[str, Any]:
        return exited(down, self._limits.generation)

    def _accept(self, served: Served, listener: Listener, value: Any) -> None:
        asked = _any(served)
        first = (plain(value),) if served.verb.word == "observe" else ()
        self._listeners_of_all().accept(asked, listener, *first)

    def accept(self, served: Served, *value: Any) -> Heard:
        """Accept a subscription; an observation is confirmed with its first value."""
        heard = served.listening = Heard(served, served.name, ended=self._over)
        text = written(value[0]) if value else None
        self.back.go_back(HEAD, partial(self.back.confirmed, served, text), served)
        return heard

    def reading(self, heard: Heard, value: Any, at: datetime) -> None:
        """Send a reading of a property."""
        self._send_value(heard.served, written(value), {})

    def withdraw_reading(self, heard: Heard) -> None:
        """Do nothing: a reading that has been sent cannot be withdrawn."""

    def event(self, heard: Heard, event: str, data: Any, at: datetime, **trace: Any) -> None:
        """Send an event; listeners to all events get its name too."""
        is_of_all = heard.served.verb.word == "subscribe_all"
        text = written([event, data]) if is_of_all else written(data)
        members: Any = trace
        self._send_value(heard.served, text, members)

    def _send_value(self, served: Served, text: bytes, trace: TraceMembers) -> None:
        self.back.go_back(HEAD + len(text), partial(self.back.value, served, text, trace), served)

    def gap(self, heard: Heard, reason: str, missed: int | None) -> None:
        """Report to the listener that values are missing."""
        self.back.go_back(HEAD, partial(self.back.gap, heard.served, reason, missed), heard.served)

    def end(self, heard: Heard, error: Exception) -> None:
        """End a subscription because its agent has been removed permanently."""
        heard.ended = True
        self.back.go_back(HEAD, partial(self.back.refused, heard.served, error), heard.served)

    def unlisten(self, served: Served) -> None:
        """End a subscription because its listener has left."""
        heard = served.listening
        if isinstance(heard, Heard) and self._listeners is not None:
            found: Any = heard
            self._listeners.leave(found)
        else:
            self.withdraw(served)

    # ---- input streams; see `ServerInput`

    def ready(self, stream: StreamIn) -> None:
        """Send the first credit, because the run has begun."""
        self.back.go_back(HEAD, partial(self.back.stream_credited, stream, CREDIT.items))

    def consumed(self, stream: StreamIn) -> None:
        """Return the credit of an item that the handler has taken."""
        self.back.go_back(HEAD, partial(self.back.stream_credited, stream, 1))

    def stop(self, stream: StreamIn, reason: str) -> None:
        """Report to the sender that no more items are wanted."""
        self.back.go_back(HEAD, partial(self.back.stopped, stream))

    def take_item(self, stream: StreamIn, text: bytes) -> None:
        """Pass an item that has arrived to the run."""
        if stream.host is not None and stream.served.open:
            stream.host.take(text if stream.binary else msgspec.json.decode(text), self, stream)

    def end_stream(self, stream: StreamIn, reason: str | None) -> None:
        """Handle the end of a stream; if there is a `reason`, the stream was broken off."""
        if stream.host is not None and stream.served.open:
            stream.host.end(reason)

    # ---- the end

    def close(self) -> None:
        """Close the receiving end, because the connection is gone. Repeatable requests go on for a while."""
        self._over = True
        if self._tells is not None:
            self._tells.close(is_spent=False)
        for served in tuple(self._open):
            if not self._goes_on(served):
                self.withdraw(served, is_cut_off=True)
        if self._listeners is not None:
            self._listeners.close()
        for far in tuple(self._no_room):
            far.go_on()
        self._no_room = NOT_NEEDED_YET

    def _goes_on(self, served: Served) -> bool:
        if served.verb.word != "invoke":
            return False
        if served.far.op.on_disconnect == "finish":
            for stream in (served.streams or {}).values():
                stream.host.end("the connection ended")
            return True
        if not served.is_attempt and served.key is None:
            return False
        self._rt.timers.call_at(trio.current_time() + GOES_ON, partial(self._give_up, served))
        return True

    def _give_up(self, served: Served) -> None:
        """End a run whose caller has not repeated its request."""
        if served.repeated_by is None:
            self.withdraw(served)


def _any(served: ServedTell) -> Any:
    """Return a request as one of LMOS, of which it has the members that are needed."""
    return served


def _nothing(*_: object) -> None:
    """Do nothing: in a simulated network nothing is drained or charged."""


def _raised(error: BaseException) -> None:
    raise error
