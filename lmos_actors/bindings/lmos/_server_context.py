"""The context that all connections of one LMOS server share: exposure, limits, and unanswered requests.

The table `open` outlives connections on purpose. A run may go on after its connection has ended, because its
action declares it, or because its peer may reconnect and ask for the answer (`goes_on`). So a request is
found and withdrawn here, not in the connection that received it.

The HTTP binding uses the same context: one seat table, one rule for the parts of errors that peers may read,
one drain.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from lmos_actors.actors import HOPS, Seats, far_key, keyed_requests_of
from lmos_actors.errors import ActionCancelled
from lmos_actors.protocol.lmos import IncomingRequest, InvokeAction
from lmos_actors.supervision import class_at

from ..exposure._access_middleware import is_of_other_page
from ..exposure._description_security import CRASHED, discreet
from ..exposure._meter import left
from ..exposure._shared_values import SharedValues
from ._server_inputs import break_off
from ._server_listeners import exited
from ._server_tells import WaitingTells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors._core import Budget, Headers
    from lmos_actors.actors import Down, Far, Operation, Peer, RequestKey, Runtime
    from lmos_actors.errors import AgentDied, WouldDeadlock
    from lmos_actors.protocol.lmos import SessionOptions, ThingSession, WaitsAsked
    from lmos_actors.security import Admission, Verb

    from ..exposure._exposure import Exposure

E = TypeVar("E", bound=Exception)

KNOWN: Final = 1024
"""The number of actions whose `answers_later` is kept."""

WALKS: Final = 64
"""The most open questions of peers about what a run waits for; further ones get an empty answer."""

NAMES_COMPARED: Final = 100
"""The most names that an unknown one is compared with: it takes time, and any peer may cause it."""


class ServerContext:
    """The state and the rules that the connections of one server share, over LMOS and over HTTP.

    `on_failure` receives errors that belong to no request; it must not raise. `on_settled` is called when
    a shared answer has gone out over several connections, which may all be due to end.
    """

    def __init__(
        self,
        rt: Runtime,
        exposure: Exposure,
        options: SessionOptions,
        budget: Budget,
        *,
        sends_crash_details: bool,
        on_failure: Callable[[BaseException], object],
        on_settled: Callable[[], object],
    ) -> None:
        self.rt = rt
        self.exposure = exposure
        self.options = options
        self.budget = budget
        self.sends_crash_details = sends_crash_details
        self.sharing = SharedValues(budget)
        self.seats = Seats()
        self.generation = rt.entropy.new_id()
        self.leaving = False
        """Whether connections are closed one after another, and no new ones are taken."""
        self.draining = False
        self.finishing = False
        self.open: dict[IncomingRequest, Far] = {}
        """Unanswered requests of all connections; a run may outlive its connection."""
        self.waiting_tells = WaitingTells(budget)
        """The one-way messages that wait, over all connections."""
        self.later: dict[Operation, bool] = {}
        """The results of `answers_later`, by operation."""
        self._walks = 0
        self._on_failure = on_failure
        self._on_settled = on_settled

    # ---- open requests

    def withdraw(self, asked: IncomingRequest, *, is_cut_off: bool = False) -> None:
        """Withdraw a request from its mailbox, or cancel its run, as its caller is gone or was cut off."""
        far = self.open.pop(asked, None)
        if far is not None:
            far.is_cut_off = is_cut_off
            far.slot.withdraw(far)
            far.leave()
            left(far)

    def cut_off(self, asked: IncomingRequest) -> None:
        """Note that a caller was cut off; a request with a key goes on, as the caller will ask again."""
        if getattr(asked.message, "key", None) is None:
            self.withdraw(asked, is_cut_off=True)
        else:
            self._give_up_later(asked)

    def credited(self, run: object) -> None:
        """Resume a run that waited for room, because its peer takes more items."""
        far = self.open.get(run) if isinstance(run, IncomingRequest) else None
        if far is not None:
            far.go_on()

    def tell_waits(self, session: ThingSession, demand: WaitsAsked) -> None:
        """Answer the question of what a run waits for, now or once other nodes have answered."""
        far, asked = self.open.get(demand.request), demand.message.asked or ()
        if far is None or not 0 < len(asked) <= HOPS or self._walks >= WALKS:
            session.tell_waits(demand, {})
            return
        self._walks += 1

        def then(waits: dict[str, Any]) -> None:
            self._walks -= 1
            session.tell_waits(demand, waits)

        self.rt.circles.describe(far, tuple(asked), then, shows=self.sends_crash_details)

    def goes_on(self, asked: IncomingRequest) -> bool:
        """Return whether a request goes on after its connection has ended.

        An action may declare this (`on_disconnect="finish"`). A request that the peer may send again goes on
        for as long as its answer would be remembered.
        """
        far = self.open.get(asked)
        if far is None or not isinstance(asked.message, InvokeAction):
            return False
        if far.op.on_disconnect == "finish":
            break_off(asked.streams or {}, "the connection ended")
            return True
        if (asked.message.attempt is None and asked.message.key is None) or not asked.remembered:
            return False
        self._give_up_later(asked)
        return True

    def _give_up_later(self, asked: IncomingRequest) -> None:
        until = trio.current_time() + self.options.repeat_seconds
        self.rt.timers.call_at(until, lambda: self._give_up(asked))

    def _give_up(self, asked: IncomingRequest) -> None:
        """End a run whose peer has not reconnected."""
        far = self.open.get(asked)
        is_away = asked.connection.over or not asked.open
        if far is not None and is_away and not asked.also:
            self.withdraw(asked)
            far.asker.failed(far, ActionCancelled("the consumer left"))

    def settled(self) -> None:
        """Check whether connections can end, after a shared answer has gone out over several of them."""
        if self.draining or self.leaving:
            self._on_settled()

    def post_keyed(self, far: Far, key: str, principal: str | None, headers: Headers, peer: Peer) -> None:
        """Carry out a request unless one with the same key runs or has run.

        The headers of its connection are `headers`. Raises the same errors as `KeyedRequests.post`.
        """
        keyed_requests_of(far.slot).post_far(self.key_of(key, principal, headers), far, self.seats, peer)

    # ---- rules

    def key_of(self, text: str, principal: str | None, headers: Headers) -> RequestKey:
        """Return the key of a request, in the scope of its client. Raises InvalidInput."""
        return far_key(text, principal, guarded=self.rt.is_guarded or is_of_other_page(headers))

    def answers_later(self, far: Far) -> bool:
        """Return whether an action is declared `synchronous=False`: it is reported as pending at once."""
        later = self.later.get(far.op)
        if later is None:
            cls = class_at(far.slot)
            handle = None if cls is None else cls.__contract__.actions.get(far.op.name)
            later = handle is not None and handle.options.synchronous is False
            if len(self.later) >= KNOWN:  # classes come and go
                self.later.clear()
            self.later[far.op] = later
        return later

    def known_names(self, admission: Admission | None = None, verb: Verb = "read") -> Iterator[str]:
        """Return names to compare with an unknown name: those that the peer may use for this verb."""
        names = islice(self.exposure.names(), NAMES_COMPARED)
        return names if admission is None else (name for name in names if admission.allows(name, verb))

    def shown(self, error: E) -> E | AgentDied | WouldDeadlock:
        """Return an error in the form for peers: crashes have no text, unless the options allow it."""
        return error if self.sends_crash_details else discreet(error)

    def shown_question(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return a question to a person in the form for peers.

        It has its id and key only if `sends_crash_details` is set.
        """
        return question if self.sends_crash_details else {**question, "id": "", "key": ""}

    def exited(self, down: Down) -> dict[str, Any]:
        """Return the end of an incarnation as plain data, with the part of the reason that peers may know."""
        data = exited(down, self.generation)
        if not self.sends_crash_details and down.reason.error is not None:
            data["reason"]["text"] = CRASHED
        return data

    def failed(self, error: BaseException) -> None:
        """Report an error that belongs to no request."""
        self._on_failure(error)
