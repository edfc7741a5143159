"""Runs of actions: what their statuses mean, and what is asked about them while they last (DECISIONS W1).

What a status is for, by the members it carries (`aside`: an open query or cancel):

    inReplyTo of a query     that query
    inReplyTo of a cancel    that cancel and, if it is a final one, its run
    the run's correlation    the run; of a peer that does not know inReplyTo, its oldest aside as well, and
                             all of them if it is a final one
    the aside's own id       that aside and, if it says that the run was ended, its run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    LocalProtocolError,
    MailboxFull,
    NotAllowed,
    RemoteProtocolError,
)

from .._dialects import FINAL, canonical_status
from .._messages import CancelAction, QueryAction
from .._pending import Aside, Call, Standing
from .._problems import UNSUPPORTED, error_of, invalid
from .._streams import Arrived, Credited, Stopped, Violation
from ._outcomes import Item, Moved
from ._requests import MAX_QUERIES
from ._streams import offers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.errors import LmosActorsError

    from .._messages import ActionStatus, Credit, Error
    from .._pending import Pending
    from .._streams import Finished
    from ._outcomes import Happenings
    from ._requests import Requests
    from ._streams import ConsumerStreams
    from ._wire import Wire


class Runs:
    """The invocations of one connection, their queries and cancels."""

    __slots__ = ("_requests", "_streams", "_wire")

    def __init__(self, wire: Wire, requests: Requests, streams: ConsumerStreams) -> None:
        self._wire = wire
        self._requests = requests
        self._streams = streams

    # -- asking

    def ask_streaming(
        self, run: Call, credit: Credit | None, kinds: Mapping[str, str], *, binary: bool
    ) -> Call:
        """Ask for a run with streams, as far as the peer knows any; NotAllowed if it takes no inputs."""
        if "streams" not in self._wire.known:
            if kinds:
                raise NotAllowed("this peer takes no input streams")
            return self._requests.ask(run)
        self._requests.check_room(run)
        run.inputs = self._streams.offer(run, kinds)
        run.answer = self._streams.expect(run, credit)
        streams = offers(run.inputs) or None
        run.request = msgspec.structs.replace(run.request, credit=credit, streams=streams, binary=binary)
        try:
            return self._requests.ask(run)
        except LocalProtocolError:
            self._streams.drop(run)
            raise

    def query(self, run: Call) -> Aside:
        """Ask where a run stands: the peer, or what is known here if there is nobody to ask.

        Raises MailboxFull: too many queries of this run are open.
        """
        self._check(run)
        aside = Aside(QueryAction(**self._about(run)), run)
        if not self._can_ask(run):
            return self._known(aside)
        if sum(1 for other in run.asides if other.verb == "queryAction") >= MAX_QUERIES:
            raise MailboxFull(run.thing_id, MAX_QUERIES)
        return self._send(aside)

    def cancel(self, run: Call, reason: str | None) -> Aside:
        """Ask to end a run. One that nobody can be asked about ends here and now, as does an unsent one."""
        self._check(run)
        merged = next((other for other in run.asides if other.verb == "cancelAction"), None)
        if merged is not None:
            return merged
        aside = Aside(CancelAction(**self._about(run), reason=reason), run)
        unsent = not run.done and self._requests.drop(run)
        if not unsent and self._can_ask(run):
            return self._send(aside)
        if not run.done:
            self._end_here(run, reason, unsent=unsent)
        return self._known(aside)

    def _check(self, run: Call) -> None:
        """Raise LocalProtocolError if the session is closed, or the run is one of another."""
        self._wire.check_open()
        if not run.done and not run.forgotten and self._requests.find(run.message_id) is not run:
            raise LocalProtocolError("this run belongs to another connection")

    def _about(self, run: Call) -> dict[str, str]:
        """The members that a query and a cancel have in common (W1)."""
        return {
            "thing_id": run.thing_id,
            "message_id": self._wire.new_id(),
            "correlation_id": run.message_id,
            "action": run.request.action,
        }

    def _can_ask(self, run: Call) -> bool:
        """A peer of kotlin-wot's habits closes the connection at a type that it does not know (D19)."""
        return not self._wire.kotlin and not run.done

    def _send(self, aside: Aside) -> Aside:
        self._requests.ask_aside(aside)
        aside.run.asides.append(aside)
        return aside

    def _known(self, aside: Aside) -> Aside:
        aside.done, aside.value = True, aside.run.standing()
        return aside

    def _end_here(self, run: Call, reason: str | None, *, unsent: bool) -> None:
        run.status, run.cancelled, run.reason = "failed", True, reason
        self._streams.drop(run)
        if run.forgotten:
            run.done = True
            return
        self._requests.fail(run, ActionCancelled(reason))
        if not unsent:
            self._requests.expect_late(run)

    def forget(self, run: Call) -> None:
        """Nobody waits for this run any more: its items are not taken either."""
        self._streams.drop(run)
        run.asides.clear()

    # -- statuses

    def take_status(self, message: ActionStatus, size: int) -> Happenings:
        """Take a status of a run; `size` are the bytes of the message (`wire_size`)."""
        if message.in_reply_to is not None:
            return self._take_reply(message)
        found = self._requests.find(message.correlation_id) or self._guess_of(message)
        if isinstance(found, Call):
            return self._moved(found, message, size)
        if isinstance(found, Aside):
            return self._told(found, message)
        if found is not None:
            return self._wire.stray(message, f"no answer to {found.verb}")
        return self._of_forgotten(message.correlation_id, message)

    def _take_reply(self, message: ActionStatus) -> Happenings:
        aside = self._requests.find_aside(message.in_reply_to)
        if aside is not None and (aside.verb == "queryAction" or not is_final(message)):
            return self._told(aside, message)
        over = self._over(message) if is_final(message) else None
        if aside is not None:
            return (*(over or ()), *self._told(aside, message))
        return self._of_forgotten(message.in_reply_to, message) if over is None else over

    def _over(self, message: ActionStatus) -> Happenings | None:
        """End the run of this correlation; None if there is none."""
        run = self._requests.find(message.correlation_id)
        if isinstance(run, Call):
            return self._ended(run, message)
        if self._requests.find_forgotten(message.correlation_id) is None:
            return None
        return self._of_forgotten(message.correlation_id, message)

    def _of_forgotten(self, correlation: str | None, message: ActionStatus) -> Happenings:
        forgotten = self._requests.find_forgotten(correlation)
        if correlation is None:
            forgotten = self._requests.take_unnamed(message.thing_id, message.action)
        if forgotten is None:
            return self._wire.stray(message, "no run of this correlation is open")
        if not is_final(message):
            return self._wire.come_late()
        return self._requests.come_for_forgotten(forgotten, None)

    def _guess_of(self, message: ActionStatus) -> Pending | None:
        if message.correlation_id is not None:
            return None
        thing, action = message.thing_id, message.action
        return self._requests.guess(
            lambda pending: (
                isinstance(pending, Call) and (pending.thing_id, pending.request.action) == (thing, action)
            )
        )

    def _moved(self, run: Call, message: ActionStatus, size: int) -> Happenings:
        """The run itself has a status; a peer that knows no `inReplyTo` answers by it what was asked, too."""
        final = is_final(message)
        asides = run.asides[: None if final else 1] if run.asides and not self._wire.ours else ()
        found = self._ended(run, message) if final else self._went_on(run, message, size)
        told = [said for aside in asides for said in self._told(aside, message)]
        return (*found, *told) if told else found

    def _went_on(self, run: Call, message: ActionStatus, size: int) -> Happenings:
        status, progress = canonical_status(message.status), message.progress
        run.waited = run.waited or status == "pending"
        found: Happenings = ()
        if status != run.status or progress is not UNSET:
            found = (Moved(run, status, progress),)
            run.status = status
            run.progress = progress if progress is not UNSET else run.progress
        if message.output is UNSET:
            return found
        if run.answer is None:
            return (*found, Item(run, message.output))
        return (*found, *self.said(self._streams.take_output(run.answer, message.output, size)))

    def _ended(self, run: Call, message: ActionStatus) -> Happenings:
        standing = standing_in(message)
        run.status, run.cancelled, run.reason = standing.status, standing.cancelled, standing.reason
        run.output = message.output
        self._streams.drop(run)
        if standing.status == "completed":
            return self._requests.answer(run, message.output)
        if standing.cancelled:
            return self._requests.fail(run, ActionCancelled(standing.reason))
        output = None if message.output is UNSET else message.output
        return self._requests.fail(run, ActionFailed(output))

    def _told(self, aside: Aside, message: ActionStatus) -> Happenings:
        """A query or cancel is answered; one that says the run was ended is the end of the run as well."""
        standing = standing_in(message)
        run = aside.run
        self._leave(aside)
        found = self._requests.answer(aside, standing)
        over = aside.verb == "cancelAction" and standing.status in ("failed", "cancelled")
        if over and not run.done and not run.forgotten:
            return (*self._ended(run, message), *found)
        return found

    def _leave(self, aside: Aside) -> None:
        if aside in aside.run.asides:
            aside.run.asides.remove(aside)

    # -- errors

    def take_error(self, run: Call, message: Error) -> Happenings:
        """Take an error about a run; from a peer that knows no `inReplyTo` it may be about an aside."""
        asides = [] if self._wire.ours else list(run.asides)
        if asides and message.type == UNSUPPORTED:
            return self.take_aside_error(asides[0], message)
        return self.fail(run, error_of(message, run.request))

    def take_aside_error(self, aside: Aside, message: Error) -> Happenings:
        """Take an error as the answer to a query or a cancel."""
        return self.fail_aside(aside, error_of(message, aside.request))

    def fail(self, run: Call, error: LmosActorsError) -> Happenings:
        """End a run with an error; and what was asked about it, where the peer answers that by it, too."""
        self._streams.drop(run)
        found = self._requests.fail(run, error)
        for aside in () if self._wire.ours else tuple(run.asides):
            found = (*found, *self.fail_aside(aside, error))
        return found

    def fail_aside(self, aside: Aside, error: LmosActorsError) -> Happenings:
        """End a query or a cancel with an error."""
        self._leave(aside)
        return self._requests.fail(aside, error)

    # -- streams

    def said(self, news: Arrived | Finished | Credited | Stopped | Violation | None) -> Happenings:
        """Say in the words of this session what the streams have found."""
        if isinstance(news, Violation):
            return self._broken(news)
        if isinstance(news, Arrived) and isinstance(news.run, Call):
            return (Item(news.run, news.item),)
        return (news,) if isinstance(news, Credited | Stopped) else ()

    def _broken(self, news: Violation) -> Happenings:
        """The peer broke the rules of a stream: the run has failed here, and is to end there."""
        run = news.run
        if not isinstance(run, Call) or run.done:
            return ()
        error = RemoteProtocolError(invalid(news.detail))
        found = self._requests.fail(run, error)
        self._requests.expect_late(run)
        self._wire.outbox.put(CancelAction(**self._about(run), reason=news.detail))
        return found


def is_final(message: ActionStatus) -> bool:
    """Whether this is the last status that a run has."""
    return canonical_status(message.status) in FINAL


def standing_in(message: ActionStatus) -> Standing:
    """Return where a run stands, by the words of the peer."""
    status = canonical_status(message.status)
    cancelled = message.cancelled or status == "cancelled"
    return Standing(status, message.progress, message.output, cancelled, message.reason)
