"""Requests with a key at a durable agent: the first is carried out, and its repeats get the same answer.

The callers of one key wait for one `KeyedRequest`, which takes the place of all of them in the mailbox:

    a caller -> is the key under way? -> it waits too
                is its answer kept?   -> that is its answer
                else                  -> the request is put into the mailbox

What this file keeps true:

- **One run.** While a request is under way, from the lookup in the store until its answer has left the
  output gate, its key has one entry here, and every further caller joins it.
- **One batch.** The answer goes to the store in the batch of the state that the request has changed
  (`OutputGate.answer`). So after a crash both are there, or neither, and then a repeat is carried out.
- **A key names one request.** A repeat with another action or input is refused with `KeyReused`.
- **No caller, no run.** When all callers have given up, the request is withdrawn like any other, unless the
  agent has answered it already: that answer is kept.

While the store is searched for an answer, the request is in no mailbox, so other messages of the same sender
may overtake it. Answers from the store are not counted as messages of the agent.
"""

from __future__ import annotations

import copy
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import msgspec
from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.errors import ActionFailed, AgentUnavailable, InvalidInput, KeyReused, NotAllowed

from .._remote_requests import Far
from ..messages._gates import SERIAL
from ..messages._invocation import CURRENT, comes_back
from ..messages._mailbox import ATTACHED, DONE, HELD_BACK, NEW, Ask, Envelope
from ..messages._operation import ASKING, named
from ..messages._request_keys import NEAR, KeptAnswer, RequestKey, content_of, wrong_operation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from lmos_actors.errors import StoreFailed

    from .._remote_requests import Peer, Seats
    from ..messages._mailbox import Request
    from ..messages._operation import Operation
    from ..slot._slot import Slot


class AnswerStore(Protocol):
    """The kept answers of one agent; filled in by persistence."""

    def find(self, name: str, found: Callable[[KeptAnswer | None, StoreFailed | None], None]) -> None:
        """Look up an answer; `found` is called later with the answer or None, or with an error."""
        ...


PATIENCE: Final = 60.0
"""Seconds for which a request goes on although its caller has ended: the caller will ask again."""

NOBODY: Final[Any] = None
"""Stands in for an asker: answers go to the callers."""


class KeyedRequest(Far):
    """The request that is carried out for all callers of one key."""

    __slots__ = ("callers", "content", "key", "parks", "requests")

    is_keyed = True
    holds_sender = True

    def __init__(self, requests: KeyedRequests, caller: Ask, key: RequestKey, content: str) -> None:
        super().__init__(caller.slot, caller.op, caller.args, NOBODY, None)
        self.requests = requests
        self.key = key
        self.content = content
        self.parks = caller.parks  # type: ignore[misc]  # of a class that has both kinds
        self.sender, self.trace = caller.sender, caller.trace
        self.callers: list[Ask] = []

    def join(self, caller: Ask) -> None:
        """Add a caller, which waits for the answer."""
        caller.phase = ATTACHED
        self.callers.append(caller)

    def outcome(self, value: Any, error: Exception | None) -> KeptAnswer:
        """Return the answer in its stored form. Never raises."""
        at = self.slot.rt.entropy.now().timestamp()
        kept = KeptAnswer(self.key.text, self.op.name, self.content, at)
        try:
            if error is None:
                return msgspec.structs.replace(kept, value=_raw(value))
            return msgspec.structs.replace(kept, failure=_raw(getattr(error, "output", None)))
        except Exception as wrong:
            return msgspec.structs.replace(kept, lost=f"it has no form in JSON: {wrong}")

    # ---- the slot's side

    def on_pending(self) -> None:
        for caller in self.callers:
            caller.on_pending()

    def began(self) -> None:
        self._uninstall()
        for caller in self.callers:
            caller.began()

    def push(self, value: Any) -> None:
        for caller in self.callers:
            if isinstance(caller, Far):
                caller.push(value)

    def answer(self, value: Any) -> None:
        self.leave()
        for place, caller in enumerate(self.requests.ended(self)):
            caller.answer(value if not place else self.op.give(value))

    def fail(self, error: Exception) -> None:
        self.leave()
        for place, caller in enumerate(self.requests.ended(self)):
            caller.fail(error if not place else copy.copy(error))

    def request(self) -> Request:
        """Return the request of the first caller, with its consumer."""
        return self.callers[0].request() if self.callers else Envelope.request(self)

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        return tuple(task for caller in self.callers for task in caller.waiting_tasks())


