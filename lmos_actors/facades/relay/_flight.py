"""The messages that wait for a reaction of a relay, and the matching of reactions to them.

Receipts, and the errors of a relay that has receipts, name their message. All other reactions are matched by
order:

- **Echoes arrive in the order of the messages.** Once an echo has arrived, earlier messages without one are
  lost.
- **An answer to a command has the right type**, and belongs to the oldest command that expects it: a relay
  may ignore an unknown command.
- **An error is about the oldest waiting message.** Messages that wait for the relay's store are excepted:
  receipts of commands, and messages that were passed on. If a message without any acknowledgement was sent
  before a message with an echo, the error may be about the former.

Messages without a waiting caller stay here, at most `LEFT` of them, so that a reaction to one is not matched
to another message.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.errors import ActionFailed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.protocol.relay import RelayFault, RelayMessage

    from ._sent import Sent

LEFT: Final = 256
"""Maximum messages that were sent, are unanswered, and that nobody waits for."""


class Flight:
    """The messages and commands that were sent to one relay and wait for a reaction."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._commands: deque[Sent] = deque()
        self._echoes: deque[Sent] = deque()
        self._receipts: dict[str, Sent] = {}  # by the word that the receipt repeats
        self._left: OrderedDict[Sent, None] = OrderedDict()
        self._alone = 0  # the number of the last one that nothing acknowledges
        self.last = 0
        """The number of the last message that was sent."""

    def __len__(self) -> int:
        return len(self._commands) + len(self._echoes) + len(self._receipts)

    def add(self, sent: Sent) -> None:
        """Add a message or a command that has been sent."""
        self.last += 1
        sent.number = self.last
        if sent.acknowledgement:
            self._commands.append(sent)
        elif sent.echo is not None:
            sent.follows_alone = self._alone > max((each.number for each in self._echoes), default=0)
            self._echoes.append(sent)
        elif sent.receipt:
            self._receipts[sent.receipt] = sent
        else:
            self._alone = self.last
            return
        if sent.is_left:
            self.leave(sent)

    def leave(self, sent: Sent) -> None:
        """Note that no caller waits for a message any longer; it may not have been sent yet."""
        sent.is_left = True
        if self._has(sent):
            self._left[sent] = None
            if len(self._left) > LEFT:
                self.forget(next(iter(self._left)))

    def _has(self, sent: Sent) -> bool:
        if sent.receipt:
            return self._receipts.get(sent.receipt) is sent
        return sent in self._commands or sent in self._echoes

    def forget(self, sent: Sent) -> None:
        """Forget a message: a later reaction to it is handled like any other."""
        self._left.pop(sent, None)
        if self._receipts.get(sent.receipt) is sent:
            del self._receipts[sent.receipt]
        for each in (self._commands, self._echoes):
            if sent in each:
                each.remove(sent)

    # ---- what the relay says

    def answered(self, type: str) -> Sent | None:
        """Return the command that an answer of a type belongs to, and remove it; None if there is none."""
        found = next((each for each in self._commands if each.acknowledgement == type), None)
        if found is not None:
            for each in [each for each in self._commands if each.is_left and each.number < found.number]:
                self.forget(each)
            self.forget(found)
        return found

    def came_back(self, message: RelayMessage) -> Sent | None:
        """Return the message whose echo has arrived, and fail earlier messages without an echo."""
        echo = message.type, message.payload
        found = next((each for each in self._echoes if each.echo == echo), None)
        while found is not None and (first := self._echoes[0]) is not found:
            self.forget(first)
            first.fail(OutcomeUnknown(self._url, "the relay has not passed it on, but what came after it"))
        if found is not None:
            self.forget(found)
        return found

    def received(self, word: str, *, is_final: bool) -> Sent | None:
        """Return the message of a receipt; a receipt that is not final means that it was passed on."""
        found = self._receipts.get(word)
        if found is not None and is_final:
            self.forget(found)
        elif found is not None:
            found.is_passed = True
        return found

    def refused(self, fault: RelayFault) -> bool:
        """Fail the message that an error is about; return False if that message is unknown."""
        found = self._receipts.get(fault.receipt) if fault.receipt else self._oldest()
        if found is None:
            return False
        self.forget(found)
        found.fail(ActionFailed({"code": fault.code, "message": fault.message}))
        return True

    def _oldest(self) -> Sent | None:
        receipts = list(self._receipts.values())
        prompt = next((each for each in receipts if not (each.is_command or each.is_passed)), None)
        firsts = [*list(self._commands)[:1], *list(self._echoes)[:1], *([prompt] if prompt else [])]
        if not firsts:
            return receipts[0] if receipts else None
        found = min(firsts, key=lambda each: each.number)
        return None if found.follows_alone else found

    # ---- ends

    def leave_unknown(self, last: int, why: str) -> None:
        """Fail all waiting messages, up to a message number, with OutcomeUnknown."""
        self.give_up(last, OutcomeUnknown(self._url, why))

    def give_up(self, last: int, error: Exception) -> None:
        """Fail all waiting messages, up to a message number, as their outcome will not become known."""
        for each in (*self._commands, *self._echoes, *self._receipts.values()):
            if each.number <= last:
                self.forget(each)
                each.fail(error)


class RatePause:
    """The pause after a relay has refused a message beyond a rate; one refusal may concern several messages.

    While `is_on` is set, nothing is sent. Messages that were sent before the pause, and still wait at its
    end, are given up.
    """

    def __init__(self, flight: Flight, on_end: Callable[[], object]) -> None:
        self.is_on = False
        self._flight = flight
        self._on_end = on_end
        self._begun = trio.Event()

    def begin(self) -> None:
        """Begin the pause, unless it is on."""
        self.is_on = True
        self._begun.set()

    async def run(self) -> None:
        """End each pause after its time, until cancelled; a pause that is already on starts again."""
        while True:
            if not self.is_on:
                self._begun = trio.Event()
                await self._begun.wait()
            last = self._flight.last
            await trio.sleep(2.0)  # the relay repeats its refusal at most once a second
            why = "the relay has refused messages beyond its rate, and not said which"
            self._flight.leave_unknown(last, why)
            self.is_on = False
            self._on_end()