@attrs.define(eq=False)
class KeyedRequests:
    """The requests with keys of one durable agent that are under way; see the top of this file."""

    slot: Slot
    store: AnswerStore
    _open: dict[str, KeyedRequest] = attrs.field(factory=dict[str, KeyedRequest])
    _joined: dict[Ask, KeyedRequest] = attrs.field(factory=dict[Ask, KeyedRequest])

    # ---- ways in

    @named(ASKING)
    @enable_ki_protection
    async def ask(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None, text: str
    ) -> Any:
        """Ask for an action that is carried out once for a key of this node; otherwise see `Slot.ask`."""
        slot = self.slot
        op = slot.operation(key)
        args = slot.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        ask = Ask(slot, op, args, slot.sender(), None)
        named_so = RequestKey(NEAR, text)
        return await slot.ask_queued(ask, seconds, post=partial(self.post, named_so, put=slot.post))

    def post_far(self, key: RequestKey, far: Far, seats: Seats, peer: Peer) -> None:
        """Post a request from afar that is carried out once for its key. Raises the same errors as `post`."""
        far.peer = peer
        self.post(key, far, put=lambda request: request.post(seats, peer))

    def post(self, key: RequestKey, caller: Ask, put: Callable[[KeyedRequest], None]) -> None:
        """Add a caller that waits for the answer of its key; `put` puts the request into the mailbox.

        Raises NotAllowed if the request cannot have a key; KeyReused, AgentUnavailable, NotFound.
        """
        slot, op = self.slot, caller.op
        if slot.size < 0:
            raise slot.closed_error()
        content = self._content(op, caller.args)
        known = self._open.get(key.name)
        if known is not None:
            _check(slot, key.text, known.content, content, known.op.name)
            known.join(caller)
            self._joined[caller] = known
            return
        request = KeyedRequest(self, caller, key, content)
        request.join(caller)
        self._open[key.name] = self._joined[caller] = request
        context = copy_context()  # the trace and the run in which it was sent
        self.store.find(key.name, lambda kept, error: context.run(self._found, request, put, kept, error))

    def _content(self, op: Operation, args: tuple[Any, ...]) -> str:
        why = wrong_operation(op)
        if why is not None:
            raise NotAllowed(f"a request with a key cannot be made: {why}")
        try:
            return content_of(op, args)
        except Exception as error:
            raise NotAllowed(f"a request with a key needs an input in JSON: {error}") from None

    def _found(
        self,
        request: KeyedRequest,
        put: Callable[[KeyedRequest], None],
        kept: KeptAnswer | None,
        error: StoreFailed | None,
    ) -> None:
        """Answer a request with the kept answer, or put it into the mailbox if there is none."""
        if self._open.get(request.key.name) is not request:  # all callers have given up
            return
        slot = self.slot
        try:
            if error is not None:
                retry_in = None if slot.rt.keeping is None else slot.rt.keeping.retry_in
                raise AgentUnavailable(slot.path, f"its store fails: {error}", retry_in=retry_in)
            if kept is None:
                put(request)
                if slot.rt.full_slots or slot.gate == SERIAL:
                    slot.rt.circles.look_again(request)
                return
            _check(slot, request.key.text, kept.content, request.content, kept.action)
            value = _answer_in(kept, request.op, slot.path)
        except Exception as wrong:
            request.fail(wrong)
        else:
            request.answer(value)

    def request_of(self, caller: Ask) -> KeyedRequest:
        """Return the request whose answer a caller is waiting for."""
        return self._joined[caller]

    # ---- ways out

    def leave(self, caller: Ask) -> None:
        """Forget a caller that has given up; with the last one the request is withdrawn.

        If that caller has ended, and asks again in its next life, the request goes on for a while.
        """
        request = self._joined.pop(caller, None)
        if request is None:
            return
        request.callers.remove(caller)
        if comes_back(CURRENT.get()):
            self.slot.rt.timers.call_after(PATIENCE, partial(self._give_up, request))
        else:
            self._give_up(request)

    def _give_up(self, request: KeyedRequest) -> None:
        """Withdraw a request if no caller waits for it, unless its answer is already being kept."""
        is_open = self._open.get(request.key.name) is request
        if is_open and not request.callers and request.phase != HELD_BACK:
            del self._open[request.key.name]
            if request.phase != NEW:  # else the store is still being asked for an answer
                self.slot.withdraw(request)
                request.leave()

    def ended(self, request: KeyedRequest) -> list[Ask]:
        """Forget a request that has its answer; return its callers, which now get it."""
        if self._open.get(request.key.name) is request:
            del self._open[request.key.name]
        callers, request.callers = request.callers, []
        for caller in callers:
            self._joined.pop(caller, None)
            caller.phase = DONE
        return callers


def _check(slot: Slot, key: str, one: str, other: str, action: str) -> None:
    if one != other:
        raise KeyReused(slot.path, key, f"it names another request, of {action!r}")


def _answer_in(kept: KeptAnswer, op: Operation, path: str) -> Any:
    """Return the value of a kept answer. Raises its failure, or KeyReused if the value is lost or invalid."""
    if kept.lost:
        raise KeyReused(
            path, kept.key, f"its request was carried out, but the answer is not kept: {kept.lost}"
        )
    if isinstance(kept.failure, msgspec.Raw):
        raise ActionFailed(msgspec.json.decode(kept.failure))
    value = msgspec.json.decode(kept.value) if isinstance(kept.value, msgspec.Raw) else None
    try:
        return op.give(value)
    except InvalidInput as wrong:
        raise KeyReused(
            path, kept.key, f"its request was carried out, but the answer is no longer valid: {wrong}"
        ) from None


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic")))
